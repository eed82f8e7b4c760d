//! Pang 2003, "SCTP support in SIP proxy server": its experiments in the virtual world.
//!
//! The paper had three machines of 2002, a person who answered the telephone, and an SCTP that was
//! not finished. So milliseconds are not compared, but for those that are a matter of round trips:
//! what is held against the paper is which transport is ahead and by what factor. A [`Claim`] says
//! for each sentence of the paper whether it comes out here and whether it should; where it should
//! not, the reason stands beside it, and another experiment shows it where one can.
//!
//! [`throughput`] is section 5.2, [`single`] 5.3, [`multi`] 5.4, [`homing`] 5.5 and Figures 3.10 and
//! 3.11, [`files`] Figures 3.7 and 3.8, [`setup`] what Gangurde et al. announce and do not print.

mod files;
mod homing;
mod multi;
mod setup;
mod single;
mod throughput;

use super::{Claim, Measured, MeasuredRow, MeasuredTable, Reproduction};
use crate::output::ChartSheet;
use crate::run::{Options, Outcome, RunError, run as run_once};
use crate::scenario::Scenario;
use crate::sip::{Bed, Calls};
use rayon::prelude::*;
use ringway_figures::statistics::{Estimate, SampleError};
use ringway_link::{LinkConfig, Rate, Span, Streams};
use ringway_sim::flows::TransportConfig;

/// Replications unless told otherwise.
pub(super) const REPLICATIONS: u64 = 30;

/// What is the same for all experiments.
#[derive(Clone, Copy, Debug)]
struct Study {
    seed: u64,
    replications: u64,
}

/// What an experiment gives.
#[derive(Default)]
struct Part {
    tables: Vec<MeasuredTable>,
    claims: Vec<Claim>,
    charts: Vec<ChartSheet>,
    findings: Vec<String>,
}

pub(super) fn run(seed: u64, replications: u64) -> Result<Reproduction, RunError> {
    let study = Study { seed, replications };
    let experiments =
        [throughput::run, single::run, multi::run, files::run, homing::run, setup::run];
    let mut all = Part::default();
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
        findings: all.findings,
        charts: all.charts,
    })
}

impl Study {
    /// Runs something once for each replication, on all cores.
    fn each<T: Send>(
        &self,
        run: impl Fn(u64) -> Result<T, RunError> + Sync + Send,
    ) -> Result<Vec<T>, RunError> {
        (0..self.replications).into_par_iter().map(run).collect()
    }

    /// Runs a test bed; replication r of every bed meets the same random numbers.
    fn beds(&self, bed: &Bed) -> Result<Vec<Calls>, RunError> {
        self.each(|replication| Ok(bed.run(Streams::new(self.seed, replication))?))
    }

    /// Runs the scenario of a text.
    fn scenario(&self, text: &str) -> Result<Vec<Outcome>, RunError> {
        let scenario = read(text)?;
        self.each(|replication| self.once(&scenario, replication))
    }

    /// Runs a scenario once; the first replication looks at its probes.
    fn once(&self, scenario: &Scenario, replication: u64) -> Result<Outcome, RunError> {
        let probes = replication == 0;
        let seed = Some(self.seed);
        run_once(scenario, &Options { seed, replication, probes, ..Options::default() }, |_| ())
    }
}

/// A scenario of this program's own; a mistake in it is told as it would be in a file.
fn read(text: &str) -> Result<Scenario, RunError> {
    let read = Scenario::read("pang", text);
    read.map_err(|what| RunError::World(ringway_sim::Error::Settings { what: what.to_string() }))
}

/// Nothing was seen: a value that is none.
const NOTHING: Estimate = Estimate { value: f64::NAN, n: 0, interval: None, equal: false };

/// What the interval of a difference tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// More than 0.
    Above,
    /// Less.
    Below,
    /// 0 is in the interval, or there is none.
    Level,
}

fn side(difference: &Estimate) -> Side {
    match difference.interval {
        Some(i) if i.low > 0.0 => Side::Above,
        Some(i) if i.high < 0.0 => Side::Below,
        _ => Side::Level,
    }
}

/// Whether all differences are more than 0, and whether their intervals tell.
fn all_above(differences: &[Estimate]) -> (bool, bool) {
    let sides = || differences.iter().map(side);
    let holds = sides().all(|s| s == Side::Above);
    (holds, holds || sides().any(|s| s == Side::Below))
}

/// The percentages at which differences lie on each side, in words: `more at 5 %, 10 %; level at
/// 20 %`.
fn by_side(differences: &[(f64, Estimate)], words: [&str; 3]) -> String {
    let of = |(word, wanted): (&str, Side)| {
        let here = differences.iter().filter(|d| side(&d.1) == wanted);
        let here: Vec<String> = here.map(|d| format!("{} %", d.0)).collect();
        (!here.is_empty()).then(|| format!("{word} at {}", here.join(", ")))
    };
    let sides = [Side::Above, Side::Level, Side::Below];
    words.into_iter().zip(sides).filter_map(of).collect::<Vec<_>>().join("; ")
}

/// A difference with its interval, in so many decimals.
fn difference(of: &Estimate, decimals: usize) -> String {
    match of.interval {
        Some(i) => {
            format!("{:+.decimals$} [{:+.decimals$}, {:+.decimals$}]", of.value, i.low, i.high)
        }
        None => format!("{:+.decimals$}", of.value),
    }
}

/// An estimate, or none of nothing.
fn known(estimate: Result<Estimate, SampleError>) -> Estimate {
    estimate.unwrap_or(NOTHING)
}

/// TCP as a SIP server of today uses it.
fn tcp() -> TransportConfig {
    TransportConfig::Tcp(ringway_tcp::Settings { nagle: false, ..Default::default() })
}

/// SCTP with a stream for each call.
fn sctp(settings: ringway_sctp::Settings) -> TransportConfig {
    TransportConfig::Sctp(settings, settings.outbound_streams)
}

/// A link of the laboratory's Ethernet.
fn ethernet(delay: Span) -> LinkConfig {
    LinkConfig { rate: Rate(100_000_000), delay, ..LinkConfig::default() }
}

/// The three transports by their names.
fn transports() -> [(&'static str, TransportConfig); 3] {
    [("UDP", TransportConfig::Udp), ("TCP", tcp()), ("SCTP", sctp(Default::default()))]
}

/// SCTP that finds losses by time and probes a silent tail.
fn rack() -> (&'static str, TransportConfig) {
    ("SCTP, RACK", sctp(ringway_sctp::Settings { rack: true, ..Default::default() }))
}

/// A row of figures.
fn row(name: impl Into<String>, figures: Vec<Measured>) -> MeasuredRow {
    MeasuredRow { name: name.into(), figures }
}

/// What `of` gives of each.
fn of_each<T>(all: &[T], of: impl Fn(&T) -> Option<f64>) -> Vec<f64> {
    all.iter().filter_map(of).collect()
}
