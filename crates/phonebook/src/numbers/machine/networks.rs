//! Creating a network, changing over to an older one, and being expelled from one.

use std::collections::BTreeMap;

use ringway_sansio::Random;
use ringway_sansio::time::Time;

use super::transfer::Asks;
use super::{Event, Numbers, Waiting};
use crate::numbers::Node;
use crate::numbers::space::{ShortNumber, Tag};
use crate::numbers::state::{Holder, Legacy, MAX_LEGACY, MAX_RESETS};
use crate::numbers::wire::Packet;

impl Numbers {
    /// Returns whether this router would create a network when it is time: a user waits, and no other network is known.
    pub(super) fn may_create(&self) -> bool {
        self.state.home.is_none() && !self.waiting.is_empty() && self.sources.smallest().is_none()
    }

    /// Creates a network and owns all of it.
    pub(super) fn create(&mut self, now: Time, random: &mut dyn Random) {
        let tag = Tag { created: now.as_secs(), random: random.next_u64() };
        self.state.home = Some(tag);
        self.state.free = self.config.space.blocks();
        self.changed();
        self.notify(Event::Created(tag));
        self.hurry_status(now);
    }

    /// Leaves the network for another one, of which the first blocks are about to be added.
    pub(super) fn move_to(&mut self, to: Tag) {
        let from = self.state.home.replace(to);
        let marked = from.map_or(0, |from| self.mark_users(from));
        // They are of the earlier network.
        self.state.kin.clear();
        self.state.kin_incomplete = false;
        self.changed();
        self.notify(Event::Moved { from, to, marked });
        self.await_renumbering();
    }

    /// Turns the numbers of all users into numbers of an earlier network with this tag. The free blocks become nobody's.
    fn mark_users(&mut self, tag: Tag) -> usize {
        self.state.free = Default::default();
        let slots = core::mem::take(&mut self.state.slots);
        let users = slots.into_iter().filter_map(|(number, holder)| match holder {
            Holder::User(user) => Some((number, user)),
            Holder::Nobody(_) => None,
        });
        let legacy = Legacy { tag, users: users.collect() };
        let marked = legacy.users.len();
        if marked > 0 {
            self.state.legacy.push(legacy);
        }
        if self.state.legacy.len() > MAX_LEGACY {
            let dropped = self.state.legacy.remove(0);
            self.notify(Event::Dropped { tag: dropped.tag, users: dropped.users.len() });
        }
        self.index_slots();
        marked
    }

    /// Lets users of earlier networks that have no number wait for one.
    pub(super) fn await_renumbering(&mut self) {
        let mut latest = BTreeMap::new();
        for legacy in &self.state.legacy {
            let users = legacy.users.iter().filter(|(_, user)| !self.users.contains_key(*user));
            let numbers = users
                .map(|(&number, user)| (user.clone(), ShortNumber { tag: legacy.tag, number }));
            latest.extend(numbers);
        }
        self.waiting.retain(|waiting| !latest.contains_key(&waiting.user));
        let waiting = latest.into_iter();
        let waiting =
            waiting.map(|(user, number)| Waiting { user, until: None, before: Some(number) });
        self.waiting.extend(waiting);
    }

    /// Handles BANNED: this router's blocks were reclaimed.
    pub(super) fn banned(&mut self, now: Time, from: Node, census: u64, random: &mut dyn Random) {
        if !self.state.resets.contains(&census) {
            self.reset(now, census, random);
        }
        self.send(from, &Packet::Reset { census });
    }

    fn reset(&mut self, now: Time, census: u64, random: &mut dyn Random) {
        self.abandon_census(now);
        // What the users have is of a network that nobody else is in.
        let tag = Tag { created: now.as_secs(), random: random.next_u64() };
        let marked = self.mark_users(tag);
        self.state.home = None;
        self.state.incarnation = random.next_u64();
        self.state.grants.clear();
        self.state.accepted.clear();
        self.state.resets.push(census);
        if self.state.resets.len() > MAX_RESETS {
            self.state.resets.remove(0);
        }
        self.retries.clear();
        self.asks = Asks::new(now);
        self.changed();
        self.notify(Event::Expelled { marked });
        self.await_renumbering();
    }
}
