//! The redb file: how it is opened, loaded and changed in groups.
//!
//! Keys and values are opaque bytes here.

use super::backup::{self, BackupSummary, Row};
use super::batch::Batch;
use super::table::{BINDINGS, Bytes, FORMAT, JOURNAL, META, Table, USERS};
use crate::host;
use redb::backends::FileBackend;
use redb::{
    Database, DatabaseError, Durability, ReadTransaction, ReadableDatabase, ReadableTable,
    ReadableTableMetadata, StorageError, TableError,
};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Size of redb's page cache in bytes. Calls use the tables in memory; the cache only has to hold
/// the inner pages of the tree and the pages that one group of changes touches.
pub const CACHE_BYTES: usize = 16 << 20;

/// Reason why the store file cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process has it open.
    Locked(PathBuf),
    /// It is not a store of this program, or was written by a later version.
    Format(PathBuf, String),
    /// Its contents are damaged.
    Damaged(PathBuf, String),
    /// The system refuses access: no space, no permission, an I/O error.
    Io(PathBuf, io::Error),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Locked(path) => {
                write!(f, "store {}: in use by another process", path.display())
            }
            StoreError::Format(path, what) => write!(f, "store {}: {what}", path.display()),
            StoreError::Damaged(path, what) => {
                write!(f, "store {}: damaged: {what}", path.display())
            }
            StoreError::Io(path, e) => write!(f, "store {}: {e}", path.display()),
        }
    }
}

impl std::error::Error for StoreError {}

/// The effect of a transaction on the journal.
#[derive(Clone, Copy)]
pub(super) enum Journal<'j> {
    /// No change.
    Unchanged,
    /// Appends a group of changes under its number.
    Append(u64, &'j [u8]),
    /// Removes all entries: their changes are in this transaction, or are older than it.
    Clear,
}

/// The store as of one commit, while other transactions continue.
pub(crate) struct Snapshot {
    path: PathBuf,
    read: ReadTransaction,
}

impl Snapshot {
    /// Writes the whole store in the format of `backup`.
    pub(crate) fn write(&self, out: &mut dyn io::Write) -> io::Result<BackupSummary> {
        backup::write(|visit| self.each(visit), out)
    }

    fn each(&self, visit: &mut dyn FnMut(Row<'_>) -> io::Result<()>) -> io::Result<()> {
        let failed = |e: redb::Error| io::Error::other(format!("{}: {e}", self.path.display()));
        for (letter, table) in [(b'm', META), (b'u', USERS), (b'b', BINDINGS)] {
            let table = match self.read.open_table(table) {
                Ok(table) => table,
                Err(TableError::TableDoesNotExist(_)) => continue,
                Err(e) => return Err(failed(e.into())),
            };
            for pair in table.iter().map_err(|e| failed(e.into()))? {
                let (key, value) = pair.map_err(|e| failed(e.into()))?;
                visit((letter, key.value(), value.value()))?;
            }
        }
        let journal = match self.read.open_table(JOURNAL) {
            Ok(journal) => journal,
            Err(TableError::TableDoesNotExist(_)) => return Ok(()),
            Err(e) => return Err(failed(e.into())),
        };
        for entry in journal.iter().map_err(|e| failed(e.into()))? {
            let (number, changes) = entry.map_err(|e| failed(e.into()))?;
            visit((b'j', &number.value().to_le_bytes(), changes.value()))?;
        }
        Ok(())
    }
}

/// An open store file, whose journal is emptied on opening. Only one process can open it.
pub(crate) struct StoreFile {
    path: PathBuf,
    db: Database,
}

impl StoreFile {
    /// Opens or creates the file, readable by its owner only. A missing directory is created with
    /// mode 0700. With `verify`, every page is checked first.
    pub(super) fn open(path: &Path, verify: bool) -> Result<Self, StoreError> {
        let io = |e: io::Error| StoreError::Io(path.to_owned(), e);
        let directory = directory_of(path);
        host::create_private_directory(directory).map_err(io)?;
        let made =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
        match made {
            Ok(made) => host::chown_to_owner_of(directory, &made).map_err(io)?,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(io(e)),
        }
        let (file, fresh) = StoreFile::open_or_create_file(path, verify)?;
        if fresh {
            // The contents of the file are synchronized; its name is not until the directory is.
            File::open(directory).and_then(|d| d.sync_all()).map_err(io)?;
        }
        Ok(file)
    }

    /// Opens an existing file.
    pub(crate) fn open_existing(path: &Path, verify: bool) -> Result<Self, StoreError> {
        StoreFile::open_or_create_file(path, verify).map(|(file, _)| file)
    }

