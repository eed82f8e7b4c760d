//! A program that reports what happens to it.

use ringway_sansio::{
    CloseReason, Flow, Malformed, Outbox, Peer, Program, Target, Time, Transport,
};
use std::net::SocketAddr;
use std::sync::mpsc::Sender;

/// Something that happened to a program.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Message { worker: usize, flow: Flow, bytes: Vec<u8> },
    Malformed { status: u16 },
    Opened { flow: Flow, peer: Peer },
    Closed { flow: Flow, reason: CloseReason },
    NotSent { worker: usize, report: u64 },
    CutOff { worker: usize, report: u64 },
}

/// The response of a probe to a request, one for all.
pub const RESPONSE: &[u8] = b"SIP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n";

/// A method that a probe does not answer.
pub const SILENT: &str = "NOTIFY";

/// A method that a probe answers and then closes the connection.
pub const CLOSING: &str = "PUBLISH";

pub struct Probe {
    pub worker: usize,
    pub events: Sender<Event>,
    /// The peer that a request is sent to whose first connection was cut off (RFC 3261 section 16.9).
    pub spare: Option<SocketAddr>,
}

impl Probe {
    pub fn new(worker: usize, events: Sender<Event>) -> Self {
        Probe { worker, events, spare: None }
    }

    fn report(&self, event: Event) {
        // A test that has ended wants to know no more.
        let _ = self.events.send(event);
    }
}

impl Program for Probe {
    fn message(&mut self, _: Time, flow: &Flow, bytes: &[u8], out: &mut Outbox) {
        if !bytes.starts_with(b"SIP/") && !bytes.starts_with(SILENT.as_bytes()) {
            out.push(Target::Flow(*flow), 0, |b| b.extend_from_slice(RESPONSE));
        }
        if bytes.starts_with(CLOSING.as_bytes()) {
            out.close(flow.id);
        }
        self.report(Event::Message { worker: self.worker, flow: *flow, bytes: bytes.to_vec() });
    }

    fn malformed(&mut self, _: Time, flow: &Flow, _: &[u8], error: &Malformed, out: &mut Outbox) {
        let status = error.status;
        out.push(Target::Flow(*flow), 0, |b| {
            b.extend_from_slice(format!("SIP/2.0 {status} No\r\nl: 0\r\n\r\n").as_bytes());
        });
        self.report(Event::Malformed { status });
    }

    fn opened(&mut self, _: Time, flow: &Flow, peer: &Peer, _: &mut Outbox) {
        self.report(Event::Opened { flow: *flow, peer: peer.clone() });
    }

    fn closed(&mut self, _: Time, flow: &Flow, reason: CloseReason, _: &mut Outbox) {
        self.report(Event::Closed { flow: *flow, reason });
    }

    fn not_sent(&mut self, _: Time, report: u64, _: &mut Outbox) {
        self.report(Event::NotSent { worker: self.worker, report });
    }

    fn cut_off(&mut self, _: Time, report: u64, out: &mut Outbox) {
        self.report(Event::CutOff { worker: self.worker, report });
        if let Some(remote) = self.spare {
            let to = Target::Peer { transport: Transport::Tcp, remote, name: None };
            out.push(to, report + 1, |b| b.extend(super::request("INVITE", "again", 0)));
        }
    }

    fn timeout(&mut self, _: Time, _: &mut Outbox) {}

    fn poll_timeout(&self) -> Option<Time> {
        None
    }
}
