//! Randomness as an argument.

/// A source of random numbers that a world lends to a protocol.
///
/// The real world lends a cryptographically strong one, because tags, branches and nonces must not
/// be guessed (RFC 3261 section 19.3); a simulated world lends a seeded one, so that a run repeats.
pub trait Random {
    /// The next 64 random bits.
    fn next_u64(&mut self) -> u64;

    /// Fills `out` with random bytes.
    fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let bytes = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }
}

impl<R: Random + ?Sized> Random for &mut R {
    fn next_u64(&mut self) -> u64 {
        (**self).next_u64()
    }
}

/// SplitMix64 (Steele, Lea and Flood 2014): a tiny seeded generator for tests and virtual worlds.
/// Its output can be predicted; the real world never uses it.
#[derive(Clone, Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    /// A generator whose sequence is decided by `seed`.
    pub const fn new(seed: u64) -> Self {
        SplitMix(seed)
    }
}

impl Random for SplitMix {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix_gives_the_published_sequence() {
        let mut r = SplitMix::new(1_234_567);
        assert_eq!(r.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(r.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn fill_covers_an_odd_length() {
        let mut out = [0u8; 13];
        SplitMix::new(1).fill(&mut out);
        assert!(out[8..].iter().any(|&b| b != 0));
    }
}
