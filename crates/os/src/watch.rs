//! Registering descriptors with the runtime.
#![allow(unsafe_code)]

use crate::Tun;
use socket2::Socket;
use std::io;
use std::os::fd::AsRawFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a socket for datagrams and ICMP messages to read. Not for room to write: each datagram sent
/// would wake the task when the kernel is done with it. To be called within a runtime.
///
/// # Errors
/// The error of epoll_ctl(2).
pub fn watch_reading(socket: Socket) -> io::Result<AsyncFd<Socket>> {
    watch(socket, Interest::READABLE | Interest::ERROR)
}

/// Registers a TUN device for packets to read. To be called within a runtime.
///
/// # Errors
/// The error of epoll_ctl(2).
pub fn watch_tun(tun: Tun) -> io::Result<AsyncFd<Tun>> {
    watch(tun, Interest::READABLE)
}

/// Registers a socket for reading and writing. To be called within a runtime.
///
/// # Errors
/// The error of epoll_ctl(2).
pub fn watch_both(socket: Socket) -> io::Result<AsyncFd<Socket>> {
    watch(socket, Interest::READABLE | Interest::WRITABLE)
}

/// Registers the owner of a descriptor.
pub(crate) fn watch<T: AsRawFd>(owner: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    // SAFETY: each owner passed here (a socket, also a shared one, `Tun`, and those of `moderation`)
    // owns its descriptor and returns the same one until it is dropped. The `AsyncFd` owns the owner and
    // lends it immutably only, so the descriptor stays open as long as it is registered.
    let watched = unsafe { AsyncFd::register_with_interest(owner, interest) };
    Ok(watched?)
}
