//! The SCTP of a host without its associations: listeners, the tables by which the association of a packet is found,
//! cookies, and answers to packets out of the blue.
//!
//! An endpoint stores no association. Its owner does, behind [`Associations`], and passes them to the calls that
//! concern one: [`Sctp`](crate::Sctp) has them in a table; a program that gives each a lock of its own implements the
//! trait with that. After a call of an association, [`Endpoint::settle`] updates the tables if its addresses have
//! changed or it has ended.
//!
//! This file holds the tables and the calls. `packets` handles packets and finds the association of a packet. `opening`
//! is the stateless half of the handshake.

mod cookie;
mod icmp;
mod opening;
mod packets;

use crate::PROTOCOL;
use crate::association::{Association, Cx, Ends, FinalChunk, Identity, State};
use crate::error::{ConnectError, ListenError, NoListener, SettingError};
use crate::numbers::Tsn;
use crate::settings::{Limits, Settings};
use crate::wire::Chunk;
use crate::wire::chunk::kind;
use crate::wire::init::MAX_ADDRESSES;
use cookie::Keys;
use core::fmt;
use hashbrown::HashMap;
use ringway_sansio::{Addressing, Random, Time};
use ringway_transport::{Holdings, Key, Keyed, Shares, number};
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
/// The part of [`Limits::associations`] that is a reserve for sources that hold few.
const RESERVE: usize = 8;
/// Maximum number of classes of tags, see [`Endpoint::spread_tags`].
pub const MAX_TAG_CLASSES: u32 = 64;

/// Identifies an association for as long as it exists. It is never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct AssocId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// Identifies a listener. It is never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ListenerId {
    slot: u32,
    generation: u32,
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
    /// Associations refused because the limit, or the share of their source, was reached.
    pub associations_full: u64,
    /// ABORTs sent.
    pub aborts: u64,
    /// Answers not sent because the queue was full.
    pub replies_full: u64,
    /// ICMP messages without an association or with a wrong tag.
    pub icmp_refused: u64,
}

/// The associations of an endpoint, which its owner stores.
pub trait Associations {
    /// Stores an association that was opened or accepted.
    fn insert(&mut self, id: AssocId, association: Association);

    /// Calls `call` with an association. Returns `None` if there is none with this id. Afterwards it may have something
    /// to send, an event, or another deadline, or have ended; so the owner calls [`Endpoint::settle`] once the call
    /// of the endpoint has returned.
    fn with<R>(&mut self, id: AssocId, call: impl FnOnce(&mut Association) -> R) -> Option<R>;

    /// As [`Associations::with`], for a call that changes nothing.
    fn read<R>(&self, id: AssocId, call: impl FnOnce(&Association) -> R) -> Option<R>;
}

/// What [`Endpoint::settle`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settled {
    /// The association goes on, or it has ended and its user has not read all messages and events.
    Kept,
    /// It has ended and everything was read. Its id is invalid now.
    Released,
}

/// What the tables know of an association.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    generation: u32,
    used: bool,
    /// Whether the tables contain it.
    listed: bool,
    listener: Option<ListenerId>,
    /// The source that holds its room, of one that was accepted. It stays the same when the addresses change.
    holder: Option<IpAddr>,
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

