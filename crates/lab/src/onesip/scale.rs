//! How many users a mesh whose routers are one SIP server bears, beside one server in the middle, and beside Chord.
//!
//! A scenario with a section `[users]` is one of these. Each router of a small world has the same number of users, who register
//! and then call each other, while routers come and go. What is measured is what callers see.

use super::hostile::Attack;
use super::network::{Network, Settings as Making, Siege};
use super::node::SipRouter;
use crate::run::RunError;
use crate::scenario::{Document, Location, Problems};
use ringway_link::Span;
use ringway_sansio::{Duration, Random, SplitMix, Time};
use ringway_sim::graph::baseline::{Chord, OracleRouter, Paths, chord};
use ringway_sim::graph::faults::Churn;
use ringway_sim::graph::{
    Adjacency, DataNode, Destination, FaultRates, Faults, Graph, GraphNode, LinkModel, Oracle,
    Topology, Totals, mesh, node_random,
};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// Name of the section.
const SECTION: &str = "users";
/// Bounds of the number of routers, and the maximum number of users of one.
const ROUTERS: std::ops::RangeInclusive<u32> = 10..=20_000;
const MAX_USERS: u32 = 1_000;
const MAX_ONE_IN: u32 = 1_000;
/// Neighbours of a router of the small world, and the share of links that lead anywhere.
const DEGREE: u32 = 12;
const REWIRED: f64 = 0.1;
/// Time from when phones register, and the time in which all do.
const REGISTER_AT: Duration = Duration::from_secs(20);
const REGISTER_IN: Duration = Duration::from_secs(30);
/// Time of the mesh at rest, and the window at its end in which control is measured.
const REST: Duration = Duration::from_secs(120);
const WINDOW: Duration = Duration::from_secs(30);
/// Time that a router has run when others rely on it.
const PROBATION: Duration = Duration::from_secs(60);
/// Time from the end of routers until calls begin.
const HOMELESS: Duration = Duration::from_secs(90);
/// Time after which nothing of a call is expected any more.
const PATIENCE: Duration = Duration::from_secs(70);
/// Status of a request that nobody answered.
const NO_RESPONSE: u16 = 408;
/// Octets of an INVITE, a 180, and a look-up with its answer, of the baselines.
const INVITE: u16 = 900;
const RINGING: u16 = 450;
const LOOK_UP: u16 = 100;

/// Returns whether a file is a scenario of users.
pub fn is_users(document: &Document<'_>) -> bool {
    document.has(SECTION)
}

/// The section `[scenario]` as written in the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Header {
    title: String,
    text: String,
    seed: u64,
    replications: u64,
}

impl Default for Header {
    fn default() -> Self {
        Header { title: String::new(), text: String::new(), seed: 12_345, replications: 1 }
    }
}

/// The section `[users]` as written in the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Keys {
    routers: Vec<u32>,
    each: u32,
    calls: Span,
    every: Span,
    delay: Span,
    session: Span,
    absence: Span,
    baselines: bool,
    attacks: Vec<Attack>,
    hostile: u32,
    gone: u32,
}

impl Default for Keys {
    fn default() -> Self {
        Keys {
            routers: Vec::new(),
            each: 10,
            calls: Span::from_secs(300),
            every: Span::from_secs(3_600),
            delay: Span(1_000_000),
            session: Span(0),
            absence: Span::from_secs(60),
            baselines: true,
            attacks: Vec::new(),
            hostile: 10,
            gone: 0,
        }
    }
}

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Title.
    pub title: String,
    /// Seed.
    pub seed: u64,
    /// Number of replications.
    pub replications: u64,
    /// Numbers of routers.
    pub routers: Vec<u32>,
    /// Users of each router.
    pub each: u32,
    /// Time in which calls begin.
    pub calls: Duration,
    /// Mean time from a call of a user to the next.
    pub every: Duration,
    /// Delay of a link.
    pub delay: Duration,
    /// Median time that a router runs, if any goes, and for which it is away.
    pub churn: Option<Churn>,
    /// Whether the same is measured of one server, and of Chord.
    pub baselines: bool,
    /// What hostile routers do from when calls begin, or routers end, one attack after another.
    pub attacks: Vec<Attack>,
    /// One router in so many is hostile.
    pub one_in: u32,
    /// One router in so many ends for good before calls begin, its users go to others, and each call is of one of them; 0:
    /// none ends.
    pub gone: u32,
}

