//! Sockets with the options that properties ask for.

use ringway_os::set_option;
use ringway_services::{Candidate, Preconnection as Policy, Protocol, Service};
use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

/// Octets that the system may hold of a TCP connection and has not sent. More would wait there behind each other, where no
/// priority reaches them.
const NOT_SENT: i32 = 128 * 1024;
/// The idle time before a keep-alive packet of programs that want them and name no time (RFC 9293 section 3.8.4 has two
/// hours as the minimum of the default, which no firewall waits for).
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Opens a socket for an address, with what applies to all kinds.
pub(crate) fn open(
    address: SocketAddr,
    kind: Type,
    protocol: i32,
    interface: Option<&str>,
) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol.into()))?;
    socket.set_nonblocking(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if let Some(interface) = interface {
        socket.bind_device(Some(interface.as_bytes()))?;
    }
    Ok(socket)
}

/// Opens the socket of a candidate and binds it, if the candidate names an address or a port.
pub(crate) fn bound(
    candidate: &Candidate,
    remote: SocketAddr,
    kind: Type,
    protocol: i32,
    shares_port: bool,
) -> io::Result<Socket> {
    let socket = open(remote, kind, protocol, candidate.interface.as_deref())?;
    if shares_port {
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
    }
    let port = candidate.local_port.unwrap_or(0);
    if candidate.local_address.is_some() || port != 0 {
        let local = SocketAddr::new(candidate.local_address.unwrap_or(any(remote)), port);
        socket.bind(&local.into())?;
    }
    Ok(socket)
}

/// Returns the wildcard of an address's family.
pub(crate) fn any(address: SocketAddr) -> IpAddr {
    if address.is_ipv4() { [0u8; 4].into() } else { [0u8; 16].into() }
}

/// Returns the address from which the system reaches a peer. Sends nothing.
pub(crate) fn source_for(remote: SocketAddr) -> io::Result<IpAddr> {
    let socket = UdpSocket::bind((any(remote), 0))?;
    // The port does not matter: connecting a datagram socket only looks up the route.
    socket.connect((remote.ip(), 9))?;
    Ok(socket.local_addr()?.ip())
}

/// Sets what a TCP or MPTCP connection was asked for.
pub(crate) fn apply_to_tcp(
    socket: SockRef<'_>,
    candidate: &Candidate,
    policy: &Policy,
) -> io::Result<()> {
    let properties = &policy.properties.connection;
    socket.set_tcp_nodelay(!candidate.provides.has(Service::Bundling))?;
    if candidate.provides.has(Service::KeepAlive) {
        let time = properties.keep_alive().unwrap_or(KEEP_ALIVE).max(Duration::from_secs(1));
        socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(time))?;
    }
    // Linux has no such option for MPTCP.
    if properties.conn_timeout.0.is_some() && candidate.protocol != Protocol::Mptcp {
        socket.set_tcp_user_timeout(properties.conn_timeout.0)?;
    }
    set_option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, NOT_SENT).ok();
    if let Some(bits) = properties.max_send_rate.0 {
        let octets = i32::try_from(bits.div_ceil(8)).unwrap_or(i32::MAX);
        set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, octets)?;
    }
    apply_profile(socket, policy)
}

/// Sets the code point of the capacity profile (RFC 9622 section 8.1.6).
pub(crate) fn apply_profile(socket: SockRef<'_>, policy: &Policy) -> io::Result<()> {
    let dscp = policy.properties.connection.conn_capacity_profile.dscp();
    if dscp == 0 {
        return Ok(());
    }
    let field = u32::from(dscp) << 2;
    if socket.domain()? == Domain::IPV4 {
        socket.set_tos_v4(field)
    } else {
        socket.set_tclass_v6(field)
    }
}
