//! What it costs a network to become one ring, by topology: `convergence [LARGEST]`, 1,000 nodes if not said otherwise.

#![allow(clippy::print_stdout)]

#[path = "../tests/net/mod.rs"]
mod net;

use net::{Net, topology};
use ringway_mesh::config::Limits;
use ringway_mesh::{Ring, Space, Xor};

fn row<S: Space>(name: &str, links: &topology::Links) {
    let nodes = links.len() as f64;
    let mut net = Net::<S>::new(links, Limits::default(), 1);
    net.start();
    let time = net.run();
    let (wrong, mut rounds) = (net.wrong(), 0);
    let cost = net.cost;
    while S::CLOSES && net.wrong() > 0 && rounds < 10 {
        net.refresh();
        rounds += 1;
    }
    let (mean, max) = net.contacts();
    let delivery = net.deliver(200);
    println!(
        "{name:12} {nodes:6} {:>5} {wrong:5} {rounds:6} {:8.0} {:6.0} {time:9} {mean:8.0} {max:3} {:7.2} {:8.2} {:4}/{}",
        format!("{:?}", S::default()),
        cost.messages as f64 / nodes,
        cost.hops as f64 / nodes,
        delivery.greedy,
        delivery.recorded,
        delivery.delivered,
        delivery.pairs,
    );
}

fn main() {
    let largest = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1_000);
    println!(
        "topology      nodes space wrong rounds messages   hops hop times contacts max  greedy recorded delivered"
    );
    let mut rows = vec![("line 50", topology::line(50)), ("grid 7x7", topology::grid(7))];
    for nodes in [250, 1_000, 3_000, 10_000] {
        if nodes <= largest {
            rows.push(("disk 12", topology::disk(nodes, 12.0, 5)));
            rows.push(("small world", topology::small_world(nodes, 6, 5)));
        }
    }
    for (name, links) in &rows {
        row::<Ring>(name, links);
        row::<Xor>(name, links);
    }
}
