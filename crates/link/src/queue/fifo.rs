//! Packets in the order they came, and their bytes: what every discipline keeps.

use crate::packet::Packet;
use std::collections::VecDeque;

/// A first-in, first-out queue that decides nothing.
#[derive(Default)]
pub(super) struct Fifo {
    packets: VecDeque<Packet>,
    bytes: u64,
}

impl Fifo {
    pub(super) fn push(&mut self, packet: Packet) {
        self.bytes += u64::from(packet.size);
        self.packets.push_back(packet);
    }

    /// Takes the packet at the head.
    pub(super) fn pop(&mut self) -> Option<Packet> {
        let packet = self.packets.pop_front()?;
        self.bytes -= u64::from(packet.size);
        Some(packet)
    }

    /// The packet at the head.
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
