//! Detours: ways round links that carry nothing just now.
//!
//! A router whose neighbour does not answer asks its other neighbours which of them has a link to the silent one. The
//! first that has is the way round it: packets with a label for the silent neighbour leave by the other, with a label more.
//! So routes of others stay usable when routers move, without a word to anybody on them, until their users have found
//! better ones.

use ringway_sansio::Time;
use ringway_sansio::time::{Duration, sooner};

use crate::id::NodeId;
use crate::wire::{Class, Labels, Route, Slot};

/// Maximum number of neighbours with a detour, or for which one is looked for.
const MAX_DETOURS: usize = 64;
/// Time after which a neighbour is asked for again.
const AGAIN: Duration = Duration::from_secs(1);
/// Time in which an answer comes.
const WAIT: Duration = Duration::from_millis(200);
/// Time for which a detour round a link that is down is used. Slots of lost neighbours are reserved for somewhat longer.
const LIFE: Duration = Duration::from_secs(110);
/// Hops that a detour counts for, so that packets do not go round and round.
const HOPS: u16 = 8;

/// The first two hops of a detour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Detour {
    /// Our slot for the neighbour that has the link, or by another link for the silent neighbour itself.
    pub via: Slot,
    /// The label that it reads: its slot for the silent neighbour, in a class that fits its slot for us.
    pub label: Option<(Class, Slot)>,
}

impl Detour {
    /// Returns the way to the silent neighbour.
    pub fn route(&self) -> Option<Route> {
        let mut route = Route::direct(self.via);
        if let Some((class, slot)) = self.label {
            route.labels.push_class(class, slot).ok()?;
        }
        Some(route)
    }

    /// Returns a route that begins with the silent neighbour's slot, by the detour.
    pub fn redirect(&self, route: &Route) -> Option<Route> {
        self.route()?.join(&route.labels).ok()
    }

    /// Takes the step at a router that came to a label for the silent neighbour at `at`, by the detour. Returns `None` if
    /// there is no room, or if the packet would go back where it came from.
    pub fn step(
        &self,
        labels: &mut Labels,
        at: &mut u16,
        reverse: bool,
        hop_limit: &mut u16,
        entered: Slot,
    ) -> Option<Slot> {
        if self.via == entered {
            return None;
        }
        *hop_limit = hop_limit.checked_sub(HOPS)?;
        *at = labels.rewrite(*at, reverse, entered, self.label).ok()?.1;
        Some(self.via)
    }
}

#[derive(Clone, Debug)]
struct Entry {
    slot: Slot,
    id: NodeId,
    asked: Time,
    detour: Option<Detour>,
    /// When the link went down, if it has.
    down: Option<Time>,
}

/// The detours of a router.
#[derive(Clone, Debug, Default)]
pub struct Detours {
    entries: Vec<Entry>,
}

