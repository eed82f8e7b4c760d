//! Random early detection (Floyd and Jacobson 1993; RFC 2309 section 3), with the gentle slope
//! that Floyd added in 2000.

use super::fifo::Fifo;
use super::{Queue, QueueContext};
use crate::packet::{DropReason, Packet};
use crate::quantity::{Chance, Size};
use ringway_sansio::{Ecn, Time};
use serde::{Deserialize, Serialize};

/// Parameters of RED; the defaults are ns-2's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RedConfig {
    /// Maximum number of packets in the queue.
    pub limit: u32,
    /// Mean queue length below which nothing is dropped, in packets.
    pub min: f64,
    /// Mean queue length at which `max_chance` is reached, in packets.
    pub max: f64,
    /// Probability of a drop at `max`.
    pub max_chance: Chance,
    /// Weight of the present length in the mean.
    pub weight: f64,
    /// Whether the probability rises from `max_chance` to 1 between `max` and twice `max`, instead of
    /// dropping all.
    pub gentle: bool,
    /// Whether packets of transports that support ECN are marked instead of dropped below `max`.
    pub ecn: bool,
    /// Whether drops are spaced evenly. Otherwise each packet's drop is independent, as in NIST Net's
    /// derivative random drop with a weight of 1.
    pub spaced: bool,
    /// Typical packet size, which determines how fast the mean falls while the queue is empty.
    pub mean_packet: Size,
}

impl Default for RedConfig {
    fn default() -> Self {
        RedConfig {
            limit: 50,
            min: 5.0,
            max: 15.0,
            max_chance: Chance::new(0.1).unwrap_or(Chance::NEVER),
            weight: 0.002,
            gentle: true,
            ecn: false,
            spaced: true,
            mean_packet: Size(500),
        }
    }
}

pub(super) struct Red {
    config: RedConfig,
    fifo: Fifo,
    /// The mean queue length.
    average: f64,
    /// Packets since the last drop while the mean is above `min`.
    count: i64,
    /// The time since which the queue is empty.
    idle_since: Option<Time>,
}

impl Red {
    pub(super) fn new(config: RedConfig, now: Time) -> Self {
        Red { config, fifo: Fifo::default(), average: 0.0, count: -1, idle_since: Some(now) }
    }

    fn update_average(&mut self, now: Time, room: &QueueContext<'_>) {
        let weight = self.config.weight;
        if let Some(since) = self.idle_since.take() {
            let typical = room.rate.nanos(self.config.mean_packet.0);
            let idle = now.since(since).as_nanos() as f64;
            if typical > 0 {
                self.average *= libm::pow(1.0 - weight, idle / typical as f64);
            } else if idle > 0.0 {
                self.average = 0.0;
            }
        }
        self.average += weight * (self.fifo.len() as f64 - self.average);
    }

    /// Returns the probability of a drop before the spacing by `count`; `None` to drop always.
    fn base_chance(&self) -> Option<f64> {
        let c = &self.config;
        let max_chance = c.max_chance.get();
        if self.average < c.max {
            return Some(max_chance * (self.average - c.min) / (c.max - c.min));
        }
        (c.gentle && self.average < 2.0 * c.max)
            .then(|| max_chance + (1.0 - max_chance) * (self.average - c.max) / c.max)
    }

    /// Decides whether this packet is dropped.
    fn chooses(&mut self, room: &mut QueueContext<'_>) -> Choice {
        if self.average < self.config.min {
            self.count = -1;
            return Choice::Accept;
        }
        self.count += 1;
        let Some(chance) = self.base_chance() else {
            self.count = 0;
            return Choice::Drop;
        };
        // Drops are spread evenly instead of geometrically: 1 in 1/p packets, never two gaps of 2/p.
        let before = if self.config.spaced { self.count as f64 } else { 0.0 };
        let rest = 1.0 - before * chance;
        let chosen = rest <= 0.0 || room.stream.chance(chance / rest);
        if !chosen {
            return Choice::Accept;
        }
        self.count = 0;
        if self.config.ecn && self.average < self.config.max { Choice::Mark } else { Choice::Drop }
    }
}

enum Choice {
    Accept,
    Mark,
    Drop,
}

