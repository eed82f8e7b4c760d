//! Segments on the wire: the header and its options as a value, and a checked view of a segment.
//!
//! [`Segment::parse`] checks everything once. The result borrows the data and holds the header as a
//! [`Header`], which [`Header::emit`] writes. Unknown options are skipped.

use crate::checksum;
use crate::seq::Seq;
use core::fmt;
use core::ops::{BitOr, BitOrAssign};
use std::net::IpAddr;

/// Length of a header without options.
pub const HEADER: usize = 20;
/// Maximum length of a header's options, in bytes.
pub const MAX_OPTIONS: usize = 40;
/// Maximum number of SACK blocks in a header (RFC 2018 section 3).
pub const MAX_SACK_BLOCKS: usize = 4;
/// Maximum shift of the window (RFC 7323 section 2.3).
pub const MAX_WINDOW_SCALE: u8 = 14;
/// Length in bytes of the timestamps option with its padding (RFC 7323 appendix A).
pub const TIMESTAMPS_SPACE: usize = 12;

/// Control bits (RFC 9293 section 3.1).
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Flags(u8);

impl Flags {
    /// No bit.
    pub const NONE: Flags = Flags(0);
    /// No more data from the sender.
    pub const FIN: Flags = Flags(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Flags = Flags(0x02);
    /// Reset the connection.
    pub const RST: Flags = Flags(0x04);
    /// Push.
    pub const PSH: Flags = Flags(0x08);
    /// The acknowledgment field counts.
    pub const ACK: Flags = Flags(0x10);
    /// The urgent pointer counts.
    pub const URG: Flags = Flags(0x20);
    /// ECN echo (RFC 3168 section 6.1).
    pub const ECE: Flags = Flags(0x40);
    /// Congestion window reduced (RFC 3168 section 6.1).
    pub const CWR: Flags = Flags(0x80);

    /// Creates flags from the byte on the wire.
    pub const fn from_bits(bits: u8) -> Flags {
        Flags(bits)
    }

    /// Returns the byte on the wire.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns whether all bits of `other` are set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether any bit of `other` is set.
    pub const fn any(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for Flags {
    type Output = Flags;
    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

impl BitOrAssign for Flags {
    fn bitor_assign(&mut self, other: Flags) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("-");
        }
        for (bit, letter) in "FSRPAUEW".chars().enumerate() {
            if self.0 & (1 << bit) != 0 {
                write!(f, "{letter}")?;
            }
        }
        Ok(())
    }
}

/// The timestamps option (RFC 7323 section 3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub value: u32,
    /// TSecr: the clock of the peer as last received.
    pub echo: u32,
}

/// Blocks of a SACK option in the order of the wire (RFC 2018 section 3), each `[left, right)`.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Sack {
    blocks: [(Seq, Seq); MAX_SACK_BLOCKS],
    len: u8,
}

impl Sack {
    pub(crate) const NONE: Sack =
        Sack { blocks: [(Seq::new(0), Seq::new(0)); MAX_SACK_BLOCKS], len: 0 };

    /// Appends a block. Returns `false` when there is no room.
    pub fn push(&mut self, left: Seq, right: Seq) -> bool {
        let Some(slot) = self.blocks.get_mut(usize::from(self.len)) else { return false };
        *slot = (left, right);
        self.len += 1;
        true
    }

    /// Returns the blocks.
    pub fn blocks(&self) -> &[(Seq, Seq)] {
        &self.blocks[..usize::from(self.len)]
    }

    /// Returns whether there is no block.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Debug for Sack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.blocks()).finish()
    }
}

/// The options of a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Maximum segment size (RFC 9293 section 3.7.1).
    pub mss: Option<u16>,
    /// Window scale, as written; more than 14 counts as 14 (RFC 7323 section 2.3).
    pub window_scale: Option<u8>,
    /// SACK permitted (RFC 2018 section 2).
    pub sack_permitted: bool,
    /// Timestamps (RFC 7323 section 3).
    pub timestamps: Option<Timestamps>,
    /// Selective acknowledgments; empty when the option is missing.
    pub sack: Sack,
}

