//! Neighbours and strangers that lie, repeat and flood.

mod net;
mod wired;

use std::collections::BTreeSet;

use net::topology;
use ringway_mesh::Config;
use ringway_mesh::NodeId;
use ringway_mesh::config::Limits;
use ringway_mesh::crypto::{HandshakeError, NetworkKey, Real, StandIn};
use ringway_mesh::id::Instance;
use ringway_mesh::link::handshake::Refused;
use ringway_mesh::router::{Closest, Event};
use ringway_mesh::wire::{Hello, Kind};
use ringway_sansio::time::Duration;
use ringway_sansio::{Random, SplitMix};
use wired::Wired;

const SECOND: Duration = Duration::from_secs(1);

fn config() -> Config {
    Config { extension_bits: 0, ..Config::default() }
}

/// Everything that was sent in a while comes again, to everybody, as from every neighbour: nothing happens.
#[test]
fn replayed_packets_change_nothing() {
    let mut net = Wired::<Real>::new(topology::grid(3), 5);
    net.run(SECOND * 30);
    net.tap = Some(Vec::new());
    net.send(0, 8, b"once");
    net.run(SECOND * 10);
    let tap = net.tap.take().unwrap();
    assert_eq!(net.received(8), [b"once"]);
    let forwarded = |net: &Wired<Real>| -> u64 {
        net.nodes.iter().map(|node| node.router.packet_counters().forwarded).sum()
    };
    let (events, before): (Vec<usize>, u64) =
        (net.nodes.iter().map(|node| node.events.len()).collect(), forwarded(&net));
    for bytes in &tap {
        for to in 0..9 {
            let neighbours: Vec<usize> = net.links[to].iter().copied().collect();
            neighbours.into_iter().for_each(|from| net.inject(to, from, bytes));
        }
    }
    // Nothing is forwarded once more, nor is a sign that its sender lives.
    assert_eq!(forwarded(&net), before);
    net.run(SECOND * 10);
    assert!((0..9).all(|at| net.received(at).is_empty()));
    let after: Vec<usize> = net.nodes.iter().map(|node| node.events.len()).collect();
    assert_eq!((events, net.wrong(), net.reachable(200)), (after, 0, 1.0));
}

/// Any octet of any packet is changed: nobody loses a link, and nobody gets what was not sent.
#[test]
fn changed_packets_change_nothing() {
    let mut net = Wired::<Real>::new(topology::line(3), 5);
    net.run(SECOND * 30);
    net.tap = Some(Vec::new());
    net.send(0, 2, b"once");
    net.run(SECOND * 4);
    let tap = net.tap.take().unwrap();
    net.received(2);
    let mut random = SplitMix::new(8);
    for bytes in &tap {
        for _ in 0..40 {
            let mut changed = bytes.clone();
            let at = (random.next_u64() % bytes.len() as u64) as usize;
            changed[at] ^= 1 << (random.next_u64() % 8);
            net.inject(1, 0, &changed);
            net.inject(1, 2, &changed);
        }
    }
    net.run(SECOND * 10);
    assert!((0..3).all(|at| net.received(at).is_empty()));
    assert!(net.nodes.iter().all(|node| {
        !node.events.iter().any(|(_, event)| matches!(event, Event::NeighbourDown(..)))
    }));
    assert_eq!((net.wrong(), net.reachable(200)), (0, 1.0));
}

/// A HELLO with another number than its sender gave it has the wrong code.
#[test]
fn a_forged_hello_changes_nothing() {
    let mut net = Wired::<StandIn>::new(topology::line(2), 5);
    net.run(SECOND * 10);
    net.tap = Some(Vec::new());
    net.run(SECOND * 3);
    let tap = net.tap.take().unwrap();
    let hello = |bytes: &&Vec<u8>| Kind::of(bytes) == Ok(Kind::Hello);
    for bytes in tap.iter().filter(hello) {
        let mut changed = bytes.clone();
        changed[17] = changed[17].wrapping_add(9);
        net.inject(0, 1, &changed);
        net.inject(1, 0, &changed);
    }
    net.run(SECOND);
    assert!(net.nodes.iter().all(|node| node.events.len() == 1));
    assert!(net.nodes.iter().any(|node| node.router.links().forged_hellos > 0));
}

/// HELLOs of routers that do not exist, from the address of a neighbour: nobody calls it for each of them.
#[test]
fn a_neighbour_with_many_names_is_not_called() {
    let mut net = Wired::<StandIn>::new(topology::line(2), 5);
    net.run(SECOND * 10);
    net.tap = Some(Vec::new());
    for number in 0..100 {
        let (id, instance) = (NodeId::new(number << 50 | 7), Instance(number as u32));
        let reports = Default::default();
        let hello = Hello { interval: 95, id, instance, sequence: 1, stamp: 9, reports };
        let mut bytes = Vec::new();
        hello.emit(&mut bytes, &[], |_| [7; 8]);
        net.inject(0, 1, &bytes);
        net.run(SECOND / 5);
    }
    let tap = net.tap.take().unwrap();
    let calls = tap.iter().filter(|bytes| Kind::of(bytes) == Ok(Kind::Init)).count();
    assert_eq!((calls, net.nodes[0].events.len()), (0, 1));
}

