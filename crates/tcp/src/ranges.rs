//! A bounded set of sequence ranges, for both endpoints of selective acknowledgment.

use crate::seq::Seq;
use std::collections::VecDeque;

/// Maximum number of separate ranges. Beyond it new ones are refused. With 1,460-byte segments this
/// many holes need a window of at least 1.5 MB.
pub(crate) const MAX_RANGES: usize = 512;

/// Ranges `[left, right)` in order that neither overlap nor touch. All lie within 2^31.
#[derive(Debug, Default)]
pub(crate) struct Ranges(VecDeque<(Seq, Seq)>);

impl Ranges {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn first(&self) -> Option<(Seq, Seq)> {
        self.0.front().copied()
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (Seq, Seq)> {
        self.0.iter().copied()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds a range and returns the one that contains it; `None` when the set is full.
    pub(crate) fn insert(&mut self, left: Seq, right: Seq) -> Option<(Seq, Seq)> {
        // The first range that ends at or after `left`, and the first that begins after `right`.
        let from = self.0.partition_point(|range| range.1.before(left));
        let mut to = from;
        let (mut low, mut high) = (left, right);
        while let Some(range) = self.0.get(to)
            && range.0.upto(right)
        {
            low = low.min(range.0);
            high = high.max(range.1);
            to += 1;
        }
        if from == to {
            if self.0.len() >= MAX_RANGES {
                return None;
            }
            self.0.insert(from, (low, high));
        } else {
            self.0[from] = (low, high);
            if to > from + 1 {
                self.0.drain(from + 1..to);
            }
        }
        Some((low, high))
    }

    /// Drops everything before `seq`.
    pub(crate) fn drop_before(&mut self, seq: Seq) {
        while let Some(range) = self.0.front_mut() {
            if range.1.upto(seq) {
                self.0.pop_front();
            } else {
                range.0 = range.0.max(seq);
                break;
            }
        }
    }

    /// Removes the first range if it begins at or before `seq`, and returns its end.
    pub(crate) fn take_joined(&mut self, seq: Seq) -> Option<Seq> {
        let (left, right) = self.first()?;
        if left.after(seq) {
            return None;
        }
        self.0.pop_front();
        Some(right)
    }

    /// Returns the first part of `[left, right)` that is in no range.
    pub(crate) fn gap(&self, left: Seq, right: Seq) -> Option<(Seq, Seq)> {
        let at = self.0.partition_point(|range| range.1.upto(left));
        let Some(&(low, high)) = self.0.get(at) else {
            return left.before(right).then_some((left, right));
        };
        if low.after(left) {
            return left.before(right).then(|| (left, right.min(low)));
        }
        // Ranges do not touch, so what follows `high` is a gap.
        let right = self.0.get(at + 1).map_or(right, |next| right.min(next.0));
        high.before(right).then_some((high, right))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a row of flags, near the wrap of sequence numbers.
        #[test]
        fn behaves_like_a_row_of_flags(
            steps in proptest::collection::vec((0u8..4, 0u32..120, 1u32..20), 1..60)
        ) {
            let base = Seq::new(u32::MAX - 60);
            let mut set = Ranges::default();
            let mut row = [false; 160];
            let mut low = 0usize;
            for (what, from, length) in steps {
                let from = from.max(low as u32);
                let (left, right) = (base + from, base + from + length);
                if what == 0 {
                    set.drop_before(base + from);
                    low = low.max(from as usize);
                    row[..low].fill(false);
                } else {
                    let merged = set.insert(left, right).unwrap();
                    row[from as usize..(from + length) as usize].fill(true);
                    let mut start = from as usize;
                    while start > 0 && row[start - 1] { start -= 1; }
                    let mut end = (from + length) as usize;
                    while end < 160 && row[end] { end += 1; }
                    prop_assert_eq!(merged, (base + start as u32, base + end as u32));
                }
                let mut expected = Vec::new();
                let mut at = 0;
                while at < 160 {
                    if row[at] {
                        let start = at;
                        while at < 160 && row[at] { at += 1; }
                        expected.push((base + start as u32, base + at as u32));
                    }
                    at += 1;
                }
                prop_assert_eq!(set.iter().collect::<Vec<_>>(), expected);
                let end = (from + length) as usize;
                let gap = (from as usize..end).find(|&i| !row[i]).map(|start| {
                    let stop = (start..end).find(|&i| row[i]).unwrap_or(end);
                    (base + start as u32, base + stop as u32)
                });
                prop_assert_eq!(set.gap(left, right), gap);
            }
        }
    }

    #[test]
    fn refuses_more_ranges_than_its_bound() {
        let mut set = Ranges::default();
        for n in 0..MAX_RANGES as u32 {
            assert!(set.insert(Seq::new(n * 4), Seq::new(n * 4 + 2)).is_some());
        }
        assert_eq!(set.insert(Seq::new(1 << 20), Seq::new((1 << 20) + 1)), None);
        assert_eq!(set.insert(Seq::new(2), Seq::new(4)), Some((Seq::new(0), Seq::new(6))));
    }
}
