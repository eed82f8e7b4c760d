//! Messages for users of this router: which users are looked for, how far, and what was delivered.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ringway_dht::LookUpId;
use ringway_mesh::NodeId;
use ringway_sansio::Time;
use smallvec::SmallVec;

use super::format::{Entry, Letter, MAX_PARTS, MailId};
use super::{DeliveryId, MailKey};
use crate::config::Config;
use crate::questions::QuestionId;
use crate::resolve::Located;

/// Maximum number of times by which the interval of attempts is doubled.
const MAX_DOUBLED: u32 = 16;

/// The parts of a message that is being put together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    pub look_ups: SmallVec<[Option<LookUpId>; MAX_PARTS]>,
    pub found: SmallVec<[Box<[u8]>; MAX_PARTS]>,
}

/// How far a user's messages are.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Lists are being looked up.
    Lists(LookUpId),
    /// It is asked where the user is.
    Locating(QuestionId),
    /// The first of the queue is being put together.
    Fetching(Parts),
    /// It is asked whether the router that has kept it may send as its sender.
    Sender(QuestionId, Box<Letter>),
    /// The server delivers it.
    Delivering(DeliveryId, Time),
}

/// A user whose messages are being delivered.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    pub step: Step,
    /// Messages that are still to be delivered, by the router that keeps them.
    pub queue: VecDeque<(NodeId, Entry)>,
    /// Where the user is, once it is known.
    pub located: Located,
    /// Whether a list has something.
    pub any: bool,
}

/// When a user is looked for.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    at: Time,
    /// Attempts after which something was left.
    attempts: u32,
}

/// Messages for users of this router.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collecting {
    pub active: BTreeMap<Box<str>, Check>,
    waiting: BTreeMap<Box<str>, Waiting>,
    due: BTreeSet<(Time, Box<str>)>,
    /// When users were last looked for, and what attempt it was.
    begun: BTreeMap<Box<str>, (Time, u32)>,
    /// Messages that were delivered, or are none, until they are void.
    done: BTreeMap<NodeId, BTreeMap<MailId, u32>>,
    count: usize,
    /// Routers that have listed what was not there or is of no use: until when they are left alone, and how often that was so.
    put_off: BTreeMap<NodeId, (Time, u32)>,
    last: u64,
}

impl Collecting {
    /// Has a user looked for at a time, or earlier if that was to be done already. It is done no more often than
    /// `config.mail_pause`.
    pub(crate) fn schedule(&mut self, config: &Config, name: &str, at: Time) {
        let floor =
            self.begun.get(name).map_or(Time::ZERO, |(begun, _)| *begun + config.mail_pause);
        self.insert(name, at.max(floor), 0);
    }

    fn insert(&mut self, name: &str, at: Time, attempts: u32) {
        if let Some(before) = self.waiting.get(name) {
            if before.at <= at {
                return;
            }
            self.due.remove(&(before.at, name.into()));
        }
        self.waiting.insert(name.into(), Waiting { at, attempts });
        self.due.insert((at, name.into()));
    }

    /// Returns when a user was last looked for.
    pub(crate) fn last_begun(&self, name: &str) -> Option<Time> {
        self.begun.get(name).map(|(begun, _)| *begun)
    }

    /// Returns whether a user is to be looked for because something was left.
    pub(crate) fn has_left(&self, name: &str) -> bool {
        self.waiting.get(name).is_some_and(|waiting| waiting.attempts > 0)
    }

    /// Removes and returns a user who is to be looked for now, if there is room.
    pub(crate) fn next(&mut self, now: Time, config: &Config) -> Option<Box<str>> {
        if self.active.len() >= config.mail_checks {
            return None;
        }
        let (at, name) = self.due.first().filter(|(at, _)| *at <= now).cloned()?;
        self.due.remove(&(at, name.clone()));
        let waiting = self.waiting.remove(&name)?;
        if self.active.contains_key(&name) {
            // What has changed meanwhile is seen afterwards.
            self.insert(&name, now + config.mail_pause, waiting.attempts);
            return None;
        }
        // Whoever was looked for long ago may be looked for again at once.
        let age = config.mail_longest;
        if self.begun.len() >= config.mail_checks * 32 {
            self.begun.retain(|_, (begun, _)| now.since(*begun) < age);
        }
        self.begun.insert(name.clone(), (now, waiting.attempts));
        Some(name)
    }

    /// Ends the look for a user. If something is left it is begun again after a time that grows.
    pub(crate) fn end(&mut self, now: Time, config: &Config, name: &str, is_left: bool) {
        self.active.remove(name);
        if is_left {
            let attempts = self.begun.get(name).map_or(0, |(_, attempts)| *attempts);
            let wait = config.mail_pause * (1 << attempts.min(MAX_DOUBLED));
            self.insert(name, now + wait.min(config.mail_longest), attempts + 1);
        }
    }

    /// Returns whether what a router lists is left alone for now.
    pub(crate) fn is_put_off(&self, now: Time, router: NodeId) -> bool {
        self.put_off.get(&router).is_some_and(|(until, _)| now < *until)
    }

    /// Leaves alone what a router lists, each time for twice as long.
    pub(crate) fn put_off(&mut self, now: Time, config: &Config, router: NodeId) {
        let times = self.put_off.get(&router).map_or(0, |(_, times)| *times);
        let wait = config.mail_pause * (1 << times.min(MAX_DOUBLED));
        if self.put_off.len() >= config.origins && !self.put_off.contains_key(&router) {
            let first = self.put_off.iter().min_by_key(|(_, (until, _))| *until);
            first.map(|(&router, _)| router).map(|router| self.put_off.remove(&router));
        }
        self.put_off.insert(router, (now + wait.min(config.mail_longest), times + 1));
    }

