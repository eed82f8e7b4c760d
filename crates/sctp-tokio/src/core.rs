//! The state that a stack's users and its drivers share.
//!
//! `tables` is what the associations have in common, `member` is one association, `inbox` is what waits for a driver, and
//! `lock` is the order of their locks. This file has the calls that need more than one of them.

use super::carrier::Traffic;
use super::error::Stopped;
use super::inbox::Inbox;
use super::limits::LINGER;
use super::lock::{Lock, Rank};
use super::member::{Member, MemberState};
use super::tables::Tables;
use super::waiters::Waiters;
use ringway_os::{ChaCha, Clock};
use ringway_sctp::{Association, Counters, Cx};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};

/// The abort reason of an association whose handles were dropped and whose shutdown does not complete.
pub(super) const RELEASED: &[u8] = b"released by the program";

/// See the module.
pub(super) struct Shared {
    tables: Lock<Tables>,
    inboxes: Arc<[Arc<Inbox>]>,
    /// The random numbers of the users' calls.
    random: Lock<ChaCha>,
    pub(super) clock: Clock,
    /// A driver has ended.
    stopped: AtomicBool,
    /// The drivers are to end, as all users are gone and all associations have ended.
    over: Arc<AtomicBool>,
}

impl Shared {
    pub(super) fn new(
        tables: Tables,
        inboxes: Arc<[Arc<Inbox>]>,
        random: ChaCha,
        clock: Clock,
    ) -> Arc<Shared> {
        let over = tables.over();
        Arc::new(Shared {
            tables: Lock::new(Rank::Endpoint, tables),
            inboxes,
            random: Lock::new(Rank::Leaf, random),
            clock,
            stopped: AtomicBool::new(false),
            over,
        })
    }

    /// Calls `f` under the endpoint's lock, then wakes tasks.
    pub(super) fn tables<R>(&self, f: impl FnOnce(&mut Tables) -> R) -> R {
        let mut tables = self.tables.lock();
        let result = f(&mut tables);
        let wakes = tables.take_wakes();
        drop(tables);
        wakes.into_iter().for_each(Waker::wake);
        result
    }

    pub(super) fn inbox(&self, driver: usize) -> &Arc<Inbox> {
        &self.inboxes[driver]
    }

    /// Calls an association with the time and random numbers.
    pub(super) fn call<R>(
        &self,
        state: &mut MemberState,
        call: impl FnOnce(&mut Association, &mut Cx<'_>) -> R,
    ) -> R {
        let random = &mut *self.random.lock();
        call(&mut state.association, &mut Cx { now: self.clock.now(), random })
    }

    /// Updates the tables after calls of an association. To be called without its lock.
    pub(super) fn settle(&self, member: &Arc<Member>) {
        self.tables(|tables| tables.settle(member));
    }

    /// Returns an error if the stack has stopped.
    pub(super) fn check(&self) -> Result<(), Stopped> {
        if self.stopped.load(Ordering::Acquire) { Err(Stopped) } else { Ok(()) }
    }

    /// Returns whether the drivers are to end.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Handles the drop of an association's last handle: shuts it down, or aborts it if it is not
    /// established and has nothing to deliver.
    pub(super) fn release(&self, member: &Arc<Member>) {
        let end = member.with(|state| {
            state.abandon();
            let pending = || state.association.snapshot().unacknowledged > 0;
            if state.view.closed().is_none() {
                if !(state.view.is_up() || pending()) {
                    return End::Abort;
                }
                self.call(state, Association::shutdown);
                state.linger_until(self.clock.now() + LINGER);
                state.dispatch();
                member.queue(state);
            }
            if state.is_unsettled() { End::Settle } else { End::Later }
        });
        match end {
            End::Abort => self.tables(|tables| tables.abort(member, RELEASED)),
            End::Settle => self.settle(member),
            End::Later => {}
        }
    }

    /// Waits until all drivers have sent everything that was to be sent at the first call, for which `moments` is empty.
    pub(super) fn poll_emptied(
        &self,
        moments: &mut Vec<Option<u64>>,
        cx: &Context<'_>,
    ) -> Poll<()> {
        moments.resize(self.inboxes.len(), None);
        for (inbox, moment) in self.inboxes.iter().zip(moments) {
            let (emptied, wake) = inbox.poll_emptied(moment, cx);
            wake.into_iter().for_each(Waker::wake);
            ready!(emptied);
        }
        Poll::Ready(())
    }

    /// Returns the counters of the endpoint and of the drivers.
    pub(super) fn counters(&self) -> Counters {
        let counters = self.tables(|tables| tables.counters());
        let received = |inbox: &Arc<Inbox>| inbox.counters().1;
        let received = counters.received + self.inboxes.iter().map(received).sum::<u64>();
        Counters { received, ..counters }
    }

    /// Returns the counters of the drivers' carriers.
    pub(super) fn traffic(&self) -> Traffic {
        let icmp = self.tables(|tables| tables.icmp());
        let traffic = self.inboxes.iter().map(|inbox| inbox.counters().0);
        traffic.fold(Traffic { icmp, ..Traffic::default() }, Traffic::plus)
    }

    /// Notes that a driver has ended, and wakes all tasks.
    pub(super) fn stop(&self, driver: usize) {
        self.stopped.store(true, Ordering::Release);
        let (_, flushers) = self.inboxes[driver].end();
        wake(flushers);
        self.tables(Tables::wake_all);
    }
}

/// What follows the drop of an association's last handle.
enum End {
    /// It is aborted.
    Abort,
    /// It has ended.
    Settle,
    /// It is being shut down.
    Later,
}

/// Wakes tasks.
pub(super) fn wake(mut waiters: Waiters) {
    waiters.take().for_each(Waker::wake);
}

/// The handle that all users of a stack share. When the last is dropped, the stack ends as soon as all its
/// associations have ended.
pub(super) struct Handle {
    pub(super) shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.tables(Tables::close);
    }
}
