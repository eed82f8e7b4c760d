//! SIP over SCTP (RFC 4168): endpoints against each other, and against SCTP stacks that are part of the test.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use ringway_net::{Bind, Config, Limits, MAX_SCTP_MESSAGE, sctp_settings};
use ringway_sansio::{CloseReason, Flow, Target, Transport};
use ringway_sctp_tokio::{
    Association, Config as StackConfig, Connect, Listener, Over, SendOptions, Settings, Stack,
};
use std::collections::BTreeMap;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use support::{Event, PATIENCE, Server, peer};
use tokio::runtime::Runtime;

const PORT: u16 = 5060;

fn ip(last: u8) -> IpAddr {
    IpAddr::from([127, 0, 0, last])
}

fn at(last: u8) -> SocketAddr {
    SocketAddr::new(ip(last), PORT)
}

/// A UDP port that all hosts of one test use, and no other test: it is reserved at this address.
fn udp_port() -> u16 {
    let held = std::net::UdpSocket::bind("127.0.0.250:0").unwrap();
    let port = held.local_addr().unwrap().port();
    std::mem::forget(held);
    port
}

fn config(udp: u16, addresses: &[u8]) -> Config {
    Config::new([Bind {
        transport: Transport::Sctp,
        addr: at(addresses[0]),
        more: addresses[1..].iter().map(|last| ip(*last)).collect(),
        encapsulation: Some(udp),
    }])
}

/// A server that sends no answers.
fn quiet(config: Config) -> Server {
    Server::start_with(config, |probe| probe.echo = false)
}

fn message(call: &str, size: usize) -> Vec<u8> {
    let mut m = format!("MESSAGE sip:a@b SIP/2.0\r\nCall-ID: {call}\r\n\r\n").into_bytes();
    m.resize(m.len().max(size), b'x');
    m
}

fn to(last: u8) -> Target {
    peer(Transport::Sctp, at(last))
}

/// An SCTP peer with its own runtime.
struct Other {
    runtime: Runtime,
    stack: Stack,
    listener: Listener,
    last: u8,
    udp: u16,
}

impl Other {
    fn new(udp: u16, last: u8) -> Other {
        Other::with(udp, last, Settings::default())
    }

    fn with(udp: u16, last: u8, settings: Settings) -> Other {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let (stack, listener) = runtime.block_on(async {
            let over = Over::Udp { locals: vec![ip(last)], port: udp };
            let stack = Stack::new(StackConfig { settings, ..StackConfig::new(over) }).unwrap();
            let listener = stack.listen(&[ip(last)], PORT, None).unwrap();
            (stack, listener)
        });
        Other { runtime, stack, listener, last, udp }
    }

    fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let timed = async { tokio::time::timeout(PATIENCE, work).await.expect("in time") };
        self.runtime.block_on(timed)
    }

    fn connect(&self, remote: u8) -> Association {
        self.connect_from(0, remote)
    }

    fn connect_from(&self, local_port: u16, remote: u8) -> Association {
        let connect = Connect {
            local_port,
            encapsulation: self.udp,
            ..Connect::new(&[ip(self.last)], &[ip(remote)], PORT)
        };
        self.run(self.stack.connect(&connect)).unwrap()
    }

    fn send(&self, association: &Association, stream: u16, bytes: &[u8]) {
        let options = SendOptions { stream, ..SendOptions::default() };
        self.run(association.send(bytes.to_vec(), &options)).unwrap();
    }

    fn recv(&self, association: &Association) -> (u16, Vec<u8>) {
        let message = self.run(association.recv()).unwrap().expect("a message");
        assert_eq!((message.ppid, message.unordered), (0, false), "RFC 4168 section 5");
        (message.stream, message.bytes.to_vec())
    }
}

/// RFC 6951 section 3: a UDP port carries all SCTP ports, so SIP and SIPS of one host share it.
#[test]
fn listeners_share_a_udp_port() {
    let udp = udp_port();
    let at = |port, last| Bind {
        transport: Transport::Sctp,
        addr: SocketAddr::new(ip(last), port),
        more: Vec::new(),
        encapsulation: Some(udp),
    };
    // The listeners may belong to any workers.
    let mut config = Config::new([at(PORT, 1), at(PORT + 1, 1)]);
    config.workers = 2;
    let server = quiet(config);
    let other = Other::new(udp, 2);
    for port in [PORT, PORT + 1] {
        let connect = Connect { encapsulation: udp, ..Connect::new(&[ip(2)], &[ip(1)], port) };
        let association = other.run(other.stack.connect(&connect)).unwrap();
        other.send(&association, 0, &message("call", 0));
        assert_eq!(server.wait_message().1.local.port(), port);
    }
    // Two listeners cannot share an SCTP port.
    let twice = ringway_net::bind::<()>(Config::new([at(PORT, 3), at(PORT, 3)]));
    let error = twice.err().expect("in use").to_string();
    assert!(error.contains("sctp port 5060"), "{error}");
}

