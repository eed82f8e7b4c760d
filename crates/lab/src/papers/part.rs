//! Parts of a paper, and which of them are reproduced.

use crate::output::TableSheet;
use serde::Serialize;

/// Whether a part of a paper is reproduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Progress {
    /// Its figures are compared with simulated ones.
    Compared,
    /// It has no figures, and is drawn from a run.
    Drawn,
    /// Nothing of it is measured.
    Open,
}

impl Progress {
    const fn words(self) -> &'static str {
        match self {
            Progress::Compared => "compared",
            Progress::Drawn => "drawn from a run",
            Progress::Open => "not measured here",
        }
    }
}

/// A table, figure or experiment of a paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// Table, figure or section of the paper.
    pub source: &'static str,
    /// Description of its contents.
    pub what: &'static str,
    /// Whether it is reproduced.
    pub progress: Progress,
}

impl Part {
    /// Returns all parts as a table.
    pub(super) fn sheet(parts: &[Part]) -> TableSheet {
        let row = |p: &Part| [p.source, p.what, p.progress.words()].map(String::from).to_vec();
        TableSheet {
            caption:
                "Parts of the paper. Those that are not measured have no figures in any table here."
                    .into(),
            head: ["", "part", "here"].map(String::from).to_vec(),
            rows: parts.iter().map(row).collect(),
        }
    }
}
