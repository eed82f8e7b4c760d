//! A netlink socket.
#![allow(unsafe_code)]

use crate::options::set_option;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd};

/// Size of the buffer for one read, in octets. The kernel sends no larger messages.
pub(super) const BUFFER: usize = 32 << 10;

/// Opens a socket that receives the changes of `groups` (`RTMGRP_LINK` and others, a bit each).
///
/// Who sent a message is not checked: only processes with CAP_NET_ADMIN can send to such a socket besides the kernel
/// (netlink(7)).
pub(super) fn open(groups: libc::c_int) -> io::Result<Socket> {
    let protocol = Protocol::from(libc::NETLINK_ROUTE);
    let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(protocol))?;
    // SAFETY: `sockaddr_nl` is a plain C structure for which all zeroes is a value.
    let mut name: libc::sockaddr_nl = unsafe { MaybeUninit::zeroed().assume_init() };
    name.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    name.nl_groups = groups as u32;
    // SAFETY: the pointer is to a live structure and the length is its own.
    let bound = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const name).cast(),
            size_of::<libc::sockaddr_nl>() as libc::socklen_t,
        )
    };
    if bound != 0 {
        return Err(io::Error::last_os_error());
    }
    // Answers explain errors, and quote no more of the request than its header. Old kernels do neither.
    for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK] {
        let _ = set_option(socket.as_fd(), libc::SOL_NETLINK, option, 1);
    }
    Ok(socket)
}
