//! The task that moves messages between an association and its connections.

use super::{End, SctpStreams, Slot, State};
use crate::alarm::Alarm;
use crate::carrier::{self, Part};
use crate::draining::{Drain, Progress};
use crate::error::Error;
use bytes::Bytes;
use ringway_sctp_tokio::{Change, Event, Message, PathState, Reliability, Reset, SendOptions};
use ringway_services::sending::Sending;
use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;

/// Messages that are received at once.
const BATCH: usize = 64;
/// Payload protocol identifier of an empty message (RFC 8831 section 8: WebRTC Binary Empty).
const EMPTY: u32 = 57;
/// Payload protocol identifier of a message that aborts its connection: "RWAB". Its octets are the code.
const ABORT: u32 = 0x5257_4142;

/// What a group learns of its association.
pub(crate) enum Notice {
    /// The peer has sent a first message on a stream. The answer is whether the connection was begun.
    Opened(u16),
    /// Both ends have ended a stream, and its number can be used again.
    Released(u16),
    /// The association has ended.
    Ended,
}

/// Receives the notices.
pub(crate) type Listener = Box<dyn FnMut(&Arc<SctpStreams>, Notice) -> bool + Send>;

/// A message that the association has no room for yet.
struct Handing {
    options: SendOptions,
    bytes: Bytes,
    last: bool,
}

/// The task.
pub(crate) struct Driver {
    streams: Arc<SctpStreams>,
    listener: Listener,
    handing: Option<Handing>,
    abort: Option<(SendOptions, Bytes)>,
    received: VecDeque<Message>,
    alarm: Alarm,
    shutting_down: bool,
    /// The end of an association that is being closed.
    drain: Option<Drain>,
}

/// Returns the options of SCTP for the properties of a message (RFC 9623 section 10.6).
fn options(stream: u16, sending: &Sending, left: Option<Duration>) -> SendOptions {
    let retransmissions =
        sending.max_retransmissions.map(|max| u8::try_from(max).unwrap_or(u8::MAX));
    let reliability = match (left, retransmissions, sending.reliable) {
        (Some(left), _, _) => Reliability::Lifetime(left),
        (None, Some(max), _) => Reliability::Retransmits(max),
        (None, None, false) => Reliability::Retransmits(0),
        (None, None, true) => Reliability::Full,
    };
    SendOptions { stream, unordered: !sending.ordered, reliability, ..SendOptions::default() }
}

impl Driver {
    /// Returns the task. To be called within a runtime.
    pub(crate) fn new(streams: Arc<SctpStreams>, listener: Listener) -> Driver {
        Driver {
            streams,
            listener,
            handing: None,
            abort: None,
            received: VecDeque::new(),
            alarm: Alarm::new(),
            shutting_down: false,
            drain: None,
        }
    }

