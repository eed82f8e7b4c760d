//! The router: links, the overlay and messages joined to one machine.
//!
//! Its caller passes packets and the time, and sends what [`Router::poll_transmit`] returns. Whatever a call causes is
//! complete when the call returns.

mod messenger;
mod outbox;

use core::ops::Range;
use std::collections::VecDeque;

use ringway_sansio::time::sooner;
use ringway_sansio::{Malformed, Random, Time};

use crate::config::Config;
use crate::crypto::{Crypto, Real};
use crate::forward::message::{Here, Verdict, forward};
use crate::forward::{Step, step};
use crate::icmp::{self, IcmpError, Ipv6Header};
use crate::id::{NodeId, Prefix};
use crate::link::{
    DownReason, Dropped, InterfaceConfig, LinkAddress, LinkEvent, Links, handshake::Refused,
};
use crate::local::LocalRouter;
use crate::metric::{Ring, Space};
use crate::output::{Output, Transmit};
use crate::ring::{Action, Overlay};
use crate::routes::{Contact, Marks};
use crate::session::{Contents, Delivery, SessionAction, Sessions};
use crate::wire::control::{Code, ErrorReport};
use crate::wire::{Body, DataView, Item, Items, Kind, Message, MessageId, Route, Routed, Slot};
use messenger::{Desk, Messenger, Request, Way};
use outbox::Outbox;

pub use messenger::Counters as MessageCounters;

/// Part of a link's cost that is a unit of a path's.
pub const PATH_COST: u16 = 8;
/// Maximum number of ICMPv6 errors that wait for the caller.
const MAX_ERRORS: usize = 64;
/// Least MTU of IPv6 (RFC 8200 section 5).
const MIN_MTU: u16 = 1_280;
/// Maximum number of events that wait for the caller.
const MAX_EVENTS: usize = 256;

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
}

/// Counts of packets that were dropped, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Packets and items that are malformed.
    pub malformed: u64,
    /// CONTROL packets of no link, replayed, or forged.
    pub refused: u64,
    /// Messages between other routers that were forwarded.
    pub forwarded: u64,
    /// Messages that could not be forwarded.
    pub undelivered: u64,
    /// Packets of hosts that are malformed, or have an address that is not theirs.
    pub bad_packets: u64,
    /// Packets of hosts that were not sent.
    pub dropped_packets: u64,
    /// Packets that were delivered to hosts here.
    pub delivered_packets: u64,
    /// Packets between other routers that were forwarded.
    pub forwarded_packets: u64,
    /// Packets of hosts here that were sent.
    pub sent_packets: u64,
    /// Events that found no room.
    pub events: u64,
}

/// A router of the mesh.
pub struct Router<C: Crypto = Real, S: Space = Ring> {
    local: LocalRouter,
    links: Links<C>,
    overlay: Overlay<S>,
    marks: Marks,
    sessions: Sessions<C>,
    messenger: Messenger<C>,
    outbox: Outbox,
    output: Output,
    actions: Vec<Action>,
    session_actions: Vec<SessionAction>,
    errors: VecDeque<Vec<u8>>,
    events: VecDeque<Event>,
    counters: Counters,
}

