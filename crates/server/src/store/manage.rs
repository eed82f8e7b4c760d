//! Changes of users: in a running server, in a file that no server has open, and of what a server mirrors of a database.

use super::file::{Journal, StoreError, StoreFile};
use super::table::Table;
use super::users::{self, HashedUser, Hashes};
use super::writer::Values;
use super::{BackupSummary, MAX_USERS, Store, assigned, domain, numbers_kept, secret};
use crate::users::shared::{Change, Changed, Expected};
use ringway_proxy::auth::Users;
use ringway_proxy::location::{CommitTag, LocationStore};
use ringway_sansio::Time;
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

/// Checks that users may be added: `exists` returns whether there is one with that name, `count` is the number of users.
/// Returns those that are new, by their index.
fn new_users(
    users: &[HashedUser],
    replace: bool,
    count: usize,
    exists: &dyn Fn(&HashedUser) -> Result<bool, String>,
) -> Result<Vec<usize>, String> {
    let mut new = Vec::new();
    for (index, user) in users.iter().enumerate() {
        match exists(user)? {
            true if !replace => {
                return Err(format!("user {}@{} exists already", user.user, user.realm));
            }
            true => {}
            false => new.push(index),
        }
    }
    if count + new.len() > MAX_USERS {
        return Err(format!("expected at most {MAX_USERS} users"));
    }
    Ok(new)
}

/// Returns the rows of users, in the order of their keys.
fn rows(users: &[HashedUser]) -> Values {
    let row = |user: &HashedUser| {
        let key = users::key(user.user.as_bytes(), user.realm.as_bytes());
        (key, Some(user.hashes.bytes().to_vec()))
    };
    let mut rows: Values = users.iter().map(row).collect();
    rows.sort_unstable();
    rows
}

/// Adds, changes and removes users, in a running server or in a store file without a server.
pub trait UserStore {
    /// Adds a user, or changes the password of an existing one. Returns whether the user is new.
    ///
    /// # Errors
    /// Fails without a change when there are too many users, or the change cannot be written.
    fn set_user(&self, user: &str, realm: &str, hashes: Hashes) -> Result<bool, String>;

    /// Adds users in one transaction. Returns how many of them are reported to a mesh at the next start only, for want of room.
    /// With `replace`, those that exist get the new hashes.
    ///
    /// # Errors
    /// Fails without a change when one exists and `replace` is not set, when there are too many users, or when the change
    /// cannot be written.
    fn set_users(&self, users: Vec<HashedUser>, replace: bool) -> Result<usize, String>;

    /// Removes a user. Returns whether it existed.
    ///
    /// # Errors
    /// Fails without a change when it cannot be written.
    fn remove_user(&self, user: &str, realm: &str) -> Result<bool, String>;

    /// Returns every user and realm, ordered by realm and name.
    ///
    /// # Errors
    /// Fails when the users cannot be read.
    fn list_users(&self) -> Result<Vec<(String, String)>, String>;

    /// Returns the short numbers of users, by the user with its domain.
    ///
    /// # Errors
    /// Fails when they cannot be read.
    fn list_numbers(&self) -> Result<HashMap<Box<str>, Box<str>>, String>;
}

impl Store {
    /// Takes over what a database has of users, in memory. A removed user may no longer be called.
    pub(crate) fn mirror(&self, set: &[HashedUser], removed: &[(String, String)], now: Time) {
        for HashedUser { user, realm, hashes } in set {
            self.users.put(user.as_bytes(), realm.as_bytes(), hashes.clone());
        }
        for (user, realm) in removed {
            if self.users.take(user.as_bytes(), realm.as_bytes()) {
                self.withdraw(user, realm, now);
            }
        }
    }

