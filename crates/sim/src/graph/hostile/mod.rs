//! Routers of the mesh that lie, drop, repeat and flood, among those that do not.
//!
//! A hostile router is a real one of which everything that it sends and receives passes an attacker. The attacker has
//! the router's identity and so the keys of its links: it can do whatever the holder of a valid identity can. It
//! relies on the stand-in for cryptography, which keeps no secrets: it reads what passes, and writes it anew. What it
//! does not have is the identity of another router.
//!
//! [`Attack`] has what attackers do, and [`siege`] measures what others deliver meanwhile.

mod attack;
mod forge;
mod keys;
pub mod siege;

pub use attack::Attack;
pub use siege::{Siege, Toll};

use super::data::{DataNode, Delivery};
use super::mesh::MeshNode;
use super::node::{Destination, GraphNode};
use attack::Attacker;
use ringway_mesh::crypto::StandIn;
use ringway_mesh::{Identity, NodeId, Ring, Router};
use ringway_sansio::time::sooner;
use ringway_sansio::{SplitMix, Time};

/// A router of a mesh in which some are hostile.
pub struct Member {
    node: MeshNode,
    attacker: Option<Box<Attacker>>,
}

impl Member {
    /// A router that follows the protocol.
    pub fn honest(node: MeshNode) -> Member {
        Member { node, attacker: None }
    }

    /// A router that carries out an attack from a time on. `identity` is that of the node.
    pub fn hostile(
        node: MeshNode,
        attack: Attack,
        identity: &Identity,
        from: Time,
        seed: u64,
    ) -> Member {
        let random = SplitMix::new(seed ^ identity.id().raw());
        let attacker = Attacker::new(attack, identity.clone(), from, random);
        Member { node, attacker: Some(Box::new(attacker)) }
    }

    /// Ends the attack at a time.
    #[must_use]
    pub fn until(mut self, until: Time) -> Member {
        if let Some(attacker) = &mut self.attacker {
            attacker.set_until(until);
        }
        self
    }

    /// Returns the router.
    pub fn router(&self) -> &Router<StandIn, Ring> {
        self.node.router()
    }

    /// Returns the router's id.
    pub fn id(&self) -> NodeId {
        self.router().id()
    }

    /// Returns whether the router is hostile.
    pub fn is_hostile(&self) -> bool {
        self.attacker.is_some()
    }

    /// Returns the number of packets that a hostile router has forged, dropped or changed.
    pub fn deeds(&self) -> u64 {
        self.attacker.as_ref().map_or(0, |attacker| attacker.deeds())
    }
}

impl GraphNode for Member {
    fn handle_packet(&mut self, now: Time, from: u16, bytes: &mut [u8]) {
        if let Some(attacker) = &mut self.attacker {
            attacker.receive(now, from, bytes);
        }
        self.node.handle_packet(now, from, bytes);
    }

    fn handle_timeout(&mut self, now: Time) {
        if let Some(attacker) = &mut self.attacker {
            attacker.timeout(now);
        }
        self.node.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Time> {
        let attacker = self.attacker.as_ref().map(|attacker| attacker.due());
        sooner(self.node.poll_timeout(), attacker)
    }

    fn poll_transmit(&mut self, now: Time, bytes: &mut Vec<u8>) -> Option<Destination> {
        let Some(attacker) = &mut self.attacker else { return self.node.poll_transmit(now, bytes) };
        while let Some(to) = self.node.poll_transmit(now, bytes) {
            if attacker.send(now, to, bytes) {
                return Some(to);
            }
            bytes.clear();
        }
        attacker.poll_forged(bytes)
    }

    fn heap_bytes(&self) -> usize {
        self.node.heap_bytes()
    }
}

impl DataNode for Member {
    fn send_data(&mut self, now: Time, to: u32, number: u32, len: u16) {
        self.node.send_data(now, to, number, len);
    }

    fn poll_delivery(&mut self) -> Option<Delivery> {
        self.node.poll_delivery()
    }
}
