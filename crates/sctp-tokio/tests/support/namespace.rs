//! A network namespace for one test.
#![allow(unsafe_code, unreachable_pub)]

use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;

#[path = "../../../os/tests/support/mod.rs"]
mod os;

#[allow(unused_imports, reason = "not every file of tests needs a namespace")]
pub use os::inside_a_namespace;

/// Sets the loopback interface's MTU and brings it up.
pub fn loopback(mtu: i32) {
    let socket = UdpSocket::from(Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap());
    // SAFETY: all zeroes is a value of this plain C structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    (request.ifr_name[0], request.ifr_name[1]) = (b'l' as _, b'o' as _);
    let flags = (libc::IFF_UP | libc::IFF_LOOPBACK) as libc::c_short;
    for set in [libc::SIOCSIFMTU, libc::SIOCSIFFLAGS] {
        if set == libc::SIOCSIFMTU {
            request.ifr_ifru.ifru_mtu = mtu;
        } else {
            request.ifr_ifru.ifru_flags = flags;
        }
        // SAFETY: both calls read a whole `ifreq`, which lives on this stack.
        let result = unsafe { libc::ioctl(socket.as_raw_fd(), set as _, &raw mut request) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
    }
}

/// Adds an address of a /24 network to an interface, and brings it up; or removes it, for an alias such as `lo:1`.
pub fn address(interface: &str, address: Option<Ipv4Addr>) {
    let socket = UdpSocket::from(Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap());
    // SAFETY: all zeroes is a value of this plain C structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as _;
    }
    let mut set = |what, value| {
        request.ifr_ifru = value;
        // SAFETY: both calls read a whole `ifreq`, which lives on this stack.
        let result = unsafe { libc::ioctl(socket.as_raw_fd(), what as _, &raw mut request) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
    };
    // SAFETY: all zeroes is a value of this union of plain C structures.
    let mut value: libc::__c_anonymous_ifr_ifru = unsafe { std::mem::zeroed() };
    let mut flags = 0;
    if let Some(ip) = address {
        // A point-to-point device gets no network by default.
        let network = Ipv4Addr::new(255, 255, 255, 0);
        for (what, ip) in [(libc::SIOCSIFADDR, ip), (libc::SIOCSIFNETMASK, network)] {
            let name = libc::sockaddr_in {
                sin_family: libc::AF_INET as _,
                sin_port: 0,
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: both are plain C structures of the same size.
            value.ifru_addr =
                unsafe { std::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(name) };
            set(what, value);
        }
        flags = libc::IFF_UP | libc::IFF_RUNNING;
    }
    // Taking an alias down removes it.
    value.ifru_flags = flags as libc::c_short;
    set(libc::SIOCSIFFLAGS, value);
}

/// Drops every capability of this thread over its network namespace.
pub fn lose_rights() -> io::Result<()> {
    // SAFETY: no precondition.
    if unsafe { libc::unshare(libc::CLONE_NEWUSER) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}
