//! The users of this node, and what of them is not in the database yet.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use ringway_proxy::location::CommitTag;
use ringway_sansio::Time;

use crate::config::{
    COMMIT_LIMIT, FIRST_REPAIR, MAX_BATCH, REMOVED, REPAIR_STEP, REPAIR_TIME, UNUSABLE_PAUSE,
};
use crate::machine::Written;
use crate::record::Publication;

/// What becomes of a registration: whether it is stored.
pub type Outcome = (CommitTag, bool);

/// The users of this node. At most one batch of changes is under way.
#[derive(Default)]
pub struct Own {
    users: BTreeMap<Box<[u8]>, User>,
    /// Users with a change that was not sent, in order.
    queue: VecDeque<Box<[u8]>>,
    /// Users whose key has what is not ours, and when they are tried again, in order.
    unusable: VecDeque<(Time, Box<[u8]>)>,
    /// The users of the batch under way, and the number of the change that it has of each.
    sent: Vec<(Box<[u8]>, u64)>,
    again: Again,
    /// Number of the last change.
    seq: u64,
    waiting: BTreeMap<CommitTag, Waiting>,
    /// Deadlines, the earliest first. A tag that was used again belongs to another change.
    deadlines: VecDeque<(Time, CommitTag, u64)>,
    /// Registrations that have no deadline yet.
    new: Vec<(CommitTag, u64)>,
}

/// The repair of the database: all users are sent once more.
struct Again {
    /// The last user that was sent, while it goes on.
    after: Option<Bound<Box<[u8]>>>,
    /// Number of users in the next batch.
    count: usize,
    /// When the batch under way began, if it has some.
    began: Option<Time>,
}

impl Default for Again {
    fn default() -> Self {
        Again { after: None, count: FIRST_REPAIR, began: None }
    }
}

impl Again {
    /// The batch under way has ended: the next has more, or fewer if it has taken too long.
    fn adapt(&mut self, now: Time) {
        let Some(began) = self.began.take() else { return };
        self.count = match now.since(began) > REPAIR_TIME {
            true => (self.count / 2).max(1),
            false => (self.count + REPAIR_STEP).min(MAX_BATCH),
        };
    }
}

struct User {
    /// q here, in thousandths; `None` if the user is not here any more.
    q: Option<u16>,
    /// Time at which the last binding ends.
    ends: Time,
    /// Number of the last change.
    seq: u64,
    queued: bool,
    /// Whether its key has what is not ours, and it is tried again later.
    unusable: bool,
    /// Registrations that wait until their change is in the database.
    waiting: Vec<(u64, CommitTag)>,
}

/// A registration that is not acknowledged yet.
struct Waiting {
    seq: u64,
    /// Whether the database has it.
    stored: bool,
    /// Whether the disk has it.
    on_disk: bool,
}

impl Own {
    /// A user has bindings with this q until this time, or none. `waits` is the registration that is to be acknowledged
    /// when the database has it, and the disk. Returns the state before.
    pub fn change(
        &mut self,
        user: &[u8],
        state: Option<(u16, Time)>,
        waits: Option<CommitTag>,
    ) -> Option<(u16, Time)> {
        self.seq += 1;
        let (q, ends) = state.map_or((None, Time::ZERO), |(q, ends)| (Some(q), ends));
        if !self.users.contains_key(user) {
            let new = User { q, ends, seq: 0, queued: false, unusable: false, waiting: Vec::new() };
            self.users.insert(user.into(), new);
        }
        let entry = self.users.get_mut(user)?;
        let before = entry.q.map(|q| (q, entry.ends));
        (entry.q, entry.ends, entry.seq) = (q, ends, self.seq);
        if !entry.queued {
            entry.queued = true;
            self.queue.push_back(user.into());
        }
        if let Some(tag) = waits {
            entry.waiting.push((self.seq, tag));
            let waiting = Waiting { seq: self.seq, stored: false, on_disk: false };
            self.waiting.insert(tag, waiting);
            self.new.push((tag, self.seq));
        }
        before
    }

    /// A registration was refused by another store: nobody waits for it any more.
    pub fn cancel(&mut self, tag: CommitTag) {
        self.waiting.remove(&tag);
    }

