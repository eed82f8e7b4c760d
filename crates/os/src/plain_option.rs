//! Socket options whose values are plain data, set and read as octets: what one program asks for is done by another.
#![allow(unsafe_code)]

use libc::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Octets of the longest value that is read.
pub const MAX_OPTION: usize = 512;

/// `TCP_INFO` of linux/tcp.h.
pub const TCP_INFO: c_int = libc::TCP_INFO;

/// Returns whether an option's value has neither pointers nor descriptors, and concerns nothing but its socket.
fn is_plain(level: c_int, option: c_int) -> bool {
    match level {
        libc::SOL_SOCKET => matches!(
            option,
            libc::SO_REUSEADDR
                | libc::SO_REUSEPORT
                | libc::SO_KEEPALIVE
                | libc::SO_LINGER
                | libc::SO_PRIORITY
                | libc::SO_MARK
                | libc::SO_BINDTODEVICE
                | libc::SO_MAX_PACING_RATE
        ),
        libc::IPPROTO_TCP => matches!(
            option,
            libc::TCP_NODELAY
                | libc::TCP_MAXSEG
                | libc::TCP_CORK
                | libc::TCP_KEEPIDLE
                | libc::TCP_KEEPINTVL
                | libc::TCP_KEEPCNT
                | libc::TCP_SYNCNT
                | libc::TCP_LINGER2
                | libc::TCP_DEFER_ACCEPT
                | libc::TCP_WINDOW_CLAMP
                | libc::TCP_INFO
                | libc::TCP_QUICKACK
                | libc::TCP_CONGESTION
                | libc::TCP_USER_TIMEOUT
                | libc::TCP_FASTOPEN
                | libc::TCP_FASTOPEN_CONNECT
                | libc::TCP_NOTSENT_LOWAT
        ),
        libc::IPPROTO_IP => matches!(
            option,
            libc::IP_TOS
                | libc::IP_TTL
                | libc::IP_OPTIONS
                | libc::IP_RECVERR
                | libc::IP_MTU_DISCOVER
                | libc::IP_MTU
                | libc::IP_FREEBIND
                | libc::IP_TRANSPARENT
                | libc::IP_BIND_ADDRESS_NO_PORT
        ),
        libc::IPPROTO_IPV6 => matches!(
            option,
            libc::IPV6_V6ONLY
                | libc::IPV6_UNICAST_HOPS
                | libc::IPV6_TCLASS
                | libc::IPV6_RECVERR
                | libc::IPV6_MTU_DISCOVER
                | libc::IPV6_MTU
        ),
        _ => false,
    }
}

fn check(level: c_int, option: c_int) -> io::Result<()> {
    if is_plain(level, option) {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::ENOPROTOOPT))
    }
}

/// Sets an option of a socket. Any that may be more than plain data is ENOPROTOOPT.
///
/// # Errors
/// The error of setsockopt(2).
pub fn set_plain_option(
    fd: BorrowedFd<'_>,
    level: c_int,
    option: c_int,
    value: &[u8],
) -> io::Result<()> {
    check(level, option)?;
    let length = libc::socklen_t::try_from(value.len()).unwrap_or(libc::socklen_t::MAX);
    // SAFETY: the kernel reads at most `length` octets, which are there.
    let result =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, value.as_ptr().cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option of a socket into a buffer of `length` octets, at most [`MAX_OPTION`]. Any that may be more than plain
/// data is ENOPROTOOPT.
///
/// # Errors
/// The error of getsockopt(2).
pub fn plain_option(
    fd: BorrowedFd<'_>,
    level: c_int,
    option: c_int,
    length: usize,
) -> io::Result<Vec<u8>> {
    check(level, option)?;
    let mut value = vec![0_u8; length.min(MAX_OPTION)];
    let mut length = libc::socklen_t::try_from(value.len()).unwrap_or(0);
    // SAFETY: the kernel writes at most `length` octets into the value, which has so many, and the number written.
    let result = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, option, value.as_mut_ptr().cast(), &raw mut length)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    value.truncate(length as usize);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Socket, Type};
    use std::os::fd::AsFd;

    #[test]
    fn plain_options_are_set_and_read_and_others_refused() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let fd = socket.as_fd();
        set_plain_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, &1_i32.to_ne_bytes()).unwrap();
        let value = plain_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 4).unwrap();
        assert_eq!(value, 1_i32.to_ne_bytes());
        assert_eq!(plain_option(fd, libc::IPPROTO_TCP, TCP_INFO, 8).unwrap().len(), 8);
        let error = |result: io::Result<()>| result.unwrap_err().raw_os_error();
        let set = |level, option, value: &[u8]| set_plain_option(fd, level, option, value);
        assert_eq!(error(set(libc::IPPROTO_TCP, libc::TCP_NODELAY, &[1])), Some(libc::EINVAL));
        let filter = set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &[0; 16]);
        assert_eq!(error(filter), Some(libc::ENOPROTOOPT));
    }
}
