//! Listening, and accepting connections.

use crate::descriptor::{self, Descriptor};
use crate::errno::{Errno, report};
use crate::system::{self, Named};
use crate::{address, broker, datagrams, environment, real};
use libc::{c_int, sockaddr, socklen_t};
use ringway_with_wire::Name;
use ringway_with_wire::request::Action;

/// `bind(2)`.
///
/// # Safety
/// As bind(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bind(fd: c_int, to: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        match address::family(to, length) {
            libc::AF_INET | libc::AF_INET6 => {}
            _ => return real::bind(fd, to, length),
        }
        let Some(socket) = descriptor::recognise(fd) else {
            let bind = || real::bind(fd, to, length) == 0;
            let is_bound = bind() || is_bound_instead(fd, to, length, bind);
            if is_bound {
                datagrams::bound(fd);
            }
            return if is_bound { 0 } else { -1 };
        };
        let bound = address::read(to, length).and_then(|to| {
            if to.is_ipv6() != socket.ipv6 {
                return Err(Errno(libc::EAFNOSUPPORT));
            }
            broker::ask(&socket, Action::Bind(to), None)?.value().map(|_| 0)
        });
        report(bound)
    }
}

/// Binds a socket of UDP all the same, if it was refused a port that the broker can do without. The error stays otherwise.
///
/// # Safety
/// As bind(2).
unsafe fn is_bound_instead(
    fd: c_int,
    to: *const sockaddr,
    length: socklen_t,
    bind: impl FnMut() -> bool,
) -> bool {
    let error = Errno::last();
    if error != Errno(libc::EADDRINUSE) {
        return false;
    }
    // SAFETY: the caller's.
    let is_bound =
        unsafe { address::read(to, length) }.is_ok_and(|to| datagrams::bind_instead(fd, to, bind));
    if !is_bound {
        error.set();
    }
    is_bound
}

/// `listen(2)`.
///
/// # Safety
/// As listen(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    let socket = descriptor::recognise(fd);
    // The kernel's queue first: a connection may come as soon as the broker listens.
    let listening = system::listen(fd, backlog);
    report(match (listening, socket) {
        (Ok(()), Some(socket)) => {
            let backlog = u32::try_from(backlog).unwrap_or(u32::MAX);
            broker::ask(&socket, Action::Listen(backlog), None)
                .and_then(|answer| answer.value().map(|_| 0))
        }
        (listening, _) => listening.map(|()| 0),
    })
}

/// `accept(2)`.
///
/// # Safety
/// As accept(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept(fd: c_int, from: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: the caller's.
    unsafe { accept4(fd, from, length, 0) }
}

/// `accept4(2)`.
///
/// # Safety
/// As accept4(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept4(
    fd: c_int,
    from: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    let Some(broker) = environment::get() else {
        // SAFETY: the caller's.
        return unsafe { real::accept4(fd, from, length, flags) };
    };
    loop {
        let mut peer = Named::empty();
        // SAFETY: there is room for the length that is named.
        let accepted = unsafe { real::accept4(fd, peer.pointer(), &raw mut peer.length, flags) };
        if accepted < 0 {
            return accepted;
        }
        let shown = match address::name(&peer, broker.broker) {
            Some(Name::Connection { peer, .. }) => Some(peer),
            _ => None,
        };
        if shown.is_some() || is_ours(&peer, accepted) {
            // Names are free for all users, and so is connecting to one: only the broker's word counts.
            if shown.is_none() || system::peer_user(accepted) != Ok(broker.user) {
                system::close(accepted);
                continue;
            }
            descriptor::OPENED.add(accepted);
        }
        if from.is_null() {
            return accepted;
        }
        // SAFETY: the caller's.
        let written = unsafe {
            match shown {
                Some(shown) => {
                    let ipv6 =
                        descriptor::recognise(accepted).is_some_and(|Descriptor { ipv6, .. }| ipv6);
                    address::write(shown, ipv6, from, length)
                }
                None => address::write_octets(peer.octets(), peer.length, from, length),
            }
        };
        return match written {
            Ok(()) => accepted,
            Err(error) => {
                system::close(accepted);
                report(Err(error))
            }
        };
    }
}

/// Returns whether a Unix socket that somebody has connected was accepted at one of ours.
fn is_ours(peer: &Named, accepted: c_int) -> bool {
    peer.family() == libc::AF_UNIX && descriptor::recognise(accepted).is_some()
}
