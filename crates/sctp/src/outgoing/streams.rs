//! Streams that begin anew (RFC 6525).

use super::{NONE, Outgoing};
use crate::numbers::{Line, Tsn};

impl Outgoing {
    /// The TSN of the next chunk.
    pub(crate) fn next_tsn(&self) -> Tsn {
        self.line.tsn(self.next_place())
    }

    /// Streams, or all if none is named, take no messages for now.
    pub(crate) fn close_streams(&mut self, streams: &[u16]) {
        self.closed.extend_from_slice(streams);
        self.all_closed += u8::from(streams.is_empty());
    }

    /// Streams take messages again; where they were `reset`, from number 0 on.
    pub(crate) fn open_streams(&mut self, streams: &[u16], reset: bool) {
        self.all_closed = self.all_closed.saturating_sub(u8::from(streams.is_empty()));
        for stream in streams {
            if let Some(at) = self.closed.iter().position(|closed| closed == stream) {
                self.closed.swap_remove(at);
            }
        }
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
        self.all_closed > 0 || (!self.closed.is_empty() && self.closed.contains(&stream))
    }

    /// Whether every message of streams, or of all if none is named, has its TSNs.
    pub(crate) fn has_sent(&self, streams: &[u16]) -> bool {
        if streams.is_empty() {
            return !self.has_new();
        }
        let current = self.messages.get(self.current as usize).map(|message| message.stream);
        streams.iter().all(|&stream| {
            let queued = self.queues.get(usize::from(stream)).is_some_and(|q| q.head != NONE);
            !queued && current != Some(stream)
        })
    }

    /// Begins anew at a TSN (RFC 6525 section 5.2.4): what is in flight is lost, what was not sent
    /// keeps its place. Gives how many messages were lost.
    pub(crate) fn reset_everything(&mut self, next: Tsn) -> u32 {
        let window = self.peer_rwnd.saturating_add(self.outstanding);
        let lost = self.renumber(next);
        self.peer_rwnd = window;
        lost
    }

    fn number_anew(&mut self) {
        for queue in &mut self.queues {
            queue.number_anew();
        }
    }

    /// Begins anew after a restart of the peer: what was sent and not acknowledged is lost, what
    /// was not sent keeps its place. Gives how many messages were lost.
    pub(crate) fn restart(&mut self, initial_tsn: Tsn) -> u32 {
        self.closed.clear();
        self.all_closed = 0;
        self.renumber(initial_tsn)
    }

    fn renumber(&mut self, initial_tsn: Tsn) -> u32 {
        let before = self.messages.len();
        self.give_sent_back();
        while let Some(chunk) = self.sent.pop_front() {
            self.release(&chunk);
        }
        if self.current != NONE {
            let message = self.messages.remove(self.current as usize);
            let left = message.data.len() - message.cut as usize;
            self.waiting -= left;
            self.buffered -= left;
            self.current = NONE;
        }
        // Interleaved messages that were begun still stand in their queues.
        for index in 0..self.queues.len() {
            let head = self.queues[index].head;
            if self.messages.get(head as usize).is_some_and(|message| message.cut > 0) {
                self.drop_head(index as u16);
            }
        }
        self.number_anew();
        self.marked.clear();
        self.acked.clear();
        self.line = Line::new(initial_tsn);
        self.first = Line::ORIGIN;
        self.advanced = Line::ORIGIN - 1;
        self.uncounted = Line::ORIGIN;
        self.outstanding = 0;
        self.recovery = None;
        (before - self.messages.len()) as u32
    }
}
