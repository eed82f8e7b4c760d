//! Watches a command from another thread: how far it is, and its early end.

use crate::progress::Shared;
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};
use ringway_sim::Interrupt;
use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    static CURRENT: RefCell<Option<Watch>> = const { RefCell::new(None) };
}

/// A watch over a command. Clones watch the same command.
///
/// ```
/// use ringway_lab::commands::{RunArgs, run};
/// use ringway_lab::watch::Watch;
///
/// let watch = Watch::default();
/// watch.interrupt();
/// let args = RunArgs { scenario: "lossy-bulk".into(), ..RunArgs::default() };
/// assert!(watch.run(1, || run(&args))?.is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Watch {
    interrupt: Interrupt,
    shared: Arc<Shared>,
}

impl Watch {
    /// Runs `work` on a pool of `threads` threads (0 for one per core), which this watch holds for.
    ///
    /// # Errors
    /// The system starts no more threads.
    pub fn run<T: Send>(
        &self,
        threads: usize,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, ThreadPoolBuildError> {
        Ok(build(Some(self.clone()), threads)?.install(work))
    }

    /// Ends the command soon, with an error.
    pub fn interrupt(&self) {
        self.interrupt.set();
    }

    /// Returns whether the command was ended early.
    pub fn is_interrupted(&self) -> bool {
        self.interrupt.is_set()
    }

    /// Returns the share that is done, from 0 to 1, and what is being done.
    pub fn progress(&self) -> (f64, String) {
        self.shared.get()
    }

    /// Returns the watch that holds for this thread.
    pub(crate) fn current() -> Option<Self> {
        CURRENT.with_borrow(Clone::clone)
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }
}

/// Returns a pool of threads that the present thread's watch holds for.
pub(crate) fn pool(threads: usize) -> Result<ThreadPool, ThreadPoolBuildError> {
    build(Watch::current(), threads)
}

fn build(watch: Option<Watch>, threads: usize) -> Result<ThreadPool, ThreadPoolBuildError> {
    let enter = move |_| {
        if let Some(watch) = &watch {
            watch.interrupt.enter();
            CURRENT.with_borrow_mut(|current| *current = Some(watch.clone()));
        }
    };
    ThreadPoolBuilder::new().num_threads(threads).start_handler(enter).build()
}
