//! Connections as streams of an SCTP association (RFC 9623 section 10.6).
//!
//! A task ([`Driver`]) moves messages between the association and the connections. The end of a connection is the reset of
//! its outgoing stream (RFC 6525), and a connection that is aborted says so by a message. SCTP has one window for all
//! streams: when a connection is not read, nothing is read of the association once the window of that connection is full.
//!
//! SCTP carries no empty message; one octet with the payload protocol identifier of WebRTC for an empty message stands for
//! it (RFC 8831 section 6.6).

mod driver;
mod opening;
mod stacks;

pub(crate) use driver::{Driver, Listener, Notice};
pub(crate) use opening::{connect, listen};
pub(crate) use stacks::Stacks;

use crate::carrier::{Carrier, Event, Part, Path};
use crate::draining::Closing;
use crate::error::Error;
use crate::events::Events;
use crate::limits::Limits;
use crate::outbox::Outbox;
use crate::waiters::Waiters;
use bytes::Bytes;
use ringway_os::Clock;
use ringway_sansio::Time;
use ringway_sctp_tokio::{Association, PathState};
use ringway_services::framing::Side;
use ringway_services::properties::Scheduler;
use ringway_services::queue::ConnectionId;
use ringway_services::sending::Sending;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

/// How far a direction of a stream has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Open,
    /// The reset was requested, behind what was sent.
    Requested,
    Done,
}

/// A stream in both directions.
struct Slot {
    connection: ConnectionId,
    inbox: VecDeque<Part>,
    octets: usize,
    readers: Waiters,
    events: Events,
    /// The code with which the peer has aborted the connection.
    aborted: Option<u32>,
    outgoing: End,
    incoming: End,
    /// Whether the last message has been handed over.
    ended: bool,
    /// Whether the connection was closed here: nothing of it is read any longer.
    closed: bool,
    /// Whether the pool knows that it was closed.
    forgotten: bool,
}

struct State {
    outbox: Outbox,
    slots: BTreeMap<u16, Slot>,
    streams: BTreeMap<ConnectionId, u16>,
    driver: Option<Waker>,
    flushing: Waiters,
    /// The connections whose message the association has no room for yet.
    handing: Option<ConnectionId>,
    /// Streams to abort, with their codes.
    aborts: VecDeque<(u16, u32)>,
    ended: Option<Error>,
    closing: bool,
}

/// The streams of an association.
pub(crate) struct SctpStreams {
    state: Mutex<State>,
    association: Association,
    side: Side,
    window: usize,
    scheduler: Scheduler,
    clock: Clock,
    closing: Closing,
}

impl State {
    fn wake_driver(&mut self) {
        if let Some(waker) = self.driver.take() {
            waker.wake();
        }
    }

    fn end(&mut self, error: Error) {
        self.ended.get_or_insert(error);
        self.slots.values_mut().for_each(|slot| slot.readers.wake());
        self.outbox.wake_all();
        self.flushing.wake();
    }

    /// Drops the messages whose lifetime is over.
    fn expire(&mut self, now: Time) {
        for connection in self.outbox.expire(now) {
            let stream = self.streams.get(&connection).copied();
            if let Some(slot) = stream.and_then(|stream| self.slots.get_mut(&stream)) {
                slot.events.push(Event::Expired { messages: 1 });
            }
        }
    }

    /// Returns whether all that was sent on a stream has been handed to the association.
    fn is_flushed(&self, slot: &Slot) -> bool {
        self.outbox.is_empty_for(slot.connection) && self.handing != Some(slot.connection)
    }
}

