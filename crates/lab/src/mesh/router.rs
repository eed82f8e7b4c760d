//! A router of the mesh with hosts on cables: the machine of `ringway_mesh` with the stand-in for its cryptography.

use super::host::header;
use super::log::{Log, Step, contents, lock};
use ringway_mesh::config::{Config, Limits};
use ringway_mesh::crypto::{NetworkKey, StandIn};
use ringway_mesh::icmp::Ipv6Header;
use ringway_mesh::id::Prefix;
use ringway_mesh::identity::Search;
use ringway_mesh::link::{Discovery, InterfaceConfig, LinkAddress};
use ringway_mesh::output::Destination as To;
use ringway_mesh::router::{Closest, Refusal};
use ringway_mesh::{Event, Identity, LocalRouter, NodeId, Router};
use ringway_sansio::{Duration, SplitMix, Time};
use ringway_sim::graph::{Destination, GraphNode, node_random};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The only interface of a router towards others.
const INTERFACE: u32 = 1;
/// Largest UDP payload between routers: 1,500 octets without the headers of IPv6 and UDP.
const MTU: u16 = 1_452;
/// Number of the application whose messages are counted here.
const APPLICATION: u16 = 1;
/// Protocol number of packets from router to router that are counted here: one for experiments (RFC 3692).
const COUNTED: u8 = 253;

/// Returns an identity whose id begins with the `bits` highest bits of `id`: about `2^bits` modifiers are tried.
pub fn identity_at(id: NodeId, bits: u32, seed: u64) -> Identity {
    let mut search = Search::new(0, &mut SplitMix::new(seed ^ id.raw()));
    loop {
        // Without an extension each try is an identity.
        if let Some(found) = search.step(1)
            && (found.id().raw() ^ id.raw()).leading_zeros() >= bits
        {
            return found;
        }
    }
}

/// The processor of a router, by which its packets wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processor {
    /// Time that any packet takes.
    pub service: Duration,
}

/// How a router is connected.
#[derive(Clone, Debug, Default)]
pub struct Wiring {
    /// Its number in the graph.
    pub number: u32,
    /// By index: the number of the neighbour, and its address if it is a host. Empty in a world of radio, where all
    /// neighbours are routers, and their numbers are indices.
    pub ports: Vec<(u32, Option<Ipv6Addr>)>,
    /// Octets below IPv6 on a cable to a host.
    pub host_head: usize,
    /// Octets of headers below the packets of routers.
    pub mesh_head: usize,
}

/// A message or packet that was for this router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its number.
    pub number: u32,
    /// When it arrived.
    pub at: Time,
}

/// A packet that waits for the processor.
struct Job {
    done: Time,
    from: u16,
    bytes: Vec<u8>,
}

/// A router.
pub struct LabRouter {
    router: Router<StandIn>,
    random: SplitMix,
    wiring: Wiring,
    processor: Option<Processor>,
    jobs: VecDeque<Job>,
    out: VecDeque<(Destination, Vec<u8>)>,
    arrivals: VecDeque<Arrival>,
    log: Option<Log>,
}

impl LabRouter {
    /// Starts a router.
    pub fn new(
        identity: Identity,
        limits: Limits,
        wiring: Wiring,
        processor: Option<Processor>,
        seed: u64,
        now: Time,
        log: Option<Log>,
    ) -> Self {
        let mut random = node_random(seed, wiring.number, 0);
        let config = Config { limits: limits.into(), extension_bits: 0, ..Config::default() };
        let local = LocalRouter::new(identity, NetworkKey::OPEN, 0, 0, &mut random);
        let mut router = Router::new(&config, local, now, &mut random);
        let interface =
            InterfaceConfig { index: INTERFACE, discovery: Discovery::Multicast, mtu: MTU };
        router.add_interface(now, interface, &mut random);
        LabRouter {
            router,
            random,
            wiring,
            processor,
            jobs: VecDeque::new(),
            out: VecDeque::new(),
            arrivals: VecDeque::new(),
            log,
        }
    }

    /// Returns the machine.
    pub fn machine(&self) -> &Router<StandIn> {
        &self.router
    }

    /// Returns the number of the neighbour that the machine has in a slot.
    pub fn neighbour(&self, slot: ringway_mesh::wire::Slot) -> Option<u32> {
        let index = index(self.router.links().neighbour(slot)?.address.remote);
        match self.wiring.ports.is_empty() {
            true => Some(index.into()),
            false => self.wiring.ports.get(usize::from(index)).map(|port| port.0),
        }
    }

    /// Sends a message of `octets` to the router that is responsible for a key; there it is an [`Arrival`].
    pub fn send_closest(
        &mut self,
        now: Time,
        key: NodeId,
        number: u32,
        octets: usize,
    ) -> Result<(), Refusal> {
        let contents = numbered(number, octets);
        let closest = Closest::new(key, APPLICATION, &contents);
        let sent = self.router.send_closest(now, &closest, &mut self.random);
        self.flush(now);
        sent
    }

    /// Sends a packet of `octets` with its header to another router; there it is an [`Arrival`].
    pub fn send_packet(&mut self, now: Time, to: NodeId, number: u32, octets: usize) {
        let payload = numbered(number, octets.saturating_sub(super::host::IPV6));
        let ends = [self.router.id(), to].map(|id| id.prefix().router());
        let mut packet = header(ends[0], ends[1], COUNTED, payload.len());
        packet.extend(payload);
        self.router.handle_local(now, &packet, &mut self.random);
        self.flush(now);
    }

    /// Returns the next message or packet that was for this router.
    pub fn poll_arrival(&mut self) -> Option<Arrival> {
        self.arrivals.pop_front()
    }

