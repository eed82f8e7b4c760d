//! The proxy of one worker: everything between a message's arrival and its leaving.
//!
//! [`Core`] is handed messages with the flow they came on, the time, and answers to what it asked
//! for (server location, durable commits); it writes what is to be sent into an [`Outbox`] and asks
//! by [`Event`]. It is single-threaded on purpose: workers share nothing but the location table.
//!
//! Read on in the order of RFC 3261 section 16: `validate` (16.3), `preroute` (16.4), `targets`
//! (16.5), `branch` (16.6), `answers` (16.7 and 16.8), `cancel` (16.10), `stateless` (16.11). What is
//! addressed to the server itself is in `local`.

mod answers;
mod branch;
mod calls;
mod cancel;
mod context;
mod dialog;
mod events;
mod gateways;
mod kept;
mod local;
mod notify;
mod preroute;
mod reply;
mod stateless;
mod targets;
mod validate;

use crate::auth::{Authenticator, Users};
use crate::config::Config;
use crate::gruu::Gruus;
use crate::location::LocationStore;
use crate::mark::Marks;
use crate::outbound::FlowTokens;
use crate::overload::Guard;
use crate::own::Own;
use crate::regevent::{Notify, RegEvents};
use crate::registrar::Registrar;
use crate::shared::Shared;
use crate::stats::{Stats, Tables};
use context::Context;
pub use events::{
    AuthFailure, AuthFailureReason, CallEvent, CallInfo, CallStep, Event, LogLine, MAX_TEXT,
};
use gateways::Gateways;
use kept::Purpose;
pub use kept::{MAX_KEPT, MAX_KEPT_OF_NEW, MAX_KEPT_OF_STRANGERS};
use ringway_sansio::{Backlog, Flow, FlowId, Outbox, Random, Time, TimerWheel, Transport};
use ringway_sip::header::Via;
use ringway_sip::message::{self, Message, Method};
use ringway_sip::transaction::table::USER_REPORT;
use ringway_sip::transaction::{Branch, Expired, Incoming, ServerKey, Transactions};
use slab::Slab;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

/// Branches that may wait for server location at one time; more are answered with 503.
pub const MAX_RESOLVING: usize = 10_000;

/// Registrations that may wait for the store at one time; more are answered with 503.
pub const MAX_PENDING_COMMITS: usize = 100_000;

/// Log lines and questions to the world that may wait to be taken away; beyond it log lines are
/// dropped.
pub const MAX_EVENTS: usize = 20_000;

/// Transactions from which on tables count as large.
const LARGE: usize = 1024;

/// How many expired bindings the store may take out at each of a worker's sweeps.
const SWEEP_BUDGET: usize = 2_000;

/// How often a worker sweeps.
const SWEEP_EVERY: core::time::Duration = core::time::Duration::from_secs(1);

/// What server location is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolveTarget {
    /// Host part of the URI, never a literal address.
    pub host: Box<str>,
    /// Port, where the URI has one.
    pub port: Option<u16>,
    /// Transport, where the URI names one.
    pub transport: Option<Transport>,
    /// Whether the URI is a `sips` one.
    pub secure: bool,
}

/// What the world knows of its interfaces.
pub trait Paths: Send {
    /// Returns our address as a peer at `remote` can reach it over `transport`, never a wildcard. Returns
    /// `None` where nothing listens for its answers.
    fn local_for(&mut self, transport: Transport, remote: SocketAddr) -> Option<SocketAddr>;
}

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

/// The bits that tell our own report numbers from those of transactions.
const REPORT_KIND: u64 = 3 << 62;

enum Tick {
    /// Timer C of a branch (RFC 3261 section 16.8).
    TimerC { context: usize, serial: u32, branch: usize },
    /// A request that is no INVITE has not been answered for long (RFC 4320 section 4.1).
    Trying { context: usize, serial: u32 },
    /// Expired bindings are taken out.
    Sweep,
}

/// A REGISTER whose answer waits until the store has it on disk.
struct PendingRegister {
    request: Vec<u8>,
    flow: Flow,
    headers: Vec<u8>,
    came: Time,
}

