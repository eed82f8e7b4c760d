//! Waiting for several descriptors in a thread without a runtime.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Waits until one of the descriptors can be read or has an error, or until `timeout` has passed, never less. Returns
/// which can be read; none also when a signal has interrupted the call.
///
/// # Errors
/// The error of ppoll(2).
pub fn wait_readable<const N: usize>(
    descriptors: [BorrowedFd<'_>; N],
    timeout: Option<Duration>,
) -> io::Result<[bool; N]> {
    let mut set = descriptors.map(|descriptor| libc::pollfd {
        fd: descriptor.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    let limit = timeout.map(|timeout| libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos() as _,
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `set` is a live array of N structures, whose descriptors are borrowed and so open; `limit` is null or
    // points to a live structure; no mask of signals is given.
    let ready =
        unsafe { libc::ppoll(set.as_mut_ptr(), N as libc::nfds_t, limit, std::ptr::null()) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
        return Ok([false; N]);
    }
    Ok(set.map(|descriptor| descriptor.revents != 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::time::Instant;

    #[test]
    fn the_readable_ones_are_returned() {
        let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let wait = |limit| wait_readable(sockets.each_ref().map(AsFd::as_fd), limit).unwrap();
        let start = Instant::now();
        assert_eq!(wait(Some(Duration::from_micros(1_500))), [false, false]);
        assert!(start.elapsed() >= Duration::from_micros(1_500));
        sockets[0].send_to(b"x", sockets[1].local_addr().unwrap()).unwrap();
        assert_eq!(wait(None), [false, true]);
    }
}
