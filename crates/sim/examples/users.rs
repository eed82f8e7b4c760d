//! Users of a mesh: each router publishes its own in the DHT, and they call each other. Arguments: the number of routers,
//! the users of each, the seconds to simulate after 60 s, the median session of a router in seconds (0: none goes), the number
//! of shards, and how many users a second are looked up and not called (1,000, 10, 300, 0, 1 and 0). Links of a small world have 1 ms; each user calls another once an hour in the
//! mean. A call is a look-up, an INVITE to the router that was found, and a 180 back, both as packets of hosts. It prints
//! what became of the calls to users whose router has run for a minute, the time from INVITE to 180, and what routers send. At
//! last one router lists all users.

use ringway_dht::wire::TYPES;
use ringway_dht::{Answer, Draft, Event, Kinds, LookUpId, ScanEnd, Sent};
use ringway_mesh::config::Config;
use ringway_sansio::{Duration, Random, SplitMix, Time};
use ringway_sim::graph::data::{DataNode, Delivery};
use ringway_sim::graph::faults::Churn;
use ringway_sim::graph::{
    Adjacency, Destination, DhtNode, FaultRates, Faults, Graph, GraphNode, Identities, LinkModel,
    MeshNode, Topology,
};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The kind of records of users.
const USER: u8 = 1;
/// Octets of an INVITE and of a 180.
const INVITE: u16 = 900;
const RINGING: u16 = 450;
/// The bit of a packet's number that marks a 180, and those for the number of a call; the others are the caller.
const IS_RINGING: u32 = 1 << 31;
const CALL_BITS: u32 = 12;
/// Time after which a call counts as failed: timer B of RFC 3261.
const TIMER_B: Duration = Duration::from_secs(32);
/// Time that a router has run when others rely on it.
const PROBATION: Duration = Duration::from_secs(60);

/// What became of a call.
#[derive(Clone, Copy)]
enum End {
    Ringing(Duration),
    Absent,
    Unknown,
    Silent,
    /// It was only a look-up, which has found the user.
    Found,
}

struct Call {
    begun: Time,
    look_up: Option<LookUpId>,
    /// Nothing but the look-up.
    only: bool,
    found: Option<Time>,
}

/// A router, its users, and the calls that they begin.
struct Exchange {
    node: DhtNode,
    number: u32,
    started: Time,
    calls: BTreeMap<u32, Call>,
    next: u32,
    ended: Vec<(End, Option<Duration>)>,
    /// What its part of the DHT had sent when the calls began.
    base: [Sent; TYPES],
    listed: usize,
    scanned: Option<(ScanEnd, Time)>,
}

fn name(router: u32, user: u32) -> Vec<u8> {
    format!("{router}.{user}").into_bytes()
}

impl Exchange {
    /// Begins a call to a user of another router.
    fn call(&mut self, now: Time, router: u32, user: u32, only: bool) {
        self.next = (self.next + 1) % (1 << CALL_BITS);
        let look_up = self.node.look_up(now, USER, &name(router, user));
        self.calls.insert(self.next, Call { begun: now, look_up, only, found: None });
        self.settle(now);
    }

    fn settle(&mut self, now: Time) {
        while let Some(event) = self.node.poll_dht() {
            match event {
                Event::Answer(id, answer) => self.answered(now, id, &answer),
                Event::Listed(_, records) => self.listed += records.len(),
                Event::Scanned(_, end) => self.scanned = Some((end, now)),
                _ => {}
            }
        }
        while let Some(delivery) = self.node.poll_delivery() {
            let Delivery { number, .. } = delivery;
            if number & IS_RINGING == 0 {
                self.node.send_data(now, number >> CALL_BITS, number | IS_RINGING, RINGING);
            } else if let Some(call) = self.calls.remove(&(number % (1 << CALL_BITS))) {
                let took = call.found.map(|found| found - call.begun);
                self.ended.push((End::Ringing(now - call.begun), took));
            }
        }
    }

    fn answered(&mut self, now: Time, id: LookUpId, answer: &Answer) {
        let Some((&number, call)) =
            self.calls.iter_mut().find(|(_, call)| call.look_up == Some(id))
        else {
            return;
        };
        let end = match answer {
            Answer::Found(_) if call.only => End::Found,
            Answer::Found(records) | Answer::Partial(records) => {
                let value = records[0].value().first_chunk().copied().unwrap_or_default();
                call.found = Some(now);
                let invite = (self.number << CALL_BITS) | number;
                self.node.send_data(now, u32::from_be_bytes(value), invite, INVITE);
                return;
            }
            Answer::Absent => End::Absent,
            Answer::Unknown => End::Unknown,
        };
        let took = now - call.begun;
        self.calls.remove(&number);
        self.ended.push((end, Some(took)));
    }

