//! The tables that a run writes for a page: `hops.parquet` and `windows.csv` with `windows.parquet`.

use crate::output::{OutputError, write_both};
use crate::run::View;
use crate::run::Window;
use crate::run::trace::{Content, Hop, TracedPacket};
use ringway_figures::table::{Cell, ParquetWriter, RowSink, Schema, Table, TableError, Type};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Name of the file of hops.
pub const HOPS: &str = "hops.parquet";
/// Name of the file of windows.
pub const WINDOWS: &str = "windows.parquet";
/// Name of the files of windows, without extension.
const WINDOWS_STEM: &str = "windows";

/// The columns of hops: a packet at a link.
pub(super) const HOP_COLUMNS: [(&str, Type); 16] = [
    ("packet", Type::U64),
    ("flow", Type::Text),
    ("direction", Type::Text),
    ("kind", Type::Text),
    ("what", Type::Text),
    ("seq", Type::U64),
    ("ack", Type::U64),
    ("stream", Type::U64),
    ("size_bytes", Type::U64),
    ("link", Type::Text),
    ("from", Type::Text),
    ("at_ns", Type::U64),
    ("waited_ns", Type::U64),
    ("sending_ns", Type::U64),
    ("flying_ns", Type::U64),
    ("lost", Type::Text),
];

/// The columns of windows: a change of a sender's window.
pub(super) const WINDOW_COLUMNS: [(&str, Type); 7] = [
    ("at_ns", Type::U64),
    ("flow", Type::Text),
    ("path", Type::Text),
    ("cwnd_bytes", Type::F64),
    ("ssthresh_bytes", Type::F64),
    ("flight_bytes", Type::F64),
    ("srtt_ns", Type::U64),
];

/// Writes the tables of a run; returns the sum of each.
pub fn write(dir: &Path, view: &View) -> Result<BTreeMap<String, String>, OutputError> {
    let path = dir.join(HOPS);
    write_hops(&path, view).map_err(|e| OutputError::rendering(&path, e))?;
    let table = windows(view).map_err(|e| OutputError::rendering(&dir.join(WINDOWS), e))?;
    write_both(dir, WINDOWS_STEM, &table)?;
    let sum = |name: &str| {
        let path = dir.join(name);
        Ok((name.to_string(), sum(&path).map_err(OutputError::file(&path))?))
    };
    [HOPS, WINDOWS].into_iter().map(sum).collect()
}

/// Returns the SHA-256 of a file in hexadecimal.
pub(super) fn sum(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut part = vec![0; 1 << 16];
    loop {
        let length = file.read(&mut part)?;
        if length == 0 {
            break;
        }
        hash.update(&part[..length]);
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn write_hops(path: &Path, view: &View) -> Result<(), TableError> {
    let mut writer = ParquetWriter::create(path, Schema::new(HOP_COLUMNS)?)?;
    let unknown = TracedPacket::default();
    for hop in &view.trace.hops {
        let index = (hop.packet as usize).wrapping_sub(1);
        let packet = view.trace.packets.get(index).unwrap_or(&unknown);
        writer.row(&hop_row(view, hop, packet))?;
    }
    writer.finish()
}

fn name<'a, T>(all: &'a [T], index: Option<u32>, name: impl Fn(&'a T) -> &'a str) -> Cell<'a> {
    Cell::Text(index.and_then(|i| all.get(i as usize)).map_or("", name))
}

fn hop_row<'a>(view: &'a View, hop: &Hop, packet: &TracedPacket) -> [Cell<'a>; 16] {
    let Content { kind, what, seq, ack, stream } = packet.content;
    [
        hop.packet.into(),
        name(&view.flows, packet.flow.map(|f| f.0), String::as_str),
        packet.flow.map_or("", |f| if f.1 { "there" } else { "back" }).into(),
        kind.as_str().into(),
        what.into(),
        seq.into(),
        ack.into(),
        stream.map(u64::from).into(),
        u64::from(packet.size).into(),
        name(&view.links, hop.link.map(|l| l.0), |l| l.0.as_str()),
        name(&view.nodes, Some(hop.node), String::as_str),
        hop.at.into(),
        hop.waited.into(),
        hop.sending.into(),
        hop.flying.into(),
        hop.lost.map_or("", |reason| reason.as_str()).into(),
    ]
}

/// Returns the rows of all curves, those that differ from the one before.
fn windows(view: &View) -> Result<Table, TableError> {
    let mut table = Table::new(Schema::new(WINDOW_COLUMNS)?);
    let mut last: Vec<Option<Window>> = vec![None; view.windows.curves.len()];
    for tick in 0..view.windows.ticks {
        let at = view.windows.every.as_nanos() as u64 * tick as u64;
        for (curve, last) in view.windows.curves.iter().zip(&mut last) {
            let value = curve.values.get(tick).copied().flatten();
            if value == *last {
                continue;
            }
            *last = value;
            let path = curve.path.and_then(|path| view.paths.get(&path));
            table.row(&[
                at.into(),
                name(&view.flows, Some(curve.flow), String::as_str),
                path.map_or("", String::as_str).into(),
                value.map(|w| w.cwnd).into(),
                value.and_then(|w| w.ssthresh).into(),
                value.map(|w| w.flight).into(),
                value.and_then(|w| w.srtt).map(|srtt| srtt.as_nanos() as u64).into(),
            ])?;
        }
    }
    Ok(table)
}
