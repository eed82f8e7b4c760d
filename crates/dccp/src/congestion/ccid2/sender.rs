//! The sender of CCID 2: a congestion window in packets (RFC 4341 sections 5 and 6.1).

use super::receiver::MAX_ACK_DELAY;
use crate::congestion::{Feedback, NDUPACK, Permit, Sender, SenderSnapshot, Sent};
use crate::rtt::Rtt;
use crate::seq::Seq;
use crate::wire::vector::DropCode;
use crate::wire::{Arrival, Runs};
use core::iter::Peekable;
use ringway_sansio::{Duration, Time};
use std::collections::VecDeque;

/// Maximum congestion window in packets.
pub const MAX_CWND: u32 = 8192;
/// Length in bytes of an initial window, unless it is between two and four packets (RFC 3390).
const INITIAL_BYTES: u32 = 4380;
/// Ack Ratio of a new connection (RFC 4340 section 11.3).
const INITIAL_ACK_RATIO: u16 = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Pending,
    Acked,
    Lost,
}

/// What an acknowledgement newly reports.
#[derive(Clone, Copy, Debug, Default)]
struct Report {
    /// Number of packets without a mark.
    acked: u32,
    /// The newest packet with a mark.
    marked: Option<Seq>,
    /// Number of packets that the peer's receive buffer had no room for.
    buffer_drops: u32,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    seq: Seq,
    at: Time,
    fate: Fate,
}

/// The sender of CCID 2.
#[derive(Clone, Debug)]
pub struct TcpLikeSender {
    cwnd: u32,
    ssthresh: u32,
    /// Packets allowed at the start and after idleness.
    initial: u32,
    /// Data packets, from the oldest that is pending.
    flight: VecDeque<Record>,
    /// Number of pending ones.
    pipe: u32,
    /// Newly acknowledged packets that have not yet opened the window.
    credit: u32,
    /// The newest packet at the last reduction: what was sent up to it causes no further one.
    recovery: Option<Seq>,
    newest: Seq,
    rtt: Rtt,
    /// The newest packet at the last sample of the round-trip time. There is one sample for each window of data (RFC 4341
    /// section 5).
    sampled: Seq,
    rto_at: Option<Time>,
    last_sent: Time,
    /// Until then the window does not grow (RFC 4340 section 11.6).
    held_until: Time,
    acks: AckRatio,
    congestion_events: u64,
    timeouts: u64,
    lost: u64,
}

/// Congestion control of acknowledgements (RFC 4341 section 6.1.2).
#[derive(Clone, Debug)]
struct AckRatio {
    ratio: u16,
    /// The newest packet when the current window of data began.
    window_end: Seq,
    /// Acknowledgements lost in this window of data.
    lost: u64,
    /// Number of windows without a loss since the last change.
    clean: u32,
}

impl AckRatio {
    /// Handles the end of a window of data.
    fn end_window(&mut self, cwnd: u32, newest: Seq) {
        let max = u16::try_from(cwnd.div_ceil(2)).unwrap_or(u16::MAX).max(1);
        if core::mem::take(&mut self.lost) > 0 {
            self.ratio = self.ratio.saturating_mul(2);
            self.clean = 0;
        } else {
            self.clean = self.clean.saturating_add(1);
            let ratio = u32::from(self.ratio);
            // Enough windows for the bandwidth of acknowledgements to have grown as TCP's would.
            if ratio > 2 && self.clean >= cwnd.div_ceil(ratio * ratio - ratio) {
                self.ratio -= 1;
                self.clean = 0;
            }
        }
        // A ratio of one is for windows below four packets only.
        let min = if cwnd >= 4 { 2 } else { 1 };
        self.ratio = self.ratio.clamp(min.min(max), max);
        self.window_end = newest;
    }
}

impl TcpLikeSender {
    /// Creates a sender whose packets carry about `size` bytes, and that begins after `iss`. `rtt` is
    /// that of the handshake.
    pub fn new(iss: Seq, size: u32, rtt: Option<Duration>) -> TcpLikeSender {
        let initial = (INITIAL_BYTES / size.max(1)).clamp(2, 4);
        let mut estimator = Rtt::default();
        if let Some(rtt) = rtt {
            estimator.sample(rtt);
        }
        TcpLikeSender {
            cwnd: initial,
            ssthresh: MAX_CWND,
            initial,
            flight: VecDeque::new(),
            pipe: 0,
            credit: 0,
            recovery: None,
            newest: iss,
            rtt: estimator,
            sampled: iss,
            rto_at: None,
            last_sent: Time::ZERO,
            held_until: Time::ZERO,
            acks: AckRatio { ratio: INITIAL_ACK_RATIO, window_end: iss, lost: 0, clean: 0 },
            congestion_events: 0,
            timeouts: 0,
            lost: 0,
        }
    }

