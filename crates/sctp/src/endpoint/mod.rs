//! The SCTP of a host: listeners, associations by tag and by addresses, cookies, and answers to packets
//! out of the blue.
//!
//! This file holds the tables and the user's calls. `packets` handles packets and timers and finds the
//! association of a packet. `opening` is the stateless half of the handshake.

mod budget;
mod calls;
mod cookie;
mod icmp;
mod key;
mod opening;
mod packets;

use crate::PROTOCOL;
use crate::association::{Association, Change, Close, Cx, Ends, FinalChunk, Snapshot, State};
use crate::incoming::Received;
use crate::numbers::Tsn;
use crate::outgoing::{SendOptions, UndeliveredMessage};
use crate::path::PathState;
use crate::settings::{Error, Limits, Settings};
use crate::wire::Chunk;
use crate::wire::chunk::kind;
use crate::wire::init::MAX_ADDRESSES;
use budget::Budget;
use bytes::Bytes;
use cookie::Keys;
use core::fmt;
use hashbrown::HashMap;
use key::{Key, Keyed, number};
use ringway_sansio::{Addressing, Deadlines, Random, Time};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

/// First ephemeral port (RFC 6335 section 6).
const EPHEMERAL_FIRST: u16 = 49_152;
/// Number of ephemeral ports.
const EPHEMERAL_COUNT: u16 = u16::MAX - EPHEMERAL_FIRST + 1;
/// Maximum number of packets without an association that wait to be sent. More are dropped and counted.
pub const MAX_REPLIES: usize = 256;
/// Maximum number of ended associations whose cookies are remembered and make no second association
/// (RFC 9260 section 5.3.1).
pub const MAX_ENDED: usize = 1024;
/// Maximum number of tags drawn until one is free. Each is in use with a probability of one in 2^32 per
/// association.
const MAX_TAGS: usize = 8;

/// Identifies an association for as long as it exists. It is never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct AssocId {
    slot: u32,
    generation: u32,
}

/// Identifies a listener. It is never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ListenerId {
    slot: u32,
    generation: u32,
}

/// An event (RFC 9260 section 11.2). At most one of each kind waits per association, and one path
/// change per path, so the number of waiting events is bounded by the number of associations.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// COMMUNICATION UP: the association is established. It was opened by the local endpoint or, at a
    /// listener, by the peer.
    Up {
        /// The association.
        id: AssocId,
        /// The listener that accepted it.
        listener: Option<ListenerId>,
    },
    /// RESTART: the peer restarted. Unacknowledged messages are lost, and streams begin at zero.
    Restarted(AssocId),
    /// DATA ARRIVE: a message can be read. Read until nothing is left: the event is repeated only when
    /// more arrives.
    Readable(AssocId),
    /// A message was refused because the buffer was full, and a quarter of the buffer is free again.
    Writable(AssocId),
    /// The peer has started a shutdown. It accepts only what was already queued here.
    PeerShutdown(AssocId),
    /// NETWORK STATUS CHANGE: the state of a path has changed.
    Path {
        /// The association.
        id: AssocId,
        /// The address of the peer that identifies the path.
        remote: IpAddr,
        /// The new state.
        state: PathState,
    },
    /// COMMUNICATION ERROR: the peer reported an error that does not end the association.
    PeerError {
        /// The association.
        id: AssocId,
        /// The cause code (RFC 9260 section 3.3.10).
        code: u16,
    },
    /// SEND FAILURE: queued messages are lost. Their stream does not exist, the peer restarted before
    /// it acknowledged them, or they were abandoned ([`Reliability`](crate::Reliability)).
    SendFailed {
        /// The association.
        id: AssocId,
        /// Number of messages.
        messages: u32,
    },
    /// A message that was not delivered, with [`Settings::return_undelivered`].
    Returned {
        /// The association.
        id: AssocId,
        /// The message.
        message: UndeliveredMessage,
    },
    /// Streams or addresses have changed.
    Changed {
        /// The association.
        id: AssocId,
        /// The change.
        change: Change,
    },
    /// COMMUNICATION LOST or SHUTDOWN COMPLETE: the association has ended. Received messages can still
    /// be read. The id becomes invalid when all are read. This is the last event of an association.
    Closed(AssocId, Close),
}

