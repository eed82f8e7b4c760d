//! Flows over ns-2's one-way TCP.

use super::{Carried, Clock, Ends, Look, Seen, endpoint, start, stop};
use crate::scenario::{Flow, Traffic};
use ringway_link::Streams;
use ringway_sansio::{Addressing, Endpoint, Time};
use ringway_sim::{Bind, EndpointId, Error, World};
use ringway_tcp::{PROTOCOL, ns2};

pub(super) fn attach(
    world: &mut World,
    flow: &Flow,
    ends: Ends,
    streams: &Streams,
) -> Result<Box<dyn Carried>, Error> {
    let [local, remote] = ends.addresses;
    let packet = u64::from(flow.ns2.packet);
    let (task, wanted) = match flow.traffic {
        Traffic::Messages { .. } => (Task::Messages(Clock::new(flow, ends, streams)), None),
        Traffic::File { size } => {
            let packets = size.0.div_ceil(packet);
            (Task::At(start(flow), packets), Some(packets * packet))
        }
        _ => (Task::At(start(flow), u64::MAX), None),
    };
    let sender = Sender {
        inner: ns2::Sender::new(flow.ns2, local, remote),
        task,
        stop: stop(flow),
        offered: 0,
    };
    let sink = Sink { inner: ns2::Sink::new(remote, local), wanted, ended: None };
    let bind = |port| Bind { protocol: PROTOCOL, port: Some(port) };
    let sender = world.attach(ends.nodes[0], bind(local.port()), sender)?;
    let sink = world.attach(ends.nodes[1], bind(remote.port()), sink)?;
    let messages = matches!(flow.traffic, Traffic::Messages { .. });
    Ok(Box::new(Ns2 { sender, sink, packet, messages }))
}

enum Task {
    Messages(Clock),
    /// So many packets at a time.
    At(Time, u64),
    Done,
}

/// ns-2's sender with a program above it.
struct Sender {
    inner: ns2::Sender,
    task: Task,
    /// After this time the program hands over nothing; what it has handed over is still sent.
    stop: Time,
    offered: u64,
}

impl Sender {
    fn due(&self) -> Option<Time> {
        match &self.task {
            Task::Messages(clock) => clock.next(),
            Task::At(at, _) => Some(*at),
            Task::Done => None,
        }
    }
}

impl Endpoint for Sender {
    fn handle_packet(&mut self, now: Time, addressing: Addressing, payload: &[u8]) {
        self.inner.handle_packet(now, addressing, payload);
    }

    fn handle_timeout(&mut self, now: Time) {
        match &mut self.task {
            Task::Messages(clock) => {
                let due = clock.due(now);
                self.inner.offer(due);
                self.offered += due;
            }
            Task::At(at, packets) if *at <= now => {
                if *at <= self.stop {
                    self.inner.offer(*packets);
                    self.offered = *packets;
                }
                self.task = Task::Done;
            }
            _ => {}
        }
        self.inner.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Time> {
        [self.due(), self.inner.poll_timeout()].into_iter().flatten().min()
    }

    fn poll_transmit(&mut self, now: Time, payload: &mut Vec<u8>) -> Option<Addressing> {
        let endless = self.offered == u64::MAX;
        if endless && now > self.stop {
            return None;
        }
        self.inner.poll_transmit(now, payload)
    }
}

/// ns-2's sink, which notes when it has all.
struct Sink {
    inner: ns2::Sink,
    wanted: Option<u64>,
    ended: Option<Time>,
}

impl Endpoint for Sink {
    fn handle_packet(&mut self, now: Time, addressing: Addressing, payload: &[u8]) {
        self.inner.handle_packet(now, addressing, payload);
        if self.wanted.is_some_and(|w| self.inner.delivered() >= w) {
            self.ended.get_or_insert(now);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.inner.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.inner.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Time, payload: &mut Vec<u8>) -> Option<Addressing> {
        self.inner.poll_transmit(now, payload)
    }
}

struct Ns2 {
    sender: EndpointId,
    sink: EndpointId,
    packet: u64,
    messages: bool,
}

impl Carried for Ns2 {
    fn seen(&self, world: &World) -> Seen {
        let Some(sender) = endpoint::<Sender>(world, self.sender) else { return Seen::default() };
        let Some(sink) = endpoint::<Sink>(world, self.sink) else { return Seen::default() };
        let in_order = sink.inner.delivered() / self.packet;
        Seen {
            bytes: sink.inner.delivered(),
            // Those that wait for an earlier one are not told apart from those that came again.
            duplicates: sink.inner.received().saturating_sub(in_order),
            messages: self.messages,
            written: sender.offered,
            delivered: in_order,
            completed: sink.ended,
            ..Seen::default()
        }
    }

    fn look(&self, world: &World) -> Option<Look> {
        let snapshot = endpoint::<Sender>(world, self.sender)?.inner.snapshot();
        Some(Look {
            cwnd: snapshot.cwnd * self.packet as f64,
            retransmits: snapshot.retransmits,
            timeouts: snapshot.timeouts,
        })
    }

    fn is_done(&self, world: &World) -> bool {
        let done = |s: &Sender| s.due().is_none() && s.inner.snapshot().acknowledged >= s.offered;
        let sent = endpoint::<Sender>(world, self.sender).is_none_or(done);
        sent && endpoint::<Sink>(world, self.sink)
            .is_none_or(|s| s.wanted.is_none() || s.ended.is_some())
    }
}
