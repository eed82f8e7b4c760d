//! Options of UDP-Lite and MPTCP, for which the standard library has no name.
#![allow(unsafe_code)]

use crate::set_option;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The protocol number of UDP-Lite (RFC 3828 section 3).
pub const IPPROTO_UDPLITE: i32 = 136;
/// The protocol number by which Linux opens an MPTCP socket.
pub const IPPROTO_MPTCP: i32 = 262;

/// Octets of the header of UDP-Lite, which a checksum always covers (RFC 3828 section 3.1).
pub const UDPLITE_HEADER: u32 = 8;

const UDPLITE_SEND_CSCOV: libc::c_int = 10;
const UDPLITE_RECV_CSCOV: libc::c_int = 11;

/// From linux/mptcp.h: the level of options, the option that reports the state, and the flag of a connection that has
/// fallen back to TCP (RFC 8684 section 3.7).
const SOL_MPTCP: libc::c_int = 284;
const MPTCP_INFO: libc::c_int = 1;
const FLAG_FALLBACK: u32 = 1;
/// Octets of `struct mptcp_info` up to and with its flags, and where those begin.
const INFO_LEN: usize = 12;
const FLAGS: usize = 8;

fn coverage(octets: Option<u32>) -> libc::c_int {
    // 0 means the whole datagram.
    let covered = |octets: u32| octets.saturating_add(UDPLITE_HEADER).min(u16::MAX.into());
    octets.map_or(0, |octets| covered(octets) as libc::c_int)
}

/// Sets how many octets of the payload the checksum of each datagram covers that a UDP-Lite socket sends; `None` for all.
///
/// # Errors
/// The error of setsockopt(2), as for a socket that is not UDP-Lite.
pub fn set_send_coverage(fd: BorrowedFd<'_>, octets: Option<u32>) -> io::Result<()> {
    set_option(fd, IPPROTO_UDPLITE, UDPLITE_SEND_CSCOV, coverage(octets))
}

/// Sets how many octets of the payload the checksum of a datagram must cover that a UDP-Lite socket receives, or all if it is
/// shorter; others are dropped. `None` for all octets.
///
/// # Errors
/// The error of setsockopt(2), as for a socket that is not UDP-Lite.
pub fn set_receive_coverage(fd: BorrowedFd<'_>, octets: Option<u32>) -> io::Result<()> {
    set_option(fd, IPPROTO_UDPLITE, UDPLITE_RECV_CSCOV, coverage(octets))
}

/// Returns whether an MPTCP socket is connected by TCP, because the peer or the path has no MPTCP.
///
/// # Errors
/// The error of getsockopt(2), as for a socket that is not MPTCP.
pub fn is_mptcp_fallback(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut info = [0u8; INFO_LEN];
    let mut length = size_of::<[u8; INFO_LEN]>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `info`, which has so many, and the number written into
    // `length`.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            SOL_MPTCP,
            MPTCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        let error = io::Error::last_os_error();
        // What has fallen back before it was connected has this option no longer.
        let has_fallen_back = error.raw_os_error() == Some(libc::EOPNOTSUPP);
        return if has_fallen_back { Ok(true) } else { Err(error) };
    }
    let flags = [info[FLAGS], info[FLAGS + 1], info[FLAGS + 2], info[FLAGS + 3]];
    Ok(u32::from_ne_bytes(flags) & FLAG_FALLBACK != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Protocol, Socket, Type};
    use std::os::fd::AsFd;

    /// RFC 3828 section 3.1: the header is covered in any case.
    #[test]
    fn coverage_counts_the_header() {
        assert_eq!([coverage(None), coverage(Some(0)), coverage(Some(20))], [0, 8, 28]);
        assert_eq!(coverage(Some(u32::MAX)), 65_535);
    }

    #[test]
    fn coverage_is_set_where_the_system_has_udp_lite() {
        let protocol = Some(Protocol::from(IPPROTO_UDPLITE));
        let Ok(socket) = Socket::new(Domain::IPV4, Type::DGRAM, protocol) else { return };
        set_send_coverage(socket.as_fd(), Some(12)).unwrap();
        set_receive_coverage(socket.as_fd(), Some(4)).unwrap();
        let udp = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        assert!(set_send_coverage(udp.as_fd(), Some(12)).is_err());
    }

    #[test]
    fn a_connection_with_mptcp_at_both_ends_has_not_fallen_back() {
        let open = |protocol: i32| Socket::new(Domain::IPV4, Type::STREAM, Some(protocol.into()));
        let Ok(listener) = open(IPPROTO_MPTCP) else { return };
        let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        listener.bind(&any.into()).unwrap();
        listener.listen(1).unwrap();
        let client = open(IPPROTO_MPTCP).unwrap();
        client.connect(&listener.local_addr().unwrap()).unwrap();
        assert!(!is_mptcp_fallback(client.as_fd()).unwrap());

        let tcp = open(libc::IPPROTO_TCP).unwrap();
        tcp.bind(&any.into()).unwrap();
        tcp.listen(1).unwrap();
        let client = open(IPPROTO_MPTCP).unwrap();
        client.connect(&tcp.local_addr().unwrap()).unwrap();
        assert!(is_mptcp_fallback(client.as_fd()).unwrap());
    }
}
