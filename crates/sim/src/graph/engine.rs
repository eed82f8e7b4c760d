//! What all worlds of graph nodes have in common: nodes with their timers, clocks and counters, pending events,
//! and packets in flight. What carries the packets is a [`Medium`].

use super::clock::Clocks;
use super::node::{Destination, GraphNode};
use super::store::{Head, MAX_PACKETS, NUMBER_BITS, Store};
use crate::error::{Budget, Error};
use crate::events::{EventQueue, Order};
use crate::node::NEVER;
use ringway_sansio::{Random, SplitMix, Time};

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The timer of a node is due.
    Timer { node: u32 },
    /// An event of the medium, of at most three kinds.
    Medium { kind: u8, packet: u32, index: u32 },
}

/// A pending event in one word: its kind, a packet, and a node or index.
#[derive(Clone, Copy)]
pub(super) struct PackedEvent(u64);

const KIND_SHIFT: u32 = 32 + NUMBER_BITS;

impl Event {
    #[inline]
    fn pack(self) -> PackedEvent {
        let (kind, packet, index) = match self {
            Event::Timer { node } => (0, 0, node),
            Event::Medium { kind, packet, index } => (1 + u64::from(kind), packet, index),
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
            kind => Event::Medium { kind: kind as u8 - 1, packet, index },
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
    /// Packets that would have arrived over a cut link or at a node that did not run.
    pub undelivered: u64,
    /// Packets dropped because they would have waited too long for a link.
    pub dropped: u64,
    /// Packets that could not be sent, since they were too long or had no such neighbour.
    pub refused: u64,
    /// A hash of the time, link, sender and length of every arrival, which is the sum of their hashes.
    pub trace: u64,
}

/// The packets of one node, in all its lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes of the packets sent.
    pub sent_bytes: u64,
    /// Bytes of the packets received.
    pub received_bytes: u64,
    /// Packets sent, modulo 2^32; a broadcast is one.
    pub sent: u32,
    /// Packets received, modulo 2^32.
    pub received: u32,
}

/// A node and its events.
pub(super) struct Slot<N> {
    /// `None` while it does not run.
    node: Option<N>,
    /// The earliest pending timer, [`NEVER`] if there is none.
    timer: u64,
    /// Number of events that the node has requested.
    requested: u64,
    counters: Counters,
}

impl<N> Slot<N> {
    /// Counts a packet and returns the node that receives it.
    #[inline]
    fn receiver(&mut self, len: u16) -> Option<&mut N> {
        let node = self.node.as_mut()?;
        self.counters.received = self.counters.received.wrapping_add(1);
        self.counters.received_bytes += u64::from(len);
        Some(node)
    }
}

/// What carries packets from node to node.
pub trait Medium<N>: Sized {
    /// Sends the packet in `engine.scratch`.
    fn send(&mut self, engine: &mut Engine<N>, node: u32, to: Destination) -> Result<(), Error>;

    /// Handles an event of the medium.
    fn handle(
        &mut self,
        engine: &mut Engine<N>,
        kind: u8,
        packet: u32,
        index: u32,
    ) -> Result<(), Error>;

    /// Returns the allocated bytes.
    fn memory(&self) -> usize;
}

/// Nodes, events and packets.
pub struct Engine<N> {
    seed: u64,
    pub(super) now: Time,
    budget: Budget,
    slots: Vec<Slot<N>>,
    clocks: Clocks,
    events: EventQueue<PackedEvent>,
    pub(super) store: Store,
    /// The buffer that nodes write packets into.
    pub(super) scratch: Vec<u8>,
    /// A broadcast packet, and its copy for one of its receivers.
    original: Vec<u8>,
    copy: Vec<u8>,
    pub(super) totals: Totals,
}

impl<N> Engine<N> {
    /// Creates nodes that do not run.
    pub(super) fn new(nodes: u32, seed: u64) -> Self {
        let slot =
            |_| Slot { node: None, timer: NEVER, requested: 0, counters: Counters::default() };
        Engine {
            seed: SplitMix::new(seed).next_u64(),
            now: Time::ZERO,
            budget: Budget::default(),
            slots: (0..nodes).map(slot).collect(),
            clocks: Clocks::default(),
            events: EventQueue::new(),
            store: Store::new(),
            scratch: Vec::new(),
            original: Vec::new(),
            copy: Vec::new(),
            totals: Totals::default(),
        }
    }

