//! Flows that have ended: a message sent on one is reported at once, so that its sender can open another
//! (RFC 3261 sections 18.1.1 and 18.2.2).

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use ringway_net::{Bind, Config, Limits};
use ringway_sansio::{CloseReason, Flow, FlowId, Target, Transport};
use socket2::{Domain, Socket, Type};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use support::{Event, PATIENCE, Server, listen, peer, sip};

const WORKERS: usize = 3;

/// Much shorter than the 32 s of a transaction.
const AT_ONCE: Duration = Duration::from_secs(5);

fn quiet(config: Config) -> Server {
    Server::start_with(config, |probe| probe.echo = false)
}

/// Sends requests and responses on a flow from each worker; each must be reported to the worker that sent it.
fn all_are_reported(server: &Server, flow: Flow) {
    let begun = Instant::now();
    let response = b"SIP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n";
    let mut wanted = Vec::new();
    for worker in 0..server.control.mailboxes().len() {
        let number = 10 * worker as u64;
        server.send(worker, Target::Flow(flow), number + 1, &sip("late", 3));
        server.send(worker, Target::Flow(flow), number + 2, response);
        wanted.extend([1, 2].map(|n| (number + n, worker as u8)));
    }
    let mut reported: Vec<(u64, u8)> = Vec::new();
    while reported.len() < wanted.len() {
        let left = AT_ONCE.saturating_sub(begun.elapsed());
        match server.events.recv_timeout(left).expect("a report at once") {
            Event::NotSent(number, worker) => reported.push((number, worker)),
            Event::CutOff(..) => panic!("what was never sent cannot be cut off"),
            _ => {}
        }
    }
    reported.sort_unstable();
    assert_eq!(reported, wanted);
}

/// A connection over TCP and how it ends, as seen from a server with several workers.
fn tcp_flow_that_ends(limits: Limits, end: impl FnOnce(TcpStream)) -> (Server, Flow, CloseReason) {
    let mut config = listen(&[(Transport::Tcp, "127.0.0.1:0")]);
    (config.workers, config.limits) = (WORKERS, limits);
    let server = quiet(config);
    let stream = TcpStream::connect(server.addr(0)).unwrap();
    let (flow, _) = server.wait_opened();
    end(stream);
    let (closed, reason) = server.wait_closed();
    assert_eq!(closed, flow);
    (server, flow, reason)
}

#[test]
fn what_is_sent_on_a_connection_that_the_peer_closed_is_reported() {
    let (server, flow, reason) = tcp_flow_that_ends(Limits::default(), drop);
    assert_eq!(reason, CloseReason::Peer);
    all_are_reported(&server, flow);
}

#[test]
fn what_is_sent_on_a_connection_that_was_idle_is_reported() {
    let limits = Limits { idle: Duration::from_millis(100), ..Limits::default() };
    let (server, flow, reason) = tcp_flow_that_ends(limits, |mut stream| {
        // The peer closes when it sees the server's end of stream.
        assert_eq!(std::io::Read::read(&mut stream, &mut [0]).unwrap(), 0);
    });
    assert_eq!(reason, CloseReason::Idle);
    all_are_reported(&server, flow);
}

/// A flow id that was stored by an earlier process, perhaps with more workers, names no connection.
#[test]
fn what_is_sent_on_a_flow_that_never_was_is_reported() {
    let (server, flow, _) = tcp_flow_that_ends(Limits::default(), drop);
    for worker in [0, 1, WORKERS as u8, 254] {
        for transport in [Transport::Tcp, Transport::Tls, Transport::Wss, Transport::Sctp] {
            let id = FlowId::new(worker, 12_345 << 20);
            all_are_reported(&server, Flow { id, transport, ..flow });
        }
    }
}

fn at(last: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::from([127, 0, 3, last]), 5060)
}

fn sctp(last: u8, udp: u16) -> Config {
    let encapsulation = Some(udp);
    Config::new([Bind { encapsulation, ..Bind::at(Transport::Sctp, at(last)) }])
}

/// RFC 4168: the same over SCTP, where one worker owns the associations of all; the next message opens a new one.
#[test]
fn what_is_sent_on_an_association_that_ended_is_reported() {
    let held = std::net::UdpSocket::bind("127.0.3.250:0").unwrap();
    let udp = held.local_addr().unwrap().port();
    let mut config = sctp(1, udp);
    (config.workers, config.limits.idle) = (WORKERS, Duration::from_millis(300));
    let (server, other) = (quiet(config), quiet(sctp(2, udp)));
    for round in 0..2 {
        other.send(0, peer(Transport::Sctp, at(1)), 0, &sip("hello", 3));
        let (_, flow, _) = server.wait_message();
        assert_eq!(server.wait_closed(), (flow, CloseReason::Idle), "{round}");
        other.wait_closed();
        all_are_reported(&server, flow);
        server.send(WORKERS - 1, peer(Transport::Sctp, at(2)), 7, &sip("again", 3));
        assert_eq!(other.wait_message().2, sip("again", 3));
        server.wait_closed();
        other.wait_closed();
    }
}

/// RFC 3261 section 18.2.2: while a connection that the server opened waits for the peer to close its side, it
/// accepts no messages; a message for that peer's address opens a new connection, from any worker.
#[test]
fn a_message_for_a_peer_whose_connection_is_ending_opens_another() {
    for worker in 0..WORKERS {
        let limits = Limits { idle: Duration::from_millis(100), ..Limits::default() };
        let mut config = listen(&[(Transport::Tcp, "127.0.0.1:0")]);
        (config.workers, config.limits) = (WORKERS, limits);
        let server = quiet(config);
        // The peer connects from the port at which it listens.
        let shared = || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_reuse_address(true).unwrap();
            socket.set_reuse_port(true).unwrap();
            socket
        };
        let listener = shared();
        listener.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
        let addr = listener.local_addr().unwrap();
        let first = shared();
        first.bind(&addr).unwrap();
        listener.listen(4).unwrap();
        first.connect(&server.addr(0).into()).unwrap();
        server.wait_opened();
        // The peer has received the end of stream, and keeps its side open.
        let mut first = TcpStream::from(first);
        first.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(std::io::Read::read(&mut first, &mut [0]).unwrap(), 0);
        let to = peer(Transport::Tcp, addr.as_socket().unwrap());
        server.send(worker, to, 3, &sip("anew", 3));
        let listener = TcpListener::from(listener);
        listener.set_nonblocking(true).unwrap();
        let begun = Instant::now();
        let mut second = loop {
            if let Ok((stream, _)) = listener.accept() {
                break stream;
            }
            assert!(begun.elapsed() < AT_ONCE, "worker {worker} opened no connection");
            std::thread::sleep(Duration::from_millis(1));
        };
        second.set_nonblocking(false).unwrap();
        let mut got = vec![0; sip("anew", 3).len()];
        std::io::Read::read_exact(&mut second, &mut got).unwrap();
        assert_eq!(got, sip("anew", 3));
        drop(first);
    }
}
