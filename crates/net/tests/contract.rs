//! The contract of flows over real sockets.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[macro_use]
#[path = "../../flow/contract/mod.rs"]
mod contract;

use contract::{Bed, Event, PATIENCE, Probe};
use ringway_flow::Limits;
use ringway_net::{Bind, Config, Control, Handler, bind};
use ringway_sansio::{
    CloseReason, Flow, Malformed, Outbox, Peer, Program, Target, Time, Transport,
};
use ringway_sctp_tokio::{
    Association, Config as StackConfig, Connect, Over, SendOptions, Settings, Stack,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::Runtime;

const PORT: u16 = 5060;

/// The last byte of the peer's address.
const PEER: u8 = 200;

/// A probe that a test controls from its thread.
struct Remote(Probe);

type Job = Box<dyn FnOnce(&mut Outbox) + Send>;

impl Program for Remote {
    fn message(&mut self, now: Time, flow: &Flow, bytes: &[u8], out: &mut Outbox) {
        self.0.message(now, flow, bytes, out);
    }

    fn malformed(
        &mut self,
        now: Time,
        flow: &Flow,
        head: &[u8],
        error: &Malformed,
        out: &mut Outbox,
    ) {
        self.0.malformed(now, flow, head, error, out);
    }

    fn opened(&mut self, now: Time, flow: &Flow, peer: &Peer, out: &mut Outbox) {
        self.0.opened(now, flow, peer, out);
    }

    fn closed(&mut self, now: Time, flow: &Flow, reason: CloseReason, out: &mut Outbox) {
        self.0.closed(now, flow, reason, out);
    }

    fn not_sent(&mut self, now: Time, report: u64, out: &mut Outbox) {
        self.0.not_sent(now, report, out);
    }

    fn cut_off(&mut self, now: Time, report: u64, out: &mut Outbox) {
        self.0.cut_off(now, report, out);
    }

    fn timeout(&mut self, now: Time, out: &mut Outbox) {
        self.0.timeout(now, out);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.0.poll_timeout()
    }
}

impl Handler for Remote {
    type Post = Job;

    fn posted(&mut self, _: Time, job: Job, out: &mut Outbox) {
        job(out);
    }
}

struct Host {
    control: Control<Job>,
    events: Receiver<Event>,
    threads: Vec<JoinHandle<std::io::Result<Remote>>>,
}

impl Drop for Host {
    fn drop(&mut self) {
        self.control.stop(Duration::ZERO);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

struct Real {
    hosts: Vec<Host>,
    /// The UDP port that carries SCTP, reserved by a socket at an address that no host uses.
    encapsulation: UdpSocket,
    listener: Option<TcpListener>,
    peers: Vec<(Runtime, Stack, Association)>,
}

fn ip(last: u8) -> IpAddr {
    IpAddr::from([127, 0, 0, last])
}

fn address(transport: Transport, host: usize) -> SocketAddr {
    match transport {
        // There each test has different ports; here all tests use the same.
        Transport::Tcp => SocketAddr::new(ip(host as u8 + 1), 0),
        _ => SocketAddr::new(ip(host as u8 + 1), PORT),
    }
}

impl Bed for Real {
    type Raw = TcpStream;

    fn start(transport: Transport, limits: Limits, workers: &[usize]) -> Self {
        let encapsulation = UdpSocket::bind("127.0.0.250:0").unwrap();
        let udp = encapsulation.local_addr().unwrap().port();
        let mut bound = Vec::new();
        for (index, count) in workers.iter().enumerate() {
            let addr = address(transport, index);
            let encapsulation = (transport == Transport::Sctp).then_some(udp);
            let mut config =
                Config::new([Bind { transport, addr, more: Vec::new(), encapsulation }]);
            (config.workers, config.limits) = (*count, limits);
            bound.push(bind::<Job>(config).unwrap());
        }
        let second = bound.get(1).map(|endpoints| endpoints[0].control().listeners()[0].addr);
        let start = |endpoints: Vec<ringway_net::Endpoint<Job>>| {
            let (sender, events) = channel();
            let control = endpoints[0].control();
            let run = |endpoint: ringway_net::Endpoint<Job>| {
                let mut probe = Probe::new(endpoint.worker().into(), sender.clone());
                probe.spare = second;
                std::thread::spawn(move || endpoint.run(Remote(probe)))
            };
            Host { control, events, threads: endpoints.into_iter().map(run).collect() }
        };
        let hosts = bound.into_iter().map(start).collect();
        Real { hosts, encapsulation, listener: None, peers: Vec::new() }
    }

    fn address(&self, host: usize) -> SocketAddr {
        self.hosts[host].control.listeners()[0].addr
    }

    fn events(&self, host: usize) -> &Receiver<Event> {
        &self.hosts[host].events
    }

    fn pass(&mut self, time: Duration) {
        std::thread::sleep(time);
    }

    fn send(&mut self, host: usize, worker: usize, to: Target, report: u64, bytes: &[u8]) {
        let bytes = bytes.to_vec();
        let job = move |out: &mut Outbox| out.push(to, report, |b| b.extend_from_slice(&bytes));
        assert!(self.hosts[host].control.mailboxes()[worker].try_post(Box::new(job)));
    }

    fn count(&mut self, host: usize, name: &str) -> u64 {
        let mut sum = None;
        for counters in self.hosts[host].control.counters() {
            counters.visit(&mut |n, _, value| {
                if n == name {
                    *sum.get_or_insert(0) += value;
                }
            });
        }
        sum.expect("a counter of that name")
    }

    fn connect(&mut self, host: usize) -> TcpStream {
        let stream = TcpStream::connect(self.address(host)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    fn listen(&mut self) -> SocketAddr {
        let listener = self
            .listener
            .get_or_insert_with(|| TcpListener::bind(SocketAddr::new(ip(PEER), 0)).unwrap());
        listener.local_addr().unwrap()
    }

    fn accept(&mut self) -> TcpStream {
        self.listener.as_ref().unwrap().accept().unwrap().0
    }

    fn write(&mut self, raw: &mut TcpStream, bytes: &[u8]) {
        raw.set_nonblocking(false).unwrap();
        raw.write_all(bytes).unwrap();
    }

    fn read(&mut self, raw: &mut TcpStream) -> Option<Vec<u8>> {
        raw.set_nonblocking(true).unwrap();
        let mut bytes = vec![0; 100_000];
        match raw.read(&mut bytes) {
            Ok(0) => None,
            Ok(count) => {
                bytes.truncate(count);
                Some(bytes)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Some(Vec::new()),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                None
            }
        }
    }

    fn close(&mut self, raw: TcpStream) {
        drop(raw);
    }

    fn associate(&mut self, host: usize, bytes: &[u8]) {
        let (local, remote) = (ip(PEER), self.address(host));
        let udp = self.encapsulation.local_addr().unwrap().port();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        // The successor has another UDP port, as behind a NAT: the first peer still holds its port.
        let own = if self.peers.is_empty() { udp } else { 0 };
        let settings = Settings::default();
        let work = async {
            let over = Over::Udp { locals: vec![local], port: own };
            let stack = Stack::new(StackConfig { settings, ..StackConfig::new(over) }).unwrap();
            let connect = Connect {
                local_port: PORT,
                encapsulation: udp,
                ..Connect::new(&[local], &[remote.ip()], remote.port())
            };
            let association = stack.connect(&connect).await.unwrap();
            association.send(bytes.to_vec(), &SendOptions::default()).await.unwrap();
            while association.statistics().is_ok_and(|s| s.unacknowledged > 0) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            (stack, association)
        };
        let timed = async { tokio::time::timeout(PATIENCE, work).await.expect("in time") };
        let (stack, association) = runtime.block_on(timed);
        // The peer stops without closing anything: its only thread is blocked.
        runtime.spawn(async { std::thread::sleep(2 * PATIENCE) });
        self.peers.push((runtime, stack, association));
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        for (runtime, ..) in self.peers.drain(..) {
            runtime.shutdown_background();
        }
    }
}

cases!(Real);
