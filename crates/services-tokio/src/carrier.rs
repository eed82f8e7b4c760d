//! What carries one connection, whatever the protocol: the line between the API and the protocols.

use crate::error::Error;
use bytes::Bytes;
use ringway_services::protocol::MessageLimits;
use ringway_services::sending::Sending;
use std::net::SocketAddr;
use std::task::{Context, Poll};

/// A message, or a part of one, as it was received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub(crate) bytes: Bytes,
    /// Whether the message ends here.
    pub(crate) end: bool,
    /// Whether the sender has abandoned the message: what was received of it is of no use.
    pub(crate) cut: bool,
    /// Whether it was received before the handshake had ended, so that it may be a copy.
    pub(crate) early: bool,
}

impl Part {
    /// Returns a message.
    pub(crate) fn whole(bytes: Bytes) -> Part {
        Part { bytes, end: true, cut: false, early: false }
    }

    /// Returns octets of a message that goes on.
    pub(crate) fn piece(bytes: Bytes) -> Part {
        Part { bytes, end: false, cut: false, early: false }
    }
}

/// Something that happened to a connection besides messages (RFC 9622 sections 8.3 and 9.2.2).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A path has changed: it is used, or no longer.
    Path {
        /// The peer's address of the path.
        remote: SocketAddr,
        /// Whether the path works.
        works: bool,
    },
    /// The network has reported an error that does not end the connection, such as an unreachable port.
    SoftError(String),
    /// Messages were not sent, because their lifetime was over.
    Expired {
        /// Their number.
        messages: u32,
    },
    /// Messages that were received were dropped, because nobody had read those before.
    Dropped {
        /// Their number.
        messages: u32,
    },
}

/// A path of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// The local address.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// Whether it works, as far as is known.
    pub works: bool,
    /// Whether data is sent on it.
    pub is_primary: bool,
    /// Octets of the largest IP packet, if that is known.
    pub mtu: Option<u32>,
}

/// What carries one connection. All calls may come from several tasks.
pub(crate) trait Carrier: Send + Sync {
    /// Hands over a message, and takes it out of `message` when it is ready. After a message that is the last one nothing
    /// more is sent.
    fn poll_send(
        &self,
        cx: &mut Context<'_>,
        message: &mut Bytes,
        sending: &Sending,
    ) -> Poll<Result<(), Error>>;

    /// Receives the next message or part of one; `None` after the last.
    fn poll_receive(&self, cx: &mut Context<'_>) -> Poll<Result<Option<Part>, Error>>;

    /// Waits until all that was handed over has gone to the transport.
    fn poll_flushed(&self, cx: &mut Context<'_>) -> Poll<Result<(), Error>>;

    /// Waits for the next event.
    fn poll_event(&self, cx: &mut Context<'_>) -> Poll<Event>;

    /// Closes the connection behind what was handed over. What the peer still sends is dropped.
    fn close(&self);

    /// Ends the connection at once.
    fn abort(&self, code: u32);

    /// Returns whether the first message was sent before the handshake had ended.
    fn has_sent_first(&self) -> bool {
        false
    }

    /// Sets the priority among the connections of the group.
    fn set_priority(&self, _priority: u32) {}

    /// Sets how many octets of a received message a checksum must cover; `None` for all.
    fn set_receive_coverage(&self, _octets: Option<u32>) -> Result<(), Error> {
        Ok(())
    }

    /// Returns the current limits of messages; `None` for those that follow from the protocol.
    fn limits(&self) -> Option<MessageLimits> {
        None
    }

    /// Returns the paths; empty for the one between the addresses of the connection.
    fn paths(&self) -> Vec<Path> {
        Vec::new()
    }
}
