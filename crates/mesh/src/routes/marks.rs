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

/// Rings of marks. Each neighbour has one of them, which others may share.
const RINGS: usize = 4;

/// The marks at a router.
#[derive(Clone, Debug)]
pub struct Marks {
    /// The oldest first in each.
    rings: [VecDeque<Entry>; RINGS],
    max: usize,
    /// Marks that had to make room.
    pub evicted: u64,
}

impl Marks {
    /// No marks, and at most `max`.
    pub fn new(max: usize) -> Marks {
        Marks { rings: [const { VecDeque::new() }; RINGS], max, evicted: 0 }
    }

    /// Notes that a route leads by `from` and `to`. Nobody fills more than one ring: what a neighbour causes is in the one
    /// that its slot selects.
    pub fn note(&mut self, mark: u32, from: Slot, to: Slot) {
        let room = self.max / RINGS;
        if room == 0 || from == to {
            return;
        }
        let ring = &mut self.rings[usize::from(from.0) % RINGS];
        if ring.len() >= room {
            ring.pop_front();
            self.evicted += 1;
        }
        ring.push_back(Entry { mark, slots: [from, to] });
    }

    /// Removes all marks of routes by a link that is down. Returns each with the slot by which the other end is reached.
    pub fn broken(&mut self, slot: Slot) -> Vec<(u32, Slot)> {
        let mut broken = Vec::new();
        for ring in &mut self.rings {
            ring.retain(|entry| match entry.slots {
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
        }
        broken
    }

    /// Removes the mark of a BROKEN that came by `entered`. Returns where it goes on.
    pub fn follow(&mut self, mark: u32, entered: Slot) -> Option<Slot> {
        let is_it = |entry: &Entry| entry.mark == mark && entry.slots.contains(&entered);
        self.rings.iter_mut().find_map(|ring| {
            let at = ring.iter().position(is_it)?;
            let [one, other] = ring.remove(at)?.slots;
            Some(if one == entered { other } else { one })
        })
    }

    /// Returns where a notice about a route that is still in use, which came by `entered`, goes on.
    pub fn other_end(&self, mark: u32, entered: Slot) -> Option<Slot> {
        let mut entries = self.rings.iter().flatten();
        let entry = entries.find(|entry| entry.mark == mark && entry.slots.contains(&entered))?;
        let [one, other] = entry.slots;
        Some(if one == entered { other } else { one })
    }

    /// Returns the marks of routes by a slot, each with the slot by which its other end is reached.
    pub fn along(&self, slot: Slot) -> impl Iterator<Item = (u32, Slot)> {
        self.rings.iter().flatten().filter_map(move |entry| match entry.slots {
            [one, other] if one == slot => Some((entry.mark, other)),
            [one, other] if other == slot => Some((entry.mark, one)),
            _ => None,
        })
    }

    /// Returns the octets that are allocated.
    pub fn heap_bytes(&self) -> usize {
        self.rings.iter().map(|ring| ring.capacity() * size_of::<Entry>()).sum()
    }

    /// Returns the number of marks.
    pub fn len(&self) -> usize {
        self.rings.iter().map(VecDeque::len).sum()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rings.iter().all(VecDeque::is_empty)
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
        let along: Vec<_> = marks.along(Slot(20)).collect();
        assert_eq!(
            (along, marks.other_end(1, Slot(20))),
            (vec![(2, Slot(30)), (1, Slot(10))], Some(Slot(10)))
        );
        assert_eq!(marks.other_end(1, Slot(30)), None);
        assert_eq!(marks.broken(Slot(20)), [(2, Slot(30)), (1, Slot(10))]);
        assert!(marks.is_empty());
    }

    #[test]
    fn one_neighbour_has_at_most_its_ring() {
        let mut marks = Marks::new(16);
        (0..4).for_each(|mark| marks.note(mark, Slot(1), Slot(2)));
        (10..50).for_each(|mark| marks.note(mark, Slot(3), Slot(2)));
        assert_eq!((marks.len(), marks.evicted), (8, 36));
        let mut kept: Vec<u32> = marks.broken(Slot(2)).iter().map(|&(mark, _)| mark).collect();
        kept.sort_unstable();
        assert_eq!(kept, [0, 1, 2, 3, 46, 47, 48, 49]);
    }
}
