//! Requests that are proxied in a transaction: their response contexts, from the first branch to the last response (RFC
//! 3261 sections 16.6 to 16.10).
//!
//! `fork` starts branches and chooses their attempts, `launch` sends one, `responses` processes responses, `failures`
//! their substitutes, `finish` sends the final response, `awaited` holds a stopping server up until a call has its ACK;
//! `cancel`, `report` and `record` are named for what they do.

mod awaited;
mod cancel;
mod context;
mod failures;
mod finish;
mod fork;
mod launch;
mod record;
mod record_route;
mod report;
mod responses;

use super::ids::{BranchId, ContextId};
use super::request::{Findings, IncomingRequest};
use super::target::RequestTarget;
use super::turn::Turn;
use awaited::AwaitedAcks;
use context::{Context, Contexts, Requester};
use report::end_of_call;
pub(super) use responses::Answer;
use ringway_sansio::{Duration, Time, TimerWheel};
use ringway_sip::message::{self, Message, Method};
use ringway_sip::transaction::{Kind, Timers};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// The number of branches of one request; an id has 16 bits for them.
const MAX_BRANCHES: usize = u16::MAX as usize;

/// Retry-After of a server that stops, in seconds. It may be back earlier.
pub(super) const RETRY_AFTER_STOP: u32 = 30;

/// A timer of a context.
enum Tick {
    /// Timer C of a branch (RFC 3261 section 16.8).
    TimerC(BranchId),
    /// The targets of one q have rung long enough alone.
    Group(ContextId),
    /// A request other than INVITE has no final response after a long time (RFC 4320 section 4.1).
    Trying(ContextId),
}

/// The proxied requests of a worker.
pub(super) struct Calls {
    contexts: Contexts,
    wheel: TimerWheel<Tick>,
    draining: bool,
    /// Whether the server ends, so that a 503 is its own.
    ending: bool,
    acks: AwaitedAcks,
}

impl Calls {
    pub(super) fn new(now: Time) -> Calls {
        Calls {
            contexts: Contexts::new(),
            wheel: TimerWheel::new(now),
            draining: false,
            ending: false,
            acks: AwaitedAcks::default(),
        }
    }

    /// Refuses new calls from now on. Calls in progress are completed.
    pub(super) fn drain(&mut self) {
        self.draining = true;
    }

    /// Returns whether new calls are refused.
    pub(super) fn is_draining(&self) -> bool {
        self.draining
    }

    /// Holds a context for a request that waits for an answer of the world.
    pub(super) fn hold(&mut self) -> ContextId {
        self.contexts.hold()
    }

    /// Releases a held context, if [`Calls::begin`] has not used it.
    pub(super) fn release_held(&mut self, id: ContextId) {
        self.contexts.release_held(id);
    }

    /// Returns the number of contexts, those that are held included.
    pub(super) fn len(&self) -> usize {
        self.contexts.len()
    }

    /// Returns when the first of the requests came that are not answered yet.
    pub(super) fn unanswered_since(&self) -> Option<Time> {
        let unanswered = self.contexts.iter().filter(|context| !context.answered);
        unanswered.map(|context| context.came).min()
    }

    /// Returns whether no ACK is waited for.
    pub(super) fn have_acks(&self, now: Time, t1: Duration) -> bool {
        self.acks.is_empty(now, t1)
    }

    /// Returns the peers of requests that are not answered yet: who has sent each, and where it was sent.
    pub(super) fn busy_peers(&self) -> BTreeSet<SocketAddr> {
        let mut peers = BTreeSet::new();
        for context in self.contexts.iter().filter(|context| !context.answered) {
            peers.insert(context.flow.remote);
            let sent = context.branches.iter().filter_map(|branch| branch.last_destination);
            peers.extend(sent.map(|(_, remote)| remote));
        }
        peers
    }

    /// Notes that an INVITE was accepted by this response. Its ACK is waited for where the server is to stop.
    fn accepted(&mut self, t: &Turn<'_>, answer: &Message<'_>) {
        self.acks.accepted(t.now);
        if self.draining {
            self.acks.wait(t.now, t.node.dialogs.dialog_key(answer), t.node.config.timers.t1);
        }
    }

    /// Notes that an ACK is forwarded.
    pub(super) fn acknowledged(&mut self, t: &Turn<'_>, ack: &Message<'_>) {
        if self.draining {
            self.acks.forwarded(t.now, t.node.dialogs.dialog_key(ack));
        }
    }

