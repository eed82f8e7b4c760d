//! The cache between queries: answers of DNS, and hops that failed recently. All of it is bounded.

use super::order::{FetchResult, Query, Records};
use ringway_sansio::{Duration, Time, Transport};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Maximum number of cached answers.
pub const MAX_REMEMBERED: usize = 4_096;
/// Maximum number of hops recorded as failed.
pub const MAX_FAILED: usize = 4_096;

/// Minimum lifetime of an answer, whatever its TTL: with a lifetime of zero DNS would be asked for every
/// message.
pub const MIN_LIFETIME: Duration = Duration::from_secs(5);
/// Maximum lifetime of an answer.
pub const MAX_LIFETIME: Duration = Duration::from_secs(3_600);
/// Maximum lifetime of a negative answer (RFC 2308 section 5 allows a few hours): an operator who corrects a
/// zone should not have to wait longer.
pub const MAX_NEGATIVE_LIFETIME: Duration = Duration::from_secs(300);
/// Time for which an expired answer is used when DNS fails or is slow: the minimum that RFC 8767 section 4
/// suggests, 1 to 3 days.
pub const STALE_FOR: Duration = Duration::from_secs(86_400);
/// Time for which an expired answer is used without asking again, once DNS has failed to renew it (RFC 8767
/// section 5, the failure recheck timer).
pub const STALE_RECHECK: Duration = Duration::from_secs(30);
/// Time for which a failed hop is tried last.
pub const FAILED_FOR: Duration = Duration::from_secs(30);
/// Maximum of that time with a Retry-After.
const MAX_FAILED_FOR: Duration = Duration::from_secs(600);

struct CachedAnswer {
    found: Arc<Records>,
    /// The source that the entry is charged to.
    source: IpAddr,
    fresh_until: Time,
    /// After a failure of DNS, the time until which it is used without asking.
    recheck_at: Time,
    usable_until: Time,
}

impl CachedAnswer {
    /// Returns whether it is of use once it has expired.
    fn has_addresses(&self) -> bool {
        !self.found.addresses.is_empty()
    }
}

/// The result of looking a query up in the cache.
pub(crate) enum CacheLookup {
    Fresh(Arc<Records>),
    /// Expired, and DNS failed to renew it recently.
    Stale(Arc<Records>),
    Unknown,
}

#[derive(Default)]
pub(crate) struct Table {
    cached: HashMap<Query, CachedAnswer>,
    failed: HashMap<(Transport, SocketAddr), Time>,
    /// Answers evicted to make room.
    evicted: u64,
}

impl Table {
    pub(crate) fn look_up(&self, now: Time, query: &Query) -> CacheLookup {
        match self.cached.get(query) {
            Some(entry) if now < entry.fresh_until => CacheLookup::Fresh(entry.found.clone()),
            Some(entry) if now < entry.recheck_at.min(entry.usable_until) => {
                CacheLookup::Stale(entry.found.clone())
            }
            _ => CacheLookup::Unknown,
        }
    }

    /// Returns an expired answer that is better than none (RFC 8767).
    pub(crate) fn stale(&self, now: Time, query: &Query) -> Option<Arc<Records>> {
        let entry = self.cached.get(query)?;
        (entry.has_addresses() && now < entry.usable_until).then(|| entry.found.clone())
    }

    /// Returns an expired answer, which is then used without asking for [`STALE_RECHECK`].
    pub(crate) fn keep_stale(&mut self, now: Time, query: &Query) -> Option<Arc<Records>> {
        let found = self.stale(now, query)?;
        if let Some(entry) = self.cached.get_mut(query) {
            entry.recheck_at = now + STALE_RECHECK;
        }
        Some(found)
    }

