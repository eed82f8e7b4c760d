//! Nodes of a cluster beside a model of their database.

mod leaving;
mod world;

use std::collections::BTreeMap;

use ringway_cluster::machine::State;
use ringway_cluster::record::Message;
use ringway_cluster::{Report, Slots, slots};
use ringway_proxy::states::OTHER_SERVERS;
use ringway_proxy::{AskId, Reply};
use ringway_sansio::{Duration, Random, SplitMix};
use world::World;

const SECOND: Duration = Duration::from_secs(1);

/// Nodes that know each other.
fn running(count: usize) -> World {
    let mut w = World::new(count);
    w.run(3 * SECOND);
    w
}

#[test]
fn a_call_by_any_node_goes_to_the_node_that_has_the_flow() {
    let mut w = running(3);
    assert!(w.register(0, "bob", 3600, 1));
    w.run(SECOND);
    assert_eq!(w.nodes[0].commits, [(1, true)]);
    assert_eq!(w.call(1, "bob"), (vec![0], true));
    assert_eq!(w.call(2, "bob"), (vec![0], true));
    assert_eq!(w.call(0, "bob"), (vec![], true));
    assert_eq!(w.call(1, "nobody"), (vec![], true));
    // A second phone of the same user, at another node.
    assert!(w.register(2, "bob", 3600, 1));
    w.run(SECOND);
    assert_eq!(w.call(1, "bob"), (vec![0, 2], true));
    assert_eq!(w.call(0, "bob"), (vec![2], true));
}

#[test]
fn a_second_call_needs_no_read_and_a_change_is_reported() {
    let mut w = running(2);
    w.register(0, "bob", 3600, 1);
    w.run(SECOND);
    w.call(1, "bob");
    w.run(2 * SECOND);
    let read = w.nodes[1].machine.counts().read;
    assert_eq!(w.call(1, "bob"), (vec![0], true));
    assert_eq!(w.nodes[1].machine.counts().read, read);
    w.unregister(0, "bob");
    w.run(SECOND);
    assert_eq!(w.call(1, "bob"), (vec![], true));
    assert_eq!(w.nodes[1].machine.counts().read, read + 1);
    assert!(w.nodes[0].machine.counts().users == 0, "what is gone is not remembered");
}

#[test]
fn a_refreshed_registration_is_read_again_when_it_should_have_ended() {
    let mut w = running(2);
    w.register(0, "bob", 30, 1);
    w.run(SECOND);
    assert_eq!(w.call(1, "bob"), (vec![0], true));
    w.run(20 * SECOND);
    w.register(0, "bob", 30, 2);
    w.run(15 * SECOND);
    assert_eq!(w.call(1, "bob"), (vec![0], true));
    w.run(30 * SECOND);
    assert_eq!(w.call(1, "bob"), (vec![], true), "it has ended");
}

#[test]
fn a_node_that_does_not_renew_its_lease_is_passed_over() {
    let mut w = running(2);
    w.register(0, "bob", 3600, 1);
    w.run(SECOND);
    assert_eq!(w.call(1, "bob"), (vec![0], true));
    w.kill(0);
    w.run(6 * SECOND);
    assert_eq!(w.call(1, "bob"), (vec![], true));
    assert!(w.nodes[1].peers.is_empty());
    // Its next run has none of the bindings of the one before.
    w.restart(0);
    w.run(3 * SECOND);
    assert_eq!(w.nodes[1].peers.len(), 1);
    assert_eq!(w.call(1, "bob"), (vec![], true));
    w.register(0, "bob", 3600, 2);
    w.run(SECOND);
    assert_eq!(w.call(1, "bob"), (vec![0], true));
}

