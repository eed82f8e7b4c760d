//! Section 4.5.1, the plan that was abandoned, with SIP: REGISTER and INVITE of phones at four routers in a line by radio, whose
//! routers are one server ([`crate::onesip`]), and over AODV with one central server ([`super::central`]).
//!
//! Where the plan registers at a router, the mesh has a user there whose records have keys that the router is responsible for,
//! and AODV has the server. Each test is a world of its own, so that none finds routes or sessions of another.

use std::net::SocketAddrV6;
use std::sync::Arc;

use super::central::CentralRouter;
use super::pictures::FOUR;
use super::plan::{self, A0, D0, MESH_HEAD, RADIO_HEAD, name_of, pairs};
use super::{Study, StudyResult};
use crate::mesh::identity_at;
use crate::onesip::users::{DOMAIN, Roster, name};
use crate::onesip::{Makings, PhoneTimes, Phones, SipRouter};
use crate::papers::{Claim, MeasuredFigure, MeasuredRow, MeasuredTable};
use crate::run::RunError;
use rayon::prelude::*;
use ringway_directory::config::{KIND_ACCOUNT, KIND_LOCATION};
use ringway_figures::statistics::{Estimate, mean};
use ringway_mesh::{Identity, NodeId};
use ringway_sansio::{Duration, Time};
use ringway_sim::graph::{Destination, GraphNode, Identities, Radio};

/// When phones come that are called, when background traffic begins, and when a test does.
const COME: Time = Time::from_secs(20);
const LOAD: Time = Time::from_secs(26);
const BEGIN: Time = Time::from_secs(30);
/// From the first request to the second, within which routes of AODV do not expire, and from that to the end of the world.
const AGAIN: Duration = Duration::from_millis(2_500);
const REST: Duration = Duration::from_secs(8);
/// Phones that answer soon and hang up soon, so that the first call has ended when the second begins.
const PHONES: PhoneTimes = PhoneTimes {
    expires: Duration::from_secs(3_600),
    ring: Duration::from_millis(300),
    talk: Duration::from_millis(300),
};
/// Port of background traffic, which nobody reads: discard.
const DISCARD: u16 = 9;
/// No router.
const NOWHERE: u32 = u32::MAX;

/// Router and phones of one of both kinds.
trait Station: GraphNode {
    fn phones<T>(&mut self, now: Time, act: impl FnOnce(&mut Phones) -> T) -> T;
    fn load(&mut self, now: Time, to: u32, octets: usize);
}

struct OneSip {
    router: Box<SipRouter>,
    addresses: Arc<[SocketAddrV6]>,
}

impl Station for OneSip {
    fn phones<T>(&mut self, now: Time, act: impl FnOnce(&mut Phones) -> T) -> T {
        self.router.with_phones(now, act)
    }
    fn load(&mut self, now: Time, to: u32, octets: usize) {
        if let Some(&to) = self.addresses.get(to as usize) {
            self.router.send_datagram(now, DISCARD, to, &vec![0; octets]);
        }
    }
}

impl Station for CentralRouter {
    fn phones<T>(&mut self, now: Time, act: impl FnOnce(&mut Phones) -> T) -> T {
        self.with_phones(now, act)
    }
    fn load(&mut self, now: Time, to: u32, octets: usize) {
        self.send_load(now, to, octets);
    }
}

impl GraphNode for OneSip {
    fn handle_packet(&mut self, now: Time, from: u16, bytes: &mut [u8]) {
        self.router.handle_packet(now, from, bytes);
    }
    fn handle_timeout(&mut self, now: Time) {
        self.router.handle_timeout(now);
    }
    fn poll_timeout(&self) -> Option<Time> {
        self.router.poll_timeout()
    }
    fn poll_transmit(&mut self, now: Time, bytes: &mut Vec<u8>) -> Option<Destination> {
        self.router.poll_transmit(now, bytes)
    }
    fn heap_bytes(&self) -> usize {
        self.router.heap_bytes()
    }
}

/// A node whose packets have headers below.
struct Framed<N> {
    head: usize,
    node: N,
}

