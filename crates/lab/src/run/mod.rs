//! Runs a scenario: builds a world, lets time pass, and gives measures.
//!
//! A run depends on the scenario, the seed and the number of the replication, and on nothing else:
//! the same three give the same figures to the last bit, on any machine and any number of threads,
//! in whatever order the scenario lists its parts (`canonical`).
//! [`measures`] says what is measured; how a transport carries a flow is in `transport`.

mod build;
mod canonical;
mod ledger;
pub mod measures;
mod thinned;
mod transport;

pub use measures::{Back, Delay, FlowMeasures, Kind, LinkMeasures, MEASURES, Messages, kind, unit};
pub use thinned::MAX_SAMPLES;

use crate::scenario::{Probe, Scenario, Stop, What};
use build::Built;
use ledger::{Account, FlowLedger, Ledger, Mark};
use ringway_link::Streams;
use ringway_sansio::{Duration, Time};
use ringway_sim::{Capture, Record, Recorder, Step};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use thinned::Thinned;
use transport::Seen;

/// How often it is looked whether all flows are done.
const LOOK: Duration = Duration::from_millis(10);
/// Parts of a run after each of which its progress is told.
const PARTS: u32 = 200;
/// Most rows of a packet record.
pub const MAX_ROWS: usize = 1 << 22;

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The world cannot be built, or does not go on; the node at fault is named.
    #[error(transparent)]
    World(#[from] ringway_sim::Error),
    /// A capture cannot be written.
    #[error("{path}: {source}")]
    Capture {
        /// Which file.
        path: String,
        /// What went wrong.
        source: std::io::Error,
    },
}

/// What to run and what to keep.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Another seed than the scenario's.
    pub seed: Option<u64>,
    /// Which replication.
    pub replication: u64,
    /// Whether probes are looked at, or only figures are wanted.
    pub probes: bool,
    /// Whether the probes of messages' delays are looked at in any case.
    pub delays: bool,
    /// Where captures go; none are made without.
    pub captures: Option<PathBuf>,
}

/// What a probe has seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// What was looked at.
    pub what: What,
    /// The flow or the link.
    pub of: String,
    /// Time in seconds (of a delay: the number of the packet or message in the order of arrival) and value:
    /// seconds, bit/s, bytes of a window, packets in a queue, packet numbers sent.
    pub points: Vec<[f64; 2]>,
    /// Of a sequence: when which packet arrived.
    pub arrived: Vec<[f64; 2]>,
    /// Of a sequence: when which packet was lost.
    pub lost: Vec<[f64; 2]>,
}

/// What came of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The replication.
    pub replication: u64,
    /// When it ended, in seconds of virtual time.
    pub ended: f64,
    /// Events that happened.
    pub events: u64,
    /// Figures of the flows.
    pub flows: Vec<FlowMeasures>,
    /// Figures of the links, both directions.
    pub links: Vec<LinkMeasures>,
    /// What probes have seen.
    #[serde(skip)]
    pub series: Vec<Series>,
    /// Every step of every packet, if a probe asked for it.
    #[serde(skip)]
    pub records: Option<Rows>,
    /// Files of captures.
    pub captures: Vec<String>,
}

/// Every step of every packet, with the names of nodes and interfaces.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// The steps, at most [`MAX_ROWS`].
    pub rows: Vec<Record>,
    /// Steps that were not kept.
    pub left_out: u64,
    /// Names of nodes, by number.
    pub nodes: Vec<String>,
    /// Names of interfaces, by number.
    pub interfaces: Vec<String>,
}

impl Recorder for Rows {
    fn record(&mut self, record: &Record, _: &ringway_sansio::Addressing, _: &[u8]) {
        if self.rows.len() < MAX_ROWS {
            self.rows.push(*record);
        } else {
            self.left_out += 1;
        }
    }
}

impl Rows {
    /// What a step is called, and why a packet was dropped.
    pub fn step(record: &Record) -> (&'static str, &'static str) {
        match record.step {
            Step::Enqueue => ("enqueue", ""),
            Step::Dequeue => ("dequeue", ""),
            Step::Leave(_) => ("leave", ""),
            Step::Receive => ("receive", ""),
            Step::Drop(reason) => ("drop", reason.as_str()),
        }
    }
}

/// Runs a scenario once. `progress` is told, now and then, which share of the time has passed.
pub fn run(
    scenario: &Scenario,
    options: &Options,
    progress: impl FnMut(f64),
) -> Result<Outcome, RunError> {
    let canonical = canonical::Canonical::new(scenario);
    let mut outcome = run_canonical(&canonical.scenario, options, progress)?;
    canonical.restore(&mut outcome);
    Ok(outcome)
}

