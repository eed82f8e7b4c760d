//! The table, the publications, the look-ups and the repair of a router, joined to one machine.

use core::marker::PhantomData;
use std::collections::VecDeque;
use std::sync::Arc;

use ringway_mesh::NodeId;
use ringway_mesh::crypto::{Crypto, Real};
use ringway_mesh::id::Sequence;
use ringway_mesh::identity::Identity;
use ringway_sansio::time::{Time, sooner};
use ringway_sansio::{Malformed, Random};

use crate::config::{Config, MAX_CLAIMS, MAX_OF_NAME, QUORUM};
use crate::disputes::Disputes;
use crate::look_ups::{Answer, Ended, Found, Known, LookUpId, LookUps, Purpose};
use crate::neighbours::Neighbours;
use crate::origins::Origins;
use crate::output::Message;
use crate::publications::{Name, Publications, Written};
use crate::record::{Draft, Record, RecordError, key};
use crate::repair::{self, Repair};
use crate::scale::Scale;
use crate::scans::{Listed, ScanEnd, ScanId, Scans};
use crate::search::Desk;
use crate::shares::{Purse, SPARE, Sent, Shares, cost};
use crate::strays::Strays;
use crate::table::{self, Entry, Table};
use crate::timing::RoundTrip;
use crate::wire::{Copy, NotRenewed, Outcome, Packet, RENEWAL, Renewal, TYPES};

/// The mean number of links of a way, unless the caller sets it.
const MEAN_HOPS: u16 = 4;
/// Maximum number of events that wait for the caller.
const MAX_EVENTS: usize = 1_024;

/// What has happened.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A record of this router is stored: it survives the end of any two of its keepers.
    Stored(Name, Sequence),
    /// A record of this router could not be stored. That is tried again without being asked for.
    NotStored(Name),
    /// A look-up has ended.
    Answer(LookUpId, Answer),
    /// A scan has found these records, verified.
    Listed(ScanId, Vec<Record>),
    /// A scan has ended.
    Scanned(ScanId, ScanEnd),
}

/// Counts of messages that were dropped, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Malformed ones.
    pub malformed: u64,
    /// Above the rate of their sender.
    pub policed: u64,
    /// Of senders that may not send them: they are not beside this router, or not the signer, or the kind is not listed.
    pub refused: u64,
    /// Records whose signature is wrong.
    pub forged: u64,
    /// Answers of routers that are too far from the key to be its keepers.
    pub far: u64,
    /// Answers, and messages to pass on, for which the share of who asked did not suffice.
    pub unpaid: u64,
    /// Parts of lists for which the share of who asked did not suffice.
    pub unlisted: u64,
    /// Events that found no room.
    pub events: u64,
    /// Records for other keepers that had to wait for the next digest.
    pub postponed: u64,
    /// Hints that records are not at their keepers, for which too many checks were under way.
    pub unchecked: u64,
    /// Disputed names about which too much was to be asked.
    pub disputed: u64,
}

/// A router's part of the DHT.
pub struct Dht<C: Crypto = Real> {
    config: Config,
    identity: Arc<Identity>,
    neighbours: Neighbours,
    table: Table,
    publications: Publications,
    look_ups: LookUps,
    scans: Scans,
    repair: Repair,
    strays: Strays,
    disputes: Disputes,
    origins: Origins,
    answers: Shares,
    lists: Shares,
    passing_on: Shares,
    repairs: Shares,
    purse: Purse,
    hops: u16,
    scale: Scale,
    trip: RoundTrip,
    out: Vec<Message>,
    events: VecDeque<Event>,
    counters: Counters,
    crypto: PhantomData<fn() -> C>,
}

/// Lends the publications or the look-ups what they need of a router.
macro_rules! desk {
    ($dht:ident, $now:expr, $random:expr) => {{
        let quorum = $dht.quorum($now);
        Desk {
            now: $now,
            config: &$dht.config,
            identity: &$dht.identity,
            measure: $dht.scale.measure($now, $dht.neighbours.leaves().spacing()),
            scale: &mut $dht.scale,
            owned: $dht.neighbours.owned(),
            hops: $dht.hops,
            purse: &mut $dht.purse,
            quorum,
            trip: &mut $dht.trip,
            random: $random,
            out: &mut $dht.out,
        }
    }};
}

