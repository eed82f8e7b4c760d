//! What is remembered between queries: what DNS said, who waits for it, and what failed lately. All
//! of it bounded.

use super::dns::Fetched;
use super::order::{Found, Hop, Query};
use ringway_sansio::{Duration, Time, Transport};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// Queries whose answers are remembered.
pub const MAX_REMEMBERED: usize = 4_096;
/// Queries under way at once.
pub const MAX_UNDER_WAY: usize = 512;
/// Callers that wait for one query.
pub const MAX_WAITING: usize = 8_192;
/// Hops that are remembered as failed.
pub const MAX_FAILED: usize = 4_096;

/// An answer is good for no shorter than this, whatever DNS says: a lifetime of zero would have DNS
/// asked for every message.
pub const LEAST_LIFETIME: Duration = Duration::from_secs(5);
/// And for no longer than this.
pub const MOST_LIFETIME: Duration = Duration::from_secs(3_600);
/// How much longer an answer is used when DNS fails to give a newer one (RFC 8767).
pub const STALE_FOR: Duration = Duration::from_secs(6 * 3_600);
/// How long a hop that failed is tried last.
pub const FAILED_FOR: Duration = Duration::from_secs(30);
/// The longest that a Retry-After can make it.
const FAILED_AT_MOST: Duration = Duration::from_secs(600);

/// Who waits: the seed for the order, and whom to tell.
pub(crate) type Waiter = (u64, Box<dyn FnOnce(Vec<Hop>) + Send>);

struct Remembered {
    found: Arc<Found>,
    fresh_until: Time,
    usable_until: Time,
}

/// What is known about a query.
pub(crate) enum Known {
    Fresh(Arc<Found>),
    UnderWay,
    Unknown,
}

#[derive(Default)]
pub(crate) struct Table {
    remembered: HashMap<Query, Remembered>,
    under_way: HashMap<Query, Vec<Waiter>>,
    failed: HashMap<(Transport, SocketAddr), Time>,
}

impl Table {
    pub(crate) fn look_up(&self, now: Time, query: &Query) -> Known {
        match self.remembered.get(query) {
            Some(entry) if now < entry.fresh_until => Known::Fresh(entry.found.clone()),
            _ if self.under_way.contains_key(query) => Known::UnderWay,
            _ => Known::Unknown,
        }
    }

    /// Notes that a query begins; `false` when too many are under way.
    pub(crate) fn begin(
        &mut self,
        query: Query,
        seed: u64,
        done: Box<dyn FnOnce(Vec<Hop>) + Send>,
    ) -> bool {
        if self.under_way.len() >= MAX_UNDER_WAY {
            return false;
        }
        self.under_way.insert(query, vec![(seed, done)]);
        true
    }

    /// Joins a query that is under way; `false` when too many wait for it.
    pub(crate) fn wait(
        &mut self,
        query: Query,
        seed: u64,
        done: Box<dyn FnOnce(Vec<Hop>) + Send>,
    ) -> bool {
        let waiters = self.under_way.entry(query).or_default();
        if waiters.len() >= MAX_WAITING {
            return false;
        }
        waiters.push((seed, done));
        true
    }

    /// A query has ended: `None` means that it took too long. Gives what to answer, and whom.
    pub(crate) fn finish(
        &mut self,
        now: Time,
        query: &Query,
        fetched: Option<Fetched>,
    ) -> (Arc<Found>, Vec<Waiter>) {
        let waiters = self.under_way.remove(query).unwrap_or_default();
        let failed = fetched.as_ref().is_none_or(|f| f.failed);
        let (found, lifetime) = fetched.map_or_else(
            || (Found::default(), LEAST_LIFETIME),
            |f| (f.found, f.lifetime.clamp(LEAST_LIFETIME, MOST_LIFETIME)),
        );
        if failed && found.addresses.is_empty() {
            // DNS itself failed: what it said before is better than nothing.
            if let Some(entry) = self.remembered.get_mut(query)
                && now < entry.usable_until
            {
                entry.fresh_until = now + LEAST_LIFETIME;
                return (entry.found.clone(), waiters);
            }
        }
        let lifetime = if failed { LEAST_LIFETIME } else { lifetime };
        let found = Arc::new(found);
        self.make_room(now);
        let fresh_until = now + lifetime;
        let usable_until = fresh_until + STALE_FOR;
        let entry = Remembered { found: found.clone(), fresh_until, usable_until };
        self.remembered.insert(query.clone(), entry);
        (found, waiters)
    }

    fn make_room(&mut self, now: Time) {
        if self.remembered.len() < MAX_REMEMBERED {
            return;
        }
        self.remembered.retain(|_, entry| now < entry.fresh_until);
        while self.remembered.len() >= MAX_REMEMBERED {
            let oldest = self.remembered.iter().min_by_key(|(_, entry)| entry.fresh_until);
            let Some(query) = oldest.map(|(query, _)| query.clone()) else { return };
            self.remembered.remove(&query);
        }
    }

