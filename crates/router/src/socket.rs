//! The UDP socket of the router.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

use ringway_mesh::link::LinkAddress;
use ringway_mesh::output::Destination;
use ringway_os::udp::{LinkSocket, Sharing};
use ringway_os::{Watched, enlarge_buffers, watch_reading};
use socket2::Socket;

/// The group to which HELLOs go: of link-local scope, so that no other router carries them (RFC 4291 section 2.7).
const GROUP: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0x5257, 1);
/// Number of the interface that stands for the network between named routers.
pub(crate) const NAMED: u32 = 0;
/// Octets that the kernel keeps of what has come.
const BUFFER: usize = 1 << 20;

/// Opens the socket for both families. To be called within a runtime.
pub(crate) fn open(port: u16) -> io::Result<Watched<Socket>> {
    let socket = LinkSocket::bind(port, Sharing::Exclusive)?.into_socket();
    let _ = enlarge_buffers(&socket, BUFFER);
    watch_reading(socket)
}

/// Hears the HELLOs on an interface. One that is heard already is no error.
pub(crate) fn join(socket: &Socket, interface: u32) -> io::Result<()> {
    match socket.join_multicast_v6(&GROUP, interface) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(()),
        result => result,
    }
}

/// Hears no more HELLOs on an interface, which may not exist any more.
pub(crate) fn leave(socket: &Socket, interface: u32) {
    let _ = socket.leave_multicast_v6(&GROUP, interface);
}

/// Returns where a datagram has come from: by an interface from a neighbour, or through the network between.
pub(crate) fn source(remote: SocketAddr) -> LinkAddress {
    let interface = match remote {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => v6.scope_id(),
        _ => NAMED,
    };
    LinkAddress { interface, remote }
}

/// Returns where a packet goes.
pub(crate) fn destination(interface: u32, to: Destination, port: u16) -> SocketAddr {
    match to {
        Destination::All => SocketAddrV6::new(GROUP, port, 0, interface).into(),
        Destination::One(address) => address,
    }
}
