//! The nodes of a graph.

use super::engine::mix;
use ringway_sansio::{SplitMix, Time};

/// Returns the random generator of a node in one of its lives, of which the first is 0.
pub fn node_random(seed: u64, node: u32, life: u32) -> SplitMix {
    SplitMix::new(mix(mix(seed, life), node))
}

/// The receiver of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The neighbour with this index.
    Neighbour(u16),
    /// Every neighbour.
    Neighbours,
}

/// A protocol at a node of a graph, in the form of `ringway_sansio::Endpoint`. All nodes of a graph have one
/// type. Random numbers are the node's own matter, for example from [`node_random`]. Times are those of the
/// node's clock.
pub trait GraphNode: Send {
    /// Handles a packet from the neighbour with the index `from`. Changes of `bytes` are not seen by other
    /// receivers.
    fn handle_packet(&mut self, now: Time, from: u16, bytes: &mut [u8]);

    /// Handles the passing of the time of [`poll_timeout`](Self::poll_timeout).
    fn handle_timeout(&mut self, now: Time);

    /// Returns the time when [`handle_timeout`](Self::handle_timeout) is to be called next.
    fn poll_timeout(&self) -> Option<Time>;

    /// Writes the next packet into `bytes`, which is empty, and returns its destination; `None` if there is
    /// none.
    fn poll_transmit(&mut self, now: Time, bytes: &mut Vec<u8>) -> Option<Destination>;

    /// Returns the bytes that the node has allocated.
    fn heap_bytes(&self) -> usize;
}
