//! UDP over loopback.

#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used)]

mod support;

use ringway_sansio::Backlog;
use ringway_sansio::{Target, Transport};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use support::{Event, PATIENCE, Server, listen, peer};

fn client(addr: &str) -> UdpSocket {
    let socket = UdpSocket::bind(addr).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn exchange(client: &UdpSocket, to: SocketAddr, bytes: &[u8]) -> (Vec<u8>, SocketAddr) {
    client.send_to(bytes, to).unwrap();
    let mut buffer = vec![0; 70_000];
    let (n, from) = client.recv_from(&mut buffer).unwrap();
    buffer.truncate(n);
    (buffer, from)
}

#[test]
fn an_answer_leaves_from_the_address_the_peer_used() {
    let server = Server::start(listen(&[(Transport::Udp, "0.0.0.0:0")]));
    let port = server.addr(0).port();
    let client = client("127.0.0.1:0");
    for ip in ["127.0.0.2", "127.0.0.1", "127.0.0.3"] {
        let to = SocketAddr::new(ip.parse().unwrap(), port);
        let (bytes, from) = exchange(&client, to, b"OPTIONS");
        assert_eq!((bytes.as_slice(), from), (&b"OPTIONS"[..], to));
        let (_, flow, _) = server.wait_message();
        assert_eq!((flow.local, flow.remote), (to, client.local_addr().unwrap()));
        assert_eq!(flow.transport, Transport::Udp);
    }
}

#[test]
fn both_families_and_a_bound_address() {
    let server = Server::start(listen(&[
        (Transport::Udp, "[::]:0"),
        (Transport::Udp, "127.0.0.5:0"),
        (Transport::Udp, "[::1]:0"),
    ]));
    let v6: SocketAddr = SocketAddr::new("::1".parse().unwrap(), server.addr(0).port());
    for (client, to) in [
        (client("[::1]:0"), v6),
        (client("127.0.0.1:0"), server.addr(1)),
        (client("[::1]:0"), server.addr(2)),
    ] {
        let (bytes, from) = exchange(&client, to, b"hello");
        assert_eq!((bytes.as_slice(), from), (&b"hello"[..], to));
        assert_eq!(server.wait_message().1.local, to);
    }
}

#[test]
fn a_thousand_datagrams_in_and_out() {
    let server = Server::start(listen(&[(Transport::Udp, "127.0.0.1:0")]));
    let client = client("127.0.0.1:0");
    let to = server.addr(0);
    let mut seen = vec![false; 1_000];
    let mut buffer = [0; 1_000];
    // In bursts that fit the client's receive buffer.
    for burst in 0..10 {
        for n in burst * 100..(burst + 1) * 100 {
            client.send_to(format!("{n:0>300}").as_bytes(), to).unwrap();
        }
        for _ in 0..100 {
            let n = client.recv(&mut buffer).unwrap();
            assert_eq!(n, 300);
            let number: usize = std::str::from_utf8(&buffer[..n]).unwrap().parse().unwrap();
            assert!(!std::mem::replace(&mut seen[number], true));
        }
    }
    server.wait_count("udp_received", 1_000);
    server.wait_count("udp_sent", 1_000);
    assert!(server.count("udp_batches") <= 1_000);
}

#[test]
fn one_outbox_reaches_many_peers_from_the_right_sockets() {
    let server =
        Server::start(listen(&[(Transport::Udp, "127.0.0.1:0"), (Transport::Udp, "[::1]:0")]));
    let peers: Vec<UdpSocket> =
        (0..100).map(|n| client(if n % 2 == 0 { "127.0.0.1:0" } else { "[::1]:0" })).collect();
    let addrs: Vec<SocketAddr> = peers.iter().map(|p| p.local_addr().unwrap()).collect();
    server.post(0, move |_, _, out| {
        for (n, addr) in addrs.iter().enumerate() {
            out.push(peer(Transport::Udp, *addr), 0, |b| b.push(n as u8));
        }
    });
    let mut buffer = [0; 8];
    for (n, peer) in peers.iter().enumerate() {
        let (length, from) = peer.recv_from(&mut buffer).unwrap();
        assert_eq!((length, buffer[0]), (1, n as u8));
        assert_eq!(from, server.addr(n % 2));
    }
}

/// RFC 3261 section 18.1.1: a message that is too large for a datagram is reported, and the others are sent.
#[test]
fn a_message_too_large_is_reported_and_a_large_one_is_sent() {
    let server = Server::start(listen(&[(Transport::Udp, "127.0.0.1:0")]));
    let receiver = client("127.0.0.1:0");
    let to = receiver.local_addr().unwrap();
    server.post(0, move |_, _, out| {
        for (report, size) in [(1, 10), (2, 66_000), (3, 60_000), (4, 66_000)] {
            out.push(peer(Transport::Udp, to), report, |b| b.resize(b.len() + size, 7));
        }
    });
    assert_eq!((server.wait_not_sent(), server.wait_not_sent()), (2, 4));
    let mut buffer = vec![0; 70_000];
    assert_eq!(receiver.recv(&mut buffer).unwrap(), 10);
    assert_eq!(receiver.recv(&mut buffer).unwrap(), 60_000);
}

/// RFC 3261 section 18.4: an unreachable port is a transport error.
#[test]
fn a_refused_datagram_is_reported() {
    for ip in ["127.0.0.1:0", "[::1]:0"] {
        let server = Server::start(listen(&[(Transport::Udp, ip)]));
        let closed = client(ip).local_addr().unwrap();
        let open = client(ip);
        let to = open.local_addr().unwrap();
        let request = vec![b'r'; 700];
        server.post(0, move |_, _, out| {
            for (report, remote) in [(7, to), (8, closed), (9, to)] {
                out.push(peer(Transport::Udp, remote), report, |b| b.extend_from_slice(&request));
            }
        });
        assert_eq!(server.wait_not_sent(), 8);
        let mut buffer = [0; 1_000];
        for _ in 0..2 {
            assert_eq!(open.recv(&mut buffer).unwrap(), 700);
        }
        server.wait_count("udp_refused", 1);
        // The socket still works.
        assert_eq!(exchange(&open, server.addr(0), b"still here").0, b"still here");
    }
}

#[test]
fn no_listener_of_the_family_is_reported() {
    let server = Server::start(listen(&[(Transport::Udp, "127.0.0.1:0")]));
    server.send(0, peer(Transport::Udp, "[::1]:5060".parse().unwrap()), 5, b"x");
    assert_eq!(server.wait_not_sent(), 5);
}

/// RFC 5626 sections 3.5 and 4.4.
#[test]
fn keep_alives_do_not_reach_the_handler_and_garbage_does() {
    let server = Server::start(listen(&[(Transport::Udp, "127.0.0.1:0")]));
    let client = client("127.0.0.1:0");
    for bytes in [&b"\r\n\r\n"[..], b"\r\n", b"", b"\0", b"z"] {
        client.send_to(bytes, server.addr(0)).unwrap();
    }
    assert_eq!(server.wait_message().2, b"\0");
    assert_eq!(server.wait_message().2, b"z");
    let mut binding = vec![0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42];
    binding.extend_from_slice(b"transaction.");
    let mut buffer = [0; 600];
    // The echoes of the two malformed datagrams arrive first.
    for _ in 0..2 {
        client.recv(&mut buffer).unwrap();
    }
    let (answer, _) = exchange(&client, server.addr(0), &binding);
    assert_eq!(answer[4..20], binding[4..20]);
    assert_eq!(answer[..2], [1, 1]);
    // XOR-MAPPED-ADDRESS of the source port (RFC 8489 section 14.2).
    let port = client.local_addr().unwrap().port() ^ 0x2112;
    assert!(answer.windows(2).any(|w| w == port.to_be_bytes()));
}

#[test]
fn a_coalesced_train_is_taken_apart() {
    let server = Server::start_with(listen(&[(Transport::Udp, "127.0.0.1:0")]), |p| p.echo = false);
    let client = client("127.0.0.1:0");
    // UDP_SEGMENT: one send of several datagrams of 100 bytes, the last one shorter.
    let each: libc::c_int = 100;
    // SAFETY: the pointer is to a live integer, and the length is its size.
    let set = unsafe {
        libc::setsockopt(
            client.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const each).cast(),
            size_of_val(&each) as libc::socklen_t,
        )
    };
    assert_eq!(set, 0);
    let bytes: Vec<u8> = (0..450).map(|n| (n / 100) as u8 + 1).collect();
    client.send_to(&bytes, server.addr(0)).unwrap();
    for n in 0..5u8 {
        let (_, _, got) = server.wait_message();
        assert_eq!(got, vec![n + 1; if n < 4 { 100 } else { 50 }]);
    }
}

