//! Several servers in virtual time, whose messages take 10 ms and may be lost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use ringway_proxy::states::{Dialog, Direction, Phase, UserState};
use ringway_sansio::{Duration, SplitMix};

use super::*;

mod nodes;

/// A server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct NodeId(u64);

impl NodeId {
    fn new(number: u64) -> NodeId {
        NodeId(number)
    }
}

const LIFETIME: Duration = Duration::from_secs(60);
const MAX_LIFETIME: Duration = Duration::from_secs(120);
const MAX_OF_SERVER: usize = 256;
const MAX_FOLLOWERS: usize = 8_192;

fn following(number: u64) -> Following<NodeId> {
    of(Config::of_router(), number)
}

fn of(config: Config, number: u64) -> Following<NodeId> {
    Following::new(config, id(number), Box::new(|domain| domain == "mesh"))
}

fn to_octets(items: &[Item<'_>]) -> Vec<u8> {
    Config::of_router().format().to_octets(START, items)
}

const START: Time = Time::from_secs(1_000_000);
const DELAY: Duration = Duration::from_millis(10);
const ALICE: &str = "alice@mesh";
const LATENCY: Duration = Duration::from_millis(300);

fn id(number: u64) -> NodeId {
    NodeId::new(number)
}

fn on_the_phone() -> UserState {
    let dialog = Dialog { id: 1, direction: Direction::Recipient, phase: Phase::Confirmed };
    UserState { is_registered: true, dialogs: vec![dialog], publications: Vec::new() }
}

fn idle() -> UserState {
    UserState { is_registered: true, ..UserState::default() }
}

/// A server and what its world knows.
struct Server {
    following: Following<NodeId>,
    random: SplitMix,
    /// What users do here.
    local: BTreeMap<String, Report>,
    watched_by_others: BTreeSet<Box<str>>,
    /// What others have reported.
    reports: BTreeMap<(Box<str>, NodeId), (Report, Time)>,
    /// Why reports have ended.
    ends: Vec<(Box<str>, NodeId, Change)>,
    is_up: bool,
}

impl Server {
    fn new(number: u64, life: u64) -> Self {
        Server::with(Config::of_router(), number, life)
    }

    fn with(config: Config, number: u64, life: u64) -> Self {
        Server {
            following: of(config, number),
            random: SplitMix::new(number + 1_000 * life),
            local: BTreeMap::new(),
            watched_by_others: BTreeSet::new(),
            reports: BTreeMap::new(),
            ends: Vec::new(),
            is_up: true,
        }
    }
}

/// Servers that share a directory.
struct Net {
    now: Time,
    servers: BTreeMap<NodeId, Server>,
    in_flight: VecDeque<(Time, NodeId, NodeId, Box<[u8]>)>,
    directory: BTreeMap<String, BTreeSet<NodeId>>,
    /// Every so many-th message is lost; none if 0.
    loses: u64,
    sent: u64,
    located: u64,
    /// Messages from one server to another.
    traffic: BTreeMap<(NodeId, NodeId), Vec<Time>>,
}

impl Net {
    fn new(servers: u64) -> Self {
        Net::with(Config::of_router(), servers)
    }

    fn with(config: Config, servers: u64) -> Self {
        let server = |number| (id(number), Server::with(config.clone(), number, 0));
        Net {
            now: START,
            servers: (1..=servers).map(server).collect(),
            in_flight: VecDeque::new(),
            directory: BTreeMap::new(),
            loses: 0,
            sent: 0,
            located: 0,
            traffic: BTreeMap::new(),
        }
    }

    fn at(&mut self, number: u64) -> &mut Server {
        self.servers.get_mut(&id(number)).unwrap()
    }

    /// A user has a state at a server, which the directory knows of if the user is registered there.
    fn set(&mut self, number: u64, name: &str, report: impl Into<Report>) {
        let report = report.into();
        let now = self.now;
        let registered = self.directory.entry(name.into()).or_default();
        match report.state.is_registered {
            true => registered.insert(id(number)),
            false => registered.remove(&id(number)),
        };
        let server = self.at(number);
        server.local.insert(name.into(), report);
        if server.watched_by_others.contains(name) {
            server.following.changed(now, name);
        }
    }

    fn watch(&mut self, number: u64, name: &str) {
        let now = self.now;
        self.at(number).following.set_watched(now, name, true);
    }

    /// Returns what server `number` shows of a user at server `of`.
    fn shown(&self, number: u64, name: &str, of: u64) -> Option<&UserState> {
        let key = (name.into(), id(of));
        let (report, expires) = self.servers[&id(number)].reports.get(&key)?;
        (*expires > self.now).then_some(&report.state)
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let timers = self.servers.values().filter(|server| server.is_up);
            let timers = timers.filter_map(|server| server.following.poll_timeout());
            let next = timers.chain(self.in_flight.front().map(|message| message.0)).min();
            match next {
                Some(next) if next <= end => self.now = self.now.max(next),
                _ => break,
            }
            self.step();
        }
        self.now = end;
    }

    /// Returns after how long something holds; panics if it does not within a time.
    fn until(&mut self, within: Duration, holds: impl Fn(&Net) -> bool) -> Duration {
        let start = self.now;
        while !holds(self) {
            assert!(self.now.since(start) < within, "does not hold within {within:?}");
            self.run(DELAY / 2);
        }
        self.now.since(start)
    }

    fn step(&mut self) {
        let now = self.now;
        while self.in_flight.front().is_some_and(|message| message.0 <= now) {
            let Some((_, from, to, octets)) = self.in_flight.pop_front() else { break };
            if let Some(server) = self.servers.get_mut(&to).filter(|server| server.is_up) {
                server.following.handle_message(now, from, &octets);
            }
        }
        let Net { servers, directory, in_flight, loses, sent, located, traffic, .. } = self;
        for (&own, server) in servers.iter_mut().filter(|(_, server)| server.is_up) {
            let Server { following, random, local, watched_by_others, reports, ends, .. } = server;
            let read = &mut |name: &str| (local.get(name).cloned().unwrap_or_default(), None);
            if following.poll_timeout().is_some_and(|due| due <= now) {
                following.handle_timeout(now, read, random);
            }
            while let Some(event) = following.poll_event() {
                match event {
                    Event::Send { to, octets } => {
                        assert!(octets.len() <= following.config.max_message);
                        traffic.entry((own, to)).or_default().push(now);
                        *sent += 1;
                        if *loses == 0 || *sent % *loses != 0 {
                            in_flight.push_back((now + DELAY, own, to, octets));
                        }
                    }
                    Event::Locate { name } => {
                        *located += 1;
                        let at = directory.get(&*name).into_iter().flatten().copied();
                        let at: Vec<NodeId> = at.collect();
                        following.located(now, &name, Some(&at));
                    }
                    Event::Report { name, server, report, expires } => {
                        reports.insert((name, server), (report, expires));
                    }
                    Event::Renew { name, server, expires } => {
                        reports.entry((name, server)).and_modify(|report| report.1 = expires);
                    }
                    Event::End { name, server, why } => {
                        ends.push((name.clone(), server, why));
                        reports.remove(&(name, server));
                    }
                    Event::Watch { name } => {
                        following.changed(now, &name);
                        watched_by_others.insert(name);
                    }
                    Event::Unwatch { name } => _ = watched_by_others.remove(&name),
                }
            }
        }
    }
}

