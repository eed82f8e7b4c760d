//! The persistent store: users, registrations and keys, in one file.
//!
//! Reads never touch the file. Everything is loaded into tables in memory at start. A change is
//! applied in memory at once and written to disk by `writer`. `docs/durability.md` describes the
//! consequences for a REGISTER. Read `table` for the tables on disk and `users` for the users.

mod backup;
mod batch;
mod file;
// Parts of it are for a database of users only.
#[cfg_attr(not(feature = "cluster"), allow(dead_code))]
mod manage;
mod restore;
mod table;
#[cfg_attr(not(feature = "cluster"), allow(dead_code))]
pub(crate) mod users;
mod writer;

pub use backup::{BackupSummary, copy_backup};
pub use file::{CACHE_BYTES, StoreError};
pub(crate) use file::{Snapshot, StoreFile, check_creatable};
pub use manage::{OfflineStore, UserStore};
pub use restore::restore;
pub use ringway_users::{
    BadUser, MAX_REALM, MAX_USER, MAX_USERS, PASSWORD_BYTES, check_name, check_password,
};
pub use users::{HashedUser, Hashes, UserTable};
pub use writer::{
    COMMIT_INTERVAL, CommitSink, MAX_JOURNAL, MAX_JOURNAL_BYTES, MAX_QUEUE, MAX_QUEUE_BYTES,
    WriterStats,
};

use crate::cluster;
use crate::cluster::Hub;
use crate::config::StoreKind;
use crate::mesh::Exchange;
use crate::numbers::{ShortNumbers, assigned};
use crate::random;
use crate::users::shared::SharedUsers;
use file::Journal;
use ringway_directory::{Account, Secret};
use ringway_onesip::{MeshJournal, secret_of};
use ringway_proxy::location as proxy;
use ringway_proxy::location::{BindingView, Bindings, MemoryStore, RecordEdit};
use ringway_sansio::{Flow, Time};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use table::Table;
use writer::{Reopen, Writer};

/// Counts of what was loaded at start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LoadSummary {
    /// Users.
    pub users: usize,
    /// Bindings that were restored.
    pub contacts: usize,
    /// Location records that were removed because their bindings had all expired or were bound to a
    /// connection.
    pub expired: usize,
    /// Users and location records that could not be read. They stay in the file.
    pub corrupt: usize,
    /// Bindings that were shortened because they exceeded the longest registration allowed now.
    pub shortened: usize,
}

/// What other servers are one with this one by.
#[derive(Clone, Default)]
pub enum Others {
    /// There are none.
    #[default]
    None,
    /// The directory of a mesh.
    Mesh(Arc<Exchange>),
    /// The database of a cluster.
    Cluster(Arc<Hub>),
}

impl Others {
    /// Returns the directory of a mesh.
    pub fn exchange(&self) -> Option<&Arc<Exchange>> {
        match self {
            Others::Mesh(exchange) => Some(exchange),
            Others::None | Others::Cluster(_) => None,
        }
    }

    /// Returns the database of a cluster.
    pub fn hub(&self) -> Option<&Arc<Hub>> {
        match self {
            Others::Cluster(hub) => Some(hub),
            Others::None | Others::Mesh(_) => None,
        }
    }

    /// Returns the table of registrations, above a disk if there is one.
    fn table(&self, key: [u8; 16], disk: Option<Box<dyn proxy::Journal>>) -> MemoryStore {
        match (self.clone(), disk) {
            (Others::Mesh(exchange), disk) => {
                MemoryStore::with_journal(key, Box::new(MeshJournal { exchange, disk }))
            }
            (Others::Cluster(hub), disk) => {
                MemoryStore::with_journal(key, cluster::journal(hub, disk))
            }
            (Others::None, Some(disk)) => MemoryStore::with_journal(key, disk),
            (Others::None, None) => MemoryStore::new(key),
        }
    }
}

/// Users, registrations and keys.
pub struct Store {
    users: Arc<UserTable>,
    location: Arc<MemoryStore>,
    secret: [u8; 32],
    domain: Option<String>,
    new: bool,
    writer: Option<Writer>,
    loaded: LoadSummary,
    /// Permissions of other homes, as they were kept: the user, and the octets.
    grants: Vec<(String, Vec<u8>)>,
    /// Learns of users that are added or removed, or registered.
    others: Others,
    /// Gives them short numbers.
    numbers: OnceLock<Arc<ShortNumbers>>,
    /// Where users are changed, if a database has them for all servers: here is what this one has read of them.
    shared: OnceLock<SharedUsers>,
    /// What the mesh is to know of a user is stated by one at a time: the last one has seen all changes before.
    stating: Mutex<()>,
    /// What a router remembers of short numbers, by its id, as it was kept.
    numbers_kept: Vec<Kept>,
}

