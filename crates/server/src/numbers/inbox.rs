//! What waits for the thread of short numbers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringway_mesh::NodeId;

/// Messages of other routers that may wait.
pub const MAX_MESSAGES: usize = 1_024;
/// Messages of one router that may wait.
pub const MAX_OF_ROUTER: usize = 32;

/// What has come since the thread looked last.
#[derive(Default, Debug)]
pub(super) struct Received {
    /// Messages of other routers.
    pub(super) messages: VecDeque<(NodeId, Box<[u8]>)>,
    /// Messages that found no room.
    pub(super) dropped: u64,
    /// The routers beside this one on the ring, if they have changed.
    pub(super) neighbours: Option<Vec<NodeId>>,
    /// The routers that have users, and how many users there are, if they were listed.
    pub(super) homes: Option<(Vec<NodeId>, usize)>,
    /// Users that were added or removed, in their order: whether each is there now.
    pub(super) users: Vec<(Box<str>, bool)>,
    /// Whether to end.
    pub(super) stop: bool,
}

impl Received {
    fn is_empty(&self) -> bool {
        let Received { messages, neighbours, homes, users, stop, .. } = self;
        messages.is_empty() && neighbours.is_none() && homes.is_none() && users.is_empty() && !stop
    }
}

#[derive(Default)]
struct State {
    received: Received,
    /// Messages that wait, by their sender.
    of_router: BTreeMap<NodeId, usize>,
}

/// The inbox of the thread. Whoever puts something into it does not wait.
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
        self.put(|state| {
            let held = state.of_router.get(&router).copied().unwrap_or(0);
            if held >= MAX_OF_ROUTER || state.received.messages.len() >= MAX_MESSAGES {
                state.received.dropped += 1;
                return;
            }
            state.of_router.insert(router, held + 1);
            state.received.messages.push_back((router, octets));
        });
    }

    /// Takes the routers beside this one on the ring.
    pub fn neighbours(&self, routers: Vec<NodeId>) {
        self.put(|state| state.received.neighbours = Some(routers));
    }

    /// Takes the routers that have users, and the number of all users.
    pub fn homes(&self, routers: Vec<NodeId>, users: usize) {
        self.put(|state| state.received.homes = Some((routers, users)));
    }

    pub(super) fn add_user(&self, name: Box<str>) {
        self.put(|state| state.received.users.push((name, true)));
    }

    pub(super) fn remove_user(&self, name: Box<str>) {
        self.put(|state| state.received.users.push((name, false)));
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
        state.of_router.clear();
        std::mem::take(&mut state.received)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_router_leaves_room_for_others() {
        let inbox = Inbox::default();
        (0..10_000).for_each(|_| inbox.message(NodeId::new(1), [1].into()));
        (2..12).for_each(|id| inbox.message(NodeId::new(id), [2].into()));
        let received = inbox.wait(Duration::ZERO);
        assert_eq!(received.messages.len(), MAX_OF_ROUTER + 10);
        assert_eq!(received.dropped, 10_000 - MAX_OF_ROUTER as u64);
        // What was taken makes room.
        inbox.message(NodeId::new(1), [3].into());
        assert_eq!(inbox.wait(Duration::ZERO).messages, [(NodeId::new(1), [3].into())]);
    }

    #[test]
    fn the_last_neighbours_count_and_users_keep_their_order() {
        let inbox = Inbox::default();
        inbox.neighbours(vec![NodeId::new(1)]);
        inbox.neighbours(vec![NodeId::new(2)]);
        inbox.add_user("alice@mesh".into());
        inbox.remove_user("alice@mesh".into());
        let received = inbox.wait(Duration::from_secs(60));
        assert_eq!(received.neighbours, Some(vec![NodeId::new(2)]));
        let users: Vec<bool> = received.users.iter().map(|(_, is_there)| *is_there).collect();
        assert_eq!(users, [true, false]);
        assert!(!received.stop && inbox.wait(Duration::ZERO).is_empty());
        inbox.stop();
        assert!(inbox.wait(Duration::from_secs(60)).stop);
    }
}
