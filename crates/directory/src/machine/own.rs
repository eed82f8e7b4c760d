//! What this router states: its users and their numbers, those that are registered here, and what it shares.

use ringway_dht::{Draft, Record};
use ringway_mesh::NodeId;
use ringway_mesh::crypto::Crypto;
use ringway_sansio::{Random, Time};
use smallvec::SmallVec;

use super::{Directory, Event, Refused, signer};
use crate::accounts::{OwnAccount, Registered};
use crate::config::{KIND_ACCOUNT, KIND_LOCATION, KIND_NUMBER, KIND_RULES};
use crate::deputies::Secret;
use crate::statement::{
    Account, Grant, Location, Number, SharedRule, is_name, is_number, marked, number_name,
    write_rules,
};

impl<C: Crypto> Directory<C> {
    /// Adds a user of this router, or changes what is stated of it. With `secret` the [deputies](crate::deputies) of this router
    /// check the user's credentials while it is silent; it is empty, or has at most [`MAX_SECRET`](crate::config::MAX_SECRET)
    /// octets.
    ///
    /// # Errors
    /// A name that is too long, or too many records.
    pub fn set_account(
        &mut self,
        now: Time,
        name: &str,
        (account, secret): (&Account, &[u8]),
        random: &mut dyn Random,
    ) -> Result<(), Refused> {
        if !is_name(name) {
            return Err(Refused::Name);
        }
        let replica = self.replica(now, secret, random);
        let account = &Account { replica, ..account.clone() };
        self.publish_account(now, name, account, random)?;
        self.claim_number(now, name, &account.number, random)?;
        // What others claim is looked for soon after the start, not for all users at once.
        let spread = random.next_u64() % 1_024;
        let audit = now + self.config.audit / 10 + self.config.audit / 1_024 * spread as u32;
        let before = self.accounts.own.get(name);
        let (stored, rival) = before.map_or((false, None), |own| (own.stored, own.rival));
        let is_marked = before.is_some_and(|own| own.is_marked);
        if is_marked {
            // As when the mark was made: without room there is no marked name.
            _ = self.publish_account(now, &marked(name, self.id()), account, random);
        }
        let secret = Secret(secret.into());
        let account = account.clone();
        let own = OwnAccount { account, secret, stored, rival, is_marked, audit };
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
        self.withdraw_number(now, name, &own.account.number, random);
        self.dht.withdraw(now, KIND_ACCOUNT, name.as_bytes(), random);
        if own.rival.is_some() {
            let marked = marked(name, self.id());
            self.dht.withdraw(now, KIND_ACCOUNT, marked.as_bytes(), random);
        }
        self.unregister(now, name, random);
        true
    }