impl Detours {
    /// Returns whether there are none, and none are looked for.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the octets that are allocated.
    pub fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }

    /// Returns the detour round the link of a slot.
    pub fn get(&self, slot: Slot) -> Option<Detour> {
        self.entries.iter().find(|entry| entry.slot == slot)?.detour
    }

    /// A neighbour is silent. Returns whether others are to be asked for a way to it.
    pub fn ask(&mut self, now: Time, slot: Slot, id: NodeId) -> bool {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.slot == slot) {
            let asks = entry.detour.is_none() && now.since(entry.asked) >= AGAIN;
            if asks {
                entry.asked = now;
            }
            return asks;
        }
        let has_room = self.entries.len() < MAX_DETOURS;
        if has_room {
            self.entries.push(Entry { slot, id, asked: now, detour: None, down: None });
        }
        has_room
    }

    /// A way to a neighbour that is looked for is known. Returns the slot that it is for. The first is taken.
    pub fn found(&mut self, now: Time, id: NodeId, detour: Detour) -> Option<Slot> {
        let is_it = |entry: &&mut Entry| {
            entry.id == id && entry.detour.is_none() && entry.slot != detour.via
        };
        let entry = self.entries.iter_mut().find(is_it)?;
        if now.since(entry.asked) > AGAIN {
            return None;
        }
        entry.detour = Some(detour);
        Some(entry.slot)
    }

    /// A link is down. Returns the detour round it, which is kept if there is one.
    pub fn down(&mut self, now: Time, slot: Slot) -> Option<Detour> {
        let at = self.entries.iter().position(|entry| entry.slot == slot)?;
        let entry = &mut self.entries[at];
        if entry.detour.is_none() {
            self.entries.swap_remove(at);
            return None;
        }
        entry.down = Some(now);
        entry.detour
    }

    /// A link is up, or is not to be gone round any more.
    pub fn remove(&mut self, slot: Slot) {
        self.entries.retain(|entry| entry.slot != slot);
    }

    /// The detours by a link that is down are lost. Returns the neighbours that others are to be asked for again.
    pub fn lose(&mut self, now: Time, via: Slot) -> Vec<NodeId> {
        let is_by = |entry: &&mut Entry| entry.detour.is_some_and(|detour| detour.via == via);
        let mut again = Vec::new();
        for entry in self.entries.iter_mut().filter(is_by) {
            (entry.detour, entry.asked) = (None, now);
            again.push(entry.id);
        }
        again
    }

    /// Ends those of links that carry packets again. They stay for a while without a way, so that a neighbour that is silent
    /// now and then does not have this router ask more often.
    pub fn review(&mut self, now: Time, is_silent: impl Fn(Slot) -> bool) {
        self.entries.retain_mut(|entry| {
            let is_over = entry.down.is_none() && !is_silent(entry.slot);
            if is_over {
                entry.detour = None;
            }
            !is_over || now.since(entry.asked) < AGAIN
        });
    }

    /// Removes a detour whose time is over, or for which nobody knows a way any more. Returns the slot, round which there is
    /// no way now. To be called until `None`.
    pub fn expire(&mut self, now: Time) -> Option<Slot> {
        let is_over = |entry: &Entry| entry.due().is_some_and(|due| due <= now);
        let at = self.entries.iter().position(is_over)?;
        Some(self.entries.swap_remove(at).slot)
    }

    /// Returns when something is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.entries.iter().filter_map(Entry::due).fold(None, |least, due| sooner(least, Some(due)))
    }
}

