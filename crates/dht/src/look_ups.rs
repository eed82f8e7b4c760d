//! Questions under way: who has records of a name?
//!
//! The owner is asked first, and others when it is silent for longer than answers take. Answers count only of routers that
//! are near enough to the key to be its keepers. The first who has records ends a look-up: records prove themselves. That
//! there are none is believed of a quorum of keepers, which has a member in common with every quorum that a record was
//! written to. A *thorough* look-up unites the records of a quorum.
//!
//! Each keeper sends the records of a name in the order in which their signers came to it. The order of an answer is that of
//! most keepers. If a name has one holder ([`Config::claims`]) and more than one signer, a look-up waits for all five a little.

use ringway_mesh::NodeId;
use ringway_sansio::Random;
use ringway_sansio::time::Time;
use smallvec::SmallVec;

use crate::config::{Config, KEEPERS, MAX_ATTEMPTS, QUORUM};
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
    /// These are the records, of a signer each, verified; the signer that most of the keepers that have answered had first is
    /// the first. Those of a thorough look-up are all that were stored before it began, each in its last version or a later
    /// one.
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
    pub(crate) rest: u32,
    pub(crate) record: Record,
}

/// A record that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Known {
    pub(crate) signer: NodeId,
    /// For how long the last keeper that has sent it will keep it, s.
    pub(crate) rest: u32,
    pub(crate) record: Record,
}

/// How a look-up has ended.
pub(crate) enum Ended {
    /// For the caller.
    Answer(LookUpId, Answer),
    /// For the table: the records of a disputed name in their order; none if too few keepers have answered.
    Settled(Vec<Known>),
}

/// What is looked up, and for what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// Any record, for the caller.
    Any,
    /// All records, for the caller.
    All,
    /// The order of all records, for the table of this router.
    Order,
}

/// What a router has answered.
#[derive(Clone, Debug)]
struct Answerer {
    id: NodeId,
    settled: bool,
    /// The signers of the records that it has sent, each with its index, and of how many.
    order: SmallVec<[(NodeId, u8); 2]>,
    count: u8,
}

impl Answerer {
    fn is_whole(&self) -> bool {
        self.order.len() >= usize::from(self.count)
    }

    fn note(&mut self, signer: NodeId, index: u8) {
        if !self.order.iter().any(|&(id, at)| id == signer || at == index) {
            self.order.push((signer, index));
        }
    }

    /// Returns which of the records it had first, from 0. What it lacks comes last.
    fn rank(&self, signer: NodeId) -> u8 {
        let of_signer = self.order.iter().find(|&&(id, _)| id == signer);
        of_signer.map_or(u8::MAX, |&(_, index)| index)
    }
}