    fn open_or_create_file(path: &Path, verify: bool) -> Result<(Self, bool), StoreError> {
        let io = |e: io::Error| StoreError::Io(path.to_owned(), e);
        // redb creates a missing file, so its existence is tested before.
        let open = OpenOptions::new().read(true).write(true).open(path).map_err(io)?;
        let fresh = open.metadata().map_err(io)?.len() == 0;
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(verify && !fresh);
        let backend = FileBackend::new(open).map_err(|e| database_error(path, e))?;
        let db = builder.create_with_backend(backend).map_err(|e| database_error(path, e))?;
        Ok((StoreFile::from_database(path, db)?, fresh))
    }

    /// Wraps an open database.
    pub(super) fn from_database(path: &Path, db: Database) -> Result<Self, StoreError> {
        let file = StoreFile { path: path.to_owned(), db };
        file.check_format()?;
        file.replay()?;
        Ok(file)
    }

    /// Applies the journal entries that an earlier process left.
    fn replay(&self) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        {
            let read = self.db.begin_read().map_err(|e| self.error(e.into()))?;
            let journal = match read.open_table(JOURNAL) {
                Ok(journal) => journal,
                Err(TableError::TableDoesNotExist(_)) => return Ok(()),
                Err(e) => return Err(self.error(e.into())),
            };
            for entry in journal.iter().map_err(|e| self.error(e.into()))? {
                let (number, changes) = entry.map_err(|e| self.error(e.into()))?;
                batch.decode(changes.value()).ok_or_else(|| {
                    let what = format!("journal entry {} cannot be read", number.value());
                    StoreError::Damaged(self.path.clone(), what)
                })?;
            }
        }
        let mut order = Vec::new();
        batch.order(&mut order);
        self.apply(Journal::Clear, order.iter().map(|&i| batch.get(i)))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn check_format(&self) -> Result<(), StoreError> {
        match self.get(Table::Meta, b"format")? {
            Some(format) if format == FORMAT => Ok(()),
            Some(format) => {
                let what = format!(
                    "written by another version: expected format {}, got {}",
                    String::from_utf8_lossy(FORMAT),
                    String::from_utf8_lossy(&format)
                );
                Err(StoreError::Format(self.path.clone(), what))
            }
            None => self.put(Table::Meta, b"format", FORMAT),
        }
    }

    /// Returns a snapshot of the store.
    pub(crate) fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let read = self.db.begin_read().map_err(|e| self.error(e.into()))?;
        Ok(Snapshot { path: self.path.clone(), read })
    }

    /// Creates a file without tables, to be filled from a backup.
    pub(super) fn create_empty(path: &Path) -> Result<Self, StoreError> {
        let io = |e: io::Error| StoreError::Io(path.to_owned(), e);
        let mut options = OpenOptions::new();
        let made = options.read(true).write(true).create_new(true).mode(0o600).open(path);
        let made = made.map_err(io)?;
        host::chown_to_owner_of(directory_of(path), &made).map_err(io)?;
        let backend = FileBackend::new(made).map_err(|e| database_error(path, e))?;
        let mut builder = Database::builder();
        let db = builder.set_cache_size(CACHE_BYTES).create_with_backend(backend);
        Ok(StoreFile { path: path.to_owned(), db: db.map_err(|e| database_error(path, e))? })
    }

