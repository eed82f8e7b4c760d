//! Measures a TCP connection between two network namespaces, over two TUN devices and a router between them, in three
//! ways: one packet at a time without offload; super-packets that are split, and written segment by segment; and
//! super-packets that are split and gathered again. Run as
//! `SECONDS=5 cargo run --release -p ringway-os --example tun`.
//!
//! A router's work on each segment is one copy of its octets, which stands for the work between reading and sending.
//! The processor time is that of the router's thread, in which the kernel does most of the work of both hosts too. No
//! link is between the devices: the rate is an upper bound.
#![allow(unsafe_code, clippy::unwrap_used, clippy::print_stdout)]

#[path = "../tests/support/mod.rs"]
mod support;

use ringway_os::{Tun, wait_readable};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::relay::{Counts, HERE, Router, THERE, Way, configure, open};
use support::{Namespace, inside_a_namespace};

const MTU: u32 = 1_400;

fn main() {
    if !inside_a_namespace("tun") {
        return;
    }
    let seconds = std::env::var("SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(5);
    let length = Duration::from_secs(seconds);
    println!("way        Gbit/s  router's CPU s/GB  segments a read  segments a write");
    for _ in 0..3 {
        let other = Namespace::new();
        let (here, there) = open_plain(&other);
        report("plain", length, &other, |stop| plain(&here, &there, stop));
        drop((here, there));
        for (name, way) in [("single", Way::Single), ("gathered", Way::Gathered)] {
            let other = Namespace::new();
            let (here, there) = open(&other, MTU);
            report(name, length, &other, |stop| {
                let mut router = Router::new(way);
                router.run(&here, &there, stop);
                router.counts
            });
        }
    }
}

/// Runs a router and a connection for a time, and prints what was reached.
fn report(
    name: &str,
    length: Duration,
    other: &Namespace,
    router: impl FnOnce(&dyn Fn() -> bool) -> Counts + Send,
) {
    let stop = AtomicBool::new(false);
    let (octets, elapsed, counts, cpu) = thread::scope(|scope| {
        let running = scope.spawn(|| {
            let start = thread_time();
            let counts = router(&|| stop.load(Ordering::Relaxed));
            (counts, thread_time() - start)
        });
        let (octets, elapsed) = transfer(length, other);
        stop.store(true, Ordering::Relaxed);
        let (counts, cpu) = running.join().unwrap();
        (octets, elapsed, counts, cpu)
    });
    println!(
        "{name:9} {:7.2} {:18.3} {:16.1} {:17.1}",
        octets as f64 * 8e-9 / elapsed.as_secs_f64(),
        cpu.as_secs_f64() / (octets as f64 * 1e-9),
        counts.segments as f64 / counts.read as f64,
        counts.segments as f64 / counts.written as f64,
    );
}

/// Sends to the other namespace for a time. Returns the octets that have arrived, and the time that it took.
fn transfer(length: Duration, other: &Namespace) -> (u64, Duration) {
    let listener = other.run(|| TcpListener::bind((THERE, 0)).unwrap());
    let port = listener.local_addr().unwrap().port();
    let receiver = thread::spawn(move || {
        let (mut stream, mut buffer, mut octets) =
            (listener.accept().unwrap().0, vec![0; 1 << 20], 0);
        loop {
            match stream.read(&mut buffer).unwrap() {
                0 => return octets,
                got => octets += got as u64,
            }
        }
    });
    let mut stream = TcpStream::connect((THERE, port)).unwrap();
    let (start, bytes) = (Instant::now(), vec![0; 1 << 20]);
    while start.elapsed() < length {
        stream.write_all(&bytes).unwrap();
    }
    drop(stream);
    let octets = receiver.join().unwrap();
    (octets, start.elapsed())
}

/// Opens devices without offload.
fn open_plain(other: &Namespace) -> (Tun, Tun) {
    let open = |own| {
        let device = Tun::open("plain0").unwrap();
        configure("plain0", own, MTU);
        device
    };
    (open(HERE), other.run(move || open(THERE)))
}

/// Passes packets on between devices without offload.
fn plain(here: &Tun, there: &Tun, stop: &dyn Fn() -> bool) -> Counts {
    let (mut counts, mut packet, mut train) = (Counts::default(), vec![0; 2_048], vec![0; 2_048]);
    while !stop() {
        wait_readable([here.as_fd(), there.as_fd()], Some(Duration::from_millis(10))).unwrap();
        for (from, to) in [(here, there), (there, here)] {
            loop {
                let got = match from.read(&mut packet) {
                    Ok(got) => got,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => panic!("{error}"),
                };
                train[..got].copy_from_slice(&packet[..got]);
                let _ = to.write(&train[..got]);
                counts.read += 1;
            }
        }
    }
    (counts.segments, counts.written) = (counts.read, counts.read);
    counts
}

/// Returns the processor time of this thread.
fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one structure, to a live one.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
