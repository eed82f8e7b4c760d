//! The nodes of a small network.

use super::{Host, LabRouter};
use ringway_sansio::Time;
use ringway_sim::graph::{Destination, GraphNode};

/// A host or a router.
pub enum LabNode {
    /// A host.
    Host(Box<Host>),
    /// A router.
    Router(Box<LabRouter>),
}

impl LabNode {
    /// Returns the host; `None` if it is a router.
    pub fn host(&mut self) -> Option<&mut Host> {
        match self {
            LabNode::Host(host) => Some(host),
            LabNode::Router(_) => None,
        }
    }

    /// Returns the router; `None` if it is a host.
    pub fn router(&mut self) -> Option<&mut LabRouter> {
        match self {
            LabNode::Host(_) => None,
            LabNode::Router(router) => Some(router),
        }
    }
}

impl GraphNode for LabNode {
    fn handle_packet(&mut self, now: Time, from: u16, bytes: &mut [u8]) {
        match self {
            LabNode::Host(host) => host.handle_packet(now, from, bytes),
            LabNode::Router(router) => router.handle_packet(now, from, bytes),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        match self {
            LabNode::Host(host) => host.handle_timeout(now),
            LabNode::Router(router) => router.handle_timeout(now),
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        match self {
            LabNode::Host(host) => host.poll_timeout(),
            LabNode::Router(router) => router.poll_timeout(),
        }
    }

    fn poll_transmit(&mut self, now: Time, bytes: &mut Vec<u8>) -> Option<Destination> {
        match self {
            LabNode::Host(host) => host.poll_transmit(now, bytes),
            LabNode::Router(router) => router.poll_transmit(now, bytes),
        }
    }

    fn heap_bytes(&self) -> usize {
        match self {
            LabNode::Host(host) => host.heap_bytes(),
            LabNode::Router(router) => router.heap_bytes(),
        }
    }
}
