//! Messages of other servers that wait for a thread of this one.

use std::collections::{BTreeMap, VecDeque};

/// Messages that may wait.
pub(crate) const MAX_MESSAGES: usize = 1_024;
/// Messages of one server that may wait.
pub(crate) const MAX_OF_SERVER: usize = 32;

/// Messages, each with its sender.
pub(crate) type Waiting<I> = VecDeque<(I, Box<[u8]>)>;

/// Messages in their order. One server cannot take the room of others.
#[derive(Debug)]
pub(crate) struct Messages<I> {
    waiting: Waiting<I>,
    /// Messages that wait, by their sender.
    of_server: BTreeMap<I, usize>,
    dropped: u64,
}

impl<I> Default for Messages<I> {
    fn default() -> Self {
        Messages { waiting: VecDeque::new(), of_server: BTreeMap::new(), dropped: 0 }
    }
}

impl<I: Copy + Ord> Messages<I> {
    /// Returns whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds a message, or counts it as dropped if there is no room for it.
    pub(crate) fn push(&mut self, server: I, octets: Box<[u8]>) {
        let held = self.of_server.entry(server).or_default();
        if *held >= MAX_OF_SERVER || self.waiting.len() >= MAX_MESSAGES {
            self.dropped += 1;
            return;
        }
        *held += 1;
        self.waiting.push_back((server, octets));
    }

    /// Removes and returns all messages, and the number of those that were dropped since the last call.
    pub(crate) fn take(&mut self) -> (Waiting<I>, u64) {
        let Messages { waiting, dropped, .. } = std::mem::take(self);
        (waiting, dropped)
    }
}

#[cfg(test)]
mod tests {
    use ringway_mesh::NodeId;

    use super::*;

    #[test]
    fn one_server_leaves_room_for_others() {
        let mut messages = Messages::default();
        (0..10_000).for_each(|_| messages.push(NodeId::new(1), [1].into()));
        (2..12).for_each(|id| messages.push(NodeId::new(id), [2].into()));
        let (waiting, dropped) = messages.take();
        assert_eq!(waiting.len(), MAX_OF_SERVER + 10);
        assert_eq!(dropped, 10_000 - MAX_OF_SERVER as u64);
        // What was taken makes room.
        messages.push(NodeId::new(1), [3].into());
        assert_eq!(messages.take(), (VecDeque::from([(NodeId::new(1), [3].into())]), 0));
        (0..10_000).for_each(|id| messages.push(NodeId::new(id), [4].into()));
        assert_eq!(messages.take().0.len(), MAX_MESSAGES);
    }
}
