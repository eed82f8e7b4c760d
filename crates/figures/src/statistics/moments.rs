//! Mean and variance in one pass over numbers of any size.

use super::quantile::student_quantile_unchecked;
use super::{Estimate, Interval, Kind};

/// Numbers that differ by no more than this part of themselves differ by rounding.
const ROUNDING: f64 = 1e-12;

/// Count, mean, spread and extremes of finite numbers seen one after another, without keeping them.
///
/// Welford's recurrence: no sum of squares grows, so nothing cancels when the mean is large beside
/// the spread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Moments {
    n: usize,
    mean: f64,
    squares: f64,
    low: f64,
    high: f64,
}

impl Moments {
    /// The moments of `sample`, all of whose numbers are finite.
    pub(super) fn of(sample: &[f64]) -> Self {
        let mut moments = Self::default();
        for &x in sample {
            moments.push(x);
        }
        moments
    }

    fn push(&mut self, x: f64) {
        self.n += 1;
        if self.n == 1 {
            (self.mean, self.low, self.high) = (x, x, x);
            return;
        }
        let from_old = x - self.mean;
        self.mean += from_old / self.n as f64;
        self.squares += from_old * (x - self.mean);
        self.low = self.low.min(x);
        self.high = self.high.max(x);
    }

    /// The variance of what they are a sample of (divided by n - 1); none below two.
    fn sample_variance(&self) -> Option<f64> {
        (self.n > 1).then(|| self.squares / (self.n - 1) as f64)
    }

    /// Whether there are several numbers and all are the same, but for rounding.
    fn all_equal(&self) -> bool {
        self.n > 1 && self.high - self.low <= ROUNDING * self.high.abs().max(self.low.abs())
    }

    /// The mean with a t interval at `level`, which numbers that are all equal have not. The caller
    /// has made sure that there is a number.
    pub(super) fn estimate(&self, level: f64, kind: Kind) -> Estimate {
        let varied = self.sample_variance().filter(|_| !self.all_equal());
        let interval = varied.map(|variance| {
            let t = student_quantile_unchecked((1.0 + level) / 2.0, (self.n - 1) as f64);
            let half = t * (variance / self.n as f64).sqrt();
            Interval { low: self.mean - half, high: self.mean + half, level, kind }
        });
        Estimate { value: self.mean, n: self.n, interval, equal: self.all_equal() }
    }
}