/// Counters of a host's SCTP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Packets received.
    pub received: u64,
    /// Packets that were invalid, or had an address that is not allowed.
    pub malformed: u64,
    /// Packets with a wrong checksum.
    pub checksum: u64,
    /// Packets between the addresses of an association with a wrong tag.
    pub wrong_tag: u64,
    /// Packets out of the blue (RFC 9260 section 8.4).
    pub stray: u64,
    /// Packets out of the blue that were not answered because of the rate limit.
    pub strays_limited: u64,
    /// INITs answered with a cookie.
    pub inits: u64,
    /// INITs not answered because of the rate limit.
    pub inits_limited: u64,
    /// Cookies that were not made here.
    pub cookies_refused: u64,
    /// Cookies that had expired.
    pub cookies_stale: u64,
    /// Associations refused because the limit was reached.
    pub associations_full: u64,
    /// ABORTs sent.
    pub aborts: u64,
    /// Answers not sent because the queue was full.
    pub replies_full: u64,
    /// ICMP messages without an association or with a wrong tag.
    pub icmp_refused: u64,
}

struct Slot {
    generation: u32,
    association: Option<Box<Association>>,
    /// Whether the tables contain it.
    listed: bool,
    /// Whether it is in the queue of associations that may have a packet to send.
    ready: bool,
    /// Whether it is in the queue of associations with events.
    notified: bool,
    listener: Option<ListenerId>,
}

struct Listener {
    generation: u32,
    /// Its addresses; `None` if the slot is free.
    addresses: Option<Vec<IpAddr>>,
    port: u16,
    settings: Arc<Settings>,
}

/// A packet without an association.
struct Reply {
    way: Addressing,
    bytes: Vec<u8>,
}

/// Returns the addressing of an answer.
fn back(addressing: &Addressing) -> Addressing {
    let Addressing { source, destination, udp_port, .. } = *addressing;
    Addressing { udp_port, ..Addressing::new(destination, source, PROTOCOL) }
}

/// The SCTP of one host.
pub struct Sctp {
    limits: Limits,
    settings: Arc<Settings>,
    /// The settings of the last call. Associations with equal settings share them.
    last_settings: Arc<Settings>,
    random: Box<dyn Random + Send>,
    keys: Keys,
    slots: Vec<Slot>,
    free: Vec<u32>,
    tags: HashMap<u32, u32, Keyed>,
    table: HashMap<Key, u32, Keyed>,
    /// The association found last, which the next packet most often belongs to.
    recent: Option<(u32, u32)>,
    listeners: Vec<Listener>,
    listening: HashMap<(u128, u16), u32, Keyed>,
    /// Local addresses that are used together behind a wildcard.
    joined: Vec<IpAddr>,
    /// Local tags of the associations that ended last, whose cookies may be repeated.
    ended: VecDeque<u32>,
    deadlines: Deadlines,
    ready: VecDeque<u32>,
    notices: VecDeque<u32>,
    replies: VecDeque<Reply>,
    inits: Budget,
    strays: Budget,
    next_port: u16,
    counters: Counters,
}

impl fmt::Debug for Sctp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sctp").field("associations", &self.len()).finish_non_exhaustive()
    }
}

impl Sctp {
    /// Creates a host without associations. `settings` are the defaults of all associations. `random`
    /// supplies tags, TSNs, nonces and keys, so outside tests it must be unpredictable (RFC 9260
    /// section 5.3.1).
    pub fn new(
        limits: Limits,
        settings: Settings,
        mut random: Box<dyn Random + Send>,
    ) -> Result<Self, Error> {
        settings.check()?;
        let mut keyed = || Keyed(random.next_u64(), random.next_u64());
        let (tags, table, listening) = (keyed(), keyed(), keyed());
        let next_port = random.next_u64() as u16;
        let settings = Arc::new(settings);
        Ok(Sctp {
            limits,
            last_settings: Arc::clone(&settings),
            settings,
            keys: Keys::new(limits.cookie_key_life, &mut *random),
            random,
            slots: Vec::new(),
            free: Vec::new(),
            tags: HashMap::with_hasher(tags),
            table: HashMap::with_hasher(table),
            recent: None,
            listeners: Vec::new(),
            listening: HashMap::with_hasher(listening),
            joined: Vec::new(),
            ended: VecDeque::new(),
            deadlines: Deadlines::default(),
            ready: VecDeque::new(),
            notices: VecDeque::new(),
            replies: VecDeque::new(),
            inits: Budget::new(limits.inits_per_second),
            strays: Budget::new(limits.strays_per_second),
            next_port,
            counters: Counters::default(),
        })
    }

