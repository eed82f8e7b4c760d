//! Records in networks with loss, crashes, partitions, joins and leaves.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod claims;
mod hostile;
mod many;
mod net;
mod renewal;
mod repair;
mod scan;
mod strays;
mod thorough;

use net::{NOTICED, Net};
use ringway_dht::neighbours::keepers;
use ringway_dht::record::key;
use ringway_dht::{Answer, Config, Draft, Record};
use ringway_mesh::NodeId;
use ringway_mesh::crypto::StandIn;
use ringway_mesh::id::Sequence;
use ringway_mesh::identity::Search;
use ringway_sansio::SplitMix;
use ringway_sansio::time::Duration;

fn name(number: u64) -> Vec<u8> {
    format!("user{number}").into_bytes()
}

/// Returns the five routers that should keep a name.
fn right_keepers(net: &Net, name: &[u8]) -> Vec<NodeId> {
    let mut found = keepers(&mut net.up(), key(1, name)).to_vec();
    found.sort();
    found
}

/// Waits until a record is stored.
fn await_stored(net: &mut Net, by: NodeId, name: &[u8]) {
    for _ in 0..1_000 {
        if net.is_stored(by, name) {
            return;
        }
        net.run(20);
    }
    panic!("a record was not stored");
}

#[test]
fn records_are_found_from_everywhere_though_every_fifth_message_is_lost() {
    let mut net = Net::new(50, 1);
    net.loss = 20;
    let publishers: Vec<NodeId> = (0..100)
        .map(|number| {
            let by = net.some();
            net.publish(by, &name(number), &by.to_bytes(), 600);
            by
        })
        .collect();
    net.run(20_000);
    let mut times = Vec::new();
    for (number, by) in (0..).zip(publishers) {
        assert!(net.is_stored(by, &name(number)));
        let from = net.some();
        let (answer, took) = net.look_up(from, &name(number));
        let Answer::Found(records) = answer else { panic!("{number}: {answer:?}") };
        assert_eq!(records[0].value(), by.to_bytes());
        times.push(took);
    }
    times.sort();
    let (median, slow) = (times[50], times[98]);
    assert!(median < Duration::from_millis(300), "{median:?}");
    assert!(slow < Duration::from_secs(2), "99 of 100: {slow:?}");
}

#[test]
fn a_name_that_nobody_has_is_absent() {
    let mut net = Net::new(30, 2);
    for number in 0..50 {
        let from = net.some();
        let (answer, took) = net.look_up(from, &name(number));
        assert_eq!(answer, Answer::Absent);
        assert!(took < Duration::from_secs(1), "{took:?}");
    }
    // A router alone, and two of them, need no others.
    for count in [1, 2] {
        let mut net = Net::new(count, 3);
        let from = net.some();
        assert_eq!(net.look_up(from, b"alice").0, Answer::Absent);
        net.publish(from, b"alice", b"here", 600);
        await_stored(&mut net, from, b"alice");
        assert_eq!(net.values(from, b"alice"), [b"here"]);
    }
}

#[test]
fn an_acknowledged_record_survives_the_end_of_any_two_routers() {
    for seed in 0..60 {
        let mut net = Net::new(20, 1_000 + seed);
        net.loss = 20;
        let by = net.some();
        net.publish(by, b"alice", b"here", 600);
        await_stored(&mut net, by, b"alice");
        // At once, before anything is repaired.
        let holders = net.nodes[&by].dht.publications().kept_by(1, b"alice").to_vec();
        assert!(holders.len() >= 3);
        let crashed: Vec<NodeId> = holders.iter().copied().filter(|&id| id != by).take(2).collect();
        crashed.iter().for_each(|&id| net.crash(id));
        for _ in 0..5 {
            let from = net.some();
            let (answer, _) = net.look_up(from, b"alice");
            assert_ne!(answer, Answer::Absent, "seed {seed}");
            net.run(1_000);
        }
        net.run(10_000);
        let from = net.some();
        assert_eq!(net.values(from, b"alice"), [b"here"], "seed {seed}");
        net.loss = 0;
        net.run(30_000);
        assert_eq!(
            net.holders(b"alice")
                .iter()
                .filter(|id| right_keepers(&net, b"alice").contains(id))
                .count(),
            5,
            "seed {seed}: all five keep it again"
        );
    }
}

#[test]
fn a_silent_owner_costs_no_more_than_a_moment() {
    for seed in 0..30 {
        let mut net = Net::new(40, 2_000 + seed);
        let by = net.some();
        net.publish(by, b"alice", b"here", 600);
        net.run(2_000);
        let owner = right_keepers(&net, b"alice");
        let owner = keepers(&mut owner.clone(), key(1, b"alice"))[0];
        net.crash(owner);
        // The mesh has not noticed yet.
        let from = net.some();
        let (answer, took) = net.look_up(from, b"alice");
        assert!(matches!(answer, Answer::Found(_)), "seed {seed}: {answer:?}");
        assert!(took < NOTICED, "seed {seed}: {took:?}");
        // So it is for who writes.
        let by = net.some();
        net.publish(by, b"bob", b"there", 600);
        await_stored(&mut net, by, b"bob");
    }
}