impl SctpStreams {
    pub(crate) fn new(
        association: Association,
        side: Side,
        limits: &Limits,
        scheduler: Scheduler,
        closing: Closing,
    ) -> Arc<SctpStreams> {
        Arc::new(SctpStreams {
            state: Mutex::new(State {
                outbox: Outbox::new(limits.queue, scheduler),
                slots: BTreeMap::new(),
                streams: BTreeMap::new(),
                driver: None,
                flushing: Waiters::default(),
                handing: None,
                aborts: VecDeque::new(),
                ended: None,
                closing: false,
            }),
            association,
            side,
            window: limits.window as usize,
            scheduler,
            clock: Clock::new(),
            closing,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the peer opens connections on a stream.
    fn is_remote(&self, stream: u16) -> bool {
        stream.is_multiple_of(2) == (self.side == Side::Responder)
    }

    /// Begins a connection on a stream.
    pub(crate) fn open(
        self: &Arc<Self>,
        stream: u16,
        connection: ConnectionId,
        priority: u32,
    ) -> Result<SctpStream, Error> {
        let mut state = self.lock();
        if let Some(error) = &state.ended {
            return Err(error.clone());
        }
        state.outbox.add(connection, priority);
        state.streams.insert(connection, stream);
        let slot = Slot {
            connection,
            inbox: VecDeque::new(),
            octets: 0,
            readers: Waiters::default(),
            events: Events::default(),
            aborted: None,
            outgoing: End::Open,
            incoming: End::Open,
            ended: false,
            closed: false,
            forgotten: false,
        };
        state.slots.insert(stream, slot);
        drop(state);
        self.set_value(stream, priority);
        Ok(SctpStream { streams: self.clone(), stream, connection })
    }

    /// Sets what the association's scheduler knows of a stream (RFC 8260 section 3).
    fn set_value(&self, stream: u16, priority: u32) {
        let value = match self.scheduler {
            // A lower number is a larger share.
            Scheduler::WeightedFairQueueing => 10_000 / priority.saturating_add(1).min(10_000),
            Scheduler::Priority => priority,
            _ => return,
        };
        let value = u16::try_from(value).unwrap_or(u16::MAX);
        let _ = self.association.set_stream_value(stream, value);
    }

    /// Returns whether the association has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.lock().ended.is_some()
    }

    /// Notes that the pool knows that the connection of a stream was closed.
    pub(crate) fn forget(&self, stream: u16) {
        let mut state = self.lock();
        if let Some(slot) = state.slots.get_mut(&stream) {
            slot.forgotten = true;
        }
        state.wake_driver();
    }

    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closing = true;
        state.wake_driver();
    }

    pub(crate) fn abort(&self) {
        let _ = self.association.abort(b"");
        let mut state = self.lock();
        state.end(Error::Closed);
        state.wake_driver();
    }
}

/// One connection.
pub(crate) struct SctpStream {
    streams: Arc<SctpStreams>,
    stream: u16,
    connection: ConnectionId,
}

impl SctpStream {
    /// Returns the stream, as long as it is that of this connection.
    fn slot<'a>(&self, state: &'a mut State) -> Option<&'a mut Slot> {
        state.slots.get_mut(&self.stream).filter(|slot| slot.connection == self.connection)
    }
}

impl Carrier for SctpStream {
    fn poll_send(
        &self,
        cx: &mut Context<'_>,
        message: &mut Bytes,
        sending: &Sending,
    ) -> Poll<Result<(), Error>> {
        let now = self.streams.clock.now();
        let mut state = self.streams.lock();
        if let Some(code) = self.slot(&mut state).and_then(|slot| slot.aborted) {
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
        let mut guard = self.streams.lock();
        let state = &mut *guard;
        let ended = state.ended.clone();
        let Some(slot) = self.slot(state) else {
            return Poll::Ready(Err(ended.unwrap_or(Error::Closed)));
        };
        if let Some(code) = slot.aborted {
            return Poll::Ready(Err(Error::Aborted { code }));
        }
        if let Some(part) = slot.inbox.pop_front() {
            let was_full = slot.octets >= self.streams.window;
            slot.octets -= part.bytes.len();
            if was_full && slot.octets < self.streams.window {
                state.wake_driver();
            }
            return Poll::Ready(Ok(Some(part)));
        }
        if slot.incoming == End::Done {
            return Poll::Ready(Ok(None));
        }
        if let Some(error) = ended {
            return Poll::Ready(Err(error));
        }
        slot.readers.add(cx);
        Poll::Pending
    }

    fn poll_flushed(&self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let mut state = self.streams.lock();
        if let Some(error) = &state.ended {
            return Poll::Ready(Err(error.clone()));
        }
        if self.slot(&mut state).is_none_or(|slot| slot.closed) {
            return Poll::Ready(Err(Error::Closed));
        }
        ready!(state.outbox.poll_empty(cx, self.connection));
        if state.handing == Some(self.connection) {
            state.flushing.add(cx);
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_event(&self, cx: &mut Context<'_>) -> Poll<Event> {
        match self.slot(&mut self.streams.lock()) {
            Some(slot) => slot.events.poll(cx),
            None => Poll::Pending,
        }
    }

    fn close(&self) {
        let mut state = self.streams.lock();
        if let Some(slot) = self.slot(&mut state) {
            (slot.closed, slot.ended) = (true, true);
            slot.inbox.clear();
            slot.octets = 0;
            slot.readers.wake();
        }
        // Who waits for the end waits no longer.
        state.flushing.wake();
        state.wake_driver();
    }

    fn abort(&self, code: u32) {
        let mut state = self.streams.lock();
        state.outbox.remove(self.connection);
        let stream = self.stream;
        if self.slot(&mut state).is_some_and(|slot| slot.outgoing == End::Open) {
            state.aborts.push_back((stream, code));
        }
        drop(state);
        self.close();
    }

    fn set_priority(&self, priority: u32) {
        self.streams.lock().outbox.set_priority(self.connection, priority);
        self.streams.set_value(self.stream, priority);
    }

    fn paths(&self) -> Vec<Path> {
        let paths = self.streams.association.paths().unwrap_or_default();
        let (local, remote) = self.streams.association.ports().unwrap_or_default();
        let paths = paths.into_iter().map(|path| Path {
            local: SocketAddr::new(path.local, local),
            remote: SocketAddr::new(path.remote, remote),
            works: path.state == PathState::Active,
            is_primary: path.primary,
            mtu: u32::try_from(path.mtu).ok(),
        });
        paths.collect()
    }
}

/// One that nobody has taken over, as when the program no longer waits for it, is closed.
impl Drop for SctpStream {
    fn drop(&mut self) {
        self.close();
    }
}
