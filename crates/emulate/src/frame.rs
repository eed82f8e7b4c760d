//! What a link needs to know of a packet, and what it changes in one.

use ringway_link::flow_hash;
use ringway_sansio::Ecn;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Size of an Ethernet header without tags, in octets: two addresses and a type.
const ETHERNET: usize = 14;
/// Size of the two addresses, and of a tag behind them (IEEE 802.1Q).
const ADDRESSES: usize = 12;
const TAG: usize = 4;
/// Maximum size of the header of a link, in octets: Ethernet with three tags.
pub(crate) const MAX_LINK_HEADER: usize = ETHERNET + 3 * TAG;

const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86dd;
const TYPE_ARP: u16 = 0x0806;
/// Maximum value of the type of a frame that is a length.
const MAX_LENGTH: u16 = 1_500;
/// Types of tags: of customers and of providers.
const TYPE_TAGS: [u16; 2] = [0x8100, 0x88a8];

const IPV4: usize = 20;
const IPV6: usize = 40;
/// Size of the header of ARP without addresses, in octets.
const ARP: usize = 8;
/// The next header of a packet with hop-by-hop options, as a jumbogram has (RFC 8200 section 4.3).
const HOP_BY_HOP: u8 = 0;

/// Returns the length of the Ethernet header of a frame with its tags, at most two. `None` for a frame that is shorter.
pub(crate) fn ethernet_header(frame: &[u8]) -> Option<usize> {
    let mut length = ETHERNET;
    for _ in 0..2 {
        if frame.len() >= length + TAG && TYPE_TAGS.contains(&word(frame, length - 2)?) {
            length += TAG;
        }
    }
    (frame.len() >= length).then_some(length)
}

/// Writes the header of a frame whose tag was taken out. Returns the header and its length. `header` has at most
/// two tags.
pub(crate) fn with_tag(header: &[u8], tag: Option<[u8; TAG]>) -> ([u8; MAX_LINK_HEADER], usize) {
    let mut whole = [0; MAX_LINK_HEADER];
    let header = &header[..header.len().min(MAX_LINK_HEADER - TAG)];
    let (addresses, rest) = header.split_at(ADDRESSES.min(header.len()));
    let parts = [addresses, tag.as_ref().map_or(&[][..], |tag| tag), rest];
    let mut length = 0;
    for part in parts {
        whole[length..length + part.len()].copy_from_slice(part);
        length += part.len();
    }
    (whole, length)
}

/// What a packet says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Headers {
    version: Version,
    /// Its congestion notification.
    pub(crate) ecn: Ecn,
    /// The hash of its flow.
    pub(crate) flow: u32,
    /// Position of the transport's header; 0 for a packet that is not IP.
    pub(crate) transport: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    V4,
    V6,
    Other,
}

impl Headers {
    /// Reads a packet. `link` is the header of its link: Ethernet, or nothing where all packets are IP.
    pub(crate) fn read(link: &[u8], packet: &[u8]) -> Headers {
        let kind = link.len().checked_sub(2).and_then(|at| word(link, at));
        let version = match (kind, packet.first().map(|first| first >> 4)) {
            (None | Some(TYPE_IPV4), Some(4)) => ipv4(packet),
            (None | Some(TYPE_IPV6), Some(6)) => ipv6(packet),
            _ => None,
        };
        version.unwrap_or(Headers {
            version: Version::Other,
            ecn: Ecn::NotEct,
            flow: kind.unwrap_or(0).into(),
            transport: 0,
        })
    }

    /// Returns the length of a packet in octets without the padding that a card adds to a short frame (IEEE 802.3 section
    /// 3.2.8). A packet that is longer by its own header than it is counts as it is, and so does one whose header has no
    /// length.
    pub(crate) fn size(&self, link: &[u8], packet: &[u8]) -> usize {
        let length = match self.version {
            Version::V4 => word(packet, 2).map(usize::from),
            Version::V6 => ipv6_length(packet),
            Version::Other => other_length(link, packet),
        };
        let header = usize::from(self.transport).max(1);
        length
            .filter(|length| *length >= header)
            .map_or(packet.len(), |length| length.min(packet.len()))
    }

