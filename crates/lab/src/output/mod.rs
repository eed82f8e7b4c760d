//! What a command leaves in its folder: tables, figures, a report, and how it all came about.
//!
//! Everything a reader sees is first put into a [`Sheet`], which is kept as `report.json`; figures
//! and the HTML page are drawn from it, so they can be drawn again without running anything.

mod draw;
mod manifest;
mod page;
mod tables;
mod text;

pub use draw::draw;
pub use manifest::{FILE as MANIFEST, Manifest, build, host, version};
pub use tables::{measures, packets, series, write_both};
pub use text::{columns, figure};

use ringway_figures::statistics::Kind;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// The file a [`Sheet`] is kept in.
pub const SHEET: &str = "report.json";
/// The page.
pub const PAGE: &str = "report.html";
/// Largest file that is read back, in bytes.
const MAX_SHEET: u64 = 1 << 30;
/// Most points of a series in a figure; more cannot be told apart at print size.
pub const MAX_POINTS: usize = 4000;

/// Why something could not be written or read back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// A file or folder cannot be used.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// What went wrong.
        source: std::io::Error,
    },
    /// A file holds something else than expected.
    #[error("{path}: expected {expected}, got {got}")]
    Content {
        /// Which.
        path: PathBuf,
        /// What should be there.
        expected: &'static str,
        /// What is wrong with it.
        got: String,
    },
    /// A table or figure cannot be made.
    #[error("{path}: {what}")]
    Made {
        /// Which.
        path: PathBuf,
        /// What went wrong.
        what: String,
    },
}

impl OutputError {
    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        |source| OutputError::File { path, source }
    }

    pub(crate) fn made(path: &Path, what: impl std::fmt::Display) -> Self {
        OutputError::Made { path: path.into(), what: what.to_string() }
    }
}

/// Everything a report says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sheet {
    /// The heading.
    pub title: String,
    /// Paragraphs below it.
    pub text: Vec<String>,
    /// What was run: version, seed and so on, each with its name.
    pub facts: Vec<(String, String)>,
    /// The network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkSheet>,
    /// Tables.
    pub tables: Vec<TableSheet>,
    /// Figures.
    pub charts: Vec<ChartSheet>,
    /// Other files beside the report, with what they hold.
    pub files: Vec<(String, String)>,
}

/// Nodes and the links between them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NetworkSheet {
    /// Names of the nodes.
    pub nodes: Vec<String>,
    /// The links.
    pub links: Vec<LinkSheet>,
}

/// A link as it is drawn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkSheet {
    /// The indices of its nodes.
    pub between: [usize; 2],
    /// Its name, and what it does to packets, a line each.
    pub label: Vec<String>,
    /// Whether it is down at times.
    pub goes_down: bool,
}

/// A table, as text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TableSheet {
    /// What it shows, with n, seed and the kind of intervals.
    pub caption: String,
    /// Heads of the columns, with units.
    pub head: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
}

/// A figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChartSheet {
    /// The name of its files, without ending.
    pub name: String,
    /// The line above it.
    pub title: String,
    /// What it shows; n, seed and the kind of intervals are added where it is drawn.
    pub caption: String,
    /// The seed.
    pub seed: u64,
    /// What it rests on, such as 10 replications.
    pub rests_on: Option<(usize, String)>,
    /// The axis from left to right.
    pub x: AxisSheet,
    /// The axis from bottom to top.
    pub y: AxisSheet,
    /// What is drawn.
    pub series: Vec<SeriesSheet>,
    /// Stretches of the horizontal axis that are shaded: times when a link was down.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shaded: Vec<[f64; 2]>,
}

/// An axis.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AxisSheet {
    /// What it shows.
    pub label: String,
    /// In which unit: one of s, bit/s, B gets the prefix that fits.
    pub unit: String,
    /// Whether equal factors are equal distances.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub log: bool,
}

impl AxisSheet {
    /// An axis.
    pub fn new(label: impl Into<String>, unit: impl Into<String>) -> Self {
        AxisSheet { label: label.into(), unit: unit.into(), log: false }
    }