impl<N: GraphNode> GraphNode for Framed<N> {
    fn handle_packet(&mut self, now: Time, from: u16, bytes: &mut [u8]) {
        if let Some(packet) = bytes.get_mut(self.head..) {
            self.node.handle_packet(now, from, packet);
        }
    }
    fn handle_timeout(&mut self, now: Time) {
        self.node.handle_timeout(now);
    }
    fn poll_timeout(&self) -> Option<Time> {
        self.node.poll_timeout()
    }
    fn poll_transmit(&mut self, now: Time, bytes: &mut Vec<u8>) -> Option<Destination> {
        let mut packet = Vec::new();
        let to = self.node.poll_transmit(now, &mut packet)?;
        bytes.resize(self.head, 0);
        bytes.extend_from_slice(&packet);
        Some(to)
    }
    fn heap_bytes(&self) -> usize {
        self.node.heap_bytes()
    }
}

/// What a test sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A REGISTER of a phone at a router.
    Register { at: u32 },
    /// An INVITE from a phone at one router to one at another.
    Invite { from: u32, to: u32 },
}

#[derive(Clone, Debug)]
struct Test {
    name: String,
    kind: Kind,
    /// The router at which the plan has the user registered.
    registrar: u32,
}

/// The six tests of the plan, and both requests between all pairs.
fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    let mut add = |name, kind, registrar| tests.push(Test { name, kind, registrar });
    for at in [1, 2, A0, D0] {
        add(format!("REGISTER, A0 at {}", name_of(at)), Kind::Register { at: A0 }, at);
    }
    for (to, at) in [(A0, D0), (A0, A0), (D0, A0), (D0, D0)] {
        let name = format!("INVITE, D0 to {}, registered at {}", name_of(to), name_of(at));
        add(name, Kind::Invite { from: D0, to }, at);
    }
    for hops in 1..4u32 {
        let links = if hops == 1 { "1 link".into() } else { format!("{hops} links") };
        for (from, to) in pairs(hops) {
            add(format!("all pairs, {links}: REGISTER"), Kind::Register { at: from }, to);
            add(format!("all pairs, {links}: INVITE"), Kind::Invite { from, to }, to);
        }
    }
    tests
}

/// The caller, or the user who registers, and the callee.
#[derive(Clone, Copy, Debug)]
struct Users {
    first: u32,
    second: u32,
}

/// Returns the first user from a number on whose records a router is responsible for.
fn user_at(router: u32, ids: &[NodeId], from: u32) -> u32 {
    let owner = |kind, user| {
        let key = ringway_dht::record::key(kind, format!("{}@{DOMAIN}", name(user)).as_bytes());
        // The next router at or before the key, around the ring.
        let (id, number) =
            ids.iter().zip(0u32..).min_by_key(|(id, _)| key.raw().wrapping_sub(id.raw()))?;
        Some((id, number))
    };
    let is_there = |kind, user| owner(kind, user).is_some_and(|(_, number)| number == router);
    let is_at =
        |user: &u32| [KIND_ACCOUNT, KIND_LOCATION].iter().all(|kind| is_there(*kind, *user));
    (from..).find(is_at).unwrap_or_default()
}

/// Delays of the first request of a test and of the second in milliseconds; `None` for one without an answer.
type Delays = [Option<f64>; 2];

/// Runs a test in a world of its own.
fn world<S: Station>(
    seed: u64,
    has_load: bool,
    test: &Test,
    users: Users,
    head: usize,
    node: impl Fn(u32) -> Result<S, RunError>,
) -> Result<Delays, RunError> {
    let mut radio = plan::radio(seed)?;
    for number in 0..4 {
        radio.start(number, Framed { head, node: node(number)? })?;
    }
    let mut load = plan::Load::new(has_load, LOAD, |node: &mut Framed<S>, now, to, _, octets| {
        node.node.load(now, to, octets);
    });
    let phase = Duration::from_nanos(seed % 1_000_000_000);
    load.run_until(&mut radio, COME)?;
    let (at, other) = match test.kind {
        Kind::Register { at } => (at, None),
        Kind::Invite { from, to } => (from, Some(to)),
    };
    if let Some(to) = other {
        come(&mut radio, at, users.first)?;
        come(&mut radio, to, users.second)?;
    }
    let mut delays = [None; 2];
    for (number, delay) in delays.iter_mut().enumerate() {
        load.run_until(&mut radio, BEGIN + phase + AGAIN * number as u32)?;
        let begun = radio.now();
        if other.is_some() {
            radio.with_node(at, |node, now| {
                node.node.phones(now, |phones| phones.call(now, users.first, users.second));
            })?;
            continue;
        }
        come(&mut radio, at, users.first)?;
        load.run_until(&mut radio, begun + (AGAIN - Duration::from_nanos(1)))?;
        let done = radio.with_node(at, |node, now| {
            node.node.phones(now, |phones| phones.registered(now, users.first))
        })?;
        let done = done.flatten().filter(|done| *done >= begun);
        *delay = done.map(|done| done.since(begun).as_secs_f64() * 1e3);
    }
    if other.is_some() {
        let end = radio.now() + REST;
        load.run_until(&mut radio, end)?;
        let calls = radio.with_node(at, |node, now| node.node.phones(now, Phones::take_calls))?;
        for call in calls.unwrap_or_default() {
            let second = usize::from(call.begun > BEGIN + phase);
            // A 180 may be lost, and nobody sends it again.
            let heard = call.ringing.or(call.answered);
            delays[second] = heard.map(|heard| heard.since(call.begun).as_secs_f64() * 1e3);
        }
    }
    Ok(delays)
}

