//! Routers of the mesh that all move a step at a time, as `interop/mesh/run movement` moves them: in a square of 1,000 m
//! the nearest pairs have links of 1 ms, and every ten seconds each router is 30 m further in a random direction. Before
//! the next step random pairs that are connected and not neighbours send a packet, which is answered; both must have
//! arrived within a second. `MESH_STEPS=N` takes N seeds.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use ringway_mesh::config::Config;
use ringway_sansio::{Duration, Random, SplitMix, Time};
use ringway_sim::graph::{
    Adjacency, DataNode, Graph, Identities, LinkModel, MeshNode, Oracle, Pair, Topology,
};
use std::collections::{BTreeMap, BTreeSet};

const NODES: usize = 50;
const LINKS: usize = 150;
const STEPS: usize = 30;
const SIDE: f64 = 1_000.0;
const STEP: f64 = 30.0;
const EVERY: Duration = Duration::from_secs(10);
const PINGS: usize = 200;
const OVER: Duration = Duration::from_secs(2);
const DEADLINE: Duration = Duration::from_secs(1);
/// Distance between two looks at what has arrived.
const LOOK: Duration = Duration::from_millis(10);

type Links = BTreeSet<[u32; 2]>;

/// Returns the pairs with the least distance.
fn nearest(positions: &[[f64; 2]], count: usize) -> Links {
    let mut pairs = Vec::new();
    for (i, [x, y]) in positions.iter().enumerate() {
        for (j, [u, v]) in positions.iter().enumerate().take(i) {
            pairs.push(((x - u).hypot(y - v), [j as u32, i as u32]));
        }
    }
    pairs.sort_by(|one, other| one.0.total_cmp(&other.0));
    pairs.into_iter().take(count).map(|pair| pair.1).collect()
}

fn unit(random: &mut SplitMix) -> f64 {
    random.next_u64() as f64 / u64::MAX as f64
}

/// Returns the links of each step.
fn walk(random: &mut SplitMix) -> Vec<Links> {
    loop {
        let position = |random: &mut SplitMix| [SIDE * unit(random), SIDE * unit(random)];
        let mut positions: Vec<_> = (0..NODES).map(|_| position(random)).collect();
        let mut all = vec![nearest(&positions, LINKS)];
        let topology = Topology::new(NODES as u32, all[0].iter().copied());
        if topology.largest_part().nodes() as usize != NODES {
            continue;
        }
        for _ in 0..STEPS {
            for position in &mut positions {
                let angle = std::f64::consts::TAU * unit(random);
                position[0] += STEP * angle.cos();
                position[1] += STEP * angle.sin();
            }
            all.push(nearest(&positions, LINKS));
        }
        return all;
    }
}

/// Sends a packet for each pair and an answer to each that arrives; returns which came back in time.
fn ping(graph: &mut Graph<MeshNode>, pairs: &[Pair]) -> Vec<bool> {
    let begin = graph.now();
    let each = OVER / pairs.len().max(1) as u32;
    let mut sent: BTreeMap<u32, Time> = BTreeMap::new();
    let mut back = vec![false; pairs.len()];
    let offset = pairs.len() as u32;
    while graph.now() < begin + OVER + DEADLINE {
        let now = graph.now();
        for (number, pair) in (0..).zip(pairs) {
            if begin + each * number <= now && !sent.contains_key(&number) {
                sent.insert(number, now);
                graph
                    .with_node(pair.from, |node, now| node.send_data(now, pair.to, number, 64))
                    .unwrap();
            }
        }
        graph.run_until(now + LOOK).unwrap();
        for node in 0..graph.len() {
            while let Some(Some(delivery)) =
                graph.with_node(node, |node, _| node.poll_delivery()).unwrap()
            {
                let number = delivery.number;
                if let Some(pair) = pairs.get(number as usize) {
                    let answer = |node: &mut MeshNode, now| {
                        node.send_data(now, pair.from, offset + number, 64)
                    };
                    graph.with_node(pair.to, answer).unwrap();
                } else if let Some(arrived) = back.get_mut((number - offset) as usize) {
                    *arrived = sent
                        .get(&(number - offset))
                        .is_some_and(|at| delivery.at.since(*at) <= DEADLINE);
                }
            }
        }
    }
    back
}

/// Returns the share of answered pings of each step, in per cent.
fn shares(seed: u64) -> Vec<f64> {
    let mut random = SplitMix::new(seed);
    let walk = walk(&mut random);
    let union: Links = walk.iter().flatten().copied().collect();
    let topology = Topology::new(NODES as u32, union.iter().copied());
    let adjacency = Adjacency::new(&topology, |_, _| LinkModel::new(Duration::from_millis(1)));
    let identities = Identities::draw(NODES as u32, seed);
    let config = Config { extension_bits: 0, ..Config::default() };
    let mut graph = Graph::<MeshNode>::idle(adjacency.unwrap(), seed);
    for [a, b] in union.difference(&walk[0]) {
        graph.cut(*a, *b).unwrap();
    }
    for number in 0..NODES as u32 {
        let node = MeshNode::new(&config, &identities, number, 0, seed, Time::ZERO).unwrap();
        graph.start(number, node).unwrap();
    }
    graph.run_until(Time::from_secs(30)).unwrap();
    let mut shares = Vec::new();
    for step in walk.windows(2) {
        for [a, b] in step[0].difference(&step[1]) {
            graph.cut(*a, *b).unwrap();
        }
        for [a, b] in step[1].difference(&step[0]) {
            graph.mend(*a, *b).unwrap();
        }
        graph.run_until(graph.now() + EVERY).unwrap();
        let pairs = Oracle::of(&graph).pairs(PINGS as u32, 1, 2, &mut random);
        let back = ping(&mut graph, &pairs);
        shares.push(100.0 * back.iter().filter(|b| **b).count() as f64 / back.len() as f64);
    }
    shares
}

/// Each end of a session has a route of its own, and a reply by one that has broken since is sent again by the route by which
/// it was asked for. Without that 91 to 96 % arrive, fewer the longer the routers have moved.
#[test]
fn pings_are_answered_while_all_routers_move() {
    let seeds = std::env::var("MESH_STEPS").ok().and_then(|n| n.parse().ok()).unwrap_or(2);
    for seed in 1..=seeds {
        let shares = shares(seed);
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        let worst = shares.iter().copied().fold(100.0, f64::min);
        println!("seed {seed}: {mean:.1} % in {STEPS} steps, worst {worst:.1} %");
        assert!(mean >= 99.0 && worst >= 95.0, "seed {seed}: {mean:.1} %: {shares:?}");
    }
}
