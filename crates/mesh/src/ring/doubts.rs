//! Doubts about routes: somebody on one has denied what this router knows.
//!
//! The answer to a LOOKUP for a prefix that nobody owns is the statement of the router that is responsible for its key. A
//! hostile router on the way can state that as well. But each router that has sent the LOOKUP on to a contact knows that
//! this contact is closer to the key than somebody else, so that a statement of somebody who is farther, and which comes
//! back by the route to the contact, is false, and its signer, or another on that route, lies. In a network without such
//! routers this does not happen, because every greedy step is to somebody closer.
//!
//! Whatever is doubted is used for LOOKUPs only where there is nothing better: a doubt costs nobody a contact.

use ringway_sansio::Time;
use ringway_sansio::time::Duration;

use super::{Action, Overlay};
use crate::id::NodeId;
use crate::metric::Space;
use crate::routes::Contact;
use crate::wire::{MessageId, Route, Slot};

/// Maximum number of LOOKUPs of which the next contact is remembered, and of those that came by one neighbour.
const MAX_CHOICES: usize = 32;
const MAX_BY_NEIGHBOUR: usize = MAX_CHOICES / 4;
/// Time in which an answer comes.
const ANSWER: Duration = Duration::from_secs(3);
/// Maximum number of routes that are doubted.
const MAX_DOUBTS: usize = 64;
/// Time for which a route is doubted.
const MEMORY: Duration = Duration::from_secs(600);

/// A LOOKUP that was sent on.
#[derive(Clone, Copy, Debug)]
struct Choice {
    at: Time,
    id: MessageId,
    key: NodeId,
    /// How far the contact that it was sent to is from the key.
    distance: u64,
    /// By which it came; `None` for one of this router.
    entered: Option<Slot>,
    /// By which it left.
    out: Slot,
}

/// What became of a statement that somebody is responsible for a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judgement {
    /// Nothing is known against it.
    Possible,
    /// It is false.
    False,
}

/// The LOOKUPs that a router has sent on, and the routes by which somebody has lied.
#[derive(Clone, Debug, Default)]
pub(super) struct Doubts {
    choices: Vec<Choice>,
    routes: Vec<(Time, NodeId, Route)>,
}

impl Doubts {
    pub(super) fn heap_bytes(&self) -> usize {
        let routes: usize = self.routes.iter().map(|(.., route)| route.heap_bytes()).sum();
        self.choices.capacity() * size_of::<Choice>()
            + self.routes.capacity() * size_of::<(Time, NodeId, Route)>()
            + routes
    }

    /// Returns whether somebody on the route to a contact has lied.
    pub(super) fn has(&self, contact: &Contact) -> bool {
        self.is_about(contact.id, &contact.route)
    }

    fn is_about(&self, id: NodeId, route: &Route) -> bool {
        self.routes.iter().any(|(_, of, doubted)| *of == id && doubted == route)
    }

    fn note(&mut self, choice: Choice) {
        self.choices.retain(|known| choice.at.since(known.at) < ANSWER && known.id != choice.id);
        let of_neighbour = self.choices.iter().filter(|known| known.entered == choice.entered);
        let oldest = if of_neighbour.count() >= MAX_BY_NEIGHBOUR {
            self.choices.iter().position(|known| known.entered == choice.entered)
        } else {
            (self.choices.len() >= MAX_CHOICES).then_some(0)
        };
        oldest.into_iter().for_each(|at| _ = self.choices.remove(at));
        self.choices.push(choice);
    }

    fn add(&mut self, now: Time, id: NodeId, route: &Route) {
        self.routes.retain(|(at, ..)| now.since(*at) < MEMORY);
        if self.is_about(id, route) {
            return;
        }
        if self.routes.len() >= MAX_DOUBTS {
            self.routes.remove(0);
        }
        self.routes.push((now, id, route.clone()));
    }

    /// Removes what is out of date.
    pub(super) fn expire(&mut self, now: Time) {
        self.choices.retain(|known| now.since(known.at) < ANSWER);
        self.routes.retain(|(at, ..)| now.since(*at) < MEMORY);
        self.choices.shrink_to_fit();
        self.routes.shrink_to_fit();
    }
}

