//! The graceful shutdown (RFC 9260 section 9.2).

use super::phase::{Closing, Phase};
use super::{Association, Close, Cx, FinalChunk};
use crate::Tsn;
use crate::outgoing::Acknowledgement;
use crate::timers::Timer;
use crate::wire::cause::Cause;

impl Association {
    /// Starts a graceful shutdown. Until the peer has answered, everything accepted so far is still
    /// sent first.
    pub fn shutdown(&mut self, cx: &mut Cx<'_>) {
        match &mut self.phase {
            Phase::Established => {
                self.enter(Phase::ShutdownPending);
                self.timers.start(Timer::T5ShutdownGuard, cx.now + self.settings.guard());
                self.closing_progress(cx);
            }
            Phase::ShutdownReceived { requested } => *requested = true,
            phase => {
                if let Some(attempt) = phase.attempt_mut() {
                    attempt.shutdown_requested = true;
                }
            }
        }
    }

    /// Sends SHUTDOWN or SHUTDOWN ACK once everything is acknowledged.
    pub(super) fn closing_progress(&mut self, cx: &mut Cx<'_>) {
        if !self.out.is_done() {
            return;
        }
        match self.phase {
            // Not before it is known which numbers the peer uses (RFC 6525 section 5.2.7).
            Phase::ShutdownPending if self.pending_full_reset().is_some() => {}
            Phase::ShutdownPending => self.begin_closing(cx, Phase::ShutdownSent),
            Phase::ShutdownReceived { .. } => self.begin_closing(cx, Phase::ShutdownAckSent),
            _ => {}
        }
    }

    /// Enters SHUTDOWN-SENT or SHUTDOWN-ACK-SENT, whose chunk is due on the path of data.
    fn begin_closing(&mut self, cx: &mut Cx<'_>, phase: fn(Closing) -> Phase) {
        let path = self.chosen.current;
        self.enter(phase(Closing { path, due: true }));
        self.errors.peer_answered();
        self.start_t2(cx, path);
        for path in &mut self.paths {
            // RFC 9260 section 8.3: heartbeats end here.
            path.rest();
        }
    }

    fn start_t2(&mut self, cx: &Cx<'_>, path: usize) {
        self.timers.start(Timer::T2Shutdown, cx.now + self.paths[path].rto.get());
    }

    /// Returns the path on which SHUTDOWN or SHUTDOWN ACK is due.
    #[inline]
    pub(super) fn shutdown_target(&self) -> Option<usize> {
        self.phase.closing().filter(|closing| closing.due).map(|closing| closing.path)
    }

    /// Returns whether SHUTDOWN ACK is sent and not answered.
    #[inline]
    pub(super) fn waits_for_shutdown_complete(&self) -> bool {
        matches!(self.phase, Phase::ShutdownAckSent(_))
    }

    /// Handles the expiry of T2-shutdown.
    pub(super) fn closing_timeout(&mut self, cx: &mut Cx<'_>) {
        let Some(Closing { path: last, .. }) = self.phase.closing() else { return };
        let path = &mut self.paths[last];
        path.error(&self.settings);
        path.rto.back_off();
        if self.count_error() {
            return;
        }
        self.path_changed();
        let path = self.other_than(last);
        if let Some(closing) = self.phase.closing_mut() {
            *closing = Closing { path, due: true };
        }
        self.start_t2(cx, path);
    }

    /// Handles the expiry of T5-shutdown-guard.
    pub(super) fn closing_guard(&mut self) {
        let reason = Cause::UserAbort(b"the shutdown took too long");
        self.fail(reason, Close::ShutdownTimeout);
    }

    /// Handles a packet that arrives while SHUTDOWN waits for its answer.
    pub(super) fn closing_heard(&mut self, cx: &Cx<'_>, data: bool) {
        let Phase::ShutdownSent(closing) = &mut self.phase else { return };
        self.errors.peer_answered();
        // RFC 9260 section 9.2 covers any packet while the peer sends its data. Heartbeats must not
        // postpone a SHUTDOWN that was lost.
        if data {
            // A SACK carries what SHUTDOWN cannot: gaps, duplicates and the window.
            closing.due = true;
            self.acks.now();
            let path = closing.path;
            self.start_t2(cx, path);
        }
    }

    /// Handles a SHUTDOWN on a path.
    pub(super) fn handle_shutdown(&mut self, cx: &mut Cx<'_>, path: usize, cumulative: Tsn) {
        match &mut self.phase {
            Phase::Established | Phase::ShutdownPending | Phase::ShutdownReceived { .. } => {
                let again = matches!(self.phase, Phase::ShutdownReceived { .. });
                self.pending.peer_shutdown |= !again;
                let outstanding = self.out.outstanding();
                let requested = self.phase.wants_shutdown();
                self.enter(Phase::ShutdownReceived { requested });
                self.window.peer_heard();
                self.acks.clear();
                self.acknowledged(cx, Acknowledgement::up_to(cumulative));
                self.closing_progress(cx);
                self.answer_shutdown_on(path);
                if again && self.out.outstanding() == outstanding {
                    // A repeated SHUTDOWN shows that the peer's T2-shutdown expired. The peer counts
                    // errors until a packet arrives, and outstanding data may wait for a longer timer
                    // here. A HEARTBEAT shows that the local endpoint is alive and that the path works.
                    self.send_heartbeat(path);
                }
            }
            Phase::ShutdownSent(_) => {
                self.begin_closing(cx, Phase::ShutdownAckSent);
                self.answer_shutdown_on(path);
            }
            Phase::ShutdownAckSent(closing) => {
                closing.due = true;
                self.answer_shutdown_on(path);
            }
            Phase::CookieWait(_) | Phase::CookieEchoed(_) | Phase::Closed(_) => {}
        }
    }

    /// Sends SHUTDOWN ACK to the address that SHUTDOWN came from (RFC 9260 section 6.4). That path
    /// works, while the failure of the data's path would go unnoticed once heartbeats have ended.
    fn answer_shutdown_on(&mut self, path: usize) {
        if let Phase::ShutdownAckSent(closing) = &mut self.phase
            && self.paths[path].usable()
        {
            closing.path = path;
        }
    }

    pub(super) fn handle_shutdown_ack(&mut self) {
        if self.phase.closing().is_some() {
            self.close_with(FinalChunk::ShutdownComplete, Close::Finished);
        }
    }

    pub(super) fn handle_shutdown_complete(&mut self) {
        if self.waits_for_shutdown_complete() {
            self.close(Close::Finished);
        }
    }

    /// Sends SHUTDOWN ACK again for an INIT, or a cookie after that INIT, that arrived instead of
    /// SHUTDOWN COMPLETE (RFC 9260 sections 5.2.4 A and 9.2).
    pub(crate) fn repeat_shutdown_ack(&mut self, cookie: bool) {
        if let Some(closing) = self.phase.closing_mut() {
            closing.due = true;
        }
        if cookie {
            self.report(Cause::CookieWhileShuttingDown);
        }
    }
}
