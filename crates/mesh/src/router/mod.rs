//! The router: links, the overlay and messages joined to one machine.
//!
//! Its caller passes packets and the time, and sends what [`Router::poll_transmit`] returns. Whatever a call causes is
//! complete when the call returns.

/// Lends the messenger what it needs of a router.
macro_rules! desk {
    ($router:ident, $now:expr, $random:expr) => {
        Desk {
            now: $now,
            local: &mut $router.local,
            overlay: &$router.overlay,
            outbox: &mut $router.outbox,
            random: $random,
        }
    };
}

/// Lends the carrier what it needs of a router.
macro_rules! road {
    ($router:ident, $now:expr) => {
        Road {
            now: $now,
            local: &$router.local,
            links: &mut $router.links,
            detours: &$router.detours,
            outbox: &mut $router.outbox,
            output: &mut $router.output,
        }
    };
}

mod apart;
mod arrivals;
mod carrier;
mod detours;
mod messenger;
mod outbox;
mod reports;

use core::cell::Cell;
use core::net::Ipv6Addr;
use core::ops::Range;
use std::collections::VecDeque;

use ringway_sansio::time::sooner;
use ringway_sansio::{Malformed, Random, Time};

use crate::config::Config;
use crate::crypto::{Crypto, Real};
use crate::forward::apart::Entered;
use crate::forward::message::{Here, Verdict, forward};
use crate::forward::transit::transit;

use crate::icmp::IcmpError;
use crate::id::Prefix;
use crate::id::{NodeId, Sequence};
use crate::link::{
    DownReason, Dropped, InterfaceConfig, LinkAddress, LinkEvent, Links, PATH_COST, UNIT,
    handshake::Refused,
};
use crate::local::LocalRouter;
use crate::metric::{Ring, Space};
use crate::output::{Burst, Output, Transmit};
use crate::ring::{Action, Overlay};
use crate::routes::{Contact, Detours, Marks};
use crate::session::{Contents, ProbeId, ProbeOutcome, ProbeRefused, SessionAction, Track};
use crate::wire::bodies::MAX_PAYLOAD;
use crate::wire::{Item, Items, Kind, Message, Route, Routed, Slot};
use carrier::{Carrier, Road};
use messenger::{Desk, Messenger, Request, Sent, Way};
use outbox::Outbox;

pub use crate::session::Counters as SessionCounters;
pub use carrier::PacketCounters;
pub use messenger::Counters as MessageCounters;

/// Octets that an ERROR or BROKEN counts of what a neighbour may send.
const NOTICE: usize = 64;
/// Maximum number of events that wait for the caller.
const MAX_EVENTS: usize = 256;

/// What has happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A neighbour's link can be used.
    NeighbourUp(NodeId),
    /// A neighbour's link cannot be used any more.
    NeighbourDown(NodeId, DownReason),
    /// A handshake of a link has failed.
    Refused(LinkAddress, Refused),
    /// Another router has this router's identity.
    DuplicateIdentity(LinkAddress),
    /// Octets of an application for a key that this router is responsible for.
    Closest {
        /// The router that has sent them, verified.
        origin: NodeId,
        /// The key.
        key: NodeId,
        /// The application.
        application: u16,
        /// The octets.
        octets: Vec<u8>,
    },
    /// A probe has ended.
    Probe(ProbeId, ProbeOutcome),
}

/// Octets of an application for whoever is responsible for a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closest<'a> {
    /// The key.
    pub key: NodeId,
    /// The application.
    pub application: u16,
    /// The octets, at most [`MAX_PAYLOAD`].
    pub octets: &'a [u8],
    /// Whether they begin by another contact than the best, because that seems to have failed.
    pub by_another: bool,
}

impl<'a> Closest<'a> {
    /// Octets that go by the best way.
    pub fn new(key: NodeId, application: u16, octets: &'a [u8]) -> Self {
        Closest { key, application, octets, by_another: false }
    }
}

