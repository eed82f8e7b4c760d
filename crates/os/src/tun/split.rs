//! Splitting a packet that stands for several into the segments that go over a link, as the kernel would: TCP
//! (RFC 9293) and UDP over IPv4 and IPv6.

use super::checksum::{sum, with_length};
use super::header::{Checksum, IPV6, Pieces, Segmentation, TCP_CHECKSUM, UDP_CHECKSUM, VnetHeader};
use ringway_sansio::{Got, Malformed};

/// Maximum size of the headers of a packet that is split, in octets: IPv6, TCP with all options, and room for
/// extension headers.
pub const MAX_HEADERS: usize = 256;

/// Size of an IPv4 header without options, in octets, and the position of its checksum.
const IPV4: usize = 20;
const IPV4_CHECKSUM: usize = 10;
const TCP: usize = 20;
const UDP: usize = 8;
/// Flags of TCP: the end of the data and PSH belong to the last segment, CWR to the first.
const LAST_ONLY: u8 = 0x01 | 0x08;
const FIRST_ONLY: u8 = 0x80;

/// One segment: its headers, and the payload, which is borrowed from the packet that was split.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'h, 'p> {
    /// The headers; empty for a packet that was not split.
    pub headers: &'h [u8],
    /// The payload; the whole packet where it was not split.
    pub payload: &'p [u8],
    /// The state of the checksum, with positions from the start of the headers.
    pub checksum: Checksum,
}

impl Segment<'_, '_> {
    /// Returns the size of the segment, in octets.
    pub fn len(&self) -> usize {
        self.headers.len() + self.payload.len()
    }

    /// Returns whether the segment has no octets, which no packet has.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The segments of a packet. Their checksums are partial.
#[derive(Clone, Debug)]
pub struct Segments<'p> {
    headers: Headers,
    /// What is not in a segment yet; `None` after the last.
    payload: Option<&'p [u8]>,
}

/// The headers of segments.
#[derive(Clone, Debug)]
struct Headers {
    /// Those of the next segment, but for its lengths, checksum and last flags.
    bytes: [u8; MAX_HEADERS],
    length: usize,
    checksum: Checksum,
    /// Of a packet that is split.
    split: Option<Split>,
}

#[derive(Clone, Copy, Debug)]
struct Split {
    network: Network,
    transport: Transport,
    /// Position of the transport header.
    start: usize,
    /// The number of octets of payload in each segment but the last.
    size: usize,
    /// The number of octets of payload in the segments so far.
    sent: usize,
    /// The partial checksum for a transport length of zero.
    partial: u16,
}

#[derive(Clone, Copy, Debug)]
enum Network {
    /// The identification of the next segment.
    V4 {
        identification: u16,
    },
    V6,
}

#[derive(Clone, Copy, Debug)]
enum Transport {
    /// The sequence number of the first segment, and the flags of all together.
    Tcp {
        sequence: u32,
        flags: u8,
    },
    Udp,
}

impl<'p> Segments<'p> {
    /// Returns the segments of `packet`, which the kernel described by `header`. A packet that needs no splitting is
    /// its own only segment.
    ///
    /// # Errors
    /// Headers that are not those of TCP or UDP over IP, where the packet is to be split; a checksum beyond its end.
    pub fn new(header: &VnetHeader, packet: &'p [u8]) -> Result<Segments<'p>, Malformed> {
        let headers = Headers::new(header, packet)?;
        let payload = &packet[headers.length..];
        Ok(Segments { headers, payload: Some(payload) })
    }

    /// Returns the number of segments that are left.
    pub fn remaining(&self) -> usize {
        self.payload.map_or(0, |payload| self.headers.count(payload.len()))
    }

    /// Returns the next segment. All but the last have the same size.
    pub fn next_segment(&mut self) -> Option<Segment<'_, 'p>> {
        let rest = self.payload.take()?;
        let checksum = self.headers.checksum;
        let Some(split) = self.headers.split else {
            return Some(Segment { headers: &[], payload: rest, checksum });
        };
        let (payload, rest) = rest.split_at(split.size.min(rest.len()));
        self.payload = (!rest.is_empty()).then_some(rest);
        let is_last = rest.is_empty();
        let headers = self.headers.next(payload.len(), is_last);
        Some(Segment { headers, payload, checksum })
    }
}

/// Calls `each` with the segments of `packet`, which the kernel described by `header`, one after the other. Their payloads
/// are not moved: the headers of each are written before its payload, over the segment before it. Returns their number.
///
/// # Errors
/// As [`Segments::new`].
pub fn split_in_place(
    header: &VnetHeader,
    packet: &mut [u8],
    mut each: impl FnMut(&mut [u8], Checksum),
) -> Result<usize, Malformed> {
    let mut headers = Headers::new(header, packet)?;
    let checksum = headers.checksum;
    let Some(split) = headers.split else {
        each(packet, checksum);
        return Ok(1);
    };
    let (mut at, mut count) = (headers.length, 0);
    loop {
        let end = packet.len().min(at + split.size);
        let (size, is_last) = (end - at, end == packet.len());
        let segment = &mut packet[at - headers.length..end];
        let own = headers.next(size, is_last);
        segment[..own.len()].copy_from_slice(own);
        each(segment, checksum);
        count += 1;
        if is_last {
            return Ok(count);
        }
        at = end;
    }
}

impl Headers {
    fn new(header: &VnetHeader, packet: &[u8]) -> Result<Headers, Malformed> {
        let checksum = header.checksum;
        if let Checksum::Partial { start, offset } = checksum {
            let end = usize::from(start) + usize::from(offset) + 2;
            if end > packet.len() {
                let got = Got::Number(end as u64);
                return Err(Malformed::bad("expected a checksum within the packet", got, 0));
            }
        }
        let mut headers = Headers { bytes: [0; MAX_HEADERS], length: 0, checksum, split: None };
        if let Some(segmentation) = header.segmentation {
            let (split, length) = read_headers(&segmentation, checksum, packet)?;
            headers.bytes[..length].copy_from_slice(&packet[..length]);
            headers.length = length;
            headers.split = Some(split);
        }
        Ok(headers)
    }

