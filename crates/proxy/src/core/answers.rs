//! Response processing: RFC 3261 section 16.7, and what stands in for a response: timer C (16.8),
//! time-outs and transport errors (16.9).

use super::context::{Attempt, Branch, CancelReason, Origin, State};
use super::notify::NOTIFY;
use super::{CallStep, Core, Event};
use crate::forward;
use ringway_sansio::{Flow, Hop, Outbox, Target, Time, TimerId};
use ringway_sip::header::{HeaderId, Via};
use ringway_sip::message::{Message, Slot};
use ringway_sip::transaction::machine::ServerState;
use ringway_sip::transaction::{ClientEvent, ClientId, Kind};
use ringway_sip::write;
use slab::Slab;

impl Core {
    /// A response that its client transaction passed up.
    pub(super) fn answer(
        &mut self,
        now: Time,
        event: ClientEvent,
        flow: &Flow,
        msg: &Message<'_>,
        via: &Via<'_>,
        out: &mut Outbox,
    ) {
        if self.notification_answer(now, event, msg.status()) {
            return;
        }
        let Some((index, b)) = self.find(event.user) else { return };
        if msg.items(HeaderId::Via).nth(1).is_none() {
            // Section 16.7 item 3: with no other Via it cannot be forwarded. Whoever lost them will
            // not do better, so the branch has failed.
            if msg.status() >= 200 && self.contexts[index].branches[b].is(event.id) {
                self.contexts[index].branches[b].target.attempts.clear();
                self.branch_failed(now, event, 502, out);
            }
            return;
        }
        // An attempt that was abandoned may still speak. If it rings after all it is cancelled; if it
        // answers after all, that is as good as any 2xx.
        let given_up = !self.contexts[index].branches[b].is(event.id);
        match msg.status() {
            100..=199 if given_up => {
                self.cancel_client(now, index, event.id, CancelReason::Timeout, out);
            }
            status @ 100..=199 => self.provisional(now, index, b, status, flow, msg, via, out),
            status @ 200..=299 => {
                if !given_up {
                    self.branch_done(index, b);
                }
                self.success(now, index, b, status, flow, msg, via, out);
            }
            _ if given_up => {}
            status => self.failure(now, index, b, status, flow, msg, via, out),
        }
    }

    fn provisional(
        &mut self,
        now: Time,
        index: usize,
        b: usize,
        status: u16,
        flow: &Flow,
        msg: &Message<'_>,
        via: &Via<'_>,
        out: &mut Outbox,
    ) {
        let ctx = &mut self.contexts[index];
        let branch = &mut ctx.branches[b];
        if let (Some(why), Some(client)) = (branch.cancel.take(), branch.client) {
            // Section 9.1: now the CANCEL may go.
            self.cancel_client(now, index, client, why, out);
        }
        let ctx = &mut self.contexts[index];
        let branch = &mut ctx.branches[b];
        // Section 16.7 item 5: a 100 is for this hop only.
        if status == 100 {
            return;
        }
        if ctx.kind == Kind::Invite && branch.timer_c != TimerId::NONE {
            // Section 16.7 item 2: ringing is a sign of life.
            let serial = ctx.serial;
            self.wheel.cancel(branch.timer_c);
            let tick = super::Tick::TimerC { context: index, serial, branch: b };
            branch.timer_c = self.wheel.set(now + self.config.timer_c, tick);
        }
        if ctx.answered {
            return;
        }
        // RFC 4320 section 4.1: no provisional response but 100 to a request that is no INVITE.
        if ctx.kind == Kind::NonInvite {
            return;
        }
        if ctx.session && !ctx.rang {
            ctx.rang = true;
            self.stats.session_request_delay.add(now - ctx.came);
        }
        let (server, marked, to) = (ctx.server, ctx.kept.record_route, ctx.reply.remote.ip());
        let ruled = ctx.branches[b].target.origin == Origin::Rule;
        let strip = self.strips_identity(flow, to, msg);
        let start = out.buffer().len();
        forward::response(out.buffer(), msg, via, strip);
        if marked {
            self.mark_for_caller(now, msg, flow, ruled, &mut out.buffer()[start..]);
        }
        self.tx.respond(now, server, status, out, start);
    }

