//! What a thread asks of the scheduler when it has to act at exact times.
#![allow(unsafe_code)]

use std::io;

/// Has the kernel wake the calling thread at the time that it asks for. By default a thread may be woken 50 microseconds
/// later, together with others (`PR_SET_TIMERSLACK`).
///
/// # Errors
/// The error of prctl(2).
pub fn use_exact_timers() -> io::Result<()> {
    // 0 would restore the default.
    let nanoseconds: libc::c_ulong = 1;
    // SAFETY: this option has no argument that is a pointer.
    let result = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, nanoseconds) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets the calling thread to the lowest real-time priority (`SCHED_FIFO`): it runs before all threads without one.
///
/// # Errors
/// The error of sched_setscheduler(2), as when the process lacks CAP_SYS_NICE.
pub fn use_real_time_priority() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the pointer is to a live structure; 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Moves the calling thread into a new network namespace, which has no link but a loopback interface that is down. What
/// the thread opens and starts from then on is in it. The namespace ends with the last that is in it.
///
/// # Errors
/// The error of unshare(2), as when the process lacks CAP_SYS_ADMIN.
pub fn enter_new_network() -> io::Result<()> {
    // SAFETY: no memory is concerned.
    let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_asks_for_exact_timers() {
        std::thread::spawn(|| {
            use_exact_timers().unwrap();
            let slack = std::fs::read_to_string("/proc/thread-self/timerslack_ns");
            // Linux shows that of threads only to a process with CAP_SYS_NICE in some versions.
            assert!(slack.is_err() || slack.unwrap().trim() == "1");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_new_network_has_no_links() {
        std::thread::spawn(|| match enter_new_network() {
            Ok(()) => {
                let links = crate::netlink::Netlink::open().unwrap().links().unwrap();
                // Some kernels create devices of tunnels in each.
                assert!(links.iter().all(|link| !link.is_up()), "{links:?}");
            }
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        })
        .join()
        .unwrap();
    }
}
