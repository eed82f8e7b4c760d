//! Reads the tables of a run and checks them: they may be of another program, or damaged.

use super::ViewError;
use super::network::{self, MAX_NAME, MAX_NUMBER, Network};
use super::tables::{HOP_COLUMNS, HOPS, WINDOW_COLUMNS, WINDOWS, sum};
use crate::output::read_json_up_to;
use crate::run::trace::{MAX_HOPS, PacketKind};
use crate::run::windows::{MAX_CURVES, MAX_TICKS};
use ringway_figures::table::{Cell, Schema, Table, Type, read_parquet_up_to};
use std::collections::HashMap;
use std::path::Path;

/// Maximum size of a table on disk in bytes.
pub const MAX_TABLE: u64 = 256 << 20;
/// Maximum number of different words of a column.
pub const MAX_WORDS: usize = 255;
/// Maximum number of rows of the table of windows.
const MAX_WINDOWS: u64 = (MAX_CURVES * MAX_TICKS) as u64;

/// A run, as a page shows it.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Nodes, links and flows.
    pub network: Network,
    /// Packets in the order of their first hops.
    pub packets: Vec<Packet>,
    /// Hops in the order of lanes, then of times.
    pub hops: Vec<Hop>,
    /// Names of what packets contain.
    pub words: Vec<String>,
    /// Reasons of losses; that of index i has number i + 1.
    pub reasons: Vec<String>,
    /// Windows of senders.
    pub curves: Vec<Curve>,
}

/// A packet. Numbers are one higher than in the table, and 0 where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Packet {
    /// Flow.
    pub flow: u64,
    /// Whether it goes from the receiver to the sender.
    pub back: bool,
    /// Number of its kind.
    pub kind: u64,
    /// Index of its word.
    pub what: u64,
    /// Size in bytes; not one higher.
    pub size: u64,
    /// Sequence number.
    pub seq: u64,
    /// Acknowledged number.
    pub ack: u64,
    /// Stream.
    pub stream: u64,
}

/// A packet at a link. Durations are one higher than in the table, and 0 where there is none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hop {
    /// Twice the index of the link, and one more if it goes from the second node to the first; twice the number of links
    /// for a loss at a node.
    pub lane: usize,
    /// Index of the packet.
    pub packet: u64,
    /// Index of the node that it leaves.
    pub node: u64,
    /// Time at which it came, in nanoseconds.
    pub at: u64,
    /// Time of waiting.
    pub waited: u64,
    /// Time from its first bit to its last.
    pub sending: u64,
    /// Time in flight.
    pub flying: u64,
    /// Number of the reason of its loss; 0 if it was not lost.
    pub lost: u64,
}

/// The window of a flow on a path.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    /// Index of the flow.
    pub flow: usize,
    /// Name of the path; empty if the flow has only one.
    pub path: String,
    /// Times in nanoseconds.
    pub at: Vec<u64>,
    /// Congestion window, slow start threshold and data in flight in bytes; NaN where there is none.
    pub values: [Vec<f64>; 3],
    /// Smoothed round-trip times, one higher than in the table.
    pub srtt: Vec<u64>,
}

/// Reads the tables of a folder.
pub fn read(dir: &Path) -> Result<Scene, ViewError> {
    let file = dir.join(network::FILE);
    if !file.exists() {
        let what = "expected a folder that ringway lab run SCENARIO --out has written, of a scenario with links and flows, \
                    got none of its files for a view";
        return Err(ViewError { file: network::FILE, what: what.into() });
    }
    let network: Network = read_json_up_to(&file, "the network of a run", network::MAX_BYTES)
        .map_err(|e| ViewError::network(without_path(&e, &file)))?;
    network.check()?;
    let table = table(dir, &network, HOPS, &HOP_COLUMNS, MAX_HOPS as u64)?;
    let mut scene = HopReader::new(&network).read(&table)?;
    let table = self::table(dir, &network, WINDOWS, &WINDOW_COLUMNS, MAX_WINDOWS)?;
    scene.curves = curves(&network, &table)?;
    Ok(scene)
}

/// Returns an error without the path that it begins with, which is added to all errors.
fn without_path(error: &impl std::fmt::Display, path: &Path) -> String {
    let text = error.to_string();
    let prefix = format!("{}: ", path.display());
    text.strip_prefix(&prefix).map(Into::into).unwrap_or(text)
}

