//! How far a sample lies from a distribution, or from another sample.

use super::{SampleError, check};

/// Terms of Kolmogorov's series; they fall faster than geometrically.
const TERMS: i32 = 100;

/// The outcome of a Kolmogorov-Smirnov test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Largest distance between the two distribution functions, 0 to 1.
    pub distance: f64,
    /// Probability of a distance at least as large if the two were the same: small values speak
    /// against it. Asymptotic with Stephens' correction, good to some per cent from five
    /// observations on; for a discrete distribution it is too large.
    pub p_value: f64,
}

/// Tests `sample` against a continuous distribution given by its cumulative distribution function.
///
/// # Errors
/// An empty sample, or an observation that is not finite.
pub fn kolmogorov_smirnov(sample: &[f64], cdf: impl Fn(f64) -> f64) -> Result<Fit, SampleError> {
    check(sample)?;
    let mut sorted = sample.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let n = sorted.len() as f64;
    let distance = sorted.iter().enumerate().fold(0.0, |worst: f64, (i, &x)| {
        let expected = cdf(x);
        worst.max(expected - i as f64 / n).max((i + 1) as f64 / n - expected)
    });
    Ok(Fit { distance, p_value: p_value(distance, n) })
}

/// Tests whether two samples come from the same continuous distribution.
///
/// # Errors
/// An empty sample, or an observation that is not finite.
pub fn kolmogorov_smirnov_two(left: &[f64], right: &[f64]) -> Result<Fit, SampleError> {
    check(left)?;
    check(right)?;
    let (mut left, mut right) = (left.to_vec(), right.to_vec());
    left.sort_unstable_by(f64::total_cmp);
    right.sort_unstable_by(f64::total_cmp);
    let (n, m) = (left.len() as f64, right.len() as f64);
    let (mut i, mut j, mut distance) = (0, 0, 0.0f64);
    while i < left.len() && j < right.len() {
        // Both functions step over all observations that are equal before they are compared.
        let x = left[i].min(right[j]);
        while i < left.len() && left[i] <= x {
            i += 1;
        }
        while j < right.len() && right[j] <= x {
            j += 1;
        }
        distance = distance.max((i as f64 / n - j as f64 / m).abs());
    }
    Ok(Fit { distance, p_value: p_value(distance, n * m / (n + m)) })
}

/// P(D >= `distance`) for `n` observations: Kolmogorov's limit at Stephens' (1970) argument.
fn p_value(distance: f64, n: f64) -> f64 {
    let x = distance * (n.sqrt() + 0.12 + 0.11 / n.sqrt());
    if x < 0.2 {
        // The series alternates without end here; the sum is 1 to more digits than are kept.
        return 1.0;
    }
    let sum: f64 = (1..=TERMS)
        .map(|k| {
            let sign = if k % 2 == 1 { 1.0 } else { -1.0 };
            sign * (-2.0 * f64::from(k * k) * x * x).exp()
        })
        .sum();
    (2.0 * sum).clamp(0.0, 1.0)
}
