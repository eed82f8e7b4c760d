//! The output of a command in its folder: tables, figures, a report and a manifest.
//!
//! All text and figures for readers are first put into a [`Sheet`], which is stored as
//! `report.json`. Figures and the HTML page are drawn from it, so they can be drawn again without
//! another run.

mod draw;
mod manifest;
mod page;
mod pictures;
mod tables;
mod text;

pub use draw::draw;
pub use manifest::{FILE as MANIFEST, Manifest, build, host, set_program, version};
pub use tables::{links, measures, packet_table, packets, series, summary, write_both};
pub use text::{columns, figure};

use ringway_figures::statistics::Kind;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// File of a [`Sheet`].
pub const SHEET: &str = "report.json";
/// File of the HTML page.
pub const PAGE: &str = "report.html";
/// Maximum size of a file that is read back, in bytes.
const MAX_SHEET: u64 = 1 << 30;
/// Maximum number of points of a series in a figure; more cannot be distinguished in print.
pub const MAX_POINTS: usize = 4000;

/// Reason why output could not be written or read back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// A file or folder cannot be used.
    #[error("{path}: {source}")]
    File {
        /// Path of the file or folder.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The contents of a file are not as expected.
    #[error("{path}: expected {expected}, got {got}")]
    Content {
        /// Path of the file.
        path: PathBuf,
        /// Expected contents.
        expected: &'static str,
        /// Problem with the contents.
        got: String,
    },
    /// A table or figure cannot be rendered.
    #[error("{path}: {what}")]
    Render {
        /// Path of the file.
        path: PathBuf,
        /// Description of the error.
        what: String,
    },
}

impl OutputError {
    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        |source| OutputError::File { path, source }
    }

    pub(crate) fn rendering(path: &Path, what: impl std::fmt::Display) -> Self {
        OutputError::Render { path: path.into(), what: what.to_string() }
    }
}

/// The contents of a report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sheet {
    /// Title.
    pub title: String,
    /// Paragraphs below the title.
    pub text: Vec<String>,
    /// Facts about the run: version, seed and others, each with its name.
    pub facts: Vec<(String, String)>,
    /// Network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkSheet>,
    /// Tables.
    pub tables: Vec<TableSheet>,
    /// Figures.
    pub charts: Vec<ChartSheet>,
    /// Rings of ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rings: Vec<RingSheet>,
    /// Pictures of packets on their way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pictures: Vec<PictureSheet>,
    /// Ladders of messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ladders: Vec<LadderSheet>,
    /// Other files of the same folder, each with a description.
    pub files: Vec<(String, String)>,
}

/// Nodes and the links between them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NetworkSheet {
    /// Names of the nodes.
    pub nodes: Vec<String>,
    /// Links.
    pub links: Vec<LinkSheet>,
}

/// A link in the drawing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkSheet {
    /// Indices of its two nodes.
    pub between: [usize; 2],
    /// Lines of the label: the link's name, then its properties.
    pub label: Vec<String>,
    /// Whether the link is down at times.
    pub goes_down: bool,
}

/// A table, as text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TableSheet {
    /// Caption, with n, seed and the kind of intervals.
    pub caption: String,
    /// Heads of the columns, with units.
    pub head: Vec<String>,
    /// Rows.
    pub rows: Vec<Vec<String>>,
}

/// A figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChartSheet {
    /// Name of its files, without extension.
    pub name: String,
    /// Title above the figure.
    pub title: String,
    /// Caption; n, seed and the kind of intervals are appended when it is drawn.
    pub caption: String,
    /// Seed.
    pub seed: u64,
    /// Basis of the figure, such as `10 replications`.
    pub rests_on: Option<(usize, String)>,
    /// Horizontal axis.
    pub x: AxisSheet,
    /// Vertical axis.
    pub y: AxisSheet,
    /// Series.
    pub series: Vec<SeriesSheet>,
    /// Shaded intervals of the horizontal axis: times when a link was down.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shaded: Vec<[f64; 2]>,
}

/// A drawing of a ring of ids.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RingSheet {
    /// Name of its file, without extension.
    pub name: String,
    /// Title.
    pub title: String,
    /// Caption.
    pub caption: String,
    /// Nodes with their positions, as parts of the whole ring.
    pub nodes: Vec<(String, f64)>,
    /// Positions of keys.
    pub keys: Vec<f64>,
}

/// What a node of a picture is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpotStyle {
    /// A router.
    #[default]
    Router,
    /// A host.
    Host,
    /// A position of the ring without a router.
    Key,
}

