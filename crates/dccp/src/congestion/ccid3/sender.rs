//! The sender of CCID 3: a rate in bytes per second (RFC 5348 section 4, RFC 4342 section 5).

use super::equation;
use crate::congestion::{Feedback, Permit, Sender, SenderSnapshot, Sent};
use crate::seq::Seq;
use crate::wire::interval;
use crate::wire::vector::DropCode;
use ringway_sansio::{Duration, Time};
use std::collections::VecDeque;

/// Maximum interval between packets (RFC 5348 section 4.3).
pub const MAX_BACKOFF: f64 = 64.0;
/// Nofeedback timer before the first feedback (RFC 5348 section 4.2).
const INITIAL_NO_FEEDBACK: Duration = Duration::from_secs(2);
/// Granularity of the caller's timers: packets may leave that much early or late (RFC 5348 section 4.6).
const GRANULARITY: Duration = Duration::from_millis(1);
/// Window counters of one round trip (RFC 4342 section 8.1).
const ROUND_TRIP: u8 = 4;
/// Maximum number of packets whose departure is remembered.
pub const MAX_SENT: usize = 2048;
/// Length in bytes of an initial window, unless it is between two and four packets (RFC 5348 section
/// 4.2).
const INITIAL_BYTES: f64 = 4380.0;

/// A packet that was sent.
#[derive(Clone, Copy, Debug)]
struct Departure {
    seq: Seq,
    at: Time,
    data: bool,
    /// Its window counter.
    counter: u8,
}

/// The sender of CCID 3.
#[derive(Clone, Debug)]
pub struct TfrcSender {
    /// Allowed rate `X`.
    rate: f64,
    /// Rate of the equation, `X_Bps`; 0 before the first loss event.
    equation_rate: f64,
    /// Average length of a packet's data, `s`.
    size: f64,
    rtt: Option<Duration>,
    /// Whether feedback has arrived.
    heard: bool,
    /// When slow start last doubled the rate, `tld`.
    doubled_at: Option<Time>,
    /// Receive rates of the last two round trips, `X_recv_set`.
    receive_rates: Vec<(Time, f64)>,
    loss_event_rate: f64,
    /// Length of the first interval, from the rate at the first loss (RFC 5348 section 6.3.1).
    first_interval: Option<f64>,
    next: Time,
    no_feedback_at: Option<Time>,
    /// Whether data were sent since the nofeedback timer was set.
    sent_since: bool,
    /// When the rate last held a message back.
    limited_at: Option<Time>,
    sent: VecDeque<Departure>,
    /// Departure of the packet that the last feedback acknowledged.
    acked_at: Option<Time>,
    /// Number of data packets since the last feedback.
    pending: u32,
    /// The newest packet whose drop for a full buffer was counted.
    drops_to: Option<Seq>,
    /// Until then the rate does not grow (RFC 4340 section 11.6).
    held_until: Time,
    counter: u8,
    counter_at: Option<Time>,
    congestion_events: u64,
    timeouts: u64,
}

impl TfrcSender {
    /// Creates a sender whose packets carry about `size` bytes. `rtt` is that of the handshake.
    pub fn new(size: u32, rtt: Option<Duration>) -> TfrcSender {
        let size = f64::from(size.max(1));
        let mut sender = TfrcSender {
            rate: size,
            equation_rate: 0.0,
            size,
            rtt,
            heard: false,
            doubled_at: None,
            receive_rates: vec![(Time::ZERO, f64::INFINITY)],
            loss_event_rate: 0.0,
            first_interval: None,
            next: Time::ZERO,
            no_feedback_at: None,
            sent_since: false,
            limited_at: None,
            sent: VecDeque::new(),
            acked_at: None,
            pending: 0,
            drops_to: None,
            held_until: Time::ZERO,
            counter: 0,
            counter_at: None,
            congestion_events: 0,
            timeouts: 0,
        };
        if rtt.is_some() {
            sender.rate = sender.initial_rate();
        }
        sender
    }

