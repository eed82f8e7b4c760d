//! IP and UDP headers on the wire.

use ringway_sansio::Addressing;
use std::net::{IpAddr, SocketAddr};

/// Length of a UDP header.
pub const UDP_HEADER: usize = 8;
/// Protocol number of UDP.
pub const UDP: u8 = 17;

/// Returns the length of the IP header of a packet: 20 for IPv4, 40 for IPv6.
pub const fn ip_header_len(addressing: &Addressing) -> usize {
    match addressing.destination {
        IpAddr::V4(_) => 20,
        IpAddr::V6(_) => 40,
    }
}

/// Returns the sum of 16-bit words by RFC 1071, without the complement; an odd last byte counts as a
/// high one.
pub fn sum(bytes: &[u8]) -> u64 {
    // The folded sum does not depend on the width or byte order of the words that are added (RFC 1071
    // section 2), so they are the machine's.
    let mut total = 0u128;
    let mut chunks = bytes.chunks_exact(64);
    for chunk in &mut chunks {
        for word in chunk.chunks_exact(8) {
            total += u128::from(u64::from_le_bytes(word.try_into().unwrap_or([0; 8])));
        }
    }
    for word in chunks.remainder().chunks(8) {
        let mut whole = [0; 8];
        whole[..word.len()].copy_from_slice(word);
        total += u128::from(u64::from_le_bytes(whole));
    }
    let (low, carry) = (total as u64).overflowing_add((total >> 64) as u64);
    let mut total = (low & 0xffff_ffff) + (low >> 32) + u64::from(carry);
    for _ in 0..3 {
        total = (total & 0xffff) + (total >> 16);
    }
    u64::from((total as u16).swap_bytes())
}