    /// Returns the settings of a call, or the default ones.
    fn shared(&mut self, settings: Option<Settings>) -> Result<Arc<Settings>, Error> {
        let Some(settings) = settings else { return Ok(Arc::clone(&self.settings)) };
        settings.check()?;
        if settings != *self.last_settings {
            self.last_settings = Arc::new(settings);
        }
        Ok(Arc::clone(&self.last_settings))
    }

    /// Listens on `addresses`, all of which belong to each accepted association. One unspecified
    /// address stands for the single address that the peer's INIT is sent to.
    pub fn listen(
        &mut self,
        addresses: &[IpAddr],
        port: u16,
        settings: Option<Settings>,
    ) -> Result<ListenerId, Error> {
        let settings = self.shared(settings)?;
        let wild = addresses.len() == 1 && addresses[0].is_unspecified();
        if port == 0 || !(wild || are_ends(addresses)) {
            return Err(Error::Address { max: MAX_ADDRESSES });
        }
        if addresses.iter().any(|&a| self.listening.contains_key(&(number(a), port))) {
            return Err(Error::InUse);
        }
        let listener =
            Listener { generation: 0, addresses: Some(addresses.to_vec()), port, settings };
        let slot = match self.listeners.iter().position(|l| l.addresses.is_none()) {
            Some(slot) => {
                let generation = self.listeners[slot].generation + 1;
                self.listeners[slot] = Listener { generation, ..listener };
                slot
            }
            None if self.listeners.len() >= self.limits.listeners => {
                return Err(Error::Full { what: "listeners", limit: self.limits.listeners });
            }
            None => {
                self.listeners.push(listener);
                self.listeners.len() - 1
            }
        } as u32;
        for &address in addresses {
            self.listening.insert((number(address), port), slot);
        }
        Ok(ListenerId { slot, generation: self.listeners[slot as usize].generation })
    }

    /// Has every association that is opened to one of these addresses at a listener with a wildcard use them all, in this
    /// order. At most [`MAX_ADDRESSES`] are kept.
    pub fn join_addresses(&mut self, addresses: &[IpAddr]) {
        self.joined = addresses.iter().copied().take(MAX_ADDRESSES).collect();
    }

    /// Closes a listener. Established associations stay.
    pub fn unlisten(&mut self, id: ListenerId) -> Result<(), Error> {
        let listener = self
            .listeners
            .get_mut(id.slot as usize)
            .filter(|l| l.generation == id.generation)
            .ok_or(Error::NoListener)?;
        let addresses = listener.addresses.take().ok_or(Error::NoListener)?;
        for address in addresses {
            self.listening.remove(&(number(address), listener.port));
        }
        Ok(())
    }

    /// Opens an association from `locals` to `remotes`, the first of which is the primary path (RFC
    /// 9260 section 11.1.2). The lists are matched index by index within each family. Port 0 chooses a
    /// free ephemeral port. [`Event::Up`] or [`Event::Closed`] follows. Messages can be queued at once.
    pub fn connect(
        &mut self,
        now: Time,
        locals: &[IpAddr],
        local_port: u16,
        remotes: &[IpAddr],
        remote_port: u16,
        settings: Option<Settings>,
    ) -> Result<AssocId, Error> {
        let settings = self.shared(settings)?;
        let together = crate::association::families_match(locals, remotes);
        if remote_port == 0 || !are_ends(locals) || !are_ends(remotes) || !together {
            return Err(Error::Address { max: MAX_ADDRESSES });
        }
        let limit = self.limits.associations;
        if self.len() >= limit {
            return Err(Error::Full { what: "associations", limit });
        }
        let local_port = match local_port {
            0 => self.free_port(locals, remotes, remote_port)?,
            port if self.is_free(locals, port, remotes, remote_port) => port,
            _ => return Err(Error::InUse),
        };
        let tag = self.free_tag().ok_or(Error::InUse)?;
        let tsn = Tsn::new(self.random.next_u64() as u32);
        let udp_port = settings.udp_port;
        let (locals_here, resting) = (locals.to_vec(), Vec::new());
        let ends = Ends { local_port, remote_port, locals: locals_here, resting, udp_port };
        self.claim(now, &ends, remotes);
        let mut cx = Cx { now, random: &mut *self.random };
        let association = Association::connect(settings, ends, remotes, &mut cx, tag, tsn);
        let slot = self.insert(association, None);
        self.wake(slot);
        Ok(self.id(slot))
    }

