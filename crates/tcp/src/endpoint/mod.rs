//! The TCP of a host: listeners, connections by their addresses, TIME-WAIT, resets.
//!
//! This file holds the table and the application's calls. `packets` handles packets and timers, and
//! finds the connection of a packet.

mod packets;
mod time_wait;

use crate::connection::{Close, Connection, Snapshot, State};
use crate::segment::{Flags, Header};
use crate::seq::Seq;
use crate::settings::{Error, Limits, Settings};
use hashbrown::HashMap;
use ringway_sansio::{Deadlines, Random, Time};
use ringway_transport::{Key, Keyed, number};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use time_wait::{TimeWait, Waiting};

/// First ephemeral port (RFC 6335 section 6).
const EPHEMERAL_FIRST: u16 = 49_152;
/// Number of ephemeral ports.
const EPHEMERAL_COUNT: u16 = u16::MAX - EPHEMERAL_FIRST + 1;
/// Maximum number of segments without a connection that wait to be sent. More are dropped and counted.
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

/// An event. At most one of each kind waits per connection until it is polled, so the number of waiting
/// events is bounded by the number of connections and listeners.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// At least one connection waits for [`Tcp::accept`]. Accept all: the event is reported once for
    /// those that wait.
    Incoming(ListenerId),
    /// A connection opened by [`Tcp::connect`] is established.
    Connected(ConnId),
    /// Data can be read. Read until nothing is left: the event is repeated only when more arrives.
    Readable(ConnId),
    /// A write was cut short, and a quarter of the buffer is free again.
    Writable(ConnId),
    /// The peer has sent its last byte. Data before it can still be read.
    PeerClosed(ConnId),
    /// The connection has ended. Received data can still be read. The id becomes invalid when all is
    /// read. This is the last event of a connection.
    Closed(ConnId, Close),
}

/// Counters of a host's TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Packets received.
    pub received: u64,
    /// Packets that were no valid segment, or had an address that is not allowed.
    pub malformed: u64,
    /// Segments without a connection.
    pub stray: u64,
    /// Resets sent.
    pub resets: u64,
    /// SYNs dropped because the listener's backlog was full.
    pub backlog_full: u64,
    /// SYNs dropped because too many handshakes were in progress.
    pub half_open_full: u64,
    /// Connections refused because the limit was reached.
    pub connections_full: u64,
    /// Connections that left TIME-WAIT early to make room.
    pub time_wait_full: u64,
    /// Resets and other answers not sent because the queue was full.
    pub replies_full: u64,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    connection: Option<Box<Connection>>,
    key: Key,
    /// Whether the table contains it.
    listed: bool,
    /// Whether it is in the queue of connections that may have a segment to send.
    ready: bool,
    /// Whether it is in the queue of events.
    notified: bool,
    /// The listener it came from, until it is accepted.
    listener: Option<ListenerId>,
    half_open: bool,
}

#[derive(Debug)]
struct Listener {
    generation: u32,
    /// Its address; `None` if the slot is free.
    address: Option<(u128, u16)>,
    settings: Settings,
    backlog: usize,
    half_open: usize,
    queue: VecDeque<ConnId>,
    notified: bool,
}

#[derive(Clone, Copy, Debug)]
enum TableEntry {
    Connection(u32),
    TimeWait(u32),
}

/// A connection with its addresses and its ports, local and remote.
#[derive(Clone, Copy, Debug)]
struct Recent {
    local: IpAddr,
    remote: IpAddr,
    ports: (u16, u16),
    slot: u32,
}

#[derive(Clone, Copy, Debug)]
enum Notice {
    Connection(u32),
    Listener(u32),
}

#[derive(Clone, Copy, Debug)]
struct Reply {
    source: IpAddr,
    destination: IpAddr,
    header: Header,
}

/// The TCP of one host.
#[derive(Debug)]
pub struct Tcp {
    limits: Limits,
    settings: Settings,
    secret: Keyed,
    stamp_secret: Keyed,
    slots: Vec<Slot>,
    free: Vec<u32>,
    table: HashMap<Key, TableEntry, Keyed>,
    /// The connection found last, which the next packet most often belongs to.
    recent: Option<Recent>,
    listeners: Vec<Listener>,
    listening: HashMap<(u128, u16), u32, Keyed>,
    time_wait: TimeWait,
    deadlines: Deadlines,
    ready: VecDeque<u32>,
    notices: VecDeque<Notice>,
    replies: VecDeque<Reply>,
    next_port: u16,
    /// Whether the world takes care of checksums.
    offload: bool,
    counters: Counters,
}

