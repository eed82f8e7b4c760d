//! Chord (Stoica et al. 2001) as peer-to-peer SIP uses it: an overlay above a network that already routes.
//!
//! Every message of the overlay goes by the shortest path below, whose links are counted. The network below costs
//! nothing to run and reports at once that a node cannot be reached, so the figures are better than those of a real
//! one. A node that gets a new predecessor reports it to the old one, without which a ring takes hours to settle. Two
//! rings that formed apart are not merged, which Chord has no rule for.

use super::oracle_router::{Header, SharedPaths, Underlay};
use crate::graph::data::{DataNode, Delivery, write_contents};
use crate::graph::engine::mix;
use crate::graph::node::{Destination, GraphNode};
use crate::graph::random::below;
use ringway_sansio::{Duration, SplitMix, Time};
use std::collections::VecDeque;

/// Interval at which a node asks its successor for its neighbours.
pub const STABILISE: Duration = Duration::from_secs(20);
/// Interval at which a node looks up its fingers.
pub const FIX_FINGERS: Duration = Duration::from_secs(120);
/// Maximum length of the successor list.
pub const SUCCESSORS: usize = 8;
/// Maximum number of overlay hops of a message, which ends loops while the ring is not settled.
const MAX_OVERLAY_HOPS: u8 = 64;
/// Number of fingers, one for each bit of an id.
const FINGERS: usize = 64;
/// The number of a look-up for a position on the ring.
const JOIN: u8 = FINGERS as u8;
/// A node that does not exist.
const NOBODY: u32 = u32::MAX;

/// Returns the position of a node on the ring.
pub fn id(number: u32) -> u64 {
    mix(0x0063_686f_7264, number)
}

/// Returns the numbers of the first nodes in the order of their positions.
pub fn ring(nodes: u32) -> Vec<u32> {
    let mut ring: Vec<u32> = (0..nodes).collect();
    ring.sort_unstable_by_key(|number| id(*number));
    ring
}

/// A message of the overlay. A node is written as its id and its number, which are 12 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Message {
    /// Looks for the node that is responsible for a key.
    Find { token: u8, overlay_hops: u8, origin: u32, key: u64 },
    /// Names it.
    Found { token: u8, owner: u32 },
    /// Asks for neighbours.
    Stabilise,
    /// The predecessor, or [`NOBODY`], and the successors.
    Neighbours { predecessor: u32, successors: Vec<u32> },
    /// The sender may be the receiver's predecessor.
    Notify,
    /// A node that joined behind the receiver.
    Hint { node: u32 },
    /// Data for the node with an id.
    Data { overlay_hops: u8, key: u64, contents: Vec<u8> },
}

impl Message {
    fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let node = |out: &mut Vec<u8>, number: u32| {
            out.extend_from_slice(&id(number).to_be_bytes());
            out.extend_from_slice(&number.to_be_bytes());
        };
        match self {
            Message::Find { token, overlay_hops, origin, key } => {
                out.extend_from_slice(&[1, *token, *overlay_hops, 0]);
                node(&mut out, *origin);
                out.extend_from_slice(&key.to_be_bytes());
            }
            Message::Found { token, owner } => {
                out.extend_from_slice(&[2, *token, 0, 0]);
                node(&mut out, *owner);
            }
            Message::Stabilise => out.extend_from_slice(&[3, 0, 0, 0]),
            Message::Neighbours { predecessor, successors } => {
                out.extend_from_slice(&[4, 0, 0, successors.len() as u8]);
                [predecessor].into_iter().chain(successors).for_each(|n| node(&mut out, *n));
            }
            Message::Notify => out.extend_from_slice(&[5, 0, 0, 0]),
            Message::Hint { node: hint } => {
                out.extend_from_slice(&[7, 0, 0, 0]);
                node(&mut out, *hint);
            }
            Message::Data { overlay_hops, key, contents } => {
                out.extend_from_slice(&[6, 0, *overlay_hops, 0]);
                out.extend_from_slice(&key.to_be_bytes());
                out.extend_from_slice(contents);
            }
        }
        out
    }

    fn parse(bytes: &[u8]) -> Option<Message> {
        let ([kind, token, overlay_hops, count], rest) = bytes.split_first_chunk()?;
        let node = |index: usize| {
            let number = rest.get(12 * index + 8..12 * index + 12)?;
            Some(u32::from_be_bytes(number.try_into().ok()?))
        };
        let key = |at: usize| Some(u64::from_be_bytes(rest.get(at..at + 8)?.try_into().ok()?));
        let (token, overlay_hops) = (*token, *overlay_hops);
        Some(match kind {
            1 => Message::Find { token, overlay_hops, origin: node(0)?, key: key(12)? },
            2 => Message::Found { token, owner: node(0)? },
            3 => Message::Stabilise,
            4 => Message::Neighbours {
                predecessor: node(0)?,
                successors: (1..=usize::from(*count)).map(node).collect::<Option<_>>()?,
            },
            5 => Message::Notify,
            7 => Message::Hint { node: node(0)? },
            6 => Message::Data { overlay_hops, key: key(0)?, contents: rest.get(8..)?.to_vec() },
            _ => return None,
        })
    }
}