    pub(super) fn set_budget(&mut self, budget: Budget) {
        self.budget = budget;
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn pending(&self) -> usize {
        self.events.len()
    }

    /// Returns a node, if it runs.
    #[inline]
    pub(super) fn node(&self, node: u32) -> Option<&N> {
        self.slots.get(node as usize)?.node.as_ref()
    }

    pub(super) fn node_mut(&mut self, node: u32) -> Option<&mut N> {
        self.slots.get_mut(node as usize)?.node.as_mut()
    }

    pub(super) fn counters(&self, node: u32) -> Option<&Counters> {
        Some(&self.slots.get(node as usize)?.counters)
    }

    /// Puts a node into its slot, and returns the one that was there. It has no timer yet.
    pub(super) fn replace(&mut self, node: u32, value: Option<N>) -> Result<Option<N>, Error> {
        let unknown = Error::Unknown { what: "node", index: node };
        let slot = self.slots.get_mut(node as usize).ok_or(unknown)?;
        slot.timer = NEVER;
        Ok(core::mem::replace(&mut slot.node, value))
    }

    /// Returns the time that the clock of a node shows.
    #[inline]
    pub(super) fn local(&self, node: u32) -> Time {
        self.clocks.local(node, self.now)
    }

    /// Removes the next event, if it is due at `end`, and advances time to it.
    #[inline]
    pub(super) fn next_event(&mut self, end: Time) -> Result<Option<Event>, Error> {
        let Some((at, event)) = self.events.pop(end) else {
            self.now = self.now.max(end);
            return Ok(None);
        };
        self.now = at;
        self.totals.events += 1;
        if self.totals.events > self.budget.events {
            return Err(self.over_budget());
        }
        Ok(Some(event.unpack()))
    }

    /// Adds an event; `node` and `count` give its order among those of the same time.
    #[inline]
    pub(super) fn push(&mut self, at: Time, node: u32, count: u64, event: Event) {
        self.events.push(at, Order::new(node, count), event.pack());
    }

    /// Returns the number of the next event that a node requests.
    #[inline]
    pub(super) fn count(&mut self, node: u32) -> u64 {
        let slot = &mut self.slots[node as usize];
        slot.requested += 1;
        slot.requested
    }

    /// Counts the packet in `scratch` as sent by a node.
    #[inline]
    pub(super) fn count_sent(&mut self, node: u32) {
        let bytes = self.scratch.len() as u64;
        self.totals.sent += 1;
        self.totals.sent_bytes += bytes;
        let counters = &mut self.slots[node as usize].counters;
        counters.sent = counters.sent.wrapping_add(1);
        counters.sent_bytes += bytes;
    }

    /// Stores the packet in `scratch`, the `count`-th event of `node`, and returns its number.
    #[inline]
    pub(super) fn store(&mut self, node: u32, count: u64) -> Result<u32, Error> {
        self.store.insert(node, count, &self.scratch).ok_or(Error::TooMany {
            what: "packets of one size at a time",
            max: MAX_PACKETS as u64,
        })
    }

    /// Returns the random bits of a packet.
    #[inline]
    pub(super) fn bits(&self, sender: u32, count: u64) -> u64 {
        mix(self.seed ^ count, sender)
    }

    #[cold]
    fn over_budget(&self) -> Error {
        let busiest = (0..).zip(&self.slots).max_by_key(|(_, slot)| slot.requested);
        let (node, took) = busiest.map_or((0, 0), |(node, slot)| (node, slot.requested));
        Error::Budget { max: self.budget.events, at: self.now, node: node.to_string(), took }
    }
}

impl<N: GraphNode> Engine<N> {
    /// Sets the clock of a node. While the node runs, it is not put back.
    pub(super) fn set_clock(
        &mut self,
        node: u32,
        shows: Time,
        drift_ppm: i32,
    ) -> Result<(), Error> {
        let is_running = self.node(node).is_some();
        let shows = if is_running { shows.max(self.local(node)) } else { shows };
        let value = self.replace(node, None)?;
        self.clocks.set(self.slots.len(), node, self.now, shows, drift_ppm);
        self.replace(node, value)?;
        self.set_timer(node);
        Ok(())
    }

    /// Passes a packet that is received once to a node, and releases it. `link` is the number of the link, or
    /// of the receiver.
    #[inline]
    pub(super) fn receive(
        &mut self,
        medium: &mut impl Medium<N>,
        node: u32,
        from: u16,
        packet: u32,
        link: u32,
    ) -> Result<(), Error> {
        let Head { sender, len, count } = self.store.head(packet);
        let now = self.local(node);
        if let Some(receiver) = self.slots[node as usize].receiver(len) {
            receiver.handle_packet(now, from, self.store.bytes_mut(packet));
            self.count_hop(len, self.bits(sender, count), link);
            self.store.release(packet);
            self.pump_at(medium, node, now)
        } else {
            self.totals.undelivered += 1;
            self.store.release(packet);
            Ok(())
        }
    }

    /// Prepares a packet for several calls of [`receive_copy`](Self::receive_copy). Returns what is known of
    /// it, and its random bits.
    #[inline]
    pub(super) fn load(&mut self, packet: u32) -> (Head, u64) {
        self.original.clear();
        self.original.extend_from_slice(self.store.bytes_mut(packet));
        let head = self.store.head(packet);
        (head, self.bits(head.sender, head.count))
    }

