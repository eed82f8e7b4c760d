//! The test bed: phones on two hosts, a proxy, and a router between them.
//!
//! Callers are on one host, those they call on another; the proxy stands beside the router, through
//! which everything goes (Pang 2003, Figures 5.4 and 5.8). Each link has settings of its own, so
//! that losses can be placed. All phones of a host share its flow to the proxy.

use super::phone::{Call, Desk, Phone, Plan};
use super::proxy::Proxy;
use ringway_link::random::Stream;
use ringway_link::{LinkConfig, Streams};
use ringway_sansio::{Duration, Random, Target, Time};
use ringway_sim::flows::{Host, TransportConfig};
use ringway_sim::{EndpointId, Error, NodeId, World};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The port of SIP, at both ends of everything.
const PORT: u16 = 5060;
/// When phones register.
const REGISTER: Time = Time::from_millis(100);

/// A test bed and what is to happen on it.
#[derive(Clone, Debug)]
pub struct Bed {
    /// What carries SIP.
    pub carried: TransportConfig,
    /// The links of the callers' host, of the other host and of the proxy: to the router, and from it.
    pub links: [[LinkConfig; 2]; 3],
    /// Callers, each with somebody to call.
    pub pairs: u8,
    /// Whether callers register too, so that their flow to the proxy is there before they call.
    pub callers_register: bool,
    /// When the first call may begin. Callers begin at a random time within the pause after it.
    pub from: Time,
    /// No call begins after this.
    pub until: Time,
    /// When the run is cut.
    pub end: Time,
    /// How long a call lasts.
    pub talk: Duration,
    /// From one call to the next.
    pub pause: Duration,
    /// How long a phone rings before it answers.
    pub answer: Duration,
}

/// What came of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calls {
    /// The calls of all callers.
    pub calls: Vec<Call>,
    /// How long each REGISTER took; the status where it failed, `None` where it got no answer.
    pub registered: Vec<Option<Result<Duration, u16>>>,
    /// Messages that the phones' transactions sent again.
    pub retransmitted: u64,
    /// What TCP or SCTP of the two hosts sent again.
    pub transport_retransmits: u64,
    /// Packets that all hosts sent.
    pub packets: u64,
    /// Bytes of those that left, with IP headers.
    pub bytes: u64,
    /// Packets that links dropped.
    pub dropped: u64,
}

fn address(host: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, host, 1).into()
}

impl Bed {
    /// Runs it once with these random streams.
    pub fn run(&self, streams: Streams) -> Result<Calls, Error> {
        let mut world = World::new(streams);
        let router = world.add_node("router")?;
        let mut hosts = Vec::new();
        let mut outs = Vec::new();
        for (number, (name, link)) in ["a", "b", "proxy"].iter().zip(&self.links).enumerate() {
            let node = world.add_node(name)?;
            let [to, from] = link.clone();
            let (out, _) = world.connect(node, router, to, from)?;
            world.add_address(out, address(number as u8))?;
            hosts.push(node);
            outs.push(out);
        }
        let local = SocketAddr::new(address(2), PORT);
        let transport = self.carried.transport();
        let proxy = Proxy::new(local, transport, streams.stream("proxy/sip"));
        self.attach(&mut world, hosts[2], 2, proxy, &streams)?;
        let target = Target::Peer { transport, remote: local, name: None };
        let mut ends = Vec::new();
        for (host, node) in [(0, hosts[0]), (1, hosts[1])] {
            let phones = (0..self.pairs).map(|n| self.phone(host, n, target.clone(), &streams));
            let desk = Desk(phones.collect());
            ends.push(self.attach(&mut world, node, host, desk, &streams)?);
        }
        world.run_until(self.end)?;
        let mut calls = collect(&world, &ends);
        calls.bytes = outs.iter().map(|out| world.counters(*out).left_bytes).sum();
        Ok(calls)
    }

    fn attach<P: ringway_sansio::Program + 'static>(
        &self,
        world: &mut World,
        node: NodeId,
        host: u8,
        program: P,
        streams: &Streams,
    ) -> Result<EndpointId, Error> {
        let random = streams.stream(&format!("host {host}/flows"));
        Host::attach(world, node, (&[address(host)], PORT), self.carried, program, random)
    }

    fn phone(&self, host: u8, number: u8, proxy: Target, streams: &Streams) -> Phone<Stream> {
        let calls = host == 0;
        let user = if calls { format!("caller{number}") } else { format!("callee{number}") };
        let mut random = streams.stream(&format!("{user}/sip"));
        let part = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let begin = self.from + self.pause.mul_f64(part);
        let plan = Plan {
            register: (!calls || self.callers_register).then_some(REGISTER),
            call: calls.then(|| (format!("callee{number}"), begin)),
            until: self.until,
            talk: self.talk,
            pause: self.pause,
            answer: self.answer,
        };
        Phone::new(number, &user, SocketAddr::new(address(host), PORT), proxy, plan, random)
    }
}

fn collect(world: &World, ends: &[EndpointId]) -> Calls {
    let mut all = Calls::default();
    for end in ends {
        let Some(host) = world.endpoint::<Host<Desk<Stream>>>(*end) else { continue };
        all.transport_retransmits += host.retransmits();
        for phone in &host.program().0 {
            all.calls.extend(phone.calls().copied());
            all.registered.push(phone.registered);
            all.retransmitted += phone.retransmitted();
        }
    }
    let census = world.census();
    (all.packets, all.dropped) = (census.sent, census.dropped);
    all
}
