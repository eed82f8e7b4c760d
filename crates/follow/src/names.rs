//! The names that are watched here, and when it is asked where each of them is registered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ringway_sansio::time::sooner;
use ringway_sansio::{Duration, Time};

use super::agenda::{Agenda, Pace};
use super::limits::{
    LOCATE_AGAIN, LOCATE_FIRST, MAX_NAMES, MAX_SERVERS_OF_NAME, MOVE_DELAY, MOVE_INTERVAL, Rate,
};
use super::server::ServerId;

/// A user with its domain.
pub(super) type Name = Arc<str>;

/// Names that are located at a time.
const MAX_ASKED: usize = 32;
/// Time after which a question counts as unanswered.
const PATIENCE: Duration = Duration::from_secs(15);

#[derive(Debug)]
struct Watched<I> {
    servers: BTreeSet<I>,
    /// When it was located last.
    located: Option<Time>,
    /// The shortest time from one question to the next.
    pause: Duration,
    /// When it is located again, though it is being located: it may have moved since.
    again: Option<Time>,
}

/// What an answer changes.
#[derive(Debug)]
pub(super) struct Moved<I> {
    pub(super) added: Vec<I>,
    pub(super) removed: Vec<I>,
}

impl<I> Default for Moved<I> {
    fn default() -> Self {
        Moved { added: Vec::new(), removed: Vec::new() }
    }
}

#[derive(Debug)]
pub(super) struct Names<I> {
    watched: BTreeMap<Name, Watched<I>>,
    /// When each name was added that was never located.
    new: Agenda<Name>,
    /// When each other name that is not being located is to be.
    due: Agenda<Name>,
    /// Counts the names that were located.
    turn: u8,
    /// When each question counts as unanswered.
    asked: Agenda<Name>,
    unanswered: usize,
    pace: Pace,
}

