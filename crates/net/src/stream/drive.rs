//! Moving messages over TCP and TLS (RFC 3261 section 18.3, RFC 5626 section 4.4.1).

use super::SharedHub;
use crate::handler::{CloseReason, Handler};
use crate::hub::Hub;
use ringway_sansio::FlowId;
use ringway_sip::Malformed;
use ringway_sip::framing::{Frame, Framer};
use ringway_sip::message::Got;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Reads from one connection before others get their turn.
const READS_A_TURN: usize = 4;

/// The answer to a double CRLF (RFC 5626 section 4.4.1).
const PONG: &[u8] = b"\r\n";

/// Moves messages both ways until the connection ends; gives the reason.
pub(super) async fn drive<H: Handler, S: AsyncRead + AsyncWrite + Unpin>(
    hub: &SharedHub<H>,
    id: FlowId,
    stream: S,
) -> CloseReason {
    let mut driver = Driver { id, stream, framer: Framer::new(), shut: false };
    poll_fn(|cx| driver.poll(hub, cx)).await
}

struct Driver<S> {
    id: FlowId,
    stream: S,
    framer: Framer,
    /// Whether our side is closed for writing.
    shut: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Driver<S> {
    fn poll<H: Handler>(&mut self, hub: &SharedHub<H>, cx: &mut Context<'_>) -> Poll<CloseReason> {
        let mut hub = hub.borrow_mut();
        let hub = &mut *hub;
        hub.tick();
        for _ in 0..READS_A_TURN {
            let Some(conn) = hub.conns.get_mut(self.id) else {
                return Poll::Ready(CloseReason::Broken);
            };
            conn.listen(cx);
            if std::mem::take(&mut conn.overdue) {
                self.too_slow(hub);
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
            let mut buffer = ReadBuf::new(&mut hub.read_buffer);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(CloseReason::Broken),
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => {
                    return Poll::Ready(CloseReason::Peer);
                }
                Poll::Ready(Ok(())) => {
                    self.framer.extend(buffer.filled());
                    self.take_frames(hub);
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Hands up every whole message that has come.
    fn take_frames<H: Handler>(&mut self, hub: &mut Hub<H>) {
        let now = hub.now;
        let Some(conn) = hub.conns.get_mut(self.id) else { return };
        let flow = conn.flow;
        conn.heard = now;
        let mut messages = 0;
        let mut broken = false;
        while let Some(frame) = self.framer.next() {
            match frame {
                Ok(Frame::Message(bytes)) => {
                    messages += 1;
                    hub.handler.message(now, &flow, bytes, &mut hub.outbox);
                }
                Ok(Frame::Ping) => {
                    hub.counters.stream_keepalives.add(1);
                    hub.send_on(&flow, PONG, 0);
                }
                Ok(Frame::Pong) => hub.counters.stream_keepalives.add(1),
                Err(error) => {
                    let head = self.framer.broken_head();
                    hub.handler.malformed(now, &flow, head, &error, &mut hub.outbox);
                    broken = true;
                    break;
                }
            }
        }
        if messages > 0 {
            hub.counters.stream_received.add(messages);
            hub.proven(self.id);
        }
        hub.flush();
        let partial = self.framer.is_within_message();
        let Some(conn) = hub.conns.get_mut(self.id) else { return };
        if broken {
            conn.end_flushed(now, CloseReason::Malformed);
            conn.partial = None;
        } else if !partial {
            conn.partial = None;
            return;
        } else if messages > 0 || conn.partial.is_none() {
            conn.partial = Some(now);
        }
        hub.watch(self.id);
    }

    /// A message did not come to its end in time: it is answered, if it can be, and given up.
    fn too_slow<H: Handler>(&mut self, hub: &mut Hub<H>) {
        let now = hub.now;
        let Some(flow) = hub.conns.get_mut(self.id).map(|c| c.flow) else { return };
        let head: &[u8] = self.framer.buffer();
        let fault = Malformed::with_status(408, "Request Timeout", Got::End, head.len());
        hub.handler.malformed(now, &flow, head, &fault, &mut hub.outbox);
        hub.flush();
        if let Some(conn) = hub.conns.get_mut(self.id) {
            conn.end_flushed(now, CloseReason::Slow);
        }
        hub.watch(self.id);
    }

    /// Writes what is queued, as much as the peer takes. Tells whether all is on its way.
    fn write<H: Handler>(&mut self, hub: &mut Hub<H>, cx: &mut Context<'_>) -> io::Result<bool> {
        let now = hub.now;
        let Some(conn) = hub.conns.get_mut(self.id) else { return Ok(true) };
        let mut progress = false;
        let mut blocked = false;
        while !conn.queue.is_empty() && !blocked {
            match Pin::new(&mut self.stream).poll_write(cx, conn.queue.bytes()) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(n)) => {
                    progress = true;
                    hub.counters.stream_sent.add(conn.queue.written(n));
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => blocked = true,
            }
        }
        match Pin::new(&mut self.stream).poll_flush(cx) {
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

    /// Once all is written: closes our side, then reads on until the peer closes its own, because
    /// closing a socket with unread bytes would take our last answer back from the peer (RFC 1122
    /// section 4.2.2.13). The connection's deadline bounds this.
    fn poll_end<H: Handler>(
        &mut self,
        written: bool,
        hub: &mut Hub<H>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if !written {
            return Poll::Pending;
        }
        if !self.shut {
            match Pin::new(&mut self.stream).poll_shutdown(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(())) => {
                    self.shut = true;
                    hub.linger(self.id);
                }
            }
        }
        for _ in 0..READS_A_TURN {
            let mut buffer = ReadBuf::new(&mut hub.read_buffer);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(()),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
