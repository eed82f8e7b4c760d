//! The states of users: the calls of their phones and what these publish, for those who watch them by the event packages
//! `dialog` and `presence`.
//!
//! All workers of a server share one [`States`]. Workers that forward the calls of a user record them; workers that have
//! subscribers watch the user. A user may be registered at several servers, and each records what passes it: what other
//! servers report is added by [`States::set_elsewhere`], and what this one reports to them is [`States::local`]. Where servers
//! share the contacts of users ([`States::share_contacts`]), these are reported for the event package `reg`, too.
//!
//! Everything here may be lost: a restart begins without calls and publications.

mod calls;
mod report;
mod state;

pub use report::{
    Clock, Form, MAX_CONTACT_OCTETS, MAX_CONTACTS, MAX_REPORT, Report, ServerContact,
};
pub use state::{
    Activity, Dialog, Direction, MAX_DIALOGS, MAX_NOTE, MAX_PUBLICATIONS, Phase, Publication,
    UserState,
};

use crate::keys::Keyed;
use crate::location::Change as Reason;
use calls::{Calls, Party};
use hashbrown::HashMap;
use ringway_sansio::{Duration, Time};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Maximum number of calls that are recorded, of all users. Further ones are not shown.
pub const MAX_CALLS: usize = 1 << 16;
/// Maximum number of calls that are recorded of one user. Further ones are not shown.
pub const MAX_CALLS_OF_USER: usize = 32;
/// Maximum number of users with publications. Further ones are refused.
pub const MAX_PUBLISHERS: usize = 1 << 14;
/// Maximum number of other servers whose reports of one user are stored.
pub const MAX_SERVERS: usize = 16;
/// Maximum number of octets of all contacts that other servers have reported. Further ones are not shown.
pub const MAX_ELSEWHERE_OCTETS: usize = 64 << 20;
/// Maximum time for which a call is shown: its BYE may have been lost.
pub const MAX_CALL: Duration = Duration::from_secs(12 * 3600);

/// The watcher that reports states to other servers, and has those of other servers.
pub const OTHER_SERVERS: u8 = u8::MAX;

/// Is called with a watcher and an address-of-record whose state has changed. [`OTHER_SERVERS`] is also notified of
/// addresses-of-record that workers begin or cease to watch. It must be short and must not wait. Returns whether the watcher
/// will learn of it; otherwise the watcher finds it by [`States::take_missed`].
pub type Sink = Arc<dyn Fn(u8, &[u8]) -> bool + Send + Sync>;

type Watchers = SmallVec<[u8; 2]>;

/// Users whose state has changed, with those who watch each.
type Notified = SmallVec<[(Arc<[u8]>, Watchers); 2]>;

/// A publication and its lifetime.
#[derive(Debug)]
struct Published {
    /// The entity-tag (RFC 3903 section 4.1).
    tag: u64,
    expires: Time,
    publication: Publication,
}

/// What another server has reported.
#[derive(Debug)]
struct Elsewhere {
    server: u64,
    report: Report,
    expires: Time,
}

#[derive(Debug)]
struct User {
    /// Indices into the table of calls.
    calls: SmallVec<[usize; 2]>,
    /// The latest first.
    published: Vec<Published>,
    elsewhere: Vec<Elsewhere>,
    /// Why contacts that other servers had reported are gone.
    ended: Reason,
    watchers: Watchers,
}

impl Default for User {
    fn default() -> Self {
        User {
            calls: SmallVec::new(),
            published: Vec::new(),
            elsewhere: Vec::new(),
            ended: Reason::Updated,
            watchers: Watchers::new(),
        }
    }
}

impl User {
    fn is_empty(&self) -> bool {
        let User { calls, published, elsewhere, watchers, .. } = self;
        calls.is_empty() && published.is_empty() && elsewhere.is_empty() && watchers.is_empty()
    }
}

#[derive(Debug)]
struct Tables {
    users: HashMap<Arc<[u8]>, User, Keyed>,
    calls: Calls,
    /// The number of users with watchers.
    watched: usize,
    /// The number of users with publications.
    publishers: usize,
    /// Octets of the contacts that other servers have reported.
    contact_octets: usize,
    /// Reports whose contacts have found no room.
    without_room: u64,
    /// Changes that watchers could not be notified of.
    missed: BTreeMap<u8, BTreeSet<Box<[u8]>>>,
}

