//! Locating SIP servers (RFC 3263): from the host of a URI to transports, addresses and ports, in
//! the order to try them.
//!
//! [`Locator::locate`] never waits: it returns at once a result that needs no query or is cached, and
//! otherwise queries DNS in the background and returns the result by a callback. Each query is charged to
//! the source on whose behalf it is made (`queue`), so slow names delay only the sources that ask for
//! them. Answers are cached for their lifetime, within bounds, and longer where DNS itself fails or is
//! slow (RFC 8767). A hop that failed is tried last for a limited time. [`order`] has the decisions, as
//! pure functions.

mod dns;
pub mod order;
#[cfg(test)]
mod order_tests;
mod queue;
mod table;

use dns::Fetcher;
pub use order::Query;
use order::{FetchResult, Records, Step, failed_last, first_step};
pub use queue::{
    MAX_ASKED, MAX_ASKED_OF_SOURCE, MAX_QUEUED, MAX_QUEUED_OF_SOURCE, MAX_WAITING,
    MAX_WAITING_OF_SOURCE,
};
use queue::{Queue, Waiter};
use ringway_flow::source_of;
use ringway_os::{Clock, max_files};
use ringway_sansio::{Hop, SplitMix, Time, Transport};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use table::{CacheLookup, Table};
pub use table::{
    FAILED_FOR, MAX_FAILED, MAX_LIFETIME, MAX_NEGATIVE_LIFETIME, MAX_REMEMBERED, MIN_LIFETIME,
    STALE_FOR, STALE_RECHECK,
};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Maximum time of one query with all its lookups: well within the 32 s of a transaction (RFC 3261 section
/// 17.1.1.2, timer B).
pub const LOCATE_TIMEOUT: Duration = Duration::from_secs(8);

/// Maximum wait of a question for its turn.
pub const MAX_TURN_WAIT: Duration = Duration::from_secs(4);

/// Wait for DNS after which an expired cached answer is used (RFC 8767 section 5, the client response timer;
/// 1.8 s there). Equals the wait of a SIP client before it retransmits a request (RFC 3261 section 17.1.1.1,
/// T1).
pub const STALE_AFTER: Duration = Duration::from_millis(500);

/// Number of files that the process may open for each concurrent question.
const FILES_A_QUESTION: usize = 32;

/// The configuration of server location.
#[derive(Clone, Debug)]
pub struct LocatorConfig {
    /// The name servers; the system's if empty.
    pub servers: Vec<SocketAddr>,
    /// The transports that can be sent on, the best first.
    pub transports: Vec<Transport>,
    /// Whether IPv4 can be sent.
    pub ipv4: bool,
    /// Whether IPv6 can be sent.
    pub ipv6: bool,
    /// Maximum number of concurrent questions, at most [`MAX_ASKED`], because each uses some sockets. Defaults
    /// to one for every 32 files that the process may open.
    pub max_questions: usize,
}

impl Default for LocatorConfig {
    fn default() -> Self {
        let (servers, transports) = (Vec::new(), Vec::new());
        let max_questions = max_files().map_or(MAX_ASKED, |files| files / FILES_A_QUESTION);
        LocatorConfig { servers, transports, ipv4: false, ipv6: false, max_questions }
    }
}

/// The counters of a [`Locator`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LocateCounts {
    /// Questions sent to DNS.
    pub questions: u64,
    /// Questions that DNS did not answer in time.
    pub timed_out: u64,
    /// Queries answered by an expired answer, because DNS failed, was slow, or was not asked.
    pub stale: u64,
    /// Queries for which DNS was not asked, because a share of their source was used up, or their turn did
    /// not come in time.
    pub refused: u64,
    /// Cached answers that were evicted.
    pub evicted: u64,
}

impl LocateCounts {
    /// Visits every counter in a fixed order, with its name and description.
    pub fn visit(&self, visit: &mut dyn FnMut(&'static str, &'static str, u64)) {
        visit("dns_asked", "Questions put to DNS.", self.questions);
        visit("dns_timed_out", "Questions that DNS did not answer in time.", self.timed_out);
        visit("dns_stale", "Queries answered by an expired answer.", self.stale);
        visit(
            "dns_refused",
            "Queries refused: the share of their source was used up.",
            self.refused,
        );
        visit("dns_evicted", "Remembered answers that made room for others.", self.evicted);
    }
}

