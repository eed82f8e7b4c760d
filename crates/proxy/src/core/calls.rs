//! Reports of calls: begun, answered, failed, ended. What is reported of a call is read from its INVITE once,
//! and kept with its context.

use super::context::InDialog;
use super::validate::short_text;
use super::{CallEvent, CallInfo, CallStep, Core, Event, MAX_EVENTS, Pass};
use ringway_sansio::Time;
use ringway_sip::header::NameAddr;
use ringway_sip::message::{Malformed, Message};
use std::sync::Arc;

/// URI and tag of an address; empty where there is none.
fn parts<'a>(address: Result<NameAddr<'a>, Malformed>) -> (&'a [u8], &'a [u8]) {
    address.map_or((b"", b""), |address| (address.uri, address.tag().unwrap_or_default()))
}

/// A step of a call of which nothing more is known.
fn event(at: Time, step: CallStep, call: Arc<CallInfo>) -> CallEvent {
    CallEvent { at, step, call, to_tag: Box::default(), destination: None, gateway: None }
}

impl Core {
    /// The call of a context has begun by this request.
    pub(super) fn report_began(&mut self, now: Time, index: usize, msg: &Message<'_>) {
        let ctx = &mut self.contexts[index];
        let ((caller, from_tag), (callee, _)) = (parts(msg.from()), parts(msg.to()));
        let texts = [msg.call_id(), from_tag, caller, callee, msg.request_uri()];
        let source = (ctx.flow.transport, ctx.flow.remote);
        let call = Arc::new(CallInfo::new(texts, ctx.user.clone(), source, ctx.came));
        ctx.call = Some(call.clone());
        self.push_call(Box::new(event(now, CallStep::Began, call)));
    }

    /// The call of a context is answered by this response over a branch, or has failed.
    pub(super) fn report_final(
        &mut self,
        now: Time,
        index: usize,
        step: CallStep,
        answer: Option<(&Message<'_>, usize)>,
    ) {
        let ctx = &self.contexts[index];
        let Some(call) = ctx.call.clone() else { return };
        let mut event = event(now, step, call);
        if let Some((response, _)) = answer {
            event.to_tag = short_text(parts(response.to()).1);
        }
        let branch = match answer {
            Some((_, b)) => ctx.branches.get(b),
            None => ctx.branches.iter().rev().find(|branch| branch.went.is_some()),
        };
        if let Some(branch) = branch {
            event.destination = branch.went;
            event.gateway.clone_from(&branch.through);
        }
        self.push_call(Box::new(event));
    }

    /// A BYE of a dialog of ours has been answered; see [`end_of_call`].
    pub(super) fn report_end(&mut self, now: Time, mut ended: Box<CallEvent>) {
        ended.at = now;
        self.push_call(ended);
    }

    fn push_call(&mut self, event: Box<CallEvent>) {
        if self.events.len() >= MAX_EVENTS {
            self.stats.limits_hit += 1;
        } else {
            self.events.push_back(Event::Call(event));
        }
    }
}

/// What is to be reported once this BYE of a dialog of ours is answered. It is written while the BYE is at
/// hand, which would have to be parsed again.
pub(super) fn end_of_call(pass: &Pass<'_>, dialog: &InDialog) -> Box<CallEvent> {
    let (bye, flow) = (pass.msg, pass.flow);
    let (mut caller, mut callee) = (parts(bye.from()), parts(bye.to()));
    if !dialog.by_caller {
        std::mem::swap(&mut caller, &mut callee);
    }
    let texts = [bye.call_id(), caller.1, caller.0, callee.0, bye.request_uri()];
    let source = (flow.transport, flow.remote);
    let call = Arc::new(CallInfo::new(texts, None, source, dialog.began));
    let step = CallStep::Ended { by_caller: dialog.by_caller };
    Box::new(CallEvent { to_tag: short_text(callee.1), ..event(pass.now, step, call) })
}
