//! The response context (RFC 3261 section 16.2): one proxied request, its branches and the best response so far.

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

/// A table larger than this is replaced by a small one when it becomes empty.
const KEEP_ENTRIES: usize = 1024;

/// Why a branch is cancelled (RFC 3326).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CancelReason {
    /// The caller has cancelled; the Reason of its CANCEL is forwarded.
    Caller,
    /// Another branch was answered with a 2xx: the call is not missed.
    CompletedElsewhere,
    /// Another branch was answered with this 6xx, which is final for all.
    Refused(u16),
    /// The branch has rung too long, or answers an abandoned attempt.
    Timeout,
}

/// The state of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Waits for its turn (serial forking).
    Waiting,
    /// Waits for server location.
    Resolving,
    /// Sent to the target.
    Sent,
    /// Has received its final response, or never will.
    Done,
}

#[derive(Debug)]
pub(super) struct Branch {
    pub target: RequestTarget,
    pub state: State,
    pub client: Option<ClientId>,
    pub timer_c: TimerId,
    /// The reason to cancel it as soon as a provisional response comes (RFC 3261 section 9.1).
    pub cancel: Option<CancelReason>,
    /// Its share of Max-Breadth (RFC 5393 section 5.3.3).
    pub breadth: u32,
    /// The next hop that is prepended as a Route in this attempt.
    pub through: Option<Box<str>>,
    /// The hop it was sent to, for the record of a failure.
    pub hop: Option<Hop>,
    /// Whether it was sent there a second time, because its connection had closed.
    pub again: bool,
    /// Whether it was sent over a flow rather than to an address.
    pub on_flow: bool,
    /// The target it was sent to last.
    pub last_destination: Option<(Transport, SocketAddr)>,
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
            last_destination: None,
        }
    }

    /// Returns whether this client transaction belongs to the present attempt and is still awaited.
    pub(super) fn is(&self, client: ClientId) -> bool {
        self.state == State::Sent && self.client == Some(client)
    }
}

/// Who waits for the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requester {
    /// A peer, in this server transaction.
    Peer(ServerId),
    /// The world, for its message of this number.
    World(u64),
}

/// The best final response so far.
#[derive(Debug)]
pub(super) struct BestResponse {
    pub status: u16,
    /// The response as it would be forwarded; empty if this proxy generates it.
    pub bytes: Vec<u8>,
}

impl BestResponse {
    /// Returns whether this proxy generates it.
    pub(super) fn is_ours(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// The key of a request's call among the states of users.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Record {
    /// An INVITE that may begin this call.
    Begins(u64),
    /// An INVITE within this call, by one of its parties.
    Within(u64),
    /// A BYE of this call.
    Ends(u64),
}

#[derive(Debug)]
pub(super) struct Context {
    pub id: ContextId,
    pub kind: Kind,
    pub requester: Requester,
    /// The request as it came; released once a final response has been forwarded.
    pub request: Option<Arc<[u8]>>,
    /// The flow it came on.
    pub flow: Flow,
    /// The flow that responses take.
    pub reply: Flow,
    pub findings: Findings,
    pub branches: SmallVec<[Branch; 1]>,
    pub best: Option<BestResponse>,
    /// WWW-Authenticate and Proxy-Authenticate lines of all 401 and 407 (section 16.7 item 7).
    pub challenges: Vec<Box<[u8]>>,
    pub came: Time,
    /// Whether a final response has been sent.
    pub answered: bool,
    pub cancelled: bool,
    /// The Reason header lines of the caller's CANCEL.
    pub reason: Vec<u8>,
    /// The authenticated sender, as `user@realm`.
    pub user: Option<Box<str>>,
    /// The description of the call, once its beginning has been reported.
    pub call: Option<Arc<CallInfo>>,
    /// The call among the states of users.
    pub record: Option<Record>,
    /// The event to report once this BYE of a dialog of ours is answered.
    pub ended: Option<Box<CallEvent>>,
    /// Whether it is counted as a session attempt.
    pub session: bool,
    /// Whether the first 18x has been received.
    pub rang: bool,
    /// Fires when targets of the next lower q are tried although the present ones have not failed.
    pub group: TimerId,
    /// Fires when a request is due its 100 that did not get one at once: an INVITE of another node (RFC 3261 section
    /// 17.2.1), or a request other than INVITE (RFC 4320 section 4.1).
    pub trying: TimerId,
    /// The number of client transactions that still exist, plus one for the requester.
    pub alive: u32,
}

impl Context {
    /// Returns a context without a response, whose branches wait for their turn.
    pub(super) fn new(
        now: Time,
        (id, requester, kind): (ContextId, Requester, Kind),
        incoming: &IncomingRequest<'_>,
        reply: Flow,
        findings: Findings,
        targets: Vec<RequestTarget>,
    ) -> Context {
        Context {
            id,
            kind,
            requester,
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
            record: None,
            ended: None,
            session: false,
            rang: false,
            group: TimerId::NONE,
            trying: TimerId::NONE,
            alive: 1,
        }
    }

    /// Returns whether a branch is in progress or still waiting.
    pub(super) fn is_pending(&self) -> bool {
        self.branches.iter().any(|b| b.state != State::Done)
    }

    /// Ends the search: no branch is sent any more (RFC 3261 sections 16.7 item 5 and 16.10).
    pub(super) fn end_search(&mut self) {
        for branch in &mut self.branches {
            branch.target.attempts.clear();
            if matches!(branch.state, State::Waiting | State::Resolving) {
                branch.state = State::Done;
            }
        }
    }