    /// Hands messages over until the association has no room or nothing is left.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        loop {
            if let Some((options, bytes)) = &mut self.abort {
                if let Err(error) = ready!(self.streams.association.poll_send(cx, bytes, options)) {
                    return Poll::Ready(Error::lost(error));
                }
                let stream = options.stream;
                self.abort = None;
                self.end_outgoing(stream);
            }
            if let Some(handing) = &mut self.handing {
                let association = &self.streams.association;
                let sent = association.poll_send(cx, &mut handing.bytes, &handing.options);
                if let Err(error) = ready!(sent) {
                    return Poll::Ready(Error::lost(error));
                }
                let (stream, last) = (handing.options.stream, handing.last);
                self.handing = None;
                let mut state = self.streams.lock();
                state.handing = None;
                state.flushing.wake();
                drop(state);
                if last {
                    self.end_outgoing(stream);
                }
            }
            if !self.take_next() {
                return Poll::Pending;
            }
        }
    }

    /// Takes what is to be sent next. Returns whether there is anything.
    fn take_next(&mut self) -> bool {
        let now = self.streams.clock.now();
        let mut guard = self.streams.lock();
        let state = &mut *guard;
        if let Some((stream, code)) = state.aborts.pop_front() {
            let options = SendOptions { stream, ppid: ABORT, ..SendOptions::default() };
            self.abort = Some((options, Bytes::copy_from_slice(&code.to_be_bytes())));
            return true;
        }
        state.expire(now);
        let Some(next) = state.outbox.next(now, |_| true) else { return false };
        let Some(&stream) = state.streams.get(&next.connection) else { return true };
        let mut options = options(stream, &next.sending, next.lifetime_left);
        let mut bytes = next.bytes;
        if bytes.is_empty() {
            options.ppid = EMPTY;
            bytes = Bytes::from_static(&[0]);
        }
        state.handing = Some(next.connection);
        self.handing = Some(Handing { options, bytes, last: next.sending.last });
        true
    }

    /// Ends the outgoing direction of a stream behind what was sent on it.
    fn end_outgoing(&self, stream: u16) {
        let mut state = self.streams.lock();
        let Some(slot) = state.slots.get_mut(&stream).filter(|slot| slot.outgoing == End::Open)
        else {
            return;
        };
        slot.ended = true;
        slot.outgoing = End::Requested;
        drop(state);
        if self.streams.association.reset_streams(Reset::Outgoing(&[stream])).is_err() {
            // The peer cannot reset streams: it never learns of the end, and the number is not used again.
            let mut state = self.streams.lock();
            let alone = state.slots.len() == 1;
            state.closing |= alone;
        }
    }

    /// Ends what was closed and is written, and releases what both ends have ended.
    fn settle(&mut self) {
        let (mut ending, mut released) = (Vec::new(), Vec::new());
        {
            let mut guard = self.streams.lock();
            let state = &mut *guard;
            for (stream, slot) in &state.slots {
                let aborting = state.aborts.iter().any(|(other, _)| other == stream)
                    || self.abort.as_ref().is_some_and(|(options, _)| options.stream == *stream);
                if slot.closed && slot.outgoing == End::Open && !aborting && state.is_flushed(slot)
                {
                    ending.push(*stream);
                }
                let is_over = slot.closed && slot.forgotten;
                if is_over && slot.outgoing == End::Done && slot.incoming == End::Done {
                    released.push(*stream);
                }
            }
            for stream in &released {
                if let Some(slot) = state.slots.remove(stream) {
                    state.streams.remove(&slot.connection);
                    state.outbox.remove(slot.connection);
                }
            }
        }
        ending.into_iter().for_each(|stream| self.end_outgoing(stream));
        for stream in released {
            (self.listener)(&self.streams, Notice::Released(stream));
        }
    }

    /// Receives until nothing is there or a connection that is not read has filled its window. Returns `None` while the
    /// latter holds, or an error when the association has ended.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Option<Error>> {
        loop {
            while let Some(message) = self.received.pop_front() {
                if let Some(message) = self.deliver(message) {
                    self.received.push_front(message);
                    return Poll::Ready(None);
                }
            }
            let mut batch = Vec::new();
            let received = self.streams.association.poll_recv_many(cx, &mut batch, BATCH);
            match ready!(received) {
                Ok(0) => return Poll::Ready(Some(Error::lost("the peer closed it"))),
                Ok(_) => self.received.extend(batch),
                Err(error) => return Poll::Ready(Some(Error::lost(error))),
            }
        }
    }

    /// Gives a message to its connection. Returns it if that has no room.
    fn deliver(&mut self, message: Message) -> Option<Message> {
        let stream = message.stream;
        let mut state = self.streams.lock();
        let is_known = state.slots.contains_key(&stream);
        if !is_known {
            if !self.streams.is_remote(stream) || message.ppid == ABORT || !message.begin {
                return None;
            }
            drop(state);
            if !(self.listener)(&self.streams, Notice::Opened(stream)) {
                return None;
            }
            state = self.streams.lock();
        }
        let window = self.streams.window;
        let slot = state.slots.get_mut(&stream)?;
        if slot.closed {
            return None;
        }
        if message.ppid == ABORT {
            let code: [u8; 4] = message.bytes[..].try_into().unwrap_or_default();
            slot.aborted = Some(u32::from_be_bytes(code));
            slot.inbox.clear();
            slot.octets = 0;
            slot.readers.wake();
            return None;
        }
        if slot.octets >= window {
            return Some(message);
        }
        let bytes = if message.ppid == EMPTY { Bytes::new() } else { message.bytes };
        slot.octets += bytes.len();
        slot.inbox.push_back(Part { end: message.end, cut: message.cut, ..Part::whole(bytes) });
        slot.readers.wake();
        None
    }

    fn poll_events(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        loop {
            let event = ready!(self.streams.association.poll_event(cx));
            let mut guard = self.streams.lock();
            let state = &mut *guard;
            match event {
                None | Some(Event::Closed(_)) => {
                    return Poll::Ready(Error::lost("the association has ended"));
                }
                Some(Event::Changed(Change::StreamsReset { incoming, streams })) => {
                    reset(state, incoming, &streams);
                }
                Some(Event::Changed(Change::EverythingReset)) => {
                    reset(state, true, &[]);
                    reset(state, false, &[]);
                }
                Some(Event::Path { remote, state: now }) => {
                    let port = self.streams.association.ports().map_or(0, |(_, remote)| remote);
                    let remote = SocketAddr::new(remote, port);
                    let works = now == PathState::Active;
                    for slot in state.slots.values_mut() {
                        slot.events.push(carrier::Event::Path { remote, works });
                    }
                }
                Some(Event::PeerShutdown) => {
                    for slot in state.slots.values_mut().filter(|slot| slot.incoming != End::Done) {
                        slot.incoming = End::Done;
                        slot.readers.wake();
                    }
                }
                Some(Event::Restarted) => {
                    return Poll::Ready(Error::lost("the peer has restarted the association"));
                }
                Some(_) => {}
            }
        }
    }

    fn poll_exchange(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        if let Poll::Ready(error) = self.poll_send(cx) {
            return Poll::Ready(error);
        }
        let mut full = false;
        match self.poll_receive(cx) {
            Poll::Ready(Some(error)) => {
                // What ended it may have ended the streams before.
                let _ = self.poll_events(cx);
                return Poll::Ready(error);
            }
            Poll::Ready(None) => full = true,
            Poll::Pending => {}
        }
        // The end of a stream is behind its messages.
        if !full && let Poll::Ready(error) = self.poll_events(cx) {
            return Poll::Ready(error);
        }
        self.settle();
        Poll::Pending
    }

    /// Returns the chunks that were sent for the first time, and the messages that are not acknowledged: they change as the
    /// peer reads and thereby opens its window.
    fn progress(&self) -> Progress {
        self.streams.association.statistics().map_or((0, 0), |statistics| {
            (statistics.totals.chunks_sent, statistics.unacknowledged as u64)
        })
    }

    /// Returns whether the association is to be shut down now.
    fn is_done(&self) -> bool {
        let state = self.streams.lock();
        state.closing
            && state.outbox.is_empty()
            && self.handing.is_none()
            && state.aborts.is_empty()
    }
}

