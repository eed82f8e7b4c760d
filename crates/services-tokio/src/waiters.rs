//! Tasks that wait for the same condition.

use smallvec::SmallVec;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Tasks that wait for the same condition; mostly none or one.
#[derive(Debug, Default)]
pub(crate) struct Waiters(SmallVec<[Waker; 1]>);

impl Waiters {
    pub(crate) fn add(&mut self, cx: &Context<'_>) {
        if !self.0.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.0.push(cx.waker().clone());
        }
    }

    pub(crate) fn wake(&mut self) {
        self.0.drain(..).for_each(Waker::wake);
    }
}

/// Lets several tasks wait where only the last one is woken, such as at a socket of tokio.
#[derive(Debug, Default)]
pub(crate) struct Fan(Mutex<Waiters>);

impl Fan {
    /// Polls with a waker that wakes all that have polled so.
    pub(crate) fn poll<T>(
        self: &Arc<Self>,
        cx: &Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).add(cx);
        poll(&mut Context::from_waker(&Waker::from(self.clone())))
    }
}

impl Wake for Fan {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let waiters = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        { waiters }.wake();
    }
}
