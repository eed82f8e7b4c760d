//! The overlay: the contacts of a router in the space of ids, and the actions by which it finds them.
//!
//! It decides and never sends: what is to be sent is returned as [`Action`]s. The whole network is sorted by two rules
//! (linearisation, after Onus, Richa and Scheideler 2007), so no message is ever flooded:
//!
//! 1. Two routers that connect tell each other their contacts beside the other ([`Overlay::hints`]). Each connects to
//!    those it wants.
//! 2. A contact that a new one displaces is introduced to the contact between ([`introduce`]).
//!
//! On the ring all this is done on a line; its ends are joined by a step of its own.

pub mod introduce;

use smallvec::SmallVec;

use crate::config::Limits;
use crate::id::NodeId;
use crate::metric::Space;
use crate::routes::{Adopted, Contact, ContactTable};
use crate::wire::{Hint, Hints, Route, Slot};

/// What is to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// A CONNECT, with the hints that [`Overlay::hints`] returns for the router when it is sent.
    Connect {
        /// The router.
        to: NodeId,
        /// The way to it.
        route: Route,
    },
    /// An INTRODUCE.
    Introduce {
        /// The receiver of the hint.
        to: NodeId,
        /// The way to it.
        route: Route,
        /// Who is introduced.
        hint: Hint,
    },
}

/// How often something was left undone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Offers that were not taken because too many connections were under way.
    pub connecting: u64,
    /// Hints whose routes would have been too long.
    pub too_long: u64,
}

/// The overlay of one router.
#[derive(Clone, Debug)]
pub struct Overlay<S> {
    contacts: ContactTable<S>,
    limits: Limits,
    /// Routers to which a CONNECT is under way.
    connecting: SmallVec<[NodeId; 8]>,
    /// How often something was left undone.
    pub counters: Counters,
}

impl<S: Space> Overlay<S> {
    /// The overlay of the router `own`, which knows nobody.
    pub fn new(own: NodeId, limits: Limits) -> Self {
        let contacts = ContactTable::new(own, limits);
        Overlay { contacts, limits, connecting: SmallVec::new(), counters: Counters::default() }
    }

    /// Returns the contacts.
    pub fn contacts(&self) -> &ContactTable<S> {
        &self.contacts
    }

    /// A link to a neighbour is up. The router with the lower id connects.
    pub fn neighbour_up(&mut self, id: NodeId, slot: Slot, cost: u16, out: &mut Vec<Action>) {
        let route = Route::direct(slot);
        self.adopt(Contact { id, route: route.clone(), cost }, out);
        if self.contacts.own() < id {
            self.connect(id, route, out);
        }
    }

    /// A link is down: every contact behind it is lost.
    pub fn neighbour_down(&mut self, slot: Slot, out: &mut Vec<Action>) {
        let near = self.contacts.near();
        let gone = self.contacts.invalidate(slot);
        if gone.iter().any(|contact| near.contains(&contact.id)) {
            self.refresh(out);
        }
    }

    /// A router was not reached by a route. It may still be by the one it is known by: what somebody has offered may be
    /// out of date.
    pub fn unreachable(&mut self, id: NodeId, route: &Route, out: &mut Vec<Action>) {
        self.connecting.retain(|&mut other| other != id);
        if self.contacts.get(id).is_none_or(|contact| contact.route != *route) {
            return;
        }
        let was_near = self.contacts.near().contains(&id);
        self.contacts.remove(id);
        if was_near {
            self.refresh(out);
        }
    }

    /// Somebody is said to be there. Connects if the router is wanted at this cost.
    pub fn offer(&mut self, id: NodeId, route: Route, cost: u16, out: &mut Vec<Action>) {
        if self.contacts.wants(id, cost) {
            self.connect(id, route, out);
        }
    }

    /// A CONNECT or its answer has come from `peer`, verified, with the route that leads to it.
    pub fn connected(&mut self, peer: Contact, hints: &[Hint], out: &mut Vec<Action>) {
        self.connecting.retain(|&mut other| other != peer.id);
        let (route, cost) = (peer.route.clone(), peer.cost);
        self.adopt(peer, out);
        for hint in hints {
            self.hear(&route, cost, hint, out);
        }
    }

    /// Handles a hint from the router at the end of `route`.
    pub fn hear(&mut self, route: &Route, cost: u16, hint: &Hint, out: &mut Vec<Action>) {
        match route.join(&hint.onward) {
            Ok(route) => self.offer(hint.id, route, cost.saturating_add(hint.cost), out),
            Err(_) => self.counters.too_long += 1,
        }
    }

    /// Returns what to tell `peer`, whose messages enter by `entered`: the contacts beside it.
    pub fn hints(&self, peer: NodeId, entered: Slot) -> Hints {
        introduce::hints(&self.contacts, peer, entered)
    }

    /// Connects to the nearest contact on each side, to hear of those beside it.
    pub fn refresh(&mut self, out: &mut Vec<Action>) {
        for id in S::near(self.contacts.own(), self.contacts.ids(), 1) {
            if let Some(contact) = self.contacts.get(id) {
                let route = contact.route.clone();
                self.connect(id, route, out);
            }
        }
    }