/// Why octets of an application are not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// There are too many.
    #[error("a payload has at most {MAX_PAYLOAD} octets, got {0}")]
    TooLong(usize),
    /// The budget of applications is used up for now.
    #[error("the budget of the messages of applications is used up")]
    Budget,
}

/// Counts of packets that were dropped, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Packets and items that are malformed.
    pub malformed: u64,
    /// CONTROL packets of no link, replayed, or forged.
    pub refused: u64,
    /// Messages above the rate of their neighbour.
    pub policed: u64,
    /// Messages between other routers that were forwarded.
    pub forwarded: u64,
    /// Messages that could not be forwarded.
    pub undelivered: u64,
    /// CONNECTs that say nothing new: late ones, or recorded ones.
    pub repeated: u64,
    /// Statements of absence that were false.
    pub refuted: u64,
    /// Events that found no room.
    pub events: u64,
}

/// Returns the least that a route can cost. Whoever claims less is not believed.
fn least_cost(route: &Route) -> u16 {
    (UNIT / PATH_COST).saturating_mul(route.hops())
}

/// What became of a packet.
enum Received {
    /// It was forwarded, or was a sign of life, and nothing else has changed.
    Passed,
    /// Where in its buffer a packet for a host here is.
    Delivered(Range<usize>),
    /// Whatever it asked for.
    Handled,
}

/// A router of the mesh.
pub struct Router<C: Crypto = Real, S: Space = Ring> {
    local: LocalRouter,
    links: Links<C>,
    overlay: Overlay<S>,
    marks: Marks,
    detours: Detours,
    carrier: Carrier<C>,
    messenger: Messenger<C>,
    outbox: Outbox,
    output: Output,
    actions: Vec<Action>,
    events: VecDeque<Event>,
    counters: Counters,
    /// When something is due, if that was computed since anything has changed.
    due: Cell<Option<Option<Time>>>,
}

impl<C: Crypto, S: Space> Router<C, S> {
    /// A router without interfaces.
    pub fn new(config: &Config, local: LocalRouter, now: Time, random: &mut dyn Random) -> Self {
        let limits = &config.limits;
        Router {
            links: Links::new(now, limits.clone(), random),
            overlay: Overlay::new(local.id(), limits.clone()),
            marks: Marks::new(limits.marks),
            detours: Detours::default(),
            carrier: Carrier::new(limits.clone()),
            messenger: Messenger::new(now, config),
            local,
            outbox: Outbox::default(),
            output: Output::new(limits.output),
            actions: Vec::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
            due: Cell::new(None),
        }
    }

    /// Returns the router's id.
    pub fn id(&self) -> NodeId {
        self.local.id()
    }

    /// Returns the links.
    pub fn links(&self) -> &Links<C> {
        &self.links
    }

    /// Returns the overlay.
    pub fn overlay(&self) -> &Overlay<S> {
        &self.overlay
    }

    /// Returns the number of sessions that are up.
    pub fn sessions(&self) -> usize {
        self.carrier.sessions.up()
    }

    /// Returns the octets that the router has allocated, without what allocators add.
    pub fn heap_bytes(&self) -> usize {
        let actions = self.actions.capacity() * size_of::<Action>();
        self.links.heap_bytes()
            + self.overlay.heap_bytes()
            + self.marks.heap_bytes()
            + self.detours.heap_bytes()
            + self.carrier.heap_bytes()
            + self.messenger.heap_bytes()
            + self.outbox.heap_bytes()
            + self.output.heap_bytes()
            + actions
            + self.events.capacity() * size_of::<Event>()
    }

    /// Returns the counts of dropped packets.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the counts of packets of hosts.
    pub fn packet_counters(&self) -> PacketCounters {
        self.carrier.counters
    }

    /// Returns the counts of look-ups, and of what did not become a session.
    pub fn session_counters(&self) -> SessionCounters {
        self.carrier.sessions.counters
    }

    /// Returns the counts of messages that were not sent.
    pub fn message_counters(&self) -> MessageCounters {
        self.messenger.counters
    }

