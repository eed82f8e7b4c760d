//! The links of all nodes in one array.

use super::queue::Queues;
use super::topology::Topology;
use crate::error::Error;
use crate::events::MAX_NODES;
use ringway_link::{Chance, Rate};
use ringway_sansio::{Duration, Time};

/// Maximum number of neighbours of a node.
pub const MAX_DEGREE: usize = u16::MAX as usize;
/// The loss of a link on which every packet is lost.
const ALL: u16 = u16::MAX;

/// One direction of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkModel {
    /// Time from sending to arrival, in whole microseconds from 1 to 2^32 - 1: a shorter one is extended and
    /// a longer one shortened.
    pub delay: Duration,
    /// Probability that a packet is lost after it was sent, in steps of 1/65,535.
    pub loss: Chance,
    /// Rate at which packets are sent, one after another.
    pub rate: Rate,
    /// Maximum time that a packet waits for those before it; one that would wait longer is dropped.
    pub max_wait: Duration,
}

impl LinkModel {
    /// Creates a link with a delay, and without loss and limit of its rate.
    pub const fn new(delay: Duration) -> Self {
        let (loss, rate) = (Chance::NEVER, Rate::UNLIMITED);
        LinkModel { delay, loss, rate, max_wait: Duration::ZERO }
    }
}

/// A link in the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// The node at its end.
    pub(super) peer: u32,
    pub(super) delay_us: u32,
    /// Probability of loss, as a share of [`ALL`].
    pub(super) loss: u16,
    /// The index that the link back has among those of the peer.
    pub(super) back: u16,
}

impl Link {
    /// Returns the time of arrival of a packet sent at `sent`.
    #[inline]
    pub(super) fn arrival(&self, sent: Time) -> Time {
        Time::from_nanos(sent.as_nanos() + u64::from(self.delay_us) * 1000)
    }

    /// Returns the time when a packet was sent that arrives at `arrival`.
    #[inline]
    pub(super) fn sent(&self, arrival: Time) -> Time {
        Time::from_nanos(arrival.as_nanos().saturating_sub(u64::from(self.delay_us) * 1000))
    }

    /// Returns whether a packet is lost, by 64 random bits.
    #[inline]
    pub(super) fn loses(&self, bits: u64) -> bool {
        let share = (u128::from(bits) * u128::from(ALL)) >> 64;
        share < u128::from(self.loss)
    }

    /// Returns whether every packet is lost.
    pub(super) fn loses_all(&self) -> bool {
        self.loss == ALL
    }
}

/// The links that leave each node, in the order of their delays. The index of a link among those of its
/// node is the node's name for the neighbour at its end.
#[derive(Clone, Debug)]
pub struct Adjacency {
    /// By node: its first link; and the end of the last.
    starts: Vec<u32>,
    links: Vec<Link>,
    queues: Queues,
}

impl Adjacency {
    /// Creates the links of a graph. `model` returns the link from one node to another, for both directions.
    pub fn new(topology: &Topology, model: impl Fn(u32, u32) -> LinkModel) -> Result<Self, Error> {
        let (nodes, edges) = (topology.nodes() as usize, topology.edges());
        if topology.nodes() > MAX_NODES {
            return Err(Error::TooMany { what: "nodes", max: MAX_NODES.into() });
        }
        if edges.len() >= u32::MAX as usize / 2 {
            return Err(Error::TooMany { what: "links", max: u64::from(u32::MAX / 2) });
        }
        let mut starts = vec![0u32; nodes + 1];
        edges.iter().flatten().for_each(|node| starts[*node as usize + 1] += 1);
        if starts.iter().any(|degree| *degree as usize > MAX_DEGREE) {
            return Err(Error::TooMany { what: "neighbours of a node", max: MAX_DEGREE as u64 });
        }
        (1..=nodes).for_each(|node| starts[node] += starts[node - 1]);
        let links = Self::sorted_rows(&starts, edges, &model);
        let row =
            |node: u32| &links[starts[node as usize] as usize..starts[node as usize + 1] as usize];
        let ends =
            (0..topology.nodes()).flat_map(|node| row(node).iter().map(move |l| (node, l.peer)));
        let queues = Queues::new(ends.map(|(node, peer)| {
            let LinkModel { rate, max_wait, .. } = model(node, peer);
            (rate, max_wait)
        }));
        Ok(Adjacency { starts, links, queues })
    }

