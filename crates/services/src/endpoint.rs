//! Local and remote endpoints (RFC 9622 section 6.1).

use crate::protocol::Protocol;
use core::fmt;
use std::net::{IpAddr, SocketAddr};

/// Octets of a host name (RFC 1035 section 2.3.4).
pub const MAX_NAME: usize = 255;
/// Addresses of one endpoint.
pub const MAX_ADDRESSES: usize = 32;

/// An address family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Family {
    /// IPv6; asked for first (RFC 8305 section 3).
    V6,
    /// IPv4.
    V4,
}

impl Family {
    /// Both, the preferred one first.
    pub const ALL: [Family; 2] = [Family::V6, Family::V4];

    /// Returns the family of an address.
    pub fn of(ip: IpAddr) -> Family {
        if ip.is_ipv4() { Family::V4 } else { Family::V6 }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::V6 => "IPv6",
            Family::V4 => "IPv4",
        })
    }
}

/// The UDP ports of protocols that UDP carries, where they are not the port of the service.
///
/// A UDP port belongs to one protocol. An endpoint that listens with several of them at one port names others here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct UdpPorts {
    /// That of SCTP (RFC 6951), inside which SCTP has the port of the service.
    pub sctp: Option<u16>,
    /// That of DCCP (RFC 6773), inside which DCCP has the port of the service.
    pub dccp: Option<u16>,
    /// That of QUIC.
    pub quic: Option<u16>,
}

impl UdpPorts {
    /// Returns the UDP port of a protocol for a service at `port`; `None` if UDP does not carry it.
    pub fn of(self, protocol: Protocol, port: u16) -> Option<u16> {
        match protocol {
            Protocol::Udp => Some(port),
            Protocol::SctpUdp => Some(self.sctp.unwrap_or(port)),
            Protocol::DccpUdp => Some(self.dccp.unwrap_or(port)),
            Protocol::Quic | Protocol::QuicDatagram => Some(self.quic.unwrap_or(port)),
            _ => None,
        }
    }
}

/// A peer: a host name or addresses, and a port.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RemoteEndpoint {
    /// The host name, resolved while the attempts race unless there are addresses.
    pub host: Option<String>,
    /// Addresses of the host, most wanted first.
    pub addresses: Vec<IpAddr>,
    /// The port.
    pub port: u16,
    /// Protocols that the peer speaks at this port; empty if that is unknown (RFC 9622 section 6.1.3).
    pub protocols: Vec<Protocol>,
    /// UDP ports that are not that port.
    pub udp_ports: UdpPorts,
}

impl RemoteEndpoint {
    /// Returns the endpoint of a host name.
    pub fn host(name: &str, port: u16) -> Self {
        RemoteEndpoint { host: Some(name.to_string()), port, ..Self::default() }
    }

    /// Returns the endpoint of one address.
    pub fn address(address: SocketAddr) -> Self {
        RemoteEndpoint { addresses: vec![address.ip()], port: address.port(), ..Self::default() }
    }

    /// Returns the endpoint with another address of the same host.
    #[must_use]
    pub fn and_address(mut self, address: IpAddr) -> Self {
        self.addresses.push(address);
        self
    }

    /// Returns the endpoint restricted to a protocol, and to those it was restricted to before.
    #[must_use]
    pub fn with_protocol(mut self, protocol: Protocol) -> Self {
        self.protocols.push(protocol);
        self
    }

    /// Returns the endpoint with these UDP ports.
    #[must_use]
    pub fn with_udp_ports(mut self, udp_ports: UdpPorts) -> Self {
        self.udp_ports = udp_ports;
        self
    }

    /// Returns whether the peer may speak a protocol at this port.
    pub fn speaks(&self, protocol: Protocol) -> bool {
        self.protocols.is_empty() || self.protocols.contains(&protocol)
    }

    /// Returns what the peer is remembered by: its name or first address, and the port.
    pub fn key(&self) -> String {
        match (&self.host, self.addresses.first()) {
            (Some(host), _) => format!("{}:{}", host.to_ascii_lowercase(), self.port),
            (None, Some(address)) => SocketAddr::new(*address, self.port).to_string(),
            (None, None) => format!("*:{}", self.port),
        }
    }
}

/// Where a program sends from or listens; what is absent is the system's to choose.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LocalEndpoint {
    /// The name of an interface.
    pub interface: Option<String>,
    /// Addresses; empty for any.
    pub addresses: Vec<IpAddr>,
    /// The port; `None` for a free one.
    pub port: Option<u16>,
    /// UDP ports of a listener that are not that port.
    pub udp_ports: UdpPorts,
}

