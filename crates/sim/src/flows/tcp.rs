//! Consecutive messages on a byte stream, separated by Content-Length.

use super::table::{Connection, Table};
use super::{Stack, Worker};
use ringway_flow::{Broken, ByteStream, Carrier, Flows, Open, Pipes, WriteQueue};
use ringway_sansio::{
    Addressing, CloseReason, Endpoint, FlowId, Peer, Program, Random, Time, Transport,
};
use ringway_tcp::{Close, ConnId, Error, Event, Limits, Settings};
use std::net::SocketAddr;
use std::task::Poll;

/// Maximum number of connections that wait to be accepted.
const BACKLOG: usize = 64;
/// Bytes read at a time.
const CHUNK: usize = 16 << 10;

pub(super) struct Tcp {
    tcp: ringway_tcp::Tcp,
    local: SocketAddr,
    streams: Table<Stream>,
    /// The worker that the next connection is accepted by.
    next: usize,
    /// Retransmissions of closed connections.
    retransmits: u64,
}

impl Tcp {
    pub(super) fn new(
        local: SocketAddr,
        settings: Settings,
        mut random: impl Random,
    ) -> Result<Self, Error> {
        let mut tcp = ringway_tcp::Tcp::new(Limits::default(), settings, &mut random)?;
        tcp.listen(local, BACKLOG, None)?;
        Ok(Tcp { tcp, local, streams: Table::new(), next: 0, retransmits: 0 })
    }

    fn add(&mut self, flow: FlowId, id: ConnId, open: bool) {
        self.streams.add(flow, Stream { id, messages: ByteStream::new(), end: None }, open);
    }

    /// Accepts a connection, by the workers in turn.
    fn accept<P: Program>(&mut self, now: Time, id: ConnId, workers: &mut [Worker<P>]) {
        let Ok((local, remote)) = self.tcp.addresses(id) else { return };
        let index = self.next % workers.len();
        self.next = index + 1;
        let worker = &mut workers[index];
        let Some(flow) = worker.accept(now, Transport::Tcp, local, remote) else {
            // It fails only for a connection that has ended.
            let _ = self.tcp.abort(now, id);
            return;
        };
        self.add(flow, id, true);
        worker.opened(now, flow, None, &Peer { domains: Vec::new(), inbound: true });
        self.turn(now, flow, worker);
    }

    fn handle_event<P: Program>(&mut self, now: Time, event: Event, workers: &mut [Worker<P>]) {
        let (id, end) = match event {
            Event::Incoming(listener) => {
                while let Some(id) = self.tcp.accept(listener) {
                    self.accept(now, id, workers);
                }
                return;
            }
            Event::Connected(id) | Event::Readable(id) | Event::Writable(id) => (id, None),
            Event::PeerClosed(id) => (id, Some(CloseReason::Peer)),
            Event::Closed(id, Close::Finished) => (id, Some(CloseReason::Peer)),
            Event::Closed(id, _) => (id, Some(CloseReason::Broken)),
            _ => return,
        };
        if matches!(event, Event::Closed(..)) {
            self.retransmits += self.tcp.snapshot(id).map_or(0, |s| s.totals.retransmits);
        }
        let Some((flow, stream)) = self.streams.get(id) else { return };
        let worker = &mut workers[usize::from(flow.worker())];
        if end.is_some() {
            stream.end = end;
        } else if self.streams.open(id) {
            worker.opened(now, flow, None, &Peer::default());
        }
        self.turn(now, flow, worker);
    }
}

impl Stack for Tcp {
    fn open(&mut self, now: Time, flow: FlowId, open: Open) -> bool {
        // Another worker may have a connection with these addresses.
        let ephemeral = SocketAddr::new(self.local.ip(), 0);
        let id = self.tcp.connect(now, self.local, open.remote, None);
        let id = id.or_else(|_| self.tcp.connect(now, ephemeral, open.remote, None));
        id.map(|id| self.add(flow, id, false)).is_ok()
    }

    fn send(&mut self, _: SocketAddr, _: &[u8]) {}