impl Settings {
    /// Reads a scenario.
    ///
    /// # Errors
    /// All mistakes in it.
    pub fn from_document(document: &Document<'_>) -> Result<Self, Problems> {
        let mut problems = Vec::new();
        document.only(&["scenario", SECTION], &mut problems);
        let header: Header = document.one("scenario", &mut problems);
        let keys: Keys = document.one(SECTION, &mut problems);
        let blame = |key: &str, what: String| {
            document.blame(Location { section: SECTION, index: None, key }, what)
        };
        if keys.routers.is_empty() || !keys.routers.iter().all(|number| ROUTERS.contains(number)) {
            let (min, max) = (ROUTERS.start(), ROUTERS.end());
            problems.push(blame("routers", format!("expected numbers from {min} to {max}")));
        }
        if !(1..=MAX_USERS).contains(&keys.each) {
            problems
                .push(blame("each", format!("expected 1 to {MAX_USERS} users, got {}", keys.each)));
        }
        if !(2..=MAX_ONE_IN).contains(&keys.hostile) {
            let what = format!("expected one router in 2 to {MAX_ONE_IN}, got {}", keys.hostile);
            problems.push(blame("hostile", what));
        }
        if keys.gone != 0 && !(2..=MAX_ONE_IN).contains(&keys.gone) {
            let what =
                format!("expected none or one router in 2 to {MAX_ONE_IN}, got {}", keys.gone);
            problems.push(blame("gone", what));
        }
        if keys.every.0 == 0 || keys.calls.0 == 0 {
            problems.push(blame("every", "expected calls, got none".into()));
        }
        if !problems.is_empty() {
            return Err(Problems::new(document.file(), problems));
        }
        let duration = |span: Span| Duration::from_nanos(span.0);
        let (session, absence) = (duration(keys.session), duration(keys.absence));
        Ok(Settings {
            title: header.title,
            seed: header.seed,
            replications: header.replications,
            routers: keys.routers,
            each: keys.each,
            calls: duration(keys.calls),
            every: duration(keys.every),
            delay: duration(keys.delay),
            churn: (!session.is_zero()).then_some(Churn { session, absence }),
            baselines: keys.baselines,
            attacks: keys.attacks,
            one_in: keys.hostile,
            gone: keys.gone,
        })
    }
}

impl Settings {
    /// Returns the time before calls begin.
    fn calm(&self) -> Duration {
        if self.gone > 0 { REST + HOMELESS } else { REST }
    }
}

/// What callers of one network have seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// What the network runs.
    pub system: &'static str,
    /// Routers.
    pub routers: u32,
    /// Users.
    pub users: u32,
    /// Users who were registered when calls began.
    pub registered: u32,
    /// Calls that began.
    pub calls: u64,
    /// Callees that rang.
    pub rang: u64,
    /// Calls for whose callee there is no router, as the caller's found out: 404 or 480.
    pub absent: u64,
    /// Calls that failed otherwise, by the status of the response: 408 without one.
    pub failures: BTreeMap<u16, u64>,
    /// Calls of which the caller's or the callee's router went before the callee rang.
    pub went: u64,
    /// Look-ups of users by routers of the mesh that have found their home during calls, and those that have not.
    pub look_ups: [u64; 2],
    /// Times from INVITE to 180, ascending.
    pub times: Vec<Duration>,
    /// Octets a second that each router sends over all its links: at rest, and during calls and churn.
    pub control: [f64; 2],
    /// Seconds of the real clock.
    pub wall: f64,
}

