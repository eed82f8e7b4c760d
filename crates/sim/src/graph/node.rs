//! The nodes of a graph.

use ringway_sansio::Time;

/// The receiver of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The neighbour with this index.
    Neighbour(u16),
    /// Every neighbour.
    Neighbours,
}

/// A protocol at a node of a graph, in the form of `ringway_sansio::Endpoint`. All nodes of a graph have one
/// type. Random numbers are the node's own matter, from a generator with a seed of its own.
pub trait GraphNode {
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
