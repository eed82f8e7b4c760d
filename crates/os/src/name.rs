//! Socket addresses in the form that the system calls take (`sockaddr_in`, `sockaddr_in6`).
#![allow(unsafe_code)]

use std::mem::size_of;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Storage for an address of either family.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union Name {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

/// Writes an address. Returns the length of the structure in bytes.
pub(crate) fn encode_name(addr: SocketAddr, name: &mut Name) -> libc::socklen_t {
    match addr {
        SocketAddr::V4(addr) => {
            name.v4 = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: addr.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(addr.ip().octets()) },
                sin_zero: [0; 8],
            };
            size_of::<libc::sockaddr_in>() as libc::socklen_t
        }
        SocketAddr::V6(addr) => {
            name.v6 = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: addr.port().to_be(),
                sin6_flowinfo: addr.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: addr.ip().octets() },
                sin6_scope_id: addr.scope_id(),
            };
            size_of::<libc::sockaddr_in6>() as libc::socklen_t
        }
    }
}

/// Reads an address. Returns `None` for a family other than IPv4 and IPv6.
pub(crate) fn decode_name(name: &Name) -> Option<SocketAddr> {
    // SAFETY: the storage began zeroed, and a structure of integers has no invalid values; the family
    // stands at the same offset in both.
    match libc::c_int::from(unsafe { name.v4.sin_family }) {
        libc::AF_INET => {
            // SAFETY: as above, and the family says that it is one of these.
            let name = unsafe { &name.v4 };
            let ip = Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(name.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let name = unsafe { &name.v6 };
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
            let port = u16::from_be(name.sin6_port);
            Some(SocketAddrV6::new(ip, port, 0, name.sin6_scope_id).into())
        }
        _ => None,
    }
}
