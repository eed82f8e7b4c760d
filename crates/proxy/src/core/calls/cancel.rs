//! CANCEL of forwarded requests: RFC 3261 sections 9.2 and 16.10.

use super::Calls;
use super::context::{CancelReason, State};
use crate::core::ids::ContextId;
use crate::core::request::IncomingRequest;
use crate::core::turn::Turn;
use ringway_sip::header::HeaderId;
use ringway_sip::transaction::{ClientId, Kind};

/// The number of Reason header fields of a CANCEL that are forwarded; each names another protocol (RFC 3326 section 2).
const MAX_REASONS: usize = 4;

impl Calls {
    /// Cancels a request that has no final response yet.
    pub(in crate::core) fn cancel(
        &mut self,
        t: &mut Turn<'_>,
        id: ContextId,
        incoming: &IncomingRequest<'_>,
    ) {
        let Some(ctx) = self.contexts.get_mut(id).filter(|c| !c.answered && !c.cancelled) else {
            return;
        };
        ctx.cancelled = true;
        // RFC 3326 section 2: a cancelled proxy forwards the reason.
        let reasons = incoming.msg.headers().iter().filter(|slot| slot.id == HeaderId::Reason);
        for slot in reasons.take(MAX_REASONS) {
            ctx.reason.extend_from_slice(incoming.msg.line(slot));
        }
        ctx.end_search();
        // An earlier refusal by a branch is no response for a caller who has cancelled; a 6xx is.
        ctx.best.take_if(|best| best.status < 600);
        ctx.offer(487, Vec::new);
        self.cancel_branches(t, id, CancelReason::Caller);
        self.settle(t, id);
    }

    /// The server ends: cancels what rings, and answers all requests that are not answered yet with 503 and Retry-After. What
    /// is sent now may not be sent again.
    pub(in crate::core) fn end(&mut self, t: &mut Turn<'_>) {
        self.ending = true;
        let unanswered = self.contexts.iter().filter(|context| !context.answered);
        for id in unanswered.map(|context| context.id).collect::<Vec<_>>() {
            let ctx = &mut self.contexts[id];
            ctx.cancelled = true;
            ctx.end_search();
            // What one of several phones has answered says nothing of the others. A 6xx does.
            ctx.best.take_if(|best| best.status < 600);
            ctx.offer(503, Vec::new);
            self.cancel_branches(t, id, CancelReason::Refused(503));
            self.answer_best(t, id);
        }
    }

    /// Cancels all branches in progress, at once or as soon as it is allowed (section 16.7 item 10).
    pub(super) fn cancel_branches(&mut self, t: &mut Turn<'_>, id: ContextId, why: CancelReason) {
        if self.contexts[id].kind != Kind::Invite {
            return;
        }
        for b in 0..self.contexts[id].branches.len() {
            let branch = &mut self.contexts[id].branches[b];
            match (branch.state, branch.client) {
                (State::Sent, Some(client)) if t.tx.is_proceeding(client) => {
                    self.cancel_client(t, id, client, why);
                }
                (State::Sent, _) => branch.cancel = Some(why),
                _ => {}
            }
        }
    }

    /// Sends a CANCEL with its reason (RFC 3326), so that a phone shows a missed call only if one was missed.
    pub(super) fn cancel_client(
        &self,
        t: &mut Turn<'_>,
        id: ContextId,
        client: ClientId,
        why: CancelReason,
    ) {
        let refused;
        let reason: &[u8] = match why {
            CancelReason::Caller => &self.contexts[id].reason,
            CancelReason::CompletedElsewhere => {
                b"Reason: SIP;cause=200;text=\"Call completed elsewhere\"\r\n"
            }
            CancelReason::Refused(status) => {
                refused = format!("Reason: SIP;cause={status}\r\n");
                refused.as_bytes()
            }
            CancelReason::Timeout => b"Reason: SIP;cause=408\r\n",
        };
        t.tx.cancel(t.now, client, reason, t.out);
    }
}
