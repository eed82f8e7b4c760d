//! An association in the hands of a program.

use super::core::{Core, Entry};
use super::error::Error;
use super::message::{Event, Message};
use super::stack::Handle;
use bytes::Bytes;
use ringway_sctp::{AssocId, Close, PathSnapshot, Received, Reset, SendOptions, Snapshot};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Bytes read at once by [`Association::recv_many`] before it is content.
const READ_AT_ONCE: usize = 64 << 10;

/// An association. Clones are handles of the same one, for tasks that send and tasks that receive;
/// when the last is dropped it is shut down in order, and what still comes is dropped.
///
/// Nothing is received ahead of the reader: what is not read stays in the protocol's receive
/// buffer, and once that is full the peer's window is closed.
#[derive(Clone)]
pub struct Association(Arc<Inner>);

struct Inner {
    stack: Arc<Handle>,
    key: usize,
    id: AssocId,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stack.shared.with(|core| core.let_go(self.key));
    }
}

impl fmt::Debug for Association {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Association").field(&self.0.id).finish()
    }
}

impl Association {
    pub(super) fn new(stack: Arc<Handle>, key: usize, id: AssocId) -> Association {
        Association(Arc::new(Inner { stack, key, id }))
    }

    fn with<R>(&self, f: impl FnOnce(&mut Core) -> R) -> R {
        self.0.stack.shared.with(f)
    }