/// Lends the repair what it needs of a router.
macro_rules! bench {
    ($dht:ident, $now:expr) => {
        repair::Desk {
            now: $now,
            config: &$dht.config,
            neighbours: &$dht.neighbours,
            table: &$dht.table,
            shares: &mut $dht.repairs,
            purse: &mut $dht.purse,
            hops: $dht.hops,
            out: &mut $dht.out,
        }
    };
}

mod lists;
mod strays;

impl<C: Crypto> Dht<C> {
    /// The part of the router with this identity, which has started at `now`.
    pub fn new(config: Config, identity: impl Into<Arc<Identity>>, now: Time) -> Self {
        let identity = identity.into();
        let epoch = u32::try_from(now.as_secs()).unwrap_or(u32::MAX);
        Dht {
            config,
            neighbours: Neighbours::new(identity.id(), now),
            identity,
            table: Table::default(),
            publications: Publications::new(epoch),
            look_ups: LookUps::default(),
            scans: Scans::default(),
            repair: Repair::new(now),
            strays: Strays::default(),
            disputes: Disputes::default(),
            origins: Origins::default(),
            answers: Shares::default(),
            lists: Shares::default(),
            passing_on: Shares::default(),
            repairs: Shares::default(),
            purse: Purse::default(),
            hops: MEAN_HOPS,
            scale: Scale::default(),
            trip: RoundTrip::default(),
            out: Vec::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
            crypto: PhantomData,
        }
    }

    /// Returns the router's id.
    pub fn id(&self) -> NodeId {
        self.identity.id()
    }

    /// Returns the records that are kept here.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Returns the routers beside this one.
    pub fn neighbours(&self) -> &Neighbours {
        &self.neighbours
    }

    /// Returns the records of this router.
    pub fn publications(&self) -> &Publications {
        &self.publications
    }

    /// Returns whether this router would have a record at a position if anybody had one.
    pub fn is_settled(&self, now: Time, key: NodeId) -> bool {
        self.repair.is_settled(now, &self.config, &self.neighbours, key)
    }

    /// Returns how many keepers make a quorum. Who has just started may not know yet that there are more routers.
    fn quorum(&self, now: Time) -> usize {
        match self.neighbours.unchanged(now) < self.config.settle {
            true => QUORUM,
            false => self.neighbours.keepers().min(QUORUM),
        }
    }

    /// Returns the counts of dropped messages.
    pub fn counters(&self) -> Counters {
        let unpaid = self.answers.refused + self.passing_on.refused + self.repairs.refused;
        let (unchecked, disputed) = (self.strays.dropped, self.disputes.dropped);
        let (unlisted, postponed) = (self.lists.refused, self.repair.postponed);
        Counters { postponed, unchecked, disputed, unpaid, unlisted, ..self.counters }
    }

    /// Takes what the mesh knows of the routers beside this one: the nearest contacts in ascending order, and at an end of
    /// the line the other end. To be called when it may have changed.
    pub fn update_neighbours(
        &mut self,
        now: Time,
        near: impl Iterator<Item = NodeId>,
        partner: Option<NodeId>,
        random: &mut dyn Random,
    ) {
        if self.neighbours.update(now, near, partner) {
            self.changed(now, random);
        }
    }

    /// The routers beside this one have changed.
    fn changed(&mut self, now: Time, random: &mut dyn Random) {
        self.repair.hurry(now, &self.neighbours, random);
        let compared = self.strays.changed(now, random);
        self.publications.renew_early_at(compared);
    }

    /// Returns what was sent to other routers so far, by the type of messages ([`wire`](crate::wire)).
    pub fn sent(&self) -> &[Sent; TYPES] {
        &self.purse.sent
    }

    /// Takes the mean number of links of a way through the mesh, by which messages are paid; 4 until it is called.
    pub fn set_mean_hops(&mut self, hops: u16) {
        self.hops = hops.max(1);
    }

