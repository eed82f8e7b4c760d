//! Packets over links: sealed and opened.

use core::ops::Range;

use ringway_sansio::Time;

use super::{Dropped, Links, put};
use crate::crypto::Crypto;
use crate::link::Sign;
use crate::output::{Destination, Output};
use crate::wire::{Control, DataView, Item, Items, Slot};

impl<C: Crypto> Links<C> {
    /// Opens a CONTROL packet in its buffer. Returns who sent it, and the range of its items.
    pub fn open(&mut self, now: Time, bytes: &mut [u8]) -> Result<(Slot, Range<usize>), Dropped> {
        let Control { receiver, counter, .. } = Control::parse(bytes)?;
        let unknown = Dropped::UnknownLink(receiver);
        let slot = self.by_index.get(receiver).ok_or(unknown)?;
        let neighbour = self.neighbours.get_mut(slot).ok_or(unknown)?;
        let number = neighbour.window.expand(counter);
        if !neighbour.window.is_fresh(number) {
            return Err(Dropped::Replayed(number));
        }
        let (header, sealed) = bytes.split_at_mut(Control::HEADER);
        let items = C::open(&neighbour.keys, number, header, sealed).ok_or(Dropped::Forged)?;
        let range = Control::HEADER..Control::HEADER + items.len();
        if neighbour.window.is_unused() {
            self.handshakes.confirmed(receiver);
            self.changed = true;
        }
        neighbour.window.note(number);
        neighbour.liveness.hear(now, Sign::Sealed);
        Ok((slot, range))
    }

    /// Seals messages for a neighbour, as [`seal`](Self::seal) does, and asks for an answer if it has not been heard lately.
    pub fn seal_messages(
        &mut self,
        now: Time,
        slot: Slot,
        items: &mut Vec<u8>,
        output: &mut Output,
    ) {
        if self.neighbours.get_mut(slot).is_some_and(|neighbour| neighbour.liveness.asks(now)) {
            put(&Item::Probe, items);
            self.changed = true;
        }
        self.seal(slot, items, output);
    }

    /// Seals items for a neighbour and appends the packet. Does nothing if there is no such neighbour.
    pub fn seal(&mut self, slot: Slot, items: &[u8], output: &mut Output) {
        let Some(neighbour) = self.neighbours.get_mut(slot) else { return };
        let (number, receiver) = (neighbour.next_number(), neighbour.remote_index);
        let (interface, to) =
            (neighbour.address.interface, Destination::One(neighbour.address.remote));
        output.packet(interface, to, |out| {
            let start = out.len();
            Control { flags: 0, receiver, counter: number as u32, sealed: items }.emit(out);
            let items = start + Control::HEADER;
            let header: [u8; Control::HEADER] = core::array::from_fn(|at| out[start + at]);
            C::seal(&neighbour.keys, number, &header, out, items);
        });
    }

    /// Seals the item that `build` appends to its argument, in the packet itself, for the neighbour that it returns; it may
    /// return none.
    pub fn seal_item(
        &mut self,
        now: Time,
        output: &mut Output,
        build: impl FnOnce(&Self, &mut Vec<u8>) -> Option<Slot>,
    ) -> Option<Slot> {
        output.packet_to(|packet| {
            let start = packet.len();
            packet.resize(start + Control::HEADER + Items::HEADER, 0);
            let slot = build(self, packet)?;
            let items = start + Control::HEADER;
            let length = u16::try_from(packet.len() - items - Items::HEADER).ok()?;
            let neighbour = self.neighbours.get_mut(slot)?;
            let (number, receiver) = (neighbour.next_number(), neighbour.remote_index);
            let header = packet.get_mut(start..)?.first_chunk_mut()?;
            Control::write_header(receiver, number as u32, header);
            let header = *header;
            Item::write_routed_header(length, packet.get_mut(items..)?.first_chunk_mut()?);
            if neighbour.liveness.asks(now) {
                put(&Item::Probe, packet);
                self.changed = true;
            }
            C::seal(&neighbour.keys, number, &header, packet, items);
            let (interface, to) = (neighbour.address.interface, neighbour.address.remote);
            Some((interface, Destination::One(to), slot))
        })
    }

    /// Sends the data packet that `build` appends to a neighbour. Does nothing if there is no such neighbour.
    pub fn send_data(
        &mut self,
        now: Time,
        slot: Slot,
        output: &mut Output,
        build: impl FnOnce(&mut Vec<u8>),
    ) {
        let Some(neighbour) = self.neighbours.get_mut(slot) else { return };
        let (interface, to) =
            (neighbour.address.interface, Destination::One(neighbour.address.remote));
        output.packet(interface, to, |out| {
            let start = out.len();
            build(out);
            if let Ok(mut data) = DataView::parse(&mut out[start..]) {
                let [code, _] = C::codes(&neighbour.keys);
                self.changed |= neighbour.address_data(now, code, &mut data);
            }
        });
    }

    /// Returns the neighbour that a data packet is from, or `None` if nobody can be shown to have sent it.
    pub fn accept_data(&mut self, now: Time, data: &DataView<'_>) -> Option<Slot> {
        let slot = self.by_index.get(data.receiver())?;
        let neighbour = self.neighbours.get_mut(slot)?;
        let [_, code] = C::codes(&neighbour.keys);
        let (is_good, is_first) = neighbour.accept_data(now, code, data);
        self.changed |= is_first;
        is_good.then_some(slot)
    }

    /// Returns whether a message of so many octets may be taken from a neighbour: each has a rate of its own, so that none can
    /// use up what another needs.
    pub fn allows(&mut self, now: Time, slot: Slot, octets: usize) -> bool {
        let rate = (self.limits.neighbour_rate, self.limits.neighbour_burst);
        self.neighbours.get_mut(slot).is_some_and(|neighbour| neighbour.allows(now, rate, octets))
    }
}
