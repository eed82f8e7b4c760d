//! SACK (RFC 9260 section 3.3.4).

use super::chunk::kind;
use super::{TLV_HEADER, WireError, at_least, u16_at, u32_at};
use crate::numbers::Tsn;

/// Length in bytes of a SACK chunk without gaps and duplicates.
pub const SACK_HEADER: usize = 16;
/// Length in bytes of a gap block and of a duplicate TSN.
pub const SACK_ENTRY: usize = 4;

/// Position of the number of packets in the flags.
const PACKETS_SHIFT: u8 = 6;

/// A Gap Ack Block: offsets from the Cumulative TSN Ack, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// The first TSN received after a gap.
    pub start: u16,
    /// The last TSN of the block.
    pub end: u16,
}

/// A SACK chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sack<'a> {
    /// The Cumulative TSN Ack: everything up to it has arrived.
    pub cumulative_tsn_ack: Tsn,
    /// Advertised Receiver Window Credit.
    pub a_rwnd: u32,
    /// Number of packets with DATA since the last SACK, up to 3, from a receiver that expects data over
    /// several paths; 0 from any other.
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

    /// Returns the gap blocks in order, which may overlap.
    pub fn gaps(&self) -> impl Iterator<Item = Gap> + 'a {
        self.gaps.chunks_exact(SACK_ENTRY).map(|b| Gap { start: u16_at(b, 0), end: u16_at(b, 2) })
    }

    /// Returns the duplicate TSNs.
    pub fn duplicates(&self) -> impl Iterator<Item = Tsn> + Clone + 'a {
        self.duplicates.chunks_exact(SACK_ENTRY).map(|b| Tsn::new(u32_at(b, 0)))
    }
}

/// Writes the number of packets into a SACK chunk that begins at `start`.
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

/// Length in bytes of an NR-SACK chunk without gaps and duplicates.
pub const NR_SACK_HEADER: usize = 20;

/// An NR-SACK chunk: a SACK with additional blocks that acknowledge for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NrSack<'a> {
    /// The Cumulative TSN Ack: everything up to it has arrived.
    pub cumulative_tsn_ack: Tsn,
    /// Advertised Receiver Window Credit.
    pub a_rwnd: u32,
    gaps: &'a [u8],
    final_gaps: &'a [u8],
    duplicates: &'a [u8],
}

impl<'a> NrSack<'a> {
    pub(super) fn parse(value: &'a [u8]) -> Result<Self, WireError> {
        let value = at_least("an NR-SACK chunk", NR_SACK_HEADER - TLV_HEADER, value)?;
        let count = |at| SACK_ENTRY * usize::from(u16_at(value, at));
        let (gaps, finals, duplicates) = (count(8), count(10), count(12));
        let lists = &value[16..];
        if lists.len() != gaps + finals + duplicates {
            let what = "gaps and duplicates in an NR-SACK chunk";
            let expected = gaps + finals + duplicates;
            return Err(WireError::Length { what, expected, got: lists.len() });
        }
        let (gaps, lists) = lists.split_at(gaps);
        let (final_gaps, duplicates) = lists.split_at(finals);
        let cumulative_tsn_ack = Tsn::new(u32_at(value, 0));
        Ok(NrSack { cumulative_tsn_ack, a_rwnd: u32_at(value, 4), gaps, final_gaps, duplicates })
    }

    /// Returns all blocks, of both kinds, in order.
    pub fn gaps(&self) -> impl Iterator<Item = Gap> + 'a {
        let gap = |b: &[u8]| Gap { start: u16_at(b, 0), end: u16_at(b, 2) };
        let both =
            self.gaps.chunks_exact(SACK_ENTRY).chain(self.final_gaps.chunks_exact(SACK_ENTRY));
        let mut all: Vec<Gap> = both.map(gap).collect();
        all.sort_unstable_by_key(|gap| gap.start);
        all.into_iter()
    }

    /// Returns the blocks that acknowledge for good.
    pub fn final_gaps(&self) -> impl Iterator<Item = Gap> + 'a {
        let blocks = self.final_gaps.chunks_exact(SACK_ENTRY);
        blocks.map(|b| Gap { start: u16_at(b, 0), end: u16_at(b, 2) })
    }

    /// Returns whether all blocks acknowledge for good.
    pub fn is_final(&self) -> bool {
        self.gaps.is_empty()
    }

    /// Returns the duplicate TSNs.
    pub fn duplicates(&self) -> impl Iterator<Item = Tsn> + Clone + 'a {
        self.duplicates.chunks_exact(SACK_ENTRY).map(|b| Tsn::new(u32_at(b, 0)))
    }
}

/// Appends an NR-SACK chunk whose blocks all acknowledge for good.
pub fn emit_final(
    out: &mut Vec<u8>,
    cumulative_tsn_ack: Tsn,
    a_rwnd: u32,
    gaps: impl Iterator<Item = Gap>,
    duplicates: impl Iterator<Item = Tsn>,
) {
    let start = out.len();
    emit(out, cumulative_tsn_ack, a_rwnd, gaps, duplicates);
    // The counts move: no blocks of the other kind, then these, then the duplicates.
    let counts: [u8; 4] = [out[start + 12], out[start + 13], out[start + 14], out[start + 15]];
    out.splice(start + 12..start + 16, [0, 0].into_iter().chain(counts).chain([0, 0]));
    out[start] = kind::NR_SACK;
    let length = (out.len() - start) as u16;
    out[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// draft-natarajan-tsvwg-sctp-nrsack section 4.2.
        #[test]
        fn emitted_bytes_are_parsed_back(
            numbers in any::<(u32, u32)>(),
            gaps in proptest::collection::btree_set(any::<u16>(), 0..9),
            twice in proptest::collection::vec(any::<u32>(), 0..9),
        ) {
            let gaps: Vec<Gap> = gaps.into_iter().map(|n| Gap { start: n, end: n }).collect();
            let twice: Vec<Tsn> = twice.into_iter().map(Tsn::new).collect();
            let (tsn, window) = (Tsn::new(numbers.0), numbers.1);
            let mut out = Vec::new();
            emit_final(&mut out, tsn, window, gaps.iter().copied(), twice.iter().copied());
            let read = NrSack::parse(&out[4..]).unwrap();
            prop_assert_eq!((read.cumulative_tsn_ack, read.a_rwnd), (tsn, window));
            prop_assert_eq!(read.gaps().collect::<Vec<_>>(), gaps);
            prop_assert_eq!(read.duplicates().collect::<Vec<_>>(), twice);
            prop_assert!(read.is_final() && NrSack::parse(&out[4..out.len() - 1]).is_err());
        }
    }
}
