//! What a process keeps of its rights once its sockets and devices are open.
#![allow(unsafe_code)]

use std::io;

/// A capability (capabilities(7)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Capability {
    /// Binding sockets to ports below 1,024.
    NetBindService = 10,
    /// Configuring interfaces, addresses and routes.
    NetAdmin = 12,
}

/// Number of capabilities that the kernel's interface has room for.
const CAPABILITIES: u32 = 64;
/// Version of the structures below (`_LINUX_CAPABILITY_VERSION_3`).
const VERSION: u32 = 0x2008_0522;

/// `struct __user_cap_header_struct`.
#[repr(C)]
struct Header {
    version: u32,
    /// 0 is the calling thread.
    thread: libc::c_int,
}

/// `struct __user_cap_data_struct`, of which there is one for each 32 capabilities.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Drops all capabilities of the calling thread but `kept`, for good: neither a program that it executes nor a thread
/// that it starts gets them back. A capability that the thread lacks is not gained. Other threads keep theirs.
///
/// # Errors
/// The error of capget(2), capset(2) or prctl(2).
pub fn drop_capabilities(kept: &[Capability]) -> io::Result<()> {
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1)?;
    let is_kept = |number: u32| kept.iter().any(|&kept| kept as u32 == number);
    for number in (0..CAPABILITIES).filter(|&number| !is_kept(number)) {
        // The kernel has fewer, or the thread may not (CAP_SETPCAP). Then execve(2) gives it none either, because of
        // the bit above.
        if prctl(libc::PR_CAPBSET_DROP, number.into()).is_err() {
            break;
        }
    }
    // Linux 4.2 and earlier have no ambient capabilities.
    let _ = prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong);
    let mut header = Header { version: VERSION, thread: 0 };
    let mut sets = [Sets::default(); 2];
    // SAFETY: the kernel writes two of the structures for this version.
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) };
    check(result)?;
    for (sets, base) in sets.iter_mut().zip([0, 32]) {
        let mask = (0..32).filter(|&bit| is_kept(base + bit)).fold(0, |mask, bit| mask | 1 << bit);
        let permitted = sets.permitted & mask;
        *sets = Sets { effective: permitted, permitted, inheritable: 0 };
    }
    // SAFETY: the kernel reads two of the structures for this version.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()) };
    check(result)
}

/// Calls prctl(2) with one argument; the others are 0.
fn prctl(option: libc::c_int, argument: libc::c_ulong) -> io::Result<()> {
    let none: libc::c_ulong = 0;
    // SAFETY: none of the options used here has an argument that is a pointer.
    check(unsafe { libc::prctl(option, argument, none, none, none) }.into())
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(field: &str) -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim_start_matches(':').trim().to_owned()
    }

    #[test]
    fn a_thread_keeps_only_the_named_capability() {
        let permitted = |text: String| u64::from_str_radix(&text, 16).unwrap();
        let net_admin = 1 << Capability::NetAdmin as u32;
        let before = permitted(status("CapPrm"));
        let thread = std::thread::spawn(move || {
            drop_capabilities(&[Capability::NetAdmin]).unwrap();
            let kept = before & net_admin;
            assert_eq!(permitted(status("CapPrm")), kept);
            assert_eq!(permitted(status("CapEff")), kept);
            assert_eq!(permitted(status("CapInh")), 0);
            drop_capabilities(&[]).unwrap();
            assert_eq!(permitted(status("CapPrm")), 0);
            drop_capabilities(&[Capability::NetAdmin]).unwrap();
            assert_eq!(permitted(status("CapPrm")), 0, "none is gained");
            assert_eq!(status("NoNewPrivs"), "1");
        });
        thread.join().unwrap();
        assert_eq!(permitted(status("CapPrm")), before, "other threads keep theirs");
    }
}
