//! What a direction has done, and how exactly.

use crate::report::{Amount, DelayError, Delays, LossError, RateError};
use hdrhistogram::Histogram;
use ringway_link::DropReason;
use ringway_sansio::{Duration, Time};
use std::collections::BTreeMap;

/// Maximum delay that is recorded as it is, in nanoseconds. Longer ones count as this.
const MAX_DELAY: u64 = 1_000_000_000_000_000;
/// Time over which recent delays are gathered.
const RECENT: Duration = Duration::from_secs(1);
/// The normal distribution's quantile for an interval of 95 %.
const Z: f64 = 1.96;

/// What is only counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) received: Amount,
    pub(crate) sent: Amount,
    pub(crate) copied: u64,
    pub(crate) corrupted: u64,
    pub(crate) marked: u64,
    /// Packets for which there was no room.
    pub(crate) no_room: u64,
}

/// The statistics of one direction.
#[derive(Debug)]
pub(crate) struct Statistics {
    pub(crate) counts: Counts,
    dropped: Vec<(DropReason, u64)>,
    not_sent: BTreeMap<&'static str, u64>,
    delay: Histogram<u64>,
    recent: Recent,
    error: Histogram<u64>,
    /// Sum of the errors of delay, in nanoseconds.
    errors: u128,
    pub(crate) rate: RateCheck,
    pub(crate) loss: LossCheck,
}

impl Statistics {
    pub(crate) fn new(start: Time) -> Statistics {
        Statistics {
            counts: Counts::default(),
            dropped: Vec::new(),
            not_sent: BTreeMap::new(),
            delay: histogram(),
            recent: Recent { times: histogram(), until: start + RECENT, last: Delays::default() },
            error: histogram(),
            errors: 0,
            rate: RateCheck::default(),
            loss: LossCheck::default(),
        }
    }

    /// Counts a packet that was dropped.
    pub(crate) fn drop(&mut self, reason: DropReason) {
        match self.dropped.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count += 1,
            None => self.dropped.push((reason, 1)),
        }
    }

    /// Counts a packet that the system has refused.
    pub(crate) fn refuse(&mut self, reason: &'static str) {
        *self.not_sent.entry(reason).or_default() += 1;
    }

    /// Counts a packet that was sent at `now`.
    pub(crate) fn send(&mut self, now: Time, octets: usize, arrived: Time, decided: Time) {
        self.counts.sent.add(octets);
        let (delay, error) = (nanos(now, arrived), nanos(now, decided));
        self.delay.saturating_record(delay);
        self.recent.record(now, delay);
        self.error.saturating_record(error);
        self.errors += u128::from(error);
    }

    pub(crate) fn dropped(&self) -> BTreeMap<String, u64> {
        self.dropped.iter().map(|(reason, count)| (reason.as_str().to_owned(), *count)).collect()
    }

    pub(crate) fn not_sent(&self) -> BTreeMap<String, u64> {
        self.not_sent.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect()
    }

    pub(crate) fn delay(&self) -> Delays {
        delays(&self.delay)
    }

    /// Returns the delays of the last whole second.
    pub(crate) fn recent(&mut self, now: Time) -> Delays {
        self.recent.turn(now);
        self.recent.last
    }

    pub(crate) fn error(&self) -> Option<DelayError> {
        let us = |quantile| microseconds(self.error.value_at_quantile(quantile));
        (!self.error.is_empty()).then(|| DelayError {
            mean_us: self.errors as f64 / self.error.len() as f64 / 1e3,
            p50_us: us(0.5),
            p99_us: us(0.99),
            p99_9_us: us(0.999),
            max_us: microseconds(self.error.max()),
        })
    }
}

#[allow(
    clippy::expect_used,
    reason = "it fails for bounds in the wrong order or more than five digits only"
)]
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_DELAY, 3).expect("constant bounds")
}

