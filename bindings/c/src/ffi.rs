//! The functions that C calls. All unsafe code of the crate is here and in `system`: pointers of the program become slices and borrowed
//! descriptors here, and what is done with them is in `calls`.
//!
//! A panic does not leave a function: it becomes EIO, if the library is built with unwinding (profile `bindings`). Where there is
//! no call that could return it, which is at a fork, and in the profile `release` it ends the process.
//! Every function that takes pointers requires what its manual page does: each is null or valid for its length.
#![allow(unsafe_code)]

use crate::calls;
use crate::fault::Fault;
use crate::options::{
    PI_API, PI_MSG_CHECKSUM_LEN, PI_MSG_FINAL, PI_MSG_LIFETIME, PI_MSG_MAX_RETRANSMISSIONS,
    PI_MSG_ORDERED, PI_MSG_PRIORITY, PI_MSG_RELIABLE, PI_PRIORITY, PI_SECURITY,
};
use crate::packet::Header;
use libc::{c_char, c_int, c_void, msghdr, size_t, sockaddr, socklen_t, ssize_t};
use rustix::io::{IoSlice, IoSliceMut};
use std::cell::RefCell;
use std::ffi::CString;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, IntoRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Buffers of one call.
const MAX_BUFFERS: usize = libc::UIO_MAXIOV as usize;
/// Octets of a text that is an option.
const MAX_TEXT: usize = 4096;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

fn fail(fault: &Fault) {
    let text: Vec<u8> = fault.text.bytes().filter(|octet| *octet != 0).collect();
    // A thread that ends may have none any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = CString::new(text).unwrap_or_default());
    // SAFETY: the location is the thread's.
    unsafe { *libc::__errno_location() = fault.errno };
}

/// Runs a call, and returns -1 and sets errno if it fails.
fn call<T: From<i8>>(body: impl FnOnce() -> Result<T, Fault>) -> T {
    let done = catch_unwind(AssertUnwindSafe(body));
    let done = done.unwrap_or_else(|_| Err(Fault::new(libc::EIO, "the library has failed")));
    done.unwrap_or_else(|fault| {
        fail(&fault);
        T::from(-1)
    })
}

fn null() -> Fault {
    Fault::new(libc::EFAULT, "expected a pointer, got NULL")
}

/// Borrows a descriptor of the program for a call.
fn borrow<'a>(descriptor: c_int) -> Result<BorrowedFd<'a>, Fault> {
    if descriptor < 0 {
        return Err(Fault::new(libc::EBADF, "the descriptor is not open"));
    }
    // SAFETY: it is not -1. One that is not open, or is closed meanwhile, is an error of a system call, or another
    // socket, as it is for every function of the C library.
    Ok(unsafe { BorrowedFd::borrow_raw(descriptor) })
}

/// Returns octets of the program.
///
/// # Safety
/// The pointer is null or valid for reading `length` octets during the call.
unsafe fn octets<'a>(at: *const c_void, length: usize) -> Result<&'a [u8], Fault> {
    match length {
        0 => Ok(&[]),
        _ if at.is_null() => Err(null()),
        // SAFETY: the caller vouches for it.
        _ => Ok(unsafe { std::slice::from_raw_parts(at.cast(), length) }),
    }
}

/// Writes octets where the program wants them, as many as it has room for, and their number before that.
///
/// # Safety
/// Each pointer is null or valid, `at` for as many octets as `length` points to.
unsafe fn put(value: &[u8], at: *mut c_void, length: *mut socklen_t) -> Result<(), Fault> {
    if at.is_null() || length.is_null() {
        return Err(null());
    }
    // SAFETY: the caller vouches for both.
    unsafe {
        let room = value.len().min(*length as usize);
        std::ptr::copy_nonoverlapping(value.as_ptr(), at.cast(), room);
        *length = value.len() as socklen_t;
    }
    Ok(())
}

