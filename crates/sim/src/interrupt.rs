//! Ends worlds early, from another thread.
//!
//! An [`Interrupt`] holds for a thread: each world that the thread advances looks at it from time to
//! time, and returns [`Error::Interrupted`] once it is set. So it reaches the worlds inside an
//! experiment without a parameter of every function between. A world that was interrupted is in no
//! defined state; its figures must not be used.

use crate::Error;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of events between two looks of a world, less 1: a power of two, less 1.
pub(crate) const EVENTS: u64 = (1 << 12) - 1;

thread_local! {
    static CURRENT: RefCell<Option<Interrupt>> = const { RefCell::new(None) };
}

/// A flag that ends the worlds of some threads. Clones are the same flag.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Ends all worlds that the flag holds for.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether the flag is set.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Makes the flag hold for this thread, instead of an earlier one.
    pub fn enter(&self) {
        CURRENT.with_borrow_mut(|current| *current = Some(self.clone()));
    }

    /// Ends the hold of any flag on this thread.
    pub fn leave() {
        CURRENT.with_borrow_mut(|current| *current = None);
    }

    /// Returns the flag that holds for this thread; without one, a flag that is never set.
    pub fn current() -> Self {
        CURRENT.with_borrow(Clone::clone).unwrap_or_default()
    }

    /// Returns an error if the flag is set. What computes for long without a world calls this.
    pub fn check(&self) -> Result<(), Error> {
        if self.is_set() { Err(Error::Interrupted) } else { Ok(()) }
    }
}
