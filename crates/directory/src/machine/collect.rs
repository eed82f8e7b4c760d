//! Messages for users of this router: they are looked for when a user is registered somewhere, and delivered one by one.

use ringway_dht::{Answer, LookUpId, Record};
use ringway_mesh::crypto::Crypto;
use ringway_mesh::{NodeId, Prefix};
use ringway_sansio::time::Duration;
use ringway_sansio::{Random, Time};
use smallvec::smallvec;

use super::{Asker, Directory, Event, signer};
use crate::config::{KIND_MAIL, KIND_MAIL_PART};
use crate::mail::collecting::{Check, Parts, Step};
use crate::mail::format::{Entry, Letter, List, part_name};
use crate::mail::{Delivery, DeliveryId, MailKey};
use crate::private::{Private, PrivateMessage};
use crate::questions::{QuestionId, Whereabouts, records_of};
use crate::resolve::Located;
use crate::statement::{marked, unmarked};

/// Time after a proof of a password at another router in which the registration there is made known.
const REGISTERING: Duration = Duration::from_secs(3);
/// Time for which a user who has no messages is not looked for only because of another proof of the password.
const QUIET: Duration = Duration::from_secs(300);

impl<C: Crypto> Directory<C> {
    /// Reports what became of a message: whether the recipient has it, or has refused it for good. Otherwise it is tried
    /// again.
    pub fn delivered(&mut self, now: Time, id: DeliveryId, is_done: bool, random: &mut dyn Random) {
        let is_it = |step: &Step| matches!(step, Step::Delivering(of, _) if *of == id);
        let Some(name) = self.collecting.find(is_it) else { return };
        if is_done {
            self.mail_counters.delivered += 1;
            self.done_with_first(now, &name, true, random);
        } else {
            self.collecting.end(now, &self.config, &name, true);
        }
        self.settle(now, random);
    }

    /// A user has become registered here.
    pub(super) fn user_came(&mut self, now: Time, name: &[u8]) {
        if let Ok(name) = core::str::from_utf8(name) {
            self.expect_mail(name, now);
        }
    }

    /// A user of this router has proved at another one to know the password, and may be registered there soon.
    pub(super) fn user_proved(&mut self, now: Time, name: &str) {
        let last = self.collecting.last_begun(name);
        if self.collecting.has_left(name) || last.is_none_or(|last| now.since(last) >= QUIET) {
            self.expect_mail(name, now + REGISTERING);
        }
    }

    /// Another router keeps messages for a name.
    pub(super) fn hear_of_mail(&mut self, now: Time, from: Prefix, name: &str) {
        if self.own_name(name).is_some() && self.hints.follow(now, from) {
            self.expect_mail_as(now, name);
        }
    }

    /// Has messages for a user of this router looked for, who is known by any of two names.
    pub(super) fn expect_mail_as(&mut self, now: Time, name: &str) {
        if let Some(name) = self.own_name(name) {
            self.expect_mail(&name, now);
        }
    }

    /// Returns the name without a mark of a user of this router.
    fn own_name(&self, name: &str) -> Option<Box<str>> {
        let unmarked = unmarked(name, self.id()).filter(|name| self.accounts.is_own(name));
        let name: Box<str> = unmarked.map_or_else(|| name.into(), Into::into);
        self.accounts.is_own(&name).then_some(name)
    }

    /// Has messages for a user of this router looked for, by each name that the user has.
    fn expect_mail(&mut self, name: &str, at: Time) {
        let Some(own) = self.accounts.own.get(name) else { return };
        let marked = own.is_marked.then(|| marked(name, self.identity.id()));
        for name in core::iter::once(name).chain(marked.as_deref()) {
            self.collecting.schedule(&self.config, name, at);
        }
    }

    /// Does what is due for messages of users of this router.
    pub(super) fn collecting_timeout(&mut self, now: Time, random: &mut dyn Random) {
        let is_late = |step: &Step| matches!(step, Step::Delivering(_, until) if *until <= now);
        while let Some(name) = self.collecting.find(is_late) {
            self.collecting.end(now, &self.config, &name, true);
        }
        while let Some(name) = self.collecting.next(now, &self.config) {
            match self.dht.look_up_all(now, KIND_MAIL, name.as_bytes(), random) {
                Some(id) => {
                    let (queue, located) = (Default::default(), Located::default());
                    let check = Check { step: Step::Lists(id), queue, located, any: false };
                    self.collecting.active.insert(name, check);
                }
                None => self.collecting.end(now, &self.config, &name, true),
            }
        }
    }

