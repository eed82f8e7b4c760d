//! Response processing: RFC 3261 section 16.7.

use super::context::{BestResponse, CancelReason, Requester, State};
use super::{Calls, Tick};
use crate::core::dialogs::refreshes_target;
use crate::core::events::Event;
use crate::core::ids::BranchId;
use crate::core::target::{Attempt, Origin};
use crate::core::turn::Turn;
use crate::forward;
use ringway_sansio::{Flow, Target, TimerId};
use ringway_sip::header::{HeaderId, Via};
use ringway_sip::message::{Message, Slot};
use ringway_sip::transaction::machine::ServerState;
use ringway_sip::transaction::{ClientId, Kind};

/// A response that was received for a branch.
#[derive(Clone, Copy)]
pub(in crate::core) struct Answer<'a> {
    /// The flow it came on.
    pub flow: &'a Flow,
    pub msg: &'a Message<'a>,
    /// Its topmost Via, which is ours.
    pub via: &'a Via<'a>,
}

impl Calls {
    /// Processes a response that its client transaction has passed up.
    pub(in crate::core) fn answer(
        &mut self,
        t: &mut Turn<'_>,
        client: ClientId,
        id: BranchId,
        answer: &Answer<'_>,
    ) {
        if !self.exists(id) {
            return;
        }
        let msg = answer.msg;
        if msg.items(HeaderId::Via).nth(1).is_none() {
            // Section 16.7 item 3: without another Via it cannot be forwarded. A server that removes them will do so
            // again, so the branch has failed.
            if msg.status() >= 200 && self.contexts[id].is(client) {
                self.contexts[id].target.attempts.clear();
                self.branch_failed(t, client, id, 502);
            }
            return;
        }
        // An abandoned attempt may still be answered. A provisional response is cancelled; a 2xx is as good as any
        // other.
        let given_up = !self.contexts[id].is(client);
        match msg.status() {
            100..=199 if given_up => {
                self.cancel_client(t, id.context, client, CancelReason::Timeout);
            }
            100..=199 => self.provisional(t, client, id, answer),
            200..=299 => {
                if !given_up {
                    self.branch_done(id);
                }
                self.success(t, client, id, answer);
            }
            _ if given_up => {}
            _ => self.failure(t, client, id, answer),
        }
    }

    fn provisional(
        &mut self,
        t: &mut Turn<'_>,
        client: ClientId,
        id: BranchId,
        answer: &Answer<'_>,
    ) {
        let branch = &mut self.contexts[id];
        if let (Some(why), Some(client)) = (branch.cancel.take(), branch.client) {
            // Section 9.1: now the CANCEL may be sent.
            self.cancel_client(t, id.context, client, why);
        }
        let status = answer.msg.status();
        // Section 16.7 item 5: a 100 is for this hop only.
        if status == 100 {
            return;
        }
        let branch = &mut self.contexts[id];
        if branch.timer_c != TimerId::NONE {
            // Section 16.7 item 2: a provisional response restarts timer C.
            self.wheel.cancel(branch.timer_c);
            branch.timer_c = self.wheel.set(t.now + t.node.config.timer_c, Tick::TimerC(id));
        }
        let ctx = &mut self.contexts[id.context];
        // RFC 4320 section 4.1: no provisional response but 100 to a request that is no INVITE.
        if ctx.answered || ctx.kind == Kind::NonInvite {
            return;
        }
        if ctx.session && !ctx.rang {
            ctx.rang = true;
            t.stats.session_request_delay.add(t.now - ctx.came);
        }
        self.wheel.cancel(std::mem::replace(&mut ctx.trying, TimerId::NONE));
        let Requester::Peer(server) = ctx.requester else { return };
        self.record_ringing(t, id);
        let start = self.write_response(t, client, id, answer);
        t.tx.respond(t.now, server, status, t.out, start);
    }

    /// Writes a response to be forwarded into the outbox, with the caller's mark if this proxy record-routes. Returns
    /// its start.
    fn write_response(
        &self,
        t: &mut Turn<'_>,
        client: ClientId,
        id: BranchId,
        answer: &Answer<'_>,
    ) -> usize {
        let Answer { flow, msg, via } = *answer;
        let ctx = &self.contexts[id.context];
        let node = t.node;
        let strip = node.trust.strips_identity(flow, ctx.reply.remote.ip(), msg);
        let start = t.out.buffer().len();
        let body = node.relay_response(t.now, msg, flow, &ctx.reply, Some(client));
        forward::response(t.out.buffer(), msg, via, strip, body.as_deref());
        if ctx.findings.record_route {
            let ruled = self.contexts[id].target.origin == Origin::Rule;
            let buf = &mut t.out.buffer()[start..];
            node.dialogs.mark_for_caller(t.now, node, msg, flow, ruled, buf);
        }
        start
    }

