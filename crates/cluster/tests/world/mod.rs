//! Nodes of a cluster and a model of their database, in virtual time.
//!
//! The model leaves out the text of records and scripts, which the checks under `interop/cluster` run against the real
//! database. A paused database carries out what it was sent when it goes on, long after its clients have given up on it, as
//! a real one does. A primary that is lost takes with it what no replica has. A database may have many shards, each with a
//! replica; the first has the leases. A shard whose primary is lost has another address then.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use ringway_cluster::cache::Server;
use ringway_cluster::machine::State;
use ringway_cluster::record::Message;
use ringway_cluster::secrets::SECRETS;
use ringway_cluster::slots::{self, Range};
use ringway_cluster::{
    Command, Config, Event, Found, Lease, Machine, NodeName, Phones, Presence, Probed, Publication,
    Reading, Report, Shard, Slots, StoredSecret, Written, secrets,
};
use ringway_proxy::config::NodeKey;
use ringway_proxy::keys::{MAX_SHARED, SharedSecret};
use ringway_proxy::location::CommitTag;
use ringway_proxy::{AskId, Reply};
use ringway_sansio::{Duration, Time};

/// Time after which a client of the database ends a command unanswered and connects again.
const CLIENT_LIMIT: Duration = Duration::from_millis(1500);
/// Time that the database waits for replicas.
const WAIT: Duration = ringway_cluster::config::REPLICA_LIMIT;

#[derive(Clone, Debug)]
struct Record {
    boot: u64,
    seq: u64,
    ends: Time,
    q: Option<u16>,
    phones: Phones,
}

/// What a server of the database has.
#[derive(Clone, Default, Debug)]
struct Data {
    users: BTreeMap<Box<[u8]>, BTreeMap<NodeName, Record>>,
    leases: BTreeMap<NodeName, (u64, Time)>,
    /// Secrets by number, and the time from which each is in use.
    secrets: BTreeMap<u64, (u64, SharedSecret)>,
}

impl Data {
    /// As the script `SHARE` does it. A secret has the octets of its number.
    fn share(&mut self, now: Time, known: &[StoredSecret]) -> Vec<StoredSecret> {
        let now = now.as_millis();
        for one in known {
            self.secrets.entry(one.number).or_insert((one.from, one.secret));
        }
        let rotation = secrets::ROTATION.as_millis() as u64;
        let new = match self.secrets.last_key_value() {
            None => Some((now, 0)),
            Some((last, (from, _))) if last.max(from) + rotation <= now => {
                Some((now, now + secrets::NOTICE.as_millis() as u64))
            }
            Some(_) => None,
        };
        if let Some((number, from)) = new {
            let mut secret = SharedSecret([0; 32]);
            secret.0[..8].copy_from_slice(&number.to_le_bytes());
            self.secrets.insert(number, (from, secret));
        }
        while self.secrets.len() > MAX_SHARED {
            self.secrets.pop_first();
        }
        let stored = |(&number, &(from, secret)): (&u64, &(u64, SharedSecret))| StoredSecret {
            number,
            from,
            in_use: from <= now,
            secret,
        };
        self.secrets.iter().map(stored).collect()
    }

    /// As the script `PUBLISH` does it. Returns whether other nodes learn of it; the number of the later run that has the
    /// field, if one has.
    fn publish(
        &mut self,
        now: Time,
        node: NodeName,
        boot: u64,
        p: &Publication,
    ) -> Result<bool, u64> {
        let user = self.users.entry(p.user.clone()).or_default();
        let old = user.get(&node).cloned();
        match &old {
            Some(old) if old.boot > boot => return Err(old.boot),
            Some(old) if old.boot == boot && old.seq > p.seq => return Ok(false),
            Some(old) if old.boot == boot && old.seq == p.seq && now < old.ends => {
                return Ok(false);
            }
            _ => {}
        }
        let (ends, phones) = (now + p.lifetime, p.phones.clone());
        user.insert(node, Record { boot, seq: p.seq, ends, q: p.q, phones });
        user.retain(|_, record| now < record.ends);
        let is_as_before = |old: &Record| (old.boot, old.q, &old.phones) == (boot, p.q, &p.phones);
        Ok(!old.is_some_and(|old| now < old.ends && is_as_before(&old)))
    }
}

