//! The random numbers of the real world, for the protocols.

use chacha20::ChaCha12Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use ringway_sansio::Random;
use std::io;

/// A cryptographically strong generator (ChaCha, 12 rounds), seeded once by the operating system.
///
/// After the seed it makes no system call, so it can neither block nor fail: tags, branches and
/// nonces are drawn from it in a few nanoseconds. One for each worker, never cloned or shared.
pub struct ChaCha(ChaCha12Rng);

impl ChaCha {
    /// Creates a generator with a new seed of 256 bits.
    ///
    /// # Errors
    /// When the operating system returns no randomness.
    pub fn from_os() -> io::Result<Self> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)
            .map_err(|e| io::Error::other(format!("the system returned no random numbers: {e}")))?;
        Ok(ChaCha(ChaCha12Rng::from_seed(seed)))
    }
}

impl Random for ChaCha {
    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn fill(&mut self, out: &mut [u8]) {
        self.0.fill_bytes(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_generators_differ() {
        let (mut a, mut b) = (ChaCha::from_os().unwrap(), ChaCha::from_os().unwrap());
        assert_ne!(a.next_u64(), b.next_u64());
        let mut out = [0u8; 33];
        a.fill(&mut out);
        assert!(out.iter().any(|&b| b != 0));
    }
}
