//! The users of this node, and what of them is not in the database yet.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use ringway_proxy::location::CommitTag;
use ringway_sansio::Time;

use crate::config::{
    COMMIT_LIMIT, FIRST_REPAIR, MAX_BATCH, MAX_LOOKED, REMOVED, REPAIR_STEP, REPAIR_TIME,
    UNUSABLE_PAUSE,
};
use crate::exchange::Written;
use crate::presence::{Phones, Presence};
use crate::record::Publication;
use crate::shards::{Queue, Shards};
use crate::slots::{Shard, slot_of_user};

/// What becomes of a registration: whether it is stored.
pub type Outcome = (CommitTag, bool);

/// A user of a batch, and the number of the change that it has.
type Sent = (Box<[u8]>, u64);

/// The users of this node. At most one batch of changes is under way at each shard.
#[derive(Default)]
pub struct Own {
    users: BTreeMap<Box<[u8]>, User>,
    /// Users with a change that was not sent.
    queue: Queue,
    /// Users whose key has what is not ours, and when they are tried again, in order.
    unusable: VecDeque<(Time, Box<[u8]>)>,
    /// The users of the batches under way.
    sent: BTreeMap<Shard, Vec<Sent>>,
    again: BTreeMap<Shard, Again>,
    /// Number of the last change.
    seq: u64,
    waiting: BTreeMap<CommitTag, Waiting>,
    /// Deadlines, the earliest first. A tag that was used again belongs to another change.
    deadlines: VecDeque<(Time, CommitTag, u64)>,
    /// Registrations that have no deadline yet.
    new: Vec<(CommitTag, u64)>,
}

/// The repair of a shard: all of its users are sent once more.
struct Again {
    /// The last user that was looked at, while it goes on.
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
    /// The slot.
    slot: u16,
    /// What there is of the user here; `None` if nothing is any more.
    state: Option<Presence>,
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
    /// The slot of the user.
    slot: u16,
    /// Whether its slot has moved since it came.
    moved: bool,
    /// Whether the database has it.
    stored: bool,
    /// Whether the disk has it.
    on_disk: bool,
}

impl Own {
    /// A user has bindings, or none. `waits` is the registration that is to be acknowledged
    /// when the database has it, and the disk. Returns the state before.
    pub fn change(
        &mut self,
        user: &[u8],
        state: Option<Presence>,
        waits: Option<CommitTag>,
    ) -> Option<Presence> {
        self.seq += 1;
        if !self.users.contains_key(user) {
            let slot = slot_of_user(user);
            let waiting = Vec::new();
            let new = User { slot, state: None, seq: 0, queued: false, unusable: false, waiting };
            self.users.insert(user.into(), new);
        }
        let entry = self.users.get_mut(user)?;
        let before = std::mem::replace(&mut entry.state, state);
        entry.seq = self.seq;
        if !entry.queued {
            entry.queued = true;
            self.queue.push(user.into());
        }
        if let Some(tag) = waits {
            entry.waiting.push((self.seq, tag));
            let slot = entry.slot;
            let waiting =
                Waiting { seq: self.seq, slot, moved: false, stored: false, on_disk: false };
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

    /// Fails the registrations whose deadline has passed. Returns the slots of their users.
    pub fn overdue(&mut self, now: Time, outcomes: &mut Vec<Outcome>) -> BTreeSet<u16> {
        let mut slots = BTreeSet::new();
        while self.deadlines.front().is_some_and(|(deadline, ..)| *deadline <= now) {
            let Some((_, tag, seq)) = self.deadlines.pop_front() else { break };
            if let Some(late) = self.waiting.get(&tag).filter(|w| w.seq == seq && !w.stored) {
                // Its shard has answered that another has the slot, and that is not known yet, or does not answer.
                if !late.moved {
                    slots.insert(late.slot);
                }
                self.waiting.remove(&tag);
                outcomes.push((tag, false));
            }
        }
        slots
    }

    /// Returns the time of the next deadline.
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.front().map(|(deadline, ..)| *deadline)
    }

    /// A shard is absent: fails the registrations that are under way there. Those that wait for it fail when they are sorted.
    pub fn fail(&mut self, shard: &Shard, outcomes: &mut Vec<Outcome>) {
        self.unsort();
        let sent = self.sent.get(shard).into_iter().flatten();
        for name in sent.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.refuse(&name, outcomes);
        }
    }

    /// Fails the registrations of a user that the database does not have.
    fn refuse(&mut self, name: &[u8], outcomes: &mut Vec<Outcome>) {
        let Some(user) = self.users.get_mut(name) else { return };
        for (seq, tag) in std::mem::take(&mut user.waiting) {
            self.settle(tag, seq, false, outcomes);
        }
    }