/// Reads an address.
///
/// # Safety
/// As [`octets`].
unsafe fn address(at: *const sockaddr, length: socklen_t) -> Result<SocketAddr, Fault> {
    // SAFETY: the caller vouches for it.
    let octets = unsafe { octets(at.cast(), length as usize)? };
    let family = octets.first_chunk().map_or(0, |family| c_int::from(u16::from_ne_bytes(*family)));
    let port = |octets: &[u8]| u16::from_be_bytes([octets[2], octets[3]]);
    let short = || Fault::new(libc::EINVAL, "the address is too short for its family");
    match family {
        libc::AF_INET => {
            let ip: [u8; 4] =
                octets.get(4..8).and_then(|ip| ip.try_into().ok()).ok_or_else(short)?;
            Ok(SocketAddr::new(IpAddr::from(ip), port(octets)))
        }
        libc::AF_INET6 => {
            let rest = octets.get(8..28).ok_or_else(short)?;
            let ip: [u8; 16] = rest[..16].try_into().map_err(|_| short())?;
            let scope = u32::from_ne_bytes(rest[16..].try_into().map_err(|_| short())?);
            let v6 = std::net::SocketAddrV6::new(ip.into(), port(octets), 0, scope);
            Ok(SocketAddr::V6(v6))
        }
        other => {
            let text = format!("expected an address of AF_INET or AF_INET6, got family {other}");
            Err(Fault::new(libc::EAFNOSUPPORT, text))
        }
    }
}

/// Returns an address as C has it.
fn sockaddr_of(address: SocketAddr) -> Vec<u8> {
    let family = |family: c_int| (family as u16).to_ne_bytes();
    let port = address.port().to_be_bytes();
    match address {
        SocketAddr::V4(v4) => {
            [&family(libc::AF_INET)[..], &port, &v4.ip().octets(), &[0; 8]].concat()
        }
        SocketAddr::V6(v6) => {
            let scope = v6.scope_id().to_ne_bytes();
            [&family(libc::AF_INET6)[..], &port, &[0; 4], &v6.ip().octets(), &scope].concat()
        }
    }
}

/// Reads a text, with or without the NUL at its end.
fn text(octets: &[u8]) -> Result<&str, Fault> {
    let end = octets.iter().position(|octet| *octet == 0).unwrap_or(octets.len());
    let text = std::str::from_utf8(&octets[..end]).ok().filter(|text| text.len() <= MAX_TEXT);
    let expected = || format!("expected a text in UTF-8 of at most {MAX_TEXT} octets");
    text.ok_or_else(|| Fault::new(libc::EINVAL, expected()))
}

fn number(octets: &[u8]) -> Result<c_int, Fault> {
    let number = octets.try_into().map(c_int::from_ne_bytes);
    number.map_err(|_| Fault::new(libc::EINVAL, "expected an int"))
}

/// Returns the head of a program's message.
///
/// # Safety
/// The pointer is null or valid, and so is what it refers to.
unsafe fn message<'a>(at: *const msghdr) -> Result<&'a msghdr, Fault> {
    // SAFETY: the caller vouches for it.
    let message = unsafe { at.as_ref() }.ok_or_else(null)?;
    if message.msg_iovlen > MAX_BUFFERS {
        let text = format!("expected at most {MAX_BUFFERS} buffers");
        return Err(Fault::new(libc::EMSGSIZE, text));
    }
    if message.msg_iov.is_null() && message.msg_iovlen > 0 {
        return Err(null());
    }
    Ok(message)
}

