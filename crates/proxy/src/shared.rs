//! Facts that all workers of a server share, beside the location table: each is small and may be lost. They are in
//! tables of fixed size without locks, but for what users do ([`States`]).
//!
//! A [`Memory`] maps the keyed hash of a fact to one octet until a time. It never grows: when a bucket is full, the
//! entry that expires first is evicted. A reader must be correct without it. So a lost entry costs what it would cost
//! without a memory: a retransmission treated as a new request, a failed hop tried once more.

use crate::detours::Detours;
use crate::keys::{Purpose, Secret};
use crate::states::States;
use ringway_sansio::{Duration, Time};
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of entries that one key may be stored in.
const WAYS: usize = 8;

/// The number of buckets of the entries of one source, a power of two.
const SHARE: u64 = 16;

/// The number of requests of the last [`REQUEST_LIFETIME`] whose worker is known.
pub const MAX_REQUESTS: usize = 1 << 17;

/// The number of next hops that have failed recently.
pub const MAX_FAILED_HOPS: usize = 1 << 12;

/// The number of dialogs that ended or were refused, whose marks are revoked.
pub const MAX_REVOKED_MARKS: usize = 1 << 16;

/// The number of parties of dialogs that have moved to another address.
pub const MAX_MOVED_TARGETS: usize = 1 << 14;

/// The number of INVITEs whose ACK is awaited though no mark leads it.
pub const MAX_AWAITED_ACKS: usize = 1 << 14;

/// The number of addresses of routing rules' next hops.
pub const MAX_GATEWAYS: usize = 1 << 10;

/// The number of users and sources for which wrong passwords are counted.
pub const MAX_GUESSES: usize = 1 << 16;

/// The number of routers that must have their shares for a table to be full.
pub const SHARE_OF_ROUTERS: usize = 8;

/// The lifetime of a request's entry: 64 times T1, for which it may be retransmitted (RFC 3261 section 17.1.1.2).
pub const REQUEST_LIFETIME: Duration = Duration::from_secs(32);

/// The time for which an ACK is awaited: 64 times T1, for which the 2xx is retransmitted (RFC 3261 section 13.3.1.4).
pub const ACK_LIFETIME: Duration = Duration::from_secs(32);

/// The time for which a failed next hop is tried last.
pub const FAILURE_LIFETIME: Duration = Duration::from_secs(30);

/// The time for which an address counts as that of a routing rule's next hop after a rule has led there.
pub const GATEWAY_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);

/// Facts by keyed hash, each with an octet and an expiry.
///
/// An entry is one word: 32 bits that distinguish the keys of one bucket, the second of its expiry in 24 bits, and the
/// octet. A key that was never stored is found with a probability of 2^-29.
#[derive(Debug)]
pub struct Memory {
    entries: Box<[AtomicU64]>,
    key: [u8; 16],
}

/// The parts of a word.
#[derive(Clone, Copy)]
struct Entry {
    tag: u32,
    expires: u32,
    value: u8,
}

/// Seconds wrap at 24 bits: half a year.
const SECONDS: u32 = (1 << 24) - 1;

impl Entry {
    fn of(word: u64) -> Option<Entry> {
        let entry = Entry {
            tag: (word >> 32) as u32,
            expires: (word >> 8) as u32 & SECONDS,
            value: word as u8,
        };
        (word != 0).then_some(entry)
    }

    fn word(self) -> u64 {
        u64::from(self.tag) << 32 | u64::from(self.expires & SECONDS) << 8 | u64::from(self.value)
    }

    /// Returns the seconds left; 0 once it has expired.
    fn left(self, now: u32) -> u32 {
        let left = self.expires.wrapping_sub(now) & SECONDS;
        if left > SECONDS / 2 { 0 } else { left }
    }
}

fn seconds(time: Time) -> u32 {
    (time.as_nanos() / 1_000_000_000) as u32 & SECONDS
}

impl Memory {
    /// Returns an empty memory for `entries`, a power of two of at least eight.
    fn new(entries: usize, key: [u8; 16]) -> Memory {
        debug_assert!(entries.is_power_of_two() && entries >= WAYS);
        Memory { entries: (0..entries).map(|_| AtomicU64::new(0)).collect(), key }
    }