impl Tcp {
    /// Creates a host without connections. `settings` are the defaults of all connections. `random`
    /// supplies the secrets from which sequence numbers, ports and timestamps are derived (RFC 9293
    /// section 3.4.1, RFC 6056 section 3.3.3, RFC 7323 section 5.4).
    pub fn new(
        limits: Limits,
        settings: Settings,
        random: &mut impl Random,
    ) -> Result<Self, Error> {
        settings.check()?;
        let mut keyed = || Keyed(random.next_u64(), random.next_u64());
        Ok(Tcp {
            limits,
            settings,
            secret: keyed(),
            stamp_secret: keyed(),
            table: HashMap::with_hasher(keyed()),
            listening: HashMap::with_hasher(keyed()),
            slots: Vec::new(),
            free: Vec::new(),
            recent: None,
            listeners: Vec::new(),
            time_wait: TimeWait::new(),
            deadlines: Deadlines::default(),
            ready: VecDeque::new(),
            notices: VecDeque::new(),
            replies: VecDeque::new(),
            next_port: 0,
            offload: false,
            counters: Counters::default(),
        })
    }

    /// Listens for connections to `local`, whose address may be unspecified. At most `backlog`
    /// connections wait to be accepted, without handshakes in progress.
    pub fn listen(
        &mut self,
        local: SocketAddr,
        backlog: usize,
        settings: Option<Settings>,
    ) -> Result<ListenerId, Error> {
        let settings = settings.unwrap_or(self.settings);
        settings.check()?;
        let address = (number(local.ip()), local.port());
        if local.port() == 0 || local.ip().is_multicast() {
            return Err(Error::Address);
        }
        if self.listening.contains_key(&address) {
            return Err(Error::InUse);
        }
        let limit = self.limits.listeners;
        if self.listening.len() >= limit {
            return Err(Error::Full { what: "listeners", limit });
        }
        let listener = Listener {
            generation: 0,
            address: Some(address),
            settings,
            backlog: backlog.max(1),
            half_open: 0,
            queue: VecDeque::new(),
            notified: false,
        };
        let slot = match self.listeners.iter().position(|l| l.address.is_none()) {
            Some(slot) => {
                let generation = self.listeners[slot].generation + 1;
                self.listeners[slot] = Listener { generation, ..listener };
                slot
            }
            None => {
                self.listeners.push(listener);
                self.listeners.len() - 1
            }
        } as u32;
        self.listening.insert(address, slot);
        Ok(ListenerId { slot, generation: self.listeners[slot as usize].generation })
    }

    /// Closes a listener. Connections that were not accepted are reset (RFC 9293 section 3.10.4).
    pub fn unlisten(&mut self, now: Time, id: ListenerId) -> Result<(), Error> {
        let listener = self.listener(id).ok_or(Error::NoListener)?;
        let address = listener.address.take();
        listener.queue.clear();
        if let Some(address) = address {
            self.listening.remove(&address);
        }
        for slot in 0..self.slots.len() as u32 {
            if self.slots[slot as usize].listener == Some(id) {
                self.abort_slot(now, slot);
            }
        }
        Ok(())
    }

    /// Opens a connection (RFC 9293 section 3.10.1). Port 0 of `local` chooses a free ephemeral port.
    /// [`Event::Connected`] or [`Event::Closed`] follows.
    pub fn connect(
        &mut self,
        now: Time,
        local: SocketAddr,
        remote: SocketAddr,
        settings: Option<Settings>,
    ) -> Result<ConnId, Error> {
        let settings = settings.unwrap_or(self.settings);
        settings.check()?;
        if local.is_ipv4() != remote.is_ipv4()
            || remote.port() == 0
            || !is_unicast(local.ip())
            || !is_unicast(remote.ip())
        {
            return Err(Error::Address);
        }
        let local = match local.port() {
            0 => SocketAddr::new(local.ip(), self.free_port(local.ip(), remote)?),
            _ => local,
        };
        let key = Key::between(local, remote);
        if self.table.contains_key(&key) {
            return Err(Error::InUse);
        }
        let limit = self.limits.connections;
        if self.slots.len() - self.free.len() >= limit {
            self.counters.connections_full += 1;
            return Err(Error::Full { what: "connections", limit });
        }
        let (iss, stamp) = self.initial_numbers(now, key, local.ip(), remote.ip());
        let connection = Connection::connect(local, remote, &settings, iss, stamp, now);
        let slot = self.insert(key, connection);
        self.settle(now, slot);
        Ok(self.id(slot))
    }

