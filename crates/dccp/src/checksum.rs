//! The Internet checksum over pseudo-header and the covered part of a packet (RFC 4340 section 9.1).

use crate::PROTOCOL;
use std::net::IpAddr;

/// Returns the one's complement sum of 16-bit words, without the final complement. An odd last byte is
/// padded with zero.
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut total: u64 = words.iter().map(|word| u64::from(u32::from_be_bytes(*word))).sum();
    let mut last = [0u8; 4];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    total += u64::from(u32::from_be_bytes(last));
    total
}

fn fold(mut total: u64) -> u16 {
    while total >> 16 != 0 {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// Returns the sum of the pseudo-header; `None` when the addresses are of two families. `length` is that
/// of the whole packet, whatever is covered.
fn pseudo_header(source: IpAddr, destination: IpAddr, length: usize) -> Option<u64> {
    let addresses = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            sum(&source.octets()) + sum(&destination.octets())
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            sum(&source.octets()) + sum(&destination.octets())
        }
        _ => return None,
    };
    Some(addresses + u64::from(PROTOCOL) + length as u64)
}

/// Returns the number of bytes that the checksum covers: header with options and, by `coverage`, a part
/// of the data (RFC 4340 section 9.2); `None` when that is more than there is.
pub(crate) fn covered(length: usize, header: usize, coverage: u8) -> Option<usize> {
    let covered = match coverage {
        0 => length,
        words => header + (usize::from(words) - 1) * 4,
    };
    (covered <= length).then_some(covered)
}

/// Returns the checksum of a packet whose checksum field is zero, over its first `covered` bytes.
pub(crate) fn of(source: IpAddr, destination: IpAddr, packet: &[u8], covered: usize) -> u16 {
    let pseudo = pseudo_header(source, destination, packet.len()).unwrap_or(0);
    !fold(pseudo + sum(packet.get(..covered).unwrap_or(packet)))
}

/// Returns whether the checksum over the first `covered` bytes is correct.
pub(crate) fn holds(source: IpAddr, destination: IpAddr, packet: &[u8], covered: usize) -> bool {
    let part = packet.get(..covered).unwrap_or(packet);
    pseudo_header(source, destination, packet.len())
        .is_some_and(|pseudo| fold(pseudo + sum(part)) == 0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 1071 section 3: the worked example sums to ddf2.
    #[test]
    fn sums_the_published_example() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(sum(&bytes)), 0xddf2);
    }

    /// RFC 4340 section 9.2: the values of CsCov.
    #[test]
    fn coverage_counts_words_of_data() {
        assert_eq!(covered(100, 24, 0), Some(100));
        assert_eq!(covered(100, 24, 1), Some(24));
        assert_eq!(covered(100, 24, 15), Some(80));
        assert_eq!(covered(30, 24, 4), None);
        assert_eq!(covered(28, 24, 2), Some(28));
    }

    #[test]
    fn families_do_not_mix() {
        assert!(!holds(IpAddr::from([1, 2, 3, 4]), IpAddr::from([0u16; 8]), &[0; 20], 20));
    }

    proptest! {
        /// RFC 4340 section 9.1: a changed byte in the covered part makes the checksum incorrect, one
        /// behind it does not.
        #[test]
        fn what_is_covered_is_protected(
            v6 in any::<bool>(), a in any::<[u8; 16]>(), b in any::<[u8; 16]>(),
            mut packet in proptest::collection::vec(any::<u8>(), 20..1500),
            covered in 4usize..375, at in any::<prop::sample::Index>(), flip in 1u8..=254,
        ) {
            let ip = |x: [u8; 16]| if v6 { IpAddr::from(x) } else { IpAddr::from([x[0], x[1], x[2], x[3]]) };
            let covered = (covered * 4).min(packet.len());
            packet[6] = 0;
            packet[7] = 0;
            let check = of(ip(a), ip(b), &packet, covered);
            packet[6..8].copy_from_slice(&check.to_be_bytes());
            prop_assert!(holds(ip(a), ip(b), &packet, covered));
            let at = at.index(packet.len());
            packet[at] ^= flip;
            prop_assert_eq!(holds(ip(a), ip(b), &packet, covered), at >= covered);
        }
    }
}