impl<C: Crypto, S: Space> Router<C, S> {
    /// A router without interfaces.
    pub fn new(config: &Config, local: LocalRouter, now: Time, random: &mut dyn Random) -> Self {
        Router {
            links: Links::new(now, config.limits, random),
            overlay: Overlay::new(local.id(), config.limits),
            marks: Marks::new(config.limits.marks),
            sessions: Sessions::new(config.limits),
            messenger: Messenger::new(now, config),
            local,
            outbox: Outbox::default(),
            output: Output::default(),
            actions: Vec::new(),
            session_actions: Vec::new(),
            errors: VecDeque::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
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
        self.sessions.up()
    }

    /// Returns the counts of dropped packets.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the counts of messages that were not sent.
    pub fn message_counters(&self) -> MessageCounters {
        self.messenger.counters
    }

    /// Adds an interface, and discovers routers by it.
    pub fn add_interface(&mut self, now: Time, config: InterfaceConfig, random: &mut dyn Random) {
        self.links.add_interface(now, config, random);
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
        let received = self.receive(now, from, bytes, random);
        self.counters.malformed += u64::from(received.is_err());
        self.settle(now, random);
        received.unwrap_or_default()
    }

    /// Handles an IPv6 packet of a host here.
    pub fn handle_local(&mut self, now: Time, packet: &[u8], random: &mut dyn Random) {
        self.send_packet(now, packet, random);
        self.settle(now, random);
    }

    /// Removes and returns the next ICMPv6 error for a host here.
    pub fn poll_error(&mut self) -> Option<Vec<u8>> {
        self.errors.pop_front()
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time, random: &mut dyn Random) {
        self.links.timeout(now, &self.local, random, &mut self.output);
        self.overlay.timeout(now, &mut self.actions);
        self.sessions.timeout(now, &self.local, random, &mut self.session_actions);
        let mut desk = desk!(self, now, random);
        self.messenger.retry(&mut desk);
        let expired: Vec<Request> =
            core::iter::from_fn(|| self.messenger.expire(&mut desk)).collect();
        for request in expired {
            self.give_up(&request);
        }
        self.settle(now, random);
    }

    /// Returns when something is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        let overlay = sooner(self.overlay.poll_timeout(), self.messenger.poll_timeout());
        sooner(sooner(self.links.poll_timeout(), self.sessions.poll_timeout()), overlay)
    }

