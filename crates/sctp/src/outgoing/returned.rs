//! Undelivered messages that are returned to their user (RFC 9260 sections 11.1.14 and 11.1.15).

use super::{Message, Outgoing};
use bytes::Bytes;
use std::collections::VecDeque;

/// A message that was not acknowledged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UndeliveredMessage {
    /// The stream.
    pub stream: u16,
    /// Payload protocol identifier.
    pub ppid: u32,
    /// Whether it was to be delivered without regard to the order of the stream.
    pub unordered: bool,
    /// Whether something of it was sent, so that the peer may have it.
    pub sent: bool,
    /// The bytes of the message.
    pub data: Bytes,
}

/// Undelivered messages that wait to be returned to the user.
#[derive(Debug)]
pub(super) struct Returned {
    /// Whether undelivered messages are returned.
    enabled: bool,
    messages: VecDeque<UndeliveredMessage>,
    bytes: usize,
}

impl Returned {
    pub(super) fn new(enabled: bool) -> Returned {
        Returned { enabled, messages: VecDeque::new(), bytes: 0 }
    }

    /// Returns the bytes of the messages.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn push(&mut self, message: UndeliveredMessage) {
        self.bytes += message.data.len();
        self.messages.push_back(message);
    }

    fn pop(&mut self) -> Option<UndeliveredMessage> {
        let message = self.messages.pop_front()?;
        self.bytes -= message.data.len();
        Some(message)
    }
}

impl Outgoing {
    /// Returns an abandoned message to its user, if that is configured.
    pub(super) fn return_message(&mut self, key: u32) {
        if !self.returned.enabled {
            return;
        }
        let Some(message) = self.messages.get(key as usize) else { return };
        let &Message { stream, ppid, unordered, cut, ref data, .. } = message;
        if data.is_empty() {
            return;
        }
        let (sent, data) = (cut > 0, data.clone());
        self.returned.push(UndeliveredMessage { stream, ppid, unordered, sent, data });
    }

    /// Returns messages that were begun and not acknowledged.
    pub(super) fn return_sent(&mut self) {
        if !self.returned.enabled {
            return;
        }
        let heads = self.queues.iter().map(|queue| queue.head);
        let chunks = self.sent.iter().map(|chunk| chunk.message);
        let keys: Vec<u32> = chunks.chain(self.current).chain(heads).collect();
        for key in keys {
            // Each message is returned once.
            if let Some(message) = self.messages.get_mut(key as usize)
                && message.cut > 0
                && !core::mem::replace(&mut message.abandoned, true)
            {
                self.return_message(key);
            }
        }
    }

    /// Returns the unsent messages of a stream.
    pub(super) fn return_queue(&mut self, stream: usize) {
        if !self.returned.enabled {
            return;
        }
        let mut at = self.queues[stream].head;
        while let Some(message) = self.messages.get(at as usize) {
            let (next, begun) = (message.next, message.cut > 0);
            if !begun {
                self.return_message(at);
            }
            at = next;
        }
    }

    /// Returns everything that was not acknowledged, sent messages first, when the association has
    /// ended.
    pub(crate) fn return_all(&mut self) {
        self.return_sent();
        for stream in 0..self.queues.len() {
            self.return_queue(stream);
        }
    }

    /// Removes and returns the next undelivered message.
    pub(crate) fn take_returned(&mut self) -> Option<UndeliveredMessage> {
        self.returned.pop()
    }

    /// Returns whether there is an undelivered message.
    pub(crate) fn has_returned(&self) -> bool {
        !self.returned.messages.is_empty()
    }
}
