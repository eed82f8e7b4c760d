//! The receiver of CCID 3: loss intervals and receive rate, about once for each round trip (RFC 4342
//! sections 6 and 8).

use super::equation;
use super::history::{Held, History};
use crate::congestion::{Arrived, Receiver, centimillis};
use crate::seq::Seq;
use crate::wire::{DccpOption, interval};
use ringway_sansio::{Duration, Time};
use std::collections::VecDeque;

/// Window counters of one round trip (RFC 4342 section 8.1).
const ROUND_TRIP: u64 = 4;
/// Maximum number of times of window counters that are kept.
const MAX_MARKS: usize = 16;

/// The receiver of CCID 3.
#[derive(Clone, Debug, Default)]
pub struct TfrcReceiver {
    history: History,
    /// The newest packet, its CCVal, and its window counter without the wrap.
    newest: Option<(Seq, u8, u64)>,
    /// When window counters first arrived.
    marks: VecDeque<(u64, Time)>,
    /// The window counter at the last feedback.
    reported: u64,
    /// Bytes of data since the last feedback, and when that was.
    bytes: u64,
    since: Option<Time>,
    /// Bytes and duration of the period before.
    earlier: (u64, Duration),
    rate: f64,
    due: bool,
    /// Average length of data in bytes.
    size: f64,
    loss_event_rate: bool,
    /// Length of the first interval, from the rate at the first loss (RFC 5348 section 6.3.1).
    first: Option<f64>,
}

impl TfrcReceiver {
    /// Creates a receiver that has received nothing.
    pub fn new() -> TfrcReceiver {
        TfrcReceiver::default()
    }

    /// Returns the window counter of a packet without its wrap.
    fn unwrap_counter(&mut self, arrived: &Arrived) -> u64 {
        let (seq, ccval) = (arrived.seq, arrived.ccval);
        let Some((newest, last, counter)) = self.newest else {
            // Late packets may have smaller counters.
            self.newest = Some((seq, ccval, 16));
            self.marks.push_back((16, arrived.now));
            self.reported = 16;
            return 16;
        };
        if !seq.after(newest) {
            return counter.saturating_sub(u64::from(last.wrapping_sub(ccval) & 15));
        }
        let next = counter + u64::from(ccval.wrapping_sub(last) & 15);
        self.newest = Some((seq, ccval, next));
        if next > counter {
            self.marks.push_back((next, arrived.now));
            if self.marks.len() > MAX_MARKS {
                self.marks.pop_front();
            }
        }
        next
    }

    /// Estimates the round-trip time from the window counters (RFC 4342 section 8.1).
    fn rtt(&self) -> Option<Duration> {
        let &(newest, at) = self.marks.back()?;
        let &(before, from) = self.marks.iter().rev().find(|mark| newest - mark.0 >= ROUND_TRIP)?;
        let quarters = u32::try_from(newest - before).unwrap_or(u32::MAX);
        Some(at.since(from) * ROUND_TRIP as u32 / quarters)
    }

    /// Measures the receive rate over the time since the last feedback, or over a round trip where that is
    /// longer (RFC 5348 section 6.2).
    fn measure(&mut self, now: Time) {
        let Some(since) = self.since.replace(now) else { return };
        let period = now.since(since);
        let (mut bytes, mut time) = (self.bytes, period);
        if self.rtt().is_some_and(|rtt| period < rtt) {
            bytes += self.earlier.0;
            time += self.earlier.1;
        }
        if !time.is_zero() {
            self.rate = bytes as f64 / time.as_secs_f64();
        }
        self.earlier = (self.bytes, period);
        self.bytes = 0;
    }

    /// Returns the loss event rate (RFC 5348 section 5.4).
    fn loss_rate(&mut self) -> f64 {
        let intervals: Vec<_> = self.history.intervals().collect();
        let mut lengths: Vec<f64> = intervals
            .iter()
            .map(|i| f64::from(if i.data > 0 { i.data } else { i.loss + i.lossless }))
            .collect();
        if intervals.len() > 1
            && let Some((oldest, length)) = intervals.last().zip(lengths.last_mut())
            && oldest.loss == 0
        {
            let rtt = self.rtt().map_or(1.0, |rtt| rtt.as_secs_f64().max(1e-6));
            let (size, rate) = (self.size.max(1.0), self.rate);
            *length = *self.first.get_or_insert_with(|| {
                1.0 / equation::loss_event_rate(size, rtt, rate.max(size / rtt))
            });
        }
        equation::average_interval(&lengths).map_or(0.0, |mean| 1.0 / mean.max(1.0))
    }
}

