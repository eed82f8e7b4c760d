//! Packets of hosts farther from each other than an ordinary packet has labels for.

mod net;
mod wired;

use net::topology;
use ringway_mesh::Prefix;
use ringway_mesh::config::MAX_ORDINARY_NIBBLES;
use ringway_mesh::wire::{DataView, Kind};
use ringway_sansio::time::Duration;
use ringway_sansio::{Random, SplitMix};
use wired::Wired;

const SECOND: Duration = Duration::from_secs(1);

/// Starts a line, which must be one ring after at most so many seconds.
fn line(routers: usize, max: u32) -> Wired {
    let mut net = Wired::new(topology::line(routers), 3);
    let mut seconds = 0;
    while net.wrong() > 0 {
        net.run(SECOND);
        seconds += 1;
        assert!(seconds <= max, "{} routers do not know the next", net.wrong());
    }
    net
}

/// Sends packets in both directions between two routers, and checks that each arrives once.
fn exchange(net: &mut Wired, (one, other): (usize, usize)) {
    assert!(one.abs_diff(other) > MAX_ORDINARY_NIBBLES + 1);
    for number in 0..5 {
        net.send(one, other, &[number; 600]);
        net.send(other, one, &[number; 1_240]);
        net.run(SECOND / 2);
    }
    net.run(SECOND * 4);
    for (end, length) in [(other, 600), (one, 1_240)] {
        let mut arrived = net.received(end);
        arrived.sort();
        let sent: Vec<Vec<u8>> = (0..5).map(|number| vec![number; length]).collect();
        assert!(arrived == sent, "{} of 5 have come to {end}", arrived.len());
    }
    assert!(net.too_long.is_empty(), "{:?}", net.too_long);
}

/// Hosts at a router learn that nobody has a prefix.
fn is_absent(net: &mut Wired, from: usize, prefix: [u8; 7]) {
    let packet = net.packet(from, Prefix::from_bytes(prefix), b"anybody?");
    net.call(from, |router, now, random| router.handle_local(now, &packet, random));
    net.run(SECOND * 5);
    let [error] = &net.received(from)[..] else { panic!("one error at {from}") };
    assert_eq!((error[..2].to_vec(), &error[8..]), (vec![1, 0], &packet[..]));
}

/// The labels of a long packet, or the numbers of which the high bits are in the flags, are changed on the way; or it comes
/// again: nobody forwards it.
fn changed_packets_are_not_forwarded(net: &mut Wired) {
    net.tap = Some(Vec::new());
    net.send(0, 255, b"once");
    net.run(SECOND / 2);
    let tap = net.tap.take().unwrap_or_default();
    let is_long = |bytes: &&Vec<u8>| {
        let mut copy = bytes.to_vec();
        let labels = DataView::parse(&mut copy).and_then(|data| data.labels());
        Kind::of(bytes) == Ok(Kind::Data) && labels.is_ok_and(|labels| labels.nibbles() == 254)
    };
    let packets: Vec<&Vec<u8>> = tap.iter().filter(is_long).take(20).collect();
    assert_eq!((packets.len(), net.received(255)), (20, vec![b"once".to_vec()]));
    let forwarded = |net: &Wired| -> u64 {
        net.nodes.iter().map(|node| node.router.packet_counters().forwarded).sum()
    };
    let (before, mut random) = (forwarded(net), SplitMix::new(8));
    for (at, packet) in packets.into_iter().enumerate() {
        for turn in 0..200 {
            let mut changed = packet.clone();
            if turn > 0 {
                let octet = 1 + (random.next_u64() % 160) as usize;
                changed[octet] ^= 1 << (random.next_u64() % 8);
            }
            (at.max(1)..at + 3).for_each(|to| net.inject(to, to - 1, &changed));
        }
    }
    net.run(SECOND / 2);
    assert_eq!((forwarded(net), net.received(255).len()), (before, 0));
}

/// From end to end, where packets have 598 labels, and between others; those of 1,280 octets go in two pieces.
#[test]
fn packets_cross_a_line_of_600() {
    let mut net = line(600, 15);
    exchange(&mut net, (0, 599));
    exchange(&mut net, (450, 150));
    is_absent(&mut net, 0, [0; 7]);
    is_absent(&mut net, 599, [0x80; 7]);
}

/// The way between two routers by one that is far from both is as long as the shortest. If it went there and back, it would
/// be longer than a route may be for many that are beside each other on the ring, on a line of half that length and more.
#[test]
fn a_line_longer_than_half_of_a_route_becomes_one_ring() {
    let mut net = line(700, 40);
    exchange(&mut net, (0, 699));
}

/// Changed packets are not forwarded. The only way is cut, and comes back: so do the ring and the sessions.
#[test]
fn packets_cross_a_line_that_was_cut() {
    let mut net = line(256, 15);
    exchange(&mut net, (0, 255));
    changed_packets_are_not_forwarded(&mut net);
    exchange(&mut net, (255, 10));
    net.cut(149, 150);
    net.run(SECOND * 5);
    net.send(255, 10, b"lost");
    net.run(SECOND * 15);
    assert!(net.received(10).is_empty());
    let error = net.received(255).pop().expect("an error");
    assert_eq!((error[0], &error[48..]), (1, &b"lost"[..]));
    net.join(149, 150);
    net.run(SECOND * 20);
    exchange(&mut net, (255, 10));
    exchange(&mut net, (0, 250));
    is_absent(&mut net, 4, [0x40; 7]);
}
