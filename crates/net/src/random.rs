//! The randomness this room lends to protocols it runs itself.

use chacha20::ChaCha12Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use ringway_sansio::Random;
use std::io;

/// A cryptographically strong generator (ChaCha, 12 rounds), seeded once by the operating system;
/// after that it neither blocks nor fails.
pub(crate) struct ChaCha(ChaCha12Rng);

impl ChaCha {
    /// A generator with a fresh seed of 256 bits.
    pub(crate) fn from_os() -> io::Result<Self> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)
            .map_err(|e| io::Error::other(format!("the system gives no random numbers: {e}")))?;
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
