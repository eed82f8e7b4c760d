//! Numbers with their intervals: what was measured, how often, and how far it can be trusted.
//!
//! A value on its own says nothing, so every function here returns an [`Estimate`]: the value, the
//! number of observations, and where it can be had a confidence [`Interval`] that knows its own
//! kind. Observations must be independent (replications, or trials of one run that do not remember
//! each other); nothing here can see whether they are. This is not a general library of statistics:
//! it holds what the laboratory prints.
//!
//! Samples that hold no observation, or one that is not a finite number, are refused with a
//! [`SampleError`]. A sample of one has a value and no interval. Neither has one whose observations
//! are all equal ([`Estimate::equal`]): copies of a run without a random element tell nothing of
//! a spread, however many there are. Nothing here panics.
//!
//! Read [`mean`] and [`ratio`], then [`percentile`](fn@percentile), [`ratio_of_replications`] and
//! [`StoppingRule`].

mod moments;
mod percentile;
mod quantile;
mod replications;
mod stopping;

use std::fmt;

use moments::Moments;
pub use percentile::{percentile, percentile_of_replications};
pub use quantile::{normal_quantile, student_quantile};
pub use replications::ratio_of_replications;
pub use stopping::StoppingRule;

/// The level of every interval unless another is asked for: 95 %.
pub const LEVEL: f64 = 0.95;

/// How an interval was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Student's t over the mean of independent observations.
    StudentT,
    /// Student's t over the differences of pairs that met the same random numbers.
    PairedT,
    /// Wilson's score interval of a ratio.
    Wilson,
    /// Between two observations, by the binomial distribution of their ranks.
    Rank,
    /// Woodruff's: where Wilson's interval of the share of observations below meets them.
    Woodruff,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StudentT => "Student t",
            Self::PairedT => "paired Student t",
            Self::Wilson => "Wilson",
            Self::Rank => "rank",
            Self::Woodruff => "Woodruff",
        })
    }
}

/// A confidence interval, in the unit of the value it belongs to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower bound.
    pub low: f64,
    /// Upper bound, never below `low`.
    pub high: f64,
    /// Confidence, between 0 and 1.
    pub level: f64,
    /// How it was found.
    pub kind: Kind,
}

impl Interval {
    /// Half of the distance between the bounds.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// Whether `value` lies between the bounds, which belong to the interval.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

impl fmt::Display for Interval {
    /// `95 % Student t`, for captions and the heads of tables.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} % {}", round_level(self.level), self.kind)
    }
}

/// A level in per cent, without the dust that binary fractions leave.
fn round_level(level: f64) -> f64 {
    (level * 1e8).round() / 1e6
}

/// A value with what is known about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The value itself.
    pub value: f64,
    /// How many observations (replications, trials, pairs) it rests on.
    pub n: usize,
    /// Its interval; none where a single observation, or several equal ones, leave the spread
    /// unknown.
    pub interval: Option<Interval>,
    /// Whether there are several observations and all are equal, so that they have no interval.
    pub equal: bool,
}

impl Estimate {
    /// Half-width of the interval over the absolute value; none without an interval.
    pub fn relative_half_width(&self) -> Option<f64> {
        Some(self.interval?.half_width() / self.value.abs())
    }
}

/// Why a sample has no statistic.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// There is nothing to take a statistic of.
    #[error("expected at least one observation, got none")]
    Empty,
    /// An observation is NaN or infinite.
    #[error("expected finite observations, got {value} at position {position}")]
    NotFinite {
        /// Position in the sample, from 0.
        position: usize,
        /// What stands there.
        value: f64,
    },
    /// More successes than trials.
    #[error("expected at most {trials} successes, got {successes}")]
    MoreSuccessesThanTrials {
        /// Successes given.
        successes: u64,
        /// Trials given.
        trials: u64,
    },
    /// Two samples that should be paired differ in length.
    #[error("expected pairs, got {left} observations on the left and {right} on the right")]
    Unpaired {
        /// Length of the left sample.
        left: usize,
        /// Length of the right sample.
        right: usize,
    },
    /// A probability that is none, or a level of 0 or 1.
    #[error("expected a probability between 0 and 1, got {0}")]
    NotAProbability(f64),
}

/// Refuses a sample that is empty or holds what is not a finite number.
pub(crate) fn check(sample: &[f64]) -> Result<(), SampleError> {
    if sample.is_empty() {
        return Err(SampleError::Empty);
    }
    match sample.iter().position(|x| !x.is_finite()) {
        Some(position) => Err(SampleError::NotFinite { position, value: sample[position] }),
        None => Ok(()),
    }
}

/// The mean of independent observations with its 95 % Student t interval.
///
/// # Errors
/// An empty sample, or an observation that is not finite. One observation gives no interval.
pub fn mean(sample: &[f64]) -> Result<Estimate, SampleError> {
    check(sample)?;
    Ok(Moments::of(sample).estimate(LEVEL, Kind::StudentT))
}

/// The mean of `left - right` with its 95 % interval, where the i-th observations of both met the
/// same random numbers.
///
/// Common random numbers make the two rise and fall together, so that the difference varies less
/// than either: the interval tells apart what two separate intervals would not.
///
/// # Errors
/// Samples of different lengths, empty ones, or an observation or difference that is not finite.
pub fn paired(left: &[f64], right: &[f64]) -> Result<Estimate, SampleError> {
    if left.len() != right.len() {
        return Err(SampleError::Unpaired { left: left.len(), right: right.len() });
    }
    check(left)?;
    check(right)?;
    let differences: Vec<f64> = left.iter().zip(right).map(|(l, r)| l - r).collect();
    check(&differences)?;
    Ok(Moments::of(&differences).estimate(LEVEL, Kind::PairedT))
}

/// The ratio `successes / trials` with its 95 % Wilson score interval.
///
/// Unlike the textbook's `p ± z sqrt(p (1 - p) / n)` it stays within 0 and 1 and has a width where
/// there were no successes or nothing else (Wilson 1927).
///
/// # Errors
/// No trials, or more successes than trials.
pub fn ratio(successes: u64, trials: u64) -> Result<Estimate, SampleError> {
    if trials == 0 {
        return Err(SampleError::Empty);
    }
    if successes > trials {
        return Err(SampleError::MoreSuccessesThanTrials { successes, trials });
    }
    let (k, n) = (successes as f64, trials as f64);
    let z = normal_quantile((1.0 + LEVEL) / 2.0)?;
    let (low, high) = replications::wilson(k / n, n, z);
    let interval = Interval { low, high, level: LEVEL, kind: Kind::Wilson };
    Ok(Estimate {
        value: k / n,
        n: usize::try_from(trials).unwrap_or(usize::MAX),
        interval: Some(interval),
        equal: false,
    })
}

#[cfg(test)]
mod tests;
