//! Receiving right above IP without being woken for each packet.
//!
//! The system coalesces what comes in UDP, and not what comes as SCTP: each packet is queued by itself, and
//! wakes who waits. A receiver that is faster than its sender then wakes for two or three packets at a time,
//! which costs the sender's processor more than to send them, and acknowledges as often. So while packets
//! come by the hundred thousand a second the socket is not watched, but read every [`PAUSE`], as network
//! cards moderate their interrupts. It is watched again as soon as a pause brings little; and where pauses
//! were not worth it, as with large requests of which each waits for its answer, they are tried more and
//! more seldom.

use crate::sys::{RECEIVE_BATCH, ReceiveBatch, Timer, watch_packets, watch_timer};
use socket2::Socket;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;

/// How long packets wait at most to be read while there are many.
const PAUSE: Duration = Duration::from_micros(100);

/// Packets that make a pause worth it.
const WORTH: usize = 16;

/// Packets within a [`WINDOW`] from which pauses are tried.
const MANY: usize = 64;

/// See [`MANY`].
const WINDOW: Duration = Duration::from_millis(1);

/// Windows with many packets in which no pause is tried after pauses that brought little, at most.
const MAX_SKIPPED: u32 = 1024;

/// A socket whose packets are received with pauses or without.
pub(super) struct Moderated {
    socket: Arc<Socket>,
    /// `None` during pauses.
    watched: Option<AsyncFd<Arc<Socket>>>,
    timer: AsyncFd<Timer>,
    /// The pause is over, and what it brought is being read.
    reading: bool,
    /// Packets of the last pause, or of the window.
    packets: usize,
    window: Instant,
    /// Windows until the next try, and how many there will be after the next that is not worth it.
    skipped: u32,
    patience: u32,
    /// Pauses made.
    pub(super) pauses: u64,
}

impl Moderated {
    /// To be called within a runtime.
    pub(super) fn new(socket: Socket) -> io::Result<Moderated> {
        let socket = Arc::new(socket);
        Ok(Moderated {
            watched: Some(watch_packets(socket.clone())?),
            socket,
            timer: watch_timer(Timer::new()?)?,
            reading: false,
            packets: 0,
            window: Instant::now(),
            skipped: 0,
            patience: 1,
            pauses: 0,
        })
    }

    pub(super) fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    /// Takes what has come, at most one batch.
    pub(super) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        batch: &mut ReceiveBatch,
    ) -> Poll<io::Result<usize>> {
        loop {
            let got = match &self.watched {
                Some(io) => {
                    let mut ready = ready!(io.poll_read_ready(cx))?;
                    let got = batch.receive(self.socket.as_fd());
                    if is_last(&got) {
                        ready.clear_ready();
                    }
                    got
                }
                None => {
                    if !self.reading {
                        // Arming it again makes it unreadable.
                        ready!(self.timer.poll_read_ready(cx))?.clear_ready();
                        (self.reading, self.packets) = (true, 0);
                    }
                    batch.receive(self.socket.as_fd())
                }
            };
            self.packets += got.as_ref().copied().unwrap_or(0);
            if is_last(&got) {
                self.emptied()?;
            }
            match got {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                got => return Poll::Ready(got),
            }
        }
    }

    /// Nothing is queued any more.
    fn emptied(&mut self) -> io::Result<()> {
        if self.watched.is_none() {
            self.reading = false;
            if self.packets >= WORTH {
                self.patience = 1;
                return self.pause();
            }
            (self.skipped, self.patience) = (self.patience, (self.patience * 2).min(MAX_SKIPPED));
            self.watched = Some(watch_packets(self.socket.clone())?);
            return Ok(());
        }
        if self.packets < MANY {
            return Ok(());
        }
        let now = Instant::now();
        let many = now.duration_since(self.window) <= WINDOW;
        (self.window, self.packets) = (now, 0);
        if many && self.skipped == 0 {
            self.watched = None;
            return self.pause();
        }
        self.skipped -= u32::from(many);
        Ok(())
    }

    fn pause(&mut self) -> io::Result<()> {
        self.pauses += 1;
        self.timer.get_ref().arm(PAUSE)
    }
}

/// Whether nothing more is queued. recvmmsg stops early only when the queue is empty.
fn is_last(got: &io::Result<usize>) -> bool {
    match got {
        Ok(got) => *got < RECEIVE_BATCH,
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}
