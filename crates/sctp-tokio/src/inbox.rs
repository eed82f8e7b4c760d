//! What waits for a driver: associations with something to send, new sockets, and tasks that wait until it has sent
//! everything.

use super::carrier::Traffic;
use super::lock::{Lock, Rank};
use super::member::Member;
use super::opening::BoundSocket;
use super::waiters::Waiters;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// What is waiting when a driver's turn begins.
#[derive(Default)]
pub(super) struct Waiting {
    /// Associations that may have something to send or another deadline, or have ended.
    pub(super) members: Vec<Arc<Member>>,
    /// Sockets that were opened for addresses added later.
    pub(super) sockets: Vec<BoundSocket>,
    /// The endpoint may have packets without an association.
    pub(super) replies: bool,
}

#[derive(Default)]
struct State {
    waiting: Waiting,
    driver: Option<Waker>,
    /// The driver was woken and has not begun its turn.
    kicked: bool,
    /// The number of wakes; their number when the driver's turn began; and when the last turn began that
    /// sent everything.
    kicks: u64,
    seen: u64,
    emptied: u64,
    /// Tasks that wait until everything is sent.
    flushers: Waiters,
    /// The driver has ended.
    ended: bool,
    /// The carrier's counters, and the packets that needed no look-up in the tables, as of the driver's last turn.
    traffic: Traffic,
    received: u64,
}

impl State {
    /// Returns the task to wake so that the driver has a turn.
    fn kick(&mut self) -> Option<Waker> {
        self.kicks += 1;
        if std::mem::replace(&mut self.kicked, true) { None } else { self.driver.clone() }
    }
}

/// The inbox of a driver.
pub(super) struct Inbox(Lock<State>);

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox(Lock::new(Rank::Leaf, State::default()))
    }
}

impl Inbox {
    /// Adds an association. Returns the task to wake.
    pub(super) fn push(&self, member: Arc<Member>) -> Option<Waker> {
        let mut state = self.0.lock();
        if state.ended {
            return None;
        }
        state.waiting.members.push(member);
        state.kick()
    }

    /// Adds a socket. Returns the task to wake.
    pub(super) fn push_socket(&self, bound: BoundSocket) -> Option<Waker> {
        let mut state = self.0.lock();
        state.waiting.sockets.push(bound);
        state.kick()
    }

    /// Has the driver send the endpoint's packets without an association. Returns the task to wake.
    pub(super) fn push_replies(&self) -> Option<Waker> {
        let mut state = self.0.lock();
        state.waiting.replies = true;
        state.kick()
    }

    /// Returns the task to wake so that the driver has a turn.
    pub(super) fn kick(&self) -> Option<Waker> {
        self.0.lock().kick()
    }

    /// Begins a turn of the driver. Returns what is waiting.
    pub(super) fn begin_turn(&self, cx: &Context<'_>) -> Waiting {
        let mut state = self.0.lock();
        state.kicked = false;
        state.seen = state.kicks;
        match &mut state.driver {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        std::mem::take(&mut state.waiting)
    }

    /// Ends a turn of the driver. `emptied` is whether everything was passed to the system. Returns the tasks that
    /// waited for that.
    pub(super) fn end_turn(&self, traffic: Traffic, received: u64, emptied: bool) -> Waiters {
        let mut state = self.0.lock();
        (state.traffic, state.received) = (traffic, received);
        if !emptied {
            return Waiters::default();
        }
        state.emptied = state.seen;
        std::mem::take(&mut state.flushers)
    }

    /// Returns whether nothing is waiting.
    pub(super) fn is_empty(&self) -> bool {
        let waiting = &self.0.lock().waiting;
        waiting.members.is_empty() && waiting.sockets.is_empty() && !waiting.replies
    }

    /// Waits until everything is sent that was to be sent at the first call, for which `moment` is `None`. Returns also
    /// the task to wake.
    pub(super) fn poll_emptied(
        &self,
        moment: &mut Option<u64>,
        cx: &Context<'_>,
    ) -> (Poll<()>, Option<Waker>) {
        let mut state = self.0.lock();
        let mut wake = None;
        let moment = *moment.get_or_insert_with(|| {
            wake = state.kick();
            state.kicks
        });
        if state.emptied >= moment || state.ended {
            return (Poll::Ready(()), wake);
        }
        state.flushers.add(cx);
        (Poll::Pending, wake)
    }

    /// Notes that the driver has ended. Returns the tasks that waited for it.
    pub(super) fn end(&self) -> (Waiting, Waiters) {
        let mut state = self.0.lock();
        state.ended = true;
        state.driver = None;
        (std::mem::take(&mut state.waiting), std::mem::take(&mut state.flushers))
    }

    /// Returns the carrier's counters and the number of packets that needed no look-up in the tables, as of the
    /// driver's last turn.
    pub(super) fn counters(&self) -> (Traffic, u64) {
        let state = self.0.lock();
        (state.traffic, state.received)
    }
}