    /// Writes what was mirrored into the file, and waits until it is durable. A worker must not call it.
    pub(crate) fn save_mirrored(&self, users: &[(String, String)]) -> Result<(), String> {
        let Some(writer) = &self.writer else { return Ok(()) };
        let row = |(user, realm): &(String, String)| {
            let (user, realm) = (user.as_bytes(), realm.as_bytes());
            let hashes = self.users.get(user, realm);
            (users::key(user, realm), hashes.map(|hashes| hashes.bytes().to_vec()))
        };
        let mut rows: Values = users.iter().map(row).collect();
        rows.sort_unstable();
        writer.change_all(Table::Users, rows)
    }

    /// Removes the registrations of a user, who may no longer be called.
    pub(crate) fn withdraw(&self, user: &str, realm: &str, now: Time) {
        let aor = format!("sip:{user}@{realm}");
        // The worker of this tag does not exist: no worker waits for the change to be durable.
        let tag = CommitTag { worker: u8::MAX, id: 0 };
        self.location.update(aor.as_bytes(), now, tag, &mut |edit| edit.commit());
    }
}

impl UserStore for Store {
    fn set_user(&self, user: &str, realm: &str, hashes: Hashes) -> Result<bool, String> {
        if let Some(shared) = self.shared() {
            let new = !self.users.exists(user.as_bytes(), realm.as_bytes());
            let (user, realm) = (user.to_owned(), realm.to_owned());
            let set = vec![HashedUser { user, realm, hashes }];
            return shared.change(Change::Put(set, Expected::Any)).map(|_| new);
        }
        let new = !self.users.exists(user.as_bytes(), realm.as_bytes());
        if new && self.users.len() >= MAX_USERS {
            return Err(format!("expected at most {MAX_USERS} users"));
        }
        let key = users::key(user.as_bytes(), realm.as_bytes());
        self.write(Table::Users, &key, Some(hashes.bytes()))?;
        self.users.put(user.as_bytes(), realm.as_bytes(), hashes);
        if let Some(numbers) = self.numbers.get().filter(|_| new) {
            numbers.add(user, realm);
        }
        if !self.state_account(user, realm) {
            return Err("the user is added, and the mesh learns of it at the next start".into());
        }
        Ok(new)
    }

    fn set_users(&self, users: Vec<HashedUser>, replace: bool) -> Result<usize, String> {
        if let Some(shared) = self.shared() {
            let expected = if replace { Expected::Any } else { Expected::New };
            return shared.change(Change::Put(users, expected))?.done().map(|()| 0);
        }
        let exists = |u: &HashedUser| Ok(self.users.exists(u.user.as_bytes(), u.realm.as_bytes()));
        let new = new_users(&users, replace, self.users.len(), &exists)?;
        if let Some(writer) = &self.writer {
            writer.change_all(Table::Users, rows(&users))?;
        }
        for HashedUser { user, realm, hashes } in &users {
            self.users.put(user.as_bytes(), realm.as_bytes(), hashes.clone());
        }
        if let Some(numbers) = self.numbers.get() {
            new.iter().for_each(|i| numbers.add(&users[*i].user, &users[*i].realm));
        }
        Ok(users.iter().filter(|u| !self.state_account(&u.user, &u.realm)).count())
    }

    fn remove_user(&self, user: &str, realm: &str) -> Result<bool, String> {
        if let Some(shared) = self.shared() {
            let changed = shared.change(Change::Remove(user.to_owned(), realm.to_owned()))?;
            return Ok(matches!(changed, Changed::Done(_)));
        }
        self.write(Table::Users, &users::key(user.as_bytes(), realm.as_bytes()), None)?;
        if let Some(exchange) = self.others.exchange()
            && !exchange.world().remove_account(user, realm)
        {
            return Err("the user is removed, and the mesh learns of it at the next start".into());
        }
        let removed = self.users.take(user.as_bytes(), realm.as_bytes());
        if let Some(numbers) = self.numbers.get() {
            numbers.remove(user, realm);
        }
        Ok(removed)
    }

