//! The response context (RFC 3261 section 16.2): one proxied request, its branches and the best
//! answer so far.

use crate::core::events::{CallEvent, CallInfo};
use crate::core::ids::{BranchId, ContextId};
use crate::core::request::{Findings, IncomingRequest};
use crate::core::target::RequestTarget;
use ringway_sansio::{Flow, Hop, Time, TimerId, Transport};
use ringway_sip::transaction::{ClientId, Kind, ServerId};
use slab::Slab;
use smallvec::SmallVec;
use std::net::SocketAddr;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

/// Tables larger than this give their memory back when they fall empty.
const KEEP_ENTRIES: usize = 1024;

/// Why a branch is cancelled (RFC 3326).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CancelReason {
    /// The caller has given up; the CANCEL's own Reason goes on.
    Caller,
    /// Another branch was answered with a 2xx: no missed call.
    CompletedElsewhere,
    /// Another branch was refused for all of them by this 6xx.
    Refused(u16),
    /// It has rung too long, or answers an attempt that was abandoned.
    Timeout,
}

/// How far a branch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Waits for its turn (serial forking).
    Waiting,
    /// Waits for server location.
    Resolving,
    /// Sent.
    Sent,
    /// Has had its final response, or never will.
    Done,
}

#[derive(Debug)]
pub(super) struct Branch {
    pub target: RequestTarget,
    pub state: State,
    pub client: Option<ClientId>,
    pub timer_c: TimerId,
    /// To be cancelled for this reason as soon as a provisional response comes (RFC 3261
    /// section 9.1).
    pub cancel: Option<CancelReason>,
    /// Its share of Max-Breadth (RFC 5393 section 5.3.3).
    pub breadth: u32,
    /// The next hop that is put on top as a Route on this attempt.
    pub through: Option<Box<str>>,
    /// Where it went, to remember a failure.
    pub hop: Option<Hop>,
    /// It went there a second time, because its connection had ended.
    pub again: bool,
    /// Over a flow, not to an address.
    pub on_flow: bool,
    /// Where it was sent last.
    pub went: Option<(Transport, SocketAddr)>,
}

impl Branch {
    pub(super) fn waiting(target: RequestTarget) -> Branch {
        Branch {
            target,
            state: State::Waiting,
            client: None,
            timer_c: TimerId::NONE,
            cancel: None,
            breadth: 0,
            through: None,
            hop: None,
            again: false,
            on_flow: false,
            went: None,
        }
    }

    /// Whether this client transaction carries the present attempt, and is waited for.
    pub(super) fn is(&self, client: ClientId) -> bool {
        self.state == State::Sent && self.client == Some(client)
    }
}

/// The best final response so far.
#[derive(Debug)]
pub(super) struct BestResponse {
    pub status: u16,
    /// The response as it would be forwarded; empty for one of our own making.
    pub bytes: Vec<u8>,
}

impl BestResponse {
    /// Whether it is of our own making.
    pub(super) fn is_ours(&self) -> bool {
        self.bytes.is_empty()
    }
}

#[derive(Debug)]
pub(super) struct Context {
    pub id: ContextId,
    pub kind: Kind,
    pub server: ServerId,
    /// The request as it came; freed once a final answer has gone back.
    pub request: Option<Arc<[u8]>>,
    /// The flow it came on.
    pub flow: Flow,
    /// Where answers go.
    pub reply: Flow,
    pub findings: Findings,
    pub branches: SmallVec<[Branch; 1]>,
    pub best: Option<BestResponse>,
    /// WWW-Authenticate and Proxy-Authenticate lines of all 401 and 407 (section 16.7 item 7).
    pub challenges: Vec<Box<[u8]>>,
    pub came: Time,
    /// A final response has gone back.
    pub answered: bool,
    pub cancelled: bool,
    /// The Reason header lines of the caller's CANCEL.
    pub reason: Vec<u8>,
    /// Who proved to be its sender, as `user@realm`.
    pub user: Option<Box<str>>,
    /// What is reported of the call, once its beginning was.
    pub call: Option<Arc<CallInfo>>,
    /// What is reported once this BYE of a dialog of ours is answered.
    pub ended: Option<Box<CallEvent>>,
    /// Whether a session attempt is being counted.
    pub session: bool,
    /// Whether the first ringing has been seen.
    pub rang: bool,
    /// Fires when a request that is no INVITE is due its 100 (RFC 4320 section 4.1).
    pub trying: TimerId,
    /// Client transactions that still exist, and the server transaction.
    pub alive: u32,
}

