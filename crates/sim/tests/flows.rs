//! Programs that exchange messages, over UDP, TCP and SCTP across a lossy line.

#![allow(clippy::unwrap_used)]

use ringway_link::loss::RandomLoss;
use ringway_link::{Chance, LinkConfig, Loss, Rate, Span, Streams};
use ringway_sansio::{
    CloseReason, Duration, Flow, FlowId, Outbox, Program, Target, Time, Transport,
};
use ringway_sim::flows::{Host, TransportConfig};
use ringway_sim::{EndpointId, World};
use std::net::{IpAddr, SocketAddr};

const PORT: u16 = 5060;

fn ip(host: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, host])
}

fn message(number: usize, call: usize) -> Vec<u8> {
    let body = "x".repeat(number * 37 % 900);
    format!(
        "MESSAGE sip:b@10.0.0.2 SIP/2.0\r\nCall-ID: {call}@a\r\nCSeq: {number} MESSAGE\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A program that sends messages every 20 ms, and returns received messages to their sender.
struct Talker {
    peer: Option<Target>,
    left: usize,
    sent: usize,
    came: Vec<Vec<u8>>,
    closed: Vec<FlowId>,
    not_sent: Vec<u64>,
}

impl Talker {
    fn new(peer: Option<Target>, left: usize) -> Self {
        let (came, closed, not_sent) = (Vec::new(), Vec::new(), Vec::new());
        Talker { peer, left, sent: 0, came, closed, not_sent }
    }
}

impl Program for Talker {
    fn message(&mut self, _: Time, flow: &Flow, bytes: &[u8], out: &mut Outbox) {
        self.came.push(bytes.to_vec());
        if self.peer.is_none() {
            out.push(Target::Flow(*flow), 0, |buf| buf.extend_from_slice(bytes));
        }
    }

    fn not_sent(&mut self, _: Time, report: u64, _: &mut Outbox) {
        self.not_sent.push(report);
    }

    fn closed(&mut self, _: Time, flow: &Flow, _: CloseReason, _: &mut Outbox) {
        self.closed.push(flow.id);
    }

    fn timeout(&mut self, _: Time, out: &mut Outbox) {
        let Some(peer) = self.peer.clone() else { return };
        let number = self.sent;
        self.sent += 1;
        out.push(peer, number as u64 + 1, |buf| buf.extend(message(number, number % 5)));
    }

    fn poll_timeout(&self) -> Option<Time> {
        let next = Time::from_millis(20 * self.sent as u64);
        (self.peer.is_some() && self.sent < self.left).then_some(next)
    }
}

fn talk(transport_config: TransportConfig, loss: f64, to: u8, time: u64) -> (World, EndpointId) {
    let mut world = World::new(Streams::new(7, 0));
    let [a, b] = ["a", "b"].map(|name| world.add_node(name).unwrap());
    let chance = Chance::percent(loss).unwrap();
    let line = LinkConfig {
        rate: Rate(10_000_000),
        delay: Span::from_millis(5),
        loss: Loss::Random(RandomLoss { chance, ..RandomLoss::default() }),
        ..LinkConfig::default()
    };
    let (out, far) = world.connect(a, b, line.clone(), line).unwrap();
    world.add_address(out, ip(1)).unwrap();
    world.add_address(far, ip(2)).unwrap();
    let transport = transport_config.transport();
    let remote = SocketAddr::new(ip(to), PORT);
    let peer = Some(Target::Peer { transport, remote, name: None });
    let streams = *world.streams();
    let mut host = |node, address, name, talker| {
        let random = streams.stream(name);
        Host::attach(&mut world, node, (&[ip(address)], PORT), transport_config, talker, random)
            .unwrap()
    };
    let asks = host(a, 1, "a/flows", Talker::new(peer, 100));
    host(b, 2, "b/flows", Talker::new(None, 0));
    world.run_until(Time::ZERO + Duration::from_secs(time)).unwrap();
    (world, asks)
}

fn all() -> [TransportConfig; 3] {
    let sctp = ringway_sctp::Settings::default();
    [
        TransportConfig::Udp,
        TransportConfig::Tcp(ringway_tcp::Settings::default()),
        TransportConfig::Sctp(sctp, 16),
    ]
}

fn talker(world: &World, id: EndpointId) -> &Host<Talker> {
    world.endpoint::<Host<Talker>>(id).unwrap()
}

/// Messages arrive complete and once over reliable transports even on a lossy line; over TCP in order,
/// over SCTP in the order of their call.
#[test]
fn messages_arrive_complete_and_once() {
    for transport_config in all() {
        for loss in [0.0, 10.0] {
            let (world, id) = talk(transport_config, loss, 2, 60);
            let host = talker(&world, id);
            let mut came = host.program().came.clone();
            let transport = transport_config.transport();
            if transport == Transport::Udp && loss > 0.0 {
                assert!((50..100).contains(&came.len()), "{}", came.len());
                continue;
            }
            let sent: Vec<_> = (0..100).map(|n| message(n, n % 5)).collect();
            if transport == Transport::Sctp {
                let of = |all: &[Vec<u8>], call: &str| -> Vec<Vec<u8>> {
                    let is_one = |m: &&Vec<u8>| String::from_utf8_lossy(m).contains(call);
                    all.iter().filter(is_one).cloned().collect()
                };
                for call in 0..5 {
                    let call = format!("Call-ID: {call}@a");
                    assert_eq!(of(&came, &call), of(&sent, &call));
                }
                came.sort_by_key(|m| sent.iter().position(|s| s == m));
            }
            assert!(came == sent, "{transport}, {loss} %: {}", came.len());
            assert_eq!(host.retransmits() > 0, loss > 0.0, "{transport}");
            assert_eq!(
                (&host.program().not_sent[..], &host.program().closed[..]),
                (&[][..], &[][..])
            );
        }
    }
}

/// There is no peer: every message that was never sent is reported.
#[test]
fn a_message_that_cannot_be_sent_is_reported() {
    for transport_config in &all()[1..] {
        let (world, id) = talk(*transport_config, 0.0, 9, 600);
        let program = talker(&world, id).program();
        assert_eq!(program.not_sent.len(), 100, "{}", transport_config.transport());
        assert_eq!(program.closed, [], "it was never open");
    }
}
