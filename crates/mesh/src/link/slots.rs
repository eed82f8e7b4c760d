//! The numbers of neighbours.
//!
//! Labels in packets on their way name slots, so a slot that has become free is not given to another neighbour for
//! [`Limits::slot_quarantine`](crate::config::Limits::slot_quarantine): a packet must not go to somebody else. The
//! neighbour that had it gets it back. No interface may have more than half of all slots, so that who rotates identities
//! on one does not shut out the others.

use std::sync::Arc;

use ringway_sansio::Time;

use crate::config::Limits;
use crate::id::NodeId;
use crate::wire::Slot;

#[derive(Clone, Debug)]
enum Entry<T> {
    Used {
        id: NodeId,
        interface: u32,
        /// Elsewhere, so that nothing is moved when another comes.
        value: Box<T>,
    },
    /// Kept for the neighbour that had it.
    Reserved { id: NodeId, interface: u32, until: Time },
}

impl<T> Entry<T> {
    /// Returns whether it is of the share of an interface.
    fn counts_for(&self, now: Time, interface: u32) -> bool {
        match self {
            Entry::Used { interface: other, .. } => *other == interface,
            Entry::Reserved { interface: other, until, .. } => *other == interface && *until > now,
        }
    }
}

/// Why there is no slot for a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoSlot {
    /// All slots are used or reserved.
    #[error("no free slot for a neighbour, all {0} are used or reserved")]
    Full(usize),
    /// The interface has its half.
    #[error("no free slot for a neighbour on this interface, it has {0}")]
    Interface(usize),
}

/// The neighbours by slot.
#[derive(Clone, Debug)]
pub struct Slots<T> {
    entries: Vec<Entry<T>>,
    limits: Arc<Limits>,
    /// Neighbours that found no slot.
    pub refused: u64,
}

impl<T> Slots<T> {
    /// No neighbours.
    pub fn new(limits: impl Into<Arc<Limits>>) -> Self {
        Slots { entries: Vec::new(), limits: limits.into(), refused: 0 }
    }

    /// Assigns the lowest free slot to a neighbour, or the slot that it had. `interface` is where it was discovered.
    pub fn insert(
        &mut self,
        now: Time,
        id: NodeId,
        interface: u32,
        value: T,
    ) -> Result<Slot, NoSlot> {
        let half = self.limits.neighbours / 2;
        let own = self.reserved(interface).find(|&(_, other, _)| other == id);
        let of_interface = self.entries.iter().filter(|entry| entry.counts_for(now, interface));
        let is_at_half = of_interface.count() >= half;
        let at = if is_at_half {
            // Its own reservations make way, and nobody else's.
            let counted = || self.reserved(interface).filter(|&(_, _, until)| until > now);
            let own = own.filter(|&(_, _, until)| until > now);
            own.or_else(|| counted().min_by_key(|&(_, _, until)| until)).map(|(at, ..)| at)
        } else {
            let free =
                |entry: &Entry<T>| matches!(entry, Entry::Reserved { until, .. } if *until <= now);
            own.map(|(at, ..)| at).or_else(|| self.entries.iter().position(free))
        };
        let entry = Entry::Used { id, interface, value: Box::new(value) };
        match at {
            Some(at) => {
                self.entries[at] = entry;
                Ok(Slot(at as u16))
            }
            None if is_at_half => {
                self.refused += 1;
                Err(NoSlot::Interface(half))
            }
            None if self.entries.len() < self.limits.neighbours.min(1 << 16) => {
                // Routers have few neighbours, and very many routers are simulated.
                self.entries.reserve_exact(1);
                self.entries.push(entry);
                Ok(Slot((self.entries.len() - 1) as u16))
            }
            None => {
                self.refused += 1;
                Err(NoSlot::Full(self.entries.len()))
            }
        }
    }

    /// Returns the slots that are reserved for neighbours on an interface: the slot, for whom, and until when.
    fn reserved(&self, interface: u32) -> impl Iterator<Item = (usize, NodeId, Time)> {
        self.entries.iter().enumerate().filter_map(move |(at, entry)| match *entry {
            Entry::Reserved { id, interface: on, until } if on == interface => {
                Some((at, id, until))
            }
            _ => None,
        })
    }