    fn seconds(&self) -> f64 {
        self.rtt.map_or(1.0, |rtt| rtt.as_secs_f64().max(1e-6))
    }

    /// Returns the rate of an initial window, which is also the rate to recover to after idleness.
    fn initial_rate(&self) -> f64 {
        let window = (4.0 * self.size).min((2.0 * self.size).max(INITIAL_BYTES));
        window / self.seconds()
    }

    fn min_rate(&self) -> f64 {
        self.size / MAX_BACKOFF
    }

    fn interval(&self) -> Duration {
        Duration::from_secs_f64((self.size / self.rate).min(MAX_BACKOFF))
    }

    /// Sets the nofeedback timer (RFC 5348 section 4.3, step 7).
    fn restart_timer(&mut self, now: Time) {
        let time = match self.rtt {
            Some(rtt) if self.heard => (rtt * 4).max(self.interval() * 2),
            _ => INITIAL_NO_FEEDBACK,
        };
        self.no_feedback_at = Some(now + time);
        self.sent_since = false;
    }

    fn max_receive_rate(&self) -> f64 {
        self.receive_rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max)
    }

    /// Keeps the largest receive rate only (RFC 5348 section 4.3).
    fn maximize(&mut self, now: Time, rate: f64) {
        self.receive_rates.retain(|(_, rate)| rate.is_finite());
        let max = self.max_receive_rate().max(rate);
        self.receive_rates = vec![(now, max)];
    }

    /// Adds a receive rate and drops those of more than two round trips ago (RFC 5348 section 4.3).
    fn update(&mut self, now: Time, rate: f64) {
        let age = self.rtt.unwrap_or(GRANULARITY) * 2;
        self.receive_rates.retain(|(at, _)| now.since(*at) <= age);
        self.receive_rates.push((now, rate));
        // Feedback comes once for each round trip, and for each loss event.
        let excess = self.receive_rates.len().saturating_sub(16);
        self.receive_rates.drain(..excess);
    }

    /// Returns the limit that the receive rate sets (RFC 5348 section 4.3, step 4).
    fn receive_limit(&mut self, now: Time, rate: f64, data_limited: bool, worse: bool) -> f64 {
        if !data_limited {
            self.update(now, rate);
            return 2.0 * self.max_receive_rate();
        }
        if worse {
            for (_, old) in &mut self.receive_rates {
                *old /= 2.0;
            }
            self.maximize(now, rate * 0.85);
            return self.max_receive_rate();
        }
        self.maximize(now, rate);
        2.0 * self.max_receive_rate()
    }

    /// Sets the allowed rate (RFC 5348 section 4.3, step 4).
    fn set_rate(&mut self, now: Time, limit: f64) {
        let before = self.rate;
        if self.loss_event_rate > 0.0 {
            let (size, rtt) = (self.size, self.seconds());
            self.equation_rate = equation::throughput(size, rtt, self.loss_event_rate);
            self.rate = self.equation_rate.min(limit).max(self.min_rate());
        } else if self.doubled_at.is_none_or(|at| now.since(at) >= self.rtt.unwrap_or(GRANULARITY))
        {
            self.rate = (2.0 * self.rate).min(limit).max(self.initial_rate());
            self.doubled_at = Some(now);
        }
        if now < self.held_until {
            self.rate = self.rate.min(before);
        }
    }

    /// Halves by what limits the rate (RFC 5348 section 4.4).
    fn update_limits(&mut self, now: Time, limit: f64) {
        let limit = limit.max(self.min_rate());
        self.receive_rates = vec![(now, limit / 2.0)];
        self.set_rate(now, limit);
    }

    /// Reads the loss event rate of a feedback (RFC 4342 sections 6.1 and 8.5).
    fn loss_event_rate(&mut self, feedback: &Feedback<'_>) -> f64 {
        let parsed = feedback.loss_intervals.and_then(|value| interval::parse(value).ok());
        let Some((_, intervals)) = parsed else {
            return match feedback.loss_event_rate {
                None | Some(u32::MAX) => 0.0,
                Some(inverse) => 1.0 / f64::from(inverse.max(1)),
            };
        };
        let mut last_loss = 1;
        let mut lengths: Vec<f64> = intervals
            .take(equation::WEIGHTS.len() + 1)
            .map(|i| {
                last_loss = i.loss;
                f64::from(if i.data > 0 { i.data } else { i.loss + i.lossless }.max(1))
            })
            .collect();
        // The time before the first loss event says little of the rate that the path allows.
        if lengths.len() > 1 && last_loss == 0 {
            let (size, rtt) = (self.size, self.seconds());
            let rate = f64::from(feedback.receive_rate.unwrap_or(0)).max(size / rtt);
            let first = *self
                .first_interval
                .get_or_insert_with(|| 1.0 / equation::loss_event_rate(size, rtt, rate));
            if let Some(last) = lengths.last_mut() {
                *last = first;
            }
        }
        equation::average_interval(&lengths).map_or(0.0, |mean| (1.0 / mean).min(1.0))
    }

    /// Finds the acknowledged packet, and drops the records up to it.
    fn departure(&mut self, ack: Seq) -> Option<Departure> {
        let mut found = None;
        while let Some(&departure) = self.sent.front()
            && !departure.seq.after(ack)
        {
            self.sent.pop_front();
            self.pending = self.pending.saturating_sub(u32::from(departure.data));
            found = Some(departure).filter(|departure| departure.seq == ack);
        }
        found
    }

    /// Has later packets belong to the round trip after that of an acknowledged one (RFC 4342 section 8.1).
    fn advance_counter(&mut self, now: Time, acknowledged: u8) {
        let ahead = acknowledged.wrapping_add(ROUND_TRIP).wrapping_sub(self.counter) & 15;
        if (1..=ROUND_TRIP).contains(&ahead) {
            self.counter = (self.counter + ahead) & 15;
            self.counter_at = Some(now);
        }
    }

    /// Reduces the rate by a packet a round trip for each packet that the peer's buffer had no room for
    /// (RFC 4340 section 11.7.2).
    fn drop_for_buffers(&mut self, feedback: &Feedback<'_>) {
        let known = self.drops_to;
        let fresh = feedback.drops().filter(|(seq, code)| {
            *code == DropCode::ReceiveBuffer && known.is_none_or(|to| seq.after(to))
        });
        let drops = fresh.take(MAX_SENT).count();
        if drops > 0 {
            self.drops_to = Some(feedback.ack);
            let packet = self.size / self.seconds();
            self.rate = (self.rate - drops as f64 * packet).max(packet.min(self.rate));
        }
    }
}

