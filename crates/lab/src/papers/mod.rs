//! The papers' tables and figures, run again and held against what was printed.

mod gangurde;
mod measured;
mod pang;

pub use measured::{Claim, Measured, MeasuredRow, MeasuredTable};

use crate::output::{ChartSheet, Sheet, figure};
use crate::run::RunError;
use ringway_figures::table::{Cell, RowSink, Schema, Table, TableError, Type};
use serde::Serialize;

/// A paper that can be run again.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// How it is called.
    pub name: &'static str,
    /// What it is, in a line.
    pub title: &'static str,
    /// Replications, where anything is left to chance.
    pub replications: Option<u64>,
    run: fn(u64, u64) -> Result<Reproduction, RunError>,
}

/// The seed of papers unless another is given: ns-2's.
pub const SEED: u64 = 12_345;

/// All of them.
pub const ALL: &[Paper] = &[
    Paper {
        name: "gangurde",
        title: "Gangurde et al., and Hung and Khanh 2010: UDP, TCP and SCTP with constant traffic (Table 1, Figures 3.2, 3.4, 3.6, 3.7)",
        replications: None,
        run: |_, _| gangurde::run(),
    },
    Paper {
        name: "pang",
        title: "Pang 2003: SIP over SCTP (Figures 3.7, 3.8, 3.10, 3.11 and 5.2, Tables 5.3 and 5.5, section 5.5); call set-up as announced by Gangurde et al.",
        replications: Some(pang::REPLICATIONS),
        run: pang::run,
    },
];

/// The one of that name.
pub fn find(name: &str) -> Option<&'static Paper> {
    ALL.iter().find(|p| p.name == name)
}

impl Paper {
    /// Runs it with a seed and so many replications, if it leaves anything to chance.
    pub fn run(&self, seed: u64, replications: u64) -> Result<Reproduction, RunError> {
        (self.run)(seed, replications)
    }
}

/// One figure, printed and ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// What it is.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// What was printed.
    pub paper: f64,
    /// What we got.
    pub ours: f64,
    /// By how many per cent ours is off.
    pub difference_percent: f64,
    /// How many are allowed.
    pub tolerance_percent: f64,
    /// Whether it is within.
    pub within: bool,
}

impl Comparison {
    fn new(name: &'static str, unit: &'static str, paper: f64, ours: f64, tolerance: f64) -> Self {
        let difference_percent = if paper == ours { 0.0 } else { (ours / paper - 1.0) * 100.0 };
        Comparison {
            name,
            unit,
            paper,
            ours,
            difference_percent,
            tolerance_percent: tolerance,
            within: difference_percent.abs() <= tolerance,
        }
    }
}

/// A row of a table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Which paper and which table.
    pub source: &'static str,
    /// The row's name.
    pub protocol: &'static str,
    /// Its figures.
    pub figures: Vec<Comparison>,
    /// What the paper's "lost" consists of: packets dropped, packets still under way at the cut, and
    /// packets that arrived.
    pub account: Account,
    /// A mistake or a second value in print.
    pub note: &'static str,
}

/// What became of the packets sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Account {
    /// Sent.
    pub sent: u64,
    /// Dropped.
    pub dropped: u64,
    /// Under way at the cut.
    pub in_flight: u64,
    /// Arrived.
    pub delivered: u64,
}

/// A paper run again.
#[derive(Clone, Debug, Serialize)]
pub struct Reproduction {
    /// Its name.
    pub paper: &'static str,
    /// What it is.
    pub title: &'static str,
    /// Whether every figure is within its tolerance.
    pub ok: bool,
    /// The seed.
    pub seed: u64,
    /// Replications.
    pub replications: u64,
    /// Rows of its tables that must come out to within a tolerance.
    pub rows: Vec<Row>,
    /// What its figures show.
    pub figures: Vec<FigureRow>,
    /// Tables of what was measured, with what the paper printed beside it.
    pub measured: Vec<MeasuredTable>,
    /// What the paper says of it.
    pub claims: Vec<Claim>,
    /// What follows.
    pub findings: Vec<String>,
    /// The figures themselves.
    #[serde(skip)]
    pub charts: Vec<ChartSheet>,
}

