//! Records that are kept for longer than their lifetime.

use super::net::Net;
use super::{await_stored, name, right_keepers};
use ringway_dht::Answer;
use ringway_dht::neighbours::keepers;
use ringway_dht::record::key;
use ringway_dht::wire::Packet;
use ringway_mesh::NodeId;

/// Returns the versions of a name at those who keep it.
fn versions(net: &Net, name: &[u8]) -> Vec<u32> {
    let holders = net.holders(name).into_iter();
    let version = |id: NodeId| {
        let found = net.nodes[&id].dht.table().of_name(key(1, name), 1, name);
        found[0].record.version().count
    };
    holders.map(version).collect()
}

#[test]
fn records_are_renewed_without_being_sent_again() {
    let mut net = Net::new(20, 31);
    let by = net.some();
    for number in 0..50 {
        net.publish(by, &name(number), &[7; 200], 600);
    }
    net.run(60_000);
    let before: Vec<Vec<u32>> = (0..50).map(|number| versions(&net, &name(number))).collect();
    (net.octets, net.messages) = (0, 0);
    net.run(1_800_000);
    for (number, before) in (0..50).zip(before) {
        let now = versions(&net, &name(number));
        assert!(now.len() >= 5, "{number}: {now:?}");
        assert!(now.iter().all(|version| before.contains(version)), "{number}: {now:?}");
    }
    // Four digests in 20 s from each of 20 routers, and a few renewals.
    assert!(net.messages < 20 * 4 * 1_800 / 17, "{}", net.messages);
    // Without their publisher they end.
    net.crash(by);
    net.run(610_000);
    assert!((0..50).all(|number| net.holders(&name(number)).is_empty()));
}

#[test]
fn routers_that_come_and_go_lose_no_record_in_half_an_hour() {
    for seed in 0..2 {
        let mut net = Net::new(30, 32 + seed);
        net.loss = 5;
        let by = net.some();
        for number in 0..40 {
            net.publish(by, &name(number), b"here", 600);
        }
        net.run(20_000);
        for round in 0..60 {
            net.join();
            let mut gone = net.some();
            while gone == by {
                gone = net.some();
            }
            net.crash(gone);
            net.run(30_000);
            for number in [round % 40, (round * 7 + 1) % 40] {
                let from = net.some();
                let (answer, took) = net.look_up(from, &name(number));
                assert!(
                    matches!(answer, Answer::Found(_)),
                    "seed {seed} {round}: {answer:?} {took:?}"
                );
            }
        }
    }
}

#[test]
fn a_keeper_that_notifies_nobody_of_renewals_ends_no_record() {
    for at in [0, 1, 3] {
        let mut net = Net::new(20, 33);
        let by = net.some();
        net.publish(by, b"alice", b"here", 600);
        await_stored(&mut net, by, b"alice");
        let hostile = keepers(&mut net.up(), key(1, b"alice"))[at];
        if hostile == by {
            continue;
        }
        for _ in 0..1_800 {
            // What it sends of its own is lost, but not its answers.
            for packet in net.intercept(hostile) {
                if !matches!(
                    Packet::parse(&packet.octets),
                    Ok(Packet::Digest { .. } | Packet::Copies { .. })
                ) {
                    net.send(packet.from, packet.to, packet.octets);
                }
            }
            net.run(1_000);
        }
        let right = right_keepers(&net, b"alice");
        let holders = net.holders(b"alice");
        let count = right.iter().filter(|id| **id != hostile && holders.contains(id)).count();
        assert!(count >= 3, "{at}: {count}");
    }
}
