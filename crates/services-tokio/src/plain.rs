//! One connection over a byte stream without framing: all octets are one message without end (RFC 9622 section 9.3.2.2).

use crate::carrier::{Carrier, Event, Part};
use crate::draining::{Closing, Drain};
use crate::error::Error;
use crate::io::{ByteStream, Ending};
use crate::limits::Limits;
use crate::waiters::Waiters;
use bytes::{Bytes, BytesMut};
use ringway_services::sending::Sending;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, ReadHalf, WriteHalf};

/// Octets that are read at once.
const READ_ROOM: usize = 64 * 1024;
/// Messages that are written by one call.
const MAX_SLICES: usize = 16;

/// What is to be written, and how it stands.
#[derive(Default)]
struct Outgoing {
    messages: VecDeque<Bytes>,
    octets: usize,
    /// Whether nothing follows.
    ended: bool,
    /// Whether reading has ended as well, so that the byte stream can be dropped.
    closed: bool,
    aborted: bool,
    error: Option<Error>,
    driver: Option<Waker>,
    waiters: Waiters,
}

struct Shared {
    outgoing: Mutex<Outgoing>,
    receive: Mutex<Receiving>,
}

struct Receiving {
    half: Option<ReadHalf<Box<dyn ByteStream>>>,
    buffer: BytesMut,
    /// The task that reads.
    waker: Option<Waker>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Outgoing> {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn receiving(&self) -> MutexGuard<'_, Receiving> {
        self.receive.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outgoing {
    fn wake_driver(&mut self) {
        if let Some(waker) = self.driver.take() {
            waker.wake();
        }
    }

    fn advance(&mut self, mut octets: usize) {
        self.octets -= octets;
        while let Some(front) = self.messages.front_mut() {
            if octets < front.len() {
                let _ = front.split_to(octets);
                break;
            }
            octets -= front.len();
            self.messages.pop_front();
        }
        self.waiters.wake();
    }
}

/// The connection.
pub(crate) struct Plain {
    shared: Arc<Shared>,
    limit: usize,
}

impl Plain {
    /// Starts the task that writes. To be called within a runtime. `ended` is called when nothing of it is left.
    pub(crate) fn new(
        io: Box<dyn ByteStream>,
        limits: &Limits,
        closing: Closing,
        ended: impl FnOnce() + Send + 'static,
    ) -> Plain {
        let (receive, send) = tokio::io::split(io);
        let receive = Receiving { half: Some(receive), buffer: BytesMut::new(), waker: None };
        let receive = Mutex::new(receive);
        let shared = Arc::new(Shared { outgoing: Mutex::default(), receive });
        let writer = shared.clone();
        tokio::spawn(async move {
            write(&writer, send, &closing).await;
            ended();
        });
        Plain { shared, limit: limits.queue }
    }
}

/// Writes what is queued until all has ended.
async fn write(shared: &Shared, mut half: WriteHalf<Box<dyn ByteStream>>, closing: &Closing) {
    let mut drain = None;
    let mut result = poll_fn(|cx| {
        if let Poll::Ready(result) = poll_write(shared, &mut half, cx) {
            return Poll::Ready(result);
        }
        poll_overdue(shared, closing, &mut drain, cx)
    })
    .await;
    if result.is_ok() {
        result = poll_fn(|cx| {
            // An end must not come before the abort. What fails here has been read or is lost already.
            if shared.lock().aborted || Pin::new(&mut half).poll_shutdown(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            poll_overdue(shared, closing, &mut drain, cx)
        })
        .await;
    }
    let aborted = {
        let mut outgoing = shared.lock();
        if let Err(error) = &result {
            outgoing.error.get_or_insert_with(|| Error::lost(error));
        }
        outgoing.messages.clear();
        outgoing.octets = 0;
        outgoing.waiters.wake();
        outgoing.aborted
    };
    if !aborted && result.is_ok() {
        poll_fn(|cx| poll_closed(shared, cx)).await;
    }
    let Some(receive) = shared.receiving().half.take() else { return };
    let mut io = receive.unsplit(half);
    if shared.lock().aborted {
        io.abort();
        return;
    }
    if let Err(error) = result {
        // What is left was dropped: the peer must not take it for the end.
        if error.kind() == io::ErrorKind::TimedOut {
            io.abort();
        }
        return;
    }
    let mut ending = Ending::new(drain.unwrap_or_else(|| closing.begin()));
    poll_fn(|cx| ending.poll(&mut *io, cx)).await;
}

/// Waits until a connection that was closed is to be aborted, by the octets that are left, or has been.
fn poll_overdue(
    shared: &Shared,
    closing: &Closing,
    drain: &mut Option<Drain>,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    let left = {
        let mut outgoing = shared.lock();
        outgoing.driver = Some(cx.waker().clone());
        if outgoing.aborted {
            return Poll::Ready(Ok(()));
        }
        if !outgoing.closed {
            return Poll::Pending;
        }
        outgoing.octets as u64
    };
    let drain = drain.get_or_insert_with(|| closing.begin());
    drain.poll((left, 0), cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
}

/// Writes until there is nothing more to write, ever.
fn poll_write(
    shared: &Shared,
    half: &mut WriteHalf<Box<dyn ByteStream>>,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    loop {
        let messages: Vec<Bytes> = {
            let mut outgoing = shared.lock();
            outgoing.driver = Some(cx.waker().clone());
            if outgoing.aborted {
                return Poll::Ready(Ok(()));
            }
            outgoing.messages.iter().take(MAX_SLICES).cloned().collect()
        };
        if messages.is_empty() {
            ready!(Pin::new(&mut *half).poll_flush(cx))?;
            let mut outgoing = shared.lock();
            outgoing.waiters.wake();
            let is_over = outgoing.ended && outgoing.messages.is_empty();
            return if is_over { Poll::Ready(Ok(())) } else { Poll::Pending };
        }
        let slices: Vec<IoSlice<'_>> = messages.iter().map(|bytes| IoSlice::new(bytes)).collect();
        let written = ready!(Pin::new(&mut *half).poll_write_vectored(cx, &slices))?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        shared.lock().advance(written);
    }
}

/// Waits until the program reads no more, or the connection is aborted.
fn poll_closed(shared: &Shared, cx: &mut Context<'_>) -> Poll<()> {
    let mut outgoing = shared.lock();
    outgoing.driver = Some(cx.waker().clone());
    if outgoing.closed || outgoing.aborted { Poll::Ready(()) } else { Poll::Pending }
}

impl Carrier for Plain {
    fn poll_send(
        &self,
        cx: &mut Context<'_>,
        message: &mut Bytes,
        sending: &Sending,
    ) -> Poll<Result<(), Error>> {
        let mut outgoing = self.shared.lock();
        if let Some(error) = &outgoing.error {
            return Poll::Ready(Err(error.clone()));
        }
        if outgoing.ended {
            return Poll::Ready(Err(Error::Ended));
        }
        if outgoing.octets > 0 && outgoing.octets + message.len() > self.limit {
            outgoing.waiters.add(cx);
            return Poll::Pending;
        }
        outgoing.octets += message.len();
        if !message.is_empty() {
            outgoing.messages.push_back(std::mem::take(message));
        }
        outgoing.ended |= sending.last;
        outgoing.wake_driver();
        Poll::Ready(Ok(()))
    }

    fn poll_receive(&self, cx: &mut Context<'_>) -> Poll<Result<Option<Part>, Error>> {
        let mut receiving = self.shared.receiving();
        let Receiving { half, buffer, waker } = &mut *receiving;
        let Some(half) = half else {
            let error = self.shared.lock().error.clone();
            return Poll::Ready(Err(error.unwrap_or(Error::Closed)));
        };
        *waker = Some(cx.waker().clone());
        buffer.reserve(READ_ROOM);
        let mut octets = ReadBuf::uninit(buffer.spare_capacity_mut());
        let read = Pin::new(half).poll_read(cx, &mut octets);
        let filled = Bytes::copy_from_slice(octets.filled());
        Poll::Ready(match ready!(read) {
            Err(error) => {
                let error = Error::lost(error);
                self.shared.lock().error.get_or_insert(error.clone());
                Err(error)
            }
            Ok(()) if filled.is_empty() => Ok(None),
            Ok(()) => Ok(Some(Part::piece(filled))),
        })
    }

    fn poll_flushed(&self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let mut outgoing = self.shared.lock();
        if let Some(error) = &outgoing.error {
            return Poll::Ready(Err(error.clone()));
        }
        if outgoing.octets == 0 {
            return Poll::Ready(Ok(()));
        }
        outgoing.waiters.add(cx);
        Poll::Pending
    }

    fn poll_event(&self, _cx: &mut Context<'_>) -> Poll<Event> {
        Poll::Pending
    }

    fn close(&self) {
        let mut outgoing = self.shared.lock();
        (outgoing.ended, outgoing.closed) = (true, true);
        outgoing.wake_driver();
    }

    fn abort(&self, _code: u32) {
        let mut outgoing = self.shared.lock();
        (outgoing.ended, outgoing.closed, outgoing.aborted) = (true, true, true);
        outgoing.error.get_or_insert(Error::Closed);
        outgoing.wake_driver();
        drop(outgoing);
        if let Some(waker) = self.shared.receiving().waker.take() {
            waker.wake();
        }
    }
}

/// One that nobody has taken over, as when the program no longer waits for it, is closed.
impl Drop for Plain {
    fn drop(&mut self) {
        self.close();
    }
}
