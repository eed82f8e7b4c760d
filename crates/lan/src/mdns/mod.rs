//! A responder of multicast DNS (RFC 6762), by which a softphone that browses finds the SIP server (RFC 6763): two
//! services, `_sip._udp` and `_sip._tcp`, and the host `ringway-ID` in `local`.
//!
//! Names are probed for before they are used, and given up when another host has them. What hosts of other links send
//! is not read, so that nothing is reflected to them.

mod records;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::collections::VecDeque;

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RecordType};
use hickory_proto::serialize::binary::BinDecodable;
use ringway_sansio::time::{Duration, sooner};
use ringway_sansio::{Random, Time};

use self::records::{Records, Set, TOP_BIT, class};
use crate::share::Shares;
use crate::site::Site;

/// Port of multicast DNS.
pub const PORT: u16 = 5353;
/// Where it is spoken over IPv4.
pub const GROUP_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
/// Where it is spoken over IPv6.
pub const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);
/// Longest message that is read, in octets.
pub const MAX_MESSAGE: usize = 1_500;
/// Questions of a message that are read, and records of each section.
const MAX_QUESTIONS: u16 = 32;
const MAX_RECORDS: u16 = 64;
/// Answers that wait, one for each source.
const MAX_WAITING: usize = 32;
/// Messages that wait to be sent.
const MAX_OUTPUT: usize = 16;
/// Messages a second of one source, and at once.
const RATE: u32 = 20;
const BURST: u32 = 40;

/// Times of probing and announcing (RFC 6762 sections 8.1 and 8.3).
const PROBES: u32 = 3;
const PROBE_INTERVAL: Duration = Duration::from_millis(250);
const LOST_WAIT: Duration = Duration::from_secs(1);
const ANNOUNCEMENTS: u32 = 2;
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(1);
/// After so many conflicts within so long, the next attempt waits (section 8.1).
const MAX_CONFLICTS: u32 = 15;
const CONFLICTS_WITHIN: Duration = Duration::from_secs(10);
const CONFLICT_WAIT: Duration = Duration::from_secs(5);
/// Delays of answers that others may give too, and of those to a question that is continued (sections 6 and 7.2).
const SHARED_DELAY: (u64, u64) = (20, 120);
const CONTINUED_DELAY: (u64, u64) = (400, 500);
/// Time between two messages with the same record, and if it defends a name (section 6).
const REPEAT: Duration = Duration::from_secs(1);
const DEFEND: Duration = Duration::from_millis(250);
/// Longest time for which a client of plain DNS may keep an answer, in seconds (section 6.7).
const LEGACY_TTL: u32 = 10;
/// A record that was multicast within this part of its lifetime is sent to one host alone (section 5.4).
const RECENT: u32 = 4;

/// Where a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// To the groups of both families.
    Group,
    /// To a host of the LAN.
    Host(SocketAddr),
}

/// A message to send from [`PORT`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Where it goes.
    pub to: Destination,
    /// The message.
    pub bytes: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// So many probes were sent.
    Probing(u32),
    /// So many announcements were sent.
    Announcing(u32),
    Running,
}

/// An answer that waits until others may have given it.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    source: SocketAddr,
    set: Set,
    due: Time,
    /// To the host alone.
    is_unicast: bool,
}

/// The responder.
#[derive(Clone, Debug)]
pub struct Mdns {
    site: Site,
    records: Records,
    state: State,
    /// When the next probe or announcement is sent.
    next: Option<Time>,
    /// The present names are the attempt with this number.
    attempt: u32,
    /// Conflicts since the time.
    conflicts: (u32, Time),
    waiting: Vec<Waiting>,
    /// When each record was multicast last.
    sent: Vec<Option<Time>>,
    output: VecDeque<Transmit>,
    shares: Shares<IpAddr>,
}

