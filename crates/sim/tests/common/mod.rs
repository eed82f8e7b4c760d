//! Worlds in a line, with a source at one end and a sink at the other.

// Each test file uses a part of it.
#![allow(dead_code, clippy::unwrap_used)]

use ringway_link::{LinkConfig, Streams};
use ringway_sansio::Time;
use ringway_sim::traffic::{Sink, Source, SourceConfig};
use ringway_sim::{Bind, EndpointId, InterfaceId, NodeId, World};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

pub(crate) const PORT: u16 = 9;

pub(crate) struct Line {
    pub(crate) world: World,
    pub(crate) nodes: Vec<NodeId>,
    /// The interface that leads on from each node but the last.
    pub(crate) onward: Vec<InterfaceId>,
    pub(crate) source: EndpointId,
    pub(crate) sink: EndpointId,
}

pub(crate) fn address(n: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, n as u8 + 1).into()
}

impl Line {
    /// `links.len() + 1` nodes; `config` gets the addresses of the first and the last.
    pub(crate) fn new(
        streams: Streams,
        links: &[LinkConfig],
        config: impl FnOnce(SocketAddr, SocketAddr) -> SourceConfig,
        sink: Sink,
    ) -> Self {
        let mut world = World::new(streams);
        let nodes: Vec<NodeId> =
            (0..=links.len()).map(|n| world.add_node(&format!("n{n}")).unwrap()).collect();
        let mut onward = Vec::new();
        for (n, link) in links.iter().enumerate() {
            let back = LinkConfig::default();
            let (out, far) = world.connect(nodes[n], nodes[n + 1], link.clone(), back).unwrap();
            if n == 0 {
                world.add_address(out, address(0)).unwrap();
            }
            if n + 1 == links.len() {
                world.add_address(far, address(n + 1)).unwrap();
            }
            onward.push(out);
        }
        let ends = (SocketAddr::new(address(0), PORT), SocketAddr::new(address(links.len()), PORT));
        let source = Source::new(config(ends.0, ends.1), streams.stream("n0/source"));
        let source = world.attach(nodes[0], Bind::udp(PORT), source).unwrap();
        let sink = world.attach(nodes[links.len()], Bind::udp(PORT), sink).unwrap();
        Line { world, nodes, onward, source, sink }
    }

    pub(crate) fn run(&mut self, until: Time) {
        self.world.run_until(until).unwrap();
    }

    pub(crate) fn sent(&self) -> u64 {
        self.world.endpoint::<Source>(self.source).unwrap().sent()
    }

    pub(crate) fn sink(&self) -> &Sink {
        self.world.endpoint(self.sink).unwrap()
    }
}
