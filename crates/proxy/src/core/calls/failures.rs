//! What stands in for a response: time-outs, timer C (RFC 3261 section 16.8) and transport errors (16.9).

use super::Calls;
use super::context::{CancelReason, State};
use crate::core::events::Event;
use crate::core::ids::{BranchId, ContextId};
use crate::core::target::Attempt;
use crate::core::turn::Turn;
use ringway_sansio::{Hop, TimerId};
use ringway_sip::transaction::{ClientId, Kind};
use ringway_sip::write;

impl Calls {
    /// A branch tries its next way.
    pub(super) fn fail_over(&mut self, t: &mut Turn<'_>, id: BranchId) {
        t.stats.failovers += 1;
        self.note_failed_gateway(t, id);
        let branch = &mut self.contexts[id];
        branch.state = State::Waiting;
        branch.on_flow = false;
        let hop = branch.hop.take();
        // That TCP is refused where UDP is still to be tried says nothing of the server.
        if !matches!(branch.target.attempts.last(), Some(Attempt::Datagram(_)))
            && let Some(Hop { transport, addr, .. }) = hop
        {
            t.events.push(Event::Failed(transport, addr));
        }
        self.retry(t, id);
    }

    /// Timer B or F (section 16.7: "as if a 408 had been received").
    pub(in crate::core) fn timed_out(&mut self, t: &mut Turn<'_>, client: ClientId, id: BranchId) {
        self.branch_failed(t, client, id, 408);
    }

    /// The transport could not send it (section 16.9: "as if a 503 had been received").
    pub(in crate::core) fn not_sent(&mut self, t: &mut Turn<'_>, client: ClientId, id: BranchId) {
        self.branch_failed(t, client, id, 503);
    }

    /// The connection has ended by which a request left that nothing has answered. With nowhere else to go
    /// it goes there once more, over a new connection: of a peer that was started anew the old one tells
    /// only when it is used, and over SCTP not even at once.
    pub(in crate::core) fn cut_off(&mut self, t: &mut Turn<'_>, client: ClientId, id: BranchId) {
        if !self.exists(id) {
            return;
        }
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

    /// A branch has failed as if it had been answered with this status.
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
        let branch = &mut self.contexts[id];
        let status = match status {
            _ if cancelled => 487,
            // RFC 5626 section 5.3.1: a flow that a token named is gone; and section 11.5: of a user
            // of ours it was the only way.
            503 if branch.on_flow && branch.target.is_located() => 480,
            503 if branch.on_flow => 430,
            other => other,
        };
        if let Some(Hop { transport, addr, .. }) = branch.hop.take() {
            t.events.push(Event::Failed(transport, addr));
        }
        self.contexts[id.context].offer(status, Vec::new);
        self.settle(t, id.context);
    }

    /// A branch has failed: unless it has another address of the same next hop to try, that is tried last
    /// for a while.
    fn note_failed_gateway(&self, t: &Turn<'_>, id: BranchId) {
        let branch = &self.contexts[id];
        let same =
            matches!(branch.target.attempts.last(), Some(Attempt::Hop(_) | Attempt::Datagram(_)));
        if let Some(through) = branch.through.as_ref().filter(|_| !same) {
            t.node.gateways.note_failed(t.now, through);
        }
    }

    /// A client transaction has ended for good.
    pub(in crate::core) fn client_gone(
        &mut self,
        t: &mut Turn<'_>,
        client: ClientId,
        id: BranchId,
    ) {
        if !self.exists(id) {
            return;
        }
        // Should it end without anything having been heard (it cannot, by its machine), the branch
        // must not hang.
        if self.contexts[id].is(client) {
            self.branch_done(id);
            self.contexts[id.context].offer(408, Vec::new);
            self.settle(t, id.context);
        }
        self.release(id.context);
    }

    /// A server transaction has ended for good.
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

    /// Timer C fired: a branch has rung long enough (section 16.8).
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
        // Nothing has been heard at all: as if it were a 408.
        self.branch_failed(t, client, id, 408);
    }

    /// A request that is no INVITE still has no final answer when timer E of its sender has grown to
    /// T2 (RFC 4320 section 4.1): a 100 slows the retransmissions down.
    pub(super) fn still_trying(&mut self, t: &mut Turn<'_>, id: ContextId) {
        let Some(ctx) = self.contexts.get_mut(id) else { return };
        ctx.trying = TimerId::NONE;
        let (server, flow) = (ctx.server, ctx.flow);
        self.with_request(t, id, |_, t, msg| {
            let start = t.out.buffer().len();
            write::response(t.out.buffer(), msg, Some(&flow), 100, "", None, &[], &[]);
            t.tx.respond(t.now, server, 100, t.out, start);
        });
    }
}
