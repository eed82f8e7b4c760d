//! Nodes, their interfaces, and the attached endpoints.

use crate::error::Error;
use crate::events::Order;
use ringway_link::Link;
use ringway_sansio::{Addressing, Endpoint, RingQueue, Time};
use std::any::Any;
use std::net::IpAddr;

/// The value for no interface, no node and no time.
pub(crate) const NONE: u32 = u32::MAX;
pub(crate) const NEVER: u64 = u64::MAX;

/// Identifies a node of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(crate) u32);

/// Identifies an interface of a node, and the direction of the link that leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InterfaceId(pub(crate) u32);

/// Identifies an endpoint of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointId(pub(crate) u32);

macro_rules! numbered {
    ($($id:ident),*) => { $(
        impl $id {
            /// Returns the index that records use.
            pub const fn index(self) -> u32 {
                self.0
            }
        }
    )* };
}
numbered!(NodeId, InterfaceId, EndpointId);

/// An endpoint that can be attached to a node. A blanket implementation covers all endpoints.
pub trait Plug: Endpoint + Any {}
impl<E: Endpoint + Any> Plug for E {}

/// The packets that an endpoint receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind {
    /// The IP protocol number.
    pub protocol: u8,
    /// The destination port, the third and fourth byte of the payload as in UDP, TCP and SCTP; `None`
    /// for every packet of the protocol without an endpoint of its port.
    pub port: Option<u16>,
}

impl Bind {
    /// Creates a bind of one UDP port.
    pub const fn udp(port: u16) -> Self {
        Bind { protocol: crate::headers::UDP, port: Some(port) }
    }

    /// Creates a bind of a whole protocol.
    pub const fn protocol(protocol: u8) -> Self {
        Bind { protocol, port: None }
    }

    /// Returns a sort key: exact ports are after the wildcard of their protocol.
    fn key(self) -> u32 {
        u32::from(self.protocol) << 17 | self.port.map_or(0, |port| 1 + u32::from(port))
    }
}

pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) interfaces: Vec<u32>,
    /// Whether it forwards packets of other nodes.
    pub(crate) forwards: bool,
    /// Endpoints by bind, ascending.
    binds: Vec<(u32, u32)>,
    /// Number of events that this node has requested.
    pub(crate) requested: u64,
    /// Number of events at this node in total, and at the present instant.
    events: u64,
    instant: Time,
    at_instant: u64,
}

impl Node {
    pub(crate) fn new(name: String) -> Self {
        Node {
            name,
            interfaces: Vec::new(),
            forwards: true,
            binds: Vec::new(),
            requested: 0,
            events: 0,
            instant: Time::ZERO,
            at_instant: 0,
        }
    }

    /// Counts an event. Returns the number of events at this instant.
    #[inline]
    pub(crate) fn count_event(&mut self, now: Time) -> u64 {
        self.events += 1;
        if self.instant != now {
            self.instant = now;
            self.at_instant = 0;
        }
        self.at_instant += 1;
        self.at_instant
    }

    /// Returns the number of events in total.
    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// Returns the number of events at the instant of the last one.
    pub(crate) fn events_at_instant(&self) -> u64 {
        self.at_instant
    }

    pub(crate) fn bind(&mut self, bind: Bind, endpoint: u32) -> Result<(), Error> {
        match self.binds.binary_search_by_key(&bind.key(), |b| b.0) {
            Ok(_) => Err(Error::PortTaken {
                node: self.name.clone(),
                protocol: bind.protocol,
                port: bind.port,
            }),
            Err(position) => {
                self.binds.insert(position, (bind.key(), endpoint));
                Ok(())
            }
        }
    }

    /// Returns the endpoint that receives a packet.
    #[inline]
    pub(crate) fn taker(&self, protocol: u8, payload: &[u8]) -> Option<u32> {
        let port = payload.get(2..4).map(|p| u16::from_be_bytes([p[0], p[1]]));
        let find = |port| {
            let key = Bind { protocol, port }.key();
            let found = self.binds.binary_search_by_key(&key, |b| b.0).ok()?;
            Some(self.binds[found].1)
        };
        port.and_then(|port| find(Some(port))).or_else(|| find(None))
    }
}

/// Counters of packets and bytes at an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets offered to its link, including copies made by the link.
    pub offered: u64,
    /// Packets that left on its link.
    pub left: u64,
    /// Bytes of the packets that left.
    pub left_bytes: u64,
    /// Packets dropped by its link at any time.
    pub dropped: u64,
    /// Packets received.
    pub received: u64,
    /// Bytes of the packets received.
    pub received_bytes: u64,
}

pub(crate) struct Interface {
    pub(crate) node: u32,
    pub(crate) name: String,
    pub(crate) addresses: Vec<IpAddr>,
    /// The link that leaves the interface.
    pub(crate) link: Link,
    /// The interface at the other end, and its node.
    pub(crate) peer: u32,
    pub(crate) peer_node: u32,
    /// The cost of this interface in computed routes.
    pub(crate) cost: u32,
    /// The time when the link is to be polled next, [`NEVER`] if not.
    pub(crate) wake: u64,
    pub(crate) counters: Counters,
    /// Packets in flight in the order of arrival; the first has a pending event.
    pub(crate) flight: RingQueue<Flight>,
}

/// A packet in flight, and its order among events.
#[derive(Clone, Copy)]
pub(crate) struct Flight {
    pub(crate) arrives: Time,
    pub(crate) order: Order,
    pub(crate) packet: u32,
}

pub(crate) struct Plugged {
    pub(crate) node: u32,
    pub(crate) plug: Box<dyn Plug>,
    /// The time of its timer, [`NEVER`] if it is not set.
    pub(crate) timer: u64,
    /// The path of the last packet, unless the routes have changed.
    pub(crate) path: Option<Path>,
}

/// The path of a flow of packets from its first node.
#[derive(Clone, Copy)]
pub(crate) struct Path {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) ports: u32,
    /// The hash of the flow.
    pub(crate) flow: u32,
    /// Number of the destination's address, and the node that has it.
    pub(crate) number: u32,
    pub(crate) owner: u32,
    /// The outgoing interface, or [`NONE`].
    pub(crate) way: u32,
}

impl Path {
    /// Returns whether packets with these addresses and ports take this path.
    #[inline]
    pub(crate) fn leads(&self, addressing: &Addressing, ports: u32) -> bool {
        self.ports == ports
            && self.protocol == addressing.protocol
            && self.source == addressing.source
            && self.destination == addressing.destination
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_goes_before_the_protocol() {
        let mut node = Node::new("a".into());
        node.bind(Bind::udp(9), 1).unwrap();
        node.bind(Bind::protocol(17), 2).unwrap();
        node.bind(Bind { protocol: 6, port: Some(0) }, 3).unwrap();
        assert!(node.bind(Bind::udp(9), 4).is_err());
        assert_eq!(node.taker(17, &[0, 0, 0, 9]), Some(1));
        assert_eq!(node.taker(17, &[0, 0, 0, 8]), Some(2));
        assert_eq!(node.taker(17, &[0]), Some(2));
        assert_eq!(node.taker(6, &[0, 0, 0, 0]), Some(3));
        assert_eq!(node.taker(6, &[]), None);
    }
}
