//! Programs above a reliable byte stream: they send messages, files or bulk data, or exchange
//! requests and responses. A [`Conduit`] is the protocol that carries the stream.

use super::{Clock, Ends, MAX_BACKLOG, ProgramStats, SenderState, start, stop};
use crate::scenario::{Flow, MIN_MESSAGE, Traffic};
use ringway_link::Streams;
use ringway_sansio::{Addressing, Duration, Endpoint, Time};
use std::collections::VecDeque;

/// Number of bytes written or read at a time.
const CHUNK: usize = 64 << 10;
static ZEROS: [u8; CHUNK] = [0; CHUNK];

/// Event of a connection.
pub(super) enum ConduitEvent {
    /// It opened, has more to read, or has room to write.
    Progress,
    /// The peer has sent all its data.
    PeerClosed,
    /// It ended; with the reason, if it failed.
    Closed(Option<&'static str>),
}

/// One end of a reliable byte stream.
pub(super) trait Conduit: Endpoint + 'static {
    /// Starts connecting.
    fn open(&mut self, now: Time) -> Result<(), &'static str>;
    /// Returns the next event.
    fn next_event(&mut self) -> Option<ConduitEvent>;
    /// Returns whether the connection can be written to and read from.
    fn is_open(&self) -> bool;
    /// Writes as many bytes as fit and returns their number.
    fn write(&mut self, now: Time, data: &[u8]) -> usize;
    /// Reads the available bytes and returns their number.
    fn read(&mut self, now: Time, out: &mut [u8]) -> usize;
    /// Ends the direction of sending.
    fn finish(&mut self, now: Time);
    /// Returns the state of the sender.
    fn sender_state(&self) -> SenderState;
    /// Returns the number of packets without new data, as far as this end knows.
    fn duplicates(&self) -> u64;
}

/// Task of an end of a stream.
enum Task {
    /// Writes messages when they are due.
    Messages { clock: Clock, size: usize },
    /// Writes as much as possible, until a time.
    Bulk { stop: Time },
    /// Writes a number of further bytes and ends the stream.
    File { left: u64 },
    /// Sends one request after another.
    Request { size: usize, answer: u64, left: u64, stop: Time, think: Duration, next: Option<Time> },
    /// Receives messages of one size.
    ReceiveMessages { size: u64 },
    /// Receives a number of bytes.
    ReceiveBytes { expected: Option<u64> },
    /// Responds to requests.
    Respond { request: u64, size: u64, pending: u64 },
}

/// A program at one end of a stream, with its counters.
pub(super) struct Program<C> {
    pub(super) conduit: C,
    task: Task,
    /// Time to connect; `None` once connected, or for the listening end.
    start: Option<Time>,
    /// Messages whose first bytes are not written yet, by the time they were due.
    backlog: VecDeque<(u64, Time)>,
    /// Unwritten part of the head of the current message, and number of bytes after it.
    head: VecDeque<u8>,
    body: u64,
    /// Time of the current request.
    requested_at: Option<Time>,
    /// Received bytes of the current message or response, and its head.
    got: u64,
    stamp: [u8; MIN_MESSAGE as usize],
    buffer: Vec<u8>,
    ended: bool,
    pub(super) stats: ProgramStats,
}

/// Returns the two programs of a flow, each with its own end of the stream.
pub(super) fn programs<C: Conduit>(
    flow: &Flow,
    ends: Ends<'_>,
    streams: &Streams,
    [client, server]: [C; 2],
) -> [Program<C>; 2] {
    let (task, other) = match flow.traffic {
        Traffic::Messages { packet, .. } => (
            Task::Messages { clock: Clock::new(flow, ends, streams), size: packet.0 as usize },
            Task::ReceiveMessages { size: packet.0 },
        ),
        Traffic::Bulk => (Task::Bulk { stop: stop(flow) }, Task::ReceiveBytes { expected: None }),
        Traffic::File { size } => {
            (Task::File { left: size.0 }, Task::ReceiveBytes { expected: Some(size.0) })
        }
        Traffic::RequestResponse { request, response, requests, think, .. } => (
            Task::Request {
                size: request.0 as usize,
                answer: response.0,
                left: requests,
                stop: stop(flow),
                think: think.into(),
                next: None,
            },
            Task::Respond { request: request.0, size: response.0, pending: 0 },
        ),
    };
    [Program::new(client, task, Some(start(flow))), Program::new(server, other, None)]
}

