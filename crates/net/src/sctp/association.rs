//! An association in the hands of a program.

use super::error::Error;
use super::message::{Event, Message};
use super::waiters::Wait;
use super::{kernel, own};
use bytes::Bytes;
use ringway_sctp::{PathSnapshot, Received, Reset, SendOptions, Snapshot};
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

/// An association. Clones are handles of the same one, for tasks that send and tasks that receive;
/// when the last is dropped it is shut down in order, and what still comes is dropped.
///
/// Nothing is received ahead of the reader: what is not read stays in the protocol's receive
/// buffer, and once that is full the peer's window is closed.
#[derive(Clone)]
pub struct Association(Kind);

#[derive(Clone)]
enum Kind {
    Own(Arc<own::Association>),
    Kernel(Arc<kernel::Association>),
}

/// The same call of whichever it is.
macro_rules! call {
    ($self:ident.$name:ident($($argument:expr),*)) => {
        match &$self.0 {
            Kind::Own(association) => association.$name($($argument),*),
            Kind::Kernel(association) => association.$name($($argument),*),
        }
    };
}

impl fmt::Debug for Association {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Association").field(&self.ports().ok()).finish()
    }
}

/// Somebody waits who may give up, as in a `select!` or by a time-out; then nobody need be woken.
struct Waiting<'a> {
    association: &'a own::Association,
    wait: Wait,
    waker: Option<Waker>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(waker) = &self.waker {
            self.association.give_up(self.wait, waker);
        }
    }
}

impl Association {
    /// Polls until it is ready, and is forgotten when it is dropped before.
    async fn wait<T>(&self, wait: Wait, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
        let Kind::Own(association) = &self.0 else { return poll_fn(poll).await };
        let mut waiting = Waiting { association, wait, waker: None };
        poll_fn(move |cx| {
            let result = poll(cx);
            match (&result, &mut waiting.waker) {
                (Poll::Ready(_), waker) => *waker = None,
                (Poll::Pending, Some(waker)) => waker.clone_from(cx.waker()),
                (Poll::Pending, none) => *none = Some(cx.waker().clone()),
            }
            result
        })
        .await
    }

    pub(super) fn own(association: own::Association) -> Association {
        Association(Kind::Own(Arc::new(association)))
    }

    pub(super) fn kernel(association: kernel::Association) -> Association {
        Association(Kind::Kernel(Arc::new(association)))
    }

    /// Waits until the association is established.
    pub async fn established(&self) -> Result<(), Error> {
        self.wait(Wait::Write, |cx| self.poll_established(cx)).await
    }

    /// As [`Association::established`].
    pub fn poll_established(&self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        call!(self.poll_established(cx))
    }

    /// Gives a message to send, and waits until there is room for it in the send buffer. Our own
    /// protocol keeps its bytes until they are acknowledged, and does not copy them.
    pub async fn send(&self, data: impl Into<Bytes>, options: &SendOptions) -> Result<(), Error> {
        let mut data = data.into();
        self.wait(Wait::Write, |cx| self.poll_send(cx, &mut data, options)).await
    }

    /// As [`Association::send`]. Takes the bytes out of `data` when it is ready without an error.
    pub fn poll_send(
        &self,
        cx: &mut Context<'_>,
        data: &mut Bytes,
        options: &SendOptions,
    ) -> Poll<Result<(), Error>> {
        call!(self.poll_send(cx, data, options))
    }

    /// Gives a message to send if there is room for it now; if not, the error is
    /// [`Refusal::NoRoom`](super::Refusal::NoRoom).
    pub fn try_send(&self, data: impl Into<Bytes>, options: &SendOptions) -> Result<(), Error> {
        let mut data = data.into();
        match &self.0 {
            Kind::Own(association) => association.try_send(data, options),
            Kind::Kernel(association) => association.give(&mut data, options),
        }
    }