    /// The shards have changed, or what they are.
    pub fn unsort(&mut self) {
        self.queue.unsort();
    }

    /// Has all users of these shards sent once more: the database may have lost them.
    pub fn send_again(&mut self, shards: &[Shard]) {
        for shard in shards {
            self.again.entry(shard.clone()).or_default().after = Some(Bound::Unbounded);
        }
    }

    /// Slots have moved between these shards. A repair that has not come to their users yet goes on where they are now; what is
    /// under way comes back as moved.
    pub fn moved(&mut self, between: &BTreeSet<(Shard, Shard)>) {
        for (from, to) in between {
            let Some(after) = self.again.get(from).and_then(|again| again.after.clone()) else {
                continue;
            };
            let there = &mut self.again.entry(to.clone()).or_default().after;
            let is_first = |now: &Bound<Box<[u8]>>| match (&after, now) {
                (_, Bound::Unbounded) => false,
                (Bound::Unbounded, _) => true,
                (
                    Bound::Excluded(one) | Bound::Included(one),
                    Bound::Excluded(other) | Bound::Included(other),
                ) => one < other,
            };
            if there.as_ref().is_none_or(is_first) {
                *there = Some(after);
            }
        }
    }

    /// Returns the time of the next call of [`Own::sort`], whatever the shards do.
    pub fn next_change(&self) -> Option<Time> {
        self.unusable.front().map(|(at, _)| *at)
    }

    /// Returns whether nothing is to be sent to a shard.
    pub fn has_nothing_for(&self, shard: &Shard) -> bool {
        let is_repaired = self.again.get(shard).is_none_or(|again| again.after.is_none());
        is_repaired && self.queue.is_empty(shard)
    }

