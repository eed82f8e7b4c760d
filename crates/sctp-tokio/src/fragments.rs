//! IP fragmentation of SCTP packets that are larger than their path's MTU.
//!
//! A chunk that has a TSN cannot be split again, so when the path's MTU has become smaller since, IP must
//! fragment it (RFC 9260 section 6.9). The system does that only as far as it knows the path: it
//! fragments to the MTU of the first link or of a router's ICMP message, and where packets are dropped
//! silently it sends them whole for ever. SCTP knows the MTU, so the fragments are written here.

use super::carrier::Outgoing;
use ringway_os::{After, Datagram, SEND_BATCH, SendBatch};
use ringway_sansio::Addressing;
use ringway_sctp::PROTOCOL;
use smallvec::SmallVec;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::AsFd;

/// Sizes in bytes: an IPv4 header without options, an IPv6 header, a Fragment header (RFC 8200 section
/// 4.5), and a UDP header.
pub(super) const IPV4_HEADER: usize = 20;
pub(super) const IPV6_HEADER: usize = 40;
const FRAGMENT_HEADER: usize = 8;
const UDP_HEADER: usize = 8;

/// The minimum MTU of IPv6 links (RFC 8200 section 5).
const IPV6_MIN_MTU: usize = 1280;

/// TTL or hop limit of packets sent.
pub(super) const HOPS: u8 = 64;

/// Protocol numbers of IP.
const UDP: u8 = 17;
const FRAGMENT: u8 = 44;

/// Maximum number of fragments of one packet: the largest packet at the smallest MTU of SCTP.
const MAX_FRAGMENTS: usize = 160;

/// Writes the IP packets that carry `payload` in fragments of at most `mtu` bytes each to `out`. Returns
/// their ranges; none for addresses of two families, or for more than [`MAX_FRAGMENTS`].
pub(super) fn fragment(
    addressing: &Addressing,
    protocol: u8,
    identification: u32,
    payload: &[u8],
    mtu: u16,
    out: &mut Vec<u8>,
) -> SmallVec<[Range<usize>; 4]> {
    let ipv4 = addressing.destination.is_ipv4();
    let (headers, mtu) = match ipv4 {
        true => (IPV4_HEADER, usize::from(mtu)),
        false => (IPV6_HEADER + FRAGMENT_HEADER, usize::from(mtu).max(IPV6_MIN_MTU)),
    };
    // Offsets count in units of eight bytes.
    let piece = mtu.saturating_sub(headers) & !7;
    let mut ranges = SmallVec::new();
    if piece == 0 || payload.len().div_ceil(piece) > MAX_FRAGMENTS {
        return ranges;
    }
    for (index, part) in payload.chunks(piece).enumerate() {
        let start = out.len();
        let more = (index + 1) * piece < payload.len();
        let offset = (index * piece) as u16;
        let header = Fragment { protocol, identification, offset, more };
        if !header.emit(addressing, part, out) {
            return SmallVec::new();
        }
        ranges.push(start..out.len());
    }
    ranges
}

struct Fragment {
    protocol: u8,
    identification: u32,
    /// In bytes.
    offset: u16,
    more: bool,
}

impl Fragment {
    fn emit(&self, addressing: &Addressing, part: &[u8], out: &mut Vec<u8>) -> bool {
        let tos = addressing.ecn.bits();
        match (addressing.source, addressing.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                // RFC 791 section 3.1: the flag "more fragments", and the offset in units of eight.
                let flags = (u16::from(self.more) << 13) | (self.offset / 8);
                let mut header = [0; IPV4_HEADER];
                (header[0], header[1], header[8], header[9]) = (0x45, tos, HOPS, self.protocol);
                let length = (IPV4_HEADER + part.len()) as u16;
                header[2..4].copy_from_slice(&length.to_be_bytes());
                // The kernel would replace zero, by a different one for each fragment.
                let identification = (self.identification as u16).max(1);
                header[4..6].copy_from_slice(&identification.to_be_bytes());
                header[6..8].copy_from_slice(&flags.to_be_bytes());
                header[12..16].copy_from_slice(&source.octets());
                header[16..20].copy_from_slice(&destination.octets());
                let sum = checksum(&[&header]);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
                out.extend_from_slice(&header);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let length = (FRAGMENT_HEADER + part.len()) as u16;
                out.extend_from_slice(&[0x60, tos << 4, 0, 0]);
                out.extend_from_slice(&length.to_be_bytes());
                out.extend_from_slice(&[FRAGMENT, HOPS]);
                out.extend_from_slice(&source.octets());
                out.extend_from_slice(&destination.octets());
                out.extend_from_slice(&[self.protocol, 0]);
                out.extend_from_slice(&(self.offset | u16::from(self.more)).to_be_bytes());
                out.extend_from_slice(&self.identification.to_be_bytes());
            }
            _ => return false,
        }
        out.extend_from_slice(part);
        true
    }
}

