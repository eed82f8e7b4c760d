//! First in, first out; a packet that does not fit is dropped.

use super::fifo::Fifo;
use super::{Queue, QueueContext};
use crate::packet::{DropReason, Packet};
use crate::quantity::Size;
use ringway_sansio::Time;
use serde::{Deserialize, Serialize};

/// A queue limited in packets, without the one that is being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DropTailPackets {
    /// Maximum number of packets in the queue.
    pub limit: u32,
}

impl Default for DropTailPackets {
    fn default() -> Self {
        DropTailPackets { limit: 1000 }
    }
}

impl DropTailPackets {
    pub(super) fn build(self) -> DropTail {
        DropTail::new(self.limit as usize, u64::MAX)
    }
}

/// A queue limited in bytes, without the packet that is being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DropTailBytes {
    /// Maximum number of bytes in the queue.
    pub limit: Size,
}

impl Default for DropTailBytes {
    fn default() -> Self {
        DropTailBytes { limit: Size(1_000_000) }
    }
}

impl DropTailBytes {
    pub(super) fn build(self) -> DropTail {
        DropTail::new(usize::MAX, self.limit.0)
    }
}

/// ns-2's drop-tail, which counts the arriving packet as well: with a limit of 50, 49 packets wait and
/// one is being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ns2DropTail {
    /// ns-2's `limit_`.
    pub limit: u32,
}

impl Default for Ns2DropTail {
    fn default() -> Self {
        Ns2DropTail { limit: 50 }
    }
}

impl Ns2DropTail {
    pub(super) fn build(self) -> DropTail {
        DropTail::new(self.limit as usize - 1, u64::MAX)
    }
}

/// The queue of all three configurations.
pub(crate) struct DropTail {
    fifo: Fifo,
    max_packets: usize,
    max_bytes: u64,
}

impl DropTail {
    fn new(max_packets: usize, max_bytes: u64) -> Self {
        DropTail { fifo: Fifo::default(), max_packets, max_bytes }
    }

    /// Queues a packet. Returns whether it fits.
    #[inline(always)]
    pub(crate) fn admit(&mut self, packet: Packet) -> bool {
        let bytes = self.fifo.bytes() + u64::from(packet.size);
        let fits = self.fifo.len() < self.max_packets && bytes <= self.max_bytes;
        if fits {
            self.fifo.push(packet);
        }
        fits
    }
}

impl Queue for DropTail {
    fn enqueue(&mut self, _: Time, packet: Packet, room: &mut QueueContext<'_>) {
        if !self.admit(packet) {
            room.dropped.push((packet, DropReason::QueueFull));
        }
    }

    fn dequeue(&mut self, _: Time, _: &mut QueueContext<'_>) -> Option<Packet> {
        self.take()
    }

    fn lets_through(&self) -> u64 {
        if self.max_packets > 0 { self.max_bytes } else { 0 }
    }

    fn take(&mut self) -> Option<Packet> {
        self.fifo.pop()
    }

    fn len(&self) -> usize {
        self.fifo.len()
    }

    fn bytes(&self) -> u64 {
        self.fifo.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{QueueConfig, testing::Bench};
    use super::*;
    use ringway_sansio::Ecn;

    fn fill(config: &QueueConfig, n: u32) -> Bench {
        let mut bench = Bench::new(config);
        for id in 0..n {
            bench.put(Time::ZERO, id, 1000, 0, Ecn::NotEct);
        }
        bench
    }

    #[test]
    fn keeps_order_and_drops_what_comes_last() {
        let mut bench = fill(&QueueConfig::DropTail(DropTailPackets { limit: 3 }), 5);
        let dropped: Vec<u32> = bench.dropped.iter().map(|(p, _)| p.id).collect();
        assert_eq!(dropped, [3, 4]);
        let sent: Vec<u32> = core::iter::from_fn(|| bench.get(Time::ZERO)).map(|p| p.id).collect();
        assert_eq!(sent, [0, 1, 2]);
        assert_eq!(bench.queue.bytes(), 0);
    }

    #[test]
    fn bytes_are_counted() {
        let bench = fill(&QueueConfig::DropTailBytes(DropTailBytes { limit: Size(2999) }), 3);
        assert_eq!((bench.queue.len(), bench.queue.bytes()), (2, 2000));
        assert_eq!(bench.dropped[0].1, DropReason::QueueFull);
    }

    /// `length + 1 >= limit` drops: 49 wait.
    #[test]
    fn ns2_counts_the_packet_that_comes() {
        let bench = fill(&QueueConfig::Ns2DropTail(Ns2DropTail { limit: 50 }), 60);
        assert_eq!(bench.queue.len(), 49);
    }
}
