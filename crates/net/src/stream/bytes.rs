//! Messages over TCP and TLS, framed by Content-Length (RFC 3261 section 18.3).

use super::unread::Unread;
use ringway_flow::{Broken, ByteStream, Carrier, Flows, Pipes, WriteQueue};
use ringway_sansio::{CloseReason, FlowId, Program, Time};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes read from a connection at once.
const PORTION: usize = 32 * 1024;

/// Bytes dropped at once from a connection that ends.
const DISCARDED: usize = 4 * 1024;

/// A socket and what has come of the next message.
pub(super) struct Framed<S> {
    socket: S,
    stream: ByteStream,
}

impl<S> Framed<S> {
    pub(super) fn new(socket: S) -> Self {
        Framed { socket, stream: ByteStream::new() }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Carrier<Context<'_>> for Framed<S> {
    /// One: what a full portion brings must find room in the queues of connections that have their turn
    /// only later.
    const TURN: usize = 1;

    fn poll_write(
        &mut self,
        _: Time,
        queue: &mut WriteQueue,
        cx: &mut Context<'_>,
    ) -> Poll<Result<u64, Broken>> {
        Pin::new(&mut self.socket).poll_write(cx, queue.bytes()).map(|written| match written {
            Ok(0) | Err(_) => Err(Broken),
            Ok(n) => Ok(queue.written(n)),
        })
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
        let mut room = [MaybeUninit::uninit(); PORTION];
        let mut buffer = ReadBuf::uninit(&mut room);
        if ready!(Pin::new(&mut self.socket).poll_read(cx, &mut buffer)).is_err() {
            return Poll::Ready(Err(CloseReason::Broken));
        }
        let bytes = buffer.filled();
        if bytes.is_empty() {
            return Poll::Ready(Err(CloseReason::Peer));
        }
        let received = flows.receive(now, id, &mut self.stream, bytes, |_| {});
        flows.note_framing(now, id, self.stream.partial(), received.broken);
        flows.note_read(bytes.len(), received.messages);
        Poll::Ready(Ok(()))
    }

    fn refuse_slow<P: Program, W: Pipes>(
        &mut self,
        now: Time,
        id: FlowId,
        flows: &mut Flows<P, W>,
    ) {
        flows.refuse_slow(now, id, &mut self.stream);
    }

    fn poll_close(&mut self, _: Time, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Pin::new(&mut self.socket).poll_shutdown(cx).map_err(|_| Broken)
    }

    fn poll_discard(&mut self, _: Time, cx: &mut Context<'_>) -> Poll<bool> {
        let mut room = [MaybeUninit::uninit(); DISCARDED];
        let mut buffer = ReadBuf::uninit(&mut room);
        Pin::new(&mut self.socket)
            .poll_read(cx, &mut buffer)
            .map(|result| result.is_ok() && !buffer.filled().is_empty())
    }
}

impl<S: Unread> Unread for Framed<S> {
    fn unread(&self) -> usize {
        self.socket.unread()
    }
}