    /// Returns the calls that have ended, and ends those that have waited for too long.
    fn take_ended(&mut self, now: Time) -> Vec<(End, Option<Duration>)> {
        let before = self.calls.len();
        self.calls.retain(|_, call| now.since(call.begun) <= TIMER_B);
        let silent = before - self.calls.len();
        self.ended.extend(core::iter::repeat_n((End::Silent, None), silent));
        std::mem::take(&mut self.ended)
    }
}

impl GraphNode for Exchange {
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

struct World {
    graph: Graph<Exchange>,
    faults: Faults,
    identities: Arc<Identities>,
    users: u32,
    random: SplitMix,
}

impl World {
    fn new(
        (routers, users): (u32, u32),
        seconds: u64,
        session: u64,
        shards: u32,
    ) -> Result<World, Box<dyn Error>> {
        let mut random = SplitMix::new(1);
        let topology = Topology::small_world(routers, 12, 0.1, &mut random).largest_part();
        let link = LinkModel::new(Duration::from_millis(1));
        let adjacency = Adjacency::new(&topology, |_, _| link)?;
        let mut rates = FaultRates::new(Time::from_secs(60), Time::from_secs(60 + seconds));
        let (session, absence) = (Duration::from_secs(session), Duration::from_secs(60));
        rates.churn = (!session.is_zero()).then_some(Churn { session, absence });
        let faults = Faults::new(rates.draw(&adjacency, 1)?);
        let identities = Identities::draw(adjacency.nodes(), 1);
        let graph = Graph::idle_in_shards(adjacency, 1, shards as usize);
        let mut world = World { graph, faults, identities, users, random };
        for number in 0..world.graph.len() {
            let node = make(&world.identities, users, number, 0, Time::ZERO);
            world.graph.start(number, node)?;
        }
        Ok(world)
    }

    fn run_until(&mut self, end: Time) -> Result<(), Box<dyn Error>> {
        let (identities, users) = (&self.identities, self.users);
        self.faults.run_until(&mut self.graph, end, |number, life, now| {
            make(identities, users, number, life, now)
        })?;
        Ok(())
    }

