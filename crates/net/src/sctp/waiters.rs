//! Tasks that wait for an association.

use smallvec::SmallVec;
use std::task::{Context, Waker};

/// What is waited for on an association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wait {
    /// Something to read.
    Read,
    /// Room to send, or that it is established, or its end.
    Write,
    /// An event.
    Event,
}

/// Tasks that wait for the same thing; mostly none or one.
#[derive(Default)]
pub(super) struct Waiters(SmallVec<[Waker; 1]>);

impl Waiters {
    pub(super) fn add(&mut self, cx: &Context<'_>) {
        if !self.0.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.0.push(cx.waker().clone());
        }
    }

    /// Takes one out, where it waits.
    pub(super) fn remove(&mut self, waker: &Waker) -> Option<Waker> {
        let index = self.0.iter().position(|other| other.will_wake(waker))?;
        Some(self.0.swap_remove(index))
    }

    /// As [`Waiters::take`], and keeps the memory.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Waker> {
        self.0.drain(..)
    }

    /// Those who waited.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Waker> {
        std::mem::take(&mut self.0).into_iter()
    }
}