/// An id, and octets that were kept under it.
type Kept = (Vec<u8>, Vec<u8>);

impl Store {
    /// Opens a store and loads it. `revive` maps a flow of an earlier process to one of this
    /// process, as for [`MemoryStore::load`]. A binding ends at most `max_expires` after `now`,
    /// because the clock or the configuration may have changed since it was made. With
    /// `others`, registrations are acknowledged when those have them too.
    ///
    /// # Errors
    /// Fails when the file cannot be used.
    pub fn open(
        kind: &StoreKind,
        now: Time,
        max_expires: Duration,
        revive: &mut dyn FnMut(&Flow) -> Option<Flow>,
        others: Others,
    ) -> Result<Self, StoreError> {
        let key = random::bytes().map_err(|e| StoreError::Io("memory".into(), e))?;
        let StoreKind::Redb(path) = kind else {
            return Ok(Store {
                users: Arc::default(),
                location: Arc::new(others.table(key, None)),
                secret: random::bytes().map_err(|e| StoreError::Io("memory".into(), e))?,
                domain: None,
                new: true,
                writer: None,
                loaded: LoadSummary::default(),
                grants: Vec::new(),
                others,
                numbers: OnceLock::new(),
                shared: OnceLock::new(),
                stating: Mutex::default(),
                numbers_kept: Vec::new(),
            });
        };
        let file = StoreFile::open(path, true)?;
        let again = path.clone();
        let lifetime = Lifetime { now, latest: now + max_expires };
        let reopen = Box::new(move || StoreFile::open(&again, false));
        Store::load(file, key, lifetime, revive, reopen, others)
    }

    fn load(
        file: StoreFile,
        key: [u8; 16],
        lifetime: Lifetime,
        revive: &mut dyn FnMut(&Flow) -> Option<Flow>,
        reopen: Reopen,
        others: Others,
    ) -> Result<Self, StoreError> {
        let mut loaded = LoadSummary::default();
        let users = UserTable::default();
        load_users(&file, &users, &mut loaded)?;
        let mut writer = Writer::new();
        let location = others.table(key, Some(Box::new(writer.appender())));
        load_bindings(&file, &location, lifetime, revive, &mut loaded)?;
        let domain = domain(&file)?;
        let mut grants = Vec::new();
        file.each(Table::Grants, &mut |name, octets| {
            grants.push((String::from_utf8_lossy(name).into_owned(), octets.to_vec()));
        })?;
        let numbers_kept = numbers_kept(&file)?;
        let (secret, new) = secret(&file)?;
        let path = file.path().to_owned();
        writer.start(file, reopen).map_err(|e| StoreError::Io(path, e))?;
        Ok(Store {
            users: Arc::new(users),
            location: Arc::new(location),
            secret,
            domain,
            new: new && loaded.users == 0,
            writer: Some(writer),
            loaded,
            grants,
            others,
            numbers: OnceLock::new(),
            shared: OnceLock::new(),
            stating: Mutex::default(),
            numbers_kept,
        })
    }

    /// Returns the table of users.
    pub fn users(&self) -> &Arc<UserTable> {
        &self.users
    }

    /// Returns the registrations.
    pub fn location(&self) -> &Arc<MemoryStore> {
        &self.location
    }

    /// Returns the secret from which the keys of nonces, flow tokens and GRUUs are derived; a
    /// restart does not change it.
    pub fn secret(&self) -> [u8; 32] {
        self.secret
    }

    /// Returns whether the store was created by this process.
    pub fn is_new(&self) -> bool {
        self.new
    }

    /// Returns the name that the main domain was given when the store was new, if the configuration
    /// did not name it then.
    pub fn domain(&self) -> Option<&str> {
        self.domain.as_deref()
    }

    /// Returns the counts of what was loaded at start.
    pub fn load_summary(&self) -> LoadSummary {
        self.loaded
    }

    /// Returns the counters of the writer; `None` for a store in memory.
    pub fn writer_stats(&self) -> Option<Arc<WriterStats>> {
        self.writer.as_ref().map(Writer::stats)
    }

    /// Sets the receiver of commit reports. Only the first call has an effect.
    pub fn set_commit_sink(&self, sink: CommitSink) {
        if let Some(writer) = &self.writer {
            writer.set_sink(sink);
        }
    }

