//! What waits for the thread of short numbers.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringway_mesh::NodeId;

use tokio::sync::oneshot;

use super::orders::{Answer, Order, Waiting};
use crate::messages::Messages;

/// Maximum number of orders that wait.
const MAX_ORDERS: usize = 16;

/// What has come since the thread looked last.
#[derive(Default, Debug)]
pub(super) struct Received {
    /// Messages of other routers.
    pub(super) messages: Messages<NodeId>,
    /// The routers beside this one on the ring, if they have changed.
    pub(super) neighbours: Option<Vec<NodeId>>,
    /// The routers that have users, and how many users there are, if they were listed.
    pub(super) homes: Option<(Vec<NodeId>, usize)>,
    /// Users that were added or removed, in their order: whether each is there now.
    pub(super) users: Vec<(Box<str>, bool)>,
    /// What operators ask.
    pub(super) orders: Vec<Waiting>,
    /// Whether to end.
    pub(super) stop: bool,
}

impl Received {
    fn is_empty(&self) -> bool {
        let Received { messages, neighbours, homes, users, orders, stop } = self;
        messages.is_empty()
            && neighbours.is_none()
            && homes.is_none()
            && users.is_empty()
            && orders.is_empty()
            && !stop
    }
}

/// The inbox of the thread. Whoever puts something into it does not wait.
#[derive(Default)]
pub struct Inbox {
    received: Mutex<Received>,
    wake: Condvar,
}

impl Inbox {
    fn put(&self, change: impl FnOnce(&mut Received)) {
        change(&mut self.lock());
        self.wake.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Received> {
        // Each change is complete before anything that could panic.
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a message of another router. One router cannot take the room of others.
    pub fn message(&self, router: NodeId, octets: Box<[u8]>) {
        self.put(|received| received.messages.push(router, octets));
    }

    /// Takes the routers beside this one on the ring.
    pub fn neighbours(&self, routers: Vec<NodeId>) {
        self.put(|received| received.neighbours = Some(routers));
    }

    /// Takes the routers that have users, and the number of all users.
    pub fn homes(&self, routers: Vec<NodeId>, users: usize) {
        self.put(|received| received.homes = Some((routers, users)));
    }

    pub(super) fn add_user(&self, name: Box<str>) {
        self.put(|received| received.users.push((name, true)));
    }

    pub(super) fn remove_user(&self, name: Box<str>) {
        self.put(|received| received.users.push((name, false)));
    }

    /// Takes an order; `None` if too many wait.
    pub(super) fn order(&self, order: Order) -> Option<oneshot::Receiver<Answer>> {
        let (reply, answer) = oneshot::channel();
        let mut is_taken = false;
        self.put(|received| {
            is_taken = received.orders.len() < MAX_ORDERS;
            if is_taken {
                received.orders.push(Waiting { order, reply });
            }
        });
        is_taken.then_some(answer)
    }

    pub(super) fn stop(&self) {
        self.put(|received| received.stop = true);
    }

    /// Waits until something comes, or the time is over, and removes what has come.
    pub(super) fn wait(&self, time: Duration) -> Received {
        let is_empty = |received: &mut Received| received.is_empty();
        let waited = self.wake.wait_timeout_while(self.lock(), time, is_empty);
        std::mem::take(&mut *waited.unwrap_or_else(PoisonError::into_inner).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
