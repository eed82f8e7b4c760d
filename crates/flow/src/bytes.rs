//! A stream of bytes that carries messages framed by Content-Length (RFC 3261 section 18.3).

use ringway_sansio::Time;
use ringway_sip::framing::Framer;

/// What has come of the messages of one byte stream. It has no memory between two messages.
#[derive(Default, Debug)]
pub struct ByteStream {
    pub(crate) framer: Framer,
    partial: Option<Time>,
}

impl ByteStream {
    /// Returns a stream of which nothing has come.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns since when part of a message is here.
    pub fn partial(&self) -> Option<Time> {
        self.partial
    }

    /// Appends received bytes, which the next call of [`Flows::receive`](crate::Flows::receive) handles.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.framer.extend(bytes);
    }

    /// Returns the number of bytes that are not part of a whole message yet.
    pub fn pending(&self) -> usize {
        self.framer.pending()
    }

    pub(crate) fn forget_partial(&mut self) {
        self.partial = None;
    }

    /// Notes that bytes came, with which so many messages were complete.
    pub(crate) fn note(&mut self, now: Time, messages: usize) {
        if !self.framer.is_within_message() {
            self.partial = None;
        } else if messages > 0 || self.partial.is_none() {
            self.partial = Some(now);
        }
    }
}