    /// Begins a call between users of two routers that have run for a while, or only its look-up.
    fn begin_call(&mut self, only: bool) -> Result<(), Box<dyn Error>> {
        if self.users == 0 {
            return Ok(());
        }
        let now = self.graph.now();
        for _ in 0..100 {
            let count = u64::from(self.graph.len());
            let mut draw = |below: u64| (self.random.next_u64() % below) as u32;
            let (from, to, user) = (draw(count), draw(count), draw(self.users.into()));
            let runs = |node| {
                let exchange: Option<&Exchange> = self.graph.node(node);
                exchange.is_some_and(|exchange| now.since(exchange.started) >= PROBATION)
            };
            if from != to && runs(from) && runs(to) {
                self.graph.with_node(from, |exchange, now| exchange.call(now, to, user, only))?;
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Starts a router and publishes its users.
fn make(identities: &Arc<Identities>, users: u32, number: u32, life: u32, now: Time) -> Exchange {
    let config = Config { extension_bits: 0, ..Config::default() };
    let mesh = MeshNode::new(&config, identities, number, life, 1, now);
    let Some((mesh, identity)) = mesh.zip(identities.get(number)) else {
        unreachable!("every node has an identity")
    };
    let listable = Kinds::none().with(USER);
    let config =
        ringway_dht::Config { extension_bits: 0, listable, ..ringway_dht::Config::default() };
    let mut node = DhtNode::new(mesh, identity, config, now);
    for user in 0..users {
        let value = number.to_be_bytes();
        let draft = Draft { kind: USER, name: &name(number, user), value: &value, lifetime: 600 };
        let _ = node.publish(now, &draft);
    }
    let (calls, ended) = (BTreeMap::new(), Vec::new());
    Exchange {
        node,
        number,
        started: now,
        calls,
        next: 0,
        ended,
        base: [Sent::default(); TYPES],
        listed: 0,
        scanned: None,
    }
}

fn percentile(sorted: &[Duration], percent: f64) -> f64 {
    let at = (sorted.len() as f64 * percent / 100.0) as usize;
    let found = sorted.get(at.min(sorted.len().saturating_sub(1)));
    found.map_or(f64::NAN, |time| time.as_secs_f64() * 1_000.0)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let mut number = |otherwise: u32| words.next().map_or(Ok(otherwise), |word| word.parse());
    let (routers, users, seconds) = (number(1_000)?, number(10)?, u64::from(number(300)?));
    let (session, shards) = (u64::from(number(0)?), number(1)?);
    let only = u64::from(number(0)?);
    let wall = Instant::now();
    let mut world = World::new((routers, users), seconds, session, shards)?;
    let mut out = std::io::stdout();
    world.run_until(Time::from_secs(60))?;
    let routers = world.graph.len();
    let stored: usize = world.graph.nodes().map(|node| node.node.dht().table().len()).sum();
    let refused: u64 = world.graph.nodes().map(|node| node.node.refused()).sum();
    let users = u64::from(routers) * u64::from(users);
    writeln!(
        out,
        "{routers} routers, {users} users: {:.2} copies each after 60 s; {refused} messages refused; {:.0} s",
        stored as f64 / users as f64,
        wall.elapsed().as_secs_f64()
    )?;
    let before = world.graph.totals();
    let each = Duration::from_secs(3_600) / u32::try_from(users)?.max(1);
    for at in 0..routers {
        world.graph.with_node(at, |node, _| node.base = *node.node.dht().sent())?;
    }
    let (mut begun, mut next) = (0u64, world.graph.now());
    let (mut times, mut look_ups, mut failed) = (Vec::new(), Vec::new(), [0u32; 3]);
    let mut found = 0u64;
    let end = Time::from_secs(60 + seconds);
    for second in 61..=60 + seconds + 33 {
        while next < end && next < Time::from_secs(second) {
            world.run_until(next)?;
            world.begin_call(false)?;
            begun += 1;
            next += each;
        }
        if second <= 60 + seconds {
            for _ in 0..only {
                world.begin_call(true)?;
            }
        }
        world.run_until(Time::from_secs(second))?;
        for at in 0..routers {
            let ended = world.graph.with_node(at, |node, now| node.take_ended(now))?;
            for (end, took) in ended.into_iter().flatten() {
                look_ups.extend(took);
                match end {
                    End::Ringing(time) => times.push(time),
                    End::Absent => failed[0] += 1,
                    End::Unknown => failed[1] += 1,
                    End::Silent => failed[2] += 1,
                    End::Found => found += 1,
                }
            }
        }
    }
    times.sort();
    look_ups.sort();
    let totals = world.graph.totals();
    let octets = totals.sent_bytes - before.sent_bytes + (totals.sent - before.sent) * 62;
    let refused: u64 = world.graph.nodes().map(|node| node.node.refused()).sum();
    writeln!(
        out,
        "{begun} calls and {} look-ups: {} ringing, {found} found, {} absent, {} unknown, {} silent",
        only * seconds,
        times.len(),
        failed[0],
        failed[1],
        failed[2]
    )?;
    writeln!(
        out,
        "look-up: median {:.1} ms, 99 % {:.1} ms; INVITE to 180: median {:.1} ms, 99 % {:.1} ms",
        percentile(&look_ups, 50.0),
        percentile(&look_ups, 99.0),
        percentile(&times, 50.0),
        percentile(&times, 99.0)
    )?;
    writeln!(
        out,
        "{} octets a second sent by each router, all links; {refused} messages refused; {:.0} s",
        octets / (seconds + 33) / u64::from(routers),
        wall.elapsed().as_secs_f64()
    )?;
    traffic(&world, &mut out)?;
    list(&mut world, &mut out)
}

/// Prints what parts of the DHT have sent since the calls began, by the type of messages, without the headers of the mesh.
fn traffic(world: &World, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    const NAMES: [&str; TYPES] = [
        "COPIES", "PUT", "STORE", "STORED", "GET", "FOUND", "ABSENT", "DIGEST", "AGREE", "ENTRIES",
        "WANT", "LEAVE", "RENEW", "RENEWED", "LIST", "LISTED", "CHECK", "ASTRAY",
    ];
    let now = world.graph.now();
    let lived = |node: &Exchange| now.since(node.started.max(Time::from_secs(60))).as_secs_f64();
    let seconds: f64 = world.graph.nodes().map(lived).sum();
    for (at, name) in NAMES.into_iter().enumerate() {
        let (mut messages, mut octets) = (0, 0);
        for node in world.graph.nodes() {
            messages += node.node.dht().sent()[at].messages - node.base[at].messages;
            octets += node.node.dht().sent()[at].octets - node.base[at].octets;
        }
        if messages > 0 {
            let (messages, octets) = (messages as f64 / seconds, octets as f64 / seconds);
            write!(out, "{name} {messages:.2} ({octets:.0} octets), ")?;
        }
    }
    writeln!(out, "a second from each router, over all its hops together")?;
    Ok(())
}

/// Has one router list all users.
fn list(world: &mut World, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let begun = world.graph.now();
    let is_up = |number: &u32| world.graph.node(*number).is_some();
    let Some(by) = (0..world.graph.len()).find(is_up) else { return Ok(()) };
    let living = (0..world.graph.len()).filter(is_up).count();
    world.graph.with_node(by, |exchange, now| _ = exchange.node.scan(now, USER))?;
    for tenth in 1..=3_000 {
        world.run_until(begun + Duration::from_millis(100) * tenth)?;
        let Some(exchange) = world.graph.node(by) else { break };
        if let Some((end, at)) = exchange.scanned {
            let (listed, took) = (exchange.listed, (at - begun).as_secs_f64());
            writeln!(out, "list: {listed} users of {living} routers, {end:?}, {took:.1} s")?;
            break;
        }
    }
    Ok(())
}