    /// Gives messages from the front of `messages`, as many as there is room for, and waits until
    /// that is at least one. Gives how many. An error is of the message that is then in front.
    pub async fn send_many(
        &self,
        messages: &mut VecDeque<(SendOptions, Bytes)>,
    ) -> Result<usize, Error> {
        self.wait(Wait::Write, |cx| self.poll_send_many(cx, messages)).await
    }

    /// As [`Association::send_many`].
    pub fn poll_send_many(
        &self,
        cx: &mut Context<'_>,
        messages: &mut VecDeque<(SendOptions, Bytes)>,
    ) -> Poll<Result<usize, Error>> {
        let association = match &self.0 {
            Kind::Own(association) => return association.poll_send_many(cx, messages),
            Kind::Kernel(association) => association,
        };
        let mut given = 0;
        while let Some((options, data)) = messages.front_mut() {
            match association.poll_send(cx, data, options) {
                Poll::Ready(Ok(())) => {}
                Poll::Pending if given == 0 => return Poll::Pending,
                Poll::Ready(Err(error)) if given == 0 => return Poll::Ready(Err(error)),
                _ => break,
            }
            messages.pop_front();
            given += 1;
        }
        Poll::Ready(Ok(given))
    }

    /// Receives the next message, or part of a very large one. `None` once the association has
    /// ended in order and all is read.
    pub async fn recv(&self) -> Result<Option<Message>, Error> {
        let mut bytes = Vec::new();
        let received = self.wait(Wait::Read, |cx| self.poll_recv_into(cx, &mut bytes)).await?;
        Ok(received.map(|received| Message::new(&received, bytes.into())))
    }

    /// Receives the next message, or part of one, appending its bytes to `out`: for readers that
    /// use one buffer again and again.
    pub async fn recv_into(&self, out: &mut Vec<u8>) -> Result<Option<Received>, Error> {
        self.wait(Wait::Read, |cx| self.poll_recv_into(cx, out)).await
    }

