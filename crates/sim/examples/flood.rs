//! The speed and the memory of a graph. Arguments: the topology (`line`, `ring`, `grid`, `tree`, `planar`, `disk`,
//! `small-world` or `power-law`), the number of nodes, the number of packets, and the traffic: `flood`, in which
//! one node floods packets of 100 bytes, or `beacons`, in which every node sends them to its neighbours, one each
//! 1.8 s (disk, 100,000, 1 and flood). It prints what happened. Links have 1 ms and lose 1 % of the packets.

use ringway_link::Chance;
use ringway_sansio::{Duration, Random, SplitMix, Time};
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
        "planar" => Topology::planar(nodes, &mut random),
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
    let beacons = match words.next().as_deref() {
        None | Some("flood") => false,
        Some("beacons") => true,
        Some(other) => return Err(format!("expected flood or beacons, got {other:?}").into()),
    };
    let begun = Instant::now();
    let topology = topology(&kind, nodes)?.largest_part();
    let link = LinkModel::new(Duration::from_millis(1));
    let link = LinkModel { loss: Chance::percent(1.0)?, ..link };
    let adjacency = Adjacency::new(&topology, |_, _| link)?;
    drop(topology);
    let every = Duration::from_millis(1800);
    let mut random = SplitMix::new(1);
    let node = |node| {
        let phase = if beacons { random.next_u64() % every.as_nanos() as u64 } else { 0 };
        let origin = Origin { first: Time::from_nanos(phase), every, packets };
        let max_hops = if beacons { 1 } else { u16::MAX };
        Flood::new(node, 100, max_hops, (beacons || node == 0).then_some(origin))
    };
    let mut graph = Graph::new(adjacency, 1, node);
    let built = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    // The last packet of a flood passes a line of a million nodes in 1000 s.
    graph.run_until(Time::ZERO + every * packets + Duration::from_secs(3600))?;
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
