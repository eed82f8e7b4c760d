//! A protocol with several paths in the world: SCTP over a bad line, and over two lines of which one
//! fails.

#![allow(clippy::unwrap_used)]

use ringway_link::loss::RandomLoss;
use ringway_link::{Chance, LinkConfig, Loss, Rate, Sometimes, Span, Streams};
use ringway_sansio::{Duration, Time};
use ringway_sctp::{AssocId, Event, Limits, PROTOCOL, PathState, Sctp, SendOptions, Settings};
use ringway_sim::{Bind, EndpointId, InterfaceId, World};
use std::net::{IpAddr, Ipv4Addr};

const PORT: u16 = 5060;
const STREAMS: u16 = 4;

fn message(number: usize, size: usize) -> Vec<u8> {
    (0..size).map(|i| (i * 31 + number * 7 + i / 251) as u8).collect()
}

fn percent(chance: f64) -> Chance {
    Chance::percent(chance).unwrap()
}

fn address(network: u8, host: u8) -> IpAddr {
    IpAddr::from(Ipv4Addr::new(10, 0, network, host))
}

/// Two hosts in a world, one association between them, and its received messages.
struct Talk {
    world: World,
    ends: [EndpointId; 2],
    client: AssocId,
    server: Option<AssocId>,
    sent: usize,
    /// Numbers of streams with messages, in the order in which they came.
    read: Vec<(u16, Vec<u8>)>,
    /// Path events of the client.
    paths: Vec<(IpAddr, PathState)>,
}

impl Talk {
    /// `lists` are the addresses of the one host and of the other.
    fn new(mut world: World, nodes: [ringway_sim::NodeId; 2], lists: [&[IpAddr]; 2]) -> Talk {
        let ends = ["a/sctp", "b/sctp"].map(|name| {
            let random = Box::new(world.streams().stream(name));
            Sctp::new(Limits::default(), Settings::default(), random).unwrap()
        });
        let mut nodes = nodes.into_iter();
        let ends = ends.map(|sctp| {
            world.attach(nodes.next().unwrap(), Bind::protocol(PROTOCOL), sctp).unwrap()
        });
        let listen = |s: &mut Sctp, _| s.listen(lists[1], PORT, None).unwrap();
        world.with_endpoint(ends[1], listen).unwrap();
        let open = |s: &mut Sctp, now| s.connect(now, lists[0], 0, lists[1], PORT, None).unwrap();
        let client = world.with_endpoint(ends[0], open).unwrap().unwrap();
        Talk { world, ends, client, server: None, sent: 0, read: Vec::new(), paths: Vec::new() }
    }

    /// Sends the next message, if there is room.
    fn send(&mut self, size: usize) -> bool {
        let (id, number) = (self.client, self.sent);
        let stream = number as u16 % STREAMS;
        let options = SendOptions { stream, ..SendOptions::default() };
        let send = |s: &mut Sctp, now| s.send(now, id, &options, message(number, size)).is_ok();
        let sent = self.world.with_endpoint(self.ends[0], send).unwrap().unwrap();
        self.sent += usize::from(sent);
        sent
    }

    /// Lets time pass and collects received messages.
    fn run(&mut self, time: Duration) {
        self.world.run_until(self.world.now() + time).unwrap();
        let (server, read, paths) = (&mut self.server, &mut self.read, &mut self.paths);
        let take = |s: &mut Sctp, _| {
            while let Some(event) = s.poll_event() {
                if let Event::Up { id, .. } = event {
                    *server = Some(id);
                }
            }
            let mut out = Vec::new();
            while let Some(received) = server.and_then(|id| s.recv(id, &mut out).unwrap()) {
                assert!(received.begin && received.end);
                read.push((received.stream, std::mem::take(&mut out)));
            }
        };
        self.world.with_endpoint(self.ends[1], take).unwrap();
        let collect = |s: &mut Sctp, _| {
            while let Some(event) = s.poll_event() {
                match event {
                    Event::Path { remote, state, .. } => paths.push((remote, state)),
                    Event::Closed(_, why) => panic!("closed: {why:?}"),
                    _ => {}
                }
            }
        };
        self.world.with_endpoint(self.ends[0], collect).unwrap();
    }

    /// Every message came once, whole, and in the order of its stream.
    fn check(&self, size: usize) {
        assert_eq!(self.read.len(), self.sent);
        for stream in 0..STREAMS {
            let came = self.read.iter().filter(|m| m.0 == stream).map(|m| &m.1);
            let went = (0..self.sent).filter(|n| *n as u16 % STREAMS == stream);
            assert!(came.eq(went.map(|n| message(n, size)).collect::<Vec<_>>().iter()), "{stream}");
        }
    }
}

