//! The chunks that were sent and are not acknowledged, by position.

use super::message::SentChunk;
use crate::numbers::{Line, Tsn};
use std::collections::VecDeque;
use std::collections::vec_deque::Iter;

/// Maximum number of chunks in flight. It keeps the numbers of a stream comparable, and the 16 bits of
/// a gap block reach all of them (RFC 9260 sections 3.3.4 and 6.5).
pub const MAX_IN_FLIGHT: usize = 32_767;

/// A ring of chunks and the line of their numbers.
#[derive(Debug)]
pub(super) struct SentRing {
    line: Line,
    /// The position of the first chunk.
    first: u64,
    chunks: VecDeque<SentChunk>,
    /// Whether [`MAX_IN_FLIGHT`] holds new data back.
    holds_back: bool,
}

impl SentRing {
    pub(super) fn new(initial_tsn: Tsn) -> SentRing {
        let (line, chunks) = (Line::new(initial_tsn), VecDeque::new());
        SentRing { line, first: Line::ORIGIN, chunks, holds_back: false }
    }

    /// Returns the position of the first chunk.
    #[inline]
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Returns the position of the next chunk.
    #[inline]
    pub(super) fn next(&self) -> u64 {
        self.first + self.chunks.len() as u64
    }

    /// Returns the TSN of a position.
    #[inline]
    pub(super) fn tsn(&self, position: u64) -> Tsn {
        self.line.tsn(position)
    }

    /// Returns the position of a TSN.
    #[inline]
    pub(super) fn position(&self, tsn: Tsn) -> u64 {
        self.line.position(tsn, self.first)
    }

    /// Returns the chunk at a position.
    #[inline]
    pub(super) fn at(&self, position: u64) -> Option<&SentChunk> {
        self.chunks.get(position.checked_sub(self.first)? as usize)
    }

    /// Returns the chunk at a position for changes.
    #[inline]
    pub(super) fn at_mut(&mut self, position: u64) -> Option<&mut SentChunk> {
        self.chunks.get_mut(position.checked_sub(self.first)? as usize)
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.chunks.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Returns whether it takes no more chunks.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.chunks.len() >= MAX_IN_FLIGHT
    }

    /// Notes whether it holds new data back because it is full. Returns whether that begins now.
    #[inline]
    pub(super) fn note_holding(&mut self, holds_back: bool) -> bool {
        let held_back = core::mem::replace(&mut self.holds_back, holds_back);
        holds_back && !held_back
    }

    /// Returns the chunks in order.
    pub(super) fn iter(&self) -> Iter<'_, SentChunk> {
        self.chunks.iter()
    }

    pub(super) fn front(&self) -> Option<&SentChunk> {
        self.chunks.front()
    }

    pub(super) fn back(&self) -> Option<&SentChunk> {
        self.chunks.back()
    }

    /// Appends a chunk.
    #[inline]
    pub(super) fn push(&mut self, chunk: SentChunk) {
        self.chunks.push_back(chunk);
    }

    /// Removes the first chunk.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<SentChunk> {
        let chunk = self.chunks.pop_front()?;
        self.first += 1;
        Some(chunk)
    }

    /// Drops all chunks and restarts the positions at the same numbers.
    pub(super) fn clear(&mut self) {
        self.chunks.clear();
        self.first = Line::ORIGIN;
    }

    /// Drops all chunks and restarts the positions at a TSN.
    pub(super) fn restart(&mut self, initial_tsn: Tsn) {
        self.clear();
        self.line = Line::new(initial_tsn);
    }

    /// Releases the memory of an empty ring.
    pub(super) fn trim(&mut self) {
        self.chunks = VecDeque::new();
    }
}
