//! A graph in virtual time.

use super::adjacency::Adjacency;
use super::node::{Destination, GraphNode};
use super::store::{Head, MAX_LEN, MAX_PACKETS, NUMBER_BITS, Store};
use crate::error::{Budget, Error};
use crate::events::{EventQueue, Order};
use crate::node::NEVER;
use ringway_sansio::{Random, SplitMix, Time};

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The timer of a node is due.
    Timer { node: u32 },
    /// A packet arrives over a link.
    Arrive { packet: u32, link: u32 },
    /// A packet arrives over a link, and after that over the others of its sender that follow.
    Broadcast { packet: u32, link: u32 },
}

/// A pending event in one word: its kind, a packet, and a node or link.
#[derive(Clone, Copy)]
struct PackedEvent(u64);

const KIND_SHIFT: u32 = 32 + NUMBER_BITS;

impl Event {
    #[inline]
    fn pack(self) -> PackedEvent {
        let (kind, packet, index) = match self {
            Event::Timer { node } => (0, 0, node),
            Event::Arrive { packet, link } => (1, packet, link),
            Event::Broadcast { packet, link } => (2, packet, link),
        };
        PackedEvent(kind << KIND_SHIFT | u64::from(packet) << 32 | u64::from(index))
    }
}

impl PackedEvent {
    #[inline]
    fn unpack(self) -> Event {
        let (packet, index) = ((self.0 >> 32) as u32 & ((1 << NUMBER_BITS) - 1), self.0 as u32);
        match self.0 >> KIND_SHIFT {
            0 => Event::Timer { node: index },
            1 => Event::Arrive { packet, link: index },
            _ => Event::Broadcast { packet, link: index },
        }
    }
}

/// What has happened in a graph so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Events: timers, arrivals, and broadcasts that arrive at neighbours of one delay.
    pub events: u64,
    /// Packets sent; a broadcast is one.
    pub sent: u64,
    /// Bytes of the packets sent.
    pub sent_bytes: u64,
    /// Packets that arrived at a neighbour; a broadcast is one at each.
    pub hops: u64,
    /// Bytes of the packets that arrived.
    pub hop_bytes: u64,
    /// Packets lost on a link.
    pub lost: u64,
    /// Packets dropped because they would have waited too long for a link.
    pub dropped: u64,
    /// Packets that could not be sent, since they were longer than [`MAX_LEN`] or had no such neighbour.
    pub refused: u64,
    /// A hash of the time, link, sender and length of every arrival, which is the sum of their hashes.
    pub trace: u64,
}

/// The memory of a graph, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Nodes without what they have allocated, and with their timers.
    pub nodes: usize,
    /// What nodes have allocated.
    pub heap: usize,
    /// Links and their queues.
    pub links: usize,
    /// Pending events.
    pub events: usize,
    /// Packets in flight, and slots for as many as there were.
    pub packets: usize,
}

/// A node and its events.
struct Slot<N> {
    node: N,
    /// The earliest pending timer, [`NEVER`] if there is none.
    timer: u64,
    /// Number of events that the node has requested.
    requested: u64,
}

/// Nodes, links and packets in virtual time.
///
/// A run depends only on the links, the nodes and the seed. Whether a packet is lost on a link is a hash of
/// the seed, the link, the sender and the number of its packet: it does not depend on what other nodes do.
pub struct Graph<N> {
    seed: u64,
    now: Time,
    budget: Budget,
    adjacency: Adjacency,
    slots: Vec<Slot<N>>,
    events: EventQueue<PackedEvent>,
    store: Store,
    /// The buffer that nodes write packets into.
    scratch: Vec<u8>,
    /// A broadcast packet for one of its receivers.
    copy: Vec<u8>,
    totals: Totals,
}

impl<N: GraphNode> Graph<N> {
    /// Creates a graph at time zero. `node` creates each node from its number.
    pub fn new(adjacency: Adjacency, seed: u64, node: impl FnMut(u32) -> N) -> Self {
        let slot = |node| Slot { node, timer: NEVER, requested: 0 };
        let slots = (0..adjacency.nodes()).map(node).map(slot).collect();
        let mut graph = Graph {
            seed: SplitMix::new(seed).next_u64(),
            now: Time::ZERO,
            budget: Budget::default(),
            adjacency,
            slots,
            events: EventQueue::new(),
            store: Store::new(),
            scratch: Vec::new(),
            copy: Vec::new(),
            totals: Totals::default(),
        };
        (0..graph.adjacency.nodes()).for_each(|node| graph.set_timer(node));
        graph
    }

    /// Sets the limits of the run. `per_instant` limits the timeouts of one node that follow each other in one
    /// instant.
    pub fn set_budget(&mut self, budget: Budget) {
        self.budget = budget;
    }

