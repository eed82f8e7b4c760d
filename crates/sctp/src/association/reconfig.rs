//! Re-configuration of streams (RFC 6525): resetting streams, and adding streams.
//!
//! One local request is outstanding at a time. A stream accepts no messages while it is being reset,
//! and what was accepted before is sent first.

mod requests;

pub use requests::{MAX_REQUESTS, MAX_RESET_STREAMS, Reset};
pub(super) use requests::{PendingRequest, Reconfig};

use super::acks::PacketData;
use super::change::{Change, MAX_CHANGES};
use super::{Association, Cx};
use crate::Tsn;
use crate::error::{NoStream, StreamError};
use crate::features::Features;
use crate::numbers::{Mid, Ssn};
use crate::outgoing::Acknowledgement;
use crate::wire::data::IData;
use crate::wire::reconfig::{Reconfig as Wire, Streams, result};
use crate::wire::{COMMON_HEADER, Data, Parameters, TLV_HEADER, Writer};
use requests::{Answer, DeferredReset, HeldChunk, QueuedRequest};
use ringway_sansio::{Duration, Time};

/// Maximum number of parameters processed in one RE-CONFIG (RFC 6525 section 3.1).
const MAX_PARAMETERS: usize = 2;
/// Time for which nothing new is sent, so that a peer's reset of everything finds nothing in flight.
/// The peer repeats its request within an RTO.
const PATIENCE: Duration = Duration::from_secs(3);
/// Maximum number of chunks held back while a reset of their stream waits. The peer sends the others
/// again.
pub(crate) const MAX_HELD: usize = 64;

/// DATA or I-DATA.
pub(super) trait Numbered {
    /// Returns the common fields. The number is an SSN or MID.
    fn parts(&self) -> IData<'_>;
}

impl Numbered for Data<'_> {
    fn parts(&self) -> IData<'_> {
        let &Data { flags, tsn, stream, ssn, ppid, user } = self;
        let mid = Mid::new(u32::from(ssn.raw()));
        IData { flags, tsn, stream, mid, ppid_or_fsn: ppid, user }
    }
}

impl Numbered for IData<'_> {
    fn parts(&self) -> IData<'_> {
        *self
    }
}

fn bytes(streams: &[u16]) -> Vec<u8> {
    streams.iter().flat_map(|stream| stream.to_be_bytes()).collect()
}

impl Association {
    fn reconfig_mut(&mut self) -> &mut Reconfig {
        let (next_request, expected) =
            (self.agreement.initial_tsns.0.raw(), self.inn.initial_tsn().raw());
        self.reconfig.get_or_insert_with(|| Box::new(Reconfig::new(next_request, expected)))
    }

    fn queue_request(&mut self, kind: QueuedRequest) -> Result<(), StreamError> {
        if !self.is_established() {
            return Err(StreamError::NotEstablished);
        }
        if !self.agreement.has(Features::RECONFIG) {
            return Err(StreamError::NotSupported);
        }
        let closed = match &kind {
            QueuedRequest::Outgoing(streams, _) => Some(streams.clone()),
            QueuedRequest::Everything => Some(Box::default()),
            _ => None,
        };
        self.reconfig_mut().queue(kind)?;
        if let Some(streams) = closed {
            self.out.close_streams(&streams);
        }
        Ok(())
    }

    /// Queues a request to reset streams.
    pub fn reset_streams(&mut self, reset: Reset<'_>) -> Result<(), StreamError> {
        let (streams, max) = match reset {
            Reset::Outgoing(streams) => (streams, self.agreement.streams.0),
            Reset::Incoming(streams) => (streams, self.agreement.streams.1),
            Reset::Everything => return self.queue_request(QueuedRequest::Everything),
        };
        if let Some(&got) = streams.iter().find(|stream| **stream >= max) {
            return Err(NoStream { streams: max, got }.into());
        }
        if streams.len() > MAX_RESET_STREAMS {
            return Err(StreamError::Full {
                what: "streams in one request",
                limit: MAX_RESET_STREAMS,
            });
        }
        self.queue_request(match reset {
            Reset::Incoming(_) => QueuedRequest::Incoming(streams.into()),
            _ => QueuedRequest::Outgoing(streams.into(), None),
        })
    }

