//! An association with the users' view of it, behind a lock of its own.
//!
//! The lock is held for the duration of one call or of one train of packets, never while a task waits.

use super::error::EndedError;
use super::inbox::Inbox;
use super::lock::{Guard, Lock, Rank};
use super::message::Event;
use super::view::View;
use super::waiters::{Wait, Wakes};
use bytes::Bytes;
use ringway_sansio::Time;
use ringway_sansio::time::sooner;
use ringway_sctp::wire::cause::code::USER_ABORT;
use ringway_sctp::{AssocId, Association, Close, ListenerId};
use std::sync::Arc;
use std::task::Waker;

/// An association of a stack.
pub(super) struct Member {
    pub(super) id: AssocId,
    /// The local port.
    pub(super) port: u16,
    /// The inbox of the driver that sends its packets and handles its time, and the number of that driver.
    pub(super) inbox: Arc<Inbox>,
    pub(super) driver: usize,
    state: Lock<MemberState>,
}

/// What the lock of an association protects.
pub(super) struct MemberState {
    pub(super) association: Association,
    pub(super) view: View,
    /// It is in its driver's inbox, or the driver has it in turn.
    queued: bool,
    /// Its number among the associations of its driver that have a deadline.
    seat: Option<u32>,
    /// When it is aborted, if its handles were dropped and its shutdown is not complete.
    linger: Option<Time>,
    /// The tables have noted its end.
    ended: bool,
    /// The tables no longer have it.
    released: bool,
    /// The listener in whose accept queue it waits.
    listener: Option<ListenerId>,
    wakes: Wakes,
}

impl Member {
    pub(super) fn new(
        id: AssocId,
        association: Association,
        (driver, inbox): (usize, Arc<Inbox>),
    ) -> Arc<Member> {
        let (port, _) = association.ports();
        let state = MemberState {
            association,
            view: View::default(),
            queued: false,
            seat: None,
            linger: None,
            ended: false,
            released: false,
            listener: None,
            wakes: Wakes::new(),
        };
        Arc::new(Member { id, port, inbox, driver, state: Lock::new(Rank::Association, state) })
    }

    /// Locks it. The caller wakes the tasks that [`MemberState::take_wakes`] returns.
    pub(super) fn lock(&self) -> Guard<'_, MemberState> {
        self.state.lock()
    }

    /// Calls `f` under the lock, then wakes tasks.
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut MemberState) -> R) -> R {
        let mut state = self.lock();
        let result = f(&mut state);
        let wakes = state.take_wakes();
        drop(state);
        wakes.into_iter().for_each(Waker::wake);
        result
    }

    /// Has its driver look at it, because it may have something to send or another deadline, or has ended.
    pub(super) fn queue(self: &Arc<Self>, state: &mut MemberState) {
        if !std::mem::replace(&mut state.queued, true) {
            state.wakes.extend(self.inbox.push(self.clone()));
        }
    }
}

impl MemberState {
    /// Removes and returns the tasks to wake.
    pub(super) fn take_wakes(&mut self) -> Wakes {
        std::mem::take(&mut self.wakes)
    }

    /// Notes that its driver has it in turn. Returns whether it had been noted before.
    pub(super) fn take_turn(&mut self) -> bool {
        std::mem::replace(&mut self.queued, true)
    }

    /// Notes that its driver has nothing to do for it.
    pub(super) fn end_turn(&mut self) {
        self.queued = false;
    }

