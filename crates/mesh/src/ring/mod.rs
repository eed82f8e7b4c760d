//! The overlay: the contacts of a router in the space of ids, and the actions by which it finds them.
//!
//! It decides and never sends: what is to be sent is returned as [`Action`]s. The whole network is sorted by two rules
//! (linearisation, after Onus, Richa and Scheideler 2007), so no message is ever flooded:
//!
//! 1. Two routers that connect tell each other their contacts beside the other ([`Overlay::hints`]). Each connects to
//!    those it wants.
//! 2. A contact that a new one displaces is introduced to the contact between (`introduce.rs`).
//!
//! On the ring all this is done on a line from the lowest id to the highest. Its first router and its last look for each
//! other, so that each knows the other ([`Overlay::partner`]). What lost messages have left undone is repeated by the clock.

mod doubts;
mod introduce;
mod missed;
mod repair;
mod turns;
mod upkeep;

use ringway_sansio::time::{Duration, sooner};
use ringway_sansio::{Random, Time};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::{Limits, MAX_HOPS};
use crate::id::NodeId;
use crate::link::{PATH_COST, UNIT};
use crate::metric::{Ids, Space};
use crate::moment::Moment;
use crate::routes::{Adopted, Contact, ContactTable};
use crate::wire::bodies::Connect;
use crate::wire::{Hint, Route, Slot};
use doubts::Doubts;
use missed::MissedContacts;
use upkeep::Upkeep;

pub use doubts::Judgement;
pub use introduce::Towards;

/// Time in which contacts are introduced into another network once.
const SPREAD_INTERVAL: Duration = Duration::from_secs(10);

/// Longest time between two introductions of that kind to routers that no route reaches. It is eight times as long
/// each time.
const MAX_PATIENCE: Duration = Duration::from_secs(3_600);

/// Time in which one router that was offered and not reached is looked for.
const SEARCH_INTERVAL: Duration = Duration::from_secs(10);
/// Keys that are closest, on the line, to its first router and to its last.
pub(crate) const ENDS: [NodeId; 2] = [NodeId::new(0), NodeId::new(u64::MAX)];
/// Time for which a nearest contact that was lost may be found again.
const BEREFT: Duration = Duration::from_secs(5);
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
    /// A CONNECT to the other end of the line.
    Close {
        /// The key at that end.
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

/// Whether the joined route to a router that somebody has offered has no more links than a route can have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Reach {
    Within,
    Beyond,
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
    limits: Arc<Limits>,
    /// Routers to which a CONNECT is under way, and the first slot of the way; [`BY_RING`] if it is none of a route.
    connecting: Vec<(NodeId, Slot)>,
    /// Contacts whose route was lost. Some may be neighbours by another link.
    lost: Vec<NodeId>,
    /// Near contacts that were lost, and are tried again.
    missed: MissedContacts,
    /// Neighbours that have not answered since their link came up.
    unmet: Vec<NodeId>,
    /// When a nearest contact was last lost.
    bereft: Moment,
    /// The neighbour that was asked last in turn.
    asked: NodeId,
    /// The near contacts at the last review, and the number of changes of the table then.
    near: Ids,
    reviewed: u64,
    upkeep: Upkeep,
    /// The near contacts when the upkeep last asked, and how it went on: if they are the same again, nothing has changed.
    rest: (Ids, Upkeep),
    /// Turns of upkeep so far.
    turn: usize,
    /// The other end of the line, at an end of it.
    partner: Option<NodeId>,
    /// When contacts were last introduced into another network.
    spread_at: Option<Time>,
    /// Time until contacts are introduced again to those whom no route reaches.
    patience: Duration,
    /// When a router that somebody had offered was last looked for.
    searched: Option<Time>,
    doubts: Doubts,
    /// How often something was left undone.
    pub counters: Counters,
}

impl<S: Space> Overlay<S> {
    /// The overlay of the router `own`, which knows nobody.
    pub fn new(own: NodeId, limits: impl Into<Arc<Limits>>) -> Self {
        let limits = limits.into();
        let contacts = ContactTable::new(own, limits.clone());
        Overlay {
            contacts,
            limits,
            connecting: Vec::new(),
            lost: Vec::new(),
            missed: MissedContacts::default(),
            unmet: Vec::new(),
            bereft: Moment::NONE,
            asked: NodeId::default(),
            near: Ids::new(),
            reviewed: 0,
            upkeep: Upkeep::default(),
            rest: (Ids::new(), Upkeep::default()),
            turn: 0,
            partner: None,
            spread_at: None,
            patience: SPREAD_INTERVAL,
            searched: None,
            doubts: Doubts::default(),
            counters: Counters::default(),
        }
    }

