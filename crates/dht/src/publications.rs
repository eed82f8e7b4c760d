//! The records of this router, and where they are kept.
//!
//! ```text
//! waiting -> writing -> stored -> (a third of the lifetime) renewing -> stored ...
//!               `-> paused -> waiting                           `-> waiting
//! ```
//!
//! A write is one PUT to the owner, which has those beside it keep the record too; each keeper answers the publisher. When
//! too few do, the publisher sends the record to the keepers that it has heard of itself. When a third of its lifetime has
//! passed, a record is renewed (`renewals`); if no keeper has it, or if its lifetime is short, it is
//! written again, as a new version.
//!
//! Writes are paced by what they cost. Changes of records that others know go first, then records that have to be written
//! again, and then new ones: the youngest and the oldest in turn, so that a new one does not wait for thousands. What is at
//! rest is in a queue of timers and is not touched until it is due.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ringway_mesh::NodeId;
use ringway_mesh::crypto::Crypto;
use ringway_mesh::id::Sequence;
use ringway_sansio::time::{Duration, Time, sooner};
use smallvec::SmallVec;

use crate::config::{BESIDE, KEEPERS, MIN_RENEWABLE};
use crate::neighbours::Leaves;
use crate::output::Message;
use crate::record::{Draft, Record, RecordError, key};
use crate::renewals::{Early, Id, Renewals};
use crate::search::{Desk, Search, Target};
use crate::shares::{Bucket, cost};
use crate::wire::{COPY, Copy, MAX_COPIES, NotRenewed, Outcome, Packet, RENEW};

/// The kind and the name of a record.
pub type Name = (u8, Box<[u8]>);

/// Messages after which keepers that are still silent are left to the repair, when enough others have a record.
const SPREAD: u8 = 4;

/// The owner, the keeper before it and the one behind it, in the list that [`Search::keepers`] returns.
const TURN: [usize; 3] = [0, 1, 1 + BESIDE];
/// Time after which a renewal is repeated when a keeper did not have the record.
const DOUBT: Duration = Duration::from_secs(10);
/// Time within which a record is checked once only because other routers ask for that.
const RECHECK: Duration = Duration::from_secs(10);

/// Where a write stands.
#[derive(Clone, Copy, Debug)]
enum State {
    /// It is in one of the queues.
    Waiting,
    /// Keepers were asked, and not all have answered.
    Writing { request: u32, begun: Time, due: Time },
    /// Its keepers have it. One of them is to renew it then; none is known if it is to be the owner of its key.
    Stored { again: Time, keeper: Option<NodeId> },
    /// A keeper was asked to renew it.
    Renewing { request: u32 },
    /// It was given up, and is begun again then.
    Paused { until: Time },
}

impl State {
    /// Returns when something is due.
    fn due(self) -> Option<Time> {
        match self {
            State::Waiting | State::Renewing { .. } => None,
            State::Writing { due, .. } => Some(due),
            State::Stored { again, .. } => Some(again),
            State::Paused { until } => Some(until),
        }
    }
}

#[derive(Clone, Debug)]
struct Publication {
    record: Record,
    state: State,
    search: Search,
    kept_by: SmallVec<[NodeId; KEEPERS]>,
    /// Whether the caller was notified that it is stored.
    notified: bool,
    /// How often it was renewed.
    renewals: u8,
    /// The last keeper that was asked did not have it.
    doubted: bool,
    /// When another router last had this one check whether keepers have it.
    checked: Time,
}

/// What has become of a record of this router.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Written {
    /// So many keepers have it that it survives the end of any two of them.
    Stored(Name, Sequence),
    /// It could not be written; that is tried again.
    NotStored(Name),
}

/// Records that wait to be written. Each is in one of them.
#[derive(Clone, Debug, Default)]
struct Queues {
    /// Next versions of records that keepers have, and withdrawals.
    changes: VecDeque<Id>,
    /// Records that no keeper has renewed, or that were given up before.
    again: VecDeque<Id>,
    /// New ones, in the order of their arrival.
    new: VecDeque<Id>,
    /// Whether the youngest of the new ones is next.
    youngest: bool,
}

