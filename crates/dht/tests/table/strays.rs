//! Records that are at routers which are not their keepers any more, because networks have met.

use super::net::Net;
use super::{await_stored, name, right_keepers};
use ringway_dht::config::QUORUM;
use ringway_dht::record::key;
use ringway_dht::table::Entry;
use ringway_dht::wire::{Copy, Packet};
use ringway_mesh::NodeId;
use ringway_sansio::time::Duration;
use ringway_sansio::{Random, SplitMix};

/// A day, as of accounts: nothing is renewed while a test runs.
const DAY: u32 = 86_400;

/// Returns whether a quorum of the keepers of a name has a record of it with this value, and no other one. A withdrawal
/// has none.
fn is_kept(net: &Net, name: &[u8], value: &[u8]) -> bool {
    let has = |id: &&NodeId| {
        let found = net.nodes[*id].dht.table().of_name(key(1, name), 1, name);
        let is_it = |entry: &&Entry| entry.record.value() == value;
        found.iter().all(is_it) && (value.is_empty() || !found.is_empty())
    };
    right_keepers(net, name).iter().filter(has).count() >= QUORUM.min(net.up().len())
}

/// Lets time pass until quorums have all these names with these values, and returns how much that was.
fn await_kept(net: &mut Net, names: &[(Vec<u8>, &[u8])]) -> Duration {
    let begun = net.now;
    while let Some((name, _)) = names.iter().find(|(name, value)| !is_kept(net, name, value)) {
        assert!(net.now - begun < Duration::from_secs(300), "{}", String::from_utf8_lossy(name));
        net.run(100);
    }
    net.now - begun
}

/// Publishes names by all routers of a part in turn, and waits until they are stored.
fn publish(net: &mut Net, part: u32, numbers: core::ops::Range<u64>, value: &[u8]) {
    let by = net.of_part(part);
    for number in numbers.clone() {
        let by = by[number as usize % by.len()];
        net.nodes.get_mut(&by).unwrap().events.clear();
        net.publish(by, &name(number), value, DAY);
    }
    for number in numbers {
        await_stored(net, by[number as usize % by.len()], &name(number));
    }
}

/// A part of `small` routers that are beside each other on the ring, so that none of the others keeps what it writes.
#[test]
fn all_of_both_parts_is_found_soon_after_they_have_met() {
    for (routers, small, loss) in [(24, 12, 0), (24, 12, 20), (40, 3, 0), (40, 1, 10), (90, 45, 0)]
    {
        let mut net = Net::new(routers, 60 + small as u64);
        let first = net.up()[..small].to_vec();
        publish(&mut net, 0, 0..10, b"before");
        net.divide_by(|id| first.contains(&id).into());
        net.run(30_000);
        publish(&mut net, 0, 10..50, b"large");
        publish(&mut net, 1, 50..90, b"small");
        net.loss = loss;
        net.unite();
        let mut names: Vec<(Vec<u8>, &[u8])> = Vec::new();
        names.extend((0..10).map(|number| (name(number), &b"before"[..])));
        names.extend((10..50).map(|number| (name(number), &b"large"[..])));
        names.extend((50..90).map(|number| (name(number), &b"small"[..])));
        let took = await_kept(&mut net, &names);
        // Of 200 seeds with every fifth message lost, four took longer than that, and one 72 s.
        assert!(took < Duration::from_secs(40), "{small} of {routers} routers: {took:?}");
        net.loss = 0;
        for from in net.up() {
            for (name, value) in &names {
                assert_eq!(net.values(from, name), [*value]);
            }
        }
    }
}

/// What was changed or withdrawn in one part wins over what the other part has, though that lasts for a day.
#[test]
fn what_was_withdrawn_or_changed_in_one_part_stays_so() {
    let mut net = Net::new(24, 71);
    let first = net.up()[..12].to_vec();
    let (by, names) = (first[3], (0..20).map(name));
    names.clone().for_each(|name| net.publish(by, &name, b"old", DAY));
    names.clone().for_each(|name| await_stored(&mut net, by, &name));
    net.divide_by(|id| (!first.contains(&id)).into());
    net.run(30_000);
    net.nodes.get_mut(&by).unwrap().events.clear();
    for (number, name) in names.clone().enumerate() {
        match number % 2 {
            0 => net.publish(by, &name, b"new", DAY),
            _ => net.withdraw(by, &name),
        }
    }
    names.clone().for_each(|name| await_stored(&mut net, by, &name));
    net.run(10_000);
    assert_eq!(net.nodes[&by].dht.publications().len(), 10);
    net.unite();
    let value = |number: usize| if number.is_multiple_of(2) { &b"new"[..] } else { b"" };
    let after: Vec<_> = names.enumerate().map(|(number, name)| (name, value(number))).collect();
    let took = await_kept(&mut net, &after);
    assert!(took < Duration::from_secs(40), "{took:?}");
    for from in net.up() {
        for (name, value) in &after {
            let expected: &[&[u8]] = if value.is_empty() { &[] } else { &[value] };
            assert_eq!(net.values(from, name), expected);
        }
    }
}

