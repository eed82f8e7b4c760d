//! A graph in virtual time.

use super::adjacency::Adjacency;
use super::engine::{Counters, Engine, Event, Medium, Totals};
use super::links::Links;
use super::node::GraphNode;
use crate::error::{Budget, Error};
use ringway_link::Chance;
use ringway_sansio::Time;

/// The memory of a graph, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Nodes without what they have allocated, and with their timers, counters and clocks.
    pub nodes: usize,
    /// What nodes have allocated.
    pub heap: usize,
    /// Links and their queues, or what else carries packets.
    pub links: usize,
    /// Pending events.
    pub events: usize,
    /// Packets in flight, and slots for as many as there were.
    pub packets: usize,
}

impl Memory {
    /// Returns the sum.
    pub fn total(&self) -> usize {
        self.nodes + self.heap + self.links + self.events + self.packets
    }
}

/// Nodes, packets and what carries them in virtual time: links, unless `M` is another medium.
///
/// A run depends only on the links, the nodes and the seed. Whether a packet is lost on a link is a hash of
/// the seed, the link, the sender and the number of its packet: it does not depend on what other nodes do.
pub struct Graph<N, M = Links> {
    engine: Engine<N>,
    pub(super) medium: M,
}

impl<N: GraphNode> Graph<N> {
    /// Creates a graph at time zero, all of whose nodes run. `node` creates each from its number.
    pub fn new(adjacency: Adjacency, seed: u64, mut node: impl FnMut(u32) -> N) -> Self {
        let mut graph = Graph::idle(adjacency, seed);
        for number in 0..graph.medium.adjacency.nodes() {
            // There is no node yet to be returned, and the number is one of a node.
            let _ = graph.engine.replace(number, Some(node(number)));
            graph.engine.set_timer(number);
        }
        graph
    }

    /// Creates a graph at time zero, none of whose nodes runs.
    pub fn idle(adjacency: Adjacency, seed: u64) -> Self {
        let nodes = adjacency.nodes();
        Graph::over(Links::new(adjacency), nodes, seed)
    }

    /// Returns the links.
    pub fn adjacency(&self) -> &Adjacency {
        &self.medium.adjacency
    }

    /// Cuts the link between two nodes, in both directions: it delivers no more packets, and those in flight
    /// are lost. A link that is cut several times works again after as many calls of [`mend`](Self::mend).
    pub fn cut(&mut self, a: u32, b: u32) -> Result<(), Error> {
        self.set_cut(a, b, true)
    }

    /// Undoes a [`cut`](Self::cut).
    pub fn mend(&mut self, a: u32, b: u32) -> Result<(), Error> {
        self.set_cut(a, b, false)
    }

    fn set_cut(&mut self, a: u32, b: u32, is_cut: bool) -> Result<(), Error> {
        for link in self.medium.adjacency.between(a, b)? {
            self.medium.set_cut(link, is_cut);
        }
        Ok(())
    }

    /// Returns whether the link from a node to its neighbour with an index is cut; a link that does not exist
    /// is.
    pub fn is_cut(&self, node: u32, index: u16) -> bool {
        let link = self.medium.adjacency.position(node, index);
        link.is_none_or(|link| self.medium.is_cut(link))
    }

    /// Sets the loss of the link between two nodes, in both directions.
    pub fn set_loss(&mut self, a: u32, b: u32, loss: Chance) -> Result<(), Error> {
        for link in self.medium.adjacency.between(a, b)? {
            self.medium.adjacency.set_loss(link, loss);
        }
        Ok(())
    }
}

impl<N: GraphNode, M: Medium<N>> Graph<N, M> {
    /// Creates a graph at time zero, none of whose nodes runs.
    pub(super) fn over(medium: M, nodes: u32, seed: u64) -> Self {
        Graph { engine: Engine::new(nodes, seed), medium }
    }

    /// Sets the limits of the run. `per_instant` limits the timeouts of one node that follow each other in one
    /// instant.
    pub fn set_budget(&mut self, budget: Budget) {
        self.engine.set_budget(budget);
    }

