//! What other routers may have this one look up: a hint that messages are kept for a user here, or that one was delivered, costs
//! its sender nothing, and this router a look-up.

use std::collections::BTreeMap;

use ringway_mesh::Prefix;
use ringway_sansio::time::{Duration, Time};

/// The time in which so many hints are followed: of all routers, and of one. Others are repeated by whoever has sent them.
const WINDOW: Duration = Duration::from_secs(10);
const MAX_HINTS: u32 = 32;
const MAX_OF_ROUTER: u32 = 8;

/// Hints that were followed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hints {
    since: Time,
    count: u32,
    of_router: BTreeMap<Prefix, u32>,
}

impl Hints {
    /// Returns whether a hint of a router is followed now, and counts it.
    pub(crate) fn follow(&mut self, now: Time, from: Prefix) -> bool {
        if now.since(self.since) >= WINDOW {
            *self = Hints { since: now, ..Hints::default() };
        }
        let of_router = self.of_router.get(&from).copied().unwrap_or(0);
        if self.count >= MAX_HINTS || of_router >= MAX_OF_ROUTER {
            return false;
        }
        self.count += 1;
        self.of_router.insert(from, of_router + 1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_mesh::NodeId;

    #[test]
    fn one_router_leaves_room_for_the_hints_of_others() {
        let mut hints = Hints::default();
        let start = Time::from_secs(1_000);
        let mut followed = |router: u64, now| {
            let from = NodeId::new(router << 32).prefix();
            (0..100).filter(|_| hints.follow(now, from)).count()
        };
        assert_eq!([1, 2, 3, 4, 5].map(|router| followed(router, start)), [8, 8, 8, 8, 0]);
        assert_eq!(followed(1, start + WINDOW / 2), 0);
        assert_eq!(followed(5, start + WINDOW), 8);
    }
}
