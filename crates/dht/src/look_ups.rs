//! Questions under way: who has records of a name?
//!
//! The owner is asked first, and others when it is silent for longer than answers take. Answers count only of routers that
//! are near enough to the key to be its keepers. The first who has records ends a look-up: records prove themselves. That
//! there are none is believed of a quorum of keepers, which has a member in common with every quorum that a record was
//! written to. A *thorough* look-up unites the records of a quorum.

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

/// Routers that are asked at a time after the owner was silent, or keepers after one has answered.
const AT_ONCE: usize = 2;
/// Maximum number of routers whose answers to one look-up count.
const MAX_ANSWERERS: usize = 16;

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
    /// These are the records, of a signer each, verified; the signer that came first is the first. Those of a thorough
    /// look-up are all that were stored before it began, each in its last version or a later one.
    Found(Vec<Record>),
    /// A quorum of the keepers has none.
    Absent,
    /// A thorough look-up has found these, but too few keepers have answered to say that they are all.
    Partial(Vec<Record>),
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

/// One record of an answer, verified.
pub(crate) struct Found<'a> {
    pub(crate) index: u8,
    pub(crate) count: u8,
    pub(crate) settled: bool,
    pub(crate) aside: bool,
    pub(crate) leaves: &'a Leaves,
    pub(crate) signer: NodeId,
    pub(crate) record: Record,
}

/// What a router has answered.
#[derive(Clone, Copy, Debug)]
struct Answerer {
    id: NodeId,
    settled: bool,
    /// The records that it has sent, by their index, and of how many.
    received: u64,
    count: u8,
}

impl Answerer {
    fn is_whole(&self) -> bool {
        self.received.count_ones() >= u32::from(self.count)
    }
}

#[derive(Clone, Debug)]
struct LookUp {
    request: u32,
    kind: u8,
    name: Box<[u8]>,
    /// It asks a quorum, whatever the first one answers.
    thorough: bool,
    search: Search,
    begun: Time,
    due: Time,
    answerers: SmallVec<[Answerer; KEEPERS]>,
    found: Vec<(u8, NodeId, Record)>,
    /// What routers have that are not keepers. It counts if nobody else answers.
    aside: Vec<(u8, NodeId, Record)>,
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
    pub(crate) fn begin(
        &mut self,
        desk: &mut Desk<'_>,
        (kind, name): (u8, &[u8]),
        thorough: bool,
    ) -> Option<LookUpId> {
        if self.under_way.len() >= desk.config.look_ups {
            return None;
        }
        let id = LookUpId::draw(desk.random);
        let mut look_up = LookUp {
            request: id.0,
            kind,
            name: name.into(),
            thorough,
            search: Search::new(key(kind, name)),
            begun: desk.now,
            due: desk.now,
            answerers: SmallVec::new(),
            found: Vec::new(),
            aside: Vec::new(),
        };
        look_up.ask(desk);
        self.under_way.push(look_up);
        Some(id)
    }

    /// Returns the key that a look-up with this number asks for.
    pub(crate) fn key_of(&self, request: u32) -> Option<NodeId> {
        self.of_request(request).map(|at| self.under_way[at].search.key())
    }

    /// Handles FOUND of a router that may be a keeper.
    pub(crate) fn found(
        &mut self,
        desk: &mut Desk<'_>,
        origin: NodeId,
        request: u32,
        found: Found<'_>,
    ) -> Option<(LookUpId, Answer)> {
        let at = self.of_request(request)?;
        let look_up = &mut self.under_way[at];
        let Found { index, count, settled, aside, leaves, signer, record } = found;
        let max = u8::try_from(desk.config.records_of_name).unwrap_or(u8::MAX);
        if (record.kind(), record.name()) != (look_up.kind, &look_up.name) || index >= max {
            return None;
        }
        look_up.learn(desk, origin, leaves);
        if aside {
            if look_up.aside.len() < MAX_ANSWERERS {
                note(&mut look_up.aside, index, signer, record);
            }
            look_up.go_on(desk);
            return None;
        }
        let answerer = look_up.answerer(origin, settled)?;
        answerer.count = count.min(max);
        answerer.received |= 1 << (index % 64);
        let is_whole = answerer.is_whole();
        note(&mut look_up.found, index, signer, record);
        // What one keeper lacks, because it was lost on its way, another one has sent.
        let is_enough = is_whole || look_up.found.len() >= usize::from(count);
        if is_enough && (!look_up.thorough || look_up.has_quorum(desk)) {
            return Some(self.under_way.swap_remove(at).end());
        }
        if is_whole {
            look_up.go_on(desk);
        }
        None
    }

