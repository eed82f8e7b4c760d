//! Routes to parties of dialogs that have moved to another router of the mesh.
//!
//! A party that moves keeps the route set of its dialog (RFC 3261 section 12.2), and so does the other party. So requests
//! to the one that has moved come to the router that it has left. Its own requests reach that router through the new one,
//! whose Record-Route they have: this is the route that leads to it from then on. What is stored here leads only to the
//! router that has sent it, and only for one party of one dialog. All workers share it; a restart loses it, until the party
//! sends a re-INVITE.

use crate::shared::SHARE_OF_ROUTERS;
use ringway_sansio::{Duration, Time};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of parties whose route is known.
pub const MAX_DETOURS: usize = 1024;

/// The number of those that have moved to one router.
pub const MAX_DETOURS_OF_ROUTER: usize = MAX_DETOURS / SHARE_OF_ROUTERS;

/// The maximum length of a route, in octets.
pub const MAX_ROUTE: usize = 512;

/// A party of a dialog: the key of the dialog, and whether it is the caller.
type Party = (u64, bool);

#[derive(Debug)]
struct Detour {
    /// Values of Route.
    route: Arc<[u8]>,
    /// The router that it leads to.
    router: IpAddr,
    stored: Time,
    expires: Time,
}

/// The routes to parties that have moved.
#[derive(Debug, Default)]
pub struct Detours {
    /// The number of entries, so that calls of a server without any take no lock.
    count: AtomicUsize,
    entries: Mutex<BTreeMap<Party, Detour>>,
}

impl Detours {
    /// Returns the route to a party of a dialog, if it has moved.
    pub(crate) fn get(&self, dialog: u64, caller: bool, now: Time) -> Option<Arc<[u8]>> {
        if self.is_empty() {
            return None;
        }
        let entries = self.lock();
        let found = entries.get(&(dialog, caller)).filter(|detour| detour.expires > now);
        found.map(|detour| detour.route.clone())
    }

    /// Stores the route to a party that has moved to a router, for `period`. The oldest of that router is evicted if it has
    /// its share, and the oldest of the router with most if there is no room. Returns whether one was evicted.
    pub(crate) fn put(
        &self,
        (dialog, caller): (u64, bool),
        router: IpAddr,
        route: &[u8],
        now: Time,
        period: Duration,
    ) -> bool {
        debug_assert!(route.len() <= MAX_ROUTE);
        let mut entries = self.lock();
        entries.remove(&(dialog, caller));
        let evicted = victim(&entries, router, now);
        if let Some((party, _)) = evicted {
            entries.remove(&party);
        }
        let detour = Detour { route: route.into(), router, stored: now, expires: now + period };
        entries.insert((dialog, caller), detour);
        self.count.store(entries.len(), Ordering::Relaxed);
        evicted.is_some_and(|(_, valid)| valid)
    }

    /// Removes the route to a party, which hangs again where it was.
    pub(crate) fn remove(&self, dialog: u64, caller: bool) {
        if !self.is_empty() {
            let mut entries = self.lock();
            entries.remove(&(dialog, caller));
            self.count.store(entries.len(), Ordering::Relaxed);
        }
    }

    /// Lets the routes to both parties of a dialog expire at a time.
    pub(crate) fn end(&self, dialog: u64, at: Time) {
        if !self.is_empty() {
            let mut entries = self.lock();
            for caller in [false, true] {
                if let Some(detour) = entries.get_mut(&(dialog, caller)) {
                    detour.expires = detour.expires.min(at);
                }
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Party, Detour>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the entry to evict for one more of a router, and whether it is still valid; `None` if there is room.
fn victim(entries: &BTreeMap<Party, Detour>, router: IpAddr, now: Time) -> Option<(Party, bool)> {
    let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
    entries.values().for_each(|detour| *counts.entry(detour.router).or_default() += 1);
    let of_router = counts.get(&router).copied().unwrap_or(0);
    let of = if of_router >= MAX_DETOURS_OF_ROUTER {
        router
    } else if entries.len() >= MAX_DETOURS {
        *counts.iter().max_by_key(|(_, count)| **count)?.0
    } else {
        return None;
    };
    let (party, detour) = entries
        .iter()
        .filter(|(_, detour)| detour.router == of)
        .min_by_key(|(_, detour)| (detour.expires > now, detour.stored))?;
    Some((*party, detour.expires > now))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_secs(1_700_000_000);
    const HOUR: Duration = Duration::from_secs(3600);

    fn router(n: usize) -> IpAddr {
        IpAddr::V6(std::net::Ipv6Addr::new(0xfd00, n as u16, 0, 0, 0, 0, 0, 1))
    }

    fn put(detours: &Detours, dialog: usize, of: usize, at: u64) -> bool {
        let now = NOW + Duration::from_secs(at);
        detours.put((dialog as u64, true), router(of), b"<sip:[fd00::1];lr>", now, HOUR)
    }

    fn has(detours: &Detours, dialog: usize) -> bool {
        detours.get(dialog as u64, true, NOW + Duration::from_secs(60)).is_some()
    }

    #[test]
    fn a_route_is_one_partys_until_it_expires_or_is_removed() {
        let detours = Detours::default();
        assert!(!put(&detours, 7, 1, 0));
        assert_eq!(detours.get(7, true, NOW).as_deref(), Some(&b"<sip:[fd00::1];lr>"[..]));
        assert_eq!(detours.get(7, false, NOW), None);
        assert_eq!(detours.get(8, true, NOW), None);
        assert_eq!(detours.get(7, true, NOW + HOUR), None);
        detours.end(7, NOW + Duration::from_secs(32));
        assert!(detours.get(7, true, NOW + Duration::from_secs(31)).is_some());
        assert_eq!(detours.get(7, true, NOW + Duration::from_secs(32)), None);
        assert!(!put(&detours, 7, 1, 0));
        detours.remove(7, true);
        assert_eq!(detours.get(7, true, NOW), None);
    }

    #[test]
    fn a_router_with_its_share_evicts_its_own() {
        let detours = Detours::default();
        assert!(!put(&detours, 0, 1, 0));
        for dialog in 1..=MAX_DETOURS_OF_ROUTER {
            assert!(!put(&detours, dialog, 2, dialog as u64));
        }
        assert!(put(&detours, 5_000, 2, 1_000));
        assert!(has(&detours, 0) && has(&detours, 5_000) && !has(&detours, 1));
        // Again for the same party takes no more room.
        assert!(!put(&detours, 5_000, 2, 1_001));
        assert!(has(&detours, 2));
    }

    #[test]
    fn many_routers_evict_those_of_the_router_with_most() {
        let detours = Detours::default();
        let mut dialog = 0;
        for of in 0..SHARE_OF_ROUTERS {
            for _ in 0..MAX_DETOURS_OF_ROUTER - usize::from(of > 0) {
                dialog += 1;
                assert!(!put(&detours, dialog, of, dialog as u64));
            }
        }
        for extra in 0..SHARE_OF_ROUTERS - 1 {
            assert!(!put(&detours, 10_000 + extra, 100 + extra, 2_000));
        }
        assert!(put(&detours, 20_000, 200, 2_000));
        assert!(!has(&detours, 1), "the oldest of the first router");
        assert_eq!(detours.lock().len(), MAX_DETOURS);
    }
}
