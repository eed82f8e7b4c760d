//! Apart routes: packets between second addresses take a way that shares nothing with that of the others. In virtual time.

mod net;
mod wired;

use std::collections::BTreeSet;

use net::topology;
use ringway_mesh::Prefix;
use ringway_mesh::crypto::{Crypto, Real, StandIn};
use ringway_mesh::router::Event;
use ringway_mesh::session::ProbeOutcome;
use ringway_sansio::time::Duration;
use wired::{DELAY, Wired};

const SECOND: Duration = Duration::from_secs(1);

/// Returns the graph with these links.
fn graph(links: &[(usize, usize)]) -> topology::Links {
    let nodes = links.iter().map(|&(one, other)| one.max(other) + 1).max().unwrap_or(0);
    let mut graph = vec![BTreeSet::new(); nodes];
    for &(one, other) in links {
        graph[one].insert(other);
        graph[other].insert(one);
    }
    graph
}

fn settled<C: Crypto>(links: topology::Links, seed: u64) -> Wired<C> {
    let mut net = Wired::new(links, seed);
    net.run(SECOND * 20);
    net
}

/// What has a second address sends from it to that of another router.
fn send_second<C: Crypto>(net: &mut Wired<C>, from: usize, to: usize, payload: &[u8]) {
    let mut packet = net.packet(from, net.id(to).prefix(), payload);
    for (at, router) in [(8, from), (24, to)] {
        packet[at..at + 16].copy_from_slice(&net.id(router).prefix().second().octets());
    }
    net.call(from, |router, now, random| router.handle_local(now, &packet, random));
}

/// Sends between second addresses, a packet a second.
fn talk<C: Crypto>(net: &mut Wired<C>, from: usize, to: usize, seconds: u32) {
    for _ in 0..seconds {
        send_second(net, from, to, b"second");
        net.run(SECOND);
    }
}

/// Returns the routers on the way to the first or the second address of a router, that one included.
fn way<C: Crypto>(net: &mut Wired<C>, from: usize, to: usize, second: bool) -> Vec<usize> {
    let prefix = net.id(to).prefix();
    let to = if second { prefix.second() } else { prefix.router() };
    let mut way = Vec::new();
    for hops in 1..60 {
        let mut id = None;
        net.call(from, |router, now, random| id = router.probe(now, to, hops, random).ok());
        net.run(SECOND);
        let outcome = net.nodes[from].events.iter().find_map(|(_, event)| match event {
            Event::Probe(probe, outcome) if Some(*probe) == id => Some(*outcome),
            _ => None,
        });
        let (ProbeOutcome::Expired { by, .. } | ProbeOutcome::Answered { owner: by, .. }) =
            outcome.unwrap_or_else(|| panic!("no answer after {way:?}"))
        else {
            panic!("{outcome:?} after {way:?}");
        };
        way.extend((0..net.nodes.len()).find(|&at| net.id(at) == by));
        if by.prefix() == prefix {
            break;
        }
    }
    way
}

/// Returns the routers and the links that two ways from the same router have in common, besides their ends.
fn shared(from: usize, one: &[usize], other: &[usize]) -> (usize, usize) {
    let links = |way: &[usize]| -> BTreeSet<(usize, usize)> {
        let whole: Vec<usize> = [from].into_iter().chain(way.iter().copied()).collect();
        whole.windows(2).map(|link| (link[0].min(link[1]), link[0].max(link[1]))).collect()
    };
    let routers = |way: &[usize]| way[..way.len() - 1].iter().copied().collect::<BTreeSet<_>>();
    let both = routers(one).intersection(&routers(other)).count();
    (both, links(one).intersection(&links(other)).count())
}

