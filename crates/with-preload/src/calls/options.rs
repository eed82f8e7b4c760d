//! Socket options.
//!
//! The kernel is asked first, and for any other socket that is all. Options of TCP and IP belong to a socket of TCP that
//! the broker has for each of the program's: so they have the values, limits and errors of the kernel's TCP.

use crate::errno::{Errno, Result, report};
use crate::{broker, descriptor, system};
use libc::{c_int, c_void, socklen_t};
use ringway_with_wire::request::{Action, MAX_VALUE};

/// Options of the level SOL_SOCKET that the broker must know too.
fn is_shared(option: c_int) -> bool {
    matches!(
        option,
        libc::SO_REUSEADDR
            | libc::SO_REUSEPORT
            | libc::SO_KEEPALIVE
            | libc::SO_LINGER
            | libc::SO_PRIORITY
            | libc::SO_MARK
            | libc::SO_BINDTODEVICE
            | libc::SO_MAX_PACING_RATE
    )
}

/// `setsockopt(2)`.
///
/// # Safety
/// As setsockopt(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    // SAFETY: the caller's.
    let kernel = unsafe { system::setsockopt_at(fd, level, option, value, length) };
    let asks = match level {
        libc::SOL_SOCKET => is_shared(option),
        libc::IPPROTO_TCP | libc::IPPROTO_IP | libc::IPPROTO_IPV6 => kernel.is_err(),
        _ => false,
    };
    let socket = asks.then(|| descriptor::recognise(fd)).flatten();
    report(match socket {
        // SAFETY: the caller's.
        Some(socket) => unsafe { set(&socket, level, option, value, length) },
        None => kernel.map(|()| 0),
    })
}

/// # Safety
/// As setsockopt(2).
unsafe fn set(
    socket: &descriptor::Descriptor,
    level: c_int,
    option: c_int,
    value: *const c_void,
    length: socklen_t,
) -> Result<c_int> {
    let length = length as usize;
    if value.is_null() && length > 0 {
        return Err(Errno(libc::EFAULT));
    }
    if length > MAX_VALUE {
        return Err(Errno(libc::EINVAL));
    }
    let value: &[u8] = if length == 0 {
        &[]
    } else {
        // SAFETY: the caller's value has so many octets.
        unsafe { std::slice::from_raw_parts(value.cast(), length) }
    };
    let (level, option) = (level as u32, option as u32);
    broker::ask(socket, Action::Set { level, option, value }, None)?.value().map(|_| 0)
}

/// `getsockopt(2)`.
///
/// # Safety
/// As getsockopt(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        let kernel = system::getsockopt_at(fd, level, option, value, length);
        report(match level {
            libc::SOL_SOCKET => of_socket(fd, option, value, length, kernel),
            libc::IPPROTO_TCP | libc::IPPROTO_IP | libc::IPPROTO_IPV6 if kernel.is_err() => {
                match descriptor::recognise(fd) {
                    Some(socket) => get(&socket, level, option, value, length),
                    None => kernel.map(|()| 0),
                }
            }
            _ => kernel.map(|()| 0),
        })
    }
}

/// Corrects what a Unix socket shows of itself.
///
/// # Safety
/// As getsockopt(2).
unsafe fn of_socket(
    fd: c_int,
    option: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
    kernel: Result<()>,
) -> Result<c_int> {
    // SAFETY: the kernel has written the value there, so that it can be read and written.
    let integer = |at: *mut c_void| unsafe { at.cast::<c_int>().read_unaligned() };
    // SAFETY: the kernel has written the length there.
    let room = kernel.is_ok() && unsafe { length.read_unaligned() } >= 4;
    match option {
        libc::SO_DOMAIN if room && integer(value) == libc::AF_UNIX => {
            if let Some(socket) = descriptor::recognise(fd) {
                let domain = if socket.ipv6 { libc::AF_INET6 } else { libc::AF_INET };
                // SAFETY: as above.
                unsafe { value.cast::<c_int>().write_unaligned(domain) };
            }
        }
        libc::SO_PROTOCOL if room && integer(value) == 0 && descriptor::recognise(fd).is_some() => {
            // SAFETY: as above.
            unsafe { value.cast::<c_int>().write_unaligned(libc::IPPROTO_TCP) };
        }
        libc::SO_ERROR if room && integer(value) != 0 => {
            if let Some(socket) = descriptor::recognise(fd) {
                let outcome = broker::ask(&socket, Action::Outcome, None);
                if let Ok(Err(Errno(error))) = outcome.as_ref().map(broker::Answer::value) {
                    // SAFETY: as above.
                    unsafe { value.cast::<c_int>().write_unaligned(error) };
                }
            }
        }
        libc::SO_REUSEPORT | libc::SO_PRIORITY | libc::SO_MARK | libc::SO_MAX_PACING_RATE => {
            if let Some(socket) = descriptor::recognise(fd) {
                // SAFETY: the caller's.
                return unsafe { get(&socket, libc::SOL_SOCKET, option, value, length) };
            }
        }
        _ => {}
    }
    kernel.map(|()| 0)
}

/// Asks the broker for the value of an option.
///
/// # Safety
/// As getsockopt(2).
unsafe fn get(
    socket: &descriptor::Descriptor,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> Result<c_int> {
    if value.is_null() || length.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller's.
    let room = unsafe { length.read_unaligned() };
    if c_int::try_from(room).is_err() {
        return Err(Errno(libc::EINVAL));
    }
    let action = Action::Get { level: level as u32, option: option as u32, length: room };
    let answer = broker::ask(socket, action, None)?;
    let got = answer.value()?;
    let count = got.len().min(room as usize);
    // SAFETY: there is room for so many octets.
    unsafe {
        std::ptr::copy_nonoverlapping(got.as_ptr(), value.cast::<u8>(), count);
        length.write_unaligned(count as socklen_t);
    }
    Ok(0)
}
