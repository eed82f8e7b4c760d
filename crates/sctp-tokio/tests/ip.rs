//! SCTP directly over IP, in a network namespace of the test.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

#[path = "support/namespace.rs"]
mod namespace;

use namespace::{address, inside_a_namespace, loopback, lose_rights};
use ringway_sctp_tokio::{
    Association, Config, Connect, Event, Over, PathState, SendOptions, Settings, Stack,
};
use std::future::Future;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The time-out of a test, long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

fn ip(last: u8) -> IpAddr {
    IpAddr::from([127, 0, 0, last])
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, work).await.expect("in time") })
}

fn stack() -> Stack {
    Stack::new(Config::new(Over::Ip)).unwrap()
}

async fn exchange(ours: &Association, theirs: &Association) {
    for n in 0..50u16 {
        let options = SendOptions { stream: n % 4, ..SendOptions::default() };
        ours.send(vec![n as u8; 3000], &options).await.unwrap();
        let got = theirs.recv().await.unwrap().unwrap();
        assert_eq!((got.stream, got.bytes.to_vec()), (n % 4, vec![n as u8; 3000]));
        theirs.send(got.bytes, &options).await.unwrap();
        ours.recv().await.unwrap().unwrap();
    }
}

#[test]
fn messages_go_over_both_families() {
    if !inside_a_namespace("messages_go_over_both_families") {
        return;
    }
    loopback(1_500);
    run(async {
        let (a, b) = (stack(), stack());
        for (port, from, to) in [
            (5060, ip(1), ip(2)),
            (5061, Ipv6Addr::LOCALHOST.into(), IpAddr::from(Ipv6Addr::LOCALHOST)),
        ] {
            let listener = b.listen(&[to], port, None).unwrap();
            let ours = a.connect(&Connect::new(&[from], &[to], port)).await.unwrap();
            let theirs = listener.accept().await.unwrap();
            exchange(&ours, &theirs).await;
            let large = vec![7; 500_000];
            ours.send(large.clone(), &SendOptions::default()).await.unwrap();
            assert_eq!(theirs.recv().await.unwrap().unwrap().bytes, large);
            ours.shutdown().await.unwrap();
            assert_eq!(theirs.recv().await.unwrap(), None);
        }
        assert_eq!((a.counters().stray, b.counters().stray), (0, 0));
        assert_eq!((a.counters().malformed, a.counters().checksum), (0, 0));
    });
}

/// Set in the second of two processes.
const SECOND: &str = "RINGWAY_TEST_SECOND";

/// The second process: listens, and connects to the first.
fn second() {
    run(async {
        let stack = stack();
        let taken = stack.listen(&[ip(3)], 5060, None).unwrap_err();
        assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
        assert!(taken.to_string().starts_with("sctp port 5060: "), "{taken}");
        let listener = stack.listen(&[ip(2)], 5061, None).unwrap();
        println!("\nlistening");
        let ours = stack.connect(&Connect::new(&[ip(2)], &[ip(1)], 5060)).await.unwrap();
        let theirs = listener.accept().await.unwrap();
        exchange(&ours, &theirs).await;
        assert_eq!(stack.counters().stray, 0);
        assert_eq!(ours.recv().await.unwrap(), None);
    });
}

