//! Programs above a reliable stream of bytes: they send messages, files or all they can, ask
//! questions and answer them. Which protocol carries the stream is a [`Conduit`].

use super::{Clock, Ends, Look, MAX_BACKLOG, Seen, start, stop};
use crate::scenario::{Flow, MIN_MESSAGE, Traffic};
use ringway_link::Streams;
use ringway_sansio::{Addressing, Duration, Endpoint, Time};
use std::collections::VecDeque;

/// Bytes written or read at a time.
const CHUNK: usize = 64 << 10;
static ZEROS: [u8; CHUNK] = [0; CHUNK];

/// What happened to a connection.
pub(super) enum Happening {
    /// It is open, or there is more to read, or room to write.
    Progress,
    /// The other end has sent all it will.
    PeerClosed,
    /// It is over; why, if something went wrong.
    Closed(Option<&'static str>),
}

/// One end of a reliable stream of bytes.
pub(super) trait Conduit: Endpoint + 'static {
    /// Begins to connect.
    fn open(&mut self, now: Time) -> Result<(), &'static str>;
    /// What happened next.
    fn happening(&mut self) -> Option<Happening>;
    /// Whether there is a connection to write to and read from.
    fn is_open(&self) -> bool;
    /// Writes what fits; gives how many bytes.
    fn write(&mut self, now: Time, data: &[u8]) -> usize;
    /// Reads what is there; gives how many bytes.
    fn read(&mut self, now: Time, out: &mut [u8]) -> usize;
    /// Nothing more will be written.
    fn finish(&mut self, now: Time);
    /// What the sender looks like.
    fn look(&self) -> Look;
    /// Packets that brought nothing new, as far as this end has heard.
    fn duplicates(&self) -> u64;
}

/// What an end of a stream does.
enum Task {
    /// Writes messages as they are due.
    Messages { clock: Clock, size: usize },
    /// Writes as much as goes, until a time.
    Bulk { stop: Time },
    /// Writes so many bytes more and ends the stream.
    File { left: u64 },
    /// Asks one question after another.
    Ask { size: usize, answer: u64, left: u64, stop: Time, think: Duration, next: Option<Time> },
    /// Takes in messages of that size.
    TakeMessages { size: u64 },
    /// Takes in bytes until so many are there.
    TakeBytes { wanted: Option<u64> },
    /// Answers questions.
    Answer { question: u64, size: u64, owed: u64 },
}

/// A program at one end of a stream, with what it has seen.
pub(super) struct Program<C> {
    pub(super) conduit: C,
    task: Task,
    /// When to connect; `None` once that is done, or for the other end.
    start: Option<Time>,
    /// Messages whose first bytes are not written yet, by the time they were due.
    backlog: VecDeque<(u64, Time)>,
    /// The head of the message being written that is left, and how many bytes follow it.
    head: VecDeque<u8>,
    body: u64,
    /// Questions: when the present one was asked.
    asked_at: Option<Time>,
    /// Bytes of the message or answer being read, and its head.
    got: u64,
    stamp: [u8; MIN_MESSAGE as usize],
    buffer: Vec<u8>,
    ended: bool,
    pub(super) seen: Seen,
}

/// The two programs of a flow, each over an end of its own.
pub(super) fn programs<C: Conduit>(
    flow: &Flow,
    ends: Ends<'_>,
    streams: &Streams,
    [client, server]: [C; 2],
) -> [Program<C>; 2] {
    let (task, other) = match flow.traffic {
        Traffic::Messages { packet, .. } => (
            Task::Messages { clock: Clock::new(flow, ends, streams), size: packet.0 as usize },
            Task::TakeMessages { size: packet.0 },
        ),
        Traffic::Bulk => (Task::Bulk { stop: stop(flow) }, Task::TakeBytes { wanted: None }),
        Traffic::File { size } => {
            (Task::File { left: size.0 }, Task::TakeBytes { wanted: Some(size.0) })
        }
        Traffic::RequestResponse { request, response, requests, think, .. } => (
            Task::Ask {
                size: request.0 as usize,
                answer: response.0,
                left: requests,
                stop: stop(flow),
                think: think.into(),
                next: None,
            },
            Task::Answer { question: request.0, size: response.0, owed: 0 },
        ),
    };
    [Program::new(client, task, Some(start(flow))), Program::new(server, other, None)]
}