impl Figures {
    /// Returns the time from INVITE to 180 that a share of those who rang have not exceeded.
    pub fn percentile(&self, percent: f64) -> Option<Duration> {
        let at = (self.times.len() as f64 * percent / 100.0) as usize;
        self.times.get(at.min(self.times.len().saturating_sub(1))).copied()
    }

    /// Returns the number of calls that failed though the callee's router was there.
    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// Returns the share of calls that rang, of those whose routers stayed.
    pub fn reached(&self) -> Option<f64> {
        let calls = self.calls - self.went;
        (calls > 0).then(|| self.rang as f64 / calls as f64)
    }
}

/// Measures all networks. Results do not depend on the number of threads.
///
/// # Errors
/// As [`Graph::run_until`].
pub fn run(settings: &Settings, seed: u64) -> Result<Vec<Figures>, RunError> {
    let mut all = Vec::new();
    for &routers in &settings.routers {
        all.push(measure(settings, routers, None, seed)?);
        for &attack in &settings.attacks {
            all.push(measure(settings, routers, Some(attack), seed)?);
        }
        if settings.baselines {
            all.push(measure_server(settings, routers, seed)?);
            all.push(measure_chord(settings, routers, seed)?);
        }
    }
    Ok(all)
}

fn links(settings: &Settings, routers: u32, seed: u64) -> Result<Adjacency, RunError> {
    let mut random = SplitMix::new(seed);
    let topology = Topology::small_world(routers, DEGREE, REWIRED, &mut random).largest_part();
    let link = LinkModel::new(settings.delay);
    Ok(Adjacency::new(&topology, |_, _| link)?)
}

/// Returns how many octets a second each router has sent, with the headers of links.
fn rate(before: Totals, after: Totals, routers: u32, time: Duration) -> f64 {
    let octets =
        after.sent_bytes - before.sent_bytes + (after.sent - before.sent) * mesh::HEADERS as u64;
    octets as f64 / f64::from(routers) / time.as_secs_f64()
}

/// A mesh during its calls.
struct World {
    /// The only callee, if one user is to be cut off.
    victim: Option<u32>,
    /// Users whose home has gone.
    homeless: Vec<u32>,
    network: Network,
    faults: Faults,
    random: SplitMix,
    figures: Figures,
}

impl World {
    fn new(
        settings: &Settings,
        routers: u32,
        attack: Option<Attack>,
        seed: u64,
    ) -> Result<World, RunError> {
        let adjacency = links(settings, routers, seed)?;
        let from = Time::ZERO + settings.calm();
        let mut rates = FaultRates::new(from, from + settings.calls);
        rates.churn = settings.churn;
        let faults = Faults::new(rates.draw(&adjacency, seed)?);
        let routers = adjacency.nodes();
        let users = routers * settings.each;
        let shards = std::thread::available_parallelism().map_or(1, usize::from);
        let homes = (0..users).map(|user| user % routers).collect();
        let siege = attack.map(|attack| {
            let from = Time::ZERO + REST;
            Siege { attack, one_in: settings.one_in, from }
        });
        let making = Making { shards, siege, ..Making::new(homes, seed) };
        let network = Network::new(adjacency, making)?;
        let victim = (attack == Some(Attack::Eclipse)).then_some(0);
        let system = match attack {
            None => "mesh",
            Some(Attack::Drop) => "mesh, drop",
            Some(Attack::Forge) => "mesh, forge",
            Some(Attack::Replay) => "mesh, replay",
            Some(Attack::Hoard) => "mesh, hoard",
            Some(Attack::Eclipse) => "mesh, eclipse",
            Some(Attack::Betray) => "mesh, betray",
        };
        let figures = Figures { system, routers, users, ..Figures::default() };
        let (homeless, random) = (Vec::new(), SplitMix::new(seed ^ 0xca11));
        Ok(World { victim, homeless, network, faults, random, figures })
    }

