//! One turn of the core: the arguments of the call, and what every part uses to answer, to send and to ask.

use super::budget::{RequestBudget, RequestClass};
use super::events::{Event, Events, LogLine, ResolveTarget, short_text};
use super::ids::{ClientUser, ContextId, ResolveId, ResolveUser};
use super::locator::Locator;
use super::node::Node;
use super::request::IncomingRequest;
use crate::location::LocationStore;
use crate::shared::REQUEST_LIFETIME;
use crate::stats::Stats;
use ringway_sansio::{Flow, Outbox, Random, Target, Time};
use ringway_sip::header::Via;
use ringway_sip::message::{Message, Method};
use ringway_sip::transaction::{ServerId, Transactions};
use ringway_sip::write;
use std::net::IpAddr;
use std::sync::Arc;

/// The transactions of a worker. A server transaction has a context unless the server answers itself.
pub(super) type Tx = Transactions<ClientUser, Option<ContextId>>;

/// The state that all parts share between turns.
pub(super) struct Resources {
    pub tx: Tx,
    pub locator: Locator,
    pub budget: RequestBudget,
    pub events: Events,
    pub stats: Stats,
    pub random: Box<dyn Random + Send>,
    pub store: Arc<dyn LocationStore>,
}

impl Resources {
    pub(super) fn turn<'a>(
        &'a mut self,
        now: Time,
        node: &'a Node,
        out: &'a mut Outbox,
    ) -> Turn<'a> {
        let Resources { tx, locator, budget, events, stats, random, store } = self;
        Turn {
            now,
            node,
            tx,
            locator,
            budget,
            events,
            stats,
            random: &mut **random,
            store: &**store,
            out,
        }
    }
}

/// The arguments of a call of the core, and the shared state, for the duration of that call.
pub(super) struct Turn<'a> {
    pub now: Time,
    pub node: &'a Node,
    pub tx: &'a mut Tx,
    pub locator: &'a mut Locator,
    pub budget: &'a mut RequestBudget,
    pub events: &'a mut Events,
    pub stats: &'a mut Stats,
    pub random: &'a mut dyn Random,
    pub store: &'a dyn LocationStore,
    pub out: &'a mut Outbox,
}

