//! A worker: one proxy core, and the connection between it and the rest of the process.
//!
//! It runs on its own thread inside [`ringway_net::Endpoint`] and never waits. Slow operations (the
//! disk, server location) are requested here and answered by a [`Post`].

use crate::calls::Calls;
use crate::cluster::Hub;
use crate::locate::Locator;
use crate::mesh::Exchange;
use crate::observe::{Board, Snapshot};
use crate::post::Post;
use crate::text::clean;
use ringway_directory::{Delivery, DeliveryId};
use ringway_net::{Control, Handler, LocalAddresses};
use ringway_os::ChaCha;
use ringway_proxy::config::Config;
use ringway_proxy::{
    AuthFailure, AuthFailureReason, Core, Event, KeptMessage, LogLine, Paths, Reply, World,
};
use ringway_sansio::{
    Backlog, CloseReason, Flow, FlowId, Outbox, Peer, Program, Random, Time, Transport,
};
use ringway_sip::Malformed;
use std::net::SocketAddr;
use std::sync::Arc;
use tracing::{debug, info, warn};

/// Runs a proxy core on one thread.
pub struct Worker {
    core: Core,
    index: u8,
    control: Control<Post>,
    locator: Locator,
    exchange: Option<Arc<Exchange>>,
    hub: Option<Arc<Hub>>,
    board: Arc<Board>,
    calls: Calls,
    random: ChaCha,
    line_budget: LineBudget,
}

/// Maximum number of log lines about requests that one worker writes per second.
pub const MAX_LINES_PER_SECOND: u32 = 200;

/// The local addresses as a peer sees them.
struct Interfaces {
    local: LocalAddresses,
    clock: ringway_net::Clock,
    worker: u8,
}

impl Paths for Interfaces {
    fn local_for(&mut self, transport: Transport, remote: SocketAddr) -> Option<SocketAddr> {
        // The endpoint chooses the sending socket by the same rule.
        let now = self.clock.now();
        self.local.local_addr_for(now, transport, remote.ip())
    }

    fn datagrams_at(&mut self, local: SocketAddr) -> Option<FlowId> {
        let listener = self.local.listener_at(self.clock.now(), Transport::Udp, local)?;
        Some(FlowId::new(self.worker, listener as u64))
    }
}

/// The components of a worker.
pub struct WorkerParts {
    /// Index of the worker.
    pub index: u8,
    /// Configuration of the proxy.
    pub config: Arc<Config>,
    /// Registrations.
    pub store: Arc<dyn ringway_proxy::location::LocationStore>,
    /// Users.
    pub users: Arc<dyn ringway_proxy::auth::Users>,
    /// Control of the network endpoints.
    pub control: Control<Post>,
    /// Server location.
    pub locator: Locator,
    /// The directory of users, if the server is a router of a mesh.
    pub exchange: Option<Arc<Exchange>>,
    /// The database that nodes share, if the server is one of a cluster.
    pub hub: Option<Arc<Hub>>,
    /// Board on which counters are published.
    pub board: Arc<Board>,
    /// Receiver of the steps of calls.
    pub calls: Calls,
    /// Clock.
    pub clock: ringway_net::Clock,
    /// State shared by all workers.
    pub shared: Arc<ringway_proxy::shared::Shared>,
    /// The relay of media, if media is relayed.
    pub media: Option<Arc<dyn ringway_media::MediaRelay>>,
}

impl Worker {
    /// Creates a worker.
    ///
    /// # Errors
    /// Fails when the system returns no random bytes.
    pub fn new(parts: WorkerParts) -> std::io::Result<Self> {
        let WorkerParts { index, config, store, users, control, locator, board, .. } = parts;
        let WorkerParts { calls, clock, shared, exchange, hub, media, .. } = parts;
        let world = World {
            store,
            users,
            random: Box::new(ChaCha::from_os()?),
            paths: Box::new(Interfaces { local: control.local_addresses(), clock, worker: index }),
            workers: control.mailboxes().len() as u8,
            shared,
            media,
        };
        let core = Core::new(config, index, world, clock.now());
        Ok(Worker {
            core,
            index,
            control,
            locator,
            exchange,
            hub,
            board,
            calls,
            random: ChaCha::from_os()?,
            line_budget: LineBudget::default(),
        })
    }