    fn sorted_rows(
        starts: &[u32],
        edges: &[[u32; 2]],
        model: &impl Fn(u32, u32) -> LinkModel,
    ) -> Vec<Link> {
        // Each link beside its direction of an edge: twice the number of the edge, and 1 from the end.
        let mut rows = vec![(Link { peer: 0, delay_us: 0, loss: 0, back: 0 }, 0); 2 * edges.len()];
        let mut next = starts.to_vec();
        for (edge, &[a, b]) in (0..).zip(edges) {
            for (direction, node, peer) in [(2 * edge, a, b), (2 * edge + 1, b, a)] {
                let LinkModel { delay, loss, .. } = model(node, peer);
                let delay_us = delay.as_micros().clamp(1, u32::MAX.into()) as u32;
                let loss = share(loss);
                let position = &mut next[node as usize];
                rows[*position as usize] = (Link { peer, delay_us, loss, back: 0 }, direction);
                *position += 1;
            }
        }
        let mut indices = vec![0u16; rows.len()];
        for row in starts.windows(2) {
            let row = &mut rows[row[0] as usize..row[1] as usize];
            row.sort_unstable_by_key(|(link, _)| (link.delay_us, link.peer));
            for (index, (_, direction)) in row.iter().enumerate() {
                indices[*direction as usize] = index as u16;
            }
        }
        let finish =
            |(link, direction): (Link, u32)| Link { back: indices[direction as usize ^ 1], ..link };
        let mut links: Vec<Link> = rows.into_iter().map(finish).collect();
        // They are in the memory of the rows, which were longer.
        links.shrink_to_fit();
        links
    }

    /// Returns the number of nodes.
    pub fn nodes(&self) -> u32 {
        self.starts.len() as u32 - 1
    }

    /// Returns the number of links, each direction counted.
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// Returns the neighbours of a node, by index.
    pub fn neighbours(&self, node: u32) -> impl ExactSizeIterator<Item = u32> + '_ {
        let [start, end] = self.row(node).map(|position| position as usize);
        self.links[start..end].iter().map(|link| link.peer)
    }

    /// Returns the index of a neighbour among those of a node.
    pub fn index_of(&self, node: u32, neighbour: u32) -> Option<u16> {
        if node.max(neighbour) >= self.nodes() {
            return None;
        }
        if self.neighbours(node).len() <= self.neighbours(neighbour).len() {
            let index = self.neighbours(node).position(|peer| peer == neighbour)?;
            return Some(index as u16);
        }
        let [start, _] = self.row(neighbour);
        let back = self.neighbours(neighbour).position(|peer| peer == node)?;
        Some(self.link(start + back as u32).back)
    }

    /// Returns the position of the link of a node with an index.
    pub(super) fn position(&self, node: u32, index: u16) -> Option<u32> {
        let row = self.starts.get(node as usize..node as usize + 2)?;
        let position = row[0] + u32::from(index);
        (position < row[1]).then_some(position)
    }

    /// Returns the positions of both directions of the link between two nodes.
    pub(super) fn between(&self, a: u32, b: u32) -> Result<[u32; 2], Error> {
        let index = self.index_of(a, b);
        let link = index.and_then(|index| self.position(a, index));
        let link = link.ok_or(Error::Unknown { what: "neighbour", index: b })?;
        Ok([link, self.back(link)])
    }

    /// Returns the position of the opposite direction of a link.
    #[inline]
    pub(super) fn back(&self, link: u32) -> u32 {
        let Link { peer, back, .. } = *self.link(link);
        self.row(peer)[0] + u32::from(back)
    }

    /// Sets the loss of one direction of a link.
    pub(super) fn set_loss(&mut self, link: u32, loss: Chance) {
        self.set_share(link, share(loss));
    }

    /// Sets the loss of one direction of a link as a share of [`ALL`].
    pub(super) fn set_share(&mut self, link: u32, loss: u16) {
        self.links[link as usize].loss = loss;
    }

    /// Returns the node that a link leaves and the node at its end.
    pub(super) fn ends(&self, link: u32) -> [u32; 2] {
        let node = self.starts.partition_point(|start| *start <= link) as u32 - 1;
        [node, self.link(link).peer]
    }

    /// Returns the position of the first link of a node, or the number of links if there is no such node.
    pub(super) fn start(&self, node: u32) -> u32 {
        self.starts.get(node as usize).copied().unwrap_or(self.links.len() as u32)
    }

    /// Returns the positions of the first link of a node, and of the first of the next node.
    #[inline]
    pub(super) fn row(&self, node: u32) -> [u32; 2] {
        [self.starts[node as usize], self.starts[node as usize + 1]]
    }

    #[inline]
    pub(super) fn link(&self, position: u32) -> &Link {
        &self.links[position as usize]
    }

    /// Returns the shortest delay of a link in nanoseconds; `None` if there is no link.
    pub(super) fn shortest_delay(&self) -> Option<u64> {
        self.links.iter().map(|link| u64::from(link.delay_us) * 1000).min()
    }

    /// Returns whether packets wait for each other on some link.
    #[cfg(test)]
    pub(super) fn has_queues(&self) -> bool {
        !self.queues.is_empty()
    }

    /// Removes the queues of the links, which are empty.
    pub(super) fn take_queues(&mut self) -> Queues {
        core::mem::take(&mut self.queues)
    }

    /// Returns the allocated bytes.
    pub(super) fn memory(&self) -> usize {
        self.starts.capacity() * size_of::<u32>()
            + self.links.capacity() * size_of::<Link>()
            + self.queues.memory()
    }
}

