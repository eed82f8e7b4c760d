//! A protocol plugged into the world: TCP across a router and a bad line.

#![allow(clippy::unwrap_used)]

use ringway_link::loss::RandomLoss;
use ringway_link::{Chance, LinkConfig, Loss, Rate, Sometimes, Span, Streams};
use ringway_sansio::{Addressing, Time};
use ringway_sim::{Bind, EndpointId, Record, Recorder, World};
use ringway_tcp::{ConnId, Event, Limits, PROTOCOL, Segment, Settings, Tcp};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const BYTES: usize = 300_000;

fn byte(i: usize) -> u8 {
    (i * 31 + i / 251) as u8
}

/// What the client and the server do between two steps of time.
struct Talk {
    written: usize,
    client: ConnId,
    server: Option<ConnId>,
    read: Vec<u8>,
}

impl Talk {
    fn write(&mut self, tcp: &mut Tcp, now: Time) {
        while tcp.poll_event().is_some() {}
        while self.written < BYTES {
            let end = BYTES.min(self.written + 5000);
            let data: Vec<u8> = (self.written..end).map(byte).collect();
            match tcp.write(now, self.client, &data).unwrap_or(0) {
                0 => break,
                n => self.written += n,
            }
        }
    }

    fn read(&mut self, tcp: &mut Tcp, now: Time) {
        while let Some(event) = tcp.poll_event() {
            if let Event::Incoming(listener) = event {
                self.server = tcp.accept(listener);
            }
        }
        let mut out = [0; 4096];
        while let Some(id) = self.server {
            match tcp.read(now, id, &mut out).unwrap_or(0) {
                0 => break,
                n => self.read.extend_from_slice(&out[..n]),
            }
        }
    }
}

/// Counts the records of segments with a correct and with a wrong checksum.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
struct Checksums {
    correct: u64,
    wrong: u64,
}

impl Recorder for Checksums {
    fn record(&mut self, _: &Record, addressing: &Addressing, payload: &[u8]) {
        match Segment::parse(addressing.source, addressing.destination, payload) {
            Ok(_) => self.correct += 1,
            Err(_) => self.wrong += 1,
        }
    }
}

/// Transfers the bytes over a line that damages some packets, with a recorder from a time on.
fn transfer(seed: u64, corrupt: f64, watch: Option<Time>) -> (Vec<u8>, u64, Time, Checksums) {
    let streams = Streams::new(seed, 0);
    let mut world = World::new(streams);
    let [a, r, b] = ["a", "r", "b"].map(|n| world.add_node(n).unwrap());
    let percent = |p| Chance::percent(p).unwrap();
    let line = LinkConfig {
        rate: Rate(10_000_000),
        delay: Span::from_millis(10),
        jitter: Span::from_millis(1),
        loss: Loss::Random(RandomLoss { chance: percent(2.0), ..RandomLoss::default() }),
        corrupt: Sometimes { chance: percent(corrupt), ..Sometimes::NEVER },
        duplicate: Sometimes { chance: percent(1.0), ..Sometimes::NEVER },
        ..LinkConfig::default()
    };
    let (out, _) = world.connect(a, r, LinkConfig::default(), LinkConfig::default()).unwrap();
    let (_, far) = world.connect(r, b, line.clone(), line).unwrap();
    let ip = |n| IpAddr::from(Ipv4Addr::new(10, 0, 0, n));
    world.add_address(out, ip(1)).unwrap();
    world.add_address(far, ip(2)).unwrap();

    let host = |name: &str| {
        Tcp::new(Limits::default(), Settings::default(), &mut streams.stream(name)).unwrap()
    };
    let plug = |w: &mut World, node, tcp: Tcp| -> EndpointId {
        w.attach(node, Bind::protocol(PROTOCOL), tcp).unwrap()
    };
    let client = plug(&mut world, a, host("a/tcp"));
    let server = plug(&mut world, b, host("b/tcp"));
    let local = SocketAddr::new(ip(2), 80);
    world.with_endpoint(server, |t: &mut Tcp, _| t.listen(local, 5, None).unwrap()).unwrap();
    let from = SocketAddr::new(ip(1), 0);
    let opened = world
        .with_endpoint(client, |t: &mut Tcp, now| t.connect(now, from, local, None).unwrap())
        .unwrap();
    let mut talk = Talk { written: 0, client: opened.unwrap(), server: None, read: Vec::new() };
    let mut watched = false;
    while talk.read.len() < BYTES && world.now() < Time::from_secs(120) {
        if watch.is_some_and(|from| !watched && from <= world.now()) {
            world.add_recorder(Checksums::default());
            watched = true;
        }
        world.run_until(Time::from_nanos(world.now().as_nanos() + 5_000_000)).unwrap();
        world.with_endpoint(client, |t: &mut Tcp, now| talk.write(t, now)).unwrap();
        world.with_endpoint(server, |t: &mut Tcp, now| talk.read(t, now)).unwrap();
    }
    let checksums = world.take_recorder(0).unwrap_or_default();
    (talk.read, world.census().dropped, world.now(), checksums)
}

#[test]
fn every_byte_comes_over_a_bad_line() {
    let (read, dropped, end, _) = transfer(1, 1.0, None);
    assert_eq!(read.len(), BYTES);
    assert!(read.iter().enumerate().all(|(i, &b)| b == byte(i)));
    assert!(dropped > 3, "{dropped}");
    assert!(end < Time::from_secs(60), "{end:?}");
    // And again, to the nanosecond and the packet.
    let (_, again, same, _) = transfer(1, 1.0, None);
    assert_eq!((dropped, end), (again, same));
}

/// RFC 9293 section 3.1: a segment that anybody sees has its checksum, also one that was sent before a
/// recorder was added, and a damaged one a wrong checksum. What is recorded changes nothing.
#[test]
fn recorded_segments_have_their_checksums() {
    for corrupt in [0.0, 3.0] {
        let (_, dropped, end, none) = transfer(2, corrupt, None);
        assert_eq!(none, Checksums::default());
        for from in [0, 100] {
            let watch = Some(Time::from_millis(from));
            let (_, again, same, seen) = transfer(2, corrupt, watch);
            assert_eq!((dropped, end), (again, same));
            assert!(seen.correct > 500, "{seen:?}");
            assert_eq!(seen.wrong > 0, corrupt > 0.0, "{seen:?}");
        }
    }
}
