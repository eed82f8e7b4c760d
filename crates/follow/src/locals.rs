//! The names that other servers follow here, and their states.

use std::collections::{BTreeMap, BTreeSet};

use ringway_proxy::states::{Form, Report};
use ringway_sansio::{Random, Time};

use super::agenda::Agenda;
use super::limits::COALESCE;
use super::names::Name;
use super::server::ServerId;

#[derive(Debug)]
struct Local<I> {
    /// 0 until the state was read.
    version: u64,
    octets: Box<[u8]>,
    followers: BTreeSet<I>,
}

impl<I> Default for Local<I> {
    fn default() -> Self {
        Local { version: 0, octets: Box::default(), followers: BTreeSet::new() }
    }
}

/// The states of names that have followers.
#[derive(Debug)]
pub(super) struct Locals<I> {
    names: BTreeMap<Name, Local<I>>,
    /// When each state is to be read.
    checks: Agenda<Name>,
    /// Followers of all names.
    total: usize,
}

impl<I> Default for Locals<I> {
    fn default() -> Self {
        Locals { names: BTreeMap::new(), checks: Agenda::default(), total: 0 }
    }
}

impl<I: ServerId> Locals<I> {
    pub(super) fn total(&self) -> usize {
        self.total
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// Adds a follower. Returns the name, and whether it is the first follower.
    pub(super) fn add(&mut self, now: Time, name: &str, server: I) -> (Name, bool) {
        let known = self.names.get_key_value(name).map(|(name, _)| name.clone());
        let is_first = known.is_none();
        let name = known.unwrap_or_else(|| name.into());
        let local = self.names.entry(name.clone()).or_default();
        self.total += usize::from(local.followers.insert(server));
        if is_first {
            self.checks.set(&name, Some(now));
        }
        (name, is_first)
    }

    /// Removes a follower. Returns whether it was the last one.
    pub(super) fn remove(&mut self, name: &Name, server: I) -> bool {
        let Some(local) = self.names.get_mut(name) else { return false };
        self.total -= usize::from(local.followers.remove(&server));
        let was_last = local.followers.is_empty();
        if was_last {
            self.names.remove(name);
            self.checks.set(name, None);
        }
        was_last
    }

    /// The state of a name may have changed.
    pub(super) fn changed(&mut self, now: Time, name: &str) {
        if let Some((name, _)) = self.names.get_key_value(name) {
            self.checks.sooner(name, now + COALESCE);
        }
    }

    /// Returns a name whose state is to be read now.
    pub(super) fn poll_check(&mut self, now: Time) -> Option<Name> {
        self.checks.pop(now)
    }

    /// Takes the report of a name, and when it changes by itself. Returns the followers if it differs from the one before.
    pub(super) fn set(
        &mut self,
        now: Time,
        name: &Name,
        (report, next): (Report, Option<Time>),
        form: Form,
        random: &mut dyn Random,
    ) -> Vec<I> {
        let Some(local) = self.names.get_mut(name) else { return Vec::new() };
        self.checks.set(name, next.map(|next| next.max(now + COALESCE)));
        let mut octets = Vec::with_capacity(64);
        report.write(form, &mut octets);
        if local.version != 0 && *local.octets == *octets {
            return Vec::new();
        }
        local.octets = octets.into();
        local.version = match local.version {
            0 => random.next_u64() << 32 | 1,
            version => version & !u64::from(u32::MAX) | u64::from((version as u32).wrapping_add(1)),
        };
        local.followers.iter().copied().collect()
    }

    /// Returns the version and the octets of a state that was read.
    pub(super) fn get(&self, name: &str) -> Option<(u64, &[u8])> {
        let local = self.names.get(name).filter(|local| local.version != 0)?;
        Some((local.version, &local.octets))
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.checks.first()
    }
}