    /// Returns the next connection that waits at a listener.
    pub fn accept(&mut self, id: ListenerId) -> Option<ConnId> {
        loop {
            let conn = self.listener(id)?.queue.pop_front()?;
            // A connection that ended before it was accepted is still in the queue.
            if let Some(slot) = self.slot(conn) {
                let entry = &mut self.slots[slot as usize];
                entry.listener = None;
                if let Some(connection) = &mut entry.connection {
                    connection.note_accepted();
                }
                self.announce(slot);
                return Some(conn);
            }
        }
    }

    /// Writes as many bytes as fit the send buffer and returns their number. A write that was cut short
    /// is followed by [`Event::Writable`].
    pub fn write(&mut self, now: Time, id: ConnId, data: &[u8]) -> Result<usize, Error> {
        let slot = self.slot(id).ok_or(Error::NoConnection)?;
        let connection = self.connection_mut(slot).ok_or(Error::NoConnection)?;
        let count = connection.write(now, data)?;
        self.wake(slot);
        Ok(count)
    }

    /// Returns the number of bytes that a write would accept now.
    pub fn write_space(&self, id: ConnId) -> Result<usize, Error> {
        self.connection(id).map(Connection::write_space).ok_or(Error::NoConnection)
    }

    /// Reads as many bytes as fit `out`. Returns their number, 0 when nothing waits. After
    /// [`Event::PeerClosed`], 0 is the end of the stream.
    pub fn read(&mut self, now: Time, id: ConnId, out: &mut [u8]) -> Result<usize, Error> {
        let slot = self.slot(id).ok_or(Error::NoConnection)?;
        let connection = self.connection_mut(slot).ok_or(Error::NoConnection)?;
        let count = connection.read(out);
        self.after_read(now, slot);
        Ok(count)
    }

    /// Returns the data that waits to be read, in two parts, without copying. [`Tcp::consume`] removes
    /// it.
    pub fn peek(&self, id: ConnId) -> Result<(&[u8], &[u8]), Error> {
        self.connection(id).map(Connection::peek).ok_or(Error::NoConnection)
    }

    /// Removes `count` bytes of the data that waits to be read.
    pub fn consume(&mut self, now: Time, id: ConnId, count: usize) -> Result<(), Error> {
        let slot = self.slot(id).ok_or(Error::NoConnection)?;
        self.connection_mut(slot).ok_or(Error::NoConnection)?.consume(count);
        self.after_read(now, slot);
        Ok(())
    }

    fn after_read(&mut self, now: Time, slot: u32) {
        let Some(connection) = self.connection_mut(slot) else { return };
        if connection.state == State::Closed || connection.state == State::TimeWait {
            self.settle(now, slot);
        } else if connection.owes_ack() {
            self.wake(slot);
        }
    }

    /// Closes the sending direction: a FIN follows the written data (RFC 9293 section 3.10.4, CLOSE).
    /// The other direction stays open. Before the peer has answered, the connection is released, and no
    /// event follows.
    pub fn shutdown(&mut self, now: Time, id: ConnId) -> Result<(), Error> {
        let slot = self.slot(id).ok_or(Error::NoConnection)?;
        let connection = self.connection_mut(slot).ok_or(Error::NoConnection)?;
        if connection.state == State::SynSent {
            // RFC 9293 section 3.10.4: nothing was sent that could be lost.
            self.abort_slot(now, slot);
            return Ok(());
        }
        connection.shutdown()?;
        self.wake(slot);
        Ok(())
    }

    /// Aborts and releases a connection. A reset is sent to the peer, data that waits in either
    /// direction is lost (RFC 9293 section 3.10.5), and no event follows.
    pub fn abort(&mut self, now: Time, id: ConnId) -> Result<(), Error> {
        let slot = self.slot(id).ok_or(Error::NoConnection)?;
        self.abort_slot(now, slot);
        Ok(())
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        while let Some(&notice) = self.notices.front() {
            if let Some(event) = self.take_event(notice) {
                return Some(event);
            }
            self.notices.pop_front();
        }
        None
    }

