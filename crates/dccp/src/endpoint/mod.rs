//! The DCCP of a host: listeners, connections by their addresses, Init Cookies, TIMEWAIT, and answers to
//! packets without a connection.
//!
//! This file holds the tables and the user's calls. `packets` handles packets and timers, and finds the
//! connection of a packet. `opening` handles Requests.

mod cookie;
mod key;
mod opening;
mod packets;
mod time_wait;

use crate::connection::{Close, Connection, Ends, Snapshot, State};
use crate::queue::SendOptions;
use crate::seq::Seq;
use crate::settings::{
    CallError, ConnectError, INVALID_SERVICE, Limits, ListenError, SendError, SettingError,
    Settings,
};
use crate::wire::Quoted;
use bytes::Bytes;
use cookie::Keys;
use core::fmt;
use hashbrown::HashMap;
use key::Key;
use ringway_sansio::{Addressing, Deadlines, Icmp, Random, Time};
use ringway_transport::{Holdings, Keyed, Shares, number};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use time_wait::TimeWait;

/// First ephemeral port (RFC 6335 section 6).
const EPHEMERAL_FIRST: u16 = 49_152;
/// Number of ephemeral ports.
const EPHEMERAL_COUNT: u16 = u16::MAX - EPHEMERAL_FIRST + 1;
/// Maximum number of packets without a connection that wait to be sent. More are dropped and counted.
pub const MAX_REPLIES: usize = 256;

/// Identifies a connection for as long as it exists. It is never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ConnId {
    slot: u32,
    generation: u32,
}

/// Identifies a listener. It is never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ListenerId {
    slot: u32,
    generation: u32,
}

/// An event. At most one of each kind waits per connection, so the number of waiting events is bounded by
/// the number of connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The connection is established. It was opened by the local endpoint or, at a listener, by the peer.
    Open {
        /// The connection.
        id: ConnId,
        /// The listener that accepted it.
        listener: Option<ListenerId>,
    },
    /// A message can be read. Read until nothing is left: the event is repeated only when more arrives.
    Readable(ConnId),
    /// A message was refused because the queue was full, and a quarter of the queue is free again.
    Writable(ConnId),
    /// The connection has ended. Received messages can still be read. The id becomes invalid when all are
    /// read. This is the last event of a connection.
    Closed(ConnId, Close),
}

/// Counters of a host's DCCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Packets received.
    pub received: u64,
    /// Packets that were invalid, or had an address that is not allowed.
    pub malformed: u64,
    /// Packets with a wrong checksum.
    pub checksum: u64,
    /// Packets without a connection.
    pub stray: u64,
    /// Packets without a connection that were not answered because the rate limit or their source's share was used up.
    pub strays_limited: u64,
    /// Requests received by listeners.
    pub requests: u64,
    /// Requests answered with an Init Cookie.
    pub cookies: u64,
    /// Requests not answered with an Init Cookie because the rate limit or their source's share was used up.
    pub cookies_limited: u64,
    /// Requests whose options are too long for an Init Cookie.
    pub cookies_too_long: u64,
    /// Init Cookies that were not made here, or had expired.
    pub cookies_refused: u64,
    /// Requests for a service that the listener does not have.
    pub wrong_service: u64,
    /// Connections refused because the limit or their source's share was reached.
    pub connections_full: u64,
    /// Resets sent.
    pub resets: u64,
    /// Answers not sent because the queue was full.
    pub replies_full: u64,
    /// Address pairs in TIMEWAIT evicted before their time.
    pub time_wait_evicted: u64,
    /// ICMP messages that name no connection and none of its packets.
    pub icmp_refused: u64,
}

struct Slot {
    generation: u32,
    connection: Option<Box<Connection>>,
    /// Whether the table contains it.
    listed: bool,
    /// Whether it is in the queue of connections that may have a packet to send.
    ready: bool,
    /// Whether it is in the queue of connections with events.
    notified: bool,
    listener: Option<ListenerId>,
    /// Whether it holds room of its listener's half-open connections.
    half_open: bool,
    /// Whether it holds room of the accepted connections.
    accepted: bool,
}

struct Listener {
    generation: u32,
    /// Its address and port; `None` if the slot is free.
    address: Option<SocketAddr>,
    services: Vec<u32>,
    settings: Arc<Settings>,
    half_open: Holdings,
}

