//! Floods and other protocols on graphs.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use ringway_link::{Chance, Rate};
use ringway_sansio::{Duration, SplitMix, Time};
use ringway_sim::graph::{
    Adjacency, Destination, Flood, Graph, GraphNode, LinkModel, MAX_LEN, Origin, Topology, Totals,
};
use ringway_sim::{Budget, Error};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const ONE: Origin = Origin { first: Time::from_secs(1), every: Duration::ZERO, packets: 1 };

fn equal(percent: f64) -> impl Fn(u32, u32) -> LinkModel {
    let loss = Chance::percent(percent).unwrap();
    move |_, _| LinkModel { loss, ..LinkModel::new(Duration::from_millis(1)) }
}

/// A delay of 1 to 9 ms that depends on both ends and on the direction.
fn unequal(from: u32, to: u32) -> LinkModel {
    let ms = 1 + u64::from(from.wrapping_mul(31) ^ to.wrapping_mul(17)) % 9;
    LinkModel::new(Duration::from_millis(ms))
}

/// A graph in which node `origin` floods one packet.
fn flood(
    topology: &Topology,
    model: impl Fn(u32, u32) -> LinkModel,
    origin: u32,
    seed: u64,
) -> Graph<Flood> {
    let adjacency = Adjacency::new(topology, model).unwrap();
    Graph::new(adjacency, seed, |node| {
        Flood::new(node, 100, u16::MAX, (node == origin).then_some(ONE))
    })
}

/// The time from `origin` to each node in milliseconds, by Dijkstra's algorithm.
fn shortest(adjacency: &Adjacency, origin: u32, model: impl Fn(u32, u32) -> LinkModel) -> Vec<u64> {
    let mut times = vec![u64::MAX; adjacency.nodes() as usize];
    let mut heap = BinaryHeap::from([Reverse((0, origin))]);
    while let Some(Reverse((time, node))) = heap.pop() {
        if time < times[node as usize] {
            times[node as usize] = time;
            for next in adjacency.neighbours(node) {
                heap.push(Reverse((time + model(node, next).delay.as_millis() as u64, next)));
            }
        }
    }
    times
}

/// One graph of each kind.
fn topologies(seed: u64) -> Vec<Topology> {
    let mut random = SplitMix::new(seed);
    vec![
        Topology::line(50),
        Topology::ring(51),
        Topology::grid(12, 9),
        Topology::tree(100, 3),
        Topology::disk(400, 8.0, &mut random).largest_part(),
        Topology::small_world(300, 4, 0.2, &mut random).largest_part(),
        Topology::power_law(300, 2, &mut random),
    ]
}

#[test]
fn a_flood_arrives_by_the_shortest_paths() {
    for topology in topologies(1) {
        let nodes = topology.nodes();
        for (model, events) in [
            (&equal(0.0) as &dyn Fn(u32, u32) -> LinkModel, Some(u64::from(nodes) + 1)),
            (&unequal, None),
        ] {
            let mut graph = flood(&topology, model, nodes / 3, 1);
            graph.run_until(Time::from_secs(60)).unwrap();
            let times = shortest(graph.adjacency(), nodes / 3, model);
            for (number, node) in graph.nodes().enumerate() {
                let is_origin = number as u32 == nodes / 3;
                assert_eq!(node.received(), u32::from(!is_origin));
                let expected = if is_origin { 0 } else { 1000 + times[number] };
                assert_eq!(node.last().0.as_millis(), expected, "{number} of {nodes}");
                if events.is_some() && !is_origin {
                    assert_eq!(u64::from(node.last().1), times[number]);
                }
            }
            // Every node sends once, to all neighbours at once if its links are equally long.
            let totals = graph.totals();
            let links = graph.adjacency().links() as u64;
            assert_eq!((totals.sent, totals.hops), (nodes.into(), links));
            assert_eq!((totals.sent_bytes, totals.hop_bytes), (100 * totals.sent, 100 * links));
            assert!(events.is_none_or(|events| totals.events == events), "{totals:?}");
            let duplicates: u64 = graph.nodes().map(|node| u64::from(node.duplicates())).sum();
            assert_eq!(duplicates, links - u64::from(nodes - 1));
            assert_eq!((totals.lost, totals.refused, graph.in_flight()), (0, 0, 0));
        }
    }
}

