//! AODV in graphs.

use super::*;
use crate::graph::{Adjacency, Graph, LinkModel, Oracle, Pair, Topology, Trial, node_random};

fn graph(topology: &Topology) -> Graph<Aodv> {
    let links = Adjacency::new(topology, |_, _| LinkModel::new(Duration::from_millis(2)));
    Graph::new(links.unwrap(), 1, |n| Aodv::new(n, Time::ZERO, node_random(7, n, 0)))
}

const fn pair(from: u32, to: u32, hops: u32) -> Pair {
    Pair { from, to, hops }
}

fn seconds(seconds: u64) -> Time {
    Time::from_secs(seconds)
}

/// A trial of one packet; returns whether it arrived, and its hops.
fn try_once(graph: &mut Graph<Aodv>, pair: Pair, wait: Duration) -> Option<u64> {
    let mut trial = Trial::new(graph);
    trial.send(graph, pair, 100).unwrap();
    graph.run_until(graph.now() + wait).unwrap();
    let outcome = trial.outcome(graph).unwrap();
    (outcome.delivered == 1).then_some(outcome.hops)
}

/// What a node alone sends: the time in milliseconds, the TTL, and the message.
fn sent_alone(until: Time) -> Vec<(u64, u8, Message)> {
    let mut node = Aodv::new(0, Time::ZERO, SplitMix::new(1));
    let (mut now, mut sent) = (Time::ZERO, Vec::new());
    node.send_data(now, 9, 1, 50);
    while now <= until {
        let mut bytes = Vec::new();
        while node.poll_transmit(now, &mut bytes).is_some() {
            let ip = Ip::parse(&bytes).unwrap();
            sent.push((now.as_millis(), ip.ttl, ip.message().unwrap()));
            bytes.clear();
        }
        now = node.poll_timeout().unwrap();
        node.handle_timeout(now);
    }
    sent
}

/// RFC 3561 sections 6.3 and 6.4: rings of 1, 3, 5 and 7 hops, for 2 x 40 ms x (TTL + 2) each; then the whole
/// network three times, for 2.8, 5.6 and 11.2 s.
#[test]
fn rings_grow_and_waits_double() {
    let sent = sent_alone(seconds(60));
    let times: Vec<_> = sent.iter().map(|(at, ttl, _)| (*at, *ttl)).collect();
    let expected = [(0, 1), (240, 3), (640, 5), (1_200, 7), (1_920, 35), (4_720, 35), (10_320, 35)];
    assert_eq!(times, expected);
    for (number, (.., message)) in (1..).zip(sent) {
        let Message::Request(request) = message else { panic!("{message:?}") };
        assert_eq!((request.id, request.originator_sequence), (number, number));
        assert_eq!((request.destination_sequence, request.hop_count), (None, 0));
    }
}

#[test]
fn a_route_is_found_and_used_again() {
    let mut line = graph(&Topology::line(6));
    line.run_until(seconds(1)).unwrap();
    assert_eq!(line.totals().sent, 0);
    assert_eq!(try_once(&mut line, pair(0, 5, 5), Duration::from_secs(1)), Some(5));
    let route = line.node(0).unwrap().routes().get(5).unwrap();
    assert_eq!((route.hops, route.next.node), (5, 1));
    // On the way back there is a route already, so data is all that is sent beside hellos.
    let before = line.totals().sent;
    assert_eq!(try_once(&mut line, pair(5, 0, 5), Duration::from_millis(15)), Some(5));
    assert!(line.totals().sent - before <= 5 + 6);
    // It is forgotten when nobody uses it.
    line.run_until(seconds(60)).unwrap();
    assert!(line.nodes().all(|node| node.routes().get(5).is_none()));
    let before = line.totals().sent;
    line.run_until(seconds(70)).unwrap();
    assert_eq!(line.totals().sent, before);
}

/// Section 6.6.2: a node on the way that knows a route replies itself.
#[test]
fn a_node_that_knows_a_route_replies() {
    let mut line = graph(&Topology::line(9));
    assert!(try_once(&mut line, pair(2, 8, 6), Duration::from_secs(3)).is_some());
    let at_the_end = line.counters(7).unwrap();
    assert_eq!(try_once(&mut line, pair(0, 8, 8), Duration::from_millis(600)), Some(8));
    // Node 7 sent data and a hello, and no request.
    assert!(line.counters(7).unwrap().sent - at_the_end.sent <= 2);
    assert!(line.node(8).unwrap().routes().get(0).is_none());
}

/// Sections 6.9 and 6.11: silence of a neighbour is reported to those who use it, and data finds another way.
#[test]
fn a_broken_route_is_reported_and_replaced() {
    // From 0 to 3 over 1 and 2, or over 4, 5 and 6.
    let links = [[0, 1], [1, 2], [2, 3], [0, 4], [4, 5], [5, 6], [6, 3]];
    let mut graph = graph(&Topology::new(7, links));
    for time in 0..10 {
        graph.run_until(Time::from_millis(500 * time)).unwrap();
        assert_eq!(try_once(&mut graph, pair(0, 3, 3), Duration::from_millis(450)).unwrap(), 3);
    }
    graph.cut(2, 3).unwrap();
    let mut lost = 0;
    let mut found = None;
    for _ in 0..40 {
        found = try_once(&mut graph, pair(0, 3, 4), Duration::from_millis(500));
        lost += u32::from(found.is_none());
        if found.is_some() {
            break;
        }
    }
    assert_eq!(found, Some(4));
    // Two to three seconds of hellos are missed, with two packets each.
    assert!((4..=8).contains(&lost), "{lost}");
    let route = graph.node(0).unwrap().routes().get(3).unwrap();
    assert_eq!((route.hops, route.next.node), (4, 4));
}

#[test]
fn a_node_that_restarts_is_found_again() {
    let mut line = graph(&Topology::line(4));
    assert!(try_once(&mut line, pair(0, 3, 3), Duration::from_secs(2)).is_some());
    line.stop(3).unwrap();
    line.run_until(seconds(10)).unwrap();
    assert_eq!(try_once(&mut line, pair(0, 3, 3), Duration::from_secs(30)), None);
    // Its sequence number begins anew, but it takes over that of the request.
    let now = line.now();
    line.start(3, Aodv::new(3, now, node_random(7, 3, 1))).unwrap();
    assert_eq!(try_once(&mut line, pair(0, 3, 3), Duration::from_secs(5)), Some(3));
}

#[test]
fn nearly_all_data_arrives_in_a_settled_network() {
    let topology = Topology::disk(200, 8.0, &mut SplitMix::new(3)).largest_part();
    let mut graph = graph(&topology);
    let pairs = Oracle::of(&graph).pairs(10, 3, 2, &mut SplitMix::new(4));
    let mut trial = Trial::new(&graph);
    trial.send_all(&mut graph, &pairs, 100, Duration::from_secs(20)).unwrap();
    graph.run_until(seconds(60)).unwrap();
    let outcome = trial.outcome(&mut graph).unwrap();
    assert!(outcome.delivery() >= 0.9, "{outcome:?}");
    assert!((1.0..1.4).contains(&outcome.stretch()), "{outcome:?}");
    assert_eq!((outcome.sent, outcome.duplicates), (30, 0));
}
