//! What no node knows: which nodes can reach each other, and by which shortest paths.

use super::adjacency::Adjacency;
use super::node::GraphNode;
use super::random::below;
use super::world::Graph;
use ringway_sansio::{Duration, Random};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A part, distance or node that does not exist.
const NONE: u32 = u32::MAX;

/// A link that works.
#[derive(Clone, Copy, Debug)]
struct Step {
    peer: u32,
    delay_us: u32,
    /// The node's index of the peer.
    index: u16,
}

/// The nodes that run and the links between them that work, at one moment. Links are taken to work in both
/// directions.
#[derive(Clone, Debug)]
pub struct Oracle {
    /// By node: its first step; and the end of the last.
    starts: Vec<u32>,
    steps: Vec<Step>,
    runs: Vec<bool>,
}

/// Two nodes that can reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The first node.
    pub from: u32,
    /// The second node.
    pub to: u32,
    /// The smallest number of links between them.
    pub hops: u32,
}

/// The connected parts of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    numbers: Vec<u32>,
    sizes: Vec<u32>,
}

impl Parts {
    /// Returns the part of a node, as the position of its size; `None` if it does not run.
    pub fn part(&self, node: u32) -> Option<u32> {
        self.numbers.get(node as usize).copied().filter(|part| *part != NONE)
    }

    /// Returns whether two nodes run and can reach each other.
    pub fn are_connected(&self, a: u32, b: u32) -> bool {
        self.part(a).is_some_and(|part| self.part(b) == Some(part))
    }

    /// Returns the numbers of nodes of the parts, in the order of their lowest nodes.
    pub fn sizes(&self) -> &[u32] {
        &self.sizes
    }
}

impl Oracle {
    /// Creates an oracle from the nodes that run in a graph and the links that are neither cut nor lose every
    /// packet.
    pub fn of<N: GraphNode>(graph: &Graph<N>) -> Self {
        let adjacency = graph.adjacency();
        let runs: Vec<bool> = (0..graph.len()).map(|node| graph.node(node).is_some()).collect();
        Self::filtered(adjacency, runs, |link| !graph.medium.is_cut(link))
    }

    /// Creates an oracle from all nodes and the links that do not lose every packet.
    pub fn whole(adjacency: &Adjacency) -> Self {
        Self::filtered(adjacency, vec![true; adjacency.nodes() as usize], |_| true)
    }

    fn filtered(adjacency: &Adjacency, runs: Vec<bool>, works: impl Fn(u32) -> bool) -> Self {
        let (mut starts, mut steps) = (vec![0], Vec::with_capacity(adjacency.links()));
        for node in 0..adjacency.nodes() {
            let [start, end] = adjacency.row(node);
            for position in (start..end).filter(|_| runs[node as usize]) {
                let link = adjacency.link(position);
                if runs[link.peer as usize] && works(position) && !link.loses_all() {
                    let index = (position - start) as u16;
                    steps.push(Step { peer: link.peer, delay_us: link.delay_us, index });
                }
            }
            starts.push(steps.len() as u32);
        }
        Oracle { starts, steps, runs }
    }

    /// Creates an oracle from the nodes that run and those that each one hears, whose numbers are their indices.
    pub(super) fn heard(runs: Vec<bool>, rows: &[Vec<u32>]) -> Self {
        let (mut starts, mut steps) = (vec![0], Vec::new());
        for (node, row) in rows.iter().enumerate() {
            let peers = row.iter().filter(|peer| runs[node] && runs[**peer as usize]);
            let step = |peer: &u32| Step { peer: *peer, delay_us: 1, index: *peer as u16 };
            steps.extend(peers.map(step));
            starts.push(steps.len() as u32);
        }
        Oracle { starts, steps, runs }
    }

    /// Returns an oracle in which some nodes do not run.
    pub fn without(&self, is_gone: impl Fn(u32) -> bool) -> Oracle {
        let runs: Vec<bool> =
            (0..self.len()).map(|node| self.runs(node) && !is_gone(node)).collect();
        let (mut starts, mut steps) = (vec![0], Vec::new());
        for node in 0..self.len() {
            let row = self.row(node).iter();
            let kept = row.filter(|step| runs[node as usize] && runs[step.peer as usize]);
            steps.extend(kept);
            starts.push(steps.len() as u32);
        }
        Oracle { starts, steps, runs }
    }

    /// Returns the number of nodes, running or not.
    pub fn len(&self) -> u32 {
        self.runs.len() as u32
    }

