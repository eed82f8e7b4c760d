//! Runs a scenario: builds a world, advances virtual time, and returns measures.
//!
//! A run depends only on the scenario, the seed and the number of the replication. The same three
//! give the same figures to the last bit, on any machine, with any number of threads, and in any
//! order of the scenario's parts (`canonical`). [`measures`] defines the figures; `transport`
//! connects flows to protocols.

mod build;
mod canonical;
mod ledger;
pub mod measures;
mod statistics;
pub mod trace;
mod transport;
pub mod windows;

pub use measures::{Back, Delay, FlowMeasures, Kind, LinkMeasures, MEASURES, Messages, kind, unit};
pub use statistics::MAX_SAMPLES;
pub use transport::Window;

use crate::scenario::{Probe, ProbeKind, Scenario, Stop};
use build::BuiltWorld;
use ledger::{Account, FlowLedger, Ledger, Mark};
use ringway_link::Streams;
use ringway_sansio::{Duration, Time};
use ringway_sim::{Capture, Record, Recorder, Step};
use serde::Serialize;
use statistics::BoundedSamples;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::net::IpAddr;
use std::path::PathBuf;
use trace::Trace;
use transport::ProgramStats;
use windows::Windows;

/// Interval of the check whether all flows are done.
const DONE_CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// Number of progress reports per run.
const PARTS: u32 = 200;
/// Maximum number of rows of a packet record.
pub const MAX_ROWS: usize = 1 << 22;

/// Reason why a run failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The world cannot be built or continued; the error names the node.
    #[error(transparent)]
    World(#[from] ringway_sim::Error),
    /// A capture cannot be written.
    #[error("{path}: {source}")]
    Capture {
        /// Path of the file.
        path: String,
        /// Error of the system.
        source: std::io::Error,
    },
}

/// Options of a run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Seed; replaces that of the scenario.
    pub seed: Option<u64>,
    /// Number of the replication.
    pub replication: u64,
    /// Whether probes are recorded.
    pub probes: bool,
    /// Whether probes of message delays are recorded even if `probes` is not set.
    pub delays: bool,
    /// Folder of the captures; none are written without it.
    pub captures: Option<PathBuf>,
    /// Whether the way of packets and the windows of senders are recorded for `ringway lab view`.
    pub view: bool,
}

/// Observations of a probe.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Kind of the probe.
    pub what: ProbeKind,
    /// Name of the flow or link.
    pub of: String,
    /// Time in seconds (for a delay: the number of the packet or message in the order of arrival)
    /// and value: seconds, bit/s, bytes of a window, packets in a queue, packet numbers sent.
    pub points: Vec<[f64; 2]>,
    /// For a sequence: time and number of each packet that arrived.
    pub arrived: Vec<[f64; 2]>,
    /// For a sequence: time and number of each packet that was lost.
    pub lost: Vec<[f64; 2]>,
}

/// Results of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// Seed.
    pub seed: u64,
    /// Number of the replication.
    pub replication: u64,
    /// End of the run in seconds of virtual time.
    pub ended: f64,
    /// Number of events.
    pub events: u64,
    /// Figures of the flows.
    pub flows: Vec<FlowMeasures>,
    /// Figures of the links, both directions.
    pub links: Vec<LinkMeasures>,
    /// Observations of the probes.
    #[serde(skip)]
    pub series: Vec<Series>,
    /// Every step of every packet, if a probe requests it.
    #[serde(skip)]
    pub records: Option<Rows>,
    /// What `ringway lab view` shows, if it was requested.
    #[serde(skip)]
    pub view: Option<View>,
    /// Names of the capture files.
    pub captures: Vec<String>,
}