impl<C: Conduit> Program<C> {
    fn new(conduit: C, task: Task, start: Option<Time>) -> Self {
        let messages =
            matches!(task, Task::Messages { .. } | Task::Ask { .. } | Task::TakeMessages { .. });
        Program {
            conduit,
            task,
            start,
            backlog: VecDeque::new(),
            head: VecDeque::new(),
            body: 0,
            asked_at: None,
            got: 0,
            stamp: [0; MIN_MESSAGE as usize],
            buffer: vec![0; CHUNK],
            ended: false,
            seen: Seen { messages, ..Seen::default() },
        }
    }

    /// When the program wants to be woken.
    fn due(&self) -> Option<Time> {
        let task = match &self.task {
            Task::Messages { clock, .. } => clock.next(),
            Task::Ask { next, .. } => *next,
            _ => None,
        };
        [self.start, task].into_iter().flatten().min()
    }

    /// Whether there is nothing left to do at this end.
    pub(super) fn is_done(&self) -> bool {
        let idle = self.start.is_none() && self.head.is_empty() && self.body == 0;
        self.seen.failed.is_some()
            || match &self.task {
                Task::Messages { clock, .. } => {
                    idle && clock.next().is_none() && self.backlog.is_empty()
                }
                Task::File { left } => idle && *left == 0,
                Task::Ask { .. } => self.seen.completed.is_some(),
                Task::TakeBytes { wanted } => wanted.is_none() || self.seen.completed.is_some(),
                _ => true,
            }
    }

    fn drive(&mut self, now: Time) {
        if self.start.is_some_and(|at| at <= now) {
            self.start = None;
            if let Err(why) = self.conduit.open(now) {
                self.seen.failed = Some(why);
            }
            if let Task::Ask { left, next, .. } = &mut self.task {
                *next = (*left > 0).then_some(now);
            }
        }
        while let Some(happening) = self.conduit.happening() {
            match happening {
                Happening::Progress => {}
                Happening::PeerClosed => self.ended = true,
                Happening::Closed(why) => {
                    self.seen.failed = self.seen.failed.or(why);
                }
            }
        }
        self.fill(now);
        if self.conduit.is_open() {
            self.read(now);
            self.write(now);
            if self.ended {
                // What was read to its end is ended from here too.
                self.conduit.finish(now);
            }
        }
    }

    /// Takes in what has become due to be written.
    fn fill(&mut self, now: Time) {
        match &mut self.task {
            Task::Messages { clock, .. } => {
                for _ in 0..clock.due(now) {
                    if self.backlog.len() < MAX_BACKLOG {
                        self.backlog.push_back((self.seen.written, now));
                        self.seen.written += 1;
                    } else {
                        self.seen.refused += 1;
                    }
                }
            }
            Task::Ask { left, stop, next, .. } if next.is_some_and(|at| at <= now) => {
                *next = None;
                if now > *stop {
                    self.seen.completed.get_or_insert(now);
                } else {
                    *left -= 1;
                    self.backlog.push_back((self.seen.written, now));
                    self.asked_at = Some(now);
                    self.seen.written += 1;
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
                Task::Messages { size, .. } | Task::Ask { size, .. } => {
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
                Task::Answer { size, owed, .. } if *owed > 0 => {
                    *owed -= 1;
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

    /// Takes in bytes of the stream.
    fn take(&mut self, now: Time, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.seen.bytes += bytes.len() as u64;
        if !matches!(self.task, Task::TakeMessages { .. }) {
            self.seen.progress.push(now);
        }
        match &mut self.task {
            Task::TakeBytes { wanted: Some(wanted) } if self.seen.bytes >= *wanted => {
                self.seen.completed.get_or_insert(now);
            }
            Task::TakeMessages { size } => {
                let size = *size;
                self.split(now, bytes, size);
            }
            Task::Ask { answer, left, think, next, .. } => {
                self.got += bytes.len() as u64;
                if self.got >= *answer {
                    self.got -= *answer;
                    self.seen.delivered += 1;
                    if let Some(at) = self.asked_at.take() {
                        self.seen.delay.push(now.since(at).as_nanos() as u64);
                    }
                    if *left > 0 {
                        *next = Some(now + *think);
                    } else {
                        self.seen.completed.get_or_insert(now);
                        self.ended = true;
                    }
                }
            }
            Task::Answer { question, owed, .. } => {
                self.got += bytes.len() as u64;
                *owed += self.got / *question;
                self.got %= *question;
            }
            _ => {}
        }
    }

    /// Finds the ends of messages, and when each was due.
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
                self.seen.delivered += 1;
                self.seen.progress.push(now);
                let at = self.stamp.last_chunk::<8>().map_or(0, |at| u64::from_be_bytes(*at));
                self.seen.delay.push(now.since(Time::from_nanos(at)).as_nanos() as u64);
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
