//! The speed of forwarding: four nodes in a line at 1 Gbit/s, one UDP flow of 1000-byte packets at
//! 500 Mbit/s. Arguments: the time to simulate in milliseconds, and how many replications on how many
//! threads (1 and 1); it prints the totals of all replications.
//!
//! Counted under `valgrind --tool=callgrind`, the difference between two lengths divided by the
//! difference in packet-hops is the number of instructions a hop.

use ringway_link::{Generator, LinkConfig, Rate, Span, Streams};
use ringway_sansio::Time;
use ringway_sim::traffic::{Pattern, Sink, Source, SourceConfig};
use ringway_sim::{Bind, World, replicate};
use std::error::Error;
use std::io::Write;
use std::net::SocketAddr;

/// The counts of one replication.
struct Ran {
    packets: u64,
    hops: u64,
    events: u64,
}

fn run(streams: Streams, millis: u64) -> Result<Ran, Box<dyn Error + Send + Sync>> {
    let mut world = World::new(streams);
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
        // As the default of ns-3.
        checksum: false,
        ..SourceConfig::ns2(source, destination)
    };
    let stream = world.streams().stream("a/source");
    world.attach(nodes[0], Bind::udp(9), Source::new(config, stream))?;
    let sink = world.attach(nodes[3], Bind::udp(9), Sink::new())?;
    world.run_until(Time::from_millis(millis))?;
    let packets = world.endpoint::<Sink>(sink).map_or(0, |s| s.totals().packets);
    Ok(Ran { packets, hops: world.hops(), events: world.happened() })
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut words = std::env::args().skip(1);
    let mut number = |otherwise: &str| words.next().unwrap_or_else(|| otherwise.into()).parse();
    let (millis, replications, threads): (u64, u64, u64) =
        (number("1000")?, number("1")?, number("1")?);
    let begun = std::time::Instant::now();
    let one = |streams| run(streams, millis);
    let ran = replicate(1, Generator::default(), 0..replications, threads as usize, one)?;
    let seconds = begun.elapsed().as_secs_f64();
    let ran = ran.into_iter().collect::<Result<Vec<_>, _>>()?;
    let sum = |of: fn(&Ran) -> u64| ran.iter().map(of).sum::<u64>();
    writeln!(
        std::io::stdout(),
        "{{\"packets\": {}, \"hops\": {}, \"events\": {}, \"seconds\": {seconds:.3}}}",
        sum(|r| r.packets),
        sum(|r| r.hops),
        sum(|r| r.events),
    )?;
    Ok(())
}
