//! `ringway lab run` of a scenario with a section `[mesh]`.

use super::{Answer, Failure, RunArgs, Source};
use crate::mesh::scale::{self, Cell, MEASURES, Settings};
use crate::output::{self, MANIFEST, Manifest, PAGE, SHEET, Sheet, columns, host, version};
use crate::progress::Progress;
use crate::scenario::Document;
use ringway_figures::table::{RowSink, Schema, Table, Type};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;

/// Runs the scenario.
pub(super) fn run(
    args: &RunArgs,
    source: &Source,
    document: &Document<'_>,
) -> Result<Answer, Failure> {
    let settings = Settings::from_document(document, Path::new(&source.name))?;
    let (seed, replications) = args.begin(settings.seed, settings.replications)?;
    let began = Instant::now();
    let cells = {
        let progress = Progress::start();
        progress.set_text(&settings.title);
        scale::run(&settings, seed, replications, &progress)?
    };
    let sheet = scale::sheet(&settings, &cells, seed, replications);
    let mut text = format!("{}\n\n", settings.title);
    for table in &sheet.tables {
        text += &format!("{}\n{}\n", table.caption, columns(&table.head, &table.rows));
    }
    text += &walls(&cells);
    if let Some(out) = &args.out {
        write(out, source, &cells, &sheet, (seed, replications), began)?;
        text += &format!("\nwritten to {}\n", out.join(PAGE).display());
    }
    let json = json(source, &settings, &cells, seed, replications);
    let mut tables = Vec::new();
    if args.tables {
        tables.push(("cells", scale::long_table(&cells)?));
        tables.push(("summary", scale::summary_table(&cells)?));
    }
    Ok(Answer { text, json, tables, ..Answer::default() })
}

/// Returns a line of the time that each size took.
fn walls(cells: &[Cell]) -> String {
    let total: f64 = cells.iter().flat_map(|cell| &cell.outcomes).map(|o| o.wall).sum();
    let slowest = cells.iter().flat_map(|c| c.outcomes.iter().map(move |o| (c, o.wall)));
    let slowest = slowest.max_by(|a, b| a.1.total_cmp(&b.1));
    let slowest = slowest.map_or(String::new(), |(cell, wall)| {
        format!("; the longest, {} of {}, {wall:.1} s", cell.shape, cell.size)
    });
    format!("all networks together took {total:.0} s of the real clock{slowest}\n")
}

fn write(
    out: &Path,
    source: &Source,
    cells: &[Cell],
    sheet: &Sheet,
    (seed, replications): (u64, u64),
    began: Instant,
) -> Result<(), Failure> {
    output::write(&out.join("scenario.toml"), source.text.as_bytes())?;
    output::write_both(out, "cells", &scale::long_table(cells)?)?;
    output::write_both(out, "summary", &scale::summary_table(cells)?)?;
    let wall = out.join("wall.csv");
    wall_table(cells)?.write_csv(&wall)?;
    output::write_json(&out.join(SHEET), sheet)?;
    output::draw(sheet, out)?;
    let manifest = Manifest {
        kind: "run".into(),
        version: version(),
        what: source.name.clone(),
        seed,
        replications,
        parameters: json!({ "scenario": source.text }),
        host: host(began.elapsed().as_secs_f64()),
    };
    Ok(output::write_json(&out.join(MANIFEST), &manifest)?)
}

fn wall_table(cells: &[Cell]) -> Result<Table, Failure> {
    let mut table = Table::new(Schema::new([
        ("topology", Type::Text),
        ("size", Type::U64),
        ("replication", Type::U64),
        ("seconds", Type::F64),
    ])?);
    for cell in cells {
        for (replication, outcome) in (0u64..).zip(&cell.outcomes) {
            let name = cell.shape.as_str().into();
            let size = u64::from(cell.size).into();
            table.row(&[name, size, replication.into(), outcome.wall.into()])?;
        }
    }
    Ok(table)
}

fn json(source: &Source, settings: &Settings, cells: &[Cell], seed: u64, n: u64) -> Value {
    let run = |cell: &Cell, replication: usize| {
        let outcome = &cell.outcomes[replication];
        let values = MEASURES.iter().zip(&outcome.values);
        let values = values.map(|((name, ..), value)| ((*name).to_string(), json!(value)));
        json!({
            "topology": cell.shape,
            "size": cell.size,
            "routers": outcome.nodes,
            "links": outcome.links,
            "replication": replication,
            "measures": values.collect::<serde_json::Map<_, _>>(),
        })
    };
    let runs = cells.iter().flat_map(|c| (0..c.outcomes.len()).map(move |r| (c, r)));
    json!({
        "scenario": source.name,
        "title": settings.title,
        "version": version(),
        "seed": seed,
        "replications": n,
        "runs": runs.map(|(cell, r)| run(cell, r)).collect::<Vec<_>>(),
    })
}
