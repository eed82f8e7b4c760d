//! What outlives the process: users, registrations and keys, in one file.
//!
//! Reads never touch the file. Everything is loaded at start into tables in memory; a change goes to
//! memory at once and to the disk by way of `writer`. `docs/durability.md` says what that means
//! for a REGISTER. Read [`file`] for the tables on disk, `users` for who may call.

mod backup;
mod batch;
mod file;
mod users;
mod writer;

pub use backup::{BackupSummary, copy_backup};
pub use file::{CACHE_BYTES, StoreError};
pub(crate) use file::{Snapshot, StoreFile, could_be_made};
pub use users::{
    BadUser, Hashes, MAX_REALM, MAX_USER, MAX_USERS, PASSWORD_BYTES, UserTable, check_name,
    check_password,
};
pub use writer::{
    COMMIT_INTERVAL, CommitSink, MAX_JOURNAL, MAX_JOURNAL_BYTES, MAX_QUEUE, MAX_QUEUE_BYTES,
    WriterStats,
};

use crate::config::StoreKind;
use crate::host;
use crate::random;
use file::{Journal, Table};
use ringway_proxy::auth::Users;
use ringway_proxy::location::{BindingView, Bindings, MemoryStore, RecordEdit};
use ringway_sansio::{Flow, Time};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use writer::{Reopen, Writer};

/// What was found at start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Loaded {
    /// Users.
    pub users: usize,
    /// Bindings put back.
    pub contacts: usize,
    /// Location records whose bindings had all expired or were bound to a connection; removed.
    pub ended: usize,
    /// Users and location records that could not be read; left where they are.
    pub corrupt: usize,
    /// Bindings that would have lasted longer than any may now; shortened.
    pub shortened: usize,
}

/// Users, registrations and keys.
pub struct Store {
    users: Arc<UserTable>,
    location: Arc<MemoryStore>,
    secret: [u8; 32],
    domain: Option<String>,
    new: bool,
    writer: Option<Writer>,
    loaded: Loaded,
}

impl Store {
    /// Opens a store and loads it. `revive` returns the present flow that an earlier one means, as
    /// [`MemoryStore::load`] has it. A binding lasts at most `max_expires` from `now`: the clock, or
    /// the configuration, was another when it was made.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub fn open(
        kind: &StoreKind,
        now: Time,
        max_expires: Duration,
        revive: &mut dyn FnMut(&Flow) -> Option<Flow>,
    ) -> Result<Self, StoreError> {
        let key = random::bytes().map_err(|e| StoreError::Io("memory".into(), e))?;
        let StoreKind::Redb(path) = kind else {
            return Ok(Store {
                users: Arc::default(),
                location: Arc::new(MemoryStore::new(key)),
                secret: random::bytes().map_err(|e| StoreError::Io("memory".into(), e))?,
                domain: None,
                new: true,
                writer: None,
                loaded: Loaded::default(),
            });
        };
        let file = StoreFile::open(path, true)?;
        let again = path.clone();
        let lifetime = Lifetime { now, latest: now + max_expires };
        Store::load(file, key, lifetime, revive, Box::new(move || StoreFile::open(&again, false)))
    }

    fn load(
        file: StoreFile,
        key: [u8; 16],
        lifetime: Lifetime,
        revive: &mut dyn FnMut(&Flow) -> Option<Flow>,
        reopen: Reopen,
    ) -> Result<Self, StoreError> {
        let mut loaded = Loaded::default();
        let users = UserTable::default();
        load_users(&file, &users, &mut loaded)?;
        let mut writer = Writer::new();
        let location = MemoryStore::with_journal(key, Box::new(writer.appender()));
        load_bindings(&file, &location, lifetime, revive, &mut loaded)?;
        let domain = domain(&file)?;
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
        })
    }

    /// Who may register and call.
    pub fn users(&self) -> &Arc<UserTable> {
        &self.users
    }

    /// The registrations.
    pub fn location(&self) -> &Arc<MemoryStore> {
        &self.location
    }

    /// From which the keys of nonces, flow tokens and GRUUs are derived; the same after a restart.
    pub fn secret(&self) -> [u8; 32] {
        self.secret
    }

    /// Whether nobody has used it before.
    pub fn is_new(&self) -> bool {
        self.new
    }

    /// The name that the main domain was given when the store was new, if the configuration gave
    /// none then.
    pub fn domain(&self) -> Option<&str> {
        self.domain.as_deref()
    }

    /// What was found at start.
    pub fn loaded(&self) -> Loaded {
        self.loaded
    }

    /// What the writer counts; `None` when nothing is written.
    pub fn writer_stats(&self) -> Option<Arc<WriterStats>> {
        self.writer.as_ref().map(Writer::stats)
    }

    /// Names who is told of commits. Only the first call has an effect.
    pub fn set_commit_sink(&self, sink: CommitSink) {
        if let Some(writer) = &self.writer {
            writer.set_sink(sink);
        }
    }

    /// Writes what waits and ends the writer; later changes are refused.
    pub fn flush(&self) {
        if let Some(writer) = &self.writer {
            writer.stop();
        }
    }

    /// Remembers the name of the main domain.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn set_domain(&mut self, name: &str) -> Result<(), String> {
        self.write(Table::Meta, b"domain", Some(name.as_bytes()))?;
        self.domain = Some(name.to_owned());
        Ok(())
    }

    /// The store as it is once everything that waits now is committed.
    ///
    /// # Errors
    /// When nothing is written at all, or it cannot be.
    pub(crate) fn snapshot(&self) -> Result<Snapshot, String> {
        let writer = self.writer.as_ref();
        writer.ok_or("a store in memory has no backup")?.snapshot()
    }

    fn write(&self, table: Table, key: &[u8], value: Option<&[u8]>) -> Result<(), String> {
        match &self.writer {
            Some(writer) => writer.change(table, key, value),
            None => Ok(()),
        }
    }
}