/// The proxy, registrar and redirect server of one worker.
pub struct Core {
    config: Arc<Config>,
    own: Own,
    worker: u8,
    workers: u8,
    shared: Arc<Shared>,
    store: Arc<dyn LocationStore>,
    random: Box<dyn Random + Send>,
    paths: Box<dyn Paths>,
    auth: Authenticator,
    guard: Guard,
    registrar: Registrar,
    regevents: RegEvents,
    tokens: FlowTokens,
    marks: Marks,
    gruus: Gruus,
    gateways: Gateways,
    spiral_key: [u8; 16],
    /// Requests that are forwarded statelessly as soon as their next hop has been located.
    parked: Slab<stateless::Parked>,
    /// ACKs that may have to go another way, by report number.
    resends: VecDeque<(u32, stateless::Parked)>,
    resend_serial: u32,
    /// NOTIFY requests that wait for the same.
    parked_notifies: Slab<(Notify, Vec<u8>)>,
    /// NOTIFY requests under way, by the notifier's number.
    notifies: Slab<u64>,
    tx: Transactions,
    contexts: Slab<Context>,
    /// Tells contexts that had the same index apart.
    serial: u32,
    resolving: usize,
    /// Requests kept, and whose.
    kept: kept::Kept,
    pending: Slab<PendingRegister>,
    wheel: TimerWheel<Tick>,
    events: VecDeque<Event>,
    draining: bool,
    was_large: bool,
    /// Reused for header lines under construction.
    scratch: Vec<u8>,
    stats: Stats,
}

/// How a request came to this worker.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arrival {
    /// At a socket of its own.
    Here,
    /// From another worker.
    HandedOver,
}

/// One request on its way through: what every step needs to know of it.
#[derive(Clone, Copy)]
struct Pass<'a> {
    now: Time,
    flow: &'a Flow,
    msg: &'a Message<'a>,
    via: &'a Via<'a>,
    key: ServerKey,
}

impl Core {
    /// The core of worker `worker`.
    pub fn new(config: Arc<Config>, worker: u8, world: World, now: Time) -> Core {
        let World { store, users, mut random, paths, workers, shared } = world;
        let mut spiral_key = [0; 16];
        spiral_key.copy_from_slice(&config.secret[16..]);
        let mut tx = Transactions::new(worker, config.timers, &mut *random, now);
        tx.share_secret(derive(&config.secret, b"transactions"));
        let mut wheel = TimerWheel::new(now);
        wheel.set(now + SWEEP_EVERY, Tick::Sweep);
        Core {
            own: Own::new(&config),
            worker,
            workers,
            shared: shared.clone(),
            store,
            paths,
            auth: Authenticator::new(&config, worker, users, shared, now),
            guard: Guard::new(&config, &mut *random, now),
            registrar: Registrar::new(config.registrar.clone(), &config.secret),
            regevents: RegEvents::new(Default::default(), &config.secret, worker, now),
            tokens: FlowTokens::new(derive(&config.secret, b"flow tokens")),
            marks: Marks::new(derive(&config.secret, b"dialog marks")),
            gruus: Gruus::new(&config.secret),
            gateways: Gateways::new(&config),
            spiral_key,
            parked: Slab::new(),
            resends: VecDeque::new(),
            resend_serial: 0,
            parked_notifies: Slab::new(),
            notifies: Slab::new(),
            random,
            tx,
            contexts: Slab::new(),
            serial: 0,
            resolving: 0,
            kept: kept::Kept::new(derive(&config.secret, b"kept")),
            pending: Slab::new(),
            wheel,
            events: VecDeque::new(),
            draining: false,
            was_large: false,
            scratch: Vec::new(),
            stats: Stats::default(),
            config,
        }
    }

    /// A message has come: a whole datagram, or one that has been framed.
    pub fn handle_message(&mut self, now: Time, flow: &Flow, bytes: &[u8], out: &mut Outbox) {
        let Ok(msg) = message::parse(bytes) else {
            self.handle_unparsable(flow, bytes, out);
            return;
        };
        if msg.is_request() {
            self.stats.requests += 1;
            self.request(now, flow, &msg, Arrival::Here, out);
        } else {
            self.stats.responses += 1;
            self.response(now, flow, &msg, out);
        }
    }

    /// A message that another worker took in and that belongs here. A CANCEL that found no
    /// transaction goes on to the next worker until all have seen it.
    pub fn handle_handed_over(&mut self, now: Time, flow: &Flow, bytes: &[u8], out: &mut Outbox) {
        let Ok(msg) = message::parse(bytes) else { return };
        if msg.is_request() {
            self.request(now, flow, &msg, Arrival::HandedOver, out);
        } else {
            self.response(now, flow, &msg, out);
        }
    }

