//! The thread that writes changes to disk, in groups.
//!
//! A caller appends its change to a bounded queue, under a lock that is held during a copy, and
//! continues. The thread takes all changes that queued during its last commit, writes them in one
//! transaction, and reports the result. So an idle server commits each change at once, a busy one a
//! hundred at a time, and neither waits for the disk.

use super::batch::{Batch, Waiter};
use super::file::{self, Snapshot, StoreError, StoreFile};
use super::table::Table;
use ringway_proxy::location::{Commit, CommitTag, Journal};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::AcqRel, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::{error, info, warn};

/// Maximum number of queued changes; when the queue is full, registrations are refused. The limit
/// is low enough that even on a slow disk a client gets its response before it retransmits.
pub const MAX_QUEUE: usize = 16_384;
/// Maximum number of changes in the journal before they are applied to their tables.
pub const MAX_JOURNAL: usize = 16_384;
/// Maximum size of the changes in the journal, in bytes.
pub const MAX_JOURNAL_BYTES: usize = 8 << 20;
/// Maximum size of the queued changes, in bytes.
pub const MAX_QUEUE_BYTES: usize = 32 << 20;
/// Minimum interval between the starts of two commits. It bounds the cost of commits when each of
/// them is small and the disk is fast. A change after an idle period is not delayed.
pub const COMMIT_INTERVAL: Duration = Duration::from_millis(5);
/// Delay after a failure before the file is tried again: the first one and the longest one.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(4));
/// Time limit of a single change that its caller waits for (changes of users and keys).
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit of a group of changes whose transaction has begun.
const GROUP_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of callers that wait for a snapshot.
const MAX_SNAPSHOTS: usize = 4;

/// Maximum number of groups that wait for their transactions.
const MAX_GROUPS: usize = 2;

/// Values of a table by their keys, for one transaction; none for those that are removed.
pub(super) type Values = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// Changes that are made in one transaction, all or none.
struct Group {
    table: Table,
    values: Values,
    /// Taken by the thread when it begins, or by the caller when it no longer waits.
    claimed: Arc<AtomicBool>,
    reply: SyncSender<Result<(), String>>,
}

impl Group {
    fn answer(&self, result: Result<(), String>) {
        // The caller may have stopped waiting.
        let _ = self.reply.try_send(result);
    }
}

/// Opens the file again after a failure.
pub(super) type Reopen = Box<dyn Fn() -> Result<StoreFile, StoreError> + Send>;

/// Receives the number of a worker and the numbers of its changes that are durable (`true`) or
/// failed.
pub type CommitSink = Arc<dyn Fn(u8, &[u64], bool) + Send + Sync>;

/// Counters of the writer; any thread may read them at any time.
#[derive(Default, Debug)]
pub struct WriterStats {
    /// Transactions committed.
    pub commits: AtomicU64,
    /// Changes in these transactions.
    pub changes: AtomicU64,
    /// Time spent in commits, in microseconds.
    pub commit_micros: AtomicU64,
    /// Duration of the longest commit so far, in microseconds.
    pub commit_micros_max: AtomicU64,
    /// Failed commits, and failed attempts to open the file again.
    pub failures: AtomicU64,
    /// Changes refused because the queue was full.
    pub refused_full: AtomicU64,
    /// Changes refused because of an earlier disk failure.
    pub refused_failed: AtomicU64,
    /// Changes in the queue.
    pub queued: AtomicU64,
    /// Whether the disk failed and has not recovered.
    pub failed: AtomicBool,
}

#[derive(Default)]
struct Queue {
    batch: Batch,
    /// Callers that wait for a snapshot of the committed state.
    snapshots: Vec<SyncSender<Result<Snapshot, String>>>,
    groups: Vec<Group>,
    stop: bool,
}

/// What the thread takes from the queue, besides single changes.
struct Taken {
    snapshots: Vec<SyncSender<Result<Snapshot, String>>>,
    groups: Vec<Group>,
    stop: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    stats: Arc<WriterStats>,
    sink: OnceLock<CommitSink>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // A batch is only appended to, so it is consistent even if another thread panicked.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, table: Table, key: &[u8], value: Option<&[u8]>, waiter: Waiter) -> bool {
        let size = key.len() + value.map_or(0, <[u8]>::len);
        let mut queue = self.lock();
        let full = queue.batch.len() >= MAX_QUEUE
            || queue.batch.size() + size > MAX_QUEUE_BYTES
            || queue.stop;
        if full {
            return false;
        }
        queue.batch.push(table, key, value, waiter);
        let first = queue.batch.len() == 1;
        self.stats.queued.store(queue.batch.len() as u64, Relaxed);
        drop(queue);
        if first {
            self.wake.notify_one();
        }
        true
    }
}

