//! The section `[mesh]` of a scenario.

use super::kind::{Kind, Shape};
use crate::scenario::{Document, Location, MAX_REPLICATIONS, Problems};
use crate::topology;
use ringway_link::{Chance, Span};
use ringway_sansio::Duration;
use ringway_sim::graph::Plan;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the section.
const SECTION: &str = "mesh";
/// Bounds of the number of routers.
const SIZES: std::ops::RangeInclusive<u32> = 4..=2_000_000;
/// Maximum number of data packets of a measurement.
const MAX_PACKETS: u32 = 100_000;

/// Returns whether a file is a scenario of a growing mesh.
pub fn is_scale(document: &Document<'_>) -> bool {
    document.has(SECTION)
}

/// The section `[scenario]` as written in the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Header {
    title: String,
    text: String,
    seed: u64,
    replications: u64,
}

impl Default for Header {
    fn default() -> Self {
        Header { title: String::new(), text: String::new(), seed: 12_345, replications: 1 }
    }
}

/// The section `[mesh]` as written in the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Keys {
    topologies: Vec<Shape>,
    sizes: Vec<u32>,
    maps: Vec<PathBuf>,
    delay: Span,
    loss: Chance,
    packets: u32,
    settle: Span,
    rest: Span,
    disturbed: Span,
    session: Span,
    absence: Span,
    cuts: Chance,
    cut: Span,
}

impl Default for Keys {
    fn default() -> Self {
        Keys {
            topologies: Vec::new(),
            sizes: Vec::new(),
            maps: Vec::new(),
            delay: Span(1_000_000),
            loss: Chance::NEVER,
            packets: 400,
            settle: Span::from_secs(120),
            rest: Span::from_secs(60),
            disturbed: Span::from_secs(60),
            session: Span::from_secs(1_800),
            absence: Span::from_secs(60),
            cuts: Chance::NEVER,
            cut: Span::from_secs(10),
        }
    }
}

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Title.
    pub title: String,
    /// Paragraphs for the report.
    pub text: String,
    /// Seed.
    pub seed: u64,
    /// Number of replications.
    pub replications: u64,
    shapes: Vec<Shape>,
    sizes: Vec<u32>,
    maps: Vec<(String, PathBuf, Arc<Plan>)>,
    /// Delay of a link.
    pub delay: Duration,
    /// Loss of a link.
    pub loss: Chance,
    /// Data packets that each share of delivery is measured with.
    pub packets: u32,
    /// Time until which most packets must arrive.
    pub settle: Duration,
    /// Age of a network at rest.
    pub rest: Duration,
    /// Duration of the faults.
    pub disturbed: Duration,
    /// Median time that a router runs during the faults.
    pub session: Duration,
    /// Median time that it is away.
    pub absence: Duration,
    /// Share of the links that are cut in a minute.
    pub cuts: Chance,
    /// Median time for which a link is cut.
    pub cut: Duration,
}

impl Settings {
    /// Reads a scenario. Maps are files beside `file`.
    pub fn from_document(document: &Document<'_>, file: &Path) -> Result<Self, Problems> {
        let mut problems = Vec::new();
        document.only(&["scenario", SECTION], &mut problems);
        let header: Header = document.one("scenario", &mut problems);
        let keys: Keys = document.one(SECTION, &mut problems);
        let blame = |key: &str, what: String| {
            document.blame(Location { section: SECTION, index: None, key }, what)
        };
        if header.title.is_empty() {
            let at = Location { section: "scenario", index: None, key: "title" };
            problems.push(document.blame(at, "expected a title, got none"));
        }
        if !(1..=MAX_REPLICATIONS).contains(&header.replications) {
            let at = Location { section: "scenario", index: None, key: "replications" };
            let what = format!("expected 1 to {MAX_REPLICATIONS}, got {}", header.replications);
            problems.push(document.blame(at, what));
        }
        if keys.topologies.is_empty() != keys.sizes.is_empty() {
            problems.push(blame("sizes", "expected both topologies and sizes, or neither".into()));
        }
        if keys.topologies.is_empty() && keys.maps.is_empty() {
            problems.push(blame("topologies", "expected topologies or maps, got neither".into()));
        }
        for size in keys.sizes.iter().filter(|size| !SIZES.contains(size)) {
            let (least, most) = (SIZES.start(), SIZES.end());
            problems.push(blame("sizes", format!("expected {least} to {most}, got {size}")));
        }
        if !(10..=MAX_PACKETS).contains(&keys.packets) {
            let what = format!("expected 10 to {MAX_PACKETS}, got {}", keys.packets);
            problems.push(blame("packets", what));
        }
        if keys.rest < Span::from_secs(30) {
            problems.push(blame("rest", "expected at least 30 s".into()));
        }
        let mut maps = Vec::new();
        for map in &keys.maps {
            let path = file.parent().unwrap_or(Path::new("")).join(map);
            match topology::read(&path) {
                Ok(plan) => {
                    let name = map.file_stem().unwrap_or_default().to_string_lossy();
                    maps.push((name.into_owned(), path, Arc::new(plan)));
                }
                Err(error) => problems.push(blame("maps", error.to_string())),
            }
        }
        if !problems.is_empty() {
            return Err(Problems::new(document.file(), problems));
        }
        let duration = |span: Span| Duration::from_nanos(span.0);
        Ok(Settings {
            title: header.title,
            text: header.text,
            seed: header.seed,
            replications: header.replications,
            shapes: keys.topologies,
            sizes: keys.sizes,
            maps,
            delay: duration(keys.delay),
            loss: keys.loss,
            packets: keys.packets,
            settle: duration(keys.settle),
            rest: duration(keys.rest),
            disturbed: duration(keys.disturbed),
            session: duration(keys.session),
            absence: duration(keys.absence),
            cuts: keys.cuts,
            cut: duration(keys.cut),
        })
    }

    /// Returns all networks, the sizes of one shape one after another.
    pub fn kinds(&self) -> Vec<Kind> {
        let of_shape = |shape: &Shape| {
            let shape = *shape;
            self.sizes.iter().map(move |size| Kind::Shape(shape, *size))
        };
        let maps = self.maps.iter().cloned();
        let maps = maps.map(|(name, path, plan)| Kind::Map(name, path, plan));
        self.shapes.iter().flat_map(of_shape).chain(maps).collect()
    }
}

/// Reads a scenario from its text.
#[cfg(test)]
pub(super) fn parse(file: &str, text: &str) -> Result<Settings, Problems> {
    Settings::from_document(&Document::parse(file, text)?, Path::new(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_reported_at_their_keys() {
        for (text, expected) in [
            ("sizes = [100]", "both topologies and sizes"),
            ("topologies = [\"grid\"]\nsizes = [1]", "expected 4 to 2000000, got 1"),
            ("topologies = [\"gird\"]\nsizes = [9]", "grid"),
            ("maps = [\"missing.json\"]", "missing.json"),
            ("sices = [1]", "did you mean `sizes`"),
            ("topologies = [\"grid\"]\nsizes = [9]\npackets = 1", "expected 10 to 100000, got 1"),
        ] {
            let text = format!("[scenario]\ntitle = \"t\"\n[mesh]\n{text}\n");
            let error = parse("bad.toml", &text).unwrap_err().lines().join("\n");
            assert!(error.contains(expected), "{text}\n{error}");
        }
    }
}
