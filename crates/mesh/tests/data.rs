//! Packets of hosts across several routers, in virtual time.

mod net;
mod wired;

use net::topology;
use proptest::prelude::*;
use ringway_mesh::Prefix;
use ringway_mesh::crypto::{Real, StandIn};
use ringway_sansio::time::Duration;
use wired::{DELAY, Wired};

const SECOND: Duration = Duration::from_secs(1);

fn settled<C: ringway_mesh::crypto::Crypto>(links: topology::Links, seed: u64) -> Wired<C> {
    let mut net = Wired::new(links, seed);
    net.run(SECOND * 20);
    net
}

/// The first packet takes the way of the question and the answer longer, all others the shortest there is.
fn packets_arrive_in_order<C: ringway_mesh::crypto::Crypto>() {
    let mut net = settled::<C>(topology::line(5), 3);
    for number in 0..5 {
        net.send(0, 4, &[number]);
    }
    net.run(SECOND);
    assert_eq!(net.received(4), [[0], [1], [2], [3], [4]]);
    let start = net.now;
    net.send(4, 0, b"answer");
    net.run(SECOND);
    let [(time, _)] = net.nodes[0].delivered[..] else { panic!("{:?}", net.nodes[0].delivered) };
    assert_eq!((time.since(start), net.received(0)), (DELAY * 4, vec![b"answer".to_vec()]));
}

#[test]
fn packets_arrive_in_order_with_real_keys() {
    packets_arrive_in_order::<Real>();
}

#[test]
fn packets_arrive_in_order_with_stand_ins() {
    packets_arrive_in_order::<StandIn>();
}

#[test]
fn a_transit_router_cannot_read() {
    let mut net = settled::<Real>(topology::line(4), 3);
    net.tap = Some(Vec::new());
    let secret = [0x5a; 64];
    net.send(0, 3, &secret);
    net.send(0, 3, &secret);
    net.run(SECOND);
    assert_eq!(net.received(3), [secret, secret]);
    let tap = net.tap.take().unwrap();
    assert!(tap.iter().any(|packet| packet[0] == 0x17));
    assert!(tap.iter().all(|packet| !packet.windows(8).any(|window| window == &secret[..8])));
}

/// The router that is responsible for the prefix states that it is not the owner; the host gets an ICMPv6 error.
#[test]
fn an_absent_router_is_reported_with_icmpv6() {
    let mut net = settled::<Real>(topology::grid(3), 9);
    // Before, between and behind the ids on the ring.
    for (from, prefix) in [(0, [0; 7]), (3, [0x80; 7]), (8, [0xff; 7])] {
        let packet = net.packet(from, Prefix::from_bytes(prefix), b"anybody?");
        net.call(from, |router, now, random| router.handle_local(now, &packet, random));
        net.run(SECOND);
        let [error] = &net.received(from)[..] else { panic!("one error") };
        assert_eq!((error[..2].to_vec(), &error[8..]), (vec![1, 0], &packet[..]));
        // The next is answered at once.
        net.call(from, |router, now, random| router.handle_local(now, &packet, random));
        assert_eq!(net.received(from).len(), 1);
    }
}

#[test]
fn a_packet_that_is_too_long_is_reported_with_icmpv6() {
    let mut net = settled::<StandIn>(topology::line(3), 9);
    net.send(0, 2, b"hello");
    net.run(SECOND);
    // 1,452 octets of UDP payload, 50 around the packet, and one of labels.
    net.send(0, 2, &[7; 1_401 - 40]);
    net.send(0, 2, &[7; 1_402 - 40]);
    net.run(SECOND);
    let lengths: Vec<usize> = net.received(2).iter().map(Vec::len).collect();
    assert_eq!(lengths, [5, 1_361]);
    let [error] = &net.received(0)[..] else { panic!("one error") };
    assert_eq!((error[0], &error[4..8]), (2, &1_401_u32.to_be_bytes()[..]));
}

/// What IPv6 needs passes a link that takes less, in both directions and at once, and an MTU below that is never reported.
#[test]
fn packets_of_1280_octets_pass_a_link_of_600() {
    let mut net: Wired<Real> = Wired::narrow(topology::line(5), 3, |at| [1_452, 600][at / 2 % 2]);
    net.run(SECOND * 20);
    let long = |value: u8| vec![value; 1_280 - 40];
    for value in 0..10 {
        net.send(0, 4, &long(value));
        net.send(4, 0, &long(value));
    }
    net.run(SECOND);
    // Those that were sent when the session was there are not behind those that had to wait for it.
    net.send(0, 4, &[1; 1_281 - 40]);
    net.send(0, 4, b"short");
    net.run(SECOND);
    let arrived = net.received(4);
    assert_eq!(arrived[..8], (0..8).map(long).collect::<Vec<_>>());
    assert_eq!(arrived.last(), Some(&b"short".to_vec()));
    let back = net.received(0);
    let errors: Vec<&[u8]> = back.iter().filter(|one| one[0] == 2).map(|one| &one[4..8]).collect();
    assert_eq!(errors.last(), Some(&&1_280_u32.to_be_bytes()[..]), "{errors:?}");
    assert_eq!(back.iter().filter(|one| one.len() == 1_240 && one[0] != 2).count(), 7);
    assert!(net.too_long.is_empty(), "{:?}", net.too_long);
    assert_eq!(net.nodes[4].router.session_counters().incomplete, 0);
}

