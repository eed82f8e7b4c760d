//! Shapes of jitter: the deviation from the delay, in units of the jitter.

use crate::normal;
use serde::{Deserialize, Serialize};

/// Maximum number of points in a table.
pub const MAX_TABLE: usize = 1 << 16;
/// Shape of the Pareto distribution, as in netem.
const PARETO_SHAPE: f64 = 3.0;
/// Mean of a Pareto distribution of that shape and minimum 1.
const PARETO_MEAN: f64 = 1.5;
/// The factor of netem: one over the variance, 3/4, instead of one over its root.
const PARETO_FACTOR: f64 = 4.0 / 3.0;
/// Number of entries in netem's tables, their steps per standard deviation, and their largest entry.
/// Values beyond four deviations are cut to it.
const ENTRIES: f64 = 4096.0;
const STEPS: f64 = 8192.0;
const LARGEST: f64 = 32_767.0;

/// The scatter of the delay around its mean, in units of the jitter. `normal` has mean 0 and standard
/// deviation 1. The two Pareto shapes are netem's tables of 4096 values, entry for entry. A table is
/// used unchanged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// Evenly from minus the jitter to plus the jitter.
    #[default]
    Uniform,
    /// Normal; the jitter is the standard deviation.
    Normal,
    /// Pareto of shape 3: a sharp lower edge and a long tail, cut at 4. With netem's scaling and cut,
    /// its mean is -0.033 and its deviation 0.820.
    Pareto,
    /// A quarter normal and three quarters Pareto, in one draw: mean -0.025, deviation 0.834, at most
    /// 3.88.
    ParetoNormal,
    /// Quantiles at equal steps of probability, ascending, with interpolation.
    Table(Vec<f64>),
}

/// The reason why a table is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// Too few or too many points.
    #[error("expected a table of 2 to {MAX_TABLE} numbers, got {0}")]
    Length(usize),
    /// A value below the one before it, or not a number.
    #[error("expected a table of ascending numbers, got a smaller one at index {0}")]
    Order(usize),
    /// A word that is not a whole number in a table of netem.
    #[error("expected whole numbers in a distribution file, got {0:?}")]
    Word(String),
}

impl Distribution {
    /// Creates a table from samples in any order.
    pub fn from_samples(samples: &[f64]) -> Result<Self, TableError> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let table = Distribution::Table(sorted);
        table.check().map(|()| table)
    }

    /// Creates a table from the text of one of netem's `.dist` files: whole numbers in units of 1/8192
    /// of a standard deviation, `#` before a comment.
    pub fn from_netem(text: &str) -> Result<Self, TableError> {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        let values: Result<Vec<f64>, _> = lines
            .flat_map(str::split_whitespace)
            .map(|word| match word.parse::<i32>() {
                Ok(value) => Ok(f64::from(value) / STEPS),
                Err(_) => Err(TableError::Word(word.into())),
            })
            .collect();
        Self::from_samples(&values?)
    }

    /// Checks that a table is valid.
    pub fn check(&self) -> Result<(), TableError> {
        let Distribution::Table(table) = self else {
            return Ok(());
        };
        if !(2..=MAX_TABLE).contains(&table.len()) {
            return Err(TableError::Length(table.len()));
        }
        let bad = |w: &[f64]| !(w[0].is_finite() && w[1].is_finite() && w[0] <= w[1]);
        match table.windows(2).position(bad) {
            Some(at) => Err(TableError::Order(at + 1)),
            None => Ok(()),
        }
    }

    /// Returns the quantile at the probability `u`, for 0 < `u` < 1.
    pub fn quantile(&self, u: f64) -> f64 {
        // The kernel uses an entry without interpolation.
        let entry = (u * ENTRIES).floor().min(ENTRIES - 1.0);
        match self {
            Distribution::Uniform => 2.0 * u - 1.0,
            Distribution::Normal => normal::quantile(u),
            Distribution::Pareto => pareto(entry) / STEPS,
            Distribution::ParetoNormal => {
                // The normal part is from a table of four times as many entries, and the sum is divided
                // as C divides integers.
                let normal = normal::quantile((4.0 * entry + 0.5) / (4.0 * ENTRIES));
                let normal = libm::rint(normal * STEPS);
                ((normal + 3.0 * pareto(entry)) / 4.0).trunc() / STEPS
            }
            Distribution::Table(table) => {
                let position = u * (table.len() - 1) as f64;
                let below = (position as usize).min(table.len() - 2);
                let (low, high) = (table[below], table[below + 1]);
                low + (high - low) * (position - below as f64)
            }
        }
    }
}

