//! SCTP packets over a TUN device, with IP headers written and parsed here.

use super::carrier::{Carrier, ErrorSource, Outgoing, Traffic};
use super::fragments::{HOPS, IPV4_HEADER, IPV6_HEADER, checksum, first_identification, fragment};
use super::opening::BoundSocket;
use ringway_os::{Tun, Watched, watch_tun};
use ringway_sansio::{Addressing, Ecn, Icmp};
use ringway_sctp::PROTOCOL;
use smallvec::SmallVec;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::task::{Context, Poll};

/// Packets read at once.
const BATCH: usize = 64;

/// Largest packet that IP can carry, in bytes.
const LARGEST: usize = 65_535;

/// A TUN device, and the packets of the last read.
pub(super) struct Packets {
    io: Watched<Tun>,
    bytes: Vec<u8>,
    received: Vec<(Addressing, Range<usize>)>,
    packet: Vec<u8>,
    identification: u32,
    traffic: Traffic,
}

impl Packets {
    /// To be called within a runtime.
    pub(super) fn new(tun: Tun) -> io::Result<Packets> {
        Ok(Packets {
            io: watch_tun(tun)?,
            bytes: Vec::new(),
            received: Vec::new(),
            packet: Vec::new(),
            identification: first_identification(),
            traffic: Traffic::default(),
        })
    }
}

impl Carrier for Packets {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.bytes.clear();
        self.received.clear();
        while let Poll::Ready(ready) = self.io.poll_read_ready(cx) {
            let mut ready = ready?;
            for _ in 0..BATCH {
                let start = self.bytes.len();
                self.bytes.resize(start + LARGEST, 0);
                let read = self.io.get_ref().read(&mut self.bytes[start..]);
                self.bytes.truncate(start + read.as_ref().map_or(0, |got| *got));
                self.traffic.receive_calls += 1;
                match read {
                    Ok(_) => match parse(&self.bytes[start..]) {
                        Some((addressing, payload)) => {
                            let payload = start + payload.start..start + payload.end;
                            self.received.push((addressing, payload));
                        }
                        None => self.bytes.truncate(start),
                    },
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        ready.clear_ready();
                        break;
                    }
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
            if !self.received.is_empty() {
                self.traffic.received += self.received.len() as u64;
                return Poll::Ready(Ok(1));
            }
        }
        Poll::Pending
    }

    fn packets<'a>(&'a self, _: usize, each: &mut dyn FnMut(Addressing, &'a [u8])) {
        for (addressing, range) in &self.received {
            each(*addressing, &self.bytes[range.clone()]);
        }
    }

    fn send(&mut self, outgoing: &mut Outgoing) -> bool {
        while let Some((addressing, range)) = outgoing.remaining().first() {
            self.packet.clear();
            let payload = &outgoing.bytes[range.clone()];
            let pieces = match addressing.fragment {
                Some(mtu) => {
                    self.identification = self.identification.wrapping_add(1);
                    fragment(
                        addressing,
                        PROTOCOL,
                        self.identification,
                        payload,
                        mtu,
                        &mut self.packet,
                    )
                }
                None if emit(addressing, payload, &mut self.packet) => {
                    std::iter::once(0..self.packet.len()).collect()
                }
                None => SmallVec::new(),
            };
            let mut sent = !pieces.is_empty();
            for piece in pieces {
                self.traffic.send_calls += 1;
                match self.io.get_ref().write(&self.packet[piece]) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.traffic.no_room += 1;
                        return false;
                    }
                    Err(_) => sent = false,
                }
            }
            self.traffic.sent += u64::from(sent);
            self.traffic.not_sent += u64::from(!sent);
            self.traffic.fragmented += u64::from(sent && addressing.fragment.is_some());
            outgoing.advance(1);
        }
        true
    }

    fn refused(&mut self) -> Vec<(Addressing, Icmp, Vec<u8>)> {
        Vec::new()
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// A device has no sockets to add.
    fn admit(&mut self, _: BoundSocket) -> Option<ErrorSource> {
        None
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]))
}

