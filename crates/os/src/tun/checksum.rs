//! The Internet checksum (RFC 1071).

use super::header::{Checksum, IPV6, TCP_CHECKSUM};

/// Adds two sums of 16-bit words in one's complement.
pub(super) fn add(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u16::from(carry)
}

/// Returns the partial checksum `partial` after the length in its pseudo-header has changed.
pub(super) fn with_length(partial: u16, before: u16, after: u16) -> u16 {
    add(add(partial, !before), after)
}

/// Returns the sum of the 16-bit words of `bytes` in one's complement. An odd octet at the end counts as a word with
/// a zero.
pub(super) fn sum(bytes: &[u8]) -> u16 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut sum: u64 = words.iter().map(|word| u64::from(u32::from_be_bytes(*word))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum += u64::from(u32::from_be_bytes(last));
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Completes a partial checksum. Returns whether its field is within the packet; otherwise nothing is changed.
pub fn complete_checksum(packet: &mut [u8], checksum: Checksum) -> bool {
    let Checksum::Partial { start, offset } = checksum else { return true };
    let Some(transport) = packet.get_mut(usize::from(start)..) else { return false };
    let total = match !sum(transport) {
        // A UDP checksum of zero means none; both are zero in one's complement (RFC 768).
        0 => 0xffff,
        other => other,
    };
    let Some(field) = transport.get_mut(usize::from(offset)..usize::from(offset) + 2) else {
        return false;
    };
    field.copy_from_slice(&total.to_be_bytes());
    true
}

/// Verifies the checksum of TCP over IPv6 without extension headers, and makes it partial: the kernel then does not
/// verify it again, and a [`Coalescer`](super::Coalescer) gathers the segment. Returns the state of the checksum. A
/// packet whose checksum is wrong, or of another protocol, is not changed.
pub fn verify_checksum(packet: &mut [u8]) -> Checksum {
    let partial = Checksum::Partial { start: IPV6 as u16, offset: TCP_CHECKSUM };
    if Checksum::partial(packet) != Some(partial) {
        return Checksum::Complete;
    }
    let (header, transport) = packet.split_at_mut(IPV6);
    let (at, length) = (usize::from(TCP_CHECKSUM), transport.len());
    if length < at + 2 || length != usize::from(u16::from_be_bytes([header[4], header[5]])) {
        return Checksum::Complete;
    }
    // The pseudo-header: both addresses, the length, and the protocol (RFC 8200 section 8.1).
    let own = add(length as u16, u16::from(header[6]));
    let pseudo = add(sum(&header[8..]), own);
    if add(pseudo, sum(transport)) != 0xffff {
        return Checksum::Complete;
    }
    transport[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
    partial
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, a word at a time.
    fn reference(bytes: &[u8]) -> u16 {
        bytes.chunks(2).fold(0, |sum, word| {
            add(sum, u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or(0)]))
        })
    }

    proptest! {
        #[test]
        fn words_may_be_added_in_any_width(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(sum(&bytes), reference(&bytes));
        }

        #[test]
        fn a_position_beyond_the_packet_is_refused(
            mut bytes in prop::collection::vec(any::<u8>(), 0..60),
            start in 0..70u16,
            offset in prop_oneof![0..70u16, Just(u16::MAX)],
        ) {
            let before = bytes.clone();
            let fits = usize::from(start) + usize::from(offset) + 2 <= bytes.len();
            prop_assert_eq!(complete_checksum(&mut bytes, Checksum::Partial { start, offset }), fits);
            prop_assert!(fits || bytes == before);
        }
    }

    /// The example of RFC 1071 section 3.
    #[test]
    fn the_example_of_the_rfc() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
        assert_eq!(with_length(0xddf2, 0xf203, 0xf204), 0xddf3);
    }

    #[test]
    fn a_right_checksum_becomes_partial_and_complete_again() {
        let mut packet: Vec<u8> = (0..97).collect();
        packet[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 57, 6, 64]);
        let (at, before) = (IPV6 + usize::from(TCP_CHECKSUM), packet.clone());
        assert_eq!(verify_checksum(&mut packet), Checksum::Complete, "a wrong one");
        assert_eq!(packet, before);
        // The pseudo-header of RFC 8200 section 8.1.
        let pseudo = sum(&[&before[8..40], &[0, 0, 0, 57, 0, 0, 0, 6]].concat());
        packet[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
        let partial = Checksum::Partial { start: 40, offset: 16 };
        assert!(complete_checksum(&mut packet, partial));
        let complete = packet.clone();
        assert_eq!(verify_checksum(&mut packet), partial);
        assert_eq!(packet[at..at + 2], pseudo.to_be_bytes());
        assert!(complete_checksum(&mut packet, partial));
        assert_eq!(packet, complete);
        packet[50] ^= 1;
        assert_eq!(verify_checksum(&mut packet), Checksum::Complete);
        packet[50] ^= 1;
        assert_eq!(verify_checksum(&mut packet[..96]), Checksum::Complete, "shorter than it says");
        packet[6] = 17;
        assert_eq!(verify_checksum(&mut packet), Checksum::Complete, "UDP");
        for length in 0..60 {
            let mut start = complete[..length].to_vec();
            assert_eq!(verify_checksum(&mut start), Checksum::Complete);
        }
    }
}
