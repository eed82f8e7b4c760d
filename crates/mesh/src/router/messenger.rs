//! Messages of the overlay: written, signed and paid for; verified when they come.

use core::marker::PhantomData;

use ringway_sansio::time::{Duration, sooner};
use ringway_sansio::{Random, Time};

use super::Closest;
use super::outbox::Outbox;
use crate::budget::{ByteHops, SmallBucket, TokenBucket};
use crate::config::{Config, MAX_TAGS};
use crate::crypto::{Crypto, Domain};
use crate::id::{NodeId, Prefix};
use crate::identity::Proof;
use crate::local::LocalRouter;
use crate::metric::Space;
use crate::ring::{Action, Overlay, Towards};
use crate::routes::pending::{Due, Pending};
use crate::wire::bodies::{Connect, Seal};
use crate::wire::{
    Body, Hint, Hints, Item, Items, Message, MessageId, Route, Routed, SIGNATURE, Slot,
};

/// Octets of a packet around an item: Ethernet, IPv6, UDP, and the CONTROL packet with the head of the item.
const OVERHEAD: u32 = 14 + 40 + 8 + 12 + 16 + 3;

/// How a request travels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// Along a route.
    Route(Route),
    /// By way of the ring, to a router.
    Find,
    /// By way of the line, to its other end.
    Close,
}

/// Octets of hints, and of the labels and the record of a route, that a CONNECT of 1,452 octets has room for.
const HINT_ROOM: usize = 1_452 - Items::OVERHEAD - Routed::HEADER - 126 - 16;

/// Statements about absent routers that are signed in a second.
const STATEMENT_RATE: u32 = 25;

/// A request that waits for its answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Request {
    /// The router, or the key that its owner is looked for.
    pub(super) to: NodeId,
    /// How it travels.
    pub(super) way: Way,
}

/// A verified CONNECT or CONNECT_ACK.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Introduction {
    /// The sender.
    pub(super) id: NodeId,
    /// What it has sent.
    pub(super) connect: Connect,
}

/// What became of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sent {
    /// It is on its way.
    Away,
    /// This router is the one that it is for.
    Here,
    /// The budget does not allow it now.
    Refused,
}

/// What became of an action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tried {
    /// It was sent.
    Sent,
    /// It has to wait for the budget, or for room.
    Later,
    /// No way leads to the router.
    Nowhere,
}

/// What the messenger borrows for one call.
pub(super) struct Desk<'a, S> {
    pub(super) now: Time,
    pub(super) local: &'a mut LocalRouter,
    pub(super) overlay: &'a Overlay<S>,
    pub(super) outbox: &'a mut Outbox,
    pub(super) random: &'a mut dyn Random,
}

/// Counts of what was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Actions that had to wait for the budget.
    pub deferred: u64,
    /// Actions that found no room to wait.
    pub dropped: u64,
    /// Messages with a bad proof or signature.
    pub forged: u64,
}

/// Requests under way, and the budget.
pub(super) struct Messenger<C> {
    pending: Pending<Request>,
    budget: ByteHops,
    /// What applications may spend, a budget of its own: its rate and capacity, and what is left.
    applications: ((u32, u32), SmallBucket),
    deferred: Vec<Action>,
    max_deferred: usize,
    retry: Option<Time>,
    extension_bits: u8,
    statements: TokenBucket,
    pub(super) counters: Counters,
    crypto: PhantomData<C>,
}

impl<C: Crypto> Messenger<C> {
    pub(super) fn new(now: Time, config: &Config) -> Self {
        Messenger {
            pending: Pending::new(config.limits.clone()),
            budget: ByteHops::new(config.control_rate, config.control_burst, now),
            applications: ((config.application_rate, config.application_burst), SmallBucket::FULL),
            deferred: Vec::new(),
            max_deferred: config.limits.pending,
            retry: None,
            extension_bits: config.extension_bits,
            statements: TokenBucket::new(STATEMENT_RATE, STATEMENT_RATE, now),
            counters: Counters::default(),
            crypto: PhantomData,
        }
    }