/// Locates servers; shared by all workers.
pub struct Locator {
    fetcher: Fetcher,
    clock: Clock,
    runtime: Handle,
    state: Mutex<State>,
}

struct State {
    table: Table,
    queue: Queue,
    counts: LocateCounts,
}

impl State {
    fn hops(&self, now: Time, found: &Records, query: &Query, seed: u64) -> Vec<Hop> {
        let mut hops = found.hops(query, &mut SplitMix::new(seed));
        failed_last(&mut hops, |hop| self.table.has_failed(now, hop.transport, hop.addr));
        hops
    }

    /// Returns the hops of an expired answer, if there is one, where DNS cannot be asked or does not answer.
    fn stale_hops(&mut self, now: Time, query: &Query, seed: u64) -> Option<Vec<Hop>> {
        let found = self.table.stale(now, query)?;
        self.counts.stale += 1;
        Some(self.hops(now, &found, query, seed))
    }
}

/// Results for waiting callers.
type Answers = Vec<(Vec<Hop>, Waiter)>;

/// The system's configuration of name servers cannot be used.
#[derive(Debug)]
pub struct LocateError(String);

impl fmt::Display for LocateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "name servers: {}", self.0)
    }
}

impl std::error::Error for LocateError {}

impl Locator {
    /// Creates a locator whose queries run on `runtime`, which must not be a worker's.
    pub fn new(
        config: LocatorConfig,
        clock: Clock,
        runtime: Handle,
    ) -> Result<Arc<Self>, LocateError> {
        let LocatorConfig { servers, transports, ipv4, ipv6, max_questions } = config;
        let entered = runtime.enter();
        let fetcher = Fetcher::new(&servers, transports, ipv4, ipv6)
            .map_err(|error| LocateError(error.to_string()))?;
        drop(entered);
        let (table, counts) = (Table::default(), LocateCounts::default());
        let state = Mutex::new(State { table, queue: Queue::new(max_questions.max(2)), counts });
        Ok(Arc::new(Locator { fetcher, clock, runtime, state }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic leaves the tables in a valid state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the hops of a query in the order to try them. They are empty where nothing serves the query,
    /// or the share of `source` is used up and nothing is cached. `None` means that DNS must be asked: `done`
    /// is called later with the hops, from the runtime's thread, and must not block. `source` is the address
    /// on whose behalf the query is made, to which it is charged. `seed` decides between servers of equal
    /// priority by their weights; the same seed gives the same order.
    pub fn locate(
        self: &Arc<Self>,
        query: Query,
        source: IpAddr,
        seed: u64,
        done: impl FnOnce(Vec<Hop>) + Send + 'static,
    ) -> Option<Vec<Hop>> {
        let query = Query { host: query.host.to_ascii_lowercase().into(), ..query };
        match first_step(&query, self.fetcher.transports()) {
            Step::Known(hop) => return Some(vec![hop]),
            Step::Nowhere => return Some(Vec::new()),
            Step::Addresses(_) | Step::Services(..) | Step::Naptr => {}
        }
        let source = source_of(source);
        let now = self.clock.now();
        let mut state = self.state();
        match state.table.look_up(now, &query) {
            CacheLookup::Fresh(found) => return Some(state.hops(now, &found, &query, seed)),
            CacheLookup::Stale(found) => {
                state.counts.stale += 1;
                return Some(state.hops(now, &found, &query, seed));
            }
            CacheLookup::Unknown => {}
        }
        let waiter = Waiter { source, seed, done: Box::new(done) };
        let refused = if state.queue.contains(&query) {
            state.queue.join(&query, waiter).is_err()
        } else {
            let (turn, granted) = oneshot::channel();
            let begun = state.queue.begin(&query, Some(waiter), source, turn);
            if begun.is_ok() {
                let (locator, query) = (self.clone(), query.clone());
                self.runtime.spawn(async move { locator.ask(query, source, granted).await });
            }
            begun.is_err()
        };
        if !refused {
            return None;
        }
        state.counts.refused += 1;
        Some(state.stale_hops(now, &query, seed).unwrap_or_default())
    }

    /// Records that a hop failed (RFC 3263 section 4.3: a transport error, a timeout without any response, or
    /// a 503) for `period`, such as that of a Retry-After, or [`FAILED_FOR`].
    pub fn failed(&self, transport: Transport, addr: SocketAddr, period: Option<Duration>) {
        let now = self.clock.now();
        self.state().table.fail(now, transport, addr, period.unwrap_or(FAILED_FOR));
    }

    /// Clears the failure of a hop, because it answered.
    pub fn answered(&self, transport: Transport, addr: SocketAddr) {
        self.state().table.recover(transport, addr);
    }

    /// Returns the number of cached queries, of queries in progress, and of failed hops.
    pub fn sizes(&self) -> (usize, usize, usize) {
        let state = self.state();
        let (remembered, failed) = state.table.sizes();
        (remembered, state.queue.len(), failed)
    }

    /// Returns the counters since the start.
    pub fn counts(&self) -> LocateCounts {
        let state = self.state();
        LocateCounts { evicted: state.table.evicted(), ..state.counts }
    }

    /// Asks DNS once it is this question's turn.
    async fn ask(&self, query: Query, source: IpAddr, granted: oneshot::Receiver<()>) {
        let work = async {
            timeout(MAX_TURN_WAIT, granted).await.ok()?.ok()?;
            self.state().counts.questions += 1;
            Some(timeout(LOCATE_TIMEOUT, self.fetcher.fetch(&query)).await.ok())
        };
        let mut work = pin!(work);
        let asked = match timeout(STALE_AFTER, &mut work).await {
            Ok(asked) => asked,
            Err(_) => {
                answer(self.late(&query));
                work.await
            }
        };
        answer(match asked {
            Some(fetched) => self.finish(&query, source, fetched),
            None => self.pass_over(&query),
        });
    }

    /// Answers the waiting callers with an expired answer, if there is one, because DNS is slow. The question
    /// continues (RFC 8767 section 5).
    fn late(&self, query: &Query) -> Answers {
        let now = self.clock.now();
        let mut state = self.state();
        let Some(found) = state.table.keep_stale(now, query) else { return Vec::new() };
        let waiters = state.queue.take_waiters(query);
        state.counts.stale += waiters.len() as u64;
        let hops = |w: &Waiter| state.hops(now, &found, query, w.seed);
        waiters.into_iter().map(|waiter| (hops(&waiter), waiter)).collect()
    }

    /// Stores the result of a question and answers the waiting callers.
    fn finish(&self, query: &Query, source: IpAddr, fetched: Option<FetchResult>) -> Answers {
        let now = self.clock.now();
        let mut state = self.state();
        state.counts.timed_out += u64::from(fetched.is_none());
        let (found, stale) = state.table.finish(now, query, source, fetched);
        let waiters = state.queue.finish(query);
        if stale {
            state.counts.stale += waiters.len() as u64;
        }
        let hops = |w: &Waiter| state.hops(now, &found, query, w.seed);
        waiters.into_iter().map(|waiter| (hops(&waiter), waiter)).collect()
    }

    /// Ends a question whose turn did not come. That reveals nothing about the name, so nothing is cached.
    fn pass_over(&self, query: &Query) -> Answers {
        let now = self.clock.now();
        let mut state = self.state();
        let waiters = state.queue.finish(query);
        state.counts.refused += waiters.len() as u64;
        let mut hops = |w: &Waiter| state.stale_hops(now, query, w.seed).unwrap_or_default();
        waiters.into_iter().map(|waiter| (hops(&waiter), waiter)).collect()
    }
}

fn answer(answers: Answers) {
    for (hops, waiter) in answers {
        (waiter.done)(hops);
    }
}