/// Runs a scenario whose parts are numbered in the order of their names.
fn run_canonical(
    scenario: &Scenario,
    options: &Options,
    mut progress: impl FnMut(f64),
) -> Result<Outcome, RunError> {
    let seed = options.seed.unwrap_or(scenario.seed);
    let streams = Streams::new(seed, options.replication).with(scenario.generator);
    let mut built = build::build(scenario, streams)?;
    let mut captures = Vec::new();
    let mut rows = None;
    if options.probes {
        captures = open_captures(scenario, options, &mut built)?;
        let wanted = scenario.probes.iter().any(|p| p.what == What::Packets);
        rows = wanted.then(|| built.world.add_recorder(Rows::default()));
    }
    let mut samples = Samples::new(scenario, options.probes);
    let delays = options.probes || options.delays;
    let end = Time::ZERO + Duration::from(scenario.end());
    let part = Duration::from(scenario.end()) / PARTS;
    let mut next_part = Time::ZERO + part;
    let waits = scenario.stop == Stop::FlowsDone;
    let mut next_look = if waits { Time::ZERO + LOOK } else { end };
    loop {
        let until = end.min(next_part).min(next_look).min(samples.next());
        built.world.run_until(until)?;
        samples.take(until, scenario, &built);
        if until >= next_part {
            next_part = until + part;
            progress(until.as_nanos() as f64 / end.as_nanos() as f64);
        }
        if until >= end || (waits && until >= next_look && all_done(scenario, &mut built)) {
            break;
        }
        if until >= next_look {
            next_look = until + LOOK.max(part / 1000);
        }
    }
    for (number, path) in &captures {
        let capture = built.world.take_recorder::<Capture<BufWriter<File>>>(*number);
        let finished = capture.map(|c| c.finish().and_then(|w| Ok(w.into_inner()?)));
        if let Some(Err(source)) = finished {
            return Err(RunError::Capture { path: path.clone(), source });
        }
    }
    let rows = rows.and_then(|number| built.world.take_recorder::<Rows>(number));
    let names = |name: &dyn Fn(u32) -> Option<String>| (0..).map_while(name).collect::<Vec<_>>();
    let rows = rows.map(|rows| Rows {
        nodes: names(&|i| built.world.node_name(i).map(Into::into)),
        interfaces: names(&|i| built.world.interface_name(i).map(Into::into)),
        ..rows
    });
    let mut outcome = outcome(scenario, options.replication, seed, built, samples, rows, captures);
    outcome.series.retain(|s| options.probes || delays && s.what == What::MessageDelay);
    Ok(outcome)
}

fn all_done(scenario: &Scenario, built: &mut Built) -> bool {
    let number = built.ledger;
    for (index, flow) in scenario.flows.iter().enumerate() {
        if !flow.has_end() {
            continue;
        }
        if !built.flows[index].is_done(&built.world) {
            return false;
        }
        let Some(ledger) = built.world.recorder::<Ledger>(number) else { return true };
        // Datagrams of a source that has finished may still be under way.
        if ledger.flows[index].there.in_flight() > 0 {
            return false;
        }
    }
    true
}

type Captures = Vec<(usize, String)>;

fn open_captures(
    scenario: &Scenario,
    options: &Options,
    built: &mut Built,
) -> Result<Captures, RunError> {
    let Some(folder) = &options.captures else { return Ok(Vec::new()) };
    let mut captures = Vec::new();
    for probe in scenario.probes.iter().filter(|p| p.what == What::Capture) {
        let Some((link, there)) = probe.link else { continue };
        let interface = built.interfaces[link][usize::from(!there)];
        let (from, to) = (usize::from(!there), usize::from(there));
        let ends = scenario.links[link].between.map(|n| scenario.nodes[n].as_str());
        let name = format!("{}.{}-{}.pcapng", scenario.links[link].name, ends[from], ends[to]);
        let path = folder.join(&name);
        let failed = |source| RunError::Capture { path: path.display().to_string(), source };
        let file = BufWriter::new(File::create(&path).map_err(failed)?);
        let capture = Capture::new(&built.world, &[interface], file).map_err(failed)?;
        captures.push((built.world.add_recorder(capture), name));
    }
    Ok(captures)
}

/// What is looked at every so often.
struct Samples {
    /// Probe, interval, next time, what was seen.
    looks: Vec<(Probe, Duration, Time, Thinned<[f64; 2]>)>,
}