/// The next step of a message to a key.
enum Step {
    /// This node is responsible.
    Here,
    /// The successor is responsible.
    Successor(u32),
    /// Another node is nearer.
    On(u32),
}

/// A node of the overlay, which is a router of the network below as well.
#[derive(Debug)]
pub struct Chord {
    underlay: Underlay,
    /// A node of the ring, through which this one joins.
    via: Option<u32>,
    successors: Vec<u32>,
    predecessor: u32,
    fingers: [u32; FINGERS],
    stabilise_at: Time,
    fix_at: Time,
    forwarded: u64,
    delivered: VecDeque<Delivery>,
}

impl Chord {
    /// Creates the node `number` at the time of its start. It joins the ring that `via` belongs to; without, it is
    /// the first.
    pub fn new(
        number: u32,
        now: Time,
        via: Option<u32>,
        paths: SharedPaths,
        mut random: SplitMix,
    ) -> Self {
        let phase = Duration::from_nanos(below(&mut random, STABILISE.as_nanos() as u64));
        Chord {
            underlay: Underlay::new(number, paths),
            via: via.filter(|via| *via != number),
            successors: Vec::new(),
            predecessor: NOBODY,
            fingers: [NOBODY; FINGERS],
            stabilise_at: now,
            fix_at: now + STABILISE + phase,
            forwarded: 0,
            delivered: VecDeque::new(),
        }
    }

    /// Creates the node `number` of a [`ring`] that has settled: it has the neighbours and fingers that look-ups would
    /// find. `None` if the ring does not have the node.
    pub fn settled(
        number: u32,
        now: Time,
        ring: &[u32],
        paths: SharedPaths,
        mut random: SplitMix,
    ) -> Option<Self> {
        let own = id(number);
        let at = ring.binary_search_by_key(&own, |node| id(*node)).ok()?;
        let others = |ahead: usize| ring[(at + ahead) % ring.len()];
        let mut fingers = [NOBODY; FINGERS];
        for (token, finger) in fingers.iter_mut().enumerate() {
            let key = own.wrapping_add(1 << token);
            let owner = ring.partition_point(|node| id(*node) < key) % ring.len();
            if key.wrapping_sub(own) > id(others(1)).wrapping_sub(own) && owner != at {
                *finger = ring[owner];
            }
        }
        let mut phase = |period: Duration| {
            now + Duration::from_nanos(below(&mut random, period.as_nanos() as u64))
        };
        Some(Chord {
            underlay: Underlay::new(number, paths),
            via: None,
            successors: (1..ring.len().min(SUCCESSORS + 1)).map(others).collect(),
            predecessor: if ring.len() > 1 { others(ring.len() - 1) } else { NOBODY },
            fingers,
            stabilise_at: phase(STABILISE),
            fix_at: phase(FIX_FINGERS),
            forwarded: 0,
            delivered: VecDeque::new(),
        })
    }

    /// Returns the successor; `None` if the node is alone.
    pub fn successor(&self) -> Option<u32> {
        self.successors.first().copied()
    }

    /// Returns the number of data packets sent on over the overlay, their first hops counted.
    pub fn forwarded(&self) -> u64 {
        self.forwarded
    }

    /// Sends a data packet by the shortest path below, as a node does that has found out where to.
    pub fn send_direct(&mut self, to: u32, number: u32, len: u16) {
        let mut contents = Vec::new();
        write_contents(&mut contents, number, len);
        self.send(to, 0, &Message::Data { overlay_hops: 0, key: id(to), contents });
    }

    fn number(&self) -> u32 {
        self.underlay.number
    }

    /// Returns the way along the ring from this node to a key.
    fn distance(&self, key: u64) -> u64 {
        key.wrapping_sub(id(self.number()))
    }

    fn send(&mut self, to: u32, hops: u32, message: &Message) {
        let header = Header { to, from: self.number(), hops };
        self.underlay.send(header, &message.write());
    }