/// A handle that appends to the queue; the location table uses it as its journal.
#[derive(Clone)]
pub(super) struct Appender(Arc<Shared>);

impl Journal for Appender {
    fn record(&self, aor: &[u8], record: Option<&[u8]>, tag: Option<CommitTag>) -> Commit {
        let stats = &self.0.stats;
        match tag {
            Some(_) if stats.failed.load(Relaxed) => {
                stats.refused_failed.fetch_add(1, Relaxed);
                Commit::Refused
            }
            Some(tag) => {
                if self.0.push(Table::Bindings, aor, record, Waiter::Worker(tag)) {
                    Commit::Pending
                } else {
                    stats.refused_full.fetch_add(1, Relaxed);
                    Commit::Refused
                }
            }
            None => {
                // An expiry or a closed flow. If the change is lost, the file keeps a record that
                // has expired or that is skipped on loading. It is harmless and removed at the next
                // start.
                self.0.push(Table::Bindings, aor, record, Waiter::None);
                Commit::Done
            }
        }
    }
}

/// The thread and its queue. Dropping it commits the queued changes and ends the thread.
pub(super) struct Writer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    /// Creates a queue without a thread.
    pub(super) fn new() -> Self {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            wake: Condvar::new(),
            stats: Arc::default(),
            sink: OnceLock::new(),
        });
        Writer { shared, thread: Mutex::default() }
    }

    /// Starts the thread, which owns the file from now on; `reopen` opens it again after a failure.
    pub(super) fn start(&mut self, file: StoreFile, reopen: Reopen) -> std::io::Result<()> {
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name("store".into()).spawn(move || {
            let thread = Thread {
                shared,
                reopen,
                file: Some(file),
                journaled: Batch::default(),
                number: 0,
                order: Vec::new(),
                entry: Vec::new(),
            };
            thread.run();
        })?;
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    pub(super) fn appender(&self) -> Appender {
        Appender(self.shared.clone())
    }

    /// Makes one change of which nobody waits to learn; it is lost without room.
    pub(super) fn change_later(&self, table: Table, key: &[u8], value: Option<&[u8]>) {
        self.shared.push(table, key, value, Waiter::None);
    }

    pub(super) fn stats(&self) -> Arc<WriterStats> {
        self.shared.stats.clone()
    }

    /// Sets the receiver of commit reports. Only the first call has an effect.
    pub(super) fn set_sink(&self, sink: CommitSink) {
        let _ = self.shared.sink.set(sink);
    }

    /// Makes one change and waits until it is durable. For rare changes only; a worker must not
    /// call it.
    pub(super) fn change(
        &self,
        table: Table,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), String> {
        let (reply, answer) = sync_channel(1);
        if self.shared.stats.failed.load(Relaxed) {
            return Err("the store cannot be written at present".to_owned());
        }
        let mut queue = self.shared.lock();
        if queue.stop || queue.batch.len() >= MAX_QUEUE + 16 {
            return Err("the store is busy or stopping".to_owned());
        }
        let index = queue.batch.replies.len();
        queue.batch.replies.push(reply);
        queue.batch.push(table, key, value, Waiter::Caller(index));
        drop(queue);
        self.shared.wake.notify_one();
        answer
            .recv_timeout(REPLY_TIMEOUT)
            .unwrap_or_else(|_| Err("the disk does not answer".to_owned()))
    }

    /// Sets or removes many values in one transaction and waits until they are durable. No other change waits in the queue for them,
    /// but a commit waits until their transaction has ended. A worker must not call it.
    pub(super) fn change_all(&self, table: Table, values: Values) -> Result<(), String> {
        let (reply, answer) = sync_channel(1);
        if self.shared.stats.failed.load(Relaxed) {
            return Err("the store cannot be written at present".to_owned());
        }
        let claimed = Arc::new(AtomicBool::new(false));
        {
            let mut queue = self.shared.lock();
            if queue.stop || queue.groups.len() >= MAX_GROUPS {
                return Err("the store is busy or stopping".to_owned());
            }
            queue.groups.push(Group { table, values, claimed: claimed.clone(), reply });
        }
        self.shared.wake.notify_one();
        match answer.recv_timeout(REPLY_TIMEOUT) {
            Ok(result) => result,
            // Unless the thread has begun, it never does.
            Err(_) if !claimed.swap(true, AcqRel) => Err("the disk does not answer".to_owned()),
            Err(_) => answer.recv_timeout(GROUP_TIMEOUT).unwrap_or_else(|_| {
                Err("the disk does not answer: the change may follow".to_owned())
            }),
        }
    }

    /// Returns the store as of the commit of all changes queued now. A worker must not call it.
    pub(super) fn snapshot(&self) -> Result<Snapshot, String> {
        let (reply, answer) = sync_channel(1);
        {
            let mut queue = self.shared.lock();
            if queue.stop || queue.snapshots.len() >= MAX_SNAPSHOTS {
                return Err("the store is busy or stopping".to_owned());
            }
            queue.snapshots.push(reply);
        }
        self.shared.wake.notify_one();
        answer
            .recv_timeout(REPLY_TIMEOUT)
            .unwrap_or_else(|_| Err("the disk does not answer".to_owned()))
    }
}