    /// Frees a slot.
    pub fn remove(&mut self, now: Time, slot: Slot) -> Option<T> {
        let entry = self.entries.get_mut(usize::from(slot.0))?;
        let Entry::Used { id, interface, .. } = *entry else { return None };
        let until = now + self.limits.slot_quarantine;
        match core::mem::replace(entry, Entry::Reserved { id, interface, until }) {
            Entry::Used { value, .. } => Some(*value),
            Entry::Reserved { .. } => None,
        }
    }

    /// Returns the octets that are allocated.
    pub fn heap_bytes(&self) -> usize {
        let used = self.entries.iter().filter(|entry| matches!(entry, Entry::Used { .. })).count();
        self.entries.capacity() * size_of::<Entry<T>>() + used * size_of::<T>()
    }

    /// Returns the neighbour in a slot.
    pub fn get(&self, slot: Slot) -> Option<&T> {
        match self.entries.get(usize::from(slot.0))? {
            Entry::Used { value, .. } => Some(value),
            Entry::Reserved { .. } => None,
        }
    }

    /// Returns the neighbour in a slot.
    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        match self.entries.get_mut(usize::from(slot.0))? {
            Entry::Used { value, .. } => Some(value),
            Entry::Reserved { .. } => None,
        }
    }

    /// Returns all neighbours in the order of their slots.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().filter_map(|entry| match entry {
            Entry::Used { value, .. } => Some(&mut **value),
            Entry::Reserved { .. } => None,
        })
    }

    /// Returns all neighbours in the order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, NodeId, &T)> + Clone {
        self.entries.iter().enumerate().filter_map(|(at, entry)| match entry {
            Entry::Used { id, value, .. } => Some((Slot(at as u16), *id, &**value)),
            Entry::Reserved { .. } => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_sansio::time::Duration;

    const START: Time = Time::from_secs(5);

    fn slots(neighbours: usize) -> Slots<char> {
        Slots::new(Limits { neighbours, ..Limits::default() })
    }

    fn id(raw: u64) -> NodeId {
        NodeId::new(raw)
    }

    #[test]
    fn a_freed_slot_is_kept_for_its_neighbour() {
        let mut slots = slots(8);
        assert_eq!(slots.insert(START, id(1), 0, 'a'), Ok(Slot(0)));
        assert_eq!(slots.insert(START, id(2), 0, 'b'), Ok(Slot(1)));
        assert_eq!((slots.remove(START, Slot(0)), slots.remove(START, Slot(0))), (Some('a'), None));
        assert_eq!((slots.get(Slot(0)), slots.get(Slot(9))), (None, None));
        assert_eq!(slots.insert(START, id(3), 0, 'c'), Ok(Slot(2)));
        assert_eq!(slots.insert(START, id(1), 0, 'A'), Ok(Slot(0)));
        slots.remove(START, Slot(0));
        let later = START + Duration::from_secs(120);
        assert_eq!(slots.insert(later, id(4), 0, 'd'), Ok(Slot(0)));
        *slots.get_mut(Slot(0)).unwrap() = 'D';
        let all: Vec<_> = slots.iter().collect();
        let expected = [(Slot(0), id(4), &'D'), (Slot(1), id(2), &'b'), (Slot(2), id(3), &'c')];
        assert_eq!(all, expected);
    }

    #[test]
    fn many_identities_on_one_interface_are_bounded() {
        let mut slots = slots(6);
        for raw in 0..3 {
            slots.insert(START, id(raw), 7, 'x').unwrap();
        }
        assert_eq!(slots.insert(START, id(3), 7, 'x'), Err(NoSlot::Interface(3)));
        for raw in 4..6 {
            slots.insert(START, id(raw), 8, 'y').unwrap();
        }
        // Rotating identities use up what is reserved for their interface, and nothing else.
        for raw in 9..20 {
            slots.remove(START, Slot(0));
            assert_eq!(slots.insert(START, id(raw), 7, 'z'), Ok(Slot(0)));
        }
        assert_eq!(slots.insert(START, id(20), 8, 'y'), Ok(Slot(5)));
        assert_eq!(slots.insert(START, id(21), 8, 'y'), Err(NoSlot::Interface(3)));
        assert_eq!(slots.insert(START, id(22), 9, 'y'), Err(NoSlot::Full(6)));
        assert_eq!(slots.refused, 3);
    }
}
