//! Loss detection and recovery.

use super::ack::AckSummary;
use super::timers::Timer;
use super::{Connection, Recovery};
use crate::prr::Prr;
use crate::seq::Seq;
use ringway_sansio::{Duration, Time};

/// Number of duplicate acknowledgments that indicate a loss (RFC 5681 section 3.2).
const DUP_THRESH: u32 = 3;

impl Connection {
    /// Returns the bytes in flight. Without SACK each duplicate acknowledgment shows that one segment
    /// arrived, so that new data may be sent: this implements RFC 3042 (limited transmit) and the
    /// inflated window of RFC 6582 section 3.2. With SACK the scoreboard counts it.
    pub(super) fn pipe(&self) -> u32 {
        let arrived = if self.sack_on { 0 } else { self.dup_acks * self.mss };
        self.board.pipe().saturating_sub(arrived)
    }

    /// Returns RACK's reordering window.
    pub(super) fn reo_wnd(&self) -> Duration {
        let recovering = self.recovery != Recovery::Open;
        self.rack.reo_wnd(recovering, self.board.sacked_bytes(), self.mss, self.rtt.srtt())
    }

    /// Marks losses by time and sets the timer (RFC 8985 section 6.2 step 5).
    pub(super) fn detect_by_time(&mut self, now: Time) {
        let wnd = self.reo_wnd();
        match self.board.lose_by_time(&self.rack, wnd, now) {
            Some(at) => self.set_timer(Timer::Reorder, at),
            None => self.stop_timer(Timer::Reorder),
        }
    }

    /// Detects losses after an acknowledgment.
    pub(super) fn detect(&mut self, now: Time, summary: &mut AckSummary) {
        if self.by_time() {
            self.detect_by_time(now);
        } else if self.sack_on {
            if summary.sack_news {
                self.board.lose_by_count(self.mss);
            }
        } else {
            self.detect_by_duplicates(summary);
        }
    }

    /// Detects losses by duplicate acknowledgments (RFC 6582 section 3.2).
    fn detect_by_duplicates(&mut self, summary: &mut AckSummary) {
        if summary.advanced > 0 {
            // Step 3: a partial acknowledgment shows that the next segment is lost too.
            if let Recovery::Fast { until } = self.recovery
                && self.snd_una.before(until)
            {
                let segments = summary.advanced.div_ceil(self.mss).saturating_sub(1);
                let counted = segments.min(self.dup_acks);
                self.dup_acks -= counted;
                // RFC 6937 section 3: without the bytes that earlier duplicates stood for.
                summary.delivered = summary.delivered.saturating_sub(counted * self.mss);
                self.board.lose_first();
                self.due.retransmission = true;
            } else {
                self.dup_acks = 0;
            }
        } else if summary.duplicate && !matches!(self.recovery, Recovery::Loss { .. }) {
            let outstanding = self.board.outstanding() / self.mss.max(1);
            self.dup_acks = (self.dup_acks + 1).min(outstanding);
            // Step 1; section 4.1: not for segments that a timeout already sent again.
            if self.dup_acks == DUP_THRESH && self.recovery == Recovery::Open {
                self.board.lose_first();
            }
        }
    }

    /// Ends the recovery when everything sent before the loss is acknowledged (RFC 6675 section 5).
    /// Returns whether it ended just now.
    pub(super) fn leave_recovery(&mut self, summary: AckSummary) -> bool {
        if summary.advanced == 0 {
            return false;
        }
        match self.recovery {
            Recovery::Fast { until } if self.snd_una.from(until) => {
                self.recovery = Recovery::Open;
                // RFC 6937 section 3.
                self.window.cwnd = self.window.ssthresh;
                self.dup_acks = 0;
                self.rack.recovered();
                true
            }
            Recovery::Loss { until } if self.snd_una.from(until) => {
                self.recovery = Recovery::Open;
                self.dup_acks = 0;
                self.rack.recovered();
                true
            }
            _ => false,
        }
    }

