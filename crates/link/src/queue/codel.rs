//! Controlled delay (RFC 8289).

use super::fifo::Fifo;
use super::{Queue, QueueContext};
use crate::packet::{DropReason, Packet};
use crate::quantity::{Size, Span};
use ringway_sansio::{Duration, Ecn, Time};
use serde::{Deserialize, Serialize};

/// Parameters of CoDel; the defaults are those of RFC 8289 section 4.2 and 4.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CodelConfig {
    /// Maximum number of packets in the queue.
    pub limit: u32,
    /// Acceptable standing delay.
    pub target: Span,
    /// Time for which the delay may be above the target before a packet is dropped; a worst-case round
    /// trip.
    pub interval: Span,
    /// Number of bytes in the queue up to which nothing is dropped.
    pub mtu: Size,
    /// Whether packets of transports that support ECN are marked instead of dropped.
    pub ecn: bool,
}

impl Default for CodelConfig {
    fn default() -> Self {
        CodelConfig {
            limit: 1000,
            target: Span::from_millis(5),
            interval: Span::from_millis(100),
            mtu: Size(1500),
            ecn: false,
        }
    }
}

/// The state of RFC 8289 section 5, with its names.
#[derive(Clone, Debug, Default)]
pub(super) struct Controller {
    first_above_time: Option<Time>,
    drop_next: Time,
    count: u32,
    lastcount: u32,
    dropping: bool,
}

impl Controller {
    /// Returns whether the delay of `packet`, just removed, has been above the target for an interval
    /// (RFC 8289 section 5.6).
    fn is_late(&mut self, c: &CodelConfig, now: Time, packet: &Packet, backlog: u64) -> bool {
        let sojourn = now.since(packet.queued);
        if sojourn < Duration::from(c.target) || backlog <= c.mtu.0 {
            self.first_above_time = None;
            return false;
        }
        match self.first_above_time {
            None => {
                self.first_above_time = Some(now + c.interval.into());
                false
            }
            Some(at) => now >= at,
        }
    }

    /// Returns the time of the next drop (RFC 8289 section 5.3).
    fn control_law(&self, c: &CodelConfig, from: Time) -> Time {
        let wait = c.interval.as_nanos() as f64 / f64::from(self.count.max(1)).sqrt();
        from + Duration::from_nanos(wait as u64)
    }

    fn pop(&mut self, c: &CodelConfig, now: Time, source: &mut Fifo) -> (Option<Packet>, bool) {
        let Some(packet) = source.pop() else {
            self.first_above_time = None;
            return (None, false);
        };
        let late = self.is_late(c, now, &packet, source.bytes());
        (Some(packet), late)
    }

    /// Removes the next packet to send (RFC 8289 section 5.5).
    pub(super) fn dequeue(
        &mut self,
        c: &CodelConfig,
        now: Time,
        source: &mut Fifo,
        room: &mut QueueContext<'_>,
    ) -> Option<Packet> {
        let (mut packet, mut late) = self.pop(c, now, source);
        if self.dropping {
            if !late {
                self.dropping = false;
            }
            while self.dropping && now >= self.drop_next {
                let victim = packet?;
                self.count += 1;
                if let Some(marked) = marked(c, victim) {
                    self.drop_next = self.control_law(c, self.drop_next);
                    return Some(marked);
                }
                room.dropped.push((victim, DropReason::QueueEarly));
                (packet, late) = self.pop(c, now, source);
                if late {
                    self.drop_next = self.control_law(c, self.drop_next);
                } else {
                    self.dropping = false;
                }
            }
        } else if late {
            let victim = packet?;
            let marked = marked(c, victim);
            packet = marked;
            if marked.is_none() {
                room.dropped.push((victim, DropReason::QueueEarly));
                (packet, _) = self.pop(c, now, source);
            }
            self.dropping = true;
            // Soon after the last drops, continue near the rate that controlled the queue then.
            let delta = self.count - self.lastcount;
            let recent = now.since(self.drop_next) < 16 * Duration::from(c.interval);
            self.count = if delta > 1 && recent { delta } else { 1 };
            self.drop_next = self.control_law(c, now);
            self.lastcount = self.count;
        }
        packet
    }
}

/// Returns the packet with a mark, if marks are configured and supported.
fn marked(c: &CodelConfig, packet: Packet) -> Option<Packet> {
    (c.ecn && packet.ecn.is_capable()).then_some(Packet { ecn: Ecn::Ce, ..packet })
}

pub(super) struct Codel {
    config: CodelConfig,
    controller: Controller,
    fifo: Fifo,
}

impl Codel {
    pub(super) fn new(config: CodelConfig) -> Self {
        Codel { config, controller: Controller::default(), fifo: Fifo::default() }
    }
}

impl Queue for Codel {
    fn enqueue(&mut self, _: Time, packet: Packet, room: &mut QueueContext<'_>) {
        if self.fifo.len() >= self.config.limit as usize {
            room.dropped.push((packet, DropReason::QueueFull));
            return;
        }
        self.fifo.push(packet);
    }

    fn dequeue(&mut self, now: Time, room: &mut QueueContext<'_>) -> Option<Packet> {
        self.controller.dequeue(&self.config, now, &mut self.fifo, room)
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

    fn bench(config: CodelConfig) -> Bench {
        Bench::new(&QueueConfig::Codel(config))
    }

    #[test]
    fn a_burst_shorter_than_the_interval_passes() {
        let mut b = bench(CodelConfig::default());
        for id in 0..80 {
            b.put(Time::ZERO, id, 1000, 0, Ecn::NotEct);
        }
        // One packet per millisecond: all are sent after 80 ms.
        let sent = (0..80).filter(|&ms| b.get(Time::from_millis(ms)).is_some()).count();
        assert_eq!((sent, b.dropped.len()), (80, 0));
    }

    /// RFC 8289 section 5.3: while the delay stays too long drops come at intervals of
    /// 100 ms / sqrt(count).
    #[test]
    fn drops_follow_the_control_law() {
        let mut b = bench(CodelConfig::default());
        let mut drops = Vec::new();
        for ms in 0..1000u64 {
            let at = Time::from_millis(ms);
            b.put(at, ms as u32, 1000, 0, Ecn::NotEct);
            if ms >= 20 {
                let before = b.dropped.len();
                b.get(at);
                // One more packet for each drop, so that the delay stays.
                for _ in before..b.dropped.len() {
                    b.put(at, 9999, 1000, 0, Ecn::NotEct);
                    drops.push(ms);
                }
            }
        }
        let mut expected = vec![120.0];
        for count in 1..8 {
            expected.push(expected[count - 1] + 100.0 / (count as f64).sqrt());
        }
        for (drop, expected) in drops.iter().zip(&expected) {
            assert!((*drop as f64 - expected.ceil()).abs() <= 1.0, "{drops:?} {expected}");
        }
        assert!(drops.len() >= 8);
    }

    #[test]
    fn capable_packets_are_marked_instead() {
        let mut b = bench(CodelConfig { ecn: true, ..CodelConfig::default() });
        let mut marked = 0;
        for ms in 0..1000u64 {
            b.put(Time::from_millis(ms), ms as u32, 1000, 0, Ecn::Ect0);
            if ms >= 20 {
                let packet = b.get(Time::from_millis(ms)).unwrap();
                marked += u32::from(packet.ecn == Ecn::Ce);
            }
        }
        assert!(b.dropped.is_empty());
        assert!(marked >= 8, "{marked}");
    }
}
