//! The overlay: the contacts of a router in the space of ids, and the actions by which it finds them.
//!
//! It decides and never sends: what is to be sent is returned as [`Action`]s. The whole network is sorted by two rules
//! (linearisation, after Onus, Richa and Scheideler 2007), so no message is ever flooded:
//!
//! 1. Two routers that connect tell each other their contacts beside the other ([`Overlay::hints`]). Each connects to
//!    those it wants.
//! 2. A contact that a new one displaces is introduced to the contact between ([`introduce`]).
//!
//! On the ring all this is done on a line from the lowest id to the highest. Its first router looks for the last, so
//! that each end knows the other ([`Overlay::partner`]). What lost messages have left undone is repeated by the clock.

pub mod introduce;
mod upkeep;

use ringway_sansio::time::Duration;
use ringway_sansio::{Random, Time};
use smallvec::SmallVec;
use std::collections::BTreeMap;

use crate::config::{HOP_LIMIT, Limits};
use crate::id::NodeId;
use crate::link::{PATH_COST, UNIT};
use crate::metric::{Ids, Space};
use crate::routes::{Adopted, Contact, ContactTable};
use crate::wire::bodies::Connect;
use crate::wire::{Hint, Hints, Route, Slot};
use upkeep::Upkeep;

/// Time in which contacts are introduced into another network once.
const SPREAD_INTERVAL: Duration = Duration::from_secs(10);

