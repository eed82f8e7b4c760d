//! Sessions: keys, and a route, between the routers of two hosts.
//!
//! The first packet to a prefix is a question: LOOKUP travels by the ring to the router that owns the prefix and carries
//! the first message of a handshake; the answer brings the second back over the way that was recorded, and with it the
//! route. CONFIRM is the third. No packet of a host leaves before, so none is ever sent in the clear, and only the holder
//! of the key behind the prefix can answer.
//!
//! A session is renewed by the same question: when it is old, when its route is broken, or when what is sent is not
//! answered. Until the new one has carried something the old one is used, unless its route is known to be broken
//! (`session/renewal.rs`).

mod apart;
mod aparts;
mod denials;
mod fragments;
mod halves;
mod peer;
mod probes;
mod renewal;
mod routes;
mod track;

use std::collections::BTreeMap;
use std::sync::Arc;

use ringway_sansio::time::{Duration, sooner};
use ringway_sansio::{Random, Time};
use smallvec::SmallVec;

use crate::config::Limits;
use crate::crypto::Crypto;
use crate::id::{NodeId, Prefix};
use crate::local::LocalRouter;
use crate::wire::bodies::{SESSION_FIRST, SESSION_PAYLOAD, SESSION_SECOND, SESSION_THIRD};
use crate::wire::{MessageId, Route, Slot};
use aparts::Aparts;
use fragments::Fragments;
use peer::{Established, Half, Path, Search, Session};

pub use fragments::Piece;
pub use peer::Contents;
pub(crate) use probes::Probes;
pub use probes::{Departure, ProbeId, ProbeOutcome, ProbeRefused};
pub use renewal::Which;
pub use track::Track;

/// Times that a question is asked.
const TRIES: u32 = 9;
/// First wait for an answer; each further one is twice as long, up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(300);
const MAX_WAIT: Duration = Duration::from_millis(1_200);
/// Time by which a search may have begun before its peer can have known of a session.
const CROSSING: Duration = Duration::from_secs(1);
/// Time for which a router must state that a prefix has no owner.
const DENIED: Duration = Duration::from_millis(600);
/// Time for which a prefix that nobody owns is not looked for again.
const NEGATIVE: Duration = Duration::from_secs(1);
/// Lifetime of a session that is used, and of one that is not.
const RENEW: Duration = Duration::from_secs(120);
const IDLE: Duration = Duration::from_secs(240);
/// Time for which the answer to a LOOKUP waits for its CONFIRM.
const HALF: Duration = Duration::from_secs(10);
/// Time of sending without an answer after which one is asked for, how often it is asked for again, and time after which
/// another route is.
const SILENT: Duration = Duration::from_secs(1);
const ASK_AGAIN: Duration = Duration::from_millis(500);
const UNANSWERED: Duration = Duration::from_secs(3);

/// Maximum number of neighbours of an owner that are remembered.
const MAX_WAYPOINTS: usize = 12;

/// What to do with a packet of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Delivery {
    /// Seal it with [`Sessions::seal`].
    Send,
    /// It waits for a session.
    Queued,
    /// Nobody owns the prefix.
    NoRoute,
    /// It is longer than the path allows, in octets.
    TooBig(u16),
    /// There is no room for it.
    Dropped,
}

/// A message that is to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SessionAction {
    /// A LOOKUP by way of the ring.
    LookUp {
        /// Whose owner is looked for.
        prefix: Prefix,
        /// The number of the message.
        id: MessageId,
        /// Our number for the session.
        index: u32,
        /// The first message of the handshake.
        noise: Vec<u8>,
        /// Whether it goes another way than the best, because that has failed.
        by_another: bool,
        /// The neighbour of the owner by which it goes.
        via: Option<NodeId>,
    },
    /// A CONFIRM along a route.
    Confirm {
        /// The owner.
        to: NodeId,
        /// The way to it.
        route: Route,
        /// Its number for the session.
        receiver: u32,
        /// The third message of the handshake.
        noise: Vec<u8>,
    },
    /// The packets that have waited can be sent.
    Ready(Track),
    /// The packets of which it is not known whether they have arrived are sent again.
    Again(Track),
    /// Nobody owns the prefix. These packets have waited for it.
    NoRoute(Track, Vec<Vec<u8>>),
    /// A LOOKUP_APART.
    LookUpApart {
        /// Whose owner is looked for.
        prefix: Prefix,
        /// The number of the message.
        id: MessageId,
        /// Our number for the session.
        index: u32,
        /// The first message of the handshake.
        noise: Vec<u8>,
        /// Whether it avoids the links of the ordinary route alone, and not its routers.
        links_alone: bool,
        /// Whether it goes another way than the best, because that has failed.
        by_another: bool,
    },
    /// Asks so many routers on the way for their ids.
    Trace(Track, u8),
    /// Asks whether the session is alive.
    KeepAlive(Track, Which),
    /// Answers, with what the question contained.
    Alive(Track, Which, u64),
}

