//! What a world supplies to the flows of a worker.

use crate::mail::Mail;
use ringway_sansio::{FlowId, Outbox, Time, Transport};
use std::net::SocketAddr;
use std::sync::Arc;

/// The peer to open a connection to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Open {
    /// A transport that has connections.
    pub transport: Transport,
    /// The peer's address.
    pub remote: SocketAddr,
    /// The name that its certificate must prove, where there is one (RFC 5922).
    pub name: Option<Arc<str>>,
}

/// The pipes below flows. [`Flows`](crate::Flows) calls them; what they report comes back later, by the
/// methods of `Flows`, never from within these calls.
pub trait Pipes {
    /// What the world keeps with each connection, such as the waker of its task.
    type Handle: Default;

    /// Begins to open a connection. Returns our address, as far as it is known, or `None` if the connection
    /// cannot be opened. [`Flows::opened`](crate::Flows::opened) or
    /// [`Flows::closed`](crate::Flows::closed) follows.
    fn open(&mut self, now: Time, id: FlowId, open: Open) -> Option<SocketAddr>;

    /// Notes that the owner of a connection has something to do: to write, or to end it.
    fn wake(&mut self, id: FlowId, handle: &Self::Handle);

    /// Sends the datagrams of an outbox, and no other of its messages. Appends the report numbers of those
    /// that cannot be sent, zeros included.
    fn send_datagrams(&mut self, now: Time, outbox: &Outbox, failed: &mut Vec<u64>);

    /// Hands an item to another worker. Returns it if that worker has no room for it.
    fn post(&mut self, worker: u8, mail: Mail) -> Result<(), Mail>;

    /// Returns the worker that alone can open connections of a transport to a peer, if one alone can.
    fn opener(&mut self, now: Time, transport: Transport, remote: SocketAddr) -> Option<u8> {
        let _ = (now, transport, remote);
        None
    }

    /// Notes that what [`Flows::poll_timeout`](crate::Flows::poll_timeout) returns may have become earlier.
    /// `next` computes it, for a world that is not about to ask anyway.
    fn rearm(&mut self, next: impl FnOnce() -> Option<Time>) {
        let _ = next;
    }
}
