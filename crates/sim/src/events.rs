//! Pending events in a total order.
//!
//! Events are ordered by time, then by the node that requested them, then by that node's counter. The
//! order does not depend on the order of insertion, so two worlds whose nodes have the same numbers, or
//! one world split into parts, run alike. Nodes are numbered as they are added; the laboratory adds
//! them in the order of their names.
//!
//! Up to 16 events, as many as a world of a few links has, are a sorted array. More are a hierarchy of
//! 256-way buckets by the digits of the time (a radix heap, Ahuja, Mehlhorn, Orlin and Tarjan 1990, with
//! buckets found by bitmaps). Time never goes back, so an event is put into a bucket once and moved down
//! a few times, without a comparison with any other. Only events of the same nanosecond are sorted. At
//! 100,000 pending events an operation takes 217 instructions, in a binary heap 329 and in a heap of four
//! children 474 (`examples/events.rs` under callgrind). A pending event takes 32 bytes.

use ringway_sansio::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const DIGIT: u32 = 8;
const SLOTS: usize = 1 << DIGIT;
/// Enough digits for 64 bits.
const LEVELS: usize = 8;
/// Words of a bitmap of slots.
const WORDS: usize = SLOTS / 64;
const NIL: u32 = u32::MAX;
/// Number of events of one instant that are ordered without a heap.
const FEW: usize = 8;
/// Maximum number of events in the sorted array.
const NEAR: usize = 16;
/// Number of events in buckets at which they return to the array, far enough below `NEAR` that events do
/// not move back and forth.
const RETURN: usize = 6;
/// Bits of a node's counter within an order.
const COUNT_BITS: u32 = 40;

/// Maximum number of nodes that an order can distinguish.
pub const MAX_NODES: u32 = 1 << (64 - COUNT_BITS);

/// The rank of an event among those of the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Order(u64);

impl Order {
    /// Creates the order of the `count`-th event requested by `node`. `node` must be below
    /// [`MAX_NODES`]. Counts wrap after 2^40.
    pub const fn new(node: u32, count: u64) -> Self {
        Order((node as u64) << COUNT_BITS | count & ((1 << COUNT_BITS) - 1))
    }
}

#[derive(Clone, Copy)]
struct Entry<T> {
    at: u64,
    order: Order,
    what: T,
    next: u32,
}

/// Returns the lowest bit that is set in a bitmap that is not empty.
#[inline]
fn first_slot(words: &[u64; WORDS]) -> usize {
    let word = words.iter().position(|&word| word != 0).unwrap_or(0);
    (64 * word + words[word].trailing_zeros() as usize) % SLOTS
}

/// Events of one instant in order: a few in a sorted array, which mostly is all, and the others in a
/// heap.
#[derive(Default)]
struct Due {
    /// The first event is the last entry.
    few: [(Order, u32); FEW],
    len: usize,
    many: BinaryHeap<Reverse<(Order, u32)>>,
}

impl Due {
    fn is_empty(&self) -> bool {
        self.len == 0 && self.many.is_empty()
    }

    #[inline]
    fn push(&mut self, order: Order, index: u32) {
        if self.len == FEW {
            return self.many.push(Reverse((order, index)));
        }
        let mut position = self.len;
        while position > 0 && self.few[position - 1] < (order, index) {
            self.few[position] = self.few[position - 1];
            position -= 1;
        }
        self.few[position] = (order, index);
        self.len += 1;
    }

    #[inline]
    fn pop(&mut self) -> Option<u32> {
        let first = self.len.checked_sub(1).map(|last| self.few[last]);
        if let Some(Reverse(other)) = self.many.peek().copied()
            && first.is_none_or(|first| other < first)
        {
            self.many.pop();
            return Some(other.1);
        }
        self.len -= usize::from(first.is_some());
        first.map(|first| first.1)
    }
}

/// An event in the sorted array.
#[derive(Clone, Copy)]
struct Near<T> {
    at: u64,
    order: Order,
    what: T,
}

impl<T> Near<T> {
    #[inline]
    fn key(&self) -> u128 {
        u128::from(self.at) << 64 | u128::from(self.order.0)
    }
}