    /// Handles ABSENT of a router that may be a keeper.
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
        if !settled && !desk.measure.is_beside(origin, look_up.search.key()) {
            // The question has gone astray. Those beside that router would lead to the keepers one by one.
            return None;
        }
        look_up.learn(desk, origin, leaves);
        let answerer = look_up.answerer(origin, settled)?;
        (answerer.count, answerer.received) = (0, 0);
        if (look_up.thorough || look_up.found.is_empty()) && look_up.has_quorum(desk) {
            return Some(self.under_way.swap_remove(at).end());
        }
        look_up.go_on(desk);
        None
    }

    /// Does what is due.
    pub(crate) fn timeout(&mut self, desk: &mut Desk<'_>) -> Vec<(LookUpId, Answer)> {
        let mut ended = Vec::new();
        let mut at = 0;
        while at < self.under_way.len() {
            let look_up = &mut self.under_way[at];
            let is_found = !look_up.thorough && !look_up.found.is_empty();
            if look_up.due > desk.now {
                at += 1;
            } else if is_found || look_up.is_given_up(desk) {
                ended.push(self.under_way.swap_remove(at).give_up());
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
        let (to, by_another) = match self.search.next(desk.measure.spacing) {
            Target::Owner { by_another } => (self.search.key(), by_another),
            Target::At(to) => (to, false),
        };
        desk.out.push(Message { by_another, ..Message::to(to, &self.question()) });
        self.due = desk.now + desk.trip.wait(desk.config, self.search.attempts());
    }

    fn is_given_up(&self, desk: &Desk<'_>) -> bool {
        let waited = desk.now.since(self.begun);
        waited >= desk.config.look_up_patience || self.search.attempts() >= MAX_ATTEMPTS
    }

    /// Notes who has answered, and who is beside it.
    fn learn(&mut self, desk: &mut Desk<'_>, origin: NodeId, leaves: &Leaves) {
        desk.trip.measure_first(self.search.attempts(), desk.now.since(self.begun));
        self.search.learn(desk, origin, leaves);
    }

    /// Returns what a router has answered, to be completed; `None` if there are too many.
    fn answerer(&mut self, id: NodeId, settled: bool) -> Option<&mut Answerer> {
        let at = match self.answerers.iter().position(|answerer| answerer.id == id) {
            Some(at) => at,
            None if self.answerers.len() == MAX_ANSWERERS => return None,
            None => {
                self.answerers.push(Answerer { id, settled, received: 0, count: 0 });
                self.answerers.len() - 1
            }
        };
        let answerer = self.answerers.get_mut(at)?;
        answerer.settled = settled;
        Some(answerer)
    }

    /// Returns whether a quorum of settled keepers has sent all that it has.
    fn has_quorum(&self, desk: &Desk<'_>) -> bool {
        let is_whole = |answerer: &&Answerer| answerer.settled && answerer.is_whole();
        self.answerers.iter().filter(is_whole).count() >= desk.quorum
    }

    /// Asks other keepers that an answer has named.
    fn go_on(&mut self, desk: &mut Desk<'_>) {
        if self.search.attempts() < MAX_ATTEMPTS {
            for to in self.search.take_unasked(AT_ONCE) {
                desk.out.push(Message::to(to, &self.question()));
            }
        }
    }

    /// Ends a look-up that knows what it asked for.
    fn end(self) -> (LookUpId, Answer) {
        let id = LookUpId(self.request);
        (id, Answer::of(self.into_records()))
    }

    /// Ends a look-up that has waited for too long.
    fn give_up(mut self) -> (LookUpId, Answer) {
        let (id, thorough) = (LookUpId(self.request), self.thorough);
        if self.found.is_empty() {
            self.found = core::mem::take(&mut self.aside);
        }
        let records = self.into_records();
        let answer = match (records.is_empty(), thorough) {
            (true, _) => Answer::Unknown,
            (false, false) => Answer::of(records),
            (false, true) => match Answer::of(records) {
                Answer::Found(records) => Answer::Partial(records),
                _ => Answer::Unknown,
            },
        };
        (id, answer)
    }

    fn into_records(mut self) -> Vec<Record> {
        self.found.sort_by_key(|&(index, signer, _)| (index, signer));
        self.found.into_iter().map(|(.., record)| record).collect()
    }
}

/// Notes a record. Of two by one signer the later counts.
fn note(found: &mut Vec<(u8, NodeId, Record)>, index: u8, signer: NodeId, record: Record) {
    match found.iter_mut().find(|(_, other, _)| *other == signer) {
        Some((first, _, known)) => {
            *first = index.min(*first);
            if known.version() < record.version() {
                *known = record;
            }
        }
        None => found.push((index, signer, record)),
    }
}
