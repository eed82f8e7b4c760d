//! The calls that are recorded, and the users in each.

use super::{Dialog, Direction, MAX_CALL, MAX_CALLS, Phase};
use crate::keys::Keyed;
use hashbrown::HashMap;
use ringway_sansio::{Duration, Time};
use slab::Slab;
use smallvec::SmallVec;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

/// Shortest interval at which the table is searched for calls whose end nobody has seen.
const SEARCH_EVERY: Duration = Duration::from_secs(60);

/// A user in a call.
#[derive(Debug)]
pub(super) struct Party {
    pub aor: Arc<[u8]>,
    pub direction: Direction,
}

/// A call.
#[derive(Debug)]
pub(super) struct Call {
    key: u64,
    id: u32,
    pub phase: Phase,
    pub since: Time,
    pub parties: SmallVec<[Party; 2]>,
}

impl Call {
    /// Returns whether it is shown at `now`.
    pub(super) fn is_live(&self, now: Time) -> bool {
        now.since(self.since) < MAX_CALL
    }

    /// Returns whether a user is in it.
    pub(super) fn has(&self, aor: &[u8]) -> bool {
        self.parties.iter().any(|party| *party.aor == *aor)
    }

    /// Returns the dialog of a user.
    pub(super) fn dialog_of(&self, aor: &[u8]) -> Option<Dialog> {
        let party = self.parties.iter().find(|party| *party.aor == *aor)?;
        Some(Dialog { id: self.id, direction: party.direction, phase: self.phase })
    }
}

/// At most [`MAX_CALLS`] calls, each with a key and an index.
#[derive(Debug)]
pub(super) struct Calls {
    calls: Slab<Call>,
    by_key: HashMap<u64, usize, Keyed>,
    next_search: Time,
}

impl Calls {
    pub(super) fn new(keyed: Keyed) -> Calls {
        let by_key = HashMap::with_hasher(keyed);
        Calls { calls: Slab::new(), by_key, next_search: Time::ZERO }
    }

    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= MAX_CALLS
    }

    /// Returns the index of the call with a key.
    pub(super) fn find(&self, key: u64) -> Option<usize> {
        self.by_key.get(&key).copied()
    }

    /// Adds a call without users, whose key no other has. Returns its index.
    pub(super) fn add(&mut self, now: Time, key: u64) -> usize {
        let (id, phase, parties) = ((key >> 32) as u32, Phase::Trying, SmallVec::new());
        let index = self.calls.insert(Call { key, id, phase, since: now, parties });
        self.by_key.insert(key, index);
        index
    }

    /// Changes the key of a call, unless another call has the new one. Returns the index of the call.
    pub(super) fn rename(&mut self, key: u64, to: u64) -> Option<usize> {
        let index = self.find(key)?;
        if key != to && self.find(to).is_none() {
            self.by_key.remove(&key);
            self.by_key.insert(to, index);
            self.calls[index].key = to;
        }
        Some(index)
    }

    /// Removes and returns a call.
    pub(super) fn remove(&mut self, index: usize) -> Call {
        let call = self.calls.remove(index);
        self.by_key.remove(&call.key);
        call
    }

    /// Returns the indices of calls that have exceeded [`MAX_CALL`], at most once in a minute.
    pub(super) fn take_dead(&mut self, now: Time) -> Vec<usize> {
        if now < self.next_search {
            return Vec::new();
        }
        self.next_search = now + SEARCH_EVERY;
        let dead = self.calls.iter().filter(|(_, call)| !call.is_live(now));
        dead.map(|(index, _)| index).collect()
    }
}

impl Index<usize> for Calls {
    type Output = Call;

    fn index(&self, index: usize) -> &Call {
        &self.calls[index]
    }
}

impl IndexMut<usize> for Calls {
    fn index_mut(&mut self, index: usize) -> &mut Call {
        &mut self.calls[index]
    }
}
