//! Links as the medium of a graph.

use super::adjacency::Adjacency;
use super::engine::{Engine, Event, Medium, mix};
use super::node::{Destination, GraphNode};
use super::store::{Head, MAX_LEN};
use crate::error::Error;
use ringway_sansio::Time;

/// A packet arrives over a link.
const ARRIVE: u8 = 0;
/// A packet arrives over a link, and after that over the others of its sender that follow.
const BROADCAST: u8 = 1;

/// The links between nodes. A link that is cut takes packets and delivers none.
pub struct Links {
    pub(super) adjacency: Adjacency,
    /// By direction of a link: how many times it is cut; empty while no link was.
    cuts: Vec<u8>,
}

impl Links {
    pub(super) fn new(adjacency: Adjacency) -> Self {
        Links { adjacency, cuts: Vec::new() }
    }

    /// Cuts one direction of a link, or undoes one of its cuts.
    pub(super) fn set_cut(&mut self, link: u32, is_cut: bool) {
        if self.cuts.is_empty() {
            self.cuts = vec![0; self.adjacency.links()];
        }
        let cuts = &mut self.cuts[link as usize];
        *cuts = if is_cut { cuts.saturating_add(1) } else { cuts.saturating_sub(1) };
    }

    /// Returns whether a direction of a link is cut.
    #[inline]
    pub(super) fn is_cut(&self, link: u32) -> bool {
        self.cuts.get(link as usize).is_some_and(|cuts| *cuts > 0)
    }

    #[inline]
    fn arrive<N: GraphNode>(
        &mut self,
        engine: &mut Engine<N>,
        packet: u32,
        link: u32,
    ) -> Result<(), Error> {
        let to = *self.adjacency.link(link);
        if self.is_cut(link) {
            engine.totals.undelivered += 1;
            engine.store.release(packet);
            return Ok(());
        }
        engine.receive(self, to.peer, to.back, packet, link)
    }

    /// Handles the arrival of a broadcast over `first` and the links that are as long, and adds the event of
    /// the next longer ones.
    fn broadcast<N: GraphNode>(
        &mut self,
        engine: &mut Engine<N>,
        packet: u32,
        first: u32,
    ) -> Result<(), Error> {
        let (Head { sender, count, .. }, bits) = engine.load(packet);
        let [_, end] = self.adjacency.row(sender);
        let shortest = *self.adjacency.link(first);
        let has_cuts = !self.cuts.is_empty();
        for link in first..end {
            let to = *self.adjacency.link(link);
            if !to.is_as_long_as(&shortest) {
                let at = to.arrival(shortest.sent(engine.now));
                let event = Event::Medium { kind: BROADCAST, packet, index: link };
                engine.push(at, sender, count, event);
                return Ok(());
            }
            if to.loses(mix(bits, link)) {
                engine.totals.lost += 1;
                continue;
            }
            if has_cuts && self.is_cut(link) {
                engine.totals.undelivered += 1;
                continue;
            }
            engine.receive_copy(self, to.peer, to.back, bits, link)?;
        }
        engine.store.release(packet);
        Ok(())
    }

    /// Sends the packet in `scratch` over one link.
    fn send_over<N>(&mut self, engine: &mut Engine<N>, node: u32, link: u32) -> Result<(), Error> {
        let count = engine.count(node);
        let to = *self.adjacency.link(link);
        let at = match self.adjacency.has_queues() {
            false => Some(to.arrival(engine.now)),
            true => self.adjacency.queue(link, engine.now, engine.scratch.len()),
        };
        let Some(at) = at else {
            engine.totals.dropped += 1;
            return Ok(());
        };
        if to.loses(mix(engine.bits(node, count), link)) {
            engine.totals.lost += 1;
            return Ok(());
        }
        Self::launch(engine, node, count, at, ARRIVE, link)
    }

    /// Stores the packet in `scratch` and adds its event.
    #[inline]
    fn launch<N>(
        engine: &mut Engine<N>,
        node: u32,
        count: u64,
        at: Time,
        kind: u8,
        link: u32,
    ) -> Result<(), Error> {
        let packet = engine.store(node, count)?;
        engine.push(at, node, count, Event::Medium { kind, packet, index: link });
        Ok(())
    }
}

impl<N: GraphNode> Medium<N> for Links {
    fn send(&mut self, engine: &mut Engine<N>, node: u32, to: Destination) -> Result<(), Error> {
        let [start, end] = self.adjacency.row(node);
        let index = match to {
            Destination::Neighbour(index) => u32::from(index),
            Destination::Neighbours => 0,
        };
        if index >= end - start || engine.scratch.len() > MAX_LEN {
            engine.totals.refused += 1;
            return Ok(());
        }
        engine.count_sent(node);
        match to {
            Destination::Neighbour(_) => self.send_over(engine, node, start + index),
            // On links with queues it arrives at different times.
            Destination::Neighbours if self.adjacency.has_queues() => {
                (start..end).try_for_each(|link| self.send_over(engine, node, link))
            }
            Destination::Neighbours => {
                let count = engine.count(node);
                let at = self.adjacency.link(start).arrival(engine.now);
                Self::launch(engine, node, count, at, BROADCAST, start)
            }
        }
    }

    #[inline]
    fn handle(
        &mut self,
        engine: &mut Engine<N>,
        kind: u8,
        packet: u32,
        link: u32,
    ) -> Result<(), Error> {
        match kind {
            ARRIVE => self.arrive(engine, packet, link),
            _ => self.broadcast(engine, packet, link),
        }
    }

    fn memory(&self) -> usize {
        self.adjacency.memory() + self.cuts.capacity()
    }
}