fn table(
    dir: &Path,
    network: &Network,
    file: &'static str,
    columns: &[(&str, Type)],
    max_rows: u64,
) -> Result<Table, ViewError> {
    let path = dir.join(file);
    let failed = |what: String| ViewError { file, what };
    let length = std::fs::metadata(&path).map_err(|e| failed(e.to_string()))?.len();
    if length > MAX_TABLE {
        return Err(failed(format!("expected at most {MAX_TABLE} bytes, got {length}")));
    }
    if let Some(expected) = network.tables.get(file) {
        let got = sum(&path).map_err(|e| failed(e.to_string()))?;
        if got != *expected {
            let what = format!(
                "expected the table of the same run, with the SHA-256 {} of {}, got {got}",
                expected.chars().take(MAX_NAME).collect::<String>(),
                network::FILE
            );
            return Err(failed(what));
        }
    }
    let expected = Schema::new(columns.iter().copied()).map_err(|e| failed(e.to_string()))?;
    read_parquet_up_to(&path, &expected, max_rows).map_err(|e| failed(e.to_string()))
}

/// Cells of a row.
struct Row<'a> {
    table: &'a Table,
    file: &'static str,
    row: usize,
}

impl<'a> Row<'a> {
    fn wrong(&self, column: usize, expected: impl std::fmt::Display, got: &str) -> ViewError {
        let name = &self.table.schema().columns()[column].name;
        let got: String = got.chars().take(MAX_NAME).collect();
        let what = format!("row {}: {name}: expected {expected}, got {got:?}", self.row);
        ViewError { file: self.file, what }
    }

    fn text(&self, column: usize) -> &'a str {
        match self.table.get(self.row, column) {
            Some(Cell::Text(text)) => text,
            _ => "",
        }
    }

    /// Returns a number of at most `max`; `None` where it is missing.
    fn number(&self, column: usize, max: u64) -> Result<Option<u64>, ViewError> {
        match self.table.get(self.row, column) {
            Some(Cell::U64(n)) if n <= max => Ok(Some(n)),
            Some(Cell::U64(n)) => Err(self.wrong(column, format!("at most {max}"), &n.to_string())),
            _ => Ok(None),
        }
    }

    fn required(&self, column: usize, max: u64) -> Result<u64, ViewError> {
        self.number(column, max)?.ok_or_else(|| self.wrong(column, "a number", ""))
    }

    /// Returns a number that is one higher, and 0 where it is missing.
    fn optional(&self, column: usize) -> Result<u64, ViewError> {
        Ok(self.number(column, MAX_NUMBER - 1)?.map_or(0, |n| n + 1))
    }

    /// Returns the index of a name.
    fn index(
        &self,
        column: usize,
        names: &HashMap<&str, usize>,
        what: &str,
    ) -> Result<usize, ViewError> {
        let name = self.text(column);
        let found = names.get(name).copied();
        found.ok_or_else(|| self.wrong(column, format!("a {what} of {}", network::FILE), name))
    }

    /// Returns the index of one of a few words.
    fn word(&self, column: usize, words: &mut Vec<String>) -> Result<u64, ViewError> {
        let word = self.text(column);
        if let Some(index) = words.iter().position(|known| known == word) {
            return Ok(index as u64);
        }
        if words.len() >= MAX_WORDS || word.len() > MAX_NAME {
            let expected =
                format!("at most {MAX_WORDS} different texts of at most {MAX_NAME} bytes");
            return Err(self.wrong(column, expected, word));
        }
        words.push(word.into());
        Ok(words.len() as u64 - 1)
    }
}

fn names<'a>(all: impl Iterator<Item = &'a str>) -> HashMap<&'a str, usize> {
    all.enumerate().map(|(i, name)| (name, i)).collect()
}

/// Reads the table of hops.
struct HopReader<'a> {
    network: &'a Network,
    nodes: HashMap<&'a str, usize>,
    links: HashMap<&'a str, usize>,
    flows: HashMap<&'a str, usize>,
    known: HashMap<u64, usize>,
    scene: Scene,
}

impl<'a> HopReader<'a> {
    fn new(network: &'a Network) -> Self {
        HopReader {
            network,
            nodes: names(network.nodes.iter().map(|n| n.name.as_str())),
            links: names(network.links.iter().map(|l| l.name.as_str())),
            flows: names(network.flows.iter().map(|f| f.name.as_str())),
            known: HashMap::new(),
            scene: Scene {
                network: network.clone(),
                packets: Vec::new(),
                hops: Vec::new(),
                words: Vec::new(),
                reasons: Vec::new(),
                curves: Vec::new(),
            },
        }
    }

