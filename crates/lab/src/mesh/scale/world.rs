//! One network: from its start to rest, and under faults.
//!
//! Two networks with the same seed are simulated. The first carries data from its first second on, until nearly all of
//! it arrives. The second carries none until it is at rest, so that what it sends until then is control; then data is
//! measured, at rest and while routers and links come and go.

use super::kind::Kind;
use super::settings::Settings;
use crate::run::RunError;
use ringway_mesh::config::{Config, Limits};
use ringway_sansio::{Duration, SplitMix, Time};
use ringway_sim::graph::faults::{Churn, Outages};
use ringway_sim::graph::{
    Adjacency, DataNode, FaultRates, Faults, Graph, Identities, LinkModel, MeshNode, Oracle, Pair,
    Schedule, mesh,
};
use std::collections::BTreeSet;
use std::slice;
use std::sync::Arc;
use std::time::Instant;

/// Octets of a data packet's contents.
const LENGTH: u16 = 64;
/// Sources of the data packets that are sent together, at most.
const SOURCES: u32 = 50;
/// Time in which a data packet must arrive.
const PATIENCE: Duration = Duration::from_secs(3);
/// Time over which data packets are spread while a network settles, and the share that must arrive.
const PROBED: Duration = Duration::from_millis(200);
const SETTLED: f64 = 0.99;
/// Seconds that are probed one by one; after them every fifth is.
const EACH_SECOND: u64 = 30;
/// Time in which the octets of a start are counted.
const START: Duration = Duration::from_secs(10);
/// Time in which the octets at rest are counted.
const WINDOW: Duration = Duration::from_secs(20);

/// A measured quantity: name, unit, meaning.
pub type Measure = (&'static str, &'static str, &'static str);

/// What is measured of each network.
pub const MEASURES: &[Measure] = &[
    ("delivery", "", "share of data packets that arrive, at rest"),
    (
        "delivery_faults",
        "",
        "share that arrive during the faults, of pairs between which there is a path",
    ),
    ("stretch_mean", "", "links that a packet passes at rest, relative to the shortest path"),
    ("stretch_p95", "", "95th percentile of that"),
    ("settled", "s", "seconds until 99 % of data packets arrive"),
    ("contacts_mean", "", "routers to which a router knows a route"),
    ("contacts_max", "", "the most that a router knows"),
    ("heap", "B", "octets that a router has allocated"),
    ("memory", "B", "octets of a router with its links, and events and packets of the simulation"),
    (
        "control_start",
        "B/s",
        "octets a second that a router sends in the first 10 s, with all headers",
    ),
    ("control_rest", "B/s", "octets a second that a router sends at rest"),
    ("events", "", "events that were simulated"),
];

/// What was measured of one network.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Routers and links.
    pub nodes: u32,
    /// Links, each counted once.
    pub links: usize,
    /// Values in the order of [`MEASURES`]; `None` where there is none.
    pub values: Vec<Option<f64>>,
    /// Data packets of both shares of delivery: arrived, and not.
    pub packets: [[u64; 2]; 2],
    /// Seconds of the real clock, which differ from run to run.
    pub wall: f64,
}

impl Outcome {
    /// Returns a value by its name.
    pub fn get(&self, name: &str) -> Option<f64> {
        let at = MEASURES.iter().position(|measure| measure.0 == name)?;
        self.values.get(at).copied().flatten()
    }
}

/// The defaults of the daemon, but for what hubs and memory need: more neighbours, and no buffer that is kept.
fn config() -> Config {
    let limits = Limits { neighbours: 4_096, output: 512, ..Limits::default() };
    Config { limits: limits.into(), extension_bits: 0, ..Config::default() }
}

/// A network and what its nodes are made of.
struct World {
    graph: Graph<MeshNode>,
    identities: Arc<Identities>,
    config: Config,
    seed: u64,
    /// Number of the next data packet.
    next: u32,
    random: SplitMix,
}

impl World {
    fn start(adjacency: Adjacency, seed: u64) -> Result<Self, RunError> {
        let nodes = adjacency.nodes();
        let identities = Identities::draw(nodes, seed);
        let graph = Graph::idle(adjacency, seed);
        let random = SplitMix::new(seed ^ 0x7a11);
        let mut world = World { graph, identities, config: config(), seed, next: 0, random };
        for number in 0..nodes {
            if let Some(node) = world.node(number, 0, Time::ZERO) {
                world.graph.start(number, node)?;
            }
        }
        Ok(world)
    }

    fn node(&self, number: u32, life: u32, now: Time) -> Option<MeshNode> {
        MeshNode::new(&self.config, &self.identities, number, life, self.seed, now)
    }

