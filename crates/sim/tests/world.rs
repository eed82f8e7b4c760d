//! Hosts, routes, endpoints and budgets.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Line, PORT, address};
use ringway_link::{Generator, LinkConfig, Rate, Size, Span, Streams};
use ringway_sansio::{Addressing, Endpoint, Time};
use ringway_sim::traffic::{Sink, Source, SourceConfig};
use ringway_sim::{Bind, Budget, Error, InterfaceId, NodeId, Reason, Record, Records, Step, World};
use std::net::{IpAddr, SocketAddr};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn world(names: &[&str]) -> (World, Vec<NodeId>) {
    let mut world = World::new(Streams::new(1, 0));
    let nodes = names.iter().map(|n| world.add_node(n).unwrap()).collect();
    (world, nodes)
}

fn link(ms: u64) -> LinkConfig {
    LinkConfig { delay: Span::from_millis(ms), ..LinkConfig::default() }
}

/// A packet each 100 ms for a second, from one address to another. Returns the delays in ms.
fn send(
    world: &mut World,
    (from, source): (NodeId, &str),
    (to, destination): (NodeId, &str),
) -> Vec<u64> {
    let ends = [source, destination].map(|a| SocketAddr::new(ip(a), PORT));
    let config = SourceConfig {
        pattern: ringway_sim::traffic::Pattern::Constant(Rate(80_000)),
        max_packets: 10,
        start: world.now(),
        ..SourceConfig::ns2(ends[0], ends[1])
    };
    let stream = world.streams().stream("source");
    world.attach(from, Bind::udp(PORT), Source::new(config, stream)).unwrap();
    let sink = world.attach(to, Bind::udp(PORT), Sink::keeping()).unwrap();
    let end = Time::from_nanos(world.now().as_nanos() + 5_000_000_000);
    world.run_until(end).unwrap();
    let sink = world.endpoint::<Sink>(sink).unwrap();
    sink.arrivals().iter().map(|a| a.received.since(a.sent).as_millis() as u64).collect()
}

#[test]
fn paths_are_shortest_by_cost() {
    let (mut w, n) = world(&["a", "b", "c", "d"]);
    let (a, _) = w.connect(n[0], n[1], link(1), link(1)).unwrap();
    let (_, _) = w.connect(n[1], n[3], link(1), link(1)).unwrap();
    let (direct, d) = w.connect(n[0], n[3], link(50), link(50)).unwrap();
    w.add_address(a, ip("10.0.0.1")).unwrap();
    w.add_address(d, ip("10.0.0.4")).unwrap();
    assert_eq!(send(&mut w, (n[0], "10.0.0.9"), (n[3], "10.0.0.4")), vec![50; 10]);
    // A neighbour is reached straight; so the address moves behind it.
    let (mut w, n) = world(&["a", "b", "c", "d"]);
    let (a, _) = w.connect(n[0], n[1], link(1), link(1)).unwrap();
    w.connect(n[1], n[2], link(1), link(1)).unwrap();
    let (direct2, _) = w.connect(n[0], n[2], link(50), link(50)).unwrap();
    let (_, d) = w.connect(n[2], n[3], link(1), link(1)).unwrap();
    w.add_address(a, ip("10.0.0.1")).unwrap();
    w.add_address(d, ip("10.0.0.4")).unwrap();
    w.set_cost(direct2, 5).unwrap();
    assert_eq!(send(&mut w, (n[0], "10.0.0.9"), (n[3], "10.0.0.4")), vec![3; 10]);
    assert_eq!(direct.index(), 4);
}

