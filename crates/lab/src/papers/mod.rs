//! The papers' tables and figures, simulated and compared with the printed values.

mod darakji;
mod gangurde;
mod hung_khanh;
mod measured;
mod nayak;
mod pang;
mod part;
mod study;

pub use measured::{Claim, MeasuredFigure, MeasuredRow, MeasuredTable};
pub use part::{Part, Progress};

use crate::output::{ChartSheet, LadderSheet, PictureSheet, RingSheet, Sheet, figure};
use crate::run::RunError;
use crate::scenario::Scenario;
use ringway_figures::table::{Cell, RowSink, Schema, Table, TableError, Type};
use serde::Serialize;

/// A paper whose experiments can be run.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// Name of the paper on the command line.
    pub name: &'static str,
    /// Authors and title in one line.
    pub title: &'static str,
    /// Default number of replications; `None` without random experiments.
    pub replications: Option<u64>,
    run: fn(u64, u64) -> Result<Reproduction, RunError>,
}

/// Default seed of papers: that of ns-2.
pub const SEED: u64 = 12_345;

/// All papers.
pub const ALL: &[Paper] = &[
    Paper {
        name: "gangurde",
        title: "Gangurde et al., and Hung and Khanh 2010: UDP, TCP and SCTP with constant traffic (Table 1, Figures \
                3.2, 3.4, 3.6, 3.7)",
        replications: None,
        run: |_, _| gangurde::run(),
    },
    Paper {
        name: "pang",
        title: "Pang 2003: SIP over SCTP (Figures 3.7, 3.8, 3.10, 3.11 and 5.2, Tables 5.3 and 5.5, section 5.5); \
                call set-up as announced by Gangurde et al.",
        replications: Some(pang::REPLICATIONS),
        run: pang::run,
    },
    Paper {
        name: "hung-khanh",
        title: "Hung and Khanh 2010: SCTP beside TCP over an impaired bridge (Figures 7 and 8), and the issues of its \
                section II.2",
        replications: Some(hung_khanh::REPLICATIONS),
        run: hung_khanh::run,
    },
    Paper {
        name: "nayak",
        title: "Nayak and Mishra: four TCP connections and one SCTP association with four streams (Tables III to IX, \
                Figures 2 to 8)",
        replications: Some(nayak::REPLICATIONS),
        run: nayak::run,
    },
    Paper {
        name: "darakji",
        title: "Darakji and Johansson 2008: SIP over Scalable Source Routing (Tables 4 to 9, section 4.5.1 without \
                SIP, Figures 5 to 8, 17 to 21 and 25 to 30)",
        replications: Some(darakji::REPLICATIONS),
        run: darakji::run,
    },
];

/// Returns the paper of that name.
pub fn find(name: &str) -> Option<&'static Paper> {
    ALL.iter().find(|p| p.name == name)
}

impl Paper {
    /// Runs the experiments with a seed and a number of replications, if they have random elements.
    pub fn run(&self, seed: u64, replications: u64) -> Result<Reproduction, RunError> {
        (self.run)(seed, replications)
    }
}

/// A printed and a simulated value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Name of the quantity.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Printed value.
    pub paper: f64,
    /// Simulated value.
    pub ours: f64,
    /// Difference in per cent of the printed value.
    pub difference_percent: f64,
    /// Tolerance in per cent.
    pub tolerance_percent: f64,
    /// Whether the difference is within the tolerance.
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
    /// Paper and table.
    pub source: &'static str,
    /// Name of the row.
    pub protocol: &'static str,
    /// Figures of the row.
    pub figures: Vec<Comparison>,
    /// The composition of the paper's "lost": packets dropped, packets in flight at the cut, and
    /// packets delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<Account>,
    /// A mistake or a second value in print.
    pub note: &'static str,
}

/// Account of the packets sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Account {
    /// Sent.
    pub sent: u64,
    /// Dropped.
    pub dropped: u64,
    /// In flight at the cut.
    pub in_flight: u64,
    /// Delivered.
    pub delivered: u64,
}

