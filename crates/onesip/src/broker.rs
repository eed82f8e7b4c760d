//! The questions of workers to the directory of users, and the registrations that it is to keep.
//!
//! A question becomes a [`Command`], and its answer, a [`Report`], an [`Event`] for the worker that waits. What has been
//! answered is remembered for a moment, so that a request that goes on finds it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use ringway_directory::{
    CredentialsCheck, Delivery, DeliveryId, Grant, Located, Mail, SharedRule, Verdict, Whereabouts,
    service::Command, service::Report, statement,
};
use ringway_mesh::{NodeId, Prefix};
use ringway_proxy::location::CommitTag;
use ringway_proxy::routes::RouteTable;
use ringway_proxy::{AskId, CredentialsVerdict, MessageToKeep, Question, Reply};
use ringway_sansio::{Duration, Time, Transport};

use crate::rules;
use crate::shares::Shares;

/// Time for which it is known where a user is.
const LOCATION_AGE: Duration = Duration::from_secs(2);
/// Time for which it is known who may send as a user.
const SENDER_AGE: Duration = Duration::from_secs(60);
/// Time for which it is known which rules routers share.
const RULES_AGE: Duration = Duration::from_secs(60);
/// The preference, in thousandths, of users who answer for a number after those who are called first.
const LATER: u16 = 500;
/// Names of which it is known where they are.
const MAX_KNOWN: usize = 16_384;
/// Questions where users are, and checks of credentials, that requests wait for; shared among their sources.
const MAX_QUESTIONS: usize = 1_024;
const MAX_CHECKS: usize = 256;
/// Messages that are to be kept for users who are away; shared among their sources.
const MAX_KEEPS: usize = 64;
/// The preference of a registration, in thousandths.
const PREFERENCE: u16 = 1_000;

/// Takes a command for the directory. Returns whether there was room.
pub type Send<'a> = &'a mut dyn FnMut(Command) -> bool;

/// What a worker, or the operator, is notified of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The answer to a question of a worker.
    Answered {
        /// The worker.
        worker: u8,
        /// Its question.
        id: AskId,
        /// The answer.
        reply: Reply,
    },
    /// A change of a registration is kept by enough routers and by the disk, or could not be stored yet.
    Committed {
        /// The change.
        tag: CommitTag,
        /// Whether it is stored.
        stored: bool,
    },
    /// A registration has ended before it was stored.
    Withdrawn {
        /// The user.
        name: Box<str>,
    },
    /// The home of a user has permitted this router to have it: to be kept beyond the end of the process.
    Granted {
        /// The user.
        name: Box<str>,
        /// The octets of the permission.
        grant: Vec<u8>,
        /// A user whose permission is not to be kept any more.
        evicted: Option<Box<str>>,
    },
    /// A message that was kept is to be delivered: [`Broker::delivered`] follows with the status that it was answered with.
    Deliver(Delivery),
    /// Something that was to be stated found no room, or only a part of it did.
    NotStated {
        /// What, for the operator.
        what: String,
    },
    /// Another home claims the name of a user of this router.
    Contested {
        /// The user.
        name: Box<str>,
        /// The other home.
        by: NodeId,
        /// The name that the user has from now on, if the other home was first.
        marked: Option<Box<str>>,
    },
}

struct Known {
    located: Located,
    at: Time,
}

/// A user that is registered here.
#[derive(Default)]
struct Presence {
    /// Whether enough routers keep the record.
    stored: bool,
    /// Changes that are acknowledged when they do.
    waiting: Vec<CommitTag>,
}

/// What a change of a registration still waits for.
#[derive(Clone, Copy, Default)]
struct Pending {
    disk: bool,
    mesh: bool,
}

/// A request that waits for an answer.
#[derive(Clone, Copy)]
struct Waiting {
    worker: u8,
    id: AskId,
    source: IpAddr,
}

/// What is counted of the mesh.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Users that are registered here.
    pub present: usize,
    /// Those whose record enough routers keep.
    pub stored: usize,
    /// Registrations that wait for it.
    pub pending: usize,
    /// Questions under way.
    pub questions: usize,
    /// Names of which it is known where they are.
    pub known: usize,
}

