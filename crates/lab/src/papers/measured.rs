//! Figures measured over replications, with what a paper printed beside them, and what a paper says
//! of them.

use crate::commands::with_interval;
use crate::estimate::kinds;
use crate::output::{TableSheet, figure};
use ringway_figures::statistics::Estimate;
use serde::Serialize;

/// A figure with its interval, and the paper's where it printed one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// The column it stands in, such as the transport.
    pub column: String,
    /// Its unit.
    pub unit: &'static str,
    /// What was printed, or follows from it.
    pub paper: Option<f64>,
    /// Whether the paper's figure is computed from what it prints, such as a quotient of two figures.
    pub paper_derived: bool,
    /// What we got.
    pub ours: f64,
    /// Lower bound of the interval.
    pub low: Option<f64>,
    /// Upper bound.
    pub high: Option<f64>,
    /// The kind of interval.
    pub interval: Option<String>,
    /// How many replications it rests on.
    pub n: usize,
    #[serde(skip)]
    estimate: Estimate,
    /// Whether the two are of one kind, so that their difference says something.
    #[serde(skip)]
    compared: bool,
}

impl Measured {
    /// A figure of a column.
    pub(super) fn new(column: &str, unit: &'static str, estimate: Estimate) -> Self {
        let interval = estimate.interval;
        Measured {
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

    /// One that nothing is left to chance of.
    pub(super) fn certain(column: &str, unit: &'static str, value: f64) -> Self {
        Measured::new(column, unit, Estimate { value, n: 1, interval: None, equal: false })
    }

    /// With what the paper printed.
    pub(super) fn beside(self, paper: f64) -> Self {
        Measured { paper: Some(paper), ..self }
    }

    /// With what follows from figures that the paper prints, and is not printed itself.
    pub(super) fn beside_derived(self, paper: f64) -> Self {
        Measured { paper_derived: true, ..self.beside(paper) }
    }

    /// With what the paper printed, which is of something else and is shown without a difference.
    pub(super) fn apart_from(self, paper: f64) -> Self {
        Measured { compared: false, ..self.beside(paper) }
    }
}

/// A row of figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeasuredRow {
    /// What it is of.
    pub name: String,
    /// Its figures.
    pub figures: Vec<Measured>,
}

/// A table of figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeasuredTable {
    /// Which table or figure of the paper, or of ours.
    pub source: &'static str,
    /// What was measured, and how.
    pub what: String,
    /// Replications.
    pub replications: usize,
    /// The rows.
    pub rows: Vec<MeasuredRow>,
}

impl MeasuredTable {
    /// A figure by row and column.
    pub fn get(&self, row: &str, column: &str) -> Option<&Measured> {
        let row = self.rows.iter().find(|r| r.name == row)?;
        row.figures.iter().find(|f| f.column == column)
    }

    /// As it is shown: ours with its interval, and the paper's beside it where it printed any.
    pub(super) fn sheet(&self, seed: u64) -> TableSheet {
        let mut columns: Vec<(&str, &str)> = Vec::new();
        for f in self.rows.iter().flat_map(|r| &r.figures) {
            if !columns.iter().any(|c| c.0 == f.column) {
                columns.push((&f.column, f.unit));
            }
        }
        let printed = |column: &str| {
            let of = |f: &Measured| f.column == column && f.paper.is_some();
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
                        format!("{:+.0} %", (ours / paper - 1.0) * 100.0)
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
            None => format!("n = {n} (nothing is left to chance), seed {seed}"),
        };
        TableSheet {
            caption: format!("{}: {} {rests}.", self.source, self.what),
            head,
            rows: self.rows.iter().map(cells).collect(),
        }
    }
}

/// Something a paper says, held against what was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// Where it stands.
    pub source: &'static str,
    /// What the paper says.
    pub says: String,
    /// The figures it is held against.
    pub ours: String,
    /// Whether it holds here.
    pub holds: bool,
    /// Whether the replications are enough to tell. A claim that they cannot decide is not
    /// reproduced, and a fault as much as one that comes out otherwise than expected.
    pub sure: bool,
    /// Whether it should: where it is known not to, `why` says why.
    pub expected: bool,
    /// Why it comes out as expected, or what the comparison leaves out; computed from the figures
    /// wherever it names any. Says nothing about another outcome.
    pub why: String,
}

impl Claim {
    /// Whether it came out as expected, with enough replications to tell.
    pub fn is_right(&self) -> bool {
        self.sure && self.holds == self.expected
    }

    /// The reason in words; of an outcome that is not the expected one no reason is known.
    pub(super) fn reason(&self) -> Option<String> {
        let why = match (self.sure, self.is_right()) {
            (false, _) => "the replications cannot tell, so no reason is given.",
            (true, false) => "this is not the outcome for which a reason is known.",
            (true, true) => self.why.as_str(),
        };
        (!why.is_empty()).then(|| format!("{}, \"{}\": {why}", self.source, self.says))
    }

    /// All of them as a table.
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
            caption: "What the papers say, and whether it comes out here. Undecided: the 95 % intervals do not \
                      tell; more replications would. !: not as expected, which makes the command fail."
                .into(),
            head: ["", "the paper says", "here", "because"].map(String::from).to_vec(),
            rows: claims.iter().map(row).collect(),
        }
    }
}