#[test]
fn a_timer_fires_on_time_under_a_flood() {
    let server = Server::start_with(listen(&[(Transport::Udp, "127.0.0.1:0")]), |p| {
        (p.echo, p.tell) = (false, false);
    });
    let client = client("127.0.0.1:0");
    let to = server.addr(0);
    let begun = Instant::now();
    server.post(0, |probe, now, _| probe.timeout = Some(now + Duration::from_millis(50)));
    let fired = loop {
        for _ in 0..32 {
            let _ = client.send_to(&[b'x'; 400], to);
        }
        if let Ok(Event::Timeout(_)) = server.events.try_recv() {
            break begun.elapsed();
        }
        assert!(begun.elapsed() < PATIENCE, "the timer did not fire");
    };
    assert!(fired >= Duration::from_millis(45), "{fired:?}");
}

/// Returns the backlogs reported until a batch has emptied the socket; `count` datagrams are sent, and the handler
/// takes `each` for one.
fn flood(server: &Server, count: usize, each: Duration) -> Vec<Backlog> {
    let client = client("127.0.0.1:0");
    server.post(0, move |probe, _, _| probe.pause = each);
    // The worker is blocked while they arrive.
    let held = server.hold(0);
    for _ in 0..count {
        client.send_to(&[b'w'; 500], server.addr(0)).unwrap();
    }
    arrived(&client);
    drop(held);
    let mut told: Vec<Backlog> = Vec::new();
    while told.last().is_none_or(|last| last.capacity > 0) {
        match server.events.recv_timeout(PATIENCE / 4) {
            Ok(Event::Batch(backlog)) => told.push(backlog),
            Ok(_) => {}
            // The last batch was exactly full.
            Err(_) => drop(client.send_to(b"one more", server.addr(0)).unwrap()),
        }
    }
    told
}

