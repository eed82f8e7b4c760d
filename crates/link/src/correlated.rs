//! Correlated uniform draws.

use crate::normal;
use crate::quantity::Chance;
use crate::random::Stream;

/// Draws that are uniform one by one and correlated with the previous one.
///
/// netem mixes a draw with the previous one, which distorts the distribution: a loss of 1 % with
/// correlation is no longer 1 %. Here the state is a first-order autoregression of normal values,
/// transformed to uniform ones, so that results of the draws keep their distribution. The configured
/// correlation is that of the normal values; that of the uniform ones is smaller by at most 0.02.
#[derive(Clone, Debug)]
pub(crate) struct Correlated {
    rho: f64,
    last: Option<f64>,
}

impl Correlated {
    pub(crate) fn new(correlation: Chance) -> Self {
        Correlated { rho: correlation.get(), last: None }
    }

    /// Returns the next number, strictly between 0 and 1.
    pub(crate) fn draw(&mut self, stream: &mut Stream) -> f64 {
        if self.rho == 0.0 {
            return stream.uniform();
        }
        let fresh = stream.normal();
        let z = match self.last {
            None => fresh,
            Some(last) => self.rho * last + (1.0 - self.rho * self.rho).sqrt() * fresh,
        };
        self.last = Some(z);
        normal::cumulative(z).clamp(f64::MIN_POSITIVE, 1.0 - f64::EPSILON / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Streams;

    #[test]
    fn draws_stay_uniform_and_are_correlated() {
        let mut stream = Streams::new(3, 0).stream("correlated");
        let mut source = Correlated::new(Chance::new(0.5).unwrap());
        let n = 200_000;
        let draws: Vec<f64> = (0..n).map(|_| source.draw(&mut stream)).collect();
        let below = |x: f64| draws.iter().filter(|&&d| d < x).count() as f64 / n as f64;
        for x in [0.01, 0.1, 0.5, 0.9, 0.99] {
            assert!((below(x) - x).abs() < 0.006, "{x}: {}", below(x));
        }
        let lag: f64 =
            draws.windows(2).map(|w| (w[0] - 0.5) * (w[1] - 0.5)).sum::<f64>() / f64::from(n);
        // Spearman's correlation of a normal copula: 6/pi asin(rho/2).
        let expected = 6.0 / std::f64::consts::PI * (0.25f64).asin();
        assert!((lag * 12.0 - expected).abs() < 0.02, "{}", lag * 12.0);
    }

    #[test]
    fn full_correlation_repeats_the_first_draw() {
        let mut stream = Streams::new(3, 0).stream("correlated");
        let mut source = Correlated::new(Chance::ALWAYS);
        let first = source.draw(&mut stream);
        assert!((source.draw(&mut stream) - first).abs() < 1e-12);
    }
}
