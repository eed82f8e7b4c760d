//! What users do at other servers, and what these are reported of the users here, if the server is a router of a mesh or a node
//! of a cluster.
//!
//! What carries them is `ringway_follow::Carrier`, on a thread of its own. Nobody waits for it: what comes for it is put into an
//! [`Inbox`], and what others report is put into the table that workers read.
//!
//! | module | what it does |
//! |---|---|
//! | [`inbox`] | what waits for the thread |
//! | `link` | what the thread needs of other servers |
//! | `routers` | those of a mesh |
//! | `nodes` | those of a cluster |
//! | `thread` | the thread |

pub mod inbox;
mod link;
pub(crate) mod nodes;
pub(crate) mod routers;
mod thread;

#[cfg(test)]
mod tests;

pub(crate) use link::Link;
pub use nodes::Run;

use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use ringway_follow::Carrier;
use ringway_net::Clock;

use inbox::Inbox;
use thread::Thread;

/// What is counted; any thread may read it at any time.
#[derive(Default, Debug)]
pub struct StateCounts {
    /// Users of other servers that are watched here.
    pub names: AtomicU64,
    /// Users whom other servers follow here, once for each server.
    pub followers: AtomicU64,
    /// Messages of other servers, names and contacts that were refused: malformed, or above a limit.
    pub refused: AtomicU64,
    /// Messages that were not sent, as there was no room. They are repeated.
    pub unsent: AtomicU64,
}

/// The thread that carries states of users between servers.
pub struct UserStates {
    counts: Arc<StateCounts>,
    stop: Box<dyn Fn() + Send + Sync>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl UserStates {
    /// Starts the thread.
    pub(crate) fn start<L: Link>(
        carrier: Carrier<L::Id>,
        link: L,
        inbox: Arc<Inbox<L::Id>>,
        clock: Clock,
    ) -> io::Result<Self> {
        let counts = Arc::<StateCounts>::default();
        let thread = Thread::new(carrier, link, inbox.clone(), clock, counts.clone())?;
        let thread = std::thread::Builder::new().name("states".into()).spawn(|| thread.run())?;
        let stop = Box::new(move || inbox.stop());
        Ok(UserStates { counts, stop, thread: Mutex::new(Some(thread)) })
    }

    /// Returns what is counted.
    pub fn counts(&self) -> &Arc<StateCounts> {
        &self.counts
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        (self.stop)();
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}