    /// Removes what the network below cannot reach.
    fn drop_unreachable(&mut self) {
        let underlay = &self.underlay;
        self.successors.retain(|node| underlay.reaches(*node));
        for node in self.fingers.iter_mut().chain([&mut self.predecessor]) {
            if *node != NOBODY && !underlay.reaches(*node) {
                *node = NOBODY;
            }
        }
    }

    /// Returns the known node that is nearest before a key, as long as it is reached.
    fn closest_before(&self, key: u64) -> Option<u32> {
        let known = self.fingers.iter().chain(&self.successors).copied();
        let mut before: Vec<u32> = known.filter(|node| *node != NOBODY).collect();
        before.retain(|node| self.distance(id(*node)) < self.distance(key));
        before.sort_unstable_by_key(|node| core::cmp::Reverse(self.distance(id(*node))));
        before.into_iter().find(|node| self.underlay.reaches(*node))
    }

    fn step(&mut self, key: u64) -> Step {
        if self.predecessor != NOBODY && !self.underlay.reaches(self.predecessor) {
            self.predecessor = NOBODY;
        }
        let own = id(self.number());
        let is_own = key == own
            || (self.predecessor != NOBODY
                && own.wrapping_sub(key) < own.wrapping_sub(id(self.predecessor)));
        if is_own {
            return Step::Here;
        }
        let underlay = &self.underlay;
        self.successors.retain(|node| underlay.reaches(*node));
        let Some(successor) = self.successor() else { return Step::Here };
        if self.distance(key) <= self.distance(id(successor)) {
            return Step::Successor(successor);
        }
        Step::On(self.closest_before(key).unwrap_or(successor))
    }

    fn find(&mut self, token: u8, overlay_hops: u8, origin: u32, key: u64) {
        let owner = match self.step(key) {
            Step::Here => self.number(),
            Step::Successor(successor) => successor,
            Step::On(_) if overlay_hops >= MAX_OVERLAY_HOPS => return,
            Step::On(next) => {
                let overlay_hops = overlay_hops + 1;
                return self.send(next, 0, &Message::Find { token, overlay_hops, origin, key });
            }
        };
        if origin == self.number() {
            return self.found(token, owner);
        }
        self.send(origin, 0, &Message::Found { token, owner });
    }

    fn found(&mut self, token: u8, owner: u32) {
        let own = self.number();
        if let Some(finger) = self.fingers.get_mut(usize::from(token)) {
            *finger = if owner == own { NOBODY } else { owner };
        } else if owner != own {
            self.add_successors([owner]);
            self.stabilise();
        }
    }

    /// Adds nodes to the successors, as far as they are among the nearest.
    fn add_successors(&mut self, nodes: impl IntoIterator<Item = u32>) {
        let own = self.number();
        let underlay = &self.underlay;
        let new = nodes.into_iter().filter(|node| *node != own && underlay.reaches(*node));
        self.successors.extend(new);
        self.successors.sort_unstable_by_key(|node| id(*node).wrapping_sub(id(own)));
        self.successors.dedup();
        self.successors.truncate(SUCCESSORS);
    }

    /// Joins the ring, or asks the successor for its neighbours.
    fn stabilise(&mut self) {
        self.drop_unreachable();
        if let Some(successor) = self.successor() {
            return self.send(successor, 0, &Message::Stabilise);
        }
        let known = self.fingers.into_iter().chain([self.predecessor]);
        let known = known.filter(|node| *node != NOBODY).chain(self.via);
        let mut known = known.filter(|node| self.underlay.reaches(*node));
        if let Some(via) = known.next() {
            let (origin, key) = (self.number(), id(self.number()).wrapping_add(1));
            let find = Message::Find { token: JOIN, overlay_hops: 0, origin, key };
            self.send(via, 0, &find);
        }
    }

    /// Looks up the fingers that are beyond the successor.
    fn fix_fingers(&mut self) {
        let Some(successor) = self.successor() else { return };
        let near = self.distance(id(successor));
        for token in 0..JOIN {
            let ahead = 1u64 << token;
            if ahead <= near {
                self.fingers[usize::from(token)] = NOBODY;
            } else {
                self.find(token, 0, self.number(), id(self.number()).wrapping_add(ahead));
            }
        }
    }

    fn handle_neighbours(&mut self, from: u32, predecessor: u32, successors: Vec<u32>) {
        // The list is that of the successor, behind it; what it no longer has is gone.
        if self.successor() == Some(from) {
            self.successors.truncate(1);
        }
        self.add_successors([from]);
        let between = [predecessor].into_iter().filter(|node| *node != NOBODY);
        self.add_successors(between.chain(successors));
        if let Some(successor) = self.successor() {
            self.send(successor, 0, &Message::Notify);
        }
    }

