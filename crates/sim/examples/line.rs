//! The speed of forwarding: four nodes in a line at 1 Gbit/s, one UDP flow of 1000-byte packets at
//! 500 Mbit/s. The argument is the time to simulate, in milliseconds; it prints what happened.
//!
//! Counted under `valgrind --tool=callgrind`, the difference between two lengths divided by the
//! difference in packet-hops is the number of instructions a hop.

use ringway_link::{LinkConfig, Rate, Span, Streams};
use ringway_sansio::Time;
use ringway_sim::traffic::{Pattern, Sink, Source, SourceConfig};
use ringway_sim::{Bind, World};
use std::error::Error;
use std::io::Write;
use std::net::SocketAddr;

fn main() -> Result<(), Box<dyn Error>> {
    let millis: u64 = std::env::args().nth(1).unwrap_or_else(|| "1000".into()).parse()?;
    let mut world = World::new(Streams::new(1, 0));
    let nodes = ["a", "b", "c", "d"].map(|name| world.add_node(name));
    let [a, b, c, d] = nodes;
    let nodes = [a?, b?, c?, d?];
    let link = LinkConfig {
        rate: Rate(1_000_000_000),
        delay: Span::from_millis(1),
        ..LinkConfig::default()
    };
    let ends = ["10.0.0.1:9", "10.0.0.2:9"].map(str::parse::<SocketAddr>);
    let [source, destination] = ends;
    let (source, destination) = (source?, destination?);
    for pair in nodes.windows(2) {
        let (out, far) = world.connect(pair[0], pair[1], link.clone(), link.clone())?;
        if pair[0] == nodes[0] {
            world.add_address(out, source.ip())?;
        }
        if pair[1] == nodes[3] {
            world.add_address(far, destination.ip())?;
        }
    }
    let config = SourceConfig {
        pattern: Pattern::Constant(Rate(500_000_000)),
        // As in ns-3, unless it is told otherwise.
        checksum: false,
        ..SourceConfig::ns2(source, destination)
    };
    let stream = world.streams().stream("a/source");
    world.attach(nodes[0], Bind::udp(9), Source::new(config, stream))?;
    let sink = world.attach(nodes[3], Bind::udp(9), Sink::new())?;
    let begun = std::time::Instant::now();
    world.run_until(Time::from_millis(millis))?;
    let seconds = begun.elapsed().as_secs_f64();
    let received = world.endpoint::<Sink>(sink).map_or(0, |s| s.totals().packets);
    writeln!(
        std::io::stdout(),
        "{{\"packets\": {received}, \"hops\": {}, \"events\": {}, \"seconds\": {seconds:.3}}}",
        world.hops(),
        world.happened(),
    )?;
    Ok(())
}
