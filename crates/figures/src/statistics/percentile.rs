//! Percentiles and their intervals.
//!
//! A percentile is the smallest observation that at least a fraction `p` of the sample does not
//! exceed: an observation, never something between two.

use statrs::function::beta;

use super::replications::share_bounds;
use super::{Estimate, Interval, Kind, LEVEL, SampleError, check};

/// The `p`-th quantile (0.95 for the 95th percentile) of independent observations, with the 95 %
/// interval between two of them that holds the quantile whatever their distribution.
///
/// The r-th smallest of n observations lies below the quantile unless fewer than r of them do, which
/// is a matter of the binomial distribution of n and `p` alone (Conover 1999, section 3.2). Where too
/// few observations were made for any two to hold it that surely, such as 5 for a median, there is
/// no interval. Observations of one run that depend on each other, such as the delays of packets in
/// one queue, belong into [`percentile_of_replications`].
///
/// # Errors
/// An empty sample, an observation that is not finite, or `p` not strictly between 0 and 1.
pub fn percentile(sample: &[f64], p: f64) -> Result<Estimate, SampleError> {
    let sorted = sort(sample, p)?;
    let n = sorted.len();
    let equal = n > 1 && sorted[0] == sorted[n - 1];
    let interval = ranks(n, p).filter(|_| !equal).map(|(low, high)| Interval {
        low: sorted[low - 1],
        high: sorted[high - 1],
        level: LEVEL,
        kind: Kind::Rank,
    });
    Ok(Estimate { value: sorted[rank(n, p) - 1], n, interval, equal })
}

/// The `p`-th quantile of all observations of all replications, with Woodruff's 95 % interval
/// (Woodruff 1952): the share of the observations that are not above it is a ratio with an interval
/// ([`ratio_of_replications`](super::ratio_of_replications)), and where the bounds of that meet the
/// observations the bounds of the quantile lie.
///
/// Observations within a replication may depend on each other; replications may not. `n` of the
/// estimate is the number of replications.
///
/// # Errors
/// No replication, an empty one, an observation that is not finite, or `p` not strictly between 0
/// and 1. One replication gives no interval.
pub fn percentile_of_replications(
    replications: &[impl AsRef<[f64]>],
    p: f64,
) -> Result<Estimate, SampleError> {
    let mut pool: Vec<f64> = Vec::new();
    for replication in replications {
        check(replication.as_ref())?;
        pool.extend(replication.as_ref());
    }
    if pool.is_empty() {
        return Err(SampleError::Empty);
    }
    probability(p)?;
    pool.sort_unstable_by(f64::total_cmp);
    let value = pool[rank(pool.len(), p) - 1];
    let n = replications.len();
    let first = replications[0].as_ref();
    let equal = n > 1 && replications.iter().all(|r| r.as_ref() == first);
    if n == 1 || equal {
        return Ok(Estimate { value, n, interval: None, equal });
    }
    let below = |r: &[f64]| r.iter().filter(|x| **x <= value).count() as u64;
    let counts: Vec<(u64, u64)> =
        replications.iter().map(|r| (below(r.as_ref()), r.as_ref().len() as u64)).collect();
    let (low, high) = share_bounds(&counts, p, pool.len() as f64, n)?;
    let interval = Interval {
        low: pool[rank(pool.len(), low) - 1],
        high: pool[rank(pool.len(), high) - 1],
        level: LEVEL,
        kind: Kind::Woodruff,
    };
    Ok(Estimate { value, n, interval: Some(interval), equal: false })
}

/// How many of the ranks from 1 to `n` fulfil a condition that all do up to some rank.
fn count_while(n: usize, fulfils: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, n);
    while low < high {
        let middle = high - (high - low) / 2;
        if fulfils(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

/// The ranks, from 1, of the two of `n` observations between which the `p`-th quantile lies with the
/// usual probability, with as little beyond either as the other allows; `None` where there are none.
fn ranks(n: usize, p: f64) -> Option<(usize, usize)> {
    let tail = (1.0 - LEVEL) / 2.0;
    // P(Binomial(n, p) >= r), which is the regularised incomplete beta function.
    let reaches = |r: usize| match r {
        0 => 1.0,
        r if r > n => 0.0,
        r => beta::beta_reg(r as f64, (n - r + 1) as f64, p),
    };
    // The largest low whose observation is above the quantile with at most the tail's probability,
    // and the smallest high whose observation is below it with at most that.
    let low = count_while(n, |r| 1.0 - reaches(r) <= tail);
    let high = count_while(n, |r| reaches(r) > tail) + 1;
    match (low, high) {
        (1.., high) if high <= n => Some((low, high)),
        // All that is missing on one side may be spent on the other.
        _ if reaches(1) - reaches(n) >= LEVEL && n > 1 => Some((1, n)),
        _ => None,
    }
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