    /// The disk has a registration, or has failed to take it. Returns whether it is over: the disk was the last to take
    /// it.
    pub fn on_disk(&mut self, tag: CommitTag, ok: bool) -> bool {
        let Some(waiting) = self.waiting.get_mut(&tag) else { return false };
        waiting.on_disk = true;
        let is_over = waiting.stored || !ok;
        if is_over {
            self.waiting.remove(&tag);
        }
        is_over
    }

    /// Sets the deadline of registrations that have come since the last call.
    pub fn date(&mut self, now: Time) {
        let deadlines = self.new.drain(..).map(|(tag, seq)| (now + COMMIT_LIMIT, tag, seq));
        self.deadlines.extend(deadlines);
    }

    /// Fails the registrations whose deadline has passed. Returns how many there were.
    pub fn overdue(&mut self, now: Time, outcomes: &mut Vec<Outcome>) -> usize {
        let mut count = 0;
        while self.deadlines.front().is_some_and(|(deadline, ..)| *deadline <= now) {
            let Some((_, tag, seq)) = self.deadlines.pop_front() else { break };
            if self.waiting.get(&tag).is_some_and(|w| w.seq == seq && !w.stored) {
                self.waiting.remove(&tag);
                outcomes.push((tag, false));
                count += 1;
            }
        }
        count
    }

    /// Returns the time of the next deadline.
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.front().map(|(deadline, ..)| *deadline)
    }

    /// Fails all registrations that the database does not have.
    pub fn fail_all(&mut self, outcomes: &mut Vec<Outcome>) {
        self.waiting.retain(|tag, waiting| {
            if !waiting.stored {
                outcomes.push((*tag, false));
            }
            waiting.stored
        });
        self.deadlines.clear();
        self.new.clear();
    }

    /// Has all users sent once more: the database may have lost them.
    pub fn send_again(&mut self) {
        self.again.after = Some(Bound::Unbounded);
    }

    /// Returns the time at which something is to be sent.
    pub fn next_change(&self) -> Option<Time> {
        let is_now = !self.queue.is_empty() || self.again.after.is_some();
        if is_now { Some(Time::ZERO) } else { self.unusable.front().map(|(at, _)| *at) }
    }

    /// Has users sent again whose key could not be used some time ago.
    fn retry_unusable(&mut self, now: Time) {
        while self.unusable.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, name)) = self.unusable.pop_front() else { break };
            let Some(user) = self.users.get_mut(&name) else { continue };
            user.unusable = false;
            if !user.queued {
                user.queued = true;
                self.queue.push_back(name);
            }
        }
    }

    /// Begins a batch, unless one is under way or there is nothing to send.
    pub fn begin(&mut self, now: Time) -> Option<Vec<Publication>> {
        if !self.sent.is_empty() {
            return None;
        }
        self.retry_unusable(now);
        let mut batch = Vec::new();
        while batch.len() < MAX_BATCH
            && let Some(name) = self.queue.pop_front()
        {
            if let Some(user) = self.users.get_mut(&name) {
                user.queued = false;
                batch.push(user.publication(now, &name));
            }
        }
        self.repair(now, &mut batch);
        self.sent = batch.iter().map(|p| (p.user.clone(), p.seq)).collect();
        (!batch.is_empty()).then_some(batch)
    }

    /// Adds to a batch what is sent again.
    fn repair(&mut self, now: Time, batch: &mut Vec<Publication>) {
        let Some(after) = self.again.after.clone() else { return };
        self.again.began = Some(now);
        let room = self.again.count.min(MAX_BATCH - batch.len());
        let mut rest = self.users.range((after, Bound::Unbounded));
        for (name, user) in rest.by_ref().take(room) {
            self.again.after = Some(Bound::Excluded(name.clone()));
            if !user.queued && batch.iter().all(|p| p.user != *name) {
                batch.push(user.publication(now, name));
            }
        }
        if rest.next().is_none() {
            self.again.after = None;
        }
    }

    /// Ends the batch under way. `results` has what became of each change, in order. Registrations are acknowledged that
    /// `replicas` have. Returns the users whose key cannot be used.
    pub fn end(
        &mut self,
        now: Time,
        results: &[Written],
        replicas: u32,
        outcomes: &mut Vec<Outcome>,
    ) -> Vec<Box<[u8]>> {
        self.again.adapt(now);
        let mut unusable = Vec::new();
        for (i, (name, seq)) in std::mem::take(&mut self.sent).into_iter().enumerate() {
            let result = results.get(i).copied().unwrap_or(Written::Failed);
            let Some(user) = self.users.get_mut(&name) else { continue };
            let mut over = Vec::new();
            // What was outrun is published by a later number of this run, if there is time.
            if !matches!(result, Written::Outrun { .. }) {
                let rest;
                (over, rest) = user.waiting.drain(..).partition(|(waits, _)| *waits <= seq);
                user.waiting = rest;
            }
            let is_over = user.q.is_none() && user.seq == seq;
            match result {
                Written::Stored(_) if is_over => drop(self.users.remove(&name)),
                Written::Stored(_) => {}
                Written::Unusable => {
                    unusable.push(name.clone());
                    if is_over {
                        self.users.remove(&name);
                    } else if !user.unusable {
                        user.unusable = true;
                        self.unusable.push_back((now + UNUSABLE_PAUSE, name));
                    }
                }
                Written::Outrun { .. } | Written::Failed if user.queued => {}
                Written::Outrun { .. } | Written::Failed => {
                    user.queued = true;
                    self.queue.push_back(name);
                }
            }
            let ok = matches!(result, Written::Stored(have) if have >= replicas);
            for (seq, tag) in over {
                self.settle(tag, seq, ok, outcomes);
            }
        }
        unusable
    }

    fn settle(&mut self, tag: CommitTag, seq: u64, ok: bool, outcomes: &mut Vec<Outcome>) {
        let Some(waiting) = self.waiting.get_mut(&tag).filter(|w| w.seq == seq) else { return };
        waiting.stored = true;
        if waiting.on_disk || !ok {
            self.waiting.remove(&tag);
            outcomes.push((tag, ok));
        }
    }

    /// Returns the number of users.
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// Returns whether there is no user.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Returns the number of registrations that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

