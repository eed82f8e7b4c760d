//! An association of the protocol in user space, `ringway-sctp`.

use super::core::Handle;
use super::error::{AddAddressError, CallError, EndedError, SendError, Stopped};
use super::locals::check_scope;
use super::member::{Member, MemberState};
use super::message::{Event, Message};
use super::waiters::Wait;
use bytes::Bytes;
use ringway_sansio::Time;
use ringway_sctp::wire::asconf::AddressChange;
use ringway_sctp::{self as refusal, Close, Received, Reset, SendOptions, Snapshot};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

/// Bytes after which `recv_many` reads no further message.
const READ_AT_ONCE: usize = 64 << 10;

/// An association of the protocol in user space. Dropping it shuts it down gracefully.
pub(super) struct Association {
    stack: Arc<Handle>,
    member: Arc<Member>,
}

impl Drop for Association {
    fn drop(&mut self) {
        self.stack.shared.release(&self.member);
    }
}

impl Association {
    pub(super) fn new(stack: Arc<Handle>, member: Arc<Member>) -> Association {
        Association { stack, member }
    }

    /// Calls `f` with the association, and updates the stack's tables if it has ended or its addresses have changed.
    fn with<R>(&self, f: impl FnOnce(&mut MemberState) -> R) -> R {
        let call = |state: &mut MemberState| {
            let result = f(state);
            (result, state.is_unsettled())
        };
        let (result, unsettled) = self.member.with(call);
        if unsettled {
            self.stack.shared.settle(&self.member);
        }
        result
    }

    fn now(&self) -> Time {
        self.stack.shared.clock.now()
    }

    /// Returns an error if the stack has stopped.
    fn check(&self) -> Result<(), Stopped> {
        self.stack.shared.check()
    }

    /// Cancels a wait. The task is woken, because another of its futures may wait for the same condition.
    pub(super) fn cancel_wait(&self, wait: Wait, waker: &Waker) {
        self.with(|state| state.cancel_wait(wait, waker));
    }

    pub(super) fn poll_established(&self, cx: &mut Context<'_>) -> Poll<Result<(), EndedError>> {
        self.with(|state| {
            self.check()?;
            if state.view.is_up() {
                return Poll::Ready(Ok(()));
            }
            state.check_open()?;
            state.view.add_waiter(Wait::Write, cx);
            Poll::Pending
        })
    }

    pub(super) fn poll_send(
        &self,
        cx: &mut Context<'_>,
        data: &mut Bytes,
        options: &SendOptions,
    ) -> Poll<Result<(), SendError>> {
        let now = self.now();
        self.with(|state| match self.queue(state, now, data, options) {
            Err(CallError::Refused(refusal::SendError::NoRoom { .. })) => {
                state.view.add_waiter(Wait::Write, cx);
                Poll::Pending
            }
            result => Poll::Ready(result),
        })
    }

    /// Queues a message if there is room for it now. Otherwise the error is
    /// [`refusal::SendError::NoRoom`].
    pub(super) fn try_send(&self, mut data: Bytes, options: &SendOptions) -> Result<(), SendError> {
        let now = self.now();
        self.with(|state| self.queue(state, now, &mut data, options))
    }

    pub(super) fn poll_send_many(
        &self,
        cx: &mut Context<'_>,
        messages: &mut VecDeque<(SendOptions, Bytes)>,
    ) -> Poll<Result<usize, SendError>> {
        // Read once: it costs as much as queuing a small message.
        let now = self.now();
        self.with(|state| {
            let mut queued = 0;
            while let Some((options, data)) = messages.front_mut() {
                match self.queue(state, now, data, options) {
                    Ok(()) => {}
                    Err(_) if queued > 0 => break,
                    Err(CallError::Refused(refusal::SendError::NoRoom { .. })) => {
                        state.view.add_waiter(Wait::Write, cx);
                        return Poll::Pending;
                    }
                    Err(error) => return Poll::Ready(Err(error)),
                }
                messages.pop_front();
                queued += 1;
            }
            Poll::Ready(Ok(queued))
        })
    }

    fn queue(
        &self,
        state: &mut MemberState,
        now: Time,
        data: &mut Bytes,
        options: &SendOptions,
    ) -> Result<(), SendError> {
        self.check()?;
        match state.association.send(now, options, data.clone()) {
            Ok(()) => {
                *data = Bytes::new();
                self.member.queue(state);
                Ok(())
            }
            // The reason of its end is more precise.
            Err(error) => {
                state.check_open()?;
                Err(CallError::Refused(error))
            }
        }
    }