    /// Writes the queued changes and ends the writer; later changes are refused.
    pub fn flush(&self) {
        if let Some(writer) = &self.writer {
            writer.stop();
        }
    }

    /// Stores the name of the main domain.
    ///
    /// # Errors
    /// Fails when it cannot be written.
    pub fn set_domain(&mut self, name: &str) -> Result<(), String> {
        self.write(Table::Meta, b"domain", Some(name.as_bytes()))?;
        self.domain = Some(name.to_owned());
        Ok(())
    }

    /// Returns the store as of the commit of all changes queued now.
    ///
    /// # Errors
    /// Fails for a store in memory, and when the file cannot be read.
    pub(crate) fn snapshot(&self) -> Result<Snapshot, String> {
        let writer = self.writer.as_ref();
        writer.ok_or("a store in memory has no backup")?.snapshot()
    }

    /// Returns every user with its realm, and what a mesh is to know of it.
    pub(crate) fn accounts(&self) -> Vec<(String, String, (Account, Secret))> {
        let users = self.users.list().into_iter();
        let with_account = |(user, realm): (String, String)| {
            let account = self.account(&user, &realm)?;
            Some((user, realm, account))
        };
        users.filter_map(with_account).collect()
    }

    /// Returns what a mesh is to know of a user, and what deputies of this server check its credentials with.
    pub(crate) fn account(&self, user: &str, realm: &str) -> Option<(Account, Secret)> {
        let hashes = self.users.get(user.as_bytes(), realm.as_bytes())?;
        let password_set = hashes.password_set();
        let number = self.number_of(user, realm).unwrap_or_default();
        let secret = secret_of(&*self.users, user, realm);
        Some((Account { password_set, number, ..Account::default() }, secret))
    }

    /// States what a mesh is to know of a user. Returns whether there was room; it is `true` without a mesh, or such a user.
    pub(crate) fn state_account(&self, user: &str, realm: &str) -> bool {
        let Some(exchange) = self.others.exchange() else { return true };
        let _alone = self.stating.lock().unwrap_or_else(PoisonError::into_inner);
        let account = self.account(user, realm);
        account.is_none_or(|account| exchange.world().set_account(user, realm, account))
    }

    /// Sets what gives users short numbers. Only the first call has an effect.
    pub(crate) fn set_numbers(&self, numbers: Arc<ShortNumbers>) {
        let _ = self.numbers.set(numbers);
    }

    /// Returns what gives users short numbers, if they have some.
    pub(crate) fn numbers(&self) -> Option<&Arc<ShortNumbers>> {
        self.numbers.get()
    }

    /// Sets where users are changed, if that is a database. Only the first call has an effect.
    pub(crate) fn set_shared(&self, shared: SharedUsers) {
        let _ = self.shared.set(shared);
    }

    /// Returns where users are changed, if that is a database.
    pub(crate) fn shared(&self) -> Option<&SharedUsers> {
        self.shared.get()
    }

    /// Returns the short number of a user.
    pub(crate) fn number_of(&self, user: &str, realm: &str) -> Option<Box<str>> {
        self.numbers.get()?.number_of(&format!("{user}@{realm}"))
    }

    /// Returns what the router with this id has kept of short numbers.
    pub(crate) fn numbers_kept(&self, router: u64) -> Option<&[u8]> {
        let key = router.to_be_bytes();
        self.numbers_kept.iter().find(|(of, _)| *of == key).map(|(_, octets)| &octets[..])
    }

    /// Keeps what a router remembers of short numbers, and waits until it is durable. A worker must not call it.
    pub(crate) fn keep_numbers(&self, router: u64, octets: &[u8]) -> Result<(), String> {
        self.write(Table::Numbers, &router.to_be_bytes(), Some(octets))
    }

    /// Returns the connection with the directory of users, if the server is a router of a mesh.
    pub(crate) fn exchange(&self) -> Option<&Arc<Exchange>> {
        self.others.exchange()
    }

    /// Returns the connection with the database of a cluster, if the server is a node of one.
    pub(crate) fn hub(&self) -> Option<&Arc<Hub>> {
        self.others.hub()
    }

    /// Returns the permissions of other homes that were kept.
    pub(crate) fn grants(&self) -> &[(String, Vec<u8>)] {
        &self.grants
    }

    /// Keeps a permission of another home, or removes it, without waiting.
    pub(crate) fn keep_grant(&self, name: &str, octets: Option<&[u8]>) {
        if let Some(writer) = &self.writer {
            writer.change_later(Table::Grants, name.as_bytes(), octets);
        }
    }

