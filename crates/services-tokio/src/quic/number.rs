//! Numbers in the format of QUIC (RFC 9000 section 16).

use bytes::{BufMut, Bytes, BytesMut};

/// Removes a number in the format of QUIC (RFC 9000 section 16).
pub(super) fn take_number(datagram: &mut Bytes) -> Option<u64> {
    let length = 1usize << (*datagram.first()? >> 6);
    if datagram.len() < length {
        return None;
    }
    let number = datagram.split_to(length);
    let mask = u64::MAX >> (64 - 8 * length as u32 + 2);
    let mut octets = [0; 8];
    octets[8 - length..].copy_from_slice(&number);
    Some(u64::from_be_bytes(octets) & mask)
}

/// Appends a number in the format of QUIC, in eight octets.
pub(super) fn put_number(number: u64, out: &mut BytesMut) {
    out.put_u64(number | 0b11 << 62);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9000 section 16, and appendix A.1 for the examples.
    #[test]
    fn numbers_of_streams_are_read_in_every_length() {
        let read = |octets: &[u8]| take_number(&mut Bytes::copy_from_slice(octets));
        assert_eq!(read(&[0x25]), Some(37));
        assert_eq!(read(&[0x7b, 0xbd]), Some(15_293));
        assert_eq!(read(&[0x9d, 0x7f, 0x3e, 0x7d]), Some(494_878_333));
        let eight = [0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c];
        assert_eq!(read(&eight), Some(151_288_809_941_952_652));
        assert_eq!([read(&[]), read(&[0x40])], [None, None]);
        let mut out = BytesMut::new();
        put_number(12, &mut out);
        let mut datagram = out.freeze();
        assert_eq!((take_number(&mut datagram), datagram.len()), (Some(12), 0));
    }
}
