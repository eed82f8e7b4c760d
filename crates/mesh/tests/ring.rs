//! Routers become one ring by what they tell each other when they connect, on any connected graph.

// What the networks cost is worth reading: `cargo test -p ringway-mesh --test ring -- --nocapture`.
#![allow(clippy::print_stdout)]

mod net;

use std::collections::BTreeSet;

use net::{Net, topology};
use proptest::prelude::*;
use ringway_mesh::config::Limits;
use ringway_mesh::{NodeId, Ring, Xor};

/// Rounds in which every router asks those beside it, after which a network must be right. The first messages may have
/// crossed, so that one did not learn of another; an upkeep round corrects that.
const ROUNDS: usize = 2;

/// Starts a network. Returns how many routers beside another were unknown when all messages had arrived, and the rounds
/// until none was.
fn converge(net: &mut Net) -> (usize, usize) {
    net.start();
    net.run();
    let wrong = net.wrong();
    let mut rounds = 0;
    while net.wrong() > 0 && rounds < 10 {
        net.refresh();
        rounds += 1;
    }
    (wrong, rounds)
}

/// What the prototype of the ring needed, a node.
struct Prototype {
    messages: f64,
    hops: f64,
    greedy: f64,
    recorded: f64,
}

/// Compares a network with the prototype, of which the costs were measured on other graphs of the same kind, and with two
/// candidates a class.
fn compare(name: &str, links: &[BTreeSet<usize>], prototype: Prototype) {
    let nodes = links.len() as f64;
    let mut net = Net::<Ring>::new(links, Limits { candidates: 2, ..Limits::default() }, 1);
    let (wrong, rounds) = converge(&mut net);
    let (messages, hops) = (net.cost.messages as f64 / nodes, net.cost.hops as f64 / nodes);
    let delivery = net.deliver(200);
    let (mean, max) = net.contacts();
    println!(
        "{name}: {nodes} nodes, {wrong} wrong, {rounds} rounds; a node {messages:.0} messages ({:.0}), {hops:.0} hops \
         ({:.0}), {mean:.0} contacts, at most {max}; stretch {:.2} ({:.2}), recorded {:.2} ({:.2})",
        prototype.messages,
        prototype.hops,
        delivery.greedy,
        prototype.greedy,
        delivery.recorded,
        prototype.recorded
    );
    assert!(rounds <= ROUNDS, "{name}: {rounds} rounds");
    assert_eq!(delivery.delivered, delivery.pairs, "{name}");
    assert!(
        messages < 1.5 * prototype.messages && hops < 1.5 * prototype.hops,
        "{name}: {messages} {hops}"
    );
    assert!(delivery.recorded < 1.2 * prototype.recorded, "{name}: {delivery:?}");
}

#[test]
fn networks_of_fifty_cost_what_the_prototype_did() {
    let line = Prototype { messages: 15.0, hops: 126.0, greedy: 1.37, recorded: 1.0 };
    compare("line", &topology::line(50), line);
    let grid = Prototype { messages: 21.0, hops: 76.0, greedy: 1.41, recorded: 1.13 };
    compare("grid", &topology::grid(7), grid);
}

#[test]
fn disks_cost_what_the_prototype_did() {
    let sparse = Prototype { messages: 29.0, hops: 161.0, greedy: 1.76, recorded: 1.25 };
    compare("disk of degree 6", &topology::disk(250, 7.0, 5), sparse);
    let dense = Prototype { messages: 51.0, hops: 386.0, greedy: 2.25, recorded: 1.74 };
    compare("disk of degree 12", &topology::disk(1_000, 12.0, 5), dense);
}

/// The physical ring 0-2-4-6-1-3-5-7: rules that only look at predecessor and successor let it wind twice.
#[test]
fn a_ring_that_winds_twice_becomes_one() {
    let order = [0, 2, 4, 6, 1, 3, 5, 7];
    let mut links = topology::line(8);
    links[0].insert(7);
    links[7].insert(0);
    let ids = order.map(|id: u64| NodeId::new(id << 60)).to_vec();
    for seed in 0..100 {
        let mut net = Net::<Ring>::with_ids(&links, ids.clone(), Limits::default(), seed);
        assert_eq!(converge(&mut net), (0, 0), "seed {seed}");
        assert!(net.cost.messages <= 100, "seed {seed}: {:?}", net.cost);
    }
}

#[test]
fn routers_that_die_leave_a_ring() {
    // No router of a grid is cut off by these.
    let links = topology::grid(16);
    let mut net = Net::<Ring>::new(&links, Limits::default(), 3);
    converge(&mut net);
    // One in fifty, inside.
    net.kill(&(20..links.len()).step_by(50).collect());
    net.run();
    let mut rounds = 0;
    while net.wrong() > 0 && rounds < 10 {
        net.refresh();
        rounds += 1;
    }
    assert!(rounds <= 3, "{rounds} rounds, {} wrong", net.wrong());
    // The contacts beside a router are right; those far away are out of date until they have been tested.
    let before = net.deliver(200);
    net.probe();
    let after = net.deliver(200);
    let (first, then) = (before.delivered, after.delivered);
    println!("one in fifty dead: {rounds} rounds, {first} of 200 delivered, then {then}");
    assert!(first >= 150 && then == 200, "{before:?} {after:?}");
}

#[test]
fn the_same_seed_gives_the_same_network() {
    let cost = |seed| {
        let mut net = Net::<Ring>::new(&topology::small_world(300, 6, 2), Limits::default(), seed);
        converge(&mut net);
        (net.cost, net.run())
    };
    assert_eq!(cost(4), cost(4));
    assert_ne!(cost(4), cost(5));
}

/// Its hints fill all classes of distance: before the first turn of upkeep everybody is reached.
#[test]
fn the_xor_metric_delivers_with_the_same_messages() {
    let mut net = Net::<Xor>::new(&topology::disk(400, 12.0, 5), Limits::default(), 1);
    net.start();
    net.run();
    let delivery = net.deliver(200);
    assert_eq!(delivery.delivered, 200, "{delivery:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_connected_graph_becomes_one_ring(nodes in 2usize..80, more in 0usize..80, seed: u64) {
        let links = topology::connected(nodes, more, seed);
        let mut net = Net::<Ring>::new(&links, Limits::default(), seed);
        let (wrong, rounds) = converge(&mut net);
        prop_assert!(rounds <= ROUNDS, "{} wrong, {} rounds", wrong, rounds);
        for from in 0..nodes.min(10) {
            for to in (0..nodes).filter(|&to| to != from) {
                prop_assert!(net.send(from, to).is_some(), "{} to {}", from, to);
            }
        }
        prop_assert!(net.contacts().1 <= Limits::default().contacts);
    }
}