/// A packet without a connection.
struct Reply {
    way: Addressing,
    bytes: Vec<u8>,
}

/// The DCCP of one host.
pub struct Dccp {
    limits: Limits,
    settings: Arc<Settings>,
    /// The settings of the last call. Connections with equal settings share them.
    last_settings: Arc<Settings>,
    random: Box<dyn Random + Send>,
    cookies: Keys,
    slots: Vec<Slot>,
    free: Vec<u32>,
    table: HashMap<Key, u32, Keyed>,
    listeners: Vec<Listener>,
    listening: HashMap<(u128, u16), u32, Keyed>,
    time_wait: TimeWait,
    deadlines: Deadlines,
    ready: VecDeque<u32>,
    notices: VecDeque<u32>,
    replies: VecDeque<Reply>,
    /// Connections that peers have opened.
    accepted: Holdings,
    strays: Shares,
    cookie_shares: Shares,
    next_port: u16,
    counters: Counters,
}

impl fmt::Debug for Dccp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dccp").field("connections", &self.len()).finish_non_exhaustive()
    }
}

/// Returns whether an address is that of one host.
fn is_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !v4.is_multicast() && !v4.is_broadcast() && !v4.is_unspecified(),
        IpAddr::V6(v6) => !v6.is_multicast() && !v6.is_unspecified(),
    }
}

impl Dccp {
    /// Creates a host without connections. `settings` are the defaults of all connections. `random`
    /// supplies sequence numbers and keys, so outside tests it must be unpredictable (RFC 4340 section
    /// 7.2).
    pub fn new(
        limits: Limits,
        settings: Settings,
        mut random: Box<dyn Random + Send>,
    ) -> Result<Dccp, SettingError> {
        settings.check()?;
        let mut keyed = || Keyed(random.next_u64(), random.next_u64());
        let (table, listening, waiting) = (keyed(), keyed(), keyed());
        let next_port = random.next_u64() as u16;
        let settings = Arc::new(settings);
        Ok(Dccp {
            limits,
            last_settings: Arc::clone(&settings),
            settings,
            cookies: Keys::new(limits.cookie_key_life, &mut *random),
            random,
            slots: Vec::new(),
            free: Vec::new(),
            table: HashMap::with_hasher(table),
            listeners: Vec::new(),
            listening: HashMap::with_hasher(listening),
            time_wait: TimeWait::new(waiting, limits.time_wait, limits.time_wait_for),
            deadlines: Deadlines::default(),
            ready: VecDeque::new(),
            notices: VecDeque::new(),
            replies: VecDeque::new(),
            accepted: Holdings::new(limits.connections),
            strays: Shares::new(limits.strays_per_second, table),
            cookie_shares: Shares::new(limits.cookies_per_second, table),
            next_port,
            counters: Counters::default(),
        })
    }

    /// Returns the settings of a call, or the default ones.
    fn shared(&mut self, settings: Option<Settings>) -> Result<Arc<Settings>, SettingError> {
        let Some(settings) = settings else { return Ok(Arc::clone(&self.settings)) };
        settings.check()?;
        if settings != *self.last_settings {
            self.last_settings = Arc::new(settings);
        }
        Ok(Arc::clone(&self.last_settings))
    }

    /// Listens for Requests for one of `services` (RFC 4340 section 8.1.2). An unspecified address stands
    /// for every local one. Packets in UDP are accepted as well.
    pub fn listen(
        &mut self,
        address: SocketAddr,
        services: &[u32],
        settings: Option<Settings>,
    ) -> Result<ListenerId, ListenError> {
        let settings = self.shared(settings)?;
        let ip = address.ip();
        if address.port() == 0 || !(is_unicast(ip) || ip.is_unspecified()) {
            return Err(ListenError::Address);
        }
        let limit = self.limits.services;
        if !(1..=limit).contains(&services.len()) {
            return Err(ListenError::Services { limit, got: services.len() });
        }
        if services.contains(&INVALID_SERVICE) {
            return Err(ListenError::InvalidService);
        }
        let key = (number(ip), address.port());
        if self.listening.contains_key(&key) {
            return Err(ListenError::InUse);
        }
        let services = services.to_vec();
        let half_open = Holdings::new(self.limits.half_open);
        let address = Some(address);
        let listener = Listener { generation: 0, address, services, settings, half_open };
        let slot = match self.listeners.iter().position(|l| l.address.is_none()) {
            Some(slot) => {
                let generation = self.listeners[slot].generation.wrapping_add(1);
                self.listeners[slot] = Listener { generation, ..listener };
                slot
            }
            None if self.listeners.len() >= self.limits.listeners => {
                return Err(ListenError::Full { limit: self.limits.listeners });
            }
            None => {
                self.listeners.push(listener);
                self.listeners.len() - 1
            }
        } as u32;
        self.listening.insert(key, slot);
        Ok(ListenerId { slot, generation: self.listeners[slot as usize].generation })
    }

