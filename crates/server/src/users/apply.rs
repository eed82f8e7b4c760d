//! Takes over what was read: users in memory at once, registrations of those who are gone, and then the file.

use super::read::{Complete, Found, ReadChange, Sink};
use super::shared::Shared;
use crate::store::Store;
use crate::store::users::{HashedUser, Hashes};
use ringway_net::Clock;
use ringway_users::{Entry, Outcome, Refusal};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

/// Number of refused rows that are logged for one read.
const LOGGED: usize = 10;
/// Number of refused rows that are remembered, so that each is logged once.
const REMEMBERED: usize = 10_000;
/// Number of users that are written into the file in one transaction, in which commits of registrations wait.
const SAVED: usize = 2000;

type Name = (String, String);

/// What has become of what was written: those that are not in the file, and why.
type Saved = Result<(), (Vec<Name>, String)>;

/// Takes over what was read.
pub(super) struct Applier {
    store: Arc<Store>,
    shared: Arc<Shared>,
    clock: Clock,
    /// Number of the read of everything that goes on, or was the last.
    read: u32,
    /// Rows of this read that are users, and those that are none.
    found: usize,
    refused: usize,
    /// Users that were set or removed in this read.
    applied: u64,
    /// Users that were missing when everything was read last, and that stay.
    withheld: BTreeSet<Name>,
    /// Refused rows that were logged.
    logged: BTreeSet<String>,
    /// Refused rows of this read that were logged now, and those that were not.
    fresh: (usize, usize),
    /// Users whose change is not in the file yet.
    unsaved: BTreeSet<Name>,
    saving: Option<JoinHandle<Saved>>,
}

impl Applier {
    pub(super) fn new(store: Arc<Store>, shared: Arc<Shared>, clock: Clock) -> Self {
        Applier {
            store,
            shared,
            clock,
            read: 0,
            found: 0,
            refused: 0,
            applied: 0,
            withheld: BTreeSet::new(),
            logged: BTreeSet::new(),
            fresh: (0, 0),
            unsaved: BTreeSet::new(),
            saving: None,
        }
    }

    /// A read of everything begins.
    pub(super) fn begin(&mut self) {
        self.read = self.read.wrapping_add(1).max(1);
        (self.found, self.refused, self.applied, self.fresh) = (0, 0, 0, (0, 0));
    }

    /// Everything was read: removes the users that are gone, if that can be believed.
    pub(super) fn finish(&mut self, complete: &Complete, confirmed: bool) {
        let noted: BTreeSet<&Name> = complete.noted.iter().collect();
        let known = self.store.users().len();
        let (stay, mut missing): (Vec<Name>, Vec<Name>) = self
            .missing()
            .into_iter()
            .partition(|name| self.withheld.contains(name) && !noted.contains(name) && !confirmed);
        let judged = ringway_users::Complete {
            known,
            found: self.found,
            missing: missing.len(),
            noted: missing.iter().filter(|name| noted.contains(name)).count(),
            confirmed,
        };
        self.withheld = stay.into_iter().collect();
        if let Outcome::Withheld(_) = judged.outcome() {
            let (gone, stay) = missing.into_iter().partition(|name| noted.contains(name));
            missing = gone;
            self.withheld.extend::<Vec<Name>>(stay);
        }
        let withheld = self.withheld.len();
        self.change(&[], missing);
        self.end_log();
        let mut numbers = self.shared.numbers();
        if withheld > 0 && numbers.withheld != withheld as u64 {
            error!(
                "{withheld} of {known} users are not in the database ({}) any more, which is not believed: they stay \
                 until it has them again, or until ringway user prune",
                self.shared.name
            );
        }
        if numbers.reads == 0 || self.applied > 0 {
            info!(
                users = self.store.users().len(),
                changed = self.applied,
                unusable = self.refused,
                "the database of users was read"
            );
        }
        numbers.withheld = withheld as u64;
        numbers.unusable = self.refused as u64;
        numbers.reads += 1;
    }

    /// Takes over changes.
    pub(super) fn changes(&mut self, changes: Vec<ReadChange>) {
        (self.fresh, self.applied) = ((0, 0), 0);
        for change in changes {
            match change {
                // In their order: a user may be removed and set again.
                ReadChange::Set(Ok(entry)) => self.set(entry),
                ReadChange::Set(Err(refusal)) => {
                    self.log(&refusal);
                    self.change(&[], refusal.name.into_iter().collect());
                }
                ReadChange::Removed(user, realm) => self.change(&[], vec![(user, realm)]),
            }
        }
        self.end_log();
    }

