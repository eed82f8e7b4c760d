//! An association, as programs use it.

use super::error::{AddAddressError, CallError, EndedError, SendError};
use super::message::{Event, Message};
use super::waiters::Wait;
use super::{kernel, userspace};
use bytes::Bytes;
use ringway_sctp::{self as refusal, PathSnapshot, Received, Reset, SendOptions, Snapshot};
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

/// An association. Clones are handles of the same one, for tasks that send and tasks that receive. When
/// the last is dropped, it is shut down gracefully, and messages that still arrive are dropped.
///
/// Messages stay in the protocol's receive buffer until they are read. Once that is full the peer's
/// window is closed.
#[derive(Clone)]
pub struct Association(Kind);

#[derive(Clone)]
enum Kind {
    Userspace(Arc<userspace::Association>),
    Kernel(Arc<kernel::Association>),
}

/// Calls the method of the same name of either kind.
macro_rules! call {
    ($self:ident.$name:ident($($argument:expr),*)) => {
        match &$self.0 {
            Kind::Userspace(association) => association.$name($($argument),*),
            Kind::Kernel(association) => association.$name($($argument),*),
        }
    };
}

impl fmt::Debug for Association {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Association").field(&self.ports().ok()).finish()
    }
}

/// A wait that may be cancelled, as in a `select!` or by a timeout; then the task need not be woken.
struct CancellableWait<'a> {
    association: &'a userspace::Association,
    wait: Wait,
    waker: Option<Waker>,
}

impl Drop for CancellableWait<'_> {
    fn drop(&mut self) {
        if let Some(waker) = &self.waker {
            self.association.cancel_wait(self.wait, waker);
        }
    }
}

