//! Flows over ns-2's one-way TCP and SCTP.

use super::{
    Clock, Ends, ProgramStats, Progress, RunningFlow, SenderState, Window, endpoint, start, stop,
};
use crate::ns2::{sctp as sctp_ns2, tcp as tcp_ns2};
use crate::scenario::{Flow, Traffic};
use ringway_link::Streams;
use ringway_sansio::{Addressing, Endpoint, Time};
use ringway_sctp as sctp;
use ringway_sim::{Bind, EndpointId, Error, World};
use ringway_tcp as tcp;
use std::marker::PhantomData;

/// The sending side of a model.
trait Model: Endpoint + 'static {
    /// Offers packets to be sent.
    fn offer(&mut self, now: Time, packets: u64);
    /// Returns the number of packets acknowledged without a gap.
    fn acknowledged(&self) -> u64;
    /// Returns the state of the sender, with packets of `packet` bytes.
    fn sender_state(&self, packet: u64) -> SenderState;
    /// Returns the window of the sender, with packets of `packet` bytes.
    fn window(&self, packet: u64) -> Window;
}

impl Model for tcp_ns2::Sender {
    fn offer(&mut self, _: Time, packets: u64) {
        tcp_ns2::Sender::offer(self, packets);
    }

    fn acknowledged(&self) -> u64 {
        self.snapshot().acknowledged
    }

    fn sender_state(&self, packet: u64) -> SenderState {
        let snapshot = self.snapshot();
        SenderState {
            cwnd: snapshot.cwnd * packet as f64,
            retransmits: snapshot.retransmits,
            timeouts: snapshot.timeouts,
            window_full: 0,
        }
    }

