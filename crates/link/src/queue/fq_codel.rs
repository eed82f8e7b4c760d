//! Fair queues with controlled delay (RFC 8290).

use super::codel::{CodelConfig, Controller};
use super::fifo::Fifo;
use super::{Queue, QueueContext};
use crate::packet::{DropReason, Packet};
use crate::quantity::Size;
use ringway_sansio::{Random, Time};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Maximum number of packets dropped at once when the queue is full (RFC 8290 section 4.1).
const BATCH: usize = 64;

/// Parameters of FQ-CoDel; the defaults are those of RFC 8290 section 5.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FqCodelConfig {
    /// The control of each flow's queue; `limit` counts the packets of all flows.
    pub codel: CodelConfig,
    /// Number of queues that flows are distributed over.
    pub flows: u32,
    /// Bytes that a flow may send before another flow's turn.
    pub quantum: Size,
    /// Maximum number of bytes in all queues.
    pub memory: Size,
}

impl Default for FqCodelConfig {
    fn default() -> Self {
        FqCodelConfig {
            codel: CodelConfig { limit: 10_240, ecn: true, ..CodelConfig::default() },
            flows: 1024,
            quantum: Size(1514),
            memory: Size(32 << 20),
        }
    }
}

/// The list that a flow's queue is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum List {
    #[default]
    None,
    New,
    Old,
}

#[derive(Default)]
struct FlowQueue {
    fifo: Fifo,
    controller: Controller,
    deficit: i64,
    list: List,
}

pub(super) struct FqCodel {
    config: FqCodelConfig,
    flows: Vec<FlowQueue>,
    new: VecDeque<u32>,
    old: VecDeque<u32>,
    packets: usize,
    bytes: u64,
    /// Mixed into the hash of a flow, so that collisions differ from run to run.
    perturbation: Option<u64>,
}

impl FqCodel {
    pub(super) fn new(config: FqCodelConfig) -> Self {
        FqCodel {
            config,
            flows: (0..config.flows).map(|_| FlowQueue::default()).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            packets: 0,
            bytes: 0,
            perturbation: None,
        }
    }

    fn classify(&mut self, packet: &Packet, room: &mut QueueContext<'_>) -> u32 {
        let salt = *self.perturbation.get_or_insert_with(|| room.stream.next_u64());
        let mixed = ringway_sansio::SplitMix::new(salt ^ u64::from(packet.flow)).next_u64();
        (mixed % u64::from(self.config.flows)) as u32
    }

    /// Drops from the head of the longest queue: half of it or a batch (RFC 8290 section 4.1).
    fn drop_from_longest(&mut self, room: &mut QueueContext<'_>) {
        // The last of the longest; a strict comparison from the front would find the first.
        let Some(longest) = self.flows.iter_mut().rev().max_by_key(|f| f.fifo.bytes()) else {
            return;
        };
        let half = longest.fifo.bytes() / 2;
        let mut dropped = 0;
        for _ in 0..BATCH {
            let Some(packet) = longest.fifo.pop() else { break };
            dropped += u64::from(packet.size);
            self.packets -= 1;
            room.dropped.push((packet, DropReason::QueueFull));
            if dropped >= half {
                break;
            }
        }
        self.bytes -= dropped;
    }

    /// Returns the queue that is next, new ones first.
    fn turn(&mut self) -> Option<(u32, List)> {
        let new = self.new.front().map(|&i| (i, List::New));
        new.or_else(|| self.old.front().map(|&i| (i, List::Old)))
    }

    /// Removes the next queue from its list.
    fn leave(&mut self, list: List) {
        match list {
            List::New => self.new.pop_front(),
            _ => self.old.pop_front(),
        };
    }
}

impl Queue for FqCodel {
    fn enqueue(&mut self, _: Time, packet: Packet, room: &mut QueueContext<'_>) {
        let index = self.classify(&packet, room);
        let quantum = self.config.quantum.0 as i64;
        let flow = &mut self.flows[index as usize];
        flow.fifo.push(packet);
        self.packets += 1;
        self.bytes += u64::from(packet.size);
        if flow.list == List::None {
            flow.list = List::New;
            flow.deficit = quantum;
            self.new.push_back(index);
        }
        if self.packets > self.config.codel.limit as usize || self.bytes > self.config.memory.0 {
            self.drop_from_longest(room);
        }
    }