    /// Sets a user, unless it is known so.
    fn set(&mut self, entry: Entry) {
        let hashes = Hashes::of(&entry);
        let known = self.store.users().get(entry.user.as_bytes(), entry.realm.as_bytes());
        let is_same = known.is_some_and(|known| {
            let is_dated = entry.password_set.is_some();
            known.proves_as(&hashes) && (!is_dated || known.password_set() == hashes.password_set())
        });
        if !is_same {
            self.change(&[HashedUser { user: entry.user, realm: entry.realm, hashes }], Vec::new());
        }
    }

    fn change(&mut self, set: &[HashedUser], removed: Vec<Name>) {
        let users = self.store.users();
        let is_known =
            |(user, realm): &Name| users.get(user.as_bytes(), realm.as_bytes()).is_some();
        let removed: Vec<Name> = removed.into_iter().filter(is_known).collect();
        self.store.mirror(set, &removed, self.clock.now());
        let count = (set.len() + removed.len()) as u64;
        self.applied += count;
        let of = |user: &HashedUser| (user.user.clone(), user.realm.clone());
        self.unsaved.extend(set.iter().map(of).chain(removed));
        let mut numbers = self.shared.numbers();
        numbers.applied += count;
        numbers.unsaved = self.unsaved.len() as u64;
    }

    fn log(&mut self, refusal: &Refusal) {
        if self.logged.contains(&refusal.text) {
            return;
        }
        if self.logged.len() >= REMEMBERED {
            self.logged.clear();
        }
        self.logged.insert(refusal.text.clone());
        if self.fresh.0 < LOGGED {
            self.fresh.0 += 1;
            warn!("the database of users: {}: the row is not used", refusal.text);
        } else {
            self.fresh.1 += 1;
        }
    }

    fn end_log(&mut self) {
        if self.fresh.1 > 0 {
            warn!("the database of users: {} further rows are no users", self.fresh.1);
        }
    }

    /// Writes into the file what is not in it yet, without waiting.
    pub(super) fn save(&mut self) {
        if self.saving.is_some() || self.unsaved.is_empty() {
            return;
        }
        let names: Vec<Name> = std::mem::take(&mut self.unsaved).into_iter().collect();
        let store = self.store.clone();
        self.saving = Some(tokio::task::spawn_blocking(move || {
            for (index, names_of) in names.chunks(SAVED).enumerate() {
                if let Err(e) = store.save_mirrored(names_of) {
                    return Err((names[index * SAVED..].to_vec(), e));
                }
            }
            Ok(())
        }));
    }

    /// Waits until what is being written is written; for ever if there is nothing. Returns whether it succeeded.
    pub(super) async fn saved(&mut self) -> bool {
        let Some(saving) = &mut self.saving else { return std::future::pending().await };
        let result = saving.await;
        self.saving = None;
        let is_saved = match result {
            Ok(Ok(())) => true,
            Ok(Err((names, why))) => {
                self.unsaved.extend(names);
                error!("changed users are not in the file yet: {why}");
                false
            }
            Err(_) => false,
        };
        self.shared.numbers().unsaved = self.unsaved.len() as u64;
        is_saved
    }
}

impl Applier {
    /// Writes into the file what is not in it yet, and waits for it.
    pub(super) async fn flush(&mut self) {
        while self.saving.is_some() || !self.unsaved.is_empty() {
            self.save();
            if !self.saved().await {
                return;
            }
        }
    }
}

impl Applier {
    /// Takes over a row of a read of everything. Of two rows of one user, as with two names of a domain, the first counts.
    fn found_entry(&mut self, entry: Entry, repeats: bool) {
        let (user, realm) = (entry.user.clone(), entry.realm.clone());
        let users = self.store.users();
        if users.is_seen(user.as_bytes(), realm.as_bytes(), self.read) {
            if repeats {
                return;
            }
            self.refused += 1;
            let text = format!("user \"{user}@{realm}\" has another row");
            self.log(&Refusal { name: None, text });
            return;
        }
        self.found += 1;
        self.set(entry);
        self.store.users().see(user.as_bytes(), realm.as_bytes(), self.read);
    }
}

impl Sink for Applier {
    fn page(&mut self, rows: Vec<Found>, repeats: bool) {
        for row in rows {
            match row {
                Ok(entry) => self.found_entry(entry, repeats),
                Err(refusal) => {
                    self.refused += 1;
                    self.log(&refusal);
                }
            }
        }
    }

    fn missing(&mut self) -> Vec<Name> {
        self.store.users().unseen(self.read)
    }
}
