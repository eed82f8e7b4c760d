//! The state of partial reliability (RFC 3758 section 3.5).

use crate::numbers::Line;

/// What is abandoned, and how far the peer is to skip.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartialReliability {
    /// Whether the peer supports FORWARD TSN.
    supported: bool,
    /// Whether a message that may be abandoned was queued.
    used: bool,
    /// Advanced.Peer.Ack.Point: everything up to here is acknowledged or abandoned.
    ack_point: u64,
    /// Number of messages abandoned since the last call of `take_abandoned`.
    abandoned: u32,
}

impl Default for PartialReliability {
    fn default() -> Self {
        let ack_point = Line::ORIGIN - 1;
        PartialReliability { supported: false, used: false, ack_point, abandoned: 0 }
    }
}

impl PartialReliability {
    /// Sets whether the peer supports FORWARD TSN.
    pub(super) fn set_supported(&mut self, supported: bool) {
        self.supported = supported;
    }

    #[inline]
    pub(super) fn is_supported(&self) -> bool {
        self.supported
    }

    /// Notes that a message is queued; `unreliable` states that it may be abandoned.
    #[inline]
    pub(super) fn queued(&mut self, unreliable: bool) {
        self.used |= unreliable;
    }

    /// Returns whether a message that may be abandoned was queued.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.used
    }

    /// Returns whether messages that were sent can be abandoned.
    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.supported && self.used
    }

    #[inline]
    pub(super) fn ack_point(&self) -> u64 {
        self.ack_point
    }

    /// Advances Advanced.Peer.Ack.Point to a position (rules C1 and C2).
    #[inline]
    pub(super) fn advance_to(&mut self, position: u64) {
        self.ack_point = self.ack_point.max(position);
    }

    /// Restarts the positions.
    pub(super) fn restart(&mut self) {
        self.ack_point = Line::ORIGIN - 1;
    }

    /// Counts an abandoned message if it `is_one`.
    pub(super) fn count(&mut self, is_one: bool) {
        self.abandoned += u32::from(is_one);
    }

    /// Returns the number of messages abandoned since the last call.
    pub(super) fn take_abandoned(&mut self) -> u32 {
        core::mem::take(&mut self.abandoned)
    }
}
