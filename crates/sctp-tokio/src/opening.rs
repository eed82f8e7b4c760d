//! Opening sockets for SCTP packets: in UDP, or directly over IP as protocol 132.

use libc::{BPF_K, BPF_RET};
use ringway_os::{divide_by_word, enlarge_buffers, set_option};
use ringway_sctp::PROTOCOL;
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

/// The default UDP port of SCTP in UDP (RFC 6951 section 3).
pub const UDP_PORT: u16 = 9899;

/// Size of each socket's buffers in either direction, in bytes. The system reduces it to
/// `net.core.rmem_max` and `wmem_max` unless the process is privileged.
const BUFFER: usize = 8 << 20;

/// A socket and the address it is bound to.
pub(super) type BoundSocket = (Socket, SocketAddr);

/// Offset of the verification tag in SCTP's header (RFC 9260 section 3.1).
const TAG: u32 = 4;

/// Opens a UDP socket that reports the destination address, the ECN bits and ICMP messages. SCTP probes
/// paths itself, so the system neither fragments nor applies its own path MTU.
pub(super) fn udp(addr: SocketAddr) -> io::Result<Socket> {
    let socket = unbound_udp(addr)?;
    socket.bind(&addr.into())?;
    Ok(socket)
}

/// Opens sockets at the address of `first`, `count` with that one. The kernel divides packets among them by the
/// verification tag: the remainder of its division by `count` is the index of the socket. Those without a tag, which
/// open associations, go to the first.
///
/// The first was bound without `SO_REUSEPORT`, so that an address in use was an error even where a process of the same
/// user uses it. Once the option is set, the others join.
pub(super) fn udp_group(first: Socket, addr: SocketAddr, count: usize) -> io::Result<Vec<Socket>> {
    let mut group = vec![first];
    if count > 1 {
        group[0].set_reuse_port(true)?;
    }
    for _ in 1..count {
        let socket = unbound_udp(addr)?;
        socket.set_reuse_port(true)?;
        socket.bind(&addr.into())?;
        group.push(socket);
    }
    if count > 1 {
        divide_by_word(group[0].as_fd(), TAG, count as u32)?;
    }
    Ok(group)
}

fn unbound_udp(addr: SocketAddr) -> io::Result<Socket> {
    use libc::{IPPROTO_IP, IPPROTO_IPV6, SOL_UDP};
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    let wildcard = addr.ip().is_unspecified().into();
    if addr.is_ipv6() {
        socket.set_only_v6(true)?;
        let fd = socket.as_fd();
        set_option(fd, IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, wildcard)?;
        set_option(fd, IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
        set_option(fd, IPPROTO_IPV6, libc::IPV6_RECVERR, 1)?;
        set_option(fd, IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)?;
    } else {
        let fd = socket.as_fd();
        set_option(fd, IPPROTO_IP, libc::IP_PKTINFO, wildcard)?;
        set_option(fd, IPPROTO_IP, libc::IP_RECVTOS, 1)?;
        set_option(fd, IPPROTO_IP, libc::IP_RECVERR, 1)?;
        set_option(fd, IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
    }
    // Systems older than Linux 5.0 do not coalesce, and work without it.
    let _ = set_option(socket.as_fd(), SOL_UDP, libc::UDP_GRO, 1);
    enlarge_buffers(&socket, BUFFER)?;
    Ok(socket)
}

/// Opens a raw socket for SCTP of one family. It drops everything until [`Ports`](super::ports::Ports)
/// sets its filter.
pub(super) fn raw(ipv4: bool) -> io::Result<Socket> {
    use libc::{IPPROTO_IP, IPPROTO_IPV6};
    let domain = if ipv4 { Domain::IPV4 } else { Domain::IPV6 };
    let protocol = Protocol::from(i32::from(PROTOCOL));
    let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
    socket.attach_filter(&[SockFilter::new((BPF_RET | BPF_K) as u16, 0, 0, 0)])?;
    socket.set_nonblocking(true)?;
    let fd = socket.as_fd();
    if ipv4 {
        // The kernel writes the IP header and is in charge of identification, fragments and routes.
        set_option(fd, IPPROTO_IP, libc::IP_PKTINFO, 1)?;
        set_option(fd, IPPROTO_IP, libc::IP_RECVERR, 1)?;
        set_option(fd, IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
    } else {
        set_option(fd, IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
        set_option(fd, IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
        set_option(fd, IPPROTO_IPV6, libc::IPV6_RECVERR, 1)?;
        set_option(fd, IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)?;
        // SCTP has a checksum of its own (RFC 3542 section 3.1).
        set_option(fd, IPPROTO_IPV6, libc::IPV6_CHECKSUM, -1)?;
    }
    enlarge_buffers(&socket, BUFFER)?;
    Ok(socket)
}
