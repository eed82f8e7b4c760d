//! Flows over SCTP: a complete SCTP endpoint at each end of each flow, on its own port; messages
//! use the streams and paths of the flow.

use super::{
    Clock, Ends, MAX_BACKLOG, Numbers, ProgramStats, RunningFlow, SenderState, Window, endpoint,
    start, stop,
};
use crate::scenario::{Deal, Flow, MIN_MESSAGE, Sctp as Use, Traffic};
use bytes::Bytes;
use ringway_link::Streams;
use ringway_link::random::Stream;
use ringway_sansio::{Addressing, Duration, Endpoint, Random, Time};
use ringway_sctp::{
    AssocId, Change, Close, Event, Limits, PROTOCOL, PathState, Received, Reliability, Sctp,
    SendOptions, Snapshot,
};
use ringway_sim::{Bind, EndpointId, Error, World};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

pub(super) fn attach(
    world: &mut World,
    flow: &Flow,
    ends: Ends<'_>,
    streams: &Streams,
) -> Result<Box<dyn RunningFlow>, Error> {
    let ports = ends.addresses.map(|a| a.port());
    // Two paths may end at the same address.
    let lists = [0, 1].map(|end| {
        let mut list: Vec<IpAddr> = Vec::new();
        for path in ends.paths {
            if !list.contains(&path[end]) {
                list.push(path[end]);
            }
        }
        list
    });
    let host = |end: &str, task| {
        let random = Box::new(streams.stream(&format!("{}/{end}", flow.name)));
        // Settings were checked when the scenario was read, so each end has an endpoint.
        let sctp = Sctp::new(Limits::default(), flow.sctp.settings, random).ok();
        let stream_choice = streams.stream(&format!("{}/streams", flow.name));
        Program { sctp, ..Program::new(flow.sctp.clone(), task, stream_choice) }
    };
    let (task, expected) = match flow.traffic {
        Traffic::Messages { packet, .. } => {
            (Task::Messages(Clock::new(flow, ends, streams), packet.0 as usize), None)
        }
        Traffic::File { size } => (Task::File(size.0), Some(size.0)),
        Traffic::Bulk => (Task::Bulk(stop(flow)), None),
        Traffic::RequestResponse { request, response, requests, think, .. } => (
            Task::Request(Request {
                size: request.0 as usize,
                answer: response.0,
                left: requests,
                stop: stop(flow),
                think: think.into(),
                next: None,
                sent: None,
                got: 0,
            }),
            None,
        ),
    };
    let messages = matches!(task, Task::Messages(..));
    let answers = match flow.traffic {
        Traffic::RequestResponse { response, .. } => {
            Some(Task::Respond { size: response.0, left: VecDeque::new() })
        }
        _ => None,
    };
    let mut server = host("server", answers.unwrap_or(Task::Receive(expected)));
    server.stats.messages = messages;
    if let Some(sctp) = &mut server.sctp {
        // It is the only listener of this endpoint, so its port is free.
        let _ = sctp.listen(&lists[1], ports[1], None);
    }
    let mut client = host("client", task);
    client.stats.messages = matches!(client.task, Task::Request(_));
    if let (Some(at), [first, second]) = (flow.sctp.moves, ends.paths) {
        client.moves = Some(Moves { at: Time::ZERO + at.into(), from: first[0], to: second[0] });
    }
    // An association that moves begins with its first path alone.
    let lists =
        if client.moves.is_some() { ends.paths[0].map(|address| vec![address]) } else { lists };
    client.connect = Some((start(flow), lists, ports));
    let bind = |port| Bind { protocol: PROTOCOL, port: Some(port) };
    let client = world.attach(ends.nodes[0], bind(ports[0]), client)?;
    let server = world.attach(ends.nodes[1], bind(ports[1]), server)?;
    Ok(Box::new(SctpFlow { client, server }))
}

