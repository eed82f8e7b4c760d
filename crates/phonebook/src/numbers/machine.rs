//! The state, the users and the hand-over of blocks, joined to one machine.
//!
//! What the machine sends and reports may depend on what it has just decided. So each change has a version: the world takes
//! the state by [`Numbers::poll_save`], stores it, and reports that by [`Numbers::handle_saved`]. Messages and events that
//! were made after a change are withheld until then.

mod census;
mod networks;
mod transfer;

use core::cmp::max;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ringway_sansio::time::{Duration, Time, sooner};
use ringway_sansio::{Malformed, Random};

use super::Node;
use super::config::{Config, MAX_EVENTS, MAX_MESSAGES, MAX_PEERS, MAX_RESEND, MAX_WAITING, RESEND};
use super::ranges::Range;
use super::sources::Sources;
use super::space::{BLOCK, Dialled, ShortNumber, Tag};
use super::state::{Holder, MAX_SLOTS, MAX_USER, State};
use super::wire::Packet;
use census::{Census, Ending};
pub use census::{ReclaimError, ReclaimFailure};
use transfer::Asks;

/// A message to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The router.
    pub to: Node,
    /// At most [`MAX_MESSAGE`](super::wire::MAX_MESSAGE) octets.
    pub octets: Vec<u8>,
}

/// A state to store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Save {
    /// The version, for [`Numbers::handle_saved`].
    pub version: u64,
    /// The octets, for [`Numbers::restore`].
    pub octets: Vec<u8>,
}

/// What has happened.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A user has a number.
    Assigned {
        /// The user.
        user: Box<str>,
        /// The number.
        number: ShortNumber,
        /// The user's number in the network that this router was in before. It stays valid.
        before: Option<ShortNumber>,
    },
    /// No router with free blocks was found within the time.
    NotAssigned {
        /// The user.
        user: Box<str>,
    },
    /// This router has created a network.
    Created(Tag),
    /// This router has changed over to an older network. An operator should know if users had numbers.
    Moved {
        /// The network that was left.
        from: Option<Tag>,
        /// The network that was joined.
        to: Tag,
        /// Users whose numbers have a mark now.
        marked: usize,
    },
    /// Numbers of an earlier network are no longer valid: this router has left more networks than it remembers.
    Dropped {
        /// The network.
        tag: Tag,
        /// Users that had a number of it.
        users: usize,
    },
    /// A router has handed over blocks that this router owns. An operator should know: a router has broken the rules, or an
    /// old state was restored.
    Conflict {
        /// The router.
        giver: Node,
    },
    /// A census has recovered blocks.
    Reclaimed {
        /// How many.
        blocks: u64,
    },
    /// A census has failed, and nothing was changed.
    ReclaimFailed(ReclaimFailure),
    /// This router's blocks were reclaimed, as it was said to be lost. An operator should know: its numbers may have been
    /// assigned elsewhere. They have a mark now.
    Expelled {
        /// Users whose numbers have a mark now.
        marked: usize,
    },
}

/// Counts of what was dropped, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Malformed messages.
    pub malformed: u64,
    /// Requests above the rate of their sender.
    pub policed: u64,
    /// Grants of numbers that are not in the space.
    pub foreign: u64,
    /// Grants of blocks that this router owns.
    pub conflicts: u64,
    /// Grants for an incarnation of this router whose state is lost.
    pub stale: u64,
    /// Messages that found no room.
    pub messages: u64,
    /// Events that found no room.
    pub events: u64,
}

/// Why a user cannot be assigned a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AssignError {
    /// The name has a bad length.
    #[error("expected a user's name of 1 to 255 octets, got {0}")]
    Name(usize),
    /// There are too many users.
    #[error("expected at most {0} users with short numbers at this router")]
    Users(usize),
    /// Too many users wait.
    #[error("expected at most {MAX_WAITING} users that wait for a short number")]
    Waiting,
}

/// A user that waits for a number.
#[derive(Clone, Debug)]
struct Waiting {
    user: Box<str>,
    /// When it is reported that there is none; never for a user of an earlier network.
    until: Option<Time>,
    /// The user's number in the network that this router was in before.
    before: Option<ShortNumber>,
}

