//! Round-robin among streams (RFC 8260 section 3.2).

use super::{Scheduler, Streams, take_turn};
use std::collections::VecDeque;

/// Sends a message of each stream in turn.
#[derive(Debug, Default)]
pub struct RoundRobin {
    /// Streams that have messages, the next one first.
    turns: VecDeque<u16>,
    /// The streams in `turns`.
    waiting: Streams,
}

impl RoundRobin {
    /// Returns whether a stream has messages.
    pub(super) fn has(&self, stream: u16) -> bool {
        self.waiting.has(stream)
    }

    /// Moves a stream behind the others after its turn.
    pub(super) fn move_back(&mut self, stream: u16) {
        if let Some(at) = self.turns.iter().position(|other| *other == stream) {
            self.turns.remove(at);
            self.turns.push_back(stream);
        }
    }
}

impl Scheduler for RoundRobin {
    fn name(&self) -> &'static str {
        "round-robin"
    }

    fn queued(&mut self, stream: u16, _bytes: usize) {
        if self.waiting.set(stream, true) {
            self.turns.push_back(stream);
        }
    }

    fn next(&self) -> Option<u16> {
        self.turns.front().copied()
    }

    fn taken(&mut self, _bytes: usize, more: bool) {
        if let Some(stream) = self.turns.pop_front() {
            if more {
                self.turns.push_back(stream);
            } else {
                self.waiting.set(stream, false);
            }
        }
    }

    fn cut(&mut self, _bytes: usize) {
        // With interleaving, a turn is a chunk.
        if let Some(stream) = self.turns.pop_front() {
            self.turns.push_back(stream);
        }
    }

    fn removed(&mut self, stream: u16, more: bool) {
        if !more && self.waiting.set(stream, false) {
            take_turn(&mut self.turns, stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8260 section 3.2.
    #[test]
    fn goes_by_turns() {
        let mut s = RoundRobin::default();
        let mut left = [0, 1, 1, 3];
        for stream in [3, 3, 1, 3, 2] {
            s.queued(stream, 10);
        }
        let mut order = Vec::new();
        while let Some(stream) = s.next() {
            order.push(stream);
            left[usize::from(stream)] -= 1;
            s.taken(10, left[usize::from(stream)] > 0);
        }
        assert_eq!(order, [3, 1, 2, 3, 3]);
        s.queued(3, 10);
        assert_eq!(s.next(), Some(3));
        s.queued(4, 10);
        s.cut(5);
        assert_eq!(s.next(), Some(4));
        s.removed(4, false);
        assert_eq!(s.next(), Some(3));
    }
}
