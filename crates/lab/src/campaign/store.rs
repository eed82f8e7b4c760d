//! Results on disk, a line each, that survive whatever ends the program.
//!
//! A line holds its own check; it is written by one call and only ever added to. What a kill leaves
//! half-written, or a disk damages, is not counted, and is run again.

use crate::output::OutputError;
use fnv::FnvHasher;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::hash::Hasher;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

/// Longest line.
const MAX_LINE: u64 = 1 << 20;

/// Names one cell as one build of the program runs it.
pub(crate) type CellId = u64;
/// Figures by `FLOW.MEASURE`.
pub(crate) type Figures = BTreeMap<String, f64>;
/// Everything a file of results holds, by cell and replication.
pub(crate) type Known = BTreeMap<(CellId, u64), Figures>;

/// FNV-1a: finds what chance has changed, and names cells.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

/// The file results are added to.
#[derive(Debug)]
pub(crate) struct Store {
    file: File,
    path: PathBuf,
}

impl Store {
    /// Opens or makes the file and reads what is whole in it.
    pub(crate) fn open(path: &Path) -> Result<(Store, Known), OutputError> {
        let open = OpenOptions::new().read(true).append(true).create(true).open(path);
        let mut file = open.map_err(OutputError::file(path))?;
        let (known, ends_whole) = read(&file).map_err(OutputError::file(path))?;
        if !ends_whole {
            // A line that a kill cut short: what is added begins on a line of its own.
            file.write_all(b"\n").map_err(OutputError::file(path))?;
        }
        Ok((Store { file, path: path.into() }, known))
    }

    /// Reads what is whole in a file.
    pub(crate) fn load(path: &Path) -> Result<Known, OutputError> {
        let file = File::open(path).map_err(OutputError::file(path))?;
        Ok(read(&file).map_err(OutputError::file(path))?.0)
    }

    /// Adds a result.
    pub(crate) fn add(
        &mut self,
        cell: CellId,
        replication: u64,
        figures: &Figures,
    ) -> Result<(), OutputError> {
        let line = line(cell, replication, figures);
        self.file.write_all(line.as_bytes()).map_err(OutputError::file(&self.path))
    }

    /// Makes sure that a loss of power takes nothing either.
    pub(crate) fn sync(&self) -> Result<(), OutputError> {
        self.file.sync_data().map_err(OutputError::file(&self.path))
    }
}

fn line(cell: CellId, replication: u64, figures: &Figures) -> String {
    let mut text = format!("{cell:016x}\t{replication}");
    for (name, value) in figures {
        // The shortest text that is read as the same number again.
        text += &format!("\t{name}={value}");
    }
    format!("{:016x}\t{text}\n", hash(text.as_bytes()))
}

fn parse(line: &str) -> Option<((CellId, u64), Figures)> {
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

/// Every whole line, and whether the file ends with the end of one.
fn read(file: &File) -> std::io::Result<(Known, bool)> {
    let mut reader = BufReader::new(file);
    let mut known = Known::new();
    let mut bytes = Vec::new();
    let mut ends_whole = true;
    loop {
        bytes.clear();
        if reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut bytes)? == 0 {
            return Ok((known, ends_whole));
        }
        ends_whole = bytes.last() == Some(&b'\n');
        // A line that lacks no more than its end is whole by its check.
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
    fn what_was_added_is_known_again() {
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

    proptest! {
        /// Cut at any byte, as by a kill, or with any byte changed, as by a bad disk: what is still
        /// whole is known, nothing is known wrongly, and more can be added.
        #[test]
        fn damage_costs_the_lines_it_hits(cut in 0usize..600, at in 0usize..600, byte: u8) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("results.log");
            let text: String = (0..8).map(|i| line(i, i, &figures(i as f64 / 7.0))).collect();
            let mut bytes = text.into_bytes();
            let at = at % bytes.len();
            let kept = cut.min(at).min(bytes.len());
            let whole_before = bytes[..kept].iter().filter(|&&b| b == b'\n').count();
            bytes[at] = byte;
            bytes.truncate(cut);
            std::fs::write(&path, &bytes).unwrap();
            let (mut store, known) = Store::open(&path).unwrap();
            prop_assert!(known.len() >= whole_before);
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
