//! Restoring a store from a backup.

use super::backup::{self, BackupSummary};
use super::file::{StoreError, StoreFile, directory_of};
use crate::host;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// A row that waits for its transaction.
type OwnedRow = (u8, Box<[u8]>, Box<[u8]>);

/// Maximum number of rows, and of their octets, in one transaction of a restore.
const GROUP: (usize, usize) = (10_000, 16 << 20);

/// Creates a store from a backup. If `replace` is set, it replaces an existing one at `path`. The
/// new store appears complete or not at all.
///
/// # Errors
/// Fails when the backup is damaged, when a server has the store open, or when a store exists and
/// `replace` is not set.
pub fn restore(
    from: &mut dyn Read,
    path: &Path,
    replace: bool,
) -> Result<BackupSummary, StoreError> {
    let io = |e: io::Error| StoreError::Io(path.to_owned(), e);
    // The lock is held until the new store is in place. A damaged store may be replaced.
    let _old = match replace && path.exists() {
        true => match StoreFile::open_existing(path, false) {
            Err(e @ StoreError::Locked(_)) => return Err(e),
            opened => opened.ok(),
        },
        false => None,
    };
    if !replace && path.exists() {
        return Err(io(io::ErrorKind::AlreadyExists.into()));
    }
    let directory = directory_of(path);
    host::create_private_directory(directory).map_err(io)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".restoring");
    let new = path.with_file_name(name);
    // A file left by a restore that was killed.
    match fs::remove_file(&new) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(io(e)),
        _ => {}
    }
    let placed = fill(from, &new).and_then(|summary| {
        match replace {
            true => fs::rename(&new, path),
            // Unlike a rename, a link does not replace a file that was created meanwhile.
            false => fs::hard_link(&new, path),
        }
        .map_err(io)?;
        Ok(summary)
    });
    // After a rename the file is gone already.
    let _ = fs::remove_file(&new);
    let summary = placed?;
    File::open(directory).and_then(|d| d.sync_all()).map_err(io)?;
    Ok(summary)
}

/// Creates a store file from a backup; the file must not exist.
///
/// # Errors
/// Fails when the backup is damaged or the file cannot be written. The file must then be discarded.
fn fill(from: &mut dyn Read, path: &Path) -> Result<BackupSummary, StoreError> {
    let io = |e: io::Error| StoreError::Io(path.to_owned(), e);
    let file = StoreFile::create_empty(path)?;
    let mut rows: Vec<OwnedRow> = Vec::new();
    let mut octets = 0;
    let put = |rows: &mut Vec<OwnedRow>| {
        let result =
            file.put_rows(rows.iter().map(|(table, key, value)| (*table, &**key, &**value)));
        rows.clear();
        result
    };
    let summary = backup::read(from, &mut |(table, key, value)| {
        octets += key.len() + value.len();
        rows.push((table, key.into(), value.into()));
        if rows.len() >= GROUP.0 || octets >= GROUP.1 {
            octets = 0;
            put(&mut rows).map_err(io::Error::other)?;
        }
        Ok(())
    });
    let summary = summary.map_err(io)?;
    put(&mut rows)?;
    drop(file);
    // Checks the format, and applies the entries of the journal to the tables.
    StoreFile::open_existing(path, true)?;
    Ok(summary)
}
