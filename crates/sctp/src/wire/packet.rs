//! The packet: common header, checksum, and the iteration over its chunks.

use super::chunk::{Raw, kind};
use super::{COMMON_HEADER, TLV_HEADER, WireError, padded, u16_at, u32_at};

/// A received packet (RFC 9260 section 3) with a verified checksum.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Port of the sender.
    pub source: u16,
    /// Port of the receiver.
    pub destination: u16,
    /// Verification Tag.
    pub tag: u32,
    chunks: &'a [u8],
}

/// Returns the checksum of a packet with its checksum field counted as zero (RFC 9260 section 6.8 and
/// appendix A). The number is the field's bytes in little-endian order.
pub fn checksum(packet: &[u8]) -> u32 {
    let Some((head, body)) = packet.split_at_checked(COMMON_HEADER) else { return 0 };
    let mut start = [0; COMMON_HEADER];
    start[..8].copy_from_slice(&head[..8]);
    crc32c::crc32c_append(crc32c::crc32c(&start), body)
}

impl<'a> Packet<'a> {
    /// Parses the header and verifies the checksum. The chunks are checked during iteration.
    pub fn parse(bytes: &'a [u8]) -> Result<Packet<'a>, WireError> {
        let packet = Packet::parse_unchecked(bytes)?;
        let got = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        let expected = checksum(bytes);
        if expected != got {
            return Err(WireError::Checksum { expected, got });
        }
        Ok(packet)
    }

    /// Parses as [`Packet::parse`] does, without the checksum, for bytes whose errors are detected
    /// otherwise.
    pub fn parse_unchecked(bytes: &'a [u8]) -> Result<Packet<'a>, WireError> {
        let Some((head, chunks)) = bytes.split_at_checked(COMMON_HEADER) else {
            let (what, expected) = ("a common header", COMMON_HEADER);
            return Err(WireError::Short { what, expected, got: bytes.len() });
        };
        Ok(Packet {
            source: u16_at(head, 0),
            destination: u16_at(head, 2),
            tag: u32_at(head, 4),
            chunks,
        })
    }

    /// Parses a packet with a checksum of zero. Returns `None` if it has another, is too short, or begins with an INIT or
    /// a COOKIE ECHO, which always have a checksum (RFC 9653 section 5.2).
    pub fn parse_zero_checksum(bytes: &'a [u8]) -> Option<Packet<'a>> {
        if bytes.get(8..COMMON_HEADER)? != [0; 4] {
            return None;
        }
        let packet = Packet::parse_unchecked(bytes).ok()?;
        let first = packet.chunks().next()?.ok()?.kind;
        (![kind::INIT, kind::COOKIE_ECHO].contains(&first)).then_some(packet)
    }

    /// Returns its chunks in order. An incomplete chunk ends the iteration with an error and is to be
    /// dropped (RFC 9260 section 6.10).
    pub fn chunks(&self) -> Chunks<'a> {
        Chunks { rest: self.chunks }
    }
}

/// An iterator over the chunks of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Chunks<'a> {
    rest: &'a [u8],
}

impl<'a> Chunks<'a> {
    /// Returns the bytes that follow.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns whether nothing follows.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Result<Raw<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let bytes = core::mem::take(&mut self.rest);
        let what = "a chunk";
        if bytes.len() < TLV_HEADER {
            return Some(Err(WireError::Short { what, expected: TLV_HEADER, got: bytes.len() }));
        }
        let length = usize::from(u16_at(bytes, 2));
        if length < TLV_HEADER || length > bytes.len() {
            return Some(Err(WireError::Length { what, expected: bytes.len(), got: length }));
        }
        self.rest = bytes.get(padded(length)..).unwrap_or(&[]);
        Some(Ok(Raw { kind: bytes[0], flags: bytes[1], whole: &bytes[..length] }))
    }
}

/// Writes one packet at the end of a buffer of its caller.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    /// Maximum length of the packet.
    limit: usize,
}

