//! What hostile routers may not gain.

use super::net::Net;
use super::{await_stored, name};
use ringway_dht::neighbours::{Leaves, behind, keepers};
use ringway_dht::record::key;
use ringway_dht::wire::{Outcome, Packet};
use ringway_dht::{Answer, Draft, Record};
use ringway_mesh::NodeId;
use ringway_mesh::crypto::StandIn;
use ringway_mesh::id::Sequence;
use ringway_mesh::identity::{Identity, Search};
use ringway_sansio::{Random, SplitMix};

/// Returns identities of which none is within a quarter of the ring around a key.
fn far_identities(count: usize, key: NodeId, random: &mut dyn Random) -> Vec<Identity> {
    let draw = core::iter::repeat_with(|| Search::new(0, &mut *random).step(1).unwrap());
    let is_far = |identity: &Identity| {
        let distance = identity.id().raw().wrapping_sub(key.raw());
        distance.min(distance.wrapping_neg()) > u64::MAX / 8
    };
    draw.filter(is_far).take(count).collect()
}

/// Returns a network of 300 routers, and one of them that knows how far they are from each other.
fn network(seed: u64) -> (Net, NodeId) {
    let mut net = Net::new(300, seed);
    let keeps =
        |net: &Net, id: &NodeId, name: &[u8]| net.nodes[id].dht.neighbours().keeps(key(1, name));
    let is_aside = |id: &NodeId| !keeps(&net, id, b"alice") && !keeps(&net, id, b"carol");
    // Where the gaps are large more is near enough, and an eighth of the ring may be.
    let is_usual = |id: &NodeId| {
        let leaves = net.nodes[id].dht.neighbours().leaves();
        behind(leaves.before[1], leaves.behind[1]) <= u64::MAX / 300 * 4
    };
    let victim = net.up().into_iter().find(|id| is_aside(id) && is_usual(id));
    let victim = victim.unwrap();
    for number in 0..40 {
        net.publish(victim, &name(number), b"here", 600);
    }
    net.run(5_000);
    (net, victim)
}

/// A router on the way of all that a victim sends answers instead of those it is for.
fn answer_for_others(net: &mut Net, victim: NodeId, liars: &[Identity], with_record: bool) {
    for packet in net.intercept(victim) {
        let Ok(parsed) = Packet::parse(&packet.octets) else { continue };
        let (leaves, settled) = (Leaves::default(), true);
        let answers: Vec<Vec<u8>> = match parsed {
            Packet::Get { request, kind, name } if with_record => {
                let draft = Draft { kind, name, value: b"mine", lifetime: 600 };
                let version = Sequence { epoch: 9, count: 9 };
                let signed = |by| Record::sign::<StandIn>(by, version, &draft).unwrap();
                let (index, count, rest, aside) = (0, 1, 600, false);
                let found = |record| {
                    let leaves = leaves.clone();
                    Packet::Found { request, index, count, settled, aside, leaves, rest, record }
                };
                liars.iter().map(|by| found(signed(by)).to_octets()).collect()
            }
            Packet::Get { request, .. } => {
                let absent = Packet::Absent { request, settled, leaves };
                liars.iter().map(|_| absent.to_octets()).collect()
            }
            Packet::Put { request, .. } | Packet::Store { request, .. } => {
                let stored = Packet::Stored { request, outcome: Outcome::Kept, leaves };
                liars.iter().map(|_| stored.to_octets()).collect()
            }
            _ => Vec::new(),
        };
        for (by, octets) in liars.iter().zip(answers) {
            net.send(by.id(), victim, octets);
        }
    }
}

#[test]
fn who_is_far_from_a_key_can_neither_answer_nor_deny_nor_acknowledge_for_its_keepers() {
    for seed in 0..3 {
        let (mut net, victim) = network(400 + seed);
        let by = net.some();
        net.publish(by, b"alice", b"here", 600);
        await_stored(&mut net, by, b"alice");
        let mut random = SplitMix::new(seed);
        let liars = far_identities(4, key(1, b"alice"), &mut random);
        for with_record in [true, false] {
            let id = net.begin(victim, b"alice");
            while net.answer(victim, id).is_none() {
                answer_for_others(&mut net, victim, &liars, with_record);
                net.run(5);
            }
            // All that it sends is lost: it may not know, but nothing false.
            assert_eq!(net.answer(victim, id), Some(Answer::Unknown), "seed {seed}");
        }
        net.publish(victim, b"carol", b"here", 600);
        for _ in 0..800 {
            let liars = far_identities(4, key(1, b"carol"), &mut random);
            answer_for_others(&mut net, victim, &liars, false);
            net.run(5);
        }
        assert!(!net.is_stored(victim, b"carol"), "seed {seed}");
        assert!(net.nodes[&victim].dht.counters().far > 10);
        // Off that way it is answered as before.
        let (answer, _) = net.look_up(victim, b"alice");
        assert!(matches!(answer, Answer::Found(_)), "seed {seed}: {answer:?}");
    }
}

#[test]
fn a_router_that_asks_for_all_it_can_leaves_a_keeper_answers_for_others() {
    let mut net = Net::new(30, 12);
    // A name with eight long records, the dearest answer that there is.
    let by: Vec<NodeId> = net.up().into_iter().take(8).collect();
    by.iter().for_each(|&id| net.publish(id, b"alice", &[7; 512], 600));
    net.run(10_000);
    let right = keepers(&mut net.up(), key(1, b"alice"));
    let mut others = net.up();
    others.retain(|id| !right.contains(id) && !by.contains(id));
    let hog = others.remove(0);
    // It asks all five keepers, as often as each allows it, also those beside it.
    let ask = |net: &mut Net, rounds: u32| {
        for round in 0..rounds {
            for keeper in right.iter().copied() {
                for number in 0..4 {
                    let (request, kind) = (round * 4 + number + 1, 1);
                    let get = Packet::Get { request, kind, name: b"alice" };
                    net.send(hog, keeper, get.to_octets());
                }
            }
            net.run(125);
        }
    };
    ask(&mut net, 480);
    for other in others.into_iter().take(6) {
        let id = net.begin(other, b"alice");
        ask(&mut net, 8);
        let answer = net.answer(other, id);
        assert!(matches!(answer, Some(Answer::Found(_))), "{answer:?}");
    }
    let keeper = &net.nodes[&right[0]].dht;
    assert!(keeper.counters().unpaid > 100);
    // What the keepers send for themselves still goes out.
    let refused = net.refused;
    right.iter().for_each(|&id| net.publish(id, b"carol", b"here", 600));
    right.iter().for_each(|&id| await_stored(&mut net, id, b"carol"));
    assert_eq!(net.refused, refused);
}
