//! Requests of RFC 6525 and their answers, in both directions.

use crate::Tsn;
use crate::error::StreamError;
use crate::numbers::Mid;
use crate::wire::DataFlags;
use crate::wire::reconfig::result;
use ringway_sansio::Time;
use ringway_sansio::time::sooner;
use std::collections::VecDeque;

/// Maximum number of streams named in one request. To reset more, reset all.
pub const MAX_RESET_STREAMS: usize = 200;
/// Maximum number of requests that wait for their turn.
pub const MAX_REQUESTS: usize = 8;
/// Maximum number of times that a reset of everything is postponed because of data in flight. Then it
/// is denied.
const MAX_DELAYS: u16 = 1000;
/// Number of answers stored in case a request is repeated, which is as many as one chunk can request.
const RETAINED_ANSWERS: usize = 2;
/// Maximum number of answers that wait to be sent. The peer repeats its request for the others.
const MAX_ANSWERS: usize = 4;

/// The streams that are reset (RFC 6525). An empty list stands for all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reset<'a> {
    /// Streams of the local endpoint.
    Outgoing(&'a [u16]),
    /// Streams of the peer, which is asked to reset them.
    Incoming(&'a [u16]),
    /// All streams in both directions, and the TSNs (section 5.1.4).
    Everything,
}

/// A request that waits for its turn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum QueuedRequest {
    /// The streams, and the peer's request that it answers.
    Outgoing(Box<[u16]>, Option<u32>),
    Incoming(Box<[u16]>),
    Everything,
    AddOutgoing(u16),
    AddIncoming(u16),
}

/// An outstanding request.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    pub(super) request: u32,
    pub(super) kind: QueuedRequest,
    pub(super) value: Vec<u8>,
    pub(super) send: bool,
    pub(super) path: usize,
    /// Whether the peer has answered that the request is in progress.
    pub(super) in_progress: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) request: u32,
    pub(super) result: u32,
    pub(super) next: Option<(Tsn, Tsn)>,
}

/// An outgoing reset of the peer that waits for data sent before it (section 5.2.2, E2).
#[derive(Debug)]
pub(super) struct DeferredReset {
    pub(super) request: u32,
    pub(super) last_tsn: Tsn,
    pub(super) streams: Box<[u16]>,
    /// Chunks that arrived too early.
    pub(super) held: Vec<HeldChunk>,
}

/// A chunk of data of a stream whose reset waits. Its TSN is after the last one assigned before the
/// reset.
#[derive(Debug)]
pub(super) struct HeldChunk {
    pub(super) flags: DataFlags,
    pub(super) tsn: Tsn,
    pub(super) stream: u16,
    /// SSN or MID.
    pub(super) number: Mid,
    pub(super) ppid_or_fsn: u32,
    pub(super) user: Box<[u8]>,
}

/// State of the requests in both directions. It is created with the first request.
#[derive(Debug)]
pub(crate) struct Reconfig {
    next_request: u32,
    /// The number of the peer's next request.
    expected: u32,
    queued: VecDeque<QueuedRequest>,
    pending: Option<PendingRequest>,
    /// The last answers, in case requests are repeated.
    answers: VecDeque<Answer>,
    unsent: VecDeque<Answer>,
    deferred: Option<DeferredReset>,
    /// The time until which nothing new is sent, and whether that protects an answer that new data
    /// would overtake.
    quiet: Option<Time>,
    answering: bool,
    /// Number of times that a reset of everything was postponed.
    delays: u16,
    /// The Re-configuration Timer (section 5.1.1).
    timer: Option<Time>,
}

impl Reconfig {
    pub(super) fn new(next_request: u32, expected: u32) -> Reconfig {
        Reconfig {
            next_request,
            expected,
            queued: VecDeque::new(),
            pending: None,
            answers: VecDeque::new(),
            unsent: VecDeque::new(),
            deferred: None,
            quiet: None,
            answering: false,
            delays: 0,
            timer: None,
        }
    }

    /// Returns the request that is next in turn, unless one is outstanding.
    pub(super) fn next(&self) -> Option<&QueuedRequest> {
        self.queued.front().filter(|_| self.pending.is_none())
    }

