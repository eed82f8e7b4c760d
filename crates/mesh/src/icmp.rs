//! ICMPv6 errors (RFC 4443) about packets of hosts.

use core::net::Ipv6Addr;

/// Length in octets of an IPv6 header.
pub const IPV6_HEADER: usize = 40;
/// Least MTU in octets that IPv6 needs (RFC 8200 section 5).
pub const MIN_MTU: u16 = 1_280;
/// Maximum length in octets of an error, so that it passes everywhere (RFC 4443 section 2.4 c).
const MAX_ERROR: usize = MIN_MTU as usize;
const ICMPV6: u8 = 58;
/// Hop limit of an error.
const HOP_LIMIT: u8 = 64;

/// What an error says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IcmpError {
    /// No router has the prefix of the destination (section 3.1, code 0).
    NoRoute,
    /// The packet is longer than the path allows, which is this many octets (section 3.2).
    TooBig(u32),
}

/// The part of an IPv6 header (RFC 8200 section 3) that routers look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv6Header {
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
    next_header: u8,
}

impl Ipv6Header {
    /// Parses a packet, or returns `None` if it is not a whole IPv6 packet.
    pub fn parse(packet: &[u8]) -> Option<Ipv6Header> {
        let header = packet.first_chunk::<IPV6_HEADER>()?;
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        if header[0] >> 4 != 6 || length + IPV6_HEADER != packet.len() {
            return None;
        }
        let address = |at: usize| Ipv6Addr::from(core::array::from_fn(|n| header[at + n]));
        Some(Ipv6Header { source: address(8), destination: address(24), next_header: header[6] })
    }
}

/// Returns an error about `packet`, sent by the router at `from`; `None` where RFC 4443 section 2.4 (e) forbids one.
pub fn error(error: IcmpError, from: Ipv6Addr, packet: &[u8]) -> Option<Vec<u8>> {
    let header = Ipv6Header::parse(packet)?;
    let is_icmp_error =
        header.next_header == ICMPV6 && packet.get(IPV6_HEADER).is_none_or(|&kind| kind < 128);
    let to_many = header.destination.is_multicast() && !matches!(error, IcmpError::TooBig(_));
    if is_icmp_error || to_many || header.source.is_unspecified() || header.source.is_multicast() {
        return None;
    }
    let quoted = &packet[..packet.len().min(MAX_ERROR - IPV6_HEADER - 8)];
    let mut out = vec![0x60, 0, 0, 0];
    out.extend(((quoted.len() + 8) as u16).to_be_bytes());
    out.extend([ICMPV6, HOP_LIMIT]);
    out.extend(from.octets());
    out.extend(header.source.octets());
    let (kind, value) = match error {
        IcmpError::NoRoute => (1, 0),
        IcmpError::TooBig(mtu) => (2, mtu),
    };
    out.extend([kind, 0, 0, 0]);
    out.extend(value.to_be_bytes());
    out.extend_from_slice(quoted);
    let checksum = checksum(&out);
    out[IPV6_HEADER + 2..IPV6_HEADER + 4].copy_from_slice(&checksum.to_be_bytes());
    Some(out)
}

/// Returns the checksum of the ICMPv6 message in a packet without extension headers (RFC 8200 section 8.1), whose field is
/// zero.
fn checksum(packet: &[u8]) -> u16 {
    let (header, message) = packet.split_at(IPV6_HEADER);
    let words = |bytes: &[u8]| -> u32 {
        let word =
            |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
        bytes.chunks(2).map(word).sum()
    };
    let mut sum = words(&header[8..]) + message.len() as u32 + u32::from(ICMPV6) + words(message);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(next_header: u8, destination: &str, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0];
        packet.extend((payload.len() as u16).to_be_bytes());
        packet.extend([next_header, 64]);
        packet.extend("fd01::5".parse::<Ipv6Addr>().unwrap().octets());
        packet.extend(destination.parse::<Ipv6Addr>().unwrap().octets());
        packet.extend_from_slice(payload);
        packet
    }

    fn from() -> Ipv6Addr {
        "fd01::1".parse().unwrap()
    }

    #[test]
    fn an_error_quotes_the_packet_and_has_a_good_checksum() {
        let cause = packet(17, "fd02::9", &[7; 1_300]);
        let report = error(IcmpError::TooBig(1_300), from(), &cause).unwrap();
        let header = Ipv6Header::parse(&report).unwrap();
        assert_eq!((report.len(), header.destination), (1_280, "fd01::5".parse().unwrap()));
        assert_eq!((&report[40..42], &report[44..48]), (&[2, 0][..], &[0, 0, 5, 20][..]));
        assert_eq!(report[48..], cause[..1_232]);
        // The sum over a message with its checksum is zero.
        assert_eq!(checksum(&report), 0);
    }

    #[test]
    fn there_is_no_error_about_an_error_or_to_many() {
        assert!(error(IcmpError::NoRoute, from(), &packet(58, "fd02::9", &[1, 0, 0, 0])).is_none());
        assert!(error(IcmpError::NoRoute, from(), &packet(58, "fd02::9", &[128, 0])).is_some());
        assert!(error(IcmpError::NoRoute, from(), &packet(17, "ff02::9", &[])).is_none());
        assert!(error(IcmpError::NoRoute, from(), &packet(17, "fd02::9", &[])[..39]).is_none());
    }

    proptest! {
        #[test]
        fn any_octets_are_read_without_a_panic(mut bytes: Vec<u8>) {
            if let Some(first) = bytes.first_mut() {
                *first = 0x60;
            }
            if bytes.len() > IPV6_HEADER {
                let length = (bytes.len() - IPV6_HEADER) as u16;
                bytes[4..6].copy_from_slice(&length.to_be_bytes());
            }
            let _ = error(IcmpError::NoRoute, from(), &bytes);
        }
    }
}