    /// Dispatches the association's events to the users.
    pub(super) fn dispatch(&mut self) {
        use ringway_sctp::AssociationEvent as E;
        while let Some(event) = self.association.poll_event() {
            let (view, wakes) = (&mut self.view, &mut self.wakes);
            match event {
                E::Up => view.set_up(wakes),
                E::Readable if view.is_orphan() => self.discard(),
                E::Readable => view.wake(Wait::Read, wakes),
                E::Writable => view.wake(Wait::Write, wakes),
                E::Restarted => view.report(Event::Restarted, wakes),
                E::PeerShutdown => view.report(Event::PeerShutdown, wakes),
                E::Path { remote, state } => view.report(Event::Path { remote, state }, wakes),
                E::PeerError { code } => view.report(Event::PeerError { code }, wakes),
                E::Returned(message) => view.report(Event::Returned(message), wakes),
                E::SendFailed { messages } => view.report(Event::SendFailed { messages }, wakes),
                E::Changed(change) => view.report(Event::Changed(change), wakes),
                E::Closed(why) => {
                    view.close(why, wakes);
                    if view.is_orphan() {
                        self.discard();
                    }
                }
                _ => {}
            }
        }
    }

    /// Wakes the tasks that wait for a condition.
    pub(super) fn wake(&mut self, wait: Wait) {
        self.view.wake(wait, &mut self.wakes);
    }

    /// Wakes all tasks that wait.
    pub(super) fn wake_all(&mut self) {
        self.view.wake_all(&mut self.wakes);
    }

    /// Removes a task from those that wait, and wakes it.
    pub(super) fn cancel_wait(&mut self, wait: Wait, waker: &Waker) {
        self.view.cancel_wait(wait, waker, &mut self.wakes);
    }

    /// Reads and drops the messages of the association.
    pub(super) fn discard(&mut self) {
        let mut scratch = Vec::new();
        while self.association.recv(&mut scratch).is_some() {
            scratch.clear();
        }
    }

    /// Aborts the association, whose messages are lost.
    pub(super) fn abort(&mut self, reason: &[u8]) {
        self.dispatch();
        self.association.abort(reason);
        self.discard();
        let why = Close::Aborted { code: USER_ABORT, reason: Bytes::copy_from_slice(reason) };
        self.view.close(why, &mut self.wakes);
    }

    /// Drops what only users need, because there are none.
    pub(super) fn abandon(&mut self) {
        self.view.abandon();
        self.discard();
    }

    /// Has the association aborted at a time.
    pub(super) fn linger_until(&mut self, at: Time) {
        self.linger = Some(at);
    }

    /// Returns whether the association lingers no longer at this time.
    pub(super) fn take_linger(&mut self, now: Time) -> bool {
        self.linger.take_if(|at| *at <= now).is_some()
    }

    /// Returns when its driver has to look at it again.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        if self.released { None } else { sooner(self.association.poll_timeout(), self.linger) }
    }

    /// Returns whether the tables have to be updated, for which the lock has to be released first.
    pub(super) fn is_unsettled(&self) -> bool {
        !self.released
            && self.association.is_unsettled()
            && (!self.ended || self.association.is_spent())
    }

    /// Notes that the tables are updated.
    pub(super) fn settled(&mut self, released: bool) {
        self.ended |= self.view.closed().is_some();
        self.released |= released;
    }

    /// Returns whether the tables no longer have it.
    pub(super) fn is_released(&self) -> bool {
        self.released
    }

    /// Returns its number among the associations of its driver that have a deadline.
    pub(super) fn seat(&self) -> Option<u32> {
        self.seat
    }

    /// Sets the number that [`MemberState::seat`] returns.
    pub(super) fn set_seat(&mut self, seat: Option<u32>) {
        self.seat = seat;
    }

    /// Returns the listener in whose accept queue it waits.
    pub(super) fn listener(&self) -> Option<ListenerId> {
        self.listener
    }

    /// Notes that it waits in the accept queue of a listener.
    pub(super) fn wait_at(&mut self, listener: ListenerId) {
        self.listener = Some(listener);
        self.view.accept();
    }

    /// Notes that it was taken from the accept queue.
    pub(super) fn leave_listener(&mut self) {
        self.listener = None;
    }

    /// Returns an error if the association has ended.
    pub(super) fn check_open(&self) -> Result<(), EndedError> {
        self.view.closed().map_or(Ok(()), |why| Err(EndedError::Closed(why.clone())))
    }
}