    /// The same with a logarithmic scale.
    #[must_use]
    pub fn log(self) -> Self {
        AxisSheet { log: true, ..self }
    }
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Style {
    /// A line from point to point, with marks.
    #[default]
    Line,
    /// A value that holds until the next.
    Step,
    /// Points without a line.
    Scatter,
    /// A step line for what has arrived.
    Arrived,
    /// Crosses, for what is lost.
    Lost,
    /// Which share of the values is not above x; the values are the second coordinates.
    Ecdf,
    /// A line of means with a ribbon of their intervals.
    Ribbon,
    /// Bars with their intervals, by name.
    Bars,
}

/// The kind of the intervals of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IntervalKind {
    /// Student's t over replications.
    #[default]
    Student,
    /// Student's t over pairs.
    Paired,
    /// Wilson's.
    Wilson,
    /// Between two observations.
    Rank,
    /// Woodruff's over replications.
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

/// One series of a figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SeriesSheet {
    /// What it is called.
    pub name: String,
    /// How it is drawn.
    pub style: Style,
    /// The points.
    pub points: Vec<[f64; 2]>,
    /// Names of bars.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Lower and upper bound at each point, if it has any, and how many runs it rests on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<(Option<[f64; 2]>, usize)>,
    /// The kind of those bounds.
    #[serde(default, skip_serializing_if = "IntervalKind::is_student")]
    pub kind: IntervalKind,
}

impl SeriesSheet {
    /// A series of at most [`MAX_POINTS`] points. Of more, each stretch keeps its first, lowest and
    /// highest, so that no peak is lost; of values to be counted, evenly spaced ones of their order.
    pub fn new(name: impl Into<String>, style: Style, points: &[[f64; 2]]) -> Self {
        let kept = match style {
            _ if points.len() <= MAX_POINTS => points.to_vec(),
            Style::Ecdf => {
                let mut sorted = points.to_vec();
                sorted.sort_by(|a, b| a[1].total_cmp(&b[1]));
                let last = sorted.len() - 1;
                (0..MAX_POINTS).map(|i| sorted[i * last / (MAX_POINTS - 1)]).collect()
            }
            _ => thin(points),
        };
        SeriesSheet { name: name.into(), style, points: kept, ..SeriesSheet::default() }
    }

    /// The share of values that are above each: what an ECDF squeezes into its upper edge. Of more than
    /// [`MAX_POINTS`] the highest are kept, and of the others ever fewer.
    pub fn tail(name: impl Into<String>, mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let n = values.len();
        let mut points: Vec<[f64; 2]> = Vec::new();
        let mut kept = n + 1;
        for (i, pair) in values.windows(2).enumerate().filter(|(_, pair)| pair[0] < pair[1]) {
            let above = n - 1 - i;
            // A step of half a thousandth of what is above is too small to be seen.
            if kept - above > above / (MAX_POINTS / 2) {
                kept = above;
                points.push([pair[0], above as f64 / n as f64]);
            }
        }
        points.extend(values.last().map(|last| [*last, 1.0 / n as f64]));
        SeriesSheet { name: name.into(), style: Style::Step, points, ..SeriesSheet::default() }
    }
}

fn thin(points: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let mut kept = Vec::new();
    for part in points.chunks(points.len().div_ceil(MAX_POINTS / 3)) {
        let by = |a: &&[f64; 2], b: &&[f64; 2]| a[1].total_cmp(&b[1]);
        let chosen = [part.first(), part.iter().min_by(by), part.iter().max_by(by)];
        let mut chosen: Vec<[f64; 2]> = chosen.into_iter().flatten().copied().collect();
        chosen.sort_by(|a, b| a[0].total_cmp(&b[0]));
        chosen.dedup();
        kept.extend(chosen);
    }
    kept
}

/// Makes a folder if it is not there.
pub fn folder(path: &Path) -> Result<(), OutputError> {
    fs::create_dir_all(path).map_err(OutputError::file(path))
}

/// Writes a file whole or not at all: under another name first, then renamed.
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
        serde_json::to_vec_pretty(value).map_err(|error| OutputError::made(path, error))?;
    json.push(b'\n');
    write(path, &json)
}

/// Reads a value back from JSON.
pub fn read_json<T: for<'de> Deserialize<'de>>(
    path: &Path,
    expected: &'static str,
) -> Result<T, OutputError> {
    let length = fs::metadata(path).map_err(OutputError::file(path))?.len();
    let wrong = |got: String| OutputError::Content { path: path.into(), expected, got };
    if length > MAX_SHEET {
        return Err(wrong(format!("{length} bytes")));
    }
    let bytes = fs::read(path).map_err(OutputError::file(path))?;
    serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half of four values are above the second; the highest stands on the last step.
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
