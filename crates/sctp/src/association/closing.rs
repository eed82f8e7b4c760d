//! The graceful end (RFC 9260 section 9.2).

use super::{Association, Close, Cx, FinalChunk, State};
use crate::Tsn;
use crate::wire::cause::Cause;

impl Association {
    /// The user wants to end in order. Before the peer has answered, everything given so far still
    /// goes out first.
    pub(crate) fn shutdown(&mut self, cx: &mut Cx<'_>) {
        self.shutdown_requested = true;
        if self.state == State::Established {
            self.state = State::ShutdownPending;
            self.t5 = Some(cx.now + self.settings.guard());
            self.closing_progress(cx);
        }
    }

    /// When everything is acknowledged, SHUTDOWN or SHUTDOWN ACK goes out.
    pub(super) fn closing_progress(&mut self, cx: &mut Cx<'_>) {
        if !self.out.is_done() {
            return;
        }
        match self.state {
            // Not before it is known by which numbers the peer goes (RFC 6525 section 5.2.7).
            State::ShutdownPending if self.pending_full_reset().is_some() => {}
            State::ShutdownPending => self.begin_closing(cx, State::ShutdownSent),
            State::ShutdownReceived => self.begin_closing(cx, State::ShutdownAckSent),
            _ => {}
        }
    }

    fn begin_closing(&mut self, cx: &mut Cx<'_>, state: State) {
        self.state = state;
        self.errors = 0;
        self.closing_path = self.current;
        self.control.shutdown = true;
        self.start_t2(cx);
        for path in &mut self.paths {
            // RFC 9260 section 8.3: heartbeats end here.
            path.beat_due = None;
            path.beat_now = false;
            path.beat_lost = None;
            path.mtu_timer = None;
            path.reset_rack();
            path.t3 = None;
        }
    }

    pub(super) fn start_t2(&mut self, cx: &Cx<'_>) {
        self.t2 = Some(cx.now + self.paths[self.closing_path].rto.get());
    }

    /// T2-shutdown expired.
    pub(super) fn closing_timeout(&mut self, cx: &mut Cx<'_>) {
        let path = &mut self.paths[self.closing_path];
        path.error(&self.settings);
        path.rto.back_off();
        if self.count_error() {
            return;
        }
        self.path_changed();
        self.closing_path = self.other_than(self.closing_path);
        self.control.shutdown = true;
        self.start_t2(cx);
    }

    /// T5-shutdown-guard expired.
    pub(super) fn closing_guard(&mut self) {
        let reason = Cause::UserAbort(b"the shutdown took too long");
        self.fail(reason, Close::ShutdownTimeout);
    }

    /// A packet has come while SHUTDOWN waits for its answer.
    pub(super) fn closing_heard(&mut self, cx: &Cx<'_>, data: bool) {
        if self.state != State::ShutdownSent {
            return;
        }
        self.errors = 0;
        // RFC 9260 section 9.2 speaks of any packet, as the peer sends its data. Heartbeats must not
        // put off a SHUTDOWN that was lost.
        if data {
            self.start_t2(cx);
            // What SHUTDOWN cannot tell, gaps, duplicates and the window, a SACK does.
            self.control.shutdown = true;
            self.acks.now();
        }
    }

    /// A SHUTDOWN came on a path.
    pub(super) fn handle_shutdown(&mut self, cx: &mut Cx<'_>, path: usize, cumulative: Tsn) {
        match self.state {
            State::Established | State::ShutdownPending | State::ShutdownReceived => {
                let again = self.state == State::ShutdownReceived;
                self.pending.peer_shutdown |= !again;
                let outstanding = self.out.outstanding;
                self.state = State::ShutdownReceived;
                self.heard = u32::MAX;
                self.acks.clear();
                self.acknowledged(cx, cumulative, None, core::iter::empty(), 0);
                self.closing_progress(cx);
                self.answer_shutdown_on(path);
                if again && self.out.outstanding == outstanding {
                    // It was sent again because T2-shutdown expired. The peer counts errors until it
                    // hears of us, and what is outstanding may wait for a timer that is longer than all
                    // of its own: a HEARTBEAT shows that both ends are there, and that this path works.
                    self.request_heartbeat(path);
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

    /// RFC 9260 section 6.4: a SHUTDOWN ACK goes to where the SHUTDOWN came from. That way works, and the
    /// path that data took may not, of which nothing is heard any more once heartbeats have ended.
    fn answer_shutdown_on(&mut self, path: usize) {
        if self.state == State::ShutdownAckSent && self.paths[path].usable() {
            self.closing_path = path;
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

    /// SHUTDOWN ACK goes out again, for an INIT that came instead of SHUTDOWN COMPLETE, or a cookie
    /// after that (RFC 9260 sections 5.2.4 A and 9.2).
    pub(crate) fn repeat_shutdown_ack(&mut self, cookie: bool) {
        self.control.shutdown = true;
        if cookie {
            self.report(Cause::CookieWhileShuttingDown);
        }
    }
}