impl LocalEndpoint {
    /// Returns the endpoint of a port at all addresses.
    pub fn port(port: u16) -> Self {
        LocalEndpoint { port: Some(port), ..Self::default() }
    }

    /// Returns the endpoint of one address.
    pub fn address(address: SocketAddr) -> Self {
        let port = (address.port() != 0).then_some(address.port());
        LocalEndpoint { addresses: vec![address.ip()], port, ..LocalEndpoint::default() }
    }

    /// Returns the endpoint with these UDP ports.
    #[must_use]
    pub fn with_udp_ports(mut self, udp_ports: UdpPorts) -> Self {
        self.udp_ports = udp_ports;
        self
    }

    /// Returns the endpoint of an interface.
    pub fn interface(name: &str) -> Self {
        LocalEndpoint { interface: Some(name.to_string()), ..Self::default() }
    }
}

/// What a candidate connects to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Remote {
    /// An address.
    Address(SocketAddr),
    /// A name that is not yet resolved.
    Name {
        /// The host.
        host: String,
        /// The port.
        port: u16,
    },
    /// Any peer: the candidate listens.
    Any,
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Remote::Address(address) => write!(f, "{address}"),
            Remote::Name { host, port } => write!(f, "{host}:{port}"),
            Remote::Any => f.write_str("any peer"),
        }
    }
}

/// Returns addresses in the order of attempts: the one that worked before first, then families in turns (RFC 8305
/// section 4). Of equal addresses one is left, of more than [`MAX_ADDRESSES`] the first.
pub(crate) fn interlace(addresses: &[IpAddr], worked: Option<IpAddr>) -> Vec<IpAddr> {
    let worked = worked.filter(|worked| addresses.contains(worked));
    let first = worked.or(addresses.first().copied()).map(Family::of);
    let of = |same: bool| {
        let is = move |ip: &&IpAddr| (Some(Family::of(**ip)) == first) == same;
        addresses.iter().filter(is).copied().filter(move |ip| Some(*ip) != worked)
    };
    let (mut same, mut other) = (of(true), of(false));
    let mut ordered: Vec<IpAddr> = worked.into_iter().collect();
    let mut turn = ordered.is_empty();
    loop {
        let next = if turn {
            same.next().or_else(|| other.next())
        } else {
            other.next().or_else(|| same.next())
        };
        let Some(next) = next.filter(|_| ordered.len() < MAX_ADDRESSES) else { return ordered };
        if !ordered.contains(&next) {
            ordered.push(next);
            turn = !turn;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ips(text: &str) -> Vec<IpAddr> {
        text.split_whitespace().map(|ip| ip.parse().unwrap()).collect()
    }

    /// RFC 8305 section 4.
    #[test]
    fn families_take_turns() {
        assert_eq!(interlace(&ips("::1 ::2 ::3 1.1.1.1"), None), ips("::1 1.1.1.1 ::2 ::3"));
        assert_eq!(interlace(&ips("1.1.1.1 ::1 1.1.1.1 ::2"), None), ips("1.1.1.1 ::1 ::2"));
        assert!(interlace(&[], None).is_empty());
    }

    #[test]
    fn what_worked_comes_first_if_it_is_still_an_address() {
        let addresses = ips("::1 ::2 1.1.1.1");
        let worked = |ip: &str| interlace(&addresses, Some(ip.parse().unwrap()));
        assert_eq!(worked("1.1.1.1"), ips("1.1.1.1 ::1 ::2"));
        assert_eq!(worked("9.9.9.9"), ips("::1 1.1.1.1 ::2"));
    }

    #[test]
    fn a_udp_port_is_that_of_the_service_unless_it_is_named() {
        let ports = UdpPorts { sctp: Some(9899), ..UdpPorts::default() };
        let of = |protocol| ports.of(protocol, 80);
        assert_eq!([of(Protocol::SctpUdp), of(Protocol::DccpUdp)], [Some(9899), Some(80)]);
        assert_eq!([of(Protocol::Quic), of(Protocol::Tcp)], [Some(80), None]);
    }

    #[test]
    fn a_peer_is_known_by_its_name_or_first_address() {
        assert_eq!(RemoteEndpoint::host("Example.org", 80).key(), "example.org:80");
        assert_eq!(RemoteEndpoint::address("[::1]:80".parse().unwrap()).key(), "[::1]:80");
    }
}
