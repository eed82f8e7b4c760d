//! Delay, order of arrival, and slots.

use crate::config::{LinkConfig, Reorder, Slot};
use crate::correlated::Correlated;
use crate::distribution::Distribution;
use crate::quantity::Span;
use crate::random::Stream;
use ringway_sansio::Time;

/// The state of delay, jitter, reordering and slots of one link.
pub(crate) struct DelayState {
    jitter: Correlated,
    jump: Correlated,
    /// Packets since the last one that overtook.
    since: u32,
    /// Latest arrival so far.
    last: Time,
    slot: SlotState,
}

impl DelayState {
    pub(crate) fn new(config: &LinkConfig) -> Self {
        DelayState {
            jitter: Correlated::new(config.delay_correlation),
            jump: Correlated::new(config.reorder.correlation),
            since: 0,
            last: Time::ZERO,
            slot: SlotState::default(),
        }
    }

    /// Returns the arrival time of a packet of `size` bytes whose last bit was sent at `sent`.
    #[inline]
    pub(crate) fn arrival(
        &mut self,
        config: &LinkConfig,
        sent: Time,
        size: u64,
        streams: &mut DelayStreams,
    ) -> Time {
        let jumps = config.reorder != Reorder::NONE && self.jumps(config, &mut streams.reorder);
        let delay = if jumps { 0 } else { self.delay(config, &mut streams.delay) };
        let mut arrives = sent.as_nanos().saturating_add(delay);
        if !config.slot.is_none() {
            arrives = self.slot.release(&config.slot, arrives, size, &mut streams.slot);
        }
        if config.keep_order && !jumps {
            arrives = arrives.max(self.last.as_nanos());
        }
        let arrives = Time::from_nanos(arrives);
        self.note(arrives);
        arrives
    }

    /// Notes the arrival of a packet without jitter.
    #[inline]
    pub(crate) fn note(&mut self, arrives: Time) {
        self.last = self.last.max(arrives);
    }

    #[inline]
    fn delay(&mut self, config: &LinkConfig, stream: &mut Stream) -> u64 {
        if config.jitter.as_nanos() == 0 {
            return config.delay.as_nanos();
        }
        let u = self.jitter.draw(stream);
        scattered(config.delay, config.jitter, &config.distribution, u)
    }

    /// Returns whether this packet overtakes: by chance, but at the earliest the `gap`-th since the
    /// last one that did.
    fn jumps(&mut self, config: &LinkConfig, stream: &mut Stream) -> bool {
        if self.since + 1 < config.reorder.gap {
            self.since += 1;
            return false;
        }
        let jumps = self.jump.draw(stream) < config.reorder.chance.get();
        self.since = if jumps { 0 } else { self.since.saturating_add(1) };
        jumps
    }
}

/// The random streams of the decisions above.
pub(crate) struct DelayStreams {
    pub(crate) delay: Stream,
    pub(crate) reorder: Stream,
    pub(crate) slot: Stream,
}

/// A link that delivers in bursts, as radio links with shared time do.
#[derive(Default)]
struct SlotState {
    /// The time when the slot that currently accepts packets opens; `None` before the first.
    opens: Option<u64>,
    packets: u64,
    bytes: u64,
}

impl SlotState {
    /// Returns the time when a packet that is due at `due` leaves. A packet after the last slot waits
    /// for a new one.
    /// another.
    fn release(&mut self, slot: &Slot, due: u64, size: u64, stream: &mut Stream) -> u64 {
        let released = match self.opens {
            Some(opens) if opens >= due => opens,
            _ => self.next(slot, due, stream),
        };
        self.packets = self.packets.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(size);
        if self.packets == 0 || self.bytes == 0 {
            self.next(slot, released, stream);
        }
        released
    }

    /// Draws the next slot, counted from `from`, and returns the time when it opens.
    fn next(&mut self, slot: &Slot, from: u64, stream: &mut Stream) -> u64 {
        let opens = from.saturating_add(wait(slot, stream));
        self.opens = Some(opens);
        self.packets = if slot.packets == 0 { u64::MAX } else { slot.packets.into() };
        self.bytes = slot.bytes.0;
        opens
    }
}

/// Returns the time until a slot opens.
fn wait(slot: &Slot, stream: &mut Stream) -> u64 {
    if slot.scatters() {
        return scattered(slot.delay, slot.jitter, &slot.distribution, stream.uniform());
    }
    let (min, max) = (slot.min.as_nanos(), slot.max.as_nanos());
    match max.checked_sub(min) {
        None | Some(0) => min,
        Some(spread) => min + stream.below(spread.saturating_add(1)),
    }
}

