//! ICMP messages about datagrams that several workers sent from one port.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod support;

use ringway_sansio::Transport;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::namespace::{inside_a_namespace, loopback};
use support::{Event, Server, listen, peer};

const WORKERS: usize = 4;
const CALLS: u64 = 20;

/// Shorter than the time to a retransmission (RFC 3261 section 17.1.1.2: T1 is 500 ms), with a margin for a
/// busy machine.
const AT_ONCE: Duration = Duration::from_secs(5);

fn start(addr: &str) -> Server {
    let mut config = listen(&[(Transport::Udp, addr)]);
    config.workers = WORKERS;
    let server = Server::start_with(config, |p| p.echo = false);
    // A socket receives ICMP messages once its worker runs.
    (0..WORKERS).for_each(|worker| server.settle(worker));
    server
}

/// Returns an address at which no socket listens.
fn closed(ip: &str) -> SocketAddr {
    UdpSocket::bind((ip, 0)).unwrap().local_addr().unwrap()
}

/// Returns the request that a worker sends for the `number`-th call; each has a different branch.
fn invite(worker: u8, number: u64) -> Vec<u8> {
    let mut request =
        b"INVITE sip:a@b.example SIP/2.0\r\nVia: SIP/2.0/UDP c.example;branch=".to_vec();
    let branch = format!("z9hG4bK{:0>16}.{number:0>11}", char::from(b'a' + worker));
    request.extend_from_slice(branch.as_bytes());
    request.extend_from_slice(b"\r\nContent-Length: 0\r\nX: ");
    request.resize(700, b'x');
    request
}

/// Has all workers send requests to an address; returns the reports that each worker received in time.
fn call(server: &Server, to: SocketAddr) -> HashSet<(u64, u8)> {
    let begun = Instant::now();
    for number in 1..=CALLS {
        let worker = (number % WORKERS as u64) as u8;
        server.send(worker.into(), peer(Transport::Udp, to), number, &invite(worker, number));
    }
    let mut reported = HashSet::new();
    while reported.len() < CALLS as usize {
        let Some(left) = AT_ONCE.checked_sub(begun.elapsed()) else { break };
        if let Ok(Event::NotSent(number, worker)) = server.events.recv_timeout(left) {
            assert!(reported.insert((number, worker)), "reported twice: {number}");
        }
    }
    reported
}

fn everyone() -> HashSet<(u64, u8)> {
    (1..=CALLS).map(|number| (number, (number % WORKERS as u64) as u8)).collect()
}

/// RFC 3261 section 18.4: the sockets of all workers share a port, and the kernel queues an ICMP message
/// at any of them; the worker that sent the request is notified at once.
#[test]
fn every_call_to_a_closed_port_is_reported_to_its_worker_at_once() {
    for (listener, ip) in [
        ("127.0.0.1:0", "127.0.0.1"),
        ("[::1]:0", "::1"),
        ("0.0.0.0:0", "127.0.0.1"),
        ("[::]:0", "::1"),
    ] {
        let server = start(listener);
        let reported = call(&server, closed(ip));
        println!("{listener}: {} of {CALLS} reported in time", reported.len());
        assert_eq!(reported, everyone(), "{listener}");
        server.wait_count("udp_refused", CALLS);
        assert_eq!(server.count("udp_refused_unknown"), 0);
        assert!(server.count("udp_refused_handed_over") > 0);
    }
}

/// Stops the forging thread, also when the test panics.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns the checksum of RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)));
    let sum = words.sum::<u32>();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

/// Returns an ICMP "port unreachable" (RFC 792) about a datagram from `from` to `to` that began with `payload`.
fn unreachable(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let (SocketAddr::V4(from), SocketAddr::V4(to)) = (from, to) else { panic!("IPv4 only") };
    let length = (20 + 8 + payload.len()) as u16;
    let mut packet = vec![3, 3, 0, 0, 0, 0, 0, 0];
    packet.extend_from_slice(&[0x45, 0, (length >> 8) as u8, length as u8]);
    packet.extend_from_slice(&[0, 0, 0, 0, 64, 17, 0, 0]);
    packet.extend_from_slice(&from.ip().octets());
    packet.extend_from_slice(&to.ip().octets());
    packet.extend_from_slice(&from.port().to_be_bytes());
    packet.extend_from_slice(&to.port().to_be_bytes());
    packet.extend_from_slice(&((8 + payload.len()) as u16).to_be_bytes());
    packet.extend_from_slice(&[0, 0]);
    packet.extend_from_slice(payload);
    let sum = checksum(&packet);
    packet[2..4].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// RFC 3261 section 18.4, RFC 5927: an off-path attacker who forges ICMP messages makes no call fail, reaches no
/// other worker, and does not suppress the reports of requests that are really refused.
#[test]
fn forged_icmp_gains_nothing() {
    if !inside_a_namespace("forged_icmp_gains_nothing") {
        return;
    }
    loopback(65_536);
    let server = start("127.0.0.1:0");
    let from = server.addr(0);
    let alive = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = alive.local_addr().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (stop, server) = (&stop, &server);
        let _stopping = Stopping(stop);
        scope.spawn(move || {
            let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)).unwrap();
            // An attacker can guess everything but the branch.
            let mut guess = invite(25, 1);
            for n in 0u32.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                guess[70..74].copy_from_slice(&n.to_be_bytes());
                let _ = raw.send_to(&unreachable(from, to, &guess), &from.into());
                // If they came faster than they are read, the kernel would drop genuine ones as well.
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let end = Instant::now() + Duration::from_secs(2);
        let mut report = 1_000;
        while Instant::now() < end {
            for worker in 0..WORKERS {
                report += 1;
                server.send(
                    worker,
                    peer(Transport::Udp, to),
                    report,
                    &invite(worker as u8, report),
                );
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        let sent = report - 1_000;
        (0..WORKERS).for_each(|worker| server.settle(worker));
        let forged = server.count("udp_refused_unknown");
        println!("{sent} sent, {forged} forged");
        assert!(forged > 500, "{forged}");
        assert_eq!(server.count("udp_refused_handed_over"), 0);
        assert_eq!(server.count("udp_not_sent"), 0);
        assert!(!server.events.try_iter().any(|e| matches!(e, Event::NotSent(..))));
        // Requests that are really refused are reported meanwhile, unless this machine paused for so long that
        // the socket's error queue overflowed.
        let to = closed("127.0.0.1");
        assert!((0..5).any(|_| call(server, to) == everyone()), "not reported among forged ones");
    });
}