impl Samples {
    fn new(scenario: &Scenario, wanted: bool) -> Self {
        let every_so_often = |p: &&Probe| matches!(p.what, What::Cwnd | What::Queue);
        let probes = scenario.probes.iter().filter(every_so_often).filter(|_| wanted);
        let look = |p: &Probe| (p.clone(), p.every.into(), Time::ZERO, Thinned::default());
        Samples { looks: probes.map(look).collect() }
    }

    fn next(&self) -> Time {
        self.looks.iter().map(|l| l.2).min().unwrap_or(Time::from_nanos(u64::MAX))
    }

    fn take(&mut self, now: Time, scenario: &Scenario, built: &Built) {
        let x = now.as_nanos() as f64 / 1e9;
        for (probe, every, next, seen) in self.looks.iter_mut().filter(|l| l.2 <= now) {
            *next = now + *every;
            let value = match (probe.what, probe.flow, probe.link) {
                (What::Cwnd, Some(flow), _) => {
                    let started = now.as_nanos() >= scenario.flows[flow].start.as_nanos();
                    built.flows[flow].look(&built.world).filter(|_| started).map(|l| l.cwnd)
                }
                (What::Queue, _, Some((link, there))) => {
                    let interface = built.interfaces[link][usize::from(!there)];
                    built.world.link(interface).map(|l| l.queue_len() as f64)
                }
                _ => None,
            };
            if let Some(value) = value {
                seen.push([x, value]);
            }
        }
    }
}

fn outcome(
    scenario: &Scenario,
    replication: u64,
    seed: u64,
    mut built: Built,
    samples: Samples,
    records: Option<Rows>,
    captures: Captures,
) -> Outcome {
    let ended = built.world.now();
    let ledger = built.world.take_recorder::<Ledger>(built.ledger).unwrap_or_default();
    let flows = scenario.flows.iter().zip(&ledger.flows).zip(&built.flows);
    let flows = flows
        .map(|((flow, account), carried)| {
            let seen = carried.seen(&built.world);
            let look = carried.look(&built.world).unwrap_or_default();
            let start = Time::ZERO + Duration::from(flow.start);
            FlowMeasures {
                flow: flow.name.clone(),
                transport: flow.transport.as_str(),
                retransmits: look.retransmits,
                timeouts: look.timeouts,
                window_full: look.window_full,
                completion: seen
                    .completed
                    .filter(|_| flow.has_end())
                    .map(|at| at.since(start).as_secs_f64()),
                ..measure(&account.there, &account.back, &seen, start, ended)
            }
        })
        .collect();
    let links = links(scenario, &built, &ledger, ended);
    let mut series: Vec<Series> = Vec::new();
    for (probe, _, _, seen) in samples.looks {
        series.push(one(scenario, &probe, seen.into_kept()));
    }
    for probe in scenario.probes.iter().filter(|p| p.what == What::MessageDelay) {
        let seen = probe.flow.map(|flow| built.flows[flow].seen(&built.world)).unwrap_or_default();
        let number = |(i, delay): (usize, &u64)| [i as f64, *delay as f64 / 1e9];
        series.push(one(
            scenario,
            probe,
            seen.delay.kept().iter().enumerate().map(number).collect(),
        ));
    }
    for probe in &scenario.probes {
        if let Some(flow) = probe.flow.and_then(|f| ledger.flows.get(f)) {
            series.extend(of_flow(scenario, probe, flow, ended));
        }
    }
    Outcome {
        seed,
        replication,
        ended: ended.as_nanos() as f64 / 1e9,
        events: built.world.happened(),
        flows,
        links,
        series,
        records,
        captures: captures.into_iter().map(|c| c.1).collect(),
    }
}

