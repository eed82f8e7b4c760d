//! System calls by their numbers, and io_uring, whose requests pass no function of the C library and are refused.

use super::{executing, names, open, options, receiving, sending, serve};
use crate::errno::Errno;
use crate::{environment, real, system};
use libc::{c_int, c_long, c_uint, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

/// `syscall(2)`.
///
/// # Safety
/// As the system call of that number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    let fd = a as c_int;
    // SAFETY: the caller's: the arguments are those of the system call.
    unsafe {
        match number {
            libc::SYS_socket => open::socket(fd, b as c_int, c as c_int).into(),
            libc::SYS_connect => open::connect(fd, b as _, c as _).into(),
            libc::SYS_bind => serve::bind(fd, b as _, c as _).into(),
            libc::SYS_listen => serve::listen(fd, b as c_int).into(),
            libc::SYS_accept => serve::accept(fd, b as _, c as _).into(),
            libc::SYS_accept4 => serve::accept4(fd, b as _, c as _, d as c_int).into(),
            libc::SYS_shutdown => open::shutdown(fd, b as c_int).into(),
            libc::SYS_getsockname => names::getsockname(fd, b as _, c as _).into(),
            libc::SYS_getpeername => names::getpeername(fd, b as _, c as _).into(),
            libc::SYS_getsockopt => {
                options::getsockopt(fd, b as c_int, c as c_int, d as _, e as _).into()
            }
            libc::SYS_setsockopt => {
                options::setsockopt(fd, b as c_int, c as c_int, d as _, e as _).into()
            }
            libc::SYS_sendto => {
                sending::sendto(fd, b as _, c as _, d as c_int, e as _, f as _) as c_long
            }
            libc::SYS_sendmsg => sending::sendmsg(fd, b as _, c as c_int) as c_long,
            libc::SYS_sendmmsg => sending::sendmmsg(fd, b as _, c as u32, d as c_int).into(),
            libc::SYS_read => receiving::read(fd, b as _, c as _) as c_long,
            libc::SYS_readv => receiving::readv(fd, b as _, c as c_int) as c_long,
            libc::SYS_recvfrom => {
                receiving::recvfrom(fd, b as _, c as _, d as c_int, e as _, f as _) as c_long
            }
            libc::SYS_recvmsg => receiving::recvmsg(fd, b as _, c as c_int) as c_long,
            libc::SYS_recvmmsg => {
                receiving::recvmmsg(fd, b as _, c as u32, d as c_int, e as _).into()
            }
            libc::SYS_execve => executing::execve(a as _, b as _, c as _).into(),
            libc::SYS_io_uring_setup if refuses() => {
                Errno(libc::ENOSYS).set();
                -1
            }
            _ => real::syscall(number, a, b, c, d, e, f),
        }
    }
}

/// Returns whether io_uring is refused, and says so once.
fn refuses() -> bool {
    static SAID: AtomicBool = AtomicBool::new(false);
    let refuses = environment::get().is_some();
    if refuses && !SAID.swap(true, Ordering::Relaxed) {
        system::complain(
            b"ringway with: io_uring is refused, because its requests would pass beside the services; \
              the program falls back to other calls if it can\n",
        );
    }
    refuses
}

macro_rules! refused {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => {
        $(
            /// The function of this name of liburing, which returns the negative error.
            ///
            /// # Safety
            /// As that function.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
                if refuses() {
                    return -libc::ENOSYS;
                }
                type Function = unsafe extern "C" fn($($kind),*) -> c_int;
                // SAFETY: the name ends with a zero.
                let found = unsafe {
                    libc::dlsym(libc::RTLD_NEXT, concat!(stringify!($name), "\0").as_ptr().cast())
                };
                if found.is_null() {
                    return -libc::ENOSYS;
                }
                // SAFETY: liburing's function of this name has this type.
                let function: Function = unsafe { std::mem::transmute(found) };
                // SAFETY: the caller's.
                unsafe { function($($argument),*) }
            }
        )*
    };
}

refused! {
    io_uring_setup(entries: c_uint, parameters: *mut c_void);
    io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint);
    io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: *mut c_void);
    io_uring_queue_init_mem(
        entries: c_uint, ring: *mut c_void, parameters: *mut c_void, memory: *mut c_void,
        size: usize
    );
}
