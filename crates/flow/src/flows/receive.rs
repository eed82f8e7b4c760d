//! From received bytes to the program's messages.

use super::Flows;
use crate::bytes::ByteStream;
use crate::mail::Report;
use crate::pipes::Pipes;
use ringway_sansio::{CloseReason, Flow, FlowId, Got, Malformed, Program, Target, Time};
use ringway_sip::framing::{self, Frame};
use ringway_sip::limits::MAX_MESSAGE;
use ringway_sip::stun;

/// The answer to a double CRLF (RFC 5626 section 4.4.1).
const PONG: &[u8] = b"\r\n";

/// What the received bytes of a stream were.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Number of messages that were complete with them.
    pub messages: usize,
    /// Whether nothing more is taken from the stream: it cannot be framed, or too much of it is malformed.
    pub broken: bool,
}

/// A keep-alive instead of a message (RFC 5626 section 4.4.1).
enum KeepAlive {
    /// A double CRLF, to be answered by one.
    Ping,
    /// Any other CRLF.
    Pong,
}

/// Returns what a message is that consists of line ends alone.
fn keep_alive(bytes: &[u8]) -> Option<KeepAlive> {
    let is_one = bytes.iter().all(|b| matches!(b, b'\r' | b'\n'));
    is_one.then(|| if bytes == b"\r\n\r\n" { KeepAlive::Ping } else { KeepAlive::Pong })
}

/// Returns the fault of a message that is longer than any may be.
fn too_long(bytes: usize) -> Malformed {
    let got = Got::Number(bytes as u64);
    Malformed::with_status(513, "message: expected fewer octets", got, 0)
}

impl<P: Program, W: Pipes> Flows<P, W> {
    /// Handles a datagram. [`Flows::flush`] is to follow.
    pub fn datagram(&mut self, now: Time, flow: &Flow, bytes: &[u8]) {
        self.now = now;
        match bytes.first() {
            // RFC 5626 section 4.4.2: a STUN server answers on the SIP port.
            Some(0 | 1) if stun::is_stun(bytes) => {
                self.counters.udp_keepalives.add(1);
                let start = self.outbox.buffer().len();
                if stun::answer(bytes, flow.remote, self.outbox.buffer()) {
                    self.outbox.finish(start, Target::Flow(*flow), 0);
                } else {
                    self.outbox.abandon(start);
                }
            }
            // CRLF keeps a NAT binding open (RFC 5626 section 3.5.1 has it for streams, many phones send it
            // in datagrams), and so does an empty datagram. Neither is answered.
            None | Some(b'\r' | b'\n') if keep_alive(bytes).is_some() => {
                self.counters.udp_keepalives.add(1);
            }
            _ => self.program.message(now, flow, bytes, &mut self.outbox),
        }
    }

    /// Handles received bytes of a connection's stream. Each whole message is shown to `see` first. The state
    /// of the stream is then to be noted by [`Flows::note_framing`], and [`Flows::flush`] is to follow.
    pub fn receive(
        &mut self,
        now: Time,
        id: FlowId,
        stream: &mut ByteStream,
        bytes: &[u8],
        mut see: impl FnMut(&[u8]),
    ) -> Received {
        self.now = now;
        let mut received = Received { messages: 0, broken: false };
        let Some(connection) = self.table.get_mut(id) else { return received };
        connection.note_received(now);
        let flow = connection.flow;
        stream.framer.borrow_buffer(&mut self.scratch);
        stream.framer.extend(bytes);
        let mut usable = 0;
        while let Some(frame) = stream.framer.next() {
            match frame {
                Ok(Frame::Message(bytes)) => {
                    usable += 1;
                    see(bytes);
                    self.program.message(now, &flow, bytes, &mut self.outbox);
                }
                Ok(Frame::Malformed(head, fault)) => {
                    received.messages += 1;
                    if !self.take_malformed(&flow, head, &fault) {
                        received.broken = true;
                        break;
                    }
                }
                Ok(Frame::Ping) => self.take_keep_alive(&flow, &KeepAlive::Ping),
                Ok(Frame::Pong) => self.take_keep_alive(&flow, &KeepAlive::Pong),
                Err(error) => {
                    let head = stream.framer.broken_head();
                    let answerable = framing::answerable(head);
                    let head = answerable.as_deref().unwrap_or(head);
                    self.program.malformed(now, &flow, head, &error, &mut self.outbox);
                    received.broken = true;
                    break;
                }
            }
        }
        stream.framer.return_buffer(&mut self.scratch);
        if usable > 0 {
            received.messages += usable;
            self.counters.stream_received.add(usable as u64);
            self.prove(id);
        }
        stream.note(now, received.messages);
        received
    }

