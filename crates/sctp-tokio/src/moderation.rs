//! Receiving directly over IP without a wake-up for each packet.
//!
//! The system coalesces UDP datagrams but not SCTP packets: each is queued separately, and wakes the
//! reader. A receiver that is faster than its sender then wakes for two or three packets at a time, which
//! costs the sender's processor more than sending them, and acknowledges as often. So while hundreds of
//! thousands of packets a second arrive, the socket is not registered with the runtime but read every
//! [`PAUSE`], as network cards moderate their interrupts. It is registered again as soon as a pause brings
//! few packets. Where pauses do not pay, as with large requests that each wait for a response, they are
//! tried less and less often.

use ringway_os::{RECEIVE_BATCH, ReceiveBatch, Timer, Watched, watch_packets, watch_timer};
use socket2::Socket;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// Maximum time that packets wait to be read while there are many.
const PAUSE: Duration = Duration::from_micros(100);

/// Minimum number of packets for which a pause pays.
const MIN_PAUSE_PACKETS: usize = 16;

/// Number of packets within a [`WINDOW`] from which pauses are tried.
const MANY: usize = 64;

/// See [`MANY`].
const WINDOW: Duration = Duration::from_millis(1);

/// Maximum number of windows with many packets in which no pause is tried, after pauses that did not pay.
const MAX_SKIPPED: u32 = 1024;

/// A socket whose packets are received with or without pauses.
pub(super) struct ModeratedSocket {
    socket: Arc<Socket>,
    /// `None` during pauses.
    registered: Option<Watched<Arc<Socket>>>,
    timer: Watched<Timer>,
    /// The pause has ended, and its packets are being read.
    reading: bool,
    /// Packets of the last pause, or of the window.
    packets: usize,
    window: Instant,
    /// Windows until the next pause is tried, and their number after the next pause that does not pay.
    skipped: u32,
    skip: u32,
    /// The number of pauses.
    pub(super) pauses: u64,
}

impl ModeratedSocket {
    /// To be called within a runtime.
    pub(super) fn new(socket: Socket) -> io::Result<ModeratedSocket> {
        let socket = Arc::new(socket);
        Ok(ModeratedSocket {
            registered: Some(watch_packets(socket.clone())?),
            socket,
            timer: watch_timer(Timer::new()?)?,
            reading: false,
            packets: 0,
            window: Instant::now(),
            skipped: 0,
            skip: 1,
            pauses: 0,
        })
    }

    pub(super) fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    /// Receives at most one batch.
    pub(super) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        batch: &mut ReceiveBatch,
    ) -> Poll<io::Result<usize>> {
        loop {
            let got = match &self.registered {
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
                self.on_empty()?;
            }
            match got {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                got => return Poll::Ready(got),
            }
        }
    }

    /// Handles the end of the queue: pauses or registers the socket.
    fn on_empty(&mut self) -> io::Result<()> {
        if self.registered.is_none() {
            self.reading = false;
            if self.packets >= MIN_PAUSE_PACKETS {
                self.skip = 1;
                return self.pause();
            }
            (self.skipped, self.skip) = (self.skip, (self.skip * 2).min(MAX_SKIPPED));
            self.registered = Some(watch_packets(self.socket.clone())?);
            return Ok(());
        }
        if self.packets < MANY {
            return Ok(());
        }
        let now = Instant::now();
        let many = now.duration_since(self.window) <= WINDOW;
        (self.window, self.packets) = (now, 0);
        if many && self.skipped == 0 {
            self.registered = None;
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

/// Returns whether the queue is empty. recvmmsg stops early only then.
fn is_last(got: &io::Result<usize>) -> bool {
    match got {
        Ok(got) => *got < RECEIVE_BATCH,
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}
