//! A whole router between two honest ones and a hostile neighbour that has a link: items, messages, data, other packets
//! and time, step by step. Behind the honest ones there is another honest router, and each of them is silent now and then,
//! so that there are detours; one has links that carry long packets of hosts in pieces only. Nothing panics, the heap of the
//! router stays bounded, what it sends is bounded by what has come and by its budget, no packet of a host comes twice or
//! altered, and at the end its honest neighbours are still there.
#![no_main]

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use libfuzzer_sys::fuzz_target;
use ringway_mesh::config::{Config, Limits};
use ringway_mesh::crypto::{Crypto, Domain, NetworkKey, StandIn};
use ringway_mesh::id::{Instance, Sequence};
use ringway_mesh::identity::Search;
use ringway_mesh::link::{Discovery, InterfaceConfig, LinkAddress, LinkEvent, Links};
use ringway_mesh::output::{Destination, Output};
use ringway_mesh::wire::bodies::{Avoided, Connect, Seal};
use ringway_mesh::wire::{Body, Hint, Item, Kind, Labels, Message, MessageId, Record, Route, Routed, Slot};
use ringway_mesh::{LocalRouter, NodeId, Ring, Router, metric::Space};
use ringway_sansio::time::Duration;
use ringway_sansio::{Random, SplitMix, Time};

/// The router, its honest neighbours, the router behind these, and the hostile neighbour.
const CENTRE: usize = 0;
const HONEST: [usize; 2] = [1, 2];
const FAR: usize = 3;
const HOSTILE: usize = 4;
/// The neighbours of each.
const LINKS: [&[usize]; 5] = [&[1, 2, HOSTILE], &[CENTRE, FAR], &[CENTRE, FAR], &[1, 2], &[CENTRE]];
/// Longest packet of each that is honest.
const MTUS: [u16; 4] = [1_452, 700, 1_452, 1_452];
/// Octets that the router's tables may have.
const HEAP: usize = 512 * 1024;
/// Octets of answers for each octet that has come.
const ECHO: u64 = 4;
/// Octets a second that a router sends of its own accord: HELLOs, probes, and its budget at one hop.
const OWN: u64 = 16 * 1024;
/// Octets that it may send at once of its own accord.
const BURST: u64 = 128 * 1024;
const MAX_STEPS: usize = 200;

fn address(host: usize) -> LinkAddress {
    LinkAddress { interface: 1, remote: SocketAddr::from(([10, 0, 0, host as u8], 5267)) }
}

fn local(seed: usize) -> LocalRouter {
    let mut random = SplitMix::new(seed as u64 + 1);
    let identity = Search::new(0, &mut random).step(1).expect("any modifier fits");
    LocalRouter::new(identity, NetworkKey::OPEN, 0, 1, &mut random)
}

fn config() -> Config {
    let limits = Limits {
        contacts: 16, marks: 16, sessions: 8, half_sessions: 8, pending: 8, handshakes: 8, neighbours: 8,
        ..Limits::default()
    };
    Config { limits: limits.into(), extension_bits: 0, control_burst: 4_096, ..Config::default() }
}

struct World {
    now: Time,
    random: SplitMix,
    routers: Vec<Router<StandIn, Ring>>,
    hostile: Links<StandIn>,
    own: LocalRouter,
    slot: Option<Slot>,
    output: Output,
    wire: VecDeque<(usize, usize, Vec<u8>)>,
    received: u64,
    sent: u64,
    /// The honest router that nothing comes from or to.
    silent: Option<usize>,
    /// By its number, the packet of a host, and to whom it goes until it comes.
    packets: BTreeMap<u32, (Vec<u8>, Option<usize>)>,
}

impl World {
    fn new() -> World {
        let now = Time::from_secs(1_000);
        let mut random = SplitMix::new(9);
        let config = config();
        let interface = |mtu| InterfaceConfig { index: 1, discovery: Discovery::Multicast, mtu };
        let routers = (0..HOSTILE).map(|at| {
            let mut router = Router::new(&config, local(at), now, &mut random);
            router.add_interface(now, interface(MTUS[at]), &mut random);
            router
        });
        let routers = routers.collect();
        let mut hostile = Links::new(now, config.limits, &mut random);
        hostile.add_interface(now, interface(1_452), &mut random);
        let output = Output::new(4_096);
        let mut world = World {
            now, random, routers, hostile, own: local(HOSTILE), slot: None, output,
            wire: VecDeque::new(), received: 0, sent: 0, silent: None, packets: BTreeMap::new(),
        };
        world.pass(Duration::from_secs(8), 80);
        world
    }

