//! Nodes that start, stop and are called from outside, links that are cut, and clocks that are wrong.

#![allow(clippy::unwrap_used)]

use ringway_link::Chance;
use ringway_sansio::{Duration, Random, Time};
use ringway_sim::Error;
use ringway_sim::graph::{
    Adjacency, Counters, Destination, Graph, GraphNode, LinkModel, Topology, node_random,
};

/// Sends a packet of 10 bytes to its neighbours each 100 ms of its clock, from its creation on.
struct Beacon {
    next: Time,
    is_due: bool,
    heard: Vec<(Time, u16)>,
}

const EVERY: Duration = Duration::from_millis(100);

impl Beacon {
    fn new(first: Time) -> Self {
        Beacon { next: first, is_due: false, heard: Vec::new() }
    }
}

impl GraphNode for Beacon {
    fn handle_packet(&mut self, now: Time, from: u16, _: &mut [u8]) {
        self.heard.push((now, from));
    }
    fn handle_timeout(&mut self, now: Time) {
        assert!(now >= self.next);
        self.next = now + EVERY;
        self.is_due = true;
    }
    fn poll_timeout(&self) -> Option<Time> {
        Some(self.next)
    }
    fn poll_transmit(&mut self, _: Time, bytes: &mut Vec<u8>) -> Option<Destination> {
        core::mem::take(&mut self.is_due).then(|| {
            bytes.resize(10, 0);
            Destination::Neighbours
        })
    }
    fn heap_bytes(&self) -> usize {
        self.heard.capacity() * size_of::<(Time, u16)>()
    }
}

const fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

fn links(topology: &Topology) -> Adjacency {
    Adjacency::new(topology, |_, _| LinkModel::new(Duration::from_millis(1))).unwrap()
}

/// Three nodes in a line that send beacons at 0, 100 ms, 200 ms ...
fn line() -> Graph<Beacon> {
    Graph::new(links(&Topology::line(3)), 1, |_| Beacon::new(Time::ZERO))
}

#[test]
fn nodes_join_one_after_another() {
    let mut graph = Graph::idle(links(&Topology::line(3)), 1);
    assert_eq!((graph.len(), graph.nodes().count()), (3, 0));
    for (number, start) in [(1, at(100)), (0, at(250)), (2, at(301))] {
        graph.run_until(start).unwrap();
        graph.start(number, Beacon::new(start)).unwrap();
    }
    graph.run_until(at(310)).unwrap();
    let heard: Vec<_> = graph.nodes().map(|node| node.heard.clone()).collect();
    // The beacon that arrived at 301 ms came before the node that started then.
    assert_eq!(heard, [vec![(at(301), 0)], vec![(at(251), 0), (at(302), 1)], vec![]]);
    // Beacons of 100, 200 and 300 ms found no node.
    assert_eq!((graph.totals().undelivered, graph.totals().hops), (5, 3));
    let numbers: Vec<u32> = graph.numbered().map(|(number, _)| number).collect();
    assert_eq!(numbers, [0, 1, 2]);
    let error = graph.start(3, Beacon::new(at(0))).unwrap_err();
    assert_eq!(error, Error::Unknown { what: "node", index: 3 });
}

#[test]
fn a_node_that_stopped_neither_sends_nor_receives() {
    let mut graph = line();
    graph.run_until(at(150)).unwrap();
    let stopped = graph.stop(1).unwrap().unwrap();
    assert_eq!(stopped.heard.len(), 4);
    assert!(graph.stop(1).unwrap().is_none() && graph.node(1).is_none());
    graph.run_until(at(450)).unwrap();
    assert_eq!(graph.totals().undelivered, 6);
    assert_eq!(graph.with_node(1, |_, _| ()).unwrap(), None);
    // It restarts as a new node between two beacons, and has one timer.
    graph.start(1, Beacon::new(at(500))).unwrap();
    graph.run_until(at(650)).unwrap();
    assert_eq!(graph.node(1).unwrap().heard.len(), 4);
    let sent = 2 + 2;
    let counters = graph.counters(1).unwrap();
    let expected =
        Counters { sent, sent_bytes: 10 * u64::from(sent), received: 4 + 4, received_bytes: 80 };
    assert_eq!(counters, expected);
    assert_eq!(graph.counters(3), None);
    assert_eq!(graph.memory_of(1) - graph.memory_of(3), graph.node(1).unwrap().heap_bytes());
}

