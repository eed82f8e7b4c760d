//! The records of this router, and where they are kept.
//!
//! ```text
//! waiting -> writing -> stored -> (a third of the lifetime) writing ...
//!               `-> paused -> writing
//! ```
//!
//! A write is one PUT to the owner, which has those beside it keep the record too; each keeper answers the publisher. When
//! too few do, the publisher sends the record to the keepers that it has heard of itself. A record is written again, as a
//! new version, when a third of its lifetime has passed.

use std::collections::BTreeMap;

use ringway_mesh::NodeId;
use ringway_mesh::crypto::Crypto;
use ringway_mesh::id::Sequence;
use ringway_sansio::time::{Duration, Time};
use smallvec::SmallVec;

use crate::config::KEEPERS;
use crate::neighbours::Leaves;
use crate::output::Message;
use crate::record::{Draft, Record, RecordError, key};
use crate::search::{Desk, Search, Target};
use crate::wire::{Outcome, Packet};

/// The kind and the name of a record.
pub type Name = (u8, Box<[u8]>);

/// Messages after which keepers that are still silent are left to the repair, when enough others have a record.
const SPREAD: u8 = 4;

/// Where a write stands.
#[derive(Clone, Debug)]
enum State {
    /// It begins when others have ended.
    Waiting,
    /// Keepers were asked, and not all have answered.
    Writing { request: u32, begun: Time, due: Time },
    /// Its keepers have it. It is written again then.
    Stored { again: Time },
    /// It was given up, and is begun again then.
    Paused { until: Time },
}

#[derive(Clone, Debug)]
struct Publication {
    record: Record,
    state: State,
    search: Search,
    kept_by: SmallVec<[NodeId; KEEPERS]>,
    /// Whether the caller was notified that it is stored.
    notified: bool,
}

/// What has become of a record of this router.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Written {
    /// So many keepers have it that it survives the end of any two of them.
    Stored(Name, Sequence),
    /// It could not be written; that is tried again.
    NotStored(Name),
}

/// The records of this router.
#[derive(Clone, Debug)]
pub struct Publications {
    records: BTreeMap<Name, Publication>,
    version: Sequence,
}

