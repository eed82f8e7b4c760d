//! The directory of a router: its users and registrations, questions about others, and the DHT below.

mod collect;
mod deputies;
mod keep;
mod own;
mod questions;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ringway_dht::{Dht, LookUpId, Message, Record, RecordError, ScanEnd};
use ringway_mesh::crypto::{Crypto, Real};
use ringway_mesh::{Identity, NodeId, Prefix};
use ringway_sansio::time::{Time, sooner};
use ringway_sansio::{Malformed, Random};

use crate::accounts::Accounts;
use crate::config::{Config, KIND_ACCOUNT, KIND_LOCATION, KIND_MAIL, KIND_MAIL_PART};
use crate::deputies::Secret;
use crate::deputies::home::Delegation;
use crate::deputies::vigil::Vigils;
use crate::listing::{ListEnd, Listed, Lists, Subject, listed};
use crate::mail::collecting::Collecting;
use crate::mail::hints::Hints;
use crate::mail::keeping::Keeping;
use crate::mail::{Delivery, MailCounters};
use crate::numbers::Numbers;
use crate::private::{CredentialsCheck, MAX_SERVICE, Private, PrivateMessage, Verdict};
use crate::questions::{LookUps, QuestionId, Questions, Whereabouts};
use crate::statement::{Grant, SharedRule};
use crate::verifications::{Judgement, JudgementId, Verifications};

/// Maximum number of events that wait for the caller.
const MAX_EVENTS: usize = 4_096;

/// What has happened.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A user's registration here survives the end of any two routers that keep it, or could not be stored yet.
    Registered {
        /// The user.
        name: Box<str>,
        /// Whether it is stored. If not, that is tried again without being asked for.
        stored: bool,
    },
    /// A question has been answered.
    Located(QuestionId, Box<str>, Whereabouts),
    /// What all routers share of their rules has been found out, or could not be.
    Rules(Option<Vec<(NodeId, Vec<SharedRule>)>>),
    /// Credentials have been checked; `None` if their home has not answered.
    Verified(QuestionId, Option<Verdict>),
    /// The home of a user has permitted this router to have it: to be kept for [`Directory::set_grant`] after a restart.
    Granted {
        /// The user.
        name: Box<str>,
        /// The permission.
        grant: Grant,
        /// A user whose permission has made room for it.
        evicted: Option<Box<str>>,
    },
    /// Another router asks for a check: answer with [`Directory::judge`].
    Judge {
        /// For the answer.
        id: JudgementId,
        /// The router.
        router: NodeId,
        /// What is to be checked.
        check: CredentialsCheck,
        /// What [`Directory::set_account`] was given at the user's home, which is silent: this router is its deputy.
        secret: Option<Secret>,
    },
    /// Another router has sent a message of another service.
    Message {
        /// The service.
        service: u8,
        /// The router.
        router: NodeId,
        /// At most [`MAX_SERVICE`] octets.
        octets: Box<[u8]>,
    },
    /// A message is kept until its recipient returns, or is not.
    Kept {
        /// The number that [`Directory::keep`] was given.
        tag: u64,
        /// Whether it survives the end of this router and of any two others.
        is_kept: bool,
    },
    /// A message for a user who is registered now: answer with [`Directory::delivered`].
    Deliver(Delivery),
    /// A list that was asked for has these.
    Listed(Listed),
    /// A list has ended.
    ListEnded(Subject, ListEnd),
    /// Another home claims the name of a user of this router: something for the operator.
    Contested {
        /// The name.
        name: Box<str>,
        /// The other home.
        by: NodeId,
        /// The name that the user has besides from now on, if the other was first.
        marked: Option<Box<str>>,
    },
}

/// Why something is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refused {
    /// The name is empty or too long.
    Name,
    /// The user is not of this router, and its home has not permitted it to be registered here.
    NoGrant,
    /// The DHT refuses the record.
    Record(RecordError),
}