impl User {
    fn publication(&self, now: Time, name: &[u8]) -> Publication {
        let (q, lifetime) = match self.q.filter(|_| now < self.ends) {
            Some(q) => (Some(q), self.ends - now),
            None => (None, REMOVED),
        };
        Publication { user: name.into(), seq: self.seq, lifetime, q }
    }
}

#[cfg(test)]
mod tests {
    use ringway_sansio::Duration;

    use super::*;

    #[test]
    fn a_repair_is_made_in_smaller_parts_while_the_database_is_slow() {
        let mut own = Own::default();
        let mut now = Time::from_secs(1000);
        for i in 0..3000 {
            own.change(format!("user{i:04}").as_bytes(), Some((1000, now + REMOVED)), None);
        }
        // Returns the number of users in the next batch, which takes this long.
        let mut batch = |own: &mut Own, time: Duration| {
            let count = own.begin(now).map_or(0, |batch| batch.len());
            now += time;
            own.end(now, &vec![Written::Stored(1); count], 1, &mut Vec::new());
            count
        };
        let (fast, slow) = (REPAIR_TIME, REPAIR_TIME * 2);
        while own.next_change().is_some() {
            // What is new does not wait: nobody knows it.
            assert!(batch(&mut own, slow) >= 3000 % MAX_BATCH);
        }
        own.send_again();
        let counts = [fast, fast, slow, slow, slow, fast].map(|time| batch(&mut own, time));
        assert_eq!(counts, [16, 24, 32, 16, 8, 4]);
        let (mut sum, mut largest) = (counts.iter().sum::<usize>(), 0);
        while own.next_change().is_some() {
            let count = batch(&mut own, fast);
            (sum, largest) = (sum + count, largest.max(count));
        }
        assert_eq!(sum, 3000, "each user once");
        assert!(largest > 150, "{largest}");
        own.send_again();
        while own.next_change().is_some() {
            assert!(batch(&mut own, slow) > 0, "however slow, it goes on");
        }
    }
}
