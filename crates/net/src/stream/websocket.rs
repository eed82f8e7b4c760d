//! Moving messages over a WebSocket (RFC 7118 section 5): one message a WebSocket message, text or
//! binary.

use super::drive::{Broken, Carrier};
use super::queue::WriteQueue;
use super::unread::Unread;
use crate::handler::{CloseReason, Handler};
use crate::hub::Hub;
use futures_util::{Sink, Stream};
use ringway_sansio::FlowId;
use ringway_sip::Malformed;
use ringway_sip::limits::MAX_MESSAGE;
use ringway_sip::message::Got;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Bytes, Error, Message, Utf8Bytes};

/// A stream that counts what is read from it.
pub(super) struct Metered<S> {
    stream: S,
    read: u64,
}

impl<S> Metered<S> {
    pub(super) fn new(stream: S) -> Self {
        Metered { stream, read: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.read += (buffer.filled().len() - before) as u64;
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A WebSocket and how far its messages have come.
pub(super) struct Socket<S> {
    socket: WebSocketStream<Metered<S>>,
    /// How much had been read when the last message was whole.
    taken: u64,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    pub(super) fn new(socket: WebSocketStream<Metered<S>>) -> Self {
        Socket { socket, taken: 0 }
    }

    fn take<H: Handler>(&mut self, id: FlowId, hub: &mut Hub<H>, message: &Message) {
        let now = hub.now;
        self.taken = self.socket.get_ref().read;
        let Some(conn) = hub.conns.get_mut(id) else { return };
        conn.heard = now;
        conn.partial = None;
        let flow = conn.flow;
        let bytes: &[u8] = match message {
            Message::Text(text) => text.as_bytes(),
            Message::Binary(bytes) => bytes,
            Message::Ping(_) | Message::Pong(_) => {
                // The library answers a ping by itself.
                hub.counters.stream_keepalives.add(1);
                return;
            }
            Message::Close(_) | Message::Frame(_) => return,
        };
        if bytes.iter().all(|b| matches!(b, b'\r' | b'\n')) {
            // RFC 7118 section 6: the keep-alive of RFC 5626 may be used here too.
            hub.counters.stream_keepalives.add(1);
            if bytes == b"\r\n\r\n" {
                hub.send_on(&flow, b"\r\n", 0);
            }
            return;
        }
        // One frame, one message: whatever is wrong with it says nothing of the next.
        if bytes.len() > MAX_MESSAGE {
            hub.take_malformed(id, &flow, bytes, &too_long(bytes.len()));
        } else {
            hub.take_message(id, &flow, bytes);
        }
        hub.flush();
    }

    /// Bytes came that made no whole message: the clock of its slowness runs.
    fn note_partial<H: Handler>(&mut self, id: FlowId, hub: &mut Hub<H>) {
        let begun = self.socket.get_ref().read > self.taken;
        let now = hub.now;
        if let Some(conn) = hub.conns.get_mut(id)
            && begun
            && conn.partial.is_none()
        {
            conn.partial = Some(now);
            hub.watch(id);
        }
    }
}

/// The fault of a message that is longer than any may be.
pub(super) fn too_long(octets: usize) -> Malformed {
    let got = Got::Number(octets as u64);
    Malformed::with_status(513, "message: expected fewer octets", got, 0)
}

/// Why reading failed.
fn fault(error: &Error) -> CloseReason {
    tracing::debug!(%error, "WebSocket failed");
    match error {
        Error::ConnectionClosed | Error::AlreadyClosed => CloseReason::Peer,
        Error::Capacity(_) | Error::Protocol(_) | Error::Utf8(_) => CloseReason::Malformed,
        _ => CloseReason::Broken,
    }
}

impl<S: AsyncRead + AsyncWrite + Unread + Unpin> Carrier for Socket<S> {
    const TURN: usize = 16;

    fn poll_write(
        &mut self,
        queue: &mut WriteQueue,
        cx: &mut Context<'_>,
    ) -> Poll<Result<u64, Broken>> {
        let mut socket = Pin::new(&mut self.socket);
        if ready!(socket.as_mut().poll_ready(cx)).is_err() {
            return Poll::Ready(Err(Broken));
        }
        let Some(bytes) = queue.message() else { return Poll::Ready(Ok(0)) };
        let bytes = Bytes::copy_from_slice(bytes);
        let length = bytes.len();
        // Text where the message is text, as browsers expect; a body may be anything.
        let message = match Utf8Bytes::try_from(bytes.clone()) {
            Ok(text) => Message::Text(text),
            Err(_) => Message::Binary(bytes),
        };
        let sent = socket.start_send(message);
        Poll::Ready(sent.map(|()| queue.written(length)).map_err(|_| Broken))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Pin::new(&mut self.socket).poll_flush(cx).map_err(|_| Broken)
    }

    fn poll_read<H: Handler>(
        &mut self,
        id: FlowId,
        hub: &mut Hub<H>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), CloseReason>> {
        match Pin::new(&mut self.socket).poll_next(cx) {
            Poll::Pending => {
                self.note_partial(id, hub);
                Poll::Pending
            }
            Poll::Ready(None) => Poll::Ready(Err(CloseReason::Peer)),
            Poll::Ready(Some(Err(error))) => Poll::Ready(Err(fault(&error))),
            Poll::Ready(Some(Ok(message))) => {
                hub.waiting.streams.took(message.len(), 1);
                self.take(id, hub, &message);
                Poll::Ready(Ok(()))
            }
        }
    }

    /// There is no telling what the message would have been: nothing to answer.
    fn too_slow<H: Handler>(&mut self, _: FlowId, _: &mut Hub<H>) {}

    /// The closing handshake (RFC 6455 section 7).
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Pin::new(&mut self.socket).poll_close(cx).map_err(|_| Broken)
    }

    fn unread(&self) -> usize {
        self.socket.get_ref().stream.unread()
    }

    fn poll_discard(&mut self, _: &mut [u8], cx: &mut Context<'_>) -> Poll<bool> {
        Pin::new(&mut self.socket).poll_next(cx).map(|next| matches!(next, Some(Ok(_))))
    }
}