/// What a line of a picture is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WayStyle {
    /// A cable.
    #[default]
    Cable,
    /// A router's knowledge of the next one on the ring.
    Next,
    /// A packet.
    Packet,
    /// An answer.
    Answer,
}

/// A node of a picture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SpotSheet {
    /// Name within its mark.
    pub name: String,
    /// Lines beside it.
    pub label: Vec<String>,
    /// Position, from 0 to 1 to the right and downwards.
    pub at: [f64; 2],
    /// What it is.
    pub style: SpotStyle,
}

/// A line of a picture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WaySheet {
    /// Indices of its nodes.
    pub between: [usize; 2],
    /// What it is.
    pub style: WayStyle,
    /// Text at its middle.
    pub label: String,
}

/// A picture of nodes, cables and packets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PictureSheet {
    /// Name of its files, without extension.
    pub name: String,
    /// Title.
    pub title: String,
    /// Caption.
    pub caption: String,
    /// Whether the nodes are on the ring of ids.
    pub ring: bool,
    /// Height as a part of the width.
    pub height: f64,
    /// Nodes.
    pub spots: Vec<SpotSheet>,
    /// Lines.
    pub ways: Vec<WaySheet>,
    /// The meaning of each kind of line.
    pub legend: Vec<(WayStyle, String)>,
}

/// A message of a ladder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RungSheet {
    /// Indices of both ends.
    pub between: [usize; 2],
    /// Time of arrival.
    pub time: String,
    /// What it is.
    pub label: String,
    /// Whether it is on the way back.
    pub back: bool,
}

/// A ladder of messages in the order of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LadderSheet {
    /// Name of its files, without extension.
    pub name: String,
    /// Title.
    pub title: String,
    /// Caption.
    pub caption: String,
    /// Names of the ends.
    pub ends: Vec<String>,
    /// Messages.
    pub rungs: Vec<RungSheet>,
}

/// An axis.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AxisSheet {
    /// Label of the axis.
    pub label: String,
    /// Unit; s, bit/s and B get a suitable prefix.
    pub unit: String,
    /// Whether the scale is logarithmic.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub log: bool,
}

impl AxisSheet {
    /// Creates an axis with a linear scale.
    pub fn new(label: impl Into<String>, unit: impl Into<String>) -> Self {
        AxisSheet { label: label.into(), unit: unit.into(), log: false }
    }

    /// Returns the axis with a logarithmic scale.
    #[must_use]
    pub fn log(self) -> Self {
        AxisSheet { log: true, ..self }
    }
}

/// Drawing style of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Style {
    /// A line with marks at its points.
    #[default]
    Line,
    /// A step line: each value holds until the next one.
    Step,
    /// Points without a line.
    Scatter,
    /// A step line of packets that arrived.
    Arrived,
    /// Crosses at lost packets.
    Lost,
    /// The empirical distribution function of the second coordinates.
    Ecdf,
    /// A line of means with a ribbon of their intervals.
    Ribbon,
    /// Named bars with their intervals.
    Bars,
}

/// Kind of the intervals of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IntervalKind {
    /// Student's t interval over replications.
    #[default]
    Student,
    /// Student's t interval over pairs.
    Paired,
    /// Wilson's interval.
    Wilson,
    /// The interval between two observations.
    Rank,
    /// Woodruff's interval over replications.
    Woodruff,
}

impl IntervalKind {
    fn is_student(&self) -> bool {
        *self == Self::Student
    }
}

impl From<Kind> for IntervalKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::StudentT => Self::Student,
            Kind::PairedT => Self::Paired,
            Kind::Wilson => Self::Wilson,
            Kind::Rank => Self::Rank,
            Kind::Woodruff => Self::Woodruff,
        }
    }
}

impl From<IntervalKind> for Kind {
    fn from(kind: IntervalKind) -> Self {
        match kind {
            IntervalKind::Student => Self::StudentT,
            IntervalKind::Paired => Self::PairedT,
            IntervalKind::Wilson => Self::Wilson,
            IntervalKind::Rank => Self::Rank,
            IntervalKind::Woodruff => Self::Woodruff,
        }
    }
}

/// A series of a figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SeriesSheet {
    /// Name in the legend.
    pub name: String,
    /// Drawing style.
    pub style: Style,
    /// Points.
    pub points: Vec<[f64; 2]>,
    /// Names of bars.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Lower and upper bound at each point and the number of runs, if there are intervals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<(Option<[f64; 2]>, usize)>,
    /// Kind of the intervals.
    #[serde(default, skip_serializing_if = "IntervalKind::is_student")]
    pub kind: IntervalKind,
}

