//! What was read of users at other nodes.
//!
//! There are two generations of entries: when the young one is full it becomes the old one, and what is used moves to the
//! young one again. So the cache is bounded, and what is not used leaves it.

use std::collections::BTreeMap;

use ringway_sansio::Time;

use crate::config::{CACHED_USERS, MAX_AGE, READ_GRACE};
use crate::presence::Phones;
use crate::record::{Found, NodeName};

/// A node at which a user is registered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Server {
    /// The node.
    pub node: NodeName,
    /// Its run.
    pub boot: u64,
    /// q of the user there, in thousandths.
    pub q: u16,
    /// Time at which the last binding ends.
    pub ends: Time,
    /// The phones there.
    pub phones: Phones,
}

/// What is known of one user.
pub struct Entry {
    servers: Box<[Server]>,
    /// The epoch in which it was read; `None` if it has changed since.
    epoch: Option<u64>,
    read: Time,
    /// Time at which it is read again.
    until: Time,
}

impl Entry {
    /// Returns the nodes at which the user was registered.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Returns whether it is still what the database has, as far as changes are reported: those since `epoch` are, or
    /// none.
    pub fn is_fresh(&self, now: Time, epoch: Option<u64>) -> bool {
        let has_not_changed = self.epoch.is_some() && self.epoch == epoch && now < self.until;
        has_not_changed || now < self.read + READ_GRACE && self.read <= now
    }
}

/// What is known of users at other nodes.
#[derive(Default)]
pub struct Cache {
    young: BTreeMap<Box<[u8]>, Entry>,
    old: BTreeMap<Box<[u8]>, Entry>,
}

impl Cache {
    /// Returns what is known of a user.
    pub fn get(&mut self, user: &[u8]) -> Option<&Entry> {
        if let Some((user, entry)) = self.old.remove_entry(user) {
            self.put(user, entry);
        }
        self.young.get(user)
    }

    /// Stores what was read in an epoch; `None` if a change was reported meanwhile.
    pub fn read(&mut self, now: Time, user: Box<[u8]>, epoch: Option<u64>, found: Vec<Found>) {
        let server = |found: Found| {
            let Found { node, boot, lifetime, q, phones } = found;
            Server { node, boot, q, ends: now + lifetime, phones }
        };
        let servers: Box<[Server]> = found.into_iter().map(server).collect();
        // A registration that is refreshed is not reported: it is read when it should have ended.
        let first_end = servers.iter().map(|server| server.ends).min();
        let until = first_end.map_or(now + MAX_AGE, |end| end.min(now + MAX_AGE));
        self.old.remove(&user);
        self.put(user, Entry { servers, epoch, read: now, until });
    }

    /// A change of a user was reported.
    pub fn changed(&mut self, user: &[u8]) -> bool {
        let entry = self.young.get_mut(user).or_else(|| self.old.get_mut(user));
        let Some(entry) = entry else { return false };
        entry.epoch = None;
        // It is used only while the database is absent.
        entry.read = Time::ZERO;
        true
    }

    fn put(&mut self, user: Box<[u8]>, entry: Entry) {
        if self.young.len() >= CACHED_USERS && !self.young.contains_key(&user) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(user, entry);
    }

    /// Returns the number of users of whom something is known.
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Returns whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_is_bounded() {
        let mut cache = Cache::default();
        let now = Time::from_secs(1000);
        let user = |n: usize| n.to_be_bytes().to_vec().into_boxed_slice();
        for n in 0..5 * CACHED_USERS {
            cache.read(now, user(n), Some(1), Vec::new());
            assert!(cache.get(&user(0)).is_some(), "{n}");
        }
        assert!(cache.len() <= 2 * CACHED_USERS);
        assert!(cache.get(&user(CACHED_USERS)).is_none());
    }

    #[test]
    fn an_entry_is_fresh_until_a_change_a_gap_or_its_end() {
        let mut cache = Cache::default();
        let (read, later) = (Time::from_secs(1000), Time::from_secs(1010));
        cache.read(read, (*b"bob").into(), Some(1), Vec::new());
        let entry = cache.get(b"bob").unwrap();
        assert!(entry.is_fresh(later, Some(1)));
        assert!(!entry.is_fresh(later, Some(2)));
        assert!(!entry.is_fresh(later, None));
        assert!(!entry.is_fresh(read + MAX_AGE, Some(1)));
        // Who has asked for it finds it, even if changes are not reported.
        assert!(entry.is_fresh(read, None));
        assert!(cache.changed(b"bob"));
        assert!(!cache.get(b"bob").unwrap().is_fresh(read, Some(1)));
    }
}
