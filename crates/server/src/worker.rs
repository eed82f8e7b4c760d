//! One worker: a proxy core, and what carries its questions to the rest of the process.
//!
//! It runs on a thread of its own inside [`ringway_net::Endpoint`], and nothing it does waits: what
//! is slow (the disk, server location) is asked for here and answered by a [`Post`].

use crate::calls::Calls;
use crate::locate::Locator;
use crate::observe::{Board, Snapshot};
use crate::text::clean;
use ringway_net::{ChaCha, Control, Handler, LocalAddresses, Mailbox};
use ringway_proxy::config::Config;
use ringway_proxy::location::Change;
use ringway_proxy::{AuthFailure, AuthFailureReason, Core, Event, LogLine, Paths, World};
use ringway_sansio::{
    Backlog, CloseReason, Flow, Hop, Outbox, Peer, Program, Random, Time, Transport,
};
use ringway_sip::Malformed;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, info, warn};

/// What other threads tell a worker.
pub enum Post {
    /// A message that another worker took in and that belongs here.
    HandedOver(Flow, Vec<u8>),
    /// These changes are durable, or have failed.
    Committed(Box<[u64]>, bool),
    /// A registration that is watched has changed.
    Changed(Box<[u8]>, Change),
    /// Server location has found these, best first; or nothing.
    Resolved(u64, Vec<Hop>),
    /// New rules.
    Configured(Arc<Config>),
    /// Take no new calls.
    Drain,
    /// Put your counters on the board.
    Publish,
}

/// How often and how long apart a post that must arrive is tried while the mailbox is full.
const POST_TRIES: u32 = 200;
const POST_PAUSE: Duration = Duration::from_millis(10);

/// Posts what must arrive: a worker that is behind is waited for, up to two seconds. Never called on
/// a worker. False when the worker has ended or does not come back.
pub fn post_surely(mailbox: &Mailbox<Post>, make: impl Fn() -> Post) -> bool {
    (0..POST_TRIES).any(|tries| {
        if tries > 0 {
            std::thread::sleep(POST_PAUSE);
        }
        mailbox.try_post(make())
    })
}

/// The same from a task, which waits without holding up others.
pub async fn post_surely_later(mailbox: Mailbox<Post>, make: impl Fn() -> Post) {
    for _ in 0..POST_TRIES {
        tokio::time::sleep(POST_PAUSE).await;
        if mailbox.try_post(make()) {
            return;
        }
    }
}

/// Runs a core on one thread.
pub struct Worker {
    core: Core,
    index: u8,
    control: Control<Post>,
    locator: Locator,
    board: Arc<Board>,
    calls: Calls,
    random: ChaCha,
    lines: Lines,
}

/// Lines about requests that one worker writes to the log within a second.
pub const LINES_A_SECOND: u32 = 200;

/// Our addresses as a peer sees them.
struct Interfaces {
    local: LocalAddresses,
    clock: ringway_net::Clock,
}

impl Paths for Interfaces {
    fn local_for(&mut self, transport: Transport, remote: SocketAddr) -> Option<SocketAddr> {
        // The socket to send from is chosen by the endpoint, by the same rule.
        let now = self.clock.now();
        self.local.local_addr_for(now, transport, remote.ip())
    }
}

/// What a worker is made of.
pub struct Parts {
    /// Its number.
    pub index: u8,
    /// The rules.
    pub config: Arc<Config>,
    /// Registrations.
    pub store: Arc<dyn ringway_proxy::location::LocationStore>,
    /// Who may use the server.
    pub users: Arc<dyn ringway_proxy::auth::Users>,
    /// The way to the endpoints.
    pub control: Control<Post>,
    /// Finds servers.
    pub locator: Locator,
    /// Where counters are shown.
    pub board: Arc<Board>,
    /// Where the steps of calls are reported.
    pub calls: Calls,
    /// The time.
    pub clock: ringway_net::Clock,
    /// What all workers know together.
    pub shared: Arc<ringway_proxy::shared::Shared>,
}

impl Worker {
    /// A worker that has seen nothing yet.
    ///
    /// # Errors
    /// When the system gives no randomness.
    pub fn new(parts: Parts) -> std::io::Result<Self> {
        let Parts { index, config, store, users, control, locator, board, .. } = parts;
        let Parts { calls, clock, shared, .. } = parts;
        let world = World {
            store,
            users,
            random: Box::new(ChaCha::from_os()?),
            paths: Box::new(Interfaces { local: control.local_addresses(), clock }),
            workers: control.mailboxes().len() as u8,
            shared,
        };
        let core = Core::new(config, index, world, clock.now());
        Ok(Worker {
            core,
            index,
            control,
            locator,
            board,
            calls,
            random: ChaCha::from_os()?,
            lines: Lines::default(),
        })
    }

    fn publish(&self) {
        let snapshot = Snapshot {
            stats: *self.core.stats(),
            transactions: *self.core.transaction_counters(),
            tables: self.core.tables(),
            idle: self.core.is_idle(),
        };
        self.board.publish(self.index.into(), snapshot);
    }

    /// Carries away what the core asks for.
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
                Event::HandOver { worker, flow, bytes } => {
                    // A full mailbox counts what it refuses; the peer sends again.
                    if let Some(mailbox) = self.control.mailboxes().get(usize::from(worker)) {
                        mailbox.try_post(Post::HandedOver(flow, bytes));
                    }
                }
                Event::Failed(transport, addr) => self.locator.failed(transport, addr),
                Event::Alias(flow, addr) => {
                    self.control.alias(&flow, addr);
                }
                Event::Call(step) => self.calls.report(step),
                Event::AuthFailed(failure) => {
                    if self.lines.take(now) {
                        log_auth_failure(&failure);
                    }
                }
                Event::Log(line) => {
                    if self.lines.take(now) {
                        log(&line);
                    }
                }
            }
        }
    }
}

/// How many lines about requests a worker may still write in this second. Whoever floods the server
/// must not make it spend its time on writing about it; counters tell of all.
#[derive(Default)]
struct Lines {
    second: u64,
    written: u32,
}

impl Lines {
    fn take(&mut self, now: Time) -> bool {
        if now.as_secs() != self.second {
            let dropped = self.written.saturating_sub(LINES_A_SECOND);
            if dropped > 0 {
                warn!("{dropped} more requests were refused within a second");
            }
            *self = Lines { second: now.as_secs(), written: 0 };
        }
        self.written = self.written.saturating_add(1);
        self.written <= LINES_A_SECOND
    }
}

/// The line that `packaging/fail2ban` reads: where it came from stands first, before anything that
/// the peer has chosen.
fn log_auth_failure(failure: &AuthFailure) {
    let reason = match failure.reason {
        AuthFailureReason::WrongPassword => "wrong_password",
        AuthFailureReason::UnknownUser => "unknown_user",
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
        self.core.handle_malformed(flow, head, error.status, error.reason, out);
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
            ringway_net::give_memory_back();
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
            Post::Resolved(id, hops) => self.core.handle_resolved(now, id, &hops, out),
            Post::Configured(config) => self.core.reconfigure(now, config),
            Post::Drain => self.core.drain(),
            Post::Publish => self.publish(),
        }
        self.pump(now, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_writes_few_lines() {
        let mut lines = Lines::default();
        let second = |n| Time::from_secs(n);
        let written = (0..10_000).filter(|_| lines.take(second(5))).count();
        assert_eq!(written, LINES_A_SECOND as usize);
        assert!(lines.take(second(6)));
    }
}