impl<S: Space> Overlay<S> {
    /// Returns the next contact for a LOOKUP to `key` that has been no closer than `best`, and its distance: one of which
    /// the route is not doubted, if there is one.
    pub fn next_trusted(&self, key: NodeId, best: u64) -> Option<(Route, u64)> {
        if self.doubts.routes.is_empty() {
            return self.next(key, best);
        }
        let below = S::distance(self.contacts.own(), key).min(best);
        let distance = |contact: &Contact| S::distance(contact.id, key);
        let closer = self.contacts.iter().filter(|contact| distance(contact) < below);
        let best = closer.min_by_key(|contact| {
            let magnitude = u64::BITS - S::span(contact.id, key).leading_zeros();
            (self.doubts.has(contact), magnitude, contact.cost, distance(contact))
        })?;
        Some((best.route.clone(), distance(best)))
    }

    /// A LOOKUP for `key` that came by `entered`, or is of this router, was sent by `out` to the contact at this distance.
    pub fn chose(
        &mut self,
        now: Time,
        id: MessageId,
        (key, distance): (NodeId, u64),
        entered: Option<Slot>,
        out: Slot,
    ) {
        self.doubts.note(Choice { at: now, id, key, distance, entered, out });
    }

    /// `by` has stated that it is responsible for the key of a LOOKUP, and the statement came by `entered`. Judges it by
    /// what was known when the LOOKUP was sent on, and doubts the route that it went by.
    pub fn denied(
        &mut self,
        now: Time,
        id: MessageId,
        by: NodeId,
        entered: Slot,
        out: &mut Vec<Action>,
    ) -> Judgement {
        let choices = &self.doubts.choices;
        let is_it = |known: &&Choice| known.id == id && known.out == entered;
        let Some(&Choice { key, distance, .. }) = choices.iter().find(is_it) else {
            return Judgement::Possible;
        };
        let far = S::distance(by, key);
        if far < distance {
            return Judgement::Possible;
        }
        let contacts = || self.contacts.iter();
        // Keys before the first router belong to the last.
        let ids = || self.contacts.ids().iter().copied().chain([self.contacts.own()]);
        if S::CLOSES && by > key && ids().all(|id| id > key) {
            return Judgement::Possible;
        }
        // Whoever it was sent to may not know the closer one that this router knows.
        if far == distance && contacts().all(|other| S::distance(other.id, key) >= far) {
            return Judgement::Possible;
        }
        let is_it = |contact: &&Contact| {
            contact.route.first == entered && S::distance(contact.id, key) == distance
        };
        let chosen = contacts().find(is_it);
        if let Some((subject, route)) = chosen.map(|contact| (contact.id, contact.route.clone())) {
            self.doubts.add(now, subject, &route);
            // Messages to it must go this way unless there is another route.
            if self.contacts.near().contains(&subject) {
                self.find(subject, out);
            }
        }
        if far > distance { Judgement::False } else { Judgement::Possible }
    }