    fn success(
        &mut self,
        now: Time,
        index: usize,
        b: usize,
        status: u16,
        flow: &Flow,
        msg: &Message<'_>,
        via: &Via<'_>,
        out: &mut Outbox,
    ) {
        let ctx = &mut self.contexts[index];
        let (server, reply, first) = (ctx.server, ctx.reply, !ctx.answered);
        if !first && ctx.kind == Kind::NonInvite {
            return;
        }
        let kept = ctx.kept;
        let ruled = ctx.branches[b].target.origin == Origin::Rule;
        let strip = self.strips_identity(flow, reply.remote.ip(), msg);
        let start = out.buffer().len();
        forward::response(out.buffer(), msg, via, strip);
        if kept.record_route {
            self.mark_for_caller(now, msg, flow, ruled, &mut out.buffer()[start..]);
        }
        if kept.in_dialog.is_some() && super::dialog::refreshes_target(msg.method()) {
            self.refresh_target(now, flow, msg);
        }
        match self.tx.server_state(server) {
            Some(ServerState::Trying | ServerState::Proceeding | ServerState::Accepted) => {
                self.tx.respond(now, server, status, out, start);
            }
            // Section 16.7 item 5: a 2xx to an INVITE goes back even after another final response;
            // no transaction takes it any more.
            _ => out.finish(start, Target::Flow(reply), 0),
        }
        if first {
            self.report_final(now, index, CallStep::Answered { status }, Some((msg, b)));
            self.end_dialog(now, index, status);
            self.count_session(now, index, status);
            self.close(index);
            // Section 16.7 item 10.
            self.cancel_branches(now, index, CancelReason::CompletedElsewhere, out);
        }
    }

    fn failure(
        &mut self,
        now: Time,
        index: usize,
        b: usize,
        status: u16,
        flow: &Flow,
        msg: &Message<'_>,
        via: &Via<'_>,
        out: &mut Outbox,
    ) {
        self.branch_done(index, b);
        let strip = self.strips_identity(flow, self.contexts[index].reply.remote.ip(), msg);
        let ctx = &mut self.contexts[index];
        if ctx.answered {
            return;
        }
        let target = &mut ctx.branches[b].target;
        match status {
            // RFC 3263 section 4.3: another server may serve the same request.
            503 => target.attempts.retain(|way| matches!(way, Attempt::Hop(_) | Attempt::Via(_))),
            // RFC 5626 section 7: another flow may lead to the same instance.
            408 | 430 => target.attempts.retain(|way| matches!(way, Attempt::Binding(_))),
            // Any other answer is the answer.
            _ => target.attempts.clear(),
        }
        if !target.attempts.is_empty() {
            return self.fail_over(now, index, b, out);
        }
        let located = target.is_located();
        if matches!(status, 401 | 407) {
            for slot in msg.headers().iter().filter(|slot| is_challenge(slot)) {
                let line = msg.line(slot);
                if !ctx.challenges.iter().any(|known| **known == *line) {
                    ctx.challenges.push(line.into());
                }
            }
        }
        if status == 487 && ctx.cancelled {
            // The callee's own says more than ours.
            ctx.best.take_if(|best| best.status == 487 && best.bytes.is_empty());
        }
        if status == 430 && located {
            // RFC 5626 section 11.5: endpoints should never get one. The user is not there.
            ctx.offer(480, Vec::new);
        } else {
            ctx.offer(status, || {
                let mut bytes = Vec::new();
                forward::response(&mut bytes, msg, via, strip);
                bytes
            });
        }
        if status >= 600 {
            // Section 16.7 item 5: a 6xx ends the search; it goes back once all branches have ended.
            ctx.end_search();
            self.cancel_branches(now, index, CancelReason::Refused(status), out);
        }
        self.settle(now, index, out);
    }

    fn fail_over(&mut self, now: Time, index: usize, b: usize, out: &mut Outbox) {
        self.stats.failovers += 1;
        self.note_failed_gateway(now, index, b);
        let branch = &mut self.contexts[index].branches[b];
        branch.state = State::Waiting;
        branch.on_flow = false;
        let hop = branch.hop.take();
        // That TCP is refused where UDP is still to be tried says nothing of the server.
        if !matches!(branch.target.attempts.last(), Some(Attempt::Datagram(_)))
            && let Some(Hop { transport, addr, .. }) = hop
        {
            self.events.push_back(Event::Failed(transport, addr));
        }
        self.retry(now, index, b, out);
    }

