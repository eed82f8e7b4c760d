//! A hierarchical timing wheel (Varghese and Lauck 1987) for machines with many deadlines.
//!
//! Setting and cancelling cost the same however many timers there are. Deadlines are kept to the
//! millisecond, rounded up: a timer never fires early. Nothing here reads a clock.

use crate::time::Time;

const LEVELS: usize = 6;
const SLOTS: usize = 64;
const NIL: u32 = u32::MAX;

/// Names a timer that is set. Stale ids (fired or cancelled) are recognised and ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct TimerId {
    index: u32,
    generation: u32,
}

impl TimerId {
    /// An id that names no timer; cancelling it does nothing.
    pub const NONE: TimerId = TimerId { index: NIL, generation: 0 };
}

struct Node<T> {
    /// Deadline in ticks (milliseconds).
    at: u64,
    prev: u32,
    next: u32,
    generation: u32,
    /// Level and slot the node hangs in, or `FREE`/`DUE`.
    place: u16,
    value: Option<T>,
}

const FREE: u16 = u16::MAX;
const DUE: u16 = u16::MAX - 1;

/// Timers that carry a `T` each. Order among timers due in the same millisecond is the order in
/// which they were set, so that the same inputs always give the same outputs.
pub struct TimerWheel<T> {
    now: u64,
    nodes: Vec<Node<T>>,
    free: u32,
    heads: [[u32; SLOTS]; LEVELS],
    tails: [[u32; SLOTS]; LEVELS],
    occupied: [u64; LEVELS],
    due_head: u32,
    due_tail: u32,
    len: usize,
    /// Given to each timer as it is set, so that an id never comes back.
    generation: u32,
}

impl<T> TimerWheel<T> {
    /// An empty wheel that stands at `now`.
    pub fn new(now: Time) -> Self {
        TimerWheel {
            now: now.as_millis(),
            nodes: Vec::new(),
            free: NIL,
            heads: [[NIL; SLOTS]; LEVELS],
            tails: [[NIL; SLOTS]; LEVELS],
            occupied: [0; LEVELS],
            due_head: NIL,
            due_tail: NIL,
            len: 0,
            generation: 0,
        }
    }

    /// Number of timers set.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no timer is set.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Sets a timer for `at`.
    pub fn set(&mut self, at: Time, value: T) -> TimerId {
        // Rounded up, so that a timer is never early.
        let tick = at.as_nanos().div_ceil(1_000_000);
        let index = if self.free != NIL {
            let index = self.free;
            self.free = self.nodes[index as usize].next;
            index
        } else {
            self.nodes.push(Node {
                at: 0,
                prev: NIL,
                next: NIL,
                generation: 0,
                place: FREE,
                value: None,
            });
            (self.nodes.len() - 1) as u32
        };
        let node = &mut self.nodes[index as usize];
        node.at = tick;
        node.value = Some(value);
        let generation = self.generation;
        node.generation = generation;
        self.generation = generation.wrapping_add(1);
        self.len += 1;
        self.link(index);
        TimerId { index, generation }
    }

    /// Takes a timer back; gives its value if it had not fired.
    pub fn cancel(&mut self, id: TimerId) -> Option<T> {
        let node = self.nodes.get(id.index as usize)?;
        if node.place == FREE || node.generation != id.generation {
            return None;
        }
        self.unlink(id.index);
        self.release(id.index)
    }

    /// When [`TimerWheel::expire`] should be called next. It may be earlier than the earliest
    /// deadline (a far timer is moved closer in steps), never later.
    pub fn next(&self) -> Option<Time> {
        if self.due_head != NIL {
            return Some(Time::from_millis(self.now));
        }
        let mut best: Option<u64> = None;
        for level in 0..LEVELS {
            if self.occupied[level] == 0 {
                continue;
            }
            let tick = self.slot_start(level);
            best = Some(best.map_or(tick, |b: u64| b.min(tick)));
        }
        best.map(Time::from_millis)
    }