/// HELLOs that were recorded some minutes ago have a good code, and numbers that are far behind.
#[test]
fn old_hellos_change_nothing() {
    let mut net = Wired::<StandIn>::new(topology::line(2), 5);
    net.run(SECOND * 10);
    net.tap = Some(Vec::new());
    net.run(SECOND * 20);
    let tap = net.tap.take().unwrap();
    net.run(SECOND * 300);
    let cost = |net: &Wired<StandIn>, at: usize| {
        net.nodes[at].router.links().neighbours().next().unwrap().1.cost(net.now)
    };
    let before = [cost(&net, 0), cost(&net, 1)];
    for bytes in tap.iter().filter(|bytes| Kind::of(bytes) == Ok(Kind::Hello)) {
        net.inject(0, 1, bytes);
        net.inject(1, 0, bytes);
    }
    net.run(SECOND * 10);
    assert_eq!([cost(&net, 0), cost(&net, 1)], before);
    assert!(net.nodes.iter().all(|node| node.events.len() == 1));
}

/// Routers with two network keys on one medium: each finds those with its own, and no other.
#[test]
fn another_network_key_makes_no_link() {
    let all: Vec<BTreeSet<usize>> =
        (0..6).map(|at| (0..6).filter(|&other| other != at).collect()).collect();
    let key = |at: usize| NetworkKey::derive(&[b'k', (at % 2) as u8]);
    let mut net = Wired::<Real>::keyed(all, 5, &config(), key, |at| at);
    net.run(SECOND * 20);
    for at in 0..6 {
        let up: BTreeSet<_> =
            net.nodes[at].router.links().up().iter().map(|neighbour| neighbour.id).collect();
        let expected =
            (0..6).filter(|&other| other != at && other % 2 == at % 2).map(|other| net.id(other));
        assert_eq!(up, expected.collect());
        let refused = Refused::Handshake(HandshakeError::Refused);
        let is_refused =
            |(_, event): &(_, Event)| matches!(event, Event::Refused(_, why) if *why == refused);
        assert!(net.nodes[at].events.iter().any(is_refused));
    }
}

#[test]
fn a_copied_identity_is_reported() {
    let mut net = Wired::<Real>::keyed(
        topology::line(3),
        5,
        &config(),
        |_| NetworkKey::OPEN,
        |at| if at == 1 { 0 } else { at },
    );
    net.run(SECOND * 5);
    let is_duplicate = |(_, event): &(_, Event)| matches!(event, Event::DuplicateIdentity(_));
    assert!(net.nodes[..2].iter().all(|node| node.events.iter().any(is_duplicate)));
    // The other neighbour is not affected.
    assert_eq!(net.nodes[1].router.links().up().len(), 1);
}

/// Octets without sense, of every kind, as fast as they come: memory is bounded and honest links live on.
#[test]
fn noise_fills_no_table() {
    let mut net = Wired::<StandIn>::new(topology::grid(3), 5);
    net.run(SECOND * 10);
    let before = net.nodes[4].router.heap_bytes();
    let mut random = SplitMix::new(9);
    for round in 0..200 {
        for _ in 0..200 {
            let mut bytes = vec![0; (random.next_u64() % 400) as usize];
            random.fill(&mut bytes);
            if let Some(first) = bytes.first_mut() {
                *first = 0x10 | (*first & 7);
            }
            // From anywhere: there are more addresses than any table has entries.
            net.inject(4, 1_000 + (random.next_u64() % 5_000) as usize, &bytes);
        }
        // What is answered goes nowhere.
        net.run(if round % 10 == 0 { SECOND } else { SECOND / 100 });
    }
    let grown = net.nodes[4].router.heap_bytes() - before;
    assert!(grown < 300_000, "{grown} octets");
    net.run(SECOND * 60);
    assert_eq!(
        (net.wrong(), net.reachable(200), net.nodes[4].router.links().up().len()),
        (0, 1.0, 4)
    );
}

/// A neighbour that repeats messages without end gets no more forwarded than its rate, and costs the others nothing.
#[test]
fn one_neighbour_cannot_use_up_the_messages_of_all() {
    let limits = Limits { neighbour_rate: 1_000, neighbour_burst: 20_000, ..Limits::default() };
    let mut net =
        Wired::<StandIn>::with(topology::line(3), 5, &Config { limits: limits.into(), ..config() });
    net.run(SECOND * 60);
    let forwarded = net.nodes[1].router.counters().forwarded;
    for number in 0..2_000u64 {
        net.call(0, |router, now, random| {
            let key = NodeId::new(number << 50);
            let _ = router.send_closest(now, &Closest::new(key, 1, &[0; 900]), random);
        });
        net.run(SECOND / 100);
    }
    let counters = net.nodes[1].router.counters();
    // A burst and 20 seconds of the rate are 38 messages of about 1,060 octets; what is for the router itself counts too.
    // The others are those of upkeep between the ends.
    assert!(counters.forwarded - forwarded <= 45, "{forwarded} before: {counters:?}");
    let start = net.now;
    net.send(2, 1, b"still there");
    net.run(SECOND);
    assert_eq!(net.received(1), [b"still there"]);
    assert!(net.now.since(start) <= SECOND);
}
