//! The test bed: phones on two hosts, a proxy, and a router between them.
//!
//! Callers are on one host, their callees on another; the proxy is connected to the router, through
//! which all packets pass (Pang 2003, Figures 5.4 and 5.8). Each link has its own settings, so that
//! losses can be placed. All phones of a host share its flow to the proxy.

use super::phone::{Call, Phone, PhoneHost, Plan};
use super::proxy::{DOMAIN, Proxy};
use ringway_link::random::Stream;
use ringway_link::{LinkConfig, Streams};
use ringway_sansio::{Duration, Random, Target, Time};
use ringway_sim::flows::{Host, TransportConfig};
use ringway_sim::{EndpointId, Error, NodeId, World};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Port of SIP on all hosts.
pub(super) const PORT: u16 = 5060;
/// Time at which phones register.
pub(super) const REGISTER: Time = Time::from_millis(100);

/// A test bed and its schedule.
#[derive(Clone, Debug)]
pub struct TestBed {
    /// Transport that carries SIP.
    pub transport: TransportConfig,
    /// Links of the callers' host, of the callees' host and of the proxy: to the router, and from
    /// it.
    pub links: [[LinkConfig; 2]; 3],
    /// Number of pairs of caller and callee.
    pub pairs: u8,
    /// Whether callers register too, which opens their flow to the proxy before they call.
    pub callers_register: bool,
    /// Time at which callers that register do so again, over the flow that is open then.
    pub register_again: Option<Time>,
    /// Earliest begin of a call. Callers begin at a random time within one pause after it.
    pub from: Time,
    /// Latest begin of a call.
    pub until: Time,
    /// End of the run.
    pub end: Time,
    /// Duration of a call.
    pub talk: Duration,
    /// Pause between two calls.
    pub pause: Duration,
    /// Ringing time of a phone.
    pub answer: Duration,
}

/// Results of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calls {
    /// Calls of all callers.
    pub calls: Vec<Call>,
    /// Duration of each REGISTER; the status if it failed, `None` without a response.
    pub registered: Vec<Option<Result<Duration, u16>>>,
    /// Number of messages retransmitted by the phones' transactions.
    pub retransmitted: u64,
    /// Number of retransmissions by TCP or SCTP of the two hosts.
    pub transport_retransmits: u64,
    /// Number of packets sent by all hosts.
    pub packets: u64,
    /// Bytes of these packets, with IP headers, that links sent.
    pub bytes: u64,
    /// Number of packets dropped by links.
    pub dropped: u64,
}

fn address(host: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, host, 1).into()
}

impl TestBed {
    /// Runs the test bed once with these random streams.
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
        let transport = self.transport.transport();
        let proxy = Proxy::new(local, transport, DOMAIN, None, streams.stream("proxy/sip"));
        self.attach(&mut world, hosts[2], 2, proxy, &streams)?;
        let target = Target::Peer { transport, remote: local, name: None };
        let mut ends = Vec::new();
        for (host, node) in [(0, hosts[0]), (1, hosts[1])] {
            let phones = (0..self.pairs).map(|n| self.phone(host, n, target.clone(), &streams));
            let phones = PhoneHost(phones.collect());
            ends.push(self.attach(&mut world, node, host, phones, &streams)?);
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
        Host::attach(world, node, (&[address(host)], PORT), self.transport, program, random)
    }

    fn phone(&self, host: u8, number: u8, proxy: Target, streams: &Streams) -> Phone<Stream> {
        let calls = host == 0;
        let user = if calls { format!("caller{number}") } else { format!("callee{number}") };
        let mut random = streams.stream(&format!("{user}/sip"));
        let part = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let begin = self.from + self.pause.mul_f64(part);
        let plan = Plan {
            register: (!calls || self.callers_register).then_some(REGISTER),
            register_again: self.register_again.filter(|_| calls && self.callers_register),
            domain: DOMAIN,
            call: calls.then(|| (format!("callee{number}@{DOMAIN}"), begin)),
            until: self.until,
            talk: self.talk,
            pause: self.pause,
            answer: self.answer,
        };
        Phone::new(number, &user, SocketAddr::new(address(host), PORT), proxy, plan, random)
    }
}

pub(super) fn collect(world: &World, ends: &[EndpointId]) -> Calls {
    let mut all = Calls::default();
    for end in ends {
        let Some(host) = world.endpoint::<Host<PhoneHost<Stream>>>(*end) else { continue };
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
