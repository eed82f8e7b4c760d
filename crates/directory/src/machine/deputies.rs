//! This router as a home that has deputies, as a deputy of other homes, and as one that asks deputies.

use ringway_dht::{Answer, LookUpId};
use ringway_mesh::crypto::Crypto;
use ringway_mesh::{NodeId, Prefix};
use ringway_sansio::{Random, Time};

use super::{Directory, Event, signer};
use crate::config::{KIND_ACCOUNT, KIND_DEPUTIES, MAX_SECRET};
use crate::deputies::Secret;
use crate::deputies::home::Delegation;
use crate::deputies::vigil::Waiting;
use crate::private::{CredentialsCheck, Private, PrivateMessage};
use crate::questions::{QuestionId, records_of};
use crate::statement::{Account, Replica};
use crate::verifications::deputies_of;

impl<C: Crypto> Directory<C> {
    /// Returns the deputies of this router.
    pub fn deputies(&self) -> Vec<NodeId> {
        self.delegation.iter().flat_map(Delegation::deputies).collect()
    }

    /// Seals what deputies check the credentials of a user with, if there is something.
    pub(super) fn replica(
        &mut self,
        now: Time,
        secret: &[u8],
        random: &mut dyn Random,
    ) -> Option<Replica> {
        if !(1..=MAX_SECRET).contains(&secret.len()) {
            return None;
        }
        let Directory { delegation, config, identity, .. } = self;
        let delegation = delegation.get_or_insert_with(|| Delegation::new(now, config, identity));
        delegation.replica::<C>(secret, random)
    }

    /// Seals anew what was sealed for a delegate before, when its user is audited.
    pub(super) fn renew_replica(&mut self, now: Time, name: &str, random: &mut dyn Random) {
        let (Some(own), Some(delegation)) = (self.accounts.own.get(name), &self.delegation) else {
            return;
        };
        if own.account.replica.as_ref().is_some_and(|of| !delegation.is_current(of)) {
            let (account, secret) = (own.account.clone(), own.secret.clone());
            // Without room the user has no deputies until the next audit.
            _ = self.set_account(now, name, (&account, &secret.0), random);
        }
    }

    /// Does what is due; `silent` are homes that have not answered, with the verifications that wait for them.
    pub(super) fn deputies_timeout(
        &mut self,
        now: Time,
        silent: Vec<(QuestionId, NodeId)>,
        random: &mut dyn Random,
    ) {
        for (question, home) in silent {
            let name = home.to_bytes();
            if let Some(id) = self.dht.look_up_all(now, KIND_DEPUTIES, &name, random) {
                self.verifications.look_up(question, id);
            }
        }
        let own = self.id();
        self.vigils.timeout(now, &self.config, own, &mut self.private);
        self.go_on_for_homes(now);
        self.audit_deputies(now, random);
    }

    fn audit_deputies(&mut self, now: Time, random: &mut dyn Random) {
        let Directory { delegation, dht, config, private, identity, .. } = self;
        let Some(delegation) = delegation else { return };
        let own = *identity.proof();
        let others = dht.table().signers().filter(|proof| *proof != own);
        let desk = (&*config, &**identity);
        let Some(deputies) = delegation.timeout::<C>(now, desk, others, random, private) else {
            return;
        };
        let (name, value) = (self.id().to_bytes(), deputies.to_octets());
        let lifetime = self.config.account_lifetime;
        let draft =
            ringway_dht::Draft { kind: KIND_DEPUTIES, name: &name, value: &value, lifetime };
        // Without room nobody stands in for this router.
        _ = self.dht.publish(now, &draft, random);
    }

    /// A router has answered a probe. Returns whether it was one of a home for its deputies, or of a deputy for a home, or a
    /// deputy that confirms that it was asked.
    pub(super) fn deputies_probed(&mut self, now: Time, from: Prefix, request: u32) -> bool {
        let own = self.delegation.as_mut();
        own.is_some_and(|delegation| delegation.probed(from, request))
            || self.vigils.probed(from, request)
            || self.verifications.confirmed((now, &self.config), from, request)
    }