    /// Queues requests for more streams in each direction.
    pub fn add_streams(&mut self, outgoing: u16, incoming: u16) -> Result<(), StreamError> {
        for (count, have) in
            [(outgoing, self.agreement.streams.0), (incoming, self.agreement.streams.1)]
        {
            if have.checked_add(count).is_none() {
                return Err(NoStream { streams: u16::MAX, got: count }.into());
            }
        }
        if outgoing > 0 {
            self.queue_request(QueuedRequest::AddOutgoing(outgoing))?;
        }
        if incoming > 0 {
            self.queue_request(QueuedRequest::AddIncoming(incoming))?;
        }
        Ok(())
    }

    /// Starts the next request once the data that it waits for is sent.
    pub(super) fn reconfig_progress(&mut self) {
        if !self.is_established() {
            return;
        }
        let Some(reconfig) = &mut self.reconfig else { return };
        let ready = match reconfig.next() {
            None => return,
            Some(QueuedRequest::Outgoing(streams, _)) => self.out.has_sent(streams),
            Some(QueuedRequest::Everything) => self.out.is_done(),
            Some(_) => true,
        };
        if !ready {
            return;
        }
        let last_tsn = self.out.next_tsn().minus(1);
        reconfig.start_next(self.chosen.current, |kind, request, last| {
            let mut value = Vec::new();
            match kind {
                QueuedRequest::Outgoing(streams, answers) => Wire::OutgoingReset {
                    request,
                    response: answers.unwrap_or(last),
                    last_tsn,
                    streams: Streams::new(&bytes(streams)),
                }
                .emit(&mut value),
                QueuedRequest::Incoming(streams) => {
                    let streams = bytes(streams);
                    let streams = Streams::new(&streams);
                    Wire::IncomingReset { request, streams }.emit(&mut value);
                }
                QueuedRequest::Everything => Wire::TsnReset { request }.emit(&mut value),
                QueuedRequest::AddOutgoing(count) => {
                    Wire::AddOutgoing { request, count: *count }.emit(&mut value);
                }
                QueuedRequest::AddIncoming(count) => {
                    Wire::AddIncoming { request, count: *count }.emit(&mut value);
                }
            }
            value
        });
    }

    /// Moves requests of a removed path to another path.
    pub(super) fn requests_leave(&mut self, path: usize, other: usize) {
        if let Some(reconfig) = &mut self.reconfig {
            reconfig.leave(path, other);
        }
        if let Some(asconf) = &mut self.asconf {
            asconf.leave(path, other);
        }
    }

    /// Returns the path of the next RE-CONFIG.
    pub(super) fn reconfig_target(&self) -> Option<usize> {
        let reconfig = self.reconfig.as_ref().filter(|reconfig| reconfig.wants_to_send())?;
        match reconfig.pending() {
            Some(pending) if pending.send => Some(pending.path),
            _ => Some(self.ack_path()),
        }
    }

    /// Writes the answers and the request that are due.
    pub(super) fn put_reconfig(&mut self, cx: &Cx<'_>, target: usize, packet: &mut Writer<'_>) {
        if self.reconfig_target() != Some(target) {
            return;
        }
        let Some(reconfig) = &mut self.reconfig else { return };
        while reconfig.unsent().next().is_some() {
            let mut value = Vec::new();
            for answer in reconfig.unsent().take(MAX_PARAMETERS) {
                let Answer { request: response, result, next } = *answer;
                Wire::Response { response, result, next }.emit(&mut value);
            }
            if packet.space() < TLV_HEADER + value.len() {
                return;
            }
            reconfig.drop_unsent(MAX_PARAMETERS);
            crate::wire::Chunk::ReConfig(&value).emit(packet.chunks());
        }
        let Some(pending) = reconfig.pending_mut().filter(|pending| pending.send) else {
            return;
        };
        let fresh = packet.len() == COMMON_HEADER;
        if !fresh && packet.space() < TLV_HEADER + pending.value.len() {
            return;
        }
        pending.send = false;
        crate::wire::Chunk::ReConfig(&pending.value).emit(packet.chunks());
        reconfig.start_timer(cx.now + self.paths[target].rto.get());
    }

