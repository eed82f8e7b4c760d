//! The sockets of a LAN's services. Each is bound to the interface of the LAN: it receives from there alone, and sends
//! nowhere else, whatever address it sends to.

use core::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ringway_lan::{ANYCAST, Ipv4Lan, dhcp4, dhcp6, dns, mdns};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};

/// Hop limit of multicast DNS (RFC 6762 section 11).
const MDNS_HOPS: u32 = 255;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;

/// What a socket is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Service {
    /// DNS by UDP at an address.
    Dns(IpAddr),
    /// DNS by TCP at an address.
    DnsTcp(IpAddr),
    /// DHCPv4.
    Dhcp4,
    /// DHCPv6.
    Dhcp6,
    /// Multicast DNS over IPv4 with the router's address, or over IPv6.
    Mdns(Option<Ipv4Addr>),
}

impl Service {
    /// Returns the services that a LAN has: with the network of IPv4 if there is one, and with names if there is a SIP
    /// server.
    pub(super) fn all(ipv4: Option<Ipv4Lan>, has_names: bool) -> Vec<Service> {
        let dhcp4 = ipv4.map(|_| Service::Dhcp4);
        let address = ipv4.map(Ipv4Lan::address);
        let servers = [Some(ANYCAST.into()), address.map(IpAddr::from)].into_iter().flatten();
        let names = servers
            .flat_map(|address| [Service::Dns(address), Service::DnsTcp(address)])
            .chain([Service::Dhcp6, Service::Mdns(None)])
            .chain(address.map(|address| Service::Mdns(Some(address))));
        dhcp4.into_iter().chain(names.filter(|_| has_names)).collect()
    }

    /// Opens the socket on an interface.
    ///
    /// # Errors
    /// The error of the system call that failed, as when another program has the port.
    pub(super) fn open(self, name: &str, index: u32) -> io::Result<Socket> {
        let (local, protocol) = self.local();
        let kind = if protocol == Protocol::TCP { Type::STREAM } else { Type::DGRAM };
        let socket = Socket::new(Domain::for_address(local), kind, Some(protocol))?;
        socket.set_nonblocking(true)?;
        // Others may have the port on other interfaces, or the same groups on this one.
        socket.set_reuse_address(true)?;
        socket.bind_device(Some(name.as_bytes()))?;
        if local.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        match self {
            // The address was added a moment ago, and may not be usable yet.
            Service::Dns(address) | Service::DnsTcp(address) if address.is_ipv6() => {
                socket.set_freebind_v6(true)?;
            }
            Service::Dns(_) | Service::DnsTcp(_) => socket.set_freebind_v4(true)?,
            Service::Dhcp4 => socket.set_broadcast(true)?,
            Service::Dhcp6 => socket.set_multicast_if_v6(index)?,
            Service::Mdns(address) => prepare_mdns(&socket, address.is_some(), index)?,
        }
        socket.bind(&local.into())?;
        match self {
            Service::DnsTcp(_) => socket.listen(BACKLOG)?,
            Service::Dhcp6 => socket.join_multicast_v6(&dhcp6::ALL_SERVERS, index)?,
            Service::Mdns(None) => socket.join_multicast_v6(&mdns::GROUP_V6, index)?,
            Service::Mdns(Some(_)) => {
                let interface = InterfaceIndexOrAddress::Index(index);
                socket.join_multicast_v4_n(&mdns::GROUP_V4, &interface)?;
            }
            Service::Dns(_) | Service::Dhcp4 => {}
        }
        Ok(socket)
    }

    /// Returns what the socket is bound to.
    fn local(self) -> (SocketAddr, Protocol) {
        let (v4, v6) = (IpAddr::from(Ipv4Addr::UNSPECIFIED), IpAddr::from(Ipv6Addr::UNSPECIFIED));
        match self {
            Service::Dns(address) => ((address, dns::PORT).into(), Protocol::UDP),
            Service::DnsTcp(address) => ((address, dns::PORT).into(), Protocol::TCP),
            Service::Dhcp4 => ((v4, dhcp4::SERVER_PORT).into(), Protocol::UDP),
            Service::Dhcp6 => ((v6, dhcp6::SERVER_PORT).into(), Protocol::UDP),
            Service::Mdns(None) => ((v6, mdns::PORT).into(), Protocol::UDP),
            Service::Mdns(Some(_)) => ((v4, mdns::PORT).into(), Protocol::UDP),
        }
    }
}

/// Sets what multicast DNS needs: its own messages do not come back, and no groups that other programs have joined.
fn prepare_mdns(socket: &Socket, is_ipv4: bool, index: u32) -> io::Result<()> {
    if is_ipv4 {
        socket.set_multicast_ttl_v4(MDNS_HOPS)?;
        socket.set_ttl_v4(MDNS_HOPS)?;
        socket.set_multicast_loop_v4(false)?;
        return socket.set_multicast_all_v4(false);
    }
    socket.set_multicast_if_v6(index)?;
    socket.set_multicast_hops_v6(MDNS_HOPS)?;
    socket.set_unicast_hops_v6(MDNS_HOPS)?;
    socket.set_multicast_loop_v6(false)?;
    socket.set_multicast_all_v6(false)
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (local, protocol) = self.local();
        let name = match self {
            Service::Dns(_) | Service::DnsTcp(_) => "DNS",
            Service::Dhcp4 => "DHCPv4",
            Service::Dhcp6 => "DHCPv6",
            Service::Mdns(_) => "multicast DNS",
        };
        let by = if protocol == Protocol::TCP { "tcp" } else { "udp" };
        write!(f, "{name} on {by} {local}")
    }
}
