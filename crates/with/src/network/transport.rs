//! A connection's transport: bytes with an end in each direction.

use super::associated::SctpTransport;
use super::opened::{Information, Opened, Received};
use super::tcp::TcpTransport;
use bytes::Bytes;
use ringway_sctp_tokio::Association;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// What carries a connection.
pub(crate) enum Transport {
    Tcp(TcpTransport),
    Sctp(SctpTransport),
}

/// A connection that stands.
pub(crate) struct Connection {
    pub(crate) transport: Transport,
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    /// Why it is carried so.
    pub(crate) reason: String,
}

impl Connection {
    /// Returns the connection over a transport, for a reason.
    pub(super) fn of<T>(
        opened: Opened<T>,
        transport: fn(T) -> Transport,
        reason: &str,
    ) -> Connection {
        let Opened { transport: carried, local, peer } = opened;
        Connection { transport: transport(carried), local, peer, reason: reason.to_owned() }
    }
}

/// Shows a connection's state to those who ask for it, and does not keep the connection.
#[derive(Clone)]
pub(crate) enum Observer {
    /// The kernel's own, behind the socket that the connection has.
    Socket,
    Sctp(Association),
}

impl Transport {
    /// Returns how the connection is carried, in words.
    pub(crate) fn title(&self) -> String {
        match self {
            Transport::Tcp(_) => "TCP".to_owned(),
            Transport::Sctp(sctp) => sctp.title(),
        }
    }

    /// Sends bytes, and waits until they are queued.
    pub(crate) async fn send(&self, bytes: Bytes) -> io::Result<()> {
        match self {
            Transport::Tcp(tcp) => tcp.send(&bytes).await,
            Transport::Sctp(sctp) => sctp.send(bytes).await,
        }
    }

    /// Sends the end of this direction.
    pub(crate) async fn finish(&self) -> io::Result<()> {
        match self {
            Transport::Tcp(tcp) => tcp.finish(),
            Transport::Sctp(sctp) => sctp.finish().await,
        }
    }

    /// Appends bytes that have come, at least one, or reports the end.
    pub(crate) async fn receive(&self, out: &mut Vec<u8>) -> io::Result<Received> {
        match self {
            Transport::Tcp(tcp) => tcp.receive(out).await,
            Transport::Sctp(sctp) => sctp.receive(out).await,
        }
    }

    /// Resets the connection.
    pub(crate) fn abort(&self) {
        match self {
            Transport::Tcp(tcp) => tcp.abort(),
            Transport::Sctp(sctp) => sctp.abort(),
        }
    }

    /// Ends the connection, whose directions have both ended.
    pub(crate) async fn close(&self) {
        match self {
            Transport::Tcp(_) => {}
            Transport::Sctp(sctp) => sctp.close().await,
        }
    }

    /// Returns the socket of TCP that the connection has.
    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Transport::Tcp(tcp) => Some(tcp.socket()),
            Transport::Sctp(_) => None,
        }
    }

    pub(crate) fn observer(&self) -> Observer {
        match self {
            Transport::Tcp(_) => Observer::Socket,
            Transport::Sctp(sctp) => Observer::Sctp(sctp.association().clone()),
        }
    }
}

impl Observer {
    /// Returns the state; `None` where the kernel's TCP knows it.
    pub(crate) fn information(&self) -> Option<Information> {
        match self {
            Observer::Socket => None,
            Observer::Sctp(association) => Some(super::sctp::information(association)),
        }
    }
}