/// Waits until everything that a socket sent is in the receiver's buffer: a further datagram, to itself, arrives
/// after that.
fn arrived(socket: &UdpSocket) {
    socket.send_to(b"last", socket.local_addr().unwrap()).unwrap();
    while socket.recv(&mut [0; 100]).unwrap() != b"last".len() {}
}

#[test]
fn the_backlog_is_told_and_falls_to_nothing() {
    let server = Server::start_with(listen(&[(Transport::Udp, "127.0.0.1:0")]), |p| p.echo = false);
    let each = Duration::from_millis(1);
    let told = flood(&server, 100, each);
    assert_eq!(told.iter().map(|b| b.messages).collect::<Vec<_>>(), [32, 64, 96, 100]);
    assert!(told[0].queued > told[2].queued && told[2].queued > 0, "{told:?}");
    assert!(told[0].queued < told[0].capacity);
    // The pace is unknown before the second batch; 36 datagrams are left then.
    assert_eq!(told[0].delay, Duration::ZERO);
    assert!(told[1].delay > each * 10 && told[1].delay < PATIENCE, "{told:?}");
    assert!(told[2].delay < told[1].delay, "{told:?}");
    let nothing = Backlog { messages: 100, ..Backlog::default() };
    assert_eq!(told[3], nothing);
    // The pace is kept.
    let again = flood(&server, 200, each);
    assert!(again[0].delay > told[1].delay, "{again:?}");
    assert_eq!(again.last().unwrap().delay, Duration::ZERO);
}

