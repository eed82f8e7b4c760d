//! What waits for the thread of states.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringway_directory::Whereabouts;
use ringway_mesh::NodeId;

use crate::mesh::messages::Messages;

/// What has come since the thread looked last.
#[derive(Default, Debug)]
pub(super) struct Received {
    /// Messages of other routers.
    pub(super) messages: Messages,
    /// Users, as addresses-of-record, who are watched or not any more, or whose state here may have changed. At most those
    /// that are watched, here or by other routers.
    pub(super) changed: BTreeSet<Box<[u8]>>,
    /// The routers at which users are registered; `None` if that could not be found out. At most those that are followed.
    pub(super) located: BTreeMap<Box<str>, Option<Vec<NodeId>>>,
    /// Whether to end.
    pub(super) stop: bool,
}

impl Received {
    fn is_empty(&self) -> bool {
        let Received { messages, changed, located, stop, .. } = self;
        messages.is_empty() && changed.is_empty() && located.is_empty() && !stop
    }
}

#[derive(Default)]
struct State {
    received: Received,
    /// Users whose routers the thread wants to know.
    followed: BTreeSet<Box<str>>,
}

/// The inbox of the thread. What puts something into it does not wait.
#[derive(Default)]
pub struct Inbox {
    state: Mutex<State>,
    wake: Condvar,
}

impl Inbox {
    fn put(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.wake.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is complete before anything that could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a message of another router. One router cannot take the room of others.
    pub fn message(&self, router: NodeId, octets: Box<[u8]>) {
        self.put(|state| state.received.messages.push(router, octets));
    }

    /// Takes the address-of-record of a user who is watched or not any more, or whose state here may have changed.
    pub fn changed(&self, aor: &[u8]) {
        self.put(|state| {
            state.received.changed.insert(aor.into());
        });
    }

    /// Takes what the directory has found, if the user is followed. Whoever has asked for it.
    pub fn located(&self, name: &str, whereabouts: &Whereabouts) {
        if !self.lock().followed.contains(name) {
            return;
        }
        let routers = match whereabouts {
            Whereabouts::Found(located) => {
                Some(located.routers.iter().map(|&(router, _)| router).collect())
            }
            Whereabouts::Unavailable => None,
        };
        self.put(|state| {
            state.received.located.insert(name.into(), routers);
        });
    }

    /// Sets whether the routers of a user are wanted.
    pub(super) fn follow(&self, name: &str, is_followed: bool) {
        let mut state = self.lock();
        match is_followed {
            true => _ = state.followed.insert(name.into()),
            false => _ = state.followed.remove(name),
        }
    }

    pub(super) fn stop(&self) {
        self.put(|state| state.received.stop = true);
    }

    /// Waits until something comes, or the time is over, and removes what has come.
    pub(super) fn wait(&self, time: Duration) -> Received {
        let state = self.lock();
        let is_empty = |state: &mut State| state.received.is_empty();
        let waited = self.wake.wait_timeout_while(state, time, is_empty);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        std::mem::take(&mut state.received)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_who_changes_often_waits_once_and_only_followed_ones_are_located() {
        let inbox = Inbox::default();
        (0..100).for_each(|_| inbox.changed(b"sip:alice@mesh"));
        inbox.follow("alice@mesh", true);
        inbox.located("alice@mesh", &Whereabouts::Found(Default::default()));
        inbox.located("alice@mesh", &Whereabouts::Unavailable);
        inbox.located("bob@mesh", &Whereabouts::Unavailable);
        let received = inbox.wait(Duration::from_secs(60));
        assert_eq!(received.changed.len(), 1);
        assert_eq!(received.located, BTreeMap::from([("alice@mesh".into(), None)]));
        inbox.follow("alice@mesh", false);
        inbox.located("alice@mesh", &Whereabouts::Unavailable);
        assert!(inbox.wait(Duration::ZERO).is_empty());
        inbox.stop();
        assert!(inbox.wait(Duration::from_secs(60)).stop);
    }
}