/// Three times as many routers as there are start at once, as after a power cut.
#[test]
fn routers_that_join_all_at_once_lose_nothing() {
    let mut net = Net::new(10, 72);
    publish(&mut net, 0, 0..60, b"here");
    (0..30).for_each(|_| _ = net.join());
    let names: Vec<_> = (0..60).map(|number| (name(number), &b"here"[..])).collect();
    let took = await_kept(&mut net, &names);
    assert!(took < Duration::from_secs(40), "{took:?}");
}

/// Whoever claims without end that records are astray has their signer ask, and not write.
#[test]
fn hints_that_are_false_cost_little() {
    let mut net = Net::new(20, 73);
    let by = net.up()[4];
    for number in 0..160 {
        net.publish(by, &name(number), &[7; 300], DAY);
    }
    net.run(60_000);
    let mut copies: Vec<Copy> = Vec::new();
    for number in 0..160 {
        assert!(net.is_stored(by, &name(number)));
        let key = key(1, &name(number));
        let keeper = right_keepers(&net, &name(number))[0];
        let found = net.nodes[&keeper].dht.table().get(key, by).unwrap();
        copies.push(Copy { key, mark: (found.mark >> 32) as u32 });
    }
    let hostile = net.up()[15];
    let visits = net.nodes[&by].dht.publications().visits();
    let before = *net.nodes[&by].dht.sent();
    for round in 0..1_000 {
        let copies = copies[round % 2 * 80..][..80].to_vec();
        net.send(hostile, by, Packet::Astray { copies }.to_octets());
        net.run(100);
    }
    let after = net.nodes[&by].dht.sent();
    let sent = |of: usize| after[of].messages - before[of].messages;
    let [put, store, check] = [1, 2, 16];
    assert_eq!((sent(put), sent(store)), (0, 0));
    // Each record once in ten seconds.
    assert!((10..=22).contains(&sent(check)), "{}", sent(check));
    // But for one renewal in a minute.
    assert!(net.nodes[&by].dht.publications().visits() - visits < 10);
}

/// Returns the routers of a network, each in one of `parts` parts with more or fewer routers.
fn random_parts(net: &mut Net, parts: u64) -> Vec<(NodeId, u32)> {
    let up = net.up();
    let weights: Vec<u64> = (0..parts).map(|_| 1 + net.random.next_u64() % 8).collect();
    let all: u64 = weights.iter().sum();
    let draw = |random: &mut SplitMix| {
        let mut at = random.next_u64() % all;
        let part = weights.iter().position(|&weight| {
            let is_it = at < weight;
            at = at.saturating_sub(weight);
            is_it
        });
        part.unwrap_or(0) as u32
    };
    up.into_iter().map(|id| (id, draw(&mut net.random))).collect()
}

/// Networks that fall apart and meet at random, in which records are published, changed and withdrawn, and in which up to two
/// routers end at once when all have met: what was acknowledged last is found, at the lifetimes of accounts.
#[test]
fn after_any_partition_what_was_acknowledged_is_found() {
    let mut slowest = Duration::ZERO;
    for seed in 0..60 {
        let mut net = Net::new(6 + seed as usize * 7 % 40, 7_000 + seed);
        net.loss = seed % 3 * 5;
        let up = net.up();
        let signers = up[..up.len() - 2].to_vec();
        let names: Vec<(Vec<u8>, NodeId)> =
            (0..30).map(|at| (name(at), signers[at as usize * 5 % signers.len()])).collect();
        let mut model: Vec<&[u8]> = vec![b""; 30];
        for _ in 0..1 + seed % 3 {
            let parts = 2 + net.random.next_u64() % 2;
            let parts = random_parts(&mut net, parts);
            net.divide_by(|id| parts.iter().find(|(other, _)| *other == id).unwrap().1);
            let settle = 100 + net.random.next_u64() % 30_000;
            net.run(settle);
            let mut changed = Vec::new();
            for (at, (name, by)) in names.iter().enumerate() {
                let value: &[u8] = match net.random.next_u64() % 4 {
                    0 => b"one",
                    1 => b"two",
                    2 if !model[at].is_empty() => b"",
                    _ => continue,
                };
                net.nodes.get_mut(by).unwrap().events.clear();
                match value {
                    b"" => net.withdraw(*by, name),
                    value => net.publish(*by, name, value, DAY),
                }
                model[at] = value;
                changed.push((name, *by));
                await_stored(&mut net, *by, name);
            }
            let rest = net.random.next_u64() % 20_000;
            net.run(rest);
        }
        net.unite();
        for &id in up[signers.len()..].iter().take(seed as usize % 3) {
            net.crash(id);
        }
        let expected: Vec<(Vec<u8>, &[u8])> =
            names.iter().zip(&model).map(|((name, _), value)| (name.clone(), *value)).collect();
        let took = await_kept(&mut net, &expected);
        assert!(took < Duration::from_secs(60), "seed {seed}: {took:?}");
        slowest = slowest.max(took);
        net.loss = 0;
        net.run(60_000 - took.as_millis() as u64);
        for (name, value) in &expected {
            let from = net.some();
            let expected: &[&[u8]] = if value.is_empty() { &[] } else { &[value] };
            assert_eq!(net.values(from, name), expected, "seed {seed}");
        }
    }
    assert!(slowest < Duration::from_secs(40), "{slowest:?}");
}