#[test]
fn a_paused_database_delays_nobody() {
    let mut w = running(2);
    w.register(0, "bob", 3600, 1);
    w.run(SECOND);
    assert_eq!(w.call(1, "bob"), (vec![0], true));
    w.run(2 * SECOND);
    w.pause(5 * SECOND);
    // One that comes at once waits for its deadline, and fails.
    w.register(0, "carol", 3600, 2);
    w.run(2 * SECOND);
    assert_eq!(w.nodes[0].commits, [(1, true), (2, false)]);
    // The next ones are refused at once; what is known is used, and what is not known is not waited for.
    assert!(!w.register(0, "dave", 3600, 3));
    let before = w.now;
    assert_eq!(w.call(1, "bob"), (vec![0], true));
    assert_eq!(w.call(1, "carol"), (vec![], false));
    assert_eq!(w.now, before);
    let counts = w.nodes[0].machine.counts();
    assert_eq!((counts.present, counts.refused, counts.failed, counts.outages), (false, 1, 1, 1));
    // All is well when it goes on, though what it has done late was given up.
    w.run(6 * SECOND);
    assert!(w.register(0, "dave", 3600, 3));
    w.run(SECOND);
    assert_eq!(w.nodes[0].commits.last(), Some(&(3, true)));
    for user in ["bob", "carol", "dave"] {
        assert_eq!(w.call(1, user), (vec![0], true), "{user}");
    }
    assert_eq!(w.nodes[1].peers.len(), 1, "no node is dropped because leases could not be renewed");
}

#[test]
fn a_node_that_has_started_again_is_called_while_the_database_is_absent() {
    let mut w = running(2);
    w.register(0, "bob", 3600, 1);
    w.run(SECOND);
    assert_eq!(w.call(1, "bob"), (vec![0], true));
    w.kill(0);
    w.restart(0);
    w.run(2 * SECOND);
    // As a node does with the registrations of its file.
    w.register(0, "bob", 3600, 2);
    w.run(2 * SECOND);
    w.pause(5 * SECOND);
    w.run(2 * SECOND);
    let counts = w.nodes[1].machine.counts();
    assert!(!counts.present);
    assert_eq!(w.call(1, "bob"), (vec![0], true), "the node that was read is another run now");
}

#[test]
fn a_database_that_is_absent_at_the_start_is_reported_once() {
    let mut w = World::new(1);
    w.pause(6 * SECOND);
    w.run(5 * SECOND);
    assert_eq!(w.nodes[0].states, [State::Absent]);
    assert!(!w.register(0, "bob", 3600, 1));
    w.run(5 * SECOND);
    assert_eq!(w.nodes[0].states, [State::Absent, State::Ready]);
    assert_eq!(w.nodes[0].machine.counts().outages, 0);
}

#[test]
fn a_registration_without_a_replica_is_refused() {
    let mut w = running(2);
    w.database.replicates = false;
    w.register(0, "bob", 3600, 1);
    w.run(SECOND);
    assert_eq!(w.nodes[0].commits, [(1, false)]);
    assert!(!w.register(0, "bob", 3600, 2));
    assert!(w.nodes[0].machine.counts().present);
    w.database.replicates = true;
    w.run(2 * SECOND);
    assert!(w.register(0, "bob", 3600, 3));
    w.run(SECOND);
    assert_eq!(w.nodes[0].commits.last(), Some(&(3, true)));
}

#[test]
fn what_was_acknowledged_is_there_after_a_replica_has_taken_over() {
    let mut w = running(2);
    w.register(0, "bob", 3600, 1);
    w.run(SECOND);
    w.database.replicates = false;
    // Only the primary has it, and it is not acknowledged.
    w.register(0, "carol", 3600, 2);
    w.run(SECOND);
    w.fail_over();
    w.run(3 * SECOND);
    assert_eq!(w.nodes[0].commits, [(1, true), (2, false)]);
    assert_eq!(w.call(1, "bob"), (vec![0], true));
    // The node has it, and publishes it again.
    assert_eq!(w.call(1, "carol"), (vec![0], true));
}

#[test]
fn changes_that_are_not_reported_are_read_after_the_gap() {
    let mut w = running(2);
    assert_eq!(w.call(1, "bob"), (vec![], true));
    w.database.reports = false;
    w.run(2 * SECOND);
    w.register(0, "bob", 3600, 1);
    w.run(2 * SECOND);
    // Without reports each call reads.
    assert_eq!(w.call(1, "bob"), (vec![0], true));
    w.run(2 * SECOND);
    w.unregister(0, "bob");
    w.run(SECOND);
    w.database.reports = true;
    w.run(SECOND);
    assert_eq!(w.call(1, "bob"), (vec![], true));
    assert_eq!(w.nodes[1].machine.counts().gaps, 1);
}