    /// Starts a fast recovery after a loss (RFC 6675 section 5 step 4, RFC 6582 section 3.2 step 2).
    pub(super) fn enter_recovery_if_lost(&mut self, now: Time, delivered: u32) {
        if self.recovery != Recovery::Open || self.board.lost_bytes() == 0 || self.snd_wnd == 0 {
            return;
        }
        self.totals.recoveries += 1;
        self.reduce(now, self.flight_size());
        self.recovery = Recovery::Fast { until: self.snd_nxt };
        // RFC 6937 section 3 takes FlightSize. Bytes delivered before the loss was certain are not
        // delivered again and are left out.
        let before = self.board.sacked_bytes().saturating_sub(delivered);
        self.prr = Prr::new(self.board.outstanding().saturating_sub(before));
        self.due.retransmission = true;
        self.tail_probe = None;
        self.stop_timer(Timer::TailProbe);
        // RFC 6675 section 5 step 4.2, as PRR does it.
        self.window.cwnd = self.pipe();
        self.arm_rto(now);
    }

    /// Returns FlightSize without the segments that limited transmit sent beyond the window (RFC 5681
    /// section 3.2 step 2). During a recovery that window is the target of the recovery.
    pub(super) fn flight_size(&self) -> u32 {
        let window = match self.recovery {
            Recovery::Fast { .. } => self.window.ssthresh,
            _ => self.window.cwnd,
        };
        self.board.outstanding().min(window)
    }

    /// Reduces the window, once per window (RFC 3168 section 6.1.2, RFC 5681 section 3.2).
    fn reduce(&mut self, now: Time, flight: u32) -> bool {
        if self.reduced_until.is_some_and(|until| self.snd_una.before(until)) {
            return false;
        }
        self.reduced_until = Some(self.snd_nxt);
        self.congestion.reduce(&mut self.window, flight, now);
        if self.ecn.on {
            self.ecn.reduced = true;
        }
        true
    }

    /// Handles congestion without a loss (RFC 3168 section 6.1.2).
    pub(super) fn ecn_echoed(&mut self, now: Time, summary: AckSummary) {
        // An echo on the acknowledgment of the whole window still concerns that window: the peer has
        // not received the CWR sent after it.
        let answered = self.reduced_until.is_some_and(|until| self.snd_una.upto(until));
        if self.recovery == Recovery::Open && !answered && self.reduce(now, summary.flight) {
            self.window.cwnd = self.window.ssthresh;
            self.totals.ecn_reductions += 1;
        }
    }

    /// Sets the window to what this acknowledgment allows (RFC 6937 section 3).
    pub(super) fn allow_by_prr(&mut self, summary: AckSummary) {
        // Section 3: without SACK a duplicate stands for one segment.
        let delivered =
            if self.sack_on || !summary.duplicate { summary.delivered } else { self.mss };
        let pipe = self.pipe();
        let allowed = self.prr.allow(delivered, pipe, self.window.ssthresh, self.mss);
        self.window.cwnd = pipe.saturating_add(allowed);
    }

    /// Evaluates the answer to a tail loss probe (RFC 8985 section 7.4.2).
    pub(super) fn tail_probe_answered(&mut self, now: Time, ack: Seq, summary: AckSummary) {
        let Some(probe) = self.tail_probe else { return };
        if ack.before(probe.end) {
            return;
        }
        let without_news = summary.advanced == 0 && !summary.sack_news;
        if !probe.retransmitted || summary.dsack {
            self.tail_probe = None;
        } else if ack.after(probe.end) {
            // The probe repaired a loss, and the window is reduced as for any other.
            self.tail_probe = None;
            if self.recovery == Recovery::Open && self.reduce(now, summary.flight) {
                self.window.cwnd = self.window.cwnd.min(self.window.ssthresh);
            }
        } else if without_news {
            // The original arrived too.
            self.tail_probe = None;
        }
    }
}
