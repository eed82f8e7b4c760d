//! Contacts: the routers to which a router has a route. Whoever asked has the route by which the answer came; whoever
//! answered has the recorded way back, which is proved only when it is used.
//!
//! A contact is kept for one of three reasons: it is *near* in the space of ids, it is among the cheapest of its class of
//! distance (a *finger*), or it is a physical neighbour. What is none of these is not adopted, so the table stays small:
//! about twice the logarithm of the network times the number of candidates, and never above
//! [`Limits::contacts`].

use core::marker::PhantomData;
use std::sync::Arc;

use smallvec::SmallVec;

use super::Detour;
use super::blocks::Blocks;
use crate::config::{Limits, MAX_HOPS};
use crate::id::{NodeId, Sequence};
use crate::metric::{Ids, Space};
use crate::wire::{Route, Slot};

/// Ids by which their array grows.
const IDS: usize = 16;

/// A router to which a route is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contact {
    /// The router.
    pub id: NodeId,
    /// The way to it.
    pub route: Route,
    /// Cost of the route in 32nds of a link without loss and delay.
    pub cost: u16,
    /// The mark that routers on the way have of the route ([`Marks`](super::Marks)).
    pub mark: u32,
    /// The newest that it has said about itself. What it has said before is not believed again.
    pub said: Sequence,
}

impl Contact {
    /// Returns whether the contact is a physical neighbour.
    pub fn is_neighbour(&self) -> bool {
        self.route.labels.count() == 0
    }
}

/// What became of an offered contact.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Adopted {
    /// It is not needed.
    Refused,
    /// It was known; its route is the cheaper one now.
    Known,
    /// It is new, and these had to go.
    Added(SmallVec<[Contact; 2]>),
}

/// The contacts of a router in the order of their ids.
#[derive(Clone, Debug)]
pub struct ContactTable<S> {
    own: NodeId,
    limits: Arc<Limits>,
    /// The ids of `contacts`, because most questions are about ids.
    ids: Vec<NodeId>,
    contacts: Blocks<Contact>,
    space: PhantomData<S>,
    changes: u64,
    /// Contacts that had to go because the table was full.
    pub full: u64,
}

impl<S: Space> ContactTable<S> {
    /// The empty table of the router `own`.
    pub fn new(own: NodeId, limits: impl Into<Arc<Limits>>) -> Self {
        let (ids, contacts, space) = (Vec::new(), Blocks::default(), PhantomData);
        let limits = limits.into();
        ContactTable { own, limits, ids, contacts, space, changes: 0, full: 0 }
    }

    /// Returns the router that the table belongs to.
    pub fn own(&self) -> NodeId {
        self.own
    }

    /// Returns the octets that are allocated.
    pub fn heap_bytes(&self) -> usize {
        let routes: usize = self.contacts.iter().map(|contact| contact.route.heap_bytes()).sum();
        self.ids.capacity() * size_of::<NodeId>() + self.contacts.heap_bytes() + routes
    }

    /// Returns how often a contact has come or gone.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the ids of all contacts in order.
    pub fn ids(&self) -> &[NodeId] {
        &self.ids
    }

