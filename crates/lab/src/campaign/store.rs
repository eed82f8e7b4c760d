//! Results on disk, one per line, which survive a killed process.
//!
//! Each line has a checksum, is written by one call, and is only appended. A line that a kill
//! truncates, or a disk damages, does not count, and its replication runs again.
//!
//! The file is locked by flock(2) while a [`Store`] has it open: a second writer would lose what the
//! first one adds after it has read the file. [`Store::load`] takes no lock.

use crate::output::OutputError;
use fnv::FnvHasher;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::hash::Hasher;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Maximum length of a line.
const MAX_LINE: u64 = 1 << 20;
/// How often the file may be replaced between opening and locking it.
const MAX_REPLACED: usize = 8;

/// Id of a cell for one build of the program.
pub(crate) type CellId = u64;
/// Values of figures by `FLOW.MEASURE`.
pub(crate) type Figures = BTreeMap<String, f64>;
/// All results of a file, by cell and replication.
pub(crate) type KnownResults = BTreeMap<(CellId, u64), Figures>;

/// Returns the FNV-1a hash: detects accidental changes, and identifies cells.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

/// The file that results are appended to.
#[derive(Debug)]
pub(crate) struct Store {
    file: File,
    path: PathBuf,
}

impl Store {
    /// Opens or creates the file, locks it, and reads its valid lines.
    ///
    /// # Errors
    /// Another store has it open; the file cannot be read or written.
    pub(crate) fn open(path: &Path) -> Result<(Store, KnownResults), OutputError> {
        let mut file = open_locked(path).map_err(OutputError::file(path))?;
        let (known, ends_with_line_feed) = read(&file).map_err(OutputError::file(path))?;
        if !ends_with_line_feed {
            // A kill truncated the last line; the next result begins a new line.
            file.write_all(b"\n").map_err(OutputError::file(path))?;
        }
        Ok((Store { file, path: path.into() }, known))
    }

    /// Reads the valid lines of a file.
    pub(crate) fn load(path: &Path) -> Result<KnownResults, OutputError> {
        let file = File::open(path).map_err(OutputError::file(path))?;
        Ok(read(&file).map_err(OutputError::file(path))?.0)
    }

    /// Appends a result.
    pub(crate) fn add(
        &mut self,
        cell: CellId,
        replication: u64,
        figures: &Figures,
    ) -> Result<(), OutputError> {
        let line = line(cell, replication, figures);
        self.file.write_all(line.as_bytes()).map_err(OutputError::file(&self.path))
    }

    /// Writes the file anew, in the order of `cells` and of their replications, so that it does not
    /// depend on the order in which results came. Those of other cells come first.
    pub(crate) fn put_in_order(
        self,
        cells: &[CellId],
        known: &KnownResults,
    ) -> Result<(), OutputError> {
        let mut text = String::new();
        let positions: BTreeMap<CellId, usize> =
            cells.iter().enumerate().map(|(position, cell)| (*cell, position)).collect();
        let mut ordered: Vec<_> = known.iter().collect();
        ordered.sort_by_key(|((cell, replication), _)| (positions.get(cell), *cell, *replication));
        for ((cell, replication), figures) in ordered {
            text += &line(*cell, *replication, figures);
        }
        replace(&self.path, text.as_bytes()).map_err(OutputError::file(&self.path))
    }

    /// Writes the results to stable storage.
    pub(crate) fn sync(&self) -> Result<(), OutputError> {
        self.file.sync_data().map_err(OutputError::file(&self.path))
    }
}

/// Opens or creates a file, and locks it until it is closed.
fn open_locked(path: &Path) -> io::Result<File> {
    for _ in 0..MAX_REPLACED {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let what =
                    "expected a folder that no other sweep writes to, got one that is locked";
                return Err(io::Error::new(io::ErrorKind::WouldBlock, what));
            }
            // A file system without locks.
            Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => return Ok(file),
            Err(error) => return Err(error.into()),
        }
        // The last sweep may have replaced the file before it was locked here.
        let (locked, named) = (file.metadata()?, std::fs::metadata(path));
        if named.is_ok_and(|named| (named.dev(), named.ino()) == (locked.dev(), locked.ino())) {
            return Ok(file);
        }
    }
    let what =
        format!("expected a file that stays, got one that was replaced {MAX_REPLACED} times");
    Err(io::Error::other(what))
}

/// Replaces a file by one that is on stable storage before it has the name.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let mut file = File::create(&partial)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&partial, path)
}

pub(super) fn line(cell: CellId, replication: u64, figures: &Figures) -> String {
    let mut text = format!("{cell:016x}\t{replication}");
    for (name, value) in figures {
        // The shortest decimal text that parses back to the same number.
        text += &format!("\t{name}={value}");
    }
    format!("{:016x}\t{text}\n", hash(text.as_bytes()))
}