/// The figures that accounts and programs give.
fn measure(there: &Account, back: &Account, seen: &Seen, start: Time, ended: Time) -> FlowMeasures {
    let over = there.first_sent.zip(there.last_arrival).map(|(a, b)| b.since(a).as_secs_f64());
    let goodput_over = seen.completed.unwrap_or(ended).since(start).as_secs_f64();
    FlowMeasures {
        flow: String::new(),
        transport: "",
        sent: there.sent,
        copied: there.copied(),
        delivered: there.delivered,
        dropped: there.dropped_total(),
        dropped_by: by_reason(there),
        in_flight: there.in_flight(),
        duplicates: seen.duplicates,
        damaged: seen.damaged,
        retransmits: 0,
        timeouts: 0,
        window_full: 0,
        delay: there.delay.summary(),
        throughput: over
            .filter(|over| *over > 0.0)
            .map(|over| there.delivered_bytes as f64 * 8.0 / over),
        goodput: if goodput_over > 0.0 { seen.bytes as f64 * 8.0 / goodput_over } else { 0.0 },
        bytes: seen.bytes,
        completion: None,
        failed: seen.failed,
        stall: {
            let all = seen.messages && seen.delivered >= seen.written;
            let open = seen.completed.is_none() && !all;
            seen.progress.stall(open.then_some(ended)).map(|stall| stall.as_secs_f64())
        },
        messages: seen.messages.then(|| Messages {
            written: seen.written,
            delivered: seen.delivered,
            refused: seen.refused,
            delay: seen.delay.summary(),
        }),
        back: Back {
            sent: back.sent,
            copied: back.copied(),
            delivered: back.delivered,
            dropped: back.dropped_total(),
            dropped_by: by_reason(back),
            in_flight: back.in_flight(),
        },
    }
}

/// Packets dropped, by the reason in words.
fn by_reason(account: &Account) -> BTreeMap<&'static str, u64> {
    let mut by_reason = BTreeMap::new();
    for (reason, count) in &account.dropped {
        *by_reason.entry(reason.as_str()).or_insert(0) += count;
    }
    by_reason
}

fn links(scenario: &Scenario, built: &Built, ledger: &Ledger, ended: Time) -> Vec<LinkMeasures> {
    let mut links = Vec::new();
    for (link, interfaces) in scenario.links.iter().zip(&built.interfaces) {
        for (end, config) in [(0, &link.there), (1, &link.back)] {
            let counters = built.world.counters(interfaces[end]);
            let seconds = ended.as_nanos() as f64 / 1e9;
            let share = |bytes: u64| bytes as f64 * 8.0 / config.rate.0 as f64 / seconds;
            links.push(LinkMeasures {
                link: link.name.clone(),
                from: scenario.nodes[link.between[end]].clone(),
                to: scenario.nodes[link.between[1 - end]].clone(),
                offered: counters.offered,
                left: counters.left,
                dropped: counters.dropped,
                waiting: built.world.link(interfaces[end]).map_or(0, |l| l.queue_len() as u64),
                utilisation: ledger
                    .sent_bytes(interfaces[end].index())
                    .map(|bytes| share(bytes).min(1.0)),
            });
        }
    }
    links
}

fn one(scenario: &Scenario, probe: &Probe, points: Vec<[f64; 2]>) -> Series {
    let of = match (probe.flow, probe.link) {
        (Some(flow), _) => scenario.flows[flow].name.clone(),
        (_, Some((link, there))) => {
            let name = &scenario.links[link].name;
            if there { name.clone() } else { format!("{name}.back") }
        }
        _ => String::new(),
    };
    Series { what: probe.what, of, points, arrived: Vec::new(), lost: Vec::new() }
}

/// What the ledger has noted of a flow for a probe.
fn of_flow(scenario: &Scenario, probe: &Probe, flow: &FlowLedger, ended: Time) -> Option<Series> {
    let seconds = |at: Time| at.as_nanos() as f64 / 1e9;
    match probe.what {
        What::Delay => {
            let kept = flow.delays.as_ref()?.kept();
            let number = |(i, (_, delay)): (usize, &(Time, u64))| [i as f64, *delay as f64 / 1e9];
            Some(one(scenario, probe, kept.iter().enumerate().map(number).collect()))
        }
        What::Throughput => {
            let (every, bins) = flow.bins.as_ref()?;
            let step = *every as f64 / 1e9;
            // A last step that the end cuts short would look like a drop.
            let whole = (ended.as_nanos() / every) as usize;
            let bins = (0..whole).map(|i| bins.get(i).copied().unwrap_or(0));
            let points = bins
                .enumerate()
                .map(|(i, bytes)| [(i as f64 + 0.5) * step, bytes as f64 * 8.0 / step])
                .collect();
            Some(one(scenario, probe, points))
        }
        What::Sequence => {
            let kept = flow.sequence.as_ref()?.kept();
            let of = |mark| {
                let of = kept.iter().filter(move |s| s.2 == mark);
                of.map(|(at, number, _)| [seconds(*at), *number as f64]).collect::<Vec<_>>()
            };
            let (arrived, lost) = (of(Mark::Arrived), of(Mark::Lost));
            Some(Series { arrived, lost, ..one(scenario, probe, of(Mark::Sent)) })
        }
        _ => None,
    }
}