    /// Closes a listener. Its connections stay.
    pub fn unlisten(&mut self, id: ListenerId) -> Result<(), CallError> {
        let listener = self
            .listeners
            .get_mut(id.slot as usize)
            .filter(|listener| listener.generation == id.generation)
            .ok_or(CallError::NoListener)?;
        let address = listener.address.take().ok_or(CallError::NoListener)?;
        self.listening.remove(&(number(address.ip()), address.port()));
        Ok(())
    }

    /// Opens a connection to a service (RFC 4340 section 8.1.1). Port 0 chooses a free ephemeral port.
    /// [`Event::Open`] or [`Event::Closed`] follows. Messages can be queued at once.
    pub fn connect(
        &mut self,
        now: Time,
        local: SocketAddr,
        remote: SocketAddr,
        service: u32,
        settings: Option<Settings>,
    ) -> Result<ConnId, ConnectError> {
        let settings = self.shared(settings)?;
        let one_family = local.is_ipv4() == remote.is_ipv4();
        if remote.port() == 0 || !one_family || !is_unicast(local.ip()) || !is_unicast(remote.ip())
        {
            return Err(ConnectError::Address);
        }
        if service == INVALID_SERVICE {
            return Err(ConnectError::InvalidService);
        }
        let limit = self.limits.connections;
        if self.len() >= limit {
            return Err(ConnectError::Full { limit });
        }
        self.time_wait.expire(now);
        let udp_port = settings.udp_port.unwrap_or(0);
        let local = match local.port() {
            0 => self.free_port(local.ip(), remote, udp_port).ok_or(ConnectError::NoPort)?,
            _ if self.is_free(local, remote, udp_port) => local,
            _ => return Err(ConnectError::InUse),
        };
        let ends = Ends { local, remote, udp_port };
        let iss = Seq::new(self.random.next_u64());
        let connection = Connection::connect(now, ends, settings, service, iss);
        let slot = self.insert(connection, None);
        self.settle(now, slot);
        Ok(self.id(slot))
    }

    /// Queues a message.
    ///
    /// # Errors
    /// [`SendError::Full`] when the queue has no room and `options` do not make any.
    pub fn send(
        &mut self,
        now: Time,
        id: ConnId,
        data: impl Into<Bytes>,
        options: SendOptions,
    ) -> Result<(), SendError> {
        let slot = self.slot(id).ok_or(SendError::NoConnection)?;
        let connection = self.connection_mut(slot).ok_or(SendError::NoConnection)?;
        connection.send(now, data.into(), options)?;
        self.wake(slot);
        Ok(())
    }

    /// Returns the next message that was received; `None` when none waits.
    pub fn recv(&mut self, id: ConnId) -> Result<Option<Bytes>, CallError> {
        let slot = self.slot(id).ok_or(CallError::NoConnection)?;
        let connection = self.connection_mut(slot).ok_or(CallError::NoConnection)?;
        let message = connection.read();
        if connection.is_spent() {
            self.release(slot);
        }
        Ok(message)
    }

    /// Closes a connection: queued messages are sent first, within a time limit (RFC 4340 section 8.3).
    pub fn close(&mut self, now: Time, id: ConnId) -> Result<(), CallError> {
        let slot = self.slot(id).ok_or(CallError::NoConnection)?;
        if let Some(connection) = self.connection_mut(slot) {
            connection.close(now);
        }
        self.settle(now, slot);
        Ok(())
    }

