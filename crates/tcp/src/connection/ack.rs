//! Processing of an acknowledgment: new data, selective blocks, the window, congestion.

use super::timers::{NEVER, Timer};
use super::{Close, Connection, Recovery, State};
use crate::board::Delivered;
use crate::congestion::Acked;
use crate::rack::AckTime;
use crate::segment::{Flags, Header, Segment};
use crate::seq::Seq;
use ringway_sansio::{Duration, Time};

/// The contents of one acknowledgment, collected before loss and congestion are handled.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AckSummary {
    /// `pipe` before it.
    pub(super) flight: u32,
    /// Bytes newly acknowledged cumulatively.
    pub(super) advanced: u32,
    /// `DeliveredData` of RFC 6937 section 3.
    pub(super) delivered: u32,
    /// Whether it is a duplicate by RFC 5681 section 2.
    pub(super) duplicate: bool,
    /// Whether selective blocks reported something new.
    pub(super) sack_news: bool,
    /// Whether it reports a duplicate (RFC 2883).
    pub(super) dsack: bool,
}

impl Connection {
    /// Handles the acknowledgment of a segment. Returns `false` when the segment is to be dropped.
    pub(super) fn input_ack(&mut self, now: Time, segment: &Segment<'_>) -> bool {
        let header = &segment.header;
        let ack = header.ack;
        if ack.after(self.snd_nxt) || ack.before(self.snd_una.back(self.max_snd_wnd)) {
            // RFC 5961 section 5.2: it acknowledges what was never sent, or is too old to be valid.
            self.challenge(now);
            return false;
        }
        let mut summary = AckSummary { flight: self.board.pipe(), ..AckSummary::default() };
        let old_window = self.snd_wnd;
        self.update_window(header);
        let reopened = old_window == 0 && self.snd_wnd > 0;
        if ack.before(self.snd_una) {
            return true;
        }
        if self.snd_wnd == 0 {
            // RFC 9293 section 3.8.6.1: while the peer answers, its window may stay closed.
            self.progress_at = now;
        }
        summary.duplicate = ack == self.snd_una
            && segment.is_empty()
            && self.snd_wnd == old_window
            && !self.board.is_empty();
        let outstanding = !self.board.is_empty();
        let time =
            if outstanding { self.ack_time(now, header) } else { AckTime { now, echoed: None } };
        if outstanding && !header.options.sack.is_empty() && self.sack_on {
            self.input_sack(header, time, &mut summary);
        }
        if ack.after(self.snd_una) {
            self.advance_to(now, ack, time, &mut summary);
        }
        if outstanding {
            self.judge(now, header, summary);
        }
        if reopened {
            self.window_reopened(now);
        }
        // RFC 9293 section 3.10.7.4, fifth: the local FIN.
        if self.fin_sent.is_some_and(|fin| self.snd_una.after(fin)) {
            match self.state {
                State::FinWait1 => self.state = State::FinWait2,
                State::Closing => self.finish(State::TimeWait, Close::Finished),
                State::LastAck => self.finish(State::Closed, Close::Finished),
                _ => {}
            }
        }
        true
    }

    /// Updates the window, only from a segment later than the last that did (RFC 9293 section
    /// 3.10.7.4).
    fn update_window(&mut self, header: &Header) {
        let (seq, ack) = (header.seq, header.ack);
        let later = self.snd_wl1.before(seq)
            || (self.snd_wl1 == seq && (self.snd_wl2.upto(ack) || ack == self.snd_una));
        if ack.before(self.snd_una) || !later {
            return;
        }
        self.snd_wnd = u32::from(header.window) << self.snd_scale;
        self.snd_wl1 = seq;
        self.snd_wl2 = ack;
        self.max_snd_wnd = self.max_snd_wnd.max(self.snd_wnd);
        if self.snd_wnd > 0 && self.timer(Timer::Persist) != NEVER {
            self.stop_timer(Timer::Persist);
        }
    }

    /// Handles the opening of a closed window: what the peer refused is sent again, and does not count
    /// as congestion.
    fn window_reopened(&mut self, now: Time) {
        if self.recovery == Recovery::Open && !self.board.is_empty() {
            self.board.lose_first();
            self.due.retransmission = true;
            self.arm_rto(now);
        }
    }

    fn ack_time(&self, now: Time, header: &Header) -> AckTime {
        let echoed = match header.options.timestamps {
            Some(stamps) if self.stamps.on => {
                let age = self.stamp(now).wrapping_sub(stamps.echo);
                // The timestamp clock has a resolution of milliseconds: the segment was sent within
                // this one.
                let sent = now.as_millis().checked_sub(u64::from(age));
                sent.map(|ms| Time::from_millis(ms) + Duration::from_nanos(999_999))
            }
            _ => None,
        };
        AckTime { now, echoed }
    }

