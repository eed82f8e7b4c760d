//! The directory of a router: its users and registrations, questions about others, and the DHT below.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ringway_dht::{Answer, Dht, Draft, LookUpId, Message, Record, RecordError};
use ringway_mesh::crypto::{Crypto, Real};
use ringway_mesh::{Identity, NodeId, Prefix};
use ringway_sansio::time::{Time, sooner};
use ringway_sansio::{Malformed, Random};

use crate::accounts::{Accounts, OwnAccount, Registered};
use crate::config::{Config, KIND_ACCOUNT, KIND_LOCATION};
use crate::private::{CredentialsCheck, Private, PrivateMessage, Verdict};
use crate::questions::{LookUps, QuestionId, Questions, Whereabouts};
use crate::statement::{Account, Grant, Location, is_name, marked};
use crate::verifications::{JudgementId, Outcome, Verifications};

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
    },
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
    /// Look-ups for others that claim a name of this router.
    audits: BTreeMap<LookUpId, Box<str>>,
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
            audits: BTreeMap::new(),
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

    /// Adds a user of this router, or changes what is stated of it.
    ///
    /// # Errors
    /// A name that is too long, or too many records.
    pub fn set_account(
        &mut self,
        now: Time,
        name: &str,
        account: &Account,
        random: &mut dyn Random,
    ) -> Result<(), Refused> {
        if !is_name(name) {
            return Err(Refused::Name);
        }
        self.publish_account(now, name, account, random)?;
        // What others claim is looked for soon after the start, not for all users at once.
        let spread = random.next_u64() % 1_024;
        let audit = now + self.config.audit / 10 + self.config.audit / 1_024 * spread as u32;
        let before = self.accounts.own.get(name);
        let (stored, rival) = before.map_or((false, None), |own| (own.stored, own.rival));
        let own = OwnAccount { account: account.clone(), stored, rival, audit };
        if let Some(before) = self.accounts.own.insert(name.into(), own) {
            self.accounts.audits.remove(&(before.audit, name.into()));
        }
        self.accounts.audits.insert((audit, name.into()));
        self.accounts.grants.remove(name);
        Ok(())
    }

    /// Removes a user of this router. Returns whether there was one.
    pub fn remove_account(&mut self, now: Time, name: &str, random: &mut dyn Random) -> bool {
        let Some(own) = self.accounts.own.remove(name) else { return false };
        self.accounts.audits.remove(&(own.audit, name.into()));
        self.dht.withdraw(now, KIND_ACCOUNT, name.as_bytes(), random);
        if own.rival.is_some() {
            let marked = marked(name, self.id());
            self.dht.withdraw(now, KIND_ACCOUNT, marked.as_bytes(), random);
        }
        self.unregister(now, name, random);
        true
    }

    /// Takes a permission that was given before a restart. What does not hold any more is ignored.
    pub fn set_grant(&mut self, now: Time, name: &str, grant: Grant) {
        let (own, bits) = (self.id(), self.config.dht.extension_bits);
        if !grant.has_ended(now) && grant.verify::<C>(name, own, bits).is_some() {
            self.accounts.grants.insert(&self.config, name, grant);
        }
    }

    /// Has it known that a user is registered at this router: [`Event::Registered`] follows when that is safe, unless it is
    /// already, in which case `true` is returned.
    ///
    /// # Errors
    /// The user is of another home, which has not permitted it, or the DHT has no room.
    pub fn register(
        &mut self,
        now: Time,
        name: &str,
        preference: u16,
        random: &mut dyn Random,
    ) -> Result<bool, Refused> {
        let grant = match self.accounts.is_own(name) {
            true => None,
            false => Some(*self.accounts.grants.get(name).ok_or(Refused::NoGrant)?),
        };
        if let Some(known) = self.accounts.registered.get(name)
            && (known.preference, known.grant) == (preference, grant)
        {
            return Ok(known.stored && self.has_account(name));
        }
        self.publish_location(now, name, &Location { preference, grant }, random)?;
        // What is stored already stays so while a later version is written.
        let stored = self.accounts.registered.get(name).is_some_and(|known| known.stored);
        let registered = Registered { preference, grant, stored };
        self.accounts.registered.insert(name.into(), registered);
        Ok(stored && self.has_account(name))
    }

    /// Returns whether others find the account of a user: that of another home has been found.
    fn has_account(&self, name: &str) -> bool {
        self.accounts.own.get(name).is_none_or(|own| own.stored)
    }

    /// Has it known that a user is not registered here any more.
    pub fn unregister(&mut self, now: Time, name: &str, random: &mut dyn Random) {
        if self.accounts.registered.remove(name).is_some() {
            self.dht.withdraw(now, KIND_LOCATION, name.as_bytes(), random);
            let marked = marked(name, self.id());
            self.dht.withdraw(now, KIND_LOCATION, marked.as_bytes(), random);
        }
    }

    /// Asks where a user is: [`Event::Located`] follows. Returns `None` if too much is asked, or the name is too long.
    pub fn locate(&mut self, now: Time, name: &str, random: &mut dyn Random) -> Option<QuestionId> {
        if !is_name(name) {
            return None;
        }
        let mut asker = Asker { dht: &mut self.dht, now, random };
        let id = self.questions.ask(now, &self.config, name, &mut asker);
        self.settle(now, random);
        id
    }

    /// Has credentials checked by the home of their user: [`Event::Verified`] follows. Returns `None` if too much is asked.
    pub fn verify(
        &mut self,
        now: Time,
        check: CredentialsCheck,
        random: &mut dyn Random,
    ) -> Option<QuestionId> {
        if !check.fits() || self.verifications.len() >= self.config.verifications {
            return None;
        }
        let mut asker = Asker { dht: &mut self.dht, now, random };
        let question = self.questions.ask(now, &self.config, &check.name, &mut asker)?;
        self.verifications.begin(now, question, check);
        self.settle(now, random);
        Some(question)
    }

    /// Answers an [`Event::Judge`].
    pub fn judge(&mut self, now: Time, id: JudgementId, verdict: Verdict) {
        let Some((router, request, name)) = self.verifications.take(id) else { return };
        let own = self.accounts.own.get(&name).map(|own| own.account.password_set);
        let (verdict, grant) = match (verdict, own) {
            (Verdict::Right, Some(password_set)) => {
                let end = (now + self.config.grant_lifetime).as_secs();
                let end = u32::try_from(end).unwrap_or(u32::MAX);
                let grant = Grant::sign::<C>(&self.identity, &name, router, (end, password_set));
                (Verdict::Right, Some(grant))
            }
            (Verdict::Right, None) => (Verdict::NoSuchUser, None),
            (verdict, _) => (verdict, None),
        };
        let octets = Private::Judged { request, verdict, grant }.to_octets();
        self.private.push(PrivateMessage { to: router.prefix(), octets });
    }

    /// Notifies those beside this router that it leaves.
    pub fn leave(&mut self) {
        self.dht.leave();
    }

    /// Handles the octets of a PAYLOAD for the DHT from the router `origin`, which may be this one.
    pub fn handle(&mut self, now: Time, origin: NodeId, octets: &[u8], random: &mut dyn Random) {
        self.dht.handle(now, origin, octets, random);
        self.settle(now, random);
    }

    /// Handles a private message from the router with the prefix `from`.
    pub fn handle_private(&mut self, now: Time, from: Prefix, octets: &[u8]) {
        if !self.allows(now, from) {
            self.counters.policed += 1;
            return;
        }
        if self.receive_private(now, from, octets).is_err() {
            self.counters.malformed += 1;
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time, random: &mut dyn Random) {
        self.dht.handle_timeout(now, random);
        let own = self.id();
        let ended = self.verifications.timeout(now, &self.config, own, &mut self.private);
        ended.into_iter().for_each(|outcome| self.verified(outcome));
        self.audit(now, random);
        self.settle(now, random);
    }

    /// Returns when something is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        let audit = self.accounts.audits.first().map(|&(at, _)| at);
        let own = sooner(self.verifications.poll_timeout(&self.config), audit);
        sooner(self.dht.poll_timeout(), own)
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

    fn publish_account(
        &mut self,
        now: Time,
        name: &str,
        account: &Account,
        random: &mut dyn Random,
    ) -> Result<(), Refused> {
        let value = account.to_octets();
        let lifetime = self.config.account_lifetime;
        let draft = Draft { kind: KIND_ACCOUNT, name: name.as_bytes(), value: &value, lifetime };
        self.dht.publish(now, &draft, random).map(drop).map_err(Refused::Record)
    }

    fn publish_location(
        &mut self,
        now: Time,
        name: &str,
        location: &Location,
        random: &mut dyn Random,
    ) -> Result<(), Refused> {
        let is_marked = self.accounts.own.get(name).is_some_and(|own| own.rival.is_some());
        let marked = is_marked.then(|| marked(name, self.id()));
        let value = location.to_octets();
        let lifetime = self.config.location_lifetime;
        for name in core::iter::once(name).chain(marked.as_deref()) {
            let draft =
                Draft { kind: KIND_LOCATION, name: name.as_bytes(), value: &value, lifetime };
            self.dht.publish(now, &draft, random).map_err(Refused::Record)?;
        }
        Ok(())
    }

    /// Carries events of the DHT to where they belong.
    fn settle(&mut self, now: Time, random: &mut dyn Random) {
        while let Some(event) = self.dht.poll_event() {
            match event {
                ringway_dht::Event::Stored((KIND_LOCATION, name), _) => self.stored(&name, true),
                ringway_dht::Event::Stored((KIND_ACCOUNT, name), _) => self.stored_account(&name),
                ringway_dht::Event::NotStored((KIND_LOCATION, name)) => self.stored(&name, false),
                ringway_dht::Event::NotStored((KIND_ACCOUNT, name)) => self.lacks_account(&name),
                ringway_dht::Event::Answer(id, answer) => self.answered(now, id, answer, random),
                _ => {}
            }
        }
    }

    fn stored(&mut self, name: &[u8], stored: bool) {
        let Ok(name) = core::str::from_utf8(name) else { return };
        if let Some(registered) = self.accounts.registered.get_mut(name) {
            // A renewal that fails leaves what is stored until its lifetime ends; the next one follows at once.
            registered.stored |= stored;
            if !stored || self.has_account(name) {
                self.notify(Event::Registered { name: name.into(), stored });
            }
        }
    }

    fn stored_account(&mut self, name: &[u8]) {
        let Ok(name) = core::str::from_utf8(name) else { return };
        let Some(own) = self.accounts.own.get_mut(name) else { return };
        let is_new = !core::mem::replace(&mut own.stored, true);
        if is_new && self.accounts.registered.get(name).is_some_and(|known| known.stored) {
            self.notify(Event::Registered { name: name.into(), stored: true });
        }
    }

    /// The account of a user could not be stored yet: nobody would find a user who is registered.
    fn lacks_account(&mut self, name: &[u8]) {
        let Ok(name) = core::str::from_utf8(name) else { return };
        let is_registered = self.accounts.registered.get(name).is_some_and(|known| known.stored);
        if is_registered && !self.has_account(name) {
            self.notify(Event::Registered { name: name.into(), stored: false });
        }
    }

    fn answered(&mut self, now: Time, id: LookUpId, answer: Answer, random: &mut dyn Random) {
        if let Some(name) = self.audits.remove(&id) {
            if let Answer::Found(records) | Answer::Partial(records) = answer {
                self.compare(now, &name, &records, random);
            }
            return;
        }
        let asker = &mut Asker { dht: &mut self.dht, now, random };
        let ended = self.questions.answered::<C>(now, &self.config, id, answer, &signer, asker);
        let Some((name, waiting, whereabouts)) = ended else { return };
        for id in waiting {
            if self.verifications.is_of(id) {
                self.found_home(now, id, &name, &whereabouts, random);
            } else {
                self.notify(Event::Located(id, name.clone(), whereabouts.clone()));
            }
        }
    }

    /// The home of a user whose credentials are to be verified is known.
    fn found_home(
        &mut self,
        now: Time,
        id: QuestionId,
        name: &str,
        whereabouts: &Whereabouts,
        random: &mut dyn Random,
    ) {
        let own = self.id();
        let home = match whereabouts {
            Whereabouts::Found(located) => located.home.as_ref().map(|home| home.router),
            // It is enough to know the home, whose word counts, however few routers know where the user is.
            Whereabouts::Unavailable => match self.questions.home(name) {
                Some(home) => Some(home.router),
                None => {
                    let outcome = self.verifications.end(id, None);
                    return outcome.into_iter().for_each(|outcome| self.verified(outcome));
                }
            },
        };
        match home.filter(|&home| home != own) {
            Some(home) => {
                let request = random.next_u64() as u32;
                let desk = (now, &self.config);
                self.private.extend(self.verifications.ask(desk, own, id, home, request));
            }
            None => {
                let outcome = self.verifications.end(id, Some(Verdict::NoSuchUser));
                outcome.into_iter().for_each(|outcome| self.verified(outcome));
            }
        }
    }

    fn receive_private(&mut self, now: Time, from: Prefix, octets: &[u8]) -> Result<(), Malformed> {
        match Private::parse(octets)? {
            Private::Check { request, router, check } => {
                if !from.contains(router) {
                    self.counters.malformed += 1;
                    return Ok(());
                }
                let name = &check.name;
                match self.verifications.judge(now, &self.config, router, request, name) {
                    Some(id) => self.notify(Event::Judge { id, router, check }),
                    None => self.counters.judgements += 1,
                }
            }
            Private::Judged { request, verdict, grant } => {
                let judged = self.verifications.judged(from, request, verdict, grant);
                let Some((home, mut outcome)) = judged else { return Ok(()) };
                let (own, bits) = (self.id(), self.config.dht.extension_bits);
                let is_good =
                    |grant: &Grant| grant.verify::<C>(&outcome.name, own, bits) == Some(home);
                outcome.grant = grant.filter(is_good);
                // What allows nothing here is no proof either.
                if verdict == Verdict::Right && outcome.grant.is_none() {
                    outcome.verdict = Some(Verdict::Wrong);
                }
                self.verified(outcome);
            }
        }
        Ok(())
    }

    fn verified(&mut self, outcome: Outcome) {
        if let Some(grant) = outcome.grant {
            let name = outcome.name;
            let evicted = self.accounts.grants.insert(&self.config, &name, grant);
            self.notify(Event::Granted { name, grant, evicted });
        }
        self.notify(Event::Verified(outcome.id, outcome.verdict));
    }

    /// Looks for others that claim the names of users of this router.
    fn audit(&mut self, now: Time, random: &mut dyn Random) {
        let Some((at, name)) = self.accounts.audits.first().cloned() else { return };
        if at > now {
            return;
        }
        self.accounts.audits.remove(&(at, name.clone()));
        let next = now + self.config.audit;
        self.accounts.audits.insert((next, name.clone()));
        if let Some(own) = self.accounts.own.get_mut(&name) {
            own.audit = next;
        }
        if let Some(id) = self.dht.look_up_all(now, KIND_ACCOUNT, name.as_bytes(), random) {
            self.audits.insert(id, name);
        }
    }

    /// Compares the account of a user of this router with others that claim the name.
    fn compare(&mut self, now: Time, name: &str, records: &[Record], random: &mut dyn Random) {
        let id = self.id();
        let Some(own) = self.accounts.own.get(name) else { return };
        let claims = records.iter().filter_map(|record| {
            let account = Account::parse(record.value()).ok()?;
            Some((account.created, signer(record)))
        });
        let Some(first) = claims.filter(|&(_, router)| router != id).min() else { return };
        if own.rival == Some(first.1) {
            return;
        }
        let account = own.account.clone();
        let is_second = first < (account.created, id);
        self.counters.contested += u64::from(own.rival.is_none());
        if let Some(own) = self.accounts.own.get_mut(name) {
            own.rival = Some(first.1);
        }
        let mark = is_second.then(|| marked(name, id));
        if let Some(mark) = &mark {
            // The DHT refuses it only when it has no room, and then there is no marked name.
            _ = self.publish_account(now, mark, &account, random);
            if let Some(known) = self.accounts.registered.get(name) {
                let location = Location { preference: known.preference, grant: known.grant };
                _ = self.publish_location(now, name, &location, random);
            }
        }
        let marked = mark.map(Into::into);
        self.notify(Event::Contested { name: name.into(), by: first.1, marked });
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
        directory.set_account(now, ALICE, &Account::default(), random)?;
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
