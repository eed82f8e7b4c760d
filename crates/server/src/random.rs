//! The randomness the real world lends to the protocols.

use chacha20::ChaCha12Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use ringway_sansio::Random;
use std::io;

/// A cryptographically strong generator (ChaCha, 12 rounds), seeded once by the operating system.
///
/// After the seed it makes no system call, so it can neither block nor fail: a worker draws tags,
/// branches and nonces from it in a few nanoseconds. One for each worker, never cloned or shared.
pub struct ChaCha {
    rng: ChaCha12Rng,
}

impl ChaCha {
    /// A generator with a fresh seed of 256 bits.
    ///
    /// # Errors
    /// When the operating system gives no randomness.
    pub fn from_os() -> io::Result<Self> {
        let mut seed = [0u8; 32];
        getrandom::fill(&mut seed)
            .map_err(|e| io::Error::other(format!("the system gives no random numbers: {e}")))?;
        Ok(ChaCha { rng: ChaCha12Rng::from_seed(seed) })
    }
}

impl Random for ChaCha {
    fn next_u64(&mut self) -> u64 {
        self.rng.next_u64()
    }

    fn fill(&mut self, out: &mut [u8]) {
        self.rng.fill_bytes(out);
    }
}

/// `n` random bytes from the operating system, for keys that are made once.
///
/// # Errors
/// When the operating system gives no randomness.
pub fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut out = [0u8; N];
    getrandom::fill(&mut out)
        .map_err(|e| io::Error::other(format!("the system gives no random numbers: {e}")))?;
    Ok(out)
}

/// A password of four groups of four characters, about 79 bits, without letters and digits that
/// look alike on a telephone's display.
///
/// # Errors
/// When the operating system gives no randomness.
pub fn password() -> io::Result<String> {
    // 31 characters; draws of 248 and above would favour the first few and are thrown away.
    const ALPHABET: &[u8; 31] = b"abcdefghjkmnpqrstuvwxyz23456789";
    const EVEN: u8 = 248;
    const GROUPS: usize = 4;
    let mut out = String::with_capacity(GROUPS * 5);
    while out.len() < GROUPS * 5 - 1 {
        for byte in bytes::<32>()? {
            if byte >= EVEN || out.len() == GROUPS * 5 - 1 {
                continue;
            }
            out.push(ALPHABET[(byte % 31) as usize] as char);
            if out.len() % 5 == 4 && out.len() < GROUPS * 5 - 1 {
                out.push('-');
            }
        }
    }
    Ok(out)
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

    #[test]
    fn passwords_have_their_form() {
        for _ in 0..50 {
            let p = password().unwrap();
            assert_eq!(p.len(), 19, "{p}");
            assert_eq!(p.split('-').map(str::len).collect::<Vec<_>>(), [4, 4, 4, 4], "{p}");
        }
        assert_ne!(password().unwrap(), password().unwrap());
    }
}