/// A paper's experiments with their results.
#[derive(Clone, Debug, Serialize)]
pub struct Reproduction {
    /// Name of the paper.
    pub paper: &'static str,
    /// Title of the paper.
    pub title: &'static str,
    /// Whether every figure is within its tolerance and every claim is as expected.
    pub ok: bool,
    /// The seed.
    pub seed: u64,
    /// Number of replications.
    pub replications: u64,
    /// Rows of the tables that have a tolerance.
    pub rows: Vec<Row>,
    /// Values read off the paper's figures.
    pub figures: Vec<FigureRow>,
    /// Tables of estimates beside the printed values.
    pub measured: Vec<MeasuredTable>,
    /// Claims of the paper.
    pub claims: Vec<Claim>,
    /// Parts of the paper, if some of them are not reproduced yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
    /// Conclusions.
    pub findings: Vec<String>,
    /// Figures.
    #[serde(skip)]
    pub charts: Vec<ChartSheet>,
    /// Rings of ids.
    #[serde(skip)]
    pub rings: Vec<RingSheet>,
    /// Pictures of packets on their way.
    #[serde(skip)]
    pub pictures: Vec<PictureSheet>,
    /// Ladders of messages.
    #[serde(skip)]
    pub ladders: Vec<LadderSheet>,
}

/// A value that can be read off a figure of the paper.
#[derive(Clone, Debug, Serialize)]
pub struct FigureRow {
    /// Number of the figure.
    pub figure: &'static str,
    /// Comparison of its value with the simulated one.
    #[serde(flatten)]
    pub comparison: Comparison,
    /// File of the simulated figure, without extension.
    pub file: &'static str,
}

impl Reproduction {
    /// Returns one line for each value outside its tolerance.
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

    /// Returns every value as a long table.
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

    /// Returns the points of all charts as a long table: bars with their names, estimates with their intervals.
    pub fn points(&self) -> Result<Table, TableError> {
        let mut table = Table::new(Schema::new([
            ("chart", Type::Text),
            ("series", Type::Text),
            ("bar", Type::Text),
            ("x", Type::F64),
            ("y", Type::F64),
            ("low", Type::F64),
            ("high", Type::F64),
            ("n", Type::U64),
        ])?);
        for chart in &self.charts {
            for series in &chart.series {
                for (i, [x, y]) in series.points.iter().enumerate() {
                    let bar = series.names.get(i).map_or("", String::as_str);
                    let estimate = series.bounds.get(i);
                    let interval = estimate.and_then(|(interval, _)| *interval);
                    table.row(&[
                        chart.name.as_str().into(),
                        series.name.as_str().into(),
                        bar.into(),
                        (*x).into(),
                        (*y).into(),
                        interval.map(|[low, _]| low).into(),
                        interval.map(|[_, high]| high).into(),
                        estimate.map(|(_, n)| *n as u64).into(),
                    ])?;
                }
            }
        }
        Ok(table)
    }

    /// Returns the tables and figures of the report.
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
                "{source}. n = 1 (no random elements), seed {}. {}",
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
        if self.rows.iter().any(|r| r.account.is_some()) {
            tables.push(self.accounts());
        }
        if !self.figures.is_empty() {
            tables.push(self.shown());
        }
        if !self.parts.is_empty() {
            tables.push(Part::sheet(&self.parts));
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
            rings: self.rings.clone(),
            pictures: self.pictures.clone(),
            ladders: self.ladders.clone(),
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

    /// Returns the table of the values read off the paper's figures.
    fn shown(&self) -> crate::output::TableSheet {
        crate::output::TableSheet {
            caption: "Values of the papers' figures, from their text.".into(),
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

    /// Returns the table of the composition of the papers' "lost".
    fn accounts(&self) -> crate::output::TableSheet {
        let mut rows: Vec<Vec<String>> = Vec::new();
        for row in &self.rows {
            let Some(a) = row.account else { continue };
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
            caption:
                "What \"lost\" consists of: the papers subtract packets received from packets sent."
                    .into(),
            head: ["", "\"lost\" in print", "sent", "dropped", "in flight at the cut", "delivered"]
                .map(String::from)
                .to_vec(),
            rows,
        }
    }
}

/// Parses a scenario of this program; a mistake in it is reported like one in a file.
fn read(paper: &str, text: &str) -> Result<Scenario, RunError> {
    let read = Scenario::read(paper, text);
    read.map_err(|what| RunError::World(ringway_sim::Error::Settings { what: what.to_string() }))
}

fn percent(c: &Comparison) -> String {
    let mark = if c.within { "" } else { " !" };
    // A difference that rounds to zero has no sign.
    let rounded = (c.difference_percent * 1000.0).round() / 1000.0 + 0.0;
    format!("{rounded:+.3} %{mark}")
}
