//! A connection (RFC 9622 sections 8 to 10).

use crate::carrier::{Carrier, Event, Part, Path};
use crate::error::Error;
use crate::framer::Framer;
use crate::group::Group;
use crate::message::Message;
use crate::system::System;
use bytes::{Bytes, BytesMut};
use ringway_services::properties::{ConnectionState, Direction};
use ringway_services::protocol::MessageLimits;
use ringway_services::queue::ConnectionId;
use ringway_services::sending::{SendError, Sending};
use ringway_services::{
    Candidate, ConnectionProperties, Explanation, MessageProperties, Protocol, Provided, Service,
};
use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::time::timeout;

const ESTABLISHED: u8 = 0;
const CLOSING: u8 = 1;
const CLOSED: u8 = 2;

/// The MTU of a path of which nothing else is known.
const DEFAULT_MTU: u32 = 1_500;

/// A framer of the program, with what it has not decoded yet.
struct Framing {
    framer: Box<dyn Framer>,
    input: BytesMut,
    /// Whether what was added last came before the end of the handshake.
    is_early: bool,
    ended: bool,
}

/// A connection. Its methods may be called by several tasks at once; in an [`Arc`] it is shared. When it is dropped, it
/// is closed behind what was sent.
pub struct Connection {
    id: ConnectionId,
    system: System,
    group: Arc<Group>,
    carrier: Box<dyn Carrier>,
    limits: MessageLimits,
    properties: Mutex<ConnectionProperties>,
    defaults: Mutex<MessageProperties>,
    state: AtomicU8,
    /// Parts of the message that is being received.
    partial: Mutex<BytesMut>,
    framing: Option<Mutex<Framing>>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("protocol", &self.protocol())
            .field("local", &self.local_address())
            .field("remote", &self.remote_address())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connection {
    pub(crate) fn new(
        id: ConnectionId,
        group: Arc<Group>,
        carrier: Box<dyn Carrier>,
        system: System,
    ) -> Connection {
        let context = &group.context;
        let Candidate { protocol, framed, .. } = context.candidate;
        let largest = u32::try_from(system.limits().message).unwrap_or(u32::MAX);
        let ip = context.remote.ip();
        let mtu = if protocol.message_limits(0, true, framed, 0).singular_transmission_msg_max_len
            == Some(0)
        {
            ringway_os::path_mtu(ip).unwrap_or(DEFAULT_MTU)
        } else {
            DEFAULT_MTU
        };
        let limits = protocol.message_limits(mtu, ip.is_ipv4(), framed, largest);
        let properties = context.policy.properties.connection.clone();
        let defaults = context.policy.properties.message.clone();
        let framing = context.framer.as_ref().filter(|_| framed).map(|new| {
            let (framer, input) = (new(), BytesMut::new());
            Mutex::new(Framing { framer, input, is_early: false, ended: false })
        });
        let _ = carrier.set_receive_coverage(properties.recv_checksum_len.0);
        Connection {
            id,
            system,
            carrier,
            limits,
            properties: Mutex::new(properties),
            defaults: Mutex::new(defaults),
            state: AtomicU8::new(ESTABLISHED),
            partial: Mutex::default(),
            framing,
            group,
        }
    }

    /// Sends a message with the default properties, and waits until there is room for it. That it was sent does not mean
    /// that it arrived.
    ///
    /// # Errors
    /// The connection has ended, or the properties contradict it.
    pub async fn send(&self, message: impl Into<Bytes>) -> Result<(), Error> {
        let sending = self.sending(&lock(&self.defaults))?;
        self.hand_over(message.into(), sending).await
    }

    /// Sends a message with properties of its own (RFC 9622 section 9.1.3).
    ///
    /// # Errors
    /// As [`send`](Connection::send); [`Error::Expired`] if the lifetime was over before there was room.
    pub async fn send_with(
        &self,
        message: impl Into<Bytes>,
        properties: &MessageProperties,
    ) -> Result<(), Error> {
        let sending = self.sending(properties)?;
        self.hand_over(message.into(), sending).await
    }

    /// Sends a last message (`final`). Receiving goes on.
    ///
    /// # Errors
    /// As [`send`](Connection::send).
    pub async fn send_final(&self, message: impl Into<Bytes>) -> Result<(), Error> {
        let properties = MessageProperties { final_message: true, ..lock(&self.defaults).clone() };
        self.send_with(message, &properties).await
    }

    /// Returns whether the first message, with which it was opened, was sent before the end of the handshake.
    pub(crate) fn has_sent_first(&self) -> bool {
        self.carrier.has_sent_first()
    }

    fn sending(&self, properties: &MessageProperties) -> Result<Sending, Error> {
        let policy = &self.group.context.policy;
        if policy.properties.selection.direction == Direction::UnidirectionalReceive {
            return Err(SendError::OnlyReceives.into());
        }
        let limits = self.message_limits();
        let connection = lock(&self.properties);
        Ok(Sending::new(properties, &connection, &self.group.context.candidate, limits, 0)?)
    }

    fn check_length(&self, length: usize, sending: &Sending) -> Result<(), Error> {
        let limits = self.message_limits();
        let exceeds = |max: &u32| length > *max as usize;
        if let Some(max) = limits.send_msg_max_len.filter(exceeds) {
            return Err(SendError::TooLarge { length, max }.into());
        }
        match limits.singular_transmission_msg_max_len.filter(exceeds) {
            Some(max) if sending.no_segmentation => {
                Err(SendError::NotSingular { length, max }.into())
            }
            _ => Ok(()),
        }
    }

    async fn hand_over(&self, mut message: Bytes, sending: Sending) -> Result<(), Error> {
        if self.state.load(Ordering::Relaxed) != ESTABLISHED {
            return Err(Error::Closed);
        }
        self.check_length(message.len(), &sending)?;
        if let Some(framing) = &self.framing {
            let mut out = Vec::with_capacity(message.len() + 16);
            let encoded = lock(framing).framer.encode(&message, &mut out);
            encoded.map_err(Error::lost)?;
            message = out.into();
        }
        let handed = poll_fn(|cx| self.carrier.poll_send(cx, &mut message, &sending));
        match sending.lifetime {
            None => handed.await,
            Some(lifetime) => timeout(lifetime, handed).await.unwrap_or(Err(Error::Expired)),
        }
    }

    /// Receives the next message whole, or, of a byte stream without framing, the octets that there are. Returns `None`
    /// when the peer sends nothing more.
    ///
    /// # Errors
    /// The connection has ended otherwise than by its peer's last message, or a message is larger than the limit.
    pub async fn receive(&self) -> Result<Option<Message>, Error> {
        poll_fn(|cx| self.poll_receive(cx)).await
    }

    /// As [`receive`](Connection::receive).
    pub fn poll_receive(&self, cx: &mut Context<'_>) -> Poll<Result<Option<Message>, Error>> {
        if !self.provides().has(Service::PreserveMsgBoundaries) {
            return self.poll_receive_part(cx);
        }
        loop {
            // One that ends behind the handshake is no copy.
            let Some(Message { bytes, is_end, is_early }) = ready!(self.poll_receive_part(cx))?
            else {
                return Poll::Ready(Ok(None));
            };
            let mut partial = lock(&self.partial);
            if is_end && partial.is_empty() {
                return Poll::Ready(Ok(Some(Message { bytes, is_end, is_early })));
            }
            let max = self.system.limits().message;
            if partial.len() + bytes.len() > max {
                return Poll::Ready(Err(Error::TooLarge { max }));
            }
            partial.extend_from_slice(&bytes);
            if is_end {
                let bytes = std::mem::take(&mut *partial).freeze();
                return Poll::Ready(Ok(Some(Message { bytes, is_end, is_early })));
            }
        }
    }

    /// Receives the next message, or the part of it that is there, for messages too large to be kept whole.
    ///
    /// # Errors
    /// As [`receive`](Connection::receive).
    pub async fn receive_part(&self) -> Result<Option<Message>, Error> {
        poll_fn(|cx| self.poll_receive_part(cx)).await
    }

    fn poll_receive_part(&self, cx: &mut Context<'_>) -> Poll<Result<Option<Message>, Error>> {
        if self.state.load(Ordering::Relaxed) == CLOSED {
            return Poll::Ready(Err(Error::Closed));
        }
        let Some(framing) = &self.framing else {
            // What the peer has abandoned is left out.
            loop {
                let part = ready!(self.carrier.poll_receive(cx))?;
                if part.as_ref().is_some_and(|part| part.cut) {
                    lock(&self.partial).clear();
                    continue;
                }
                let message = |Part { bytes, end, early, .. }| Message {
                    bytes,
                    is_end: end,
                    is_early: early,
                };
                return Poll::Ready(Ok(part.map(message)));
            }
        };
        loop {
            let Framing { framer, input, is_early, ended } = &mut *lock(framing);
            if let Some(bytes) = framer.decode(input).map_err(Error::lost)? {
                let is_early = *is_early;
                return Poll::Ready(Ok(Some(Message { bytes, is_end: true, is_early })));
            }
            if *ended {
                let cut = !input.is_empty();
                let result = if cut { Err(Error::lost("within a message")) } else { Ok(None) };
                return Poll::Ready(result);
            }
            let max = self.system.limits().message;
            if input.len() > max {
                return Poll::Ready(Err(Error::TooLarge { max }));
            }
            match ready!(self.carrier.poll_receive(cx))? {
                Some(part) => {
                    *is_early = part.early;
                    input.extend_from_slice(&part.bytes);
                }
                None => *ended = true,
            }
        }
    }

    /// Adds another connection to the group: a stream of the same transport connection if the protocol has streams, else
    /// another transport connection (RFC 9622 section 7.4).
    ///
    /// # Errors
    /// The group has no stream left, or no attempt connected.
    pub async fn clone(&self) -> Result<Connection, Error> {
        self.system.join(&self.group).await
    }

    /// Accepts a connection that the peer has added to the group of a connection which was opened here. Those of a group
    /// that a listener has accepted are delivered by the listener.
    ///
    /// # Errors
    /// The group has ended, or comes from a listener.
    pub async fn accept(&self) -> Result<Connection, Error> {
        self.group.accept().await
    }

    /// Waits for the next event besides messages.
    pub async fn event(&self) -> Event {
        poll_fn(|cx| self.carrier.poll_event(cx)).await
    }

    /// Closes the connection, behind what was sent, and waits until that was handed to the transport. What the peer still
    /// sends is dropped. Other connections of the group stay.
    ///
    /// # Errors
    /// The connection has ended before.
    pub async fn close(&self) -> Result<(), Error> {
        let before = self.state.swap(CLOSING, Ordering::Relaxed);
        if before != ESTABLISHED {
            self.state.store(before, Ordering::Relaxed);
            return Err(Error::Closed);
        }
        let flushed = poll_fn(|cx| self.carrier.poll_flushed(cx)).await;
        self.release();
        flushed
    }

    /// Ends the connection at once: what was not delivered is lost, and the peer sees an error, if the protocol can report
    /// one. Other connections of the group stay.
    pub fn abort(&self) {
        if self.state.swap(CLOSED, Ordering::Relaxed) != CLOSED {
            self.carrier.abort(0);
            self.system.release_aborted(&self.group, self.id);
        }
    }

    /// Ends all connections of the group at once (`AbortGroup`).
    pub fn abort_group(&self) {
        self.abort();
        self.group.abort();
        self.system.ended(self.group.id);
    }

    fn release(&self) {
        if self.state.swap(CLOSED, Ordering::Relaxed) != CLOSED {
            self.carrier.close();
            self.system.release(&self.group, self.id);
        }
    }

    /// Returns the protocol.
    pub fn protocol(&self) -> Protocol {
        self.candidate().protocol
    }

    /// Returns the candidate that was chosen.
    pub fn candidate(&self) -> &Candidate {
        &self.group.context.candidate
    }

    /// Returns which services the connection has (RFC 9622 section 6.2).
    pub fn provides(&self) -> Provided {
        self.candidate().provides
    }

    /// Returns why this protocol was chosen and not another.
    pub fn explain(&self) -> &Explanation {
        &self.group.context.explanation
    }

    /// Returns the state (RFC 9622 section 8.1.11.1).
    pub fn state(&self) -> ConnectionState {
        match self.state.load(Ordering::Relaxed) {
            ESTABLISHED => ConnectionState::Established,
            CLOSING => ConnectionState::Closing,
            _ => ConnectionState::Closed,
        }
    }

    /// Returns the local address.
    pub fn local_address(&self) -> SocketAddr {
        self.group.context.local
    }

    /// Returns the peer's address.
    pub fn remote_address(&self) -> SocketAddr {
        self.group.context.remote
    }

    /// Returns the paths; one, unless the protocol uses several addresses.
    pub fn paths(&self) -> Vec<Path> {
        let mut paths = self.carrier.paths();
        if paths.is_empty() {
            paths.push(Path {
                local: self.local_address(),
                remote: self.remote_address(),
                works: true,
                is_primary: true,
                mtu: None,
            });
        }
        paths
    }

    /// Returns the limits of messages (RFC 9622 section 8.1.11).
    pub fn message_limits(&self) -> MessageLimits {
        self.carrier.limits().unwrap_or(self.limits)
    }

    /// Returns the properties that can be changed.
    pub fn properties(&self) -> ConnectionProperties {
        lock(&self.properties).clone()
    }

    /// Returns a property by its name: a selection property as whether the service is there, else its value.
    pub fn property(&self, name: &str) -> Option<String> {
        if let Some(has) = self.provides().get(name) {
            return Some(has.to_string());
        }
        let mut properties = self.group.context.policy.properties.clone();
        properties.connection = self.properties();
        properties.message = lock(&self.defaults).clone();
        properties.get(name)
    }

    /// Sets the priority among the connections of the group; a lower number goes first (`connPriority`).
    pub fn set_priority(&self, priority: u32) {
        lock(&self.properties).conn_priority = priority;
        self.carrier.set_priority(priority);
    }

    /// Sets how many octets of a received message a checksum must cover; `None` for all (`recvChecksumLen`).
    ///
    /// # Errors
    /// The protocol always covers all, and less was asked for.
    pub fn set_receive_coverage(&self, octets: Option<u32>) -> Result<(), Error> {
        self.carrier.set_receive_coverage(octets)?;
        lock(&self.properties).recv_checksum_len.0 = octets;
        Ok(())
    }

    /// Sets the default properties of messages.
    pub fn set_message_defaults(&self, properties: MessageProperties) {
        *lock(&self.defaults) = properties;
    }

    /// Returns the default properties of messages.
    pub fn message_defaults(&self) -> MessageProperties {
        lock(&self.defaults).clone()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.release();
    }
}
