//! Estimates whose observations are whole replications: what happens within one may depend on
//! itself, as the packets of one queue do.

use super::quantile::{normal_quantile, student_quantile};
use super::{Estimate, Interval, Kind, LEVEL, SampleError};

/// The ratio of all successes to all trials of all replications, each given as `(successes,
/// trials)`, with its 95 % Wilson interval.
///
/// The trials of a replication may depend on each other: losses come in bursts. So Wilson's formula
/// is given the number of independent trials that would make the replications differ as much as
/// they do: all trials over their design effect, with Student's t in place of the normal quantile
/// for an effect that is itself estimated (Korn and Graubard 1998), and never more than there are.
/// The interval is thus never narrower than [`ratio`](super::ratio)'s of the same counts. `n` of the
/// estimate is the number of replications with a trial; one gives no interval, as nothing shows how
/// its trials depend on each other, and nor do several that have the very same counts: those are
/// copies, of which more would narrow the interval and tell nothing.
///
/// # Errors
/// No trials, or more successes than trials.
pub fn ratio_of_replications(counts: &[(u64, u64)]) -> Result<Estimate, SampleError> {
    let (mut successes, mut trials, mut n) = (0.0, 0.0, 0usize);
    for &(k, m) in counts {
        if k > m {
            return Err(SampleError::MoreSuccessesThanTrials { successes: k, trials: m });
        }
        successes += k as f64;
        trials += m as f64;
        n += usize::from(m > 0);
    }
    if n == 0 {
        return Err(SampleError::Empty);
    }
    let value = successes / trials;
    let mut with_trials = counts.iter().filter(|c| c.1 > 0);
    let first = with_trials.next();
    let equal = n > 1 && with_trials.all(|c| Some(c) == first);
    if n == 1 || equal {
        return Ok(Estimate { value, n, interval: None, equal });
    }
    let (low, high) = share_bounds(counts, value, trials, n)?;
    let interval = Interval { low, high, level: LEVEL, kind: Kind::Wilson };
    Ok(Estimate { value, n, interval: Some(interval), equal: false })
}

/// Wilson's bounds for the share `value` of all `trials` of `n` replications, for as many independent
/// trials as the differences between these show there to be.
pub(super) fn share_bounds(
    counts: &[(u64, u64)],
    value: f64,
    trials: f64,
    n: usize,
) -> Result<(f64, f64), SampleError> {
    let z = normal_quantile((1.0 + LEVEL) / 2.0)?;
    let t = student_quantile((1.0 + LEVEL) / 2.0, (n - 1) as f64)?;
    let replications = n as f64;
    let squares: f64 = counts.iter().map(|&(k, m)| (k as f64 - value * m as f64).powi(2)).sum();
    let between = replications / (replications - 1.0) * squares / (trials * trials);
    let binomial = value * (1.0 - value) / trials;
    let effect = if binomial > 0.0 { between / binomial * (t / z).powi(2) } else { 1.0 };
    let independent = trials / effect.max(1.0);
    Ok(wilson(value, independent, z))
}

/// Wilson's bounds for a ratio found in so many trials, which need not be a whole number.
pub(super) fn wilson(value: f64, trials: f64, z: f64) -> (f64, f64) {
    let successes = value * trials;
    let centre = (successes + z * z / 2.0) / (trials + z * z);
    let spread = (successes * (1.0 - value) + z * z / 4.0).sqrt();
    let half = z / (trials + z * z) * spread;
    // At the ends the bound is exactly 0 or 1; rounding must not put the ratio outside.
    let low = if value <= 0.0 { 0.0 } else { (centre - half).max(0.0) };
    let high = if value >= 1.0 { 1.0 } else { (centre + half).min(1.0) };
    (low, high)
}

#[cfg(test)]
mod tests {
    use super::super::{mean, ratio};
    use super::*;
    use crate::seed::Seed;

    fn bounds(estimate: Estimate) -> (f64, f64) {
        let interval = estimate.interval.unwrap();
        (interval.low, interval.high)
    }

