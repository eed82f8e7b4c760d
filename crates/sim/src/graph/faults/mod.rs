//! Faults of nodes and links: crashes, cuts, partitions, losses and wrong clocks.
//!
//! A [`Schedule`] says which fault happens when. It is drawn from a seed or parsed from text, never changed by
//! what happens in a run, and printed such that the run can be repeated. [`Faults`] lets a graph pass through it.

mod draw;
mod schedule;

pub use draw::{Churn, FaultRates, Outages, Skew};
pub use schedule::{Fault, MAX_FAULTS, Schedule, ScheduleError};

use super::links::Links;
use super::node::GraphNode;
use super::world::Graph;
use crate::error::Error;
use ringway_sansio::Time;
use std::collections::BTreeMap;

impl<N: GraphNode> Graph<N> {
    /// Cuts all links between the nodes for which `is_inside` is true and the others. Returns their number.
    pub fn split(&mut self, is_inside: impl Fn(u32) -> bool) -> usize {
        self.medium.set_border(is_inside, true)
    }

    /// Undoes a [`split`](Self::split) of the same nodes.
    pub fn join(&mut self, is_inside: impl Fn(u32) -> bool) -> usize {
        self.medium.set_border(is_inside, false)
    }
}

impl Links {
    /// Cuts or mends the links between the nodes inside and the others. Returns their number.
    fn set_border(&mut self, is_inside: impl Fn(u32) -> bool, is_cut: bool) -> usize {
        let mut links = 0;
        for node in (0..self.adjacency.nodes()).filter(|node| is_inside(*node)) {
            let [start, end] = self.adjacency.row(node);
            for link in start..end {
                if !is_inside(self.adjacency.link(link).peer) {
                    self.set_cut(link, is_cut);
                    self.set_cut(self.adjacency.back(link), is_cut);
                    links += 1;
                }
            }
        }
        links
    }

    /// Returns for each node whether it is among the `nodes` nearest to `from`, cut links included.
    fn nearest(&self, from: u32, nodes: u32) -> Vec<bool> {
        let mut is_inside = vec![false; self.adjacency.nodes() as usize];
        let mut found = vec![from];
        is_inside[from as usize] = true;
        let mut next = 0;
        while next < found.len() && found.len() < nodes as usize {
            for peer in self.adjacency.neighbours(found[next]) {
                if found.len() < nodes as usize && !is_inside[peer as usize] {
                    is_inside[peer as usize] = true;
                    found.push(peer);
                }
            }
            next += 1;
        }
        is_inside
    }
}

/// A graph's way through a schedule of faults.
#[derive(Debug)]
pub struct Faults {
    schedule: Schedule,
    /// The position of the next fault.
    next: usize,
    /// The losses of links from before the faults, by direction.
    losses: BTreeMap<u32, u16>,
    /// By node: how many times it was stopped.
    lives: BTreeMap<u32, u32>,
}

impl Faults {
    /// Creates the way from the beginning of a schedule.
    pub fn new(schedule: Schedule) -> Self {
        Faults { schedule, next: 0, losses: BTreeMap::new(), lives: BTreeMap::new() }
    }

    /// Returns the schedule.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Advances a graph to `end`, with the faults that are due by then. A fault comes after all other events
    /// of its time. `make` creates the node that is started from its number, the number of times that it was
    /// stopped, and the time of its clock.
    pub fn run_until<N: GraphNode>(
        &mut self,
        graph: &mut Graph<N>,
        end: Time,
        mut make: impl FnMut(u32, u32, Time) -> N,
    ) -> Result<(), Error> {
        while let Some((at, fault)) = self.schedule.faults().get(self.next) {
            if *at > end {
                break;
            }
            graph.run_until(*at)?;
            self.apply(graph, *fault, &mut make)?;
            self.next += 1;
        }
        graph.run_until(end)
    }

    fn apply<N: GraphNode>(
        &mut self,
        graph: &mut Graph<N>,
        fault: Fault,
        make: &mut impl FnMut(u32, u32, Time) -> N,
    ) -> Result<(), Error> {
        let nodes = graph.len();
        let existing = |node: u32| match node < nodes {
            true => Ok(node),
            false => Err(Error::Unknown { what: "node", index: node }),
        };
        match fault {
            Fault::Start { node } if graph.node(existing(node)?).is_none() => {
                let life = self.lives.get(&node).copied().unwrap_or_default();
                graph.start(node, make(node, life, graph.local_time(node)))?;
            }
            Fault::Start { .. } => {}
            Fault::Crash { node } => {
                let stopped = graph.stop(node)?;
                *self.lives.entry(node).or_default() += u32::from(stopped.is_some());
            }
            Fault::Cut { a, b } => graph.cut(a, b)?,
            Fault::Mend { a, b } => graph.mend(a, b)?,
            Fault::Loss { a, b, loss } => {
                for link in graph.adjacency().between(a, b)? {
                    let before = graph.adjacency().link(link).loss;
                    self.losses.entry(link).or_insert(before);
                }
                graph.set_loss(a, b, loss)?;
            }
            Fault::EndLoss { a, b } => {
                for link in graph.adjacency().between(a, b)? {
                    if let Some(before) = self.losses.remove(&link) {
                        graph.medium.adjacency.set_share(link, before);
                    }
                }
            }
            Fault::Split { from, nodes } => {
                let is_inside = graph.medium.nearest(existing(from)?, nodes);
                graph.split(|node| is_inside[node as usize]);
            }
            Fault::Join { from, nodes } => {
                let is_inside = graph.medium.nearest(existing(from)?, nodes);
                graph.join(|node| is_inside[node as usize]);
            }
            Fault::Clock { node, shows, drift_ppm } => graph.set_clock(node, shows, drift_ppm)?,
        }
        Ok(())
    }
}
