//! The questions of workers to the directory of users, and the registrations that it is to keep.
//!
//! A question becomes a [`Command`], and its answer, a [`Report`], an [`Event`] for the worker that waits. What has been
//! answered is remembered for a moment, so that a request that goes on finds it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv6Addr};

use ringway_directory::{
    CredentialsCheck, Grant, Located, Verdict, Whereabouts, service::Command, service::Report,
    statement,
};
use ringway_mesh::{NodeId, Prefix};
use ringway_proxy::location::CommitTag;
use ringway_proxy::{AskId, CredentialsVerdict, Question, Reply};
use ringway_sansio::{Duration, Time};

use crate::shares::Shares;

/// Time for which it is known where a user is.
const LOCATION_AGE: Duration = Duration::from_secs(2);
/// Time for which it is known who may send as a user.
const SENDER_AGE: Duration = Duration::from_secs(60);
/// Names of which it is known where they are.
const MAX_KNOWN: usize = 16_384;
/// Questions where users are, and checks of credentials, that requests wait for; shared among their sources.
const MAX_QUESTIONS: usize = 1_024;
const MAX_CHECKS: usize = 256;
/// The preference of a registration, in thousandths.
const PREFERENCE: u16 = 1_000;

/// Takes a command for the directory. Returns whether there was room.
pub type Send<'a> = &'a mut dyn FnMut(Command) -> bool;

/// What a worker, or the operator, is to be told.
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
    id: Option<NodeId>,
    known: BTreeMap<Box<str>, Known>,
    locating: BTreeMap<Box<str>, Vec<Waiting>>,
    questions: Shares,
    verifying: BTreeMap<u64, Waiting>,
    checks: Shares,
    last: u64,
    present: BTreeMap<Box<str>, Presence>,
    pending: BTreeMap<CommitTag, Pending>,
    /// Users that are not registered here any more, of which there was no room to notify the directory.
    unsent: BTreeSet<Box<str>>,
    events: VecDeque<Event>,
}

