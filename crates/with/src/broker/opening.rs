//! Opening a connection for a socket of the program, and carrying it to its end.

use super::requests::discard;
use super::socket::State;
use super::{Broker, closed};
use crate::locking::lock;
use crate::network::{ConnectError, Connection, Opening};
use crate::pump::{Ended, pump};
use ringway_with_wire::SocketId;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tokio::net::UnixStream;

impl Broker {
    /// Connects a socket of the program to a peer. Its request is read once the peer is connected: then the socket becomes
    /// writable. When that fails the socket is closed, and the kernel reports an error.
    pub(super) async fn open(
        self: Arc<Broker>,
        stream: UnixStream,
        (id, ipv6): (SocketId, bool),
        peer: SocketAddr,
        request: usize,
    ) {
        let opening = match self.begin(id, ipv6, peer) {
            Ok(opening) => opening,
            Err(errno) => return self.fail(id, errno),
        };
        let network = self.network.clone();
        let opened = tokio::select! {
            opened = network.connect(opening) => opened,
            // The program has closed it, and nothing is left of it.
            () = closed(&stream) => return self.remove(id),
        };
        match opened {
            Ok(connection) => {
                let (local, remote) = (connection.local, connection.peer);
                let observer = connection.transport.observer();
                if let Some(socket) = lock(&self.table).get(id) {
                    let is_reported = false;
                    socket.state = State::Connected { local, peer: remote, observer, is_reported };
                    socket.changed.notify_waiters();
                }
                // The program's own socket, or nobody's any more.
                if discard(&stream, request).await.is_ok() {
                    self.carry(id, stream, connection, "to").await;
                } else {
                    connection.transport.abort();
                    self.remove(id);
                }
            }
            Err(ConnectError { errno, reason }) => {
                self.explain(|| format!("{peer}: no connection: {reason}"));
                self.fail(id, errno);
            }
        }
    }

    /// Notes that a connection is being opened. Returns what it takes.
    fn begin(&self, id: SocketId, ipv6: bool, peer: SocketAddr) -> Result<Opening, i32> {
        let errno = |error: std::io::Error| error.raw_os_error().unwrap_or(libc::EIO);
        let mut table = lock(&self.table);
        let socket = table.socket(id, ipv6).ok_or(libc::ENOBUFS)?;
        if !matches!(socket.state, State::Idle) {
            return Err(libc::EISCONN);
        }
        let bound = socket.is_bound.then(|| socket.local());
        let tcp = socket.tcp().and_then(socket2::Socket::try_clone).map_err(errno)?;
        socket.state = State::Connecting;
        Ok(Opening { peer, socket: tcp, bound })
    }

    /// Notes the error of a connection that does not stand.
    fn fail(&self, id: SocketId, errno: i32) {
        if let Some(socket) = lock(&self.table).get(id) {
            socket.error = Some(errno);
            socket.release();
        }
    }

    /// Carries a connection until its end.
    pub(super) async fn carry(
        self: &Arc<Broker>,
        id: SocketId,
        stream: UnixStream,
        connection: Connection,
        direction: &str,
    ) {
        let Connection { transport, peer, reason, .. } = connection;
        self.explain(|| format!("{direction} {peer} by {}: {reason}", transport.title()));
        let Some(counts) = lock(&self.table).get(id).map(|socket| socket.counts.clone()) else {
            return transport.abort();
        };
        let (title, since) = (transport.title(), Instant::now());
        let ended = pump(&stream, &transport, &counts).await;
        self.explain(|| {
            let count = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
            let how = match ended {
                Ended::InOrder => String::new(),
                Ended::ByProgram => ", reset by the program".to_owned(),
                Ended::ByPeer(errno) => format!(", {}", std::io::Error::from_raw_os_error(errno)),
            };
            let (sent, received) = (count(&counts.sent), count(&counts.received));
            let seconds = since.elapsed().as_secs_f64();
            format!(
                "{direction} {peer} by {title} has ended after {seconds:.1} s: {sent} octets sent, {received} received{how}"
            )
        });
        // The error first: the program learns of the end when the socket is closed.
        match ended {
            Ended::ByPeer(errno) => self.fail(id, errno),
            Ended::InOrder if !id.is_accepted() => {
                if let Some(socket) = lock(&self.table).get(id) {
                    socket.release();
                }
            }
            Ended::InOrder | Ended::ByProgram => self.remove(id),
        }
        drop(transport);
        drop(stream);
    }
}
