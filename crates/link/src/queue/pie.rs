//! Proportional integral controller enhanced (RFC 8033).

use super::fifo::Fifo;
use super::{Queue, QueueContext};
use crate::packet::{DropReason, Packet};
use crate::quantity::{Chance, Size, Span};
use ringway_sansio::{Duration, Ecn, Time};
use serde::{Deserialize, Serialize};

/// Parameters of PIE; the defaults are those of RFC 8033 appendix A.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PieConfig {
    /// Maximum number of packets in the queue.
    pub limit: u32,
    /// Target delay, QDELAY_REF.
    pub target: Span,
    /// Interval of updates of the drop probability, T_UPDATE.
    pub update: Span,
    /// Duration of a burst without drops, MAX_BURST.
    pub max_burst: Span,
    /// Weight of the distance from the target, in 1/s.
    pub alpha: f64,
    /// Weight of the change since the last update, in 1/s.
    pub beta: f64,
    /// Typical packet size, MEAN_PKTSIZE. Up to twice so many bytes in the queue cause no drops.
    pub mean_packet: Size,
    /// Whether packets of transports that support ECN are marked instead of dropped.
    pub ecn: bool,
    /// Drop probability above which they are dropped all the same, mark_ecnth.
    pub mark_below: Chance,
    /// Whether drops are spaced evenly (RFC 8033 section 5.4).
    pub derandomize: bool,
}

impl Default for PieConfig {
    fn default() -> Self {
        PieConfig {
            limit: 1000,
            target: Span::from_millis(15),
            update: Span::from_millis(15),
            max_burst: Span::from_millis(150),
            alpha: 0.125,
            beta: 1.25,
            mean_packet: Size(1000),
            ecn: false,
            mark_below: Chance::new(0.1).unwrap_or(Chance::NEVER),
            derandomize: true,
        }
    }
}

/// The state of RFC 8033, with its names.
pub(super) struct Pie {
    config: PieConfig,
    fifo: Fifo,
    drop_prob: f64,
    accu_prob: f64,
    qdelay_old: f64,
    burst_allowance: u64,
    /// The time of the next update of the drop probability.
    next_update: Time,
}

impl Pie {
    pub(super) fn new(config: PieConfig, now: Time) -> Self {
        Pie {
            config,
            fifo: Fifo::default(),
            drop_prob: 0.0,
            accu_prob: 0.0,
            qdelay_old: 0.0,
            burst_allowance: config.max_burst.as_nanos(),
            next_update: now + config.update.into(),
        }
    }

    /// Performs the updates that were due before `now`. The queue has not changed since the last call,
    /// so the result is that of updates on time.
    fn catch_up(&mut self, now: Time) {
        while self.next_update <= now {
            self.update(self.next_update);
            self.next_update += self.config.update.into();
            let settled = self.drop_prob == 0.0 && self.qdelay_old == 0.0;
            let rested = self.burst_allowance == self.config.max_burst.as_nanos();
            if settled && rested && self.fifo.is_empty() {
                // Nothing changes any more: continue from the last update before `now`.
                let step = self.config.update.as_nanos();
                let behind = now.since(self.next_update).as_nanos() as u64;
                self.next_update += Duration::from_nanos(behind - behind % step);
            }
        }
    }

    /// Updates the drop probability (RFC 8033 section 4.2, and 4.4 for bursts). The delay is the time
    /// that the head has waited, by its time stamp (section 4.3).
    fn update(&mut self, now: Time) {
        let c = &self.config;
        let target = c.target.as_secs_f64();
        let waits = |p: &Packet| now.since(p.queued).as_secs_f64();
        let qdelay = self.fifo.first().map_or(0.0, waits);
        let mut p = c.alpha * (qdelay - target) + c.beta * (qdelay - self.qdelay_old);
        p /= match self.drop_prob {
            d if d < 0.000_001 => 2048.0,
            d if d < 0.000_01 => 512.0,
            d if d < 0.000_1 => 128.0,
            d if d < 0.001 => 32.0,
            d if d < 0.01 => 8.0,
            d if d < 0.1 => 2.0,
            _ => 1.0,
        };
        // RFC 8033 section 5.5: small steps when the probability is already high.
        if self.drop_prob >= 0.1 {
            p = p.min(0.02);
        }
        self.drop_prob += p;
        if qdelay == 0.0 && self.qdelay_old == 0.0 {
            self.drop_prob *= 0.98;
        }
        self.drop_prob = self.drop_prob.clamp(0.0, 1.0);
        let calm = qdelay < target / 2.0 && self.qdelay_old < target / 2.0;
        self.qdelay_old = qdelay;
        self.burst_allowance = self.burst_allowance.saturating_sub(c.update.as_nanos());
        if self.drop_prob == 0.0 && calm {
            self.burst_allowance = c.max_burst.as_nanos();
        }
    }

