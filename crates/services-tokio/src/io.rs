//! Byte streams, whatever the protocol.

use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{self, AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A byte stream in both directions.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Send + Sync + Unpin {
    /// Has the peer see an error instead of the end when this is dropped, where the protocol can.
    fn abort(&mut self);
}

/// Ends a TCP connection by a reset (RFC 9293 section 3.9.1.6), also while a child process has the descriptor, too.
fn reset(stream: &TcpStream) {
    if ringway_os::reset_connection(stream.as_fd()).is_err() {
        // Then it is reset when the last descriptor is closed.
        let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
    }
}

impl ByteStream for TcpStream {
    fn abort(&mut self) {
        reset(self);
    }
}

impl ByteStream for tokio_rustls::client::TlsStream<TcpStream> {
    fn abort(&mut self) {
        reset(self.get_ref().0);
    }
}

impl ByteStream for tokio_rustls::server::TlsStream<TcpStream> {
    fn abort(&mut self) {
        reset(self.get_ref().0);
    }
}

/// A stream of QUIC.
pub(crate) struct QuicStream {
    send: quinn::SendStream,
    receive: quinn::RecvStream,
    /// The wanted priority, which may change at any time, and the one that is set.
    priority: Arc<AtomicI32>,
    set: i32,
}

impl QuicStream {
    pub(crate) fn new(
        send: quinn::SendStream,
        receive: quinn::RecvStream,
        priority: Arc<AtomicI32>,
    ) -> QuicStream {
        QuicStream { send, receive, priority, set: 0 }
    }
}

impl AsyncRead for QuicStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        AsyncRead::poll_read(Pin::new(&mut self.receive), cx, buffer)
    }
}

impl AsyncWrite for QuicStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wanted = self.priority.load(Ordering::Relaxed);
        if wanted != self.set {
            self.set = wanted;
            let _ = self.send.set_priority(wanted);
        }
        AsyncWrite::poll_write(Pin::new(&mut self.send), cx, octets)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(Pin::new(&mut self.send), cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_shutdown(Pin::new(&mut self.send), cx)
    }
}

impl ByteStream for QuicStream {
    fn abort(&mut self) {
        let _ = self.send.reset(0u8.into());
        let _ = self.receive.stop(0u8.into());
    }
}
