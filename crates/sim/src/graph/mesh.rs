//! Routers of the mesh as nodes of a graph: the machine of `ringway_mesh`, with the stand-in for its cryptography.
//!
//! What is left out: signatures and seals have their sizes and protect nothing, a data packet goes from the router
//! itself, and no UDP checksum is computed. All else is what runs in a daemon.

use super::data::{DataNode, Delivery, MIN_CONTENTS, write_contents};
use super::node::{Destination, GraphNode, node_random};
use ringway_mesh::config::Config;
use ringway_mesh::crypto::{NetworkKey, StandIn};
use ringway_mesh::identity::Search;
use ringway_mesh::link::{Discovery, InterfaceConfig, LinkAddress};
use ringway_mesh::metric::Space;
use ringway_mesh::output::Destination as To;
use ringway_mesh::router::{Closest, Event, Refusal};
use ringway_mesh::wire::DataView;
use ringway_mesh::{Identity, LocalRouter, NodeId, Ring, Router};
use ringway_sansio::{SplitMix, Time};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;

/// The only interface of a router: its neighbours in the graph hear its HELLOs.
const INTERFACE: u32 = 1;
/// Largest UDP payload of a link, in octets.
const MTU: u16 = 1_452;
/// Next header of a packet of the trial.
const UDP: u8 = 17;
/// Length in octets of an IPv6 header.
const IPV6_HEADER: usize = 40;
/// Length in octets of a UDP header.
const UDP_HEADER: usize = 8;
/// Octets of Ethernet, IPv6 and UDP headers, which a graph does not count.
pub const HEADERS: usize = 62;

/// The identities of all nodes.
#[derive(Debug)]
pub struct Identities {
    identities: Vec<Arc<Identity>>,
}

impl Identities {
    /// Draws the identities of as many nodes.
    pub fn draw(nodes: u32, seed: u64) -> Arc<Identities> {
        let mut random = SplitMix::new(seed ^ 0x1d5);
        let draw = |_| loop {
            // Without an extension the first try succeeds.
            if let Some(identity) = Search::new(0, &mut random).step(1) {
                break identity.into();
            }
        };
        Arc::new(Identities { identities: (0..nodes).map(draw).collect() })
    }

    /// Takes the identities of nodes that were drawn elsewhere.
    pub fn of(identities: Vec<Identity>) -> Arc<Identities> {
        Arc::new(Identities { identities: identities.into_iter().map(Arc::new).collect() })
    }

    /// Returns the identity of a node.
    pub fn get(&self, node: u32) -> Option<&Identity> {
        self.identities.get(node as usize).map(|identity| &**identity)
    }

    /// Returns the id of a node.
    pub fn id(&self, node: u32) -> NodeId {
        self.identities.get(node as usize).map(|identity| identity.id()).unwrap_or_default()
    }
}

/// A UDP datagram that came from a router or a host of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The sender's address and port.
    pub from: SocketAddrV6,
    /// The address and port that it was sent to.
    pub to: SocketAddrV6,
    /// The contents.
    pub octets: Vec<u8>,
}

impl Datagram {
    /// Returns the datagram in an IPv6 packet, unless it has no UDP header.
    fn parse(packet: &[u8]) -> Option<Datagram> {
        let address = |at: usize| {
            let octets: &[u8; 16] = packet.get(at..)?.first_chunk()?;
            Some(Ipv6Addr::from(*octets))
        };
        let port = |at: usize| Some(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?));
        let octets = packet.get(IPV6_HEADER + UDP_HEADER..)?.to_vec();
        let from = SocketAddrV6::new(address(8)?, port(IPV6_HEADER)?, 0, 0);
        let to = SocketAddrV6::new(address(24)?, port(IPV6_HEADER + 2)?, 0, 0);
        Some(Datagram { from, to, octets })
    }
}

/// A router of the mesh.
pub struct MeshNode<S: Space = Ring> {
    router: Router<StandIn, S>,
    identities: Arc<Identities>,
    random: SplitMix,
    delivered: VecDeque<Delivery>,
    /// Datagrams for the router and its hosts, if they are wanted instead of deliveries.
    datagrams: Option<VecDeque<Datagram>>,
}

impl<S: Space> MeshNode<S> {
    /// Starts a node in one of its lives, of which the first is 0.
    pub fn new(
        config: &Config,
        identities: &Arc<Identities>,
        node: u32,
        life: u32,
        seed: u64,
        now: Time,
    ) -> Option<Self> {
        let mut random = node_random(seed, node, life);
        let identity = identities.identities.get(node as usize)?.clone();
        let bits = config.extension_bits;
        let local = LocalRouter::new(identity, NetworkKey::OPEN, bits, life, &mut random);
        let mut router = Router::new(config, local, now, &mut random);
        let discovery = Discovery::Multicast;
        let interface = InterfaceConfig { index: INTERFACE, discovery, mtu: MTU };
        router.add_interface(now, interface, &mut random);
        let identities = identities.clone();
        Some(MeshNode { router, identities, random, delivered: VecDeque::new(), datagrams: None })
    }