    /// Handles the expiry of the Re-configuration Timer (section 5.1.1).
    pub(super) fn reconfig_timeout(&mut self, now: Time) {
        let pending = self.reconfig.as_mut().and_then(|reconfig| reconfig.pending_mut());
        let Some(pending) = pending else { return };
        pending.send = true;
        let last = pending.path;
        if core::mem::take(&mut pending.in_progress) {
            return;
        }
        self.paths[last].rto.back_off();
        self.paths[last].error(&self.settings);
        if self.count_error() {
            return;
        }
        self.paths[last].ask_soon(now);
        self.path_changed();
        let next = self.other_than(last);
        if let Some(reconfig) = &mut self.reconfig {
            reconfig.leave(last, next);
        }
    }

    /// Handles a RE-CONFIG.
    pub(super) fn handle_reconfig(&mut self, cx: &mut Cx<'_>, value: &[u8]) {
        if !self.sends_data() {
            return;
        }
        for parameter in Parameters::new(value).take(MAX_PARAMETERS) {
            let Ok(parameter) = parameter else { return };
            match Wire::read(&parameter) {
                Some(Ok(wire)) => self.handle_reconfig_parameter(cx, &wire),
                _ => return,
            }
            if self.is_closed() {
                return;
            }
        }
    }

    fn handle_reconfig_parameter(&mut self, cx: &mut Cx<'_>, wire: &Wire<'_>) {
        let request = match *wire {
            Wire::Response { response, result, next } => {
                return self.reconfig_answered(cx, response, result, next);
            }
            Wire::OutgoingReset { request, .. }
            | Wire::IncomingReset { request, .. }
            | Wire::TsnReset { request }
            | Wire::AddOutgoing { request, .. }
            | Wire::AddIncoming { request, .. } => request,
        };
        // Section 5.2.1.
        if self.takes_data() {
            self.acks.now();
        }
        let reconfig = self.reconfig_mut();
        let known = reconfig.answer_to(request);
        // A reset of everything that had to wait is attempted again. Other requests proceed by
        // themselves.
        let waits = |answer: &Answer| {
            answer.result == result::IN_PROGRESS && matches!(wire, Wire::TsnReset { .. })
        };
        if !reconfig.expects(request) && !known.as_ref().is_some_and(waits) {
            let result = result::BAD_SEQUENCE_NUMBER;
            reconfig.answer(known.unwrap_or(Answer { request, result, next: None }));
            return;
        }
        let (result, next) = self.perform(cx, request, wire);
        let answer = Answer { request, result, next };
        self.reconfig_mut().answer_new(answer, known.is_some());
    }

    /// Performs a request of the peer, or refuses it.
    fn perform(
        &mut self,
        cx: &mut Cx<'_>,
        request: u32,
        wire: &Wire<'_>,
    ) -> (u32, Option<(Tsn, Tsn)>) {
        if !self.is_established() || self.pending.changes.len() >= MAX_CHANGES {
            return (result::DENIED, None);
        }
        let result = match *wire {
            Wire::OutgoingReset { response, last_tsn, streams, .. } => {
                self.reset_by_peer(request, response, last_tsn, streams)
            }
            Wire::IncomingReset { streams, .. } => self.reset_for_peer(request, streams),
            Wire::TsnReset { .. } => return self.reset_everything(cx),
            Wire::AddOutgoing { count, .. } => self.add_inbound(count),
            Wire::AddIncoming { count, .. } => match self.agreement.streams.0.checked_add(count) {
                Some(_) if self.queue_request(QueuedRequest::AddOutgoing(count)).is_ok() => {
                    result::PERFORMED
                }
                _ => result::DENIED,
            },
            Wire::Response { .. } => result::DENIED,
        };
        (result, None)
    }

