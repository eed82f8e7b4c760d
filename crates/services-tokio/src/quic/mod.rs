//! QUIC: a connection is a stream, framed if it has messages, or it has the datagrams of a QUIC connection.
//!
//! A message that need not be reliable travels in a datagram, if it fits into one, before which the number of its stream
//! identifies its connection (RFC 9221 section 5.1). A QUIC connection that has nothing but datagrams is recognised by its name of
//! an application protocol: `ringway` and `ringway-datagram`, unless the program names others.

mod datagrams;
mod early;
mod endpoint;
mod number;
mod sessions;

pub(crate) use early::{Begun, Confirmed};
pub(crate) use endpoint::{accept_connection, connect, listen};
pub(crate) use sessions::Sessions;

use crate::carrier::{Carrier, Event, Part};
use crate::draining::Closing;
use crate::error::Error;
use crate::events::Events;
use crate::framed::{Driver, Framed, FramedStream, Notice};
use crate::io::{ByteStream, QuicStream};
use crate::limits::{DATAGRAM_QUEUE, Limits};
use crate::plain::Plain;
use crate::transport::{Owner, Resources};
use crate::waiters::Waiters;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use number::{put_number, take_number};
use quinn::{RecvStream, SendDatagramError, SendStream, VarInt};
use ringway_services::framing::{Side, StreamId};
use ringway_services::properties::Scheduler;
use ringway_services::queue::ConnectionId;
use ringway_services::sending::Sending;
use ringway_services::{Candidate, Preconnection as Policy, Service};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::timeout;

/// The code of connections and streams that are closed in order.
const NO_ERROR: VarInt = VarInt::from_u32(0);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Datagrams of one stream that wait to be read.
#[derive(Default)]
struct Inbox {
    datagrams: VecDeque<Bytes>,
    readers: Waiters,
    events: Events,
}

/// What applies to all streams of a QUIC connection.
pub(crate) struct Settings {
    pub(crate) candidate: Candidate,
    pub(crate) side: Side,
    pub(crate) limits: Limits,
    pub(crate) scheduler: Scheduler,
    pub(crate) closing: Closing,
    /// Whether the program frames messages.
    pub(crate) framer: bool,
}

impl Settings {
    /// Returns those of a connection that is being opened here, for a message that the program does not frame.
    fn new(resources: &Resources, policy: &Policy, candidate: Candidate, peer: IpAddr) -> Settings {
        Settings {
            candidate,
            side: Side::Initiator,
            limits: resources.limits,
            scheduler: policy.properties.connection.conn_scheduler,
            closing: resources.closing(policy, peer),
            framer: false,
        }
    }
}

/// The streams of a QUIC connection.
pub(crate) struct QuicStreams {
    connection: quinn::Connection,
    settings: Settings,
    confirmed: Confirmed,
    /// Where datagrams go, by the number of their stream.
    inboxes: Mutex<BTreeMap<u64, Arc<Mutex<Inbox>>>>,
    /// Streams whose task runs.
    running: AtomicUsize,
    stopped: Notify,
    /// What closes the connection, also when it is dropped outside of it.
    runtime: Handle,
}

/// Counts a task of a stream as long as it runs.
struct Running(Arc<QuicStreams>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
        self.0.stopped.notify_waiters();
    }
}

impl QuicStreams {
    pub(crate) fn new(
        connection: quinn::Connection,
        confirmed: Confirmed,
        settings: Settings,
    ) -> Arc<QuicStreams> {
        Arc::new(QuicStreams {
            connection,
            settings,
            confirmed,
            inboxes: Mutex::default(),
            running: AtomicUsize::new(0),
            stopped: Notify::new(),
            runtime: Handle::current(),
        })
    }

    fn running(self: &Arc<Self>) -> Running {
        self.running.fetch_add(1, Ordering::AcqRel);
        Running(self.clone())
    }

    /// Opens a stream for a connection.
    pub(crate) async fn open(
        self: &Arc<Self>,
        connection: ConnectionId,
        priority: u32,
    ) -> Result<Stream, Error> {
        let handshake = self.settings.limits.handshake;
        let (send, receive) = timeout(handshake, self.connection.open_bi())
            .await
            .map_err(|_| Error::lost("the peer permits no more streams"))?
            .map_err(Error::lost)?;
        let parts = self.parts(send, receive, priority);
        if !self.is_framed() {
            return Ok(self.plain(parts));
        }
        let framed = self.framed(Side::Initiator);
        let stream = framed.open(connection, priority)?;
        self.drive(&framed, parts.io, Box::new(|_| {}));
        Ok(self.carrier(Inner::Framed(stream), parts.number, parts.priority))
    }

