//! Introductions: which contacts a router sends to which other.

use crate::id::NodeId;
use crate::metric::Space;
use crate::ring::Action;
use crate::routes::{Contact, ContactTable};
use crate::wire::{Hint, Hints, Slot};

/// Returns the hints for `peer`, whose messages enter by `entered`.
pub(super) fn hints<S: Space>(contacts: &ContactTable<S>, peer: NodeId, entered: Slot) -> Hints {
    let ids = S::hints(contacts.own(), peer, contacts.ids());
    ids.into_iter().filter_map(|id| hint(contacts.get(id)?, entered)).collect()
}

/// Returns the introduction of a contact that is not kept, or `None` if nobody is closer to it. Then it is the router
/// itself that is beside it, and the contact would have been kept.
pub(super) fn delegate<S: Space>(contacts: &ContactTable<S>, gone: &Contact) -> Option<Action> {
    let to = S::delegate(contacts.own(), gone.id, contacts.ids())?;
    let route = contacts.get(to)?.route.clone();
    let hint = hint(gone, route.first)?;
    Some(Action::Introduce { to, route, hint })
}

/// Returns the hint of a contact for a router whose messages enter by `entered`. `None` if the route is too long.
fn hint(contact: &Contact, entered: Slot) -> Option<Hint> {
    let onward = contact.route.onward(entered).ok()?;
    Some(Hint { id: contact.id, cost: contact.cost, onward })
}