/// The reason why bytes are no valid segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// Shorter than a header.
    #[error("expected a header of at least {HEADER} bytes, got {got}")]
    Short {
        /// Number of bytes.
        got: usize,
    },
    /// The header's length is below 20 bytes or above the segment's.
    #[error("expected a data offset of {HEADER} to {length} bytes, got {got}")]
    DataOffset {
        /// The length in the header, in bytes.
        got: usize,
        /// Length of the whole segment in bytes.
        length: usize,
    },
    /// The checksum is wrong, or the addresses are of two families.
    #[error("expected a correct checksum, got {got:#06x}")]
    Checksum {
        /// The checksum in the header.
        got: u16,
    },
    /// An option is cut off or has an invalid length (RFC 9293 section 3.1).
    #[error("expected a valid length of option {kind}, got {got}")]
    Option {
        /// The option kind.
        kind: u8,
        /// Its length as written; 0 when it is cut off before that.
        got: u8,
    },
    /// A port is zero.
    #[error("expected ports above 0, got source {source_port} and destination {destination_port}")]
    Port {
        /// The source.
        source_port: u16,
        /// The destination.
        destination_port: u16,
    },
}

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

impl Options {
    /// No option.
    pub const NONE: Options = Options {
        mss: None,
        window_scale: None,
        sack_permitted: false,
        timestamps: None,
        sack: Sack::NONE,
    };

    /// Parses the option bytes of a header.
    pub fn parse(mut bytes: &[u8]) -> Result<Options, SegmentError> {
        let mut options = Options::default();
        // The layout that RFC 7323 appendix A recommends and almost every segment has.
        if let [NOP, NOP, TIMESTAMPS, 10, rest @ ..] = bytes
            && rest.len() >= 8
        {
            options.timestamps = Some(Timestamps { value: be32(rest, 0), echo: be32(rest, 4) });
            bytes = &rest[8..];
        }
        while let Some(&kind) = bytes.first() {
            match kind {
                END => break,
                NOP => {
                    bytes = &bytes[1..];
                    continue;
                }
                _ => {}
            }
            let got = bytes.get(1).copied().unwrap_or(0);
            let wrong = SegmentError::Option { kind, got };
            let length = usize::from(got);
            if length < 2 || length > bytes.len() {
                return Err(wrong);
            }
            let body = &bytes[2..length];
            match (kind, body.len()) {
                (MSS, 2) => options.mss = Some(be16(body, 0)),
                (WINDOW_SCALE, 1) => options.window_scale = Some(body[0]),
                (SACK_PERMITTED, 0) => options.sack_permitted = true,
                (TIMESTAMPS, 8) => {
                    options.timestamps =
                        Some(Timestamps { value: be32(body, 0), echo: be32(body, 4) });
                }
                (SACK, length) if length % 8 == 0 && length > 0 => {
                    options.sack = Sack::default();
                    for block in body.chunks_exact(8) {
                        options.sack.push(Seq::new(be32(block, 0)), Seq::new(be32(block, 4)));
                    }
                }
                (MSS | WINDOW_SCALE | SACK_PERMITTED | TIMESTAMPS | SACK, _) => return Err(wrong),
                _ => {}
            }
            bytes = &bytes[length..];
        }
        Ok(options)
    }

