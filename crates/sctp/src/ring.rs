//! A byte ring that allocates memory as needed and releases it.
//!
//! It stands beside TCP's because a full receive buffer grows by an eighth here and not to a power of two, as there are many
//! associations, and because data after a gap is kept in chunks and not written in advance.

/// Capacity in bytes above which memory is released as soon as the ring is empty. Less is released by
/// `trim`.
const RETAINED: usize = 1 << 20;
/// Capacity in bytes below which it doubles when it grows.
const SMALL: usize = 1 << 18;
/// First allocation in bytes.
const FIRST: usize = 2048;

/// A first-in-first-out queue of bytes. Its caller bounds the contents.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Ring {
    /// Appends bytes.
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

    /// Removes the first `count` bytes, which must exist, and appends them to `out`.
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

    /// Releases the memory if the ring is empty.
    pub(crate) fn trim(&mut self) {
        if self.len == 0 {
            *self = Ring::default();
        }
    }

    /// Doubles the capacity while it is small, and otherwise adds an eighth.
    #[cold]
    fn grow(&mut self, needed: usize) {
        let old = self.bytes.len();
        let more = if old < SMALL { old } else { old / 8 };
        let size = needed.max(old + more).max(FIRST);
        self.bytes.reserve_exact(size - old);
        self.bytes.resize(size, 0);
        // The part up to the old end moves to the new end.
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
