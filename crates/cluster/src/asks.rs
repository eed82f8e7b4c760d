//! Requests that wait for a read.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ringway_proxy::AskId;
use ringway_sansio::Time;

use crate::config::{MAX_ASKS, MAX_BATCH, READ_LIMIT};
use crate::shards::{Queue, Shards};
use crate::slots::{Shard, slot_of_user};

/// A worker's question.
pub type Asked = (u8, AskId);

/// The users that are to be read, and who waits for them. At most one read is under way at each shard.
#[derive(Default)]
pub struct Asks {
    waiting: BTreeMap<Box<[u8]>, Waiting>,
    /// The number of questions that wait.
    total: usize,
    /// Users in the order in which they are read.
    queue: Queue,
    /// Deadlines, the earliest first. A user who was answered meanwhile has another number.
    deadlines: VecDeque<(Time, u64, Box<[u8]>)>,
    /// Users who have no deadline yet.
    new: Vec<(u64, Box<[u8]>)>,
    number: u64,
    /// The users of the reads under way, and of each whether a change was reported since it began.
    reading: BTreeMap<Shard, Vec<Box<[u8]>>>,
    changed: BTreeMap<Box<[u8]>, bool>,
}

struct Waiting {
    number: u64,
    asked: Vec<Asked>,
}

impl Asks {
    /// Takes a question about a user. Returns whether there was room.
    pub fn ask(&mut self, user: &[u8], asked: Asked) -> bool {
        if self.total >= MAX_ASKS {
            return false;
        }
        self.total += 1;
        if let Some(waiting) = self.waiting.get_mut(user) {
            waiting.asked.push(asked);
            return true;
        }
        self.number += 1;
        self.new.push((self.number, user.into()));
        if !self.changed.contains_key(user) {
            self.queue.push(user.into());
        }
        self.waiting.insert(user.into(), Waiting { number: self.number, asked: vec![asked] });
        true
    }

    /// Sets the deadline of questions that have come since the last call.
    pub fn date(&mut self, now: Time) {
        let deadlines = self.new.drain(..).map(|(number, user)| (now + READ_LIMIT, number, user));
        self.deadlines.extend(deadlines);
    }

    /// Returns the questions whose deadline has passed, and adds the slots of their users.
    pub fn overdue(&mut self, now: Time, slots: &mut BTreeSet<u16>) -> Vec<Asked> {
        let mut overdue = Vec::new();
        while self.deadlines.front().is_some_and(|(deadline, ..)| *deadline <= now) {
            let Some((_, number, user)) = self.deadlines.pop_front() else { break };
            if self.waiting.get(&user).is_some_and(|waiting| waiting.number == number) {
                slots.insert(slot_of_user(&user));
                overdue.append(&mut self.take(&user));
            }
        }
        overdue
    }

    /// Returns the time of the next deadline.
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.front().map(|(deadline, ..)| *deadline)
    }

    /// The shards have changed, or what they are.
    pub fn unsort(&mut self) {
        self.queue.unsort();
    }

    /// Sorts users by shard. Returns the questions about those whose shard is absent.
    pub fn sort(&mut self, shards: &Shards) -> Vec<Asked> {
        let absent = self.queue.sort(shards);
        absent.iter().flat_map(|user| self.take(user)).collect()
    }

    /// Begins a read at a shard, unless one is under way or nobody waits. Returns its users.
    pub fn begin(&mut self, shard: &Shard) -> Option<Vec<Box<[u8]>>> {
        if self.reading.contains_key(shard) {
            return None;
        }
        let mut users = Vec::new();
        while users.len() < MAX_BATCH
            && let Some(user) = self.queue.pop(shard)
        {
            // Who has waited for it may have been answered.
            if self.waiting.contains_key(&user) {
                users.push(user);
            }
        }
        if users.is_empty() {
            return None;
        }
        self.changed.extend(users.iter().map(|user| (user.clone(), false)));
        self.reading.insert(shard.clone(), users.clone());
        Some(users)
    }

    /// Ends the read under way at a shard. Returns its users, and whether a change was reported meanwhile.
    pub fn end(&mut self, shard: &Shard) -> Vec<(Box<[u8]>, bool)> {
        let users = self.reading.remove(shard).unwrap_or_default();
        let with_change = |user: Box<[u8]>| {
            let changed = self.changed.remove(&user).unwrap_or(true);
            (user, changed)
        };
        users.into_iter().map(with_change).collect()
    }

    /// A shard is absent. Returns the questions about users who are read there; those about users who wait for it are
    /// returned when these are sorted.
    pub fn fail(&mut self, shard: &Shard) -> Vec<Asked> {
        self.unsort();
        let users = self.reading.get(shard).cloned().unwrap_or_default();
        users.iter().flat_map(|user| self.take(user)).collect()
    }

    /// A change of a user was reported.
    pub fn changed(&mut self, user: &[u8]) {
        if let Some(changed) = self.changed.get_mut(user) {
            *changed = true;
        }
    }

    /// Returns the questions that wait for a user.
    pub fn take(&mut self, user: &[u8]) -> Vec<Asked> {
        let asked = self.waiting.remove(user).map_or(Vec::new(), |waiting| waiting.asked);
        self.total -= asked.len();
        asked
    }

    /// Returns the number of questions that wait.
    pub fn len(&self) -> usize {
        self.total
    }

    /// Returns whether no question waits.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }
}