    /// Lets time pass, with everything that happens meanwhile.
    fn pass(&mut self, time: Duration, steps: u32) {
        for _ in 0..steps {
            self.now += time / steps;
            for at in 0..self.routers.len() {
                if self.routers[at].poll_timeout().is_some_and(|due| due <= self.now) {
                    self.routers[at].handle_timeout(self.now, &mut self.random);
                }
            }
            self.hostile.timeout(self.now, &self.own, &mut self.random, &mut self.output);
            self.deliver();
        }
    }

    /// Delivers everything that is under way: at once, at most some thousands of packets.
    fn deliver(&mut self) {
        for _ in 0..4_000 {
            self.collect();
            let Some((from, to, mut bytes)) = self.wire.pop_front() else { return };
            let is_lost = [from, to].map(Some).contains(&self.silent);
            if to == HOSTILE {
                self.hear(&mut bytes);
            } else if let Some(router) = self.routers.get_mut(to).filter(|_| !is_lost) {
                self.received += if to == CENTRE { bytes.len() as u64 } else { 0 };
                let range = router.handle_packet(self.now, address(from), &mut bytes, &mut self.random);
                if let Some(packet) = range.map(|range| bytes[range].to_vec()) {
                    self.come(to, &packet);
                }
            }
        }
        panic!("packets without end");
    }

    fn collect(&mut self) {
        let host = |to: SocketAddr| match to {
            SocketAddr::V4(to) => usize::from(to.ip().octets()[3]),
            SocketAddr::V6(_) => usize::MAX,
        };
        for at in 0..self.routers.len() {
            let router = &mut self.routers[at];
            while router.poll_event().is_some() {}
            let mut joined = Vec::new();
            while let Some(packet) = router.poll_local() {
                joined.push(packet);
            }
            while let Some(packet) = router.poll_transmit() {
                self.sent += if at == CENTRE { packet.bytes.len() as u64 } else { 0 };
                match packet.to {
                    Destination::All => LINKS[at]
                        .iter()
                        .for_each(|&to| self.wire.push_back((at, to, packet.bytes.to_vec()))),
                    Destination::One(to) => self.wire.push_back((at, host(to), packet.bytes.to_vec())),
                }
            }
            // ICMPv6 errors are of no host.
            joined.iter().filter(|packet| packet[6] == 17).for_each(|packet| self.come(at, packet));
        }
        while let Some(packet) = self.output.pop() {
            self.wire.push_back((HOSTILE, CENTRE, packet.bytes.to_vec()));
        }
    }

    fn hear(&mut self, bytes: &mut [u8]) {
        match Kind::of(bytes) {
            Ok(Kind::Control) => drop(self.hostile.open(self.now, bytes)),
            Ok(Kind::Data) | Err(_) => {}
            Ok(kind) => {
                let from = address(CENTRE);
                let _ = self.hostile.handle(
                    self.now, &self.own, from, kind, bytes, &mut self.random, &mut self.output,
                );
            }
        }
        while let Some(event) = self.hostile.poll_event() {
            match event {
                LinkEvent::Up { slot, .. } => self.slot = Some(slot),
                LinkEvent::Down { .. } => self.slot = None,
                _ => {}
            }
        }
    }

    /// The hostile router sends items.
    fn say(&mut self, items: &[u8]) {
        if let Some(slot) = self.slot {
            self.hostile.seal(slot, items, &mut self.output);
        }
        self.deliver();
    }

    /// Returns a router, or a key.
    fn target(&self, octet: u8) -> NodeId {
        match octet {
            0..64 => self.routers[usize::from(octet) % HOSTILE].id(),
            64..128 => NodeId::new(self.routers[0].id().raw().wrapping_add(u64::from(octet)).wrapping_sub(96)),
            other => NodeId::new(u64::from(other) << 56),
        }
    }

