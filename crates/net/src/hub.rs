//! The middle of a worker: the handler, its outbox, and where each message of the outbox goes.
//!
//! The endpoint's main task and the tasks of all connections share one hub and borrow it for the
//! moment of one batch; none holds it while it waits.

use crate::counters::Counters;
use crate::fresh::is_fresh;
use crate::handler::{Backlog, CloseReason, Handler};
use crate::limits::Limits;
use crate::mailbox::{Carry, Mail, Quoted, Report};
use crate::route::LocalAddresses;
use crate::shared::Shared;
use crate::stream::conn::{Conns, Key};
use crate::stream::sctp::SctpPort;
use crate::stream::unread::Gauge;
use crate::sys::{Datagram, SEND_BATCH, SendBatch};
use crate::udp::{Outstanding, UdpPort};
use ringway_sansio::{Flow, FlowId, Outbox, Target, Time, TimerWheel, Transport};
use ringway_sip::stun;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// Times in a row a failed message may be answered by another before others get their turn.
const FLUSH_ROUNDS: usize = 8;

/// Bytes read from a connection at once.
const READ_BUFFER: usize = 32 * 1024;

/// How soon datagrams are tried again for which the socket had no room.
const WAITING_RETRY: Duration = Duration::from_millis(1);

/// A message that goes by no UDP socket.
const ELSEWHERE: u16 = u16::MAX;

/// What waits for a worker at all its sockets.
#[derive(Default)]
pub(crate) struct Waiting {
    /// At each UDP socket, when it was last asked.
    pub(crate) ports: Vec<Backlog>,
    pub(crate) streams: Gauge,
}

impl Waiting {
    /// All of it: one worker takes care of it all, so waits add up.
    fn all(&self) -> Backlog {
        self.ports.iter().fold(self.streams.backlog(), |sum, port| {
            let fuller = port.queued * sum.capacity.max(1) > sum.queued * port.capacity.max(1);
            let (queued, capacity) =
                if fuller { (port.queued, port.capacity) } else { (sum.queued, sum.capacity) };
            let datagrams = sum.datagrams + port.datagrams;
            Backlog { datagrams, queued, capacity, delay: sum.delay.saturating_add(port.delay) }
        })
    }
}

pub(crate) struct Hub<H: Handler> {
    pub(crate) me: Weak<RefCell<Hub<H>>>,
    pub(crate) shared: Arc<Shared<H::Post>>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) worker: u8,
    pub(crate) now: Time,
    pub(crate) handler: H,
    pub(crate) outbox: Outbox,
    /// By place among the listeners; `None` for those that are not UDP.
    pub(crate) udp: Vec<Option<UdpPort>>,
    /// By place among the listeners: the SCTP that this worker runs.
    pub(crate) sctp: Vec<Option<SctpPort>>,
    pub(crate) conns: Conns,
    /// Deadlines of connections.
    pub(crate) wheel: TimerWheel<FlowId>,
    /// Accepted connections without a whole message, oldest first; those that got further are
    /// skipped when met.
    pub(crate) half_open: VecDeque<FlowId>,
    pub(crate) half_open_count: usize,
    pub(crate) outstanding: Outstanding,
    pub(crate) waiting: Waiting,
    /// Where connections' bytes are read into before they are framed.
    pub(crate) read_buffer: Vec<u8>,
    /// Of the main task.
    pub(crate) main: Option<Waker>,
    /// When the main task wakes by itself; zero while it is awake.
    pub(crate) armed: Option<Time>,
    /// Once we are told to stop: how long connections have to end.
    pub(crate) stop: Option<Duration>,
    pub(crate) local: LocalAddresses,
    /// When the refusal of an origin was logged last.
    pub(crate) origin_logged: Option<Time>,
    failed: Vec<u64>,
    /// What failed of what other workers handed over.
    failed_elsewhere: Vec<Report>,
    carries: Vec<Option<Box<Carry>>>,
    routes: Vec<u16>,
    send_buffers: SendBatch,
}

