//! Reports of calls: begun, answered, failed, ended. What is reported is read from the messages
//! themselves, so nothing is kept for it but who proved to be the caller.

use super::validate::short_text;
use super::{CallEvent, CallStep, Core, Event, MAX_EVENTS};
use ringway_sansio::{Flow, Time};
use ringway_sip::header::NameAddr;
use ringway_sip::message::{Malformed, Message};

fn uri_of(address: Result<NameAddr<'_>, Malformed>) -> Box<str> {
    short_text(address.map_or(b"", |address| address.uri))
}

fn tag_of(address: Result<NameAddr<'_>, Malformed>) -> Box<str> {
    short_text(address.ok().and_then(|address| address.tag()).unwrap_or_default())
}

/// A report of what a request says; the rest is for the caller to fill in.
fn event(at: Time, step: CallStep, msg: &Message<'_>, flow: &Flow, began: Time) -> CallEvent {
    CallEvent {
        at,
        step,
        call_id: short_text(msg.call_id()),
        from_tag: tag_of(msg.from()),
        to_tag: tag_of(msg.to()),
        caller: uri_of(msg.from()),
        callee: uri_of(msg.to()),
        target: short_text(msg.request_uri()),
        user: None,
        source: (flow.transport, flow.remote),
        destination: None,
        gateway: None,
        began,
    }
}

impl Core {
    /// The call of a context has begun by this request.
    pub(super) fn report_began(&mut self, now: Time, place: usize, msg: &Message<'_>) {
        let ctx = &self.contexts[place];
        let mut event = event(now, CallStep::Began, msg, &ctx.flow, ctx.came);
        event.user.clone_from(&ctx.user);
        self.push_call(event);
    }

    /// The call of a context is answered by this response over a branch, or has failed.
    pub(super) fn report_final(
        &mut self,
        now: Time,
        place: usize,
        step: CallStep,
        answer: Option<(&Message<'_>, usize)>,
    ) {
        let ctx = &self.contexts[place];
        let Some(request) = ctx.request.as_ref().filter(|_| ctx.session) else { return };
        let Ok(msg) = ringway_sip::message::parse(request) else { return };
        let mut event = event(now, step, &msg, &ctx.flow, ctx.came);
        event.user.clone_from(&ctx.user);
        if let Some((response, _)) = answer {
            event.to_tag = tag_of(response.to());
        }
        let branch = match answer {
            Some((_, b)) => ctx.branches.get(b),
            None => ctx.branches.iter().rev().find(|branch| branch.went.is_some()),
        };
        if let Some(branch) = branch {
            event.destination = branch.went;
            event.gateway.clone_from(&branch.through);
        }
        self.push_call(event);
    }

    /// A BYE of a dialog of ours has been answered. `began` is when the dialog did.
    pub(super) fn report_end(
        &mut self,
        now: Time,
        bye: &Message<'_>,
        flow: &Flow,
        by_caller: bool,
        began: Time,
    ) {
        let mut event = event(now, CallStep::Ended { by_caller }, bye, flow, began);
        if !by_caller {
            std::mem::swap(&mut event.from_tag, &mut event.to_tag);
            std::mem::swap(&mut event.caller, &mut event.callee);
        }
        self.push_call(event);
    }

    fn push_call(&mut self, event: CallEvent) {
        if self.events.len() >= MAX_EVENTS {
            self.stats.limits_hit += 1;
        } else {
            self.events.push_back(Event::Call(Box::new(event)));
        }
    }
}
