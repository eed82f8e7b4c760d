//! A shard of nodes in a window of time.

use super::adjacency::{Adjacency, Link};
use super::agenda::{Agenda, Entry};
use super::engine::{Arrival, Carrier, Engine, Timer, mix};
use super::exchange::{Exchange, Report};
use super::flight::{Flight, Log, first_of_block, sum};
use super::node::{Destination, GraphNode};
use super::pages::{Head, Pages};
use super::queue::QueuesOf;
use super::store::MAX_LEN;
use crate::error::Error;
use crate::interrupt::Interrupt;
use ringway_sansio::Time;

/// The bit of a packet's number in an [`Entry`] that distinguishes broadcasts.
const BROADCAST: u32 = 1 << 31;

/// What is due at the nodes of a shard.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) flight: Flight,
    /// What was sent to nodes of each shard since they met, other than this.
    pub(super) out: Vec<Pages>,
    /// The time up to and without which events are processed at present; 0 between two windows.
    until: u64,
    agenda: Agenda,
    /// What is due at one node.
    of_node: Vec<Entry>,
    /// A packet that is not read where it lies.
    copy: Vec<u8>,
}

impl Shard {
    pub(super) fn new(window: u64, nodes: usize, shards: usize) -> Self {
        let out = (0..shards).map(|_| Pages::default()).collect();
        Shard {
            flight: Flight::new(window),
            out,
            until: 0,
            agenda: Agenda::new(nodes),
            of_node: Vec::new(),
            copy: Vec::new(),
        }
    }

    /// Returns the first window in which something is due, here or of what was sent to others.
    fn first(&self) -> u64 {
        let sent = self.out.iter().flat_map(Pages::packets).map(|(_, head)| head.at).min();
        self.flight.first().min(sent.map_or(u64::MAX, |at| self.flight.window_of(at)))
    }

    /// Adds the event of a node's timer, unless it is due in the present window.
    #[inline]
    pub(super) fn add_timer(&mut self, node: u32, at: Time) {
        let at = at.as_nanos();
        if at >= self.until {
            self.flight.add_timer(at, node);
        }
    }

    /// Returns the number of packets in flight; a broadcast is counted by the shard of its sender.
    pub(super) fn in_flight(&self) -> u64 {
        let out = self.out.iter().flat_map(Pages::packets);
        self.flight.packets + out.filter(|(_, head)| !head.is_broadcast).count() as u64
    }

    /// Returns the allocated bytes: of events, and of packets.
    pub(super) fn memory(&self) -> [usize; 2] {
        let agenda = self.agenda.memory() + self.of_node.capacity() * size_of::<Entry>();
        let out: usize = self.out.iter().map(Pages::memory).sum();
        sum([agenda, self.copy.capacity() + out], self.flight.memory())
    }
}

/// What a shard uses of the links while time passes.
pub(super) struct Lane<'a> {
    pub(super) adjacency: &'a Adjacency,
    /// By direction of a link: how many times it is cut; empty while no link was.
    pub(super) cuts: &'a [u8],
    pub(super) queues: QueuesOf<'a>,
    /// The first node of each shard, and the number of nodes.
    pub(super) bounds: &'a [u32],
    /// The number of the shard.
    pub(super) index: usize,
    pub(super) shard: &'a mut Shard,
}

/// Ends the meetings of the others when a shard ends early, also by a panic.
struct Attendance<'a> {
    exchange: &'a Exchange,
    is_early: bool,
}

impl Drop for Attendance<'_> {
    fn drop(&mut self) {
        if self.is_early {
            self.exchange.end();
        }
    }
}

