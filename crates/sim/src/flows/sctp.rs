//! One SCTP message per message, and a stream for each call.

use super::table::{Connection, Table};
use super::{Stack, Worker};
use bytes::Bytes;
use ringway_flow::call::stream_of;
use ringway_flow::{Broken, CallStreams, Carrier, EarlyCalls, Flows, Open, Pipes, WriteQueue};
use ringway_sansio::{
    Addressing, CloseReason, Endpoint, FlowId, Peer, Program, Random, Time, Transport,
};
use ringway_sctp::{
    AssocId, CallError, Close, Event, Limits, ListenError, PathState, SendError, SendOptions,
    Settings,
};
use ringway_sip::limits::MAX_MESSAGE;
use std::net::{IpAddr, SocketAddr};
use std::task::Poll;

pub(super) struct Sctp {
    sctp: ringway_sctp::Sctp,
    locals: Vec<IpAddr>,
    port: u16,
    streams: u16,
    calls: CallStreams,
    associations: Table<Messages>,
    /// Retransmissions of closed associations.
    retransmits: u64,
}

impl Sctp {
    pub(super) fn new(
        locals: &[IpAddr],
        port: u16,
        settings: Settings,
        (streams, calls): (u16, CallStreams),
        random: impl Random + Send + 'static,
    ) -> Result<Self, ListenError> {
        let mut sctp = ringway_sctp::Sctp::new(Limits::default(), settings, Box::new(random))?;
        sctp.listen(locals, port, None)?;
        let (locals, associations) = (locals.to_vec(), Table::new());
        Ok(Sctp { sctp, locals, port, streams, calls, associations, retransmits: 0 })
    }

    fn add(&mut self, flow: FlowId, id: AssocId, open: bool) {
        let (streams, calls, early) = (self.streams, self.calls, EarlyCalls::default());
        let messages = Messages { id, streams, calls, early, open, buffer: Vec::new(), end: None };
        self.associations.add(flow, messages, open);
    }

    /// Returns our address and the peer's on the primary path.
    fn ends(&self, id: AssocId) -> Option<(SocketAddr, SocketAddr)> {
        let snapshot = self.sctp.snapshot(id).ok()?;
        let (ours, theirs) = self.sctp.ports(id).ok()?;
        let path = snapshot.paths.iter().find(|path| path.primary).or(snapshot.paths.first())?;
        Some((SocketAddr::new(self.locals[0], ours), SocketAddr::new(path.remote, theirs)))
    }

    /// Lets messages find the peer at an address that is known to be its own (RFC 9260 section 5.4).
    fn note_path<P: Program>(
        &mut self,
        (id, remote): (AssocId, IpAddr),
        state: PathState,
        worker: &mut Worker<P>,
    ) {
        let Ok((_, port)) = self.sctp.ports(id) else { return };
        let found = self.associations.get(id).filter(|_| state == PathState::Active);
        if let Some((flow, _)) = found {
            worker.reaches(flow, SocketAddr::new(remote, port));
        }
    }

    fn note_paths<P: Program>(&mut self, id: AssocId, worker: &mut Worker<P>) {
        let Ok(snapshot) = self.sctp.snapshot(id) else { return };
        for path in &snapshot.paths {
            self.note_path((id, path.remote), path.state, worker);
        }
    }

    fn accept<P: Program>(&mut self, now: Time, id: AssocId, worker: &mut Worker<P>) {
        let ends = self.ends(id);
        let accept = |(local, remote)| worker.accept(now, Transport::Sctp, local, remote);
        let Some(flow) = ends.and_then(accept) else {
            // It fails only for an association that has ended.
            let _ = self.sctp.abort(id, b"too many connections");
            return;
        };
        self.add(flow, id, true);
        worker.opened(now, flow, None, &Peer { domains: Vec::new(), inbound: true });
        self.note_paths(id, worker);
        self.turn(now, flow, worker);
    }

    /// The association continues as another connection, which counts as opened by the peer.
    fn restart<P: Program>(&mut self, now: Time, id: AssocId, worker: &mut Worker<P>) {
        let Some(flow) = self.associations.remove(id) else { return };
        worker.closed(now, flow, CloseReason::Restarted);
        self.accept(now, id, worker);
    }

    fn handle_event<P: Program>(&mut self, now: Time, event: Event, worker: &mut Worker<P>) {
        let (id, end) = match event {
            Event::Up { id, .. } => match self.associations.get(id) {
                Some((flow, messages)) => {
                    messages.open = true;
                    self.associations.open(id);
                    worker.opened(now, flow, None, &Peer::default());
                    self.note_paths(id, worker);
                    (id, None)
                }
                None => return self.accept(now, id, worker),
            },
            Event::Restarted(id) => return self.restart(now, id, worker),
            Event::Path { id, remote, state } => {
                return self.note_path((id, remote), state, worker);
            }
            Event::Readable(id) | Event::Writable(id) => (id, None),
            Event::PeerShutdown(id) | Event::Closed(id, Close::Finished) => {
                (id, Some(CloseReason::Peer))
            }
            Event::Closed(id, _) => (id, Some(CloseReason::Broken)),
            _ => return,
        };
        if matches!(event, Event::Closed(..)) {
            self.retransmits += self.sctp.snapshot(id).map_or(0, |s| s.totals.retransmits);
        }
        let Some((flow, messages)) = self.associations.get(id) else { return };
        if end.is_some() {
            messages.end = end;
        }
        self.turn(now, flow, worker);
    }
}

