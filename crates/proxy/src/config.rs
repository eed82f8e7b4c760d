//! The configuration of an operator, as plain data. The server reads it from a file.

use crate::keys::{Keyring, Secret, SharedSecret};
use crate::routes::RouteTable;
use ringway_sansio::{Duration, Flow, Listener, Transport};
use ringway_sip::digest::Algorithm;
use ringway_sip::header::{HeaderId, NameAddr};
use ringway_sip::message::Message;
use ringway_sip::transaction::Timers;
use ringway_sip::uri::Uri;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// How requests for a domain are treated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Stateful proxy (RFC 3261 section 16).
    #[default]
    Proxy,
    /// Stateless proxy (RFC 3261 section 16.11): no forking, no retransmission, no fail-over.
    Stateless,
    /// Redirect server (RFC 3261 section 8.3): 302 with the contacts and their q.
    Redirect,
}

/// A domain this network is responsible for (RFC 3261 section 10.2).
#[derive(Clone, Debug)]
pub struct Domain {
    /// Its name in lower case: part of every address-of-record, and the digest realm.
    pub name: Arc<str>,
    /// Other names and addresses of the domain, in lower case; IPv6 in brackets.
    pub aliases: Vec<Arc<str>>,
    /// How requests for it are treated.
    pub mode: Mode,
}

/// A network in CIDR notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// First address.
    pub addr: IpAddr,
    /// Bits of the prefix: at most 32 for IPv4 and 128 for IPv6.
    pub prefix: u8,
}

impl Network {
    /// Returns whether `ip` is in the network. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.addr, ip.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => {
                let keep = u32::MAX.checked_shl(32 - u32::from(self.prefix.min(32))).unwrap_or(0);
                u32::from(net) & keep == u32::from(ip) & keep
            }
            (IpAddr::V6(net), IpAddr::V6(ip)) => {
                let keep =
                    u128::MAX.checked_shl(128 - u32::from(self.prefix.min(128))).unwrap_or(0);
                u128::from(net) & keep == u128::from(ip) & keep
            }
            _ => false,
        }
    }
}

/// Digest authentication (RFC 8760).
#[derive(Clone, Debug)]
pub struct Auth {
    /// Off only for laboratories and networks that are protected otherwise.
    pub enabled: bool,
    /// Algorithms offered, in this order.
    pub algorithms: Vec<Algorithm>,
    /// Whether the integrity of bodies is offered too (`auth-int`); `auth` always is.
    pub auth_int: bool,
    /// The lifetime of a nonce.
    pub nonce_lifetime: Duration,
    /// Whether an authenticated user may use any From. Otherwise it must be the user's own address, or anonymous (RFC
    /// 3323 section 4.1.1.3).
    pub any_from: bool,
}

/// Rates and sizes. Each is per worker unless noted otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests per second accepted from one source address; trusted peers and loopback addresses are exempt. 0 is no
    /// limit.
    pub requests_per_source: u32,
    /// New requests per second accepted from all sources together; beyond it 503. 0 is no limit.
    pub requests: u32,
    /// The number of contacts that a request is forked to at most.
    pub max_forks: usize,
}

/// The mesh of routers, whose servers are one for our domains: each has its own users and registrations, and knows those
/// of the others by [`LocationStore::elsewhere`](crate::location::LocationStore::elsewhere).
///
/// The mesh authenticates the address of a router, and no router can send from the address of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeshNetwork {
    /// Our own address in the mesh.
    pub address: Ipv6Addr,
}

impl MeshNetwork {
    /// Returns the first address of the router that a message has come from, if it has come from one: over the mesh, and
    /// not from a host behind a router.
    pub fn router(&self, flow: &Flow) -> Option<IpAddr> {
        let (IpAddr::V6(local), IpAddr::V6(remote)) = (flow.local.ip(), flow.remote.ip()) else {
            return None;
        };
        let first = first_address(remote)?;
        let came_by_mesh = first_address(local) == Some(self.address);
        (came_by_mesh && first != self.address).then_some(first.into())
    }

    /// Returns whether an address is one of another router.
    pub fn is_other_router(&self, ip: IpAddr) -> bool {
        matches!(ip, IpAddr::V6(ip) if ip != self.address && first_address(ip) == Some(ip))
    }
}