    /// Writes the options after a header, padded to four bytes. Returns the length of both. SACK blocks
    /// without room are omitted.
    fn write(&self, out: &mut [u8; HEADER + MAX_OPTIONS]) -> usize {
        let mut at = HEADER;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
            at
        };
        if let Some(mss) = self.mss {
            let [high, low] = mss.to_be_bytes();
            put(&[MSS, 4, high, low]);
        }
        match (self.sack_permitted, self.timestamps.is_some()) {
            (true, true) => put(&[SACK_PERMITTED, 2, TIMESTAMPS, 10]),
            (true, false) => put(&[NOP, NOP, SACK_PERMITTED, 2]),
            (false, true) => put(&[NOP, NOP, TIMESTAMPS, 10]),
            (false, false) => put(&[]),
        };
        if let Some(Timestamps { value, echo }) = self.timestamps {
            put(&value.to_be_bytes());
            put(&echo.to_be_bytes());
        }
        if let Some(shift) = self.window_scale {
            put(&[NOP, WINDOW_SCALE, 3, shift]);
        }
        let used = put(&[]);
        let fit = (HEADER + MAX_OPTIONS - used).saturating_sub(4) / 8;
        let blocks = &self.sack.blocks()[..self.sack.blocks().len().min(fit)];
        if !blocks.is_empty() {
            put(&[NOP, NOP, SACK, (2 + 8 * blocks.len()) as u8]);
            for (left, right) in blocks {
                put(&left.to_u32().to_be_bytes());
                put(&right.to_u32().to_be_bytes());
            }
        }
        put(&[])
    }
}

/// The bytes of a header with timestamps as its only option.
pub(crate) type UsualHeader = [u8; HEADER + TIMESTAMPS_SPACE];

/// A header as a value, without the checksum, which is verified by parsing and computed by emitting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Sequence number of the first byte, or of the SYN.
    pub seq: Seq,
    /// Next sequence number expected; valid when ACK is set.
    pub ack: Seq,
    /// Control bits.
    pub flags: Flags,
    /// The window as written, not scaled.
    pub window: u16,
    /// The options.
    pub options: Options,
}

impl Header {
    /// Appends header and data, given in two parts, to `out`, with a checksum over the pseudo-header.
    /// Both addresses must be of one family.
    pub fn emit(
        &self,
        source: IpAddr,
        destination: IpAddr,
        out: &mut Vec<u8>,
        data: (&[u8], &[u8]),
    ) {
        let start = out.len();
        self.write(out, data);
        fill_checksum(source, destination, &mut out[start..]);
    }

    /// Appends header and data with a checksum of zero.
    pub(crate) fn write(&self, out: &mut Vec<u8>, data: (&[u8], &[u8])) {
        let Options { mss: None, window_scale: None, sack_permitted: false, timestamps, sack } =
            &self.options
        else {
            return self.write_any(out, data);
        };
        // What almost every segment has.
        let Some(Timestamps { value, echo }) = timestamps else { return self.write_any(out, data) };
        if !sack.is_empty() {
            return self.write_any(out, data);
        }
        const LENGTH: usize = size_of::<UsualHeader>();
        let start = out.len();
        out.reserve(LENGTH + data.0.len() + data.1.len());
        out.resize(start + LENGTH, 0);
        let Some(head) = out[start..].first_chunk_mut::<LENGTH>() else { return };
        self.write_fixed(LENGTH, head);
        head[20..24].copy_from_slice(&[NOP, NOP, TIMESTAMPS, 10]);
        head[24..28].copy_from_slice(&value.to_be_bytes());
        head[28..].copy_from_slice(&echo.to_be_bytes());
        append(out, data);
    }

    /// Splits a segment with a header that [`Header::read_usual`] reads, without its checksum: timestamps are
    /// its only option, in the layout that RFC 7323 appendix A recommends.
    #[inline]
    pub(crate) fn split_usual(bytes: &[u8]) -> Option<(&UsualHeader, &[u8])> {
        let (head, data) = bytes.split_first_chunk::<{ size_of::<UsualHeader>() }>()?;
        let length = usize::from(head[12] >> 4) * 4;
        let usual = length == head.len() && head[20..24] == [NOP, NOP, TIMESTAMPS, 10];
        (usual && be16(head, 0) != 0 && be16(head, 2) != 0).then_some((head, data))
    }

    /// Reads a usual header into an empty one, where it stands.
    #[inline(always)]
    pub(crate) fn read_usual(&mut self, head: &UsualHeader) {
        self.source = be16(head, 0);
        self.destination = be16(head, 2);
        self.seq = Seq::new(be32(head, 4));
        self.ack = Seq::new(be32(head, 8));
        self.flags = Flags::from_bits(head[13]);
        self.window = be16(head, 14);
        self.options.timestamps = Some(Timestamps { value: be32(head, 24), echo: be32(head, 28) });
    }

