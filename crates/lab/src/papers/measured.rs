//! Figures estimated over replications beside the values printed in a paper, and the paper's claims
//! about them.

use crate::commands::with_interval;
use crate::estimate::kinds;
use crate::output::{TableSheet, figure};
use ringway_figures::statistics::Estimate;
use serde::Serialize;

/// A figure with its interval, and the paper's value if it printed one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeasuredFigure {
    /// Column of the table, such as the transport.
    pub column: String,
    /// Unit.
    pub unit: &'static str,
    /// The printed value, or one computed from printed values.
    pub paper: Option<f64>,
    /// Whether the paper's value is computed from printed values, such as a quotient of two
    /// figures.
    pub paper_derived: bool,
    /// The simulated value.
    pub ours: f64,
    /// Lower bound of the interval.
    pub low: Option<f64>,
    /// Upper bound of the interval.
    pub high: Option<f64>,
    /// Kind of the interval.
    pub interval: Option<String>,
    /// Number of replications with a value.
    pub n: usize,
    #[serde(skip)]
    estimate: Estimate,
    /// Whether both values measure the same quantity, so that their difference is meaningful.
    #[serde(skip)]
    compared: bool,
}

impl MeasuredFigure {
    /// Creates a figure in a column.
    pub(super) fn new(column: &str, unit: &'static str, estimate: Estimate) -> Self {
        let interval = estimate.interval;
        MeasuredFigure {
            column: column.into(),
            unit,
            paper: None,
            paper_derived: false,
            ours: estimate.value,
            low: interval.map(|i| i.low),
            high: interval.map(|i| i.high),
            interval: interval.map(|i| i.to_string()),
            n: estimate.n,
            estimate,
            compared: true,
        }
    }

    /// Creates a figure without a random element.
    pub(super) fn exact(column: &str, unit: &'static str, value: f64) -> Self {
        MeasuredFigure::new(column, unit, Estimate { value, n: 1, interval: None, equal: false })
    }

    /// Adds the printed value.
    pub(super) fn with_paper_value(self, paper: f64) -> Self {
        MeasuredFigure { paper: Some(paper), ..self }
    }

    /// Adds a value that is computed from printed figures and not printed itself.
    pub(super) fn with_derived_value(self, paper: f64) -> Self {
        self.with_paper_value(paper).derived()
    }

    /// Marks the paper's value as computed from printed figures.
    pub(super) fn derived(self) -> Self {
        MeasuredFigure { paper_derived: true, ..self }
    }

    /// Adds a printed value that is shown without a difference: one of another quantity, or a count
    /// that may be 0.
    pub(super) fn with_other_quantity(self, paper: f64) -> Self {
        MeasuredFigure { compared: false, ..self.with_paper_value(paper) }
    }
}

/// A row of figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeasuredRow {
    /// Name of the row.
    pub name: String,
    /// Figures of the row.
    pub figures: Vec<MeasuredFigure>,
}

/// A table of figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeasuredTable {
    /// Table or figure of the paper, or name of an additional table.
    pub source: &'static str,
    /// Description of the measurement.
    pub what: String,
    /// Number of replications.
    pub replications: usize,
    /// Rows.
    pub rows: Vec<MeasuredRow>,
}

impl MeasuredTable {
    /// Returns a figure by row and column.
    pub fn get(&self, row: &str, column: &str) -> Option<&MeasuredFigure> {
        let row = self.rows.iter().find(|r| r.name == row)?;
        row.figures.iter().find(|f| f.column == column)
    }