/// Why a publication is refused (RFC 3903 section 6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PublishError {
    /// There is no publication of this entity-tag: 412.
    NoSuchTag,
    /// Too many users publish: 503.
    Full,
}

/// What a PUBLISH changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The entity-tag of the publication that it refreshes, modifies or removes; `None` for a new one.
    pub replaces: Option<u64>,
    /// The new state; `None` if only the lifetime changes.
    pub publication: Option<Publication>,
    /// The end of the lifetime; `None` removes the publication.
    pub expires: Option<Time>,
    /// The new entity-tag.
    pub tag: u64,
}

/// The states of all users of a server.
pub struct States {
    tables: Mutex<Tables>,
    sink: OnceLock<Sink>,
    shares_contacts: AtomicBool,
}

impl std::fmt::Debug for States {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("States").field("tables", &self.tables).finish_non_exhaustive()
    }
}

impl States {
    /// Returns states of nobody, whose tables are hashed under `key`.
    pub fn new(key: [u8; 16]) -> States {
        let keyed = Keyed::new(&key);
        let tables = Tables {
            users: HashMap::with_hasher(keyed.clone()),
            calls: Calls::new(keyed),
            watched: 0,
            publishers: 0,
            contact_octets: 0,
            without_room: 0,
            missed: BTreeMap::new(),
        };
        States {
            tables: Mutex::new(tables),
            sink: OnceLock::new(),
            shares_contacts: AtomicBool::new(false),
        }
    }

    /// Other servers report the contacts of users from now on: who watches registrations watches these, too.
    pub fn share_contacts(&self) {
        self.shares_contacts.store(true, Relaxed);
    }

    /// Returns whether other servers report contacts.
    pub fn shares_contacts(&self) -> bool {
        self.shares_contacts.load(Relaxed)
    }

    /// Sets what is called for changes. Only the first call has an effect.
    pub fn set_sink(&self, sink: Sink) {
        let _ = self.sink.set(sink);
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        // Each change is complete before anything that could panic.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self, watchers: &[u8], aor: &[u8]) {
        let Some(sink) = self.sink.get() else { return };
        for &watcher in watchers.iter().filter(|watcher| !sink(**watcher, aor)) {
            self.lock().missed.entry(watcher).or_default().insert(aor.into());
        }
    }

    fn notify_all(&self, notified: &Notified) {
        notified.iter().for_each(|(aor, watchers)| self.notify(watchers, aor));
    }

    /// Removes and returns the users whose changes a watcher could not be notified of, because too much waited for it: a lamp
    /// would stay on until the next call.
    pub fn take_missed(&self, watcher: u8) -> BTreeSet<Box<[u8]>> {
        self.lock().missed.remove(&watcher).unwrap_or_default()
    }

    /// Records a call of a user that begins. `key` identifies the call. A second call of the same key has no effect.
    pub fn begin_call(&self, now: Time, key: u64, aor: impl Into<Arc<[u8]>>, direction: Direction) {
        let notified = self.lock().begin(now, key, Party { aor: aor.into(), direction });
        self.notify_all(&notified);
    }

    /// Records that the callee of a call rings.
    pub fn ring(&self, key: u64) {
        let notified = self.lock().ring(key);
        self.notify_all(&notified);
    }

    /// Records that a call is answered by a phone of `callee`, or by nobody of this server; `dialog` identifies it from now
    /// on. Other callees are in the call no more.
    pub fn answer(&self, now: Time, key: u64, dialog: u64, callee: Option<&[u8]>) {
        let notified = self.lock().answer(now, key, dialog, callee);
        self.notify_all(&notified);
    }

    /// Records that a user is in a call no more.
    pub fn leave_call(&self, key: u64, aor: &[u8]) {
        let notified = self.lock().leave(key, aor);
        self.notify_all(&notified);
    }

    /// Records that a phone of a user has come to this server within an answered call, unless the call is known.
    pub fn adopt_call(&self, now: Time, dialog: u64, aor: impl Into<Arc<[u8]>>) {
        let party = Party { aor: aor.into(), direction: Direction::Initiator };
        let mut tables = self.lock();
        if tables.calls.find(dialog).is_none() {
            let mut notified = tables.begin(now, dialog, party);
            notified.extend(tables.answer(now, dialog, dialog, None));
            drop(tables);
            self.notify_all(&notified);
        }
    }

