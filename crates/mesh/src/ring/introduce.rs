//! Introductions: which contacts a router sends to which other, and what it makes of those that are sent to it.

use super::{Action, LEAST_COST, Overlay};
use crate::config::MAX_HOPS;
use crate::id::NodeId;
use crate::metric::Space;
use crate::routes::{Contact, ContactTable};
use crate::wire::{Hint, Hints, Route, Slot};

/// How a message with hints goes to its receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Towards<'a> {
    /// Along a route. The receiver knows the way back.
    Route(&'a Route),
    /// By way of the ring. It leaves by this slot, and the way back is not known here.
    Ring(Slot),
}

impl<S: Space> Overlay<S> {
    /// Returns what to tell `peer`: the contacts beside it.
    pub fn hints(&self, peer: NodeId, towards: Towards<'_>) -> Hints {
        let contacts = &self.contacts;
        let ids = S::hints(contacts.own(), peer, contacts.ids());
        ids.into_iter().filter_map(|id| hint(contacts.get(id)?, towards)).collect()
    }

    /// Handles a hint from the router at the end of `route`.
    pub fn hear(&mut self, route: &Route, cost: u16, hint: &Hint, out: &mut Vec<Action>) {
        match joined(route, hint) {
            Some(joined) => {
                let least = LEAST_COST.saturating_mul(joined.hops());
                let kept = share(cost, route.hops() - hint.back, route.hops());
                self.offer(hint.id, joined, kept.saturating_add(hint.cost).max(least), out);
            }
            None => self.counters.too_long += 1,
        }
    }
}

/// Returns the way to the router that a hint is about, which turns off the route to its sender. `None` if it would have too
/// many links.
pub(super) fn joined(route: &Route, hint: &Hint) -> Option<Route> {
    route.branch(hint.back, &hint.onward).filter(|route| route.hops() <= MAX_HOPS)
}

/// Returns what a part of the links of a route costs.
fn share(cost: u16, part: u16, links: u16) -> u16 {
    (u32::from(cost) * u32::from(part) / u32::from(links.max(1))) as u16
}

/// Returns the introduction of a contact that is not kept, or `None` if nobody is closer to it. Then it is the router
/// itself that is beside it, and the contact would have been kept.
pub(super) fn delegate<S: Space>(contacts: &ContactTable<S>, gone: &Contact) -> Option<Action> {
    let to = S::delegate(contacts.own(), gone.id, contacts.ids())?;
    let route = contacts.get(to)?.route.clone();
    let hint = hint(gone, Towards::Route(&route))?;
    Some(Action::Introduce { to, route, hint })
}

/// Returns the hint of a contact for the receiver of a message. `None` if the route is too long.
pub(super) fn hint(contact: &Contact, towards: Towards<'_>) -> Option<Hint> {
    let Contact { id, cost, ref route, .. } = *contact;
    let (back, onward) = match towards {
        Towards::Route(towards) => route.part(towards).ok()?,
        Towards::Ring(entered) => (0, route.onward(entered).ok()?),
    };
    Some(Hint { id, cost: share(cost, route.hops() - back, route.hops()), back, onward })
}
