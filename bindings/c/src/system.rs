//! What the thread of the library needs of the system, and no library offers with safe signatures.
#![allow(unsafe_code)]

use libc::c_int;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Once;
use tokio::io::unix::AsyncFd;

/// A function that C calls.
pub(crate) type Handler = extern "C" fn();

/// Moves the calling thread to a table of descriptors of its own, with nothing but `kept` and the standard error, and blocks
/// all signals in it: handlers are the program's, and so is SIGPIPE.
pub(crate) fn own_descriptors(kept: BorrowedFd<'_>) -> Result<(), Errno> {
    let number = kept.as_raw_fd() as u32;
    let close = |from: u32, to: u32, flags: u32| {
        // SAFETY: the first call makes a copy of the table, so that nothing of another thread is closed by any.
        match unsafe { libc::syscall(libc::SYS_close_range, from, to, flags) } {
            0 => Ok(()),
            _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::NOSYS)),
        }
    };
    // SAFETY: an empty set is filled and becomes the mask of this thread.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
    }
    close(number + 1, u32::MAX, libc::CLOSE_RANGE_UNSHARE)?;
    if number > 3 {
        close(3, number - 1, 0)?;
    }
    // What would be written to these must not reach a peer.
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    if rustix::io::fcntl_getfd(rustix::stdio::stderr()).is_err() {
        rustix::stdio::dup2_stderr(&null)?;
    }
    Ok(())
}

/// Has the runtime of the calling thread wait for a descriptor.
pub(crate) fn register(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: it is owned, so that it stays open, and the same, for as long as the result has it.
    unsafe { AsyncFd::register(descriptor) }.map_err(|error| error.into_parts().1)
}

/// Closes the number of a descriptor that another thread took into a table of its own.
pub(crate) fn close_copy(number: RawFd) {
    // SAFETY: in this thread's table nobody owns it any longer.
    drop(unsafe { OwnedFd::from_raw_fd(number) });
}

/// Registers what is done when the process forks and when it ends.
pub(crate) fn at_fork_and_exit(
    before: Handler,
    in_parent: Handler,
    in_child: Handler,
    exit: Handler,
) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the functions stay where they are, because the library is never unloaded.
        unsafe {
            pthread_atfork(Some(before), Some(in_parent), Some(in_child));
            libc::atexit(exit);
        }
    });
}

unsafe extern "C" {
    /// As POSIX has it; the `libc` crate does not, for this C library.
    fn pthread_atfork(
        before: Option<Handler>,
        in_parent: Option<Handler>,
        in_child: Option<Handler>,
    ) -> c_int;
}