/// Returns the Internet checksum (RFC 1071) of consecutive parts, each but the last of an even length.
pub(super) fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for part in parts {
        let (pairs, rest) = part.as_chunks::<2>();
        sum += pairs.iter().map(|pair| u32::from(u16::from_be_bytes(*pair))).sum::<u32>();
        sum += rest.first().map_or(0, |byte| u32::from(*byte) << 8);
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Writes a UDP header and its payload (RFC 768, and RFC 8200 section 8.1).
fn encapsulate(addressing: &Addressing, ports: (u16, u16), payload: &[u8], out: &mut Vec<u8>) {
    let length = (UDP_HEADER + payload.len()) as u16;
    out.extend_from_slice(&ports.0.to_be_bytes());
    out.extend_from_slice(&ports.1.to_be_bytes());
    out.extend_from_slice(&length.to_be_bytes());
    let (mut from, mut to) = ([0; 16], [0; 16]);
    for (address, octets) in [(addressing.source, &mut from), (addressing.destination, &mut to)] {
        match address {
            IpAddr::V4(ip) => octets[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => *octets = ip.octets(),
        }
    }
    let length = length.to_be_bytes();
    let sum = checksum(&[&from, &to, &[0, UDP], &length, &out[out.len() - 6..], payload]);
    // Zero means that there is none.
    let sum = if sum == 0 { 0xffff } else { sum };
    out.extend_from_slice(&sum.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Returns an identification that cannot be guessed (RFC 7739 section 5). Without randomness any will do:
/// the worst result is that foreign fragments mix with these, and SCTP has a checksum.
pub(super) fn first_identification() -> u32 {
    let mut start = [0; 4];
    let _ = getrandom::fill(&mut start);
    u32::from_ne_bytes(start)
}

/// The result of sending a packet in fragments.
pub(super) enum FragmentResult {
    Sent,
    /// The socket has no room now.
    NoRoom,
    /// The system refused it, with this code.
    Refused(i32),
    /// This process may not write IP headers, so the system must fragment the packet.
    NotPermitted,
}

/// Sends packets in fragments. Its sockets are opened for the first packet.
pub(super) struct Fragmenter {
    /// For IPv6 and IPv4; `Some(None)` where the socket could not be opened.
    sockets: [Option<Option<Socket>>; 2],
    identification: u32,
    packet: Vec<u8>,
    bytes: Vec<u8>,
}

impl Fragmenter {
    pub(super) fn new() -> Fragmenter {
        Fragmenter {
            sockets: [None, None],
            identification: first_identification(),
            packet: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// Sends the first packet of `outgoing`; in UDP if `udp_ports` has the local and the remote port.
    pub(super) fn send(
        &mut self,
        outgoing: &Outgoing,
        udp_ports: Option<(u16, u16)>,
        buffers: &mut SendBatch,
    ) -> FragmentResult {
        let Some((addressing, range)) = outgoing.remaining().first() else {
            return FragmentResult::Sent;
        };
        let Some(mtu) = addressing.fragment else { return FragmentResult::NotPermitted };
        let ipv4 = addressing.destination.is_ipv4();
        let socket = self.sockets[usize::from(ipv4)].get_or_insert_with(|| open(ipv4).ok());
        let Some(socket) = socket else { return FragmentResult::NotPermitted };
        let payload = &outgoing.bytes[range.clone()];
        self.packet.clear();
        self.bytes.clear();
        let (protocol, payload) = match udp_ports {
            Some(ports) => {
                encapsulate(addressing, ports, payload, &mut self.packet);
                (UDP, &self.packet[..])
            }
            None => (PROTOCOL, payload),
        };
        self.identification = self.identification.wrapping_add(1);
        let fragments =
            fragment(addressing, protocol, self.identification, payload, mtu, &mut self.bytes);
        let to = SocketAddr::new(addressing.destination, 0);
        let from = Some(addressing.source);
        let pieces: Vec<_> = fragments
            .into_iter()
            .map(|piece| Datagram::new(&self.bytes[piece], to, from))
            .collect();
        let mut failed = None;
        for batch in pieces.chunks(SEND_BATCH) {
            buffers.send(socket.as_fd(), batch, |_, code| {
                failed = Some(code);
                After::Stop
            });
        }
        match failed {
            None => FragmentResult::Sent,
            Some(libc::EAGAIN) => FragmentResult::NoRoom,
            Some(code) => FragmentResult::Refused(code),
        }
    }
}

/// Opens a socket whose packets begin with their IP header, and that receives nothing. Needs CAP_NET_RAW.
fn open(ipv4: bool) -> io::Result<Socket> {
    let domain = if ipv4 { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(libc::IPPROTO_RAW)))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(ipv4: bool) -> Addressing {
        let (source, destination) =
            if ipv4 { ("10.0.0.1", "10.0.0.2") } else { ("2001:db8::1", "2001:db8::2") };
        Addressing::new(source.parse().unwrap(), destination.parse().unwrap(), PROTOCOL)
    }

    /// RFC 791 section 3.2 and RFC 8200 section 4.5: fragments have one identification, no byte twice and
    /// none left out, and each fits.
    #[test]
    fn fragments_hold_the_packet_and_fit() {
        let payload: Vec<u8> = (0..4000u32).map(|n| (n * 7) as u8).collect();
        for (ipv4, mtu, size) in [(true, 576, 4000), (true, 1200, 1480), (false, 1300, 1452)] {
            let mut out = Vec::new();
            let pieces = fragment(&way(ipv4), PROTOCOL, 77, &payload[..size], mtu, &mut out);
            assert!(pieces.len() > 1);
            let mut whole = Vec::new();
            for (index, piece) in pieces.iter().enumerate() {
                let packet = &out[piece.clone()];
                assert!(packet.len() <= usize::from(mtu), "{}", packet.len());
                let (field, identification, start) = if ipv4 {
                    assert_eq!(checksum(&[&packet[..20]]), 0);
                    let field = u16::from_be_bytes([packet[6], packet[7]]);
                    (((field & 0x1fff) * 8) | (field >> 13), packet[5], 20)
                } else {
                    (u16::from_be_bytes([packet[42], packet[43]]), packet[47], 48)
                };
                assert_eq!(usize::from(field & !7), whole.len());
                assert_eq!(field & 1 == 1, index + 1 < pieces.len());
                assert_eq!(identification, 77);
                whole.extend_from_slice(&packet[start..]);
            }
            assert_eq!(whole, &payload[..size]);
        }
        assert!(fragment(&way(true), PROTOCOL, 1, &payload, 20, &mut Vec::new()).is_empty());
    }

    /// RFC 768: the sum over pseudo header, header and payload is all ones.
    #[test]
    fn a_udp_header_has_the_right_checksum() {
        for (ipv4, payload) in [(true, &b"odd"[..]), (false, b"even")] {
            let mut out = Vec::new();
            encapsulate(&way(ipv4), (9899, 9900), payload, &mut out);
            let mut pseudo = Vec::new();
            for address in [way(ipv4).source, way(ipv4).destination] {
                match address {
                    IpAddr::V4(ip) => pseudo.extend(ip.octets()),
                    IpAddr::V6(ip) => pseudo.extend(ip.octets()),
                }
            }
            pseudo.extend([0, UDP]);
            pseudo.extend((out.len() as u16).to_be_bytes());
            assert_eq!(checksum(&[&pseudo, &out]), 0);
            assert_eq!(&out[8..], payload);
        }
    }
}
