//! Requests for users whose only node has left and may be back soon: it is being restarted.

use std::collections::{BTreeMap, BTreeSet};

use ringway_sansio::Time;

use crate::asks::Asked;
use crate::config::MAX_ASKS;

/// Users whose node is awaited, and who waits for it.
#[derive(Default)]
pub struct Holds {
    users: BTreeMap<Box<[u8]>, (Time, Vec<Asked>)>,
    deadlines: BTreeSet<(Time, Box<[u8]>)>,
    /// The number of questions that wait.
    total: usize,
}

impl Holds {
    /// Takes a question about a user, until a time; that of the first question counts. Returns whether there was room.
    pub fn add(&mut self, user: &[u8], until: Time, asked: Asked) -> bool {
        if self.total >= MAX_ASKS {
            return false;
        }
        self.total += 1;
        if let Some((_, waiting)) = self.users.get_mut(user) {
            waiting.push(asked);
            return true;
        }
        self.users.insert(user.into(), (until, vec![asked]));
        self.deadlines.insert((until, user.into()));
        true
    }

    /// Removes and returns the questions about a user.
    pub fn take(&mut self, user: &[u8]) -> Vec<Asked> {
        let Some((user, (until, asked))) = self.users.remove_entry(user) else { return Vec::new() };
        self.total -= asked.len();
        self.deadlines.remove(&(until, user));
        asked
    }

    /// Removes and returns the questions whose time is over.
    pub fn overdue(&mut self, now: Time) -> Vec<Asked> {
        let mut overdue = Vec::new();
        while let Some((_, user)) = self.deadlines.first().filter(|(until, _)| *until <= now) {
            let user = user.clone();
            overdue.append(&mut self.take(&user));
        }
        overdue
    }

    /// Returns the users whose node is awaited.
    pub fn users(&self) -> Vec<Box<[u8]>> {
        self.users.keys().cloned().collect()
    }

    /// Returns the time of the next deadline.
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(until, _)| *until)
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
