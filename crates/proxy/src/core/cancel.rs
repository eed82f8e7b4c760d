//! CANCEL: RFC 3261 sections 9.2 and 16.10.

use super::context::CancelReason;
use super::{Core, Event, Pass};
use ringway_sansio::Outbox;
use ringway_sip::header::HeaderId;

/// Reason header fields of a CANCEL that are passed on; each names another protocol (RFC 3326
/// section 2).
const MAX_REASONS: usize = 4;

impl Core {
    pub(super) fn cancel_request(&mut self, pass: &Pass<'_>, out: &mut Outbox) {
        if let Err(fault) = pass.msg.check() {
            self.stats.malformed += 1;
            return self.refuse(pass, fault.status, fault.reason, &[], out);
        }
        let Some((_, user)) = self.tx.cancelled(pass.msg, pass.via) else {
            return self.unknown_cancel(pass, out);
        };
        // Section 9.2: 200 whatever becomes of the INVITE, with the To tag its answers have.
        self.refuse(pass, 200, "OK", &[], out);
        let Some((index, _)) = self.find(user) else { return };
        let ctx = &mut self.contexts[index];
        if ctx.answered || ctx.cancelled {
            return;
        }
        ctx.cancelled = true;
        // RFC 3326 section 2: a proxy that is cancelled passes the reason on.
        let reasons = pass.msg.headers().iter().filter(|slot| slot.id == HeaderId::Reason);
        for slot in reasons.take(MAX_REASONS) {
            ctx.reason.extend_from_slice(pass.msg.line(slot));
        }
        ctx.end_search();
        // What a branch has refused with before is no answer to a caller who gave up; a 6xx is.
        ctx.best.take_if(|best| best.status < 600);
        ctx.offer(487, Vec::new);
        self.cancel_branches(pass.now, index, CancelReason::Caller, out);
        self.settle(pass.now, index, out);
    }

    /// A CANCEL or an ACK for nothing known here. Another worker may hold the INVITE, if the peer sent
    /// the two from different ports: each is asked in turn. Says whether there is one left to ask.
    pub(super) fn pass_on(&mut self, pass: &Pass<'_>) -> bool {
        let next = (self.worker + 1) % self.workers.max(1);
        if self.workers < 2 || next == pass.flow.id.worker() {
            return false;
        }
        self.stats.handed_over += 1;
        let bytes = pass.msg.bytes().to_vec();
        self.events.push_back(Event::HandOver { worker: next, flow: *pass.flow, bytes });
        true
    }

    fn unknown_cancel(&mut self, pass: &Pass<'_>, out: &mut Outbox) {
        if self.pass_on(pass) {
            return;
        }
        if let Some(targets) = self.stateless_targets(pass) {
            return self.forward_cancel(pass, targets, out);
        }
        self.refuse(pass, 481, "Call/Transaction Does Not Exist", &[], out);
    }
}
