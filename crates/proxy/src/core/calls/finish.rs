//! The end of a request: the best response is sent (RFC 3261 section 16.7 items 6 to 9), and the stored messages are
//! released.

use super::context::{Branch, Requester, State};
use super::responses::with_challenges;
use super::{Calls, RETRY_AFTER_STOP};
use crate::core::events::Event;
use crate::core::ids::ContextId;
use crate::core::turn::Turn;
use ringway_sansio::TimerId;
use ringway_sip::message;
use ringway_sip::transaction::Kind;
use ringway_sip::write;

impl Calls {
    /// Starts the branches of the next q, or sends the best response, if no branch is in progress.
    pub(super) fn settle(&mut self, t: &mut Turn<'_>, id: ContextId) {
        let Some(ctx) = self.contexts.get(id) else { return };
        let under_way = |b: &Branch| matches!(b.state, State::Sent | State::Resolving);
        if ctx.answered || ctx.branches.iter().any(under_way) {
            return;
        }
        if ctx.is_pending() && !ctx.cancelled {
            return self.with_request(t, id, |calls, t, msg| calls.start_group(t, id, msg));
        }
        self.answer_best(t, id);
    }

    /// Sends the best response: section 16.7 items 6 to 9.
    pub(super) fn answer_best(&mut self, t: &mut Turn<'_>, id: ContextId) {
        let ctx = &mut self.contexts[id];
        let requester = ctx.requester;
        let Some(best) = ctx.best.take() else { return };
        let server = match requester {
            Requester::Peer(server) => server,
            Requester::World(number) => {
                t.events.push(Event::Delivered { id: number, status: best.status });
                self.close(t, id, best.status);
                return self.remove_if_done(id);
            }
        };
        if best.status == 408 && ctx.kind == Kind::NonInvite {
            // RFC 4320 section 4.2: a 408 to a request other than INVITE would come too late to be of use, and is not
            // sent.
            t.tx.drop_server(server);
            self.close(t, id, best.status);
            return self.remove_if_done(id);
        }
        // Section 16.7 item 6: a busy server behind this one does not make this one busy. Routers of a mesh are one server:
        // the one that has asked may know another gateway.
        let for_router = t.node.trust.router(&ctx.flow).is_some();
        let of_others = best.status == 503 && !for_router && !self.ending;
        let status = if of_others { 500 } else { best.status };
        let start = t.out.buffer().len();
        if best.is_ours() || status != best.status {
            if let Some(msg) = ctx.request.as_ref().and_then(|bytes| message::parse(bytes).ok()) {
                let (flow, tag, mut headers) = (Some(&ctx.flow), t.node.tag(&msg), Vec::new());
                if status == 503 && self.ending {
                    write::header_decimal(&mut headers, "Retry-After", RETRY_AFTER_STOP.into());
                }
                write::response(t.out.buffer(), &msg, flow, status, "", Some(&tag), &headers, &[]);
            }
        } else if matches!(status, 401 | 407) {
            with_challenges(t.out.buffer(), &best, &ctx.challenges);
        } else {
            t.out.buffer().extend_from_slice(&best.bytes);
        }
        t.tx.respond(t.now, server, status, t.out, start);
        self.report_failed(t, id, status);
        self.close(t, id, status);
        self.remove_if_done(id);
    }

    /// Closes a request after its final response of this status has been sent, or never will be. Records what the
    /// status means for the dialog, and releases what was stored to send another one.
    pub(super) fn close(&mut self, t: &mut Turn<'_>, id: ContextId, status: u16) {
        self.end_dialog(t, id, status);
        self.count_session(t, id, status);
        self.record_end(t, id, status);
        let ctx = &mut self.contexts[id];
        ctx.answered = true;
        if ctx.kind == Kind::NonInvite {
            // Once answered, the server transaction needs no context any more. That of an INVITE may still forward
            // another 2xx.
            ctx.alive = ctx.alive.saturating_sub(1);
        }
        ctx.end_search();
        for timer in [&mut ctx.trying, &mut ctx.group] {
            self.wheel.cancel(std::mem::replace(timer, TimerId::NONE));
        }
        ctx.call = None;
        ctx.ended = None;
        ctx.challenges = Vec::new();
        ctx.best = None;
        for branch in &mut ctx.branches {
            branch.target.uri = Vec::new();
            branch.target.path = Vec::new();
        }
        if let Some(request) = ctx.request.take() {
            t.release_budget(request.len(), &ctx.flow, ctx.user.as_deref());
        }
    }

    /// Records what a final response means for the dialog.
    fn end_dialog(&mut self, t: &mut Turn<'_>, id: ContextId, status: u16) {
        let ctx = &mut self.contexts[id];
        if let (Some(ended), Some(dialog)) = (ctx.ended.take(), ctx.findings.in_dialog) {
            // After a challenge the BYE is sent again.
            if !matches!(status, 401 | 407) {
                t.node.dialogs.note_end(t.now, dialog.key);
                super::report::report_ended(t, ended);
            }
        } else if ctx.findings.record_route && status >= 300 && !ctx.findings.is_part {
            // Of a part, the marks are those of the other parts, too.
            self.with_request(t, id, |_, t, msg| {
                if msg.to().is_ok_and(|to| to.tag().is_none()) {
                    t.node.dialogs.note_refusal(t.now, msg);
                }
            });
        }
    }

    /// Counts a session: RFC 6076 sections 4.3 and 4.6 to 4.8.
    fn count_session(&mut self, t: &mut Turn<'_>, id: ContextId, status: u16) {
        let ctx = &mut self.contexts[id];
        if !ctx.session {
            return;
        }
        if !ctx.rang && status < 300 {
            ctx.rang = true;
            t.stats.session_request_delay.add(t.now - ctx.came);
        }
        match status {
            200..=299 => t.stats.sessions_established += 1,
            300..=399 => t.stats.sessions_redirected += 1,
            480 | 486 | 600 | 603 => t.stats.sessions_refused += 1,
            408 | 500 | 503 | 504 => t.stats.sessions_ineffective += 1,
            _ => {}
        }
    }

    /// Drops a context that nothing refers to any more.
    pub(super) fn remove_if_done(&mut self, id: ContextId) {
        if self.contexts[id].alive > 0 {
            return;
        }
        let Some(context) = self.contexts.remove(id) else { return };
        for branch in &context.branches {
            self.wheel.cancel(branch.timer_c);
        }
    }
}