    /// Returns whether the connection has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.connection.close_reason().is_some()
    }

    fn is_framed(&self) -> bool {
        self.settings.candidate.framed && !self.settings.framer
    }

    fn framed(&self, side: Side) -> Arc<Framed> {
        let Settings { limits, scheduler, closing, .. } = &self.settings;
        Framed::new(side, limits, *scheduler, closing.clone())
    }

    fn parts(&self, send: SendStream, receive: RecvStream, priority: u32) -> Parts {
        let number = VarInt::from(send.id()).into_inner();
        let priority = Arc::new(AtomicI32::new(quic_priority(priority)));
        let io = QuicStream::new(send, receive, priority.clone(), self.connection.clone());
        Parts { io: Box::new(io), number, priority }
    }

    fn plain(self: &Arc<Self>, parts: Parts) -> Stream {
        let running = self.running();
        let Settings { limits, closing, .. } = &self.settings;
        let plain = Plain::new(parts.io, limits, closing.clone(), move || drop(running));
        self.carrier(Inner::Plain(plain), parts.number, parts.priority)
    }

    /// Starts the task of a stream that is framed, and ends the framing when nobody uses it any longer.
    fn drive(
        self: &Arc<Self>,
        framed: &Arc<Framed>,
        io: Box<dyn ByteStream>,
        listener: crate::framed::Listener,
    ) {
        let running = self.running();
        let driver = Driver::new(framed.clone(), io, listener);
        tokio::spawn(async move {
            driver.await;
            drop(running);
        });
    }

    fn carrier(self: &Arc<Self>, inner: Inner, number: u64, priority: Arc<AtomicI32>) -> Stream {
        let inbox = Arc::<Mutex<Inbox>>::default();
        if self.settings.candidate.provides.has(Service::PerMsgReliability) {
            lock(&self.inboxes).insert(number, inbox.clone());
        }
        Stream { streams: self.clone(), inner, number, inbox, priority, has_sent_first: false }
    }

    /// Ends the connection when all streams have been written and ended.
    pub(crate) fn close(self: &Arc<Self>) {
        let streams = self.clone();
        self.runtime.spawn(async move {
            let ended = async {
                loop {
                    let stopped = streams.stopped.notified();
                    if streams.running.load(Ordering::Acquire) == 0 {
                        return;
                    }
                    stopped.await;
                }
            };
            // The tasks of the streams end by themselves: when all is delivered, or their peer does not read.
            tokio::select! {
                () = ended => {}
                _ = streams.connection.closed() => {}
            }
            streams.connection.close(NO_ERROR, b"");
        });
    }

    pub(crate) fn abort(&self) {
        self.connection.close(NO_ERROR, b"aborted");
    }
}

/// Returns the priority of a stream of QUIC, where a larger number goes first.
fn quic_priority(priority: u32) -> i32 {
    i32::try_from(priority).map_or(i32::MIN, |priority| -priority)
}

/// A stream, as it is opened or accepted.
struct Parts {
    io: Box<dyn ByteStream>,
    number: u64,
    priority: Arc<AtomicI32>,
}

/// Accepts the streams and the datagrams of the peer until the connection has ended, and before them the first one if it has
/// been accepted already.
pub(crate) async fn accept(
    streams: Arc<QuicStreams>,
    first: Option<(SendStream, RecvStream)>,
    owner: Weak<dyn Owner>,
) {
    if let Some((send, receive)) = first {
        accept_stream(&streams, &owner, send, receive);
    }
    let connection = streams.connection.clone();
    loop {
        tokio::select! {
            stream = connection.accept_bi() => match stream {
                Ok((send, receive)) => accept_stream(&streams, &owner, send, receive),
                Err(_) => break,
            },
            datagram = connection.read_datagram() => match datagram {
                Ok(datagram) => streams.deliver(datagram),
                Err(_) => break,
            },
        }
    }
    if let Some(owner) = owner.upgrade() {
        owner.ended();
    }
}

fn accept_stream(
    streams: &Arc<QuicStreams>,
    owner: &Weak<dyn Owner>,
    send: SendStream,
    receive: RecvStream,
) {
    let Some(group) = owner.upgrade() else { return };
    let parts = streams.parts(send, receive, group.priority());
    let number = pool_number(parts.number, streams.settings.side);
    if !streams.is_framed() {
        let streams = streams.clone();
        group.peer_opened(number, Box::new(move |_, _| Some(Box::new(streams.plain(parts)) as _)));
        return;
    }
    let Parts { io, number: stream, priority } = parts;
    let framed = streams.framed(Side::Responder);
    let (weak, adopted, of) = (Arc::downgrade(&group), framed.clone(), streams.clone());
    let listener = Box::new(move |notice| {
        // One connection is one stream of QUIC, and one of the framing.
        let Notice::Opened(id) = notice else { return };
        let carrier = |connection, initial| {
            let inner = Inner::Framed(adopted.adopt(id, connection, initial));
            Some(Box::new(of.carrier(inner, stream, priority.clone())) as _)
        };
        let is_first = id == StreamId(0);
        if !is_first
            || !weak.upgrade().is_some_and(|one| one.peer_opened(number, Box::new(carrier)))
        {
            adopted.refuse(id);
            adopted.close();
        }
    });
    streams.drive(&framed, io, listener);
}