    /// Records that a call has ended.
    pub fn end_call(&self, key: u64) {
        let notified = self.lock().end(key);
        self.notify_all(&notified);
    }

    /// Stores a publication of a user.
    ///
    /// # Errors
    /// Nothing changes.
    pub fn publish(&self, now: Time, aor: &[u8], change: Change) -> Result<(), PublishError> {
        let watchers = self.lock().publish(now, aor, change)?;
        self.notify(&watchers, aor);
        Ok(())
    }

    /// Stores what another server has reported of a user, until `expires`.
    pub fn set_elsewhere(&self, aor: &[u8], server: u64, report: Report, expires: Time) {
        let ended = report.ended;
        let watchers = self.lock().set_elsewhere(aor, server, Some((report, expires)), ended);
        self.notify(&watchers, aor);
    }

    /// What another server has reported of a user is stored until `expires`.
    pub fn renew_elsewhere(&self, aor: &[u8], server: u64, expires: Time) {
        let mut tables = self.lock();
        let Some(user) = tables.users.get_mut(aor) else { return };
        let report = user.elsewhere.iter_mut().find(|report| report.server == server);
        report.into_iter().for_each(|report| report.expires = expires);
    }

    /// Removes what another server has reported of a user, for a reason.
    pub fn end_elsewhere(&self, aor: &[u8], server: u64, why: Reason) {
        let watchers = self.lock().set_elsewhere(aor, server, None, why);
        self.notify(&watchers, aor);
    }

    /// Visits the contacts of a user that other servers have reported. Returns why those that are gone are gone.
    pub fn contacts_elsewhere(
        &self,
        now: Time,
        aor: &[u8],
        visit: &mut dyn FnMut(&ServerContact),
    ) -> Reason {
        let tables = self.lock();
        let Some(user) = tables.users.get(aor) else { return Reason::Updated };
        let present = user.elsewhere.iter().filter(|of| of.expires > now);
        present.flat_map(|of| &of.report.contacts).for_each(visit);
        user.ended
    }

    /// Returns the number of reports of other servers whose contacts have found no room.
    pub fn without_room(&self) -> u64 {
        self.lock().without_room
    }

    /// Reports every change of a user to a watcher from now on. A second call has no effect.
    pub fn watch(&self, aor: &[u8], watcher: u8) {
        let is_first = {
            let mut tables = self.lock();
            let Tables { users, watched, .. } = &mut *tables;
            let user = users.entry(aor.into()).or_default();
            let is_first = user.watchers.iter().all(|&other| other == OTHER_SERVERS);
            *watched += usize::from(user.watchers.is_empty());
            if !user.watchers.contains(&watcher) {
                user.watchers.push(watcher);
            }
            is_first && watcher != OTHER_SERVERS
        };
        if is_first {
            self.notify(&[OTHER_SERVERS], aor);
        }
    }

    /// Stops the reports of a user to a watcher.
    pub fn unwatch(&self, aor: &[u8], watcher: u8) {
        let is_last = {
            let mut tables = self.lock();
            let Tables { users, watched, .. } = &mut *tables;
            let Some(user) = users.get_mut(aor) else { return };
            let was_watched = !user.watchers.is_empty();
            user.watchers.retain(|other| *other != watcher);
            *watched -= usize::from(was_watched && user.watchers.is_empty());
            let is_last = user.watchers.iter().all(|&other| other == OTHER_SERVERS);
            tables.drop_empty(aor);
            is_last && watcher != OTHER_SERVERS
        };
        if is_last {
            self.notify(&[OTHER_SERVERS], aor);
        }
    }

    /// Returns whether a worker watches a user.
    pub fn is_watched(&self, aor: &[u8]) -> bool {
        let tables = self.lock();
        let watchers = tables.users.get(aor).map_or(&[][..], |user| &user.watchers);
        watchers.iter().any(|&watcher| watcher != OTHER_SERVERS)
    }

    /// Returns the state of a user at this server, and the time at which it next changes by itself. `is_registered` is
    /// whether the user has phones here: without any there are no calls either, whatever has been recorded.
    pub fn local(&self, now: Time, aor: &[u8], is_registered: bool) -> (UserState, Option<Time>) {
        self.lock().local(now, aor, is_registered)
    }

