//! What the gap blocks of a peer's SACKs acknowledge (RFC 9260 section 3.3.4).

use crate::wire::Gap;

/// Ranges of positions, both ends included, ascending.
type Ranges = Vec<(u64, u64)>;

/// The ranges acknowledged by the gap blocks of the last SACK.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    ranges: Ranges,
    /// The ranges of the SACK that is being read; afterwards memory for the next one.
    next: Ranges,
}

impl Gaps {
    /// Returns whether the last SACK had none.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the highest position acknowledged.
    pub(super) fn highest(&self) -> Option<u64> {
        self.ranges.last().map(|range| range.1)
    }

    /// Returns the last position of the range that a position is in. `index` is that of the first range which may be, and
    /// advances with positions that ascend.
    #[inline]
    pub(super) fn end_of_range(&self, index: &mut usize, position: u64) -> Option<u64> {
        while self.ranges.get(*index).is_some_and(|range| range.1 < position) {
            *index += 1;
        }
        let &(start, last) = self.ranges.get(*index)?;
        (start <= position).then_some(last)
    }

    /// Reads the blocks of a SACK. Blocks out of order or from `end` on end the list, so that the cost is linear in the
    /// chunk's length. The caller compares both lists and calls `replace`.
    pub(super) fn read(&mut self, cumulative: u64, end: u64, blocks: impl Iterator<Item = Gap>) {
        self.next.clear();
        let mut above = cumulative;
        for gap in blocks {
            let (start, last) =
                (cumulative + u64::from(gap.start), cumulative + u64::from(gap.end));
            if start <= above || last < start || last >= end {
                break;
            }
            match self.next.last_mut() {
                Some(previous) if previous.1 + 1 == start => previous.1 = last,
                _ => self.next.push((start, last)),
            }
            above = last;
        }
    }

    /// Removes and returns the ranges read last and those before.
    pub(super) fn take(&mut self) -> (Ranges, Ranges) {
        (core::mem::take(&mut self.next), core::mem::take(&mut self.ranges))
    }

    /// Sets the ranges, and keeps the memory of those before.
    pub(super) fn replace(&mut self, new: Ranges, old: Ranges) {
        (self.ranges, self.next) = (new, old);
    }

    /// Drops the ranges.
    pub(super) fn clear(&mut self) {
        self.ranges.clear();
    }

    /// Releases memory that is not needed.
    pub(super) fn trim(&mut self) {
        *self = Gaps::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_and_found() {
        let mut gaps = Gaps::default();
        let block = |start, end| Gap { start, end };
        gaps.read(10, 30, [block(2, 3), block(4, 5), block(8, 9), block(7, 7)].into_iter());
        let (new, old) = gaps.take();
        assert_eq!((&*new, &*old), (&[(12, 15), (18, 19)][..], &[][..]));
        gaps.replace(new, old);
        let mut index = 0;
        assert_eq!(gaps.end_of_range(&mut index, 11), None);
        assert_eq!(gaps.end_of_range(&mut index, 13), Some(15));
        assert_eq!(gaps.end_of_range(&mut index, 16), None);
        assert_eq!((gaps.end_of_range(&mut index, 18), index), (Some(19), 1));
        assert_eq!((gaps.end_of_range(&mut index, 20), gaps.highest()), (None, Some(19)));
    }
}
