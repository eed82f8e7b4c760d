//! Routers of a mesh as one SIP server, in virtual time.

#![allow(clippy::unwrap_used)]

use ringway_lab::onesip::{Network, PhoneTimes, Settings};
use ringway_sansio::Duration;
use ringway_sim::graph::{Adjacency, LinkModel, Topology};

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
