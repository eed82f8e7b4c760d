//! `ringway lab run`: one or more replications of a scenario.

use super::network::{down_caption, down_times, network, view_network};
use super::{Answer, Failure, Source, scale, users};
use crate::builtin;
use crate::estimate::{EQUAL, estimate, is_even, kinds, runs_note};
use crate::mesh::scale::is_scale;
use crate::onesip::scale::is_users;
use crate::output::{
    self, AxisSheet, ChartSheet, MANIFEST, Manifest, PAGE, SHEET, SeriesSheet, Sheet, Style,
    TableSheet, columns, figure, host, version,
};
use crate::progress::Progress;
use crate::run::{MEASURES, Options, Outcome, RunError, Series, run as run_once, unit};
use crate::scenario::{Document, MAX_REPLICATIONS, ProbeKind, Scenario};
use crate::view;
use rayon::prelude::*;
use ringway_figures::statistics::Estimate;
use ringway_figures::table::Table;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Maximum number of series of one figure.
const MAX_SERIES: usize = 8;
/// Maximum number of message delays in a figure, over all replications of a flow.
const MAX_DELAYS: usize = 1 << 20;

/// Arguments of `ringway lab run`.
#[derive(Clone, Debug, Default)]
pub struct RunArgs {
    /// Name of a built-in scenario, or a file.
    pub scenario: String,
    /// Text of the scenario; then `scenario` is only its name for error messages.
    pub text: Option<String>,
    /// Output folder.
    pub out: Option<PathBuf>,
    /// Seed; replaces that of the scenario.
    pub seed: Option<u64>,
    /// Number of replications; replaces that of the scenario.
    pub reps: Option<u64>,
    /// Whether the answer has the long tables.
    pub tables: bool,
}

impl RunArgs {
    /// Creates the output folder, and returns the seed and the number of replications; `seed` and `replications` are those of
    /// the scenario.
    pub(super) fn begin(&self, seed: u64, replications: u64) -> Result<(u64, u64), Failure> {
        let replications = self.reps.unwrap_or(replications);
        if !(1..=MAX_REPLICATIONS).contains(&replications) {
            let what = format!("--reps: expected 1 to {MAX_REPLICATIONS}, got {replications}");
            return Err(Failure::Usage(vec![what]));
        }
        if let Some(out) = &self.out {
            output::folder(out)?;
        }
        Ok((self.seed.unwrap_or(seed), replications))
    }
}

/// The estimate of one measure of one flow over all replications.
struct FlowEstimate<'a> {
    flow: &'a str,
    measure: &'static str,
    estimate: Estimate,
}

/// Runs a scenario.
pub fn run(args: &RunArgs) -> Result<Answer, Failure> {
    let builtins = [builtin::ALL, builtin::MESHES, builtin::USERS].concat();
    let source = Source::new(&args.scenario, args.text.as_deref(), &builtins, "scenario")?;
    let document = Document::parse(&source.name, &source.text)?;
    if is_scale(&document) {
        return scale::run(args, &source, &document);
    }
    if is_users(&document) {
        return users::run(args, &source, &document);
    }
    let scenario = Scenario::from_document(&document)?;
    let (seed, replications) = args.begin(scenario.seed, scenario.replications)?;
    let began = Instant::now();
    let runs = replicate(&scenario, seed, replications, args)?;
    let summed = estimate_measures(&runs);
    let sheet = sheet(&scenario, &runs, &summed, seed, args.out.is_some());
    let mut text = text(&scenario, &runs, &sheet);
    if let Some(out) = &args.out {
        write(out, &source, &scenario, &runs, &sheet, seed, began)?;
        text += &format!("\nwritten to {}\n", out.join(PAGE).display());
    }
    let faults = runs.iter().flat_map(|r| r.flows.iter().map(move |f| (r, f)));
    let faults = faults.filter_map(|(r, f)| {
        let why = f.failed?;
        Some(format!("flow {} failed in replication {}: {why}", f.flow, r.replication))
    });
    let faults = faults.collect();
    let tables = if args.tables { tables(&runs, &summed)? } else { Vec::new() };
    Ok(Answer { text, json: json(&source, &scenario, &runs, &summed, seed), tables, faults })
}