    /// Returns a hasher for a key of this memory.
    pub fn hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_key(&self.key)
    }

    fn bucket(&self, hash: u64) -> &[AtomicU64] {
        let first = (hash as usize % (self.entries.len() / WAYS)) * WAYS;
        &self.entries[first..first + WAYS]
    }

    /// Returns the octet of a key that has not expired.
    pub fn get(&self, hash: u64, now: Time) -> Option<u8> {
        let (tag, now) = (tag_of(hash), seconds(now));
        let mut found =
            self.bucket(hash).iter().filter_map(|w| Entry::of(w.load(Ordering::Relaxed)));
        found.find(|e| e.tag == tag && e.left(now) > 0).map(|e| e.value)
    }

    /// Returns the same as [`Memory::get`], with the time since it was stored for `period`.
    pub fn get_with_age(&self, hash: u64, now: Time, period: Duration) -> Option<(u8, Duration)> {
        let (tag, second) = (tag_of(hash), seconds(now));
        let mut found =
            self.bucket(hash).iter().filter_map(|w| Entry::of(w.load(Ordering::Relaxed)));
        let entry = found.find(|e| e.tag == tag && e.left(second) > 0)?;
        let age = period.as_secs().saturating_sub(entry.left(second).into());
        Some((entry.value, Duration::from_secs(age)))
    }

    /// Stores an octet under a key for `period`, and replaces an earlier one.
    pub fn put(&self, hash: u64, value: u8, now: Time, period: Duration) {
        let (tag, second) = (tag_of(hash), seconds(now));
        let period = period.as_secs().clamp(1, u64::from(SECONDS / 2)) as u32;
        let entry = Entry { tag, expires: second.wrapping_add(period), value };
        // Two workers that store at the same time may lose one entry, but never corrupt one.
        let bucket = self.bucket(hash);
        let rank = |word: &AtomicU64| match Entry::of(word.load(Ordering::Relaxed)) {
            None => 0,
            Some(e) if e.tag == tag => 0,
            Some(e) => 1 + e.left(second),
        };
        let same = bucket
            .iter()
            .find(|w| Entry::of(w.load(Ordering::Relaxed)).is_some_and(|e| e.tag == tag));
        if let Some(word) = same.or_else(|| bucket.iter().min_by_key(|w| rank(w))) {
            word.store(entry.word(), Ordering::Relaxed);
        }
    }

    /// Removes the octet of a key.
    pub fn remove(&self, hash: u64) {
        let tag = tag_of(hash);
        for word in self.bucket(hash) {
            let value = word.load(Ordering::Relaxed);
            if Entry::of(value).is_some_and(|e| e.tag == tag) {
                // If another worker has stored something else meanwhile, it stays.
                let _ = word.compare_exchange(value, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }
}

/// Returns a hash of a key whose entries are those of a source: whatever keys it can cause, it fills no more than `SHARE`
/// buckets.
pub fn of_source(source: u64, hash: u64) -> u64 {
    let bucket = source.wrapping_add(hash % SHARE);
    hash & !u64::from(u32::MAX) | bucket & u64::from(u32::MAX)
}

/// Returns the bits that identify a hash in its bucket. Never 0, so that no entry is an empty word.
fn tag_of(hash: u64) -> u32 {
    (hash >> 32) as u32 | 1
}

/// The memories of one server.
#[derive(Debug)]
pub struct Shared {
    /// Requests in progress, with the worker of each.
    pub requests: Memory,
    /// Next hops that have failed.
    pub failed: Memory,
    /// Dialogs whose marks are revoked.
    pub revoked: Memory,
    /// Targets that a party of a dialog has moved to.
    pub moved: Memory,
    /// Routes to parties that have moved to another router.
    pub detours: Detours,
    /// INVITEs whose ACK is awaited, by the source of each.
    pub awaited: Memory,
    /// Addresses of routing rules' next hops.
    pub gateways: Memory,
    /// Wrong passwords, by user and by source.
    pub guesses: Memory,
    /// What users do, for those who watch them.
    pub states: States,
}

impl Shared {
    /// Returns empty memories with keys derived from `secret`.
    pub fn new(secret: &Secret) -> Shared {
        Shared::with_share(secret, 1)
    }

    /// Returns memories a `part`th as large, a power of two of at most 128: for the servers of a laboratory, of which there
    /// are many in one process.
    pub fn with_share(secret: &Secret, part: usize) -> Shared {
        let memory = |entries: usize, purpose| Memory::new(entries / part, secret.key(purpose));
        Shared {
            requests: memory(MAX_REQUESTS, Purpose::Requests),
            failed: memory(MAX_FAILED_HOPS, Purpose::FailedHops),
            revoked: memory(MAX_REVOKED_MARKS, Purpose::RevokedMarks),
            moved: memory(MAX_MOVED_TARGETS, Purpose::MovedTargets),
            detours: Detours::default(),
            awaited: memory(MAX_AWAITED_ACKS, Purpose::AwaitedAcks),
            gateways: memory(MAX_GATEWAYS, Purpose::Gateways),
            guesses: memory(MAX_GUESSES, Purpose::Guesses),
            states: States::new(secret.key(Purpose::States)),
        }
    }
}

/// Adds an address to a hash, an IPv4-mapped IPv6 one as IPv4.
pub(crate) fn hash_ip(hasher: &mut SipHasher13, ip: IpAddr) {
    match ip.to_canonical() {
        IpAddr::V4(ip) => hasher.write(&ip.octets()),
        IpAddr::V6(ip) => hasher.write(&ip.octets()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Time = Time::from_secs(1_700_000_000);
    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn an_entry_is_found_until_it_expires() {
        let memory = Memory::new(64, [1; 16]);
        memory.put(7 << 32, 3, NOW, MINUTE);
        assert_eq!(memory.get(7 << 32, NOW), Some(3));
        assert_eq!(memory.get(7 << 32, NOW + Duration::from_secs(59)), Some(3));
        assert_eq!(memory.get(7 << 32, NOW + MINUTE), None);
        assert_eq!(memory.get(9 << 32, NOW), None);
        memory.put(7 << 32, 4, NOW, MINUTE);
        assert_eq!(memory.get(7 << 32, NOW), Some(4));
        memory.remove(7 << 32);
        assert_eq!(memory.get(7 << 32, NOW), None);
    }

    #[test]
    fn the_entry_that_expires_first_makes_room() {
        let memory = Memory::new(8, [1; 16]);
        let key = |n: u64| (2 * n + 1) << 32;
        for n in 0..8 {
            memory.put(key(n), n as u8, NOW, MINUTE * (10 - n as u32));
        }
        memory.put(key(8), 8, NOW, MINUTE);
        assert_eq!(memory.get(key(7), NOW), None, "the one with the least time left");
        assert!((0..7).chain([8]).all(|n| memory.get(key(n), NOW) == Some(n as u8)));
    }

    #[test]
    fn one_source_leaves_the_entries_of_others() {
        let shared = Shared::new(&Secret::new(&[7; 32]));
        let memory = &shared.awaited;
        let hash = |text: String| {
            let mut h = memory.hasher();
            h.write(text.as_bytes());
            h.finish()
        };
        let key = |source: usize, n: usize| {
            of_source(hash(format!("source {source}")), hash(format!("{source} {n}")))
        };
        for source in 0..100 {
            memory.put(key(source, 0), 1, NOW, ACK_LIFETIME);
        }
        for n in 0..100_000 {
            memory.put(key(100, n), 1, NOW + Duration::from_secs(1), ACK_LIFETIME);
        }
        let now = NOW + Duration::from_secs(2);
        let left = (0..100).filter(|&source| memory.get(key(source, 0), now).is_some()).count();
        assert!(left >= 95, "{left}");
        let own = (0..100_000).filter(|&n| memory.get(key(100, n), now).is_some()).count();
        assert_eq!(own, SHARE as usize * WAYS);
    }

    proptest! {
        /// An expiry is right across the wrap of its seconds.
        #[test]
        fn expiry_survives_the_wrap(start in 0u64..1 << 26, period in 1u64..1 << 22, later in 0u64..1 << 22) {
            let memory = Memory::new(8, [1; 16]);
            memory.put(5 << 32, 1, Time::from_secs(start), Duration::from_secs(period));
            let found = memory.get(5 << 32, Time::from_secs(start + later)).is_some();
            prop_assert_eq!(found, later < period);
        }
    }
}
