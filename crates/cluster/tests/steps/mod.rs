//! A node whose database answers what octets say: reports that no database would send, in any order, at any time.

use std::collections::BTreeSet;

use ringway_cluster::cache::Server;
use ringway_cluster::record::Message;
use ringway_cluster::{
    Command, Config, Event, Found, Lease, Machine, NodeName, Presence, Probed, Reading, Report,
    Shard, Slots, StoredSecret, Written, config, slots,
};
use ringway_proxy::AskId;
use ringway_proxy::config::NodeKey;
use ringway_proxy::keys::MAX_SHARED;
use ringway_proxy::location::CommitTag;
use ringway_sansio::{Duration, Time};

/// The user whose changes are reported to the server.
const FOLLOWED: &[u8] = b"bob";

/// A node, and what its world has seen.
struct Node {
    now: Time,
    machine: Machine,
    /// Registrations that were taken and not answered.
    waiting: BTreeSet<u64>,
    next: u64,
    /// Commands under way by lane (lease, changes, reads, probes, secrets) and shard.
    under_way: BTreeSet<(usize, Shard)>,
    asks: usize,
}

/// Takes the octets up to the next zero.
fn text<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let end = rest.iter().position(|&b| b == 0).unwrap_or(rest.len());
    let (text, tail) = rest.split_at(end);
    *rest = tail.get(1..).unwrap_or_default();
    text
}

/// Returns the words of a text, as the database has them in an answer.
fn words(text: &[u8]) -> Vec<&str> {
    std::str::from_utf8(text).map_or(Vec::new(), |text| text.split(' ').collect())
}

impl Node {
    fn new(sharded: bool) -> Node {
        let name = NodeName { address: ([192, 0, 2, 1], 5060).into(), tcp: false };
        let config = Config { name, boot: 1000, replicas: 1, key: NodeKey([7; 16]), sharded };
        let mut machine = Machine::new(config);
        machine.follow(FOLLOWED, true);
        Node {
            now: Time::from_secs(1000),
            machine,
            waiting: BTreeSet::new(),
            next: 0,
            under_way: BTreeSet::new(),
            asks: 0,
        }
    }

    /// Carries what the machine has to say, and checks it.
    fn turn(&mut self) {
        self.machine.handle_timeout(self.now);
        while let Some(command) = self.machine.poll_command() {
            let (lane, count, shard) = match command {
                Command::Renew { shard, .. } | Command::Leave { shard, .. } => (0, 1, shard),
                Command::Publish { shard, changes, .. } => (1, changes.len(), shard),
                Command::Read { shard, users } => (2, users.len(), shard),
                Command::Probe { shard, .. } => (3, 1, shard),
                Command::Share { shard, .. } => (4, 1, shard),
            };
            assert!((1..=config::MAX_BATCH).contains(&count), "{count} users in a command");
            assert!(self.under_way.insert((lane, shard)), "two commands on lane {lane}");
        }
        while let Some(event) = self.machine.poll_event() {
            match event {
                Event::Committed { tag, .. } => {
                    assert!(self.waiting.remove(&tag.id), "{tag:?} is answered twice");
                }
                Event::Answered { .. } => {
                    assert!(self.asks > 0, "an answer to no question");
                    self.asks -= 1;
                }
                Event::Nodes(names) | Event::Gone(names) => {
                    assert!(names.len() <= config::MAX_NODES)
                }
                Event::Secrets(secrets) => assert!(secrets.len() <= MAX_SHARED),
                Event::State(_)
                | Event::UnusableSecrets
                | Event::Shard(..)
                | Event::Unusable(_)
                | Event::Gap => {}
                Event::Moved(user) => assert_eq!(&*user, FOLLOWED),
            }
        }
        let next = self.machine.poll_timeout();
        assert!(next.is_none_or(|next| self.now < next), "{next:?} has come: it turns for ever");
    }

    /// The database answers a command of a lane, if one is under way.
    fn answer(&mut self, lane: usize, pick: u8, report: impl FnOnce(Shard) -> Report) {
        let shards = || self.under_way.iter().filter(|(of, _)| *of == lane).map(|(_, shard)| shard);
        let count = shards().count().max(1);
        let Some(shard) = shards().nth(usize::from(pick) % count).cloned() else { return };
        self.under_way.remove(&(lane, shard.clone()));
        self.machine.handle(self.now, report(shard));
    }

    /// The database reports a map of slots, in which each octet is a primary, or none.
    fn map(&mut self, epoch: u8, octets: &[u8]) {
        let each = i64::from(slots::SLOTS) / octets.len().max(1) as i64;
        let range = |(i, octet): (usize, &u8)| {
            let primary = Shard::new("192.0.2.9", i64::from(octet % 6)).ok()?;
            let first = i as i64 * each;
            Some(slots::Range { first, last: first + each - 1, primary })
        };
        let ranges = octets.iter().enumerate().filter_map(range).collect();
        let slots = Slots::new(epoch.into(), ranges).ok();
        self.machine.handle(self.now, Report::Slots(slots));
    }