    fn publish(&self, now: Time) {
        let snapshot = Snapshot {
            stats: *self.core.stats(),
            transactions: *self.core.transaction_counters(),
            tables: self.core.tables(),
            unanswered_for: self.core.unanswered_for(now),
        };
        self.board.publish(self.index.into(), snapshot);
    }

    /// Delivers a message that was kept for a user.
    fn deliver(&mut self, now: Time, delivery: &Delivery, out: &mut Outbox) {
        let aor = |name: &str| format!("sip:{name}").into_bytes();
        let (to, from) = (aor(&delivery.to), aor(&delivery.from));
        let kept = KeptMessage { to: &to, from: &from, octets: &delivery.octets };
        self.core.deliver(now, delivery.id.0, &kept, out);
    }

    /// Carries out the requests of the core.
    fn pump(&mut self, now: Time, out: &mut Outbox) {
        while let Some(event) = self.core.poll_event() {
            match event {
                Event::Resolve { id, target, source } => {
                    let seed = self.random.next_u64();
                    let known = self.locator.locate(self.index, id, target, source, seed);
                    if let Some(hops) = known {
                        self.core.handle_resolved(now, id, &hops, out);
                    }
                }
                Event::Ask { id, question, source } => {
                    let reply = match (&self.exchange, &self.hub) {
                        (Some(exchange), _) => exchange.ask(self.index, id, question, source),
                        (None, Some(hub)) => hub.ask(now, self.index, id, &question),
                        (None, None) => Some(Reply::Unavailable),
                    };
                    if let Some(reply) = reply {
                        self.core.handle_answered(now, id, reply, out);
                    }
                }
                Event::HandOver { worker, flow, bytes } => {
                    // A full mailbox counts the refused post; the peer retransmits.
                    if let Some(mailbox) = self.control.mailboxes().get(usize::from(worker)) {
                        mailbox.try_post(Post::HandedOver(flow, bytes));
                    }
                }
                Event::Delivered { id, status } => {
                    if let Some(exchange) = &self.exchange {
                        exchange.delivered(DeliveryId(id), status);
                    }
                }
                Event::Failed(transport, addr) => self.locator.failed(transport, addr),
                Event::Alias(flow, addr) => {
                    self.control.alias(&flow, addr);
                }
                Event::Call(step) => self.calls.report(step),
                Event::AuthFailed(failure) => {
                    if self.line_budget.take(now) {
                        log_auth_failure(&failure);
                    }
                }
                Event::Log(line) => {
                    if self.line_budget.take(now) {
                        log(&line);
                    }
                }
            }
        }
    }
}

/// Limits the log lines about requests per second. A flood of requests must not make the server
/// spend its time on logging; counters count every request.
#[derive(Default)]
struct LineBudget {
    second: u64,
    written: u32,
}

impl LineBudget {
    fn take(&mut self, now: Time) -> bool {
        if now.as_secs() != self.second {
            let dropped = self.written.saturating_sub(MAX_LINES_PER_SECOND);
            if dropped > 0 {
                warn!("{dropped} more requests were refused within a second");
            }
            *self = LineBudget { second: now.as_secs(), written: 0 };
        }
        self.written = self.written.saturating_add(1);
        self.written <= MAX_LINES_PER_SECOND
    }
}

/// The line that `packaging/fail2ban` parses: the source address comes first, before any text that
/// the peer chose.
fn log_auth_failure(failure: &AuthFailure) {
    let reason = match failure.reason {
        AuthFailureReason::WrongPassword => "wrong_password",
        AuthFailureReason::UnknownUser => "unknown_user",
        AuthFailureReason::OtherAlgorithm => "other_algorithm",
        AuthFailureReason::BackOff => "back_off",
        AuthFailureReason::OtherUser => "other_user",
        AuthFailureReason::OtherUri => "other_uri",
        _ => "other",
    };
    warn!(
        source = %failure.source,
        reason = %reason,
        transport = %failure.transport.uri(),
        user = %clean(&failure.user),
        realm = %clean(&failure.realm),
        method = %clean(&failure.method),
        call_id = %clean(&failure.call_id),
        "authentication failed"
    );
}

