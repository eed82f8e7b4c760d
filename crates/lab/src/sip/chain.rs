//! Two proxies between the phones: callers are users of the first, callees of the second (Pang 2003, chapter 6).
//!
//! Callers share a host, and so do callees; each host has a link to its proxy. Between the proxies there is a link or
//! several, each with addresses of its own at both.

use super::bed::{Calls, PORT, REGISTER, collect};
use super::phone::{Phone, PhoneHost, Plan};
use super::proxy::Proxy;
use ringway_link::random::Stream;
use ringway_link::{LinkConfig, Streams};
use ringway_sansio::{Duration, Program, Random, Target, Time};
use ringway_sim::flows::{Host, TransportConfig};
use ringway_sim::{EndpointId, Error, NodeId, World};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The domains of the two proxies.
const DOMAINS: [&str; 2] = ["a.example.org", "b.example.org"];

/// Phones, two proxies, and a schedule.
#[derive(Clone, Debug)]
pub struct Chain {
    /// Transport that carries SIP between a phone's host and its proxy, and between the proxies.
    pub transport: TransportConfig,
    /// Links between a host and its proxy, in each direction.
    pub access: LinkConfig,
    /// Links between the proxies, in each direction; the primary path first.
    pub between: Vec<LinkConfig>,
    /// Number of pairs of caller and callee.
    pub pairs: u8,
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

/// Returns an address of one of two ends of a network.
fn address(network: u8, end: u8) -> IpAddr {
    Ipv4Addr::new(10, 1, network, end + 1).into()
}

impl Chain {
    /// Runs the chain once with these random streams.
    pub fn run(&self, streams: Streams) -> Result<Calls, Error> {
        let mut world = World::new(streams);
        let hosts = [world.add_node("callers")?, world.add_node("callees")?];
        let proxies = [world.add_node("proxy a")?, world.add_node("proxy b")?];
        let mut outs = Vec::new();
        for side in [0, 1] {
            let link = self.access.clone();
            let (out, back) = world.connect(hosts[side], proxies[side], link.clone(), link)?;
            world.add_address(out, address(side as u8, 0))?;
            outs.extend([out, back]);
        }
        let mut addresses = [Vec::new(), Vec::new()];
        for (number, link) in (2..).zip(&self.between) {
            let (one, other) = world.connect(proxies[0], proxies[1], link.clone(), link.clone())?;
            for (end, interface) in [(0, one), (1, other)] {
                world.add_address(interface, address(number, end))?;
                addresses[usize::from(end)].push(address(number, end));
                outs.push(interface);
            }
        }
        let transport = self.transport.transport();
        for side in [0, 1] {
            let first = |end: usize| addresses[end].first().map(|ip| SocketAddr::new(*ip, PORT));
            let Some((local, other)) = first(side).zip(first(1 - side)) else { continue };
            let random = streams.stream(&format!("proxy {side}/sip"));
            let proxy = Proxy::new(local, transport, DOMAINS[side], Some(other), random);
            self.attach(&mut world, proxies[side], &addresses[side], proxy, &streams)?;
        }
        let mut ends = Vec::new();
        for side in [0, 1] {
            let Some(ip) = addresses[side].first() else { continue };
            let remote = SocketAddr::new(*ip, PORT);
            let target = Target::Peer { transport, remote, name: None };
            let phones = (0..self.pairs).map(|n| self.phone(side, n, target.clone(), &streams));
            let phones = PhoneHost(phones.collect());
            let local = [address(side as u8, 0)];
            ends.push(self.attach(&mut world, hosts[side], &local, phones, &streams)?);
        }
        world.run_until(self.end)?;
        let mut calls = collect(&world, &ends);
        calls.bytes = outs.iter().map(|out| world.counters(*out).left_bytes).sum();
        Ok(calls)
    }

    fn attach<P: Program + 'static>(
        &self,
        world: &mut World,
        node: NodeId,
        addresses: &[IpAddr],
        program: P,
        streams: &Streams,
    ) -> Result<EndpointId, Error> {
        let random = streams.stream(&format!("host {:?}/flows", addresses.first()));
        Host::attach(world, node, (addresses, PORT), self.transport, program, random)
    }

    fn phone(&self, side: usize, number: u8, proxy: Target, streams: &Streams) -> Phone<Stream> {
        let calls = side == 0;
        let user = if calls { format!("caller{number}") } else { format!("callee{number}") };
        let mut random = streams.stream(&format!("{user}/sip"));
        let part = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let begin = self.from + self.pause.mul_f64(part);
        let callee = format!("callee{number}@{}", DOMAINS[1]);
        let plan = Plan {
            register: Some(REGISTER),
            register_again: None,
            domain: DOMAINS[side],
            call: calls.then_some((callee, begin)),
            until: self.until,
            talk: self.talk,
            pause: self.pause,
            answer: self.answer,
        };
        let local = SocketAddr::new(address(side as u8, 0), PORT);
        Phone::new(number, &user, local, proxy, plan, random)
    }
}
