//! The Internet checksum over pseudo-header and segment (RFC 1071, RFC 9293 section 3.1).

use crate::PROTOCOL;
use std::net::IpAddr;

/// Number of bytes that `sum` handles in one step.
const BLOCK: usize = 128;

/// Adds with carry in and carry out, which is one instruction where the machine has it.
#[inline(always)]
fn add(total: u64, word: u64, carry: bool) -> (u64, bool) {
    let (total, first) = total.overflowing_add(word);
    let (total, second) = total.overflowing_add(u64::from(carry));
    (total, first | second)
}

/// Returns the one's complement sum of 16-bit words in the machine's byte order, which RFC 1071 section
/// 2 (B) allows, without the final complement. An odd last byte is padded with zero. By section 2 (C),
/// words of any multiple of 16 bits may be added with their carries.
fn sum(bytes: &[u8]) -> u64 {
    let (blocks, rest) = bytes.as_chunks::<BLOCK>();
    let (mut total, mut carries) = (0u64, 0u64);
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        let mut carry = false;
        for word in words {
            (total, carry) = add(total, u64::from_ne_bytes(*word), carry);
        }
        carries += u64::from(carry);
    }
    let (words, rest) = rest.as_chunks::<8>();
    for word in words {
        let (next, carry) = total.overflowing_add(u64::from_ne_bytes(*word));
        total = next;
        carries += u64::from(carry);
    }
    let mut last = [0u8; 8];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    let (total, carry) = total.overflowing_add(u64::from_ne_bytes(last));
    (total & 0xffff_ffff) + (total >> 32) + carries + u64::from(carry)
}

fn fold_wide(total: u128) -> u64 {
    let (low, high) = (total as u64, (total >> 64) as u64);
    (low & 0xffff_ffff) + (low >> 32) + (high & 0xffff_ffff) + (high >> 32)
}

fn fold(mut total: u64) -> u16 {
    while total >> 16 != 0 {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// Returns the sum of the pseudo-header: RFC 9293 section 3.1 for IPv4, RFC 8200 section 8.1 for IPv6;
/// `None` when the addresses are of two families.
fn pseudo_header(source: IpAddr, destination: IpAddr, length: usize) -> Option<u64> {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let addresses = u64::from(u32::from_ne_bytes(source.octets()))
                + u64::from(u32::from_ne_bytes(destination.octets()));
            let rest = u32::from_ne_bytes([0, PROTOCOL, (length >> 8) as u8, length as u8]);
            Some(addresses + u64::from(rest))
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let length = (length as u32).to_be_bytes();
            let rest = u64::from(u32::from_ne_bytes(length))
                + u64::from(u32::from_ne_bytes([0, 0, 0, PROTOCOL]));
            Some(
                fold_wide(u128::from_ne_bytes(source.octets()))
                    + fold_wide(u128::from_ne_bytes(destination.octets()))
                    + rest,
            )
        }
        _ => None,
    }
}

/// Returns the checksum of a segment whose checksum field is zero.
pub(crate) fn of(source: IpAddr, destination: IpAddr, segment: &[u8]) -> [u8; 2] {
    let pseudo = pseudo_header(source, destination, segment.len()).unwrap_or(0);
    (!fold(pseudo + sum(segment))).to_ne_bytes()
}

/// Returns whether a segment's checksum is correct.
pub(crate) fn holds(source: IpAddr, destination: IpAddr, segment: &[u8]) -> bool {
    pseudo_header(source, destination, segment.len())
        .is_some_and(|pseudo| fold(pseudo + sum(segment)) == 0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 1071 section 3: the worked example sums to ddf2.
    #[test]
    fn sums_the_published_example() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(sum(&bytes)).to_ne_bytes(), [0xdd, 0xf2]);
    }

    /// Returns the sum by single bytes (RFC 1071 section 4.1).
    fn plain(bytes: &[u8]) -> u16 {
        let mut total = 0u32;
        for pair in bytes.chunks(2) {
            total += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            total = (total & 0xffff) + (total >> 16);
        }
        total as u16
    }

    #[test]
    fn families_do_not_mix() {
        let v4 = IpAddr::from([1, 2, 3, 4]);
        let v6 = IpAddr::from([0u16; 8]);
        assert!(!holds(v4, v6, &[0; 20]));
    }

    proptest! {
        #[test]
        fn agrees_with_the_plain_sum(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(fold(sum(&bytes)), u16::from_ne_bytes(plain(&bytes).to_be_bytes()));
        }

        /// RFC 9293 section 3.1 and RFC 8200 section 8.1: an emitted checksum is correct, and a changed
        /// word makes it incorrect.
        #[test]
        fn what_is_made_holds(
            v6 in any::<bool>(), a in any::<[u8; 16]>(), b in any::<[u8; 16]>(),
            mut segment in proptest::collection::vec(any::<u8>(), 20..1500),
            at in any::<prop::sample::Index>(), flip in 1u8..=254,
        ) {
            let ip = |x: [u8; 16]| if v6 { IpAddr::from(x) } else { IpAddr::from([x[0], x[1], x[2], x[3]]) };
            segment[16] = 0;
            segment[17] = 0;
            let check = of(ip(a), ip(b), &segment);
            segment[16..18].copy_from_slice(&check);
            prop_assert!(holds(ip(a), ip(b), &segment));
            let at = at.index(segment.len());
            segment[at] ^= flip;
            prop_assert!(!holds(ip(a), ip(b), &segment));
        }
    }
}