    /// Returns the next contact for a message to `key` that has been no closer than `best`, and its distance.
    pub fn next(&self, key: NodeId, best: u64) -> Option<(Route, u64)> {
        let below = S::distance(self.contacts.own(), key).min(best);
        let found = self.contacts.closest(key, below);
        found.map(|(contact, distance)| (contact.route.clone(), distance))
    }

    fn connect(&mut self, to: NodeId, route: Route, out: &mut Vec<Action>) {
        if self.connecting.contains(&to) {
            return;
        }
        if self.connecting.len() >= self.limits.pending {
            self.counters.connecting += 1;
            return;
        }
        self.connecting.push(to);
        out.push(Action::Connect { to, route });
    }

    fn adopt(&mut self, contact: Contact, out: &mut Vec<Action>) {
        if let Adopted::Added(evicted) = self.contacts.adopt(contact) {
            out.extend(evicted.iter().filter_map(|gone| introduce::delegate(&self.contacts, gone)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Ring;
    use crate::wire::Labels;

    fn far(first: u16) -> Route {
        let mut labels = Labels::default();
        labels.push(Slot(2), Slot(2)).unwrap();
        Route { first: Slot(first), labels }
    }

    fn contact(id: u64, first: u16) -> Contact {
        Contact { id: NodeId::new(id), route: far(first), cost: 2 }
    }

    fn overlay(own: u64, limits: Limits) -> Overlay<Ring> {
        Overlay::new(NodeId::new(own), limits)
    }

    #[test]
    fn the_lower_of_two_neighbours_connects_and_only_once() {
        let mut out = Vec::new();
        let mut low = overlay(1, Limits::default());
        low.neighbour_up(NodeId::new(5), Slot(3), 1, &mut out);
        let connect = Action::Connect { to: NodeId::new(5), route: Route::direct(Slot(3)) };
        assert_eq!(out, [connect]);
        low.refresh(&mut out);
        assert_eq!(out.len(), 1);
        let mut high = overlay(5, Limits::default());
        high.neighbour_up(NodeId::new(1), Slot(3), 1, &mut out);
        assert_eq!(out.len(), 1);
    }

    #[test]
    fn hints_are_joined_to_the_route_of_who_gave_them() {
        let (mut one, mut out) = (overlay(10, Limits::default()), Vec::new());
        let onward = Route::direct(Slot(20)).onward(Slot(4)).unwrap();
        let hint = Hint { id: NodeId::new(12), cost: 5, onward };
        one.connected(contact(20, 7), core::slice::from_ref(&hint), &mut out);
        let [Action::Connect { to, route }] = &out[..] else { panic!("{out:?}") };
        let slots: Vec<u16> = route.labels.iter().map(|(_, slot)| slot.0).collect();
        assert_eq!((to.raw(), route.first, slots), (12, Slot(7), vec![2, 20]));
        // Who is known or asked already is not asked again.
        one.connected(contact(20, 7), &[hint], &mut out);
        assert_eq!(out.len(), 1);
    }

    #[test]
    fn a_displaced_contact_is_introduced_to_the_one_between() {
        let limits = Limits { near: 1, candidates: 1, ..Limits::default() };
        let (mut one, mut out) = (overlay(0, limits), Vec::new());
        one.connected(contact(120, 1), &[], &mut out);
        one.connected(contact(100, 2), &[], &mut out);
        // 120 has been in the same class and costs the same: the lower id stays.
        let [Action::Introduce { to, route, hint }] = &out[..] else { panic!("{out:?}") };
        assert_eq!((to.raw(), route, hint.id.raw()), (100, &far(2), 120));
        let slots: Vec<u16> = hint.onward.iter().map(|(_, slot)| slot.0).collect();
        assert_eq!(slots, [1, 2]);
    }

    #[test]
    fn a_lost_neighbour_on_the_ring_is_asked_for() {
        let (mut one, mut out) = (overlay(50, Limits::default()), Vec::new());
        for (id, slot) in [(40, 1), (45, 2), (55, 3), (60, 4)] {
            one.connected(contact(id, slot), &[], &mut out);
        }
        one.unreachable(NodeId::new(45), &far(9), &mut out);
        assert!(out.is_empty() && one.contacts().get(NodeId::new(45)).is_some());
        one.unreachable(NodeId::new(45), &far(2), &mut out);
        let asked: Vec<u64> = out
            .iter()
            .map(|action| match action {
                Action::Connect { to, .. } | Action::Introduce { to, .. } => to.raw(),
            })
            .collect();
        assert_eq!(asked, [40, 55]);
        out.clear();
        one.connected(contact(40, 1), &[], &mut out);
        one.neighbour_down(Slot(3), &mut out);
        assert_eq!(one.contacts().ids(), [40, 60].map(NodeId::new));
        assert_eq!(out.len(), 2);
    }

    #[test]
    fn connections_under_way_are_bounded() {
        let (mut one, mut out) =
            (overlay(0, Limits { pending: 2, ..Limits::default() }), Vec::new());
        for id in [30, 20, 10] {
            one.offer(NodeId::new(id), far(1), 1, &mut out);
        }
        assert_eq!((out.len(), one.counters.connecting), (2, 1));
        one.unreachable(NodeId::new(30), &far(1), &mut out);
        one.offer(NodeId::new(10), far(1), 1, &mut out);
        assert_eq!(out.len(), 3);
    }
}
