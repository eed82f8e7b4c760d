//! The proxy of one worker: everything between a message's arrival and its leaving.
//!
//! [`Core`] is handed messages with the flow they came on, the time, and answers to what it asked
//! for (server location, durable commits); it writes what is to be sent into an [`Outbox`] and asks
//! by [`Event`]. It is single-threaded on purpose: workers share nothing but the location table and a few
//! small facts ([`Shared`]).
//!
//! Read on in `parts`: it leads each request through RFC 3261 section 16. `node` is what the server is, `turn`
//! what every part answers and sends by.

mod budget;
mod calls;
mod dialogs;
mod events;
mod forwarding;
mod gateways;
mod ids;
mod local_requests;
mod locator;
mod names;
mod node;
mod parts;
mod refusal;
mod registrations;
mod request;
mod routing;
mod stateless;
mod subscriptions;
mod target;
mod trust;
mod turn;

use crate::auth::{Authenticator, Users};
use crate::config::Config;
use crate::keys::Purpose;
use crate::location::{Change, LocationStore};
use crate::overload::Guard;
use crate::shared::Shared;
use crate::stats::{Stats, Tables};
use budget::RequestBudget;
pub use budget::{MAX_BUDGET_OF_NEW, MAX_BUDGET_OF_STRANGERS, MAX_REQUEST_BUDGET};
use calls::Calls;
use events::Events;
pub use events::{
    AuthFailure, AuthFailureReason, CallEvent, CallInfo, CallStep, Event, LogLine, MAX_EVENTS,
    MAX_TEXT, ResolveTarget,
};
pub use ids::ResolveId;
use locator::Locator;
pub use locator::{MAX_RESOLVING, Paths};
use node::Node;
use parts::{Arrival, Parts};
pub use registrations::MAX_PENDING_COMMITS;
use registrations::Registrations;
use ringway_sansio::{Backlog, Duration, Flow, FlowId, Hop, Outbox, Random, Time};
use ringway_sip::message;
use ringway_sip::transaction::{Report, Transactions};
use routing::access::Access;
use stateless::Stateless;
use std::sync::Arc;
use subscriptions::Subscriptions;
use turn::{Resources, Turn};

/// Transactions from which on tables count as large.
const LARGE: usize = 1024;

/// How many expired bindings the store may take out at each of a worker's sweeps.
const SWEEP_BUDGET: usize = 2_000;

/// How often a worker sweeps.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// What the proxy gets from the world at the start.
pub struct World {
    /// Bindings, shared by all workers.
    pub store: Arc<dyn LocationStore>,
    /// Who may use the server.
    pub users: Arc<dyn Users>,
    /// Randomness nobody can guess.
    pub random: Box<dyn Random + Send>,
    /// Our addresses.
    pub paths: Box<dyn Paths>,
    /// How many workers there are.
    pub workers: u8,
    /// What all workers know together.
    pub shared: Arc<Shared>,
}

/// The proxy, registrar and redirect server of one worker.
pub struct Core {
    node: Node,
    resources: Resources,
    parts: Parts,
    /// When expired bindings are taken out next.
    next_sweep: Time,
    was_large: bool,
}

impl Core {
    /// The core of worker `worker`.
    pub fn new(config: Arc<Config>, worker: u8, world: World, now: Time) -> Core {
        let World { store, users, mut random, paths, workers, shared } = world;
        let secret = &config.secret;
        let mut tx = Transactions::new(worker, config.timers, &mut *random, now);
        tx.share_secret(secret.key(Purpose::Transactions));
        let auth = Authenticator::new(&config, worker, users, shared.clone(), now);
        let parts = Parts {
            guard: Guard::new(&config, &mut *random, now),
            access: Access::new(auth),
            calls: Calls::new(now),
            stateless: Stateless::new(secret.key(Purpose::StatelessBranches)),
            registrations: Registrations::new(config.registrar.clone(), secret),
            subscriptions: Subscriptions::new(secret, worker, now),
        };
        let resources = Resources {
            tx,
            locator: Locator::new(paths),
            budget: RequestBudget::new(secret.key(Purpose::Holders)),
            events: Events::new(),
            stats: Stats::default(),
            random,
            store,
        };
        let node = Node::new(config, worker, workers, shared);
        Core { node, resources, parts, next_sweep: now + SWEEP_EVERY, was_large: false }
    }

    /// A message has come: a whole datagram, or one that has been framed.
    pub fn handle_message(&mut self, now: Time, flow: &Flow, bytes: &[u8], out: &mut Outbox) {
        let (parts, mut turn) = self.turn(now, out);
        let Ok(msg) = message::parse(bytes) else {
            turn.stats.garbage += 1;
            return;
        };
        if msg.is_request() {
            turn.stats.requests += 1;
            parts.request(&mut turn, flow, &msg, Arrival::Here);
        } else {
            turn.stats.responses += 1;
            parts.response(&mut turn, flow, &msg);
        }
    }

    /// A message that another worker took in and that belongs here. A CANCEL that found no
    /// transaction goes on to the next worker until all have seen it.
    pub fn handle_handed_over(&mut self, now: Time, flow: &Flow, bytes: &[u8], out: &mut Outbox) {
        let (parts, mut turn) = self.turn(now, out);
        let Ok(msg) = message::parse(bytes) else { return };
        if msg.is_request() {
            parts.request(&mut turn, flow, &msg, Arrival::HandedOver);
        } else {
            parts.response(&mut turn, flow, &msg);
        }
    }