    fn advance(&mut self, end: Time) -> Result<(), RunError> {
        Ok(self.network.run_until(&mut self.faults, end)?)
    }

    /// Has all phones register, spread over a while.
    fn register(&mut self) {
        let spread = REGISTER_IN.as_millis() as u64;
        for user in 0..self.figures.users {
            let after = Duration::from_millis(self.random.next_u64() % spread);
            let home = self.network.roster().home(user).unwrap_or_default();
            self.network.come_after(home, user, after);
        }
    }

    /// Ends one honest router in so many for good. Its users go to the next honest one, where each registers.
    fn end_routers(&mut self, one_in: u32) -> Result<(), RunError> {
        let routers = self.figures.routers;
        let is_gone = |router: u32| router % one_in == one_in - 1;
        for router in (0..routers).filter(|&router| is_gone(router)) {
            if self.network.is_hostile(router) {
                continue;
            }
            self.network.graph.stop(router)?;
            let others = (1..routers).map(|ahead| (router + ahead) % routers);
            let mut others =
                others.filter(|&other| !is_gone(other) && !self.network.is_hostile(other));
            let Some(other) = others.next() else { continue };
            let users: Vec<u32> = self.network.roster().of(router).collect();
            for user in users {
                self.network.go(router, user, false);
                let after = self.random.next_u64() % REGISTER_IN.as_millis() as u64;
                self.network.come_after(other, user, Duration::from_millis(after));
                self.homeless.push(user);
            }
        }
        Ok(())
    }

    /// Returns the router of a user who has been registered there for a while.
    fn location(&self, user: u32) -> Option<u32> {
        let now = self.network.graph.now();
        let location = self.network.location(user)?;
        let node = self.network.graph.node(location)?;
        if self.network.is_hostile(location) {
            return None;
        }
        let has_run = now.since(node.started()) >= PROBATION;
        (has_run && node.phones().registered(now, user).is_some()).then_some(location)
    }

    /// Begins a call between users of two routers that have run for a while.
    fn call(&mut self) {
        for _ in 0..100 {
            let users = u64::from(self.figures.users);
            let [from, to] = [0, 0].map(|_: u32| (self.random.next_u64() % users) as u32);
            let (mut from, mut to) = (from, self.victim.unwrap_or(to));
            if !self.homeless.is_empty() {
                let draw = self.random.next_u64() as usize;
                let one = self.homeless[draw / 2 % self.homeless.len()];
                *[&mut from, &mut to][draw % 2] = one;
            }
            if let (Some(here), Some(there)) = (self.location(from), self.location(to))
                && here != there
            {
                self.network.call(here, from, to);
                self.figures.calls += 1;
                return;
            }
        }
    }

    /// Counts the look-ups and the calls that have ended.
    fn count(&mut self) {
        let look_ups = self.network.take_look_ups();
        self.figures.look_ups[0] += look_ups[0];
        self.figures.look_ups[1] += look_ups[1];
        for (_, call) in self.network.take_calls() {
            if let Some(rang) = call.ringing.or(call.answered) {
                self.figures.rang += 1;
                self.figures.times.push(rang - call.begun);
                continue;
            }
            let location = self.network.location(call.callee);
            let node = location.and_then(|location| self.network.graph.node(location));
            let stays = |node: &SipRouter| node.started() < call.begun;
            match call.failed {
                _ if !node.is_some_and(stays) => {}
                Some(404 | 480) => self.figures.absent += 1,
                status => {
                    *self.figures.failures.entry(status.unwrap_or(NO_RESPONSE)).or_default() += 1
                }
            }
        }
    }
}