/// Has a user come to a router and register.
fn come<S: Station>(radio: &mut Radio<Framed<S>>, at: u32, user: u32) -> Result<(), RunError> {
    radio.with_node(at, |node, now| node.node.phones(now, |phones| phones.come(user, now)))?;
    Ok(())
}

/// Runs a test over the mesh and over AODV.
fn both(seed: u64, has_load: bool, test: &Test) -> Result<[Delays; 2], RunError> {
    let four: Vec<Identity> =
        FOUR.iter().map(|id| identity_at(NodeId::new(id << 56), 8, seed)).collect();
    let ids: Vec<NodeId> = four.iter().map(Identity::id).collect();
    let identities = Identities::of(four);
    let (at, to) = match test.kind {
        Kind::Register { at } => (at, None),
        Kind::Invite { from, to } => (from, Some(to)),
    };
    // Who registers, or is called, has records at the router that the plan names.
    let named = user_at(test.registrar, &ids, 0);
    let caller = user_at(at, &ids, named + 1);
    let (users, homes) = match to {
        None => (Users { first: named, second: named }, vec![(named, at)]),
        Some(to) => (Users { first: caller, second: named }, vec![(caller, at), (named, to)]),
    };
    let size = homes.iter().map(|(user, _)| *user as usize + 1).max().unwrap_or_default();
    let mut of_users = vec![NOWHERE; size];
    for (user, home) in homes {
        of_users[user as usize] = home;
    }
    let mut directory = ringway_directory::Config::default();
    directory.dht.extension_bits = 0;
    let makings = Makings {
        mesh: ringway_mesh::config::Config { extension_bits: 0, ..Default::default() },
        directory,
        phones: PHONES,
        identities,
        roster: Roster::new(of_users),
        attacks: Arc::default(),
        gateways: Arc::default(),
        log: None,
        seed,
    };
    let addresses = ids.iter().map(|id| SocketAddrV6::new(id.prefix().router(), DISCARD, 0, 0));
    let addresses: Arc<[SocketAddrV6]> = addresses.collect();
    let mesh = world(seed, has_load, test, users, MESH_HEAD, |number| {
        let router = SipRouter::new(&makings, number, 0, Time::ZERO);
        let missing = || ringway_sim::Error::Settings { what: format!("no router {number}") };
        let router = Box::new(router.ok_or_else(missing)?);
        Ok(OneSip { router, addresses: addresses.clone() })
    })?;
    let roster = Roster::new(vec![test.registrar; size]);
    let aodv = world(seed, has_load, test, users, RADIO_HEAD, |number| {
        Ok(CentralRouter::new(number, test.registrar, &roster, PHONES, seed))
    })?;
    Ok([mesh, aodv])
}

const COLUMNS: [&str; 4] = ["mesh, first", "mesh, again", "AODV, first", "AODV, again"];
const DIFFERENCES: [&str; 2] = ["mesh less AODV, first", "mesh less AODV, again"];