    /// Adds an interface, and discovers routers by it.
    pub fn add_interface(&mut self, now: Time, config: InterfaceConfig, random: &mut dyn Random) {
        self.links.add_interface(now, config, random);
        self.settle(now, random);
    }

    /// Removes an interface. Its links are down at once.
    pub fn remove_interface(&mut self, now: Time, index: u32, random: &mut dyn Random) {
        self.links.remove_interface(now, index);
        self.settle(now, random);
    }

    /// The system has reported that it cannot send to an address.
    pub fn send_failed(&mut self, now: Time, to: LinkAddress, random: &mut dyn Random) {
        self.links.send_failed(now, to);
        self.handle_timeout(now, random);
    }

    /// Handles a packet of another router, which is decrypted in its buffer. Returns where in the buffer a packet for a host
    /// here is, if it has brought one.
    pub fn handle_packet(
        &mut self,
        now: Time,
        from: LinkAddress,
        bytes: &mut [u8],
        random: &mut dyn Random,
    ) -> Option<Range<usize>> {
        match self.receive(now, from, bytes, random) {
            // Nothing but the packet that leaves has changed, or the time at which a neighbour was heard.
            Ok(Received::Passed) if !self.links.is_changed() => return None,
            Ok(Received::Delivered(range)) => {
                self.settle(now, random);
                return Some(range);
            }
            Ok(Received::Passed | Received::Handled) => {}
            Err(_) => self.counters.malformed += 1,
        }
        self.settle(now, random);
        None
    }

    /// Sends octets of an application to the router that is responsible for a key, which may be this one; there they are an
    /// [`Event::Closest`]. Nobody acknowledges them: an application that needs that asks for an answer.
    ///
    /// # Errors
    /// More than [`MAX_PAYLOAD`] octets, or the budget of applications is used up.
    pub fn send_closest(
        &mut self,
        now: Time,
        closest: &Closest<'_>,
        random: &mut dyn Random,
    ) -> Result<(), Refusal> {
        if closest.octets.len() > MAX_PAYLOAD {
            return Err(Refusal::TooLong(closest.octets.len()));
        }
        let mut desk = desk!(self, now, random);
        let sent = self.messenger.payload(&mut desk, closest);
        if sent == Sent::Here {
            let &Closest { key, application, octets, .. } = closest;
            let (origin, octets) = (self.local.id(), octets.to_vec());
            self.notify(Event::Closest { origin, key, application, octets });
        }
        self.settle(now, random);
        if sent == Sent::Refused { Err(Refusal::Budget) } else { Ok(()) }
    }

    /// Sends a probe to the router that owns an address. It goes where packets of hosts go, over at most `hop_limit` links;
    /// 0 is as many as there are. What becomes of it is an [`Event::Probe`]; there is none if nothing is heard of it.
    ///
    /// # Errors
    /// An address that is not of the mesh, or is this router's own, or too many probes under way.
    pub fn probe(
        &mut self,
        now: Time,
        destination: Ipv6Addr,
        hop_limit: u8,
        random: &mut dyn Random,
    ) -> Result<ProbeId, ProbeRefused> {
        let prefix = Prefix::of(&destination).ok_or(ProbeRefused::NotMesh)?;
        if prefix == self.local.id().prefix() {
            return Err(ProbeRefused::Own);
        }
        let to = (prefix, destination);
        let id = self.carrier.probe(&mut road!(self, now), to, hop_limit, random);
        self.settle(now, random);
        id
    }

    /// Handles an IPv6 packet of a host here.
    pub fn handle_local(&mut self, now: Time, packet: &[u8], random: &mut dyn Random) {
        self.carrier.send(&mut road!(self, now), packet, random);
        self.settle(now, random);
    }