impl Lane<'_> {
    /// Processes every event that is due at `end`, in step with the other shards. Returns whether all of them together
    /// had at most `budget` events.
    pub(super) fn run<N: GraphNode>(
        &mut self,
        engine: &mut Engine<N>,
        exchange: &Exchange,
        end: Time,
        budget: u64,
        interrupt: &Interrupt,
    ) -> Result<bool, Error> {
        let mut attendance = Attendance { exchange, is_early: true };
        for turn in 0.. {
            interrupt.check()?;
            let report = Report { first: self.shard.first(), events: engine.totals.events };
            let Shard { out, flight, .. } = &mut *self.shard;
            let (adjacency, first) = (self.adjacency, engine.nodes().start);
            let take = |mail: &mut Pages| {
                flight.accept(mail, |link| adjacency.link(link).peer - first);
            };
            let Some(all) = exchange.meet(turn, self.index, &report, out, take) else { break };
            attendance.is_early = false;
            if all.events > budget {
                return Ok(false);
            }
            if self.shard.flight.first_of(all.first) > end.as_nanos() {
                break;
            }
            attendance.is_early = true;
            self.pass(engine, all.first, end)?;
            if self.shard.flight.last_of(all.first) >= end.as_nanos() {
                break;
            }
        }
        attendance.is_early = false;
        Ok(true)
    }

    /// Processes the events of a window that are due at `end`.
    fn pass<N: GraphNode>(
        &mut self,
        engine: &mut Engine<N>,
        window: u64,
        end: Time,
    ) -> Result<(), Error> {
        let begin = self.shard.flight.first_of(window);
        let last = self.shard.flight.last_of(window).min(end.as_nanos());
        let mut log = self.shard.flight.take(window);
        engine.set_now(Time::from_nanos(begin));
        self.shard.until = last.saturating_add(1);
        self.collect(engine, &log, begin)?;
        let mut broadcasts = core::mem::take(&mut log.broadcasts);
        let mut next = 0;
        while let Some((block, mut pages)) = log.take_block(next) {
            next = block + 1;
            self.call(
                engine,
                [&mut broadcasts, &mut Pages::default()],
                begin,
                first_of_block(block),
            )?;
            let entries = self.shard.agenda.entries();
            self.collect_block(engine, &pages, begin)?;
            self.call(engine, [&mut broadcasts, &mut pages], begin, first_of_block(next))?;
            self.shard.agenda.truncate(entries);
            self.shard.flight.release(pages);
        }
        self.call(engine, [&mut broadcasts, &mut Pages::default()], begin, u32::MAX)?;
        self.shard.agenda.clear();
        self.shard.until = 0;
        self.shard.flight.release(broadcasts);
        Ok(())
    }

    /// Finds the nodes at which a broadcast arrives or a timer is due. What is due later in the window is put back.
    fn collect<N: GraphNode>(
        &mut self,
        engine: &mut Engine<N>,
        log: &Log,
        begin: u64,
    ) -> Result<(), Error> {
        let until = self.shard.until;
        for (packet, _) in log.broadcasts.packets() {
            self.spread(engine, &log.broadcasts, packet, begin)?;
        }
        let window = self.shard.flight.window_of(begin);
        for &node in &log.timers {
            let due = engine.due(node);
            // It may have been set for another time since.
            if due < until {
                self.shard.agenda.mark(node - engine.nodes().start);
            } else if self.shard.flight.window_of(due) == window {
                self.shard.flight.add_timer(due, node);
            }
        }
        Ok(())
    }

    /// Finds the nodes of a block at which packets arrive. What is due later in the window is put back.
    fn collect_block<N: GraphNode>(
        &mut self,
        engine: &mut Engine<N>,
        pages: &Pages,
        begin: u64,
    ) -> Result<(), Error> {
        let until = self.shard.until;
        for (packet, head) in pages.packets() {
            let to = *self.adjacency.link(head.link);
            if head.at >= until {
                let index = to.peer - engine.nodes().start;
                let Shard { flight, copy, .. } = &mut *self.shard;
                flight.add(index, &pages.copy(packet, copy), copy);
            } else {
                engine.count_event()?;
                self.shard.flight.packets -= 1;
                self.add_arrival(engine, head.sender, packet, head.link, to, head.at - begin);
            }
        }
        Ok(())
    }

    /// Finds the nodes at which a broadcast arrives. It is put back for the links over which it arrives later.
    fn spread<N: GraphNode>(
        &mut self,
        engine: &mut Engine<N>,
        broadcasts: &Pages,
        packet: u32,
        begin: u64,
    ) -> Result<(), Error> {
        let head = broadcasts.head(packet);
        let bits = engine.bits(head.sender, head.count);
        let is_local = engine.nodes().contains(&head.sender);
        let [_, end] = self.adjacency.row(head.sender);
        let sent = self.adjacency.link(head.link).sent(Time::from_nanos(head.at));
        let mut before = 0;
        for link in head.link..end {
            let to = *self.adjacency.link(link);
            let at = to.arrival(sent).as_nanos();
            if at >= self.shard.until {
                let Shard { flight, copy, .. } = &mut *self.shard;
                let head = Head { at, link, ..broadcasts.copy(packet, copy) };
                flight.add_broadcast(&head, copy);
                return Ok(());
            }
            if at != before && is_local {
                engine.count_event()?;
            }
            before = at;
            if !engine.nodes().contains(&to.peer) {
                continue;
            }
            if to.loses(mix(bits, link)) {
                engine.totals.lost += 1;
            } else {
                self.add_arrival(engine, head.sender, BROADCAST | packet, link, to, at - begin);
            }
        }
        self.shard.flight.packets -= u64::from(is_local);
        Ok(())
    }

    /// Adds the arrival of a packet over a link, unless the link is cut.
    #[inline]
    fn add_arrival<N>(
        &mut self,
        engine: &mut Engine<N>,
        sender: u32,
        packet: u32,
        link: u32,
        to: Link,
        since: u64,
    ) {
        if self.cuts.get(link as usize).is_some_and(|cuts| *cuts > 0) {
            engine.totals.undelivered += 1;
            return;
        }
        // A window is shorter than 2^32 ns.
        let entry = Entry::new(since as u32, sender, link, packet);
        self.shard.agenda.add(to.peer - engine.nodes().start, entry);
    }

    /// Calls one node after another up to the index `end` with everything that is due at it, in the order of the times. Of the
    /// same time, what a node with a lower number has requested comes first. `packets` are broadcasts, and those of the
    /// block of these nodes.
    fn call<N: GraphNode>(
        &mut self,
        engine: &mut Engine<N>,
        packets: [&mut Pages; 2],
        begin: u64,
        end: u32,
    ) -> Result<(), Error> {
        let [broadcasts, pages] = packets;
        let mut of_node = core::mem::take(&mut self.shard.of_node);
        let mut copy = core::mem::take(&mut self.shard.copy);
        loop {
            let count = |packet: u32| match packet & BROADCAST {
                0 => pages.head(packet).count,
                _ => broadcasts.head(packet ^ BROADCAST).count,
            };
            let Some(index) = self.shard.agenda.pop(end, &mut of_node, count) else { break };
            let node = engine.nodes().start + index;
            for entry in &of_node {
                let at = begin + u64::from(entry.since);
                let (head, bytes) = match entry.packet & BROADCAST {
                    0 => pages.read(entry.packet, &mut copy),
                    _ => broadcasts.read(entry.packet ^ BROADCAST, &mut copy),
                };
                // A timer of the same time comes first, if the node has a lower number than the sender.
                self.call_timers(engine, node, at + u64::from(node < head.sender))?;
                engine.set_now(Time::from_nanos(at));
                let bits = engine.bits(head.sender, head.count);
                let from = self.adjacency.link(entry.link).back;
                let arrival = Arrival { from, bytes, bits, link: entry.link };
                engine.receive(self, node, arrival)?;
            }
            self.call_timers(engine, node, self.shard.until)?;
        }
        (self.shard.of_node, self.shard.copy) = (of_node, copy);
        Ok(())
    }

    /// Handles the timers of a node that are due before a time.
    #[inline]
    fn call_timers<N: GraphNode>(
        &mut self,
        engine: &mut Engine<N>,
        node: u32,
        before: u64,
    ) -> Result<(), Error> {
        while engine.due(node) < before {
            engine.set_now(Time::from_nanos(engine.due(node)));
            engine.timer(self, node)?;
        }
        Ok(())
    }

    /// Returns the number of the shard that a node is in.
    #[inline]
    fn shard_of(&self, node: u32) -> usize {
        match self.bounds {
            [_, _] => 0,
            bounds => bounds.partition_point(|first| *first <= node) - 1,
        }
    }

    /// Sends the packet in `scratch` over one link.
    fn send_over<N>(&mut self, engine: &mut Engine<N>, node: u32, link: u32) {
        let count = engine.count(node);
        let to = *self.adjacency.link(link);
        let sent = match self.queues.is_empty() {
            true => Some(engine.now),
            false => self.queues.add(link, engine.now, engine.scratch.len()),
        };
        let Some(sent) = sent else {
            engine.totals.dropped += 1;
            return;
        };
        if to.loses(mix(engine.bits(node, count), link)) {
            engine.totals.lost += 1;
            return;
        }
        let at = to.arrival(sent).as_nanos();
        let shard = self.shard_of(to.peer);
        let head = new_head(engine, node, count, link, at);
        if shard == self.index {
            self.shard.flight.packets += 1;
            self.shard.flight.add(to.peer - engine.nodes().start, &head, &engine.scratch);
        } else {
            self.shard.out[shard].add(&head, &engine.scratch);
        }
    }

    /// Sends the packet in `scratch` over all links of a node, once to each shard.
    fn send_to_all<N>(&mut self, engine: &mut Engine<N>, node: u32, [start, end]: [u32; 2]) {
        let count = engine.count(node);
        let at = self.adjacency.link(start).arrival(engine.now).as_nanos();
        let head = Head { is_broadcast: true, ..new_head(engine, node, count, start, at) };
        self.shard.flight.packets += 1;
        self.shard.flight.add_broadcast(&head, &engine.scratch);
        if self.bounds.len() == 2 {
            return;
        }
        let mut reached = 1u64 << self.index;
        for link in start..end {
            let shard = self.shard_of(self.adjacency.link(link).peer);
            if reached & 1 << shard == 0 {
                reached |= 1 << shard;
                self.shard.out[shard].add(&head, &engine.scratch);
            }
        }
    }
}

/// Returns the head of the packet in `scratch`.
#[inline]
fn new_head<N>(engine: &Engine<N>, sender: u32, count: u64, link: u32, at: u64) -> Head {
    let len = engine.scratch.len() as u16;
    Head { at, count, sender, link, len, is_broadcast: false }
}

impl<N> Carrier<N> for Lane<'_> {
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
            Destination::Neighbours if !self.queues.is_empty() => {
                (start..end).for_each(|link| self.send_over(engine, node, link))
            }
            Destination::Neighbours => self.send_to_all(engine, node, [start, end]),
        }
        Ok(())
    }

    #[inline]
    fn add_timer(&mut self, node: u32, timer: Timer) {
        self.shard.add_timer(node, timer.at);
    }
}