    /// Returns the present time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the links.
    pub fn adjacency(&self) -> &Adjacency {
        &self.adjacency
    }

    /// Returns the nodes in the order of their numbers.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = &N> + '_ {
        self.slots.iter().map(|slot| &slot.node)
    }

    /// Returns what has happened so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Returns the number of packets in flight; a broadcast is one until it has arrived everywhere.
    pub fn in_flight(&self) -> u64 {
        self.store.in_use()
    }

    /// Returns the allocated memory.
    pub fn memory(&self) -> Memory {
        Memory {
            nodes: self.slots.capacity() * size_of::<Slot<N>>(),
            heap: self.nodes().map(GraphNode::heap_bytes).sum(),
            links: self.adjacency.memory(),
            events: self.events.memory(),
            packets: self.store.memory(),
        }
    }

    /// Advances time to `end`: every event due by then is processed.
    pub fn run_until(&mut self, end: Time) -> Result<(), Error> {
        while let Some((at, event)) = self.events.pop(end) {
            self.now = at;
            self.totals.events += 1;
            if self.totals.events > self.budget.events {
                return Err(self.over_budget());
            }
            match event.unpack() {
                Event::Timer { node } => self.timer(node)?,
                Event::Arrive { packet, link } => self.arrive(packet, link)?,
                Event::Broadcast { packet, link } => self.broadcast(packet, link)?,
            }
        }
        self.now = self.now.max(end);
        Ok(())
    }

    fn timer(&mut self, node: u32) -> Result<(), Error> {
        let slot = &mut self.slots[node as usize];
        if slot.timer != self.now.as_nanos() {
            // It was set for another time since.
            return Ok(());
        }
        slot.timer = NEVER;
        self.pump(node)
    }

    #[inline]
    fn arrive(&mut self, packet: u32, link: u32) -> Result<(), Error> {
        let Head { sender, len, count } = self.store.head(packet);
        let to = *self.adjacency.link(link);
        self.count_hop(link, sender, len, count);
        let node = &mut self.slots[to.peer as usize].node;
        node.handle_packet(self.now, to.back, self.store.bytes_mut(packet));
        self.store.release(packet);
        self.pump(to.peer)
    }

    /// Handles the arrival of a broadcast over `first` and the links that are as long, and adds the event of
    /// the next longer ones.
    fn broadcast(&mut self, packet: u32, first: u32) -> Result<(), Error> {
        let Head { sender, len, count } = self.store.head(packet);
        let [_, end] = self.adjacency.row(sender);
        let shortest = *self.adjacency.link(first);
        let bits = self.bits(sender, count);
        for link in first..end {
            let to = *self.adjacency.link(link);
            if !to.is_as_long_as(&shortest) {
                let sent = shortest.sent(self.now);
                let event = Event::Broadcast { packet, link };
                self.events.push(to.arrival(sent), Order::new(sender, count), event.pack());
                return Ok(());
            }
            if to.loses(mix(bits, link)) {
                self.totals.lost += 1;
                continue;
            }
            self.count_hop(link, sender, len, count);
            self.copy.clear();
            self.copy.extend_from_slice(self.store.bytes_mut(packet));
            self.slots[to.peer as usize].node.handle_packet(self.now, to.back, &mut self.copy);
            self.pump(to.peer)?;
        }
        self.store.release(packet);
        Ok(())
    }

    #[inline]
    fn count_hop(&mut self, link: u32, sender: u32, len: u16, count: u64) {
        self.totals.hops += 1;
        self.totals.hop_bytes += u64::from(len);
        let at = self.now.as_nanos().rotate_left(24) ^ u64::from(len) << 48;
        let arrival = mix(at ^ self.bits(sender, count), link);
        self.totals.trace = self.totals.trace.wrapping_add(arrival);
    }

    /// Calls the timeouts of a node that are due, sends its packets, and sets its timer.
    #[inline]
    fn pump(&mut self, node: u32) -> Result<(), Error> {
        let mut timeouts = 0;
        self.transmit(node)?;
        loop {
            let slot = &mut self.slots[node as usize];
            match slot.node.poll_timeout() {
                Some(at) if at <= self.now => slot.node.handle_timeout(self.now),
                Some(at) if at.as_nanos() < slot.timer => break self.set_timer(node),
                _ => break,
            }
            self.transmit(node)?;
            timeouts += 1;
            if timeouts > self.budget.per_instant {
                let (node, max) = (node.to_string(), self.budget.per_instant);
                return Err(Error::Spin { node, max, at: self.now });
            }
        }
        Ok(())
    }

    /// Adds the event of a node's timer, unless there is one that is not later.
    fn set_timer(&mut self, node: u32) {
        let slot = &mut self.slots[node as usize];
        let Some(at) = slot.node.poll_timeout() else { return };
        let at = at.max(self.now);
        if at.as_nanos() < slot.timer {
            slot.timer = at.as_nanos();
            let order = Order::new(node, self.count(node));
            self.events.push(at, order, Event::Timer { node }.pack());
        }
    }

    /// Sends the packets of a node.
    #[inline]
    fn transmit(&mut self, node: u32) -> Result<(), Error> {
        let mut packets = 0;
        loop {
            let slot = &mut self.slots[node as usize];
            self.scratch.clear();
            let Some(destination) = slot.node.poll_transmit(self.now, &mut self.scratch) else {
                return Ok(());
            };
            packets += 1;
            if packets > self.budget.burst {
                let (node, max) = (node.to_string(), self.budget.burst);
                return Err(Error::Flood { node, max, at: self.now });
            }
            self.send(node, destination)?;
        }
    }

    /// Sends the packet in `scratch`.
    fn send(&mut self, node: u32, destination: Destination) -> Result<(), Error> {
        let [start, end] = self.adjacency.row(node);
        let index = match destination {
            Destination::Neighbour(index) => u32::from(index),
            Destination::Neighbours => 0,
        };
        if index >= end - start || self.scratch.len() > MAX_LEN {
            self.totals.refused += 1;
            return Ok(());
        }
        self.totals.sent += 1;
        self.totals.sent_bytes += self.scratch.len() as u64;
        match destination {
            Destination::Neighbour(_) => self.send_over(node, start + index),
            // On links with queues it arrives at different times.
            Destination::Neighbours if self.adjacency.has_queues() => {
                (start..end).try_for_each(|link| self.send_over(node, link))
            }
            Destination::Neighbours => {
                let count = self.count(node);
                let at = self.adjacency.link(start).arrival(self.now);
                self.launch(node, count, at, |packet| Event::Broadcast { packet, link: start })
            }
        }
    }

    /// Sends the packet in `scratch` over one link.
    fn send_over(&mut self, node: u32, link: u32) -> Result<(), Error> {
        let count = self.count(node);
        let to = *self.adjacency.link(link);
        let at = match self.adjacency.has_queues() {
            false => Some(to.arrival(self.now)),
            true => self.adjacency.queue(link, self.now, self.scratch.len()),
        };
        let Some(at) = at else {
            self.totals.dropped += 1;
            return Ok(());
        };
        if to.loses(mix(self.bits(node, count), link)) {
            self.totals.lost += 1;
            return Ok(());
        }
        self.launch(node, count, at, |packet| Event::Arrive { packet, link })
    }

    /// Returns the number of the next event that a node requests.
    #[inline]
    fn count(&mut self, node: u32) -> u64 {
        let slot = &mut self.slots[node as usize];
        slot.requested += 1;
        slot.requested
    }

    /// Stores the packet in `scratch` and adds its event.
    #[inline]
    fn launch(
        &mut self,
        node: u32,
        count: u64,
        at: Time,
        event: impl FnOnce(u32) -> Event,
    ) -> Result<(), Error> {
        let Some(packet) = self.store.insert(node, count, &self.scratch) else {
            let max = MAX_PACKETS as u64;
            return Err(Error::TooMany { what: "packets of one size at a time", max });
        };
        self.events.push(at, Order::new(node, count), event(packet).pack());
        Ok(())
    }

    /// Returns the random bits of a packet.
    #[inline]
    fn bits(&self, sender: u32, count: u64) -> u64 {
        mix(self.seed ^ count, sender)
    }

    #[cold]
    fn over_budget(&self) -> Error {
        let busiest = (0..).zip(&self.slots).max_by_key(|(_, slot)| slot.requested);
        let (node, took) = busiest.map_or((0, 0), |(node, slot)| (node, slot.requested));
        Error::Budget { max: self.budget.events, at: self.now, node: node.to_string(), took }
    }
}

/// Returns a hash of two numbers.
#[inline]
fn mix(bits: u64, number: u32) -> u64 {
    SplitMix::new(bits ^ u64::from(number).wrapping_mul(0xd6e8_feb8_6659_fd93)).next_u64()
}

impl<N> std::fmt::Debug for Graph<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Graph")
            .field("now", &self.now)
            .field("nodes", &self.slots.len())
            .field("pending", &self.events.len())
            .field("totals", &self.totals)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_unpacked_as_they_were() {
        let (packet, link) = ((1 << NUMBER_BITS) - 1, u32::MAX);
        for event in [
            Event::Timer { node: u32::MAX },
            Event::Arrive { packet, link },
            Event::Arrive { packet: 0, link: 7 },
            Event::Broadcast { packet, link },
        ] {
            assert_eq!(event.pack().unpack(), event);
        }
    }
}
