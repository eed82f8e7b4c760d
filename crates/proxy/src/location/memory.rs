//! The table in memory.
//!
//! It is sharded by a keyed hash of the address-of-record, with a lock for each shard, so that workers hardly ever
//! contend. An entry is one boxed sequence of bytes (address-of-record, then the record of [`super::record`]) beside
//! two fields that save reading it. One is 32 bits of the hash, so that a shard can grow without touching a record. The
//! other is the second in which its first binding expires, so that the search for expired ones reads the table alone.
//!
//! A durable store wraps this table with a [`Journal`], and fills it at start by [`MemoryStore::load`].

use super::flows::FlowIndex;
use super::record::{self, BindingView, Bindings, RecordEdit};
use super::wire::CorruptRecord;
use super::{Change, Commit, CommitTag, LocationStore, MAX_AOR};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Slot;
use ringway_sansio::{Flow, FlowId, Time};
use siphasher::sip::SipHasher13;
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, TryLockError};

/// The number of parts of the table; a power of two.
const SHARDS: usize = 256;
const SHARD_BITS: u32 = SHARDS.trailing_zeros();
/// The number of slots visited under one lock by [`LocationStore::expire`].
const EXPIRE_STEP: usize = 256;
/// A shard's buffer for writing records is released when a record has made it larger than this.
const SCRATCH_KEEP: usize = 1024;
/// A shard with fewer buckets than this is not made smaller.
const SHRINK_ABOVE: usize = 64;

/// The receiver of all changes to a [`MemoryStore`], for a durable store.
pub trait Journal: Send + Sync {
    /// Records that the record of `aor` becomes `record` (`None`: it is removed). Called while the record is locked, in
    /// the order of the changes to one record, and before they are visible: it must only queue. `tag` identifies the
    /// change when it is reported as durable. A change without a tag (expiry, a closed flow) is not reported. With
    /// [`Commit::Refused`] the change is not made.
    fn record(&self, aor: &[u8], record: Option<&[u8]>, tag: Option<CommitTag>) -> Commit;
}

/// The listener for changes to watched records: receives the worker, the address-of-record and the reason. Called
/// without a lock held: it may read the store.
pub type Sink = Arc<dyn Fn(u8, &[u8], Change) + Send + Sync>;

/// Passes a change to the journal: the address-of-record and its new record.
type Ask<'a> = &'a mut dyn FnMut(&[u8], Option<&[u8]>) -> Commit;

type Workers = SmallVec<[u8; 8]>;

struct Entry {
    /// Length of the address-of-record (2), address-of-record, record.
    blob: Box<[u8]>,
    tag: u32,
    /// Seconds since the epoch, rounded down.
    earliest: u32,
}

struct Watched {
    aor: Box<[u8]>,
    tag: u32,
    workers: Workers,
}

#[derive(Default)]
struct Shard {
    table: HashTable<Entry>,
    contacts: usize,
    scratch: Vec<u8>,
    /// Empty in nearly every shard: an unwatched record costs one comparison.
    watched: HashTable<Watched>,
}

#[derive(Default)]
struct Cursor {
    shard: usize,
    bucket: usize,
    /// The number of slots of the shard at the last visit.
    buckets: usize,
}

/// The position of [`MemoryStore::list`]. Not valid for another table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListCursor {
    /// The part of the table.
    pub shard: u16,
    /// The last address-of-record visited in it, if any was.
    pub aor: Option<Box<[u8]>>,
}

/// Registrations in memory; see the module's description.
pub struct MemoryStore {
    key: [u8; 16],
    shards: Box<[RwLock<Shard>]>,
    flows: FlowIndex,
    cursor: Mutex<Cursor>,
    journal: Option<Box<dyn Journal>>,
    sink: OnceLock<Sink>,
}

impl MemoryStore {
    /// Returns an empty table. `key` keys the hash and must be random if peers are not trusted.
    pub fn new(key: [u8; 16]) -> Self {
        MemoryStore {
            key,
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            flows: FlowIndex::new(),
            cursor: Mutex::default(),
            journal: None,
            sink: OnceLock::new(),
        }
    }

