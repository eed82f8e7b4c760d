//! Messages over TCP and TLS, framed by Content-Length (RFC 3261 section 18.3), with the keep-alive of
//! RFC 5626 section 4.4.1.

use super::drive::{Broken, Carrier};
use super::queue::WriteQueue;
use super::unread::Unread;
use crate::handler::{CloseReason, Handler};
use crate::hub::Hub;
use ringway_sansio::FlowId;
use ringway_sip::Malformed;
use ringway_sip::framing::{self, Frame, Framer};
use ringway_sip::message::Got;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The answer to a double CRLF (RFC 5626 section 4.4.1).
const PONG: &[u8] = b"\r\n";

/// A stream of bytes and what has come of the next message.
pub(super) struct Framed<S> {
    stream: S,
    framer: Framer,
}

impl<S> Framed<S> {
    pub(super) fn new(stream: S) -> Self {
        Framed { stream, framer: Framer::new() }
    }

    /// Hands up every whole message that has come, and tells how many.
    fn take_frames<H: Handler>(&mut self, id: FlowId, hub: &mut Hub<H>) -> usize {
        let now = hub.now;
        let Handed { messages, broken } = hand_up(&mut self.framer, id, hub, |_| {});
        let partial = self.framer.is_within_message();
        let Some(conn) = hub.conns.get_mut(id) else { return messages };
        if broken {
            conn.end_flushed(now, CloseReason::Malformed);
            conn.partial = None;
        } else if !partial {
            conn.partial = None;
            return messages;
        } else if messages > 0 || conn.partial.is_none() {
            conn.partial = Some(now);
        }
        hub.watch(id);
        messages
    }
}

/// What was handed up.
pub(super) struct Handed {
    pub(super) messages: usize,
    /// No more is taken of what comes: it cannot be framed, or too much of it is malformed.
    pub(super) broken: bool,
}

/// Hands up every whole message that has come, each shown to `see` first.
pub(super) fn hand_up<H: Handler>(
    framer: &mut Framer,
    id: FlowId,
    hub: &mut Hub<H>,
    mut see: impl FnMut(&[u8]),
) -> Handed {
    let now = hub.now;
    let mut handed = Handed { messages: 0, broken: false };
    let Some(conn) = hub.conns.get_mut(id) else { return handed };
    let flow = conn.flow;
    conn.heard = now;
    let mut usable = 0;
    while let Some(frame) = framer.next() {
        match frame {
            Ok(Frame::Message(bytes)) => {
                usable += 1;
                see(bytes);
                hub.handler.message(now, &flow, bytes, &mut hub.outbox);
            }
            Ok(Frame::Malformed(head, fault)) => {
                handed.messages += 1;
                if !hub.take_malformed(id, &flow, head, &fault) {
                    handed.broken = true;
                    break;
                }
            }
            Ok(Frame::Ping) => {
                hub.counters.stream_keepalives.add(1);
                hub.send_on(&flow, PONG, 0);
            }
            Ok(Frame::Pong) => hub.counters.stream_keepalives.add(1),
            Err(error) => {
                let head = framer.broken_head();
                let answerable = framing::answerable(head);
                let head = answerable.as_deref().unwrap_or(head);
                hub.handler.malformed(now, &flow, head, &error, &mut hub.outbox);
                handed.broken = true;
                break;
            }
        }
    }
    if usable > 0 {
        handed.messages += usable;
        hub.counters.stream_received.add(usable as u64);
        hub.proven(id);
    }
    hub.flush();
    handed
}

/// Answers a message that did not come to its end in time.
pub(super) fn refuse_slow<H: Handler>(framer: &mut Framer, id: FlowId, hub: &mut Hub<H>) {
    let now = hub.now;
    let Some(flow) = hub.conns.get_mut(id).map(|c| c.flow) else { return };
    let head: &[u8] = framer.buffer();
    let fault = Malformed::with_status(408, "Request Timeout", Got::End, head.len());
    hub.handler.malformed(now, &flow, head, &fault, &mut hub.outbox);
    hub.flush();
}

impl<S: AsyncRead + AsyncWrite + Unread + Unpin> Carrier for Framed<S> {
    /// One: what a full portion brings must find room in the queues of connections that have their turn
    /// only later.
    const TURN: usize = 1;

    fn poll_write(
        &mut self,
        queue: &mut WriteQueue,
        cx: &mut Context<'_>,
    ) -> Poll<Result<u64, Broken>> {
        Pin::new(&mut self.stream).poll_write(cx, queue.bytes()).map(|written| match written {
            Ok(0) | Err(_) => Err(Broken),
            Ok(n) => Ok(queue.written(n)),
        })
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Pin::new(&mut self.stream).poll_flush(cx).map_err(|_| Broken)
    }

    fn poll_read<H: Handler>(
        &mut self,
        id: FlowId,
        hub: &mut Hub<H>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), CloseReason>> {
        let mut buffer = ReadBuf::new(&mut hub.read_buffer);
        if ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer)).is_err() {
            return Poll::Ready(Err(CloseReason::Broken));
        }
        if buffer.filled().is_empty() {
            return Poll::Ready(Err(CloseReason::Peer));
        }
        let octets = buffer.filled().len();
        self.framer.extend(buffer.filled());
        let messages = self.take_frames(id, hub);
        hub.waiting.streams.took(octets, messages);
        Poll::Ready(Ok(()))
    }

    fn too_slow<H: Handler>(&mut self, id: FlowId, hub: &mut Hub<H>) {
        refuse_slow(&mut self.framer, id, hub);
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Pin::new(&mut self.stream).poll_shutdown(cx).map_err(|_| Broken)
    }

    fn unread(&self) -> usize {
        self.stream.unread()
    }

    fn poll_discard(&mut self, room: &mut [u8], cx: &mut Context<'_>) -> Poll<bool> {
        let mut buffer = ReadBuf::new(room);
        Pin::new(&mut self.stream)
            .poll_read(cx, &mut buffer)
            .map(|result| result.is_ok() && !buffer.filled().is_empty())
    }
}