    fn handle_notify(&mut self, from: u32) {
        let behind = |node: u32| id(self.number()).wrapping_sub(id(node));
        let known = self.predecessor;
        let is_reached = known != NOBODY && self.underlay.reaches(known);
        if !is_reached || behind(from) < behind(known) {
            self.predecessor = from;
            if is_reached {
                self.send(known, 0, &Message::Hint { node: from });
            }
        }
        if self.successors.is_empty() {
            self.add_successors([from]);
        }
    }

    fn data(&mut self, now: Time, hops: u32, overlay_hops: u8, key: u64, contents: Vec<u8>) {
        if key == id(self.number()) {
            if let Some(number) = contents.first_chunk() {
                let number = u32::from_be_bytes(*number);
                self.delivered.push_back(Delivery { number, at: now, hops });
            }
            return;
        }
        let (Step::Successor(next) | Step::On(next)) = self.step(key) else { return };
        if overlay_hops < MAX_OVERLAY_HOPS {
            self.forwarded += 1;
            let overlay_hops = overlay_hops + 1;
            self.send(next, hops, &Message::Data { overlay_hops, key, contents });
        }
    }
}

impl GraphNode for Chord {
    fn handle_packet(&mut self, now: Time, _: u16, bytes: &mut [u8]) {
        let Some((header, contents)) = self.underlay.receive(bytes) else { return };
        match Message::parse(contents) {
            None => {}
            Some(Message::Find { token, overlay_hops, origin, key }) => {
                self.find(token, overlay_hops, origin, key);
            }
            Some(Message::Found { token, owner }) => self.found(token, owner),
            Some(Message::Stabilise) => {
                let (predecessor, successors) = (self.predecessor, self.successors.clone());
                let neighbours = Message::Neighbours { predecessor, successors };
                self.send(header.from, 0, &neighbours);
            }
            Some(Message::Neighbours { predecessor, successors }) => {
                self.handle_neighbours(header.from, predecessor, successors);
            }
            Some(Message::Notify) => self.handle_notify(header.from),
            Some(Message::Hint { node }) => {
                let before = self.successor();
                self.add_successors([node]);
                if self.successor() != before {
                    self.stabilise();
                }
            }
            Some(Message::Data { overlay_hops, key, contents }) => {
                self.data(now, header.hops, overlay_hops, key, contents);
            }
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.stabilise_at <= now {
            self.stabilise_at = now + STABILISE;
            self.stabilise();
        }
        if self.fix_at <= now {
            self.fix_at = now + FIX_FINGERS;
            self.fix_fingers();
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        Some(self.stabilise_at.min(self.fix_at))
    }

    fn poll_transmit(&mut self, _: Time, bytes: &mut Vec<u8>) -> Option<Destination> {
        self.underlay.poll_transmit(bytes)
    }

    fn heap_bytes(&self) -> usize {
        self.underlay.heap_bytes()
            + self.successors.capacity() * size_of::<u32>()
            + self.delivered.capacity() * size_of::<Delivery>()
    }
}

impl DataNode for Chord {
    fn send_data(&mut self, now: Time, to: u32, number: u32, len: u16) {
        let mut contents = Vec::new();
        write_contents(&mut contents, number, len);
        self.data(now, 0, 0, id(to), contents);
    }

    fn poll_delivery(&mut self) -> Option<Delivery> {
        self.delivered.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::baseline::Paths;
    use crate::graph::{
        Adjacency, Faults, Graph, LinkModel, Oracle, Schedule, Topology, Trial, node_random,
    };

    /// Nodes that join through the first one, one each three seconds in the mean, and ten minutes more. If all join
    /// at once, the ring takes hours to settle.
    fn joined(nodes: u32) -> (Graph<Chord>, SharedPaths) {
        let topology = Topology::disk(nodes, 12.0, &mut SplitMix::new(1)).largest_part();
        let links = Adjacency::new(&topology, |_, _| LinkModel::new(Duration::from_millis(1)));
        let links = links.unwrap();
        let paths = Paths::new(Oracle::whole(&links)).shared();
        let mut graph = Graph::idle(links, 1);
        let all = Duration::from_secs(3) * nodes;
        let starts = Schedule::starts(graph.len(), Time::ZERO, all, 5);
        let mut faults = Faults::new(starts);
        let mut first = None;
        let mut make = |number, life, now| {
            let via = *first.get_or_insert(number);
            Chord::new(number, now, Some(via), paths.clone(), node_random(3, number, life))
        };
        faults.run_until(&mut graph, Time::from_secs(600) + all, &mut make).unwrap();
        (graph, paths)
    }

    /// Returns the number of nodes whose successor is not the next one on the ring.
    fn wrong_successors(graph: &Graph<Chord>) -> usize {
        let mut ring: Vec<u32> = graph.numbered().map(|(number, _)| number).collect();
        ring.sort_unstable_by_key(|number| id(*number));
        let next = ring.iter().cycle().skip(1);
        let is_wrong = |(number, next): &(&u32, &u32)| {
            graph.node(**number).and_then(Chord::successor) != Some(**next)
        };
        ring.iter().zip(next).filter(is_wrong).count()
    }

    /// A node of a settled ring knows what it would know had it joined.
    #[test]
    fn a_settled_ring_is_one_that_all_have_joined() {
        let (graph, paths) = joined(100);
        let ring = ring(graph.len());
        for (number, joined) in graph.numbered() {
            let random = node_random(3, number, 0);
            let settled = Chord::settled(number, graph.now(), &ring, paths.clone(), random);
            let settled = settled.unwrap();
            assert_eq!(settled.successors, joined.successors, "{number}");
            assert_eq!(settled.predecessor, joined.predecessor, "{number}");
            assert_eq!(settled.fingers, joined.fingers, "{number}");
        }
    }

    #[test]
    fn messages_are_parsed_as_they_were_written() {
        let messages = [
            (Message::Find { token: 3, overlay_hops: 2, origin: 7, key: 1 << 60 }, 24),
            (Message::Found { token: JOIN, owner: 5 }, 16),
            (Message::Stabilise, 4),
            (Message::Neighbours { predecessor: NOBODY, successors: vec![1, 2, 3] }, 52),
            (Message::Notify, 4),
            (Message::Hint { node: 4 }, 16),
            (Message::Data { overlay_hops: 1, key: 9, contents: vec![1, 2, 3, 4] }, 16),
        ];
        for (message, len) in messages {
            let bytes = message.write();
            assert_eq!((bytes.len(), Message::parse(&bytes)), (len, Some(message)));
            assert!(
                (0..bytes.len().min(12))
                    .all(|len| len >= 4 || Message::parse(&bytes[..len]).is_none())
            );
        }
        assert_eq!(Message::parse(&[8, 0, 0, 0]), None);
    }

    #[test]
    fn look_ups_take_a_logarithmic_number_of_overlay_hops() {
        let mut means = Vec::new();
        for nodes in [60, 500] {
            let (mut graph, _) = joined(nodes);
            assert_eq!(wrong_successors(&graph), 0, "{nodes} nodes");
            let pairs = Oracle::of(&graph).pairs(20, 10, 1, &mut SplitMix::new(2));
            let mut trial = Trial::new(&graph);
            trial.send_all(&mut graph, &pairs, 100, Duration::from_secs(2)).unwrap();
            graph.run_until(graph.now() + Duration::from_secs(5)).unwrap();
            let outcome = trial.outcome(&mut graph).unwrap();
            assert_eq!((outcome.sent, outcome.delivered, outcome.duplicates), (200, 200, 0));
            assert!((1.5..6.0).contains(&outcome.stretch()), "{outcome:?}");
            let forwarded: u64 = graph.nodes().map(Chord::forwarded).sum();
            means.push(forwarded as f64 / 200.0);
        }
        // Half the binary logarithm: 3.0 and 4.5.
        assert!((2.0..3.8).contains(&means[0]) && (3.3..5.5).contains(&means[1]), "{means:?}");
    }

    #[test]
    fn the_ring_closes_around_nodes_that_are_gone() {
        let (mut graph, paths) = joined(150);
        for number in (0..graph.len()).step_by(10) {
            graph.stop(number).unwrap();
        }
        *paths.lock() = Paths::new(Oracle::of(&graph));
        graph.run_until(graph.now() + 10 * STABILISE).unwrap();
        let parts = Oracle::of(&graph).parts();
        assert_eq!(parts.sizes().len(), 1, "the test needs one part");
        assert_eq!(wrong_successors(&graph), 0);
        let pairs = Oracle::of(&graph).pairs(10, 10, 1, &mut SplitMix::new(2));
        let mut trial = Trial::new(&graph);
        trial.send_all(&mut graph, &pairs, 100, Duration::from_secs(1)).unwrap();
        graph.run_until(graph.now() + Duration::from_secs(5)).unwrap();
        assert_eq!(trial.outcome(&mut graph).unwrap().delivered, 100);
    }
}