    /// Inserts rows of a backup, durably.
    pub(super) fn put_rows<'a>(
        &self,
        rows: impl Iterator<Item = Row<'a>>,
    ) -> Result<(), StoreError> {
        let write = self.db.begin_write().map_err(|e| self.error(e.into()))?;
        for (letter, key, value) in rows {
            let put = |table: Bytes| -> Result<(), redb::Error> {
                write.open_table(table)?.insert(key, value)?;
                Ok(())
            };
            let journal = || -> Result<(), redb::Error> {
                let number = key.try_into().map_or(0, u64::from_le_bytes);
                write.open_table(JOURNAL)?.insert(number, value)?;
                Ok(())
            };
            let done = match letter {
                b'm' => put(META),
                b'u' => put(USERS),
                b'b' => put(BINDINGS),
                b'j' => journal(),
                // The table belongs to a later version and is unknown here.
                _ => Err(redb::Error::Corrupted("the backup has an unknown table".to_owned())),
            };
            done.map_err(|e| self.error(e))?;
        }
        write.commit().map_err(|e| self.error(e.into()))
    }

    /// Returns one value.
    pub(super) fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let read = self.db.begin_read().map_err(|e| self.error(e.into()))?;
        match read.open_table(table.definition()) {
            Ok(table) => {
                let value = table.get(key).map_err(|e| self.error(e.into()))?;
                Ok(value.map(|v| v.value().to_vec()))
            }
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            Err(e) => Err(self.error(e.into())),
        }
    }

    /// Sets one value, durably.
    pub(super) fn put(&self, table: Table, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.apply(Journal::Unchanged, [(table, key, Some(value))].into_iter())
    }

    /// Returns the number of values in a table.
    pub(super) fn len(&self, table: Table) -> Result<u64, StoreError> {
        let read = self.db.begin_read().map_err(|e| self.error(e.into()))?;
        match read.open_table(table.definition()) {
            Ok(table) => table.len().map_err(|e| self.error(e.into())),
            Err(TableError::TableDoesNotExist(_)) => Ok(0),
            Err(e) => Err(self.error(e.into())),
        }
    }

    /// Visits every pair of a table in the order of its keys.
    pub(super) fn each(
        &self,
        table: Table,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), StoreError> {
        let read = self.db.begin_read().map_err(|e| self.error(e.into()))?;
        let table = match read.open_table(table.definition()) {
            Ok(table) => table,
            Err(TableError::TableDoesNotExist(_)) => return Ok(()),
            Err(e) => return Err(self.error(e.into())),
        };
        for pair in table.iter().map_err(|e| self.error(e.into()))? {
            let (key, value) = pair.map_err(|e| self.error(e.into()))?;
            visit(key.value(), value.value());
        }
        Ok(())
    }

    /// Applies a group of changes in one transaction. On success all are durable; on failure none
    /// is, and the file must be opened again before it is used.
    pub(super) fn apply<'c>(
        &self,
        journal: Journal<'_>,
        changes: impl Iterator<Item = (Table, &'c [u8], Option<&'c [u8]>)>,
    ) -> Result<(), StoreError> {
        let mut write = self.db.begin_write().map_err(|e| self.error(e.into()))?;
        write.set_durability(Durability::Immediate).map_err(|e| self.error(e.into()))?;
        {
            let mut users = None;
            let mut bindings = None;
            let mut grants = None;
            let mut numbers = None;
            let mut meta = None;
            for (table, key, value) in changes {
                let slot = match table {
                    Table::Users => &mut users,
                    Table::Bindings => &mut bindings,
                    Table::Grants => &mut grants,
                    Table::Numbers => &mut numbers,
                    Table::Meta => &mut meta,
                };
                let open = match slot {
                    Some(open) => open,
                    None => slot.insert(
                        write.open_table(table.definition()).map_err(|e| self.error(e.into()))?,
                    ),
                };
                let done = match value {
                    Some(value) => open.insert(key, value).map(drop),
                    None => open.remove(key).map(drop),
                };
                done.map_err(|e| self.error(e.into()))?;
            }
        }
        match journal {
            Journal::Unchanged => {}
            Journal::Append(number, changes) => {
                let mut journal = write.open_table(JOURNAL).map_err(|e| self.error(e.into()))?;
                journal.insert(number, changes).map_err(|e| self.error(e.into()))?;
            }
            Journal::Clear => {
                write.delete_table(JOURNAL).map_err(|e| self.error(e.into()))?;
            }
        }
        write.commit().map_err(|e| self.error(e.into()))
    }

    fn error(&self, e: redb::Error) -> StoreError {
        let path = self.path.clone();
        match e {
            redb::Error::Io(e) => StoreError::Io(path, e),
            redb::Error::PreviousIo => {
                StoreError::Io(path, io::Error::other("an earlier write failed"))
            }
            redb::Error::Corrupted(what) => StoreError::Damaged(path, what),
            other => StoreError::Damaged(path, other.to_string()),
        }
    }
}

/// Returns the directory of a path.
pub(super) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Checks that a store could be created at this path. Leaves no file behind.
pub(crate) fn check_creatable(path: &Path) -> Result<(), StoreError> {
    let io = |at: &Path, e: io::Error| StoreError::Io(at.to_owned(), e);
    let mut directory = directory_of(path);
    let found = loop {
        match fs::metadata(directory) {
            Ok(found) => break found,
            Err(e) if e.kind() == io::ErrorKind::NotFound && directory.parent().is_some() => {
                directory = directory_of(directory);
            }
            Err(e) => return Err(io(directory, e)),
        }
    };
    if !found.is_dir() {
        return Err(io(directory, io::ErrorKind::NotADirectory.into()));
    }
    host::check_creatable(&directory.join("probe")).map_err(|e| io(directory, e))
}

fn database_error(path: &Path, e: DatabaseError) -> StoreError {
    let path = path.to_owned();
    match e {
        DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => {
            StoreError::Locked(path)
        }
        DatabaseError::Storage(StorageError::Io(e)) if e.kind() == io::ErrorKind::InvalidData => {
            StoreError::Format(path, "not a redb file".to_owned())
        }
        DatabaseError::Storage(StorageError::Io(e)) => StoreError::Io(path, e),
        DatabaseError::Storage(StorageError::Corrupted(what)) => StoreError::Damaged(path, what),
        other => StoreError::Damaged(path, other.to_string()),
    }
}