/// Runs all replications on all cores. The first one records its probes; all record the delays of
/// messages, which are few.
fn replicate(
    scenario: &Scenario,
    seed: u64,
    replications: u64,
    args: &RunArgs,
) -> Result<Vec<Outcome>, RunError> {
    let progress = Progress::start();
    progress.set_text(&scenario.title);
    (0..replications)
        .into_par_iter()
        .map(|replication| {
            let options = Options {
                seed: Some(seed),
                replication,
                probes: replication == 0,
                delays: args.out.is_some() || args.tables,
                captures: args.out.clone().filter(|_| replication == 0),
                view: args.out.is_some() && replication == 0,
            };
            let mut last = 0.0;
            let outcome = run_once(scenario, &options, |share| {
                progress.add((share - last) / replications as f64);
                last = share;
            });
            progress.add((1.0 - last) / replications as f64);
            let mut outcome = outcome?;
            if replication > 0 {
                let max = (MAX_DELAYS / replications as usize).max(1);
                for series in &mut outcome.series {
                    let step = series.points.len().div_ceil(max).max(1);
                    series.points = series.points.iter().copied().step_by(step).collect();
                }
            }
            Ok(outcome)
        })
        .collect()
}

/// Estimates every measure with its interval, over the replications that have it.
fn estimate_measures(runs: &[Outcome]) -> Vec<FlowEstimate<'_>> {
    let Some(first) = runs.first() else { return Vec::new() };
    let mut summed = Vec::new();
    for (i, flow) in first.flows.iter().enumerate() {
        for (measure, _) in MEASURES {
            let of = |r: usize, name: &str| runs[r].flows[i].value(name);
            if let Some(estimate) = estimate(measure, runs.len(), of) {
                summed.push(FlowEstimate { flow: &flow.flow, measure, estimate });
            }
        }
    }
    summed
}

/// The columns of the table of flows: head, measure.
const COLUMNS: &[(&str, &str)] = &[
    ("sent", "sent"),
    ("dropped", "dropped"),
    ("in flight", "in_flight"),
    ("delivered", "delivered"),
    ("loss (%)", "loss_ratio"),
    ("dup.", "duplicates"),
    ("mean delay (ms)", "delay_mean"),
    ("p99 (ms)", "delay_p99"),
    ("goodput (kbit/s)", "goodput"),
    ("completion (s)", "completion"),
];

/// The columns of the table of messages: head, measure.
const MESSAGES: &[(&str, &str)] = &[
    ("written", "messages_written"),
    ("delivered", "messages_delivered"),
    ("mean delay (ms)", "message_delay_mean"),
    ("p50 (ms)", "message_delay_p50"),
    ("p90 (ms)", "message_delay_p90"),
    ("p99 (ms)", "message_delay_p99"),
    ("longest (ms)", "message_delay_max"),
    ("longest stall (ms)", "stall"),
];

