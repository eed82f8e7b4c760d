//! Gathering segments of one TCP connection that follow each other into one packet for the kernel, which then takes
//! its way through the host once.

use super::checksum::with_length;
use super::header::{Checksum, IPV6, Pieces, Segmentation, TCP_CHECKSUM, VnetHeader};
use super::split::MAX_HEADERS;
use smallvec::SmallVec;
use std::io::IoSlice;
use std::num::NonZeroU16;

/// Maximum number of segments in one packet.
pub const MAX_COALESCED: usize = 64;

/// Size of a TCP header without options, in octets.
const TCP: usize = 20;
/// Maximum number of octets after the IPv6 header, without a jumbogram.
const MAX_PAYLOAD: usize = u16::MAX as usize;
/// Position of the flags of TCP in a packet, and those that a segment may have here.
const FLAGS: usize = IPV6 + 13;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const ECE: u8 = 0x40;
/// Position of the window in a packet.
const WINDOW: usize = IPV6 + 14;

/// Gathers packets that were received one after the other. It borrows them; only the headers of the first are copied.
#[derive(Default)]
pub struct Coalescer<'p> {
    open: Option<Open>,
    /// The first packet whole where it stands alone, else the payloads.
    parts: SmallVec<[&'p [u8]; MAX_COALESCED]>,
    /// The checksum of the first packet.
    checksum: Checksum,
}

/// Segments that others may follow.
struct Open {
    /// The headers of the first segment, and their length.
    headers: [u8; MAX_HEADERS],
    length: usize,
    /// The payload of the first segment, in octets, and of all.
    size: NonZeroU16,
    total: usize,
    /// The sequence number of the next segment.
    next: u32,
    /// No segment may follow: the last was shorter, or had PSH.
    complete: bool,
}