    /// Queues a message. Its bytes are shared until they are acknowledged, not copied.
    pub fn send(
        &mut self,
        now: Time,
        id: AssocId,
        options: &SendOptions,
        data: impl Into<Bytes>,
    ) -> Result<(), Error> {
        let slot = self.slot(id).ok_or(Error::NoAssociation)?;
        let association = self.association_mut(slot).ok_or(Error::NoAssociation)?;
        association.send(now, options, data.into())?;
        self.wake(slot);
        Ok(())
    }

    /// Appends the next message, or part of one, to `out`. Returns `None` when none is waiting.
    pub fn recv(&mut self, id: AssocId, out: &mut Vec<u8>) -> Result<Option<Received>, Error> {
        let slot = self.slot(id).ok_or(Error::NoAssociation)?;
        let association = self.association_mut(slot).ok_or(Error::NoAssociation)?;
        let received = association.read(out);
        let (owes, spent) = (association.owes_ack(), association.is_spent());
        if spent {
            self.release(slot);
        } else if owes {
            self.wake(slot);
        }
        Ok(received)
    }

    /// Shuts an association down gracefully: queued messages are delivered first (RFC 9260 section
    /// 9.2).
    pub fn shutdown(&mut self, now: Time, id: AssocId) -> Result<(), Error> {
        let slot = self.slot(id).ok_or(Error::NoAssociation)?;
        self.with(now, slot, |association, cx| association.shutdown(cx));
        self.settle(slot);
        Ok(())
    }

    /// Aborts an association and releases it. The peer receives `reason`, and no event follows (RFC
    /// 9260 section 9.1).
    pub fn abort(&mut self, id: AssocId, reason: &[u8]) -> Result<(), Error> {
        let slot = self.slot(id).ok_or(Error::NoAssociation)?;
        let association = self.association_mut(slot).ok_or(Error::NoAssociation)?;
        association.abort(reason);
        self.send_final_chunk(slot);
        self.release(slot);
        Ok(())
    }

    /// Sets the primary path to an address of the peer (RFC 9260 section 11.1.6).
    pub fn set_primary(&mut self, id: AssocId, remote: IpAddr) -> Result<(), Error> {
        let slot = self.slot(id).ok_or(Error::NoAssociation)?;
        let association = self.association_mut(slot).ok_or(Error::NoAssociation)?;
        association.set_primary(remote)?;
        self.wake(slot);
        Ok(())
    }

    /// Sends a heartbeat to an address of the peer now (RFC 9260 section 11.1.10).
    pub fn request_heartbeat(&mut self, id: AssocId, remote: IpAddr) -> Result<(), Error> {
        let slot = self.slot(id).ok_or(Error::NoAssociation)?;
        let association = self.association_mut(slot).ok_or(Error::NoAssociation)?;
        let path = association.path_to(remote).ok_or(Error::NoPath)?;
        association.request_heartbeat(path);
        self.wake(slot);
        Ok(())
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
        let association = entry.association.as_mut()?;
        let pending = &mut association.pending;
        if core::mem::take(&mut pending.up) {
            return Some(Event::Up { id, listener });
        }
        if core::mem::take(&mut pending.restarted) {
            return Some(Event::Restarted(id));
        }
        if pending.paths
            && let Some((remote, state)) = association.take_path_change()
        {
            return Some(Event::Path { id, remote, state });
        }
        let pending = &mut association.pending;
        if let Some(code) = pending.error.take() {
            return Some(Event::PeerError { id, code });
        }
        if pending.unsent > 0 {
            let messages = core::mem::take(&mut pending.unsent);
            return Some(Event::SendFailed { id, messages });
        }
        if let Some(change) = pending.changes.pop_front() {
            return Some(Event::Changed { id, change });
        }
        if core::mem::take(&mut pending.readable) {
            return Some(Event::Readable(id));
        }
        if core::mem::take(&mut pending.writable) {
            return Some(Event::Writable(id));
        }
        if core::mem::take(&mut pending.peer_shutdown) {
            return Some(Event::PeerShutdown(id));
        }
        if let Some(message) = association.take_returned() {
            return Some(Event::Returned { id, message });
        }
        let why = association.pending.closed.take()?;
        if association.is_spent() {
            self.release(slot);
        }
        Some(Event::Closed(id, why))
    }

