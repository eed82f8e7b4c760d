//! Messages that this router has kept by others for users who are away.

use ringway_dht::config::MAX_LIFETIME;
use ringway_dht::{Answer, LookUpId, Record};
use ringway_mesh::crypto::{Crypto, ENVELOPE};
use ringway_mesh::id::Sequence;
use ringway_mesh::identity::KEY;
use ringway_mesh::{NodeId, Prefix};
use ringway_sansio::{Random, Time};

use super::{Directory, Event, signer};
use crate::config::{KIND_ACCOUNT, KIND_MAIL, KIND_MAIL_PART};
use crate::mail::Mail;
use crate::mail::format::{Entry, Letter, List, MAX_SEALED, MailId, PART, part_name};
use crate::mail::keeping::{Held, Job, Removal, Stage};
use crate::private::{Private, PrivateMessage};
use crate::questions::records_of;
use crate::resolve;
use crate::statement::is_name;

impl<C: Crypto> Directory<C> {
    /// Has a message kept until its recipient is registered somewhere: [`Event::Kept`] follows with the same tag. Returns
    /// whether that was begun. It is not if this router may not send as the sender, or has no room for more of it.
    pub fn keep(&mut self, now: Time, tag: u64, mail: Mail, random: &mut dyn Random) -> bool {
        let is_begun = self.begin_keeping(now, tag, mail, random);
        self.mail_counters.refused += u64::from(!is_begun);
        self.settle(now, random);
        is_begun
    }

    fn begin_keeping(&mut self, now: Time, tag: u64, mail: Mail, random: &mut dyn Random) -> bool {
        let grant = match self.accounts.is_own(&mail.from) {
            true => None,
            false => self.accounts.grants.get(&mail.from).filter(|grant| !grant.has_ended(now)),
        };
        let may_send = grant.is_some() || self.accounts.is_own(&mail.from);
        let fits = is_name(&mail.to)
            && (1..=MAX_LIFETIME).contains(&mail.lifetime)
            && (1..=MAX_SEALED).contains(&mail.octets.len())
            && !self.keeping.jobs.contains_key(&tag)
            && self.keeping.has_room(&self.config, &mail.from, &mail.to);
        if !may_send || !fits {
            return false;
        }
        let (grant, name) = (grant.copied(), mail.to.as_bytes());
        let Some(account) = self.dht.look_up_all(now, KIND_ACCOUNT, name, random) else {
            return false;
        };
        // What is listed in a record from before this router has started must be listed in the next one, too.
        let list = match self.keeping.bags.contains_key(&mail.to) {
            true => None,
            false => match self.dht.look_up_all(now, KIND_MAIL, name, random) {
                None => return false,
                list => list,
            },
        };
        let stage = Stage::LookingUp { account: Some(account), home: None, list, listed: None };
        self.keeping.jobs.insert(tag, Job { mail, grant, begun: now, stage });
        true
    }

    /// Handles the answer to a look-up for a message that is to be kept. Returns whether it was one.
    pub(super) fn keeping_answered(
        &mut self,
        now: Time,
        id: LookUpId,
        answer: &Answer,
        random: &mut dyn Random,
    ) -> bool {
        if let Some(removal) = self.keeping.removals.remove(&id) {
            self.recall(now, &removal, answer, random);
            return true;
        }
        let of_job = self.keeping.jobs.iter().find_map(|(&tag, job)| match job.stage {
            Stage::LookingUp { account, .. } if account == Some(id) => Some((tag, true)),
            Stage::LookingUp { list, .. } if list == Some(id) => Some((tag, false)),
            _ => None,
        });
        let Some((tag, is_account)) = of_job else { return false };
        let is_good = match is_account {
            true => self.found_account(tag, answer),
            false => self.found_list(tag, answer),
        };
        if !is_good {
            self.end_job(now, tag, false, random);
        } else if let Some(home) = self.keeping.jobs.get(&tag).and_then(ready) {
            let is_written = self.write_mail(now, tag, home, random);
            if !is_written {
                self.end_job(now, tag, false, random);
            }
        }
        true
    }

