//! Hung and Khanh 2010, "Analyze and evaluate the performance of SCTP at transport layer": what it shows with two
//! machines and a bridge between them, and what it says that SCTP needs and does not show. Its Table 1 is that of Gangurde
//! et al., and compared there.
//!
//! [`transfers`] is Figures 7 and 8, [`http`] what the abstract announces, [`availability`], [`wireless`] and [`moving`]
//! are the three issues of section II.2.

mod availability;
mod http;
mod moving;
mod transfers;
mod wireless;

use super::study::{Side, Study, StudyResult, difference, or_no_estimate, row, side, values_of};
use super::{Claim, MeasuredFigure, MeasuredTable, Reproduction};
use crate::run::{Outcome, RunError};
use ringway_figures::statistics::{Estimate, mean, paired};

/// Default number of replications.
pub(super) const REPLICATIONS: u64 = 20;

pub(super) fn run(seed: u64, replications: u64) -> Result<Reproduction, RunError> {
    let study = Study { paper: "hung-khanh", seed, replications };
    study.reproduce(
        "SCTP beside TCP over an impaired bridge, and what SS7 needs of it: Hung and Khanh 2010",
        &[transfers::run, http::run, availability::run, wireless::run, moving::run],
    )
}

/// TCP of Linux in 2010: CUBIC and selective acknowledgements, an initial window of three, no RACK.
const TCP_2010: &str = "tcp = { algorithm = \"cubic\", detection = \"sack\", initial_window = 3 }";

/// Returns the seconds until the first flow of each run was complete.
fn completions(runs: &[Outcome]) -> Vec<f64> {
    values_of(runs, |run| run.flows.first()?.completion)
}

/// Returns the estimate of a mean.
fn estimate(values: &[f64]) -> Estimate {
    or_no_estimate(mean(values))
}

/// Returns by how much the second is less than the first, over runs with the same random numbers.
fn less(first: &[f64], second: &[f64]) -> Estimate {
    or_no_estimate(paired(first, second))
}
