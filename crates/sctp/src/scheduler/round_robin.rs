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
    }
}