/// Pending events that carry a `T` each.
pub struct EventQueue<T> {
    /// Events in descending order, as long as `buckets` is empty.
    near: Vec<Near<T>>,
    /// The time of the last removed event while `buckets` is empty; nothing is pending before it.
    now: u64,
    buckets: Buckets<T>,
}

impl<T: Copy> Default for EventQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy> EventQueue<T> {
    /// Creates an empty queue at time zero.
    pub fn new() -> Self {
        EventQueue { near: Vec::with_capacity(NEAR), now: 0, buckets: Buckets::new() }
    }

    /// Returns the number of pending events.
    pub fn len(&self) -> usize {
        self.near.len() + self.buckets.len
    }

    /// Returns whether no event is pending.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the allocated bytes, without the fixed ones.
    pub fn memory(&self) -> usize {
        let due = self.buckets.due.many.capacity() * size_of::<Reverse<(Order, u32)>>();
        self.buckets.entries.capacity() * size_of::<Entry<T>>() + due
    }

    /// Adds an event. One that is earlier than the last removed event happens next.
    #[inline]
    pub fn push(&mut self, at: Time, order: Order, what: T) {
        if self.buckets.len > 0 {
            return self.buckets.push(at.as_nanos(), order, what);
        }
        if self.near.len() == NEAR {
            return self.move_to_buckets(at, order, what);
        }
        let new = Near { at: at.as_nanos().max(self.now), order, what };
        let (key, mut position) = (new.key(), self.near.len());
        self.near.push(new);
        while position > 0 && self.near[position - 1].key() < key {
            self.near[position] = self.near[position - 1];
            position -= 1;
        }
        self.near[position] = new;
    }

    #[cold]
    #[inline(never)]
    fn move_to_buckets(&mut self, at: Time, order: Order, what: T) {
        self.buckets.base = self.now;
        for near in self.near.drain(..).rev() {
            self.buckets.push(near.at, near.order, near.what);
        }
        self.buckets.push(at.as_nanos(), order, what);
    }

    /// Removes the first event, if it is due at `limit`.
    #[inline]
    pub fn pop(&mut self, limit: Time) -> Option<(Time, T)> {
        if self.buckets.len > 0 {
            let Near { at, what, .. } = self.buckets.pop(limit.as_nanos())?;
            if self.buckets.len == RETURN {
                self.now = at;
                self.move_from_buckets();
            }
            return Some((Time::from_nanos(at), what));
        }
        let first = *self.near.last()?;
        if first.at > limit.as_nanos() {
            return None;
        }
        self.near.pop();
        self.now = first.at;
        Some((Time::from_nanos(first.at), first.what))
    }

    #[cold]
    #[inline(never)]
    fn move_from_buckets(&mut self) {
        while let Some(near) = self.buckets.pop(u64::MAX) {
            self.near.push(near);
        }
        self.near.reverse();
    }
}

/// Many events.
struct Buckets<T> {
    /// The time of the last removed event; nothing is pending before it.
    base: u64,
    entries: Vec<Entry<T>>,
    free: u32,
    /// Bitmap of the levels that are not empty.
    levels: u32,
    occupied: [[u64; WORDS]; LEVELS],
    heads: [[u32; SLOTS]; LEVELS],
    /// Events at `base`.
    due: Due,
    len: usize,
}

impl<T: Copy> Buckets<T> {
    fn new() -> Self {
        Buckets {
            base: 0,
            entries: Vec::new(),
            free: NIL,
            levels: 0,
            occupied: [[0; WORDS]; LEVELS],
            heads: [[NIL; SLOTS]; LEVELS],
            due: Due::default(),
            len: 0,
        }
    }

    #[inline]
    fn push(&mut self, at: u64, order: Order, what: T) {
        let at = at.max(self.base);
        let index = self.free;
        let index = if index == NIL {
            self.entries.push(Entry { at, order, what, next: NIL });
            (self.entries.len() - 1) as u32
        } else {
            let entry = &mut self.entries[index as usize];
            self.free = entry.next;
            *entry = Entry { at, order, what, next: NIL };
            index
        };
        self.len += 1;
        self.link(index, at, order);
    }

