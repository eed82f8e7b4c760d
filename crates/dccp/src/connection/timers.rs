//! Deadlines: those of the connection in a table, and those of its parts.

use super::{Close, Connection, Phase};
use crate::wire::{Reset, ResetCode};
use ringway_sansio::{Duration, Time, time::sooner};

/// The connection's own timers, which index a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Timer {
    /// Sends the packet of a handshake or close again.
    Resend,
    /// Ends the connection.
    GiveUp,
    /// The next message may be sent.
    Pace,
}

/// Number of timers.
pub(super) const TIMERS: usize = 3;
const ALL: [Timer; TIMERS] = [Timer::Resend, Timer::GiveUp, Timer::Pace];

/// Time before a Request is sent again for the first time (RFC 4340 section 8.1.1).
const FIRST_REQUEST: Duration = Duration::from_secs(1);
/// Time before an Ack is sent again in PARTOPEN (RFC 4340 section 8.1.5).
const PART_OPEN: Duration = Duration::from_millis(200);
/// Maximum time between packets of a handshake or close (RFC 4340 section 8.3).
const MAX_RESEND: Duration = Duration::from_secs(64);

impl Connection {
    pub(super) fn set_timer(&mut self, timer: Timer, at: Option<Time>) {
        self.timers[timer as usize] = at;
    }

    pub(super) fn has_timer(&self, timer: Timer) -> bool {
        self.timers[timer as usize].is_some()
    }

    /// Sets the timer of a packet that was just sent again.
    pub(super) fn restart_resend(&mut self, now: Time) {
        let first = match self.phase {
            Phase::Request | Phase::Respond => FIRST_REQUEST,
            Phase::PartOpen { .. } => PART_OPEN,
            // RFC 4340 section 8.3: two round trips.
            _ => (self.sender.snapshot().rtt.or(self.handshake_rtt))
                .map_or(FIRST_REQUEST, |rtt| rtt * 2)
                .max(PART_OPEN),
        };
        let wait = first * (1 << self.attempts.min(9));
        self.attempts += 1;
        self.set_timer(Timer::Resend, Some(now + wait.min(MAX_RESEND)));
    }

    /// Notes that the peer was sent something that it should answer.
    pub(super) fn expect_answer(&mut self, now: Time) {
        if self.unanswered_since.is_none() {
            self.unanswered_since = Some(now);
            if self.phase == Phase::Open && !self.closing {
                self.set_timer(Timer::GiveUp, Some(now + self.settings.user_timeout));
            }
        }
    }

    /// Notes that the peer is alive.
    pub(super) fn heard(&mut self) {
        if self.unanswered_since.take().is_some() && self.phase == Phase::Open && !self.closing {
            self.set_timer(Timer::GiveUp, None);
        }
    }

    /// Returns when [`Connection::handle_timeout`] is to be called.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let own = self.timers.iter().copied().fold(None, sooner);
        if matches!(self.phase, Phase::Closed) {
            return None;
        }
        let parts = [self.sender.deadline(), self.receiver.deadline(), self.features.deadline()];
        parts.into_iter().fold(own, sooner)
    }

    /// Handles every deadline that has come.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        for timer in ALL {
            if self.timers[timer as usize].is_some_and(|at| at <= now) {
                self.set_timer(timer, None);
                self.expire(now, timer);
            }
        }
        let due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        if self.phase == Phase::Closed {
            return;
        }
        if due(self.sender.deadline()) {
            self.sender.timeout(now);
            self.adjust_features();
        }
        if due(self.receiver.deadline()) {
            self.receiver.timeout(now);
        }
        if due(self.features.deadline()) {
            self.features.timeout();
        }
        self.close_when_drained(now);
    }

    fn expire(&mut self, now: Time, timer: Timer) {
        match (timer, &self.phase) {
            (Timer::Resend, Phase::Request) => self.due.request = true,
            (Timer::Resend, Phase::PartOpen { .. }) => self.due.ack = true,
            (Timer::Resend, Phase::CloseReq | Phase::Closing) => self.due.close = true,
            // A server repeats its Response only for a Request (RFC 4340 section 8.1.3).
            (Timer::Resend, _) => {}
            (Timer::GiveUp, Phase::Request) => {
                self.end(Close::HandshakeTimeout, self.abortion(), false);
            }
            (Timer::GiveUp, Phase::Respond | Phase::PartOpen { .. }) => {
                let reset = Reset::new(ResetCode::Aborted);
                let why = if self.closing { Close::Timeout } else { Close::HandshakeTimeout };
                self.end(why, Some(reset), false);
            }
            (Timer::GiveUp, Phase::Open) if self.closing => {
                // What was not sent in time is dropped, and the close begins.
                self.totals.unsent += self.queue.clear() as u64;
                self.close_when_drained(now);
                self.set_timer(Timer::GiveUp, Some(now + self.settings.close_timeout));
            }
            (Timer::GiveUp, Phase::Closed) | (Timer::Pace, _) => {}
            (Timer::GiveUp, Phase::Open | Phase::CloseReq | Phase::Closing) => {
                let reset = Reset::new(ResetCode::Aborted);
                self.end(Close::Timeout, Some(reset), true);
            }
        }
    }
}