    pub(crate) fn fail(
        &mut self,
        now: Time,
        transport: Transport,
        addr: SocketAddr,
        period: Duration,
    ) {
        if self.failed.len() >= MAX_FAILED {
            self.failed.retain(|_, until| now < *until);
        }
        if self.failed.len() >= MAX_FAILED {
            // A table full of failures tells nothing any more about which to prefer.
            self.failed.clear();
        }
        self.failed.insert((transport, addr), now + period.min(FAILED_AT_MOST));
    }

    pub(crate) fn recover(&mut self, transport: Transport, addr: SocketAddr) {
        self.failed.remove(&(transport, addr));
    }

    pub(crate) fn has_failed(&self, now: Time, transport: Transport, addr: SocketAddr) -> bool {
        self.failed.get(&(transport, addr)).is_some_and(|until| now < *until)
    }

    pub(crate) fn sizes(&self) -> (usize, usize, usize) {
        (self.remembered.len(), self.under_way.len(), self.failed.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn query(n: usize) -> Query {
        let host = format!("h{n}.example").into();
        Query { host, port: None, transport: None, secure: false }
    }

    fn fetched(failed: bool, ip: Option<[u8; 4]>) -> Option<Fetched> {
        let mut found = Found::default();
        if let Some(ip) = ip {
            found.addresses.insert("h".into(), vec![IpAddr::from(ip)]);
        }
        Some(Fetched { found, lifetime: Duration::from_secs(60), failed })
    }

    fn at(s: u64) -> Time {
        Time::from_secs(1_000_000 + s)
    }

    #[test]
    fn an_answer_holds_for_its_lifetime_and_longer_when_dns_fails() {
        let mut t = Table::default();
        assert!(matches!(t.look_up(at(0), &query(1)), Known::Unknown));
        assert!(t.begin(query(1), 0, Box::new(|_| {})));
        assert!(matches!(t.look_up(at(0), &query(1)), Known::UnderWay));
        assert!(t.wait(query(1), 0, Box::new(|_| {})));
        let (found, waiters) = t.finish(at(0), &query(1), fetched(false, Some([192, 0, 2, 1])));
        assert_eq!((waiters.len(), found.addresses.len()), (2, 1));
        assert!(matches!(t.look_up(at(59), &query(1)), Known::Fresh(_)));
        assert!(matches!(t.look_up(at(60), &query(1)), Known::Unknown));
        // A failure and a timeout keep the old answer; an honest "nothing" does not.
        assert_eq!(t.finish(at(61), &query(1), fetched(true, None)).0, found);
        assert!(matches!(t.look_up(at(62), &query(1)), Known::Fresh(_)));
        assert_eq!(t.finish(at(70), &query(1), None).0, found);
        assert!(t.finish(at(80), &query(1), fetched(false, None)).0.addresses.is_empty());
    }

    #[test]
    fn an_old_answer_is_not_used_for_ever() {
        let mut t = Table::default();
        t.finish(at(0), &query(1), fetched(false, Some([192, 0, 2, 1])));
        let late = at(61) + STALE_FOR;
        assert!(t.finish(late, &query(1), None).0.addresses.is_empty());
    }

    #[test]
    fn everything_is_bounded() {
        let mut t = Table::default();
        for n in 0..MAX_REMEMBERED + 10 {
            t.finish(at(0), &query(n), fetched(false, None));
        }
        for n in 0..MAX_UNDER_WAY {
            assert!(t.begin(query(n), 0, Box::new(|_| {})));
        }
        assert!(!t.begin(query(MAX_UNDER_WAY), 0, Box::new(|_| {})));
        for _ in 1..MAX_WAITING {
            assert!(t.wait(query(0), 0, Box::new(|_| {})));
        }
        assert!(!t.wait(query(0), 0, Box::new(|_| {})));
        for n in 0..=MAX_FAILED {
            let addr = SocketAddr::new([192, 0, 2, 1].into(), n as u16);
            t.fail(at(0), Transport::Udp, addr, FAILED_FOR);
        }
        let (remembered, under_way, failed) = t.sizes();
        assert!(remembered <= MAX_REMEMBERED && under_way <= MAX_UNDER_WAY && failed <= MAX_FAILED);
    }

    #[test]
    fn a_failure_is_forgotten_in_time_or_on_an_answer() {
        let mut t = Table::default();
        let addr = "192.0.2.1:5060".parse().unwrap();
        t.fail(at(0), Transport::Udp, addr, FAILED_FOR);
        assert!(t.has_failed(at(29), Transport::Udp, addr));
        assert!(!t.has_failed(at(29), Transport::Tcp, addr));
        assert!(!t.has_failed(at(30), Transport::Udp, addr));
        t.fail(at(40), Transport::Udp, addr, Duration::MAX);
        assert!(!t.has_failed(at(40) + FAILED_AT_MOST, Transport::Udp, addr));
        t.recover(Transport::Udp, addr);
        assert!(!t.has_failed(at(41), Transport::Udp, addr));
    }
}
