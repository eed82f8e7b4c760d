//! The datagrams of a QUIC connection that carries nothing else (RFC 9221).

use super::{Inbox, lock};
use crate::carrier::{Carrier, Event, Part};
use crate::error::Error;
use crate::limits::{DATAGRAM_QUEUE, LINGER};
use crate::waiters::Waiters;
use bytes::Bytes;
use quinn::SendDatagramError;
use ringway_services::protocol::MessageLimits;
use ringway_services::sending::Sending;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::timeout;

/// What the datagrams of a QUIC connection share with their task.
#[derive(Default)]
struct DatagramState {
    inbox: Inbox,
    /// A datagram that waits for room.
    waiting: Option<Bytes>,
    writers: Waiters,
    ended: bool,
    /// How the connection has ended.
    closed: Option<Result<(), Error>>,
}

/// A QUIC connection and its datagrams.
struct DatagramShared {
    connection: quinn::Connection,
    /// The room for datagrams when none waits in QUIC: less than the configured size.
    empty: usize,
    state: Mutex<DatagramState>,
    /// Wakes the task when a datagram waits.
    waits: Notify,
    runtime: Handle,
}

/// The datagrams of a QUIC connection.
pub(super) struct Datagrams(Arc<DatagramShared>);

impl Datagrams {
    /// Starts the task. It ends with the connection.
    pub(super) fn new(connection: quinn::Connection) -> Datagrams {
        let (state, waits, runtime) = (Mutex::default(), Notify::new(), Handle::current());
        let empty = connection.datagram_send_buffer_space();
        let shared = Arc::new(DatagramShared { connection, empty, state, waits, runtime });
        let task = shared.clone();
        tokio::spawn(async move {
            let error = tokio::select! {
                error = task.read() => error,
                error = task.write() => error,
            };
            task.end(error);
        });
        Datagrams(shared)
    }
}

impl DatagramShared {
    async fn read(&self) -> quinn::ConnectionError {
        loop {
            let bytes = match self.connection.read_datagram().await {
                Ok(bytes) => bytes,
                Err(error) => return error,
            };
            let inbox = &mut lock(&self.state).inbox;
            if inbox.datagrams.len() < DATAGRAM_QUEUE {
                inbox.datagrams.push_back(bytes);
            } else {
                inbox.events.push(Event::Dropped { messages: 1 });
            }
            inbox.readers.wake();
        }
    }

    async fn write(&self) -> quinn::ConnectionError {
        loop {
            self.waits.notified().await;
            let Some(bytes) = lock(&self.state).waiting.clone() else { continue };
            let sent = self.connection.send_datagram_wait(bytes).await;
            if let Err(SendDatagramError::ConnectionLost(error)) = sent {
                return error;
            }
            let mut state = lock(&self.state);
            state.waiting = None;
            state.writers.wake();
        }
    }

    fn end(&self, error: quinn::ConnectionError) {
        let mut state = lock(&self.state);
        state.closed = Some(match error {
            quinn::ConnectionError::ApplicationClosed(close) if close.reason.is_empty() => Ok(()),
            quinn::ConnectionError::ApplicationClosed(_) => Err(Error::Aborted { code: 0 }),
            quinn::ConnectionError::LocallyClosed => Err(Error::Closed),
            error => Err(Error::lost(error)),
        });
        state.inbox.readers.wake();
        state.writers.wake();
    }
}

impl Carrier for Datagrams {
    fn poll_send(
        &self,
        cx: &mut Context<'_>,
        message: &mut Bytes,
        sending: &Sending,
    ) -> Poll<Result<(), Error>> {
        let connection = &self.0.connection;
        let mut state = lock(&self.0.state);
        if let Some(closed) = &state.closed {
            return Poll::Ready(Err(closed.clone().err().unwrap_or(Error::Closed)));
        }
        if state.ended {
            return Poll::Ready(Err(Error::Ended));
        }
        if state.waiting.is_some() {
            state.writers.add(cx);
            return Poll::Pending;
        }
        let bytes = std::mem::take(message);
        if connection.datagram_send_buffer_space() < bytes.len() {
            state.waiting = Some(bytes);
            self.0.waits.notify_one();
        } else {
            connection.send_datagram(bytes).map_err(Error::lost)?;
        }
        state.ended |= sending.last;
        Poll::Ready(Ok(()))
    }

    fn poll_receive(&self, cx: &mut Context<'_>) -> Poll<Result<Option<Part>, Error>> {
        let mut state = lock(&self.0.state);
        if let Some(bytes) = state.inbox.datagrams.pop_front() {
            return Poll::Ready(Ok(Some(Part::whole(bytes))));
        }
        if let Some(closed) = &state.closed {
            return Poll::Ready(closed.clone().map(|()| None));
        }
        state.inbox.readers.add(cx);
        Poll::Pending
    }

    fn poll_flushed(&self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let mut state = lock(&self.0.state);
        if state.waiting.is_some() && state.closed.is_none() {
            state.writers.add(cx);
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_event(&self, cx: &mut Context<'_>) -> Poll<Event> {
        lock(&self.0.state).inbox.events.poll(cx)
    }

    fn close(&self) {
        // Datagrams that QUIC has not sent yet would be lost: they are given the time of a round trip.
        let shared = self.0.clone();
        self.0.runtime.spawn(async move {
            let unsent = || {
                shared.connection.datagram_send_buffer_space() < shared.empty
                    || lock(&shared.state).waiting.is_some()
            };
            let sent = async {
                while unsent() && shared.connection.close_reason().is_none() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            let _ = timeout(LINGER, sent).await;
            shared.connection.close(super::NO_ERROR, b"");
        });
    }

    fn abort(&self, _code: u32) {
        self.0.connection.close(super::NO_ERROR, b"aborted");
    }

    fn limits(&self) -> Option<MessageLimits> {
        let max = self.0.connection.max_datagram_size().and_then(|max| u32::try_from(max).ok());
        Some(MessageLimits {
            singular_transmission_msg_max_len: max,
            send_msg_max_len: max.or(Some(0)),
            recv_msg_max_len: Some(u32::from(u16::MAX)),
        })
    }
}

/// One that nobody has taken over, as when another attempt has won, is closed.
impl Drop for Datagrams {
    fn drop(&mut self) {
        if self.0.connection.close_reason().is_none() {
            self.close();
        }
    }
}