/// A model of a database with one replica.
#[derive(Default)]
pub(crate) struct Database {
    primary: Data,
    replica: Data,
    /// Users whose key has what is not of a node.
    pub(crate) foreign: BTreeSet<&'static [u8]>,
    /// Whether the replica takes changes.
    pub(crate) replicates: bool,
    /// Until when it does nothing.
    paused: Time,
    pub(crate) latency: Duration,
    /// Whether messages about changes arrive.
    pub(crate) reports: bool,
}

impl Database {
    /// An empty database that answers soon.
    pub(crate) fn empty() -> Database {
        Database {
            replicates: true,
            latency: Duration::from_millis(1),
            reports: true,
            ..Database::default()
        }
    }
}

impl Database {
    /// Loses a user.
    pub(crate) fn forget(&mut self, user: &str) {
        self.primary.users.remove(user.as_bytes());
    }

    /// Returns whether it has a user.
    pub(crate) fn has(&self, user: &str) -> bool {
        self.primary.users.contains_key(user.as_bytes())
    }
}

enum Step {
    /// A command of a run of a node arrives at the database.
    Command(usize, u64, u64, Command),
    /// The answer to the command with this number arrives.
    Answer(usize, u64, u64, Report),
    /// A report arrives at a run of a node.
    Report(usize, u64, Report),
    /// A client ends the command with this number unanswered.
    GiveUp(usize, u64, u64),
    /// A node starts again, with these users in its file.
    Restart(usize, &'static [&'static str]),
}

/// A node as its world sees it.
pub(crate) struct Node {
    pub(crate) name: NodeName,
    pub(crate) machine: Machine,
    pub(crate) boot: u64,
    pub(crate) alive: bool,
    subscribed: bool,
    /// Numbers of commands under way, by shard and lane.
    under_way: BTreeMap<Lane, u64>,
    /// Lanes whose connection is lost: the next command needs another.
    broken: BTreeSet<Lane>,
    pub(crate) replies: Vec<(u8, Reply)>,
    pub(crate) commits: Vec<(u64, bool)>,
    pub(crate) unusable: Vec<Box<[u8]>>,
    pub(crate) secrets: Vec<SharedSecret>,
    /// Users who are reported to have moved.
    pub(crate) moved: Vec<Box<[u8]>>,
    pub(crate) gaps: usize,
    pub(crate) peers: Vec<NodeName>,
    pub(crate) states: Vec<State>,
    pub(crate) shards: Vec<(u16, State)>,
    /// Number of renewals of the lease that were begun.
    pub(crate) renewals: u64,
}

pub(crate) struct World {
    pub(crate) now: Time,
    /// The database, or its first shard.
    pub(crate) database: Database,
    /// The other shards.
    pub(crate) others: Vec<Database>,
    /// The addresses of all.
    addresses: Vec<Shard>,
    pub(crate) epoch: u64,
    pub(crate) nodes: Vec<Node>,
    steps: BTreeMap<(Time, u64), Step>,
    numbers: u64,
}

/// A shard, and which commands for it.
type Lane = (Shard, u8);

fn lane(command: &Command) -> Lane {
    let (shard, lane) = match command {
        Command::Renew { shard, .. } | Command::Leave { shard, .. } => (shard, 0),
        Command::Publish { shard, .. } => (shard, 1),
        Command::Read { shard, .. } => (shard, 2),
        Command::Probe { shard, .. } => (shard, 3),
        Command::Share { shard, .. } => (shard, 4),
    };
    (shard.clone(), lane)
}

fn failed((shard, lane): Lane) -> Report {
    match lane {
        0 => Report::Renewed(None),
        1 => Report::Published(shard, Vec::new()),
        2 => Report::Read(shard, Vec::new()),
        4 => Report::Shared(None),
        _ => Report::Probed(shard, Probed::Failed),
    }
}

impl World {
    /// Nodes that have just started beside a database.
    pub(crate) fn new(count: usize) -> World {
        World::of_shards(count, &[Shard::whole()])
    }

    /// Nodes that have just started beside a database of this many shards.
    pub(crate) fn sharded(count: usize, shards: i64) -> World {
        let address = |i| Shard::new("db", 7000 + i).unwrap();
        let addresses: Vec<Shard> = (0..shards).map(address).collect();
        World::of_shards(count, &addresses)
    }