/// The SCTP of one host, without its associations.
pub struct Endpoint {
    limits: Limits,
    settings: Arc<Settings>,
    /// The settings of the last call. Associations with equal settings share them.
    last_settings: Arc<Settings>,
    pub(crate) random: Box<dyn Random + Send>,
    keys: Keys,
    entries: Vec<Entry>,
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
    replies: VecDeque<Reply>,
    inits: Shares,
    strays: Shares,
    /// The room for associations, which the sources of the accepted ones hold.
    room: Holdings,
    next_port: u16,
    /// The number of classes that tags are drawn from in turn, and the class of the next one.
    tag_classes: u32,
    next_class: u32,
    counters: Counters,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("associations", &self.len()).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// Creates an endpoint without associations. `settings` are the defaults of all associations. `random`
    /// supplies tags, TSNs, nonces and keys, so outside tests it must be unpredictable (RFC 9260
    /// section 5.3.1).
    pub fn new(
        limits: Limits,
        settings: Settings,
        mut random: Box<dyn Random + Send>,
    ) -> Result<Self, SettingError> {
        settings.check()?;
        let mut keyed = || Keyed(random.next_u64(), random.next_u64());
        let (tags, table, listening) = (keyed(), keyed(), keyed());
        let next_port = random.next_u64() as u16;
        let settings = Arc::new(settings);
        Ok(Endpoint {
            limits,
            last_settings: Arc::clone(&settings),
            settings,
            keys: Keys::new(limits.cookie_key_life, &mut *random),
            random,
            entries: Vec::new(),
            free: Vec::new(),
            tags: HashMap::with_hasher(tags),
            table: HashMap::with_hasher(table),
            recent: None,
            listeners: Vec::new(),
            listening: HashMap::with_hasher(listening),
            joined: Vec::new(),
            ended: VecDeque::new(),
            replies: VecDeque::new(),
            inits: Shares::new(limits.inits_per_second, table),
            strays: Shares::new(limits.strays_per_second, table),
            room: Holdings::with_reserve(
                limits.associations,
                limits.associations.div_ceil(RESERVE),
            ),
            next_port,
            tag_classes: 1,
            next_class: 0,
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

    /// Listens on `addresses`, all of which belong to each accepted association. One unspecified
    /// address stands for the single address that the peer's INIT is sent to.
    pub fn listen(
        &mut self,
        addresses: &[IpAddr],
        port: u16,
        settings: Option<Settings>,
    ) -> Result<ListenerId, ListenError> {
        let settings = self.shared(settings)?;
        let wild = addresses.len() == 1 && addresses[0].is_unspecified();
        if port == 0 || !(wild || are_ends(addresses)) {
            return Err(ListenError::Address { max: MAX_ADDRESSES });
        }
        if addresses.iter().any(|&a| self.listening.contains_key(&(number(a), port))) {
            return Err(ListenError::InUse);
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
                return Err(ListenError::Full { limit: self.limits.listeners });
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
    pub fn unlisten(&mut self, id: ListenerId) -> Result<(), NoListener> {
        let listener = self
            .listeners
            .get_mut(id.slot as usize)
            .filter(|l| l.generation == id.generation)
            .ok_or(NoListener)?;
        let addresses = listener.addresses.take().ok_or(NoListener)?;
        for address in addresses {
            self.listening.remove(&(number(address), listener.port));
        }
        Ok(())
    }

    /// Opens an association from `locals` to `remotes`, the first of which is the primary path (RFC
    /// 9260 section 11.1.2). The lists are matched index by index within each family. Port 0 chooses a
    /// free ephemeral port. The association has an event once it is up or closed. Messages can be queued at once.
    #[allow(
        clippy::too_many_arguments,
        reason = "the two ends, and what the endpoint does not store"
    )]
    pub fn connect(
        &mut self,
        now: Time,
        associations: &mut impl Associations,
        locals: &[IpAddr],
        local_port: u16,
        remotes: &[IpAddr],
        remote_port: u16,
        settings: Option<Settings>,
    ) -> Result<AssocId, ConnectError> {
        let settings = self.shared(settings)?;
        let together = crate::association::families_match(locals, remotes);
        if remote_port == 0 || !are_ends(locals) || !are_ends(remotes) || !together {
            return Err(ConnectError::Address { max: MAX_ADDRESSES });
        }
        let limit = self.limits.associations;
        if self.len() >= limit {
            return Err(ConnectError::Full { limit });
        }
        let local_port = match local_port {
            0 => self.free_port(associations, locals, remotes, remote_port)?,
            port if self.is_free(associations, locals, port, remotes, remote_port) => port,
            _ => return Err(ConnectError::InUse),
        };
        let tag = self.free_tag().ok_or(ConnectError::NoTag)?;
        let tsn = Tsn::new(self.random.next_u64() as u32);
        let udp_port = settings.udp_port;
        let (locals_here, resting) = (locals.to_vec(), Vec::new());
        let ends = Ends { local_port, remote_port, locals: locals_here, resting, udp_port };
        self.claim(now, associations, &ends, remotes);
        let mut cx = Cx { now, random: &mut *self.random };
        let association = Association::connect(settings, ends, remotes, &mut cx, tag, tsn);
        self.room.take_local();
        Ok(self.insert(associations, association, None))
    }

    /// Returns the listener that accepted an association; `None` for one that was opened here.
    pub fn listener(&self, id: AssocId) -> Option<ListenerId> {
        self.entry(id)?.listener
    }

    /// Returns the listener that accepted an association, and the address that its peer opened it from; `None` for one that
    /// was opened here.
    pub fn accepted(&self, id: AssocId) -> Option<(ListenerId, IpAddr)> {
        let entry = self.entry(id)?;
        entry.listener.zip(entry.holder)
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
        self.room.taken()
    }

    /// Returns whether there is no association.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn id(&self, slot: u32) -> AssocId {
        AssocId { slot, generation: self.entries[slot as usize].generation }
    }

    #[inline]
    fn entry(&self, id: AssocId) -> Option<&Entry> {
        let entry = self.entries.get(id.slot as usize)?;
        (entry.used && entry.generation == id.generation).then_some(entry)
    }

    /// Returns whether an id is that of an association that is not released.
    #[inline]
    pub fn contains(&self, id: AssocId) -> bool {
        self.entry(id).is_some()
    }

    /// Calls an association with the time and the random source, and updates the tables if its addresses have changed.
    fn call<R>(
        &mut self,
        now: Time,
        associations: &mut impl Associations,
        slot: u32,
        call: impl FnOnce(&mut Association, &mut Cx<'_>) -> R,
    ) -> Option<R> {
        associations.with(self.id(slot), |association| {
            let result = call(association, &mut Cx { now, random: &mut *self.random });
            self.relist(slot, association);
            result
        })
    }

    /// Draws the tags of associations such that their remainders of a division by `classes` take turns. A lower layer that
    /// distributes packets by the tag then distributes the associations evenly. What else is in a tag stays random, so
    /// that at most [`MAX_TAG_CLASSES`] classes cost 6 of its 32 bits (RFC 9260 section 5.3.1).
    pub fn spread_tags(&mut self, classes: u32) {
        self.tag_classes = classes.clamp(1, MAX_TAG_CLASSES);
    }

    /// Returns a tag that no association has (RFC 9260 section 5.3.1).
    fn free_tag(&mut self) -> Option<u32> {
        let (classes, class) = (self.tag_classes, self.next_class);
        self.next_class = (class + 1) % classes;
        (0..MAX_TAGS)
            .map(|_| {
                let drawn = self.random.next_u64() as u32;
                (drawn - drawn % classes).checked_add(class).unwrap_or(class)
            })
            .find(|tag| *tag != 0 && !self.tags.contains_key(tag))
    }

    /// Returns the association whose packets have a tag.
    pub fn find(&self, tag: u32) -> Option<AssocId> {
        self.tags.get(&tag).map(|slot| self.id(*slot))
    }

    fn is_free(
        &self,
        associations: &impl Associations,
        locals: &[IpAddr],
        port: u16,
        remotes: &[IpAddr],
        remote_port: u16,
    ) -> bool {
        locals.iter().all(|&local| {
            let taken = |&remote: &IpAddr| {
                let slot = self.table.get(&Key::new(local, port, remote, remote_port));
                slot.is_some_and(|slot| self.holds(associations, *slot, remote))
            };
            !remotes.iter().any(taken)
        })
    }

    fn free_port(
        &mut self,
        associations: &impl Associations,
        locals: &[IpAddr],
        remotes: &[IpAddr],
        remote_port: u16,
    ) -> Result<u16, ConnectError> {
        for _ in 0..EPHEMERAL_COUNT {
            self.next_port = self.next_port.wrapping_add(1);
            let port = EPHEMERAL_FIRST + self.next_port % EPHEMERAL_COUNT;
            let listens = locals.iter().any(|&a| self.listening.contains_key(&(number(a), port)));
            if !listens && self.is_free(associations, locals, port, remotes, remote_port) {
                return Ok(port);
            }
        }
        Err(ConnectError::NoPort)
    }

    fn insert(
        &mut self,
        associations: &mut impl Associations,
        association: Association,
        accepted: Option<(ListenerId, IpAddr)>,
    ) -> AssocId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry::default());
            self.entries.len() as u32 - 1
        });
        let entry = &mut self.entries[slot as usize];
        let (listener, holder) = accepted.unzip();
        *entry = Entry { used: true, listed: true, listener, holder, ..*entry };
        debug_assert_eq!(self.len(), self.entries.len() - self.free.len());
        self.list(slot, &association.identity());
        let id = self.id(slot);
        associations.insert(id, association);
        id
    }

    /// Adds an association to the tables, by its tag and by every pair of addresses.
    fn list(&mut self, slot: u32, identity: &Identity) {
        self.tags.insert(identity.tag, slot);
        for key in keys(identity) {
            self.table.entry(key).or_insert(slot);
        }
    }

    /// Removes an association from the tables.
    fn unlist(&mut self, slot: u32, identity: &Identity) {
        self.recent = None;
        self.tags.remove(&identity.tag);
        for key in keys(identity) {
            if self.table.get(&key) == Some(&slot) {
                self.table.remove(&key);
            }
        }
    }

    /// Updates the tables if the tag or the addresses of an association have changed.
    #[inline]
    fn relist(&mut self, slot: u32, association: &mut Association) {
        let Some(listed) = association.take_previous_identity() else { return };
        if self.entries[slot as usize].listed {
            self.unlist(slot, &listed);
            self.list(slot, &association.identity());
        }
    }

    /// Updates the tables after a call of an association: those that change its addresses, tag or state are
    /// [`Association::handle_packet`], [`Association::handle_timeout`], [`Association::change_address`],
    /// [`Association::shutdown`], [`Association::abort`], [`Association::recv`] and [`Association::poll_event`].
    #[inline]
    pub fn settle(&mut self, id: AssocId, association: &mut Association) -> Settled {
        if !self.contains(id) {
            return Settled::Released;
        }
        self.relist(id.slot, association);
        if association.state() != State::Closed {
            return Settled::Kept;
        }
        self.send_final_chunk(association);
        self.unlist_association(id.slot, association);
        if !association.is_spent() {
            return Settled::Kept;
        }
        self.release(id.slot, association.tags.local);
        Settled::Released
    }

    /// Releases an association that was aborted, with the messages and events that its user has not read. One that was
    /// not aborted is released without a packet to the peer.
    pub fn remove(&mut self, id: AssocId, association: &mut Association) {
        if self.settle(id, association) == Settled::Kept && self.contains(id) {
            self.unlist_association(id.slot, association);
            self.release(id.slot, association.tags.local);
        }
    }

    /// Removes an association from the tables, unless it was removed before.
    fn unlist_association(&mut self, slot: u32, association: &Association) {
        if core::mem::take(&mut self.entries[slot as usize].listed) {
            self.unlist(slot, &association.identity());
        }
    }

    fn release(&mut self, slot: u32, local_tag: u32) {
        if self.ended.len() >= MAX_ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back(local_tag);
        let Entry { generation, holder, .. } = self.entries[slot as usize];
        match holder {
            Some(source) => self.room.release(source),
            None => self.room.release_local(),
        }
        let generation = generation.wrapping_add(1);
        self.entries[slot as usize] = Entry { generation, ..Entry::default() };
        self.free.push(slot);
        debug_assert_eq!(self.len(), self.entries.len() - self.free.len());
    }

    /// Appends the next packet that belongs to no association to `payload`, and returns its addressing.
    pub fn poll_transmit(&mut self, payload: &mut Vec<u8>) -> Option<Addressing> {
        let Reply { way, bytes } = self.replies.pop_front()?;
        payload.extend_from_slice(&bytes);
        Some(way)
    }

    fn reply(&mut self, reply: Reply) {
        if self.replies.len() < MAX_REPLIES {
            self.replies.push_back(reply);
        } else {
            self.counters.replies_full += 1;
        }
    }

    /// Sends the final chunk of an ended association.
    fn send_final_chunk(&mut self, association: &mut Association) {
        let Some(final_chunk) = association.take_final_chunk() else { return };
        let way = association.final_addressing();
        let ports = (association.ends.local_port, association.ends.remote_port);
        let (tag, local_tag) = (association.tags.outbound(), association.tags.local);
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
}

/// Returns every pair of a local and a remote address.
fn keys(identity: &Identity) -> impl Iterator<Item = Key> {
    let (local_port, remote_port) = identity.ports;
    identity.remotes.iter().flat_map(move |&remote| {
        let key = move |&local: &IpAddr| Key::new(local, local_port, remote, remote_port);
        identity.locals.iter().map(key)
    })
}

/// Returns whether addresses can be those of one endpoint.
fn are_ends(addresses: &[IpAddr]) -> bool {
    (1..=MAX_ADDRESSES).contains(&addresses.len())
        && addresses.iter().all(|&address| crate::association::is_unicast(address))
}
