//! The normal distribution: its distribution function and the inverse of it.
//!
//! It uses `libm` instead of the platform's functions, so that the same draws give the same delays on
//! every machine.

use core::f64::consts::{PI, SQRT_2};

/// Returns the probability of a value below `z`.
pub(crate) fn cumulative(z: f64) -> f64 {
    0.5 * libm::erfc(-z / SQRT_2)
}

/// Returns the quantile at the probability `p`, for 0 < `p` < 1.
///
/// It is Acklam's rational approximation (relative error 1.15e-9) with one step of Halley's method.
pub(crate) fn quantile(p: f64) -> f64 {
    let z = approximate(p);
    // In the far tails the approximation is as good as the distribution function.
    if z.abs() > 8.0 {
        return z;
    }
    let error = cumulative(z) - p;
    let u = error * libm::sqrt(2.0 * PI) * libm::exp(z * z / 2.0);
    z - u / (1.0 + z * u / 2.0)
}

fn approximate(p: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969683028665376e1,
        2.209460984245205e2,
        -2.759285104469687e2,
        1.38357751867269e2,
        -3.066479806614716e1,
        2.506628277459239,
    ];
    const B: [f64; 6] = [
        -5.447609879822406e1,
        1.615858368580409e2,
        -1.556989798598866e2,
        6.680131188771972e1,
        -1.328068155288572e1,
        1.0,
    ];
    const C: [f64; 6] = [
        -7.784894002430293e-3,
        -3.223964580411365e-1,
        -2.400758277161838,
        -2.549732539343734,
        4.374664141464968,
        2.938163982698783,
    ];
    const D: [f64; 5] =
        [7.784695709041462e-3, 3.224671290700398e-1, 2.445134137142996, 3.754408661907416, 1.0];
    const TAIL: f64 = 0.02425;
    let polynomial = |c: &[f64], x: f64| c.iter().fold(0.0, |sum, k| sum * x + k);
    let tail = |p: f64| {
        let q = libm::sqrt(-2.0 * libm::log(p));
        polynomial(&C, q) / polynomial(&D, q)
    };
    if p < TAIL {
        tail(p)
    } else if p > 1.0 - TAIL {
        -tail(1.0 - p)
    } else {
        let q = p - 0.5;
        polynomial(&A, q * q) * q / polynomial(&B, q * q)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (p, z) in [
            (0.5, 0.0),
            (0.975, 1.959963984540054),
            (0.025, -1.959963984540054),
            (0.99, 2.3263478740408408),
            (0.001, -3.090232306167813),
        ] {
            assert!((quantile(p) - z).abs() < 1e-12, "{p}: {}", quantile(p));
        }
    }

    #[test]
    fn cumulative_undoes_quantile() {
        for i in 1..1000 {
            let p = f64::from(i) / 1000.0;
            assert!((cumulative(quantile(p)) - p).abs() < 1e-14);
        }
    }
}
