//! Which routers are talked to about short numbers.
//!
//! The routers beside this one on the ring, and those of the nearest routers that have users. Not every router of a mesh is
//! a server: where all beside this one only pass packets on, the second kind is the way to the others.

use std::time::Duration;

use ringway_mesh::NodeId;
use ringway_phonebook::numbers::Node;
use ringway_sansio::{Random, Time};

/// Routers with users, on each side of this one.
const HOMES: usize = 2;
/// Time after the start at which users are listed for the first time.
const FIRST: Duration = Duration::from_secs(8);
/// Interval while this router is in no network of short numbers.
const WITHOUT_NETWORK: Duration = Duration::from_secs(20);
/// Minimum interval at other times; it grows by a second a user, so that the lists of all routers together cost little.
const INTERVAL: Duration = Duration::from_secs(1_800);

/// The routers that are talked to, and when users are listed to find them.
pub(super) struct Peers {
    id: NodeId,
    neighbours: Vec<NodeId>,
    homes: Vec<NodeId>,
    /// Of the neighbours, those that have sent something about numbers: they are servers.
    heard: Vec<NodeId>,
    /// The interval has begun at a random time, so that routers that start together do not list together for ever.
    is_spread: bool,
    /// When users are listed next.
    list_due: Time,
}

impl Peers {
    /// Of a router that starts.
    pub(super) fn new(id: NodeId, now: Time) -> Self {
        let (neighbours, homes, heard) = (Vec::new(), Vec::new(), Vec::new());
        Peers { id, neighbours, homes, heard, is_spread: false, list_due: now + FIRST }
    }

    /// Takes the routers beside this one.
    pub(super) fn set_neighbours(&mut self, routers: Vec<NodeId>) {
        self.heard.retain(|id| routers.contains(id));
        self.neighbours = routers;
    }

    /// Notes that a router has sent a message about numbers.
    pub(super) fn hear(&mut self, router: NodeId) {
        if self.neighbours.contains(&router) && !self.heard.contains(&router) {
            self.heard.push(router);
        }
    }

    /// Returns whether the nearest router on each side is a server.
    fn is_among_servers(&self) -> bool {
        let clockwise = |id: &&NodeId| id.raw().wrapping_sub(self.id.raw());
        let after = self.neighbours.iter().min_by_key(clockwise);
        let before = self.neighbours.iter().max_by_key(clockwise);
        [after, before].iter().all(|id| id.is_some_and(|id| self.heard.contains(id)))
    }

    /// Takes the routers that have users.
    pub(super) fn set_homes(&mut self, routers: &[NodeId]) {
        let mut sorted: Vec<NodeId> = routers.iter().copied().filter(|&id| id != self.id).collect();
        // Clockwise from this router, so that the first and the last are the nearest of each side.
        sorted.sort_by_key(|id| id.raw().wrapping_sub(self.id.raw()));
        sorted.dedup();
        let after = sorted.iter().take(HOMES);
        let before = sorted.iter().skip(HOMES).rev().take(HOMES);
        self.homes = after.chain(before).copied().collect();
    }

    /// Returns all, the nearest first.
    pub(super) fn all(&self) -> Vec<Node> {
        let own = self.id.raw();
        let distance = |id: &NodeId| {
            let clockwise = id.raw().wrapping_sub(own);
            (clockwise.min(clockwise.wrapping_neg()), id.raw())
        };
        let mut all: Vec<NodeId> = self.neighbours.iter().chain(&self.homes).copied().collect();
        all.sort_by_key(distance);
        all.dedup();
        all.into_iter().map(|id| id.raw()).collect()
    }

    /// Returns when users are to be listed.
    pub(super) fn list_due(&self) -> Time {
        self.list_due
    }