impl Queues {
    fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.again.is_empty() && self.new.is_empty()
    }

    fn pop(&mut self) -> Option<Id> {
        let first = self.changes.pop_front().or_else(|| self.again.pop_front());
        first.or_else(|| {
            self.youngest = !self.youngest;
            if self.youngest { self.new.pop_back() } else { self.new.pop_front() }
        })
    }
}

/// The records of this router.
#[derive(Clone, Debug)]
pub struct Publications {
    names: BTreeMap<Name, Id>,
    keys: BTreeSet<(NodeId, Id)>,
    records: BTreeMap<Id, Publication>,
    /// Those that are being written, by the number of the write.
    requests: BTreeMap<u32, Id>,
    due: BTreeSet<(Time, Id)>,
    /// Withdrawals that are at rest: while they last, a keeper may have what they withdraw.
    withdrawn: BTreeSet<Id>,
    renewals: Renewals,
    early: Early,
    queues: Queues,
    /// What writes cost.
    bucket: Bucket,
    /// When the next of those that wait may be begun.
    next: Time,
    version: Sequence,
    last: Id,
    visits: u64,
}

impl Publications {
    /// No records, of a router that has started `epoch` seconds after 1970.
    pub fn new(epoch: u32) -> Self {
        Publications {
            names: BTreeMap::new(),
            keys: BTreeSet::new(),
            records: BTreeMap::new(),
            requests: BTreeMap::new(),
            due: BTreeSet::new(),
            withdrawn: BTreeSet::new(),
            renewals: Renewals::default(),
            early: Early::default(),
            queues: Queues::default(),
            bucket: Bucket::default(),
            next: Time::ZERO,
            version: Sequence { epoch, count: 0 },
            last: 0,
            visits: 0,
        }
    }