/// The questions and registrations of all workers of a server.
pub struct Broker {
    domain: Box<str>,
    transport: Transport,
    id: Option<NodeId>,
    known: BTreeMap<Box<str>, Known>,
    locating: BTreeMap<Box<str>, Vec<Waiting>>,
    questions: Shares,
    verifying: BTreeMap<u64, Waiting>,
    checks: Shares,
    last: u64,
    /// Messages that are to be kept.
    keeping: BTreeMap<u64, Waiting>,
    keeps: Shares,
    /// What became of messages, of which there was no room to notify the directory.
    outcomes: Vec<(DeliveryId, bool)>,
    /// The rules that routers share, and when they were found out.
    rules: Option<(Arc<RouteTable>, Time)>,
    /// Who waits for them.
    asking: Vec<Waiting>,
    present: BTreeMap<Box<str>, Presence>,
    pending: BTreeMap<CommitTag, Pending>,
    /// Users that are not registered here any more, of which there was no room to notify the directory.
    unsent: BTreeSet<Box<str>>,
    events: VecDeque<Event>,
}

impl Broker {
    /// A broker for the users of a domain, whose routers are reached by a transport.
    pub fn new(domain: &str, transport: Transport) -> Self {
        Broker {
            domain: domain.into(),
            transport,
            id: None,
            known: BTreeMap::new(),
            locating: BTreeMap::new(),
            questions: Shares::new(MAX_QUESTIONS),
            verifying: BTreeMap::new(),
            checks: Shares::new(MAX_CHECKS),
            last: 0,
            keeping: BTreeMap::new(),
            keeps: Shares::new(MAX_KEEPS),
            outcomes: Vec::new(),
            rules: None,
            asking: Vec::new(),
            present: BTreeMap::new(),
            pending: BTreeMap::new(),
            unsent: BTreeSet::new(),
            events: VecDeque::new(),
        }
    }

    /// Returns the domain.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Returns what is counted.
    pub fn counts(&self) -> Counts {
        Counts {
            present: self.present.len(),
            stored: self.present.values().filter(|presence| presence.stored).count(),
            pending: self.pending.len(),
            questions: self.locating.len()
                + self.verifying.len()
                + self.asking.len()
                + self.keeping.len(),
            known: self.known.len(),
        }
    }

    /// The router has its identity.
    pub fn set_id(&mut self, id: NodeId) {
        self.id = Some(id);
    }

