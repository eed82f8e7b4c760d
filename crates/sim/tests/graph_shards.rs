//! Graphs whose nodes are in several shards, which run on threads: every run is the same.

#![allow(clippy::unwrap_used)]

use ringway_link::{Chance, Rate};
use ringway_mesh::config::{Config, Limits};
use ringway_sansio::{Duration, SplitMix, Time};
use ringway_sim::graph::faults::{Outages, Skew};
use ringway_sim::graph::{
    Adjacency, Counters, Destination, FaultRates, Faults, Flood, Graph, GraphNode, Identities,
    LinkModel, MeshNode, Oracle, Origin, Outcome, Topology, Totals, Trial,
};
use ringway_sim::{Budget, Error};

const SHARDS: [usize; 3] = [1, 2, 3];

/// What is compared of two runs.
#[derive(Debug, PartialEq)]
struct Run {
    totals: Totals,
    counters: Vec<Option<Counters>>,
    in_flight: u64,
}

fn compared<N: GraphNode>(graph: &Graph<N>) -> Run {
    let counters = (0..graph.len()).map(|node| graph.counters(node)).collect();
    Run { totals: graph.totals(), counters, in_flight: graph.in_flight() }
}

fn lossy(percent: f64) -> LinkModel {
    let loss = Chance::percent(percent).unwrap();
    LinkModel { loss, ..LinkModel::new(Duration::from_millis(1)) }
}

/// A delay of 1 to 9 ms that depends on both ends and on the direction.
fn unequal(from: u32, to: u32) -> LinkModel {
    let ms = 1 + u64::from(from.wrapping_mul(31) ^ to.wrapping_mul(17)) % 9;
    LinkModel { delay: Duration::from_millis(ms), ..lossy(5.0) }
}

fn queued(from: u32, to: u32) -> LinkModel {
    let max_wait = Duration::from_millis(3);
    LinkModel { rate: Rate(2_000_000), max_wait, ..unequal(from, to) }
}

fn rates() -> FaultRates {
    let outages = |per_minute, secs| Outages { per_minute, median: Duration::from_secs(secs) };
    FaultRates {
        crashes: outages(60.0, 3),
        flaps: outages(120.0, 3),
        losses: (outages(60.0, 5), Chance::percent(50.0).unwrap()),
        splits: outages(10.0, 3),
        skew: Some(Skew { ahead: Duration::from_secs(9), drift_ppm: 200 }),
        ..FaultRates::new(Time::from_secs(2), Time::from_secs(12))
    }
}

/// Routers through faults, and data between them in the end.
fn mesh(
    topology: &Topology,
    model: impl Fn(u32, u32) -> LinkModel,
    shards: usize,
) -> (Run, Outcome) {
    let adjacency = Adjacency::new(topology, model).unwrap();
    let schedule = rates().draw(&adjacency, 5).unwrap();
    let identities = Identities::draw(adjacency.nodes(), 5);
    let limits = Limits { output: 512, ..Limits::default() };
    let config = Config { limits: limits.into(), extension_bits: 0, ..Config::default() };
    let node = |node, life, now| MeshNode::new(&config, &identities, node, life, 5, now).unwrap();
    let mut graph = Graph::<MeshNode>::idle_in_shards(adjacency, 5, shards);
    for number in 0..graph.len() {
        graph.start(number, node(number, 0, Time::ZERO)).unwrap();
    }
    Faults::new(schedule).run_until(&mut graph, Time::from_secs(14), node).unwrap();
    let pairs = Oracle::of(&graph).pairs(10, 10, 1, &mut SplitMix::new(5));
    let mut trial = Trial::new(&graph);
    trial.send_all(&mut graph, &pairs, 64, Duration::from_millis(77)).unwrap();
    let in_flight = graph.in_flight();
    graph.run_until(Time::from_secs(15)).unwrap();
    let outcome = trial.outcome(&mut graph).unwrap();
    (Run { in_flight, ..compared(&graph) }, outcome)
}

#[test]
fn routers_do_the_same_in_any_number_of_shards() {
    let mut random = SplitMix::new(5);
    let disk = Topology::disk(150, 9.0, &mut random).largest_part();
    let small_world = Topology::small_world(60, 6, 0.2, &mut random);
    let runs = [
        SHARDS.map(|shards| mesh(&disk, |_, _| lossy(2.0), shards)),
        SHARDS.map(|shards| mesh(&small_world, unequal, shards)),
        SHARDS.map(|shards| mesh(&small_world, queued, shards)),
    ];
    for [one, others @ ..] in &runs {
        let (Run { totals, in_flight, .. }, outcome) = one;
        assert!(totals.lost > 300 && totals.undelivered > 300, "{totals:?}");
        assert!(*in_flight > 0 && outcome.delivered > 20, "{outcome:?}");
        for other in others {
            assert!(one == other, "{one:?}\n{other:?}");
        }
    }
    assert!(runs[2][0].0.totals.dropped > 0);
}