    /// Returns the number of records, without those that are withdrawn everywhere.
    pub fn len(&self) -> usize {
        self.records.len() - self.withdrawn.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the routers that keep a record, as far as they have answered.
    pub fn kept_by(&self, kind: u8, name: &[u8]) -> &[NodeId] {
        let id = self.names.get(&(kind, name.into()));
        let publication = id.and_then(|id| self.records.get(id));
        publication.map_or(&[], |publication| &publication.kept_by)
    }

    /// Returns how often a record was looked at so far. Those at rest are not.
    pub fn visits(&self) -> u64 {
        self.visits
    }

    /// Publishes a record, or its next version.
    pub(crate) fn publish<C: Crypto>(
        &mut self,
        desk: &mut Desk<'_>,
        draft: &Draft<'_>,
    ) -> Result<Sequence, RecordError> {
        draft.check()?;
        let name = (draft.kind, draft.name.into());
        let known = self.names.get(&name).copied();
        let is_new = known.is_none_or(|id| self.withdrawn.contains(&id));
        if is_new && self.len() >= desk.config.publications {
            return Err(RecordError::Full(desk.config.publications));
        }
        let record = Record::sign::<C>(desk.identity, self.next_version(), draft)?;
        match known {
            Some(id) => self.replace(id, record),
            None => {
                let id = self.insert(name, record, Search::new(key(draft.kind, draft.name)));
                self.queues.new.push_back(id);
            }
        }
        self.begin(desk);
        Ok(self.version)
    }

    fn insert(&mut self, name: Name, record: Record, search: Search) -> Id {
        // Fewer records are there than numbers.
        while self.records.contains_key(&self.last) {
            self.last = self.last.wrapping_add(1);
        }
        let (id, state, kept_by) = (self.last, State::Waiting, SmallVec::new());
        let publication = Publication {
            record,
            state,
            search,
            kept_by,
            notified: false,
            renewals: 0,
            doubted: false,
            checked: Time::ZERO,
        };
        self.keys.insert((publication.search.key(), id));
        self.records.insert(id, publication);
        self.names.insert(name, id);
        id
    }

    /// Has a record replaced by its next version, which is written as soon as possible.
    fn replace(&mut self, id: Id, record: Record) {
        let Some(publication) = self.records.get_mut(&id) else { return };
        publication.record = record;
        publication.kept_by.clear();
        publication.notified = false;
        if !matches!(publication.state, State::Waiting) {
            self.queues.changes.push_back(id);
            self.set_state(id, State::Waiting);
        }
    }

    /// Withdraws a record. Returns whether there is one.
    pub(crate) fn withdraw<C: Crypto>(
        &mut self,
        desk: &mut Desk<'_>,
        kind: u8,
        name: &[u8],
    ) -> bool {
        let id = self.names.get(&(kind, name.into())).copied();
        let Some(publication) = id.and_then(|id| self.records.get(&id)) else { return false };
        if publication.record.is_withdrawal() {
            return id.is_some_and(|id| !self.withdrawn.contains(&id));
        }
        let lifetime = publication.record.lifetime();
        self.publish::<C>(desk, &Draft { kind, name, value: &[], lifetime }).is_ok()
    }

    /// Handles STORED.
    pub(crate) fn stored(
        &mut self,
        desk: &mut Desk<'_>,
        origin: NodeId,
        request: u32,
        outcome: Outcome,
        leaves: &Leaves,
    ) -> Option<Written> {
        let id = *self.requests.get(&request)?;
        let publication = self.visit(id)?;
        if outcome == Outcome::Kept || desk.measure.is_beside(origin, publication.search.key()) {
            publication.search.learn(desk, origin, leaves);
        }
        if outcome != Outcome::Kept {
            return None;
        }
        if !publication.kept_by.contains(&origin) {
            publication.kept_by.push(origin);
        }
        if let State::Writing { begun, .. } = publication.state {
            desk.trip.measure_first(publication.search.attempts(), desk.now.since(begun));
        }
        if publication.kept_by.len() < desk.quorum {
            return None;
        }
        let written = publication.notify();
        if publication.search.keepers().iter().all(|id| publication.kept_by.contains(id)) {
            self.end_write(desk, id);
            self.begin(desk);
        }
        written
    }

    /// A keeper has answered with a later version of a record of this router, from before its clock was put back. It is
    /// verified: this router has signed it. The next version is later than that.
    pub(crate) fn surpass<C: Crypto>(&mut self, desk: &mut Desk<'_>, request: u32, later: &Record) {
        let id = self.requests.get(&request).copied();
        let Some(publication) = id.and_then(|id| self.visit(id)) else { return };
        let record = publication.record.clone();
        if (later.kind(), later.name()) != (record.kind(), record.name()) {
            return;
        }
        self.version = self.version.max(later.version());
        if record.version() <= later.version() {
            let (kind, value, lifetime) = (record.kind(), record.value(), record.lifetime());
            // A name that is there already is within all limits.
            _ = self.publish::<C>(desk, &Draft { kind, name: record.name(), value, lifetime });
        }
    }

    /// Does what is due.
    pub(crate) fn timeout<C: Crypto>(&mut self, desk: &mut Desk<'_>) -> Vec<Written> {
        let mut written = Vec::new();
        while let Some(&(at, id)) = self.due.first()
            && at <= desk.now
        {
            let Some(state) = self.visit(id).map(|publication| publication.state) else {
                self.due.remove(&(at, id));
                continue;
            };
            match state {
                State::Writing { request, begun, .. } => {
                    written.extend(self.go_on(desk, id, request, begun));
                }
                State::Paused { .. } => {
                    self.set_state(id, State::Waiting);
                    self.queues.again.push_back(id);
                }
                State::Stored { keeper, .. } => self.renew::<C>(desk, id, keeper),
                State::Waiting | State::Renewing { .. } => self.set_state(id, state),
            }
        }
        if let Some((keeper, id)) = self.renewals.sample(desk.now, desk.random) {
            self.renew::<C>(desk, id, Some(keeper));
        }
        while let Some(request) = self.renewals.next_due(desk.now) {
            self.go_on_renewing::<C>(desk, request);
        }
        if self.early.take(desk.now) {
            self.renew_early(desk);
        }
        self.begin(desk);
        written
    }

    /// The routers beside this one have changed: all records are renewed at `at`, in case their keepers have gone.
    pub(crate) fn renew_early_at(&mut self, at: Time) {
        self.early.plan(at);
    }

    /// A router near this one has gone, though none beside it: a renewal is tried soon.
    pub(crate) fn sample_soon(&mut self, now: Time) {
        self.renewals.sample_soon(now);
    }

    /// Has all records that are at rest be renewed one message after the other, unless they are due before.
    fn renew_early(&mut self, desk: &Desk<'_>) {
        let mut groups: BTreeMap<Option<NodeId>, Vec<Id>> = BTreeMap::new();
        for (&id, publication) in &self.records {
            let record = &publication.record;
            match publication.state {
                State::Stored { keeper, .. }
                    if !record.is_withdrawal()
                        && record.lifetime() >= MIN_RENEWABLE
                        && !publication.doubted =>
                {
                    groups.entry(keeper).or_default().push(id);
                }
                _ => {}
            }
        }
        // What has no known keeper is asked for one by one.
        let max = |keeper: Option<NodeId>| if keeper.is_some() { MAX_COPIES } else { 1 };
        let each = groups.iter().flat_map(|(&keeper, ids)| {
            ids.chunks(max(keeper)).map(move |ids| (keeper, ids.to_vec()))
        });
        let each: Vec<(Option<NodeId>, Vec<Id>)> = each.collect();
        // Thousands of records do not take the budget of look-ups.
        let time = |ids: &[Id]| {
            let octets = RENEW + COPY * ids.len();
            desk.config.own_writes.time(cost(octets, desk.hops), 1)
        };
        let times = self.early.spread(desk.now, each.iter().map(|(_, ids)| time(ids)));
        for ((keeper, ids), at) in each.into_iter().zip(times) {
            for id in ids {
                let state = self.visit(id).map(|publication| publication.state);
                if matches!(state, Some(State::Stored { again, .. }) if at < again) {
                    self.set_state(id, State::Stored { again: at, keeper });
                }
            }
        }
    }

    /// Goes on with a write whose keepers have not all answered in time.
    fn go_on(&mut self, desk: &mut Desk<'_>, id: Id, request: u32, begun: Time) -> Option<Written> {
        let publication = self.records.get_mut(&id)?;
        let is_safe = publication.kept_by.len() >= desk.quorum;
        // The network may have become so small since the last answer that there are no more keepers.
        let written = if is_safe { publication.notify() } else { None };
        // Readers ask the owner first.
        let owner = publication.search.keepers().first().copied();
        let is_current = owner.is_some_and(|owner| publication.kept_by.contains(&owner));
        let is_enough = is_safe && is_current && publication.search.attempts() >= SPREAD;
        if !is_enough && desk.now.since(begun) < desk.config.patience {
            if self.bucket.ready_at(desk.config.own_writes, 0) > desk.now && !desk.has_spare() {
                // More was spent than there was: answers may still come.
                let due = desk.now + desk.trip.wait(desk.config, publication.search.attempts());
                self.set_state(id, State::Writing { request, begun, due });
            } else {
                self.send(desk, id, request, begun);
            }
        } else if is_safe {
            self.end_write(desk, id);
        } else {
            publication.search.restart();
            publication.notified = false;
            let written = Written::NotStored(publication.name());
            self.set_state(id, State::Paused { until: desk.now + desk.config.pause });
            return Some(written);
        }
        written
    }

    /// Begins the renewal of a record, and of others that the same keeper is to renew soon.
    fn renew<C: Crypto>(&mut self, desk: &mut Desk<'_>, id: Id, keeper: Option<NodeId>) {
        let Some(publication) = self.records.get(&id) else { return };
        let (lifetime, key) = (publication.record.lifetime(), publication.search.key());
        if publication.record.is_withdrawal() {
            // Whatever it withdraws has expired.
            self.drop_publication(id);
            return;
        }
        if lifetime < MIN_RENEWABLE {
            self.write_again::<C>(desk, id);
            return;
        }
        let soon = desk.now + Duration::from_secs(lifetime.into()) / 12;
        let mut ids = keeper.map_or(Vec::new(), |keeper| self.renewals.of_keeper(keeper, soon));
        ids.retain(|&other| other != id);
        ids.truncate(MAX_COPIES - 1);
        ids.insert(0, id);
        let request = desk.random.next_u64() as u32 | 1;
        ids.iter().for_each(|&id| self.set_state(id, State::Renewing { request }));
        self.renewals.begin(desk.now, request, keeper, key, ids);
    }

    /// Asks for a renewal, or gives it up and has the records written again.
    fn go_on_renewing<C: Crypto>(&mut self, desk: &mut Desk<'_>, request: u32) {
        let Some(batch) = self.renewals.get(request) else { return };
        if desk.now.since(batch.begun) >= desk.config.patience {
            self.early.plan_after_loss(desk.now);
            let ids = self.renewals.end(request).map_or(Vec::new(), |batch| batch.ids);
            for id in ids {
                if self.is_renewing(id, request) {
                    self.write_again::<C>(desk, id);
                }
            }
            return;
        }
        let (ids, by_another) = (batch.ids.clone(), batch.attempts % 2 == 1);
        let to = batch.keeper.unwrap_or(batch.key);
        let copies: Vec<Copy> = ids
            .iter()
            .filter_map(|&id| self.visit(id).map(|publication| publication.copy()))
            .collect();
        let stamp = self.next_version().count;
        let octets = Packet::Renew { request, stamp, copies }.to_octets();
        if !desk.owned.contains(to) {
            self.charge(desk, cost(octets.len(), desk.hops));
        }
        desk.out.push(Message { to, octets, by_another });
        let wait = desk.trip.wait(desk.config, 1);
        self.renewals.attempt(request, |attempts| {
            let doublings = u32::from(attempts - 1).min(8);
            desk.now + (wait * (1 << doublings)).min(desk.config.max_wait)
        });
    }

    /// Handles RENEWED of a router that may be a keeper.
    pub(crate) fn renewed<C: Crypto>(
        &mut self,
        desk: &mut Desk<'_>,
        origin: NodeId,
        request: u32,
        leaves: &Leaves,
        exceptions: &[(u8, NotRenewed)],
    ) {
        let Some(batch) = self.renewals.end(request) else { return };
        if batch.attempts == 1 {
            desk.trip.measure(desk.now.since(batch.begun));
        }
        if origin != desk.identity.id() {
            desk.scale.note(desk.now, leaves.spacing());
        }
        if batch.keeper.is_some_and(|keeper| keeper != origin) {
            self.early.plan_after_loss(desk.now);
        }
        let (share, mut gone) = ((desk.random.next_u64() % 256) as u32, 0);
        for (at, id) in (0u8..).zip(batch.ids) {
            if !self.is_renewing(id, request) {
                continue;
            }
            let exception = exceptions.iter().find(|(index, _)| *index == at);
            let Some(publication) = self.visit(id) else { continue };
            match exception.map(|(_, reason)| *reason) {
                None => {
                    gone = gone.max(publication.search.refresh(origin, leaves));
                    publication.renewals = publication.renewals.wrapping_add(1);
                    publication.doubted = false;
                    self.rest(desk, id, share);
                }
                Some(NotRenewed::Elsewhere) if batch.keeper.is_some() => {
                    self.set_state(id, State::Stored { again: desk.now, keeper: None });
                }
                Some(_) if !publication.doubted => {
                    // A new keeper may not have been sent it yet.
                    publication.doubted = true;
                    let again = desk.now + DOUBT;
                    self.set_state(id, State::Stored { again, keeper: None });
                }
                Some(_) => self.write_again::<C>(desk, id),
            }
        }
        if gone > 1 {
            // One of them always is.
            self.early.plan_after_loss(desk.now);
        }
        self.begin(desk);
    }

    fn is_renewing(&self, id: Id, request: u32) -> bool {
        let state = self.records.get(&id).map(|publication| publication.state);
        matches!(state, Some(State::Renewing { request: own }) if own == request)
    }

    /// Has a record written again, as a new version.
    fn write_again<C: Crypto>(&mut self, desk: &mut Desk<'_>, id: Id) {
        self.set_state(id, State::Waiting);
        self.queues.again.push_back(id);
        let version = self.next_version();
        let Some(publication) = self.visit(id) else { return };
        let record = &publication.record;
        let (kind, name) = (record.kind(), record.name());
        let draft = Draft { kind, name, value: record.value(), lifetime: record.lifetime() };
        // A draft that was within all limits is so still.
        if let Ok(record) = Record::sign::<C>(desk.identity, version, &draft) {
            publication.record = record;
            publication.kept_by.clear();
            publication.doubted = false;
        }
    }

    fn next_version(&mut self) -> Sequence {
        self.version.count = self.version.count.saturating_add(1);
        self.version
    }

    /// Returns when something is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        let next = (!self.queues.is_empty() && self.next > Time::ZERO).then_some(self.next);
        let due = sooner(self.due.first().map(|&(at, _)| at), self.renewals.poll_timeout());
        let due = sooner(due, self.early.poll_timeout());
        sooner(due, next)
    }

