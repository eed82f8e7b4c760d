//! The locks of a stack, and their order.
//!
//! 1. [`Rank::Endpoint`]: the endpoint, its tables, listeners and ports ([`Tables`](super::tables::Tables)). Taken to find
//!    the association of a packet, to open one, and when one ends.
//! 2. [`Rank::Association`]: one association with the tasks that wait for it ([`Member`](super::member::Member)).
//! 3. [`Rank::Leaf`]: a driver's inbox, or the random source of the users' calls.
//!
//! A thread that holds a lock takes only locks of later ranks, and so at most one of each rank. A circle of threads that
//! wait for each other is thereby impossible. Debug builds check it at each lock. No lock is held while a task waits or
//! a system call sends or receives packets, and tasks are woken after the locks are released.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The position of a lock in the order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rank {
    Endpoint,
    Association,
    Leaf,
}

/// A value behind a lock.
pub(super) struct Lock<T> {
    rank: Rank,
    value: Mutex<T>,
}

impl<T> Lock<T> {
    pub(super) fn new(rank: Rank, value: T) -> Lock<T> {
        Lock { rank, value: Mutex::new(value) }
    }

    /// Waits for the lock.
    pub(super) fn lock(&self) -> Guard<'_, T> {
        let held = Held::new(self.rank);
        // A panic under the lock leaves the protocol between two calls, which is a valid state.
        let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        Guard { value, _held: held }
    }
}

/// A locked value. The lock is released when this is dropped.
pub(super) struct Guard<'a, T> {
    // Dropped first.
    value: MutexGuard<'a, T>,
    _held: Held,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

#[cfg(debug_assertions)]
thread_local! {
    /// The ranks of the locks that this thread holds, a bit each.
    static HELD: std::cell::Cell<u8> = const { std::cell::Cell::new(0) };
}

/// Notes that this thread holds a lock. Without debug assertions it is nothing.
struct Held {
    #[cfg(debug_assertions)]
    bit: u8,
}

impl Held {
    #[cfg(debug_assertions)]
    fn new(rank: Rank) -> Held {
        let bit = 1 << rank as u8;
        HELD.with(|held| {
            assert!(held.get() < bit, "{rank:?} is locked under {:#05b}", held.get());
            held.set(held.get() | bit);
        });
        Held { bit }
    }

    #[cfg(not(debug_assertions))]
    fn new(_: Rank) -> Held {
        Held {}
    }
}

#[cfg(debug_assertions)]
impl Drop for Held {
    fn drop(&mut self) {
        HELD.with(|held| held.set(held.get() & !self.bit));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_taken_in_their_order() {
        let tables = Lock::new(Rank::Endpoint, 1);
        let member = Lock::new(Rank::Association, 2);
        let inbox = Lock::new(Rank::Leaf, 3);
        for _ in 0..2 {
            let (first, second, third) = (tables.lock(), member.lock(), inbox.lock());
            assert_eq!(*first + *second + *third, 6);
        }
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "Endpoint is locked under 0b010")]
    fn the_endpoint_is_not_locked_under_an_association() {
        let (tables, member) = (Lock::new(Rank::Endpoint, ()), Lock::new(Rank::Association, ()));
        let _member = member.lock();
        let _tables = tables.lock();
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "Association is locked under 0b010")]
    fn a_second_association_is_not_locked_under_another() {
        let (one, other) = (Lock::new(Rank::Association, ()), Lock::new(Rank::Association, ()));
        let _one = one.lock();
        let _other = other.lock();
    }
}
