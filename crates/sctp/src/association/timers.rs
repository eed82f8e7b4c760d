//! Timers (RFC 9260 sections 6.3.3 and 8).

use super::{Association, Cx};
use crate::timers::{PathTimer, Timer};
use ringway_sansio::Time;

impl Association {
    /// Returns the time when [`Association::handle_timeout`] is to be called; `None` when nothing waits.
    pub fn poll_timeout(&self) -> Option<Time> {
        let mut first: Option<Time> = None;
        let mut look = |timer: Option<Time>| {
            if let Some(at) = timer {
                first = Some(first.map_or(at, |f| f.min(at)));
            }
        };
        look(self.timers.first());
        look(self.acks.timer);
        if let Some(reconfig) = &self.reconfig {
            look(reconfig.timer());
        }
        if let Some(asconf) = &self.asconf {
            look(asconf.timer());
        }
        for path in &self.paths {
            look(path.timers.first());
            if let Some(rack) = path.rack() {
                look(rack.timer());
            }
        }
        first
    }

    /// Handles the time that [`Association::poll_timeout`] returned.
    pub fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        self.expire(cx);
        self.out.check_accounting(&self.paths);
    }

    fn expire(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        if self.timers.take_expired(Timer::T1, now) {
            self.opening_timeout(cx);
        }
        if self.timers.take_expired(Timer::T5ShutdownGuard, now) {
            self.closing_guard();
        }
        if self.timers.take_expired(Timer::T2Shutdown, now) {
            self.closing_timeout(cx);
        }
        if let Some(reconfig) = &mut self.reconfig
            && reconfig.take_expired(now)
        {
            self.reconfig_timeout(now);
        }
        if let Some(reconfig) = &mut self.reconfig
            && reconfig.take_quiet_end(now)
        {
            self.end_quiet();
        }
        if let Some(asconf) = &mut self.asconf
            && asconf.take_expired(now)
        {
            self.asconf_timeout(now);
        }
        if self.acks.timer.is_some_and(|at| at <= now) {
            self.acks.now();
        }
        for index in 0..self.paths.len() {
            if self.paths[index].timers.take_expired(PathTimer::T3Rtx, now) {
                self.t3_expired(now, index);
            }
            if self.is_closed() {
                return;
            }
            let timer = self.paths[index].rack().and_then(|rack| rack.timer());
            if timer.is_some_and(|at| at <= now) {
                self.rack_expired(now, index);
            }
            if self.paths[index].timers.take_expired(PathTimer::PmtuProbe, now) {
                self.probe_timeout(now, index);
            }
        }
        self.beat_timers(cx);
    }

    /// Handles the timer of RACK (RFC 8985 sections 6.3 and 7.3).
    fn rack_expired(&mut self, now: Time, index: usize) {
        let outcome = self.out.rack_timeout(now, index, &mut self.paths, &self.settings);
        self.totals.fast_retransmits += u64::from(outcome.marked);
        self.totals.tail_probes += u64::from(outcome.fast && outcome.marked == 0);
        self.totals.recoveries += u64::from(outcome.fast && outcome.marked > 0);
        self.abandon_expired(now);
        if outcome.fast {
            self.out.set_forced(true);
        }
        self.allow_bursts();
    }

    /// Handles the expiry of T3-rtx (RFC 9260 section 6.3.3).
    fn t3_expired(&mut self, now: Time, index: usize) {
        let max = self.max_data();
        let path = &mut self.paths[index];
        if path.flight.is_empty() && !self.out.has_marked() && !self.out.is_ahead() {
            // The window has been closed for an RTO (section 6.1 A).
            self.window.set_due();
            self.allow_bursts();
            return;
        }
        self.totals.timeouts += 1;
        self.errors.data_on(index);
        let heard = self.window.timer_expired(index) || path.flight.is_empty();
        if heard && self.out.is_shut(max) {
            // The peer answers but has no room, which is no error (section 6.1 A). The data that it
            // refused probes its window, on another path where there is one, since the answer may
            // concern that path's data.
            self.out.mark_all(index, path, true);
            self.abandon_expired(now);
            self.window.probe_again();
            self.out.set_forced(true);
            return;
        }
        path.suspect_black_hole(now, path.flight.bytes() as usize);
        let recovering = path.end_recovery() || self.out.in_recovery();
        path.reset_rack();
        path.rto.back_off();
        path.timeout(now, recovering);
        path.error(&self.settings);
        self.out.mark_all(index, path, true);
        self.out.end_recovery();
        self.abandon_expired(now);
        self.out.set_forced(true);
        if self.count_error() {
            return;
        }
        self.paths[index].ask_soon(now);
        self.try_other_local(index, self.paths[index].data_turn());
        self.path_changed();
        if self.out.is_ahead() {
            // RFC 3758 section 3.5, rule C5.
            self.control.forward.request_on(self.other_than(index));
        }
        self.allow_bursts();
    }
}