/// Task of an end.
enum Task {
    /// Sends messages of one size when they are due.
    Messages(Clock, usize),
    /// Sends as much as possible, until a time.
    Bulk(Time),
    /// Sends a number of further bytes and shuts down.
    File(u64),
    /// Receives data; the number of bytes of a file, if it is one.
    Receive(Option<u64>),
    /// Sends one request after another.
    Request(Request),
    /// Responds to requests with so many bytes; how much is left of each response, and its stream.
    Respond { size: u64, left: VecDeque<(u64, u16)> },
}

/// Requests of a client: the next is due some time after the response to the one before.
struct Request {
    size: usize,
    answer: u64,
    left: u64,
    stop: Time,
    think: Duration,
    /// Time at which the next is due.
    next: Option<Time>,
    /// Time of the one that waits for its response, and the bytes of that which have come.
    sent: Option<Time>,
    got: u64,
}

impl Request {
    /// Counts received bytes; returns the time that a response took which they complete.
    fn receive(&mut self, now: Time, bytes: u64) -> Option<Duration> {
        self.got += bytes;
        if self.got < self.answer {
            return None;
        }
        self.got = 0;
        self.next = (self.left > 0).then(|| now + self.think);
        Some(now.since(self.sent.take()?))
    }
}

/// A host that gets another address (RFC 5061).
#[derive(Clone, Copy)]
struct Moves {
    at: Time,
    from: IpAddr,
    to: IpAddr,
}

/// Time, local and remote addresses, local and remote port of a connection.
type Connect = (Time, [Vec<IpAddr>; 2], [u16; 2]);

struct Program {
    sctp: Option<Sctp>,
    association: Option<AssocId>,
    connect: Option<Connect>,
    /// A move of the client that has not begun, and the address that it leaves when the new one is in use.
    moves: Option<Moves>,
    leaves: Option<Moves>,
    usage: Use,
    task: Task,
    /// Messages that wait for buffer space, by number and the time they were due.
    backlog: VecDeque<(u64, Time)>,
    /// Number of messages submitted to the association.
    submitted: u64,
    /// Buffer of the message being read.
    part: Vec<u8>,
    /// Partial messages by stream, order and number: parts of several messages may interleave.
    parts: BTreeMap<(u16, bool, u16), Vec<u8>>,
    /// Random stream that selects the SCTP stream of the next message, where that is random.
    stream_choice: Stream,
    numbers: Numbers,
    sender_state: SenderState,
    finished: bool,
    stats: ProgramStats,
}

impl Program {
    fn new(usage: Use, task: Task, stream_choice: Stream) -> Self {
        Program {
            sctp: None,
            association: None,
            connect: None,
            moves: None,
            leaves: None,
            usage,
            task,
            backlog: VecDeque::new(),
            submitted: 0,
            part: Vec::new(),
            parts: BTreeMap::new(),
            stream_choice,
            numbers: Numbers::default(),
            sender_state: SenderState::default(),
            finished: false,
            stats: ProgramStats::default(),
        }
    }

    fn due(&self) -> Option<Time> {
        let task = match &self.task {
            Task::Messages(clock, _) => clock.next(),
            Task::Request(request) => request.next,
            _ => None,
        };
        let moves = self.moves.filter(|_| self.association.is_some()).map(|moves| moves.at);
        [self.connect.as_ref().map(|c| c.0), task, moves].into_iter().flatten().min()
    }

    fn is_done(&self) -> bool {
        self.stats.failed.is_some()
            || match &self.task {
                Task::Messages(clock, _) => clock.next().is_none() && self.backlog.is_empty(),
                Task::File(left) => *left == 0,
                Task::Receive(expected) => expected.is_none() || self.stats.completed.is_some(),
                Task::Bulk(_) | Task::Respond { .. } => true,
                Task::Request(_) => self.stats.completed.is_some(),
            }
    }

    fn snapshot(&self) -> Option<Snapshot> {
        self.sctp.as_ref()?.snapshot(self.association?).ok()
    }

