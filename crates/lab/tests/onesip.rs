//! Routers of a mesh as one SIP server, in virtual time.

#![allow(clippy::unwrap_used)]

use ringway_directory::config::KIND_MAIL;
use ringway_lab::onesip::users::{DOMAIN, name};
use ringway_lab::onesip::{Network, PhoneTimes, Settings};
use ringway_proxy::states::{Activity, Change, Direction, Publication, UserState};
use ringway_sansio::Duration;
use ringway_sim::graph::{Adjacency, LinkModel, Topology};
use ringway_sip::HeaderId;
use ringway_sip::message;

const SECOND: Duration = Duration::from_secs(1);

/// Four routers in a line, the user with each number at home at the router with that number.
fn line(phones: PhoneTimes) -> Network {
    let link = LinkModel::new(Duration::from_millis(5));
    let adjacency = Adjacency::new(&Topology::line(4), |_, _| link).unwrap();
    let settings = Settings { phones, ..Settings::new(vec![0, 1, 2, 3], 1) };
    let mut network = Network::new(adjacency, settings).unwrap();
    network.run(SECOND * 20).unwrap();
    network
}

fn is_registered(network: &Network, router: u32, user: u32) -> bool {
    let now = network.graph.now();
    network.graph.node(router).unwrap().phones().registered(now, user).is_some()
}

/// Two phones at the ends of a line of four routers: 401, 407, 180, 200, ACK and BYE pass through four proxies.
#[test]
fn phones_call_across_four_routers() {
    let mut network = line(PhoneTimes::default());
    network.come(0, 0);
    network.come(3, 3);
    network.run(SECOND * 6).unwrap();
    assert!(is_registered(&network, 0, 0) && is_registered(&network, 3, 3));
    assert!(network.call(0, 0, 3) && network.call(3, 3, 0));
    network.run(SECOND * 40).unwrap();
    let calls = network.take_calls();
    assert_eq!(calls.len(), 2);
    for (_, call) in calls {
        assert_eq!(call.failed, None, "{call:?}");
        let took = call.ringing.unwrap() - call.begun;
        assert!(took < SECOND, "{took:?}");
        assert!(call.answered.unwrap() - call.begun >= PhoneTimes::default().ring);
        assert!(call.ended.is_some());
    }
    // Nothing is left of the calls.
    for node in network.graph.nodes() {
        assert_eq!(node.phones().under_way(), 0);
    }
}

/// What a user does at one router is known at the other end of the line, whose worker watches the user.
#[test]
fn a_watched_user_is_followed_to_another_router() {
    let mut network = line(PhoneTimes::default());
    let aor = format!("sip:{}@{DOMAIN}", name(3)).into_bytes();
    let shown = |network: &mut Network| {
        let mut shown = UserState::default();
        network.act(0, |node, now| {
            shown = node.with_states(now, |states| states.all(now, &aor, false).0);
        });
        shown
    };
    network.act(0, |node, now| node.with_states(now, |states| states.watch(&aor, 0)));
    network.come(3, 3);
    network.run(SECOND * 10).unwrap();
    assert!(shown(&mut network).is_registered);
    network.act(3, |node, now| {
        node.with_states(now, |states| {
            let publication =
                Publication { is_open: true, activity: Activity::Away, note: "back soon".into() };
            let expires = Some(now + SECOND * 600);
            let change = Change { replaces: None, publication: Some(publication), expires, tag: 1 };
            states.publish(now, &aor, change).unwrap();
            states.begin_call(now, 7 << 32, &aor[..], Direction::Recipient);
        });
    });
    network.run(SECOND / 2).unwrap();
    let state = shown(&mut network);
    assert_eq!(state.dialogs.len(), 1);
    assert_eq!(&*state.publications[0].note, "back soon");
    network.act(3, |node, now| node.with_states(now, |states| states.end_call(7 << 32)));
    network.run(SECOND).unwrap();
    assert!(shown(&mut network).dialogs.is_empty());
    // The phone goes to another router.
    network.go(3, 3, true);
    network.run(SECOND * 2).unwrap();
    assert!(!shown(&mut network).is_registered);
    network.come(2, 3);
    network.run(SECOND * 15).unwrap();
    assert!(shown(&mut network).is_registered);
}