    /// Has users sent again whose key could not be used some time ago.
    fn retry_unusable(&mut self, now: Time) {
        while self.unusable.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, name)) = self.unusable.pop_front() else { break };
            let Some(user) = self.users.get_mut(&name) else { continue };
            user.unusable = false;
            if !user.queued {
                user.queued = true;
                self.queue.push(name);
            }
        }
    }

    /// Sorts what is to be sent by shard, and drops the repair of those that are no more. What is for an absent one fails, and
    /// is sent with all users when that is there.
    pub fn sort(&mut self, now: Time, shards: &Shards, outcomes: &mut Vec<Outcome>) {
        self.retry_unusable(now);
        self.again.retain(|shard, again| again.began.is_some() || shards.has_slots(shard));
        for name in self.queue.sort(shards) {
            if let Some(user) = self.users.get_mut(&name) {
                user.queued = false;
            }
            self.refuse(&name, outcomes);
        }
    }

    /// Begins a batch for a shard, unless one is under way or there is nothing to send.
    pub fn begin(&mut self, now: Time, shard: &Shard, shards: &Shards) -> Option<Vec<Publication>> {
        if self.sent.contains_key(shard) {
            return None;
        }
        let mut batch: Vec<Publication> = Vec::new();
        while batch.len() < MAX_BATCH
            && let Some(name) = self.queue.pop(shard)
        {
            if let Some(user) = self.users.get_mut(&name) {
                user.queued = false;
                batch.push(user.publication(now, &name));
            }
        }
        self.repair(now, shard, shards, &mut batch);
        if batch.is_empty() {
            return None;
        }
        let sent = batch.iter().map(|p| (p.user.clone(), p.seq)).collect();
        self.sent.insert(shard.clone(), sent);
        Some(batch)
    }

    /// Adds to a batch what is sent again.
    fn repair(&mut self, now: Time, shard: &Shard, shards: &Shards, batch: &mut Vec<Publication>) {
        let Some(again) = self.again.get_mut(shard) else { return };
        let Some(mut after) = again.after.take() else { return };
        let end = MAX_BATCH.min(batch.len() + again.count);
        let mut rest = self.users.range((after.clone(), Bound::Unbounded)).peekable();
        let mut looked = 0;
        while batch.len() < end
            && looked < MAX_LOOKED
            && let Some((name, user)) = rest.next()
        {
            looked += 1;
            after = Bound::Excluded(name.clone());
            let is_here = !user.queued && shards.of(user.slot) == Some(shard);
            if is_here && batch.iter().all(|p| p.user != *name) {
                batch.push(user.publication(now, name));
            }
        }
        again.after = rest.peek().is_some().then_some(after);
        again.began = (!batch.is_empty()).then_some(now);
    }

    /// Ends the batch under way at a shard. `results` has what became of each change, in order. Registrations are acknowledged that
    /// `replicas` have. Returns the users whose key cannot be used.
    pub fn end(
        &mut self,
        now: Time,
        shard: &Shard,
        results: &[Written],
        replicas: u32,
        outcomes: &mut Vec<Outcome>,
    ) -> Vec<Box<[u8]>> {
        let mut unusable = Vec::new();
        if let Some(again) = self.again.get_mut(shard) {
            again.adapt(now);
        }
        let sent = self.sent.remove(shard).unwrap_or_default();
        for (i, (name, seq)) in sent.into_iter().enumerate() {
            let result = results.get(i).copied().unwrap_or(Written::Failed);
            let Some(user) = self.users.get_mut(&name) else { continue };
            let mut over = Vec::new();
            // What was outrun is published by a later number of this run, and what has moved where it is now, if there is
            // time.
            if !matches!(result, Written::Outrun { .. } | Written::Moved) {
                let rest;
                (over, rest) = user.waiting.drain(..).partition(|(waits, _)| *waits <= seq);
                user.waiting = rest;
            }
            if result == Written::Moved {
                for (_, tag) in &user.waiting {
                    if let Some(waiting) = self.waiting.get_mut(tag) {
                        waiting.moved = true;
                    }
                }
            }
            let is_over = user.state.is_none() && user.seq == seq;
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
                Written::Outrun { .. } | Written::Moved | Written::Failed if user.queued => {}
                Written::Outrun { .. } | Written::Moved | Written::Failed => {
                    user.queued = true;
                    self.queue.push(name);
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

    /// Returns whether a user has bindings here.
    pub fn has(&self, user: &[u8]) -> bool {
        self.users.get(user).is_some_and(|user| user.state.is_some())
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
        let (user, seq) = (name.into(), self.seq);
        match self.state.as_ref().filter(|state| now < state.ends) {
            Some(Presence { q, ends, phones }) => {
                let (q, lifetime, phones) = (Some(*q), *ends - now, phones.clone());
                Publication { user, seq, lifetime, q, phones }
            }
            None => {
                Publication { user, seq, lifetime: REMOVED, q: None, phones: Phones::unknown() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ringway_sansio::Duration;

    use super::*;
    use crate::exchange::State;
    use crate::slots::{Range, Slots};

    #[test]
    fn a_repair_is_made_in_smaller_parts_while_the_database_is_slow() {
        let mut own = Own::default();
        let (shard, mut shards) = (Shard::whole(), Shards::new(Slots::whole()));
        shards.get_mut(&shard).unwrap().state = State::Ready;
        let mut now = Time::from_secs(1000);
        for i in 0..3000 {
            own.change(
                format!("user{i:04}").as_bytes(),
                Some(Presence::new(1000, now + REMOVED)),
                None,
            );
        }
        // Returns the number of users in the next batch, which takes this long.
        own.sort(now, &shards, &mut Vec::new());
        let mut batch = |own: &mut Own, time: Duration| {
            let count = own.begin(now, &shard, &shards).map_or(0, |batch| batch.len());
            now += time;
            own.end(now, &shard, &vec![Written::Stored(1); count], 1, &mut Vec::new());
            count
        };
        let (fast, slow) = (REPAIR_TIME, REPAIR_TIME * 2);
        while !own.has_nothing_for(&shard) {
            // What is new does not wait: nobody knows it.
            assert!(batch(&mut own, slow) >= 3000 % MAX_BATCH);
        }
        own.send_again(std::slice::from_ref(&shard));
        let counts = [fast, fast, slow, slow, slow, fast].map(|time| batch(&mut own, time));
        assert_eq!(counts, [16, 24, 32, 16, 8, 4]);
        let (mut sum, mut largest) = (counts.iter().sum::<usize>(), 0);
        while !own.has_nothing_for(&shard) {
            let count = batch(&mut own, fast);
            (sum, largest) = (sum + count, largest.max(count));
        }
        assert_eq!(sum, 3000, "each user once");
        assert!(largest > 150, "{largest}");
        own.send_again(std::slice::from_ref(&shard));
        while !own.has_nothing_for(&shard) {
            assert!(batch(&mut own, slow) > 0, "however slow, it goes on");
        }
    }
    /// Two shards, of which the second has the slots from `split` on; one alone if that is the first slot.
    fn halves(split: i64) -> Slots {
        let shard = |port| Shard::new("10.0.0.1", port).unwrap();
        let range = |first, last, port| Range { first, last, primary: shard(port) };
        let ranges = [range(0, split - 1, 1), range(split, 16_383, 2)];
        Slots::new(1, ranges.into_iter().filter(|range| range.first <= range.last).collect())
            .unwrap()
    }

    fn present(slots: Slots) -> Shards {
        let mut shards = Shards::new(slots);
        for shard in shards.names().iter() {
            shards.get_mut(shard).unwrap().state = State::Ready;
        }
        shards
    }

    /// Sends what is to be sent to all shards; the users.
    fn send_all(own: &mut Own, shards: &Shards, now: Time) -> BTreeSet<Box<[u8]>> {
        let mut users = BTreeSet::new();
        own.sort(now, shards, &mut Vec::new());
        for shard in shards.names().iter() {
            while !own.has_nothing_for(shard) {
                let batch = own.begin(now, shard, shards).unwrap_or_default();
                users.extend(batch.iter().map(|p| p.user.clone()));
                own.end(now, shard, &vec![Written::Stored(1); batch.len()], 1, &mut Vec::new());
            }
        }
        users
    }

    #[test]
    fn a_repair_goes_on_where_slots_have_moved() {
        let now = Time::from_secs(1000);
        // All slots of the first, or a part of them.
        for split in [0, 4000] {
            let mut own = Own::default();
            let mut shards = present(halves(8000));
            for i in 0..500 {
                own.change(
                    format!("user{i:04}").as_bytes(),
                    Some(Presence::new(1000, now + REMOVED)),
                    None,
                );
            }
            send_all(&mut own, &shards, now);
            let first = shards.names()[0].clone();
            own.send_again(std::slice::from_ref(&first));
            let begun: BTreeSet<_> =
                own.begin(now, &first, &shards).unwrap().into_iter().map(|p| p.user).collect();
            assert_eq!(begun.len(), FIRST_REPAIR);
            let results = vec![Written::Stored(1); begun.len()];
            own.end(now, &first, &results, 1, &mut Vec::new());
            let of_first: Vec<Box<[u8]>> = own
                .users
                .iter()
                .filter(|(_, user)| shards.of(user.slot) == Some(&first))
                .map(|(name, _)| name.clone())
                .collect();
            let replaced = shards.replace(now, halves(split)).unwrap();
            assert!(!replaced.comes_back);
            own.unsort();
            own.moved(&replaced.moved);
            let sent = send_all(&mut own, &shards, now);
            let missed: Vec<_> =
                of_first.iter().filter(|u| !begun.contains(*u) && !sent.contains(*u)).collect();
            assert!(missed.is_empty(), "{} users from slot {split} on", missed.len());
        }
    }

    #[test]
    fn a_repair_looks_at_few_users_at_a_time() {
        let now = Time::from_secs(1000);
        let mut own = Own::default();
        let shards = present(halves(16_383));
        // The last slot has one user at most of these.
        for i in 0..3 * MAX_LOOKED {
            own.change(
                format!("user{i:06}").as_bytes(),
                Some(Presence::new(1000, now + REMOVED)),
                None,
            );
        }
        send_all(&mut own, &shards, now);
        let last = shards.names()[1].clone();
        own.send_again(std::slice::from_ref(&last));
        let mut turns = 0;
        while !own.has_nothing_for(&last) {
            turns += 1;
            let count = own.begin(now, &last, &shards).map_or(0, |batch| batch.len());
            own.end(now, &last, &vec![Written::Stored(1); count], 1, &mut Vec::new());
        }
        assert!(turns >= 3, "{turns}");
    }

    #[test]
    fn a_registration_whose_slot_has_moved_is_not_the_fault_of_its_shard() {
        let now = Time::from_secs(1000);
        let mut own = Own::default();
        let (shard, mut shards) = (Shard::whole(), Shards::new(Slots::whole()));
        shards.get_mut(&shard).unwrap().state = State::Ready;
        for (i, result) in [Written::Moved, Written::Failed].into_iter().enumerate() {
            let tag = CommitTag { worker: 0, id: i as u64 };
            own.change(
                format!("user{i}").as_bytes(),
                Some(Presence::new(1000, now + REMOVED)),
                Some(tag),
            );
            own.date(now);
            own.sort(now, &shards, &mut Vec::new());
            own.begin(now, &shard, &shards).unwrap();
            if result == Written::Moved {
                own.end(now, &shard, &[result], 1, &mut Vec::new());
                let mut outcomes = Vec::new();
                assert!(own.overdue(now + COMMIT_LIMIT, &mut outcomes).is_empty());
                assert_eq!(outcomes, [(tag, false)]);
                own.begin(now, &shard, &shards);
                own.end(now, &shard, &[Written::Stored(1)], 1, &mut Vec::new());
            } else {
                assert_eq!(own.overdue(now + COMMIT_LIMIT, &mut Vec::new()).len(), 1);
            }
        }
    }
}
