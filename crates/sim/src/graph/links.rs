//! Links as the medium of a graph.

use super::adjacency::Adjacency;
use super::engine::{Engine, Medium, Timer, over_budget};
use super::exchange::Exchange;
use super::flight::sum;
use super::lane::{Lane, Shard};
use super::node::GraphNode;
use super::queue::Queues;
use crate::error::Error;
use crate::interrupt::Interrupt;
use core::ops::Range;
use rayon::{ThreadPool, ThreadPoolBuilder};
use ringway_sansio::Time;
use std::sync::{Mutex, PoisonError};

/// Maximum number of shards.
pub const MAX_SHARDS: usize = 64;
/// Maximum length of a window in nanoseconds.
const MAX_WINDOW: u64 = 1_000_000_000;

/// The links between nodes. A link that is cut takes packets and delivers none.
///
/// Time passes in windows as long as the shortest delay of a link. What a node sends in one window arrives in a later
/// one, so that within a window nothing that a node does can reach another: nodes are called one after another, each
/// with all its events, and shards of nodes at the same time.
pub struct Links {
    pub(super) adjacency: Adjacency,
    /// By direction of a link: how many times it is cut; empty while no link was.
    cuts: Vec<u8>,
    queues: Queues,
    /// The first node of each shard, and the number of nodes.
    bounds: Vec<u32>,
    shards: Vec<Shard>,
    /// A thread for each of several shards. They live as long as the graph, because allocators hold memory by thread.
    pool: Option<ThreadPool>,
}

impl Links {
    /// Creates the links of nodes in a number of shards, from 1 to [`MAX_SHARDS`]; in 1 if the system has no threads for
    /// more.
    pub(super) fn new(mut adjacency: Adjacency, shards: usize) -> Self {
        let shards = shards.clamp(1, MAX_SHARDS);
        let pool = (shards > 1).then(|| ThreadPoolBuilder::new().num_threads(shards).build());
        let pool = pool.and_then(Result::ok);
        let shards = if pool.is_some() { shards } else { 1 };
        let queues = adjacency.take_queues();
        let window = adjacency.shortest_delay().unwrap_or(MAX_WINDOW).min(MAX_WINDOW);
        let bounds = bounds(&adjacency, shards);
        let nodes = bounds.windows(2).map(|bounds| (bounds[1] - bounds[0]) as usize);
        let shards = nodes.map(|nodes| Shard::new(window, nodes, shards)).collect();
        Links { adjacency, cuts: Vec::new(), queues, bounds, shards, pool }
    }

    /// Returns the nodes of each shard.
    pub(super) fn nodes(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        self.bounds.windows(2).map(|bounds| bounds[0]..bounds[1])
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

    /// Returns what each shard uses of the links.
    fn lanes(&mut self) -> impl Iterator<Item = Lane<'_>> + '_ {
        let Links { adjacency, cuts, queues, bounds, shards, pool: _ } = self;
        let (adjacency, cuts, bounds) = (&*adjacency, &cuts[..], &bounds[..]);
        let starts: Vec<u32> = bounds.iter().map(|node| adjacency.start(*node)).collect();
        let queues = queues.split(&starts[..shards.len()]);
        let parts = shards.iter_mut().zip(queues).enumerate();
        parts.map(move |(index, (shard, queues))| Lane {
            adjacency,
            cuts,
            queues,
            bounds,
            index,
            shard,
        })
    }

    /// Passes on what was sent to other shards since they met.
    fn hand_over(&mut self) {
        for from in 0..self.shards.len() {
            for to in 0..self.shards.len() {
                let mut mail = core::mem::take(&mut self.shards[from].out[to]);
                let (adjacency, first) = (&self.adjacency, self.bounds[to]);
                let index = |link| adjacency.link(link).peer - first;
                self.shards[to].flight.accept(&mut mail, index);
            }
        }
    }
}

/// Divides nodes into parts with about as many links and nodes each. Returns the first of each part, and the number
/// of nodes.
fn bounds(adjacency: &Adjacency, parts: usize) -> Vec<u32> {
    let nodes = adjacency.nodes();
    let weight = |node: u32| adjacency.start(node) as usize + node as usize;
    let bound = |part: usize| {
        let (mut low, mut high) = (0, nodes);
        while low < high {
            let middle = low + (high - low) / 2;
            if weight(middle) * parts < weight(nodes) * part {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    };
    (0..=parts).map(bound).collect()
}

impl<N: GraphNode> Medium<N> for Links {
    fn run(&mut self, engines: &mut [Engine<N>], end: Time) -> Result<(), Error> {
        self.hand_over();
        let exchange = Exchange::new(self.shards.len());
        let budget = engines.first().map_or(0, |engine| engine.budget().events);
        // Of this thread: the shards' threads have none.
        let interrupt = Interrupt::current();
        let pool = self.pool.take();
        let parts = engines.iter_mut().zip(self.lanes());
        let parts: Vec<_> = parts.map(|part| Mutex::new(Some(part))).collect();
        let run = |index: usize| -> Result<bool, Error> {
            let part = parts
                .get(index)
                .map(|part| part.lock().unwrap_or_else(PoisonError::into_inner).take());
            let Some(Some((engine, mut lane))) = part else { return Ok(true) };
            lane.run(engine, &exchange, end, budget, &interrupt)
        };
        let results = match &pool {
            // Each shard is always on the same thread.
            Some(pool) => pool.broadcast(|context| run(context.index())),
            None => vec![run(0)],
        };
        drop(parts);
        self.pool = pool;
        let are_within_budget: Vec<bool> = results.into_iter().collect::<Result<_, _>>()?;
        if are_within_budget.contains(&false) {
            return Err(over_budget(engines));
        }
        engines.iter_mut().for_each(|engine| engine.set_now(engine.now.max(end)));
        Ok(())
    }

    fn pump(&mut self, engines: &mut [Engine<N>], index: usize, node: u32) -> Result<(), Error> {
        let lane = self.lanes().nth(index);
        lane.map_or(Ok(()), |mut lane| engines[index].pump(&mut lane, node))
    }

    fn add_timer(&mut self, index: usize, node: u32, timer: Timer) {
        self.shards[index].add_timer(node, timer.at);
    }

    fn in_flight(&self) -> u64 {
        self.shards.iter().map(Shard::in_flight).sum()
    }

    fn memory(&self) -> [usize; 3] {
        let links = self.adjacency.memory() + self.queues.memory() + self.cuts.capacity();
        let shards = self.shards.iter().map(Shard::memory);
        let [events, packets] = shards.fold([0, 0], sum);
        [links, events, packets]
    }
}