    /// Returns the state of an association.
    pub fn snapshot(&self, id: AssocId) -> Result<Snapshot, Error> {
        let slot = self.slot(id).ok_or(Error::NoAssociation)?;
        let association = self.slots[slot as usize].association.as_ref();
        Ok(association.ok_or(Error::NoAssociation)?.snapshot())
    }

    /// Returns the ports of an association: the local one and the peer's.
    pub fn ports(&self, id: AssocId) -> Result<(u16, u16), Error> {
        let slot = self.slot(id).ok_or(Error::NoAssociation)?;
        let association = self.slots[slot as usize].association.as_ref();
        let ends = &association.ok_or(Error::NoAssociation)?.ends;
        Ok((ends.local_port, ends.remote_port))
    }

    /// Returns the addresses of an association: the local ones that it may send from, and the peer's.
    pub fn addresses(&self, id: AssocId) -> Result<(Vec<IpAddr>, Vec<IpAddr>), Error> {
        let slot = self.slot(id).ok_or(Error::NoAssociation)?;
        let association = self.slots[slot as usize].association.as_ref();
        let association = association.ok_or(Error::NoAssociation)?;
        Ok((association.ends.locals.clone(), association.remotes().collect()))
    }

    /// Returns whether a packet with these ports between these addresses belongs to an association or a
    /// listener. Other packets are left to other stacks that share the address.
    pub fn owns(&self, addressing: &Addressing, source_port: u16, destination_port: u16) -> bool {
        let Addressing { source, destination, .. } = *addressing;
        self.table.contains_key(&Key::new(destination, destination_port, source, source_port))
            || self.listens(destination, destination_port)
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the number of associations, including ended ones with unread messages.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns whether there is no association.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn id(&self, slot: u32) -> AssocId {
        AssocId { slot, generation: self.slots[slot as usize].generation }
    }

    fn slot(&self, id: AssocId) -> Option<u32> {
        let entry = self.slots.get(id.slot as usize)?;
        (entry.generation == id.generation && entry.association.is_some()).then_some(id.slot)
    }

    fn association_mut(&mut self, slot: u32) -> Option<&mut Association> {
        self.slots.get_mut(slot as usize)?.association.as_deref_mut()
    }

    /// Calls an association with the time and the random source.
    fn with<R>(
        &mut self,
        now: Time,
        slot: u32,
        call: impl FnOnce(&mut Association, &mut Cx<'_>) -> R,
    ) -> Option<R> {
        let association = self.slots.get_mut(slot as usize)?.association.as_deref_mut()?;
        let mut cx = Cx { now, random: &mut *self.random };
        Some(call(association, &mut cx))
    }

    /// Returns a tag that no association has (RFC 9260 section 5.3.1).
    fn free_tag(&mut self) -> Option<u32> {
        (0..MAX_TAGS)
            .map(|_| self.random.next_u64() as u32)
            .find(|tag| *tag != 0 && !self.tags.contains_key(tag))
    }

    fn is_free(&self, locals: &[IpAddr], port: u16, remotes: &[IpAddr], remote_port: u16) -> bool {
        locals.iter().all(|&local| {
            let taken = |&remote: &IpAddr| {
                let slot = self.table.get(&Key::new(local, port, remote, remote_port));
                slot.is_some_and(|slot| self.holds(*slot, remote))
            };
            !remotes.iter().any(taken)
        })
    }

    fn free_port(
        &mut self,
        locals: &[IpAddr],
        remotes: &[IpAddr],
        remote_port: u16,
    ) -> Result<u16, Error> {
        for _ in 0..EPHEMERAL_COUNT {
            self.next_port = self.next_port.wrapping_add(1);
            let port = EPHEMERAL_FIRST + self.next_port % EPHEMERAL_COUNT;
            let listens = locals.iter().any(|&a| self.listening.contains_key(&(number(a), port)));
            if !listens && self.is_free(locals, port, remotes, remote_port) {
                return Ok(port);
            }
        }
        Err(Error::NoPort)
    }

    fn insert(&mut self, association: Association, listener: Option<ListenerId>) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                association: None,
                listed: false,
                ready: false,
                notified: false,
                listener: None,
            });
            self.slots.len() as u32 - 1
        });
        let entry = &mut self.slots[slot as usize];
        entry.association = Some(Box::new(association));
        entry.listener = listener;
        self.list(slot);
        slot
    }

    /// Adds an association to the tables, by its tag and by every pair of addresses.
    fn list(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        let Some(association) = &entry.association else { return };
        entry.listed = true;
        self.tags.insert(association.local_tag, slot);
        for key in keys(association) {
            self.table.entry(key).or_insert(slot);
        }
    }

    /// Removes an association from the tables. Returns whether it was listed.
    fn unlist(&mut self, slot: u32) -> bool {
        let entry = &mut self.slots[slot as usize];
        if !core::mem::take(&mut entry.listed) {
            return false;
        }
        self.recent = None;
        let Some(association) = &entry.association else { return true };
        self.tags.remove(&association.local_tag);
        for key in keys(association) {
            if self.table.get(&key) == Some(&slot) {
                self.table.remove(&key);
            }
        }
        true
    }

    /// Releases an association. Its entries in the queues stay and are skipped there.
    fn release(&mut self, slot: u32) {
        self.unlist(slot);
        let entry = &mut self.slots[slot as usize];
        let Some(association) = entry.association.take() else { return };
        if self.ended.len() >= MAX_ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back(association.local_tag);
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

    /// Sends the final chunk of an ended association.
    fn send_final_chunk(&mut self, slot: u32) {
        let Some(association) = self.association_mut(slot) else { return };
        let Some(final_chunk) = association.final_chunk.take() else { return };
        let way = association.final_addressing();
        let ports = (association.ends.local_port, association.ends.remote_port);
        let (tag, local_tag) = (association.peer_tag, association.local_tag);
        let agreed = association.agreed().cloned();
        let bytes = match final_chunk {
            // A peer whose tag is unknown is answered with the local tag (RFC 9260 section 8.5.1 B).
            FinalChunk::Abort(causes) => {
                self.counters.aborts += 1;
                let reflected = tag == 0;
                let tag = if reflected { local_tag } else { tag };
                let chunk = Chunk::Abort { reflected, causes: &causes };
                match agreed.filter(|agreed| agreed.requires(kind::ABORT)) {
                    Some(agreed) => packets::authenticated(ports, tag, &agreed, &chunk),
                    None => packets::single(ports, tag, &chunk),
                }
            }
            FinalChunk::ShutdownComplete => packets::shutdown_complete(ports, tag, false),
        };
        self.reply(Reply { way, bytes });
    }

    /// Updates the tables after a change of an association. Its deadline is set once it has nothing
    /// left to send, which is always polled next.
    fn settle(&mut self, slot: u32) {
        let Some(association) = self.association_mut(slot) else { return };
        let closed = association.state() == State::Closed;
        let notify = association.has_events();
        if closed {
            self.send_final_chunk(slot);
            self.unlist(slot);
        }
        let entry = &mut self.slots[slot as usize];
        if notify && !core::mem::replace(&mut entry.notified, true) {
            self.notices.push_back(slot);
        }
        if closed && entry.association.as_ref().is_some_and(|a| a.is_spent()) {
            self.release(slot);
            return;
        }
        self.wake(slot);
    }
}

/// Returns every pair of a local and a remote address.
fn keys(association: &Association) -> impl Iterator<Item = Key> {
    let ends = &association.ends;
    association.remotes().flat_map(move |remote| {
        let key = move |&local: &IpAddr| Key::new(local, ends.local_port, remote, ends.remote_port);
        ends.locals.iter().map(key)
    })
}

/// Returns whether addresses can be those of one endpoint.
fn are_ends(addresses: &[IpAddr]) -> bool {
    (1..=MAX_ADDRESSES).contains(&addresses.len())
        && addresses.iter().all(|&address| crate::association::is_unicast(address))
}
