//! Tables and figures of a growing mesh.

use super::world::MEASURES;
use super::{Cell, Outcome, Settings};
use crate::commands::with_interval;
use crate::output::{
    AxisSheet, ChartSheet, IntervalKind, SeriesSheet, Sheet, Style, TableSheet, figure, version,
};
use ringway_figures::statistics::{Estimate, mean, ratio_of_replications};
use ringway_figures::table::{RowSink, Schema, Table, TableError, Type};

/// Figures: name, title, vertical axis with its unit, whether that is logarithmic, and the measures.
type Chart = (&'static str, &'static str, (&'static str, &'static str), bool, &'static str);
const CHARTS: &[Chart] = &[
    ("delivery", "Data that arrives at rest", ("share that arrives", ""), false, "delivery"),
    (
        "delivery-faults",
        "Data that arrives during faults",
        ("share that arrives", ""),
        false,
        "delivery_faults",
    ),
    (
        "stretch",
        "Length of paths, relative to the shortest",
        ("stretch", ""),
        false,
        "stretch_mean",
    ),
    ("stretch-p95", "Length of paths, 95th percentile", ("stretch", ""), false, "stretch_p95"),
    ("settled", "Time until 99 % of data arrives", ("time", "s"), false, "settled"),
    (
        "contacts",
        "Routers to which a router knows a route",
        ("contacts", ""),
        false,
        "contacts_mean",
    ),
    ("heap", "Memory of a router", ("allocated", "B"), false, "heap"),
    (
        "control-start",
        "Control in the first 10 s",
        ("octets each router sends", "B/s"),
        true,
        "control_start",
    ),
    ("control-rest", "Control at rest", ("octets each router sends", "B/s"), true, "control_rest"),
];

/// Columns of the table: head, measure, factor.
const COLUMNS: &[(&str, &str, f64)] = &[
    ("arrives at rest (%)", "delivery", 100.0),
    ("with faults (%)", "delivery_faults", 100.0),
    ("stretch", "stretch_mean", 1.0),
    ("p95", "stretch_p95", 1.0),
    ("99 % after (s)", "settled", 1.0),
    ("contacts", "contacts_mean", 1.0),
    ("most", "contacts_max", 1.0),
    ("heap (B)", "heap", 1.0),
    ("start (B/s)", "control_start", 1.0),
    ("rest (B/s)", "control_rest", 1.0),
];

/// Estimates a measure over the replications of a cell: a share from its counts, all else as a mean.
fn estimate(cell: &Cell, name: &str) -> Option<Estimate> {
    let share = ["delivery", "delivery_faults"].iter().position(|share| *share == name);
    if let Some(share) = share {
        let counts = cell.outcomes.iter().map(|outcome| {
            let [arrived, lost] = outcome.packets[share];
            (arrived, arrived + lost)
        });
        let counts: Vec<_> = counts.filter(|(_, sent)| *sent > 0).collect();
        return ratio_of_replications(&counts).ok();
    }
    let values: Vec<f64> = cell.outcomes.iter().filter_map(|outcome| outcome.get(name)).collect();
    mean(&values).ok()
}

fn routers(cell: &Cell) -> f64 {
    let nodes = cell.outcomes.iter().map(|outcome| f64::from(outcome.nodes)).sum::<f64>();
    nodes / cell.outcomes.len().max(1) as f64
}

/// Returns the report.
pub fn sheet(settings: &Settings, cells: &[Cell], seed: u64, replications: u64) -> Sheet {
    let text = settings.text.split("\n\n").map(|p| p.trim().to_string());
    let files = [
        ("scenario.toml", "the scenario"),
        ("manifest.json", "version, seed, parameters, host"),
        ("cells.csv", "every figure of every run as a long table"),
        ("cells.parquet", "the same as Parquet"),
        ("summary.csv", "every figure with its interval"),
        ("summary.parquet", "the same as Parquet"),
        ("wall.csv", "seconds of the real clock, which differ from run to run"),
    ];
    Sheet {
        title: settings.title.clone(),
        text: text.filter(|p| !p.is_empty()).collect(),
        facts: vec![
            ("version".into(), version()),
            ("seed".into(), seed.to_string()),
            ("replications".into(), replications.to_string()),
        ],
        tables: vec![table(cells, seed, replications), work(cells)],
        charts: CHARTS.iter().map(|c| chart(c, cells, seed, replications)).collect(),
        files: files.map(|(file, what)| (file.into(), what.into())).to_vec(),
        ..Sheet::default()
    }
}

fn table(cells: &[Cell], seed: u64, replications: u64) -> TableSheet {
    let mut head = vec!["topology".to_string(), "routers".into()];
    head.extend(COLUMNS.iter().map(|column| column.0.to_string()));
    let row = |cell: &Cell| {
        let column = |(_, name, factor): &(&str, &str, f64)| {
            let Some(found) = estimate(cell, name) else { return "-".into() };
            let shown = with_interval(&found, *factor, replications as usize);
            match found.n < cell.outcomes.len() && *name == "settled" {
                true => format!("{shown} ({} of {})", found.n, cell.outcomes.len()),
                false => shown,
            }
        };
        let mut cells = vec![cell.shape.clone(), figure(routers(cell).round())];
        cells.extend(COLUMNS.iter().map(column));
        cells
    };
    TableSheet {
        caption: format!(
            "Networks by topology and size; n = {replications}, seed {seed}; 95 % intervals, Wilson's for shares and \
             Student's t otherwise."
        ),
        head,
        rows: cells.iter().map(row).collect(),
    }
}

/// What the simulation did.
fn work(cells: &[Cell]) -> TableSheet {
    let row = |cell: &Cell| {
        let sum = |of: &dyn Fn(&Outcome) -> f64| {
            cell.outcomes.iter().map(of).sum::<f64>() / cell.outcomes.len().max(1) as f64
        };
        vec![
            cell.shape.clone(),
            figure(routers(cell).round()),
            figure(sum(&|o| o.links as f64).round()),
            figure(sum(&|o| o.get("events").unwrap_or_default()).round()),
            figure(sum(&|o| o.get("memory").unwrap_or_default()).round()),
        ]
    };
    TableSheet {
        caption: "What was simulated, in the mean of the replications. Memory is that of the network at rest, with \
                  links, events and packets."
            .into(),
        head: ["topology", "routers", "links", "events", "memory a router (B)"]
            .map(String::from)
            .to_vec(),
        rows: cells.iter().map(row).collect(),
    }
}

fn chart(chart: &Chart, cells: &[Cell], seed: u64, replications: u64) -> ChartSheet {
    let (name, title, (label, unit), log, measure) = *chart;
    let mut series: Vec<SeriesSheet> = Vec::new();
    let is_share = measure.starts_with("delivery");
    for cell in cells {
        let Some(found) = estimate(cell, measure) else { continue };
        let interval = found.interval.map(|i| [i.low, i.high]);
        let point = ([routers(cell), found.value], (interval, found.n));
        match series.iter_mut().find(|s| s.name == cell.shape) {
            Some(same) => {
                same.points.push(point.0);
                same.bounds.push(point.1);
            }
            None => series.push(SeriesSheet {
                name: cell.shape.clone(),
                style: Style::Ribbon,
                points: vec![point.0],
                bounds: vec![point.1],
                kind: if is_share { IntervalKind::Wilson } else { IntervalKind::Student },
                ..SeriesSheet::default()
            }),
        }
    }
    let meaning = MEASURES.iter().find(|m| m.0 == measure).map_or("", |m| m.2);
    let y = AxisSheet::new(label, unit);
    ChartSheet {
        name: name.into(),
        title: title.into(),
        caption: format!("{}{}.", meaning[..1].to_uppercase(), &meaning[1..]),
        seed,
        rests_on: Some((replications as usize, "replications".into())),
        x: AxisSheet::new("routers", "").log(),
        y: if log { y.log() } else { y },
        series,
        shaded: Vec::new(),
    }
}

/// Returns every figure of every run.
pub fn long_table(cells: &[Cell]) -> Result<Table, TableError> {
    let mut table = Table::new(Schema::new([
        ("topology", Type::Text),
        ("size", Type::U64),
        ("routers", Type::U64),
        ("links", Type::U64),
        ("replication", Type::U64),
        ("measure", Type::Text),
        ("unit", Type::Text),
        ("value", Type::F64),
    ])?);
    for cell in cells {
        for (replication, outcome) in (0u64..).zip(&cell.outcomes) {
            for ((name, unit, _), value) in MEASURES.iter().zip(&outcome.values) {
                table.row(&[
                    cell.shape.as_str().into(),
                    u64::from(cell.size).into(),
                    u64::from(outcome.nodes).into(),
                    (outcome.links as u64).into(),
                    replication.into(),
                    (*name).into(),
                    (*unit).into(),
                    (*value).into(),
                ])?;
            }
        }
    }
    Ok(table)
}

/// Returns every figure with its interval.
pub fn summary_table(cells: &[Cell]) -> Result<Table, TableError> {
    let mut table = Table::new(Schema::new([
        ("topology", Type::Text),
        ("size", Type::U64),
        ("measure", Type::Text),
        ("unit", Type::Text),
        ("value", Type::F64),
        ("low", Type::F64),
        ("high", Type::F64),
        ("interval", Type::Text),
        ("n", Type::U64),
    ])?);
    for cell in cells {
        for (name, unit, _) in MEASURES {
            let Some(found) = estimate(cell, name) else { continue };
            let interval = found.interval;
            let kind = interval.map(|i| i.to_string()).unwrap_or_default();
            table.row(&[
                cell.shape.as_str().into(),
                u64::from(cell.size).into(),
                (*name).into(),
                (*unit).into(),
                found.value.into(),
                interval.map(|i| i.low).into(),
                interval.map(|i| i.high).into(),
                kind.as_str().into(),
                (found.n as u64).into(),
            ])?;
        }
    }
    Ok(table)
}
