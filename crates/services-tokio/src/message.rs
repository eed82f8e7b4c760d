//! What is received.

use bytes::Bytes;

/// A message, or octets of a byte stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The octets.
    pub bytes: Bytes,
    /// Whether the message ends here. False for octets of a byte stream without framing, and for a part of a message by
    /// [`receive_part`](crate::Connection::receive_part).
    pub is_end: bool,
    /// Whether it was received before the peer had completed the handshake, by a listener with `zeroRttMsg`. Then it may be a
    /// copy that another host has sent again: do nothing that must not be done twice.
    pub is_early: bool,
}

impl std::ops::Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
