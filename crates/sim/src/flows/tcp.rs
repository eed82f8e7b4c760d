//! Consecutive messages on a byte stream, separated by Content-Length.

use super::{Carrier, CarrierEvent, MAX_FLOWS, MAX_WAITING, Names};
use ringway_sansio::{Addressing, Endpoint, Flow, Random, Target, Time, Transport};
use ringway_sip::framing::{Frame, Framer};
use ringway_tcp::{ConnId, Error, Event, Limits, Settings};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Maximum number of connections that wait to be accepted.
const BACKLOG: usize = 64;
/// Bytes read at a time.
const CHUNK: usize = 16 << 10;

struct Connection {
    id: ConnId,
    flow: Flow,
    framer: Framer,
    /// Bytes that wait for the connection to open, or for room.
    waiting: VecDeque<u8>,
    /// Report numbers of messages with bytes in `waiting`.
    reports: Vec<u64>,
    over: bool,
}

pub(super) struct Tcp {
    tcp: ringway_tcp::Tcp,
    local: SocketAddr,
    names: Names,
    connections: Vec<Connection>,
    events: VecDeque<CarrierEvent>,
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
        let (connections, events) = (Vec::new(), VecDeque::new());
        Ok(Tcp { tcp, local, names: Names::default(), connections, events, retransmits: 0 })
    }

    fn add(&mut self, id: ConnId, remote: SocketAddr) -> usize {
        let (transport, local) = (Transport::Tcp, self.local);
        self.connections.push(Connection {
            id,
            flow: Flow { id: self.names.next(), transport, local, remote },
            framer: Framer::new(),
            waiting: VecDeque::new(),
            reports: Vec::new(),
            over: false,
        });
        self.connections.len() - 1
    }

    /// Returns the connection with a peer, or opens one.
    fn find(&mut self, now: Time, to: &Target) -> Option<usize> {
        let open = |c: &Connection| {
            !c.over
                && match to {
                    Target::Flow(flow) => c.flow.id == flow.id,
                    Target::Peer { remote, .. } => c.flow.remote == *remote,
                }
        };
        if let Some(found) = self.connections.iter().position(open) {
            return Some(found);
        }
        let Target::Peer { remote, .. } = to else { return None };
        if self.connections.len() >= MAX_FLOWS {
            return None;
        }
        let id = self.tcp.connect(now, self.local, *remote, None).ok()?;
        Some(self.add(id, *remote))
    }

    /// Writes the bytes that the connection accepts now.
    fn flush(&mut self, now: Time, index: usize) {
        let connection = &mut self.connections[index];
        while !connection.waiting.is_empty() {
            let (part, _) = connection.waiting.as_slices();
            match self.tcp.write(now, connection.id, part) {
                Ok(count) if count > 0 => drop(connection.waiting.drain(..count)),
                _ => return,
            }
        }
        connection.reports.clear();
    }

    fn read(&mut self, now: Time, index: usize) {
        let connection = &mut self.connections[index];
        let mut buffer = [0; CHUNK];
        while let Ok(count) = self.tcp.read(now, connection.id, &mut buffer) {
            if count == 0 {
                break;
            }
            connection.framer.extend(&buffer[..count]);
        }
        loop {
            match connection.framer.next() {
                Some(Ok(Frame::Message(bytes))) => {
                    self.events.push_back(CarrierEvent::Message(connection.flow, bytes.to_vec()));
                }
                Some(Ok(_)) => {}
                // RFC 3261 section 18.3: no further message can be found on this stream.
                Some(Err(_)) => {
                    let _ = self.tcp.abort(now, connection.id);
                    return;
                }
                None => return,
            }
        }
    }

    fn handle(&mut self, now: Time, event: Event) {
        let index_of = |id: ConnId| self.connections.iter().position(|c| c.id == id);
        match event {
            Event::Incoming(listener) => {
                while let Some(id) = self.tcp.accept(listener) {
                    let Ok((_, remote)) = self.tcp.addresses(id) else { continue };
                    let index = self.add(id, remote);
                    self.read(now, index);
                }
            }
            Event::Connected(id) | Event::Writable(id) => {
                if let Some(index) = index_of(id) {
                    self.flush(now, index);
                }
            }
            Event::Readable(id) => {
                if let Some(index) = index_of(id) {
                    self.read(now, index);
                }
            }
            Event::PeerClosed(id) => {
                // It fails only for a connection that has ended.
                let _ = self.tcp.shutdown(now, id);
            }
            Event::Closed(id, _) => {
                let Some(index) = index_of(id) else { return };
                self.read(now, index);
                let gone = self.connections.swap_remove(index);
                self.events.extend(gone.reports.into_iter().map(CarrierEvent::NotSent));
                self.events.push_back(CarrierEvent::Closed(gone.flow.id));
            }
            _ => {}
        }
    }
}

impl Carrier for Tcp {
    fn send(&mut self, now: Time, to: &Target, report: u64, bytes: &[u8]) -> bool {
        let Some(index) = self.find(now, to) else { return false };
        let connection = &mut self.connections[index];
        if connection.waiting.len() + bytes.len() > MAX_WAITING {
            return false;
        }
        connection.waiting.extend(bytes);
        if report != 0 {
            connection.reports.push(report);
        }
        let open = self.tcp.snapshot(connection.id).is_ok_and(|s| s.state.is_synchronised());
        if open {
            self.flush(now, index);
        }
        true
    }

    fn poll(&mut self, now: Time) -> Option<CarrierEvent> {
        while let Some(event) = self.tcp.poll_event() {
            if let Event::Closed(id, _) = &event
                && let Ok(snapshot) = self.tcp.snapshot(*id)
            {
                self.retransmits += snapshot.totals.retransmits;
            }
            self.handle(now, event);
        }
        self.events.pop_front()
    }

    fn retransmits(&self) -> u64 {
        let live = self.connections.iter().filter_map(|c| self.tcp.snapshot(c.id).ok());
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