/// Reads the control messages of pi_sendmsg.
///
/// # Safety
/// The control messages are valid.
unsafe fn properties(message: &msghdr) -> Result<Header, Fault> {
    let mut header = Header::default();
    if message.msg_control.is_null() {
        return Ok(header);
    }
    // SAFETY: the caller vouches for what the macros follow; each message is looked at within its length.
    unsafe {
        let mut next = libc::CMSG_FIRSTHDR(message);
        while let Some(control) = next.as_ref() {
            let length = control.cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
            let value = octets(libc::CMSG_DATA(next).cast(), length)?;
            if control.cmsg_level != PI_API {
                return Err(Fault::new(libc::EINVAL, "expected control messages of PI_API"));
            }
            set(&mut header, control.cmsg_type, number(value)?)?;
            next = libc::CMSG_NXTHDR(message, next);
        }
    }
    Ok(header)
}

fn set(header: &mut Header, property: c_int, value: c_int) -> Result<(), Fault> {
    let is_set = value != 0;
    let negative = |_| Fault::new(libc::EINVAL, "expected a number that is not negative");
    let count = u32::try_from(value);
    match property {
        PI_MSG_LIFETIME => header.lifetime = Some(count.map_err(negative)?),
        PI_MSG_PRIORITY => header.priority = Some(count.map_err(negative)?),
        PI_MSG_MAX_RETRANSMISSIONS => header.max_retransmissions = Some(count.map_err(negative)?),
        PI_MSG_CHECKSUM_LEN => header.coverage = Some(count.map_err(negative)?),
        PI_MSG_ORDERED => header.ordered = Some(is_set),
        PI_MSG_RELIABLE => header.reliable = Some(is_set),
        PI_MSG_FINAL => header.is_last = is_set,
        _ => return Err(Fault::new(libc::EINVAL, "no property of messages has this number")),
    }
    Ok(())
}

/// Creates a socket of a domain, AF_INET, AF_INET6 or AF_UNSPEC, with services: see pi_socket(3).
#[unsafe(no_mangle)]
pub extern "C" fn pi_socket(domain: c_int, service: c_int) -> c_int {
    call(|| calls::socket(domain, service).map(IntoRawFd::into_raw_fd))
}

/// Sets the local address: see pi_connect(3).
///
/// # Safety
/// `address` is null or valid for `address_len` octets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pi_bind(
    socket: c_int,
    address: *const sockaddr,
    address_len: socklen_t,
) -> c_int {
    call(|| {
        // SAFETY: the caller vouches for it.
        let address = unsafe { self::address(address, address_len)? };
        calls::bind(borrow(socket)?, address).map(|()| 0)
    })
}

/// Listens with all protocols that have the services. The backlog is the library's: see pi_connect(3).
#[unsafe(no_mangle)]
pub extern "C" fn pi_listen(socket: c_int, backlog: c_int) -> c_int {
    let _ = backlog;
    call(|| calls::listen(borrow(socket)?).map(|()| 0))
}

/// Returns the descriptor of the next connection, and its peer's address: see pi_connect(3).
///
/// # Safety
/// Both pointers are null, or valid, `address` for as many octets as `address_len` points to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pi_accept(
    socket: c_int,
    address: *mut sockaddr,
    address_len: *mut socklen_t,
) -> c_int {
    call(|| {
        let (descriptor, info) = calls::accept(borrow(socket)?)?;
        if !address.is_null() {
            // SAFETY: the caller vouches for both.
            unsafe { put(&sockaddr_of(info.remote), address.cast(), address_len)? };
        }
        Ok(descriptor.into_raw_fd())
    })
}

/// Connects to an address, or, if it is NULL, to the endpoints of PI_REMOTE: see pi_connect(3).
///
/// # Safety
/// `address` is null or valid for `address_len` octets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pi_connect(
    socket: c_int,
    address: *const sockaddr,
    address_len: socklen_t,
) -> c_int {
    call(|| {
        let address = match address.is_null() {
            true => None,
            // SAFETY: the caller vouches for it.
            false => Some(unsafe { self::address(address, address_len)? }),
        };
        calls::connect(borrow(socket)?, address).map(|()| 0)
    })
}

/// Returns the descriptor of another connection in the group of one: see pi_connect(3).
#[unsafe(no_mangle)]
pub extern "C" fn pi_stream(socket: c_int) -> c_int {
    call(|| calls::stream(borrow(socket)?).map(IntoRawFd::into_raw_fd))
}

