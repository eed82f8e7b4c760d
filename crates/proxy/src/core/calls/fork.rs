//! Forking: the order of branches and of their attempts (RFC 3261 section 16.6).

use super::context::{Branch, State};
use super::{Calls, Tick};
use crate::core::forwarding;
use crate::core::ids::{BranchId, ContextId, ResolveUser};
use crate::core::locator::Lookup;
use crate::core::target::{Attempt, Origin, RequestTarget};
use crate::core::turn::Turn;
use ringway_sansio::{Hop, TimerId};
use ringway_sip::message::Message;

impl Calls {
    /// Starts the waiting branches of the best q (section 16.6: parallel within one q, serial from one q to the next).
    pub(super) fn start_group(&mut self, t: &mut Turn<'_>, id: ContextId, msg: &Message<'_>) {
        let ctx = &mut self.contexts[id];
        let waiting = |b: &&Branch| b.state == State::Waiting;
        let Some(q) = ctx.branches.iter().filter(waiting).map(|b| b.target.q).max() else { return };
        let count = ctx.branches.iter().filter(waiting).filter(|b| b.target.q == q).count() as u32;
        // RFC 5393 section 5.3.3: branches share the breadth; a branch without a share is not started. Branches of all
        // q share it: one after the other they cost as much as in parallel, and ten contacts that lead back here, each
        // with ten more, would never end.
        let total = ctx.branches.len() as u32;
        let started = ctx.branches.iter().filter(|b| b.state != State::Waiting).count() as u32;
        let breadth = ctx.findings.max_breadth;
        if count > breadth.saturating_sub(started) {
            for b in
                ctx.branches.iter_mut().filter(|b| b.state == State::Waiting && b.target.q == q)
            {
                b.state = State::Done;
            }
            ctx.offer(440, Vec::new);
            return self.settle(t, id);
        }
        let started = |b: &&Branch| b.state == State::Waiting && b.target.q == q;
        let patience = ctx.branches.iter().filter(started).filter_map(|b| b.target.patience).min();
        if let Some(patience) = patience {
            self.wheel.cancel(ctx.group);
            self.contexts[id].group = self.wheel.set(t.now + patience, Tick::Group(id));
        }
        for branch in 0..self.contexts[id].branches.len() as u16 {
            let id = BranchId { context: id, branch };
            let branch = &mut self.contexts[id];
            if branch.state == State::Waiting && branch.target.q == q {
                branch.breadth = (breadth / total).max(1);
                self.try_next(t, id, msg);
            }
        }
        self.settle(t, id);
    }

    /// Starts the branches of the next q beside those that have not answered yet.
    pub(super) fn next_group(&mut self, t: &mut Turn<'_>, id: ContextId) {
        let Some(ctx) = self.contexts.get_mut(id) else { return };
        ctx.group = TimerId::NONE;
        if !ctx.answered && !ctx.cancelled {
            self.with_request(t, id, |calls, t, msg| calls.start_group(t, id, msg));
        }
    }

    /// Starts the next attempt to the target of a branch. Without one the branch ends.
    fn try_next(&mut self, t: &mut Turn<'_>, id: BranchId, msg: &Message<'_>) {
        loop {
            let Some(attempt) = self.contexts[id].target.attempts.pop() else {
                return self.fail_unreachable(id);
            };
            let Some(found) = self.locate_attempt(t, id, attempt, msg) else { continue };
            let ctx = &self.contexts[id.context];
            let (target, privileged) = (&self.contexts[id].target, ctx.findings.privileged);
            match found {
                Lookup::Destination(destination)
                    if t.node.forbids(t.now, target, privileged, &destination) =>
                {
                    self.reject_attempt(t, id)
                }
                Lookup::Name(name) if t.node.forbids_name(target, privileged, &name.host) => {
                    self.reject_attempt(t, id);
                }
                Lookup::Destination(destination) => return self.launch(t, id, destination, msg),
                Lookup::Name(name) => {
                    if t.ask(ResolveUser::Branch(id), name, ctx.flow.remote.ip()) {
                        self.contexts[id].state = State::Resolving;
                        return;
                    }
                }
                Lookup::Unreachable => {}
            }
        }
    }

    /// Fails a branch without a reachable target: with the response to a transport error (section 16.9), or, for
    /// contacts of a user of ours that no SIP transport reaches, with that of an unavailable user.
    pub(super) fn fail_unreachable(&mut self, id: BranchId) {
        let branch = &mut self.contexts[id];
        branch.state = State::Done;
        let absent = branch.target.is_located() && branch.last_destination.is_none();
        self.contexts[id.context].offer(if absent { 480 } else { 503 }, Vec::new);
    }

    /// Returns the destination of an attempt; `None` if it stands for other attempts.
    fn locate_attempt(
        &mut self,
        t: &mut Turn<'_>,
        id: BranchId,
        attempt: Attempt,
        msg: &Message<'_>,
    ) -> Option<Lookup> {
        if let Attempt::Binding(other) = attempt {
            let RequestTarget {
                uri,
                path,
                routes_replaced,
                attempts,
                origin,
                owner,
                phone,
                local,
                ..
            } = *other;
            let branch = &mut self.contexts[id];
            let target = &mut branch.target;
            (target.uri, target.path, target.local) = (uri, path, local);
            (target.routes_replaced, target.origin) = (routes_replaced, origin);
            if origin != Origin::Request {
                (target.owner, target.phone) = (owner, phone);
            }
            target.attempts.extend(attempts);
            branch.on_flow = false;
            return None;
        }
        let (findings, target) = (&self.contexts[id.context].findings, &self.contexts[id].target);
        let found = forwarding::locate_attempt(t.locator, &attempt, msg, findings, target);
        let branch = &mut self.contexts[id];
        match attempt {
            Attempt::Flow(_) => branch.on_flow = true,
            Attempt::Via(uri) => branch.through = Some(uri),
            _ => {}
        }
        Some(found)
    }

    /// Drops an attempt whose destination is forbidden for this request.
    fn reject_attempt(&mut self, t: &mut Turn<'_>, id: BranchId) {
        t.stats.forbidden += 1;
        let status = if self.contexts[id].target.is_located() { 480 } else { 403 };
        self.contexts[id.context].offer(status, Vec::new);
    }

    /// Sends a branch to its located server. No hops mean that there is none.
    pub(in crate::core) fn resolved(&mut self, t: &mut Turn<'_>, id: BranchId, hops: &[Hop]) {
        if !self.exists(id) || self.contexts[id].state != State::Resolving {
            return;
        }
        let attempts = &mut self.contexts[id].target.attempts;
        attempts.extend(hops.iter().rev().cloned().map(Attempt::Hop));
        self.retry(t, id);
    }

    /// Continues a branch with the stored request.
    pub(super) fn retry(&mut self, t: &mut Turn<'_>, id: BranchId) {
        self.with_request(t, id.context, |calls, t, msg| {
            calls.try_next(t, id, msg);
            calls.settle(t, id.context);
        });
    }
}
