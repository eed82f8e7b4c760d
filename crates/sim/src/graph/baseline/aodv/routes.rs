//! The routing table of AODV (RFC 3561 section 6.2).

use super::DELETE_PERIOD;
use ringway_sansio::Time;
use std::collections::{BTreeMap, BTreeSet};

/// Returns whether a sequence number is newer than another (section 6.1).
pub fn is_newer(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) > 0
}

/// A neighbour as the next hop of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The node.
    pub node: u32,
    /// The index of the neighbour.
    pub index: u16,
}

/// An entry of the table.
#[derive(Clone, Debug)]
pub struct Route {
    /// The sequence number of the destination, if it is valid.
    pub sequence: Option<u32>,
    /// Links to the destination.
    pub hops: u8,
    /// The first node on the way.
    pub next: Hop,
    /// Whether it may be used until it expires.
    is_valid: bool,
    /// The end of its lifetime.
    pub expires: Time,
    /// The end of its lifetime if the neighbour said no hellos.
    used_until: Time,
    /// Neighbours that use it.
    pub precursors: BTreeSet<u32>,
}

impl Route {
    /// Returns whether data may be sent on it.
    pub fn is_active(&self, now: Time) -> bool {
        self.is_valid && self.expires > now
    }

    /// Extends its lifetime.
    pub fn extend(&mut self, expires: Time) {
        self.expires = self.expires.max(expires);
        self.used_until = self.used_until.max(expires);
    }
}

/// The routes of a node.
#[derive(Clone, Debug, Default)]
pub struct Routes(BTreeMap<u32, Route>);

impl Routes {
    /// Returns the route to a node, active or not.
    pub fn get(&self, to: u32) -> Option<&Route> {
        self.0.get(&to)
    }

    /// Returns the route to a node, if it is active.
    pub fn active(&mut self, to: u32, now: Time) -> Option<&mut Route> {
        self.0.get_mut(&to).filter(|route| route.is_active(now))
    }

    /// Returns whether any route is active, and not by hellos alone.
    pub fn any_used(&self, now: Time) -> bool {
        self.0.values().any(|route| route.is_active(now) && route.used_until > now)
    }

    /// Adds a route, or replaces the one to the same node if the new one is better: it has a newer sequence
    /// number or the same with fewer hops, or the present one is not active or has no sequence number
    /// (sections 6.2, 6.5 and 6.7). Returns whether it did.
    pub fn offer(
        &mut self,
        now: Time,
        to: u32,
        sequence: u32,
        hops: u8,
        next: Hop,
        expires: Time,
    ) -> bool {
        let new = || Route {
            sequence: Some(sequence),
            hops,
            next,
            is_valid: true,
            expires,
            used_until: expires,
            precursors: BTreeSet::new(),
        };
        let route = self.0.entry(to).or_insert_with(new);
        let is_better = match route.sequence {
            None => true,
            Some(known) if known == sequence => {
                !route.is_active(now)
                    || hops < route.hops
                    || (hops == route.hops && route.next == next)
            }
            Some(known) => is_newer(sequence, known),
        };
        if is_better {
            let expires = if route.is_active(now) { route.expires.max(expires) } else { expires };
            let precursors = core::mem::take(&mut route.precursors);
            let used_until = route.used_until.max(new().used_until);
            *route = Route { expires, used_until, precursors, ..new() };
        }
        is_better
    }

    /// Notes the hello of a neighbour, after which the route to it is active and used no longer than before.
    pub fn hello(&mut self, now: Time, next: Hop, sequence: u32, expires: Time) {
        let used_until = self.get(next.node).map_or(now, |route| route.used_until);
        self.offer(now, next.node, sequence, 1, next, expires);
        if let Some(route) = self.0.get_mut(&next.node) {
            route.used_until = used_until;
        }
    }

