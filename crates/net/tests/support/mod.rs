//! A handler that reports its inputs to a test, and endpoints that run it on threads.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used)]

pub mod authority;
#[path = "../../../sctp-tokio/tests/support/namespace.rs"]
pub mod namespace;

use ringway_net::{Bind, Config, Control, Handler, bind};
use ringway_sansio::{
    Backlog, CloseReason, Flow, Listener, Outbox, Peer, Program, Target, Time, Transport,
};
use ringway_sip::Malformed;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The time-out of an expected event, long enough for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// An input of a handler.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    Message {
        worker: u8,
        flow: Flow,
        bytes: Vec<u8>,
    },
    Malformed {
        flow: Flow,
        status: u16,
        head: Vec<u8>,
    },
    Opened {
        flow: Flow,
        peer: Peer,
    },
    Closed {
        flow: Flow,
        reason: CloseReason,
    },
    /// The report's number, and the worker that got it.
    NotSent(u64, u8),
    /// The same.
    CutOff(u64, u8),
    Timeout(Time),
    Batch(Backlog),
}

/// A function to run on the worker's thread.
pub type Job = Box<dyn FnOnce(&mut Probe, Time, &mut Outbox) + Send>;

pub struct Probe {
    pub worker: u8,
    pub events: Sender<Event>,
    /// Whether each message is sent back on its flow.
    pub echo: bool,
    /// Whether messages are reported.
    pub tell: bool,
    /// The time that handling a message takes.
    pub pause: Duration,
    /// Handling a message waits for an item of this channel, until all its senders are dropped.
    pub gate: Option<Receiver<()>>,
    /// The share of new requests to discard while behind.
    pub shed: u32,
    pub timeout: Option<Time>,
}

impl Probe {
    fn tell(&self, event: Event) {
        let _ = self.events.send(event);
    }
}

impl Program for Probe {
    fn message(&mut self, _: Time, flow: &Flow, bytes: &[u8], out: &mut Outbox) {
        if !self.pause.is_zero() {
            std::thread::sleep(self.pause);
        }
        if let Some(gate) = &self.gate {
            let _ = gate.recv();
        }
        if self.echo {
            out.push(Target::Flow(*flow), 0, |b| b.extend_from_slice(bytes));
        }
        if self.tell {
            self.tell(Event::Message { worker: self.worker, flow: *flow, bytes: bytes.to_vec() });
        }
    }

    fn malformed(
        &mut self,
        _: Time,
        flow: &Flow,
        head: &[u8],
        error: &Malformed,
        out: &mut Outbox,
    ) {
        let status = error.status;
        out.push(Target::Flow(*flow), 0, |b| {
            b.extend_from_slice(format!("SIP/2.0 {status} No\r\n\r\n").as_bytes());
        });
        self.tell(Event::Malformed { flow: *flow, status, head: head.to_vec() });
    }

    fn opened(&mut self, _: Time, flow: &Flow, peer: &Peer, _: &mut Outbox) {
        self.tell(Event::Opened { flow: *flow, peer: peer.clone() });
    }

    fn closed(&mut self, _: Time, flow: &Flow, reason: CloseReason, _: &mut Outbox) {
        self.tell(Event::Closed { flow: *flow, reason });
    }

    fn not_sent(&mut self, _: Time, report: u64, _: &mut Outbox) {
        self.tell(Event::NotSent(report, self.worker));
    }

    fn cut_off(&mut self, _: Time, report: u64, _: &mut Outbox) {
        self.tell(Event::CutOff(report, self.worker));
    }

    fn timeout(&mut self, now: Time, _: &mut Outbox) {
        self.timeout = None;
        self.tell(Event::Timeout(now));
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.timeout
    }

    fn backlog(&mut self, _: Time, backlog: Backlog) -> u32 {
        if self.tell {
            self.tell(Event::Batch(backlog));
        }
        self.shed
    }
}

impl Handler for Probe {
    type Post = Job;

    fn posted(&mut self, now: Time, job: Job, out: &mut Outbox) {
        job(self, now, out);
    }
}

/// Endpoints, which run until this is dropped.
pub struct Server {
    pub control: Control<Job>,
    pub events: Receiver<Event>,
    threads: Vec<JoinHandle<std::io::Result<Probe>>>,
}

impl Server {
    pub fn start(config: Config) -> Server {
        Self::start_with(config, |_| {})
    }

    pub fn start_with(config: Config, set: impl Fn(&mut Probe)) -> Server {
        let endpoints = bind::<Job>(config).unwrap();
        let (sender, events) = channel();
        let control = endpoints[0].control();
        let threads = endpoints
            .into_iter()
            .map(|endpoint| {
                let mut probe = Probe {
                    worker: endpoint.worker(),
                    events: sender.clone(),
                    echo: true,
                    tell: true,
                    pause: Duration::ZERO,
                    gate: None,
                    shed: 0,
                    timeout: None,
                };
                set(&mut probe);
                std::thread::spawn(move || endpoint.run(probe))
            })
            .collect();
        Server { control, events, threads }
    }