fn second_addresses_have_a_way_of_their_own<C: Crypto>(seeds: u64) {
    for seed in 0..seeds {
        // Two ways from 0 to 5, of two and of three routers.
        let links = [(0, 1), (1, 2), (2, 5), (0, 3), (3, 4), (4, 6), (6, 5)];
        let mut net = settled::<C>(graph(&links), seed);
        talk(&mut net, 0, 5, 10);
        let (first, second) = (way(&mut net, 0, 5, false), way(&mut net, 0, 5, true));
        assert_eq!(shared(0, &first, &second), (0, 0), "{first:?} {second:?}");
        // Nothing was lost while it was looked for, and the other end uses it too.
        assert_eq!(net.received(5), vec![b"second".to_vec(); 10]);
        assert_eq!(shared(5, &way(&mut net, 5, 0, false), &way(&mut net, 5, 0, true)), (0, 0));
    }
}

#[test]
fn second_addresses_have_a_way_of_their_own_with_real_keys() {
    second_addresses_have_a_way_of_their_own::<Real>(1);
}

#[test]
fn second_addresses_have_a_way_of_their_own_with_stand_ins() {
    second_addresses_have_a_way_of_their_own::<StandIn>(8);
}

/// Neighbours have the link between them, and a way round it.
#[test]
fn neighbours_have_a_way_round_their_link() {
    for seed in 0..8 {
        let mut net = settled::<StandIn>(graph(&[(0, 1), (0, 2), (2, 3), (3, 1)]), seed);
        talk(&mut net, 0, 1, 10);
        assert_eq!(way(&mut net, 0, 1, false), [1]);
        assert_eq!(way(&mut net, 0, 1, true), [2, 3, 1]);
    }
}

/// All ways pass one router; before and behind it there are two.
#[test]
fn links_are_not_shared_where_a_router_must_be() {
    for seed in 0..8 {
        let links = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (3, 5), (4, 6), (5, 6)];
        let mut net = settled::<StandIn>(graph(&links), seed);
        talk(&mut net, 0, 6, 15);
        let (first, second) = (way(&mut net, 0, 6, false), way(&mut net, 0, 6, true));
        assert_eq!(shared(0, &first, &second), (1, 0), "{first:?} {second:?}");
    }
}

/// Without another way, second addresses are reached as the first ones are, and what looks for one rests.
#[test]
fn without_another_way_there_is_one() {
    let mut net = settled::<StandIn>(topology::line(5), 3);
    talk(&mut net, 0, 4, 10);
    assert_eq!(net.received(4), vec![b"second".to_vec(); 10]);
    assert_eq!(way(&mut net, 0, 4, true), [1, 2, 3, 4]);
    let octets = |net: &mut Wired, seconds: u32, second: bool| {
        let before = net.octets;
        for _ in 0..seconds {
            match second {
                true => send_second(net, 0, 4, b"packet"),
                false => net.send(0, 4, b"packet"),
            }
            net.run(SECOND);
        }
        net.octets - before
    };
    // It has been looked for so often in vain that it is rare now.
    octets(&mut net, 300, true);
    let (first, second) = (octets(&mut net, 240, false), octets(&mut net, 240, true));
    assert!(second < first + first / 10, "{first} and {second} octets in four minutes");
}

/// A way that appears later is found, and one that disappears is replaced by what there is.
#[test]
fn the_way_follows_the_network() {
    let links = [(0, 1), (1, 4), (0, 2), (2, 4), (0, 3), (3, 4)];
    let mut net = settled::<StandIn>(graph(&links), 7);
    talk(&mut net, 0, 4, 6);
    let [first, second] = [false, true].map(|second| way(&mut net, 0, 4, second)[0]);
    assert_ne!(first, second);
    let third = 6 - first - second;
    // The apart way fails: the third router is another.
    net.cut(0, second);
    talk(&mut net, 0, 4, 8);
    assert_eq!(way(&mut net, 0, 4, true), [third, 4]);
    // The ordinary one fails, and leaves one router for both.
    net.cut(0, first);
    talk(&mut net, 0, 4, 8);
    assert_eq!([false, true].map(|second| way(&mut net, 0, 4, second)), [[third, 4]; 2]);
    net.received(4);
    talk(&mut net, 0, 4, 5);
    assert_eq!(net.received(4), vec![b"second".to_vec(); 5]);
    // One comes back.
    net.join(0, first);
    talk(&mut net, 0, 4, 130);
    let (one, other) = (way(&mut net, 0, 4, false), way(&mut net, 0, 4, true));
    assert_eq!(shared(0, &one, &other), (0, 0), "{one:?} {other:?}");
}