/// Counts of what was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Malformed private messages.
    pub malformed: u64,
    /// Private messages above the rate of their sender.
    pub policed: u64,
    /// Checks that found no room.
    pub judgements: u64,
    /// Events that found no room.
    pub events: u64,
    /// Names of users of this router that another home claims.
    pub contested: u64,
}

/// What private messages one router may still send.
#[derive(Clone, Copy, Debug)]
struct Credit {
    messages: u32,
    at: Time,
}

/// A router's part of the directory.
pub struct Directory<C: Crypto = Real> {
    config: Config,
    identity: Arc<Identity>,
    dht: Dht<C>,
    accounts: Accounts,
    questions: Questions,
    verifications: Verifications,
    numbers: Numbers,
    /// The look-up of rules that is under way.
    rules: Option<LookUpId>,
    /// Look-ups for others that claim a name of this router.
    audits: BTreeMap<LookUpId, Box<str>>,
    lists: Lists,
    keeping: Keeping,
    collecting: Collecting,
    hints: Hints,
    /// The delegate of this router, which draws it with its first user.
    delegation: Option<Delegation>,
    vigils: Vigils,
    /// Checks for silent homes that other routers have caused.
    substitutions: Hints,
    mail_counters: MailCounters,
    credits: BTreeMap<Prefix, Credit>,
    private: Vec<PrivateMessage>,
    events: VecDeque<Event>,
    counters: Counters,
}

/// The DHT as what questions need of it.
struct Asker<'a, C: Crypto> {
    dht: &'a mut Dht<C>,
    now: Time,
    random: &'a mut dyn Random,
}

impl<C: Crypto> LookUps for Asker<'_, C> {
    fn look_up(&mut self, kind: u8, name: &str) -> Option<LookUpId> {
        self.dht.look_up(self.now, kind, name.as_bytes(), self.random)
    }

    fn look_up_all(&mut self, kind: u8, name: &str) -> Option<LookUpId> {
        self.dht.look_up_all(self.now, kind, name.as_bytes(), self.random)
    }
}

/// Returns the signer of a record that the DHT has verified.
fn signer(record: &Record) -> NodeId {
    record.proof().id()
}