    /// Timer B or F (section 16.7: "as if a 408 had been received").
    pub(super) fn branch_timeout(&mut self, now: Time, event: ClientEvent, out: &mut Outbox) {
        self.stats.timeouts += 1;
        if self.notification_answer(now, event, 408) {
            return;
        }
        self.branch_failed(now, event, 408, out);
    }

    /// The transport could not send it (section 16.9: "as if a 503 had been received").
    pub(super) fn branch_unsent(&mut self, now: Time, event: ClientEvent, out: &mut Outbox) {
        if self.notification_answer(now, event, 503) {
            return;
        }
        self.branch_failed(now, event, 503, out);
    }

    /// The connection has ended by which a request left that nothing has answered. With nowhere else to go
    /// it goes there once more, over a new connection: of a peer that was started anew the old one tells
    /// only when it is used, and over SCTP not even at once.
    pub(super) fn branch_cut_off(&mut self, now: Time, event: ClientEvent, out: &mut Outbox) {
        let found = if event.user & NOTIFY == 0 { self.find(event.user) } else { None };
        let Some((index, b)) = found else { return self.branch_unsent(now, event, out) };
        let ctx = &mut self.contexts[index];
        let over = ctx.answered || ctx.cancelled;
        let branch = &mut ctx.branches[b];
        let last = branch.is(event.id) && branch.target.attempts.is_empty() && !branch.again;
        let Some(hop) = branch.hop.clone().filter(|_| last && !over) else {
            return self.branch_unsent(now, event, out);
        };
        branch.again = true;
        branch.target.attempts.push(Attempt::Hop(hop));
        self.branch_done(index, b);
        self.contexts[index].branches[b].state = State::Waiting;
        self.retry(now, index, b, out);
    }

    fn branch_failed(&mut self, now: Time, event: ClientEvent, status: u16, out: &mut Outbox) {
        let Some((index, b)) = self.find(event.user) else { return };
        if !self.contexts[index].branches[b].is(event.id) {
            return;
        }
        self.branch_done(index, b);
        let ctx = &mut self.contexts[index];
        if ctx.answered {
            return;
        }
        if !ctx.branches[b].target.attempts.is_empty() && !ctx.cancelled {
            return self.fail_over(now, index, b, out);
        }
        let status = match status {
            _ if ctx.cancelled => 487,
            // RFC 5626 section 5.3.1: a flow that a token named is gone; and section 11.5: of a user
            // of ours it was the only way.
            503 if ctx.branches[b].on_flow => {
                if ctx.branches[b].target.is_located() {
                    480
                } else {
                    430
                }
            }
            other => other,
        };
        let hop = ctx.branches[b].hop.take();
        if !ctx.cancelled {
            self.note_failed_gateway(now, index, b);
        }
        if let Some(Hop { transport, addr, .. }) = hop {
            self.events.push_back(Event::Failed(transport, addr));
        }
        self.contexts[index].offer(status, Vec::new);
        self.settle(now, index, out);
    }

    /// A client transaction has ended for good.
    pub(super) fn branch_gone(&mut self, now: Time, event: ClientEvent, out: &mut Outbox) {
        let Some((index, b)) = self.find(event.user) else { return };
        // Should it end without anything having been heard (it cannot, by its machine), the branch
        // must not hang.
        let ctx = &mut self.contexts[index];
        if ctx.branches[b].client == Some(event.id) && ctx.branches[b].state == State::Sent {
            self.branch_done(index, b);
            self.contexts[index].offer(408, Vec::new);
            self.settle(now, index, out);
        }
        self.release(index);
    }

    /// A server transaction has ended for good.
    pub(super) fn server_gone(&mut self, user: u64) {
        let (index, serial, _) = super::context::from_user(user);
        let Some(ctx) = self.contexts.get(index).filter(|c| c.serial & 0xffff == serial) else {
            return;
        };
        if !(ctx.answered && ctx.kind == Kind::NonInvite) {
            self.release(index);
        }
    }

    fn release(&mut self, index: usize) {
        let ctx = &mut self.contexts[index];
        ctx.alive = ctx.alive.saturating_sub(1);
        self.forget_if_over(index);
    }