#[test]
fn a_call_from_outside_is_followed_by_its_packets_and_its_timer() {
    let mut graph = line();
    graph.run_until(at(50)).unwrap();
    let number = graph.with_node(0, |node, now| {
        assert_eq!(now, at(50));
        node.is_due = true;
        node.next = at(60);
        7
    });
    assert_eq!(number.unwrap(), Some(7));
    graph.run_until(at(62)).unwrap();
    assert_eq!(graph.node(1).unwrap().heard[2..], [(at(51), 0), (at(61), 0)]);
}

#[test]
fn a_link_that_was_cut_twice_is_mended_twice() {
    let mut graph = line();
    graph.run_until(at(150)).unwrap();
    graph.cut(0, 1).unwrap();
    graph.cut(1, 0).unwrap();
    let index = graph.adjacency().index_of(0, 1).unwrap();
    assert!(graph.is_cut(0, index) && graph.is_cut(9, 0));
    graph.run_until(at(250)).unwrap();
    graph.mend(1, 0).unwrap();
    graph.run_until(at(350)).unwrap();
    assert!(graph.is_cut(0, index));
    graph.mend(0, 1).unwrap();
    graph.run_until(at(450)).unwrap();
    // Of five beacons each, two were sent while the link was cut.
    let heard: Vec<_> = graph.nodes().map(|node| node.heard.len()).collect();
    assert_eq!((heard, graph.totals().undelivered), (vec![3, 8, 5], 4));
    assert_eq!(graph.cut(0, 2), Err(Error::Unknown { what: "neighbour", index: 2 }));
}

#[test]
fn the_loss_of_a_link_is_changed() {
    let mut graph = line();
    graph.set_loss(1, 2, Chance::ALWAYS).unwrap();
    graph.run_until(at(150)).unwrap();
    graph.set_loss(1, 2, Chance::NEVER).unwrap();
    graph.run_until(at(250)).unwrap();
    let heard: Vec<_> = graph.nodes().map(|node| node.heard.len()).collect();
    assert_eq!((heard, graph.totals().lost), (vec![3, 4, 1], 4));
}

#[test]
fn a_node_lives_by_its_own_clock() {
    let mut graph = line();
    // Twice as slow, and half as fast again, ten seconds ahead.
    graph.set_clock(0, Time::ZERO, -500_000).unwrap();
    graph.set_clock(2, at(10_000), 500_000).unwrap();
    graph.run_until(at(1_002)).unwrap();
    assert_eq!([0, 1, 2].map(|node| graph.local_time(node)), [at(501), at(1_002), at(11_503)]);
    // A beacon that was due in the past is sent at once.
    let sent = [0, 1, 2].map(|node| graph.counters(node).unwrap().sent);
    assert_eq!(sent, [6, 11, 16]);
    // A clock is not put back while its node runs, and set to any time while it does not.
    graph.set_clock(2, at(20), 0).unwrap();
    assert_eq!(graph.local_time(2), at(11_503));
    graph.stop(2).unwrap();
    graph.set_clock(2, at(20), 0).unwrap();
    graph.start(2, Beacon::new(at(20))).unwrap();
    graph.run_until(at(1_092)).unwrap();
    assert_eq!((graph.local_time(2), graph.counters(2).unwrap().sent), (at(110), 17));
}

#[test]
fn each_life_of_each_node_has_its_own_random_numbers() {
    let first = |seed, node, life| node_random(seed, node, life).next_u64();
    let all: Vec<u64> =
        (0..4).flat_map(|seed| (0..8).map(move |n| first(seed, n / 2, n % 2))).collect();
    assert!((1..all.len()).all(|end| !all[..end].contains(&all[end])));
    assert_eq!(first(3, 2, 1), first(3, 2, 1));
}