#[test]
fn changes_of_followed_users_are_reported_to_the_server() {
    let mut w = running(2);
    w.nodes[1].machine.follow(b"bob", true);
    for user in ["bob", "carol"] {
        assert!(w.register(0, user, 3600, 1));
    }
    w.run(SECOND);
    assert_eq!(w.nodes[1].moved, [b"bob"[..].into()]);
    assert_eq!(w.call(1, "bob"), (vec![0], true), "what is read then is the new state");
    w.unregister(0, "bob");
    w.run(SECOND);
    assert_eq!(w.nodes[1].moved.len(), 2);
    w.nodes[1].machine.follow(b"bob", false);
    assert!(w.register(0, "bob", 3600, 2));
    w.run(SECOND);
    assert_eq!(w.nodes[1].moved.len(), 2);
    // What may have been missed is known, too.
    let gaps = w.nodes[1].gaps;
    w.database.reports = false;
    w.run(4 * SECOND);
    w.database.reports = true;
    w.run(2 * SECOND);
    assert!(w.nodes[1].gaps > gaps);
}

/// A call waits for the node to come back; where a followed user is, is known at once.
#[test]
fn a_followed_user_is_looked_up_without_waiting_for_a_node_that_is_being_restarted() {
    let mut w = running(2);
    assert!(w.register(0, "bob", 3600, 1));
    w.run(SECOND);
    let name = w.nodes[0].name;
    let boot = w.nodes[0].boot;
    assert_eq!(w.call(1, "bob"), (vec![0], true));
    let now = w.now;
    assert_eq!(w.nodes[1].machine.registered_at(b"bob", now), Some(vec![(name, boot)]));
    w.leave(0);
    w.run(SECOND);
    w.kill(0);
    // Read anew, as after a change that was reported.
    w.hear(1, &Message::User(b"bob"[..].into()));
    w.run(SECOND);
    let now = w.now;
    assert_eq!(w.nodes[1].machine.registered_at(b"bob", now), None);
    let asked = w.nodes[1].machine.ask(now, b"bob", OTHER_SERVERS, AskId::of_world(1));
    assert_eq!(asked, None, "the database is asked");
    w.nodes[1].replies.clear();
    w.run(Duration::from_millis(100));
    assert_eq!(w.nodes[1].replies, [(OTHER_SERVERS, Reply::Located)]);
    let now = w.now;
    assert_eq!(w.nodes[1].machine.registered_at(b"bob", now), Some(Vec::new()));
}

#[test]
fn another_run_of_a_node_that_lives_is_reported() {
    let mut w = running(2);
    let (_, before) = w.nodes[1].machine.runs();
    assert_eq!(before, [(w.nodes[0].name, w.nodes[0].boot)]);
    w.nodes[1].peers = Vec::new();
    w.kill(0);
    w.restart_as(0, 9_000_000);
    w.run(SECOND);
    // Its lease has not ended in between.
    assert_eq!(w.nodes[1].peers, [w.nodes[0].name]);
    assert_eq!(w.nodes[1].machine.runs().1, [(w.nodes[0].name, 9_000_000)]);
    assert!(!w.nodes[1].machine.lives(before[0].0, before[0].1));
    assert!(w.nodes[1].machine.lives(w.nodes[0].name, 9_000_000));
}

#[test]
fn a_database_that_has_lost_everything_is_filled_again() {
    let mut w = running(2);
    for id in 0..2000 {
        w.register(0, &format!("user{id}"), 3600, id);
    }
    w.run(2 * SECOND);
    w.database = world::Database::empty();
    w.fail_over();
    w.run(3 * SECOND);
    for id in [0, 511, 512, 1000, 1999] {
        assert_eq!(w.call(1, &format!("user{id}")), (vec![0], true), "{id}");
    }
}