/// An association is between two hosts (RFC 9260 section 1.2): other addresses are refused when listeners are bound.
#[test]
fn addresses_of_many_hosts_are_refused() {
    for many in ["224.0.0.1:5060", "255.255.255.255:5060", "[ff02::1]:5060"] {
        let bind = Bind {
            transport: Transport::Sctp,
            addr: many.parse().unwrap(),
            more: Vec::new(),
            encapsulation: Some(9899),
        };
        let error = ringway_net::bind::<()>(Config::new([bind])).err().expect("refused");
        let error = error.to_string();
        assert!(error.contains("expected a unicast address"), "{error}");
    }
}

/// RFC 3261 section 17.1.4: a request that SCTP has acknowledged, and whose receiver then ends without an answer.
#[test]
fn the_end_of_an_association_is_told_of_what_was_acknowledged() {
    let udp = udp_port();
    let (server, other) = (quiet(config(udp, &[1])), Other::new(udp, 2));
    server.send(0, to(2), 7, &message("call", 300));
    let association = other.run(other.listener.accept()).unwrap();
    other.recv(&association);
    // It is acknowledged at the latest by the shutdown, which is graceful.
    other.run(association.shutdown()).unwrap();
    let told = server.wait(|event| match event {
        Event::CutOff(number, _) => Some(*number),
        Event::NotSent(number, _) => panic!("{number} was sent"),
        _ => None,
    });
    assert_eq!(told, 7);
}

/// RFC 4168 section 5: both sides use one association, whichever opened it, at each of its addresses.
#[test]
fn one_association_serves_both_ways_and_all_addresses() {
    let udp = udp_port();
    let (a, b) = (quiet(config(udp, &[1, 3])), quiet(config(udp, &[2, 4])));
    a.send(0, to(2), 1, &message("one", 400));
    let (_, there, bytes) = b.wait_message();
    assert_eq!(bytes, message("one", 400));
    assert_eq!((there.transport, there.local, there.remote), (Transport::Sctp, at(2), at(1)));
    let (opened, peer) = a.wait_opened();
    assert!(!peer.inbound && opened.remote == at(2));
    // The responses are sent on the flow, and by address.
    b.send(0, Target::Flow(there), 1, &message("two", 400));
    assert_eq!(a.wait_message().2, message("two", 400));
    b.send(0, to(1), 1, &message("three", 40_000));
    assert_eq!(a.wait_message().2, message("three", 40_000));
    // The peer's second address is used once it is verified.
    let verified = |server: &Server, target: u8| {
        let end = std::time::Instant::now() + PATIENCE;
        loop {
            server.send(0, to(target), 7, &message("four", 400));
            std::thread::sleep(Duration::from_millis(20));
            if server.count("connected") + server.count("accepted") == 1 {
                return;
            }
            assert!(std::time::Instant::now() < end, "never found by its other address");
        }
    };
    verified(&a, 4);
    b.wait_message();
    a.wait_count("connected", 1);
    b.wait_count("accepted", 1);
    assert_eq!((a.count("accepted"), b.count("connected")), (0, 0));
    a.wait_count("connections", 1);
    b.wait_count("connections", 1);
    a.stop(PATIENCE);
    assert_eq!(b.wait_closed(), (there, CloseReason::Peer));
}

/// The worker that owns the SCTP listener sends for all workers.
#[test]
fn every_worker_can_send() {
    let udp = udp_port();
    let a = quiet(Config { workers: 3, ..config(udp, &[1]) });
    let b = quiet(config(udp, &[2]));
    for worker in 0..3 {
        let text = format!("from {worker}");
        a.send(worker, to(2), 1, &message(&text, 300));
        assert_eq!(b.wait_message().2, message(&text, 300));
    }
    a.send(2, to(77), 9, &message("nowhere", 300));
    assert_eq!(a.wait_not_sent(), 9);
    assert!(a.count("sends_handed_over") >= 2);
    a.wait_count("connect_failed", 1);
}