impl Receiver for TfrcReceiver {
    fn name(&self) -> &'static str {
        "CCID 3"
    }

    fn arrived(&mut self, arrived: &Arrived) {
        let counter = self.unwrap_counter(arrived);
        let held = Held {
            seq: arrived.seq,
            counter,
            data: arrived.data,
            marked: arrived.marked,
            ndp: arrived.ndp,
        };
        // RFC 4342 section 6: a new loss event is reported at once.
        let begun = self.history.add(held);
        if arrived.data {
            self.bytes += u64::from(arrived.size);
            let size = f64::from(arrived.size);
            self.size = if self.size == 0.0 { size } else { 0.9 * self.size + 0.1 * size };
            if self.since.is_none() {
                self.since = Some(arrived.now);
                self.due = true;
            }
        }
        self.due |= self.bytes > 0 && (begun || counter >= self.reported + ROUND_TRIP);
    }

    fn wants_ack(&self) -> bool {
        self.due
    }

    fn deadline(&self) -> Option<Time> {
        None
    }

    fn timeout(&mut self, _now: Time) {}

    fn acknowledge(&mut self, now: Time, elapsed: Duration, options: &mut Vec<u8>) {
        // RFC 4342 section 6: feedback has Elapsed Time, Receive Rate and the loss intervals.
        DccpOption::ElapsedTime(centimillis(elapsed)).emit(options);
        if !core::mem::take(&mut self.due) {
            return;
        }
        self.measure(now);
        self.reported = self.newest.map_or(0, |(_, _, counter)| counter);
        DccpOption::ReceiveRate(self.rate.min(f64::from(u32::MAX)) as u32).emit(options);
        let mut value = Vec::new();
        interval::emit(self.history.skip(), self.history.intervals(), &mut value);
        DccpOption::LossIntervals(&value).emit(options);
        if self.loss_event_rate {
            // RFC 4342 section 8.5: all ones for no loss.
            let rate = self.loss_rate();
            let inverse = if rate > 0.0 { (1.0 / rate).min(4e9) as u32 } else { u32::MAX };
            DccpOption::LossEventRate(inverse).emit(options);
        }
    }

    fn set_ack_ratio(&mut self, _ratio: u16) {}

    fn set_loss_event_rate(&mut self, on: bool) {
        self.loss_event_rate = on;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Options;

    fn packet(ms: u64, seq: u64, ccval: u8) -> Arrived {
        Arrived {
            now: Time::from_millis(ms),
            seq: Seq::new(seq),
            ccval: ccval & 15,
            data: true,
            size: 1000,
            marked: false,
            gap: false,
            ndp: None,
        }
    }

    fn rate_of(options: &[u8]) -> Option<u32> {
        Options::new(options).flatten().find_map(|option| match option {
            DccpOption::ReceiveRate(rate) => Some(rate),
            _ => None,
        })
    }

    /// RFC 4342 section 6: feedback at the first packet and once for each round trip, with the rate.
    #[test]
    fn feedback_is_due_once_for_each_round_trip() {
        let mut receiver = TfrcReceiver::new();
        let mut out = Vec::new();
        let mut times = Vec::new();
        // A packet each 5 ms, a window counter each 25 ms: a round trip of 100 ms.
        for n in 0..100 {
            receiver.arrived(&packet(n * 5, n, (n / 5) as u8));
            if receiver.wants_ack() {
                times.push(n * 5);
                out.clear();
                receiver.acknowledge(Time::from_millis(n * 5), Duration::ZERO, &mut out);
            }
        }
        assert_eq!(times, [0, 100, 200, 300, 400]);
        assert_eq!(rate_of(&out), Some(200_000));
        assert_eq!(receiver.rtt(), Some(Duration::from_millis(100)));
        out.clear();
        receiver.acknowledge(Time::from_millis(500), Duration::ZERO, &mut out);
        assert_eq!(rate_of(&out), None, "not due");
    }

    /// RFC 4342 sections 6 and 8.5: a loss event is reported at once, also as its rate.
    #[test]
    fn a_loss_event_is_reported_at_once() {
        let mut receiver = TfrcReceiver::new();
        receiver.set_loss_event_rate(true);
        let mut out = Vec::new();
        let mut due = Vec::new();
        for n in (0..58).filter(|n| *n != 47) {
            receiver.arrived(&packet(n * 5, n, (n / 5) as u8));
            if receiver.wants_ack() {
                due.push(n);
                out.clear();
                receiver.acknowledge(Time::from_millis(n * 5), Duration::ZERO, &mut out);
            }
        }
        assert_eq!(due, [0, 20, 40, 50]);
        let options: Vec<_> = Options::new(&out).map_while(Result::ok).collect();
        let rate = options.iter().find_map(|option| match option {
            DccpOption::LossEventRate(inverse) => Some(*inverse),
            _ => None,
        });
        assert!(rate.is_some_and(|inverse| (2..10_000).contains(&inverse)), "{rate:?}");
    }
}