    pub fn listeners(&self) -> &[Listener] {
        self.control.listeners()
    }

    /// Returns the address of the `n`-th listener.
    pub fn addr(&self, n: usize) -> SocketAddr {
        self.listeners()[n].addr
    }

    /// Runs a function on a worker's thread.
    pub fn post(
        &self,
        worker: usize,
        job: impl FnOnce(&mut Probe, Time, &mut Outbox) + Send + 'static,
    ) {
        assert!(self.control.mailboxes()[worker].try_post(Box::new(job)));
    }

    /// Blocks a worker until the returned value is dropped.
    pub fn hold(&self, worker: usize) -> Sender<()> {
        let (release, wait) = channel();
        let (tell, held) = channel();
        self.post(worker, move |_, _, _| {
            tell.send(()).unwrap();
            let _ = wait.recv();
        });
        held.recv_timeout(PATIENCE).expect("a worker that takes what is posted");
        release
    }

    /// Waits until a worker has run what was posted to it, and has reported what failed.
    pub fn settle(&self, worker: usize) {
        // Failures are reported after a whole batch of posts; the second post is in a later batch.
        drop(self.hold(worker));
        drop(self.hold(worker));
    }

    /// Sends one message from a worker.
    pub fn send(&self, worker: usize, to: Target, report: u64, bytes: &[u8]) {
        let bytes = bytes.to_vec();
        self.post(worker, move |_, _, out| out.push(to, report, |b| b.extend_from_slice(&bytes)));
    }

    /// Returns the next event for which `want` returns a value; others are dropped.
    pub fn wait<T>(&self, mut want: impl FnMut(&Event) -> Option<T>) -> T {
        let end = std::time::Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(std::time::Instant::now());
            let event = self.events.recv_timeout(left).expect("an event that did not come");
            if let Some(found) = want(&event) {
                return found;
            }
        }
    }

    pub fn wait_message(&self) -> (u8, Flow, Vec<u8>) {
        self.wait(|e| match e {
            Event::Message { worker, flow, bytes } => Some((*worker, *flow, bytes.clone())),
            _ => None,
        })
    }

    pub fn wait_opened(&self) -> (Flow, Peer) {
        self.wait(|e| match e {
            Event::Opened { flow, peer } => Some((*flow, peer.clone())),
            _ => None,
        })
    }

    pub fn wait_closed(&self) -> (Flow, CloseReason) {
        self.wait(|e| match e {
            Event::Closed { flow, reason } => Some((*flow, *reason)),
            _ => None,
        })
    }

    pub fn wait_not_sent(&self) -> u64 {
        self.wait(|e| match e {
            Event::NotSent(report, _) => Some(*report),
            _ => None,
        })
    }

    /// Returns the sum of one counter over all workers.
    pub fn count(&self, name: &str) -> u64 {
        let mut sum = None;
        for counters in self.control.counters() {
            counters.visit(&mut |n, _, value| {
                if n == name {
                    *sum.get_or_insert(0) += value;
                }
            });
        }
        sum.expect("a counter of that name")
    }

    /// Waits until a counter is at `value`: it may be updated shortly after the event that it counts.
    pub fn wait_count(&self, name: &str, value: u64) {
        let end = std::time::Instant::now() + PATIENCE;
        while self.count(name) != value && std::time::Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(self.count(name), value, "{name}");
    }

    /// Stops the endpoints, and returns their handlers.
    pub fn stop(mut self, grace: Duration) -> Vec<Probe> {
        self.control.stop(grace);
        std::mem::take(&mut self.threads)
            .into_iter()
            .map(|thread| thread.join().unwrap().unwrap())
            .collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.control.stop(Duration::ZERO);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

pub fn listen(specs: &[(Transport, &str)]) -> Config {
    Config::new(specs.iter().map(|(t, a)| Bind::at(*t, a.parse().unwrap())))
}

/// Returns a message with a body of `n` bytes, framed for a stream.
pub fn sip(tag: &str, n: usize) -> Vec<u8> {
    request("MESSAGE", tag, n)
}

/// The same of another method.
pub fn request(method: &str, tag: &str, n: usize) -> Vec<u8> {
    let mut m = format!(
        "{method} sip:a@b SIP/2.0\r\nVia: SIP/2.0/TCP c;branch=z9hG4bK{tag}\r\n\
         Content-Length: {n}\r\n\r\n"
    )
    .into_bytes();
    m.resize(m.len() + n, b'x');
    m
}

/// Returns a target without a name.
pub fn peer(transport: Transport, remote: SocketAddr) -> Target {
    Target::Peer { transport, remote, name: None }
}