    pub(super) fn poll_recv_into(
        &self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Poll<Result<Option<Received>, EndedError>> {
        self.with(|state| match self.take(state, out)? {
            Some(received) => Poll::Ready(Ok(Some(received))),
            None => poll_end(state, cx, Wait::Read).map_ok(|()| None),
        })
    }

    pub(super) fn poll_recv_many(
        &self,
        cx: &mut Context<'_>,
        messages: &mut Vec<Message>,
        max_messages: usize,
    ) -> Poll<Result<usize, EndedError>> {
        if max_messages == 0 {
            return Poll::Ready(Ok(0));
        }
        let (mut bytes, mut received) = (Vec::new(), Vec::new());
        ready!(self.poll_recv_many_into(cx, &mut bytes, &mut received, max_messages))?;
        let mut bytes = Bytes::from(bytes);
        let cut = |received: &Received| Message::new(received, bytes.split_to(received.len));
        messages.extend(received.iter().map(cut));
        Poll::Ready(Ok(received.len()))
    }

    pub(super) fn poll_recv_many_into(
        &self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        received: &mut Vec<Received>,
        max_messages: usize,
    ) -> Poll<Result<usize, EndedError>> {
        let (start, before) = (out.len(), received.len());
        self.with(|state| {
            while received.len() - before < max_messages && out.len() - start < READ_AT_ONCE {
                match self.take(state, out)? {
                    Some(one) => received.push(one),
                    None => break,
                }
            }
            if received.len() == before {
                return poll_end(state, cx, Wait::Read).map_ok(|()| 0);
            }
            Poll::Ready(Ok(received.len() - before))
        })
    }

    fn take(
        &self,
        state: &mut MemberState,
        out: &mut Vec<u8>,
    ) -> Result<Option<Received>, EndedError> {
        self.check()?;
        let received = state.association.recv(out);
        if received.is_some() && state.association.owes_ack() {
            // The window has opened.
            self.member.queue(state);
        }
        Ok(received)
    }

    pub(super) fn poll_event(&self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.with(|state| {
            if self.check().is_err() {
                return Poll::Ready(None);
            }
            match state.view.take_event() {
                Some(event) => Poll::Ready(Some(event)),
                None if state.view.closed().is_some() => Poll::Ready(None),
                None => {
                    state.view.add_waiter(Wait::Event, cx);
                    Poll::Pending
                }
            }
        })
    }

    /// Returns the state, the paths, the windows and the counters.
    pub(super) fn statistics(&self) -> Result<Snapshot, EndedError> {
        self.read(|state| state.association.snapshot())
    }

    /// Returns the local port and the peer's.
    pub(super) fn ports(&self) -> Result<(u16, u16), EndedError> {
        self.read(|state| state.association.ports())
    }

    /// Reads something of the association, until it has ended and everything is read.
    fn read<R>(&self, read: impl FnOnce(&MemberState) -> R) -> Result<R, EndedError> {
        self.with(|state| {
            self.check()?;
            if state.is_released() {
                state.check_open()?;
            }
            Ok(read(state))
        })
    }

    /// Makes the path to an address of the peer the primary one.
    pub(super) fn set_primary(&self, remote: IpAddr) -> Result<(), CallError<refusal::NoPath>> {
        self.call(|state| state.association.set_primary(remote))
    }

    /// Sends a HEARTBEAT to an address of the peer now.
    pub(super) fn request_heartbeat(
        &self,
        remote: IpAddr,
    ) -> Result<(), CallError<refusal::NoPath>> {
        self.call(|state| state.association.request_heartbeat(remote))
    }

    /// Asks the peer to add a local address (RFC 5061); [`Event::Changed`] reports when it has. In UDP
    /// sockets are opened at the address unless there are some.
    pub(super) fn add_address(&self, local: IpAddr) -> Result<(), AddAddressError> {
        check_scope(&[local])?;
        self.check().map_err(CallError::<refusal::AddressError>::from)?;
        let shared = &self.stack.shared;
        shared.tables(|tables| {
            let bound = tables.open_local(local)?;
            tables.call(&self.member, |state| {
                shared.call(state, |x, cx| x.change_address(cx, AddressChange::Add(local)))
            })?;
            tables.keep_local(bound);
            Ok(())
        })
    }

    /// Asks the peer to delete a local address (RFC 5061).
    pub(super) fn delete_address(
        &self,
        local: IpAddr,
    ) -> Result<(), CallError<refusal::AddressError>> {
        self.change_address(AddressChange::Delete(local))
    }

    /// Asks the peer to make the path to a local address its primary one (RFC 5061).
    pub(super) fn ask_primary(
        &self,
        local: IpAddr,
    ) -> Result<(), CallError<refusal::AddressError>> {
        self.change_address(AddressChange::Primary(local))
    }

    fn change_address(
        &self,
        change: AddressChange,
    ) -> Result<(), CallError<refusal::AddressError>> {
        let shared = &self.stack.shared;
        self.call(|state| shared.call(state, |x, cx| x.change_address(cx, change)))
    }

    /// Resets streams (RFC 6525); [`Event::Changed`] reports when that is done.
    pub(super) fn reset_streams(
        &self,
        reset: Reset<'_>,
    ) -> Result<(), CallError<refusal::StreamError>> {
        self.call(|state| state.association.reset_streams(reset))
    }

    /// Requests more streams, outgoing and incoming (RFC 6525).
    pub(super) fn add_streams(
        &self,
        outgoing: u16,
        incoming: u16,
    ) -> Result<(), CallError<refusal::StreamError>> {
        self.call(|state| state.association.add_streams(outgoing, incoming))
    }

    /// Sets an endpoint pair shared key (RFC 4895).
    pub(super) fn set_auth_key(
        &self,
        key: u16,
        secret: &[u8],
    ) -> Result<(), CallError<refusal::SetKeyError>> {
        self.call(|state| state.association.set_auth_key(key, secret))
    }

    /// Authenticates with a key from now on.
    pub(super) fn use_auth_key(&self, key: u16) -> Result<(), CallError<refusal::KeyError>> {
        self.call(|state| state.association.use_auth_key(key))
    }

    /// Deletes a key.
    pub(super) fn delete_auth_key(&self, key: u16) -> Result<(), CallError<refusal::KeyError>> {
        self.call(|state| state.association.delete_auth_key(key))
    }

    /// Sets the scheduler's value of a stream (RFC 8260).
    pub(super) fn set_stream_value(
        &self,
        stream: u16,
        value: u16,
    ) -> Result<(), CallError<refusal::NoStream>> {
        self.call(|state| state.association.set_stream_value(stream, value))
    }

    /// Calls the association unless it has ended, and has its driver look at it.
    fn call<R, E: std::error::Error + 'static>(
        &self,
        f: impl FnOnce(&mut MemberState) -> Result<R, E>,
    ) -> Result<R, CallError<E>> {
        self.with(|state| {
            self.check()?;
            state.check_open()?;
            let result = f(state).map_err(CallError::Refused)?;
            state.dispatch();
            self.member.queue(state);
            Ok(result)
        })
    }

