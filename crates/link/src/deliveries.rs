//! A rate that follows recorded opportunities to send, as mahimahi's traces have them.

use crate::quantity::{Size, Span};
use crate::trace::MAX_TRACE;
use ringway_sansio::{Duration, Time};
use serde::{Deserialize, Serialize};

/// Bytes that mahimahi sends at each opportunity.
const MAHIMAHI_BYTES: u64 = 1504;

/// Opportunities to send at given times, repeated endlessly.
///
/// At each opportunity a number of bytes is sent, of one packet or of several. A packet that is longer waits for the
/// next opportunity. What is left of an opportunity when no packet waits is lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Deliveries {
    /// Times of the opportunities, ascending, counted from the start of the link. Times may be equal. The last one is
    /// the period. None for a link without opportunities, whose rate is given otherwise.
    pub at: Vec<Span>,
    /// Bytes that are sent at each opportunity.
    pub bytes: Size,
}

impl Default for Deliveries {
    fn default() -> Self {
        Deliveries { at: Vec::new(), bytes: Size(MAHIMAHI_BYTES) }
    }
}

/// The reason why a trace could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// A line that is not a number.
    #[error("line {line}: expected a whole number of milliseconds, got {got:?}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// The start of its text.
        got: String,
    },
    /// A time before that of the line before.
    #[error("line {line}: expected a time not before that of the line before, got {got} ms")]
    Order {
        /// Its number, from 1.
        line: usize,
        /// The time, in milliseconds.
        got: u64,
    },
    /// No line, or only such with the time 0.
    #[error("expected opportunities until a time above 0 ms, got none")]
    Empty,
    /// Too many lines.
    #[error("expected at most {MAX_TRACE} lines, got more")]
    Long,
}

impl Deliveries {
    /// Creates opportunities from the text of a trace of mahimahi: in each line a time in whole milliseconds, at which
    /// a packet of 1504 bytes can be sent.
    ///
    /// # Errors
    /// The first line that is not such a time, or before the one above it; a trace that is empty or too long.
    pub fn from_mahimahi(text: &str) -> Result<Self, TraceError> {
        const SHOWN: usize = 40;
        let mut at: Vec<Span> = Vec::new();
        for (number, text) in (1..).zip(text.lines()) {
            let text = text.trim();
            // A time below 2^40 ms does not overflow in nanoseconds.
            let Some(ms) = text.parse::<u64>().ok().filter(|ms| *ms < 1 << 40) else {
                return Err(TraceError::Line {
                    line: number,
                    got: text.chars().take(SHOWN).collect(),
                });
            };
            let time = Span::from_millis(ms);
            if at.last().is_some_and(|last| time < *last) {
                return Err(TraceError::Order { line: number, got: ms });
            }
            if at.len() == MAX_TRACE {
                return Err(TraceError::Long);
            }
            at.push(time);
        }
        match at.last() {
            Some(last) if *last > Span(0) => Ok(Deliveries { at, ..Deliveries::default() }),
            _ => Err(TraceError::Empty),
        }
    }

    /// Returns whether there are no opportunities.
    pub fn is_none(&self) -> bool {
        self.at.is_empty()
    }

    /// Returns the mean rate, in bit/s; 0 without opportunities.
    pub fn mean_rate(&self) -> f64 {
        let period = self.at.last().map_or(0.0, |last| last.as_secs_f64());
        if period > 0.0 { self.at.len() as f64 * self.bytes.0 as f64 * 8.0 / period } else { 0.0 }
    }

    /// Returns whether the opportunities can be followed, or there are none.
    pub(crate) fn is_valid(&self) -> bool {
        let last = self.at.last().is_none_or(|last| last.0 > 0);
        last && self.at.len() <= MAX_TRACE && self.at.is_sorted() && self.bytes.0 > 0
    }
}

/// The present position in the opportunities.
#[derive(Clone, Debug)]
pub(crate) struct DeliveryState {
    deliveries: Deliveries,
    start: Time,
    period: u64,
    /// The present opportunity, in nanoseconds since the start, and the bytes that are left of it.
    at: u64,
    left: u64,
    /// The start of the period of the next opportunity, in nanoseconds since the start, and its index.
    turn: u64,
    index: usize,
}

impl DeliveryState {
    /// Creates the state at `start`; `None` without opportunities. The caller has checked [`Deliveries::is_valid`].
    pub(crate) fn new(deliveries: &Deliveries, start: Time) -> Option<Self> {
        let period = deliveries.at.last()?.as_nanos();
        let deliveries = deliveries.clone();
        Some(DeliveryState { deliveries, start, period, at: 0, left: 0, turn: 0, index: 0 })
    }

