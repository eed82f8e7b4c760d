//! The format of a backup, which `ringway backup` writes and `ringway restore` reads.
//!
//! ```text
//! backup := "ringway backup 1" LF row* end
//! row    := table(1)  length of key(2) key  length of value(4) value
//! end    := "e" number of rows(8) SHA-256 of all octets before the hash(32)
//! ```
//! Tables are `m` (keys and names of the server), `u` (users), `b` (bindings), `j` (changes of
//! bindings that are not in `b` yet, by number, in 8 octets). Numbers are little-endian. A backup
//! that is truncated or damaged is refused as a whole.

use sha2::{Digest, Sha256};
use std::io::{self, Read, Write};

const MAGIC: &[u8] = b"ringway backup 1\n";
const END: u8 = b'e';
/// Maximum length of a key: an address-of-record, or a realm and a name.
const MAX_KEY: usize = 2048;
/// Maximum length of a value: an entry of the journal.
const MAX_VALUE: usize = 64 << 20;
/// A row of any table in a backup: the table's letter, key, value.
pub(super) type Row<'a> = (u8, &'a [u8], &'a [u8]);

/// Contents of a backup.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BackupSummary {
    /// Users.
    pub users: u64,
    /// Addresses-of-record with bindings, without those that are only in the journal.
    pub records: u64,
    /// Rows of all tables.
    pub rows: u64,
    /// Octets.
    pub bytes: u64,
}

impl BackupSummary {
    fn count(&mut self, table: u8) {
        self.rows += 1;
        self.users += u64::from(table == b'u');
        self.records += u64::from(table == b'b');
    }
}

/// Hashes and counts the octets that are read or written.
struct Hashing<T> {
    inner: T,
    hash: Sha256,
    bytes: u64,
}

impl<T> Hashing<T> {
    fn new(inner: T) -> Self {
        Hashing { inner, hash: Sha256::new(), bytes: 0 }
    }

    fn note(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
    }
}

impl<W: Write> Hashing<W> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.note(bytes);
        self.inner.write_all(bytes)
    }
}

impl<R: Read> Hashing<R> {
    fn get(&mut self, out: &mut [u8]) -> io::Result<()> {
        self.inner.read_exact(out).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => invalid("is cut short"),
            _ => e,
        })?;
        self.note(out);
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut out = [0; N];
        self.get(&mut out)?;
        Ok(out)
    }

    fn run(&mut self, length: usize, max: usize, out: &mut Vec<u8>) -> io::Result<()> {
        if length > max {
            return Err(invalid("is damaged: a length is out of bounds"));
        }
        out.resize(length, 0);
        self.get(out)
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the backup {what}"))
}

/// Writes every row of a snapshot.
pub(super) fn write(
    each: impl FnOnce(&mut dyn FnMut(Row<'_>) -> io::Result<()>) -> io::Result<()>,
    out: &mut dyn Write,
) -> io::Result<BackupSummary> {
    let mut out = Hashing::new(out);
    let mut summary = BackupSummary::default();
    out.put(MAGIC)?;
    each(&mut |(table, key, value)| {
        summary.count(table);
        out.put(&[table])?;
        out.put(&(key.len() as u16).to_le_bytes())?;
        out.put(key)?;
        out.put(&(value.len() as u32).to_le_bytes())?;
        out.put(value)
    })?;
    out.put(&[END])?;
    out.put(&summary.rows.to_le_bytes())?;
    let hash = out.hash.clone().finalize();
    out.put(&hash)?;
    out.inner.flush()?;
    Ok(BackupSummary { bytes: out.bytes, ..summary })
}

/// Reads a backup and visits each row. Octets after its end are not read.
///
/// # Errors
/// Fails when the input is not a backup, or is damaged or truncated. The visited rows must then be
/// discarded.
pub(super) fn read(
    from: &mut dyn Read,
    visit: &mut dyn FnMut(Row<'_>) -> io::Result<()>,
) -> io::Result<BackupSummary> {
    let mut from = Hashing::new(from);
    let mut summary = BackupSummary::default();
    let magic = from.array::<{ MAGIC.len() }>();
    if magic.map_or(true, |magic| magic != *MAGIC) {
        return Err(invalid("is none of this version of ringway"));
    }
    let (mut key, mut value) = (Vec::new(), Vec::new());
    loop {
        let [table] = from.array()?;
        if table == END {
            break;
        }
        let length = u16::from_le_bytes(from.array()?);
        from.run(length.into(), MAX_KEY, &mut key)?;
        let length = u32::from_le_bytes(from.array()?);
        from.run(length as usize, MAX_VALUE, &mut value)?;
        summary.count(table);
        visit((table, &key, &value))?;
    }
    let rows = u64::from_le_bytes(from.array()?);
    let expected = from.hash.clone().finalize();
    let hash = from.array::<32>()?;
    if rows != summary.rows || hash[..] != expected[..] {
        return Err(invalid("is damaged: its checksum does not fit"));
    }
    Ok(BackupSummary { bytes: from.bytes, ..summary })
}

/// Copies a backup and checks it.
///
/// # Errors
/// Fails when the backup is damaged or truncated, or cannot be written. The output must then be
/// discarded.
pub fn copy_backup(from: &mut dyn Read, to: &mut dyn Write) -> io::Result<BackupSummary> {
    struct Tee<'a>(&'a mut dyn Read, &'a mut dyn Write);
    impl Read for Tee<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let got = self.0.read(out)?;
            self.1.write_all(&out[..got])?;
            Ok(got)
        }
    }
    let summary = read(&mut Tee(from, to), &mut |_| Ok(()))?;
    to.flush()?;
    Ok(summary)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backup() -> Vec<u8> {
        let mut out = Vec::new();
        let rows: [Row<'_>; 3] =
            [(b'm', b"format", b"1"), (b'u', b"a\0b", b""), (b'b', b"x", &[7; 300])];
        write(|visit| rows.into_iter().try_for_each(visit), &mut out).unwrap();
        out
    }

    #[test]
    fn a_backup_round_trips() {
        let bytes = backup();
        let mut rows = Vec::new();
        let summary = read(&mut &bytes[..], &mut |(table, key, value)| {
            rows.push((table, key.to_vec(), value.len()));
            Ok(())
        });
        let expected = BackupSummary { users: 1, records: 1, rows: 3, bytes: bytes.len() as u64 };
        assert_eq!(summary.unwrap(), expected);
        assert_eq!(rows[2], (b'b', b"x".to_vec(), 300));
        let mut copy = Vec::new();
        copy_backup(&mut &bytes[..], &mut copy).unwrap();
        assert_eq!(copy, bytes);
    }

    #[test]
    fn a_damaged_backup_is_refused() {
        let bytes = backup();
        for cut in 0..bytes.len() {
            assert!(read(&mut &bytes[..cut], &mut |_| Ok(())).is_err(), "cut at {cut}");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(read(&mut &damaged[..], &mut |_| Ok(())).is_err(), "damaged at {at}");
        }
    }
}