/// Returns the first address of the router that has an address: the mesh gives it the first two of a /64 in fd00::/8. `None`
/// of any other address.
fn first_address(ip: Ipv6Addr) -> Option<Ipv6Addr> {
    const INTERFACE: u128 = u64::MAX as u128;
    let is_router = ip.octets()[0] == 0xfd && matches!(ip.to_bits() & INTERFACE, 1 | 2);
    is_router.then(|| Ipv6Addr::from_bits(ip.to_bits() & !INTERFACE | 1))
}

/// The other nodes of a cluster, whose servers are one for our domains as those of a mesh are.
///
/// An address is no proof: a datagram may have a forged one, and a host may forward the connections of others from its own.
/// So a request counts as one of a node only with the key of this node in the Route by which it came, which only nodes know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterNodes {
    /// The addresses at which they receive requests, and from which they send datagrams, in order.
    nodes: Arc<[SocketAddr]>,
    key: Option<NodeKey>,
    secrets: Arc<[SharedSecret]>,
}

impl ClusterNodes {
    /// Returns the nodes with these addresses, beside the node with this key.
    pub fn new(mut nodes: Vec<SocketAddr>, key: NodeKey) -> Self {
        nodes.sort_unstable();
        ClusterNodes { nodes: nodes.into(), key: Some(key), secrets: Arc::default() }
    }

    /// Returns the same nodes, which share these secrets of tokens that come back, the one in use first.
    pub fn sharing(self, secrets: impl Into<Arc<[SharedSecret]>>) -> Self {
        ClusterNodes { secrets: secrets.into(), ..self }
    }

    /// Returns the secrets that the nodes share.
    pub fn secrets(&self) -> &Arc<[SharedSecret]> {
        &self.secrets
    }

    /// Returns the addresses of the nodes.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.nodes
    }

    /// Returns the address of the node that a message has come from, if it has the address of one: a datagram from the
    /// port of a node, or any connection from its host.
    pub fn node(&self, flow: &Flow) -> Option<IpAddr> {
        let ip = flow.remote.ip();
        let is_node = match flow.transport {
            Transport::Udp => self.nodes.binary_search(&flow.remote).is_ok(),
            _ => {
                let first = self.nodes.partition_point(|node| node.ip() < ip);
                self.nodes.get(first).is_some_and(|node| node.ip() == ip)
            }
        };
        is_node.then_some(ip)
    }

    /// Returns whether a request came by a Route with the key of this node.
    pub fn is_proved(&self, msg: &Message<'_>) -> bool {
        let Some(Ok(route)) = msg.items(HeaderId::Route).next().map(NameAddr::parse) else {
            return false;
        };
        let value = Uri::parse(route.uri).ok().and_then(|uri| uri.param(NodeKey::PARAMETER)?);
        self.key
            .zip(value)
            .is_some_and(|(key, value)| bool::from(key.text().as_bytes().ct_eq(value)))
    }
}

/// A secret that a node of a cluster shares with the others: it is in the Path that leads to the node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NodeKey(pub [u8; 16]);

impl NodeKey {
    /// The name of the parameter that has a key in a URI of Path (RFC 3327).
    pub const PARAMETER: &[u8] = b"node";

    /// Returns its 32 hexadecimal digits.
    pub fn text(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.0))
    }

    /// Reads 32 hexadecimal digits in lower case.
    pub fn parse(text: &str) -> Option<NodeKey> {
        let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        let number = u128::from_str_radix(text, 16).ok()?;
        (text.len() == 32 && text.bytes().all(is_digit)).then_some(NodeKey(number.to_be_bytes()))
    }
}

impl fmt::Debug for NodeKey {
    /// Writes nothing of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeKey")
    }
}

/// The whole configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// At least one; the first is the default for requests that match no other.
    pub domains: Vec<Domain>,
    /// Transports and addresses listened on.
    pub listeners: Vec<Listener>,
    /// The addresses of this host, for listeners on a wildcard.
    pub addresses: Vec<IpAddr>,
    /// Digest authentication.
    pub auth: Auth,
    /// Peers trusted without digest: other proxies and gateways of ours.
    pub trusted: Vec<Network>,
    /// The mesh of routers that this server belongs to.
    pub mesh: Option<MeshNetwork>,
    /// The other nodes of the cluster that this server belongs to.
    pub nodes: ClusterNodes,
    /// Routes of requests that are not for a registered user.
    pub routes: RouteTable,
    /// Whether to stay in the path of dialogs (RFC 3261 section 16.6 item 4).
    pub record_route: bool,
    /// Base timers.
    pub timers: Timers,
    /// Timer C: the time for which an INVITE may ring; above three minutes (RFC 3261 section 16.6 item 11).
    pub timer_c: Duration,
    /// The configuration of the registrar.
    pub registrar: crate::registrar::RegistrarConfig,
    /// Rates and sizes.
    pub limits: Limits,
    /// The secret of this server alone, from which all keys are derived that no others of a cluster share.
    pub secret: Secret,
}