    fn drive(&mut self, now: Time) {
        let Some(mut sctp) = self.sctp.take() else { return };
        if self.connect.as_ref().is_some_and(|c| c.0 <= now)
            && let Some((_, [locals, remotes], [local, remote])) = self.connect.take()
        {
            self.association = sctp.connect(now, &locals, local, &remotes, remote, None).ok();
            if self.association.is_none() {
                self.stats.failed = Some("cannot connect");
            }
        }
        while let Some(event) = sctp.poll_event() {
            match event {
                Event::Up { id, .. } => {
                    self.association = Some(id);
                    self.set_stream_values(&mut sctp, id);
                    if let Task::Request(request) = &mut self.task {
                        request.next.get_or_insert(now);
                    }
                }
                Event::Changed { id, change: Change::AddressAdded(address) } => {
                    if let Some(Moves { from, to, .. }) = self.leaves.take_if(|m| m.to == address) {
                        // Both are accepted: the new address is one of the association's, and not the last.
                        let _ = sctp.request_primary(now, id, to);
                        let _ = sctp.delete_address(now, id, from);
                    }
                }
                Event::Closed(_, why) => self.stats.failed = self.stats.failed.or(reason(&why)),
                _ => {}
            }
        }
        if let Some(id) = self.association {
            if let Some(moves) = self.moves.take_if(|moves| moves.at <= now)
                && sctp.add_address(now, id, moves.to).is_ok()
            {
                self.leaves = Some(moves);
            }
            self.read(now, &mut sctp, id);
            self.write(now, &mut sctp, id);
        }
        self.sctp = Some(sctp);
        if let Some(snapshot) = self.snapshot() {
            self.sender_state = sender_state(&snapshot);
            self.stats.duplicates = snapshot.totals.duplicates;
        }
    }

    /// Sets the priorities or weights of the scheduler.
    fn set_stream_values(&self, sctp: &mut Sctp, id: AssocId) {
        for (stream, value) in self.usage.values.iter().enumerate() {
            // Streams that the peer does not accept are skipped.
            let _ = sctp.set_stream_value(id, stream as u16, *value);
        }
    }