    /// Another router says that a home is silent whose deputy this one is, and asks it to check credentials.
    pub(super) fn check_for_home(
        &mut self,
        now: Time,
        home: NodeId,
        (router, request): (NodeId, u32),
        check: CredentialsCheck,
        random: &mut dyn Random,
    ) {
        let octets = Private::Probed { request }.to_octets();
        self.private.push(PrivateMessage { to: router.prefix(), octets });
        let known = self.questions.fresh_home(now, &self.config, &check.name);
        let account = known.filter(|known| known.router == home).map(|home| home.account.clone());
        let Some(id) = self.verifications.judge(now, &self.config, router, request, &check.name)
        else {
            self.counters.judgements += 1;
            return;
        };
        // A vigil and an account that is not known cost look-ups.
        let is_cheap = account.is_some() && self.vigils.has(home);
        let may = home != self.id()
            && (is_cheap || self.substitutions.follow(now, router.prefix()))
            && self.watch(now, home, random);
        if !may {
            self.verifications.take(id);
            return;
        }
        let look_up = match account.is_some() {
            true => None,
            false => self.dht.look_up_all(now, KIND_ACCOUNT, check.name.as_bytes(), random),
        };
        self.vigils.check(home, Waiting { id, router, check, look_up, account });
        self.vigils.ask_others(self.id(), home, &mut self.private);
        self.settle(now, random);
        self.go_on_for_homes(now);
    }

    /// Another deputy of a home says that it is silent, and asks for the share of this one.
    pub(super) fn asked_for_share(
        &mut self,
        now: Time,
        home: NodeId,
        (router, request): (NodeId, u32),
        random: &mut dyn Random,
    ) {
        let may = self.vigils.has(home) || self.substitutions.follow(now, router.prefix());
        if home != self.id() && may && self.watch(now, home, random) {
            self.vigils.ask(home, router, request);
            self.settle(now, random);
            self.go_on_for_homes(now);
        }
    }

    /// Watches a home. Returns whether it is watched.
    fn watch(&mut self, now: Time, home: NodeId, random: &mut dyn Random) -> bool {
        if self.vigils.has(home) {
            return true;
        }
        let name = home.to_bytes();
        let Some(look_up) = self.dht.look_up_all(now, KIND_DEPUTIES, &name, random) else {
            return false;
        };
        let begun = (look_up, random.next_u64() as u32);
        self.vigils.begin(now, &self.config, home, begun, &mut self.private)
    }

    /// Handles the answer to a look-up of deputies, or of an account of a silent home. Returns whether it was one.
    pub(super) fn deputies_answered(
        &mut self,
        now: Time,
        id: LookUpId,
        answer: &Answer,
        random: &mut dyn Random,
    ) -> bool {
        let records = || records_of(answer.clone()).unwrap_or_default();
        if let Some((question, home)) = self.verifications.of_look_up(id) {
            let deputies = deputies_of(&records(), home).map(|(deputies, _)| deputies.each);
            let deputies = deputies.unwrap_or_default().into_iter().map(|(id, _)| id).collect();
            let (own, request) = (self.id(), random.next_u64() as u32);
            let desk = (now, &self.config);
            let message = self.verifications.found_deputies(desk, own, question, deputies, request);
            self.private.extend(message);
            return true;
        }
        let Some(home) = self.vigils.of_look_up(id) else { return false };
        let records = records();
        let stated = records.iter().find(|record| signer(record) == home);
        let account = stated.and_then(|record| Account::parse(record.value()).ok());
        for id in self.vigils.found(id, home, deputies_of(&records, home), account) {
            self.verifications.take(id);
        }
        self.vigils.ask_others(self.id(), home, &mut self.private);
        self.go_on_for_homes(now);
        true
    }

    /// Shares, and has credentials checked, for the homes that have been silent for long enough.
    pub(super) fn go_on_for_homes(&mut self, now: Time) {
        for home in self.vigils.homes() {
            let own = (&*self.identity, home);
            let ready = self.vigils.go_on::<C>(now, &self.config, own, &mut self.private);
            for ready in ready {
                let (id, router, check) = (ready.id, ready.router, ready.check);
                self.verifications.set_silent(id, home, ready.password_set);
                let secret = Some(Secret(ready.secret.into()));
                self.notify(Event::Judge { id, router, check, secret });
            }
        }
    }
}
