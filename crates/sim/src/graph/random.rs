//! Numbers from a generator.

use ringway_sansio::Random;

/// Returns a number from 0 up to and without 1.
pub(super) fn uniform(random: &mut impl Random) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Returns a whole number from 0 up to and without `n`.
pub(super) fn below(random: &mut impl Random, n: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(n)) >> 64) as u64
}