/// What an answer to a LOOKUP has shown of the way to the owner.
pub struct Way {
    /// The route.
    pub route: Route,
    /// The smallest MTU, as routers on the way say.
    pub mtu: u16,
}

/// Counts of look-ups, and of what did not work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Look-ups that have found the owner of a prefix.
    pub found: u64,
    /// Time that these took, in all.
    pub finding: Duration,
    /// Look-ups of prefixes that nobody owns.
    pub absent: u64,
    /// Look-ups without an answer.
    pub unanswered: u64,
    /// Packets that found no room to wait.
    pub queue_full: u64,
    /// Sessions that had to make room.
    pub evicted: u64,
    /// Handshakes that cannot be opened, or prove another identity.
    pub refused: u64,
    /// Packets that cannot be opened, or came twice.
    pub forged: u64,
    /// Packets of no session.
    pub unknown: u64,
    /// Routes that are too long for packets of hosts.
    pub too_long: u64,
    /// Packets of which pieces have not come, or do not belong together.
    pub incomplete: u64,
}

/// The sessions of a router.
pub struct Sessions<C: Crypto> {
    limits: Arc<Limits>,
    /// Elsewhere, because a node of the tree has room for eleven.
    peers: BTreeMap<Track, Box<Peer<C>>>,
    by_index: BTreeMap<u32, Track>,
    halves: Vec<Half<C>>,
    fragments: Fragments,
    aparts: Aparts,
    /// Counts of look-ups, and of what did not work.
    pub counters: Counters,
}

/// Everything about one prefix.
struct Peer<C: Crypto> {
    session: Option<Session<C::Keys>>,
    /// The session before, for packets that are still on their way.
    previous: Option<Session<C::Keys>>,
    /// The session that is to follow, when it has carried something.
    next: Option<Session<C::Keys>>,
    search: Option<Search>,
    /// Sessions in a row by whose route nothing came.
    failures: u32,
    /// Neighbours of the owner, as it says, the newest first: ways that lead to them come to it from several sides.
    waypoints: SmallVec<[NodeId; 4]>,
    queue: Vec<Vec<u8>>,
    absent_until: Time,
    used: Time,
}

impl<C: Crypto> Sessions<C> {
    /// No sessions.
    pub fn new(limits: impl Into<Arc<Limits>>) -> Self {
        Sessions {
            limits: limits.into(),
            peers: BTreeMap::new(),
            by_index: BTreeMap::new(),
            halves: Vec::new(),
            fragments: Fragments::default(),
            aparts: Aparts::default(),
            counters: Counters::default(),
        }
    }

    /// Returns the number of sessions that are up.
    pub fn up(&self) -> usize {
        self.peers.values().filter(|peer| peer.session.is_some()).count()
    }

    /// Returns the octets that are allocated, without the packets that wait.
    pub fn heap_bytes(&self) -> usize {
        // Trees are about half full.
        self.peers.len() * (size_of::<Peer<C>>() + 2 * size_of::<(Track, Box<Peer<C>>)>())
            + 2 * self.by_index.len() * size_of::<(u32, Track)>()
            + self.halves.capacity() * size_of::<Half<C>>()
            + self.fragments.heap_bytes()
            + self.aparts.heap_bytes()
    }

    /// Returns the route of a session.
    pub fn route(&self, track: Track) -> Option<&Route> {
        self.peers.get(&track)?.session.as_ref().map(|session| &session.path.route)
    }

