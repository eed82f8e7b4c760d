//! Flooding: every node sends each packet on once.

use super::node::{Destination, GraphNode};
use super::store::MAX_LEN;
use ringway_sansio::{Duration, Time};

/// Length of the header: the node of origin, the sequence number (RFC 1982 comparison is not needed, since a
/// run is shorter than 2^32 packets of an origin) and the hop count.
const HEADER: usize = 10;

/// The packets that a node originates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The time of the first.
    pub first: Time,
    /// The interval between two.
    pub every: Duration,
    /// Their number.
    pub packets: u32,
}

/// The header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    origin: u32,
    sequence: u32,
    hops: u16,
}

/// A node that floods. A packet is recognised by its origin and sequence number.
#[derive(Clone, Debug)]
pub struct Flood {
    number: u32,
    /// Length of the packets it originates.
    len: u16,
    /// Maximum number of hops of a packet; with 1, packets reach the neighbours only.
    max_hops: u16,
    next: Time,
    every: Duration,
    left: u32,
    sequence: u32,
    /// By origin, in ascending order: the last sequence number sent or received.
    seen: Vec<(u32, u32)>,
    /// The packet to be sent.
    pending: Option<(Header, u16)>,
    received: u32,
    duplicates: u32,
    last_new: Time,
    last_hops: u16,
}

impl Flood {
    /// Creates the node `number`, whose packets have `len` bytes and at most `max_hops` hops.
    pub fn new(number: u32, len: usize, max_hops: u16, origin: Option<Origin>) -> Self {
        let nothing = Origin { first: Time::ZERO, every: Duration::ZERO, packets: 0 };
        let Origin { first, every, packets } = origin.unwrap_or(nothing);
        Flood {
            number,
            len: len.clamp(HEADER, MAX_LEN) as u16,
            max_hops,
            next: first,
            every,
            left: packets,
            sequence: 0,
            seen: Vec::new(),
            pending: None,
            received: 0,
            duplicates: 0,
            last_new: Time::ZERO,
            last_hops: 0,
        }
    }

    /// Returns the number of packets received for the first time.
    pub fn received(&self) -> u32 {
        self.received
    }

    /// Returns the number of packets received again.
    pub fn duplicates(&self) -> u32 {
        self.duplicates
    }

    /// Returns the time when the last new packet was received, and its number of hops.
    pub fn last(&self) -> (Time, u16) {
        (self.last_new, self.last_hops)
    }

    /// Returns whether a packet is new, and notes it.
    fn is_new(&mut self, header: Header) -> bool {
        match self.seen.binary_search_by_key(&header.origin, |seen| seen.0) {
            Ok(position) if self.seen[position].1 >= header.sequence => return false,
            Ok(position) => self.seen[position].1 = header.sequence,
            Err(position) => self.seen.insert(position, (header.origin, header.sequence)),
        }
        true
    }
}

impl GraphNode for Flood {
    fn handle_packet(&mut self, now: Time, _: u16, bytes: &mut [u8]) {
        let Some(header) = bytes.first_chunk::<HEADER>() else { return };
        let [a, b, c, d, e, f, g, h, i, j] = *header;
        let [origin, sequence] = [[a, b, c, d], [e, f, g, h]].map(u32::from_be_bytes);
        let header =
            Header { origin, sequence, hops: u16::from_be_bytes([i, j]).saturating_add(1) };
        if header.origin == self.number || !self.is_new(header) {
            self.duplicates += 1;
            return;
        }
        self.received += 1;
        (self.last_new, self.last_hops) = (now, header.hops);
        if header.hops < self.max_hops {
            self.pending = Some((header, bytes.len() as u16));
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.left -= 1;
        self.next = now + self.every;
        self.sequence += 1;
        let header = Header { origin: self.number, sequence: self.sequence, hops: 0 };
        self.pending = Some((header, self.len));
    }

    fn poll_timeout(&self) -> Option<Time> {
        (self.left > 0).then_some(self.next)
    }

    fn poll_transmit(&mut self, _: Time, bytes: &mut Vec<u8>) -> Option<Destination> {
        let (header, len) = self.pending.take()?;
        bytes.extend_from_slice(&header.origin.to_be_bytes());
        bytes.extend_from_slice(&header.sequence.to_be_bytes());
        bytes.extend_from_slice(&header.hops.to_be_bytes());
        bytes.resize(len.into(), 0);
        Some(Destination::Neighbours)
    }

    fn heap_bytes(&self) -> usize {
        self.seen.capacity() * size_of::<(u32, u32)>()
    }
}
