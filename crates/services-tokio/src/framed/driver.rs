//! The task that moves octets between a framed byte stream and its transport.

use super::{Framed, State};
use crate::alarm::Alarm;
use crate::carrier::Event;
use crate::draining::Drain;
use crate::error::Error;
use crate::io::{ByteStream, Ending};
use ringway_services::framing::{self, StreamId};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// Octets that are taken from the framing at once. Few enough that a message of higher priority does not wait for long.
const WRITE_ROOM: usize = 64 * 1024;
/// Octets that are read at once.
const READ_ROOM: usize = 64 * 1024;
/// Turns of reading and writing until other tasks have theirs.
const MAX_TURNS: usize = 16;

/// What a group learns of its byte stream.
pub(crate) enum Notice {
    /// The peer has opened a stream.
    Opened(StreamId),
    /// The peer permits more streams.
    MoreStreams,
    /// The byte stream has ended.
    Ended,
}

/// Receives the notices.
pub(crate) type Listener = Box<dyn FnMut(Notice) + Send>;

enum Phase {
    Open,
    /// All is written; the end of the byte stream is being sent.
    Ending,
    /// The delivery and the end of the peer's direction are awaited.
    Lingering(Ending),
}

/// The task of a byte stream.
pub(crate) struct Driver {
    framed: Arc<Framed>,
    io: Box<dyn ByteStream>,
    listener: Listener,
    phase: Phase,
    out: Vec<u8>,
    written: usize,
    buffer: Box<[u8]>,
    alarm: Alarm,
    /// The end of a byte stream that is being closed.
    drain: Option<Drain>,
}

impl Driver {
    /// Returns the task. To be called within a runtime.
    pub(crate) fn new(framed: Arc<Framed>, io: Box<dyn ByteStream>, listener: Listener) -> Driver {
        Driver {
            framed,
            io,
            listener,
            phase: Phase::Open,
            out: Vec::with_capacity(WRITE_ROOM),
            written: 0,
            buffer: vec![0; READ_ROOM].into_boxed_slice(),
            alarm: Alarm::new(),
            drain: None,
        }
    }

    /// Takes octets to write from the framing, which takes messages from the queue. Returns whether there are any.
    fn fill(&mut self) -> bool {
        if self.written < self.out.len() {
            return true;
        }
        self.out.clear();
        self.written = 0;
        let now = self.framed.clock.now();
        let mut guard = self.framed.lock();
        let state = &mut *guard;
        for connection in state.outbox.expire(now) {
            let id = state.streams.get(&connection).copied();
            if let Some(slot) = id.and_then(|id| state.slots.get_mut(&id)) {
                slot.events.push(Event::Expired { messages: 1 });
            }
        }
        loop {
            while let Some(next) = state.outbox.next(now, |connection| {
                state.streams.get(&connection).is_some_and(|id| state.mux.is_writable(*id))
            }) {
                let Some(id) = state.streams.get(&next.connection).copied() else { continue };
                // The queue asked whether the stream takes it, under the same lock.
                let _ = state.mux.send(id, next.bytes.into(), next.sending.last);
            }
            state.finish_closing();
            let room = WRITE_ROOM - self.out.len();
            if state.mux.write(&mut self.out, room) == 0 || self.out.len() + 1_024 > WRITE_ROOM {
                break;
            }
        }
        // The framing reports each message that it has written, and what else a write has ended.
        let notices = take_events(state);
        state.unwritten = self.out.len();
        drop(guard);
        notices.into_iter().for_each(&mut self.listener);
        !self.out.is_empty()
    }

