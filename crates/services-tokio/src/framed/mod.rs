//! Connections over one byte stream, by the framing of `ringway_services`.
//!
//! The [`Mux`] is behind a lock that is held for a call or a batch. Programs put messages into the group's queue and take
//! them out of the windows of the [`Mux`]; a task ([`Driver`]) moves octets between it and the byte stream. Memory is
//! bounded by the queue's shares and the windows.

mod driver;

pub(crate) use driver::{Driver, Listener, Notice};

use crate::carrier::{Carrier, Event, Part};
use crate::draining::Closing;
use crate::error::Error;
use crate::events::Events;
use crate::limits::Limits;
use crate::outbox::Outbox;
use crate::waiters::Waiters;
use bytes::Bytes;
use ringway_os::Clock;
use ringway_services::framing::{self, Mux, Read, Side, StreamId};
use ringway_services::properties::Scheduler;
use ringway_services::queue::ConnectionId;
use ringway_services::sending::Sending;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

/// Streams of each end: those of a connection's group.
pub(crate) const STREAMS: u32 = 256;

/// One connection of the group.
struct Slot {
    connection: ConnectionId,
    readers: Waiters,
    /// The code with which the peer has reset the stream.
    reset: Option<u32>,
    /// Whether the connection was closed here and ends when its messages are written.
    closing: bool,
    events: Events,
}

struct State {
    mux: Mux,
    outbox: Outbox,
    slots: BTreeMap<StreamId, Slot>,
    streams: BTreeMap<ConnectionId, StreamId>,
    driver: Option<Waker>,
    /// Why the byte stream has ended.
    ended: Option<Error>,
    /// Whether the byte stream is to be ended behind what is queued.
    closing: bool,
    /// Whether it is to be ended at once.
    aborted: bool,
    /// Octets that wait in the driver's buffer.
    unwritten: usize,
    flushing: Waiters,
}

/// A framed byte stream.
pub(crate) struct Framed {
    state: Mutex<State>,
    clock: Clock,
    closing: Closing,
}

impl State {
    fn wake_driver(&mut self) {
        if let Some(waker) = self.driver.take() {
            waker.wake();
        }
    }

    /// Ends the byte stream for all connections.
    fn end(&mut self, error: Error) {
        self.ended.get_or_insert(error);
        self.slots.values_mut().for_each(|slot| slot.readers.wake());
        self.outbox.wake_all();
        self.flushing.wake();
    }
}

impl Framed {
    pub(crate) fn new(
        side: Side,
        limits: &Limits,
        scheduler: Scheduler,
        closing: Closing,
    ) -> Arc<Framed> {
        let mux = framing::Limits { streams: STREAMS, window: limits.window };
        Arc::new(Framed {
            state: Mutex::new(State {
                mux: Mux::new(side, mux),
                outbox: Outbox::new(limits.queue, scheduler),
                slots: BTreeMap::new(),
                streams: BTreeMap::new(),
                driver: None,
                ended: None,
                closing: false,
                aborted: false,
                unwritten: 0,
                flushing: Waiters::default(),
            }),
            clock: Clock::new(),
            closing,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a stream for a connection.
    pub(crate) fn open(
        self: &Arc<Self>,
        connection: ConnectionId,
        priority: u32,
    ) -> Result<FramedStream, Error> {
        let mut state = self.lock();
        if let Some(error) = &state.ended {
            return Err(error.clone());
        }
        let id = state.mux.open().map_err(Error::lost)?;
        state.insert(id, connection, priority);
        state.wake_driver();
        drop(state);
        Ok(FramedStream { framed: self.clone(), id, connection })
    }

    /// Returns the carrier of a stream that the peer has opened.
    pub(crate) fn adopt(
        self: &Arc<Self>,
        id: StreamId,
        connection: ConnectionId,
        priority: u32,
    ) -> FramedStream {
        self.lock().insert(id, connection, priority);
        FramedStream { framed: self.clone(), id, connection }
    }

    /// Refuses a stream that the peer has opened.
    pub(crate) fn refuse(&self, id: StreamId) {
        let mut state = self.lock();
        state.mux.reset(id, 0);
        state.wake_driver();
    }

    /// Returns whether the byte stream has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.lock().ended.is_some()
    }

    /// Ends the byte stream behind what is queued.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closing = true;
        state.wake_driver();
    }

    /// Ends the byte stream at once.
    pub(crate) fn abort(&self) {
        let mut state = self.lock();
        state.aborted = true;
        state.end(Error::Closed);
        state.wake_driver();
    }
}

impl State {
    fn insert(&mut self, id: StreamId, connection: ConnectionId, priority: u32) {
        self.outbox.add(connection, priority);
        self.streams.insert(connection, id);
        let (readers, events) = (Waiters::default(), Events::default());
        self.slots.insert(id, Slot { connection, readers, reset: None, closing: false, events });
    }