#[test]
fn static_routes_go_first_by_the_longest_prefix() {
    let build = |routes: &dyn Fn(&mut World, NodeId, [InterfaceId; 2])| {
        let (mut w, n) = world(&["a", "b", "c", "d"]);
        let (up, _) = w.connect(n[0], n[1], link(1), link(1)).unwrap();
        let (down, _) = w.connect(n[0], n[2], link(10), link(10)).unwrap();
        let (_, d) = w.connect(n[1], n[3], link(1), link(1)).unwrap();
        let (on, _) = w.connect(n[2], n[3], link(10), link(10)).unwrap();
        w.add_address(d, ip("10.1.0.4")).unwrap();
        // Without this, c would send back to a what is to enter d by its other interface.
        w.add_route(n[2], ip("0.0.0.0"), 0, on).unwrap();
        routes(&mut w, n[0], [up, down]);
        send(&mut w, (n[0], "10.0.0.1"), (n[3], "10.1.0.4"))
    };
    assert_eq!(build(&|_, _, _| ()), vec![2; 10]);
    let default = build(&|w, a, [_, down]| w.add_route(a, ip("0.0.0.0"), 0, down).unwrap());
    assert_eq!(default, vec![20; 10]);
    let both = build(&|w, a, [up, down]| {
        w.add_route(a, ip("10.0.0.0"), 8, down).unwrap();
        w.add_route(a, ip("10.1.0.0"), 16, up).unwrap();
    });
    assert_eq!(both, vec![2; 10]);
}

/// Two hosts joined by two networks: the source address chooses the path, the destination address
/// is entered by the interface that has it.
#[test]
fn a_host_with_two_addresses_chooses_its_path_by_the_source() {
    let build = || {
        let (mut w, n) = world(&["a", "r1", "r2", "b"]);
        let (a1, _) = w.connect(n[0], n[1], link(1), link(1)).unwrap();
        let (a2, _) = w.connect(n[0], n[2], link(10), link(10)).unwrap();
        let (_, b1) = w.connect(n[1], n[3], link(1), link(1)).unwrap();
        let (_, b2) = w.connect(n[2], n[3], link(10), link(10)).unwrap();
        for (interface, address) in
            [(a1, "10.1.0.1"), (a2, "10.2.0.1"), (b1, "10.1.0.2"), (b2, "10.2.0.2")]
        {
            w.add_address(interface, ip(address)).unwrap();
        }
        (w, n)
    };
    for (source, destination, delay) in
        [("10.1.0.1", "10.1.0.2", 2), ("10.2.0.1", "10.2.0.2", 20), ("10.9.0.1", "10.2.0.2", 20)]
    {
        let (mut w, n) = build();
        let delays = send(&mut w, (n[0], source), (n[3], destination));
        assert_eq!(delays, vec![delay; 10], "{source} {destination}");
    }
}

#[test]
fn ipv6_and_a_host_to_itself() {
    let (mut w, n) = world(&["a", "b"]);
    let (a, b) = w.connect(n[0], n[1], link(3), link(3)).unwrap();
    w.add_address(a, ip("fd00::1")).unwrap();
    w.add_address(b, ip("fd00::2")).unwrap();
    assert_eq!(send(&mut w, (n[0], "fd00::1"), (n[1], "fd00::2")), vec![3; 10]);

    let (mut w, n) = world(&["a", "b"]);
    let (a, _) = w.connect(n[0], n[1], link(3), link(3)).unwrap();
    w.add_address(a, ip("fd00::1")).unwrap();
    let sink = w.attach(n[0], Bind::udp(77), Sink::new()).unwrap();
    let ends = [SocketAddr::new(ip("fd00::1"), PORT), SocketAddr::new(ip("fd00::1"), 77)];
    let config = SourceConfig { max_packets: 3, ..SourceConfig::ns2(ends[0], ends[1]) };
    let source = Source::new(config, w.streams().stream("s"));
    w.attach(n[0], Bind::udp(PORT), source).unwrap();
    w.run_until(Time::from_secs(1)).unwrap();
    assert_eq!(w.endpoint::<Sink>(sink).unwrap().totals().packets, 3);
}

/// A packet takes one event a link, and one more where it waits in a queue.
#[test]
fn only_a_packet_that_waits_takes_another_event() {
    // Ten packets of 448 kbit/s over three links. Each also takes an event of its source, and the sink is polled once.
    let events = |rate| {
        let fast = LinkConfig::default();
        let links = [fast.clone(), LinkConfig { rate: Rate(rate), ..fast.clone() }, fast];
        let config = |a, b| SourceConfig { max_packets: 10, ..SourceConfig::ns2(a, b) };
        let mut line = Line::new(Streams::new(1, 0), &links, config, Sink::new());
        line.run(Time::from_secs(10));
        assert_eq!((line.sink().totals().packets, line.world.hops()), (10, 30));
        line.world.happened()
    };
    assert_eq!(events(450_000), 11 + 30);
    // All but the first wait.
    assert_eq!(events(440_000), 11 + 30 + 9);
}