    /// Takes the key of the recipient's home. Returns whether there is one.
    fn found_account(&mut self, tag: u64, answer: &Answer) -> bool {
        let Some(job) = self.keeping.jobs.get_mut(&tag) else { return false };
        let Stage::LookingUp { account, home, .. } = &mut job.stage else { return false };
        *account = None;
        let known = self.questions.home(&job.mail.to).map(|home| home.router);
        let records = records_of(answer.clone()).unwrap_or_default();
        let found = resolve::home(&records, known, signer).map(|home| home.router);
        let found = found.filter(|&router| known.is_none_or(|known| known == router));
        let record = records.iter().find(|record| Some(signer(record)) == found);
        *home = record.map(|record| (signer(record), record.proof().key));
        home.is_some()
    }

    /// Takes what this router listed before it has started. Returns whether a list of it has room.
    fn found_list(&mut self, tag: u64, answer: &Answer) -> bool {
        let own = self.identity.id();
        let Some(job) = self.keeping.jobs.get_mut(&tag) else { return false };
        let Stage::LookingUp { list, listed, .. } = &mut job.stage else { return false };
        *list = None;
        match answer {
            Answer::Found(records) => {
                *listed = own_list(records, own);
                listed.is_some() || records.len() < self.config.dht.records_of_name
            }
            Answer::Absent => true,
            // A list that was not found would be lost.
            Answer::Partial(_) | Answer::Unknown => false,
        }
    }

    /// Seals a message and has its parts kept. Returns whether there is room.
    fn write_mail(
        &mut self,
        now: Time,
        tag: u64,
        (home, key): (NodeId, [u8; KEY]),
        random: &mut dyn Random,
    ) -> bool {
        let Some(job) = self.keeping.jobs.get_mut(&tag) else { return false };
        let Stage::LookingUp { listed, .. } = &mut job.stage else { return false };
        let listed = listed.take().filter(|listed| listed.home == home);
        let Mail { to, from, lifetime, octets } = job.mail.clone();
        let accepted = now.as_secs() as u32;
        let letter =
            Letter { accepted, to: to.clone(), from: from.clone(), grant: job.grant, octets };
        let listed = listed.unwrap_or(List { home, entries: Vec::new() });
        self.keeping.recall(&to, listed, now + self.config.audit);
        let is_same = self.keeping.bags.get(&to).is_some_and(|bag| bag.home == home);
        let fits = is_same && self.keeping.may_hold(&self.config, &from, &to);
        let Some(bytes) = letter.to_octets().filter(|_| fits) else { return false };
        let (mut id, mut seed) = ([0; 16], [0; 32]);
        random.fill(&mut id);
        random.fill(&mut seed);
        let mut sealed = Vec::with_capacity(bytes.len() + ENVELOPE);
        if !C::seal_for(&key, seed, &bytes, &mut sealed) {
            return false;
        }
        let end = accepted.saturating_add(lifetime);
        let entry = Entry { id, length: sealed.len() as u16, end };
        self.keeping.hold(&to, entry, &from);
        if let Some(job) = self.keeping.jobs.get_mut(&tag) {
            job.stage = Stage::Parts { id, left: (1 << entry.parts()) - 1 };
        }
        let mut parts = (0..).zip(sealed.chunks(PART));
        parts.all(|(number, part)| {
            let draft = ringway_dht::Draft {
                kind: KIND_MAIL_PART,
                name: &part_name(&id, number),
                value: part,
                lifetime,
            };
            self.dht.publish(now, &draft, random).is_ok()
        })
    }