    fn read(mut self, table: &Table) -> Result<Scene, ViewError> {
        for row in 0..table.len() {
            let row = Row { table, file: HOPS, row };
            let packet = self.packet(&row)?;
            let hop = self.hop(&row, packet)?;
            self.scene.hops.push(hop);
        }
        // Packets that come at the same time stay in the order of the table.
        self.scene.hops.sort_by_key(|hop| (hop.lane, hop.at));
        Ok(self.scene)
    }

    /// Returns the index of the packet of a row.
    fn packet(&mut self, row: &Row<'_>) -> Result<u64, ViewError> {
        let number = row.required(0, MAX_NUMBER)?;
        if let Some(index) = self.known.get(&number) {
            return Ok(*index as u64);
        }
        let flow = match row.text(1) {
            "" => 0,
            _ => row.index(1, &self.flows, "flow")? as u64 + 1,
        };
        let back = match row.text(2) {
            "back" => true,
            "there" | "" => false,
            other => return Err(row.wrong(2, "\"there\" or \"back\"", other)),
        };
        let kind = PacketKind::ALL.iter().position(|kind| kind.as_str() == row.text(3));
        let kind = kind.ok_or_else(|| {
            row.wrong(3, "\"data\", \"retransmission\", \"ack\" or \"control\"", row.text(3))
        })?;
        let packet = Packet {
            flow,
            back,
            kind: kind as u64,
            what: row.word(4, &mut self.scene.words)?,
            seq: row.optional(5)?,
            ack: row.optional(6)?,
            stream: row.optional(7)?,
            size: row.required(8, u32::MAX.into())?,
        };
        self.known.insert(number, self.scene.packets.len());
        self.scene.packets.push(packet);
        Ok(self.scene.packets.len() as u64 - 1)
    }

    fn hop(&mut self, row: &Row<'_>, packet: u64) -> Result<Hop, ViewError> {
        let node = row.index(10, &self.nodes, "node")?;
        let lane = match row.text(9) {
            "" => 2 * self.network.links.len(),
            _ => {
                let link = row.index(9, &self.links, "link")?;
                let between = self.network.links[link].between;
                let end = between.iter().position(|end| *end == node);
                let end = end.ok_or_else(|| row.wrong(10, "an end of the link", row.text(10)))?;
                2 * link + end
            }
        };
        let at = row.required(11, MAX_NUMBER)?;
        let [waited, sending, flying] = [row.optional(12)?, row.optional(13)?, row.optional(14)?];
        let end = [waited, sending, flying].into_iter().fold(at, u64::saturating_add);
        if end > MAX_NUMBER {
            return Err(row.wrong(14, format!("an end of at most {MAX_NUMBER}"), &end.to_string()));
        }
        let lost = match row.text(15) {
            "" => 0,
            _ => row.word(15, &mut self.scene.reasons)? + 1,
        };
        Ok(Hop { lane, packet, node: node as u64, at, waited, sending, flying, lost })
    }
}

/// Reads the table of windows.
fn curves(network: &Network, table: &Table) -> Result<Vec<Curve>, ViewError> {
    let flows = names(network.flows.iter().map(|f| f.name.as_str()));
    let mut curves: Vec<Curve> = Vec::new();
    for row in 0..table.len() {
        let row = Row { table, file: WINDOWS, row };
        let at = row.required(0, MAX_NUMBER)?;
        let (flow, path) = (row.index(1, &flows, "flow")?, row.text(2));
        let found = curves.iter().position(|c| c.flow == flow && c.path == path);
        let index = match found {
            Some(index) => index,
            None if curves.len() >= MAX_CURVES || path.len() > MAX_NAME => {
                let expected =
                    format!("at most {MAX_CURVES} curves with names of at most {MAX_NAME} bytes");
                return Err(row.wrong(2, expected, path));
            }
            None => {
                curves.push(Curve { flow, path: path.into(), ..Curve::default() });
                curves.len() - 1
            }
        };
        let curve = &mut curves[index];
        if curve.at.last().is_some_and(|last| *last > at) {
            return Err(row.wrong(0, "times that do not go back", &at.to_string()));
        }
        curve.at.push(at);
        for (values, column) in curve.values.iter_mut().zip(3..) {
            let value = table.get(row.row, column).and_then(|cell| cell.number());
            values.push(value.filter(|v| v.is_finite()).unwrap_or(f64::NAN));
        }
        curve.srtt.push(row.optional(6)?);
    }
    Ok(curves)
}