fn delays(times: &Histogram<u64>) -> Delays {
    let ms = |quantile| microseconds(times.value_at_quantile(quantile)) / 1e3;
    if times.is_empty() { Delays::default() } else { Delays { p50_ms: ms(0.5), p99_ms: ms(0.99) } }
}

fn microseconds(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

fn nanos(now: Time, since: Time) -> u64 {
    now.since(since).as_nanos() as u64
}

/// Delays of the present second, and those of the last.
#[derive(Debug)]
struct Recent {
    times: Histogram<u64>,
    until: Time,
    last: Delays,
}

impl Recent {
    fn record(&mut self, now: Time, delay: u64) {
        self.turn(now);
        self.times.saturating_record(delay);
    }

    fn turn(&mut self, now: Time) {
        if now >= self.until {
            self.last = delays(&self.times);
            self.times.reset();
            self.until = now + RECENT;
        }
    }
}

/// How exactly packets that wait for each other were spaced.
///
/// The link decides when the last bit of each is sent. Packets that follow each other without a gap take as long to leave
/// as was decided, if the rate is right.
#[derive(Debug, Default)]
pub(crate) struct RateCheck {
    /// The run of packets without a gap that was decided last, and its end.
    run: u64,
    end: Time,
    /// The run of the packet that was sent last, and the time at which it left by its actual sending.
    last: Option<(u64, i128)>,
    octets: u64,
    /// Nanoseconds that were decided, and that they took.
    decided: u64,
    took: i128,
}

/// What a packet is in its run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spacing {
    run: u64,
    /// Nanoseconds that its sending takes.
    takes: u64,
    /// Nanoseconds from the last bit to the arrival.
    delay: u64,
}

impl RateCheck {
    /// Notes a decision.
    pub(crate) fn decide(&mut self, started: Time, sent: Time, arrives: Time) -> Spacing {
        if started != self.end {
            self.run += 1;
        }
        self.end = sent;
        Spacing { run: self.run, takes: nanos(sent, started), delay: nanos(arrives, sent) }
    }

    /// Notes that a packet was sent.
    pub(crate) fn send(&mut self, now: Time, octets: usize, spacing: Spacing) {
        let left = i128::from(now.as_nanos()) - i128::from(spacing.delay);
        if let Some((_, before)) = self.last.filter(|(run, _)| *run == spacing.run) {
            self.octets += octets as u64;
            self.decided += spacing.takes;
            self.took += left - before;
        }
        self.last = Some((spacing.run, left));
    }

    /// Returns the error; `None` where no packet had to wait for another.
    pub(crate) fn error(&self) -> Option<RateError> {
        let (decided, took) = (self.decided as f64 / 1e9, self.took as f64 / 1e9);
        let bits = self.octets as f64 * 8.0;
        (decided > 0.0 && took > 0.0).then(|| RateError {
            seconds: took,
            decided_bits_per_s: bits / decided,
            measured_bits_per_s: bits / took,
            percent: (decided / took - 1.0) * 100.0,
        })
    }
}

/// How many packets were lost at random, and how many should have been.
#[derive(Debug, Default)]
pub(crate) struct LossCheck {
    /// The present share of losses that is configured, and whether losses are independent.
    mean: f64,
    independent: bool,
    packets: u64,
    lost: u64,
    expected: f64,
    /// Some losses depended on others.
    dependent: bool,
}

impl LossCheck {
    /// Sets what is configured now.
    #[inline]
    pub(crate) fn configure(&mut self, mean: f64, independent: bool) {
        (self.mean, self.independent) = (mean, independent);
    }

    /// Counts a decision.
    #[inline]
    pub(crate) fn decide(&mut self, lost: bool) {
        self.packets += 1;
        self.lost += u64::from(lost);
        self.expected += self.mean;
        self.dependent |= !self.independent;
    }