/// Returns a probability as a share of [`ALL`].
fn share(loss: Chance) -> u16 {
    (loss.get() * f64::from(ALL)).round() as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_in_the_order_of_delays_and_lead_back() {
        let model = |from: u32, to: u32| {
            LinkModel::new(Duration::from_micros(u64::from(7 * from + 3 * to) % 5))
        };
        let topology = Topology::grid(7, 5);
        let adjacency = Adjacency::new(&topology, model).unwrap();
        assert_eq!((adjacency.nodes(), adjacency.links()), (35, 2 * topology.edges().len()));
        assert_eq!(size_of::<Link>(), 12);
        for node in 0..35 {
            let [start, end] = adjacency.row(node);
            let links: Vec<&Link> = (start..end).map(|at| adjacency.link(at)).collect();
            assert!(links.is_sorted_by_key(|link| link.delay_us));
            assert!(links[0].delay_us > 0);
            for (index, link) in (0..).zip(&links) {
                let back = adjacency.link(adjacency.row(link.peer)[0] + u32::from(link.back));
                assert_eq!((back.peer, back.back), (node, index));
                assert_eq!(adjacency.index_of(node, link.peer), Some(index));
                let there = adjacency.position(node, index).unwrap();
                let both = adjacency.between(node, link.peer).unwrap();
                assert_eq!(both, [there, adjacency.back(there)]);
                assert_eq!(adjacency.ends(there), [node, link.peer]);
                assert_eq!(adjacency.between(link.peer, node).unwrap(), [both[1], both[0]]);
            }
        }
    }

    #[test]
    fn nodes_that_are_not_neighbours_have_no_link() {
        let adjacency =
            Adjacency::new(&Topology::tree(9, 8), |_, _| LinkModel::new(Duration::ZERO)).unwrap();
        assert_eq!([adjacency.index_of(0, 8), adjacency.index_of(8, 0)], [Some(7), Some(0)]);
        for (a, b) in [(1, 2), (0, 0), (0, 9), (9, 0), (u32::MAX, 0)] {
            assert_eq!(adjacency.index_of(a, b), None, "{a} {b}");
            let error = adjacency.between(a, b).unwrap_err();
            assert_eq!(error, Error::Unknown { what: "neighbour", index: b });
        }
    }

    #[test]
    fn a_hub_with_too_many_neighbours_is_an_error() {
        let model = |_, _| LinkModel::new(Duration::ZERO);
        let star = |nodes: u32| Topology::new(nodes, (1..nodes).map(|node| [0, node]));
        assert!(Adjacency::new(&star(65_536), model).is_ok());
        let error = Adjacency::new(&star(65_537), model).unwrap_err();
        assert_eq!(error.to_string(), "too many neighbours of a node: at most 65535");
    }

    #[test]
    fn loss_is_exact_at_both_ends() {
        let link = |loss| Link { peer: 0, delay_us: 1, loss, back: 0 };
        assert!(link(ALL).loses(u64::MAX) && link(ALL).loses(0));
        assert!(!link(0).loses(0));
        assert!(link(1).loses(0) && !link(1).loses(1 << 50));
    }
}
