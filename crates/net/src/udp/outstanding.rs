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
    hash: u64,
    report: u64,
}

/// The datagrams sent lately with a report number.
pub(crate) struct Outstanding {
    ring: Vec<Option<Entry>>,
    next: usize,
    keys: RandomState,
}

impl Outstanding {
    pub(crate) fn new() -> Self {
        Outstanding { ring: vec![None; OUTSTANDING], next: 0, keys: RandomState::new() }
    }

    /// Remembers a datagram sent to `to`.
    pub(crate) fn insert(&mut self, to: SocketAddr, bytes: &[u8], report: u64) {
        if bytes.len() < LEAST {
            return;
        }
        let compared = bytes.len().min(QUOTE);
        let hash = self.keys.hash_one(&bytes[..compared]);
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
                    && e.hash == keys.hash_one(&quote[..e.compared])
            })
        })?;
        found.take().map(|e| e.report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
