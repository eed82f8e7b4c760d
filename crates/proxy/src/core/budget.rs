//! The memory budget for requests that are stored until they are answered, shared among their senders.
//!
//! Each source, and each user who has proved to be one, may hold a part of what is *free*, not of the whole. So a late
//! holder finds room whatever the others hold, and no holder is limited to a small part while there is plenty. With a
//! part of a quarter, one source alone ends at a fifth of the budget. Addresses are cheap, so unauthenticated senders
//! together have half of the budget. Authenticated users and trusted peers have a quarter more. The last quarter is for
//! REGISTER and for what has begun.

use crate::keys::Keyed;
use hashbrown::HashMap;
use ringway_sansio::Flow;
use std::hash::{BuildHasher, Hasher};

/// Octets of requests stored for later use: proxied and not answered, waiting for server location or for the store.
/// Beyond it requests are answered with 503. It is enough for a hundred thousand ringing calls, and large messages
/// cannot exceed it.
pub const MAX_REQUEST_BUDGET: usize = 128 << 20;

/// Of [`MAX_REQUEST_BUDGET`], the part that unauthenticated senders may use together.
pub const MAX_UNAUTHENTICATED_BUDGET: usize = MAX_REQUEST_BUDGET / 2;

/// Of [`MAX_REQUEST_BUDGET`], the part for all but REGISTER and requests within dialogs.
pub const MAX_NEW_BUDGET: usize = MAX_REQUEST_BUDGET / 4 * 3;

/// A table larger than this is replaced by a small one when it becomes empty.
const KEEP_ENTRIES: usize = 1024;

/// The divisor of the free octets that one source or user may hold.
const PART: usize = 4;

/// The divisor for a trusted peer: a gateway carries the calls of many users.
const TRUSTED_PART: usize = 1;

/// The holders that a request is charged to: its source and, if there is one, the user.
pub(super) type Holders = [u64; 2];

/// The class of a request, which decides its part of the budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RequestClass {
    /// A new request of an unauthenticated sender.
    Unauthenticated,
    /// A new request of a user or of a trusted peer.
    New,
    /// A registration, or a request within a dialog.
    Established,
}

/// The budget, and the octets of each holder.
pub(super) struct RequestBudget {
    octets: usize,
    held: HashMap<u64, usize>,
    hasher: Keyed,
}

impl RequestBudget {
    /// Returns an empty budget; holders are hashed under `key`.
    pub(super) fn new(key: [u8; 16]) -> RequestBudget {
        RequestBudget { octets: 0, held: HashMap::new(), hasher: Keyed::new(&key) }
    }

    /// Returns the octets in use, at most [`MAX_REQUEST_BUDGET`].
    pub(super) fn octets(&self) -> usize {
        self.octets
    }

    /// Returns the holders that a request from `flow` is charged to; `user` is the authenticated user, if any.
    pub(super) fn holders(&self, flow: &Flow, user: Option<&str>) -> Holders {
        let mut source = self.hasher.build_hasher();
        crate::shared::hash_ip(&mut source, crate::backoff::network(flow.remote.ip()));
        let user = user.map_or(0, |user| self.hasher.hash_one(user) | 1);
        [source.finish() | 1, user]
    }

    /// Takes room for `octets`, if the holders may have them.
    pub(super) fn take(
        &mut self,
        octets: usize,
        holders: &Holders,
        class: RequestClass,
        trusted: bool,
    ) -> bool {
        let room = match class {
            RequestClass::Unauthenticated => MAX_UNAUTHENTICATED_BUDGET,
            RequestClass::New => MAX_NEW_BUDGET,
            RequestClass::Established => MAX_REQUEST_BUDGET,
        };
        let free = room.saturating_sub(self.octets);
        let part = free / if trusted { TRUSTED_PART } else { PART };
        let fits = |holder: &u64| *holder == 0 || self.held(*holder) + octets <= part;
        if octets > free || !holders.iter().all(fits) {
            return false;
        }
        self.octets += octets;
        for &holder in holders.iter().filter(|holder| **holder != 0) {
            *self.held.entry(holder).or_insert(0) += octets;
        }
        true
    }

    /// Releases room that was taken for these holders.
    pub(super) fn release(&mut self, octets: usize, holders: &Holders) {
        self.octets = self.octets.saturating_sub(octets);
        for &holder in holders.iter().filter(|holder| **holder != 0) {
            if let Some(held) = self.held.get_mut(&holder) {
                *held = held.saturating_sub(octets);
                if *held == 0 {
                    self.held.remove(&holder);
                }
            }
        }
        if self.held.is_empty() && self.held.capacity() > KEEP_ENTRIES {
            self.held = HashMap::new();
        }
    }

    fn held(&self, holder: u64) -> usize {
        self.held.get(&holder).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(budget: &mut RequestBudget, holder: u64, class: RequestClass) -> usize {
        let mut taken = 0;
        while budget.take(1000, &[holder, 0], class, false) {
            taken += 1000;
        }
        taken
    }

    #[test]
    fn a_source_leaves_room_for_all_others() {
        let mut budget = RequestBudget::new([1; 16]);
        let room = MAX_UNAUTHENTICATED_BUDGET;
        let first = fill(&mut budget, 1, RequestClass::Unauthenticated);
        assert!(first.abs_diff(room / 5) < 5_000, "{first}");
        let second = fill(&mut budget, 2, RequestClass::Unauthenticated);
        assert!(second.abs_diff(room / 5 / 5 * 4) < 5_000, "{second}");
        // However many there are, users find room for calls, and every sender for what has begun.
        for holder in 3..=1000 {
            fill(&mut budget, holder, RequestClass::Unauthenticated);
        }
        assert!(budget.octets() <= room);
        let user = fill(&mut budget, 2000, RequestClass::New);
        assert!(user > MAX_REQUEST_BUDGET / 4 / 5 - 5_000, "{user}");
        for holder in 1..=200 {
            assert!(budget.take(1000, &[holder + 1000, 0], RequestClass::Established, false));
        }
    }

    #[test]
    fn a_user_is_one_holder_from_many_sources() {
        let mut budget = RequestBudget::new([1; 16]);
        let mut taken = 0usize;
        while budget.take(1000, &[taken as u64 + 10, 7], RequestClass::New, false) {
            taken += 1000;
        }
        assert!(taken.abs_diff(MAX_NEW_BUDGET / 5) < 5_000, "{taken}");
        assert!(budget.take(1000, &[5, 8], RequestClass::New, false));
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let mut budget = RequestBudget::new([1; 16]);
        let first = fill(&mut budget, 1, RequestClass::New);
        for _ in 0..first / 1000 {
            budget.release(1000, &[1, 0]);
        }
        assert_eq!((budget.octets(), budget.held.len()), (0, 0));
        assert_eq!(fill(&mut budget, 1, RequestClass::New), first);
    }
}
