//! Messages that this router has kept by others: those that are being written, and what is listed for each recipient.

use std::collections::{BTreeMap, BTreeSet};

use ringway_dht::LookUpId;
use ringway_mesh::id::Sequence;
use ringway_mesh::identity::KEY;
use ringway_mesh::{NodeId, Prefix};
use ringway_sansio::Time;

use super::Mail;
use super::format::{Entry, List, MAX_LISTED, MailId};
use crate::config::Config;
use crate::statement::Grant;

/// The divisor of the free room that one sender may hold.
const PART_OF_FREE: usize = 4;

/// How far a message is.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    /// The key of the recipient's home is being looked up, and what this router listed before it started.
    LookingUp {
        account: Option<LookUpId>,
        home: Option<(NodeId, [u8; KEY])>,
        list: Option<LookUpId>,
        listed: Option<List>,
    },
    /// Keepers are asked to keep its parts; bits of those that are not kept yet.
    Parts { id: MailId, left: u8 },
    /// Keepers are asked to keep the list, in this version or a later one.
    Listing { id: MailId, version: Sequence },
}

/// A message that is being written.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub mail: Mail,
    pub grant: Option<Grant>,
    pub begun: Time,
    pub stage: Stage,
}

impl Job {
    /// Returns the number of the message, once it has one.
    pub(crate) fn id(&self) -> Option<MailId> {
        match self.stage {
            Stage::LookingUp { .. } => None,
            Stage::Parts { id, .. } | Stage::Listing { id, .. } => Some(id),
        }
    }
}

/// A message that keepers have, or are to have.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub entry: Entry,
    /// The sender; none of a message from before this router started.
    pub from: Option<Box<str>>,
    pub is_listed: bool,
}

/// The messages for one recipient.
#[derive(Clone, Debug)]
pub(crate) struct Bag {
    pub home: NodeId,
    pub held: Vec<Held>,
    /// When something is due: messages are void, or the home is reminded.
    pub due: Time,
}

impl Bag {
    /// Returns the list for the keepers.
    pub(crate) fn list(&self) -> List {
        let listed = self.held.iter().filter(|held| held.is_listed).map(|held| held.entry);
        List { home: self.home, entries: listed.collect() }
    }
}

/// What a home has delivered of a list that this router does not remember.
#[derive(Clone, Debug)]
pub(crate) struct Removal {
    pub name: Box<str>,
    pub id: MailId,
    pub by: Prefix,
}

/// Messages that this router has kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keeping {
    pub jobs: BTreeMap<u64, Job>,
    pub bags: BTreeMap<Box<str>, Bag>,
    /// Bags by the time at which something is due.
    pub due: BTreeSet<(Time, Box<str>)>,
    pub removals: BTreeMap<LookUpId, Removal>,
    /// Messages in all bags.
    count: usize,
    /// Of these, those of each sender.
    senders: BTreeMap<Box<str>, usize>,
}

impl Keeping {
    /// Returns the number of messages.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Returns whether a sender may have one more message for a recipient written.
    pub(crate) fn has_room(&self, config: &Config, from: &str, to: &str) -> bool {
        let free = config.mail_jobs.saturating_sub(self.jobs.len());
        let own = self.jobs.values().filter(|job| *job.mail.from == *from).count();
        own < free.div_ceil(PART_OF_FREE) && self.may_hold(config, from, to)
    }

    /// Returns whether a sender may have one more message for a recipient kept.
    pub(crate) fn may_hold(&self, config: &Config, from: &str, to: &str) -> bool {
        let free = config.mail.saturating_sub(self.count);
        let own = self.senders.get(from).copied().unwrap_or(0);
        let held = self.bags.get(to).map_or(&[][..], |bag| &bag.held);
        let of_sender = held.iter().filter(|held| held.from.as_deref() == Some(from)).count();
        own < free.div_ceil(PART_OF_FREE).min(config.mail_of_sender)
            && held.len() < MAX_LISTED
            && of_sender < config.mail_of_sender_to_one
    }

    /// Takes what was listed for a recipient before, unless that is known.
    pub(crate) fn recall(&mut self, name: &str, list: List, due: Time) {
        if self.bags.contains_key(name) {
            return;
        }
        let held = |entry| Held { entry, from: None, is_listed: true };
        let held: Vec<Held> = list.entries.into_iter().map(held).collect();
        self.count += held.len();
        self.bags.insert(name.into(), Bag { home: list.home, held, due });
        self.due.insert((due, name.into()));
    }