    /// Returns the table as text: simulated values with intervals, and the printed values beside
    /// them.
    pub(super) fn sheet(&self, seed: u64) -> TableSheet {
        let mut columns: Vec<(&str, &str)> = Vec::new();
        for f in self.rows.iter().flat_map(|r| &r.figures) {
            if !columns.iter().any(|c| c.0 == f.column) {
                columns.push((&f.column, f.unit));
            }
        }
        let printed = |column: &str| {
            let of = |f: &MeasuredFigure| f.column == column && f.paper.is_some();
            self.rows.iter().flat_map(|r| &r.figures).any(of)
        };
        let mut head = vec![String::new()];
        for (column, unit) in &columns {
            let unit = if unit.is_empty() { String::new() } else { format!(" ({unit})") };
            head.push(format!("{column}{unit}"));
            if printed(column) {
                head.extend(["paper".into(), "difference".into()]);
            }
        }
        let cells = |row: &MeasuredRow| {
            let mut cells = vec![row.name.clone()];
            for (column, _) in &columns {
                let found = row.figures.iter().find(|f| f.column == *column);
                cells.push(found.map_or("-".into(), |f| with_interval(&f.estimate, 1.0, f.n)));
                if printed(column) {
                    let paper = found.and_then(|f| Some((f.ours, f.paper?)));
                    let derived = found.is_some_and(|f| f.paper_derived);
                    let mark = if derived { " (computed)" } else { "" };
                    cells.push(paper.map_or("-".into(), |(_, p)| format!("{}{mark}", figure(p))));
                    let off = |(ours, paper): (f64, f64)| {
                        // A difference that rounds to zero has no sign.
                        format!("{:+.0} %", ((ours / paper - 1.0) * 100.0).round() + 0.0)
                    };
                    let compared = paper.filter(|_| found.is_some_and(|f| f.compared));
                    cells.push(compared.map_or("-".into(), off));
                }
            }
            cells
        };
        let shown = self.rows.iter().flat_map(|r| &r.figures);
        let kinds = kinds(shown.map(|f| (f.column.as_str(), Some(f.estimate))));
        let n = self.replications;
        let rests = match kinds {
            Some(kinds) => format!("n = {n}, seed {seed}, {kinds}"),
            None => format!("n = {n} (no random elements), seed {seed}"),
        };
        TableSheet {
            caption: format!("{}: {} {rests}.", self.source, self.what),
            head,
            rows: self.rows.iter().map(cells).collect(),
        }
    }
}

/// A claim of a paper, tested with simulated figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// Section, table or figure of the claim.
    pub source: &'static str,
    /// The claim in words.
    pub says: String,
    /// The figures it is tested with.
    pub ours: String,
    /// Whether the claim holds here.
    pub holds: bool,
    /// Whether the replications are sufficient to decide. An undecided claim is not reproduced, and
    /// is a fault like one with another outcome than expected.
    pub sure: bool,
    /// The expected outcome; `why` gives the reason if the claim is not expected to hold.
    pub expected: bool,
    /// The reason for the expected outcome, or a limitation of the comparison. Its numbers are
    /// computed from the figures. It does not apply to any other outcome.
    pub why: String,
}

impl Claim {
    /// Returns whether the outcome is decided and as expected.
    pub fn is_right(&self) -> bool {
        self.sure && self.holds == self.expected
    }

    /// Returns the reason in words; there is none for an unexpected outcome.
    pub(super) fn reason(&self) -> Option<String> {
        let why = match (self.sure, self.is_right()) {
            (false, _) => "the replications do not decide it, so no reason is given.",
            (true, false) => "this is not the outcome for which a reason is known.",
            (true, true) => self.why.as_str(),
        };
        (!why.is_empty()).then(|| format!("{}, \"{}\": {why}", self.source, self.says))
    }

    /// Returns all claims as a table.
    pub(super) fn sheet(claims: &[Claim]) -> TableSheet {
        let row = |c: &Claim| {
            let holds = match (c.sure, c.holds) {
                (false, _) => "undecided",
                (true, true) => "holds",
                (true, false) => "does not hold",
            };
            let mark = if c.is_right() { "" } else { " !" };
            vec![c.source.into(), c.says.clone(), format!("{holds}{mark}"), c.ours.clone()]
        };
        TableSheet {
            caption: "Claims of the papers, and whether they hold here. Undecided: the 95 % intervals do not decide; \
                      more replications would. !: not as expected, which makes the command fail."
                .into(),
            head: ["", "claim", "here", "figures"].map(String::from).to_vec(),
            rows: claims.iter().map(row).collect(),
        }
    }
}
