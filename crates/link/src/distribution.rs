//! Shapes of jitter: what is added to the delay, in units of the jitter.

use crate::normal;
use serde::{Deserialize, Serialize};

/// Most points a table may have.
pub const MAX_TABLE: usize = 1 << 16;
/// Shape of the Pareto distribution, as in netem.
const PARETO_SHAPE: f64 = 3.0;
/// Mean of a Pareto distribution of that shape and least value 1.
const PARETO_MEAN: f64 = 1.5;
/// Its standard deviation, the root of 3/4.
const PARETO_DEVIATION: f64 = 0.866_025_403_784_438_6;
/// The Pareto part of the Pareto-normal mixture, as in netem.
const MIXTURE: f64 = 0.75;

/// How the delay scatters around its mean. All but `uniform` have mean 0 and standard deviation 1
/// before they are multiplied by the jitter; a table is taken as it stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// Evenly from minus the jitter to plus the jitter.
    #[default]
    Uniform,
    /// Normal; the jitter is the standard deviation.
    Normal,
    /// Pareto of shape 3: a sharp lower edge and a long tail.
    Pareto,
    /// A quarter normal and three quarters Pareto, in one draw.
    ParetoNormal,
    /// Quantiles at equal steps of probability, ascending, interpolated between.
    Table(Vec<f64>),
}

/// Why a table cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// Too few or too many points.
    #[error("expected a table of 2 to {MAX_TABLE} numbers, got {0}")]
    Length(usize),
    /// A value below the one before it, or not a number.
    #[error("expected a table of ascending numbers, got a smaller one at place {0}")]
    Order(usize),
    /// A word that is not a whole number, in a table of netem's.
    #[error("expected whole numbers in a distribution file, got {0:?}")]
    Word(String),
}

impl Distribution {
    /// A table from samples in any order.
    pub fn from_samples(samples: &[f64]) -> Result<Self, TableError> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let table = Distribution::Table(sorted);
        table.check().map(|()| table)
    }

    /// A table from the text of one of netem's `.dist` files: whole numbers in units of 1/8192 of
    /// a standard deviation, `#` before a comment.
    pub fn from_netem(text: &str) -> Result<Self, TableError> {
        const UNIT: f64 = 8192.0;
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        let values: Result<Vec<f64>, _> = lines
            .flat_map(str::split_whitespace)
            .map(|word| match word.parse::<i32>() {
                Ok(value) => Ok(f64::from(value) / UNIT),
                Err(_) => Err(TableError::Word(word.into())),
            })
            .collect();
        Self::from_samples(&values?)
    }

    /// Whether a table is one.
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

    /// The value below which lies the probability `u`, for 0 < `u` < 1.
    pub fn quantile(&self, u: f64) -> f64 {
        let pareto =
            |u: f64| (libm::pow(1.0 - u, -1.0 / PARETO_SHAPE) - PARETO_MEAN) / PARETO_DEVIATION;
        match self {
            Distribution::Uniform => 2.0 * u - 1.0,
            Distribution::Normal => normal::quantile(u),
            Distribution::Pareto => pareto(u),
            Distribution::ParetoNormal => {
                // Both parts rise with the same draw, so their deviations nearly add; the sum is
                // scaled to deviation 1 by their correlation, the mean of the product.
                const PRODUCT: f64 = 0.678_244;
                let (a, b) = (MIXTURE, 1.0 - MIXTURE);
                (a * pareto(u) + b * normal::quantile(u))
                    / (a * a + b * b + 2.0 * a * b * PRODUCT).sqrt()
            }
            Distribution::Table(table) => {
                let place = u * (table.len() - 1) as f64;
                let below = (place as usize).min(table.len() - 2);
                let (low, high) = (table[below], table[below + 1]);
                low + (high - low) * (place - below as f64)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Streams;

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
        for d in [Distribution::Normal, Distribution::Pareto, Distribution::ParetoNormal] {
            let (mean, deviation) = moments(&d);
            assert!(mean.abs() < 0.001, "{d:?}: {mean}");
            assert!((deviation - 1.0).abs() < 0.015, "{d:?}: {deviation}");
        }
        assert!((moments(&Distribution::Uniform).1 - 1.0 / 3f64.sqrt()).abs() < 1e-6);
    }

    /// Kolmogorov and Smirnov: draws made from a table come from the distribution whose quantiles
    /// the table holds, here the exponential one.
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
        // 1.36 / sqrt(n): a wrong table would pass once in twenty times, a right one fails so.
        assert!(distance < 1.36 / f64::from(n).sqrt(), "{distance}");
        // And the test can tell: the same draws against an exponential 5 % slower.
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
