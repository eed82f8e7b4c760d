//! The shards of the database: which are there, and what waits for each.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use ringway_sansio::Time;

use crate::config::{RENEW_LIMIT, STALE_MAP};
use crate::exchange::State;
use crate::slots::{Shard, Slots, slot_of_leases, slot_of_user};

/// A command under way, or the time of the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lane {
    /// None is under way.
    Idle {
        /// Time from which the next may begin.
        next: Time,
    },
    /// One is.
    Busy {
        /// When it began.
        since: Time,
        /// Whether it was reported as late.
        late: bool,
    },
}

impl Lane {
    /// A lane on which a command may begin at any time.
    pub const READY: Lane = Lane::Idle { next: Time::ZERO };

    /// Returns whether a command may begin.
    pub fn may_begin(self, now: Time) -> bool {
        matches!(self, Lane::Idle { next } if next <= now)
    }

    /// Returns whether the command under way is late for the first time.
    pub fn is_late(&mut self, now: Time) -> bool {
        match self {
            Lane::Busy { since, late } if !*late && *since + RENEW_LIMIT <= now => {
                *late = true;
                true
            }
            _ => false,
        }
    }

    /// Returns the time at which the next command begins, or the one under way is late.
    pub fn next(self) -> Option<Time> {
        match self {
            Lane::Idle { next } => Some(next),
            Lane::Busy { since, late: false } => Some(since + RENEW_LIMIT),
            Lane::Busy { late: true, .. } => None,
        }
    }

    /// Has the next command begin at this time at the latest, if none is under way.
    pub fn hasten(&mut self, latest: Time) {
        if let Lane::Idle { next } = self {
            *next = (*next).min(latest);
        }
    }
}

/// One shard.
pub struct Entry {
    /// Its state.
    pub state: State,
    /// Whether that was reported: what is absent at the start is, when that is certain.
    pub reported: bool,
    /// Probes. The renewal of the lease is that of its shard.
    pub probe: Lane,
    /// Number of probes.
    pub probes: u64,
    /// Changes.
    pub publish: Lane,
    /// Reads.
    pub read: Lane,
    /// The epoch in which the read under way began.
    pub read_epoch: Option<u64>,
}

impl Entry {
    fn new() -> Entry {
        Entry {
            state: State::Absent,
            reported: false,
            probe: Lane::READY,
            probes: 0,
            publish: Lane::READY,
            read: Lane::READY,
            read_epoch: None,
        }
    }

    fn is_busy(&self) -> bool {
        [self.probe, self.publish, self.read].iter().any(|lane| matches!(lane, Lane::Busy { .. }))
    }
}

/// What a new map of slots has changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replaced {
    /// Whether users have a shard that is there who had none.
    pub comes_back: bool,
    /// The shards of slots that have moved: the one before, and the one now.
    pub moved: BTreeSet<(Shard, Shard)>,
}

/// All shards.
pub struct Shards {
    slots: Slots,
    /// Those that have slots, and those that had some and have a command under way.
    entries: BTreeMap<Shard, Entry>,
    lease_slot: u16,
    /// When the map in use, or one like it, was read.
    read: Time,
}

impl Shards {
    /// Returns the shards of a map, which are not known to be there.
    pub fn new(slots: Slots) -> Shards {
        let entries = slots.shards().iter().map(|shard| (shard.clone(), Entry::new())).collect();
        Shards { slots, entries, lease_slot: slot_of_leases(), read: Time::ZERO }
    }

    /// Returns the shard of a slot.
    pub fn of(&self, slot: u16) -> Option<&Shard> {
        self.slots.of(slot)
    }

    /// Returns the state of the shard of a slot.
    pub fn state(&self, slot: u16) -> State {
        let entry = self.slots.of(slot).and_then(|shard| self.entries.get(shard));
        entry.map_or(State::Absent, |entry| entry.state)
    }

    /// Returns the shard of a slot, if it is there.
    pub fn present(&self, slot: u16) -> Option<&Shard> {
        self.slots.of(slot).filter(|_| !self.state(slot).is_absent())
    }

    /// Returns the shard that has the leases.
    pub fn of_leases(&self) -> Option<&Shard> {
        self.of(self.lease_slot)
    }

    /// Returns whether the shard that has the leases is absent.
    pub fn leases_are_absent(&self) -> bool {
        self.state(self.lease_slot).is_absent()
    }

    /// Returns a shard.
    pub fn get_mut(&mut self, shard: &Shard) -> Option<&mut Entry> {
        self.entries.get_mut(shard)
    }

    /// Returns a slot of a shard for a probe, another each time.
    pub fn probe_slot(&mut self, shard: &Shard) -> Option<u16> {
        let entry = self.entries.get_mut(shard)?;
        entry.probes += 1;
        // A prime: slots that are moved one after the other are not probed so.
        self.slots.slot_of(shard, entry.probes * 4099)
    }

