//! Marks: what a router on the way remembers of the routes of others, so that both ends hear at once when one breaks.
//!
//! An answer to a CONNECT leaves a mark at every router that it passes: a number that both ends know, and the two slots
//! between which it passed. When a link goes down, BROKEN follows the marks to both ends. A mark that had to make room
//! costs time and nothing else: then the ends find out when they use the route.

use std::collections::VecDeque;

use crate::wire::Slot;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    mark: u32,
    slots: [Slot; 2],
}

/// The marks at a router, the oldest first.
#[derive(Clone, Debug)]
pub struct Marks {
    entries: VecDeque<Entry>,
    max: usize,
    /// Marks that had to make room.
    pub evicted: u64,
}

impl Marks {
    /// No marks, and at most `max`.
    pub fn new(max: usize) -> Marks {
        Marks { entries: VecDeque::new(), max, evicted: 0 }
    }

    /// Notes that a route leads by `from` and `to`. No neighbour may cause more than half of all marks.
    pub fn note(&mut self, mark: u32, from: Slot, to: Slot) {
        if self.max == 0 || from == to {
            return;
        }
        let is_from = |entry: &Entry| entry.slots[0] == from;
        if self.entries.len() >= self.max {
            let of_neighbour = self.entries.iter().filter(|&entry| is_from(entry)).count();
            let oldest = match of_neighbour >= self.max.div_ceil(2) {
                true => self.entries.iter().position(is_from),
                false => None,
            };
            self.entries.remove(oldest.unwrap_or(0));
            self.evicted += 1;
        }
        self.entries.push_back(Entry { mark, slots: [from, to] });
    }

    /// Removes all marks of routes by a link that is down. Returns each with the slot by which the other end is reached.
    pub fn broken(&mut self, slot: Slot) -> Vec<(u32, Slot)> {
        let mut broken = Vec::new();
        self.entries.retain(|entry| match entry.slots {
            [one, other] if one == slot => {
                broken.push((entry.mark, other));
                false
            }
            [one, other] if other == slot => {
                broken.push((entry.mark, one));
                false
            }
            _ => true,
        });
        broken
    }

    /// Removes the mark of a BROKEN that came by `entered`. Returns where it goes on.
    pub fn follow(&mut self, mark: u32, entered: Slot) -> Option<Slot> {
        let is_it = |entry: &Entry| entry.mark == mark && entry.slots.contains(&entered);
        let at = self.entries.iter().position(is_it)?;
        let [one, other] = self.entries.remove(at)?.slots;
        Some(if one == entered { other } else { one })
    }

    /// Returns the octets that are allocated.
    pub fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }

    /// Returns the number of marks.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_of_a_broken_link_goes_to_the_other_end() {
        let mut marks = Marks::new(8);
        marks.note(1, Slot(10), Slot(20));
        marks.note(2, Slot(20), Slot(30));
        marks.note(3, Slot(10), Slot(30));
        assert_eq!(marks.follow(3, Slot(20)), None);
        assert_eq!(marks.follow(3, Slot(30)), Some(Slot(10)));
        assert_eq!(marks.broken(Slot(20)), [(1, Slot(10)), (2, Slot(30))]);
        assert!(marks.is_empty());
    }

    #[test]
    fn one_neighbour_has_at_most_half() {
        let mut marks = Marks::new(8);
        (0..4).for_each(|mark| marks.note(mark, Slot(1), Slot(2)));
        (10..50).for_each(|mark| marks.note(mark, Slot(3), Slot(2)));
        assert_eq!((marks.len(), marks.evicted), (8, 36));
        let mut kept: Vec<u32> = marks.broken(Slot(2)).iter().map(|&(mark, _)| mark).collect();
        kept.sort_unstable();
        assert_eq!(kept, [0, 1, 2, 3, 46, 47, 48, 49]);
    }
}