impl Config {
    /// Returns the secrets of tokens that come back to this server, or to another node of its cluster.
    pub fn token_secrets(&self) -> Keyring<Secret> {
        Keyring::of_tokens(&self.nodes.secrets, &self.secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_is_known_by_both_addresses() {
        let mesh = MeshNetwork { address: "fd01::1".parse().unwrap() };
        let router = |local: &str, remote: &str| {
            let ip = |text: &str| text.parse::<IpAddr>().unwrap();
            let flow = crate::testing::flow();
            mesh.router(&Flow {
                local: (ip(local), 5060).into(),
                remote: (ip(remote), 40_000).into(),
                ..flow
            })
        };
        // From and to either of the two that it has.
        for (local, remote) in
            [("fd01::1", "fd02:3::1"), ("fd01::2", "fd02:3::2"), ("fd01::2", "fd02:3::1")]
        {
            assert_eq!(router(local, remote), Some("fd02:3::1".parse().unwrap()), "{local}");
        }
        for (local, remote) in [
            ("fd01::1", "fd02::3"),
            ("fd01::1", "fd01::2"),
            ("fd01::1", "fd02::1:0:0:1"),
            ("fd01::1", "fd01::1"),
            ("fd01::1", "fe80::1"),
            ("fd01::1", "fc02::1"),
            ("fd01::1", "192.0.2.1"),
            ("192.0.2.1", "fd02::1"),
            ("fd01::3", "fd02::1"),
        ] {
            assert_eq!(router(local, remote), None, "{remote} to {local}");
        }
    }

    #[test]
    fn a_node_is_known_by_its_port_over_udp_and_by_its_host_over_connections() {
        let addresses =
            ["192.0.2.9:5060", "192.0.2.1:5060", "192.0.2.1:5080", "[2001:db8::1]:5060"];
        let addresses = addresses.map(|text| text.parse().unwrap()).into();
        let nodes = ClusterNodes::new(addresses, NodeKey([7; 16]));
        let node = |transport, remote: &str| {
            let flow = crate::testing::flow();
            nodes.node(&Flow { transport, remote: remote.parse().unwrap(), ..flow }).is_some()
        };
        assert!(node(Transport::Udp, "192.0.2.1:5080") && node(Transport::Udp, "192.0.2.9:5060"));
        assert!(node(Transport::Tcp, "192.0.2.9:1") && node(Transport::Tcp, "[2001:db8::1]:1"));
        assert!(!node(Transport::Tcp, "192.0.2.10:5060") && !node(Transport::Tcp, "192.0.2.0:1"));
        assert!(node(Transport::Udp, "192.0.2.1:5060"));
        assert!(!node(Transport::Udp, "192.0.2.1:5070"));
        assert!(node(Transport::Tcp, "192.0.2.1:40000"));
        assert!(!node(Transport::Tcp, "192.0.2.2:5060"));
    }

    #[test]
    fn the_key_of_a_node_is_read_as_it_was_written_and_not_shown() {
        let key = NodeKey(*b"\x00\x01key of a node.");
        assert_eq!(NodeKey::parse(&key.text()), Some(key));
        for text in ["", "7", "+0000000000000000000000000000001", &key.text().to_uppercase()] {
            assert_eq!(NodeKey::parse(text), None, "{text}");
        }
        assert_eq!(format!("{key:?}"), "NodeKey");
    }

    #[test]
    fn networks_contain_what_they_should() {
        let net = |s: &str, prefix| Network { addr: s.parse().unwrap(), prefix };
        assert!(net("10.1.0.0", 16).contains("10.1.255.3".parse().unwrap()));
        assert!(!net("10.1.0.0", 16).contains("10.2.0.3".parse().unwrap()));
        assert!(net("10.1.2.3", 32).contains("::ffff:10.1.2.3".parse().unwrap()));
        assert!(net("0.0.0.0", 0).contains("192.0.2.1".parse().unwrap()));
        assert!(!net("0.0.0.0", 0).contains("2001:db8::1".parse().unwrap()));
        assert!(net("2001:db8::", 32).contains("2001:db8:ffff::1".parse().unwrap()));
    }
}
