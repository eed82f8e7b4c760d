//! Messages that wait to be sent: bounded, with a policy for each when there is no room, and a lifetime.

use bytes::Bytes;
use ringway_sansio::{Duration, Time};
use std::collections::VecDeque;

/// What happens to a message when the queue is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum WhenFull {
    /// It is refused.
    #[default]
    DropNewest,
    /// The oldest message makes room for it.
    DropOldest,
}

/// How a message is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendOptions {
    /// What happens when the queue is full.
    pub when_full: WhenFull,
    /// Time in the queue after which the message is dropped; `None` keeps it.
    pub lifetime: Option<Duration>,
}

#[derive(Clone, Debug)]
struct Queued {
    data: Bytes,
    expires: Option<Time>,
}

/// The queue.
#[derive(Clone, Debug)]
pub(crate) struct SendQueue {
    messages: VecDeque<Queued>,
    limit: usize,
    /// Whether a message was refused since the queue had room.
    refused: bool,
    /// Number of messages that made room for others.
    pub(crate) evicted: u64,
    /// Number of messages whose lifetime ended.
    pub(crate) expired: u64,
}

impl SendQueue {
    pub(crate) fn new(limit: usize) -> SendQueue {
        SendQueue { messages: VecDeque::new(), limit, refused: false, evicted: 0, expired: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Queues a message. Returns whether there was room or it was made.
    pub(crate) fn push(&mut self, now: Time, data: Bytes, options: SendOptions) -> bool {
        if self.messages.len() >= self.limit {
            self.expire(now);
        }
        if self.messages.len() >= self.limit {
            if options.when_full == WhenFull::DropNewest {
                self.refused = true;
                return false;
            }
            self.messages.pop_front();
            self.evicted += 1;
        }
        let expires = options.lifetime.map(|lifetime| now + lifetime);
        self.messages.push_back(Queued { data, expires });
        true
    }

    /// Drops every message whose lifetime has ended.
    fn expire(&mut self, now: Time) {
        let before = self.messages.len();
        self.messages.retain(|message| message.expires.is_none_or(|at| at > now));
        self.expired += (before - self.messages.len()) as u64;
    }

    /// Returns the length in bytes of the next message. Those before it whose lifetime has ended are
    /// dropped.
    pub(crate) fn next_len(&mut self, now: Time) -> Option<usize> {
        while let Some(first) = self.messages.front() {
            if first.expires.is_none_or(|at| at > now) {
                return Some(first.data.len());
            }
            self.messages.pop_front();
            self.expired += 1;
        }
        None
    }

    /// Removes the next message.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        self.messages.pop_front().map(|message| message.data)
    }

    /// Drops all messages. Returns their number.
    pub(crate) fn clear(&mut self) -> usize {
        let count = self.messages.len();
        self.messages.clear();
        count
    }

    /// Returns once whether a quarter of the queue is free after a message was refused.
    pub(crate) fn has_room_again(&mut self) -> bool {
        let room = self.messages.len() <= self.limit - self.limit.div_ceil(4);
        room && core::mem::take(&mut self.refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(n: u8) -> Bytes {
        Bytes::from(vec![n])
    }

    #[test]
    fn a_full_queue_drops_by_the_policy_of_the_new_message() {
        let now = Time::from_secs(1);
        let mut queue = SendQueue::new(2);
        let oldest = SendOptions { when_full: WhenFull::DropOldest, lifetime: None };
        assert!(queue.push(now, message(1), SendOptions::default()));
        assert!(queue.push(now, message(2), SendOptions::default()));
        assert!(!queue.push(now, message(3), SendOptions::default()));
        assert!(queue.push(now, message(4), oldest));
        assert_eq!((queue.len(), queue.evicted), (2, 1));
        assert!(!queue.has_room_again());
        assert_eq!(queue.pop(), Some(message(2)));
        assert!(queue.has_room_again() && !queue.has_room_again());
        assert_eq!(queue.pop(), Some(message(4)));
    }

    #[test]
    fn a_lifetime_ends_in_the_queue() {
        let mut queue = SendQueue::new(2);
        let short =
            SendOptions { lifetime: Some(Duration::from_secs(1)), ..SendOptions::default() };
        queue.push(Time::from_secs(1), message(1), short);
        queue.push(Time::from_secs(1), message(2), SendOptions::default());
        assert_eq!(queue.next_len(Time::from_millis(1999)), Some(1));
        assert_eq!(queue.len(), 2);
        assert!(queue.push(Time::from_secs(2), message(3), SendOptions::default()));
        assert_eq!((queue.expired, queue.pop()), (1, Some(message(2))));
    }
}