    /// Takes a permission that was given before a restart. One that has ended is ignored; whether it holds otherwise is for those
    /// who look the user up.
    pub fn set_grant(&mut self, now: Time, name: &str, grant: Grant) {
        if !grant.has_ended(now) {
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
    pub(super) fn has_account(&self, name: &str) -> bool {
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

    /// Has users of this router answer for a service number, such as one for emergencies, together with those of other
    /// routers; none of them withdraws it. At most [`MAX_ANSWERERS`](crate::config::MAX_ANSWERERS) do.
    ///
    /// # Errors
    /// The name is not a number, or is that of a user here, or the DHT has no room.
    pub fn set_service(
        &mut self,
        now: Time,
        name: &str,
        users: &[Box<str>],
        random: &mut dyn Random,
    ) -> Result<(), Refused> {
        let has = |user: &str, own: &OwnAccount| {
            number_name(user, &own.account.number).is_some_and(|number| number == name)
        };
        if !is_number(name) || self.accounts.own.iter().any(|(user, own)| has(user, own)) {
            return Err(Refused::Name);
        }
        if users.is_empty() {
            self.dht.withdraw(now, KIND_NUMBER, name.as_bytes(), random);
            return Ok(());
        }
        let value = Number { is_service: true, users: users.to_vec() }.to_octets();
        let lifetime = self.config.location_lifetime;
        self.publish(now, (KIND_NUMBER, name), &value, lifetime, random)
    }

    /// Shares rules with the users of all routers of a domain; none withdraws what was shared. Returns how many of them have
    /// found room in the record.
    ///
    /// # Errors
    /// The DHT has no room.
    pub fn share_rules(
        &mut self,
        now: Time,
        domain: &str,
        rules: &[SharedRule],
        random: &mut dyn Random,
    ) -> Result<usize, Refused> {
        if rules.is_empty() {
            self.dht.withdraw(now, KIND_RULES, domain.as_bytes(), random);
            return Ok(0);
        }
        let (value, count) = write_rules(rules);
        let lifetime = self.config.location_lifetime;
        self.publish(now, (KIND_RULES, domain), &value, lifetime, random)?;
        Ok(count)
    }

    /// Notifies those beside this router that it leaves.
    pub fn leave(&mut self) {
        self.dht.leave();
    }

    pub(super) fn publish_account(
        &mut self,
        now: Time,
        name: &str,
        account: &Account,
        random: &mut dyn Random,
    ) -> Result<(), Refused> {
        let (value, lifetime) = (account.to_octets(), self.config.account_lifetime);
        self.publish(now, (KIND_ACCOUNT, name), &value, lifetime, random)
    }

    /// Claims the number of a user of this router, instead of the one that it had before.
    pub(super) fn claim_number(
        &mut self,
        now: Time,
        user: &str,
        number: &str,
        random: &mut dyn Random,
    ) -> Result<(), Refused> {
        let before = self.accounts.own.get(user).map(|own| own.account.number.clone());
        if let Some(before) = before.filter(|before| **before != *number) {
            self.withdraw_number(now, user, &before, random);
        }
        let Some(name) = number_name(user, number) else { return Ok(()) };
        // Those who know the other home of a contested name know the user here by the marked one.
        let is_marked = self.accounts.own.get(user).is_some_and(|own| own.is_marked);
        let marked = is_marked.then(|| marked(user, self.id()).into());
        let users = core::iter::once(user.into()).chain(marked).collect();
        let value = Number { is_service: false, users }.to_octets();
        self.publish(now, (KIND_NUMBER, &name), &value, self.config.account_lifetime, random)
    }

    pub(super) fn withdraw_number(
        &mut self,
        now: Time,
        user: &str,
        number: &str,
        random: &mut dyn Random,
    ) {
        if let Some(name) = number_name(user, number) {
            self.dht.withdraw(now, KIND_NUMBER, name.as_bytes(), random);
        }
    }

    pub(super) fn publish(
        &mut self,
        now: Time,
        (kind, name): (u8, &str),
        value: &[u8],
        lifetime: u32,
        random: &mut dyn Random,
    ) -> Result<(), Refused> {
        let draft = Draft { kind, name: name.as_bytes(), value, lifetime };
        self.dht.publish(now, &draft, random).map(drop).map_err(Refused::Record)
    }

    pub(super) fn publish_location(
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
            self.publish(now, (KIND_LOCATION, name), &value, lifetime, random)?;
        }
        Ok(())
    }

    pub(super) fn stored(&mut self, name: &[u8], stored: bool) {
        let Ok(name) = core::str::from_utf8(name) else { return };
        if let Some(registered) = self.accounts.registered.get_mut(name) {
            // A renewal that fails leaves what is stored until its lifetime ends; the next one follows at once.
            registered.stored |= stored;
            if !stored || self.has_account(name) {
                self.notify(Event::Registered { name: name.into(), stored });
            }
        }
    }

    pub(super) fn stored_account(&mut self, name: &[u8]) {
        let Ok(name) = core::str::from_utf8(name) else { return };
        let Some(own) = self.accounts.own.get_mut(name) else { return };
        let is_new = !core::mem::replace(&mut own.stored, true);
        if is_new && self.accounts.registered.get(name).is_some_and(|known| known.stored) {
            self.notify(Event::Registered { name: name.into(), stored: true });
        }
    }

    /// The account of a user could not be stored yet: nobody would find a user who is registered.
    pub(super) fn lacks_account(&mut self, name: &[u8]) {
        let Ok(name) = core::str::from_utf8(name) else { return };
        let is_registered = self.accounts.registered.get(name).is_some_and(|known| known.stored);
        if is_registered && !self.has_account(name) {
            self.notify(Event::Registered { name: name.into(), stored: false });
        }
    }

    /// Looks for others that claim the names of users of this router.
    pub(super) fn audit(&mut self, now: Time, random: &mut dyn Random) {
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
        self.renew_replica(now, &name, random);
        if let Some(id) = self.dht.look_up_all(now, KIND_ACCOUNT, name.as_bytes(), random) {
            self.audits.insert(id, name);
        }
    }

    /// Compares the account of a user of this router with others that claim the name; `records` are in the order in which
    /// keepers have had them.
    pub(super) fn compare(
        &mut self,
        now: Time,
        name: &str,
        records: &[Record],
        random: &mut dyn Random,
    ) {
        let id = self.id();
        let Some(own) = self.accounts.own.get(name) else { return };
        let is_claim = |record: &&Record| Account::parse(record.value()).is_ok();
        let claims: SmallVec<[NodeId; 2]> = records.iter().filter(is_claim).map(signer).collect();
        let Some(&rival) = claims.iter().find(|router| **router != id) else { return };
        let is_second = claims.first() == Some(&rival);
        if own.rival == Some(rival) && own.is_marked >= is_second {
            return;
        }
        let account = own.account.clone();
        self.counters.contested += u64::from(own.rival.is_none());
        if let Some(own) = self.accounts.own.get_mut(name) {
            // Who knows the user by the marked name may go on.
            own.is_marked |= is_second;
            own.rival = Some(rival);
        }
        let mark = is_second.then(|| marked(name, id));
        if let Some(mark) = &mark {
            // The DHT refuses it only when it has no room, and then there is no marked name.
            _ = self.publish_account(now, mark, &account, random);
            _ = self.claim_number(now, name, &account.number, random);
            if let Some(known) = self.accounts.registered.get(name) {
                let location = Location { preference: known.preference, grant: known.grant };
                _ = self.publish_location(now, name, &location, random);
            }
        }
        let marked = mark.map(Into::into);
        self.notify(Event::Contested { name: name.into(), by: rival, marked });
    }
}
