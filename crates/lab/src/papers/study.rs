//! Papers made of experiments: each is run with the same random numbers, and yields tables, claims and charts.

use super::{Claim, MeasuredFigure, MeasuredRow, MeasuredTable, Reproduction};
use crate::output::ChartSheet;
use crate::run::{Options, Outcome, RunError, run as run_once};
use crate::scenario::Scenario;
use rayon::prelude::*;
use ringway_figures::statistics::{Estimate, SampleError};

/// Parameters shared by all experiments of a paper.
#[derive(Clone, Copy, Debug)]
pub(super) struct Study {
    /// Name of the paper.
    pub(super) paper: &'static str,
    pub(super) seed: u64,
    pub(super) replications: u64,
}

/// Results of one experiment.
#[derive(Default)]
pub(super) struct StudyResult {
    pub(super) tables: Vec<MeasuredTable>,
    pub(super) claims: Vec<Claim>,
    pub(super) charts: Vec<ChartSheet>,
    pub(super) findings: Vec<String>,
}

/// An experiment of a paper.
pub(super) type Experiment = fn(&Study) -> Result<StudyResult, RunError>;

impl Study {
    /// Runs all experiments, and judges the paper by their claims.
    pub(super) fn reproduce(
        &self,
        title: &'static str,
        experiments: &[Experiment],
    ) -> Result<Reproduction, RunError> {
        let mut all = StudyResult::default();
        for experiment in experiments {
            let part = experiment(self)?;
            all.tables.extend(part.tables);
            all.claims.extend(part.claims);
            all.charts.extend(part.charts);
            all.findings.extend(part.findings);
        }
        all.findings.extend(all.claims.iter().filter_map(Claim::reason));
        Ok(Reproduction {
            paper: self.paper,
            title,
            ok: all.claims.iter().all(Claim::is_right),
            seed: self.seed,
            replications: self.replications,
            rows: Vec::new(),
            figures: Vec::new(),
            measured: all.tables,
            claims: all.claims,
            parts: Vec::new(),
            findings: all.findings,
            charts: all.charts,
            rings: Vec::new(),
            pictures: Vec::new(),
            ladders: Vec::new(),
        })
    }

    /// Parses a scenario of the paper's experiments.
    pub(super) fn read(&self, text: &str) -> Result<Scenario, RunError> {
        super::read(self.paper, text)
    }

    /// Calls a function once for each replication, on all cores.
    pub(super) fn each<T: Send>(
        &self,
        run: impl Fn(u64) -> Result<T, RunError> + Sync + Send,
    ) -> Result<Vec<T>, RunError> {
        (0..self.replications).into_par_iter().map(run).collect()
    }

    /// Runs the scenario in a text.
    pub(super) fn scenario(&self, text: &str) -> Result<Vec<Outcome>, RunError> {
        let scenario = self.read(text)?;
        self.each(|replication| self.once(&scenario, replication))
    }

    /// Runs a scenario once; the first replication records its probes.
    pub(super) fn once(&self, scenario: &Scenario, replication: u64) -> Result<Outcome, RunError> {
        let probes = replication == 0;
        let seed = Some(self.seed);
        run_once(scenario, &Options { seed, replication, probes, ..Options::default() }, |_| ())
    }
}

/// The estimate of a quantity without observations.
pub(super) const NO_ESTIMATE: Estimate =
    Estimate { value: f64::NAN, n: 0, interval: None, equal: false };

/// The position of a difference's interval relative to 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The interval is above 0.
    Above,
    /// The interval is below 0.
    Below,
    /// The interval contains 0, or there is none.
    Level,
}

pub(super) fn side(difference: &Estimate) -> Side {
    match difference.interval {
        Some(i) if i.low > 0.0 => Side::Above,
        Some(i) if i.high < 0.0 => Side::Below,
        _ => Side::Level,
    }
}

/// Returns whether all differences are above 0, and whether their intervals decide it.
pub(super) fn all_above(differences: &[Estimate]) -> (bool, bool) {
    let sides = || differences.iter().map(side);
    let holds = sides().all(|s| s == Side::Above);
    (holds, holds || sides().any(|s| s == Side::Below))
}

/// Lists in words the loss percentages at which differences are on each side: `more at 5 %, 10 %;
/// level at 20 %`.
pub(super) fn by_side(differences: &[(f64, Estimate)], words: [&str; 3]) -> String {
    let of = |(word, expected): (&str, Side)| {
        let here = differences.iter().filter(|d| side(&d.1) == expected);
        let here: Vec<String> = here.map(|d| format!("{} %", d.0)).collect();
        (!here.is_empty()).then(|| format!("{word} at {}", here.join(", ")))
    };
    let sides = [Side::Above, Side::Level, Side::Below];
    words.into_iter().zip(sides).filter_map(of).collect::<Vec<_>>().join("; ")
}

/// Formats a difference with its interval.
pub(super) fn difference(of: &Estimate, decimals: usize) -> String {
    match of.interval {
        Some(i) => {
            format!("{:+.decimals$} [{:+.decimals$}, {:+.decimals$}]", of.value, i.low, i.high)
        }
        None => format!("{:+.decimals$}", of.value),
    }
}

/// Returns the estimate, or [`NO_ESTIMATE`] without observations.
pub(super) fn or_no_estimate(estimate: Result<Estimate, SampleError>) -> Estimate {
    estimate.unwrap_or(NO_ESTIMATE)
}

/// Creates a row of figures.
pub(super) fn row(name: impl Into<String>, figures: Vec<MeasuredFigure>) -> MeasuredRow {
    MeasuredRow { name: name.into(), figures }
}

/// Returns the values that `of` returns for each element.
pub(super) fn values_of<T>(all: &[T], of: impl Fn(&T) -> Option<f64>) -> Vec<f64> {
    all.iter().filter_map(of).collect()
}
