//! Routers on a graph in virtual time: every router has one interface, which its neighbours in the graph hear. The
//! address of router N is ::ffff:0:N.

#![allow(dead_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ringway_mesh::config::Config;
use ringway_mesh::crypto::{Crypto, NetworkKey, StandIn};
use ringway_mesh::identity::Search;
use ringway_mesh::link::{Discovery, InterfaceConfig, LinkAddress};
use ringway_mesh::metric::Ring;
use ringway_mesh::output::Destination;
use ringway_mesh::router::Event;
use ringway_mesh::wire::Kind;
use ringway_mesh::{LocalRouter, NodeId, Prefix, Router};
use ringway_sansio::time::Duration;
use ringway_sansio::{Random, SplitMix, Time};

pub(crate) const START: Time = Time::from_secs(1_000);
/// Delay of every link.
pub(crate) const DELAY: Duration = Duration::from_millis(1);
const INTERFACE: u32 = 1;
/// MTU of a link unless another is chosen.
const MTU: u16 = 1_452;

pub(crate) struct Node<C: Crypto> {
    pub(crate) router: Router<C, Ring>,
    pub(crate) events: Vec<(Time, Event)>,
    /// Packets for hosts, and errors for them.
    pub(crate) delivered: Vec<(Time, Vec<u8>)>,
    random: SplitMix,
    pub(crate) alive: bool,
}

pub(crate) struct Wired<C: Crypto = StandIn> {
    pub(crate) nodes: Vec<Node<C>>,
    pub(crate) links: Vec<BTreeSet<usize>>,
    wire: BTreeMap<(Time, u64), (usize, usize, Vec<u8>)>,
    timers: BTreeSet<(Time, usize)>,
    due: Vec<Option<Time>>,
    count: u64,
    pub(crate) now: Time,
    random: SplitMix,
    /// Packets of 1,000 that are lost.
    pub(crate) loss: u64,
    /// Length of the longest packet that each router can send and receive.
    mtus: Vec<u16>,
    /// Longest additional delay of a packet, by which packets overtake each other.
    pub(crate) jitter: Duration,
    /// Lengths of packets that were too long for a link.
    pub(crate) too_long: Vec<usize>,
    /// Routers that drop packets of hosts.
    pub(crate) black_holes: BTreeSet<usize>,
    /// Packets and octets that were sent.
    pub(crate) packets: u64,
    /// Everything that was sent, if it is to be kept.
    pub(crate) tap: Option<Vec<Vec<u8>>>,
    pub(crate) octets: u64,
}

fn address(node: usize) -> SocketAddr {
    let ip = Ipv6Addr::from_bits(0xffff_0000_0000 | node as u128);
    SocketAddr::new(IpAddr::V6(ip), 5267)
}

fn node(address: SocketAddr) -> usize {
    let IpAddr::V6(ip) = address.ip() else { panic!("{address}") };
    (ip.to_bits() & 0xffff_ffff) as usize
}

impl<C: Crypto> Wired<C> {
    /// Routers that are started now.
    pub(crate) fn new(links: Vec<BTreeSet<usize>>, seed: u64) -> Self {
        Wired::with(links, seed, &Config { extension_bits: 0, ..Config::default() })
    }

    pub(crate) fn with(links: Vec<BTreeSet<usize>>, seed: u64, config: &Config) -> Self {
        let key = |_| NetworkKey::OPEN;
        Wired::keyed(links, seed, config, key, |at| at)
    }

    /// Routers each of which has the network key that `key` returns, and the identity of the router that `same` returns.
    pub(crate) fn keyed(
        links: Vec<BTreeSet<usize>>,
        seed: u64,
        config: &Config,
        key: impl Fn(usize) -> NetworkKey,
        same: impl Fn(usize) -> usize,
    ) -> Self {
        Wired::build(links, seed, config, key, same, |_| MTU)
    }

    /// Routers each of which has an interface with the MTU that `mtu` returns. Longer packets do not pass its links.
    pub(crate) fn narrow(
        links: Vec<BTreeSet<usize>>,
        seed: u64,
        mtu: impl Fn(usize) -> u16,
    ) -> Self {
        let config = Config { extension_bits: 0, ..Config::default() };
        Wired::build(links, seed, &config, |_| NetworkKey::OPEN, |at| at, mtu)
    }

    fn build(
        links: Vec<BTreeSet<usize>>,
        seed: u64,
        config: &Config,
        key: impl Fn(usize) -> NetworkKey,
        same: impl Fn(usize) -> usize,
        mtu: impl Fn(usize) -> u16,
    ) -> Self {
        let mtus: Vec<u16> = (0..links.len()).map(mtu).collect();
        let node = |at| fresh(at, same(at), seed, START, config, (key(at), mtus[at]));
        let nodes = (0..links.len()).map(node).collect();
        let mut wired = Wired {
            due: vec![None; links.len()],
            nodes,
            links,
            wire: BTreeMap::new(),
            timers: BTreeSet::new(),
            count: 0,
            now: START,
            random: SplitMix::new(seed ^ 0x5eed),
            loss: 0,
            mtus,
            jitter: Duration::ZERO,
            too_long: Vec::new(),
            black_holes: BTreeSet::new(),
            packets: 0,
            tap: None,
            octets: 0,
        };
        (0..wired.nodes.len()).for_each(|at| wired.after(at));
        wired
    }

