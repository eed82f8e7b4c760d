//! Names that several routers claim: all routers find out who was first, though some keepers lie or were not there.

use super::net::Net;
use super::{await_stored, right_keepers};
use ringway_dht::record::key;
use ringway_dht::wire::Packet;
use ringway_dht::{Answer, Config, Kinds, Record};
use ringway_mesh::NodeId;
use ringway_sansio::time::Duration;

/// A network in which a name of kind 1 has one holder.
fn network(count: usize, seed: u64) -> Net {
    Net::with(count, seed, Config { claims: Kinds::none().with(1), ..Config::default() })
}

fn signers(records: &[Record]) -> Vec<NodeId> {
    records.iter().map(|record| record.proof().id()).collect()
}

/// Returns who has claimed a name, in the order that one router finds out.
fn order(net: &mut Net, by: NodeId) -> Vec<NodeId> {
    match net.look_up_all(by, b"alice") {
        Answer::Found(records) | Answer::Partial(records) => signers(&records),
        other => panic!("{other:?}"),
    }
}

/// Returns the order in the table of one keeper.
fn order_at(net: &Net, keeper: NodeId) -> Vec<NodeId> {
    let found = net.nodes[&keeper].dht.table().of_name(key(1, b"alice"), 1, b"alice");
    found.iter().map(|entry| entry.signer).collect()
}

fn claim(net: &mut Net, by: NodeId) {
    net.publish(by, b"alice", b"mine", 600);
    await_stored(net, by, b"alice");
}

/// Returns routers that are no keepers of the name.
fn others(net: &Net) -> Vec<NodeId> {
    let right = right_keepers(net, b"alice");
    net.up().into_iter().filter(|id| !right.contains(id)).collect()
}

#[test]
fn the_first_claim_stays_the_first_though_all_its_keepers_are_replaced() {
    for seed in 0..10 {
        let mut net = network(20, 100 + seed);
        let [first, second] = [others(&net)[3], others(&net)[9]];
        claim(&mut net, first);
        claim(&mut net, second);
        for _ in 0..15 {
            let right = right_keepers(&net, b"alice");
            let at = net.some();
            let is_replaced = |id: &&NodeId| ![first, second].contains(*id);
            let Some(&keeper) = right.iter().find(is_replaced) else { break };
            net.crash(keeper);
            net.join();
            net.run(20_000);
            let from = if net.up().contains(&at) { at } else { first };
            assert_eq!(order(&mut net, from), [first, second], "seed {seed}");
        }
    }
}

/// Two of five keepers hear nothing of the first claim, but of the second: they ask the others.
#[test]
fn keepers_that_have_missed_the_first_claim_learn_that_it_was_the_first() {
    for seed in 0..20 {
        let mut net = network(30, 200 + seed);
        let [first, second] = [others(&net)[3], others(&net)[9]];
        let right = right_keepers(&net, b"alice");
        let deaf = [right[1], right[3]];
        deaf.iter().for_each(|&id| net.ignore(id, true));
        claim(&mut net, first);
        deaf.iter().for_each(|&id| net.ignore(id, false));
        claim(&mut net, second);
        let from = others(&net)[14];
        assert_eq!(order(&mut net, from), [first, second], "seed {seed}");
        net.run(90_000);
        for &keeper in &right {
            assert_eq!(order_at(&net, keeper), [first, second], "seed {seed}");
        }
    }
}

