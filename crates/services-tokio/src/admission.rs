//! Who may have a connection that nobody has accepted yet: each source a share, so that one cannot use what others need.

use crate::limits::SOURCE_SHARE;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The connections of a listener that are in their handshake or wait to be accepted.
#[derive(Debug)]
pub(crate) struct Admission {
    limit: usize,
    /// What one source may have of them.
    share: usize,
    waiting: Mutex<Waiting>,
    refused: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    total: usize,
    by_source: HashMap<IpAddr, usize>,
}

/// The right of one connection to wait. It is returned when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    admission: Arc<Admission>,
    source: IpAddr,
}

/// Returns the source that an address counts for: a host of IPv4, a link of IPv6, whose hosts choose their addresses.
fn source(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        ip => ip,
    }
}

impl Admission {
    pub(crate) fn new(limit: usize) -> Arc<Admission> {
        let share = limit.div_ceil(SOURCE_SHARE).max(1);
        let (waiting, refused) = (Mutex::default(), AtomicU64::new(0));
        Arc::new(Admission { limit, share, waiting, refused })
    }

    /// Returns a permit; `None` if there are as many as there may be, of this source or in total.
    pub(crate) fn admit(self: &Arc<Self>, ip: IpAddr) -> Option<Permit> {
        let source = source(ip);
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let of_source = waiting.by_source.get(&source).copied().unwrap_or(0);
        if waiting.total >= self.limit || of_source >= self.share {
            drop(waiting);
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        waiting.total += 1;
        waiting.by_source.insert(source, of_source + 1);
        drop(waiting);
        Some(Permit { admission: self.clone(), source })
    }

    /// Returns the number of connections that were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut waiting = self.admission.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.total -= 1;
        let of_source = waiting.by_source.get_mut(&self.source);
        if of_source.is_some_and(|count| {
            *count -= 1;
            *count == 0
        }) {
            waiting.by_source.remove(&self.source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_source_has_a_share_and_leaves_room_for_others() {
        let admission = Admission::new(16);
        let one = [admission.admit(ip("192.0.2.1")), admission.admit(ip("192.0.2.1"))];
        assert!(one.iter().all(Option::is_some));
        assert!(admission.admit(ip("192.0.2.1")).is_none());
        assert!(admission.admit(ip("::ffff:192.0.2.1")).is_none());
        let other = admission.admit(ip("192.0.2.2"));
        assert!(other.is_some());
        drop(one);
        assert!(admission.admit(ip("192.0.2.1")).is_some());
        assert_eq!(admission.refused(), 2);
    }

    #[test]
    fn a_link_of_ipv6_is_one_source() {
        let admission = Admission::new(8);
        let first = admission.admit(ip("2001:db8::1"));
        assert!(first.is_some() && admission.admit(ip("2001:db8::2")).is_none());
        assert!(admission.admit(ip("2001:db8:0:1::2")).is_some());
    }

    #[test]
    fn all_sources_together_are_bounded() {
        let admission = Admission::new(4);
        let permits: Vec<_> =
            (1..=5u8).map(|n| admission.admit(IpAddr::from([192, 0, 2, n]))).collect();
        assert_eq!(permits.iter().filter(|permit| permit.is_some()).count(), 4);
    }
}