/// RFC 4168 section 5.1: messages of a call are sent on one stream, and received on any.
#[test]
fn each_call_has_a_stream_and_any_stream_is_taken() {
    let udp = udp_port();
    let server = Server::start(config(udp, &[1]));
    let other = Other::new(udp, 2);
    let association = other.connect(1);
    let mut streams = BTreeMap::new();
    for n in 0..200u16 {
        let call = format!("call-{}", n % 50);
        other.send(&association, n * 5, &message(&call, 200));
        let (stream, bytes) = other.recv(&association);
        assert_eq!(bytes, message(&call, 200));
        let first = *streams.entry(call).or_insert(stream);
        assert_eq!(first, stream);
    }
    let distinct: std::collections::BTreeSet<_> = streams.values().collect();
    assert!(distinct.len() > 40, "{distinct:?}");
    server.wait_count("stream_received", 200);
}

/// RFC 5626 section 4.4.1.
#[test]
fn keep_alives_are_answered_and_no_messages() {
    let udp = udp_port();
    let server = Server::start(config(udp, &[1]));
    let other = Other::new(udp, 2);
    let association = other.connect(1);
    other.send(&association, 0, b"\r\n\r\n");
    assert_eq!(other.recv(&association).1, b"\r\n");
    other.send(&association, 3, b"\r\n");
    other.send(&association, 3, &message("a", 100));
    assert_eq!(other.recv(&association).1, message("a", 100));
    server.wait_count("stream_keepalives", 2);
    server.wait_count("stream_received", 1);
}

/// SCTP preserves message boundaries, so a message that is too long affects no other.
#[test]
fn a_message_too_long_is_answered_and_the_association_goes_on() {
    let udp = udp_port();
    let server = Server::start(config(udp, &[1]));
    let other = Other::new(udp, 2);
    let association = other.connect(1);
    let longest = message("a", MAX_SCTP_MESSAGE);
    for size in [MAX_SCTP_MESSAGE + 1, 3 * MAX_SCTP_MESSAGE, 9 * MAX_SCTP_MESSAGE] {
        other.send(&association, 0, &message("b", size));
        other.send(&association, 0, &longest);
        assert!(other.recv(&association).1.starts_with(b"SIP/2.0 513 "));
        assert_eq!(other.recv(&association).1, longest);
    }
    server.wait_count("stream_malformed", 3);
    assert_eq!(server.count("closed_malformed"), 0);
}

/// A peer that does not read is disconnected, and delays no other peer.
#[test]
fn a_slow_peer_is_cut_off() {
    let udp = udp_port();
    let limits = Limits { write_queue: 200_000, ..Limits::default() };
    let server = quiet(Config { limits, ..config(udp, &[1]) });
    let (slow, quick) = (Other::new(udp, 2), Other::new(udp, 3));
    let (held, read) = (slow.connect(1), quick.connect(1));
    slow.send(&held, 0, &message("a", 100));
    quick.send(&read, 0, &message("b", 100));
    let mut flows: Vec<Flow> = (0..2).map(|_| server.wait_message().1).collect();
    flows.sort_by_key(|flow| flow.remote.ip());
    // More responses than both buffers and the queue hold; none may be dropped.
    let mut response = b"SIP/2.0 200 OK\r\nCall-ID: a\r\n\r\n".to_vec();
    response.resize(10_000, b'x');
    for n in 0..400 {
        server.send(0, Target::Flow(flows[0]), n + 1, &response);
    }
    let mut told = 0;
    let closed = server.wait(|event| match event {
        Event::NotSent(..) => {
            told += 1;
            None
        }
        Event::Closed { flow, reason } => Some((*flow, *reason)),
        _ => None,
    });
    assert_eq!(closed, (flows[0], CloseReason::SlowReader));
    assert!(told > 0);
    server.send(0, Target::Flow(flows[1]), 1, &message("b", 100));
    assert_eq!(quick.recv(&read).1, message("b", 100));
    // Aborted: a graceful shutdown would wait for the reader for ever.
    assert!(slow.run(async {
        loop {
            match held.recv().await {
                Ok(Some(_)) => {}
                Ok(None) => break false,
                Err(_) => break true,
            }
        }
    }));
    server.wait_count("closed_slow_reader", 1);
}