/// What is repeated until it is answered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Repeated {
    /// A GRANT.
    Grant(u64),
    /// The ACK of a grant by a router.
    Ack(Node, u64),
}

/// When it is repeated next.
#[derive(Clone, Copy, Debug)]
struct Retry {
    next: Time,
    interval: Duration,
}

impl Retry {
    fn new(now: Time) -> Retry {
        Retry { next: now + RESEND, interval: RESEND }
    }

    fn again(&mut self, now: Time) {
        self.interval = (self.interval * 2).min(MAX_RESEND);
        self.next = now + self.interval;
    }
}

/// A router's part in the short numbers of its network.
pub struct Numbers {
    config: Config,
    id: Node,
    state: State,
    /// The numbers of users.
    users: BTreeMap<Box<str>, u32>,
    /// Unused numbers in blocks that have used ones.
    gaps: BTreeSet<u32>,
    /// Released numbers by the time at which their rest ends.
    resting: BTreeSet<(u64, u32)>,
    /// Versions of the state: the current one, the last that the world has taken, and the last that is stored.
    version: u64,
    offered: u64,
    saved: u64,
    /// With the version that must be stored before.
    messages: VecDeque<(u64, Message)>,
    events: VecDeque<(u64, Event)>,
    waiting: VecDeque<Waiting>,
    retries: BTreeMap<Repeated, Retry>,
    peers: Vec<Node>,
    sources: Sources,
    asks: Asks,
    /// Grants of each asker in its current hour, and when that began.
    askers: BTreeMap<Node, (Time, u32)>,
    status_due: Time,
    status_sent: Time,
    /// What the last statement was, in short.
    stated: transfer::Stated,
    /// When a network may be created.
    create_due: Time,
    census: Option<Census>,
    ending: Option<Ending>,
    /// Censuses that have ended here, the latest last.
    ended: VecDeque<u64>,
    frozen_until: Time,
    counters: Counters,
}

impl Numbers {
    /// The part of a router that has no state.
    pub fn new(config: Config, id: Node, now: Time, random: &mut dyn Random) -> Numbers {
        let state = State { incarnation: random.next_u64(), ..State::default() };
        let mut numbers = Numbers::with_state(config, id, state, now, random);
        numbers.version = 1;
        numbers
    }

    /// The part of a router with the state that it has stored last.
    ///
    /// # Errors
    /// Octets that are no state.
    pub fn restore(
        config: Config,
        id: Node,
        octets: &[u8],
        now: Time,
        random: &mut dyn Random,
    ) -> Result<Numbers, Malformed> {
        let mut numbers = Numbers::with_state(config, id, State::parse(octets)?, now, random);
        let (grants, accepted) = (numbers.state.grants.keys(), numbers.state.accepted.iter());
        let repeated = grants.map(|&id| Repeated::Grant(id));
        let repeated = repeated.chain(accepted.map(|&(giver, grant)| Repeated::Ack(giver, grant)));
        numbers.retries = repeated.map(|what| (what, Retry::new(now))).collect();
        numbers.index_slots();
        numbers.await_renumbering();
        Ok(numbers)
    }

    fn with_state(
        config: Config,
        id: Node,
        state: State,
        now: Time,
        random: &mut dyn Random,
    ) -> Numbers {
        let extra = random.next_u64() % max(config.settle.as_nanos() as u64, 1);
        Numbers {
            config: Config { max_users: config.max_users.min(MAX_SLOTS / 2), ..config },
            id,
            state,
            users: BTreeMap::new(),
            gaps: BTreeSet::new(),
            resting: BTreeSet::new(),
            version: 0,
            offered: 0,
            saved: 0,
            messages: VecDeque::new(),
            events: VecDeque::new(),
            waiting: VecDeque::new(),
            retries: BTreeMap::new(),
            peers: Vec::new(),
            sources: Sources::default(),
            asks: Asks::new(now),
            askers: BTreeMap::new(),
            status_due: now,
            status_sent: Time::ZERO,
            stated: transfer::Stated::default(),
            create_due: now + config.settle + Duration::from_nanos(extra),
            census: None,
            ending: None,
            ended: VecDeque::new(),
            frozen_until: now + super::config::FREEZE,
            counters: Counters::default(),
        }
    }