    /// Begins a graceful shutdown without waiting for its end.
    pub(super) fn begin_shutdown(&self) {
        let shared = &self.stack.shared;
        self.with(|state| {
            if self.check().is_ok() && state.check_open().is_ok() {
                shared.call(state, |association, cx| association.shutdown(cx));
                // No more messages are accepted, so no task needs to wait for room.
                state.wake(Wait::Write);
                state.dispatch();
                self.member.queue(state);
            }
        });
    }

    /// Waits for the end of the association. Returns an error unless it was shut down gracefully.
    pub(super) fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<Result<(), EndedError>> {
        self.with(|state| {
            self.check()?;
            poll_end(state, cx, Wait::Write)
        })
    }

    /// Aborts the association; undelivered data is lost. The ABORT carries `reason`.
    pub(super) fn abort(&self, reason: &[u8]) -> Result<(), EndedError> {
        self.check()?;
        self.stack.shared.tables(|tables| tables.abort(&self.member, reason));
        Ok(())
    }
}

/// Waits for the end of the association, among the tasks that `wait` names. Returns an error unless it was shut down
/// gracefully.
fn poll_end(state: &mut MemberState, cx: &Context<'_>, wait: Wait) -> Poll<Result<(), EndedError>> {
    match state.view.closed() {
        Some(Close::Finished) => Poll::Ready(Ok(())),
        Some(why) => Poll::Ready(Err(EndedError::Closed(why.clone()))),
        None => {
            state.view.add_waiter(wait, cx);
            Poll::Pending
        }
    }
}