#[test]
fn a_change_is_seen_after_one_message() {
    let mut net = Net::new(2);
    net.set(2, ALICE, idle());
    net.watch(1, ALICE);
    let first = net.until(LATENCY, |net| net.shown(1, ALICE, 2) == Some(&idle()));
    assert!(first <= DELAY * 3, "{first:?}");
    net.run(Duration::from_secs(5));
    net.set(2, ALICE, on_the_phone());
    let change = net.until(LATENCY, |net| net.shown(1, ALICE, 2) == Some(&on_the_phone()));
    assert!(change <= COALESCE + DELAY * 2, "{change:?}");
    // Without changes it is renewed, and nothing else is sent.
    net.run(Duration::from_secs(5));
    let before = net.sent;
    net.run(Duration::from_secs(600));
    assert_eq!(net.shown(1, ALICE, 2), Some(&on_the_phone()));
    assert!(net.sent - before <= 2 * 31, "{}", net.sent - before);
    assert!(net.located <= 12, "{}", net.located);
}

#[test]
fn changes_in_short_succession_are_few_messages_and_the_last_one_is_seen() {
    let mut net = Net::new(2);
    net.set(2, ALICE, idle());
    net.watch(1, ALICE);
    net.run(Duration::from_secs(1));
    let before = net.sent;
    for _ in 0..100 {
        net.set(2, ALICE, on_the_phone());
        net.run(Duration::from_millis(50));
        net.set(2, ALICE, idle());
        net.run(Duration::from_millis(50));
    }
    net.set(2, ALICE, on_the_phone());
    net.until(Duration::from_secs(1), |net| net.shown(1, ALICE, 2) == Some(&on_the_phone()));
    assert!(net.sent - before <= 60, "{}", net.sent - before);
}

