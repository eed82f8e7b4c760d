//! When a cell of a campaign has been run often enough.

use super::{Kind, LEVEL, Moments, check, mean};

/// Fewest replications before a cell may stop.
const AT_LEAST: usize = 10;
/// Half-width of the interval over the mean at which a cell may stop.
const WITHIN: f64 = 0.05;
/// No estimate of the replications still needed goes beyond this.
const MOST_NEEDED: f64 = 1e9;

/// Stop once there are enough replications and the interval is narrow beside the mean.
///
/// The default is at least 10 replications and a 95 % half-width of at most 5 % of the mean. Looking
/// after every replication makes the interval a little optimistic; the least number keeps that small.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoppingRule {
    /// Fewest replications, whatever the interval.
    pub at_least: usize,
    /// Largest half-width as a part of the absolute mean.
    pub within: f64,
}

impl Default for StoppingRule {
    fn default() -> Self {
        Self { at_least: AT_LEAST, within: WITHIN }
    }
}

impl StoppingRule {
    /// Whether `sample`, one value a replication, is enough.
    ///
    /// Never with fewer than two values, or with one that is not finite: such a cell has a fault
    /// that more replications may show. All values equal is enough, also when they are all 0: more
    /// of them would be copies, and the estimate says that it has no interval.
    pub fn met(&self, sample: &[f64]) -> bool {
        let enough = |estimate: super::Estimate| match estimate.relative_half_width() {
            Some(width) => width <= self.within,
            None => estimate.equal,
        };
        sample.len() >= self.at_least && mean(sample).is_ok_and(enough)
    }

    /// About how many replications the cell needs in all, judged by the spread so far: for a display
    /// of the time left. None while fewer than two values are known or one is not finite.
    pub fn needed(&self, sample: &[f64]) -> Option<usize> {
        check(sample).ok()?;
        let estimate = Moments::of(sample).estimate(LEVEL, Kind::StudentT);
        if estimate.equal {
            return Some(self.at_least);
        }
        let width = estimate.relative_half_width()?;
        // The half-width shrinks with the root of the number of replications.
        let factor = (width / self.within).powi(2);
        let needed = (sample.len() as f64 * factor).ceil().min(MOST_NEEDED);
        Some((needed as usize).max(self.at_least))
    }
}
