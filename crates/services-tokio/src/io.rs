//! Byte streams, whatever the protocol.

use crate::alarm::Alarm;
use crate::draining::Drain;
use crate::limits::LINGER;
use std::future::Future;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{self, AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// A byte stream in both directions.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Send + Sync + Unpin {
    /// Has the peer see an error instead of the end when this is dropped, where the protocol can.
    fn abort(&mut self);

    /// Waits until what was written needs this process no longer. The system sends on what it has accepted.
    fn poll_delivered(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// Returns a number that changes as the peer reads, for those streams whose delivery is to be awaited.
    fn progress(&self) -> u64 {
        0
    }
}

/// Octets that are read and dropped at once.
const DROPPED_ROOM: usize = 16 * 1024;

/// The end of a byte stream that has been shut down: what was written is delivered, and what the peer still sends is dropped.
/// Unread octets would make the system reset the connection and drop what is on its way.
pub(crate) struct Ending {
    /// Until all is delivered.
    drain: Option<Drain>,
    peer_ended: bool,
    alarm: Alarm,
}

impl Ending {
    /// To be called within a runtime.
    pub(crate) fn new(drain: Drain) -> Ending {
        Ending { drain: Some(drain), peer_ended: false, alarm: Alarm::new() }
    }

    /// Waits until everything is delivered and the peer's direction has ended, or for [`LINGER`] after the former. A byte stream
    /// whose peer does not read, or whose room others need, is aborted.
    pub(crate) fn poll(&mut self, io: &mut dyn ByteStream, cx: &mut Context<'_>) -> Poll<()> {
        let mut octets = [0; DROPPED_ROOM];
        while !self.peer_ended {
            let mut buffer = ReadBuf::new(&mut octets);
            match Pin::new(&mut *io).poll_read(cx, &mut buffer) {
                Poll::Pending => break,
                Poll::Ready(read) => self.peer_ended = read.is_err() || buffer.filled().is_empty(),
            }
        }
        if self.drain.is_some() && io.poll_delivered(cx).is_ready() {
            self.drain = None;
            self.alarm.set(Some(Instant::now() + LINGER), cx);
        }
        let Some(drain) = &mut self.drain else {
            return if self.peer_ended { Poll::Ready(()) } else { self.alarm.poll(cx) };
        };
        ready!(drain.poll((io.progress(), 0), cx));
        io.abort();
        Poll::Ready(())
    }
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
    connection: quinn::Connection,
    /// Waits until the peer has acknowledged everything or wants no more of it.
    delivered: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

impl QuicStream {
    pub(crate) fn new(
        send: quinn::SendStream,
        receive: quinn::RecvStream,
        priority: Arc<AtomicI32>,
        connection: quinn::Connection,
    ) -> QuicStream {
        QuicStream { send, receive, priority, set: 0, connection, delivered: None }
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

    /// When the connection is closed, QUIC drops what is not acknowledged.
    fn poll_delivered(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let send = &self.send;
        let delivered = self.delivered.get_or_insert_with(|| {
            let stopped = send.stopped();
            Box::pin(async move { drop(stopped.await) })
        });
        delivered.as_mut().poll(cx)
    }

    fn progress(&self) -> u64 {
        // A peer that reads opens its windows (RFC 9000 section 4.2).
        let received = self.connection.stats().frame_rx;
        received.max_stream_data + received.max_data
    }
}