impl Association {
    /// Polls until the result is ready. Dropping the future cancels the wait.
    async fn wait<T>(&self, wait: Wait, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
        let Kind::Userspace(association) = &self.0 else { return poll_fn(poll).await };
        let mut waiting = CancellableWait { association, wait, waker: None };
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

    pub(super) fn userspace(association: userspace::Association) -> Association {
        Association(Kind::Userspace(Arc::new(association)))
    }

    pub(super) fn kernel(association: kernel::Association) -> Association {
        Association(Kind::Kernel(Arc::new(association)))
    }

    /// Waits until the association is established.
    pub async fn established(&self) -> Result<(), EndedError> {
        self.wait(Wait::Write, |cx| self.poll_established(cx)).await
    }

    /// As [`Association::established`].
    pub fn poll_established(&self, cx: &mut Context<'_>) -> Poll<Result<(), EndedError>> {
        call!(self.poll_established(cx))
    }

    /// Sends a message, and waits until there is room for it in the send buffer. The protocol in user space
    /// keeps the bytes until they are acknowledged and does not copy them; the kernel copies them.
    pub async fn send(
        &self,
        data: impl Into<Bytes>,
        options: &SendOptions,
    ) -> Result<(), SendError> {
        let mut data = data.into();
        self.wait(Wait::Write, |cx| self.poll_send(cx, &mut data, options)).await
    }

    /// As [`Association::send`]. Leaves `data` empty when it succeeds.
    pub fn poll_send(
        &self,
        cx: &mut Context<'_>,
        data: &mut Bytes,
        options: &SendOptions,
    ) -> Poll<Result<(), SendError>> {
        call!(self.poll_send(cx, data, options))
    }

    /// Sends a message if there is room for it now. Otherwise the error is
    /// [`refusal::SendError::NoRoom`].
    pub fn try_send(&self, data: impl Into<Bytes>, options: &SendOptions) -> Result<(), SendError> {
        let mut data = data.into();
        match &self.0 {
            Kind::Userspace(association) => association.try_send(data, options),
            Kind::Kernel(association) => association.queue(&mut data, options),
        }
    }

    /// Sends messages from the front of `messages`, as many as there is room for, and waits until that is at
    /// least one. Returns the number. An error concerns the message that is then at the front.
    pub async fn send_many(
        &self,
        messages: &mut VecDeque<(SendOptions, Bytes)>,
    ) -> Result<usize, SendError> {
        self.wait(Wait::Write, |cx| self.poll_send_many(cx, messages)).await
    }

    /// As [`Association::send_many`].
    pub fn poll_send_many(
        &self,
        cx: &mut Context<'_>,
        messages: &mut VecDeque<(SendOptions, Bytes)>,
    ) -> Poll<Result<usize, SendError>> {
        let association = match &self.0 {
            Kind::Userspace(association) => return association.poll_send_many(cx, messages),
            Kind::Kernel(association) => association,
        };
        let mut sent = 0;
        while let Some((options, data)) = messages.front_mut() {
            match association.poll_send(cx, data, options) {
                Poll::Ready(Ok(())) => {}
                Poll::Pending if sent == 0 => return Poll::Pending,
                Poll::Ready(Err(error)) if sent == 0 => return Poll::Ready(Err(error)),
                _ => break,
            }
            messages.pop_front();
            sent += 1;
        }
        Poll::Ready(Ok(sent))
    }

    /// Receives the next message, or part of a very large one. Returns `None` once the association was shut
    /// down gracefully and everything is read.
    pub async fn recv(&self) -> Result<Option<Message>, EndedError> {
        let mut bytes = Vec::new();
        let received = self.wait(Wait::Read, |cx| self.poll_recv_into(cx, &mut bytes)).await?;
        Ok(received.map(|received| Message::new(&received, bytes.into())))
    }

    /// Receives the next message, or part of one, and appends its bytes to `out`: for readers that reuse a
    /// buffer.
    pub async fn recv_into(&self, out: &mut Vec<u8>) -> Result<Option<Received>, EndedError> {
        self.wait(Wait::Read, |cx| self.poll_recv_into(cx, out)).await
    }

    /// As [`Association::recv_into`].
    pub fn poll_recv_into(
        &self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Poll<Result<Option<Received>, EndedError>> {
        call!(self.poll_recv_into(cx, out))
    }

    /// Receives the available messages, at least one and at most `max_messages`, and appends them to
    /// `messages`. They may share one allocation. Returns their number, which is zero once the association
    /// was shut down gracefully and everything is read.
    pub async fn recv_many(
        &self,
        messages: &mut Vec<Message>,
        max_messages: usize,
    ) -> Result<usize, EndedError> {
        self.wait(Wait::Read, |cx| self.poll_recv_many(cx, messages, max_messages)).await
    }

    /// As [`Association::recv_many`].
    pub fn poll_recv_many(
        &self,
        cx: &mut Context<'_>,
        messages: &mut Vec<Message>,
        max_messages: usize,
    ) -> Poll<Result<usize, EndedError>> {
        match &self.0 {
            Kind::Userspace(association) => association.poll_recv_many(cx, messages, max_messages),
            Kind::Kernel(_) if max_messages == 0 => Poll::Ready(Ok(0)),
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

    /// Receives the available messages or parts of messages, at least one and at most `max_messages`: for
    /// readers of many small ones. Their bytes are appended to `out`, one after the other, and `received`
    /// holds the length of each. Returns their number, which is zero once the association was shut down
    /// gracefully and everything is read.
    pub async fn recv_many_into(
        &self,
        out: &mut Vec<u8>,
        received: &mut Vec<Received>,
        max_messages: usize,
    ) -> Result<usize, EndedError> {
        self.wait(Wait::Read, |cx| self.poll_recv_many_into(cx, out, received, max_messages)).await
    }

    /// As [`Association::recv_many_into`].
    pub fn poll_recv_many_into(
        &self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        received: &mut Vec<Received>,
        max_messages: usize,
    ) -> Poll<Result<usize, EndedError>> {
        match &self.0 {
            _ if max_messages == 0 => Poll::Ready(Ok(0)),
            Kind::Userspace(association) => {
                association.poll_recv_many_into(cx, out, received, max_messages)
            }
            Kind::Kernel(association) => {
                let Some(one) = ready!(association.poll_recv_into(cx, out))? else {
                    return Poll::Ready(Ok(0));
                };
                received.push(one);
                Poll::Ready(Ok(1))
            }
        }
    }

    /// Waits for the next event. Returns `None` after [`Event::Closed`]. With the kernel's SCTP, events
    /// behind a message are reported once it is read.
    pub async fn event(&self) -> Option<Event> {
        self.wait(Wait::Event, |cx| self.poll_event(cx)).await
    }

    /// As [`Association::event`].
    pub fn poll_event(&self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        call!(self.poll_event(cx))
    }

    /// Returns the state, the paths, the windows and the counters. Values that the kernel does not report
    /// are zero.
    pub fn statistics(&self) -> Result<Snapshot, EndedError> {
        call!(self.statistics())
    }

    /// Returns the paths, each with its local address, the peer's address and its state.
    pub fn paths(&self) -> Result<Vec<PathSnapshot>, EndedError> {
        Ok(self.statistics()?.paths)
    }

    /// Returns the local port and the peer's.
    pub fn ports(&self) -> Result<(u16, u16), EndedError> {
        call!(self.ports())
    }

    /// Makes the path to an address of the peer the primary one.
    pub fn set_primary(&self, remote: IpAddr) -> Result<(), CallError<refusal::NoPath>> {
        call!(self.set_primary(remote))
    }

    /// Sends a HEARTBEAT to an address of the peer now.
    pub fn request_heartbeat(&self, remote: IpAddr) -> Result<(), CallError<refusal::NoPath>> {
        call!(self.request_heartbeat(remote))
    }

    /// Asks the peer to add a local address (RFC 5061); [`Event::Changed`] reports when it has. The host must
    /// have the address. A stack in UDP opens a socket at it, at the stack's UDP port, and keeps it for as
    /// long as the stack runs.
    pub fn add_address(&self, local: IpAddr) -> Result<(), AddAddressError> {
        call!(self.add_address(local))
    }

    /// Asks the peer to delete a local address (RFC 5061).
    pub fn delete_address(&self, local: IpAddr) -> Result<(), CallError<refusal::AddressError>> {
        call!(self.delete_address(local))
    }

    /// Asks the peer to make the path to a local address its primary one (RFC 5061).
    pub fn ask_primary(&self, local: IpAddr) -> Result<(), CallError<refusal::AddressError>> {
        call!(self.ask_primary(local))
    }

    /// Resets streams (RFC 6525); [`Event::Changed`] reports when that is done.
    pub fn reset_streams(&self, reset: Reset<'_>) -> Result<(), CallError<refusal::StreamError>> {
        call!(self.reset_streams(reset))
    }

    /// Requests more streams, outgoing and incoming (RFC 6525).
    pub fn add_streams(
        &self,
        outgoing: u16,
        incoming: u16,
    ) -> Result<(), CallError<refusal::StreamError>> {
        call!(self.add_streams(outgoing, incoming))
    }

    /// Sets an endpoint pair shared key (RFC 4895 section 4.1): a secret that both endpoints know, and its key
    /// identifier. Fails if the peer does not authenticate chunks, which is known once the association is
    /// established.
    pub fn set_auth_key(
        &self,
        key: u16,
        secret: &[u8],
    ) -> Result<(), CallError<refusal::SetKeyError>> {
        call!(self.set_auth_key(key, secret))
    }

    /// Authenticates sent chunks with a key that is set. Received chunks are accepted with any key that is set.
    pub fn use_auth_key(&self, key: u16) -> Result<(), CallError<refusal::KeyError>> {
        call!(self.use_auth_key(key))
    }

    /// Deletes a key that is set and not used to send. Chunks authenticated with it are no longer accepted.
    pub fn delete_auth_key(&self, key: u16) -> Result<(), CallError<refusal::KeyError>> {
        call!(self.delete_auth_key(key))
    }

    /// Sets the scheduler's value of a stream (RFC 8260): its weight, or its priority, of which 0 is the highest.
    pub fn set_stream_value(
        &self,
        stream: u16,
        value: u16,
    ) -> Result<(), CallError<refusal::NoStream>> {
        call!(self.set_stream_value(stream, value))
    }

    /// Shuts the association down gracefully: all messages sent are delivered first. Waits for the end.
    pub async fn shutdown(&self) -> Result<(), EndedError> {
        self.begin_shutdown();
        self.wait(Wait::Write, |cx| self.poll_closed(cx)).await
    }

    /// Begins a graceful shutdown without waiting for its end.
    pub fn begin_shutdown(&self) {
        call!(self.begin_shutdown());
    }

    /// Waits for the end of the association. Returns an error unless it was shut down gracefully.
    pub fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<Result<(), EndedError>> {
        call!(self.poll_closed(cx))
    }

    /// Aborts the association; undelivered data is lost. The ABORT carries `reason`, except with the kernel's
    /// SCTP, whose one-to-one sockets send none. A program that exits right after it waits for
    /// [`Stack::flush`](super::Stack::flush), or no ABORT is sent at all.
    pub fn abort(&self, reason: &[u8]) -> Result<(), EndedError> {
        call!(self.abort(reason))
    }
}
