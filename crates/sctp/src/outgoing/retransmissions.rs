//! The chunks that are to be sent again.

use std::collections::BTreeSet;

/// The positions of marked chunks.
#[derive(Debug, Default)]
pub(super) struct Retransmissions {
    positions: BTreeSet<u64>,
    /// Whether the next packet of them is sent regardless of the window (RFC 9260 section 7.2.4).
    forced: bool,
}

impl Retransmissions {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.positions.len()
    }

    /// Returns the positions in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u64> {
        self.positions.iter().copied()
    }

    /// Returns the lowest position.
    #[inline]
    pub(super) fn first(&self) -> Option<u64> {
        self.positions.first().copied()
    }

    /// Returns the lowest position from `from` on.
    pub(super) fn first_from(&self, from: u64) -> Option<u64> {
        self.positions.range(from..).next().copied()
    }

    pub(super) fn pop_first(&mut self) -> Option<u64> {
        self.positions.pop_first()
    }

    pub(super) fn insert(&mut self, position: u64) {
        self.positions.insert(position);
    }

    pub(super) fn remove(&mut self, position: u64) {
        self.positions.remove(&position);
    }

    /// Drops all positions. What was forced stays so.
    pub(super) fn clear(&mut self) {
        self.positions.clear();
    }

    /// Returns whether the next packet is sent regardless of the window.
    #[inline]
    pub(super) fn is_forced(&self) -> bool {
        self.forced
    }

    /// Sets whether the next packet is sent regardless of the window.
    #[inline]
    pub(super) fn set_forced(&mut self, forced: bool) {
        self.forced = forced;
    }
}
