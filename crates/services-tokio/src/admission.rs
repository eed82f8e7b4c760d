//! Who may have a connection that nobody has accepted yet: each source a share, so that one cannot use what others need.

use ringway_transport::Holdings;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The connections of a listener that are in their handshake or wait to be accepted.
#[derive(Debug)]
pub(crate) struct Admission {
    waiting: Mutex<Holdings>,
    refused: AtomicU64,
}

/// The right of one connection to wait. It is returned when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    admission: Arc<Admission>,
    source: IpAddr,
}

impl Admission {
    pub(crate) fn new(limit: usize) -> Arc<Admission> {
        let (waiting, refused) = (Mutex::new(Holdings::new(limit)), AtomicU64::new(0));
        Arc::new(Admission { waiting, refused })
    }

    fn waiting(&self) -> MutexGuard<'_, Holdings> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a permit; `None` if there are as many as there may be, of this source or in total.
    pub(crate) fn admit(self: &Arc<Self>, source: IpAddr) -> Option<Permit> {
        if self.waiting().take(source) {
            return Some(Permit { admission: self.clone(), source });
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Returns the number of connections that were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.admission.waiting().release(self.source);
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
        let admission = Admission::new(8);
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
        let admission = Admission::new(4);
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