    /// Removes and returns the next packet to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit<'_>> {
        self.output.pop()
    }

    /// Removes and returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Leaves the network: neighbours are told at once. Nothing else should be called afterwards.
    pub fn leave(&mut self, now: Time, random: &mut dyn Random) {
        self.links.leave(now, &self.local, random, &mut self.output);
    }

    fn receive(
        &mut self,
        now: Time,
        from: LinkAddress,
        bytes: &mut [u8],
        random: &mut dyn Random,
    ) -> Result<Option<Range<usize>>, Malformed> {
        match Kind::of(bytes)? {
            Kind::Control => match self.links.open(now, bytes) {
                Ok((slot, items)) => {
                    let items = bytes.get(items).unwrap_or_default();
                    Items::new(items).try_for_each(|item| {
                        self.item(now, slot, &item?, random);
                        Ok(())
                    })?;
                }
                Err(Dropped::Malformed(malformed)) => return Err(malformed),
                Err(_) => self.counters.refused += 1,
            },
            Kind::Data => return self.data(now, bytes),
            kind => {
                let (links, output) = (&mut self.links, &mut self.output);
                links.handle(now, &self.local, from, kind, bytes, random, output)?;
            }
        }
        Ok(None)
    }

    fn item(&mut self, now: Time, slot: Slot, item: &Item<'_>, random: &mut dyn Random) {
        let mut answer = Vec::new();
        if self.links.item(now, slot, item, &mut answer) {
            self.outbox.push_written(slot, answer);
            return;
        }
        match item {
            Item::Routed(body) => match Routed::parse(body) {
                Ok(message) => self.route(now, slot, message, random),
                Err(_) => self.counters.malformed += 1,
            },
            Item::Error(report) => self.pass_error(now, slot, report.clone()),
            Item::Broken { mark } => match self.marks.follow(*mark, slot) {
                Some(out) => self.outbox.push(out, &Item::Broken { mark: *mark }),
                None => {
                    self.overlay.broken(*mark, slot, &mut self.actions);
                    self.sessions.broken(*mark, slot);
                }
            },
            _ => {}
        }
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
        let here = Here { id: self.local.id(), neighbours: self.links.up(), closes: S::CLOSES };
        let overlay = &self.overlay;
        let onward = |message: &Routed<'_>| overlay.next(message.key(), message.best);
        match forward(&mut message, here, entered, onward) {
            Verdict::Out(out) => {
                self.counters.forwarded += 1;
                if matches!(message.message, Message::ConnectAck | Message::LookUpAck) {
                    self.marks.note(message.id.mark(), entered, out);
                }
                let mut body = Vec::new();
                message.emit(&mut body);
                self.outbox.push(out, &Item::Routed(&body));
            }
            Verdict::Arrived { back } => self.arrive(now, entered, &message, back, random),
            Verdict::Error(code) => {
                self.counters.undelivered += 1;
                self.report(entered, &message, code);
            }
        }
    }

    /// Handles a message that is at its end.
    fn arrive(
        &mut self,
        now: Time,
        entered: Slot,
        message: &Routed<'_>,
        back: Option<Route>,
        random: &mut dyn Random,
    ) {
        if message.target != self.local.id() && !message.flags.closest {
            self.counters.undelivered += 1;
            return self.report(entered, message, Code::NotHere);
        }
        match (message.message, back) {
            (Message::Connect, Some(back)) => self.connect(now, message, back, random),
            (Message::ConnectAck, _) => self.connect_ack(now, entered, message),
            (Message::NotResponsible, _) => {
                if self.messenger.verify_statement(message) {
                    self.sessions.not_responsible(now, message.id, &mut self.session_actions);
                }
            }
            (_, back) => self.arrive_unsigned(now, entered, message, back, random),
        }
    }

    /// Handles a message that nobody has signed.
    fn arrive_unsigned(
        &mut self,
        now: Time,
        entered: Slot,
        message: &Routed<'_>,
        back: Option<Route>,
        random: &mut dyn Random,
    ) {
        let Ok((body, ..)) = Body::parse(message.message, message.body) else {
            self.counters.malformed += 1;
            return;
        };
        let local = &self.local;
        match (body, back) {
            (Body::Introduce(hint), Some(back)) => {
                let cost = self.path_cost(message, &back);
                self.overlay.hear(&back, cost, &hint, &mut self.actions);
            }
            (Body::LookUp { index, noise }, Some(back)) => {
                self.look_up(now, message, index, noise, &back, random);
            }
            (Body::LookUpAck { index, receiver: _, noise }, _) => {
                if let Some(route) = message.route_there(entered) {
                    let (id, mtu) = (message.id, message.path_mtu);
                    let out = &mut self.session_actions;
                    self.sessions.look_up_ack(now, local, id, index, noise, route, mtu, out);
                }
            }
            (Body::Confirm { receiver, noise }, _) => {
                self.sessions.confirm(now, local, receiver, noise, &mut self.session_actions);
            }
            _ => {}
        }
    }

    /// Answers a LOOKUP: it is for this router, or for nobody.
    fn look_up(
        &mut self,
        now: Time,
        message: &Routed<'_>,
        remote: u32,
        noise: &[u8],
        back: &Route,
        random: &mut dyn Random,
    ) {
        let (id, mtu, to) = (message.id, message.path_mtu, message.origin);
        let is_ours = message.target.prefix() == self.local.id().prefix();
        let local = &self.local;
        let answer = is_ours
            .then(|| self.sessions.look_up(now, local, remote, noise, back, mtu, id, random))
            .flatten();
        let mut desk = desk!(self, now, random);
        match answer {
            Some((index, noise)) => {
                let body = Body::LookUpAck { index, receiver: remote, noise: &noise };
                self.messenger.answer(&mut desk, (Message::LookUpAck, id, to), back, &body);
            }
            None if !is_ours => self.messenger.deny(&mut desk, id, to, back),
            None => {}
        }
    }

    /// Forwards a data packet, or opens it here. Returns where in its buffer a packet for a host is.
    fn data(&mut self, now: Time, bytes: &mut [u8]) -> Result<Option<Range<usize>>, Malformed> {
        let mut data = DataView::parse(bytes)?;
        let Some(entered) = self.links.accept_data(now, &data) else {
            self.counters.refused += 1;
            return Ok(None);
        };
        let up = self.links.up();
        let (mut cursor, mut hop_limit) = data.cursor()?;
        let taken = step(&mut cursor, &mut hop_limit, entered, |slot| {
            up.iter().any(|neighbour| neighbour.slot == slot)
        });
        let at = cursor.at();
        data.set_position(at, hop_limit);
        match taken {
            Step::Out(out) => self.forward_data(now, entered, out, &data)?,
            Step::End => return self.deliver(now, entered, &mut data),
            Step::Error(code) => self.report_data(entered, &data, code, 0)?,
        }
        Ok(None)
    }

    fn forward_data(
        &mut self,
        now: Time,
        entered: Slot,
        out: Slot,
        data: &DataView<'_>,
    ) -> Result<(), Malformed> {
        let mtu = self.links.neighbour(out).map_or(u16::MAX, |neighbour| neighbour.mtu);
        let bytes = data.bytes();
        if bytes.len() > usize::from(mtu) {
            return self.report_data(entered, data, Code::TooBig, mtu);
        }
        self.counters.forwarded_packets += 1;
        self.links.send_data(now, out, &mut self.output, |out| out.extend_from_slice(bytes));
        Ok(())
    }

    /// Opens a data packet at its end. Returns where in its buffer a packet for a host is.
    fn deliver(
        &mut self,
        now: Time,
        entered: Slot,
        data: &mut DataView<'_>,
    ) -> Result<Option<Range<usize>>, Malformed> {
        let (index, nonce) = (data.session(), data.nonce());
        let (header, sealed, start) = data.sealed();
        match self.sessions.open(now, index, nonce, &header, sealed) {
            Some((prefix, Contents::Packet(packet))) => {
                let is_right = Ipv6Header::parse(packet).is_some_and(|header| {
                    Prefix::of(&header.source) == Some(prefix)
                        && Prefix::of(&header.destination) == Some(self.local.id().prefix())
                });
                if !is_right {
                    self.counters.bad_packets += 1;
                    return Ok(None);
                }
                self.counters.delivered_packets += 1;
                return Ok(Some(start + 1..start + 1 + packet.len()));
            }
            Some((prefix, Contents::KeepAlive)) => {
                self.session_actions.push(SessionAction::KeepAlive { prefix, answer: true });
            }
            Some((_, Contents::Alive)) => {}
            None => self.report_data(entered, data, Code::NotHere, 0)?,
        }
        Ok(None)
    }

    /// Sends a packet of a host here, or answers it with an error.
    fn send_packet(&mut self, now: Time, packet: &[u8], random: &mut dyn Random) {
        let own = self.local.id().prefix();
        // Nobody uses an address behind another router (RFC 2827).
        let header = Ipv6Header::parse(packet);
        let Some(header) = header.filter(|header| Prefix::of(&header.source) == Some(own)) else {
            self.counters.bad_packets += 1;
            return;
        };
        let prefix = Prefix::of(&header.destination).filter(|&prefix| prefix != own);
        let out = &mut self.session_actions;
        let delivery = prefix.map_or(Delivery::NoRoute, |prefix| {
            self.sessions.offer(now, &self.local, prefix, packet, random, out)
        });
        match (delivery, prefix) {
            (Delivery::Send, Some(prefix)) => self.seal(now, prefix, &Contents::Packet(packet)),
            (Delivery::NoRoute, _) => self.complain(IcmpError::NoRoute, packet),
            (Delivery::TooBig(mtu), _) => {
                self.complain(IcmpError::TooBig(u32::from(mtu.max(MIN_MTU))), packet);
            }
            (Delivery::Dropped, _) => self.counters.dropped_packets += 1,
            (Delivery::Queued | Delivery::Send, _) => {}
        }
    }

    /// Sends contents to the owner of a prefix, with whom there is a session.
    fn seal(&mut self, now: Time, prefix: Prefix, contents: &Contents<'_>) {
        let Some(slot) = self.sessions.first_hop(prefix) else { return };
        self.counters.sent_packets += u64::from(matches!(contents, Contents::Packet(_)));
        let sessions = &mut self.sessions;
        self.links.send_data(now, slot, &mut self.output, |out| {
            sessions.seal(prefix, contents, out);
        });
    }

    /// Sends an error to a host here.
    fn complain(&mut self, error: IcmpError, packet: &[u8]) {
        self.counters.dropped_packets += 1;
        let from = self.local.id().prefix().router();
        if self.errors.len() < MAX_ERRORS {
            self.errors.extend(icmp::error(error, from, packet));
        }
    }

    /// Carries out what a session has asked for.
    fn act(&mut self, now: Time, action: SessionAction, random: &mut dyn Random) {
        match action {
            SessionAction::LookUp { prefix, id, index, noise } => {
                let mut desk = desk!(self, now, random);
                if !self.messenger.look_up(&mut desk, prefix, id, index, &noise) {
                    self.sessions.not_responsible(now, id, &mut self.session_actions);
                }
            }
            SessionAction::Confirm { to, route, receiver, noise } => {
                let mut desk = desk!(self, now, random);
                self.messenger.confirm(&mut desk, to, &route, receiver, &noise);
            }
            SessionAction::Ready(prefix) => {
                // CONFIRM goes before them.
                self.outbox.flush(&mut self.links, &mut self.output);
                for packet in self.sessions.take_queue(prefix) {
                    self.send_packet(now, &packet, random);
                }
            }
            SessionAction::NoRoute(packets) => {
                for packet in packets {
                    self.complain(IcmpError::NoRoute, &packet);
                }
            }
            SessionAction::KeepAlive { prefix, answer } => {
                let contents = if answer { Contents::Alive } else { Contents::KeepAlive };
                self.seal(now, prefix, &contents);
            }
        }
    }

    fn connect(&mut self, now: Time, message: &Routed<'_>, back: Route, random: &mut dyn Random) {
        let Some(peer) = self.messenger.verify(&self.local, message) else { return };
        let hints = self.overlay.hints(peer.id, back.first);
        let cost = self.path_cost(message, &back);
        let contact = Contact {
            id: peer.id,
            route: back.clone(),
            cost,
            key: peer.key,
            mark: message.id.mark(),
        };
        if peer.connect.wrap {
            self.overlay.closed(contact, &peer.connect.hints, &mut self.actions);
        } else {
            self.overlay.connected(contact, &peer.connect.hints, &mut self.actions);
        }
        let mut desk = desk!(self, now, random);
        let wrap = peer.connect.wrap;
        self.messenger.acknowledge(&mut desk, message.id, peer.id, &back, &hints, wrap);
    }

    fn connect_ack(&mut self, now: Time, entered: Slot, message: &Routed<'_>) {
        let (Some(request), Some(route)) =
            (self.messenger.request(message.id), message.route_there(entered))
        else {
            return;
        };
        if request.to != message.origin && request.way != Way::Close {
            return;
        }
        let Some(peer) = self.messenger.verify(&self.local, message) else { return };
        let Some(request) = self.messenger.answered(now, message.id) else { return };
        let contact = Contact {
            id: peer.id,
            route,
            cost: message.path_cost.max(1),
            key: peer.key,
            mark: message.id.mark(),
        };
        if request.value.way == Way::Close {
            self.overlay.closed(contact, &peer.connect.hints, &mut self.actions);
        } else {
            self.overlay.connected(contact, &peer.connect.hints, &mut self.actions);
        }
    }

    /// Returns the cost of the way back of a message. Where the record was cut, it is shorter than the way it came.
    fn path_cost(&self, message: &Routed<'_>, back: &Route) -> u16 {
        let walked = u16::from(crate::config::HOP_LIMIT - message.hop_limit) + 1;
        if message.flags.greedy || back.hops() >= walked {
            return message.path_cost.max(1);
        }
        let share = u32::from(message.path_cost) * u32::from(back.hops()) / u32::from(walked);
        (share as u16).max(1)
    }

    /// Reports to the sender of a message what was wrong with it.
    fn report(&mut self, entered: Slot, message: &Routed<'_>, code: Code) {
        let nibbles = message.labels.nibbles();
        let (Ok(at), true) = (u8::try_from(message.at), nibbles <= 255) else { return };
        let report = ErrorReport {
            reverse: !message.flags.reverse,
            at,
            code,
            value: 0,
            quoted: message.id.0,
            labels: message.labels.clone(),
        };
        self.outbox.push(entered, &Item::Error(report));
    }

    /// Reports to the sender of a data packet what was wrong with it.
    fn report_data(
        &mut self,
        entered: Slot,
        data: &DataView<'_>,
        code: Code,
        value: u16,
    ) -> Result<(), Malformed> {
        self.counters.dropped_packets += 1;
        let (reverse, at, quoted) = (!data.reverse(), data.position(), data.quote());
        let report = ErrorReport { reverse, at, code, value, quoted, labels: data.labels()? };
        self.outbox.push(entered, &Item::Error(report));
        Ok(())
    }

    /// Forwards a report, or believes it as far as it is about something that was sent here.
    fn pass_error(&mut self, now: Time, entered: Slot, mut report: ErrorReport) {
        let Ok(mut cursor) = report.labels.cursor(report.at.into(), report.reverse) else {
            return;
        };
        let up = self.links.up();
        let is_up = |slot| up.iter().any(|neighbour| neighbour.slot == slot);
        // Labels only become fewer, so a report needs no hop limit.
        match step(&mut cursor, &mut u8::MAX.clone(), entered, is_up) {
            Step::Out(out) => {
                report.at = cursor.at() as u8;
                self.outbox.push(out, &Item::Error(report));
            }
            Step::End => {
                let id = MessageId(report.quoted);
                if let Some(request) = self.messenger.request(id).cloned()
                    && matches!(request.way, Way::Route(_))
                {
                    self.messenger.answered(now, id);
                    self.give_up(&request);
                }
                self.sessions.failed(report.quoted, entered);
                // Who is not at the end of a route makes the route no worse.
                if matches!(report.code, Code::LinkDown | Code::BadRoute | Code::HopLimit) {
                    let route = Route { first: entered, labels: report.labels };
                    self.overlay.route_failed(&route, &mut self.actions);
                }
            }
            Step::Error(_) => {}
        }
    }

    /// A request has had no answer.
    fn give_up(&mut self, request: &Request) {
        match &request.way {
            Way::Route(route) => self.overlay.unreachable(request.to, route, &mut self.actions),
            Way::Find | Way::Close => self.overlay.abandon(request.to),
        }
    }

    /// Carries out what is to be done, until nothing is.
    fn settle(&mut self, now: Time, random: &mut dyn Random) {
        while let Some(event) = self.links.poll_event() {
            self.link_event(now, event);
        }
        self.overlay.review(now);
        // An action of the overlay causes no other; one of a session may.
        for action in core::mem::take(&mut self.actions) {
            let mut desk = desk!(self, now, random);
            if let Some(subject) = self.messenger.act(&mut desk, action) {
                self.overlay.abandon(subject);
            }
        }
        while !self.session_actions.is_empty() {
            for action in core::mem::take(&mut self.session_actions) {
                self.act(now, action, random);
            }
        }
        self.outbox.flush(&mut self.links, &mut self.output);
    }

    fn link_event(&mut self, now: Time, event: LinkEvent) {
        match event {
            LinkEvent::Up { slot, id } => {
                let Some(neighbour) = self.links.neighbour(slot) else { return };
                let Some(key) = C::shared_key(&self.local.identity, &neighbour.key) else { return };
                let cost = neighbour.cost(now).unwrap_or(u16::MAX) / PATH_COST;
                let contact = Contact { id, route: Route::direct(slot), cost, key, mark: 0 };
                self.overlay.neighbour_up(contact, &mut self.actions);
                self.notify(Event::NeighbourUp(id));
            }
            LinkEvent::Down { slot, id, reason } => {
                for (mark, out) in self.marks.broken(slot) {
                    self.outbox.push(out, &Item::Broken { mark });
                }
                self.overlay.neighbour_down(slot, &mut self.actions);
                self.sessions.link_down(slot);
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
