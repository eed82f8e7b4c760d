//! Lists of all records of a kind.

use super::net::Net;
use super::{await_stored, name};
use ringway_dht::positions::{Cursor, Stretch};
use ringway_dht::wire::Packet;
use ringway_dht::{Answer, Config, Event, Kinds, ScanEnd};
use ringway_mesh::NodeId;
use ringway_sansio::time::Duration;

fn listing() -> Config {
    Config { listable: Kinds::none().with(1), ..Config::default() }
}

/// Returns a network in which everybody lists records of kind 1, of which there are so many, with values of 100 octets.
fn network(routers: usize, records: u64, seed: u64) -> (Net, Vec<Vec<u8>>) {
    let mut net = Net::with(routers, seed, listing());
    net.set_hops(2);
    let up = net.up();
    for number in 0..records {
        net.publish(up[number as usize % routers], &name(number), &[7; 100], 600);
    }
    let is_stored =
        |net: &Net, number: u64| net.is_stored(up[number as usize % routers], &name(number));
    while !(0..records).all(|number| is_stored(&net, number)) {
        net.run(1_000);
    }
    net.run(2_000);
    let mut names: Vec<Vec<u8>> = (0..records).map(name).collect();
    names.sort();
    (net, names)
}

#[test]
fn a_scan_returns_each_record_of_the_kind_once() {
    for (routers, records) in [(1, 20), (2, 30), (5, 60), (60, 900), (200, 400)] {
        let (mut net, names) = network(routers, records, 41);
        let from = net.up()[routers / 2];
        net.publish_kind(from, 2, b"of another kind");
        net.publish(from, b"withdrawn", b"x", 600);
        net.run(2_000);
        net.withdraw(from, b"withdrawn");
        net.run(2_000);
        let id = net.scan(from, 1).unwrap();
        let (found, end, took) = net.await_scan(from, id, Duration::from_secs(60));
        assert_eq!((found, end), (names, ScanEnd::Whole), "{routers}");
        let max = Duration::from_millis(1_900).max(Duration::from_millis(20) * routers as u32);
        assert!(took < max, "{routers}: {took:?}");
        assert_eq!(net.refused, 0);
    }
}

#[test]
fn lost_messages_of_a_list_are_asked_for_again() {
    for seed in 0..5 {
        let (mut net, names) = network(40, 1_200, 42 + seed);
        net.loss = 20;
        let from = net.some();
        let id = net.scan(from, 1).unwrap();
        let (found, end, took) = net.await_scan(from, id, Duration::from_secs(60));
        assert!(found == names, "{} of {}", found.len(), names.len());
        assert_ne!(end, ScanEnd::Full);
        assert!(took < Duration::from_secs(40), "{took:?}");
    }
}

#[test]
fn routers_that_go_during_a_scan_leave_no_gap_without_notice() {
    for seed in 0..5 {
        let (mut net, names) = network(60, 600, 50 + seed);
        let from = net.some();
        for _ in 0..3 {
            let gone = net.some();
            if gone != from {
                net.crash(gone);
            }
        }
        let id = net.scan(from, 1).unwrap();
        let (found, end, took) = net.await_scan(from, id, Duration::from_secs(60));
        assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "one was found twice");
        assert!(end == ScanEnd::Partial || found == names, "{} {end:?} {took:?}", found.len());
        assert!(found.len() * 100 >= names.len() * 98, "{} of {}", found.len(), names.len());
    }
}

#[test]
fn only_kinds_that_are_declared_are_listed() {
    let (mut net, _) = network(20, 40, 60);
    let from = net.some();
    net.publish_kind(from, 2, b"secret");
    net.run(3_000);
    let id = net.scan(from, 2).unwrap();
    let (found, end, _) = net.await_scan(from, id, Duration::from_secs(1_500));
    assert_eq!((found, end), (Vec::<Vec<u8>>::new(), ScanEnd::Partial));
    let refused: u64 = net.nodes.values().map(|node| node.dht.counters().refused).sum();
    assert!(refused >= 20);
}