/// A small buffer overflows long before its datagrams are old; the fill level is reported nevertheless.
#[test]
fn a_full_buffer_is_told_and_drops_are_counted() {
    let mut config = listen(&[(Transport::Udp, "127.0.0.1:0")]);
    config.udp_receive_buffer = 100_000;
    let server = Server::start_with(config, |p| p.echo = false);
    let told = flood(&server, 1_000, Duration::ZERO);
    assert!(told[0].queued > told[0].capacity / 2, "{told:?}");
    let received = told.last().unwrap().messages as u64;
    assert!(received < 1_000);
    assert_eq!(server.count("udp_dropped"), 1_000 - received);
}

/// While the worker is behind, the kernel discards the share of new requests that the handler asks for. Messages
/// of existing transactions and dialogs pass, and everything passes once the socket is empty.
#[test]
fn what_is_new_is_discarded_while_the_worker_is_behind() {
    let server = Server::start_with(listen(&[(Transport::Udp, "127.0.0.1:0")]), |p| {
        (p.echo, p.shed) = (false, ringway_sansio::SHED_ALL);
    });
    let client = client("127.0.0.1:0");
    let send = |text: &[u8]| client.send_to(text, server.addr(0)).map(drop).unwrap();
    let (word, gate) = std::sync::mpsc::channel();
    server.post(0, move |probe, _, _| probe.gate = Some(gate));
    let held = server.hold(0);
    // Two full batches; the worker is blocked in the middle of the first.
    (0..64).for_each(|_| send(b"OPTIONS sip:a"));
    arrived(&client);
    drop(held);
    word.send(()).unwrap();
    let mut heard = vec![server.wait_message().2];
    send(b"INVITE sip:discarded");
    send(b"BYE sip:a");
    arrived(&client);
    drop(word);
    while heard.last().is_none_or(|last| last != b"BYE sip:a") {
        heard.push(server.wait_message().2);
    }
    assert_eq!(heard.len(), 65, "the 64, and the BYE");
    assert_eq!((server.count("udp_shed"), server.count("udp_dropped")), (1, 0));
    send(b"INVITE sip:again");
    assert_eq!(server.wait_message().2, b"INVITE sip:again");
}

#[test]
fn any_worker_answers_on_a_datagram_flow_of_another() {
    let mut config = listen(&[(Transport::Udp, "127.0.0.1:0")]);
    config.workers = 2;
    let server = Server::start_with(config, |p| p.echo = false);
    let client = client("127.0.0.1:0");
    client.send_to(b"hello", server.addr(0)).unwrap();
    let (worker, flow, _) = server.wait_message();
    server.send(1 - worker as usize, Target::Flow(flow), 1, b"from the other");
    let mut buffer = [0; 100];
    let (n, from) = client.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..n], from), (&b"from the other"[..], server.addr(0)));
}

#[test]
fn both_workers_receive() {
    let mut config = listen(&[(Transport::Udp, "127.0.0.1:0")]);
    config.workers = 2;
    let server = Server::start(config);
    let mut seen = [false; 2];
    // The kernel spreads peers over the sockets by a hash of their addresses.
    for _ in 0..64 {
        let client = client("127.0.0.1:0");
        assert_eq!(exchange(&client, server.addr(0), b"hi").0, b"hi");
        seen[server.wait_message().0 as usize] = true;
    }
    assert_eq!(seen, [true; 2]);
}

#[test]
fn stopping_gives_the_handlers_back() {
    let mut config = listen(&[(Transport::Udp, "127.0.0.1:0"), (Transport::Tcp, "127.0.0.1:0")]);
    config.workers = 2;
    let probes = Server::start(config).stop(Duration::from_secs(5));
    assert_eq!(probes.iter().map(|p| p.worker).collect::<Vec<_>>(), [0, 1]);
}
