//! Options.

use super::{Note, pair};
use crate::calls::{option, set_option, socket};
use libc::{AF_INET, AF_INET6, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, SOCK_CLOEXEC, SOL_SOCKET};
use std::os::fd::AsRawFd;

pub(super) fn options(note: Note<'_>) {
    let fresh = socket(AF_INET, SOCK_CLOEXEC);
    let (ours, theirs) = pair();
    let v6 = socket(AF_INET6, SOCK_CLOEXEC);
    let sockets: [(&str, &dyn AsRawFd); 4] =
        [("fresh", &fresh), ("ours", &ours), ("theirs", &theirs), ("IPv6", &v6)];
    for (name, socket) in sockets {
        let socket = &socket.as_raw_fd();
        for (what, level, number) in [
            ("domain", SOL_SOCKET, libc::SO_DOMAIN),
            ("type", SOL_SOCKET, libc::SO_TYPE),
            ("protocol", SOL_SOCKET, libc::SO_PROTOCOL),
            ("keepalive", SOL_SOCKET, libc::SO_KEEPALIVE),
            ("reuseport", SOL_SOCKET, libc::SO_REUSEPORT),
            ("nodelay", IPPROTO_TCP, libc::TCP_NODELAY),
            ("cork", IPPROTO_TCP, libc::TCP_CORK),
            ("keepidle", IPPROTO_TCP, libc::TCP_KEEPIDLE),
            ("user timeout", IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
            ("unknown", IPPROTO_TCP, 9_999),
            ("unknown", SOL_SOCKET, 9_999),
            ("unknown", IPPROTO_IP, 9_999),
        ] {
            note(format!("{name}: {what}: {}", option(socket, level, number)));
        }
        for (what, level, number, value) in [
            ("nodelay", IPPROTO_TCP, libc::TCP_NODELAY, 1),
            ("cork", IPPROTO_TCP, libc::TCP_CORK, 1),
            ("keepcnt", IPPROTO_TCP, libc::TCP_KEEPCNT, 5),
            ("keepcnt out of bounds", IPPROTO_TCP, libc::TCP_KEEPCNT, 0),
            ("keepalive", SOL_SOCKET, libc::SO_KEEPALIVE, 1),
            ("reuseport", SOL_SOCKET, libc::SO_REUSEPORT, 1),
            ("unknown", IPPROTO_TCP, 9_999, 1),
            ("tos", IPPROTO_IP, libc::IP_TOS, 16),
        ] {
            note(format!("{name}: set {what}: {}", set_option(socket, level, number, &value)));
            note(format!("{name}: then it is {}", option(socket, level, number)));
        }
        note(format!(
            "{name}: too short: {}",
            set_option(socket, IPPROTO_TCP, libc::TCP_NODELAY, &1_u8)
        ));
        let linger = libc::linger { l_onoff: 1, l_linger: 3 };
        note(format!(
            "{name}: linger: {}",
            set_option(socket, SOL_SOCKET, libc::SO_LINGER, &linger)
        ));
        note(format!("{name}: congestion: {}", congestion(socket)));
    }
    note(format!("state of a fresh one: {}", state(&fresh)));
    note(format!("states: {}, {}", state(&ours), state(&theirs)));
    note(format!("only IPv6: {}", option(&v6, IPPROTO_IPV6, libc::IPV6_V6ONLY)));
    note(format!("set: {}", set_option(&v6, IPPROTO_IPV6, libc::IPV6_V6ONLY, &1)));
    note(format!("only IPv6: {}", option(&v6, IPPROTO_IPV6, libc::IPV6_V6ONLY)));
    note(format!("options of IP: {}", ip_options(&ours)));
    note(format!(
        "a segment of some size: {}",
        !option(&ours, IPPROTO_TCP, libc::TCP_MAXSEG).starts_with("0 ")
    ));
}

/// The first octet of `struct tcp_info`.
fn state(fd: &impl AsRawFd) -> u8 {
    let mut information = [0_u8; 104];
    let mut length = 104_u32;
    let value = information.as_mut_ptr().cast();
    // SAFETY: the kernel writes at most `length` octets.
    unsafe {
        libc::getsockopt(fd.as_raw_fd(), IPPROTO_TCP, libc::TCP_INFO, value, &raw mut length)
    };
    assert_eq!(length, 104);
    information[0]
}

fn congestion(fd: &impl AsRawFd) -> String {
    let mut name = [0_u8; 16];
    let mut length = 16_u32;
    let value = name.as_mut_ptr().cast();
    // SAFETY: the kernel writes at most `length` octets.
    unsafe {
        libc::getsockopt(fd.as_raw_fd(), IPPROTO_TCP, libc::TCP_CONGESTION, value, &raw mut length)
    };
    let end = name.iter().position(|octet| *octet == 0).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..end]).into_owned()
}

fn ip_options(fd: &impl AsRawFd) -> u32 {
    let mut options = [0_u8; 200];
    let mut length = 200_u32;
    let value = options.as_mut_ptr().cast();
    // SAFETY: the kernel writes at most `length` octets.
    unsafe {
        libc::getsockopt(fd.as_raw_fd(), IPPROTO_IP, libc::IP_OPTIONS, value, &raw mut length)
    };
    length
}
