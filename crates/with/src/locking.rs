//! Locks that are held for one change of a table, never across a wait.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a table.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked has left a table whose entries are each whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