#[test]
fn lost_messages_are_repaired() {
    for loses in [2, 3] {
        let mut net = Net::new(2);
        net.loses = loses;
        net.set(2, ALICE, idle());
        net.watch(1, ALICE);
        net.until(Duration::from_secs(8), |net| net.shown(1, ALICE, 2).is_some());
        for round in 0..50 {
            net.set(2, ALICE, if round % 2 == 0 { on_the_phone() } else { idle() });
            let state = net.at(2).local[ALICE].state.clone();
            net.until(Duration::from_secs(8), |net| net.shown(1, ALICE, 2) == Some(&state));
            net.run(Duration::from_millis(3_700));
        }
    }
}

#[test]
fn a_user_who_moves_is_followed_to_the_other_server() {
    let mut net = Net::new(3);
    net.set(2, ALICE, on_the_phone());
    net.watch(1, ALICE);
    net.run(Duration::from_secs(10));
    net.set(3, ALICE, idle());
    net.set(2, ALICE, UserState::default());
    net.until(Duration::from_secs(1), |net| net.shown(1, ALICE, 3).is_some());
    assert_eq!(net.shown(1, ALICE, 2), None);
    net.run(Duration::from_secs(1));
    assert!(net.at(2).watched_by_others.is_empty(), "the old server is not asked any more");
}

#[test]
fn a_user_who_registers_later_is_found() {
    let mut net = Net::new(2);
    net.watch(1, ALICE);
    net.run(Duration::from_secs(3));
    net.set(2, ALICE, idle());
    let soon = net.until(Duration::from_secs(5), |net| net.shown(1, ALICE, 2).is_some());
    assert!(soon <= Duration::from_secs(4), "{soon:?}");
    net.set(2, ALICE, UserState::default());
    net.run(Duration::from_secs(3_600));
    let before = net.located;
    net.run(Duration::from_secs(600));
    assert!(net.located - before <= 11, "a user who is nowhere is asked for once in a minute");
    // A call of somebody else finds the user before.
    net.set(2, ALICE, idle());
    let now = net.now;
    net.at(1).following.located(now, ALICE, Some(&[id(2)]));
    net.until(LATENCY, |net| net.shown(1, ALICE, 2).is_some());
}

#[test]
fn a_user_whom_the_directory_knows_before_the_server_is_shown_at_once() {
    let mut net = Net::new(2);
    net.directory.entry(ALICE.into()).or_default().insert(id(2));
    net.watch(1, ALICE);
    net.run(Duration::from_secs(1));
    assert_eq!(net.shown(1, ALICE, 2), None);
    net.set(2, ALICE, idle());
    net.until(Duration::from_millis(600), |net| net.shown(1, ALICE, 2).is_some());
}

#[test]
fn the_report_of_a_server_that_dies_ends() {
    let mut net = Net::new(3);
    net.set(2, ALICE, on_the_phone());
    net.watch(1, ALICE);
    net.run(Duration::from_secs(30));
    net.at(2).is_up = false;
    // The directory still names it.
    let after = net.until(LIFETIME + RENEW, |net| net.shown(1, ALICE, 2).is_none());
    assert!(after >= LIFETIME - RENEW, "{after:?}");
    net.run(Duration::from_secs(1));
    assert!(net.at(1).reports.is_empty());
    // The phone registers at another server.
    net.directory.clear();
    net.set(3, ALICE, idle());
    net.until(LOCATE_AGAIN, |net| net.shown(1, ALICE, 3).is_some());
}