#[derive(Clone, Debug)]
struct LookUp {
    request: u32,
    kind: u8,
    name: Box<[u8]>,
    purpose: Purpose,
    search: Search,
    begun: Time,
    due: Time,
    /// When a quorum was known to have records of several signers, of which only one can hold the name.
    disputed: Option<Time>,
    answerers: Vec<Answerer>,
    found: Vec<Known>,
    /// What routers have that are not keepers. It counts if nobody else answers.
    aside: Vec<Known>,
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
        purpose: Purpose,
    ) -> Option<LookUpId> {
        if self.under_way.len() >= desk.config.look_ups {
            return None;
        }
        let id = LookUpId::draw(desk.random);
        let mut look_up = LookUp {
            request: id.0,
            kind,
            name: name.into(),
            purpose,
            search: Search::new(key(kind, name)),
            begun: desk.now,
            due: desk.now,
            disputed: None,
            answerers: Vec::new(),
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
    ) -> Option<Ended> {
        let at = self.of_request(request)?;
        let look_up = &mut self.under_way[at];
        let Found { index, count, settled, aside, leaves, signer, rest, record } = found;
        let max = u8::try_from(desk.config.records_of_name).unwrap_or(u8::MAX);
        if (record.kind(), record.name()) != (look_up.kind, &look_up.name) || index >= max {
            return None;
        }
        look_up.learn(desk, origin, leaves);
        let known = Known { signer, rest, record };
        if aside {
            if look_up.aside.len() < MAX_ANSWERERS {
                note(&mut look_up.aside, known);
            }
            look_up.go_on(desk);
            return None;
        }
        let answerer = look_up.answerer(origin, settled)?;
        answerer.count = count.min(max);
        answerer.note(signer, index);
        let is_whole = answerer.is_whole();
        note(&mut look_up.found, known);
        // What one keeper lacks, because it was lost on its way, another one has sent.
        let is_enough = is_whole || look_up.found.len() >= usize::from(count);
        if is_enough && (look_up.purpose == Purpose::Any || look_up.is_decided(desk)) {
            return Some(self.under_way.swap_remove(at).end());
        }
        if look_up.is_unanimous(desk) {
            return Some(self.under_way.swap_remove(at).end_early());
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
    ) -> Option<Ended> {
        let at = self.of_request(request)?;
        let look_up = &mut self.under_way[at];
        if !settled && !desk.measure.is_beside(origin, look_up.search.key()) {
            // The question has gone astray. Those beside that router would lead to the keepers one by one.
            return None;
        }
        look_up.learn(desk, origin, leaves);
        let answerer = look_up.answerer(origin, settled)?;
        (answerer.count, answerer.order) = (0, SmallVec::new());
        let is_thorough = look_up.purpose != Purpose::Any;
        if (is_thorough || look_up.found.is_empty()) && look_up.is_decided(desk) {
            return Some(self.under_way.swap_remove(at).end());
        }
        if look_up.is_unanimous(desk) {
            return Some(self.under_way.swap_remove(at).end_early());
        }
        look_up.go_on(desk);
        None
    }

    /// Does what is due.
    pub(crate) fn timeout(&mut self, desk: &mut Desk<'_>) -> Vec<Ended> {
        let mut ended = Vec::new();
        let mut at = 0;
        while at < self.under_way.len() {
            let look_up = &mut self.under_way[at];
            if look_up.due > desk.now {
                at += 1;
            } else if look_up.is_decided(desk) {
                ended.push(self.under_way.swap_remove(at).end());
            } else if look_up.is_enough(desk) {
                ended.push(self.under_way.swap_remove(at).end_early());
            } else if look_up.is_given_up(desk) {
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
                self.answerers.push(Answerer { id, settled, order: SmallVec::new(), count: 0 });
                self.answerers.len() - 1
            }
        };
        let answerer = self.answerers.get_mut(at)?;
        answerer.settled = settled;
        Some(answerer)
    }

    /// Returns whether what the answers say together cannot change any more, or no more is waited for.
    fn is_decided(&mut self, desk: &Desk<'_>) -> bool {
        let is_whole = |answerer: &&Answerer| answerer.settled && answerer.is_whole();
        if self.answerers.iter().filter(is_whole).count() < desk.quorum {
            return false;
        }
        if !self.is_disputed(desk.config) || self.has_all() {
            return true;
        }
        let since = *self.disputed.get_or_insert(desk.now);
        let until = since + desk.config.dispute_patience;
        self.due = self.due.min(until);
        until <= desk.now
    }

    /// Returns whether several signers claim a name that only one can have.
    fn is_disputed(&self, config: &Config) -> bool {
        let claims = self.found.iter().filter(|known| !known.record.is_withdrawal());
        self.purpose != Purpose::Any && config.claims.contains(self.kind) && claims.count() > 1
    }

    /// Returns whether all keepers that are known have sent all that they have.
    fn has_all(&mut self) -> bool {
        let keepers = self.search.keepers();
        let has = |id: &NodeId| self.answerers.iter().any(|one| one.id == *id && one.is_whole());
        keepers.iter().all(has)
    }

    /// Returns whether what was found has to do, though its keepers may lack some.
    fn is_enough(&self, desk: &Desk<'_>) -> bool {
        let whole = self.answerers.iter().filter(|answerer| answerer.is_whole()).count();
        let is_over = desk.now.since(self.begun) >= desk.config.partial_patience;
        let has_any = self.found.iter().any(|known| !known.record.is_withdrawal());
        match self.purpose {
            Purpose::Any => !self.found.is_empty(),
            // Keepers that differ are not settled until they know who was first.
            Purpose::All | Purpose::Order => is_over && whole >= QUORUM && has_any,
        }
    }

    /// Returns whether nothing better is to be expected of keepers that are not settled, since routers have come or gone: all
    /// that are known have answered, a quorum has the same one record, and nobody has another. Of a name with one holder all
    /// but one are enough, as one could not change who that is.
    fn is_unanimous(&mut self, desk: &Desk<'_>) -> bool {
        if self.purpose != Purpose::All || self.found.len() != 1 {
            return false;
        }
        let keepers = self.search.keepers();
        let has_it = |one: &&Answerer| keepers.contains(&one.id) && one.is_whole() && one.count > 0;
        let count = self.answerers.iter().filter(has_it).count();
        let is_enough = match desk.config.claims.contains(self.kind) {
            true => count + 1 >= keepers.len(),
            false => self.has_all(),
        };
        let is_claim = self.found.iter().all(|known| !known.record.is_withdrawal());
        is_claim && is_enough && count >= QUORUM
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
    fn end(mut self) -> Ended {
        let known = self.take_ordered();
        match self.purpose {
            Purpose::Order => Ended::Settled(known),
            _ => Ended::Answer(LookUpId(self.request), Answer::of(records(known))),
        }
    }

    /// Ends a look-up that has waited for too long.
    fn give_up(mut self) -> Ended {
        if self.purpose == Purpose::Order {
            return Ended::Settled(Vec::new());
        }
        if self.found.is_empty() {
            self.found = core::mem::take(&mut self.aside);
        }
        self.end_early()
    }

    /// Ends a look-up with what was found.
    fn end_early(mut self) -> Ended {
        if self.purpose == Purpose::Order {
            return self.end();
        }
        let records = records(self.take_ordered());
        let answer = match (records.is_empty(), self.purpose) {
            (true, _) => Answer::Unknown,
            (false, Purpose::Any) => Answer::of(records),
            (false, _) => match Answer::of(records) {
                Answer::Found(records) => Answer::Partial(records),
                _ => Answer::Unknown,
            },
        };
        Ended::Answer(LookUpId(self.request), answer)
    }

    /// Removes and returns what was found in the order that keepers state together: by how many had a signer first, and then
    /// by the median of its ranks. Only those count that are nearest to the key, of all that are known: a router that is
    /// merely near enough has no vote.
    fn take_ordered(&mut self) -> Vec<Known> {
        let keepers = self.search.keepers();
        let may_vote = |one: &&Answerer| keepers.contains(&one.id) && one.is_whole();
        let voters: SmallVec<[&Answerer; KEEPERS]> =
            self.answerers.iter().filter(may_vote).collect();
        let standing = |signer: NodeId| {
            let mut ranks: SmallVec<[u8; KEEPERS]> =
                voters.iter().map(|voter| voter.rank(signer)).collect();
            ranks.sort_unstable();
            let firsts = ranks.iter().take_while(|rank| **rank == 0).count();
            (KEEPERS.saturating_sub(firsts), ranks.get(ranks.len() / 2).copied())
        };
        let mut found = core::mem::take(&mut self.found);
        found.sort_by_cached_key(|known| (standing(known.signer), known.signer));
        found
    }
}

fn records(known: Vec<Known>) -> Vec<Record> {
    known.into_iter().map(|known| known.record).collect()
}

/// Notes a record. Of two by one signer the later counts.
fn note(found: &mut Vec<Known>, new: Known) {
    match found.iter_mut().find(|known| known.signer == new.signer) {
        Some(known) if known.record.version() < new.record.version() => *known = new,
        Some(_) => {}
        None => found.push(new),
    }
}
