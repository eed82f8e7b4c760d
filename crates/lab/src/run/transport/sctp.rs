//! Flows over SCTP: a host's whole SCTP at each end of each flow, on a port of its own; messages on
//! as many streams and paths as the flow has.

use super::{Carried, Clock, Ends, Look, MAX_BACKLOG, Numbers, Seen, endpoint, start, stop};
use crate::scenario::{Deal, Flow, MIN_MESSAGE, Sctp as Use, Traffic};
use bytes::Bytes;
use ringway_link::Streams;
use ringway_link::random::Stream;
use ringway_sansio::{Addressing, Endpoint, Random, Time};
use ringway_sctp::{
    AssocId, Close, Event, Limits, PROTOCOL, PathState, Received, Reliability, Sctp, SendOptions,
    Snapshot,
};
use ringway_sim::{Bind, EndpointId, Error, World};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

pub(super) fn attach(
    world: &mut World,
    flow: &Flow,
    ends: Ends<'_>,
    streams: &Streams,
) -> Result<Box<dyn Carried>, Error> {
    let ports = ends.addresses.map(|a| a.port());
    // Two paths may end at one address.
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
        // Settings were checked when the scenario was read, so each end has an SCTP.
        let sctp = Sctp::new(Limits::default(), flow.sctp.settings, random).ok();
        let dice = streams.stream(&format!("{}/streams", flow.name));
        Program { sctp, ..Program::new(flow.sctp.clone(), task, dice) }
    };
    let (task, wanted) = match flow.traffic {
        Traffic::Messages { packet, .. } => {
            (Task::Messages(Clock::new(flow, ends, streams), packet.0 as usize), None)
        }
        Traffic::File { size } => (Task::File(size.0), Some(size.0)),
        // Questions are not asked over SCTP: the scenario was refused.
        Traffic::Bulk | Traffic::RequestResponse { .. } => (Task::Bulk(stop(flow)), None),
    };
    let messages = matches!(task, Task::Messages(..));
    let mut server = host("server", Task::Take(wanted));
    server.seen.messages = messages;
    if let Some(sctp) = &mut server.sctp {
        // The only listener of a host of its own: nothing can be in its way.
        let _ = sctp.listen(&lists[1], ports[1], None);
    }
    let mut client = host("client", task);
    client.connect = Some((start(flow), lists, ports));
    let bind = |port| Bind { protocol: PROTOCOL, port: Some(port) };
    let client = world.attach(ends.nodes[0], bind(ports[0]), client)?;
    let server = world.attach(ends.nodes[1], bind(ports[1]), server)?;
    Ok(Box::new(Ended { client, server }))
}

/// What an end does.
enum Task {
    /// Sends messages of a size as they are due.
    Messages(Clock, usize),
    /// Sends as much as goes, until a time.
    Bulk(Time),
    /// Sends so many bytes more and shuts down.
    File(u64),
    /// Takes in what comes, of a file so many bytes.
    Take(Option<u64>),
}

/// When and from where to where to connect.
type Connect = (Time, [Vec<IpAddr>; 2], [u16; 2]);

struct Program {
    sctp: Option<Sctp>,
    association: Option<AssocId>,
    connect: Option<Connect>,
    manner: Use,
    task: Task,
    /// Messages that wait for room, by number and the time they were due.
    backlog: VecDeque<(u64, Time)>,
    /// Messages given to the association.
    given: u64,
    /// What is being read.
    part: Vec<u8>,
    /// Messages of which parts came, by stream, order and number: parts of several may come in turn.
    parts: BTreeMap<(u16, bool, u16), Vec<u8>>,
    /// Which stream the next message goes on, where that is left to chance.
    dice: Stream,
    came: Numbers,
    look: Look,
    finished: bool,
    seen: Seen,
}