/// Adding, changing and removing users, in a running server or in a store at rest.
pub trait UserStore {
    /// Makes a user, or gives one a new password. Returns whether the user is new.
    ///
    /// # Errors
    /// When there are too many, or it cannot be written; then nothing has changed.
    fn set_user(&self, user: &str, realm: &str, hashes: Hashes) -> Result<bool, String>;

    /// Removes a user. Returns whether there was one.
    ///
    /// # Errors
    /// When it cannot be written; then nothing has changed.
    fn remove_user(&self, user: &str, realm: &str) -> Result<bool, String>;

    /// Every user and realm, in order of realm and name.
    ///
    /// # Errors
    /// When it cannot be read.
    fn list_users(&self) -> Result<Vec<(String, String)>, String>;
}

impl UserStore for Store {
    fn set_user(&self, user: &str, realm: &str, hashes: Hashes) -> Result<bool, String> {
        let new = !self.users.exists(user.as_bytes(), realm.as_bytes());
        if new && self.users.len() >= MAX_USERS {
            return Err(format!("expected at most {MAX_USERS} users"));
        }
        let key = users::key(user.as_bytes(), realm.as_bytes());
        self.write(Table::Users, &key, Some(hashes.bytes()))?;
        self.users.put(user.as_bytes(), realm.as_bytes(), hashes);
        Ok(new)
    }

    fn remove_user(&self, user: &str, realm: &str) -> Result<bool, String> {
        self.write(Table::Users, &users::key(user.as_bytes(), realm.as_bytes()), None)?;
        Ok(self.users.take(user.as_bytes(), realm.as_bytes()))
    }

    fn list_users(&self) -> Result<Vec<(String, String)>, String> {
        Ok(self.users.list())
    }
}

/// A store file that no server has open: for changes of users while none runs.
pub struct RestingStore(StoreFile);

impl RestingStore {
    /// Opens a file that is there already.
    ///
    /// # Errors
    /// [`StoreError::Locked`] while a server runs on it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        StoreFile::open_existing(path, false).map(RestingStore)
    }

    /// Opens the file, or makes it. A store made here is not new to the server that starts on it
    /// later: whoever has made a user, and perhaps removed it, is not given others.
    ///
    /// # Errors
    /// As [`RestingStore::open`].
    pub fn open_or_make(path: &Path) -> Result<Self, StoreError> {
        let file = StoreFile::open(path, false)?;
        secret(&file)?;
        Ok(RestingStore(file))
    }

    /// Writes a backup of it.
    ///
    /// # Errors
    /// When it cannot be read, or written there.
    pub fn back_up(&self, out: &mut dyn Write) -> std::io::Result<BackupSummary> {
        self.0.snapshot().map_err(std::io::Error::other)?.write(out)
    }

    /// Whether there is such a user.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn has_user(&self, user: &str, realm: &str) -> Result<bool, String> {
        let key = users::key(user.as_bytes(), realm.as_bytes());
        Ok(self.0.get(Table::Users, &key).map_err(|e| e.to_string())?.is_some())
    }

    /// As [`Store::domain`].
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn domain(&self) -> Result<Option<String>, StoreError> {
        domain(&self.0)
    }

    /// As [`Store::set_domain`].
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn set_domain(&self, name: &str) -> Result<(), StoreError> {
        self.0.put(Table::Meta, b"domain", name.as_bytes())
    }
}

impl UserStore for RestingStore {
    fn set_user(&self, user: &str, realm: &str, hashes: Hashes) -> Result<bool, String> {
        let key = users::key(user.as_bytes(), realm.as_bytes());
        let text = |e: StoreError| e.to_string();
        let new = self.0.get(Table::Users, &key).map_err(text)?.is_none();
        if new && self.0.len(Table::Users).map_err(text)? >= MAX_USERS as u64 {
            return Err(format!("expected at most {MAX_USERS} users"));
        }
        self.0.put(Table::Users, &key, hashes.bytes()).map_err(text)?;
        Ok(new)
    }