/// Returns the pool's number for a stream that the peer has opened: those of its parity, in order.
fn pool_number(number: u64, side: Side) -> u32 {
    // RFC 9000 section 2.1: the two lowest bits are the kind.
    let index = u32::try_from(number >> 2).unwrap_or(u32::MAX / 2);
    index.wrapping_mul(2).wrapping_add(u32::from(side == Side::Initiator))
}

impl QuicStreams {
    /// Gives a datagram to its stream.
    fn deliver(&self, mut datagram: Bytes) {
        let Some(number) = take_number(&mut datagram) else { return };
        let Some(inbox) = lock(&self.inboxes).get(&number).cloned() else { return };
        let mut inbox = lock(&inbox);
        if inbox.datagrams.len() < DATAGRAM_QUEUE {
            inbox.datagrams.push_back(datagram);
        } else {
            inbox.events.push(Event::Dropped { messages: 1 });
        }
        inbox.readers.wake();
    }
}

enum Inner {
    Framed(FramedStream),
    Plain(Plain),
}

/// One connection.
pub(crate) struct Stream {
    streams: Arc<QuicStreams>,
    inner: Inner,
    number: u64,
    inbox: Arc<Mutex<Inbox>>,
    priority: Arc<AtomicI32>,
    /// Whether its first message was sent early and accepted.
    has_sent_first: bool,
}

impl Stream {
    fn inner(&self) -> &dyn Carrier {
        match &self.inner {
            Inner::Framed(stream) => stream,
            Inner::Plain(stream) => stream,
        }
    }

    /// Sends a message in a datagram. Returns `false` if it does not fit into one.
    fn send_datagram(&self, message: &Bytes) -> Result<bool, Error> {
        let connection = &self.streams.connection;
        let fits = |max: usize| message.len() + 8 <= max;
        if !connection.max_datagram_size().is_some_and(fits) {
            return Ok(false);
        }
        let mut datagram = BytesMut::with_capacity(message.len() + 8);
        put_number(self.number, &mut datagram);
        datagram.put(message.chunk());
        match connection.send_datagram(datagram.freeze()) {
            Ok(()) => Ok(true),
            Err(SendDatagramError::ConnectionLost(error)) => Err(Error::lost(error)),
            Err(_) => Ok(false),
        }
    }
}

impl Carrier for Stream {
    fn poll_send(
        &self,
        cx: &mut Context<'_>,
        message: &mut Bytes,
        sending: &Sending,
    ) -> Poll<Result<(), Error>> {
        if !sending.reliable && !sending.last && self.send_datagram(message)? {
            *message = Bytes::new();
            return Poll::Ready(Ok(()));
        }
        self.inner().poll_send(cx, message, sending)
    }

    fn poll_receive(&self, cx: &mut Context<'_>) -> Poll<Result<Option<Part>, Error>> {
        // Asked before: what is read when the handshake has ended is no copy.
        let early = !self.streams.confirmed.get();
        {
            let mut inbox = lock(&self.inbox);
            if let Some(bytes) = inbox.datagrams.pop_front() {
                return Poll::Ready(Ok(Some(Part { early, ..Part::whole(bytes) })));
            }
            inbox.readers.add(cx);
        }
        self.inner().poll_receive(cx).map_ok(|part| part.map(|part| Part { early, ..part }))
    }

    fn poll_flushed(&self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner().poll_flushed(cx)
    }

    fn poll_event(&self, cx: &mut Context<'_>) -> Poll<Event> {
        let own = lock(&self.inbox).events.poll(cx);
        if own.is_ready() { own } else { self.inner().poll_event(cx) }
    }

    fn close(&self) {
        self.inner().close();
        if let Inner::Framed(stream) = &self.inner {
            stream.close_byte_stream();
        }
    }

    fn abort(&self, code: u32) {
        self.inner().abort(code);
        if let Inner::Framed(stream) = &self.inner {
            stream.close_byte_stream();
        }
    }

    fn has_sent_first(&self) -> bool {
        self.has_sent_first
    }

    fn set_priority(&self, priority: u32) {
        self.priority.store(quic_priority(priority), Ordering::Relaxed);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.close();
        lock(&self.streams.inboxes).remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_number_is_a_higher_priority() {
        assert!(quic_priority(1) > quic_priority(100));
        assert!(quic_priority(100) > quic_priority(u32::MAX));
    }

    /// RFC 9000 section 2.1: streams 0, 4, 8 are the client's, 1, 5, 9 the server's.
    #[test]
    fn streams_of_the_peer_have_numbers_of_its_parity() {
        assert_eq!([0, 4, 8].map(|number| pool_number(number, Side::Responder)), [0, 2, 4]);
        assert_eq!([1, 5, 9].map(|number| pool_number(number, Side::Initiator)), [1, 3, 5]);
    }
}