/// Instead of the first slot of a CONNECT that goes by way of the ring.
const BY_RING: Slot = Slot(u16::MAX);
/// Least cost of a link as part of a route's. Whoever claims less is not believed.
const LEAST_COST: u16 = UNIT / PATH_COST;

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
    /// A CONNECT to a router to which no route is known, by way of the ring.
    Find {
        /// The router.
        to: NodeId,
    },
    /// A CONNECT to whoever is responsible for a key at the other end of the line.
    Close {
        /// The key.
        to: NodeId,
    },
    /// An INTRODUCE for whoever is closest to the introduced router in the network behind the route.
    Spread {
        /// The way into the other network.
        route: Route,
        /// Who is introduced.
        hint: Hint,
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

impl Action {
    /// Returns the router that it is sent to.
    pub fn subject(&self) -> NodeId {
        match *self {
            Action::Connect { to, .. }
            | Action::Find { to }
            | Action::Close { to }
            | Action::Introduce { to, .. } => to,
            Action::Spread { ref hint, .. } => hint.id,
        }
    }
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
    /// Routers to which a CONNECT is under way, and the first slot of the way; [`BY_RING`] if it is none of a route.
    connecting: SmallVec<[(NodeId, Slot); 8]>,
    /// Contacts whose route was lost. Some may be neighbours by another link.
    lost: SmallVec<[NodeId; 4]>,
    /// Neighbours that have not answered since their link came up.
    unmet: SmallVec<[NodeId; 4]>,
    /// The near contacts at the last review, and the number of changes of the table then.
    near: Ids,
    reviewed: u64,
    upkeep: Upkeep,
    /// The other end of the line, at an end of it.
    partner: Option<NodeId>,
    /// When contacts were last introduced into another network.
    spread_at: Option<Time>,
    /// How often something was left undone.
    pub counters: Counters,
}

impl<S: Space> Overlay<S> {
    /// The overlay of the router `own`, which knows nobody.
    pub fn new(own: NodeId, limits: Limits) -> Self {
        let contacts = ContactTable::new(own, limits);
        Overlay {
            contacts,
            limits,
            connecting: SmallVec::new(),
            lost: SmallVec::new(),
            unmet: SmallVec::new(),
            near: Ids::new(),
            reviewed: 0,
            upkeep: Upkeep::default(),
            partner: None,
            spread_at: None,
            counters: Counters::default(),
        }
    }

    /// Returns the octets that are allocated.
    pub fn heap_bytes(&self) -> usize {
        self.contacts.heap_bytes()
    }

    /// Returns the contacts.
    pub fn contacts(&self) -> &ContactTable<S> {
        &self.contacts
    }

    /// A link to a neighbour is up. The router with the lower id connects.
    pub fn neighbour_up(&mut self, neighbour: Contact, out: &mut Vec<Action>) {
        let (id, route) = (neighbour.id, neighbour.route.clone());
        self.adopt(neighbour, out);
        if self.contacts.own() < id {
            if !self.unmet.contains(&id) {
                self.unmet.push(id);
            }
            self.connect(id, route, self.limits.pending, out);
        }
    }

    /// Removes and returns a router whose contact was lost. If it is a neighbour by another link it is one by that.
    pub fn take_lost(&mut self) -> Option<NodeId> {
        self.lost.pop()
    }

    /// A neighbour whose contact was lost, or whose link costs something else now.
    pub fn restore(&mut self, neighbour: Contact, out: &mut Vec<Action>) {
        let known = self.contacts.get(neighbour.id);
        if known.is_none_or(|known| known.route == neighbour.route) {
            self.adopt(neighbour, out);
        }
    }

    /// A link is down: every contact behind it is lost, and looked for by another way.
    pub fn neighbour_down(&mut self, slot: Slot, out: &mut Vec<Action>) {
        let near = self.contacts.near();
        let gone = self.contacts.invalidate(slot);
        if gone.iter().any(|contact| near.contains(&contact.id)) {
            self.refresh(out);
        }
        for contact in gone {
            self.lost.push(contact.id);
            self.find(contact.id, out);
        }
    }

    /// A route with this mark is broken: the news came by `entered`.
    pub fn broken(&mut self, mark: u32, entered: Slot, out: &mut Vec<Action>) {
        let is_it = |contact: &&Contact| contact.mark == mark && contact.route.first == entered;
        let id = self.contacts.iter().find(is_it).map(|contact| contact.id);
        if let Some(id) = id {
            self.seek(&[id], out);
        }
    }

    /// A router was not reached by a route. It may still be by the one it is known by: what somebody has offered may be
    /// out of date.
    pub fn unreachable(&mut self, now: Time, id: NodeId, route: &Route, out: &mut Vec<Action>) {
        self.abandon(id);
        let is_nearest = self.is_nearest(id);
        if self.unmet.contains(&id) || is_nearest {
            self.upkeep.hurry(now);
        }
        if is_nearest {
            // Whoever has offered it may know a route that has failed. A search shows that to each router on the way.
            self.find(id, out);
        }
        if self.contacts.get(id).is_none_or(|contact| contact.route != *route) {
            return;
        }
        self.lose(&[id], out);
    }

    /// Removes contacts; not neighbours, whose links alone decide. Returns those that were removed.
    fn lose(&mut self, ids: &[NodeId], out: &mut Vec<Action>) -> SmallVec<[NodeId; 2]> {
        let near = self.contacts.near();
        let is_lost =
            |id: &NodeId| self.contacts.get(*id).is_some_and(|known| !known.is_neighbour());
        let gone: SmallVec<[NodeId; 2]> = ids.iter().copied().filter(is_lost).collect();
        for &id in &gone {
            self.contacts.remove(id);
            self.lost.push(id);
        }
        if gone.iter().any(|id| near.contains(id)) {
            self.refresh(out);
        }
        gone
    }

    /// Somebody is said to be there. Connects if the router is wanted at this cost.
    pub fn offer(&mut self, id: NodeId, route: Route, cost: u16, out: &mut Vec<Action>) {
        if self.contacts.wants(id, cost) {
            // A quarter of the room is for what this router wants by itself, and nobody has more than half by one link.
            let by_link = self.connecting.iter().filter(|(_, first)| *first == route.first);
            if by_link.count() < self.limits.pending / 2 {
                self.connect(id, route, self.limits.pending * 3 / 4, out);
            } else {
                self.counters.connecting += 1;
            }
        }
    }

    /// A CONNECT or its answer has come from `peer`, verified, with the route that leads to it.
    pub fn connected(
        &mut self,
        now: Time,
        peer: Contact,
        connect: &Connect,
        out: &mut Vec<Action>,
    ) {
        if connect.settled && self.is_foreign(peer.id, &connect.hints) {
            self.spread(now, &peer.route, out);
        }
        let hints = &connect.hints;
        self.abandon(peer.id);
        self.unmet.retain(|&mut other| other != peer.id);
        let (route, cost) = (peer.route.clone(), peer.cost);
        self.adopt(peer, out);
        for hint in hints {
            self.hear(&route, cost, hint, out);
        }
    }

    /// The other end of the line has been found, or has found this router. It may be an end no longer, so it is also
    /// offered as any other contact: a line that winds twice is sorted by that.
    pub fn closed(&mut self, now: Time, peer: Contact, connect: &Connect, out: &mut Vec<Action>) {
        let own = self.contacts.own();
        let beyond = |id: &NodeId| if peer.id > own { *id < own } else { *id > own };
        self.partner = (!self.contacts.ids().iter().any(beyond)).then_some(peer.id);
        self.abandon(NodeId::new(u64::MAX));
        self.connected(now, peer, connect, out);
    }

    /// A CONNECT was not sent.
    pub fn abandon(&mut self, id: NodeId) {
        self.connecting.retain(|(other, _)| *other != id);
    }

    /// A message was not forwarded along a route that begins here. Whoever was reached by it is looked for by another way:
    /// also those to whom an older route happens to be the same as the one that failed.
    pub fn route_failed(&mut self, route: &Route, out: &mut Vec<Action>) {
        let failed = self.contacts.iter().filter(|contact| contact.route == *route);
        let failed: SmallVec<[NodeId; 2]> = failed.map(|contact| contact.id).collect();
        self.seek(&failed, out);
    }

    /// Notes whether the near contacts have changed. To be called after whatever may have changed them. Returns the hops of
    /// the mean route, if contacts have come or gone.
    pub fn review(&mut self, now: Time) -> Option<u32> {
        if self.contacts.changes() == self.reviewed {
            return None;
        }
        self.reviewed = self.contacts.changes();
        let own = self.contacts.own();
        let has = |side: &dyn Fn(&NodeId) -> bool| self.contacts.ids().iter().any(side);
        if has(&|&id| id < own) && has(&|&id| id > own) {
            self.partner = None;
        }
        let near = self.contacts.near();
        if near != self.near {
            self.near = near;
            self.upkeep.change(now);
        }
        let hops: u32 = self.contacts.iter().map(|contact| u32::from(contact.route.hops())).sum();
        Some(hops / self.contacts.ids().len().max(1) as u32)
    }

    /// Does what is due.
    pub fn timeout(&mut self, now: Time, out: &mut Vec<Action>) {
        if self.upkeep.is_due(now) {
            let unmet = core::mem::take(&mut self.unmet);
            for id in unmet {
                // Those whose link has gone are no neighbours any more.
                if let Some(contact) = self.contacts.get(id).filter(|known| known.is_neighbour()) {
                    let route = contact.route.clone();
                    self.unmet.push(id);
                    self.connect(id, route, self.limits.pending, out);
                }
            }
            self.refresh(out);
            self.close(out);
        }
    }

    /// Returns when something is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.upkeep.due()
    }

    /// Returns the other end of the line, at an end of it.
    pub fn partner(&self) -> Option<NodeId> {
        self.partner
    }

    /// Returns whether the near contacts have not changed for some time.
    pub fn is_settled(&self, now: Time) -> bool {
        self.upkeep.is_settled(now)
    }

    /// The first router of the line looks for the last.
    fn close(&mut self, out: &mut Vec<Action>) {
        let own = self.contacts.own();
        let is_first = self.contacts.ids().first().is_some_and(|&id| id > own);
        let last = NodeId::new(u64::MAX);
        if S::CLOSES && is_first && !self.is_connecting(last) {
            self.connecting.push((last, BY_RING));
            out.push(Action::Close { to: last });
        }
    }

    /// Removes contacts whose route is broken, and looks for them by another way.
    fn seek(&mut self, ids: &[NodeId], out: &mut Vec<Action>) {
        for id in self.lose(ids, out) {
            self.find(id, out);
        }
    }

    /// Looks for a router by way of the ring, because the route to it is lost.
    fn find(&mut self, to: NodeId, out: &mut Vec<Action>) {
        if self.is_connecting(to) {
            return;
        }
        if self.connecting.len() >= self.limits.pending {
            self.counters.connecting += 1;
            return;
        }
        self.connecting.push((to, BY_RING));
        out.push(Action::Find { to });
    }

    /// Returns whether a router that has settled must be of another network: in one network everybody who is near is known
    /// by then.
    fn is_foreign(&self, peer: NodeId, hints: &[Hint]) -> bool {
        self.is_nearest(peer) || hints.iter().any(|hint| self.is_nearest(hint.id))
    }

    /// Returns whether a router that is no contact would be the nearest on its side.
    fn is_nearest(&self, id: NodeId) -> bool {
        let Err(at) = self.contacts.ids().binary_search(&id) else { return false };
        let mut ids: SmallVec<[NodeId; 128]> = SmallVec::from_slice(self.contacts.ids());
        ids.insert(at, id);
        id != self.contacts.own() && S::near(self.contacts.own(), &ids, 1).contains(&id)
    }

    /// Joins two settled networks at many points at once: of each class of distance one contact is introduced into the
    /// other network, where it goes by the ring. Whoever is closest to it there connects to it, and it spreads in turn.
    fn spread(&mut self, now: Time, route: &Route, out: &mut Vec<Action>) {
        let is_late = self.spread_at.is_some_and(|at| now.since(at) < SPREAD_INTERVAL);
        if is_late || !self.upkeep.is_settled(now) {
            return;
        }
        self.spread_at = Some(now);
        let own = self.contacts.own();
        let mut best: BTreeMap<u8, &Contact> = BTreeMap::new();
        for contact in self.contacts.iter() {
            let kept = best.entry(S::class(own, contact.id)).or_insert(contact);
            if contact.cost < kept.cost {
                *kept = contact;
            }
        }
        for contact in best.into_values() {
            if let Ok(onward) = contact.route.onward(route.first) {
                let hint = Hint { id: contact.id, cost: contact.cost, onward };
                out.push(Action::Spread { route: route.clone(), hint });
            }
        }
    }

    /// Handles a hint from the router at the end of `route`.
    pub fn hear(&mut self, route: &Route, cost: u16, hint: &Hint, out: &mut Vec<Action>) {
        match route.join(&hint.onward) {
            Ok(route) if route.hops() <= HOP_LIMIT.into() => {
                let least = LEAST_COST.saturating_mul(route.hops());
                self.offer(hint.id, route, cost.saturating_add(hint.cost).max(least), out);
            }
            _ => self.counters.too_long += 1,
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
                self.connect(id, route, self.limits.pending, out);
            }
        }
    }

    /// Returns the next contact for a message to `key` that has been no closer than `best`, and its distance.
    pub fn next(&self, key: NodeId, best: u64) -> Option<(Route, u64)> {
        let below = S::distance(self.contacts.own(), key).min(best);
        let found = self.contacts.closest(key, below);
        found.map(|(contact, distance)| (contact.route.clone(), distance))
    }

    /// Returns whether a router can be the one that is responsible for `key`, as far as this one knows: nobody whom it knows
    /// would be instead.
    pub fn may_be_responsible(&self, id: NodeId, key: NodeId) -> bool {
        let others = || self.contacts.ids().iter().copied().chain([self.contacts.own()]);
        let closest = |key| others().all(|other| S::distance(other, key) >= S::distance(id, key));
        if !S::CLOSES || id <= key {
            return closest(key);
        }
        // Keys before the first router belong to the last.
        others().all(|other| other > key) && closest(NodeId::new(u64::MAX))
    }

    /// Returns a first step to `key` as [`first_step`](Self::first_step) does, by any contact that is closer: when the best
    /// has failed, whoever is on that way may be the reason.
    pub fn other_step(&self, key: NodeId, random: &mut dyn Random) -> Option<(Route, u64, bool)> {
        let step = self.first_step(key)?;
        let (target, wrapped) = (if step.2 { NodeId::new(u64::MAX) } else { key }, step.2);
        let below = S::distance(self.contacts.own(), target);
        let distance = |contact: &Contact| S::distance(contact.id, target);
        let closer = || self.contacts.iter().filter(|contact| distance(contact) < below);
        let at = random.next_u64() % (closer().count().max(1) as u64);
        let found = closer().nth(at as usize);
        found.map(|contact| (contact.route.clone(), distance(contact), wrapped)).or(Some(step))
    }

    /// Returns how a message to `key` begins here: the route to the next contact, its distance, and whether the message is
    /// wrapped. `None` if this router is responsible for the key.
    pub fn first_step(&self, key: NodeId) -> Option<(Route, u64, bool)> {
        if let Some((route, distance)) = self.next(key, u64::MAX) {
            return Some((route, distance, false));
        }
        if !S::CLOSES || key >= self.contacts.own() {
            return None;
        }
        let (route, distance) = self.next(NodeId::new(u64::MAX), u64::MAX)?;
        Some((route, distance, true))
    }

    fn is_connecting(&self, id: NodeId) -> bool {
        self.connecting.iter().any(|(other, _)| *other == id)
    }

    /// Connects to a router, unless that is under way, or `room` others are.
    fn connect(&mut self, to: NodeId, route: Route, room: usize, out: &mut Vec<Action>) {
        if self.is_connecting(to) {
            return;
        }
        if self.connecting.len() >= room {
            self.counters.connecting += 1;
            return;
        }
        self.connecting.push((to, route.first));
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
    use crate::id::{Instance, Sequence};
    use crate::identity::Proof;
    use crate::metric::Ring;
    use crate::wire::Labels;

    fn far(first: u16) -> Route {
        let mut labels = Labels::default();
        labels.push(Slot(2), Slot(2)).unwrap();
        Route { first: Slot(first), labels }
    }

    const NOW: Time = Time::from_secs(9);

    fn hints(hints: &[Hint]) -> Connect {
        Connect {
            proof: Proof { key: [1; 32], modifier: [2; 16] },
            sequence: Sequence::default(),
            instance: Instance(3),
            settled: false,
            wrap: false,
            hints: hints.iter().cloned().collect(),
        }
    }

    fn neighbour(id: u64) -> Contact {
        let (route, said) = (Route::direct(Slot(3)), Sequence::default());
        Contact { id: NodeId::new(id), route, cost: 1, mark: 0, said }
    }

    fn contact(id: u64, first: u16) -> Contact {
        let said = Sequence::default();
        Contact { id: NodeId::new(id), route: far(first), cost: 2, mark: 0, said }
    }

    fn overlay(own: u64, limits: Limits) -> Overlay<Ring> {
        Overlay::new(NodeId::new(own), limits)
    }

    #[test]
    fn the_lower_of_two_neighbours_connects_and_only_once() {
        let mut out = Vec::new();
        let mut low = overlay(1, Limits::default());
        low.neighbour_up(neighbour(5), &mut out);
        let connect = Action::Connect { to: NodeId::new(5), route: Route::direct(Slot(3)) };
        assert_eq!(out, [connect]);
        low.refresh(&mut out);
        assert_eq!(out.len(), 1);
        let mut high = overlay(5, Limits::default());
        high.neighbour_up(neighbour(1), &mut out);
        assert_eq!(out.len(), 1);
    }

    #[test]
    fn hints_are_joined_to_the_route_of_who_gave_them() {
        let (mut one, mut out) = (overlay(10, Limits::default()), Vec::new());
        let onward = Route::direct(Slot(20)).onward(Slot(4)).unwrap();
        let hint = Hint { id: NodeId::new(12), cost: 5, onward };
        one.connected(NOW, contact(20, 7), &hints(core::slice::from_ref(&hint)), &mut out);
        let [Action::Connect { to, route }] = &out[..] else { panic!("{out:?}") };
        let slots: Vec<u16> = route.labels.iter().map(|(_, slot)| slot.0).collect();
        assert_eq!((to.raw(), route.first, slots), (12, Slot(7), vec![2, 20]));
        // Who is known or asked already is not asked again.
        one.connected(NOW, contact(20, 7), &hints(&[hint]), &mut out);
        assert_eq!(out.len(), 1);
    }

    #[test]
    fn a_displaced_contact_is_introduced_to_the_one_between() {
        let limits = Limits { near: 1, candidates: 1, ..Limits::default() };
        let (mut one, mut out) = (overlay(0, limits), Vec::new());
        one.connected(NOW, contact(120, 1), &hints(&[]), &mut out);
        one.connected(NOW, contact(100, 2), &hints(&[]), &mut out);
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
            one.connected(NOW, contact(id, slot), &hints(&[]), &mut out);
        }
        one.unreachable(NOW, NodeId::new(45), &far(9), &mut out);
        assert!(out.is_empty() && one.contacts().get(NodeId::new(45)).is_some());
        one.unreachable(NOW, NodeId::new(45), &far(2), &mut out);
        let asked: Vec<u64> = out.iter().map(|action| action.subject().raw()).collect();
        assert_eq!(asked, [40, 55]);
        out.clear();
        one.connected(NOW, contact(40, 1), &hints(&[]), &mut out);
        one.neighbour_down(Slot(3), &mut out);
        assert_eq!(one.contacts().ids(), [40, 60].map(NodeId::new));
        assert_eq!(out.len(), 2);
    }

    #[test]
    fn all_contacts_by_a_failed_route_are_looked_for() {
        let (mut one, mut out) = (overlay(50, Limits::default()), Vec::new());
        for (id, slot) in [(40, 1), (45, 2), (55, 2)] {
            one.connected(NOW, contact(id, slot), &hints(&[]), &mut out);
        }
        out.clear();
        one.route_failed(&far(2), &mut out);
        assert_eq!(one.contacts().ids(), [NodeId::new(40)]);
        let found = out.iter().filter(|action| matches!(action, Action::Find { .. }));
        let mut found: Vec<u64> = found.map(|action| action.subject().raw()).collect();
        found.sort_unstable();
        assert_eq!(found, [45, 55]);
    }

    #[test]
    fn connections_under_way_are_bounded() {
        let (mut one, mut out) =
            (overlay(0, Limits { pending: 8, ..Limits::default() }), Vec::new());
        // Half of all by one link, and three quarters by all, if somebody else has offered them.
        for (id, slot) in [(90, 1), (80, 1), (70, 1), (60, 1), (50, 1), (40, 2), (30, 2), (20, 3)] {
            one.offer(NodeId::new(id), far(slot), 1, &mut out);
        }
        assert_eq!((out.len(), one.counters.connecting), (6, 2));
        one.neighbour_up(neighbour(10), &mut out);
        assert_eq!(out.len(), 7);
        one.unreachable(NOW, NodeId::new(90), &far(1), &mut out);
        one.offer(NodeId::new(50), far(1), 1, &mut out);
        assert_eq!((out.len(), one.counters.connecting), (7, 3));
        one.unreachable(NOW, NodeId::new(80), &far(1), &mut out);
        one.offer(NodeId::new(50), far(1), 1, &mut out);
        assert_eq!(out.len(), 8);
    }
}
