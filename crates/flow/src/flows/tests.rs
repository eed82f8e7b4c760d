//! Tables of what goes into the flows of two workers and what comes out.
//!
//! A line is `time input => outputs`. Connections have names from their first mention on: `accept c1 2` is a
//! connection from host 2, `open c1 2` an output that asks for one to host 2.

use super::Flows;
use crate::bytes::ByteStream;
use crate::common::Common;
use crate::counters::Counters;
use crate::limits::Limits;
use crate::mail::{Carry, Mail, Report};
use crate::pipes::{Open, Pipes};
use ringway_sansio::{
    CloseReason, Flow, FlowId, Malformed, Outbox, Peer, Program, Target, Time, Transport,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// What came out, with flows by their identifiers.
#[derive(Default)]
struct Log {
    lines: Vec<String>,
    names: BTreeMap<FlowId, String>,
    mail: VecDeque<(u8, Mail)>,
    /// Workers that take no mail.
    full: Vec<u8>,
}

impl Log {
    fn name(&mut self, id: FlowId) -> String {
        let next = format!("c{}", self.names.len() + 1);
        self.names.entry(id).or_insert(next).clone()
    }
}

type Shared = Rc<RefCell<Log>>;

struct Recorder(u8, Shared);

impl Recorder {
    fn log(&self, line: impl FnOnce(&mut Log) -> String) {
        let mut log = self.1.borrow_mut();
        let line = line(&mut log);
        log.lines.push(line);
    }
}

/// Returns the first word of a message and its Call-ID.
fn title(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let id = text.split("Call-ID: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    format!("{} {}", text.split(' ').next().unwrap_or_default(), id.unwrap_or("-"))
}

impl Program for Recorder {
    fn message(&mut self, _: Time, flow: &Flow, bytes: &[u8], _: &mut Outbox) {
        self.log(|log| format!("{} brings {}", log.name(flow.id), title(bytes)));
    }

    fn malformed(&mut self, _: Time, flow: &Flow, _: &[u8], error: &Malformed, out: &mut Outbox) {
        self.log(|log| format!("{} malformed {}", log.name(flow.id), error.status));
        out.push(Target::Flow(*flow), 0, |b| b.extend_from_slice(b"SIP/2.0 400 No\r\n\r\n"));
    }

    fn opened(&mut self, _: Time, flow: &Flow, peer: &Peer, _: &mut Outbox) {
        let side = if peer.inbound { "in" } else { "out" };
        self.log(|log| format!("{} opened {side}", log.name(flow.id)));
    }

    fn closed(&mut self, _: Time, flow: &Flow, reason: CloseReason, _: &mut Outbox) {
        self.log(|log| format!("{} closed {reason:?}", log.name(flow.id)));
    }

    fn not_sent(&mut self, _: Time, report: u64, _: &mut Outbox) {
        self.log(|_| format!("not sent {report} of {}", self.0));
    }

    fn cut_off(&mut self, _: Time, report: u64, _: &mut Outbox) {
        self.log(|_| format!("cut off {report} of {}", self.0));
    }

    fn timeout(&mut self, _: Time, _: &mut Outbox) {}

    fn poll_timeout(&self) -> Option<Time> {
        None
    }
}

impl Pipes for Recorder {
    type Handle = ();

    fn open(&mut self, _: Time, id: FlowId, open: Open) -> Option<SocketAddr> {
        let host = last(open.remote);
        if open.transport == Transport::Ws {
            return None;
        }
        self.log(|log| format!("open {} {host}", log.name(id)));
        Some(address(0))
    }

    fn wake(&mut self, _: FlowId, (): &()) {}

    fn send_datagrams(&mut self, _: Time, outbox: &Outbox, failed: &mut Vec<u64>) {
        for (send, bytes) in outbox.iter().filter(|(send, _)| send.to.transport().is_datagram()) {
            self.log(|_| format!("datagram {} bytes", bytes.len()));
            failed.extend((bytes.len() > 1_000).then_some(send.report));
        }
    }

    fn post(&mut self, worker: u8, mail: Mail) -> Result<(), Mail> {
        let mut log = self.1.borrow_mut();
        if log.full.contains(&worker) {
            return Err(mail);
        }
        log.mail.push_back((worker, mail));
        Ok(())
    }
}

fn address(host: u8) -> SocketAddr {
    SocketAddr::new([192, 0, 2, host].into(), 5060)
}

fn last(addr: SocketAddr) -> u8 {
    match addr {
        SocketAddr::V4(addr) => addr.ip().octets()[3],
        SocketAddr::V6(_) => 0,
    }
}

fn message(method: &str, id: &str, size: usize) -> Vec<u8> {
    let mut m =
        format!("{method} sip:a@b SIP/2.0\r\nCall-ID: {id}\r\nContent-Length: {size}\r\n\r\n")
            .into_bytes();
    m.resize(m.len() + size, b'x');
    m
}

struct Bed {
    workers: Vec<Flows<Recorder, Recorder>>,
    streams: BTreeMap<String, ByteStream>,
    log: Shared,
    now: Time,
}

const START: Time = Time::from_secs(1_000);

impl Bed {
    fn new(limits: Limits) -> Bed {
        let log = Shared::default();
        let common = Arc::new(Common::new(limits, usize::MAX, &[1; 16]));
        let worker = |n: u8| {
            let (program, pipes) = (Recorder(n, log.clone()), Recorder(n, log.clone()));
            Flows::new(START, (n, 2), common.clone(), Arc::<Counters>::default(), program, pipes)
        };
        let workers = [0, 1].map(worker).into();
        Bed { workers, streams: BTreeMap::new(), log, now: START }
    }

    fn id(&self, name: &str) -> FlowId {
        let log = self.log.borrow();
        let found = log.names.iter().find(|(_, known)| *known == name);
        *found.unwrap_or_else(|| panic!("no connection {name}")).0
    }

    /// Returns the flow of a connection; of one that is gone, with some addresses.
    fn flow(&self, id: FlowId) -> Flow {
        let gone = Flow { id, transport: Transport::Tcp, local: address(0), remote: address(9) };
        self.workers[usize::from(id.worker())].flow(id).unwrap_or(gone)
    }

    fn of(&mut self, name: &str) -> (FlowId, &mut Flows<Recorder, Recorder>) {
        let id = self.id(name);
        (id, &mut self.workers[usize::from(id.worker())])
    }

    /// Sends a message from a worker: `to` is a connection's name, a host's number, or `udp`.
    fn send(&mut self, worker: usize, to: &str, report: u64, bytes: &[u8]) {
        let peer = |transport, host| Target::Peer { transport, remote: address(host), name: None };
        let to = match to.strip_prefix('c') {
            Some(_) => Target::Flow(self.flow(self.id(to))),
            None => match to {
                "udp" => peer(Transport::Udp, 9),
                "ws" => peer(Transport::Ws, 9),
                host => peer(Transport::Tcp, host.parse().unwrap()),
            },
        };
        let now = self.now;
        self.workers[worker].with_program(now, |_, _, out| {
            out.push(to, report, |b| b.extend_from_slice(bytes));
        });
    }

    fn input(&mut self, words: &[&str]) {
        let now = self.now;
        let number = |index: usize| words[index].parse::<u64>().unwrap();
        match words {
            ["accept", name, host] => {
                let (transport, remote) = (Transport::Tcp, address(host.parse().unwrap()));
                let worker = self.log.borrow().names.len() % 2;
                let flows = &mut self.workers[worker];
                let Some(id) = flows.accept(now, transport, address(0), remote) else {
                    return self.log.borrow_mut().lines.push("refused".into());
                };
                self.log.borrow_mut().names.insert(id, (*name).into());
                flows.opened(now, id, None, &Peer { domains: Vec::new(), inbound: true });
            }
            ["connected", name] => {
                let (id, flows) = self.of(name);
                flows.opened(now, id, None, &Peer::default());
            }
            ["close", name, reason] => {
                let (id, flows) = self.of(name);
                let reason = match *reason {
                    "peer" => CloseReason::Peer,
                    _ => CloseReason::Broken,
                };
                flows.closed(now, id, reason);
            }
            ["receive", name, method, call, size] => {
                self.receive(name, &message(method, call, size.parse().unwrap()));
            }
            ["receive", name, text] => {
                let text = text.replace("\\r", "\r").replace("\\n", "\n").replace('_', " ");
                self.receive(name, text.as_bytes());
            }
            ["send", worker, to, _, method, call, size] => {
                let bytes = message(method, call, size.parse().unwrap());
                self.send(worker.parse().unwrap(), to, number(3), &bytes);
            }
            ["write", name, "all"] => self.write(name, usize::MAX),
            ["write", name, _] => self.write(name, number(2) as usize),
            ["tick"] => self.workers.iter_mut().for_each(|flows| flows.timeout(now)),
            ["full", worker] => self.log.borrow_mut().full.push(worker.parse().unwrap()),
            ["stop"] => {
                let end = Some(now + Duration::from_secs(1));
                let stop = |flows: &mut Flows<_, _>| flows.end_all(now, CloseReason::Stopped, end);
                self.workers.iter_mut().for_each(stop);
            }
            _ => panic!("no input {words:?}"),
        }
    }

    fn receive(&mut self, name: &str, bytes: &[u8]) {
        let mut stream = self.streams.remove(name).unwrap_or_default();
        let now = self.now;
        let (id, flows) = self.of(name);
        let received = flows.receive(now, id, &mut stream, bytes, |_| {});
        flows.note_framing(now, id, stream.partial(), received.broken);
        flows.flush(now);
        self.streams.insert(name.into(), stream);
    }

    fn write(&mut self, name: &str, count: usize) {
        let now = self.now;
        let (id, flows) = self.of(name);
        let queue = flows.queue_mut(id).unwrap();
        let count = count.min(queue.len());
        let messages = queue.written(count);
        let blocked = !queue.is_empty();
        flows.note_written(now, id, messages, count > 0, blocked);
        self.log.borrow_mut().lines.push(format!("{name} wrote {messages}"));
    }

    /// Lets the owners of connections do what they are asked to, and mail arrive.
    fn settle(&mut self) {
        loop {
            let mail = self.log.borrow_mut().mail.pop_front();
            let Some((worker, mail)) = mail else { break };
            let now = self.now;
            let flows = &mut self.workers[usize::from(worker)];
            flows.mail(now, mail);
            flows.flush(now);
        }
        let names = self.log.borrow().names.clone();
        for (id, name) in names {
            let now = self.now;
            let flows = &mut self.workers[usize::from(id.worker())];
            if flows.take_overdue(id) {
                let stream = self.streams.get_mut(&name).unwrap();
                flows.refuse_slow(now, id, stream);
                flows.end_slow(now, id);
            }
            let Some(ending) = flows.ending(id) else { continue };
            if ending.flush_until.is_none() || flows.queue_mut(id).is_some_and(|q| q.is_empty()) {
                flows.closed(now, id, ending.reason);
            }
        }
    }

    fn run(&mut self, table: &str) {
        for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (input, expected) = line.split_once("=>").unwrap();
            let words: Vec<&str> = input.split_whitespace().collect();
            let seconds: f64 = words[0].parse().unwrap();
            self.now = START + Duration::from_secs_f64(seconds);
            self.input(&words[1..]);
            self.settle();
            let got = std::mem::take(&mut self.log.borrow_mut().lines).join(", ");
            assert_eq!(got, expected.trim(), "{line}");
        }
    }
}

fn run(limits: Limits, table: &str) {
    Bed::new(limits).run(table);
}

/// RFC 3261 section 18.1.1 and 18.2.2.
#[test]
fn a_connection_is_used_for_all_messages_to_its_peer() {
    run(
        Limits::default(),
        "0 send 0 2 1 INVITE a 0   => open c1 2
         0 send 0 2 2 INVITE b 0   =>
         1 connected c1            => c1 opened out
         1 write c1 all            => c1 wrote 2
         2 receive c1 SIP/2.0_200_OK\\r\\nCall-ID:_a\\r\\nl:0\\r\\n\\r\\n => c1 brings SIP/2.0 a
         3 send 0 2 3 BYE a 0      =>
         3 write c1 all            => c1 wrote 1
         4 accept c2 7             => c2 opened in
         4 send 1 7 0 INVITE c 0   =>
         4 write c2 all            => c2 wrote 1
         5 send 0 ws 9 BYE a 0     => not sent 9 of 0",
    );
}

/// RFC 5923: an accepted connection serves the other workers too, by the worker that owns it.
#[test]
fn an_accepted_connection_serves_all_workers() {
    run(
        Limits::default(),
        "0 accept c1 7             => c1 opened in
         0 send 1 7 5 INVITE a 0   =>
         0 send 1 c1 6 INVITE b 0  =>
         1 write c1 all            => c1 wrote 2
         2 close c1 broken         => c1 closed Broken, cut off 5 of 1, cut off 6 of 1
         3 send 1 c1 7 BYE b 0     => not sent 7 of 1
         3 send 1 7 8 INVITE c 0   => open c2 7
         4 close c2 broken         => not sent 8 of 1",
    );
}

#[test]
fn a_worker_without_room_for_mail_is_reported() {
    run(
        Limits::default(),
        "0 accept c1 7             => c1 opened in
         0 full 0                  =>
         0 send 1 c1 6 INVITE b 0  => not sent 6 of 1",
    );
}

/// A message that arrives by hand-over and belongs to yet another connection leaves at once.
#[test]
fn a_message_handed_over_twice_leaves_at_once() {
    let mut bed = Bed::new(Limits::default());
    bed.run("0 accept c1 7 => c1 opened in");
    // The first worker has it, and the mail reaches the second.
    let mut carry = Carry::default();
    let peer = Target::Peer { transport: Transport::Tcp, remote: address(7), name: None };
    let (transport, local) = (Transport::Tcp, address(0));
    let flow = |id| Target::Flow(Flow { id, transport, local, remote: address(7) });
    carry.push(peer, &message("BYE", "a", 0), Report { worker: 1, number: 3 });
    carry.push(flow(bed.id("c1")), &message("BYE", "b", 0), Report { worker: 1, number: 4 });
    let unknown = flow(FlowId::new(9, 1));
    carry.push(unknown, &message("BYE", "c", 0), Report { worker: 0, number: 5 });
    bed.log.borrow_mut().mail.push_back((1, Mail::Carry(Box::new(carry))));
    bed.run(
        "0 tick => not sent 5 of 0
             0 write c1 all => c1 wrote 2",
    );
}

/// RFC 5626 section 5.3.1: a flow of another server is none here, though a connection has its number.
#[test]
fn a_flow_to_another_peer_is_not_this_connection() {
    let mut bed = Bed::new(Limits::default());
    bed.run("0 accept c1 7 => c1 opened in");
    let to = Flow { remote: address(8), ..bed.flow(bed.id("c1")) };
    let bye = message("BYE", "a", 0);
    bed.workers[0].with_program(bed.now, |_, _, out| {
        out.push(Target::Flow(to), 5, |b| b.extend_from_slice(&bye));
    });
    bed.run("0 tick => not sent 5 of 0");
}

/// RFC 3261 section 18.3.
#[test]
fn messages_are_found_between_keep_alives_and_faults() {
    run(
        Limits::default(),
        "0 accept c1 7                 => c1 opened in
         0 receive c1 MESSAGE a 10     => c1 brings MESSAGE a
         0 receive c1 \\r\\n\\r\\n      =>
         0 write c1 all                => c1 wrote 1
         1 receive c1 MESSAGE_         =>
         2 receive c1 sip:a_SIP/2.0\\r\\nCall-ID:_b\\r\\nl:_0\\r\\n\\r\\n => c1 brings MESSAGE b
         3 receive c1 nonsense\\r\\nl:0\\r\\n\\r\\n => c1 malformed 400
         3 write c1 all                => c1 wrote 1
         4 receive c1 BYE_sip:a_SIP/2.0\\r\\n\\r\\n => c1 malformed 400
         4 write c1 all                => c1 wrote 1, c1 closed Malformed",
    );
}

#[test]
fn a_silent_connection_makes_room_for_another() {
    let limits = Limits { half_open: 1, ..Limits::default() };
    run(
        limits,
        "0 accept c1 7            => c1 opened in
         0 receive c1 BYE a 0     => c1 brings BYE a
         0 accept c2 7            => c2 opened in
         0 accept c3 7            => c3 opened in
         0 accept c4 7            => c4 opened in, c2 closed HalfOpen
         29.9 tick                =>
         30.1 tick                => c3 closed HalfOpen, c4 closed HalfOpen
         1199 tick                =>
         1200.1 tick              => c1 closed Idle",
    );
}

#[test]
fn a_source_has_its_share_of_connections() {
    let limits = Limits { connections_per_source: 2, ..Limits::default() };
    run(
        limits,
        "0 accept c1 7            => c1 opened in
         0 accept c2 7            => c2 opened in
         0 accept c3 7            => refused
         0 accept c3 8            => c3 opened in
         1 close c1 peer          => c1 closed Peer
         1 accept c4 7            => c4 opened in",
    );
}

#[test]
fn a_message_must_come_to_its_end_in_time() {
    run(
        Limits::default(),
        "0 accept c1 7                 => c1 opened in
         0 receive c1 BYE a 0          => c1 brings BYE a
         5 receive c1 INVITE_sip:a     =>
         10 receive c1 _SIP/2.0\\r\\n  =>
         14.9 tick                     =>
         15.1 tick                     => c1 malformed 408
         15.1 write c1 all             => c1 wrote 1, c1 closed Slow",
    );
}

#[test]
fn a_peer_that_takes_nothing_is_closed() {
    run(
        Limits::default(),
        "0 accept c1 7                 => c1 opened in
         0 receive c1 BYE a 0          => c1 brings BYE a
         0 send 0 c1 5 INFO b 1000     =>
         0 write c1 100                => c1 wrote 0
         19 write c1 100               => c1 wrote 0
         20.1 tick                     =>
         38.9 tick                     =>
         39.1 tick                     => c1 closed SlowReader, not sent 5 of 0",
    );
}

/// Half of a queue is for what has begun; what has begun and finds no room closes the connection.
#[test]
fn a_queue_is_bounded() {
    let limits = Limits { write_queue: 4_000, ..Limits::default() };
    run(
        limits,
        "0 accept c1 7                 => c1 opened in
         0 receive c1 BYE a 0          => c1 brings BYE a
         0 send 0 c1 1 INVITE b 1900   =>
         0 send 0 c1 2 INVITE c 100    => not sent 2 of 0
         0 send 0 c1 3 INFO d 1800     =>
         0 write c1 2000               => c1 wrote 1
         0 send 0 c1 4 INFO e 3000     => not sent 4 of 0, c1 closed SlowReader, cut off 1 of 0, not sent 3 of 0",
    );
}

#[test]
fn a_connection_that_does_not_open_fails_in_time() {
    run(
        Limits::default(),
        "0 send 0 2 1 INVITE a 0       => open c1 2
         4.9 tick                      =>
         4.9 send 1 2 2 INVITE a 0     => open c2 2
         5.1 tick                      => not sent 1 of 0
         5.2 send 0 2 3 INVITE a 0     => open c3 2",
    );
}

#[test]
fn datagrams_pass_by() {
    run(
        Limits::default(),
        "0 send 0 udp 1 INVITE a 10    => datagram 68 bytes
         0 send 0 udp 2 INVITE a 1000  => datagram 1060 bytes, not sent 2 of 0",
    );
}

#[test]
fn a_stop_lets_what_is_queued_be_written_and_begins_nothing_anew() {
    run(
        Limits::default(),
        "0 accept c1 7                 => c1 opened in
         0 receive c1 BYE a 0          => c1 brings BYE a
         0 send 0 c1 1 INVITE b 0      =>
         0 send 0 c1 2 INVITE c 0      =>
         0 write c1 60                 => c1 wrote 1
         1 stop                        =>
         1 send 0 c1 3 INVITE d 0      => not sent 3 of 0
         1.5 write c1 all              => c1 wrote 1, c1 closed Stopped",
    );
}

/// Pieces of what a peer may send.
const PIECES: [&[u8]; 8] = [
    b"MESSAGE sip:a SIP/2.0\r\nCall-ID: r\r\nl: 3\r\n\r\nabc",
    b"MESSAGE sip:a SIP/2.0\r\nCall-",
    b"ID: r\r\nl: 0\r\n\r\n",
    b"\r\n\r\n",
    b"\r",
    b"garbage\r\nl: 2\r\n\r\n",
    b"BYE sip:a SIP/2.0\r\nl: 1\r\nl: 2\r\n\r\n",
    b"\0\xff",
];

impl Bed {
    /// Returns the name of a connection that is in a table, if there is one.
    fn live(&self, number: u8) -> Option<String> {
        let log = self.log.borrow();
        let is_live = |id: &FlowId| self.workers[usize::from(id.worker())].flow(*id).is_some();
        let live: Vec<_> = log.names.iter().filter(|(id, _)| is_live(id)).collect();
        let index = usize::from(number).checked_rem(live.len())?;
        Some(live[index].1.clone())
    }

    /// Does something that three numbers choose. Returns the report number of a request that was sent.
    fn random(&mut self, step: u64, (what, which, size): (u8, u8, u8)) -> Option<(usize, u64)> {
        self.now += Duration::from_millis(u64::from(size));
        let name = self.live(which);
        let worker = usize::from(which % 2);
        match (what % 8, name) {
            (0, _) => self.input(&["accept", &format!("r{step}"), &(which % 4 + 1).to_string()]),
            (1, _) => {
                let host = (which % 4 + 1).to_string();
                self.send(worker, &host, step, &message("INVITE", "r", usize::from(size)));
                return Some((worker, step));
            }
            (2, Some(name)) => {
                let to = self.flow(self.id(&name));
                let (now, bytes) = (self.now, message("INVITE", "r", usize::from(size)));
                self.workers[worker].with_program(now, |_, _, out| {
                    out.push(Target::Flow(to), step, |b| b.extend_from_slice(&bytes));
                });
                return Some((worker, step));
            }
            (3, Some(name)) => self.receive(&name, PIECES[usize::from(size) % PIECES.len()]),
            (4, Some(name)) => self.write(&name, usize::from(size) * 4),
            (5, Some(name)) if size % 4 == 0 => self.input(&["close", &name, "broken"]),
            (6, Some(name)) => self.input(&["connected", &name]),
            _ => self.input(&["tick"]),
        }
        None
    }
}

proptest::proptest! {
    /// Whatever peers and programs do, each request is reported exactly once when all connections have ended,
    /// and a program learns of each end once.
    #[test]
    fn nothing_is_lost_and_nothing_reported_twice(
        steps in proptest::collection::vec(proptest::prelude::any::<(u8, u8, u8)>(), 1..120),
    ) {
        let limits = Limits { half_open: 3, write_queue: 1_500, ..Limits::default() };
        let mut bed = Bed::new(limits);
        let mut sent = Vec::new();
        for (step, numbers) in steps.into_iter().enumerate() {
            sent.extend(bed.random(step as u64 + 1, numbers));
            bed.settle();
        }
        while let Some(name) = bed.live(0) {
            bed.input(&["close", &name, "broken"]);
            bed.settle();
        }
        // What the last one left for another worker.
        bed.settle();
        let lines = std::mem::take(&mut bed.log.borrow_mut().lines);
        let count = |wanted: &str| lines.iter().filter(|line| *line == wanted).count();
        for (worker, report) in sent {
            let reports = count(&format!("not sent {report} of {worker}"))
                + count(&format!("cut off {report} of {worker}"));
            proptest::prop_assert_eq!(reports, 1, "{} of {}: {:#?}", report, worker, lines);
        }
        for name in bed.log.borrow().names.values() {
            let ends = lines.iter().filter(|line| line.starts_with(&format!("{name} closed"))).count();
            proptest::prop_assert!(ends <= 1, "{}: {:#?}", name, lines);
        }
    }
}