#[test]
fn messages_reach_users_at_other_routers() {
    let mut network = line(PhoneTimes::default());
    for user in 0..4 {
        network.come(user, user);
    }
    network.run(SECOND * 6).unwrap();
    network.message(0, 0, 3);
    network.message(2, 2, 1);
    // Nobody has this name.
    network.message(1, 1, 77);
    network.run(SECOND * 8).unwrap();
    let mut all = Vec::new();
    for number in 0..4 {
        let sent = network
            .graph
            .with_node(number, |node, now| node.with_phones(now, |phones| phones.take_messages()));
        all.extend(sent.unwrap().unwrap());
    }
    let statuses: Vec<(u32, u16)> = all.iter().map(|sent| (sent.from, sent.status)).collect();
    assert_eq!(statuses, [(0, 200), (1, 404), (2, 200)]);
}

/// A user of another home registers with the password that only the home knows, is called there, goes on, and is called at
/// the next router. A registration that was left behind is not called after its lifetime.
#[test]
fn a_user_moves_from_router_to_router() {
    let times = PhoneTimes { expires: SECOND * 60, ..PhoneTimes::default() };
    let mut network = line(times);
    network.come(0, 0);
    network.come(3, 1);
    network.run(SECOND * 8).unwrap();
    assert!(is_registered(&network, 3, 1));
    network.call(0, 0, 1);
    network.run(SECOND * 30).unwrap();
    assert!(network.take_calls()[0].1.ended.is_some());
    network.go(3, 1, false);
    network.come(2, 1);
    network.run(SECOND * 70).unwrap();
    assert!(is_registered(&network, 2, 1));
    network.call(0, 0, 1);
    network.run(SECOND * 30).unwrap();
    assert!(network.take_calls()[0].1.ended.is_some());
    for number in 0..4 {
        let strays = network
            .graph
            .with_node(number, |node, now| node.with_phones(now, |phones| phones.take_strays()));
        assert_eq!(strays.unwrap().unwrap(), []);
    }
    network.go(2, 1, true);
    network.run(SECOND * 5).unwrap();
    network.call(0, 0, 1);
    network.run(SECOND * 30).unwrap();
    assert_eq!(network.take_calls()[0].1.failed, Some(480));
}

/// Twelve routers of which each has several neighbours, the user with each number at home at the router with that number.
fn twelve() -> Network {
    let link = LinkModel::new(Duration::from_millis(5));
    let adjacency = Adjacency::new(&Topology::grid(3, 4), |_, _| link).unwrap();
    let mut network = Network::new(adjacency, Settings::new((0..12).collect(), 1)).unwrap();
    network.run(SECOND * 30).unwrap();
    network
}

/// Returns who has sent a message, and its body, which has come with a Date of the time at which it was sent.
fn read(octets: &[u8]) -> (String, String) {
    let message = message::parse(octets).unwrap();
    let from = String::from_utf8(message.from().unwrap().uri.to_vec()).unwrap();
    assert!(message.first(HeaderId::Date).unwrap().ends_with(b" GMT"));
    (from, String::from_utf8(message.body().to_vec()).unwrap())
}