    /// Links an entry into the bucket of its time.
    #[inline]
    fn link(&mut self, index: u32, at: u64, order: Order) {
        let differ = at ^ self.base;
        if differ == 0 {
            return self.due.push(order, index);
        }
        let level = ((63 - differ.leading_zeros()) / DIGIT) as usize;
        let slot = (at >> (DIGIT * level as u32)) as usize % SLOTS;
        let head = &mut self.heads[level][slot];
        // The next entry of an empty bucket is NIL, so this needs no special case.
        self.entries[index as usize].next = *head;
        *head = index;
        self.occupied[level][slot / 64] |= 1 << (slot % 64);
        self.levels |= 1 << level;
    }

    /// Removes the first event, if it is due at `limit`.
    #[inline]
    fn pop(&mut self, limit: u64) -> Option<Near<T>> {
        if !self.due.is_empty() {
            if self.base > limit {
                return None;
            }
            return self.due.pop().map(|index| self.release(index));
        }
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros() as usize % LEVELS;
        let slot = first_slot(&self.occupied[level]);
        let head = self.heads[level][slot];
        let first = &self.entries[head as usize];
        if first.next != NIL {
            return self.spread(level, slot, limit);
        }
        if first.at > limit {
            return None;
        }
        self.base = first.at;
        self.detach(level, slot);
        Some(self.release(head))
    }

    /// Removes the first event of a bucket of several, and moves the others down.
    fn spread(&mut self, level: usize, slot: usize, limit: u64) -> Option<Near<T>> {
        let mut index = self.heads[level][slot];
        let (mut first, mut winner) = (u128::MAX, index);
        while index != NIL {
            let entry = &self.entries[index as usize];
            let key = u128::from(entry.at) << 64 | u128::from(entry.order.0);
            if key < first {
                (first, winner) = (key, index);
            }
            index = entry.next;
        }
        let at = (first >> 64) as u64;
        if at > limit {
            return None;
        }
        index = self.detach(level, slot);
        // The rest of this bucket differs from the new base in a lower digit. Other buckets still
        // differ in the same digit as before.
        self.base = at;
        while index != NIL {
            let Entry { at, order, next, .. } = self.entries[index as usize];
            if index != winner {
                self.link(index, at, order);
            }
            index = next;
        }
        Some(self.release(winner))
    }

    /// Empties a bucket and returns its first entry.
    #[inline]
    fn detach(&mut self, level: usize, slot: usize) -> u32 {
        self.occupied[level][slot / 64] &= !(1 << (slot % 64));
        if self.occupied[level] == [0; WORDS] {
            self.levels &= !(1 << level);
        }
        core::mem::replace(&mut self.heads[level][slot], NIL)
    }

    #[inline]
    fn release(&mut self, index: u32) -> Near<T> {
        let entry = &mut self.entries[index as usize];
        entry.next = self.free;
        self.free = index;
        self.len -= 1;
        Near { at: entry.at, order: entry.order, what: entry.what }
    }
}