    /// Handles the answer to a look-up for messages of users here. Returns whether it was one.
    pub(super) fn collecting_answered(
        &mut self,
        now: Time,
        id: LookUpId,
        answer: &Answer,
        random: &mut dyn Random,
    ) -> bool {
        let is_it = |step: &Step| match step {
            Step::Lists(of) => *of == id,
            Step::Fetching(parts) => parts.look_ups.contains(&Some(id)),
            _ => false,
        };
        let Some(name) = self.collecting.find(is_it) else { return false };
        let records = records_of(answer.clone());
        let Some(check) = self.collecting.active.get_mut(&name) else { return true };
        match (&mut check.step, records) {
            (Step::Lists(_), None) => self.collecting.end(now, &self.config, &name, true),
            (Step::Lists(_), Some(records)) => self.found_lists(now, &name, &records, random),
            (Step::Fetching(parts), records) => {
                let router = check.queue.front().map(|(router, _)| *router);
                let records = records.unwrap_or_default();
                let found = records.iter().find(|record| Some(signer(record)) == router);
                let at = parts.look_ups.iter().position(|look_up| *look_up == Some(id));
                match (found, at) {
                    (Some(record), Some(at)) => {
                        parts.look_ups[at] = None;
                        parts.found[at] = record.value().into();
                        if parts.look_ups.iter().all(Option::is_none) {
                            let sealed = parts.found.concat();
                            self.found_message(now, &name, &sealed, random);
                        }
                    }
                    _ => self.put_off(now, &name, random),
                }
            }
            _ => {}
        }
        true
    }

    /// Takes all messages for a user that any router lists.
    fn found_lists(&mut self, now: Time, name: &str, records: &[Record], random: &mut dyn Random) {
        let own = self.id();
        let lists = records.iter().filter_map(|record| {
            let list = List::parse(record.value()).ok()?;
            (list.home == own).then_some((signer(record), list.entries))
        });
        let is_valid = |entry: &Entry| u64::from(entry.end) > now.as_secs();
        let mut listed: Vec<(usize, NodeId, Entry)> = lists
            .flat_map(|(router, entries)| {
                let entries = entries.into_iter().filter(is_valid).enumerate();
                entries.map(move |(at, entry)| (at, router, entry))
            })
            .collect();
        // Those of one router in their order, and one of each router in turn.
        listed.sort_by_key(|&(at, ..)| at);
        let Some(check) = self.collecting.active.get_mut(name) else { return };
        check.any = !listed.is_empty();
        listed.retain(|&(_, router, _)| !self.collecting.is_put_off(now, router));
        for (_, router, entry) in listed {
            if self.collecting.is_done(&(router, entry.id)) {
                // That router has not heard so.
                self.send_taken(now, name, (router, entry.id), random);
            } else if let Some(check) = self.collecting.active.get_mut(name) {
                check.queue.push_back((router, entry));
            }
        }
        let Some(check) = self.collecting.active.get_mut(name) else { return };
        if check.queue.is_empty() {
            let any = check.any;
            return self.collecting.end(now, &self.config, name, any);
        }
        let mut asker = Asker { dht: &mut self.dht, now, random };
        match self.questions.ask(now, &self.config, name, &mut asker) {
            Some(id) => check.step = Step::Locating(id),
            None => self.collecting.end(now, &self.config, name, true),
        }
    }

    /// Handles the answer to a question about a user, if it was asked because of messages. Returns whether it was.
    pub(super) fn collecting_located(
        &mut self,
        now: Time,
        id: QuestionId,
        whereabouts: &Whereabouts,
        random: &mut dyn Random,
    ) -> bool {
        let Some(name) = self.collecting.of_question(id) else { return false };
        let Some(check) = self.collecting.active.get_mut(&name) else { return true };
        match (&check.step, whereabouts) {
            (Step::Locating(_), Whereabouts::Found(located)) if !located.routers.is_empty() => {
                check.located = located.clone();
                self.fetch_first(now, &name, random);
            }
            (Step::Sender(_, letter), whereabouts) => {
                let letter = letter.clone();
                self.found_sender(now, &name, &letter, whereabouts, random);
            }
            _ => self.collecting.end(now, &self.config, &name, true),
        }
        true
    }

    /// Begins to put the first message of the queue together.
    fn fetch_first(&mut self, now: Time, name: &str, random: &mut dyn Random) {
        let Some(check) = self.collecting.active.get_mut(name) else { return };
        let Some((_, entry)) = check.queue.front() else {
            let any = check.any;
            return self.collecting.end(now, &self.config, name, any);
        };
        let mut parts = Parts::default();
        for part in 0..entry.parts() {
            let name = part_name(&entry.id, part);
            parts.look_ups.push(self.dht.look_up_all(now, KIND_MAIL_PART, &name, random));
        }
        if parts.look_ups.contains(&None) {
            return self.collecting.end(now, &self.config, name, true);
        }
        parts.found = smallvec![Box::default(); parts.look_ups.len()];
        check.step = Step::Fetching(parts);
    }

