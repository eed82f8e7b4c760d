//! The receiver of CCID 3: loss intervals and receive rate, about once for each round trip (RFC 4342
//! sections 6 and 8).

use super::equation;
use super::history::{Held, History};
use crate::congestion::{Arrived, Receiver, centimillis};
use crate::seq::Seq;
use crate::wire::{DccpOption, LossInterval, interval};
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
    /// The last estimate of the round-trip time.
    rtt: Option<Duration>,
    /// Data length of the first interval, from the rate at the first loss (RFC 5348 section 6.3.1).
    first: Option<u32>,
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
            self.rtt = self.estimate().or(self.rtt);
        }
        next
    }

    /// Estimates the round-trip time from window counters that differ by four, three or two (RFC 4342 section 8.1). A larger
    /// difference may stand for any time.
    fn estimate(&self) -> Option<Duration> {
        let &(newest, at) = self.marks.back()?;
        (2..=ROUND_TRIP).rev().find_map(|quarters| {
            let mark = self.marks.iter().rev().find(|mark| newest - mark.0 == quarters)?;
            Some(at.since(mark.1) * ROUND_TRIP as u32 / quarters as u32)
        })
    }

    /// Measures the receive rate over the time since the last feedback, or over a round trip where that is
    /// longer (RFC 5348 section 6.2).
    fn measure(&mut self, now: Time) {
        let Some(since) = self.since.replace(now) else { return };
        let period = now.since(since);
        let (mut bytes, mut time) = (self.bytes, period);
        if self.rtt.is_some_and(|rtt| period < rtt) {
            bytes += self.earlier.0;
            time += self.earlier.1;
        }
        if !time.is_zero() {
            self.rate = bytes as f64 / time.as_secs_f64();
        }
        self.earlier = (self.bytes, period);
        self.bytes = 0;
    }

    /// Returns the loss intervals, the newest first. The first one has no data length until the first loss event (RFC 4342
    /// section 6.1.1).
    fn intervals(&mut self) -> Vec<LossInterval> {
        let mut intervals: Vec<_> = self.history.intervals().collect();
        let lossless = intervals.len() == 1;
        for interval in &mut intervals {
            interval.data = match interval.loss {
                0 if lossless => 0,
                0 => self.first_length(),
                _ => interval.data.max(1),
            };
        }
        intervals
    }

    fn first_length(&mut self) -> u32 {
        let rtt = self.rtt.map_or(1.0, |rtt| rtt.as_secs_f64().max(1e-6));
        let (size, rate) = (self.size.max(1.0), self.rate);
        *self.first.get_or_insert_with(|| {
            let rate = equation::loss_event_rate(size, rtt, rate.max(size / rtt));
            (1.0 / rate).max(1.0) as u32
        })
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
        let intervals = self.intervals();
        let mut value = Vec::new();
        interval::emit(self.history.skip(), intervals.iter().copied(), &mut value);
        DccpOption::LossIntervals(&value).emit(options);
        // RFC 4342 section 8.5: rounded up, and all ones for no loss. It may be sent without having been asked for (section
        // 8.4); Linux reads no Loss Intervals.
        let lengths: Vec<f64> = intervals.iter().map(|i| f64::from(i.data)).collect();
        let mean = equation::average_interval(&lengths);
        let inverse = mean.map_or(u32::MAX, |mean| mean.ceil() as u32);
        DccpOption::LossEventRate(inverse).emit(options);
    }

    fn set_ack_ratio(&mut self, _ratio: u16) {}
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
        assert_eq!(receiver.rtt, Some(Duration::from_millis(100)));
        out.clear();
        receiver.acknowledge(Time::from_millis(500), Duration::ZERO, &mut out);
        assert_eq!(rate_of(&out), None, "not due");
    }

    /// Returns the data lengths of the reported intervals, and the Loss Event Rate.
    fn losses_of(options: &[u8]) -> (Vec<u32>, Option<u32>) {
        let (mut lengths, mut rate) = (Vec::new(), None);
        for option in Options::new(options).map_while(Result::ok) {
            match option {
                DccpOption::LossIntervals(value) => {
                    lengths = interval::parse(value).unwrap().1.map(|i| i.data).collect();
                }
                DccpOption::LossEventRate(inverse) => rate = Some(inverse),
                _ => {}
            }
        }
        (lengths, rate)
    }

    /// RFC 4342 sections 6, 6.1.1 and 8.5: a loss event is reported at once, also as its rate; until then the first interval
    /// has no data length.
    #[test]
    fn a_loss_event_is_reported_at_once() {
        let mut receiver = TfrcReceiver::new();
        let mut out = Vec::new();
        let mut due = Vec::new();
        for n in (0..58).filter(|n| *n != 47) {
            receiver.arrived(&packet(n * 5, n, (n / 5) as u8));
            if receiver.wants_ack() {
                due.push(n);
                out.clear();
                receiver.acknowledge(Time::from_millis(n * 5), Duration::ZERO, &mut out);
                if n < 47 {
                    assert_eq!(losses_of(&out), (vec![0], Some(u32::MAX)));
                }
            }
        }
        assert_eq!(due, [0, 20, 40, 50]);
        let (lengths, rate) = losses_of(&out);
        assert_eq!(lengths[0], 4);
        assert!((10..10_000).contains(&lengths[1]), "{lengths:?}");
        assert_eq!(rate, Some(lengths[1]));
    }

    /// RFC 4342 section 8.1: counters of packets that are far apart say nothing of the round-trip time.
    #[test]
    fn a_jump_of_the_counter_is_no_round_trip() {
        let mut receiver = TfrcReceiver::new();
        for n in 0..5 {
            receiver.arrived(&packet(n * 25, n, n as u8));
        }
        assert_eq!(receiver.rtt, Some(Duration::from_millis(100)));
        for n in 5..9 {
            receiver.arrived(&packet(n * 5000, n, (4 + (n - 4) * 5) as u8));
        }
        assert_eq!(receiver.rtt, Some(Duration::from_millis(100)));
    }
}
