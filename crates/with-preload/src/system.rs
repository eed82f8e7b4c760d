//! System calls without the C library, whose functions of these names are this library's own.

use crate::errno::{Errno, Result};
use libc::{c_int, c_long, c_void, sockaddr, socklen_t};
use std::ffi::CStr;
use std::mem::size_of;

/// Makes a system call. Returns its result, negative for an error.
///
/// # Safety
/// As that system call.
#[cfg(target_arch = "x86_64")]
unsafe fn call(number: c_long, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: the kernel preserves all registers but these (System V ABI, AMD64 supplement, section A.2.1).
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Makes a system call. Returns its result, negative for an error.
///
/// # Safety
/// As that system call.
#[cfg(target_arch = "aarch64")]
unsafe fn call(number: c_long, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: the kernel preserves all registers but x0 (syscall(2), arm64).
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number as usize,
            inlateout("x0") a => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    result
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("expected x86_64 or aarch64, whose system calls src/system.rs knows");

unsafe fn checked(number: c_long, arguments: [usize; 6]) -> Result<usize> {
    // SAFETY: the caller's.
    let result = unsafe { call(number, arguments) };
    usize::try_from(result).map_err(|_| Errno(-result as c_int))
}

/// The integer that stands for a descriptor or another int in a register.
fn int(value: c_int) -> usize {
    value as isize as usize
}

/// A name as getsockname(2) writes it.
pub(crate) struct Named {
    pub(crate) storage: libc::sockaddr_storage,
    /// The length that the kernel has reported, which can exceed what is there.
    pub(crate) length: socklen_t,
}

impl Named {
    /// Returns room for a name.
    pub(crate) fn empty() -> Named {
        // SAFETY: the structure is integers, for which zero is a value.
        let storage = unsafe { std::mem::zeroed() };
        Named { storage, length: size_of::<libc::sockaddr_storage>() as socklen_t }
    }

    pub(crate) fn pointer(&mut self) -> *mut sockaddr {
        (&raw mut self.storage).cast()
    }

    pub(crate) fn address(&self) -> *const sockaddr {
        (&raw const self.storage).cast()
    }

    /// Returns the octets of the name.
    pub(crate) fn octets(&self) -> &[u8] {
        let length = (self.length as usize).min(size_of::<libc::sockaddr_storage>());
        // SAFETY: so many octets of the structure are there, and all are initialised.
        unsafe { std::slice::from_raw_parts((&raw const self.storage).cast(), length) }
    }

    /// Returns the address family; 0 for none.
    pub(crate) fn family(&self) -> c_int {
        if self.length < 2 { 0 } else { self.storage.ss_family.into() }
    }
}

pub(crate) fn socket(domain: c_int, kind: c_int, protocol: c_int) -> Result<c_int> {
    let arguments = [int(domain), int(kind), int(protocol), 0, 0, 0];
    // SAFETY: no argument is a pointer.
    unsafe { checked(libc::SYS_socket, arguments) }.map(|fd| fd as c_int)
}

pub(crate) fn close(fd: c_int) {
    // SAFETY: the descriptor is one that this library has opened. There is nothing to do about an error.
    let _ = unsafe { checked(libc::SYS_close, [int(fd), 0, 0, 0, 0, 0]) };
}

/// Calls bind(2) or connect(2) with a Unix address.
fn with_name(number: c_long, fd: c_int, name: &(libc::sockaddr_un, socklen_t)) -> Result<()> {
    let arguments = [int(fd), (&raw const name.0) as usize, name.1 as usize, 0, 0, 0];
    // SAFETY: the address is alive and at least of this length.
    unsafe { checked(number, arguments) }.map(|_| ())
}

pub(crate) fn bind(fd: c_int, name: &(libc::sockaddr_un, socklen_t)) -> Result<()> {
    with_name(libc::SYS_bind, fd, name)
}

pub(crate) fn connect(fd: c_int, name: &(libc::sockaddr_un, socklen_t)) -> Result<()> {
    with_name(libc::SYS_connect, fd, name)
}

pub(crate) fn listen(fd: c_int, backlog: c_int) -> Result<()> {
    // SAFETY: no argument is a pointer.
    unsafe { checked(libc::SYS_listen, [int(fd), int(backlog), 0, 0, 0, 0]) }.map(|_| ())
}

pub(crate) fn shutdown(fd: c_int, how: c_int) -> Result<()> {
    // SAFETY: no argument is a pointer.
    unsafe { checked(libc::SYS_shutdown, [int(fd), int(how), 0, 0, 0, 0]) }.map(|_| ())
}

fn name(number: c_long, fd: c_int) -> Result<Named> {
    let mut named = Named::empty();
    let length = (&raw mut named.length) as usize;
    let arguments = [int(fd), named.pointer() as usize, length, 0, 0, 0];
    // SAFETY: the kernel writes at most `length` octets, which are there, and the length.
    unsafe { checked(number, arguments) }?;
    Ok(named)
}

pub(crate) fn getsockname(fd: c_int) -> Result<Named> {
    name(libc::SYS_getsockname, fd)
}

pub(crate) fn getpeername(fd: c_int) -> Result<Named> {
    name(libc::SYS_getpeername, fd)
}

/// Calls getsockopt(2) with the program's own pointers.
///
/// # Safety
/// As getsockopt(2).
pub(crate) unsafe fn getsockopt_at(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> Result<()> {
    let arguments = [int(fd), int(level), int(option), value as usize, length as usize, 0];
    // SAFETY: the caller's.
    unsafe { checked(libc::SYS_getsockopt, arguments) }.map(|_| ())
}

/// Calls setsockopt(2) with the program's own pointer.
///
/// # Safety
/// As setsockopt(2).
pub(crate) unsafe fn setsockopt_at(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *const c_void,
    length: socklen_t,
) -> Result<()> {
    let arguments = [int(fd), int(level), int(option), value as usize, length as usize, 0];
    // SAFETY: the caller's.
    unsafe { checked(libc::SYS_setsockopt, arguments) }.map(|_| ())
}

/// Reads an option of the level SOL_SOCKET, whose value is plain data.
fn option<T: Copy>(fd: c_int, option: c_int, mut value: T) -> Result<T> {
    let mut length = size_of::<T>() as socklen_t;
    let pointer = (&raw mut value).cast();
    // SAFETY: the kernel writes at most `length` octets into the value.
    unsafe { getsockopt_at(fd, libc::SOL_SOCKET, option, pointer, &raw mut length) }?;
    Ok(value)
}

/// Returns an option whose value is an integer.
pub(crate) fn integer_option(fd: c_int, name: c_int) -> Result<c_int> {
    option(fd, name, 0)
}

/// Returns the user that the other end of a Unix socket runs as.
pub(crate) fn peer_user(fd: c_int) -> Result<u32> {
    let none = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    option(fd, libc::SO_PEERCRED, none).map(|credentials| credentials.uid)
}

/// Returns the time that sending may take; zero for any.
pub(crate) fn send_timeout(fd: c_int) -> libc::timeval {
    let any = libc::timeval { tv_sec: 0, tv_usec: 0 };
    option(fd, libc::SO_SNDTIMEO, any).unwrap_or(any)
}

/// Sets the time that receiving may take.
pub(crate) fn set_receive_timeout(fd: c_int, time: &libc::timeval) {
    let (value, length) =
        (std::ptr::from_ref(time).cast(), size_of::<libc::timeval>() as socklen_t);
    // SAFETY: the value is alive and of this length. Without it receiving takes as long as it takes.
    let _ = unsafe { setsockopt_at(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, value, length) };
}

/// Sends all parts in one call, without a signal and without waiting.
pub(crate) fn send(fd: c_int, parts: &[libc::iovec]) -> Result<usize> {
    // SAFETY: the structure is integers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_ptr().cast_mut();
    message.msg_iovlen = parts.len() as _;
    let flags = int(libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
    let arguments = [int(fd), (&raw const message) as usize, flags, 0, 0, 0];
    // SAFETY: the kernel reads the parts, which are alive.
    unsafe { checked(libc::SYS_sendmsg, arguments) }
}

/// Receives what is there.
pub(crate) fn receive(fd: c_int, out: &mut [u8]) -> Result<usize> {
    let arguments = [int(fd), out.as_mut_ptr() as usize, out.len(), 0, 0, 0];
    // SAFETY: the kernel writes at most that many octets.
    unsafe { checked(libc::SYS_recvfrom, arguments) }
}

/// Receives a descriptor (unix(7), SCM_RIGHTS).
pub(crate) fn receive_descriptor(fd: c_int) -> Result<c_int> {
    let mut octets = [0_u8; 64];
    let mut part = libc::iovec { iov_base: octets.as_mut_ptr().cast(), iov_len: octets.len() };
    // As many words as a header and a descriptor take, aligned as the header is.
    let mut control = [0_usize; 4];
    // SAFETY: the structure is integers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    let arguments = [int(fd), (&raw mut message) as usize, int(libc::MSG_CMSG_CLOEXEC), 0, 0, 0];
    loop {
        // SAFETY: the kernel writes no more than there is room for.
        match unsafe { checked(libc::SYS_recvmsg, arguments) } {
            Err(Errno(libc::EINTR)) => {}
            Err(error) => return Err(error),
            Ok(_) => break,
        }
    }
    // SAFETY: the kernel has written the headers that the length covers.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if header.is_null()
            || (*header).cmsg_level != libc::SOL_SOCKET
            || (*header).cmsg_type != libc::SCM_RIGHTS
        {
            return Err(Errno(libc::EPROTO));
        }
        Ok(libc::CMSG_DATA(header).cast::<c_int>().read_unaligned())
    }
}

/// Maps the beginning of a file, to be read.
pub(crate) fn map(fd: c_int, octets: usize) -> Result<*mut c_void> {
    let (protection, flags) = (int(libc::PROT_READ), int(libc::MAP_SHARED));
    // SAFETY: the kernel chooses where, so that nothing else is there.
    let mapped = unsafe { checked(libc::SYS_mmap, [0, octets, protection, flags, int(fd), 0]) };
    mapped.map(|at| at as *mut c_void)
}

/// Drops a mapping that nothing refers to.
pub(crate) fn unmap(at: *mut c_void, octets: usize) {
    // SAFETY: the caller has mapped it and uses it no more. It stays if that fails.
    let _ = unsafe { checked(libc::SYS_munmap, [at as usize, octets, 0, 0, 0, 0]) };
}

/// Returns the inode of an open file.
pub(crate) fn inode(fd: c_int) -> Result<u64> {
    // SAFETY: the structure is integers, for which zero is a value.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    let arguments = [int(fd), (&raw mut status) as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes one structure.
    unsafe { checked(libc::SYS_fstat, arguments) }?;
    Ok(status.st_ino)
}

/// Binds a socket to an address.
pub(crate) fn bind_to(fd: c_int, to: &Named) -> Result<()> {
    let arguments = [int(fd), (&raw const to.storage) as usize, to.length as usize, 0, 0, 0];
    // SAFETY: the address is alive and of this length.
    unsafe { checked(libc::SYS_bind, arguments) }.map(|_| ())
}

/// Returns the flags of an open file (fcntl(2), F_GETFL).
pub(crate) fn status_flags(fd: c_int) -> c_int {
    let arguments = [int(fd), int(libc::F_GETFL), 0, 0, 0, 0];
    // SAFETY: no argument is a pointer.
    unsafe { checked(libc::SYS_fcntl, arguments) }.map_or(0, |flags| flags as c_int)
}

/// Returns 64 random bits.
pub(crate) fn random() -> Result<u64> {
    let mut value = 0_u64;
    let arguments = [(&raw mut value) as usize, size_of::<u64>(), 0, 0, 0, 0];
    // SAFETY: the kernel writes at most that many octets.
    unsafe { checked(libc::SYS_getrandom, arguments) }.map(|_| value)
}

/// Sleeps for a millisecond, or until a signal.
pub(crate) fn pause() {
    let time = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    let arguments = [0, 0, (&raw const time) as usize, 0, 0, 0];
    // SAFETY: the kernel reads the time; the clock is the realtime one, the time is relative.
    let _ = unsafe { checked(libc::SYS_clock_nanosleep, arguments) };
}

/// Writes a line to standard error.
pub(crate) fn complain(line: &[u8]) {
    let arguments = [2, line.as_ptr() as usize, line.len(), 0, 0, 0];
    // SAFETY: the kernel reads the line. There is nowhere to report an error.
    let _ = unsafe { checked(libc::SYS_write, arguments) };
}

/// Opens a file to read it.
pub(crate) fn open(path: &CStr) -> Result<c_int> {
    let here = int(libc::AT_FDCWD);
    // It may be no file, but a pipe that nobody writes to.
    let flags = int(libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY);
    let arguments = [here, path.as_ptr() as usize, flags, 0, 0, 0];
    // SAFETY: the kernel reads the path, which ends with a zero.
    unsafe { checked(libc::SYS_openat, arguments) }.map(|fd| fd as c_int)
}

/// Returns whether a path is a file that may be executed.
pub(crate) fn is_executable(path: &CStr) -> bool {
    let arguments = [int(libc::AT_FDCWD), path.as_ptr() as usize, int(libc::X_OK), 0, 0, 0];
    // SAFETY: the kernel reads the path, which ends with a zero.
    unsafe { checked(libc::SYS_faccessat, arguments) }.is_ok()
}

/// Reads the beginning of a file.
pub(crate) fn read(fd: c_int, out: &mut [u8]) -> Result<usize> {
    let arguments = [int(fd), out.as_mut_ptr() as usize, out.len(), 0, 0, 0];
    // SAFETY: the kernel writes no more octets than there is room for.
    unsafe { checked(libc::SYS_read, arguments) }
}
