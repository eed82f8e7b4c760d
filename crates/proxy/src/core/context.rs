//! The response context (RFC 3261 section 16.2): one proxied request, its branches and the best
//! answer so far.

use super::{CallEvent, CallInfo};
use ringway_sansio::{Flow, Hop, Time, TimerId, Transport};
use ringway_sip::transaction::{ClientId, Kind, ServerId};
use smallvec::SmallVec;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// One element of the target set.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RequestTarget {
    /// The Request-URI on this branch.
    pub uri: Vec<u8>,
    /// Value of the Route header field to put on top: the Path of a binding; empty for none.
    pub path: Vec<u8>,
    /// Preference in thousandths.
    pub q: u16,
    /// Where to try, last first.
    pub attempts: SmallVec<[Attempt; 1]>,
    /// Where it comes from.
    pub origin: Origin,
}

/// What made a target, which decides where it may lead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// The request itself: its Request-URI, Route or flow token.
    Request,
    /// A routing rule.
    Rule,
    /// A contact that a user has registered, from this address where that is still known. A flow that
    /// is lost is then a user who is not there.
    Location(Option<IpAddr>),
}

impl RequestTarget {
    /// The only target of a request that is for no user of ours.
    pub(super) fn remote(
        uri: Vec<u8>,
        origin: Origin,
        attempts: SmallVec<[Attempt; 1]>,
    ) -> RequestTarget {
        RequestTarget { uri, path: Vec::new(), q: 1000, attempts, origin }
    }

    /// Whether it comes from the location service.
    pub(super) fn is_located(&self) -> bool {
        matches!(self.origin, Origin::Location(_))
    }
}

/// One way to reach a target.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Attempt {
    /// Over the flow a phone registered on.
    Flow(Flow),
    /// Another binding of the same instance (RFC 5626 section 7).
    Binding(Box<RequestTarget>),
    /// A located server.
    Hop(Hop),
    /// Over UDP, whatever the size: TCP has been refused there (RFC 3261 section 18.1.1).
    Datagram(SocketAddr),
    /// Whatever the topmost Route or else the Request-URI says.
    Uri,
    /// Through this next hop, which is put on top as a Route.
    Via(Box<str>),
}

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
    /// Whether this client transaction carries the present attempt, and is waited for.
    pub(super) fn is(&self, client: ClientId) -> bool {
        self.state == State::Sent && self.client == Some(client)
    }
}

/// What the first parse found out that later branches need again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    pub routes_used: usize,
    pub last_route_used: bool,
    pub max_forwards: u8,
    pub max_breadth: u32,
    /// The domain for whose realm the credentials were.
    pub realm: Option<usize>,
    /// From a trusted peer, within a dialog of ours, or in a network without digest: it may go to a
    /// routing rule's next hop without a rule.
    pub privileged: bool,
    pub spiral: u64,
    pub record_route: bool,
    /// Whether the branch of stateless forwarding leads back. No response comes to an ACK, but that of an
    /// INVITE which was forwarded statelessly must have the branch of its INVITE.
    pub way_back: bool,
    /// The dialog of ours that it belongs to.
    pub in_dialog: Option<InDialog>,
}

impl Kept {
    /// Whether the sender has proved to be a user, is trusted, or belongs to a dialog of ours.
    pub(super) fn is_known(&self) -> bool {
        self.privileged || self.realm.is_some() || self.in_dialog.is_some()
    }
}

/// The dialog of ours that a request belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct InDialog {
    /// When it began.
    pub began: Time,
    /// Whether the caller sends.
    pub by_caller: bool,
    /// Its key among the dialogs whose marks are void.
    pub key: u64,
}

/// The best final response so far.
#[derive(Debug)]
pub(super) struct Best {
    pub status: u16,
    /// The response as it would be forwarded; empty for one of our own making.
    pub bytes: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Context {
    pub serial: u32,
    pub kind: Kind,
    pub server: ServerId,
    /// The request as it came; freed once a final answer has gone back.
    pub request: Option<Arc<[u8]>>,
    /// The flow it came on.
    pub flow: Flow,
    /// Where answers go.
    pub reply: Flow,
    pub kept: Kept,
    pub branches: SmallVec<[Branch; 1]>,
    pub best: Option<Best>,
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
    pub(super) fn is_answered(&self) -> bool {
        self.answered
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
            self.best = Some(Best { status, bytes: bytes() });
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

/// The number under which transactions know a branch.
pub(super) fn user(context: usize, serial: u32, branch: usize) -> u64 {
    (context as u64 & 0xffff_ffff) << 32 | u64::from(serial & 0xffff) << 16 | branch as u64 & 0xffff
}

/// Back from [`user`]: index, low half of the serial, branch.
pub(super) fn from_user(user: u64) -> (usize, u32, usize) {
    ((user >> 32) as usize, (user >> 16 & 0xffff) as u32, (user & 0xffff) as usize)
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

    #[test]
    fn user_numbers_read_back() {
        assert_eq!(from_user(user(70_000, 0x1_0005, 3)), (70_000, 5, 3));
    }
}
