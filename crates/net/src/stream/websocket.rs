//! Moving messages over a WebSocket (RFC 7118 section 5): one message a WebSocket message, text or
//! binary.

use super::SharedHub;
use crate::handler::{CloseReason, Handler};
use crate::hub::Hub;
use futures_util::{Sink, Stream};
use ringway_sansio::FlowId;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Bytes, Error, Message, Utf8Bytes};

/// Messages taken from one connection before others get their turn.
const MESSAGES_A_TURN: usize = 16;

/// Moves messages both ways until the connection ends; gives the reason.
pub(super) async fn drive<H: Handler, S: AsyncRead + AsyncWrite + Unpin>(
    hub: &SharedHub<H>,
    id: FlowId,
    socket: WebSocketStream<Metered<S>>,
) -> CloseReason {
    let mut driver = Driver { id, socket, closing: false, taken: 0 };
    poll_fn(|cx| driver.poll(hub, cx)).await
}

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

struct Driver<S> {
    id: FlowId,
    socket: WebSocketStream<Metered<S>>,
    /// Whether the closing handshake has begun from our side.
    closing: bool,
    /// How much had been read when the last message was whole.
    taken: u64,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Driver<S> {
    fn poll<H: Handler>(&mut self, hub: &SharedHub<H>, cx: &mut Context<'_>) -> Poll<CloseReason> {
        let mut hub = hub.borrow_mut();
        let hub = &mut *hub;
        hub.tick();
        for _ in 0..MESSAGES_A_TURN {
            let Some(conn) = hub.conns.get_mut(self.id) else {
                return Poll::Ready(CloseReason::Broken);
            };
            conn.listen(cx);
            if std::mem::take(&mut conn.overdue) {
                // There is no telling what the message would have been: nothing to answer.
                conn.end_flushed(hub.now, CloseReason::Slow);
                hub.watch(self.id);
            }
            let written = self.write(hub, cx);
            let Some(conn) = hub.conns.get_mut(self.id) else {
                return Poll::Ready(CloseReason::Broken);
            };
            match (written, &conn.ending) {
                (Err(_), _) => return Poll::Ready(CloseReason::Broken),
                (Ok(_), Some(ending)) if ending.flush_until.is_none() => {
                    return Poll::Ready(ending.reason);
                }
                (Ok(done), Some(ending)) => {
                    let reason = ending.reason;
                    return self.poll_end(done, hub, cx).map(|()| reason);
                }
                (Ok(_), None) => {}
            }
            match Pin::new(&mut self.socket).poll_next(cx) {
                Poll::Pending => {
                    self.note_partial(hub);
                    return Poll::Pending;
                }
                Poll::Ready(None) => return Poll::Ready(CloseReason::Peer),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Self::fault(&error)),
                Poll::Ready(Some(Ok(message))) => self.take(hub, &message),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn take<H: Handler>(&mut self, hub: &mut Hub<H>, message: &Message) {
        let now = hub.now;
        self.taken = self.socket.get_ref().read;
        let Some(conn) = hub.conns.get_mut(self.id) else { return };
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
        hub.counters.stream_received.add(1);
        hub.proven(self.id);
        hub.handler.message(now, &flow, bytes, &mut hub.outbox);
        hub.flush();
    }

    /// Bytes came that made no whole message: the clock of its slowness runs.
    fn note_partial<H: Handler>(&mut self, hub: &mut Hub<H>) {
        let begun = self.socket.get_ref().read > self.taken;
        let now = hub.now;
        if let Some(conn) = hub.conns.get_mut(self.id)
            && begun
            && conn.partial.is_none()
        {
            conn.partial = Some(now);
            hub.watch(self.id);
        }
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

    /// Writes what is queued, as much as the peer takes. Tells whether all is on its way.
    fn write<H: Handler>(&mut self, hub: &mut Hub<H>, cx: &mut Context<'_>) -> Result<bool, Error> {
        let now = hub.now;
        let Some(conn) = hub.conns.get_mut(self.id) else { return Ok(true) };
        let mut socket = Pin::new(&mut self.socket);
        let mut progress = false;
        let mut blocked = false;
        while let Some(bytes) = conn.queue.message() {
            match socket.as_mut().poll_ready(cx) {
                Poll::Ready(result) => result?,
                Poll::Pending => {
                    blocked = true;
                    break;
                }
            }
            let bytes = Bytes::copy_from_slice(bytes);
            let length = bytes.len();
            // Text where the message is text, as browsers expect; a body may be anything.
            let message = match Utf8Bytes::try_from(bytes.clone()) {
                Ok(text) => Message::Text(text),
                Err(_) => Message::Binary(bytes),
            };
            socket.as_mut().start_send(message)?;
            progress = true;
            hub.counters.stream_sent.add(conn.queue.written(length));
        }
        match socket.poll_flush(cx) {
            Poll::Ready(result) => result?,
            Poll::Pending => blocked = true,
        }
        if !blocked {
            conn.stalled = None;
        } else if progress || conn.stalled.is_none() {
            conn.stalled = Some(now);
            hub.watch(self.id);
        }
        Ok(!blocked)
    }

    /// Once all is written: the closing handshake (RFC 6455 section 7), within the connection's
    /// deadline.
    fn poll_end<H: Handler>(
        &mut self,
        written: bool,
        hub: &mut Hub<H>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if !written {
            return Poll::Pending;
        }
        if !self.closing {
            match Pin::new(&mut self.socket).poll_close(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(())) => {
                    self.closing = true;
                    hub.linger(self.id);
                }
            }
        }
        for _ in 0..MESSAGES_A_TURN {
            match Pin::new(&mut self.socket).poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(_) => return Poll::Ready(()),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
