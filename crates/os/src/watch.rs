//! Registering descriptors with the runtime.
#![allow(unsafe_code)]

use crate::Tun;
use crate::tun::TunQueue;
use socket2::Socket;
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The owner of a descriptor that is registered with the runtime. It is lent immutably only, so that no caller can
/// replace it while its descriptor is registered.
#[derive(Debug)]
pub struct Watched<T: AsRawFd>(AsyncFd<T>);

impl<T: AsRawFd> Deref for Watched<T> {
    type Target = AsyncFd<T>;

    fn deref(&self) -> &AsyncFd<T> {
        &self.0
    }
}

/// Registers a socket for datagrams and ICMP messages to read. Not for room to write: each datagram sent
/// would wake the task when the kernel is done with it. To be called within a runtime.
///
/// # Errors
/// The error of epoll_ctl(2).
pub fn watch_reading(socket: Socket) -> io::Result<Watched<Socket>> {
    watch(socket, Interest::READABLE | Interest::ERROR)
}

/// Registers a TUN device for packets to read. To be called within a runtime.
///
/// # Errors
/// The error of epoll_ctl(2).
pub fn watch_tun(tun: Tun) -> io::Result<Watched<Tun>> {
    watch(tun, Interest::READABLE)
}

/// Registers a queue of a TUN device for packets to read. To be called within a runtime.
///
/// # Errors
/// The error of epoll_ctl(2).
pub fn watch_tun_queue(queue: TunQueue) -> io::Result<Watched<TunQueue>> {
    watch(queue, Interest::READABLE)
}

/// Registers a socket for reading and writing. To be called within a runtime.
///
/// # Errors
/// The error of epoll_ctl(2).
pub fn watch_both(socket: Socket) -> io::Result<Watched<Socket>> {
    watch(socket, Interest::READABLE | Interest::WRITABLE)
}

/// Registers the owner of a descriptor.
pub(crate) fn watch<T: AsRawFd>(owner: T, interest: Interest) -> io::Result<Watched<T>> {
    // SAFETY: each owner passed here (a socket, also a shared one, `Tun`, `TunQueue`, and those of `moderation`)
    // owns its descriptor and returns the same one until it is dropped. `Watched` lends the `AsyncFd`, which
    // owns the owner, immutably only: the descriptor stays open as long as it is registered. `sctp::abort`
    // replaces what is behind it; the system has then removed the registration, and tokio ignores that.
    let watched = unsafe { AsyncFd::register_with_interest(owner, interest) };
    Ok(Watched(watched?))
}