#[test]
fn a_server_that_does_not_answer_has_the_user_located_before_the_report_ends() {
    let mut net = Net::new(3);
    net.set(2, ALICE, on_the_phone());
    net.watch(1, ALICE);
    net.run(Duration::from_secs(30));
    net.at(2).is_up = false;
    net.directory.clear();
    net.set(3, ALICE, idle());
    let after = net.until(LIFETIME, |net| net.shown(1, ALICE, 3).is_some());
    assert!(after <= RENEW + Duration::from_secs(8), "{after:?}");
    assert_eq!(net.shown(1, ALICE, 2), None);
}

#[test]
fn a_user_with_phones_at_two_servers_is_reported_by_both() {
    let mut net = Net::new(3);
    net.set(2, ALICE, idle());
    net.set(3, ALICE, on_the_phone());
    // One of them is where she is watched.
    net.watch(1, ALICE);
    net.watch(2, ALICE);
    net.run(Duration::from_secs(1));
    assert_eq!(net.shown(1, ALICE, 2), Some(&idle()));
    assert_eq!(net.shown(1, ALICE, 3), Some(&on_the_phone()));
    assert_eq!(net.shown(2, ALICE, 3), Some(&on_the_phone()));
    assert_eq!(net.shown(2, ALICE, 2), None, "what is known at home is not reported");
}

#[test]
fn a_server_that_restarts_is_asked_again() {
    let mut net = Net::new(2);
    net.set(2, ALICE, on_the_phone());
    net.watch(1, ALICE);
    net.run(Duration::from_secs(30));
    net.servers.insert(id(2), Server::new(2, 1));
    net.set(2, ALICE, idle());
    net.until(RENEW + DELAY, |net| net.shown(1, ALICE, 2) == Some(&idle()));
    net.run(MIN_INTERVAL);
    net.set(2, ALICE, on_the_phone());
    net.until(LATENCY, |net| net.shown(1, ALICE, 2) == Some(&on_the_phone()));
}

#[test]
fn what_nobody_watches_any_more_is_ended_everywhere() {
    let mut net = Net::new(2);
    net.set(2, ALICE, idle());
    net.watch(1, ALICE);
    net.run(Duration::from_secs(1));
    let now = net.now;
    net.at(1).following.set_watched(now, ALICE, false);
    net.run(Duration::from_secs(10));
    assert!(net.at(1).reports.is_empty() && net.at(2).watched_by_others.is_empty());
    for server in net.servers.values() {
        assert_eq!(server.following.counts(), Counts::default());
        assert!(server.following.peers.is_empty());
        assert_eq!(server.following.poll_timeout(), None);
    }
}

#[test]
fn the_end_of_a_subscription_that_is_lost_ends_by_time_or_by_the_next_state() {
    let mut net = Net::new(2);
    net.set(2, ALICE, idle());
    net.watch(1, ALICE);
    net.run(Duration::from_secs(1));
    net.servers.insert(id(1), Server::new(1, 1));
    net.set(2, ALICE, on_the_phone());
    net.run(Duration::from_secs(1));
    assert!(net.at(2).watched_by_others.is_empty());
    assert!(net.at(1).reports.is_empty());
}