impl Publications {
    /// No records, of a router that has started `epoch` seconds after 1970.
    pub fn new(epoch: u32) -> Self {
        Publications { records: BTreeMap::new(), version: Sequence { epoch, count: 0 } }
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the routers that keep a record, as far as they have answered.
    pub fn kept_by(&self, kind: u8, name: &[u8]) -> &[NodeId] {
        self.records.get(&(kind, name.into())).map_or(&[], |publication| &publication.kept_by)
    }

    /// Publishes a record, or its next version.
    pub(crate) fn publish<C: Crypto>(
        &mut self,
        desk: &mut Desk<'_>,
        draft: &Draft<'_>,
    ) -> Result<Sequence, RecordError> {
        draft.check()?;
        let name = (draft.kind, draft.name.into());
        if self.records.len() >= desk.config.publications && !self.records.contains_key(&name) {
            return Err(RecordError::Full(desk.config.publications));
        }
        self.version.count = self.version.count.saturating_add(1);
        let record = Record::sign::<C>(desk.identity, self.version, draft)?;
        let search = match self.records.remove(&name) {
            Some(before) => before.search,
            None => Search::new(key(draft.kind, draft.name)),
        };
        let publication = Publication {
            record,
            state: State::Waiting,
            search,
            kept_by: SmallVec::new(),
            notified: false,
        };
        self.records.insert(name, publication);
        self.begin(desk);
        Ok(self.version)
    }

    /// Withdraws a record. Returns whether there is one.
    pub(crate) fn withdraw<C: Crypto>(
        &mut self,
        desk: &mut Desk<'_>,
        kind: u8,
        name: &[u8],
    ) -> bool {
        let Some(publication) = self.records.get(&(kind, name.into())) else { return false };
        if publication.record.is_withdrawal() {
            return true;
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
        let name = self.of_request(request)?;
        let publication = self.records.get_mut(&name)?;
        publication.search.learn(desk, origin, leaves);
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
        let version = publication.record.version();
        let first = !core::mem::replace(&mut publication.notified, true);
        if publication.search.keepers().iter().all(|id| publication.kept_by.contains(id)) {
            publication.rest(desk);
            self.begin(desk);
        }
        first.then_some(Written::Stored(name, version))
    }

    /// A keeper has answered with a later version of a record of this router, from before its clock was put back. It is
    /// verified: this router has signed it. The next version is later than that.
    pub(crate) fn surpass<C: Crypto>(&mut self, desk: &mut Desk<'_>, request: u32, later: &Record) {
        let Some(name) = self.of_request(request) else { return };
        if (later.kind(), later.name()) != (name.0, &name.1) {
            return;
        }
        self.version = self.version.max(later.version());
        if let Some(record) = self.records.get(&name).map(|publication| publication.record.clone())
            && record.version() <= later.version()
        {
            let (kind, value, lifetime) = (record.kind(), record.value(), record.lifetime());
            // A name that is there already is within all limits.
            _ = self.publish::<C>(desk, &Draft { kind, name: &name.1, value, lifetime });
        }
    }

    /// Does what is due.
    pub(crate) fn timeout<C: Crypto>(&mut self, desk: &mut Desk<'_>) -> Vec<Written> {
        let (now, mut written) = (desk.now, Vec::new());
        let mut again = Vec::new();
        for (name, publication) in &mut self.records {
            match publication.state {
                State::Writing { request, begun, due } if due <= now => {
                    let is_safe = publication.kept_by.len() >= desk.quorum;
                    // Readers ask the owner first.
                    let owner = publication.search.keepers().first().copied();
                    let is_current = owner.is_some_and(|id| publication.kept_by.contains(&id));
                    let is_enough =
                        is_safe && is_current && publication.search.attempts() >= SPREAD;
                    if !is_enough && now.since(begun) < desk.config.patience {
                        publication.send(desk, request, begun);
                    } else if is_safe {
                        publication.rest(desk);
                    } else {
                        publication.state = State::Paused { until: now + desk.config.pause };
                        publication.search.restart();
                        written.push(Written::NotStored(name.clone()));
                    }
                }
                State::Paused { until } if until <= now => publication.state = State::Waiting,
                State::Stored { again: at } if at <= now => again.push(name.clone()),
                _ => {}
            }
        }
        for (kind, name) in again {
            if let Some(publication) = self.records.get(&(kind, name.clone())) {
                let (record, notified) = (publication.record.clone(), publication.notified);
                let (value, lifetime) = (record.value(), record.lifetime());
                _ = self.publish::<C>(desk, &Draft { kind, name: &name, value, lifetime });
                if let Some(publication) = self.records.get_mut(&(kind, name)) {
                    publication.notified = notified;
                }
            }
        }
        self.begin(desk);
        written
    }

    /// Returns when something is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        let due = |publication: &Publication| match publication.state {
            State::Waiting => None,
            State::Writing { due, .. } => Some(due),
            State::Stored { again } => Some(again),
            State::Paused { until } => Some(until),
        };
        self.records.values().filter_map(due).min()
    }

    /// Begins writes while there are fewer than may be under way.
    fn begin(&mut self, desk: &mut Desk<'_>) {
        let is_over = |publication: &Publication| {
            publication.record.is_withdrawal() && matches!(publication.state, State::Stored { .. })
        };
        self.records.retain(|_, publication| !is_over(publication));
        let is_writing =
            |publication: &&Publication| matches!(publication.state, State::Writing { .. });
        let mut room =
            desk.config.writes.saturating_sub(self.records.values().filter(is_writing).count());
        for publication in self.records.values_mut() {
            if room == 0 {
                break;
            }
            if matches!(publication.state, State::Waiting) {
                let request = desk.random.next_u64() as u32 | 1;
                publication.search.restart();
                publication.send(desk, request, desk.now);
                room -= 1;
            }
        }
    }

    /// Returns the key of the record that is written with this number.
    pub(crate) fn key_of(&self, request: u32) -> Option<NodeId> {
        let name = self.of_request(request)?;
        self.records.get(&name).map(|publication| publication.search.key())
    }

    fn of_request(&self, request: u32) -> Option<Name> {
        let is_of = |publication: &Publication| matches!(publication.state, State::Writing { request: own, .. } if own == request);
        let found = self.records.iter().find(|(_, publication)| is_of(publication));
        found.map(|(name, _)| name.clone())
    }
}

impl Publication {
    /// Ends the write. It is repeated when a third of the lifetime has passed, or a little earlier, so that records that
    /// were written at once are not written at once again.
    fn rest(&mut self, desk: &mut Desk<'_>) {
        let third = Duration::from_secs(self.record.lifetime().into()) / 3;
        let share = (desk.random.next_u64() % 256) as u32;
        self.state = State::Stored { again: desk.now + (third - third / 5 * share / 256) };
    }

    /// Asks the next, and besides all known keepers that have not answered.
    fn send(&mut self, desk: &mut Desk<'_>, request: u32, begun: Time) {
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
        let due = desk.now + desk.trip.wait(desk.config, self.search.attempts());
        self.state = State::Writing { request, begun, due };
    }
}
