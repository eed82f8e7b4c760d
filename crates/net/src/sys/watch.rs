//! Descriptors that the runtime watches.

use crate::tun::Tun;
use socket2::Socket;
use std::io;
use std::os::fd::AsRawFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Has the runtime watch a socket for datagrams and ICMP messages to read. Not for room to write: each
/// datagram sent would wake us when the kernel is done with it.
pub(crate) fn watch_reading(socket: Socket) -> io::Result<AsyncFd<Socket>> {
    watch(socket, Interest::READABLE | Interest::ERROR)
}

/// Has the runtime watch a TUN device for packets to read.
pub(crate) fn watch_tun(tun: Tun) -> io::Result<AsyncFd<Tun>> {
    watch(tun, Interest::READABLE)
}

/// Has the runtime watch a socket for both ways.
pub(crate) fn watch_both(socket: Socket) -> io::Result<AsyncFd<Socket>> {
    watch(socket, Interest::READABLE | Interest::WRITABLE)
}

/// Has the runtime watch what owns a descriptor.
pub(super) fn watch<T: AsRawFd>(owner: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    // SAFETY: what this is called for (sockets, shared ones too, `Tun`, and what `moderation` watches)
    // owns its descriptor and gives the same one until it is dropped. The `AsyncFd` owns them and lends them immutably only, so the
    // descriptor stays open as long as it is watched.
    let watched = unsafe { AsyncFd::register_with_interest(owner, interest) };
    Ok(watched?)
}