    fn remove(&mut self, id: StreamId) {
        if let Some(mut slot) = self.slots.remove(&id) {
            self.streams.remove(&slot.connection);
            self.outbox.remove(slot.connection);
            slot.readers.wake();
        }
    }

    /// Ends the streams of connections that were closed and whose messages have all been taken by the framing.
    fn finish_closing(&mut self) {
        let is_done = |(id, slot): (&StreamId, &Slot)| {
            (slot.closing && self.outbox.is_empty_for(slot.connection)).then_some(*id)
        };
        let done: Vec<StreamId> = self.slots.iter().filter_map(is_done).collect();
        for id in done {
            self.mux.close(id);
            self.remove(id);
        }
    }
}

/// One connection over a framed byte stream.
pub(crate) struct FramedStream {
    framed: Arc<Framed>,
    id: StreamId,
    connection: ConnectionId,
}

impl FramedStream {
    /// Ends the byte stream behind what was sent, because it has no other connection.
    pub(crate) fn close_byte_stream(&self) {
        self.framed.close();
    }
}

impl Carrier for FramedStream {
    fn poll_send(
        &self,
        cx: &mut Context<'_>,
        message: &mut Bytes,
        sending: &Sending,
    ) -> Poll<Result<(), Error>> {
        let now = self.framed.clock.now();
        let mut state = self.framed.lock();
        let reset = state.slots.get(&self.id).and_then(|slot| slot.reset);
        if let Some(code) = reset {
            return Poll::Ready(Err(Error::Aborted { code }));
        }
        if let Some(error) = &state.ended {
            return Poll::Ready(Err(error.clone()));
        }
        let result = ready!(state.outbox.poll_push(cx, now, self.connection, message, sending));
        state.wake_driver();
        Poll::Ready(result)
    }

    fn poll_receive(&self, cx: &mut Context<'_>) -> Poll<Result<Option<Part>, Error>> {
        let mut state = self.framed.lock();
        let had_output = state.mux.has_output();
        let read = match state.slots.get(&self.id) {
            None => return Poll::Ready(Err(Error::Closed)),
            Some(Slot { reset: Some(code), .. }) => {
                return Poll::Ready(Err(Error::Aborted { code: *code }));
            }
            Some(_) => state.mux.read(self.id),
        };
        // What was read may have opened the window.
        if !had_output && state.mux.has_output() {
            state.wake_driver();
        }
        Poll::Ready(match read {
            Read::Message(bytes) => Ok(Some(Part::whole(bytes.into()))),
            Read::Part(bytes) => Ok(Some(Part::piece(bytes.into()))),
            Read::End => Ok(None),
            Read::Pending => {
                if let Some(error) = &state.ended {
                    return Poll::Ready(Err(error.clone()));
                }
                if let Some(slot) = state.slots.get_mut(&self.id) {
                    slot.readers.add(cx);
                }
                return Poll::Pending;
            }
        })
    }

    fn poll_flushed(&self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let mut state = self.framed.lock();
        if let Some(error) = &state.ended {
            return Poll::Ready(Err(error.clone()));
        }
        if !state.slots.contains_key(&self.id) {
            return Poll::Ready(Err(Error::Closed));
        }
        ready!(state.outbox.poll_empty(cx, self.connection));
        if !state.mux.is_flushed(self.id) || state.unwritten > 0 {
            state.flushing.add(cx);
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_event(&self, cx: &mut Context<'_>) -> Poll<Event> {
        match self.framed.lock().slots.get_mut(&self.id) {
            Some(slot) => slot.events.poll(cx),
            None => Poll::Pending,
        }
    }

    fn close(&self) {
        let mut state = self.framed.lock();
        let Some(slot) = state.slots.get_mut(&self.id) else { return };
        slot.closing = true;
        slot.readers.wake();
        if slot.reset.is_some() {
            state.remove(self.id);
        } else {
            state.finish_closing();
        }
        state.wake_driver();
    }

    fn abort(&self, code: u32) {
        let mut state = self.framed.lock();
        state.mux.reset(self.id, code);
        state.remove(self.id);
        // Who waits for the end waits no longer.
        state.flushing.wake();
        state.wake_driver();
    }

    fn set_priority(&self, priority: u32) {
        self.framed.lock().outbox.set_priority(self.connection, priority);
    }
}

/// One that nobody has taken over, as when the program no longer waits for it, is closed.
impl Drop for FramedStream {
    fn drop(&mut self) {
        self.close();
    }
}