/// Folds a sum into the checksum of a header (RFC 1071).
pub const fn fold(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Returns the sum of the pseudo-header of a transport (RFC 768, RFC 8200 section 8.1) of `length`
/// bytes.
pub fn pseudo_sum(addressing: &Addressing, length: usize) -> u64 {
    let address = |ip: &IpAddr| match ip {
        IpAddr::V4(v4) => sum(&v4.octets()),
        IpAddr::V6(v6) => sum(&v6.octets()),
    };
    address(&addressing.source)
        + address(&addressing.destination)
        + u64::from(addressing.protocol)
        + length as u64
}

/// Appends the IP header of a packet (RFC 791 section 3.1 or RFC 8200 section 3). IPv4 has
/// `identification` and Don't Fragment; packets are never fragmented here.
pub fn write_ip_header(
    out: &mut Vec<u8>,
    addressing: &Addressing,
    payload_len: usize,
    hops: u8,
    identification: u16,
) {
    let start = out.len();
    match (addressing.source, addressing.destination) {
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let class = u32::from(addressing.ecn.bits());
            out.extend_from_slice(&(6 << 28 | class << 20).to_be_bytes());
            out.extend_from_slice(&(payload_len as u16).to_be_bytes());
            out.extend_from_slice(&[addressing.protocol, hops]);
            out.extend_from_slice(&source.octets());
            out.extend_from_slice(&destination.octets());
        }
        (source, destination) => {
            let v4 = |ip| match ip {
                IpAddr::V4(v4) => v4.octets(),
                IpAddr::V6(_) => [0; 4],
            };
            out.extend_from_slice(&[0x45, addressing.ecn.bits()]);
            out.extend_from_slice(&((20 + payload_len) as u16).to_be_bytes());
            out.extend_from_slice(&identification.to_be_bytes());
            out.extend_from_slice(&[0x40, 0, hops, addressing.protocol, 0, 0]);
            out.extend_from_slice(&v4(source));
            out.extend_from_slice(&v4(destination));
            let checksum = fold(sum(&out[start..]));
            out[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
        }
    }
}

/// Returns a UDP header (RFC 768) without its checksum, for `data_len` bytes of data.
pub const fn udp_header(source: u16, destination: u16, data_len: usize) -> [u8; UDP_HEADER] {
    let ([a, b], [c, d]) = (source.to_be_bytes(), destination.to_be_bytes());
    let [e, f] = ((UDP_HEADER + data_len) as u16).to_be_bytes();
    [a, b, c, d, e, f, 0, 0]
}

/// Returns the addressing of a UDP packet between two addresses.
pub const fn udp_between(source: IpAddr, destination: IpAddr) -> Addressing {
    Addressing::new(source, destination, UDP)
}

/// Appends a datagram with its checksum (RFC 768) and returns its addressing. Both addresses are of one
/// family, and the length is below 64 KiB.
pub fn write_udp(out: &mut Vec<u8>, from: SocketAddr, to: SocketAddr, data: &[u8]) -> Addressing {
    let addressing = udp_between(from.ip(), to.ip());
    let start = out.len();
    out.extend_from_slice(&udp_header(from.port(), to.port(), data.len()));
    out.extend_from_slice(data);
    let sum = pseudo_sum(&addressing, out.len() - start) + sum(&out[start..]);
    // RFC 768: a checksum of zero is sent as all ones.
    let checksum = fold(sum).max(u16::from(fold(sum) == 0) * u16::MAX);
    out[start + 6..start + 8].copy_from_slice(&checksum.to_be_bytes());
    addressing
}

/// Returns the source port and the data of a datagram with a correct checksum or none.
pub fn read_udp<'a>(addressing: &Addressing, payload: &'a [u8]) -> Option<(u16, &'a [u8])> {
    let (header, _) = payload.split_first_chunk::<UDP_HEADER>()?;
    // RFC 768: zero stands for no checksum.
    let unchecked = header[6..] == [0, 0];
    if !unchecked && fold(pseudo_sum(addressing, payload.len()) + sum(payload)) != 0 {
        return None;
    }
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    Some((u16::from_be_bytes([header[0], header[1]]), payload.get(UDP_HEADER..length)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_sansio::Ecn;
    use std::net::{Ipv4Addr, Ipv6Addr};

    /// The example of RFC 1071 section 3.
    #[test]
    fn sums_fold_as_in_the_rfc() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(sum(&bytes)), !0xddf2);
        assert_eq!(fold(sum(&[1, 2, 3])), !(0x0102 + 0x0300));
        assert_eq!(fold(0), 0xffff);
    }

    /// RFC 768: a written datagram is read, and one with an inverted bit is not.
    #[test]
    fn datagrams_are_checked() {
        let [from, to] = [1, 2].map(|n| SocketAddr::from(([10, 0, 0, n], 5060)));
        let mut packet = Vec::new();
        let addressing = write_udp(&mut packet, from, to, b"hello");
        assert_eq!(read_udp(&addressing, &packet), Some((5060, &b"hello"[..])));
        assert_eq!(read_udp(&addressing, &packet[..packet.len() - 1]), None);
        packet[9] ^= 4;
        assert_eq!(read_udp(&addressing, &packet), None);
    }

    #[test]
    fn ipv4_headers_check() {
        let a = udp_between(Ipv4Addr::new(10, 0, 0, 1).into(), Ipv4Addr::new(10, 0, 0, 2).into());
        let mut out = vec![9];
        write_ip_header(&mut out, &a, 100, 64, 7);
        assert_eq!(out.len(), 21);
        // A header with its checksum sums to zero.
        assert_eq!(fold(sum(&out[1..])), 0);
        assert_eq!(out[3..5], [0, 120]);
    }

    #[test]
    fn ipv6_headers_carry_ecn_and_length() {
        let ip = |n| IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n));
        let a = Addressing { ecn: Ecn::Ce, ..udp_between(ip(1), ip(2)) };
        let mut out = Vec::new();
        write_ip_header(&mut out, &a, 300, 9, 0);
        assert_eq!(out.len(), ip_header_len(&a));
        assert_eq!(out[..8], [0x60, 0x30, 0, 0, 1, 44, 17, 9]);
    }
}
