//! Nodes with the location service of a server, before the model of the database, in virtual time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ringway_cluster::machine::State;
use ringway_cluster::record::Message;
use ringway_cluster::{
    ClusterJournal, ClusterLocation, Command, Config, Event, Hub, Machine, NodeName, Report, Shard,
    World,
};
use ringway_proxy::AskId;
use ringway_proxy::location::{
    BindingView, Commit, CommitTag, Elsewhere, LocationStore, MemoryStore,
};
use ringway_proxy::{Question, Reply};
use ringway_sansio::{Duration, Time};

use crate::database::{Answer, Database, Heard, key_of, user};

/// Half of the time from a node to the database and back.
const WAY: Duration = Duration::from_micros(250);
/// Time after which a node's connection ends a command unanswered.
const CLIENT_LIMIT: Duration = Duration::from_millis(1500);
/// Pause before a lost subscription is tried again.
const SUBSCRIBE_PAUSE: Duration = Duration::from_millis(500);
/// Lifetime of a registration.
pub(crate) const LIFETIME: Duration = Duration::from_secs(3600);

/// What a node reports.
#[derive(Default)]
struct Channels {
    events: Mutex<VecDeque<Event>>,
    woken: AtomicBool,
}

impl World for Channels {
    fn wake(&self) {
        self.woken.store(true, Ordering::Relaxed);
    }

    fn carry(&self, event: Event) {
        self.events.lock().unwrap().push_back(event);
    }
}

struct Node {
    location: ClusterLocation<Channels>,
    alive: bool,
    /// The number of the command under way on each lane.
    lanes: [Option<u64>; 3],
    /// Lanes whose connection was lost since their last command.
    broken: [bool; 3],
    /// When its next turn is.
    turn: Option<Time>,
    began: BTreeMap<u64, Time>,
    outages: u32,
}

enum Step {
    Turn(usize),
    Command(usize, u64, Command),
    Database,
    Answer(usize, u64, Report),
    GiveUp(usize, u64),
    Heard(Heard),
    Report(usize, Report),
}

/// What a phase has shown.
#[derive(Default)]
pub(crate) struct Measured {
    /// Microseconds from a REGISTER to its 200.
    pub(crate) stored: Vec<u32>,
    pub(crate) refused: u64,
    /// Microseconds that a call has waited for the database; 0 if it did not.
    pub(crate) located: Vec<u32>,
    pub(crate) unanswered: u64,
    /// Calls that were to go to no node, or to a wrong one.
    pub(crate) astray: u64,
}

pub(crate) struct Cluster {
    pub(crate) now: Time,
    pub(crate) database: Database,
    nodes: Vec<Node>,
    steps: BTreeMap<(Time, u64), Step>,
    numbers: u64,
    /// Whether the database cannot be reached.
    pub(crate) down: bool,
    /// Whether its next turn is among the steps.
    works: bool,
    /// How many nodes, from the first, hear of users; all hear of nodes.
    pub(crate) listeners: usize,
    /// The node that each user's phone uses.
    pub(crate) homes: Vec<u16>,
    /// Calls that wait at a node, by the worker that has asked.
    calls: BTreeMap<(usize, u8), (Time, usize)>,
    pub(crate) measured: Measured,
}

impl Cluster {
    /// Nodes that start beside an empty database.
    pub(crate) fn new(nodes: usize, users: usize) -> Self {
        let name = |i: usize| NodeName {
            address: ([10, 0, (i / 250) as u8, (i % 250) as u8 + 1], 5060).into(),
            tcp: false,
        };
        let names: Vec<NodeName> = (0..nodes).map(name).collect();
        let mut cluster = Cluster {
            now: Time::from_secs(1_000_000),
            database: Database::new(names.clone(), users),
            nodes: names.iter().enumerate().map(|(i, name)| Node::new(i, *name)).collect(),
            steps: BTreeMap::new(),
            numbers: 0,
            down: false,
            works: false,
            listeners: nodes,
            homes: (0..users).map(|user| (user % nodes) as u16).collect(),
            calls: BTreeMap::new(),
            measured: Measured::default(),
        };
        for i in 0..nodes {
            cluster.later(Duration::ZERO, Step::Turn(i));
            cluster.later(WAY, Step::Report(i, Report::Subscribed));
        }
        cluster
    }

    /// Returns whether a node lives.
    pub(crate) fn lives(&self, node: usize) -> bool {
        self.nodes[node].alive
    }

    /// Returns the number of nodes that take registrations.
    pub(crate) fn ready(&self) -> usize {
        self.nodes.iter().filter(|node| node.alive && node.location.hub.counts().ready).count()
    }

    /// Returns how often nodes have taken the database for absent.
    pub(crate) fn outages(&self) -> u32 {
        self.nodes.iter().map(|node| node.outages).sum()
    }

    /// Returns how many changes nodes have published.
    pub(crate) fn published(&self) -> u64 {
        self.nodes.iter().map(|node| node.location.hub.counts().published).sum()
    }

    /// A node dies.
    pub(crate) fn kill(&mut self, node: usize) {
        self.nodes[node].alive = false;
    }