/// Returns a table of those flows that have a value in its second column.
fn flow_table(
    runs: &[Outcome],
    summed: &[FlowEstimate<'_>],
    seed: u64,
    what: &str,
    columns: &[(&str, &str)],
) -> Option<TableSheet> {
    let n = runs.len();
    let mut head = vec!["flow".to_string()];
    head.extend(columns.iter().map(|c| c.0.to_string()));
    // A name of a flow occurs once, so figures can be looked up by it even with many flows.
    let index: HashMap<(&str, &str), &FlowEstimate<'_>> =
        summed.iter().map(|s| ((s.flow, s.measure), s)).collect();
    let find = |flow: &str, measure: &str| index.get(&(flow, measure)).copied();
    let flows = runs.first().map_or(&[][..], |r| &r.flows);
    let flows =
        flows.iter().filter(|f| columns.get(1).is_some_and(|c| find(&f.flow, c.1).is_some()));
    let copies = are_equal(runs);
    let rows: Vec<Vec<String>> = flows
        .map(|flow| {
            let cell = |&(head, measure): &(&str, &str)| {
                let Some(found) = find(&flow.flow, measure) else { return "-".into() };
                let scale = match head {
                    h if h.ends_with("(%)") => 1e2,
                    h if h.ends_with("(ms)") => 1e3,
                    h if h.ends_with("(kbit/s)") => 1e-3,
                    _ => 1.0,
                };
                let shown = match copies {
                    true => with_interval(&found.estimate, scale, 1),
                    false => with_interval(&found.estimate, scale, n),
                };
                shown + &runs_note(Some(found.estimate), n)
            };
            std::iter::once(flow.flow.clone()).chain(columns.iter().map(cell)).collect()
        })
        .collect();
    let shown = summed.iter().filter_map(|s| {
        let column = columns.iter().find(|c| c.1 == s.measure)?;
        Some((column.0.split(" (").next().unwrap_or_default(), Some(s.estimate)))
    });
    let kind = match copies {
        true => format!("{}; each value is that of one run", all_equal(n)),
        false => kinds(shown).unwrap_or("one run".into()),
    };
    let caption = format!("{what}; n = {n}, seed {seed}, {kind}.");
    (!rows.is_empty()).then_some(TableSheet { caption, head, rows })
}

/// Returns whether there are several runs that differ only in their numbers: nothing in them is
/// random, or chance had no effect.
fn are_equal(runs: &[Outcome]) -> bool {
    let same = |a: &Outcome, b: &Outcome| {
        (a.ended, a.events, &a.flows, &a.links) == (b.ended, b.events, &b.flows, &b.links)
    };
    runs.len() > 1 && runs.iter().all(|r| same(r, &runs[0]))
}

/// Returns the sentence that reports equal runs.
fn all_equal(n: usize) -> String {
    format!("all {n} replications are equal: no random element has an effect")
}

/// Formats an estimate times `scale`, with its interval if there are several runs.
pub(crate) fn with_interval(estimate: &Estimate, scale: f64, n: usize) -> String {
    let value = figure(round_to_four_digits(estimate.value * scale));
    match estimate.interval.filter(|_| n > 1) {
        Some(i) if is_even(i.kind) => {
            format!("{value} ± {}", figure(round_to_two_digits(i.half_width() * scale)))
        }
        Some(i) => {
            let [low, high] = [i.low, i.high].map(|b| figure(round_to_four_digits(b * scale)));
            format!("{value} [{low}, {high}]")
        }
        None if n > 1 && estimate.equal => value + EQUAL,
        None => value,
    }
}

/// Rounds to four significant digits; integers are not rounded.
fn round_to_four_digits(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() || value == value.trunc() {
        return value;
    }
    let digits = 10f64.powi(3 - value.abs().log10().floor() as i32);
    if digits < 1.0 { value.round() } else { (value * digits).round() / digits }
}

/// Rounds to two significant digits, for bounds.
fn round_to_two_digits(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = 10f64.powi(1 - value.abs().log10().floor() as i32);
    (value * digits).round() / digits
}

fn drop_table(runs: &[Outcome], seed: u64) -> Option<TableSheet> {
    let first = runs.first()?;
    let rows: Vec<Vec<String>> = first
        .flows
        .iter()
        .flat_map(|f| {
            let back = format!("{} (back)", f.flow);
            let there = f.dropped_by.iter().map(|d| (f.flow.clone(), d));
            there.chain(f.back.dropped_by.iter().map(move |d| (back.clone(), d)))
        })
        .map(|(flow, (why, count))| vec![flow, (*why).to_string(), count.to_string()])
        .collect();
    let head = ["flow", "reason", "packets"].map(String::from).to_vec();
    let caption = format!("Dropped packets by reason, in the first run; seed {seed}.");
    (!rows.is_empty()).then_some(TableSheet { caption, head, rows })
}

fn link_table(runs: &[Outcome], seed: u64) -> TableSheet {
    let links = runs.first().map_or(&[][..], |r| &r.links);
    let used = links.iter().filter(|l| l.offered > 0);
    let rows = used.map(|l| {
        vec![
            format!("{} ({} to {})", l.link, l.from, l.to),
            l.offered.to_string(),
            l.dropped.to_string(),
            l.left.to_string(),
            l.waiting.to_string(),
            l.utilisation.map_or("-".into(), |u| format!("{:.1} %", u * 100.0)),
        ]
    });
    TableSheet {
        caption: format!("Links, in the first run; seed {seed}."),
        head: ["link", "offered", "dropped", "sent", "waiting", "busy"].map(String::from).to_vec(),
        rows: rows.collect(),
    }
}

fn sheet(
    scenario: &Scenario,
    runs: &[Outcome],
    summed: &[FlowEstimate<'_>],
    seed: u64,
    files: bool,
) -> Sheet {
    let mut tables: Vec<TableSheet> = [("Flows", COLUMNS), ("Messages", MESSAGES)]
        .into_iter()
        .filter_map(|(what, columns)| flow_table(runs, summed, seed, what, columns))
        .collect();
    tables.extend(drop_table(runs, seed));
    tables.push(link_table(runs, seed));
    let first = runs.first();
    let mut listed = vec![
        ("scenario.toml", "the scenario"),
        ("manifest.json", "version, seed, parameters, host"),
        ("runs.json", "every figure of every run"),
        ("measures.csv", "the same as a long table"),
        ("measures.parquet", "the same as Parquet"),
    ];
    if first.is_some_and(|r| !r.series.is_empty()) {
        listed.push(("series.csv", "observations of the probes"));
        listed.push(("series.parquet", "the same as Parquet"));
    }
    if first.is_some_and(|r| r.records.is_some()) {
        listed.push(("packets.parquet", "every step of every packet"));
    }
    if first.is_some_and(|r| r.view.is_some()) {
        listed.extend([
            (view::network::FILE, "nodes, links and flows, for ringway lab view"),
            (view::tables::HOPS, "every packet at every link"),
            ("windows.csv", "windows of the senders"),
            (view::tables::WINDOWS, "the same as Parquet"),
        ]);
    }
    let mut listed: Vec<(String, String)> =
        listed.into_iter().map(|(a, b)| (a.into(), b.into())).collect();
    for capture in first.map_or(&[][..], |r| &r.captures) {
        listed.push((capture.clone(), "capture (pcapng)".into()));
    }
    Sheet {
        title: scenario.title.clone(),
        text: scenario.text.split("\n\n").map(|p| p.trim().to_string()).collect(),
        facts: vec![
            ("version".into(), version()),
            ("seed".into(), seed.to_string()),
            (
                "replications".into(),
                if are_equal(runs) { all_equal(runs.len()) } else { runs.len().to_string() },
            ),
            (
                "virtual time".into(),
                first.map_or(String::new(), |r| format!("{} s", figure(r.ended))),
            ),
        ],
        tables,
        charts: first.map_or(Vec::new(), |r| {
            let mut all = charts(&r.series, seed);
            // Figures whose horizontal axis is the time of the run.
            for chart in all.iter_mut().filter(|c| c.x.label == "time") {
                chart.shaded = down_times(scenario, r.ended);
                chart.caption += &down_caption(scenario, r.ended);
            }
            all.extend(message_delays(runs, seed));
            all
        }),
        network: Some(network(scenario)),
        rings: Vec::new(),
        pictures: Vec::new(),
        ladders: Vec::new(),
        files: if files { listed } else { Vec::new() },
    }
}

/// Returns one figure for each kind of probe, with all its series.
pub(super) fn charts(series: &[Series], seed: u64) -> Vec<ChartSheet> {
    let mut charts = Vec::new();
    for what in [ProbeKind::Delay, ProbeKind::Throughput, ProbeKind::Cwnd, ProbeKind::Queue] {
        let of: Vec<&Series> = series.iter().filter(|s| s.what == what).collect();
        for (part, of) in of.chunks(MAX_SERIES).enumerate() {
            let number = if part == 0 { String::new() } else { format!("-{}", part + 1) };
            charts.push(chart(what, of, seed, &number));
            if what == ProbeKind::Delay {
                charts.push(distribution(of, seed, &number));
            }
        }
    }
    charts
        .extend(series.iter().filter(|s| s.what == ProbeKind::Sequence).map(|s| sequence(s, seed)));
    charts
}

/// Returns the distribution of message delays over all replications, and its upper tail.
fn message_delays(runs: &[Outcome], seed: u64) -> Vec<ChartSheet> {
    let of = |r: &Outcome| -> Vec<Series> {
        r.series.iter().filter(|s| s.what == ProbeKind::MessageDelay).cloned().collect()
    };
    let mut pooled = runs.first().map_or(Vec::new(), of);
    for series in &mut pooled {
        for other in runs.iter().skip(1).flat_map(|r| &r.series) {
            if other.what == ProbeKind::MessageDelay && other.of == series.of {
                series.points.extend(&other.points);
            }
        }
    }
    let pooled: Vec<&Series> = pooled.iter().collect();
    let n = runs.len();
    let rests_on = Some(match n {
        1 => (1, "run".into()),
        n if are_equal(runs) => (1, format!("run; {}", all_equal(n))),
        n => (n, "replications".into()),
    });
    let delay = || AxisSheet::new("delay", "s").log();
    let mut charts = Vec::new();
    for (part, of) in pooled.chunks(MAX_SERIES).enumerate() {
        let number = if part == 0 { String::new() } else { format!("-{}", part + 1) };
        charts.push(ChartSheet {
            name: format!("message-delay-ecdf{number}"),
            title: titled("Distribution of the messages' delay", of),
            caption: "Share of messages whose delay, from when each was due to its delivery to the program, was at \
                      most this."
                .into(),
            rests_on: rests_on.clone(),
            x: delay(),
            ..distribution(of, seed, &number)
        });
        let tail = |s: &&Series| SeriesSheet::tail(&s.of, s.points.iter().map(|p| p[1]).collect());
        charts.push(ChartSheet {
shaded: Vec::new(),
            name: format!("message-delay-tail{number}"),
            title: titled("Messages with a longer delay", of),
            caption: "Share of delivered messages whose delay, from when each was due to its delivery to the \
                      program, was longer."
                .into(),
            seed,
            rests_on: rests_on.clone(),
            x: delay(),
            y: AxisSheet::new("fraction with a longer delay", "").log(),
            series: of.iter().map(tail).collect(),
        });
    }
    charts
}

fn chart(what: ProbeKind, of: &[&Series], seed: u64, number: &str) -> ChartSheet {
    let time = || AxisSheet::new("time", "s");
    let (title, caption, style, x, y) = match what {
        ProbeKind::Delay => (
            "Delay of each packet",
            "Time from the sender to the receiver, in the order of arrival.",
            Style::Scatter,
            AxisSheet::new("packet received", "number"),
            AxisSheet::new("delay", "s"),
        ),
        ProbeKind::Throughput => (
            "Throughput",
            "Received bits, including IP headers, averaged over each interval.",
            Style::Line,
            time(),
            AxisSheet::new("throughput", "bit/s"),
        ),
        ProbeKind::Cwnd => (
            "Congestion window",
            "The window of the sender.",
            Style::Step,
            time(),
            AxisSheet::new("congestion window", "B"),
        ),
        _ => (
            "Queue",
            "Packets waiting for the link, without the one being sent.",
            Style::Step,
            time(),
            AxisSheet::new("queue", "packets"),
        ),
    };
    ChartSheet {
        shaded: Vec::new(),
        name: format!("{}{number}", what.as_str()),
        title: titled(title, of),
        caption: caption.into(),
        seed,
        rests_on: Some((1, "run".into())),
        x,
        y,
        series: of.iter().map(|s| SeriesSheet::new(&s.of, style, &s.points)).collect(),
    }
}

/// Appends the name of the flow or link to the title if the figure shows only one.
fn titled(title: &str, of: &[&Series]) -> String {
    match of {
        [one] => format!("{title}, {}", one.of),
        _ => title.into(),
    }
}

fn distribution(of: &[&Series], seed: u64, number: &str) -> ChartSheet {
    ChartSheet {
        shaded: Vec::new(),
        name: format!("delay-ecdf{number}"),
        title: titled("Distribution of the delay", of),
        caption: "Share of packets whose delay was at most this.".into(),
        seed,
        rests_on: Some((1, "run".into())),
        x: AxisSheet::new("delay", "s"),
        y: AxisSheet::default(),
        series: of.iter().map(|s| SeriesSheet::new(&s.of, Style::Ecdf, &s.points)).collect(),
    }
}

fn sequence(series: &Series, seed: u64) -> ChartSheet {
    let mut drawn = vec![
        SeriesSheet::new("sent", Style::Scatter, &series.points),
        SeriesSheet::new("arrived", Style::Arrived, &series.arrived),
    ];
    if !series.lost.is_empty() {
        drawn.push(SeriesSheet::new("lost", Style::Lost, &series.lost));
    }
    ChartSheet {
        shaded: Vec::new(),
        name: format!("sequence-{}", series.of),
        title: format!("Packets over time, {}", series.of),
        caption:
            "Times at which the n-th packet was sent, and arrived or was lost; a retransmission is a separate packet."
                .into(),
        seed,
        rests_on: Some((1, "run".into())),
        x: AxisSheet::new("time", "s"),
        y: AxisSheet::new("packet", "number"),
        series: drawn,
    }
}

fn text(scenario: &Scenario, runs: &[Outcome], sheet: &Sheet) -> String {
    let mut text = format!("{}\n\n", scenario.title);
    for table in &sheet.tables {
        text += &format!("{}\n{}\n", table.caption, columns(&table.head, &table.rows));
    }
    let events: u64 = runs.iter().map(|r| r.events).sum();
    let ended = runs.first().map_or(0.0, |r| r.ended);
    text + &format!("ended at {} s of virtual time, {events} events in all\n", figure(ended))
}

/// Returns the long tables of a run, and the estimates.
fn tables(
    runs: &[Outcome],
    summed: &[FlowEstimate<'_>],
) -> Result<Vec<(&'static str, Table)>, Failure> {
    let estimates = summed.iter().map(|s| (s.flow, s.measure, s.estimate));
    let mut tables = vec![
        ("measures", output::measures(runs)?),
        ("summary", output::summary(estimates)?),
        ("links", output::links(runs)?),
    ];
    if let Some(first) = runs.first() {
        tables.push(("series", output::series(first)?));
        if let Some(records) = &first.records {
            tables.push(("packets", output::packet_table(records)?));
        }
    }
    Ok(tables)
}

fn summary(summed: &[FlowEstimate<'_>]) -> Vec<Value> {
    let entry = |s: &FlowEstimate<'_>| {
        let interval = s.estimate.interval;
        json!({
            "flow": s.flow,
            "measure": s.measure,
            "unit": unit(s.measure),
            "n": s.estimate.n,
            "mean": s.estimate.value,
            "low": interval.map(|i| i.low),
            "high": interval.map(|i| i.high),
            "interval": interval.map(|i| i.to_string()),
            "equal": s.estimate.equal,
        })
    };
    summed.iter().map(entry).collect()
}

fn json(
    source: &Source,
    scenario: &Scenario,
    runs: &[Outcome],
    summed: &[FlowEstimate<'_>],
    seed: u64,
) -> Value {
    json!({
        "scenario": source.name,
        "title": scenario.title,
        "version": version(),
        "seed": seed,
        "replications": runs.len(),
        "equal": are_equal(runs),
        "summary": summary(summed),
        "runs": runs,
    })
}

fn write(
    out: &Path,
    source: &Source,
    scenario: &Scenario,
    runs: &[Outcome],
    sheet: &Sheet,
    seed: u64,
    began: Instant,
) -> Result<(), Failure> {
    output::write(&out.join("scenario.toml"), source.text.as_bytes())?;
    output::write_json(&out.join("runs.json"), &runs)?;
    output::write_both(out, "measures", &output::measures(runs)?)?;
    if let Some(first) = runs.first() {
        if !first.series.is_empty() {
            output::write_both(out, "series", &output::series(first)?)?;
        }
        if let Some(records) = &first.records {
            output::packets(&out.join("packets.parquet"), records)?;
        }
        if let Some(view) = &first.view {
            let tables = view::tables::write(out, view)?;
            let network = view_network(scenario, first, view, seed, tables);
            output::write_json(&out.join(view::network::FILE), &network)?;
        }
    }
    output::write_json(&out.join(SHEET), sheet)?;
    output::draw(sheet, out)?;
    let manifest = Manifest {
        kind: "run".into(),
        version: version(),
        what: source.name.clone(),
        seed,
        replications: runs.len() as u64,
        parameters: json!({ "scenario": source.text, "generator": scenario.generator }),
        host: host(began.elapsed().as_secs_f64()),
    };
    Ok(output::write_json(&out.join(MANIFEST), &manifest)?)
}