    fn entry<'a>(&self, core: &'a mut Core) -> Result<&'a mut Entry, Error> {
        core.check()?;
        core.entries.get_mut(self.0.key).ok_or(Error::Stopped)
    }

    /// Why it is over, if it is.
    fn over(&self, core: &mut Core) -> Result<(), Error> {
        match &self.entry(core)?.closed {
            Some(why) => Err(Error::Closed(why.clone())),
            None => Ok(()),
        }
    }

    /// Waits until the association is established.
    pub async fn established(&self) -> Result<(), Error> {
        poll_fn(|cx| self.poll_established(cx)).await
    }

    /// As [`Association::established`].
    pub fn poll_established(&self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
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

    /// Gives a message to send, and waits until there is room for it in the send buffer. Its bytes
    /// are kept until they are acknowledged, not copied.
    pub async fn send(&self, data: impl Into<Bytes>, options: &SendOptions) -> Result<(), Error> {
        let mut data = data.into();
        poll_fn(|cx| self.poll_send(cx, &mut data, options)).await
    }

    /// As [`Association::send`]. Takes the bytes out of `data` when it is ready without an error.
    pub fn poll_send(
        &self,
        cx: &mut Context<'_>,
        data: &mut Bytes,
        options: &SendOptions,
    ) -> Poll<Result<(), Error>> {
        self.with(|core| match self.give(core, data, options) {
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
    pub fn try_send(&self, data: impl Into<Bytes>, options: &SendOptions) -> Result<(), Error> {
        let mut data = data.into();
        self.with(|core| self.give(core, &mut data, options))
    }

    /// Gives messages from the front of `messages`, as many as there is room for, and waits until
    /// that is at least one. Gives how many. An error is of the message that is then in front.
    pub async fn send_many(
        &self,
        messages: &mut VecDeque<(SendOptions, Bytes)>,
    ) -> Result<usize, Error> {
        poll_fn(|cx| self.poll_send_many(cx, messages)).await
    }

    /// As [`Association::send_many`].
    pub fn poll_send_many(
        &self,
        cx: &mut Context<'_>,
        messages: &mut VecDeque<(SendOptions, Bytes)>,
    ) -> Poll<Result<usize, Error>> {
        self.with(|core| {
            let mut given = 0;
            while let Some((options, data)) = messages.front_mut() {
                match self.give(core, data, options) {
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

    fn give(&self, core: &mut Core, data: &mut Bytes, options: &SendOptions) -> Result<(), Error> {
        match core.sctp.send(core.clock.now(), self.0.id, options, data.clone()) {
            Ok(()) => {
                *data = Bytes::new();
                core.kick();
                Ok(())
            }
            // Closed ones are known by why they are.
            Err(error) => self.over(core).and(Err(error.into())),
        }
    }

    /// Receives the next message, or part of a very large one. `None` once the association has
    /// ended in order and all is read.
    pub async fn recv(&self) -> Result<Option<Message>, Error> {
        let mut bytes = Vec::new();
        let received = poll_fn(|cx| self.poll_recv_into(cx, &mut bytes)).await?;
        Ok(received.map(|received| Message::new(&received, bytes.into())))
    }

    /// Receives the next message, or part of one, appending its bytes to `out`: for readers that
    /// use one buffer again and again.
    pub async fn recv_into(&self, out: &mut Vec<u8>) -> Result<Option<Received>, Error> {
        poll_fn(|cx| self.poll_recv_into(cx, out)).await
    }

    /// As [`Association::recv_into`].
    pub fn poll_recv_into(
        &self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Poll<Result<Option<Received>, Error>> {
        self.with(|core| match self.take(core, out) {
            Ok(Some(received)) => Poll::Ready(Ok(Some(received))),
            Ok(None) => self.nothing(core, cx).map_ok(|()| None),
            Err(error) => Poll::Ready(Err(error)),
        })
    }

    /// Receives at least one message and at most `most`, as far as they are there; they are
    /// appended to `messages` and share one allocation. Gives how many: none once the association
    /// has ended in order and all is read.
    pub async fn recv_many(
        &self,
        messages: &mut Vec<Message>,
        most: usize,
    ) -> Result<usize, Error> {
        poll_fn(|cx| self.poll_recv_many(cx, messages, most)).await
    }

    /// As [`Association::recv_many`].
    pub fn poll_recv_many(
        &self,
        cx: &mut Context<'_>,
        messages: &mut Vec<Message>,
        most: usize,
    ) -> Poll<Result<usize, Error>> {
        if most == 0 {
            return Poll::Ready(Ok(0));
        }
        let mut bytes = Vec::new();
        let mut taken: SmallVec<[Received; 64]> = SmallVec::new();
        let result = self.with(|core| {
            while taken.len() < most && bytes.len() < READ_AT_ONCE {
                match self.take(core, &mut bytes) {
                    Ok(Some(received)) => taken.push(received),
                    Ok(None) => break,
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
            if taken.is_empty() { self.nothing(core, cx) } else { Poll::Ready(Ok(())) }
        });
        ready!(result)?;
        let mut bytes = Bytes::from(bytes);
        let cut = |received: &Received| Message::new(received, bytes.split_to(received.len));
        messages.extend(taken.iter().map(cut));
        Poll::Ready(Ok(taken.len()))
    }

    fn take(&self, core: &mut Core, out: &mut Vec<u8>) -> Result<Option<Received>, Error> {
        core.check()?;
        match core.sctp.recv(self.0.id, out) {
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

    /// There is nothing to read: that is the end, or there will be.
    fn nothing(&self, core: &mut Core, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let entry = match self.entry(core) {
            Ok(entry) => entry,
            Err(error) => return Poll::Ready(Err(error)),
        };
        match &entry.closed {
            Some(Close::Finished) => Poll::Ready(Ok(())),
            Some(why) => Poll::Ready(Err(Error::Closed(why.clone()))),
            None => {
                entry.readers.add(cx);
                Poll::Pending
            }
        }
    }

    /// The next event. `None` after [`Event::Closed`].
    pub async fn event(&self) -> Option<Event> {
        poll_fn(|cx| self.poll_event(cx)).await
    }

    /// As [`Association::event`].
    pub fn poll_event(&self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
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
    pub fn statistics(&self) -> Result<Snapshot, Error> {
        self.with(|core| {
            core.check()?;
            match core.sctp.snapshot(self.0.id) {
                Ok(snapshot) => Ok(snapshot),
                Err(error) => self.over(core).and(Err(error.into())),
            }
        })
    }

    /// Its paths: the peer's addresses with ours, and how each stands.
    pub fn paths(&self) -> Result<Vec<PathSnapshot>, Error> {
        Ok(self.statistics()?.paths)
    }

    /// The ports: ours and the peer's.
    pub fn ports(&self) -> Result<(u16, u16), Error> {
        self.call(|core| core.sctp.ports(self.0.id))
    }

    /// Makes the path to an address of the peer the primary one.
    pub fn set_primary(&self, remote: IpAddr) -> Result<(), Error> {
        self.call(|core| core.sctp.set_primary(self.0.id, remote))
    }

    /// Has an address of the peer asked now whether it is there.
    pub fn request_heartbeat(&self, remote: IpAddr) -> Result<(), Error> {
        self.call(|core| core.sctp.request_heartbeat(self.0.id, remote))
    }

    /// Asks the peer to know us by one more address (RFC 5061); [`Event::Changed`] tells when it does.
    /// In UDP with a socket for each address, only those of the stack can be sent from.
    pub fn add_address(&self, local: IpAddr) -> Result<(), Error> {
        self.call(|core| core.sctp.add_address(core.clock.now(), self.0.id, local))
    }

    /// Asks the peer to forget one of our addresses (RFC 5061).
    pub fn delete_address(&self, local: IpAddr) -> Result<(), Error> {
        self.call(|core| core.sctp.delete_address(core.clock.now(), self.0.id, local))
    }

    /// Asks the peer to make the path to one of our addresses its primary one (RFC 5061).
    pub fn ask_primary(&self, local: IpAddr) -> Result<(), Error> {
        self.call(|core| core.sctp.ask_primary(core.clock.now(), self.0.id, local))
    }

    /// Begins streams anew (RFC 6525); [`Event::Changed`] tells when that is done.
    pub fn reset_streams(&self, reset: Reset<'_>) -> Result<(), Error> {
        self.call(|core| core.sctp.reset_streams(self.0.id, reset))
    }

    /// Asks for more streams, ours and the peer's (RFC 6525).
    pub fn add_streams(&self, outgoing: u16, incoming: u16) -> Result<(), Error> {
        self.call(|core| core.sctp.add_streams(self.0.id, outgoing, incoming))
    }

    fn call<R>(
        &self,
        f: impl FnOnce(&mut Core) -> Result<R, ringway_sctp::Error>,
    ) -> Result<R, Error> {
        self.with(|core| {
            core.check()?;
            match f(core) {
                Ok(result) => {
                    core.hear();
                    core.kick();
                    Ok(result)
                }
                Err(error) => self.over(core).and(Err(error.into())),
            }
        })
    }

    /// Ends the association in order: everything given is delivered first. Waits for the end.
    pub async fn shutdown(&self) -> Result<(), Error> {
        self.begin_shutdown();
        poll_fn(|cx| self.poll_closed(cx)).await
    }

    /// Begins to end the association in order, without waiting for it.
    pub fn begin_shutdown(&self) {
        self.with(|core| {
            if core.check().is_ok() {
                // Refused only if it is over, or nearly.
                let _ = core.sctp.shutdown(core.clock.now(), self.0.id);
                core.hear();
                core.kick();
            }
        });
    }

    /// Waits until the association is over; an error unless it ended in order.
    pub fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.with(|core| {
            let entry = match self.entry(core) {
                Ok(entry) => entry,
                Err(error) => return Poll::Ready(Err(error)),
            };
            match &entry.closed {
                Some(Close::Finished) => Poll::Ready(Ok(())),
                Some(why) => Poll::Ready(Err(Error::Closed(why.clone()))),
                None => {
                    entry.writers.add(cx);
                    Poll::Pending
                }
            }
        })
    }

    /// Ends the association at once; what was not delivered is lost. The peer is told `reason`.
    pub fn abort(&self, reason: &[u8]) -> Result<(), Error> {
        self.with(|core| core.abort(self.0.key, reason))
    }
}