impl<C: Conduit> Program<C> {
    fn new(conduit: C, task: Task, start: Option<Time>) -> Self {
        let messages = matches!(
            task,
            Task::Messages { .. } | Task::Request { .. } | Task::ReceiveMessages { .. }
        );
        Program {
            conduit,
            task,
            start,
            backlog: VecDeque::new(),
            head: VecDeque::new(),
            body: 0,
            requested_at: None,
            got: 0,
            stamp: [0; MIN_MESSAGE as usize],
            buffer: vec![0; CHUNK],
            ended: false,
            stats: ProgramStats { messages, ..ProgramStats::default() },
        }
    }

    /// Returns the time of the next wake-up.
    fn due(&self) -> Option<Time> {
        let task = match &self.task {
            Task::Messages { clock, .. } => clock.next(),
            Task::Request { next, .. } => *next,
            _ => None,
        };
        [self.start, task].into_iter().flatten().min()
    }

    /// Returns whether this end has nothing left to do.
    pub(super) fn is_done(&self) -> bool {
        let idle = self.start.is_none() && self.head.is_empty() && self.body == 0;
        self.stats.failed.is_some()
            || match &self.task {
                Task::Messages { clock, .. } => {
                    idle && clock.next().is_none() && self.backlog.is_empty()
                }
                Task::File { left } => idle && *left == 0,
                Task::Request { .. } => self.stats.completed.is_some(),
                Task::ReceiveBytes { expected } => {
                    expected.is_none() || self.stats.completed.is_some()
                }
                _ => true,
            }
    }

    fn drive(&mut self, now: Time) {
        if self.start.is_some_and(|at| at <= now) {
            self.start = None;
            if let Err(why) = self.conduit.open(now) {
                self.stats.failed = Some(why);
            }
            if let Task::Request { left, next, .. } = &mut self.task {
                *next = (*left > 0).then_some(now);
            }
        }
        while let Some(event) = self.conduit.next_event() {
            match event {
                ConduitEvent::Progress => {}
                ConduitEvent::PeerClosed => self.ended = true,
                ConduitEvent::Closed(why) => {
                    self.stats.failed = self.stats.failed.or(why);
                }
            }
        }
        self.fill(now);
        if self.conduit.is_open() {
            self.read(now);
            self.write(now);
            if self.ended {
                // The peer ended its direction; this end does so too.
                self.conduit.finish(now);
            }
        }
    }

    /// Queues the messages that have become due.
    fn fill(&mut self, now: Time) {
        match &mut self.task {
            Task::Messages { clock, .. } => {
                for _ in 0..clock.due(now) {
                    if self.backlog.len() < MAX_BACKLOG {
                        self.backlog.push_back((self.stats.written, now));
                        self.stats.written += 1;
                    } else {
                        self.stats.refused += 1;
                    }
                }
            }
            Task::Request { left, stop, next, .. } if next.is_some_and(|at| at <= now) => {
                *next = None;
                if now > *stop {
                    self.stats.completed.get_or_insert(now);
                } else {
                    *left -= 1;
                    self.backlog.push_back((self.stats.written, now));
                    self.requested_at = Some(now);
                    self.stats.written += 1;
                }
            }
            _ => {}
        }
    }