    fn remove_user(&self, user: &str, realm: &str) -> Result<bool, String> {
        let key = users::key(user.as_bytes(), realm.as_bytes());
        let text = |e: StoreError| e.to_string();
        let was = self.0.get(Table::Users, &key).map_err(text)?.is_some();
        // Whoever may no longer register is no longer called.
        let aor = format!("sip:{user}@{realm}");
        let changes: [(Table, &[u8], _); 2] =
            [(Table::Users, &key, None), (Table::Bindings, aor.as_bytes(), None)];
        self.0.apply(Journal::Keep, changes.into_iter()).map_err(text)?;
        Ok(was)
    }

    fn list_users(&self) -> Result<Vec<(String, String)>, String> {
        let mut out = Vec::new();
        self.0
            .each(Table::Users, &mut |key, _| {
                out.extend(users::from_key(key).map(|(u, r)| (u.to_owned(), r.to_owned())));
            })
            .map_err(|e| e.to_string())?;
        Ok(out)
    }
}

/// Makes a store of a backup, in place of the one at `path` if `replace` is set. It appears whole or
/// not at all.
///
/// # Errors
/// When the backup is damaged, a server has the store open, or there is one and it must stay.
pub fn restore(
    from: &mut dyn Read,
    path: &Path,
    replace: bool,
) -> Result<BackupSummary, StoreError> {
    let io = |e: std::io::Error| StoreError::Io(path.to_owned(), e);
    // Held until the new one is in its place. A damaged store may be replaced.
    let _old = match replace && path.exists() {
        true => match StoreFile::open_existing(path, false) {
            Err(e @ StoreError::Locked(_)) => return Err(e),
            opened => opened.ok(),
        },
        false => None,
    };
    if !replace && path.exists() {
        return Err(io(std::io::ErrorKind::AlreadyExists.into()));
    }
    let directory = file::directory_of(path);
    host::make_private_directory(directory).map_err(io)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".restoring");
    let new = path.with_file_name(name);
    // Left by a restore that was killed.
    match std::fs::remove_file(&new) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(io(e)),
        _ => {}
    }
    let placed = backup::restore(from, &new).and_then(|summary| {
        match replace {
            true => std::fs::rename(&new, path),
            // Unlike a rename, a link does not replace what has appeared meanwhile.
            false => std::fs::hard_link(&new, path),
        }
        .map_err(io)?;
        Ok(summary)
    });
    // Gone already where it was renamed.
    let _ = std::fs::remove_file(&new);
    let summary = placed?;
    File::open(directory).and_then(|d| d.sync_all()).map_err(io)?;
    Ok(summary)
}

fn domain(file: &StoreFile) -> Result<Option<String>, StoreError> {
    Ok(file.get(Table::Meta, b"domain")?.and_then(|d| String::from_utf8(d).ok()))
}

/// The secret, and whether it was made now.
fn secret(file: &StoreFile) -> Result<([u8; 32], bool), StoreError> {
    if let Some(secret) = file.get(Table::Meta, b"secret")?.and_then(|s| s.try_into().ok()) {
        return Ok((secret, false));
    }
    let secret: [u8; 32] =
        random::bytes().map_err(|e| StoreError::Io(file.path().to_owned(), e))?;
    file.put(Table::Meta, b"secret", &secret)?;
    Ok((secret, true))
}

fn load_users(file: &StoreFile, table: &UserTable, loaded: &mut Loaded) -> Result<(), StoreError> {
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

/// When bindings that are loaded may end.
#[derive(Clone, Copy)]
struct Lifetime {
    now: Time,
    latest: Time,
}

impl Lifetime {
    /// Writes into `out` a record whose bindings end at the latest allowed. Returns how many had to be
    /// shortened; `out` means nothing if that is none.
    fn shorten(self, record: &[u8], out: &mut Vec<u8>) -> usize {
        let over = |b: &BindingView<'_>| b.expires > self.latest;
        let shortened = Bindings::new(record, self.now).filter(over).count();
        if shortened > 0 {
            out.clear();
            let mut edit = RecordEdit::new(&[], self.now, out);
            for binding in Bindings::new(record, self.now) {
                let expires = binding.expires.min(self.latest);
                // No larger than what it replaces.
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
    loaded: &mut Loaded,
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
    loaded.ended = changes.iter().filter(|(_, record)| record.is_none()).count();
    if !changes.is_empty() {
        let changes = changes.iter().map(|(aor, r)| (Table::Bindings, &aor[..], r.as_deref()));
        file.apply(Journal::Keep, changes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
