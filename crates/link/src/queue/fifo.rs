//! Packets in order of arrival and their bytes, as used by every discipline.

use crate::packet::Packet;
use ringway_sansio::RingQueue;

/// A first-in, first-out queue without a discipline.
#[derive(Default)]
pub(super) struct Fifo {
    packets: RingQueue<Packet>,
    bytes: u64,
}

impl Fifo {
    #[inline(always)]
    pub(super) fn push(&mut self, packet: Packet) {
        self.bytes += u64::from(packet.size);
        self.packets.push_back(packet);
    }

    /// Removes the packet at the head.
    pub(super) fn pop(&mut self) -> Option<Packet> {
        let packet = self.packets.pop_front()?;
        self.bytes -= u64::from(packet.size);
        Some(packet)
    }

    /// Returns the packet at the head.
    pub(super) fn first(&self) -> Option<&Packet> {
        self.packets.front()
    }

    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}