    /// Octets that all routers have sent, with the headers below them.
    fn octets(&self) -> f64 {
        let totals = self.graph.totals();
        (totals.sent_bytes + totals.sent * mesh::HEADERS as u64) as f64
    }

    /// Returns pairs of routers that can reach each other now and are not neighbours.
    fn pairs(&mut self, packets: u32) -> Vec<Pair> {
        let sources = packets.min(SOURCES);
        let each = packets.div_ceil(sources);
        Oracle::of(&self.graph).pairs(sources, each, 2, &mut self.random)
    }

    /// Sends a packet between each pair, spread over a time, which passes by `advance`.
    fn send(
        &mut self,
        sent: &mut Sent,
        pairs: &[Pair],
        over: Duration,
        advance: &mut impl FnMut(&mut Self, Time) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        let begin = self.graph.now();
        for (index, pair) in (0..).zip(pairs) {
            advance(self, begin + over / pairs.len().max(1) as u32 * index)?;
            let number = self.next;
            let call = |node: &mut MeshNode, now| node.send_data(now, pair.to, number, LENGTH);
            if self.graph.with_node(pair.from, call)?.is_some() {
                self.next += 1;
                sent.add(number, *pair);
            }
        }
        advance(self, begin + over)
    }

    /// Notes which packets have arrived, of all that wait.
    fn collect(&mut self, all: &mut [Sent]) -> Result<(), RunError> {
        let receivers: BTreeSet<u32> =
            all.iter().flat_map(|sent| &sent.receivers).copied().collect();
        for node in receivers {
            let next = |node: &mut MeshNode, _| node.poll_delivery();
            while let Some(Some(delivery)) = self.graph.with_node(node, next)? {
                all.iter_mut().for_each(|sent| sent.arrived(delivery.number, delivery.hops));
            }
        }
        Ok(())
    }
}

/// Data packets and what became of them.
#[derive(Default)]
struct Sent {
    first: Option<u32>,
    pairs: Vec<Pair>,
    /// Links that each one passed; `None` if it has not arrived.
    hops: Vec<Option<u32>>,
    receivers: BTreeSet<u32>,
}

impl Sent {
    fn add(&mut self, number: u32, pair: Pair) {
        self.first.get_or_insert(number);
        self.pairs.push(pair);
        self.hops.push(None);
        self.receivers.insert(pair.to);
    }

    fn arrived(&mut self, number: u32, hops: u32) {
        let position = self.first.and_then(|first| number.checked_sub(first));
        if let Some(slot) = position.and_then(|at| self.hops.get_mut(at as usize)) {
            slot.get_or_insert(hops);
        }
    }

    /// Returns how many have arrived, and how many not.
    fn counts(&self) -> [u64; 2] {
        let arrived = self.hops.iter().flatten().count();
        [arrived as u64, (self.hops.len() - arrived) as u64]
    }

    fn delivery(&self) -> Option<f64> {
        let [arrived, lost] = self.counts();
        (arrived + lost > 0).then(|| arrived as f64 / (arrived + lost) as f64)
    }

    /// Returns the ratio of all links to those of shortest paths, and the 95th percentile of the packets' own ratios.
    fn stretch(&self) -> Option<[f64; 2]> {
        let both = || self.pairs.iter().zip(&self.hops).filter_map(|(p, h)| Some((p.hops, (*h)?)));
        let (shortest, passed) = both().fold((0u64, 0u64), |(shortest, passed), (s, p)| {
            (shortest + u64::from(s), passed + u64::from(p))
        });
        let mut each: Vec<f64> = both().map(|(s, p)| f64::from(p) / f64::from(s)).collect();
        each.sort_by(f64::total_cmp);
        let rank = (0.95 * each.len() as f64).ceil() as usize;
        let high = *each.get(rank.checked_sub(1)?)?;
        Some([passed as f64 / shortest as f64, high])
    }
}

fn plainly(world: &mut World, end: Time) -> Result<(), RunError> {
    Ok(world.graph.run_until(end)?)
}

