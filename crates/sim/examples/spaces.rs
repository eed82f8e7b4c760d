//! The ring and the XOR metric side by side, on the same graphs, identities and pairs. Arguments: the topology (`grid`,
//! `disk` or `small-world`; all) and the number of routers (300, 1,000 and 3,000). Links have 1 ms. All routers start at
//! once; after 330 s one in ten stops. It prints the share of 200 packets between random pairs that arrive within 0.8 s,
//! the stretch, and octets a second that a router sends, with Ethernet headers.

use ringway_mesh::config::{Config, Limits};
use ringway_mesh::metric::{Space, Xor};
use ringway_mesh::{Ring, Router};
use ringway_sansio::{Duration, Random, SplitMix, Time};
use ringway_sim::graph::data::Outcome;
use ringway_sim::graph::{
    Adjacency, Graph, Identities, LinkModel, MeshNode, Oracle, Topology, Trial,
};
use std::error::Error;
use std::io::Write;

/// Begin and end of the time of rest, and time of the crashes, in seconds.
const REST: [u64; 2] = [200, 320];
const CRASH: u64 = 330;

fn topology(kind: &str, nodes: u32) -> Result<Topology, String> {
    let mut random = SplitMix::new(1);
    Ok(match kind {
        "grid" => Topology::grid(nodes.isqrt(), nodes.isqrt()),
        "disk" => Topology::disk(nodes, 12.0, &mut random),
        "small-world" => Topology::small_world(nodes, 12, 0.1, &mut random),
        other => return Err(format!("no topology {other:?}")),
    }
    .largest_part())
}

struct Run<S: Space + Send> {
    graph: Graph<MeshNode<S>>,
    random: SplitMix,
    /// Octets by the last look, and its time.
    looked: (u64, Time),
}

impl<S: Space + Send> Run<S> {
    fn start(topology: &Topology) -> Result<Self, Box<dyn Error>> {
        let adjacency = Adjacency::new(topology, |_, _| LinkModel::new(Duration::from_millis(1)))?;
        let nodes = adjacency.nodes();
        let identities = Identities::draw(nodes, 1);
        let limits = Limits { output: 512, ..Limits::default() };
        let config = Config { limits: limits.into(), extension_bits: 0, ..Config::default() };
        let mut graph = Graph::<MeshNode<S>>::idle(adjacency, 1);
        for number in 0..nodes {
            let node = MeshNode::new(&config, &identities, number, 0, 1, Time::ZERO);
            graph.start(number, node.ok_or("no identity")?)?;
        }
        Ok(Run { graph, random: SplitMix::new(7), looked: (0, Time::ZERO) })
    }

    /// Runs until a second and sends packets between random pairs.
    fn try_at(&mut self, second: u64) -> Result<Outcome, Box<dyn Error>> {
        self.graph.run_until(Time::from_secs(second))?;
        let pairs = Oracle::of(&self.graph).pairs(20, 10, 2, &mut self.random);
        let mut trial = Trial::new(&self.graph);
        trial.send_all(&mut self.graph, &pairs, 64, Duration::from_millis(100))?;
        self.graph.run_until(self.graph.now() + Duration::from_millis(800))?;
        Ok(trial.outcome(&mut self.graph)?)
    }

    /// Runs until a second and returns the octets a second that a router has sent since the last look.
    fn rate(&mut self, second: u64) -> Result<u64, Box<dyn Error>> {
        self.graph.run_until(Time::from_secs(second))?;
        let totals = self.graph.totals();
        let octets = totals.sent_bytes + totals.sent * 62;
        let (before, since) = self.looked;
        self.looked = (octets, self.graph.now());
        let millis = (self.graph.now().since(since).as_millis() as u64).max(1);
        Ok((octets - before) * 1_000 / millis / self.graph.nodes().count() as u64)
    }
}

fn contacts<S: Space>(router: &Router<ringway_mesh::crypto::StandIn, S>) -> usize {
    router.overlay().contacts().ids().len()
}

fn measure<S: Space + Send>(name: &str, topology: &Topology) -> Result<String, Box<dyn Error>> {
    let mut run = Run::<S>::start(topology)?;
    let mut built = Vec::new();
    built.push(run.try_at(1)?);
    built.push(run.try_at(5)?);
    let start = run.rate(10)?;
    built.push(run.try_at(30)?);
    run.rate(REST[0])?;
    let rest = run.rate(REST[1])?;
    let nodes = run.graph.nodes().count();
    let all: usize = run.graph.nodes().map(|node| contacts(node.router())).sum();
    let heap = run.graph.memory().heap / nodes;
    run.rate(CRASH)?;
    let mut random = SplitMix::new(9);
    for number in 0..run.graph.len() {
        if random.next_u64().is_multiple_of(10) {
            run.graph.stop(number)?;
        }
    }
    let mut crashed = Vec::new();
    for second in [1, 5, 30] {
        crashed.push(run.try_at(CRASH + second)?);
    }
    let after = run.rate(CRASH + 60)?;
    let shares = |outcomes: &[Outcome]| {
        let shares = outcomes.iter().map(|outcome| format!("{:.3}", outcome.delivery()));
        shares.collect::<Vec<_>>().join(" ")
    };
    Ok(format!(
        "| {name} | {} | {:.2} | {:.0} | {:.1} | {start} | {rest} | {} | {after} |",
        shares(&built),
        built[2].stretch(),
        all as f64 / nodes as f64,
        heap as f64 / 1_000.0,
        shares(&crashed),
    ))
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let kinds = match words.first() {
        Some(kind) => vec![kind.as_str()],
        None => vec!["grid", "disk", "small-world"],
    };
    let sizes = match words.get(1) {
        Some(nodes) => vec![nodes.parse()?],
        None => vec![300, 1_000, 3_000],
    };
    let mut out = std::io::stdout();
    writeln!(
        out,
        "| | delivered after 1, 5, 30 s | stretch | contacts | heap, KB | B/s, 0 to 10 s | B/s, at rest | delivered 1, 5, 30 s \
         after crashes | B/s, 60 s after |\n|---|---|---|---|---|---|---|---|---|"
    )?;
    for nodes in sizes {
        for kind in &kinds {
            let topology = topology(kind, nodes)?;
            writeln!(out, "{}", measure::<Ring>(&format!("{kind} {nodes}, ring"), &topology)?)?;
            writeln!(out, "{}", measure::<Xor>(&format!("{kind} {nodes}, XOR"), &topology)?)?;
        }
    }
    Ok(())
}