    /// Forgets a context that nothing refers to any more.
    pub(super) fn forget_if_over(&mut self, index: usize) {
        let ctx = &self.contexts[index];
        if ctx.alive > 0 {
            return;
        }
        let ctx = self.contexts.remove(index);
        for branch in &ctx.branches {
            self.wheel.cancel(branch.timer_c);
        }
        if self.contexts.is_empty() && self.contexts.capacity() > 1024 {
            self.contexts = Slab::new();
        }
    }

    fn branch_done(&mut self, index: usize, b: usize) {
        let Branch { state, timer_c, .. } = &mut self.contexts[index].branches[b];
        *state = State::Done;
        self.wheel.cancel(std::mem::replace(timer_c, TimerId::NONE));
    }

    /// Timer C fired: a branch has rung long enough (section 16.8).
    pub(super) fn timer_c(
        &mut self,
        now: Time,
        index: usize,
        serial: u32,
        b: usize,
        out: &mut Outbox,
    ) {
        let Some(ctx) = self.contexts.get_mut(index).filter(|c| c.serial == serial) else { return };
        let branch = &mut ctx.branches[b];
        branch.timer_c = TimerId::NONE;
        if branch.state != State::Sent {
            return;
        }
        let Some(client) = branch.client else { return };
        self.stats.timeouts += 1;
        if self.tx.is_proceeding(client) {
            return self.cancel_client(now, index, client, CancelReason::Timeout, out);
        }
        // Nothing has been heard at all: as if it were a 408.
        let event = ClientEvent { id: client, user: super::context::user(index, serial, b) };
        self.branch_failed(now, event, 408, out);
    }

    /// A request that is no INVITE still has no final answer when timer E of its sender has grown to
    /// T2 (RFC 4320 section 4.1): a 100 slows the retransmissions down.
    pub(super) fn still_trying(&mut self, now: Time, index: usize, serial: u32, out: &mut Outbox) {
        let Some(ctx) = self.contexts.get_mut(index).filter(|c| c.serial == serial) else { return };
        ctx.trying = TimerId::NONE;
        let (server, flow) = (ctx.server, ctx.flow);
        self.with_request(index, |core, msg| {
            let start = out.buffer().len();
            write::response(out.buffer(), msg, Some(&flow), 100, "", None, &[], &[]);
            core.tx.respond(now, server, 100, out, start);
        });
    }

    /// Section 16.7 item 10: whatever still runs is cancelled, at once or as soon as it may be.
    pub(super) fn cancel_branches(
        &mut self,
        now: Time,
        index: usize,
        why: CancelReason,
        out: &mut Outbox,
    ) {
        if self.contexts[index].kind != Kind::Invite {
            return;
        }
        for b in 0..self.contexts[index].branches.len() {
            let branch = &mut self.contexts[index].branches[b];
            match (branch.state, branch.client) {
                (State::Sent, Some(client)) if self.tx.is_proceeding(client) => {
                    self.cancel_client(now, index, client, why, out);
                }
                (State::Sent, _) => branch.cancel = Some(why),
                _ => {}
            }
        }
    }

    /// Sends a CANCEL that says why (RFC 3326), so that a phone shows a missed call only where one was
    /// missed.
    fn cancel_client(
        &mut self,
        now: Time,
        index: usize,
        client: ClientId,
        why: CancelReason,
        out: &mut Outbox,
    ) {
        let refused;
        let reason: &[u8] = match why {
            CancelReason::Caller => &self.contexts[index].reason,
            CancelReason::CompletedElsewhere => {
                b"Reason: SIP;cause=200;text=\"Call completed elsewhere\"\r\n"
            }
            CancelReason::Refused(status) => {
                refused = format!("Reason: SIP;cause={status}\r\n");
                refused.as_bytes()
            }
            CancelReason::Timeout => b"Reason: SIP;cause=408\r\n",
        };
        self.tx.cancel(now, client, reason, out);
    }

    /// If no branch is under way: starts the next q, or answers with the best there is.
    pub(super) fn settle(&mut self, now: Time, index: usize, out: &mut Outbox) {
        let Some(ctx) = self.contexts.get(index) else { return };
        let under_way = |b: &Branch| matches!(b.state, State::Sent | State::Resolving);
        if ctx.answered || ctx.branches.iter().any(under_way) {
            return;
        }
        if ctx.is_pending() && !ctx.cancelled {
            return self.with_request(index, |core, msg| core.start_group(now, index, msg, out));
        }
        self.answer_best(now, index, out);
    }