    fn process(&mut self, now: Time, from: u16, bytes: &mut [u8]) {
        let is_host = matches!(self.wiring.ports.get(usize::from(from)), Some((_, Some(_))));
        if is_host {
            let Some(packet) = bytes.get(self.wiring.host_head..) else { return };
            self.route(now, packet);
        } else {
            let remote = address(from);
            let from = LinkAddress { interface: INTERFACE, remote };
            let Some(packet) = bytes.get_mut(self.wiring.mesh_head..) else { return };
            let opened = self.router.handle_packet(now, from, packet, &mut self.random);
            if let Some(opened) = opened.and_then(|range| packet.get(range)) {
                self.deliver(now, opened);
            }
        }
        self.flush(now);
    }

    /// Takes a packet of a host here: to another one here, or into the mesh.
    fn route(&mut self, now: Time, packet: &[u8]) {
        let destination = Ipv6Header::parse(packet).map(|header| header.destination);
        if destination.and_then(|to| Prefix::of(&to)) == Some(self.router.id().prefix()) {
            self.deliver(now, packet);
        } else {
            self.router.handle_local(now, packet, &mut self.random);
        }
    }

    /// Sends a packet to a host here.
    fn deliver(&mut self, now: Time, packet: &[u8]) {
        let Some(header) = Ipv6Header::parse(packet) else { return };
        let is_to = |port: &(u32, Option<Ipv6Addr>)| port.1 == Some(header.destination);
        if let Some(index) = self.wiring.ports.iter().position(is_to) {
            let mut bytes = vec![0; self.wiring.host_head];
            bytes.extend_from_slice(packet);
            self.out.push_back((Destination::Neighbour(index as u16), bytes));
        } else if packet.get(6) == Some(&COUNTED) {
            self.arrived(now, packet.get(super::host::IPV6..).unwrap_or_default());
        }
    }

    fn arrived(&mut self, at: Time, contents: &[u8]) {
        if let Some(&number) = contents.first_chunk() {
            self.arrivals.push_back(Arrival { number: u32::from_be_bytes(number), at });
        }
    }

    /// Takes what the machine has for others.
    fn flush(&mut self, now: Time) {
        while let Some(packet) = self.router.poll_local() {
            self.deliver(now, &packet);
        }
        while let Some(event) = self.router.poll_event() {
            if let Event::Closest { octets, .. } = event {
                self.arrived(now, &octets);
            }
        }
        while let Some(packet) = self.router.poll_transmit() {
            let mut bytes = vec![0; self.wiring.mesh_head];
            bytes.extend_from_slice(packet.bytes);
            match packet.to {
                To::One(to) => self.out.push_back((Destination::Neighbour(index(to)), bytes)),
                To::All if self.wiring.ports.is_empty() => {
                    self.out.push_back((Destination::Neighbours, bytes));
                }
                To::All => {
                    let routers = self.wiring.ports.iter().enumerate();
                    for (index, _) in routers.filter(|(_, port)| port.1.is_none()) {
                        let to = Destination::Neighbour(index as u16);
                        self.out.push_back((to, bytes.clone()));
                    }
                }
            }
        }
    }

    fn note(&self, now: Time, from: u16, bytes: &[u8]) {
        let Some(log) = &self.log else { return };
        let port = self.wiring.ports.get(usize::from(from));
        let head = match port {
            Some((_, Some(_))) => self.wiring.host_head,
            _ => self.wiring.mesh_head,
        };
        let packet = bytes.get(head..).unwrap_or_default();
        lock(log).push(Step {
            at: now,
            from: port.map_or(from.into(), |port| port.0),
            to: self.wiring.number,
            octets: packet.len(),
            contents: contents(packet),
        });
    }
}

impl GraphNode for LabRouter {
    fn handle_packet(&mut self, now: Time, from: u16, bytes: &mut [u8]) {
        self.note(now, from, bytes);
        let Some(Processor { service }) = self.processor else {
            return self.process(now, from, bytes);
        };
        let free = self.jobs.back().map_or(now, |job| job.done.max(now));
        self.jobs.push_back(Job { done: free + service, from, bytes: bytes.to_vec() });
    }

    fn handle_timeout(&mut self, now: Time) {
        while self.jobs.front().is_some_and(|job| job.done <= now) {
            let Some(mut job) = self.jobs.pop_front() else { break };
            self.process(now, job.from, &mut job.bytes);
        }
        self.router.handle_timeout(now, &mut self.random);
        self.flush(now);
    }

    fn poll_timeout(&self) -> Option<Time> {
        let job = self.jobs.front().map(|job| job.done);
        [job, self.router.poll_timeout()].into_iter().flatten().min()
    }

    fn poll_transmit(&mut self, _now: Time, bytes: &mut Vec<u8>) -> Option<Destination> {
        let (to, packet) = self.out.pop_front()?;
        bytes.extend_from_slice(&packet);
        Some(to)
    }

    fn heap_bytes(&self) -> usize {
        self.router.heap_bytes()
    }
}

/// Returns the contents of a message: its number, filled up to a length.
fn numbered(number: u32, octets: usize) -> Vec<u8> {
    let mut contents = number.to_be_bytes().to_vec();
    contents.resize(octets.max(contents.len()), 0);
    contents
}

/// Returns the address by which a router knows the neighbour with an index.
fn address(index: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V6(Ipv6Addr::from_bits(0xffff_0000_0000 | u128::from(index))), 5267)
}

fn index(address: SocketAddr) -> u16 {
    match address.ip() {
        IpAddr::V6(ip) => ip.to_bits() as u16,
        IpAddr::V4(_) => u16::MAX,
    }
}
