//! The flows of one worker: the program above them, the pipes below them, and what is between.
//!
//! `life` has a connection accepted or opened, watched and closed; `receive` leads from bytes to messages, `send`
//! from messages to queues, datagrams and other workers.

mod life;
mod receive;
mod send;
#[cfg(test)]
mod tests;

use crate::common::Common;
use crate::connection::{Connection, Ending};
use crate::counters::Counters;
use crate::gauge::Waiting;
use crate::handover::HandOver;
use crate::limits::Limits;
use crate::mail::{Mail, Report};
use crate::pipes::Pipes;
use crate::queue::WriteQueue;
use crate::table::Table;
use ringway_sansio::time::sooner;
use ringway_sansio::{Backlog, CloseReason, Flow, FlowId, Outbox, Program, Time, TimerWheel};
use std::collections::VecDeque;
use std::sync::Arc;

pub use receive::Received;

/// Maximum number of times in a row that a failed message may cause others before other connections get their
/// turn.
const FLUSH_ROUNDS: usize = 8;

/// The flows of one worker.
pub struct Flows<P, W: Pipes> {
    common: Arc<Common>,
    counters: Arc<Counters>,
    worker: u8,
    /// The time of the last input.
    now: Time,
    program: P,
    pipes: W,
    outbox: Outbox,
    table: Table<W::Handle>,
    /// Deadlines of connections.
    wheel: TimerWheel<FlowId>,
    half_open: HalfOpen,
    waiting: Waiting,
    /// Reports of messages of this worker that could not be sent.
    failed: Vec<u64>,
    handover: HandOver,
    /// The buffer that the framers of connections borrow while they frame.
    scratch: Vec<u8>,
}

/// Accepted connections without a whole message, oldest first. Those that got further are skipped when met.
#[derive(Default)]
struct HalfOpen {
    queue: VecDeque<FlowId>,
    count: usize,
}

impl<P: Program, W: Pipes> Flows<P, W> {
    /// Returns the flows of a worker, which has none yet, among `workers`.
    pub fn new(
        now: Time,
        (worker, workers): (u8, usize),
        common: Arc<Common>,
        counters: Arc<Counters>,
        program: P,
        pipes: W,
    ) -> Self {
        Flows {
            common,
            counters,
            worker,
            now,
            program,
            pipes,
            outbox: Outbox::new(),
            table: Table::new(worker, now),
            wheel: TimerWheel::new(now),
            half_open: HalfOpen::default(),
            waiting: Waiting::default(),
            failed: Vec::new(),
            handover: HandOver::new(worker, workers),
            scratch: Vec::new(),
        }
    }

    /// Returns the number of this worker.
    pub fn worker(&self) -> u8 {
        self.worker
    }

    /// Returns the bounds on connections.
    pub fn limits(&self) -> &Limits {
        self.common.limits()
    }

    /// Returns what is shared with other workers.
    pub fn common(&self) -> &Arc<Common> {
        &self.common
    }

    /// Returns the counters of this worker.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Returns the program.
    pub fn program(&self) -> &P {
        &self.program
    }

    /// Ends the worker. Returns the program.
    pub fn into_program(self) -> P {
        self.program
    }

    /// Returns the pipes.
    pub fn pipes(&self) -> &W {
        &self.pipes
    }

    /// Returns the pipes.
    pub fn pipes_mut(&mut self) -> &mut W {
        &mut self.pipes
    }

    /// Returns the number of connections.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a connection's flow.
    pub fn flow(&self, id: FlowId) -> Option<Flow> {
        self.table.get(id).map(|c| c.flow)
    }

    /// Returns what the world keeps with a connection.
    pub fn handle_mut(&mut self, id: FlowId) -> Option<&mut W::Handle> {
        self.table.get_mut(id).map(Connection::handle_mut)
    }

    /// Returns what waits to be written to a connection.
    pub fn queue_mut(&mut self, id: FlowId) -> Option<&mut WriteQueue> {
        self.table.get_mut(id).map(|c| &mut c.queue)
    }

    /// Returns how a connection is to end, if it is to.
    pub fn ending(&self, id: FlowId) -> Option<Ending> {
        self.table.get(id)?.ending
    }

    /// Has the program handle something that is none of its own inputs, and sends what it writes.
    pub fn with_program(&mut self, now: Time, work: impl FnOnce(&mut P, Time, &mut Outbox)) {
        self.post(now, work);
        self.flush(now);
    }

    /// The same, without sending: [`Flows::flush`] is to follow.
    pub fn post(&mut self, now: Time, work: impl FnOnce(&mut P, Time, &mut Outbox)) {
        self.now = now;
        work(&mut self.program, now, &mut self.outbox);
    }

    /// Notes that a message of this worker could not be sent. [`Flows::flush`] is to follow.
    pub fn fail(&mut self, reports: impl IntoIterator<Item = u64>) {
        self.failed.extend(reports);
    }