    fn request(
        &mut self,
        now: Time,
        flow: &Flow,
        msg: &Message<'_>,
        arrival: Arrival,
        out: &mut Outbox,
    ) {
        let via = match msg.top_via() {
            Ok(via) => via,
            Err(fault) => return self.refuse_without_via(flow, msg, fault.reason, out),
        };
        let key = match self.tx.receive(now, msg, &via, out) {
            Incoming::Absorbed => return,
            // The ACK of an answer that was given without a transaction. Under overload there are
            // many, so that nothing more is asked of them.
            Incoming::New(_) if msg.method() == Method::Ack && self.is_own_tag(msg) => return,
            Incoming::New(key) => key,
            Incoming::AckOf2xx(_) => self.tx.key(msg, &via),
        };
        if arrival == Arrival::Here && self.is_of_another_worker(now, flow, msg, key) {
            return;
        }
        if !flow.transport.is_datagram() && via.param(b"alias").is_some() {
            let port = via.port.unwrap_or(flow.transport.default_port());
            let addr = SocketAddr::new(flow.remote.ip(), port);
            self.events.push_back(Event::Alias(*flow, addr));
        }
        let pass = Pass { now, flow, msg, via: &via, key };
        if let Some(retry) = self.guard.refuses(now, flow, msg) {
            return self.turn_away(&pass, retry, out);
        }
        if msg.method() == Method::Cancel {
            return self.cancel_request(&pass, out);
        }
        if let Err(fault) = msg.check() {
            self.stats.malformed += 1;
            return self.refuse(&pass, fault.status, fault.reason, &[], out);
        }
        self.route(&pass, out);
    }

    /// Hands a request over if another worker has its transaction: a retransmission, or the ACK of a
    /// refusal, that came from another source port (RFC 3261 section 17.2.3 matches without regard to it).
    fn is_of_another_worker(
        &mut self,
        now: Time,
        flow: &Flow,
        msg: &Message<'_>,
        key: ServerKey,
    ) -> bool {
        if self.workers < 2 || msg.method() == Method::Cancel {
            return false;
        }
        let found = self.shared.requests.get(key.to_u64(), now);
        let Some(worker) = found.filter(|&w| w != self.worker && w < self.workers) else {
            return false;
        };
        self.stats.handed_over += 1;
        let bytes = msg.bytes().to_vec();
        self.events.push_back(Event::HandOver { worker, flow: *flow, bytes });
        true
    }

    fn response(&mut self, now: Time, flow: &Flow, msg: &Message<'_>, out: &mut Outbox) {
        let Ok(via) = msg.top_via() else {
            self.stats.garbage += 1;
            return;
        };
        // RFC 3261 section 18.3: what is cut off is no response. What else user agents get wrong is
        // for the one that asked to judge.
        if msg.check_frame().is_err() {
            self.stats.garbage += 1;
            return;
        }
        let Some(branch) = Branch::parse(via.branch) else {
            return self.stateless_response(flow, msg, &via, out);
        };
        if branch.worker != self.worker {
            if branch.worker < self.workers {
                self.stats.handed_over += 1;
                let bytes = msg.bytes().to_vec();
                self.events.push_back(Event::HandOver {
                    worker: branch.worker,
                    flow: *flow,
                    bytes,
                });
            }
            return;
        }
        match self.tx.response(now, branch.client, msg, out) {
            Some(event) => self.answer(now, event, flow, msg, &via, out),
            // RFC 6026 section 8.8: a stray response goes no further.
            None if msg.method() == Method::Cancel => {}
            None => self.stats.stray_responses += 1,
        }
    }

    /// A connection is gone: bindings that live on it are no longer tried.
    pub fn handle_flow_closed(&mut self, now: Time, flow: FlowId) {
        self.store.flow_closed(flow, now);
    }

    /// What was sent under this report number could not be sent.
    pub fn handle_not_sent(&mut self, now: Time, report: u64, out: &mut Outbox) {
        if report & REPORT_KIND == USER_REPORT {
            return self.resend(now, report, out);
        }
        if let Some(event) = self.tx.not_sent(now, report, out) {
            self.branch_unsent(now, event, out);
        }
    }

    /// The connection is gone by which what was sent under this report number left. A request that
    /// nothing has answered is sent once more where there is nowhere else to go, else it is taken for one
    /// that could not be sent (RFC 3261 section 16.9); see [`Transactions::cut_off`].
    pub fn handle_cut_off(&mut self, now: Time, report: u64, out: &mut Outbox) {
        if report & REPORT_KIND == USER_REPORT {
            return self.resend(now, report, out);
        }
        if let Some(event) = self.tx.cut_off(now, report) {
            self.branch_cut_off(now, event, out);
        }
    }

