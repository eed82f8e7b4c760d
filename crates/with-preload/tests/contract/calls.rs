//! System calls with results that a program notes.

use libc::{c_int, c_void, socklen_t};
use std::io;
use std::mem::size_of;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The name of an error that bodies meet.
pub(crate) fn name(errno: c_int) -> String {
    let names = [
        (libc::EAGAIN, "EAGAIN"),
        (libc::EINPROGRESS, "EINPROGRESS"),
        (libc::EALREADY, "EALREADY"),
        (libc::EISCONN, "EISCONN"),
        (libc::ENOTCONN, "ENOTCONN"),
        (libc::ECONNREFUSED, "ECONNREFUSED"),
        (libc::ECONNRESET, "ECONNRESET"),
        (libc::EPIPE, "EPIPE"),
        (libc::EADDRINUSE, "EADDRINUSE"),
        (libc::EADDRNOTAVAIL, "EADDRNOTAVAIL"),
        (libc::EAFNOSUPPORT, "EAFNOSUPPORT"),
        (libc::EINVAL, "EINVAL"),
        (libc::ENOPROTOOPT, "ENOPROTOOPT"),
        (libc::EOPNOTSUPP, "EOPNOTSUPP"),
        (libc::ENOSYS, "ENOSYS"),
    ];
    let known = names.iter().find(|(number, _)| *number == errno);
    known.map_or_else(|| format!("errno {errno}"), |(_, name)| (*name).to_owned())
}

/// The name of the thread's error.
pub(crate) fn last() -> String {
    error(&io::Error::last_os_error())
}

pub(crate) fn error(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), name)
}

/// The result of a call that returns a number or -1.
pub(crate) fn result(result: impl TryInto<i64>) -> String {
    match result.try_into().unwrap_or(-1) {
        -1 => last(),
        number => number.to_string(),
    }
}

pub(crate) fn socket(domain: c_int, flags: c_int) -> OwnedFd {
    // SAFETY: no argument is a pointer; the descriptor is new.
    unsafe {
        let fd = libc::socket(domain, libc::SOCK_STREAM | flags, 0);
        assert!(fd >= 0, "{}", last());
        OwnedFd::from_raw_fd(fd)
    }
}

/// The structure for a port of 127.0.0.1.
pub(crate) fn loopback(port: u16) -> libc::sockaddr_in {
    v4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))
}

pub(crate) fn v4(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
        sin_zero: [0; 8],
    }
}

/// The length of a structure.
pub(crate) fn length<T>(_: &T) -> socklen_t {
    size_of::<T>() as socklen_t
}

pub(crate) fn connect(fd: &OwnedFd, port: u16) -> String {
    let address = loopback(port);
    // SAFETY: the address is alive and of this length.
    result(unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), length(&address)) })
}

/// The value of an option that is an integer, or the error.
pub(crate) fn option(fd: &impl AsRawFd, level: c_int, name: c_int) -> String {
    let mut value: c_int = 0;
    let mut length = size_of::<c_int>() as socklen_t;
    // SAFETY: the kernel writes at most `length` octets.
    let got = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut length)
    };
    if got == 0 { format!("{value} ({length} octets)") } else { last() }
}

pub(crate) fn set_option<T>(fd: &impl AsRawFd, level: c_int, name: c_int, value: &T) -> String {
    let (at, length) = (std::ptr::from_ref(value).cast::<c_void>(), length(value));
    // SAFETY: the value is alive and of this length.
    result(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, at, length) })
}

/// The error of a socket, which is cleared.
pub(crate) fn socket_error(fd: &impl AsRawFd) -> String {
    match option(fd, libc::SOL_SOCKET, libc::SO_ERROR).split(' ').next() {
        Some("0") => "none".to_owned(),
        Some(number) => number.parse().map_or_else(|_| number.to_owned(), name),
        None => String::new(),
    }
}

/// The events of poll(2), which is waited for.
pub(crate) fn poll(fd: &impl AsRawFd, events: i16, milliseconds: c_int) -> String {
    let mut set = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    // SAFETY: `set` is one live structure.
    unsafe { libc::poll(&raw mut set, 1, milliseconds) };
    let names = [
        (libc::POLLIN, "IN"),
        (libc::POLLOUT, "OUT"),
        (libc::POLLRDHUP, "RDHUP"),
        (libc::POLLERR, "ERR"),
        (libc::POLLHUP, "HUP"),
    ];
    let set: Vec<_> = names.iter().filter(|(bit, _)| set.revents & bit != 0).collect();
    set.iter().map(|(_, name)| *name).collect::<Vec<_>>().join("|")
}

pub(crate) fn send(fd: &impl AsRawFd, bytes: &[u8], flags: c_int) -> String {
    // SAFETY: the octets are there.
    result(unsafe {
        libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags | libc::MSG_NOSIGNAL)
    })
}

/// What recv(2) returns, with the bytes.
pub(crate) fn recv(fd: &impl AsRawFd, room: usize, flags: c_int) -> String {
    let mut bytes = vec![0_u8; room];
    // SAFETY: there is room for so many octets.
    let got = unsafe { libc::recv(fd.as_raw_fd(), bytes.as_mut_ptr().cast(), room, flags) };
    match usize::try_from(got) {
        Ok(0) => "end".to_owned(),
        Ok(count) => format!("{count}: {}", String::from_utf8_lossy(&bytes[..count.min(room)])),
        Err(_) => last(),
    }
}