    /// Leaves what the router keeps that keeps the first message of the queue for a later attempt: one that lists what is not
    /// there could have this one look for it without end.
    fn put_off(&mut self, now: Time, name: &str, random: &mut dyn Random) {
        let Some(check) = self.collecting.active.get_mut(name) else { return };
        if let Some(&(router, _)) = check.queue.front() {
            check.queue.retain(|&(of, _)| of != router);
            self.collecting.put_off(now, &self.config, router);
        }
        self.fetch_first(now, name, random);
    }

    /// The first message of the queue is delivered, or is none.
    fn done_with_first(&mut self, now: Time, name: &str, is_taken: bool, random: &mut dyn Random) {
        let first = self.collecting.active.get(name).and_then(|check| check.queue.front());
        let Some(&(router, entry)) = first else { return };
        let key = (router, entry.id);
        self.collecting.note_done(now, &self.config, key, entry.end);
        if !is_taken {
            self.mail_counters.invalid += 1;
            return self.put_off(now, name, random);
        }
        self.collecting.forgive(router);
        self.send_taken(now, name, key, random);
        if let Some(check) = self.collecting.active.get_mut(name) {
            check.queue.pop_front();
        }
        self.fetch_first(now, name, random);
    }

    fn send_taken(
        &mut self,
        now: Time,
        name: &str,
        (router, id): MailKey,
        random: &mut dyn Random,
    ) {
        let own: Prefix = self.id().prefix();
        if router == self.id() {
            return self.taken(now, own, (name.into(), id), random);
        }
        let octets = Private::Taken { id, name: name.into() }.to_octets();
        self.private.push(PrivateMessage { to: router.prefix(), octets });
    }

    /// Opens a message, and asks who its sender is.
    fn found_message(&mut self, now: Time, name: &str, sealed: &[u8], random: &mut dyn Random) {
        let first = self.collecting.active.get(name).and_then(|check| check.queue.front());
        let Some(&(_, entry)) = first else { return };
        let letter = C::open_sealed(&self.identity, sealed).filter(|_| {
            // What the list states is not covered by the seal.
            sealed.len() == usize::from(entry.length)
        });
        let letter = letter.and_then(|bytes| Letter::parse(&bytes).ok());
        let latest =
            |letter: &Letter| letter.accepted.saturating_add(ringway_dht::config::MAX_LIFETIME);
        let letter = letter.filter(|letter| *letter.to == *name && entry.end <= latest(letter));
        let Some(letter) = letter else { return self.done_with_first(now, name, false, random) };
        let mut asker = Asker { dht: &mut self.dht, now, random };
        let asked = self.questions.ask(now, &self.config, &letter.from, &mut asker);
        match (asked, self.collecting.active.get_mut(name)) {
            (Some(id), Some(check)) => check.step = Step::Sender(id, Box::new(letter)),
            _ => self.collecting.end(now, &self.config, name, true),
        }
    }

    /// The home of the sender is known: has the message delivered, if the router that keeps it may send as the sender.
    fn found_sender(
        &mut self,
        now: Time,
        name: &str,
        letter: &Letter,
        whereabouts: &Whereabouts,
        random: &mut dyn Random,
    ) {
        let home = match whereabouts {
            Whereabouts::Found(located) => located.home.as_ref(),
            Whereabouts::Unavailable => self.questions.home(&letter.from),
        };
        let Some(home) = home.cloned() else { return self.put_off(now, name, random) };
        let bits = self.config.dht.extension_bits;
        let Some(check) = self.collecting.active.get_mut(name) else { return };
        let Some(&(router, _)) = check.queue.front() else { return };
        let may_send = router == home.router
            || letter.grant.is_some_and(|grant| {
                !grant.has_ended(Time::from_secs(letter.accepted.into()))
                    && grant.is_of::<C>((home.router, &home.account), &letter.from, router, bits)
            });
        if !may_send {
            return self.done_with_first(now, name, false, random);
        }
        let located = check.located.clone();
        let id = self.collecting.next_delivery();
        if let Some(check) = self.collecting.active.get_mut(name) {
            check.step = Step::Delivering(id, now + self.config.mail_outcome);
        }
        let (to, accepted) = (name.into(), letter.accepted);
        let (from, octets) = (letter.from.clone(), letter.octets.clone());
        self.notify(Event::Deliver(Delivery { id, to, from, accepted, located, octets }));
    }
}
