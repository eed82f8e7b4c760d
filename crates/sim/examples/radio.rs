//! The speed of a world of radio. Arguments: the number of nodes, the seconds to simulate, and the highest speed of
//! the nodes in m/s (10,000, 10 and 2). Every node sends a beacon of 100 bytes each second, which some twelve nodes
//! hear, at 6 Mbit/s with carrier sense. It prints what happened.

use ringway_sansio::{Duration, Random, SplitMix, Time};
use ringway_sim::graph::radio::Waypoints;
use ringway_sim::graph::{Flood, Origin, Radio, RadioConfig};
use std::error::Error;
use std::io::Write;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let mut number = |otherwise: u32| words.next().map_or(Ok(otherwise), |word| word.parse());
    let (nodes, seconds, speed) = (number(10_000)?, number(10)?, number(2)?);
    let range = 100.0;
    let side = range * (std::f64::consts::PI * f64::from(nodes) / 12.0).sqrt();
    let pause = Duration::from_secs(10);
    let motion = Waypoints { min_speed: 0.5, max_speed: speed.into(), pause };
    let motion = (speed > 0).then_some(motion);
    let config = RadioConfig { motion, ..RadioConfig::new(side, range) };
    let mut radio = Radio::radio(config, &config.positions(nodes, 1), 1)?;
    let mut random = SplitMix::new(1);
    let every = Duration::from_secs(1);
    for node in 0..nodes {
        let first = Time::from_nanos(random.next_u64() % every.as_nanos() as u64);
        let origin = Origin { first, every, packets: seconds };
        radio.start(node, Flood::new(node, 100, 1, Some(origin)))?;
    }
    let begun = Instant::now();
    radio.run_until(Time::from_secs(u64::from(seconds) + 1))?;
    let took = begun.elapsed().as_secs_f64();
    let totals = radio.totals();
    writeln!(
        std::io::stdout(),
        "{{\"nodes\": {nodes}, \"sent\": {}, \"received\": {}, \"lost\": {}, \"collisions\": {}, \"events\": {}, \
         \"trace\": \"{:016x}\", \"seconds\": {took:.3}, \"events/s\": {:.0}}}",
        totals.sent,
        totals.hops,
        totals.lost,
        radio.collisions(),
        totals.events,
        totals.trace,
        totals.events as f64 / took,
    )?;
    Ok(())
}
