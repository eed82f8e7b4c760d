//! A run in real time between two interfaces, and the simulator's link, have the same log for the same packets. It needs
//! a network namespace; where the system allows none, the test does nothing.
#![allow(clippy::unwrap_used)]

use ringway_emulate::{Flags, Report, Settings, run, settings};
use ringway_link::{
    Departure, DropReason, InFlight, Link, LinkConfig, Logged, Outlet, Packet, Streams,
};
use ringway_os::tun::VnetHeader;
use ringway_os::{PacketSocket, enter_new_network};
use ringway_sansio::time::sooner;
use ringway_sansio::{Ecn, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

const FRAMES: u64 = 300;
/// A type that no kernel handles (IEEE 802: for experiments).
const HEADER: [u8; 14] = [2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 0x88, 0xb5];

/// Returns the length of a frame without its header.
fn size(number: u64) -> usize {
    50 + (number as usize * 37) % 1_300
}

fn ip(words: &str) {
    assert!(Command::new("ip").args(words.split(' ')).status().unwrap().success(), "ip {words}");
}

/// Sends frames in bursts.
fn send() {
    let socket = PacketSocket::open("far-west").unwrap();
    for number in 0..FRAMES {
        let mut frame = VnetHeader::default().to_bytes().to_vec();
        frame.extend(HEADER);
        frame.resize(frame.len() + size(number), number as u8);
        socket.send([frame.as_slice()].into_iter(), |_, error| panic!("{error}"));
        if number % 5 == 0 {
            std::thread::sleep(Duration::from_micros(700 * (number % 4)));
        }
    }
}

/// Runs the emulation until all frames have left it. Returns its log.
fn emulated(settings: &Settings) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let all_left = Notify::new();
    let mut is_sent = false;
    let mut watch = |report: &Report| {
        let there = &report.directions[0];
        if !is_sent {
            is_sent = true;
            std::thread::spawn(send);
        }
        let under_way = there.in_flight + there.queue.packets;
        if there.received.packets == FRAMES && under_way == 0 {
            all_left.notify_one();
        }
    };
    // A veth may get its carrier a moment after it is up.
    let lines = Arc::new(|line: &str| assert!(line.starts_with("interface "), "{line}"));
    let stop = all_left.notified();
    let ended = runtime.block_on(run(settings, &[], lines, Some(&mut watch), stop)).unwrap();
    assert_eq!(ended.report.log_lines_lost, 0);
    std::fs::read_to_string(settings.log.as_ref().unwrap()).unwrap()
}

/// Returns the times of arrival, in nanoseconds since the start: those of the first line about each packet.
fn arrivals(log: &str) -> Vec<u64> {
    let mut copies = BTreeSet::new();
    let mut times: BTreeMap<u32, u64> = BTreeMap::new();
    for line in log.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["-", _, "copy", copy] => _ = copies.insert(copy.parse::<u32>().unwrap()),
            [time, id, ..] => {
                times.entry(id.parse().unwrap()).or_insert_with(|| time.parse().unwrap());
            }
            _ => panic!("{line}"),
        }
    }
    times.into_iter().filter(|(id, _)| !copies.contains(id)).map(|(_, time)| time).collect()
}

/// The simulator's link without a world.
#[derive(Default)]
struct Bare {
    flight: InFlight,
    next: u32,
}

impl Outlet for Bare {
    fn departs(&mut self, departure: Departure) {
        self.flight.push(departure);
    }
    fn dropped(&mut self, _: Time, _: Packet, _: DropReason) {}
    fn copy(&mut self, _: Packet) -> Option<u32> {
        self.next += 1;
        Some(self.next - 1)
    }
    fn bytes(&mut self, _: &Packet) -> &[u8] {
        &[]
    }
}

/// Offers packets to a link of the simulator in virtual time. Returns its log.
fn simulated(config: &LinkConfig, streams: &Streams, arrivals: &[u64]) -> String {
    let start = Time::from_secs(1);
    let mut link = Link::new(config.clone(), "a-b", streams, start).unwrap();
    let (mut bare, mut log) = (Bare::default(), String::new());
    let advance = |until: Time, link: &mut Link, bare: &mut Bare, log: &mut String| {
        while let Some(due) =
            sooner(link.poll_timeout(), bare.flight.next()).filter(|due| *due <= until)
        {
            link.poll(due, &mut Logged::new(bare, log, start));
            while bare.flight.pop(due).is_some() {}
        }
    };
    for (number, time) in (0..).zip(arrivals) {
        let time = start + Duration::from_nanos(*time);
        advance(time, &mut link, &mut bare, &mut log);
        bare.next += 1;
        let packet = Packet::new(bare.next - 1, size(number) as u32, 0, Ecn::NotEct);
        link.offer(time, packet, &mut Logged::new(&mut bare, &mut log, start));
    }
    advance(Time::from_secs(1_000), &mut link, &mut bare, &mut log);
    log
}

fn compare() {
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
    for end in ["west", "east"] {
        ip(&format!("link add {end} type veth peer name far-{end}"));
        ip(&format!("link set {end} up"));
        ip(&format!("link set far-{end} up"));
    }
    let folder = tempfile::tempdir().unwrap();
    let parameters = [
        ("rate", "20mbit"),
        ("delay", "3ms"),
        ("jitter", "1ms"),
        ("loss", "10%"),
        ("duplicate", "5%"),
        ("corrupt", "5%"),
        ("reorder", "5%"),
        ("queue", "8"),
    ];
    let flags = Flags {
        between: Some(["west", "east"].map(str::to_owned)),
        seed: Some(9),
        log: Some(folder.path().join("log")),
        parameters: parameters.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        ..Flags::default()
    };
    let mut settings = settings::read(flags).unwrap();
    settings.runtime = folder.path().join("run");
    let log = emulated(&settings);
    let arrivals = arrivals(&log);
    assert_eq!(arrivals.len() as u64, FRAMES);
    for what in ["random loss", "queue full", "copy", "flip"] {
        assert!(log.contains(what), "no {what}: {log}");
    }
    assert_eq!(log, simulated(&settings.link.configs[0], &settings.streams(), &arrivals));
}

#[test]
fn the_log_of_a_real_run_is_that_of_the_simulator() {
    let inside = std::thread::spawn(|| match enter_new_network() {
        Ok(()) => compare(),
        Err(error) => eprintln!("no namespace to be had: {error}"),
    });
    inside.join().unwrap();
}