#[test]
fn a_scan_ends_at_its_limits() {
    let config = Config { scan_records: 100, ..listing() };
    let mut net = Net::with(20, 61, config);
    net.publish_everywhere(300);
    net.run(10_000);
    let from = net.some();
    let (first, second) = (net.scan(from, 1), net.scan(from, 1));
    assert!(first.is_some() && second.is_some() && net.scan(from, 1).is_none());
    let (found, end, _) = net.await_scan(from, first.unwrap(), Duration::from_secs(60));
    assert_eq!((found.len(), end), (100, ScanEnd::Full));
    net.await_scan(from, second.unwrap(), Duration::from_secs(60));
    // One that is stopped makes room, and is not heard of any more.
    let id = net.scan(from, 1).unwrap();
    net.nodes.get_mut(&from).unwrap().dht.stop_scan(id);
    net.run(5_000);
    assert!((0..2).all(|_| net.scan(from, 1).is_some()));
}

#[test]
fn who_lists_all_day_leaves_the_others_their_answers() {
    let mut net = Net::with(20, 62, listing());
    let by = net.some();
    for number in 0..200 {
        net.publish(by, &name(number), &[7; 400], 600);
    }
    net.run(200_000);
    let hog = net.some();
    let all =
        Stretch { first: Cursor::first(NodeId::new(0)), last: Cursor::last(NodeId::new(u64::MAX)) };
    let ask = |net: &mut Net| {
        for owner in net.up() {
            let stretch = Stretch { first: Cursor::first(owner), ..all };
            let list = Packet::List { request: 9, kind: 1, anyhow: true, stretch };
            net.send(hog, owner, list.to_octets());
        }
        net.run(50);
    };
    (0..400).for_each(|_| ask(&mut net));
    for number in 0..20 {
        let mut from = net.some();
        while from == hog {
            from = net.some();
        }
        let id = net.begin(from, &name(number));
        (0..20).for_each(|_| ask(&mut net));
        assert!(matches!(net.answer(from, id), Some(Answer::Found(_))), "{number}");
    }
    assert_eq!(net.refused, 0);
}

/// All routers of a network list everything at once, and go on looking up users meanwhile.
#[test]
fn look_ups_do_not_wait_for_lists() {
    let mut net = Net::with(60, 64, listing());
    let up = net.up();
    for number in 0..120 {
        net.publish(up[number as usize % up.len()], &name(number), &[7; 500], 600);
    }
    net.run(60_000);
    up.iter().for_each(|&by| assert!(net.scan(by, 1).is_some()));
    let mut slow = 0;
    for number in 0..300 {
        let from = net.some();
        let (answer, took) = net.look_up(from, &name(number % 120));
        assert!(matches!(answer, Answer::Found(_)), "{number}: {answer:?}");
        slow += u32::from(took > Duration::from_millis(500));
        net.run(200);
    }
    assert!(slow <= 3, "{slow} of 300 are slow");
    // A router that owns four times as much as others leaves some without an answer for so long that they give up.
    net.run(90_000);
    let listed = up.iter().flat_map(|by| &net.nodes[by].events).map(|event| match event {
        Event::Listed(_, records) => records.len(),
        _ => 0,
    });
    let (listed, all) = (listed.sum::<usize>(), 120 * up.len());
    assert!(listed * 4 > all * 3, "{listed} of {all}");
}

#[test]
fn an_owner_can_hide_no_more_than_what_is_near_it() {
    let mut net = Net::with(300, 63, listing());
    let from = net.some();
    // It learns how far routers are from each other.
    for number in 0..200 {
        net.publish(from, &name(number), b"here", 600);
    }
    net.run(60_000);
    let liar = net.up()[150];
    let id = net.scan(from, 1).unwrap();
    let mut lies = 0;
    for _ in 0..400 {
        for packet in net.intercept(from) {
            match Packet::parse(&packet.octets) {
                Ok(Packet::List { request, stretch, .. }) if packet.to == liar => {
                    let stretch = Stretch { last: Cursor::last(NodeId::new(u64::MAX)), ..stretch };
                    let (settled, last, records) = (true, true, Vec::new());
                    let lie = Packet::Listed { request, settled, last, stretch, records };
                    net.send(liar, from, lie.to_octets());
                    lies += 1;
                }
                _ => net.send(packet.from, packet.to, packet.octets),
            }
        }
        net.run(10);
    }
    let (found, end, _) = net.await_scan(from, id, Duration::from_secs(60));
    assert_eq!((end, lies), (ScanEnd::Whole, 1));
    // An arc has 18 of the 300; within reach are 24 spacings.
    assert!((180..200).contains(&found.len()), "{}", found.len());
    await_stored(&mut net, from, &name(0));
}
