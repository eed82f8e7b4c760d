//! Near contacts that were lost with a link. A link that comes back soon makes their routes good again, because slots of
//! lost neighbours are reserved: so they are tried by the route that they had, ever more rarely, as long as slots are
//! reserved. Without that, two parts of a line that were apart for a moment would grow together one pair after the other.

use ringway_sansio::Time;
use ringway_sansio::time::{Duration, sooner};
use smallvec::SmallVec;

use super::{Action, Overlay};
use crate::id::NodeId;
use crate::metric::Space;
use crate::routes::Contact;
use crate::wire::Route;

/// Maximum number of lost contacts that are tried.
const MAX_MISSED: usize = 8;
/// Time until the first try, doubled each time up to the last.
const FIRST_WAIT: Duration = Duration::from_secs(2);
const LAST_WAIT: Duration = Duration::from_secs(64);

/// A lost contact.
#[derive(Clone, Debug)]
struct Missed {
    id: NodeId,
    route: Route,
    wait: Duration,
    /// When it is tried next; not known before the next review.
    due: Option<Time>,
}

/// The lost contacts of a router, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct MissedContacts {
    all: SmallVec<[Missed; 0]>,
}

impl MissedContacts {
    /// A near contact was lost, though not by what it has done itself.
    pub(super) fn add(&mut self, contact: &Contact) {
        if contact.is_neighbour() {
            return;
        }
        self.all.retain(|missed| missed.id != contact.id);
        if self.all.len() >= MAX_MISSED {
            self.all.remove(0);
        }
        let (id, route) = (contact.id, contact.route.clone());
        self.all.push(Missed { id, route, wait: FIRST_WAIT, due: None });
    }

    /// Sets the time of those that were added since the last call.
    pub(super) fn review(&mut self, now: Time) {
        for missed in &mut self.all {
            missed.due.get_or_insert(now + missed.wait);
        }
    }

    pub(super) fn due(&self) -> Option<Time> {
        self.all.iter().fold(None, |least, missed| sooner(least, missed.due))
    }

    /// Returns those that are due, of which `is_missed` says that they still are.
    fn take_due(
        &mut self,
        now: Time,
        is_missed: impl Fn(NodeId) -> bool,
    ) -> SmallVec<[(NodeId, Route); 2]> {
        let mut tried = SmallVec::new();
        self.all.retain(|missed| {
            if missed.due.is_none_or(|due| due > now) {
                return true;
            }
            if !is_missed(missed.id) {
                return false;
            }
            tried.push((missed.id, missed.route.clone()));
            missed.wait *= 2;
            missed.due = Some(now + missed.wait);
            missed.wait <= LAST_WAIT
        });
        tried
    }

    /// Returns the octets that are allocated.
    pub(super) fn heap_bytes(&self) -> usize {
        let routes: usize = self.all.iter().map(|missed| missed.route.heap_bytes()).sum();
        self.all.capacity() * size_of::<Missed>() + routes
    }
}

impl<S: Space> Overlay<S> {
    /// Tries the lost contacts that are due by the routes that they had, unless they are known again or others are nearer.
    pub(super) fn try_missed(&mut self, now: Time, out: &mut Vec<Action>) {
        let (contacts, near) = (&self.contacts, self.limits.near);
        let is_missed = |id| {
            let Err(at) = contacts.ids().binary_search(&id) else { return false };
            let mut ids: SmallVec<[NodeId; 128]> = SmallVec::from_slice(contacts.ids());
            ids.insert(at, id);
            S::near(contacts.own(), &ids, near).contains(&id)
        };
        for (id, route) in self.missed.take_due(now, is_missed) {
            self.connect(id, route, self.limits.pending, out);
        }
    }
}