    fn write(&mut self, now: Time) {
        loop {
            if !self.head.is_empty() {
                let (first, second) = self.head.as_slices();
                let part = if first.is_empty() { second } else { first };
                let count = self.conduit.write(now, part);
                self.head.drain(..count);
                if count == 0 {
                    return;
                }
                continue;
            }
            if self.body > 0 {
                let part = self.body.min(CHUNK as u64) as usize;
                let count = self.conduit.write(now, &ZEROS[..part]);
                self.body -= count as u64;
                if count < part {
                    return;
                }
                continue;
            }
            match &mut self.task {
                Task::Messages { size, .. } | Task::Request { size, .. } => {
                    let Some((number, at)) = self.backlog.pop_front() else { return };
                    self.head.extend(number.to_be_bytes());
                    self.head.extend(at.as_nanos().to_be_bytes());
                    self.body = (*size as u64).saturating_sub(MIN_MESSAGE);
                }
                Task::Bulk { stop } if now <= *stop => self.body = CHUNK as u64,
                Task::Bulk { .. } => return self.conduit.finish(now),
                Task::File { left: 0 } => return self.conduit.finish(now),
                Task::File { left } => {
                    self.body = (*left).min(CHUNK as u64);
                    *left -= self.body;
                }
                Task::Respond { size, pending, .. } if *pending > 0 => {
                    *pending -= 1;
                    self.body = *size;
                }
                _ => return,
            }
        }
    }

    fn read(&mut self, now: Time) {
        loop {
            let mut buffer = std::mem::take(&mut self.buffer);
            let count = self.conduit.read(now, &mut buffer);
            self.take(now, &buffer[..count]);
            self.buffer = buffer;
            if count == 0 {
                return;
            }
        }
    }

    /// Processes bytes received from the stream.
    fn take(&mut self, now: Time, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.stats.bytes += bytes.len() as u64;
        if !matches!(self.task, Task::ReceiveMessages { .. }) {
            self.stats.progress.push(now);
        }
        match &mut self.task {
            Task::ReceiveBytes { expected: Some(expected) } if self.stats.bytes >= *expected => {
                self.stats.completed.get_or_insert(now);
            }
            Task::ReceiveMessages { size } => {
                let size = *size;
                self.split(now, bytes, size);
            }
            Task::Request { answer, left, think, next, .. } => {
                self.got += bytes.len() as u64;
                if self.got >= *answer {
                    self.got -= *answer;
                    self.stats.delivered += 1;
                    if let Some(at) = self.requested_at.take() {
                        self.stats.delay.push(now.since(at).as_nanos() as u64);
                    }
                    if *left > 0 {
                        *next = Some(now + *think);
                    } else {
                        self.stats.completed.get_or_insert(now);
                        self.ended = true;
                    }
                }
            }
            Task::Respond { request, pending, .. } => {
                self.got += bytes.len() as u64;
                *pending += self.got / *request;
                self.got %= *request;
            }
            _ => {}
        }
    }

    /// Finds the ends of messages, and the times at which they were due.
    fn split(&mut self, now: Time, mut bytes: &[u8], size: u64) {
        while !bytes.is_empty() {
            let part = ((size - self.got) as usize).min(bytes.len());
            let from = self.got as usize;
            if from < self.stamp.len() {
                let count = part.min(self.stamp.len() - from);
                self.stamp[from..from + count].copy_from_slice(&bytes[..count]);
            }
            self.got += part as u64;
            bytes = &bytes[part..];
            if self.got == size {
                self.got = 0;
                self.stats.delivered += 1;
                self.stats.progress.push(now);
                let at = self.stamp.last_chunk::<8>().map_or(0, |at| u64::from_be_bytes(*at));
                self.stats.delay.push(now.since(Time::from_nanos(at)).as_nanos() as u64);
            }
        }
    }
}

impl<C: Conduit> Endpoint for Program<C> {
    fn handle_packet(&mut self, now: Time, addressing: Addressing, payload: &[u8]) {
        self.conduit.handle_packet(now, addressing, payload);
        self.drive(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.conduit.poll_timeout().is_some_and(|at| at <= now) {
            self.conduit.handle_timeout(now);
        }
        self.drive(now);
    }

    fn poll_timeout(&self) -> Option<Time> {
        [self.due(), self.conduit.poll_timeout()].into_iter().flatten().min()
    }

    fn poll_transmit(&mut self, now: Time, payload: &mut Vec<u8>) -> Option<Addressing> {
        self.conduit.poll_transmit(now, payload)
    }
}