    /// A request whose framing on a stream broke (RFC 3261 section 18.3): answered as far as it can
    /// be read.
    pub fn handle_malformed(
        &mut self,
        now: Time,
        flow: &Flow,
        head: &[u8],
        status: u16,
        reason: &str,
        out: &mut Outbox,
    ) {
        let (_, mut turn) = self.turn(now, out);
        local_requests::refuse_malformed(&mut turn, flow, head, status, reason);
    }

    /// A connection is gone: bindings that live on it are no longer tried.
    pub fn handle_flow_closed(&mut self, now: Time, flow: FlowId) {
        self.resources.store.flow_closed(flow, now);
    }

    /// What was sent under this report number could not be sent.
    pub fn handle_not_sent(&mut self, now: Time, report: u64, out: &mut Outbox) {
        if let Some(report) = Report::from_u64(report) {
            let (parts, mut turn) = self.turn(now, out);
            parts.not_sent(&mut turn, report);
        }
    }

    /// The connection is gone by which what was sent under this report number left. A request that
    /// nothing has answered is sent once more where there is nowhere else to go, else it is taken for one
    /// that could not be sent (RFC 3261 section 16.9); see [`Transactions::cut_off`].
    pub fn handle_cut_off(&mut self, now: Time, report: u64, out: &mut Outbox) {
        if let Some(report) = Report::from_u64(report) {
            let (parts, mut turn) = self.turn(now, out);
            parts.cut_off(&mut turn, report);
        }
    }

    /// An answer to [`Event::Resolve`]; no hops means that there is no such server.
    pub fn handle_resolved(&mut self, now: Time, id: ResolveId, hops: &[Hop], out: &mut Outbox) {
        let (parts, mut turn) = self.turn(now, out);
        parts.resolved(&mut turn, id, hops);
    }

    /// The store has made a change durable (or has failed to): the REGISTER that waited for it is
    /// answered.
    pub fn handle_committed(&mut self, now: Time, id: u64, ok: bool, out: &mut Outbox) {
        let (parts, mut turn) = self.turn(now, out);
        parts.registrations.committed(&mut turn, id, ok);
    }

    /// The registrations of `aor` have changed, on whichever worker.
    pub fn handle_changed(&mut self, now: Time, aor: &[u8], why: Change, out: &mut Outbox) {
        let (parts, mut turn) = self.turn(now, out);
        parts.subscriptions.changed(&mut turn, aor, why);
    }

    /// Runs everything that is due.
    pub fn handle_timeout(&mut self, now: Time, out: &mut Outbox) {
        if self.next_sweep <= now {
            self.resources.store.expire(now, SWEEP_BUDGET);
            self.parts.guard.sweep(now);
            self.next_sweep = now + SWEEP_EVERY;
        }
        let (parts, mut turn) = self.turn(now, out);
        parts.timeout(&mut turn);
    }

    /// When [`Core::handle_timeout`] should be called next.
    pub fn poll_timeout(&self) -> Option<Time> {
        let parts = &self.parts;
        let others = [
            self.resources.tx.next_timeout(),
            parts.calls.poll_timeout(),
            parts.subscriptions.poll_timeout(),
        ];
        others.into_iter().flatten().chain([self.next_sweep]).min()
    }

    /// What the core asks of the world, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.resources.events.pop()
    }

    /// New rules. Calls in progress keep their targets and transactions; what they come to next is judged by
    /// the new rules.
    pub fn reconfigure(&mut self, now: Time, config: Arc<Config>) {
        self.resources.tx.set_timers(config.timers);
        self.parts.access.reconfigure(&config, now);
        self.parts.guard.reconfigure(&config);
        self.parts.registrations.reconfigure(config.registrar.clone());
        self.node.reconfigure(config);
    }

    /// From now on new calls are refused with 503; what runs is finished.
    pub fn drain(&mut self) {
        self.parts.calls.drain();
    }

    /// Whether nothing is under way any more that a peer waits for.
    pub fn is_idle(&self) -> bool {
        self.parts.registrations.pending() == 0 && self.parts.calls.are_answered()
    }

    /// Tells before each batch of messages what waits behind it; decides what is turned away
    /// (overload). Returns the share of new requests that should not even be taken in, of
    /// [`SHED_ALL`](ringway_sansio::SHED_ALL).
    pub fn handle_backlog(&mut self, now: Time, backlog: &Backlog) -> u32 {
        self.parts.guard.backlog(now, backlog);
        self.parts.guard.shed()
    }

    /// Whether tables that had been large have fallen empty since this was asked last: a good time to
    /// give memory back to the system.
    pub fn take_emptied(&mut self) -> bool {
        let transactions = self.resources.tx.servers() + self.resources.tx.clients();
        self.was_large |= transactions > LARGE;
        let emptied = self.was_large && transactions == 0 && self.parts.calls.len() == 0;
        self.was_large &= !emptied;
        emptied
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.resources.stats
    }

    /// Counters of the transaction layer.
    pub fn transaction_counters(&self) -> &ringway_sip::transaction::table::Counters {
        &self.resources.tx.counters
    }

    /// Table sizes.
    pub fn tables(&self) -> Tables {
        let Core { resources, parts, .. } = self;
        Tables {
            server_transactions: resources.tx.servers(),
            client_transactions: resources.tx.clients(),
            contexts: parts.calls.len(),
            pending_commits: parts.registrations.pending(),
            resolving: resources.locator.open(),
            kept_octets: resources.budget.octets(),
            subscriptions: parts.subscriptions.len(),
            sources: parts.guard.sources(),
        }
    }

    fn turn<'a>(&'a mut self, now: Time, out: &'a mut Outbox) -> (&'a mut Parts, Turn<'a>) {
        (&mut self.parts, self.resources.turn(now, &self.node, out))
    }
}