    fn window(&self, packet: u64) -> Window {
        let snapshot = self.snapshot();
        Window {
            path: None,
            cwnd: snapshot.cwnd * packet as f64,
            ssthresh: Some(f64::from(snapshot.ssthresh) * packet as f64),
            flight: (snapshot.in_flight * packet) as f64,
            srtt: snapshot.srtt,
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

    fn sender_state(&self, _: u64) -> SenderState {
        let snapshot = self.snapshot();
        SenderState {
            cwnd: snapshot.cwnd.into(),
            retransmits: snapshot.retransmits,
            timeouts: snapshot.timeouts,
            window_full: 0,
        }
    }

    fn window(&self, _: u64) -> Window {
        let snapshot = self.snapshot();
        Window {
            path: None,
            cwnd: snapshot.cwnd.into(),
            ssthresh: Some(snapshot.ssthresh.into()),
            flight: snapshot.in_flight.into(),
            srtt: snapshot.srtt,
        }
    }
}

/// The receiving side of a model: numbers of packets received, and received in order.
trait Receiver: Endpoint + 'static {
    fn counts(&self, packet: u64) -> (u64, u64);
}

impl Receiver for tcp_ns2::Sink {
    fn counts(&self, packet: u64) -> (u64, u64) {
        (self.received(), self.delivered() / packet)
    }
}

impl Receiver for sctp_ns2::Sink {
    fn counts(&self, _: u64) -> (u64, u64) {
        (self.received(), self.delivered())
    }
}

/// Attaches a flow over ns-2's TCP to a world.
pub(super) fn attach_tcp(
    world: &mut World,
    flow: &Flow,
    ends: Ends<'_>,
    streams: &Streams,
) -> Result<Box<dyn RunningFlow>, Error> {
    let [local, remote] = ends.addresses;
    let halves = (tcp_ns2::Sender::new(flow.ns2, local, remote), tcp_ns2::Sink::new(remote, local));
    attach(world, flow, ends, streams, (tcp::PROTOCOL, flow.ns2.packet), halves)
}

/// Attaches a flow over ns-2's SCTP to a world.
pub(super) fn attach_sctp(
    world: &mut World,
    flow: &Flow,
    ends: Ends<'_>,
    streams: &Streams,
) -> Result<Box<dyn RunningFlow>, Error> {
    let [local, remote] = ends.addresses;
    let halves = (
        sctp_ns2::Sender::new(flow.sctp_ns2, local, remote),
        sctp_ns2::Sink::new(flow.sctp_ns2, remote, local),
    );
    attach(world, flow, ends, streams, (sctp::PROTOCOL, flow.sctp_ns2.message), halves)
}

fn attach<S: Model, R: Receiver>(
    world: &mut World,
    flow: &Flow,
    ends: Ends<'_>,
    streams: &Streams,
    (protocol, packet): (u8, u16),
    (sender, sink): (S, R),
) -> Result<Box<dyn RunningFlow>, Error> {
    let packet = u64::from(packet);
    let (task, expected) = match flow.traffic {
        Traffic::Messages { .. } => (Task::Messages(Clock::new(flow, ends, streams)), None),
        Traffic::File { size } => {
            let packets = size.0.div_ceil(packet);
            (Task::At(start(flow), packets), Some(packets))
        }
        _ => (Task::At(start(flow), u64::MAX), None),
    };
    let sender = Sender { inner: sender, task, stop: stop(flow), offered: 0 };
    let sink = Sink { inner: sink, packet, expected, ended: None, progress: Progress::default() };
    let bind = |port| Bind { protocol, port: Some(port) };
    let [local, remote] = ends.addresses;
    let sender = world.attach(ends.nodes[0], bind(local.port()), sender)?;
    let sink = world.attach(ends.nodes[1], bind(remote.port()), sink)?;
    let messages = matches!(flow.traffic, Traffic::Messages { .. });
    Ok(Box::new(Ns2Flow::<S, R> { sender, sink, packet, messages, models: PhantomData }))
}

enum Task {
    Messages(Clock),
    /// Offers a number of packets at one time.
    At(Time, u64),
    Done,
}

/// ns-2's sender with a program above it.
struct Sender<S> {
    inner: S,
    task: Task,
    /// After this time the program offers no more packets; those already offered are still sent.
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

/// ns-2's sink, which records when it has received all packets.
struct Sink<R> {
    inner: R,
    packet: u64,
    expected: Option<u64>,
    ended: Option<Time>,
    progress: Progress,
}

impl<R: Receiver> Endpoint for Sink<R> {
    fn handle_packet(&mut self, now: Time, addressing: Addressing, payload: &[u8]) {
        let before = self.inner.counts(self.packet).1;
        self.inner.handle_packet(now, addressing, payload);
        let delivered = self.inner.counts(self.packet).1;
        if delivered > before {
            self.progress.push(now);
        }
        if self.expected.is_some_and(|w| delivered >= w) {
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

struct Ns2Flow<S, R> {
    sender: EndpointId,
    sink: EndpointId,
    packet: u64,
    messages: bool,
    models: PhantomData<(S, R)>,
}

impl<S: Model, R: Receiver> RunningFlow for Ns2Flow<S, R> {
    fn stats(&self, world: &World) -> ProgramStats {
        let sender = endpoint::<Sender<S>>(world, self.sender);
        let Some((sender, sink)) = sender.zip(endpoint::<Sink<R>>(world, self.sink)) else {
            return ProgramStats::default();
        };
        let (received, in_order) = sink.inner.counts(self.packet);
        ProgramStats {
            bytes: in_order * self.packet,
            // Packets that wait for an earlier one cannot be distinguished from duplicates.
            duplicates: received.saturating_sub(in_order),
            messages: self.messages,
            written: sender.offered,
            delivered: in_order,
            completed: sink.ended,
            progress: sink.progress,
            ..ProgramStats::default()
        }
    }

    fn sender_state(&self, world: &World) -> Option<SenderState> {
        Some(endpoint::<Sender<S>>(world, self.sender)?.inner.sender_state(self.packet))
    }

    fn windows(&self, world: &World) -> Vec<Window> {
        let sender = endpoint::<Sender<S>>(world, self.sender);
        sender.map(|sender| sender.inner.window(self.packet)).into_iter().collect()
    }

    fn is_done(&self, world: &World) -> bool {
        let done = |s: &Sender<S>| s.due().is_none() && s.inner.acknowledged() >= s.offered;
        let sent = endpoint::<Sender<S>>(world, self.sender).is_none_or(done);
        sent && endpoint::<Sink<R>>(world, self.sink)
            .is_none_or(|s| s.expected.is_none() || s.ended.is_some())
    }
}