    /// Section 5.2.2.
    fn reset_by_peer(
        &mut self,
        request: u32,
        response: u32,
        last_tsn: Tsn,
        streams: Streams<'_>,
    ) -> u32 {
        let reconfig = self.reconfig_mut();
        if reconfig.is_deferring() {
            return result::ALREADY_IN_PROGRESS;
        }
        // E1.
        let answers = |pending: &mut PendingRequest| {
            pending.request == response && matches!(pending.kind, QueuedRequest::Incoming(_))
        };
        reconfig.complete(answers);
        let known = self.agreement.streams.1;
        let list: Box<[u16]> = streams.iter().collect();
        if list.iter().any(|stream| *stream >= known) {
            return result::WRONG_SSN;
        }
        if last_tsn.after(self.inn.cumulative()) {
            let deferred = DeferredReset { request, last_tsn, streams: list, held: Vec::new() };
            self.reconfig_mut().defer(deferred);
            return result::IN_PROGRESS;
        }
        self.reset_incoming(list);
        result::PERFORMED
    }

    fn reset_incoming(&mut self, streams: Box<[u16]>) {
        self.inn.reset_streams(&streams);
        self.pending.changes.push_back(Change::StreamsReset { incoming: true, streams });
    }

    /// Returns whether a local request to reset everything is unanswered. Until the answer it is
    /// unknown which numbers the peer uses, so its data and SACKs are ignored, unless it has answered
    /// that the request is in progress. The peer sends them again.
    pub(super) fn awaits_new_numbers(&self) -> bool {
        self.pending_full_reset().is_some_and(|pending| !pending.in_progress)
    }

    pub(super) fn pending_full_reset(&self) -> Option<&PendingRequest> {
        let pending = self.reconfig.as_ref()?.pending()?;
        Some(pending).filter(|pending| pending.kind == QueuedRequest::Everything)
    }

    /// Returns whether data may use numbers of a reset whose answer has not arrived. Such data is
    /// ignored, and the peer sends it again.
    pub(super) fn is_too_new(&self, data: &impl Numbered) -> bool {
        self.pending_full_reset().is_some() && {
            let IData { flags, tsn, stream, mid, .. } = data.parts();
            self.inn.may_be_anew(tsn, flags, stream, mid)
        }
    }

    /// Notes that data was accepted, which shows that the peer knows of the reset of everything.
    pub(super) fn goes_by_new_numbers(&mut self) {
        if self.reconfig.as_ref().is_some_and(|reconfig| reconfig.is_answering()) {
            self.end_quiet();
        }
    }

    /// Performs a peer's reset once the data that it waited for has arrived (section 5.2.2, E2 to E6).
    pub(super) fn deferred_reset(&mut self, seen: &mut PacketData) {
        let cumulative = self.inn.cumulative();
        let Some(reconfig) = &mut self.reconfig else { return };
        let Some(DeferredReset { streams, held, .. }) = reconfig.take_reached(cumulative) else {
            return;
        };
        self.reset_incoming(streams);
        for HeldChunk { flags, tsn, stream, number, ppid_or_fsn, user } in held {
            let user = &*user;
            if self.is_closed() {
                return;
            }
            if self.inn.is_interleaved() {
                let data = IData { flags, tsn, stream, mid: number, ppid_or_fsn, user };
                self.handle_i_data(&data, seen);
            } else {
                let ssn = Ssn::new(number.raw() as u16);
                self.handle_data(&Data { flags, tsn, stream, ssn, ppid: ppid_or_fsn, user }, seen);
            }
        }
    }

