//! ICMP messages about what was sent from a socket, read from its error queue (ip(7), ipv6(7)).
#![allow(unsafe_code)]

use crate::name::{Name, decode_name};
use std::mem::{MaybeUninit, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

/// The cause of an ICMP message, from a socket's error queue (RFC 792, RFC 4443).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// Port unreachable.
    PortUnreachable,
    /// Protocol unreachable.
    ProtocolUnreachable,
    /// Another kind of destination unreachable that a retransmission does not cure.
    Unreachable,
    /// The packet is larger than the MTU of a link on the path, in bytes; 0 where it is not reported.
    TooBig(u32),
    /// Anything else.
    Other,
}

impl Cause {
    /// Returns whether the destination is unreachable. Time exceeded and the like do not mean that
    /// (RFC 3261 section 18.4).
    pub fn is_unreachable(self) -> bool {
        matches!(self, Cause::PortUnreachable | Cause::ProtocolUnreachable | Cause::Unreachable)
    }
}

/// An ICMP message about a datagram that was sent from a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcmpError {
    /// The datagram's destination, where it is reported.
    pub to: Option<SocketAddr>,
    /// The local address that the message came to, where the socket reports it.
    pub local: Option<IpAddr>,
    /// The cause.
    pub cause: Cause,
    /// The number of quoted bytes of the datagram, which are in the caller's buffer.
    pub quoted: usize,
}

/// Removes one entry from the socket's error queue, which `IP_RECVERR` fills, and writes the start of the datagram
/// that it quotes to `quote`. Returns `None` when the queue is empty.
pub fn next_icmp_error(fd: BorrowedFd<'_>, quote: &mut [u8]) -> Option<IcmpError> {
    #[repr(C, align(8))]
    struct ErrorControl([u8; 256]);
    let mut name = MaybeUninit::<Name>::zeroed();
    let mut control = ErrorControl([0; 256]);
    let mut vector = libc::iovec { iov_base: quote.as_mut_ptr().cast(), iov_len: quote.len() };
    // SAFETY: `msghdr` is a plain C structure for which all zeroes is a value.
    let mut header = unsafe { MaybeUninit::<libc::msghdr>::zeroed().assume_init() };
    header.msg_name = name.as_mut_ptr().cast();
    header.msg_namelen = size_of::<Name>() as libc::socklen_t;
    header.msg_iov = &mut vector;
    header.msg_iovlen = 1 as _;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = control.0.len() as _;
    // SAFETY: every pointer in `header` points at a live local or at `quote`, borrowed mutably, each
    // with its true length.
    let got = unsafe {
        libc::recvmsg(fd.as_raw_fd(), &mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
    };
    let quoted = usize::try_from(got).ok()?;
    // SAFETY: the storage began zeroed and the kernel wrote an address into it; a structure of
    // integers has no invalid values.
    let to = decode_name(unsafe { name.assume_init_ref() });
    let (mut cause, mut local) = (Cause::Other, None);
    // SAFETY: the kernel filled `control` and set its length, so the macros walk valid headers
    // inside it; a payload is read, unaligned, only after its length was checked.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(&header);
        while !at.is_null() {
            let data = libc::CMSG_DATA(at);
            let has = |size: usize| (*at).cmsg_len as usize >= libc::CMSG_LEN(size as u32) as usize;
            match ((*at).cmsg_level, (*at).cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
                    if has(size_of::<libc::sock_extended_err>()) =>
                {
                    let error = data.cast::<libc::sock_extended_err>().read_unaligned();
                    cause = cause_of(error.ee_origin, error.ee_type, error.ee_code, error.ee_info);
                }
                (libc::IPPROTO_IP, libc::IP_PKTINFO) if has(size_of::<libc::in_pktinfo>()) => {
                    let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                    let ip = Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes());
                    local = Some(ip.into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if has(size_of::<libc::in6_pktinfo>()) => {
                    let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    local = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                }
                _ => {}
            }
            at = libc::CMSG_NXTHDR(&header, at);
        }
    }
    Some(IcmpError { to, local, cause, quoted: quoted.min(quote.len()) })
}

fn cause_of(origin: u8, kind: u8, code: u8, info: u32) -> Cause {
    match (origin, kind, code) {
        (libc::SO_EE_ORIGIN_ICMP, 3, 2) | (libc::SO_EE_ORIGIN_ICMP6, 4, 1) => {
            Cause::ProtocolUnreachable
        }
        (libc::SO_EE_ORIGIN_ICMP, 3, 3) | (libc::SO_EE_ORIGIN_ICMP6, 1, 4) => {
            Cause::PortUnreachable
        }
        (libc::SO_EE_ORIGIN_ICMP, 3, 4) | (libc::SO_EE_ORIGIN_ICMP6, 2, _) => Cause::TooBig(info),
        // Source route failed: the route may differ next time.
        (libc::SO_EE_ORIGIN_ICMP, 3, 5) => Cause::Other,
        (libc::SO_EE_ORIGIN_ICMP, 3, _) | (libc::SO_EE_ORIGIN_ICMP6, 1, _) => Cause::Unreachable,
        _ => Cause::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_destination_unreachable_counts() {
        let is = |origin, kind, code| cause_of(origin, kind, code, 0).is_unreachable();
        assert!(is(libc::SO_EE_ORIGIN_ICMP, 3, 3));
        assert!(!is(libc::SO_EE_ORIGIN_ICMP, 3, 4));
        assert!(!is(libc::SO_EE_ORIGIN_ICMP, 11, 0));
        assert!(is(libc::SO_EE_ORIGIN_ICMP6, 1, 4));
        assert!(!is(libc::SO_EE_ORIGIN_ICMP6, 2, 0));
        assert!(!is(libc::SO_EE_ORIGIN_LOCAL, 3, 3));
        let big = cause_of(libc::SO_EE_ORIGIN_ICMP6, 2, 0, 1_280);
        assert_eq!(big, Cause::TooBig(1_280));
    }
}
