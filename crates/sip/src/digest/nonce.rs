//! Nonces that need no memory until they are used, and cannot be used twice.
//!
//! A nonce consists of the time it was made, the worker that made it, some random octets, and keyed MACs over all that
//! and the realm. The nonce itself shows whether it is ours and how old it is. Only the counts of nonces in use are
//! stored, in a bounded table. Evicting an entry makes every older nonce stale, so that eviction never allows a replay.
//!
//! Servers that share a key recognise the nonces of each other by one of the MACs. They count as stale: who has used them is
//! known only where they were made.

use super::Credentials;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use ringway_sansio::time::Duration;
use ringway_sansio::{Random, Time};
use sha2::Sha256;
use std::collections::BTreeMap;
use subtle::ConstantTimeEq;

/// The maximum number of nonces in use that one [`Nonces`] stores.
pub const MAX_REMEMBERED: usize = 65_536;

/// Octets that make a nonce unique: six of time, one of worker, five random.
const ID: usize = 12;
/// Octets of each MAC in a nonce.
const MAC: usize = 9;
/// Octets of a nonce: the id, a MAC of all servers that share a key, and one of the server alone.
const RAW: usize = ID + 2 * MAC;
/// Characters of a nonce.
const TEXT: usize = RAW / 3 * 4;
/// The maximum lag of a late request behind the highest count.
const WINDOW: u32 = 64;

/// The verdict about the nonce of credentials.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NonceVerdict {
    /// Ours, recent, and not used with this count.
    Fresh,
    /// Ours, but too old, of another worker or server, or no longer stored: the next challenge has `stale=true`.
    Stale,
    /// Ours, but this count has been used: the next challenge has `stale=true`.
    Replay,
    /// Not ours, or made with an earlier key: challenge again.
    Forged,
}

/// Counts used with one nonce.
#[derive(Clone, Copy, Debug)]
struct Counts {
    highest: u32,
    /// Bit `i` is the count `highest - i`.
    seen: u64,
}

/// Makes nonces and checks them.
pub struct Nonces {
    mac: Hmac<Sha256>,
    /// Those of the keys that are shared, the one of new nonces first.
    shared: Vec<Hmac<Sha256>>,
    worker: u8,
    lifetime: Duration,
    /// Counts by id. The time comes first in the id, so that the oldest is the first.
    used: BTreeMap<[u8; ID], Counts>,
    /// Ids up to this one are stale, whatever their age.
    horizon: [u8; ID],
    capacity: usize,
}

impl Nonces {
    /// Returns the nonces of `key`, which must be random and may be the same for all workers. `worker` distinguishes
    /// the nonces of one worker from those of another, because each stores only the counts of its own. `lifetime` is
    /// the time for which a nonce is valid.
    pub fn new(key: &[u8; 32], worker: u8, lifetime: Duration) -> Self {
        Nonces {
            mac: keyed(key),
            shared: Vec::new(),
            worker,
            lifetime,
            used: BTreeMap::new(),
            horizon: [0; ID],
            capacity: MAX_REMEMBERED,
        }
    }

    /// Makes all nonces created before `start` stale: their use before this process began is not known.
    pub fn since(mut self, start: Time) -> Self {
        self.horizon = [0; ID];
        self.horizon[..6].copy_from_slice(&start.as_millis().to_be_bytes()[2..]);
        self
    }

