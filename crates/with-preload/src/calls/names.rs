//! The addresses of a socket.

use crate::errno::{Errno, Result, report};
use crate::system::{self, Named};
use crate::{address, broker, datagrams, descriptor, environment};
use libc::{c_int, sockaddr, socklen_t};
use ringway_with_wire::request::{Action, read_addresses};
use std::net::SocketAddr;

/// `getsockname(2)`.
///
/// # Safety
/// As getsockname(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockname(
    fd: c_int,
    to: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    let named = system::getsockname(fd);
    // SAFETY: the caller's.
    report(named.and_then(|named| unsafe { write(fd, &named, false, to, length) }).map(|()| 0))
}

/// `getpeername(2)`.
///
/// # Safety
/// As getpeername(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getpeername(
    fd: c_int,
    to: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    let named = system::getpeername(fd);
    // SAFETY: the caller's.
    report(named.and_then(|named| unsafe { write(fd, &named, true, to, length) }).map(|()| 0))
}

/// Writes what the kernel has returned, or the address that stands behind it.
///
/// # Safety
/// As getsockname(2).
unsafe fn write(
    fd: c_int,
    named: &Named,
    peer: bool,
    to: *mut sockaddr,
    length: *mut socklen_t,
) -> Result<()> {
    let is_unix = named.family() == libc::AF_UNIX;
    let Some(socket) = is_unix.then(|| descriptor::recognise(fd)).flatten() else {
        let proxied = if peer { address::of(named).and_then(datagrams::shown) } else { None };
        // SAFETY: the caller's.
        return unsafe {
            match proxied {
                Some(shown) => address::write(shown, named.family() == libc::AF_INET6, to, length),
                None => address::write_octets(named.octets(), named.length, to, length),
            }
        };
    };
    let shown = match (socket.ends, peer) {
        (Some((end, _)), true) | (Some((_, end)), false) => end,
        (None, peer) => asked(&socket, peer)?,
    };
    // SAFETY: the caller's.
    unsafe { address::write(shown, socket.ipv6, to, length) }
}

/// Returns an address that the broker knows.
fn asked(socket: &descriptor::Descriptor, peer: bool) -> Result<SocketAddr> {
    let answer = broker::ask(socket, Action::Addresses, None)?;
    let (local, remote) = read_addresses(answer.value()?).map_err(|_| Errno(libc::EPROTO))?;
    if peer { remote.ok_or(Errno(libc::ENOTCONN)) } else { Ok(local) }
}

/// Returns whether an address that the kernel has written is the name of a socket of the broker's.
///
/// # Safety
/// The pointer is to so many octets, or there is no room for a name.
pub(super) unsafe fn is_own(at: *const sockaddr, length: socklen_t) -> bool {
    // SAFETY: the caller's.
    if unsafe { address::family(at, length) } != libc::AF_UNIX {
        return false;
    }
    let mut named = Named::empty();
    if length > named.length {
        return false;
    }
    named.length = length;
    // SAFETY: there are so many octets, and room for them.
    unsafe {
        std::ptr::copy_nonoverlapping(at.cast::<u8>(), named.pointer().cast(), length as usize);
    }
    environment::get().is_some_and(|broker| address::name(&named, broker.broker).is_some())
}
