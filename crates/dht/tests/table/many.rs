//! A router with the records of thousands of users.

use super::name;
use super::net::Net;
use ringway_dht::Event;
use ringway_mesh::NodeId;
use ringway_mesh::config::APPLICATION_BURST;

/// Returns how many records of a router are stored.
fn stored(net: &Net, by: NodeId) -> usize {
    let events = net.nodes[&by].events.iter();
    events.filter(|event| matches!(event, Event::Stored(..))).count()
}

/// Returns how many milliseconds it takes until `count` records are stored.
fn await_all(net: &mut Net, by: NodeId, count: usize, max: u64) -> u64 {
    let begun = net.now;
    while stored(net, by) < count {
        assert!((net.now - begun).as_millis() < max.into(), "{} stored", stored(net, by));
        net.run(100);
    }
    (net.now - begun).as_millis() as u64
}

#[test]
fn two_thousand_records_are_written_without_using_up_the_budget() {
    let mut net = Net::new(60, 21);
    net.set_hops(2);
    let by = net.some();
    for number in 0..2_000 {
        net.publish(by, &name(number), &[7; 200], 600);
    }
    net.run(60_000);
    // While thousands wait, one that has just come does not, nor does a change of one that was stored.
    let before = stored(&net, by);
    assert!(before > 100, "{before}");
    net.publish(by, b"late", b"here", 600);
    net.run(1_500);
    assert!(net.is_stored(by, b"late"));
    let changed = net.nodes[&by].events.iter().find_map(|event| match event {
        Event::Stored((1, name), _) => Some(name.clone()),
        _ => None,
    });
    net.publish(by, &changed.unwrap(), b"elsewhere", 600);
    await_all(&mut net, by, 2_002, 300_000);
    assert_eq!(net.refused, 0);
    let least = net.nodes.values().map(|node| node.least).min().unwrap();
    assert!(least > u64::from(APPLICATION_BURST) / 2, "{least}");
    // At rest.
    (net.octets, net.messages) = (0, 0);
    net.run(400_000);
    let each = net.octets / 60 / 400;
    assert!(each < 40, "{each} octets a second from each of 60 routers");
    assert!(net.messages < 60 * 400 / 4, "{}", net.messages);
    assert_eq!(net.refused, 0);
}

#[test]
fn records_at_rest_are_not_touched() {
    let mut net = Net::new(1, 22);
    let by = net.some();
    for number in 0..10_000 {
        net.publish(by, &name(number), b"here", 600);
    }
    await_all(&mut net, by, 10_000, 60_000);
    let visits = |net: &Net| net.nodes[&by].dht.publications().visits();
    let written = visits(&net);
    assert!(written <= 4 * 10_000, "{written}");
    net.run(100_000);
    // One is renewed in a minute, to see whether its keeper is there.
    let sampled = visits(&net) - written;
    assert!(sampled <= 10, "{sampled}");
    // Within 200 s each is written again once.
    net.run(100_000);
    let again = visits(&net) - written - sampled;
    assert!((10_000..=5 * 10_000).contains(&again), "{again}");
}
