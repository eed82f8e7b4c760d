//! Calls: a table of those in progress, a log line for each step, and a record of each call when it
//! ends.
//!
//! Workers report the steps of calls through a bounded queue. The INVITE, its answer and the BYE
//! may each be reported by another worker; one thread combines them. Nothing here runs on the path
//! of a message: steps that the thread cannot process in time are dropped and counted. See
//! [`record`] for the stored data of a call, `table` for how steps become calls, and [`cdr`] for
//! the file of records.

pub mod cdr;
pub mod record;
mod table;

pub use cdr::Cdr;
pub use record::{Call, CallRecord};
pub use table::{MAX_AGE, MAX_CALLS};

use crate::text::clean;
use record::flow;
use ringway_proxy::{CallEvent, CallStep};
use ringway_sansio::Time;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use table::{Outcome, Table};
use tracing::{Level, enabled, info, warn};

/// Maximum number of steps that wait for the thread.
pub const MAX_QUEUED_STEPS: usize = 65_536;
/// Maximum number of calls per second whose steps are logged. All further calls still have a
/// record.
pub const MAX_LOGGED_PER_SECOND: u32 = 100;
/// Minimum interval between two reads of the queue. It bounds how often a worker wakes the thread.
const WAKE_INTERVAL: Duration = Duration::from_millis(20);
/// Interval of the search for calls older than [`table::MAX_AGE`].
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Counters; any thread may read them at any time.
#[derive(Default, Debug)]
pub struct CallCounters {
    /// Steps dropped because the thread is behind.
    pub dropped: AtomicU64,
    /// Calls whose steps are not logged because too many calls began within one second.
    pub unlogged: AtomicU64,
}

/// The proxy core allocates each step in a box; moving it out would add a copy.
#[allow(clippy::vec_box)]
type Steps = Vec<Box<CallEvent>>;

#[derive(Default)]
struct Queue {
    steps: Steps,
    stop: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    table: Mutex<Table>,
    counters: CallCounters,
    cdr: Cdr,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Receives the steps of calls from workers and answers queries about calls. Clones share the same
/// state.
#[derive(Clone)]
pub struct Calls(Arc<Shared>);

/// Locks a mutex whose contents stay consistent even if a thread panicked while holding it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Calls {
    /// Starts the thread. `now` is the clock that the steps are stamped with.
    ///
    /// # Errors
    /// Fails when the thread cannot be started.
    pub fn start(cdr: Cdr, now: impl Fn() -> Time + Send + 'static) -> io::Result<Self> {
        let calls = Calls(Arc::new(Shared {
            queue: Mutex::default(),
            wake: Condvar::new(),
            table: Mutex::default(),
            counters: CallCounters::default(),
            cdr,
            thread: Mutex::default(),
        }));
        let follower = Tracker { shared: calls.0.clone(), budget: Budget::default() };
        let thread =
            std::thread::Builder::new().name("calls".into()).spawn(move || follower.run(now))?;
        *lock(&calls.0.thread) = Some(thread);
        Ok(calls)
    }

    /// Reports a step. Waits only for a lock that is held during a copy.
    pub fn report(&self, step: Box<CallEvent>) {
        let mut queue = lock(&self.0.queue);
        if queue.steps.len() >= MAX_QUEUED_STEPS {
            drop(queue);
            self.0.counters.dropped.fetch_add(1, Relaxed);
            return;
        }
        queue.steps.push(step);
        let first = queue.steps.len() == 1;
        drop(queue);
        if first {
            self.0.wake.notify_one();
        }
    }

    /// Returns at most `limit` calls after the one numbered `after`, and the value of `after` for
    /// the next page; `None` on the last page.
    pub fn page(&self, after: Option<u64>, limit: usize, now: Time) -> (Vec<Call>, Option<u64>) {
        lock(&self.0.table).page(after, limit, now)
    }

    /// Sets whether the proxy sees the end of calls, because it stays in the path of their dialogs.
    /// If not, a call counts as ended when it is answered.
    pub fn set_ends_seen(&self, seen: bool) {
        lock(&self.0.table).ends_seen = seen;
    }

    /// Returns the number of calls in progress.
    pub fn len(&self) -> usize {
        lock(&self.0.table).len()
    }

    /// Returns whether no call is in progress.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of calls that were not tracked because there were too many.
    pub fn untracked(&self) -> u64 {
        lock(&self.0.table).untracked
    }

    /// Returns the counters.
    pub fn counters(&self) -> &CallCounters {
        &self.0.counters
    }

    /// Returns the file of records.
    pub fn cdr(&self) -> &Cdr {
        &self.0.cdr
    }

