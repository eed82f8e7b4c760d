//! Look-ups that ask a quorum, and how soon a new version is everywhere.

use super::net::{Net, values};
use super::{await_stored, right_keepers};
use ringway_dht::Answer;
use ringway_dht::neighbours::keepers;
use ringway_dht::record::key;
use ringway_sansio::time::Duration;

#[test]
fn a_thorough_look_up_unites_what_a_quorum_has_though_messages_are_lost() {
    let (mut whole, seeds) = (0, 60);
    for seed in 0..seeds {
        let mut net = Net::new(30, 5_000 + seed);
        net.loss = 20;
        let (one, two) = (net.up()[3], net.up()[17]);
        net.publish(one, b"alice", b"one", 600);
        net.publish(two, b"alice", b"two", 600);
        await_stored(&mut net, one, b"alice");
        await_stored(&mut net, two, b"alice");
        let from = net.some();
        match net.look_up_all(from, b"alice") {
            Answer::Found(records) => {
                assert_eq!(values(&records), [b"one", b"two"], "seed {seed}");
                whole += 1;
            }
            Answer::Partial(_) | Answer::Unknown => {}
            Answer::Absent => panic!("seed {seed}: absent"),
        }
        let answer = net.look_up_all(from, b"nobody");
        assert!(matches!(answer, Answer::Absent | Answer::Unknown), "seed {seed}: {answer:?}");
    }
    assert!(whole >= seeds * 9 / 10, "{whole} of {seeds}");
}

#[test]
fn a_thorough_look_up_returns_the_last_version_that_was_stored() {
    for seed in 0..40 {
        let mut net = Net::new(30, 6_000 + seed);
        let by = net.some();
        net.publish(by, b"alice", b"old", 600);
        await_stored(&mut net, by, b"alice");
        net.run(2_000);
        // The owner and another keeper hear nothing of the next version.
        let right = keepers(&mut net.up(), key(1, b"alice"));
        let deaf: Vec<_> = right.into_iter().filter(|&id| id != by).take(2).collect();
        deaf.iter().for_each(|&id| net.ignore(id, true));
        net.nodes.get_mut(&by).unwrap().events.clear();
        net.publish(by, b"alice", b"new", 600);
        await_stored(&mut net, by, b"alice");
        deaf.iter().for_each(|&id| net.ignore(id, false));
        let from = net.some();
        let answer = net.look_up_all(from, b"alice");
        let (Answer::Found(records) | Answer::Partial(records)) = answer else {
            panic!("seed {seed}: {answer:?}")
        };
        assert_eq!(values(&records), [b"new"], "seed {seed}");
    }
}

#[test]
fn a_thorough_look_up_needs_no_quorum_where_there_is_none() {
    for count in [1, 2, 3, 4, 5] {
        let mut net = Net::new(count, 7);
        let from = net.some();
        assert_eq!(net.look_up_all(from, b"alice"), Answer::Absent);
        net.publish(from, b"alice", b"here", 600);
        await_stored(&mut net, from, b"alice");
        let Answer::Found(records) = net.look_up_all(from, b"alice") else { panic!("{count}") };
        assert_eq!(values(&records), [b"here"]);
    }
}

#[test]
fn what_too_few_keepers_have_is_partial() {
    let mut net = Net::new(30, 9);
    let by = net.some();
    net.publish(by, b"alice", b"here", 600);
    await_stored(&mut net, by, b"alice");
    let right = keepers(&mut net.up(), key(1, b"alice"));
    right.iter().take(3).for_each(|&id| net.ignore(id, true));
    let from = net.up().into_iter().find(|id| !right.contains(id)).unwrap();
    let Answer::Partial(records) = net.look_up_all(from, b"alice") else { panic!() };
    assert_eq!(values(&records), [b"here"]);
    assert_eq!(net.look_up_all(from, b"nobody"), Answer::Absent, "other keepers");
    right.iter().for_each(|&id| net.ignore(id, false));
    assert!(matches!(net.look_up_all(from, b"alice"), Answer::Found(_)));
}

#[test]
fn a_new_version_is_soon_at_all_keepers_though_messages_are_lost() {
    let (mut stale, mut times) = (0, Vec::new());
    for seed in 0..100 {
        let mut net = Net::new(30, 8_000 + seed);
        let by = net.some();
        net.publish(by, b"alice", b"old", 600);
        await_stored(&mut net, by, b"alice");
        net.run(2_000);
        net.loss = 20;
        net.nodes.get_mut(&by).unwrap().events.clear();
        net.publish(by, b"alice", b"new", 600);
        await_stored(&mut net, by, b"alice");
        let from = net.some();
        if let Answer::Found(records) = net.look_up(from, b"alice").0 {
            stale += u32::from(values(&records) != [b"new"]);
        }
        let begun = net.now;
        let right = right_keepers(&net, b"alice");
        let is_new = |net: &Net, id| {
            let found = net.nodes[id].dht.table().of_name(key(1, b"alice"), 1, b"alice");
            found.iter().any(|entry| entry.record.value() == b"new")
        };
        while !right.iter().all(|id| is_new(&net, id)) && net.now - begun < Duration::from_secs(60)
        {
            net.run(100);
        }
        times.push(net.now - begun);
    }
    times.sort();
    assert!(stale <= 9, "{stale} of 100 look-ups after the write found the version before");
    assert!(times[97] <= Duration::from_secs(5), "{:?}", &times[90..]);
}
