//! The queue of a link: a trait, and a file for each discipline.

mod codel;
mod drop_tail;
mod fifo;
mod fq_codel;
mod pie;
mod red;

pub use codel::CodelConfig;
pub use drop_tail::{DropTailBytes, DropTailPackets, Ns2DropTail};
pub use fq_codel::FqCodelConfig;
pub use pie::PieConfig;
pub use red::RedConfig;

use crate::config::ConfigError;
use crate::packet::{DropReason, Packet};
use crate::quantity::Rate;
use crate::random::Stream;
use drop_tail::DropTail;
use ringway_sansio::Time;
use serde::{Deserialize, Serialize};

/// Maximum number of packets in any queue.
pub const MAX_QUEUE: u32 = 1 << 24;

/// The resources of a discipline during a call.
pub struct QueueContext<'a> {
    /// The random stream of the link's queue.
    pub stream: &'a mut Stream,
    /// Receives the dropped packets, with the reason.
    pub dropped: &'a mut Vec<(Packet, DropReason)>,
    /// The present rate of the link.
    pub rate: Rate,
}

/// A queue discipline. It has no clock: periodic work is done at the next call.
pub trait Queue: Send {
    /// Queues a packet, or drops it or another.
    fn enqueue(&mut self, now: Time, packet: Packet, room: &mut QueueContext<'_>);

    /// Returns the next packet to send, and may drop some before it. Returns `None` when nothing is
    /// left.
    fn dequeue(&mut self, now: Time, room: &mut QueueContext<'_>) -> Option<Packet>;

    /// Returns the maximum length of a packet that may bypass an empty queue of an idle link without
    /// any effect on the queue; 0 if none may.
    fn lets_through(&self) -> u64 {
        0
    }

    /// Removes the next packet without applying the discipline, to move or to flush the queue.
    fn take(&mut self) -> Option<Packet>;

    /// Returns the number of packets in the queue.
    fn len(&self) -> usize;

    /// Returns whether the queue is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of bytes in the queue.
    fn bytes(&self) -> u64;
}

/// The queue of a link. The one that most links have needs no virtual call.
pub(crate) enum LinkQueue {
    DropTail(DropTail),
    Other(Box<dyn Queue>),
}

impl LinkQueue {
    /// Creates an empty queue at `now`.
    pub(crate) fn new(config: &QueueConfig, now: Time) -> Self {
        match config {
            QueueConfig::DropTail(c) => LinkQueue::DropTail(c.build()),
            QueueConfig::DropTailBytes(c) => LinkQueue::DropTail(c.build()),
            QueueConfig::Ns2DropTail(c) => LinkQueue::DropTail(c.build()),
            QueueConfig::Red(c) => LinkQueue::Other(Box::new(red::Red::new(*c, now))),
            QueueConfig::Codel(c) => LinkQueue::Other(Box::new(codel::Codel::new(*c))),
            QueueConfig::Pie(c) => LinkQueue::Other(Box::new(pie::Pie::new(*c, now))),
            QueueConfig::FqCodel(c) => LinkQueue::Other(Box::new(fq_codel::FqCodel::new(*c))),
        }
    }

    fn any(&self) -> &dyn Queue {
        match self {
            LinkQueue::DropTail(queue) => queue,
            LinkQueue::Other(queue) => queue.as_ref(),
        }
    }

    fn any_mut(&mut self) -> &mut dyn Queue {
        match self {
            LinkQueue::DropTail(queue) => queue,
            LinkQueue::Other(queue) => queue.as_mut(),
        }
    }
}

impl Queue for LinkQueue {
    fn enqueue(&mut self, now: Time, packet: Packet, room: &mut QueueContext<'_>) {
        self.any_mut().enqueue(now, packet, room);
    }

    fn dequeue(&mut self, now: Time, room: &mut QueueContext<'_>) -> Option<Packet> {
        self.any_mut().dequeue(now, room)
    }

    fn lets_through(&self) -> u64 {
        self.any().lets_through()
    }

    fn take(&mut self) -> Option<Packet> {
        self.any_mut().take()
    }

    fn len(&self) -> usize {
        self.any().len()
    }

    fn bytes(&self) -> u64 {
        self.any().bytes()
    }
}

/// A discipline with its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "discipline", rename_all = "kebab-case")]
pub enum QueueConfig {
    /// First in, first out, limited in packets.
    DropTail(DropTailPackets),
    /// First in, first out, limited in bytes.
    DropTailBytes(DropTailBytes),
    /// First in, first out, with the limit as ns-2 counts it.
    Ns2DropTail(Ns2DropTail),
    /// Random early detection (Floyd and Jacobson 1993).
    Red(RedConfig),
    /// Controlled delay (RFC 8289).
    Codel(CodelConfig),
    /// Proportional integral controller enhanced (RFC 8033).
    Pie(PieConfig),
    /// Fair queues with controlled delay (RFC 8290).
    FqCodel(FqCodelConfig),
}

impl Default for QueueConfig {
    fn default() -> Self {
        QueueConfig::DropTail(DropTailPackets::default())
    }
}

impl QueueConfig {
    /// Creates an empty queue at `now`.
    pub fn build(&self, now: Time) -> Box<dyn Queue> {
        match LinkQueue::new(self, now) {
            LinkQueue::DropTail(queue) => Box::new(queue),
            LinkQueue::Other(queue) => queue,
        }
    }

    /// Checks that all parameters are in range.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let expect = |ok: bool, expected| {
            if ok { Ok(()) } else { Err(ConfigError::Range { field: "queue", expected }) }
        };
        let limit = match self {
            QueueConfig::DropTail(c) => c.limit,
            QueueConfig::DropTailBytes(c) => {
                return expect(c.limit.0 > 0, "a limit above 0 B");
            }
            QueueConfig::Ns2DropTail(c) => c.limit,
            QueueConfig::Red(c) => {
                let ascending = c.min >= 1.0 && c.min < c.max && c.max <= f64::from(MAX_QUEUE);
                expect(ascending, "a `min` of 1 or more and below `max`")?;
                let weight = c.weight > 0.0 && c.weight <= 1.0;
                expect(weight, "a `weight` above 0 and at most 1")?;
                expect(c.mean_packet.0 > 0, "a `mean_packet` above 0 B")?;
                c.limit
            }
            QueueConfig::Codel(c) => {
                expect(c.interval.as_nanos() > 0, "an `interval` above 0 s")?;
                c.limit
            }
            QueueConfig::Pie(c) => {
                expect(c.update.as_nanos() > 0, "an `update` above 0 s")?;
                let gains = c.alpha >= 0.0 && c.beta >= 0.0;
                expect(gains && c.alpha.is_finite() && c.beta.is_finite(), "gains of 0 or more")?;
                c.limit
            }
            QueueConfig::FqCodel(c) => {
                expect(c.codel.interval.as_nanos() > 0, "an `interval` above 0 s")?;
                expect((1..=65_536).contains(&c.flows), "1 to 65536 `flows`")?;
                expect((1..=1 << 24).contains(&c.quantum.0), "a `quantum` of 1 B to 16 MiB")?;
                expect((1..=MAX_QUEUE).contains(&c.codel.limit), "a limit of 1 to 16777216")?;
                return expect(c.memory.0 > 0, "a `memory` above 0 B");
            }
        };
        expect((1..=MAX_QUEUE).contains(&limit), "a limit of 1 to 16777216 packets")
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! A test link for a queue: packets arrive at given times and leave at a steady rate.

    use super::*;
    use crate::random::Streams;
    use ringway_sansio::Ecn;

    pub(crate) struct Bench {
        pub(crate) queue: Box<dyn Queue>,
        pub(crate) stream: Stream,
        pub(crate) dropped: Vec<(Packet, DropReason)>,
        pub(crate) rate: Rate,
    }

    impl Bench {
        pub(crate) fn new(config: &QueueConfig) -> Self {
            config.check().unwrap();
            Bench {
                queue: config.build(Time::ZERO),
                stream: Streams::new(1, 0).stream("queue"),
                dropped: Vec::new(),
                rate: Rate(8_000_000),
            }
        }

        pub(crate) fn put(&mut self, at: Time, id: u32, size: u32, flow: u32, ecn: Ecn) {
            let packet = Packet { queued: at, ..Packet::new(id, size, flow, ecn) };
            let mut room = QueueContext {
                stream: &mut self.stream,
                dropped: &mut self.dropped,
                rate: self.rate,
            };
            self.queue.enqueue(at, packet, &mut room);
        }

        pub(crate) fn get(&mut self, at: Time) -> Option<Packet> {
            let mut room = QueueContext {
                stream: &mut self.stream,
                dropped: &mut self.dropped,
                rate: self.rate,
            };
            self.queue.dequeue(at, &mut room)
        }

        /// Offers 1000-byte packets every `every` ns and sends them at the rate for `seconds`. Returns
        /// the mean sojourn in ms over the second half, and the packets sent.
        pub(crate) fn load(&mut self, every: u64, seconds: u64, ecn: Ecn) -> (f64, Vec<Packet>) {
            let end = seconds * 1_000_000_000;
            let service = self.rate.nanos(1000);
            let (mut arrival, mut free, mut id) = (0, 0, 0);
            let (mut sum, mut n, mut sent) = (0.0, 0.0, Vec::new());
            while arrival < end {
                if free <= arrival && !self.queue.is_empty() {
                    if let Some(p) = self.get(Time::from_nanos(free)) {
                        if free > end / 2 {
                            sum += (free - p.queued.as_nanos()) as f64 / 1e6;
                            n += 1.0;
                        }
                        sent.push(p);
                        free += service;
                    }
                    continue;
                }
                free = free.max(arrival);
                self.put(Time::from_nanos(arrival), id, 1000, 0, ecn);
                id += 1;
                arrival += every;
            }
            (sum / n, sent)
        }
    }
}