    /// Returns the error; `None` where no loss was configured and none has happened.
    pub(crate) fn error(&self) -> Option<LossError> {
        if self.packets == 0 || self.expected == 0.0 && self.lost == 0 {
            return None;
        }
        let n = self.packets as f64;
        let measured = self.lost as f64 / n;
        // Wilson's interval.
        let centre = (measured + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
        let spread = (measured * (1.0 - measured) / n + Z * Z / (4.0 * n * n)).sqrt();
        let half = Z * spread / (1.0 + Z * Z / n);
        let interval = [(centre - half).max(0.0), (centre + half).min(1.0)];
        Some(LossError {
            packets: self.packets,
            lost: self.lost,
            configured: self.expected / n,
            measured,
            interval: (!self.dependent).then_some(interval),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Time {
        Time::from_nanos(1_000_000_000 + us * 1_000)
    }

    #[test]
    fn errors_of_delay_are_those_of_the_packets() {
        let mut s = Statistics::new(at(0));
        assert_eq!(s.error(), None);
        for n in 1..=1_000u64 {
            s.send(at(10 * n), 100, at(0), at(9 * n));
        }
        let error = s.error().unwrap();
        assert!((error.mean_us - 500.5).abs() < 1e-9, "{error:?}");
        for (got, expected) in
            [(error.p50_us, 500.0), (error.p99_us, 990.0), (error.max_us, 1_000.0)]
        {
            assert!((got / expected - 1.0).abs() < 0.002, "{got} {expected}");
        }
        assert!((s.delay().p50_ms - 5.0).abs() < 0.01, "{:?}", s.delay());
        let Amount { packets, octets } = s.counts.sent;
        assert_eq!((packets, octets), (1_000, 100_000));
    }

    #[test]
    fn recent_delays_forget_older_ones() {
        let mut s = Statistics::new(at(0));
        s.send(at(1_000), 1, at(0), at(0));
        assert_eq!(s.recent(at(2_000)), Delays::default());
        assert!((s.recent(at(1_000_000)).p50_ms - 1.0).abs() < 0.01);
        s.send(at(1_100_000), 1, at(1_098_000), at(0));
        assert!((s.recent(at(2_100_000)).p50_ms - 2.0).abs() < 0.01);
        assert_eq!(s.recent(at(3_200_000)), Delays::default());
    }

    #[test]
    fn the_rate_is_that_of_packets_without_gaps() {
        let mut check = RateCheck::default();
        // Two runs: at 0, 100 and 200 us, and at 1,000 and 1,100 us, each of 100 us, with 50 us of delay.
        let spacings: Vec<_> = [0, 100, 200, 1_000, 1_100]
            .map(|start| check.decide(at(start), at(start + 100), at(start + 150)))
            .to_vec();
        // All are 5 us late, but the last of the first run, which is 15 us late.
        for (end, spacing) in [155, 255, 365, 1_155, 1_255].into_iter().zip(spacings) {
            check.send(at(end), 1_250, spacing);
        }
        let error = check.error().unwrap();
        assert!((error.seconds - 310e-6).abs() < 1e-12, "{error:?}");
        assert!((error.decided_bits_per_s - 100e6).abs() < 1e-3);
        assert!((error.percent - (300.0 / 310.0 - 1.0) * 100.0).abs() < 1e-9);
        assert_eq!(RateCheck::default().error(), None);
    }

    #[test]
    fn loss_has_an_interval_unless_losses_depend_on_each_other() {
        let mut check = LossCheck::default();
        check.configure(0.0, true);
        check.decide(false);
        assert_eq!(check.error(), None);
        check.configure(0.1, true);
        for n in 0..999 {
            check.decide(n % 10 == 0);
        }
        let error = check.error().unwrap();
        assert_eq!((error.packets, error.lost), (1_000, 100));
        assert!((error.configured - 0.0999).abs() < 1e-9);
        // Wilson's interval of 100 of 1,000 (Newcombe 1998, method 3).
        let [low, high] = error.interval.unwrap();
        assert!((low - 0.0829).abs() < 1e-4 && (high - 0.1202).abs() < 1e-4, "{low} {high}");
        check.configure(0.1, false);
        check.decide(false);
        assert_eq!(check.error().unwrap().interval, None);
    }
}
