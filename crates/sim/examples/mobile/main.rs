//! Routers of the mesh that move and share the air. Arguments: the number of routers, the seconds to simulate, the
//! highest speed in m/s, of which 0 stands still, and the seed (200, 120, 1 and 1). Some twelve hear each other, at
//! 6 Mbit/s with carrier sense. It prints what becomes of 200 packets between random connected pairs, as time passes, how
//! many routers do not know one of the two beside them on the ring, and what the routers send; at the end, what they have
//! sent by kind, and what became of the packets that did not arrive within 2 to 6 s: where the first loss was of those in a
//! session, and the last of those whose LOOKUP or answer was lost.

mod trace;

use ringway_mesh::Router;
use ringway_mesh::config::Config;
use ringway_mesh::crypto::StandIn;
use ringway_sansio::{Duration, SplitMix, Time};
use ringway_sim::graph::radio::Waypoints;
use ringway_sim::graph::{Identities, MeshNode, Oracle, Pair, Radio, RadioConfig, Trial};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write;
use std::sync::{Arc, Mutex};
use trace::{Places, Trace, Watched, verdict};

/// Range in metres, and the routers within it.
const RANGE: f64 = 100.0;
const DEGREE: f64 = 12.0;
/// Seconds between two measurements, and those in which the packets of one are sent.
const EACH: u64 = 10;
const OVER: Duration = Duration::from_secs(4);
/// Packets of a measurement.
const PACKETS: usize = 200;
/// The measurements that the mean leaves out.
const WARM: usize = 8;

/// The world and what was seen of it.
struct Field {
    air: Radio<Watched>,
    identities: Arc<Identities>,
    trace: Arc<Mutex<Trace>>,
    places: Places,
    why: BTreeMap<String, u32>,
}

impl Field {
    fn new(nodes: u32, speed: f64, seed: u64) -> Result<Self, Box<dyn Error>> {
        let side = RANGE * (std::f64::consts::PI * f64::from(nodes) / DEGREE).sqrt();
        let pause = Duration::from_secs(10);
        let motion = Waypoints { min_speed: speed / 2.0, max_speed: speed, pause };
        let radio = RadioConfig::new(side, RANGE);
        let radio = RadioConfig { motion: (speed > 0.0).then_some(motion), ..radio };
        let identities = Identities::draw(nodes, seed);
        let config = Config { extension_bits: 0, ..Config::default() };
        let trace = Arc::<Mutex<Trace>>::default();
        let mut air = Radio::<Watched>::radio(radio, &radio.positions(nodes, seed), seed)?;
        for number in 0..nodes {
            if let Some(node) = MeshNode::new(&config, &identities, number, 0, seed, Time::ZERO) {
                air.start(number, Watched::new(node, number, &trace))?;
            }
        }
        let places = Places { range: RANGE, at: Vec::new() };
        Ok(Field { air, identities, trace, places, why: BTreeMap::new() })
    }

    fn run_until(&mut self, end: Time) -> Result<(), Box<dyn Error>> {
        self.air.run_until(end)?;
        let all = (0..self.air.len()).filter_map(|node| self.air.position(node)).collect();
        self.places.at.push((end, all));
        Ok(())
    }

    /// Sends a packet for each pair, and returns what became of them at `end`.
    fn measure(
        &mut self,
        pairs: &[Pair],
        end: Time,
    ) -> Result<ringway_sim::graph::Outcome, Box<dyn Error>> {
        if let Ok(mut trace) = self.trace.lock() {
            *trace = Trace { sent: std::mem::take(&mut trace.sent), ..Trace::default() };
        }
        self.places.at.clear();
        let (begin, each) = (self.air.now(), OVER / pairs.len().max(1) as u32);
        let mut trial = Trial::new(&self.air);
        for (index, pair) in (0..).zip(pairs) {
            self.run_until(begin + each * index)?;
            trial.send(&mut self.air, *pair, 64)?;
        }
        while self.air.now() < end {
            self.run_until((self.air.now() + Duration::from_millis(20)).min(end))?;
        }
        let outcome = trial.outcome(&mut self.air)?;
        if let Ok(trace) = self.trace.lock() {
            let lost = (0..).zip(pairs).filter(|(number, _)| !trace.delivered.contains(number));
            for (number, pair) in lost {
                let ids = (self.identities.id(pair.from), self.identities.id(pair.to));
                let why = verdict(&trace, &self.places, number, *pair, ids);
                *self.why.entry(why).or_default() += 1;
            }
        }
        Ok(outcome)
    }

