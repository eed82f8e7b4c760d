//! A byte ring that takes memory as it is needed and gives it back when it is not.

/// More memory than this is given back as soon as the ring is empty, less when it is trimmed.
const RETAINED: usize = 1 << 20;
/// Below this it doubles when it grows.
const SMALL: usize = 1 << 18;
/// First allocation in bytes.
const FIRST: usize = 2048;

/// First in, first out. Its caller bounds what is in it.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Ring {
    /// Appends.
    pub(crate) fn push(&mut self, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let needed = self.len + data.len();
        if needed > self.bytes.len() {
            self.grow(needed);
        }
        let size = self.bytes.len();
        let mut at = self.start + self.len;
        if at >= size {
            at -= size;
        }
        let first = data.len().min(size - at);
        self.bytes[at..at + first].copy_from_slice(&data[..first]);
        self.bytes[..data.len() - first].copy_from_slice(&data[first..]);
        self.len = needed;
    }

    /// Takes the first `count` bytes, which there are, and appends them to `out`.
    pub(crate) fn pop(&mut self, count: usize, out: &mut Vec<u8>) {
        let count = count.min(self.len);
        if count == 0 {
            return;
        }
        let size = self.bytes.len();
        let first = count.min(size - self.start);
        out.extend_from_slice(&self.bytes[self.start..self.start + first]);
        out.extend_from_slice(&self.bytes[..count - first]);
        self.start += count;
        if self.start >= size {
            self.start -= size;
        }
        self.len -= count;
        if self.len == 0 {
            self.start = 0;
            if size > RETAINED {
                self.bytes = Vec::new();
            }
        }
    }

    /// Drops the last `count` bytes.
    pub(crate) fn drop_last(&mut self, count: usize) {
        self.len -= count.min(self.len);
    }

    /// Gives the memory back if nothing is in it.
    pub(crate) fn trim(&mut self) {
        if self.len == 0 {
            *self = Ring::default();
        }
    }

    /// Twice the size while it is small, else an eighth more.
    #[cold]
    fn grow(&mut self, needed: usize) {
        let old = self.bytes.len();
        let more = if old < SMALL { old } else { old / 8 };
        let size = needed.max(old + more).max(FIRST);
        self.bytes.reserve_exact(size - old);
        self.bytes.resize(size, 0);
        // What stood at the end stands at the end again.
        if self.start + self.len > old {
            let start = size - (old - self.start);
            self.bytes.copy_within(self.start..old, start);
            self.start = start;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn behaves_like_a_deque(steps in proptest::collection::vec((any::<bool>(), 0usize..6000), 1..60)) {
            let (mut ring, mut model, mut next) = (Ring::default(), VecDeque::new(), 0u8);
            for (push, count) in steps {
                if push {
                    let data: Vec<u8> = (0..count).map(|_| { next = next.wrapping_add(1); next }).collect();
                    ring.push(&data);
                    model.extend(data);
                } else {
                    let mut out = vec![1];
                    ring.pop(count, &mut out);
                    let count = count.min(model.len());
                    let expected: Vec<u8> = core::iter::once(1).chain(model.drain(..count)).collect();
                    prop_assert_eq!(out, expected);
                }
                prop_assert_eq!(ring.len, model.len());
            }
        }
    }
}
