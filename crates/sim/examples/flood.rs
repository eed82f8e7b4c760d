//! The speed and the memory of a graph: one node floods packets of 100 bytes. Arguments: the topology (`line`,
//! `ring`, `grid`, `tree`, `disk`, `small-world` or `power-law`), the number of nodes, and the number of packets
//! (disk, 100,000 and 1); it prints what happened. Links have 1 ms and lose 1 % of the packets.

use ringway_link::Chance;
use ringway_sansio::{Duration, SplitMix, Time};
use ringway_sim::graph::{Adjacency, Flood, Graph, LinkModel, Origin, Topology};
use std::error::Error;
use std::io::Write;
use std::time::Instant;

fn topology(kind: &str, nodes: u32) -> Result<Topology, String> {
    let mut random = SplitMix::new(1);
    Ok(match kind {
        "line" => Topology::line(nodes),
        "ring" => Topology::ring(nodes),
        "grid" => Topology::grid(nodes.isqrt(), nodes.isqrt()),
        "tree" => Topology::tree(nodes, 4),
        "disk" => Topology::disk(nodes, 12.0, &mut random),
        "small-world" => Topology::small_world(nodes, 12, 0.1, &mut random),
        "power-law" => Topology::power_law(nodes, 3, &mut random),
        other => return Err(format!("no topology {other:?}")),
    })
}

/// Returns a field of the process's status in MiB, as Linux reports it.
fn status(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? / 1024)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let kind = words.next().unwrap_or_else(|| "disk".into());
    let mut number = |otherwise: u32| words.next().map_or(Ok(otherwise), |word| word.parse());
    let (nodes, packets) = (number(100_000)?, number(1)?);
    let begun = Instant::now();
    let topology = topology(&kind, nodes)?.largest_part();
    let link = LinkModel { delay: Duration::from_millis(1), loss: Chance::percent(1.0)? };
    let adjacency = Adjacency::new(&topology, |_, _| link)?;
    drop(topology);
    let origin = Origin { first: Time::ZERO, every: Duration::from_secs(1), packets };
    let node = |node| Flood::new(node, 100, u16::MAX, (node == 0).then_some(origin));
    let mut graph = Graph::new(adjacency, 1, node);
    let built = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    graph.run_until(Time::from_secs(u64::from(packets) + 3600))?;
    let seconds = begun.elapsed().as_secs_f64();
    let received: u64 = graph.nodes().map(|node| u64::from(node.received())).sum();
    let (totals, memory, nodes) = (graph.totals(), graph.memory(), graph.adjacency().nodes());
    let bytes = memory.nodes + memory.heap + memory.links + memory.events + memory.packets;
    writeln!(
        std::io::stdout(),
        "{{\"topology\": \"{kind}\", \"nodes\": {nodes}, \"links\": {}, \"received\": {received}, \
         \"sent\": {}, \"hops\": {}, \"lost\": {}, \"events\": {}, \"trace\": \"{:016x}\", \
         \"build seconds\": {built:.3}, \"seconds\": {seconds:.3}, \"events/s\": {:.0}, \"hops/s\": {:.0}, \
         \"bytes/node\": {}, \"resident MiB\": {}, \"peak MiB\": {}}}",
        graph.adjacency().links(),
        totals.sent,
        totals.hops,
        totals.lost,
        totals.events,
        totals.trace,
        totals.events as f64 / seconds,
        totals.hops as f64 / seconds,
        bytes / nodes.max(1) as usize,
        status("VmRSS").unwrap_or_default(),
        status("VmHWM").unwrap_or_default(),
    )?;
    Ok(())
}
