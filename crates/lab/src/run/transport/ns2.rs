//! Flows over ns-2's one-way TCP and SCTP.

use super::{Carried, Clock, Ends, Look, Progress, Seen, endpoint, start, stop};
use crate::scenario::{Flow, Traffic};
use ringway_link::Streams;
use ringway_sansio::{Addressing, Endpoint, Time};
use ringway_sctp::{self as sctp, ns2 as sctp_ns2};
use ringway_sim::{Bind, EndpointId, Error, World};
use ringway_tcp::{self as tcp, ns2 as tcp_ns2};
use std::marker::PhantomData;

/// The half of a model that sends.
trait Model: Endpoint + 'static {
    /// Hands over packets to be sent.
    fn offer(&mut self, now: Time, packets: u64);
    /// Packets acknowledged without a gap.
    fn acknowledged(&self) -> u64;
    /// What it looks like, with packets of so many bytes.
    fn look(&self, packet: u64) -> Look;
}

impl Model for tcp_ns2::Sender {
    fn offer(&mut self, _: Time, packets: u64) {
        tcp_ns2::Sender::offer(self, packets);
    }

    fn acknowledged(&self) -> u64 {
        self.snapshot().acknowledged
    }

    fn look(&self, packet: u64) -> Look {
        let snapshot = self.snapshot();
        Look {
            cwnd: snapshot.cwnd * packet as f64,
            retransmits: snapshot.retransmits,
            timeouts: snapshot.timeouts,
            window_full: 0,
        }
    }
}

impl Model for sctp_ns2::Sender {
    fn offer(&mut self, now: Time, packets: u64) {
        sctp_ns2::Sender::offer(self, now, packets);
    }

    fn acknowledged(&self) -> u64 {
        self.snapshot().acknowledged
    }

    fn look(&self, _: u64) -> Look {
        let snapshot = self.snapshot();
        Look {
            cwnd: snapshot.cwnd.into(),
            retransmits: snapshot.retransmits,
            timeouts: snapshot.timeouts,
            window_full: 0,
        }
    }
}

/// The half that receives: packets that came, and those of them in order.
trait Taker: Endpoint + 'static {
    fn counts(&self, packet: u64) -> (u64, u64);
}

impl Taker for tcp_ns2::Sink {
    fn counts(&self, packet: u64) -> (u64, u64) {
        (self.received(), self.delivered() / packet)
    }
}

impl Taker for sctp_ns2::Sink {
    fn counts(&self, _: u64) -> (u64, u64) {
        (self.received(), self.delivered())
    }
}

/// Puts a flow over ns-2's TCP into a world.
pub(super) fn attach_tcp(
    world: &mut World,
    flow: &Flow,
    ends: Ends<'_>,
    streams: &Streams,
) -> Result<Box<dyn Carried>, Error> {
    let [local, remote] = ends.addresses;
    let halves = (tcp_ns2::Sender::new(flow.ns2, local, remote), tcp_ns2::Sink::new(remote, local));
    attach(world, flow, ends, streams, (tcp::PROTOCOL, flow.ns2.packet), halves)
}

/// Puts a flow over ns-2's SCTP into a world.
pub(super) fn attach_sctp(
    world: &mut World,
    flow: &Flow,
    ends: Ends<'_>,
    streams: &Streams,
) -> Result<Box<dyn Carried>, Error> {
    let [local, remote] = ends.addresses;
    let halves = (
        sctp_ns2::Sender::new(flow.sctp_ns2, local, remote),
        sctp_ns2::Sink::new(flow.sctp_ns2, remote, local),
    );
    attach(world, flow, ends, streams, (sctp::PROTOCOL, flow.sctp_ns2.message), halves)
}

