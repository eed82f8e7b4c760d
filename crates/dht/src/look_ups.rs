//! Questions under way: who has records of a name?
//!
//! The owner is asked first, and others when it is silent for longer than answers take. The first who has records ends the
//! look-up: records prove themselves. That there are none is believed of a quorum of keepers, which has a member in common
//! with every quorum that a record was written to.

use ringway_mesh::NodeId;
use ringway_sansio::Random;
use ringway_sansio::time::Time;
use smallvec::SmallVec;

use crate::config::{KEEPERS, MAX_ATTEMPTS};
use crate::neighbours::Leaves;
use crate::output::Message;
use crate::record::{Record, key};
use crate::search::{Desk, Search, Target};
use crate::wire::Packet;

/// Routers that are asked at a time after the owner was silent, or keepers after one has denied.
const AT_ONCE: usize = 2;

/// The number of a look-up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LookUpId(u32);

impl LookUpId {
    /// Draws a number. It is not 0.
    pub(crate) fn draw(random: &mut dyn Random) -> Self {
        LookUpId(random.next_u64() as u32 | 1)
    }
}

/// How a look-up has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// These are the records, of a signer each, verified; the signer that came first is the first.
    Found(Vec<Record>),
    /// A quorum of the keepers has none.
    Absent,
    /// Too few have answered.
    Unknown,
}

impl Answer {
    /// Returns the answer that these records are. Who has signed a withdrawal has none.
    pub(crate) fn of(mut records: Vec<Record>) -> Answer {
        records.retain(|record| !record.is_withdrawal());
        if records.is_empty() { Answer::Absent } else { Answer::Found(records) }
    }
}

#[derive(Clone, Debug)]
struct LookUp {
    request: u32,
    kind: u8,
    name: Box<[u8]>,
    search: Search,
    begun: Time,
    due: Time,
    deniers: SmallVec<[NodeId; KEEPERS]>,
    found: Vec<(u8, NodeId, Record)>,
}

/// Look-ups under way.
#[derive(Clone, Debug, Default)]
pub struct LookUps {
    under_way: Vec<LookUp>,
}

impl LookUps {
    /// Returns how many are under way.
    pub fn len(&self) -> usize {
        self.under_way.len()
    }

    /// Returns whether none is under way.
    pub fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Begins one. Returns `None` if too many are under way.
    pub(crate) fn begin(&mut self, desk: &mut Desk<'_>, kind: u8, name: &[u8]) -> Option<LookUpId> {
        if self.under_way.len() >= desk.config.look_ups {
            return None;
        }
        let id = LookUpId::draw(desk.random);
        let mut look_up = LookUp {
            request: id.0,
            kind,
            name: name.into(),
            search: Search::new(key(kind, name)),
            begun: desk.now,
            due: desk.now,
            deniers: SmallVec::new(),
            found: Vec::new(),
        };
        look_up.ask(desk);
        self.under_way.push(look_up);
        Some(id)
    }

    /// Handles FOUND. The record is verified, and its signer is `signer`.
    pub(crate) fn found(
        &mut self,
        desk: &mut Desk<'_>,
        request: u32,
        (index, count): (u8, u8),
        signer: NodeId,
        record: Record,
    ) -> Option<(LookUpId, Answer)> {
        let at = self.of_request(request)?;
        let look_up = &mut self.under_way[at];
        if (record.kind(), record.name()) != (look_up.kind, &look_up.name) {
            return None;
        }
        desk.trip.measure_first(look_up.search.attempts(), desk.now.since(look_up.begun));
        look_up.note(index, signer, record);
        if look_up.found.len() < usize::from(count) {
            return None;
        }
        Some(self.under_way.swap_remove(at).end())
    }

    /// Returns whether a look-up waits for an answer with this number.
    pub(crate) fn expects(&self, request: u32) -> bool {
        self.of_request(request).is_some()
    }

    /// Handles ABSENT.
    pub(crate) fn absent(
        &mut self,
        desk: &mut Desk<'_>,
        origin: NodeId,
        request: u32,
        settled: bool,
        leaves: &Leaves,
    ) -> Option<(LookUpId, Answer)> {
        let at = self.of_request(request)?;
        let look_up = &mut self.under_way[at];
        desk.trip.measure_first(look_up.search.attempts(), desk.now.since(look_up.begun));
        look_up.search.learn(origin, leaves);
        if settled && !look_up.deniers.contains(&origin) {
            look_up.deniers.push(origin);
        }
        if look_up.found.is_empty() && look_up.deniers.len() >= desk.quorum {
            return Some(self.under_way.swap_remove(at).end_with(Answer::Absent));
        }
        if look_up.search.attempts() < MAX_ATTEMPTS {
            for to in look_up.search.take_unasked(AT_ONCE) {
                desk.out.push(Message::to(to, &look_up.question()));
            }
        }
        None
    }

    /// Does what is due.
    pub(crate) fn timeout(&mut self, desk: &mut Desk<'_>) -> Vec<(LookUpId, Answer)> {
        let mut ended = Vec::new();
        let mut at = 0;
        while at < self.under_way.len() {
            let look_up = &mut self.under_way[at];
            if look_up.due > desk.now {
                at += 1;
            } else if !look_up.found.is_empty() || look_up.is_given_up(desk) {
                ended.push(self.under_way.swap_remove(at).end());
            } else {
                (0..AT_ONCE).for_each(|_| look_up.ask(desk));
                at += 1;
            }
        }
        ended
    }

    /// Returns when something is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.under_way.iter().map(|look_up| look_up.due).min()
    }

    fn of_request(&self, request: u32) -> Option<usize> {
        self.under_way.iter().position(|look_up| look_up.request == request)
    }
}

impl LookUp {
    fn question(&self) -> Packet<'_> {
        Packet::Get { request: self.request, kind: self.kind, name: &self.name }
    }

    fn ask(&mut self, desk: &mut Desk<'_>) {
        let (to, by_another) = match self.search.next(desk.spacing) {
            Target::Owner { by_another } => (self.search.key(), by_another),
            Target::At(to) => (to, false),
        };
        desk.out.push(Message { by_another, ..Message::to(to, &self.question()) });
        self.due = desk.now + desk.trip.wait(desk.config, self.search.attempts());
    }

    fn is_given_up(&self, desk: &Desk<'_>) -> bool {
        let waited = desk.now.since(self.begun);
        waited >= desk.config.patience || self.search.attempts() >= MAX_ATTEMPTS
    }

    /// Notes a record. Of two by one signer the later counts.
    fn note(&mut self, index: u8, signer: NodeId, record: Record) {
        match self.found.iter_mut().find(|(_, other, _)| *other == signer) {
            Some((.., known)) if known.version() < record.version() => *known = record,
            Some(_) => {}
            None => self.found.push((index, signer, record)),
        }
    }

    fn end(mut self) -> (LookUpId, Answer) {
        if self.found.is_empty() {
            return self.end_with(Answer::Unknown);
        }
        self.found.sort_by_key(|(index, ..)| *index);
        let found = core::mem::take(&mut self.found).into_iter().map(|(.., record)| record);
        let answer = Answer::of(found.collect());
        self.end_with(answer)
    }

    fn end_with(self, answer: Answer) -> (LookUpId, Answer) {
        (LookUpId(self.request), answer)
    }
}
