//! Recently sent datagrams whose delivery failures are reported.
//!
//! An ICMP message names the destination of a datagram and quotes its start. An address alone proves
//! nothing: anyone can send such a message, and SIP's ports are well known. The first bytes of a SIP
//! request contain the random branch of the topmost Via (RFC 3261 section 8.1.1.7), so the quote does
//! prove something: it must match a datagram that was sent.
//!
//! The sockets of all workers share a port, and the kernel queues an ICMP message at any one of them.
//! So each worker publishes a tag of every datagram it remembers in the [`Ledger`], where the worker that
//! reads the message finds the sender. A message whose quote matches no datagram is passed to no other
//! worker, so a forger cannot fill their mailboxes.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of datagrams remembered; each new one replaces the oldest.
pub(crate) const OUTSTANDING: usize = 512;

/// Maximum number of bytes compared. Hosts quote at least this much (RFC 1812 section 4.3.2.3, RFC 4443
/// section 3.1), and the first Via of a request lies within it or begins there.
pub(crate) const QUOTE: usize = 256;

/// Minimum size of a remembered datagram, in bytes: every SIP request is longer, and a shorter quote would
/// prove little.
const MIN_SIZE: usize = 64;

#[derive(Clone, Copy)]
struct Entry {
    to: SocketAddr,
    compared: usize,
    hash: u128,
    report: u64,
}

/// Bytes hashed at a time: two words.
const BLOCK: usize = 16;

/// The keys of UMAC's hash NH (RFC 4418 section 5.2.2 has the one of 32-bit words). Without the keys, another
/// quote has the same hash with a probability of 2^-64. It costs a multiplication for each 16 bytes.
struct Keys([u64; QUOTE / 8]);

impl Keys {
    fn new() -> Self {
        let random = RandomState::new();
        Keys(std::array::from_fn(|i| random.hash_one(i)))
    }

    /// Returns the hash of at most [`QUOTE`] bytes. It distinguishes only quotes of the same length.
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

/// The tag of an empty slot.
const NO_TAG: u64 = 0;

/// Returns a hash as one word, which other threads can read atomically.
fn tag(hash: u128) -> u64 {
    ((hash >> 64) as u64 ^ hash as u64).max(NO_TAG + 1)
}

/// Tags of the datagrams that each worker remembers: written by that worker, read by all.
pub(crate) struct Ledger {
    keys: Keys,
    /// Indexed by worker and slot of its ring.
    tags: Vec<Box<[AtomicU64]>>,
}

impl Ledger {
    /// Creates a ledger for a number of workers.
    pub(crate) fn new(workers: usize) -> Self {
        let slots = || (0..OUTSTANDING).map(|_| AtomicU64::new(NO_TAG)).collect();
        Ledger { keys: Keys::new(), tags: (0..workers).map(|_| slots()).collect() }
    }

    /// Returns the worker that has probably sent a datagram which begins with `quote`;
    /// [`Outstanding::take`] of that worker decides.
    pub(crate) fn owner(&self, quote: &[u8]) -> Option<u8> {
        let quote = &quote[..quote.len().min(QUOTE)];
        if quote.len() < MIN_SIZE {
            return None;
        }
        let expected = tag(self.keys.hash(quote));
        let has = |slots: &[AtomicU64]| slots.iter().any(|t| t.load(Ordering::Acquire) == expected);
        let owner = self.tags.iter().position(|slots| has(slots))?;
        u8::try_from(owner).ok()
    }
}

/// The datagrams that a worker has sent recently with a report number.
pub(crate) struct Outstanding {
    ring: Vec<Option<Entry>>,
    next: usize,
    ledger: Arc<Ledger>,
    worker: usize,
}

impl Outstanding {
    pub(crate) fn new(ledger: Arc<Ledger>, worker: u8) -> Self {
        Outstanding { ring: vec![None; OUTSTANDING], next: 0, ledger, worker: worker.into() }
    }

