//! The network of a run as `network.json`: nodes, links with the times at which they are down, and flows.

use super::ViewError;
use crate::scenario::MAX_POSITION;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Name of the file.
pub const FILE: &str = "network.json";
/// Version of the format.
pub const FORMAT: u32 = 1;
/// Maximum size of the file in bytes.
pub const MAX_BYTES: u64 = 32 << 20;
/// Maximum number of nodes in a page.
pub const MAX_NODES: usize = 4096;
/// Maximum number of links in a page.
pub const MAX_LINKS: usize = 8192;
/// Maximum number of flows in a page.
pub const MAX_FLOWS: usize = crate::scenario::MAX_FLOWS;
/// Maximum number of times at which one direction of a link is down.
pub const MAX_DOWN: usize = 4096;
/// Maximum length of a name in bytes.
pub const MAX_NAME: usize = 256;
/// Maximum length of a title or of a link's description in bytes.
pub const MAX_TEXT: usize = 4096;
/// Maximum time and maximum sequence number: a page computes with 53 bits, of which its encoding takes two.
pub const MAX_NUMBER: u64 = 1 << 50;

/// The network of a run. Times are nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Version of the format, [`FORMAT`].
    pub format: u32,
    /// Title of the scenario.
    pub title: String,
    /// Version of the program that ran it.
    pub version: String,
    /// Seed.
    pub seed: u64,
    /// End of the run.
    pub ended_ns: u64,
    /// Number of hops that `hops.parquet` leaves out.
    pub left_out: u64,
    /// SHA-256 of the tables of the same run, in hexadecimal, by the names of their files. A table that is not listed is
    /// not checked.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tables: BTreeMap<String, String>,
    /// Nodes.
    pub nodes: Vec<Node>,
    /// Links.
    pub links: Vec<Link>,
    /// Flows.
    pub flows: Vec<Flow>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Name.
    pub name: String,
    /// Position to the right and downwards, in any unit; computed if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<[f64; 2]>,
}

/// A link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Name.
    pub name: String,
    /// Indices of its nodes.
    pub between: [usize; 2],
    /// The direction from the first node to the second.
    pub there: Direction,
    /// The direction from the second node to the first.
    pub back: Direction,
}

/// One direction of a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Direction {
    /// Rate, delay and loss in words.
    pub text: String,
    /// Intervals in which it is down.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub down_ns: Vec<[u64; 2]>,
}

/// A flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// Name.
    pub name: String,
    /// Index of the sender's node.
    pub from: usize,
    /// Index of the receiver's node.
    pub to: usize,
    /// Transport.
    pub transport: String,
}

impl Network {
    /// Checks what another program may have written.
    pub(super) fn check(&self) -> Result<(), ViewError> {
        if self.format != FORMAT {
            return Err(wrong("format", FORMAT, self.format));
        }
        for (what, got, max) in [
            ("nodes", self.nodes.len(), MAX_NODES),
            ("links", self.links.len(), MAX_LINKS),
            ("flows", self.flows.len(), MAX_FLOWS),
        ] {
            if got > max {
                return Err(wrong(what, format!("at most {max}"), got));
            }
        }
        if self.nodes.is_empty() {
            return Err(wrong("nodes", "at least 1", 0));
        }
        text("title", &self.title, 0..=MAX_TEXT)?;
        text("version", &self.version, 0..=MAX_NAME)?;
        if self.ended_ns > MAX_NUMBER {
            return Err(wrong("ended_ns", format!("at most {MAX_NUMBER}"), self.ended_ns));
        }
        self.nodes.iter().enumerate().try_for_each(|(i, node)| check_node(i, node))?;
        unique("nodes", self.nodes.iter().map(|n| n.name.as_str()))?;
        self.links.iter().enumerate().try_for_each(|(i, link)| self.check_link(i, link))?;
        unique("links", self.links.iter().map(|l| l.name.as_str()))?;
        for (i, flow) in self.flows.iter().enumerate() {
            text(&format!("flows[{i}].name"), &flow.name, 1..=MAX_NAME)?;
            text(&format!("flows[{i}].transport"), &flow.transport, 0..=MAX_NAME)?;
            self.node(&format!("flows[{i}].from"), flow.from)?;
            self.node(&format!("flows[{i}].to"), flow.to)?;
        }
        unique("flows", self.flows.iter().map(|f| f.name.as_str()))
    }

    fn check_link(&self, i: usize, link: &Link) -> Result<(), ViewError> {
        text(&format!("links[{i}].name"), &link.name, 1..=MAX_NAME)?;
        for node in link.between {
            self.node(&format!("links[{i}].between"), node)?;
        }
        if link.between[0] == link.between[1] {
            let got = format!("{} twice", link.between[0]);
            return Err(wrong(&format!("links[{i}].between"), "two different nodes", got));
        }
        for (name, direction) in [("there", &link.there), ("back", &link.back)] {
            text(&format!("links[{i}].{name}.text"), &direction.text, 0..=MAX_TEXT)?;
            let key = format!("links[{i}].{name}.down_ns");
            if direction.down_ns.len() > MAX_DOWN {
                let got = direction.down_ns.len();
                return Err(wrong(&key, format!("at most {MAX_DOWN}"), got));
            }
            let mut last = 0;
            for [from, to] in &direction.down_ns {
                if *from < last || to < from || *to > MAX_NUMBER {
                    let expected = format!("ascending times of at most {MAX_NUMBER}");
                    return Err(wrong(&key, expected, format!("[{from}, {to}] after {last}")));
                }
                last = *to;
            }
        }
        Ok(())
    }

    fn node(&self, key: &str, index: usize) -> Result<(), ViewError> {
        match index < self.nodes.len() {
            true => Ok(()),
            false => Err(wrong(key, format!("an index below {}", self.nodes.len()), index)),
        }
    }
}

fn check_node(i: usize, node: &Node) -> Result<(), ViewError> {
    text(&format!("nodes[{i}].name"), &node.name, 1..=MAX_NAME)?;
    let fits = |x: &f64| x.abs() <= MAX_POSITION;
    match node.position {
        Some(position) if !position.iter().all(fits) => {
            let expected = format!("numbers of at most {MAX_POSITION}");
            Err(wrong(&format!("nodes[{i}].position"), expected, format!("{position:?}")))
        }
        _ => Ok(()),
    }
}

fn wrong(key: &str, expected: impl std::fmt::Display, got: impl std::fmt::Display) -> ViewError {
    ViewError::network(format!("{key}: expected {expected}, got {got}"))
}

fn text(key: &str, text: &str, length: std::ops::RangeInclusive<usize>) -> Result<(), ViewError> {
    match length.contains(&text.len()) {
        true => Ok(()),
        false => {
            let expected = format!("{} to {} bytes of text", length.start(), length.end());
            Err(wrong(key, expected, text.len()))
        }
    }
}

fn unique<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Result<(), ViewError> {
    let mut known = BTreeSet::new();
    for name in names {
        if !known.insert(name) {
            return Err(wrong(what, "different names", format!("{name:?} twice")));
        }
    }
    Ok(())
}
