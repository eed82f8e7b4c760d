//! Messages for users who are away.

use crate::net::Net;
use ringway_dht::record::key;
use ringway_directory::config::{KIND_MAIL, KIND_MAIL_PART};
use ringway_directory::mail::format::{List, part_name};
use ringway_directory::{Delivery, Event, Mail};
use ringway_mesh::NodeId;
use ringway_mesh::identity::Search;
use ringway_sansio::SplitMix;

/// The type of a question among the messages of the DHT.
const GET: usize = 4;
const ALICE: &str = "alice@mesh";
const BOB: &str = "bob@mesh";

/// Has a router keep a message. Returns whether it is accepted.
fn keep(net: &mut Net, at: NodeId, (from, to): (&str, &str), octets: &[u8]) -> bool {
    let tag = net.now.as_millis();
    let (from, to, octets) = (from.into(), to.into(), octets.into());
    let mail = Mail { to, from, lifetime: 86_400, octets };
    if !net.change(at, |directory, now, random| directory.keep(now, tag, mail, random)) {
        return false;
    }
    net.wait(at, |event| match event {
        Event::Kept { tag: of, is_kept } if *of == tag => Some(*is_kept),
        _ => None,
    })
}

/// Lets milliseconds pass, in which every message that is to be delivered reaches its recipient. Returns all of them.
fn run(net: &mut Net, milliseconds: u64) -> Vec<Delivery> {
    let mut all = Vec::new();
    for _ in 0..milliseconds / 50 {
        net.run(50);
        for id in net.up() {
            let events = core::mem::take(&mut net.nodes.get_mut(&id).unwrap().events);
            for event in events {
                if let Event::Deliver(delivery) = event {
                    let number = delivery.id;
                    net.change(id, |directory, now, random| {
                        directory.delivered(now, number, true, random);
                    });
                    all.push(delivery);
                }
            }
        }
    }
    all
}

fn texts(deliveries: &[Delivery]) -> Vec<String> {
    let text = |delivery: &Delivery| String::from_utf8(delivery.octets.to_vec()).unwrap();
    deliveries.iter().map(text).collect()
}

/// Ten routers, alice and bob at home at two of them. Returns these, and the others.
fn network(seed: u64) -> (Net, NodeId, NodeId, Vec<NodeId>) {
    let mut net = Net::new(10, seed);
    let routers = net.up();
    let (home, sender) = (routers[2], routers[6]);
    net.add(home, ALICE, "secret");
    net.add(sender, BOB, "secret");
    net.run(5_000);
    let others = routers.into_iter().filter(|&router| router != home && router != sender);
    let others = others.collect();
    (net, home, sender, others)
}

/// The router of the sender and two keepers end, and the user comes at another router.
#[test]
fn a_message_survives_its_router_and_two_keepers() {
    for seed in 0..8 {
        let (mut net, home, sender, others) = network(100 + seed);
        assert!(keep(&mut net, sender, (BOB, ALICE), b"hello"));
        let publications = net.nodes[&sender].directory.dht().publications();
        let kept_by = publications.kept_by(KIND_MAIL, ALICE.as_bytes()).to_vec();
        assert!(kept_by.len() >= 3);
        let keepers = kept_by.into_iter().filter(|&id| id != home && id != sender);
        for id in keepers.take(2).chain([sender]) {
            net.crash(id);
        }
        assert_eq!(run(&mut net, 30_000), []);
        let at = others.into_iter().find(|id| net.up().contains(id)).unwrap();
        assert!(net.register(at, ALICE, "secret"));
        let delivered = run(&mut net, 60_000);
        assert_eq!(texts(&delivered), ["hello"], "seed {seed}");
        let Delivery { to, from, located, .. } = &delivered[0];
        assert_eq!((&**to, &**from), (ALICE, BOB));
        assert_eq!(located.routers[0].0, at);
        // Its router is gone and cannot withdraw it.
        assert_eq!(run(&mut net, 1_800_000), []);
    }
}

/// Returns the list of messages for a user that any router keeps.
fn list(net: &Net, name: &str) -> List {
    let records = net.nodes.values().find_map(|node| {
        let name = name.as_bytes();
        let entries = node.directory.dht().table().of_name(key(KIND_MAIL, name), KIND_MAIL, name);
        entries.first().map(|entry| entry.record.clone())
    });
    List::parse(records.unwrap().value()).unwrap()
}

/// Returns the number of routers that keep a record which is not withdrawn.
fn kept(net: &Net, kind: u8, name: &[u8]) -> usize {
    let has = |id: &NodeId| {
        let table = net.nodes[id].directory.dht().table();
        let entries = table.of_name(key(kind, name), kind, name);
        entries.iter().any(|entry| !entry.record.is_withdrawal())
    };
    net.up().iter().filter(|id| has(id)).count()
}

