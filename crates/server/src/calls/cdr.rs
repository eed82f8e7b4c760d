//! Call records on disk: JSON lines, appended by a thread that no other thread waits for.
//!
//! A caller copies its record into a bounded buffer. Records are dropped and counted when the disk
//! is slower than the calls, or cannot be written. A reload opens the file again, so that it can be
//! rotated: rename it, then send SIGHUP.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::{error, info};

/// Maximum size of the records that wait for the disk, in bytes.
pub const MAX_BUFFERED_BYTES: usize = 4 << 20;
/// Delay after a failure before the file is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Maximum time that the end of the process waits for the last records to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Counters of the call records; any thread may read them at any time.
#[derive(Default, Debug)]
pub struct CdrCounters {
    /// Records written.
    pub written: AtomicU64,
    /// Records dropped because the disk is too slow or cannot be written.
    pub dropped: AtomicU64,
    /// Failures to open or write the file.
    pub failures: AtomicU64,
}

#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    records: u64,
    /// A request to open the file again: with a path, or with `None` to close it.
    reopen: Option<Option<PathBuf>>,
    stop: bool,
    done: bool,
}

#[derive(Default)]
struct Shared {
    buffer: Mutex<Buffer>,
    wake: Condvar,
    counters: CdrCounters,
    /// Whether call records are configured.
    enabled: AtomicBool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Buffer> {
        // Bytes are only appended, so the buffer is consistent even if another thread panicked.
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The file of call records. Clones share the same file.
#[derive(Clone)]
pub struct Cdr(Arc<Shared>);

/// Opens the file of call records for appending, readable by its owner and group.
///
/// # Errors
/// Fails when the file cannot be opened or created.
pub fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

impl Cdr {
    /// Starts the thread. Without a path it waits for a reload that configures one.
    ///
    /// # Errors
    /// Fails when the thread cannot be started.
    pub fn start(path: Option<PathBuf>) -> io::Result<Self> {
        let cdr = Cdr(Arc::default());
        cdr.reopen(path);
        let shared = cdr.0.clone();
        std::thread::Builder::new().name("cdr".into()).spawn(move || run(&shared))?;
        Ok(cdr)
    }

    /// Returns whether call records are configured.
    pub fn is_enabled(&self) -> bool {
        self.0.enabled.load(Relaxed)
    }

    /// Returns the counters.
    pub fn counters(&self) -> &CdrCounters {
        &self.0.counters
    }

    /// Appends a record: one line with its line feed. Copies the bytes and returns without waiting
    /// for the disk.
    pub fn append(&self, line: &[u8]) {
        let mut buffer = self.0.lock();
        if buffer.bytes.len() + line.len() > MAX_BUFFERED_BYTES {
            drop(buffer);
            self.0.counters.dropped.fetch_add(1, Relaxed);
            return;
        }
        buffer.bytes.extend_from_slice(line);
        buffer.records += 1;
        drop(buffer);
        self.0.wake.notify_one();
    }

    /// Opens the file again, because it was renamed or another path is configured.
    pub fn reopen(&self, path: Option<PathBuf>) {
        self.0.enabled.store(path.is_some(), Relaxed);
        self.0.lock().reopen = Some(path);
        self.0.wake.notify_one();
    }

    /// Writes the buffered records, for at most two seconds, and ends the thread.
    pub fn stop(&self) {
        let until = Instant::now() + FLUSH_TIMEOUT;
        let mut buffer = self.0.lock();
        buffer.stop = true;
        self.0.wake.notify_all();
        while !buffer.done {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let woken = self.0.wake.wait_timeout(buffer, left);
            buffer = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn run(shared: &Shared) {
    let mut path: Option<PathBuf> = None;
    let mut file: Option<File> = None;
    let mut failing = false;
    let mut bytes = Vec::new();
    loop {
        let mut buffer = shared.lock();
        while buffer.bytes.is_empty() && buffer.reopen.is_none() && !buffer.stop {
            buffer = shared.wake.wait(buffer).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::swap(&mut buffer.bytes, &mut bytes);
        let records = std::mem::take(&mut buffer.records);
        let reopen = buffer.reopen.take();
        let stop = buffer.stop;
        drop(buffer);
        let mut result = Ok(());
        let mut todo = !bytes.is_empty();
        if let Some(new) = reopen {
            // Records that were buffered before the reload belong to the old file.
            if let (true, Some(old)) = (todo, &mut file) {
                result = old.write_all(&bytes);
                todo = false;
            }
            (path, file) = (new, None);
        }
        let now = put(&mut file, path.as_deref(), if todo { &bytes } else { &[] });
        let result = result.and(now);
        let counter = match &result {
            Ok(()) => &shared.counters.written,
            Err(_) => &shared.counters.dropped,
        };
        counter.fetch_add(records, Relaxed);
        bytes.clear();
        if let Err(e) = &result {
            shared.counters.failures.fetch_add(1, Relaxed);
            if !failing {
                let shown = path.as_deref().unwrap_or(Path::new("")).display();
                error!("call records {shown}: {e}: records are dropped until it can be written");
            }
            file = None;
        } else if failing {
            info!("call records can be written again");
        }
        failing = result.is_err();
        let mut buffer = shared.lock();
        if stop && buffer.bytes.is_empty() {
            buffer.done = true;
            shared.wake.notify_all();
            return;
        }
        if failing && !stop {
            // Meanwhile new records are buffered, up to the limit.
            let woken = shared.wake.wait_timeout_while(buffer, RETRY, |w| !w.stop);
            drop(woken.unwrap_or_else(PoisonError::into_inner).0);
        }
    }
}

/// Opens the file if a path is configured and it is not open yet, and writes records into it.
fn put(file: &mut Option<File>, path: Option<&Path>, bytes: &[u8]) -> io::Result<()> {
    let file = match (file, path) {
        (Some(file), _) => file,
        (none, Some(path)) => none.insert(open(path)?),
        (None, None) if bytes.is_empty() => return Ok(()),
        (None, None) => return Err(io::Error::other("none is configured any more")),
    };
    file.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    fn until(condition: impl Fn() -> bool) {
        let end = Instant::now() + TIMEOUT;
        while !condition() {
            assert!(Instant::now() < end, "it does not happen");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn records_are_appended_and_the_file_can_be_rotated() {
        let dir = tempfile::tempdir().unwrap();
        let (path, moved) = (dir.path().join("cdr"), dir.path().join("cdr.1"));
        std::fs::write(&path, "old\n").unwrap();
        let cdr = Cdr::start(Some(path.clone())).unwrap();
        cdr.append(b"one\n");
        until(|| cdr.counters().written.load(Relaxed) == 1);
        std::fs::rename(&path, &moved).unwrap();
        cdr.append(b"two\n");
        until(|| cdr.counters().written.load(Relaxed) == 2);
        cdr.reopen(Some(path.clone()));
        until(|| path.exists());
        cdr.append(b"three\n");
        cdr.stop();
        assert_eq!(std::fs::read_to_string(&moved).unwrap(), "old\none\ntwo\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "three\n");
    }

    /// A FIFO without a reader accepts nothing: the slowest possible disk.
    #[test]
    fn records_are_dropped_when_the_disk_is_slow() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        let cdr = Cdr::start(Some(path.clone())).unwrap();
        let line = [&[b'x'; 1023][..], b"\n"].concat();
        let began = Instant::now();
        for _ in 0..3 * MAX_BUFFERED_BYTES / line.len() {
            cdr.append(&line);
        }
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        let dropped = cdr.counters().dropped.load(Relaxed);
        assert!(dropped >= (MAX_BUFFERED_BYTES / line.len()) as u64, "{dropped}");
        let began = Instant::now();
        cdr.stop();
        assert!(began.elapsed() < 2 * FLUSH_TIMEOUT);
    }

    #[test]
    fn a_full_disk_drops_records_and_recovers() {
        let cdr = Cdr::start(Some("/dev/full".into())).unwrap();
        cdr.append(b"one\n");
        until(|| cdr.counters().dropped.load(Relaxed) == 1);
        assert_eq!(cdr.counters().failures.load(Relaxed), 1);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cdr");
        cdr.reopen(Some(path.clone()));
        cdr.append(b"two\n");
        cdr.stop();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
    }
}