    /// Queues a request.
    pub(super) fn queue(&mut self, kind: QueuedRequest) -> Result<(), StreamError> {
        if self.queued.len() >= MAX_REQUESTS {
            return Err(StreamError::Full { what: "requests", limit: MAX_REQUESTS });
        }
        self.queued.push_back(kind);
        Ok(())
    }

    /// Starts the next request on a path. `write` returns its value, from its number and the one of the peer's last
    /// request.
    pub(super) fn start_next(
        &mut self,
        path: usize,
        write: impl FnOnce(&QueuedRequest, u32, u32) -> Vec<u8>,
    ) {
        let Some(kind) = self.queued.pop_front() else { return };
        let request = self.next_request;
        self.next_request = request.wrapping_add(1);
        let value = write(&kind, request, self.expected.wrapping_sub(1));
        self.pending =
            Some(PendingRequest { request, kind, value, send: true, path, in_progress: false });
    }

    /// Returns the outstanding request.
    pub(super) fn pending(&self) -> Option<&PendingRequest> {
        self.pending.as_ref()
    }

    /// Returns the outstanding request for changes.
    pub(super) fn pending_mut(&mut self) -> Option<&mut PendingRequest> {
        self.pending.as_mut()
    }

    /// Removes and returns the outstanding request if it is answered, and stops its timer.
    pub(super) fn complete(
        &mut self,
        is_answered: impl FnOnce(&mut PendingRequest) -> bool,
    ) -> Option<PendingRequest> {
        let pending = self.pending.take_if(is_answered)?;
        self.timer = None;
        Some(pending)
    }

    /// Moves the outstanding request from a path to another.
    pub(super) fn leave(&mut self, path: usize, other: usize) {
        if let Some(pending) = self.pending.as_mut().filter(|pending| pending.path == path) {
            pending.path = other;
        }
    }

    /// Starts the timer.
    pub(super) fn start_timer(&mut self, at: Time) {
        self.timer = Some(at);
    }

    /// Returns the time of the next action.
    pub(crate) fn timer(&self) -> Option<Time> {
        sooner(self.timer, self.quiet)
    }

    /// Returns whether the timer has expired, and stops it then.
    pub(crate) fn take_expired(&mut self, now: Time) -> bool {
        self.timer.take_if(|at| *at <= now).is_some()
    }

    /// Returns whether the time is over in which nothing new is sent.
    pub(crate) fn take_quiet_end(&mut self, now: Time) -> bool {
        self.quiet.take_if(|at| *at <= now).is_some()
    }

    /// Returns the answer to a request of the peer that was answered before.
    pub(super) fn answer_to(&self, request: u32) -> Option<Answer> {
        self.answers.iter().find(|answer| answer.request == request).copied()
    }

    /// Returns whether a request of the peer is the next one.
    pub(super) fn expects(&self, request: u32) -> bool {
        request == self.expected
    }

    /// Answers a request of the peer, and keeps the answer. `known` states that it was answered before.
    pub(super) fn answer_new(&mut self, answer: Answer, known: bool) {
        self.answers.retain(|other| other.request != answer.request);
        if !known {
            self.expected = answer.request.wrapping_add(1);
        }
        if self.answers.len() >= RETAINED_ANSWERS {
            self.answers.pop_front();
        }
        self.answers.push_back(answer);
        self.answer(answer);
    }

    /// Answers a request of the peer.
    pub(super) fn answer(&mut self, answer: Answer) {
        if self.unsent.len() < MAX_ANSWERS {
            self.unsent.push_back(answer);
        }
    }

    /// Returns the answers to send.
    pub(super) fn unsent(&self) -> impl Iterator<Item = &Answer> {
        self.unsent.iter()
    }

    /// Removes the first answers to send.
    pub(super) fn drop_unsent(&mut self, count: usize) {
        self.unsent.drain(..self.unsent.len().min(count));
    }

    /// Returns whether answers or a request are to be sent.
    pub(crate) fn wants_to_send(&self) -> bool {
        !self.unsent.is_empty() || self.pending.as_ref().is_some_and(|pending| pending.send)
    }

