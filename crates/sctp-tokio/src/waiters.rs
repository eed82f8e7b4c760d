//! Tasks that wait for an association.

use smallvec::SmallVec;
use std::task::{Context, Waker};

/// Tasks to wake once all locks are released.
pub(super) type Wakes = SmallVec<[Waker; 2]>;

/// The condition that a task waits for on an association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wait {
    /// A message to read.
    Read,
    /// Room to send, the establishment of the association, or its end.
    Write,
    /// An event.
    Event,
}

/// Tasks that wait for the same condition; mostly none or one.
#[derive(Default)]
pub(super) struct Waiters(SmallVec<[Waker; 1]>);

impl Waiters {
    pub(super) fn add(&mut self, cx: &Context<'_>) {
        if !self.0.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.0.push(cx.waker().clone());
        }
    }

    /// Removes and returns the waker of a task, if it waits.
    pub(super) fn remove(&mut self, waker: &Waker) -> Option<Waker> {
        let index = self.0.iter().position(|other| other.will_wake(waker))?;
        Some(self.0.swap_remove(index))
    }

    /// Removes and returns all wakers, and keeps the allocation.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Waker> {
        self.0.drain(..)
    }

    /// Removes and returns all wakers.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Waker> {
        std::mem::take(&mut self.0).into_iter()
    }
}
