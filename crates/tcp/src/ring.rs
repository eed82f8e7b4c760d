//! A byte ring of bounded size that allocates memory as needed.
//!
//! It stands beside SCTP's because a stream of bytes is read at any offset, and what arrives after a gap is written in
//! advance; its size is a power of two, so that an offset needs no division.

/// First allocation in bytes.
const FIRST: usize = 4096;

/// A queue of bytes. Bytes may be written beyond the end in advance, for data that arrives out of
/// order.
#[derive(Debug)]
pub(crate) struct Ring {
    bytes: Vec<u8>,
    head: usize,
    len: usize,
    limit: usize,
}

impl Ring {
    /// Creates an empty ring that never holds more than `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Ring { bytes: Vec::new(), head: 0, len: 0, limit }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the number of bytes that still fit.
    pub(crate) fn space(&self) -> usize {
        self.limit - self.len
    }

    /// Makes room for `needed` bytes from the head on. Bytes already written keep their offsets.
    fn reserve(&mut self, needed: usize) {
        let old = self.bytes.len();
        if needed <= old {
            return;
        }
        let size = needed.next_power_of_two().max(FIRST);
        let mut grown = Vec::with_capacity(size);
        grown.extend_from_slice(&self.bytes[self.head..]);
        grown.extend_from_slice(&self.bytes[..self.head]);
        grown.resize(size, 0);
        self.bytes = grown;
        self.head = 0;
    }

    /// Writes `data` at `offset` from the head without moving the end. Bytes beyond the limit are left
    /// out. Returns the number of bytes written.
    pub(crate) fn write_at(&mut self, offset: usize, data: &[u8]) -> usize {
        let data = &data[..data.len().min(self.limit.saturating_sub(offset))];
        if data.is_empty() {
            return 0;
        }
        self.reserve(offset + data.len());
        let at = (self.head + offset) & (self.bytes.len() - 1);
        let first = data.len().min(self.bytes.len() - at);
        self.bytes[at..at + first].copy_from_slice(&data[..first]);
        self.bytes[..data.len() - first].copy_from_slice(&data[first..]);
        data.len()
    }

    /// Moves the end over `count` bytes that were written.
    pub(crate) fn extend(&mut self, count: usize) {
        self.len = (self.len + count).min(self.limit);
    }

    /// Appends as much of `data` as fits and returns the number of bytes.
    pub(crate) fn push(&mut self, data: &[u8]) -> usize {
        let count = self.write_at(self.len, data);
        self.extend(count);
        count
    }

    /// Returns the bytes from `offset`, at most `count`, in two parts.
    pub(crate) fn slices(&self, offset: usize, count: usize) -> (&[u8], &[u8]) {
        let offset = offset.min(self.len);
        let count = count.min(self.len - offset);
        if count == 0 {
            return (&[], &[]);
        }
        let at = (self.head + offset) & (self.bytes.len() - 1);
        let first = count.min(self.bytes.len() - at);
        (&self.bytes[at..at + first], &self.bytes[..count - first])
    }

    /// Drops `count` bytes from the front.
    pub(crate) fn consume(&mut self, count: usize) {
        let count = count.min(self.len);
        self.len -= count;
        if !self.bytes.is_empty() {
            self.head = (self.head + count) & (self.bytes.len() - 1);
        }
    }

    /// Begins anew at the start of the memory, which is likely cached, when nothing is held, not even bytes
    /// written in advance.
    pub(crate) fn rewind(&mut self) {
        self.head = 0;
    }

    /// Moves as many bytes as fit to `out`; returns their number.
    pub(crate) fn pop(&mut self, out: &mut [u8]) -> usize {
        let (one, two) = self.slices(0, out.len());
        out[..one.len()].copy_from_slice(one);
        out[one.len()..one.len() + two.len()].copy_from_slice(two);
        let count = one.len() + two.len();
        self.consume(count);
        count
    }

    /// Drops all bytes and releases the memory.
    pub(crate) fn clear(&mut self) {
        *self = Ring::new(self.limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_placed_ahead_survive_growth() {
        let mut ring = Ring::new(100_000);
        ring.push(b"abc");
        ring.consume(2);
        ring.write_at(3, b"xyz");
        ring.write_at(50_000, b"far");
        ring.push(b"de");
        ring.extend(3);
        let mut out = [0; 6];
        assert_eq!(ring.pop(&mut out), 6);
        assert_eq!(&out, b"cdexyz");
        ring.extend(50_000 - 3);
        ring.consume(50_000 - 6);
        assert_eq!(ring.pop(&mut out), 3);
        assert_eq!(&out[..3], b"far");
    }

    #[test]
    fn nothing_beyond_the_limit() {
        let mut ring = Ring::new(10);
        assert_eq!(ring.push(&[1; 8]), 8);
        assert_eq!(ring.push(&[2; 8]), 2);
        assert_eq!(ring.write_at(12, &[3; 8]), 0);
        assert_eq!(ring.space(), 0);
    }

    proptest! {
        #[test]
        fn behaves_like_a_queue(steps in proptest::collection::vec((any::<bool>(), 0usize..9000), 1..60)) {
            let mut ring = Ring::new(20_000);
            let mut model = std::collections::VecDeque::new();
            let mut next = 0u8;
            for (write, count) in steps {
                if write {
                    let data: Vec<u8> = (0..count).map(|i| next.wrapping_add(i as u8)).collect();
                    let took = ring.push(&data);
                    prop_assert_eq!(took, count.min(20_000 - model.len()));
                    next = next.wrapping_add(took as u8);
                    model.extend(&data[..took]);
                } else {
                    let mut out = vec![0; count];
                    let got = ring.pop(&mut out);
                    let expected: Vec<u8> = model.drain(..count.min(model.len())).collect();
                    prop_assert_eq!(&out[..got], &expected[..]);
                }
                prop_assert_eq!(ring.len(), model.len());
            }
        }
    }
}
