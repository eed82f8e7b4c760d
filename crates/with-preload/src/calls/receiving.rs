//! Receiving where a Unix socket would show: the address of the sender, flags that mean something else, and the end of
//! data after a reset, which a socket of TCP reports as an error.
//!
//! The kernel is asked first, and its result is looked at only if it has an address or is an end.

use crate::calls::names;
use crate::datagrams;
use crate::descriptor;
use crate::errno::Errno;
use crate::system::Named;
use crate::{address, broker, environment, real};
use libc::{c_int, c_void, iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};
use ringway_with_wire::request::Action;

/// Octets that one call discards at most.
const DISCARD: usize = 1 << 14;

/// Returns the result of a call that has received data. An end of data that was a reset is an error, once. A socket that
/// is not connected has the error of TCP.
fn received(fd: c_int, count: ssize_t, wanted: size_t) -> ssize_t {
    let unconnected = count < 0 && Errno::last() == Errno(libc::EINVAL);
    let ended = count == 0 && wanted > 0 && descriptor::OPENED.has(fd);
    if !unconnected && !ended {
        return count;
    }
    let Some(socket) = descriptor::recognise(fd) else { return count };
    if unconnected {
        Errno(libc::ENOTCONN).set();
        return count;
    }
    match broker::ask(&socket, Action::Outcome, None).as_ref().map(broker::Answer::value) {
        Ok(Err(error)) => {
            error.set();
            -1
        }
        _ => count,
    }
}

/// Does what the flags ask of a socket of TCP, if they mean something else to a Unix socket: there are no errors in the
/// error queue, and MSG_TRUNC discards (tcp(7)). Returns `None` if they do not.
fn by_flags(fd: c_int, length: size_t, flags: c_int) -> Option<ssize_t> {
    if flags & (libc::MSG_ERRQUEUE | libc::MSG_TRUNC) == 0 {
        return None;
    }
    descriptor::recognise(fd)?;
    if flags & libc::MSG_ERRQUEUE != 0 {
        Errno(libc::EAGAIN).set();
        return Some(-1);
    }
    let mut discarded = [0_u8; DISCARD];
    let length = length.min(DISCARD);
    // SAFETY: there is room for so many octets.
    let count =
        unsafe { real::recv(fd, discarded.as_mut_ptr().cast(), length, flags & !libc::MSG_TRUNC) };
    Some(received(fd, count, length))
}

/// `read(2)`.
///
/// # Safety
/// As read(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: c_int, data: *mut c_void, length: size_t) -> ssize_t {
    // SAFETY: the caller's.
    received(fd, unsafe { real::read(fd, data, length) }, length)
}

/// `read(2)` of a program compiled with _FORTIFY_SOURCE.
///
/// # Safety
/// As read(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __read_chk(
    fd: c_int,
    data: *mut c_void,
    length: size_t,
    room: size_t,
) -> ssize_t {
    // SAFETY: the caller's.
    received(fd, unsafe { real::__read_chk(fd, data, length, room) }, length)
}

/// `readv(2)`.
///
/// # Safety
/// As readv(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller's.
    unsafe {
        let got = real::readv(fd, parts, count);
        if got > 0 { got } else { received(fd, got, wanted(parts, count as usize)) }
    }
}

/// Returns the number of octets that parts have room for.
///
/// # Safety
/// There are so many parts.
unsafe fn wanted(parts: *const iovec, count: usize) -> size_t {
    if parts.is_null() {
        return 0;
    }
    // SAFETY: the kernel has just read them, and the caller's.
    (0..count).map(|index| unsafe { (*parts.add(index)).iov_len }).fold(0, usize::saturating_add)
}

/// `recv(2)`.
///
/// # Safety
/// As recv(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recv(
    fd: c_int,
    data: *mut c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    if let Some(done) = by_flags(fd, length, flags) {
        return done;
    }
    // SAFETY: the caller's.
    received(fd, unsafe { real::recv(fd, data, length, flags) }, length)
}

/// `recv(2)` of a program compiled with _FORTIFY_SOURCE.
///
/// # Safety
/// As recv(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recv_chk(
    fd: c_int,
    data: *mut c_void,
    length: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    if let Some(done) = by_flags(fd, length, flags) {
        return done;
    }
    // SAFETY: the caller's.
    received(fd, unsafe { real::__recv_chk(fd, data, length, room, flags) }, length)
}