/// Sends a message, or octets: see pi_send(3).
///
/// # Safety
/// `buffer` is null or valid for `length` octets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pi_send(
    socket: c_int,
    buffer: *const c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    call(|| {
        // SAFETY: the caller vouches for it.
        let octets = unsafe { octets(buffer, length)? };
        let parts = [IoSlice::new(octets)];
        calls::send(borrow(socket)?, &parts, Header::default(), flags).map(|sent| sent as ssize_t)
    })
}

/// Receives a message, or octets; returns 0 at the end: see pi_recv(3).
///
/// # Safety
/// `buffer` is null or valid for `length` octets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pi_recv(
    socket: c_int,
    buffer: *mut c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    call(|| {
        let room: &mut [u8] = match length {
            0 => &mut [],
            _ if buffer.is_null() => return Err(null()),
            // SAFETY: the caller vouches for it.
            _ => unsafe { std::slice::from_raw_parts_mut(buffer.cast(), length) },
        };
        let mut parts = [IoSliceMut::new(room)];
        let received = calls::receive(borrow(socket)?, &mut parts, flags)?;
        Ok(received.length as ssize_t)
    })
}

/// Sends a message with properties of its own, which are control messages of level PI_API: see pi_send(3).
///
/// # Safety
/// `message` is null or valid, and so is what it refers to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pi_sendmsg(
    socket: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    call(|| {
        // SAFETY: the caller vouches for it.
        let (message, header) = unsafe {
            let message = self::message(message)?;
            (message, properties(message)?)
        };
        if !message.msg_name.is_null() {
            return Err(Fault::new(libc::EISCONN, "expected no address: the socket is connected"));
        }
        let mut parts = Vec::with_capacity(message.msg_iovlen);
        for index in 0..message.msg_iovlen {
            // SAFETY: the caller vouches for the array and for what it refers to.
            parts.push(IoSlice::new(unsafe {
                let part = &*message.msg_iov.add(index);
                octets(part.iov_base, part.iov_len)?
            }));
        }
        calls::send(borrow(socket)?, &parts, header, flags).map(|sent| sent as ssize_t)
    })
}

/// Receives a message. MSG_EOR in msg_flags says that it ends, MSG_TRUNC that it was longer: see pi_recv(3).
///
/// # Safety
/// `message` is null or valid, and so is what it refers to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pi_recvmsg(socket: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    call(|| {
        // SAFETY: the caller vouches for it.
        let head = unsafe { self::message(message)? };
        let mut parts = Vec::with_capacity(head.msg_iovlen);
        for index in 0..head.msg_iovlen {
            // SAFETY: the caller vouches for the array and for what it refers to.
            let part = unsafe { &*head.msg_iov.add(index) };
            if part.iov_len > 0 && !part.iov_base.is_null() {
                // SAFETY: as above.
                let room = unsafe {
                    std::slice::from_raw_parts_mut(part.iov_base.cast::<u8>(), part.iov_len)
                };
                parts.push(IoSliceMut::new(room));
            }
        }
        let received = calls::receive(borrow(socket)?, &mut parts, flags)?;
        // SAFETY: it is not null, as `message` has found out.
        unsafe {
            (*message).msg_flags = received.flags;
            (*message).msg_namelen = 0;
            (*message).msg_controllen = 0;
        }
        Ok(received.length as ssize_t)
    })
}

