//! The timers of a connection.

use super::{Close, Connection, Recovery, State};
use crate::rtt::GRANULARITY;
use crate::settings::Detection;
use ringway_sansio::{Duration, Time};

/// A timer that is not set.
pub(super) const NEVER: Time = Time::from_nanos(u64::MAX);
/// Number of timers.
pub(super) const TIMERS: usize = 6;
/// The probe timeout before a round trip was measured (RFC 8985 section 7.2).
const FIRST_PTO: Duration = Duration::from_secs(1);
/// `TLP.max_ack_delay` of RFC 8985 section 7.2: maximum delay of the acknowledgment of a single
/// segment.
const MAX_ACK_DELAY: Duration = Duration::from_millis(200);

/// The timers, as indices of an array.
#[derive(Clone, Copy, Debug)]
pub(super) enum Timer {
    /// Retransmission (RFC 6298), also of the SYN.
    Retransmit,
    /// Tail loss probe (RFC 8985 section 7).
    TailProbe,
    /// RACK's reordering window (RFC 8985 section 6.3).
    Reorder,
    /// Delayed acknowledgment.
    DelayedAck,
    /// Zero-window probe (RFC 9293 section 3.8.6.1).
    Persist,
    /// Keep-alive (RFC 9293 section 3.8.4).
    KeepAlive,
}

