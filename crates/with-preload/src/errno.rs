//! Errors as errno(3).

use libc::c_int;

/// An error number of errno(3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub(crate) c_int);

impl Errno {
    /// Returns that of the thread.
    pub(crate) fn last() -> Errno {
        // SAFETY: the C library returns the address of the thread's own variable.
        Errno(unsafe { *libc::__errno_location() })
    }

    /// Sets that of the thread.
    pub(crate) fn set(self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 }
    }
}

/// The result of what stands for a system call.
pub(crate) type Result<T> = core::result::Result<T, Errno>;

/// Returns a result as system calls do: -1 with errno for an error.
pub(crate) fn report(result: Result<c_int>) -> c_int {
    result.unwrap_or_else(|error| {
        error.set();
        -1
    })
}