/// One of the two always arrives, however the link is cut, and nobody has noticed anything yet.
#[test]
fn a_link_that_drops_everything_stops_one_of_two() {
    let links = [(0, 1), (1, 2), (2, 5), (0, 3), (3, 4), (4, 5)];
    let mut net = settled::<StandIn>(graph(&links), 2);
    talk(&mut net, 0, 5, 6);
    let first = way(&mut net, 0, 5, false);
    net.received(5);
    net.cut(first[0], first[1]);
    let start = net.now;
    net.send(0, 5, b"first");
    send_second(&mut net, 0, 5, b"second");
    net.run(DELAY * 10);
    assert_eq!(net.received(5), [b"second"], "at {:?}", net.now.since(start));
}

/// Who does not use second addresses looks for nothing, and has no state for it.
#[test]
fn nobody_looks_for_it_without_such_packets() {
    let links = [(0, 1), (1, 2), (2, 5), (0, 3), (3, 4), (4, 5)];
    let count = |second: bool| {
        let mut net = settled::<StandIn>(graph(&links), 2);
        net.send(0, 5, b"first");
        net.run(SECOND);
        if second {
            // From a first address, or to it, is no such packet.
            let mut packet = net.packet(0, net.id(5).prefix(), b"half");
            packet[39] = 2;
            net.call(0, |router, now, random| router.handle_local(now, &packet, random));
        } else {
            net.send(0, 5, b"half");
        }
        net.run(SECOND * 30);
        let sizes: Vec<usize> = net.nodes.iter().map(|node| node.router.heap_bytes()).collect();
        (sizes, net.nodes[0].router.sessions())
    };
    assert_eq!(count(true), count(false));
    assert_eq!(count(true).1, 1);
}

/// In larger networks, nearly all pairs that have two ways get them.
#[test]
fn most_pairs_of_a_network_have_two_ways() {
    let mut net = settled::<StandIn>(topology::grid(6), 4);
    let pairs = [(0, 35), (5, 30), (7, 28), (1, 34), (12, 17), (2, 33), (14, 21), (8, 26)];
    for _ in 0..12 {
        for (from, to) in pairs {
            send_second(&mut net, from, to, b"second");
        }
        net.run(SECOND);
    }
    let mut ways = Vec::new();
    for (from, to) in pairs {
        let (first, second) = (way(&mut net, from, to, false), way(&mut net, from, to, true));
        ways.push((shared(from, &first, &second), first, second));
    }
    let apart = ways.iter().filter(|((_, links), ..)| *links == 0).count();
    assert!(apart + 1 >= pairs.len(), "{apart} of {}: {ways:?}", pairs.len());
}

/// A prefix of nobody, by its second address, is answered as any other.
#[test]
fn an_absent_router_has_no_second_address() {
    let mut net = settled::<StandIn>(topology::grid(3), 9);
    let mut packet = net.packet(0, Prefix::from_bytes([0x80; 7]), b"anybody?");
    packet[39] = 2;
    packet[8..24].copy_from_slice(&net.id(0).prefix().second().octets());
    net.call(0, |router, now, random| router.handle_local(now, &packet, random));
    net.run(SECOND);
    let [error] = &net.received(0)[..] else { panic!("one error") };
    assert_eq!((error[..2].to_vec(), &error[8..]), (vec![1, 0], &packet[..]));
}
