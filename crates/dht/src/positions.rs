//! Positions on the ring, and of records in the order in which they are listed.

use ringway_mesh::NodeId;

/// Positions on the ring from `first` to `last`, both included. If `first` is behind `last`, the range goes over the end
/// of the line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The first position.
    pub first: NodeId,
    /// The last position.
    pub last: NodeId,
}

impl Span {
    /// Returns whether a position is within.
    pub fn contains(&self, key: NodeId) -> bool {
        let offset = |id: NodeId| id.raw().wrapping_sub(self.first.raw());
        offset(key) <= offset(self.last)
    }

    /// Returns the number of positions, less one.
    pub fn width(&self) -> u64 {
        self.last.raw().wrapping_sub(self.first.raw())
    }

    /// Returns part `index` of `count` parts of about the same width; `None` if there are fewer positions.
    pub fn part(&self, index: usize, count: usize) -> Option<Span> {
        let step = self.width() / count as u64;
        if step == 0 {
            return None;
        }
        let first = self.first.raw().wrapping_add(step * index as u64);
        let last = match index + 1 == count {
            true => self.last.raw(),
            false => first.wrapping_add(step - 1),
        };
        Some(Span { first: NodeId::new(first), last: NodeId::new(last) })
    }
}

/// A position in the order of records: first by key, then by signer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Cursor(u128);

impl Cursor {
    /// The position of a signer's record.
    pub fn new(key: NodeId, signer: NodeId) -> Self {
        Cursor(u128::from(key.raw()) << 64 | u128::from(signer.raw()))
    }

    /// The first position with a key.
    pub fn first(key: NodeId) -> Self {
        Cursor::new(key, NodeId::new(0))
    }

    /// The last position with a key.
    pub fn last(key: NodeId) -> Self {
        Cursor::new(key, NodeId::new(u64::MAX))
    }

    /// Returns the key.
    pub fn key(self) -> NodeId {
        NodeId::new((self.0 >> 64) as u64)
    }

    /// Returns the signer.
    pub fn signer(self) -> NodeId {
        NodeId::new(self.0 as u64)
    }

    /// Returns the position before this one.
    pub fn before(self) -> Option<Self> {
        self.0.checked_sub(1).map(Cursor)
    }

    /// Returns the position behind this one.
    pub fn after(self) -> Option<Self> {
        self.0.checked_add(1).map(Cursor)
    }
}

/// Positions from the first to the last, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch {
    /// The first position.
    pub first: Cursor,
    /// The last position, not before the first.
    pub last: Cursor,
}

impl Stretch {
    /// Returns whether a position is within.
    pub fn contains(&self, cursor: Cursor) -> bool {
        (self.first..=self.last).contains(&cursor)
    }

    /// Returns the part of it that is of keys from that of the first position up to one that is at most `distance` behind
    /// `from`.
    pub(crate) fn until(self, from: NodeId, distance: u64) -> Stretch {
        let key = self.first.key();
        let passed = key.raw().wrapping_sub(from.raw());
        let end = key.raw().checked_add(distance.saturating_sub(passed));
        let end = end.map_or(self.last, |end| Cursor::last(NodeId::new(end)));
        Stretch { last: self.last.min(end), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_ends_where_its_owner_ends() {
        let id = NodeId::new;
        let from = |first: u64, last: u64| Stretch {
            first: Cursor::new(id(first), id(7)),
            last: Cursor::last(id(last)),
        };
        assert_eq!(from(20, 90).until(id(10), 30), from(20, 40));
        assert_eq!(from(20, 30).until(id(10), 30), from(20, 30));
        // An owner whose positions go over the end of the line.
        assert_eq!(
            from(u64::MAX - 5, u64::MAX).until(id(u64::MAX - 9), 30).last,
            Cursor::last(id(u64::MAX))
        );
        assert_eq!(from(2, 90).until(id(u64::MAX - 9), 30), from(2, 20));
        assert!(Cursor::last(id(u64::MAX)).after().is_none());
        assert!(Cursor::first(id(0)).before().is_none());
        assert_eq!(Cursor::last(id(4)).after(), Some(Cursor::first(id(5))));
        assert_eq!(Cursor::new(id(4), id(9)).signer(), id(9));
    }

    #[test]
    fn a_range_over_the_end_of_the_line_has_parts() {
        let span = Span { first: NodeId::new(u64::MAX - 15), last: NodeId::new(15) };
        assert!(span.contains(NodeId::new(0)) && span.contains(span.first));
        assert!(!span.contains(NodeId::new(16)));
        let parts: Vec<Span> = (0..4).filter_map(|at| span.part(at, 4)).collect();
        assert_eq!(parts.len(), 4);
        assert_eq!((parts[0].first, parts[3].last), (span.first, span.last));
        for pair in parts.windows(2) {
            assert_eq!(pair[0].last.raw().wrapping_add(1), pair[1].first.raw());
        }
        let all = Span { first: NodeId::new(5), last: NodeId::new(4) };
        assert!([0, 4, 5, u64::MAX].iter().all(|&at| all.contains(NodeId::new(at))));
        assert_eq!(Span { first: NodeId::new(1), last: NodeId::new(8) }.part(0, 16), None);
    }
}