    /// Sends what an action asks for, now or when the budget allows it. Returns the router that a dropped action was
    /// about.
    pub(super) fn act<S: Space>(
        &mut self,
        desk: &mut Desk<'_, S>,
        action: Action,
    ) -> Option<NodeId> {
        // The cheapest goes first, so that nobody delays what a router needs by offering what is far.
        let is_first = self.deferred.iter().all(|other| hops(other) > hops(&action));
        // What joins networks is offered again later, and must not use up what this router needs to reach those beside it.
        if let Action::Spread { route, .. } = &action
            && !(is_first && self.budget.is_spare(desk.now, cost(route), route.hops()))
        {
            self.counters.dropped += 1;
            return None;
        }
        let tried = if is_first { self.try_act(desk, &action) } else { Tried::Later };
        match tried {
            Tried::Sent => return None,
            Tried::Nowhere => return Some(action.subject()),
            Tried::Later => {}
        }
        if self.deferred.len() >= self.max_deferred {
            self.counters.dropped += 1;
            return Some(action.subject());
        }
        self.counters.deferred += 1;
        self.deferred.push(action);
        None
    }

    /// Takes note of the length of the mean route.
    pub(super) fn set_mean_hops(&mut self, hops: u32) {
        self.budget.set_mean_hops(hops);
    }

    /// Sends deferred actions that can be paid for now. Returns the routers that actions were about to which no way leads.
    pub(super) fn retry<S: Space>(&mut self, desk: &mut Desk<'_, S>) -> Vec<NodeId> {
        let mut abandoned = Vec::new();
        if self.deferred.is_empty() {
            self.deferred = Vec::new();
        }
        if self.retry.is_none_or(|at| at > desk.now) {
            return abandoned;
        }
        self.retry = None;
        let cheapest = |deferred: &[Action]| {
            deferred.iter().enumerate().min_by_key(|(_, action)| hops(action)).map(|(at, _)| at)
        };
        while let Some(at) = cheapest(&self.deferred) {
            let action = self.deferred.remove(at);
            match self.try_act(desk, &action) {
                Tried::Sent => {}
                Tried::Nowhere => abandoned.push(action.subject()),
                Tried::Later => {
                    self.deferred.insert(at, action);
                    break;
                }
            }
        }
        abandoned
    }

    /// Returns a request that is due: sent again, or expired and returned.
    pub(super) fn expire<S: Space>(&mut self, desk: &mut Desk<'_, S>) -> Option<Request> {
        loop {
            match self.pending.due(desk.now)? {
                Due::Again(id, request) => self.send_connect(desk, id, &request, true),
                Due::Expired(request) => return Some(request),
            }
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        sooner(self.retry, self.pending.poll_timeout())
    }

    /// Returns the octets that are allocated.
    pub(super) fn heap_bytes(&self) -> usize {
        self.pending.heap_bytes() + self.deferred.capacity() * size_of::<Action>()
    }

    /// Returns the request with this number.
    pub(super) fn request(&self, id: MessageId) -> Option<&Request> {
        self.pending.get(id)
    }

    /// Removes the request with this number.
    pub(super) fn answered(&mut self, id: MessageId) -> Option<Request> {
        self.pending.answer(id)
    }

    /// Verifies who has sent a CONNECT or its answer.
    pub(super) fn verify(&mut self, routed: &Routed<'_>) -> Option<Introduction> {
        let introduction = verify::<C>(self.extension_bits, routed);
        self.counters.forged += u64::from(introduction.is_none());
        introduction
    }

    /// Returns whether a NOT_RESPONSIBLE is from who it says.
    pub(super) fn verify_statement(&mut self, routed: &Routed<'_>) -> bool {
        let Ok((Body::Statement { proof, .. }, covered, seal)) =
            Body::parse(routed.message, routed.body)
        else {
            return false;
        };
        let bits = self.extension_bits;
        let checked = check::<C>(bits, routed, Domain::Message, &proof, covered, seal);
        self.counters.forged += u64::from(checked.is_none());
        checked.is_some()
    }

    /// Verifies a PAYLOAD. Returns the application and the octets.
    pub(super) fn verify_payload<'a>(&mut self, routed: &Routed<'a>) -> Option<(u16, &'a [u8])> {
        let parsed = Body::parse(routed.message, routed.body).ok()?;
        let (Body::Payload { application, proof, octets }, covered, seal) = parsed else {
            return None;
        };
        let bits = self.extension_bits;
        let checked = check::<C>(bits, routed, Domain::Payload, &proof, covered, seal);
        self.counters.forged += u64::from(checked.is_none());
        checked.map(|_| (application, octets))
    }

