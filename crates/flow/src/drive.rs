//! What the owner of every connection does, whatever carries its messages: writes what is queued, hands up
//! what comes, and ends in order.

use crate::flows::Flows;
use crate::pipes::Pipes;
use crate::queue::WriteQueue;
use ringway_sansio::{CloseReason, FlowId, Program, Time};
use std::task::{Poll, ready};

/// The connection can carry nothing more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken;

/// One connection's way of carrying messages. `C` is what its world needs to move bytes: the context of a
/// task, or the protocol that runs in virtual time. Where a method returns [`Poll::Pending`], the world calls
/// [`Driver::turn`] again when that may have changed.
pub trait Carrier<C: ?Sized> {
    /// Maximum number of portions read before other connections get their turn.
    const TURN: usize;

    /// Takes the next portion of `queue`, which is not empty. Returns how many messages ended with it.
    fn poll_write(
        &mut self,
        now: Time,
        queue: &mut WriteQueue,
        cx: &mut C,
    ) -> Poll<Result<u64, Broken>>;

    /// Moves what was taken further on its way. Ready once all of it is.
    fn poll_flush(&mut self, now: Time, cx: &mut C) -> Poll<Result<(), Broken>>;

    /// Reads one portion and hands up the messages that are whole with it.
    fn poll_read<P: Program, W: Pipes>(
        &mut self,
        now: Time,
        id: FlowId,
        flows: &mut Flows<P, W>,
        cx: &mut C,
    ) -> Poll<Result<(), CloseReason>>;

    /// Has a message answered that did not come to its end in time, if it can be answered.
    fn refuse_slow<P: Program, W: Pipes>(
        &mut self,
        now: Time,
        id: FlowId,
        flows: &mut Flows<P, W>,
    ) {
        let _ = (now, id, flows);
    }

    /// Closes our side, after all that was written.
    fn poll_close(&mut self, now: Time, cx: &mut C) -> Poll<Result<(), Broken>>;

    /// Reads one portion and drops it. Returns whether there may be more.
    fn poll_discard(&mut self, now: Time, cx: &mut C) -> Poll<bool>;
}

/// What the owner of a connection does after a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Waits until something happens.
    Wait,
    /// Lets others have their turn, and continues.
    More,
    /// Closes the connection, for this reason.
    Over(CloseReason),
}

/// Moves the messages of one connection both ways.
#[derive(Debug)]
pub struct Driver<T> {
    id: FlowId,
    carrier: T,
    /// Whether our side is closed for writing.
    closed: bool,
}

impl<T> Driver<T> {
    /// Returns the driver of a connection that carries messages.
    pub fn new(id: FlowId, carrier: T) -> Self {
        Driver { id, carrier, closed: false }
    }

    /// Returns the connection that it drives.
    pub fn id(&self) -> FlowId {
        self.id
    }

    /// Returns the carrier.
    pub fn carrier(&self) -> &T {
        &self.carrier
    }

    /// Returns the carrier.
    pub fn carrier_mut(&mut self) -> &mut T {
        &mut self.carrier
    }

    /// Moves messages both ways until the connection waits, has had its turn, or is over.
    pub fn turn<P, W, C>(&mut self, now: Time, flows: &mut Flows<P, W>, cx: &mut C) -> Turn
    where
        P: Program,
        W: Pipes,
        C: ?Sized,
        T: Carrier<C>,
    {
        for _ in 0..T::TURN {
            if flows.take_overdue(self.id) {
                self.carrier.refuse_slow(now, self.id, flows);
                flows.end_slow(now, self.id);
            }
            let Ok(written) = self.write(now, flows, cx) else {
                return Turn::Over(CloseReason::Broken);
            };
            if let Some(ending) = flows.ending(self.id) {
                if ending.flush_until.is_none() {
                    return Turn::Over(ending.reason);
                }
                return match self.poll_end(now, written, flows, cx) {
                    Poll::Ready(true) => Turn::Over(ending.reason),
                    Poll::Ready(false) => Turn::More,
                    Poll::Pending => Turn::Wait,
                };
            }
            let read = self.carrier.poll_read(now, self.id, flows, cx);
            flows.flush(now);
            match read {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(reason)) => return Turn::Over(reason),
                Poll::Pending => return Turn::Wait,
            }
        }
        Turn::More
    }

    /// Writes what is queued on a connection that is being opened, for transports that carry messages with their
    /// handshake.
    pub fn write_early<P, W, C>(
        &mut self,
        now: Time,
        flows: &mut Flows<P, W>,
        cx: &mut C,
    ) -> Result<(), Broken>
    where
        P: Program,
        W: Pipes,
        C: ?Sized,
        T: Carrier<C>,
    {
        self.write(now, flows, cx).map(|_| ())
    }

    /// Writes what is queued, as much as the peer takes. Returns whether all is on its way.
    fn write<P, W, C>(
        &mut self,
        now: Time,
        flows: &mut Flows<P, W>,
        cx: &mut C,
    ) -> Result<bool, Broken>
    where
        P: Program,
        W: Pipes,
        C: ?Sized,
        T: Carrier<C>,
    {
        let queue = flows.queue_mut(self.id).ok_or(Broken)?;
        let (mut messages, mut progress, mut blocked) = (0, false, false);
        while !queue.is_empty() && !blocked {
            match self.carrier.poll_write(now, queue, cx) {
                Poll::Ready(written) => {
                    progress = true;
                    messages += written?;
                }
                Poll::Pending => blocked = true,
            }
        }
        match self.carrier.poll_flush(now, cx) {
            Poll::Ready(result) => result?,
            Poll::Pending => blocked = true,
        }
        flows.note_written(now, self.id, messages, progress, blocked);
        Ok(!blocked)
    }

    /// Once all is written: closes our side, then reads on until the peer closes its own, because closing a
    /// socket with unread bytes would take our last response back from the peer (RFC 1122 section 4.2.2.13).
    /// The connection's deadline bounds this. Returns whether the peer has closed its side.
    fn poll_end<P, W, C>(
        &mut self,
        now: Time,
        written: bool,
        flows: &mut Flows<P, W>,
        cx: &mut C,
    ) -> Poll<bool>
    where
        P: Program,
        W: Pipes,
        C: ?Sized,
        T: Carrier<C>,
    {
        if !written {
            return Poll::Pending;
        }
        if !self.closed {
            if ready!(self.carrier.poll_close(now, cx)).is_err() {
                return Poll::Ready(true);
            }
            self.closed = true;
            flows.linger(now, self.id);
        }
        for _ in 0..T::TURN {
            if !ready!(self.carrier.poll_discard(now, cx)) {
                return Poll::Ready(true);
            }
        }
        Poll::Ready(false)
    }
}
