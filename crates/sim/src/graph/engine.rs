//! What all worlds of graph nodes have in common: nodes with their timers, clocks and counters. What carries the
//! packets is a [`Medium`].
//!
//! An [`Engine`] has the nodes of one shard, with numbers that follow each other. Nodes of different shards have
//! nothing in common, so that shards may run on threads of their own.

use super::clock::Clocks;
use super::node::{Destination, GraphNode};
use crate::error::{Budget, Error};
use crate::node::NEVER;
use core::ops::Range;
use ringway_sansio::{Random, SplitMix, Time};

/// What has happened in a graph so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Events: timers that were due, arrivals, and broadcasts that arrive at neighbours of one delay.
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

impl Totals {
    /// Returns the sum of both.
    pub(super) fn and(self, other: Totals) -> Totals {
        Totals {
            events: self.events + other.events,
            sent: self.sent + other.sent,
            sent_bytes: self.sent_bytes + other.sent_bytes,
            hops: self.hops + other.hops,
            hop_bytes: self.hop_bytes + other.hop_bytes,
            lost: self.lost + other.lost,
            undelivered: self.undelivered + other.undelivered,
            dropped: self.dropped + other.dropped,
            refused: self.refused + other.refused,
            trace: self.trace.wrapping_add(other.trace),
        }
    }
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
struct Slot<N> {
    /// `None` while it does not run.
    node: Option<N>,
    /// The earliest pending timer, [`NEVER`] if there is none.
    timer: u64,
    /// Number of events that the node has requested.
    requested: u64,
    counters: Counters,
}

/// What carries packets from node to node.
pub trait Medium<N>: Sized {
    /// Advances time to `end`: every event due by then is processed.
    fn run(&mut self, engines: &mut [Engine<N>], end: Time) -> Result<(), Error>;

    /// Sends the packets of a node of the engine with an index, and sets its timer.
    fn pump(&mut self, engines: &mut [Engine<N>], index: usize, node: u32) -> Result<(), Error>;

    /// Adds the event of a timer of a node.
    fn add_timer(&mut self, index: usize, node: u32, timer: Timer);

    /// Returns the number of packets in flight.
    fn in_flight(&self) -> u64;

    /// Returns the allocated bytes: of links or the like, of events, and of packets.
    fn memory(&self) -> [usize; 3];
}

/// The part of a medium that one engine uses.
pub(super) trait Carrier<N> {
    /// Sends the packet in `engine.scratch`.
    fn send(&mut self, engine: &mut Engine<N>, node: u32, to: Destination) -> Result<(), Error>;

    /// Adds the event of a timer of a node.
    fn add_timer(&mut self, node: u32, timer: Timer);
}

/// The timer of a node that was set.
#[derive(Clone, Copy, Debug)]
pub struct Timer {
    pub(super) at: Time,
    /// The number of the event among those that the node requested.
    pub(super) count: u64,
}

/// A packet that arrives at a node.
pub(super) struct Arrival<'a> {
    /// The index of its sender among the neighbours of the node.
    pub(super) from: u16,
    pub(super) bytes: &'a mut [u8],
    /// The random bits of the packet.
    pub(super) bits: u64,
    /// The number of its link, or of the receiver.
    pub(super) link: u32,
}

/// The nodes of a shard.
pub struct Engine<N> {
    seed: u64,
    pub(super) now: Time,
    budget: Budget,
    /// The number of the first node.
    first: u32,
    slots: Vec<Slot<N>>,
    clocks: Clocks,
    /// The buffer that nodes write packets into.
    pub(super) scratch: Vec<u8>,
    pub(super) totals: Totals,
}

impl<N> core::fmt::Debug for Engine<N> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Engine")
            .field("now", &self.now)
            .field("nodes", &self.nodes())
            .field("totals", &self.totals)
            .finish_non_exhaustive()
    }
}

impl<N> Engine<N> {
    /// Creates nodes that do not run.
    pub(super) fn new(nodes: Range<u32>, seed: u64) -> Self {
        let slot =
            |_| Slot { node: None, timer: NEVER, requested: 0, counters: Counters::default() };
        Engine {
            seed: SplitMix::new(seed).next_u64(),
            now: Time::ZERO,
            budget: Budget::default(),
            first: nodes.start,
            slots: nodes.map(slot).collect(),
            clocks: Clocks::default(),
            scratch: Vec::new(),
            totals: Totals::default(),
        }
    }

    pub(super) fn set_budget(&mut self, budget: Budget) {
        self.budget = budget;
    }

    /// Sets the time of the events that follow. Between two nodes it may go back within a window.
    #[inline]
    pub(super) fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    pub(super) fn budget(&self) -> Budget {
        self.budget
    }