/// Something that can be read off a figure of the paper.
#[derive(Clone, Debug, Serialize)]
pub struct FigureRow {
    /// Which figure.
    pub figure: &'static str,
    /// What it shows, held against ours; `None` for what is not there yet.
    #[serde(flatten)]
    pub comparison: Comparison,
    /// The file of ours, without ending.
    pub file: &'static str,
}

impl Reproduction {
    /// Everything outside its tolerance, a line each.
    pub fn outside(&self) -> Vec<String> {
        let of_rows = self.rows.iter().flat_map(|r| r.figures.iter().map(move |f| (r.protocol, f)));
        let of_figures = self.figures.iter().map(|f| (f.figure, &f.comparison));
        let far = of_rows.chain(of_figures).filter(|(_, c)| !c.within).map(|(where_, c)| {
            format!(
                "{where_}: {} is {}, the paper has {}: {:+.3} %, allowed are {} %",
                c.name, c.ours, c.paper, c.difference_percent, c.tolerance_percent
            )
        });
        let wrong = self.claims.iter().filter(|c| !c.is_right()).map(|c| {
            let [holds, expected] =
                [c.holds, c.expected].map(|h| if h { "holds" } else { "does not hold" });
            let holds = if c.sure { holds } else { "is undecided" };
            format!("{}: \"{}\" {holds} ({}), expected: {expected}", c.source, c.says, c.ours)
        });
        far.chain(wrong).collect()
    }

    /// Every figure as a long table.
    pub fn table(&self) -> Result<Table, TableError> {
        let mut table = Table::new(Schema::new([
            ("source", Type::Text),
            ("row", Type::Text),
            ("figure", Type::Text),
            ("unit", Type::Text),
            ("paper", Type::F64),
            ("ours", Type::F64),
            ("low", Type::F64),
            ("high", Type::F64),
            ("interval", Type::Text),
            ("n", Type::U64),
        ])?);
        let of_rows = self.rows.iter().flat_map(|r| r.figures.iter().map(move |f| (r, f)));
        let of_rows = of_rows.map(|(r, f)| (r.source, r.protocol, f));
        let of_figures = self.figures.iter().map(|f| ("Figures", f.figure, &f.comparison));
        for (source, row, f) in of_rows.chain(of_figures) {
            table.row(&[
                source.into(),
                row.into(),
                f.name.into(),
                f.unit.into(),
                f.paper.into(),
                f.ours.into(),
                Cell::Missing,
                Cell::Missing,
                "".into(),
                1u64.into(),
            ])?;
        }
        for measured in &self.measured {
            for (row, f) in measured.rows.iter().flat_map(|r| r.figures.iter().map(move |f| (r, f)))
            {
                table.row(&[
                    measured.source.into(),
                    row.name.as_str().into(),
                    f.column.as_str().into(),
                    f.unit.into(),
                    f.paper.into(),
                    f.ours.into(),
                    f.low.into(),
                    f.high.into(),
                    f.interval.as_deref().unwrap_or_default().into(),
                    (f.n as u64).into(),
                ])?;
            }
        }
        Ok(table)
    }

    /// The points of all charts as a long table.
    pub fn points(&self) -> Result<Table, TableError> {
        let mut table = Table::new(Schema::new([
            ("chart", Type::Text),
            ("series", Type::Text),
            ("x", Type::F64),
            ("y", Type::F64),
        ])?);
        for chart in &self.charts {
            for series in &chart.series {
                for [x, y] in &series.points {
                    let (chart, series) = (chart.name.as_str(), series.name.as_str());
                    table.row(&[chart.into(), series.into(), (*x).into(), (*y).into()])?;
                }
            }
        }
        Ok(table)
    }

