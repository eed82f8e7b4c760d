//! Routers of the mesh at scale. Arguments: the topology (`line`, `grid`, `tree`, `planar`, `disk`, `small-world` or
//! `power-law`), the number of routers, the seconds to simulate, and the number of shards, which run on threads (disk,
//! 1,000, 60 and 1). Links have 1 ms. It prints what the routers have, and what becomes of 200 packets
//! between random pairs, as time passes; and in the end what it had resident a router at most.

use ringway_mesh::config::{Config, Limits};
use ringway_sansio::{Duration, SplitMix, Time};
use ringway_sim::graph::{
    Adjacency, Graph, Identities, LinkModel, MeshNode, Oracle, Topology, Trial,
};
use std::error::Error;
use std::io::Write;
use std::time::Instant;

/// It returns the memory of the first second, which is several times that of later ones, to the system.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn topology(kind: &str, nodes: u32) -> Result<Topology, String> {
    let mut random = SplitMix::new(1);
    Ok(match kind {
        "line" => Topology::line(nodes),
        "grid" => Topology::grid(nodes.isqrt(), nodes.isqrt()),
        "tree" => Topology::tree(nodes, 4),
        "planar" => Topology::planar(nodes, &mut random),
        "disk" => Topology::disk(nodes, 12.0, &mut random),
        "small-world" => Topology::small_world(nodes, 12, 0.1, &mut random),
        "power-law" => Topology::power_law(nodes, 3, &mut random),
        other => return Err(format!("no topology {other:?}")),
    })
}

/// Returns a field of the process's status in octets, as Linux reports it.
fn status(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let kind = words.next().unwrap_or_else(|| "disk".into());
    let mut number = |otherwise: u32| words.next().map_or(Ok(otherwise), |word| word.parse());
    let (nodes, seconds, shards) = (number(1_000)?, number(60)?, number(1)?);
    let begun = Instant::now();
    let topology = topology(&kind, nodes)?.largest_part();
    let adjacency = Adjacency::new(&topology, |_, _| LinkModel::new(Duration::from_millis(1)))?;
    drop(topology);
    let nodes = adjacency.nodes();
    let identities = Identities::draw(nodes, 1);
    let limits = Limits {
        neighbours: 4_096,
        output: 0,
        contacts: 96,
        marks: 128,
        pending: 32,
        sessions: 16,
        ..Limits::default()
    };
    let config = Config { limits: limits.into(), extension_bits: 0, ..Config::default() };
    let before = status("VmRSS");
    let mut graph = Graph::<MeshNode>::idle_in_shards(adjacency, 1, shards as usize);
    for number in 0..nodes {
        if let Some(node) = MeshNode::new(&config, &identities, number, 0, 1, Time::ZERO) {
            graph.start(number, node)?;
        }
    }
    let mut random = SplitMix::new(7);
    let mut out = std::io::stdout();
    writeln!(out, "{kind}: {nodes} routers, {:.1} s to build", begun.elapsed().as_secs_f64())?;
    writeln!(
        out,
        "   s  delivered stretch  wrong  contacts  B/s each  events   heap each  RSS each  wall s"
    )?;
    let (mut last, mut last_bytes) = (0, 0);
    for second in [1, 2, 3, 5, 10, 20, 30, 60, 100, 200, 300, 400, 500, 600] {
        if second > seconds {
            break;
        }
        graph.run_until(Time::from_secs(u64::from(second)))?;
        let pairs = Oracle::of(&graph).pairs(20, 10, 2, &mut random);
        let totals = graph.totals();
        let octets = totals.sent_bytes + totals.sent * 62;
        let rate = (octets - last_bytes) / u64::from(second - last) / u64::from(nodes);
        (last, last_bytes) = (second, octets);
        let mut trial = Trial::new(&graph);
        trial.send_all(&mut graph, &pairs, 64, Duration::from_millis(100))?;
        graph.run_until(graph.now() + Duration::from_millis(800))?;
        let outcome = trial.outcome(&mut graph)?;
        let contacts: usize =
            graph.nodes().map(|node| node.router().overlay().contacts().ids().len()).sum();
        let heap: usize = graph.memory().heap;
        let rss = status("VmRSS").zip(before).map_or(0, |(now, before)| now - before.min(now));
        writeln!(
            out,
            "{second:>4}  {:>8.3} {:>7.2} {:>6} {:>9.1} {rate:>9} {:>8} {:>10} {:>9} {:>7.1}",
            outcome.delivery(),
            outcome.stretch(),
            wrong(&graph),
            contacts as f64 / f64::from(nodes),
            totals.events,
            heap / nodes as usize,
            rss / u64::from(nodes),
            begun.elapsed().as_secs_f64(),
        )?;
    }
    let peak = status("VmHWM").zip(before).map_or(0, |(peak, before)| peak - before.min(peak));
    writeln!(out, "at most {} resident a router", peak / u64::from(nodes))?;
    Ok(())
}

/// Returns how many routers do not know the next one on the line, in either direction.
fn wrong(graph: &Graph<MeshNode>) -> usize {
    let mut routers: Vec<_> = graph.nodes().map(MeshNode::router).collect();
    routers.sort_unstable_by_key(|router| router.id());
    let knows = |one: usize, other: usize| {
        routers[one].overlay().contacts().get(routers[other].id()).is_some()
    };
    (1..routers.len())
        .map(|at| usize::from(!knows(at - 1, at)) + usize::from(!knows(at, at - 1)))
        .sum()
}