    /// Lets the pipes send and report what they could not send. [`Flows::flush`] is to follow.
    pub fn with_pipes(&mut self, work: impl FnOnce(&mut W, &mut Vec<u64>)) {
        work(&mut self.pipes, &mut self.failed);
    }

    /// Notes what waits at the datagram listener with this index. Returns the share of new datagrams to drop,
    /// as [`Program::backlog`] does.
    pub fn note_queued(&mut self, now: Time, listener: usize, backlog: Backlog) -> u32 {
        self.now = now;
        self.waiting.note(listener, backlog);
        self.program.backlog(now, self.waiting.all())
    }

    /// Notes that nothing waits at the datagram listener with this index.
    pub fn note_emptied(&mut self, listener: usize) {
        self.waiting.note(listener, Backlog::default());
    }

    /// Notes how many bytes of a connection were received and not read when its turn was over.
    pub fn note_unread(&mut self, now: Time, id: FlowId, unread: usize) {
        self.now = now;
        let Some(connection) = self.table.get_mut(id) else { return };
        let before = connection.set_unread(unread);
        if before > 0 || unread > 0 {
            self.waiting.connections.note(now, before, unread);
            self.program.backlog(now, self.waiting.all());
        }
    }

    /// Notes that so many bytes of a connection were read, with which so many messages were complete.
    pub fn note_read(&mut self, bytes: usize, messages: usize) {
        self.waiting.connections.took(bytes, messages);
    }

    /// Sends all that the program wrote and reports what failed at once, which may cause more to send.
    pub fn flush(&mut self, now: Time) {
        self.now = now;
        for _ in 0..FLUSH_ROUNDS {
            if !self.outbox.is_empty() {
                self.send_outbox();
            }
            self.post_handed_over();
            if self.failed.is_empty() {
                break;
            }
            let mut failed = std::mem::take(&mut self.failed);
            for report in failed.drain(..).filter(|report| *report != 0) {
                self.program.not_sent(now, report, &mut self.outbox);
            }
            self.failed = failed;
        }
        for (worker, numbers) in self.handover.take_failed() {
            // If that worker has no room, the timers of its program must find out.
            let _ = self.pipes.post(worker, Mail::NotSent(numbers));
        }
        self.rearm();
    }

    /// Handles an item from another worker. [`Flows::flush`] is to follow.
    pub fn mail(&mut self, now: Time, mail: Mail) {
        self.now = now;
        match mail {
            Mail::Carry(carry) => self.carried(&carry),
            Mail::NotSent(reports) => self.failed.extend(reports),
            Mail::CutOff(reports) => self.cut_off_own(&reports),
        }
    }

    /// Returns when [`Flows::timeout`] is to be called.
    pub fn poll_timeout(&self) -> Option<Time> {
        let unsent = !self.outbox.is_empty() || !self.failed.is_empty();
        if unsent { Some(self.now) } else { next_deadline(&self.program, &self.wheel) }
    }

    /// Handles the time that [`Flows::poll_timeout`] returned, or any other.
    pub fn timeout(&mut self, now: Time) {
        self.flush(now);
        if self.program.poll_timeout().is_some_and(|at| at <= now) {
            self.program.timeout(now, &mut self.outbox);
            self.flush(now);
        }
        self.expire(now);
    }

    fn rearm(&mut self) {
        let Flows { pipes, program, wheel, outbox, failed, now, .. } = self;
        let unsent = !outbox.is_empty() || !failed.is_empty();
        pipes.rearm(|| if unsent { Some(*now) } else { next_deadline(program, wheel) });
    }

    /// Reports a message as not sent, with the next flush, to the worker that sent it.
    fn not_sent(&mut self, report: Report) {
        self.counters.stream_not_sent.add(1);
        if report.worker == self.worker {
            self.failed.push(report.number);
        } else {
            self.handover.fail(report);
        }
    }

    /// Reports the requests that left by a connection which has ended to the workers that sent them.
    fn cut_off(&mut self, requests: &[Report]) {
        let own = requests.iter().filter(|r| r.worker == self.worker).map(|r| r.number);
        self.cut_off_own(&own.collect::<Vec<_>>());
        for (worker, numbers) in self.handover.by_worker(requests) {
            // If that worker has no room, the timers of its program must find out.
            let _ = self.pipes.post(worker, Mail::CutOff(numbers));
        }
    }

    fn cut_off_own(&mut self, reports: &[u64]) {
        for &report in reports {
            self.program.cut_off(self.now, report, &mut self.outbox);
        }
    }

    /// Has every connection end for a reason, and write what is queued until a time.
    pub fn end_all(&mut self, now: Time, reason: CloseReason, flush_until: Option<Time>) {
        self.now = now;
        for id in self.table.ids() {
            self.end(id, reason, flush_until);
        }
    }
}

fn next_deadline(program: &impl Program, wheel: &TimerWheel<FlowId>) -> Option<Time> {
    let next = program.poll_timeout();
    if wheel.is_empty() { next } else { sooner(next, wheel.next()) }
}
