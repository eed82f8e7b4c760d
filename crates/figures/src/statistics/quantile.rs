//! Quantiles of the normal and of Student's distribution.

use statrs::distribution::{Continuous, ContinuousCDF, Normal, StudentsT};
use statrs::function::beta;

use super::SampleError;

/// Above this many degrees of freedom Student's quantile is computed from the normal one.
///
/// The expansion is then right to 1e-12, and logarithms of huge gammas, which lose digits, are not
/// needed.
const MANY_DEGREES: f64 = 2_000.0;

/// The smallest tail that is told from none.
const SMALLEST_TAIL: f64 = 1e-12;

/// How often Newton's step polishes a quantile; two are enough, the rest is reserve.
const POLISH: usize = 4;

/// The z below which a standard normal variable stays with probability `p`.
///
/// # Errors
/// `p` that does not lie strictly between 0 and 1.
pub fn normal_quantile(p: f64) -> Result<f64, SampleError> {
    probability(p)?;
    Ok(Normal::standard().inverse_cdf(p))
}

/// The t below which Student's variable with `degrees` of freedom stays with probability `p`.
///
/// `degrees` below 1 count as 1; with any number of them the quantile is right to 1e-6, and mostly
/// to 1e-10. A tail below 1e-12 counts as that.
///
/// # Errors
/// `p` that does not lie strictly between 0 and 1.
pub fn student_quantile(p: f64, degrees: f64) -> Result<f64, SampleError> {
    probability(p)?;
    Ok(student_quantile_unchecked(p, degrees))
}

fn probability(p: f64) -> Result<(), SampleError> {
    // Written so that NaN is refused too.
    if p > 0.0 && p < 1.0 { Ok(()) } else { Err(SampleError::NotAProbability(p)) }
}

pub(super) fn student_quantile_unchecked(p: f64, degrees: f64) -> f64 {
    let degrees = degrees.max(1.0);
    let p = p.clamp(SMALLEST_TAIL, 1.0 - SMALLEST_TAIL);
    if p < 0.5 {
        // 1 - p is exact enough only from this side.
        return -upper(p, degrees);
    }
    upper(1.0 - p, degrees)
}

/// The t that is exceeded with probability `tail`, at most one half.
fn upper(tail: f64, degrees: f64) -> f64 {
    if degrees > MANY_DEGREES {
        return expand(-Normal::standard().inverse_cdf(tail), degrees);
    }
    let Ok(student) = StudentsT::new(0.0, 1.0, degrees) else { return f64::NAN };
    let y = beta::inv_beta_reg(degrees / 2.0, 0.5, 2.0 * tail);
    let mut t = (degrees * (1.0 - y) / y).sqrt();
    for _ in 0..POLISH {
        let step = (student.sf(t) - tail) / student.pdf(t);
        if !step.is_finite() {
            break;
        }
        t += step;
    }
    t
}

/// Student's quantile from the normal one `z` (Abramowitz and Stegun 26.7.5).
fn expand(z: f64, degrees: f64) -> f64 {
    let s = z * z;
    let first = (s + 1.0) * z / 4.0;
    let second = ((5.0 * s + 16.0) * s + 3.0) * z / 96.0;
    let third = (((3.0 * s + 19.0) * s + 17.0) * s - 15.0) * z / 384.0;
    z + (first + (second + third / degrees) / degrees) / degrees
}
