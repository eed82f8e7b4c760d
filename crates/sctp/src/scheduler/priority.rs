//! Strict priorities (RFC 8260 section 3.4).

use super::{Scheduler, Streams, take_turn};
use std::collections::{BTreeMap, VecDeque};

/// Sends the stream of the highest priority, which is the lowest value, first; streams of equal
/// priority take turns. A stream without a value has 0, the highest.
#[derive(Debug, Default)]
pub struct Priority {
    /// Streams that have messages, by priority, in turn.
    turns: BTreeMap<u16, VecDeque<u16>>,
    values: BTreeMap<u16, u16>,
    /// The streams in `turns`.
    waiting: Streams,
}

impl Priority {
    fn value(&self, stream: u16) -> u16 {
        self.values.get(&stream).copied().unwrap_or(0)
    }

    /// Removes a stream. Returns `true` if it was there.
    fn take(&mut self, stream: u16) -> bool {
        let value = self.value(stream);
        if !self.waiting.set(stream, false) {
            return false;
        }
        let Some(turns) = self.turns.get_mut(&value) else { return false };
        take_turn(turns, stream);
        if turns.is_empty() {
            self.turns.remove(&value);
        }
        true
    }

    fn put(&mut self, stream: u16) {
        let value = self.value(stream);
        if self.waiting.set(stream, true) {
            self.turns.entry(value).or_default().push_back(stream);
        }
    }
}

impl Scheduler for Priority {
    fn name(&self) -> &'static str {
        "priority"
    }

    fn queued(&mut self, stream: u16, _bytes: usize) {
        self.put(stream);
    }

    fn next(&self) -> Option<u16> {
        self.turns.first_key_value()?.1.front().copied()
    }

    fn taken(&mut self, _bytes: usize, more: bool) {
        let Some(stream) = self.next() else { return };
        self.take(stream);
        if more {
            self.put(stream);
        }
    }

    fn cut(&mut self, bytes: usize) {
        self.taken(bytes, true);
    }

    fn removed(&mut self, stream: u16, more: bool) {
        if !more {
            self.take(stream);
        }
    }

    fn set_value(&mut self, stream: u16, value: u16) {
        let waits = self.take(stream);
        self.values.insert(stream, value);
        if waits {
            self.put(stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8260 section 3.4.
    #[test]
    fn the_highest_goes_first() {
        let mut s = Priority::default();
        let mut left = [0, 2, 1, 2];
        for (stream, value) in [(1, 5), (2, 1), (3, 5)] {
            s.set_value(stream, value);
        }
        for stream in [1, 1, 3, 3, 2] {
            s.queued(stream, 10);
        }
        let mut order = Vec::new();
        while let Some(stream) = s.next() {
            order.push(stream);
            left[usize::from(stream)] -= 1;
            s.taken(10, left[usize::from(stream)] > 0);
        }
        assert_eq!(order, [2, 1, 3, 1, 3]);
        s.queued(1, 10);
        s.queued(3, 10);
        s.cut(5);
        assert_eq!(s.next(), Some(3));
        s.set_value(1, 4);
        assert_eq!(s.next(), Some(1));
        s.removed(1, false);
        s.removed(3, false);
        assert_eq!(s.next(), None);
    }
}