/// Sets an option of level PI_API, or SO_RCVTIMEO or SO_SNDTIMEO of SOL_SOCKET: see pi_setsockopt(3).
///
/// # Safety
/// `value` is null or valid for `value_len` octets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pi_setsockopt(
    socket: c_int,
    level: c_int,
    option: c_int,
    value: *const c_void,
    value_len: socklen_t,
) -> c_int {
    call(|| {
        let descriptor = borrow(socket)?;
        // SAFETY: the caller vouches for it.
        let octets = unsafe { octets(value, value_len as usize)? };
        match (level, option) {
            (PI_API, PI_SECURITY | PI_PRIORITY) => {
                calls::set_number(descriptor, option, number(octets)?)?;
            }
            (PI_API, _) => calls::set_text(descriptor, option, text(octets)?)?,
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO) => {
                calls::local_address(descriptor)?;
                // SAFETY: the caller vouches for it.
                if unsafe { libc::setsockopt(socket, level, option, value, value_len) } != 0 {
                    return Err(last_error());
                }
            }
            _ => return Err(Fault::new(libc::ENOPROTOOPT, "no option of this level and number")),
        }
        Ok(0)
    })
}

/// Returns an option of level PI_API, or SO_ERROR, SO_RCVTIMEO or SO_SNDTIMEO of SOL_SOCKET: see pi_setsockopt(3).
///
/// # Safety
/// Both pointers are null, or valid, `value` for as many octets as `value_len` points to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pi_getsockopt(
    socket: c_int,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    value_len: *mut socklen_t,
) -> c_int {
    call(|| {
        let descriptor = borrow(socket)?;
        if value.is_null() || value_len.is_null() {
            return Err(null());
        }
        // SAFETY: the caller vouches for all that follows, and neither pointer is null.
        unsafe {
            match (level, option) {
                (PI_API, _) => match calls::number(descriptor, option)? {
                    Some(number) => put(&number.to_ne_bytes(), value, value_len)?,
                    None => {
                        let name = octets(value, *value_len as usize)?;
                        // Only that of a property is read.
                        let is_named = option == crate::options::PI_PROPERTY;
                        let name = if is_named { text(name)?.to_string() } else { String::new() };
                        let found = calls::text(descriptor, option, name.trim())?;
                        let found: Vec<u8> = found.into_bytes().into_iter().chain([0]).collect();
                        if found.len() > *value_len as usize {
                            let text = format!("expected room for {} octets", found.len());
                            *value_len = found.len() as socklen_t;
                            return Err(Fault::new(libc::ERANGE, text));
                        }
                        put(&found, value, value_len)?;
                    }
                },
                (libc::SOL_SOCKET, libc::SO_ERROR) => {
                    let fault = calls::pending_error(descriptor)?;
                    let errno = fault.as_ref().map_or(0, |fault| fault.errno);
                    if let Some(fault) = fault {
                        fail(&fault);
                    }
                    put(&errno.to_ne_bytes(), value, value_len)?;
                }
                (libc::SOL_SOCKET, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO) => {
                    calls::local_address(descriptor)?;
                    if libc::getsockopt(socket, level, option, value, value_len) != 0 {
                        return Err(last_error());
                    }
                }
                _ => {
                    let text = "no option of this level and number";
                    return Err(Fault::new(libc::ENOPROTOOPT, text));
                }
            }
        }
        Ok(0)
    })
}

/// Returns the local address: see pi_connect(3).
///
/// # Safety
/// Both pointers are null, or valid, `address` for as many octets as `address_len` points to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pi_getsockname(
    socket: c_int,
    address: *mut sockaddr,
    address_len: *mut socklen_t,
) -> c_int {
    call(|| {
        let found = sockaddr_of(calls::local_address(borrow(socket)?)?);
        // SAFETY: the caller vouches for both.
        unsafe { put(&found, address.cast(), address_len) }.map(|()| 0)
    })
}

/// Returns the peer's address: see pi_connect(3).
///
/// # Safety
/// Both pointers are null, or valid, `address` for as many octets as `address_len` points to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pi_getpeername(
    socket: c_int,
    address: *mut sockaddr,
    address_len: *mut socklen_t,
) -> c_int {
    call(|| {
        let found = sockaddr_of(calls::peer_address(borrow(socket)?)?);
        // SAFETY: the caller vouches for both.
        unsafe { put(&found, address.cast(), address_len) }.map(|()| 0)
    })
}

