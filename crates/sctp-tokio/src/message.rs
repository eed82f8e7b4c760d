//! Received messages, and events of an association.

use bytes::Bytes;
use ringway_sctp::{Change, Close, PathState, Received, UndeliveredMessage};
use std::net::IpAddr;

/// A message, or part of a very large one, that was received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The stream it came on.
    pub stream: u16,
    /// Payload protocol identifier, as received.
    pub ppid: u32,
    /// Delivered without regard to the order of the stream.
    pub unordered: bool,
    /// Whether it is the start of the message. False for a part after the first.
    pub begin: bool,
    /// Whether it is the end of the message. False for a part of a message larger than half the receive
    /// buffer, whose next part is the next message read.
    pub end: bool,
    /// The sender abandoned the rest of the message.
    pub cut: bool,
    /// The bytes. Messages read together share one allocation.
    pub bytes: Bytes,
}

impl Message {
    pub(super) fn new(received: &Received, bytes: Bytes) -> Message {
        let &Received { stream, ppid, unordered, begin, end, cut, .. } = received;
        Message { stream, ppid, unordered, begin, end, cut, bytes }
    }

    /// Returns whether it is a complete message, from its first byte to its last.
    pub fn is_whole(&self) -> bool {
        self.begin && self.end && !self.cut
    }
}

/// An event of an association (RFC 6458 section 6.1).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The association is established.
    Up,
    /// The peer restarted the association: unacknowledged data is lost, streams begin at zero.
    Restarted,
    /// A path's state has changed.
    Path {
        /// The peer's address of the path.
        remote: IpAddr,
        /// The new state.
        state: PathState,
    },
    /// The peer reports an error that does not end the association.
    PeerError {
        /// The cause code (RFC 9260 section 3.3.10).
        code: u16,
    },
    /// Messages will not be delivered.
    SendFailed {
        /// The number of messages.
        messages: u32,
    },
    /// A message that was not delivered, with [`Settings::return_undelivered`](ringway_sctp::Settings). Unread
    /// ones take at most [`RETURNED_BYTES`](crate::RETURNED_BYTES) bytes; the oldest are dropped beyond that,
    /// and counted by [`Event::Missed`].
    Returned(UndeliveredMessage),
    /// Streams or addresses have changed (RFC 6525, RFC 5061).
    Changed(Change),
    /// The peer has begun to shut down. It accepts no more messages than those already sent.
    PeerShutdown,
    /// The number of events that were dropped, because they were not read in time.
    Missed(u32),
    /// The association has ended. The last event.
    Closed(Close),
}