    /// Stores a final response if it is better than the best so far (section 16.7 item 6).
    pub(super) fn offer(&mut self, status: u16, bytes: impl FnOnce() -> Vec<u8>) {
        // A 408 to a request other than INVITE is never sent (RFC 4320 section 4.2): any other is better.
        let rank = |status| match (self.kind, status) {
            (Kind::NonInvite, 408) => u16::MAX,
            _ => rank(status),
        };
        if self.best.as_ref().is_none_or(|b| rank(status) < rank(b.status)) {
            self.best = Some(BestResponse { status, bytes: bytes() });
        }
    }
}

/// Returns the rank of a status; lower is better (RFC 3261 section 16.7 item 6): any 6xx, then the lowest class; within
/// 4xx those that help to form a better request; and 503 last of its class, because it concerns one server only.
fn rank(status: u16) -> u16 {
    match status {
        600.. => 0,
        401 | 407 | 415 | 420 | 484 => 4_000,
        408 => 4_900,
        // It says least: that one of several phones is to be reached another way.
        430 => 4_950,
        503 => 5_900,
        _ => (status / 100) * 1_000 + 100,
    }
}

/// An entry of the table.
#[derive(Debug)]
enum Slot {
    /// For a request that waits for an answer of the world.
    Held(ContextId),
    Context(Context),
}

impl Slot {
    fn context(&self) -> Option<&Context> {
        match self {
            Slot::Context(context) => Some(context),
            Slot::Held(_) => None,
        }
    }

    fn context_mut(&mut self) -> Option<&mut Context> {
        match self {
            Slot::Context(context) => Some(context),
            Slot::Held(_) => None,
        }
    }
}

/// The contexts of a worker.
pub(super) struct Contexts {
    slab: Slab<Slot>,
    /// The serial number of the newest context.
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
        self.slab.iter().filter_map(|(_, slot)| slot.context())
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Context> {
        self.slab.iter_mut().filter_map(|(_, slot)| slot.context_mut())
    }

    /// Returns the id of a context that is inserted later; until then its entry is held.
    pub(super) fn hold(&mut self) -> ContextId {
        let id = self.reserve();
        self.slab.insert(Slot::Held(id));
        id
    }

    /// Releases the entry of a context that was not inserted.
    pub(super) fn release_held(&mut self, id: ContextId) {
        if self.is_held(id) {
            self.slab.remove(id.index as usize);
            self.shrink();
        }
    }

    fn is_held(&self, id: ContextId) -> bool {
        matches!(self.slab.get(id.index as usize), Some(Slot::Held(held)) if *held == id)
    }

    /// Adds the context whose entry is held.
    pub(super) fn insert_held(&mut self, context: Context) {
        debug_assert!(self.is_held(context.id));
        if let Some(slot) = self.slab.get_mut(context.id.index as usize) {
            *slot = Slot::Context(context);
        }
    }

    /// Returns the id of the next context; follow with [`Contexts::insert`].
    pub(super) fn reserve(&mut self) -> ContextId {
        self.serial = self.serial.wrapping_add(1);
        ContextId { index: self.slab.vacant_key() as u32, serial: self.serial }
    }

    /// Adds the context of the id that was reserved last.
    pub(super) fn insert(&mut self, context: Context) {
        let id = context.id;
        let index = self.slab.insert(Slot::Context(context));
        debug_assert_eq!(index as u32, id.index);
    }

    /// Returns a context that still exists, to change it.
    pub(super) fn get_mut(&mut self, id: ContextId) -> Option<&mut Context> {
        self.slab.get_mut(id.index as usize)?.context_mut().filter(|context| context.id == id)
    }

    /// Returns a context that still exists.
    pub(super) fn get(&self, id: ContextId) -> Option<&Context> {
        self.slab.get(id.index as usize)?.context().filter(|context| context.id == id)
    }

    /// Drops a context.
    pub(super) fn remove(&mut self, id: ContextId) -> Option<Context> {
        let slot = self.slab.try_remove(id.index as usize);
        self.shrink();
        match slot? {
            Slot::Context(context) => Some(context),
            Slot::Held(_) => None,
        }
    }

    fn shrink(&mut self) {
        if self.slab.is_empty() && self.slab.capacity() > KEEP_ENTRIES {
            self.slab = Slab::new();
        }
    }
}

/// Returns a context that is known to exist.
impl Index<ContextId> for Contexts {
    type Output = Context;

    fn index(&self, id: ContextId) -> &Context {
        match &self.slab[id.index as usize] {
            Slot::Context(context) => {
                debug_assert_eq!(context.id, id);
                context
            }
            Slot::Held(_) => unknown(id),
        }
    }
}

impl IndexMut<ContextId> for Contexts {
    fn index_mut(&mut self, id: ContextId) -> &mut Context {
        match &mut self.slab[id.index as usize] {
            Slot::Context(context) => {
                debug_assert_eq!(context.id, id);
                context
            }
            Slot::Held(_) => unknown(id),
        }
    }
}

/// Panics as an index out of range does: only a context that exists is indexed, and what is held has no branch and no
/// timer that could name it.
#[cold]
fn unknown(id: ContextId) -> ! {
    panic!("no context {id:?}")
}

/// Returns a branch of a context that is known to exist.
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