    /// Holds back a chunk that uses the numbers after a waiting reset (section 5.2.2, E2). Returns
    /// `true` if it does. Beyond [`MAX_HELD`] the peer sends them again.
    pub(super) fn holds_back(&mut self, data: &impl Numbered, seen: &mut PacketData) -> bool {
        if self.reconfig.as_ref().is_none_or(|reconfig| !reconfig.is_deferring()) {
            return false;
        }
        // The last chunk that the reset waited for may have arrived in this packet.
        self.deferred_reset(seen);
        let deferred = self.reconfig.as_mut().and_then(|reconfig| reconfig.deferred_mut());
        let Some(DeferredReset { last_tsn, streams, held, .. }) = deferred else { return false };
        let IData { flags, tsn, stream, mid: number, ppid_or_fsn, user } = data.parts();
        if !tsn.after(*last_tsn) || !(streams.is_empty() || streams.contains(&stream)) {
            return false;
        }
        if held.len() < MAX_HELD && held.iter().all(|other| other.tsn != tsn) {
            held.push(HeldChunk { flags, tsn, stream, number, ppid_or_fsn, user: user.into() });
        }
        true
    }

    /// Drops a waiting reset of streams when everything is reset. It is unknown whether it uses the old
    /// or the new numbers, and the peer repeats it.
    fn end_deferred(&mut self) {
        if let Some(reconfig) = &mut self.reconfig {
            reconfig.drop_deferred();
        }
    }

    /// Section 5.2.3.
    fn reset_for_peer(&mut self, request: u32, streams: Streams<'_>) -> u32 {
        let known = self.agreement.streams.0;
        let list: Box<[u16]> = streams.iter().collect();
        if list.iter().any(|stream| *stream >= known) {
            return result::WRONG_SSN;
        }
        if list.len() > MAX_RESET_STREAMS {
            return result::DENIED;
        }
        let covers = |kind: &QueuedRequest| match kind {
            QueuedRequest::Outgoing(queued, _) => {
                queued.is_empty() || (!list.is_empty() && list.iter().all(|s| queued.contains(s)))
            }
            _ => false,
        };
        if self.reconfig_mut().pending().is_some_and(|pending| covers(&pending.kind)) {
            return result::NOTHING_TO_DO;
        }
        match self.queue_request(QueuedRequest::Outgoing(list, Some(request))) {
            // The outgoing request answers it.
            Ok(()) => result::IN_PROGRESS,
            Err(_) => result::ALREADY_IN_PROGRESS,
        }
    }

    /// Performs a reset of everything (section 5.2.4). Data in flight would count as arrived, so it
    /// must arrive first, and the peer is answered to ask again.
    fn reset_everything(&mut self, cx: &mut Cx<'_>) -> (u32, Option<(Tsn, Tsn)>) {
        if self.pending_full_reset().is_some() {
            // Neither endpoint could know which numbers the other uses.
            return (result::ALREADY_IN_PROGRESS, None);
        }
        let under_way = self.out.is_under_way();
        let reconfig = self.reconfig_mut();
        if under_way && !reconfig.postpone(cx.now + PATIENCE) {
            self.end_quiet();
            return (result::DENIED, None);
        }
        if under_way {
            self.out.hold(true);
            return (result::IN_PROGRESS, None);
        }
        let put_off = reconfig.take_delays();
        // G1 and G2.
        let theirs = self.inn.cumulative().plus(1).plus(1 << 31);
        let ours = self.out.next_tsn();
        // G3.
        self.acknowledged(cx, Acknowledgement::up_to(ours.minus(1)));
        // G4 and G5.
        self.pending.unsent += self.out.reset_everything(ours);
        self.inn.reset_everything(theirs);
        self.reset_numbering();
        if put_off {
            // The peer accepts data with the old numbers. Data with the new ones must not overtake the
            // answer.
            let wait = self.paths[self.chosen.current].rto.get();
            self.reconfig_mut().protect_answer(cx.now + wait);
            self.out.hold(true);
        }
        self.pending.changes.push_back(Change::EverythingReset);
        (result::PERFORMED, Some((ours, theirs)))
    }