    /// Returns the local timestamp: milliseconds from a secret start (RFC 7323 section 5.4).
    pub(super) fn stamp(&self, now: Time) -> u32 {
        (now.as_millis() as u32).wrapping_add(self.stamps.offset)
    }

    fn input_sack(&mut self, header: &Header, time: AckTime, summary: &mut AckSummary) {
        let blocks = header.options.sack.blocks();
        // RFC 2883 section 5: the first block reports a duplicate when it is below the acknowledgment
        // or within the second block.
        let mut blocks_from = 0;
        if let Some(&(left, right)) = blocks.first()
            && left.before(right)
        {
            let below = right.upto(header.ack);
            let within = blocks.get(1).is_some_and(|b| b.0.upto(left) && right.upto(b.1));
            if below || within {
                blocks_from = 1;
                summary.dsack = true;
                self.totals.duplicates_reported += 1;
                self.rack.duplicate_reported(self.snd_una, self.snd_nxt);
            }
        }
        for &(left, right) in &blocks[blocks_from..] {
            // RFC 2018 section 5: only outstanding data can be acknowledged.
            let sane = left.before(right) && left.from(header.ack) && right.upto(self.snd_nxt);
            if sane && left.from(self.snd_una) {
                let news = self.board.sack(left, right, &mut self.rack, time);
                summary.delivered += news;
                summary.sack_news |= news > 0;
            }
        }
    }

    /// Advances SND.UNA.
    fn advance_to(&mut self, now: Time, ack: Seq, time: AckTime, summary: &mut AckSummary) {
        summary.advanced = ack - self.snd_una;
        let fin = u32::from(self.fin_sent.is_some_and(|fin| ack.after(fin)));
        let data = summary.advanced - fin;
        self.send.consume(data as usize);
        self.totals.bytes_acked += u64::from(data);
        self.snd_una = ack;
        self.progress_at = now;
        let Delivered { bytes, oldest, retransmitted } =
            self.board.acknowledge(ack, &mut self.rack, time);
        summary.delivered += bytes;
        self.measure(now, ack, oldest, retransmitted, time);
        if self.write_blocked && self.send.space() >= self.send.limit() / 4 {
            self.write_blocked = false;
            self.pending.writable = true;
        }
    }

    /// Measures the round trip, once each (RFC 6298 section 3), never from a segment sent twice (Karn)
    /// unless timestamps show which transmission was answered (RFC 7323 section 4).
    fn measure(
        &mut self,
        now: Time,
        ack: Seq,
        oldest: Option<(Time, Seq)>,
        retransmitted: bool,
        time: AckTime,
    ) {
        if ack.upto(self.rtt_mark) {
            return;
        }
        let rtt = match (oldest, retransmitted, time.echoed) {
            (Some((at, _)), false, _) => now.since(at),
            (_, true, Some(echoed)) => now.since(echoed).max(crate::rtt::GRANULARITY),
            _ => return,
        };
        self.rtt.sample(rtt);
        self.measured = true;
        self.rtt_mark = self.snd_nxt;
    }

    /// Handles loss, recovery, congestion and timers after the acknowledgment's contents are noted.
    fn judge(&mut self, now: Time, header: &Header, mut summary: AckSummary) {
        let echo = self.ecn.on && header.flags.has(Flags::ECE);
        self.tail_probe_answered(now, header.ack, summary);
        self.detect(now, &mut summary);
        let recovered = self.leave_recovery(summary);
        self.enter_recovery_if_lost(now, summary.delivered);
        if echo {
            self.ecn_echoed(now, summary);
        }
        match self.recovery {
            Recovery::Fast { .. } => self.allow_by_prr(summary),
            _ if summary.advanced > 0 && !recovered => self.grow(now, summary, echo),
            _ => {}
        }
        if summary.advanced > 0 {
            self.arm_retransmission(now);
        } else if summary.sack_news && self.timer(Timer::TailProbe) != NEVER {
            // RFC 8985 section 7.2: when a hole is known, RACK takes over.
            self.stop_timer(Timer::TailProbe);
        }
    }

    fn grow(&mut self, now: Time, summary: AckSummary, echo: bool) {
        // RFC 3168 section 6.1.2: not while congestion is echoed. RFC 5681 section 3.1 and RFC 9438
        // section 5.8: only a window that was used.
        let slow_start = self.window.in_slow_start();
        let used = summary.flight + self.mss > self.window.cwnd
            || (slow_start && self.window.cwnd / 2 < summary.flight);
        if echo || !used {
            return;
        }
        let after_timeout = matches!(self.recovery, Recovery::Loss { .. });
        let acked = Acked { now, bytes: summary.advanced, srtt: self.rtt.srtt(), after_timeout };
        self.congestion.acked(&mut self.window, acked);
    }
}