/// Another program, or an operator by mistake, has written to the key of a user: others are not concerned, and the user is
/// served again once the key is gone.
#[test]
fn a_key_with_what_is_not_ours_concerns_its_user_only() {
    let mut w = running(2);
    assert!(w.register(0, "carol", 3600, 1));
    w.run(SECOND);
    w.database.foreign.insert(b"bob");
    w.register(0, "bob", 3600, 2);
    w.run(SECOND);
    assert_eq!(w.nodes[0].commits, [(1, true), (2, false)]);
    for id in 3..30 {
        assert!(w.register(0, "carol", 3600, id), "{id}");
        assert_eq!(w.call(1, "bob"), (vec![], false));
        w.run(Duration::from_millis(100));
        assert_eq!(w.nodes[0].commits.last(), Some(&(id, true)), "not even late");
        w.run(SECOND);
    }
    assert_eq!(w.call(1, "carol"), (vec![0], true));
    for node in &w.nodes {
        let counts = node.machine.counts();
        assert_eq!((counts.outages, node.unusable.len()), (0, 1), "{counts:?}");
        assert!(counts.unusable > 0);
    }
    // It is not tried all the time.
    assert!(w.nodes[0].machine.counts().unusable < 4);
    w.database.foreign.clear();
    w.run(40 * SECOND);
    assert_eq!(w.call(1, "bob"), (vec![0], true));
}

/// Its phones register at once, and are to be called by others without a wait for their next renewal.
#[test]
fn a_node_that_starts_is_known_to_the_others_at_once() {
    let mut w = running(3);
    w.kill(0);
    w.run(Duration::from_millis(300));
    w.restart_as(0, 9);
    w.run(Duration::from_millis(250));
    assert!(w.register(0, "bob", 3600, 1));
    w.run(Duration::from_millis(50));
    for node in [1, 2] {
        assert_eq!(w.call(node, "bob"), (vec![0], true));
    }
    let renewals = w.nodes[1].renewals;
    // A name that no lease has is no reason to read again and again.
    let stranger = w.nodes[1].name;
    for port in 0..100 {
        let mut node = stranger;
        node.address.set_port(7000 + port);
        w.hear(2, &Message::Renewed { node, boot: 1 });
        w.run(Duration::from_millis(20));
    }
    assert!(w.nodes[1].renewals <= renewals + 3 && w.nodes[2].renewals <= renewals + 6);
}

/// The clock of a machine was set back, or is not set yet when it starts: what its last run has published does not keep it
/// from taking registrations.
#[test]
fn a_run_with_a_smaller_number_takes_the_next_one() {
    let mut w = running(2);
    w.kill(0);
    w.restart_as(0, 1_000_000);
    w.run(3 * SECOND);
    for (id, user) in ["bob", "carol"].into_iter().enumerate() {
        w.register(0, user, 3600, id as u64);
    }
    w.run(SECOND);
    w.kill(0);
    w.run(6 * SECOND);
    w.restart_as(0, 7);
    w.run(3 * SECOND);
    assert!(w.register(0, "bob", 3600, 3));
    w.run(SECOND);
    assert_eq!(w.nodes[0].commits, [(3, true)]);
    assert_eq!(w.nodes[0].machine.config().boot, 1_000_001);
    w.run(2 * SECOND);
    assert_eq!(w.call(1, "bob"), (vec![0], true));
    assert_eq!(w.call(1, "carol"), (vec![], true), "this run has not got her");
    assert_eq!(w.nodes[0].machine.counts().outages, 0);
}

/// Two servers with one address: the one that has started first does not push out the other.
#[test]
fn a_run_whose_successor_lives_is_superseded() {
    let mut w = running(2);
    w.register(0, "bob", 3600, 1);
    w.run(SECOND);
    let name = w.nodes[0].name;
    w.nodes[1].name = name;
    w.restart_as(1, 9);
    w.run(SECOND);
    w.register(1, "bob", 3600, 2);
    w.run(3 * SECOND);
    assert_eq!(w.nodes[0].machine.state(), State::Superseded);
    assert_eq!(w.nodes[1].machine.state(), State::Ready);
    assert_eq!((w.nodes[0].machine.config().boot, w.nodes[1].machine.config().boot), (1, 9));
}