    /// Removes the next packet to send (RFC 8290 section 4.2).
    fn dequeue(&mut self, now: Time, room: &mut QueueContext<'_>) -> Option<Packet> {
        loop {
            let (index, list) = self.turn()?;
            let flow = &mut self.flows[index as usize];
            if flow.deficit <= 0 {
                flow.deficit += self.config.quantum.0 as i64;
                flow.list = List::Old;
                self.leave(list);
                self.old.push_back(index);
                continue;
            }
            let (packets, bytes) = (flow.fifo.len(), flow.fifo.bytes());
            let taken = flow.controller.dequeue(&self.config.codel, now, &mut flow.fifo, room);
            self.packets -= packets - flow.fifo.len();
            self.bytes -= bytes - flow.fifo.bytes();
            if let Some(packet) = taken {
                flow.deficit -= i64::from(packet.size);
                return Some(packet);
            }
            // An empty new queue passes through the old list once, so that it cannot starve them.
            let stays = list == List::New && !self.old.is_empty();
            flow.list = if stays { List::Old } else { List::None };
            self.leave(list);
            if stays {
                self.old.push_back(index);
            }
        }
    }

    fn take(&mut self) -> Option<Packet> {
        loop {
            let (index, list) = self.turn()?;
            let flow = &mut self.flows[index as usize];
            if let Some(packet) = flow.fifo.pop() {
                self.packets -= 1;
                self.bytes -= u64::from(packet.size);
                return Some(packet);
            }
            flow.list = List::None;
            self.leave(list);
        }
    }

    fn len(&self) -> usize {
        self.packets
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::{QueueConfig, testing::Bench};
    use super::*;
    use ringway_sansio::Ecn;

    fn bench(config: FqCodelConfig) -> Bench {
        Bench::new(&QueueConfig::FqCodel(config))
    }

    /// RFC 8290 section 1.2: flows share by bytes, whatever the sizes of their packets.
    #[test]
    fn backlogged_flows_share_by_bytes() {
        let mut b = bench(FqCodelConfig::default());
        for id in 0..3000 {
            b.put(Time::ZERO, id, 1500, 1, Ecn::NotEct);
            b.put(Time::ZERO, id, 300, 2, Ecn::NotEct);
        }
        let mut bytes = [0u64; 3];
        for _ in 0..2000 {
            let p = b.get(Time::ZERO).unwrap();
            bytes[p.flow as usize] += u64::from(p.size);
        }
        let share = bytes[1] as f64 / (bytes[1] + bytes[2]) as f64;
        assert!((share - 0.5).abs() < 0.01, "{share}");
    }

    /// A flow that sends little is sent before one that fills the queue.
    #[test]
    fn a_sparse_flow_waits_for_one_packet_at_most() {
        let mut b = bench(FqCodelConfig::default());
        for id in 0..1000 {
            b.put(Time::ZERO, id, 1500, 1, Ecn::NotEct);
        }
        b.get(Time::ZERO);
        b.put(Time::from_millis(1), 5000, 100, 2, Ecn::NotEct);
        let next: Vec<u32> = (0..2).map(|_| b.get(Time::from_millis(1)).unwrap().flow).collect();
        assert!(next.contains(&2), "{next:?}");
    }

    #[test]
    fn a_full_queue_drops_from_the_longest() {
        let codel = CodelConfig { limit: 100, ..CodelConfig::default() };
        let mut b = bench(FqCodelConfig { codel, ..FqCodelConfig::default() });
        for id in 0..90 {
            b.put(Time::ZERO, id, 1500, 1, Ecn::NotEct);
        }
        for id in 0..11 {
            b.put(Time::ZERO, id, 1500, 2, Ecn::NotEct);
        }
        assert_eq!(b.dropped.len(), 45);
        assert!(b.dropped.iter().all(|(p, why)| p.flow == 1 && *why == DropReason::QueueFull));
        assert_eq!(b.queue.len(), 101 - 45);
        assert_eq!(b.queue.bytes(), 56 * 1500);
    }

    #[test]
    fn nothing_is_lost_from_the_count() {
        let mut b = bench(FqCodelConfig::default());
        let (_, sent) = b.load(900_000, 20, Ecn::NotEct);
        let offered = 20_000_000_000u64.div_ceil(900_000) as usize;
        assert_eq!(sent.len() + b.dropped.len() + b.queue.len(), offered);
        let left = core::iter::from_fn(|| b.queue.take()).count();
        assert_eq!(sent.len() + b.dropped.len() + left, offered);
        assert_eq!((b.queue.len(), b.queue.bytes()), (0, 0));
        assert!(b.dropped.len() > 10);
    }
}