/// Parses an IP packet that carries SCTP. Returns its addressing and the range of the SCTP packet. `None`
/// for any other packet, for a fragment, and for one with IPv6 extension headers.
fn parse(packet: &[u8]) -> Option<(Addressing, Range<usize>)> {
    match packet.first()? >> 4 {
        4 => {
            // RFC 791 section 3.1.
            let header = usize::from(packet[0] & 0x0f) * 4;
            let end = usize::from(u16_at(packet, 2)?);
            let part = u16_at(packet, 6)? & 0x3fff != 0;
            let addresses: [u8; 8] = packet.get(12..IPV4_HEADER)?.try_into().ok()?;
            let [a, b, c, d, e, f, g, h] = addresses;
            let fits = (IPV4_HEADER..=end).contains(&header) && end <= packet.len();
            if packet[9] != PROTOCOL || part || !fits {
                return None;
            }
            let (source, destination) = (Ipv4Addr::new(a, b, c, d), Ipv4Addr::new(e, f, g, h));
            let addressing = Addressing::new(source.into(), destination.into(), PROTOCOL);
            Some((Addressing { ecn: Ecn::from_bits(packet[1]), ..addressing }, header..end))
        }
        6 => {
            // RFC 8200 section 3.
            let end = IPV6_HEADER + usize::from(u16_at(packet, 4)?);
            let source: [u8; 16] = packet.get(8..24)?.try_into().ok()?;
            let destination: [u8; 16] = packet.get(24..IPV6_HEADER)?.try_into().ok()?;
            if packet[6] != PROTOCOL || end > packet.len() {
                return None;
            }
            let addressing = Addressing::new(
                Ipv6Addr::from(source).into(),
                Ipv6Addr::from(destination).into(),
                PROTOCOL,
            );
            let ecn = Ecn::from_bits(packet[1] >> 4);
            Some((Addressing { ecn, ..addressing }, IPV6_HEADER..end))
        }
        _ => None,
    }
}

/// Writes an IP packet. Returns `false` for a payload that is too large, or addresses of two families.
fn emit(addressing: &Addressing, payload: &[u8], out: &mut Vec<u8>) -> bool {
    let tos = addressing.ecn.bits();
    match (addressing.source, addressing.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let Ok(length) = u16::try_from(IPV4_HEADER + payload.len()) else { return false };
            // RFC 6864 section 4.1: a packet with DF is never fragmented and needs no identification.
            let flags = 0x4000u16;
            let mut header = [0; IPV4_HEADER];
            (header[0], header[1], header[8], header[9]) = (0x45, tos, HOPS, PROTOCOL);
            header[2..4].copy_from_slice(&length.to_be_bytes());
            header[6..8].copy_from_slice(&flags.to_be_bytes());
            header[12..16].copy_from_slice(&source.octets());
            header[16..20].copy_from_slice(&destination.octets());
            let sum = checksum(&[&header]);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            out.extend_from_slice(&header);
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let Ok(length) = u16::try_from(payload.len()) else { return false };
            out.extend_from_slice(&[0x60, tos << 4, 0, 0]);
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(&[PROTOCOL, HOPS]);
            out.extend_from_slice(&source.octets());
            out.extend_from_slice(&destination.octets());
        }
        _ => return false,
    }
    out.extend_from_slice(payload);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_packet_is_parsed() {
        for (source, destination) in [("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8::2")] {
            let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
            for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ce] {
                let way = Addressing { ecn, ..Addressing::new(source, destination, PROTOCOL) };
                let mut packet = Vec::new();
                assert!(emit(&way, b"payload", &mut packet));
                let (got, range) = parse(&packet).unwrap();
                assert_eq!((got, &packet[range]), (way, &b"payload"[..]));
                for cut in 0..packet.len() {
                    assert_eq!(parse(&packet[..cut]), None);
                }
                assert!(!emit(&way, &[0; 65_536], &mut packet));
            }
        }
        let mixed = Addressing::new("10.0.0.1".parse().unwrap(), "::1".parse().unwrap(), PROTOCOL);
        assert!(!emit(&mixed, b"", &mut Vec::new()));
    }
}
