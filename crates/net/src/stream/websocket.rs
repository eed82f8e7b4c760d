//! Moving messages over a WebSocket (RFC 7118 section 5): one message a WebSocket message, text or
//! binary.

use super::unread::Unread;
use futures_util::{Sink, Stream};
use ringway_flow::{Broken, Carrier, Flows, Pipes, WriteQueue};
use ringway_sansio::{CloseReason, FlowId, Program, Time};
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Bytes, Error, Message, Utf8Bytes};

/// Bytes read from a connection at once.
const PORTION: usize = 4_096;

/// A stream that counts what is read from it, and reads ahead. What is ahead has memory only while there is
/// some, so that the WebSocket above it needs no buffer to speak of.
pub(super) struct Metered<S> {
    stream: S,
    /// Number of bytes passed up.
    read: u64,
    /// Bytes that were read and not passed up, from `at` on.
    ahead: Vec<u8>,
    at: usize,
}

impl<S> Metered<S> {
    pub(super) fn new(stream: S) -> Self {
        Metered { stream, read: 0, ahead: Vec::new(), at: 0 }
    }

    /// Passes up as much as fits of what is ahead.
    fn pass_up(&mut self, buffer: &mut ReadBuf<'_>) {
        let rest = &self.ahead[self.at..];
        let count = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..count]);
        self.at += count;
        if self.at == self.ahead.len() {
            (self.ahead, self.at) = (Vec::new(), 0);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        if self.ahead.is_empty() {
            let mut room = [MaybeUninit::uninit(); PORTION];
            let mut portion = ReadBuf::uninit(&mut room);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut portion))?;
            let bytes = portion.filled();
            let (first, rest) = bytes.split_at(bytes.len().min(buffer.remaining()));
            buffer.put_slice(first);
            self.ahead = rest.to_vec();
        } else {
            self.pass_up(buffer);
        }
        self.read += (buffer.filled().len() - before) as u64;
        Poll::Ready(Ok(()))
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

    fn take<P: Program, W: Pipes>(
        &mut self,
        now: Time,
        id: FlowId,
        flows: &mut Flows<P, W>,
        message: &Message,
    ) {
        self.taken = self.socket.get_ref().read;
        match message {
            Message::Text(text) => flows.receive_message(now, id, text.as_bytes()),
            Message::Binary(bytes) => flows.receive_message(now, id, bytes),
            // The library answers a ping by itself.
            Message::Ping(_) | Message::Pong(_) => flows.receive_keep_alive(now, id),
            Message::Close(_) | Message::Frame(_) => {}
        }
    }
}

/// Returns the reason for which reading failed.
fn fault(error: &Error) -> CloseReason {
    tracing::debug!(%error, "WebSocket failed");
    match error {
        Error::ConnectionClosed | Error::AlreadyClosed => CloseReason::Peer,
        Error::Capacity(_) | Error::Protocol(_) | Error::Utf8(_) => CloseReason::Malformed,
        _ => CloseReason::Broken,
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Carrier<Context<'_>> for Socket<S> {
    const TURN: usize = 16;

    fn poll_write(
        &mut self,
        _: Time,
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

    fn poll_flush(&mut self, _: Time, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Pin::new(&mut self.socket).poll_flush(cx).map_err(|_| Broken)
    }

    fn poll_read<P: Program, W: Pipes>(
        &mut self,
        now: Time,
        id: FlowId,
        flows: &mut Flows<P, W>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), CloseReason>> {
        match Pin::new(&mut self.socket).poll_next(cx) {
            Poll::Pending => {
                if self.socket.get_ref().read > self.taken {
                    flows.note_partial(now, id);
                }
                Poll::Pending
            }
            Poll::Ready(None) => Poll::Ready(Err(CloseReason::Peer)),
            Poll::Ready(Some(Err(error))) => Poll::Ready(Err(fault(&error))),
            Poll::Ready(Some(Ok(message))) => {
                flows.note_read(message.len(), 1);
                self.take(now, id, flows, &message);
                Poll::Ready(Ok(()))
            }
        }
    }

    /// The closing handshake (RFC 6455 section 7).
    fn poll_close(&mut self, _: Time, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Pin::new(&mut self.socket).poll_close(cx).map_err(|_| Broken)
    }

    fn poll_discard(&mut self, _: Time, cx: &mut Context<'_>) -> Poll<bool> {
        Pin::new(&mut self.socket).poll_next(cx).map(|next| matches!(next, Some(Ok(_))))
    }
}

impl<S: AsyncRead + AsyncWrite + Unread + Unpin> Unread for Socket<S> {
    fn unread(&self) -> usize {
        self.socket.get_ref().stream.unread()
    }
}
