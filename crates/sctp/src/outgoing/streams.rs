//! Streams that are reset (RFC 6525).

use super::{NONE, Outgoing};
use crate::numbers::{Line, Tsn};
use crate::settings::Settings;

impl Outgoing {
    /// Returns the TSN of the next chunk.
    pub(crate) fn next_tsn(&self) -> Tsn {
        self.sent.tsn(self.sent.next())
    }

    /// Closes streams, or all if none is named, to new messages.
    pub(crate) fn close_streams(&mut self, streams: &[u16]) {
        self.closed.close(streams);
    }

    /// Opens streams to messages again. With `reset` their numbers start from 0.
    pub(crate) fn open_streams(&mut self, streams: &[u16], reset: bool) {
        self.closed.open(streams);
        if reset && streams.is_empty() {
            self.number_anew();
        } else if reset {
            for &stream in streams {
                if let Some(queue) = self.queues.get_mut(usize::from(stream)) {
                    queue.number_anew();
                }
            }
        }
    }

    pub(super) fn is_closed(&self, stream: u16) -> bool {
        self.closed.contains(stream)
    }

    /// Returns whether every message of streams, or of all if none is named, has its TSNs.
    pub(crate) fn has_sent(&self, streams: &[u16]) -> bool {
        if streams.is_empty() {
            return !self.has_new();
        }
        let current = self.current.map(|key| self.messages[key as usize].stream);
        streams.iter().all(|&stream| {
            let queued = self.queues.get(usize::from(stream)).is_some_and(|q| q.head != NONE);
            !queued && current != Some(stream)
        })
    }

    /// Returns whether messages were begun and are not fully acknowledged.
    pub(crate) fn is_under_way(&self) -> bool {
        !self.sent.is_empty() || self.current.is_some() || self.begun().is_some()
    }

    /// Returns an interleaved message of which a part was sent and the rest waits in its queue.
    pub(super) fn begun(&self) -> Option<u32> {
        let begun = |head: &u32| self.messages.get(*head as usize).is_some_and(|m| m.cut > 0);
        self.queues.iter().map(|queue| queue.head).find(begun)
    }

    /// Sets whether the start of further messages is held.
    pub(crate) fn hold(&mut self, on: bool) {
        self.closed.hold(on);
    }

    /// Restarts at a TSN (RFC 6525 section 5.2.4): chunks in flight are lost, and unsent messages keep
    /// their order. Returns the number of lost messages.
    pub(crate) fn reset_everything(&mut self, next: Tsn) -> u32 {
        // What is in flight takes no room any more.
        self.peer_window.release_all();
        self.renumber(next)
    }

    fn number_anew(&mut self) {
        for queue in &mut self.queues {
            queue.number_anew();
        }
    }

    /// Restarts after a restart of the peer: messages sent and not acknowledged are lost, and unsent
    /// ones keep their order. Returns the number of lost messages.
    pub(crate) fn restart(&mut self, initial_tsn: Tsn) -> u32 {
        self.closed.clear();
        self.renumber(initial_tsn)
    }

    /// Requeues everything that was sent, as if it had not been cut: nothing of it has arrived or will.
    pub(crate) fn requeue_sent(&mut self, settings: &Settings) {
        let mut begun: Vec<u32> = self.sent.iter().map(|chunk| chunk.message).collect();
        begun.dedup();
        if begun.is_empty() {
            return;
        }
        for &key in begun.iter().rev() {
            let message = &mut self.messages[key as usize];
            let queue = &mut self.queues[usize::from(message.stream)];
            self.buffer.uncut(message.cut as usize);
            // An interleaved message is in its queue until its last chunk is cut.
            if !self.format.is_interleaved() || message.cut as usize == message.data.len() {
                message.next = queue.head;
                queue.put_head(key);
            }
            (message.cut, message.chunks, message.fragments, message.held) = (0, 0, 0, 0);
            if let Some(priority) = message.priority {
                self.priorities.insert((priority, key), ());
            }
        }
        self.sent.clear();
        self.current = None;
        self.number_anew();
        self.clear_sent();
        self.schedule_anew(settings);
    }

    /// Restarts the positions.
    fn clear_sent(&mut self) {
        self.again.clear();
        self.gaps.clear();
        self.partial.restart();
        self.uncounted = Line::ORIGIN;
        self.peer_window.forget_outstanding();
        self.recovery = None;
    }

    fn renumber(&mut self, initial_tsn: Tsn) -> u32 {
        let before = self.messages.len();
        self.return_sent();
        while let Some(chunk) = self.sent.pop() {
            self.release(&chunk);
        }
        if let Some(key) = self.current.take() {
            let message = self.messages.remove(key as usize);
            self.buffer.drop_waiting(message.data.len() - message.cut as usize);
        }
        // Interleaved messages that were begun are still in their queues.
        for index in 0..self.queues.len() {
            let head = self.queues[index].head;
            if self.messages.get(head as usize).is_some_and(|message| message.cut > 0) {
                self.drop_head(index as u16);
            }
        }
        self.number_anew();
        self.sent.restart(initial_tsn);
        self.clear_sent();
        (before - self.messages.len()) as u32
    }
}