impl SeriesSheet {
    /// Creates a series of at most [`MAX_POINTS`] points. A longer series is divided into sections,
    /// and each keeps its first, lowest and highest point, so that no peak is lost. A longer
    /// distribution keeps evenly spaced order statistics.
    pub fn new(name: impl Into<String>, style: Style, points: &[[f64; 2]]) -> Self {
        let selected = match style {
            _ if points.len() <= MAX_POINTS => points.to_vec(),
            Style::Ecdf => {
                let mut sorted = points.to_vec();
                sorted.sort_by(|a, b| a[1].total_cmp(&b[1]));
                let last = sorted.len() - 1;
                (0..MAX_POINTS).map(|i| sorted[i * last / (MAX_POINTS - 1)]).collect()
            }
            _ => downsample(points),
        };
        SeriesSheet { name: name.into(), style, points: selected, ..SeriesSheet::default() }
    }

    /// Creates a series of the share of values above each value: the upper edge of an ECDF in
    /// detail. Of more than [`MAX_POINTS`] values the highest are all kept, and the others ever
    /// more sparsely.
    pub fn tail(name: impl Into<String>, mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let n = values.len();
        let mut points: Vec<[f64; 2]> = Vec::new();
        let mut selected = n + 1;
        for (i, pair) in values.windows(2).enumerate().filter(|(_, pair)| pair[0] < pair[1]) {
            let above = n - 1 - i;
            // A step of 0.05 % of the share above is too small to be visible.
            if selected - above > above / (MAX_POINTS / 2) {
                selected = above;
                points.push([pair[0], above as f64 / n as f64]);
            }
        }
        points.extend(values.last().map(|last| [*last, 1.0 / n as f64]));
        SeriesSheet { name: name.into(), style: Style::Step, points, ..SeriesSheet::default() }
    }
}

fn downsample(points: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let mut selected = Vec::new();
    for part in points.chunks(points.len().div_ceil(MAX_POINTS / 3)) {
        let by = |a: &&[f64; 2], b: &&[f64; 2]| a[1].total_cmp(&b[1]);
        let chosen = [part.first(), part.iter().min_by(by), part.iter().max_by(by)];
        let mut chosen: Vec<[f64; 2]> = chosen.into_iter().flatten().copied().collect();
        chosen.sort_by(|a, b| a[0].total_cmp(&b[0]));
        chosen.dedup();
        selected.extend(chosen);
    }
    selected
}

/// Creates a folder if it does not exist.
pub fn folder(path: &Path) -> Result<(), OutputError> {
    fs::create_dir_all(path).map_err(OutputError::file(path))
}

/// Writes a file completely or not at all: under a temporary name first, then renamed.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), OutputError> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    fs::write(&partial, bytes).map_err(OutputError::file(&partial))?;
    fs::rename(&partial, path).map_err(OutputError::file(path))
}

/// Writes a value as JSON.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), OutputError> {
    let mut json =
        serde_json::to_vec_pretty(value).map_err(|error| OutputError::rendering(path, error))?;
    json.push(b'\n');
    write(path, &json)
}

/// Reads a value from JSON.
pub fn read_json<T: for<'de> Deserialize<'de>>(
    path: &Path,
    expected: &'static str,
) -> Result<T, OutputError> {
    read_json_up_to(path, expected, MAX_SHEET)
}

/// Reads a value from JSON of at most `max` bytes.
pub fn read_json_up_to<T: for<'de> Deserialize<'de>>(
    path: &Path,
    expected: &'static str,
    max: u64,
) -> Result<T, OutputError> {
    let wrong = |got: String| OutputError::Content { path: path.into(), expected, got };
    let file = fs::File::open(path).map_err(OutputError::file(path))?;
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes).map_err(OutputError::file(path))?;
    if bytes.len() as u64 > max {
        return Err(wrong(format!("more than {max} bytes")));
    }
    serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half of four values are above the second; the highest is on the last step.
    #[test]
    fn a_tail_counts_what_is_above() {
        let tail = SeriesSheet::tail("t", vec![3.0, 1.0, 2.0, 2.0]);
        assert_eq!(tail.points, [[1.0, 0.75], [2.0, 0.25], [3.0, 0.25]]);
        let many: Vec<f64> = (0..200_000).map(f64::from).collect();
        let points = SeriesSheet::tail("t", many).points;
        assert!((1000..30_000).contains(&points.len()), "{}", points.len());
        assert_eq!(points[points.len() - 3], [199_997.0, 2.0 / 200_000.0]);
        assert_eq!(SeriesSheet::tail("t", Vec::new()).points, [[0.0; 2]; 0]);
    }
}