#[test]
fn sixty_phones_that_watch_sixty_users_stay_below_the_rates() {
    let servers = 20;
    let mut net = Net::new(servers);
    let names: Vec<String> = (0..60).map(|user| format!("user{user}@mesh")).collect();
    for (user, name) in (0u64..).zip(&names) {
        net.set(user % servers + 1, name, idle());
        (1..=servers).for_each(|server| net.watch(server, name));
    }
    let all_shown = |net: &Net, state: &UserState| {
        (0u64..).zip(&names).all(|(user, name)| {
            let at = user % servers + 1;
            let mut others = (1..=servers).filter(|other| *other != at);
            others.all(|other| net.shown(other, name, at) == Some(state))
        })
    };
    net.run(Duration::from_secs(2));
    assert!(all_shown(&net, &idle()));
    // All are called at once, again and again.
    for round in 0..20 {
        let state = if round % 2 == 0 { on_the_phone() } else { idle() };
        (0u64..).zip(&names).for_each(|(n, name)| net.set(n % servers + 1, name, state.clone()));
        net.run(Duration::from_secs(1));
        assert!(all_shown(&net, &state));
    }
    net.run(Duration::from_secs(60));
    for times in net.traffic.values() {
        for (first, at) in times.iter().enumerate() {
            let second = *at + Duration::from_secs(1);
            let count = times[first..].iter().take_while(|time| **time < second).count();
            // A router of a mesh takes 32 of another.
            assert!(count * 2 <= 32, "{count} in a second");
        }
    }
}

#[test]
fn one_server_leaves_room_for_others() {
    let mut hub = following(1);
    let mut random = SplitMix::new(1);
    let follow = |hub: &mut Following<NodeId>, from: u64, name: &str| {
        let item = Item::Follow { lifetime: u16::MAX, version: 0, name };
        hub.handle_message(START, id(from), &to_octets(&[item]));
    };
    (0..10_000).for_each(|n| follow(&mut hub, 2, &format!("user{n}@mesh")));
    assert_eq!(hub.counts().followers, MAX_OF_SERVER);
    assert_eq!(hub.counts().refused, 10_000 - MAX_OF_SERVER as u64);
    follow(&mut hub, 3, "bob@elsewhere");
    assert_eq!(hub.counts().followers, MAX_OF_SERVER, "a name of another domain");
    for from in 3..103 {
        (0..MAX_OF_SERVER).for_each(|n| follow(&mut hub, from, &format!("user{n}@mesh")));
    }
    assert_eq!(hub.counts().followers, MAX_FOLLOWERS);
    for from in 200..210 {
        (0..50).for_each(|n| follow(&mut hub, from, &format!("user{n}@mesh")));
        assert_eq!(hub.peers[&id(from)].followers(), 50);
    }
    assert_eq!(hub.counts().followers, MAX_FOLLOWERS);
    // All of it ends.
    let read = &mut |_: &str| (idle().into(), None);
    hub.handle_timeout(START, read, &mut random);
    let mut now = START;
    for _ in 0..10_000 {
        let Some(next) = hub.poll_timeout() else { break };
        now = now.max(next);
        hub.handle_timeout(now, read, &mut random);
    }
    assert!(now >= START + MAX_LIFETIME && now < START + MAX_LIFETIME * 2, "{now:?}");
    assert!(hub.counts().followers == 0 && hub.peers.is_empty());
    let watched: i64 = std::iter::from_fn(|| hub.poll_event())
        .map(|event| match event {
            Event::Watch { .. } => 1,
            Event::Unwatch { .. } => -1,
            _ => 0,
        })
        .sum();
    assert_eq!(watched, 0);
}

#[test]
fn names_beyond_the_maximum_are_not_followed_and_are_located_at_a_pace() {
    let mut following = following(1);
    for n in 0..MAX_NAMES + 10 {
        following.set_watched(START, &format!("user{n}@mesh"), true);
    }
    following.set_watched(START, "bob@elsewhere", true);
    assert_eq!((following.counts().names, following.counts().refused), (MAX_NAMES, 10));
    let mut random = SplitMix::new(1);
    let (mut now, mut located) = (START, BTreeSet::new());
    let mut more = |following: &mut Following<NodeId>, seconds| {
        let end = now + Duration::from_secs(seconds);
        while now < end {
            following.handle_timeout(now, &mut |_| (idle().into(), None), &mut random);
            let mut at_once = 0;
            while let Some(event) = following.poll_event() {
                let Event::Locate { name } = event else { continue };
                at_once += 1;
                following.located(now, &name, Some(&[]));
                located.insert(name);
            }
            assert!(at_once <= 32);
            now = following.poll_timeout().unwrap().max(now);
        }
        (now, located.len())
    };
    let (now, count) = more(&mut following, 1_400);
    assert_eq!(count, MAX_NAMES, "each of them is");
    // Thousands are due again; a new one is not after them.
    following.set_watched(now, "user0@mesh", false);
    following.set_watched(now, "carol@mesh", true);
    assert_eq!(more(&mut following, 2).1, MAX_NAMES + 1);
    // Nor do those that are due again wait until no new ones are added.
    let (now, _) = more(&mut following, 0);
    for number in 0..1_000 {
        following.set_watched(now, &format!("user{}@mesh", number + 1), false);
    }
    for number in 0..1_000 {
        following.set_watched(now, &format!("new{number}@mesh"), true);
    }
    let count = more(&mut following, 10).1 - MAX_NAMES - 1;
    assert!((100..=180).contains(&count), "{count} of 160 to 224 are new");
}

