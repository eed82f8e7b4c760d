//! A graph in virtual time.

use super::adjacency::Adjacency;
use super::engine::{Counters, Engine, Medium, Totals};
use super::flight::sum;
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
///
/// Nodes may be in several shards, each of which runs on a thread of its own. That changes nothing but the time that
/// a run takes, and the order in which nodes are called that cannot know of each other.
pub struct Graph<N, M = Links> {
    /// The shards of nodes, in the order of their numbers.
    engines: Vec<Engine<N>>,
    pub(super) medium: M,
}

impl<N: GraphNode> Graph<N> {
    /// Creates a graph at time zero, all of whose nodes run. `node` creates each from its number.
    pub fn new(adjacency: Adjacency, seed: u64, mut node: impl FnMut(u32) -> N) -> Self {
        let mut graph = Graph::idle(adjacency, seed);
        for number in 0..graph.len() {
            // There is no node yet to be returned, and the number is one of a node.
            let _ = graph.engines[0].replace(number, Some(node(number)));
            graph.set_timer(0, number);
        }
        graph
    }

    /// Creates a graph at time zero, none of whose nodes runs.
    pub fn idle(adjacency: Adjacency, seed: u64) -> Self {
        Graph::idle_in_shards(adjacency, seed, 1)
    }

    /// Creates such a graph with its nodes in as many shards, from 1 to [`MAX_SHARDS`](super::MAX_SHARDS). Each has
    /// nodes that follow each other, so that it helps if neighbours have near numbers.
    pub fn idle_in_shards(adjacency: Adjacency, seed: u64, shards: usize) -> Self {
        let links = Links::new(adjacency, shards);
        let engines = links.nodes().map(|nodes| Engine::new(nodes, seed)).collect();
        Graph { engines, medium: links }
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
        Graph { engines: vec![Engine::new(0..nodes, seed)], medium }
    }

    /// Returns the index of the shard of a node.
    fn shard(&self, node: u32) -> Result<usize, Error> {
        let shard = self.engines.iter().position(|engine| engine.nodes().contains(&node));
        shard.ok_or(Error::Unknown { what: "node", index: node })
    }

    fn set_timer(&mut self, shard: usize, node: u32) {
        if let Some(timer) = self.engines[shard].set_timer(node) {
            self.medium.add_timer(shard, node, timer);
        }
    }

    /// Sets the limits of the run. `per_instant` limits the timeouts of one node that follow each other in one
    /// instant.
    pub fn set_budget(&mut self, budget: Budget) {
        self.engines.iter_mut().for_each(|engine| engine.set_budget(budget));
    }

    /// Returns the present time.
    pub fn now(&self) -> Time {
        self.engines[0].now
    }

    /// Returns the number of nodes, running or not.
    pub fn len(&self) -> u32 {
        self.engines.last().map_or(0, |engine| engine.nodes().end)
    }

    /// Returns whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Starts a node now, instead of the one that runs.
    pub fn start(&mut self, node: u32, value: N) -> Result<(), Error> {
        let shard = self.shard(node)?;
        self.engines[shard].replace(node, Some(value));
        self.medium.pump(&mut self.engines, shard, node)
    }

    /// Stops a node at once, and returns it; `None` if it does not run. Its packets in flight arrive.
    pub fn stop(&mut self, node: u32) -> Result<Option<N>, Error> {
        let shard = self.shard(node)?;
        Ok(self.engines[shard].replace(node, None))
    }

    /// Returns a node; `None` if it does not run.
    pub fn node(&self, node: u32) -> Option<&N> {
        self.engines.iter().find_map(|engine| engine.node(node))
    }

    /// Calls a node from outside the graph with the time that its clock shows, then sends its packets and
    /// sets its timer. Returns the result of the call; `None` if the node does not run.
    pub fn with_node<R>(
        &mut self,
        node: u32,
        call: impl FnOnce(&mut N, Time) -> R,
    ) -> Result<Option<R>, Error> {
        let Ok(shard) = self.shard(node) else { return Ok(None) };
        let engine = &mut self.engines[shard];
        let now = engine.local(node);
        let Some(called) = engine.node_mut(node) else { return Ok(None) };
        let result = call(called, now);
        self.medium.pump(&mut self.engines, shard, node)?;
        Ok(Some(result))
    }

    /// Returns the nodes that run, in the order of their numbers.
    pub fn nodes(&self) -> impl Iterator<Item = &N> + '_ {
        self.numbered().map(|(_, node)| node)
    }

    /// Returns the nodes that run, each with its number.
    pub fn numbered(&self) -> impl Iterator<Item = (u32, &N)> + '_ {
        let all = self.engines.iter().flat_map(|engine| engine.nodes().map(move |n| (n, engine)));
        all.filter_map(|(number, engine)| Some((number, engine.node(number)?)))
    }

    /// Sets the clock of a node, which shows the graph's time otherwise: to the time `shows`, but not back while
    /// the node runs, and to gain `drift_ppm` microseconds a second, at most
    /// [`MAX_DRIFT_PPM`](super::clock::MAX_DRIFT_PPM).
    pub fn set_clock(&mut self, node: u32, shows: Time, drift_ppm: i32) -> Result<(), Error> {
        let shard = self.shard(node)?;
        if let Some(timer) = self.engines[shard].set_clock(node, shows, drift_ppm) {
            self.medium.add_timer(shard, node, timer);
        }
        Ok(())
    }

    /// Returns the time that the clock of a node shows.
    pub fn local_time(&self, node: u32) -> Time {
        self.shard(node).map_or(self.now(), |shard| self.engines[shard].local(node))
    }

    /// Returns what has happened so far.
    pub fn totals(&self) -> Totals {
        self.engines.iter().fold(Totals::default(), |sum, engine| sum.and(engine.totals))
    }

    /// Returns the packets of a node; `None` if there is no such node.
    pub fn counters(&self, node: u32) -> Option<Counters> {
        self.engines.iter().find_map(|engine| engine.counters(node)).copied()
    }

    /// Returns the number of packets in flight; a broadcast is one until it has arrived everywhere.
    pub fn in_flight(&self) -> u64 {
        self.medium.in_flight()
    }

    /// Returns the bytes of a node, with what it has allocated and without its links.
    pub fn memory_of(&self, node: u32) -> usize {
        self.engines[self.shard(node).unwrap_or(0)].memory_of(node)
    }

    /// Returns the allocated memory.
    pub fn memory(&self) -> Memory {
        let [links, events, packets] = self.medium.memory();
        let engines = self.engines.iter().map(Engine::memory);
        let [nodes, heap] = engines.fold([0, 0], sum);
        Memory { nodes, heap, links, events, packets }
    }

    /// Advances time to `end`: every event due by then is processed.
    pub fn run_until(&mut self, end: Time) -> Result<(), Error> {
        self.medium.run(&mut self.engines, end)
    }
}

impl<N, M> std::fmt::Debug for Graph<N, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Graph")
            .field("shards", &self.engines.len())
            .field("engines", &self.engines)
            .finish_non_exhaustive()
    }
}
