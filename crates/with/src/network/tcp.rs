//! Connections over the kernel's TCP.

use super::opened::{Opened, Received};
use ringway_with_wire::address::unmapped;
use socket2::{Domain, SockRef, Socket};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Octets that are read at once.
const READ: usize = 64 << 10;
/// Pause after an error of accept(2) that is the host's, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection over TCP.
pub(crate) struct TcpTransport(TcpStream);

/// Connects a socket, which may be bound and have options.
pub(super) async fn connect(socket: Socket, peer: SocketAddr) -> io::Result<Opened<TcpTransport>> {
    opened(TcpSocket::from_std_stream(socket.into()).connect(peer).await?)
}

/// Has a socket keep a port, which no other connection of this host has then. Returns the port; `None` if none is free.
pub(super) fn reserve(socket: &Socket) -> Option<u16> {
    let any: SocketAddr = match socket.domain().ok()? {
        Domain::IPV6 => (Ipv6Addr::UNSPECIFIED, 0).into(),
        _ => (Ipv4Addr::UNSPECIFIED, 0).into(),
    };
    // One that an attempt over TCP has bound keeps its port.
    let _ = socket.bind(&any.into());
    let port = socket.local_addr().ok()?.as_socket()?.port();
    (port != 0).then_some(port)
}

fn opened(stream: TcpStream) -> io::Result<Opened<TcpTransport>> {
    let (local, peer) = (unmapped(stream.local_addr()?), unmapped(stream.peer_addr()?));
    Ok(Opened { transport: TcpTransport(stream), local, peer })
}

/// Waits for a connection at a socket that listens.
pub(super) async fn accept(listener: &TcpListener) -> Opened<TcpTransport> {
    loop {
        let accepted = listener.accept().await;
        match accepted.and_then(|(stream, _)| opened(stream)) {
            Ok(opened) => return opened,
            // A connection that has ended again is no reason to wait (accept(2)).
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::NotConnected
                ) => {}
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

impl TcpTransport {
    pub(super) async fn send(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.0.writable().await?;
            match self.0.try_write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(super) fn finish(&self) -> io::Result<()> {
        SockRef::from(&self.0).shutdown(Shutdown::Write)
    }

    pub(super) async fn receive(&self, out: &mut Vec<u8>) -> io::Result<Received> {
        loop {
            self.0.readable().await?;
            out.reserve(READ);
            match self.0.try_read_buf(out) {
                Ok(0) => return Ok(Received::End),
                Ok(_) => return Ok(Received::Bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Has the kernel send a reset when the socket is closed (socket(7), SO_LINGER).
    pub(super) fn abort(&self) {
        // Without it the connection ends in order, which is all that is left to do.
        let _ = SockRef::from(&self.0).set_linger(Some(Duration::ZERO));
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
