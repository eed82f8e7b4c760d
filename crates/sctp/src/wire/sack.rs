//! SACK (RFC 9260 section 3.3.4).

use super::chunk::kind;
use super::{TLV_HEADER, WireError, at_least, u16_at, u32_at};
use crate::numbers::Tsn;

/// Bytes of a SACK chunk without gaps and duplicates.
pub const SACK_HEADER: usize = 16;
/// Bytes of a gap block and of a duplicate TSN.
pub const SACK_ENTRY: usize = 4;

/// Where the number of packets stands in the flags.
const PACKETS_SHIFT: u8 = 6;

/// A Gap Ack Block: offsets from the Cumulative TSN Ack, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// The first TSN received after a gap.
    pub start: u16,
    /// The last one in a row.
    pub end: u16,
}

/// A SACK chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sack<'a> {
    /// All up to here has arrived.
    pub cumulative_tsn_ack: Tsn,
    /// Advertised Receiver Window Credit.
    pub a_rwnd: u32,
    /// Packets with DATA that came since the last one, up to 3, as a receiver tells that counts
    /// on data over several paths; 0 from any other.
    pub packets: u8,
    gaps: &'a [u8],
    duplicates: &'a [u8],
}

impl<'a> Sack<'a> {
    pub(super) fn parse(flags: u8, value: &'a [u8]) -> Result<Self, WireError> {
        let value = at_least("a SACK chunk", SACK_HEADER - TLV_HEADER, value)?;
        let gaps = SACK_ENTRY * usize::from(u16_at(value, 8));
        let duplicates = SACK_ENTRY * usize::from(u16_at(value, 10));
        let lists = &value[12..];
        if lists.len() != gaps + duplicates {
            let (what, expected) = ("gaps and duplicates in a SACK chunk", gaps + duplicates);
            return Err(WireError::Length { what, expected, got: lists.len() });
        }
        let (gaps, duplicates) = lists.split_at(gaps);
        Ok(Sack {
            cumulative_tsn_ack: Tsn::new(u32_at(value, 0)),
            a_rwnd: u32_at(value, 4),
            packets: flags >> PACKETS_SHIFT,
            gaps,
            duplicates,
        })
    }

    /// The gap blocks as they stand there, however they overlap.
    pub fn gaps(&self) -> impl Iterator<Item = Gap> + 'a {
        self.gaps.chunks_exact(SACK_ENTRY).map(|b| Gap { start: u16_at(b, 0), end: u16_at(b, 2) })
    }

    /// TSNs that came more than once.
    pub fn duplicates(&self) -> impl Iterator<Item = Tsn> + 'a {
        self.duplicates.chunks_exact(SACK_ENTRY).map(|b| Tsn::new(u32_at(b, 0)))
    }
}

/// Writes a number of packets into a SACK chunk that begins at `start`.
pub(crate) fn set_packets(out: &mut [u8], start: usize, packets: u8) {
    if let Some(flags) = out.get_mut(start + 1) {
        *flags = packets.min(3) << PACKETS_SHIFT;
    }
}

/// Appends a SACK chunk.
pub fn emit(
    out: &mut Vec<u8>,
    cumulative_tsn_ack: Tsn,
    a_rwnd: u32,
    gaps: impl Iterator<Item = Gap>,
    duplicates: impl Iterator<Item = Tsn>,
) {
    let start = out.len();
    out.extend_from_slice(&[kind::SACK, 0, 0, 0]);
    out.extend_from_slice(&cumulative_tsn_ack.raw().to_be_bytes());
    out.extend_from_slice(&a_rwnd.to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    let (mut gap_count, mut duplicate_count) = (0u16, 0u16);
    for gap in gaps {
        out.extend_from_slice(&gap.start.to_be_bytes());
        out.extend_from_slice(&gap.end.to_be_bytes());
        gap_count += 1;
    }
    for tsn in duplicates {
        out.extend_from_slice(&tsn.raw().to_be_bytes());
        duplicate_count += 1;
    }
    out[start + 12..start + 14].copy_from_slice(&gap_count.to_be_bytes());
    out[start + 14..start + 16].copy_from_slice(&duplicate_count.to_be_bytes());
    let length = (out.len() - start) as u16;
    out[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
}