    /// Returns the state of a user at all servers, and the time at which it next changes by itself.
    pub fn all(&self, now: Time, aor: &[u8], is_registered: bool) -> (UserState, Option<Time>) {
        let tables = self.lock();
        let (mut state, mut next) = tables.local(now, aor, is_registered);
        let reports = tables.users.get(aor).map_or(&[][..], |user| &user.elsewhere);
        for report in reports.iter().filter(|report| report.expires > now) {
            let of = &report.report.state;
            state.is_registered |= of.is_registered;
            state.dialogs.extend_from_slice(&of.dialogs);
            state.publications.extend_from_slice(&of.publications);
            next = Some(next.map_or(report.expires, |next| next.min(report.expires)));
        }
        (state, next)
    }

    /// Returns the number of calls that are recorded.
    pub fn calls(&self) -> usize {
        self.lock().calls.len()
    }
}

impl Tables {
    fn begin(&mut self, now: Time, key: u64, party: Party) -> Notified {
        self.drop_dead(now);
        let known = self.calls.find(key);
        if known.is_none() && self.calls.is_full()
            || known.is_some_and(|index| self.calls[index].has(&party.aor))
        {
            return Notified::new();
        }
        let user = self.users.entry(party.aor.clone()).or_default();
        if user.calls.len() >= MAX_CALLS_OF_USER {
            return Notified::new();
        }
        let index = known.unwrap_or_else(|| self.calls.add(now, key));
        user.calls.push(index);
        let notified = party_of(user, &party.aor);
        self.calls[index].parties.push(party);
        notified.into_iter().collect()
    }

    fn ring(&mut self, key: u64) -> Notified {
        match self.calls.find(key) {
            Some(index) if self.calls[index].phase == Phase::Trying => {
                self.calls[index].phase = Phase::Early;
                self.watchers_of(index)
            }
            _ => Notified::new(),
        }
    }

    fn answer(&mut self, now: Time, key: u64, dialog: u64, callee: Option<&[u8]>) -> Notified {
        let Some(index) = self.calls.find(key) else { return Notified::new() };
        let is_other =
            |party: &Party| party.direction == Direction::Recipient && Some(&*party.aor) != callee;
        let others = self.calls[index].parties.iter().filter(|party| is_other(party));
        let others: SmallVec<[Arc<[u8]>; 2]> = others.map(|party| party.aor.clone()).collect();
        let mut notified = Notified::new();
        others.iter().for_each(|aor| notified.extend(self.leave(key, aor)));
        if self.calls.rename(key, dialog).is_some() {
            let call = &mut self.calls[index];
            (call.phase, call.since) = (Phase::Confirmed, now);
            notified.extend(self.watchers_of(index));
        }
        notified
    }

    fn leave(&mut self, key: u64, aor: &[u8]) -> Notified {
        let Some(index) = self.calls.find(key) else { return Notified::new() };
        let parties = &mut self.calls[index].parties;
        let at = parties.iter().position(|party| *party.aor == *aor);
        let Some(party) = at.map(|at| parties.remove(at)) else { return Notified::new() };
        if parties.is_empty() {
            self.calls.remove(index);
        }
        self.part(index, &party.aor).into_iter().collect()
    }

    fn end(&mut self, key: u64) -> Notified {
        match self.calls.find(key) {
            Some(index) => self.remove_call(index),
            None => Notified::new(),
        }
    }

    fn remove_call(&mut self, index: usize) -> Notified {
        let call = self.calls.remove(index);
        call.parties.iter().filter_map(|party| self.part(index, &party.aor)).collect()
    }

    /// Removes a call from those of a user, and returns who watches the user, if anybody does.
    fn part(&mut self, index: usize, aor: &Arc<[u8]>) -> Option<(Arc<[u8]>, Watchers)> {
        let user = self.users.get_mut(aor)?;
        user.calls.retain(|other| *other != index);
        let notified = party_of(user, aor);
        if user.is_empty() {
            self.users.remove(aor);
        }
        notified
    }

    /// Returns who watches the users in a call.
    fn watchers_of(&self, index: usize) -> Notified {
        if self.watched == 0 {
            return Notified::new();
        }
        let parties = self.calls[index].parties.iter();
        parties.filter_map(|party| party_of(self.users.get(&party.aor)?, &party.aor)).collect()
    }