    /// Stores the result of a question charged to `source`; `None` means that it timed out. Returns the
    /// answer, and whether it is a stale one.
    pub(crate) fn finish(
        &mut self,
        now: Time,
        query: &Query,
        source: IpAddr,
        fetched: Option<FetchResult>,
    ) -> (Arc<Records>, bool) {
        let failed = fetched.as_ref().is_none_or(|f| f.failed);
        let (found, lifetime) =
            fetched.map_or_else(|| (Records::default(), MIN_LIFETIME), |f| (f.found, f.lifetime));
        if failed
            && found.addresses.is_empty()
            && let Some(stale) = self.keep_stale(now, query)
        {
            return (stale, true);
        }
        let max = if found.addresses.is_empty() { MAX_NEGATIVE_LIFETIME } else { MAX_LIFETIME };
        let lifetime = if failed { MIN_LIFETIME } else { lifetime.clamp(MIN_LIFETIME, max) };
        let found = Arc::new(found);
        if !self.cached.contains_key(query) {
            self.make_room(now);
        }
        let fresh_until = now + lifetime;
        let usable_until = fresh_until + STALE_FOR;
        let recheck_at = Time::ZERO;
        let found_too = found.clone();
        let entry = CachedAnswer { found, source, fresh_until, recheck_at, usable_until };
        self.cached.insert(query.clone(), entry);
        (found_too, false)
    }

    /// Makes room for an answer. Evicts those that are of no use any more; if none is, the oldest of the
    /// source that has the largest number, so that one source's many names do not evict the few of another.
    fn make_room(&mut self, now: Time) {
        if self.cached.len() < MAX_REMEMBERED {
            return;
        }
        self.cached.retain(|_, entry| {
            now < entry.fresh_until || entry.has_addresses() && now < entry.usable_until
        });
        if self.cached.len() < MAX_REMEMBERED {
            return;
        }
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for entry in self.cached.values() {
            *counts.entry(entry.source).or_default() += 1;
        }
        let Some((&largest, _)) = counts.iter().max_by_key(|(source, count)| (**count, **source))
        else {
            return;
        };
        let of_source = self.cached.iter().filter(|(_, entry)| entry.source == largest);
        let oldest = of_source.min_by_key(|(_, entry)| entry.fresh_until);
        if let Some(query) = oldest.map(|(query, _)| query.clone()) {
            self.cached.remove(&query);
            self.evicted += 1;
        }
    }