impl<'a> Writer<'a> {
    /// Starts a packet of at most `limit` bytes.
    pub fn new(
        out: &'a mut Vec<u8>,
        limit: usize,
        source: u16,
        destination: u16,
        tag: u32,
    ) -> Self {
        let start = out.len();
        let mut head = [0; COMMON_HEADER];
        head[..2].copy_from_slice(&source.to_be_bytes());
        head[2..4].copy_from_slice(&destination.to_be_bytes());
        head[4..8].copy_from_slice(&tag.to_be_bytes());
        out.extend_from_slice(&head);
        Writer { out, start, limit }
    }

    /// Returns the number of bytes that still fit.
    pub fn space(&self) -> usize {
        self.limit.saturating_sub(self.out.len() - self.start)
    }

    /// Returns whether the packet has a chunk.
    pub fn has_chunks(&self) -> bool {
        self.out.len() > self.start + COMMON_HEADER
    }

    /// Returns the number of bytes written, including the header.
    pub fn len(&self) -> usize {
        self.out.len() - self.start
    }

    /// Returns whether only the header was written.
    pub fn is_empty(&self) -> bool {
        !self.has_chunks()
    }

    /// Returns the buffer for chunks. The caller pads each chunk.
    pub fn chunks(&mut self) -> &mut Vec<u8> {
        self.out
    }

    /// Finishes as [`Writer::finish`] does, but with a checksum of zero where negotiated (RFC 9653).
    pub(crate) fn finish_with(self, zero: bool) -> bool {
        // The header was written with a checksum of zero.
        (zero && self.has_chunks()) || self.finish()
    }

    /// Writes the checksum. A packet without a chunk is removed, and the result is `false`.
    pub fn finish(self) -> bool {
        if !self.has_chunks() {
            self.out.truncate(self.start);
            return false;
        }
        let sum = checksum(&self.out[self.start..]);
        self.out[self.start + 8..self.start + 12].copy_from_slice(&sum.to_le_bytes());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::Chunk;
    use super::*;
    use proptest::prelude::*;

    /// RFC 9260 appendix A and RFC 3720 appendix B.4: the checksum of 32 bytes of zero is 8a9136aa, and
    /// its bytes are in the order of appendix A.
    #[test]
    fn the_checksum_is_crc32c() {
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
        let mut out = vec![9; 3];
        let mut writer = Writer::new(&mut out, 100, 1, 2, 3);
        Chunk::CookieAck.emit(writer.chunks());
        assert!(writer.finish());
        let bytes = &out[3..];
        assert_eq!(bytes.len(), 16);
        let mut zeroed = bytes.to_vec();
        zeroed[8..12].fill(0);
        assert_eq!(bytes[8..12], crc32c::crc32c(&zeroed).to_le_bytes());
        let packet = Packet::parse(bytes).unwrap();
        assert_eq!((packet.source, packet.destination, packet.tag), (1, 2, 3));
    }

    /// RFC 9260 section 6.8: one wrong bit anywhere makes the packet invalid.
    #[test]
    fn a_wrong_bit_is_found() {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, 100, 1, 2, 3);
        Chunk::Heartbeat(&[1, 2, 3, 4, 5]).emit(writer.chunks());
        writer.finish();
        for bit in 0..out.len() * 8 {
            let mut wrong = out.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(Packet::parse(&wrong), Err(WireError::Checksum { .. })), "{bit}");
        }
    }

    /// RFC 9260 section 6.10: an incomplete chunk is not returned, the chunks before it are.
    #[test]
    fn a_partial_chunk_ends_the_walk() {
        let bytes = [[0; 12].as_slice(), &[11, 0, 0, 4], &[1, 0, 0, 20, 0]].concat();
        let packet = Packet::parse_unchecked(&bytes).unwrap();
        let mut chunks = packet.chunks();
        assert_eq!(chunks.next().unwrap().unwrap().kind, 11);
        assert!(chunks.next().unwrap().is_err());
        assert!(chunks.next().is_none());
        let short = Packet::parse(&bytes[..11]).unwrap_err().to_string();
        assert_eq!(short, "expected at least 12 bytes of a common header, got 11");
    }

    proptest! {
        #[test]
        fn any_bytes_are_walked_over(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Packet::parse(&bytes);
            if let Ok(packet) = Packet::parse_unchecked(&bytes) {
                for raw in packet.chunks().flatten() {
                    if let Ok(chunk) = raw.parse() {
                        chunk.probe();
                    }
                }
            }
        }
    }
}
