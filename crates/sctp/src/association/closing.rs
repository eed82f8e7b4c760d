//! The graceful shutdown (RFC 9260 section 9.2).

use super::{Association, Close, Cx, FinalChunk, State};
use crate::Tsn;
use crate::timers::Timer;
use crate::wire::cause::Cause;

impl Association {
    /// Starts a graceful shutdown. Until the peer has answered, everything accepted so far is still
    /// sent first.
    pub fn shutdown(&mut self, cx: &mut Cx<'_>) {
        self.shutdown_requested = true;
        if self.state == State::Established {
            self.state = State::ShutdownPending;
            self.timers.start(Timer::T5ShutdownGuard, cx.now + self.settings.guard());
            self.closing_progress(cx);
        }
    }

    /// Sends SHUTDOWN or SHUTDOWN ACK once everything is acknowledged.
    pub(super) fn closing_progress(&mut self, cx: &mut Cx<'_>) {
        if !self.out.is_done() {
            return;
        }
        match self.state {
            // Not before it is known which numbers the peer uses (RFC 6525 section 5.2.7).
            State::ShutdownPending if self.pending_full_reset().is_some() => {}
            State::ShutdownPending => self.begin_closing(cx, State::ShutdownSent),
            State::ShutdownReceived => self.begin_closing(cx, State::ShutdownAckSent),
            _ => {}
        }
    }

    fn begin_closing(&mut self, cx: &mut Cx<'_>, state: State) {
        self.state = state;
        self.errors = 0;
        self.chosen.closing = self.chosen.current;
        self.control.shutdown = true;
        self.start_t2(cx);
        for path in &mut self.paths {
            // RFC 9260 section 8.3: heartbeats end here.
            path.rest();
        }
    }

    pub(super) fn start_t2(&mut self, cx: &Cx<'_>) {
        self.timers.start(Timer::T2Shutdown, cx.now + self.paths[self.chosen.closing].rto.get());
    }

    /// Handles the expiry of T2-shutdown.
    pub(super) fn closing_timeout(&mut self, cx: &mut Cx<'_>) {
        let path = &mut self.paths[self.chosen.closing];
        path.error(&self.settings);
        path.rto.back_off();
        if self.count_error() {
            return;
        }
        self.path_changed();
        self.chosen.closing = self.other_than(self.chosen.closing);
        self.control.shutdown = true;
        self.start_t2(cx);
    }

    /// Handles the expiry of T5-shutdown-guard.
    pub(super) fn closing_guard(&mut self) {
        let reason = Cause::UserAbort(b"the shutdown took too long");
        self.fail(reason, Close::ShutdownTimeout);
    }

    /// Handles a packet that arrives while SHUTDOWN waits for its answer.
    pub(super) fn closing_heard(&mut self, cx: &Cx<'_>, data: bool) {
        if self.state != State::ShutdownSent {
            return;
        }
        self.errors = 0;
        // RFC 9260 section 9.2 covers any packet while the peer sends its data. Heartbeats must not
        // postpone a SHUTDOWN that was lost.
        if data {
            self.start_t2(cx);
            // A SACK carries what SHUTDOWN cannot: gaps, duplicates and the window.
            self.control.shutdown = true;
            self.acks.now();
        }
    }

    /// Handles a SHUTDOWN on a path.
    pub(super) fn handle_shutdown(&mut self, cx: &mut Cx<'_>, path: usize, cumulative: Tsn) {
        match self.state {
            State::Established | State::ShutdownPending | State::ShutdownReceived => {
                let again = self.state == State::ShutdownReceived;
                self.pending.peer_shutdown |= !again;
                let outstanding = self.out.outstanding;
                self.state = State::ShutdownReceived;
                self.window.peer_heard();
                self.acks.clear();
                self.acknowledged(cx, cumulative, None, core::iter::empty(), 0);
                self.closing_progress(cx);
                self.answer_shutdown_on(path);
                if again && self.out.outstanding == outstanding {
                    // A repeated SHUTDOWN shows that the peer's T2-shutdown expired. The peer counts
                    // errors until a packet arrives, and outstanding data may wait for a longer timer
                    // here. A HEARTBEAT shows that the local endpoint is alive and that the path works.
                    self.send_heartbeat(path);
                }
            }
            State::ShutdownSent => {
                self.begin_closing(cx, State::ShutdownAckSent);
                self.answer_shutdown_on(path);
            }
            State::ShutdownAckSent => {
                self.control.shutdown = true;
                self.answer_shutdown_on(path);
            }
            State::CookieWait | State::CookieEchoed | State::Closed => {}
        }
    }

    /// Sends SHUTDOWN ACK to the address that SHUTDOWN came from (RFC 9260 section 6.4). That path
    /// works, while the failure of the data's path would go unnoticed once heartbeats have ended.
    fn answer_shutdown_on(&mut self, path: usize) {
        if self.state == State::ShutdownAckSent && self.paths[path].usable() {
            self.chosen.closing = path;
        }
    }

    pub(super) fn handle_shutdown_ack(&mut self) {
        if matches!(self.state, State::ShutdownSent | State::ShutdownAckSent) {
            self.final_chunk = Some(FinalChunk::ShutdownComplete);
            self.close(Close::Finished);
        }
    }

    pub(super) fn handle_shutdown_complete(&mut self) {
        if self.state == State::ShutdownAckSent {
            self.close(Close::Finished);
        }
    }

    /// Sends SHUTDOWN ACK again for an INIT, or a cookie after that INIT, that arrived instead of
    /// SHUTDOWN COMPLETE (RFC 9260 sections 5.2.4 A and 9.2).
    pub(crate) fn repeat_shutdown_ack(&mut self, cookie: bool) {
        self.control.shutdown = true;
        if cookie {
            self.report(Cause::CookieWhileShuttingDown);
        }
    }
}