/// Receives with the address of the sender. A connected socket of TCP has none (recvfrom(2)).
///
/// # Safety
/// As recvfrom(2).
unsafe fn with_sender(
    fd: c_int,
    from: *mut sockaddr,
    from_length: *mut socklen_t,
    receive: impl FnOnce(*mut sockaddr, *mut socklen_t) -> ssize_t,
) -> ssize_t {
    let broker = environment::get().filter(|_| !from.is_null() && !from_length.is_null());
    let Some(broker) = broker else { return receive(from, from_length) };
    let mut sender = Named::empty();
    let got = receive(sender.pointer(), &raw mut sender.length);
    if got < 0 {
        return got;
    }
    // SAFETY: the kernel has written so many octets.
    unsafe {
        let length = sender.octets().len() as socklen_t;
        datagrams::received_from(fd, sender.pointer(), length);
    }
    // SAFETY: the caller's.
    let written = unsafe {
        if address::name(&sender, broker.broker).is_some() {
            from_length.write_unaligned(0);
            Ok(())
        } else {
            address::write_octets(sender.octets(), sender.length, from, from_length)
        }
    };
    match written {
        Ok(()) => got,
        Err(error) => {
            error.set();
            -1
        }
    }
}

/// `recvfrom(2)`.
///
/// # Safety
/// As recvfrom(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvfrom(
    fd: c_int,
    data: *mut c_void,
    length: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_length: *mut socklen_t,
) -> ssize_t {
    if let Some(done) = by_flags(fd, length, flags) {
        return done;
    }
    // SAFETY: the caller's.
    let got = unsafe {
        with_sender(fd, from, from_length, |from, from_length| {
            real::recvfrom(fd, data, length, flags, from, from_length)
        })
    };
    received(fd, got, length)
}

/// `recvfrom(2)` of a program compiled with _FORTIFY_SOURCE.
///
/// # Safety
/// As recvfrom(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    data: *mut c_void,
    length: size_t,
    room: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_length: *mut socklen_t,
) -> ssize_t {
    if let Some(done) = by_flags(fd, length, flags) {
        return done;
    }
    // SAFETY: the caller's.
    let got = unsafe {
        with_sender(fd, from, from_length, |from, from_length| {
            real::__recvfrom_chk(fd, data, length, room, flags, from, from_length)
        })
    };
    received(fd, got, length)
}

/// `recvmsg(2)`.
///
/// # Safety
/// As recvmsg(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's.
    unsafe {
        if message.is_null() {
            return real::recvmsg(fd, message, flags);
        }
        let parts = |message: &msghdr| wanted(message.msg_iov, message.msg_iovlen);
        if flags & (libc::MSG_ERRQUEUE | libc::MSG_TRUNC) != 0
            && let Some(done) = by_flags(fd, parts(&*message), flags)
        {
            ((*message).msg_namelen, (*message).msg_controllen) = (0, 0);
            return done;
        }
        let room = (*message).msg_namelen;
        let got = real::recvmsg(fd, message, flags);
        if got >= 0 {
            named(fd, &mut *message, room);
        }
        if got > 0 { got } else { received(fd, got, parts(&*message)) }
    }
}

/// Corrects the address of a message that was received, for which there was so much room.
///
/// # Safety
/// As recvmsg(2).
unsafe fn named(fd: c_int, message: &mut msghdr, room: socklen_t) {
    let name = message.msg_name;
    if name.is_null() {
        return;
    }
    // SAFETY: the caller's, and the kernel has written so many octets.
    unsafe {
        // The kernel states the whole length of a name that it has cut off, by which it is not recognised.
        let length = message.msg_namelen.min(room);
        let is_cut = message.msg_namelen > room;
        if names::is_own(name.cast(), length) || is_cut && descriptor::recognise(fd).is_some() {
            message.msg_namelen = 0;
        } else {
            datagrams::received_from(fd, name.cast(), length);
        }
    }
}

/// Messages whose room for addresses is remembered; one call receives no more.
const MAX_MESSAGES: usize = 1_024;

/// `recvmmsg(2)`.
///
/// # Safety
/// As recvmmsg(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmmsg(
    fd: c_int,
    messages: *mut libc::mmsghdr,
    count: u32,
    flags: c_int,
    timeout: *mut libc::timespec,
) -> c_int {
    if messages.is_null() || flags & libc::MSG_ERRQUEUE != 0 {
        // SAFETY: the caller's.
        return unsafe { real::recvmmsg(fd, messages, count, flags, timeout) };
    }
    // UIO_MAXIOV, to which the kernel reduces it.
    let count = count.min(MAX_MESSAGES as u32);
    let mut rooms = [0; MAX_MESSAGES];
    // SAFETY: the caller's.
    unsafe {
        for (index, room) in rooms.iter_mut().enumerate().take(count as usize) {
            *room = (*messages.add(index)).msg_hdr.msg_namelen;
        }
        let got = real::recvmmsg(fd, messages, count, flags, timeout);
        for (index, room) in rooms.iter().enumerate().take(usize::try_from(got).unwrap_or(0)) {
            named(fd, &mut (*messages.add(index)).msg_hdr, *room);
        }
        got
    }
}