    fn register(&mut self, user: &[u8], lifetime: u8) {
        if !self.machine.takes_registrations(user) {
            return;
        }
        let tag = CommitTag { worker: 0, id: self.next };
        let ends = self.now + Duration::from_secs(lifetime.into());
        self.machine.changed(user, Some(Presence::new(500, ends)), Some(tag));
        self.waiting.insert(self.next);
        if self.machine.on_disk(tag, !lifetime.is_multiple_of(7)) {
            self.waiting.remove(&self.next);
        }
        self.next += 1;
    }

    fn step(&mut self, step: u8, rest: &mut &[u8]) {
        let extent = rest.split_off_first().copied().unwrap_or_default();
        match step % 16 {
            0 => self.now += Duration::from_millis(u64::from(extent) * 20),
            1 => self.now += Duration::from_secs(extent.into()),
            2 | 3 => self.register(text(rest), extent),
            4 => drop(self.machine.changed(text(rest), None, None)),
            5 => {
                let leases = Lease::parse(&words(text(rest)));
                self.answer(0, 0, |_| Report::Renewed(Some((leases, u32::from(extent % 4)))));
            }
            6 => self.answer(0, 0, |_| Report::Renewed(None)),
            7 | 8 => {
                let written = |b: &u8| match b % 4 {
                    _ if *b == 0x7f => Written::Moved,
                    0 => Written::Stored(u32::from(b >> 2)),
                    1 => Written::Outrun { boot: u64::from(*b) << (extent % 57) },
                    2 => Written::Unusable,
                    _ => Written::Failed,
                };
                let results = text(rest).iter().map(written).collect();
                self.answer(1, extent, |shard| Report::Published(shard, results));
            }
            9 => {
                let found = Found::parse(&words(text(rest)));
                let results = (0..extent).map(|i| match i % 8 {
                    5 => Reading::Moved,
                    6 => Reading::Unusable,
                    7 => Reading::Failed,
                    _ => Reading::Found(found.clone()),
                });
                let results = results.collect();
                self.answer(2, extent, |shard| Report::Read(shard, results));
            }
            10 => {
                if let Ok(message) = Message::parse(text(rest)) {
                    assert_eq!(Message::parse(&message.to_bytes()), Ok(message.clone()));
                    self.machine.handle(self.now, Report::Heard(message));
                }
            }
            11 => self.machine.handle(self.now, Report::Subscribed),
            12 => self.machine.handle(self.now, Report::Unsubscribed),
            13 => self.machine.handle(self.now, Report::Reconnected(Shard::whole())),
            14 => {
                let user = text(rest);
                let mut visit = |server: &Server, _| assert!(server.q <= 1000, "{server:?}");
                if self.machine.visit(user, self.now, &mut visit).is_none() {
                    self.asks += usize::from(
                        self.machine.ask(self.now, user, 0, AskId::default()).is_none(),
                    );
                }
            }
            _ if extent == 255 => self.machine.leave(),
            _ if extent >= 128 => {
                let probed = match extent % 8 {
                    0 => Probed::Failed,
                    1 => Probed::Moved,
                    replicas => Probed::Stored(u32::from(replicas) - 2),
                };
                self.answer(3, extent >> 3, |shard| Report::Probed(shard, probed));
            }
            _ if extent >= 64 => self.map(extent % 4, text(rest)),
            _ if extent >= 32 => {
                let found = StoredSecret::parse(&words(text(rest)));
                self.answer(4, 0, |_| Report::Shared((extent % 8 != 0).then_some(found)));
            }
            _ => self.answer(0, 0, |_| Report::Left(extent.is_multiple_of(2))),
        }
        self.turn();
    }
}

/// Lets a database do what these octets say. Nothing is answered twice, no lane has two commands, there is always an end to
/// what is due, and once the database is silent every registration and question is answered. A database of many shards
/// begins with 255.
pub(crate) fn run(octets: &[u8]) {
    let mut rest = octets;
    let sharded = rest.first() == Some(&255);
    rest = &rest[usize::from(sharded)..];
    let mut node = Node::new(sharded);
    node.turn();
    while let Some(step) = rest.split_off_first() {
        node.step(*step, &mut rest);
    }
    // Questions may wait for a node that is being restarted.
    node.now += config::HOLD + Duration::from_secs(2);
    node.turn();
    node.now += Duration::from_secs(2);
    node.turn();
    assert!(node.waiting.is_empty(), "{} registrations wait for ever", node.waiting.len());
    assert_eq!(node.asks, 0, "questions wait for ever");
    let counts = node.machine.counts();
    assert!(counts.waiting == 0 && counts.asks == 0, "{counts:?}");
}
