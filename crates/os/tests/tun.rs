//! TUN devices with offload between two network namespaces of the test.
#![allow(clippy::unwrap_used)]

mod support;

use ringway_os::tun::TunQueue;
use ringway_os::{After, Datagram, SendBatch};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use support::relay::{Counts, HERE, Router, THERE, Way, has_tun, open};
use support::{Namespace, inside_a_namespace, ip};

const MTU: u32 = 1_400;
const LIMIT: Option<Duration> = Some(Duration::from_secs(60));

/// Runs a function while a router passes packets on between the namespaces.
fn routed(other: &Namespace, way: Way, f: impl FnOnce(bool)) -> Counts {
    let (here, there) = open(other, MTU);
    let (stop, mut router) = (AtomicBool::new(false), Router::new(way));
    let udp = here.has_udp_segmentation();
    thread::scope(|scope| {
        let running = scope.spawn(|| router.run(&here, &there, || stop.load(Ordering::Relaxed)));
        let result = catch_unwind(AssertUnwindSafe(|| f(udp)));
        stop.store(true, Ordering::Relaxed);
        running.join().unwrap();
        result.unwrap_or_else(|panic| resume_unwind(panic));
    });
    router.counts
}

fn octets(count: usize) -> Vec<u8> {
    (0..count).map(|i| (i as u32).wrapping_mul(0x9e37_79b9).to_be_bytes()[0]).collect()
}

/// Sends 8 MiB each way over a connection to the other namespace.
fn exchange(other: &Namespace) {
    const LENGTH: usize = 8 << 20;
    let listener = other.run(|| TcpListener::bind((THERE, 0)).unwrap());
    let port = listener.local_addr().unwrap().port();
    let one_way = |mut stream: TcpStream| {
        stream.set_read_timeout(LIMIT).unwrap();
        let mut writer = stream.try_clone().unwrap();
        let sender = thread::spawn(move || writer.write_all(&octets(LENGTH)).unwrap());
        let mut received = vec![0; LENGTH];
        stream.read_exact(&mut received).unwrap();
        assert!(received == octets(LENGTH), "the octets arrive unchanged");
        sender.join().unwrap();
    };
    let server = thread::spawn(move || one_way(listener.accept().unwrap().0));
    one_way(TcpStream::connect((THERE, port)).unwrap());
    server.join().unwrap();
}

#[test]
fn super_packets_pass_whole() {
    if !inside_a_namespace("super_packets_pass_whole") || !has_tun() {
        return;
    }
    let other = Namespace::new();
    for way in [Way::Gathered, Way::Single] {
        let counts = routed(&other, way, |_| exchange(&other));
        assert_eq!(counts.largest, MTU as usize, "{counts:?}");
        assert!(counts.segments > 16 << 20 >> 11, "{counts:?}");
        assert!(counts.read < counts.segments / 2, "{counts:?}");
        let gathered = counts.written < counts.segments / 4;
        assert_eq!(gathered, way == Way::Gathered, "{counts:?}");
    }
}

#[test]
fn a_train_of_datagrams_is_split() {
    if !inside_a_namespace("a_train_of_datagrams_is_split") || !has_tun() {
        return;
    }
    let other = Namespace::new();
    let counts = routed(&other, Way::Gathered, |udp| {
        let receiver = other.run(|| UdpSocket::bind((THERE, 0)).unwrap());
        receiver.set_read_timeout(LIMIT).unwrap();
        let sender = UdpSocket::bind((HERE, 0)).unwrap();
        let bytes = octets(10_500);
        let to = receiver.local_addr().unwrap();
        let train = Datagram { segment: 1_000, ..Datagram::new(&bytes, to, None) };
        let sent = SendBatch::new().send(sender.as_fd(), &[train], |_, _| After::Stop);
        assert_eq!(sent, 1);
        for expected in bytes.chunks(1_000) {
            let mut buffer = [0; 2_000];
            let got = receiver.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..got], expected);
        }
        assert!(udp, "the test's kernel has UDP segmentation");
    });
    assert!(counts.segments >= counts.read + 10, "{counts:?}");
}

#[test]
fn a_device_has_several_queues() {
    if !inside_a_namespace("a_device_has_several_queues") || !has_tun() {
        return;
    }
    let queues = TunQueue::open("mesh%d", 4).unwrap();
    assert!(queues.iter().all(|queue| queue.name() == "mesh0"));
    assert!(ip("-d link show mesh0").contains("numqueues 4"));
    // A plain device cannot join.
    assert!(ringway_os::Tun::open("mesh0").is_err());
    drop(queues);
    assert!(!ip("link show").contains("mesh0"));
}