    /// Removes calls whose end nobody has seen, at most once in a minute.
    fn drop_dead(&mut self, now: Time) {
        for index in self.calls.take_dead(now) {
            self.remove_call(index);
        }
    }

    fn publish(&mut self, now: Time, aor: &[u8], change: Change) -> Result<Watchers, PublishError> {
        let Change { replaces, publication, expires, tag } = change;
        if self.publishers >= MAX_PUBLISHERS {
            self.sweep(now);
        }
        let user = self.users.entry(aor.into()).or_default();
        let had_any = !user.published.is_empty();
        user.published.retain(|published| published.expires > now);
        let old = replaces.map(|tag| {
            let at = user.published.iter().position(|published| published.tag == tag)?;
            Some(user.published.remove(at).publication)
        });
        let result = match old {
            Some(None) => Err(PublishError::NoSuchTag),
            _ if !had_any && self.publishers >= MAX_PUBLISHERS => Err(PublishError::Full),
            old => {
                let new = publication.or(old.flatten()).zip(expires);
                if let Some((publication, expires)) = new {
                    user.published.insert(0, Published { tag, expires, publication });
                    user.published.truncate(MAX_PUBLICATIONS);
                }
                Ok(user.watchers.clone())
            }
        };
        match (had_any, !user.published.is_empty()) {
            (false, true) => self.publishers += 1,
            (true, false) => self.publishers -= 1,
            _ => {}
        }
        self.drop_empty(aor);
        result
    }

    /// Removes publications that have expired.
    fn sweep(&mut self, now: Time) {
        self.publishers = 0;
        for user in self.users.values_mut() {
            user.published.retain(|published| published.expires > now);
            self.publishers += usize::from(!user.published.is_empty());
        }
        self.users.retain(|_, user| !user.is_empty());
    }

    fn set_elsewhere(
        &mut self,
        aor: &[u8],
        server: u64,
        report: Option<(Report, Time)>,
        ended: Reason,
    ) -> Watchers {
        let user = self.users.entry(aor.into()).or_default();
        let old = user.elsewhere.iter().position(|report| report.server == server);
        let old = old.map(|at| user.elsewhere.remove(at));
        self.contact_octets -= old.as_ref().map_or(0, |old| old.report.contact_octets());
        let mut changed =
            old.as_ref().map(|old| &old.report) != report.as_ref().map(|(report, _)| report);
        match report {
            Some((mut report, expires)) if user.elsewhere.len() < MAX_SERVERS => {
                let octets = report.contact_octets();
                if self.contact_octets + octets > MAX_ELSEWHERE_OCTETS {
                    report.contacts = Vec::new();
                    self.without_room += 1;
                } else {
                    self.contact_octets += octets;
                }
                user.elsewhere.push(Elsewhere { server, report, expires });
            }
            Some(_) => changed = false,
            None => {}
        }
        user.ended = ended;
        let mut watchers = user.watchers.clone();
        watchers.retain(|watcher| changed && *watcher != OTHER_SERVERS);
        self.drop_empty(aor);
        watchers
    }

    fn local(&self, now: Time, aor: &[u8], is_registered: bool) -> (UserState, Option<Time>) {
        let Some(user) = self.users.get(aor) else {
            return (UserState { is_registered, ..UserState::default() }, None);
        };
        let calls = user.calls.iter().map(|&index| &self.calls[index]);
        let calls = calls.filter(|call| is_registered && call.is_live(now));
        let published = || user.published.iter().filter(|published| published.expires > now);
        let next = calls.clone().map(|call| call.since + MAX_CALL);
        let next = next.chain(published().map(|published| published.expires)).min();
        let state = UserState {
            is_registered,
            dialogs: calls.filter_map(|call| call.dialog_of(aor)).take(MAX_DIALOGS).collect(),
            publications: published().map(|published| published.publication.clone()).collect(),
        };
        (state, next)
    }

    fn drop_empty(&mut self, aor: &[u8]) {
        if self.users.get(aor).is_some_and(User::is_empty) {
            self.users.remove(aor);
        }
    }
}

/// Returns a user with those who watch it, if anybody does.
fn party_of(user: &User, aor: &Arc<[u8]>) -> Option<(Arc<[u8]>, Watchers)> {
    (!user.watchers.is_empty()).then(|| (aor.clone(), user.watchers.clone()))
}

#[cfg(test)]
mod tests;