#[test]
fn floods_are_the_same_however_often_they_are_interrupted() {
    let topology = Topology::disk(400, 9.0, &mut SplitMix::new(2)).largest_part();
    let models = [|_, _| lossy(3.0), unequal, queued];
    let run = |model: fn(u32, u32) -> LinkModel, shards, step| {
        let adjacency = Adjacency::new(&topology, model).unwrap();
        let every = Duration::from_micros(2_300);
        let mut graph = Graph::idle_in_shards(adjacency, 2, shards);
        for node in 0..graph.len() {
            let first = Time::from_millis(1 + u64::from(node));
            let origin = (node % 100 == 0).then_some(Origin { first, every, packets: 5 });
            graph.start(node, Flood::new(node, 60, u16::MAX, origin)).unwrap();
        }
        let middle = Time::from_millis(304);
        while graph.now() < middle {
            graph.run_until((graph.now() + step).min(middle)).unwrap();
        }
        let before = compared(&graph);
        graph.run_until(Time::from_secs(2)).unwrap();
        let received: Vec<u32> = graph.nodes().map(Flood::received).collect();
        (before, compared(&graph), received)
    };
    for model in models {
        let one = run(model, 1, Duration::from_secs(1));
        assert!(one.0.in_flight > 0 && one.1.in_flight == 0);
        for shards in SHARDS {
            for step in [Duration::from_micros(370), Duration::from_millis(1)] {
                assert!(one == run(model, shards, step), "{shards} {step:?}");
            }
        }
    }
}

#[test]
fn more_shards_than_nodes_are_of_no_harm() {
    for nodes in 0..5 {
        let adjacency = Adjacency::new(&Topology::ring(nodes), |_, _| lossy(0.0)).unwrap();
        let mut graph = Graph::<Flood>::idle_in_shards(adjacency, 1, 7);
        let origin = Origin { first: Time::ZERO, every: Duration::ZERO, packets: 1 };
        for node in 0..nodes {
            graph.start(node, Flood::new(node, 20, 9, Some(origin))).unwrap();
        }
        graph.run_until(Time::from_secs(1)).unwrap();
        let links = graph.adjacency().links() as u64;
        assert_eq!((graph.len(), graph.totals().hops), (nodes, u64::from(nodes) * links));
        assert_eq!(graph.totals().refused, if nodes < 2 { nodes.into() } else { 0 });
        assert_eq!(graph.now(), Time::from_secs(1));
        let unknown = Error::Unknown { what: "node", index: nodes };
        assert_eq!(graph.stop(nodes).unwrap_err(), unknown);
        assert_eq!(graph.set_clock(nodes, Time::ZERO, 0), Err(unknown));
    }
}

/// Sends to its neighbours each millisecond, and fails in some way after a second.
struct Failing {
    fault: Option<&'static str>,
    next: Time,
    is_due: bool,
}

impl GraphNode for Failing {
    fn handle_packet(&mut self, _: Time, _: u16, _: &mut [u8]) {}
    fn handle_timeout(&mut self, now: Time) {
        let is_late = now >= Time::from_secs(1);
        assert!(!is_late || self.fault != Some("panic"), "as planned");
        self.next = now + Duration::from_millis(u64::from(!is_late || self.fault != Some("spin")));
        self.is_due = true;
    }
    fn poll_timeout(&self) -> Option<Time> {
        Some(self.next)
    }
    fn poll_transmit(&mut self, _: Time, bytes: &mut Vec<u8>) -> Option<Destination> {
        bytes.push(0);
        core::mem::take(&mut self.is_due).then_some(Destination::Neighbours)
    }
    fn heap_bytes(&self) -> usize {
        0
    }
}

fn failing(fault: &'static str, at: u32, shards: usize, budget: Budget) -> Result<(), Error> {
    let adjacency = Adjacency::new(&Topology::ring(9), |_, _| lossy(0.0)).unwrap();
    let mut graph = Graph::idle_in_shards(adjacency, 1, shards);
    graph.set_budget(budget);
    for node in 0..9 {
        let fault = (node == at).then_some(fault);
        graph.start(node, Failing { fault, next: Time::ZERO, is_due: false }).unwrap();
    }
    graph.run_until(Time::from_secs(2))
}

#[test]
fn an_error_in_any_shard_ends_the_run() {
    let budget = Budget { per_instant: 100, ..Budget::default() };
    let small = Budget { events: 20_000, ..budget };
    for shards in [1, 2, 3] {
        for at in 0..9 {
            let error = failing("spin", at, shards, budget).unwrap_err();
            let expected = Error::Spin { node: at.to_string(), max: 100, at: Time::from_secs(1) };
            assert_eq!(error, expected);
        }
        assert_eq!(failing("none", 0, shards, budget), Ok(()));
        let error = failing("none", 0, shards, small).unwrap_err();
        assert!(matches!(error, Error::Budget { max: 20_000, .. }), "{error}");
    }
}

#[test]
fn a_panic_in_any_shard_ends_the_run() {
    for at in [0, 4, 8] {
        let run = move || failing("panic", at, 3, Budget::default());
        assert!(std::panic::catch_unwind(run).is_err());
    }
}
