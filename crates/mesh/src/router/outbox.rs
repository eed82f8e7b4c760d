//! Items that wait for the end of a call, so that those to one neighbour share a packet.

use ringway_sansio::Time;

use crate::crypto::Crypto;
use crate::link::Links;
use crate::output::Output;
use crate::wire::{Control, Item, Items, SEAL, Slot};

/// Items for neighbours.
#[derive(Clone, Debug, Default)]
pub(super) struct Outbox {
    packets: Vec<(Slot, Vec<u8>)>,
}

impl Outbox {
    /// Appends an item. One that is too long to be written is dropped.
    pub(super) fn push(&mut self, slot: Slot, item: &Item<'_>) {
        let mut bytes = Vec::new();
        if item.emit(&mut bytes).is_ok() {
            self.packets.push((slot, bytes));
        }
    }

    /// Returns the octets that are allocated.
    pub(super) fn heap_bytes(&self) -> usize {
        self.packets.capacity() * size_of::<(Slot, Vec<u8>)>()
    }

    /// Appends items that are written already.
    pub(super) fn push_written(&mut self, slot: Slot, items: Vec<u8>) {
        if !items.is_empty() {
            self.packets.push((slot, items));
        }
    }

    /// Seals everything, with as many items in a packet as fit.
    pub(super) fn flush<C: Crypto>(
        &mut self,
        now: Time,
        links: &mut Links<C>,
        output: &mut Output,
    ) {
        // In the order of neighbours, and of items for each.
        self.packets.sort_by_key(|&(slot, _)| slot);
        let mut packets = core::mem::take(&mut self.packets).into_iter().peekable();
        while let Some((slot, mut items)) = packets.next() {
            let mtu = links.neighbour(slot).map_or(0, |neighbour| usize::from(neighbour.mtu));
            // A probe may be added.
            let room = mtu.saturating_sub(Control::HEADER + SEAL + Items::HEADER);
            while let Some((_, more)) =
                packets.next_if(|(other, more)| *other == slot && items.len() + more.len() <= room)
            {
                items.extend_from_slice(&more);
            }
            links.seal_messages(now, slot, &mut items, output);
        }
    }
}