/// Returns the cell, the replication and the figures of a line; `None` if its checksum is wrong.
pub(crate) fn parse(line: &str) -> Option<((CellId, u64), Figures)> {
    let (check, text) = line.split_once('\t')?;
    if u64::from_str_radix(check, 16).ok()? != hash(text.as_bytes()) {
        return None;
    }
    let mut parts = text.split('\t');
    let cell = u64::from_str_radix(parts.next()?, 16).ok()?;
    let replication = parts.next()?.parse().ok()?;
    let figure = |part: &str| {
        let (name, value) = part.rsplit_once('=')?;
        Some((name.to_string(), value.parse().ok()?))
    };
    Some(((cell, replication), parts.map(figure).collect::<Option<Figures>>()?))
}

/// Returns every valid line, and whether the file ends with a line feed.
fn read(file: &File) -> io::Result<(KnownResults, bool)> {
    let mut reader = BufReader::new(file);
    let mut known = KnownResults::new();
    let mut bytes = Vec::new();
    let mut ends_with_line_feed = true;
    loop {
        bytes.clear();
        if reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut bytes)? == 0 {
            return Ok((known, ends_with_line_feed));
        }
        ends_with_line_feed = bytes.last() == Some(&b'\n');
        // A last line without line feed is valid if its checksum is.
        let text = std::str::from_utf8(&bytes).ok();
        if let Some((key, figures)) = text.and_then(|t| parse(t.strip_suffix('\n').unwrap_or(t))) {
            known.insert(key, figures);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn figures(value: f64) -> Figures {
        Figures::from([("f.delay_mean".to_string(), value), ("f.sent".to_string(), 7.0)])
    }

    #[test]
    fn an_added_result_is_loaded_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.log");
        let (mut store, known) = Store::open(&path).unwrap();
        assert!(known.is_empty());
        store.add(1, 0, &figures(0.1 + 0.2)).unwrap();
        store.add(u64::MAX, 3, &figures(1e-300)).unwrap();
        store.sync().unwrap();
        let known = Store::load(&path).unwrap();
        assert_eq!(known[&(1, 0)], figures(0.1 + 0.2));
        assert_eq!(known[&(u64::MAX, 3)], figures(1e-300));
    }

    #[test]
    fn a_second_writer_is_refused_until_the_first_one_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.log");
        let (mut store, _) = Store::open(&path).unwrap();
        let error = Store::open(&path).unwrap_err().to_string();
        let expected = "expected a folder that no other sweep writes to, got one that is locked";
        assert_eq!(error, format!("{}: {expected}", path.display()));
        store.add(1, 0, &figures(1.0)).unwrap();
        assert_eq!(Store::load(&path).unwrap().len(), 1);
        drop(store);
        let (store, known) = Store::open(&path).unwrap();
        store.put_in_order(&[1], &known).unwrap();
        assert_eq!(Store::open(&path).unwrap().1.len(), 1);
    }

    /// Of many writers that open, add and replace the file, none loses a result.
    #[test]
    fn a_file_that_is_replaced_meanwhile_is_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.log");
        let write = |cell: u64| {
            for replication in 0..50 {
                let (mut store, mut known) = loop {
                    match Store::open(&path) {
                        Ok(opened) => break opened,
                        Err(_) => std::thread::yield_now(),
                    }
                };
                store.add(cell, replication, &figures(0.5)).unwrap();
                known.insert((cell, replication), figures(0.5));
                store.put_in_order(&[], &known).unwrap();
            }
        };
        std::thread::scope(|scope| {
            for cell in 0..4 {
                let write = &write;
                scope.spawn(move || write(cell));
            }
        });
        assert_eq!(Store::load(&path).unwrap().len(), 200);
    }

    proptest! {
        /// Truncated at any byte, as by a kill, or with any byte changed, as by a disk error: valid
        /// lines are read, no wrong result is read, and more can be appended.
        #[test]
        fn damage_invalidates_only_the_lines_it_hits(cut in 0usize..600, at in 0usize..600, byte: u8) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("results.log");
            let text: String = (0..8).map(|i| line(i, i, &figures(i as f64 / 7.0))).collect();
            let mut bytes = text.into_bytes();
            let at = at % bytes.len();
            let valid_length = cut.min(at).min(bytes.len());
            let complete_lines = bytes[..valid_length].iter().filter(|&&b| b == b'\n').count();
            bytes[at] = byte;
            bytes.truncate(cut);
            std::fs::write(&path, &bytes).unwrap();
            let (mut store, known) = Store::open(&path).unwrap();
            prop_assert!(known.len() >= complete_lines);
            for ((cell, replication), found) in &known {
                prop_assert_eq!(cell, replication);
                prop_assert_eq!(found, &figures(*cell as f64 / 7.0));
            }
            let count = known.len();
            store.add(99, 99, &figures(9.0)).unwrap();
            let known = Store::load(&path).unwrap();
            prop_assert_eq!(known.len(), count + 1);
            prop_assert_eq!(&known[&(99, 99)], &figures(9.0));
        }
    }
}