/// Measures the mesh.
fn measure(
    settings: &Settings,
    routers: u32,
    attack: Option<Attack>,
    seed: u64,
) -> Result<Figures, RunError> {
    let begun = Instant::now();
    let mut world = World::new(settings, routers, attack, seed)?;
    world.advance(Time::ZERO + REGISTER_AT)?;
    world.register();
    world.advance(Time::ZERO + (REST - WINDOW))?;
    let before = world.network.graph.totals();
    world.advance(Time::ZERO + REST)?;
    let after = world.network.graph.totals();
    world.figures.control[0] = rate(before, after, world.figures.routers, WINDOW);
    if settings.gone > 0 {
        world.end_routers(settings.gone)?;
    }
    let start = Time::ZERO + settings.calm();
    world.advance(start)?;
    let after = world.network.graph.totals();
    let users = 0..world.figures.users;
    world.figures.registered = users.filter(|&user| world.location(user).is_some()).count() as u32;
    world.network.take_look_ups();
    let each = settings.every / world.figures.users.max(1);
    let (end, mut next) = (start + settings.calls, start);
    let last = (end + PATIENCE).as_secs();
    for second in start.as_secs() + 1..=last {
        while next < end && next < Time::from_secs(second) {
            world.advance(next)?;
            world.call();
            next += each;
        }
        world.advance(Time::from_secs(second))?;
        world.count();
        if Time::from_secs(second) == end {
            let now = world.network.graph.totals();
            world.figures.control[1] = rate(after, now, world.figures.routers, settings.calls);
        }
    }
    let mut figures = world.figures;
    figures.times.sort_unstable();
    figures.went = figures.calls - figures.rang - figures.absent - figures.failed();
    figures.wall = begun.elapsed().as_secs_f64();
    Ok(figures)
}

/// The routers that a call of a baseline concerns.
#[derive(Clone, Copy, Debug)]
struct Parties {
    caller: u32,
    callee: u32,
    /// The server, or the node that knows where the callee is.
    middle: u32,
}

/// How a baseline carries packets.
trait Carrier: DataNode {
    /// The name of the baseline.
    const NAME: &'static str;
    /// The way of a call: from whom to whom each packet goes.
    const IS_SERVER: bool;

    /// Sends a packet by the shortest way.
    fn send_direct(&mut self, now: Time, to: u32, number: u32, len: u16);
}

impl Carrier for OracleRouter {
    const NAME: &'static str = "one server";
    const IS_SERVER: bool = true;

    fn send_direct(&mut self, now: Time, to: u32, number: u32, len: u16) {
        self.send_data(now, to, number, len);
    }
}

impl Carrier for Chord {
    const NAME: &'static str = "Chord";
    const IS_SERVER: bool = false;

    fn send_direct(&mut self, _now: Time, to: u32, number: u32, len: u16) {
        Chord::send_direct(self, to, number, len);
    }
}

/// A node of a baseline that plays its part in calls. The number of a packet is four times that of its call, and a stage.
struct Player<N> {
    node: N,
    calls: Arc<Vec<Parties>>,
    begun: BTreeMap<u32, Time>,
    rang: Vec<Duration>,
}

impl<N: Carrier> Player<N> {
    fn begin(&mut self, now: Time, call: u32) {
        self.begun.insert(call, now);
        let Some(parties) = self.calls.get(call as usize) else { return };
        let len = if N::IS_SERVER { INVITE } else { LOOK_UP };
        self.node.send_data(now, parties.middle, call * 4, len);
        self.settle(now);
    }

    fn settle(&mut self, now: Time) {
        while let Some(delivery) = self.node.poll_delivery() {
            let (call, stage) = (delivery.number / 4, delivery.number % 4);
            let Some(&Parties { caller, callee, middle }) = self.calls.get(call as usize) else {
                continue;
            };
            let (to, len) = match (N::IS_SERVER, stage) {
                (true, 0) => (callee, INVITE),
                (true, 1) => (middle, RINGING),
                (true, 2) => (caller, RINGING),
                (false, 0) => (caller, LOOK_UP),
                (false, 1) => (callee, INVITE),
                (false, 2) => (caller, RINGING),
                _ => {
                    self.rang.extend(self.begun.remove(&call).map(|begun| now - begun));
                    continue;
                }
            };
            self.node.send_direct(now, to, call * 4 + stage + 1, len);
        }
    }
}

