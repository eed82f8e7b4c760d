//! Packets by number, with reused buffers.
//!
//! A sender writes a packet into its buffer once. Queues, links and routers pass on its number, and the receiver is
//! handed the same bytes; only a duplicate is a copy. Packets do not refer to the buffers of TCP: with reference
//! counts instead of these two copies a bulk flow is simulated 3 % to 7 % faster, but data would pass through
//! [`Endpoint`](ringway_sansio::Endpoint) in two ways, and a few received bytes would retain a large buffer.

use ringway_sansio::{Addressing, Ecn, Time};
use std::net::{IpAddr, Ipv4Addr};

/// Initial hop limit of a packet.
const HOPS: u8 = 64;

/// Maximum number of packets in a world at a time.
pub const MAX_PACKETS: usize = 1 << 24;

/// A packet in the world.
#[derive(Clone, Debug)]
pub(crate) struct StoredPacket {
    /// The contents of the IP header; `ecn` may change on the path.
    pub(crate) addressing: Addressing,
    /// The transport's header and data.
    pub(crate) payload: Vec<u8>,
    /// Number of the packet in the order of sending; a copy has the number of the original.
    pub(crate) serial: u64,
    /// The time when its sender sent it.
    pub(crate) born: Time,
    /// The time when it was started on the present link.
    pub(crate) started: Time,
    /// Bytes with the IP header.
    pub(crate) size: u32,
    /// Hash of addresses, protocol and ports.
    pub(crate) flow: u32,
    /// Number of the destination's address, and the node that has it.
    pub(crate) destination: u32,
    pub(crate) node: u32,
    /// Remaining hops, the TTL or hop limit.
    pub(crate) hops: u8,
    /// Whether a bit was inverted.
    pub(crate) damaged: bool,
}

/// All packets, used and free.
#[derive(Default)]
pub(crate) struct Pool {
    held: Vec<StoredPacket>,
    free: Vec<u32>,
}

impl Pool {
    /// Allocates a packet with an empty payload; `None` if there are too many.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<u32> {
        if let Some(index) = self.free.pop() {
            self.held[index as usize].payload.clear();
            return Some(index);
        }
        if self.held.len() >= MAX_PACKETS {
            return None;
        }
        let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        self.held.push(StoredPacket {
            addressing: Addressing::new(nowhere, nowhere, 0),
            payload: Vec::new(),
            serial: 0,
            born: Time::ZERO,
            started: Time::ZERO,
            size: 0,
            flow: 0,
            destination: 0,
            node: 0,
            hops: 0,
            damaged: false,
        });
        Some((self.held.len() - 1) as u32)
    }

    /// Makes a copy of a packet.
    pub(crate) fn copy(&mut self, index: u32) -> Option<u32> {
        let copy = self.take()?;
        let mut payload = core::mem::take(&mut self.held[copy as usize].payload);
        let original = &self.held[index as usize];
        payload.extend_from_slice(&original.payload);
        self.held[copy as usize] = StoredPacket { payload, ..original.clone_head() };
        Some(copy)
    }

    /// Releases a packet.
    #[inline]
    pub(crate) fn release(&mut self, index: u32) {
        self.free.push(index);
    }

    /// Fills in all checksums that the senders have left out.
    pub(crate) fn fill_checksums(&mut self) {
        self.held.iter_mut().for_each(StoredPacket::fill_checksum);
    }

    /// Returns the number of packets in use.
    pub(crate) fn in_use(&self) -> usize {
        self.held.len() - self.free.len()
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> &StoredPacket {
        &self.held[index as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut StoredPacket {
        &mut self.held[index as usize]
    }
}

impl StoredPacket {
    /// Its sender sends it as this one of all packets.
    #[inline]
    pub(crate) fn send(&mut self, addressing: Addressing, serial: u64, now: Time, size: u32) {
        self.addressing = addressing;
        self.serial = serial;
        self.born = now;
        self.size = size;
        self.hops = HOPS;
        self.damaged = false;
    }

    /// It is started on a link, whose queue may have marked it.
    #[inline]
    pub(crate) fn start(&mut self, now: Time, ecn: Ecn) {
        self.addressing.ecn = ecn;
        self.started = now;
    }

    /// Inverts a bit. A bit in the IP header, for which a router would drop the packet, is replaced by one
    /// in the payload.
    pub(crate) fn invert(&mut self, bit: u32) {
        self.fill_checksum();
        if !self.payload.is_empty() {
            let at = bit as usize / 8 % self.payload.len();
            self.payload[at] ^= 1 << (bit % 8);
        }
        self.damaged = true;
    }

    /// Returns a copy without the payload.
    fn clone_head(&self) -> StoredPacket {
        StoredPacket {
            addressing: self.addressing,
            payload: Vec::new(),
            serial: self.serial,
            born: self.born,
            started: self.started,
            size: self.size,
            flow: self.flow,
            destination: self.destination,
            node: self.node,
            hops: self.hops,
            damaged: self.damaged,
        }
    }

    /// Fills in the checksum that the sender has left out.
    pub(crate) fn fill_checksum(&mut self) {
        let Addressing { source, destination, protocol, offload, .. } = self.addressing;
        if offload && protocol == ringway_tcp::PROTOCOL {
            ringway_tcp::fill_checksum(source, destination, &mut self.payload);
        }
        self.addressing.offload = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_reused_and_copies_are_separate() {
        let mut pool = Pool::default();
        let a = pool.take().unwrap();
        pool.get_mut(a).payload.extend_from_slice(b"hello");
        pool.get_mut(a).serial = 7;
        let b = pool.copy(a).unwrap();
        pool.get_mut(a).payload[0] = b'j';
        assert_eq!((pool.get(b).payload.as_slice(), pool.get(b).serial), (&b"hello"[..], 7));
        assert_eq!(pool.in_use(), 2);
        let position = pool.get(a).payload.as_ptr();
        pool.release(a);
        let again = pool.take().unwrap();
        assert_eq!((again, pool.get(again).payload.as_ptr()), (a, position));
        assert!(pool.get(again).payload.is_empty());
    }
}