/// Ends a direction of a byte stream, or both of any connection, for all duplicates: see pi_close(3).
#[unsafe(no_mangle)]
pub extern "C" fn pi_shutdown(socket: c_int, how: c_int) -> c_int {
    call(|| calls::shutdown(borrow(socket)?, how).map(|()| 0))
}

/// Ends a connection at once, such that its peer sees an error, and closes the descriptor: see pi_close(3).
#[unsafe(no_mangle)]
pub extern "C" fn pi_abort(socket: c_int) -> c_int {
    call(|| {
        calls::abort(borrow(socket)?)?;
        close(socket)
    })
}

/// Closes a descriptor. With the last one of a connection, that ends behind what was sent: see pi_close(3).
#[unsafe(no_mangle)]
pub extern "C" fn pi_close(socket: c_int) -> c_int {
    call(|| {
        calls::local_address(borrow(socket)?)?;
        close(socket)
    })
}

/// Returns what the last error of a call in this thread was, in words. The text is valid until the next one.
#[unsafe(no_mangle)]
pub extern "C" fn pi_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

fn last_error() -> Fault {
    let error = io::Error::last_os_error();
    Fault::new(error.raw_os_error().unwrap_or(libc::EIO), error.to_string())
}

fn close(descriptor: RawFd) -> Result<c_int, Fault> {
    // SAFETY: it is the program's, which gives it up.
    if unsafe { libc::close(descriptor) } != 0 {
        return Err(last_error());
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    /// A value whose release panics, at the end of a call.
    struct Released;

    impl Drop for Released {
        fn drop(&mut self) {
            panic!("something is wrong");
        }
    }

    fn last() -> (i32, String) {
        let errno = io::Error::last_os_error().raw_os_error().unwrap();
        // SAFETY: it is the text of this thread, and no call comes between.
        let text = unsafe { CStr::from_ptr(pi_error()) };
        (errno, text.to_string_lossy().into_owned())
    }

    #[test]
    fn a_panic_becomes_an_error_of_the_call() {
        let failed: c_int = call(|| panic!("something is wrong"));
        assert_eq!((failed, last()), (-1, (libc::EIO, "the library has failed".to_string())));
        let failed: ssize_t = call(|| {
            let _released = Released;
            Ok(1)
        });
        assert_eq!((failed, last().0), (-1, libc::EIO));
    }

    /// What a call has begun when it panics is released, and the next calls work.
    #[test]
    fn a_panic_leaves_the_library_usable() {
        let socket = pi_socket(libc::AF_UNSPEC, crate::service::PI_RELIABLE_MESSAGES);
        assert!(socket >= 0);
        let key = crate::table::key(borrow(socket).unwrap()).unwrap();
        // With the lock of the table.
        let failed: c_int = call(|| {
            crate::table::change(key, |_| panic!("something is wrong"));
            Ok(0)
        });
        assert_eq!((failed, last().0), (-1, libc::EIO));
        let other = pi_socket(libc::AF_UNSPEC, crate::service::PI_RELIABLE_MESSAGES);
        assert!(other >= 0);
        assert_eq!([pi_close(socket), pi_close(other)], [0, 0]);
    }

    #[test]
    fn every_function_catches_panics() {
        let source = include_str!("ffi.rs");
        let functions = source.split("#[unsafe(no_mangle)]").skip(1);
        let functions: Vec<_> = functions.filter(|text| text.contains("extern \"C\" fn")).collect();
        assert!(functions.len() >= 17, "{}", functions.len());
        for function in functions {
            let body = function.split_once("{\n").unwrap().1;
            let caught = body.contains("    call(|| ") && body.matches("call(").count() == 1;
            // It reads a text of its thread, and nothing of that panics.
            assert!(caught || function.contains("fn pi_error"), "{function}");
        }
    }
}