    fn of_shards(count: usize, addresses: &[Shard]) -> World {
        let mut world = World {
            now: Time::from_secs(1_000_000),
            database: Database::empty(),
            others: addresses.iter().skip(1).map(|_| Database::empty()).collect(),
            addresses: addresses.to_vec(),
            epoch: 1,
            nodes: Vec::new(),
            steps: BTreeMap::new(),
            numbers: 0,
        };
        for i in 0..count {
            let name = NodeName { address: ([10, 0, 0, i as u8 + 1], 5060).into(), tcp: false };
            world.nodes.push(start(name, 1, world.is_sharded()));
        }
        world.report_slots();
        world
    }

    fn is_sharded(&self) -> bool {
        self.addresses.len() > 1
    }

    /// Returns the index of the shard of a slot.
    fn shard_of(&self, slot: u16) -> usize {
        let index =
            |slot: u16| usize::from(slot) * self.addresses.len() / usize::from(slots::SLOTS);
        let first = index(slots::slot_of_leases());
        (index(slot) + self.addresses.len() - first) % self.addresses.len()
    }

    /// Returns the index of the shard of a user.
    pub(crate) fn shard_of_user(&self, user: &str) -> usize {
        self.shard_of(slots::slot_of_user(user.as_bytes()))
    }

    /// Returns a shard.
    pub(crate) fn shard(&mut self, index: usize) -> &mut Database {
        match index {
            0 => &mut self.database,
            _ => &mut self.others[index - 1],
        }
    }

    /// Returns what the database reports of its slots.
    pub(crate) fn slots(&self) -> Slots {
        let mut ranges: Vec<Range> = Vec::new();
        for slot in 0..slots::SLOTS {
            let primary = &self.addresses[self.shard_of(slot)];
            match ranges.last_mut().filter(|range| range.primary == *primary) {
                Some(range) => range.last = slot.into(),
                None => {
                    let (first, last) = (slot.into(), slot.into());
                    ranges.push(Range { first, last, primary: primary.clone() });
                }
            }
        }
        Slots::new(self.epoch, ranges).unwrap()
    }

    fn report_slots(&mut self) {
        if self.is_sharded() {
            let slots = self.slots();
            for i in 0..self.nodes.len() {
                self.report(i, Duration::from_millis(50), Report::Slots(Some(slots.clone())));
            }
        }
    }

    /// Kills a node; what it has sent arrives nevertheless.
    pub(crate) fn kill(&mut self, node: usize) {
        self.nodes[node].alive = false;
    }

    /// Starts a node that was killed, without its bindings.
    pub(crate) fn restart(&mut self, node: usize) {
        let boot = self.nodes[node].boot + 1;
        self.restart_as(node, boot);
    }

    /// Starts a node that was killed as the run with this number, without its bindings.
    pub(crate) fn restart_as(&mut self, node: usize, boot: u64) {
        self.nodes[node] = start(self.nodes[node].name, boot, self.is_sharded());
        self.report_slots();
    }