    /// Returns the network of this router.
    pub fn home(&self) -> Option<Tag> {
        self.state.home
    }

    /// Returns what this router remembers.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Returns the number of free blocks.
    pub fn free_blocks(&self) -> u64 {
        self.state.free.count()
    }

    /// Returns the counts of what was dropped.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the number of a user.
    pub fn number_of(&self, user: &str) -> Option<ShortNumber> {
        let number = *self.users.get(user)?;
        Some(ShortNumber { tag: self.state.home?, number })
    }

    /// Returns a user's numbers in earlier networks, the latest first.
    pub fn earlier_numbers_of(&self, user: &str) -> Vec<ShortNumber> {
        let legacy = self.state.legacy.iter().rev();
        let of = |legacy: &super::state::Legacy| {
            let number = legacy.users.iter().find(|(_, of)| ***of == *user)?;
            Some(ShortNumber { tag: legacy.tag, number: *number.0 })
        };
        legacy.filter_map(of).collect()
    }

    /// Returns the user at this router that has a number.
    pub fn user_of(&self, number: ShortNumber) -> Option<&str> {
        if self.state.home == Some(number.tag) {
            return match self.state.slots.get(&number.number)? {
                Holder::User(user) => Some(user),
                Holder::Nobody(_) => None,
            };
        }
        let mut legacy = self.state.legacy.iter().filter(|legacy| legacy.tag == number.tag);
        legacy.find_map(|legacy| legacy.users.get(&number.number)).map(|user| &**user)
    }

    /// Returns the numbers that a caller at this router may have meant, the most likely first. A marked number with several
    /// candidates is ambiguous and should be refused; of plain ones the first that anybody has is meant.
    pub fn candidates(&self, dialled: Dialled) -> Vec<ShortNumber> {
        let earlier = self.state.legacy.iter().rev().map(|legacy| legacy.tag);
        let tags = self.state.home.into_iter().chain(earlier);
        match dialled {
            Dialled::Plain(number) => tags.map(|tag| ShortNumber { tag, number }).collect(),
            Dialled::Marked(mark, number) => tags
                .filter(|tag| tag.mark() == mark)
                .map(|tag| ShortNumber { tag, number })
                .collect(),
        }
    }

    /// Takes the routers beside this one, the nearest first; [`MAX_PEERS`] of them count. They are preferred when blocks are
    /// needed, and hear what is free here.
    pub fn set_peers(&mut self, now: Time, peers: &[Node]) {
        let own = self.id;
        let peers: Vec<Node> =
            peers.iter().copied().filter(|&peer| peer != own).take(MAX_PEERS).collect();
        if peers != self.peers {
            self.peers = peers;
            self.status_due = self.status_due.min(now);
            self.asks.hurry(now);
        }
    }

    /// Assigns a user a number. [`Event::Assigned`] follows, also for a user that has one, or [`Event::NotAssigned`].
    ///
    /// # Errors
    /// A name of a bad length, or too many users.
    pub fn assign(
        &mut self,
        now: Time,
        user: &str,
        random: &mut dyn Random,
    ) -> Result<(), AssignError> {
        if user.is_empty() || user.len() > MAX_USER {
            return Err(AssignError::Name(user.len()));
        }
        if let Some(number) = self.number_of(user) {
            let before = self.earlier_numbers_of(user).first().copied();
            self.notify(Event::Assigned { user: user.into(), number, before });
            return Ok(());
        }
        if self.waiting.iter().any(|waiting| *waiting.user == *user) {
            return Ok(());
        }
        if self.users.len() + self.waiting.len() >= self.config.max_users {
            return Err(AssignError::Users(self.config.max_users));
        }
        if self.waiting.iter().filter(|waiting| waiting.until.is_some()).count() >= MAX_WAITING {
            return Err(AssignError::Waiting);
        }
        let until = Some(now + self.config.patience);
        let before = self.earlier_numbers_of(user).first().copied();
        self.waiting.push_back(Waiting { user: user.into(), until, before });
        self.settle(now);
        self.pursue(now, random);
        Ok(())
    }