    fn success(&mut self, t: &mut Turn<'_>, client: ClientId, id: BranchId, answer: &Answer<'_>) {
        let ctx = &self.contexts[id.context];
        let (requester, reply, first) = (ctx.requester, ctx.reply, !ctx.answered);
        if !first && ctx.kind == Kind::NonInvite {
            return;
        }
        let (msg, status) = (answer.msg, answer.msg.status());
        if ctx.findings.in_dialog.is_some() && refreshes_target(msg.method()) {
            t.node.dialogs.refresh_target(t.now, answer.flow, msg);
        }
        if let Some(path) = ctx.findings.ack.filter(|_| first) {
            t.node.dialogs.await_ack(t.now, ctx.flow.remote.ip(), msg, path);
        }
        let server = match requester {
            Requester::Peer(server) => server,
            Requester::World(number) => {
                t.events.push(Event::Delivered { id: number, status });
                return self.close(t, id.context, status);
            }
        };
        let start = self.write_response(t, client, id, answer);
        match t.tx.server_state(server) {
            Some(ServerState::Trying | ServerState::Proceeding | ServerState::Accepted) => {
                t.tx.respond(t.now, server, status, t.out, start);
            }
            // Section 16.7 item 5: a 2xx to an INVITE is forwarded even after another final response, when no
            // transaction accepts it any more.
            _ => t.out.finish(start, Target::Flow(reply), 0),
        }
        if first {
            if self.contexts[id.context].kind == Kind::Invite {
                self.accepted(t, msg);
            }
            self.report_answered(t, id, msg);
            self.record_answer(t, id, msg);
            self.close(t, id.context, status);
            // Section 16.7 item 10.
            self.cancel_branches(t, id.context, CancelReason::CompletedElsewhere);
        }
    }

    fn failure(&mut self, t: &mut Turn<'_>, client: ClientId, id: BranchId, answer: &Answer<'_>) {
        self.branch_done(id);
        // It ends the relayed branch, whether it is forwarded or not.
        let reply = &self.contexts[id.context].reply;
        let _ = t.node.relay_response(t.now, answer.msg, answer.flow, reply, Some(client));
        if self.contexts[id.context].answered {
            return;
        }
        let (msg, status) = (answer.msg, answer.msg.status());
        let target = &mut self.contexts[id].target;
        let by_server = target.origin == Origin::Elsewhere;
        let is_binding = |attempt: &mut Attempt| matches!(attempt, Attempt::Binding(other) if other.routes_replaced == 0);
        match status {
            // RFC 3263 section 4.3: another server may serve the same request.
            503 => target.attempts.retain(|attempt| match attempt {
                Attempt::Hop(_) | Attempt::Via(_) => true,
                Attempt::Binding(other) => by_server && other.routes_replaced == 0,
                _ => false,
            }),
            // RFC 5626 section 7: another flow may lead to the same instance.
            408 | 430 => target.attempts.retain(is_binding),
            // A server that has started again does not know yet who is one of its own.
            401 | 407 if by_server => target.attempts.retain(is_binding),
            // Any other response is final.
            _ => target.attempts.clear(),
        }
        if !target.attempts.is_empty() {
            return self.fail_over(t, id);
        }
        let located = target.is_located();
        self.record_failure(t, id);
        let ctx = &mut self.contexts[id.context];
        if matches!(status, 401 | 407) {
            for slot in msg.headers().iter().filter(|slot| is_challenge(slot)) {
                let line = msg.line(slot);
                if !ctx.challenges.iter().any(|known| **known == *line) {
                    ctx.challenges.push(line.into());
                }
            }
        }
        if status == 487 && ctx.cancelled {
            // A 487 of the callee has more information than ours.
            ctx.best.take_if(|best| best.status == 487 && best.is_ours());
        }
        if status == 503 && ctx.findings.from_server && located && !by_server {
            // The phone's own: it must not be called by another server (section 7).
            ctx.offer(500, Vec::new);
        } else if status == 430 && located {
            ctx.offer(ctx.findings.without_flow(), Vec::new);
        } else {
            let strip = t.node.trust.strips_identity(answer.flow, ctx.reply.remote.ip(), msg);
            ctx.offer(status, || {
                let mut bytes = Vec::new();
                forward::response(&mut bytes, msg, answer.via, strip, None);
                bytes
            });
        }
        if status >= 600 {
            // Section 16.7 item 5: a 6xx ends the search. It is forwarded once all branches have ended.
            ctx.end_search();
            self.cancel_branches(t, id.context, CancelReason::Refused(status));
        }
        self.settle(t, id.context);
    }

    /// Ends a branch that has received its final response, or never will.
    pub(super) fn branch_done(&mut self, id: BranchId) {
        let branch = &mut self.contexts[id];
        branch.state = State::Done;
        self.wheel.cancel(std::mem::replace(&mut branch.timer_c, TimerId::NONE));
    }
}

/// Appends a 401 or 407 with the challenges of all others (section 16.7 item 7). `challenges` are whole header fields,
/// those of `best` included.
pub(super) fn with_challenges(buf: &mut Vec<u8>, best: &BestResponse, challenges: &[Box<[u8]>]) {
    let Ok(msg) = ringway_sip::message::parse(&best.bytes) else {
        return buf.extend_from_slice(&best.bytes);
    };
    buf.extend_from_slice(msg.start_line());
    for slot in msg.headers().iter().filter(|slot| !is_challenge(slot)) {
        buf.extend_from_slice(msg.line(slot));
    }
    for line in challenges {
        buf.extend_from_slice(line);
    }
    buf.extend_from_slice(b"\r\n");
    buf.extend_from_slice(msg.body());
}

fn is_challenge(slot: &Slot) -> bool {
    matches!(slot.id, HeaderId::WwwAuthenticate | HeaderId::ProxyAuthenticate)
}