    /// Returns the timeout. Samples of the round-trip time exclude the delay of acknowledgements, which the
    /// timeout must wait for.
    fn timeout_after(&self) -> Duration {
        self.rtt.rto() + MAX_ACK_DELAY
    }

    /// Reduces the window after idleness (RFC 4341 section 5.1).
    fn after_idleness(&mut self, now: Time) {
        let rto = self.rtt.rto();
        let idle = now.since(self.last_sent);
        if self.pipe > 0 || self.last_sent == Time::ZERO || idle < rto {
            return;
        }
        let periods = (idle.as_nanos() / rto.as_nanos().max(1)).min(31) as u32;
        self.ssthresh = self.ssthresh.max(self.cwnd - self.cwnd / 4);
        self.cwnd = (self.cwnd >> periods).max(self.initial.min(self.cwnd));
        self.credit = 0;
        self.last_sent = now;
    }

    /// Marks what an acknowledgement reports.
    fn mark(&mut self, feedback: &Feedback<'_>) -> Report {
        let (mut report, mut sample) = (Report::default(), None);
        let mut drops = feedback.drops().peekable();
        let mut index = self.flight.len();
        let mut high = feedback.ack;
        let single = [(Arrival::Received, 1)];
        let single = single.iter().copied().filter(|_| feedback.vectors.is_empty());
        for (arrival, count) in single.chain(Runs::new(feedback.vectors)) {
            let low = high.minus(count - 1);
            while index > 0 && !self.flight[index - 1].seq.before(low) {
                index -= 1;
                let record = &mut self.flight[index];
                if record.seq.after(high) || record.fate != Fate::Pending {
                    continue;
                }
                if arrival == Arrival::Missing {
                    continue;
                }
                record.fate = Fate::Acked;
                self.pipe -= 1;
                if record.seq == feedback.ack && record.seq.after(self.sampled) {
                    sample = Some(feedback.now.since(record.at));
                }
                let code = code_of(&mut drops, record.seq);
                report.buffer_drops += u32::from(code == Some(DropCode::ReceiveBuffer));
                if arrival == Arrival::Marked || code.is_some_and(is_mark) {
                    report.marked = report.marked.or(Some(record.seq));
                } else {
                    report.acked += 1;
                }
            }
            high = low.minus(1);
        }
        if let Some(rtt) = sample {
            self.rtt.sample(rtt.saturating_sub(feedback.elapsed));
            self.sampled = self.newest;
        }
        report
    }

    /// Finds lost packets: those with [`NDUPACK`] acknowledged after them. Returns the newest.
    fn find_lost(&mut self) -> Option<Seq> {
        let (mut after, mut newest) = (0, None);
        for record in self.flight.iter_mut().rev() {
            match record.fate {
                Fate::Acked => after += 1,
                Fate::Pending if after >= NDUPACK => {
                    record.fate = Fate::Lost;
                    self.pipe -= 1;
                    self.lost += 1;
                    newest = newest.or(Some(record.seq));
                }
                _ => {}
            }
        }
        newest
    }

    /// Removes records that no longer matter.
    fn trim(&mut self) {
        while self.flight.front().is_some_and(|record| record.fate != Fate::Pending) {
            self.flight.pop_front();
        }
    }

    /// Halves the window, once for each window of data (RFC 4341 section 5).
    fn congestion(&mut self, seq: Seq) {
        if self.recovery.is_some_and(|recovery| !seq.after(recovery)) {
            return;
        }
        self.recovery = Some(self.newest);
        self.cwnd = (self.cwnd / 2).max(1);
        self.ssthresh = self.cwnd.max(2);
        self.credit = 0;
        self.congestion_events += 1;
    }

    /// Opens the window (RFC 4341 section 5).
    fn grow(&mut self, acked: u32) {
        if self.cwnd < self.ssthresh {
            // One packet for every two, at most half of Ack Ratio for each acknowledgement.
            self.credit += acked;
            let step = (self.credit / 2).min(u32::from(self.acks.ratio).div_ceil(2));
            if step > 0 {
                self.credit = 0;
            }
            self.cwnd = (self.cwnd + step).min(self.ssthresh);
        } else {
            self.credit += acked;
            if self.credit >= self.cwnd {
                self.credit -= self.cwnd;
                self.cwnd += 1;
            }
        }
        self.cwnd = self.cwnd.min(MAX_CWND);
    }

