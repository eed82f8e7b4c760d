//! Waiting for several descriptors in a thread without a runtime.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Waits until one of the descriptors can be read or has an error, or until `timeout` has passed. Returns which can be
/// read; none also when a signal has interrupted the call.
///
/// # Errors
/// The error of poll(2).
pub fn wait_readable<const N: usize>(
    descriptors: [BorrowedFd<'_>; N],
    timeout: Option<Duration>,
) -> io::Result<[bool; N]> {
    let mut set = descriptors.map(|descriptor| libc::pollfd {
        fd: descriptor.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    // Rounded up, so that a caller with a deadline does not wake before it.
    let milliseconds = timeout.map_or(-1, |timeout| {
        libc::c_int::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(libc::c_int::MAX)
    });
    // SAFETY: `set` is a live array of N structures, whose descriptors are borrowed and so open.
    let ready = unsafe { libc::poll(set.as_mut_ptr(), N as libc::nfds_t, milliseconds) };
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
