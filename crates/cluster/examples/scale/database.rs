//! A model of a database of one primary: what it has, and when it answers.
//!
//! The costs are those of Redis 7.0 for the scripts of `ringway_cluster::record`, as processor time of the server over
//! loopback (a Xeon of 2.1 GHz). It carries out a few commands of one connection before those of the next, as Redis does,
//! whose buffer of a connection takes about ten of these scripts.

use std::collections::VecDeque;
use std::sync::Arc;

use ringway_cluster::config::{LEASE, REMOVED};
use ringway_cluster::presence::Phones;
use ringway_cluster::record::Message;
use ringway_cluster::{Command, Found, Lease, NodeName, Reading, Report, Written};
use ringway_proxy::config::NodeKey;
use ringway_sansio::{Duration, Time};

/// Cost of a change, of one that merely refreshes, and of a read.
const NEW: Duration = Duration::from_nanos(17_000);
const REFRESH: Duration = Duration::from_nanos(13_000);
const READ: Duration = Duration::from_nanos(8_000);
/// Cost of a message for each of its subscribers.
const MESSAGE: Duration = Duration::from_nanos(570);
/// Cost of a lease for each of the leases.
const LEASES: Duration = Duration::from_nanos(1_000);
/// Number of commands of one connection that are carried out before those of another.
const TURN: usize = 10;
/// Time until a replica has acknowledged.
const REPLICA: Duration = Duration::from_micros(300);

/// What the database has of a user at a node.
#[derive(Clone, Copy)]
struct Record {
    node: u16,
    q: u16,
    boot: u64,
    seq: u64,
    ends: Time,
}

/// What is carried out for one connection.
struct Job {
    from: usize,
    number: u64,
    command: Command,
    done: usize,
    written: Vec<Written>,
    readings: Vec<Reading>,
}

/// An answer, with the connection and the number of its command.
pub(crate) struct Answer {
    pub(crate) from: usize,
    pub(crate) number: u64,
    pub(crate) report: Report,
    pub(crate) delay: Duration,
}

/// What one turn has brought.
#[derive(Default)]
pub(crate) struct Turn {
    pub(crate) cost: Duration,
    pub(crate) answer: Option<Answer>,
    pub(crate) messages: Vec<Message>,
}

pub(crate) struct Database {
    names: Vec<NodeName>,
    users: Vec<Vec<Record>>,
    leases: Vec<Option<(u64, Time)>>,
    jobs: VecDeque<Job>,
    /// Messages so far, and the time it was busy.
    pub(crate) messages: u64,
    pub(crate) busy: Duration,
}

/// Returns the key of a node.
pub(crate) fn key_of(node: usize) -> NodeKey {
    NodeKey((node as u128 + 1).to_be_bytes())
}

/// Returns the user with a number.
pub(crate) fn user(number: usize) -> Box<[u8]> {
    format!("sip:u{number:08}@example.com").into_bytes().into()
}

/// Returns the number of a user.
fn number_of(user: &[u8]) -> usize {
    user[5..13].iter().fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
}

impl Database {
    pub(crate) fn new(names: Vec<NodeName>, users: usize) -> Self {
        Database {
            leases: vec![None; names.len()],
            names,
            users: (0..users).map(|_| Vec::with_capacity(1)).collect(),
            jobs: VecDeque::new(),
            messages: 0,
            busy: Duration::ZERO,
        }
    }

    /// A command arrives.
    pub(crate) fn receive(&mut self, from: usize, number: u64, command: Command) {
        let job = Job { from, number, command, done: 0, written: Vec::new(), readings: Vec::new() };
        self.jobs.push_back(job);
    }

    /// Its connections are lost with what they have sent.
    pub(crate) fn break_off(&mut self) {
        self.jobs.clear();
    }

    /// It has nothing any more.
    pub(crate) fn lose_everything(&mut self) {
        self.users.iter_mut().for_each(Vec::clear);
        self.leases.fill(None);
    }