    /// Notes that a node is a neighbour, whose sequence number is not known by that.
    pub fn neighbour(&mut self, now: Time, next: Hop, expires: Time) {
        let route = self.0.entry(next.node).or_insert_with(|| Route {
            sequence: None,
            hops: 1,
            next,
            is_valid: true,
            expires,
            used_until: expires,
            precursors: BTreeSet::new(),
        });
        if !route.is_active(now) {
            route.expires = expires;
        }
        (route.is_valid, route.hops, route.next) = (true, 1, next);
        route.extend(expires);
    }

    /// Makes the route to a node invalid, if it is active and leads over the neighbour `via`. Its sequence
    /// number becomes `sequence`, and is incremented if that is `None` (section 6.11). Returns it and who used
    /// the route.
    pub fn invalidate(
        &mut self,
        now: Time,
        to: u32,
        via: u32,
        sequence: Option<u32>,
    ) -> Option<(u32, BTreeSet<u32>)> {
        let route = self.active(to, now).filter(|route| route.next.node == via)?;
        (route.is_valid, route.expires) = (false, now);
        let incremented = route.sequence.map(|known| known.wrapping_add(1));
        route.sequence = sequence.or(incremented);
        let precursors = core::mem::take(&mut route.precursors);
        Some((route.sequence.unwrap_or_default(), precursors))
    }

    /// Returns the nodes to which routes are active over a neighbour.
    pub fn over(&self, via: u32, now: Time) -> Vec<u32> {
        let routes = self.0.iter().filter(|(_, route)| route.is_active(now));
        routes.filter(|(_, route)| route.next.node == via).map(|(to, _)| *to).collect()
    }

    /// Removes routes that have not been active for a while.
    pub fn purge(&mut self, now: Time) {
        self.0.retain(|_, route| route.expires + DELETE_PERIOD > now);
    }

    /// Returns the allocated bytes, without those of the tree's nodes.
    pub fn heap_bytes(&self) -> usize {
        let precursors = self.0.values().map(|route| route.precursors.len());
        self.0.len() * size_of::<(u32, Route)>() + precursors.sum::<usize>() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_wrap() {
        assert!(is_newer(1, 0) && is_newer(0, u32::MAX) && is_newer(5, u32::MAX - 5));
        assert!(!is_newer(0, 0) && !is_newer(0, 1) && !is_newer(u32::MAX, 0));
    }

    /// RFC 3561 section 6.2: the newer sequence number, then fewer hops.
    #[test]
    fn a_better_route_replaces_a_worse_one() {
        let [now, later] = [Time::from_secs(1), Time::from_secs(4)];
        let hop = |node| Hop { node, index: node as u16 };
        let mut routes = Routes::default();
        assert!(routes.offer(now, 9, 5, 3, hop(1), later));
        for (sequence, hops, next, expected) in
            [(5, 3, 2, false), (4, 1, 2, false), (5, 2, 2, true), (6, 7, 3, true), (6, 7, 3, true)]
        {
            let got = routes.offer(now, 9, sequence, hops, hop(next), later);
            assert_eq!(got, expected, "{sequence} {hops} {next}");
        }
        let route = routes.active(9, now).unwrap();
        assert_eq!((route.sequence, route.hops, route.next), (Some(6), 7, hop(3)));
        route.precursors.insert(4);
        assert!(routes.active(9, later).is_none() && !routes.any_used(later));
        assert_eq!(routes.invalidate(now, 9, 4, None), None);
        assert_eq!(routes.invalidate(now, 9, 3, None), Some((7, [4].into())));
        assert_eq!(routes.invalidate(now, 9, 3, None), None);
        // A route that was lost is found again by the number that it was lost with.
        assert!(!routes.offer(now, 9, 6, 1, hop(2), later));
        assert!(routes.offer(now, 9, 7, 9, hop(2), later));
        routes.neighbour(now, hop(9), later);
        assert_eq!(routes.over(9, now), [9]);
        assert_eq!(routes.get(9).unwrap().sequence, Some(7));
        routes.hello(later, hop(9), 8, later + DELETE_PERIOD);
        assert!(routes.active(9, later).is_some() && !routes.any_used(later));
        routes.purge(later + 2 * DELETE_PERIOD);
        assert!(routes.get(9).is_none());
    }
}
