//! Substitutes for a response: time-outs, timer C (RFC 3261 section 16.8) and transport errors (16.9).

use super::Calls;
use super::context::{CancelReason, Requester, State};
use crate::core::events::Event;
use crate::core::ids::{BranchId, ContextId};
use crate::core::names::{default_port, next_host};
use crate::core::target::{Attempt, Origin, RequestTarget};
use crate::core::turn::Turn;
use crate::local_identity::parse_ip;
use ringway_sansio::{Hop, TimerId};
use ringway_sip::header::NameAddr;
use ringway_sip::transaction::{ClientId, Kind};
use ringway_sip::uri::Uri;
use ringway_sip::write;
use std::net::SocketAddr;

impl Calls {
    /// Moves a branch to its next attempt.
    pub(super) fn fail_over(&mut self, t: &mut Turn<'_>, id: BranchId) {
        t.stats.failovers += 1;
        self.note_failed_gateway(t, id);
        let branch = &mut self.contexts[id];
        branch.state = State::Waiting;
        branch.on_flow = false;
        let hop = branch.hop.take();
        // A TCP refusal is no failure of the server while UDP is still to be tried.
        if !matches!(branch.target.attempts.last(), Some(Attempt::Datagram(_)))
            && let Some(Hop { transport, addr, .. }) = hop
        {
            t.events.push(Event::Failed(transport, addr));
        }
        self.retry(t, id);
    }

    /// Processes timer B or F (section 16.7: "as if a 408 had been received").
    pub(in crate::core) fn timed_out(&mut self, t: &mut Turn<'_>, client: ClientId, id: BranchId) {
        self.branch_failed(t, client, id, 408);
    }

    /// Processes a transport error (section 16.9: "as if a 503 had been received").
    pub(in crate::core) fn not_sent(&mut self, t: &mut Turn<'_>, client: ClientId, id: BranchId) {
        self.branch_failed(t, client, id, 503);
    }

    /// Processes the end of the connection of an unanswered request. If there is no other target, the request is sent
    /// there once more over a new connection. A peer that has restarted reports the end of the old one only when it is
    /// used, and over SCTP not even at once.
    pub(in crate::core) fn cut_off(&mut self, t: &mut Turn<'_>, client: ClientId, id: BranchId) {
        if !self.exists(id) {
            return;
        }
        t.node.media.ended(client);
        let ctx = &self.contexts[id.context];
        let over = ctx.answered || ctx.cancelled;
        let branch = &mut self.contexts[id];
        let last = branch.is(client) && branch.target.attempts.is_empty() && !branch.again;
        let Some(hop) = branch.hop.clone().filter(|_| last && !over) else {
            return self.not_sent(t, client, id);
        };
        branch.again = true;
        branch.target.attempts.push(Attempt::Hop(hop));
        self.branch_done(id);
        self.contexts[id].state = State::Waiting;
        self.retry(t, id);
    }

    /// These nodes of the cluster are gone: what has been sent to them and is unanswered goes another way, or its user is not
    /// available. Nothing else is sent to them instead of what fails elsewhere.
    pub(in crate::core) fn nodes_gone(&mut self, t: &mut Turn<'_>, gone: &[SocketAddr]) {
        let mut branches = Vec::new();
        for context in self.contexts.iter_mut() {
            for (index, branch) in context.branches.iter_mut().enumerate() {
                branch.target.attempts.retain(|attempt| match attempt {
                    Attempt::Binding(other) => !leads_to(other, gone),
                    _ => true,
                });
                let is_there = branch.state == State::Sent
                    && branch.target.origin == Origin::Elsewhere
                    && branch.last_destination.is_some_and(|(_, addr)| gone.contains(&addr));
                if let Some(client) = branch.client.filter(|_| is_there) {
                    let id = BranchId { context: context.id, branch: index as u16 };
                    branches.push((client, id));
                }
            }
        }
        for (client, id) in branches {
            if t.tx.abandon(t.now, client) {
                self.branch_failed(t, client, id, 480);
            }
        }
    }