impl Program {
    fn new(manner: Use, task: Task, dice: Stream) -> Self {
        Program {
            sctp: None,
            association: None,
            connect: None,
            manner,
            task,
            backlog: VecDeque::new(),
            given: 0,
            part: Vec::new(),
            parts: BTreeMap::new(),
            dice,
            came: Numbers::default(),
            look: Look::default(),
            finished: false,
            seen: Seen::default(),
        }
    }

    fn due(&self) -> Option<Time> {
        let task = match &self.task {
            Task::Messages(clock, _) => clock.next(),
            _ => None,
        };
        [self.connect.as_ref().map(|c| c.0), task].into_iter().flatten().min()
    }

    fn is_done(&self) -> bool {
        self.seen.failed.is_some()
            || match &self.task {
                Task::Messages(clock, _) => clock.next().is_none() && self.backlog.is_empty(),
                Task::File(left) => *left == 0,
                Task::Take(wanted) => wanted.is_none() || self.seen.completed.is_some(),
                Task::Bulk(_) => true,
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
                self.seen.failed = Some("cannot connect");
            }
        }
        while let Some(event) = sctp.poll_event() {
            match event {
                Event::Up { id, .. } => {
                    self.association = Some(id);
                    self.value_streams(&mut sctp, id);
                }
                Event::Closed(_, why) => self.seen.failed = self.seen.failed.or(reason(&why)),
                _ => {}
            }
        }
        if let Some(id) = self.association {
            self.read(now, &mut sctp, id);
            self.write(now, &mut sctp, id);
        }
        self.sctp = Some(sctp);
        if let Some(snapshot) = self.snapshot() {
            self.look = look(&snapshot);
            self.seen.duplicates = snapshot.totals.duplicates;
        }
    }

    /// Tells the scheduler what it goes by.
    fn value_streams(&self, sctp: &mut Sctp, id: AssocId) {
        for (stream, value) in self.manner.values.iter().enumerate() {
            // Streams that the peer does not take have no turn.
            let _ = sctp.set_stream_value(id, stream as u16, *value);
        }
    }

    fn write(&mut self, now: Time, sctp: &mut Sctp, id: AssocId) {
        if let Task::Messages(clock, _) = &mut self.task {
            for _ in 0..clock.due(now) {
                if self.backlog.len() < MAX_BACKLOG {
                    self.backlog.push_back((self.seen.written, now));
                    self.seen.written += 1;
                } else {
                    self.seen.refused += 1;
                }
            }
        }
        let most = u64::from(self.manner.message);
        loop {
            let (size, number, at) = match &self.task {
                Task::Messages(_, size) => match self.backlog.front() {
                    Some((number, at)) => (*size, *number, *at),
                    None => return,
                },
                Task::Bulk(stop) if now <= *stop => (most as usize, self.given, now),
                Task::File(left) if *left > 0 => ((*left).min(most) as usize, self.given, now),
                Task::File(_) if !self.finished => {
                    self.finished = true;
                    // It is refused only to an association that is over.
                    let _ = sctp.shutdown(now, id);
                    return;
                }
                _ => return,
            };
            let streams = u64::from(self.manner.streams);
            // The choice stays the same until the message is taken.
            let mut dice = self.dice.clone();
            let stream = match self.manner.deal {
                Deal::InTurn => number % streams,
                Deal::AtRandom => dice.next_u64() % streams,
            } as u16;
            let (unordered, reliability) = (self.manner.unordered, self.manner.reliability);
            let options = SendOptions { stream, unordered, reliability, ..SendOptions::default() };
            if sctp.send(now, id, &options, message(number, at, size)).is_err() {
                return;
            }
            self.dice = dice;
            self.given += 1;
            match &mut self.task {
                Task::Messages(..) => drop(self.backlog.pop_front()),
                Task::File(left) => *left -= size as u64,
                _ => {}
            }
        }
    }

    fn read(&mut self, now: Time, sctp: &mut Sctp, id: AssocId) {
        while let Ok(Some(received)) = sctp.recv(id, &mut self.part) {
            self.seen.bytes += received.len as u64;
            self.seen.progress.push(now);
            if let Task::Take(Some(wanted)) = self.task
                && self.seen.bytes >= wanted
            {
                self.seen.completed.get_or_insert(now);
            }
            self.join(now, &received);
            self.part.clear();
        }
    }

    /// Puts parts of a message together.
    fn join(&mut self, now: Time, received: &Received) {
        if received.begin && received.end {
            let whole = std::mem::take(&mut self.part);
            self.take(now, &whole);
            self.part = whole;
            return;
        }
        // Unordered parts that are not interleaved come one message after another.
        let key = (received.stream, received.unordered, received.ssn.raw());
        let parts = self.parts.entry(key).or_default();
        parts.extend_from_slice(&self.part);
        if received.end || received.cut {
            let whole = self.parts.remove(&key).unwrap_or_default();
            if received.end {
                self.take(now, &whole);
            }
        }
    }

    /// A message is whole.
    fn take(&mut self, now: Time, message: &[u8]) {
        let Some(stamp) = message.first_chunk::<{ MIN_MESSAGE as usize }>() else { return };
        let (number, at) = stamp.split_at(8);
        let word = |bytes: &[u8]| bytes.iter().fold(0, |n: u64, b| n << 8 | u64::from(*b));
        if !self.seen.messages {
            return;
        }
        if self.came.is_new(word(number)) {
            self.seen.delivered += 1;
            self.seen.delay.push(now.since(Time::from_nanos(word(at))).as_nanos() as u64);
        } else {
            self.seen.failed = Some("a message came twice");
        }
    }
}

