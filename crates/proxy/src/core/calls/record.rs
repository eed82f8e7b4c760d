//! Records of calls among the states of users ([`States`](crate::states::States)): who of our users is in a call, from the
//! INVITE to the BYE.
//!
//! A user is recorded where its phone hangs on: the caller who has proved it here, and the callee whose contact is here. So
//! a call across several servers is recorded once for each party. Only calls that this proxy record-routes are recorded:
//! of others it does not see the end.

use super::Calls;
use super::context::{Context, Record, State};
use crate::core::ids::{BranchId, ContextId};
use crate::core::turn::Turn;
use crate::states::Direction;
use ringway_sip::message::{Message, Method};
use ringway_sip::transaction::Kind;

/// Returns the record of a request that this proxy forwards; `None` if it is of no recorded call.
pub(super) fn record_of(t: &Turn<'_>, context: &Context, msg: &Message<'_>) -> Option<Record> {
    let initial = msg.to().is_ok_and(|to| to.tag().is_none());
    match msg.method() {
        Method::Invite if !context.findings.record_route => None,
        Method::Invite if initial => Some(Record::Begins(t.node.dialogs.call_key(msg))),
        Method::Invite => Some(Record::Within(t.node.dialogs.dialog_key(msg))),
        Method::Bye => Some(Record::Ends(t.node.dialogs.dialog_key(msg))),
        _ => None,
    }
}

impl Calls {
    /// Records that the caller has begun a call.
    pub(super) fn record_caller(&self, t: &Turn<'_>, id: ContextId) {
        let ctx = &self.contexts[id];
        if let (Some(Record::Begins(key)), Some(caller)) = (ctx.record, &ctx.findings.sender) {
            t.node.shared.states.begin_call(t.now, key, caller.clone(), Direction::Initiator);
        }
    }

    /// Records that a branch has been sent to a phone of its user.
    pub(super) fn record_callee(&self, t: &Turn<'_>, id: BranchId) {
        let owner = self.contexts[id].target.owner.clone();
        if let (Some(Record::Begins(key)), Some(callee)) = (self.contexts[id.context].record, owner)
        {
            t.node.shared.states.begin_call(t.now, key, callee, Direction::Recipient);
        }
    }

    /// Records that a phone rings.
    pub(super) fn record_ringing(&self, t: &Turn<'_>, id: BranchId) {
        if let Some(Record::Begins(key)) = self.contexts[id.context].record {
            t.node.shared.states.ring(key);
        }
    }

    /// Records that the phones of a branch's user do not ring any more, if no other branch rings at one.
    pub(super) fn record_failure(&self, t: &Turn<'_>, id: BranchId) {
        let ctx = &self.contexts[id.context];
        let Some(Record::Begins(key)) = ctx.record else { return };
        let Some(owner) = &self.contexts[id].target.owner else { return };
        let rings = |state| state != State::Done;
        let mut others = ctx.branches.iter().filter(|branch| rings(branch.state));
        if others.all(|branch| branch.target.owner.as_ref() != Some(owner)) {
            t.node.shared.states.leave_call(key, owner);
        }
    }

    /// Records the answer to an INVITE, from a branch.
    pub(super) fn record_answer(&self, t: &Turn<'_>, id: BranchId, answer: &Message<'_>) {
        let ctx = &self.contexts[id.context];
        let states = &t.node.shared.states;
        match ctx.record {
            // Its BYE follows, if the caller is still there (RFC 3261 section 9.1).
            Some(Record::Begins(key)) if ctx.cancelled => states.end_call(key),
            Some(Record::Begins(key)) => {
                let owner = self.contexts[id].target.owner.as_deref();
                states.answer(t.now, key, t.node.dialogs.dialog_key(answer), owner);
            }
            // A phone that has come here in the middle of a call: the server where it was has no phone of the user any more.
            Some(Record::Within(key)) => {
                if let Some(sender) = &ctx.findings.sender {
                    states.adopt_call(t.now, key, sender.clone());
                }
            }
            _ => {}
        }
    }

    /// Records what the final response of this status means for the call.
    pub(super) fn record_end(&self, t: &Turn<'_>, id: ContextId, status: u16) {
        let ctx = &self.contexts[id];
        debug_assert!(ctx.kind == Kind::Invite || !matches!(ctx.record, Some(Record::Begins(_))));
        match ctx.record {
            Some(Record::Begins(key)) if status >= 300 => t.node.shared.states.end_call(key),
            // After a challenge the BYE is sent again.
            Some(Record::Ends(key)) if !matches!(status, 401 | 407) => {
                t.node.shared.states.end_call(key);
            }
            _ => {}
        }
    }
}
