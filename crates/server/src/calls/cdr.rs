//! Call records on the disk: JSON lines, appended by a thread that nothing waits for.
//!
//! Whoever has a record copies it into a bounded buffer. When the disk is slower than calls end, or
//! cannot be written, records are dropped and counted. The file is opened again on reload, so that it
//! can be rotated: move it away, then SIGHUP.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::{error, info};

/// Octets of records that may wait for the disk.
pub const MAX_WAITING: usize = 4 << 20;
/// How long after a failure the file is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How long the end of the process waits for the last records to be written.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);

/// What is counted; read by anyone at any time.
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
struct Waiting {
    bytes: Vec<u8>,
    records: u64,
    /// The file is to be opened anew, at this path or not at all.
    reopen: Option<Option<PathBuf>>,
    stop: bool,
    done: bool,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    wake: Condvar,
    counters: CdrCounters,
    /// Whether records are asked for.
    wanted: AtomicBool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Bytes are only ever appended to: they are whole whatever happened to another thread.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The file of call records. Copies are the same file.
#[derive(Clone)]
pub struct Cdr(Arc<Shared>);

/// Opens the file of call records to append to it, readable by its owner and group.
///
/// # Errors
/// When the system refuses.
pub fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

impl Cdr {
    /// Starts the thread; without a path it waits for a reload that names one.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(path: Option<PathBuf>) -> io::Result<Self> {
        let cdr = Cdr(Arc::default());
        cdr.reopen(path);
        let shared = cdr.0.clone();
        std::thread::Builder::new().name("cdr".into()).spawn(move || run(&shared))?;
        Ok(cdr)
    }

    /// Whether records are asked for.
    pub fn is_wanted(&self) -> bool {
        self.0.wanted.load(Relaxed)
    }

    /// What is counted.
    pub fn counters(&self) -> &CdrCounters {
        &self.0.counters
    }

    /// Appends a record, a line with its end. Waits for nothing but a copy.
    pub fn append(&self, line: &[u8]) {
        let mut waiting = self.0.lock();
        if waiting.bytes.len() + line.len() > MAX_WAITING {
            drop(waiting);
            self.0.counters.dropped.fetch_add(1, Relaxed);
            return;
        }
        waiting.bytes.extend_from_slice(line);
        waiting.records += 1;
        drop(waiting);
        self.0.wake.notify_one();
    }

    /// Opens the file anew: it was moved away, or another is configured.
    pub fn reopen(&self, path: Option<PathBuf>) {
        self.0.wanted.store(path.is_some(), Relaxed);
        self.0.lock().reopen = Some(path);
        self.0.wake.notify_one();
    }

    /// Writes what waits, for two seconds at most.
    pub fn stop(&self) {
        let until = Instant::now() + FLUSH_WITHIN;
        let mut waiting = self.0.lock();
        waiting.stop = true;
        self.0.wake.notify_all();
        while !waiting.done {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let woken = self.0.wake.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn run(shared: &Shared) {
    let mut path: Option<PathBuf> = None;
    let mut file: Option<File> = None;
    let mut failing = false;
    let mut bytes = Vec::new();
    loop {
        let mut waiting = shared.lock();
        while waiting.bytes.is_empty() && waiting.reopen.is_none() && !waiting.stop {
            waiting = shared.wake.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::swap(&mut waiting.bytes, &mut bytes);
        let records = std::mem::take(&mut waiting.records);
        let reopen = waiting.reopen.take();
        let stop = waiting.stop;
        drop(waiting);
        let mut result = Ok(());
        let mut todo = !bytes.is_empty();
        if let Some(new) = reopen {
            // What came before belongs into the file as it was.
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
        let mut waiting = shared.lock();
        if stop && waiting.bytes.is_empty() {
            waiting.done = true;
            shared.wake.notify_all();
            return;
        }
        if failing && !stop {
            // Records meanwhile wait, as many as there is room for.
            let woken = shared.wake.wait_timeout_while(waiting, RETRY, |w| !w.stop);
            drop(woken.unwrap_or_else(PoisonError::into_inner).0);
        }
    }
}

/// Opens the file if there is one to be open and it is not, and writes records into it.
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

    const PATIENCE: Duration = Duration::from_secs(60);

    fn until(condition: impl Fn() -> bool) {
        let end = Instant::now() + PATIENCE;
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

    /// A disk that takes nothing: a FIFO that nobody reads is as slow as a disk can be.
    #[test]
    fn a_slow_disk_costs_records_not_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        let cdr = Cdr::start(Some(path.clone())).unwrap();
        let line = [&[b'x'; 1023][..], b"\n"].concat();
        let began = Instant::now();
        for _ in 0..3 * MAX_WAITING / line.len() {
            cdr.append(&line);
        }
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        let dropped = cdr.counters().dropped.load(Relaxed);
        assert!(dropped >= (MAX_WAITING / line.len()) as u64, "{dropped}");
        let began = Instant::now();
        cdr.stop();
        assert!(began.elapsed() < 2 * FLUSH_WITHIN);
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