    /// Begins writes while there are fewer than may be under way, and the share of writes in the budget allows it.
    fn begin(&mut self, desk: &mut Desk<'_>) {
        self.next = Time::ZERO;
        while self.requests.len() < desk.config.writes && !self.queues.is_empty() {
            let ready = self.bucket.ready_at(desk.config.own_writes, cost(0, desk.hops));
            if ready > desk.now && !desk.has_spare() {
                self.next = ready;
                return;
            }
            let Some(id) = self.queues.pop() else { return };
            let request = desk.random.next_u64() as u32 | 1;
            if let Some(publication) = self.visit(id) {
                publication.search.restart();
                self.send(desk, id, request, desk.now);
            }
        }
    }

    /// Ends a write.
    fn end_write(&mut self, desk: &mut Desk<'_>, id: Id) {
        let Some(publication) = self.records.get_mut(&id) else { return };
        publication.search.rest(&publication.kept_by);
        if publication.record.is_withdrawal() {
            let again = desk.now + Duration::from_secs(publication.record.lifetime().into());
            self.set_state(id, State::Stored { again, keeper: None });
            if self.withdrawn.len() < desk.config.withdrawals {
                self.withdrawn.insert(id);
            } else {
                self.drop_publication(id);
            }
            return;
        }
        let share = (desk.random.next_u64() % 256) as u32;
        self.rest(desk, id, share);
    }