impl Entry {
    /// Returns when it is over. While the link is up, its liveness decides.
    fn due(&self) -> Option<Time> {
        let down = self.down?;
        Some(if self.detour.is_some() { down + LIFE } else { self.asked + WAIT })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Time = Time::from_secs(100);
    const ID: NodeId = NodeId::new(7);

    fn by(via: u16) -> Detour {
        Detour { via: Slot(via), label: Some((Class::Short, Slot(5))) }
    }

    #[test]
    fn the_first_answer_is_the_detour() {
        let mut detours = Detours::default();
        assert_eq!(detours.found(NOW, ID, by(2)), None);
        assert!(detours.ask(NOW, Slot(1), ID));
        assert!(!detours.ask(NOW, Slot(1), ID));
        assert_eq!(detours.found(NOW, NodeId::new(8), by(2)), None);
        assert_eq!(detours.found(NOW, ID, by(1)), None);
        assert_eq!(detours.found(NOW, ID, by(2)), Some(Slot(1)));
        assert_eq!(detours.found(NOW, ID, by(3)), None);
        assert_eq!((detours.get(Slot(1)), detours.get(Slot(2))), (Some(by(2)), None));
        // The link carries packets again. Whoever is silent again at once is not asked for.
        detours.review(NOW, |slot| slot != Slot(1));
        assert_eq!((detours.get(Slot(1)), detours.ask(NOW, Slot(1), ID)), (None, false));
        detours.review(NOW + AGAIN, |slot| slot != Slot(1));
        assert!(detours.is_empty());
    }

    #[test]
    fn an_answer_that_comes_late_is_none() {
        let mut detours = Detours::default();
        detours.ask(NOW, Slot(1), ID);
        assert_eq!(detours.found(NOW + AGAIN + Duration::from_millis(1), ID, by(2)), None);
        assert_eq!(detours.found(NOW + AGAIN, ID, by(2)), Some(Slot(1)));
    }

    #[test]
    fn a_detour_outlives_its_link_and_is_looked_for_again_without_its_neighbour() {
        let mut detours = Detours::default();
        detours.ask(NOW, Slot(1), ID);
        detours.found(NOW, ID, by(2));
        assert_eq!(detours.down(NOW, Slot(1)), Some(by(2)));
        detours.review(NOW, |_| false);
        assert_eq!(detours.poll_timeout(), Some(NOW + LIFE));
        let later = NOW + Duration::from_secs(9);
        assert_eq!(detours.lose(later, Slot(2)), [ID]);
        assert_eq!((detours.get(Slot(1)), detours.expire(later)), (None, None));
        assert_eq!(detours.found(later, ID, by(3)), Some(Slot(1)));
        assert_eq!(detours.lose(later, Slot(3)), [ID]);
        assert_eq!(detours.expire(later + WAIT), Some(Slot(1)));
        assert!(detours.is_empty());
        // Nobody has answered.
        detours.ask(NOW, Slot(4), ID);
        assert_eq!((detours.down(NOW, Slot(4)), detours.is_empty()), (None, true));
    }

    #[test]
    fn there_is_a_limit() {
        let mut detours = Detours::default();
        let asked = (0..100).filter(|&slot| detours.ask(NOW, Slot(slot), ID)).count();
        assert_eq!(asked, MAX_DETOURS);
    }

    proptest! {
        /// A packet over a detour comes to the labels behind it, and its answer comes back by the same way.
        #[test]
        fn a_detour_leads_there_and_back(
            before in proptest::collection::vec(0u16..15, 0..5),
            behind in proptest::collection::vec(0u16..15, 0..5),
            label in prop_oneof![0u16..15, 15u16..40],
            reverse: bool,
        ) {
            let mut all: Vec<Slot> = before.iter().chain(&[9]).chain(&behind).map(|&slot| Slot(slot)).collect();
            if reverse {
                all.reverse();
            }
            let mut labels = Labels::default();
            all.iter().for_each(|&slot| labels.push(slot, slot).unwrap());
            let mut at = if reverse { labels.nibbles() - before.len() as u16 } else { before.len() as u16 };
            let detour = Detour { via: Slot(3), label: Some((Class::for_both(Slot(label), Slot(2)), Slot(label))) };
            let mut hop_limit = 200;
            let out = detour.step(&mut labels, &mut at, reverse, &mut hop_limit, Slot(4));
            prop_assert_eq!((out, hop_limit), (Some(Slot(3)), 200 - HOPS));
            let mut cursor = labels.cursor(at, reverse).unwrap();
            // The neighbour with the link, which the packet enters by slot 2.
            prop_assert_eq!(cursor.swap(Slot(2)).unwrap(), Slot(label));
            for &slot in &behind {
                prop_assert_eq!(cursor.swap(Slot(slot)).unwrap(), Slot(slot));
            }
            prop_assert!(cursor.is_at_end());
            let end = cursor.at();
            let mut back = labels.cursor(end, !reverse).unwrap();
            for &slot in behind.iter().rev() {
                prop_assert_eq!(back.swap(Slot(slot)).unwrap(), Slot(slot));
            }
            prop_assert_eq!(back.swap(Slot(label)).unwrap(), Slot(2));
            prop_assert_eq!(back.swap(Slot(3)).unwrap(), Slot(4));
        }
    }
}