    /// Replaces the keys that this server shares with others, that of new nonces first. All of them are read.
    pub fn share<'k>(&mut self, keys: impl IntoIterator<Item = &'k [u8; 32]>) {
        self.shared = keys.into_iter().map(keyed).collect();
    }

    /// Returns the lifetime of a nonce.
    pub fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// Returns the number of nonces stored.
    pub fn remembered(&self) -> usize {
        self.used.len()
    }

    /// Appends a new nonce for `realm`.
    pub fn create(&self, now: Time, realm: &[u8], random: &mut dyn Random, buf: &mut Vec<u8>) {
        let mut id = [0; ID];
        id[..6].copy_from_slice(&now.as_millis().to_be_bytes()[2..]);
        id[6] = self.worker;
        id[7..].copy_from_slice(&random.next_u64().to_le_bytes()[..5]);
        let mut octets = [0; RAW];
        octets[..ID].copy_from_slice(&id);
        // Without a key that is shared, any octets would do.
        let shared = tag(self.shared.first().unwrap_or(&self.mac), &[&id, realm]);
        octets[ID..ID + MAC].copy_from_slice(&shared);
        octets[ID + MAC..].copy_from_slice(&tag(&self.mac, &[&id, &shared, realm]));
        let start = buf.len();
        buf.resize(start + TEXT, 0);
        // Cannot fail: these octets take TEXT characters.
        let written = URL_SAFE_NO_PAD.encode_slice(octets, &mut buf[start..]);
        debug_assert_eq!(written, Ok(TEXT));
    }

    /// Returns the verdict about the nonce of `credentials` for `realm`. Changes nothing: a client that does not know
    /// the password must not fill the table.
    pub fn check(&self, now: Time, realm: &[u8], credentials: &Credentials<'_>) -> NonceVerdict {
        let id = match self.open(realm, credentials.nonce) {
            Opened::Own(id) => id,
            Opened::Shared => return NonceVerdict::Stale,
            Opened::Forged => return NonceVerdict::Forged,
        };
        if id[6] != self.worker || id <= self.horizon || self.expired(now, &id) {
            return NonceVerdict::Stale;
        }
        match (self.used.get(&id), count(credentials)) {
            (Some(counts), count) if !counts.admits(count) => NonceVerdict::Replay,
            _ => NonceVerdict::Fresh,
        }
    }

    /// Records the use of these credentials. Must be called once the rest of them has been [verified](super::verify()).
    /// Returns the verdict of [`Nonces::check`] before the call; the request may be accepted only after
    /// [`NonceVerdict::Fresh`].
    pub fn remember(
        &mut self,
        now: Time,
        realm: &[u8],
        credentials: &Credentials<'_>,
    ) -> NonceVerdict {
        let verdict = self.check(now, realm, credentials);
        if verdict != NonceVerdict::Fresh {
            return verdict;
        }
        let Opened::Own(id) = self.open(realm, credentials.nonce) else {
            return NonceVerdict::Forged;
        };
        self.forget(now);
        let count = count(credentials);
        self.used.entry(id).or_insert(Counts { highest: 0, seen: 0 }).note(count);
        if self.used.len() > self.capacity
            && let Some((oldest, _)) = self.used.pop_first()
        {
            self.horizon = self.horizon.max(oldest);
        }
        verdict
    }

    /// Drops entries that are too old to be accepted anyway: at most two at a time, which is more than are added.
    fn forget(&mut self, now: Time) {
        for _ in 0..2 {
            match self.used.first_key_value() {
                Some((id, _)) if self.expired(now, id) => self.used.pop_first(),
                _ => return,
            };
        }
    }

    /// Returns whether a nonce has expired. A nonce from the future has too: the clock was set back.
    fn expired(&self, now: Time, id: &[u8; ID]) -> bool {
        let made = Time::from_millis(id[..6].iter().fold(0, |n, &b| n << 8 | b as u64));
        now.as_millis() < made.as_millis() || now.since(made) > self.lifetime
    }

    /// Returns who has made a nonce for this realm.
    fn open(&self, realm: &[u8], nonce: &[u8]) -> Opened {
        let mut octets = [0; RAW];
        if nonce.len() != TEXT || URL_SAFE_NO_PAD.decode_slice(nonce, &mut octets) != Ok(RAW) {
            return Opened::Forged;
        }
        let mut id = [0; ID];
        id.copy_from_slice(&octets[..ID]);
        let (shared, own) = octets[ID..].split_at(MAC);
        if tag(&self.mac, &[&id, shared, realm]).ct_eq(own).into() {
            return Opened::Own(id);
        }
        let has_made = |mac| bool::from(tag(mac, &[&id, realm]).ct_eq(shared));
        if self.shared.iter().any(has_made) { Opened::Shared } else { Opened::Forged }
    }
}

/// Who has made a nonce.
enum Opened {
    /// This server, or one with its key: the id.
    Own([u8; ID]),
    /// A server with which a key is shared.
    Shared,
    /// Nobody.
    Forged,
}

fn keyed(key: &[u8; 32]) -> Hmac<Sha256> {
    #[allow(clippy::expect_used, reason = "HMAC takes keys of any length, RFC 2104 section 2")]
    Hmac::new_from_slice(key).expect("a key of 32 octets")
}