/// The earlier of two deadlines.
pub(crate) fn sooner(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        _ => one.or(other),
    }
}

/// What a response begins with.
const RESPONSE: &[u8] = b"SIP/";

impl<H: Handler> Hub<H> {
    pub(crate) fn new(
        shared: Arc<Shared<H::Post>>,
        worker: u8,
        udp: Vec<Option<UdpPort>>,
        handler: H,
    ) -> Rc<RefCell<Self>> {
        let now = shared.clock.now();
        let ports = udp.len();
        Rc::new_cyclic(|me| {
            RefCell::new(Hub {
                me: me.clone(),
                counters: shared.counters[worker as usize].clone(),
                worker,
                now,
                handler,
                outbox: Outbox::new(),
                udp,
                sctp: Vec::new(),
                conns: Conns::new(worker, now),
                wheel: TimerWheel::new(now),
                half_open: VecDeque::new(),
                half_open_count: 0,
                outstanding: Outstanding::new(shared.ledger.clone(), worker),
                waiting: Waiting { ports: vec![Backlog::default(); ports], ..Waiting::default() },
                read_buffer: vec![0; READ_BUFFER],
                main: None,
                armed: None,
                stop: None,
                local: LocalAddresses::new(&shared.listeners),
                origin_logged: None,
                failed: Vec::new(),
                failed_elsewhere: Vec::new(),
                carries: shared.mailboxes.iter().map(|_| None).collect(),
                routes: Vec::new(),
                send_buffers: SendBatch::new(),
                shared,
            })
        })
    }

    /// Reads the clock: once a batch.
    pub(crate) fn tick(&mut self) -> Time {
        self.now = self.now.max(self.shared.clock.now());
        self.now
    }

    /// What waits at the UDP socket at `place` is this now. Gives the share of what is new to shed.
    pub(crate) fn note_queued(&mut self, place: usize, backlog: Backlog) -> u32 {
        self.waiting.ports[place] = backlog;
        self.handler.batch(self.now, self.waiting.all())
    }

