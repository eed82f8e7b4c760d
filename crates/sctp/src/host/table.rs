//! The associations of a host: which of them have something to send or an event, and their deadlines.

use crate::association::Association;
use crate::endpoint::{AssocId, Associations};
use ringway_sansio::Deadlines;
use std::collections::VecDeque;

#[derive(Default)]
struct Slot {
    association: Option<Box<Association>>,
    /// That of its id.
    generation: u32,
    /// Whether it is in the queue of associations that may have a packet to send.
    ready: bool,
    /// Whether it is in the queue of associations with events.
    notified: bool,
}

/// The associations of a host by slot.
#[derive(Default)]
pub(super) struct Table {
    slots: Vec<Slot>,
    pub(super) deadlines: Deadlines,
    ready: VecDeque<u32>,
    notices: VecDeque<u32>,
    /// The one that the endpoint has called last, and others before it, which are to be settled.
    called: Option<AssocId>,
    called_before: Vec<AssocId>,
}

impl Table {
    #[inline]
    pub(super) fn get(&self, id: AssocId) -> Option<&Association> {
        let slot = self.slots.get(id.slot as usize)?;
        slot.association.as_deref().filter(|_| slot.generation == id.generation)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: AssocId) -> Option<&mut Association> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        slot.association.as_deref_mut().filter(|_| slot.generation == id.generation)
    }

    /// Returns the association in a slot.
    #[inline]
    pub(super) fn at(&mut self, slot: u32) -> Option<(AssocId, &mut Association)> {
        let Slot { association, generation, .. } = self.slots.get_mut(slot as usize)?;
        Some((AssocId { slot, generation: *generation }, association.as_deref_mut()?))
    }

    /// Removes an association. Its entries in the queues stay and are skipped there.
    pub(super) fn remove(&mut self, id: AssocId) {
        self.slots[id.slot as usize].association = None;
        self.deadlines.set(id.slot, None);
    }

    #[inline]
    fn note_call(&mut self, id: AssocId) {
        if let Some(before) = self.called.replace(id)
            && before != id
        {
            self.called_before.push(before);
        }
    }

    /// Removes and returns the next association to settle.
    pub(super) fn next_called(&mut self) -> Option<AssocId> {
        self.called_before.pop().or_else(|| self.called.take())
    }

    /// Queues an association that may have a packet to send.
    #[inline]
    pub(super) fn wake(&mut self, slot: u32) {
        if !core::mem::replace(&mut self.slots[slot as usize].ready, true) {
            self.ready.push_back(slot);
        }
    }

    /// Returns the first association that may have a packet to send.
    pub(super) fn first_ready(&self) -> Option<u32> {
        self.ready.front().copied()
    }

    /// Removes the first association from those that may have a packet to send.
    pub(super) fn rest(&mut self) {
        if let Some(slot) = self.ready.pop_front() {
            self.slots[slot as usize].ready = false;
        }
    }

    /// Queues an association with an event.
    pub(super) fn notify(&mut self, slot: u32) {
        if !core::mem::replace(&mut self.slots[slot as usize].notified, true) {
            self.notices.push_back(slot);
        }
    }

    /// Returns the first association with an event.
    pub(super) fn first_notice(&self) -> Option<u32> {
        self.notices.front().copied()
    }

    /// Removes the first association from those with an event.
    pub(super) fn drop_notice(&mut self) {
        if let Some(slot) = self.notices.pop_front() {
            self.slots[slot as usize].notified = false;
        }
    }
}

impl Associations for Table {
    fn insert(&mut self, id: AssocId, association: Association) {
        let slot = id.slot as usize;
        if slot >= self.slots.len() {
            self.slots.resize_with(slot + 1, Slot::default);
        }
        self.slots[slot].association = Some(Box::new(association));
        self.slots[slot].generation = id.generation;
        self.note_call(id);
    }

    #[inline]
    fn with<R>(&mut self, id: AssocId, call: impl FnOnce(&mut Association) -> R) -> Option<R> {
        let result = self.get_mut(id).map(call)?;
        self.note_call(id);
        Some(result)
    }

    #[inline]
    fn read<R>(&self, id: AssocId, call: impl FnOnce(&Association) -> R) -> Option<R> {
        self.get(id).map(call)
    }
}