    /// Returns whether a shard has slots.
    pub fn has_slots(&self, shard: &Shard) -> bool {
        self.slots.shards().binary_search(shard).is_ok()
    }

    /// Returns whether a later run of this node has the lease.
    pub fn is_superseded(&self) -> bool {
        self.all().any(|(_, entry, _)| entry.state == State::Superseded)
    }

    /// Returns the shards that have slots.
    pub fn names(&self) -> Arc<[Shard]> {
        self.slots.shards().clone()
    }

    /// Returns the shards that have slots, with what is known of them, and whether they have the leases.
    pub fn all(&self) -> impl Iterator<Item = (&Shard, &Entry, bool)> {
        let lease = self.of_leases();
        let shards = self.slots.shards().iter();
        shards
            .filter_map(move |shard| Some((shard, self.entries.get(shard)?, lease == Some(shard))))
    }

    /// Takes over a map that was read. One that is older than that in use is ignored for a while: it comes from a server that
    /// was away. Returns what has changed, if slots have.
    pub fn replace(&mut self, now: Time, slots: Slots) -> Option<Replaced> {
        if slots.epoch() < self.slots.epoch() && now < self.read + STALE_MAP {
            return None;
        }
        self.read = now;
        let old = std::mem::replace(&mut self.slots, slots);
        if self.slots.is_as(&old) {
            return None;
        }
        for shard in self.slots.shards().iter() {
            self.entries.entry(shard.clone()).or_insert_with(Entry::new);
        }
        let is_absent = |slots: &Slots, slot| {
            let entry = slots.of(slot).and_then(|shard| self.entries.get(shard));
            entry.is_none_or(|entry| entry.state.is_absent())
        };
        let is_back = |slot| is_absent(&old, slot) && !is_absent(&self.slots, slot);
        let boundaries = || self.slots.boundaries().chain(old.boundaries());
        let comes_back = boundaries().any(is_back);
        let between = |slot| Some((old.of(slot)?.clone(), self.slots.of(slot)?.clone()));
        let moved = boundaries().filter_map(between).filter(|(from, to)| from != to).collect();
        self.clean();
        Some(Replaced { comes_back, moved })
    }

    /// Drops shards that have no slots, once nothing is under way there.
    pub fn clean(&mut self) {
        let has_slots = |shard: &Shard| self.slots.shards().binary_search(shard).is_ok();
        self.entries.retain(|shard, entry| has_slots(shard) || entry.is_busy());
    }

    /// Returns the state of the whole: a part that takes registrations is enough. `None` while nothing is certain.
    pub fn overall(&self) -> Option<State> {
        let mut best = None;
        let mut certain = true;
        for (_, entry, _) in self.all() {
            certain &= entry.reported;
            best = best.max(Some(entry.state));
        }
        best.filter(|state| certain || !state.is_absent())
    }

    /// Returns the number of shards, of those that take registrations, and of those that do not answer.
    pub fn count(&self) -> (usize, usize, usize) {
        let count = |is: fn(State) -> bool| self.all().filter(|(_, e, _)| is(e.state)).count();
        (self.slots.shards().len(), count(|s| s == State::Ready), count(State::is_absent))
    }
}

/// Users that wait for their shard, in order.
#[derive(Default)]
pub struct Queue {
    new: VecDeque<Box<[u8]>>,
    sorted: BTreeMap<Shard, VecDeque<Box<[u8]>>>,
}

impl Queue {
    /// Adds a user.
    pub fn push(&mut self, user: Box<[u8]>) {
        self.new.push_back(user);
    }

    /// Moves each user to the queue of the shard. Returns those whose shard is absent, who wait no more.
    pub fn sort(&mut self, shards: &Shards) -> Vec<Box<[u8]>> {
        let mut absent = Vec::new();
        for user in self.new.drain(..) {
            match shards.present(slot_of_user(&user)) {
                None => absent.push(user),
                Some(shard) => match self.sorted.get_mut(shard) {
                    Some(queue) => queue.push_back(user),
                    None => drop(self.sorted.insert(shard.clone(), [user].into())),
                },
            }
        }
        absent
    }

    /// The shards have changed, or what they are: all users are sorted again.
    pub fn unsort(&mut self) {
        let sorted = std::mem::take(&mut self.sorted).into_values().flatten();
        let new = std::mem::take(&mut self.new);
        self.new = sorted.chain(new).collect();
    }

    /// Takes the first user of a shard.
    pub fn pop(&mut self, shard: &Shard) -> Option<Box<[u8]>> {
        self.sorted.get_mut(shard)?.pop_front()
    }

    /// Returns whether nobody waits for a shard.
    pub fn is_empty(&self, shard: &Shard) -> bool {
        self.sorted.get(shard).is_none_or(VecDeque::is_empty)
    }
}