fn log(line: &LogLine) {
    info!(
        call_id = %clean(&line.call_id),
        method = %clean(&line.method),
        uri = %clean(&line.uri),
        source = %line.source,
        status = line.status,
        "{}",
        line.what
    );
}

impl Program for Worker {
    fn message(&mut self, now: Time, flow: &Flow, bytes: &[u8], out: &mut Outbox) {
        self.core.handle_message(now, flow, bytes, out);
        self.pump(now, out);
    }

    fn malformed(
        &mut self,
        now: Time,
        flow: &Flow,
        head: &[u8],
        error: &Malformed,
        out: &mut Outbox,
    ) {
        debug!(source = %flow.remote, transport = %flow.transport, %error, "malformed message");
        self.core.handle_malformed(now, flow, head, error.status, error.reason, out);
        self.pump(now, out);
    }

    fn opened(&mut self, _now: Time, flow: &Flow, peer: &Peer, _out: &mut Outbox) {
        debug!(
            flow = flow.id.to_u64(),
            source = %flow.remote,
            transport = %flow.transport,
            inbound = peer.inbound,
            "connection opened"
        );
    }

    fn closed(&mut self, now: Time, flow: &Flow, reason: CloseReason, out: &mut Outbox) {
        debug!(
            flow = flow.id.to_u64(),
            source = %flow.remote,
            transport = %flow.transport,
            %reason,
            "connection closed"
        );
        self.core.handle_flow_closed(now, flow.id);
        self.pump(now, out);
    }

    fn not_sent(&mut self, now: Time, report: u64, out: &mut Outbox) {
        self.core.handle_not_sent(now, report, out);
        self.pump(now, out);
    }

    fn cut_off(&mut self, now: Time, report: u64, out: &mut Outbox) {
        self.core.handle_cut_off(now, report, out);
        self.pump(now, out);
    }

    fn timeout(&mut self, now: Time, out: &mut Outbox) {
        self.core.handle_timeout(now, out);
        self.pump(now, out);
        if self.core.take_emptied() {
            ringway_os::trim_memory();
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.core.poll_timeout()
    }

    fn backlog(&mut self, now: Time, backlog: Backlog) -> u32 {
        self.core.handle_backlog(now, &backlog)
    }
}

impl Handler for Worker {
    type Post = Post;

    fn posted(&mut self, now: Time, item: Post, out: &mut Outbox) {
        match item {
            Post::HandedOver(flow, bytes) => self.core.handle_handed_over(now, &flow, &bytes, out),
            Post::Committed(ids, ok) => {
                for id in ids {
                    self.core.handle_committed(now, id, ok, out);
                }
            }
            Post::Changed(aor, why) => self.core.handle_changed(now, &aor, why, out),
            Post::StateChanged(aor) => self.core.handle_state_changed(now, &aor, out),
            Post::Resolved(id, hops) => self.core.handle_resolved(now, id, &hops, out),
            Post::Answered(id, reply) => self.core.handle_answered(now, id, reply, out),
            Post::Deliver(delivery) => self.deliver(now, &delivery, out),
            Post::Configured(config) => self.core.reconfigure(now, config),
            Post::NodesGone(gone) => self.core.handle_nodes_gone(now, &gone, out),
            Post::MovePhones(steps) => {
                self.core.move_phones(steps, out);
            }
            Post::Drain => self.core.drain(),
            Post::EndRequests => self.core.end_requests(now, out),
            Post::Publish => self.publish(now),
        }
        self.pump(now, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_per_second_are_limited() {
        let mut line_budget = LineBudget::default();
        let second = |n| Time::from_secs(n);
        let written = (0..10_000).filter(|_| line_budget.take(second(5))).count();
        assert_eq!(written, MAX_LINES_PER_SECOND as usize);
        assert!(line_budget.take(second(6)));
    }
}
