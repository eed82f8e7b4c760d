//! The packets that a direction holds: those in its queue and in flight.

use crate::frame::Headers;
use crate::statistics::Spacing;
use ringway_os::tun::{Checksum, VNET_HEADER};
use ringway_sansio::Time;
use std::collections::VecDeque;

/// Maximum number of octets that a direction holds. 1 Gbit/s with a delay of 1.5 s needs so many.
pub(crate) const MAX_HELD: usize = 192 << 20;
/// Maximum number of packets from the first that is held to the last.
pub(crate) const MAX_WINDOW: usize = 1 << 21;
/// What a packet counts besides its octets.
const SLOT: usize = 64;

/// Maximum number of buffers that wait for the next packets, and of octets of each.
const MAX_SPARE: usize = 4_096;
const MAX_SPARE_SIZE: usize = 4_096;

/// A packet that is held.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// Room for the description of the packet, the header of the link, and the packet.
    pub(crate) buffer: Vec<u8>,
    /// Length of the header of the link.
    pub(crate) link: usize,
    /// Octets of the packet that count, which are followed by those of padding. At most those in the buffer.
    pub(crate) size: usize,
    /// The state of the transport's checksum, with positions from the start of the packet.
    pub(crate) checksum: Checksum,
    /// What the packet says of itself.
    pub(crate) headers: Headers,
    /// The time of its arrival.
    pub(crate) arrived: Time,
    /// How it follows the packet before, when it has departed.
    pub(crate) spacing: Spacing,
}

impl Held {
    /// Returns the packet without the header of the link and without padding.
    pub(crate) fn packet(&self) -> &[u8] {
        &self.buffer[VNET_HEADER + self.link..][..self.size]
    }

    /// Returns the packet to be changed.
    pub(crate) fn packet_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[VNET_HEADER + self.link..][..self.size]
    }

    /// Returns what the packet takes of the room of a direction.
    fn room(&self) -> usize {
        self.buffer.len() + SLOT
    }
}

/// Packets by their numbers, which count from 0 and wrap.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// From the first that is held on; `None` for one that is not held any more.
    window: VecDeque<Option<Held>>,
    /// The number of the first.
    first: u32,
    /// Octets that are held.
    held: usize,
    spare: Vec<Vec<u8>>,
}

impl Frames {
    /// Returns an empty buffer.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Takes a buffer back.
    pub(crate) fn recycle(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < MAX_SPARE && buffer.capacity() <= MAX_SPARE_SIZE {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// Adds a packet and returns its number, or returns the buffer where there is no room.
    pub(crate) fn insert(&mut self, packet: Held) -> Result<u32, Vec<u8>> {
        if self.held + packet.room() > MAX_HELD || self.window.len() >= MAX_WINDOW {
            return Err(packet.buffer);
        }
        self.held += packet.room();
        self.window.push_back(Some(packet));
        Ok(self.first.wrapping_add(self.window.len() as u32 - 1))
    }

    /// Returns a packet that is held.
    pub(crate) fn get(&self, number: u32) -> Option<&Held> {
        self.window.get(number.wrapping_sub(self.first) as usize)?.as_ref()
    }

    /// Returns a packet that is held, to be changed. Its length stays.
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut Held> {
        self.window.get_mut(number.wrapping_sub(self.first) as usize)?.as_mut()
    }

    /// Removes a packet.
    pub(crate) fn take(&mut self, number: u32) -> Option<Held> {
        let packet = self.window.get_mut(number.wrapping_sub(self.first) as usize)?.take()?;
        self.held -= packet.room();
        while let Some(None) = self.window.front() {
            self.window.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(length: usize) -> Held {
        let headers = Headers::read(&[], &[]);
        let buffer = vec![0; VNET_HEADER + length];
        let (checksum, spacing) = (Checksum::Complete, Spacing::default());
        Held { buffer, link: 0, size: length, checksum, headers, arrived: Time::ZERO, spacing }
    }

    #[test]
    fn packets_leave_in_any_order_and_numbers_go_on() {
        let mut frames = Frames { first: u32::MAX - 1, ..Frames::default() };
        let numbers: Vec<u32> = (0..4).map(|n| frames.insert(packet(n)).unwrap()).collect();
        assert_eq!(numbers, [u32::MAX - 1, u32::MAX, 0, 1]);
        assert_eq!(frames.take(0).unwrap().packet().len(), 2);
        assert!(frames.take(0).is_none() && frames.get(0).is_none());
        assert_eq!(frames.window.len(), 4);
        for (number, length) in [(u32::MAX - 1, 0), (u32::MAX, 1), (1, 3)] {
            assert_eq!(frames.take(number).unwrap().packet().len(), length);
        }
        assert_eq!((frames.window.len(), frames.held), (0, 0));
        assert_eq!(frames.insert(packet(1)).ok(), Some(2));
        assert!(frames.get(1).is_none() && frames.get(3).is_none() && frames.get(2).is_some());
    }

    #[test]
    fn no_more_is_held_than_the_limit() {
        let mut frames = Frames::default();
        let mut count = 0;
        while frames.insert(packet(1 << 20)).is_ok() {
            count += 1;
        }
        assert_eq!(count, MAX_HELD / ((1 << 20) + VNET_HEADER + SLOT));
        assert!(frames.held <= MAX_HELD);
        frames.take(0).unwrap();
        assert!(frames.insert(packet(1 << 20)).is_ok());
    }

    #[test]
    fn buffers_are_used_again() {
        let mut frames = Frames::default();
        let buffer = Vec::with_capacity(1_500);
        frames.recycle(buffer);
        frames.recycle(vec![0; MAX_SPARE_SIZE + 1]);
        assert_eq!(frames.spare.len(), 1);
        assert_eq!(frames.buffer().capacity(), 1_500);
        assert_eq!(frames.buffer().capacity(), 0);
    }
}