/// Returns the MAC of these parts, of which all but the last have a fixed length.
fn tag(mac: &Hmac<Sha256>, parts: &[&[u8]]) -> [u8; MAC] {
    let mut mac = mac.clone();
    parts.iter().for_each(|part| mac.update(part));
    let full = mac.finalize().into_bytes();
    let mut tag = [0; MAC];
    tag.copy_from_slice(&full[..MAC]);
    tag
}

impl core::fmt::Debug for Nonces {
    /// Hides the key.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Nonces")
            .field("worker", &self.worker)
            .field("remembered", &self.used.len())
            .finish_non_exhaustive()
    }
}

/// Returns the count to store. Credentials without qop have none: their nonce is valid for one request, so it is the
/// last.
fn count(credentials: &Credentials<'_>) -> u32 {
    match credentials.qop {
        Some(_) => credentials.count().unwrap_or(0),
        None => u32::MAX,
    }
}

impl Counts {
    fn admits(&self, count: u32) -> bool {
        match self.highest.checked_sub(count) {
            None => true,
            Some(behind) => count > 0 && behind < WINDOW && self.seen & 1 << behind == 0,
        }
    }

    fn note(&mut self, count: u32) {
        match self.highest.checked_sub(count) {
            Some(behind) => self.seen |= 1u64.checked_shl(behind).unwrap_or(0),
            None => {
                self.seen = self.seen.checked_shl(count - self.highest).unwrap_or(0) | 1;
                self.highest = count;
            }
        }
        if count == u32::MAX {
            // No later count may follow, and no omitted one either.
            self.seen = u64::MAX;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ringway_sansio::SplitMix;

    const REALM: &[u8] = b"example.com";

    fn nonces(worker: u8) -> Nonces {
        Nonces::new(&[7; 32], worker, Duration::from_secs(300))
    }

    fn make(nonces: &Nonces, now: Time, random: &mut SplitMix) -> Vec<u8> {
        let mut buf = Vec::new();
        nonces.create(now, REALM, random, &mut buf);
        buf
    }

    fn used<'a>(nonce: &'a [u8], nc: &'a [u8]) -> Credentials<'a> {
        let mut c = Credentials::parse(
            b"Digest username=\"u\", realm=\"r\", nonce=\"\", uri=\"\", response=\"\"",
        )
        .unwrap();
        c.nonce = nonce;
        if !nc.is_empty() {
            (c.qop, c.nc) = (Some(super::super::Qop::Auth), nc);
        }
        c
    }

    /// RFC 7616 section 3.4: the count reveals a replay.
    #[test]
    fn a_count_is_accepted_once() {
        let (mut n, mut random, now) = (nonces(1), SplitMix::new(1), Time::from_secs(1_000_000));
        let nonce = make(&n, now, &mut random);
        for (nc, verdict) in [
            (&b"00000001"[..], NonceVerdict::Fresh),
            (b"00000001", NonceVerdict::Replay),
            (b"00000003", NonceVerdict::Fresh),
            (b"00000002", NonceVerdict::Fresh),
            (b"00000002", NonceVerdict::Replay),
            (b"00000100", NonceVerdict::Fresh),
            (b"000000c1", NonceVerdict::Fresh),
            (b"000000c0", NonceVerdict::Replay),
            (b"", NonceVerdict::Fresh),
            (b"", NonceVerdict::Replay),
            (b"00000101", NonceVerdict::Replay),
            (b"fffffffe", NonceVerdict::Replay),
        ] {
            let c = used(&nonce, nc);
            assert_eq!(n.check(now, REALM, &c), verdict, "{nc:?}");
            assert_eq!(n.remember(now, REALM, &c), verdict, "{nc:?}");
        }
        assert_eq!(n.remembered(), 1);
    }

    #[test]
    fn old_and_foreign_nonces_are_distinguished() {
        let (mut n, mut random, now) = (nonces(1), SplitMix::new(1), Time::from_secs(1_000_000));
        let nonce = make(&n, now, &mut random);
        let c = used(&nonce, b"00000001");
        assert_eq!(n.check(now + Duration::from_secs(301), REALM, &c), NonceVerdict::Stale);
        assert_eq!(n.check(Time::from_secs(999_999), REALM, &c), NonceVerdict::Stale);
        assert_eq!(nonces(2).check(now, REALM, &c), NonceVerdict::Stale);
        assert_eq!(n.check(now, b"other", &c), NonceVerdict::Forged);
        for i in 0..nonce.len() {
            let mut changed = nonce.clone();
            changed[i] = if changed[i] == b'A' { b'B' } else { b'A' };
            let c = used(&changed, b"00000001");
            assert_eq!(n.remember(now, REALM, &c), NonceVerdict::Forged);
        }
        for wrong in [&b""[..], b"abc", &nonce[1..], b"////////////////////////////////////////"] {
            assert_eq!(n.check(now, REALM, &used(wrong, b"00000001")), NonceVerdict::Forged);
        }
        assert_eq!(n.remembered(), 0);
    }

    /// Who has used it is known at the server alone that made it.
    #[test]
    fn a_nonce_of_a_server_that_shares_a_key_is_stale() {
        let (mut random, now) = (SplitMix::new(1), Time::from_secs(1_000_000));
        let server = |own: u8, shared: &[[u8; 32]]| {
            let mut nonces = Nonces::new(&[own; 32], 1, Duration::from_secs(300));
            nonces.share(shared);
            nonces
        };
        let (one, other) = (server(1, &[[8; 32]]), server(2, &[[9; 32], [8; 32]]));
        let verdict = |at: &Nonces, nonce: &[u8]| at.check(now, REALM, &used(nonce, b"00000001"));
        let nonce = make(&one, now, &mut random);
        assert_eq!(verdict(&one, &nonce), NonceVerdict::Fresh);
        assert_eq!(verdict(&other, &nonce), NonceVerdict::Stale);
        assert_eq!(verdict(&server(2, &[]), &nonce), NonceVerdict::Forged);
        // It has another key in use, which the first has not heard of yet.
        let nonce = make(&other, now, &mut random);
        assert_eq!(verdict(&one, &nonce), NonceVerdict::Forged);
        let mut later = server(1, &[[9; 32], [8; 32]]);
        assert_eq!(verdict(&later, &nonce), NonceVerdict::Stale);
        // What it has made itself stays its own when the keys change.
        let nonce = make(&later, now, &mut random);
        later.share(&[[10; 32]]);
        assert_eq!(verdict(&later, &nonce), NonceVerdict::Fresh);
    }

    #[test]
    fn what_falls_out_of_the_table_is_stale_with_all_before_it() {
        let (mut n, mut random) = (nonces(1), SplitMix::new(1));
        n.capacity = 3;
        let all: Vec<_> = (0..5)
            .map(|i| (Time::from_secs(1000 + i), make(&n, Time::from_secs(1000 + i), &mut random)))
            .collect();
        let now = Time::from_secs(1010);
        for (_, nonce) in &all[1..] {
            assert_eq!(n.remember(now, REALM, &used(nonce, b"00000001")), NonceVerdict::Fresh);
        }
        assert_eq!(n.remembered(), 3);
        // The second was evicted; the first, never used, is older and becomes stale with it.
        for (_, nonce) in &all[..2] {
            assert_eq!(n.check(now, REALM, &used(nonce, b"00000002")), NonceVerdict::Stale);
        }
        for (_, nonce) in &all[2..] {
            assert_eq!(n.check(now, REALM, &used(nonce, b"00000002")), NonceVerdict::Fresh);
        }
        // What has expired makes room by itself.
        let later = now + Duration::from_secs(301);
        let nonce = make(&n, later, &mut random);
        n.remember(later, REALM, &used(&nonce, b"00000001"));
        let nonce = make(&n, later, &mut random);
        n.remember(later, REALM, &used(&nonce, b"00000001"));
        assert_eq!(n.remembered(), 2);
    }

    proptest! {
        /// Whatever is sent in any order: no count of a nonce is ever accepted twice.
        #[test]
        fn no_replay_is_ever_accepted(uses in prop::collection::vec((0usize..6, 1u32..200), 1..300)) {
            let (mut n, mut random) = (nonces(1), SplitMix::new(1));
            n.capacity = 4;
            let start = Time::from_secs(1000);
            let all: Vec<_> = (0..6).map(|i| make(&n, start + Duration::from_millis(i), &mut random)).collect();
            let mut accepted = std::collections::BTreeSet::new();
            for (i, (which, count)) in uses.into_iter().enumerate() {
                let now = start + Duration::from_millis(10 + i as u64);
                let nc = format!("{count:08x}");
                let c = used(&all[which], nc.as_bytes());
                if n.remember(now, REALM, &c) == NonceVerdict::Fresh {
                    prop_assert!(accepted.insert((which, count)));
                }
                prop_assert!(n.remembered() <= 4);
            }
        }
    }
}
