//! What the broker knows of a socket of the program.

use crate::network::Observer;
use crate::pump::Counts;
use socket2::{Domain, Protocol, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// A socket of the program.
pub(super) struct Socket {
    pub(super) ipv6: bool,
    pub(super) state: State,
    /// The socket of TCP that has its options and its local address; opened when it is needed.
    tcp: Option<socket2::Socket>,
    /// Whether the program has bound it.
    pub(super) is_bound: bool,
    /// The error that the program has not asked for yet.
    pub(super) error: Option<i32>,
    /// Notified at each change of the state.
    pub(super) changed: Arc<Notify>,
    pub(super) counts: Arc<Counts>,
}

/// The state of a socket.
pub(super) enum State {
    /// Neither connected nor listening.
    Idle,
    /// It listens; the task accepts at the socket of TCP.
    Listening(Option<AbortHandle>),
    /// Attempts are being made.
    Connecting,
    /// It is connected.
    Connected {
        local: SocketAddr,
        peer: SocketAddr,
        observer: Observer,
        /// Whether connect(2) has reported it.
        is_reported: bool,
    },
    /// Its connection has ended, or never stood.
    Over,
}

impl Socket {
    pub(super) fn new(ipv6: bool) -> Socket {
        Socket {
            ipv6,
            state: State::Idle,
            tcp: None,
            is_bound: false,
            error: None,
            changed: Arc::default(),
            counts: Arc::default(),
        }
    }

    /// Returns the socket of a connection that has arrived.
    pub(super) fn accepted(ipv6: bool, state: State, socket: Option<BorrowedFd<'_>>) -> Socket {
        // Without a duplicate, options are those of a socket that is not connected.
        let tcp = socket.and_then(|fd| fd.try_clone_to_owned().ok()).map(socket2::Socket::from);
        let mut accepted = Socket::new(ipv6);
        (accepted.state, accepted.tcp) = (state, tcp);
        accepted
    }

    /// Returns the socket of TCP.
    pub(super) fn tcp(&mut self) -> io::Result<&socket2::Socket> {
        if self.tcp.is_none() {
            let domain = if self.ipv6 { Domain::IPV6 } else { Domain::IPV4 };
            let socket = socket2::Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
            socket.set_nonblocking(true)?;
            self.tcp = Some(socket);
        }
        self.tcp.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Drops the socket of TCP, so that its end does not wait for the program's.
    pub(super) fn release(&mut self) {
        self.tcp = None;
        self.state = State::Over;
        self.changed.notify_waiters();
    }

    pub(super) fn is_connected(&self) -> bool {
        matches!(self.state, State::Connecting | State::Connected { .. })
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Returns the local address.
    pub(super) fn local(&mut self) -> SocketAddr {
        if let State::Connected { local, .. } = self.state {
            return local;
        }
        let any: SocketAddr =
            if self.ipv6 { ([0_u16; 8], 0).into() } else { ([0_u8; 4], 0).into() };
        if !self.is_bound && !matches!(self.state, State::Listening(_)) {
            return any;
        }
        let bound = self.tcp().and_then(socket2::Socket::local_addr);
        bound.ok().and_then(|bound| bound.as_socket()).unwrap_or(any)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let State::Listening(Some(task)) = &self.state {
            task.abort();
        }
        self.changed.notify_waiters();
    }
}