/// Notes that streams were reset; all if the list is empty.
fn reset(state: &mut State, incoming: bool, streams: &[u16]) {
    let is = |stream: &u16| streams.is_empty() || streams.contains(stream);
    for (_, slot) in state.slots.iter_mut().filter(|(stream, _)| is(stream)) {
        let Slot { incoming: of_peer, outgoing, readers, .. } = slot;
        if incoming {
            *of_peer = End::Done;
            readers.wake();
        } else if *outgoing == End::Requested {
            *outgoing = End::Done;
        }
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let driver = self.get_mut();
        {
            let mut state = driver.streams.lock();
            state.driver = Some(cx.waker().clone());
            if state.ended.is_some() && !state.closing {
                return Poll::Ready(());
            }
        }
        // Also while the association has no room.
        driver.streams.lock().expire(driver.streams.clock.now());
        if let Poll::Ready(error) = driver.poll_exchange(cx) {
            driver.streams.lock().end(error);
            return Poll::Ready(());
        }
        if !driver.shutting_down && driver.is_done() {
            driver.shutting_down = true;
            driver.streams.association.begin_shutdown();
            driver.streams.lock().end(Error::Closed);
            cx.waker().wake_by_ref();
        }
        let (expires, closing) = {
            let state = driver.streams.lock();
            (state.outbox.poll_timeout(), state.closing)
        };
        let expires = expires.map(|at| Instant::from_std(driver.streams.clock.instant(at)));
        let expires = expires.map(|at| at + Duration::from_millis(1));
        driver.alarm.set(expires, cx);
        if closing {
            let progress = driver.progress();
            let drain = driver.drain.get_or_insert_with(|| driver.streams.closing.begin());
            ready!(drain.poll(progress, cx));
            // With a closed window the association would live for as long as the peer does.
            let _ = driver.streams.association.abort(b"");
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.streams.lock().end(Error::lost("its task has ended"));
        let streams = self.streams.clone();
        (self.listener)(&streams, Notice::Ended);
    }
}
