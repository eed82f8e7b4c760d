//! The descriptors of receiving with pauses: a timer finer than the runtime's, and one that becomes
//! readable with a socket's errors and not with its packets.
#![allow(unsafe_code)]

use crate::watch::{Watched, watch};
use socket2::Socket;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;

/// Converts the result of a call: a new descriptor, or -1 and the error in `errno`.
fn owned(descriptor: libc::c_int) -> io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned it, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// A timer that makes its descriptor readable when it expires.
#[derive(Debug)]
pub struct Timer(OwnedFd);

impl Timer {
    /// Creates a timer that is not armed.
    ///
    /// # Errors
    /// The error of timerfd_create(2), as when no descriptor is free.
    pub fn new() -> io::Result<Timer> {
        // SAFETY: the call takes no pointers.
        let timer = unsafe {
            libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC)
        };
        owned(timer).map(Timer)
    }

    /// Arms the timer to expire once, after a time below a second: of a longer one only the fraction counts. It is
    /// not readable until then.
    ///
    /// # Errors
    /// The error of timerfd_settime(2).
    pub fn arm(&self, after: Duration) -> io::Result<()> {
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let value = libc::timespec { tv_sec: 0, tv_nsec: after.subsec_nanos().max(1).into() };
        let when = libc::itimerspec { it_interval: zero, it_value: value };
        // SAFETY: `when` is a live local, which the kernel only reads; no old value is requested.
        let result = unsafe {
            libc::timerfd_settime(self.0.as_raw_fd(), 0, &raw const when, std::ptr::null_mut())
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// The error queue of a socket; as a descriptor, one that becomes readable when an error comes, and not
/// when a packet does.
#[derive(Debug)]
pub struct ErrorQueue {
    epoll: OwnedFd,
    socket: Arc<Socket>,
}

impl ErrorQueue {
    fn new(socket: Arc<Socket>) -> io::Result<ErrorQueue> {
        // SAFETY: the call takes no pointers.
        let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // Errors are reported whatever events are requested.
        let mut event = libc::epoll_event { events: libc::EPOLLET as u32, u64: 0 };
        let (set, member) = (epoll.as_raw_fd(), socket.as_raw_fd());
        // SAFETY: both descriptors are open, and `event` is a live local that the kernel only reads.
        let result = unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, member, &raw mut event) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(ErrorQueue { epoll, socket })
    }

    /// Makes the descriptor unreadable until the next error. To be called before the queue is read.
    pub fn clear(&self) {
        let mut event = MaybeUninit::<libc::epoll_event>::uninit();
        // SAFETY: there is room for the one event requested, which is not read.
        let _ = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), event.as_mut_ptr(), 1, 0) };
    }
}

impl AsFd for ErrorQueue {
    /// The socket.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for ErrorQueue {
    /// The descriptor to watch.
    fn as_raw_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}

/// Registers a timer. To be called within a runtime.
///
/// # Errors
/// The error of epoll_ctl(2).
pub fn watch_timer(timer: Timer) -> io::Result<Watched<Timer>> {
    watch(timer, Interest::READABLE)
}

/// Registers a socket for errors alone. To be called within a runtime.
///
/// # Errors
/// The error of epoll_create1(2) or epoll_ctl(2).
pub fn watch_errors(socket: Arc<Socket>) -> io::Result<Watched<ErrorQueue>> {
    watch(ErrorQueue::new(socket)?, Interest::READABLE)
}

/// Registers a socket for packets. Once the registration is dropped, packets wake no task. To be called within a
/// runtime.
///
/// # Errors
/// The error of epoll_ctl(2).
pub fn watch_packets(socket: Arc<Socket>) -> io::Result<Watched<Arc<Socket>>> {
    watch(socket, Interest::READABLE)
}