    /// Returns whether a packet is dropped early (RFC 8033 section 4.1, and 5.4 for the spacing).
    fn drops_early(&mut self, room: &mut QueueContext<'_>) -> bool {
        if self.burst_allowance > 0 {
            return false;
        }
        if self.drop_prob == 0.0 {
            self.accu_prob = 0.0;
        }
        let calm = self.qdelay_old < self.config.target.as_secs_f64() / 2.0;
        let small = self.fifo.bytes() <= 2 * self.config.mean_packet.0;
        if calm && self.drop_prob < 0.2 || small {
            return false;
        }
        if self.config.derandomize {
            self.accu_prob += self.drop_prob;
            if self.accu_prob < 0.85 {
                return false;
            }
        }
        let spaced = self.config.derandomize && self.accu_prob >= 8.5;
        let drops = spaced || room.stream.chance(self.drop_prob);
        if drops {
            self.accu_prob = 0.0;
        }
        drops
    }
}

impl Queue for Pie {
    fn enqueue(&mut self, now: Time, mut packet: Packet, room: &mut QueueContext<'_>) {
        self.catch_up(now);
        if self.fifo.len() >= self.config.limit as usize {
            self.accu_prob = 0.0;
            room.dropped.push((packet, DropReason::QueueFull));
            return;
        }
        if self.drops_early(room) {
            let marks = self.config.ecn && self.drop_prob < self.config.mark_below.get();
            if !(marks && packet.ecn.is_capable()) {
                room.dropped.push((packet, DropReason::QueueEarly));
                return;
            }
            packet.ecn = Ecn::Ce;
        }
        self.fifo.push(packet);
    }

    fn dequeue(&mut self, now: Time, _: &mut QueueContext<'_>) -> Option<Packet> {
        self.catch_up(now);
        self.fifo.pop()
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

    /// RFC 8033 section 4: whatever the overload, the delay settles near the target.
    #[test]
    fn overload_settles_at_the_target() {
        for (every, excess) in [(952_381, 1.05), (800_000, 1.25)] {
            for derandomize in [true, false] {
                let config = PieConfig { derandomize, ..PieConfig::default() };
                let mut b = Bench::new(&QueueConfig::Pie(config));
                let (sojourn, sent) = b.load(every, 200, Ecn::NotEct);
                assert!((sojourn - 15.0).abs() < 3.0, "{excess} {derandomize}: {sojourn} ms");
                let rate = b.dropped.len() as f64 / (b.dropped.len() + sent.len()) as f64;
                assert!((rate - (1.0 - 1.0 / excess)).abs() < 0.01, "{rate}");
            }
        }
    }

    /// RFC 8033 section 4.4: a burst that is over in 150 ms loses nothing.
    #[test]
    fn a_burst_passes() {
        let mut b = Bench::new(&QueueConfig::Pie(PieConfig::default()));
        for id in 0..100 {
            b.put(Time::from_millis(1), id, 1000, 0, Ecn::NotEct);
        }
        let sent = (1..101).filter(|&ms| b.get(Time::from_millis(ms)).is_some()).count();
        assert_eq!((sent, b.dropped.len()), (100, 0));
    }

    /// RFC 8033 section 5.1: marks up to a drop probability of 10 %, drops above.
    #[test]
    fn capable_packets_are_marked_while_the_probability_is_low() {
        let config = PieConfig { ecn: true, mark_below: Chance::ALWAYS, ..PieConfig::default() };
        let mut b = Bench::new(&QueueConfig::Pie(config));
        let (_, sent) = b.load(990_000, 5, Ecn::Ect0);
        let marked = sent.iter().filter(|p| p.ecn == Ecn::Ce).count();
        assert!(marked > 100 && b.dropped.is_empty(), "{marked}");
        let mut b = Bench::new(&QueueConfig::Pie(PieConfig { ecn: true, ..PieConfig::default() }));
        b.load(800_000, 60, Ecn::Ect0);
        assert!(b.dropped.iter().any(|d| d.1 == DropReason::QueueEarly));
    }

    /// Updates that are made up for after a silence leave the same state as updates on time.
    #[test]
    fn silence_is_caught_up_with() {
        let mut often = Pie::new(PieConfig::default(), Time::ZERO);
        often.drop_prob = 0.3;
        often.qdelay_old = 0.1;
        let mut late = Pie::new(PieConfig::default(), Time::ZERO);
        late.drop_prob = 0.3;
        late.qdelay_old = 0.1;
        for ms in 0..100_000 {
            often.catch_up(Time::from_millis(ms));
        }
        late.catch_up(Time::from_millis(99_999));
        assert_eq!(often.drop_prob, late.drop_prob);
        assert_eq!(often.burst_allowance, late.burst_allowance);
        assert_eq!(often.next_update, late.next_update);
    }
}