    /// Returns all contacts in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &Contact> {
        self.contacts.iter()
    }

    /// Returns a contact.
    pub fn get(&self, id: NodeId) -> Option<&Contact> {
        self.contacts.get(self.ids.binary_search(&id).ok()?)
    }

    /// Returns the contacts that this router must know.
    pub fn near(&self) -> Ids {
        S::near(self.own, &self.ids, self.limits.near)
    }

    /// Returns whether a router would be adopted at this cost.
    pub fn wants(&self, id: NodeId, cost: u16) -> bool {
        if id == self.own {
            return false;
        }
        if let Some(contact) = self.get(id) {
            return is_cheaper(cost, contact.cost);
        }
        let at = self.ids.partition_point(|&other| other < id);
        let mut ids: SmallVec<[NodeId; 128]> = SmallVec::from_slice(&self.ids);
        ids.insert(at, id);
        if S::near(self.own, &ids, self.limits.near).contains(&id) {
            return true;
        }
        let mut costs: SmallVec<[u16; 8]> =
            self.class(S::class(self.own, id)).map(|contact| contact.cost).collect();
        costs.sort_unstable();
        let last = self.limits.candidates.checked_sub(1);
        last.is_some_and(|last| costs.get(last).is_none_or(|&worst| is_cheaper(cost, worst)))
    }

    /// Adopts a contact if it is wanted, or if it is a neighbour. Of one whose route is known already the cost and the mark
    /// are renewed.
    pub fn adopt(&mut self, contact: Contact) -> Adopted {
        let wanted = self.wants(contact.id, contact.cost);
        match self.ids.binary_search(&contact.id) {
            Ok(at) => {
                let Some(known) = self.contacts.get_mut(at) else { return Adopted::Refused };
                let said = known.said.max(contact.said);
                let is_kept = wanted || contact.is_neighbour() || contact.route == known.route;
                if is_kept {
                    *known = contact;
                }
                known.said = said;
                if is_kept { Adopted::Known } else { Adopted::Refused }
            }
            Err(at) if wanted || (contact.is_neighbour() && contact.id != self.own) => {
                let before = self.near();
                let id = contact.id;
                if self.ids.len() == self.ids.capacity() {
                    // Tables stay, and very many are simulated.
                    self.ids.reserve_exact(IDS);
                }
                self.ids.insert(at, id);
                self.contacts.insert(at, contact);
                self.changes += 1;
                Adopted::Added(self.evict(id, &before))
            }
            _ => Adopted::Refused,
        }
    }

    /// Removes a contact.
    pub fn remove(&mut self, id: NodeId) -> Option<Contact> {
        let at = self.ids.binary_search(&id).ok()?;
        self.ids.remove(at);
        self.changes += 1;
        self.contacts.remove(at)
    }

    /// Removes all contacts whose route begins with `slot`.
    pub fn invalidate(&mut self, slot: Slot) -> Vec<Contact> {
        let gone = self.contacts.retain(|contact| contact.route.first != slot);
        self.ids = self.contacts.iter().map(|contact| contact.id).collect();
        self.changes += 1;
        gone
    }

    /// Leads all routes that begin with `slot` by a detour instead, which costs `cost` more. Returns them, and those that
    /// would be too long.
    pub fn redirect(
        &mut self,
        slot: Slot,
        detour: Detour,
        cost: u16,
    ) -> (Vec<(NodeId, Route)>, Vec<NodeId>) {
        let (mut longer, mut lost) = (Vec::new(), Vec::new());
        let behind = self.contacts.iter_mut().filter(|contact| contact.route.first == slot);
        for contact in behind {
            match detour.redirect(&contact.route) {
                Some(route) if route.hops() <= MAX_HOPS => {
                    contact.cost = contact.cost.saturating_add(cost);
                    contact.route = route.clone();
                    longer.push((contact.id, route));
                }
                _ => lost.push(contact.id),
            }
        }
        self.changes += 1;
        (longer, lost)
    }

    /// The route to a contact has become longer: another that costs as much as it did is a better one.
    pub fn worsen(&mut self, id: NodeId) {
        if let Ok(at) = self.ids.binary_search(&id)
            && let Some(contact) = self.contacts.get_mut(at)
        {
            contact.cost = contact.cost.saturating_mul(2);
        }
    }

    /// Returns the best next contact for a message to `key` and its distance, if one is below `below`: the closest to the
    /// key, or a cheaper one that is about as close, which is not more than twice as far.
    pub fn closest(&self, key: NodeId, below: u64) -> Option<(&Contact, u64)> {
        let magnitude = |id: NodeId| u64::BITS - S::span(id, key).leading_zeros();
        let closer = || {
            let all = self.ids.iter().enumerate().map(|(at, &id)| (at, id, S::distance(id, key)));
            all.filter(|&(.., distance)| distance < below)
        };
        let least = closer().map(|(_, id, _)| magnitude(id)).min()?;
        let about = closer().filter(|&(_, id, _)| magnitude(id) == least);
        let about = about.filter_map(|(at, _, distance)| Some((self.contacts.get(at)?, distance)));
        about.min_by_key(|&(contact, distance)| (contact.cost, distance))
    }

    /// Returns the contacts of a class.
    fn class(&self, class: u8) -> impl Iterator<Item = &Contact> {
        let own = self.own;
        self.contacts.iter().filter(move |contact| S::class(own, contact.id) == class)
    }

    /// Removes what the new contact `id` makes superfluous: of its own class, and what is not near any more.
    fn evict(&mut self, id: NodeId, near_before: &Ids) -> SmallVec<[Contact; 2]> {
        let near = self.near();
        let class = self.class(S::class(self.own, id)).map(|contact| contact.id);
        let displaced = near_before.iter().copied().filter(|id| !near.contains(id));
        let mut checked: SmallVec<[NodeId; 8]> = class.chain(displaced).collect();
        checked.sort_unstable();
        checked.dedup();
        checked.retain(|&mut id| !self.is_kept(id, &near));
        if self.ids.len() - checked.len() > self.limits.contacts {
            self.full += 1;
            // The costliest of those that no ring depends on; a neighbour goes first, for its link is known anyway.
            let spare = self
                .contacts
                .iter()
                .filter(|contact| !near.contains(&contact.id) && !checked.contains(&contact.id));
            let worst =
                spare.max_by_key(|contact| (contact.is_neighbour(), contact.cost, contact.id));
            checked.extend(worst.map(|contact| contact.id));
        }
        checked.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// Returns whether there is a reason to keep the contact `id`.
    fn is_kept(&self, id: NodeId, near: &Ids) -> bool {
        let Some(contact) = self.get(id) else { return false };
        if contact.is_neighbour() || near.contains(&id) {
            return true;
        }
        let better = self.class(S::class(self.own, id));
        let better = better.filter(|other| (other.cost, other.id) < (contact.cost, id));
        better.count() < self.limits.candidates
    }
}

