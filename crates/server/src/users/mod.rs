//! Users of many servers in one database: PostgreSQL, or the Redis or Valkey of the store.
//!
//! Workers answer from the table of users in memory, which a thread keeps as the database is. So nothing waits for the
//! database but the commands that change users. What is read and believed is the matter of `ringway_users`.
//!
//! | module | what it does |
//! |---|---|
//! | `source` | which database it is |
//! | `shared` | what others ask of the thread, and see of it |
//! | `driver` | the thread: connects, reads, carries out changes |
//! | `apply` | takes over what was read: memory, registrations, file |
//! | `session` | sessions with either; `read` is what they read |
//! | `postgres` | sessions with PostgreSQL; `migrate` its schema, `tls` its connections |
//! | `redis` | sessions with Redis or Valkey |
//! | `client` | commands without a running server |

#[cfg(feature = "cluster")]
mod apply;
pub(crate) mod client;
#[cfg(feature = "cluster")]
mod driver;
#[cfg(feature = "cluster")]
mod migrate;
#[cfg(feature = "cluster")]
mod postgres;
#[cfg(feature = "cluster")]
mod read;
#[cfg(feature = "cluster")]
mod redis;
#[cfg(feature = "cluster")]
mod session;
#[cfg_attr(not(feature = "cluster"), allow(dead_code))]
pub mod shared;
pub mod source;
#[cfg(feature = "cluster")]
mod tls;

use crate::config::{AuthMode, Settings};
use crate::store::Store;
use ringway_net::Clock;
use ringway_proxy::config::Config;
use ringway_users::Domains;
use shared::{Request, Shared, SharedUsers};
use source::Source;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};
use tracing::error;

/// The thread that reads the database.
pub struct UsersThread {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl UsersThread {
    /// Starts the thread, if a database has the users of a server with these settings, and waits for the first read, but not
    /// for long.
    ///
    /// # Errors
    /// What makes a start impossible: also that no user is known and the database cannot be read. Phones that are refused
    /// with the right password may not try again.
    pub(crate) fn of(
        settings: &Settings,
        config: &Config,
        store: &Arc<Store>,
        clock: Clock,
    ) -> Result<Option<Self>, String> {
        let Some(source) = Source::of(settings)? else { return Ok(None) };
        let domains = source::domains(&config.domains);
        let (thread, users) = UsersThread::start(source, domains, store, clock)?;
        let needs_users = store.users().is_empty() && settings.auth.mode == AuthMode::Digest;
        if !users.wait_for_first(needs_users) && needs_users {
            return Err(format!(
                "users.source: the database cannot be read ({}), and no user is known here yet: phones would be refused \
                 as with a wrong password",
                users.numbers().why
            ));
        }
        store.set_shared(users);
        Ok(Some(thread))
    }

    /// Starts the thread, which keeps the users of `store` as they are in the database. Does not wait for it.
    ///
    /// # Errors
    /// What makes a start impossible.
    pub(crate) fn start(
        source: Source,
        domains: Domains,
        store: &Arc<Store>,
        clock: Clock,
    ) -> Result<(Self, SharedUsers), String> {
        let shared = Arc::new(Shared::new(source.to_string(), source.read_only(), domains, clock));
        let (stop, stopped) = oneshot::channel();
        let (users, requests) = SharedUsers::new(shared.clone());
        let thread = start_thread(source, shared, store.clone(), clock, requests, stopped)?;
        Ok((UsersThread { stop: Some(stop), thread: Some(thread) }, users))
    }

    /// Ends the thread.
    pub(crate) fn stop(&mut self) {
        // The thread may have ended.
        let _ = self.stop.take().map(|stop| stop.send(()));
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            error!("the connection with the database of users has ended unexpectedly");
        }
    }
}

#[cfg(feature = "cluster")]
fn start_thread(
    source: Source,
    shared: Arc<Shared>,
    store: Arc<Store>,
    clock: Clock,
    requests: mpsc::Receiver<Request>,
    stopped: oneshot::Receiver<()>,
) -> Result<JoinHandle<()>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2)
        .thread_name("users-disk")
        .build()
        .map_err(|e| format!("users: {e}"))?;
    let run = move || {
        let _ends = shared::Ends(shared.clone());
        runtime.block_on(driver::drive(source, shared, store, clock, requests, stopped));
        // Its threads may wait for names or for the disk.
        runtime.shutdown_background();
    };
    std::thread::Builder::new().name("users".into()).spawn(run).map_err(|e| format!("users: {e}"))
}

#[cfg(not(feature = "cluster"))]
fn start_thread(
    source: Source,
    _: Arc<Shared>,
    _: Arc<Store>,
    _: Clock,
    _: mpsc::Receiver<Request>,
    _: oneshot::Receiver<()>,
) -> Result<JoinHandle<()>, String> {
    match source {}
}

#[cfg(test)]
#[cfg(feature = "cluster")]
mod tests;