    /// Returns the number of answers evicted to make room.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted
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
            // A table full of failures no longer shows which hops to prefer.
            self.failed.clear();
        }
        self.failed.insert((transport, addr), now + period.min(MAX_FAILED_FOR));
    }

    pub(crate) fn recover(&mut self, transport: Transport, addr: SocketAddr) {
        self.failed.remove(&(transport, addr));
    }

    pub(crate) fn has_failed(&self, now: Time, transport: Transport, addr: SocketAddr) -> bool {
        self.failed.get(&(transport, addr)).is_some_and(|until| now < *until)
    }

    /// Returns the number of cached answers and of failed hops.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        (self.cached.len(), self.failed.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(n: usize) -> Query {
        let host = format!("h{n}.example").into();
        Query { host, port: None, transport: None, secure: false }
    }

    fn fetched(failed: bool, ip: Option<[u8; 4]>) -> Option<FetchResult> {
        let mut found = Records::default();
        if let Some(ip) = ip {
            found.addresses.insert("h".into(), vec![IpAddr::from(ip)]);
        }
        Some(FetchResult { found, lifetime: Duration::from_secs(60), failed })
    }

    fn at(s: u64) -> Time {
        Time::from_secs(1_000_000 + s)
    }

    const SOURCE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn finish(t: &mut Table, now: Time, n: usize, f: Option<FetchResult>) -> (Arc<Records>, bool) {
        t.finish(now, &query(n), SOURCE, f)
    }

    /// RFC 8767 sections 4 and 5.
    #[test]
    fn an_answer_holds_for_its_lifetime_and_longer_when_dns_fails() {
        let mut t = Table::default();
        assert!(matches!(t.look_up(at(0), &query(1)), CacheLookup::Unknown));
        let (found, stale) = finish(&mut t, at(0), 1, fetched(false, Some([192, 0, 2, 1])));
        assert_eq!((found.addresses.len(), stale), (1, false));
        assert!(matches!(t.look_up(at(59), &query(1)), CacheLookup::Fresh(_)));
        assert!(matches!(t.look_up(at(60), &query(1)), CacheLookup::Unknown));
        assert_eq!(t.stale(at(60), &query(1)), Some(found.clone()));
        // A failure and a timeout keep the old answer; a negative answer does not.
        assert_eq!(finish(&mut t, at(61), 1, fetched(true, None)), (found.clone(), true));
        assert!(matches!(t.look_up(at(90), &query(1)), CacheLookup::Stale(_)));
        assert!(matches!(t.look_up(at(91), &query(1)), CacheLookup::Unknown), "asked again");
        assert_eq!(finish(&mut t, at(95), 1, None), (found.clone(), true));
        assert!(finish(&mut t, at(130), 1, fetched(false, None)).0.addresses.is_empty());
        assert_eq!(t.stale(at(500), &query(1)), None, "a negative answer replaces it");
    }

    #[test]
    fn an_expired_answer_is_used_for_a_bounded_time() {
        let mut t = Table::default();
        finish(&mut t, at(0), 1, fetched(false, Some([192, 0, 2, 1])));
        let end = at(60) + STALE_FOR;
        finish(&mut t, at(40) + STALE_FOR, 1, None);
        assert!(matches!(t.look_up(at(59) + STALE_FOR, &query(1)), CacheLookup::Stale(_)));
        assert!(matches!(t.look_up(end, &query(1)), CacheLookup::Unknown));
        assert_eq!(t.stale(end, &query(1)), None);
        assert!(finish(&mut t, end, 1, None).0.addresses.is_empty());
    }

    /// RFC 2308 section 5, and section 7.1 of failures.
    #[test]
    fn negative_answers_have_a_bounded_lifetime() {
        let mut t = Table::default();
        let forever = |failed, ip| {
            fetched(failed, ip).map(|f| FetchResult { lifetime: Duration::from_secs(9_999), ..f })
        };
        let fresh = |t: &Table, s| matches!(t.look_up(at(s), &query(1)), CacheLookup::Fresh(_));
        finish(&mut t, at(0), 1, forever(false, None));
        assert!(fresh(&t, 299) && !fresh(&t, 300));
        finish(&mut t, at(1_000), 1, forever(true, None));
        assert!(fresh(&t, 1_004) && !fresh(&t, 1_005));
        finish(&mut t, at(2_000), 1, forever(false, Some([192, 0, 2, 1])));
        assert!(fresh(&t, 5_599) && !fresh(&t, 5_600));
    }

    #[test]
    fn everything_is_bounded() {
        let mut t = Table::default();
        for n in 0..MAX_REMEMBERED + 10 {
            finish(&mut t, at(0), n, fetched(false, None));
        }
        for n in 0..=MAX_FAILED {
            let addr = SocketAddr::new([192, 0, 2, 1].into(), n as u16);
            t.fail(at(0), Transport::Udp, addr, FAILED_FOR);
        }
        let (cached, failed) = t.sizes();
        assert!(cached <= MAX_REMEMBERED && failed <= MAX_FAILED);
        assert_eq!(t.evicted(), 10);
    }

    #[test]
    fn one_source_does_not_evict_the_names_of_others() {
        let mut t = Table::default();
        let answer = || fetched(false, Some([192, 0, 2, 1]));
        for n in 0..100 {
            t.finish(at(0), &query(n), OTHER, answer());
        }
        // All of them are stale when the many arrive.
        for n in 100..MAX_REMEMBERED + 1_000 {
            finish(&mut t, at(1_000), n, answer());
        }
        assert!((0..100).all(|n| t.stale(at(1_000), &query(n)).is_some()));
        // A negative answer is of no use once it has expired: it is evicted first.
        let mut t = Table::default();
        finish(&mut t, at(0), 0, answer());
        for n in 1..MAX_REMEMBERED {
            finish(&mut t, at(0), n, fetched(false, None));
        }
        finish(&mut t, at(1_000), MAX_REMEMBERED, answer());
        assert_eq!((t.sizes().0, t.evicted()), (2, 0));
    }

    #[test]
    fn a_failure_expires_or_is_cleared_by_an_answer() {
        let mut t = Table::default();
        let addr = "192.0.2.1:5060".parse().unwrap();
        t.fail(at(0), Transport::Udp, addr, FAILED_FOR);
        assert!(t.has_failed(at(29), Transport::Udp, addr));
        assert!(!t.has_failed(at(29), Transport::Tcp, addr));
        assert!(!t.has_failed(at(30), Transport::Udp, addr));
        t.fail(at(40), Transport::Udp, addr, Duration::MAX);
        assert!(!t.has_failed(at(40) + MAX_FAILED_FOR, Transport::Udp, addr));
        t.recover(Transport::Udp, addr);
        assert!(!t.has_failed(at(41), Transport::Udp, addr));
    }
}
