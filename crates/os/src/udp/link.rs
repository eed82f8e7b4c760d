//! A UDP socket for protocols of a link: it knows on which link a datagram came, and sends to link-local and multicast
//! addresses of any. ICMPv6 is one of these protocols.
#![allow(unsafe_code)]

use crate::set_option;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

/// The hop limit of what is sent. A datagram that comes with it has passed no router (RFC 5082).
pub const LINK_HOP_LIMIT: u8 = 255;

/// The option that chooses what an ICMPv6 socket receives (linux/icmpv6.h).
const ICMPV6_FILTER: libc::c_int = 1;

/// Which other sockets may have the same port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// None.
    Exclusive,
    /// Those that ask for the same: the last one receives the datagrams (`SO_REUSEADDR`).
    Address,
    /// Those of the same user that ask for the same: each receives the datagrams of some peers (`SO_REUSEPORT`).
    Port,
}

/// A UDP socket for all links of the host, over IPv6 and, to peers that are no neighbours, IPv4. An IPv4 address of a
/// peer is received as an IPv4-mapped one (RFC 4291 section 2.5.5.2); either form may be sent to.
///
/// It is used with a [`SendBatch`](crate::SendBatch) and a [`ReceiveBatch`](crate::ReceiveBatch). The scope of a
/// link-local or multicast address in a datagram's destination (`SocketAddrV6::scope_id`) is the index of the link.
/// What is received reports the link and the destination, and over IPv6 the hop limit; trains of datagrams come together. Nothing is
/// fragmented, and no multicast of this host is received.
///
/// Two errors of a datagram say something of its destination: `EMSGSIZE` that it is larger than the path's MTU (older
/// kernels report `EINVAL` for a train), `ENETUNREACH` that there is no route, or that the link does not exist, is down
/// or has no address yet.
#[derive(Debug)]
pub struct LinkSocket {
    socket: Socket,
}

impl LinkSocket {
    /// Binds a socket to `port` of all addresses, 0 for a free one.
    ///
    /// # Errors
    /// The error of the system call that failed, as when another socket has the port.
    pub fn bind(port: u16, sharing: Sharing) -> io::Result<LinkSocket> {
        let socket = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_only_v6(false)?;
        set_options(&socket)?;
        set_option(socket.as_fd(), libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?;
        match sharing {
            Sharing::Exclusive => {}
            Sharing::Address => socket.set_reuse_address(true)?,
            Sharing::Port => socket.set_reuse_port(true)?,
        }
        // Kernels before 5.0 deliver each datagram for itself.
        let _ = set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1);
        socket.bind(&SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0).into())?;
        Ok(LinkSocket { socket })
    }

    /// Opens a socket that sends ICMPv6 messages, and receives those of one kind, such as 133, router solicitations
    /// (RFC 4861). Their octets begin with the kind; the kernel computes and verifies checksums. Needs CAP_NET_RAW.
    ///
    /// # Errors
    /// The error of the system call that failed, as when the process lacks CAP_NET_RAW.
    pub fn open_icmpv6(kind: u8) -> io::Result<LinkSocket> {
        // A bit for each kind, which is set for those that are not received (RFC 3542 section 3.2).
        let mut filter = [u32::MAX; 8];
        filter[usize::from(kind / 32)] = !(1 << (kind % 32));
        let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
        // SAFETY: the pointer is to a live array and the length is its own.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_ICMPV6,
                ICMPV6_FILTER,
                (&raw const filter).cast(),
                size_of_val(&filter) as libc::socklen_t,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        set_options(&socket)?;
        Ok(LinkSocket { socket })
    }

    /// Returns the port; 0 for ICMPv6.
    ///
    /// # Errors
    /// The error of getsockname(2).
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.socket.local_addr()?.as_socket().map_or(0, |address| address.port()))
    }

    /// Joins a multicast group on the link `interface`. The link need not be up.
    ///
    /// # Errors
    /// The error of setsockopt(2): `ENODEV` where there is no such link, `EADDRINUSE` where the group was joined before.
    pub fn join(&self, group: Ipv6Addr, interface: u32) -> io::Result<()> {
        self.socket.join_multicast_v6(&group, interface)
    }

    /// Leaves a multicast group on the link `interface`.
    ///
    /// # Errors
    /// The error of setsockopt(2): `EADDRNOTAVAIL` where the group was not joined.
    pub fn leave(&self, group: Ipv6Addr, interface: u32) -> io::Result<()> {
        self.socket.leave_multicast_v6(&group, interface)
    }

    /// Returns the socket, as for a runtime ([`watch_reading`](crate::watch_reading)).
    pub fn into_socket(self) -> Socket {
        self.socket
    }
}

/// Sets what both kinds of socket need.
fn set_options(socket: &Socket) -> io::Result<()> {
    const OPTIONS: [(libc::c_int, libc::c_int); 7] = [
        (libc::IPV6_RECVPKTINFO, 1),
        (libc::IPV6_RECVHOPLIMIT, 1),
        (libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO),
        (libc::IPV6_UNICAST_HOPS, LINK_HOP_LIMIT as libc::c_int),
        (libc::IPV6_MULTICAST_HOPS, LINK_HOP_LIMIT as libc::c_int),
        (libc::IPV6_MULTICAST_LOOP, 0),
        // Otherwise groups that another socket has joined would be received too.
        (libc::IPV6_MULTICAST_ALL, 0),
    ];
    socket.set_nonblocking(true)?;
    OPTIONS.into_iter().try_for_each(|(option, value)| {
        set_option(socket.as_fd(), libc::IPPROTO_IPV6, option, value)
    })
}

impl AsRawFd for LinkSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl AsFd for LinkSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
