//! What becomes of contacts when links and routes fail.

use ringway_sansio::{Random, Time};
use smallvec::SmallVec;

use super::{Action, Overlay, SEARCH_INTERVAL};
use crate::id::NodeId;
use crate::metric::Space;
use crate::routes::{Contact, Detour};
use crate::wire::{Route, Slot};

impl<S: Space> Overlay<S> {
    /// A link is down: every contact behind it is lost, and looked for by another way.
    pub fn neighbour_down(&mut self, slot: Slot, out: &mut Vec<Action>) {
        let near = self.contacts.near();
        let gone = self.contacts.invalidate(slot);
        let lost = gone.iter().map(|contact| contact.id).filter(|id| near.contains(id));
        self.ask_beside(lost.collect(), out);
        for contact in gone {
            self.lost.push(contact.id);
            if near.contains(&contact.id) {
                self.missed.add(&contact);
                self.find(contact.id, out);
            }
        }
    }

    /// A link is down, and there is a way round it: the routes by it are longer.
    pub fn detour(&mut self, slot: Slot, detour: Detour, cost: u16, out: &mut Vec<Action>) {
        let near = self.contacts.near();
        let (longer, lost) = self.contacts.redirect(slot, detour, cost);
        self.seek(&lost, out);
        // The answer shows the way that they have now, and maybe a shorter one.
        for (id, route) in longer.into_iter().filter(|(id, _)| near.contains(id)) {
            self.connect(id, route, self.limits.pending, out);
        }
    }

    /// A route with this mark has become longer: the news came by `entered`. It is used until there is a better one, which
    /// is asked for if the contact is near.
    pub fn detoured(&mut self, mark: u32, entered: Slot, out: &mut Vec<Action>) {
        let is_it = |contact: &&Contact| contact.mark == mark && contact.route.first == entered;
        let Some(contact) = self.contacts.iter().find(is_it) else { return };
        let (id, route) = (contact.id, contact.route.clone());
        self.contacts.worsen(id);
        if self.contacts.near().contains(&id) {
            self.connect(id, route, self.limits.pending, out);
        }
    }

    /// A message to the contact at this distance from a key has returned by `entered`. Its route has failed. Returns whether
    /// the contact is kept nevertheless.
    pub fn misled(
        &mut self,
        key: NodeId,
        distance: u64,
        entered: Slot,
        out: &mut Vec<Action>,
    ) -> bool {
        let is_it = |contact: &&Contact| {
            contact.route.first == entered && S::distance(contact.id, key) == distance
        };
        let Some(id) = self.contacts.iter().find(is_it).map(|contact| contact.id) else {
            return false;
        };
        self.seek(&[id], out);
        self.contacts.get(id).is_some()
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
        // Whoever has offered it may know a route that has failed. A search shows that to each router on the way. It is
        // made now and then, because anybody can offer what is not there.
        if is_nearest && self.searched.is_none_or(|at| now.since(at) >= SEARCH_INTERVAL) {
            self.searched = Some(now);
            self.find(id, out);
        }
        if self.contacts.get(id).is_none_or(|contact| contact.route != *route) {
            return;
        }
        self.lose(&[id], out);
    }

    /// A message was not forwarded along a route that begins here. Whoever was reached by it is looked for by another way:
    /// also those to whom an older route happens to be the same as the one that failed.
    pub fn route_failed(&mut self, route: &Route, out: &mut Vec<Action>) {
        let failed = self.contacts.iter().filter(|contact| contact.route == *route);
        let failed: SmallVec<[NodeId; 2]> = failed.map(|contact| contact.id).collect();
        self.seek(&failed, out);
    }