    /// Runs everything that is due.
    pub fn handle_timeout(&mut self, now: Time, out: &mut Outbox) {
        while let Some(expired) = self.tx.expire(now, out) {
            match expired {
                Expired::ClientTimeout(event) => self.branch_timeout(now, event, out),
                Expired::ClientGone(event) => self.branch_gone(now, event, out),
                Expired::ServerGone(user) => self.server_gone(user),
                Expired::Nothing => {}
            }
        }
        while let Some(tick) = self.wheel.expire(now) {
            match tick {
                Tick::TimerC { context, serial, branch } => {
                    self.timer_c(now, context, serial, branch, out);
                }
                Tick::Trying { context, serial } => self.still_trying(now, context, serial, out),
                Tick::Sweep => {
                    self.store.expire(now, SWEEP_BUDGET);
                    self.guard.sweep(now);
                    self.wheel.set(now + SWEEP_EVERY, Tick::Sweep);
                }
            }
        }
        self.regevents.handle_timeout(now, &*self.store);
        self.send_notifications(now, out);
    }

    /// When [`Core::handle_timeout`] should be called next.
    pub fn poll_timeout(&self) -> Option<Time> {
        [self.tx.next_timeout(), self.wheel.next(), self.regevents.poll_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    /// What the core asks of the world, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        if event.is_none() && self.events.capacity() > 4096 {
            self.events = VecDeque::new();
        }
        event
    }

    /// New rules; calls in progress keep what they were started with.
    pub fn reconfigure(&mut self, now: Time, config: Arc<Config>) {
        self.own = Own::new(&config);
        self.gateways = Gateways::new(&config);
        self.tx.set_timers(config.timers);
        self.auth.reconfigure(&config, now);
        self.guard.reconfigure(&config);
        self.registrar.reconfigure(config.registrar.clone());
        self.config = config;
    }

    /// From now on new calls are refused with 503; what runs is finished.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Whether nothing is under way any more that a peer waits for.
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.contexts.iter().all(|(_, c)| c.is_answered())
    }

    /// Tells before each batch of messages what waits behind it; decides what is turned away
    /// (overload). Returns the share of new requests that should not even be taken in, of
    /// [`SHED_ALL`](ringway_sansio::SHED_ALL).
    pub fn handle_backlog(&mut self, now: Time, backlog: &Backlog) -> u32 {
        self.guard.backlog(now, backlog);
        self.guard.shed()
    }

    /// Whether tables that had been large have fallen empty since this was asked last: a good time to
    /// give memory back to the system.
    pub fn take_emptied(&mut self) -> bool {
        let transactions = self.tx.servers() + self.tx.clients();
        self.was_large |= transactions > LARGE;
        let emptied = self.was_large && transactions == 0 && self.contexts.is_empty();
        self.was_large &= !emptied;
        emptied
    }

    /// Whether there is room to keep a request; takes it, if so. `known` says that its sender has proved
    /// to be a user, or is trusted.
    fn keep(&mut self, msg: &Message<'_>, flow: &Flow, user: Option<&str>, known: bool) -> bool {
        let begun = msg.method() == Method::Register || msg.to().is_ok_and(|to| to.tag().is_some());
        let purpose = match begun {
            true => Purpose::Begun,
            false if known => Purpose::New,
            false => Purpose::Stranger,
        };
        let holders = self.kept.holders(flow, user);
        let trusted = self.is_trusted_ip(flow.remote.ip());
        let fits = self.kept.take(msg.whole().len(), &holders, purpose, trusted);
        self.stats.limits_hit += u64::from(!fits);
        fits
    }

    /// Returns the room of a request that [`Core::keep`] has taken for the same flow and user.
    fn release_kept(&mut self, octets: usize, flow: &Flow, user: Option<&str>) {
        let holders = self.kept.holders(flow, user);
        self.kept.give_back(octets, &holders);
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Counters of the transaction layer.
    pub fn transaction_counters(&self) -> &ringway_sip::transaction::table::Counters {
        &self.tx.counters
    }

    /// Table sizes.
    pub fn tables(&self) -> Tables {
        Tables {
            server_transactions: self.tx.servers(),
            client_transactions: self.tx.clients(),
            contexts: self.contexts.len(),
            pending_commits: self.pending.len(),
            resolving: self.resolving,
            kept_octets: self.kept.octets(),
            subscriptions: self.regevents.len(),
            sources: self.guard.sources(),
        }
    }
}

/// A key for one purpose out of the secret that all workers share.
pub(crate) fn derive(secret: &[u8; 32], purpose: &[u8]) -> [u8; 16] {
    use siphasher::sip128::{Hasher128, SipHasher24};
    use std::hash::Hasher;
    let mut key = [0; 16];
    key.copy_from_slice(&secret[..16]);
    let mut h = SipHasher24::new_with_key(&key);
    h.write(&secret[16..]);
    h.write(purpose);
    h.finish128().as_bytes()
}