/// A replica whose clock is ahead has become the primary: what has ended by its clock is published again.
#[test]
fn a_record_that_has_ended_by_another_clock_is_written_again() {
    let mut w = running(2);
    w.register(0, "bob", 60, 1);
    w.run(SECOND);
    w.hasten(100 * SECOND);
    w.fail_over();
    w.run(3 * SECOND);
    assert_eq!(w.call(1, "bob"), (vec![0], true));
}

/// What a phone has been answered last, by node and user.
#[derive(Default)]
struct Phones {
    next: u64,
    /// Registrations that wait: node, user.
    waiting: BTreeMap<u64, (usize, String)>,
    acknowledged: BTreeMap<(usize, String), bool>,
}

impl Phones {
    fn hear(&mut self, w: &mut World) {
        for node in &mut w.nodes {
            for (id, stored) in node.commits.drain(..) {
                if let Some(key) = self.waiting.remove(&id).filter(|_| stored) {
                    self.acknowledged.insert(key, true);
                }
            }
        }
    }
}

/// Faults of a database of this many shards, with this seed: what was acknowledged is found afterwards.
fn faults(seed: u64, shards: i64) {
    let mut random = SplitMix::new(seed);
    let mut w = if shards == 1 { World::new(3) } else { World::sharded(3, shards) };
    w.run(3 * SECOND);
    let mut phones = Phones::default();
    for _ in 0..300 {
        let pick = random.next_u64();
        let node = (pick >> 8) as usize % w.nodes.len();
        let user = format!("user{}", (pick >> 16) % 20);
        let shard = (pick >> 40) as usize % shards as usize;
        match pick % 40 {
            0 => w.pause_shard(shard, Duration::from_millis((pick >> 24) % 6000)),
            1 => w.shard(shard).replicates ^= true,
            2 => w.fail_over_shard(shard),
            3 => w.database.reports ^= true,
            4 => w.shard(shard).latency = Duration::from_millis((pick >> 24) % 400),
            5..10 => {
                w.call(node, &user);
            }
            10..13 => {
                w.unregister(node, &user);
                phones.waiting.retain(|_, (n, u)| (*n, &*u) != (node, &user));
                phones.acknowledged.remove(&(node, user));
            }
            13..25 => {
                phones.next += 1;
                if w.register(node, &user, 3600, phones.next) {
                    phones.waiting.insert(phones.next, (node, user));
                }
            }
            _ => w.run(Duration::from_millis((pick >> 24) % 1000)),
        }
        phones.hear(&mut w);
    }
    // After the faults, all is well.
    for shard in 0..shards as usize {
        let shard = w.shard(shard);
        (shard.replicates, shard.reports) = (true, true);
        shard.latency = Duration::from_millis(1);
    }
    w.run(15 * SECOND);
    phones.hear(&mut w);
    for n in &w.nodes {
        let counts = n.machine.counts();
        assert!(counts.ready && counts.waiting == 0 && counts.nodes == 2, "{seed}: {counts:?}");
        assert_eq!(counts.shards_present, shards as usize, "{seed}: {counts:?}");
    }
    for (node, user) in phones.acknowledged.keys() {
        for other in (0..3).filter(|other| other != node) {
            let (found, known) = w.call(other, user);
            assert!(known && found.contains(node), "{seed}: {user} at {node} by {other}");
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_by_pauses_slowness_gaps_and_failovers() {
    (0..40).for_each(|seed| faults(seed, 1));
}

#[test]
fn nothing_acknowledged_is_lost_by_faults_of_shards() {
    (0..40).for_each(|seed| faults(seed, 3));
}

/// Every tenth of a hundred nodes dies, and with them the primary: the others lose nothing, and take the phones of the dead.
#[test]
fn of_a_hundred_nodes_ten_die_with_the_primary() {
    const NODES: usize = 100;
    const USERS: usize = 500;
    let mut w = running(NODES);
    assert!(w.nodes.iter().all(|n| n.machine.counts().nodes == NODES - 1));
    let user = |i: usize| format!("user{i}");
    for i in 0..USERS {
        assert!(w.register(i % NODES, &user(i), 3600, i as u64));
    }
    w.run(SECOND);
    let stored = |n: &world::Node| n.commits.iter().filter(|(_, stored)| *stored).count();
    assert_eq!(w.nodes.iter().map(stored).sum::<usize>(), USERS);
    let dies = |node: usize| node % 10 == 3;
    // Nodes to which a call for each user goes, by one node that lives; another for each user.
    let calls = |w: &mut World, home: &dyn Fn(usize) -> Vec<usize>| {
        for i in 0..USERS {
            let by = (i * 7 + 5) % NODES;
            let by = if dies(by) { by + 1 } else { by };
            let others: Vec<_> = home(i).into_iter().filter(|node| *node != by).collect();
            assert_eq!(w.call(by, &user(i)), (others, true), "user {i} by node {by}");
        }
    };
    calls(&mut w, &|i| vec![i % NODES]);
    for node in (0..NODES).filter(|node| dies(*node)) {
        w.kill(node);
    }
    w.fail_over();
    w.run(10 * SECOND);
    for node in w.nodes.iter().filter(|n| n.alive) {
        let counts = node.machine.counts();
        assert_eq!((counts.ready, counts.nodes), (true, 89), "{counts:?}");
        // Each user once, and once more for each of the three connections that were lost.
        assert!(counts.published <= 4 * (USERS / NODES) as u64, "{counts:?}");
    }
    calls(&mut w, &|i| if dies(i % NODES) { vec![] } else { vec![i % NODES] });
    for i in (0..USERS).filter(|i| dies(i % NODES)) {
        assert!(w.register(i % NODES + 1, &user(i), 3600, i as u64));
    }
    w.run(SECOND);
    calls(&mut w, &|i| vec![i % NODES + usize::from(dies(i % NODES))]);
}

#[test]
fn the_same_faults_have_the_same_outcome() {
    let run = || {
        let mut w = running(2);
        w.register(0, "bob", 60, 1);
        w.pause(3 * SECOND);
        w.run(10 * SECOND);
        (w.now, w.nodes[0].machine.counts(), w.nodes[0].commits.clone())
    };
    assert_eq!(run(), run());
}

/// Users of each shard: the first has that of the leases.
fn users_of_shards(w: &World, count: usize) -> Vec<Vec<String>> {
    let mut users = vec![Vec::new(); 1 + w.others.len()];
    for i in 0.. {
        let user = format!("u{i}");
        users[w.shard_of_user(&user)].push(user);
        if users.iter().all(|users| users.len() >= count) {
            break;
        }
    }
    users
}

/// Nodes that know each other and three shards.
fn running_on_shards(count: usize) -> (World, Vec<Vec<String>>) {
    let mut w = World::sharded(count, 3);
    w.run(3 * SECOND);
    let users = users_of_shards(&w, 4);
    (w, users)
}

#[test]
fn users_of_all_shards_are_found() {
    let (mut w, users) = running_on_shards(2);
    assert_eq!(w.nodes[0].states, [State::Ready], "no shard is absent before that is certain");
    for (id, user) in users.iter().flatten().enumerate() {
        assert!(w.register(0, user, 3600, id as u64));
    }
    w.run(SECOND);
    assert!(w.nodes[0].commits.iter().all(|(_, stored)| *stored));
    for user in users.iter().flatten() {
        assert_eq!(w.call(1, user), (vec![0], true), "{user}");
    }
    let counts = w.nodes[0].machine.counts();
    assert_eq!((counts.shards, counts.shards_present, counts.nodes), (3, 3, 1));
}

/// Each shard in turn does nothing, that of the leases among them: users of the others are not even late.
#[test]
fn a_paused_shard_concerns_its_users_only() {
    for paused in 0..3 {
        let (mut w, users) = running_on_shards(2);
        for shard in &users {
            assert!(w.register(0, &shard[0], 3600, 1));
        }
        w.run(SECOND);
        for shard in &users {
            assert_eq!(w.call(1, &shard[0]), (vec![0], true));
        }
        w.nodes[0].commits.clear();
        w.pause_shard(paused, 10 * SECOND);
        for round in 0..40 {
            for (shard, users) in users.iter().enumerate() {
                let id = 100 * (round + 1) + shard as u64;
                let taken = w.register(0, &users[1], 3600, id);
                assert!(taken || shard == paused, "{paused}: {shard} in round {round}");
                w.run(Duration::from_millis(10));
                if shard != paused {
                    assert!(w.nodes[0].commits.contains(&(id, true)), "late: {paused}: {shard}");
                    assert_eq!(w.call(1, &users[2]), (vec![], true));
                }
                // Who was known is called.
                assert_eq!(w.call(1, &users[0]), (vec![0], true), "{paused}: {shard}");
            }
            w.run(Duration::from_millis(170));
        }
        let counts = w.nodes[0].machine.counts();
        assert_eq!((counts.shards, counts.shards_present, counts.outages), (3, 2, 1));
        assert!(counts.present && counts.ready && counts.nodes == 1, "{counts:?}");
        let port = 7000 + paused as u16;
        let absent: Vec<_> =
            w.nodes[0].shards.iter().filter(|(_, state)| state.is_absent()).collect();
        assert_eq!(absent, [&(port, State::Absent)], "reported once");
        w.run(10 * SECOND);
        assert!(w.register(0, &users[paused][1], 3600, 9));
        w.run(SECOND);
        assert_eq!(w.nodes[0].commits.last(), Some(&(9, true)));
        for user in users.iter().map(|users| &users[1]) {
            assert_eq!(w.call(1, user), (vec![0], true));
        }
        assert_eq!(w.nodes[0].machine.counts().shards_present, 3);
    }
}

#[test]
fn a_shard_without_replicas_concerns_its_users_only() {
    let (mut w, users) = running_on_shards(2);
    w.shard(1).replicates = false;
    w.run(3 * SECOND);
    for (shard, users) in users.iter().enumerate() {
        assert_eq!(w.register(0, &users[0], 3600, shard as u64), shard != 1);
    }
    w.run(SECOND);
    assert_eq!(w.nodes[0].commits, [(0, true), (2, true)]);
    w.shard(1).replicates = true;
    w.run(2 * SECOND);
    assert!(w.register(0, &users[1][0], 3600, 3));
}

/// The primary of a shard is lost with what no replica has: the node publishes its users at the new one.
#[test]
fn a_shard_whose_primary_was_lost_is_filled_again() {
    for lost in 0..3 {
        let (mut w, users) = running_on_shards(2);
        w.shard(lost).replicates = false;
        for shard in &users {
            w.register(0, &shard[0], 3600, 1);
        }
        w.run(Duration::from_millis(100));
        w.fail_over_shard(lost);
        w.run(5 * SECOND);
        for user in users.iter().map(|users| &users[0]) {
            assert_eq!(w.call(1, user), (vec![0], true), "{lost}");
        }
        let counts = w.nodes[0].machine.counts();
        assert_eq!((counts.shards, counts.shards_present, counts.nodes), (3, 3, 1));
    }
}

/// A server that was away reports the map from before: it is not used, unless no other is reported for long.
#[test]
fn an_old_map_is_ignored_for_a_while() {
    let (mut w, users) = running_on_shards(2);
    let old = w.slots();
    w.fail_over_shard(1);
    w.run(2 * SECOND);
    let now = w.now;
    w.nodes[0].machine.handle(now, Report::Slots(Some(old.clone())));
    assert!(w.register(0, &users[1][0], 3600, 1));
    w.run(40 * SECOND);
    // The cluster was made anew.
    let now = w.now;
    w.nodes[0].machine.handle(now, Report::Slots(Some(old)));
    assert!(!w.register(0, &users[1][0], 3600, 2));
    let current = w.slots();
    w.nodes[0].machine.handle(now, Report::Slots(Some(current)));
    w.run(2 * SECOND);
    assert!(w.register(0, &users[1][0], 3600, 3));
}

#[test]
fn users_of_slots_without_a_primary_are_refused_at_once() {
    let mut w = World::sharded(1, 3);
    let now = w.now;
    w.nodes[0].machine.handle(now, Report::Slots(None));
    w.run(Duration::from_millis(10));
    assert_eq!(w.nodes[0].states, [State::Absent], "no server has answered");
    assert!(!w.register(0, "bob", 3600, 1));
    w.run(2 * SECOND);
    assert!(w.register(0, "bob", 3600, 2));
    w.run(SECOND);
    // All slots but bob's are there.
    let slot = i64::from(slots::slot_of_user(b"bob"));
    let primary = w.slots().of(0).unwrap().clone();
    let range = |first, last| slots::Range { first, last, primary: primary.clone() };
    let gap = Slots::new(2, vec![range(0, slot - 1), range(slot + 1, 16_383)]).unwrap();
    let now = w.now;
    w.nodes[0].machine.handle(now, Report::Slots(Some(gap)));
    assert!(!w.register(0, "bob", 3600, 3));
    assert!(w.register(0, "carol", 3600, 4));
    // They are assigned to another server, which has nothing of them: it is published there.
    let shard = w.shard_of_user("bob");
    w.shard(shard).forget("bob");
    let now = w.now;
    w.epoch = 3;
    let back = w.slots();
    w.nodes[0].machine.handle(now, Report::Slots(Some(back)));
    w.run(2 * SECOND);
    assert!(w.shard(shard).has("bob"));
}

/// Tokens of one node are read by all.
#[test]
fn all_nodes_share_their_secrets_whatever_the_database_loses() {
    let mut w = running(3);
    let first = w.nodes[0].secrets.clone();
    assert_eq!(first.len(), 1);
    let shared = |w: &World| w.nodes.iter().all(|node| node.secrets[0] == w.nodes[0].secrets[0]);
    assert!(shared(&w));
    w.kill(0);
    w.restart(0);
    w.run(3 * SECOND);
    assert_eq!(w.nodes[0].secrets, first);
    // It has lost everything, and a node that has just started is the first to notice.
    w.kill(0);
    w.database = world::Database::empty();
    w.restart(0);
    w.run(30 * SECOND);
    assert!(shared(&w));
    assert!(w.nodes.iter().all(|node| node.secrets.contains(&first[0])), "no token is void");
    w.fail_over();
    w.run(30 * SECOND);
    assert!(shared(&w));
}

/// What has been in use for long is followed by another, which all have read before it is used.
#[test]
fn secrets_are_replaced_in_time() {
    let mut w = running(1);
    let first = w.nodes[0].secrets.clone();
    let days = ringway_cluster::secrets::ROTATION + SECOND;
    // Nothing but the clock is of interest.
    w.kill(0);
    w.now += days;
    w.restart(0);
    w.run(3 * SECOND);
    let next = w.nodes[0].secrets.clone();
    assert_eq!((next.len(), next[0]), (2, first[0]));
    w.run(ringway_cluster::secrets::NOTICE + 15 * SECOND);
    assert_eq!(w.nodes[0].secrets, [next[1], next[0]]);
}

/// It concerns tokens that other nodes present, and nothing else.
#[test]
fn a_key_of_secrets_with_what_is_not_ours_is_reported() {
    use ringway_cluster::secrets::SECRETS;
    let mut w = World::new(2);
    w.database.foreign.insert(SECRETS.as_bytes());
    w.run(30 * SECOND);
    assert_eq!(w.nodes[0].unusable, [SECRETS.as_bytes().into()], "once a minute");
    assert!(w.register(0, "bob", 3600, 1));
    w.run(SECOND);
    assert_eq!(w.call(1, "bob"), (vec![0], true));
    w.database.foreign.clear();
    w.run(2 * SECOND);
    assert_eq!(w.nodes[0].secrets.len(), 1);
    assert_eq!(w.nodes[0].secrets, w.nodes[1].secrets);
}