    /// Returns the octets that are allocated.
    pub fn heap_bytes(&self) -> usize {
        self.contacts.heap_bytes()
            + self.doubts.heap_bytes()
            + self.missed.heap_bytes()
            + self.connecting.capacity() * size_of::<(NodeId, Slot)>()
            + (self.lost.capacity() + self.unmet.capacity()) * size_of::<NodeId>()
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
        let lost = self.lost.pop();
        if lost.is_none() {
            self.lost = Vec::new();
        }
        lost
    }

    /// A neighbour whose contact was lost, or whose link costs something else now.
    pub fn restore(&mut self, neighbour: Contact, out: &mut Vec<Action>) {
        let known = self.contacts.get(neighbour.id);
        if known.is_none_or(|known| known.route == neighbour.route) {
            self.adopt(neighbour, out);
        }
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
        if connect.settled {
            match self.is_foreign(&peer, &connect.hints) {
                Some(Reach::Within) => _ = self.spread(now, &peer.route, SPREAD_INTERVAL, out),
                Some(Reach::Beyond) if self.spread(now, &peer.route, self.patience, out) => {
                    self.patience = (self.patience * 8).min(MAX_PATIENCE);
                }
                _ => {}
            }
        }
        let hints = &connect.hints;
        self.abandon(peer.id);
        self.unmet.retain(|&other| other != peer.id);
        if self.unmet.is_empty() {
            self.unmet = Vec::new();
        }
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
        // Somebody who does not know yet that it is no end any more may be the last to ask.
        let ids = self.contacts.ids();
        let end = match peer.id > own {
            true => ids.last().map_or(peer.id, |&last| last.max(peer.id)),
            false => ids.first().map_or(peer.id, |&first| first.min(peer.id)),
        };
        self.partner = (!ids.iter().any(beyond)).then_some(end);
        ENDS.into_iter().for_each(|end| self.abandon(end));
        self.connected(now, peer, connect, out);
    }

    /// A CONNECT was not sent.
    pub fn abandon(&mut self, id: NodeId) {
        self.connecting.retain(|(other, _)| *other != id);
        if self.connecting.is_empty() {
            self.connecting = Vec::new();
        }
    }

    /// A router was looked for and not found. One that would be the nearest is asked for again soon.
    pub fn not_found(&mut self, now: Time, id: NodeId) {
        self.abandon(id);
        if self.is_nearest(id) {
            self.upkeep.hurry(now);
        }
    }

    /// Notes whether the near contacts have changed. To be called after whatever may have changed them. Returns the hops of
    /// the mean route, if contacts have come or gone.
    pub fn review(&mut self, now: Time) -> Option<u32> {
        if self.contacts.changes() == self.reviewed {
            return None;
        }
        self.reviewed = self.contacts.changes();
        self.missed.review(now);
        let own = self.contacts.own();
        let has = |side: &dyn Fn(&NodeId) -> bool| self.contacts.ids().iter().any(side);
        let is_end = !has(&|&id| id < own) || !has(&|&id| id > own);
        if !is_end {
            self.partner = None;
        }
        let near = self.contacts.near();
        if near != self.near {
            if self.near.iter().any(|&id| self.is_nearest(id)) {
                self.bereft = now.into();
            }
            self.near = near;
            match &self.rest {
                // While an end was something else, the other one may have heard of that.
                (ids, upkeep) if !is_end && !ids.is_empty() && *ids == self.near => {
                    self.upkeep = *upkeep;
                    self.upkeep.ask_again(now);
                }
                _ => self.upkeep.change(now),
            }
        }
        let hops: u32 = self.contacts.iter().map(|contact| u32::from(contact.route.hops())).sum();
        Some(hops / self.contacts.ids().len().max(1) as u32)
    }

    /// Does what is due.
    pub fn timeout(&mut self, now: Time, out: &mut Vec<Action>) {
        self.try_missed(now, out);
        if self.upkeep.is_due(now) {
            self.doubts.expire(now);
            let unmet = core::mem::take(&mut self.unmet);
            for id in unmet {
                // Those whose link has gone are no neighbours any more.
                if let Some(contact) = self.contacts.get(id).filter(|known| known.is_neighbour()) {
                    let route = contact.route.clone();
                    self.unmet.push(id);
                    self.connect(id, route, self.limits.pending, out);
                }
            }
            self.turn += 1;
            self.refresh(out);
            self.ask_neighbour(out);
            self.close(out);
            self.rest = (self.near.clone(), self.upkeep);
        }
    }