    /// Fails a branch as if it had received this status.
    pub(super) fn branch_failed(
        &mut self,
        t: &mut Turn<'_>,
        client: ClientId,
        id: BranchId,
        status: u16,
    ) {
        if !self.exists(id) || !self.contexts[id].is(client) {
            return;
        }
        t.node.media.ended(client);
        self.branch_done(id);
        let ctx = &self.contexts[id.context];
        let cancelled = ctx.cancelled;
        if ctx.answered {
            return;
        }
        if !self.contexts[id].target.attempts.is_empty() && !cancelled {
            return self.fail_over(t, id);
        }
        if !cancelled {
            self.note_failed_gateway(t, id);
        }
        let without_flow = self.contexts[id.context].findings.without_flow();
        let branch = &mut self.contexts[id];
        let status = match status {
            _ if cancelled => 487,
            // RFC 5626 section 5.3.1: the flow of a token has closed, or the only flow of a user of ours.
            503 if branch.on_flow && branch.target.is_located() => without_flow,
            503 if branch.on_flow => 430,
            other => other,
        };
        if let Some(Hop { transport, addr, .. }) = branch.hop.take() {
            t.events.push(Event::Failed(transport, addr));
        }
        self.contexts[id.context].offer(status, Vec::new);
        self.settle(t, id.context);
    }

    /// Records a failed next hop, so that it is tried last for a while, unless the branch has another address of it to
    /// try.
    fn note_failed_gateway(&self, t: &Turn<'_>, id: BranchId) {
        let branch = &self.contexts[id];
        let same =
            matches!(branch.target.attempts.last(), Some(Attempt::Hop(_) | Attempt::Datagram(_)));
        if let Some(through) = branch.through.as_ref().filter(|_| !same) {
            t.node.gateways.note_failed(t.now, through);
        }
        // What is tried next goes past the router that has failed.
        if let (Some(Attempt::Binding(next)), Some((_, addr))) =
            (branch.target.attempts.last(), branch.last_destination)
            && next.routes_replaced > branch.target.routes_replaced
        {
            t.node.gateways.note_failed(t.now, &addr.ip().to_string());
        }
    }

    /// Releases a client transaction that has ended.
    pub(in crate::core) fn client_gone(
        &mut self,
        t: &mut Turn<'_>,
        client: ClientId,
        id: BranchId,
    ) {
        if !self.exists(id) {
            return;
        }
        // If it ends without a response (its state machine does not allow that), the branch must not hang.
        if self.contexts[id].is(client) {
            t.node.media.ended(client);
            self.branch_done(id);
            self.contexts[id.context].offer(408, Vec::new);
            self.settle(t, id.context);
        }
        self.release(id.context);
    }

    /// Releases a server transaction that has ended.
    pub(in crate::core) fn server_gone(&mut self, id: ContextId) {
        let Some(ctx) = self.contexts.get_mut(id) else { return };
        if !(ctx.answered && ctx.kind == Kind::NonInvite) {
            self.release(id);
        }
    }

    fn release(&mut self, id: ContextId) {
        let Some(ctx) = self.contexts.get_mut(id) else { return };
        ctx.alive = ctx.alive.saturating_sub(1);
        self.remove_if_done(id);
    }

    /// Processes timer C: a branch has rung long enough (section 16.8).
    pub(super) fn timer_c(&mut self, t: &mut Turn<'_>, id: BranchId) {
        if !self.exists(id) {
            return;
        }
        let branch = &mut self.contexts[id];
        branch.timer_c = TimerId::NONE;
        let Some(client) = branch.client.filter(|_| branch.state == State::Sent) else { return };
        t.stats.timeouts += 1;
        if t.tx.is_proceeding(client) {
            return self.cancel_client(t, id.context, client, CancelReason::Timeout);
        }
        // There was no response at all: it counts as a 408.
        self.branch_failed(t, client, id, 408);
    }

    /// Sends a 100 to an INVITE of another node that has no response after 200 ms (RFC 3261 section 17.2.1), or to a request
    /// other than INVITE that has no final response when timer E of its sender has reached T2 (RFC 4320 section 4.1). It
    /// ends the retransmissions of the one, and slows those of the other down.
    pub(super) fn still_trying(&mut self, t: &mut Turn<'_>, id: ContextId) {
        let Some(ctx) = self.contexts.get_mut(id) else { return };
        ctx.trying = TimerId::NONE;
        let (Requester::Peer(server), flow) = (ctx.requester, ctx.flow) else { return };
        self.with_request(t, id, |_, t, msg| {
            let start = t.out.buffer().len();
            write::response(t.out.buffer(), msg, Some(&flow), 100, "", None, &[], &[]);
            t.tx.respond(t.now, server, 100, t.out, start);
        });
    }
}

/// Returns whether the Path of another server leads to one of these addresses.
fn leads_to(target: &RequestTarget, addresses: &[SocketAddr]) -> bool {
    let uri = NameAddr::parse(&target.path).ok().and_then(|path| Uri::parse(path.uri).ok());
    target.origin == Origin::Elsewhere
        && uri.is_some_and(|uri| {
            let port = uri.port.unwrap_or_else(|| default_port(&uri));
            parse_ip(next_host(&uri))
                .is_some_and(|ip| addresses.contains(&SocketAddr::new(ip, port)))
        })
}