    /// Marks a packet as having experienced congestion (RFC 3168 section 5). One that is not IP is not changed.
    pub(crate) fn mark(&self, packet: &mut [u8]) {
        match self.version {
            Version::V4 => {
                let (Some(before), Some(sum)) = (word(packet, 0), word(packet, 10)) else { return };
                packet[1] |= Ecn::Ce.bits();
                let after = before | u16::from(Ecn::Ce.bits());
                // RFC 1624 section 3: the checksum is updated for the word that has changed.
                let sum = !add(add(!sum, !before), after);
                packet[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            Version::V6 => {
                if let Some(octet) = packet.get_mut(1) {
                    *octet |= Ecn::Ce.bits() << 4;
                }
            }
            Version::Other => {}
        }
    }

    /// Inverts a bit of a packet, which is counted over its length. As in the simulator it is one of the transport's
    /// header or data: a router would drop a packet with an invalid IP header.
    pub(crate) fn invert(&self, packet: &mut [u8], bit: u32) {
        let data = packet.get_mut(usize::from(self.transport)..).unwrap_or_default();
        if !data.is_empty() {
            let at = bit as usize / 8 % data.len();
            data[at] ^= 1 << (bit % 8);
        }
    }
}

fn ipv4(packet: &[u8]) -> Option<Headers> {
    let header = packet.first_chunk::<IPV4>()?;
    let transport = u16::from(header[0] & 0xf) * 4;
    let [source, destination] = [12, 16].map(|at| {
        IpAddr::from(Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]))
    });
    // Only the first fragment has ports.
    let is_first = word(packet, 6)? & 0x1fff == 0;
    let ports = if is_first { ports(packet, transport) } else { 0 };
    Some(Headers {
        version: Version::V4,
        ecn: Ecn::from_bits(header[1]),
        flow: flow_hash(&source, &destination, header[9], ports),
        transport,
    })
}

fn ipv6(packet: &[u8]) -> Option<Headers> {
    let header = packet.first_chunk::<IPV6>()?;
    let address = |octets: &[u8]| Some(IpAddr::from(Ipv6Addr::from(*octets.first_chunk::<16>()?)));
    let (source, destination) = (address(&header[8..24])?, address(&header[24..40])?);
    let transport = IPV6 as u16;
    Some(Headers {
        version: Version::V6,
        ecn: Ecn::from_bits(header[1] >> 4),
        flow: flow_hash(&source, &destination, header[6], ports(packet, transport)),
        transport,
    })
}

/// Returns the length of an IPv6 packet by its header. `None` for a jumbogram (RFC 2675 section 3).
fn ipv6_length(packet: &[u8]) -> Option<usize> {
    let is_jumbo = packet.get(6) == Some(&HOP_BY_HOP);
    let payload = word(packet, 4).filter(|payload| *payload > 0 || !is_jumbo)?;
    Some(IPV6 + usize::from(payload))
}

/// Returns the length of a packet that is not IP, if its header or that of the link has it.
fn other_length(link: &[u8], packet: &[u8]) -> Option<usize> {
    match word(link, link.len().checked_sub(2)?)? {
        TYPE_ARP => {
            // RFC 826: the lengths of both kinds of addresses, of which there are two each.
            let addresses = usize::from(*packet.get(4)?) + usize::from(*packet.get(5)?);
            Some(ARP + 2 * addresses)
        }
        // IEEE 802.3 section 3.2.6: the length of the data instead of a type.
        length if length <= MAX_LENGTH => Some(length.into()),
        _ => None,
    }
}

