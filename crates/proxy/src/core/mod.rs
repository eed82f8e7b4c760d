//! The proxy of one worker: everything between the arrival of a message and its departure.
//!
//! [`Core`] receives messages with their flow, the time, and the results of its requests to the world (server location,
//! durable commits). It writes messages to send into an [`Outbox`] and its requests to the world as [`Event`]s. It is
//! single-threaded by design: workers share the location table and a few small facts ([`Shared`]), nothing else.
//!
//! Read next: `parts` takes each request through RFC 3261 section 16. `node` is the identity and the rules of the
//! server, `turn` is what every part uses to answer and to send.

mod budget;
mod calls;
mod dialogs;
mod events;
mod forwarding;
mod gateways;
mod ids;
mod kept;
mod local_requests;
mod locator;
mod media;
mod names;
mod node;
mod parked;
mod parts;
mod proof;
mod publication;
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
use crate::gruu::Gruus;
use crate::keys::Purpose;
use crate::location::{Change, LocationStore};
use crate::notifier::Limits;
use crate::overload::Guard;
use crate::question::Reply;
use crate::shared::Shared;
use crate::stats::{Stats, Tables};
use budget::RequestBudget;
pub use budget::{MAX_NEW_BUDGET, MAX_REQUEST_BUDGET, MAX_UNAUTHENTICATED_BUDGET};
use calls::Calls;
use events::Events;
pub use events::{
    AuthFailure, AuthFailureReason, CallEvent, CallInfo, CallStep, Event, LogLine, MAX_EVENTS,
    MAX_TEXT, ResolveTarget,
};
pub use ids::{AskId, ResolveId};
pub use kept::MAX_KEPT;
use locator::Locator;
pub use locator::{MAX_RESOLVING, Paths};
use media::Media;
use node::Node;
use parked::Parked;
pub use parked::{
    MAX_CHECKS_PER_SOURCE, MAX_CHECKS_PER_USER, MAX_PARKED, MAX_UNAUTHENTICATED_PARKED, MAX_WAIT,
};
use parts::{Arrival, Parts};
pub use registrations::MAX_PENDING_COMMITS;
use registrations::Registrations;
use ringway_media::MediaRelay;
use ringway_sansio::{Backlog, Duration, Flow, FlowId, Hop, Outbox, Random, Time};
use ringway_sip::message;
use ringway_sip::transaction::{Report, Transactions};
use routing::access::Access;
use stateless::Stateless;
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use subscriptions::Subscriptions;
use turn::{Resources, Turn};

/// The number of transactions from which tables count as large.
const LARGE: usize = 1024;

/// The number of expired bindings that the store may remove in one sweep of a worker, at most.
const SWEEP_BUDGET: usize = 2_000;

/// The interval between two sweeps of a worker.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// What the world supplies to the proxy at the start.
pub struct World {
    /// Bindings, shared by all workers.
    pub store: Arc<dyn LocationStore>,
    /// The users of the server.
    pub users: Arc<dyn Users>,
    /// A source of unpredictable randomness.
    pub random: Box<dyn Random + Send>,
    /// Our addresses.
    pub paths: Box<dyn Paths>,
    /// The number of workers.
    pub workers: u8,
    /// The facts that all workers share.
    pub shared: Arc<Shared>,
    /// The relay of media that all workers share, if media is relayed. Dialogs then stay on this server, whatever
    /// [`Config::record_route`] is.
    pub media: Option<Arc<dyn MediaRelay>>,
}

/// A message that was kept for a user who was away.
#[derive(Clone, Copy, Debug)]
pub struct KeptMessage<'a> {
    /// The address-of-record of the recipient.
    pub to: &'a [u8],
    /// The address-of-record of the sender, which has been verified.
    pub from: &'a [u8],
    /// What was kept: see [`MessageToKeep`](crate::MessageToKeep).
    pub octets: &'a [u8],
}

/// The proxy, registrar and redirect server of one worker.
pub struct Core {
    node: Node,
    resources: Resources,
    parts: Parts,
    /// The time of the next removal of expired bindings.
    next_sweep: Time,
    was_large: bool,
    /// Connections that are to be closed, so that their phones move to another server.
    moving: VecDeque<Flow>,
}