    /// Returns the id of this router, once it is known.
    pub fn id(&self) -> Option<NodeId> {
        self.id
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the user of an address-of-record of the domain, with the domain.
    pub fn name_of<'a>(&self, aor: &'a [u8]) -> Option<&'a str> {
        name_of(&self.domain, aor)
    }

    /// Returns the address-of-record of a user of this server that is named with the mark of this router: the same name was
    /// added elsewhere before.
    pub fn unmarked(&self, aor: &[u8]) -> Option<Vec<u8>> {
        let name = statement::unmarked(self.name_of(aor)?, self.id?)?;
        Some(format!("sip:{name}").into_bytes())
    }

    /// Answers a question of a worker for a request from `source` now, or later by [`Event::Answered`].
    pub fn ask(
        &mut self,
        (worker, id): (u8, AskId),
        question: Question,
        source: IpAddr,
        send: Send<'_>,
    ) -> Option<Reply> {
        let waiting = Waiting { worker, id, source };
        match question {
            Question::Location { aor } => self.locate(waiting, &aor, send),
            Question::Rules => self.ask_rules(waiting, send),
            Question::Credentials(query) => {
                let check = CredentialsCheck {
                    name: format!("{}@{}", text(&query.user), text(&query.realm)).into(),
                    method: text(&query.method).into(),
                    credentials: query.value.as_ref().into(),
                };
                self.verify(waiting, check, send)
            }
            Question::Keep(message) => self.keep(waiting, &message, send),
        }
    }

    fn locate(&mut self, waiting: Waiting, aor: &[u8], send: Send<'_>) -> Option<Reply> {
        let Some(name) = self.name_of(aor) else { return Some(Reply::Unavailable) };
        if !self.questions.take(waiting.source) {
            return Some(Reply::Unavailable);
        }
        if let Some(others) = self.locating.get_mut(name) {
            others.push(waiting);
            return None;
        }
        if !send(Command::Locate { name: name.into() }) {
            self.questions.release(waiting.source);
            return Some(Reply::Unavailable);
        }
        self.locating.insert(name.into(), vec![waiting]);
        None
    }

    fn ask_rules(&mut self, waiting: Waiting, send: Send<'_>) -> Option<Reply> {
        if !self.questions.take(waiting.source) {
            return Some(Reply::Unavailable);
        }
        if self.asking.is_empty() && !send(Command::AskRules { domain: self.domain.clone() }) {
            self.questions.release(waiting.source);
            return Some(Reply::Unavailable);
        }
        self.asking.push(waiting);
        None
    }

    fn verify(
        &mut self,
        waiting: Waiting,
        check: CredentialsCheck,
        send: Send<'_>,
    ) -> Option<Reply> {
        if !self.checks.take(waiting.source) {
            return Some(Reply::Unavailable);
        }
        self.last += 1;
        let tag = self.last;
        if !send(Command::Verify { check, tag }) {
            self.checks.release(waiting.source);
            return Some(Reply::Unavailable);
        }
        self.verifying.insert(tag, waiting);
        None
    }

    fn keep(&mut self, waiting: Waiting, message: &MessageToKeep, send: Send<'_>) -> Option<Reply> {
        let to = self.name_of(&message.to).and_then(|name| self.recipient(name));
        let (Some(to), Some(from)) = (to, self.name_of(&message.from)) else {
            return Some(Reply::Unavailable);
        };
        let (lifetime, octets) = (message.lifetime, message.octets.clone());
        let mail = Mail { to: to.into(), from: from.into(), lifetime, octets };
        if !self.keeps.take(waiting.source) {
            return Some(Reply::Unavailable);
        }
        self.last += 1;
        let tag = self.last;
        if !send(Command::Keep { tag, mail }) {
            self.keeps.release(waiting.source);
            return Some(Reply::Unavailable);
        }
        self.keeping.insert(tag, waiting);
        None
    }

    /// Returns the user whom a message to a name is kept for: the user of that name, or the one whose number it is. A number
    /// that several answer for is not to be answered later.
    fn recipient<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        let known = &self.known.get(name)?.located;
        if known.home.is_some() {
            return Some(name);
        }
        let [alias] = known.aliases.as_slice() else { return None };
        let home = self.known.get(&alias.name)?.located.home.as_ref()?;
        let (number, _) = name.split_once('@')?;
        (*home.account.number == *number).then_some(&*alias.name)
    }

    /// A message of [`Event::Deliver`] was answered with this status.
    pub fn delivered(&mut self, id: DeliveryId, status: u16, send: Send<'_>) {
        self.outcomes.push((id, is_final(status)));
        self.send_unsent(send);
    }

    /// Visits the routers other than this one at which a user is registered, with the preference of each in thousandths.
    /// Returns whether the user exists; `None` if that must be asked for.
    pub fn visit(
        &self,
        name: &str,
        now: Time,
        visit: &mut dyn FnMut(Ipv6Addr, u16),
    ) -> Option<bool> {
        let known = self.known.get(name).filter(|known| now.since(known.at) <= LOCATION_AGE)?;
        for &(router, preference) in &known.located.routers {
            if Some(router) != self.id {
                visit(router.prefix().router(), preference);
            }
        }
        Some(known.located.home.is_some())
    }

    /// Visits the users that a name stands for, each with its domain and its preference in thousandths.
    pub fn aliases(&self, name: &str, now: Time, visit: &mut dyn FnMut(&str, u16)) {
        let known = self.known.get(name).filter(|known| now.since(known.at) <= LOCATION_AGE);
        for alias in known.iter().flat_map(|known| &known.located.aliases) {
            visit(&alias.name, if alias.is_first { PREFERENCE } else { LATER });
        }
    }

    /// Returns the rules that other routers share; `None` if they must be asked for.
    pub fn shared_rules(&self, now: Time) -> Option<Arc<RouteTable>> {
        let (rules, at) = self.rules.as_ref()?;
        (now.since(*at) <= RULES_AGE).then(|| rules.clone())
    }

    /// Returns whether a router may send as a user; `None` if that must be asked for.
    pub fn speaks_for(&self, router: IpAddr, name: &str, now: Time) -> Option<bool> {
        let IpAddr::V6(address) = router else { return Some(false) };
        let Some(prefix) = Prefix::of(&address) else { return Some(false) };
        let known = self.known.get(name).filter(|known| now.since(known.at) <= SENDER_AGE)?;
        let Located { home, routers, .. } = &known.located;
        let at_home = home.as_ref().is_some_and(|home| prefix.contains(home.router));
        if at_home || routers.iter().any(|&(at, _)| prefix.contains(at)) {
            return Some(true);
        }
        // The user may have come there a moment ago.
        (now.since(known.at) <= LOCATION_AGE).then_some(false)
    }

    /// Returns whether a router is the home of a user; `None` if that must be asked for.
    pub fn is_home(&self, router: IpAddr, name: &str, now: Time) -> Option<bool> {
        let IpAddr::V6(address) = router else { return Some(false) };
        let Some(prefix) = Prefix::of(&address) else { return Some(false) };
        let known = self.known.get(name).filter(|known| now.since(known.at) <= SENDER_AGE)?;
        let home = known.located.home.as_ref();
        Some(home.is_some_and(|home| prefix.contains(home.router)))
    }

    /// Handles what the directory reports. What is not for the workers is ignored.
    pub fn handle(&mut self, now: Time, report: Report, send: Send<'_>) {
        self.send_unsent(send);
        match report {
            Report::Located { name, whereabouts } => self.located(now, name, whereabouts),
            Report::Verified { tag, verdict } => self.verified(tag, verdict),
            Report::Rules { rules } => self.found_rules(now, rules.as_deref()),
            Report::NotStated { what } => self.events.push_back(Event::NotStated { what }),
            Report::Registered { name, stored } => self.registered(&name, stored),
            Report::Contested { name, by, marked } => {
                self.events.push_back(Event::Contested { name, by, marked });
            }
            Report::Granted { name, grant, evicted } => {
                let mut octets = Vec::with_capacity(Grant::LENGTH);
                grant.write(&mut octets);
                self.events.push_back(Event::Granted { name, grant: octets, evicted });
            }
            Report::Kept { tag, is_kept } => self.kept(tag, is_kept),
            Report::Deliver(delivery) => {
                // The request that follows must find the user.
                self.know(now, delivery.to.clone(), delivery.located.clone());
                self.events.push_back(Event::Deliver(delivery));
            }
            Report::Judge { .. }
            | Report::Message { .. }
            | Report::Listed(_)
            | Report::ListEnded { .. } => {}
        }
    }

    fn located(&mut self, now: Time, name: Box<str>, whereabouts: Whereabouts) {
        let waiting = self.locating.remove(&name).unwrap_or_default();
        waiting.iter().for_each(|waiting| self.questions.release(waiting.source));
        let reply = match whereabouts {
            Whereabouts::Found(located) => {
                self.know(now, name, located);
                Reply::Located
            }
            Whereabouts::Unavailable => Reply::Unavailable,
        };
        waiting.into_iter().for_each(|waiting| self.answer(waiting, reply));
    }

    fn know(&mut self, now: Time, name: Box<str>, located: Located) {
        if self.known.len() >= MAX_KNOWN {
            self.known.retain(|_, known| now.since(known.at) <= LOCATION_AGE);
        }
        if self.known.len() < MAX_KNOWN {
            self.known.insert(name, Known { located, at: now });
        }
    }

    fn kept(&mut self, tag: u64, is_kept: bool) {
        let Some(waiting) = self.keeping.remove(&tag) else { return };
        self.keeps.release(waiting.source);
        self.answer(waiting, if is_kept { Reply::Kept } else { Reply::Unavailable });
    }

    fn found_rules(&mut self, now: Time, rules: Option<&[(NodeId, Vec<SharedRule>)]>) {
        let reply = match rules {
            Some(rules) => {
                self.rules = Some((Arc::new(rules::table(self.id, rules, self.transport)), now));
                Reply::Located
            }
            None => Reply::Unavailable,
        };
        for waiting in core::mem::take(&mut self.asking) {
            self.questions.release(waiting.source);
            self.answer(waiting, reply);
        }
    }

    fn verified(&mut self, tag: u64, verdict: Option<Verdict>) {
        let Some(waiting) = self.verifying.remove(&tag) else { return };
        self.checks.release(waiting.source);
        let reply = match verdict {
            Some(Verdict::Right) => Reply::Credentials(CredentialsVerdict::Right),
            Some(Verdict::Wrong) => Reply::Credentials(CredentialsVerdict::Wrong),
            Some(Verdict::NoSuchUser) => Reply::Credentials(CredentialsVerdict::NoSuchUser),
            None => Reply::Unavailable,
        };
        self.answer(waiting, reply);
    }

    fn answer(&mut self, waiting: Waiting, reply: Reply) {
        let Waiting { worker, id, .. } = waiting;
        self.events.push_back(Event::Answered { worker, id, reply });
    }

    /// A user was registered here before the start. Returns the command for the directory.
    pub fn announce(&mut self, aor: &[u8]) -> Option<Command> {
        let name = name_of(&self.domain, aor)?;
        self.present.entry(name.into()).or_default();
        Some(Command::Register { name: name.into(), preference: PREFERENCE })
    }

    /// The registrations of a user have changed: whether there are any now, and the change that is acknowledged when it is
    /// safe. Returns whether the change must wait for that; [`Broker::disk`] follows then.
    pub fn changed(
        &mut self,
        name: &str,
        is_present: bool,
        tag: Option<CommitTag>,
        send: Send<'_>,
    ) -> bool {
        if !is_present {
            self.withdraw(name, send);
            return false;
        }
        let is_new = !self.present.contains_key(name);
        let presence = self.present.entry(name.into()).or_default();
        let waits = !presence.stored;
        if let (true, Some(tag)) = (waits, tag) {
            presence.waiting.push(tag);
            self.pending.insert(tag, Pending::default());
        }
        if is_new || waits {
            send(Command::Register { name: name.into(), preference: PREFERENCE });
        }
        waits && tag.is_some()
    }

    fn withdraw(&mut self, name: &str, send: Send<'_>) {
        let waiting = self.present.remove(name).map(|presence| presence.waiting);
        let before = self.events.len();
        for tag in waiting.into_iter().flatten() {
            // No router will report that it keeps this change.
            if self.pending.remove(&tag).is_some() {
                self.events.push_back(Event::Committed { tag, stored: false });
            }
        }
        if self.events.len() > before {
            self.events.push_back(Event::Withdrawn { name: name.into() });
        }
        self.unsent.insert(name.into());
        self.send_unsent(send);
    }

    /// Notifies the directory of users that are not registered here any more, and of what became of messages, as far as
    /// there is room.
    fn send_unsent(&mut self, send: Send<'_>) {
        self.outcomes.retain(|&(id, is_done)| !send(Command::Delivered { id, is_done }));
        while let Some(name) = self.unsent.pop_last() {
            // Whoever has registered again meanwhile has sent that.
            if !self.present.contains_key(&name)
                && !send(Command::Unregister { name: name.clone() })
            {
                self.unsent.insert(name);
                return;
            }
        }
    }

    /// The disk has a change, or has refused it. Returns whether the change waits for nothing any more.
    pub fn disk(&mut self, tag: CommitTag, ok: bool) -> bool {
        let Some(pending) = self.pending.get_mut(&tag) else { return true };
        pending.disk = true;
        if ok && !pending.mesh {
            return false;
        }
        self.pending.remove(&tag);
        true
    }

    /// A change that was announced by [`Broker::changed`] is not made.
    pub fn cancel(&mut self, tag: CommitTag) {
        self.pending.remove(&tag);
    }

    /// Enough routers keep the record of a user, or do not yet.
    fn registered(&mut self, name: &str, stored: bool) {
        let Some(presence) = self.present.get_mut(name) else { return };
        presence.stored |= stored;
        for tag in core::mem::take(&mut presence.waiting) {
            let Some(pending) = self.pending.get_mut(&tag) else { continue };
            pending.mesh = true;
            if pending.disk || !stored {
                self.pending.remove(&tag);
                self.events.push_back(Event::Committed { tag, stored });
            }
        }
    }
}

/// Returns whether a message that was answered so is not to be delivered again: the recipient has it, or it is of a kind
/// that the recipient never accepts, or declines (RFC 3261 section 21.6). Everything else may be different later.
fn is_final(status: u16) -> bool {
    matches!(
        status,
        200..=299 | 400 | 405 | 413..=416 | 420 | 421 | 488 | 493 | 501 | 505 | 513 | 600..
    )
}

/// Returns whether an address is that of a router: what claims it has to come by the mesh.
pub fn is_router(source: Ipv6Addr) -> bool {
    Prefix::of(&source).is_some_and(|prefix| [prefix.router(), prefix.second()].contains(&source))
}

pub(crate) fn name_of<'a>(domain: &str, aor: &'a [u8]) -> Option<&'a str> {
    let name = std::str::from_utf8(aor.strip_prefix(b"sip:")?).ok()?;
    let (_, of) = name.rsplit_once('@')?;
    (of == domain).then_some(name)
}

fn text(octets: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(octets)
}

#[cfg(test)]
mod tests;
