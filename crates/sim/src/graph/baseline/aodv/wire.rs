//! The packets of AODV: RFC 3561 section 5, in UDP and IPv4.

use crate::headers::{UDP, fold, read_udp, sum, write_ip_header, write_udp};
use ringway_sansio::Addressing;
use std::net::Ipv4Addr;

/// UDP port of AODV (RFC 3561 section 10).
pub const PORT: u16 = 654;
/// Protocol number of data packets: one for experiments (RFC 3692 section 2.1).
pub const DATA: u8 = 253;
/// Length of an IPv4 header without options.
const IP_HEADER: usize = 20;
/// Maximum number of destinations in a route error, which is that of its count.
pub const MAX_UNREACHABLE: usize = 250;

/// The address of a node: 10.0.0.1 for node 0.
pub fn address(node: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(10 << 24 | (node + 1) & 0xff_ffff)
}

/// Returns the node with an address.
pub fn node(address: Ipv4Addr) -> Option<u32> {
    let number = address.to_bits();
    (number >> 24 == 10).then(|| (number & 0xff_ffff).checked_sub(1))?
}

/// A packet of IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip<'a> {
    /// Sender of this link's packet for messages of AODV, and the first sender of data.
    pub source: Ipv4Addr,
    /// Receiver, 255.255.255.255 for all neighbours.
    pub destination: Ipv4Addr,
    /// Protocol number of the payload.
    pub protocol: u8,
    /// Time to live.
    pub ttl: u8,
    /// What follows the header.
    pub payload: &'a [u8],
}

impl<'a> Ip<'a> {
    /// Parses a packet without options; `None` if it is none or its checksum is wrong.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, _) = bytes.split_first_chunk::<IP_HEADER>()?;
        let [version, _, high, low, .., a, b, c, d, e, f, g, h] = *header;
        let payload = bytes.get(IP_HEADER..u16::from_be_bytes([high, low]).into())?;
        let is_valid = version == 0x45 && fold(sum(header)) == 0;
        is_valid.then_some(Ip {
            source: [a, b, c, d].into(),
            destination: [e, f, g, h].into(),
            protocol: header[9],
            ttl: header[8],
            payload,
        })
    }

    /// Appends the packet.
    pub fn write(&self, out: &mut Vec<u8>) {
        let addresses = [self.source.into(), self.destination.into()];
        let addressing = Addressing::new(addresses[0], addresses[1], self.protocol);
        write_ip_header(out, &addressing, self.payload.len(), self.ttl, 0);
        out.extend_from_slice(self.payload);
    }

    /// Returns the message in the packet, if it is one of AODV.
    pub fn message(&self) -> Option<Message> {
        let addressing = Addressing::new(self.source.into(), self.destination.into(), UDP);
        let (_, data) = read_udp(&addressing, self.payload).filter(|_| self.protocol == UDP)?;
        Message::parse(data)
    }
}

/// Returns a packet with a message.
pub fn packet(message: &Message, source: Ipv4Addr, destination: Ipv4Addr, ttl: u8) -> Vec<u8> {
    let (mut data, mut payload, mut out) = (Vec::new(), Vec::new(), Vec::new());
    message.write(&mut data);
    let [from, to] = [source, destination].map(|address| (address, PORT).into());
    write_udp(&mut payload, from, to, &data);
    Ip { source, destination, protocol: UDP, ttl, payload: &payload }.write(&mut out);
    out
}

/// A route request (section 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// D: only the destination may reply.
    pub destination_only: bool,
    /// Links passed.
    pub hop_count: u8,
    /// Distinguishes the requests of the originator.
    pub id: u32,
    /// The destination.
    pub destination: Ipv4Addr,
    /// Its last known sequence number; `None` is the flag U.
    pub destination_sequence: Option<u32>,
    /// The node that looks for a route.
    pub originator: Ipv4Addr,
    /// Its sequence number.
    pub originator_sequence: u32,
}

/// A route reply (section 5.2), and a hello (section 6.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Links from the destination.
    pub hop_count: u8,
    /// The destination.
    pub destination: Ipv4Addr,
    /// Its sequence number.
    pub destination_sequence: u32,
    /// The node that asked for the route.
    pub originator: Ipv4Addr,
    /// Milliseconds for which the route is valid.
    pub lifetime_ms: u32,
}

/// A message of AODV.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// RREQ.
    Request(Request),
    /// RREP.
    Reply(Reply),
    /// RERR (section 5.3): destinations that became unreachable, and their sequence numbers.
    Error(Vec<(Ipv4Addr, u32)>),
}

const REQUEST: u8 = 1;
const REPLY: u8 = 2;
const ERROR: u8 = 3;
/// Flags of a request: J, R, G, D and U from the highest bit of the second byte.
const DESTINATION_ONLY: u8 = 0x10;
const UNKNOWN_SEQUENCE: u8 = 0x08;

