//! Routers of the mesh through random faults, and after them: whatever happened, there is one ring and everybody is
//! reached. A seed that fails is run alone with `MESH_FAULTS=SEED cargo test -p ringway-sim --test mesh_faults`.

use ringway_link::Chance;
use ringway_mesh::config::{Config, Limits};
use ringway_sansio::{Duration, SplitMix, Time};
use ringway_sim::graph::faults::{Churn, Outages, Skew};
use ringway_sim::graph::{
    Adjacency, FaultRates, Faults, Graph, Identities, LinkModel, MeshNode, Oracle, Topology, Trial,
};

/// Time of the faults, of the calm before and of the calm after, in seconds.
const BUILD: u64 = 30;
const FAULTS: u64 = 90;
const CALM: u64 = 60;

fn outages(per_minute: f64, median_s: u64) -> Outages {
    Outages { per_minute, median: Duration::from_secs(median_s) }
}

fn rates(seed: u64, loss: Chance) -> FaultRates {
    let is = |bit: u64| seed >> bit & 1 == 1;
    let churn = Churn { session: Duration::from_secs(120), absence: Duration::from_secs(10) };
    let skew = Skew { ahead: Duration::from_secs(100), drift_ppm: 200 };
    FaultRates {
        from: Time::from_secs(BUILD),
        until: Time::from_secs(BUILD + FAULTS),
        crashes: outages(if is(0) { 4.0 } else { 0.0 }, 5),
        flaps: outages(if is(1) { 20.0 } else { 2.0 }, 4),
        losses: (outages(10.0, 20), loss),
        splits: outages(if is(2) { 1.0 } else { 0.0 }, 20),
        churn: is(3).then_some(churn),
        skew: is(4).then_some(skew),
    }
}

fn topology(seed: u64) -> Topology {
    let mut random = SplitMix::new(seed);
    let topology = match seed % 5 {
        0 => Topology::grid(6, 6),
        1 => Topology::line(24),
        2 => Topology::tree(40, 3),
        3 => Topology::small_world(40, 4, 0.2, &mut random),
        _ => Topology::disk(60, 7.0, &mut random),
    };
    topology.largest_part()
}

/// Returns what is wrong after the faults of a seed.
fn run(seed: u64) -> Result<(), String> {
    let text = |error: ringway_sim::Error| error.to_string();
    let link = LinkModel::new(Duration::from_millis(1));
    let adjacency = Adjacency::new(&topology(seed), |_, _| link).map_err(text)?;
    let loss = Chance::percent(30.0).map_err(|error| error.to_string())?;
    let schedule = rates(seed, loss).draw(&adjacency, seed).map_err(text)?;
    let nodes = adjacency.nodes();
    let identities = Identities::draw(nodes, seed);
    let limits = Limits { output: 512, ..Limits::default() };
    let config = Config { limits, extension_bits: 0, ..Config::default() };
    let node = |node, life, now| MeshNode::new(&config, &identities, node, life, seed, now);
    let mut graph = Graph::<MeshNode>::idle(adjacency, seed);
    for number in 0..nodes {
        let started = node(number, 0, Time::ZERO).ok_or("no identity")?;
        graph.start(number, started).map_err(text)?;
    }
    let mut faults = Faults::new(schedule);
    let end = Time::from_secs(BUILD + FAULTS + CALM);
    let restart = |number, life, now| match node(number, life, now) {
        Some(node) => node,
        None => panic!("no identity of node {number}"),
    };
    faults.run_until(&mut graph, end, restart).map_err(text)?;

    let mut routers: Vec<_> = graph.nodes().map(MeshNode::router).collect();
    if routers.len() as u32 != nodes {
        return Err(format!("{} of {nodes} run", routers.len()));
    }
    routers.sort_unstable_by_key(|router| router.id());
    let knows = |one: usize, other: usize| {
        routers[one].overlay().contacts().get(routers[other].id()).is_some()
    };
    let wrong: usize = (1..routers.len())
        .map(|at| usize::from(!knows(at - 1, at)) + usize::from(!knows(at, at - 1)))
        .sum();
    let ends = routers.iter().filter(|router| router.overlay().partner().is_some()).count();
    let heap = routers.iter().map(|router| router.heap_bytes()).max().unwrap_or(0);

    let mut random = SplitMix::new(seed);
    let pairs = Oracle::of(&graph).pairs(20, 10, 1, &mut random);
    let mut trial = Trial::new(&graph);
    trial.send_all(&mut graph, &pairs, 64, Duration::from_secs(4)).map_err(text)?;
    graph.run_until(graph.now() + Duration::from_secs(4)).map_err(text)?;
    let outcome = trial.outcome(&mut graph).map_err(text)?;
    if wrong > 0 || outcome.delivered < outcome.sent || outcome.duplicates > 0 || heap > 200_000 {
        let (sent, delivered) = (outcome.sent, outcome.delivered);
        return Err(format!(
            "{wrong} wrong neighbours, {ends} ends, {delivered} of {sent} delivered, \
             {heap} octets at most"
        ));
    }
    Ok(())
}

#[test]
fn whatever_happened_everybody_is_reached_afterwards() {
    let seeds: Vec<u64> = match std::env::var("MESH_FAULTS") {
        Ok(range) => match range.split_once("..") {
            Some((from, to)) => (from.parse().unwrap()..to.parse().unwrap()).collect(),
            None => vec![range.parse().unwrap()],
        },
        Err(_) => (0..64).collect(),
    };
    let failed: Vec<String> = seeds
        .iter()
        .filter_map(|&seed| run(seed).err().map(|error| format!("MESH_FAULTS={seed}: {error}")))
        .collect();
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), seeds.len(), failed.join("\n"));
}