    /// Takes one timer that is due at `now`, earliest first; `None` when no more are.
    pub fn expire(&mut self, now: Time) -> Option<T> {
        let target = now.as_millis();
        loop {
            if self.due_head != NIL {
                let index = self.due_head;
                self.unlink(index);
                return self.release(index);
            }
            let level = (0..LEVELS)
                .filter(|&l| self.occupied[l] != 0)
                .min_by_key(|&l| (self.slot_start(l), core::cmp::Reverse(l)));
            let Some(level) = level else {
                self.now = self.now.max(target);
                return None;
            };
            let start = self.slot_start(level);
            if start > target {
                self.now = self.now.max(target);
                return None;
            }
            self.now = self.now.max(start);
            self.empty_slot(level, ((start >> (6 * level)) & 63) as usize);
        }
    }

    /// First tick of the next occupied slot of `level`, at or after `self.now`'s slot.
    fn slot_start(&self, level: usize) -> u64 {
        let shift = 6 * level as u32;
        let current = ((self.now >> shift) & 63) as u32;
        let ahead = self.occupied[level].rotate_right(current).trailing_zeros() as u64;
        let base = (self.now >> shift) + ahead;
        (base << shift).max(self.now)
    }

    fn empty_slot(&mut self, level: usize, slot: usize) {
        let mut index = self.heads[level][slot];
        self.heads[level][slot] = NIL;
        self.tails[level][slot] = NIL;
        self.occupied[level] &= !(1 << slot);
        while index != NIL {
            let next = self.nodes[index as usize].next;
            self.link(index);
            index = next;
        }
    }

    fn link(&mut self, index: u32) {
        let at = self.nodes[index as usize].at;
        if at <= self.now {
            self.nodes[index as usize].place = DUE;
            let tail = self.due_tail;
            self.nodes[index as usize].prev = tail;
            self.nodes[index as usize].next = NIL;
            if tail == NIL {
                self.due_head = index;
            } else {
                self.nodes[tail as usize].next = index;
            }
            self.due_tail = index;
            return;
        }
        // The level is that of the highest 6-bit digit in which deadline and present differ. A
        // deadline beyond the top level waits in its furthest slot and is placed again from there.
        let differ = (at ^ self.now) | 63;
        let level = (((63 - differ.leading_zeros()) / 6) as usize).min(LEVELS - 1);
        let shift = 6 * level as u32;
        let ahead = (at >> shift) - (self.now >> shift);
        let slot = if ahead < SLOTS as u64 {
            ((at >> shift) & 63) as usize
        } else {
            (((self.now >> shift) + SLOTS as u64 - 1) & 63) as usize
        };
        let tail = self.tails[level][slot];
        let node = &mut self.nodes[index as usize];
        node.place = (level * SLOTS + slot) as u16;
        node.prev = tail;
        node.next = NIL;
        if tail == NIL {
            self.heads[level][slot] = index;
            self.occupied[level] |= 1 << slot;
        } else {
            self.nodes[tail as usize].next = index;
        }
        self.tails[level][slot] = index;
    }

    fn unlink(&mut self, index: u32) {
        let Node { prev, next, place, .. } = self.nodes[index as usize];
        let (head, tail) = if place == DUE {
            (&mut self.due_head, &mut self.due_tail)
        } else {
            let (level, slot) = (place as usize / SLOTS, place as usize % SLOTS);
            if prev == NIL && next == NIL {
                self.occupied[level] &= !(1 << slot);
            }
            (&mut self.heads[level][slot], &mut self.tails[level][slot])
        };
        if prev == NIL {
            *head = next;
        } else {
            self.nodes[prev as usize].next = next;
        }
        if next == NIL {
            *tail = prev;
        } else {
            self.nodes[next as usize].prev = prev;
        }
    }

