//! An association of the protocol in user space, `ringway-sctp`.

use super::core::{Core, Entry, Handle};
use super::error::Error;
use super::locals::check_scope;
use super::message::{Event, Message};
use super::waiters::Wait;
use bytes::Bytes;
use ringway_sansio::Time;
use ringway_sctp::{AssocId, Close, Received, Reset, SendOptions, Snapshot};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

/// Bytes after which `recv_many` reads no further message.
const READ_AT_ONCE: usize = 64 << 10;

/// An association of the protocol in user space. Dropping it shuts it down gracefully.
pub(super) struct Association {
    stack: Arc<Handle>,
    key: usize,
    id: AssocId,
}

impl Drop for Association {
    fn drop(&mut self) {
        self.stack.shared.with(|core| core.release(self.key));
    }
}

impl Association {
    pub(super) fn new(stack: Arc<Handle>, key: usize, id: AssocId) -> Association {
        Association { stack, key, id }
    }

    fn with<R>(&self, f: impl FnOnce(&mut Core) -> R) -> R {
        self.stack.shared.with(f)
    }

    fn entry<'a>(&self, core: &'a mut Core) -> Result<&'a mut Entry, Error> {
        core.check()?;
        core.entries.get_mut(self.key).ok_or(Error::Stopped)
    }

    /// Returns an error if the association has ended.
    fn check_open(&self, core: &mut Core) -> Result<(), Error> {
        match &self.entry(core)?.closed {
            Some(why) => Err(Error::Closed(why.clone())),
            None => Ok(()),
        }
    }

    /// Cancels a wait. The task is woken, because another of its futures may wait for the same condition.
    pub(super) fn cancel_wait(&self, wait: Wait, waker: &Waker) {
        self.with(|core| core.cancel_wait(self.key, wait, waker));
    }

    pub(super) fn poll_established(&self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.with(|core| {
            let entry = match self.entry(core) {
                Ok(entry) => entry,
                Err(error) => return Poll::Ready(Err(error)),
            };
            if entry.up {
                return Poll::Ready(Ok(()));
            }
            if let Some(why) = &entry.closed {
                return Poll::Ready(Err(Error::Closed(why.clone())));
            }
            entry.add_waiter(Wait::Write, cx);
            Poll::Pending
        })
    }

    pub(super) fn poll_send(
        &self,
        cx: &mut Context<'_>,
        data: &mut Bytes,
        options: &SendOptions,
    ) -> Poll<Result<(), Error>> {
        self.with(|core| match self.queue(core, core.clock.now(), data, options) {
            Err(Error::Refused(ringway_sctp::Error::NoRoom { .. })) => {
                match self.entry(core) {
                    Ok(entry) => entry.add_waiter(Wait::Write, cx),
                    Err(error) => return Poll::Ready(Err(error)),
                }
                Poll::Pending
            }
            result => Poll::Ready(result),
        })
    }

    /// Queues a message if there is room for it now. Otherwise the error is
    /// [`ringway_sctp::Error::NoRoom`].
    pub(super) fn try_send(&self, mut data: Bytes, options: &SendOptions) -> Result<(), Error> {
        self.with(|core| self.queue(core, core.clock.now(), &mut data, options))
    }

    pub(super) fn poll_send_many(
        &self,
        cx: &mut Context<'_>,
        messages: &mut VecDeque<(SendOptions, Bytes)>,
    ) -> Poll<Result<usize, Error>> {
        self.with(|core| {
            let mut queued = 0;
            // Read once: it costs as much as queuing a small message.
            let now = core.clock.now();
            while let Some((options, data)) = messages.front_mut() {
                match self.queue(core, now, data, options) {
                    Ok(()) => {}
                    Err(_) if queued > 0 => break,
                    Err(Error::Refused(ringway_sctp::Error::NoRoom { .. })) => {
                        match self.entry(core) {
                            Ok(entry) => entry.add_waiter(Wait::Write, cx),
                            Err(error) => return Poll::Ready(Err(error)),
                        }
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
        core: &mut Core,
        now: Time,
        data: &mut Bytes,
        options: &SendOptions,
    ) -> Result<(), Error> {
        match core.sctp.send(now, self.id, options, data.clone()) {
            Ok(()) => {
                *data = Bytes::new();
                core.kick();
                Ok(())
            }
            // The reason of its end is more precise.
            Err(error) => self.check_open(core).and(Err(error.into())),
        }
    }

    pub(super) fn poll_recv_into(
        &self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Poll<Result<Option<Received>, Error>> {
        self.with(|core| match self.take(core, out) {
            Ok(Some(received)) => Poll::Ready(Ok(Some(received))),
            Ok(None) => self.poll_end(core, cx, Wait::Read).map_ok(|()| None),
            Err(error) => Poll::Ready(Err(error)),
        })
    }

    pub(super) fn poll_recv_many(
        &self,
        cx: &mut Context<'_>,
        messages: &mut Vec<Message>,
        max_messages: usize,
    ) -> Poll<Result<usize, Error>> {
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
    ) -> Poll<Result<usize, Error>> {
        let (start, before) = (out.len(), received.len());
        self.with(|core| {
            while received.len() - before < max_messages && out.len() - start < READ_AT_ONCE {
                match self.take(core, out) {
                    Ok(Some(one)) => received.push(one),
                    Ok(None) => break,
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
            if received.len() == before {
                return self.poll_end(core, cx, Wait::Read).map_ok(|()| 0);
            }
            Poll::Ready(Ok(received.len() - before))
        })
    }

    fn take(&self, core: &mut Core, out: &mut Vec<u8>) -> Result<Option<Received>, Error> {
        core.check()?;
        match core.sctp.recv(self.id, out) {
            Ok(received) => {
                if received.is_some() {
                    // The window may have opened.
                    core.kick();
                }
                Ok(received)
            }
            // It has ended and everything is read.
            Err(ringway_sctp::Error::NoAssociation) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for the end of the association, among the tasks that `wait` names. Returns an error unless it was shut down
    /// gracefully.
    fn poll_end(
        &self,
        core: &mut Core,
        cx: &mut Context<'_>,
        wait: Wait,
    ) -> Poll<Result<(), Error>> {
        let entry = match self.entry(core) {
            Ok(entry) => entry,
            Err(error) => return Poll::Ready(Err(error)),
        };
        match &entry.closed {
            Some(Close::Finished) => Poll::Ready(Ok(())),
            Some(why) => Poll::Ready(Err(Error::Closed(why.clone()))),
            None => {
                entry.add_waiter(wait, cx);
                Poll::Pending
            }
        }
    }

    pub(super) fn poll_event(&self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.with(|core| {
            let Ok(entry) = self.entry(core) else { return Poll::Ready(None) };
            match entry.take_event() {
                Some(event) => Poll::Ready(Some(event)),
                None if entry.closed.is_some() => Poll::Ready(None),
                None => {
                    entry.add_waiter(Wait::Event, cx);
                    Poll::Pending
                }
            }
        })
    }

    /// Returns the state, the paths, the windows and the counters.
    pub(super) fn statistics(&self) -> Result<Snapshot, Error> {
        self.with(|core| {
            core.check()?;
            match core.sctp.snapshot(self.id) {
                Ok(snapshot) => Ok(snapshot),
                Err(error) => self.check_open(core).and(Err(error.into())),
            }
        })
    }

    /// Returns the local port and the peer's.
    pub(super) fn ports(&self) -> Result<(u16, u16), Error> {
        self.call(|core| core.sctp.ports(self.id))
    }

    /// Makes the path to an address of the peer the primary one.
    pub(super) fn set_primary(&self, remote: IpAddr) -> Result<(), Error> {
        self.call(|core| core.sctp.set_primary(self.id, remote))
    }

    /// Sends a HEARTBEAT to an address of the peer now.
    pub(super) fn request_heartbeat(&self, remote: IpAddr) -> Result<(), Error> {
        self.call(|core| core.sctp.request_heartbeat(self.id, remote))
    }

    /// Asks the peer to add a local address (RFC 5061); [`Event::Changed`] reports when it has. In UDP a
    /// socket is opened at the address unless there is one.
    pub(super) fn add_address(&self, local: IpAddr) -> Result<(), Error> {
        check_scope(&[local])?;
        self.with(|core| {
            let bound = core.open_local(local)?;
            self.call_in(core, |core| core.sctp.add_address(core.clock.now(), self.id, local))?;
            core.keep_local(bound);
            Ok(())
        })
    }

    /// Asks the peer to delete a local address (RFC 5061).
    pub(super) fn delete_address(&self, local: IpAddr) -> Result<(), Error> {
        self.call(|core| core.sctp.delete_address(core.clock.now(), self.id, local))
    }

    /// Asks the peer to make the path to a local address its primary one (RFC 5061).
    pub(super) fn ask_primary(&self, local: IpAddr) -> Result<(), Error> {
        self.call(|core| core.sctp.request_primary(core.clock.now(), self.id, local))
    }

    /// Resets streams (RFC 6525); [`Event::Changed`] reports when that is done.
    pub(super) fn reset_streams(&self, reset: Reset<'_>) -> Result<(), Error> {
        self.call(|core| core.sctp.reset_streams(self.id, reset))
    }

    /// Requests more streams, outgoing and incoming (RFC 6525).
    pub(super) fn add_streams(&self, outgoing: u16, incoming: u16) -> Result<(), Error> {
        self.call(|core| core.sctp.add_streams(self.id, outgoing, incoming))
    }

    /// Sets an endpoint pair shared key (RFC 4895).
    pub(super) fn set_auth_key(&self, key: u16, secret: &[u8]) -> Result<(), Error> {
        self.call(|core| core.sctp.set_auth_key(self.id, key, secret))
    }

    /// Authenticates with a key from now on.
    pub(super) fn use_auth_key(&self, key: u16) -> Result<(), Error> {
        self.call(|core| core.sctp.use_auth_key(self.id, key))
    }

    /// Deletes a key.
    pub(super) fn delete_auth_key(&self, key: u16) -> Result<(), Error> {
        self.call(|core| core.sctp.delete_auth_key(self.id, key))
    }

    /// Sets the scheduler's value of a stream (RFC 8260).
    pub(super) fn set_stream_value(&self, stream: u16, value: u16) -> Result<(), Error> {
        self.call(|core| core.sctp.set_stream_value(self.id, stream, value))
    }

    fn call<R>(
        &self,
        f: impl FnOnce(&mut Core) -> Result<R, ringway_sctp::Error>,
    ) -> Result<R, Error> {
        self.with(|core| self.call_in(core, f))
    }

    fn call_in<R>(
        &self,
        core: &mut Core,
        f: impl FnOnce(&mut Core) -> Result<R, ringway_sctp::Error>,
    ) -> Result<R, Error> {
        core.check()?;
        match f(core) {
            Ok(result) => {
                core.dispatch();
                core.kick();
                Ok(result)
            }
            Err(error) => self.check_open(core).and(Err(error.into())),
        }
    }

    /// Begins a graceful shutdown without waiting for its end.
    pub(super) fn begin_shutdown(&self) {
        self.with(|core| {
            if core.check().is_ok() {
                // Refused only if it has ended or is shutting down.
                let _ = core.sctp.shutdown(core.clock.now(), self.id);
                // No more messages are accepted, so no task needs to wait for room.
                core.wake_writers(self.key);
                core.dispatch();
                core.kick();
            }
        });
    }

    /// Waits for the end of the association. Returns an error unless it was shut down gracefully.
    pub(super) fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.with(|core| self.poll_end(core, cx, Wait::Write))
    }

    /// Aborts the association; undelivered data is lost. The ABORT carries `reason`.
    pub(super) fn abort(&self, reason: &[u8]) -> Result<(), Error> {
        self.with(|core| core.abort(self.key, reason))
    }
}