    /// Returns whether it has something to do.
    pub(crate) fn is_busy(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Returns the users that it has at a node.
    pub(crate) fn count_at(&self, node: usize) -> usize {
        let is_here = |record: &Record| usize::from(record.node) == node;
        self.users.iter().filter(|records| records.iter().any(is_here)).count()
    }

    /// Returns the nodes that it has for a user.
    pub(crate) fn nodes_of(&self, user: usize) -> impl Iterator<Item = usize> {
        self.users[user].iter().map(|record| usize::from(record.node))
    }

    /// Carries out the next commands of one connection.
    pub(crate) fn turn(&mut self, now: Time, subscribers: u32) -> Turn {
        let Some(mut job) = self.jobs.pop_front() else { return Turn::default() };
        let mut turn = Turn::default();
        let node = job.from / 3;
        let report = match &job.command {
            Command::Renew { boot, .. } => {
                turn.cost += NEW + LEASES * self.names.len() as u32;
                turn.messages.push(Message::Renewed { node: self.names[node], boot: *boot });
                self.leases[node] = Some((*boot, now + LEASE));
                Some(Report::Renewed(Some((self.living(now), 1))))
            }
            Command::Leave { .. } => {
                self.leases[node] = None;
                Some(Report::Left(true))
            }
            // One primary is not probed, and secrets are not modelled.
            Command::Probe { .. } | Command::Share { .. } => None,
            Command::Publish { shard, boot, changes } => {
                for change in changes.iter().skip(job.done).take(TURN) {
                    let (q, ends) = (change.q.unwrap_or(u16::MAX), now + change.lifetime);
                    let record =
                        Record { node: node as u16, q, boot: *boot, seq: change.seq, ends };
                    let (written, is_new) = self.users[number_of(&change.user)].put(now, record);
                    job.written.push(written);
                    turn.cost += if is_new { NEW } else { REFRESH };
                    if is_new {
                        turn.messages.push(Message::User(change.user.clone()));
                    }
                }
                (job.written.len() == changes.len())
                    .then(|| Report::Published(shard.clone(), std::mem::take(&mut job.written)))
            }
            Command::Read { shard, users } => {
                for user in users.iter().skip(job.done).take(TURN) {
                    turn.cost += READ;
                    job.readings.push(Reading::Found(self.found(now, number_of(user))));
                }
                (job.readings.len() == users.len())
                    .then(|| Report::Read(shard.clone(), std::mem::take(&mut job.readings)))
            }
        };
        self.messages += turn.messages.len() as u64;
        turn.cost += MESSAGE * subscribers * turn.messages.len() as u32;
        self.busy += turn.cost;
        match report {
            Some(report) => {
                let is_read = matches!(job.command, Command::Read { .. });
                let delay = if is_read { Duration::ZERO } else { REPLICA };
                turn.answer = Some(Answer { from: job.from, number: job.number, report, delay });
            }
            None => {
                job.done += TURN;
                self.jobs.push_back(job);
            }
        }
        turn
    }

    fn living(&self, now: Time) -> Vec<Lease> {
        let lease = |(node, lease): (usize, &Option<(u64, Time)>)| {
            let (boot, ends) = lease.filter(|(_, ends)| now < *ends)?;
            Some(Lease { node: self.names[node], boot, left: ends - now, key: key_of(node) })
        };
        self.leases.iter().enumerate().filter_map(lease).collect()
    }

    fn found(&self, now: Time, user: usize) -> Vec<Found> {
        let is_here = |record: &&Record| record.q != u16::MAX && now < record.ends;
        let found = |record: &Record| Found {
            node: self.names[usize::from(record.node)],
            boot: record.boot,
            lifetime: record.ends - now,
            q: record.q,
            phones: Phones::unknown(),
        };
        self.users[user].iter().filter(is_here).map(found).collect()
    }
}

/// The records of a user.
trait Records {
    /// As the script `PUBLISH` does it. Returns also whether other nodes learn of it.
    fn put(&mut self, now: Time, new: Record) -> (Written, bool);
}

impl Records for Vec<Record> {
    fn put(&mut self, now: Time, new: Record) -> (Written, bool) {
        let old = self.iter().find(|record| record.node == new.node).copied();
        let is_later = |old: &Record| old.boot == new.boot && old.seq > new.seq;
        match old {
            Some(old) if old.boot > new.boot => return (Written::Outrun { boot: old.boot }, false),
            Some(old) if is_later(&old) => return (Written::Stored(1), false),
            _ => {}
        }
        self.retain(|record| record.node != new.node && now < record.ends + REMOVED);
        self.push(new);
        let same = |old: Record| old.boot == new.boot && old.q == new.q && now < old.ends;
        (Written::Stored(1), !old.is_some_and(same))
    }
}

/// Messages that all nodes hear.
pub(crate) type Heard = Arc<Vec<Message>>;