impl Queue for Red {
    fn enqueue(&mut self, now: Time, mut packet: Packet, room: &mut QueueContext<'_>) {
        self.update_average(now, room);
        match self.chooses(room) {
            Choice::Mark if packet.ecn.is_capable() => packet.ecn = Ecn::Ce,
            Choice::Accept => {}
            Choice::Mark | Choice::Drop => {
                if self.fifo.is_empty() {
                    self.idle_since = Some(now);
                }
                room.dropped.push((packet, DropReason::QueueEarly));
                return;
            }
        }
        if self.fifo.len() >= self.config.limit as usize {
            self.count = 0;
            room.dropped.push((packet, DropReason::QueueFull));
            return;
        }
        self.fifo.push(packet);
    }

    fn dequeue(&mut self, now: Time, _: &mut QueueContext<'_>) -> Option<Packet> {
        let packet = self.take()?;
        if self.fifo.is_empty() {
            self.idle_since = Some(now);
        }
        Some(packet)
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

    #[test]
    fn light_load_loses_nothing() {
        let mut bench = Bench::new(&QueueConfig::Red(RedConfig::default()));
        bench.load(1_100_000, 20, Ecn::NotEct);
        assert!(bench.dropped.is_empty());
    }

    /// At 5 % too much load the mean settles where the drop probability is 1/21, which the linear
    /// part of the curve reaches between `min` and `max`; the queue never fills.
    #[test]
    fn overload_settles_between_the_thresholds() {
        let mut bench = Bench::new(&QueueConfig::Red(RedConfig::default()));
        let (sojourn, sent) = bench.load(952_381, 200, Ecn::NotEct);
        assert!(bench.dropped.iter().all(|d| d.1 == DropReason::QueueEarly));
        let rate = bench.dropped.len() as f64 / (bench.dropped.len() + sent.len()) as f64;
        assert!((rate - 1.0 / 21.0).abs() < 0.002, "{rate}");
        assert!((5.0..15.0).contains(&sojourn), "{sojourn}");
    }

    /// The mean stays at ten: packets that support ECN are marked at the rate at which others are
    /// dropped.
    #[test]
    fn capable_packets_are_marked_instead() {
        let config = RedConfig { ecn: true, limit: 500, ..RedConfig::default() };
        let run = |ecn| {
            let mut bench = Bench::new(&QueueConfig::Red(config));
            let mut marked = 0;
            for id in 0..20_000 {
                bench.put(Time::from_millis(id), id as u32, 1000, 0, ecn);
                while bench.queue.len() > 10 {
                    let packet = bench.get(Time::from_millis(id)).unwrap();
                    marked += usize::from(packet.ecn == Ecn::Ce);
                }
            }
            (marked, bench.dropped.len())
        };
        let (marked, dropped) = run(Ecn::Ect0);
        assert_eq!(dropped, 0);
        assert!(marked > 500, "{marked}");
        let (marked, dropped) = run(Ecn::NotEct);
        assert_eq!(marked, 0);
        assert!(dropped > 500, "{dropped}");
    }

    /// NIST Net's derivative random drop: with weight 1 the probability follows the present length.
    #[test]
    fn weight_one_goes_by_the_present_length() {
        let config = RedConfig {
            limit: 100,
            weight: 1.0,
            min: 10.0,
            max: 20.0,
            max_chance: Chance::ALWAYS,
            spaced: false,
            ..RedConfig::default()
        };
        let mut b = Bench::new(&QueueConfig::Red(config));
        // Number of drops in a hundred packets at a queue length.
        let at = |length: u32, b: &mut Bench| {
            while b.queue.len() < length as usize {
                b.put(Time::ZERO, 0, 1000, 0, Ecn::NotEct);
            }
            let before = b.dropped.len();
            for _ in 0..100 {
                b.put(Time::ZERO, 1, 1000, 0, Ecn::NotEct);
                while b.queue.len() > length as usize {
                    b.get(Time::ZERO);
                }
            }
            b.dropped.len() - before
        };
        assert_eq!(at(9, &mut b), 0);
        let some = at(15, &mut b);
        assert!((35..65).contains(&some), "{some}");
        assert_eq!(at(20, &mut b), 100);
    }
}
