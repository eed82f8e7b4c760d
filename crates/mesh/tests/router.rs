//! Whole routers on small graphs in virtual time.

mod net;
mod wired;

use net::topology;
use ringway_mesh::crypto::{Real, StandIn};
use ringway_mesh::link::DownReason;
use ringway_mesh::router::{Closest, Event, Refusal};
use ringway_mesh::wire::Kind;
use ringway_mesh::{Config, NodeId};
use ringway_sansio::time::Duration;
use wired::{START, Wired};

const SECOND: Duration = Duration::from_secs(1);

/// Two routers have a link after less than half a second.
fn two_routers_link<C: ringway_mesh::crypto::Crypto>() {
    let mut pair = Wired::<C>::new(topology::line(2), 7);
    pair.run(SECOND / 2);
    for at in 0..2 {
        let peer = pair.id(1 - at);
        let [(time, Event::NeighbourUp(id))] = pair.nodes[at].events[..] else {
            panic!("{:?}", pair.nodes[at].events)
        };
        assert_eq!(id, peer);
        assert!(time.since(START) < SECOND / 2);
        assert!(pair.nodes[at].router.overlay().contacts().get(peer).is_some());
        let slot = pair.nodes[at].router.links().up()[0];
        assert!(slot.back.is_some());
    }
    pair.run(SECOND * 300);
    assert!(pair.nodes.iter().all(|node| node.events.len() == 1), "{:?}", pair.nodes[0].events);
}

#[test]
fn two_routers_link_with_real_keys() {
    two_routers_link::<Real>();
}

#[test]
fn two_routers_link_with_stand_ins() {
    two_routers_link::<StandIn>();
}

/// Whoever becomes a neighbour while the other router waits with its own handshake is not called again.
#[test]
fn each_link_needs_one_handshake() {
    let mut net = Wired::<StandIn>::new(topology::grid(4), 3);
    net.tap = Some(Vec::new());
    net.run(SECOND * 10);
    let sent = net.tap.take().unwrap_or_default();
    let links: usize = net.links.iter().map(|links| links.len()).sum::<usize>() / 2;
    for kind in [Kind::Init, Kind::Resp, Kind::Conf] {
        let count = sent.iter().filter(|packet| Kind::of(packet) == Ok(kind)).count();
        assert_eq!(count, links, "{kind:?}");
    }
}

/// Nothing but links and triggers: no question that is asked by the clock is needed for nine pairs of ten.
#[test]
fn routers_become_one_ring_in_a_second() {
    for links in [topology::line(50), topology::grid(7)] {
        let mut net = Wired::<StandIn>::new(links, 3);
        net.run(SECOND);
        assert!(net.reachable(1_000) > 0.9);
        net.run(SECOND * 4);
        assert_eq!((net.wrong(), net.reachable(1_000)), (0, 1.0));
        let mut ends: Vec<_> = net.nodes.iter().map(|node| &node.router).collect();
        ends.sort_unstable_by_key(|router| router.id());
        let last = ends.len() - 1;
        let partners = [0, last].map(|end: usize| ends[end].overlay().partner());
        assert_eq!(partners, [Some(ends[last].id()), Some(ends[0].id())]);
        assert!(ends[1..last].iter().all(|router| router.overlay().partner().is_none()));
    }
}

/// One of fifty packets is lost at each hop, of HELLOs too.
#[test]
fn lost_packets_delay_the_ring() {
    let mut net = Wired::<StandIn>::new(topology::grid(5), 11);
    net.loss = 20;
    net.run(SECOND * 40);
    assert_eq!((net.wrong(), net.reachable(1_000)), (0, 1.0));
}

/// Who has died is missed in under three seconds, and the ring closes without it.
#[test]
fn a_dead_router_leaves_the_ring() {
    let mut net = Wired::<StandIn>::new(topology::grid(5), 5);
    net.run(SECOND * 60);
    net.crash(12);
    let (dead, start) = (net.id(12), net.now);
    net.run(SECOND * 20);
    for at in [7, 11, 13, 17] {
        let (time, event) = net.nodes[at].events.last().unwrap();
        assert_eq!(*event, Event::NeighbourDown(dead, DownReason::Silent));
        assert!(time.since(start) < SECOND * 3);
    }
    assert_eq!((net.wrong(), net.reachable(1_000)), (0, 1.0));
    // It starts again with its key: its neighbours need no time-out to see that it is another.
    net.restart(12, 5, &Config { extension_bits: 0, ..Config::default() });
    net.run(SECOND * 10);
    assert_eq!((net.wrong(), net.reachable(1_000)), (0, 1.0));
}