impl<I: ServerId> Names<I> {
    pub(super) fn new(rate: Rate) -> Self {
        Names {
            watched: BTreeMap::new(),
            new: Agenda::default(),
            turn: 0,
            due: Agenda::default(),
            asked: Agenda::default(),
            unanswered: 0,
            pace: Pace::new(rate),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.watched.len()
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.watched.contains_key(name)
    }

    /// Adds a name. Returns whether there was room.
    pub(super) fn add(&mut self, now: Time, name: &str) -> bool {
        if self.watched.contains_key(name) {
            return true;
        }
        if self.watched.len() >= MAX_NAMES {
            return false;
        }
        let name: Name = name.into();
        self.new.set(&name, Some(now));
        let (servers, pause) = (BTreeSet::new(), LOCATE_FIRST);
        let watched = Watched { servers, located: None, pause, again: None };
        self.watched.insert(name, watched);
        true
    }

    /// Removes a name. Returns the servers at which its user is registered.
    pub(super) fn remove(&mut self, name: &str) -> Option<(Name, BTreeSet<I>)> {
        let (name, watched) = self.watched.remove_entry(name)?;
        self.new.set(&name, None);
        self.due.set(&name, None);
        if self.asked.contains(&name) {
            self.asked.set(&name, None);
            self.unanswered -= 1;
        }
        Some((name, watched.servers))
    }

    /// Has a name be located as soon as its pause allows.
    pub(super) fn locate_soon(&mut self, now: Time, name: &Name) {
        let Some(watched) = self.watched.get(name) else { return };
        if self.asked.contains(name) || self.new.contains(name) {
            return;
        }
        let at = watched.located.map_or(now, |located| now.max(located + watched.pause));
        self.due.sooner(name, at);
    }

    /// A name has moved, as it is reported.
    pub(super) fn moved(&mut self, now: Time, name: &str) {
        let Some((name, _)) = self.watched.get_key_value(name) else { return };
        self.locate_at(&name.clone(), now + MOVE_DELAY);
    }

    /// All names may have moved.
    pub(super) fn may_have_moved(&mut self, now: Time) {
        let names: Vec<Name> = self.watched.keys().cloned().collect();
        names.iter().for_each(|name| self.locate_at(name, now));
    }

    /// Has a name be located at a time, or as soon after it as it may be again.
    fn locate_at(&mut self, name: &Name, at: Time) {
        let Some(watched) = self.watched.get_mut(name) else { return };
        watched.pause = LOCATE_FIRST;
        let at = watched.located.map_or(at, |located| at.max(located + MOVE_INTERVAL));
        if self.asked.contains(name) {
            watched.again = Some(at);
        } else if !self.new.contains(name) {
            self.due.sooner(name, at);
        }
    }

    /// A server is gone. Returns whether the name was there.
    pub(super) fn drop_server(&mut self, name: &Name, server: I) -> bool {
        self.watched.get_mut(name).is_some_and(|watched| watched.servers.remove(&server))
    }

    /// Returns a name that is to be located now.
    pub(super) fn poll_locate(&mut self, now: Time) -> Option<Name> {
        while let Some(name) = self.asked.pop(now) {
            self.unanswered -= 1;
            self.settle(now, &name, false);
        }
        if self.unanswered >= MAX_ASKED || self.pace.available(now) == 0 {
            return None;
        }
        // More may be due again than are located in time: new ones do not wait for them, and leave them every fourth turn.
        let [first, second] = match self.turn % 4 {
            3 => [&mut self.due, &mut self.new],
            _ => [&mut self.new, &mut self.due],
        };
        let name = first.pop(now).or_else(|| second.pop(now))?;
        self.turn = self.turn.wrapping_add(1);
        self.pace.take(now);
        self.unanswered += 1;
        self.asked.set(&name, Some(now + PATIENCE));
        if let Some(watched) = self.watched.get_mut(&name) {
            watched.located = Some(now);
        }
        Some(name)
    }

    /// Takes the servers at which a user is registered; `None` if that could not be found out. `own` is this server.
    pub(super) fn located(
        &mut self,
        name: &str,
        servers: Option<&[I]>,
        own: I,
    ) -> Option<(Name, Moved<I>)> {
        let (name, _) = self.watched.get_key_value(name)?;
        let name = name.clone();
        if self.asked.contains(&name) {
            self.asked.set(&name, None);
            self.unanswered -= 1;
        }
        let watched = self.watched.get_mut(&name)?;
        let Some(servers) = servers else { return Some((name, Moved::default())) };
        let servers = servers.iter().copied().filter(|server| *server != own);
        let servers: BTreeSet<I> = servers.take(MAX_SERVERS_OF_NAME).collect();
        let moved = Moved {
            added: servers.difference(&watched.servers).copied().collect(),
            removed: watched.servers.difference(&servers).copied().collect(),
        };
        watched.servers = servers;
        Some((name, moved))
    }

    /// Sets when a name is located again: `is_settled` is whether its user is registered somewhere, and all servers there
    /// say so.
    pub(super) fn settle(&mut self, now: Time, name: &Name, is_settled: bool) {
        let Some(watched) = self.watched.get_mut(name) else { return };
        let pause = if is_settled { LOCATE_AGAIN } else { watched.pause };
        watched.pause = match is_settled {
            true => LOCATE_FIRST,
            false => (watched.pause * 2).min(LOCATE_AGAIN),
        };
        let again = watched.again.take();
        self.due.set(name, Some(now + pause));
        if let Some(again) = again {
            self.due.sooner(name, again);
        }
    }

    pub(super) fn servers(&self, name: &str) -> impl Iterator<Item = I> {
        self.watched.get(name).into_iter().flat_map(|watched| watched.servers.iter().copied())
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let due = sooner(self.new.first(), self.due.first());
        let due = due.filter(|_| self.unanswered < MAX_ASKED);
        sooner(self.asked.first(), due.map(|due| due.max(self.pace.next())))
    }
}