    /// Returns the number of segments of a payload of this length.
    fn count(&self, length: usize) -> usize {
        self.split.map_or(1, |split| length.div_ceil(split.size).max(1))
    }

    /// Writes and returns the headers of the next segment, which has `size` octets of payload.
    fn next(&mut self, size: usize, is_last: bool) -> &[u8] {
        let Some(split) = &mut self.split else { return &[] };
        let headers = &mut self.bytes[..self.length];
        // They fit: `read_headers` has checked that a segment is no longer than a packet can be.
        let transport_length = (self.length - split.start + size) as u16;
        match &mut split.network {
            Network::V6 => put(headers, 4, &((self.length - IPV6 + size) as u16).to_be_bytes()),
            Network::V4 { identification } => {
                put(headers, 2, &((self.length + size) as u16).to_be_bytes());
                put(headers, 4, &identification.to_be_bytes());
                put(headers, IPV4_CHECKSUM, &[0, 0]);
                let checksum = !sum(&headers[..split.start]);
                put(headers, IPV4_CHECKSUM, &checksum.to_be_bytes());
                *identification = identification.wrapping_add(1);
            }
        }
        let transport = &mut headers[split.start..];
        let partial = with_length(split.partial, 0, transport_length).to_be_bytes();
        match split.transport {
            Transport::Tcp { sequence, mut flags } => {
                if !is_last {
                    flags &= !LAST_ONLY;
                }
                if split.sent > 0 {
                    flags &= !FIRST_ONLY;
                }
                put(transport, 4, &sequence.wrapping_add(split.sent as u32).to_be_bytes());
                put(transport, 13, &[flags]);
                put(transport, usize::from(TCP_CHECKSUM), &partial);
            }
            Transport::Udp => {
                put(transport, 4, &transport_length.to_be_bytes());
                put(transport, usize::from(UDP_CHECKSUM), &partial);
            }
        }
        split.sent += size;
        &self.bytes[..self.length]
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Reads the headers of a packet that is to be split. Returns what they say, and their length.
fn read_headers(
    segmentation: &Segmentation,
    checksum: Checksum,
    packet: &[u8],
) -> Result<(Split, usize), Malformed> {
    let bad = |reason, got: usize, at| Err(Malformed::bad(reason, Got::Number(got as u64), at));
    let version = packet.first().map_or(0, |first| first >> 4);
    let (protocol, field, least) = match (segmentation.pieces, version) {
        (Pieces::Tcp4, 4) | (Pieces::Tcp6, 6) => (libc::IPPROTO_TCP, TCP_CHECKSUM, TCP),
        (Pieces::Udp, 4 | 6) => (libc::IPPROTO_UDP, UDP_CHECKSUM, UDP),
        _ => return bad("expected the version of IP that is announced", version.into(), 0),
    };
    let start = match checksum {
        Checksum::Partial { start, offset } if offset == field => usize::from(start),
        _ => return bad("expected a partial checksum of the transport", usize::from(field), 0),
    };
    // The first header has checked no more than the position of the checksum.
    let shortest = if version == 4 { IPV4 } else { IPV6 };
    let Some(transport) = packet.get(start..).filter(|t| start >= shortest && t.len() >= least)
    else {
        return bad("expected a transport header", packet.len(), start);
    };
    let (network, before) = if version == 4 {
        if start != usize::from(packet[0] & 0xf) * 4 {
            return bad("expected the transport behind the header of IP", start, 0);
        }
        if i32::from(packet[9]) != protocol {
            return bad("expected the transport's number", packet[9].into(), 9);
        }
        (Network::V4 { identification: u16::from_be_bytes([packet[4], packet[5]]) }, 0)
    } else {
        if start == IPV6 && i32::from(packet[6]) != protocol {
            return bad("expected the transport's number", packet[6].into(), 6);
        }
        (Network::V6, IPV6)
    };
    let (kind, own) = if protocol == libc::IPPROTO_TCP {
        let sequence = u32::from_be_bytes([transport[4], transport[5], transport[6], transport[7]]);
        let own = usize::from(transport[12] >> 4) * 4;
        (Transport::Tcp { sequence, flags: transport[13] }, own)
    } else {
        (Transport::Udp, UDP)
    };
    let (length, size) = (start + own, usize::from(segmentation.size.get()));
    if own < least || own > transport.len() || length > MAX_HEADERS {
        return bad("expected headers of at most 256 octets", length, start);
    }
    // The length field of IPv6 does not count its header.
    let longest = length - before + size.min(packet.len() - length);
    if longest > usize::from(u16::MAX) {
        return bad("expected segments of at most 65,535 octets", longest, 0);
    }
    let at = usize::from(field);
    let partial = u16::from_be_bytes([transport[at], transport[at + 1]]);
    // The sum may be that of a longer packet than its fields can tell; it is modulo 65,535 too.
    let partial = with_length(partial, (transport.len() % 0xffff) as u16, 0);
    Ok((Split { network, transport: kind, start, size, sent: 0, partial }, length))
}
