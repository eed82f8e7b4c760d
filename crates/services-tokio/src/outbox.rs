//! The messages of a group that wait for its transport, each connection with a share of the room.

use crate::error::Error;
use crate::waiters::Waiters;
use bytes::Bytes;
use ringway_sansio::Time;
use ringway_services::properties::Scheduler;
use ringway_services::queue::{self, ConnectionId, SendQueue};
use ringway_services::sending::Sending;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// Room that a connection has even if very many share the group, in octets.
const MIN_SHARE: usize = 64 * 1024;
/// Octets that a message uses besides its own, so that empty ones are bounded, too.
const MESSAGE_COST: usize = 256;

/// What the messages of one connection use.
#[derive(Debug, Default)]
struct Usage {
    octets: AtomicUsize,
    messages: AtomicUsize,
}

/// A message in the queue, which counts for its connection until it is dropped.
#[derive(Debug)]
struct Held {
    bytes: Bytes,
    usage: Arc<Usage>,
}

impl Held {
    fn new(bytes: Bytes, usage: &Arc<Usage>) -> Held {
        usage.octets.fetch_add(bytes.len() + MESSAGE_COST, Ordering::Relaxed);
        usage.messages.fetch_add(1, Ordering::Relaxed);
        Held { bytes, usage: usage.clone() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.usage.octets.fetch_sub(self.bytes.len() + MESSAGE_COST, Ordering::Relaxed);
        self.usage.messages.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct Member {
    usage: Arc<Usage>,
    /// Tasks that wait for room, or for the queue to be empty.
    waiters: Waiters,
}

/// A message whose turn it is.
#[derive(Debug)]
pub(crate) struct Next {
    pub(crate) connection: ConnectionId,
    pub(crate) bytes: Bytes,
    pub(crate) sending: Sending,
    /// What is left of its lifetime.
    pub(crate) lifetime_left: Option<Duration>,
}

/// The messages of a group.
pub(crate) struct Outbox {
    queue: SendQueue<Held>,
    limit: usize,
    members: BTreeMap<ConnectionId, Member>,
}

impl Outbox {
    /// Returns an empty one with room for `limit` octets.
    pub(crate) fn new(limit: usize, scheduler: Scheduler) -> Outbox {
        // What may be queued is decided here, by shares.
        let limits = queue::Limits { messages: usize::MAX, octets: usize::MAX };
        let queue = SendQueue::new(limits, scheduler);
        Outbox { queue, limit, members: BTreeMap::new() }
    }

    pub(crate) fn add(&mut self, connection: ConnectionId, priority: u32) {
        self.members.insert(connection, Member::default());
        self.queue.set_priority(connection, priority);
    }

    /// Removes a connection with its messages.
    pub(crate) fn remove(&mut self, connection: ConnectionId) {
        self.queue.remove(connection);
        if let Some(mut member) = self.members.remove(&connection) {
            member.waiters.wake();
        }
    }

    pub(crate) fn set_priority(&mut self, connection: ConnectionId, priority: u32) {
        if self.members.contains_key(&connection) {
            self.queue.set_priority(connection, priority);
        }
    }

    /// Takes in a message when its connection has room.
    pub(crate) fn poll_push(
        &mut self,
        cx: &Context<'_>,
        now: Time,
        connection: ConnectionId,
        message: &mut Bytes,
        sending: &Sending,
    ) -> Poll<Result<(), Error>> {
        let share = (self.limit / self.members.len().max(1)).max(MIN_SHARE);
        let Some(member) = self.members.get_mut(&connection) else {
            return Poll::Ready(Err(Error::Closed));
        };
        let used = member.usage.octets.load(Ordering::Relaxed);
        if used > 0 && used + message.len() + MESSAGE_COST > share {
            member.waiters.add(cx);
            return Poll::Pending;
        }
        let length = message.len();
        let held = Held::new(std::mem::take(message), &member.usage);
        match self.queue.push(now, connection, held, length, *sending) {
            Ok(_) => Poll::Ready(Ok(())),
            Err((queue::PushError::Ended, _)) => Poll::Ready(Err(Error::Ended)),
            Err((error, _)) => Poll::Ready(Err(Error::lost(error))),
        }
    }

    /// Waits until a connection has no message in the queue.
    pub(crate) fn poll_empty(&mut self, cx: &Context<'_>, connection: ConnectionId) -> Poll<()> {
        let Some(member) = self.members.get_mut(&connection) else { return Poll::Ready(()) };
        if member.usage.messages.load(Ordering::Relaxed) == 0 {
            return Poll::Ready(());
        }
        member.waiters.add(cx);
        Poll::Pending
    }

    pub(crate) fn is_empty_for(&self, connection: ConnectionId) -> bool {
        self.members
            .get(&connection)
            .is_none_or(|member| member.usage.messages.load(Ordering::Relaxed) == 0)
    }

    /// Returns the next message of a connection that can take one.
    pub(crate) fn next(
        &mut self,
        now: Time,
        can_take: impl FnMut(ConnectionId) -> bool,
    ) -> Option<Next> {
        let next = self.queue.next(now, can_take)?;
        let bytes = next.message.bytes.clone();
        drop(next.message);
        self.wake(next.connection);
        Some(Next {
            connection: next.connection,
            bytes,
            sending: next.sending,
            lifetime_left: next.lifetime_left,
        })
    }

    /// Drops what has expired, and returns the connections of those messages.
    pub(crate) fn expire(&mut self, now: Time) -> Vec<ConnectionId> {
        if self.queue.poll_timeout().is_some_and(|at| at <= now) {
            self.queue.expire(now);
        }
        let mut connections = Vec::new();
        while let Some(event) = self.queue.poll_event() {
            let (queue::Event::Expired(connection, _) | queue::Event::Discarded(connection, _)) =
                event;
            self.wake(connection);
            connections.push(connection);
        }
        connections
    }

    fn wake(&mut self, connection: ConnectionId) {
        if let Some(member) = self.members.get_mut(&connection) {
            member.waiters.wake();
        }
    }

    /// Wakes all tasks that wait, because the transport has ended.
    pub(crate) fn wake_all(&mut self) {
        self.members.values_mut().for_each(|member| member.waiters.wake());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.queue.poll_timeout()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_services::properties::{CapacityProfile, Coverage};
    use std::task::Waker;

    const NOW: Time = Time::from_secs(1);

    fn sending(lifetime: Option<Duration>) -> Sending {
        Sending {
            lifetime,
            priority: 100,
            ordered: true,
            reliable: true,
            last: false,
            checksum: Coverage(None),
            capacity_profile: CapacityProfile::Default,
            max_retransmissions: None,
            no_fragmentation: false,
            no_segmentation: false,
        }
    }

    fn push(outbox: &mut Outbox, connection: u64, length: usize) -> bool {
        let cx = Context::from_waker(Waker::noop());
        let mut message = Bytes::from(vec![0; length]);
        outbox.poll_push(&cx, NOW, connection, &mut message, &sending(None)).is_ready()
    }

    #[test]
    fn a_connection_whose_peer_does_not_read_leaves_room_to_others() {
        let mut outbox = Outbox::new(4 * MIN_SHARE, Scheduler::RoundRobin);
        outbox.add(1, 100);
        outbox.add(2, 100);
        let pushed = (0..1_000).take_while(|_| push(&mut outbox, 1, 4_096)).count();
        assert_eq!(pushed, 2 * MIN_SHARE / (4_096 + MESSAGE_COST));
        assert!(push(&mut outbox, 2, 4_096));
        // One message fits in any case.
        outbox.add(3, 100);
        assert!(push(&mut outbox, 3, 10 * MIN_SHARE) && !push(&mut outbox, 3, 1));
        assert!(!push(&mut outbox, 9, 1) || outbox.members.len() == 3);
    }

    #[test]
    fn what_has_expired_makes_room() {
        let mut outbox = Outbox::new(MIN_SHARE, Scheduler::RoundRobin);
        outbox.add(1, 100);
        let cx = Context::from_waker(Waker::noop());
        let mut message = Bytes::from_static(b"late");
        let brief = sending(Some(Duration::from_millis(5)));
        assert!(outbox.poll_push(&cx, NOW, 1, &mut message, &brief).is_ready());
        assert!(outbox.poll_empty(&cx, 1).is_pending());
        assert_eq!(outbox.expire(NOW + Duration::from_millis(5)), [1]);
        assert!(outbox.poll_empty(&cx, 1).is_ready() && outbox.is_empty());
    }
}