    /// Reduces the window by a packet for each that the peer's buffer had no room for, and leaves slow start where the peer
    /// cannot keep up (RFC 4340 section 11.7.2, RFC 4341 section 5.2).
    fn relieve(&mut self, drops: u32, slow_receiver: bool) {
        self.cwnd = self.cwnd.saturating_sub(drops).max(1);
        if drops > 0 || slow_receiver {
            self.ssthresh = self.ssthresh.min(self.cwnd.max(2));
        }
    }
}

/// Returns why a packet was not delivered. Packets are asked for in descending order.
fn code_of(
    drops: &mut Peekable<impl Iterator<Item = (Seq, DropCode)>>,
    seq: Seq,
) -> Option<DropCode> {
    while drops.next_if(|(dropped, _)| dropped.after(seq)).is_some() {}
    drops.next_if(|(dropped, _)| *dropped == seq).map(|(_, code)| code)
}

/// Returns whether a packet with this code counts as marked (RFC 4340 section 11.7.2).
fn is_mark(code: DropCode) -> bool {
    matches!(code, DropCode::Corrupt | DropCode::DeliveredCorrupt | DropCode::Other(_))
}

impl Sender for TcpLikeSender {
    fn name(&self) -> &'static str {
        "CCID 2"
    }

    fn permit(&mut self, now: Time, _size: u32) -> Permit {
        self.after_idleness(now);
        if self.pipe < self.cwnd { Permit::Now } else { Permit::Blocked }
    }

    fn sent(&mut self, sent: Sent) {
        self.newest = sent.seq;
        if !sent.data {
            return;
        }
        self.flight.push_back(Record { seq: sent.seq, at: sent.now, fate: Fate::Pending });
        self.pipe += 1;
        self.last_sent = sent.now;
        if self.rto_at.is_none() {
            self.rto_at = Some(sent.now + self.timeout_after());
        }
    }

    fn feedback(&mut self, feedback: &Feedback<'_>) {
        let used = self.pipe >= self.cwnd;
        let pipe = self.pipe;
        let Report { acked, marked, buffer_drops } = self.mark(feedback);
        let lost = self.find_lost();
        self.trim();
        if feedback.slow_receiver {
            let rtt = self.rtt.srtt().unwrap_or(self.rtt.rto());
            self.held_until = feedback.now + rtt;
        }
        for seq in [lost, marked].into_iter().flatten() {
            self.congestion(seq);
        }
        self.relieve(buffer_drops, feedback.slow_receiver);
        let hold = feedback.now < self.held_until;
        // RFC 4341 section 5.1: a window that is not used does not grow.
        if lost.is_none() && marked.is_none() && used && !hold && acked > 0 {
            self.grow(acked);
        }
        self.acks.lost += feedback.lost_acks;
        if feedback.ack.after(self.acks.window_end) {
            self.acks.end_window(self.cwnd, self.newest);
        }
        if self.pipe == 0 {
            self.rto_at = None;
        } else if self.pipe < pipe {
            self.rto_at = Some(feedback.now + self.timeout_after());
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.rto_at
    }

    fn timeout(&mut self, _now: Time) {
        self.rto_at = None;
        if self.pipe == 0 {
            return;
        }
        // RFC 4341 section 5: as TCP, but nothing is sent again.
        self.timeouts += 1;
        self.congestion_events += 1;
        self.lost += u64::from(self.pipe);
        self.ssthresh = (self.cwnd / 2).max(2);
        self.cwnd = 1;
        self.credit = 0;
        self.flight.clear();
        self.pipe = 0;
        self.recovery = Some(self.newest);
        self.rtt.back_off();
        self.acks.ratio = 1;
    }

    fn ccval(&mut self, _now: Time) -> u8 {
        // RFC 4340 section 5.1: zero, as CCID 2 does not use it.
        0
    }

    fn ack_ratio(&self) -> Option<u16> {
        Some(self.acks.ratio)
    }

    fn window(&self) -> u64 {
        u64::from(self.cwnd)
    }

    fn snapshot(&self) -> SenderSnapshot {
        SenderSnapshot {
            cwnd: self.cwnd,
            pipe: self.pipe,
            rtt: self.rtt.srtt(),
            congestion_events: self.congestion_events,
            timeouts: self.timeouts,
            lost: self.lost,
            ..SenderSnapshot::default()
        }
    }
}

#[cfg(test)]
mod tests;