    /// What has come over a connection and is not read yet is this now.
    pub(crate) fn note_unread(&mut self, id: FlowId, unread: usize) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let before = std::mem::replace(&mut conn.unread, unread);
        if before > 0 || unread > 0 {
            self.waiting.streams.note(self.now, before, unread);
            self.handler.batch(self.now, self.waiting.all());
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// Sends all that is in the outbox and tells what failed at once, which may bring more to send.
    pub(crate) fn flush(&mut self) {
        for _ in 0..FLUSH_ROUNDS {
            if !self.outbox.is_empty() {
                self.send_outbox();
            }
            if self.failed.is_empty() {
                break;
            }
            let mut failed = std::mem::take(&mut self.failed);
            for report in failed.drain(..).filter(|report| *report != 0) {
                self.handler.not_sent(self.now, report, &mut self.outbox);
            }
            self.failed = failed;
        }
        if !self.failed_elsewhere.is_empty() {
            self.tell_elsewhere();
        }
        if !self.outbox.is_empty() || !self.failed.is_empty() {
            self.wake_main();
        }
        self.rearm();
    }

    /// Reports messages of our own as not sent, with the next flush.
    pub(crate) fn fail(&mut self, reports: impl Iterator<Item = u64>) {
        self.failed.extend(reports);
    }

    /// Reports a message as not sent, with the next flush, to the worker whose it is.
    pub(crate) fn not_sent(&mut self, report: Report) {
        if report.worker == self.worker {
            self.failed.push(report.number);
        } else if report.number != 0 {
            self.failed_elsewhere.push(report);
        }
    }

    /// Tells other workers what failed of theirs.
    fn tell_elsewhere(&mut self) {
        let failed = std::mem::take(&mut self.failed_elsewhere);
        self.tell_each(&failed, Mail::NotSent);
    }

    /// Tells each of the other workers the numbers of its own.
    fn tell_each(&self, reports: &[Report], mail: fn(Vec<u64>) -> Mail<H::Post>) {
        for (worker, mailbox) in self.shared.mailboxes.iter().enumerate() {
            let theirs = |r: &&Report| usize::from(r.worker) == worker && r.worker != self.worker;
            let numbers: Vec<u64> = reports.iter().filter(theirs).map(|r| r.number).collect();
            if !numbers.is_empty() {
                // When its mailbox is full too, its timers must find out.
                let _ = mailbox.try_send(mail(numbers));
            }
        }
    }

    /// A connection has ended by which these requests left.
    pub(crate) fn cut_off(&mut self, requests: &[Report]) {
        let own = requests.iter().filter(|r| r.worker == self.worker).map(|r| r.number);
        self.tell_cut_off(&own.collect::<Vec<_>>());
        self.tell_each(requests, Mail::CutOff);
    }

    /// The same of our own.
    pub(crate) fn tell_cut_off(&mut self, reports: &[u64]) {
        for &report in reports {
            self.handler.cut_off(self.now, report, &mut self.outbox);
        }
    }

    /// A datagram to `to` that began with `quote` was reported undeliverable by ICMP. If another worker
    /// sent it, that worker is notified; a message that quotes nothing sent lately is not believed.
    pub(crate) fn refused(&mut self, to: SocketAddr, quote: &[u8]) {
        self.counters.udp_refused.add(1);
        if let Some(report) = self.outstanding.take(to, quote) {
            self.failed.push(report);
            return;
        }
        let owner = self.shared.ledger.owner(quote).filter(|owner| *owner != self.worker);
        let Some(mailbox) = owner.and_then(|o| self.shared.mailboxes.get(usize::from(o))) else {
            self.counters.udp_refused_unknown.add(1);
            return;
        };
        let quoted = Quoted { to, bytes: quote.into() };
        // When that mailbox is full, which is counted, the worker's timers must find out.
        if mailbox.try_send(Mail::Refused(Box::new(quoted))).is_ok() {
            self.counters.udp_refused_handed_over.add(1);
        }
    }

    pub(crate) fn wake_main(&self) {
        if let Some(waker) = &self.main {
            waker.wake_by_ref();
        }
    }

    /// When the main task must be awake next.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let mut next = self.handler.next_timeout();
        if !self.wheel.is_empty() {
            next = sooner(next, self.wheel.next());
        }
        if self.udp.iter().flatten().any(UdpPort::has_waiting) {
            next = sooner(next, Some(self.now + WAITING_RETRY));
        }
        next
    }

    /// Wakes the main task if it would sleep past the next deadline.
    pub(crate) fn rearm(&self) {
        if self.armed == Some(Time::ZERO) {
            return;
        }
        if let Some(next) = self.next_timeout()
            && self.armed.is_none_or(|armed| next < armed)
        {
            self.wake_main();
        }
    }

    /// Tries again the datagrams that wait for room.
    pub(crate) fn send_waiting(&mut self) {
        for port in self.udp.iter_mut().flatten() {
            let sent = port.send_waiting(&mut self.send_buffers, &mut self.failed);
            self.counters.udp_sent.add(sent);
        }
    }

    fn send_outbox(&mut self) {
        let mut outbox = std::mem::take(&mut self.outbox);
        let mut routes = std::mem::take(&mut self.routes);
        let mut ports: SmallVec<[u16; 8]> = SmallVec::new();
        routes.clear();
        for (send, bytes) in outbox.iter() {
            let route = match &send.to {
                Target::Flow(flow) if flow.transport == Transport::Udp => self.port_of(flow.id),
                Target::Peer { transport: Transport::Udp, remote, .. } => self.port_towards(remote),
                Target::Flow(flow) => {
                    self.send_on(flow, bytes, send.report);
                    ELSEWHERE
                }
                Target::Peer { transport, remote, name } => {
                    let report = Report { worker: self.worker, number: send.report };
                    self.send_to(*transport, *remote, name.as_ref(), bytes, report, false);
                    ELSEWHERE
                }
            };
            if route != ELSEWHERE && !ports.contains(&route) {
                ports.push(route);
            }
            if route == ELSEWHERE && send.to.transport() == Transport::Udp {
                self.counters.udp_not_sent.add(1);
                self.failed.push(send.report);
            }
            routes.push(route);
        }
        for port in ports {
            self.send_datagrams(&outbox, &routes, port);
        }
        self.post_carries();
        outbox.clear();
        self.outbox = outbox;
        self.routes = routes;
    }