    /// Publishes a record, or its next version, and keeps it alive until it is withdrawn. Returns its version;
    /// [`Event::Stored`] follows when it is safe.
    ///
    /// # Errors
    /// A draft that is not within its limits, or too many records.
    pub fn publish(
        &mut self,
        now: Time,
        draft: &Draft<'_>,
        random: &mut dyn Random,
    ) -> Result<Sequence, RecordError> {
        let mut desk = desk!(self, now, random);
        let published = self.publications.publish::<C>(&mut desk, draft);
        self.pay(now);
        published
    }

    /// Withdraws a record. Returns whether there was one.
    pub fn withdraw(&mut self, now: Time, kind: u8, name: &[u8], random: &mut dyn Random) -> bool {
        let mut desk = desk!(self, now, random);
        let withdrawn = self.publications.withdraw::<C>(&mut desk, kind, name);
        self.pay(now);
        withdrawn
    }

    /// Looks for the records of a kind and name. The answer is an [`Event::Answer`]: what the first keeper has that has any.
    /// A caller that accepts none of them asks [`look_up_all`](Self::look_up_all). Returns `None` if too many look-ups are
    /// under way.
    pub fn look_up(
        &mut self,
        now: Time,
        kind: u8,
        name: &[u8],
        random: &mut dyn Random,
    ) -> Option<LookUpId> {
        self.table.expire(now);
        let key = key(kind, name);
        if self.neighbours.keeps(key) {
            // What a keeper has it need not ask others for.
            let kept = self.table.of_name(key, kind, name);
            let records: Vec<Record> = kept.iter().map(|entry| entry.record.clone()).collect();
            if !records.is_empty() {
                let id = LookUpId::draw(random);
                self.notify(Event::Answer(id, Answer::of(records)));
                return Some(id);
            }
        }
        self.begin_look_up(now, kind, name, Purpose::Any, random)
    }

    fn begin_look_up(
        &mut self,
        now: Time,
        kind: u8,
        name: &[u8],
        purpose: Purpose,
        random: &mut dyn Random,
    ) -> Option<LookUpId> {
        let id = self.look_ups.begin(&mut desk!(self, now, random), (kind, name), purpose);
        self.pay(now);
        id
    }

    /// Looks for all records of a kind and name, as a quorum of their keepers has them: the last version of each signer that
    /// was stored before, or a later one. The answer is an [`Event::Answer`]. Returns `None` if too many look-ups are under
    /// way.
    pub fn look_up_all(
        &mut self,
        now: Time,
        kind: u8,
        name: &[u8],
        random: &mut dyn Random,
    ) -> Option<LookUpId> {
        self.table.expire(now);
        self.begin_look_up(now, kind, name, Purpose::All, random)
    }

    /// Looks for all records of a kind that routers list ([`Config::listable`]). They are [`Event::Listed`], and the end is
    /// [`Event::Scanned`]. Returns `None` if too many scans are under way.
    pub fn scan(&mut self, now: Time, kind: u8, random: &mut dyn Random) -> Option<ScanId> {
        let id = self.scans.begin(&mut desk!(self, now, random), kind);
        self.pay(now);
        id
    }

    /// Ends a scan without a notice.
    pub fn stop_scan(&mut self, id: ScanId) {
        self.scans.stop(id);
    }

    /// Notifies those beside this router that it leaves. They take over at once.
    pub fn leave(&mut self) {
        for leaf in self.neighbours.leaves().distinct() {
            self.send(leaf, &Packet::Leave);
        }
    }

    /// Handles the octets of a PAYLOAD from the router `origin`, which may be this one.
    pub fn handle(&mut self, now: Time, origin: NodeId, octets: &[u8], random: &mut dyn Random) {
        let (own, beside) = (self.id(), self.neighbours.is_beside(origin));
        if origin != own && !self.origins.allows(now, &self.config, origin, beside) {
            self.counters.policed += 1;
            return;
        }
        self.table.expire(now);
        if self.receive(now, origin, octets, random).is_err() {
            self.counters.malformed += 1;
        }
        self.pay(now);
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time, random: &mut dyn Random) {
        self.table.expire(now);
        let mut desk = desk!(self, now, random);
        let written = self.publications.timeout::<C>(&mut desk);
        let mut desk = desk!(self, now, random);
        let ended = self.look_ups.timeout(&mut desk);
        let scanned = self.scans.timeout(&mut desk!(self, now, random));
        self.repair.timeout(&mut bench!(self, now), random);
        let spoken = self.repair.spoken();
        let is_silent = spoken.is_some_and(|spoken| self.neighbours.silent(now, spoken));
        if self.neighbours.refresh(now) || is_silent {
            self.changed(now, random);
        }
        self.seek_strays(now, random);
        self.ask_who_was_first(now, random);
        written.into_iter().for_each(|written| self.written(written));
        ended.into_iter().for_each(|ended| self.ended(now, ended));
        scanned.into_iter().for_each(|(id, end)| self.notify(Event::Scanned(id, end)));
        self.pay(now);
    }

