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

/// Returns whether the other end of a connection is closed in both directions (poll(2), POLLHUP). Does not wait.
pub fn has_hung_up(fd: BorrowedFd<'_>) -> bool {
    let mut set = libc::pollfd { fd: fd.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: `set` is one live structure, whose descriptor is borrowed and so open.
    let ready = unsafe { libc::poll(&raw mut set, 1, 0) };
    ready > 0 && set.revents & (libc::POLLHUP | libc::POLLERR) != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Shutdown, UdpSocket};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
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

    #[test]
    fn an_end_that_is_closed_in_both_directions_has_hung_up() {
        let (here, there) = UnixStream::pair().unwrap();
        there.shutdown(Shutdown::Write).unwrap();
        assert!(!has_hung_up(here.as_fd()));
        drop(there);
        assert!(has_hung_up(here.as_fd()));
    }
}