    /// Decides what to do with a packet to a prefix.
    pub fn offer(
        &mut self,
        now: Time,
        local: &LocalRouter,
        track: Track,
        packet: &[u8],
        random: &mut dyn Random,
        out: &mut Vec<SessionAction>,
    ) -> Delivery {
        if let Some(session) = self.peers.get(&track).and_then(|peer| peer.session.as_ref())
            && packet.len() > usize::from(session.mtu())
            && !session.broken
        {
            return Delivery::TooBig(session.mtu());
        }
        match self.ready(now, local, track, random, out) {
            Delivery::Queued => self.queue(track, packet),
            Delivery::Send => {
                let room = self.limits.queued_packets;
                let session = self.peers.get_mut(&track).and_then(|peer| peer.session.as_mut());
                // Who has two ways has what is lost sent again by the other.
                let kept = session.filter(|_| !track.is_apart());
                kept.into_iter().for_each(|session| session.keep_next(now, room));
                Delivery::Send
            }
            delivery => delivery,
        }
    }

    /// Decides whether a packet to a prefix can be sent now. [`Delivery::Queued`] is: not before
    /// [`SessionAction::Ready`].
    pub(crate) fn ready(
        &mut self,
        now: Time,
        local: &LocalRouter,
        track: Track,
        random: &mut dyn Random,
        out: &mut Vec<SessionAction>,
    ) -> Delivery {
        self.peer(now, track);
        self.replace_broken(track);
        let Some(peer) = self.peers.get_mut(&track) else { return Delivery::Dropped };
        peer.used = now;
        if let Some(session) = &mut peer.session {
            let is_old = session.is_old(now) && peer.next.is_none();
            let is_broken = session.broken;
            session.waiting_since.get_or_insert(now);
            if !is_broken {
                if is_old {
                    self.search(now, local, track, random, out);
                }
                return Delivery::Send;
            }
        } else if peer.absent_until > now {
            return Delivery::NoRoute;
        }
        self.search(now, local, track, random, out);
        Delivery::Queued
    }

    /// Appends a packet with these contents to `out`. Returns how it leaves, or `None` if there is no session.
    pub fn seal(
        &mut self,
        track: Track,
        contents: &Contents<'_>,
        hop_limit: u8,
        out: &mut Vec<u8>,
    ) -> Option<Departure> {
        self.seal_by((track, Which::Current), contents, hop_limit, out)
    }