/// A message with its number and the time it was due.
fn message(number: u64, at: Time, size: usize) -> Bytes {
    let mut bytes = Vec::with_capacity(size.max(MIN_MESSAGE as usize));
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend_from_slice(&at.as_nanos().to_be_bytes());
    bytes.resize(size, 0);
    bytes.into()
}

fn look(snapshot: &Snapshot) -> Look {
    let in_use = |p: &&ringway_sctp::PathSnapshot| p.primary && p.state == PathState::Active;
    let used = snapshot.paths.iter().find(in_use).or(snapshot.paths.first());
    Look {
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

struct Ended {
    client: EndpointId,
    server: EndpointId,
}

impl Ended {
    /// Every message came, or those that did not were given up.
    fn all_came(&self, world: &World) -> bool {
        let client = endpoint::<Program>(world, self.client);
        let Some((client, server)) = client.zip(endpoint::<Program>(world, self.server)) else {
            return true;
        };
        let settled = || client.snapshot().is_some_and(|s| s.unacknowledged == 0);
        server.seen.delivered >= client.seen.written
            || client.manner.reliability != Reliability::Full && settled()
    }
}

impl Carried for Ended {
    fn seen(&self, world: &World) -> Seen {
        let client = endpoint::<Program>(world, self.client);
        let server = endpoint::<Program>(world, self.server);
        let Some((client, server)) = client.zip(server) else { return Seen::default() };
        let all = client.is_done() && server.seen.messages && self.all_came(world);
        Seen {
            completed: server.seen.completed.or(server.seen.progress.last().filter(|_| all)),
            written: client.seen.written,
            refused: client.seen.refused,
            failed: client.seen.failed.or(server.seen.failed),
            ..server.seen.clone()
        }
    }

    fn look(&self, world: &World) -> Option<Look> {
        Some(endpoint::<Program>(world, self.client)?.look)
    }

    fn is_done(&self, world: &World) -> bool {
        let client = endpoint::<Program>(world, self.client);
        let Some((client, server)) = client.zip(endpoint::<Program>(world, self.server)) else {
            return true;
        };
        let failed = client.seen.failed.is_some() || server.seen.failed.is_some();
        let all = !server.seen.messages || self.all_came(world);
        failed || client.is_done() && server.is_done() && all
    }
}
