//! One SCTP message per message, and a stream for each call.

use super::{Carrier, CarrierEvent, MAX_FLOWS, MAX_WAITING, Names};
use bytes::Bytes;
use fnv::FnvHasher;
use ringway_sansio::{Addressing, Endpoint, Flow, Random, Target, Time, Transport};
use ringway_sctp::{AssocId, Error, Event, Limits, SendOptions, Settings};
use ringway_sip::message;
use std::collections::VecDeque;
use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};

/// Returns the stream of a message. All messages of one Call-ID share a stream, in both directions,
/// chosen by FNV-1a. A message without a Call-ID is on the first stream.
pub fn stream_of(bytes: &[u8], streams: u16) -> u16 {
    let Ok(message) = message::parse(bytes) else { return 0 };
    let mut hasher = FnvHasher::default();
    hasher.write(message.call_id());
    // The low bits of FNV-1a are its weakest.
    ((hasher.finish() >> 32) % u64::from(streams.max(1))) as u16
}

struct Association {
    id: AssocId,
    flow: Flow,
    /// Messages that wait for room in the send buffer.
    waiting: VecDeque<(u16, Bytes)>,
    bytes: usize,
    /// The message that is being read.
    message: Vec<u8>,
    /// Report numbers of messages sent before it was established.
    reports: Vec<u64>,
    up: bool,
}

pub(super) struct Sctp {
    sctp: ringway_sctp::Sctp,
    locals: Vec<IpAddr>,
    port: u16,
    streams: u16,
    names: Names,
    associations: Vec<Association>,
    events: VecDeque<CarrierEvent>,
    retransmits: u64,
}

impl Sctp {
    pub(super) fn new(
        locals: &[IpAddr],
        port: u16,
        settings: Settings,
        streams: u16,
        random: impl Random + Send + 'static,
    ) -> Result<Self, Error> {
        let mut sctp = ringway_sctp::Sctp::new(Limits::default(), settings, Box::new(random))?;
        sctp.listen(locals, port, None)?;
        Ok(Sctp {
            sctp,
            locals: locals.to_vec(),
            port,
            streams,
            names: Names::default(),
            associations: Vec::new(),
            events: VecDeque::new(),
            retransmits: 0,
        })
    }

    fn add(&mut self, id: AssocId, remote: SocketAddr, up: bool) -> usize {
        let local = SocketAddr::new(self.locals[0], self.port);
        let flow = Flow { id: self.names.next(), transport: Transport::Sctp, local, remote };
        self.associations.push(Association {
            id,
            flow,
            waiting: VecDeque::new(),
            bytes: 0,
            message: Vec::new(),
            reports: Vec::new(),
            up,
        });
        self.associations.len() - 1
    }

    /// Returns the association with a peer, by any of its addresses, or opens one.
    fn find(&mut self, now: Time, to: &Target) -> Option<usize> {
        let leads = |a: &Association| match to {
            Target::Flow(flow) => a.flow.id == flow.id,
            Target::Peer { remote, .. } => {
                let is_one = |paths: &[ringway_sctp::PathSnapshot]| {
                    paths.iter().any(|path| path.remote == remote.ip())
                };
                a.flow.remote == *remote
                    || a.flow.remote.port() == remote.port()
                        && self.sctp.snapshot(a.id).is_ok_and(|s| is_one(&s.paths))
            }
        };
        if let Some(found) = self.associations.iter().position(leads) {
            return Some(found);
        }
        let Target::Peer { remote, .. } = to else { return None };
        if self.associations.len() >= MAX_FLOWS {
            return None;
        }
        let (remotes, port) = ([remote.ip()], remote.port());
        let id = self.sctp.connect(now, &self.locals, self.port, &remotes, port, None).ok()?;
        Some(self.add(id, *remote, false))
    }

    /// Sends the messages that the association accepts now.
    fn flush(&mut self, now: Time, index: usize) {
        let association = &mut self.associations[index];
        while let Some((stream, bytes)) = association.waiting.front() {
            let options = SendOptions { stream: *stream, ..SendOptions::default() };
            if self.sctp.send(now, association.id, &options, bytes.clone()).is_err() {
                return;
            }
            association.bytes -= bytes.len();
            association.waiting.pop_front();
        }
    }

    fn read(&mut self, index: usize) {
        let association = &mut self.associations[index];
        while let Ok(Some(part)) = self.sctp.recv(association.id, &mut association.message) {
            if part.cut {
                association.message.clear();
            } else if part.end {
                let whole = std::mem::take(&mut association.message);
                self.events.push_back(CarrierEvent::Message(association.flow, whole));
            }
        }
    }

    fn handle(&mut self, now: Time, event: Event) {
        let index_of = |id: AssocId| self.associations.iter().position(|a| a.id == id);
        match event {
            Event::Up { id, .. } => match index_of(id) {
                Some(index) => {
                    self.associations[index].up = true;
                    self.associations[index].reports.clear();
                }
                None => {
                    let Ok(snapshot) = self.sctp.snapshot(id) else { return };
                    let Ok((_, port)) = self.sctp.ports(id) else { return };
                    let primary = snapshot.paths.iter().find(|path| path.primary);
                    let Some(primary) = primary.or(snapshot.paths.first()) else { return };
                    self.add(id, SocketAddr::new(primary.remote, port), true);
                }
            },
            Event::Readable(id) => {
                if let Some(index) = index_of(id) {
                    self.read(index);
                }
            }
            Event::Writable(id) => {
                if let Some(index) = index_of(id) {
                    self.flush(now, index);
                }
            }
            Event::Closed(id, _) => {
                let Some(index) = index_of(id) else { return };
                self.read(index);
                let gone = self.associations.swap_remove(index);
                self.events.extend(gone.reports.into_iter().map(CarrierEvent::NotSent));
                self.events.push_back(CarrierEvent::Closed(gone.flow.id));
            }
            _ => {}
        }
    }
}

impl Carrier for Sctp {
    fn send(&mut self, now: Time, to: &Target, report: u64, bytes: &[u8]) -> bool {
        let Some(index) = self.find(now, to) else { return false };
        let stream = stream_of(bytes, self.streams);
        let association = &mut self.associations[index];
        if bytes.is_empty() || association.bytes + bytes.len() > MAX_WAITING {
            return false;
        }
        association.waiting.push_back((stream, Bytes::copy_from_slice(bytes)));
        association.bytes += bytes.len();
        if report != 0 && !association.up {
            association.reports.push(report);
        }
        self.flush(now, index);
        true
    }

    fn poll(&mut self, now: Time) -> Option<CarrierEvent> {
        while let Some(event) = self.sctp.poll_event() {
            if let Event::Closed(id, _) = &event
                && let Ok(snapshot) = self.sctp.snapshot(*id)
            {
                self.retransmits += snapshot.totals.retransmits;
            }
            self.handle(now, event);
        }
        self.events.pop_front()
    }

    fn retransmits(&self) -> u64 {
        let live = self.associations.iter().filter_map(|a| self.sctp.snapshot(a.id).ok());
        self.retransmits + live.map(|s| s.totals.retransmits).sum::<u64>()
    }
}

impl Endpoint for Sctp {
    fn handle_packet(&mut self, now: Time, addressing: Addressing, payload: &[u8]) {
        self.sctp.handle_packet(now, addressing, payload);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.sctp.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.sctp.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Time, payload: &mut Vec<u8>) -> Option<Addressing> {
        self.sctp.poll_transmit(now, payload)
    }
}
