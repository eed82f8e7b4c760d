//! How bytes leave a protocol.

use crate::flow::{Flow, FlowId, Transport};
use core::ops::Range;
use std::net::SocketAddr;
use std::sync::Arc;

/// Where a message is to go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// On an existing flow: fails if the connection is gone.
    Flow(Flow),
    /// To an address, over a connection that is open already or opened for it; for a datagram
    /// transport, from the listening socket that routes there.
    Peer {
        /// What to carry it over.
        transport: Transport,
        /// The address to reach.
        remote: SocketAddr,
        /// The name a TLS certificate must carry, where there is one (RFC 5922).
        name: Option<Arc<str>>,
    },
}

impl Target {
    /// The transport that will carry the message.
    pub fn transport(&self) -> Transport {
        match self {
            Target::Flow(flow) => flow.transport,
            Target::Peer { transport, .. } => *transport,
        }
    }

    /// The peer's address.
    pub fn remote(&self) -> SocketAddr {
        match self {
            Target::Flow(flow) => flow.remote,
            Target::Peer { remote, .. } => *remote,
        }
    }
}

/// One message to send: where, and which bytes of the outbox.
#[derive(Clone, Debug)]
pub struct Send {
    /// Where to.
    pub to: Target,
    /// The message, as a range of [`Outbox::bytes`].
    pub range: Range<usize>,
    /// Where not zero: report a failure to send, as soon as it is known, under this number.
    pub report: u64,
}

/// What a protocol wants sent, in order, in one buffer that its caller owns and uses again.
#[derive(Default, Debug)]
pub struct Outbox {
    bytes: Vec<u8>,
    sends: Vec<Send>,
    closes: Vec<FlowId>,
}

impl Outbox {
    /// An empty outbox.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.sends.is_empty() && self.closes.is_empty()
    }

    /// Number of messages.
    pub fn len(&self) -> usize {
        self.sends.len()
    }

    /// Appends one message, written by `write` straight into the buffer.
    pub fn push(&mut self, to: Target, report: u64, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        self.sends.push(Send { to, range: start..self.bytes.len(), report });
    }

    /// Begins a message in place: the buffer to append to. Follow with [`Outbox::finish`] or
    /// [`Outbox::abandon`], given the length the buffer had.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Ends a message that began where the buffer was `start` bytes long.
    pub fn finish(&mut self, start: usize, to: Target, report: u64) {
        self.sends.push(Send { to, range: start..self.bytes.len(), report });
    }

    /// Takes back what was written since the buffer was `start` bytes long.
    pub fn abandon(&mut self, start: usize) {
        self.bytes.truncate(start);
    }

    /// Has a connection of this worker closed, once what is sent on it before is written.
    pub fn close(&mut self, flow: FlowId) {
        self.closes.push(flow);
    }

    /// The connections to close.
    pub fn closes(&self) -> &[FlowId] {
        &self.closes
    }

    /// The messages in order.
    pub fn sends(&self) -> &[Send] {
        &self.sends
    }

    /// The bytes of one message.
    pub fn bytes(&self, send: &Send) -> &[u8] {
        &self.bytes[send.range.clone()]
    }

    /// Messages with their bytes, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Send, &[u8])> {
        self.sends.iter().map(|s| (s, &self.bytes[s.range.clone()]))
    }

    /// Forgets everything but keeps the memory, up to a bound, so that one burst is not paid for
    /// ever.
    pub fn clear(&mut self) {
        // Twice what the answers to a batch of datagrams take.
        const KEEP: usize = 64 << 10;
        self.bytes.clear();
        self.sends.clear();
        self.closes.clear();
        if self.bytes.capacity() > KEEP {
            self.bytes.shrink_to(KEEP);
        }
    }
}
