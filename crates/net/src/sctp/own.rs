//! An association of our own protocol.

use super::core::{Core, Entry, Handle};
use super::error::Error;
use super::locals::check_scope;
use super::message::{Event, Message};
use super::waiters::{Wait, Waiters};
use bytes::Bytes;
use ringway_sansio::Time;
use ringway_sctp::{AssocId, Close, Received, Reset, SendOptions, Snapshot};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

/// Bytes read at once by `recv_many` before it is content.
const READ_AT_ONCE: usize = 64 << 10;

/// An association of our own protocol; dropped, it is shut down in order.
pub(super) struct Association {
    stack: Arc<Handle>,
    key: usize,
    id: AssocId,
}

impl Drop for Association {
    fn drop(&mut self) {
        self.stack.shared.with(|core| core.let_go(self.key));
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

    /// Why it is over, if it is.
    fn over(&self, core: &mut Core) -> Result<(), Error> {
        match &self.entry(core)?.closed {
            Some(why) => Err(Error::Closed(why.clone())),
            None => Ok(()),
        }
    }

    /// Somebody waits no more. Another may wait in the same task, which is woken to say so again.
    pub(super) fn give_up(&self, wait: Wait, waker: &Waker) {
        self.with(|core| core.give_up(self.key, wait, waker));
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
            entry.writers.add(cx);
            Poll::Pending
        })
    }

    pub(super) fn poll_send(
        &self,
        cx: &mut Context<'_>,
        data: &mut Bytes,
        options: &SendOptions,
    ) -> Poll<Result<(), Error>> {
        self.with(|core| match self.give(core, core.clock.now(), data, options) {
            Err(Error::Refused(ringway_sctp::Error::NoRoom { .. })) => {
                match self.entry(core) {
                    Ok(entry) => entry.writers.add(cx),
                    Err(error) => return Poll::Ready(Err(error)),
                }
                Poll::Pending
            }
            result => Poll::Ready(result),
        })
    }

    /// Gives a message to send if there is room for it now; if not, the error is
    /// [`ringway_sctp::Error::NoRoom`].
    pub(super) fn try_send(&self, mut data: Bytes, options: &SendOptions) -> Result<(), Error> {
        self.with(|core| self.give(core, core.clock.now(), &mut data, options))
    }

    pub(super) fn poll_send_many(
        &self,
        cx: &mut Context<'_>,
        messages: &mut VecDeque<(SendOptions, Bytes)>,
    ) -> Poll<Result<usize, Error>> {
        self.with(|core| {
            let mut given = 0;
            // Read once: it costs as much as to give a small message.
            let now = core.clock.now();
            while let Some((options, data)) = messages.front_mut() {
                match self.give(core, now, data, options) {
                    Ok(()) => {}
                    Err(_) if given > 0 => break,
                    Err(Error::Refused(ringway_sctp::Error::NoRoom { .. })) => {
                        match self.entry(core) {
                            Ok(entry) => entry.writers.add(cx),
                            Err(error) => return Poll::Ready(Err(error)),
                        }
                        return Poll::Pending;
                    }
                    Err(error) => return Poll::Ready(Err(error)),
                }
                messages.pop_front();
                given += 1;
            }
            Poll::Ready(Ok(given))
        })
    }

    fn give(
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
            // Closed ones are known by why they are.
            Err(error) => self.over(core).and(Err(error.into())),
        }
    }

    pub(super) fn poll_recv_into(
        &self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Poll<Result<Option<Received>, Error>> {
        self.with(|core| match self.take(core, out) {
            Ok(Some(received)) => Poll::Ready(Ok(Some(received))),
            Ok(None) => self.poll_over(core, cx, |entry| &mut entry.readers).map_ok(|()| None),
            Err(error) => Poll::Ready(Err(error)),
        })
    }

    pub(super) fn poll_recv_many(
        &self,
        cx: &mut Context<'_>,
        messages: &mut Vec<Message>,
        most: usize,
    ) -> Poll<Result<usize, Error>> {
        if most == 0 {
            return Poll::Ready(Ok(0));
        }
        let (mut bytes, mut taken) = (Vec::new(), Vec::new());
        ready!(self.poll_recv_many_into(cx, &mut bytes, &mut taken, most))?;
        let mut bytes = Bytes::from(bytes);
        let cut = |received: &Received| Message::new(received, bytes.split_to(received.len));
        messages.extend(taken.iter().map(cut));
        Poll::Ready(Ok(taken.len()))
    }

    pub(super) fn poll_recv_many_into(
        &self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        taken: &mut Vec<Received>,
        most: usize,
    ) -> Poll<Result<usize, Error>> {
        let (start, before) = (out.len(), taken.len());
        self.with(|core| {
            while taken.len() - before < most && out.len() - start < READ_AT_ONCE {
                match self.take(core, out) {
                    Ok(Some(received)) => taken.push(received),
                    Ok(None) => break,
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
            if taken.len() == before {
                return self.poll_over(core, cx, |entry| &mut entry.readers).map_ok(|()| 0);
            }
            Poll::Ready(Ok(taken.len() - before))
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
            // Over and read to its end.
            Err(ringway_sctp::Error::NoAssociation) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether it is over, which is an error unless it ended in order; if not, `waiters` hear of it.
    fn poll_over(
        &self,
        core: &mut Core,
        cx: &mut Context<'_>,
        waiters: impl FnOnce(&mut Entry) -> &mut Waiters,
    ) -> Poll<Result<(), Error>> {
        let entry = match self.entry(core) {
            Ok(entry) => entry,
            Err(error) => return Poll::Ready(Err(error)),
        };
        match &entry.closed {
            Some(Close::Finished) => Poll::Ready(Ok(())),
            Some(why) => Poll::Ready(Err(Error::Closed(why.clone()))),
            None => {
                waiters(entry).add(cx);
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
                    entry.watchers.add(cx);
                    Poll::Pending
                }
            }
        })
    }

    /// How it stands: state, paths, windows, and what was counted.
    pub(super) fn statistics(&self) -> Result<Snapshot, Error> {
        self.with(|core| {
            core.check()?;
            match core.sctp.snapshot(self.id) {
                Ok(snapshot) => Ok(snapshot),
                Err(error) => self.over(core).and(Err(error.into())),
            }
        })
    }

    /// The ports: ours and the peer's.
    pub(super) fn ports(&self) -> Result<(u16, u16), Error> {
        self.call(|core| core.sctp.ports(self.id))
    }

    /// Makes the path to an address of the peer the primary one.
    pub(super) fn set_primary(&self, remote: IpAddr) -> Result<(), Error> {
        self.call(|core| core.sctp.set_primary(self.id, remote))
    }

    /// Has an address of the peer asked now whether it is there.
    pub(super) fn request_heartbeat(&self, remote: IpAddr) -> Result<(), Error> {
        self.call(|core| core.sctp.request_heartbeat(self.id, remote))
    }

    /// Asks the peer to know us by one more address (RFC 5061); [`Event::Changed`] tells when it does.
    /// In UDP a socket is opened at it, unless there is one.
    pub(super) fn add_address(&self, local: IpAddr) -> Result<(), Error> {
        check_scope(&[local])?;
        self.with(|core| {
            let bound = match &core.locals {
                Some(locals) => locals.open(local)?,
                None => None,
            };
            self.call_in(core, |core| core.sctp.add_address(core.clock.now(), self.id, local))?;
            if let (Some(locals), Some(bound)) = (&mut core.locals, bound) {
                locals.keep(bound);
            }
            Ok(())
        })
    }

    /// Asks the peer to forget one of our addresses (RFC 5061).
    pub(super) fn delete_address(&self, local: IpAddr) -> Result<(), Error> {
        self.call(|core| core.sctp.delete_address(core.clock.now(), self.id, local))
    }

    /// Asks the peer to make the path to one of our addresses its primary one (RFC 5061).
    pub(super) fn ask_primary(&self, local: IpAddr) -> Result<(), Error> {
        self.call(|core| core.sctp.request_primary(core.clock.now(), self.id, local))
    }

    /// Begins streams anew (RFC 6525); [`Event::Changed`] tells when that is done.
    pub(super) fn reset_streams(&self, reset: Reset<'_>) -> Result<(), Error> {
        self.call(|core| core.sctp.reset_streams(self.id, reset))
    }

    /// Asks for more streams, ours and the peer's (RFC 6525).
    pub(super) fn add_streams(&self, outgoing: u16, incoming: u16) -> Result<(), Error> {
        self.call(|core| core.sctp.add_streams(self.id, outgoing, incoming))
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
                core.hear();
                core.kick();
                Ok(result)
            }
            Err(error) => self.over(core).and(Err(error.into())),
        }
    }

    /// Begins to end the association in order, without waiting for it.
    pub(super) fn begin_shutdown(&self) {
        self.with(|core| {
            if core.check().is_ok() {
                // Refused only if it is over, or nearly.
                let _ = core.sctp.shutdown(core.clock.now(), self.id);
                // Nothing more is taken, so nobody need wait for room.
                core.wake_writers(self.key);
                core.hear();
                core.kick();
            }
        });
    }

    /// Waits until the association is over; an error unless it ended in order.
    pub(super) fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.with(|core| self.poll_over(core, cx, |entry| &mut entry.writers))
    }

    /// Ends the association at once; what was not delivered is lost. The peer is told `reason`.
    pub(super) fn abort(&self, reason: &[u8]) -> Result<(), Error> {
        self.with(|core| core.abort(self.key, reason))
    }
}