    /// Enough keepers have a part, or could not be reached.
    pub(super) fn stored_part(
        &mut self,
        now: Time,
        name: &[u8],
        is_stored: bool,
        random: &mut dyn Random,
    ) {
        let Some((&number, of)) = name.split_last() else { return };
        let is_it = |job: &Job| matches!(&job.stage, Stage::Parts { id, .. } if id == of);
        let found = self.keeping.jobs.iter_mut().find(|(_, job)| is_it(job));
        let Some((&tag, job)) = found else { return };
        let Stage::Parts { id, left } = &mut job.stage else { return };
        if !is_stored {
            return self.end_job(now, tag, false, random);
        }
        *left &= !1_u8.checked_shl(number.into()).unwrap_or(0);
        if *left > 0 {
            return;
        }
        let (id, to) = (*id, job.mail.to.clone());
        let list = self.keeping.list(&to, &id);
        match list.and_then(|list| self.publish_list(now, &to, &list, random)) {
            Some(version) => {
                if let Some(job) = self.keeping.jobs.get_mut(&tag) {
                    job.stage = Stage::Listing { id, version };
                }
            }
            None => self.end_job(now, tag, false, random),
        }
    }

    /// Enough keepers have the list of messages for a user in a version, or could not be reached.
    pub(super) fn stored_list(
        &mut self,
        now: Time,
        name: &[u8],
        stored: Option<Sequence>,
        random: &mut dyn Random,
    ) {
        let is_ended = |job: &Job| {
            job.mail.to.as_bytes() == name
                && match job.stage {
                    Stage::Listing { version, .. } => stored.is_none_or(|stored| version <= stored),
                    _ => false,
                }
        };
        let jobs = self.keeping.jobs.iter().filter(|(_, job)| is_ended(job));
        let ended: Vec<u64> = jobs.map(|(&tag, _)| tag).collect();
        ended.into_iter().for_each(|tag| self.end_job(now, tag, stored.is_some(), random));
    }

    /// Ends the writing of a message. What is not kept is withdrawn.
    fn end_job(&mut self, now: Time, tag: u64, is_kept: bool, random: &mut dyn Random) {
        let Some(job) = self.keeping.jobs.remove(&tag) else { return };
        let name = &job.mail.to;
        if is_kept {
            self.mail_counters.kept += 1;
            self.remind(now, name);
        } else {
            self.mail_counters.refused += 1;
            if let Some(id) = job.id() {
                self.withdraw_mail(now, name, &id, random);
            }
            // A bag that was made for this message alone.
            self.reschedule(now, name);
        }
        self.notify(Event::Kept { tag, is_kept });
    }

    fn publish_list(
        &mut self,
        now: Time,
        name: &str,
        list: &List,
        random: &mut dyn Random,
    ) -> Option<Sequence> {
        let (kind, name, value) = (KIND_MAIL, name.as_bytes(), &list.to_octets());
        let draft = ringway_dht::Draft { kind, name, value, lifetime: MAX_LIFETIME };
        self.dht.publish(now, &draft, random).ok()
    }

    /// Removes a message, and withdraws its parts.
    fn withdraw_mail(&mut self, now: Time, name: &str, id: &MailId, random: &mut dyn Random) {
        let Some(Held { entry, is_listed, .. }) = self.keeping.remove(name, id) else { return };
        for part in 0..entry.parts() {
            self.withdraw_record(now, KIND_MAIL_PART, &part_name(id, part), random);
        }
        if !is_listed {
            return;
        }
        let list = self.keeping.bags.get(name).map(|bag| bag.list());
        match list.filter(|list| !list.entries.is_empty()) {
            // A name that is published already has room.
            Some(list) => _ = self.publish_list(now, name, &list, random),
            None => self.withdraw_record(now, KIND_MAIL, name.as_bytes(), random),
        }
    }

    /// Withdraws a record, which may be from before this router has started.
    fn withdraw_record(&mut self, now: Time, kind: u8, name: &[u8], random: &mut dyn Random) {
        if !self.dht.withdraw(now, kind, name, random) {
            let draft = ringway_dht::Draft { kind, name, value: &[], lifetime: MAX_LIFETIME };
            // Without room it is there until its lifetime ends.
            _ = self.dht.publish(now, &draft, random);
        }
    }