    /// Answers a CONNECT along the way that it has recorded.
    pub(super) fn acknowledge<S: Space>(
        &mut self,
        desk: &mut Desk<'_, S>,
        id: MessageId,
        to: NodeId,
        back: &Route,
        hints: &[Hint],
        (settled, wrap): (bool, bool),
    ) {
        // Not paid for: nobody is answered more often than it has asked.
        let body = Body::Connect(connect(desk.local, back, hints, settled, wrap));
        self.answer(desk, (Message::ConnectAck, id, to), back, &body);
    }

    /// Sends octets of an application to whoever is responsible for a key. Returns whether it was sent: not if that is this
    /// router, or if there is nobody else.
    pub(super) fn payload<S: Space>(
        &mut self,
        desk: &mut Desk<'_, S>,
        closest: &Closest<'_>,
    ) -> Sent {
        let &Closest { key, application, octets, by_another } = closest;
        let (own, id) = (desk.local.id(), MessageId(desk.random.next_u64()));
        let step = match by_another {
            true => desk.overlay.other_step(key, desk.random),
            false => desk.overlay.first_step(key),
        };
        let Some((route, best, wrapped)) = step else { return Sent::Here };
        let cost = (cost(&route) + octets.len() as u32).saturating_mul(2 * u32::from(route.hops()));
        let (rate, bucket) = &mut self.applications;
        if !bucket.spend(desk.now, *rate, cost) {
            return Sent::Refused;
        }
        let mut message = Routed::new(Message::Payload, id, own, key, &route, &[]);
        (message.flags.greedy, message.flags.closest) = (true, true);
        (message.flags.wrapped, message.best, message.record) = (wrapped, best, None);
        let proof = *desk.local.identity.proof();
        self.send::<S>(desk, message, &Body::Payload { application, proof, octets }, &route);
        Sent::Away
    }

    /// Looks for the owner of a prefix, `by_another` way if the best has failed, and `via` a neighbour of it. Returns the
    /// slot by which it was sent, its key and how far the contact is from that; `None` if nobody is closer to it than this
    /// router.
    pub(super) fn look_up<S: Space>(
        &mut self,
        desk: &mut Desk<'_, S>,
        prefix: Prefix,
        id: MessageId,
        (index, noise): (u32, &[u8]),
        (by_another, via): (bool, Option<NodeId>),
    ) -> Option<(Slot, (NodeId, u64))> {
        let own = desk.local.id();
        let mut step = |key| match by_another {
            true => desk.overlay.other_step(key, desk.random),
            false => desk.overlay.first_step(key),
        };
        // A waypoint that this router would be responsible for does not exist.
        let by_way = via.and_then(|via| step(via).map(|step| (via, Some(prefix.key()), step)));
        let (key, onward, step) = match by_way {
            Some((via, onward, begun)) => (via, onward, Some(begun)),
            None => (prefix.key(), None, step(prefix.key())),
        };
        let (route, best, wrapped) = step?;
        let mut message = Routed::new(Message::LookUp, id, own, key, &route, &[]);
        (message.flags.greedy, message.flags.closest) = (true, true);
        (message.flags.wrapped, message.best) = (wrapped, best);
        self.budget.charge(desk.now, cost(&route), 2 * route.hops());
        let choice = (message.key(), best);
        self.send::<S>(desk, message, &Body::LookUp { index, noise, onward }, &route);
        Some((route.first, choice))
    }

    /// Pays for a message of `octets` over so many hops, if the budget holds a quarter more than that.
    pub(super) fn pays(&mut self, now: Time, octets: usize, hops: u16) -> bool {
        let octets = OVERHEAD + octets as u32;
        let is_spare = self.budget.is_spare(now, octets, hops);
        if is_spare {
            self.budget.charge(now, octets, hops);
        }
        is_spare
    }

    /// Sends a message back along the way that a request has recorded.
    pub(super) fn answer<S: Space>(
        &mut self,
        desk: &mut Desk<'_, S>,
        (message, id, to): (Message, MessageId, NodeId),
        back: &Route,
        body: &Body<'_>,
    ) {
        let mut message = Routed::new(message, id, desk.local.id(), to, back, &[]);
        message.labels = back.labels.reversed();
        (message.at, message.flags.reverse, message.record) =
            (message.labels.nibbles(), true, None);
        self.send::<S>(desk, message, body, back);
    }