impl Context {
    /// A context without an answer, whose branches wait for their turn.
    pub(super) fn new(
        now: Time,
        (id, server, kind): (ContextId, ServerId, Kind),
        incoming: &IncomingRequest<'_>,
        reply: Flow,
        findings: Findings,
        targets: Vec<RequestTarget>,
    ) -> Context {
        Context {
            id,
            kind,
            server,
            request: Some(incoming.msg.whole().into()),
            flow: *incoming.flow,
            reply,
            findings,
            branches: targets.into_iter().map(Branch::waiting).collect(),
            best: None,
            challenges: Vec::new(),
            came: now,
            answered: false,
            cancelled: false,
            reason: Vec::new(),
            user: None,
            call: None,
            ended: None,
            session: false,
            rang: false,
            trying: TimerId::NONE,
            alive: 1,
        }
    }

    /// Whether a branch is under way or yet to come.
    pub(super) fn is_pending(&self) -> bool {
        self.branches.iter().any(|b| b.state != State::Done)
    }

    /// No branch that has not been sent yet ever will be: the search is over (RFC 3261 sections
    /// 16.7 item 5 and 16.10).
    pub(super) fn end_search(&mut self) {
        for branch in &mut self.branches {
            branch.target.attempts.clear();
            if matches!(branch.state, State::Waiting | State::Resolving) {
                branch.state = State::Done;
            }
        }
    }

    /// Keeps a final response if it is better than what there is (section 16.7 item 6).
    pub(super) fn offer(&mut self, status: u16, bytes: impl FnOnce() -> Vec<u8>) {
        // A 408 to what is no INVITE is never sent (RFC 4320 section 4.2): anything else is better.
        let rank = |status| match (self.kind, status) {
            (Kind::NonInvite, 408) => u16::MAX,
            _ => rank(status),
        };
        if self.best.as_ref().is_none_or(|b| rank(status) < rank(b.status)) {
            self.best = Some(BestResponse { status, bytes: bytes() });
        }
    }
}

/// Lower is better (RFC 3261 section 16.7 item 6): any 6xx, then the lowest class; within 4xx those
/// that tell how to do better; and 503 last of its class, because it speaks of one server only.
fn rank(status: u16) -> u16 {
    match status {
        600.. => 0,
        401 | 407 | 415 | 420 | 484 => 4_000,
        408 => 4_900,
        503 => 5_900,
        _ => (status / 100) * 1_000 + 100,
    }
}

/// The contexts of a worker.
pub(super) struct Contexts {
    slab: Slab<Context>,
    /// Of the newest context.
    serial: u32,
}

impl Contexts {
    pub(super) fn new() -> Contexts {
        Contexts { slab: Slab::new(), serial: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Context> {
        self.slab.iter().map(|(_, context)| context)
    }

    /// The id of a context to be; follow with [`Contexts::insert`].
    pub(super) fn reserve(&mut self) -> ContextId {
        self.serial = self.serial.wrapping_add(1);
        ContextId { index: self.slab.vacant_key() as u32, serial: self.serial }
    }

    /// Adds the context whose id has just been reserved.
    pub(super) fn insert(&mut self, context: Context) {
        let id = context.id;
        let index = self.slab.insert(context);
        debug_assert_eq!(index as u32, id.index);
    }

    /// The same, to change it.
    pub(super) fn get_mut(&mut self, id: ContextId) -> Option<&mut Context> {
        self.slab.get_mut(id.index as usize).filter(|context| context.id == id)
    }

    /// A context that still lives.
    pub(super) fn get(&self, id: ContextId) -> Option<&Context> {
        self.slab.get(id.index as usize).filter(|context| context.id == id)
    }

    pub(super) fn remove(&mut self, id: ContextId) -> Context {
        let context = self.slab.remove(id.index as usize);
        if self.slab.is_empty() && self.slab.capacity() > KEEP_ENTRIES {
            self.slab = Slab::new();
        }
        context
    }
}

/// A context that is known to live.
impl Index<ContextId> for Contexts {
    type Output = Context;

    fn index(&self, id: ContextId) -> &Context {
        let context = &self.slab[id.index as usize];
        debug_assert_eq!(context.id, id);
        context
    }
}

impl IndexMut<ContextId> for Contexts {
    fn index_mut(&mut self, id: ContextId) -> &mut Context {
        let context = &mut self.slab[id.index as usize];
        debug_assert_eq!(context.id, id);
        context
    }
}

/// A branch of a context that is known to live.
impl Index<BranchId> for Contexts {
    type Output = Branch;

    fn index(&self, id: BranchId) -> &Branch {
        &self[id.context].branches[usize::from(id.branch)]
    }
}

impl IndexMut<BranchId> for Contexts {
    fn index_mut(&mut self, id: BranchId) -> &mut Branch {
        &mut self[id.context].branches[usize::from(id.branch)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3261 section 16.7 item 6.
    #[test]
    fn best_response_order() {
        let mut order = [603, 503, 500, 408, 404, 486, 401, 302];
        order.sort_by_key(|&s| (rank(s), s));
        assert_eq!(order, [603, 302, 401, 404, 486, 408, 500, 503]);
    }
}
