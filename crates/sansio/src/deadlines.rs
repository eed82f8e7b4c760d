//! The next deadline of each of many machines, such as an endpoint's connections, in a heap that knows
//! every machine's place. Unlike [`TimerWheel`](crate::TimerWheel) it keeps one deadline for each, exact
//! to the nanosecond, and moves it in place.

use crate::Time;

const NOWHERE: u32 = u32::MAX;

/// A binary heap by time, then by slot, so that ties always come in the same order.
#[derive(Debug, Default)]
pub struct Deadlines {
    heap: Vec<(Time, u32)>,
    /// Where each slot stands in the heap.
    places: Vec<u32>,
}

impl Deadlines {
    /// The earliest deadline and whose it is.
    pub fn first(&self) -> Option<(Time, u32)> {
        self.heap.first().copied()
    }

    /// Sets, moves or takes back (`None`) a slot's deadline. Memory grows with the highest slot.
    pub fn set(&mut self, slot: u32, at: Option<Time>) {
        let index = slot as usize;
        if index >= self.places.len() {
            if at.is_none() {
                return;
            }
            self.places.resize(index + 1, NOWHERE);
        }
        let place = self.places[index];
        match (at, place) {
            (None, NOWHERE) => {}
            (Some(at), NOWHERE) => {
                self.heap.push((at, slot));
                self.up(self.heap.len() - 1);
            }
            (Some(at), place) => {
                let place = place as usize;
                let before = core::mem::replace(&mut self.heap[place].0, at);
                if at < before {
                    self.up(place);
                } else if at > before {
                    self.down(place);
                }
            }
            (None, place) => {
                let place = place as usize;
                self.places[index] = NOWHERE;
                self.heap.swap_remove(place);
                if place < self.heap.len() {
                    self.up(place);
                    self.down(self.places[self.heap[place].1 as usize] as usize);
                }
            }
        }
    }

    /// Moves an entry towards the front.
    fn up(&mut self, mut place: usize) {
        let entry = self.heap[place];
        while place > 0 && entry < self.heap[(place - 1) / 2] {
            self.put(place, self.heap[(place - 1) / 2]);
            place = (place - 1) / 2;
        }
        self.put(place, entry);
    }

    /// Moves an entry towards the back.
    fn down(&mut self, mut place: usize) {
        let entry = self.heap[place];
        loop {
            let (left, right) = (2 * place + 1, 2 * place + 2);
            let Some(&first) = self.heap.get(left) else { break };
            let child = match self.heap.get(right) {
                Some(&second) if second < first => right,
                _ => left,
            };
            if entry <= self.heap[child] {
                break;
            }
            self.put(place, self.heap[child]);
            place = child;
        }
        self.put(place, entry);
    }

    fn put(&mut self, place: usize, entry: (Time, u32)) {
        self.heap[place] = entry;
        self.places[entry.1 as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_like_a_sorted_list(
            steps in proptest::collection::vec((0u32..20, proptest::option::of(0u64..50)), 1..200)
        ) {
            let mut heap = Deadlines::default();
            let mut model = std::collections::BTreeMap::new();
            for (slot, at) in steps {
                let at = at.map(Time::from_nanos);
                heap.set(slot, at);
                model.remove(&slot);
                if let Some(at) = at {
                    model.insert(slot, at);
                }
                let first = model.iter().map(|(slot, at)| (*at, *slot)).min();
                prop_assert_eq!(heap.first(), first);
            }
        }
    }
}
