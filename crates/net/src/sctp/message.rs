//! What a program gives and gets: messages and news.

use bytes::Bytes;
use ringway_sctp::{Change, Close, PathState, Received};
use std::net::IpAddr;

/// A message, or part of a very large one, that was received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The stream it came on.
    pub stream: u16,
    /// Payload protocol identifier, as it came.
    pub ppid: u32,
    /// Delivered without regard to the order of the stream.
    pub unordered: bool,
    /// Begins the message. Not so for what follows a part.
    pub begin: bool,
    /// Ends the message. Not so for a part of one larger than half the receive buffer; its next
    /// part is the next message read.
    pub end: bool,
    /// What is missing of the message was given up by its sender.
    pub cut: bool,
    /// The bytes. Those of messages read together share one allocation.
    pub bytes: Bytes,
}

impl Message {
    pub(super) fn new(received: &Received, bytes: Bytes) -> Message {
        let &Received { stream, ppid, unordered, begin, end, cut, .. } = received;
        Message { stream, ppid, unordered, begin, end, cut, bytes }
    }

    /// Whether it is a message as it was sent, from its first byte to its last.
    pub fn is_whole(&self) -> bool {
        self.begin && self.end && !self.cut
    }
}

/// What happened to an association (RFC 6458 section 6.1).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// It is established.
    Up,
    /// The peer began anew: what it had not acknowledged is lost, streams begin at zero.
    Restarted,
    /// A path now stands otherwise.
    Path {
        /// The address of the peer that names the path.
        remote: IpAddr,
        /// How it stands.
        state: PathState,
    },
    /// The peer reports an error that ends nothing, by its cause code.
    PeerError {
        /// The cause code (RFC 9260 section 3.3.10).
        code: u16,
    },
    /// Messages that were given will not arrive.
    SendFailed {
        /// How many.
        messages: u32,
    },
    /// Streams or addresses have changed (RFC 6525, RFC 5061).
    Changed(Change),
    /// The peer has begun to shut down; it takes nothing more than what was given.
    PeerShutdown,
    /// So many events were lost here, because they were not taken in time.
    Missed(u32),
    /// It is over. The last event.
    Closed(Close),
}