    /// Takes another route to a contact to which the route is doubted, whatever it costs.
    pub(super) fn replace_doubted(&mut self, contact: &mut Contact) {
        let is_worse = |known: &&Contact| {
            known.route != contact.route
                && self.doubts.has(known)
                && !self.doubts.is_about(contact.id, &contact.route)
        };
        let known = self.contacts.get(contact.id).filter(is_worse).map(|known| known.said);
        if let Some(said) = known {
            contact.said = contact.said.max(said);
            self.contacts.remove(contact.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Limits;
    use crate::id::Sequence;
    use crate::metric::Ring;
    use crate::wire::Labels;

    const NOW: Time = Time::from_secs(9);
    const ID: MessageId = MessageId(77);
    const KEY: NodeId = NodeId::new(100);

    fn contact(id: u64, first: u16, cost: u16) -> Contact {
        let mut labels = Labels::default();
        labels.push(Slot(2), Slot(2)).unwrap();
        let route = Route { first: Slot(first), labels };
        Contact { id: NodeId::new(id), route, cost, mark: 0, said: Sequence::default() }
    }

    /// The router 10 with the contacts 90, 91 and 99, of which 90 is the cheapest.
    fn overlay() -> Overlay<Ring> {
        let mut overlay = Overlay::new(NodeId::new(10), Limits::default());
        for (id, first, cost) in [(90, 1, 5), (91, 2, 9), (99, 3, 9)] {
            overlay.adopt(contact(id, first, cost), &mut Vec::new());
        }
        overlay
    }

    fn denied(overlay: &mut Overlay<Ring>, by: u64, entered: u16) -> Judgement {
        overlay.denied(NOW, ID, NodeId::new(by), Slot(entered), &mut Vec::new())
    }

    #[test]
    fn a_statement_of_somebody_farther_than_the_contact_is_false() {
        let mut overlay = overlay();
        let before = overlay.next_trusted(KEY, 90).unwrap();
        let [first, second] = [before.0.first, Slot(7)];
        overlay.chose(NOW, ID, (KEY, before.1), Some(Slot(9)), first);
        let chosen = 100 - before.1;
        // Somebody closer, by another link, or about another question.
        for (by, entered, id) in
            [(chosen + 1, first, ID), (50, second, ID), (50, first, MessageId(1))]
        {
            let by = NodeId::new(by);
            let judgement = overlay.denied(NOW, id, by, entered, &mut Vec::new());
            assert_eq!(judgement, Judgement::Possible);
        }
        assert_eq!(overlay.next_trusted(KEY, 90), Some(before.clone()));
        assert_eq!(denied(&mut overlay, 50, first.0), Judgement::False);
        let after = overlay.next_trusted(KEY, 90).unwrap();
        assert_ne!(after.0.first, first);
        // Everything else still goes by it, and LOOKUPs where there is nobody else.
        assert_eq!(overlay.next(KEY, 90), Some(before.clone()));
        assert_eq!(overlay.contacts().ids().len(), 3);
        overlay.doubts.expire(NOW + MEMORY);
        assert_eq!(overlay.next_trusted(KEY, 90), Some(before));
        assert_eq!(overlay.doubts.heap_bytes(), 0);
    }

    #[test]
    fn the_last_router_is_responsible_for_keys_before_the_first() {
        let mut overlay = Overlay::<Ring>::new(NodeId::new(95), Limits::default());
        for (id, first) in [(90, 1), (99, 3)] {
            overlay.adopt(contact(id, first, 5), &mut Vec::new());
        }
        overlay.chose(NOW, ID, (NodeId::new(20), 90), None, Slot(1));
        assert_eq!(denied(&mut overlay, 100, 1), Judgement::Possible);
        // There is somebody before the key.
        overlay.adopt(contact(10, 4, 5), &mut Vec::new());
        assert_eq!(denied(&mut overlay, 100, 1), Judgement::False);
    }

    #[test]
    fn a_contact_that_denies_is_doubted_if_a_closer_one_is_known() {
        let mut overlay = overlay();
        overlay.chose(NOW, ID, (KEY, 1), None, Slot(3));
        assert_eq!(denied(&mut overlay, 99, 3), Judgement::Possible);
        assert!(overlay.doubts.routes.is_empty());
        overlay.chose(NOW, ID, (KEY, 10), None, Slot(1));
        // It may not know better, so whoever asks decides.
        assert_eq!(denied(&mut overlay, 90, 1), Judgement::Possible);
        assert_eq!(overlay.doubts.routes.len(), 1);
    }

    #[test]
    fn another_route_replaces_a_doubted_one_and_a_doubted_one_no_other() {
        let mut overlay = overlay();
        overlay.chose(NOW, ID, (KEY, 1), None, Slot(3));
        assert_eq!(denied(&mut overlay, 50, 3), Judgement::False);
        overlay.adopt(contact(99, 5, 60), &mut Vec::new());
        let route =
            |overlay: &Overlay<Ring>| overlay.contacts().get(NodeId::new(99)).unwrap().route.first;
        assert_eq!(route(&overlay), Slot(5));
        overlay.adopt(contact(99, 3, 50), &mut Vec::new());
        assert_eq!(route(&overlay), Slot(5));
    }

    /// What one neighbour sends displaces nothing of another's.
    #[test]
    fn what_is_remembered_is_bounded_and_shared() {
        let mut overlay = overlay();
        overlay.chose(NOW, ID, (KEY, 1), Some(Slot(8)), Slot(3));
        for number in 0..1_000 {
            overlay.chose(NOW, MessageId(1_000 + number), (KEY, 1), Some(Slot(9)), Slot(3));
        }
        assert_eq!(overlay.doubts.choices.len(), 1 + MAX_BY_NEIGHBOUR);
        assert_eq!(denied(&mut overlay, 50, 3), Judgement::False);
        for slot in 0..1_000 {
            overlay.chose(NOW, MessageId(slot.into()), (KEY, 1), Some(Slot(slot)), Slot(3));
            overlay.doubts.add(NOW, KEY, &Route::direct(Slot(slot)));
        }
        assert_eq!(
            (overlay.doubts.choices.len(), overlay.doubts.routes.len()),
            (MAX_CHOICES, MAX_DOUBTS)
        );
    }
}
