//! What this router asks, and what is done with the answers.

use ringway_dht::{Answer, LookUpId, Record};
use ringway_mesh::NodeId;
use ringway_mesh::crypto::Crypto;
use ringway_sansio::{Random, Time};
use smallvec::SmallVec;

use super::{Asker, Directory, Event, signer};
use crate::config::KIND_RULES;
use crate::numbers::{Resolved, Step};
use crate::private::{CredentialsCheck, Verdict};
use crate::questions::{Answered, QuestionId, Whereabouts, records_of};
use crate::resolve::{Home, Located};
use crate::statement::{Number, SharedRule, is_name, is_number, parse_rules};
use crate::verifications::Outcome;

impl<C: Crypto> Directory<C> {
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

    /// Asks what routers share in a domain: [`Event::Rules`] follows, once for all that ask meanwhile. Returns whether it
    /// could be asked for.
    pub fn ask_rules(&mut self, now: Time, domain: &str, random: &mut dyn Random) -> bool {
        if self.rules.is_none() {
            self.rules = self.dht.look_up_all(now, KIND_RULES, domain.as_bytes(), random);
            self.settle(now, random);
            return true;
        }
        self.rules.is_some()
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
        if self.questions.fresh_home(now, &self.config, &check.name).is_some() {
            let (question, name) = (self.questions.draw(), check.name.clone());
            self.verifications.begin(now, question, check);
            self.found_home(now, question, &name, &Whereabouts::Unavailable, random);
            return Some(question);
        }
        let mut asker = Asker { dht: &mut self.dht, now, random };
        let question = self.questions.ask(now, &self.config, &check.name, &mut asker)?;
        self.verifications.begin(now, question, check);
        self.settle(now, random);
        Some(question)
    }

    pub(super) fn answered(
        &mut self,
        now: Time,
        id: LookUpId,
        answer: Answer,
        random: &mut dyn Random,
    ) {
        if self.keeping_answered(now, id, &answer, random)
            || self.collecting_answered(now, id, &answer, random)
            || self.deputies_answered(now, id, &answer, random)
        {
            return;
        }
        if let Some(name) = self.audits.remove(&id) {
            if let Answer::Found(records) = answer {
                self.compare(now, &name, &records, random);
            }
            return;
        }
        if self.rules == Some(id) {
            self.rules = None;
            let rules = records_of(answer).map(|records| shared(&records));
            return self.notify(Event::Rules(rules));
        }
        let asker = &mut Asker { dht: &mut self.dht, now, random };
        let ended = self.questions.answered::<C>(now, &self.config, id, answer, &signer, asker);
        let Some(Answered { name, waiting, whereabouts, claims }) = ended else { return };
        if !claims.is_empty() {
            return self.resolve(now, name, waiting, claims, random);
        }
        self.located(now, &name, &waiting, &whereabouts, random);
    }

    /// Ends questions: what is known of a name is known to all who have asked for it.
    pub(super) fn located(
        &mut self,
        now: Time,
        name: &str,
        waiting: &[QuestionId],
        whereabouts: &Whereabouts,
        random: &mut dyn Random,
    ) {
        for &id in waiting {
            if self.verifications.is_of(id) {
                self.found_home(now, id, name, whereabouts, random);
            } else if self.collecting_located(now, id, whereabouts, random) {
                continue;
            } else if let Some(number) = self.numbers.of(id) {
                self.numbers.note(&number, id, whereabouts);
                self.go_on(now, &number, random);
            } else {
                self.notify(Event::Located(id, name.into(), whereabouts.clone()));
            }
        }
    }

    /// Looks for the users that a number stands for.
    pub(super) fn resolve(
        &mut self,
        now: Time,
        name: Box<str>,
        waiting: SmallVec<[QuestionId; 2]>,
        claims: Vec<(NodeId, Number)>,
        random: &mut dyn Random,
    ) {
        if self.numbers.join(&name, &waiting) {
            return;
        }
        let Directory { numbers, questions, dht, config, .. } = self;
        let mut asker = Asker { dht, now, random };
        // A number does not stand for another one.
        let ask = |user: &str| match is_number(user) {
            true => None,
            false => questions.ask(now, config, user, &mut asker),
        };
        numbers.begin(name.clone(), waiting, claims, ask);
        self.go_on(now, &name, random);
    }

    /// Goes on with a number, of which users may have been located.
    pub(super) fn go_on(&mut self, now: Time, number: &str, random: &mut dyn Random) {
        let request = random.next_u64() as u32;
        let step = self.numbers.step((now, &self.config), self.identity.id(), number, request);
        self.take_step(now, step, random);
    }

    pub(super) fn take_step(&mut self, now: Time, step: Step, random: &mut dyn Random) {
        match step {
            Step::Wait => {}
            Step::Probe(messages) => self.private.extend(messages),
            Step::Done(resolved) => self.resolved(now, resolved, random),
        }
    }

    pub(super) fn resolved(&mut self, now: Time, resolved: Resolved, random: &mut dyn Random) {
        let Resolved { name, waiting, aliases } = resolved;
        let whereabouts = Whereabouts::Found(Located { aliases, ..Located::default() });
        self.located(now, &name, &waiting, &whereabouts, random);
    }

    /// The home of a user whose credentials are to be verified is known.
    pub(super) fn found_home(
        &mut self,
        now: Time,
        id: QuestionId,
        name: &str,
        whereabouts: &Whereabouts,
        random: &mut dyn Random,
    ) {
        let own = self.id();
        let known = |home: &Home| (home.router, home.account.replica.is_some());
        let home = match whereabouts {
            Whereabouts::Found(located) => located.home.as_ref().map(known),
            // It is enough to know the home, whose word counts, however few routers know where the user is.
            Whereabouts::Unavailable => match self.questions.home(name) {
                Some(home) => Some(known(home)),
                None => {
                    let outcome = self.verifications.end(id, None);
                    return outcome.into_iter().for_each(|outcome| self.verified(outcome));
                }
            },
        };
        match home.filter(|&(home, _)| home != own) {
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

    pub(super) fn verified(&mut self, outcome: Outcome) {
        if let Some(grant) = outcome.grant {
            let name = outcome.name;
            let evicted = self.accounts.grants.insert(&self.config, &name, grant);
            self.notify(Event::Granted { name, grant, evicted });
        }
        self.notify(Event::Verified(outcome.id, outcome.verdict));
    }
}

/// Returns what routers share by these records, which have been verified.
fn shared(records: &[Record]) -> Vec<(NodeId, Vec<SharedRule>)> {
    let rules = records.iter().filter_map(|record| {
        let rules = parse_rules(record.value()).ok()?;
        Some((signer(record), rules))
    });
    rules.collect()
}