    fn drop_publication(&mut self, id: Id) {
        self.set_state(id, State::Waiting);
        if let Some(publication) = self.records.remove(&id) {
            self.names.remove(&publication.name());
            self.keys.remove(&(publication.search.key(), id));
        }
    }

    /// Returns those of copies that are of records which keepers should have, and that were not checked lately.
    pub(crate) fn take_due_checks(&mut self, now: Time, mut copies: Vec<Copy>) -> Vec<Copy> {
        copies.retain(|&copy| {
            let publication = self.of_copy(copy).and_then(|id| self.records.get_mut(&id));
            let due = |publication: &&mut Publication| now.since(publication.checked) >= RECHECK;
            let publication = publication.filter(due);
            publication.map(|publication| publication.checked = now).is_some()
        });
        copies
    }

    /// Has a record written once more, in the same version: its keepers are others now, and do not have it.
    pub(crate) fn write_astray(&mut self, desk: &mut Desk<'_>, copies: &[Copy]) {
        for &copy in copies {
            let Some(id) = self.of_copy(copy) else { continue };
            self.set_state(id, State::Waiting);
            self.queues.again.push_back(id);
            if let Some(publication) = self.visit(id) {
                publication.kept_by.clear();
            }
        }
        self.begin(desk);
    }

    /// Returns which record that is not being written a copy is of.
    fn of_copy(&self, copy: Copy) -> Option<Id> {
        let of_key = self.keys.range((copy.key, 0)..=(copy.key, Id::MAX));
        of_key.map(|&(_, id)| id).find(|id| {
            let publication = self.records.get(id);
            publication.is_some_and(|known| {
                let is_written =
                    matches!(known.state, State::Stored { .. } | State::Renewing { .. });
                known.copy() == copy && is_written
            })
        })
    }