pub(super) fn run(study: &Study) -> Result<StudyResult, RunError> {
    let tests = tests();
    let mut result = StudyResult::default();
    for (has_load, share) in [(false, 4), (true, 16)] {
        let worlds = study.replications.div_ceil(share).max(2);
        let seeds: Vec<u64> = (0..worlds)
            .map(|n| study.seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
            .collect();
        let all: Vec<(u64, &Test)> =
            seeds.iter().flat_map(|seed| tests.iter().map(|test| (*seed, test))).collect();
        let done: Vec<[Delays; 2]> = all
            .into_par_iter()
            .map(|(seed, test)| both(seed, has_load, test))
            .collect::<Result<_, _>>()?;
        let table = table(&done, &tests, has_load);
        result.claims.extend(claims(&table, &done, has_load));
        result.tables.push(table);
    }
    Ok(result)
}

/// The mean of a row in one world, over its pairs.
fn of_world(
    world: &[[Delays; 2]],
    tests: &[Test],
    name: &str,
    pick: impl Fn(&[Delays; 2]) -> Option<f64>,
) -> Option<f64> {
    let of_row = tests.iter().zip(world).filter(|(test, _)| test.name == name);
    let found: Vec<f64> = of_row.filter_map(|(_, delays)| pick(delays)).collect();
    (!found.is_empty()).then(|| found.iter().sum::<f64>() / found.len() as f64)
}

fn table(done: &[[Delays; 2]], tests: &[Test], has_load: bool) -> MeasuredTable {
    let mut names: Vec<&str> = Vec::new();
    for test in tests {
        if !names.contains(&test.name.as_str()) {
            names.push(&test.name);
        }
    }
    let worlds: Vec<&[[Delays; 2]]> = done.chunks(tests.len()).collect();
    let figure = |name: &str, title, pick: &dyn Fn(&[Delays; 2]) -> Option<f64>| {
        let values: Vec<f64> =
            worlds.iter().filter_map(|world| of_world(world, tests, name, pick)).collect();
        let none = Estimate { value: f64::NAN, n: 0, interval: None, equal: false };
        MeasuredFigure::new(title, "ms", mean(&values).unwrap_or(none))
    };
    let row = |name: &str| {
        let columns = COLUMNS.into_iter().zip([[0, 0], [0, 1], [1, 0], [1, 1]]);
        let mut figures: Vec<MeasuredFigure> = columns
            .map(|(title, [kind, again])| figure(name, title, &|delays| delays[kind][again]))
            .collect();
        figures.extend(DIFFERENCES.into_iter().zip([0, 1]).map(|(title, again)| {
            figure(name, title, &|delays| Some(delays[0][again]? - delays[1][again]?))
        }));
        MeasuredRow { name: name.into(), figures }
    };
    let (source, load) = match has_load {
        false => (SOURCE, "without background traffic"),
        true => (
            LOADED,
            "with 150 packets of 1,000 octets a second in both directions between 30 and 70",
        ),
    };
    MeasuredTable {
        source,
        what: format!(
            "milliseconds from a phone's first REGISTER to its 200, and from a caller's first INVITE to the 180, with the \
             challenge and its answer between, {load}. Routers A0, 30, 70 and D0 in a line by radio of 54 Mbit/s. Mesh: the \
             machines of `ringway serve --mesh`; the router named is responsible for the keys of the user who is called or \
             registers, and keeps the records with all others of four. AODV: the same proxy as central server at the router \
             named. First: a new registration, or a call without a session or route; again: {:.1} s later, a registration \
             that is refreshed, which the mesh acknowledges at once, or the same call. All pairs: registered at the other \
             router, which is the callee's. Without an answer: mesh {} of {}, AODV {}.",
            AGAIN.as_secs_f64(),
            lost(done, 0),
            2 * done.len(),
            lost(done, 1),
        ),
        replications: worlds.len(),
        rows: names.into_iter().map(row).collect(),
    }
}

const SOURCE: &str = "Section 4.5.1, REGISTER and INVITE";
const LOADED: &str = "Section 4.5.1, REGISTER and INVITE, with background traffic";

/// The tests of the plan: the row, whether the second request is compared, whether the mesh is expected to be sooner, and why.
const EXPECTED: [(&str, bool, bool, &str); 8] = [
    (
        "REGISTER, A0 at 30",
        false,
        false,
        "The server is one link away, on a route that AODV knows by HELLOs. The mesh keeps the registration at three \
         routers before it says so, of which one is at least as far.",
    ),
    ("REGISTER, A0 at 70", false, true, SEARCH),
    (
        "REGISTER, A0 at A0",
        false,
        false,
        "The server is beside the phone, so nothing is sent; the mesh keeps the registration at two other routers as well.",
    ),
    ("REGISTER, A0 at D0", false, true, SEARCH),
    (
        "INVITE, D0 to A0, registered at D0",
        true,
        false,
        "The server is beside the caller, so that one message goes to A0 and one comes back; in the mesh they are longer, \
         and router A0 asks who may use the name of the caller.",
    ),
    ("INVITE, D0 to A0, registered at A0", true, true, CHALLENGED),
    ("INVITE, D0 to D0, registered at A0", true, true, CHALLENGED),
    (
        "INVITE, D0 to D0, registered at D0",
        false,
        false,
        "The server is beside both phones, so nothing is sent; in the mesh the router asks the keepers of the name.",
    ),
];
const SEARCH: &str = "AODV searches in growing rings, and waits 240 ms for the first; the mesh has its ring beforehand.";
const CHALLENGED: &str = "The challenge comes from the caller's own router; with a server three links away it takes a round trip \
                          more.";

/// Returns a claim for each test of the plan, without traffic, or one about what is lost with it.
fn claims(table: &MeasuredTable, done: &[[Delays; 2]], has_load: bool) -> Vec<Claim> {
    if has_load {
        let [mesh, aodv] = [0, 1].map(|kind| lost(done, kind));
        return vec![Claim {
            source: "Section 2.1.4.5",
            says: "SSR is more efficient than AODV: with traffic beside, requests are answered more often".into(),
            ours: format!("without an answer: mesh {mesh}, AODV {aodv} of {}", 2 * done.len()),
            holds: mesh < aodv,
            sure: true,
            expected: true,
            why: "AODV takes HELLOs that collide for broken links, and phones that retransmit are too late by then.".into(),
        }];
    }
    let claim = |(row, again, expected, why): (&str, bool, bool, &str)| {
        let get = |column: &str| table.get(row, column);
        let ours = |column| get(column).map_or(f64::NAN, |figure| figure.ours);
        let difference = get(DIFFERENCES[usize::from(again)]);
        let sure = difference.is_some_and(|figure| match (figure.low, figure.high) {
            (Some(low), Some(high)) => low > 0.0 || high < 0.0,
            _ => figure.ours.is_finite(),
        });
        let [mesh, aodv] = match again {
            false => [COLUMNS[0], COLUMNS[2]],
            true => [COLUMNS[1], COLUMNS[3]],
        };
        Claim {
            source: "Section 4.5.1",
            says: format!("{row}, {}: the mesh is sooner", if again { "again" } else { "first" }),
            ours: format!(
                "mesh {:.2} ms, AODV with a central server {:.2} ms",
                ours(mesh),
                ours(aodv)
            ),
            holds: ours(mesh) < ours(aodv),
            sure,
            expected,
            why: why.into(),
        }
    };
    EXPECTED.into_iter().map(claim).collect()
}

/// Returns how many requests had no answer.
fn lost(done: &[[Delays; 2]], kind: usize) -> usize {
    done.iter().flat_map(|both| both[kind]).filter(Option::is_none).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every request of the plan is answered in the mesh and over AODV; a server beside the phones answers at once, a search
    /// for a route takes long, and the mesh acknowledges at once what is registered already.
    #[test]
    fn phones_register_and_call_over_both() {
        for test in tests().iter().take(8) {
            let [mesh, aodv] = both(1, false, test).unwrap();
            let delays = [mesh[0], mesh[1], aodv[0], aodv[1]].map(|d| d.unwrap_or(f64::NAN));
            assert!(delays.iter().all(|d| (0.0..2_000.0).contains(d)), "{} {delays:?}", test.name);
            match test.name.as_str() {
                "REGISTER, A0 at A0" => assert_eq!(delays[1..], [0.0; 3], "{delays:?}"),
                "REGISTER, A0 at D0" => {
                    assert!(delays[0] < 20.0 && delays[2] > 100.0, "{delays:?}")
                }
                "INVITE, D0 to A0, registered at A0" => {
                    assert!(delays[1] < delays[3], "{delays:?}")
                }
                _ => {}
            }
        }
    }

    /// The records of a user are where the plan has them.
    #[test]
    fn a_user_has_keys_of_the_router_that_is_named() {
        let ids: Vec<NodeId> = FOUR.iter().map(|id| NodeId::new(id << 56)).collect();
        for router in 0..4 {
            let user = user_at(router, &ids, 0);
            for kind in [KIND_ACCOUNT, KIND_LOCATION] {
                let key =
                    ringway_dht::record::key(kind, format!("u{user}@mesh").as_bytes()).raw() >> 56;
                let owner = match key {
                    0x30..0x70 => 1,
                    0x70..0xa0 => 2,
                    0xa0..0xd0 => A0,
                    _ => D0,
                };
                assert_eq!(owner, router, "{key:x}");
            }
        }
    }
}