/// Returns whether a cost is so much below another that a change of route is worth it: by a quarter. Less would have
/// routes change back and forth.
fn is_cheaper(cost: u16, than: u16) -> bool {
    u32::from(cost) * 4 < u32::from(than) * 3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::{Ring, Xor};
    use crate::wire::Labels;
    use proptest::prelude::*;

    fn contact(id: u64, cost: u16) -> Contact {
        let mut labels = Labels::default();
        labels.push(Slot(1), Slot(1)).unwrap();
        Contact {
            id: NodeId::new(id),
            route: Route { first: Slot(cost % 4), labels },
            cost,
            mark: 0,
            said: Sequence::default(),
        }
    }

    fn table(own: u64, near: usize, candidates: usize, contacts: usize) -> ContactTable<Ring> {
        let limits = Limits { near, candidates, contacts, ..Limits::default() };
        ContactTable::new(NodeId::new(own), limits)
    }

    fn ids<S: Space>(table: &ContactTable<S>) -> Vec<u64> {
        table.ids().iter().map(|id| id.raw()).collect()
    }

    #[test]
    fn the_cheapest_of_a_class_and_the_near_ones_are_kept() {
        let mut table = table(0, 1, 2, 255);
        for (id, cost) in [(100, 30), (101, 20), (102, 10)] {
            table.adopt(contact(id, cost));
        }
        // 100 is the next on the ring, 101 and 102 are the cheapest between 64 and 127.
        assert_eq!(ids(&table), [100, 101, 102]);
        let Adopted::Added(evicted) = table.adopt(contact(90, 40)) else { panic!() };
        assert_eq!(
            (evicted.as_slice(), ids(&table)),
            (&[contact(100, 30)][..], vec![90, 101, 102])
        );
        assert_eq!(table.adopt(contact(103, 40)), Adopted::Refused);
        // A quarter below the second-best.
        assert!(table.wants(NodeId::new(103), 14) && !table.wants(NodeId::new(103), 15));
        assert!(!table.wants(NodeId::new(0), 0));
    }

    #[test]
    fn a_known_route_changes_only_for_a_much_cheaper_one() {
        let mut table = table(0, 1, 2, 255);
        table.adopt(contact(5, 100));
        assert_eq!(table.adopt(contact(5, 75)), Adopted::Refused);
        assert_eq!(table.adopt(contact(5, 74)), Adopted::Known);
        let route = Route::direct(Slot(9));
        let neighbour = Contact { route, ..contact(5, 200) };
        assert_eq!(table.adopt(neighbour), Adopted::Known);
        assert!(table.get(NodeId::new(5)).unwrap().is_neighbour());
        // The same route at another cost is the same contact.
        let worse = Contact { cost: 400, mark: 7, ..table.get(NodeId::new(5)).unwrap().clone() };
        assert_eq!(table.adopt(worse.clone()), Adopted::Known);
        assert_eq!(table.get(NodeId::new(5)), Some(&worse));
    }

    #[test]
    fn contacts_by_a_dead_link_go_together() {
        let mut table = table(50, 2, 2, 255);
        for (id, cost) in [(10, 1), (20, 2), (60, 5), (70, 6)] {
            table.adopt(contact(id, cost));
        }
        let gone: Vec<u64> =
            table.invalidate(Slot(1)).iter().map(|contact| contact.id.raw()).collect();
        assert_eq!((gone, ids(&table)), (vec![10, 60], vec![20, 70]));
        assert_eq!(table.remove(NodeId::new(20)), Some(contact(20, 2)));
        assert_eq!(table.remove(NodeId::new(20)), None);
    }

    #[test]
    fn a_step_goes_below_the_distance_so_far() {
        let mut table = table(50, 2, 2, 255);
        for id in [10, 20, 60, 70] {
            table.adopt(contact(id, 1));
        }
        let closest = |key, below| {
            let found = table.closest(NodeId::new(key), below);
            found.map(|(contact, distance)| (contact.id.raw(), distance))
        };
        assert_eq!(closest(65, u64::MAX), Some((60, 5)));
        assert_eq!(closest(65, 5), None);
        // Before all: the first, whose distance is its own id.
        assert_eq!(closest(5, u64::MAX), Some((10, 10)));
    }

    proptest! {
        #[test]
        fn the_table_is_bounded_and_knows_who_is_near(
            own: u64,
            offers in proptest::collection::vec((any::<u64>(), 1u16..2_000), 1..200),
            limit in 6usize..40,
        ) {
            let mut ring = table(own, 2, 3, limit);
            let mut xor = ContactTable::<Xor>::new(NodeId::new(own), Limits { contacts: limit, ..Limits::default() });
            let mut all: Vec<NodeId> = offers.iter().map(|offer| NodeId::new(offer.0)).collect();
            all.sort_unstable();
            all.dedup();
            all.retain(|&id| id.raw() != own);
            for (id, cost) in offers {
                ring.adopt(contact(id, cost));
                xor.adopt(contact(id, cost));
                prop_assert!(ring.ids().len() <= limit && xor.ids().len() <= limit);
                prop_assert!(ring.ids().is_sorted());
            }
            prop_assert_eq!(ring.near(), Ring::near(NodeId::new(own), &all, 2));
            prop_assert_eq!(xor.near(), Xor::near(NodeId::new(own), &all, 2));
        }
    }
}