    /// A message whose parts are drawn from octets, signed by the hostile router.
    fn message(&mut self, bytes: &[u8]) {
        let octet = |at: usize| bytes.get(at).copied().unwrap_or_default();
        let all = [
            Message::Connect, Message::ConnectAck, Message::Introduce, Message::LookUp, Message::LookUpAck,
            Message::Confirm, Message::Payload, Message::NotResponsible,
        ];
        let kind = match octet(0) {
            240.. => Message::LookUpApart,
            octet => all[usize::from(octet) % all.len()],
        };
        let (target, own) = (self.target(octet(1)), self.own.id());
        let mut labels = Labels::default();
        for at in 0..octet(2) & 7 {
            let _ = labels.push(Slot((octet(3) >> at & 3).into()), Slot(0));
        }
        let id = MessageId(if octet(4) & 1 == 0 { octet(4).into() } else { self.random.next_u64() });
        let origin = if octet(5) & 7 == 7 { self.target(octet(5)) } else { own };
        let mut message = Routed::new(kind, id, origin, target, &Route { first: Slot(0), labels }, &[]);
        (message.hop_limit, message.path_cost) = (octet(6).into(), octet(7).into());
        message.flags.greedy = octet(8) & 1 != 0;
        message.flags.closest = octet(8) & 2 != 0;
        message.flags.linear = octet(8) & 4 != 0;
        message.flags.wrapped = octet(8) & 8 != 0;
        message.flags.reverse = octet(8) & 16 != 0;
        if octet(8) & 32 != 0 {
            message.at = message.labels.nibbles();
        }
        message.best = match octet(8) >> 6 {
            0 | 1 => Ring::distance(self.routers[CENTRE].id(), message.key()),
            2 => u64::MAX,
            _ => octet(9).into(),
        };
        message.record = (octet(9) & 1 == 0).then(|| Record::new(origin.tag(id.0)));
        let hint = |at: u8| {
            let mut onward = Labels::default();
            let _ = onward.push(Slot((octet(10) >> (at & 7) & 3).into()), Slot(0));
            Hint { id: self.target(octet(11).wrapping_mul(at + 1)), cost: octet(12).into(), back: (octet(12) & 3).into(), onward }
        };
        let (proof, sequence) = (*self.own.identity.proof(), Sequence { epoch: octet(13).into(), count: octet(14).into() });
        let mut noise = bytes.get(15..).unwrap_or_default().to_vec();
        noise.resize(match kind { Message::LookUp | Message::LookUpApart => 64, Message::LookUpAck => 159, _ => 127 }, octet(14));
        let index = u32::from(octet(13));
        let body = match kind {
            Message::Connect | Message::ConnectAck => Body::Connect(Connect {
                proof,
                sequence,
                instance: Instance(octet(14).into()),
                settled: octet(10) & 64 != 0,
                wrap: octet(10) & 128 != 0,
                hints: (0..octet(12) % 17).map(hint).collect(),
            }),
            Message::Introduce => Body::Introduce(hint(0)),
            Message::LookUp => Body::LookUp { index, noise: &noise, onward: None },
            Message::LookUpApart => {
                let tags = |flags: u8| {
                    let routers = self.routers.iter().map(|router| router.id());
                    let ids = routers.chain([own]).enumerate().filter(move |(at, _)| flags >> at & 1 != 0);
                    ids.map(|(_, router)| router.tag(id.0)).collect()
                };
                let (links_alone, uncut) = (octet(10) & 1 != 0, octet(10) & 2 != 0);
                let avoided = Avoided { links_alone, uncut, route: tags(octet(11)), passed: tags(octet(12)) };
                Body::LookUpApart { index, noise: &noise, avoided }
            }
            Message::LookUpAck => Body::LookUpAck { index, receiver: index, noise: &noise },
            Message::Confirm => Body::Confirm { receiver: index, noise: &noise },
            Message::Payload => Body::Payload { application: 1, proof, octets: &noise },
            Message::NotResponsible => Body::Statement { proof, sequence },
        };
        let mut written = Vec::new();
        body.emit(&mut written);
        let is_signed = matches!(
            kind,
            Message::Connect | Message::ConnectAck | Message::Payload | Message::NotResponsible
        );
        if is_signed {
            let mut signed = Vec::new();
            message.put_signed(&written, &mut signed);
            let domain = if kind == Message::Payload { Domain::Payload } else { Domain::Message };
            Seal::Signature(StandIn::sign(&self.own.identity, domain, &signed)).emit(&mut written);
        }
        let (mut routed, mut item) = (Vec::new(), Vec::new());
        Routed { body: &written, ..message }.emit(&mut routed);
        let _ = Item::Routed(&routed).emit(&mut item);
        self.say(&item);
    }