    /// Routers on a cycle in which each is linked to the next but one by id, so that a walk round it passes all ids twice:
    /// 0-2-4-6-1-3-5-7 for eight.
    pub(crate) fn wound_twice(routers: usize, seed: u64) -> Self {
        let ids = Wired::<C>::new(vec![BTreeSet::new(); routers], seed);
        let mut order: Vec<usize> = (0..routers).collect();
        order.sort_unstable_by_key(|&at| ids.id(at));
        let (even, odd): (Vec<usize>, Vec<usize>) = (0..routers).partition(|at| at % 2 == 0);
        let cycle: Vec<usize> = even.into_iter().chain(odd).map(|at| order[at]).collect();
        let mut links = vec![BTreeSet::new(); routers];
        for at in 0..routers {
            let (one, other) = (cycle[at], cycle[(at + 1) % routers]);
            links[one].insert(other);
            links[other].insert(one);
        }
        Wired::new(links, seed)
    }

    /// Runs for some time.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let packet = self.wire.first_key_value().map(|(&(at, _), _)| at);
            let timer = self.timers.first().map(|&(at, _)| at);
            let Some(next) = packet.into_iter().chain(timer).min().filter(|&at| at <= end) else {
                break;
            };
            self.now = next;
            if packet == Some(next) {
                let Some((_, (from, to, mut bytes))) = self.wire.pop_first() else { break };
                let node = &mut self.nodes[to];
                if node.alive && self.links[to].contains(&from) {
                    let from = LinkAddress { interface: INTERFACE, remote: address(from) };
                    let packet =
                        node.router.handle_packet(next, from, &mut bytes, &mut node.random);
                    node.delivered.extend(packet.map(|range| (next, bytes[range].to_vec())));
                    self.after(to);
                }
            } else if let Some((_, at)) = self.timers.pop_first() {
                self.due[at] = None;
                let node = &mut self.nodes[at];
                node.router.handle_timeout(next, &mut node.random);
                self.after(at);
            }
        }
        self.now = end;
    }

    /// Sends what a router has to send, and notes when it is due.
    fn after(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        while let Some(event) = node.router.poll_event() {
            node.events.push((self.now, event));
        }
        while let Some(packet) = node.router.poll_local() {
            node.delivered.push((self.now, packet));
        }
        let mut sent: Vec<(usize, Vec<u8>)> = Vec::new();
        while let Some(packet) = node.router.poll_transmit() {
            self.packets += 1;
            if let Some(tap) = &mut self.tap {
                tap.push(packet.bytes.to_vec());
            }
            self.octets += packet.bytes.len() as u64 + 62;
            match packet.to {
                Destination::All => {
                    sent.extend(self.links[at].iter().map(|&to| (to, packet.bytes.to_vec())));
                }
                Destination::One(to) => sent.push((self::node(to), packet.bytes.to_vec())),
            }
        }
        for (to, bytes) in sent {
            if self.black_holes.contains(&at) && Kind::of(&bytes) == Ok(Kind::Data) {
                continue;
            }
            if self.random.next_u64() % 1_000 < self.loss || !self.links[at].contains(&to) {
                continue;
            }
            if bytes.len() > usize::from(self.mtus[at].min(self.mtus[to])) {
                self.too_long.push(bytes.len());
                continue;
            }
            let delay = match self.jitter.as_nanos() as u64 {
                0 => DELAY,
                jitter => DELAY + Duration::from_nanos(self.random.next_u64() % jitter),
            };
            self.count += 1;
            self.wire.insert((self.now + delay, self.count), (at, to, bytes));
        }
        let due = self.nodes[at].router.poll_timeout().filter(|_| self.nodes[at].alive);
        if due != self.due[at] {
            if let Some(old) = self.due[at] {
                self.timers.remove(&(old, at));
            }
            if let Some(due) = due {
                self.timers.insert((due.max(self.now), at));
            }
            self.due[at] = due.map(|due| due.max(self.now));
        }
    }

    pub(crate) fn call(
        &mut self,
        at: usize,
        act: impl FnOnce(&mut Router<C, Ring>, Time, &mut SplitMix),
    ) {
        let node = &mut self.nodes[at];
        act(&mut node.router, self.now, &mut node.random);
        self.after(at);
    }

    /// Delivers octets to a router as if its neighbour had sent them.
    pub(crate) fn inject(&mut self, to: usize, from: usize, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        let from = LinkAddress { interface: INTERFACE, remote: address(from) };
        let node = &mut self.nodes[to];
        let packet = node.router.handle_packet(self.now, from, &mut bytes, &mut node.random);
        node.delivered.extend(packet.map(|range| (self.now, bytes[range].to_vec())));
        self.after(to);
    }

    /// A host at one router sends a packet with this payload to a host at another.
    pub(crate) fn send(&mut self, from: usize, to: usize, payload: &[u8]) {
        let packet = self.packet(from, self.id(to).prefix(), payload);
        self.call(from, |router, now, random| router.handle_local(now, &packet, random));
    }

    /// Returns a UDP-like packet of a host at a router.
    pub(crate) fn packet(&self, from: usize, to: Prefix, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0];
        packet.extend((payload.len() as u16).to_be_bytes());
        packet.extend([17, 64]);
        packet.extend(self.id(from).prefix().router().octets());
        packet.extend(to.router().octets());
        packet.extend_from_slice(payload);
        packet
    }

    /// Returns the payloads that have come to a router since the last call.
    pub(crate) fn received(&mut self, at: usize) -> Vec<Vec<u8>> {
        let delivered = core::mem::take(&mut self.nodes[at].delivered);
        delivered.into_iter().map(|(_, packet)| packet[40..].to_vec()).collect()
    }

    /// A router stops without a word.
    pub(crate) fn crash(&mut self, at: usize) {
        self.nodes[at].alive = false;
        self.after(at);
    }

    /// A router that has crashed starts again with the same identity.
    pub(crate) fn restart(&mut self, at: usize, seed: u64, config: &Config) {
        let with = (NetworkKey::OPEN, self.mtus[at]);
        let mut new = fresh(at, at, seed, self.now, config, with);
        new.random = SplitMix::new(self.random.next_u64());
        self.nodes[at] = new;
        self.after(at);
    }

    pub(crate) fn cut(&mut self, one: usize, other: usize) {
        self.links[one].remove(&other);
        self.links[other].remove(&one);
    }

    pub(crate) fn join(&mut self, one: usize, other: usize) {
        self.links[one].insert(other);
        self.links[other].insert(one);
    }

    /// Returns the number of living routers that do not know the next one on the line, in each direction.
    pub(crate) fn wrong(&self) -> usize {
        let mut living: Vec<&Node<C>> = self.nodes.iter().filter(|node| node.alive).collect();
        living.sort_unstable_by_key(|node| node.router.id());
        let knows = |one: &Node<C>, other: &Node<C>| {
            usize::from(one.router.overlay().contacts().get(other.router.id()).is_none())
        };
        living.windows(2).map(|pair| knows(pair[0], pair[1]) + knows(pair[1], pair[0])).sum()
    }

    /// Returns the hops of a greedy walk over the contacts of all routers as they are now, or `None` if it ends elsewhere.
    pub(crate) fn walk(&self, from: usize, to: usize) -> Option<u32> {
        let target = self.nodes[to].router.id();
        let (mut at, mut best, mut hops) = (from, u64::MAX, 0);
        while at != to {
            let (route, distance) = self.nodes[at].router.overlay().next(target, best)?;
            best = distance;
            let mut labels = route.labels.clone();
            let mut slot = route.first;
            let mut cursor = labels.cursor(0, false).ok()?;
            loop {
                let neighbour = self.nodes[at].router.links().neighbour(slot)?;
                let next = node(neighbour.address.remote);
                if !self.links[at].contains(&next) || !self.nodes[next].alive {
                    return None;
                }
                at = next;
                hops += 1;
                if cursor.is_at_end() {
                    break;
                }
                slot = cursor.peek().ok()?.1;
                cursor.swap(slot).ok()?;
            }
        }
        Some(hops)
    }

    /// Returns the share of pairs between which a greedy walk arrives, of `count` random ones.
    pub(crate) fn reachable(&mut self, count: usize) -> f64 {
        let living: Vec<usize> = (0..self.nodes.len()).filter(|&at| self.nodes[at].alive).collect();
        let mut arrived = 0;
        for _ in 0..count {
            let mut draw = || living[(self.random.next_u64() % living.len() as u64) as usize];
            let (from, to) = (draw(), draw());
            arrived += usize::from(from == to || self.walk(from, to).is_some());
        }
        arrived as f64 / count as f64
    }

    pub(crate) fn id(&self, at: usize) -> NodeId {
        self.nodes[at].router.id()
    }
}

fn fresh<C: Crypto>(
    at: usize,
    same: usize,
    seed: u64,
    now: Time,
    config: &Config,
    (key, mtu): (NetworkKey, u16),
) -> Node<C> {
    let mut random = SplitMix::new(seed.wrapping_mul(0x9e37_79b9).wrapping_add(same as u64));
    let search = &mut Search::new(config.extension_bits, &mut random);
    let Some(identity) = search.step(1_000_000) else { panic!("no identity") };
    let epoch = now.as_secs() as u32;
    let local = LocalRouter::new(
        identity,
        key,
        config.extension_bits,
        epoch,
        &mut SplitMix::new(now.as_nanos() ^ at as u64),
    );
    let mut router = Router::new(config, local, now, &mut random);
    let interface = InterfaceConfig { index: INTERFACE, discovery: Discovery::Multicast, mtu };
    router.add_interface(now, interface, &mut random);
    Node { router, events: Vec::new(), delivered: Vec::new(), random, alive: true }
}