/// Returns the first second after which enough of the packets sent in it arrive; `None` if there is none by `limit`.
/// Also returns the number of events.
fn settling(
    adjacency: Adjacency,
    seed: u64,
    packets: u32,
    limit: Duration,
) -> Result<(Option<f64>, u64), RunError> {
    let mut world = World::start(adjacency, seed)?;
    let (mut waiting, mut times): (Vec<Sent>, Vec<u64>) = (Vec::new(), Vec::new());
    let mut second = 0;
    loop {
        second += if second < EACH_SECOND { 1 } else { 5 };
        world.graph.run_until(Time::from_secs(second))?;
        world.collect(&mut waiting)?;
        let due = times.iter().take_while(|at| **at + PATIENCE.as_secs() <= second).count();
        for (at, sent) in times.drain(..due).zip(waiting.drain(..due)) {
            if sent.delivery().is_some_and(|delivery| delivery >= SETTLED) {
                return Ok((Some(at as f64), world.graph.totals().events));
            }
        }
        if second <= limit.as_secs() {
            let mut sent = Sent::default();
            let pairs = world.pairs(packets);
            world.send(&mut sent, &pairs, PROBED, &mut plainly)?;
            waiting.push(sent);
            times.push(second);
        } else if times.is_empty() {
            return Ok((None, world.graph.totals().events));
        }
    }
}

