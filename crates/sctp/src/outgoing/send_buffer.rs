//! What messages count in the send buffer.

use crate::error::SendError;

/// Minimum number of bytes that a waiting message counts in the send buffer.
pub const MESSAGE_COST: usize = 64;

/// The bytes of messages that are queued or not acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SendBuffer {
    bytes: usize,
    /// Bytes of user data not cut into chunks yet.
    waiting: usize,
    /// Number of evicted messages whose entries in the queues are still there.
    emptied: u32,
    /// Whether a message was refused since the user was last notified of room.
    refused: bool,
}

impl SendBuffer {
    /// Returns the bytes of the messages.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of messages that count, of those that have an entry.
    pub(super) fn count(&self, messages: usize) -> usize {
        messages - self.emptied as usize
    }

    /// Returns what a number of messages counts.
    pub(super) fn total(&self, messages: usize) -> usize {
        self.bytes.max(self.count(messages) * MESSAGE_COST)
    }

    /// Returns the bytes of user data not cut into chunks yet.
    #[inline]
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Adds a message.
    #[inline]
    pub(super) fn add(&mut self, len: usize) {
        self.bytes += len;
        self.waiting += len;
    }

    /// Notes that data is cut into a chunk.
    #[inline]
    pub(super) fn cut(&mut self, len: usize) {
        self.waiting -= len;
    }

    /// Notes that cut data waits again.
    pub(super) fn uncut(&mut self, len: usize) {
        self.waiting += len;
    }

    /// Removes data that was cut.
    #[inline]
    pub(super) fn release(&mut self, len: usize) {
        self.bytes -= len;
    }

    /// Removes data that was not cut.
    pub(super) fn drop_waiting(&mut self, len: usize) {
        self.waiting -= len;
        self.bytes -= len;
    }

    /// Removes the data of a message whose entry stays.
    pub(super) fn evict(&mut self, len: usize) {
        self.drop_waiting(len);
        self.emptied += 1;
    }

    /// Notes that the entry of a message is removed; `emptied` states that it was evicted.
    pub(super) fn entry_removed(&mut self, emptied: bool) {
        self.emptied -= u32::from(emptied);
    }

    /// Returns the error of a message that has no room beside `used` bytes.
    pub(super) fn refuse(&mut self, used: usize, limit: usize, got: usize) -> SendError {
        self.refused = true;
        SendError::NoRoom { room: limit.saturating_sub(used), got }
    }

    /// Returns whether the user waits for room.
    #[inline]
    pub(super) fn has_refused(&self) -> bool {
        self.refused
    }

    /// Notes that the user is notified of room.
    pub(super) fn clear_refused(&mut self) {
        self.refused = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_evicted_message_counts_nothing() {
        let mut buffer = SendBuffer::default();
        buffer.add(10);
        buffer.add(100);
        assert_eq!((buffer.total(2), buffer.waiting()), (2 * MESSAGE_COST, 110));
        buffer.evict(10);
        assert_eq!((buffer.total(2), buffer.waiting()), (100, 100));
        buffer.entry_removed(true);
        buffer.cut(60);
        buffer.release(60);
        assert_eq!((buffer.bytes(), buffer.waiting(), buffer.total(1)), (40, 40, MESSAGE_COST));
        assert!(!buffer.has_refused());
        assert_eq!(buffer.refuse(40, 50, 20), SendError::NoRoom { room: 10, got: 20 });
        assert!(buffer.has_refused());
    }
}