    /// Has a record renewed when a third of its lifetime has passed, or up to a fifth of that earlier, so that records which
    /// were written at once are not renewed at once.
    fn rest(&mut self, desk: &Desk<'_>, id: Id, share: u32) {
        let Some(publication) = self.records.get_mut(&id) else { return };
        let third = Duration::from_secs(publication.record.lifetime().into()) / 3;
        let again = desk.now + (third - third / 5 * share / 256);
        let is_renewable = publication.record.lifetime() >= MIN_RENEWABLE;
        let keeper = publication.next_keeper().filter(|_| is_renewable);
        self.renewals.note(desk.now);
        self.set_state(id, State::Stored { again, keeper });
    }

    /// Asks the next, and besides all known keepers that have not answered.
    fn send(&mut self, desk: &mut Desk<'_>, id: Id, request: u32, begun: Time) {
        let Some(publication) = self.records.get_mut(&id) else { return };
        let first = desk.out.len();
        publication.send(desk, request);
        let due = desk.now + desk.trip.wait(desk.config, publication.search.attempts());
        let sent = desk.out[first..].iter();
        let sent = sent.filter(|message| !desk.owned.contains(message.to));
        let all = sent.map(|message| cost(message.octets.len(), desk.hops)).sum();
        self.charge(desk, all);
        self.set_state(id, State::Writing { request, begun, due });
    }