/// Sends beacons to its neighbours from some nodes; returns what each node received of them.
fn beacons(origins: &[u32], loss: f64) -> (Vec<u32>, Totals) {
    let adjacency = Adjacency::new(&Topology::ring(40), equal(loss)).unwrap();
    let node = |node: u32| {
        let first = Time::from_millis(u64::from(node) % 7);
        let every = Duration::from_micros(500 + 10 * u64::from(node));
        let origin = Origin { first, every, packets: 2_000 };
        Flood::new(node, 40, 1, origins.contains(&node).then_some(origin))
    };
    let mut graph = Graph::new(adjacency, 6, node);
    graph.run_until(Time::from_secs(10)).unwrap();
    (graph.nodes().map(Flood::received).collect(), graph.totals())
}

#[test]
fn losses_of_a_node_do_not_depend_on_the_others() {
    let (alone, totals) = beacons(&[1], 30.0);
    assert_eq!(totals.sent, 2_000);
    let (together, _) = beacons(&[1, 20, 21, 39], 30.0);
    // The neighbours 0 and 2 of node 1 lose different packets.
    assert_eq!(alone[2], together[2]);
    assert_ne!(alone[2], alone[0]);
    let share = totals.lost as f64 / (2.0 * 2_000.0);
    assert!((share - 0.3).abs() < 0.03, "{share}");
    assert_eq!(totals.lost + totals.hops, 4_000);
    for (percent, hops) in [(0.0, 4_000), (100.0, 0)] {
        assert_eq!(beacons(&[1], percent).1.hops, hops);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// The same seed gives the same runs, however often they are interrupted; another seed others.
    #[test]
    fn runs_repeat(seed in any::<u64>(), step in 1u64..50) {
        let run = |topology: &Topology, seed: u64, step: u64| {
            let lossy = |a, b| LinkModel { loss: equal(10.0)(a, b).loss, ..unequal(a, b) };
            let mut graph = flood(topology, lossy, 0, seed);
            for time in (0..1_600 / step).map(|number| number * step) {
                graph.run_until(Time::from_millis(time)).unwrap();
            }
            graph.run_until(Time::from_secs(60)).unwrap();
            let last: Vec<_> = graph.nodes().map(Flood::last).collect();
            (graph.totals(), last)
        };
        let topologies = topologies(seed);
        let all = |seed, step| topologies.iter().map(|t| run(t, seed, step)).collect::<Vec<_>>();
        let once = all(seed, 1_600);
        prop_assert_eq!(&once, &all(seed, step));
        prop_assert_ne!(&once, &all(!seed, step));
    }
}

/// Packets of 100 bytes take 0.8 ms each at 1 Mbit/s, and wait for each other on each link; on the link
/// without a rate they arrive at once.
#[test]
fn packets_wait_for_each_other_on_a_link_with_a_rate() {
    let model = |from: u32, to: u32| LinkModel {
        rate: if (from, to) == (1, 2) { Rate::UNLIMITED } else { Rate(1_000_000) },
        max_wait: Duration::from_millis(4),
        ..LinkModel::new(Duration::from_millis(1))
    };
    let adjacency = Adjacency::new(&Topology::line(4), model).unwrap();
    let origin = Origin { first: Time::ZERO, every: Duration::ZERO, packets: 10 };
    let node = |node| Flood::new(node, 100, 3, (node == 1).then_some(origin));
    let mut graph = Graph::new(adjacency, 1, node);
    graph.run_until(Time::from_secs(1)).unwrap();
    let last = |node: &Flood| (node.received(), node.last().0.as_nanos() / 1000);
    let nodes: Vec<_> = graph.nodes().map(last).collect();
    // The first six packets to node 0 wait for at most 4 ms, and so do those that node 2 sends on at 1 ms.
    assert_eq!(nodes, [(6, 5_800), (0, 0), (10, 1_000), (6, 6_800)]);
    // Node 2 also drops as many that it sends back.
    let totals = graph.totals();
    assert_eq!((totals.sent, totals.hops, totals.dropped), (32, 6 + 10 + 6 + 6 + 6 + 6, 12));
}

/// Sends a packet to its neighbour `first`, and a packet back for each one it receives.
struct Echo {
    first: Option<u16>,
    len: usize,
    back: Option<u16>,
    received: Vec<(Time, u16, u8)>,
}

impl GraphNode for Echo {
    fn handle_packet(&mut self, now: Time, from: u16, bytes: &mut [u8]) {
        self.received.push((now, from, bytes[0]));
        bytes[0] += 1;
        self.back = (bytes[0] < 4).then_some(from);
    }
    fn handle_timeout(&mut self, _: Time) {
        self.back = self.first.take();
    }
    fn poll_timeout(&self) -> Option<Time> {
        self.first.map(|_| Time::from_millis(5))
    }
    fn poll_transmit(&mut self, _: Time, bytes: &mut Vec<u8>) -> Option<Destination> {
        let to = self.back.take()?;
        bytes.resize(self.len, self.received.len() as u8);
        Some(if to == u16::MAX { Destination::Neighbours } else { Destination::Neighbour(to) })
    }
    fn heap_bytes(&self) -> usize {
        0
    }
}

fn echo(first: u16, len: usize, loss: f64) -> Graph<Echo> {
    let adjacency = Adjacency::new(&Topology::tree(4, 3), equal(loss)).unwrap();
    Graph::new(adjacency, 1, |node| Echo {
        first: (node == 0).then_some(first),
        len,
        back: None,
        received: Vec::new(),
    })
}

#[test]
fn a_packet_reaches_the_neighbour_it_is_sent_to() {
    let mut graph = echo(1, 1, 0.0);
    graph.run_until(Time::from_secs(1)).unwrap();
    let received: Vec<_> = graph.nodes().map(|node| node.received.clone()).collect();
    let at = Time::from_millis;
    // The child has one neighbour, and is the second one of the root.
    assert_eq!(received[2], [(at(6), 0, 0), (at(8), 0, 1), (at(10), 0, 2)]);
    assert_eq!(received[0], [(at(7), 1, 1), (at(9), 1, 2), (at(11), 1, 3)]);
    assert!(received[1].is_empty() && received[3].is_empty());
    // All three change the one packet they are sent.
    let mut graph = echo(u16::MAX, 1, 0.0);
    graph.run_until(at(6)).unwrap();
    assert!(graph.nodes().skip(1).all(|node| node.received == [(at(6), 0, 0)]));
}

#[test]
fn a_packet_that_cannot_be_sent_is_counted() {
    for (first, len, loss, refused, lost) in
        [(3, 1, 0.0, 1, 0), (0, MAX_LEN + 1, 0.0, 1, 0), (0, MAX_LEN, 100.0, 0, 1)]
    {
        let mut graph = echo(first, len, loss);
        graph.run_until(Time::from_secs(1)).unwrap();
        let totals = graph.totals();
        assert_eq!((totals.refused, totals.lost, totals.hops), (refused, lost, 0));
        assert_eq!(graph.in_flight(), 0);
    }
}

/// A node that misbehaves in one of two ways.
struct Bad(bool);

impl GraphNode for Bad {
    fn handle_packet(&mut self, _: Time, _: u16, _: &mut [u8]) {}
    fn handle_timeout(&mut self, _: Time) {}
    fn poll_timeout(&self) -> Option<Time> {
        Some(Time::from_secs(2))
    }
    fn poll_transmit(&mut self, _: Time, _: &mut Vec<u8>) -> Option<Destination> {
        self.0.then_some(Destination::Neighbours)
    }
    fn heap_bytes(&self) -> usize {
        0
    }
}

#[test]
fn a_graph_that_runs_endlessly_is_an_error() {
    let run = |floods, budget: Budget| {
        let adjacency = Adjacency::new(&Topology::line(2), equal(0.0)).unwrap();
        let mut graph = Graph::new(adjacency, 1, |_| Bad(floods));
        graph.set_budget(budget);
        graph.run_until(Time::from_secs(10)).unwrap_err()
    };
    let budget = Budget { events: 5_000, per_instant: 100, burst: 50 };
    assert!(matches!(run(false, budget), Error::Spin { max: 100, .. }));
    assert!(matches!(run(true, budget), Error::Flood { max: 50, .. }));
    let mut graph = flood(&Topology::line(100), equal(0.0), 7, 1);
    graph.set_budget(Budget { events: 50, ..Budget::default() });
    let error = graph.run_until(Time::from_secs(10)).unwrap_err();
    assert!(matches!(error, Error::Budget { max: 50, .. }), "{error}");
}

/// Of 100,000 nodes, each takes 40 bytes besides itself, 12 for each link, and what is in flight.
#[test]
fn memory_is_proportional_to_nodes_and_links() {
    let topology = Topology::disk(100_000, 12.0, &mut SplitMix::new(1)).largest_part();
    let mut graph = flood(&topology, equal(0.0), 0, 1);
    graph.run_until(Time::from_secs(60)).unwrap();
    let nodes = topology.nodes() as usize;
    assert_eq!(graph.totals().sent, nodes as u64);
    let memory = graph.memory();
    assert_eq!(memory.nodes, nodes * (size_of::<Flood>() + 40));
    assert_eq!(memory.links, 12 * graph.adjacency().links() + 4 * (nodes + 1));
    assert!(memory.events + memory.packets < 40 * nodes, "{memory:?}");
}