    /// A message that a router has kept was delivered.
    pub(crate) fn forgive(&mut self, router: NodeId) {
        self.put_off.remove(&router);
    }

    /// Returns the number of the next delivery.
    pub(crate) fn next_delivery(&mut self) -> DeliveryId {
        self.last += 1;
        DeliveryId(self.last)
    }

    /// Returns the user whose check waits for something.
    pub(crate) fn find(&self, is_it: impl Fn(&Step) -> bool) -> Option<Box<str>> {
        self.active.iter().find(|(_, check)| is_it(&check.step)).map(|(name, _)| name.clone())
    }

    /// Returns the user whose check waits for the answer to a question.
    pub(crate) fn of_question(&self, id: QuestionId) -> Option<Box<str>> {
        self.find(|step| matches!(step, Step::Locating(of) | Step::Sender(of, _) if *of == id))
    }

    /// Returns whether a message is done with.
    pub(crate) fn is_done(&self, (router, id): &MailKey) -> bool {
        self.done.get(router).is_some_and(|done| done.contains_key(id))
    }

    /// Remembers that a message is done with. If there are too many, the router with most of them loses the one that is void
    /// first.
    pub(crate) fn note_done(&mut self, now: Time, config: &Config, key: MailKey, end: u32) {
        if self.count >= config.mail_done {
            self.forget(now);
        }
        if self.count >= config.mail_done
            && let Some(done) = self.done.values_mut().max_by_key(|done| done.len())
            && let Some(id) = done.iter().min_by_key(|(_, end)| **end).map(|(id, _)| *id)
        {
            done.remove(&id);
            self.count -= 1;
        }
        let (router, id) = key;
        self.count += usize::from(self.done.entry(router).or_default().insert(id, end).is_none());
    }

    /// Forgets messages that are void.
    fn forget(&mut self, now: Time) {
        self.done.retain(|_, done| {
            done.retain(|_, end| u64::from(*end) > now.as_secs());
            !done.is_empty()
        });
        self.count = self.done.values().map(BTreeMap::len).sum();
    }

    /// Returns when something is due.
    pub(crate) fn poll_timeout(&self, config: &Config) -> Option<Time> {
        let until = |check: &Check| match check.step {
            Step::Delivering(_, until) => Some(until),
            _ => None,
        };
        let has_room = self.active.len() < config.mail_checks;
        let next = self.due.first().map(|&(at, _)| at).filter(|_| has_room);
        self.active.values().filter_map(until).chain(next).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_sansio::time::Duration;

    const ALICE: &str = "alice@mesh";

    #[test]
    fn a_router_with_many_messages_displaces_its_own() {
        let config = Config { mail_done: 10, ..Config::default() };
        let mut collecting = Collecting::default();
        let (now, honest, hostile) = (Time::from_secs(5), NodeId::new(1), NodeId::new(2));
        collecting.note_done(now, &config, (honest, [0; 16]), 100);
        for number in 0..50 {
            collecting.note_done(now, &config, (hostile, [number; 16]), 100 + u32::from(number));
        }
        assert!(collecting.is_done(&(honest, [0; 16])) && collecting.is_done(&(hostile, [49; 16])));
        assert!(!collecting.is_done(&(hostile, [0; 16])));
        assert_eq!(collecting.count, 10);
        collecting.note_done(Time::from_secs(500), &config, (honest, [1; 16]), 600);
        assert_eq!(collecting.count, 1);
    }

    /// A router that lists what is not there is left alone for longer each time, and others are not.
    #[test]
    fn a_router_that_lists_nothing_of_use_is_put_off() {
        let (config, mut now) = (Config::default(), Time::from_secs(1_000));
        let (hostile, honest) = (NodeId::new(1), NodeId::new(2));
        let mut collecting = Collecting::default();
        let mut waits = Vec::new();
        for _ in 0..12 {
            collecting.put_off(now, &config, hostile);
            assert!(collecting.is_put_off(now, hostile) && !collecting.is_put_off(now, honest));
            let (until, _) = collecting.put_off[&hostile];
            waits.push(until - now);
            now = until;
            assert!(!collecting.is_put_off(now, hostile));
        }
        assert_eq!(waits[..3], [5, 10, 20].map(Duration::from_secs));
        assert_eq!(waits[11], config.mail_longest);
        collecting.put_off(now, &config, honest);
        collecting.forgive(honest);
        assert!(!collecting.is_put_off(now, honest));
    }

    /// However often a router hints, a user is looked for at most once in an interval, and what is left is tried less and
    /// less often.
    #[test]
    fn a_user_is_looked_for_with_pauses() {
        let (config, start) = (Config::default(), Time::from_secs(1_000));
        let mut collecting = Collecting::default();
        collecting.schedule(&config, ALICE, start);
        assert!(collecting.next(start, &config).is_some());
        collecting.end(start, &config, ALICE, false);
        for _ in 0..100 {
            collecting.schedule(&config, ALICE, start);
        }
        assert!(collecting.next(start, &config).is_none());
        let mut now = start + config.mail_pause;
        let (mut gaps, mut begun) = (Vec::new(), now);
        for _ in 0..12 {
            assert!(collecting.next(now, &config).is_some());
            collecting.end(now, &config, ALICE, true);
            let next = collecting.poll_timeout(&config).unwrap();
            gaps.push(next - now);
            (begun, now) = (now, next);
        }
        assert_eq!(gaps[..3], [5, 10, 20].map(Duration::from_secs));
        assert_eq!(gaps[11], config.mail_longest);
        // A hint is heard at once nevertheless.
        assert!(collecting.has_left(ALICE));
        let middle = begun + config.mail_longest / 2;
        collecting.schedule(&config, ALICE, middle);
        assert!(collecting.next(middle, &config).is_some());
    }
}
