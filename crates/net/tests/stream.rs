//! TCP over loopback.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use ringway_flow::limits::MAX_MALFORMED;
use ringway_net::{Config, Limits};
use ringway_sansio::{Backlog, CloseReason, Flow, Target, Transport};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::{Event, PATIENCE, Server, listen, peer, request, sip};

const SHORT: Duration = Duration::from_millis(250);

fn tcp(limits: Limits) -> Config {
    let mut config = listen(&[(Transport::Tcp, "127.0.0.1:0")]);
    config.limits = limits;
    config
}

fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn read(stream: &mut TcpStream, n: usize) -> Vec<u8> {
    let mut bytes = vec![0; n];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

/// Returns everything received until the peer closes, gracefully or by a reset.
fn read_to_close(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
    bytes
}

/// RFC 3261 section 18.3.
#[test]
fn messages_are_found_however_the_stream_is_cut() {
    let server = Server::start(tcp(Limits::default()));
    let mut stream = connect(server.addr(0));
    let (flow, opened) = server.wait_opened();
    assert!(opened.inbound && opened.domains.is_empty());
    assert_eq!((flow.remote, flow.local), (stream.local_addr().unwrap(), server.addr(0)));
    let (a, b, c) = (sip("a", 10), sip("b", 0), sip("c", 40_000));
    let all = [a.clone(), b.clone(), c.clone()].concat();
    stream.write_all(&all).unwrap();
    for want in [&a, &b, &c] {
        let (_, from, bytes) = server.wait_message();
        assert_eq!((from, &bytes), (flow, want));
    }
    assert_eq!(read(&mut stream, all.len()), all);
    for byte in &a {
        stream.write_all(&[*byte]).unwrap();
    }
    assert_eq!(server.wait_message().2, a);
    assert_eq!(read(&mut stream, a.len()), a);
    drop(stream);
    assert_eq!(server.wait_closed(), (flow, CloseReason::Peer));
    server.wait_count("stream_received", 4);
    server.wait_count("stream_sent", 4);
    server.wait_count("connections", 0);
}

/// RFC 5626 section 4.4.1.
#[test]
fn a_ping_is_answered_with_a_pong() {
    let server = Server::start(tcp(Limits::default()));
    let mut stream = connect(server.addr(0));
    stream.write_all(b"\r\n\r\n").unwrap();
    assert_eq!(read(&mut stream, 2), b"\r\n");
}

#[test]
fn what_cannot_be_framed_is_answered_and_closed() {
    let server = Server::start(tcp(Limits::default()));
    let mut stream = connect(server.addr(0));
    let bytes = b"OPTIONS sip:a@b SIP/2.0\r\nCall-ID: x\r\nContent-Length: many\r\n\r\nrest";
    stream.write_all(bytes).unwrap();
    let (status, head) = server.wait(|e| match e {
        Event::Malformed { status, head, .. } => Some((*status, head.clone())),
        _ => None,
    });
    assert_eq!(status, 400);
    assert!(head.starts_with(b"OPTIONS sip:a@b SIP/2.0\r\nCall-ID: x\r\n"));
    assert_eq!(read_to_close(&mut stream), b"SIP/2.0 400 No\r\n\r\n");
    drop(stream);
    assert_eq!(server.wait_closed().1, CloseReason::Malformed);
    server.wait_count("closed_malformed", 1);
}

/// RFC 3261 section 18.3: the Content-Length determines the end of a message, even if the rest is malformed, so a
/// message that cannot be parsed costs neither the connection nor the messages after it.
#[test]
fn a_malformed_message_is_answered_and_the_connection_serves_on() {
    let server = Server::start(tcp(Limits::default()));
    let mut stream = connect(server.addr(0));
    let (before, behind) = (sip("before", 3), sip("behind", 3));
    for (bad, status, head) in [
        (
            "INVITE sip:a@b\r\nCall-ID: x\r\nContent-Length: 4\r\n\r\nbody".to_owned(),
            400,
            "INVALID sip:invalid SIP/2.0\r\nCall-ID: x\r\nContent-Length: 4\r\n\r\n",
        ),
        ("SIP/2.0 OK\r\nl: 0\r\n\r\n".to_owned(), 400, "SIP/2.0 OK\r\nl: 0\r\n\r\n"),
        (
            format!("BYE sip:a SIP/2.0\r\nl: 60000\r\n\r\n{}", "b".repeat(60_000)),
            413,
            "BYE sip:a SIP/2.0\r\nl: 60000\r\n\r\n",
        ),
    ] {
        let all = [&before[..], bad.as_bytes(), &behind].concat();
        stream.write_all(&all).unwrap();
        assert_eq!(server.wait_message().2, before);
        let answered = server.wait(|e| match e {
            Event::Malformed { status, head, .. } => Some((*status, head.clone())),
            _ => None,
        });
        assert_eq!(answered, (status, head.as_bytes().to_vec()));
        assert_eq!(server.wait_message().2, behind);
        let answer = format!("SIP/2.0 {status} No\r\n\r\n").into_bytes();
        let all = [&before[..], &answer, &behind].concat();
        assert_eq!(read(&mut stream, all.len()), all);
    }
    assert_eq!((server.count("stream_malformed"), server.count("closed_malformed")), (3, 0));
}

#[test]
fn too_many_malformed_messages_end_the_connection() {
    let server = Server::start(tcp(Limits::default()));
    let mut stream = connect(server.addr(0));
    let bad = b"INVITE sip:a@b\r\nContent-Length: 0\r\n\r\n";
    stream.write_all(&bad.repeat(MAX_MALFORMED as usize + 1)).unwrap();
    let answers = read_to_close(&mut stream);
    assert_eq!(answers, b"SIP/2.0 400 No\r\n\r\n".repeat(MAX_MALFORMED as usize + 1));
    drop(stream);
    assert_eq!(server.wait_closed().1, CloseReason::Malformed);
    server.wait_count("closed_malformed", 1);
}

#[test]
fn a_message_that_comes_too_slowly_is_answered_408_and_closed() {
    let server = Server::start(tcp(Limits { partial: SHORT, ..Limits::default() }));
    let mut stream = connect(server.addr(0));
    let message = sip("slow", 100);
    let begun = Instant::now();
    stream.write_all(&message[..message.len() - 50]).unwrap();
    let (status, head) = server.wait(|e| match e {
        Event::Malformed { status, head, .. } => Some((*status, head.clone())),
        _ => None,
    });
    assert_eq!((status, head.as_slice()), (408, &message[..message.len() - 50]));
    assert!(begun.elapsed() >= SHORT - Duration::from_millis(20));
    assert_eq!(read_to_close(&mut stream), b"SIP/2.0 408 No\r\n\r\n");
    drop(stream);
    assert_eq!(server.wait_closed().1, CloseReason::Slow);
    server.wait_count("closed_slow", 1);
}

#[test]
fn a_connection_that_never_speaks_is_closed() {
    let server = Server::start(tcp(Limits { first_message: SHORT, ..Limits::default() }));
    // When both are accepted, their messages are already in the receive buffer.
    let held = server.hold(0);
    let mut quiet = connect(server.addr(0));
    let mut speaking = connect(server.addr(0));
    // A keep-alive does not count as a message.
    quiet.write_all(b"\r\n\r\n").unwrap();
    speaking.write_all(&sip("s", 0)).unwrap();
    drop(held);
    let (flow, reason) = server.wait_closed();
    assert_eq!((flow.remote, reason), (quiet.local_addr().unwrap(), CloseReason::HalfOpen));
    assert_eq!(read_to_close(&mut quiet), b"\r\n");
    read(&mut speaking, sip("s", 0).len());
    speaking.write_all(&sip("t", 0)).unwrap();
    read(&mut speaking, sip("t", 0).len());
}

#[test]
fn the_oldest_of_too_many_silent_connections_makes_room() {
    let server = Server::start(tcp(Limits { half_open: 3, ..Limits::default() }));
    let mut speaking = connect(server.addr(0));
    speaking.write_all(&sip("s", 0)).unwrap();
    read(&mut speaking, sip("s", 0).len());
    let silent: Vec<_> = (0..5).map(|_| connect(server.addr(0))).collect();
    // The two may end in either order.
    let mut closed = [server.wait_closed(), server.wait_closed()].map(|(flow, reason)| {
        assert_eq!(reason, CloseReason::HalfOpen);
        flow.remote
    });
    let mut oldest = [&silent[0], &silent[1]].map(|stream| stream.local_addr().unwrap());
    closed.sort();
    oldest.sort();
    assert_eq!(closed, oldest);
    server.wait_count("connections", 4);
    speaking.write_all(&sip("t", 0)).unwrap();
    read(&mut speaking, sip("t", 0).len());
}

#[test]
fn silence_ends_a_connection_and_keep_alives_do_not() {
    while !keep_alives_outlive_silence() {}
}

/// Returns whether the test was meaningful: it is not if this machine paused for longer than the idle limit.
fn keep_alives_outlive_silence() -> bool {
    let idle = Duration::from_millis(400);
    let server = Server::start(tcp(Limits { idle, ..Limits::default() }));
    let echoes = |stream: &mut TcpStream, said: &[u8], answer: &[u8]| {
        let mut heard = vec![0; answer.len()];
        stream.write_all(said).is_ok() && stream.read_exact(&mut heard).is_ok() && heard == answer
    };
    let message = sip("s", 0);
    let mut silent = connect(server.addr(0));
    let mut spoke = Instant::now();
    if !echoes(&mut silent, &message, &message) {
        assert!(spoke.elapsed() >= idle, "closed at once");
        return false;
    }
    let begun = Instant::now();
    let mut alive = connect(server.addr(0));
    while begun.elapsed() < 3 * idle {
        let now = Instant::now();
        if !echoes(&mut alive, b"\r\n\r\n", b"\r\n") {
            assert!(spoke.elapsed() >= idle, "closed in spite of keep-alives");
            return false;
        }
        spoke = now;
        std::thread::sleep(idle / 8);
    }
    let (flow, reason) = server.wait_closed();
    assert_eq!((flow.remote, reason), (silent.local_addr().unwrap(), CloseReason::Idle));
    assert_eq!(read_to_close(&mut silent), b"");
    true
}

#[test]
fn one_source_gets_its_share_and_no_more() {
    let server = Server::start(tcp(Limits { connections_per_source: 2, ..Limits::default() }));
    let first = connect(server.addr(0));
    let _second = connect(server.addr(0));
    server.wait_opened();
    server.wait_opened();
    let mut third = connect(server.addr(0));
    assert_eq!(read_to_close(&mut third), b"");
    server.wait_count("refused_source", 1);
    drop(first);
    server.wait_closed();
    let mut fourth = connect(server.addr(0));
    fourth.write_all(b"\r\n\r\n").unwrap();
    assert_eq!(read(&mut fourth, 2), b"\r\n");
}

#[test]
fn the_total_is_bounded() {
    let server = Server::start(tcp(Limits { connections: 1, ..Limits::default() }));
    let _first = connect(server.addr(0));
    server.wait_opened();
    assert_eq!(read_to_close(&mut connect(server.addr(0))), b"");
    // Outbound connections count too.
    server.send(0, peer(Transport::Tcp, server.addr(0)), 3, &sip("x", 0));
    assert_eq!(server.wait_not_sent(), 3);
    server.wait_count("refused_full", 2);
}

#[test]
fn a_slow_reader_is_cut_off_and_delays_nobody() {
    let server = Server::start(tcp(Limits { write_queue: 200_000, ..Limits::default() }));
    let slow = connect(server.addr(0));
    let (flow, _) = server.wait_opened();
    let mut quick = connect(server.addr(0));
    let large = request("BYE", "large", 50_000);
    let begun = Instant::now();
    let mut report = 0;
    let failed = loop {
        report += 1;
        server.send(0, Target::Flow(flow), report, &large);
        quick.write_all(&sip("q", 0)).unwrap();
        assert_eq!(read(&mut quick, sip("q", 0).len()), sip("q", 0));
        if let Some(n) = server.events.try_iter().find_map(|e| match e {
            Event::NotSent(n, _) => Some(n),
            _ => None,
        }) {
            break n;
        }
        assert!(begun.elapsed() < PATIENCE, "never full");
    };
    assert!(failed <= report);
    assert_eq!(server.wait_closed(), (flow, CloseReason::SlowReader));
    server.wait_count("closed_slow_reader", 1);
    // It is closed: the next message fails at once.
    server.send(0, Target::Flow(flow), 1_000_000, &large);
    assert_eq!(
        server.wait(|e| match e {
            Event::NotSent(n, _) if *n == 1_000_000 => Some(*n),
            _ => None,
        }),
        1_000_000
    );
    drop(slow);
}

/// When half of the queue is used, messages that begin a transaction or dialog are not sent; those that belong to
/// an existing one are, and the connection stays open.
#[test]
fn half_of_a_queue_is_kept_for_what_has_begun() {
    let server = Server::start(tcp(Limits { write_queue: 1 << 20, ..Limits::default() }));
    let mut slow = connect(server.addr(0));
    let (flow, _) = server.wait_opened();
    let new = request("INVITE", "new", 50_000);
    let mut sent = 0;
    loop {
        server.send(0, Target::Flow(flow), sent + 1, &new);
        server.settle(0);
        let refused = server.events.try_iter().find_map(|event| match event {
            Event::NotSent(n, _) => Some(n),
            _ => None,
        });
        if let Some(n) = refused {
            break assert_eq!(n, sent + 1);
        }
        sent += 1;
        assert!(sent < 10_000, "never full");
    }
    let old = request("BYE", "old", 50_000);
    server.send(0, Target::Flow(flow), 0, &old);
    for _ in 0..sent {
        assert_eq!(read(&mut slow, new.len()), new);
    }
    assert_eq!(read(&mut slow, old.len()), old);
    assert_eq!(server.count("closed_slow_reader"), 0);
}

/// The unread bytes of a connection are reported for overload control, and so is that they were read.
#[test]
fn what_is_not_read_yet_is_told() {
    let server = Server::start_with(tcp(Limits::default()), |p| p.echo = false);
    let mut busy = connect(server.addr(0));
    server.wait_opened();
    let message = sip("many", 1_000);
    let pause = Duration::from_micros(100);
    server.post(0, move |probe, _, _| probe.pause = pause);
    let count = 4_000;
    let many = message.repeat(count);
    let writing = std::thread::spawn(move || busy.write_all(&many).map(|()| busy));
    let (mut told, mut heard) = (Vec::new(), 0);
    while heard < count {
        match server.events.recv_timeout(PATIENCE).unwrap() {
            Event::Batch(backlog) => told.push(backlog),
            Event::Message { .. } => heard += 1,
            _ => {}
        }
    }
    writing.join().unwrap().unwrap();
    // The number of unread bytes, and so the estimated wait, depends on the receive window of the system.
    assert!(told.iter().any(|b| b.messages > 0), "{told:?}");
    assert!(told.iter().all(|b| b.delay < PATIENCE), "{told:?}");
    let last = server.wait(|e| match e {
        Event::Batch(backlog) if backlog.messages == 0 => Some(*backlog),
        _ => None,
    });
    assert_eq!(last, Backlog::default());
}

#[test]
fn a_peer_that_takes_nothing_for_too_long_is_cut_off() {
    let limits = Limits { write_stall: SHORT, write_queue: 64 << 20, ..Limits::default() };
    let server = Server::start(tcp(limits));
    let slow = connect(server.addr(0));
    let (flow, _) = server.wait_opened();
    let message = sip("large", 50_000);
    server.post(0, move |_, _, out| {
        for report in 1..=400 {
            out.push(Target::Flow(flow), report, |b| b.extend_from_slice(&message));
        }
    });
    assert_eq!(server.wait_closed(), (flow, CloseReason::SlowReader));
    server.wait_not_sent();
    drop(slow);
}

/// RFC 3261 section 18, RFC 5923: one connection for all messages to a peer.
#[test]
fn messages_wait_for_a_connection_and_share_it() {
    let a = Server::start_with(tcp(Limits::default()), |p| p.echo = false);
    let b = Server::start(tcp(Limits::default()));
    let to = peer(Transport::Tcp, b.addr(0));
    let target = to.clone();
    a.post(0, move |_, _, out| {
        for n in 0..20 {
            out.push(target.clone(), 0, |x| x.extend_from_slice(&sip(&n.to_string(), n)));
        }
    });
    for n in 0..20 {
        assert_eq!(b.wait_message().2, sip(&n.to_string(), n));
    }
    for n in 0..20 {
        assert_eq!(a.wait_message().2, sip(&n.to_string(), n));
    }
    a.send(0, to, 0, &sip("again", 1));
    assert_eq!(b.wait_message().2, sip("again", 1));
    a.wait_count("connected", 1);
    b.wait_count("accepted", 1);
    // In the other direction the same connection is found by its remote address.
    let flow = a.wait_message().1;
    assert!(flow.local.port() != 0 && flow.remote == b.addr(0));
    b.send(0, peer(Transport::Tcp, flow.local), 0, &sip("back", 1));
    assert_eq!(a.wait_message().2, sip("back", 1));
    b.wait_count("connected", 0);
}

#[test]
fn a_refused_connection_fails_every_message_that_asked() {
    let server = Server::start(tcp(Limits::default()));
    // Bound, which reserves the port, and not listening.
    let held = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    held.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    let closed = held.local_addr().unwrap().as_socket().unwrap();
    server.post(0, move |_, _, out| {
        for report in [0, 1, 2] {
            out.push(peer(Transport::Tcp, closed), report, |b| b.extend_from_slice(&sip("x", 0)));
        }
    });
    assert_eq!((server.wait_not_sent(), server.wait_not_sent()), (1, 2));
    server.wait_count("connect_failed", 1);
    server.wait_count("connections", 0);
    for transport in [Transport::Ws, Transport::Sctp, Transport::Tls] {
        server.send(0, peer(transport, closed), 9, &sip("x", 0));
        assert_eq!(server.wait_not_sent(), 9);
    }
}

#[test]
fn connecting_takes_only_so_long() {
    let server = Server::start(tcp(Limits { connect: SHORT, ..Limits::default() }));
    // A listener that does not accept, with a full queue.
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    full.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    full.listen(0).unwrap();
    let addr = full.local_addr().unwrap().as_socket().unwrap();
    let fillers: Vec<_> = (0..3)
        .map(|n| {
            let s = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
            let s = s.unwrap();
            // The first connection is open when the others are needed.
            s.set_nonblocking(n > 0).unwrap();
            let _ = s.connect(&addr.into());
            s
        })
        .collect();
    let begun = Instant::now();
    server.send(0, peer(Transport::Tcp, addr), 4, &sip("x", 0));
    assert_eq!(server.wait_not_sent(), 4);
    assert!(begun.elapsed() >= SHORT - Duration::from_millis(20));
    drop(fillers);
}

#[test]
fn a_message_for_another_workers_connection_is_handed_over() {
    let mut config = tcp(Limits::default());
    config.workers = 2;
    let server = Server::start_with(config, |p| p.echo = false);
    let mut stream = connect(server.addr(0));
    let (flow, _) = server.wait_opened();
    let other = 1 - flow.id.worker() as usize;
    server.send(other, Target::Flow(flow), 1, &sip("over", 3));
    assert_eq!(read(&mut stream, sip("over", 3).len()), sip("over", 3));
    // It is found by address as well, whichever worker owns it.
    server.send(other, peer(Transport::Tcp, flow.remote), 2, &sip("by", 3));
    assert_eq!(read(&mut stream, sip("by", 3).len()), sip("by", 3));
    server.wait_count("sends_handed_over", 2);
    drop(stream);
    server.wait_closed();
    // The failure is reported to the worker that sent the message.
    server.send(other, Target::Flow(flow), 3, &sip("late", 3));
    assert_eq!(server.wait_not_sent(), 3);
}

/// A message that was handed over and still waits when the connection ends is reported to the worker that sent
/// it: two workers may use the same report numbers.
#[test]
fn what_waited_on_another_workers_connection_is_told() {
    let mut config = tcp(Limits::default());
    config.workers = 2;
    let server = Server::start_with(config, |p| p.echo = false);
    let stream = connect(server.addr(0));
    let (flow, _) = server.wait_opened();
    let other = 1 - flow.id.worker();
    // The worker finds all at once: three messages, the last without room, and a reset.
    let held = server.hold(flow.id.worker().into());
    let message = sip("waits", 100_000);
    for number in 1..=3 {
        server.send(other.into(), Target::Flow(flow), number, &message);
    }
    server.settle(other.into());
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
    wait_reset(&flow);
    drop(held);
    for number in [3, 1, 2] {
        let told = server.wait(|event| match event {
            Event::NotSent(number, worker) => Some((*number, *worker)),
            _ => None,
        });
        assert_eq!(told, (number, other));
    }
}

/// Waits until the reset has reached the server's socket: the system no longer lists it.
fn wait_reset(flow: &Flow) {
    let hex = |addr: SocketAddr| match addr {
        SocketAddr::V4(addr) => {
            format!("{:08X}:{:04X}", u32::from_ne_bytes(addr.ip().octets()), addr.port())
        }
        SocketAddr::V6(addr) => panic!("{addr} stands in another list"),
    };
    let line = format!(" {} {} ", hex(flow.local), hex(flow.remote));
    let end = Instant::now() + PATIENCE;
    while std::fs::read_to_string("/proc/net/tcp").unwrap().contains(&line) {
        assert!(Instant::now() < end, "no reset came");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// RFC 3261 section 17.1.4: when a connection closes, the requests that were sent on it and not answered are
/// reported to their worker. Responses are not reported.
#[test]
fn the_end_of_a_connection_is_told_of_each_request_that_left_by_it() {
    let mut config = tcp(Limits::default());
    config.workers = 2;
    let server = Server::start_with(config, |p| p.echo = false);
    let mut stream = connect(server.addr(0));
    let (flow, _) = server.wait_opened();
    let own = flow.id.worker();
    let mut send = |worker: u8, number, bytes: &[u8]| {
        server.send(worker.into(), Target::Flow(flow), number, bytes);
        assert_eq!(read(&mut stream, bytes.len()), bytes);
    };
    send(own, 1, &sip("first", 3));
    send(own, 2, b"SIP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n");
    send(1 - own, 3, &sip("of another", 3));
    send(own, 0, &sip("of nobody", 3));
    send(own, 4, &sip("last", 3));
    drop(stream);
    let mut told = Vec::new();
    while told.len() < 3 {
        told.extend(server.wait(|event| match event {
            Event::CutOff(number, worker) => Some(Some((*number, *worker))),
            Event::NotSent(number, _) => panic!("{number} was sent"),
            _ => Some(None),
        }));
    }
    told.sort_unstable();
    assert_eq!(told, [(1, own), (3, 1 - own), (4, own)]);
}

#[test]
fn a_flood_on_one_connection_leaves_turns_for_others() {
    let server = Server::start_with(tcp(Limits::default()), |p| (p.tell, p.echo) = (false, true));
    let addr = server.addr(0);
    let over = Over::default();
    let going = over.clone();
    let flood = std::thread::spawn(move || {
        let stream = connect(addr);
        let mut reader = stream.try_clone().unwrap();
        let reading = std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while reader.read(&mut buffer).is_ok_and(|n| n > 0) {}
        });
        let mut writer = &stream;
        let block = sip("flood", 100).repeat(500);
        while !going.is_set() {
            writer.write_all(&block).unwrap();
        }
        stream.shutdown(std::net::Shutdown::Both).unwrap();
        reading.join().unwrap();
    });
    let mut other = connect(addr);
    for _ in 0..5 {
        other.write_all(&sip("o", 0)).unwrap();
        read(&mut other, sip("o", 0).len());
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(over);
    flood.join().unwrap();
}

/// A test holds this while its flood continues. A worker that served nothing else would keep the test from ending.
#[derive(Clone, Default)]
struct Over(Arc<AtomicBool>);

impl Over {
    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Over {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Floods one transport until single messages have been answered over the other.
fn beside_a_flood(datagrams: bool) {
    let config = listen(&[(Transport::Tcp, "127.0.0.1:0"), (Transport::Udp, "127.0.0.1:0")]);
    let server = Server::start_with(config, |p| p.tell = false);
    let (tcp, udp) = (server.addr(0), server.addr(1));
    let over = Over::default();
    let going = over.clone();
    let flood = std::thread::spawn(move || {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let stream = connect(tcp);
        stream.set_nonblocking(true).unwrap();
        let block = sip("flood", 1_000).repeat(30);
        let mut buffer = vec![0; 1 << 16];
        let mut at = 0;
        while !going.is_set() {
            if datagrams {
                for _ in 0..64 {
                    let _ = socket.send_to(&[b'x'; 600], udp);
                }
            } else {
                // As much of the block as there is room for.
                at += (&stream).write(&block[at..]).unwrap_or(0);
                at %= block.len();
                while (&stream).read(&mut buffer).is_ok_and(|n| n > 0) {}
            }
        }
    });
    let mut stream = connect(tcp);
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    for _ in 0..5 {
        if datagrams {
            stream.write_all(&sip("o", 0)).unwrap();
            read(&mut stream, sip("o", 0).len());
        } else {
            socket.send_to(b"datagram", udp).unwrap();
            socket.recv(&mut [0; 20]).unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(over);
    flood.join().unwrap();
}

#[test]
fn a_flood_of_datagrams_leaves_turns_for_connections() {
    beside_a_flood(true);
}

#[test]
fn a_flood_on_a_connection_leaves_turns_for_datagrams() {
    beside_a_flood(false);
}

#[test]
fn stopping_writes_what_is_queued_and_accepts_no_more() {
    let server =
        Server::start_with(tcp(Limits { write_queue: 16 << 20, ..Limits::default() }), |p| {
            p.echo = false
        });
    let addr = server.addr(0);
    let mut stream = connect(addr);
    let (flow, _) = server.wait_opened();
    let message = request("BYE", "last", 50_000);
    let copy = message.clone();
    server.post(0, move |_, _, out| {
        for _ in 0..100 {
            out.push(Target::Flow(flow), 1, |b| b.extend_from_slice(&copy));
        }
    });
    let reading = std::thread::spawn(move || {
        std::thread::sleep(SHORT);
        read_to_close(&mut stream)
    });
    server.settle(0);
    server.stop(PATIENCE);
    assert_eq!(reading.join().unwrap(), message.repeat(100));
    assert!(TcpStream::connect(addr).is_err());
}