    /// Postpones a reset by the peer.
    pub(super) fn defer(&mut self, deferred: DeferredReset) {
        self.deferred = Some(deferred);
    }

    /// Returns the reset that waits.
    pub(super) fn deferred_mut(&mut self) -> Option<&mut DeferredReset> {
        self.deferred.as_mut()
    }

    /// Returns whether a reset waits.
    pub(super) fn is_deferring(&self) -> bool {
        self.deferred.is_some()
    }

    /// Removes and returns the reset that waits for data up to a TSN, once that has arrived, and answers it.
    pub(super) fn take_reached(&mut self, cumulative: Tsn) -> Option<DeferredReset> {
        let deferred = self.deferred.take_if(|deferred| !deferred.last_tsn.after(cumulative))?;
        let request = deferred.request;
        for answer in self.answers.iter_mut().filter(|answer| answer.request == request) {
            answer.result = result::PERFORMED;
        }
        self.answer(Answer { request, result: result::PERFORMED, next: None });
        Some(deferred)
    }

    /// Drops the reset that waits, which the peer repeats.
    pub(super) fn drop_deferred(&mut self) {
        let Some(DeferredReset { request, .. }) = self.deferred.take() else { return };
        if self.expected == request.wrapping_add(1) {
            self.expected = request;
            self.answers.retain(|answer| answer.request != request);
        }
    }

    /// Postpones a reset of everything until a time. Returns `false` if it was postponed too often.
    pub(super) fn postpone(&mut self, until: Time) -> bool {
        if self.delays >= MAX_DELAYS {
            self.delays = 0;
            return false;
        }
        self.delays += 1;
        self.quiet = Some(until);
        true
    }

    /// Returns whether a reset of everything that is performed now was postponed.
    pub(super) fn take_delays(&mut self) -> bool {
        core::mem::take(&mut self.delays) > 0
    }

    /// Protects an answer from new data until a time.
    pub(super) fn protect_answer(&mut self, until: Time) {
        (self.quiet, self.answering) = (Some(until), true);
    }

    /// Returns whether an answer is protected from new data.
    pub(super) fn is_answering(&self) -> bool {
        self.answering
    }

    /// Allows new data again.
    pub(super) fn end_quiet(&mut self) {
        (self.quiet, self.answering) = (None, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6525 section 5.1.2: one request at a time, numbered in turn.
    #[test]
    fn one_request_is_outstanding() {
        let mut reconfig = Reconfig::new(7, 1);
        for count in 0..MAX_REQUESTS as u16 {
            reconfig.queue(QueuedRequest::AddOutgoing(count)).unwrap();
        }
        assert!(reconfig.queue(QueuedRequest::Everything).is_err());
        assert_eq!(reconfig.next(), Some(&QueuedRequest::AddOutgoing(0)));
        reconfig.start_next(0, |_, request, last| {
            assert_eq!((request, last), (7, 0));
            Vec::new()
        });
        reconfig.start_timer(Time::from_secs(1));
        assert_eq!(reconfig.next(), None);
        assert!(reconfig.complete(|pending| pending.request == 8).is_none());
        assert!(reconfig.complete(|pending| pending.request == 7).is_some());
        assert_eq!(reconfig.timer(), None);
        assert_eq!(reconfig.next(), Some(&QueuedRequest::AddOutgoing(1)));
    }

    /// RFC 6525 section 5.2.1: a repeated request has the same answer.
    #[test]
    fn the_last_answers_are_kept() {
        let mut reconfig = Reconfig::new(1, 20);
        for request in 20..24 {
            assert!(reconfig.expects(request));
            let answer = Answer { request, result: request, next: None };
            reconfig.answer_new(answer, false);
        }
        let kept = RETAINED_ANSWERS as u32;
        assert!(reconfig.answer_to(23 - kept).is_none());
        assert_eq!(reconfig.answer_to(23).map(|answer| answer.result), Some(23));
        assert_eq!(reconfig.answer_to(24 - kept).map(|a| a.result), Some(24 - kept));
    }
}
