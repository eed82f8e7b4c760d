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
    let cuts = |other: &&Neighbour| !avoided.uncut && !around.is_on_route(other.id);
    let links: SmallVec<[Neighbour; 16]> = here.neighbours.iter().filter(cuts).copied().collect();
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

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::routes::Detours;
    use crate::wire::{Message, MessageId};
    use proptest::prelude::*;

    const ID: MessageId = MessageId(0x5eed);
    /// More routers than a message comes to would not be searched completely.
    const ROUTERS: usize = 12;

    /// Routers whose slot for a neighbour is its number, and their links.
    #[derive(Debug)]
    struct Graph(BTreeSet<(usize, usize)>);

    impl Graph {
        fn are_linked(&self, one: usize, other: usize) -> bool {
            self.0.contains(&(one.min(other), one.max(other)))
        }

        fn around(&self, at: usize) -> Vec<Neighbour> {
            let back = Some(Slot(at as u16));
            let neighbour = |other| Neighbour { id: id(other), slot: Slot(other as u16), back };
            (0..ROUTERS).filter(|&other| self.are_linked(at, other)).map(neighbour).collect()
        }

        /// Returns the routers of a shortest way without its beginning, if there is one over what is allowed.
        fn way(
            &self,
            from: usize,
            to: usize,
            allows: impl Fn(usize, usize) -> bool,
        ) -> Option<Vec<usize>> {
            let (mut before, mut next) = (BTreeMap::from([(from, from)]), vec![from]);
            while !before.contains_key(&to) && !next.is_empty() {
                let mut found = Vec::new();
                for at in next {
                    for other in 0..ROUTERS {
                        let is_new = !before.contains_key(&other);
                        if is_new && self.are_linked(at, other) && allows(at, other) {
                            before.insert(other, at);
                            found.push(other);
                        }
                    }
                }
                next = found;
            }
            let mut way = vec![to];
            while let Some(&at) = before.get(way.last()?).filter(|&&at| at != from) {
                way.push(at);
            }
            before.contains_key(&to).then(|| way.into_iter().rev().collect())
        }
    }

    fn id(at: usize) -> NodeId {
        NodeId::new((at as u64 + 1) << 32)
    }

    /// Knows a route to anybody, which is drawn, and may lead nowhere.
    struct Drawn(Vec<u16>);

    impl Choice for Drawn {
        fn best(&self, _: NodeId, is_allowed: &dyn Fn(&Contact) -> bool) -> Option<Route> {
            let mut contacts = self.0.windows(3).map(|slots| {
                let mut labels = Labels::default();
                let _ = labels.push(Slot(slots[1]), Slot(0));
                let route = Route { first: Slot(slots[0]), labels };
                Contact {
                    id: id(slots[2].into()),
                    route,
                    cost: 1,
                    mark: 0,
                    said: Default::default(),
                }
            });
            contacts.find(|contact| is_allowed(contact)).map(|contact| contact.route)
        }

        fn closest(&self, _: NodeId, allowed: &[Neighbour]) -> Option<Slot> {
            allowed.get(usize::from(self.0[0]) % allowed.len().max(1)).map(|other| other.slot)
        }
    }

    /// Walks from 0 to the last router. Returns the way, if there is one, and the number of steps. A router that is hostile
    /// changes what it can of what passes.
    fn walked(
        graph: &Graph,
        mut avoided: Avoided,
        first: usize,
        drawn: &[u16],
        hostile: Option<(usize, [u8; 4])>,
    ) -> (Option<Vec<usize>>, u16) {
        let route = Route::direct(Slot(0));
        let target = id(ROUTERS - 1);
        let mut message = Routed::new(Message::LookUpApart, ID, id(0), target, &route, &[]);
        let (mut at, mut entered, mut steps) = (0, Entered::Origin(Slot(first as u16)), 0);
        loop {
            let around = graph.around(at);
            let detours = Detours::default();
            let distance = |_, _| 0;
            let (own, neighbours) = (id(at), &around[..]);
            let here = Here { id: own, neighbours, detours: &detours, closes: true, distance };
            let choice = Drawn(drawn[at..].to_vec());
            match walk(&mut message, &mut avoided, here, entered, &choice) {
                Walk::Out(slot) => {
                    steps += 1;
                    let next = usize::from(slot.0);
                    assert!(graph.are_linked(at, next), "{at} has no link to {next}");
                    (entered, at) = (Entered::By(Slot(at as u16)), next);
                }
                Walk::Arrived(back) => {
                    let labels = back.labels.iter().map(|(_, slot)| slot);
                    let slots: Vec<Slot> = core::iter::once(back.first).chain(labels).collect();
                    let way = slots.iter().rev().skip(1).map(|slot| usize::from(slot.0));
                    return (Some(way.chain([at]).collect()), steps);
                }
                Walk::Exhausted if matches!(entered, Entered::By(_)) => {
                    message.record = Some(crate::wire::Record::new(id(0).tag(ID.0)));
                    entered = Entered::Origin(Slot(first as u16));
                }
                Walk::Exhausted | Walk::Dropped => return (None, steps),
            }
            if let Some((_, [one, other, third, fourth])) = hostile.filter(|&(liar, _)| liar == at)
            {
                avoided.passed.truncate(usize::from(one % 8));
                avoided.route.truncate(usize::from(other % 8));
                avoided.links_alone ^= third & 1 != 0;
                avoided.uncut ^= third & 2 != 0;
                if third & 4 != 0 {
                    message.record = Some(crate::wire::Record::new(id(fourth.into()).tag(ID.0)));
                }
                let _ = message.labels.push(Slot((fourth % 12).into()), Slot(0));
            }
        }
    }

    /// Returns a graph, the shortest way from 0 to the last router, and what avoids it.
    fn case(links: &[(usize, usize)]) -> Option<(Graph, Vec<usize>, Avoided)> {
        let links = links.iter().filter(|(one, other)| one != other);
        let graph = Graph(links.map(|&(one, other)| (one.min(other), one.max(other))).collect());
        let way = graph.way(0, ROUTERS - 1, |_, _| true)?;
        let route = way.iter().map(|&at| id(at).tag(ID.0)).collect();
        Some((graph, way, Avoided { route, ..Avoided::default() }))
    }

    fn links() -> impl Strategy<Value = Vec<(usize, usize)>> {
        proptest::collection::vec((0..ROUTERS, 0..ROUTERS), 8..40)
    }

    proptest! {
        /// A way that shares nothing is found if there is one, and what is found shares nothing.
        #[test]
        fn a_way_is_found_if_there_is_one(
            links in links(),
            drawn in proptest::collection::vec(0..ROUTERS as u16, 2 * ROUTERS),
            uncut: bool,
            links_alone: bool,
        ) {
            let Some((graph, way, avoided)) = case(&links) else { return Ok(()) };
            let whole: Vec<usize> = [0].into_iter().chain(way.iter().copied()).collect();
            let shares = |one: usize, other: usize| {
                whole.windows(2).any(|link| link == [one, other] || link == [other, one])
            };
            let between = &way[..way.len() - 1];
            let allows = |one: usize, other: usize| {
                !shares(one, other) && (links_alone || !between.contains(&other))
            };
            let avoided = Avoided { uncut, links_alone, ..avoided };
            let (found, steps) = walked(&graph, avoided, way[0], &drawn, None);
            prop_assert!(steps <= 2 * ROUTERS as u16);
            let exists = graph.way(0, ROUTERS - 1, allows);
            // One that is cut may pass by a way.
            prop_assert!(!uncut || found.is_some() == exists.is_some(), "{found:?} and {exists:?}");
            if let Some(found) = found {
                let all: Vec<usize> = [0].into_iter().chain(found).collect();
                let is_right = all.windows(2).all(|link| {
                    graph.are_linked(link[0], link[1]) && allows(link[0], link[1])
                });
                prop_assert!(is_right, "{all:?} beside {whole:?}");
            }
        }

        /// However a router changes what passes, a message takes no more steps than its limit.
        #[test]
        fn a_liar_does_not_have_it_walk_for_ever(
            links in links(),
            drawn in proptest::collection::vec(0..ROUTERS as u16, 2 * ROUTERS),
            liar in 1..ROUTERS,
            lies: [u8; 4],
        ) {
            let Some((graph, way, avoided)) = case(&links) else { return Ok(()) };
            let (_, steps) = walked(&graph, avoided, way[0], &drawn, Some((liar, lies)));
            prop_assert!(steps <= WALK_LIMIT);
        }
    }
}