    /// Removes contacts; not neighbours, whose links alone decide. Returns those that were removed.
    fn lose(&mut self, ids: &[NodeId], out: &mut Vec<Action>) -> SmallVec<[NodeId; 2]> {
        let near = self.contacts.near();
        let is_lost =
            |id: &NodeId| self.contacts.get(*id).is_some_and(|known| !known.is_neighbour());
        let gone: SmallVec<[NodeId; 2]> = ids.iter().copied().filter(is_lost).collect();
        for &id in &gone {
            let removed = self.contacts.remove(id);
            self.lost.push(id);
            removed.iter().filter(|_| near.contains(&id)).for_each(|lost| self.missed.add(lost));
        }
        self.ask_beside(gone.iter().copied().filter(|id| near.contains(id)).collect(), out);
        gone
    }

    /// Removes contacts whose route is broken, and looks for them by another way.
    fn seek(&mut self, ids: &[NodeId], out: &mut Vec<Action>) {
        let near = self.contacts.near();
        for id in self.lose(ids, out) {
            if near.contains(&id) {
                self.find(id, out);
            }
        }
    }

    /// Returns how a search for the router `to` begins: by the next contact, or, if it has failed, by any. A router that has
    /// lost the one next to it has nobody between, and begins with the closest beyond. No search is wrapped, because only keys
    /// that nobody has belong to the last router.
    pub fn search_step(
        &self,
        to: NodeId,
        again: Option<&mut dyn Random>,
    ) -> Option<(Route, u64, bool)> {
        let contact = if let Some(random) = again {
            let at = random.next_u64() % self.contacts.ids().len().max(1) as u64;
            self.contacts.iter().nth(at as usize)?
        } else if let Some((route, distance)) = self.next_trusted(to, u64::MAX) {
            return Some((route, distance, false));
        } else {
            self.contacts.iter().min_by_key(|contact| S::span(contact.id, to))?
        };
        Some((contact.route.clone(), S::distance(contact.id, to), false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Limits;
    use crate::id::Sequence;
    use crate::metric::Ring;
    use ringway_sansio::SplitMix;

    fn overlay(own: u64, ids: &[u64]) -> Overlay<Ring> {
        let mut overlay = Overlay::new(NodeId::new(own), Limits::default());
        for &id in ids {
            let (route, said) = (Route::direct(Slot(id as u16)), Sequence::default());
            let contact = Contact { id: NodeId::new(id), route, cost: 40, mark: 0, said };
            overlay.adopt(contact, &mut Vec::new());
        }
        overlay
    }

    /// Returns the contact with which a search begins, which goes on only to somebody closer.
    fn begins(overlay: &Overlay<Ring>, to: u64) -> Option<u64> {
        let to = NodeId::new(to);
        let (route, best, wrapped) = overlay.search_step(to, None)?;
        assert!(!wrapped && best == Ring::distance(NodeId::new(route.first.0.into()), to));
        Some(route.first.0.into())
    }

    #[test]
    fn a_search_for_the_next_router_begins_beyond_it() {
        let one = overlay(50, &[10, 40, 60, 90]);
        assert_eq!(one.first_step(NodeId::new(55)), None);
        assert_eq!([55, 59, 61, 45].map(|to| begins(&one, to)), [60, 60, 60, 40].map(Some));
        // So does that of the first router for one before it, and of the last for one behind.
        assert_eq!(begins(&overlay(50, &[60, 90]), 30), Some(60));
        assert_eq!(begins(&overlay(50, &[10, 40]), 70), Some(40));
        assert_eq!(begins(&overlay(50, &[]), 70), None);
    }

    #[test]
    fn a_search_that_has_failed_goes_by_any_contact() {
        let (one, mut random) = (overlay(50, &[10, 40, 60, 90]), SplitMix::new(1));
        let mut begun = [0; 100].map(|_| {
            let step = one.search_step(NodeId::new(55), Some(&mut random));
            step.map_or(0, |(route, ..)| route.first.0)
        });
        begun.sort_unstable();
        let first: Vec<u16> = begun.chunk_by(|one, other| one == other).map(|of| of[0]).collect();
        assert_eq!(first, [10, 40, 60, 90]);
    }
}
