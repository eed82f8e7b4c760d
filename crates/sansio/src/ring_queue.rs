//! A first-in, first-out queue of small values. The standard library's moves a value through memory where
//! it is pushed, which waits for the stores that made it; here it is stored field by field.

/// Values in a ring, whose size is a power of two and grows as needed.
#[derive(Clone, Debug)]
pub struct RingQueue<T> {
    slots: Vec<T>,
    head: usize,
    len: usize,
}

impl<T> Default for RingQueue<T> {
    fn default() -> Self {
        RingQueue { slots: Vec::new(), head: 0, len: 0 }
    }
}

impl<T: Copy> RingQueue<T> {
    /// Returns the number of values.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is no value.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn slot(&self, index: usize) -> usize {
        (self.head + index) & self.slots.len().wrapping_sub(1)
    }

    /// Returns the first value.
    #[inline]
    pub fn front(&self) -> Option<&T> {
        if self.len == 0 { None } else { self.slots.get(self.head) }
    }

    /// Returns the last value.
    #[inline]
    pub fn back(&self) -> Option<&T> {
        if self.len == 0 { None } else { self.slots.get(self.slot(self.len - 1)) }
    }

    /// Appends a value.
    #[inline(always)]
    pub fn push_back(&mut self, value: T) {
        if self.len == self.slots.len() {
            if self.len == 0 {
                self.slots.push(value);
                self.len = 1;
                return;
            }
            self.grow();
        }
        let slot = self.slot(self.len);
        self.slots[slot] = value;
        self.len += 1;
    }

    /// Removes the first value.
    #[inline]
    pub fn pop_front(&mut self) -> Option<T> {
        let first = *self.front()?;
        self.head = self.slot(1);
        self.len -= 1;
        Some(first)
    }

    /// Doubles a ring that is full and not empty. What the new slots hold does not matter.
    #[cold]
    fn grow(&mut self) {
        self.slots.rotate_left(self.head);
        self.head = 0;
        self.slots.extend_from_within(..);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn behaves_like_the_standard_queue(steps in proptest::collection::vec(0u8..5, 1..300)) {
            let (mut ring, mut model) = (RingQueue::default(), VecDeque::new());
            for (number, step) in steps.into_iter().enumerate() {
                if step < 3 {
                    ring.push_back(number);
                    model.push_back(number);
                } else {
                    prop_assert_eq!(ring.pop_front(), model.pop_front());
                }
                prop_assert_eq!(ring.front(), model.front());
                prop_assert_eq!(ring.back(), model.back());
                prop_assert_eq!((ring.len(), ring.is_empty()), (model.len(), model.is_empty()));
            }
        }
    }
}