    /// Returns the numbers of the nodes.
    #[inline]
    pub(super) fn nodes(&self) -> Range<u32> {
        self.first..self.first + self.slots.len() as u32
    }

    /// Returns the position of a node; one that is not here has none.
    #[inline]
    fn position(&self, node: u32) -> usize {
        node.wrapping_sub(self.first) as usize
    }

    #[inline]
    fn slot(&mut self, node: u32) -> &mut Slot<N> {
        let position = self.position(node);
        &mut self.slots[position]
    }

    /// Returns a node, if it runs.
    #[inline]
    pub(super) fn node(&self, node: u32) -> Option<&N> {
        self.slots.get(self.position(node))?.node.as_ref()
    }

    pub(super) fn node_mut(&mut self, node: u32) -> Option<&mut N> {
        let position = self.position(node);
        self.slots.get_mut(position)?.node.as_mut()
    }

    pub(super) fn counters(&self, node: u32) -> Option<&Counters> {
        Some(&self.slots.get(self.position(node))?.counters)
    }

    /// Puts a node into its slot, and returns the one that was there. It has no timer yet.
    pub(super) fn replace(&mut self, node: u32, value: Option<N>) -> Option<N> {
        let slot = self.slot(node);
        slot.timer = NEVER;
        core::mem::replace(&mut slot.node, value)
    }

    /// Returns the time that the clock of a node shows.
    #[inline]
    pub(super) fn local(&self, node: u32) -> Time {
        self.clocks.local(node - self.first, self.now)
    }

    /// Returns the time of a node's timer, [`NEVER`] if there is none.
    #[inline]
    pub(super) fn due(&self, node: u32) -> u64 {
        self.slots[self.position(node)].timer
    }

    /// Counts an event that happens now.
    #[inline]
    pub(super) fn count_event(&mut self) -> Result<(), Error> {
        self.totals.events += 1;
        if self.totals.events > self.budget.events {
            return Err(self.over_budget());
        }
        Ok(())
    }

    /// Returns the number of the next event that a node requests.
    #[inline]
    pub(super) fn count(&mut self, node: u32) -> u64 {
        let slot = self.slot(node);
        slot.requested += 1;
        slot.requested
    }

    /// Counts the packet in `scratch` as sent by a node.
    #[inline]
    pub(super) fn count_sent(&mut self, node: u32) {
        let bytes = self.scratch.len() as u64;
        self.totals.sent += 1;
        self.totals.sent_bytes += bytes;
        let counters = &mut self.slot(node).counters;
        counters.sent = counters.sent.wrapping_add(1);
        counters.sent_bytes += bytes;
    }

    /// Returns the random bits of a packet.
    #[inline]
    pub(super) fn bits(&self, sender: u32, count: u64) -> u64 {
        mix(self.seed ^ count, sender)
    }

    /// Counts the arrival of a packet.
    #[inline]
    fn count_hop(&mut self, len: usize, bits: u64, link: u32) {
        self.totals.hops += 1;
        self.totals.hop_bytes += len as u64;
        let at = self.now.as_nanos().rotate_left(24) ^ (len as u64) << 48;
        self.totals.trace = self.totals.trace.wrapping_add(mix(at ^ bits, link));
    }

    #[cold]
    fn over_budget(&self) -> Error {
        over_budget(core::slice::from_ref(self))
    }
}

/// Returns the error of a budget of events that is exhausted.
#[cold]
pub(super) fn over_budget<N>(engines: &[Engine<N>]) -> Error {
    let all = engines.iter().flat_map(|engine| engine.nodes().zip(&engine.slots));
    let busiest = all.max_by_key(|(_, slot)| slot.requested);
    let (node, took) = busiest.map_or((0, 0), |(node, slot)| (node, slot.requested));
    let (max, at) = engines.first().map_or((0, Time::ZERO), |e| (e.budget.events, e.now));
    Error::Budget { max, at, node: node.to_string(), took }
}

impl<N: GraphNode> Engine<N> {
    /// Sets the clock of a node. While the node runs, it is not put back. Returns the timer that it sets.
    pub(super) fn set_clock(&mut self, node: u32, shows: Time, drift_ppm: i32) -> Option<Timer> {
        let is_running = self.node(node).is_some();
        let shows = if is_running { shows.max(self.local(node)) } else { shows };
        self.slot(node).timer = NEVER;
        self.clocks.set(self.slots.len(), node - self.first, self.now, shows, drift_ppm);
        self.set_timer(node)
    }

