//! Which TSNs have arrived (RFC 9260 sections 3.3.4 and 6.7).

use crate::numbers::Line;
use std::collections::VecDeque;

/// Maximum number of ranges of TSNs after gaps. A chunk that would make one more is dropped.
pub(super) const MAX_RANGES: usize = 4096;
/// Maximum distance of a chunk above the Cumulative TSN Ack: the range of a gap block.
pub(super) const MAX_AHEAD: u64 = 65_535;
/// Maximum number of duplicates reported in one SACK.
pub(super) const MAX_DUPLICATES: usize = 64;

/// The TSNs that have arrived, by position.
#[derive(Debug)]
pub(crate) struct Tracker {
    cumulative: u64,
    /// Ranges above `cumulative`, both ends included, separate, ascending.
    ranges: VecDeque<(u64, u64)>,
    duplicates: Vec<u64>,
}

impl Tracker {
    pub(super) fn new() -> Tracker {
        Tracker { cumulative: Line::ORIGIN - 1, ranges: VecDeque::new(), duplicates: Vec::new() }
    }

    /// Returns the position up to which everything has arrived.
    pub(crate) fn cumulative(&self) -> u64 {
        self.cumulative
    }

    /// Returns the highest position that has arrived.
    pub(crate) fn highest(&self) -> u64 {
        self.ranges.back().map_or(self.cumulative, |range| range.1)
    }

    /// Returns whether something is missing.
    pub(crate) fn has_gaps(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// Returns the ranges after gaps.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ranges.iter().copied()
    }

    /// Returns the number of ranges.
    pub(crate) fn range_count(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the index of the first range that does not end before `position`.
    fn at_or_after(&self, position: u64) -> usize {
        if self.ranges.back().is_none_or(|last| last.1 < position) {
            return self.ranges.len();
        }
        self.ranges.partition_point(|range| range.1 < position)
    }

    pub(super) fn has(&self, position: u64) -> bool {
        position <= self.cumulative
            || self.ranges.get(self.at_or_after(position)).is_some_and(|range| range.0 <= position)
    }

    /// Returns whether a position that has not arrived can be recorded.
    pub(super) fn can_take(&self, position: u64) -> bool {
        if position > self.cumulative + MAX_AHEAD {
            return false;
        }
        if self.ranges.len() < MAX_RANGES || position == self.cumulative + 1 {
            return true;
        }
        let at = self.at_or_after(position);
        self.ranges.get(at).is_some_and(|range| range.0 == position + 1)
            || at.checked_sub(1).is_some_and(|before| self.ranges[before].1 + 1 == position)
    }

    /// Records a position that has not arrived.
    pub(super) fn take(&mut self, position: u64) {
        if position == self.cumulative + 1 {
            self.cumulative = position;
            if let Some(&(start, end)) = self.ranges.front()
                && start == position + 1
            {
                self.cumulative = end;
                self.ranges.pop_front();
            }
            return;
        }
        let at = self.at_or_after(position);
        let joins_next = self.ranges.get(at).is_some_and(|range| range.0 == position + 1);
        let joins_last = at > 0 && self.ranges[at - 1].1 + 1 == position;
        match (joins_last, joins_next) {
            (true, true) => {
                self.ranges[at - 1].1 = self.ranges[at].1;
                self.ranges.remove(at);
            }
            (true, false) => self.ranges[at - 1].1 = position,
            (false, true) => self.ranges[at].0 = position,
            (false, false) => self.ranges.insert(at, (position, position)),
        }
    }

    /// Records everything up to a position as arrived.
    pub(super) fn forward(&mut self, position: u64) {
        self.cumulative = self.cumulative.max(position);
        while let Some(&(start, end)) = self.ranges.front()
            && start <= self.cumulative + 1
        {
            self.cumulative = self.cumulative.max(end);
            self.ranges.pop_front();
        }
    }

    pub(super) fn note_duplicate(&mut self, position: u64) {
        if self.duplicates.len() < MAX_DUPLICATES {
            self.duplicates.push(position);
        }
    }

    /// Returns the duplicates since the last SACK.
    pub(crate) fn duplicates(&self) -> &[u64] {
        &self.duplicates
    }

    /// Clears the duplicates after a SACK has reported them.
    pub(crate) fn clear_duplicates(&mut self) {
        self.duplicates.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn behaves_like_a_set(positions in proptest::collection::vec(0u64..80, 0..120)) {
            let mut tracker = Tracker::new();
            let mut model = BTreeSet::new();
            for offset in positions {
                let position = Line::ORIGIN + offset;
                prop_assert_eq!(tracker.has(position), model.contains(&position));
                if model.insert(position) {
                    prop_assert!(tracker.can_take(position));
                    tracker.take(position);
                }
                let cumulative = (Line::ORIGIN..).find(|p| !model.contains(p)).unwrap() - 1;
                prop_assert_eq!(tracker.cumulative(), cumulative);
                let reported: BTreeSet<u64> = tracker.ranges().flat_map(|(a, b)| a..=b).collect();
                let above: BTreeSet<u64> = model.range(cumulative + 1..).copied().collect();
                prop_assert_eq!(reported, above);
                let apart: Vec<_> = tracker.ranges().collect();
                prop_assert!(apart.windows(2).all(|w| w[0].1 + 1 < w[1].0));
            }
        }
    }

    #[test]
    fn ranges_are_bounded() {
        let mut tracker = Tracker::new();
        for n in 1..=MAX_RANGES as u64 {
            tracker.take(Line::ORIGIN + 2 * n);
        }
        let beyond = Line::ORIGIN + 2 * MAX_RANGES as u64 + 2;
        assert!(!tracker.can_take(beyond) && tracker.can_take(beyond - 1));
        assert!(tracker.can_take(Line::ORIGIN) && tracker.can_take(Line::ORIGIN + 3));
        assert!(!tracker.can_take(Line::ORIGIN + MAX_AHEAD));
    }
}
