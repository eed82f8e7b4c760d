//! Pang 2003, "SCTP support in SIP proxy server": its experiments in the virtual world.
//!
//! The paper used three machines of 2002, a person who answered the telephone, and an unfinished
//! SCTP implementation. So absolute times are not compared, except those determined by round trips.
//! The comparison is which transport is ahead and by what factor. A [`Claim`] states for each
//! sentence of the paper whether it holds here and whether it is expected to. If it is not, the
//! claim has the reason, and where possible another experiment that demonstrates it.
//!
//! [`throughput`] is section 5.2, [`single`] 5.3, [`multi`] 5.4, [`homing`] 5.5 and Figures 3.10
//! and 3.11, [`files`] Figures 3.7 and 3.8. [`setup`] is the call set-up that Gangurde et al.
//! announce and do not print.

mod files;
mod homing;
mod multi;
mod setup;
mod single;
mod throughput;

use super::{Claim, MeasuredFigure, MeasuredRow, MeasuredTable, Reproduction};
use crate::output::ChartSheet;
use crate::run::{Options, Outcome, RunError, run as run_once};
use crate::scenario::Scenario;
use crate::sip::{Calls, TestBed};
use rayon::prelude::*;
use ringway_figures::statistics::{Estimate, SampleError};
use ringway_link::{LinkConfig, Rate, Span, Streams};
use ringway_sim::flows::TransportConfig;

/// Default number of replications.
pub(super) const REPLICATIONS: u64 = 30;

/// Parameters shared by all experiments.
#[derive(Clone, Copy, Debug)]
struct Study {
    seed: u64,
    replications: u64,
}

/// Results of one experiment.
#[derive(Default)]
struct StudyResult {
    tables: Vec<MeasuredTable>,
    claims: Vec<Claim>,
    charts: Vec<ChartSheet>,
    findings: Vec<String>,
}

pub(super) fn run(seed: u64, replications: u64) -> Result<Reproduction, RunError> {
    let study = Study { seed, replications };
    let experiments =
        [throughput::run, single::run, multi::run, files::run, homing::run, setup::run];
    let mut all = StudyResult::default();
    for experiment in experiments {
        let part = experiment(&study)?;
        all.tables.extend(part.tables);
        all.claims.extend(part.claims);
        all.charts.extend(part.charts);
        all.findings.extend(part.findings);
    }
    all.findings.extend(all.claims.iter().filter_map(Claim::reason));
    Ok(Reproduction {
        paper: "pang",
        title: "SIP over SCTP, UDP and TCP: Pang 2003, chapters 3 and 5, and the call set-up of Gangurde et al.",
        ok: all.claims.iter().all(Claim::is_right),
        seed,
        replications,
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

impl Study {
    /// Calls a function once for each replication, on all cores.
    fn each<T: Send>(
        &self,
        run: impl Fn(u64) -> Result<T, RunError> + Sync + Send,
    ) -> Result<Vec<T>, RunError> {
        (0..self.replications).into_par_iter().map(run).collect()
    }

    /// Runs a test bed; replication r of every bed uses the same random numbers.
    fn beds(&self, bed: &TestBed) -> Result<Vec<Calls>, RunError> {
        self.each(|replication| Ok(bed.run(Streams::new(self.seed, replication))?))
    }

    /// Runs the scenario in a text.
    fn scenario(&self, text: &str) -> Result<Vec<Outcome>, RunError> {
        let scenario = read(text)?;
        self.each(|replication| self.once(&scenario, replication))
    }

    /// Runs a scenario once; the first replication records its probes.
    fn once(&self, scenario: &Scenario, replication: u64) -> Result<Outcome, RunError> {
        let probes = replication == 0;
        let seed = Some(self.seed);
        run_once(scenario, &Options { seed, replication, probes, ..Options::default() }, |_| ())
    }
}

/// Parses a scenario of these experiments.
fn read(text: &str) -> Result<Scenario, RunError> {
    super::read("pang", text)
}

/// The estimate of a quantity without observations.
const NO_ESTIMATE: Estimate = Estimate { value: f64::NAN, n: 0, interval: None, equal: false };

/// The position of a difference's interval relative to 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// The interval is above 0.
    Above,
    /// The interval is below 0.
    Below,
    /// The interval contains 0, or there is none.
    Level,
}

fn side(difference: &Estimate) -> Side {
    match difference.interval {
        Some(i) if i.low > 0.0 => Side::Above,
        Some(i) if i.high < 0.0 => Side::Below,
        _ => Side::Level,
    }
}

/// Returns whether all differences are above 0, and whether their intervals decide it.
fn all_above(differences: &[Estimate]) -> (bool, bool) {
    let sides = || differences.iter().map(side);
    let holds = sides().all(|s| s == Side::Above);
    (holds, holds || sides().any(|s| s == Side::Below))
}

/// Lists in words the loss percentages at which differences are on each side: `more at 5 %, 10 %;
/// level at 20 %`.
fn by_side(differences: &[(f64, Estimate)], words: [&str; 3]) -> String {
    let of = |(word, expected): (&str, Side)| {
        let here = differences.iter().filter(|d| side(&d.1) == expected);
        let here: Vec<String> = here.map(|d| format!("{} %", d.0)).collect();
        (!here.is_empty()).then(|| format!("{word} at {}", here.join(", ")))
    };
    let sides = [Side::Above, Side::Level, Side::Below];
    words.into_iter().zip(sides).filter_map(of).collect::<Vec<_>>().join("; ")
}

/// Formats a difference with its interval.
fn difference(of: &Estimate, decimals: usize) -> String {
    match of.interval {
        Some(i) => {
            format!("{:+.decimals$} [{:+.decimals$}, {:+.decimals$}]", of.value, i.low, i.high)
        }
        None => format!("{:+.decimals$}", of.value),
    }
}

/// Returns the estimate, or [`NO_ESTIMATE`] without observations.
fn or_no_estimate(estimate: Result<Estimate, SampleError>) -> Estimate {
    estimate.unwrap_or(NO_ESTIMATE)
}

/// TCP with the settings of a present-day SIP server.
fn tcp() -> TransportConfig {
    TransportConfig::Tcp(ringway_tcp::Settings { nagle: false, ..Default::default() })
}

/// SCTP with one stream per call.
fn sctp(settings: ringway_sctp::Settings) -> TransportConfig {
    TransportConfig::Sctp(settings, settings.outbound_streams)
}

/// A link of the laboratory's Ethernet.
fn ethernet(delay: Span) -> LinkConfig {
    LinkConfig { rate: Rate(100_000_000), delay, ..LinkConfig::default() }
}

/// The three transports by name.
fn transports() -> [(&'static str, TransportConfig); 3] {
    [("UDP", TransportConfig::Udp), ("TCP", tcp()), ("SCTP", sctp(Default::default()))]
}

/// SCTP that detects losses by time (RACK) and probes the tail.
fn rack() -> (&'static str, TransportConfig) {
    ("SCTP, RACK", sctp(ringway_sctp::Settings { rack: true, ..Default::default() }))
}

/// Creates a row of figures.
fn row(name: impl Into<String>, figures: Vec<MeasuredFigure>) -> MeasuredRow {
    MeasuredRow { name: name.into(), figures }
}

/// Returns the values that `of` returns for each element.
fn values_of<T>(all: &[T], of: impl Fn(&T) -> Option<f64>) -> Vec<f64> {
    all.iter().filter_map(of).collect()
}
