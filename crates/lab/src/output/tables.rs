//! Long tables on disk: one row per observation.

use super::{OutputError, folder};
use crate::run::{Outcome, Rows, unit};
use ringway_figures::statistics::Estimate;
use ringway_figures::table::{Cell, ParquetWriter, RowSink, Schema, Table, TableError, Type};
use std::path::Path;

/// Writes a table as CSV and as Parquet.
pub fn write_both(dir: &Path, stem: &str, table: &Table) -> Result<(), OutputError> {
    folder(dir)?;
    let csv = dir.join(format!("{stem}.csv"));
    table.write_csv(&csv).map_err(|e| OutputError::rendering(&csv, e))?;
    let parquet = dir.join(format!("{stem}.parquet"));
    table.write_parquet(&parquet).map_err(|e| OutputError::rendering(&parquet, e))
}

/// Returns every figure of every flow of every run.
pub fn measures(runs: &[Outcome]) -> Result<Table, TableError> {
    let schema = Schema::new([
        ("replication", Type::U64),
        ("seed", Type::U64),
        ("flow", Type::Text),
        ("measure", Type::Text),
        ("unit", Type::Text),
        ("value", Type::F64),
    ])?;
    let mut table = Table::new(schema);
    for run in runs {
        for flow in &run.flows {
            for (name, value) in flow.values() {
                table.row(&[
                    run.replication.into(),
                    run.seed.into(),
                    flow.flow.as_str().into(),
                    name.into(),
                    unit(name).into(),
                    value.into(),
                ])?;
            }
        }
    }
    Ok(table)
}

/// Returns the observations of the probes.
pub fn series(run: &Outcome) -> Result<Table, TableError> {
    let schema = Schema::new([
        ("probe", Type::Text),
        ("of", Type::Text),
        ("event", Type::Text),
        ("x", Type::F64),
        ("y", Type::F64),
    ])?;
    let mut table = Table::new(schema);
    for series in &run.series {
        let parts = [("", &series.points), ("arrived", &series.arrived), ("lost", &series.lost)];
        for (event, points) in parts {
            for [x, y] in points {
                let what = series.what.as_str();
                table.row(&[
                    what.into(),
                    series.of.as_str().into(),
                    event.into(),
                    (*x).into(),
                    (*y).into(),
                ])?;
            }
        }
    }
    Ok(table)
}

/// Returns the estimate of every measure of every flow over all runs.
pub fn summary<'a>(
    estimates: impl Iterator<Item = (&'a str, &'a str, Estimate)>,
) -> Result<Table, TableError> {
    let mut table = Table::new(Schema::new([
        ("flow", Type::Text),
        ("measure", Type::Text),
        ("unit", Type::Text),
        ("n", Type::U64),
        ("mean", Type::F64),
        ("low", Type::F64),
        ("high", Type::F64),
        ("interval", Type::Text),
    ])?);
    for (flow, measure, estimate) in estimates {
        let interval = estimate.interval.map_or(String::new(), |i| i.to_string());
        table.row(&[
            flow.into(),
            measure.into(),
            unit(measure).into(),
            (estimate.n as u64).into(),
            estimate.value.into(),
            estimate.interval.map(|i| i.low).into(),
            estimate.interval.map(|i| i.high).into(),
            interval.as_str().into(),
        ])?;
    }
    Ok(table)
}

/// Returns the figures of the links of every run, both directions.
pub fn links(runs: &[Outcome]) -> Result<Table, TableError> {
    let mut table = Table::new(Schema::new([
        ("replication", Type::U64),
        ("link", Type::Text),
        ("from", Type::Text),
        ("to", Type::Text),
        ("offered", Type::U64),
        ("dropped", Type::U64),
        ("left", Type::U64),
        ("waiting", Type::U64),
        ("utilisation", Type::F64),
    ])?);
    for run in runs {
        for link in &run.links {
            table.row(&[
                run.replication.into(),
                link.link.as_str().into(),
                link.from.as_str().into(),
                link.to.as_str().into(),
                link.offered.into(),
                link.dropped.into(),
                link.left.into(),
                link.waiting.into(),
                link.utilisation.into(),
            ])?;
        }
    }
    Ok(table)
}

fn packet_schema() -> Result<Schema, TableError> {
    Schema::new([
        ("at_ns", Type::U64),
        ("packet", Type::U64),
        ("step", Type::Text),
        ("reason", Type::Text),
        ("node", Type::Text),
        ("interface", Type::Text),
        ("size_bytes", Type::U64),
        ("born_ns", Type::U64),
        ("flow_hash", Type::U64),
        ("hops_left", Type::U64),
    ])
}

fn write_packets(sink: &mut impl RowSink, rows: &Rows) -> Result<(), TableError> {
    let name = |names: &'_ [String], index: u32| -> String {
        names.get(index as usize).cloned().unwrap_or_default()
    };
    for record in &rows.rows {
        let (step, reason) = Rows::step(record);
        let node = name(&rows.nodes, record.node);
        let interface = record.interface.map_or(String::new(), |i| name(&rows.interfaces, i));
        sink.row(&[
            record.at.as_nanos().into(),
            record.packet.into(),
            step.into(),
            reason.into(),
            Cell::Text(&node),
            Cell::Text(&interface),
            u64::from(record.size).into(),
            record.born.as_nanos().into(),
            u64::from(record.flow).into(),
            u64::from(record.hops).into(),
        ])?;
    }
    Ok(())
}

/// Writes every step of every packet directly to disk.
pub fn packets(path: &Path, rows: &Rows) -> Result<(), OutputError> {
    let write = || -> Result<(), TableError> {
        let mut writer = ParquetWriter::create(path, packet_schema()?)?;
        write_packets(&mut writer, rows)?;
        writer.finish()
    };
    write().map_err(|e| OutputError::rendering(path, e))
}

/// Returns every step of every packet.
pub fn packet_table(rows: &Rows) -> Result<Table, TableError> {
    let mut table = Table::new(packet_schema()?);
    write_packets(&mut table, rows)?;
    Ok(table)
}