    /// Writes what there is. Returns whether something was written.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if !self.fill() {
            return Poll::Pending;
        }
        let octets = &self.out[self.written..];
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, octets)).map_err(Error::lost)?;
        if written == 0 {
            return Poll::Ready(Err(Error::lost("the byte stream takes no octets")));
        }
        self.written += written;
        if self.written == self.out.len() {
            let mut state = self.framed.lock();
            state.unwritten = 0;
            state.flushing.wake();
        }
        Poll::Ready(Ok(()))
    }

    /// Reads what there is. Returns `false` at the end of the byte stream.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, Error>> {
        let mut buffer = ReadBuf::new(&mut self.buffer);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut buffer)).map_err(Error::lost)?;
        if buffer.filled().is_empty() {
            return Poll::Ready(Ok(false));
        }
        let mut guard = self.framed.lock();
        let state = &mut *guard;
        let result = state.mux.receive(buffer.filled());
        let notices = take_events(state);
        drop(guard);
        notices.into_iter().for_each(&mut self.listener);
        result?;
        Poll::Ready(Ok(true))
    }

    /// Reads and writes until neither is possible. Returns an error, or `None` at the end of the byte stream.
    fn poll_exchange(&mut self, cx: &mut Context<'_>) -> Poll<Option<Error>> {
        for _ in 0..MAX_TURNS {
            let wrote = match self.poll_write(cx) {
                Poll::Ready(Err(error)) => return Poll::Ready(Some(error)),
                poll => poll.is_ready(),
            };
            let read = match self.poll_read(cx) {
                Poll::Ready(Err(error)) => return Poll::Ready(Some(error)),
                Poll::Ready(Ok(false)) => return Poll::Ready(None),
                poll => poll.is_ready(),
            };
            if !wrote && !read {
                // Some byte streams hold octets back until they are flushed.
                return match Pin::new(&mut self.io).poll_flush(cx) {
                    Poll::Ready(Err(error)) => Poll::Ready(Some(Error::lost(error))),
                    _ => Poll::Pending,
                };
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Returns whether all is written of a byte stream that is to end.
    fn is_done(&self) -> bool {
        let state = self.framed.lock();
        state.closing
            && state.outbox.is_empty()
            && !state.mux.has_output()
            && state.mux.is_written()
            && self.written == self.out.len()
    }

    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let aborted = {
            let mut state = self.framed.lock();
            state.driver = Some(cx.waker().clone());
            state.aborted
        };
        if aborted {
            self.io.abort();
            return Poll::Ready(());
        }
        match self.poll_exchange(cx) {
            Poll::Ready(error) => {
                self.framed.lock().end(error.unwrap_or_else(|| Error::lost("the peer closed it")));
                return Poll::Ready(());
            }
            Poll::Pending if self.is_done() => {
                self.framed.lock().end(Error::Closed);
                self.phase = Phase::Ending;
                return self.poll_ending(cx);
            }
            Poll::Pending => {}
        }
        let (expires, closing, sent) = {
            let state = self.framed.lock();
            (state.outbox.poll_timeout(), state.closing, state.mux.counters().data_octets)
        };
        let expires = expires.map(|at| Instant::from_std(self.framed.clock.instant(at)));
        // Timers of a runtime are exact to a millisecond.
        let expires = expires.map(|at| at + Duration::from_millis(1));
        self.alarm.set(expires, cx);
        if closing {
            // The windows let data through as the peer reads, also within a message.
            let drain = self.drain.get_or_insert_with(|| self.framed.closing.begin());
            ready!(drain.poll((sent, 0), cx));
            self.io.abort();
            return Poll::Ready(());
        }
        Poll::Pending
    }

    fn poll_ending(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Phase::Lingering(ending) = &mut self.phase {
            return ending.poll(&mut *self.io, cx);
        }
        let mut drain = self.drain.take().unwrap_or_else(|| self.framed.closing.begin());
        match Pin::new(&mut self.io).poll_shutdown(cx) {
            Poll::Ready(Ok(())) => {
                self.phase = Phase::Lingering(Ending::new(drain));
                self.poll_ending(cx)
            }
            Poll::Ready(Err(_)) => Poll::Ready(()),
            Poll::Pending => {
                // What was written last may still be in the cipher of the byte stream.
                let overdue = drain.poll((u64::MAX, 0), cx);
                self.drain = Some(drain);
                ready!(overdue);
                self.io.abort();
                Poll::Ready(())
            }
        }
    }
}

/// Wakes those who wait for what has happened, and returns what the group must learn, without the lock.
fn take_events(state: &mut State) -> Vec<Notice> {
    use framing::Event as Framing;
    let mut notices = Vec::new();
    while let Some(event) = state.mux.poll_event() {
        match event {
            Framing::Opened(id) => notices.push(Notice::Opened(id)),
            Framing::MoreStreams => notices.push(Notice::MoreStreams),
            Framing::Writable(_) => state.flushing.wake(),
            Framing::Readable(id) | Framing::Closed(id) => {
                if let Some(slot) = state.slots.get_mut(&id) {
                    slot.readers.wake();
                }
                state.flushing.wake();
            }
            Framing::Reset(id, code) => {
                if let Some(slot) = state.slots.get_mut(&id) {
                    slot.reset = Some(code);
                    slot.readers.wake();
                    state.outbox.remove(slot.connection);
                }
                state.flushing.wake();
            }
        }
    }
    notices
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let driver = self.get_mut();
        match driver.phase {
            Phase::Open => driver.poll_open(cx),
            Phase::Ending | Phase::Lingering(_) => driver.poll_ending(cx),
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.framed.lock().end(Error::lost("its task has ended"));
        (self.listener)(Notice::Ended);
    }
}