impl Core {
    /// Returns the core of worker `worker`.
    pub fn new(config: Arc<Config>, worker: u8, world: World, now: Time) -> Core {
        let World { store, users, mut random, paths, workers, shared, media } = world;
        let secret = &config.secret;
        let mut tx = Transactions::new(worker, config.timers, &mut *random, now);
        tx.share_secret(secret.key(Purpose::Transactions));
        let gruus = Gruus::new(&config.token_secrets(), config.mesh);
        // Users are followed at other servers.
        let limits = match config.mesh.is_some() || shared.states.shares_contacts() {
            true => Limits::of_router(workers),
            false => Limits::default(),
        };
        let auth = Authenticator::new(&config, worker, users, shared.clone(), now);
        let parts = Parts {
            guard: Guard::new(&config, &mut *random, now),
            access: Access::new(auth),
            calls: Calls::new(now),
            stateless: Stateless::new(secret.key(Purpose::StatelessBranches)),
            registrations: Registrations::new(config.registrar.clone(), gruus.clone()),
            subscriptions: Subscriptions::new(limits, secret, gruus, worker, now),
            parked: Parked::new(now),
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
        let node = Node::new(config, worker, workers, shared, Media::new(media));
        let (next_sweep, moving) = (now + SWEEP_EVERY, VecDeque::new());
        Core { node, resources, parts, next_sweep, was_large: false, moving }
    }

    /// Processes a message: a whole datagram, or a message that has been framed.
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

    /// Processes a message that another worker received and that belongs to this one. A CANCEL that matches no
    /// transaction is forwarded to the next worker until all have seen it.
    pub fn handle_handed_over(&mut self, now: Time, flow: &Flow, bytes: &[u8], out: &mut Outbox) {
        let (parts, mut turn) = self.turn(now, out);
        let Ok(msg) = message::parse(bytes) else { return };
        if msg.is_request() {
            parts.request(&mut turn, flow, &msg, Arrival::HandedOver);
        } else {
            parts.response(&mut turn, flow, &msg);
        }
    }

    /// Answers a request whose framing on a stream is broken (RFC 3261 section 18.3), as far as it can be parsed.
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

    /// Reports that a connection has closed. Bindings that depend on it are no longer tried.
    pub fn handle_flow_closed(&mut self, now: Time, flow: FlowId) {
        self.resources.store.flow_closed(flow, now);
    }

    /// Reports that nodes of the cluster at these addresses are gone. Requests that wait for them go another way.
    pub fn handle_nodes_gone(&mut self, now: Time, gone: &[SocketAddr], out: &mut Outbox) {
        let (parts, mut turn) = self.turn(now, out);
        parts.calls.nodes_gone(&mut turn, gone);
    }

    /// Reports that the message with this report number could not be sent.
    pub fn handle_not_sent(&mut self, now: Time, report: u64, out: &mut Outbox) {
        if let Some(report) = Report::from_u64(report) {
            let (parts, mut turn) = self.turn(now, out);
            parts.not_sent(&mut turn, report);
        }
    }

    /// Reports that the connection has closed over which the message with this report number was sent. An unanswered
    /// request is sent once more if it has no other target; otherwise it counts as one that could not be sent (RFC 3261
    /// section 16.9). See [`Transactions::cut_off`].
    pub fn handle_cut_off(&mut self, now: Time, report: u64, out: &mut Outbox) {
        if let Some(report) = Report::from_u64(report) {
            let (parts, mut turn) = self.turn(now, out);
            parts.cut_off(&mut turn, report);
        }
    }

    /// Processes the result of [`Event::Resolve`]. No hops mean that there is no such server.
    pub fn handle_resolved(&mut self, now: Time, id: ResolveId, hops: &[Hop], out: &mut Outbox) {
        let (parts, mut turn) = self.turn(now, out);
        parts.resolved(&mut turn, id, hops);
    }

    /// Processes the reply to [`Event::Ask`]. A request that waited for it goes on from where it stopped. A reply to a
    /// question that is no longer open has no effect.
    pub fn handle_answered(&mut self, now: Time, id: AskId, reply: Reply, out: &mut Outbox) {
        let (parts, mut turn) = self.turn(now, out);
        parts.answered(&mut turn, id, reply);
    }

    /// Forwards a message that was kept for a user, who is registered now: [`Event::Delivered`] follows with this number. The
    /// store must know where the user is.
    pub fn deliver(&mut self, now: Time, id: u64, kept: &KeptMessage<'_>, out: &mut Outbox) {
        let (parts, mut turn) = self.turn(now, out);
        parts.deliver(&mut turn, id, kept);
    }

    /// Answers the REGISTER that waited for this commit: the store has made the change durable, or has failed to.
    pub fn handle_committed(&mut self, now: Time, id: u64, ok: bool, out: &mut Outbox) {
        let (parts, mut turn) = self.turn(now, out);
        parts.registrations.committed(&mut turn, id, ok);
    }

    /// Reports that the registrations of `aor` have changed, on any worker.
    pub fn handle_changed(&mut self, now: Time, aor: &[u8], why: Change, out: &mut Outbox) {
        let (parts, mut turn) = self.turn(now, out);
        parts.subscriptions.changed(&mut turn, aor, why);
    }

    /// Reports that the calls of `aor`, or what its phones have published, have changed: see
    /// [`States`](crate::states::States).
    pub fn handle_state_changed(&mut self, now: Time, aor: &[u8], out: &mut Outbox) {
        let (parts, mut turn) = self.turn(now, out);
        parts.subscriptions.state_changed(&mut turn, aor);
    }

    /// Processes everything that is due.
    pub fn handle_timeout(&mut self, now: Time, out: &mut Outbox) {
        let mut missed = BTreeSet::new();
        if self.next_sweep <= now {
            missed = self.node.shared.states.take_missed(self.node.worker);
            self.resources.store.expire(now, SWEEP_BUDGET);
            self.parts.guard.sweep(now);
            self.next_sweep = now + SWEEP_EVERY;
        }
        let (parts, mut turn) = self.turn(now, out);
        for aor in missed {
            parts.subscriptions.state_changed(&mut turn, &aor);
        }
        parts.timeout(&mut turn);
    }

    /// Returns the time at which [`Core::handle_timeout`] should be called next.
    pub fn poll_timeout(&self) -> Option<Time> {
        let parts = &self.parts;
        let others = [
            self.resources.tx.next_timeout(),
            parts.calls.poll_timeout(),
            parts.subscriptions.poll_timeout(),
            parts.parked.poll_timeout(),
        ];
        others.into_iter().flatten().chain([self.next_sweep]).min()
    }

    /// Returns the next request of the core to the world, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.resources.events.pop()
    }