    fn release(&mut self, index: u32) -> Option<T> {
        let node = &mut self.nodes[index as usize];
        node.place = FREE;
        node.next = self.free;
        let value = node.value.take();
        self.free = index;
        self.len -= 1;
        if self.len == 0 && self.nodes.len() > 4096 {
            // The memory of a burst is given back once the burst is over.
            self.nodes = Vec::new();
            self.free = NIL;
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Random, SplitMix};
    use proptest::prelude::*;

    fn ms(n: u64) -> Time {
        Time::from_millis(n)
    }

    #[test]
    fn fires_in_order_and_never_early() {
        let mut w = TimerWheel::new(ms(1_000));
        w.set(ms(1_500), 'b');
        w.set(ms(1_001), 'a');
        w.set(ms(40_000), 'c');
        assert_eq!(w.expire(ms(1_000)), None);
        assert_eq!(w.expire(ms(1_001)), Some('a'));
        assert_eq!(w.expire(ms(1_499)), None);
        assert_eq!(w.expire(ms(40_000)), Some('b'));
        assert_eq!(w.expire(ms(40_000)), Some('c'));
        assert!(w.is_empty());
    }

    #[test]
    fn part_of_a_millisecond_is_rounded_up() {
        let mut w = TimerWheel::new(ms(0));
        w.set(Time::from_nanos(1_000_001), ());
        assert_eq!(w.expire(ms(1)), None);
        assert_eq!(w.expire(ms(2)), Some(()));
    }

    #[test]
    fn a_stale_id_cancels_nothing() {
        let mut w = TimerWheel::new(ms(0));
        let id = w.set(ms(5), 1);
        assert_eq!(w.expire(ms(5)), Some(1));
        w.set(ms(9), 2);
        assert_eq!(w.cancel(id), None);
        assert_eq!(w.cancel(TimerId::NONE), None);
        assert_eq!(w.expire(ms(9)), Some(2));
    }

    #[test]
    fn a_deadline_in_the_past_is_due_at_once() {
        let mut w = TimerWheel::new(ms(100));
        w.set(ms(7), 'x');
        assert_eq!(w.next(), Some(ms(100)));
        assert_eq!(w.expire(ms(100)), Some('x'));
    }

    proptest! {
        /// Against a sorted list: the same timers, in the same order, at the first call at or
        /// after their deadline; `next` never later than the earliest deadline.
        #[test]
        fn behaves_like_a_sorted_list(seed in any::<u64>(), steps in 1usize..300) {
            let mut r = SplitMix::new(seed);
            let start = r.next_u64() % (1 << 44);
            let mut now = start;
            let mut wheel = TimerWheel::new(ms(now));
            let mut model: Vec<(u64, u64, TimerId)> = Vec::new();
            let mut serial = 0;
            for _ in 0..steps {
                match r.next_u64() % 4 {
                    0 | 1 => {
                        let span = 1u64 << (r.next_u64() % 40);
                        let at = now + r.next_u64() % span;
                        let id = wheel.set(ms(at), serial);
                        model.push((at, serial, id));
                        serial += 1;
                    }
                    2 if !model.is_empty() => {
                        let i = (r.next_u64() % model.len() as u64) as usize;
                        let (_, value, id) = model.remove(i);
                        prop_assert_eq!(wheel.cancel(id), Some(value));
                    }
                    _ => {
                        if let (Some(next), Some(min)) = (wheel.next(), model.iter().map(|m| m.0).min()) {
                            prop_assert!(next <= ms(min.max(now)));
                        }
                        now += r.next_u64() % (1u64 << (r.next_u64() % 38));
                        let mut fired = Vec::new();
                        while let Some(v) = wheel.expire(ms(now)) {
                            fired.push(v);
                        }
                        let mut due: Vec<_> = model.iter().filter(|m| m.0 <= now).map(|m| (m.0, m.1)).collect();
                        due.sort_unstable();
                        let mut times: Vec<_> = fired.iter().map(|v| model.iter().find(|m| m.1 == *v).map(|m| m.0)).collect();
                        prop_assert!(times.iter().all(Option::is_some));
                        prop_assert_eq!(fired.len(), due.len());
                        let sorted = times.clone();
                        times.sort();
                        prop_assert_eq!(times, sorted);
                        model.retain(|m| m.0 > now);
                    }
                }
                prop_assert_eq!(wheel.len(), model.len());
            }
        }
    }
}
