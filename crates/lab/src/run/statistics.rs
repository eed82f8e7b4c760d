//! Samples of bounded number, and exact moments.

/// Maximum number of samples; beyond it every second one is dropped, repeatedly.
pub const MAX_SAMPLES: usize = 1 << 21;

/// An evenly spaced selection of the values pushed: all of them up to [`MAX_SAMPLES`].
#[derive(Clone, Debug)]
pub(crate) struct BoundedSamples<T> {
    samples: Vec<T>,
    /// Interval between two stored values.
    every: u64,
    pushed: u64,
}

impl<T> Default for BoundedSamples<T> {
    fn default() -> Self {
        BoundedSamples { samples: Vec::new(), every: 1, pushed: 0 }
    }
}

impl<T> BoundedSamples<T> {
    pub(crate) fn push(&mut self, value: T) {
        if self.pushed.is_multiple_of(self.every) {
            if self.samples.len() == MAX_SAMPLES {
                let mut position = 0;
                self.samples.retain(|_| {
                    position += 1;
                    position % 2 == 1
                });
                self.every *= 2;
            }
            if self.pushed.is_multiple_of(self.every) {
                self.samples.push(value);
            }
        }
        self.pushed += 1;
    }

    pub(crate) fn samples(&self) -> &[T] {
        &self.samples
    }

    pub(crate) fn into_samples(self) -> Vec<T> {
        self.samples
    }
}

/// Statistics of times in nanoseconds: exact moments, percentiles from samples.
#[derive(Clone, Debug, Default)]
pub(crate) struct TimeStatistics {
    count: u64,
    sum: u128,
    squares: u128,
    samples: BoundedSamples<u64>,
}

impl TimeStatistics {
    pub(crate) fn push(&mut self, nanos: u64) {
        self.count += 1;
        self.sum += u128::from(nanos);
        self.squares = self.squares.saturating_add(u128::from(nanos) * u128::from(nanos));
        self.samples.push(nanos);
    }

    /// Returns the values pushed, in order, or an evenly spaced selection of them.
    pub(crate) fn samples(&self) -> &[u64] {
        self.samples.samples()
    }

    /// Returns mean, variance and percentiles in seconds; `None` without values.
    pub(crate) fn summary(&self) -> Option<super::measures::Delay> {
        if self.count == 0 {
            return None;
        }
        let n = u128::from(self.count);
        let mean = self.sum as f64 / self.count as f64;
        // Integers are exact; sums that do not fit are computed in floating point.
        let exact = self.squares.checked_mul(n).zip(self.sum.checked_mul(self.sum));
        let variance = match exact {
            Some((squares, square)) => squares.saturating_sub(square) as f64 / (n * n) as f64,
            None => (self.squares as f64 / self.count as f64 - mean * mean).max(0.0),
        };
        let mut sorted = self.samples.samples().to_vec();
        sorted.sort_unstable();
        let percentile = |p: f64| {
            let rank = (p * sorted.len() as f64).ceil() as usize;
            sorted[rank.clamp(1, sorted.len()) - 1] as f64 / 1e9
        };
        Some(super::measures::Delay {
            mean: mean / 1e9,
            variance: variance / 1e18,
            min: percentile(0.0),
            p50: percentile(0.5),
            p90: percentile(0.9),
            p99: percentile(0.99),
            max: percentile(1.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounded_sample_is_evenly_spaced() {
        let mut samples = BoundedSamples::default();
        let n = MAX_SAMPLES as u64 * 2 + 10;
        (0..n).for_each(|i| samples.push(i));
        assert!(samples.samples().len() <= MAX_SAMPLES);
        let step = samples.samples()[1];
        assert!(samples.samples().windows(2).all(|w| w[1] - w[0] == step), "{step}");
        assert!(n - samples.samples()[samples.samples().len() - 1] <= step);
    }

    /// Variance by its definition, percentiles by the nearest rank.
    #[test]
    fn moments_and_percentiles_are_computed() {
        let mut spread = TimeStatistics::default();
        assert_eq!(spread.summary(), None);
        [1_500_000_000, 2_000_000_000, 250_000_000].into_iter().for_each(|n| spread.push(n));
        let summary = spread.summary().unwrap();
        assert!((summary.mean - 1.25).abs() < 1e-12);
        assert!((summary.variance - (0.0625 + 0.5625 + 1.0) / 3.0).abs() < 1e-12);
        assert_eq!((summary.min, summary.p50, summary.p99, summary.max), (0.25, 1.5, 2.0, 2.0));
    }
}