fn ports(packet: &[u8], transport: u16) -> u32 {
    let payload = packet.get(usize::from(transport)..).unwrap_or_default();
    payload.first_chunk::<4>().map_or(0, |ports| u32::from_be_bytes(*ports))
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

/// Adds two sums of 16-bit words in one's complement.
fn add(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u16::from(carry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINK: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00];

    fn packet4(ecn: u8) -> Vec<u8> {
        let mut packet =
            vec![0x45, ecn, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
        let sum = !(0..10).fold(0, |sum, i| add(sum, word(&packet, 2 * i).unwrap()));
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend([0, 53, 0, 54, 0, 8, 0, 0]);
        packet
    }

    #[test]
    fn a_packet_is_read() {
        let headers = Headers::read(&LINK, &packet4(2));
        assert_eq!((headers.ecn, headers.transport), (Ecn::Ect0, 20));
        let [source, destination] = [1, 2].map(|last| IpAddr::from([192, 0, 2, last]));
        assert_eq!(headers.flow, flow_hash(&source, &destination, 17, 53 << 16 | 54));
        // Behind a TUN device there is no other header.
        assert_eq!(Headers::read(&[], &packet4(2)), headers);
        let mut arp = LINK;
        arp[13] = 6;
        let other = Headers::read(&arp, &packet4(2));
        assert_eq!((other.ecn, other.flow, other.transport), (Ecn::NotEct, 0x0806, 0));
    }

    #[test]
    fn a_packet_of_ipv6_is_read_and_marked() {
        let mut packet = vec![0x60, 0x10, 0, 0, 0, 8, 17, 64];
        packet.extend([0xfd; 32]);
        packet.extend([0, 53, 0, 54, 0, 8, 0, 0]);
        let headers = Headers::read(&[], &packet);
        assert_eq!((headers.ecn, headers.transport), (Ecn::Ect1, 40));
        headers.mark(&mut packet);
        assert_eq!(Headers::read(&[], &packet).ecn, Ecn::Ce);
        assert_eq!(packet[..2], [0x60, 0x30]);
    }

    /// Returns the length of a packet by its headers.
    fn size(link: &[u8], packet: &[u8]) -> usize {
        Headers::read(link, packet).size(link, packet)
    }

    #[test]
    fn a_packet_of_ip_is_as_long_as_its_header_says() {
        let mut packet = packet4(0);
        packet.extend([0; 18]);
        assert_eq!((packet.len(), size(&LINK, &packet)), (46, 28));
        for (length, expected) in [(46, 46), (47, 46), (19, 46), (20, 20), (0, 46)] {
            packet[3] = length;
            assert_eq!(size(&LINK, &packet), expected, "{length}");
        }
        let mut packet = vec![0x60, 0, 0, 0, 0, 8, 17, 64];
        packet.extend([0; 50]);
        for (length, expected) in [(8, 48), (18, 58), (19, 58), (0, 40)] {
            packet[5] = length;
            assert_eq!(size(&[], &packet), expected, "{length}");
        }
        packet[6] = HOP_BY_HOP;
        assert_eq!(size(&[], &packet), 58, "a jumbogram");
    }

    #[test]
    fn the_length_of_other_packets_is_known_for_arp_and_by_the_link() {
        let with_type = |value: u16| [&LINK[..12], &value.to_be_bytes()].concat();
        let mut arp = vec![0, 1, 8, 0, 6, 4, 0, 1];
        arp.resize(46, 0);
        assert_eq!(size(&with_type(TYPE_ARP), &arp), 28);
        assert_eq!(size(&with_type(TYPE_ARP), &arp[..5]), 5);
        assert_eq!(size(&with_type(0x88b5), &arp), 46);
        assert_eq!(size(&with_type(38), &arp), 38);
        assert_eq!((size(&with_type(0), &arp), size(&with_type(1_500), &arp)), (46, 46));
    }

    #[test]
    fn tags_belong_to_the_header_of_the_link() {
        let mut frame = LINK.to_vec();
        frame.extend(packet4(0));
        assert_eq!(ethernet_header(&frame), Some(14));
        let tag = [0x81, 0, 0, 5];
        let (header, length) = with_tag(&LINK, Some(tag));
        assert_eq!((&header[..12], &header[12..16]), (&LINK[..12], &tag[..]));
        assert_eq!(header[16..length], LINK[12..]);
        let tagged = [&header[..length], &packet4(0)].concat();
        assert_eq!(ethernet_header(&tagged), Some(18));
        let (header, length) = with_tag(&header[..length], Some([0x88, 0xa8, 0, 9]));
        assert_eq!(ethernet_header(&[&header[..length], &packet4(0)].concat()), Some(22));
        assert_eq!(ethernet_header(&LINK[..13]), None);
        assert_eq!(ethernet_header(&header[..17]), Some(14), "no tag without a type");
    }

    #[test]
    fn an_inverted_bit_is_behind_the_ip_header() {
        let mut packet = packet4(0);
        let before = packet.clone();
        Headers::read(&[], &before).invert(&mut packet, 3);
        assert_eq!((packet[20], &packet[..20]), (before[20] ^ 8, &before[..20]));
        Headers::read(&[], &before).invert(&mut packet, 64 + 3);
        assert_eq!(packet, before);
    }

    proptest! {
        /// RFC 791: the header's checksum stays right.
        #[test]
        fn a_mark_keeps_the_checksum(ecn in 1u8..4, id: u16, ttl: u8) {
            let mut packet = packet4(ecn);
            packet[4..6].copy_from_slice(&id.to_be_bytes());
            packet[8] = ttl;
            packet[10..12].fill(0);
            let sum = !(0..10).fold(0, |sum, i| add(sum, word(&packet, 2 * i).unwrap()));
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            Headers::read(&[], &packet).mark(&mut packet);
            prop_assert_eq!(packet[1], 3);
            let sum = (0..10).fold(0, |sum, i| add(sum, word(&packet, 2 * i).unwrap()));
            prop_assert_eq!(sum, 0xffff);
        }

        #[test]
        fn any_octets_are_a_packet(
            link in prop::collection::vec(any::<u8>(), 0..20),
            packet in prop::collection::vec(any::<u8>(), 0..70),
            first in prop::sample::select(vec![0x45u8, 0x4f, 0x60, 0]), bit: u32,
        ) {
            let mut packet = packet;
            if let Some(octet) = packet.first_mut() {
                *octet = first;
            }
            for link in [&link[..], &[], &LINK] {
                let headers = Headers::read(link, &packet);
                headers.mark(&mut packet.clone());
                headers.invert(&mut packet.clone(), bit);
                let _ = ethernet_header(&packet);
                prop_assert!(headers.size(link, &packet) <= packet.len());
            }
        }
    }
}