/// What has been delivered is withdrawn, and nothing of it is looked for any more.
#[test]
fn a_message_is_removed_everywhere_when_it_was_delivered() {
    let (mut net, home, sender, _) = network(2);
    assert!(keep(&mut net, sender, (BOB, ALICE), &[b'x'; 1_500]));
    assert_eq!(net.nodes[&sender].directory.mail(), 1);
    let list = list(&net, ALICE);
    assert_eq!(list.entries[0].parts(), 4);
    for part in 0..4 {
        assert!(kept(&net, KIND_MAIL_PART, &part_name(&list.entries[0].id, part)) >= 3);
    }
    assert!(net.register(home, ALICE, "secret"));
    assert_eq!(run(&mut net, 5_000).len(), 1);
    run(&mut net, 30_000);
    assert_eq!(net.nodes[&sender].directory.mail(), 0);
    assert_eq!(kept(&net, KIND_MAIL, ALICE.as_bytes()), 0);
    for entry in list.entries {
        for part in 0..entry.parts() {
            assert_eq!(kept(&net, KIND_MAIL_PART, &part_name(&entry.id, part)), 0);
        }
    }
    let before = net.dht_octets.len();
    let looks_up = |octets: &[u8]| octets.windows(ALICE.len()).any(|part| part == ALICE.as_bytes());
    run(&mut net, 60_000);
    assert!(!net.dht_octets[before..].iter().any(|octets| looks_up(octets)));
}

/// A router that has restarted lists what it listed before.
#[test]
fn a_router_that_restarts_loses_no_message_of_before() {
    let (mut net, home, _, others) = network(3);
    let identity = || Search::new(0, &mut SplitMix::new(77)).step(1).unwrap();
    let sender = net.start(identity(), 0);
    net.run(15_000);
    net.add(sender, "carol@mesh", "secret");
    net.run(5_000);
    assert!(keep(&mut net, sender, ("carol@mesh", ALICE), b"first"));
    net.crash(sender);
    net.run(10_000);
    net.nodes.remove(&sender);
    assert_eq!(net.start(identity(), 0), sender);
    net.run(15_000);
    net.add(sender, "carol@mesh", "secret");
    net.run(5_000);
    assert!(keep(&mut net, sender, ("carol@mesh", ALICE), b"second"));
    assert!(net.register(others[0], ALICE, "secret"));
    assert_eq!(texts(&run(&mut net, 30_000)), ["first", "second"]);
    assert_eq!(run(&mut net, 900_000), []);
    assert_eq!(net.nodes[&sender].directory.mail(), 0);
    assert_eq!(net.nodes[&home].directory.mail_counters().delivered, 2);
}

/// A message that comes when the user has just come is delivered without another registration.
#[test]
fn a_message_for_a_user_who_is_there_already_is_delivered() {
    let (mut net, _, sender, others) = network(4);
    assert!(net.register(others[3], ALICE, "secret"));
    run(&mut net, 20_000);
    assert!(keep(&mut net, sender, (BOB, ALICE), b"hello"));
    assert_eq!(texts(&run(&mut net, 10_000)), ["hello"]);
}

/// A delivery that fails is tried again, less and less often, and is not lost.
#[test]
fn a_message_that_cannot_be_delivered_is_tried_again() {
    let (mut net, home, sender, _) = network(5);
    assert!(keep(&mut net, sender, (BOB, ALICE), b"hello"));
    assert!(net.register(home, ALICE, "secret"));
    let mut failed = 0;
    for _ in 0..1_200 {
        net.run(100);
        let events = core::mem::take(&mut net.nodes.get_mut(&home).unwrap().events);
        for event in events {
            if let Event::Deliver(Delivery { id, .. }) = event {
                failed += 1;
                net.change(home, |directory, now, random| {
                    directory.delivered(now, id, false, random);
                });
            }
        }
    }
    assert!((3..=6).contains(&failed), "{failed}");
    assert_eq!(texts(&run(&mut net, 300_000)), ["hello"]);
}

/// A user at a guest's router may leave messages there, by the grant of the home, which the recipient's home verifies.
#[test]
fn a_guest_leaves_a_message() {
    let (mut net, home, _, others) = network(6);
    assert!(!keep(&mut net, others[1], (BOB, ALICE), b"without a proof"));
    assert!(net.register(others[1], BOB, "secret"));
    assert!(keep(&mut net, others[1], (BOB, ALICE), b"hello"));
    assert!(net.register(home, ALICE, "secret"));
    assert_eq!(texts(&run(&mut net, 10_000)), ["hello"]);
}

/// A hostile router claims to be the home of bob, and leaves messages of bob for alice.
#[test]
fn a_message_of_a_router_that_may_not_send_as_its_sender_is_dropped() {
    let (mut net, home, _, others) = network(7);
    let hostile = others[4];
    net.run(2_000);
    net.add(hostile, BOB, "guess");
    net.run(5_000);
    assert!(keep(&mut net, hostile, (BOB, ALICE), b"forged"));
    assert!(net.register(home, ALICE, "secret"));
    assert_eq!(run(&mut net, 60_000), []);
    assert_eq!(net.nodes[&home].directory.mail_counters().invalid, 1);
}

