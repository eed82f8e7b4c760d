//! Which datagrams sent lately would someone like to know refused.
//!
//! An ICMP message names the address a datagram went to and quotes its beginning. An address alone
//! proves nothing: anybody can send us such a message, and SIP's ports are well known. A SIP
//! request's first bytes carry the random branch of our Via (RFC 3261 section 8.1.1.7), so the quote
//! does: it must match what was really sent.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;

/// Datagrams remembered; each new one takes the place of the oldest.
pub(crate) const OUTSTANDING: usize = 512;

/// How much of a datagram is compared. Hosts quote at least this much (RFC 1812 section 4.3.2.3,
/// RFC 4443 section 3.1), and the first Via of a request lies within it or begins there.
pub(crate) const QUOTE: usize = 256;

/// A datagram shorter than this is not remembered: no SIP request is, and a quote of so little would
/// prove little.
const LEAST: usize = 64;

#[derive(Clone, Copy)]
struct Entry {
    to: SocketAddr,
    compared: usize,
    hash: u128,
    report: u64,
}

/// Bytes hashed at a time: two words.
const BLOCK: usize = 16;

/// The hash NH of UMAC (RFC 4418 section 5.2.2 has the one of 32-bit words): whoever knows neither the
/// keys nor what was sent finds another quote with the same hash with a probability of 2^-64, and it
/// costs a multiplication for each 16 bytes.
struct Keys([u64; QUOTE / 8]);

impl Keys {
    fn new() -> Self {
        let random = RandomState::new();
        Keys(std::array::from_fn(|i| random.hash_one(i)))
    }

    /// Of at most [`QUOTE`] bytes. Differs only between quotes of the same length.
    fn hash(&self, quote: &[u8]) -> u128 {
        let (blocks, rest) = quote.as_chunks::<BLOCK>();
        let (keys, _) = self.0.as_chunks::<2>();
        let mut sum = 0u128;
        for (block, key) in blocks.iter().zip(keys) {
            sum = sum.wrapping_add(product(block, key));
        }
        if let Some(key) = keys.get(blocks.len()) {
            let mut last = [0; BLOCK];
            last[..rest.len()].copy_from_slice(rest);
            sum = sum.wrapping_add(product(&last, key));
        }
        sum
    }
}

fn product(block: &[u8; BLOCK], key: &[u64; 2]) -> u128 {
    let words = u128::from_le_bytes(*block);
    let (low, high) = (words as u64, (words >> 64) as u64);
    u128::from(low.wrapping_add(key[0])) * u128::from(high.wrapping_add(key[1]))
}

/// The datagrams sent lately with a report number.
pub(crate) struct Outstanding {
    ring: Vec<Option<Entry>>,
    next: usize,
    keys: Keys,
}

impl Outstanding {
    pub(crate) fn new() -> Self {
        Outstanding { ring: vec![None; OUTSTANDING], next: 0, keys: Keys::new() }
    }

    /// Remembers a datagram sent to `to`.
    pub(crate) fn insert(&mut self, to: SocketAddr, bytes: &[u8], report: u64) {
        if bytes.len() < LEAST {
            return;
        }
        let compared = bytes.len().min(QUOTE);
        let hash = self.keys.hash(&bytes[..compared]);
        self.ring[self.next] = Some(Entry { to, compared, hash, report });
        self.next = (self.next + 1) % OUTSTANDING;
    }

    /// The report number of the datagram to `to` that began with `quote`; it is forgotten.
    pub(crate) fn take(&mut self, to: SocketAddr, quote: &[u8]) -> Option<u64> {
        let Outstanding { ring, keys, .. } = self;
        let found = ring.iter_mut().find(|slot| {
            slot.is_some_and(|e| {
                e.to.ip() == to.ip()
                    && e.to.port() == to.port()
                    && e.compared <= quote.len()
                    && e.hash == keys.hash(&quote[..e.compared])
            })
        })?;
        found.take().map(|e| e.report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_quote_counts() {
        let keys = Keys::new();
        for length in [LEAST, LEAST + 1, QUOTE - 1, QUOTE] {
            let mut quote: Vec<u8> = (0..length).map(|n| n as u8).collect();
            let hash = keys.hash(&quote);
            for i in 0..length {
                quote[i] ^= 1;
                assert_ne!(keys.hash(&quote), hash, "byte {i} of {length}");
                quote[i] ^= 1;
            }
            assert_eq!(keys.hash(&quote), hash);
            assert_ne!(Keys::new().hash(&quote), hash);
        }
    }

    #[test]
    fn only_a_true_quote_is_believed() {
        let to = "192.0.2.1:5060".parse().unwrap();
        let sent = [7u8; 300];
        let mut o = Outstanding::new();
        o.insert(to, &sent, 42);
        assert_eq!(o.take("192.0.2.1:5061".parse().unwrap(), &sent), None);
        assert_eq!(o.take(to, &[8; 300]), None);
        assert_eq!(o.take(to, &sent[..QUOTE - 1]), None);
        assert_eq!(o.take(to, &sent[..QUOTE]), Some(42));
        assert_eq!(o.take(to, &sent), None);
    }

    #[test]
    fn the_oldest_makes_room() {
        let to = "192.0.2.1:5060".parse().unwrap();
        let mut o = Outstanding::new();
        o.insert(to, &[0; 100], 1);
        for n in 0..OUTSTANDING as u64 {
            o.insert(to, &[1; 100], n + 2);
        }
        assert_eq!(o.take(to, &[0; 100]), None);
        assert!(o.take(to, &[1; 100]).is_some());
    }
}
