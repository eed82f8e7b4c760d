//! xoshiro256++ (Blackman and Vigna 2019).

use ringway_sansio::{Random, SplitMix};

/// The generator: period 2^256 - 1, 64 random bits per step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xoshiro256pp {
    s: [u64; 4],
}

impl Xoshiro256pp {
    /// Creates a generator from four state words that are not all zero; `None` otherwise.
    pub fn new(s: [u64; 4]) -> Option<Self> {
        (s != [0; 4]).then_some(Xoshiro256pp { s })
    }

    /// Creates a generator from a seed, spread over the state by SplitMix64 as the authors advise.
    pub fn from_number(seed: u64) -> Self {
        let mut mix = SplitMix::new(seed);
        Xoshiro256pp { s: core::array::from_fn(|_| mix.next_u64()) }
    }

    /// Returns a number strictly between 0 and 1, of 52 bits.
    #[inline]
    pub fn uniform(&mut self) -> f64 {
        ((self.next_u64() >> 12) as f64 + 0.5) * (1.0 / (1u64 << 52) as f64)
    }
}

impl Random for Xoshiro256pp {
    #[inline]
    fn next_u64(&mut self) -> u64 {
        let s = &mut self.s;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sequence of the authors' implementation from the state 1, 2, 3, 4.
    #[test]
    fn values_are_the_published_ones() {
        let mut g = Xoshiro256pp::new([1, 2, 3, 4]).unwrap();
        let expected = [
            41943041,
            58720359,
            3588806011781223,
            3591011842654386,
            9228616714210784205,
            9973669472204895162,
            14011001112246962877,
            12406186145184390807,
            15849039046786891736,
            10450023813501588000,
        ];
        for value in expected {
            assert_eq!(g.next_u64(), value);
        }
        assert!(Xoshiro256pp::new([0; 4]).is_none());
    }
}
