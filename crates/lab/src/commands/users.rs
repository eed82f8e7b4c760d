//! `ringway lab run` of a scenario with a section `[users]`.

use super::{Answer, Failure, RunArgs, Source};
use crate::onesip::scale::{self, Figures, Settings};
use crate::output::{self, MANIFEST, Manifest, columns, host, version};
use crate::scenario::Document;
use ringway_figures::table::{RowSink, Schema, Table, Type};
use ringway_sansio::Duration;
use serde_json::{Value, json};
use std::time::Instant;

/// Heads of the table.
const HEAD: [&str; 12] = [
    "system",
    "routers",
    "users",
    "registered",
    "calls",
    "ring (%)",
    "absent",
    "failed",
    "went",
    "50 % (ms)",
    "99 % (ms)",
    "B/s a router",
];

/// Runs the scenario.
pub(super) fn run(
    args: &RunArgs,
    source: &Source,
    document: &Document<'_>,
) -> Result<Answer, Failure> {
    let settings = Settings::from_document(document)?;
    let (seed, replications) = args.begin(settings.seed, settings.replications)?;
    let began = Instant::now();
    let mut all = Vec::new();
    for replication in 0..replications {
        let seed = seed.wrapping_add(replication.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        all.extend(scale::run(&settings, seed)?);
    }
    let head = HEAD.map(String::from);
    let rows: Vec<Vec<String>> = all.iter().map(|figures| row(figures).to_vec()).collect();
    let mut text = format!("{}\n\n{}\n", settings.title, columns(&head, &rows));
    for figures in &all {
        let Figures { system, routers, wall, .. } = figures;
        text += &format!("{system}, {routers} routers: {wall:.0} s of the real clock\n");
        let [found, not_found] = figures.look_ups;
        if found + not_found > 0 {
            text += &format!(
                "{system}, {routers} routers: {found} look-ups have found the user's home, {not_found} have not\n"
            );
        }
        for (status, count) in figures.failures.iter().filter(|(_, count)| **count > 0) {
            text += &format!("{system}, {routers} routers: {count} calls failed with {status}\n");
        }
    }
    let json = json!({
        "scenario": source.name,
        "title": settings.title,
        "version": version(),
        "seed": seed,
        "runs": all.iter().map(value).collect::<Vec<_>>(),
    });
    if let Some(out) = &args.out {
        output::write(&out.join("scenario.toml"), source.text.as_bytes())?;
        output::write_both(out, "cells", &table(&all)?)?;
        let manifest = Manifest {
            kind: "run".into(),
            version: version(),
            what: source.name.clone(),
            seed,
            replications,
            parameters: json!({ "scenario": source.text }),
            host: host(began.elapsed().as_secs_f64()),
        };
        output::write_json(&out.join(MANIFEST), &manifest)?;
        text += &format!("\nwritten to {}\n", out.display());
    }
    let tables = if args.tables { vec![("cells", table(&all)?)] } else { Vec::new() };
    Ok(Answer { text, json, tables, ..Answer::default() })
}

fn milliseconds(time: Option<Duration>) -> Option<f64> {
    time.map(|time| time.as_secs_f64() * 1_000.0)
}

fn row(figures: &Figures) -> [String; HEAD.len()] {
    let shown = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "-".into(), |value| format!("{value:.digits$}"))
    };
    let [rest, busy] = figures.control.map(|rate| format!("{rate:.0}"));
    [
        figures.system.into(),
        figures.routers.to_string(),
        figures.users.to_string(),
        figures.registered.to_string(),
        figures.calls.to_string(),
        shown(figures.reached().map(|share| share * 100.0), 3),
        figures.absent.to_string(),
        figures.failed().to_string(),
        figures.went.to_string(),
        shown(milliseconds(figures.percentile(50.0)), 1),
        shown(milliseconds(figures.percentile(99.0)), 1),
        format!("{rest}, then {busy}"),
    ]
}

fn value(figures: &Figures) -> Value {
    json!({
        "system": figures.system,
        "routers": figures.routers,
        "users": figures.users,
        "registered": figures.registered,
        "calls": figures.calls,
        "rang": figures.rang,
        "absent": figures.absent,
        "failed": figures.failed(),
        "failures": figures.failures,
        "went": figures.went,
        "look_ups_found": figures.look_ups[0],
        "look_ups_not_found": figures.look_ups[1],
        "median_ms": milliseconds(figures.percentile(50.0)),
        "p99_ms": milliseconds(figures.percentile(99.0)),
        "octets_per_second_at_rest": figures.control[0],
        "octets_per_second": figures.control[1],
    })
}

fn table(all: &[Figures]) -> Result<Table, Failure> {
    let mut table = Table::new(Schema::new([
        ("system", Type::Text),
        ("routers", Type::U64),
        ("users", Type::U64),
        ("registered", Type::U64),
        ("calls", Type::U64),
        ("rang", Type::U64),
        ("absent", Type::U64),
        ("failed", Type::U64),
        ("went", Type::U64),
        ("median_ms", Type::F64),
        ("p99_ms", Type::F64),
        ("octets_per_second_at_rest", Type::F64),
        ("octets_per_second", Type::F64),
    ])?);
    for figures in all {
        let time = |percent| milliseconds(figures.percentile(percent)).unwrap_or(f64::NAN);
        table.row(&[
            figures.system.into(),
            u64::from(figures.routers).into(),
            u64::from(figures.users).into(),
            u64::from(figures.registered).into(),
            figures.calls.into(),
            figures.rang.into(),
            figures.absent.into(),
            figures.failed().into(),
            figures.went.into(),
            time(50.0).into(),
            time(99.0).into(),
            figures.control[0].into(),
            figures.control[1].into(),
        ])?;
    }
    Ok(table)
}