    /// Returns the time at which [`Calls::handle_timeout`] should be called next.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.wheel.next()
    }

    /// Processes everything that is due.
    pub(super) fn handle_timeout(&mut self, t: &mut Turn<'_>) {
        while let Some(tick) = self.wheel.expire(t.now) {
            match tick {
                Tick::TimerC(id) => self.timer_c(t, id),
                Tick::Group(id) => self.next_group(t, id),
                Tick::Trying(id) => self.still_trying(t, id),
            }
        }
    }

    /// Accepts a request: opens the server transaction and the response context, unless it has waited with both, and
    /// starts the branches of the best q.
    pub(super) fn begin(
        &mut self,
        t: &mut Turn<'_>,
        incoming: &IncomingRequest<'_>,
        findings: Findings,
        mut targets: Vec<RequestTarget>,
        user: Option<Box<str>>,
    ) {
        let (msg, known) = (incoming.msg, findings.is_known());
        let initial = msg.to().is_ok_and(|to| to.tag().is_none());
        let waited = incoming.progress;
        if self.draining && initial && waited.is_none() {
            return t.refuse_with_retry(incoming, RETRY_AFTER_STOP);
        }
        if targets.is_empty() {
            return t.refuse(incoming, 480, "", &[]);
        }
        if !t.reserve_budget(msg, incoming.flow, user.as_deref(), known) {
            return t.refuse_with_retry(incoming, 10);
        }
        targets.truncate(MAX_BRANCHES);
        let kind = if msg.method() == Method::Invite { Kind::Invite } else { Kind::NonInvite };
        let (reply, port) = t.node.reply_to(incoming.flow, incoming.via);
        let opened = match waited {
            Some(progress) => Some((progress.context, progress.server)),
            None => {
                let id = self.contexts.reserve();
                t.tx.open(incoming.key, kind, reply, port, Some(id)).map(|server| (id, server))
            }
        };
        let Some((id, server)) = opened else {
            t.release_budget(msg.whole().len(), incoming.flow, user.as_deref());
            t.stats.limits_hit += 1;
            return t.refuse_with_retry(incoming, 10);
        };
        let came = waited.map_or(t.now, |progress| progress.came);
        let mut context = Context::new(
            came,
            (id, Requester::Peer(server), kind),
            incoming,
            reply,
            findings,
            targets,
        );
        context.user = user;
        if waited.is_none() {
            t.note_worker(incoming);
        }
        if context.findings.record_route && initial {
            t.node.dialogs.note_begin(msg);
        }
        if let (Some(dialog), Method::Bye) = (&context.findings.in_dialog, msg.method()) {
            context.ended = Some(end_of_call(t.now, incoming, dialog));
        }
        match waited {
            Some(_) if known => t.tx.limit_repeats(server, u32::MAX),
            Some(_) => {}
            None if known => {}
            None => t.limit_repeats(incoming, server),
        }
        match kind {
            Kind::Invite if waited.is_some_and(|progress| progress.trying) => {}
            Kind::Invite if t.node.trust.node(incoming).is_none() => t.trying(incoming, server),
            // The caller has a 100 from the other node. Where a phone here rings within this time, another is for nothing.
            Kind::Invite => {
                context.trying = self.wheel.set(t.now + Timers::trying_invite(), Tick::Trying(id));
            }
            Kind::NonInvite => {
                let at = t.now + t.tx.timers().trying();
                context.trying = self.wheel.set(at, Tick::Trying(id));
            }
        }
        context.record = record::record_of(t, &context, msg);
        context.session = kind == Kind::Invite && initial;
        let session = context.session;
        match waited {
            Some(_) => self.contexts.insert_held(context),
            None => self.contexts.insert(context),
        }
        if session {
            t.stats.sessions += 1;
            self.report_began(t, id, msg);
            self.record_caller(t, id);
        }
        self.start_group(t, id, msg);
    }

    /// Accepts a message of this server itself, of the number `number`. Returns the status with which it fails at once.
    pub(super) fn begin_own(
        &mut self,
        t: &mut Turn<'_>,
        incoming: &IncomingRequest<'_>,
        number: u64,
        findings: Findings,
        targets: Vec<RequestTarget>,
    ) -> Result<(), u16> {
        if !t.reserve_budget(incoming.msg, incoming.flow, None, true) {
            return Err(503);
        }
        let id = self.contexts.reserve();
        let requester = (id, Requester::World(number), Kind::NonInvite);
        let reply = *incoming.flow;
        self.contexts.insert(Context::new(t.now, requester, incoming, reply, findings, targets));
        self.start_group(t, id, incoming.msg);
        Ok(())
    }

    /// Returns whether the context of a branch, and so the branch, still exists.
    fn exists(&self, id: BranchId) -> bool {
        self.contexts.get(id.context).is_some()
    }

    /// Runs `f` with the stored request of a context, parsed again.
    fn with_request(
        &mut self,
        t: &mut Turn<'_>,
        id: ContextId,
        f: impl FnOnce(&mut Calls, &mut Turn<'_>, &Message<'_>),
    ) {
        let Some(bytes) = self.contexts[id].request.clone() else { return };
        if let Ok(msg) = message::parse(&bytes) {
            f(self, t, &msg);
        }
    }
}
