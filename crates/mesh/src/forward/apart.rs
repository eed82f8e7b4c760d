//! The way of a LOOKUP_APART: to a router by a way that shares neither links nor routers with a route that is known.
//!
//! It walks. At each router it follows the labels that it has while they lead to somebody new, and goes on by the contact
//! that is best for its target, or by any neighbour, where they do not. A router from which nobody new can be reached sends
//! it back to the one before. The message itself has the tags of those that it has come to, so that nobody stores anything
//! for it: it comes to a router once, and to [`MAX_PASSED`] at most.

use smallvec::SmallVec;

use super::message::Here;
use crate::id::{NodeId, Tag};
use crate::routes::Contact;
use crate::wire::bodies::{Avoided, MAX_PASSED};
use crate::wire::{Labels, Neighbour, Route, Routed, Slot};

/// Hops that it may take: every router may be left once on the way there and once on the way back.
pub const WALK_LIMIT: u16 = 2 * MAX_PASSED as u16;

/// What to do with a LOOKUP_APART.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Walk {
    /// Send it to this neighbour.
    Out(Slot),
    /// It is for this router, to which this is the way back.
    Arrived(Route),
    /// It is back at its origin, and there is nobody else to send it to.
    Exhausted,
    /// Drop it.
    Dropped,
}

/// What this router knows of the ways to others.
pub trait Choice {
    /// Returns the best contact for a key among those that are allowed.
    fn best(&self, key: NodeId, is_allowed: &dyn Fn(&Contact) -> bool) -> Option<Route>;

    /// Returns the closest neighbour to a key among those that are allowed.
    fn closest(&self, key: NodeId, allowed: &[Neighbour]) -> Option<Slot>;
}

/// Where a LOOKUP_APART has come by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entered {
    /// It is at its origin, the route of which begins with this slot.
    Origin(Slot),
    /// Another router has sent it by this slot.
    By(Slot),
}

/// Takes a step with a message that has come so, and which avoids this.
pub fn walk(
    message: &mut Routed<'_>,
    avoided: &mut Avoided,
    here: Here<'_>,
    entered: Entered,
    choice: &impl Choice,
) -> Walk {
    message.hop_limit = message.hop_limit.min(WALK_LIMIT);
    let (id, Some(record)) = (message.id, &mut message.record) else { return Walk::Dropped };
    let own = here.id.tag(id.0);
    let around = Around { own, origin: message.origin.tag(id.0), id: id.0, avoided };
    // A record is not cut by a link that is avoided.
    let links: SmallVec<[Neighbour; 16]> =
        here.neighbours.iter().filter(|other| !around.is_on_route(other.id)).copied().collect();
    let is_known = around.has_passed(here.id);
    let is_back = match entered {
        Entered::Origin(_) => is_known,
        Entered::By(_) => record.is_turned(),
    };
    let came = match entered {
        Entered::Origin(_) => None,
        Entered::By(slot) => match record.enter(id, here.id, &links, slot) {
            Some(first) => Some(first),
            // Nobody but its origin is at the beginning of the record.
            None if message.origin == here.id => return Walk::Exhausted,
            None => return Walk::Dropped,
        },
    };
    if let Some(first) = came
        && message.target.prefix() == here.id.prefix()
    {
        return Walk::Arrived(Route { first, labels: record.labels().reversed() });
    }
    if is_known != is_back || message.hop_limit == 0 || avoided.passed.len() >= MAX_PASSED {
        return Walk::Dropped;
    }
    let allowed: SmallVec<[Neighbour; 16]> = {
        let is_end = |other: &Neighbour| other.id.prefix() == message.target.prefix();
        let is_new = |other: &&Neighbour| {
            let is_open = here.is_up(other.slot) && !around.has_passed(other.id);
            let is_free = match entered {
                Entered::Origin(first) => other.slot != first,
                Entered::By(slot) => other.slot != slot && !around.is_on_route(other.id),
            };
            is_open && is_free && (is_end(other) || !around.is_avoided(other.id))
        };
        here.neighbours.iter().filter(is_new).copied().collect()
    };
    let labels = core::mem::take(&mut message.labels);
    let next = next(message.target, (&labels, is_back), &allowed, &around, choice);
    message.at = 0;
    message.hop_limit -= 1;
    if !is_known {
        avoided.passed.push(own);
    }
    let (out, came) = match (next, came) {
        (Some(route), came) => {
            message.labels = route.labels;
            (route.first, came)
        }
        (None, Some(first)) => (first, Some(first)),
        (None, None) => return Walk::Exhausted,
    };
    let Some(came) = came else { return Walk::Out(out) };
    let left = message.record.as_mut().map(|record| record.leave(id, here.id, came, out));
    if matches!(left, Some(Ok(()))) { Walk::Out(out) } else { Walk::Dropped }
}

/// Returns how it goes on: straight to the target, by its labels, by a contact, or by a neighbour.
fn next(
    target: NodeId,
    (labels, is_back): (&Labels, bool),
    allowed: &[Neighbour],
    around: &Around<'_>,
    choice: &impl Choice,
) -> Option<Route> {
    let is_allowed = |slot: Slot| allowed.iter().any(|other| other.slot == slot);
    if let Some(end) = allowed.iter().find(|other| other.id.prefix() == target.prefix()) {
        return Some(Route::direct(end.slot));
    }
    let mut onward = labels.iter();
    if let Some((_, first)) = onward.next().filter(|&(_, slot)| !is_back && is_allowed(slot)) {
        let mut route = Route::direct(first);
        onward.try_for_each(|(class, slot)| route.labels.push_class(class, slot)).ok()?;
        return Some(route);
    }
    let is_end = |id: NodeId| id.prefix() == target.prefix();
    let best = choice.best(target, &|contact: &Contact| {
        let is_new = !around.has_passed(contact.id) && !around.is_avoided(contact.id);
        is_allowed(contact.route.first) && (is_new || is_end(contact.id))
    });
    best.or_else(|| choice.closest(target, allowed).map(Route::direct))
}

/// A router, and what a message avoids.
struct Around<'a> {
    own: Tag,
    origin: Tag,
    id: u64,
    avoided: &'a Avoided,
}

impl Around<'_> {
    /// Returns whether the link to a neighbour is one of the route that is avoided.
    fn is_on_route(&self, neighbour: NodeId) -> bool {
        let other = neighbour.tag(self.id);
        let route = &self.avoided.route;
        let from = core::iter::once(&self.origin).chain(route);
        from.zip(route).any(|(&one, &next)| {
            (one == self.own && next == other) || (one == other && next == self.own)
        })
    }

    /// Returns whether a router is one of those that are avoided.
    fn is_avoided(&self, id: NodeId) -> bool {
        !self.avoided.links_alone && self.avoided.route.contains(&id.tag(self.id))
    }

    /// Returns whether it has come to a router.
    fn has_passed(&self, id: NodeId) -> bool {
        self.avoided.passed.contains(&id.tag(self.id))
    }
}
