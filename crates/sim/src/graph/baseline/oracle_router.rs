//! A router that knows the shortest paths.

use crate::graph::data::{DataNode, Delivery, write_contents};
use crate::graph::node::{Destination, GraphNode};
use crate::graph::oracle::Oracle;
use ringway_sansio::Time;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An index that no neighbour has: there are at most 65,535.
const NONE: u16 = u16::MAX;
/// Length of a header, which is that of IPv4.
pub(super) const HEADER: usize = 20;

/// Shortest paths, computed by destination when they are first needed. A destination takes two bytes for each
/// node.
#[derive(Debug)]
pub struct Paths {
    oracle: Oracle,
    /// By destination and node: the index of the next node.
    tables: Vec<Option<Box<[u16]>>>,
}

/// Paths that the nodes of a graph share, and that are replaced when the graph changes.
#[derive(Clone, Debug)]
pub struct SharedPaths(Arc<Mutex<Paths>>);

impl SharedPaths {
    /// Returns the paths, for one node at a time.
    pub fn lock(&self) -> MutexGuard<'_, Paths> {
        // What is computed of a table is never incomplete.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Paths {
    /// Creates the paths that an oracle knows.
    pub fn new(oracle: Oracle) -> Self {
        let tables = (0..oracle.len()).map(|_| None).collect();
        Paths { oracle, tables }
    }

    /// Returns the same, to be shared.
    pub fn shared(self) -> SharedPaths {
        SharedPaths(Arc::new(Mutex::new(self)))
    }

    /// Returns the index of the neighbour that is next from `node` to `to`; `None` if there is no path or the
    /// node is `to`.
    pub fn next(&mut self, node: u32, to: u32) -> Option<u16> {
        let table = self.tables.get_mut(to as usize)?;
        let table = table.get_or_insert_with(|| {
            let mut table = vec![NONE; self.oracle.len() as usize];
            for (node, before, hops) in self.oracle.reached(to) {
                if hops > 0 {
                    table[node as usize] = self.oracle.index_of(node, before).unwrap_or(NONE);
                }
            }
            table.into_boxed_slice()
        });
        table.get(node as usize).copied().filter(|index| *index != NONE)
    }

    /// Returns whether there is a path from `node` to `to`.
    pub fn reaches(&mut self, node: u32, to: u32) -> bool {
        (node == to && self.oracle.runs(node)) || self.next(node, to).is_some()
    }
}

/// The header of a packet on its way over several links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) to: u32,
    pub(super) from: u32,
    /// Links passed.
    pub(super) hops: u32,
}

impl Header {
    pub(super) fn write(self, out: &mut Vec<u8>) {
        for word in [self.to, self.from, self.hops, 0, 0] {
            out.extend_from_slice(&word.to_be_bytes());
        }
    }

    /// Returns the header and the contents of a packet.
    pub(super) fn parse(bytes: &[u8]) -> Option<(Header, &[u8])> {
        let (header, contents) = bytes.split_at_checked(HEADER)?;
        let word = |at: usize| Some(u32::from_be_bytes(header.get(at..at + 4)?.try_into().ok()?));
        Some((Header { to: word(0)?, from: word(4)?, hops: word(8)? }, contents))
    }
}

/// The part of a node that forwards packets by shared paths.
#[derive(Debug)]
pub(super) struct Underlay {
    pub(super) number: u32,
    paths: SharedPaths,
    /// Packets to be sent, and the neighbours they are for.
    pending: VecDeque<(u16, Vec<u8>)>,
}

impl Underlay {
    pub(super) fn new(number: u32, paths: SharedPaths) -> Self {
        Underlay { number, paths, pending: VecDeque::new() }
    }

    /// Returns whether a packet to a node would arrive.
    pub(super) fn reaches(&self, to: u32) -> bool {
        self.paths.lock().reaches(self.number, to)
    }

    /// Sends a packet, if there is a path. It passes one link more than `header` says.
    pub(super) fn send(&mut self, header: Header, contents: &[u8]) {
        let Some(next) = self.paths.lock().next(self.number, header.to) else { return };
        let mut packet = Vec::with_capacity(HEADER + contents.len());
        Header { hops: header.hops + 1, ..header }.write(&mut packet);
        packet.extend_from_slice(contents);
        self.pending.push_back((next, packet));
    }

    /// Returns a packet that has arrived, and sends it on if it has not.
    pub(super) fn receive<'a>(&mut self, bytes: &'a [u8]) -> Option<(Header, &'a [u8])> {
        let (header, contents) = Header::parse(bytes)?;
        if header.to != self.number {
            self.send(header, contents);
            return None;
        }
        Some((header, contents))
    }

    pub(super) fn poll_transmit(&mut self, bytes: &mut Vec<u8>) -> Option<Destination> {
        let (next, packet) = self.pending.pop_front()?;
        bytes.extend_from_slice(&packet);
        Some(Destination::Neighbour(next))
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.pending.capacity() * size_of::<(u16, Vec<u8>)>()
            + self.pending.iter().map(|(_, packet)| packet.capacity()).sum::<usize>()
    }
}