    /// Starts a node that was killed after a while, with these users in its file.
    pub(crate) fn restart_later(
        &mut self,
        node: usize,
        delay: Duration,
        users: &'static [&'static str],
    ) {
        self.later(delay, Step::Restart(node, users));
    }

    /// A node hears a message on the channel.
    pub(crate) fn hear(&mut self, node: usize, message: &Message) {
        self.report(node, Duration::ZERO, Report::Heard(message.clone()));
    }

    /// A node is about to stop.
    pub(crate) fn leave(&mut self, node: usize) {
        self.nodes[node].machine.leave();
        self.turn(node);
    }

    /// The clock of the database jumps: what it has ends sooner by this.
    pub(crate) fn hasten(&mut self, by: Duration) {
        let records = self.database.primary.users.values_mut().flat_map(BTreeMap::values_mut);
        let sooner = |ends: Time| Time::from_millis(ends.as_millis() - by.as_millis() as u64);
        records.for_each(|record| record.ends = sooner(record.ends));
        self.database.replica = self.database.primary.clone();
    }

    /// Has the database, or its first shard, do nothing for this long.
    pub(crate) fn pause(&mut self, time: Duration) {
        self.pause_shard(0, time);
    }

    /// Has a shard do nothing for this long.
    pub(crate) fn pause_shard(&mut self, shard: usize, time: Duration) {
        self.shard(shard).paused = self.now + time;
    }

    /// The primary is lost, and its replica takes over.
    pub(crate) fn fail_over(&mut self) {
        self.fail_over_shard(0);
    }

    /// The primary of a shard is lost, and its replica takes over.
    pub(crate) fn fail_over_shard(&mut self, shard: usize) {
        let database = self.shard(shard);
        database.primary = database.replica.clone();
        database.replicates = true;
        let lost = self.addresses[shard].clone();
        if self.is_sharded() {
            self.shard(shard).paused = Time::ZERO;
            self.addresses[shard].port += 100;
            self.epoch += 1;
        }
        for i in 0..self.nodes.len() {
            self.nodes[i].subscribed &= shard > 0;
            let boot = self.nodes[i].boot;
            self.nodes[i].broken.extend((0..5).map(|lane| (lost.clone(), lane)));
            for (lane, number) in self.nodes[i].under_way.clone() {
                if lane.0 == lost {
                    self.nodes[i].broken.remove(&lane);
                    self.later(Duration::ZERO, Step::Answer(i, boot, number, failed(lane)));
                }
            }
            if !self.nodes[i].subscribed {
                self.report(i, Duration::ZERO, Report::Unsubscribed);
            }
        }
        self.report_slots();
    }

    /// A user registers at a node until this time from now. Returns whether the node takes it at once.
    pub(crate) fn register(&mut self, node: usize, user: &str, lifetime: u64, id: u64) -> bool {
        let ends = self.now + Duration::from_secs(lifetime);
        let tag = CommitTag { worker: 0, id };
        let machine = &mut self.nodes[node].machine;
        if !machine.takes_registrations(user.as_bytes()) {
            return false;
        }
        machine.changed(user.as_bytes(), Some(Presence::new(1000, ends)), Some(tag));
        assert!(!machine.on_disk(tag, true));
        self.turn(node);
        true
    }

    /// The bindings of a user at a node are gone.
    pub(crate) fn unregister(&mut self, node: usize, user: &str) {
        self.nodes[node].machine.changed(user.as_bytes(), None, None);
        self.turn(node);
    }

    /// Returns the nodes that a call by a node goes to, by index, and whether all are known; asks as a worker does.
    pub(crate) fn call(&mut self, node: usize, user: &str) -> (Vec<usize>, bool) {
        if let Some(found) = self.visit(node, user) {
            return (found, true);
        }
        let machine = &mut self.nodes[node].machine;
        let began = self.now;
        let mut reply = machine.ask(self.now, user.as_bytes(), 7, AskId::default());
        self.nodes[node].replies.clear();
        self.turn(node);
        while reply.is_none() {
            let limit = ringway_cluster::config::HOLD + Duration::from_secs(1);
            assert!(self.now < began + limit, "no answer");
            self.run(Duration::from_millis(1));
            reply = self.nodes[node].replies.pop().map(|(_, reply)| reply);
        }
        match self.visit(node, user) {
            Some(found) => (found, reply == Some(Reply::Located)),
            None => (Vec::new(), false),
        }
    }

    fn visit(&mut self, node: usize, user: &str) -> Option<Vec<usize>> {
        let mut names = Vec::new();
        let now = self.now;
        let mut visit = |server: &Server, key| {
            assert_eq!(key, key_of(&server.node));
            names.push(server.node);
        };
        self.nodes[node].machine.visit(user.as_bytes(), now, &mut visit)?;
        let index = |name: &NodeName| self.nodes.iter().position(|node| node.name == *name);
        Some(names.iter().filter_map(index).collect())
    }

    /// Runs for this long.
    pub(crate) fn run(&mut self, time: Duration) {
        let until = self.now + time;
        for i in 0..self.nodes.len() {
            self.turn(i);
        }
        loop {
            let alive = |node: &&Node| node.alive;
            let timeouts = self.nodes.iter().filter(alive).filter_map(|n| n.machine.poll_timeout());
            let first = self.steps.keys().next().map(|(time, _)| *time);
            let Some(next) = timeouts.chain(first).min().filter(|next| *next <= until) else {
                break;
            };
            self.now = self.now.max(next);
            while let Some(entry) = self.steps.first_entry().filter(|e| e.key().0 <= self.now) {
                let step = entry.remove();
                self.step(step);
            }
            for i in 0..self.nodes.len() {
                self.turn(i);
            }
        }
        self.now = until;
    }

    fn later(&mut self, delay: Duration, step: Step) {
        self.numbers += 1;
        self.steps.insert((self.now + delay, self.numbers), step);
    }

    fn report(&mut self, node: usize, delay: Duration, report: Report) {
        let boot = self.nodes[node].boot;
        self.later(delay, Step::Report(node, boot, report));
    }

    fn turn(&mut self, i: usize) {
        let (now, node) = (self.now, &mut self.nodes[i]);
        if !node.alive {
            return;
        }
        node.machine.handle_timeout(now);
        while let Some(event) = node.machine.poll_event() {
            match event {
                Event::Committed { tag, stored } => node.commits.push((tag.id, stored)),
                Event::Answered { worker, reply, .. } => node.replies.push((worker, reply)),
                Event::Nodes(names) => node.peers = names,
                Event::Gone(_) => {}
                Event::Gap => node.gaps += 1,
                Event::Moved(user) => node.moved.push(user),
                Event::Secrets(secrets) => node.secrets = secrets,
                Event::State(state) => node.states.push(state),
                Event::Shard(shard, state) => node.shards.push((shard.port, state)),
                Event::Unusable(user) => node.unusable.push(user),
                Event::UnusableSecrets => node.unusable.push(SECRETS.as_bytes().into()),
            }
        }
        let boot = node.boot;
        let commands: Vec<_> = std::iter::from_fn(|| node.machine.poll_command()).collect();
        for command in commands {
            self.numbers += 1;
            let (number, lane) = (self.numbers, lane(&command));
            self.nodes[i].renewals += u64::from(matches!(command, Command::Renew { .. }));
            let before = self.nodes[i].under_way.insert(lane.clone(), number);
            assert_eq!(before, None, "two commands on a lane");
            let index = self.addresses.iter().position(|shard| *shard == lane.0).unwrap_or(0);
            let latency = self.shard(index).latency / 2;
            if self.nodes[i].broken.remove(&lane) {
                self.report(i, Duration::ZERO, Report::Reconnected(lane.0.clone()));
            }
            self.later(latency, Step::Command(i, boot, number, command));
            self.later(CLIENT_LIMIT, Step::GiveUp(i, boot, number));
        }
        self.subscribe(i);
    }

    fn subscribe(&mut self, i: usize) {
        let works = self.database.reports && self.database.paused <= self.now;
        if works && !self.nodes[i].subscribed {
            self.nodes[i].subscribed = true;
            self.report(i, self.database.latency, Report::Subscribed);
        } else if !self.database.reports && self.nodes[i].subscribed {
            self.nodes[i].subscribed = false;
            self.report(i, Duration::ZERO, Report::Unsubscribed);
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Command(i, boot, number, command) => {
                let lane = lane(&command);
                let Some(shard) = self.addresses.iter().position(|shard| *shard == lane.0) else {
                    return self.later(Duration::ZERO, Step::Answer(i, boot, number, failed(lane)));
                };
                let (now, paused) = (self.now, self.shard(shard).paused);
                if now < paused {
                    return self.later(paused - now, Step::Command(i, boot, number, command));
                }
                let (wait, report) = self.carry_out(i, shard, &command);
                let delay = wait + self.shard(shard).latency / 2;
                self.later(delay, Step::Answer(i, boot, number, report));
            }
            Step::Answer(i, boot, number, report) => {
                // A connection that was given up brings no answer.
                if let Some(lane) = self.lane_of(i, boot, number) {
                    let node = &mut self.nodes[i];
                    node.under_way.remove(&lane);
                    node.machine.handle(self.now, report);
                }
            }
            Step::Report(i, boot, report) => {
                let node = &mut self.nodes[i];
                if node.boot == boot && node.alive {
                    node.machine.handle(self.now, report);
                }
            }
            Step::Restart(i, users) => {
                self.restart(i);
                for user in users {
                    let state = Presence::new(1000, self.now + Duration::from_secs(3600));
                    self.nodes[i].machine.changed(user.as_bytes(), Some(state), None);
                }
                self.turn(i);
            }
            Step::GiveUp(i, boot, number) => {
                if let Some(lane) = self.lane_of(i, boot, number) {
                    let node = &mut self.nodes[i];
                    node.under_way.remove(&lane);
                    node.machine.handle(self.now, failed(lane));
                }
            }
        }
    }

    /// Returns the lane on which a command of this run of a node is under way.
    fn lane_of(&self, i: usize, boot: u64, number: u64) -> Option<Lane> {
        let node = &self.nodes[i];
        let lane = node.under_way.iter().find(|(_, n)| **n == number);
        lane.map(|(lane, _)| lane.clone()).filter(|_| node.boot == boot && node.alive)
    }

    /// Has the database carry out a command. Returns how long it waits for replicas, and its answer.
    fn carry_out(&mut self, i: usize, shard: usize, command: &Command) -> (Duration, Report) {
        let (now, name) = (self.now, self.nodes[i].name);
        let mut messages = Vec::new();
        let address = self.addresses[shard].clone();
        let database = self.shard(shard);
        let replicas = u32::from(database.replicates);
        let wait = if database.replicates { Duration::ZERO } else { WAIT };
        let answer = match command {
            Command::Renew { boot, .. } => {
                let leases = &mut database.primary.leases;
                leases.retain(|_, (_, ends)| now < *ends);
                let ends = now + ringway_cluster::config::LEASE;
                let is_outrun = leases.get(&name).is_some_and(|(held, _)| held > boot);
                if !is_outrun {
                    leases.insert(name, (*boot, ends));
                    messages.push(Message::Renewed { node: name, boot: *boot });
                }
                let lease = |(node, (boot, ends)): (&NodeName, &(u64, Time))| Lease {
                    node: *node,
                    boot: *boot,
                    left: *ends - now,
                    key: key_of(node),
                };
                let all = leases.iter().filter(|_| !is_outrun).map(lease).collect();
                (wait, Report::Renewed(Some((all, replicas))))
            }
            Command::Leave { boot, .. } => {
                let leases = &mut database.primary.leases;
                if leases.get(&name).is_some_and(|(held, _)| held == boot) {
                    leases.remove(&name);
                    messages.push(Message::Left(name));
                }
                (Duration::ZERO, Report::Left(true))
            }
            Command::Share { known, .. } => {
                let secrets = match database.foreign.contains(SECRETS.as_bytes()) {
                    true => Vec::new(),
                    false => database.primary.share(now, known),
                };
                (wait, Report::Shared(Some(secrets)))
            }
            Command::Probe { .. } => (wait, Report::Probed(address, Probed::Stored(replicas))),
            Command::Publish { boot, changes, .. } => {
                let mut publish = |change: &Publication| {
                    if database.foreign.contains(&*change.user) {
                        return Written::Unusable;
                    }
                    match database.primary.publish(now, name, *boot, change) {
                        Ok(is_news) => {
                            if is_news {
                                messages.push(Message::User(change.user.clone()));
                            }
                            Written::Stored(replicas)
                        }
                        Err(boot) => Written::Outrun { boot },
                    }
                };
                let results = changes.iter().map(&mut publish).collect();
                (wait, Report::Published(address, results))
            }
            Command::Read { users, .. } => {
                let found = |user: &[u8]| {
                    if database.foreign.contains(user) {
                        return Reading::Unusable;
                    }
                    let records = database.primary.users.get(user).into_iter().flatten();
                    let live = records.filter(|(_, record)| now < record.ends);
                    let one = |(node, record): (&NodeName, &Record)| {
                        let Record { boot, ends, q, ref phones, .. } = *record;
                        let phones = phones.clone();
                        q.map(|q| Found { node: *node, boot, lifetime: ends - now, q, phones })
                    };
                    Reading::Found(live.filter_map(one).collect())
                };
                let results = users.iter().map(|user| found(user)).collect();
                (Duration::ZERO, Report::Read(address, results))
            }
        };
        if database.replicates {
            database.replica = database.primary.clone();
        }
        let reports = self.database.reports;
        for message in messages.into_iter().filter(|_| reports) {
            for to in 0..self.nodes.len() {
                if self.nodes[to].subscribed {
                    self.report(to, self.database.latency / 2, Report::Heard(message.clone()));
                }
            }
        }
        answer
    }
}

fn key_of(name: &NodeName) -> NodeKey {
    let mut key = [0; 16];
    if let std::net::IpAddr::V4(ip) = name.address.ip() {
        key[..4].copy_from_slice(&ip.octets());
    }
    NodeKey(key)
}

fn start(name: NodeName, boot: u64, sharded: bool) -> Node {
    Node {
        name,
        machine: Machine::new(Config { name, boot, replicas: 1, key: key_of(&name), sharded }),
        boot,
        alive: true,
        subscribed: false,
        under_way: BTreeMap::new(),
        broken: BTreeSet::new(),
        replies: Vec::new(),
        commits: Vec::new(),
        unusable: Vec::new(),
        secrets: Vec::new(),
        moved: Vec::new(),
        gaps: 0,
        peers: Vec::new(),
        states: Vec::new(),
        shards: Vec::new(),
        renewals: 0,
    }
}