    /// Returns whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns whether a node runs.
    pub fn runs(&self, node: u32) -> bool {
        self.runs.get(node as usize).copied().unwrap_or_default()
    }

    /// Returns the neighbours that a node can reach by one link.
    pub fn neighbours(&self, node: u32) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.row(node).iter().map(|step| step.peer)
    }

    /// Returns the index that a node has for a neighbour that it can reach by one link.
    pub fn index_of(&self, node: u32, neighbour: u32) -> Option<u16> {
        let step = self.row(node).iter().find(|step| step.peer == neighbour)?;
        Some(step.index)
    }

    fn row(&self, node: u32) -> &[Step] {
        let node = node as usize;
        &self.steps[self.starts[node] as usize..self.starts[node + 1] as usize]
    }

    /// Returns the nodes in the order of their distances from a node in hops, each with the node before it on
    /// a shortest path, and its distance. Empty if the node does not run.
    pub fn reached(&self, from: u32) -> Vec<(u32, u32, u32)> {
        let mut is_found = vec![false; self.runs.len()];
        let mut found = Vec::new();
        if self.runs(from) {
            self.search(from, &mut is_found, &mut found);
        }
        found
    }

    /// Adds the nodes that are found from one on.
    fn search(&self, from: u32, is_found: &mut [bool], found: &mut Vec<(u32, u32, u32)>) {
        let mut next = found.len();
        is_found[from as usize] = true;
        found.push((from, from, 0));
        while next < found.len() {
            let (node, _, hops) = found[next];
            for peer in self.neighbours(node) {
                if !core::mem::replace(&mut is_found[peer as usize], true) {
                    found.push((peer, node, hops + 1));
                }
            }
            next += 1;
        }
    }

    /// Returns the number of hops from a node to each; `None` where there is no path.
    pub fn hops(&self, from: u32) -> Vec<Option<u32>> {
        let mut hops = vec![None; self.runs.len()];
        for (node, _, distance) in self.reached(from) {
            hops[node as usize] = Some(distance);
        }
        hops
    }

    /// Returns the shortest delay from a node to each, without waiting; `None` where there is no path.
    pub fn delays(&self, from: u32) -> Vec<Option<Duration>> {
        let mut delays = vec![u64::MAX; self.runs.len()];
        let mut heap = BinaryHeap::new();
        if self.runs(from) {
            delays[from as usize] = 0;
            heap.push(Reverse((0, from)));
        }
        while let Some(Reverse((delay, node))) = heap.pop() {
            if delay > delays[node as usize] {
                continue;
            }
            for Step { peer, delay_us, .. } in self.row(node) {
                let there = delay + u64::from(*delay_us);
                if there < delays[*peer as usize] {
                    delays[*peer as usize] = there;
                    heap.push(Reverse((there, *peer)));
                }
            }
        }
        let delay = |us: u64| (us != u64::MAX).then(|| Duration::from_micros(us));
        delays.into_iter().map(delay).collect()
    }

    /// Returns the connected parts.
    pub fn parts(&self) -> Parts {
        let mut is_found = vec![false; self.runs.len()];
        let (mut numbers, mut sizes) = (vec![NONE; self.runs.len()], Vec::new());
        let mut found = Vec::new();
        for from in 0..self.len() {
            if self.runs(from) && !is_found[from as usize] {
                let before = found.len();
                self.search(from, &mut is_found, &mut found);
                let part = &found[before..];
                part.iter().for_each(|step| numbers[step.0 as usize] = sizes.len() as u32);
                sizes.push(part.len() as u32);
            }
        }
        Parts { numbers, sizes }
    }

    /// Returns random pairs that are at least `min_hops` apart: up to `each` from each of `sources` nodes.
    /// There are fewer from a node that reaches few others. A search of the whole graph is made for each
    /// source.
    pub fn pairs(
        &self,
        sources: u32,
        each: u32,
        min_hops: u32,
        random: &mut impl Random,
    ) -> Vec<Pair> {
        let running: Vec<u32> = (0..self.len()).filter(|node| self.runs(*node)).collect();
        let mut pairs = Vec::new();
        for _ in 0..if running.is_empty() { 0 } else { sources } {
            let from = running[below(random, running.len() as u64) as usize];
            let reached = self.reached(from);
            let far = reached.partition_point(|(.., hops)| *hops < min_hops.max(1));
            for _ in 0..if far < reached.len() { each } else { 0 } {
                let (to, _, hops) =
                    reached[far..][below(random, (reached.len() - far) as u64) as usize];
                pairs.push(Pair { from, to, hops });
            }
        }
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Flood, LinkModel, Topology};
    use proptest::prelude::*;
    use ringway_sansio::SplitMix;

    fn graph(topology: &Topology, delay: impl Fn(u32, u32) -> u64) -> Graph<Flood> {
        let model = |a, b| LinkModel::new(Duration::from_micros(delay(a, b)));
        Graph::new(Adjacency::new(topology, model).unwrap(), 1, |n| Flood::new(n, 10, 1, None))
    }

    #[test]
    fn parts_are_of_what_works() {
        let mut line = graph(&Topology::line(7), |_, _| 1);
        assert_eq!(Oracle::of(&line).parts().sizes(), [7]);
        line.cut(1, 2).unwrap();
        line.stop(4).unwrap();
        line.set_loss(5, 6, ringway_link::Chance::ALWAYS).unwrap();
        let oracle = Oracle::of(&line);
        let parts = oracle.parts();
        assert_eq!(parts.sizes(), [2, 2, 1, 1]);
        let numbers: Vec<_> = (0..8).map(|node| parts.part(node)).collect();
        assert_eq!(numbers, [Some(0), Some(0), Some(1), Some(1), None, Some(2), Some(3), None]);
        assert!(parts.are_connected(2, 3) && !parts.are_connected(1, 2));
        assert!(!parts.are_connected(4, 4) && !parts.are_connected(9, 9));
        assert_eq!(oracle.hops(3)[..5], [None, None, Some(1), Some(0), None]);
        assert!(oracle.reached(4).is_empty() && oracle.delays(4).iter().all(Option::is_none));
        assert_eq!(Oracle::whole(line.adjacency()).parts().sizes(), [6, 1]);
    }

    #[test]
    fn a_path_of_more_hops_may_be_faster() {
        let delay = |a, b| if a + b == 2 { 10 } else { 3 };
        let triangle = Oracle::of(&graph(&Topology::ring(3), delay));
        assert_eq!(triangle.hops(0), [Some(0), Some(1), Some(1)]);
        let delays = [0, 3, 6].map(|us| Some(Duration::from_micros(us)));
        assert_eq!(triangle.delays(0), delays);
    }

    #[test]
    fn pairs_are_as_far_apart_as_was_asked_for() {
        let oracle = Oracle::of(&graph(&Topology::grid(30, 30), |_, _| 1));
        let pairs = oracle.pairs(20, 10, 2, &mut SplitMix::new(1));
        assert_eq!(pairs.len(), 200);
        for Pair { from, to, hops } in pairs {
            assert!(hops >= 2);
            assert_eq!(hops, (from / 30).abs_diff(to / 30) + (from % 30).abs_diff(to % 30));
        }
        assert!(oracle.pairs(5, 5, 59, &mut SplitMix::new(1)).is_empty());
        let none = Oracle::of(&graph(&Topology::line(0), |_, _| 1));
        assert!(none.is_empty() && none.pairs(1, 1, 0, &mut SplitMix::new(1)).is_empty());
    }

    proptest! {
        /// Distances are those of the relation d(a, b) <= d(a, c) + 1 for each neighbour c of b.
        #[test]
        fn distances_differ_by_one_link(seed in any::<u64>(), from in 0u32..200) {
            let topology = Topology::disk(200, 5.0, &mut SplitMix::new(seed));
            let oracle = Oracle::of(&graph(&topology, |a, b| u64::from(1 + (a ^ b) % 7)));
            let (hops, delays) = (oracle.hops(from), oracle.delays(from));
            let parts = oracle.parts();
            for [a, b] in topology.edges() {
                let both = [a, b].map(|node| hops[*node as usize]);
                prop_assert!(both == [None; 2] || both[0].unwrap().abs_diff(both[1].unwrap()) <= 1);
                let both = [a, b].map(|node| delays[*node as usize]);
                let link = Duration::from_micros(u64::from(1 + (a ^ b) % 7));
                prop_assert!(both == [None; 2] || both[0].unwrap().abs_diff(both[1].unwrap()) <= link);
            }
            for node in (0..200).filter(|node| *node != from) {
                let hops = hops[node as usize];
                prop_assert_eq!(parts.are_connected(from, node), hops.is_some());
                let before = oracle.neighbours(node).any(|peer| {
                    oracle.reached(from).iter().any(|step| step.0 == peer && Some(step.2 + 1) == hops)
                });
                prop_assert_eq!(before, hops.is_some());
            }
        }
    }
}