impl<T: Copy> core::fmt::Debug for EventQueue<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("EventQueue")
            .field("now", &self.now.max(self.buckets.base))
            .field("len", &self.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ringway_sansio::{Random, SplitMix};

    const END: Time = Time::from_nanos(u64::MAX);

    fn drain(queue: &mut EventQueue<u32>) -> Vec<(u64, u32)> {
        core::iter::from_fn(|| queue.pop(END)).map(|(at, what)| (at.as_nanos(), what)).collect()
    }

    #[test]
    fn time_comes_before_node_and_node_before_count() {
        let mut q = EventQueue::new();
        for (what, (at, node, count)) in
            [(5, 1, 9), (5, 0, 2), (4, 7, 0), (5, 1, 3)].into_iter().enumerate()
        {
            q.push(Time::from_nanos(at), Order::new(node, count), what as u32);
        }
        assert_eq!(drain(&mut q), [(4, 2), (5, 1), (5, 3), (5, 0)]);
    }

    #[test]
    fn an_event_that_is_not_due_stays() {
        let mut q = EventQueue::new();
        for at in [70, 100, 110] {
            q.push(Time::from_nanos(at), Order::new(0, at), 0u32);
        }
        assert_eq!(q.pop(Time::from_nanos(69)), None);
        assert!(q.pop(Time::from_nanos(70)).is_some());
        assert_eq!(q.pop(Time::from_nanos(99)), None);
        q.push(Time::from_nanos(80), Order::new(0, 0), 1);
        assert_eq!(q.pop(Time::from_nanos(99)), Some((Time::from_nanos(80), 1)));
        assert_eq!(q.len(), 2);
    }

    #[test]
    fn a_pending_event_takes_32_bytes_and_no_more_than_there_were() {
        assert_eq!(size_of::<Entry<[u32; 3]>>(), 32);
        let mut q = EventQueue::new();
        for i in 0..100_000u64 {
            q.push(Time::from_nanos(i), Order::new(0, i), 0u32);
            if i >= 100 {
                q.pop(END);
            }
        }
        assert_eq!(q.buckets.entries.len(), 101);
    }

    /// Pushes and pops in comparison with a sorted list. Events are added at the present time, soon and
    /// much later, and in any order.
    fn against_a_sorted_list(seed: u64) {
        let mut r = SplitMix::new(seed);
        let mut q = EventQueue::new();
        let mut model: Vec<(u64, Order, u32)> = Vec::new();
        let mut now = r.next_u64() >> (r.next_u64() % 64);
        for what in 0..400 {
            if !r.next_u64().is_multiple_of(3) {
                let span = r.next_u64() >> (8 + r.next_u64() % 56);
                let at = now.saturating_add(if r.next_u64().is_multiple_of(4) { 0 } else { span });
                let order = Order::new((r.next_u64() % 4) as u32, what.into());
                q.push(Time::from_nanos(at), order, what);
                model.push((at, order, what));
            } else {
                let limit = now.saturating_add(r.next_u64() >> (r.next_u64() % 60));
                model.sort_unstable();
                let expected = model.first().copied().filter(|m| m.0 <= limit);
                let got = q.pop(Time::from_nanos(limit));
                assert_eq!(got, expected.map(|m| (Time::from_nanos(m.0), m.2)));
                if let Some(m) = expected {
                    model.remove(0);
                    now = m.0;
                }
            }
            assert_eq!(q.len(), model.len());
        }
    }

    #[test]
    fn many_events_of_one_instant_keep_their_order() {
        let mut q = EventQueue::new();
        let mut r = SplitMix::new(1);
        for at in [0, 0, 77] {
            let mut counts: Vec<u64> = (0..1000).collect();
            (1..1000).rev().for_each(|i| counts.swap(i, (r.next_u64() % (i as u64 + 1)) as usize));
            for &count in &counts {
                q.push(Time::from_nanos(at), Order::new(0, count), count as u32);
            }
            let got: Vec<u32> = drain(&mut q).into_iter().map(|e| e.1).collect();
            assert_eq!(got, (0..1000).collect::<Vec<_>>());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

        #[test]
        fn behaves_like_a_sorted_list(seed in any::<u64>()) {
            against_a_sorted_list(seed);
        }

        /// The order of insertion does not affect the order of removal.
        #[test]
        fn insertion_order_does_not_matter(
            mut events in prop::collection::vec((0u64..50, 0u32..4), 1..60), seed in any::<u64>(),
        ) {
            let mut r = SplitMix::new(seed);
            let run = |events: &[(usize, (u64, u32))]| {
                let mut q = EventQueue::new();
                for &(i, (at, node)) in events {
                    q.push(Time::from_nanos(at), Order::new(node, i as u64), i as u32);
                }
                drain(&mut q)
            };
            events.sort_unstable();
            let mut numbered: Vec<_> = events.into_iter().enumerate().collect();
            let one = run(&numbered);
            for i in (1..numbered.len()).rev() {
                numbered.swap(i, (r.next_u64() % (i as u64 + 1)) as usize);
            }
            prop_assert_eq!(one, run(&numbered));
        }
    }
}