/// The reason for every packet that is lost between links.
#[test]
fn drops_between_links_have_a_reason() {
    type Change<'a> = &'a dyn Fn(&mut World, &[NodeId], InterfaceId, InterfaceId);
    let reasons = |change: Change<'_>| {
        let (mut w, n) = world(&["a", "b", "c"]);
        let (a, b) = w.connect(n[0], n[1], link(1), link(1)).unwrap();
        let (on, c) = w.connect(n[1], n[2], link(1), link(1)).unwrap();
        w.add_address(a, address(0)).unwrap();
        w.add_address(c, address(2)).unwrap();
        let records = w.add_recorder(Records::default());
        change(&mut w, &n, b, on);
        let ends = [SocketAddr::new(address(0), PORT), SocketAddr::new(address(2), PORT)];
        let config = SourceConfig { max_packets: 1, ..SourceConfig::ns2(ends[0], ends[1]) };
        let source = Source::new(config, w.streams().stream("s"));
        w.attach(n[0], Bind::udp(PORT), source).unwrap();
        w.run_until(Time::from_secs(10)).unwrap();
        assert_eq!(w.census().dropped, 1);
        let is_drop = |r: &Record| match r.step {
            Step::Drop(reason) => Some((reason, r.node)),
            _ => None,
        };
        w.recorder::<Records>(records).unwrap().0.iter().find_map(is_drop)
    };
    assert_eq!(reasons(&|_, _, _, _| ()), Some((Reason::NoEndpoint, 2)));
    let closed = reasons(&|w, n, _, _| w.set_forwarding(n[1], false).unwrap());
    assert_eq!(closed, Some((Reason::NoRoute, 1)));
    let lost = reasons(&|w, _, _, _| w.set_computed_routes(false));
    assert_eq!(lost, Some((Reason::NoRoute, 0)));
    // Sent back where it came from, for ever.
    let looped = reasons(&|w, n, back, _| w.add_route(n[1], address(2), 32, back).unwrap());
    assert_eq!(looped.map(|l| l.0), Some(Reason::HopLimit));
    let small = reasons(&|w, _, _, on| w.reconfigure(on, |c| c.mtu = Size(999)).unwrap());
    assert_eq!(small, Some((Reason::Link(ringway_link::DropReason::TooBig), 1)));
}

#[test]
fn a_cable_is_pulled_while_packets_are_on_it() {
    let links = [LinkConfig { delay: Span::from_millis(100), ..LinkConfig::default() }];
    let config = |a, b| SourceConfig { max_packets: 100, ..SourceConfig::ns2(a, b) };
    let mut line = Line::new(Streams::new(1, 0), &links, config, Sink::new());
    let records = line.world.add_recorder(Records::default());
    line.run(Time::from_millis(500));
    line.world.reconfigure(line.onward[0], |c| c.up = false).unwrap();
    line.run(Time::from_secs(60));
    // Sent at k 125/7 ms: 23 have arrived, 28 have been sent when the cable is pulled.
    assert_eq!(line.sink().totals().packets, 23);
    assert_eq!((line.sent(), line.world.census().dropped), (100, 77));
    let cut = Step::Drop(Reason::Link(ringway_link::DropReason::Cut));
    let records = line.world.recorder::<Records>(records).unwrap();
    assert_eq!(records.0.iter().filter(|r| r.step == cut).count(), 6);
}

/// An endpoint that misbehaves in one of two ways.
struct Bad(u8);

impl Endpoint for Bad {
    fn handle_packet(&mut self, _: Time, _: Addressing, _: &[u8]) {}
    fn handle_timeout(&mut self, _: Time) {}
    fn poll_timeout(&self) -> Option<Time> {
        // The past, always.
        (self.0 == 1).then_some(Time::ZERO)
    }
    fn poll_transmit(&mut self, _: Time, payload: &mut Vec<u8>) -> Option<Addressing> {
        payload.extend_from_slice(&[0; 8]);
        (self.0 == 2).then(|| ringway_sim::headers::udp_between(address(0), address(1)))
    }
}