    /// As [`Association::recv_into`].
    pub fn poll_recv_into(
        &self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Poll<Result<Option<Received>, Error>> {
        call!(self.poll_recv_into(cx, out))
    }

    /// Receives at least one message and at most `most`, as far as they are there; they are
    /// appended to `messages` and may share one allocation. Gives how many: none once the
    /// association has ended in order and all is read.
    pub async fn recv_many(
        &self,
        messages: &mut Vec<Message>,
        most: usize,
    ) -> Result<usize, Error> {
        self.wait(Wait::Read, |cx| self.poll_recv_many(cx, messages, most)).await
    }

    /// As [`Association::recv_many`].
    pub fn poll_recv_many(
        &self,
        cx: &mut Context<'_>,
        messages: &mut Vec<Message>,
        most: usize,
    ) -> Poll<Result<usize, Error>> {
        match &self.0 {
            Kind::Own(association) => association.poll_recv_many(cx, messages, most),
            Kind::Kernel(_) if most == 0 => Poll::Ready(Ok(0)),
            Kind::Kernel(association) => {
                let mut bytes = Vec::new();
                let Some(received) = ready!(association.poll_recv_into(cx, &mut bytes))? else {
                    return Poll::Ready(Ok(0));
                };
                messages.push(Message::new(&received, bytes.into()));
                Poll::Ready(Ok(1))
            }
        }
    }

    /// Receives at least one message, or part of one, and at most `most`, as far as they are there: for
    /// readers of many small ones. Their bytes are appended to `out`, one after the other, and `received`
    /// tells how long each is. Gives how many: none once the association has ended in order and all is
    /// read.
    pub async fn recv_many_into(
        &self,
        out: &mut Vec<u8>,
        received: &mut Vec<Received>,
        most: usize,
    ) -> Result<usize, Error> {
        self.wait(Wait::Read, |cx| self.poll_recv_many_into(cx, out, received, most)).await
    }

    /// As [`Association::recv_many_into`].
    pub fn poll_recv_many_into(
        &self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        received: &mut Vec<Received>,
        most: usize,
    ) -> Poll<Result<usize, Error>> {
        match &self.0 {
            _ if most == 0 => Poll::Ready(Ok(0)),
            Kind::Own(association) => association.poll_recv_many_into(cx, out, received, most),
            Kind::Kernel(association) => {
                let Some(one) = ready!(association.poll_recv_into(cx, out))? else {
                    return Poll::Ready(Ok(0));
                };
                received.push(one);
                Poll::Ready(Ok(1))
            }
        }
    }

    /// The next event. `None` after [`Event::Closed`]. With the kernel's SCTP, events behind a
    /// message are told once it is read.
    pub async fn event(&self) -> Option<Event> {
        self.wait(Wait::Event, |cx| self.poll_event(cx)).await
    }

    /// As [`Association::event`].
    pub fn poll_event(&self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        call!(self.poll_event(cx))
    }

    /// How it stands: state, paths, windows, and what was counted. The kernel tells less than our
    /// own protocol: what it does not tell is zero.
    pub fn statistics(&self) -> Result<Snapshot, Error> {
        call!(self.statistics())
    }

    /// Its paths: the peer's addresses with ours, and how each stands.
    pub fn paths(&self) -> Result<Vec<PathSnapshot>, Error> {
        Ok(self.statistics()?.paths)
    }

    /// The ports: ours and the peer's.
    pub fn ports(&self) -> Result<(u16, u16), Error> {
        call!(self.ports())
    }

    /// Makes the path to an address of the peer the primary one.
    pub fn set_primary(&self, remote: IpAddr) -> Result<(), Error> {
        call!(self.set_primary(remote))
    }

    /// Has an address of the peer asked now whether it is there.
    pub fn request_heartbeat(&self, remote: IpAddr) -> Result<(), Error> {
        call!(self.request_heartbeat(remote))
    }

    /// Asks the peer to know us by one more address (RFC 5061); [`Event::Changed`] tells when it
    /// does. The host must have the address. A stack in UDP opens a socket at it, at the stack's UDP
    /// port, and keeps it for as long as it runs.
    pub fn add_address(&self, local: IpAddr) -> Result<(), Error> {
        call!(self.add_address(local))
    }

    /// Asks the peer to forget one of our addresses (RFC 5061).
    pub fn delete_address(&self, local: IpAddr) -> Result<(), Error> {
        call!(self.delete_address(local))
    }

    /// Asks the peer to make the path to one of our addresses its primary one (RFC 5061).
    pub fn ask_primary(&self, local: IpAddr) -> Result<(), Error> {
        call!(self.ask_primary(local))
    }

    /// Begins streams anew (RFC 6525); [`Event::Changed`] tells when that is done.
    pub fn reset_streams(&self, reset: Reset<'_>) -> Result<(), Error> {
        call!(self.reset_streams(reset))
    }

    /// Asks for more streams, ours and the peer's (RFC 6525).
    pub fn add_streams(&self, outgoing: u16, incoming: u16) -> Result<(), Error> {
        call!(self.add_streams(outgoing, incoming))
    }

    /// Ends the association in order: everything given is delivered first. Waits for the end.
    pub async fn shutdown(&self) -> Result<(), Error> {
        self.begin_shutdown();
        self.wait(Wait::Write, |cx| self.poll_closed(cx)).await
    }

    /// Begins to end the association in order, without waiting for it.
    pub fn begin_shutdown(&self) {
        call!(self.begin_shutdown());
    }

    /// Waits until the association is over; an error unless it ended in order.
    pub fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        call!(self.poll_closed(cx))
    }

    /// Ends the association at once; what was not delivered is lost. The peer is told `reason`, except
    /// by the kernel's SCTP, which tells none (its sockets are one-to-one). A program that ends right
    /// after it waits for [`Stack::flush`](super::Stack::flush), or the peer is not told at all.
    pub fn abort(&self, reason: &[u8]) -> Result<(), Error> {
        call!(self.abort(reason))
    }
}