    #[inline(never)]
    fn write_any(&self, out: &mut Vec<u8>, data: (&[u8], &[u8])) {
        let mut head = [0; HEADER + MAX_OPTIONS];
        let length = self.options.write(&mut head);
        self.write_fixed(length, &mut head);
        out.extend_from_slice(&head[..length]);
        append(out, data);
    }

    /// Writes the part that every header has, without the checksum, of a header of `length` bytes.
    #[inline]
    fn write_fixed<const N: usize>(&self, length: usize, head: &mut [u8; N]) {
        head[0..2].copy_from_slice(&self.source.to_be_bytes());
        head[2..4].copy_from_slice(&self.destination.to_be_bytes());
        head[4..8].copy_from_slice(&self.seq.to_u32().to_be_bytes());
        head[8..12].copy_from_slice(&self.ack.to_u32().to_be_bytes());
        head[12] = (length / 4 * 16) as u8;
        head[13] = self.flags.bits();
        head[14..16].copy_from_slice(&self.window.to_be_bytes());
    }
}

#[inline]
fn append(out: &mut Vec<u8>, data: (&[u8], &[u8])) {
    for part in [data.0, data.1] {
        if !part.is_empty() {
            out.extend_from_slice(part);
        }
    }
}

/// Fills in the checksum of a segment that was sent without one ([`Addressing::offload`]). Bytes that are
/// shorter than a header stay as they are.
///
/// [`Addressing::offload`]: ringway_sansio::Addressing::offload
pub fn fill_checksum(source: IpAddr, destination: IpAddr, segment: &mut [u8]) {
    if segment.len() >= HEADER {
        let check = checksum::of(source, destination, segment);
        segment[16..18].copy_from_slice(&check);
    }
}