impl Broker {
    /// A broker for the users of a domain.
    pub fn new(domain: &str) -> Self {
        Broker {
            domain: domain.into(),
            id: None,
            known: BTreeMap::new(),
            locating: BTreeMap::new(),
            questions: Shares::new(MAX_QUESTIONS),
            verifying: BTreeMap::new(),
            checks: Shares::new(MAX_CHECKS),
            last: 0,
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
            questions: self.locating.len() + self.verifying.len(),
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
            Question::Credentials(query) => {
                let check = CredentialsCheck {
                    name: format!("{}@{}", text(&query.user), text(&query.realm)).into(),
                    method: text(&query.method).into(),
                    credentials: query.value.as_ref().into(),
                };
                self.verify(waiting, check, send)
            }
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

    /// Returns whether a router may send as a user; `None` if that must be asked for.
    pub fn speaks_for(&self, router: IpAddr, name: &str, now: Time) -> Option<bool> {
        let IpAddr::V6(address) = router else { return Some(false) };
        let Some(prefix) = Prefix::of(&address) else { return Some(false) };
        let known = self.known.get(name).filter(|known| now.since(known.at) <= SENDER_AGE)?;
        let Located { home, routers } = &known.located;
        let at_home = home.as_ref().is_some_and(|home| prefix.contains(home.router));
        if at_home || routers.iter().any(|&(at, _)| prefix.contains(at)) {
            return Some(true);
        }
        // The user may have come there a moment ago.
        (now.since(known.at) <= LOCATION_AGE).then_some(false)
    }

    /// Handles what the directory reports. [`Report::Judge`] is not for the workers, and ignored.
    pub fn handle(&mut self, now: Time, report: Report, send: Send<'_>) {
        self.send_unsent(send);
        match report {
            Report::Located { name, whereabouts } => self.located(now, name, whereabouts),
            Report::Verified { tag, verdict } => self.verified(tag, verdict),
            Report::Registered { name, stored } => self.registered(&name, stored),
            Report::Contested { name, by, marked } => {
                self.events.push_back(Event::Contested { name, by, marked });
            }
            Report::Granted { name, grant, evicted } => {
                let mut octets = Vec::with_capacity(Grant::LENGTH);
                grant.write(&mut octets);
                self.events.push_back(Event::Granted { name, grant: octets, evicted });
            }
            Report::Judge { .. } => {}
        }
    }

    fn located(&mut self, now: Time, name: Box<str>, whereabouts: Whereabouts) {
        let waiting = self.locating.remove(&name).unwrap_or_default();
        waiting.iter().for_each(|waiting| self.questions.release(waiting.source));
        let reply = match whereabouts {
            Whereabouts::Found(located) => {
                if self.known.len() >= MAX_KNOWN {
                    self.known.retain(|_, known| now.since(known.at) <= LOCATION_AGE);
                }
                if self.known.len() < MAX_KNOWN {
                    self.known.insert(name, Known { located, at: now });
                }
                Reply::Located
            }
            Whereabouts::Unavailable => Reply::Unavailable,
        };
        waiting.into_iter().for_each(|waiting| self.answer(waiting, reply));
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

    /// Notifies the directory of users that are not registered here any more, as far as there is room.
    fn send_unsent(&mut self, send: Send<'_>) {
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
    pub fn forget(&mut self, tag: CommitTag) {
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

/// Returns whether an address is that of a router: what claims it has to come by the mesh.
pub fn is_router(source: Ipv6Addr) -> bool {
    Prefix::of(&source).is_some_and(|prefix| prefix.router() == source)
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
mod tests {
    use super::*;
    use ringway_directory::{Account, Home};

    const ALICE: &str = "alice@mesh";
    const AOR: &[u8] = b"sip:alice@mesh";
    const NOW: Time = Time::from_secs(1_000);

    /// Ids whose prefixes differ.
    fn id(number: u64) -> NodeId {
        NodeId::new(number << 32)
    }

    /// A broker, and the commands that found room.
    struct Desk {
        broker: Broker,
        sent: Vec<Command>,
        room: usize,
    }

    impl Desk {
        fn new() -> Desk {
            let mut broker = Broker::new("mesh");
            broker.set_id(id(1));
            Desk { broker, sent: Vec::new(), room: usize::MAX }
        }

        fn turn<T>(&mut self, call: impl FnOnce(&mut Broker, Send<'_>) -> T) -> T {
            let Desk { broker, sent, room } = self;
            call(broker, &mut |command| {
                let fits = sent.len() < *room;
                if fits {
                    sent.push(command);
                }
                fits
            })
        }

        fn ask(&mut self, worker: u8, source: u16) -> Option<Reply> {
            let source = IpAddr::from([0xfd01, 0, 0, source, 0, 0, 0, 1]);
            let question = Question::Location { aor: AOR.into() };
            self.turn(|broker, send| broker.ask((worker, AskId::default()), question, source, send))
        }

        fn located(&mut self, now: Time, whereabouts: Whereabouts) {
            let report = Report::Located { name: ALICE.into(), whereabouts };
            self.turn(|broker, send| broker.handle(now, report, send));
        }

        fn registered(&mut self, stored: bool) {
            let report = Report::Registered { name: ALICE.into(), stored };
            self.turn(|broker, send| broker.handle(NOW, report, send));
        }

        fn changed(&mut self, is_present: bool, id: Option<u64>) -> bool {
            let tag = id.map(tag);
            self.turn(|broker, send| broker.changed(ALICE, is_present, tag, send))
        }

        fn events(&mut self) -> Vec<Event> {
            std::iter::from_fn(|| self.broker.poll_event()).collect()
        }
    }

    fn tag(id: u64) -> CommitTag {
        CommitTag { worker: 2, id }
    }

    fn committed(id: u64, stored: bool) -> Event {
        Event::Committed { tag: tag(id), stored }
    }

    fn answered(worker: u8, reply: Reply) -> Event {
        Event::Answered { worker, id: AskId::default(), reply }
    }

    fn located(home: u64, routers: &[u64]) -> Located {
        let home = Home { router: id(home), account: Account::default() };
        let routers = routers.iter().map(|&router| (id(router), 1_000)).collect();
        Located { home: Some(home), routers }
    }

    fn is_register(command: &Command) -> bool {
        matches!(command, Command::Register { .. })
    }

    fn is_unregister(command: &Command) -> bool {
        matches!(command, Command::Unregister { .. })
    }

    #[test]
    fn all_who_ask_for_one_user_are_answered_by_one_question() {
        let mut desk = Desk::new();
        assert_eq!((desk.ask(1, 1), desk.ask(2, 2)), (None, None));
        assert_eq!(desk.sent.len(), 1);
        desk.located(NOW, Whereabouts::Found(located(5, &[1, 6])));
        assert_eq!(desk.events(), [answered(1, Reply::Located), answered(2, Reply::Located)]);
        let mut visited = Vec::new();
        let visit = &mut |router: Ipv6Addr, _: u16| visited.push(router);
        assert_eq!(desk.broker.visit(ALICE, NOW, visit), Some(true));
        // This router is not another one.
        assert_eq!(visited, [id(6).prefix().router()]);
        assert_eq!(desk.broker.counts().questions, 0);
    }

    #[test]
    fn what_is_known_ages() {
        let mut desk = Desk::new();
        desk.located(NOW, Whereabouts::Found(located(5, &[6])));
        let exists = |desk: &Desk, at| desk.broker.visit(ALICE, at, &mut |_, _| {});
        assert_eq!(exists(&desk, NOW + LOCATION_AGE), Some(true));
        assert_eq!(exists(&desk, NOW + LOCATION_AGE + Duration::from_millis(1)), None);
        let speaks = |desk: &Desk, router: u64, at| {
            desk.broker.speaks_for(id(router).prefix().router().into(), ALICE, at)
        };
        let later = NOW + SENDER_AGE;
        assert_eq!(
            [5, 6, 7].map(|router| speaks(&desk, router, NOW)),
            [true, true, false].map(Some)
        );
        // That a router may not is known for a shorter time: the user may have come there.
        assert_eq!([5, 7].map(|router| speaks(&desk, router, later)), [Some(true), None]);
        assert_eq!(speaks(&desk, 5, later + Duration::from_millis(1)), None);
        assert_eq!(desk.broker.speaks_for([192, 0, 2, 1].into(), ALICE, NOW), Some(false));
    }

    #[test]
    fn a_question_without_room_is_refused_at_once_and_takes_no_share() {
        let mut desk = Desk::new();
        desk.room = 0;
        for _ in 0..2 * MAX_QUESTIONS {
            assert_eq!(desk.ask(1, 1), Some(Reply::Unavailable));
        }
        desk.room = usize::MAX;
        assert_eq!(desk.ask(1, 1), None);
        desk.located(NOW, Whereabouts::Unavailable);
        assert_eq!(desk.events(), [answered(1, Reply::Unavailable)]);
        assert_eq!(desk.broker.visit(ALICE, NOW, &mut |_, _| {}), None);
    }

    #[test]
    fn one_source_leaves_questions_for_others() {
        let mut desk = Desk::new();
        let asked = (0..2 * MAX_QUESTIONS).filter(|_| desk.ask(1, 1).is_none()).count();
        assert!(asked < MAX_QUESTIONS / 2, "{asked}");
        assert_eq!(desk.ask(1, 2), None);
    }

    #[test]
    fn a_registration_is_acknowledged_when_the_disk_and_the_mesh_have_it() {
        for mesh_first in [false, true] {
            let mut desk = Desk::new();
            assert!(desk.changed(true, Some(7)));
            if mesh_first {
                desk.registered(true);
                assert_eq!(desk.events(), []);
                assert!(desk.broker.disk(tag(7), true));
            } else {
                assert!(!desk.broker.disk(tag(7), true));
                desk.registered(true);
                assert_eq!(desk.events(), [committed(7, true)]);
            }
            // A refresh waits for the disk alone.
            assert!(!desk.changed(true, Some(8)) && desk.broker.disk(tag(8), true));
            assert_eq!(desk.broker.counts().pending, 0);
            assert_eq!(desk.sent.len(), 1);
        }
    }

    #[test]
    fn what_cannot_be_stored_is_refused_and_goes_on_being_tried() {
        let mut desk = Desk::new();
        assert!(desk.changed(true, Some(7)));
        assert!(!desk.broker.disk(tag(7), true));
        desk.registered(false);
        assert_eq!(desk.events(), [committed(7, false)]);
        // What the disk refuses needs no other routers.
        assert!(desk.changed(true, Some(8)) && desk.broker.disk(tag(8), false));
        assert!(desk.changed(true, Some(9)));
        desk.broker.forget(tag(9));
        assert_eq!(desk.broker.counts().pending, 0);
        desk.registered(true);
        assert_eq!(desk.events(), []);
        assert_eq!(desk.broker.counts().stored, 1);
    }

    /// A user who leaves before enough routers keep the record: nothing waits for ever.
    #[test]
    fn a_registration_that_is_withdrawn_is_answered() {
        let mut desk = Desk::new();
        assert!(desk.changed(true, Some(7)));
        assert!(!desk.broker.disk(tag(7), true));
        assert!(!desk.changed(false, Some(8)));
        let withdrawn = Event::Withdrawn { name: ALICE.into() };
        assert_eq!(desk.events(), [committed(7, false), withdrawn]);
        assert_eq!(desk.broker.counts(), Counts::default());
        assert!(is_unregister(&desk.sent[1]));
    }

    #[test]
    fn the_directory_learns_of_a_user_who_has_left_when_there_is_room() {
        let mut desk = Desk::new();
        desk.changed(true, None);
        desk.room = 1;
        for _ in 0..100 {
            desk.changed(false, None);
        }
        assert_eq!((desk.sent.len(), desk.broker.unsent.len()), (1, 1));
        desk.room = usize::MAX;
        desk.located(NOW, Whereabouts::Unavailable);
        assert!(desk.sent.len() == 2 && is_unregister(&desk.sent[1]));
        // Who has come back meanwhile is not withdrawn.
        desk.changed(true, None);
        desk.room = desk.sent.len();
        desk.changed(false, None);
        desk.room = usize::MAX;
        desk.changed(true, None);
        desk.located(NOW, Whereabouts::Unavailable);
        assert!(desk.sent[2..].iter().all(is_register) && desk.broker.unsent.is_empty());
    }

    #[test]
    fn names_of_other_domains_are_not_asked_for() {
        let mut desk = Desk::new();
        for aor in [&b"sip:alice@example.org"[..], b"sip:alice", b"alice@mesh", b"sip:\xff@mesh"] {
            assert_eq!(desk.broker.name_of(aor), None);
            let question = Question::Location { aor: aor.into() };
            let source = [192, 0, 2, 1].into();
            let reply =
                desk.turn(|broker, send| broker.ask((1, AskId::default()), question, source, send));
            assert_eq!(reply, Some(Reply::Unavailable));
        }
        assert!(desk.sent.is_empty());
    }

    #[test]
    fn what_is_known_is_bounded() {
        let mut desk = Desk::new();
        let fill = |desk: &mut Desk, now: Time, prefix: &str| {
            for number in 0..MAX_KNOWN + 10 {
                let name = format!("{prefix}{number}@mesh").into();
                let whereabouts = Whereabouts::Found(located(5, &[6]));
                let report = Report::Located { name, whereabouts };
                desk.turn(|broker, send| broker.handle(now, report, send));
            }
        };
        fill(&mut desk, NOW, "a");
        assert_eq!(desk.broker.counts().known, MAX_KNOWN);
        fill(&mut desk, NOW + LOCATION_AGE * 2, "b");
        assert_eq!(desk.broker.counts().known, MAX_KNOWN);
        let later = NOW + LOCATION_AGE * 2;
        assert_eq!(desk.broker.visit("b0@mesh", later, &mut |_, _| {}), Some(true));
    }

    #[test]
    fn only_routers_are_guarded() {
        let router = id(7).prefix().router();
        assert!(is_router(router));
        for other in ["fd00::2", "2001:db8::1", "fe80::1"] {
            assert!(!is_router(other.parse().unwrap_or(Ipv6Addr::UNSPECIFIED)), "{other}");
        }
    }
}