impl Writer {
    /// Commits the queued changes and ends the thread; later changes are refused.
    pub(super) fn stop(&self) {
        self.shared.lock().stop = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Thread {
    shared: Arc<Shared>,
    reopen: Reopen,
    file: Option<StoreFile>,
    /// The changes that are in the file's journal but not in its tables.
    journaled: Batch,
    /// Number of the next journal entry.
    number: u64,
    /// Reused buffer of indices.
    order: Vec<u32>,
    /// Reused buffer of a journal entry.
    entry: Vec<u8>,
}

impl Thread {
    fn run(mut self) {
        let mut batch = Batch::default();
        loop {
            let Taken { snapshots, groups, stop } = self.take(&mut batch);
            if !batch.is_empty() {
                let began = Instant::now();
                if let Err(e) = self.commit(&batch) {
                    if batch.changes.iter().all(|c| matches!(c.waiter, Waiter::Caller(_))) {
                        // The callers get the error, and memory was not changed before.
                        self.refuse(&mut batch, &e);
                    } else if !self.recover(&mut batch, &e) {
                        return;
                    }
                } else {
                    self.count(&batch, began);
                    self.report(&batch, Ok(()));
                    let left = COMMIT_INTERVAL.saturating_sub(began.elapsed());
                    if !stop && !left.is_zero() {
                        std::thread::sleep(left);
                    }
                }
                batch.clear(MAX_QUEUE_BYTES / 8);
            }
            for group in groups {
                self.commit_group(group);
            }
            for reply in snapshots {
                let snapshot = match &self.file {
                    Some(file) => file.snapshot().map_err(|e| e.to_string()),
                    None => Err("the store cannot be read at present".to_owned()),
                };
                // The caller may have stopped waiting.
                let _ = reply.try_send(snapshot);
            }
            if stop && self.shared.lock().batch.is_empty() {
                return;
            }
        }
    }

    /// Waits for changes and swaps them into `batch`, which is empty. Returns what else is in the queue.
    fn take(&self, batch: &mut Batch) -> Taken {
        let mut queue = self.shared.lock();
        while queue.batch.is_empty()
            && queue.snapshots.is_empty()
            && queue.groups.is_empty()
            && !queue.stop
        {
            queue = self.shared.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::swap(&mut queue.batch, batch);
        self.shared.stats.queued.store(0, Relaxed);
        Taken {
            snapshots: std::mem::take(&mut queue.snapshots),
            groups: std::mem::take(&mut queue.groups),
            stop: queue.stop,
        }
    }

    /// Writes a group of changes in a transaction of its own. Memory was not changed before, so a failure is only
    /// reported.
    fn commit_group(&mut self, group: Group) {
        if group.claimed.swap(true, AcqRel) {
            return;
        }
        let result = self.opened().and_then(|file| {
            let changes =
                group.values.iter().map(|(key, value)| (group.table, &key[..], value.as_deref()));
            file.apply(file::Journal::Unchanged, changes)
        });
        match &result {
            Ok(()) => {
                self.shared.stats.commits.fetch_add(1, Relaxed);
                self.shared.stats.changes.fetch_add(group.values.len() as u64, Relaxed);
            }
            Err(_) => self.file = None,
        }
        group.answer(result.map_err(|e| e.to_string()));
    }

    /// Returns the file. It is opened again after a failed write, because redb accepts nothing until then.
    fn opened(&mut self) -> Result<&StoreFile, StoreError> {
        Ok(match &mut self.file {
            Some(file) => file,
            none => {
                // Opening the file empties its journal.
                self.journaled.clear(MAX_JOURNAL_BYTES);
                none.insert((self.reopen)()?)
            }
        })
    }

    /// Writes a batch to disk. A group is appended to the journal as one entry: its records are
    /// spread over the whole tree, and writing one page for each would cost far more. When the
    /// journal is full, all its changes are applied to the tables at once, in key order, with only
    /// the last change of each record.
    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let file = match &self.file {
            Some(file) => file,
            None => {
                // Opening the file emptied its journal.
                self.journaled.clear(MAX_JOURNAL_BYTES);
                self.file.insert((self.reopen)()?)
            }
        };
        batch.order(&mut self.order);
        let full = self.journaled.len() + batch.len() > MAX_JOURNAL
            || self.journaled.size() + batch.size() > MAX_JOURNAL_BYTES;
        let result = if full {
            let others = |i: &u32| batch.get(*i).0 != Table::Bindings;
            self.journaled.append_bindings(batch);
            let mut all = Vec::new();
            self.journaled.order(&mut all);
            let others = self.order.iter().copied().filter(others).map(|i| batch.get(i));
            let bindings = all.iter().map(|&i| self.journaled.get(i));
            let result = file.apply(file::Journal::Clear, others.chain(bindings));
            self.journaled.clear(MAX_JOURNAL_BYTES);
            result
        } else {
            batch.encode(&self.order, &mut self.entry);
            let journal = match self.entry.is_empty() {
                true => file::Journal::Unchanged,
                false => file::Journal::Append(self.number, &self.entry),
            };
            let others = self.order.iter().map(|&i| batch.get(i));
            let result =
                file.apply(journal, others.filter(|(table, ..)| *table != Table::Bindings));
            self.number += 1;
            self.journaled.append_bindings(batch);
            result
        };
        if result.is_err() {
            // After a failed write, redb accepts nothing until the file is opened again.
            self.file = None;
        }
        result
    }

    fn count(&self, batch: &Batch, began: Instant) {
        let stats = &self.shared.stats;
        let micros = began.elapsed().as_micros() as u64;
        stats.commits.fetch_add(1, Relaxed);
        stats.changes.fetch_add(batch.len() as u64, Relaxed);
        stats.commit_micros.fetch_add(micros, Relaxed);
        stats.commit_micros_max.fetch_max(micros, Relaxed);
    }

    /// Reports the result to every party that waits for a change of the batch.
    fn report(&self, batch: &Batch, result: Result<(), &str>) {
        let mut tags: Vec<CommitTag> = Vec::with_capacity(batch.len());
        for change in &batch.changes {
            match change.waiter {
                Waiter::None => {}
                Waiter::Worker(tag) => tags.push(tag),
                Waiter::Caller(index) => {
                    // The caller may have stopped waiting.
                    let _ = batch.replies[index].try_send(result.map_err(str::to_owned));
                }
            }
        }
        let Some(sink) = self.shared.sink.get() else { return };
        tags.sort_by_key(|tag| tag.worker);
        let mut ids = Vec::with_capacity(tags.len());
        for group in tags.chunk_by(|a, b| a.worker == b.worker) {
            ids.clear();
            ids.extend(group.iter().map(|tag| tag.id));
            sink(group[0].worker, &ids, result.is_ok());
        }
    }

    /// Handles a disk failure. Memory already holds the changes of `batch`, so they are tried again
    /// until they are durable; meanwhile no registration is accepted. Returns false if the process
    /// stops first.
    fn recover(&mut self, batch: &mut Batch, first: &StoreError) -> bool {
        let stats = self.shared.stats.clone();
        stats.failed.store(true, Relaxed);
        stats.failures.fetch_add(1, Relaxed);
        error!(
            "{first}: registrations are refused until it can be written; calls go on from memory"
        );
        self.refuse(batch, first);
        let mut pause = RETRY.0;
        loop {
            // Changes queued before all callers noticed the failure must not wait for the recovery.
            {
                let mut queue = self.shared.lock();
                self.refuse(&mut queue.batch, first);
                queue.groups.drain(..).for_each(|group| group.answer(Err(first.to_string())));
            }
            if !self.sleep(pause) {
                warn!("{first}: stopping with {} changes not written", batch.len());
                return false;
            }
            let began = Instant::now();
            match self.commit(batch) {
                Ok(()) => {
                    self.count(batch, began);
                    stats.failed.store(false, Relaxed);
                    info!("the store can be written again");
                    return true;
                }
                Err(e) => {
                    stats.failures.fetch_add(1, Relaxed);
                    pause = (pause * 2).min(RETRY.1);
                    warn!("{e}: trying again in {} s", pause.as_secs());
                }
            }
        }
    }

    /// Reports a failure to every party that waits for the batch. Changes of registrations stay in
    /// it, because memory has them; a change that was reported as failed to its caller must not be
    /// applied later.
    fn refuse(&self, batch: &mut Batch, why: &StoreError) {
        self.report(batch, Err(&why.to_string()));
        batch.changes.retain(|c| !matches!(c.waiter, Waiter::Caller(_)));
        batch.changes.iter_mut().for_each(|c| c.waiter = Waiter::None);
        batch.replies.clear();
    }

    /// Sleeps for `pause`; returns false if the thread must stop.
    fn sleep(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        let mut queue = self.shared.lock();
        while !queue.stop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            queue = self
                .shared
                .wake
                .wait_timeout(queue, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        false
    }
}