    /// Adds a message that is not listed yet to the bag of its recipient.
    pub(crate) fn hold(&mut self, name: &str, entry: Entry, from: &str) {
        let Some(bag) = self.bags.get_mut(name) else { return };
        bag.held.push(Held { entry, from: Some(from.into()), is_listed: false });
        self.count += 1;
        *self.senders.entry(from.into()).or_default() += 1;
    }

    /// Lists a message. Returns the list with it.
    pub(crate) fn list(&mut self, name: &str, id: &MailId) -> Option<List> {
        let bag = self.bags.get_mut(name)?;
        let held = bag.held.iter_mut().find(|held| held.entry.id == *id)?;
        held.is_listed = true;
        Some(bag.list())
    }

    /// Removes a message. Returns it.
    pub(crate) fn remove(&mut self, name: &str, id: &MailId) -> Option<Held> {
        let bag = self.bags.get_mut(name)?;
        let at = bag.held.iter().position(|held| held.entry.id == *id)?;
        let held = bag.held.remove(at);
        self.count -= 1;
        if let Some(from) = &held.from
            && let Some(count) = self.senders.get_mut(from)
        {
            *count -= 1;
            if *count == 0 {
                self.senders.remove(from);
            }
        }
        Some(held)
    }

    /// Sets when something is due for a bag; one without messages is removed.
    pub(crate) fn schedule(&mut self, name: &str, due: Time) {
        let Some(bag) = self.bags.get_mut(name) else { return };
        self.due.remove(&(bag.due, name.into()));
        if bag.held.is_empty() {
            self.bags.remove(name);
        } else {
            bag.due = due;
            self.due.insert((due, name.into()));
        }
    }

    /// Returns when something is due.
    pub(crate) fn poll_timeout(&self, config: &Config) -> Option<Time> {
        let jobs = self.jobs.values().map(|job| job.begun + config.mail_patience);
        jobs.chain(self.due.first().map(|&(at, _)| at)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: u8) -> Entry {
        Entry { id: [id; 16], length: 100, end: 9_000 }
    }

    #[test]
    fn a_sender_holds_a_share_of_the_room_and_few_messages_for_one_recipient() {
        let config = Config::default();
        let mut keeping = Keeping::default();
        let mut added = 0;
        for number in 0..100 {
            let name = format!("user{number}@mesh");
            keeping.recall(&name, List::default(), Time::ZERO);
            for _ in 0..10 {
                if keeping.has_room(&config, "hog@mesh", &name) {
                    keeping.hold(&name, entry(number), "hog@mesh");
                    added += 1;
                }
            }
        }
        assert_eq!(added, config.mail_of_sender);
        assert_eq!(keeping.bags["user0@mesh"].held.len(), config.mail_of_sender_to_one);
        assert!(keeping.has_room(&config, "bob@mesh", "user0@mesh"));
    }

    #[test]
    fn many_senders_leave_room_for_one_more() {
        let config = Config { mail: 40, ..Config::default() };
        let mut keeping = Keeping::default();
        for number in 0..100u8 {
            let name = format!("user{number}@mesh");
            keeping.recall(&name, List::default(), Time::ZERO);
            let from = format!("hog{}@mesh", number / 50);
            if keeping.has_room(&config, &from, &name) {
                keeping.hold(&name, entry(number), &from);
            }
        }
        assert!(keeping.len() < 20, "{}", keeping.len());
        assert!(keeping.has_room(&config, "bob@mesh", "user0@mesh"));
    }

    #[test]
    fn what_is_removed_leaves_nothing() {
        let (config, mut keeping) = (Config::default(), Keeping::default());
        keeping.recall("alice@mesh", List::default(), Time::ZERO);
        keeping.hold("alice@mesh", entry(1), "bob@mesh");
        assert!(keeping.bags["alice@mesh"].list().entries.is_empty());
        assert_eq!(keeping.list("alice@mesh", &[1; 16]).map(|list| list.entries.len()), Some(1));
        assert!(keeping.remove("alice@mesh", &[2; 16]).is_none());
        assert!(keeping.remove("alice@mesh", &[1; 16]).is_some());
        keeping.schedule("alice@mesh", Time::from_secs(1));
        assert!(keeping.bags.is_empty() && keeping.due.is_empty() && keeping.senders.is_empty());
        assert_eq!((keeping.len(), keeping.poll_timeout(&config)), (0, None));
    }
}