    /// Allows new data again. The peer has the answer, or has not repeated its request in time.
    pub(super) fn end_quiet(&mut self) {
        if let Some(reconfig) = &mut self.reconfig {
            reconfig.end_quiet();
        }
        self.out.hold(false);
        self.allow_bursts();
    }

    /// Restarts the positions of everything that is counted.
    fn reset_numbering(&mut self) {
        self.end_quiet();
        self.end_deferred();
        for path in &mut self.paths {
            path.empty();
        }
        self.out.set_forced(false);
        self.window.reset();
        self.control.forward.reset();
        self.marks = super::ecn::Marks::default();
        self.pending.readable |= self.inn.is_readable();
        self.check_writable();
    }

    /// Section 5.2.5.
    fn add_inbound(&mut self, count: u16) -> u32 {
        let adds =
            |pending: &mut PendingRequest| matches!(pending.kind, QueuedRequest::AddIncoming(_));
        self.reconfig_mut().complete(adds);
        let more = self.agreement.streams.1.checked_add(count);
        match more.filter(|more| *more <= self.settings.max_inbound_streams) {
            Some(more) => {
                self.agreement.streams.1 = more;
                self.report_streams();
                result::PERFORMED
            }
            None => result::DENIED,
        }
    }

    fn report_streams(&mut self) {
        let (outbound, inbound) = self.agreement.streams;
        self.pending.changes.push_back(Change::Streams { outbound, inbound });
    }

    /// Section 5.2.7.
    fn reconfig_answered(
        &mut self,
        cx: &mut Cx<'_>,
        response: u32,
        result: u32,
        next: Option<(Tsn, Tsn)>,
    ) {
        let Some(reconfig) = &mut self.reconfig else { return };
        if result == result::IN_PROGRESS {
            // H2: the timer starts again.
            let pending = reconfig.pending_mut().filter(|pending| pending.request == response);
            if let Some(pending) = pending {
                pending.in_progress = true;
                // Section 8.1 of RFC 9260: the peer answers, however often it postpones.
                self.errors.peer_answered();
                let mut wait = self.paths[pending.path].rto.get();
                if pending.kind == QueuedRequest::Everything {
                    // Up to half as long again. Retransmissions of the peer at the same pace would
                    // otherwise always arrive while the next answer is outstanding, when they are
                    // ignored.
                    let share = cx.random.next_u64() % 512;
                    wait +=
                        Duration::from_nanos((wait.as_nanos() as u64 / 1024).saturating_mul(share));
                }
                reconfig.start_timer(cx.now + wait);
            }
            return;
        }
        let Some(pending) = reconfig.complete(|pending| pending.request == response) else {
            return;
        };
        self.errors.peer_answered();
        let performed = matches!(result, result::PERFORMED | result::NOTHING_TO_DO);
        match pending.kind {
            QueuedRequest::Outgoing(streams, _) => {
                // H4.
                self.out.open_streams(&streams, performed);
                if performed {
                    let change = Change::StreamsReset { incoming: false, streams };
                    self.pending.changes.push_back(change);
                }
            }
            QueuedRequest::Everything => {
                self.out.open_streams(&[], false);
                // H5.
                if let Some((theirs, ours)) = next.filter(|_| performed) {
                    self.pending.unsent += self.out.reset_everything(ours);
                    self.inn.reset_everything(theirs);
                    self.reset_numbering();
                    self.pending.changes.push_back(Change::EverythingReset);
                }
            }
            QueuedRequest::AddOutgoing(count) if performed => {
                // H6.
                self.agreement.streams.0 = self.agreement.streams.0.saturating_add(count);
                self.report_streams();
            }
            QueuedRequest::AddOutgoing(_)
            | QueuedRequest::Incoming(_)
            | QueuedRequest::AddIncoming(_) => {}
        }
        if !performed {
            self.pending.changes.push_back(Change::ReconfigRefused(result));
        }
        self.allow_bursts();
    }
}