    /// Returns the pieces in which a packet leaves for a prefix with a session. There are none if it leaves as it is.
    pub fn pieces<'a>(&self, track: Track, packet: &'a [u8]) -> impl Iterator<Item = Piece<'a>> {
        let session = self.peers.get(&track).and_then(|peer| peer.session.as_ref());
        session.into_iter().flat_map(|session| session.pieces(packet))
    }

    /// Takes a piece that has come with the number `nonce` of a session, by a neighbour. Returns the packet if it is the
    /// last one that was missing.
    pub fn join(
        &mut self,
        now: Time,
        (index, nonce): (u32, u64),
        entered: Slot,
        piece: &Piece<'_>,
    ) -> Option<Vec<u8>> {
        let packet = self.fragments.join(now, (index, nonce), entered, piece);
        self.counters.incomplete = self.fragments.dropped;
        packet
    }

    /// Appends the packet at a position of those of which it is not known whether they have arrived, as it was sent before.
    /// Returns `false` if there is none.
    pub(crate) fn seal_again(
        &mut self,
        track: Track,
        at: usize,
        hop_limit: u8,
        out: &mut Vec<u8>,
    ) -> bool {
        let session = self.peers.get_mut(&track).and_then(|peer| peer.session.as_mut());
        session.is_some_and(|session| session.seal_again::<C>(at, hop_limit, out))
    }

    /// Removes a packet of the session before, of which it is not known whether it has arrived, and appends it as it is sent by
    /// the route of this one. Returns `false` if there is none.
    pub(crate) fn seal_previous(&mut self, track: Track, hop_limit: u8, out: &mut Vec<u8>) -> bool {
        let previous = self.peers.get_mut(&track).and_then(|peer| peer.previous.as_mut());
        previous.is_some_and(|previous| {
            let is_one = previous.seal_again::<C>(0, hop_limit, out);
            previous.forget();
            is_one
        })
    }

    /// Returns the first hop to a prefix with a session.
    pub fn first_hop(&self, track: Track) -> Option<Slot> {
        self.route(track).map(|route| route.first)
    }

    /// Removes the packets that have waited for a session.
    pub fn take_queue(&mut self, track: Track) -> Vec<Vec<u8>> {
        self.peers.get_mut(&track).map(|peer| core::mem::take(&mut peer.queue)).unwrap_or_default()
    }

    /// Opens what was sealed for the session `index` with a number. Returns its sender, and the contents.
    pub fn open<'a>(
        &mut self,
        now: Time,
        (index, nonce): (u32, u64),
        header: &[u8],
        sealed: &'a mut [u8],
        out: &mut Vec<SessionAction>,
    ) -> Option<(NodeId, Contents<'a>)> {
        let Some(&track) = self.by_index.get(&index) else {
            self.counters.unknown += 1;
            return None;
        };
        let peer = self.peers.get_mut(&track)?;
        let sessions = [peer.session.as_mut(), peer.previous.as_mut(), peer.next.as_mut()];
        let session = sessions.into_iter().flatten().find(|session| session.index == index)?;
        let (owner, was_broken) = (session.owner, session.broken);
        let contents = session.open::<C>(now, nonce, header, sealed);
        self.counters.forged += u64::from(contents.is_none());
        if contents.is_some() {
            peer.used = now;
            match (was_broken, session.broken) {
                (false, false) => peer.failures = 0,
                // What has come says that most does not: the next search goes another way.
                (false, true) => peer.failures = peer.failures.saturating_add(1),
                (true, _) => {}
            }
            // Its peer has used it, or has answered what has come by it: it works in both directions. What was sent by
            // the one before may have been lost, if the peer looked for this one because that was broken.
            if !matches!(contents, Some(Contents::KeepAlive(_))) && self.promote_if(track, index) {
                out.push(SessionAction::Ready(track));
            }
        }
        contents.map(|contents| (owner, contents))
    }

    /// Returns the way of the session with this number.
    pub(crate) fn track_of(&self, index: u32) -> Option<Track> {
        self.by_index.get(&index).copied()
    }

    /// Returns whether a session has this number, or a handshake of which the CONFIRM is still on its way.
    pub(crate) fn knows(&self, index: u32) -> bool {
        self.by_index.contains_key(&index) || self.halves.iter().any(|half| half.index == index)
    }

    /// Handles the answer to a LOOKUP, which came with the route to the owner.
    pub fn look_up_ack(
        &mut self,
        now: Time,
        local: &LocalRouter,
        id: MessageId,
        (remote, noise): (u32, &[u8]),
        way: Way,
        out: &mut Vec<SessionAction>,
    ) {
        let is_it = |peer: &Peer<C>| peer.search.as_ref().is_some_and(|search| search.id == id);
        let Some(track) = self.peers.iter().find(|(_, peer)| is_it(peer)).map(|(&track, _)| track)
        else {
            return;
        };
        let ordinary = self.first_hop(Track::ordinary(track.prefix()));
        let Some(peer) = self.peers.get_mut(&track) else { return };
        let Some(search) = &mut peer.search else { return };
        let Way { route, mtu } = way;
        let path = Path { route: route.clone(), mtu, mark: id.mark() };
        if !path.is_wide() {
            self.counters.too_long += 1;
            return;
        }
        // Whoever says so of a route that begins as the ordinary one is not believed.
        if track.is_apart() && ordinary == Some(route.first) {
            self.counters.refused += 1;
            return;
        }
        let finished = search.finish::<C>(local, noise, mtu);
        let finished = finished.filter(|(shown, _)| shown.owner.prefix() == track.prefix());
        let Some((Established { keys, owner, neighbour, .. }, third)) = finished else {
            self.counters.refused += 1;
            return;
        };
        if let Some(neighbour) = neighbour.filter(|id| !peer.waypoints.contains(id)) {
            peer.waypoints.truncate(MAX_WAYPOINTS - 1);
            peer.waypoints.insert(0, neighbour);
        }
        let (index, begun) = (search.index, search.begun);
        let times = (now.since(search.asked), now.since(begun));
        self.counters.found += 1;
        self.counters.finding += now.since(begun);
        peer.search = None;
        let session = Session::new(now, owner, (index, remote), keys, path);
        let session = session.confirmed_by(now, third.clone(), times, peer.failures);
        let is_used = self.install(now, local.id(), track, (begun, Duration::ZERO), session);
        out.push(SessionAction::Confirm { to: owner, route, receiver: remote, noise: third });
        if track.is_apart() {
            self.aparts.found(now, track.prefix());
            // It is used when this is answered.
            let which = if is_used { Which::Current } else { Which::Next };
            return out.push(SessionAction::KeepAlive(track, which));
        }
        out.push(match is_used {
            true => SessionAction::Ready(track),
            false => SessionAction::KeepAlive(track, Which::Next),
        });
    }

    /// A statement that nobody has the prefix is believed.
    fn denied(&mut self, now: Time, track: Track, out: &mut Vec<SessionAction>) {
        self.counters.absent += 1;
        self.absent(now, track, out);
    }

    /// Nobody has the prefix: the search for its owner ends, and a session with a route that is broken.
    pub(crate) fn absent(&mut self, now: Time, track: Track, out: &mut Vec<SessionAction>) {
        let Some(peer) = self.peers.get_mut(&track) else { return };
        peer.search = None;
        if track.is_apart() {
            return self.aparts.failed(now, track.prefix());
        }
        if let Some(session) = peer.session.as_mut().filter(|session| !session.broken) {
            session.renewal_failed(now);
            return;
        }
        if self.promote(track) {
            out.push(SessionAction::Ready(track));
            return;
        }
        let Some(peer) = self.peers.get_mut(&track) else { return };
        if let Some(mut session) = peer.session.take() {
            peer.queue.splice(0..0, session.take_unsure());
            // The peer may not know of it, and send by it when the routes are good again.
            let oldest = peer.previous.replace(session);
            oldest.iter().for_each(|oldest| _ = self.by_index.remove(&oldest.index));
        }
        peer.absent_until = now + NEGATIVE;
        out.push(SessionAction::NoRoute(track, core::mem::take(&mut peer.queue)));
    }

    /// Returns how many packets of a session have come.
    pub(crate) fn received(&mut self, track: Track, which: Which) -> u64 {
        let session = self.peers.get_mut(&track).and_then(|peer| peer.session_mut(which));
        session.map_or(0, |session| session.received())
    }

    /// Does what is due.
    pub fn timeout(
        &mut self,
        now: Time,
        local: &LocalRouter,
        random: &mut dyn Random,
        out: &mut Vec<SessionAction>,
    ) {
        self.halves.retain(|half| now.since(half.since) < HALF);
        self.fragments.expire(now);
        self.counters.incomplete = self.fragments.dropped;
        let (mut renewed, mut failed) = (Vec::new(), Vec::new());
        for (&track, peer) in &mut self.peers {
            let tries = if track.is_apart() { track::TRIES_APART } else { TRIES };
            if let Some(search) = &mut peer.search {
                out.extend(search.ask_at_once::<C>(local, track));
            }
            if let Some(search) = &mut peer.search
                && search.due <= now
            {
                if search.tries >= tries {
                    self.counters.unanswered += 1;
                    failed.push(track);
                } else {
                    // From the second time on it goes another way.
                    let via = draw(&peer.waypoints, random);
                    out.extend(search.ask::<C>(now, local, track, true, via));
                }
            }
            let Some(session) = &mut peer.session else { continue };
            if let Some(confirm) = session.confirm_again(now) {
                out.extend([confirm, SessionAction::Again(track)]);
            }
            if session.is_owing() && peer.search.is_none() {
                renewed.push(track);
            }
            if session.is_unanswered(now) {
                peer.failures = peer.failures.saturating_add(1);
                renewed.push(track);
            } else if session.asks(now) {
                let ask = SessionAction::KeepAlive(track, Which::Current);
                out.extend([SessionAction::Again(track), ask]);
            }
        }
        self.renewal_timeout(now, out);
        failed.into_iter().for_each(|track| self.absent(now, track, out));
        for track in renewed {
            if self.replace_broken(track) {
                out.push(SessionAction::Ready(track));
            } else {
                self.search(now, local, track, random, out);
            }
        }
        self.aparts_timeout(now, local, random, out);
        let idle = |peer: &Peer<C>| peer.search.is_none() && now.since(peer.used) >= IDLE;
        let gone: Vec<Track> =
            self.peers.iter().filter(|(_, peer)| idle(peer)).map(|(&track, _)| track).collect();
        gone.into_iter().for_each(|track| self.remove(track));
    }

    /// Returns when something is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        let half = self.halves.iter().map(|half| half.since + HALF).min();
        let peers = self.peers.values().filter_map(|peer| Self::due_of(peer, IDLE));
        let aparts = self.aparts.poll_timeout(IDLE);
        sooner(sooner(sooner(half, self.fragments.due()), peers.min()), aparts)
    }

    fn queue(&mut self, track: Track, packet: &[u8]) -> Delivery {
        match self.peers.get_mut(&track) {
            Some(peer) if peer.queue.len() < self.limits.queued_packets => {
                peer.queue.push(packet.to_vec());
                Delivery::Queued
            }
            _ => {
                self.counters.queue_full += 1;
                Delivery::Dropped
            }
        }
    }

    /// Begins to look for the owner of a prefix, unless that is under way.
    fn search(
        &mut self,
        now: Time,
        local: &LocalRouter,
        track: Track,
        random: &mut dyn Random,
        out: &mut Vec<SessionAction>,
    ) {
        if track.is_apart() {
            return self.aparts.hurry(now, track.prefix());
        }
        if self.peers.get(&track).is_none_or(|peer| peer.search.is_some()) {
            return;
        }
        let index = self.new_index(random);
        let Some(peer) = self.peers.get_mut(&track) else { return };
        let has_failed = peer.session.as_ref().is_some_and(Session::has_failed_renewals);
        let by_another = peer.failures > 0 || has_failed;
        let via = if by_another { draw(&peer.waypoints, random) } else { None };
        let search = peer.search.insert(Search::new(now, index, random));
        out.extend(search.ask::<C>(now, local, track, by_another, via));
    }

    /// Begins to use a session. If both ends have looked each other up at the same time, both use the session that the
    /// router with the lower id has begun; otherwise each would send by one and receive by the other for ever. `begun` is
    /// when the search for the new one began, as far as is known here. Returns `false` if another works, which the new one
    /// is to follow.
    fn install(
        &mut self,
        now: Time,
        own: NodeId,
        track: Track,
        (begun, slack): (Time, Duration),
        session: Session<C::Keys>,
    ) -> bool {
        let Some(peer) = self.peers.get_mut(&track) else { return false };
        self.by_index.insert(session.index, track);
        let is_preferred = |session: &Session<C::Keys>| session.initiated == (own < session.owner);
        let crossed = |current: &Session<C::Keys>| begun <= current.since + slack;
        let current = peer.session.as_ref().filter(|current| !current.broken);
        let oldest = match current {
            Some(current)
                if crossed(current) && is_preferred(current) && !is_preferred(&session) =>
            {
                peer.previous.replace(session).map(|oldest| oldest.index)
            }
            Some(current) if !crossed(current) && current.is_proved() => {
                self.install_next(now, track, session);
                return false;
            }
            _ => peer.follow(session),
        };
        if let Some(oldest) = oldest {
            self.by_index.remove(&oldest);
        }
        true
    }

    /// Makes room for another prefix: the least recently used makes way.
    fn make_room(&mut self) {
        if self.peers.len() < self.limits.sessions {
            return;
        }
        let oldest = self.peers.iter().min_by_key(|(_, peer)| peer.used);
        if let Some(track) = oldest.map(|(&track, _)| track) {
            self.counters.evicted += 1;
            self.remove(track);
        }
    }

    /// Returns what is known of the owner of a prefix by a way, also if that is nothing.
    fn peer(&mut self, now: Time, track: Track) -> &mut Peer<C> {
        if !self.peers.contains_key(&track) {
            self.make_room();
        }
        self.peers.entry(track).or_insert_with(|| Box::new(Peer::new(now)))
    }

    fn remove(&mut self, track: Track) {
        self.peers.remove(&track);
        self.by_index.retain(|_, other| *other != track);
    }

    fn new_index(&self, random: &mut dyn Random) -> u32 {
        loop {
            let index = random.next_u64() as u32;
            let is_half = self.halves.iter().any(|half| half.index == index);
            if !self.by_index.contains_key(&index) && !is_half {
                return index;
            }
        }
    }
}

impl<C: Crypto> Peer<C> {
    fn new(now: Time) -> Self {
        let (session, previous, next, search) = (None, None, None, None);
        let queue = Vec::new();
        let (absent_until, used, waypoints) = (now, now, SmallVec::new());
        Peer { session, previous, next, search, failures: 0, waypoints, queue, absent_until, used }
    }
}

/// Returns one of the neighbours of an owner.
fn draw(waypoints: &[NodeId], random: &mut dyn Random) -> Option<NodeId> {
    let at = random.next_u64() % (waypoints.len() as u64).max(1);
    waypoints.get(at as usize).copied()
}

const _: () = assert!(SESSION_FIRST < SESSION_SECOND && SESSION_THIRD < SESSION_SECOND);
const _: () = assert!(SESSION_PAYLOAD == 63);