fn attach<S: Model, R: Taker>(
    world: &mut World,
    flow: &Flow,
    ends: Ends<'_>,
    streams: &Streams,
    (protocol, packet): (u8, u16),
    (sender, sink): (S, R),
) -> Result<Box<dyn Carried>, Error> {
    let packet = u64::from(packet);
    let (task, wanted) = match flow.traffic {
        Traffic::Messages { .. } => (Task::Messages(Clock::new(flow, ends, streams)), None),
        Traffic::File { size } => {
            let packets = size.0.div_ceil(packet);
            (Task::At(start(flow), packets), Some(packets))
        }
        _ => (Task::At(start(flow), u64::MAX), None),
    };
    let sender = Sender { inner: sender, task, stop: stop(flow), offered: 0 };
    let sink = Sink { inner: sink, packet, wanted, ended: None, progress: Progress::default() };
    let bind = |port| Bind { protocol, port: Some(port) };
    let [local, remote] = ends.addresses;
    let sender = world.attach(ends.nodes[0], bind(local.port()), sender)?;
    let sink = world.attach(ends.nodes[1], bind(remote.port()), sink)?;
    let messages = matches!(flow.traffic, Traffic::Messages { .. });
    Ok(Box::new(Ns2::<S, R> { sender, sink, packet, messages, models: PhantomData }))
}

enum Task {
    Messages(Clock),
    /// So many packets at a time.
    At(Time, u64),
    Done,
}

/// ns-2's sender with a program above it.
struct Sender<S> {
    inner: S,
    task: Task,
    /// After this time the program hands over nothing; what it has handed over is still sent.
    stop: Time,
    offered: u64,
}

impl<S: Model> Sender<S> {
    fn due(&self) -> Option<Time> {
        match &self.task {
            Task::Messages(clock) => clock.next(),
            Task::At(at, _) => Some(*at),
            Task::Done => None,
        }
    }
}

impl<S: Model> Endpoint for Sender<S> {
    fn handle_packet(&mut self, now: Time, addressing: Addressing, payload: &[u8]) {
        self.inner.handle_packet(now, addressing, payload);
    }

    fn handle_timeout(&mut self, now: Time) {
        match &mut self.task {
            Task::Messages(clock) => {
                let due = clock.due(now);
                self.inner.offer(now, due);
                self.offered += due;
            }
            Task::At(at, packets) if *at <= now => {
                if *at <= self.stop {
                    self.inner.offer(now, *packets);
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
struct Sink<R> {
    inner: R,
    packet: u64,
    wanted: Option<u64>,
    ended: Option<Time>,
    progress: Progress,
}

impl<R: Taker> Endpoint for Sink<R> {
    fn handle_packet(&mut self, now: Time, addressing: Addressing, payload: &[u8]) {
        let before = self.inner.counts(self.packet).1;
        self.inner.handle_packet(now, addressing, payload);
        let delivered = self.inner.counts(self.packet).1;
        if delivered > before {
            self.progress.push(now);
        }
        if self.wanted.is_some_and(|w| delivered >= w) {
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

struct Ns2<S, R> {
    sender: EndpointId,
    sink: EndpointId,
    packet: u64,
    messages: bool,
    models: PhantomData<(S, R)>,
}

impl<S: Model, R: Taker> Carried for Ns2<S, R> {
    fn seen(&self, world: &World) -> Seen {
        let sender = endpoint::<Sender<S>>(world, self.sender);
        let Some((sender, sink)) = sender.zip(endpoint::<Sink<R>>(world, self.sink)) else {
            return Seen::default();
        };
        let (received, in_order) = sink.inner.counts(self.packet);
        Seen {
            bytes: in_order * self.packet,
            // Those that wait for an earlier one are not told apart from those that came again.
            duplicates: received.saturating_sub(in_order),
            messages: self.messages,
            written: sender.offered,
            delivered: in_order,
            completed: sink.ended,
            progress: sink.progress,
            ..Seen::default()
        }
    }

    fn look(&self, world: &World) -> Option<Look> {
        Some(endpoint::<Sender<S>>(world, self.sender)?.inner.look(self.packet))
    }

    fn is_done(&self, world: &World) -> bool {
        let done = |s: &Sender<S>| s.due().is_none() && s.inner.acknowledged() >= s.offered;
        let sent = endpoint::<Sender<S>>(world, self.sender).is_none_or(done);
        sent && endpoint::<Sink<R>>(world, self.sink)
            .is_none_or(|s| s.wanted.is_none() || s.ended.is_some())
    }
}
