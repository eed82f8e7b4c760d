//! Data from node to node, and what became of it. Every protocol that carries data is tried in the same way.

use super::engine::{Medium, Totals};
use super::node::GraphNode;
use super::oracle::Pair;
use super::world::Graph;
use crate::error::Error;
use ringway_sansio::{Duration, Time};

/// Minimum length of a data packet's contents, which begin with its number.
pub const MIN_CONTENTS: u16 = 4;

/// A data packet that arrived at its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The number that it was sent with.
    pub number: u32,
    /// The time when it arrived.
    pub at: Time,
    /// The number of links that it passed.
    pub hops: u32,
}

/// A node that carries data.
pub trait DataNode: GraphNode {
    /// Sends a data packet with `len` bytes of contents, at least [`MIN_CONTENTS`], to the node `to`.
    fn send_data(&mut self, now: Time, to: u32, number: u32, len: u16);

    /// Returns the next data packet that arrived here.
    fn poll_delivery(&mut self) -> Option<Delivery>;
}

/// Appends the contents of a data packet.
pub(super) fn write_contents(out: &mut Vec<u8>, number: u32, len: u16) {
    out.extend_from_slice(&number.to_be_bytes());
    out.resize(out.len() + usize::from(len.saturating_sub(MIN_CONTENTS)), 0);
}

/// A data packet that was sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Time,
    shortest: u32,
    is_delivered: bool,
}

/// What became of the data packets of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Data packets sent by nodes that ran.
    pub sent: u32,
    /// Those that arrived.
    pub delivered: u32,
    /// Arrivals of a packet that had arrived.
    pub duplicates: u32,
    /// Links that those which arrived had passed.
    pub hops: u64,
    /// Links that they would have passed by shortest paths.
    pub shortest: u64,
    /// The sum of the times from sending to arrival, and the longest.
    pub delay: Duration,
    /// The longest time from sending to arrival.
    pub max_delay: Duration,
    /// Transmissions of all packets, also of those without data, since the trial began.
    pub packets: u64,
    /// Bytes of these transmissions.
    pub bytes: u64,
}

impl Outcome {
    /// Returns the share of packets that arrived, or 1 if none was sent.
    pub fn delivery(&self) -> f64 {
        if self.sent == 0 { 1.0 } else { f64::from(self.delivered) / f64::from(self.sent) }
    }

    /// Returns how many times longer the paths were than the shortest ones, or 1 if nothing arrived.
    pub fn stretch(&self) -> f64 {
        if self.shortest == 0 { 1.0 } else { self.hops as f64 / self.shortest as f64 }
    }

    /// Returns the bytes transmitted for each packet that arrived; infinite if none did.
    pub fn bytes_each(&self) -> f64 {
        self.bytes as f64 / f64::from(self.delivered)
    }
}

/// Data packets that are sent in a graph and counted where they arrive. Their number is their position.
#[derive(Debug)]
pub struct Trial {
    sent: Vec<Sent>,
    before: Totals,
    outcome: Outcome,
}

impl Trial {
    /// Begins a trial; what is transmitted from now on is counted.
    pub fn new<N: DataNode, M: Medium<N>>(graph: &Graph<N, M>) -> Self {
        Trial { sent: Vec::new(), before: graph.totals(), outcome: Outcome::default() }
    }

    /// Sends a packet with `len` bytes of contents, unless its source does not run.
    pub fn send<N: DataNode, M: Medium<N>>(
        &mut self,
        graph: &mut Graph<N, M>,
        pair: Pair,
        len: u16,
    ) -> Result<(), Error> {
        let number = self.sent.len() as u32;
        let at = graph.now();
        // It may arrive within the call.
        self.sent.push(Sent { at, shortest: pair.hops, is_delivered: false });
        let call = |node: &mut N, now| node.send_data(now, pair.to, number, len.max(MIN_CONTENTS));
        match graph.with_node(pair.from, call)? {
            Some(()) => self.outcome.sent += 1,
            None => self.sent.truncate(number as usize),
        }
        Ok(())
    }

    /// Sends a packet from and to each pair, evenly spread over a time that passes meanwhile.
    pub fn send_all<N: DataNode, M: Medium<N>>(
        &mut self,
        graph: &mut Graph<N, M>,
        pairs: &[Pair],
        len: u16,
        over: Duration,
    ) -> Result<(), Error> {
        let (begin, each) = (graph.now(), over / pairs.len().max(1) as u32);
        for (index, pair) in (0..).zip(pairs) {
            graph.run_until(begin + each * index)?;
            self.send(graph, *pair, len)?;
        }
        graph.run_until(begin + over)
    }

    /// Returns what became of the packets so far. Times are exact if clocks are.
    pub fn outcome<N: DataNode, M: Medium<N>>(
        &mut self,
        graph: &mut Graph<N, M>,
    ) -> Result<Outcome, Error> {
        for node in 0..graph.len() {
            while let Some(Some(delivery)) =
                graph.with_node(node, |node, _| node.poll_delivery())?
            {
                self.count(delivery);
            }
        }
        let totals = graph.totals();
        self.outcome.packets = totals.sent - self.before.sent;
        self.outcome.bytes = totals.sent_bytes - self.before.sent_bytes;
        Ok(self.outcome)
    }

    fn count(&mut self, delivery: Delivery) {
        let Some(sent) = self.sent.get_mut(delivery.number as usize) else { return };
        if core::mem::replace(&mut sent.is_delivered, true) {
            self.outcome.duplicates += 1;
            return;
        }
        let delay = delivery.at.since(sent.at);
        self.outcome.delivered += 1;
        self.outcome.hops += u64::from(delivery.hops);
        self.outcome.shortest += u64::from(sent.shortest);
        self.outcome.delay += delay;
        self.outcome.max_delay = self.outcome.max_delay.max(delay);
    }
}