    /// The connections with the database are lost, and there is none until [`Cluster::restore`].
    pub(crate) fn cut(&mut self) {
        self.down = true;
        self.database.break_off();
        for i in 0..self.nodes.len() {
            let node = &mut self.nodes[i];
            node.broken = [true; 3];
            let lanes = std::mem::take(&mut node.lanes);
            for (lane, number) in lanes.into_iter().enumerate().filter(|(_, n)| n.is_some()) {
                self.nodes[i].lanes[lane] = number;
                let number = number.unwrap_or_default();
                self.later(Duration::ZERO, Step::GiveUp(3 * i + lane, number));
            }
            self.later(Duration::ZERO, Step::Report(i, Report::Unsubscribed));
        }
    }

    /// The database can be reached again.
    pub(crate) fn restore(&mut self) {
        self.down = false;
        for i in 0..self.nodes.len() {
            let spread = SUBSCRIBE_PAUSE * i as u32 / self.nodes.len() as u32;
            self.later(spread, Step::Report(i, Report::Subscribed));
        }
    }

    /// A user's phone registers at its node.
    pub(crate) fn register(&mut self, number: usize) {
        let i = usize::from(self.homes[number]);
        let (now, node) = (self.now, &mut self.nodes[i]);
        let host = format!("{}.{}.{}", number >> 16 & 255, number >> 8 & 255, number & 255);
        let contact = format!("sip:u{number:08}@10.{host}:5060");
        let call_id = format!("{number:016x}@10.{host}");
        let binding = BindingView {
            contact: contact.as_bytes(),
            params: b"",
            q: 1000,
            expires: now + LIFETIME,
            path: b"",
            instance: b"",
            reg_id: 0,
            flow: None,
            call_id: call_id.as_bytes(),
            cseq: 1,
            outbound: false,
            nat: false,
            epoch: 0,
            first_cseq: 0,
        };
        let tag = CommitTag { worker: 0, id: number as u64 };
        let commit = node.location.update(&user(number), now, tag, &mut |edit| {
            edit.put(&binding).unwrap();
            edit.commit();
        });
        match commit {
            Commit::Pending => drop(node.began.insert(tag.id, now)),
            Commit::Refused => self.measured.refused += 1,
            Commit::Done => unreachable!("the database has not answered"),
        }
        self.wake(i);
    }

    /// A call for a user comes to a node.
    pub(crate) fn call(&mut self, i: usize, number: usize) {
        if self.is_known(i, number) {
            self.measured.located.push(0);
            return;
        }
        let question = Question::Location { aor: user(number) };
        let is_free = |worker: &u8| !self.calls.contains_key(&(i, *worker));
        let Some(worker) = (0..=u8::MAX).find(is_free) else {
            self.measured.unanswered += 1;
            return;
        };
        match self.nodes[i].location.hub.ask(self.now, worker, AskId::default(), &question) {
            None => drop(self.calls.insert((i, worker), (self.now, number))),
            Some(_) => self.measured.unanswered += 1,
        }
        self.wake(i);
    }

    /// Returns whether the nodes of a user are known, and counts calls that go astray.
    fn is_known(&mut self, i: usize, number: usize) -> bool {
        let (now, home) = (self.now, usize::from(self.homes[number]));
        let location = &self.nodes[i].location;
        let mut count = location.lookup(&user(number), now, &mut |_| {});
        let elsewhere = location.elsewhere(&user(number), now, &mut |_| count += 1);
        let is_known = matches!(elsewhere, Elsewhere::Known { .. });
        self.measured.astray += u64::from(is_known && count == 0 && self.nodes[home].alive);
        is_known
    }

    /// Returns the time of the next step.
    pub(crate) fn next(&self) -> Option<Time> {
        self.steps.keys().next().map(|(at, _)| *at)
    }

    /// Takes the next step.
    pub(crate) fn step(&mut self) {
        let Some(((at, _), step)) = self.steps.pop_first() else { return };
        self.now = self.now.max(at);
        match step {
            Step::Turn(i) => {
                // An earlier one may have come between.
                if self.nodes[i].turn.is_none_or(|turn| turn <= self.now) {
                    self.turn(i, []);
                }
            }
            Step::Command(from, number, _) if self.down => {
                self.later(WAY, Step::GiveUp(from, number));
            }
            Step::Command(from, number, command) => {
                self.database.receive(from, number, command);
                if !std::mem::replace(&mut self.works, true) {
                    self.later(Duration::ZERO, Step::Database);
                }
            }
            Step::Database => self.turn_of_database(),
            Step::Answer(from, number, report) => self.answer(from, number, report),
            Step::GiveUp(from, number) => {
                let report = match from % 3 {
                    0 => Report::Renewed(None),
                    1 => Report::Published(Shard::whole(), Vec::new()),
                    _ => Report::Read(Shard::whole(), Vec::new()),
                };
                self.answer(from, number, report);
            }
            Step::Heard(messages) => self.hear(&messages),
            Step::Report(i, report) => self.turn(i, [report]),
        }
    }