/// A server's responses fit the association's send buffer, and the peer never acknowledges them.
#[test]
fn a_window_that_stays_closed_is_not_waited_for() {
    let udp = udp_port();
    // Much longer than the delay of an acknowledgement (RFC 9260 section 6.2), and than a thread may wait to
    // be scheduled.
    let limits = Limits { write_stall: Duration::from_secs(1), ..Limits::default() };
    let server = Server::start(Config { limits, ..config(udp, &[1]) });
    let settings = Settings { receive_buffer: 5_000, ..Settings::default() };
    let (closed, open) = (Other::with(udp, 2, settings), Other::with(udp, 3, Settings::default()));
    let (held, read) = (closed.connect(1), open.connect(1));
    for n in 0..20 {
        // On a slow machine the server disconnects before the last message.
        let _ = closed.run(held.send(message("a", 1_000), &SendOptions::default()));
        open.send(&read, 0, &message("b", 1_000));
        assert_eq!(open.recv(&read).1, message("b", 1_000), "{n}");
    }
    let (flow, reason) = server.wait_closed();
    assert_eq!((flow.remote.ip(), reason), (ip(2), CloseReason::SlowReader));
    server.wait_count("closed_slow_reader", 1);
    // A peer that sends nothing is not a slow reader.
    open.send(&read, 0, &message("c", 100));
    assert_eq!(open.recv(&read).1, message("c", 100));
}

#[test]
fn what_cannot_be_had_is_told_in_a_line() {
    let udp = udp_port();
    let _first = quiet(config(udp, &[1]));
    let error = ringway_net::bind::<()>(config(udp, &[1])).err().unwrap();
    let expected = format!(
        "sctp+udp://127.0.0.1:5060?encap={udp}: sctp over udp at 127.0.0.1:{udp}: address in use"
    );
    assert_eq!(error.to_string(), expected);
    let mut nowhere = config(udp, &[1]);
    nowhere.listen[0].encapsulation = None;
    nowhere.listen[0].addr.set_ip("192.0.2.9".parse().unwrap());
    let error = ringway_net::bind::<()>(nowhere).err().unwrap();
    assert_eq!(error.to_string(), "sctp://192.0.2.9:5060: no such address on this host");
    assert_eq!(sctp_settings(Settings::default()).check(), Ok(()));
}

/// When the peer's host disappears, queued messages are reported as not sent.
#[test]
fn a_peer_that_is_gone_is_told() {
    let udp = udp_port();
    let server = quiet(config(udp, &[1]));
    let other = Other::new(udp, 2);
    server.send(0, to(2), 1, &message("a", 100));
    let association = other.run(other.listener.accept()).unwrap();
    assert_eq!(other.recv(&association).1, message("a", 100));
    let (flow, _) = server.wait_opened();
    association.abort(b"bye").unwrap();
    assert_eq!(server.wait_closed(), (flow, CloseReason::Broken));
    server.send(0, Target::Flow(flow), 5, &message("a", 100));
    assert_eq!(server.wait_not_sent(), 5);
    // A new one is opened on demand.
    server.send(0, to(2), 6, &message("b", 100));
    let association = other.run(other.listener.accept()).unwrap();
    assert_eq!(other.recv(&association).1, message("b", 100));
}

/// RFC 9260 section 5.2.4.1: a restarted peer opens the same association again. The flow of its predecessor is
/// closed; the association continues as a new flow.
#[test]
fn a_peer_that_began_anew_is_another_flow() {
    let udp = udp_port();
    let server = Server::start(config(udp, &[1]));
    let first = Other::new(udp, 2);
    let association = first.connect_from(PORT, 1);
    first.send(&association, 0, &message("a", 100));
    let (_, flow, _) = server.wait_message();
    // The peer stops without closing anything: its only thread is blocked.
    let (release, wait) = std::sync::mpsc::channel::<()>();
    first.runtime.spawn(async move { wait.recv() });
    let second = Other { udp, ..Other::new(udp_port(), 2) };
    let association = second.connect_from(PORT, 1);
    second.send(&association, 0, &message("b", 100));
    assert_eq!(server.wait_closed(), (flow, CloseReason::Restarted));
    let (_, other, bytes) = server.wait_message();
    assert_eq!(bytes, message("b", 100));
    assert!(other.id != flow.id && other.remote == flow.remote);
    assert_eq!(second.recv(&association).1, message("b", 100));
    // It is found by address as before, and no association is opened.
    server.send(0, to(2), 1, &message("c", 100));
    assert_eq!(second.recv(&association).1, message("c", 100));
    assert_eq!((server.count("connected"), server.count("accepted")), (0, 2));
    drop(release);
}