impl<'p> Coalescer<'p> {
    /// Creates an empty coalescer.
    pub fn new() -> Coalescer<'p> {
        Coalescer::default()
    }

    /// Adds a packet, whose checksum is in this state. Returns `false` when it does not continue what was added
    /// before: that must be [finished](Coalescer::finish) first.
    ///
    /// Segments of TCP over IPv6 are gathered if their checksums are partial: a complete one would have to be verified
    /// before it is lost. Any other packet stands alone.
    pub fn push(&mut self, packet: &'p [u8], checksum: Checksum) -> bool {
        let segment = Segment::parse(packet, checksum);
        match (&mut self.open, segment) {
            (None, None) if self.parts.is_empty() => {
                self.parts.push(packet);
                self.checksum = checksum;
                true
            }
            (None, Some(segment)) if self.parts.is_empty() => {
                self.open = Some(Open::new(&segment));
                self.parts.push(segment.payload);
                self.checksum = checksum;
                true
            }
            (Some(open), Some(segment)) if self.parts.len() < MAX_COALESCED => {
                let continues = open.append(&segment);
                if continues {
                    self.parts.push(segment.payload);
                }
                continues
            }
            _ => false,
        }
    }

    /// Calls `write` with the parts of one packet and its description, and empties the coalescer. Returns `None`
    /// when there is nothing to write.
    pub fn finish<R>(&mut self, write: impl FnOnce(&VnetHeader, &[IoSlice<'_>]) -> R) -> Option<R> {
        if self.parts.is_empty() {
            return None;
        }
        let mut header = VnetHeader { checksum: self.checksum, segmentation: None };
        let mut slices = SmallVec::<[IoSlice<'_>; MAX_COALESCED + 1]>::new();
        if let Some(open) = &mut self.open {
            if self.parts.len() > 1 {
                header.segmentation = Some(open.close());
            }
            slices.push(IoSlice::new(&open.headers[..open.length]));
        }
        slices.extend(self.parts.iter().map(|part| IoSlice::new(part)));
        let result = write(&header, &slices);
        drop(slices);
        self.parts.clear();
        self.open = None;
        Some(result)
    }
}

impl Open {
    fn new(segment: &Segment<'_>) -> Open {
        let mut headers = [0; MAX_HEADERS];
        headers[..segment.headers.len()].copy_from_slice(segment.headers);
        Open {
            headers,
            length: segment.headers.len(),
            size: segment.size,
            total: segment.payload.len(),
            next: segment.end(),
            complete: segment.flags & PSH != 0,
        }
    }

    /// Notes a segment that continues the others. Returns whether it does.
    fn append(&mut self, segment: &Segment<'_>) -> bool {
        let headers = &self.headers[..self.length];
        let continues = !self.complete
            && segment.sequence == self.next
            && segment.size <= self.size
            && self.length - IPV6 + self.total + segment.payload.len() <= MAX_PAYLOAD
            && segment.flags & !PSH == headers[FLAGS]
            && same_but_for_position(segment.headers, headers);
        if continues {
            self.total += segment.payload.len();
            self.next = segment.end();
            self.complete = segment.flags & PSH != 0 || segment.size < self.size;
            self.headers[FLAGS] = segment.flags;
        }
        continues
    }

    /// Writes the headers of all segments together. Returns how they are to be split.
    fn close(&mut self) -> Segmentation {
        let own = self.length - IPV6;
        let (first, all) = ((own + usize::from(self.size.get())) as u16, (own + self.total) as u16);
        self.headers[4..6].copy_from_slice(&all.to_be_bytes());
        let at = IPV6 + usize::from(TCP_CHECKSUM);
        let partial = u16::from_be_bytes([self.headers[at], self.headers[at + 1]]);
        let partial = with_length(partial, first, all);
        self.headers[at..at + 2].copy_from_slice(&partial.to_be_bytes());
        let headers = self.length as u16;
        Segmentation { pieces: Pieces::Tcp6, size: self.size, headers, ecn: false }
    }
}

/// A segment of TCP over IPv6 that may be joined with others.
struct Segment<'p> {
    headers: &'p [u8],
    payload: &'p [u8],
    size: NonZeroU16,
    sequence: u32,
    flags: u8,
}

impl<'p> Segment<'p> {
    /// Parses a packet. Returns `None` for any but a segment with data, a partial checksum and no flags besides ACK,
    /// PSH and ECE.
    fn parse(packet: &'p [u8], checksum: Checksum) -> Option<Segment<'p>> {
        if checksum != (Checksum::Partial { start: IPV6 as u16, offset: TCP_CHECKSUM })
            || Checksum::partial(packet) != Some(checksum)
        {
            return None;
        }
        let tcp = packet[IPV6..].first_chunk::<TCP>()?;
        let length = usize::from(u16::from_be_bytes([packet[4], packet[5]]));
        let own = usize::from(tcp[12] >> 4) * 4;
        let (sequence, _) = tcp[4..].split_first_chunk::<4>()?;
        let flags = tcp[13];
        if length != packet.len() - IPV6 || own < TCP || flags & !(PSH | ECE) != ACK {
            return None;
        }
        let (headers, payload) = packet.split_at_checked(IPV6 + own)?;
        let size = NonZeroU16::new(u16::try_from(payload.len()).ok()?)?;
        Some(Segment { headers, payload, size, sequence: u32::from_be_bytes(*sequence), flags })
    }

    /// Returns the sequence number after the segment.
    fn end(&self) -> u32 {
        self.sequence.wrapping_add(self.size.get().into())
    }
}

/// Returns whether headers are the same but for lengths, sequence number, flags and checksum.
fn same_but_for_position(a: &[u8], b: &[u8]) -> bool {
    const SEQUENCE: usize = IPV6 + 4;
    const ACKNOWLEDGEMENT: usize = IPV6 + 8;
    const CHECKSUM: usize = IPV6 + TCP_CHECKSUM as usize;
    a.len() == b.len()
        && a[..4] == b[..4]
        && a[6..SEQUENCE] == b[6..SEQUENCE]
        && a[ACKNOWLEDGEMENT..FLAGS] == b[ACKNOWLEDGEMENT..FLAGS]
        && a[WINDOW..CHECKSUM] == b[WINDOW..CHECKSUM]
        && a[CHECKSUM + 2..] == b[CHECKSUM + 2..]
}