    fn write(&mut self, now: Time, sctp: &mut Sctp, id: AssocId) {
        if let Task::Messages(clock, _) = &mut self.task {
            for _ in 0..clock.due(now) {
                if self.backlog.len() < MAX_BACKLOG {
                    self.backlog.push_back((self.stats.written, now));
                    self.stats.written += 1;
                } else {
                    self.stats.refused += 1;
                }
            }
        }
        if let Task::Request(request) = &mut self.task
            && request.next.is_some_and(|at| at <= now)
        {
            request.next = None;
            if now > request.stop {
                self.stats.completed.get_or_insert(now);
            } else {
                request.left -= 1;
                request.sent = Some(now);
                self.backlog.push_back((self.stats.written, now));
                self.stats.written += 1;
            }
        }
        let max = u64::from(self.usage.message);
        loop {
            let (size, number, at) = match &self.task {
                Task::Messages(_, size) | Task::Request(Request { size, .. }) => {
                    match self.backlog.front() {
                        Some((number, at)) => (*size, *number, *at),
                        None => return,
                    }
                }
                Task::Respond { left, .. } => match left.front() {
                    Some((bytes, _)) => ((*bytes).min(max) as usize, self.submitted, now),
                    None => return,
                },
                Task::Bulk(stop) if now <= *stop => (max as usize, self.submitted, now),
                Task::File(left) if *left > 0 => ((*left).min(max) as usize, self.submitted, now),
                Task::File(_) if !self.finished => {
                    self.finished = true;
                    // A message is refused only by an association that has ended.
                    let _ = sctp.shutdown(now, id);
                    return;
                }
                _ => return,
            };
            let streams = u64::from(self.usage.streams);
            // The selection stays until the message is accepted.
            let mut stream_choice = self.stream_choice.clone();
            let stream = match (&self.task, self.usage.deal) {
                // A response has the stream of its request.
                (Task::Respond { left, .. }, _) => left.front().map_or(0, |(_, stream)| *stream),
                (_, Deal::InTurn) => (number % streams) as u16,
                (_, Deal::AtRandom) => (stream_choice.next_u64() % streams) as u16,
            };
            let (unordered, reliability) = (self.usage.unordered, self.usage.reliability);
            let options = SendOptions { stream, unordered, reliability, ..SendOptions::default() };
            if sctp.send(now, id, &options, message(number, at, size)).is_err() {
                return;
            }
            self.stream_choice = stream_choice;
            self.submitted += 1;
            match &mut self.task {
                Task::Messages(..) | Task::Request(_) => drop(self.backlog.pop_front()),
                Task::File(left) => *left -= size as u64,
                Task::Respond { left, .. } => {
                    if let Some((bytes, _)) = left.front_mut() {
                        *bytes -= size as u64;
                        if *bytes == 0 {
                            left.pop_front();
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn read(&mut self, now: Time, sctp: &mut Sctp, id: AssocId) {
        while let Ok(Some(received)) = sctp.recv(id, &mut self.part) {
            self.stats.bytes += received.len as u64;
            self.stats.progress.push(now);
            if let Task::Receive(Some(expected)) = self.task
                && self.stats.bytes >= expected
            {
                self.stats.completed.get_or_insert(now);
            }
            match &mut self.task {
                Task::Request(request) => {
                    if let Some(took) = request.receive(now, received.len as u64) {
                        self.stats.delivered += 1;
                        self.stats.delay.push(took.as_nanos() as u64);
                        if request.left == 0 {
                            self.stats.completed.get_or_insert(now);
                        }
                    }
                }
                Task::Respond { size, left } if received.end => {
                    left.push_back((*size, received.stream))
                }
                Task::Respond { .. } => {}
                _ => self.join(now, &received),
            }
            self.part.clear();
        }
    }

    /// Reassembles the parts of a message.
    fn join(&mut self, now: Time, received: &Received) {
        if received.begin && received.end {
            let complete = std::mem::take(&mut self.part);
            self.receive_message(now, &complete);
            self.part = complete;
            return;
        }
        // Unordered parts that are not interleaved arrive one message after another.
        let key = (received.stream, received.unordered, received.ssn.raw());
        let parts = self.parts.entry(key).or_default();
        parts.extend_from_slice(&self.part);
        if received.end || received.cut {
            let complete = self.parts.remove(&key).unwrap_or_default();
            if received.end {
                self.receive_message(now, &complete);
            }
        }
    }

    /// Records a complete message.
    fn receive_message(&mut self, now: Time, message: &[u8]) {
        let Some(stamp) = message.first_chunk::<{ MIN_MESSAGE as usize }>() else { return };
        let (number, at) = stamp.split_at(8);
        let word = |bytes: &[u8]| bytes.iter().fold(0, |n: u64, b| n << 8 | u64::from(*b));
        if !self.stats.messages {
            return;
        }
        if self.numbers.is_new(word(number)) {
            self.stats.delivered += 1;
            self.stats.delay.push(now.since(Time::from_nanos(word(at))).as_nanos() as u64);
        } else {
            self.stats.failed = Some("a message came twice");
        }
    }
}

/// Builds a message with its number and the time it was due.
fn message(number: u64, at: Time, size: usize) -> Bytes {
    let mut bytes = Vec::with_capacity(size.max(MIN_MESSAGE as usize));
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend_from_slice(&at.as_nanos().to_be_bytes());
    bytes.resize(size, 0);
    bytes.into()
}

fn sender_state(snapshot: &Snapshot) -> SenderState {
    let in_use = |p: &&ringway_sctp::PathSnapshot| p.primary && p.state == PathState::Active;
    let used = snapshot.paths.iter().find(in_use).or(snapshot.paths.first());
    SenderState {
        cwnd: used.map_or(0.0, |path| path.cwnd.into()),
        retransmits: snapshot.totals.retransmits,
        timeouts: snapshot.totals.timeouts,
        window_full: snapshot.totals.in_flight_full,
    }
}

fn reason(close: &Close) -> Option<&'static str> {
    Some(match close {
        Close::Finished => return None,
        Close::Unreachable => "the peer does not answer",
        Close::Aborted { .. } => "aborted by the peer",
        _ => "closed",
    })
}

impl Endpoint for Program {
    fn handle_packet(&mut self, now: Time, addressing: Addressing, payload: &[u8]) {
        if let Some(sctp) = &mut self.sctp {
            sctp.handle_packet(now, addressing, payload);
        }
        self.drive(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        if let Some(sctp) = &mut self.sctp
            && sctp.poll_timeout().is_some_and(|at| at <= now)
        {
            sctp.handle_timeout(now);
        }
        self.drive(now);
    }

    fn poll_timeout(&self) -> Option<Time> {
        let sctp = self.sctp.as_ref().and_then(Sctp::poll_timeout);
        [self.due(), sctp].into_iter().flatten().min()
    }

    fn poll_transmit(&mut self, now: Time, payload: &mut Vec<u8>) -> Option<Addressing> {
        self.sctp.as_mut()?.poll_transmit(now, payload)
    }
}

struct SctpFlow {
    client: EndpointId,
    server: EndpointId,
}

impl SctpFlow {
    /// Returns whether every message was delivered or abandoned.
    fn all_delivered(&self, world: &World) -> bool {
        let client = endpoint::<Program>(world, self.client);
        let Some((client, server)) = client.zip(endpoint::<Program>(world, self.server)) else {
            return true;
        };
        let settled = || client.snapshot().is_some_and(|s| s.unacknowledged == 0);
        server.stats.delivered >= client.stats.written
            || client.usage.reliability != Reliability::Full && settled()
    }
}

impl RunningFlow for SctpFlow {
    fn stats(&self, world: &World) -> ProgramStats {
        let client = endpoint::<Program>(world, self.client);
        let server = endpoint::<Program>(world, self.server);
        let Some((client, server)) = client.zip(server) else { return ProgramStats::default() };
        let all = client.is_done() && server.stats.messages && self.all_delivered(world);
        let receiver = if client.stats.messages { client } else { server };
        ProgramStats {
            completed: receiver.stats.completed.or(server.stats.progress.last().filter(|_| all)),
            written: client.stats.written,
            refused: client.stats.refused,
            failed: client.stats.failed.or(server.stats.failed),
            ..receiver.stats.clone()
        }
    }

    fn sender_state(&self, world: &World) -> Option<SenderState> {
        Some(endpoint::<Program>(world, self.client)?.sender_state)
    }

    fn windows(&self, world: &World) -> Vec<Window> {
        let client = endpoint::<Program>(world, self.client);
        let Some(snapshot) = client.and_then(Program::snapshot) else { return Vec::new() };
        let window = |path: &ringway_sctp::PathSnapshot| Window {
            path: Some(path.local),
            cwnd: path.cwnd.into(),
            ssthresh: Some(path.ssthresh.into()),
            flight: path.flight.into(),
            srtt: path.srtt,
        };
        snapshot.paths.iter().map(window).collect()
    }

    fn is_done(&self, world: &World) -> bool {
        let client = endpoint::<Program>(world, self.client);
        let Some((client, server)) = client.zip(endpoint::<Program>(world, self.server)) else {
            return true;
        };
        let failed = client.stats.failed.is_some() || server.stats.failed.is_some();
        let all = !server.stats.messages || self.all_delivered(world);
        failed || client.is_done() && server.is_done() && all
    }
}