    /// Has the packets that arrive returned by [`MeshNode::poll_datagram`] instead of being counted.
    pub fn with_datagrams(mut self) -> Self {
        self.datagrams = Some(VecDeque::new());
        self
    }

    /// Counts a packet that has come over `hops` links, or keeps its datagram, unless it is an ICMPv6 error.
    fn deliver(&mut self, now: Time, hops: u32, packet: &[u8]) {
        if packet.get(6) != Some(&UDP) {
            return;
        }
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.extend(Datagram::parse(packet));
        } else if let Some(&number) = packet.get(IPV6_HEADER..).and_then(<[u8]>::first_chunk) {
            let number = u32::from_be_bytes(number);
            self.delivered.push_back(Delivery { number, at: now, hops });
        }
    }

    /// Sends a UDP datagram of the router, or of a host of it.
    pub fn send_datagram(
        &mut self,
        now: Time,
        from: SocketAddrV6,
        to: SocketAddrV6,
        octets: &[u8],
    ) {
        let length = u16::try_from(UDP_HEADER + octets.len()).unwrap_or(u16::MAX);
        let mut packet = Vec::with_capacity(IPV6_HEADER + usize::from(length));
        packet.extend([0x60, 0, 0, 0]);
        packet.extend(length.to_be_bytes());
        packet.extend([UDP, 64]);
        packet.extend(from.ip().octets());
        packet.extend(to.ip().octets());
        for word in [from.port(), to.port(), length, 0] {
            packet.extend(word.to_be_bytes());
        }
        packet.extend(octets);
        self.router.handle_local(now, &packet, &mut self.random);
    }

    /// Returns the next datagram that arrived, of a node [with datagrams](MeshNode::with_datagrams).
    pub fn poll_datagram(&mut self) -> Option<Datagram> {
        self.datagrams.as_mut()?.pop_front()
    }

    /// Returns what has happened at the router. What nobody asks for is dropped when packets are sent.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.router.poll_event()
    }

    /// Sends octets of an application to the router that is responsible for a key.
    ///
    /// # Errors
    /// As [`Router::send_closest`].
    pub fn send_closest(&mut self, now: Time, closest: &Closest<'_>) -> Result<(), Refusal> {
        self.router.send_closest(now, closest, &mut self.random)
    }

    /// Returns the router.
    pub fn router(&self) -> &Router<StandIn, S> {
        &self.router
    }
}

impl<S: Space + Send> GraphNode for MeshNode<S> {
    fn handle_packet(&mut self, now: Time, from: u16, bytes: &mut [u8]) {
        let from = LinkAddress { interface: INTERFACE, remote: address(from) };
        let hops = DataView::parse(bytes).map_or(0, |data| data.hops().into());
        let opened = self.router.handle_packet(now, from, bytes, &mut self.random);
        if let Some(packet) = opened.and_then(|range| bytes.get(range)) {
            self.deliver(now, hops, packet);
        }
        // Packets that came in pieces, and ICMPv6 errors.
        while let Some(packet) = self.router.poll_local() {
            self.deliver(now, hops, &packet);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.router.handle_timeout(now, &mut self.random);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.router.poll_timeout()
    }

    fn poll_transmit(&mut self, _now: Time, bytes: &mut Vec<u8>) -> Option<Destination> {
        while self.router.poll_event().is_some() || self.router.poll_local().is_some() {}
        let packet = self.router.poll_transmit()?;
        bytes.extend_from_slice(packet.bytes);
        Some(match packet.to {
            To::All => Destination::Neighbours,
            To::One(address) => Destination::Neighbour(index(address)),
        })
    }

    fn heap_bytes(&self) -> usize {
        self.router.heap_bytes() + self.delivered.capacity() * size_of::<Delivery>()
    }
}

impl<S: Space + Send> DataNode for MeshNode<S> {
    fn send_data(&mut self, now: Time, to: u32, number: u32, len: u16) {
        let mut packet = vec![0x60, 0, 0, 0];
        packet.extend(len.max(MIN_CONTENTS).to_be_bytes());
        packet.extend([UDP, 64]);
        packet.extend(self.router.id().prefix().router().octets());
        packet.extend(self.identities.id(to).prefix().router().octets());
        write_contents(&mut packet, number, len);
        self.router.handle_local(now, &packet, &mut self.random);
    }

    fn poll_delivery(&mut self) -> Option<Delivery> {
        self.delivered.pop_front()
    }
}

/// Returns the address by which a router knows the neighbour with an index.
fn address(index: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V6(Ipv6Addr::from_bits(0xffff_0000_0000 | u128::from(index))), 5267)
}

fn index(address: SocketAddr) -> u16 {
    match address.ip() {
        IpAddr::V6(ip) => ip.to_bits() as u16,
        IpAddr::V4(_) => u16::MAX,
    }
}