/// A hostile keeper sends one that has just joined the claims in the wrong order, with one that nobody else has.
#[test]
fn one_keeper_cannot_teach_another_a_wrong_order() {
    for seed in 0..20 {
        let mut net = network(30, 300 + seed);
        let [first, second] = [others(&net)[3], others(&net)[9]];
        claim(&mut net, first);
        claim(&mut net, second);
        let right = right_keepers(&net, b"alice");
        let (victim, liar) = (right[2], right[1]);
        let entries = net.nodes[&liar].dht.table().of_name(key(1, b"alice"), 1, b"alice");
        let mut records: Vec<(u32, Record)> =
            entries.iter().map(|entry| (500, entry.record.clone())).collect();
        records.reverse();
        net.restart(victim);
        net.send(liar, victim, Packet::Copies { records }.to_octets());
        net.run(100);
        assert_eq!(
            order_at(&net, victim),
            [second, first],
            "seed {seed}: the lie has come too late"
        );
        net.run(40_000);
        assert_eq!(order_at(&net, victim), [first, second], "seed {seed}");
    }
}

/// More claim a name than one may have records: the first is kept, and all keepers have the same others.
#[test]
fn a_name_that_too_many_claim_stays_that_of_the_first() {
    for seed in 0..5 {
        let mut net = network(40, 400 + seed);
        let claimants: Vec<NodeId> = others(&net).into_iter().step_by(2).collect();
        let (first, hostile) = (claimants[7], claimants.iter().filter(|id| **id != claimants[7]));
        claim(&mut net, first);
        hostile.for_each(|&by| net.publish(by, b"alice", b"mine", 600));
        net.run(60_000);
        let right = right_keepers(&net, b"alice");
        // One that starts anew is sent the first as well.
        net.restart(right[0]);
        net.run(60_000);
        let sets: Vec<Vec<NodeId>> = right.iter().map(|&id| order_at(&net, id)).collect();
        assert!(sets.iter().all(|order| order.len() == 8 && order[0] == first), "{sets:?}");
        let sorted = sets.iter().map(|order| {
            let mut order = order.clone();
            order.sort();
            order
        });
        let sorted: Vec<_> = sorted.collect();
        assert!(sorted.iter().all(|set| *set == sorted[0]), "seed {seed}: {sorted:?}");
        let from = others(&net)[14];
        assert_eq!(order(&mut net, from)[0], first, "seed {seed}");
    }
}

/// Both halves of a network have added the name: they agree on one holder.
#[test]
fn networks_that_meet_agree_on_the_order() {
    for seed in 0..10 {
        let mut net = network(30, 500 + seed);
        net.divide();
        net.run(20_000);
        let [first, second] = [net.of_part(0)[2], net.of_part(1)[4]];
        claim(&mut net, first);
        claim(&mut net, second);
        net.unite();
        net.run(60_000);
        let up = net.up();
        let agreed = order(&mut net, up[0]);
        assert_eq!(agreed.len(), 2, "seed {seed}");
        for &from in up.iter().step_by(4) {
            assert_eq!(order(&mut net, from), agreed, "seed {seed}");
        }
    }
}

/// Who withdraws a claim and makes it again comes after those who have claimed the name meanwhile.
#[test]
fn a_claim_that_was_withdrawn_is_no_longer_the_first() {
    let mut net = network(30, 600);
    let [first, second, from] = [others(&net)[3], others(&net)[9], others(&net)[14]];
    claim(&mut net, first);
    claim(&mut net, second);
    net.withdraw(first, b"alice");
    net.run(2_000);
    assert_eq!(order(&mut net, from), [second]);
    net.publish(first, b"alice", b"again", 600);
    net.run(2_000);
    assert_eq!(order(&mut net, from), [second, first]);
}

/// A keeper of a disputed name is silent: the question ends soon nevertheless.
#[test]
fn a_dispute_waits_for_the_last_keeper_for_a_second_only() {
    let mut net = network(30, 700);
    let [first, second, from] = [others(&net)[3], others(&net)[9], others(&net)[14]];
    claim(&mut net, first);
    claim(&mut net, second);
    let right = right_keepers(&net, b"alice");
    net.ignore(right[0], true);
    let begun = net.now;
    assert_eq!(order(&mut net, from), [first, second]);
    assert!(net.now - begun < Duration::from_millis(2_500), "{:?}", net.now - begun);
}