    fn handle_events<P: Program>(&mut self, now: Time, workers: &mut [Worker<P>]) {
        while let Some(event) = self.tcp.poll_event() {
            self.handle_event(now, event, workers);
        }
    }

    fn turn<P: Program>(&mut self, now: Time, flow: FlowId, worker: &mut Worker<P>) {
        let over = self.streams.turn(now, flow, worker, &mut self.tcp);
        let Some((id, ended, reason)) = over else { return };
        // Both fail only for a connection that has ended.
        let _ = if ended { self.tcp.shutdown(now, id) } else { self.tcp.abort(now, id) };
        worker.closed(now, flow, reason);
    }

    fn retransmits(&self) -> u64 {
        let live = self.streams.ids().filter_map(|id| self.tcp.snapshot(id).ok());
        self.retransmits + live.map(|s| s.totals.retransmits).sum::<u64>()
    }
}

impl Endpoint for Tcp {
    fn handle_packet(&mut self, now: Time, addressing: Addressing, payload: &[u8]) {
        self.tcp.handle_packet(now, addressing, payload);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.tcp.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.tcp.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Time, payload: &mut Vec<u8>) -> Option<Addressing> {
        self.tcp.poll_transmit(now, payload)
    }
}

/// The messages of one connection.
struct Stream {
    id: ConnId,
    messages: ByteStream,
    /// The reason for which nothing more is received.
    end: Option<CloseReason>,
}

impl Connection for Stream {
    type Id = ConnId;
    const EARLY: bool = false;

    fn id(&self) -> ConnId {
        self.id
    }

    fn end(&self) -> Option<CloseReason> {
        self.end
    }
}

impl Carrier<ringway_tcp::Tcp> for Stream {
    const TURN: usize = 1;

    fn poll_write(
        &mut self,
        now: Time,
        queue: &mut WriteQueue,
        tcp: &mut ringway_tcp::Tcp,
    ) -> Poll<Result<u64, Broken>> {
        match tcp.write(now, self.id, queue.bytes()) {
            Ok(0) => Poll::Pending,
            Ok(count) => Poll::Ready(Ok(queue.written(count))),
            // What was received before is still read.
            Err(_) if self.end.is_some() => Poll::Pending,
            Err(_) => Poll::Ready(Err(Broken)),
        }
    }

    fn poll_flush(&mut self, _: Time, _: &mut ringway_tcp::Tcp) -> Poll<Result<(), Broken>> {
        Poll::Ready(Ok(()))
    }

    fn poll_read<P: Program, W: Pipes>(
        &mut self,
        now: Time,
        id: FlowId,
        flows: &mut Flows<P, W>,
        tcp: &mut ringway_tcp::Tcp,
    ) -> Poll<Result<(), CloseReason>> {
        let mut buffer = [0; CHUNK];
        let count = tcp.read(now, self.id, &mut buffer).unwrap_or(0);
        if count == 0 {
            return self.end.map_or(Poll::Pending, |reason| Poll::Ready(Err(reason)));
        }
        let received = flows.receive(now, id, &mut self.messages, &buffer[..count], |_| {});
        flows.note_framing(now, id, self.messages.partial(), received.broken);
        flows.note_read(count, received.messages);
        Poll::Ready(Ok(()))
    }

    fn refuse_slow<P: Program, W: Pipes>(
        &mut self,
        now: Time,
        id: FlowId,
        flows: &mut Flows<P, W>,
    ) {
        flows.refuse_slow(now, id, &mut self.messages);
    }

    fn poll_close(&mut self, now: Time, tcp: &mut ringway_tcp::Tcp) -> Poll<Result<(), Broken>> {
        Poll::Ready(tcp.shutdown(now, self.id).map_err(|_| Broken))
    }

    fn poll_discard(&mut self, now: Time, tcp: &mut ringway_tcp::Tcp) -> Poll<bool> {
        let mut buffer = [0; CHUNK];
        match tcp.read(now, self.id, &mut buffer) {
            Ok(count) if count > 0 => Poll::Ready(true),
            _ if self.end.is_some() => Poll::Ready(false),
            _ => Poll::Pending,
        }
    }
}