    /// Resets a connection and releases it. No event follows.
    pub fn abort(&mut self, now: Time, id: ConnId) -> Result<(), CallError> {
        let slot = self.slot(id).ok_or(CallError::NoConnection)?;
        if let Some(connection) = self.connection_mut(slot) {
            connection.abort();
        }
        self.settle(now, slot);
        if self.slots[slot as usize].generation == id.generation {
            self.release(slot);
        }
        Ok(())
    }

    /// Handles an ICMP message about a packet that was sent, whose addresses are in `sent` (RFC 4340
    /// section 14.1, RFC 1122 section 3.2.2). `quoted` is the part of the packet in the message, from the DCCP header on. A
    /// message that names no connection, or none of its recent packets, is counted and ignored.
    pub fn handle_icmp(&mut self, now: Time, sent: &Addressing, icmp: Icmp, quoted: &[u8]) {
        let slot = Quoted::parse(quoted).and_then(|quoted| {
            let local = SocketAddr::new(sent.source, quoted.source);
            let remote = SocketAddr::new(sent.destination, quoted.destination);
            let slot = *self.table.get(&Key::new(local, remote, sent.udp_port))?;
            let connection = self.connection_mut(slot)?;
            connection.handle_icmp(icmp, &quoted).then_some(slot)
        });
        match slot {
            Some(slot) => self.settle(now, slot),
            None => self.counters.icmp_refused += 1,
        }
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        while let Some(&slot) = self.notices.front() {
            if let Some(event) = self.take_event(slot) {
                return Some(event);
            }
            self.notices.pop_front();
            self.slots[slot as usize].notified = false;
        }
        None
    }

    fn take_event(&mut self, slot: u32) -> Option<Event> {
        let id = self.id(slot);
        let entry = &mut self.slots[slot as usize];
        let listener = entry.listener;
        let connection = entry.connection.as_mut()?;
        let pending = connection.pending();
        if core::mem::take(&mut pending.open) {
            return Some(Event::Open { id, listener });
        }
        if core::mem::take(&mut pending.readable) {
            return Some(Event::Readable(id));
        }
        if core::mem::take(&mut pending.writable) {
            return Some(Event::Writable(id));
        }
        let why = pending.closed.take()?;
        if connection.is_spent() {
            self.release(slot);
        }
        Some(Event::Closed(id, why))
    }

    /// Returns the state of a connection.
    pub fn snapshot(&self, id: ConnId) -> Result<Snapshot, CallError> {
        let slot = self.slot(id).ok_or(CallError::NoConnection)?;
        let connection = self.slots[slot as usize].connection.as_ref();
        Ok(connection.ok_or(CallError::NoConnection)?.snapshot())
    }