    /// Returns the time when `bytes` are sent if sending starts at `from`, which is not before the end of the last
    /// packet.
    pub(crate) fn finish(&mut self, from: Time, bytes: u64) -> Time {
        if bytes == 0 {
            return from;
        }
        let since = from.since(self.start).as_nanos() as u64;
        if since > self.at {
            self.left = 0;
            self.skip(since);
        }
        let mut missing = bytes;
        while self.left < missing {
            missing -= self.left;
            self.next();
        }
        self.left -= missing;
        self.start + Duration::from_nanos(self.at)
    }

    /// Passes the opportunities up to `since`, which nothing has used.
    fn skip(&mut self, since: u64) {
        let next = self.turn.saturating_add(self.deliveries.at[self.index].as_nanos());
        if next > since {
            return;
        }
        self.turn = since - since % self.period;
        let passed = Span(since % self.period);
        // Fewer than all: the last is at the end of the period.
        self.index = self.deliveries.at.partition_point(|at| *at <= passed);
    }

    /// Moves to the next opportunity.
    fn next(&mut self) {
        self.at = self.turn.saturating_add(self.deliveries.at[self.index].as_nanos());
        self.left = self.deliveries.bytes.0;
        self.index += 1;
        if self.index == self.deliveries.at.len() {
            self.index = 0;
            self.turn = self.turn.saturating_add(self.period);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn state(text: &str) -> DeliveryState {
        let deliveries = Deliveries::from_mahimahi(text).unwrap();
        assert!(deliveries.is_valid());
        DeliveryState::new(&deliveries, Time::from_secs(1)).unwrap()
    }

    fn ms(ms: u64) -> Time {
        Time::from_millis(1000 + ms)
    }

    #[test]
    fn a_packet_is_sent_at_the_next_opportunity() {
        let mut s = state("3\n3\n8\n");
        assert_eq!(s.finish(ms(0), 1504), ms(3));
        assert_eq!(s.finish(ms(3), 1504), ms(3), "two at once");
        assert_eq!(s.finish(ms(3), 1504), ms(8));
        assert_eq!(s.finish(ms(8), 1504), ms(11), "the next period");
        assert_eq!(s.finish(ms(100), 1504), ms(104), "what passed unused is lost");
    }

    #[test]
    fn packets_share_opportunities_and_need_several() {
        let mut s = state("1\n2\n10\n");
        assert_eq!(s.finish(ms(0), 1000), ms(1));
        assert_eq!(s.finish(ms(1), 504), ms(1));
        assert_eq!(s.finish(ms(1), 1505), ms(10));
        assert_eq!(s.finish(ms(10), 1503), ms(10));
        assert_eq!(s.finish(ms(10), 1), ms(11));
        // What is left at 11 ms is lost when nothing waits.
        assert_eq!(s.finish(Time::from_nanos(1_011_000_001), 1504), ms(12));
        assert_eq!(s.finish(ms(12), 0), ms(12));
    }

    #[test]
    fn a_faulty_trace_is_refused_with_its_line() {
        let error = |text: &str| Deliveries::from_mahimahi(text).unwrap_err().to_string();
        assert!(error("1\nx\n").contains("line 2") && error("1\nx\n").contains("\"x\""));
        assert!(error("5\n4\n").contains("line 2"));
        assert!(error("-1").contains("line 1") && error("1.5").contains("line 1"));
        assert!(error("").contains("none") && error("0\n0\n").contains("none"));
        assert!(error("99999999999999999999").contains("line 1"));
        assert!(error(&"1\n".repeat(MAX_TRACE + 1)).contains("at most"));
    }

    #[test]
    fn the_mean_rate_counts_a_period() {
        let deliveries = Deliveries::from_mahimahi("1\n5\n10\n").unwrap();
        assert!((deliveries.mean_rate() - 3.0 * 1504.0 * 8.0 / 0.01).abs() < 1e-6);
        assert_eq!(Deliveries::default().mean_rate(), 0.0);
    }

    proptest! {
        /// The definition, an opportunity at a time: those at or before the start of a packet that has not waited are
        /// not for it.
        #[test]
        fn packets_leave_as_by_the_definition(
            gaps in prop::collection::vec(0u64..5, 1..8),
            packets in prop::collection::vec((0u64..30, 1u64..4000), 1..30),
        ) {
            let mut sum = 1;
            let times: Vec<u64> = gaps.iter().map(|gap| { sum += gap; sum }).collect();
            let text: String = times.iter().map(|t| format!("{t}\n")).collect();
            let mut s = state(&text);
            let all = |n: usize| times[n % times.len()] + (n / times.len()) as u64 * sum;
            let (mut n, mut left, mut free) = (0usize, 0u64, 0u64);
            for (pause, bytes) in packets {
                let from = free + pause;
                if pause > 0 {
                    left = 0;
                    while all(n) <= from {
                        n += 1;
                    }
                }
                let mut missing = bytes;
                while left < missing {
                    missing -= left;
                    left = 1504;
                    free = all(n);
                    n += 1;
                }
                left -= missing;
                prop_assert_eq!(s.finish(ms(from), bytes), ms(free));
            }
        }
    }
}