/// A valid segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment<'a> {
    /// The header.
    pub header: Header,
    /// The data.
    pub data: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Parses and checks a segment that arrived with these addresses.
    pub fn parse(
        source: IpAddr,
        destination: IpAddr,
        bytes: &'a [u8],
    ) -> Result<Segment<'a>, SegmentError> {
        Segment::check(bytes, || checksum::holds(source, destination, bytes))
    }

    /// Parses and checks a segment without its checksum.
    pub(crate) fn parse_intact(bytes: &'a [u8]) -> Result<Segment<'a>, SegmentError> {
        Segment::check(bytes, || true)
    }

    fn check(
        bytes: &'a [u8],
        checksum_holds: impl FnOnce() -> bool,
    ) -> Result<Segment<'a>, SegmentError> {
        let Some(head) = bytes.first_chunk::<HEADER>() else {
            return Err(SegmentError::Short { got: bytes.len() });
        };
        let offset = usize::from(head[12] >> 4) * 4;
        if offset < HEADER || offset > bytes.len() {
            return Err(SegmentError::DataOffset { got: offset, length: bytes.len() });
        }
        // RFC 9293 section 3.1: MUST-3.
        if !checksum_holds() {
            return Err(SegmentError::Checksum { got: be16(head, 16) });
        }
        let (source_port, destination_port) = (be16(head, 0), be16(head, 2));
        if source_port == 0 || destination_port == 0 {
            return Err(SegmentError::Port { source_port, destination_port });
        }
        let header = Header {
            source: source_port,
            destination: destination_port,
            seq: Seq::new(be32(head, 4)),
            ack: Seq::new(be32(head, 8)),
            flags: Flags::from_bits(head[13]),
            window: be16(head, 14),
            options: Options::parse(&bytes[HEADER..offset])?,
        };
        Ok(Segment { header, data: &bytes[offset..] })
    }

    /// Returns SEG.LEN: the data length, plus one each for SYN and FIN (RFC 9293 section 3.4).
    pub fn len(&self) -> u32 {
        self.data.len() as u32
            + u32::from(self.header.flags.has(Flags::SYN))
            + u32::from(self.header.flags.has(Flags::FIN))
    }

    /// Returns whether the segment occupies no sequence number.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn option() -> impl Strategy<Value = Options> {
        (
            any::<Option<u16>>(),
            any::<Option<u8>>(),
            any::<bool>(),
            any::<Option<(u32, u32)>>(),
            proptest::collection::vec(any::<(u32, u32)>(), 0..2),
        )
            .prop_map(|(mss, window_scale, sack_permitted, times, blocks)| {
                let mut sack = Sack::default();
                for (left, right) in blocks {
                    sack.push(Seq::new(left), Seq::new(right));
                }
                let timestamps = times.map(|(value, echo)| Timestamps { value, echo });
                Options { mss, window_scale, sack_permitted, timestamps, sack }
            })
    }

    proptest! {
        /// RFC 9293 section 3.1: an emitted segment is parsed back.
        #[test]
        fn emit_and_parse_agree(
            source in 1u16.., destination in 1u16.., seq in any::<u32>(), ack in any::<u32>(),
            bits in any::<u8>(), window in any::<u16>(), options in option(),
            one in proptest::collection::vec(any::<u8>(), 0..50),
            two in proptest::collection::vec(any::<u8>(), 0..50),
        ) {
            let header = Header {
                source, destination, seq: Seq::new(seq), ack: Seq::new(ack),
                flags: Flags::from_bits(bits), window, options,
            };
            let mut out = vec![9, 9, 9];
            header.emit(A, B, &mut out, (&one, &two));
            let segment = Segment::parse(A, B, &out[3..]).unwrap();
            prop_assert_eq!(segment.header, header);
            prop_assert_eq!(segment.data, [one, two].concat());
        }

        /// RFC 9293 section 3.1 (MUST-7): no option length causes a panic.
        #[test]
        fn options_never_panic(bytes in proptest::collection::vec(0u8..12, 0..40)) {
            let _ = Options::parse(&bytes);
        }

        #[test]
        fn parsing_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = Segment::parse(A, B, &bytes);
        }
    }

    /// RFC 2018 section 3: three blocks fit beside timestamps, four without.
    #[test]
    fn as_many_blocks_as_fit() {
        let mut options = Options::default();
        for n in 0..4 {
            options.sack.push(Seq::new(n * 10), Seq::new(n * 10 + 5));
        }
        let mut out = [0; HEADER + MAX_OPTIONS];
        let length = options.write(&mut out);
        assert_eq!(Options::parse(&out[HEADER..length]).unwrap().sack.blocks().len(), 4);
        options.timestamps = Some(Timestamps { value: 1, echo: 2 });
        let length = options.write(&mut out);
        assert_eq!(length, HEADER + MAX_OPTIONS);
        assert_eq!(Options::parse(&out[HEADER..]).unwrap().sack.blocks().len(), 3);
    }

    /// RFC 9293 section 3.1: errors state what was expected and what came.
    #[test]
    fn errors_state_what_is_wrong() {
        assert_eq!(Segment::parse(A, B, &[0; 19]), Err(SegmentError::Short { got: 19 }));
        let mut out = Vec::new();
        Header { source: 1, destination: 2, ..Header::default() }.emit(A, B, &mut out, (&[], &[]));
        let mut long = out.clone();
        long[12] = 0x60;
        assert_eq!(
            Segment::parse(A, B, &long),
            Err(SegmentError::DataOffset { got: 24, length: 20 })
        );
        long[12] = 0x40;
        assert_eq!(
            Segment::parse(A, B, &long),
            Err(SegmentError::DataOffset { got: 16, length: 20 })
        );
        out[15] ^= 1;
        assert!(matches!(Segment::parse(A, B, &out), Err(SegmentError::Checksum { .. })));
        for (bytes, kind, got) in
            [(&[2u8, 0][..], 2, 0), (&[3, 4, 1, 1], 3, 4), (&[5, 9], 5, 9), (&[8], 8, 0)]
        {
            assert_eq!(Options::parse(bytes), Err(SegmentError::Option { kind, got }));
        }
        assert_eq!(Options::parse(&[254, 4, 0, 0, 1, 0, 99]), Ok(Options::default()));
    }
}
