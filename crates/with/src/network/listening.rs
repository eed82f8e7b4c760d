//! Listening at the address that the program listens at.

use super::below::Below;
use super::sctp::SctpListener;
use super::transport::{Connection, Transport};
use super::{Network, tcp};
use ringway_services::Protocol;
use socket2::Socket;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// Why a connection that the peer has opened is carried as it is.
const ARRIVED: &str = "the peer has chosen it";

/// Accepts connections over one protocol.
pub(crate) enum Acceptor {
    Tcp(TcpListener),
    Sctp(SctpListener),
}

impl Acceptor {
    /// Waits for the next connection.
    ///
    /// # Errors
    /// No more will come.
    pub(crate) async fn accept(&self) -> io::Result<Connection> {
        match self {
            Acceptor::Tcp(listener) => {
                Ok(Connection::of(tcp::accept(listener).await, Transport::Tcp, ARRIVED))
            }
            Acceptor::Sctp(listener) => {
                Ok(Connection::of(listener.accept().await?, Transport::Sctp, ARRIVED))
            }
        }
    }
}

impl Network {
    /// Returns the protocols to listen with.
    fn protocols(&self) -> Vec<Protocol> {
        let now = self.clock.now();
        // That something fits has been checked when the services were read; a listener needs no more than a connection.
        let ranked = self.services.listening().listeners(now, &self.host);
        let candidates = ranked.map(|ranked| ranked.candidates).unwrap_or_default();
        candidates.iter().map(|candidate| candidate.protocol).collect()
    }

    /// Has a socket of TCP, which is bound, listen. Returns `None` if TCP lacks what is required.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn listen_by_socket(
        &self,
        socket: &Socket,
        backlog: i32,
    ) -> io::Result<Option<Acceptor>> {
        if !self.protocols().contains(&Protocol::Tcp) {
            return Ok(None);
        }
        socket.listen(backlog)?;
        let listener = TcpListener::from_std(socket.try_clone()?.into())?;
        Ok(Some(Acceptor::Tcp(listener)))
    }

    /// Returns the other protocols to listen with at an address.
    pub(crate) fn beside(&self, local: SocketAddr, dual: bool) -> Vec<Beside> {
        let loopback = local.ip().is_loopback();
        let below = |protocol: &Protocol| match protocol {
            Protocol::SctpUdp => Some(Below::Udp),
            // See `connecting`.
            Protocol::Sctp if !loopback => Some(Below::Ip),
            _ => None,
        };
        let protocols = self.protocols();
        protocols.iter().filter_map(below).map(|below| Beside { below, local, dual }).collect()
    }

    /// Listens.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn listen_beside(&self, beside: &Beside) -> io::Result<Acceptor> {
        let &Beside { below, local, dual } = beside;
        self.stacks.listen(below, local, dual).map(Acceptor::Sctp)
    }
}

/// A protocol to listen with beside TCP.
pub(crate) struct Beside {
    below: Below,
    local: SocketAddr,
    dual: bool,
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.below.title())
    }
}