#[test]
fn routers_that_join_and_leave_lose_nothing() {
    let mut net = Net::new(30, 5);
    net.loss = 5;
    let by = net.some();
    for number in 0..60 {
        net.publish(by, &name(number), b"here", 600);
    }
    net.run(5_000);
    for round in 0..20 {
        net.join();
        let mut gone = net.some();
        while gone == by {
            gone = net.some();
        }
        if round % 2 == 0 {
            net.crash(gone)
        } else {
            net.leave(gone)
        }
        for number in [round, round + 20, round + 40] {
            let from = net.some();
            let (answer, took) = net.look_up(from, &name(number));
            assert!(matches!(answer, Answer::Found(_)), "round {round}: {answer:?} {took:?}");
        }
        net.run(4_000);
    }
    net.loss = 0;
    net.run(40_000);
    for number in 0..60 {
        let right = right_keepers(&net, &name(number));
        let holders = net.holders(&name(number));
        assert!(right.iter().all(|id| holders.contains(id)), "{number}");
    }
}

#[test]
fn halves_of_a_divided_network_go_on_and_are_united() {
    let mut net = Net::new(40, 6);
    net.publish_everywhere(20);
    net.run(5_000);
    net.divide();
    net.run(10_000);
    let (even, odd) = (net.of_part(0), net.of_part(1));
    net.publish(even[0], b"alice", b"even", 600);
    net.publish(odd[0], b"alice", b"odd", 600);
    await_stored(&mut net, even[0], b"alice");
    await_stored(&mut net, odd[0], b"alice");
    assert_eq!(net.values(even[3], b"alice"), [b"even"]);
    assert_eq!(net.values(odd[3], b"alice"), [b"odd"]);
    for number in 0..20 {
        for from in [even[5], odd[5]] {
            let found = net.values(from, &name(number));
            // Three of five keepers may all have been in the other half. Then the publisher writes it again, if it is here.
            assert!(found == [b"here"] || found.is_empty(), "{number}: {found:?}");
        }
    }
    net.unite();
    net.run(20_000);
    for from in net.up() {
        assert_eq!(net.values(from, b"alice"), [&b"even"[..], b"odd"]);
    }
    for number in 0..20 {
        let from = net.some();
        assert_eq!(net.values(from, &name(number)), [b"here"]);
    }
}

#[test]
fn a_record_is_acknowledged_though_the_network_becomes_too_small_for_a_quorum() {
    for seed in 0..20 {
        let mut net = Net::new(9, 3_100 + seed);
        let pair = [net.up()[2], net.up()[3 + seed as usize % 6]];
        net.divide_by(|id| (!pair.contains(&id)).into());
        // Nobody knows yet that the other seven are gone for good.
        net.run(100);
        let by = pair[seed as usize % 2];
        net.publish(by, b"alice", b"here", 600);
        let begun = net.now;
        await_stored(&mut net, by, b"alice");
        assert!(net.now - begun < Duration::from_secs(15));
    }
}

#[test]
fn a_withdrawn_record_does_not_come_back() {
    for seed in 0..30 {
        let mut net = Net::new(20, 3_000 + seed);
        net.loss = 20;
        let by = net.some();
        net.publish(by, b"alice", b"here", 60);
        await_stored(&mut net, by, b"alice");
        let sleeper = net.holders(b"alice").into_iter().find(|&id| id != by).unwrap();
        // One keeper hears nothing of the withdrawal.
        net.isolate(sleeper);
        net.withdraw(by, b"alice");
        net.run(10_000);
        net.unite();
        net.run(5_000);
        for _ in 0..10 {
            net.run(8_000);
            let from = net.some();
            let (answer, _) = net.look_up(from, b"alice");
            assert!(!matches!(answer, Answer::Found(_)), "seed {seed}");
        }
        assert!(net.holders(b"alice").is_empty(), "seed {seed}");
    }
}

#[test]
fn without_its_publisher_a_record_ends_everywhere_with_its_lifetime() {
    let mut net = Net::new(20, 7);
    net.loss = 10;
    let by = net.some();
    net.publish(by, b"alice", b"here", 60);
    await_stored(&mut net, by, b"alice");
    net.run(200_000);
    assert!(net.holders(b"alice").len() >= 5, "it is written again");
    net.crash(by);
    // New keepers come while it is kept, and learn for how long.
    for _ in 0..6 {
        net.join();
        net.run(9_000);
    }
    net.run(8_000);
    assert!(net.holders(b"alice").is_empty());
}

#[test]
fn a_router_whose_clock_was_put_back_overrides_what_it_wrote_before() {
    let mut net = Net::new(20, 8);
    let by = net.some();
    net.publish(by, b"alice", b"old", 600);
    await_stored(&mut net, by, b"alice");
    net.restart_in_the_past(by);
    net.run(10_000);
    net.publish(by, b"alice", b"new", 600);
    await_stored(&mut net, by, b"alice");
    net.run(1_000);
    let from = net.some();
    assert_eq!(net.values(from, b"alice"), [b"new"]);
}