    /// Returns when something is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        sooner(self.upkeep.due(), self.missed.due())
    }

    /// Returns the other end of the line, at an end of it.
    pub fn partner(&self) -> Option<NodeId> {
        self.partner
    }

    /// Returns whether a nearest contact was lost a moment ago: this router may seem to be responsible only because of that.
    pub fn has_just_lost(&self, now: Time) -> bool {
        self.bereft.get().is_some_and(|at| now.since(at) < BEREFT)
    }

    /// Returns whether the near contacts have not changed for some time.
    pub fn is_settled(&self, now: Time) -> bool {
        self.upkeep.is_settled(now)
    }

    /// Connects to the next neighbour in turn. Neighbours of one network may have become two rings while messages over
    /// several links were lost: then neither ring asks the other by itself, and this link alone joins them.
    fn ask_neighbour(&mut self, out: &mut Vec<Action>) {
        let after = self.asked;
        let neighbours = || self.contacts.iter().filter(|contact| contact.is_neighbour());
        let next = neighbours().find(|contact| contact.id > after).or_else(|| neighbours().next());
        if let Some((id, route)) = next.map(|contact| (contact.id, contact.route.clone())) {
            self.asked = id;
            self.connect(id, route, self.limits.pending, out);
        }
    }

    /// The first router of the line looks for the last, and the last for the first: only one of them may have changed.
    fn close(&mut self, out: &mut Vec<Action>) {
        let (own, ids) = (self.contacts.own(), self.contacts.ids());
        let to = match (ids.first(), ids.last()) {
            (Some(&first), _) if first > own => ENDS[1],
            (_, Some(&last)) if last < own => ENDS[0],
            _ => return,
        };
        if S::CLOSES && !self.is_connecting(to) {
            self.connecting.push((to, BY_RING));
            out.push(Action::Close { to });
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

    /// Returns whether a router that has settled must be of another network, because in one network everybody who is near is
    /// known by then, and whether a route can be as long as the way to who is near there. One network is that too if
    /// it is longer than any route.
    fn is_foreign(&self, peer: &Contact, hints: &[Hint]) -> Option<Reach> {
        if self.is_nearest(peer.id) {
            return Some(Reach::Within);
        }
        let news = hints.iter().filter(|hint| self.is_nearest(hint.id));
        let reach = |hint| match introduce::joined(&peer.route, hint) {
            Some(_) => Reach::Within,
            None => Reach::Beyond,
        };
        news.map(reach).min()
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
    ///
    /// Returns whether it was done: not twice in `interval`.
    fn spread(
        &mut self,
        now: Time,
        route: &Route,
        interval: Duration,
        out: &mut Vec<Action>,
    ) -> bool {
        let is_late = self.spread_at.is_some_and(|at| now.since(at) < interval);
        if is_late || !self.upkeep.is_settled(now) {
            return false;
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
        // Whoever is introduced must be within reach of those behind the route.
        let is_near = |hops: u16| hops + route.hops() <= MAX_HOPS;
        for contact in best.into_values().filter(|contact| is_near(contact.route.hops())) {
            if let Some(hint) = introduce::hint(contact, Towards::Ring(route.first)) {
                out.push(Action::Spread { route: route.clone(), hint });
            }
        }
        true
    }

    /// Connects to the nearest contacts on the sides of near ones that were lost, to hear of others there.
    fn ask_beside(&mut self, lost: Ids, out: &mut Vec<Action>) {
        let own = self.contacts.own();
        for id in S::near(own, self.contacts.ids(), 1) {
            let is_beside = lost.iter().any(|other| (*other < own) == (id < own));
            if let Some(contact) = self.contacts.get(id).filter(|_| is_beside) {
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

    /// Returns a first step to `key` by any contact, also one that is farther: when the best way has failed, whoever is on
    /// it may be the reason. From that contact on each step is closer again. As for
    /// [`first_step`](Self::first_step) there is none if this router is responsible for the key.
    pub fn other_step(&self, key: NodeId, random: &mut dyn Random) -> Option<(Route, u64, bool)> {
        let (.., wrapped) = self.first_step(key)?;
        let target = if wrapped { NodeId::new(u64::MAX) } else { key };
        let at = random.next_u64() % self.contacts.ids().len().max(1) as u64;
        let contact = self.contacts.iter().nth(at as usize)?;
        Some((contact.route.clone(), S::distance(contact.id, target), wrapped))
    }

    /// Returns how a message to `key` begins here: the route to the next contact, its distance, and whether the message is
    /// wrapped. `None` if this router is responsible for the key.
    pub fn first_step(&self, key: NodeId) -> Option<(Route, u64, bool)> {
        if let Some((route, distance)) = self.next_trusted(key, u64::MAX) {
            return Some((route, distance, false));
        }
        if !S::CLOSES || key >= self.contacts.own() {
            return None;
        }
        let (route, distance) = self.next_trusted(NodeId::new(u64::MAX), u64::MAX)?;
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

    fn adopt(&mut self, mut contact: Contact, out: &mut Vec<Action>) {
        self.replace_doubted(&mut contact);
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
        let hint = Hint { id: NodeId::new(12), cost: 5, back: 0, onward };
        one.connected(NOW, contact(20, 7), &hints(core::slice::from_ref(&hint)), &mut out);
        let [Action::Connect { to, route }] = &out[..] else { panic!("{out:?}") };
        let slots: Vec<u16> = route.labels.iter().map(|(_, slot)| slot.0).collect();
        assert_eq!((to.raw(), route.first, slots), (12, Slot(7), vec![2, 20]));
        // Who is known or asked already is not asked again.
        one.connected(NOW, contact(20, 7), &hints(&[hint]), &mut out);
        assert_eq!(out.len(), 1);
    }

    /// 30 was the first router until 10 came, and does not know it when it asks.
    #[test]
    fn an_end_that_is_none_any_more_does_not_replace_the_end() {
        let (mut last, mut out) = (overlay(90, Limits::default()), Vec::new());
        last.closed(NOW, contact(10, 7), &hints(&[]), &mut out);
        last.closed(NOW, contact(30, 7), &hints(&[]), &mut out);
        assert_eq!(last.partner(), Some(NodeId::new(10)));
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
        assert_eq!(asked, [40]);
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

    /// In one network of more links than a route can have, routers that are settled do not know those who would be near.
    #[test]
    fn who_is_beyond_any_route_is_spread_to_ever_more_rarely() {
        let long = |first: u16, hops: u16| {
            let mut labels = Labels::default();
            (1..hops).for_each(|_| labels.push(Slot(2), Slot(2)).unwrap());
            Route { first: Slot(first), labels }
        };
        let start = NOW + Duration::from_secs(60);
        // Whoever is 800 links away says all the time that there is one nearer to 50 than 40, so many links further.
        let spreads = |further: u16| {
            let (mut one, mut out) = (overlay(50, Limits::default()), Vec::new());
            for (id, slot) in [(40, 1), (60, 2), (10, 3), (90, 4)] {
                one.connected(NOW, contact(id, slot), &hints(&[]), &mut out);
            }
            one.review(NOW);
            let peer = Contact { route: long(5, 800), ..contact(20, 5) };
            let onward = long(6, further).onward(Slot(4)).unwrap();
            let connect = hints(&[Hint { id: NodeId::new(45), cost: 9, back: 0, onward }]);
            let connect = Connect { settled: true, ..connect };
            let mut seconds = Vec::new();
            for second in 0..1_000 {
                out.clear();
                let now = start + Duration::from_secs(second);
                one.connected(now, peer.clone(), &connect, &mut out);
                let is_spread = |action: &Action| matches!(action, Action::Spread { .. });
                seconds.extend(out.iter().any(is_spread).then_some(second));
            }
            seconds
        };
        assert_eq!(spreads(300), [0, 80, 720]);
        assert_eq!(spreads(150).len(), 100);
    }

    /// After faults of messages two rings may be left that no router of either asks about, except over a link between.
    #[test]
    fn neighbours_are_asked_in_turn_even_if_they_have_answered() {
        let (mut one, mut out) = (overlay(50, Limits::default()), Vec::new());
        for (id, slot) in [(49, 1), (51, 2), (10, 3), (90, 4)] {
            one.connected(NOW, contact(id, slot), &hints(&[]), &mut out);
        }
        for (id, slot) in [(20, 5), (80, 6)] {
            let route = Route::direct(Slot(slot));
            let peer = Contact { route, ..contact(id, slot) };
            one.neighbour_up(peer.clone(), &mut out);
            one.connected(NOW, peer, &hints(&[]), &mut out);
        }
        one.review(NOW);
        let mut asked = Vec::new();
        for _ in 0..4 {
            out.clear();
            let Some(due) = one.poll_timeout() else { panic!("nothing is due") };
            one.timeout(due, &mut out);
            asked.push(out.iter().map(|action| action.subject().raw()).collect::<Vec<u64>>());
            asked
                .last()
                .iter()
                .for_each(|ids| ids.iter().for_each(|&id| one.abandon(NodeId::new(id))));
        }
        let both = |neighbour| vec![49, 51, neighbour];
        assert_eq!(asked, [20, 80, 20, 80].map(both));
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