    /// Returns how many routers do not know the next on a side.
    fn wrong(&self) -> usize {
        let mut routers: Vec<_> = self.air.nodes().map(Watched::router).collect();
        routers.sort_unstable_by_key(|router| router.id());
        let knows = |pair: &[&Router<StandIn>]| {
            let known = |one: usize, other: usize| {
                pair[one].overlay().contacts().get(pair[other].id()).is_some()
            };
            usize::from(!known(0, 1)) + usize::from(!known(1, 0))
        };
        routers.windows(2).map(knows).sum()
    }

    /// Returns the mean of a count over all routers.
    fn mean(&self, count: impl Fn(&Router<StandIn>) -> usize) -> f64 {
        let sum: usize = self.air.nodes().map(|node| count(node.router())).sum();
        sum as f64 / f64::from(self.air.len())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let mut number = |otherwise: f64| words.next().map_or(Ok(otherwise), |word| word.parse());
    let (nodes, seconds, speed) = (number(200.0)? as u32, number(120.0)? as u64, number(1.0)?);
    let seed = number(1.0)? as u64;
    let mut field = Field::new(nodes, speed, seed)?;
    let mut random = SplitMix::new(seed);
    let mut out = std::io::stdout();
    writeln!(
        out,
        "   s  connected  delivered  hops  stretch  links  contacts  wrong  B/s each  airtime"
    )?;
    let (mut before, mut air_before) = (0, Duration::ZERO);
    let mut rows = Vec::new();
    for at in (EACH..=seconds).step_by(EACH as usize) {
        field.run_until(Time::from_secs(at - 2 - OVER.as_secs()))?;
        let pairs = Oracle::of_radio(&mut field.air).pairs(20, 10, 1, &mut random);
        let connected = pairs.len();
        if rows.len() == WARM {
            field.why.clear();
        }
        let outcome = field.measure(&pairs, Time::from_secs(at))?;
        rows.push((outcome.sent, outcome.delivered));
        let sent = field.air.totals().sent_bytes;
        let busy = field.air.airtime() - air_before;
        let links = field.mean(|router| router.links().up().len());
        let contacts = field.mean(|router| router.overlay().contacts().ids().len());
        writeln!(
            out,
            "{at:4}  {connected:4}/{PACKETS:<4}  {:9.3}  {:4.1}  {:7.2}  {links:5.1}  {contacts:8.1}  {:5}  {:8.0}  {:7.3}",
            outcome.delivery(),
            outcome.hops as f64 / f64::from(outcome.delivered.max(1)),
            outcome.stretch(),
            field.wrong(),
            (sent - before) as f64 / f64::from(nodes) / EACH as f64,
            busy.as_secs_f64() * DEGREE / f64::from(nodes) / EACH as f64,
        )?;
        (before, air_before) = (sent, field.air.airtime());
    }
    let warm = rows.get(WARM..).unwrap_or_default();
    let [sent, delivered] = [0, 1].map(|part| {
        let counts = warm.iter().map(|row| [row.0, row.1][part]);
        counts.sum::<u32>()
    });
    if let Ok(trace) = field.trace.lock() {
        let mut sent: Vec<_> = trace.sent.iter().collect();
        sent.sort_by_key(|(_, counts)| std::cmp::Reverse(counts[1]));
        let each = |count: u64| count as f64 / f64::from(nodes) / seconds as f64;
        for (name, [packets, octets]) in sent {
            writeln!(out, "{:7.2}/s  {:7.1} B/s  {name}", each(*packets), each(*octets))?;
        }
    }
    let share = |count: u32| 100.0 * f64::from(count) / f64::from(sent.max(1));
    writeln!(out, "{:5.1} %  arrived from {} s on", share(delivered), WARM as u64 * EACH)?;
    let mut why: Vec<_> = field.why.into_iter().collect();
    why.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (why, count) in why {
        writeln!(out, "{:5.1} %  {why}", share(count))?;
    }
    Ok(())
}