    /// Passes a copy of the packet that was loaded to one of its receivers, as [`receive`](Self::receive)
    /// does.
    #[inline]
    pub(super) fn receive_copy(
        &mut self,
        medium: &mut impl Medium<N>,
        node: u32,
        from: u16,
        bits: u64,
        link: u32,
    ) -> Result<(), Error> {
        let now = self.local(node);
        let len = self.original.len() as u16;
        if let Some(receiver) = self.slots[node as usize].receiver(len) {
            self.copy.clear();
            self.copy.extend_from_slice(&self.original);
            receiver.handle_packet(now, from, &mut self.copy);
            self.count_hop(len, bits, link);
            self.pump_at(medium, node, now)
        } else {
            self.totals.undelivered += 1;
            Ok(())
        }
    }

    /// Counts an arrival of a packet with the random bits `bits`.
    #[inline]
    fn count_hop(&mut self, len: u16, bits: u64, link: u32) {
        self.totals.hops += 1;
        self.totals.hop_bytes += u64::from(len);
        let at = self.now.as_nanos().rotate_left(24) ^ u64::from(len) << 48;
        self.totals.trace = self.totals.trace.wrapping_add(mix(at ^ bits, link));
    }

    /// Handles the event of a node's timer.
    pub(super) fn timer(&mut self, medium: &mut impl Medium<N>, node: u32) -> Result<(), Error> {
        let slot = &mut self.slots[node as usize];
        if slot.timer != self.now.as_nanos() {
            // It was set for another time since.
            return Ok(());
        }
        slot.timer = NEVER;
        self.pump(medium, node)
    }

    /// Calls the timeouts of a node that are due, sends its packets, and sets its timer.
    #[inline]
    pub(super) fn pump(&mut self, medium: &mut impl Medium<N>, node: u32) -> Result<(), Error> {
        let now = self.local(node);
        self.pump_at(medium, node, now)
    }

    /// Does so for a node whose clock shows `now`.
    #[inline]
    fn pump_at(&mut self, medium: &mut impl Medium<N>, node: u32, now: Time) -> Result<(), Error> {
        let mut timeouts = 0;
        self.transmit(medium, node, now)?;
        loop {
            let slot = &mut self.slots[node as usize];
            let Some(called) = &mut slot.node else { break };
            match called.poll_timeout() {
                Some(at) if at <= now => called.handle_timeout(now),
                Some(at) if self.clocks.time_of(node, at).as_nanos() < slot.timer => {
                    break self.set_timer(node);
                }
                _ => break,
            }
            self.transmit(medium, node, now)?;
            timeouts += 1;
            if timeouts > self.budget.per_instant {
                let (node, max) = (node.to_string(), self.budget.per_instant);
                return Err(Error::Spin { node, max, at: self.now });
            }
        }
        Ok(())
    }

    /// Adds the event of a node's timer, unless there is one that is not later.
    pub(super) fn set_timer(&mut self, node: u32) {
        let slot = &mut self.slots[node as usize];
        let Some(at) = slot.node.as_ref().and_then(GraphNode::poll_timeout) else { return };
        let at = self.clocks.time_of(node, at).max(self.now);
        if at.as_nanos() < slot.timer {
            slot.timer = at.as_nanos();
            let count = self.count(node);
            self.push(at, node, count, Event::Timer { node });
        }
    }

    /// Sends the packets of a node, whose clock shows `now`.
    #[inline]
    fn transmit(&mut self, medium: &mut impl Medium<N>, node: u32, now: Time) -> Result<(), Error> {
        let mut packets = 0;
        loop {
            self.scratch.clear();
            let Some(sender) = &mut self.slots[node as usize].node else { return Ok(()) };
            let Some(to) = sender.poll_transmit(now, &mut self.scratch) else { return Ok(()) };
            packets += 1;
            if packets > self.budget.burst {
                let (node, max) = (node.to_string(), self.budget.burst);
                return Err(Error::Flood { node, max, at: self.now });
            }
            medium.send(self, node, to)?;
        }
    }

    /// Returns the allocated bytes of a node: its slot and what it has allocated.
    pub(super) fn memory_of(&self, node: u32) -> usize {
        size_of::<Slot<N>>() + self.node(node).map_or(0, GraphNode::heap_bytes)
    }

    /// Returns the allocated bytes: of slots, of nodes, of events, and of packets.
    pub(super) fn memory(&self) -> [usize; 4] {
        let heap = self.slots.iter().filter_map(|slot| slot.node.as_ref());
        [
            self.slots.capacity() * size_of::<Slot<N>>() + self.clocks.memory(),
            heap.map(GraphNode::heap_bytes).sum(),
            self.events.memory(),
            self.store.memory(),
        ]
    }
}

/// Returns a hash of two numbers.
#[inline]
pub(super) fn mix(bits: u64, number: u32) -> u64 {
    SplitMix::new(bits ^ u64::from(number).wrapping_mul(0xd6e8_feb8_6659_fd93)).next_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_unpacked_as_they_were() {
        let (packet, index) = ((1 << NUMBER_BITS) - 1, u32::MAX);
        for event in [
            Event::Timer { node: u32::MAX },
            Event::Medium { kind: 0, packet, index },
            Event::Medium { kind: 2, packet, index },
            Event::Medium { kind: 1, packet: 0, index: 7 },
        ] {
            assert_eq!(event.pack().unpack(), event);
        }
    }
}
