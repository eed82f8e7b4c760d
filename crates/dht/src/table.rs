//! The records that are kept here.
//!
//! Each is kept until its rest has passed, whoever is responsible for it by then: who asks may know less of the ring than
//! its keepers. Every limit is a share: of one signer, and of one name. When the table is full, the signer with most
//! records does not get another, and loses one to a signer with fewer. When a name is full that only one can have, its first signer
//! stays, and of the others those with the lowest ids: so all keepers have the same ones, whatever came to them first.

use core::ops::Bound;
use std::collections::{BTreeMap, BTreeSet};

use ringway_mesh::{NodeId, Proof};
use ringway_sansio::time::{Duration, Time};

use crate::config::Config;
use crate::look_ups::Known;
use crate::positions::{Cursor, Stretch};
use crate::record::{Record, first_octets};
use crate::wire::{Copy, Renewal, Span};

/// Of records that are kept for less time than this, others are not notified, s.
const LAST_MOMENTS: u32 = 2;

/// A record that is kept.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The record.
    pub record: Record,
    /// Its signer, verified.
    pub signer: NodeId,
    /// When it expires.
    pub expires: Time,
    /// Its mark.
    pub mark: u64,
    /// The publisher's count of renewals, at the last one.
    pub stamp: u32,
    /// Its position in the order in which the signers of its name came.
    order: u64,
    /// When its signer came.
    since: Time,
    /// Its keepers are known to have it, since this router is none of them.
    checked: bool,
}

impl Entry {
    /// Returns for how many whole seconds it is still kept.
    pub fn rest(&self, now: Time) -> u32 {
        u32::try_from(self.expires.since(now).as_secs()).unwrap_or(u32::MAX)
    }

    /// Returns the name that its publisher and keepers have for it.
    pub(crate) fn copy(&self) -> Copy {
        Copy { key: self.record.key(), mark: (self.mark >> 32) as u32 }
    }

    /// Returns its position in the table.
    pub(crate) fn slot(&self) -> Slot {
        (self.record.key(), self.signer)
    }

    /// Returns what it is sorted by where records are sent to another keeper: it gets them in the order in which they came
    /// here.
    pub(crate) fn arrival(&self) -> (NodeId, u64) {
        (self.record.key(), self.order)
    }

    fn is_passed_on(&self, now: Time) -> bool {
        self.rest(now) >= LAST_MOMENTS
    }
}

/// What became of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is kept.
    Kept,
    /// A later version of the same signer is kept.
    Later,
    /// There is no room for it.
    Full,
}

/// Counts of records that were refused or removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Refused: the signer has as many as it may.
    pub signer_full: u64,
    /// Refused: the name has as many as it may.
    pub name_full: u64,
    /// Refused: the table is full, and nobody has more than the signer.
    pub full: u64,
    /// Removed for a signer that has fewer.
    pub evicted: u64,
}

/// The position of an entry: key and signer.
pub(crate) type Slot = (NodeId, NodeId);

/// The records that a router keeps.
#[derive(Clone, Debug, Default)]
pub struct Table {
    entries: BTreeMap<Slot, Entry>,
    expiries: BTreeSet<(Time, Slot)>,
    /// The slots of each signer.
    signers: BTreeMap<NodeId, BTreeSet<Slot>>,
    /// Signers by the number of their records.
    shares: BTreeSet<(usize, NodeId)>,
    arrivals: u64,
    /// What was refused or removed.
    pub counters: Counters,
}

