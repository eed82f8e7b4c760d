//! Locating SIP servers (RFC 3263): from the host of a URI to transports, addresses and ports, in
//! the order to try them.
//!
//! [`Locator::locate`] never waits: it answers at once what needs no query or is remembered, and
//! else asks in the background and answers by a callback. What DNS said is remembered for as long as
//! it holds, within bounds, and a little longer where DNS itself has failed since; a hop that failed
//! is tried last for a while, never for ever. [`order`] has the decisions, as pure functions.

mod dns;
pub mod order;
#[cfg(test)]
mod order_tests;
mod table;

use crate::clock::Clock;
use dns::Fetcher;
pub use order::{Hop, Query};
use order::{Step, failed_last, first_step};
use ringway_sansio::{SplitMix, Transport};
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
pub use table::{
    FAILED_FOR, LEAST_LIFETIME, MAX_FAILED, MAX_REMEMBERED, MAX_UNDER_WAY, MAX_WAITING,
    MOST_LIFETIME, STALE_FOR,
};
use table::{Known, Table};
use tokio::runtime::Handle;

/// Longest time one query may take, all its lookups together: well within the 32 s of a transaction
/// (RFC 3261 section 17.1.1.2, timer B).
pub const LOCATE_TIMEOUT: Duration = Duration::from_secs(8);

/// How server location is done.
#[derive(Clone, Debug, Default)]
pub struct LocatorConfig {
    /// Name servers to ask; those of the system where there are none.
    pub servers: Vec<SocketAddr>,
    /// The transports we can send on, the best first.
    pub transports: Vec<Transport>,
    /// Whether we can send over IPv4.
    pub ipv4: bool,
    /// Whether we can send over IPv6.
    pub ipv6: bool,
}

/// Locates servers; shared by all workers.
pub struct Locator {
    fetcher: Fetcher,
    clock: Clock,
    runtime: Handle,
    table: Mutex<Table>,
}

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
    /// Queries run on `runtime`, which must be another than the workers' own.
    pub fn new(
        config: LocatorConfig,
        clock: Clock,
        runtime: Handle,
    ) -> Result<Arc<Self>, LocateError> {
        let LocatorConfig { servers, transports, ipv4, ipv6 } = config;
        let entered = runtime.enter();
        let fetcher = Fetcher::new(&servers, transports, ipv4, ipv6)
            .map_err(|error| LocateError(error.to_string()))?;
        drop(entered);
        Ok(Arc::new(Locator { fetcher, clock, runtime, table: Mutex::default() }))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // A thread that panicked left nothing half done in the table.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where to send. `Some` is the answer, in the order to try; empty where nothing serves the
    /// query. `None` means that DNS must be asked: `done` is called later, from the runtime's
    /// thread, with the answer, and must not wait. `seed` decides between servers of equal standing
    /// by their weights; with the same seed the order is the same.
    pub fn locate(
        self: &Arc<Self>,
        query: Query,
        seed: u64,
        done: impl FnOnce(Vec<Hop>) + Send + 'static,
    ) -> Option<Vec<Hop>> {
        let query = Query { host: query.host.to_ascii_lowercase().into(), ..query };
        match first_step(&query, self.fetcher.transports()) {
            Step::Known(hop) => return Some(vec![hop]),
            Step::Nowhere => return Some(Vec::new()),
            Step::Addresses(_) | Step::Services(..) | Step::Naptr => {}
        }
        let now = self.clock.now();
        let mut table = self.table();
        match table.look_up(now, &query) {
            Known::Fresh(found) => {
                let mut hops = found.hops(&query, &mut SplitMix::new(seed));
                failed_last(&mut hops, |hop| table.has_failed(now, hop.transport, hop.addr));
                return Some(hops);
            }
            Known::UnderWay => {
                // Too many wait already: as good as not found, and no slower.
                let waits = table.wait(query, seed, Box::new(done));
                return if waits { None } else { Some(Vec::new()) };
            }
            Known::Unknown => {}
        }
        if !table.begin(query.clone(), seed, Box::new(done)) {
            return Some(Vec::new());
        }
        drop(table);
        let locator = self.clone();
        self.runtime.spawn(async move { locator.ask(query).await });
        None
    }

    /// Remembers that a hop failed (RFC 3263 section 4.3: a transport error, a timeout without any
    /// answer, or a 503): for `period`, such as a Retry-After tells, or [`FAILED_FOR`].
    pub fn failed(&self, transport: Transport, addr: SocketAddr, period: Option<Duration>) {
        let now = self.clock.now();
        self.table().fail(now, transport, addr, period.unwrap_or(FAILED_FOR));
    }

    /// Forgets that a hop failed, because it answered.
    pub fn answered(&self, transport: Transport, addr: SocketAddr) {
        self.table().recover(transport, addr);
    }

    /// How many queries are remembered, under way, and how many hops count as failed.
    pub fn sizes(&self) -> (usize, usize, usize) {
        self.table().sizes()
    }

    async fn ask(&self, query: Query) {
        let fetched = tokio::time::timeout(LOCATE_TIMEOUT, self.fetcher.fetch(&query)).await.ok();
        let now = self.clock.now();
        let mut table = self.table();
        let (found, waiters) = table.finish(now, &query, fetched);
        let answers: Vec<_> = waiters
            .into_iter()
            .map(|(seed, done)| {
                let mut hops = found.hops(&query, &mut SplitMix::new(seed));
                failed_last(&mut hops, |hop| table.has_failed(now, hop.transport, hop.addr));
                (done, hops)
            })
            .collect();
        drop(table);
        for (done, hops) in answers {
            done(hops);
        }
    }
}