    fn hear(&mut self, messages: &[Message]) {
        for i in 0..self.nodes.len() {
            let is_heard = |m: &&Message| i < self.listeners || !matches!(m, Message::User(_));
            let reports: Vec<_> =
                messages.iter().filter(is_heard).map(|m| Report::Heard(m.clone())).collect();
            if !reports.is_empty() {
                self.turn(i, reports);
            }
        }
    }

    fn turn_of_database(&mut self) {
        let subscribers = self.nodes.len() as u32;
        let turn = self.database.turn(self.now, subscribers);
        if let Some(Answer { from, number, report, delay }) = turn.answer {
            self.later(turn.cost + delay + WAY, Step::Answer(from, number, report));
        }
        if !turn.messages.is_empty() {
            self.later(turn.cost + WAY, Step::Heard(Arc::new(turn.messages)));
        }
        self.works = self.database.is_busy();
        if self.works {
            self.later(turn.cost, Step::Database);
        }
    }

    fn answer(&mut self, from: usize, number: u64, report: Report) {
        let (i, lane) = (from / 3, from % 3);
        if self.nodes[i].lanes[lane] == Some(number) {
            self.nodes[i].lanes[lane] = None;
            self.turn(i, [report]);
        }
    }

    fn wake(&mut self, i: usize) {
        if self.nodes[i].location.hub.world().woken.swap(false, Ordering::Relaxed) {
            self.turn_at(i, self.now);
        }
    }

    fn turn_at(&mut self, i: usize, at: Time) {
        if self.nodes[i].turn.is_none_or(|turn| at < turn) {
            self.nodes[i].turn = Some(at);
            self.later(at.since(self.now), Step::Turn(i));
        }
    }

    fn turn(&mut self, i: usize, reports: impl IntoIterator<Item = Report>) {
        if !self.nodes[i].alive {
            return;
        }
        let hub = self.nodes[i].location.hub.clone();
        let (commands, next) = hub.turn(self.now, reports);
        for command in commands {
            if matches!(command, Command::Share { .. }) {
                self.later(WAY, Step::Report(i, Report::Shared(None)));
                continue;
            }
            let lane = match command {
                Command::Renew { .. } | Command::Leave { .. } => 0,
                Command::Publish { .. } => 1,
                Command::Read { .. } | Command::Probe { .. } | Command::Share { .. } => 2,
            };
            self.numbers += 1;
            let number = self.numbers;
            self.nodes[i].lanes[lane] = Some(number);
            if !self.down && std::mem::take(&mut self.nodes[i].broken[lane]) {
                self.later(Duration::ZERO, Step::Report(i, Report::Reconnected(Shard::whole())));
            }
            let from = 3 * i + lane;
            self.later(WAY, Step::Command(from, number, command));
            self.later(CLIENT_LIMIT, Step::GiveUp(from, number));
        }
        self.take_events(i);
        self.nodes[i].turn = None;
        if let Some(next) = next {
            self.turn_at(i, next.max(self.now));
        }
    }

    fn take_events(&mut self, i: usize) {
        let hub = self.nodes[i].location.hub.clone();
        let events = std::mem::take(&mut *hub.world().events.lock().unwrap());
        for event in events {
            match event {
                Event::Committed { tag, stored } => {
                    let began = self.nodes[i].began.remove(&tag.id);
                    match began.filter(|_| stored) {
                        Some(began) => self.measured.stored.push(micros(self.now - began)),
                        None => self.measured.refused += 1,
                    }
                }
                Event::Answered { worker, reply, .. } => {
                    let Some((began, number)) = self.calls.remove(&(i, worker)) else {
                        continue;
                    };
                    if reply == Reply::Located && self.is_known(i, number) {
                        self.measured.located.push(micros(self.now - began));
                    } else {
                        self.measured.unanswered += 1;
                    }
                }
                Event::State(State::Absent | State::Superseded) => self.nodes[i].outages += 1,
                Event::State(_) | Event::Shard(..) => {}
                Event::Unusable(_) | Event::UnusableSecrets => {}
                Event::Nodes(_) | Event::Gone(_) | Event::Secrets(_) => {}
                Event::Moved(_) | Event::Gap => {}
            }
        }
    }

    fn later(&mut self, delay: Duration, step: Step) {
        self.numbers += 1;
        self.steps.insert((self.now + delay, self.numbers), step);
    }
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

impl Node {
    fn new(i: usize, name: NodeName) -> Self {
        let config = Config { name, boot: 1, replicas: 1, key: key_of(i), sharded: false };
        let hub = Arc::new(Hub::new(Machine::new(config), Channels::default()));
        let journal = ClusterJournal { hub: hub.clone(), disk: None };
        let local = Arc::new(MemoryStore::with_journal([7; 16], Box::new(journal)));
        Node {
            location: ClusterLocation { local, hub, workers: 1 },
            alive: true,
            lanes: [None; 3],
            broken: [false; 3],
            turn: None,
            began: BTreeMap::new(),
            outages: 0,
        }
    }
}