impl Table {
    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns when the next record expires.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.expiries.first().map(|&(at, _)| at)
    }

    /// Removes what has expired.
    pub fn expire(&mut self, now: Time) {
        while let Some(&(at, slot)) = self.expiries.first()
            && at <= now
        {
            self.remove(slot);
        }
    }

    /// Returns the records of a kind and name, whose position is `key`, in the order in which their signers came.
    pub fn of_name(&self, key: NodeId, kind: u8, name: &[u8]) -> Vec<&Entry> {
        let mut found: Vec<&Entry> = self
            .of_key(key)
            .filter(|entry| entry.record.kind() == kind && entry.record.name() == name)
            .collect();
        found.sort_by_key(|entry| entry.order);
        found
    }

    /// Returns the record of a signer at a position.
    pub fn get(&self, key: NodeId, signer: NodeId) -> Option<&Entry> {
        self.entries.get(&(key, signer))
    }

    /// Keeps a record for `rest` seconds, at most its lifetime. Returns what became of it. One that is kept already is kept
    /// for longer if the rest is longer.
    pub fn keep(
        &mut self,
        now: Time,
        config: &Config,
        record: Record,
        signer: NodeId,
        rest: u32,
    ) -> Outcome {
        let key = record.key();
        let slot = (key, signer);
        let expires = now + Duration::from_secs(rest.min(record.lifetime()).into());
        let mark = record.mark();
        let (order, since, stamp, checked) = match self.entries.get(&slot) {
            Some(kept) if kept.record.version() > record.version() => return Outcome::Later,
            Some(kept) if kept.record.version() == record.version() => {
                // Two records of one version: everybody keeps the same one.
                if kept.mark > mark || (kept.mark == mark && kept.expires >= expires) {
                    return Outcome::Kept;
                }
                (kept.order, kept.since, kept.stamp, kept.checked && kept.mark == mark)
            }
            // Who has withdrawn a claim and makes another one is not the first any more.
            Some(kept) if kept.record.is_withdrawal() => (self.arrive(), now, 0, false),
            Some(kept) => (kept.order, kept.since, 0, false),
            None => {
                if !self.has_room_for_name(config, record.kind(), slot)
                    || !self.has_room(config, signer)
                {
                    return Outcome::Full;
                }
                (self.arrive(), now, 0, false)
            }
        };
        self.remove(slot);
        self.insert(slot, Entry { record, signer, expires, mark, stamp, order, since, checked });
        Outcome::Kept
    }

    /// Keeps a record of `signer` for `rest` seconds, at most its lifetime, as its publisher has renewed it. A renewal with a
    /// stamp that is not above that of the last one changes nothing. Returns whether the record is kept.
    pub fn renew(&mut self, now: Time, signer: NodeId, renewal: &Renewal) -> bool {
        let slot = (renewal.copy.key, signer);
        let Some(entry) = self.entries.get_mut(&slot) else { return false };
        if entry.copy() != renewal.copy {
            return false;
        }
        let rest = renewal.rest.min(entry.record.lifetime());
        let expires = now + Duration::from_secs(rest.into());
        if renewal.stamp > entry.stamp {
            entry.stamp = renewal.stamp;
            if expires > entry.expires {
                self.expiries.remove(&(entry.expires, slot));
                entry.expires = expires;
                self.expiries.insert((expires, slot));
            }
        }
        true
    }

    /// Does the same with a renewal of which a keeper has notified this one. The signer is whoever has signed this copy.
    pub fn renew_copy(&mut self, now: Time, renewal: &Renewal) {
        let signers: Vec<NodeId> = self
            .of_key(renewal.copy.key)
            .filter(|entry| entry.copy() == renewal.copy)
            .map(|entry| entry.signer)
            .collect();
        for signer in signers {
            self.renew(now, signer, renewal);
        }
    }

    /// Returns a hash of the records in a range, and their number.
    pub fn digest(&self, now: Time, span: Span) -> (u64, usize) {
        let mut hasher = blake3::Hasher::new();
        let mut count = 0;
        for entry in self.in_span(span).filter(|entry| entry.is_passed_on(now)) {
            hasher.update(&entry.mark.to_be_bytes());
            count += 1;
        }
        (u64::from_be_bytes(first_octets(&hasher.finalize())), count)
    }

    /// Returns the records in a range of which others are notified.
    pub fn passed_on(&self, now: Time, span: Span) -> impl Iterator<Item = &Entry> {
        self.in_span(span).filter(move |entry| entry.is_passed_on(now))
    }

    /// Returns whether a copy is kept, whoever has signed it.
    pub(crate) fn has(&self, copy: Copy) -> bool {
        self.of_key(copy.key).any(|entry| entry.copy() == copy)
    }

    /// Returns the records in a range of which it is not known that their keepers have them, the first of them behind
    /// `after`.
    pub(crate) fn unchecked(
        &self,
        now: Time,
        span: Span,
        after: Option<Cursor>,
    ) -> impl Iterator<Item = &Entry> {
        let rest = Span { first: after.map_or(span.first, Cursor::key), ..span };
        self.passed_on(now, rest).filter(move |entry| {
            let at = Cursor::new(entry.record.key(), entry.signer);
            !entry.checked && after.is_none_or(|after| at.key() != after.key() || at > after)
        })
    }

    /// Notes whether the keepers of a record are known to have it.
    pub(crate) fn set_checked(&mut self, slot: Slot, copy: Copy) {
        if let Some(entry) = self.entries.get_mut(&slot) {
            entry.checked = entry.copy() == copy;
        }
    }

    /// Notes that this router is a keeper of all records in a range: what others have is not known any more.
    pub(crate) fn uncheck(&mut self, span: Span) {
        let slots: Vec<Slot> =
            self.in_span(span).filter(|entry| entry.checked).map(Entry::slot).collect();
        for slot in slots {
            if let Some(entry) = self.entries.get_mut(&slot) {
                entry.checked = false;
            }
        }
    }

    /// Returns what each signer of a record here proves itself with, verified.
    pub fn signers(&self) -> impl Iterator<Item = Proof> {
        let first = |slots: &BTreeSet<Slot>| slots.first().and_then(|slot| self.entries.get(slot));
        self.signers.values().filter_map(first).map(|entry| entry.record.proof())
    }

    /// Returns the records of a kind at these positions, in their order, without withdrawals; of a claimed kind only that of
    /// the first signer of each name.
    pub(crate) fn of_kind(
        &self,
        kind: u8,
        is_claimed: bool,
        stretch: Stretch,
    ) -> impl Iterator<Item = &Entry> {
        let slot = |cursor: Cursor| (cursor.key(), cursor.signer());
        let range = slot(stretch.first)..=slot(stretch.last);
        let entries = self.entries.range(range).map(|(_, entry)| entry);
        let is_first = move |entry: &Entry| {
            let mut others = self.of_key(entry.record.key());
            others.all(|other| other.record.is_withdrawal() || entry.order <= other.order)
        };
        entries.filter(move |entry| {
            let is_stated = entry.record.kind() == kind && !entry.record.is_withdrawal();
            is_stated && (!is_claimed || is_first(entry))
        })
    }

    fn in_span(&self, span: Span) -> impl Iterator<Item = &Entry> {
        let lowest = NodeId::new(0);
        let highest = NodeId::new(u64::MAX);
        let whole = span.first <= span.last;
        let upper = if whole { span.last } else { highest };
        let range = |first: NodeId, last: NodeId| {
            self.entries.range((Bound::Included((first, lowest)), Bound::Included((last, highest))))
        };
        let wrapped = (!whole).then(|| range(lowest, span.last));
        let first = range(span.first, upper);
        first.chain(wrapped.into_iter().flatten()).map(|(_, entry)| entry)
    }

    fn of_key(&self, key: NodeId) -> impl Iterator<Item = &Entry> {
        self.in_span(Span { first: key, last: key })
    }

    /// Returns the position in the order of signers of one that comes now.
    fn arrive(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals
    }

    /// Returns whether a name may have another record, and makes room for it.
    fn has_room_for_name(&mut self, config: &Config, kind: u8, (key, signer): Slot) -> bool {
        if self.of_key(key).count() < config.records_of_name {
            return true;
        }
        self.counters.name_full += 1;
        if !config.claims.contains(kind) {
            return false;
        }
        let Some(highest) = self.highest_of_others(key).filter(|&highest| signer < highest) else {
            return false;
        };
        self.remove((key, highest));
        true
    }

    /// Returns the highest of the signers at a position without the first of those that have not withdrawn their claims.
    fn highest_of_others(&self, key: NodeId) -> Option<NodeId> {
        let of_key = self.of_key(key);
        let first = of_key.min_by_key(|entry| (entry.record.is_withdrawal(), entry.order))?.signer;
        self.of_key(key).map(|entry| entry.signer).filter(|signer| *signer != first).max()
    }

    /// Puts the records at a position in the order of these, which its keepers state together: those by other signers follow.
    /// The first one that was not withdrawn is kept if it is not here yet.
    pub(crate) fn arrange(&mut self, now: Time, config: &Config, known: &[Known]) {
        let is_claim = |known: &&Known| !known.record.is_withdrawal();
        let Some(first) = known.iter().find(is_claim) else { return };
        let key = first.record.key();
        let rank = |signer| known.iter().position(|known| known.signer == signer);
        let mut slots: Vec<(u64, Slot)> =
            self.of_key(key).map(|entry| (entry.order, entry.slot())).collect();
        slots.sort_by_key(|&(order, (_, signer))| (rank(signer).unwrap_or(usize::MAX), order));
        for (_, slot) in slots {
            let order = self.arrive();
            if let Some(entry) = self.entries.get_mut(&slot) {
                entry.order = order;
            }
        }
        if self.get(key, first.signer).is_none() {
            if self.of_key(key).count() >= config.records_of_name
                && let Some(highest) = self.highest_of_others(key)
            {
                self.remove((key, highest));
            }
            self.keep(now, config, first.record.clone(), first.signer, first.rest);
            if let Some(entry) = self.entries.get_mut(&(key, first.signer)) {
                entry.order = 0;
            }
        }
    }

    /// Returns whether several signers claim the name of a record, and it is not known who was first: none has been here for
    /// long.
    pub(crate) fn is_disputed(&self, now: Time, config: &Config, record: &Record) -> bool {
        let claims = self.of_name(record.key(), record.kind(), record.name());
        let mut claims = claims.into_iter().filter(|entry| !entry.record.is_withdrawal());
        let is_young = |first: &Entry| now.since(first.since) < config.dispute_age;
        claims.next().is_some_and(is_young) && claims.next().is_some()
    }

    /// Returns whether a signer may have another record, and makes room for it.
    fn has_room(&mut self, config: &Config, signer: NodeId) -> bool {
        let own = self.signers.get(&signer).map_or(0, BTreeSet::len);
        if own >= config.records_of_signer {
            self.counters.signer_full += 1;
            return false;
        }
        if self.entries.len() < config.records {
            return true;
        }
        let Some(&(most, other)) = self.shares.last().filter(|&&(most, _)| most > own + 1) else {
            self.counters.full += 1;
            return false;
        };
        debug_assert!(most > 0);
        let slots = self.signers.get(&other).into_iter().flatten();
        let youngest = slots.max_by_key(|slot| self.entries.get(slot).map(|entry| entry.order));
        if let Some(&slot) = youngest {
            self.counters.evicted += 1;
            self.remove(slot);
        }
        true
    }

    fn insert(&mut self, slot: Slot, entry: Entry) {
        self.expiries.insert((entry.expires, slot));
        let slots = self.signers.entry(slot.1).or_default();
        self.shares.remove(&(slots.len(), slot.1));
        slots.insert(slot);
        self.shares.insert((slots.len(), slot.1));
        self.entries.insert(slot, entry);
    }

    fn remove(&mut self, slot: Slot) {
        let Some(entry) = self.entries.remove(&slot) else { return };
        self.expiries.remove(&(entry.expires, slot));
        if let Some(slots) = self.signers.get_mut(&slot.1) {
            self.shares.remove(&(slots.len(), slot.1));
            slots.remove(&slot);
            match slots.len() {
                0 => _ = self.signers.remove(&slot.1),
                left => _ = self.shares.insert((left, slot.1)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Draft, key};
    use proptest::prelude::*;
    use ringway_mesh::Identity;
    use ringway_mesh::crypto::StandIn;
    use ringway_mesh::id::Sequence;
    use ringway_mesh::identity::Search;
    use ringway_sansio::SplitMix;

    const NOW: Time = Time::from_secs(100);

    fn identity(seed: u64) -> Identity {
        Search::new(0, &mut SplitMix::new(seed)).step(1).unwrap()
    }

    fn record(identity: &Identity, name: &[u8], count: u32, value: &[u8]) -> Record {
        let draft = Draft { kind: 1, name, value, lifetime: 600 };
        Record::sign::<StandIn>(identity, Sequence { epoch: 1, count }, &draft).unwrap()
    }

    fn keep(table: &mut Table, config: &Config, by: &Identity, name: &[u8], count: u32) -> Outcome {
        table.keep(NOW, config, record(by, name, count, b"value"), by.id(), 600)
    }

    #[test]
    fn the_latest_version_of_a_signer_counts_and_others_stand_beside_it() {
        let (config, mut table) = (Config::default(), Table::default());
        let (one, two) = (identity(1), identity(2));
        assert_eq!(keep(&mut table, &config, &one, b"alice", 2), Outcome::Kept);
        assert_eq!(keep(&mut table, &config, &two, b"alice", 1), Outcome::Kept);
        assert_eq!(keep(&mut table, &config, &one, b"alice", 1), Outcome::Later);
        assert_eq!(keep(&mut table, &config, &one, b"alice", 3), Outcome::Kept);
        let found = table.of_name(key(1, b"alice"), 1, b"alice");
        let signers: Vec<NodeId> = found.iter().map(|entry| entry.signer).collect();
        assert_eq!(signers, [one.id(), two.id()], "in the order in which they came");
        assert_eq!(found[0].record.version().count, 3);
    }

    #[test]
    fn of_two_records_of_one_version_all_tables_keep_the_same() {
        let one = identity(1);
        let (a, b) = (record(&one, b"x", 1, b"a"), record(&one, b"x", 1, b"b"));
        let kept = |records: [&Record; 2]| {
            let mut table = Table::default();
            for record in records {
                table.keep(NOW, &Config::default(), record.clone(), one.id(), 600);
            }
            table.get(a.key(), one.id()).unwrap().record.clone()
        };
        assert_eq!(kept([&a, &b]), kept([&b, &a]));
    }

    #[test]
    fn a_record_is_kept_no_longer_than_its_rest() {
        let (config, mut table, one) = (Config::default(), Table::default(), identity(1));
        let record = record(&one, b"alice", 1, b"value");
        table.keep(NOW, &config, record.clone(), one.id(), 50);
        assert_eq!(table.poll_timeout(), Some(NOW + Duration::from_secs(50)));
        // The same from another keeper, which keeps it for longer; more than the lifetime is not believed.
        table.keep(NOW, &config, record, one.id(), 9_999);
        assert_eq!(table.poll_timeout(), Some(NOW + Duration::from_secs(600)));
        table.expire(NOW + Duration::from_secs(599));
        assert_eq!(table.len(), 1);
        table.expire(NOW + Duration::from_secs(600));
        assert!(table.is_empty() && table.poll_timeout().is_none());
        assert!(table.signers.is_empty() && table.shares.is_empty());
    }

    #[test]
    fn a_renewal_counts_once_and_for_the_version_that_it_names() {
        let (config, mut table, one) = (Config::default(), Table::default(), identity(1));
        keep(&mut table, &config, &one, b"alice", 1);
        let entry = table.get(key(1, b"alice"), one.id()).unwrap();
        let mut renewal = Renewal { copy: entry.copy(), stamp: 7, rest: 9_999 };
        let at = |seconds| NOW + Duration::from_secs(seconds);
        assert!(!table.renew(NOW, identity(2).id(), &renewal));
        assert!(table.renew(at(100), one.id(), &renewal));
        assert_eq!(table.poll_timeout(), Some(at(700)), "no longer than its lifetime");
        // The same once more, as whoever has recorded it may send it.
        assert!(table.renew(at(200), one.id(), &renewal));
        assert_eq!(table.poll_timeout(), Some(at(700)));
        (renewal.stamp, renewal.rest) = (8, 300);
        table.renew_copy(at(500), &renewal);
        assert_eq!(table.poll_timeout(), Some(at(800)));
        renewal.stamp = 9;
        renewal.copy.mark ^= 1;
        assert!(!table.renew(at(600), one.id(), &renewal));
        table.renew_copy(at(600), &renewal);
        assert_eq!(table.poll_timeout(), Some(at(800)));
        table.expire(at(800));
        assert!(table.is_empty() && table.poll_timeout().is_none());
    }

    #[test]
    fn a_signer_and_a_name_have_their_shares() {
        let config =
            Config { records: 4, records_of_signer: 3, records_of_name: 2, ..Config::default() };
        let mut table = Table::default();
        let [greedy, modest, third] = [1, 2, 3].map(identity);
        for name in [b"a", b"b", b"c"] {
            assert_eq!(keep(&mut table, &config, &greedy, name, 1), Outcome::Kept);
        }
        assert_eq!(keep(&mut table, &config, &greedy, b"d", 1), Outcome::Full);
        assert_eq!(keep(&mut table, &config, &modest, b"a", 1), Outcome::Kept);
        assert_eq!(keep(&mut table, &config, &third, b"a", 1), Outcome::Full, "two have that name");
        // The table is full: who has most loses the record that came last.
        assert_eq!(keep(&mut table, &config, &third, b"e", 1), Outcome::Kept);
        assert!(table.get(key(1, b"c"), greedy.id()).is_none());
        // Now nobody has more than one more than it would have.
        assert_eq!(keep(&mut table, &config, &modest, b"f", 1), Outcome::Full);
        let Counters { signer_full, name_full, full, evicted } = table.counters;
        assert_eq!([signer_full, name_full, full, evicted], [1, 1, 1, 1]);
        // A later version needs no more room.
        assert_eq!(keep(&mut table, &config, &greedy, b"a", 2), Outcome::Kept);
    }

    proptest! {
        #[test]
        fn equal_records_have_equal_digests_and_others_do_not(
            names in proptest::collection::btree_set(0u8..40, 1..20), without: u8, first: u64, last: u64
        ) {
            let (config, one) = (Config::default(), identity(1));
            let span = Span { first: NodeId::new(first), last: NodeId::new(last) };
            let (mut all, mut most, mut within) = (Table::default(), Table::default(), 0);
            let without = names.iter().nth(usize::from(without) % names.len());
            for name in &names {
                keep(&mut all, &config, &one, &[*name], 1);
            }
            for name in names.iter().rev() {
                if Some(name) != without {
                    keep(&mut most, &config, &one, &[*name], 1);
                } else if span.contains(key(1, &[*name])) {
                    within = 1;
                }
            }
            let ((one, count), (other, fewer)) = (all.digest(NOW, span), most.digest(NOW, span));
            prop_assert_eq!(count, fewer + within);
            prop_assert_eq!(one == other, within == 0);
            prop_assert_eq!(all.passed_on(NOW, span).count(), count);
        }
    }
}
