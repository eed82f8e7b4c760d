//! Short numbers of the users of this server, if it is a router of a mesh.
//!
//! The machine is `ringway_phonebook::numbers`, on a thread of its own, because it must wait for the disk before it sends.
//! Nobody waits for it: what comes for it is put into an [`Inbox`], and the number of a user is read from a table.
//!
//! | module | what it does |
//! |---|---|
//! | [`inbox`] | what waits for the thread |
//! | [`orders`] | what an operator asks of it |
//! | `peers` | which routers it talks to |
//! | `thread` | the thread |

pub mod inbox;
pub mod orders;
mod peers;
mod thread;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringway_directory::Command;
use ringway_mesh::NodeId;
use ringway_net::Clock;
pub(crate) use ringway_phonebook::numbers::Config;
use ringway_phonebook::numbers::state::{Holder, State};
use tokio::sync::{mpsc, oneshot};

use crate::mesh::lists::Lists;
use crate::store::Store;
use inbox::Inbox;
use orders::{Answer, Order};
use thread::Thread;

/// What is counted of short numbers; any thread may read it at any time.
#[derive(Default, Debug)]
pub struct NumberCounts {
    /// Users with a number.
    pub assigned: AtomicU64,
    /// Users that wait for one.
    pub waiting: AtomicU64,
    /// Free blocks of ten numbers.
    pub free_blocks: AtomicU64,
    /// Messages of other routers that were refused: malformed, or above a limit.
    pub refused: AtomicU64,
    /// Messages that were not sent, as there was no room. They are repeated.
    pub unsent: AtomicU64,
    /// States that could not be stored. That is tried again, and nothing is sent before.
    pub unsaved: AtomicU64,
}

/// What the thread shares with those who ask.
#[derive(Default)]
struct Shared {
    /// The numbers by users with their domain.
    known: Mutex<HashMap<Box<str>, Box<str>>>,
    changed: Condvar,
    /// Whether this router is in a network of short numbers.
    has_network: AtomicBool,
    counts: NumberCounts,
}

impl Shared {
    fn known(&self) -> MutexGuard<'_, HashMap<Box<str>, Box<str>>> {
        // Each change is one insertion or removal.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the thread works with.
pub(crate) struct Parts {
    /// Limits and intervals.
    pub(crate) config: Config,
    /// This router.
    pub(crate) id: NodeId,
    /// The domain of the mesh.
    pub(crate) domain: Box<str>,
    /// Where users are, and where the state is kept.
    pub(crate) store: Arc<Store>,
    /// The router's.
    pub(crate) commands: mpsc::Sender<Command>,
    /// Which routers have users.
    pub(crate) lists: Arc<Lists>,
    /// What comes from the router.
    pub(crate) inbox: Arc<Inbox>,
    /// The clock.
    pub(crate) clock: Clock,
}

/// The short numbers of the users of this server.
pub struct ShortNumbers {
    domain: Box<str>,
    inbox: Arc<Inbox>,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl ShortNumbers {
    /// Starts the thread, with the state that the store has kept.
    pub(crate) fn start(parts: Parts) -> std::io::Result<Arc<Self>> {
        let (domain, inbox, shared) =
            (parts.domain.clone(), parts.inbox.clone(), Arc::<Shared>::default());
        let thread = Thread::new(parts, shared.clone())?;
        let thread = std::thread::Builder::new().name("numbers".into()).spawn(|| thread.run())?;
        Ok(Arc::new(ShortNumbers { domain, inbox, shared, thread: Mutex::new(Some(thread)) }))
    }

    /// Returns whether users of a domain have numbers.
    pub fn is_for(&self, realm: &str) -> bool {
        *realm == *self.domain
    }

    /// A user was added.
    pub(crate) fn add(&self, user: &str, realm: &str) {
        if self.is_for(realm) {
            self.inbox.add_user(format!("{user}@{realm}").into());
        }
    }

    /// A user was removed: its number is given to nobody for some days.
    pub(crate) fn remove(&self, user: &str, realm: &str) {
        if self.is_for(realm) {
            let name: Box<str> = format!("{user}@{realm}").into();
            // At once: a user of that name who is added now has another one.
            self.shared.known().remove(&name);
            self.inbox.remove_user(name);
        }
    }

    /// Returns the number of a user with its domain.
    pub fn number_of(&self, name: &str) -> Option<Box<str>> {
        self.shared.known().get(name).cloned()
    }

    /// Returns all numbers, by the users with their domain.
    pub fn all(&self) -> HashMap<Box<str>, Box<str>> {
        self.shared.known().clone()
    }

    /// Returns what is counted.
    pub fn counts(&self) -> &NumberCounts {
        &self.shared.counts
    }

    /// Waits for the number of a user, unless this router is in no network yet, which takes much longer. A worker must not
    /// call it.
    pub fn wait_for(&self, name: &str, time: Duration) -> Option<Box<str>> {
        let until = Instant::now() + time;
        let mut known = self.shared.known();
        loop {
            if let Some(number) = known.get(name) {
                return Some(number.clone());
            }
            let left = until.saturating_duration_since(Instant::now());
            let has_network = self.shared.has_network.load(std::sync::atomic::Ordering::Relaxed);
            if left.is_zero() || !has_network {
                return None;
            }
            let waited = self.shared.changed.wait_timeout(known, left);
            known = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Has the thread do what an operator asks. `None` if too much waits for it.
    pub fn order(&self, order: Order) -> Option<oneshot::Receiver<Answer>> {
        self.inbox.order(order)
    }

    /// Ends the thread, when it has stored its state.
    pub(crate) fn stop(&self) {
        self.inbox.stop();
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}

/// Returns the users of a state that was kept, with their numbers; none of octets that are no state.
pub(crate) fn assigned(octets: &[u8]) -> Vec<(Box<str>, Box<str>)> {
    let Ok(state) = State::parse(octets) else { return Vec::new() };
    let holders = state.slots.into_iter();
    let users = holders.filter_map(|(number, holder)| match holder {
        Holder::User(user) => Some((user, number.to_string().into())),
        Holder::Nobody(_) => None,
    });
    users.collect()
}
