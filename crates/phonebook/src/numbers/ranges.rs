//! Sets of blocks, kept as ranges.

use core::fmt;

/// Blocks from `first` to `last`, both included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Range {
    /// The first block.
    pub first: u32,
    /// The last block, not before the first.
    pub last: u32,
}

impl Range {
    /// Returns the range, or `None` if `last` is before `first`.
    pub fn new(first: u32, last: u32) -> Option<Range> {
        (first <= last).then_some(Range { first, last })
    }

    /// Returns the number of blocks.
    pub fn count(&self) -> u64 {
        u64::from(self.last) - u64::from(self.first) + 1
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// A set of blocks: ranges in ascending order, of which no two touch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ranges(Vec<Range>);

impl Ranges {
    /// Returns the number of ranges.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is no block.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of blocks.
    pub fn count(&self) -> u64 {
        self.0.iter().map(Range::count).sum()
    }

    /// Returns the ranges in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Range> + '_ {
        self.0.iter().copied()
    }

    /// Returns the lowest block.
    pub fn lowest(&self) -> Option<u32> {
        self.0.first().map(|range| range.first)
    }

    /// Returns whether any block of a range is in the set.
    pub fn overlaps(&self, range: Range) -> bool {
        let index = self.0.partition_point(|own| own.last < range.first);
        self.0.get(index).is_some_and(|own| own.first <= range.last)
    }

    /// Returns whether all blocks of a range are in the set.
    pub fn covers(&self, range: Range) -> bool {
        let index = self.0.partition_point(|own| own.last < range.first);
        self.0.get(index).is_some_and(|own| own.first <= range.first && range.last <= own.last)
    }

    /// Adds the blocks of a range.
    pub fn insert(&mut self, range: Range) {
        // Ranges that overlap it or touch it become one with it.
        let before = range.first.saturating_sub(1);
        let start = self.0.partition_point(|own| own.last < before);
        let after = range.last.saturating_add(1);
        let end = self.0.partition_point(|own| own.first <= after);
        let mut whole = range;
        if let Some(own) = self.0.get(start).filter(|_| start < end) {
            whole.first = whole.first.min(own.first);
        }
        if let Some(own) =
            end.checked_sub(1).and_then(|last| self.0.get(last)).filter(|_| start < end)
        {
            whole.last = whole.last.max(own.last);
        }
        self.0.splice(start..end, [whole]);
    }

    /// Removes the blocks of a range.
    pub fn remove(&mut self, range: Range) {
        let start = self.0.partition_point(|own| own.last < range.first);
        let end = self.0.partition_point(|own| own.first <= range.last);
        if start >= end {
            return;
        }
        let (low, high) = (self.0[start].first, self.0[end - 1].last);
        let below = range.first.checked_sub(1).and_then(|last| Range::new(low, last));
        let above = range.last.checked_add(1).and_then(|first| Range::new(first, high));
        self.0.splice(start..end, below.into_iter().chain(above));
    }

    /// Adds all blocks of another set.
    pub fn insert_all(&mut self, other: &Ranges) {
        other.iter().for_each(|range| self.insert(range));
    }

    /// Removes all blocks of another set.
    pub fn remove_all(&mut self, other: &Ranges) {
        other.iter().for_each(|range| self.remove(range));
    }

    /// Returns `count` blocks of the set, or fewer, in at most `max_ranges` ranges. Each range contributes in proportion,
    /// from its upper end: a router that has short numbers and long ones keeps and gives some of each.
    pub fn share(&self, count: u64, max_ranges: usize) -> Ranges {
        let all = self.count();
        let (mut seen, mut taken, mut share) = (0, 0, Ranges::default());
        for range in self.iter() {
            if share.len() >= max_ranges {
                break;
            }
            seen += range.count();
            let due = (u128::from(count) * u128::from(seen) / u128::from(all)) as u64;
            let part = due.saturating_sub(taken).min(range.count());
            if part > 0 {
                // A part is not longer than its range, whose ends are 32 bits long.
                let first = range.last - (part - 1) as u32;
                share.insert(Range { first, last: range.last });
                taken += part;
            }
        }
        share
    }
}

impl FromIterator<Range> for Ranges {
    fn from_iter<I: IntoIterator<Item = Range>>(ranges: I) -> Self {
        let mut set = Ranges::default();
        ranges.into_iter().for_each(|range| set.insert(range));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn model(ranges: &Ranges) -> BTreeSet<u32> {
        ranges.iter().flat_map(|range| range.first..=range.last).collect()
    }

    fn any_range() -> impl Strategy<Value = Range> {
        (0..200_u32, 0..20_u32).prop_map(|(first, more)| Range { first, last: first + more })
    }

    proptest! {
        /// The set is what a set of single blocks would be, and its ranges stay apart.
        #[test]
        fn ranges_are_a_set(steps in prop::collection::vec((any::<bool>(), any_range()), 0..60)) {
            let (mut ranges, mut expected) = (Ranges::default(), BTreeSet::new());
            for (insert, range) in steps {
                let blocks = range.first..=range.last;
                prop_assert_eq!(ranges.overlaps(range), blocks.clone().any(|b| expected.contains(&b)));
                prop_assert_eq!(ranges.covers(range), blocks.clone().all(|b| expected.contains(&b)));
                if insert {
                    ranges.insert(range);
                    expected.extend(blocks);
                } else {
                    ranges.remove(range);
                    expected.retain(|b| !blocks.contains(b));
                }
                prop_assert_eq!(&model(&ranges), &expected);
                prop_assert_eq!(ranges.count(), expected.len() as u64);
                prop_assert!(ranges.0.windows(2).all(|two| two[0].last + 1 < two[1].first));
            }
        }

        /// A share is part of the set, as large as asked for, and leaves no more ranges behind than there were.
        #[test]
        fn a_share_is_as_large_as_asked(ranges in prop::collection::vec(any_range(), 1..20), part in 0..=100_u64) {
            let set: Ranges = ranges.into_iter().collect();
            let count = set.count() * part / 100;
            let share = set.share(count, usize::MAX);
            prop_assert_eq!(share.count(), count);
            prop_assert!(model(&share).is_subset(&model(&set)));
            let mut rest = set.clone();
            rest.remove_all(&share);
            prop_assert!(rest.len() <= set.len());
            prop_assert!(set.share(count, 3).len() <= 3);
        }
    }

    #[test]
    fn a_share_has_some_of_each_range() {
        let set: Ranges =
            [Range { first: 20, last: 99 }, Range { first: 200, last: 999 }].into_iter().collect();
        let share: Vec<String> = set.share(440, 64).iter().map(|range| range.to_string()).collect();
        assert_eq!(share, ["60-99", "600-999"]);
    }

    #[test]
    fn the_ends_of_the_integers_are_in_range() {
        let mut set = Ranges::default();
        set.insert(Range { first: 0, last: u32::MAX });
        assert_eq!(set.count(), 1 << 32);
        set.remove(Range { first: 0, last: 0 });
        set.remove(Range { first: u32::MAX, last: u32::MAX });
        assert_eq!((set.lowest(), set.count()), (Some(1), (1 << 32) - 2));
    }
}