    /// States that this router is not whom a LOOKUP was for, at most [`STATEMENT_RATE`] times a second.
    pub(super) fn deny<S: Space>(
        &mut self,
        desk: &mut Desk<'_, S>,
        id: MessageId,
        to: NodeId,
        back: &Route,
    ) {
        if self.statements.spend(desk.now, 1) {
            let proof = *desk.local.identity.proof();
            let body = Body::Statement { proof, sequence: desk.local.next_sequence() };
            self.answer(desk, (Message::NotResponsible, id, to), back, &body);
        }
    }

    /// Ends the handshake of a session along its route.
    pub(super) fn confirm<S: Space>(
        &mut self,
        desk: &mut Desk<'_, S>,
        to: NodeId,
        route: &Route,
        receiver: u32,
        noise: &[u8],
    ) {
        let (own, id) = (desk.local.id(), MessageId(desk.random.next_u64()));
        let mut message = Routed::new(Message::Confirm, id, own, to, route, &[]);
        message.record = None;
        self.send::<S>(desk, message, &Body::Confirm { receiver, noise }, route);
    }

    /// Sends the action if it can be paid for and there is room for an answer.
    fn try_act<S: Space>(&mut self, desk: &mut Desk<'_, S>, action: &Action) -> Tried {
        let (request, route) = match action {
            Action::Connect { to, route } => {
                (Some((*to, Way::Route(route.clone()))), route.clone())
            }
            Action::Find { to } | Action::Close { to } => {
                let (way, step) = match action {
                    Action::Find { .. } => (Way::Find, desk.overlay.search_step(*to, None)),
                    _ => (Way::Close, desk.overlay.first_step(*to)),
                };
                let Some((route, ..)) = step else { return Tried::Nowhere };
                (Some((*to, way)), route)
            }
            Action::Introduce { route, .. } | Action::Spread { route, .. } => (None, route.clone()),
        };
        if request.is_some() && self.pending.is_full() {
            self.retry = Some(desk.now + Duration::from_millis(50));
            return Tried::Later;
        }
        let cost = cost(&route);
        if !self.budget.spend(desk.now, cost, route.hops()) {
            let ready = self.budget.ready_at(cost, route.hops());
            self.retry = Some(ready.max(desk.now + Duration::from_millis(10)));
            return Tried::Later;
        }
        if let Some((to, way)) = request {
            return self.ask(desk, Request { to, way }, route.hops());
        }
        let (to, hint) = match action {
            Action::Introduce { to, hint, .. } => (*to, hint),
            Action::Spread { hint, .. } => (hint.id, hint),
            _ => return Tried::Sent,
        };
        let (own, id) = (desk.local.id(), MessageId(desk.random.next_u64()));
        let mut message = Routed::new(Message::Introduce, id, own, to, &route, &[]);
        let is_spread = matches!(action, Action::Spread { .. });
        (message.flags.greedy, message.flags.closest) = (is_spread, is_spread);
        message.flags.linear = is_spread;
        self.send::<S>(desk, message, &Body::Introduce(hint.clone()), &route);
        Tried::Sent
    }

    fn ask<S: Space>(&mut self, desk: &mut Desk<'_, S>, request: Request, hops: u16) -> Tried {
        // The ring goes on where the first contact ends.
        let hops = if matches!(request.way, Way::Route(_)) { hops } else { 2 * hops };
        if let Some(id) = self.pending.insert(desk.now, request.clone(), hops, desk.random) {
            self.send_connect(desk, id, &request, false);
        }
        Tried::Sent
    }

    fn send_connect<S: Space>(
        &mut self,
        desk: &mut Desk<'_, S>,
        id: MessageId,
        request: &Request,
        again: bool,
    ) {
        let (own, to) = (desk.local.id(), request.to);
        let step = match &request.way {
            Way::Route(route) => Some((route.clone(), u64::MAX, false)),
            Way::Find => desk.overlay.search_step(to, again.then_some(&mut *desk.random)),
            Way::Close => desk.overlay.first_step(to),
        };
        let Some((route, best, wrapped)) = step else { return };
        let mut message = Routed::new(Message::Connect, id, own, to, &route, &[]);
        let is_close = request.way == Way::Close;
        message.flags.greedy = !matches!(request.way, Way::Route(_));
        (message.flags.closest, message.flags.linear) = (is_close, is_close);
        (message.flags.wrapped, message.best) = (wrapped, best);
        let towards = match request.way {
            Way::Route(_) => Towards::Route(&route),
            Way::Find | Way::Close => Towards::Ring(route.first),
        };
        let hints = desk.overlay.hints(to, towards);
        let settled = desk.overlay.is_settled(desk.now);
        let connect = connect(desk.local, &route, &hints, settled, is_close);
        self.send::<S>(desk, message, &Body::Connect(connect), &route);
    }

