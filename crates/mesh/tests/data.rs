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

    /// One of fifty packets is lost at every hop, handshakes too: what a session carries is what was sent, once, and in the
    /// end everything works.
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
            prop_assert!(arrived.len() >= 30, "{} of 50", arrived.len());
            prop_assert!(arrived.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }
}