/// The middle of the only way has the least MTU that everything works with.
#[test]
fn a_line_of_the_least_mtu_carries_what_ipv6_needs() {
    let least = ringway_mesh::config::LEAST_MTU;
    let mut net: Wired<StandIn> = Wired::narrow(topology::line(40), 3, |_| least);
    net.run(SECOND * 60);
    for value in 0..3 {
        net.send(0, 39, &[value; 1_280 - 40]);
        net.run(SECOND);
    }
    assert_eq!(net.received(39), [0, 1, 2].map(|value| vec![value; 1_240]));
    assert!(net.too_long.is_empty(), "{:?}", net.too_long);
}

#[test]
fn a_host_cannot_use_another_prefix() {
    let mut net = settled::<StandIn>(topology::line(3), 9);
    let packet = net.packet(1, net.id(2).prefix(), b"not mine");
    net.call(0, |router, now, random| router.handle_local(now, &packet, random));
    net.run(SECOND);
    assert!(net.received(2).is_empty());
    assert_eq!(net.nodes[0].router.packet_counters().bad, 1);
}

/// Ten packets a second across a grid; the middle dies. Traffic finds out before HELLOs would, and goes round it.
#[test]
fn packets_go_round_a_dead_router() {
    let mut net = settled::<StandIn>(topology::grid(3), 4);
    for number in 0..20u8 {
        net.send(3, 5, &[number]);
        net.run(SECOND / 10);
    }
    assert_eq!(net.received(5).len(), 20);
    net.crash(4);
    for number in 0..60u8 {
        net.send(3, 5, &[number]);
        net.run(SECOND / 10);
    }
    let arrived = net.received(5);
    assert!(arrived.len() >= 48, "{} of 60 arrived: {arrived:?}", arrived.len());
    assert_eq!(arrived.last(), Some(&vec![59]));
}

/// A link between two routers in the middle is cut, and both have another neighbour in common: packets go by that one before
/// the link is given up, and neither end looks for another route.
#[test]
fn packets_go_round_a_dead_link() {
    // 0 - 1 - 2 - 3, and 4 beside 1 and 2.
    let mut links = topology::line(4);
    links.push([1, 2].into());
    (1..3).for_each(|at| _ = links[at].insert(4));
    let mut net = settled::<StandIn>(links, 4);
    let send = |net: &mut Wired, numbers: core::ops::Range<u8>| {
        for number in numbers {
            net.send(0, 3, &[number]);
            net.send(3, 0, &[number]);
            net.run(SECOND / 20);
        }
    };
    send(&mut net, 0..20);
    assert_eq!((net.received(0).len(), net.received(3).len()), (20, 20));
    let found = net.nodes[0].router.session_counters().found;
    net.links[1].remove(&2);
    net.links[2].remove(&1);
    send(&mut net, 20..60);
    // 0.15 s until data is missed, 0.1 s until the second probe.
    for end in [0, 3] {
        let arrived = net.received(end);
        assert!(arrived.len() >= 34, "{} of 40 arrived at {end}: {arrived:?}", arrived.len());
        assert_eq!(arrived.last(), Some(&vec![59]));
    }
    // A route without the detour was looked for while it served.
    net.run(SECOND * 2);
    assert!(net.nodes[0].router.session_counters().found <= found + 1);
    assert_eq!(net.nodes[0].router.overlay().contacts().ids().len(), 4);
}

/// Routers in the middle drop what hosts send, and everything else passes them. The packets of most others find ways round them.
#[test]
fn packets_go_round_routers_that_drop_them() {
    let mut net = settled::<StandIn>(topology::grid(5), 4);
    net.black_holes = [7, 12, 16].into();
    let ends: [usize; 6] = [0, 2, 4, 20, 22, 24];
    let pairs = || ends.into_iter().flat_map(|from| ends.map(|to| (from, to)));
    for second in 0..30u8 {
        for (from, to) in pairs().filter(|(from, to)| from != to) {
            net.send(from, to, &[from as u8, second]);
        }
        net.run(SECOND);
    }
    let mut cut_off = Vec::new();
    for to in ends {
        let arrived = net.received(to);
        for from in ends.into_iter().filter(|&from| from != to) {
            if !arrived.iter().any(|octets| octets[0] == from as u8 && octets[1] > 25) {
                cut_off.push((from, to));
            }
        }
    }
    // To a corner few ways lead, and not all pairs find one in this time.
    assert!(cut_off.len() <= 4, "{cut_off:?}");
}

/// The first packet of a session follows its CONFIRM, and both are lost. Both are sent again, and it arrives once.
#[test]
fn a_packet_that_is_lost_with_its_confirm_arrives_once() {
    let mut net = settled::<StandIn>(topology::line(5), 3);
    net.send(0, 4, b"first");
    net.run(DELAY * 9);
    net.cut(3, 4);
    net.run(DELAY * 10);
    assert!(net.received(4).is_empty());
    net.join(3, 4);
    net.run(SECOND * 2);
    assert_eq!(net.received(4), [b"first"]);
}