    /// Section 16.7 items 6 to 9.
    fn answer_best(&mut self, now: Time, index: usize, out: &mut Outbox) {
        let ctx = &mut self.contexts[index];
        let (server, kind) = (ctx.server, ctx.kind);
        let Some(best) = ctx.best.take() else { return };
        let mut status = best.status;
        if status == 408 && kind == Kind::NonInvite {
            // RFC 4320 section 4.2: a 408 to a request that is no INVITE would come too late to
            // be of use, and is not sent.
            self.tx.drop_server(server);
            self.end_dialog(now, index, status);
            self.close(index);
            return self.forget_if_over(index);
        }
        if status == 503 {
            // Section 16.7 item 6: that a server behind us is busy does not mean that we are.
            status = 500;
        }
        let start = out.buffer().len();
        if best.bytes.is_empty() || status != best.status {
            let bytes = ctx.request.clone().unwrap_or_default();
            if let Ok(msg) = ringway_sip::message::parse(&bytes) {
                let (flow, tag, buf) = (ctx.flow, self.own.tag(msg.call_id()), out.buffer());
                write::response(buf, &msg, Some(&flow), status, "", Some(&tag), &[], &[]);
            }
        } else if matches!(status, 401 | 407) {
            with_challenges(out.buffer(), &best.bytes, &ctx.challenges);
        } else {
            out.buffer().extend_from_slice(&best.bytes);
        }
        self.tx.respond(now, server, status, out, start);
        self.end_dialog(now, index, status);
        self.report_final(now, index, CallStep::Failed { status }, None);
        self.count_session(now, index, status);
        self.close(index);
        self.forget_if_over(index);
    }

    /// A final response goes back: what it says of the dialog.
    fn end_dialog(&mut self, now: Time, index: usize, status: u16) {
        let ctx = &mut self.contexts[index];
        if let (Some(ended), Some(dialog)) = (ctx.ended.take(), ctx.kept.in_dialog) {
            // After a challenge the BYE comes again.
            if !matches!(status, 401 | 407) {
                self.revoke_ended(now, dialog.key);
                self.report_end(now, ended);
            }
        } else if ctx.kept.record_route && status >= 300 {
            self.with_request(index, |core, msg| {
                if msg.to().is_ok_and(|to| to.tag().is_none()) {
                    core.revoke_refused(now, msg);
                }
            });
        }
    }

    /// A final response has been sent back: what was kept to send another one is released.
    fn close(&mut self, index: usize) {
        let ctx = &mut self.contexts[index];
        ctx.answered = true;
        if ctx.kind == Kind::NonInvite {
            // Once answered, the server transaction needs no context any more; that of an INVITE
            // may still have another 2xx to carry.
            ctx.alive = ctx.alive.saturating_sub(1);
        }
        ctx.end_search();
        self.wheel.cancel(std::mem::replace(&mut ctx.trying, TimerId::NONE));
        let request = ctx.request.take();
        ctx.call = None;
        ctx.ended = None;
        ctx.challenges = Vec::new();
        ctx.best = None;
        for branch in &mut ctx.branches {
            branch.target.uri = Vec::new();
            branch.target.path = Vec::new();
        }
        if let Some(request) = request {
            let (flow, user) = (ctx.flow, ctx.user.clone());
            self.release_kept(request.len(), &flow, user.as_deref());
        }
    }

    /// RFC 6076 sections 4.3 and 4.6 to 4.8.
    fn count_session(&mut self, now: Time, index: usize, status: u16) {
        let ctx = &mut self.contexts[index];
        if !ctx.session {
            return;
        }
        if !ctx.rang && status < 300 {
            ctx.rang = true;
            self.stats.session_request_delay.add(now - ctx.came);
        }
        match status {
            200..=299 => self.stats.sessions_established += 1,
            300..=399 => self.stats.sessions_redirected += 1,
            480 | 486 | 600 | 603 => self.stats.sessions_refused += 1,
            408 | 500 | 503 | 504 => self.stats.sessions_ineffective += 1,
            _ => {}
        }
    }
}

/// A 401 or 407 with the challenges of all others added (section 16.7 item 7). `challenges` are
/// whole header fields, those of `best` among them.
fn with_challenges(buf: &mut Vec<u8>, best: &[u8], challenges: &[Box<[u8]>]) {
    let Ok(msg) = ringway_sip::message::parse(best) else {
        return buf.extend_from_slice(best);
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
