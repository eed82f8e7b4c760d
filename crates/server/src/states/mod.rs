//! What users do at other routers, and what these are reported of the users here, if the server is a router of a mesh.
//!
//! What carries them is `ringway_onesip::follow::Carrier`, on a thread of its own. Nobody waits for it: what comes for it is put into an
//! [`Inbox`], and what others report is put into the table that workers read.
//!
//! | module | what it does |
//! |---|---|
//! | [`inbox`] | what waits for the thread |
//! | `thread` | the thread |

pub mod inbox;
mod thread;

#[cfg(test)]
mod tests;

use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use ringway_directory::Command;
use ringway_mesh::NodeId;
use ringway_net::Clock;
use ringway_proxy::location::LocationStore;
use ringway_proxy::shared::Shared;
use tokio::sync::mpsc;

use inbox::Inbox;
use thread::Thread;

/// What is counted; any thread may read it at any time.
#[derive(Default, Debug)]
pub struct StateCounts {
    /// Users of other routers that are watched here.
    pub names: AtomicU64,
    /// Users whom other routers follow here, once for each router.
    pub followers: AtomicU64,
    /// Messages of other routers, and names, that were refused: malformed, or above a limit.
    pub refused: AtomicU64,
    /// Messages that were not sent, as there was no room. They are repeated.
    pub unsent: AtomicU64,
}

/// What the thread works with.
pub(crate) struct Parts {
    /// The domain of the mesh.
    pub(crate) domain: Box<str>,
    /// This router.
    pub(crate) id: NodeId,
    /// Where it is looked up who is registered here.
    pub(crate) location: Arc<dyn LocationStore>,
    /// The states of users, of all workers.
    pub(crate) shared: Arc<Shared>,
    /// The router's.
    pub(crate) commands: mpsc::Sender<Command>,
    /// What comes from the router and the workers.
    pub(crate) inbox: Arc<Inbox>,
    /// The clock.
    pub(crate) clock: Clock,
}

/// The thread that carries states of users between routers.
pub struct UserStates {
    inbox: Arc<Inbox>,
    counts: Arc<StateCounts>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl UserStates {
    /// Starts the thread.
    pub(crate) fn start(parts: Parts) -> io::Result<Self> {
        let (inbox, counts) = (parts.inbox.clone(), Arc::<StateCounts>::default());
        let thread = Thread::new(parts, counts.clone())?;
        let thread = std::thread::Builder::new().name("states".into()).spawn(|| thread.run())?;
        Ok(UserStates { inbox, counts, thread: Mutex::new(Some(thread)) })
    }

    /// Returns what is counted.
    pub fn counts(&self) -> &Arc<StateCounts> {
        &self.counts
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.inbox.stop();
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}
