//! Loss Intervals of CCID 3 (RFC 4342 section 8.6).

use super::{WireError, number};

/// Length in bytes of one interval.
const LENGTH: usize = 9;
/// Maximum number of intervals in one option.
pub const MAX_INTERVALS: usize = 28;
/// Largest value of Skip Length (RFC 4342 section 8.6.1).
pub const MAX_SKIP: u8 = 3;
const LOSSLESS_MAX: u32 = (1 << 24) - 1;
const LOSS_MAX: u32 = (1 << 23) - 1;

/// An interval between loss events: a part with losses, which comes first, and one without.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct LossInterval {
    /// Number of packets in the part without losses, at most 2^24 - 1.
    pub lossless: u32,
    /// Number of packets in the part with losses, at most 2^23 - 1; zero in the first interval of a
    /// connection.
    pub loss: u32,
    /// Number of data packets in the interval, at most 2^24 - 1.
    pub data: u32,
}

/// Appends the value of the option: Skip Length, then the intervals, the newest first. Those beyond
/// [`MAX_INTERVALS`] are left out.
pub fn emit(skip: u8, intervals: impl Iterator<Item = LossInterval>, out: &mut Vec<u8>) {
    out.push(skip.min(MAX_SKIP));
    for interval in intervals.take(MAX_INTERVALS) {
        for number in [
            interval.lossless.min(LOSSLESS_MAX),
            // The ECN Nonce Echo stays zero: RFC 8311 section 3.4 withdraws the nonce.
            interval.loss.min(LOSS_MAX),
            interval.data.min(LOSSLESS_MAX),
        ] {
            out.extend_from_slice(&number.to_be_bytes()[1..]);
        }
    }
}

/// Reads the value of the option: Skip Length and the intervals, the newest first.
pub fn parse(value: &[u8]) -> Result<(u8, impl Iterator<Item = LossInterval> + '_), WireError> {
    let what = "Loss Intervals";
    let Some((&skip, rest)) = value.split_first() else {
        return Err(WireError::Short { what, expected: 1, got: 0 });
    };
    if !rest.len().is_multiple_of(LENGTH) {
        return Err(WireError::Length { what, limit: LENGTH * MAX_INTERVALS, got: rest.len() });
    }
    let intervals = rest.chunks_exact(LENGTH).map(|chunk| LossInterval {
        lossless: number(&chunk[..3]) as u32,
        loss: number(&chunk[3..6]) as u32 & LOSS_MAX,
        data: number(&chunk[6..]) as u32,
    });
    Ok((skip, intervals))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_cut_interval_is_refused() {
        assert!(parse(&[]).is_err());
        assert!(parse(&[3, 1, 2]).is_err());
        assert_eq!(parse(&[3]).map(|(skip, rest)| (skip, rest.count())).ok(), Some((3, 0)));
    }

    proptest! {
        #[test]
        fn intervals_go_both_ways(
            skip in 0u8..=3,
            list in proptest::collection::vec((0u32..1 << 24, 0u32..1 << 23, 0u32..1 << 24), 0..=28),
        ) {
            let list: Vec<LossInterval> = list
                .into_iter()
                .map(|(lossless, loss, data)| LossInterval { lossless, loss, data })
                .collect();
            let mut out = Vec::new();
            emit(skip, list.iter().copied(), &mut out);
            prop_assert!(out.len() <= crate::wire::vector::MAX_VALUE);
            let (read, intervals) = parse(&out).unwrap();
            prop_assert_eq!((read, intervals.collect::<Vec<_>>()), (skip, list));
        }
    }
}