    /// Releases all numbers of a user. They are given to nobody for some time.
    pub fn release(&mut self, now: Time, user: &str) {
        self.waiting.retain(|waiting| *waiting.user != *user);
        if let Some(number) = self.users.remove(user) {
            let until = (now + self.config.rest).as_secs();
            self.state.slots.insert(number, Holder::Nobody(until));
            self.resting.insert((until, number));
            self.changed();
        }
        let mut legacy = self.state.legacy.iter_mut();
        if legacy.any(|legacy| legacy.users.values().any(|of| **of == *user)) {
            let legacy = self.state.legacy.iter_mut();
            legacy.for_each(|legacy| legacy.users.retain(|_, of| **of != *user));
            self.changed();
        }
    }

    /// Ends the validity of all numbers of an earlier network.
    pub fn retire(&mut self, tag: Tag) {
        let before = self.state.legacy.len();
        self.state.legacy.retain(|legacy| legacy.tag != tag);
        if self.state.legacy.len() < before {
            // Who waited only because of that network waits no longer.
            self.waiting.retain(|waiting| waiting.until.is_some());
            self.await_renumbering();
            self.changed();
        }
    }

    /// Handles the octets of a message from another router.
    pub fn handle(&mut self, now: Time, from: Node, octets: &[u8], random: &mut dyn Random) {
        if from == self.id {
            return;
        }
        match Packet::parse(octets) {
            Err(_) => self.counters.malformed += 1,
            Ok(packet) => self.receive(now, from, packet, random),
        }
        self.settle(now);
        self.pursue(now, random);
    }

    fn receive(&mut self, now: Time, from: Node, packet: Packet, random: &mut dyn Random) {
        if let Some(&census) = self.state.banned.get(&from) {
            match packet {
                Packet::Reset { census: other } if other == census => self.unban(from),
                Packet::Busy { census } => self.busy(now, from, census),
                _ if self.state.freeze.is_some_and(|freeze| freeze.census == census) => {}
                _ => self.send(from, &Packet::Banned { census }),
            }
            return;
        }
        match packet {
            Packet::Status { request, tag, free, hints } => {
                self.status(now, from, request, tag, free, &hints);
            }
            Packet::Ask { request, incarnation, tag, urgent } => {
                self.asked(now, from, (request, incarnation), tag, urgent, random);
            }
            Packet::Grant { incarnation, request, grant, tag, blocks } => {
                self.granted(now, from, (incarnation, request, grant), tag, &blocks);
            }
            Packet::Ack { grant } => self.acknowledged(from, grant),
            Packet::Refuse { grant } => self.refused(now, from, grant),
            Packet::Done { grant } => self.done(from, grant),
            Packet::Census { census, tag, lost } => self.counted(now, from, census, tag, &lost),
            Packet::Holds { census, part, blocks } => self.holds(now, from, census, part, &blocks),
            Packet::Kin { census, complete, routers } => {
                self.kin(now, from, census, complete, &routers);
            }
            Packet::End { census, reclaimed } => self.census_ended(from, census, reclaimed),
            Packet::Busy { census } => self.busy(now, from, census),
            Packet::Banned { census } => self.banned(now, from, census, random),
            Packet::Reset { .. } => {}
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time, random: &mut dyn Random) {
        self.sources.expire(now);
        self.end_rests(now);
        self.repeat(now);
        self.census_timeout(now);
        self.state_status(now, random);
        let late = |waiting: &Waiting| waiting.until.is_some_and(|until| until <= now);
        if self.waiting.iter().any(late) {
            let (late, rest) = core::mem::take(&mut self.waiting).into_iter().partition(late);
            self.waiting = rest;
            let late: VecDeque<Waiting> = late;
            late.into_iter().for_each(|late| self.notify(Event::NotAssigned { user: late.user }));
        }
        if self.may_create() && self.create_due <= now {
            self.create(now, random);
        }
        self.settle(now);
        self.pursue(now, random);
    }

    /// Returns when something is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        let patience = self.waiting.iter().filter_map(|waiting| waiting.until).min();
        let repeated = self.retries.values().map(|retry| retry.next).min();
        let asking = self.need().map(|_| self.asks.next);
        let creating = self.may_create().then_some(self.create_due);
        let status = (!self.peers.is_empty()).then_some(self.status_due);
        let due = [patience, repeated, asking, creating, status, self.census_due()];
        due.into_iter().fold(None, sooner)
    }