    /// A host at an honest router sends to one at another, or a router from its second address to that of another.
    fn host(&mut self, octet: u8, second: bool) {
        let (from, to) = (usize::from(octet & 3), usize::from(octet >> 2 & 3));
        let (number, length) = (self.packets.len() as u32, 4 + 80 * u16::from(octet >> 4));
        let mut packet = vec![0x60, 0, 0, 0];
        packet.extend(length.to_be_bytes());
        packet.extend([17, 64]);
        for router in [from, to] {
            let prefix = self.routers[router].id().prefix();
            packet.extend(if second { prefix.second() } else { prefix.router() }.octets());
        }
        packet.extend(number.to_be_bytes());
        packet.resize(40 + usize::from(length), number as u8);
        self.packets.insert(number, (packet.clone(), Some(to)));
        self.routers[from].handle_local(self.now, &packet, &mut self.random);
        self.deliver();
    }

    /// A packet of a host has come: the hostile router can send none but of its own prefix, which are not of UDP here.
    fn come(&mut self, to: usize, packet: &[u8]) {
        let own = self.own.id().prefix().router().octets();
        if packet.get(8..16) == Some(&own[..8]) {
            return;
        }
        let number = packet[40..].first_chunk().map(|number| u32::from_be_bytes(*number)).expect("a number");
        let (sent, waits) = self.packets.get_mut(&number).expect("a packet that was sent");
        assert_eq!(sent, packet);
        assert_eq!(waits.take(), Some(to), "it comes once, to whom it is for");
    }

    /// The hostile router sends an item about routes.
    fn notice(&mut self, what: u8, bytes: &[u8]) {
        let octet = |at: usize| bytes.get(at).copied().unwrap_or_default();
        let (to, slot) = (self.target(octet(0)), Slot(octet(1).into()));
        let mark = u32::from(octet(0));
        let mut items = Vec::new();
        let item = match what & 3 {
            0 => Item::DetourRequest { to },
            1 => Item::DetourReply { to, slot },
            2 => Item::Detoured { mark },
            _ => Item::Broken { mark },
        };
        for _ in 0..=octet(2) & 31 {
            let _ = item.emit(&mut items);
        }
        self.say(&items);
    }
}

fuzz_target!(|data: &[u8]| {
    let mut world = World::new();
    let began = world.now;
    (world.received, world.sent) = (0, 0);
    let (mut rest, mut steps) = (data, 0);
    // What, length; then the octets.
    while let [what, length, tail @ ..] = rest
        && steps < MAX_STEPS
    {
        steps += 1;
        let (bytes, tail) = tail.split_at(tail.len().min((*length).into()));
        rest = tail;
        match what % 8 {
            0 | 1 => world.message(bytes),
            2 => world.say(bytes),
            3 => {
                let mut item = Vec::new();
                let _ = Item::Routed(bytes).emit(&mut item);
                world.say(&item);
            }
            4 => {
                let mut packet = bytes.to_vec();
                packet.resize(packet.len().max(60), 0);
                packet[0] = 0x17;
                if let Some(slot) = world.slot {
                    world.hostile.send_data(world.now, slot, &mut world.output, |out| out.extend(&packet));
                }
                world.deliver();
            }
            5 => {
                let mut packet = bytes.to_vec();
                if let Some(first) = packet.first_mut() {
                    *first = 0x10 | (*first & 7);
                }
                world.wire.push_back((HOSTILE + usize::from(what >> 4), CENTRE, packet));
                world.deliver();
            }
            // The octets are the numbers of packets, so that there can be many.
            6 if what >> 4 < 8 => {
                let second = what >> 4 >= 4;
                world.host(*length, second);
                bytes.iter().for_each(|octet| world.host(*octet, second));
            }
            6 if what >> 4 < 12 => world.silent = Some(usize::from(length & 3)).filter(|&at| at != CENTRE),
            6 => world.notice(what >> 4, bytes),
            _ => {
                let time = Duration::from_millis(10 << (length & 15).min(12));
                world.pass(time, 4 + (length >> 4) as u32);
            }
        }
        let heap = world.routers[CENTRE].heap_bytes();
        assert!(heap <= HEAP, "{heap} octets");
        let seconds = world.now.since(began).as_secs() + 1;
        let limit = ECHO * world.received + OWN * seconds + BURST;
        assert!(world.sent <= limit, "{} octets for {}", world.sent, world.received);
    }
    world.silent = None;
    world.pass(Duration::from_secs(20), 200);
    let up = world.routers[CENTRE].links().up();
    for honest in HONEST {
        assert!(up.iter().any(|neighbour| neighbour.id == world.routers[honest].id()), "{honest} is lost");
    }
});
