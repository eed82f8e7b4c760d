//! What every connection does, whatever carries its messages: writes what is queued, hands up what
//! comes, and ends in order.

use super::SharedHub;
use super::queue::WriteQueue;
use crate::handler::{CloseReason, Handler};
use crate::hub::Hub;
use ringway_sansio::{FlowId, Time};
use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// A turn shorter than this leaves nothing worth asking for.
const LONG_TURN: Duration = Duration::from_micros(100);

/// The connection can carry nothing more.
#[derive(Debug)]
pub(super) struct Broken;

/// One connection's way of carrying messages.
pub(super) trait Carrier {
    /// Portions read before other connections get their turn.
    const TURN: usize;

    /// Takes the next portion of `queue`, which is not empty. Gives how many messages are whole with it.
    fn poll_write(
        &mut self,
        queue: &mut WriteQueue,
        cx: &mut Context<'_>,
    ) -> Poll<Result<u64, Broken>>;

    /// Sees what was taken on its way.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>>;

    /// Reads one portion and hands up the messages that are whole with it.
    fn poll_read<H: Handler>(
        &mut self,
        id: FlowId,
        hub: &mut Hub<H>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), CloseReason>>;

    /// A message did not come to its end in time: answers it, if it can be answered.
    fn too_slow<H: Handler>(&mut self, id: FlowId, hub: &mut Hub<H>);

    /// Closes our side, after all that was written.
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>>;

    /// Octets that have come and are not read yet.
    fn unread(&self) -> usize;

    /// Reads one portion into `room` and forgets it. Tells whether there may be more.
    fn poll_discard(&mut self, room: &mut [u8], cx: &mut Context<'_>) -> Poll<bool>;
}

/// Moves messages both ways until the connection ends; gives the reason.
pub(super) async fn drive<H: Handler, C: Carrier>(
    hub: &SharedHub<H>,
    id: FlowId,
    carrier: C,
) -> CloseReason {
    let mut driver = Driver { id, carrier, closed: false };
    poll_fn(|cx| driver.poll(&mut hub.borrow_mut(), cx)).await
}

struct Driver<C> {
    id: FlowId,
    carrier: C,
    /// Whether our side is closed for writing.
    closed: bool,
}

impl<C: Carrier> Driver<C> {
    fn poll<H: Handler>(&mut self, hub: &mut Hub<H>, cx: &mut Context<'_>) -> Poll<CloseReason> {
        let began = hub.tick();
        for _ in 0..C::TURN {
            let Some(conn) = hub.conns.get_mut(self.id) else {
                return Poll::Ready(CloseReason::Broken);
            };
            conn.listen(cx);
            if std::mem::take(&mut conn.overdue) {
                self.give_up(hub);
            }
            let written = self.write(hub, cx);
            let Some(conn) = hub.conns.get_mut(self.id) else {
                return Poll::Ready(CloseReason::Broken);
            };
            match (written, &conn.ending) {
                (Err(Broken), _) => return Poll::Ready(CloseReason::Broken),
                (Ok(_), Some(ending)) if ending.flush_until.is_none() => {
                    return Poll::Ready(ending.reason);
                }
                (Ok(done), Some(ending)) => {
                    let reason = ending.reason;
                    return self.poll_end(done, hub, cx).map(|()| reason);
                }
                (Ok(_), None) => {}
            }
            match self.carrier.poll_read(self.id, hub, cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(reason)) => return Poll::Ready(reason),
                Poll::Pending => {
                    self.note_unread(began, hub);
                    return Poll::Pending;
                }
            }
        }
        self.note_unread(began, hub);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// After a turn: tells what has come since it was read, if the turn was long enough for that to
    /// matter.
    fn note_unread<H: Handler>(&mut self, began: Time, hub: &mut Hub<H>) {
        let long = hub.tick().since(began) >= LONG_TURN;
        hub.note_unread(self.id, if long { self.carrier.unread() } else { 0 });
    }

    /// A message took too long to come: the connection ends.
    fn give_up<H: Handler>(&mut self, hub: &mut Hub<H>) {
        self.carrier.too_slow(self.id, hub);
        let now = hub.now;
        if let Some(conn) = hub.conns.get_mut(self.id) {
            conn.end_flushed(now, CloseReason::Slow);
        }
        hub.watch(self.id);
    }

    /// Writes what is queued, as much as the peer takes. Tells whether all is on its way.
    fn write<H: Handler>(
        &mut self,
        hub: &mut Hub<H>,
        cx: &mut Context<'_>,
    ) -> Result<bool, Broken> {
        let now = hub.now;
        let Some(conn) = hub.conns.get_mut(self.id) else { return Ok(true) };
        let mut progress = false;
        let mut blocked = false;
        while !conn.queue.is_empty() && !blocked {
            match self.carrier.poll_write(&mut conn.queue, cx) {
                Poll::Ready(messages) => {
                    progress = true;
                    hub.counters.stream_sent.add(messages?);
                }
                Poll::Pending => blocked = true,
            }
        }
        match self.carrier.poll_flush(cx) {
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
        if !self.closed {
            if ready!(self.carrier.poll_close(cx)).is_err() {
                return Poll::Ready(());
            }
            self.closed = true;
            hub.linger(self.id);
        }
        for _ in 0..C::TURN {
            if !ready!(self.carrier.poll_discard(&mut hub.read_buffer, cx)) {
                return Poll::Ready(());
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