    /// Replications that differ less than chance makes them are taken as independent trials.
    #[test]
    fn even_replications_give_the_interval_of_their_pool() {
        let pooled = ratio_of_replications(&[(10, 100), (9, 100), (11, 100), (10, 100), (10, 100)]);
        let pooled = pooled.unwrap();
        let (low, high) = bounds(pooled);
        let (l, h) = bounds(ratio(50, 500).unwrap());
        assert!((low - l).abs() < 1e-12 && (high - h).abs() < 1e-12);
        assert_eq!((pooled.value, pooled.n), (0.1, 5));
        assert_eq!(pooled.interval.unwrap().kind, Kind::Wilson);
    }

    /// Bursts that make replications differ widen it to what they themselves show.
    #[test]
    fn bursts_widen_the_interval_as_the_replications_say() {
        let counts: Vec<(u64, u64)> = (0..40).map(|i| (100 + 10 * (i % 20), 1000)).collect();
        let (low, high) = bounds(ratio_of_replications(&counts).unwrap());
        let ratios: Vec<f64> = counts.iter().map(|&(k, m)| k as f64 / m as f64).collect();
        let (l, h) = bounds(mean(&ratios).unwrap());
        // Near the middle Wilson's and Student's agree.
        assert!(
            (low / l - 1.0).abs() < 0.02 && (high / h - 1.0).abs() < 0.02,
            "{low} {l} {high} {h}"
        );
        let total: u64 = counts.iter().map(|c| c.0).sum();
        let (pl, ph) = bounds(ratio(total, 40_000).unwrap());
        assert!(high - low > 3.0 * (ph - pl));
    }

    /// All and nothing have a width, and stay within 0 and 1.
    #[test]
    fn the_ends_are_kept() {
        let (low, high) = bounds(ratio_of_replications(&[(0, 49), (0, 51)]).unwrap());
        assert_eq!(low, 0.0);
        assert!((high - bounds(ratio(0, 100).unwrap()).1).abs() < 1e-12);
        let (low, high) = bounds(ratio_of_replications(&[(50, 50), (51, 51)]).unwrap());
        assert!(low > 0.9 && high == 1.0);
        let (low, high) = bounds(ratio_of_replications(&[(0, 50), (50, 50)]).unwrap());
        assert!(low >= 0.0 && high <= 1.0 && high - low > 0.9);
    }

    #[test]
    fn one_replication_gives_no_interval_and_none_no_ratio() {
        let one = ratio_of_replications(&[(3, 10), (0, 0)]).unwrap();
        assert_eq!((one.value, one.n, one.interval), (0.3, 1, None));
        let copies = ratio_of_replications(&[(3, 10), (0, 0), (3, 10), (3, 10)]).unwrap();
        assert_eq!((copies.value, copies.n, copies.equal), (0.3, 3, true));
        assert!(ratio_of_replications(&[(0, 10); 9]).unwrap().equal);
        assert_eq!(ratio_of_replications(&[(0, 0)]), Err(SampleError::Empty));
        assert!(ratio_of_replications(&[(2, 1)]).is_err());
    }

    /// Bursts all of one replication's trials: textbook Wilson would miss the truth mostly, this
    /// holds it about as often as it says.
    #[test]
    fn dependent_trials_are_covered() {
        let mut random = Seed::new(5);
        let (mut held, mut held_by_pool) = (0, 0);
        for _ in 0..400 {
            // 20 bursts of 50 packets in each of 12 replications, each lost with a chance of 20 %.
            let counts: Vec<(u64, u64)> = (0..12)
                .map(|_| (50 * (0..20).filter(|_| random.below(5) == 0).count() as u64, 1000))
                .collect();
            let total: u64 = counts.iter().map(|c| c.0).sum();
            let of = |e: Estimate| e.interval.unwrap().contains(0.2);
            held += usize::from(of(ratio_of_replications(&counts).unwrap()));
            held_by_pool += usize::from(of(ratio(total, 12_000).unwrap()));
        }
        assert!((368..=396).contains(&held), "{held} of 400");
        assert!(held_by_pool < 200, "{held_by_pool} of 400");
    }
}