/// A user who is away is left a message. The sender's router and two keepers end, and the user comes at a third one.
#[test]
fn a_message_waits_for_a_user_who_is_away() {
    let mut network = twelve();
    network.come(7, 7);
    network.run(SECOND * 8).unwrap();
    network.message(7, 7, 0);
    network.run(SECOND * 8).unwrap();
    let sent = network.take_messages();
    assert_eq!(sent.iter().map(|sent| sent.status).collect::<Vec<_>>(), [202]);
    let sender = network.graph.node(7).unwrap();
    let kept_by = sender.directory().dht().publications().kept_by(KIND_MAIL, b"u0@mesh").to_vec();
    assert!(kept_by.len() >= 3);
    let number = |id| network.graph.numbered().find(|(_, node)| node.directory().id() == id);
    let keepers = kept_by.iter().filter_map(|&id| number(id)).map(|(number, _)| number);
    let keepers: Vec<u32> = keepers.filter(|number| ![0, 7].contains(number)).take(2).collect();
    assert_eq!(keepers.len(), 2);
    for node in keepers.iter().copied().chain([7]) {
        network.graph.stop(node).unwrap();
    }
    network.run(SECOND * 60).unwrap();
    assert!(network.take_received().is_empty());
    let guest = (1..12).find(|node| *node != 7 && !keepers.contains(node)).unwrap();
    network.come(guest, 0);
    network.run(SECOND * 30).unwrap();
    let received = network.take_received();
    let at: Vec<(u32, u32)> = received.iter().map(|&(router, user, _)| (router, user)).collect();
    assert_eq!(at, [(guest, 0)]);
    assert_eq!(read(&received[0].2), ("sip:u7@mesh".into(), "hello".into()));
    // Its router is gone and withdraws nothing.
    network.run(SECOND * 1_800).unwrap();
    assert!(network.take_received().is_empty());
}

/// Guests leave messages too, several users find theirs at several routers, and nothing is left of them.
#[test]
fn messages_of_several_users_are_delivered_once_and_removed() {
    let mut network = twelve();
    // User 1 is a guest of router 8.
    for (router, user) in [(8, 1), (5, 5), (11, 11)] {
        network.come(router, user);
    }
    network.run(SECOND * 8).unwrap();
    for _ in 0..2 {
        for (router, from, to) in [(8, 1, 2), (5, 5, 2), (11, 11, 2), (11, 11, 3), (5, 5, 77)] {
            network.message(router, from, to);
        }
        network.run(SECOND * 10).unwrap();
    }
    let statuses: Vec<(u32, u16)> =
        network.take_messages().iter().map(|sent| (sent.to, sent.status)).collect();
    assert_eq!(statuses.iter().filter(|sent| **sent == (77, 404)).count(), 2);
    assert_eq!(statuses.iter().filter(|sent| sent.1 == 202).count(), 8);
    network.come(2, 2);
    network.come(10, 3);
    network.run(SECOND * 60).unwrap();
    let mut received: Vec<(u32, u32, String)> = Vec::new();
    for (router, user, octets) in network.take_received() {
        received.push((router, user, read(&octets).0));
    }
    received.sort();
    let from = |user: u32, sender: u32| {
        let router = if user == 2 { 2 } else { 10 };
        (router, user, format!("sip:u{sender}@mesh"))
    };
    // By the text of the sender.
    let expected = [(2, 11), (2, 11), (2, 1), (2, 1), (2, 5), (2, 5), (3, 11), (3, 11)];
    assert_eq!(received, expected.map(|(user, sender)| from(user, sender)));
    for node in network.graph.nodes() {
        assert_eq!(node.directory().mail(), 0);
    }
    network.run(SECOND * 700).unwrap();
    assert!(network.take_received().is_empty());
}

/// A message whose recipient has just come and gone is kept until the user is there.
#[test]
fn a_message_follows_a_user_who_comes_and_goes() {
    let mut network = twelve();
    network.come(7, 7);
    network.come(4, 0);
    network.run(SECOND * 8).unwrap();
    network.message(7, 7, 0);
    network.run(SECOND * 2).unwrap();
    network.go(4, 0, true);
    network.run(SECOND * 10).unwrap();
    network.message(7, 7, 0);
    network.run(SECOND * 8).unwrap();
    let statuses: Vec<u16> = network.take_messages().iter().map(|sent| sent.status).collect();
    assert_eq!(statuses, [200, 202]);
    assert_eq!(network.take_received().len(), 1);
    network.come(9, 0);
    network.run(SECOND * 15).unwrap();
    let received = network.take_received();
    assert_eq!(received.iter().map(|received| received.0).collect::<Vec<_>>(), [9]);
}