/// A hostile router hints without end that it keeps messages for users of another one, and that messages were delivered of which
/// nobody knows: it has that router ask little, and the user's message arrives.
#[test]
fn hints_of_one_router_cost_another_little() {
    let (mut net, home, sender, others) = network(10);
    let hostile = others[3];
    for number in 0..200 {
        net.add(home, &format!("user{number}@mesh"), "secret");
    }
    net.run(60_000);
    let asked = |net: &Net| net.nodes[&home].directory.dht().sent()[GET].messages;
    let before = asked(&net);
    for round in 0..20_u8 {
        for number in 0..50 {
            let text = |name: String| [&[name.len() as u8], name.as_bytes()].concat();
            let mail = [vec![0x16], text(format!("user{number}@mesh"))].concat();
            let name = text(format!("{round}.{number}@mesh"));
            let taken = [vec![0x17], vec![round; 16], name].concat();
            for octets in [mail, taken] {
                net.send_private(hostile, home.prefix(), octets);
            }
        }
        net.run(500);
    }
    // Sixteen look-ups of five messages and some more.
    assert!(asked(&net) - before < 16 * 5 * 2, "{}", asked(&net) - before);
    assert!(keep(&mut net, sender, (BOB, ALICE), b"hello"));
    assert!(net.register(home, ALICE, "secret"));
    assert_eq!(texts(&run(&mut net, 10_000)), ["hello"]);
}

/// A router that claims to be the home of a user opens none of the user's messages, and takes none of them away.
#[test]
fn a_message_is_of_no_use_to_another_home() {
    let (mut net, home, sender, others) = network(8);
    assert!(keep(&mut net, sender, (BOB, ALICE), b"hello"));
    let hostile = others[0];
    net.add(hostile, ALICE, "guess");
    net.run(5_000);
    assert!(net.register(hostile, ALICE, "guess"));
    assert_eq!(run(&mut net, 60_000), []);
    assert!(net.register(home, ALICE, "secret"));
    assert_eq!(texts(&run(&mut net, 10_000)), ["hello"]);
}

/// RFC 3428 leaves it to a relay how much it stores: four messages of one sender, sixteen of all senders at one router, and
/// nothing for a user that nobody has added.
#[test]
fn messages_for_one_user_are_bounded() {
    let (mut net, home, sender, _) = network(9);
    for number in 0..6 {
        net.add(sender, &format!("user{number}@mesh"), "secret");
    }
    net.run(10_000);
    assert!(!keep(&mut net, sender, (BOB, "nobody@mesh"), b"hello"));
    let mut accepted = Vec::new();
    for number in 0..6 {
        let from = format!("user{number}@mesh");
        let count = (0..5).filter(|_| keep(&mut net, sender, (&from, ALICE), b"hello")).count();
        accepted.push(count);
    }
    assert_eq!(accepted, [4, 4, 4, 4, 0, 0]);
    assert!(net.register(home, ALICE, "secret"));
    assert_eq!(run(&mut net, 60_000).len(), 16);
    assert!(keep(&mut net, sender, ("user5@mesh", ALICE), b"hello"));
}

#[test]
fn a_message_is_void_after_its_lifetime() {
    let (mut net, home, sender, _) = network(10);
    let mail =
        Mail { to: ALICE.into(), from: BOB.into(), lifetime: 300, octets: b"hello"[..].into() };
    assert!(net.change(sender, |directory, now, random| directory.keep(now, 1, mail, random)));
    run(&mut net, 301_000);
    assert_eq!(net.nodes[&sender].directory.mail(), 0);
    assert!(net.register(home, ALICE, "secret"));
    assert_eq!(run(&mut net, 60_000), []);
}

/// With every tenth message lost each message that was accepted is delivered once.
#[test]
fn accepted_messages_are_delivered_once_though_messages_of_routers_are_lost() {
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..10 {
        let (mut net, home, sender, others) = network(200 + seed);
        net.loss = 10;
        let mut sent = Vec::new();
        for number in 0..4 {
            let text = format!("message {number}");
            match keep(&mut net, sender, (BOB, ALICE), text.as_bytes()) {
                true => sent.push(text),
                false => refused += 1,
            }
        }
        accepted += sent.len();
        while !net.register(others[2], ALICE, "secret") {}
        let mut delivered = texts(&run(&mut net, 900_000));
        delivered.sort();
        // What was given up may have been stored nevertheless, and is no loss.
        delivered.retain(|text| sent.contains(text));
        assert_eq!(delivered, sent, "seed {seed}");
        assert_eq!(net.nodes[&sender].directory.mail(), 0, "seed {seed}");
        let _ = home;
    }
    assert!(accepted >= 36, "{accepted} of {}", accepted + refused);
}
