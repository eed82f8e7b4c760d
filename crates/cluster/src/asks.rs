//! Requests that wait for a read.

use std::collections::{BTreeMap, VecDeque};

use ringway_proxy::AskId;
use ringway_sansio::Time;

use crate::config::{MAX_ASKS, MAX_BATCH, READ_LIMIT};

/// A worker's question.
pub type Asked = (u8, AskId);

/// The users that are to be read, and who waits for them. At most one read is under way.
#[derive(Default)]
pub struct Asks {
    waiting: BTreeMap<Box<[u8]>, Waiting>,
    /// The number of questions that wait.
    total: usize,
    /// Users in the order in which they are read.
    queue: VecDeque<Box<[u8]>>,
    /// Deadlines, the earliest first. A user who was answered meanwhile has another number.
    deadlines: VecDeque<(Time, u64, Box<[u8]>)>,
    /// Users who have no deadline yet.
    new: Vec<(u64, Box<[u8]>)>,
    number: u64,
    /// The users of the read under way, and whether a change of them was reported since it began.
    reading: Vec<(Box<[u8]>, bool)>,
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
        if !self.reading.iter().any(|(reading, _)| **reading == *user) {
            self.queue.push_back(user.into());
        }
        self.waiting.insert(user.into(), Waiting { number: self.number, asked: vec![asked] });
        true
    }

    /// Sets the deadline of questions that have come since the last call.
    pub fn date(&mut self, now: Time) {
        let deadlines = self.new.drain(..).map(|(number, user)| (now + READ_LIMIT, number, user));
        self.deadlines.extend(deadlines);
    }

    /// Returns the questions whose deadline has passed.
    pub fn overdue(&mut self, now: Time) -> Vec<Asked> {
        let mut overdue = Vec::new();
        while self.deadlines.front().is_some_and(|(deadline, ..)| *deadline <= now) {
            let Some((_, number, user)) = self.deadlines.pop_front() else { break };
            if self.waiting.get(&user).is_some_and(|waiting| waiting.number == number) {
                overdue.append(&mut self.take(&user));
            }
        }
        overdue
    }

    /// Returns the time of the next deadline.
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.front().map(|(deadline, ..)| *deadline)
    }

    /// Begins a read, unless one is under way or nobody waits. Returns its users.
    pub fn begin(&mut self) -> Option<Vec<Box<[u8]>>> {
        if !self.reading.is_empty() {
            return None;
        }
        while self.reading.len() < MAX_BATCH
            && let Some(user) = self.queue.pop_front()
        {
            // Who has waited for it may have been answered.
            if self.waiting.contains_key(&user) {
                self.reading.push((user, false));
            }
        }
        let users = || self.reading.iter().map(|(user, _)| user.clone()).collect();
        (!self.reading.is_empty()).then(users)
    }

    /// Ends the read under way. Returns its users, and whether a change was reported meanwhile.
    pub fn end(&mut self) -> Vec<(Box<[u8]>, bool)> {
        std::mem::take(&mut self.reading)
    }

    /// A change of a user was reported.
    pub fn changed(&mut self, user: &[u8]) {
        for (reading, changed) in &mut self.reading {
            *changed |= **reading == *user;
        }
    }

    /// Returns the questions that wait for a user.
    pub fn take(&mut self, user: &[u8]) -> Vec<Asked> {
        let asked = self.waiting.remove(user).map_or(Vec::new(), |waiting| waiting.asked);
        self.total -= asked.len();
        asked
    }

    /// Returns all questions.
    pub fn take_all(&mut self) -> Vec<Asked> {
        self.queue.clear();
        self.deadlines.clear();
        self.new.clear();
        self.total = 0;
        std::mem::take(&mut self.waiting).into_values().flat_map(|waiting| waiting.asked).collect()
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