    /// Notes since when part of a message of a connection is here, and whether its framing is broken, which
    /// ends it.
    pub fn note_framing(&mut self, now: Time, id: FlowId, partial: Option<Time>, broken: bool) {
        self.now = now;
        let Some(connection) = self.table.get_mut(id) else { return };
        connection.set_partial(partial.filter(|_| !broken));
        if broken {
            // The responses first: a connection that ends takes none.
            self.flush(now);
            self.end_flushed(id, CloseReason::Malformed);
        } else if partial.is_some() {
            self.watch(id);
        }
    }

    /// Handles a whole message of a connection whose transport keeps the boundaries of messages.
    /// [`Flows::flush`] is to follow.
    pub fn receive_message(&mut self, now: Time, id: FlowId, bytes: &[u8]) {
        self.now = now;
        let Some(connection) = self.table.get_mut(id) else { return };
        connection.note_received(now);
        connection.set_partial(None);
        let flow = connection.flow;
        if let Some(keep_alive) = keep_alive(bytes) {
            self.take_keep_alive(&flow, &keep_alive);
        } else if bytes.len() > MAX_MESSAGE {
            // Its boundaries are known, so a fault of it is none of the next.
            self.take_malformed(&flow, bytes, &too_long(bytes.len()));
        } else if let Some(fault) = framing::unparsable(bytes) {
            self.take_malformed(&flow, bytes, &fault);
        } else {
            self.counters.stream_received.add(1);
            self.prove(id);
            self.program.message(now, &flow, bytes, &mut self.outbox);
        }
    }

    /// The same for a message of which this is the beginning, and which is longer than any may be.
    pub fn refuse_long(&mut self, now: Time, id: FlowId, bytes: &[u8]) {
        self.now = now;
        let Some(connection) = self.table.get_mut(id) else { return };
        connection.note_received(now);
        let flow = connection.flow;
        self.take_malformed(&flow, bytes, &too_long(bytes.len()));
    }

    /// Notes that a connection whose transport has keep-alives of its own received one.
    pub fn receive_keep_alive(&mut self, now: Time, id: FlowId) {
        self.now = now;
        let Some(connection) = self.table.get_mut(id) else { return };
        connection.note_received(now);
        connection.set_partial(None);
        self.counters.stream_keepalives.add(1);
    }

    /// Handles a message of a stream that did not come to its end in time: has it answered.
    pub fn refuse_slow(&mut self, now: Time, id: FlowId, stream: &mut ByteStream) {
        self.now = now;
        let Some(flow) = self.flow(id) else { return };
        let head: &[u8] = stream.framer.buffer();
        let fault = Malformed::with_status(408, "Request Timeout", Got::End, head.len());
        self.program.malformed(now, &flow, head, &fault, &mut self.outbox);
        stream.forget_partial();
        self.flush(now);
    }

    fn take_keep_alive(&mut self, flow: &Flow, keep_alive: &KeepAlive) {
        self.counters.stream_keepalives.add(1);
        if matches!(keep_alive, KeepAlive::Ping) {
            self.send_on(flow, PONG, Report { worker: self.worker, number: 0 });
        }
    }

    /// Has a message answered that cannot be used, though its end is known. Returns whether more may come: not
    /// when the connection ends for the number of its malformed messages.
    fn take_malformed(&mut self, flow: &Flow, message: &[u8], fault: &Malformed) -> bool {
        let now = self.now;
        self.counters.stream_received.add(1);
        self.counters.stream_malformed.add(1);
        let answerable = framing::answerable(message);
        let head = answerable.as_deref().unwrap_or(message);
        self.program.malformed(now, flow, head, fault, &mut self.outbox);
        if self.table.get_mut(flow.id).is_some_and(|c| c.note_malformed(now)) {
            return true;
        }
        // The responses first: a connection that ends takes none.
        self.flush(now);
        let Some(connection) = self.table.get_mut(flow.id) else { return false };
        connection.set_partial(None);
        self.end_flushed(flow.id, CloseReason::Malformed);
        false
    }

    /// Notes that a whole message came over a connection.
    fn prove(&mut self, id: FlowId) {
        let Some(connection) = self.table.get_mut(id) else { return };
        if connection.prove() && connection.source.is_some() {
            self.half_open.count = self.half_open.count.saturating_sub(1);
        }
    }
}