    fn take_event(&mut self, notice: Notice) -> Option<Event> {
        let slot = match notice {
            Notice::Listener(slot) => {
                let listener = self.listeners.get_mut(slot as usize)?;
                let notified =
                    core::mem::take(&mut listener.notified) && !listener.queue.is_empty();
                let id = ListenerId { slot, generation: listener.generation };
                return notified.then_some(Event::Incoming(id));
            }
            Notice::Connection(slot) => slot,
        };
        let id = self.id(slot);
        let entry = &mut self.slots[slot as usize];
        let Some(connection) = &mut entry.connection else {
            entry.notified = false;
            return None;
        };
        let pending = connection.pending_mut();
        if core::mem::take(&mut pending.connected) {
            return Some(Event::Connected(id));
        }
        if core::mem::take(&mut pending.readable) {
            return Some(Event::Readable(id));
        }
        if core::mem::take(&mut pending.writable) {
            return Some(Event::Writable(id));
        }
        if core::mem::take(&mut pending.peer_closed) {
            return Some(Event::PeerClosed(id));
        }
        if let Some(why) = pending.closed.take() {
            if connection.is_spent() {
                self.release(slot);
            }
            return Some(Event::Closed(id, why));
        }
        entry.notified = false;
        None
    }

    /// Returns the state of a connection.
    pub fn snapshot(&self, id: ConnId) -> Result<Snapshot, Error> {
        self.connection(id).map(Connection::snapshot).ok_or(Error::NoConnection)
    }