/// Two processes with SCTP over IP on one host do not abort each other's associations.
#[test]
fn two_processes_share_the_protocol() {
    const NAME: &str = "two_processes_share_the_protocol";
    if std::env::var_os(SECOND).is_some() {
        return second();
    }
    if !inside_a_namespace(NAME) {
        return;
    }
    loopback(1_500);
    run(async {
        let stack = stack();
        let listener = stack.listen(&[ip(1)], 5060, None).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([NAME, "--exact", "--nocapture", "--test-threads=1"])
            .env(SECOND, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(out.any(|line| line.unwrap() == "listening"));
        let theirs = listener.accept().await.unwrap();
        let taken = stack.listen(&[ip(1)], 5061, None).unwrap_err();
        assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
        let ours = stack.connect(&Connect::new(&[ip(1)], &[ip(2)], 5061)).await.unwrap();
        // Messages of one association are sent on the other: the second process receives its own.
        for _ in 0..50 {
            let there = theirs.recv().await.unwrap().unwrap();
            let options = SendOptions { stream: there.stream, ..SendOptions::default() };
            ours.send(there.bytes, &options).await.unwrap();
            let back = ours.recv().await.unwrap().unwrap();
            theirs.send(back.bytes, &options).await.unwrap();
        }
        theirs.shutdown().await.unwrap();
        assert_eq!((stack.counters().stray, stack.counters().aborts), (0, 0));
        assert!(child.wait().unwrap().success());
        // The end of the process released its port.
        stack.listen(&[ip(1)], 5061, None).unwrap();
    });
}

/// A closed listener's port stays with its associations, and is free after them.
#[test]
fn a_port_is_free_when_its_last_user_is_gone() {
    if !inside_a_namespace("a_port_is_free_when_its_last_user_is_gone") {
        return;
    }
    loopback(1_500);
    run(async {
        let (a, b) = (stack(), stack());
        let listener = a.listen(&[ip(1)], 5060, None).unwrap();
        let theirs = b.connect(&Connect::new(&[ip(2)], &[ip(1)], 5060)).await.unwrap();
        let ours = listener.accept().await.unwrap();
        drop(listener);
        assert!(b.listen(&[ip(2)], 5060, None).is_err());
        exchange(&ours, &theirs).await;
        ours.shutdown().await.unwrap();
        drop(ours);
        b.listen(&[ip(2)], 5060, None).unwrap();
        // No process holds this port: there is no answer, and no abort by another process.
        let settings = Settings {
            rto_initial: Duration::from_millis(20),
            rto_min: Duration::from_millis(20),
            rto_max: Duration::from_millis(40),
            max_init_retransmits: 2,
            ..Settings::default()
        };
        let connect = Connect { settings: Some(settings), ..Connect::new(&[ip(1)], &[ip(2)], 99) };
        assert_eq!(a.connect(&connect).await.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    });
}

/// Many associations, each from a port that no other process holds.
#[test]
fn ephemeral_ports_never_collide() {
    if !inside_a_namespace("ephemeral_ports_never_collide") {
        return;
    }
    loopback(1_500);
    run(async {
        let server = stack();
        let listener = server.listen(&[ip(1)], 5060, None).unwrap();
        let clients = [stack(), stack(), stack()];
        let mut ports = std::collections::BTreeSet::new();
        let mut held = Vec::new();
        for n in 0..600 {
            let connect = Connect::new(&[ip(2)], &[ip(1)], 5060);
            let ours = clients[n % 3].connect(&connect).await.unwrap();
            assert!(ports.insert(ours.ports().unwrap().0), "{n}");
            held.push((ours, listener.accept().await.unwrap()));
        }
        assert_eq!(server.associations(), 600);
    });
}

#[test]
fn an_address_that_vanishes_fails_its_paths_and_is_used_again() {
    if !inside_a_namespace("an_address_that_vanishes_fails_its_paths_and_is_used_again") {
        return;
    }
    loopback(1_500);
    // Each of a different network: removing the first address of a network removes the others.
    let addresses = [10u8, 11, 12, 13].map(|first| Ipv4Addr::new(first, 9, 0, 1));
    for (number, ip) in (1..).zip(addresses) {
        address(&format!("lo:{number}"), Some(ip));
    }
    let [a1, a2, b1, b2] = addresses.map(IpAddr::from);
    run(async {
        let (a, b) = (stack(), stack());
        let listener = b.listen(&[b1, b2], 5060, None).unwrap();
        // Neither unanswered heartbeats nor data in flight reveal it: there are none.
        let settings = Settings { heartbeat_interval: Some(PATIENCE * 10), ..Settings::default() };
        let connect =
            Connect { settings: Some(settings), ..Connect::new(&[a1, a2], &[b1, b2], 5060) };
        let ours = a.connect(&connect).await.unwrap();
        let theirs = listener.accept().await.unwrap();
        let until = async |remote, wanted| loop {
            match ours.event().await.unwrap() {
                Event::Path { remote: r, state } if r == remote && state == wanted => break,
                _ => {}
            }
        };
        exchange(&ours, &theirs).await;
        address("lo:1", None);
        until(b1, PathState::PotentiallyFailed).await;
        exchange(&ours, &theirs).await;
        address("lo:1", Some(addresses[0]));
        until(b1, PathState::Active).await;
        exchange(&ours, &theirs).await;
    });
}

/// A stack behind a TUN device is a separate host; here it talks to a stack over the kernel's IP.
#[test]
fn a_tun_device_leads_to_a_host_of_its_own() {
    if !inside_a_namespace("a_tun_device_leads_to_a_host_of_its_own") {
        return;
    }
    loopback(1_500);
    run(async {
        let over = Over::Tun { name: "sctp0".to_owned() };
        let (beyond, here) = (Stack::new(Config::new(over)).unwrap(), stack());
        let (there, ours) = (Ipv4Addr::new(10, 99, 0, 2), Ipv4Addr::new(10, 99, 0, 1));
        address("sctp0", Some(ours));
        let listener = beyond.listen(&[there.into()], 5060, None).unwrap();
        let connect = Connect::new(&[ours.into()], &[there.into()], 5060);
        let association = here.connect(&connect).await.unwrap();
        let theirs = listener.accept().await.unwrap();
        exchange(&association, &theirs).await;
        let large = vec![7; 300_000];
        theirs.send(large.clone(), &SendOptions::default()).await.unwrap();
        assert_eq!(association.recv().await.unwrap().unwrap().bytes, large);
        association.shutdown().await.unwrap();
        assert_eq!(theirs.recv().await.unwrap(), None);
        assert_eq!(beyond.counters().malformed, 0);
    });
}

#[test]
fn what_is_missing_is_named() {
    // Capabilities are per thread, and inherited by a new process.
    let thread = std::thread::spawn(|| match lose_rights() {
        Ok(()) => {
            let error = run(async { Stack::new(Config::new(Over::Ip)).unwrap_err() });
            assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
            assert!(error.to_string().contains("CAP_NET_RAW"), "{error}");
        }
        Err(error) => eprintln!("no namespace to be had: {error}"),
    });
    thread.join().unwrap();
}

/// An address is removed and added again while the netlink socket's queue overflows: the addresses are read
/// anew, and the address is used again.
#[test]
fn an_address_is_used_again_though_its_return_was_not_heard() {
    if !inside_a_namespace("an_address_is_used_again_though_its_return_was_not_heard") {
        return;
    }
    loopback(1_500);
    let ours = Ipv4Addr::new(10, 7, 0, 1);
    address("lo:1", Some(ours));
    run(async {
        let (a, b) = (stack(), stack());
        let listener = b.listen(&[ip(2)], 5060, None).unwrap();
        let near = a.connect(&Connect::new(&[ours.into()], &[ip(2)], 5060)).await.unwrap();
        let far = listener.accept().await.unwrap();
        exchange(&near, &far).await;
        // More notifications than the queue holds, while it is not read.
        address("lo:1", None);
        for _ in 0..3_000 {
            address("lo:2", Some(Ipv4Addr::new(10, 8, 0, 1)));
            address("lo:2", None);
        }
        address("lo:1", Some(ours));
        exchange(&near, &far).await;
    });
}