/// The ways of packets and the windows of senders, with the names of nodes, links and flows by number.
#[derive(Clone, Debug)]
pub struct View {
    /// The ways of packets.
    pub trace: Trace,
    /// The windows of senders.
    pub windows: Windows,
    /// Names of nodes.
    pub nodes: Vec<String>,
    /// Names of links, and the numbers of their nodes.
    pub links: Vec<(String, [usize; 2])>,
    /// Names of flows.
    pub flows: Vec<String>,
    /// Name of the link of each local address of a path.
    pub paths: BTreeMap<IpAddr, String>,
}

/// Every step of every packet, with the names of nodes and interfaces.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// Steps, at most [`MAX_ROWS`].
    pub rows: Vec<Record>,
    /// Number of steps beyond the limit.
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
    /// Returns the name of a step, and the reason of a drop.
    pub fn step(record: &Record) -> (&'static str, &'static str) {
        match record.step {
            Step::Enqueue => ("enqueue", ""),
            Step::Dequeue => ("dequeue", ""),
            Step::Leave { .. } => ("leave", ""),
            Step::Receive => ("receive", ""),
            Step::Drop(reason) => ("drop", reason.as_str()),
        }
    }
}

/// Runs a scenario once. `progress` is called from time to time with the share of the virtual time
/// that has passed.
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
        let wanted = scenario.probes.iter().any(|p| p.what == ProbeKind::Packets);
        rows = wanted.then(|| built.world.add_recorder(Rows::default()));
    }
    let trace = options.view.then(|| built.add_trace(scenario));
    let mut windows = Windows::new(options.view);
    let mut samples = Samples::new(scenario, options.probes);
    let delays = options.probes || options.delays;
    let end = Time::ZERO + Duration::from(scenario.end());
    let part = Duration::from(scenario.end()) / PARTS;
    let mut next_part = Time::ZERO + part;
    let waits = scenario.stop == Stop::FlowsDone;
    let mut next_check = if waits { Time::ZERO + DONE_CHECK_INTERVAL } else { end };
    let mut running = 0;
    loop {
        let until = end.min(next_part).min(next_check).min(samples.next()).min(windows.next());
        built.world.run_until(until)?;
        samples.take(until, scenario, &built);
        windows.take(until, &built);
        if until >= next_part {
            next_part = until + part;
            progress(until.as_nanos() as f64 / end.as_nanos() as f64);
        }
        if until >= end
            || (waits && until >= next_check && all_done(scenario, &mut built, &mut running))
        {
            break;
        }
        if until >= next_check {
            next_check = until + DONE_CHECK_INTERVAL.max(part / 1000);
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
    let trace = trace.and_then(|number| built.world.take_recorder::<Trace>(number));
    let view = trace.map(|trace| View {
        trace,
        windows,
        nodes: scenario.nodes.clone(),
        links: scenario.links.iter().map(|l| (l.name.clone(), l.between)).collect(),
        flows: scenario.flows.iter().map(|f| f.name.clone()).collect(),
        paths: build::paths(scenario),
    });
    let mut outcome = outcome(scenario, options.replication, seed, built, samples, rows, captures);
    outcome.view = view;
    outcome.series.retain(|s| options.probes || delays && s.what == ProbeKind::MessageDelay);
    Ok(outcome)
}

/// Returns whether all flows with an end are done. `running` is a flow that was not when this was last
/// called: it is checked first, so that a check rarely looks at more than one.
fn all_done(scenario: &Scenario, built: &mut BuiltWorld, running: &mut usize) -> bool {
    let flows = scenario.flows.len();
    let others = (0..flows).filter(|flow| flow != running);
    let found = std::iter::once(*running)
        .chain(others)
        .find(|&flow| scenario.flows[flow].has_end() && !is_done(built, flow));
    *running = found.unwrap_or(*running);
    found.is_none()
}

fn is_done(built: &mut BuiltWorld, flow: usize) -> bool {
    if !built.flows[flow].is_done(&built.world) {
        return false;
    }
    // Datagrams of a source that has finished may still be in flight.
    let ledger = built.world.recorder::<Ledger>(built.ledger);
    ledger.is_none_or(|ledger| ledger.flows[flow].there.in_flight() == 0)
}

type Captures = Vec<(usize, String)>;

fn open_captures(
    scenario: &Scenario,
    options: &Options,
    built: &mut BuiltWorld,
) -> Result<Captures, RunError> {
    let Some(folder) = &options.captures else { return Ok(Vec::new()) };
    let mut captures = Vec::new();
    for probe in scenario.probes.iter().filter(|p| p.what == ProbeKind::Capture) {
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

/// Probes that are sampled at intervals.
struct Samples {
    /// Probe, interval, time of the next sample, samples so far.
    probes: Vec<(Probe, Duration, Time, BoundedSamples<[f64; 2]>)>,
}

impl Samples {
    fn new(scenario: &Scenario, wanted: bool) -> Self {
        let is_sampled = |p: &&Probe| matches!(p.what, ProbeKind::Cwnd | ProbeKind::Queue);
        let probes = scenario.probes.iter().filter(is_sampled).filter(|_| wanted);
        let series = |p: &Probe| (p.clone(), p.every.into(), Time::ZERO, BoundedSamples::default());
        Samples { probes: probes.map(series).collect() }
    }

    fn next(&self) -> Time {
        self.probes.iter().map(|l| l.2).min().unwrap_or(Time::from_nanos(u64::MAX))
    }

    fn take(&mut self, now: Time, scenario: &Scenario, built: &BuiltWorld) {
        let x = now.as_nanos() as f64 / 1e9;
        for (probe, every, next, points) in self.probes.iter_mut().filter(|l| l.2 <= now) {
            *next = now + *every;
            let value = match (probe.what, probe.flow, probe.link) {
                (ProbeKind::Cwnd, Some(flow), _) => {
                    let started = now.as_nanos() >= scenario.flows[flow].start.as_nanos();
                    built.flows[flow].sender_state(&built.world).filter(|_| started).map(|l| l.cwnd)
                }
                (ProbeKind::Queue, _, Some((link, there))) => {
                    let interface = built.interfaces[link][usize::from(!there)];
                    built.world.link(interface).map(|l| l.queue_len() as f64)
                }
                _ => None,
            };
            if let Some(value) = value {
                points.push([x, value]);
            }
        }
    }
}

fn outcome(
    scenario: &Scenario,
    replication: u64,
    seed: u64,
    mut built: BuiltWorld,
    samples: Samples,
    records: Option<Rows>,
    captures: Captures,
) -> Outcome {
    let ended = built.world.now();
    let ledger = built.world.take_recorder::<Ledger>(built.ledger).unwrap_or_default();
    let flows = scenario.flows.iter().zip(&ledger.flows).zip(&built.flows);
    let flows = flows
        .map(|((flow, account), flow_state)| {
            let stats = flow_state.stats(&built.world);
            let sender_state = flow_state.sender_state(&built.world).unwrap_or_default();
            let start = Time::ZERO + Duration::from(flow.start);
            FlowMeasures {
                flow: flow.name.clone(),
                transport: flow.transport.as_str(),
                retransmits: sender_state.retransmits,
                timeouts: sender_state.timeouts,
                window_full: sender_state.window_full,
                completion: stats
                    .completed
                    .filter(|_| flow.has_end())
                    .map(|at| at.since(start).as_secs_f64()),
                ..measure(&account.there, &account.back, &stats, start, ended)
            }
        })
        .collect();
    let links = links(scenario, &built, &ledger, ended);
    let mut series: Vec<Series> = Vec::new();
    for (probe, _, _, points) in samples.probes {
        series.push(one(scenario, &probe, points.into_samples()));
    }
    for probe in scenario.probes.iter().filter(|p| p.what == ProbeKind::MessageDelay) {
        let stats =
            probe.flow.map(|flow| built.flows[flow].stats(&built.world)).unwrap_or_default();
        let number = |(i, delay): (usize, &u64)| [i as f64, *delay as f64 / 1e9];
        series.push(one(
            scenario,
            probe,
            stats.delay.samples().iter().enumerate().map(number).collect(),
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
        view: None,
        captures: captures.into_iter().map(|c| c.1).collect(),
    }
}

/// Computes the figures from the accounts and from the programs' counters.
fn measure(
    there: &Account,
    back: &Account,
    stats: &ProgramStats,
    start: Time,
    ended: Time,
) -> FlowMeasures {
    let over = there.first_sent.zip(there.last_arrival).map(|(a, b)| b.since(a).as_secs_f64());
    let goodput_over = stats.completed.unwrap_or(ended).since(start).as_secs_f64();
    FlowMeasures {
        flow: String::new(),
        transport: "",
        sent: there.sent,
        copied: there.copied(),
        delivered: there.delivered,
        dropped: there.dropped_total(),
        dropped_by: by_reason(there),
        in_flight: there.in_flight(),
        duplicates: stats.duplicates,
        damaged: stats.damaged,
        retransmits: 0,
        timeouts: 0,
        window_full: 0,
        delay: there.delay.summary(),
        throughput: over
            .filter(|over| *over > 0.0)
            .map(|over| there.delivered_bytes as f64 * 8.0 / over),
        goodput: if goodput_over > 0.0 { stats.bytes as f64 * 8.0 / goodput_over } else { 0.0 },
        bytes: stats.bytes,
        completion: None,
        failed: stats.failed,
        stall: {
            let all = stats.messages && stats.delivered >= stats.written;
            let open = stats.completed.is_none() && !all;
            stats.progress.stall(open.then_some(ended)).map(|stall| stall.as_secs_f64())
        },
        messages: stats.messages.then(|| Messages {
            written: stats.written,
            delivered: stats.delivered,
            refused: stats.refused,
            delay: stats.delay.summary(),
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

/// Returns the dropped packets by the name of the reason.
fn by_reason(account: &Account) -> BTreeMap<&'static str, u64> {
    let mut by_reason = BTreeMap::new();
    for (reason, count) in &account.dropped {
        *by_reason.entry(reason.as_str()).or_insert(0) += count;
    }
    by_reason
}

fn links(
    scenario: &Scenario,
    built: &BuiltWorld,
    ledger: &Ledger,
    ended: Time,
) -> Vec<LinkMeasures> {
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

/// Returns the ledger's data of a flow for a probe.
fn of_flow(scenario: &Scenario, probe: &Probe, flow: &FlowLedger, ended: Time) -> Option<Series> {
    let seconds = |at: Time| at.as_nanos() as f64 / 1e9;
    match probe.what {
        ProbeKind::Delay => {
            let samples = flow.delays.as_ref()?.samples();
            let number = |(i, (_, delay)): (usize, &(Time, u64))| [i as f64, *delay as f64 / 1e9];
            Some(one(scenario, probe, samples.iter().enumerate().map(number).collect()))
        }
        ProbeKind::Throughput => {
            let (every, bins) = flow.bins.as_ref()?;
            let step = *every as f64 / 1e9;
            // A last interval that the end of the run truncates would look like a drop.
            let complete_bins = (ended.as_nanos() / every) as usize;
            let bins = (0..complete_bins).map(|i| bins.get(i).copied().unwrap_or(0));
            let points = bins
                .enumerate()
                .map(|(i, bytes)| [(i as f64 + 0.5) * step, bytes as f64 * 8.0 / step])
                .collect();
            Some(one(scenario, probe, points))
        }
        ProbeKind::Sequence => {
            let samples = flow.sequence.as_ref()?.samples();
            let of = |mark| {
                let of = samples.iter().filter(move |s| s.2 == mark);
                of.map(|(at, number, _)| [seconds(*at), *number as f64]).collect::<Vec<_>>()
            };
            let (arrived, lost) = (of(Mark::Arrived), of(Mark::Lost));
            Some(Series { arrived, lost, ..one(scenario, probe, of(Mark::Sent)) })
        }
        _ => None,
    }
}