    fn send<S: Space>(
        &mut self,
        desk: &mut Desk<'_, S>,
        message: Routed<'_>,
        body: &Body<'_>,
        route: &Route,
    ) {
        let (mut written, mut item) = (Vec::new(), Vec::new());
        body.emit(&mut written);
        if let Some(domain) = domain(body) {
            let mut signed = Vec::new();
            message.put_signed(&written, &mut signed);
            let signature = C::sign(&desk.local.identity, domain, &signed);
            Seal::Signature(signature).emit(&mut written);
        }
        Routed { body: &written, ..message }.emit(&mut item);
        desk.outbox.push(route.first, &Item::Routed(&item));
    }
}

/// Returns what a body is signed for; `None` if it is not signed.
fn domain(body: &Body<'_>) -> Option<Domain> {
    match body {
        Body::Connect(_) | Body::Statement { .. } => Some(Domain::Message),
        Body::Payload { .. } => Some(Domain::Payload),
        _ => None,
    }
}

/// Returns over how many links an action goes, as far as is known; 0 by way of the ring.
fn hops(action: &Action) -> u16 {
    match action {
        Action::Connect { route, .. }
        | Action::Introduce { route, .. }
        | Action::Spread { route, .. } => route.hops(),
        Action::Find { .. } | Action::Close { .. } => 0,
    }
}

/// Returns what a CONNECT over a route costs, in octets at each hop.
fn cost(route: &Route) -> u32 {
    let labels = u32::from(route.labels.nibbles()).div_ceil(2);
    // The record grows on the way: half of its end length in the mean. Of a long one that is more of the tags.
    let hops = u32::from(route.hops());
    let record = (2 * hops).min(3 * MAX_TAGS as u32) + hops / 4;
    OVERHEAD + Routed::HEADER as u32 + labels + record + 126
}

/// Returns a CONNECT, or its answer, that goes by a route. Hints for which an Ethernet packet would
/// have no room are left out, the longest first: the receiver hears of those routers by others.
fn connect(
    local: &mut LocalRouter,
    route: &Route,
    hints: &[Hint],
    settled: bool,
    wrap: bool,
) -> Connect {
    let mut room = HINT_ROOM.saturating_sub(2 * route.labels.as_bytes().len());
    let mut hints: Hints = hints.into();
    hints.sort_by_key(|hint| hint.onward.nibbles());
    hints.retain(|hint| {
        let length = 14 + hint.onward.as_bytes().len();
        room.checked_sub(length).map(|left| room = left).is_some()
    });
    Connect {
        proof: *local.identity.proof(),
        sequence: local.next_sequence(),
        instance: local.instance,
        settled,
        wrap,
        hints,
    }
}

/// Verifies the proof and the signature of a CONNECT or its answer.
fn verify<C: Crypto>(extension_bits: u8, routed: &Routed<'_>) -> Option<Introduction> {
    let (body, covered, seal) = Body::parse(routed.message, routed.body).ok()?;
    let Body::Connect(connect) = body else { return None };
    let id = check::<C>(extension_bits, routed, Domain::Message, &connect.proof, covered, seal)?;
    Some(Introduction { id, connect })
}

/// Returns the origin of a message if its proof and its signature are good.
fn check<C: Crypto>(
    extension_bits: u8,
    routed: &Routed<'_>,
    domain: Domain,
    proof: &Proof,
    covered: &[u8],
    seal: Seal,
) -> Option<NodeId> {
    let Seal::Signature(signature) = seal else { return None };
    let id = C::verify_proof(proof, extension_bits).ok().filter(|&id| id == routed.origin)?;
    let mut signed = Vec::with_capacity(covered.len() + SIGNATURE);
    routed.put_signed(covered, &mut signed);
    C::verify(&proof.key, domain, &signed, &signature).then_some(id)
}
