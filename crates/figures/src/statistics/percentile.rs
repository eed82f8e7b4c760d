//! Percentiles and their bootstrap intervals.
//!
//! A percentile is the smallest observation that at least a fraction `p` of the sample does not
//! exceed: an observation, never something between two.

use statrs::function::beta;

use super::{Estimate, Interval, Kind, LEVEL, SampleError, check};
use crate::seed::Seed;

/// Resamples drawn for the interval of [`percentile_of_replications`].
pub const RESAMPLES: usize = 2_000;
/// Observations between two counts by which a draw finds its quantile.
const BLOCK: usize = 1_024;

/// The `p`-th quantile (0.95 for the 95th percentile) of independent observations, with the 95 %
/// interval of the bootstrap percentile method.
///
/// The interval is that of infinitely many resamples, computed instead of drawn: the r-th smallest
/// of n draws with replacement is at most the k-th smallest observation with the probability that a
/// binomial of n and k/n reaches r. So it needs no seed, and costs a sort. Observations of one run
/// that depend on each other, such as the delays of packets in one queue, belong into
/// [`percentile_of_replications`].
///
/// # Errors
/// An empty sample, an observation that is not finite, or `p` not strictly between 0 and 1. One
/// observation gives no interval.
pub fn percentile(sample: &[f64], p: f64) -> Result<Estimate, SampleError> {
    let sorted = sort(sample, p)?;
    let n = sorted.len();
    let rank = rank(n, p);
    let interval = (n > 1).then(|| Interval {
        low: sorted[resampled_rank(n, rank, (1.0 - LEVEL) / 2.0) - 1],
        high: sorted[resampled_rank(n, rank, (1.0 + LEVEL) / 2.0) - 1],
        level: LEVEL,
        kind: Kind::Bootstrap,
    });
    Ok(Estimate { value: sorted[rank - 1], n, interval })
}

/// The `p`-th quantile of all observations of all replications, with the 95 % bootstrap percentile
/// interval over whole replications, drawn with replacement from `seed`.
///
/// Observations within a replication may depend on each other; replications may not. `n` of the
/// estimate is the number of replications. The same replications and seed give the same interval.
///
/// # Errors
/// No replication, an empty one, an observation that is not finite, or `p` not strictly between 0
/// and 1. One replication gives no interval.
pub fn percentile_of_replications(
    replications: &[impl AsRef<[f64]>],
    p: f64,
    seed: u64,
) -> Result<Estimate, SampleError> {
    let mut pool: Vec<(f64, u32)> = Vec::new();
    let mut sizes: Vec<u64> = Vec::with_capacity(replications.len());
    for (i, replication) in replications.iter().enumerate() {
        let replication = replication.as_ref();
        check(replication)?;
        sizes.push(replication.len() as u64);
        pool.extend(replication.iter().map(|&x| (x, i as u32)));
    }
    if pool.is_empty() {
        return Err(SampleError::Empty);
    }
    probability(p)?;
    pool.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let value = pool[rank(pool.len(), p) - 1].0;
    let n = replications.len();
    let interval = (n > 1).then(|| {
        let blocks = Blocks::new(&pool, n);
        let mut random = Seed::new(seed);
        let mut found: Vec<f64> = (0..RESAMPLES)
            .map(|_| {
                let mut times = vec![0u64; n];
                (0..n).for_each(|_| times[random.below(n)] += 1);
                let drawn: u64 = times.iter().zip(&sizes).map(|(t, s)| t * s).sum();
                blocks.find(&times, rank(drawn as usize, p) as u64)
            })
            .collect();
        found.sort_unstable_by(f64::total_cmp);
        Interval {
            low: found[rank(RESAMPLES, (1.0 - LEVEL) / 2.0) - 1],
            high: found[rank(RESAMPLES, (1.0 + LEVEL) / 2.0) - 1],
            level: LEVEL,
            kind: Kind::Bootstrap,
        }
    });
    Ok(Estimate { value, n, interval })
}

/// All observations in order, with how many of each replication lie before every block of them: a
/// draw of replications weights the same order anew, and finds its quantile without walking it all.
struct Blocks<'a> {
    pool: &'a [(f64, u32)],
    /// For each block, `replications` counts of what lies before it.
    before: Vec<u64>,
    replications: usize,
}

impl<'a> Blocks<'a> {
    fn new(pool: &'a [(f64, u32)], replications: usize) -> Self {
        let mut counts = vec![0u64; replications];
        let mut before = Vec::new();
        for block in pool.chunks(BLOCK) {
            before.extend_from_slice(&counts);
            block.iter().for_each(|&(_, r)| counts[r as usize] += 1);
        }
        Self { pool, before, replications }
    }

    /// The observation of rank `wanted` where those of replication r count `times[r]` times.
    fn find(&self, times: &[u64], wanted: u64) -> f64 {
        let weigh = |block: usize| -> u64 {
            let counts = &self.before[block * self.replications..][..self.replications];
            counts.iter().zip(times).map(|(c, t)| c * t).sum()
        };
        // The last block before which fewer than `wanted` lie.
        let (mut low, mut high) = (0, self.before.len() / self.replications);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if weigh(middle) < wanted {
                low = middle;
            } else {
                high = middle;
            }
        }
        let mut seen = weigh(low);
        for &(x, replication) in &self.pool[low * BLOCK..] {
            seen += times[replication as usize];
            if seen >= wanted {
                return x;
            }
        }
        // Not reached: all together are at least `wanted`.
        self.pool[self.pool.len() - 1].0
    }
}

/// The `p`-th quantile of `sample` without an interval.
///
/// # Errors
/// As for [`percentile`](fn@percentile).
pub fn percentile_value(sample: &[f64], p: f64) -> Result<f64, SampleError> {
    let sorted = sort(sample, p)?;
    Ok(sorted[rank(sorted.len(), p) - 1])
}

fn sort(sample: &[f64], p: f64) -> Result<Vec<f64>, SampleError> {
    check(sample)?;
    probability(p)?;
    let mut sorted = sample.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Ok(sorted)
}

fn probability(p: f64) -> Result<(), SampleError> {
    if p > 0.0 && p < 1.0 { Ok(()) } else { Err(SampleError::NotAProbability(p)) }
}

/// The rank, from 1, of the `p`-th quantile of `n` observations.
fn rank(n: usize, p: f64) -> usize {
    // 0.07 * 100 is 7.000000000000001: a rank must not rise by a rounding error.
    let exact = p * n as f64;
    ((exact - exact * 4.0 * f64::EPSILON).ceil() as usize).clamp(1, n)
}

/// The smallest rank k such that the `rank`-th smallest of `n` draws with replacement from the
/// ranks 1 to `n` is at most k with probability `q` or more.
fn resampled_rank(n: usize, rank: usize, q: f64) -> usize {
    let (mut low, mut high) = (1, n);
    while low < high {
        let k = low + (high - low) / 2;
        // P(Binomial(n, k/n) >= rank) is the regularised incomplete beta function.
        let reached = beta::beta_reg(rank as f64, (n - rank + 1) as f64, k as f64 / n as f64);
        if reached >= q {
            high = k;
        } else {
            low = k + 1;
        }
    }
    low
}
