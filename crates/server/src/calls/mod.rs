//! Calls: which are under way, a line in the log for each step, a record of each when it is over.
//!
//! Workers report the steps of calls (they see the INVITE, its answer and the BYE, each perhaps
//! another one) by a bounded queue; one thread puts them together. Nothing here is on the road of a
//! message: what the thread cannot keep up with is dropped and counted. Read [`record`] for what is
//! kept of a call, `table` for how steps become calls, [`cdr`] for the file of records.

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
use tracing::{info, warn};

/// Steps that may wait for the thread.
pub const MAX_WAITING: usize = 65_536;
/// Calls within a second whose steps are logged. Of further ones there is the record.
pub const LOGGED_A_SECOND: u32 = 100;
/// Steps are taken from the queue this often at most: it bounds how often a worker wakes the thread.
const GATHER: Duration = Duration::from_millis(20);
/// How often calls that are too old are looked for.
const SWEEP: Duration = Duration::from_secs(1);

/// What is counted; read by anyone at any time.
#[derive(Default, Debug)]
pub struct CallCounters {
    /// Steps dropped because the thread is behind.
    pub dropped: AtomicU64,
    /// Calls whose steps are not logged because too many began within a second.
    pub unlogged: AtomicU64,
}

/// The core makes steps in boxes; to take them out would copy each once more.
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

/// Where workers report the steps of calls, and where calls are asked for. Copies are the same.
#[derive(Clone)]
pub struct Calls(Arc<Shared>);

/// Locks a mutex whose contents are whole whatever happened to another thread.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Calls {
    /// Starts the thread. `now` is the clock of the steps.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(cdr: Cdr, now: impl Fn() -> Time + Send + 'static) -> io::Result<Self> {
        let calls = Calls(Arc::new(Shared {
            queue: Mutex::default(),
            wake: Condvar::new(),
            table: Mutex::default(),
            counters: CallCounters::default(),
            cdr,
            thread: Mutex::default(),
        }));
        let follower = Follower { shared: calls.0.clone(), budget: Budget::default() };
        let thread =
            std::thread::Builder::new().name("calls".into()).spawn(move || follower.run(now))?;
        *lock(&calls.0.thread) = Some(thread);
        Ok(calls)
    }

    /// Reports a step. Waits for nothing but a lock that is held for the time of a copy.
    pub fn report(&self, step: Box<CallEvent>) {
        let mut queue = lock(&self.0.queue);
        if queue.steps.len() >= MAX_WAITING {
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

    /// At most `limit` calls behind the one that `after` names, and what to ask next with; `None`
    /// behind the end.
    pub fn page(&self, after: Option<u64>, limit: usize, now: Time) -> (Vec<Call>, Option<u64>) {
        lock(&self.0.table).page(after, limit, now)
    }

    /// Whether the end of calls is seen, because the proxy stays in the path of their dialogs. Where it
    /// does not, a call is over for it when it is answered.
    pub fn set_ends_seen(&self, seen: bool) {
        lock(&self.0.table).ends_seen = seen;
    }

    /// Number of calls under way.
    pub fn len(&self) -> usize {
        lock(&self.0.table).len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls that were not followed because there were too many.
    pub fn untracked(&self) -> u64 {
        lock(&self.0.table).untracked
    }

    /// What is counted.
    pub fn counters(&self) -> &CallCounters {
        &self.0.counters
    }

    /// The file of records.
    pub fn cdr(&self) -> &Cdr {
        &self.0.cdr
    }

    /// Takes what waits, writes a record of each call that is still under way, and ends.
    pub fn stop(&self) {
        lock(&self.0.queue).stop = true;
        self.0.wake.notify_one();
        if let Some(thread) = lock(&self.0.thread).take() {
            // A thread that has panicked has nothing more to write.
            let _ = thread.join();
        }
        self.0.cdr.stop();
    }
}

/// How many calls may still be logged in this second.
#[derive(Default)]
struct Budget {
    second: u64,
    begun: u32,
}

impl Budget {
    fn take(&mut self, now: Time) -> bool {
        if now.as_secs() != self.second {
            let unlogged = self.begun.saturating_sub(LOGGED_A_SECOND);
            if unlogged > 0 {
                warn!("{unlogged} more calls began within a second; their steps are not logged");
            }
            *self = Budget { second: now.as_secs(), begun: 0 };
        }
        self.begun = self.begun.saturating_add(1);
        self.begun <= LOGGED_A_SECOND
    }
}

struct Follower {
    shared: Arc<Shared>,
    budget: Budget,
}

impl Follower {
    fn run(mut self, now: impl Fn() -> Time) {
        let shared = self.shared.clone();
        loop {
            let queue = lock(&shared.queue);
            let waiting =
                shared.wake.wait_timeout_while(queue, SWEEP, |q| q.steps.is_empty() && !q.stop);
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
                std::thread::sleep(GATHER);
            }
        }
    }

    fn take(&mut self, steps: Steps) {
        for step in steps {
            let mut table = lock(&self.shared.table);
            let (budget, counters) = (&mut self.budget, &self.shared.counters);
            let outcome = table.step(&step, || {
                let logged = budget.take(step.at);
                counters.unlogged.fetch_add(u64::from(!logged), Relaxed);
                logged
            });
            match outcome {
                Outcome::Under(call) => {
                    if call.logged {
                        log_under(&step, call);
                    }
                }
                Outcome::Over(call, to_tag, end) => {
                    drop(table);
                    // To write a call down costs more than to follow it.
                    if call.logged || self.shared.cdr.is_wanted() {
                        let record = call.record(&to_tag, end);
                        if call.logged {
                            log_over(&record);
                        }
                        self.write(&record);
                    }
                }
                Outcome::Nothing => {}
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
        if !self.shared.cdr.is_wanted() {
            return;
        }
        // Strings and numbers can always be written as JSON.
        if let Ok(mut line) = serde_json::to_vec(record) {
            line.push(b'\n');
            self.shared.cdr.append(&line);
        }
    }
}

fn log_under(step: &CallEvent, call: &record::Entry) {
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

fn log_over(record: &CallRecord) {
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
