//! Routers of the mesh that keep records for each other: the machine of `ringway_dht` above that of `ringway_mesh`.

use super::data::{DataNode, Delivery};
use super::mesh::MeshNode;
use super::node::{Destination, GraphNode};
use ringway_dht::{Config, Dht, Draft, Event, LookUpId, RecordError, ScanId};
use ringway_mesh::crypto::StandIn;
use ringway_mesh::router::{Closest, Event as MeshEvent, Refusal};
use ringway_mesh::{Identity, NodeId, Ring, Router};
use ringway_sansio::time::sooner;
use ringway_sansio::{SplitMix, Time};

/// The number of the DHT among the applications of the mesh.
pub const APPLICATION: u16 = 1;

/// A router with its part of the DHT.
pub struct DhtNode {
    mesh: MeshNode,
    dht: Dht<StandIn>,
    random: SplitMix,
    /// What the DHT last knew: changes of the contacts, and the other end of the line.
    seen: Option<(u64, Option<NodeId>)>,
    /// Messages that the mesh has not sent, as its budget was used up.
    refused: u64,
}

impl DhtNode {
    /// A router with an empty part of the DHT. `identity` is that of the router.
    pub fn new(mesh: MeshNode, identity: &Identity, config: Config, now: Time) -> Self {
        let random = SplitMix::new(identity.id().raw() ^ now.as_nanos());
        let dht = Dht::new(config, identity.clone(), now);
        DhtNode { mesh, dht, random, seen: None, refused: 0 }
    }

    /// Returns the router.
    pub fn router(&self) -> &Router<StandIn, Ring> {
        self.mesh.router()
    }

    /// Returns its part of the DHT.
    pub fn dht(&self) -> &Dht<StandIn> {
        &self.dht
    }

    /// Returns how many messages the mesh has not sent, as its budget was used up.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Publishes a record of this router.
    ///
    /// # Errors
    /// As [`Dht::publish`].
    pub fn publish(&mut self, now: Time, draft: &Draft<'_>) -> Result<(), RecordError> {
        self.dht.publish(now, draft, &mut self.random)?;
        self.settle(now);
        Ok(())
    }

    /// Withdraws a record of this router.
    pub fn withdraw(&mut self, now: Time, kind: u8, name: &[u8]) {
        self.dht.withdraw(now, kind, name, &mut self.random);
        self.settle(now);
    }

    /// Looks a name up.
    pub fn look_up(&mut self, now: Time, kind: u8, name: &[u8]) -> Option<LookUpId> {
        let id = self.dht.look_up(now, kind, name, &mut self.random);
        self.settle(now);
        id
    }

    /// Looks for all records of a name.
    pub fn look_up_all(&mut self, now: Time, kind: u8, name: &[u8]) -> Option<LookUpId> {
        let id = self.dht.look_up_all(now, kind, name, &mut self.random);
        self.settle(now);
        id
    }

    /// Looks for all records of a kind.
    pub fn scan(&mut self, now: Time, kind: u8) -> Option<ScanId> {
        let id = self.dht.scan(now, kind, &mut self.random);
        self.settle(now);
        id
    }

    /// Returns what has happened in the DHT.
    pub fn poll_dht(&mut self) -> Option<Event> {
        self.dht.poll_event()
    }

    /// Carries what the mesh has brought to the DHT, and what that sends to the mesh.
    fn settle(&mut self, now: Time) {
        loop {
            self.update_neighbours(now);
            while let Some(event) = self.mesh.poll_event() {
                if let MeshEvent::Closest { origin, application: APPLICATION, octets, .. } = event {
                    self.dht.handle(now, origin, &octets, &mut self.random);
                }
            }
            let messages = self.dht.take_messages();
            if messages.is_empty() {
                break;
            }
            for message in messages {
                let closest = Closest {
                    key: message.to,
                    application: APPLICATION,
                    octets: &message.octets,
                    by_another: message.by_another,
                };
                let sent = self.mesh.send_closest(now, &closest);
                self.refused += u64::from(sent == Err(Refusal::Budget));
            }
        }
    }

    fn update_neighbours(&mut self, now: Time) {
        let overlay = self.mesh.router().overlay();
        let known = (overlay.contacts().changes(), overlay.partner());
        if self.seen.replace(known) != Some(known) {
            let near = overlay.contacts().near();
            // Half of what it sends is for those beside it, and half for anybody.
            let own = self.dht.id().raw();
            let far = (1..=4).map(|fifth| NodeId::new(own.wrapping_add(u64::MAX / 5 * fifth)));
            let ways = near.iter().copied().chain(far).filter_map(|id| overlay.first_step(id));
            let (count, hops) = ways.fold((0, 0), |(count, hops), (route, ..)| {
                (count + 1, hops + u32::from(route.hops()))
            });
            let mean = hops.div_ceil(u32::max(count, 1));
            self.dht.set_mean_hops(u16::try_from(mean).unwrap_or(u16::MAX));
            self.dht.update_neighbours(now, near.into_iter(), known.1, &mut self.random);
        }
    }
}

impl GraphNode for DhtNode {
    fn handle_packet(&mut self, now: Time, from: u16, bytes: &mut [u8]) {
        self.mesh.handle_packet(now, from, bytes);
        self.settle(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.mesh.poll_timeout().is_some_and(|due| due <= now) {
            self.mesh.handle_timeout(now);
        }
        if self.dht.poll_timeout().is_some_and(|due| due <= now) {
            self.dht.handle_timeout(now, &mut self.random);
        }
        self.settle(now);
    }

    fn poll_timeout(&self) -> Option<Time> {
        sooner(self.mesh.poll_timeout(), self.dht.poll_timeout())
    }

    fn poll_transmit(&mut self, now: Time, bytes: &mut Vec<u8>) -> Option<Destination> {
        self.mesh.poll_transmit(now, bytes)
    }

    fn heap_bytes(&self) -> usize {
        self.mesh.heap_bytes()
    }
}

impl DataNode for DhtNode {
    fn send_data(&mut self, now: Time, to: u32, number: u32, len: u16) {
        self.mesh.send_data(now, to, number, len);
        self.settle(now);
    }

    fn poll_delivery(&mut self) -> Option<Delivery> {
        self.mesh.poll_delivery()
    }
}