    /// Processes the queued steps, writes a record of each call that is still in progress, and ends
    /// the thread.
    pub fn stop(&self) {
        lock(&self.0.queue).stop = true;
        self.0.wake.notify_one();
        if let Some(thread) = lock(&self.0.thread).take() {
            // A thread that panicked has nothing more to write.
            let _ = thread.join();
        }
        self.0.cdr.stop();
    }
}

/// Limits the number of calls that are logged per second.
#[derive(Default)]
struct Budget {
    second: u64,
    begun: u32,
}

impl Budget {
    fn take(&mut self, now: Time) -> bool {
        if now.as_secs() != self.second {
            let unlogged = self.begun.saturating_sub(MAX_LOGGED_PER_SECOND);
            if unlogged > 0 {
                warn!("{unlogged} more calls began within a second; their steps are not logged");
            }
            *self = Budget { second: now.as_secs(), begun: 0 };
        }
        self.begun = self.begun.saturating_add(1);
        self.begun <= MAX_LOGGED_PER_SECOND
    }
}

struct Tracker {
    shared: Arc<Shared>,
    budget: Budget,
}

impl Tracker {
    fn run(mut self, now: impl Fn() -> Time) {
        let shared = self.shared.clone();
        loop {
            let queue = lock(&shared.queue);
            let waiting = shared
                .wake
                .wait_timeout_while(queue, SWEEP_INTERVAL, |q| q.steps.is_empty() && !q.stop);
            let (mut queue, _) = waiting.unwrap_or_else(PoisonError::into_inner);
            let steps = std::mem::take(&mut queue.steps);
            let stop = queue.stop;
            drop(queue);
            let some = !steps.is_empty();
            self.take(steps);
            self.sweep(now(), stop);
            if stop {
                return;
            }
            if some {
                std::thread::sleep(WAKE_INTERVAL);
            }
        }
    }

    fn take(&mut self, steps: Steps) {
        for step in steps {
            let mut table = lock(&self.shared.table);
            let (budget, counters) = (&mut self.budget, &self.shared.counters);
            let outcome = table.step(&step, || {
                let wanted = enabled!(Level::INFO);
                let logged = wanted && budget.take(step.at);
                counters.unlogged.fetch_add(u64::from(wanted && !logged), Relaxed);
                logged
            });
            match outcome {
                Outcome::Active(call) => {
                    if call.logged {
                        log_step(&step, call);
                    }
                }
                Outcome::Ended(call, to_tag, end) => {
                    drop(table);
                    // Writing a record costs more than tracking the call.
                    if call.logged || self.shared.cdr.is_enabled() {
                        let record = call.record(&to_tag, end);
                        if call.logged {
                            log_end(&record);
                        }
                        self.write(&record);
                    }
                }
                Outcome::Ignored => {}
            }
        }
    }

    fn sweep(&self, now: Time, all: bool) {
        let ended = lock(&self.shared.table).expire(now, all);
        for record in ended {
            self.write(&record);
        }
    }

    fn write(&self, record: &CallRecord) {
        if !self.shared.cdr.is_enabled() {
            return;
        }
        // Strings and numbers always serialize as JSON.
        if let Ok(mut line) = serde_json::to_vec(record) {
            line.push(b'\n');
            self.shared.cdr.append(&line);
        }
    }
}

fn log_step(step: &CallEvent, call: &record::Entry) {
    let info = &*call.info;
    let source = flow(info.source);
    match step.step {
        CallStep::Answered { status } => info!(
            call_id = %clean(info.call_id()),
            status,
            setup_seconds = step.at.since(info.began).as_secs_f64(),
            destination = call.destination.map(|d| display(flow(d))),
            gateway = call.gateway.as_deref().map(|g| display(clean(g))),
            to_tag = %clean(&step.to_tag),
            "call answered"
        ),
        _ => info!(
            call_id = %clean(info.call_id()),
            caller = %clean(info.caller()),
            callee = %clean(info.callee()),
            target = %clean(info.target()),
            source = %source,
            user = info.user.as_deref().map(|u| display(clean(u))),
            from_tag = %clean(info.from_tag()),
            "call began"
        ),
    }
}

fn log_end(record: &CallRecord) {
    let what = match record.outcome.as_str() {
        "cancelled" => "call cancelled",
        "failed" => "call failed",
        _ if record.ended.is_none() => "call answered, its end is not seen",
        _ => "call ended",
    };
    info!(
        call_id = %clean(&record.call_id),
        status = record.status,
        by = record.ended_by.as_deref().map(display),
        duration_seconds = record.duration_seconds,
        setup_seconds = record.setup_seconds,
        destination = record.destination.as_deref().map(display),
        gateway = record.gateway.as_deref().map(|g| display(clean(g))),
        caller = %clean(&record.caller),
        callee = %clean(&record.callee),
        "{what}"
    );
}

#[cfg(test)]
mod tests;
