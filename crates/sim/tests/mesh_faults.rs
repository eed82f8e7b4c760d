//! Routers of the mesh through random faults, and after them: whatever happened, there is one ring and everybody is
//! reached. In half of the seeds some routers are hostile while there are faults. A seed that fails is run alone with
//! `MESH_FAULTS=SEED cargo test -p ringway-sim --test mesh_faults`.

#[path = "mesh_checks/mod.rs"]
mod checks;

use ringway_link::Chance;
use ringway_mesh::config::{Config, Limits};
use ringway_sansio::{Duration, SplitMix, Time};
use ringway_sim::graph::faults::{Churn, Outages, Skew};
use ringway_sim::graph::{
    Adjacency, Attack, FaultRates, Faults, Graph, Identities, LinkModel, Member, MeshNode, Oracle,
    Topology, Trial,
};

/// Time of the faults, of the calm before and of the calm after, in seconds.
const BUILD: u64 = 30;
const FAULTS: u64 = 90;
const CALM: u64 = 60;
/// Time of the calm after hostile routers: the longest interval of upkeep is in it.
const LONG_CALM: u64 = 150;
/// Seeds of a test without `MESH_FAULTS` (`make soak` has thousands), and those after which routers once did not find each other again.
const SEEDS: u64 = 30;
const MENDED: [u64; 5] = [3_709, 4_364, 4_507, 4_814, 5_370];
/// Time between two looks at what must always hold, in seconds.
const LOOK: u64 = 5;

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

/// Returns whether some routers are hostile: in every second block of 32 seeds.
fn is_besieged(seed: u64) -> bool {
    seed >> 5 & 1 == 1
}

/// Returns the attack of a node: that of the seed for one node in ten.
fn attack(seed: u64, node: u32) -> Option<Attack> {
    let is_hostile = is_besieged(seed) && (u64::from(node) + seed).is_multiple_of(10);
    is_hostile.then(|| Attack::ALL[seed as usize % Attack::ALL.len()])
}

/// What a seed needs to make a router.
struct Makers {
    config: Config,
    identities: std::sync::Arc<Identities>,
    seed: u64,
}

impl Makers {
    fn node(&self, number: u32, life: u32, now: Time) -> Member {
        let Makers { config, identities, seed } = self;
        let node = MeshNode::new(config, identities, number, life, *seed, now);
        let Some((node, identity)) = node.zip(identities.get(number)) else {
            panic!("no identity of node {number}")
        };
        match attack(*seed, number) {
            Some(attack) => {
                let (from, until) = (Time::from_secs(BUILD), Time::from_secs(BUILD + FAULTS));
                Member::hostile(node, attack, identity, from, *seed).until(until)
            }
            None => Member::honest(node),
        }
    }
}

/// Returns what is wrong during and after the faults of a seed.
fn run(seed: u64) -> Result<(), String> {
    let text = |error: ringway_sim::Error| error.to_string();
    let link = LinkModel::new(Duration::from_millis(1));
    let adjacency = Adjacency::new(&topology(seed), |_, _| link).map_err(text)?;
    let loss = Chance::percent(30.0).map_err(|error| error.to_string())?;
    let schedule = rates(seed, loss).draw(&adjacency, seed).map_err(text)?;
    let nodes = adjacency.nodes();
    let limits = Limits { output: 512, ..Limits::default() };
    let config = Config { limits: limits.into(), extension_bits: 0, ..Config::default() };
    let makers = Makers { config, identities: Identities::draw(nodes, seed), seed };
    let mut graph = Graph::<Member>::idle(adjacency, seed);
    for number in 0..nodes {
        graph.start(number, makers.node(number, 0, Time::ZERO)).map_err(text)?;
    }
    let mut faults = Faults::new(schedule);
    let mut random = SplitMix::new(seed);
    let mut budget = checks::Budget::default();
    let calm = if is_besieged(seed) { LONG_CALM } else { CALM };
    for second in (0..=BUILD + FAULTS + calm).step_by(LOOK as usize) {
        let make = |number, life, now| makers.node(number, life, now);
        faults.run_until(&mut graph, Time::from_secs(second), make).map_err(text)?;
        checks::state_is_bounded(&graph, &limits)?;
        checks::routes_of_one_link_lead_to_neighbours(&graph)?;
        checks::nothing_loops(&graph, &mut random)?;
        // A hostile router has no budget, and who is asked answers.
        if !is_besieged(seed) {
            budget.is_held(&graph)?;
        }
    }
    if graph.nodes().count() as u32 != nodes {
        return Err(format!("{} of {nodes} run", graph.nodes().count()));
    }
    checks::there_is_one_ring(&graph)?;
    checks::it_winds_once(&graph)?;
    let pairs = Oracle::of(&graph).pairs(20, 10, 1, &mut SplitMix::new(seed));
    let mut trial = Trial::new(&graph);
    trial.send_all(&mut graph, &pairs, 64, Duration::from_secs(4)).map_err(text)?;
    graph.run_until(graph.now() + Duration::from_secs(4)).map_err(text)?;
    checks::everything_arrives_once(&trial.outcome(&mut graph).map_err(text)?)
}

#[test]
fn whatever_happened_everybody_is_reached_afterwards() {
    let seeds: Vec<u64> = match std::env::var("MESH_FAULTS") {
        Ok(range) => match range.split_once("..") {
            Some((from, to)) => (from.parse().unwrap()..to.parse().unwrap()).collect(),
            None => vec![range.parse().unwrap()],
        },
        Err(_) => (0..SEEDS).chain(MENDED).collect(),
    };
    let failed: Vec<String> = seeds
        .iter()
        .filter_map(|&seed| {
            let error = run(seed).err()?;
            let again = "cargo test --release -p ringway-sim --test mesh_faults";
            Some(format!("MESH_FAULTS={seed} {again}    # {error}"))
        })
        .collect();
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), seeds.len(), failed.join("\n"));
}