    fn list_users(&self) -> Result<Vec<(String, String)>, String> {
        Ok(self.users.list())
    }

    fn list_numbers(&self) -> Result<HashMap<Box<str>, Box<str>>, String> {
        Ok(self.numbers.get().map(|numbers| numbers.all()).unwrap_or_default())
    }
}

/// A store file that no server has open, for changes of users while none runs.
pub struct OfflineStore(StoreFile);

impl OfflineStore {
    /// Opens an existing file.
    ///
    /// # Errors
    /// [`StoreError::Locked`] while a server runs on it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        StoreFile::open_existing(path, false).map(OfflineStore)
    }

    /// Opens or creates the file. A store created here is not new to the server that starts on it
    /// later, so no users are created there: the operator has already added users, and perhaps
    /// removed them.
    ///
    /// # Errors
    /// As [`OfflineStore::open`].
    pub fn open_or_create(path: &Path) -> Result<Self, StoreError> {
        let file = StoreFile::open(path, false)?;
        secret(&file)?;
        Ok(OfflineStore(file))
    }

    /// Writes a backup.
    ///
    /// # Errors
    /// Fails when the store cannot be read, or the output cannot be written.
    pub fn back_up(&self, out: &mut dyn Write) -> std::io::Result<BackupSummary> {
        self.0.snapshot().map_err(std::io::Error::other)?.write(out)
    }

    /// Returns whether a user exists.
    ///
    /// # Errors
    /// Fails when the store cannot be read.
    pub fn has_user(&self, user: &str, realm: &str) -> Result<bool, String> {
        let key = users::key(user.as_bytes(), realm.as_bytes());
        Ok(self.0.get(Table::Users, &key).map_err(|e| e.to_string())?.is_some())
    }

    /// Returns the stored name of the main domain, as [`Store::domain`].
    ///
    /// # Errors
    /// Fails when it cannot be read.
    pub fn domain(&self) -> Result<Option<String>, StoreError> {
        domain(&self.0)
    }

    /// Stores the name of the main domain, as [`Store::set_domain`].
    ///
    /// # Errors
    /// Fails when it cannot be written.
    pub fn set_domain(&self, name: &str) -> Result<(), StoreError> {
        self.0.put(Table::Meta, b"domain", name.as_bytes())
    }
}

impl UserStore for OfflineStore {
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

    fn set_users(&self, users: Vec<HashedUser>, replace: bool) -> Result<usize, String> {
        let text = |e: StoreError| e.to_string();
        let count = usize::try_from(self.0.len(Table::Users).map_err(text)?).unwrap_or(usize::MAX);
        new_users(&users, replace, count, &|u| self.has_user(&u.user, &u.realm))?;
        let rows = rows(&users);
        let changes = rows.iter().map(|(key, value)| (Table::Users, &key[..], value.as_deref()));
        self.0.apply(Journal::Unchanged, changes).map_err(text)?;
        Ok(0)
    }

    fn remove_user(&self, user: &str, realm: &str) -> Result<bool, String> {
        let key = users::key(user.as_bytes(), realm.as_bytes());
        let text = |e: StoreError| e.to_string();
        let was = self.0.get(Table::Users, &key).map_err(text)?.is_some();
        // A removed user may no longer be called.
        let aor = format!("sip:{user}@{realm}");
        let changes: [(Table, &[u8], _); 2] =
            [(Table::Users, &key, None), (Table::Bindings, aor.as_bytes(), None)];
        self.0.apply(Journal::Unchanged, changes.into_iter()).map_err(text)?;
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

    fn list_numbers(&self) -> Result<HashMap<Box<str>, Box<str>>, String> {
        let kept = numbers_kept(&self.0).map_err(|e| e.to_string())?;
        // Of several identities that the router has had it is not known here which one it has now.
        Ok(match &kept[..] {
            [(_, octets)] => assigned(octets).into_iter().collect(),
            _ => HashMap::new(),
        })
    }
}