/// An end of the line that was away for so long that all have forgotten it, and that everybody else is rarely asked, is
/// known to the other end some seconds after it has come back.
#[test]
fn an_end_that_comes_back_is_known_to_the_other_end() {
    let mut net = Wired::<StandIn>::new(topology::grid(5), 7);
    net.run(SECOND * 60);
    let mut order: Vec<usize> = (0..net.nodes.len()).collect();
    order.sort_unstable_by_key(|&at| net.id(at));
    let (first, last) = (order[0], order[order.len() - 1]);
    for end in [last, first] {
        net.crash(end);
        net.run(SECOND * 600);
        net.restart(end, 7, &Config { extension_bits: 0, ..Config::default() });
        net.run(SECOND * 20);
        let partners = [first, last].map(|at| net.nodes[at].router.overlay().partner());
        assert_eq!(partners, [Some(net.id(last)), Some(net.id(first))]);
    }
}

/// Every router's only links are those of a ring that winds twice. It becomes a line with two ends that know each other, also
/// if a third of the packets is lost meanwhile.
#[test]
fn a_ring_that_winds_twice_becomes_one() {
    for (routers, loss) in [(8, 0), (8, 300), (30, 0), (31, 100)] {
        for seed in 0..8 {
            let mut net = Wired::<StandIn>::wound_twice(routers, seed);
            net.loss = loss;
            net.run(SECOND * 10);
            net.loss = 0;
            net.run(SECOND * 40);
            assert_eq!((net.wrong(), net.reachable(500)), (0, 1.0), "{routers} {loss} {seed}");
            let ends = net.nodes.iter().filter(|node| node.router.overlay().partner().is_some());
            assert_eq!(ends.count(), 2, "{routers} {loss} {seed}");
        }
    }
}

/// A key is delivered at the router with the largest id that is not above it, and at the last one if there is none, whoever
/// sends: all agree.
#[test]
fn a_key_is_delivered_to_the_responsible_router() {
    let mut net = Wired::<Real>::new(topology::grid(4), 6);
    net.run(SECOND * 20);
    let mut ids: Vec<_> = (0..16).map(|at| net.id(at)).collect();
    ids.sort_unstable();
    let keys = [0, 1, ids[0].raw() - 1, ids[0].raw(), ids[7].raw() + 1, ids[8].raw(), u64::MAX];
    for key in keys.map(NodeId::new) {
        let owner = ids.iter().rev().find(|&&id| id <= key).unwrap_or(&ids[15]);
        for from in 0..16 {
            let sender = net.id(from);
            net.call(from, |router, now, random| {
                router.send_closest(now, &Closest::new(key, 9, b"octets"), random).unwrap();
            });
            net.run(SECOND / 10);
            let got = net.nodes.iter_mut().find_map(|node| {
                let closest = |(_, event): &(_, Event)| matches!(event, Event::Closest { .. });
                let at = node.events.iter().position(closest)?;
                Some((node.router.id(), node.events.remove(at).1))
            });
            let octets = b"octets".to_vec();
            let expected = Event::Closest { origin: sender, key, application: 9, octets };
            assert_eq!(got, Some((*owner, expected)), "key {key} from {sender}");
        }
    }
    let too_long = [0; 1_001];
    net.call(0, |router, now, random| {
        let closest = Closest::new(NodeId::new(5), 9, &too_long);
        let refused = router.send_closest(now, &closest, random);
        assert_eq!(refused, Err(Refusal::TooLong(1_001)));
    });
}

/// Two networks of 144 that have settled, and one link between them: they are one after a few seconds, because contacts are
/// introduced to the other side at all distances at once.
#[test]
fn two_settled_networks_merge() {
    let (side, each) = (12, 144);
    let mut links = topology::grid(side);
    let other = topology::grid(side).into_iter();
    links.extend(other.map(|peers| peers.into_iter().map(|peer| peer + each).collect()));
    let mut net = Wired::<StandIn>::new(links, 3);
    net.run(SECOND * 60);
    // Of 287 pairs beside each other on the line, half are of different networks.
    assert!(net.wrong() > 200);
    net.join(0, each);
    net.run(SECOND * 5);
    assert_eq!((net.wrong(), net.reachable(1_000)), (0, 1.0));
}