impl<N: Carrier> GraphNode for Player<N> {
    fn handle_packet(&mut self, now: Time, from: u16, bytes: &mut [u8]) {
        self.node.handle_packet(now, from, bytes);
        self.settle(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.node.handle_timeout(now);
        self.settle(now);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.node.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Time, bytes: &mut Vec<u8>) -> Option<Destination> {
        self.node.poll_transmit(now, bytes)
    }

    fn heap_bytes(&self) -> usize {
        self.node.heap_bytes()
    }
}

/// Draws the calls of a baseline.
fn draw_calls(settings: &Settings, routers: u32, server: Option<u32>, seed: u64) -> Vec<Parties> {
    let users = f64::from(routers * settings.each);
    let count = settings.calls.as_secs_f64() / settings.every.as_secs_f64() * users;
    let mut random = SplitMix::new(seed ^ 0xca11);
    let mut draw = || (random.next_u64() % u64::from(routers)) as u32;
    // Nobody sends to itself.
    let call = |_| loop {
        let (caller, callee, any) = (draw(), draw(), draw());
        let middle = server.unwrap_or(any);
        if caller != callee && middle != caller && middle != callee {
            break Parties { caller, callee, middle };
        }
    };
    (0..count as u64).map(call).collect()
}

/// Has the calls of a baseline begin, from now on, and counts them.
fn play<N: Carrier>(
    settings: &Settings,
    graph: &mut Graph<Player<N>>,
    begun: Instant,
) -> Result<Figures, RunError> {
    let routers = graph.len();
    let before = graph.totals();
    graph.run_until(graph.now() + WINDOW)?;
    let after = graph.totals();
    let (start, users) = (graph.now(), routers * settings.each);
    let calls = graph.nodes().next().map_or(Vec::new(), |node| node.calls.to_vec());
    for (number, call) in (0..).zip(&calls) {
        graph.run_until(start + settings.every / users.max(1) * number)?;
        graph.with_node(call.caller, |node, now| node.begin(now, number))?;
    }
    graph.run_until(start + settings.calls)?;
    let during = rate(after, graph.totals(), routers, settings.calls);
    graph.run_until(start + settings.calls + PATIENCE)?;
    let mut times: Vec<Duration> = graph.nodes().flat_map(|node| node.rang.clone()).collect();
    times.sort_unstable();
    let (calls, rang) = (calls.len() as u64, times.len() as u64);
    Ok(Figures {
        system: N::NAME,
        routers,
        users,
        registered: users,
        calls,
        rang,
        failures: BTreeMap::from([(NO_RESPONSE, calls - rang)]),
        times,
        control: [rate(before, after, routers, WINDOW), during],
        wall: begun.elapsed().as_secs_f64(),
        ..Figures::default()
    })
}

/// Measures one server in the middle of a network whose shortest paths are known for nothing.
fn measure_server(settings: &Settings, routers: u32, seed: u64) -> Result<Figures, RunError> {
    let begun = Instant::now();
    let adjacency = links(settings, routers, seed)?;
    let paths = Paths::new(Oracle::whole(&adjacency)).shared();
    let calls = Arc::new(draw_calls(settings, adjacency.nodes(), Some(0), seed));
    let mut graph = Graph::new(adjacency, seed, |number| Player {
        node: OracleRouter::new(number, paths.clone()),
        calls: calls.clone(),
        begun: BTreeMap::new(),
        rang: Vec::new(),
    });
    play(settings, &mut graph, begun)
}

/// Measures Chord, whose ring has settled, above a network whose shortest paths are known for nothing.
fn measure_chord(settings: &Settings, routers: u32, seed: u64) -> Result<Figures, RunError> {
    let begun = Instant::now();
    let adjacency = links(settings, routers, seed)?;
    let routers = adjacency.nodes();
    let paths = Paths::new(Oracle::whole(&adjacency)).shared();
    let calls = Arc::new(draw_calls(settings, routers, None, seed));
    let ring = chord::ring(routers);
    let mut graph = Graph::<Player<Chord>>::idle(adjacency, seed);
    for number in 0..routers {
        let random = node_random(seed, number, 0);
        let node = Chord::settled(number, graph.now(), &ring, paths.clone(), random);
        let (begun, rang) = (BTreeMap::new(), Vec::new());
        if let Some(node) = node {
            graph.start(number, Player { node, calls: calls.clone(), begun, rang })?;
        }
    }
    play(settings, &mut graph, begun)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Result<Settings, Problems> {
        let text = format!("[scenario]\ntitle = \"t\"\n[users]\n{text}\n");
        Settings::from_document(&Document::parse("t.toml", &text)?)
    }

    #[test]
    fn mistakes_are_reported_at_their_keys() {
        for (text, expected) in [
            ("", "expected numbers from 10 to 20000"),
            ("routers = [5]", "expected numbers from 10 to 20000"),
            ("routers = [20]\neach = 0", "expected 1 to 1000 users, got 0"),
            ("routers = [20]\nevery = \"0 s\"", "expected calls, got none"),
            ("routers = [20]\ngone = 1", "expected none or one router in 2 to"),
            ("rooters = [20]", "did you mean `routers`"),
        ] {
            let error = settings(text).unwrap_err().lines().join("\n");
            assert!(error.contains(expected), "{text}\n{error}");
        }
    }

    /// Nine in ten routers that do not lie still serve their users.
    #[test]
    fn honest_users_reach_each_other_among_hostile_routers() {
        let settings = settings(
            "routers = [40]\neach = 2\ncalls = \"60 s\"\nevery = \"100 s\"\nbaselines = false\n\
             attacks = [\"drop\", \"replay\", \"hoard\"]",
        );
        let all = run(&settings.unwrap(), 1).unwrap();
        assert_eq!(all.len(), 4);
        for figures in all {
            assert!(figures.calls >= 40 && figures.reached() > Some(0.8), "{figures:?}");
        }
    }

    /// Users whose home has gone register elsewhere, though deputies lie, and are reached there.
    #[test]
    fn users_of_homes_that_are_gone_are_reached_among_deputies_that_lie() {
        let settings = settings(
            "routers = [40]\neach = 2\ncalls = \"60 s\"\nevery = \"100 s\"\nbaselines = false\n\
             gone = 10\nattacks = [\"betray\"]",
        );
        let all = run(&settings.unwrap(), 1).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].registered, 80);
        // Four routers are hostile, whose users are not counted.
        assert!(all[1].registered > 66, "{all:?}");
        for figures in all {
            assert!(figures.calls >= 40 && figures.reached() > Some(0.9), "{figures:?}");
        }
    }

    /// All who are registered are reached, in the mesh and by the others; and equal seeds give equal figures.
    #[test]
    fn users_of_a_small_mesh_reach_each_other() {
        let settings =
            settings("routers = [20]\neach = 2\ncalls = \"60 s\"\nevery = \"100 s\"").unwrap();
        let mut all = run(&settings, 1).unwrap();
        assert_eq!(all.len(), 3);
        for figures in &all {
            assert_eq!((figures.routers, figures.users, figures.registered), (20, 40, 40));
            assert_eq!(figures.reached(), Some(1.0), "{figures:?}");
            let [median, longest] = [50.0, 99.0].map(|percent| figures.percentile(percent));
            assert!(median > Some(Duration::ZERO) && longest < Some(Duration::from_secs(1)));
        }
        assert!(all[0].calls >= 20 && all[0].control[0] > all[1].control[0]);
        let mut again = run(&settings, 1).unwrap();
        all.iter_mut().chain(&mut again).for_each(|figures| figures.wall = 0.0);
        assert_eq!(all, again);
    }
}