    /// Returns a connection's local and remote address.
    pub fn addresses(&self, id: ConnId) -> Result<(SocketAddr, SocketAddr), Error> {
        self.connection(id).map(|c| (c.local, c.remote)).ok_or(Error::NoConnection)
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the number of connections, and of those in TIME-WAIT.
    pub fn len(&self) -> (usize, usize) {
        (self.slots.len() - self.free.len(), self.time_wait.len())
    }

    fn id(&self, slot: u32) -> ConnId {
        ConnId { slot, generation: self.slots[slot as usize].generation }
    }

    fn slot(&self, id: ConnId) -> Option<u32> {
        let entry = self.slots.get(id.slot as usize)?;
        (entry.generation == id.generation && entry.connection.is_some()).then_some(id.slot)
    }

    fn connection(&self, id: ConnId) -> Option<&Connection> {
        self.slots[self.slot(id)? as usize].connection.as_deref()
    }

    fn connection_mut(&mut self, slot: u32) -> Option<&mut Connection> {
        self.slots.get_mut(slot as usize)?.connection.as_deref_mut()
    }

    fn listener(&mut self, id: ListenerId) -> Option<&mut Listener> {
        let listener = self.listeners.get_mut(id.slot as usize)?;
        (listener.generation == id.generation && listener.address.is_some()).then_some(listener)
    }

    /// Returns an initial sequence number (RFC 9293 section 3.4.1: a clock of 4 microseconds and a keyed
    /// hash), and the offset of the timestamp clock (RFC 7323 section 5.4).
    fn initial_numbers(&self, now: Time, key: Key, local: IpAddr, remote: IpAddr) -> (Seq, u32) {
        let clock = (now.as_nanos() / 4000) as u32;
        let iss = clock.wrapping_add(self.secret.number(key) as u32);
        // By addresses alone, so that a new connection's timestamps continue those of the previous one.
        let offset = self.stamp_secret.number((number(local), number(remote)));
        (Seq::new(iss), offset as u32)
    }

    /// Returns a free ephemeral port. The search starts at a secret offset for this peer (RFC 6056
    /// section 3.3.3).
    fn free_port(&mut self, local: IpAddr, remote: SocketAddr) -> Result<u16, Error> {
        let offset =
            self.stamp_secret.number((1u8, number(local), number(remote.ip()), remote.port()));
        for _ in 0..EPHEMERAL_COUNT {
            let step = (offset as u16).wrapping_add(self.next_port) % EPHEMERAL_COUNT;
            self.next_port = self.next_port.wrapping_add(1);
            let port = EPHEMERAL_FIRST + step;
            let key = Key::new(local, port, remote.ip(), remote.port());
            if !self.table.contains_key(&key) {
                return Ok(port);
            }
        }
        Err(Error::NoPort)
    }

    fn insert(&mut self, key: Key, connection: Connection) -> u32 {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(Slot {
                    generation: 0,
                    connection: None,
                    key,
                    listed: false,
                    ready: false,
                    notified: false,
                    listener: None,
                    half_open: false,
                });
                self.slots.len() as u32 - 1
            }
        };
        let entry = &mut self.slots[slot as usize];
        entry.connection = Some(Box::new(connection));
        entry.key = key;
        entry.listed = true;
        entry.listener = None;
        entry.half_open = false;
        self.table.insert(key, TableEntry::Connection(slot));
        slot
    }

    /// Releases a connection. Its entries in the queues stay and are skipped there.
    fn release(&mut self, slot: u32) {
        self.unlist(slot);
        let entry = &mut self.slots[slot as usize];
        if entry.connection.take().is_none() {
            return;
        }
        entry.generation = entry.generation.wrapping_add(1);
        let half_open = core::mem::take(&mut entry.half_open);
        if let Some(id) = entry.listener.take()
            && half_open
            && let Some(listener) = self.listener(id)
        {
            listener.half_open -= 1;
        }
        self.deadlines.set(slot, None);
        self.free.push(slot);
    }

    fn unlist(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        if core::mem::take(&mut entry.listed) {
            self.table.remove(&entry.key);
            self.recent = None;
        }
    }

    fn abort_slot(&mut self, _now: Time, slot: u32) {
        let Some(connection) = self.connection_mut(slot) else { return };
        if connection.reset_owed() {
            let (seq, ack) = connection.next_numbers();
            let (source, destination) = connection.addresses();
            let header = Header {
                source: connection.local.port(),
                destination: connection.remote.port(),
                seq,
                ack,
                flags: Flags::RST | Flags::ACK,
                ..Header::default()
            };
            self.counters.resets += 1;
            self.reply(Reply { source, destination, header });
        }
        self.release(slot);
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

    fn announce(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        let Some(connection) = &entry.connection else { return };
        if !connection.passive && connection.pending.any() && !entry.notified {
            entry.notified = true;
            self.notices.push_back(Notice::Connection(slot));
        }
    }

    /// Updates the tables after a change of a connection. Its deadline is set once it has nothing left
    /// to send, which is always polled next.
    fn settle(&mut self, now: Time, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        let Some(connection) = &mut entry.connection else { return };
        if connection.passive && !self.settle_passive(slot) {
            return;
        }
        let entry = &mut self.slots[slot as usize];
        let Some(connection) = &mut entry.connection else { return };
        let state = connection.state;
        let spent = connection.is_spent();
        if !spent {
            let notify = !connection.passive && connection.pending.any();
            if notify && !core::mem::replace(&mut entry.notified, true) {
                self.notices.push_back(Notice::Connection(slot));
            }
            if !core::mem::replace(&mut entry.ready, true) {
                self.ready.push_back(slot);
            }
        }
        match state {
            State::TimeWait => self.enter_time_wait(now, slot),
            State::Closed => self.unlist(slot),
            _ => {}
        }
        if spent {
            self.release(slot);
        }
    }

    /// Handles a connection that was not accepted. Returns `false` when it was released.
    fn settle_passive(&mut self, slot: u32) -> bool {
        let id = self.id(slot);
        let entry = &mut self.slots[slot as usize];
        let Some(connection) = &mut entry.connection else { return false };
        if connection.state == State::Closed {
            // RFC 9293 section 3.10.7.4: back to LISTEN without an event.
            self.release(slot);
            return false;
        }
        if !entry.half_open || !core::mem::take(&mut connection.pending_mut().connected) {
            return true;
        }
        entry.half_open = false;
        let Some(listener_id) = entry.listener else { return true };
        let Some(listener) = self.listener(listener_id) else { return true };
        listener.half_open -= 1;
        listener.queue.push_back(id);
        if !core::mem::replace(&mut listener.notified, true) {
            self.notices.push_back(Notice::Listener(listener_id.slot));
        }
        true
    }

    fn enter_time_wait(&mut self, now: Time, slot: u32) {
        let until = now + self.limits.time_wait_for;
        let entry = &mut self.slots[slot as usize];
        let Some(connection) = &entry.connection else { return };
        if !entry.listed {
            return;
        }
        let (snd_nxt, rcv_nxt) = connection.next_numbers();
        let waiting = Waiting {
            key: entry.key,
            local: connection.local,
            remote: connection.remote,
            snd_nxt,
            rcv_nxt,
            window: connection.last_window(),
            stamps: connection.stamps(),
            until,
        };
        self.unlist(slot);
        if self.limits.time_wait == 0 {
            self.counters.time_wait_full += 1;
            return;
        }
        if self.time_wait.len() >= self.limits.time_wait
            && let Some((oldest, _)) = self.time_wait.first()
        {
            self.counters.time_wait_full += 1;
            self.leave_time_wait(oldest);
        }
        let key = waiting.key;
        let index = self.time_wait.insert(waiting);
        self.table.insert(key, TableEntry::TimeWait(index));
    }

    fn leave_time_wait(&mut self, index: u32) -> Waiting {
        let waiting = self.time_wait.remove(index);
        self.table.remove(&waiting.key);
        waiting
    }
}

/// Returns whether an address is unicast: TCP is between two hosts only (RFC 9293 section 3.9.2.3,
/// MUST-46, MUST-57).
fn is_unicast(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !(address.is_multicast() || address.is_unspecified() || broadcast)
}