#[test]
fn at_rest_little_is_sent() {
    let mut net = Net::new(50, 9);
    net.publish_everywhere(100);
    net.run(30_000);
    (net.octets, net.messages) = (0, 0);
    net.run(60_000);
    let each = net.octets / 50 / 60;
    // Four digests in 20 s.
    assert!(each < 20, "{each} octets a second");
    assert!(net.messages / 50 < 16, "{}", net.messages);
}

/// Who keeps nothing has nothing to compare. The first record ends that.
#[test]
fn without_records_less_is_sent() {
    let mut net = Net::new(50, 9);
    net.run(120_000);
    (net.octets, net.messages) = (0, 0);
    net.run(600_000);
    // One digest to each of four routers. Were each 60 s apart they would be 40, and 8 if the interval grew step by step.
    assert!(net.messages / 50 < 8, "{}", net.messages);
    let by = net.some();
    net.publish(by, b"alice", b"here", 600);
    await_stored(&mut net, by, b"alice");
    let keepers = right_keepers(&net, b"alice");
    keepers.iter().filter(|&&id| id != by).take(2).for_each(|&id| net.crash(id));
    net.run(10_000);
    let from = net.some();
    assert_eq!(net.values(from, b"alice"), [b"here"]);
}

#[test]
fn strangers_can_neither_write_for_others_nor_list_what_is_kept() {
    let mut net = Net::new(30, 10);
    let by = net.some();
    net.publish(by, b"alice", b"here", 600);
    await_stored(&mut net, by, b"alice");
    let right = right_keepers(&net, b"alice");
    let stranger = net.up().into_iter().find(|id| {
        right.iter().all(|keeper| !net.nodes[keeper].dht.neighbours().is_beside(*id)) && *id != by
    });
    let stranger = stranger.unwrap();

    let identity = Search::new(0, &mut SplitMix::new(77)).step(1).unwrap();
    let forged = {
        let draft = Draft { kind: 1, name: b"alice", value: b"mine", lifetime: 600 };
        Record::sign::<StandIn>(&identity, Sequence { epoch: 9, count: 9 }, &draft).unwrap()
    };
    let owner = right[0];
    let before = net.nodes[&owner].dht.counters();
    use ringway_dht::wire::{Packet, Span};
    let all = Span { first: NodeId::new(5), last: NodeId::new(4) };
    let (request, rest) = (1, 600);
    let copied = forged.clone();
    let own = Packet::Put { request, rest, record: forged.clone() };
    let for_another = Packet::Store { request, publisher: identity.id(), rest, record: forged };
    let packets = [
        own,
        for_another,
        Packet::Want { span: all, marks: vec![1, 2] },
        Packet::Entries { span: all, marks: vec![] },
        Packet::Leave,
        Packet::Copies { records: vec![(9, copied)] },
    ];
    for packet in &packets {
        net.send(stranger, owner, packet.to_octets());
    }
    net.run(1_000);
    let after = net.nodes[&owner].dht.counters();
    assert_eq!(after.refused - before.refused, 6);
    assert_eq!(net.values(by, b"alice"), [b"here"]);
    // Octets that are no message.
    net.send(stranger, owner, vec![0x1f, 1, 2]);
    net.run(100);
    assert_eq!(net.nodes[&owner].dht.counters().malformed, before.malformed + 1);
}

#[test]
fn a_flood_by_one_router_is_policed_and_others_are_served() {
    let config = Config { records_of_signer: 40, ..Config::default() };
    let mut net = Net::with(30, 11, config);
    let by = net.some();
    net.publish(by, b"alice", b"here", 600);
    await_stored(&mut net, by, b"alice");
    let owner = keepers(&mut net.up(), key(1, b"alice"))[0];
    let flooder = net
        .up()
        .into_iter()
        .find(|&id| id != by && !net.nodes[&owner].dht.neighbours().is_beside(id) && id != owner);
    for round in 0..20u32 {
        for number in 0..200 {
            let packet = ringway_dht::wire::Packet::Get {
                request: round * 200 + number + 1,
                kind: 1,
                name: b"nobody",
            };
            net.send(flooder.unwrap(), owner, packet.to_octets());
        }
        net.run(100);
    }
    assert!(net.nodes[&owner].dht.counters().policed > 3_000);
    let (answer, took) = net.look_up(by, b"alice");
    assert!(matches!(answer, Answer::Found(_)) && took < Duration::from_millis(500), "{took:?}");
    // What one signs for a thousand names is kept for its share only.
    let greedy = net.some();
    for number in 0..400 {
        net.publish(greedy, &name(number), b"x", 600);
    }
    net.run(120_000);
    let most = net.nodes.values().map(|node| node.dht.table().len()).max().unwrap();
    assert!(most <= net.config.records_of_signer + 1, "{most}");
}