    fn publish(&self, slot: usize, tag: u64) {
        let slots = self.ledger.tags.get(self.worker);
        if let Some(slot) = slots.and_then(|slots| slots.get(slot)) {
            slot.store(tag, Ordering::Release);
        }
    }

    /// Remembers a datagram sent to `to`.
    pub(crate) fn insert(&mut self, to: SocketAddr, bytes: &[u8], report: u64) {
        if bytes.len() < MIN_SIZE {
            return;
        }
        let compared = bytes.len().min(QUOTE);
        let hash = self.ledger.keys.hash(&bytes[..compared]);
        self.ring[self.next] = Some(Entry { to, compared, hash, report });
        self.publish(self.next, tag(hash));
        self.next = (self.next + 1) % OUTSTANDING;
    }

    /// Removes the datagram to `to` that began with `quote`, and returns its report number.
    pub(crate) fn take(&mut self, to: SocketAddr, quote: &[u8]) -> Option<u64> {
        let Outstanding { ring, ledger, .. } = self;
        let found = ring.iter().position(|slot| {
            slot.is_some_and(|e| {
                e.to.ip() == to.ip()
                    && e.to.port() == to.port()
                    && e.compared <= quote.len()
                    && e.hash == ledger.keys.hash(&quote[..e.compared])
            })
        })?;
        self.publish(found, NO_TAG);
        self.ring[found].take().map(|e| e.report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_quote_counts() {
        let keys = Keys::new();
        for length in [MIN_SIZE, MIN_SIZE + 1, QUOTE - 1, QUOTE] {
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
    fn only_a_true_quote_is_accepted() {
        let to = "192.0.2.1:5060".parse().unwrap();
        let sent = [7u8; 300];
        let mut o = Outstanding::new(Arc::new(Ledger::new(1)), 0);
        o.insert(to, &sent, 42);
        assert_eq!(o.take("192.0.2.1:5061".parse().unwrap(), &sent), None);
        assert_eq!(o.take(to, &[8; 300]), None);
        assert_eq!(o.take(to, &sent[..QUOTE - 1]), None);
        assert_eq!(o.take(to, &sent[..QUOTE]), Some(42));
        assert_eq!(o.take(to, &sent), None);
    }

    #[test]
    fn the_oldest_datagram_is_replaced() {
        let to = "192.0.2.1:5060".parse().unwrap();
        let mut o = Outstanding::new(Arc::new(Ledger::new(1)), 0);
        o.insert(to, &[0; 100], 1);
        for n in 0..OUTSTANDING as u64 {
            o.insert(to, &[1; 100], n + 2);
        }
        assert_eq!(o.take(to, &[0; 100]), None);
        assert!(o.take(to, &[1; 100]).is_some());
    }

    #[test]
    fn the_ledger_finds_the_worker_that_sent_a_datagram() {
        let to = "192.0.2.1:5060".parse().unwrap();
        let ledger = Arc::new(Ledger::new(3));
        let mut workers = [0, 1, 2].map(|n| Outstanding::new(ledger.clone(), n));
        for (n, worker) in workers.iter_mut().enumerate() {
            worker.insert(to, &[n as u8 + 1; 300], 7);
        }
        assert_eq!(ledger.owner(&[3; QUOTE]), Some(2));
        assert_eq!(ledger.owner(&[3; 500]), Some(2), "more was quoted than is compared");
        assert_eq!(ledger.owner(&[3; QUOTE - 1]), None, "too short a quote");
        assert_eq!(ledger.owner(&[4; QUOTE]), None, "nobody sent this");
        assert_eq!(ledger.owner(&[]), None);
        assert_eq!(workers[2].take(to, &[3; QUOTE]), Some(7));
        assert_eq!(ledger.owner(&[3; QUOTE]), None, "reported once");
        assert_eq!(ledger.owner(&[2; QUOTE]), Some(1));
    }
}