    /// The tables and figures of a report.
    pub fn sheet(&self) -> Sheet {
        use crate::output::TableSheet;
        let head = ["", "figure", "unit", "paper", "ours", "difference", "allowed"];
        let head = head.map(String::from).to_vec();
        let mut tables = Vec::new();
        let mut sources: Vec<&str> = self.rows.iter().map(|r| r.source).collect();
        sources.dedup();
        for source in sources {
            let mut rows = Vec::new();
            for row in self.rows.iter().filter(|r| r.source == source) {
                for (i, c) in row.figures.iter().enumerate() {
                    let name = if i == 0 { row.protocol } else { "" };
                    rows.push(vec![
                        name.into(),
                        c.name.into(),
                        c.unit.into(),
                        figure(c.paper),
                        figure(c.ours),
                        percent(c),
                        format!("{} %", c.tolerance_percent),
                    ]);
                }
            }
            let notes: Vec<&str> = self
                .rows
                .iter()
                .filter(|r| r.source == source && !r.note.is_empty())
                .map(|r| r.note)
                .collect();
            let caption = format!(
                "{source}. n = 1 (nothing is left to chance), seed {}. {}",
                self.seed,
                notes.join(" ")
            );
            tables.push(TableSheet {
                caption: caption.trim_end().into(),
                head: head.clone(),
                rows,
            });
        }
        tables.extend(self.measured.iter().map(|m| m.sheet(self.seed)));
        if !self.claims.is_empty() {
            tables.push(Claim::sheet(&self.claims));
        }
        if !self.rows.is_empty() {
            tables.push(self.accounts());
        }
        if !self.figures.is_empty() {
            tables.push(self.shown());
        }
        Sheet {
            network: None,
            title: self.title.into(),
            text: self.findings.clone(),
            facts: vec![
                ("paper".into(), self.paper.into()),
                ("version".into(), crate::output::version()),
                ("seed".into(), self.seed.to_string()),
                ("replications".into(), self.replications.to_string()),
            ],
            tables,
            charts: self.charts.clone(),
            files: [
                ("paper.json", "every figure, as JSON"),
                ("figures.csv", "every figure as a long table"),
                ("figures.parquet", "the same as Parquet"),
                ("points.csv", "the points of every chart"),
                ("points.parquet", "the same as Parquet"),
            ]
            .map(|(file, what)| (file.into(), what.into()))
            .to_vec(),
        }
    }

    /// What can be read off the paper's figures.
    fn shown(&self) -> crate::output::TableSheet {
        crate::output::TableSheet {
            caption: "What the papers' figures show, read off their text.".into(),
            head: ["figure", "what", "unit", "paper", "ours", "difference", "allowed"]
                .map(String::from)
                .to_vec(),
            rows: self
                .figures
                .iter()
                .map(|f| {
                    let c = &f.comparison;
                    let cells = [f.figure, c.name, c.unit].map(String::from);
                    let allowed = format!("{} %", c.tolerance_percent);
                    let numbers = [figure(c.paper), figure(c.ours), percent(c), allowed];
                    cells.into_iter().chain(numbers).collect()
                })
                .collect(),
        }
    }

    /// What the papers' "lost" is made of.
    fn accounts(&self) -> crate::output::TableSheet {
        let mut rows: Vec<Vec<String>> = Vec::new();
        for row in &self.rows {
            if rows.iter().any(|r| r[0] == row.protocol) {
                continue;
            }
            let lost: Vec<String> = self
                .rows
                .iter()
                .filter(|r| r.protocol == row.protocol)
                .filter_map(|r| r.figures.iter().find(|f| f.name == "lost"))
                .map(|f| f.paper.to_string())
                .collect();
            let a = row.account;
            rows.push(vec![
                row.protocol.into(),
                lost.join(" / "),
                a.sent.to_string(),
                a.dropped.to_string(),
                a.in_flight.to_string(),
                a.delivered.to_string(),
            ]);
        }
        crate::output::TableSheet {
            caption: "What \"lost\" is made of: the papers subtract what was received from what was sent."
                .into(),
            head: ["", "\"lost\" in print", "sent", "dropped", "in flight at the cut", "delivered"]
                .map(String::from)
                .to_vec(),
            rows,
        }
    }
}

fn percent(c: &Comparison) -> String {
    let mark = if c.within { "" } else { " !" };
    // What is rounded to zero has no sign.
    let rounded = (c.difference_percent * 1000.0).round() / 1000.0 + 0.0;
    format!("{rounded:+.3} %{mark}")
}