    /// Returns when something is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        let own = sooner(self.publications.poll_timeout(), self.look_ups.poll_timeout());
        let own = sooner(own, sooner(self.scans.poll_timeout(), self.strays.poll_timeout()));
        let own = sooner(own, sooner(self.neighbours.poll_timeout(), self.disputes.poll_timeout()));
        sooner(sooner(own, self.repair.poll_timeout()), self.table.poll_timeout())
    }

    /// Pays for the messages to send.
    fn pay(&mut self, now: Time) {
        let way = (self.hops, self.neighbours.owned());
        self.purse.pay(now, self.config.budget, way, &self.out);
    }

    /// Returns whether so many eighths of the budget are there that shares need not be counted.
    fn has_spare(&mut self, now: Time, eighths: u32) -> bool {
        self.pay(now);
        self.purse.has_eighths(now, self.config.budget, eighths)
    }

    /// Removes and returns all messages to send, in their order.
    pub fn take_messages(&mut self) -> Vec<Message> {
        self.purse.clear();
        core::mem::take(&mut self.out)
    }

    /// Removes and returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn receive(
        &mut self,
        now: Time,
        origin: NodeId,
        octets: &[u8],
        random: &mut dyn Random,
    ) -> Result<(), Malformed> {
        let packet = Packet::parse(octets)?;
        match packet {
            Packet::Put { request, rest, record } => {
                if let Some(table::Outcome::Kept) =
                    self.keep(now, origin, origin, (request, rest), &record)
                {
                    self.pass_on(now, origin, (request, rest), record);
                }
            }
            Packet::Copies { records } => {
                for (rest, record) in records {
                    self.keep(now, origin, NodeId::default(), (0, rest), &record);
                }
            }
            Packet::Store { request, publisher, rest, record } => {
                self.keep(now, origin, publisher, (request, rest), &record);
            }
            Packet::Stored { request, outcome, leaves } => {
                let key = self.publications.key_of(request);
                if key.is_some_and(|key| self.may_keep(now, origin, key)) {
                    let mut desk = desk!(self, now, random);
                    let written =
                        self.publications.stored(&mut desk, origin, request, outcome, &leaves);
                    written.into_iter().for_each(|written| self.written(written));
                }
            }
            Packet::Get { request, kind, name } => self.get(now, origin, request, kind, name),
            Packet::Found { request, index, count, settled, aside, leaves, rest, record } => {
                let key = self.look_ups.key_of(request);
                let Some(signer) = self.signer_near(now, origin, key, &record) else {
                    return Ok(());
                };
                if key.is_some() {
                    let leaves = &leaves;
                    let found =
                        Found { index, count, settled, aside, leaves, signer, rest, record };
                    let mut desk = desk!(self, now, random);
                    let ended = self.look_ups.found(&mut desk, origin, request, found);
                    ended.into_iter().for_each(|ended| self.ended(now, ended));
                } else if signer == self.id() {
                    // The answer to a write that was too late.
                    let mut desk = desk!(self, now, random);
                    self.publications.surpass::<C>(&mut desk, request, &record);
                }
            }
            Packet::Absent { request, settled, leaves } => {
                let key = self.look_ups.key_of(request);
                if key.is_some_and(|key| self.may_keep(now, origin, key)) {
                    let mut desk = desk!(self, now, random);
                    let ended = self.look_ups.absent(&mut desk, origin, request, settled, &leaves);
                    ended.into_iter().for_each(|ended| self.ended(now, ended));
                }
            }
            Packet::Renew { request, stamp, copies } => {
                self.renew(now, origin, (request, stamp), copies);
            }
            Packet::Renewed { request, leaves, exceptions } => {
                let key = self.publications.key_of_renewal(request);
                if key.is_some_and(|key| self.may_keep(now, origin, key)) {
                    let mut desk = desk!(self, now, random);
                    let (leaves, exceptions) = (&leaves, &exceptions);
                    self.publications.renewed::<C>(&mut desk, origin, request, leaves, exceptions);
                }
                let key = self.strays.key_of(request);
                if key.is_some_and(|key| self.may_keep(now, origin, key)) {
                    self.checked(now, request, &exceptions, random);
                }
            }
            Packet::Check { request, copies } => self.check(now, origin, request, &copies),
            Packet::Astray { copies } => self.astray(now, origin, copies, random),
            Packet::List { request, kind, anyhow, stretch } => {
                self.list(now, origin, (request, kind, anyhow), stretch);
            }
            Packet::Listed { request, settled, last, stretch, records } => {
                let listed = Listed { request, settled, last, stretch, records: Vec::new() };
                self.listed(now, origin, listed, records, random);
            }
            packet => self.repair(now, origin, packet, random),
        }
        Ok(())
    }

    /// Handles what only a router beside this one may send.
    fn repair(&mut self, now: Time, origin: NodeId, packet: Packet<'_>, random: &mut dyn Random) {
        if !self.neighbours.is_beside(origin) {
            self.counters.refused += 1;
            return;
        }
        let changed = match &packet {
            Packet::Digest { leaves, .. } | Packet::Agree { leaves, .. } => {
                if self.neighbours.misses(origin, leaves) {
                    self.publications.sample_soon(now);
                }
                self.neighbours.report(now, origin, leaves.clone())
            }
            Packet::Leave => self.neighbours.leave(now, origin),
            _ => false,
        };
        if changed {
            self.changed(now, random);
        }
        if let Packet::Digest { life, renewals, .. } = &packet {
            self.repair.meet(now, origin, *life);
            renewals.iter().for_each(|renewal| self.table.renew_copy(now, renewal));
        }
        let mut bench = bench!(self, now);
        match packet {
            Packet::Digest { confirm, settled, span, count, parts, .. } => {
                let flags = (confirm, settled);
                self.repair.compare(&mut bench, origin, span, flags, count.into(), &parts);
            }
            Packet::Agree { span, .. } => {
                let took = self.repair.agree(&bench, origin, span);
                took.into_iter().for_each(|took| self.trip.measure(took));
            }
            Packet::Entries { span, marks } => {
                self.repair.exchange(&mut bench, origin, span, marks);
            }
            Packet::Want { span, marks } => self.repair.provide(&bench, origin, span, marks),
            _ => {}
        }
    }

    /// Returns whether an answer counts: its sender is near enough to the key to be one of its keepers.
    fn may_keep(&mut self, now: Time, origin: NodeId, key: NodeId) -> bool {
        let own = self.neighbours.leaves().spacing();
        let is_near = origin == self.id() || self.scale.measure(now, own).is_near(origin, key);
        self.counters.far += u64::from(!is_near);
        is_near
    }

    /// Has those beside this router keep a record too, if its publisher's share allows that. Otherwise the publisher does so
    /// itself: it is notified of who they are.
    fn pass_on(
        &mut self,
        now: Time,
        publisher: NodeId,
        (request, rest): (u32, u32),
        record: Record,
    ) {
        let leaves = self.neighbours.leaves().distinct();
        let octets = Packet::Store { request, publisher, rest, record }.to_octets();
        let cost = leaves.len() as u64 * cost(octets.len(), self.hops);
        if self.may_cost(now, publisher, cost) {
            let copies = leaves.into_iter().map(|to| Message {
                to,
                octets: octets.clone(),
                by_another: false,
            });
            self.out.extend(copies);
        }
    }

    /// Returns whether the share of another router allows what is to be passed on for it.
    fn may_cost(&mut self, now: Time, other: NodeId, cost: u64) -> bool {
        let Config { passing_on, origins, .. } = self.config;
        let is_free = other == self.id() || self.has_spare(now, SPARE);
        is_free || self.passing_on.spend(now, passing_on, origins, other, cost)
    }

    /// Keeps a record for `publisher`, and answers it unless `request` is 0. Returns what became of the record, if `origin`
    /// may have it kept: its signer, or a keeper.
    fn keep(
        &mut self,
        now: Time,
        origin: NodeId,
        publisher: NodeId,
        (request, rest): (u32, u32),
        record: &Record,
    ) -> Option<table::Outcome> {
        // Who has a record kept for another can revive it, so it must be a keeper.
        if origin != publisher && !self.neighbours.is_beside(origin) {
            self.counters.refused += 1;
            return None;
        }
        let Some(signer) = self.signer(record) else {
            self.counters.forged += 1;
            return None;
        };
        if origin == publisher && signer != origin {
            self.counters.refused += 1;
            return None;
        }
        let known = self.table.get(record.key(), signer);
        let is_known = known.is_some_and(|entry| entry.record == *record);
        // One that was recorded on its way and is sent again does not keep a record alive: publishers renew it otherwise.
        let rest = if is_known && request != 0 { 0 } else { rest };
        let is_new = known.is_none();
        let placed = self.table.keep(now, &self.config, record.clone(), signer, rest);
        // One that finds no room may be the first nevertheless, if another keeper has it.
        let may_be_first = is_new && (placed == table::Outcome::Kept || request == 0);
        let is_claim = self.config.claims.contains(record.kind());
        if may_be_first && is_claim && self.table.is_disputed(now, &self.config, record) {
            self.disputes.open(now, &self.config, record, signer);
        }
        if !is_known && self.neighbours.owned().contains(record.key()) {
            self.repair.changed(now, request == 0);
        }
        if request == 0 {
            return Some(placed);
        }
        let leaves = self.neighbours.leaves().clone();
        let outcome = match placed {
            table::Outcome::Kept if self.neighbours.keeps(record.key()) => Outcome::Kept,
            table::Outcome::Kept => Outcome::Aside,
            table::Outcome::Full => Outcome::Full,
            table::Outcome::Later => {
                if let Some(entry) = self.table.get(record.key(), signer) {
                    let (rest, record) = (entry.rest(now), entry.record.clone());
                    let found = Packet::Found {
                        request,
                        index: 0,
                        count: 1,
                        settled: false,
                        aside: false,
                        leaves,
                        rest,
                        record,
                    };
                    self.acknowledge(now, origin, publisher, &found);
                }
                return Some(placed);
            }
        };
        self.acknowledge(now, origin, publisher, &Packet::Stored { request, outcome, leaves });
        Some(placed)
    }

    /// Keeps records of `origin` for another lifetime, if its share allows that those beside this router are notified.
    fn renew(
        &mut self,
        now: Time,
        origin: NodeId,
        (request, stamp): (u32, u32),
        copies: Vec<Copy>,
    ) {
        let mut exceptions = Vec::new();
        for (at, &copy) in (0u8..).zip(&copies) {
            let is_kept = self.table.renew(now, origin, &Renewal { copy, stamp, rest: u32::MAX });
            if !self.neighbours.keeps(copy.key) {
                exceptions.push((at, NotRenewed::Elsewhere));
            } else if !is_kept {
                exceptions.push((at, NotRenewed::Unknown));
            }
        }
        let leaves = self.neighbours.leaves().clone();
        let passed_on = copies.len() * leaves.distinct().len() * RENEWAL;
        let message = Message::to(origin, &Packet::Renewed { request, leaves, exceptions });
        if self.may_cost(now, origin, cost(message.octets.len() + passed_on, self.hops)) {
            self.out.push(message);
            let entries = copies.iter().filter_map(|copy| self.table.get(copy.key, origin));
            entries.for_each(|entry| self.repair.renewed(now, &self.config, entry));
        }
    }

    /// Answers a publisher, if the share of the router that has brought the record allows that.
    fn acknowledge(&mut self, now: Time, origin: NodeId, publisher: NodeId, packet: &Packet<'_>) {
        let message = Message::to(publisher, packet);
        if self.may_cost(now, origin, cost(message.octets.len(), self.hops)) {
            self.out.push(message);
        }
    }

    /// Returns the signer of a record, if it may have this name. One that is kept here is known to be good.
    fn signer(&self, record: &Record) -> Option<NodeId> {
        let signer = record.proof().id();
        if self.config.own_names.contains(record.kind()) && *record.name() != signer.to_bytes() {
            return None;
        }
        match self.table.get(record.key(), signer) {
            Some(kept) if kept.record == *record => Some(signer),
            _ => record.verify::<C>(self.config.extension_bits),
        }
    }

    /// Answers a question, if the share of who asks allows that.
    fn get(&mut self, now: Time, origin: NodeId, request: u32, kind: u8, name: &[u8]) {
        let key = key(kind, name);
        let (settled, aside) = (self.is_settled(now, key), !self.neighbours.keeps(key));
        let settled = settled && !aside;
        let leaves = self.neighbours.leaves();
        let mut found = self.table.of_name(key, kind, name);
        if self.config.claims.contains(kind) {
            let is_claim = |(_, entry): &(usize, &&Entry)| !entry.record.is_withdrawal();
            let last = found.iter().enumerate().filter(is_claim).nth(MAX_CLAIMS - 1);
            let count = last.map_or(found.len(), |(at, _)| at + 1);
            found.truncate(count);
        }
        let count = found.len().min(MAX_OF_NAME) as u8;
        let mut answers: Vec<Message> = Vec::new();
        for (entry, index) in found.into_iter().zip(0..count) {
            let (leaves, rest, record) = (leaves.clone(), entry.rest(now), entry.record.clone());
            let packet =
                Packet::Found { request, index, count, settled, aside, leaves, rest, record };
            answers.push(Message::to(origin, &packet));
        }
        if count == 0 {
            let leaves = leaves.clone();
            answers.push(Message::to(origin, &Packet::Absent { request, settled, leaves }));
        }
        let all = answers.iter().map(|message| cost(message.octets.len(), self.hops)).sum();
        if self.may_answer(now, origin, all) {
            self.out.extend(answers);
        }
    }

    /// Returns whether the share of another router allows answers that cost so much.
    fn may_answer(&mut self, now: Time, origin: NodeId, cost: u64) -> bool {
        let Config { answers, origins, .. } = self.config;
        let is_free = origin == self.id() || self.has_spare(now, SPARE);
        is_free || self.answers.spend(now, answers, origins, origin, cost)
    }

    /// Returns the signer of a record that was found, unless a key is sought of which the sender cannot be a keeper.
    fn signer_near(
        &mut self,
        now: Time,
        origin: NodeId,
        key: Option<NodeId>,
        record: &Record,
    ) -> Option<NodeId> {
        if key.is_some_and(|key| !self.may_keep(now, origin, key)) {
            return None;
        }
        let signer = self.signer(record);
        self.counters.forged += u64::from(signer.is_none());
        signer
    }

    fn ended(&mut self, now: Time, ended: Ended) {
        match ended {
            Ended::Answer(id, answer) => self.notify(Event::Answer(id, answer)),
            Ended::Settled(known) => self.first_is_known(now, &known),
        }
    }

    /// Asks the keepers of a disputed name who was first, where this router was not there to see it.
    fn ask_who_was_first(&mut self, now: Time, random: &mut dyn Random) {
        let Some((kind, name)) = self.disputes.next(now, self.config.dispute_pace) else { return };
        if self.neighbours.keeps(key(kind, &name)) {
            self.begin_look_up(now, kind, &name, Purpose::Order, random);
        }
    }

    fn first_is_known(&mut self, now: Time, known: &[Known]) {
        let Some(first) = known.first() else { return };
        self.disputes.settle(&first.record);
        self.table.arrange(now, &self.config, known);
    }

    fn send(&mut self, to: NodeId, packet: &Packet<'_>) {
        self.out.push(Message::to(to, packet));
    }

    fn written(&mut self, written: Written) {
        self.notify(match written {
            Written::Stored(name, version) => Event::Stored(name, version),
            Written::NotStored(name) => Event::NotStored(name),
        });
    }

    fn notify(&mut self, event: Event) {
        if self.events.len() < MAX_EVENTS {
            self.events.push_back(event);
        } else {
            self.counters.events += 1;
        }
    }
}