    /// Replaces the configuration. Calls in progress keep their targets and transactions; later requests of theirs are
    /// judged by the new configuration.
    pub fn reconfigure(&mut self, now: Time, config: Arc<Config>) {
        self.resources.tx.set_timers(config.timers);
        self.parts.access.reconfigure(&config, now);
        self.parts.guard.reconfigure(&config);
        self.node.reconfigure(config.clone());
        let gruus = self.node.gruus.clone();
        self.parts.subscriptions.set_gruus(gruus.clone());
        self.parts.registrations.reconfigure(config.registrar.clone(), gruus);
    }

    /// Closes some of the connections over which phones are registered, so that they register at another server (RFC 5626
    /// section 4.2), and all within this number of calls. One that a request waits on stays until it is answered. Returns how
    /// many are left.
    pub fn move_phones(&mut self, steps: usize, out: &mut Outbox) -> usize {
        if self.moving.is_empty() {
            let moving = &mut self.moving;
            self.resources.store.connections(self.node.worker, &mut |flow| moving.push_back(*flow));
        }
        let max = self.moving.len().div_ceil(steps.max(1));
        let mut busy = self.parts.calls.busy_peers();
        busy.extend(self.parts.parked.peers());
        let (mut looked, mut closed) = (0, 0);
        while looked < self.moving.len() && closed < max {
            let flow = self.moving[looked];
            if busy.contains(&flow.remote) {
                looked += 1;
            } else {
                self.moving.swap_remove_back(looked);
                out.close(flow.id);
                closed += 1;
            }
        }
        self.moving.len()
    }

    /// Refuses new calls with 503 from now on. Calls in progress are completed.
    pub fn drain(&mut self) {
        self.parts.calls.drain();
    }

    /// Returns for how long a peer has waited for an answer, or `None` if none waits for anything any more. What is over
    /// soon, a registration that is being stored and the ACK of a call, counts as nothing.
    pub fn unanswered_for(&self, now: Time) -> Option<Duration> {
        let Parts { registrations, calls, parked, .. } = &self.parts;
        if let Some(since) = calls.unanswered_since().into_iter().chain(parked.since()).min() {
            return Some(now - since);
        }
        let is_over =
            registrations.pending() == 0 && calls.have_acks(now, self.node.config.timers.t1);
        (!is_over).then_some(Duration::ZERO)
    }

    /// Answers all requests that are not answered yet with 503, and cancels what rings: the server ends, and nobody else
    /// would answer them.
    pub fn end_requests(&mut self, now: Time, out: &mut Outbox) {
        let (parts, mut turn) = self.turn(now, out);
        parts.end(&mut turn);
    }

    /// Reports, before each batch of messages, how many wait behind it, and decides what is refused (overload). Returns
    /// the share of new requests that should not even be received, of [`SHED_ALL`](ringway_sansio::SHED_ALL).
    pub fn handle_backlog(&mut self, now: Time, backlog: &Backlog) -> u32 {
        self.parts.guard.backlog(now, backlog);
        self.parts.guard.shed()
    }

    /// Returns whether large tables have become empty since the last call: a good time to return memory to the system.
    pub fn take_emptied(&mut self) -> bool {
        let transactions = self.resources.tx.servers() + self.resources.tx.clients();
        self.was_large |= transactions > LARGE;
        let emptied = self.was_large && transactions == 0 && self.parts.calls.len() == 0;
        self.was_large &= !emptied;
        emptied
    }

    /// Returns the counters.
    pub fn stats(&self) -> &Stats {
        &self.resources.stats
    }

    /// Returns the counters of the transaction layer.
    pub fn transaction_counters(&self) -> &ringway_sip::transaction::table::Counters {
        &self.resources.tx.counters
    }

    /// Returns the sizes of the tables.
    pub fn tables(&self) -> Tables {
        let Core { resources, parts, .. } = self;
        Tables {
            server_transactions: resources.tx.servers(),
            client_transactions: resources.tx.clients(),
            contexts: parts.calls.len(),
            pending_commits: parts.registrations.pending(),
            resolving: resources.locator.open(),
            parked: parts.parked.len(),
            kept_octets: resources.budget.octets(),
            subscriptions: parts.subscriptions.len(),
            sources: parts.guard.sources(),
        }
    }

    fn turn<'a>(&'a mut self, now: Time, out: &'a mut Outbox) -> (&'a mut Parts, Turn<'a>) {
        (&mut self.parts, self.resources.turn(now, &self.node, out))
    }
}
