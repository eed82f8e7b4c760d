//! The table that the library translates addresses by, in memory that its processes map. They can only read it.

use ringway_with_wire::translation::{Key, NONE, OCTETS, ROWS, Row};
use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fchmod, fcntl_add_seals, ftruncate, memfd_create, open,
};
use rustix::io::pwrite;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Time after which a peer that is sent UDP is asked about again.
const PLAIN: Duration = Duration::from_secs(60);

struct Entry {
    row: usize,
    target: Option<SocketAddr>,
    since: Instant,
}

/// The table.
pub(super) struct Translations {
    /// To write to it.
    memory: OwnedFd,
    /// What the library gets.
    readable: OwnedFd,
    entries: BTreeMap<Key, Entry>,
    /// The key at each row that is in use.
    rows: Vec<Option<Key>>,
}

impl Translations {
    /// Returns an empty table.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn new() -> io::Result<Translations> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = memfd_create("ringway-with", flags)?;
        ftruncate(&memory, OCTETS as u64)?;
        // Another opening of the same file, which can be read and not written.
        let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
        let readable = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        // Processes that have dropped rights cannot open it once more to write (proc_pid_fd(5)), and nobody can cut it off
        // under the others.
        fchmod(&memory, Mode::RUSR)?;
        fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(Translations { memory, readable, entries: BTreeMap::new(), rows: vec![None; ROWS] })
    }

    /// Returns the descriptor for the library.
    pub(super) fn readable(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }

    /// Sets what an address stands for. Where there is no room, one that says nothing but UDP is dropped. Returns whether it
    /// is set.
    pub(super) fn set(&mut self, key: Key, target: Option<SocketAddr>) -> bool {
        let known = self.entries.get(&key).map(|entry| entry.row);
        let free = || key.rows().find(|row| self.rows[*row].is_none());
        let Some(row) = known.or_else(free).or_else(|| self.evict(&key)) else { return false };
        if self.write(row, &key.row(target)).is_err() {
            return false;
        }
        self.rows[row] = Some(key);
        self.entries.insert(key, Entry { row, target, since: Instant::now() });
        true
    }

    /// Returns what is set for a key.
    #[cfg(test)]
    pub(super) fn target(&self, key: &Key) -> Option<Option<SocketAddr>> {
        self.entries.get(key).map(|entry| entry.target)
    }

    /// Returns whether something other than UDP is set for a key.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.target.is_some())
    }

    /// Drops a row at which a key may be, and which says nothing but UDP: the oldest. Returns it.
    fn evict(&mut self, key: &Key) -> Option<usize> {
        let keys = key.rows().filter_map(|row| self.rows[row]);
        let plain = keys.filter_map(|key| {
            let entry = self.entries.get(&key)?;
            entry.target.is_none().then_some((entry.since, entry.row, key))
        });
        let (_, row, oldest) = plain.min_by_key(|(since, ..)| *since)?;
        self.entries.remove(&oldest);
        self.rows[row] = None;
        Some(row)
    }

    /// Drops what an address stands for.
    pub(super) fn remove(&mut self, key: &Key) {
        let Some(entry) = self.entries.remove(key) else { return };
        self.rows[entry.row] = None;
        // The file is of a fixed size in memory: writing to it does not fail once it has been written.
        let _ = self.write(entry.row, &NONE);
    }

    /// Drops all of a socket.
    pub(super) fn remove_socket(&mut self, socket: u64) {
        let over: Vec<Key> =
            self.entries.keys().filter(|key| key.socket == socket).copied().collect();
        over.iter().for_each(|key| self.remove(key));
    }

    /// Returns those that have said UDP for so long that the peer may have something else.
    pub(super) fn old(&self, now: Instant) -> Vec<Key> {
        let old = self.entries.iter().filter(|(_, entry)| {
            entry.target.is_none() && now.saturating_duration_since(entry.since) >= PLAIN
        });
        old.map(|(key, _)| *key).collect()
    }

    fn write(&self, row: usize, words: &Row) -> io::Result<()> {
        let octets: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        pwrite(&self.memory, &octets, (row * octets.len()) as u64)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_with_wire::translation::WORDS;
    use rustix::fs::fstat;
    use rustix::io::{Errno, pread};

    fn key(socket: u64, port: u16) -> Key {
        Key { socket, address: ([192, 0, 2, 1], port).into() }
    }

    /// Looks a key up as the library does.
    fn look_up(table: &Translations, key: Key) -> Option<Option<SocketAddr>> {
        key.rows().find_map(|row| {
            let mut octets = [0; WORDS * 8];
            pread(table.readable(), &mut octets, (row * WORDS * 8) as u64).unwrap();
            let word = |at: usize| u64::from_ne_bytes(octets[8 * at..][..8].try_into().unwrap());
            key.read(&std::array::from_fn(word))
        })
    }

    #[test]
    fn the_library_reads_what_is_set_and_cannot_write() {
        let mut table = Translations::new().unwrap();
        let proxy: SocketAddr = "127.82.0.1:9".parse().unwrap();
        assert!(table.set(key(1, 53), None) && table.set(key(2, 53), Some(proxy)));
        assert_eq!(look_up(&table, key(1, 53)), Some(None));
        assert_eq!(look_up(&table, key(2, 53)), Some(Some(proxy)));
        assert!(table.set(key(1, 53), Some(proxy)));
        assert_eq!(look_up(&table, key(1, 53)), Some(Some(proxy)));
        table.remove(&key(1, 53));
        assert_eq!(look_up(&table, key(1, 53)), None);
        assert!(pwrite(table.readable(), &[1], 0).is_err());
        // Root may open it all the same, so what others may do is looked up.
        assert_eq!(fstat(table.readable()).unwrap().st_mode & 0o777, 0o400);
        for octets in [0, 2 * OCTETS as u64] {
            assert_eq!(ftruncate(&table.memory, octets), Err(Errno::PERM));
        }
        table.set(key(1, 53), None);
        assert_eq!(table.old(Instant::now()), []);
        assert_eq!(table.old(Instant::now() + PLAIN), [key(1, 53)]);
    }

    #[test]
    fn peers_that_are_sent_udp_make_room_and_others_stay() {
        let mut table = Translations::new().unwrap();
        let proxy: SocketAddr = "127.82.0.1:9".parse().unwrap();
        for port in 1..=1_000 {
            assert!(table.set(key(1, port), Some(proxy)));
        }
        for socket in 2..2 + 4 * ROWS as u64 {
            assert!(table.set(key(socket, 1), None));
        }
        assert!(table.entries.len() <= ROWS);
        assert!((1..=1_000).all(|port| look_up(&table, key(1, port)) == Some(Some(proxy))));
    }
}
