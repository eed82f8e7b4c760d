//! Chance from a seed that is an argument: SplitMix64 (Steele, Lea and Flood 2014).
//!
//! It serves the tests, where any generator that passes the usual ones will do. It is not the
//! laboratory's generator, whose streams decide what happens in the virtual world.

/// A stream of numbers, the same for the same seed.
#[derive(Clone, Debug)]
pub(crate) struct Seed(u64);

impl Seed {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0. The bias is below n / 2^64.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs for seed 1234567, as published with the generator.
    #[test]
    fn the_published_vector_comes_out() {
        let mut seed = Seed::new(1_234_567);
        let got: Vec<u64> = (0..3).map(|_| seed.next()).collect();
        assert_eq!(
            got,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn below_reaches_both_ends_and_no_further() {
        let mut seed = Seed::new(0);
        let mut met = [0; 5];
        (0..500).for_each(|_| met[seed.below(5)] += 1);
        assert!(met.iter().all(|&m| m > 60), "{met:?}");
    }
}