    /// Returns an empty table that reports its changes to `journal`.
    pub fn with_journal(key: [u8; 16], journal: Box<dyn Journal>) -> Self {
        MemoryStore { journal: Some(journal), ..Self::new(key) }
    }

    /// Sets the listener for changes to watched records. Only the first call has an effect.
    pub fn set_sink(&self, sink: Sink) {
        let _ = self.sink.set(sink);
    }

    /// Loads a record that was passed to a [`Journal`], at start. Flows of an earlier process are not valid in this
    /// one: `revive` returns the present flow, if any, for an earlier one. Bindings that have expired or cannot exist
    /// without their flow are left out. Returns the number of bindings loaded; the journal is not called.
    pub fn load(
        &self,
        aor: &[u8],
        bytes: &[u8],
        now: Time,
        revive: &mut dyn FnMut(&Flow) -> Option<Flow>,
    ) -> Result<usize, CorruptRecord> {
        record::check(bytes)?;
        if aor.len() > MAX_AOR {
            let got = aor.len() as u64;
            return Err(CorruptRecord { at: 0, expected: "an address of at most 1024", got });
        }
        let mut kept = 0;
        self.change(aor, now, Change::Updated, &mut |_, _| Commit::Done, &mut |edit| {
            for binding in Bindings::new(bytes, now) {
                let flow = binding.flow.as_ref().and_then(&mut *revive);
                if flow.is_none() && binding.is_flow_bound() {
                    continue;
                }
                // What was within the limits when it was written is so now.
                if edit.put(&BindingView { flow, ..binding }).is_ok() {
                    kept += 1;
                }
            }
            edit.commit();
        });
        Ok(kept)
    }

