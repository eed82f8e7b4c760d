//! The C library's own functions behind those of the same names here. They are called where a thread may wait, so that
//! it can be cancelled there (pthreads(7)).

use libc::{c_char, c_int, c_long, c_void, msghdr, pid_t, size_t, sockaddr, socklen_t, ssize_t};
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function that is found on its first call, or before (`resolve`).
struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static CStr) -> Next {
        Next { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Returns the function, or null.
    fn get(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if !found.is_null() {
            return found;
        }
        // SAFETY: the name ends with a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

macro_rules! real {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        $(
            /// The C library's function of this name.
            ///
            /// # Safety
            /// As that function.
            pub(crate) unsafe fn $name($($argument: $kind),*) -> $result {
                let found = next::$name.get();
                if found.is_null() {
                    crate::errno::Errno(libc::ENOSYS).set();
                    return -1;
                }
                // SAFETY: the C library's function of this name has this type.
                let function: unsafe extern "C" fn($($kind),*) -> $result =
                    unsafe { std::mem::transmute(found) };
                // SAFETY: the caller's.
                unsafe { function($($argument),*) }
            }
        )*

        mod next {
            $(
                #[allow(non_upper_case_globals)]
                pub(super) static $name: super::Next = super::Next::new(
                    match std::ffi::CStr::from_bytes_with_nul(
                        concat!(stringify!($name), "\0").as_bytes(),
                    ) {
                        Ok(name) => name,
                        Err(_) => c"",
                    },
                );
            )*
        }

        /// Finds all functions: dlsym(3) may not be called in a signal handler.
        pub(crate) fn resolve() {
            $(next::$name.get();)*
        }
    };
}

real! {
    connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int;
    send(fd: c_int, data: *const c_void, length: size_t, flags: c_int) -> ssize_t;
    sendto(
        fd: c_int, data: *const c_void, length: size_t, flags: c_int, to: *const sockaddr,
        to_length: socklen_t
    ) -> ssize_t;
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    sendmmsg(fd: c_int, messages: *mut libc::mmsghdr, count: u32, flags: c_int) -> c_int;
    read(fd: c_int, data: *mut c_void, length: size_t) -> ssize_t;
    __read_chk(fd: c_int, data: *mut c_void, length: size_t, room: size_t) -> ssize_t;
    readv(fd: c_int, parts: *const libc::iovec, count: c_int) -> ssize_t;
    recv(fd: c_int, data: *mut c_void, length: size_t, flags: c_int) -> ssize_t;
    __recv_chk(
        fd: c_int, data: *mut c_void, length: size_t, room: size_t, flags: c_int
    ) -> ssize_t;
    recvfrom(
        fd: c_int, data: *mut c_void, length: size_t, flags: c_int, from: *mut sockaddr,
        from_length: *mut socklen_t
    ) -> ssize_t;
    __recvfrom_chk(
        fd: c_int, data: *mut c_void, length: size_t, room: size_t, flags: c_int,
        from: *mut sockaddr, from_length: *mut socklen_t
    ) -> ssize_t;
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    recvmmsg(
        fd: c_int, messages: *mut libc::mmsghdr, count: u32, flags: c_int,
        timeout: *mut libc::timespec
    ) -> c_int;
    execve(
        path: *const c_char, arguments: *const *const c_char, variables: *const *const c_char
    ) -> c_int;
    execv(path: *const c_char, arguments: *const *const c_char) -> c_int;
    execvp(name: *const c_char, arguments: *const *const c_char) -> c_int;
    execvpe(
        name: *const c_char, arguments: *const *const c_char, variables: *const *const c_char
    ) -> c_int;
    posix_spawn(
        pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: *const *mut c_char, variables: *const *mut c_char
    ) -> c_int;
    posix_spawnp(
        pid: *mut pid_t, name: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: *const *mut c_char, variables: *const *mut c_char
    ) -> c_int;
    syscall(
        number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long
    ) -> c_long;
}