    /// Sends the datagrams of the outbox that go by one socket.
    fn send_datagrams(&mut self, outbox: &Outbox, routes: &[u16], route: u16) {
        let Some(Some(port)) = self.udp.get_mut(route as usize) else { return };
        let mut batch: SmallVec<[Datagram<'_>; SEND_BATCH]> = SmallVec::new();
        let mut reports: SmallVec<[u64; SEND_BATCH]> = SmallVec::new();
        let mut mine = outbox.iter().zip(routes).filter(|(_, r)| **r == route).map(|(s, _)| s);
        loop {
            batch.clear();
            reports.clear();
            for (send, bytes) in mine.by_ref().take(SEND_BATCH) {
                let (to, from) = match &send.to {
                    Target::Flow(flow) => (flow.remote, port.source(flow.local)),
                    Target::Peer { remote, .. } => (*remote, None),
                };
                if send.report != 0 {
                    self.outstanding.insert(to, bytes, send.report);
                }
                batch.push(Datagram::new(bytes, to, from));
                reports.push(send.report);
            }
            if batch.is_empty() {
                return;
            }
            let before = self.failed.len();
            let sent = port.send(&mut self.send_buffers, &batch, &reports, &mut self.failed);
            self.counters.udp_sent.add(sent.sent);
            if sent.waited > 0 {
                self.counters.udp_waited.add(sent.waited);
            }
            if self.failed.len() > before {
                self.counters.udp_not_sent.add((self.failed.len() - before) as u64);
            }
        }
    }

    /// The socket of a datagram flow. All workers have the same listeners in the same order, so a
    /// flow of another worker is as good as ours.
    fn port_of(&self, id: FlowId) -> u16 {
        let serial = FlowId::new(0, id.to_u64()).to_u64();
        match self.udp.get(serial as usize) {
            Some(Some(_)) => serial as u16,
            _ => ELSEWHERE,
        }
    }

    fn port_towards(&mut self, remote: &SocketAddr) -> u16 {
        self.local.choose(self.now, Transport::Udp, remote.ip()).map_or(ELSEWHERE, |i| i as u16)
    }

    /// Takes one datagram: keep-alives are dealt with here, the rest is the handler's.
    pub(crate) fn datagram(&mut self, flow: &Flow, bytes: &[u8]) {
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
            // CRLF keeps a NAT binding open (RFC 5626 section 3.5.1 has it for streams, many phones
            // send it in datagrams), and so does an empty datagram. Neither is answered.
            None => self.counters.udp_keepalives.add(1),
            Some(b'\r' | b'\n') if bytes.iter().all(|b| matches!(b, b'\r' | b'\n')) => {
                self.counters.udp_keepalives.add(1);
            }
            Some(_) => self.handler.message(self.now, flow, bytes, &mut self.outbox),
        }
    }

    /// Queues a message on a connection: ours, or handed over to the worker whose it is.
    pub(crate) fn send_on(&mut self, flow: &Flow, bytes: &[u8], report: u64) {
        self.send_for(flow, bytes, Report { worker: self.worker, number: report });
    }