    /// Returns the present time.
    pub fn now(&self) -> Time {
        self.engine.now
    }

    /// Returns the number of nodes, running or not.
    pub fn len(&self) -> u32 {
        self.engine.len() as u32
    }

    /// Returns whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.engine.len() == 0
    }

    /// Starts a node now, in place of the one that runs.
    pub fn start(&mut self, node: u32, value: N) -> Result<(), Error> {
        self.engine.replace(node, Some(value))?;
        self.engine.pump(&mut self.medium, node)
    }

    /// Stops a node at once, and returns it; `None` if it does not run. Its packets in flight arrive.
    pub fn stop(&mut self, node: u32) -> Result<Option<N>, Error> {
        self.engine.replace(node, None)
    }

    /// Returns a node; `None` if it does not run.
    pub fn node(&self, node: u32) -> Option<&N> {
        self.engine.node(node)
    }

    /// Calls a node from outside the graph with the time that its clock shows, then sends its packets and
    /// sets its timer. Returns the result of the call; `None` if the node does not run.
    pub fn with_node<R>(
        &mut self,
        node: u32,
        call: impl FnOnce(&mut N, Time) -> R,
    ) -> Result<Option<R>, Error> {
        let now = self.engine.local(node);
        let Some(called) = self.engine.node_mut(node) else { return Ok(None) };
        let result = call(called, now);
        self.engine.pump(&mut self.medium, node)?;
        Ok(Some(result))
    }

    /// Returns the nodes that run, in the order of their numbers.
    pub fn nodes(&self) -> impl Iterator<Item = &N> + '_ {
        self.numbered().map(|(_, node)| node)
    }

    /// Returns the nodes that run, each with its number.
    pub fn numbered(&self) -> impl Iterator<Item = (u32, &N)> + '_ {
        (0..self.len()).filter_map(|number| Some((number, self.engine.node(number)?)))
    }

    /// Sets the clock of a node, which shows the graph's time otherwise: to the time `shows`, but not back while
    /// the node runs, and to gain `drift_ppm` microseconds a second, at most
    /// [`MAX_DRIFT_PPM`](super::clock::MAX_DRIFT_PPM).
    pub fn set_clock(&mut self, node: u32, shows: Time, drift_ppm: i32) -> Result<(), Error> {
        self.engine.set_clock(node, shows, drift_ppm)
    }

    /// Returns the time that the clock of a node shows.
    pub fn local_time(&self, node: u32) -> Time {
        self.engine.local(node)
    }

    /// Returns what has happened so far.
    pub fn totals(&self) -> Totals {
        self.engine.totals
    }

    /// Returns the packets of a node; `None` if there is no such node.
    pub fn counters(&self, node: u32) -> Option<Counters> {
        self.engine.counters(node).copied()
    }

    /// Returns the number of packets in flight; a broadcast is one until it has arrived everywhere.
    pub fn in_flight(&self) -> u64 {
        self.engine.store.in_use()
    }

    /// Returns the bytes of a node, with what it has allocated and without its links.
    pub fn memory_of(&self, node: u32) -> usize {
        self.engine.memory_of(node)
    }

    /// Returns the allocated memory.
    pub fn memory(&self) -> Memory {
        let [nodes, heap, events, packets] = self.engine.memory();
        Memory { nodes, heap, links: self.medium.memory(), events, packets }
    }

    /// Advances time to `end`: every event due by then is processed.
    pub fn run_until(&mut self, end: Time) -> Result<(), Error> {
        while let Some(event) = self.engine.next_event(end)? {
            match event {
                Event::Timer { node } => self.engine.timer(&mut self.medium, node)?,
                Event::Medium { kind, packet, index } => {
                    self.medium.handle(&mut self.engine, kind, packet, index)?;
                }
            }
        }
        Ok(())
    }
}

impl<N, M> std::fmt::Debug for Graph<N, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Graph")
            .field("now", &self.engine.now)
            .field("nodes", &self.engine.len())
            .field("pending", &self.engine.pending())
            .field("totals", &self.engine.totals)
            .finish_non_exhaustive()
    }
}
