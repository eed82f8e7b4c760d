//! Packets of hosts farther from each other than an ordinary packet has labels for.

mod net;
mod wired;

use net::topology;
use ringway_mesh::Prefix;
use ringway_mesh::config::MAX_ORDINARY_NIBBLES;
use ringway_mesh::crypto::{Crypto, Real, StandIn};
use ringway_mesh::wire::{DataView, Kind};
use ringway_sansio::time::Duration;
use std::time::Instant;
use wired::Wired;

const SECOND: Duration = Duration::from_secs(1);

/// Sends packets in both directions between two routers, and checks that each arrives once.
fn exchange<C: Crypto>(net: &mut Wired<C>, (one, other): (usize, usize)) {
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
}

/// From end to end of a line of 600 and back; *no route* to who does not exist; and the same when the only way has been cut.
#[test]
fn packets_cross_a_line_of_600() {
    let t = Instant::now();
    let mut net: Wired<StandIn> = Wired::new(topology::line(600), 3);
    net.run(SECOND * 20);
    println!("settled {} {:?} {}", net.wrong(), t.elapsed(), net.packets);
    assert_eq!(net.wrong(), 0);
    for pair in [(0, 599), (20, 400), (150, 399), (500, 1)] {
        exchange(&mut net, pair);
    }
    println!("exchanged {:?} {}", t.elapsed(), net.packets);
    for (from, prefix) in [(0, [0; 7]), (599, [0x80; 7]), (300, [0xff; 7])] {
        let packet = net.packet(from, Prefix::from_bytes(prefix), b"anybody?");
        net.call(from, |router, now, random| router.handle_local(now, &packet, random));
        net.run(SECOND * 5);
        let [error] = &net.received(from)[..] else { panic!("one error at {from}") };
        assert_eq!((error[..2].to_vec(), &error[8..]), (vec![1, 0], &packet[..]));
    }
    println!("absent {:?} {}", t.elapsed(), net.packets);
    net.cut(299, 300);
    net.run(SECOND * 5);
    net.join(299, 300);
    net.run(SECOND * 20);
    let mut order: Vec<usize> = (0..600).collect();
    order.sort_by_key(|&at| net.id(at));
    let mut shown = 0;
    for w in order.windows(2) {
        for (a, b) in [(w[0], w[1]), (w[1], w[0])] {
            let o = net.nodes[a].router.overlay();
            if o.contacts().get(net.id(b)).is_none() && shown < 12 {
                shown += 1;
                let t = format!("{o:?}");
                let (x, y) = (t.find(" missed:").unwrap(), t.find(" unmet:").unwrap());
                let ids: Vec<_> = t[x..y].match_indices("Missed {").map(|(i, _)| t[x + i..x + i + 30].to_string()).collect();
                let c = t.find("connecting:").unwrap();
                println!("{a} misses {b} {:?}: {ids:?} {} {:?} {}", net.id(b), &t[c..c + 150], net.nodes[a].router.message_counters(), &t[t.find("upkeep:").unwrap()..][..120]);
            }
        }
    }
    println!("joined {:?} {} wrong {}", t.elapsed(), net.packets, net.wrong());
    for _ in 0..12 {
        let mut bad = 0;
        for n in 0..20 {
            let (a, b) = ((n * 13) % 250, 599 - (n * 29) % 250);
            net.send(a, b, b"x");
            net.run(SECOND / 20);
        }
        net.run(SECOND * 9);
        for n in 0..20 {
            let b = 599 - (n * 29) % 250;
            if !net.received(b).contains(&b"x".to_vec()) { bad += 1; }
        }
        (0..600).for_each(|at| _ = net.received(at));
        println!("{:?} wrong {} bad {bad} packets {}", net.now, net.wrong(), net.packets);
    }
    println!("exchanged {:?} {}", t.elapsed(), net.packets);
    assert!(net.too_long.is_empty(), "{:?}", net.too_long);
}