/// One packet after a silence is lost at a router that has died. It goes by the next route.
#[test]
fn a_packet_that_an_old_route_has_lost_goes_by_another() {
    let mut net = settled::<StandIn>(topology::grid(3), 4);
    net.send(3, 5, b"before");
    net.run(SECOND * 5);
    assert_eq!(net.received(5).len(), 1);
    net.crash(4);
    net.send(3, 5, b"after");
    net.run(SECOND / 2);
    assert!(net.received(5).is_empty());
    net.run(SECOND * 6);
    assert_eq!(net.received(5), [b"after"]);
}

/// A session that has lost its peer, because that one has started again, is made anew.
#[test]
fn a_peer_that_starts_again_is_reached() {
    let mut net = settled::<StandIn>(topology::line(4), 4);
    net.send(0, 3, b"before");
    net.run(SECOND);
    assert_eq!(net.received(3).len(), 1);
    net.crash(3);
    net.run(SECOND * 5);
    let config = ringway_mesh::Config { extension_bits: 0, ..ringway_mesh::Config::default() };
    net.restart(3, 4, &config);
    net.run(SECOND * 5);
    for _ in 0..4 {
        net.send(0, 3, b"after");
        net.run(SECOND);
    }
    let arrived = net.received(3);
    assert_eq!(arrived.len(), 4);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// One of fifty packets is lost at every hop and each may overtake others: packets that go in pieces come whole, once, or
    /// not at all.
    #[test]
    fn lost_pieces_spoil_their_own_packet_only(seed in 0u64..1_000) {
        let mut net: Wired = Wired::narrow(topology::grid(4), seed, |_| 600);
        net.run(SECOND * 20);
        // What waits for a session is not the matter here.
        net.send(0, 15, b"first");
        net.run(SECOND);
        assert_eq!(net.received(15), [b"first"]);
        (net.loss, net.jitter) = (20, DELAY * 5);
        for number in 0..100u8 {
            let length = 1_240 - 9 * usize::from(number);
            net.send(0, 15, &vec![number; length]);
            net.run(SECOND / 20);
        }
        net.run(SECOND * 3);
        let arrived = net.received(15);
        let mut numbers: Vec<u8> = arrived.iter().map(|packet| packet[0]).collect();
        for (packet, &number) in arrived.iter().zip(&numbers) {
            prop_assert_eq!(packet, &vec![number; 1_240 - 9 * usize::from(number)]);
        }
        numbers.sort();
        // The thousand seeds have 81 on average, and at least 68.
        prop_assert!(numbers.len() >= 64, "{} of 100", numbers.len());
        prop_assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
        prop_assert!(net.too_long.is_empty(), "{:?}", net.too_long);
    }

    /// One of fifty packets is lost at every hop, handshakes too: what a session carries is what was sent, once, and in
    /// the end everything works.
    #[test]
    fn lost_packets_are_the_only_ones_missing(seed in 0u64..1_000) {
        let mut net = settled::<StandIn>(topology::grid(4), seed);
        net.loss = 20;
        for number in 0..50u8 {
            net.send(0, 15, &[number]);
            net.send(15, 0, &[number]);
            net.run(SECOND / 5);
        }
        for end in [0, 15] {
            let mut arrived = net.received(end);
            arrived.sort();
            let all = arrived.len();
            arrived.dedup();
            prop_assert!(arrived.len() >= 30, "{} of 50", arrived.len());
            prop_assert!(all == arrived.len(), "{} came again", all - arrived.len());
        }
    }
}

/// A session is renewed after 120 s by the best way, which drops what hosts send by now. The session before works, by
/// another way, and serves until the new one has carried something.
#[test]
fn a_renewal_by_a_way_that_carries_nothing_cuts_no_session() {
    // 0 - 1 - 3, 0 - 2 - 3
    let mut net = settled::<StandIn>(topology::grid(2), 4);
    let contact = net.nodes[0].router.overlay().contacts().get(net.id(3)).cloned().unwrap();
    let best = (1..3).find(|&at| {
        let link = net.nodes[0].router.links().neighbour(contact.route.first);
        link.is_some_and(|link| link.id == net.id(at))
    });
    // The first session goes by the other one, because the best drops packets, as it does later again.
    net.black_holes = best.into_iter().collect();
    net.send(0, 3, b"first");
    net.run(SECOND * 5);
    assert_eq!((net.received(3), best.is_some()), (vec![b"first".to_vec()], true));
    let found = net.nodes[0].router.session_counters().found;
    for second in 0..200 {
        for _ in 0..50 {
            net.send(0, 3, b"more");
            net.send(3, 0, b"back");
            net.run(SECOND / 50);
        }
        let counts = (net.received(3).len(), net.received(0).len());
        assert_eq!(counts, (50, 50), "in second {second}");
    }
    // It was renewed nevertheless, and not over and over.
    let more = net.nodes[0].router.session_counters().found - found;
    assert!((2..=6).contains(&more), "{more} handshakes");
}
