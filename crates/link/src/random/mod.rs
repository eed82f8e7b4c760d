//! Named random streams.
//!
//! Every decision draws from a separate stream, so that a change of one impairment, or another link,
//! does not change the numbers of any other decision (common random numbers). A stream is determined by
//! three things: the seed of the experiment, the replication as a substream of it, and a name such as
//! `a->b/loss` for the link and the purpose. The generators are here and not in the simulator, because
//! a model between two real interfaces must draw the same numbers.

mod mrg;
mod xoshiro;

pub use mrg::Mrg32k3a;
pub use xoshiro::Xoshiro256pp;

use crate::normal;
use core::hash::Hasher;
use fnv::FnvHasher;
use ringway_sansio::Random;

/// The generator of an experiment's streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Generator {
    /// L'Ecuyer's MRG32k3a, as in ns-2 and ns-3: streams 2^127 apart, substreams 2^76 apart.
    #[default]
    Mrg32k3a,
    /// xoshiro256++, about three times faster; streams are distinguished by a hash of their names.
    Xoshiro,
}

/// The random streams of one replication of an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Streams {
    generator: Generator,
    seed: u64,
    replication: u64,
}

impl Streams {
    /// Creates the streams of replication `replication` of the experiment `seed`, from MRG32k3a.
    pub const fn new(seed: u64, replication: u64) -> Self {
        Streams { generator: Generator::Mrg32k3a, seed, replication }
    }

    /// Returns the same streams from another generator.
    pub const fn with(self, generator: Generator) -> Self {
        Streams { generator, ..self }
    }

    /// Returns the seed of the experiment.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the number of the replication.
    pub const fn replication(&self) -> u64 {
        self.replication
    }

    /// Returns the stream of a name. The same name always has the same numbers.
    pub fn stream(&self, name: &str) -> Stream {
        let number = hash(name);
        let kind = match self.generator {
            Generator::Mrg32k3a => {
                let mut mrg = Mrg32k3a::from_number(self.seed);
                // The top bit is reserved for streams chosen by number.
                mrg.jump_streams(number | 1 << 63);
                mrg.jump_substreams(self.replication);
                Kind::Mrg(mrg)
            }
            Generator::Xoshiro => {
                let mut mix = ringway_sansio::SplitMix::new(self.seed);
                let a = mix.next_u64();
                let mut mix = ringway_sansio::SplitMix::new(a ^ self.replication);
                let b = mix.next_u64();
                Kind::Xoshiro(Xoshiro256pp::from_number(b ^ number))
            }
        };
        Stream { kind }
    }
}

/// Returns the FNV-1a hash with a final mix: stream numbers of names never change.
fn hash(name: &str) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(name.as_bytes());
    ringway_sansio::SplitMix::new(hasher.finish()).next_u64()
}

#[derive(Clone, Debug)]
enum Kind {
    Mrg(Mrg32k3a),
    Xoshiro(Xoshiro256pp),
}

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Stream {
    kind: Kind,
}

impl Stream {
    /// Returns a number strictly between 0 and 1.
    #[inline]
    pub fn uniform(&mut self) -> f64 {
        match &mut self.kind {
            Kind::Mrg(mrg) => mrg.uniform(),
            Kind::Xoshiro(x) => x.uniform(),
        }
    }

    /// Returns true with probability `p`.
    #[inline]
    pub fn chance(&mut self, p: f64) -> bool {
        self.uniform() < p
    }

    /// Returns a whole number from 0 up to and without `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Returns a number from the exponential distribution with that mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * libm::log(self.uniform())
    }

    /// Returns a number from the normal distribution with mean 0 and standard deviation 1, from one
    /// draw.
    pub fn normal(&mut self) -> f64 {
        normal::quantile(self.uniform())
    }

    /// Returns a number from the Pareto distribution with shape `alpha` and minimum 1.
    pub fn pareto(&mut self, alpha: f64) -> f64 {
        libm::pow(self.uniform(), -1.0 / alpha)
    }
}

impl From<Mrg32k3a> for Stream {
    fn from(mrg: Mrg32k3a) -> Self {
        Stream { kind: Kind::Mrg(mrg) }
    }
}

impl From<Xoshiro256pp> for Stream {
    fn from(x: Xoshiro256pp) -> Self {
        Stream { kind: Kind::Xoshiro(x) }
    }
}

impl Random for Stream {
    fn next_u64(&mut self) -> u64 {
        match &mut self.kind {
            Kind::Mrg(mrg) => mrg.next_u64(),
            Kind::Xoshiro(x) => x.next_u64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published value of FNV-1a for a name, mixed: another would move every figure.
    #[test]
    fn a_name_has_the_same_number_for_ever() {
        let fnv = |name: &str| {
            let mut hasher = FnvHasher::default();
            hasher.write(name.as_bytes());
            hasher.finish()
        };
        assert_eq!(fnv("foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(hash("a->b/loss"), 0x174f_47e5_7004_7092);
    }

    #[test]
    fn a_name_is_a_stream_and_a_replication_a_substream() {
        for generator in [Generator::Mrg32k3a, Generator::Xoshiro] {
            let first = |seed, replication, name: &str| {
                Streams::new(seed, replication).with(generator).stream(name).uniform()
            };
            let one = first(1, 0, "a->b/loss");
            assert_eq!(one, first(1, 0, "a->b/loss"));
            for other in
                [first(2, 0, "a->b/loss"), first(1, 1, "a->b/loss"), first(1, 0, "a->b/delay")]
            {
                assert_ne!(one, other);
            }
        }
    }

    #[test]
    fn moments_are_those_of_the_distributions() {
        for generator in [Generator::Mrg32k3a, Generator::Xoshiro] {
            let mut s = Streams::new(7, 0).with(generator).stream("moments");
            let n = 200_000;
            let mean = |f: &mut dyn FnMut() -> f64| (0..n).map(|_| f()).sum::<f64>() / f64::from(n);
            assert!((mean(&mut || s.uniform()) - 0.5).abs() < 0.003);
            assert!((mean(&mut || s.exponential(3.0)) - 3.0).abs() < 0.03);
            assert!(mean(&mut || s.normal()).abs() < 0.01);
            assert!((mean(&mut || s.normal().powi(2)) - 1.0).abs() < 0.02);
            assert!((mean(&mut || s.pareto(3.0)) - 1.5).abs() < 0.02);
            assert!((mean(&mut || s.below(10) as f64) - 4.5).abs() < 0.03);
        }
    }
}
