//! Executing a program that the library cannot be loaded into, or that does not call it: the broker reports it, and the
//! program is executed all the same. What the C library executes for itself, by `system` or `popen`, is a shell; `execl`
//! and its like pass beside this, as Rust defines no functions of variable arguments.

use crate::descriptor::Descriptor;
use crate::{broker, environment, real, system};
use libc::{c_char, c_int, c_void, pid_t};
use ringway_with_wire::SocketId;
use ringway_with_wire::executable::{self, HEAD};
use ringway_with_wire::request::{Action, MAX_VALUE};
use std::ffi::CStr;

/// Octets of a path, with its zero (path_resolution(7)).
const PATH: usize = libc::PATH_MAX as usize;
/// Where programs are looked for without the variable PATH (exec(3)).
const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";

/// Has the broker report a program that it cannot serve.
fn judge(path: &CStr) {
    let Some(broker) = environment::get() else { return };
    let Ok(fd) = system::open(path) else { return };
    let mut head = [0; HEAD];
    let read = system::read(fd, &mut head);
    system::close(fd);
    let head = head.get(..read.unwrap_or(0)).unwrap_or_default();
    let Some(reason) = executable::kind(head).unserved() else { return };
    let mut text = [0; MAX_VALUE];
    let mut length = 0;
    // The reason is not cut.
    let path = path.to_bytes();
    let path = &path[..path.len().min(MAX_VALUE - reason.len() - 1)];
    for part in [path, b" ", reason.as_bytes()] {
        text[length..length + part.len()].copy_from_slice(part);
        length += part.len();
    }
    let process = Descriptor { broker, ipv6: false, id: SocketId(0), ends: None };
    // A report that does not reach the broker stops nobody.
    let _ = broker::ask(&process, Action::Unserved(&text[..length]), None);
}

/// As [`judge`], for a path of a caller in C.
///
/// # Safety
/// The pointer is null or to a string.
unsafe fn judge_path(path: *const c_char) {
    if !path.is_null() {
        // SAFETY: the caller's.
        judge(unsafe { CStr::from_ptr(path) });
    }
}

/// As [`judge`], for a program that is looked for in PATH unless it is named with a slash (exec(3)).
///
/// # Safety
/// The pointer is null or to a string.
unsafe fn judge_name(name: *const c_char) {
    if name.is_null() || environment::get().is_none() {
        return;
    }
    // SAFETY: the caller's.
    let text = unsafe { CStr::from_ptr(name) };
    let name = text.to_bytes();
    if name.contains(&b'/') {
        return judge(text);
    }
    // SAFETY: the name of the variable ends with a zero; nobody changes the environment of a process that executes.
    let folders = unsafe {
        let found = libc::getenv(c"PATH".as_ptr());
        if found.is_null() { DEFAULT_PATH } else { CStr::from_ptr(found).to_bytes() }
    };
    for folder in folders.split(|octet| *octet == b':') {
        let mut path = [0; PATH];
        let parts = [if folder.is_empty() { b"." } else { folder }, b"/", name];
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if length >= PATH {
            continue;
        }
        let mut at = 0;
        for part in parts {
            path[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        let Ok(path) = CStr::from_bytes_until_nul(&path) else { continue };
        if system::is_executable(path) {
            return judge(path);
        }
    }
}

/// `execve(2)`.
///
/// # Safety
/// As execve(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(
    path: *const c_char,
    arguments: *const *const c_char,
    variables: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        judge_path(path);
        real::execve(path, arguments, variables)
    }
}

/// `execv(3)`.
///
/// # Safety
/// As execv(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, arguments: *const *const c_char) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        judge_path(path);
        real::execv(path, arguments)
    }
}

/// `execvp(3)`.
///
/// # Safety
/// As execvp(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(name: *const c_char, arguments: *const *const c_char) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        judge_name(name);
        real::execvp(name, arguments)
    }
}

/// `execvpe(3)`.
///
/// # Safety
/// As execvpe(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(
    name: *const c_char,
    arguments: *const *const c_char,
    variables: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        judge_name(name);
        real::execvpe(name, arguments, variables)
    }
}

/// `posix_spawn(3)`.
///
/// # Safety
/// As posix_spawn(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn(
    pid: *mut pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: *const *mut c_char,
    variables: *const *mut c_char,
) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        judge_path(path);
        real::posix_spawn(pid, path, actions, attributes, arguments, variables)
    }
}

/// `posix_spawnp(3)`.
///
/// # Safety
/// As posix_spawnp(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawnp(
    pid: *mut pid_t,
    name: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: *const *mut c_char,
    variables: *const *mut c_char,
) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        judge_name(name);
        real::posix_spawnp(pid, name, actions, attributes, arguments, variables)
    }
}