/// A router that forwards data by shortest paths, which nobody pays for.
#[derive(Debug)]
pub struct OracleRouter {
    underlay: Underlay,
    delivered: VecDeque<Delivery>,
}

impl OracleRouter {
    /// Creates the node `number`.
    pub fn new(number: u32, paths: SharedPaths) -> Self {
        OracleRouter { underlay: Underlay::new(number, paths), delivered: VecDeque::new() }
    }

    fn deliver(&mut self, at: Time, hops: u32, contents: &[u8]) {
        if let Some(number) = contents.first_chunk() {
            let number = u32::from_be_bytes(*number);
            self.delivered.push_back(Delivery { number, at, hops });
        }
    }
}

impl GraphNode for OracleRouter {
    fn handle_packet(&mut self, now: Time, _: u16, bytes: &mut [u8]) {
        if let Some((header, contents)) = self.underlay.receive(bytes) {
            self.deliver(now, header.hops, contents);
        }
    }

    fn handle_timeout(&mut self, _: Time) {}

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn poll_transmit(&mut self, _: Time, bytes: &mut Vec<u8>) -> Option<Destination> {
        self.underlay.poll_transmit(bytes)
    }

    fn heap_bytes(&self) -> usize {
        self.underlay.heap_bytes() + self.delivered.capacity() * size_of::<Delivery>()
    }
}

impl DataNode for OracleRouter {
    fn send_data(&mut self, now: Time, to: u32, number: u32, len: u16) {
        let mut contents = Vec::new();
        write_contents(&mut contents, number, len);
        if to == self.underlay.number {
            return self.deliver(now, 0, &contents);
        }
        self.underlay.send(Header { to, from: self.underlay.number, hops: 0 }, &contents);
    }

    fn poll_delivery(&mut self) -> Option<Delivery> {
        self.delivered.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Adjacency, Graph, LinkModel, Pair, Topology, Trial};
    use ringway_sansio::{Duration, SplitMix};

    #[test]
    fn data_takes_the_shortest_paths_of_the_moment() {
        let topology = Topology::disk(300, 9.0, &mut SplitMix::new(1)).largest_part();
        let links = Adjacency::new(&topology, |_, _| LinkModel::new(Duration::from_millis(1)));
        let links = links.unwrap();
        let paths = Paths::new(Oracle::whole(&links)).shared();
        let mut graph = Graph::new(links, 1, |node| OracleRouter::new(node, paths.clone()));
        let pairs = Oracle::of(&graph).pairs(20, 10, 0, &mut SplitMix::new(2));
        let mut trial = Trial::new(&graph);
        trial.send_all(&mut graph, &pairs, 80, Duration::from_secs(2)).unwrap();
        graph.run_until(Time::from_secs(3)).unwrap();
        let outcome = trial.outcome(&mut graph).unwrap();
        assert_eq!((outcome.sent, outcome.delivered, outcome.duplicates), (200, 200, 0));
        assert_eq!((outcome.stretch(), outcome.delivery()), (1.0, 1.0));
        assert_eq!((outcome.packets, outcome.bytes), (outcome.hops, 100 * outcome.hops));
        assert_eq!(outcome.delay, Duration::from_millis(1) * outcome.hops as u32);

        // A node on the way crashes. Packets over it are lost until the paths are new.
        let Pair { from, to, .. } = *pairs.iter().max_by_key(|pair| pair.hops).unwrap();
        let next = paths.lock().next(from, to).unwrap();
        let crashed = graph.adjacency().neighbours(from).nth(next.into()).unwrap();
        graph.stop(crashed).unwrap();
        let hops = Oracle::of(&graph).hops(from)[to as usize].unwrap();
        let pair = Pair { from, to, hops };
        let mut trial = Trial::new(&graph);
        trial.send_all(&mut graph, &[pair], 80, Duration::from_secs(1)).unwrap();
        assert_eq!(trial.outcome(&mut graph).unwrap().delivered, 0);
        *paths.lock() = Paths::new(Oracle::of(&graph));
        trial.send_all(&mut graph, &[pair], 80, Duration::from_secs(1)).unwrap();
        let outcome = trial.outcome(&mut graph).unwrap();
        assert_eq!((outcome.delivered, outcome.hops), (1, hops.into()));
        // The crashed node neither sends nor is reached.
        for (from, to) in [(crashed, to), (from, crashed)] {
            trial.send(&mut graph, Pair { from, to, hops: 1 }, 80).unwrap();
        }
        graph.run_until(Time::from_secs(60)).unwrap();
        let outcome = trial.outcome(&mut graph).unwrap();
        assert_eq!((outcome.sent, outcome.delivered), (3, 1));
    }
}