/// A state as a hostile server sends it.
fn state_of(name: &str, version: u64, state: &UserState) -> Vec<u8> {
    let mut octets = Vec::new();
    state.write(&mut octets);
    to_octets(&[Item::State { version, name, state: &octets }])
}

#[test]
fn states_of_servers_at_which_the_user_is_not_registered_are_ignored() {
    let mut net = Net::new(3);
    net.set(2, ALICE, idle());
    net.watch(1, ALICE);
    net.run(Duration::from_secs(1));
    let now = net.now;
    for name in [ALICE, "bob@mesh", "carol@elsewhere"] {
        let message = state_of(name, 7 << 32, &on_the_phone());
        net.at(1).following.handle_message(now, id(3), &message);
    }
    net.run(Duration::from_secs(1));
    let reports: Vec<NodeId> = net.at(1).reports.keys().map(|(_, server)| *server).collect();
    assert_eq!(reports, [id(2)]);
    assert_eq!(net.shown(1, ALICE, 2), Some(&idle()));
}

#[test]
fn a_state_that_comes_late_does_not_replace_a_later_one() {
    let mut following = following(1);
    following.set_watched(START, ALICE, true);
    following.located(START, ALICE, Some(&[id(2)]));
    let mut reports = |version, state: &UserState| {
        following.handle_message(START, id(2), &state_of(ALICE, version, state));
        std::iter::from_fn(|| following.poll_event()).count()
    };
    assert_eq!(reports(7 << 32 | 5, &on_the_phone()), 1);
    assert_eq!(reports(7 << 32 | 4, &idle()), 0, "an older one");
    assert_eq!(reports(8 << 32 | 1, &idle()), 1, "of the next life");
    assert_eq!(reports(0, &idle()), 0, "of no version");
}

#[test]
fn a_server_that_reports_without_end_is_taken_at_the_rate() {
    let mut following = following(1);
    following.set_watched(START, ALICE, true);
    following.located(START, ALICE, Some(&[id(2)]));
    let states = [on_the_phone(), idle()];
    let mut now = START;
    for version in 1..10_000 {
        let message = state_of(ALICE, 7 << 32 | version, &states[version as usize % 2]);
        following.handle_message(now, id(2), &message);
        now += Duration::from_millis(1);
    }
    let reports = std::iter::from_fn(|| following.poll_event()).count();
    assert!((20..=24).contains(&reports), "{reports} in ten seconds");
}

proptest! {
    #[test]
    fn no_octets_make_it_panic_or_grow(
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..20),
    ) {
        let mut following = following(1);
        let mut random = SplitMix::new(1);
        following.set_watched(START, ALICE, true);
        following.located(START, ALICE, Some(&[id(2), id(3)]));
        for (n, mut octets) in (0u64..).zip(messages) {
            if let Some(first) = octets.first_mut() {
                *first = 1;
            }
            following.handle_message(START, id(n % 4), &octets);
            following.handle_timeout(START, &mut |_| (idle().into(), None), &mut random);
        }
        following.handle_timeout(START, &mut |_| (idle().into(), None), &mut random);
        while let Some(event) = following.poll_event() {
            if let Event::Send { octets, .. } = event {
                prop_assert!(Config::of_router().format().parse(&octets).is_ok());
            }
        }
        prop_assert!(following.counts().followers <= 20);
        prop_assert!(following.poll_timeout().is_none_or(|due| due > START));
    }
}