#[test]
fn a_spinning_node_is_named_in_the_error() {
    let run = |bad: Option<Bad>, budget: Budget| {
        let config = |a, b| SourceConfig::ns2(a, b);
        let links = [LinkConfig::default()];
        let mut line = Line::new(Streams::new(1, 0), &links, config, Sink::new());
        line.world.set_budget(budget);
        if let Some(bad) = bad {
            line.world.attach(line.nodes[1], Bind::protocol(200), bad).unwrap();
        }
        line.world.run_until(Time::from_secs(100))
    };
    let tight = Budget { events: 5_000, per_instant: 100, burst: 50 };
    let name = |node: &str| node.to_string();
    assert!(matches!(
        run(Some(Bad(1)), tight),
        Err(Error::Spin { node, max: 100, .. }) if node == name("n1")
    ));
    assert!(matches!(
        run(Some(Bad(2)), tight),
        Err(Error::Flood { node, max: 50, .. }) if node == name("n1")
    ));
    let error = run(None, tight).unwrap_err();
    assert!(matches!(&error, Error::Budget { max: 5_000, .. }));
    assert!(error.to_string().contains("n0") || error.to_string().contains("n1"), "{error}");
    run(None, Budget::default()).unwrap();
}

#[test]
fn an_invalid_world_is_an_error() {
    let (mut w, n) = world(&["a", "b"]);
    assert!(matches!(w.add_node("a"), Err(Error::NameTaken(_))));
    let (a, b) = w.connect(n[0], n[1], link(1), link(1)).unwrap();
    w.add_address(a, address(0)).unwrap();
    assert!(matches!(w.add_address(b, address(0)), Err(Error::AddressTaken(_))));
    assert!(w.add_route(n[0], address(5), 32, b).is_err());
    w.attach(n[0], Bind::udp(5), Sink::new()).unwrap();
    assert!(matches!(w.attach(n[0], Bind::udp(5), Sink::new()), Err(Error::PortTaken { .. })));
    let slow = LinkConfig { rate: Rate(0), ..LinkConfig::default() };
    let error = w.connect(n[0], n[1], slow, link(1)).unwrap_err().to_string();
    assert!(error.contains("a-b-2") && error.contains("rate"), "{error}");
}

/// A tree in which every node sends to its parent, and some to distant nodes: set-up and routes cost in
/// proportion to the nodes and to the distant destinations.
#[test]
fn a_world_of_32768_nodes_takes_seconds() {
    const NODES: u32 = 32_768;
    const CHILDREN: u32 = 8;
    let at = |n: u32| IpAddr::from([10, (n >> 16) as u8, (n >> 8) as u8, n as u8]);
    let mut w = World::new(Streams::new(1, 0).with(Generator::Xoshiro));
    let nodes: Vec<NodeId> = (0..NODES).map(|n| w.add_node(&format!("n{n}")).unwrap()).collect();
    for n in 1..NODES {
        let parent = (n - 1) / CHILDREN;
        let ends = [n, parent].map(|n| nodes[n as usize]);
        let (up, down) = w.connect(ends[0], ends[1], link(1), link(1)).unwrap();
        w.add_address(up, at(n)).unwrap();
        w.add_address(down, at(n | 1 << 20)).unwrap();
    }
    let mut sinks = Vec::new();
    let mut send = |w: &mut World, from: u32, to: u32, address: u32, port: u16| {
        let ends = [at(from), at(address)].map(|ip| SocketAddr::new(ip, port));
        let config = SourceConfig { max_packets: 2, ..SourceConfig::ns2(ends[0], ends[1]) };
        let source = Source::new(config, w.streams().stream(&format!("{from}/{port}")));
        w.attach(nodes[from as usize], Bind { protocol: 17, port: Some(port + 1) }, source)
            .unwrap();
        if w.attach(nodes[to as usize], Bind::udp(port), Sink::new()).is_ok() {
            sinks.push(to);
        }
    };
    for n in 1..NODES {
        send(&mut w, n, (n - 1) / CHILDREN, n | 1 << 20, 9);
    }
    for n in 1..=64 {
        send(&mut w, n * 500, (n * 400).max(1), n * 400, 11);
    }
    w.run_until(Time::from_secs(10)).unwrap();
    assert_eq!(sinks.len() as u32, (NODES - 2) / CHILDREN + 1 + 64);
    assert_eq!(w.census().delivered, u64::from(2 * (NODES - 1 + 64)));
}