/// Returns the quantile of the delay at the probability `u`.
#[inline]
fn scattered(mean: Span, jitter: Span, distribution: &Distribution, u: f64) -> u64 {
    let scatter = distribution.quantile(u) * jitter.as_nanos() as f64;
    // The conversion saturates at zero: a delay is never negative.
    (mean.as_nanos() as f64 + scatter).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::{Chance, Size};
    use crate::random::Streams;

    fn streams() -> DelayStreams {
        let s = Streams::new(1, 0);
        DelayStreams {
            delay: s.stream("delay"),
            reorder: s.stream("reorder"),
            slot: s.stream("slot"),
        }
    }

    /// Arrivals in ms of packets sent one a millisecond.
    fn arrivals(config: &LinkConfig, n: u64) -> Vec<f64> {
        let (mut state, mut streams) = (DelayState::new(config), streams());
        (0..n)
            .map(|i| {
                let at = state.arrival(config, Time::from_millis(i), 100, &mut streams);
                at.as_nanos() as f64 / 1e6
            })
            .collect()
    }

    #[test]
    fn every_gap_th_packet_goes_ahead() {
        let config = LinkConfig {
            delay: Span::from_millis(10),
            reorder: Reorder { chance: Chance::ALWAYS, gap: 3, ..Reorder::NONE },
            ..LinkConfig::default()
        };
        assert_eq!(arrivals(&config, 6), [10.0, 11.0, 2.0, 13.0, 14.0, 5.0]);
    }

    #[test]
    fn jitter_scatters_around_the_delay_and_may_keep_order() {
        let mut config = LinkConfig {
            delay: Span::from_millis(100),
            jitter: Span::from_millis(10),
            ..LinkConfig::default()
        };
        let delays =
            |a: &[f64]| a.iter().enumerate().map(|(i, x)| x - i as f64).collect::<Vec<_>>();
        let loose = arrivals(&config, 10_000);
        let d = delays(&loose);
        assert!(d.iter().all(|d| (90.0..=110.0).contains(d)));
        assert!((d.iter().sum::<f64>() / 1e4 - 100.0).abs() < 0.2);
        assert!(!loose.is_sorted());
        config.keep_order = true;
        assert!(arrivals(&config, 10_000).is_sorted());
    }

    #[test]
    fn a_delay_is_never_negative() {
        let config = LinkConfig {
            jitter: Span::from_millis(10),
            distribution: Distribution::Normal,
            ..LinkConfig::default()
        };
        let late = arrivals(&config, 1000).into_iter().enumerate().all(|(i, x)| x >= i as f64);
        assert!(late);
    }

    #[test]
    fn slots_gather_packets_into_bursts() {
        let slot = Slot { min: Span::from_millis(4), max: Span::from_millis(4), ..Slot::NONE };
        let mut config = LinkConfig { slot: slot.clone(), ..LinkConfig::default() };
        // Sent at 0 1 2 3 4 | 5 6 7 8 9: the slot opens 4 ms after the first that waits.
        assert_eq!(arrivals(&config, 10), [4.0, 4.0, 4.0, 4.0, 4.0, 9.0, 9.0, 9.0, 9.0, 9.0]);
        config.slot.packets = 2;
        assert_eq!(arrivals(&config, 7), [4.0, 4.0, 8.0, 8.0, 12.0, 12.0, 16.0]);
        config.slot = Slot { packets: 0, bytes: Size(200), ..slot };
        assert_eq!(arrivals(&config, 7), [4.0, 4.0, 8.0, 8.0, 12.0, 12.0, 16.0]);
    }
    /// netem's `slot distribution`: the waits, one a packet when a slot takes but one, are those of
    /// the distribution.
    #[test]
    fn slots_open_by_a_distribution() {
        let slot = Slot {
            delay: Span::from_millis(10),
            jitter: Span::from_millis(2),
            distribution: Distribution::Normal,
            packets: 1,
            ..Slot::NONE
        };
        let config = LinkConfig { slot, ..LinkConfig::default() };
        // Packets are sent so far apart that each arrives after the last slot, or waits for the next.
        let opened = arrivals(&config, 20_000);
        let mut waits: Vec<f64> =
            opened.windows(2).map(|pair| (pair[1] - pair[0] - 10.0) / 2.0).collect();
        waits.sort_by(f64::total_cmp);
        let n = waits.len() as f64;
        let distance = waits.iter().enumerate().fold(0f64, |worst, (i, &x)| {
            let f = 0.5 * libm::erfc(-x / core::f64::consts::SQRT_2);
            worst.max((f - i as f64 / n).abs()).max(((i + 1) as f64 / n - f).abs())
        });
        // Kolmogorov and Smirnov, 99.9 %: the seed is fixed.
        assert!(distance < 1.95 / n.sqrt(), "{distance}");
    }
}