impl Turn<'_> {
    /// Answers without a transaction, unless the request has waited with one. A retransmitted request is answered the
    /// same again (RFC 3261 section 8.2.7).
    ///
    /// The source of a datagram has proved nothing, not even that the address is its own. An answer larger than
    /// [`MAX_AMPLIFICATION`](ringway_sip::transaction::table::MAX_AMPLIFICATION) times the request is not sent to it.
    pub(super) fn refuse(
        &mut self,
        incoming: &IncomingRequest<'_>,
        status: u16,
        reason: &str,
        headers: &[u8],
    ) {
        if incoming.msg.method() == Method::Ack {
            return;
        }
        let start = self.out.buffer().len();
        let (reply, _) = self.node.reply_to(incoming.flow, incoming.via);
        let tag = self.node.tag(incoming.msg);
        let (buf, flow) = (self.out.buffer(), Some(incoming.flow));
        write::response(buf, incoming.msg, flow, status, reason, Some(&tag), headers, &[]);
        let octets = self.out.buffer().len() - start;
        let avoided = octets > self.repeat_credit(incoming) as usize;
        if avoided {
            self.stats.amplification_avoided += 1;
            self.out.abandon(start);
        }
        match incoming.server() {
            Some(server) if avoided => self.tx.drop_server(server),
            Some(server) => self.tx.respond(self.now, server, status, self.out, start),
            None if avoided => {}
            None => self.out.finish(start, Target::Flow(reply), 0),
        }
    }

    /// Returns the number of octets that may be sent in answer to a request before its sender has proved anything.
    pub(super) fn repeat_credit(&self, incoming: &IncomingRequest<'_>) -> u32 {
        self.node.trust.repeat_credit(incoming.flow, incoming.msg.whole().len())
    }

    /// Answers a request whose sender has proved enough, whatever the length of the answer. `server` is its transaction,
    /// if it has waited with one.
    pub(super) fn reply(
        &mut self,
        flow: &Flow,
        msg: &Message<'_>,
        via: &Via<'_>,
        server: Option<ServerId>,
        (status, reason): (u16, &str),
        headers: &[u8],
    ) {
        let (reply, _) = self.node.reply_to(flow, via);
        let tag = self.node.tag(msg);
        let (start, buf) = (self.out.buffer().len(), self.out.buffer());
        write::response(buf, msg, Some(flow), status, reason, Some(&tag), headers, &[]);
        match server {
            Some(server) => {
                self.tx.limit_repeats(server, u32::MAX);
                self.tx.respond(self.now, server, status, self.out, start);
            }
            None => self.out.finish(start, Target::Flow(reply), 0),
        }
    }

    /// Sends a 100 in the transaction of an INVITE, so that the peer stops its retransmissions (RFC 3261 section
    /// 17.2.1).
    pub(super) fn trying(&mut self, incoming: &IncomingRequest<'_>, server: ServerId) {
        let (start, buf) = (self.out.buffer().len(), self.out.buffer());
        write::response(buf, incoming.msg, Some(incoming.flow), 100, "Trying", None, &[], &[]);
        self.tx.respond(self.now, server, 100, self.out, start);
    }

    /// Limits the retransmissions of a transaction whose sender has proved nothing.
    pub(super) fn limit_repeats(&mut self, incoming: &IncomingRequest<'_>, server: ServerId) {
        let credit = self.repeat_credit(incoming);
        if credit != u32::MAX {
            self.tx.limit_repeats(server, credit);
        }
    }

    /// Records for all workers that this one has the transaction of a request.
    pub(super) fn note_worker(&self, incoming: &IncomingRequest<'_>) {
        if self.node.workers > 1 {
            let (key, worker) = (incoming.key.to_u64(), self.node.worker);
            self.node.shared.requests.put(key, worker, self.now, REQUEST_LIFETIME);
        }
    }

    /// Answers 503 under overload, as cheaply as possible. Without a Retry-After the request is dropped: its source
    /// sends far too much.
    pub(super) fn refuse_with_retry(&mut self, incoming: &IncomingRequest<'_>, retry_after: u32) {
        self.stats.overloaded += 1;
        if retry_after == 0 {
            self.stats.rate_limited += 1;
            return;
        }
        let mut headers = Vec::with_capacity(24);
        write::header_decimal(&mut headers, "Retry-After", u64::from(retry_after));
        self.refuse(incoming, 503, "Service Unavailable", &headers);
    }

    /// Hands a message over to the worker that it belongs to.
    pub(super) fn hand_over(&mut self, worker: u8, flow: &Flow, msg: &Message<'_>) {
        self.stats.handed_over += 1;
        let bytes = msg.bytes().to_vec();
        self.events.push(Event::HandOver { worker, flow: *flow, bytes });
    }

    /// Hands over a CANCEL or an ACK that matches nothing here. Another worker may have the INVITE, if the peer sent
    /// the two from different ports; each worker is tried in turn. Returns whether there was a worker left to try.
    pub(super) fn forward_to_next_worker(&mut self, incoming: &IncomingRequest<'_>) -> bool {
        let next = (self.node.worker + 1) % self.node.workers.max(1);
        if self.node.workers < 2 || next == incoming.flow.id.worker() {
            return false;
        }
        self.hand_over(next, incoming.flow, incoming.msg);
        true
    }

    /// Asks the world to locate a server, for a request from `source`. Returns whether there was room for the question.
    pub(super) fn ask(&mut self, user: ResolveUser, target: ResolveTarget, source: IpAddr) -> bool {
        let fits = self.locator.ask();
        if fits {
            self.events.push(Event::Resolve { id: ResolveId(user), target, source });
        } else {
            self.stats.limits_hit += 1;
        }
        fits
    }

    /// Reserves room for a request that must be stored; returns whether there was any. `known` is whether its sender
    /// has proved to be a user, or is trusted.
    pub(super) fn reserve_budget(
        &mut self,
        msg: &Message<'_>,
        flow: &Flow,
        user: Option<&str>,
        known: bool,
    ) -> bool {
        let begun = msg.method() == Method::Register || msg.to().is_ok_and(|to| to.tag().is_some());
        let class = match begun {
            true => RequestClass::Established,
            false if known => RequestClass::New,
            false => RequestClass::Unauthenticated,
        };
        let holders = self.budget.holders(flow, user);
        let trusted = self.node.trust.trusts(flow);
        let fits = self.budget.take(msg.whole().len(), &holders, class, trusted);
        self.stats.limits_hit += u64::from(!fits);
        fits
    }

    /// Releases the room that [`Turn::reserve_budget`] has reserved for the same flow and user.
    pub(super) fn release_budget(&mut self, octets: usize, flow: &Flow, user: Option<&str>) {
        let holders = self.budget.holders(flow, user);
        self.budget.release(octets, &holders);
    }

    /// Reports an event to the world, unless too many events wait.
    pub(super) fn emit(&mut self, event: impl FnOnce() -> Event) {
        let fits = self.events.report(event);
        self.stats.limits_hit += u64::from(!fits);
    }

    /// Logs a line about this request.
    pub(super) fn log(&mut self, incoming: &IncomingRequest<'_>, what: &'static str, status: u16) {
        self.emit(|| {
            Event::Log(LogLine {
                what,
                status,
                method: short_text(incoming.msg.method().as_bytes()),
                call_id: short_text(incoming.msg.call_id()),
                uri: short_text(incoming.msg.request_uri()),
                source: incoming.flow.remote,
            })
        });
    }
}