impl Mdns {
    /// A responder that begins to probe at `now`.
    pub fn new(site: &Site, now: Time, random: &mut dyn Random) -> Mdns {
        let records = Records::new(site, 1);
        Mdns {
            site: site.clone(),
            records,
            state: State::Probing(0),
            next: Some(now + within((0, 250), random)),
            attempt: 1,
            conflicts: (0, now),
            waiting: Vec::new(),
            sent: Vec::new(),
            output: VecDeque::new(),
            shares: Shares::new(RATE, BURST),
        }
    }

    /// Returns whether the names are the router's, so that questions are answered.
    pub fn is_established(&self) -> bool {
        !matches!(self.state, State::Probing(_))
    }

    /// Returns the names: of the two services, and of the host.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.records.unique_names()
    }

    /// Handles a message that came from the LAN.
    pub fn handle(&mut self, now: Time, source: SocketAddr, bytes: &[u8], random: &mut dyn Random) {
        let is_bounded = bytes.len() <= MAX_MESSAGE && counts_are_bounded(bytes);
        if !is_bounded
            || !self.site.is_on_link(source.ip())
            || !self.shares.allows(now, source.ip())
        {
            return;
        }
        let Ok(message) = Message::from_bytes(bytes) else { return };
        // RFC 6762 sections 18.3 and 18.11.
        let is_plain = message.metadata.op_code == OpCode::Query
            && message.metadata.response_code == ResponseCode::NoError;
        match message.metadata.message_type {
            _ if !is_plain => {}
            MessageType::Query => self.handle_query(now, source, &message, random),
            // RFC 6762 section 6.
            MessageType::Response if source.port() == PORT => {
                let sections = message.answers.iter().chain(&message.additionals);
                if self.records.conflict(sections) {
                    self.handle_conflict(now, random);
                }
            }
            MessageType::Response => {}
        }
    }

    /// Returns when [`Mdns::handle_timeout`] is to be called.
    pub fn poll_timeout(&self) -> Option<Time> {
        let waiting = self.waiting.iter().map(|waiting| waiting.due).min();
        sooner(self.next, waiting)
    }

    /// Sends what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.next.is_some_and(|next| next <= now) {
            self.take_step(now);
        }
        let due = self.waiting.extract_if(.., |waiting| waiting.due <= now);
        let due: Vec<Waiting> = due.collect();
        let to_all = due.iter().filter(|waiting| !waiting.is_unicast);
        let set = to_all.fold(0, |set, waiting| set | waiting.set);
        self.multicast(now, set, REPEAT);
        for waiting in due.iter().filter(|waiting| waiting.is_unicast) {
            let message = self.response(waiting.set, None);
            self.push(Destination::Host(waiting.source), &message);
        }
    }

    /// Returns the next message to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.output.pop_front()
    }

    /// Returns the message by which hosts learn that the records are gone (RFC 6762 section 10.1).
    pub fn leave(&mut self) -> Option<Transmit> {
        if !self.is_established() {
            return None;
        }
        let message = self.response(self.records.announced(), Some(0));
        Some(Transmit { to: Destination::Group, bytes: message.to_vec().ok()? })
    }

    /// Sends the next probe or announcement (RFC 6762 section 8).
    fn take_step(&mut self, now: Time) {
        match self.state {
            State::Probing(sent) if sent < PROBES => {
                self.state = State::Probing(sent + 1);
                self.next = Some(now + PROBE_INTERVAL);
                let message = self.probe();
                self.push(Destination::Group, &message);
            }
            State::Probing(_) => {
                self.state = State::Announcing(1);
                self.next = Some(now + ANNOUNCE_INTERVAL);
                self.multicast(now, self.records.announced(), Duration::ZERO);
            }
            State::Announcing(sent) => {
                self.state = State::Announcing(sent + 1);
                self.next = Some(now + ANNOUNCE_INTERVAL);
                if sent + 1 >= ANNOUNCEMENTS {
                    (self.state, self.next) = (State::Running, None);
                }
                self.multicast(now, self.records.announced(), Duration::ZERO);
            }
            State::Running => self.next = None,
        }
    }

    /// Returns the question whether another host has the names, with the records that are proposed for them (RFC 6762
    /// section 8.2).
    fn probe(&self) -> Message {
        let mut message = Message::new(0, MessageType::Query, OpCode::Query);
        for name in self.records.unique_names() {
            let mut query = Query::query(name.clone(), RecordType::ANY);
            query.set_query_class(DNSClass::from(u16::from(DNSClass::IN) | TOP_BIT));
            message.add_query(query);
        }
        let proposed = self.records.of(self.records.proposed());
        message.add_authorities(proposed.map(|(_, own)| own.record.clone()));
        message
    }

    fn handle_query(
        &mut self,
        now: Time,
        source: SocketAddr,
        message: &Message,
        random: &mut dyn Random,
    ) {
        let is_probe = !message.authorities.is_empty();
        if let State::Probing(_) = self.state {
            if is_probe && self.records.loses_to(&message.authorities) {
                // RFC 6762 section 8.2: the other host may be this one, a moment ago.
                (self.state, self.next) = (State::Probing(0), Some(now + LOST_WAIT));
            }
            return;
        }
        let known = self.records.known(&message.answers);
        if message.queries.is_empty() {
            // More of what is known to who has asked (section 7.2).
            let of_source = |waiting: &&mut Waiting| waiting.source == source;
            self.waiting.iter_mut().filter(of_source).for_each(|waiting| waiting.set &= !known);
            return;
        }
        if source.port() != PORT {
            let set = self.asked(message.queries.iter()) & !known;
            return self.answer_legacy(source, message, set);
        }
        let (alone, all): (Vec<&Query>, Vec<&Query>) =
            message.queries.iter().partition(|query| wants_unicast(query));
        let (alone, mut all) =
            (self.asked(alone.into_iter()) & !known, self.asked(all.into_iter()) & !known);
        // A record that others may have lost is sent to all of them.
        let recent = self.recent(now, alone);
        all |= alone & !recent;
        if is_probe {
            return self.multicast(now, all | recent, DEFEND);
        }
        let is_shared = self.records.of(all).any(|(_, own)| !own.is_unique);
        let delay = match (message.metadata.truncation, is_shared) {
            (true, _) => within(CONTINUED_DELAY, random),
            (false, true) => within(SHARED_DELAY, random),
            (false, false) => Duration::ZERO,
        };
        self.wait(Waiting { source, set: all, due: now + delay, is_unicast: false });
        self.wait(Waiting { source, set: recent, due: now + delay, is_unicast: true });
    }

    /// Returns the answers to questions.
    fn asked<'q>(&self, queries: impl Iterator<Item = &'q Query>) -> Set {
        let is_internet = |query: &&Query| {
            [DNSClass::IN, DNSClass::ANY]
                .contains(&DNSClass::from(question_class(query) & !TOP_BIT))
        };
        let answers = queries
            .filter(is_internet)
            .map(|query| self.records.answers(query.name(), query.query_type()));
        answers.fold(0, |all, set| all | set)
    }

    /// Answers a client of plain DNS (RFC 6762 section 6.7).
    fn answer_legacy(&mut self, source: SocketAddr, query: &Message, set: Set) {
        if set == 0 {
            return;
        }
        let mut message = self.response(set, Some(LEGACY_TTL));
        message.metadata.id = query.metadata.id;
        message.add_queries(query.queries.iter().cloned());
        for record in message.answers.iter_mut().chain(&mut message.additionals) {
            record.dns_class = DNSClass::from(class(record));
        }
        self.push(Destination::Host(source), &message);
    }

    /// Returns those of a set that were multicast a short time ago.
    fn recent(&self, now: Time, set: Set) -> Set {
        let is_recent = |index: usize, ttl: u32| {
            let sent = self.sent.get(index).copied().flatten();
            let lifetime = Duration::from_secs((ttl / RECENT).into());
            sent.is_some_and(|sent| now.since(sent) < lifetime)
        };
        let recent = self.records.of(set).filter(|(index, own)| is_recent(*index, own.record.ttl));
        recent.fold(0, |set, (index, _)| set | 1 << index)
    }

    /// Adds an answer that waits. There is one of a kind for each source.
    fn wait(&mut self, new: Waiting) {
        if new.set == 0 {
            return;
        }
        let is_same =
            |old: &&mut Waiting| (old.source, old.is_unicast) == (new.source, new.is_unicast);
        if let Some(old) = self.waiting.iter_mut().find(is_same) {
            old.set |= new.set;
        } else if self.waiting.len() < MAX_WAITING {
            self.waiting.push(new);
        }
    }

    /// Sends those of a set that were not sent within a time, and what is asked for next.
    fn multicast(&mut self, now: Time, set: Set, within: Duration) {
        self.sent.resize(Set::BITS as usize, None);
        let is_due = |index: usize| {
            self.sent.get(index).copied().flatten().is_none_or(|sent| now.since(sent) >= within)
        };
        let due = self.records.of(set).filter(|(index, _)| is_due(*index));
        let set = due.fold(0, |set, (index, _)| set | 1 << index);
        if set == 0 {
            return;
        }
        let message = self.response(set, None);
        let all = set | self.records.additional(set);
        let sent = self.sent.iter_mut().enumerate().filter(|(index, _)| all & (1 << index) != 0);
        sent.for_each(|(_, sent)| *sent = Some(now));
        self.push(Destination::Group, &message);
    }

    /// Returns a response with a set of records, and what is asked for next (RFC 6762 section 18). `max_ttl` bounds how
    /// long they may be kept, in seconds.
    fn response(&self, set: Set, max_ttl: Option<u32>) -> Message {
        let records = |set: Set| {
            self.records.of(set).map(move |(_, own)| {
                let mut record = own.record.clone();
                record.ttl = record.ttl.min(max_ttl.unwrap_or(u32::MAX));
                if own.is_unique {
                    record.dns_class = DNSClass::from(class(&record) | TOP_BIT);
                }
                record
            })
        };
        let mut message = Message::new(0, MessageType::Response, OpCode::Query);
        message.metadata.authoritative = true;
        message.add_answers(records(set));
        message.add_additionals(records(self.records.additional(set)));
        message
    }

    fn push(&mut self, to: Destination, message: &Message) {
        if let Ok(bytes) = message.to_vec()
            && self.output.len() < MAX_OUTPUT
        {
            self.output.push_back(Transmit { to, bytes });
        }
    }

    /// Chooses other names, because another host has one of them, and probes for them (RFC 6762 section 9).
    fn handle_conflict(&mut self, now: Time, random: &mut dyn Random) {
        if now.since(self.conflicts.1) >= CONFLICTS_WITHIN {
            self.conflicts = (0, now);
        }
        self.conflicts.0 += 1;
        self.attempt = self.attempt.saturating_add(1);
        self.records = Records::new(&self.site, self.attempt);
        self.waiting.clear();
        self.sent.clear();
        let delay = match self.conflicts.0 > MAX_CONFLICTS {
            true => CONFLICT_WAIT,
            false => within((0, 250), random),
        };
        (self.state, self.next) = (State::Probing(0), Some(now + delay));
    }
}

/// Returns whether a header announces no more than is read.
fn counts_are_bounded(bytes: &[u8]) -> bool {
    let &[_, _, _, _, q1, q2, a1, a2, n1, n2, d1, d2, ..] = bytes else { return false };
    let records = [[a1, a2], [n1, n2], [d1, d2]].map(u16::from_be_bytes);
    u16::from_be_bytes([q1, q2]) <= MAX_QUESTIONS && records.iter().all(|&n| n <= MAX_RECORDS)
}

fn question_class(query: &Query) -> u16 {
    query.query_class().into()
}

fn wants_unicast(query: &Query) -> bool {
    question_class(query) & TOP_BIT != 0
}

/// Returns a random time between two numbers of milliseconds.
fn within((least, limit): (u64, u64), random: &mut dyn Random) -> Duration {
    Duration::from_millis(least + random.next_u64() % (limit - least).max(1))
}

#[cfg(test)]
mod tests;
