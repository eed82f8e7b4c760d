//! What waits for the thread of states.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringway_directory::Whereabouts;
use ringway_mesh::NodeId;
use ringway_proxy::AskId;
use ringway_proxy::location::Change;

use crate::messages::Messages;

/// What has come since the thread looked last.
#[derive(Debug)]
pub(super) struct Received<I> {
    /// Messages of other servers.
    pub(super) messages: Messages<I>,
    /// Users, as addresses-of-record, who are watched or not any more, or whose state here may have changed: the last reason
    /// for which registrations have. At most those that are watched, here or by other servers.
    pub(super) changed: BTreeMap<Box<[u8]>, Option<Change>>,
    /// The servers at which users are registered; `None` if that could not be found out. At most those that are followed.
    pub(super) located: BTreeMap<Box<str>, Option<Vec<I>>>,
    /// Addresses-of-record of followed users who have moved.
    pub(super) moved: BTreeSet<Box<[u8]>>,
    /// Questions of the thread that are answered.
    pub(super) answered: Vec<AskId>,
    /// What has happened to other servers.
    pub(super) news: News,
    /// Whether to end.
    pub(super) stop: bool,
}

/// What has happened to other servers, or on the way to them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct News {
    /// Some have come or are gone.
    pub(super) servers: bool,
    /// Changes of users may have been missed.
    pub(super) gap: bool,
    /// Messages may have been lost.
    pub(super) lost: bool,
}

impl<I> Default for Received<I> {
    fn default() -> Self {
        Received {
            messages: Messages::default(),
            changed: BTreeMap::new(),
            located: BTreeMap::new(),
            moved: BTreeSet::new(),
            answered: Vec::new(),
            news: News::default(),
            stop: false,
        }
    }
}

impl<I: Copy + Ord> Received<I> {
    fn is_empty(&self) -> bool {
        let Received { messages, changed, located, moved, answered, news, stop } = self;
        let nothing = messages.is_empty() && changed.is_empty() && located.is_empty();
        nothing && moved.is_empty() && answered.is_empty() && *news == News::default() && !stop
    }
}

struct State<I> {
    received: Received<I>,
    /// Users whose servers the thread wants to know.
    followed: BTreeSet<Box<str>>,
}

/// The inbox of the thread. What puts something into it does not wait.
pub struct Inbox<I> {
    state: Mutex<State<I>>,
    wake: Condvar,
}

impl<I> Default for Inbox<I> {
    fn default() -> Self {
        let state = State { received: Received::default(), followed: BTreeSet::new() };
        Inbox { state: Mutex::new(state), wake: Condvar::new() }
    }
}

impl<I: Copy + Ord> Inbox<I> {
    fn put(&self, change: impl FnOnce(&mut State<I>)) {
        change(&mut self.lock());
        self.wake.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State<I>> {
        // Each change is complete before anything that could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a message of another server. One server cannot take the room of others.
    pub fn message(&self, server: I, octets: Box<[u8]>) {
        self.put(|state| state.received.messages.push(server, octets));
    }

    /// Takes the address-of-record of a user who is watched or not any more, or whose state here may have changed; with the
    /// reason if the registrations have.
    pub fn changed(&self, aor: &[u8], why: Option<Change>) {
        self.put(|state| {
            let changed = state.received.changed.entry(aor.into()).or_default();
            *changed = why.or(*changed);
        });
    }

    /// Takes the address-of-record of a followed user who has moved.
    pub fn moved(&self, aor: &[u8]) {
        self.put(|state| _ = state.received.moved.insert(aor.into()));
    }

    /// A question of the thread is answered.
    pub fn answered(&self, id: AskId) {
        self.put(|state| state.received.answered.push(id));
    }

    /// Other servers have come or are gone.
    pub fn servers_changed(&self) {
        self.put(|state| state.received.news.servers = true);
    }

    /// Changes of users may have been missed.
    pub fn gap(&self) {
        self.put(|state| state.received.news.gap = true);
    }

    /// Messages may have been lost.
    pub fn lost(&self) {
        self.put(|state| state.received.news.lost = true);
    }

    /// Sets whether the servers of a user are wanted.
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
    pub(super) fn wait(&self, time: Duration) -> Received<I> {
        let state = self.lock();
        let is_empty = |state: &mut State<I>| state.received.is_empty();
        let waited = self.wake.wait_timeout_while(state, time, is_empty);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        std::mem::take(&mut state.received)
    }
}

impl Inbox<NodeId> {
    /// Takes what the directory has found, if the user is followed. It need not have been asked for.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_who_changes_often_waits_once_and_only_followed_ones_are_located() {
        let inbox = Inbox::default();
        (0..100).for_each(|_| inbox.changed(b"sip:alice@mesh", None));
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

    #[test]
    fn the_last_reason_of_a_change_is_stored_and_news_wake() {
        let inbox = Inbox::<NodeId>::default();
        for why in [Some(Change::Updated), Some(Change::FlowClosed), None] {
            inbox.changed(b"sip:alice@mesh", why);
        }
        inbox.gap();
        let received = inbox.wait(Duration::from_secs(60));
        let changed = BTreeMap::from([(b"sip:alice@mesh"[..].into(), Some(Change::FlowClosed))]);
        assert_eq!(received.changed, changed);
        assert_eq!(received.news, News { gap: true, ..News::default() });
        inbox.moved(b"sip:alice@mesh");
        assert_eq!(inbox.wait(Duration::from_secs(60)).moved.len(), 1);
    }
}
