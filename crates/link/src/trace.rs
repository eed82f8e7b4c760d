//! A rate that follows a trace.

use crate::quantity::{Rate, Span};
use ringway_sansio::Time;
use serde::{Deserialize, Serialize};

/// Maximum number of steps or opportunities in a trace.
pub const MAX_TRACE: usize = 1 << 20;

/// A step of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateStep {
    /// Duration of the rate.
    pub lasts: Span,
    /// The rate; 0 for a step in which nothing is sent.
    pub rate: Rate,
}

/// A trace that starts with the link and is repeated endlessly. A packet that is being sent when the
/// rate changes continues at the new rate.
#[derive(Clone, Debug)]
pub(crate) struct RateTrace {
    steps: Vec<RateStep>,
    start: Time,
    period: u64,
    /// Nanobits (bits times 10^9 / s times ns) of one period.
    capacity: u128,
}

impl RateTrace {
    /// Creates a trace; `None` if it is empty. The caller has checked [`is_valid`].
    pub(crate) fn new(steps: &[RateStep], start: Time) -> Option<Self> {
        (!steps.is_empty()).then(|| RateTrace {
            steps: steps.to_vec(),
            start,
            period: steps.iter().map(|s| s.lasts.as_nanos()).sum(),
            capacity: steps.iter().map(capacity).sum(),
        })
    }

    /// Returns the time when `bytes` are sent if sending starts at `from`.
    pub(crate) fn finish(&self, from: Time, bytes: u64) -> Time {
        if bytes == 0 {
            return from;
        }
        let since = from.since(self.start).as_nanos() as u64;
        let mut at = since - since % self.period;
        // As if sending had started with the period: the part that has passed is added.
        let mut left = u128::from(bytes) * 8_000_000_000;
        let mut rest = since % self.period;
        for step in &self.steps {
            let passed = rest.min(step.lasts.as_nanos());
            left += u128::from(passed) * u128::from(step.rate.0);
            rest -= passed;
        }
        // Whole periods at once, but not beyond the last bit.
        let periods = (left - 1) / self.capacity;
        at = at
            .saturating_add(u64::try_from(periods).unwrap_or(u64::MAX).saturating_mul(self.period));
        left -= periods * self.capacity;
        for step in &self.steps {
            let here = capacity(step);
            if left <= here {
                let nanos = left.div_ceil(u128::from(step.rate.0));
                return self.start
                    + core::time::Duration::from_nanos(at.saturating_add(nanos as u64));
            }
            left -= here;
            at = at.saturating_add(step.lasts.as_nanos());
        }
        self.start + core::time::Duration::from_nanos(at)
    }
}

fn capacity(step: &RateStep) -> u128 {
    u128::from(step.lasts.as_nanos()) * u128::from(step.rate.0)
}

/// Returns whether something is sent in each period, every step has a duration, and no rate is
/// unlimited.
pub(crate) fn is_valid(steps: &[RateStep]) -> bool {
    let lasting = |s: &RateStep| s.lasts.as_nanos() > 0 && !s.rate.is_unlimited();
    let total = steps.iter().try_fold(0u64, |sum, s| sum.checked_add(s.lasts.as_nanos()));
    steps.is_empty()
        || steps.len() <= MAX_TRACE
            && steps.iter().all(lasting)
            && steps.iter().any(|s| s.rate.0 > 0)
            && total.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn step(ms: u64, rate: u64) -> RateStep {
        RateStep { lasts: Span::from_millis(ms), rate: Rate(rate) }
    }

    fn trace(steps: &[RateStep]) -> RateTrace {
        assert!(is_valid(steps));
        RateTrace::new(steps, Time::from_secs(1)).unwrap()
    }

    #[test]
    fn a_packet_is_sent_across_steps_pauses_and_periods() {
        // 8 kbit/s for 10 ms is 10 bytes, then 10 ms of nothing.
        let t = trace(&[step(10, 8_000), step(10, 0)]);
        let ms = |ms: u64| Time::from_millis(1000 + ms);
        assert_eq!(t.finish(ms(0), 5), ms(5));
        assert_eq!(t.finish(ms(0), 10), ms(10));
        assert_eq!(t.finish(ms(0), 11), ms(21));
        assert_eq!(t.finish(ms(5), 10), ms(25));
        assert_eq!(t.finish(ms(12), 1), ms(21));
        assert_eq!(t.finish(ms(8), 32), ms(70));
    }

    #[test]
    fn nothing_takes_no_time() {
        let t = trace(&[step(10, 0), step(10, 8_000)]);
        assert_eq!(t.finish(Time::from_secs(1), 0), Time::from_secs(1));
    }

    #[test]
    fn a_trace_that_never_sends_is_refused() {
        assert!(!is_valid(&[step(10, 0)]));
        assert!(!is_valid(&[step(0, 5)]));
        assert!(!is_valid(&[RateStep { lasts: Span(5), rate: Rate::UNLIMITED }]));
        assert!(!is_valid(&[step(18_000_000_000_000, 1), step(18_000_000_000_000, 1)]));
        assert!(is_valid(&[]));
    }

    proptest! {
        /// Two packets in a row take as long as one of both lengths, apart from rounding.
        #[test]
        fn sending_adds_up(
            rates in prop::collection::vec((1u64..50, 0u64..5), 1..6),
            from in 0u64..1000, a in 1u64..5000, b in 1u64..5000,
        ) {
            let mut steps: Vec<_> = rates.iter().map(|&(ms, r)| step(ms, r * 1_000_000)).collect();
            steps.push(step(1, 1_000_000));
            let t = trace(&steps);
            let from = Time::from_millis(1000 + from);
            let both = t.finish(from, a + b);
            let twice = t.finish(t.finish(from, a), b);
            prop_assert!(twice >= both && twice.since(both).as_nanos() <= 2_000);
        }
    }
}