impl Message {
    /// Appends the message.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Message::Request(request) => {
                let mut flags = DESTINATION_ONLY * u8::from(request.destination_only);
                if request.destination_sequence.is_none() {
                    flags |= UNKNOWN_SEQUENCE;
                }
                out.extend_from_slice(&[REQUEST, flags, 0, request.hop_count]);
                out.extend_from_slice(&request.id.to_be_bytes());
                out.extend_from_slice(&request.destination.octets());
                let sequence = request.destination_sequence.unwrap_or_default();
                out.extend_from_slice(&sequence.to_be_bytes());
                out.extend_from_slice(&request.originator.octets());
                out.extend_from_slice(&request.originator_sequence.to_be_bytes());
            }
            Message::Reply(reply) => {
                out.extend_from_slice(&[REPLY, 0, 0, reply.hop_count]);
                out.extend_from_slice(&reply.destination.octets());
                out.extend_from_slice(&reply.destination_sequence.to_be_bytes());
                out.extend_from_slice(&reply.originator.octets());
                out.extend_from_slice(&reply.lifetime_ms.to_be_bytes());
            }
            Message::Error(unreachable) => {
                let count = unreachable.len().min(MAX_UNREACHABLE);
                out.extend_from_slice(&[ERROR, 0, 0, count as u8]);
                for (address, sequence) in &unreachable[..count] {
                    out.extend_from_slice(&address.octets());
                    out.extend_from_slice(&sequence.to_be_bytes());
                }
            }
        }
    }

    /// Parses a message; `None` if it is none of these.
    pub fn parse(bytes: &[u8]) -> Option<Message> {
        let [kind, flags, _, count] = *bytes.first_chunk()?;
        let word = |index: usize| {
            let word = bytes.get(4 * index..4 * index + 4)?;
            Some(u32::from_be_bytes(word.try_into().ok()?))
        };
        let address = |index| Some(Ipv4Addr::from_bits(word(index)?));
        Some(match kind {
            REQUEST => Message::Request(Request {
                destination_only: flags & DESTINATION_ONLY != 0,
                hop_count: count,
                id: word(1)?,
                destination: address(2)?,
                destination_sequence: Some(word(3)?).filter(|_| flags & UNKNOWN_SEQUENCE == 0),
                originator: address(4)?,
                originator_sequence: word(5)?,
            }),
            REPLY => Message::Reply(Reply {
                hop_count: count,
                destination: address(1)?,
                destination_sequence: word(2)?,
                originator: address(3)?,
                lifetime_ms: word(4)?,
            }),
            ERROR => {
                let pair = |index: usize| Some((address(2 * index + 1)?, word(2 * index + 2)?));
                Message::Error((0..usize::from(count)).map(pair).collect::<Option<_>>()?)
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn ip(last: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 0, last)
    }

    /// The formats of RFC 3561 sections 5.1 to 5.3, byte for byte.
    #[test]
    fn messages_have_the_formats_of_the_rfc() {
        let request = Request {
            destination_only: false,
            hop_count: 3,
            id: 0x0102_0304,
            destination: ip(9),
            destination_sequence: None,
            originator: ip(1),
            originator_sequence: 0x0a0b_0c0d,
        };
        let known =
            Request { destination_only: true, destination_sequence: Some(0x1112_1314), ..request };
        let reply = Reply {
            hop_count: 2,
            destination: ip(9),
            destination_sequence: 7,
            originator: ip(1),
            lifetime_ms: 6_000,
        };
        #[rustfmt::skip]
        let table: [(Message, &[u8]); 4] = [
            (Message::Request(request), &[
                1, 0b0000_1000, 0, 3,
                1, 2, 3, 4,
                10, 0, 0, 9,
                0, 0, 0, 0,
                10, 0, 0, 1,
                10, 11, 12, 13,
            ]),
            (Message::Request(known), &[
                1, 0b0001_0000, 0, 3,
                1, 2, 3, 4,
                10, 0, 0, 9,
                17, 18, 19, 20,
                10, 0, 0, 1,
                10, 11, 12, 13,
            ]),
            (Message::Reply(reply), &[
                2, 0, 0, 2,
                10, 0, 0, 9,
                0, 0, 0, 7,
                10, 0, 0, 1,
                0, 0, 0x17, 0x70,
            ]),
            (Message::Error(vec![(ip(9), 8), (ip(8), 256)]), &[
                3, 0, 0, 2,
                10, 0, 0, 9,
                0, 0, 0, 8,
                10, 0, 0, 8,
                0, 0, 1, 0,
            ]),
        ];
        for (message, bytes) in table {
            let mut out = Vec::new();
            message.write(&mut out);
            assert_eq!(out, bytes, "{message:?}");
            assert_eq!(Message::parse(bytes), Some(message));
            assert!((0..bytes.len()).all(|len| Message::parse(&bytes[..len]).is_none()));
        }
        assert_eq!(Message::parse(&[4, 0, 0, 0]), None);
    }

    #[test]
    fn a_message_is_in_a_datagram_of_port_654() {
        let message = Message::Error(vec![(ip(9), 8)]);
        let all = Ipv4Addr::BROADCAST;
        let packet = packet(&message, ip(2), all, 1);
        assert_eq!(packet.len(), 20 + 8 + 12);
        assert_eq!(packet[..10], [0x45, 0, 0, 40, 0, 0, 0x40, 0, 1, 17]);
        assert_eq!(packet[12..26], [10, 0, 0, 2, 255, 255, 255, 255, 2, 0x8e, 2, 0x8e, 0, 20]);
        let ip_packet = Ip::parse(&packet).unwrap();
        assert_eq!((ip_packet.source, ip_packet.destination, ip_packet.ttl), (ip(2), all, 1));
        assert_eq!(ip_packet.message(), Some(message));
        for index in 0..packet.len() {
            let mut broken = packet.clone();
            broken[index] ^= 0x10;
            assert_eq!(Ip::parse(&broken).and_then(|ip| ip.message()), None, "byte {index}");
        }
    }

    #[test]
    fn every_node_has_an_address() {
        assert_eq!([address(0), address(255)], [ip(1), Ipv4Addr::new(10, 0, 1, 0)]);
        for number in [0, 1, 255, 65_535, 0xff_fffe] {
            assert_eq!(node(address(number)), Some(number));
        }
        assert_eq!([node(ip(0)), node(Ipv4Addr::BROADCAST)], [None; 2]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Ip::parse(&bytes).and_then(|ip| ip.message());
            let _ = Message::parse(&bytes);
        }
    }
}