/// Messages of 3000 bytes across a router and a line that loses, damages, doubles and reorders.
fn bad_line(seed: u64) -> (Vec<(u16, Vec<u8>)>, u64, Time) {
    const MESSAGES: usize = 120;
    const SIZE: usize = 3000;
    let mut world = World::new(Streams::new(seed, 0));
    let [a, r, b] = ["a", "r", "b"].map(|n| world.add_node(n).unwrap());
    let line = LinkConfig {
        rate: Rate(10_000_000),
        delay: Span::from_millis(10),
        jitter: Span::from_millis(1),
        loss: Loss::Random(RandomLoss { chance: percent(2.0), ..RandomLoss::default() }),
        corrupt: Sometimes { chance: percent(1.0), ..Sometimes::NEVER },
        duplicate: Sometimes { chance: percent(1.0), ..Sometimes::NEVER },
        ..LinkConfig::default()
    };
    let (out, _) = world.connect(a, r, LinkConfig::default(), LinkConfig::default()).unwrap();
    let (_, far) = world.connect(r, b, line.clone(), line).unwrap();
    world.add_address(out, address(1, 1)).unwrap();
    world.add_address(far, address(1, 2)).unwrap();
    let mut talk = Talk::new(world, [a, b], [&[address(1, 1)], &[address(1, 2)]]);
    while talk.read.len() < MESSAGES && talk.world.now() < Time::from_secs(120) {
        while talk.sent < MESSAGES && talk.send(SIZE) {}
        talk.run(Duration::from_millis(5));
    }
    talk.check(SIZE);
    (talk.read, talk.world.census().dropped, talk.world.now())
}

#[test]
fn every_message_comes_over_a_bad_line() {
    let (read, dropped, end) = bad_line(1);
    assert_eq!(read.len(), 120);
    assert!(dropped > 3, "{dropped}");
    assert!(end < Time::from_secs(60), "{end:?}");
    // And again, to the nanosecond and the packet; another seed is another run.
    assert_eq!(bad_line(1), (read, dropped, end));
    let other = bad_line(2);
    assert_ne!((other.1, other.2), (dropped, end));
}

/// What came of a transfer of which the first of two lines is down from 2 s to 40 s.
struct Dying {
    read: Vec<(u16, Vec<u8>)>,
    dropped: u64,
    /// The longest time without a message.
    gap: Duration,
    paths: Vec<(IpAddr, PathState)>,
}

fn dying_path(seed: u64) -> Dying {
    const SIZE: usize = 500;
    let mut world = World::new(Streams::new(seed, 0));
    let [a, b] = ["a", "b"].map(|n| world.add_node(n).unwrap());
    let line = LinkConfig {
        rate: Rate(2_000_000),
        delay: Span::from_millis(10),
        jitter: Span::from_millis(1),
        loss: Loss::Random(RandomLoss { chance: percent(0.5), ..RandomLoss::default() }),
        ..LinkConfig::default()
    };
    let mut first: Option<[InterfaceId; 2]> = None;
    for network in [1, 2] {
        let (out, far) = world.connect(a, b, line.clone(), line.clone()).unwrap();
        world.add_address(out, address(network, 1)).unwrap();
        world.add_address(far, address(network, 2)).unwrap();
        world.add_route(a, address(network, 0), 24, out).unwrap();
        world.add_route(b, address(network, 0), 24, far).unwrap();
        first.get_or_insert([out, far]);
    }
    let lists = [1, 2].map(|host| [address(1, host), address(2, host)]);
    let mut talk = Talk::new(world, [a, b], [&lists[0], &lists[1]]);
    let (mut last, mut gap) = (Time::ZERO, Duration::ZERO);
    // To 80 s: the heartbeats of a failed path are an RTO apart, which doubles up to 32 s (RFC 7829 3.2).
    for step in 0..16_000u64 {
        let loss = match step {
            400 => Some(percent(100.0)),
            8000 => Some(percent(0.5)),
            _ => None,
        };
        if let Some(chance) = loss {
            for interface in first.unwrap() {
                let loss = Loss::Random(RandomLoss { chance, ..RandomLoss::default() });
                talk.world.reconfigure(interface, |config| config.loss = loss).unwrap();
            }
        }
        if step % 10 == 0 && step < 15_500 {
            assert!(talk.send(SIZE));
        }
        let before = talk.read.len();
        talk.run(Duration::from_millis(5));
        if talk.read.len() > before {
            gap = gap.max(talk.world.now().since(last));
            last = talk.world.now();
        }
    }
    talk.check(SIZE);
    Dying { read: talk.read, dropped: talk.world.census().dropped, gap, paths: talk.paths }
}

/// RFC 9260 sections 6.4.1 and 8.2, RFC 7829: what was on the way when the primary path died comes
/// over the other, and the primary is found again when it is back.
#[test]
fn a_transfer_outlives_its_primary_path() {
    let run = dying_path(1);
    assert!(run.gap < Duration::from_millis(2500), "{:?}", run.gap);
    let primary = address(1, 2);
    let of_primary: Vec<PathState> =
        run.paths.iter().filter(|p| p.0 == primary).map(|p| p.1).collect();
    assert!(of_primary.iter().any(|state| *state != PathState::Active), "{of_primary:?}");
    assert_eq!(of_primary.last(), Some(&PathState::Active));
    let again = dying_path(1);
    assert_eq!((again.read, again.dropped, again.gap), (run.read, run.dropped, run.gap));
    assert_eq!(again.paths, run.paths);
}