impl Stack for Sctp {
    fn open(&mut self, now: Time, flow: FlowId, open: Open) -> bool {
        let (remotes, port) = ([open.remote.ip()], open.remote.port());
        let id = self.sctp.connect(now, &self.locals, self.port, &remotes, port, None);
        // An association that is ending still has the port.
        let id = id.or_else(|_| self.sctp.connect(now, &self.locals, 0, &remotes, port, None));
        id.map(|id| self.add(flow, id, false)).is_ok()
    }

    fn send(&mut self, _: SocketAddr, _: &[u8]) {}

    fn handle_events<P: Program>(&mut self, now: Time, workers: &mut [Worker<P>]) {
        let Some(worker) = workers.first_mut() else { return };
        while let Some(event) = self.sctp.poll_event() {
            self.handle_event(now, event, worker);
        }
    }

    fn turn<P: Program>(&mut self, now: Time, flow: FlowId, worker: &mut Worker<P>) {
        let over = self.associations.turn(now, flow, worker, &mut self.sctp);
        let Some((id, ended, reason)) = over else { return };
        // Both fail only for an association that has ended.
        let _ = if ended { self.sctp.shutdown(now, id) } else { self.sctp.abort(id, b"") };
        worker.closed(now, flow, reason);
    }

    fn retransmits(&self) -> u64 {
        let live = self.associations.ids().filter_map(|id| self.sctp.snapshot(id).ok());
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

/// The messages of one association.
struct Messages {
    id: AssocId,
    streams: u16,
    calls: CallStreams,
    early: EarlyCalls,
    /// Whether the association is established.
    open: bool,
    /// The message being received.
    buffer: Vec<u8>,
    /// The reason for which nothing more is received.
    end: Option<CloseReason>,
}

impl Connection for Messages {
    type Id = AssocId;
    /// RFC 9260 section 5.1: data may go with the COOKIE ECHO.
    const EARLY: bool = true;

    fn id(&self) -> AssocId {
        self.id
    }

    fn end(&self) -> Option<CloseReason> {
        self.end
    }
}

impl Carrier<ringway_sctp::Sctp> for Messages {
    const TURN: usize = 1;

    fn poll_write(
        &mut self,
        now: Time,
        queue: &mut WriteQueue,
        sctp: &mut ringway_sctp::Sctp,
    ) -> Poll<Result<u64, Broken>> {
        let Some(message) = queue.message() else { return Poll::Ready(Ok(0)) };
        let length = message.len();
        let call = self.calls.hash(message);
        let stream = self.early.choose(call, stream_of(call, self.streams), self.open);
        let options = SendOptions { stream, ..SendOptions::default() };
        match sctp.send(now, self.id, &options, Bytes::copy_from_slice(message)) {
            Ok(()) => Poll::Ready(Ok(queue.written(length))),
            Err(CallError::Refused(SendError::NoRoom { .. })) => Poll::Pending,
            // What was received before is still read.
            Err(_) if self.end.is_some() => Poll::Pending,
            Err(_) => Poll::Ready(Err(Broken)),
        }
    }

    fn poll_flush(&mut self, _: Time, _: &mut ringway_sctp::Sctp) -> Poll<Result<(), Broken>> {
        Poll::Ready(Ok(()))
    }

    fn poll_read<P: Program, W: Pipes>(
        &mut self,
        now: Time,
        id: FlowId,
        flows: &mut Flows<P, W>,
        sctp: &mut ringway_sctp::Sctp,
    ) -> Poll<Result<(), CloseReason>> {
        let Ok(Some(part)) = sctp.recv(self.id, &mut self.buffer) else {
            return self.end.map_or(Poll::Pending, |reason| Poll::Ready(Err(reason)));
        };
        if part.cut {
            self.buffer.clear();
        } else if part.end {
            flows.receive_message(now, id, &self.buffer);
            self.buffer.clear();
        } else {
            // Longer than any message may be, and refused as such when it ends.
            self.buffer.truncate(MAX_MESSAGE + 1);
        }
        flows.note_read(part.len, usize::from(part.end));
        Poll::Ready(Ok(()))
    }

    fn poll_close(&mut self, now: Time, sctp: &mut ringway_sctp::Sctp) -> Poll<Result<(), Broken>> {
        Poll::Ready(sctp.shutdown(now, self.id).map_err(|_| Broken))
    }

    fn poll_discard(&mut self, _: Time, sctp: &mut ringway_sctp::Sctp) -> Poll<bool> {
        self.buffer.clear();
        match sctp.recv(self.id, &mut self.buffer) {
            Ok(Some(_)) => Poll::Ready(true),
            _ if self.end.is_some() => Poll::Ready(false),
            _ => Poll::Pending,
        }
    }
}