    /// Passes a packet to a node.
    #[inline]
    pub(super) fn receive(
        &mut self,
        carrier: &mut impl Carrier<N>,
        node: u32,
        arrival: Arrival<'_>,
    ) -> Result<(), Error> {
        let Arrival { from, bytes, bits, link } = arrival;
        let now = self.local(node);
        let slot = self.slot(node);
        let Some(receiver) = slot.node.as_mut() else {
            self.totals.undelivered += 1;
            return Ok(());
        };
        let len = bytes.len();
        slot.counters.received = slot.counters.received.wrapping_add(1);
        slot.counters.received_bytes += len as u64;
        receiver.handle_packet(now, from, bytes);
        self.count_hop(len, bits, link);
        self.pump_at(carrier, node, now)
    }

    /// Handles the event of a node's timer.
    pub(super) fn timer(&mut self, carrier: &mut impl Carrier<N>, node: u32) -> Result<(), Error> {
        let now = self.now.as_nanos();
        let slot = self.slot(node);
        if slot.timer != now {
            // It was set for another time since.
            return Ok(());
        }
        slot.timer = NEVER;
        self.count_event()?;
        self.pump(carrier, node)
    }

    /// Calls the timeouts of a node that are due, sends its packets, and sets its timer.
    #[inline]
    pub(super) fn pump(&mut self, carrier: &mut impl Carrier<N>, node: u32) -> Result<(), Error> {
        let now = self.local(node);
        self.pump_at(carrier, node, now)
    }

    /// Does so for a node whose clock shows `now`.
    #[inline]
    fn pump_at(
        &mut self,
        carrier: &mut impl Carrier<N>,
        node: u32,
        now: Time,
    ) -> Result<(), Error> {
        let mut timeouts = 0;
        self.transmit(carrier, node, now)?;
        loop {
            let position = self.position(node);
            let slot = &mut self.slots[position];
            let Some(called) = &mut slot.node else { break };
            match called.poll_timeout() {
                Some(at) if at <= now => called.handle_timeout(now),
                Some(at) if self.clocks.time_of(position as u32, at).as_nanos() < slot.timer => {
                    if let Some(timer) = self.set_timer(node) {
                        carrier.add_timer(node, timer);
                    }
                    break;
                }
                _ => break,
            }
            self.transmit(carrier, node, now)?;
            timeouts += 1;
            if timeouts > self.budget.per_instant {
                let (node, max) = (node.to_string(), self.budget.per_instant);
                return Err(Error::Spin { node, max, at: self.now });
            }
        }
        Ok(())
    }

    /// Sets a node's timer and returns it, unless it has one that is not later.
    pub(super) fn set_timer(&mut self, node: u32) -> Option<Timer> {
        let position = self.position(node);
        let slot = &mut self.slots[position];
        let at = slot.node.as_ref()?.poll_timeout()?;
        let at = self.clocks.time_of(position as u32, at).max(self.now);
        if at.as_nanos() >= slot.timer {
            return None;
        }
        slot.timer = at.as_nanos();
        slot.requested += 1;
        Some(Timer { at, count: slot.requested })
    }

    /// Sends the packets of a node, whose clock shows `now`.
    #[inline]
    fn transmit(
        &mut self,
        carrier: &mut impl Carrier<N>,
        node: u32,
        now: Time,
    ) -> Result<(), Error> {
        let mut packets = 0;
        loop {
            self.scratch.clear();
            let position = self.position(node);
            let Some(sender) = &mut self.slots[position].node else { return Ok(()) };
            let Some(to) = sender.poll_transmit(now, &mut self.scratch) else { return Ok(()) };
            packets += 1;
            if packets > self.budget.burst {
                let (node, max) = (node.to_string(), self.budget.burst);
                return Err(Error::Flood { node, max, at: self.now });
            }
            carrier.send(self, node, to)?;
        }
    }

    /// Returns the allocated bytes of a node: its slot and what it has allocated.
    pub(super) fn memory_of(&self, node: u32) -> usize {
        size_of::<Slot<N>>() + self.node(node).map_or(0, GraphNode::heap_bytes)
    }

    /// Returns the allocated bytes: of slots, and of nodes.
    pub(super) fn memory(&self) -> [usize; 2] {
        let heap = self.slots.iter().filter_map(|slot| slot.node.as_ref());
        [
            self.slots.capacity() * size_of::<Slot<N>>() + self.clocks.memory(),
            heap.map(GraphNode::heap_bytes).sum(),
        ]
    }
}

/// Returns a hash of two numbers.
#[inline]
pub(super) fn mix(bits: u64, number: u32) -> u64 {
    SplitMix::new(bits ^ u64::from(number).wrapping_mul(0xd6e8_feb8_6659_fd93)).next_u64()
}