impl Connection {
    /// Handles the timers that are due.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        let due = |c: &Connection, timer| c.timer(timer) <= now;
        if due(self, Timer::DelayedAck) {
            self.stop_timer(Timer::DelayedAck);
            self.due.ack = true;
        }
        if due(self, Timer::Reorder) {
            self.stop_timer(Timer::Reorder);
            self.detect_by_time(now);
            self.enter_recovery_if_lost(now, 0);
            self.arm_retransmission(now);
        }
        if due(self, Timer::TailProbe) {
            self.stop_timer(Timer::TailProbe);
            self.send_tail_probe(now);
        }
        if due(self, Timer::Retransmit) {
            self.stop_timer(Timer::Retransmit);
            if matches!(self.state, State::SynSent | State::SynReceived) {
                self.handshake_timeout(now);
            } else {
                self.retransmission_timeout(now);
            }
        }
        if due(self, Timer::Persist) {
            self.stop_timer(Timer::Persist);
            self.due.window_probe = true;
            self.totals.window_probes += 1;
        }
        if due(self, Timer::KeepAlive) {
            self.stop_timer(Timer::KeepAlive);
            self.keep_alive(now);
        }
    }

    /// Sets the retransmission timer, bounded by the user timeout (RFC 9293 section 3.8.3).
    pub(super) fn arm_rto(&mut self, now: Time) {
        let at = (now + self.rtt.rto()).min(self.progress_at + self.settings.user_timeout);
        // It is never due at once: an expired user timeout is detected when the timer fires.
        self.set_timer(Timer::Retransmit, at.max(now + GRANULARITY));
    }

    /// Sets the timers after new data was acknowledged or a loss was found: RFC 6298 sections 5.2 and
    /// 5.3, RFC 8985 section 7.2.
    pub(super) fn arm_retransmission(&mut self, now: Time) {
        if self.board.is_empty() {
            self.stop_timer(Timer::Retransmit);
            self.stop_timer(Timer::TailProbe);
            self.stop_timer(Timer::Reorder);
            return;
        }
        self.arm_rto(now);
        self.arm_tail_probe(now);
    }

    /// Sets the probe timer by `TLP_calc_PTO` of RFC 8985 section 7.2.
    pub(super) fn arm_tail_probe(&mut self, now: Time) {
        let probe_due = self.by_time()
            && self.tail_probe.is_none()
            && self.recovery == Recovery::Open
            && self.board.sacked_bytes() == 0
            && self.rtt.backoff() == 0;
        if !probe_due {
            self.stop_timer(Timer::TailProbe);
            return;
        }
        let mut pto = self.rtt.srtt().map_or(FIRST_PTO, |srtt| srtt * 2);
        if self.board.len() == 1 {
            pto += MAX_ACK_DELAY;
        }
        // Never after the retransmission timer; at the same time the probe is sent first.
        let at = (now + pto).min(self.timer(Timer::Retransmit));
        self.set_timer(Timer::TailProbe, at);
    }

    /// Returns whether loss is detected by time.
    pub(super) fn by_time(&self) -> bool {
        self.sack_on && self.settings.detection == Detection::RackTlp
    }

    /// Handles the retransmission timeout (RFC 6298 sections 5.4 to 5.6 and RFC 5681 section 3.1).
    fn retransmission_timeout(&mut self, now: Time) {
        if self.board.is_empty() {
            return;
        }
        if now.since(self.progress_at) >= self.settings.user_timeout {
            self.finish(State::Closed, Close::TimedOut);
            return;
        }
        self.rtt.back_off();
        self.rtt_mark = self.snd_una;
        self.due.retransmission = true;
        self.tail_probe = None;
        self.due.tail_probe = false;
        if self.board.reneged() {
            // RFC 2018 section 8: the receiver has dropped data that it had acknowledged.
            self.board.distrust();
        }
        if self.snd_wnd == 0 {
            // RFC 9293 section 3.8.6.1: this probes the window and is no sign of congestion.
            self.totals.window_probes += 1;
            self.board.lose_first();
        } else {
            self.totals.timeouts += 1;
            let flight = self.flight_size();
            // RFC 5681 section 3.1: not again for the same data.
            if !matches!(self.recovery, Recovery::Loss { .. }) || self.rtt.backoff() == 1 {
                self.congestion.timeout(&mut self.window, flight, now);
            }
            self.window.cwnd = self.mss;
            self.ecn.reduced = self.ecn.on;
            if self.by_time() {
                let wnd = self.reo_wnd();
                self.board.lose_overdue(&self.rack, wnd, now);
            } else {
                self.board.lose_all();
            }
            self.dup_acks = 0;
            self.recovery = Recovery::Loss { until: self.snd_nxt };
        }
        self.stop_timer(Timer::Reorder);
        self.stop_timer(Timer::TailProbe);
        self.arm_rto(now);
    }

    /// Sends a probe by `TLP_send_probe` of RFC 8985 section 7.3.
    fn send_tail_probe(&mut self, now: Time) {
        self.arm_rto(now);
        // One at a time, and not before a measurement after the last one.
        if self.board.is_empty() || self.tail_probe.is_some() || !self.measured {
            return;
        }
        self.measured = false;
        self.due.tail_probe = true;
        self.totals.tail_probes += 1;
    }

    /// Probes a silent peer, and ends the connection after too many probes (RFC 9293 section 3.8.4).
    fn keep_alive(&mut self, now: Time) {
        let Some(keep_alive) = self.settings.keep_alive else { return };
        if !self.state.is_synchronised() {
            return;
        }
        let silence = now.since(self.heard_at);
        if silence < keep_alive.idle {
            self.keep_alive_probes = 0;
            self.set_timer(Timer::KeepAlive, self.heard_at + keep_alive.idle);
            return;
        }
        if self.keep_alive_probes >= keep_alive.probes {
            self.finish(State::Closed, Close::TimedOut);
            return;
        }
        self.keep_alive_probes += 1;
        // While data is in flight its retransmission serves as the probe.
        self.due.keep_alive = self.board.is_empty();
        self.set_timer(Timer::KeepAlive, now + keep_alive.interval);
    }

    /// Sets the probe timer when data waits for a window that is too small (RFC 9293 section 3.8.6.1).
    pub(super) fn arm_persist(&mut self, now: Time) {
        if self.timer(Timer::Persist) == NEVER {
            self.set_timer(Timer::Persist, now + self.rtt.rto());
        }
    }
}