    /// Visits the live bindings of up to `limit` addresses-of-record behind `after`, in an order that stays the same
    /// while the table exists. Returns the next position; `None` behind the end. A record that exists all the time is
    /// visited exactly once, whatever changes meanwhile. One part of the table is locked for reading at a time.
    pub fn list(
        &self,
        after: Option<&ListCursor>,
        limit: usize,
        now: Time,
        visit: &mut dyn FnMut(&[u8], &BindingView<'_>),
    ) -> Option<ListCursor> {
        let mut left = limit.max(1);
        let start = after.map_or(0, |cursor| usize::from(cursor.shard));
        for (index, shard) in self.shards.iter().enumerate().skip(start) {
            let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
            let seen =
                after.filter(|c| usize::from(c.shard) == index).and_then(|c| c.aor.as_deref());
            let unseen = |e: &&Entry| seen.is_none_or(|aor| e.aor() > aor);
            let mut entries: Vec<&Entry> = shard.table.iter().filter(unseen).collect();
            let cut = entries.len() > left;
            if cut {
                entries.select_nth_unstable_by(left, |a, b| a.aor().cmp(b.aor()));
                entries.truncate(left);
            }
            entries.sort_unstable_by(|a, b| a.aor().cmp(b.aor()));
            for entry in &entries {
                Bindings::new(entry.record(), now).for_each(|b| visit(entry.aor(), &b));
            }
            left -= entries.len();
            // There are fewer shards than a u16 counts.
            match entries.last() {
                Some(last) if cut => {
                    return Some(ListCursor { shard: index as u16, aor: Some(last.aor().into()) });
                }
                _ if left == 0 && index + 1 < SHARDS => {
                    return Some(ListCursor { shard: index as u16 + 1, aor: None });
                }
                _ => {}
            }
        }
        None
    }

    fn hash(&self, aor: &[u8]) -> u64 {
        SipHasher13::new_with_key(&self.key).hash(aor)
    }

    fn read(&self, hash: u64) -> std::sync::RwLockReadGuard<'_, Shard> {
        self.shards[shard_of(hash)].read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, shard: usize) -> std::sync::RwLockWriteGuard<'_, Shard> {
        self.shards[shard].write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes a record, as the only function that does: runs `edit`, asks `journal`, then makes the change.
    fn change(
        &self,
        aor: &[u8],
        now: Time,
        why: Change,
        journal: Ask<'_>,
        edit: &mut dyn FnMut(&mut RecordEdit<'_>),
    ) -> Commit {
        let hash = self.hash(aor);
        let tag = hash as u32;
        let mut guard = self.write(shard_of(hash));
        let shard = &mut *guard;
        let mut scratch = std::mem::take(&mut shard.scratch);
        let old = shard.table.find(spread(tag), |e| e.is(tag, aor)).map_or(&[][..], Entry::record);
        let outcome = rewrite(old, aor, now, &mut scratch, edit);
        let mut commit = Commit::Done;
        let mut workers = Workers::new();
        if let Some((count, earliest)) = outcome {
            let new = &scratch[2 + aor.len()..];
            commit = journal(aor, (count > 0).then_some(new));
            if commit != Commit::Refused {
                self.follow_flows(hash, old, if count > 0 { new } else { &[] });
                shard.contacts = shard.contacts + count - record::count(old);
                shard.set(tag, aor, &scratch, count, earliest);
                workers = shard.watchers(tag, aor);
            }
        }
        shard.keep_scratch(scratch);
        drop(guard);
        self.notify(&workers, aor, why);
        commit
    }

    fn notify(&self, workers: &[u8], aor: &[u8], why: Change) {
        if let Some(sink) = self.sink.get() {
            for &worker in workers {
                sink(worker, aor, why);
            }
        }
    }

    fn journal(&self, aor: &[u8], record: Option<&[u8]>, tag: Option<CommitTag>) -> Commit {
        self.journal.as_ref().map_or(Commit::Done, |j| j.record(aor, record, tag))
    }

    /// Updates the index of flows for a record that changes.
    fn follow_flows(&self, hash: u64, old: &[u8], new: &[u8]) {
        if !record::connected(old) && !record::connected(new) {
            return;
        }
        let connections = |bytes| {
            Bindings::new(bytes, Time::ZERO)
                .filter_map(|b| b.connection())
                .collect::<SmallVec<[FlowId; 4]>>()
        };
        let (before, after) = (connections(old), connections(new));
        for flow in before.iter().filter(|f| !after.contains(f)) {
            self.flows.remove(*flow, hash);
        }
        for flow in after.iter().filter(|f| !before.contains(f)) {
            self.flows.add(*flow, hash);
        }
    }

    /// Returns the addresses-of-record with this hash that have a binding over `flow`: nearly always one.
    fn holders(&self, hash: u64, flow: FlowId) -> SmallVec<[Box<[u8]>; 1]> {
        let tag = hash as u32;
        self.read(hash)
            .table
            .iter_hash(spread(tag))
            .filter(|e| e.tag == tag)
            .filter(|e| Bindings::new(e.record(), Time::ZERO).any(|b| b.connection() == Some(flow)))
            .map(|e| e.aor().into())
            .collect()
    }

    /// Removes the expired bindings of one record. Returns how many there were.
    fn expire_record(&self, aor: &[u8], now: Time) -> usize {
        let mut removed = 0;
        let mut journal = |aor: &[u8], bytes: Option<&[u8]>| self.journal(aor, bytes, None);
        let commit = self.change(aor, now, Change::Expired, &mut journal, &mut |edit| {
            let before = edit.stored();
            let mut live = 0;
            for binding in edit.current() {
                live += usize::from(edit.put(&binding).is_ok());
            }
            removed = before - live;
            if removed > 0 {
                edit.commit();
            }
        });
        if commit == Commit::Refused { 0 } else { removed }
    }
}

impl LocationStore for MemoryStore {
    fn lookup(&self, aor: &[u8], now: Time, visit: &mut dyn FnMut(&BindingView<'_>)) -> usize {
        let hash = self.hash(aor);
        let tag = hash as u32;
        let shard = self.read(hash);
        let Some(entry) = shard.table.find(spread(tag), |e| e.is(tag, aor)) else { return 0 };
        let mut count = 0;
        for binding in Bindings::new(entry.record(), now) {
            visit(&binding);
            count += 1;
        }
        count
    }

    fn update(
        &self,
        aor: &[u8],
        now: Time,
        tag: CommitTag,
        edit: &mut dyn FnMut(&mut RecordEdit<'_>),
    ) -> Commit {
        if aor.len() > MAX_AOR {
            return Commit::Refused;
        }
        let mut journal = |aor: &[u8], bytes: Option<&[u8]>| self.journal(aor, bytes, Some(tag));
        self.change(aor, now, Change::Updated, &mut journal, edit)
    }

    fn expire(&self, now: Time, budget: usize) -> usize {
        // One worker at a time; a second one has nothing to add.
        let mut cursor = match self.cursor.try_lock() {
            Ok(cursor) => cursor,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return 0,
        };
        let seconds = saturating_seconds(now);
        let (mut looked, mut removed, mut shards) = (0, 0, 0);
        while looked < budget && shards <= SHARDS {
            let step = EXPIRE_STEP.min(budget - looked);
            let mut due: SmallVec<[Box<[u8]>; 8]> = SmallVec::new();
            let guard = self.shards[cursor.shard].read().unwrap_or_else(PoisonError::into_inner);
            let end = guard.table.num_buckets();
            if end != cursor.buckets {
                // Growing and shrinking move entries: begin this shard again.
                *cursor = Cursor { bucket: 0, buckets: end, ..*cursor };
            }
            let stop = end.min(cursor.bucket + step);
            for bucket in cursor.bucket..stop {
                if let Some(entry) = guard.table.get_bucket(bucket)
                    && entry.earliest <= seconds
                {
                    due.push(entry.aor().into());
                }
            }
            drop(guard);
            // An empty shard counts too, or one call could visit empty shards forever.
            looked += stop.saturating_sub(cursor.bucket) + 1;
            for aor in &due {
                removed += self.expire_record(aor, now);
            }
            if stop >= end {
                *cursor = Cursor { shard: (cursor.shard + 1) % SHARDS, bucket: 0, buckets: 0 };
                shards += 1;
            } else {
                cursor.bucket = stop;
            }
        }
        removed
    }

    fn connections(&self, worker: u8, visit: &mut dyn FnMut(&Flow)) {
        for (flow, hash) in self.flows.of_worker(worker) {
            let tag = hash as u32;
            let part = self.read(hash);
            let entries = part.table.iter_hash(spread(tag)).filter(|e| e.tag == tag);
            let mut bindings = entries.flat_map(|e| Bindings::new(e.record(), Time::ZERO));
            let found = bindings.find(|binding| binding.connection() == Some(flow));
            if let Some(flow) = found.and_then(|binding| binding.flow) {
                visit(&flow);
            }
        }
    }

    fn flow_closed(&self, flow: FlowId, now: Time) -> usize {
        let mut touched = 0;
        for hash in self.flows.take(flow) {
            for aor in self.holders(hash, flow) {
                let mut journal = |aor: &[u8], bytes: Option<&[u8]>| {
                    // A connection does not outlive the process either: a binding that remains in the journal is left
                    // out when it is loaded.
                    self.journal(aor, bytes, None);
                    Commit::Done
                };
                self.change(&aor, now, Change::FlowClosed, &mut journal, &mut |edit| {
                    for binding in edit.current() {
                        let meant = binding.connection() == Some(flow);
                        touched += usize::from(meant);
                        if meant && binding.is_flow_bound() {
                            continue;
                        }
                        let flow = if meant { None } else { binding.flow };
                        // Never larger than the binding it replaces.
                        let _ = edit.put(&BindingView { flow, ..binding });
                    }
                    edit.commit();
                });
            }
        }
        touched
    }

    fn watch(&self, aor: &[u8], worker: u8) {
        let tag = self.hash(aor) as u32;
        let mut shard = self.write(shard_of(self.hash(aor)));
        let rehash = |w: &Watched| spread(w.tag);
        match shard.watched.entry(spread(tag), |w| w.tag == tag && *w.aor == *aor, rehash) {
            Slot::Occupied(mut slot) => {
                let workers = &mut slot.get_mut().workers;
                if !workers.contains(&worker) {
                    workers.push(worker);
                }
            }
            Slot::Vacant(slot) => {
                slot.insert(Watched {
                    aor: aor.into(),
                    tag,
                    workers: Workers::from_elem(worker, 1),
                });
            }
        }
    }

    fn unwatch(&self, aor: &[u8], worker: u8) {
        let hash = self.hash(aor);
        let tag = hash as u32;
        let mut shard = self.write(shard_of(hash));
        let found = shard.watched.find_entry(spread(tag), |w| w.tag == tag && *w.aor == *aor);
        let Ok(mut slot) = found else { return };
        slot.get_mut().workers.retain(|w| *w != worker);
        if slot.get().workers.is_empty() {
            slot.remove();
            if shard.watched.is_empty() {
                shard.watched = HashTable::new();
            }
        }
    }

    fn records(&self) -> usize {
        self.shards
            .iter()
            .map(|s| s.read().unwrap_or_else(PoisonError::into_inner).table.len())
            .sum()
    }

    fn contacts(&self) -> usize {
        self.shards.iter().map(|s| s.read().unwrap_or_else(PoisonError::into_inner).contacts).sum()
    }
}

/// Writes address-of-record and new record into `scratch`.
fn rewrite(
    old: &[u8],
    aor: &[u8],
    now: Time,
    scratch: &mut Vec<u8>,
    edit: &mut dyn FnMut(&mut RecordEdit<'_>),
) -> Option<(usize, Time)> {
    scratch.clear();
    scratch.extend_from_slice(&(aor.len() as u16).to_le_bytes());
    scratch.extend_from_slice(aor);
    let mut change = RecordEdit::new(old, now, scratch);
    edit(&mut change);
    change.finish()
}

impl Entry {
    fn is(&self, tag: u32, aor: &[u8]) -> bool {
        self.tag == tag && self.aor() == aor
    }

    fn split(&self) -> (&[u8], &[u8]) {
        // Every entry is written by `rewrite`, so the fallback is never taken.
        match *self.blob {
            [a, b, ref rest @ ..] => {
                rest.split_at_checked(u16::from_le_bytes([a, b]) as usize).unwrap_or((rest, &[]))
            }
            _ => (&[], &[]),
        }
    }

    fn aor(&self) -> &[u8] {
        self.split().0
    }

    fn record(&self) -> &[u8] {
        self.split().1
    }
}

impl Shard {
    /// Stores `blob` as the entry of `aor`; with `count` 0 removes the entry.
    fn set(&mut self, tag: u32, aor: &[u8], blob: &[u8], count: usize, earliest: Time) {
        let earliest = saturating_seconds(earliest);
        let entry = self.table.entry(spread(tag), |e| e.is(tag, aor), |e| spread(e.tag));
        match entry {
            Slot::Occupied(slot) if count == 0 => {
                slot.remove();
                self.shrink();
            }
            Slot::Occupied(mut slot) => {
                let entry = slot.get_mut();
                entry.earliest = earliest;
                // A refreshed entry nearly always has the same length.
                if entry.blob.len() == blob.len() {
                    entry.blob.copy_from_slice(blob);
                } else {
                    entry.blob = blob.into();
                }
            }
            Slot::Vacant(slot) if count > 0 => {
                slot.insert(Entry { blob: blob.into(), tag, earliest });
            }
            Slot::Vacant(_) => {}
        }
    }

    /// Releases memory once three quarters of the buckets are unused.
    fn shrink(&mut self) {
        if self.table.is_empty() {
            self.table = HashTable::new();
        } else if self.table.num_buckets() > SHRINK_ABOVE
            && self.table.len() * 8 < self.table.num_buckets()
        {
            self.table.shrink_to(self.table.len() * 2, |e| spread(e.tag));
        }
    }

    fn watchers(&self, tag: u32, aor: &[u8]) -> Workers {
        if self.watched.is_empty() {
            return Workers::new();
        }
        self.watched
            .find(spread(tag), |w| w.tag == tag && *w.aor == *aor)
            .map_or_else(Workers::new, |w| w.workers.clone())
    }

    fn keep_scratch(&mut self, scratch: Vec<u8>) {
        if scratch.capacity() <= SCRATCH_KEEP {
            self.scratch = scratch;
        }
    }
}

fn shard_of(hash: u64) -> usize {
    (hash >> (64 - SHARD_BITS)) as usize
}

/// Returns the hash for the hash table. Its top bits distinguish entries, its low bits choose the bucket, so both must
/// depend on the whole tag.
fn spread(tag: u32) -> u64 {
    (tag as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn saturating_seconds(time: Time) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
