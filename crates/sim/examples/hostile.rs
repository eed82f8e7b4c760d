//! What honest routers of the mesh deliver while some are hostile. Arguments: the topology (`disk`, `grid`, `planar`,
//! `small-world` or `power-law`), the number of routers, hostile ones of 1,000, the attack (`all`, `mixed`, `sybil` or
//! a name of one), and the second from which they are hostile (disk, 1,000, 100, all and 0). Links have 1 ms.
//!
//! From second 20 on, 200 pairs of honest routers send a packet a second for 20 s. It prints the share that arrives, in
//! all and of the last 10 s. For `false-detour` one in ten links between honest routers is cut after 10 s; `cuts` is that
//! without hostile ones.

use ringway_mesh::config::{Config, Limits};
use ringway_sansio::{Duration, SplitMix, Time};
use ringway_sim::graph::hostile::{Attack, Siege};
use ringway_sim::graph::{Adjacency, LinkModel, Topology};
use std::error::Error;
use std::io::Write;

/// Links between honest routers, of 1,000, that are cut in the middle of the trial of false detours.
const CUTS: u32 = 100;

fn topology(kind: &str, nodes: u32) -> Result<Topology, String> {
    let mut random = SplitMix::new(1);
    Ok(match kind {
        "grid" => Topology::grid(nodes.isqrt(), nodes.isqrt()),
        "planar" => Topology::planar(nodes, &mut random),
        "disk" => Topology::disk(nodes, 12.0, &mut random),
        "small-world" => Topology::small_world(nodes, 12, 0.1, &mut random),
        "power-law" => Topology::power_law(nodes, 3, &mut random),
        other => return Err(format!("no topology {other:?}")),
    }
    .largest_part())
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let word = |at: usize, otherwise: &'static str| words.get(at).map_or(otherwise, String::as_str);
    let (kind, nodes) = (word(0, "disk"), word(1, "1000").parse()?);
    let (permille, from) = (word(2, "100").parse()?, word(4, "0").parse()?);
    let adjacency = |_: &str| -> Result<Adjacency, Box<dyn Error>> {
        let link = LinkModel::new(Duration::from_millis(1));
        Ok(Adjacency::new(&topology(kind, nodes)?, |_, _| link)?)
    };
    let config = Config {
        limits: Limits { neighbours: 4_096, output: 512, ..Limits::default() }.into(),
        extension_bits: 0,
        ..Config::default()
    };
    let rows: Vec<(&str, Option<Attack>)> = match word(3, "all") {
        "all" => {
            let all = Attack::ALL.into_iter().map(|attack| (attack.name(), Some(attack)));
            all.chain([("mixed", None), ("sybil", Some(Attack::Silence))]).collect()
        }
        "mixed" => vec![("mixed", None)],
        "sybil" => vec![("sybil", Some(Attack::Silence))],
        name => vec![(name, Some(Attack::named(name).ok_or("no such attack")?))],
    };
    let mut out = std::io::stdout();
    writeln!(out, "{kind}, {permille} of 1,000 hostile from second {from}")?;
    writeln!(
        out,
        "attack        hostile  delivered  late  B/s each  max heap  wrong  again      deeds"
    )?;
    let none = [("none", Some(Attack::BlackHole)), ("cuts", Some(Attack::FalseDetour))];
    let has_cuts = rows.iter().any(|(name, _)| *name == Attack::FalseDetour.name());
    let none = none.into_iter().take(if has_cuts { 2 } else { 1 });
    for (name, attack) in none.chain(rows) {
        let mut siege = Siege { permille, from: Time::from_secs(from), ..Siege::new(attack, 1) };
        if name == "none" || name == "cuts" {
            siege.permille = 0;
        }
        // Nobody asks for a detour while all links are up.
        siege.cuts = if attack == Some(Attack::FalseDetour) { CUTS } else { 0 };
        siege.victim = (name == "sybil").then_some(0);
        let toll = siege.run(adjacency(kind)?, &config)?;
        writeln!(
            out,
            "{name:<13} {:>7} {:>10.3} {:>5.3} {:>9} {:>9} {:>6} {:>6} {:>10}",
            toll.hostile,
            toll.delivery(),
            toll.late_delivery(),
            toll.octets,
            toll.heap,
            toll.wrong,
            toll.duplicates,
            toll.deeds,
        )?;
    }
    Ok(())
}