    /// Counts what was sent, unless nobody needs it.
    fn charge(&mut self, desk: &mut Desk<'_>, cost: u64) {
        if !desk.has_spare() {
            self.bucket.take(desk.now, desk.config.own_writes, cost);
        }
    }

    fn visit(&mut self, id: Id) -> Option<&mut Publication> {
        self.visits += 1;
        self.records.get_mut(&id)
    }

    /// Changes the state of a record, and what leads to it.
    fn set_state(&mut self, id: Id, state: State) {
        let Some(publication) = self.records.get_mut(&id) else { return };
        let before = core::mem::replace(&mut publication.state, state);
        self.withdrawn.remove(&id);
        if let Some(due) = before.due() {
            self.due.remove(&(due, id));
        }
        match before {
            State::Writing { request, .. } => _ = self.requests.remove(&request),
            State::Stored { again, keeper: Some(keeper) } => self.renewals.wake(keeper, again, id),
            _ => {}
        }
        if let Some(due) = state.due() {
            self.due.insert((due, id));
        }
        match state {
            State::Writing { request, .. } => _ = self.requests.insert(request, id),
            State::Stored { again, keeper: Some(keeper) } => self.renewals.rest(keeper, again, id),
            _ => {}
        }
    }

    /// Returns the key of the first record that is renewed with this number.
    pub(crate) fn key_of_renewal(&self, request: u32) -> Option<NodeId> {
        self.renewals.get(request).map(|batch| batch.key)
    }

    /// Returns the key of the record that is written with this number.
    pub(crate) fn key_of(&self, request: u32) -> Option<NodeId> {
        let publication = self.records.get(self.requests.get(&request)?);
        publication.map(|publication| publication.search.key())
    }
}

impl Publication {
    fn name(&self) -> Name {
        (self.record.kind(), self.record.name().into())
    }

    /// Returns the notice that the record is stored, once.
    fn notify(&mut self) -> Option<Written> {
        let first = !core::mem::replace(&mut self.notified, true);
        first.then(|| Written::Stored(self.name(), self.record.version()))
    }

    fn copy(&self) -> Copy {
        Copy { key: self.search.key(), mark: (self.record.mark() >> 32) as u32 }
    }

    /// Returns the keeper that is to renew the record: the owner, the one before it and the one behind it, in turn.
    fn next_keeper(&mut self) -> Option<NodeId> {
        let keepers = self.search.keepers();
        let turn: SmallVec<[NodeId; TURN.len()]> =
            TURN.iter().filter_map(|&at| keepers.get(at).copied()).collect();
        turn.get(usize::from(self.renewals) % turn.len().max(1)).copied()
    }

    /// Asks the next, and besides all known keepers that have not answered.
    fn send(&mut self, desk: &mut Desk<'_>, request: u32) {
        let (rest, record) = (self.record.lifetime(), &self.record);
        let store =
            Packet::Store { request, publisher: desk.identity.id(), rest, record: record.clone() };
        let direct = |to| Message::to(to, &store);
        if self.search.attempts() > 0 {
            let kept_by = &self.kept_by;
            let silent = self.search.keepers().into_iter().filter(|id| !kept_by.contains(id));
            desk.out.extend(silent.map(direct));
        }
        let message = match self.search.next_by_ring(desk.measure.spacing) {
            Target::Owner { by_another } => {
                let packet = Packet::Put { request, rest, record: record.clone() };
                Message { to: self.search.key(), octets: packet.to_octets(), by_another }
            }
            Target::At(to) => direct(to),
        };
        desk.out.push(message);
    }
}