impl<C: Crypto> Directory<C> {
    /// The part of the router with this identity, which has started at `now`.
    pub fn new(config: Config, identity: impl Into<Arc<Identity>>, now: Time) -> Self {
        let identity = identity.into();
        Directory {
            config,
            dht: Dht::new(config.dht, identity.clone(), now),
            identity,
            accounts: Accounts::default(),
            questions: Questions::default(),
            verifications: Verifications::default(),
            numbers: Numbers::default(),
            rules: None,
            audits: BTreeMap::new(),
            lists: Lists::default(),
            keeping: Keeping::default(),
            collecting: Collecting::default(),
            hints: Hints::default(),
            delegation: None,
            vigils: Vigils::default(),
            substitutions: Hints::default(),
            mail_counters: MailCounters::default(),
            credits: BTreeMap::new(),
            private: Vec::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Returns the router's id.
    pub fn id(&self) -> NodeId {
        self.identity.id()
    }

    /// Returns the DHT.
    pub fn dht(&self) -> &Dht<C> {
        &self.dht
    }

    /// Returns the users of this router, and those that are registered here.
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// Returns the questions under way.
    pub fn questions(&self) -> &Questions {
        &self.questions
    }

    /// Returns the counts.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the counts of messages for users who are away.
    pub fn mail_counters(&self) -> MailCounters {
        self.mail_counters
    }

    /// Returns the number of messages that this router has kept for users who are away.
    pub fn mail(&self) -> usize {
        self.keeping.len()
    }

    /// Takes what the mesh knows of the routers beside this one: see [`Dht::update_neighbours`].
    pub fn update_neighbours(
        &mut self,
        now: Time,
        near: impl Iterator<Item = NodeId>,
        partner: Option<NodeId>,
        random: &mut dyn Random,
    ) {
        self.dht.update_neighbours(now, near, partner, random);
    }

    /// Answers an [`Event::Judge`].
    pub fn judge(&mut self, now: Time, id: JudgementId, verdict: Verdict) {
        let Some(judgement) = self.verifications.take(id) else { return };
        let Judgement { router, request, name, silent, .. } = judgement;
        let end = (now + self.config.grant_lifetime).as_secs();
        let end = u32::try_from(end).unwrap_or(u32::MAX);
        let own = self.accounts.own.get(&name).map(|own| own.account.password_set);
        if verdict == Verdict::Right && silent.is_none() {
            self.user_proved(now, &name);
        }
        let grant = match (silent, own) {
            (Some((home, password_set)), _) => self.vigils.key(home).map(|(delegate, home)| {
                let terms = (end, password_set);
                Grant::sign_for::<C>((delegate, *home), &name, router, terms)
            }),
            (None, Some(password_set)) => {
                Some(Grant::sign::<C>(&self.identity, &name, router, (end, password_set)))
            }
            (None, None) => None,
        };
        let (verdict, grant) = match (verdict, grant) {
            (Verdict::Right, None) => (Verdict::NoSuchUser, None),
            (Verdict::Right, grant) => (Verdict::Right, grant),
            (verdict, _) => (verdict, None),
        };
        let octets = Private::Judged { request, verdict, grant }.to_octets();
        self.private.push(PrivateMessage { to: router.prefix(), octets });
    }

    /// Sends another router a message of another service, of at most [`MAX_SERVICE`] octets; a longer one is dropped. It may
    /// be lost.
    pub fn send(&mut self, to: NodeId, service: u8, octets: &[u8]) {
        if octets.len() <= MAX_SERVICE {
            let (router, octets) = (self.id(), octets.into());
            let octets = Private::Service { router, service, octets }.to_octets();
            self.private.push(PrivateMessage { to: to.prefix(), octets });
        }
    }

    /// Lists what all routers state: [`Event::Listed`] follows, several times, and [`Event::ListEnded`]. Returns whether the
    /// list is begun: not if one is under way. What it costs is in the documentation of [`Dht::scan`].
    pub fn list(&mut self, now: Time, subject: Subject, random: &mut dyn Random) -> bool {
        if self.lists.has(subject) {
            return false;
        }
        let id = self.dht.scan(now, subject.kind(), random);
        id.into_iter().for_each(|id| self.lists.begin(id, subject));
        self.settle(now, random);
        id.is_some()
    }

    /// Handles the octets of a PAYLOAD for the DHT from the router `origin`, which may be this one.
    pub fn handle(&mut self, now: Time, origin: NodeId, octets: &[u8], random: &mut dyn Random) {
        self.dht.handle(now, origin, octets, random);
        self.settle(now, random);
    }

    /// Handles a private message from the router with the prefix `from`.
    pub fn handle_private(
        &mut self,
        now: Time,
        from: Prefix,
        octets: &[u8],
        random: &mut dyn Random,
    ) {
        if !self.allows(now, from) {
            self.counters.policed += 1;
            return;
        }
        if self.receive_private(now, from, octets, random).is_err() {
            self.counters.malformed += 1;
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time, random: &mut dyn Random) {
        self.dht.handle_timeout(now, random);
        let own = self.id();
        let (ended, silent) = self.verifications.timeout(now, &self.config, own, &mut self.private);
        ended.into_iter().for_each(|outcome| self.verified(outcome));
        self.deputies_timeout(now, silent, random);
        for resolved in self.numbers.timeout(now) {
            self.resolved(now, resolved, random);
        }
        self.audit(now, random);
        self.keeping_timeout(now, random);
        self.collecting_timeout(now, random);
        self.settle(now, random);
    }

    /// Returns when something is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        let audit = self.accounts.audits.first().map(|&(at, _)| at);
        let own = sooner(self.verifications.poll_timeout(&self.config), audit);
        let own = sooner(own, self.numbers.poll_timeout());
        let keeping = self.keeping.poll_timeout(&self.config);
        let mail = sooner(keeping, self.collecting.poll_timeout(&self.config));
        let own = sooner(own, self.vigils.poll_timeout(&self.config));
        let own = sooner(own, self.delegation.as_ref().map(Delegation::poll_timeout));
        sooner(self.dht.poll_timeout(), sooner(own, mail))
    }

    /// Removes and returns all messages for the mesh, in their order.
    pub fn take_messages(&mut self) -> Vec<Message> {
        self.dht.take_messages()
    }

    /// Removes and returns all private messages, in their order.
    pub fn take_private(&mut self) -> Vec<PrivateMessage> {
        core::mem::take(&mut self.private)
    }

    /// Removes and returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Carries events of the DHT to where they belong.
    fn settle(&mut self, now: Time, random: &mut dyn Random) {
        while let Some(event) = self.dht.poll_event() {
            match event {
                ringway_dht::Event::Stored((KIND_LOCATION, name), _) => {
                    self.stored(&name, true);
                    self.user_came(now, &name);
                }
                ringway_dht::Event::Stored((KIND_MAIL, name), version) => {
                    self.stored_list(now, &name, Some(version), random);
                }
                ringway_dht::Event::NotStored((KIND_MAIL, name)) => {
                    self.stored_list(now, &name, None, random);
                }
                ringway_dht::Event::Stored((KIND_MAIL_PART, name), _) => {
                    self.stored_part(now, &name, true, random);
                }
                ringway_dht::Event::NotStored((KIND_MAIL_PART, name)) => {
                    self.stored_part(now, &name, false, random);
                }
                ringway_dht::Event::Stored((KIND_ACCOUNT, name), _) => self.stored_account(&name),
                ringway_dht::Event::NotStored((KIND_LOCATION, name)) => self.stored(&name, false),
                ringway_dht::Event::NotStored((KIND_ACCOUNT, name)) => self.lacks_account(&name),
                ringway_dht::Event::Answer(id, answer) => self.answered(now, id, answer, random),
                ringway_dht::Event::Listed(id, records) => {
                    let subject = self.lists.subject(id);
                    let found = subject.map(|subject| listed(subject, &records));
                    found.into_iter().for_each(|found| self.notify(Event::Listed(found)));
                }
                ringway_dht::Event::Scanned(id, end) => {
                    let end = match end {
                        ScanEnd::Whole => ListEnd::Whole,
                        ScanEnd::Partial | ScanEnd::Full => ListEnd::Partial,
                    };
                    let subject = self.lists.end(id);
                    subject.into_iter().for_each(|of| self.notify(Event::ListEnded(of, end)));
                }
                _ => {}
            }
        }
    }

    fn receive_private(
        &mut self,
        now: Time,
        from: Prefix,
        octets: &[u8],
        random: &mut dyn Random,
    ) -> Result<(), Malformed> {
        match Private::parse(octets)? {
            Private::Check { router, .. } | Private::Release { router, .. }
                if !from.contains(router) =>
            {
                self.counters.malformed += 1;
            }
            Private::Check { silent: None, request, router, check } => {
                let name = &check.name;
                match self.verifications.judge(now, &self.config, router, request, name) {
                    Some(id) => self.notify(Event::Judge { id, router, check, secret: None }),
                    None => self.counters.judgements += 1,
                }
            }
            Private::Check { silent: Some(home), request, router, check } => {
                self.check_for_home(now, home, (router, request), check, random);
            }
            Private::Release { request, router, home } => {
                self.asked_for_share(now, home, (router, request), random);
            }
            Private::Released { request, share } => {
                self.vigils.released(from, request, &share);
                self.go_on_for_homes(now);
            }
            Private::Probe { request } => {
                let octets = Private::Probed { request }.to_octets();
                self.private.push(PrivateMessage { to: from, octets });
            }
            Private::Probed { request } if self.deputies_probed(now, from, request) => {}
            Private::Probed { request } => {
                let step = self.numbers.probed(now, from, request);
                self.take_step(now, step, random);
            }
            Private::Service { router, service, octets } => match from.contains(router) {
                true => self.notify(Event::Message { service, router, octets }),
                false => self.counters.malformed += 1,
            },
            Private::Mail { name } => self.hear_of_mail(now, from, &name),
            Private::Taken { id, name } => self.taken(now, from, (name, id), random),
            Private::Judged { request, verdict, grant } => {
                let Some((id, home)) = self.verifications.of_answer(from, request) else {
                    return Ok(());
                };
                let grant = grant.filter(|grant| self.is_granted(id, home, grant));
                // What allows nothing here is no proof either.
                let verdict = match verdict {
                    Verdict::Right if grant.is_none() => Verdict::Wrong,
                    verdict => verdict,
                };
                let desk = (now, &self.config);
                let outcome = self.verifications.judged(desk, (id, from), verdict, grant);
                outcome.into_iter().for_each(|outcome| self.verified(outcome));
            }
        }
        Ok(())
    }

    /// Returns whether a grant for the user of a verification is one of its home.
    fn is_granted(&self, id: QuestionId, home: NodeId, grant: &Grant) -> bool {
        let Some(name) = self.verifications.name(id) else { return false };
        // The account may have been forgotten meanwhile, the home not.
        let known = self.questions.home(name).filter(|known| known.router == home);
        let account = known.map(|known| known.account.clone()).unwrap_or_default();
        let bits = self.config.dht.extension_bits;
        grant.is_of::<C>((home, &account), name, self.id(), bits)
    }

    /// Returns whether a router may send one more private message now.
    fn allows(&mut self, now: Time, from: Prefix) -> bool {
        let (rate, burst) = (self.config.private_rate, self.config.private_burst);
        if self.credits.len() >= self.config.origins && !self.credits.contains_key(&from) {
            let oldest = self.credits.iter().min_by_key(|(_, credit)| credit.at);
            if let Some((&oldest, _)) = oldest {
                self.credits.remove(&oldest);
            }
        }
        let credit = self.credits.entry(from).or_insert(Credit { messages: burst, at: now });
        let earned = now.since(credit.at).as_millis().saturating_mul(rate.into()) / 1_000;
        if earned > 0 {
            let messages = u64::from(credit.messages).saturating_add(earned as u64);
            credit.messages = u32::try_from(messages).unwrap_or(u32::MAX).min(burst);
            credit.at = now;
        }
        let is_allowed = credit.messages > 0;
        credit.messages = credit.messages.saturating_sub(1);
        is_allowed
    }

    fn notify(&mut self, event: Event) {
        if self.events.len() >= MAX_EVENTS {
            self.counters.events += 1;
            return;
        }
        self.events.push_back(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::Account;
    use ringway_mesh::identity::Search;
    use ringway_sansio::SplitMix;

    const ALICE: &str = "alice@mesh";

    /// A REGISTER waits for the account too, and is answered when that cannot be stored.
    #[test]
    fn a_registration_without_its_account_is_reported() -> Result<(), Refused> {
        let random = &mut SplitMix::new(1);
        let Some(identity) = Search::new(0, random).step(1) else {
            unreachable!("without an extension")
        };
        let now = Time::from_secs(1_000);
        let mut directory: Directory = Directory::new(Config::default(), identity, now);
        directory.set_account(now, ALICE, (&Account::default(), &[]), random)?;
        directory.register(now, ALICE, 1_000, random)?;
        directory.lacks_account(ALICE.as_bytes());
        directory.stored(ALICE.as_bytes(), true);
        assert_eq!(directory.poll_event(), None);
        directory.lacks_account(ALICE.as_bytes());
        let registered = |stored| Event::Registered { name: ALICE.into(), stored };
        assert_eq!(directory.poll_event(), Some(registered(false)));
        directory.stored_account(ALICE.as_bytes());
        directory.lacks_account(ALICE.as_bytes());
        assert_eq!(directory.poll_event(), Some(registered(true)));
        assert_eq!(directory.poll_event(), None);
        Ok(())
    }
}
