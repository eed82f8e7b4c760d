//! Reports of calls: begun, answered, failed, ended. The description of a call is read from its INVITE once, and stored
//! with its context.

use super::Calls;
use super::context::Branch;
use crate::core::events::{CallEvent, CallInfo, CallStep, Event, short_text};
use crate::core::ids::{BranchId, ContextId};
use crate::core::request::{InDialog, IncomingRequest};
use crate::core::turn::Turn;
use ringway_sansio::Time;
use ringway_sip::header::NameAddr;
use ringway_sip::message::{Malformed, Message};
use std::sync::Arc;

/// Returns the URI and the tag of an address; empty if it has none.
fn parts<'a>(address: Result<NameAddr<'a>, Malformed>) -> (&'a [u8], &'a [u8]) {
    address.map_or((b"", b""), |address| (address.uri, address.tag().unwrap_or_default()))
}

/// Returns a step of a call without further details.
fn event(at: Time, step: CallStep, call: Arc<CallInfo>) -> Box<CallEvent> {
    let to_tag = Box::default();
    Box::new(CallEvent { at, step, call, to_tag, destination: None, gateway: None })
}

impl CallEvent {
    /// Adds the target of a branch.
    fn by(mut self: Box<CallEvent>, branch: &Branch) -> Box<CallEvent> {
        self.destination = branch.last_destination;
        self.gateway.clone_from(&branch.through);
        self
    }
}

impl Calls {
    /// Reports that the call of a context has begun with this request.
    pub(super) fn report_began(&mut self, t: &mut Turn<'_>, id: ContextId, msg: &Message<'_>) {
        let ctx = &mut self.contexts[id];
        let ((caller, from_tag), (callee, _)) = (parts(msg.from()), parts(msg.to()));
        let texts = [msg.call_id(), from_tag, caller, callee, msg.request_uri()];
        let source = (ctx.flow.transport, ctx.flow.remote);
        let call = Arc::new(CallInfo::new(texts, ctx.user.clone(), source, ctx.came));
        ctx.call = Some(call.clone());
        let now = t.now;
        t.emit(|| Event::Call(event(now, CallStep::Began, call)));
    }

    /// Reports that the call is answered by this response of a branch.
    pub(super) fn report_answered(&self, t: &mut Turn<'_>, id: BranchId, answer: &Message<'_>) {
        let Some(call) = self.contexts[id.context].call.clone() else { return };
        let (now, step) = (t.now, CallStep::Answered { status: answer.status() });
        t.emit(|| {
            let mut event = event(now, step, call).by(&self.contexts[id]);
            event.to_tag = short_text(parts(answer.to()).1);
            Event::Call(event)
        });
    }

    /// Reports that the call has failed with this status.
    pub(super) fn report_failed(&self, t: &mut Turn<'_>, id: ContextId, status: u16) {
        let ctx = &self.contexts[id];
        let Some(call) = ctx.call.clone() else { return };
        let tried = ctx.branches.iter().rev().find(|branch| branch.last_destination.is_some());
        let (now, step) = (t.now, CallStep::Failed { status });
        t.emit(|| {
            let event = event(now, step, call);
            Event::Call(match tried {
                Some(branch) => event.by(branch),
                None => event,
            })
        });
    }
}

/// Reports that a BYE of a dialog of ours has been answered; see [`end_of_call`].
pub(super) fn report_ended(t: &mut Turn<'_>, mut ended: Box<CallEvent>) {
    ended.at = t.now;
    t.emit(|| Event::Call(ended));
}

/// Returns the event to report once this BYE of a dialog of ours is answered. It is written while the BYE is at hand,
/// which would have to be parsed again.
pub(super) fn end_of_call(
    now: Time,
    incoming: &IncomingRequest<'_>,
    dialog: &InDialog,
) -> Box<CallEvent> {
    let (bye, flow) = (incoming.msg, incoming.flow);
    let (mut caller, mut callee) = (parts(bye.from()), parts(bye.to()));
    if !dialog.by_caller {
        std::mem::swap(&mut caller, &mut callee);
    }
    let texts = [bye.call_id(), caller.1, caller.0, callee.0, bye.request_uri()];
    let source = (flow.transport, flow.remote);
    let call = Arc::new(CallInfo::new(texts, None, source, dialog.began));
    let mut event = event(now, CallStep::Ended { by_caller: dialog.by_caller }, call);
    event.to_tag = short_text(callee.1);
    event
}