impl Sender for TfrcSender {
    fn name(&self) -> &'static str {
        "CCID 3"
    }

    fn permit(&mut self, now: Time, _size: u32) -> Permit {
        let early = (self.interval() / 2).min(GRANULARITY / 2);
        if now + early >= self.next {
            return Permit::Now;
        }
        self.limited_at = Some(now);
        Permit::At(Time::from_nanos(self.next.as_nanos() - early.as_nanos() as u64))
    }

    fn sent(&mut self, sent: Sent) {
        if self.sent.len() >= MAX_SENT
            && let Some(departure) = self.sent.pop_front()
        {
            self.pending = self.pending.saturating_sub(u32::from(departure.data));
        }
        let Sent { now: at, seq, data, .. } = sent;
        self.sent.push_back(Departure { seq, at, data, counter: self.counter });
        if !sent.data {
            return;
        }
        self.pending += 1;
        self.size = 0.9 * self.size + 0.1 * f64::from(sent.size.max(1));
        // Time that was not used is lost, but for the granularity of timers.
        let late =
            Time::from_nanos(sent.now.as_nanos().saturating_sub(GRANULARITY.as_nanos() as u64));
        self.next = self.next.max(late) + self.interval();
        if self.no_feedback_at.is_none() {
            self.restart_timer(sent.now);
        }
        self.sent_since = true;
    }

    fn feedback(&mut self, feedback: &Feedback<'_>) {
        let now = feedback.now;
        if feedback.slow_receiver {
            self.held_until = now + self.rtt.unwrap_or(GRANULARITY);
        }
        self.drop_for_buffers(feedback);
        let Some(receive_rate) = feedback.receive_rate else { return };
        let departure = self.departure(feedback.ack);
        if let Some(Departure { at, counter, .. }) = departure {
            self.advance_counter(now, counter);
            // RFC 5348 section 4.3, steps 1 and 2.
            let sample = now.since(at).saturating_sub(feedback.elapsed);
            self.rtt = Some(match self.rtt {
                Some(rtt) if self.heard => (rtt * 9 + sample) / 10,
                _ => sample.max(Duration::from_micros(1)),
            });
        }
        if self.rtt.is_none() {
            return;
        }
        if !core::mem::replace(&mut self.heard, true) {
            // The initial limit is none, for two round trips.
            self.receive_rates = vec![(now, f64::INFINITY)];
        }
        let loss_event_rate = self.loss_event_rate(feedback);
        let worse = loss_event_rate > self.loss_event_rate;
        self.congestion_events += u64::from(worse);
        self.loss_event_rate = loss_event_rate;
        let from = self.acked_at;
        self.acked_at = departure.map(|departure| departure.at).or(from);
        // RFC 5348 section 8.2.1: nothing was held back in the interval that this feedback covers.
        let data_limited = match (self.limited_at, from) {
            (None, _) => true,
            (Some(limited), Some(from)) => limited < from,
            (Some(_), None) => false,
        };
        let limit = self.receive_limit(now, receive_rate.into(), data_limited, worse);
        self.set_rate(now, limit);
        // A faster rate holds for the packet that waits, too.
        self.next = self.next.min(now + self.interval());
        self.no_feedback_at = None;
        if self.pending > 0 || self.sent_since {
            self.restart_timer(now);
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.no_feedback_at
    }

    /// RFC 5348 section 4.4.
    fn timeout(&mut self, now: Time) {
        self.no_feedback_at = None;
        let received = self.max_receive_rate();
        let recover = self.initial_rate();
        let p = self.loss_event_rate;
        let idle = !self.sent_since;
        if !self.heard && !idle {
            self.rate = (self.rate / 2.0).max(self.min_rate());
        } else if idle
            && ((p > 0.0 && received < recover) || (p == 0.0 && self.rate < 2.0 * recover))
        {
            // Nothing is expected, and nothing is too fast: the timer waits for the next packet.
            return;
        } else if p == 0.0 {
            self.rate = (self.rate / 2.0).max(self.min_rate());
        } else if self.equation_rate > 2.0 * received {
            self.update_limits(now, received);
        } else {
            self.update_limits(now, self.equation_rate / 2.0);
        }
        self.timeouts += 1;
        self.restart_timer(now);
    }

    /// RFC 4342 section 8.1: a counter of quarters of round trips.
    fn ccval(&mut self, now: Time) -> u8 {
        let Some(rtt) = self.rtt else { return self.counter };
        match self.counter_at {
            None => self.counter_at = Some(now),
            Some(at) => {
                let quarters = now.since(at).as_nanos() * 4 / rtt.as_nanos().max(1);
                if quarters > 0 {
                    self.counter = (self.counter + quarters.min(5) as u8) & 15;
                    self.counter_at = Some(now);
                }
            }
        }
        self.counter
    }

    fn ack_ratio(&self) -> Option<u16> {
        None
    }

    fn window(&self) -> u64 {
        (self.rate * self.seconds() / self.size).ceil().clamp(1.0, 1e9) as u64
    }

    fn snapshot(&self) -> SenderSnapshot {
        SenderSnapshot {
            pipe: self.pending,
            rate: self.rate,
            loss_event_rate: self.loss_event_rate,
            rtt: self.rtt,
            congestion_events: self.congestion_events,
            timeouts: self.timeouts,
            ..SenderSnapshot::default()
        }
    }
}

#[cfg(test)]
mod tests;