    /// Removes and returns the next packet for a host here that [`handle_packet`](Self::handle_packet) has not returned: an
    /// ICMPv6 error, or a packet that came in pieces.
    pub fn poll_local(&mut self) -> Option<Vec<u8>> {
        self.carrier.poll_local()
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time, random: &mut dyn Random) {
        self.links.timeout(now, &self.local, random, &mut self.output);
        self.overlay.timeout(now, &mut self.actions);
        self.expire_detours(now);
        let (sessions, actions) = self.carrier.parts();
        sessions.timeout(now, &self.local, random, actions);
        let mut desk = desk!(self, now, random);
        let abandoned = self.messenger.retry(&mut desk);
        let expired: Vec<Request> =
            core::iter::from_fn(|| self.messenger.expire(&mut desk)).collect();
        abandoned.into_iter().for_each(|id| self.overlay.abandon(id));
        for request in expired {
            self.give_up(now, &request);
        }
        self.settle(now, random);
    }

    /// Returns when something is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        if let Some(due) = self.due.get() {
            return due;
        }
        let due = self.next_timeout();
        self.due.set(Some(due));
        due
    }

    fn next_timeout(&self) -> Option<Time> {
        let overlay = sooner(self.overlay.poll_timeout(), self.messenger.poll_timeout());
        let links = sooner(self.links.poll_timeout(), self.detours.poll_timeout());
        sooner(sooner(links, self.carrier.sessions.poll_timeout()), overlay)
    }

    /// Exchanges all packets to send for an empty burst, so that they need not be copied.
    pub fn take_burst(&mut self, burst: &mut Burst) {
        self.output.take(burst);
    }

    /// Removes and returns the next packet to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit<'_>> {
        self.output.pop()
    }

    /// Removes and returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        if event.is_none() {
            self.events = VecDeque::new();
        }
        event
    }

    /// Leaves the network: neighbours are notified at once. Nothing else should be called afterwards.
    pub fn leave(&mut self) {
        self.links.leave(&mut self.output);
    }

    fn receive(
        &mut self,
        now: Time,
        from: LinkAddress,
        bytes: &mut [u8],
        random: &mut dyn Random,
    ) -> Result<Received, Malformed> {
        match Kind::of(bytes)? {
            Kind::Control => match self.links.open(now, bytes) {
                Ok((slot, items)) => {
                    let mut passed = true;
                    for item in Items::new(bytes.get(items).unwrap_or_default()) {
                        passed &= self.item(now, slot, &item?, random);
                    }
                    return Ok(if passed { Received::Passed } else { Received::Handled });
                }
                Err(Dropped::Malformed(malformed)) => return Err(malformed),
                Err(_) => self.counters.refused += 1,
            },
            Kind::Data => {
                let range = self.carrier.receive(&mut road!(self, now), bytes)?;
                return Ok(range.map_or(Received::Handled, Received::Delivered));
            }
            kind => {
                let (links, output) = (&mut self.links, &mut self.output);
                links.handle(now, &self.local, from, kind, bytes, random, output)?;
                if !links.is_changed() {
                    // The HELLO of a neighbour about which nothing is new.
                    return Ok(Received::Passed);
                }
            }
        }
        Ok(Received::Handled)
    }

    /// Handles an item. Returns whether it was a message that was only forwarded.
    fn item(&mut self, now: Time, slot: Slot, item: &Item<'_>, random: &mut dyn Random) -> bool {
        let mut answer = Vec::new();
        if self.links.item(now, slot, item, &mut answer) {
            self.outbox.push_written(slot, answer);
            return false;
        }
        match item {
            Item::Routed(body) if !self.links.allows(now, slot, body.len()) => {
                self.counters.policed += 1;
            }
            Item::Routed(body) if self.refute(now, slot, body) => {}
            Item::Routed(body) if self.pass(now, slot, body) => return true,
            Item::Routed(body) => match Routed::parse(body) {
                Ok(message) => self.route(now, slot, message, random),
                Err(_) => self.counters.malformed += 1,
            },
            Item::Error(_) | Item::Broken { .. } | Item::Detoured { .. }
                if !self.links.allows(now, slot, NOTICE) =>
            {
                self.counters.policed += 1;
            }
            Item::Error(report) => self.pass_error(now, slot, report.clone()),
            Item::DetourRequest { to } => self.detour_request(now, slot, *to),
            Item::DetourReply { to, slot: theirs } => self.detour_reply(now, slot, *to, *theirs),
            Item::Detoured { mark } => self.detoured(*mark, slot),
            Item::Broken { mark } => match self.marks.follow(*mark, slot) {
                Some(out) => self.outbox.push(out, &Item::Broken { mark: *mark }),
                None => {
                    self.overlay.broken(*mark, slot, &mut self.actions);
                    self.carrier.sessions.broken(*mark, slot);
                }
            },
            _ => {}
        }
        false
    }

    /// Forwards a message that only follows its labels. Returns whether it was one.
    fn pass(&mut self, now: Time, entered: Slot, body: &[u8]) -> bool {
        let Some(neighbour) = self.links.neighbour(entered) else { return false };
        if Routed::peek(body).is_some_and(|(message, _)| message == Message::LookUpApart) {
            return false;
        }
        let cost = neighbour.cost(now).unwrap_or(u16::MAX) / PATH_COST;
        let mtu = neighbour.mtu;
        let (id, detours) = (self.local.id(), &self.detours);
        let passed = self.links.seal_item(now, &mut self.output, |links, out| {
            let (neighbours, closes, distance) = (links.up(), S::CLOSES, S::distance);
            let here = Here { id, neighbours, detours, closes, distance };
            let start = out.len();
            let slot = transit(body, here, entered, (cost, mtu), out)?;
            // What is too long has tags that can be removed.
            let room = links.neighbour(slot).map_or(0, |link| usize::from(link.mtu));
            (out.len() - start + Items::OVERHEAD <= room).then_some(slot)
        });
        let Some(out) = passed else { return false };
        self.counters.forwarded += 1;
        if let Some((message, id)) = Routed::peek(body)
            && matches!(message, Message::ConnectAck | Message::LookUpAck)
        {
            self.marks.note(id.mark(), entered, out);
        }
        true
    }

    /// Forwards a message, or handles it here.
    fn route(
        &mut self,
        now: Time,
        entered: Slot,
        mut message: Routed<'_>,
        random: &mut dyn Random,
    ) {
        let Some(neighbour) = self.links.neighbour(entered) else { return };
        let cost = neighbour.cost(now).unwrap_or(u16::MAX) / PATH_COST;
        message.path_cost = message.path_cost.saturating_add(cost);
        message.path_mtu = message.path_mtu.min(neighbour.mtu);
        if message.message == Message::LookUpApart {
            return self.walk(now, Entered::By(entered), message, random);
        }
        self.redirect(&mut message);
        let before = message.best;
        match self.decide(entered, &mut message) {
            Verdict::Returned => self.go_on_elsewhere(now, entered, message, random),
            Verdict::Out(out) if message.message == Message::LookUp && message.best != before => {
                self.note_choice(now, &message, entered, out);
                self.follow(now, entered, &mut message, Verdict::Out(out), random);
            }
            verdict => self.follow(now, entered, &mut message, verdict, random),
        }
    }

    /// Decides what to do with a message that came by `entered`.
    fn decide(&self, entered: Slot, message: &mut Routed<'_>) -> Verdict {
        let here = Here {
            id: self.local.id(),
            neighbours: self.links.up(),
            detours: &self.detours,
            closes: S::CLOSES,
            distance: S::distance,
        };
        let overlay = &self.overlay;
        let onward = |message: &Routed<'_>| match message.message {
            Message::LookUp => overlay.next_trusted(message.key(), message.best),
            _ => overlay.next(message.key(), message.best),
        };
        forward(message, here, entered, onward)
    }

    /// Does with a message what was decided.
    fn follow(
        &mut self,
        now: Time,
        entered: Slot,
        message: &mut Routed<'_>,
        verdict: Verdict,
        random: &mut dyn Random,
    ) {
        match verdict {
            Verdict::Out(out) => {
                self.counters.forwarded += 1;
                if matches!(message.message, Message::ConnectAck | Message::LookUpAck) {
                    self.marks.note(message.id.mark(), entered, out);
                }
                let mtu = self.links.neighbour(out).map_or(0, |neighbour| neighbour.mtu);
                message.fit(usize::from(mtu).saturating_sub(Items::OVERHEAD));
                let mut body = Vec::new();
                message.emit(&mut body);
                self.outbox.push(out, &Item::Routed(&body));
            }
            Verdict::Arrived { back } => self.arrive(now, entered, message, back, random),
            Verdict::Returned => {}
            Verdict::Error(code) => {
                self.counters.undelivered += 1;
                self.report(entered, message, code);
            }
        }
    }

    /// Sends a message that has returned by another contact. The one by which it went is lost, so this ends; a neighbour is
    /// no such contact, and never returns anything.
    fn go_on_elsewhere(
        &mut self,
        now: Time,
        entered: Slot,
        mut message: Routed<'_>,
        random: &mut dyn Random,
    ) {
        // Distances are unique, so this is whom it was sent to, whatever detours have made of the labels.
        let (key, best) = (message.key(), message.best);
        message.begin_anew();
        let is_stuck = self.overlay.misled(key, best, entered, &mut self.actions);
        let verdict = self.decide(entered, &mut message);
        let is_handled = match verdict {
            Verdict::Out(_) => true,
            Verdict::Arrived { .. } => message.flags.closest || message.target == self.local.id(),
            _ => false,
        };
        if is_stuck || !is_handled {
            self.counters.undelivered += 1;
            return;
        }
        if let Verdict::Out(out) = verdict {
            self.note_choice(now, &message, entered, out);
        }
        self.follow(now, entered, &mut message, verdict, random);
    }

    /// Carries out what a session has asked for.
    fn act(&mut self, now: Time, action: SessionAction, random: &mut dyn Random) {
        match action {
            SessionAction::LookUp { prefix, id, index, noise, by_another, via } => {
                let mut desk = desk!(self, now, random);
                let handshake = (index, &noise[..]);
                match self.messenger.look_up(&mut desk, prefix, id, handshake, (by_another, via)) {
                    Some((first, choice)) if via.is_none() => {
                        self.overlay.chose(now, id, choice, None, first);
                    }
                    Some(_) => {}
                    None => {
                        let (sessions, actions) = self.carrier.parts();
                        sessions.absent(now, Track::ordinary(prefix), actions);
                    }
                }
            }
            SessionAction::LookUpApart { prefix, id, index, noise, links_alone, by_another } => {
                let handshake = (index, &noise[..]);
                self.look_up_apart(now, (prefix, id), handshake, (links_alone, by_another), random);
            }
            SessionAction::Trace(track, count) => {
                self.carrier.trace(&mut road!(self, now), track, count);
            }
            SessionAction::Confirm { to, route, receiver, noise } => {
                let mut desk = desk!(self, now, random);
                self.messenger.confirm(&mut desk, to, &route, receiver, &noise);
            }
            SessionAction::Ready(track) => {
                // CONFIRM goes before them.
                self.outbox.flush(now, &mut self.links, &mut self.output);
                self.carrier.send_again(&mut road!(self, now), track);
                self.carrier.send_queue(&mut road!(self, now), track, random);
                self.carrier.send_probes(&mut road!(self, now), track);
            }
            SessionAction::Again(track) => {
                // CONFIRM goes before them.
                self.outbox.flush(now, &mut self.links, &mut self.output);
                self.carrier.send_again(&mut road!(self, now), track);
            }
            SessionAction::NoRoute(track, packets) => {
                self.carrier.absent(track);
                for packet in packets {
                    self.carrier.complain(&self.local, IcmpError::NoRoute, &packet);
                }
            }
            SessionAction::KeepAlive(track, which) => {
                let contents = Contents::KeepAlive(0);
                self.carrier.seal_by(&mut road!(self, now), (track, which), &contents);
            }
            SessionAction::Alive(track, which, number) => {
                let received = self.carrier.sessions.received(track, which);
                let contents = Contents::Alive(number, received);
                self.carrier.seal_by(&mut road!(self, now), (track, which), &contents);
            }
        }
    }

    /// A request has had no answer.
    fn give_up(&mut self, now: Time, request: &Request) {
        match &request.way {
            Way::Route(route) => {
                self.overlay.unreachable(now, request.to, route, &mut self.actions)
            }
            Way::Find | Way::Close => self.overlay.not_found(now, request.to),
        }
    }

    /// Carries out what is to be done, until nothing is.
    fn settle(&mut self, now: Time, random: &mut dyn Random) {
        while let Some(event) = self.links.poll_event() {
            self.link_event(now, event);
        }
        self.review_detours(now);
        while let Some(id) = self.overlay.take_lost() {
            self.restore(now, id);
        }
        if let Some(hops) = self.overlay.review(now) {
            self.messenger.set_mean_hops(hops);
        }
        // An action of the overlay causes no other; one of a session may.
        for action in core::mem::take(&mut self.actions) {
            let mut desk = desk!(self, now, random);
            if let Some(subject) = self.messenger.act(&mut desk, action) {
                self.overlay.abandon(subject);
            }
        }
        loop {
            let actions = self.carrier.take_actions();
            if actions.is_empty() {
                break;
            }
            for action in actions {
                self.act(now, action, random);
            }
        }
        while let Some((id, outcome)) = self.carrier.poll_outcome() {
            self.notify(Event::Probe(id, outcome));
        }
        self.outbox.flush(now, &mut self.links, &mut self.output);
        self.links.review();
        self.due.set(None);
    }

    /// Makes a contact of a neighbour whose contact was lost with another link or another route.
    fn restore(&mut self, now: Time, id: NodeId) {
        let up = self.links.up().iter().filter(|neighbour| neighbour.id == id);
        let contacts = up.filter_map(|neighbour| self.neighbour(now, neighbour.slot));
        if let Some(contact) = contacts.min_by_key(|contact| contact.cost) {
            self.overlay.restore(contact, &mut self.actions);
        }
    }

    /// Returns a neighbour as a contact.
    fn neighbour(&self, now: Time, slot: Slot) -> Option<Contact> {
        let neighbour = self.links.neighbour(slot)?;
        let cost = neighbour.cost(now).unwrap_or(u16::MAX) / PATH_COST;
        let (id, route) = (neighbour.id, Route::direct(slot));
        Some(Contact { id, route, cost, mark: 0, said: Sequence::default() })
    }

    fn link_event(&mut self, now: Time, event: LinkEvent) {
        match event {
            LinkEvent::Up { slot, id } => {
                self.detours.remove(slot);
                let Some(contact) = self.neighbour(now, slot) else { return };
                self.overlay.neighbour_up(contact, &mut self.actions);
                self.notify(Event::NeighbourUp(id));
            }
            LinkEvent::Cost { slot, id } => {
                let known = self.overlay.contacts().get(id).map(|known| known.route.first);
                if known == Some(slot)
                    && let Some(contact) = self.neighbour(now, slot)
                {
                    self.overlay.restore(contact, &mut self.actions);
                }
            }
            LinkEvent::Silent { slot, id } => self.silent(now, slot, id),
            LinkEvent::Down { slot, id, reason } => {
                // Who has left, or has started again, is not to be reached by others either.
                let is_away = matches!(reason, DownReason::Closed | DownReason::Restarted);
                if is_away || !self.go_round(now, slot) {
                    self.break_marks(slot);
                    self.overlay.neighbour_down(slot, &mut self.actions);
                    self.carrier.sessions.link_down(slot);
                }
                self.notify(Event::NeighbourDown(id, reason));
            }
            LinkEvent::Refused(address, Refused::OwnIdentity) => {
                self.notify(Event::DuplicateIdentity(address));
            }
            LinkEvent::Refused(address, refused) => self.notify(Event::Refused(address, refused)),
            LinkEvent::NoSlot(..) => {}
        }
    }

    fn notify(&mut self, event: Event) {
        if self.events.len() < MAX_EVENTS {
            self.events.push_back(event);
        } else {
            self.counters.events += 1;
        }
    }
}