    /// Visits every address-of-record that has a binding.
    pub(crate) fn each_registered(&self, now: Time, visit: &mut dyn FnMut(&[u8])) {
        let (mut cursor, mut last) = (None, Vec::new());
        loop {
            cursor = self.location.list(cursor.as_ref(), 1_000, now, &mut |aor, _| {
                if last != aor {
                    last = aor.to_vec();
                    visit(aor);
                }
            });
            if cursor.is_none() {
                return;
            }
        }
    }

    fn write(&self, table: Table, key: &[u8], value: Option<&[u8]>) -> Result<(), String> {
        match &self.writer {
            Some(writer) => writer.change(table, key, value),
            None => Ok(()),
        }
    }
}

fn numbers_kept(file: &StoreFile) -> Result<Vec<Kept>, StoreError> {
    let mut kept = Vec::new();
    file.each(Table::Numbers, &mut |key, octets| kept.push((key.to_vec(), octets.to_vec())))?;
    Ok(kept)
}

fn domain(file: &StoreFile) -> Result<Option<String>, StoreError> {
    Ok(file.get(Table::Meta, b"domain")?.and_then(|d| String::from_utf8(d).ok()))
}

/// Returns the secret, and whether it was generated now.
fn secret(file: &StoreFile) -> Result<([u8; 32], bool), StoreError> {
    if let Some(secret) = file.get(Table::Meta, b"secret")?.and_then(|s| s.try_into().ok()) {
        return Ok((secret, false));
    }
    let secret: [u8; 32] =
        random::bytes().map_err(|e| StoreError::Io(file.path().to_owned(), e))?;
    file.put(Table::Meta, b"secret", &secret)?;
    Ok((secret, true))
}

fn load_users(
    file: &StoreFile,
    table: &UserTable,
    loaded: &mut LoadSummary,
) -> Result<(), StoreError> {
    file.each(Table::Users, &mut |key, value| match (
        users::from_key(key),
        Hashes::from_bytes(value),
    ) {
        (Some((user, realm)), Some(hashes)) => {
            table.put(user.as_bytes(), realm.as_bytes(), hashes);
            loaded.users += 1;
        }
        _ => loaded.corrupt += 1,
    })
}

/// Limits the expiry of bindings that are loaded.
#[derive(Clone, Copy)]
struct Lifetime {
    now: Time,
    latest: Time,
}

impl Lifetime {
    /// Writes into `out` the record with no binding ending after the limit. Returns the number of
    /// shortened bindings; if it is 0, `out` must not be used.
    fn shorten(self, record: &[u8], out: &mut Vec<u8>) -> usize {
        let over = |b: &BindingView<'_>| b.expires > self.latest;
        let shortened = Bindings::new(record, self.now).filter(over).count();
        if shortened > 0 {
            out.clear();
            let mut edit = RecordEdit::new(&[], self.now, out);
            for binding in Bindings::new(record, self.now) {
                let expires = binding.expires.min(self.latest);
                // The new binding is no larger than the one it replaces.
                let _ = edit.put(&BindingView { expires, ..binding });
            }
            edit.commit();
            edit.finish();
        }
        shortened
    }
}

/// A change to one record of the file.
type RecordChange = (Box<[u8]>, Option<Box<[u8]>>);

fn load_bindings(
    file: &StoreFile,
    location: &MemoryStore,
    lifetime: Lifetime,
    revive: &mut dyn FnMut(&Flow) -> Option<Flow>,
    loaded: &mut LoadSummary,
) -> Result<(), StoreError> {
    let mut changes: Vec<RecordChange> = Vec::new();
    let mut short = Vec::new();
    file.each(Table::Bindings, &mut |aor, record| {
        let shortened = lifetime.shorten(record, &mut short);
        let record = if shortened > 0 { &short[..] } else { record };
        match location.load(aor, record, lifetime.now, revive) {
            Ok(0) => changes.push((aor.into(), None)),
            Ok(n) => {
                loaded.contacts += n;
                loaded.shortened += shortened;
                if shortened > 0 {
                    changes.push((aor.into(), Some(record.into())));
                }
            }
            Err(_) => loaded.corrupt += 1,
        }
    })?;
    loaded.expired = changes.iter().filter(|(_, record)| record.is_none()).count();
    if !changes.is_empty() {
        let changes = changes.iter().map(|(aor, r)| (Table::Bindings, &aor[..], r.as_deref()));
        file.apply(Journal::Unchanged, changes)?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
