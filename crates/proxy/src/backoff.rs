//! Back-off on password guessing: after a few wrong passwords from one source, or for one user, no more are checked for
//! a while, longer each time.
//!
//! All workers count together. The count of a user must not lock that user out, or an attacker could do so by guessing.
//! So a source that has recently proved to be the user is not limited by the guesses of others, nor by other guesses
//! behind the same address.

use crate::shared::{Memory, Shared, hash_ip};
use ringway_sansio::{Duration, Time};
use std::hash::Hasher;
use std::net::IpAddr;
use std::sync::Arc;

/// The number of wrong passwords from one source within [`WINDOW`] after which no more are checked.
pub const MAX_FAILURES_PER_SOURCE: u8 = 10;

/// The number of wrong passwords for one user, from all sources, within [`WINDOW`].
pub const MAX_FAILURES_PER_USER: u8 = 30;

/// The time in which wrong passwords are counted, and the duration of the first block.
pub const WINDOW: Duration = Duration::from_secs(60);

/// The maximum duration of a block. Each block lasts twice as long as the one before.
pub const MAX_BLOCK: Duration = Duration::from_secs(3600);

/// The time for which a source counts as one that has proved to be a user.
pub const SUCCESS_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);

/// Counts wrong passwords.
#[derive(Clone, Debug)]
pub struct BackOff {
    shared: Arc<Shared>,
}

/// The subject of an entry.
#[derive(Clone, Copy)]
enum About {
    Guesses,
    Blocks,
    Known,
}

impl BackOff {
    /// Returns a back-off on the memory of all workers.
    pub fn new(shared: Arc<Shared>) -> BackOff {
        BackOff { shared }
    }

    /// Returns whether credentials for a user from this source must not be checked now.
    pub fn is_blocked(&self, now: Time, source: IpAddr, user: &[u8], realm: &[u8]) -> bool {
        let by_source = self.count(now, About::Guesses, Some(network(source)), b"", b"")
            >= MAX_FAILURES_PER_SOURCE;
        let by_user =
            || self.count(now, About::Guesses, None, user, realm) >= MAX_FAILURES_PER_USER;
        (by_source || by_user()) && !self.is_known(now, source, user, realm)
    }

    /// Returns whether a source has recently proved to be a user.
    pub fn is_known(&self, now: Time, source: IpAddr, user: &[u8], realm: &[u8]) -> bool {
        self.count(now, About::Known, Some(network(source)), user, realm) > 0
    }

    /// Records a wrong password. Returns whether it is the one after which no more are checked.
    pub fn record_failure(&self, now: Time, source: IpAddr, user: &[u8], realm: &[u8]) -> bool {
        let source = network(source);
        let by_source = self.add(now, MAX_FAILURES_PER_SOURCE, Some(source), b"", b"");
        let by_user = self.add(now, MAX_FAILURES_PER_USER, None, user, realm);
        by_source || by_user
    }

    /// Records that a source has proved to be a user.
    pub fn record_success(&self, now: Time, source: IpAddr, user: &[u8], realm: &[u8]) {
        let key = self.key(About::Known, Some(network(source)), user, realm);
        self.memory().put(key, 1, now, SUCCESS_LIFETIME);
    }

    fn memory(&self) -> &Memory {
        &self.shared.guesses
    }

    fn count(
        &self,
        now: Time,
        about: About,
        source: Option<IpAddr>,
        user: &[u8],
        realm: &[u8],
    ) -> u8 {
        self.memory().get(self.key(about, source, user, realm), now).unwrap_or(0)
    }

    fn add(&self, now: Time, max: u8, source: Option<IpAddr>, user: &[u8], realm: &[u8]) -> bool {
        let key = self.key(About::Guesses, source, user, realm);
        let count = self.memory().get(key, now).unwrap_or(0).saturating_add(1);
        if count < max {
            self.memory().put(key, count, now, WINDOW);
            return false;
        }
        let blocks = self.count(now, About::Blocks, source, user, realm);
        let period = (WINDOW * 2u32.saturating_pow(blocks.into())).min(MAX_BLOCK);
        self.memory().put(key, count, now, period);
        let blocks_key = self.key(About::Blocks, source, user, realm);
        self.memory().put(blocks_key, blocks.saturating_add(1).min(16), now, MAX_BLOCK * 2);
        true
    }

    fn key(&self, about: About, source: Option<IpAddr>, user: &[u8], realm: &[u8]) -> u64 {
        let mut h = self.memory().hasher();
        h.write_u8(about as u8);
        if let Some(ip) = source {
            hash_ip(&mut h, ip);
        }
        for field in [user, realm] {
            h.write_u8(b'\n');
            h.write(field);
        }
        h.finish()
    }
}

/// Returns the source of an address: the IPv4 address, or the /64 that an IPv6 host may choose its addresses from.
pub(crate) fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.into(),
        IpAddr::V6(ip) => std::net::Ipv6Addr::from_bits(ip.to_bits() & !0 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Secret;

    const NOW: Time = Time::from_secs(1_700_000_000);

    fn ip(last: u8) -> IpAddr {
        [203, 0, 113, last].into()
    }

    fn back_off() -> BackOff {
        BackOff::new(Arc::new(Shared::new(&Secret::new(&[7; 32]))))
    }

    #[test]
    fn a_source_that_guesses_is_blocked_for_longer_each_time() {
        let b = back_off();
        let mut now = NOW;
        for block in [60, 120, 240] {
            for n in 1..=MAX_FAILURES_PER_SOURCE {
                assert!(!b.is_blocked(now, ip(1), b"alice", b"r"));
                // Each for another user, so that only the source counts.
                assert_eq!(b.record_failure(now, ip(1), &[n], b"r"), n == MAX_FAILURES_PER_SOURCE);
            }
            assert!(b.is_blocked(now, ip(1), b"alice", b"r"));
            assert!(!b.is_blocked(now, ip(2), b"alice", b"r"), "another source");
            assert!(b.is_blocked(now + Duration::from_secs(block - 1), ip(1), b"alice", b"r"));
            now += Duration::from_secs(block);
        }
        assert!(!b.is_blocked(now, ip(1), b"alice", b"r"));
    }

    #[test]
    fn a_user_guessed_by_many_sources_is_blocked_but_where_the_user_is_known() {
        let b = back_off();
        b.record_success(NOW, ip(200), b"alice", b"r");
        for n in 1..=MAX_FAILURES_PER_USER {
            b.record_failure(NOW, ip(n), b"alice", b"r");
        }
        assert!(b.is_blocked(NOW, ip(100), b"alice", b"r"));
        assert!(!b.is_blocked(NOW, ip(100), b"bob", b"r"));
        assert!(!b.is_blocked(NOW, ip(200), b"alice", b"r"), "her own telephone");
        assert!(
            b.is_blocked(NOW, ip(200), b"bob", b"r") == b.is_blocked(NOW, ip(100), b"bob", b"r")
        );
    }

    #[test]
    fn the_hosts_of_a_64_are_one_source() {
        let b = back_off();
        for n in 0..MAX_FAILURES_PER_SOURCE {
            let host = format!("2001:db8::{n:x}").parse().unwrap();
            b.record_failure(NOW, host, &[n], b"r");
        }
        assert!(b.is_blocked(NOW, "2001:db8::ffff".parse().unwrap(), b"alice", b"r"));
        assert!(!b.is_blocked(NOW, "2001:db8:0:1::1".parse().unwrap(), b"alice", b"r"));
    }
}
