//! Samples with a bound on how many are kept, and moments that miss none.

/// Most samples kept of anything; beyond that every second one is let go, again and again.
pub const MAX_SAMPLES: usize = 1 << 21;

/// An even selection of what was pushed: all of it up to [`MAX_SAMPLES`].
#[derive(Clone, Debug)]
pub(crate) struct Thinned<T> {
    kept: Vec<T>,
    /// Each so-many-th is kept.
    every: u64,
    seen: u64,
}

impl<T> Default for Thinned<T> {
    fn default() -> Self {
        Thinned { kept: Vec::new(), every: 1, seen: 0 }
    }
}

impl<T> Thinned<T> {
    pub(crate) fn push(&mut self, value: T) {
        if self.seen.is_multiple_of(self.every) {
            if self.kept.len() == MAX_SAMPLES {
                let mut place = 0;
                self.kept.retain(|_| {
                    place += 1;
                    place % 2 == 1
                });
                self.every *= 2;
            }
            if self.seen.is_multiple_of(self.every) {
                self.kept.push(value);
            }
        }
        self.seen += 1;
    }

    pub(crate) fn kept(&self) -> &[T] {
        &self.kept
    }

    pub(crate) fn into_kept(self) -> Vec<T> {
        self.kept
    }
}

/// Times in nanoseconds: their moments exactly, their percentiles from samples.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spread {
    count: u64,
    sum: u128,
    squares: u128,
    samples: Thinned<u64>,
}

impl Spread {
    pub(crate) fn push(&mut self, nanos: u64) {
        self.count += 1;
        self.sum += u128::from(nanos);
        self.squares = self.squares.saturating_add(u128::from(nanos) * u128::from(nanos));
        self.samples.push(nanos);
    }

    /// What was pushed, in order, or an even selection of it.
    pub(crate) fn kept(&self) -> &[u64] {
        self.samples.kept()
    }

    /// Mean, variance and percentiles in seconds; `None` of nothing.
    pub(crate) fn summary(&self) -> Option<super::measures::Delay> {
        if self.count == 0 {
            return None;
        }
        let n = u128::from(self.count);
        let mean = self.sum as f64 / self.count as f64;
        // Whole numbers lose nothing; sums that do not fit are taken as floats.
        let exact = self.squares.checked_mul(n).zip(self.sum.checked_mul(self.sum));
        let variance = match exact {
            Some((squares, square)) => squares.saturating_sub(square) as f64 / (n * n) as f64,
            None => (self.squares as f64 / self.count as f64 - mean * mean).max(0.0),
        };
        let mut sorted = self.samples.kept().to_vec();
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
    fn a_bound_is_kept_evenly() {
        let mut thinned = Thinned::default();
        let n = MAX_SAMPLES as u64 * 2 + 10;
        (0..n).for_each(|i| thinned.push(i));
        assert!(thinned.kept().len() <= MAX_SAMPLES);
        let step = thinned.kept()[1];
        assert!(thinned.kept().windows(2).all(|w| w[1] - w[0] == step), "{step}");
        assert!(n - thinned.kept()[thinned.kept().len() - 1] <= step);
    }

    /// Variance by its definition, percentiles by the nearest rank.
    #[test]
    fn a_spread_is_summed_up() {
        let mut spread = Spread::default();
        assert_eq!(spread.summary(), None);
        [1_500_000_000, 2_000_000_000, 250_000_000].into_iter().for_each(|n| spread.push(n));
        let summary = spread.summary().unwrap();
        assert!((summary.mean - 1.25).abs() < 1e-12);
        assert!((summary.variance - (0.0625 + 0.5625 + 1.0) / 3.0).abs() < 1e-12);
        assert_eq!((summary.min, summary.p50, summary.p99, summary.max), (0.25, 1.5, 2.0, 2.0));
    }
}
