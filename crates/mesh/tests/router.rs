//! Whole routers on small graphs in virtual time.

mod net;
mod wired;

use net::topology;
use ringway_mesh::Config;
use ringway_mesh::crypto::{Real, StandIn};
use ringway_mesh::link::DownReason;
use ringway_mesh::router::Event;
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
