//! Sending where a Unix socket would refuse what a socket of TCP takes: an address, which TCP ignores once it is
//! connected (tcp(7)), MSG_FASTOPEN, and urgent data.
//!
//! The kernel is asked first, because sockets of UDP pass here at each datagram.

use crate::calls::open::connect;
use crate::datagrams;
use crate::descriptor;
use crate::errno::Errno;
use crate::real;
use libc::{c_int, c_void, msghdr, size_t, sockaddr, socklen_t, ssize_t};

/// Returns whether urgent data is to be sent on a socket of the broker's, which carries none. Unix sockets have urgent
/// data of another kind.
fn is_urgent(fd: c_int, flags: c_int) -> bool {
    let urgent = flags & libc::MSG_OOB != 0 && descriptor::recognise(fd).is_some();
    if urgent {
        Errno(libc::EOPNOTSUPP).set();
    }
    urgent
}

/// Returns whether the kernel has refused an address only because the socket is a Unix socket. The error stays.
fn is_refused(fd: c_int, sent: ssize_t) -> bool {
    sent < 0
        && matches!(Errno::last().0, libc::EISCONN | libc::EOPNOTSUPP | libc::EINVAL)
        && descriptor::recognise(fd).is_some()
}

/// `send(2)`.
///
/// # Safety
/// As send(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn send(
    fd: c_int,
    data: *const c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    if is_urgent(fd, flags) {
        return -1;
    }
    // SAFETY: the caller's.
    let sent = unsafe { real::send(fd, data, length, flags) };
    if sent < 0 && Errno::last() == Errno(libc::ENOTCONN) {
        // What TCP reports of a socket that was never connected.
        if descriptor::recognise(fd).is_some() {
            Errno(libc::EPIPE).set();
        }
    }
    sent
}

/// `sendto(2)`.
///
/// # Safety
/// As sendto(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendto(
    fd: c_int,
    data: *const c_void,
    length: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_length: socklen_t,
) -> ssize_t {
    if is_urgent(fd, flags) {
        return -1;
    }
    // SAFETY: the caller's.
    unsafe {
        if !to.is_null()
            && let Some(proxy) = datagrams::target(fd, to, to_length)
        {
            return real::sendto(fd, data, length, flags, proxy.address(), proxy.length);
        }
        let sent = real::sendto(fd, data, length, flags, to, to_length);
        if to.is_null() || !is_refused(fd, sent) || !opened(fd, flags, to, to_length) {
            return sent;
        }
        real::send(fd, data, length, flags & !libc::MSG_FASTOPEN)
    }
}

/// Connects first if that is asked for (tcp(7), MSG_FASTOPEN). Returns whether data can be sent.
///
/// # Safety
/// As connect(2).
unsafe fn opened(fd: c_int, flags: c_int, to: *const sockaddr, length: socklen_t) -> bool {
    // SAFETY: the caller's.
    flags & libc::MSG_FASTOPEN == 0
        || unsafe { connect(fd, to, length) } == 0
        || Errno::last().0 == libc::EISCONN
}

/// `sendmsg(2)`.
///
/// # Safety
/// As sendmsg(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    if is_urgent(fd, flags) {
        return -1;
    }
    // SAFETY: the caller's.
    unsafe {
        if let Some((to, length)) = destination(message)
            && !datagrams::names_interface(&*message)
            && let Some(mut proxy) = datagrams::target(fd, to, length)
        {
            let mut translated = *message;
            (translated.msg_name, translated.msg_namelen) = (proxy.pointer().cast(), proxy.length);
            return real::sendmsg(fd, &raw const translated, flags);
        }
        let sent = real::sendmsg(fd, message, flags);
        if message.is_null() || (*message).msg_name.is_null() || !is_refused(fd, sent) {
            return sent;
        }
        let (to, length) = ((*message).msg_name.cast_const().cast(), (*message).msg_namelen);
        if !opened(fd, flags, to, length) {
            return sent;
        }
        let mut without = *message;
        (without.msg_name, without.msg_namelen) = (std::ptr::null_mut(), 0);
        real::sendmsg(fd, &raw const without, flags & !libc::MSG_FASTOPEN)
    }
}

/// Returns the address that a message is sent to.
///
/// # Safety
/// As sendmsg(2).
unsafe fn destination(message: *const msghdr) -> Option<(*const sockaddr, socklen_t)> {
    if message.is_null() {
        return None;
    }
    // SAFETY: the caller's.
    let (name, length) = unsafe { ((*message).msg_name, (*message).msg_namelen) };
    (!name.is_null()).then(|| (name.cast_const().cast(), length))
}

/// Sends as many messages as have addresses that are translated, from the first on. Returns their number, or -1.
///
/// # Safety
/// As sendmmsg(2).
unsafe fn translated(
    fd: c_int,
    messages: *mut libc::mmsghdr,
    count: u32,
    flags: c_int,
) -> Option<c_int> {
    let mut sent = 0;
    while sent < count {
        // SAFETY: the caller's.
        unsafe {
            let message = messages.add(sent as usize);
            let Some((to, length)) = destination(&raw const (*message).msg_hdr) else { break };
            if datagrams::names_interface(&(*message).msg_hdr) {
                break;
            }
            let Some(mut proxy) = datagrams::target(fd, to, length) else { break };
            let mut header = (*message).msg_hdr;
            (header.msg_name, header.msg_namelen) = (proxy.pointer().cast(), proxy.length);
            match u32::try_from(real::sendmsg(fd, &raw const header, flags)) {
                Ok(length) => (*message).msg_len = length,
                Err(_) if sent > 0 => break,
                Err(_) => return Some(-1),
            }
        }
        sent += 1;
    }
    (sent > 0).then_some(sent as c_int)
}

/// Returns how many messages from the first on the kernel sends as they are: those before the next that is translated.
///
/// # Safety
/// As sendmmsg(2); the first one is not translated.
unsafe fn untranslated(fd: c_int, messages: *mut libc::mmsghdr, count: u32) -> u32 {
    // SAFETY: the caller's.
    let is_translated = |index: &u32| unsafe {
        let message = &raw const (*messages.add(*index as usize)).msg_hdr;
        !datagrams::names_interface(&*message)
            && destination(message)
                .is_some_and(|(to, length)| datagrams::target(fd, to, length).is_some())
    };
    if datagrams::is_served() { (1..count).find(is_translated).unwrap_or(count) } else { count }
}

/// `sendmmsg(2)`. Where an address is refused or translated, it sends one message at a time.
///
/// # Safety
/// As sendmmsg(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmmsg(
    fd: c_int,
    messages: *mut libc::mmsghdr,
    count: u32,
    flags: c_int,
) -> c_int {
    if is_urgent(fd, flags) {
        return -1;
    }
    // SAFETY: the caller's.
    unsafe {
        if !messages.is_null()
            && let Some(sent) = translated(fd, messages, count, flags)
        {
            return sent;
        }
        let as_they_are =
            if messages.is_null() { count } else { untranslated(fd, messages, count) };
        let sent = real::sendmmsg(fd, messages, as_they_are, flags);
        if messages.is_null() || count == 0 || !is_refused(fd, sent as ssize_t) {
            return sent;
        }
        let one = sendmsg(fd, &raw const (*messages).msg_hdr, flags);
        let Ok(length) = u32::try_from(one) else { return -1 };
        (*messages).msg_len = length;
        1
    }
}