/// Returns an entry of netem's table of the Pareto distribution, in steps.
fn pareto(entry: f64) -> f64 {
    let above = 1.0 - entry / ENTRIES;
    let value = (libm::pow(above, -1.0 / PARETO_SHAPE) - PARETO_MEAN) * PARETO_FACTOR * STEPS;
    libm::rint(value.min(LARGEST))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Streams;

    /// The entries, mean and deviation of iproute2's `pareto.dist` and `paretonormal.dist`
    /// (Debian 12, 6.1.0), and 44 entries cut at four deviations.
    #[test]
    fn pareto_shapes_are_the_tables_of_netem() {
        let table = |d: Distribution| -> Vec<f64> {
            (0..4096).map(|i| d.quantile((f64::from(i) + 0.5) / 4096.0) * 8192.0).collect()
        };
        let moments = |v: &[f64]| {
            let mean = v.iter().sum::<f64>() / 4096.0;
            let squares: f64 = v.iter().map(|x| (x - mean).powi(2)).sum();
            (mean / 8192.0, (squares / 4096.0).sqrt() / 8192.0)
        };
        let pareto = table(Distribution::Pareto);
        assert_eq!(
            pareto[..16],
            [
                -5461.0, -5460.0, -5460.0, -5459.0, -5458.0, -5457.0, -5456.0, -5455.0, -5454.0,
                -5453.0, -5452.0, -5452.0, -5451.0, -5450.0, -5449.0, -5448.0
            ]
        );
        assert_eq!(pareto.iter().filter(|x| **x == 32_767.0).count(), 44);
        let (mean, deviation) = moments(&pareto);
        assert!((mean + 0.0335).abs() < 1e-4 && (deviation - 0.8197).abs() < 1e-4);
        let mixed = table(Distribution::ParetoNormal);
        let first = [
            -12_305.0, -11_171.0, -10_812.0, -10_586.0, -10_418.0, -10_284.0, -10_172.0, -10_075.0,
            -9990.0, -9914.0, -9845.0, -9783.0, -9724.0, -9670.0, -9620.0, -9572.0,
        ];
        // Their normal part is found on a grid of 0.00005, so an entry may be off by one step.
        let far = mixed.iter().zip(first).filter(|(a, b)| (**a - b).abs() > 1.0).count();
        assert_eq!(far, 0, "{:?}", &mixed[..16]);
        let (mean, deviation) = moments(&mixed);
        assert!((mean + 0.0253).abs() < 1e-4 && (deviation - 0.8339).abs() < 1e-4);
        assert!((mixed[4095] / 8192.0 - 3.880_493).abs() < 2e-4);
    }

    /// Mean and standard deviation by the midpoint rule over a million quantiles.
    fn moments(d: &Distribution) -> (f64, f64) {
        let n = 1_000_000;
        let values = (0..n).map(|i| d.quantile((f64::from(i) + 0.5) / f64::from(n)));
        let (sum, squares) = values.fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
        let mean = sum / f64::from(n);
        (mean, (squares / f64::from(n) - mean * mean).sqrt())
    }

    #[test]
    fn shapes_are_standardised() {
        let (mean, deviation) = moments(&Distribution::Normal);
        assert!(mean.abs() < 0.001 && (deviation - 1.0).abs() < 0.001, "{mean} {deviation}");
        assert!((moments(&Distribution::Uniform).1 - 1.0 / 3f64.sqrt()).abs() < 1e-6);
    }

    /// Kolmogorov and Smirnov: draws from a table have the distribution of its quantiles, here the
    /// exponential one.
    #[test]
    fn a_table_is_reproduced() {
        let quantile = |u: f64| -(1.0 - u).ln();
        let points = 4096;
        let table = (0..points).map(|i| quantile((f64::from(i) + 0.5) / f64::from(points)));
        let table = Distribution::Table(table.collect());
        table.check().unwrap();
        let mut stream = Streams::new(11, 0).stream("table");
        let n = 20_000;
        let mut draws: Vec<f64> = (0..n).map(|_| table.quantile(stream.uniform())).collect();
        draws.sort_by(f64::total_cmp);
        let distance = draws.iter().enumerate().fold(0f64, |worst, (i, x)| {
            let f = 1.0 - (-x).exp();
            let (low, high) = (i as f64 / f64::from(n), (i + 1) as f64 / f64::from(n));
            worst.max((f - low).abs()).max((high - f).abs())
        });
        // 1.36 / sqrt(n): with a correct table the test fails in 5 % of seeds.
        assert!(distance < 1.36 / f64::from(n).sqrt(), "{distance}");
        // The test can fail: the same draws against an exponential distribution 5 % slower.
        let wrong = draws.iter().enumerate().fold(0f64, |worst, (i, x)| {
            worst.max((1.0 - (-x / 1.05).exp() - i as f64 / f64::from(n)).abs())
        });
        assert!(wrong > 1.36 / f64::from(n).sqrt(), "{wrong}");
    }

    #[test]
    fn tables_are_checked() {
        let table = |v: &[f64]| Distribution::Table(v.to_vec()).check();
        assert_eq!(table(&[1.0]), Err(TableError::Length(1)));
        assert_eq!(table(&[0.0, 2.0, 1.0]), Err(TableError::Order(2)));
        assert_eq!(table(&[0.0, f64::NAN]), Err(TableError::Order(1)));
        assert_eq!(table(&[0.0, 0.0]), Ok(()));
        let netem = Distribution::from_netem("# two lines\n 8192 -8192\n0 # middle\n").unwrap();
        assert_eq!(netem, Distribution::Table(vec![-1.0, 0.0, 1.0]));
        assert!(matches!(Distribution::from_netem("1 x"), Err(TableError::Word(_))));
    }
}
