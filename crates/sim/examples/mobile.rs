//! Routers of the mesh that move and share the air. Arguments: the number of routers, the seconds to simulate, and the
//! highest speed in m/s; 0 stands still (200, 120 and 1). Some twelve hear each other, at 6 Mbit/s with carrier sense. It
//! prints what becomes of 200 packets between random connected pairs, as time passes, how many routers do not know one of
//! the two beside them on the ring, and what the routers send.

use ringway_mesh::Router;
use ringway_mesh::config::Config;
use ringway_mesh::crypto::StandIn;
use ringway_sansio::{Duration, SplitMix, Time};
use ringway_sim::graph::radio::Waypoints;
use ringway_sim::graph::{Identities, MeshNode, Oracle, Radio, RadioConfig, Trial};
use std::error::Error;
use std::io::Write;

/// Range in metres, and the routers within it.
const RANGE: f64 = 100.0;
const DEGREE: f64 = 12.0;
/// Seconds between two measurements, and those in which the packets of one are sent.
const EACH: u64 = 10;
const OVER: Duration = Duration::from_secs(4);

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let mut number = |otherwise: f64| words.next().map_or(Ok(otherwise), |word| word.parse());
    let (nodes, seconds, speed) = (number(200.0)? as u32, number(120.0)? as u64, number(1.0)?);
    let side = RANGE * (std::f64::consts::PI * f64::from(nodes) / DEGREE).sqrt();
    let pause = Duration::from_secs(10);
    let motion = Waypoints { min_speed: speed / 2.0, max_speed: speed, pause };
    let radio = RadioConfig::new(side, RANGE);
    let radio = RadioConfig { motion: (speed > 0.0).then_some(motion), ..radio };
    let identities = Identities::draw(nodes, 1);
    let config = Config { extension_bits: 0, ..Config::default() };
    let mut air = Radio::<MeshNode>::radio(radio, &radio.positions(nodes, 1), 1)?;
    let mut random = SplitMix::new(1);
    for number in 0..nodes {
        if let Some(node) = MeshNode::new(&config, &identities, number, 0, 1, Time::ZERO) {
            air.start(number, node)?;
        }
    }
    let mut out = std::io::stdout();
    writeln!(
        out,
        "   s  connected  delivered  hops  stretch  links  contacts  wrong  B/s each  airtime"
    )?;
    let (mut before, mut air_before) = (0, Duration::ZERO);
    for at in (EACH..=seconds).step_by(EACH as usize) {
        air.run_until(Time::from_secs(at - 2 - OVER.as_secs()))?;
        let oracle = Oracle::of_radio(&mut air);
        let all = 200;
        let pairs = oracle.pairs(20, 10, 1, &mut random);
        let connected = pairs.len();
        let mut trial = Trial::new(&air);
        trial.send_all(&mut air, &pairs, 64, OVER)?;
        air.run_until(Time::from_secs(at))?;
        let outcome = trial.outcome(&mut air)?;
        let sent = air.totals().sent_bytes;
        let busy = air.airtime() - air_before;
        let mean = |sum: usize| sum as f64 / f64::from(nodes);
        let links = mean(air.nodes().map(|node| node.router().links().up().len()).sum());
        let contacts =
            mean(air.nodes().map(|node| node.router().overlay().contacts().ids().len()).sum());
        let mut routers: Vec<_> = air.nodes().map(MeshNode::router).collect();
        routers.sort_unstable_by_key(|router| router.id());
        let knows = |pair: &[&Router<StandIn>]| {
            let known = |one: usize, other: usize| {
                pair[one].overlay().contacts().get(pair[other].id()).is_some()
            };
            usize::from(!known(0, 1)) + usize::from(!known(1, 0))
        };
        let wrong: usize = routers.windows(2).map(knows).sum();
        writeln!(
            out,
            "{at:4}  {connected:4}/{all:<4}  {:9.3}  {:4.1}  {:7.2}  {links:5.1}  {contacts:8.1}  {wrong:5}  {:8.0}  {:7.3}",
            outcome.delivery(),
            outcome.hops as f64 / f64::from(outcome.delivered.max(1)),
            outcome.stretch(),
            (sent - before) as f64 / f64::from(nodes) / EACH as f64,
            busy.as_secs_f64() * DEGREE / f64::from(nodes) / EACH as f64,
        )?;
        (before, air_before) = (sent, air.airtime());
    }
    Ok(())
}
