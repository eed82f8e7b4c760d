//! Packets of hosts farther from each other than an ordinary packet has labels for.

mod net;
mod wired;

use net::topology;
use ringway_mesh::config::MAX_ORDINARY_NIBBLES;
use ringway_mesh::crypto::StandIn;
use ringway_sansio::time::Duration;
use wired::Wired;

const SECOND: Duration = Duration::from_secs(1);
const ROUTERS: usize = 600;

/// Sends `count` packets in both directions between two routers, and returns those that have come, without the payloads
/// of others.
fn exchange(net: &mut Wired, (one, other): (usize, usize), count: u8) -> [Vec<Vec<u8>>; 2] {
    for number in 0..count {
        net.send(one, other, &[number]);
        net.send(other, one, &[number]);
        net.run(SECOND / 4);
    }
    net.run(SECOND * 4);
    [net.received(one), net.received(other)]
}

fn all(count: u8) -> [Vec<Vec<u8>>; 2] {
    let numbers: Vec<Vec<u8>> = (0..count).map(|number| vec![number]).collect();
    [numbers.clone(), numbers]
}

/// From end to end of a line of 600, and between others that are far from each other.
#[test]
fn packets_cross_a_line_of_600() {
    let mut net: Wired<StandIn> = Wired::new(topology::line(ROUTERS), 3);
    net.run(SECOND * 20);
    assert_eq!(net.wrong(), 0);
    assert!(net.too_long.is_empty(), "{:?}", net.too_long);
    for pair in [(0, ROUTERS - 1), (20, 400), (150, 399), (1, 500), (310, 590)] {
        assert!(pair.1 - pair.0 > MAX_ORDINARY_NIBBLES + 1);
        let [mut one, mut other] = exchange(&mut net, pair, 5);
        one.sort();
        other.sort();
        assert_eq!([one, other], all(5), "{pair:?}");
    }
}