/// Measures one network.
pub(super) fn measure(
    settings: &Settings,
    kind: &Kind,
    seed: u64,
    replication: u64,
) -> Result<Outcome, RunError> {
    let begun = Instant::now();
    // Every replication has a graph, identities and faults of its own.
    let seed = seed.wrapping_add(replication.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let usual = LinkModel { loss: settings.loss, ..LinkModel::new(settings.delay) };
    let adjacency = kind.adjacency(usual, seed)?;
    let (nodes, links) = (adjacency.nodes(), adjacency.links() / 2);
    let probes = settings.packets.min(200);
    let (settled, before) = settling(adjacency.clone(), seed, probes, settings.settle)?;

    let schedule = faults(settings, &adjacency, seed)?;
    let mut world = World::start(adjacency, seed)?;
    let each = |octets: f64, time: Duration| octets / time.as_secs_f64() / f64::from(nodes);
    world.graph.run_until(Time::ZERO + START)?;
    let control_start = each(world.octets(), START);
    world.graph.run_until(Time::ZERO + settings.rest.saturating_sub(WINDOW))?;
    let octets = world.octets();
    world.graph.run_until(Time::ZERO + settings.rest)?;
    let control_rest = each(world.octets() - octets, WINDOW);
    let contacts = world.graph.nodes().map(|node| node.router().overlay().contacts().ids().len());
    let contacts: Vec<usize> = contacts.collect();
    let memory = world.graph.memory();

    let mut at_rest = Sent::default();
    let pairs = world.pairs(settings.packets);
    world.send(&mut at_rest, &pairs, Duration::from_secs(2), &mut plainly)?;
    world.graph.run_until(world.graph.now() + PATIENCE)?;
    world.collect(slice::from_mut(&mut at_rest))?;
    let disturbed = disturb(settings, &mut world, schedule)?;

    let stretch = at_rest.stretch();
    let per_node = |octets: usize| octets as f64 / f64::from(nodes);
    let value = |name: &str| match name {
        "delivery" => at_rest.delivery(),
        "delivery_faults" => disturbed.as_ref().and_then(Sent::delivery),
        "stretch_mean" => stretch.map(|stretch| stretch[0]),
        "stretch_p95" => stretch.map(|stretch| stretch[1]),
        "settled" => settled,
        "contacts_mean" => Some(contacts.iter().sum::<usize>() as f64 / contacts.len() as f64),
        "contacts_max" => contacts.iter().max().map(|most| *most as f64),
        "heap" => Some(per_node(memory.heap)),
        "memory" => Some(per_node(memory.total())),
        "control_start" => Some(control_start),
        "control_rest" => Some(control_rest),
        _ => Some((before + world.graph.totals().events) as f64),
    };
    Ok(Outcome {
        nodes,
        links,
        values: MEASURES.iter().map(|measure| value(measure.0)).collect(),
        packets: [at_rest.counts(), disturbed.map_or([0, 0], |sent| sent.counts())],
        wall: begun.elapsed().as_secs_f64(),
    })
}

/// Draws the faults, which begin after the data at rest.
fn faults(settings: &Settings, links: &Adjacency, seed: u64) -> Result<Schedule, RunError> {
    let from = Time::ZERO + settings.rest + Duration::from_secs(10);
    let cuts = settings.cuts.get() * links.links() as f64 / 2.0;
    let rates = FaultRates {
        flaps: Outages { per_minute: cuts, median: settings.cut },
        churn: Some(Churn { session: settings.session, absence: settings.absence }),
        ..FaultRates::new(from, from + settings.disturbed + PATIENCE)
    };
    Ok(rates.draw(links, seed)?)
}

/// Sends data each second while faults come and go. `None` if they have no time.
fn disturb(
    settings: &Settings,
    world: &mut World,
    schedule: Schedule,
) -> Result<Option<Sent>, RunError> {
    let seconds = settings.disturbed.as_secs() as u32;
    if seconds == 0 {
        return Ok(None);
    }
    let (config, identities, seed) = (world.config.clone(), world.identities.clone(), world.seed);
    let mut faults = Faults::new(schedule);
    let make = |number, life, now| {
        let node = MeshNode::new(&config, &identities, number, life, seed, now);
        node.unwrap_or_else(|| unreachable!("every router of the graph has an identity"))
    };
    let mut advance =
        |world: &mut World, end: Time| Ok(faults.run_until(&mut world.graph, end, make)?);
    let begin = Time::ZERO + settings.rest + Duration::from_secs(10);
    advance(world, begin)?;
    let mut sent = Sent::default();
    let each = settings.packets.div_ceil(seconds);
    for _ in 0..seconds {
        let pairs = world.pairs(each);
        world.send(&mut sent, &pairs, Duration::from_secs(1), &mut advance)?;
        // A router that stops takes with it what was not asked for.
        world.collect(slice::from_mut(&mut sent))?;
    }
    let end = world.graph.now() + PATIENCE;
    advance(world, end)?;
    world.collect(slice::from_mut(&mut sent))?;
    Ok(Some(sent))
}

#[cfg(test)]
mod tests {
    use super::super::settings::parse;
    use super::super::{long_table, run, sheet, summary_table};
    use super::*;
    use crate::progress::Progress;

    const TEXT: &str = "[scenario]\ntitle = \"t\"\n[mesh]\ntopologies = [\"grid\", \"small-world\"]\n\
                        sizes = [36]\npackets = 60\nrest = \"30 s\"\ndisturbed = \"10 s\"\ncuts = \"10 %\"\n";

    /// Small networks deliver nearly all, and equal seeds give equal results, in whatever order they are simulated.
    #[test]
    fn a_small_mesh_is_measured_and_repeats() {
        let settings = parse("t.toml", TEXT).unwrap();
        let run = || run(&settings, 7, 2, &Progress::start()).unwrap();
        let (cells, again) = (run(), run());
        for (cell, again) in cells.iter().zip(&again) {
            assert_eq!((cell.outcomes.len(), cell.outcomes[0].nodes), (2, 36));
            for (one, other) in cell.outcomes.iter().zip(&again.outcomes) {
                assert_eq!((&one.values, one.packets), (&other.values, other.packets));
                let get = |name| one.get(name).unwrap();
                assert!(get("delivery") > 0.95 && get("delivery_faults") > 0.8, "{one:?}");
                assert!(get("stretch_mean") >= 1.0 && get("stretch_p95") >= get("stretch_mean"));
                assert!((1.0..10.0).contains(&get("settled")), "{one:?}");
                assert!(get("control_rest") < get("control_start"), "{one:?}");
                assert!(get("contacts_mean") >= 4.0 && get("heap") > 1_000.0);
            }
            assert_ne!(cell.outcomes[0].values, cell.outcomes[1].values);
        }
        assert_eq!(long_table(&cells).unwrap().len(), 2 * 2 * MEASURES.len());
        assert_eq!(summary_table(&cells).unwrap().len(), 2 * MEASURES.len());
        let sheet = sheet(&settings, &cells, 7, 2);
        assert_eq!(sheet.tables[0].rows.len(), 2);
        assert!(sheet.charts.iter().all(|chart| chart.series.len() == 2), "{:?}", sheet.charts);
    }

    /// A map is a network too, with the delays of its own.
    #[test]
    fn a_map_is_measured() {
        let folder = tempfile::tempdir().unwrap();
        let link =
            |i: u32| format!("{{\"source\": {i}, \"target\": {}, \"delay_ms\": 3}}", (i + 1) % 12);
        let links: Vec<String> = (0..12).map(link).collect();
        std::fs::write(
            folder.path().join("ring.json"),
            format!("{{\"links\": [{}]}}", links.join(",")),
        )
        .unwrap();
        let file = folder.path().join("t.toml");
        let text = "[scenario]\ntitle = \"t\"\n[mesh]\nmaps = [\"ring.json\"]\npackets = 20\n\
                    rest = \"30 s\"\ndisturbed = \"0 s\"\n";
        let settings = parse(file.to_str().unwrap(), text).unwrap();
        let cells = run(&settings, 1, 1, &Progress::start()).unwrap();
        assert_eq!((cells[0].shape.as_str(), cells[0].outcomes[0].links), ("ring", 12));
        assert_eq!(cells[0].outcomes[0].get("delivery"), Some(1.0));
        assert_eq!(cells[0].outcomes[0].get("delivery_faults"), None);
    }
}