    /// Returns the state if it has changed since it was returned last. The world stores it in the order of the versions; a
    /// later state replaces earlier ones.
    pub fn poll_save(&mut self) -> Option<Save> {
        if self.version == self.offered {
            return None;
        }
        self.offered = self.version;
        Some(Save { version: self.version, octets: self.state.to_octets() })
    }

    /// Takes the report that a state is stored and survives a crash.
    pub fn handle_saved(&mut self, version: u64) {
        self.saved = max(self.saved, version.min(self.offered));
    }

    /// Takes the report that the last state could not be stored. It is returned again.
    pub fn handle_save_failed(&mut self) {
        self.offered = self.saved;
    }

    /// Removes and returns the next message that may be sent.
    pub fn poll_transmit(&mut self) -> Option<Message> {
        let saved = self.saved;
        self.messages.front().filter(|(version, _)| *version <= saved)?;
        self.messages.pop_front().map(|(_, message)| message)
    }

    /// Removes and returns the next event that may be acted on.
    pub fn poll_event(&mut self) -> Option<Event> {
        let saved = self.saved;
        self.events.front().filter(|(version, _)| *version <= saved)?;
        self.events.pop_front().map(|(_, event)| event)
    }

    fn changed(&mut self) {
        self.version += 1;
    }

    fn send(&mut self, to: Node, packet: &Packet) {
        if self.messages.len() >= MAX_MESSAGES {
            self.counters.messages += 1;
            return;
        }
        self.messages.push_back((self.version, Message { to, octets: packet.to_octets() }));
    }

    fn notify(&mut self, event: Event) {
        if self.events.len() >= 2 * MAX_EVENTS {
            self.counters.events += 1;
            return;
        }
        self.events.push_back((self.version, event));
    }

    /// Assigns numbers to those who wait, while there are some.
    fn settle(&mut self, now: Time) {
        let Some(tag) = self.state.home else { return };
        if !self.waiting.is_empty() {
            self.end_rests(now);
        }
        while !self.waiting.is_empty()
            && self.events.len() < MAX_EVENTS
            && self.state.slots.len() < MAX_SLOTS
            && let Some(number) = self.take_number()
            && let Some(Waiting { user, before, .. }) = self.waiting.pop_front()
        {
            self.state.slots.insert(number, Holder::User(user.clone()));
            self.users.insert(user.clone(), number);
            self.changed();
            self.notify(Event::Assigned { user, number: ShortNumber { tag, number }, before });
        }
    }

    /// Removes and returns the lowest unused number of the blocks in use, else of the lowest free block.
    fn take_number(&mut self) -> Option<u32> {
        if self.gaps.is_empty() {
            let block = self.state.free.lowest()?;
            self.state.free.remove(Range { first: block, last: block });
            self.gaps.extend(block * BLOCK..(block + 1) * BLOCK);
        }
        self.gaps.pop_first()
    }

    /// Makes numbers whose rest has ended usable again, and blocks free that have no used ones.
    fn end_rests(&mut self, now: Time) {
        while let Some(&(until, number)) = self.resting.first()
            && until <= now.as_secs()
        {
            self.resting.pop_first();
            self.state.slots.remove(&number);
            self.gaps.insert(number);
            let block = number / BLOCK;
            let numbers = block * BLOCK..(block + 1) * BLOCK;
            if self.gaps.range(numbers.clone()).count() == BLOCK as usize {
                numbers.for_each(|number| _ = self.gaps.remove(&number));
                self.state.free.insert(Range { first: block, last: block });
            }
            self.changed();
        }
    }

    /// Computes what is derived from the used numbers.
    fn index_slots(&mut self) {
        self.users.clear();
        self.gaps.clear();
        self.resting.clear();
        let mut before = None;
        for (&number, holder) in &self.state.slots {
            match holder {
                Holder::User(user) => _ = self.users.insert(user.clone(), number),
                Holder::Nobody(until) => _ = self.resting.insert((*until, number)),
            }
            let block = number / BLOCK;
            if before != Some(block) {
                let numbers = block * BLOCK..(block + 1) * BLOCK;
                self.gaps.extend(numbers.filter(|number| !self.state.slots.contains_key(number)));
            }
            before = Some(block);
        }
    }
}