    /// A home states that its user has a message.
    pub(super) fn taken(
        &mut self,
        now: Time,
        by: Prefix,
        (name, id): (Box<str>, MailId),
        random: &mut dyn Random,
    ) {
        let Some(bag) = self.keeping.bags.get(&name) else {
            let removals = &self.keeping.removals;
            let is_asked = removals.values().any(|removal| removal.name == name);
            let is_full = is_asked || removals.len() >= self.config.mail_jobs;
            if is_full || !is_name(&name) || !self.hints.follow(now, by) {
                return;
            }
            let list = self.dht.look_up_all(now, KIND_MAIL, name.as_bytes(), random);
            let removal = Removal { name, id, by };
            list.into_iter()
                .for_each(|list| _ = self.keeping.removals.insert(list, removal.clone()));
            return;
        };
        if by.contains(bag.home) {
            self.withdraw_mail(now, &name, &id, random);
            self.reschedule(now, &name);
        }
    }

    /// What this router listed before it has started is known again: removes what the home has.
    fn recall(&mut self, now: Time, removal: &Removal, answer: &Answer, random: &mut dyn Random) {
        let Removal { name, id, by } = removal;
        let Answer::Found(records) = answer else { return };
        let Some(list) = own_list(records, self.identity.id()) else { return };
        if by.contains(list.home) {
            self.keeping.recall(name, list, now + self.config.audit);
            self.taken(now, *by, (name.clone(), *id), random);
        }
    }

    /// Sends the home of a user a notice that messages are kept for it.
    fn remind(&mut self, now: Time, name: &str) {
        let Some(home) = self.keeping.bags.get(name).map(|bag| bag.home) else { return };
        if home == self.id() {
            self.expect_mail_as(now, name);
        } else {
            let octets = Private::Mail { name: name.into() }.to_octets();
            self.private.push(PrivateMessage { to: home.prefix(), octets });
        }
        self.reschedule(now, name);
    }

    /// Sets when something is due for the messages of a user: the next reminder, or the end of one.
    fn reschedule(&mut self, now: Time, name: &str) {
        let Some(bag) = self.keeping.bags.get(name) else { return };
        let ends = bag.held.iter().map(|held| Time::from_secs(held.entry.end.into()));
        let due = ends.fold(now + self.config.audit, Time::min);
        self.keeping.schedule(name, due);
    }

    /// Does what is due for messages that this router has kept.
    pub(super) fn keeping_timeout(&mut self, now: Time, random: &mut dyn Random) {
        let patience = self.config.mail_patience;
        let jobs = self.keeping.jobs.iter();
        let ended: Vec<u64> =
            jobs.filter(|(_, job)| job.begun + patience <= now).map(|(&tag, _)| tag).collect();
        ended.into_iter().for_each(|tag| self.end_job(now, tag, false, random));
        while let Some((at, name)) = self.keeping.due.first().cloned()
            && at <= now
        {
            self.keeping.due.remove(&(at, name.clone()));
            let held = self.keeping.bags.get(&name).map_or(&[][..], |bag| &bag.held);
            let is_void = |held: &&Held| u64::from(held.entry.end) <= now.as_secs();
            let void: Vec<MailId> = held.iter().filter(is_void).map(|held| held.entry.id).collect();
            void.iter().for_each(|id| self.withdraw_mail(now, &name, id, random));
            self.remind(now, &name);
        }
    }
}

/// Returns the home of a message for which all has been looked up.
fn ready(job: &Job) -> Option<(NodeId, [u8; KEY])> {
    match job.stage {
        Stage::LookingUp { account: None, list: None, home, .. } => home,
        _ => None,
    }
}

/// Returns the list that a router has signed.
fn own_list(records: &[Record], own: NodeId) -> Option<List> {
    let record = records.iter().find(|record| signer(record) == own)?;
    List::parse(record.value()).ok()
}
