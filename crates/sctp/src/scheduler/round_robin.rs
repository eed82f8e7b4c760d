//! Round-robin among streams (RFC 8260 section 3.2).

use super::Scheduler;
use std::collections::VecDeque;

/// A message of each stream in turn.
#[derive(Debug, Default)]
pub struct RoundRobin {
    /// Streams that have messages, whose turn it is first.
    turns: VecDeque<u16>,
    /// A bit for each stream that stands in `turns`.
    waiting: Vec<u64>,
}

impl RoundRobin {
    /// Whether a stream has messages.
    pub(super) fn has(&self, stream: u16) -> bool {
        let word = self.waiting.get(usize::from(stream / 64));
        word.is_some_and(|word| word & (1 << (stream % 64)) != 0)
    }

    /// A stream has had its turn.
    pub(super) fn move_back(&mut self, stream: u16) {
        if let Some(at) = self.turns.iter().position(|other| *other == stream) {
            self.turns.remove(at);
            self.turns.push_back(stream);
        }
    }

    /// Sets a stream's bit; gives what it was.
    fn set(&mut self, stream: u16, on: bool) -> bool {
        let (word, bit) = (usize::from(stream / 64), 1u64 << (stream % 64));
        if word >= self.waiting.len() {
            self.waiting.resize(word + 1, 0);
        }
        let was = self.waiting[word] & bit != 0;
        if on {
            self.waiting[word] |= bit;
        } else {
            self.waiting[word] &= !bit;
        }
        was
    }
}

impl Scheduler for RoundRobin {
    fn name(&self) -> &'static str {
        "round-robin"
    }

    fn queued(&mut self, stream: u16, _bytes: usize) {
        if !self.set(stream, true) {
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
                self.set(stream, false);
            }
        }
    }

    fn cut(&mut self, _bytes: usize) {
        // Interleaved, a turn is a chunk.
        if let Some(stream) = self.turns.pop_front() {
            self.turns.push_back(stream);
        }
    }

    fn removed(&mut self, stream: u16, more: bool) {
        if !more && self.set(stream, false) {
            self.turns.retain(|other| *other != stream);
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