    /// Returns the local and the remote address and port of a connection.
    pub fn addresses(&self, id: ConnId) -> Result<(SocketAddr, SocketAddr), CallError> {
        let slot = self.slot(id).ok_or(CallError::NoConnection)?;
        let connection = self.slots[slot as usize].connection.as_ref();
        let ends = connection.ok_or(CallError::NoConnection)?.ends();
        Ok((ends.local, ends.remote))
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the number of connections, including ended ones with unread messages.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of address pairs in TIMEWAIT.
    pub fn time_wait(&self) -> usize {
        self.time_wait.len()
    }

    fn id(&self, slot: u32) -> ConnId {
        ConnId { slot, generation: self.slots[slot as usize].generation }
    }

    fn slot(&self, id: ConnId) -> Option<u32> {
        let entry = self.slots.get(id.slot as usize)?;
        (entry.generation == id.generation && entry.connection.is_some()).then_some(id.slot)
    }

    fn connection_mut(&mut self, slot: u32) -> Option<&mut Connection> {
        self.slots.get_mut(slot as usize)?.connection.as_deref_mut()
    }

    fn is_free(&self, local: SocketAddr, remote: SocketAddr, udp_port: u16) -> bool {
        let key = Key::new(local, remote, udp_port);
        !self.table.contains_key(&key) && !self.time_wait.contains(&key)
    }

    fn free_port(&mut self, ip: IpAddr, remote: SocketAddr, udp_port: u16) -> Option<SocketAddr> {
        for _ in 0..EPHEMERAL_COUNT {
            self.next_port = self.next_port.wrapping_add(1);
            let port = EPHEMERAL_FIRST + self.next_port % EPHEMERAL_COUNT;
            let local = SocketAddr::new(ip, port);
            let listens = self.listening.contains_key(&(number(ip), port));
            if !listens && self.is_free(local, remote, udp_port) {
                return Some(local);
            }
        }
        None
    }

    fn insert(&mut self, connection: Connection, listener: Option<ListenerId>) -> u32 {
        let ends = *connection.ends();
        let source = ends.remote.ip();
        let half_open = connection.state() == State::Respond
            && listener.is_some_and(|id| self.listeners[id.slot as usize].half_open.take(source));
        let accepted = listener.is_some() && self.accepted.take(source);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                connection: None,
                listed: false,
                ready: false,
                notified: false,
                listener: None,
                half_open: false,
                accepted: false,
            });
            self.slots.len() as u32 - 1
        });
        let entry = &mut self.slots[slot as usize];
        entry.connection = Some(Box::new(connection));
        entry.listener = listener;
        (entry.half_open, entry.accepted) = (half_open, accepted);
        entry.listed = true;
        self.table.insert(Key::new(ends.local, ends.remote, ends.udp_port), slot);
        slot
    }

    /// Removes a connection from the table.
    fn unlist(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        if !core::mem::take(&mut entry.listed) {
            return;
        }
        let Some(connection) = &entry.connection else { return };
        let ends = connection.ends();
        self.table.remove(&Key::new(ends.local, ends.remote, ends.udp_port));
    }

    /// Notes that a handshake at a listener is over.
    fn leave_half_open(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        if core::mem::take(&mut entry.half_open)
            && let Some(connection) = &entry.connection
            && let Some(id) = entry.listener
            && let Some(listener) = self.listeners.get_mut(id.slot as usize)
            && listener.generation == id.generation
        {
            listener.half_open.release(connection.ends().remote.ip());
        }
    }

    /// Releases a connection. Its entries in the queues stay and are skipped there.
    fn release(&mut self, slot: u32) {
        self.unlist(slot);
        self.leave_half_open(slot);
        let entry = &mut self.slots[slot as usize];
        let Some(connection) = entry.connection.take() else { return };
        if core::mem::take(&mut entry.accepted) {
            self.accepted.release(connection.ends().remote.ip());
        }
        entry.generation = entry.generation.wrapping_add(1);
        entry.listener = None;
        self.deadlines.set(slot, None);
        self.free.push(slot);
    }

    fn reply(&mut self, reply: Reply) {
        if self.replies.len() < MAX_REPLIES {
            self.replies.push_back(reply);
        } else {
            self.counters.replies_full += 1;
        }
    }

    fn wake(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        if !core::mem::replace(&mut entry.ready, true) {
            self.ready.push_back(slot);
        }
    }

    /// Updates the tables after a change of a connection. Its deadline is set once it has nothing left to
    /// send, which is always polled next.
    fn settle(&mut self, now: Time, slot: u32) {
        let Some(connection) = self.connection_mut(slot) else { return };
        let (state, notify) = (connection.state(), connection.has_events());
        if state != State::Respond {
            self.leave_half_open(slot);
        }
        if state == State::Closed {
            self.finish(now, slot);
        }
        let entry = &mut self.slots[slot as usize];
        if notify && !core::mem::replace(&mut entry.notified, true) {
            self.notices.push_back(slot);
        }
        if entry.connection.as_ref().is_some_and(|connection| connection.is_spent()) {
            self.release(slot);
            return;
        }
        self.wake(slot);
    }

    /// Sends the final Reset of an ended connection, and has its address pair rest.
    fn finish(&mut self, now: Time, slot: u32) {
        let listed = self.slots[slot as usize].listed;
        let Some(connection) = self.connection_mut(slot) else { return };
        let ends = *connection.ends();
        let rests = connection.rests();
        if let Some(reset) = connection.take_final_reset() {
            let mut bytes = Vec::new();
            let way = connection.transmit_reset(now, reset, &mut bytes);
            self.counters.resets += 1;
            self.reply(Reply { way, bytes });
        }
        if rests && listed {
            let key = Key::new(ends.local, ends.remote, ends.udp_port);
            self.counters.time_wait_evicted += u64::from(self.time_wait.add(now, key));
        }
        self.unlist(slot);
    }
}