    /// The same for whichever worker is to be told when it fails.
    fn send_for(&mut self, flow: &Flow, bytes: &[u8], report: Report) {
        if flow.id.worker() != self.worker {
            self.hand_over(flow.id.worker(), Target::Flow(*flow), bytes, report);
            return;
        }
        let limit = self.limits().write_queue;
        let Some(conn) = self.conns.get_mut(flow.id).filter(|c| c.takes_messages()) else {
            self.counters.stream_not_sent.add(1);
            self.not_sent(report);
            return;
        };
        // Half of the room is for what belongs to something begun.
        let fresh = is_fresh(bytes);
        let is_request = report.number != 0 && !bytes.starts_with(RESPONSE);
        let asked = is_request.then_some(self.now);
        if conn.queue.push(bytes, report, asked, if fresh { limit / 2 } else { limit }) {
            conn.wake();
            return;
        }
        if !fresh {
            // A slow reader is cut off rather than waited for.
            conn.end(CloseReason::SlowReader, None);
        }
        self.counters.stream_not_sent.add(1);
        self.not_sent(report);
    }

    fn hand_over(&mut self, worker: u8, target: Target, bytes: &[u8], report: Report) {
        let Some(slot) = self.carries.get_mut(worker as usize) else {
            self.counters.stream_not_sent.add(1);
            self.not_sent(report);
            return;
        };
        let carry = slot.get_or_insert_default();
        let start = carry.bytes.len();
        carry.bytes.extend_from_slice(bytes);
        carry.items.push((target, start..carry.bytes.len(), report));
    }

    fn post_carries(&mut self) {
        for worker in 0..self.carries.len() {
            let Some(carry) = self.carries[worker].take() else { continue };
            let count = carry.items.len() as u64;
            match self.shared.mailboxes[worker].try_send(Mail::Carry(carry)) {
                Ok(()) => self.counters.sends_handed_over.add(count),
                Err(Mail::Carry(carry)) => {
                    self.counters.stream_not_sent.add(count);
                    for (_, _, report) in carry.items {
                        self.not_sent(report);
                    }
                }
                Err(_) => {}
            }
        }
    }

    /// Sends what another worker handed over.
    pub(crate) fn carried(&mut self, carry: &Carry) {
        for (target, range, report) in &carry.items {
            let bytes = &carry.bytes[range.clone()];
            match target {
                Target::Flow(flow) if flow.id.worker() == self.worker => {
                    self.send_for(flow, bytes, *report);
                }
                Target::Flow(_) => {
                    self.counters.stream_not_sent.add(1);
                    self.not_sent(*report);
                }
                Target::Peer { transport, remote, name } => {
                    self.send_to(*transport, *remote, name.as_ref(), bytes, *report, true);
                }
            }
        }
    }

    /// Queues a message for a peer: on a connection that is open to it, or on a new one. If it was `handed`
    /// over it is not handed on to be opened a connection for.
    fn send_to(
        &mut self,
        transport: Transport,
        remote: SocketAddr,
        name: Option<&Arc<str>>,
        bytes: &[u8],
        report: Report,
        handed: bool,
    ) {
        let key = Key::new(transport, remote, name);
        if let Some(id) = self.conns.find(&key) {
            if let Some(flow) = self.conns.get_mut(id).map(|c| c.flow) {
                self.send_for(&flow, bytes, report);
            }
            return;
        }
        let known = self.shared.directory().find(transport, remote, name.map(|n| &**n));
        if let Some(flow) = known {
            let ours = flow.id.worker() == self.worker;
            if !ours && !handed {
                // Its worker knows whether it is ending.
                let target = Target::Peer { transport, remote, name: name.cloned() };
                self.hand_over(flow.id.worker(), target, bytes, report);
                return;
            }
            // One that is ending takes nothing more; another is opened then (RFC 3261 section 18.2.2).
            if !ours || self.conns.get_mut(flow.id).is_some_and(|c| c.takes_messages()) {
                self.send_for(&flow, bytes, report);
                return;
            }
        }
        if let Some(owner) = self.owner(transport, remote).filter(|owner| *owner != self.worker) {
            let target = Target::Peer { transport, remote, name: name.cloned() };
            self.hand_over(owner, target, bytes, report);
            return;
        }
        match self.dial(key, transport, remote, name) {
            Some(flow) => self.send_for(&flow, bytes, report),
            None => {
                self.counters.stream_not_sent.add(1);
                self.not_sent(report);
            }
        }
    }
}
