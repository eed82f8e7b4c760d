//! The numbers by which neighbours address their packets.

use smallvec::SmallVec;

use crate::wire::Slot;

/// Slots by number. It is looked into for every packet, so those of a usual router are in it and not elsewhere.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbers {
    /// In the order of the numbers.
    all: SmallVec<[(u32, Slot); 12]>,
}

impl Numbers {
    /// Returns the slot of a number.
    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<Slot> {
        let at = self.all.binary_search_by_key(&number, |&(other, _)| other).ok()?;
        Some(self.all[at].1)
    }

    /// Adds a number, or changes its slot.
    pub(super) fn insert(&mut self, number: u32, slot: Slot) {
        match self.all.binary_search_by_key(&number, |&(other, _)| other) {
            Ok(at) => self.all[at].1 = slot,
            Err(at) => self.all.insert(at, (number, slot)),
        }
    }

    /// Removes a number.
    pub(super) fn remove(&mut self, number: u32) {
        self.all.retain(|(other, _)| *other != number);
    }

    /// Returns how many there are.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the octets that are allocated.
    pub(super) fn heap_bytes(&self) -> usize {
        if self.all.spilled() { self.all.capacity() * size_of::<(u32, Slot)>() } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_to_slots() {
        let mut numbers = Numbers::default();
        for number in (0..40u32).map(|number| number.wrapping_mul(0x9e37_79b9)) {
            assert_eq!(numbers.get(number), None);
            numbers.insert(number, Slot(number as u16));
        }
        assert_eq!((numbers.len(), numbers.get(0x9e37_79b9)), (40, Some(Slot(0x79b9))));
        numbers.insert(0x9e37_79b9, Slot(1));
        assert_eq!((numbers.len(), numbers.get(0x9e37_79b9)), (40, Some(Slot(1))));
        numbers.remove(0x9e37_79b9);
        assert_eq!((numbers.len(), numbers.get(0x9e37_79b9)), (39, None));
        assert!(numbers.heap_bytes() >= 39 * 8);
    }
}