    /// Returns whether users are to be listed now. All routers that start together list little: one between two servers
    /// has no need to before it hears of a network.
    pub(super) fn may_list(
        &mut self,
        now: Time,
        has_network: bool,
        users: usize,
        random: &mut dyn Random,
    ) -> bool {
        if self.list_due > now {
            return false;
        }
        let is_early = self.is_among_servers() && !(has_network && self.is_spread);
        self.is_spread |= has_network;
        self.listing(now, has_network, users, random);
        if is_early && has_network {
            let share = (random.next_u64() % 1_024) as u32;
            self.list_due = now + self.list_due.since(now) / 1_024 * share;
        }
        !is_early
    }

    /// Users are being listed. `users` of them are known, and this router is in a network of short numbers or not.
    pub(super) fn listing(
        &mut self,
        now: Time,
        has_network: bool,
        users: usize,
        random: &mut dyn Random,
    ) {
        let interval = match has_network {
            false => WITHOUT_NETWORK,
            true => INTERVAL.max(Duration::from_secs(users as u64)),
        };
        // Not all routers at once.
        self.list_due = now + interval + interval / 1_024 * (random.next_u64() % 256) as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_sansio::SplitMix;

    fn ids(raw: &[u64]) -> Vec<NodeId> {
        raw.iter().map(|&raw| NodeId::new(raw)).collect()
    }

    #[test]
    fn the_nearest_routers_with_users_are_talked_to_beside_the_neighbours() {
        let mut peers = Peers::new(NodeId::new(100), Time::ZERO);
        peers.set_neighbours(ids(&[90, 120]));
        assert_eq!(peers.all(), [90, 120]);
        peers.set_homes(&ids(&[40, 100, 50, 130, 120, 7_000, u64::MAX]));
        // Two on each side, around the end of the ring.
        assert_eq!(peers.all(), [90, 120, 130, 50, 40]);
        peers.set_homes(&ids(&[110]));
        assert_eq!(peers.all(), [90, 110, 120]);
        peers.set_homes(&ids(&[u64::MAX - 5, 200, 300, 400]));
        assert_eq!(peers.all(), [90, 120, 200, u64::MAX - 5, 300, 400]);
    }

    /// Otherwise a network that starts spends all it may on lists, and nobody can call.
    #[test]
    fn a_router_between_servers_lists_nothing_at_first() {
        let mut random = SplitMix::new(1);
        let start = |neighbours: &[u64], heard: &[u64]| {
            let mut peers = Peers::new(NodeId::new(100), Time::ZERO);
            peers.set_neighbours(ids(neighbours));
            ids(heard).into_iter().for_each(|id| peers.hear(id));
            peers
        };
        // Alone, or where one of the nearest only passes packets on, the list is the way to others.
        for (neighbours, heard) in [(&[][..], &[][..]), (&[90, 80, 120], &[80, 120, 50])] {
            let mut peers = start(neighbours, heard);
            assert!(!peers.may_list(Time::from_secs(7), false, 0, &mut random));
            assert!(peers.may_list(Time::from_secs(8), false, 0, &mut random));
        }
        let mut lists = Vec::new();
        for _ in 0..1_000 {
            let mut peers = start(&[90, 80, 120], &[90, 120]);
            assert!((8..60).all(|at| !peers.may_list(Time::from_secs(at), false, 0, &mut random)));
            let mut listed =
                (60..6_000).filter(|&at| peers.may_list(Time::from_secs(at), true, 9, &mut random));
            lists.extend(listed.next());
        }
        assert!(lists.len() == 1_000 && lists.iter().all(|&at| at < 2_400));
        assert!(lists.iter().filter(|&&at| at < 300).count() < 200);
    }

    #[test]
    fn users_are_listed_the_more_rarely_the_more_there_are() {
        let mut peers = Peers::new(NodeId::new(1), Time::from_secs(100));
        assert_eq!(peers.list_due(), Time::from_secs(108));
        let mut next = |has_network, users| {
            peers.listing(Time::from_secs(1_000), has_network, users, &mut SplitMix::new(1));
            peers.list_due().as_secs() - 1_000
        };
        assert!((20..=25).contains(&next(false, 9_000)));
        assert!((1_800..=2_250).contains(&next(true, 10)));
        assert!((9_000..=11_250).contains(&next(true, 9_000)));
    }
}
