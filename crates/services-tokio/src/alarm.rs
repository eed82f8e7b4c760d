//! A time at which a task is woken, which the task may change at each turn.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::time::{Instant, Sleep, sleep_until};

/// The time, if there is one.
#[derive(Debug)]
pub(crate) struct Alarm {
    sleep: Pin<Box<Sleep>>,
    at: Option<Instant>,
}

impl Alarm {
    /// Returns one that is not set. To be called within a runtime.
    pub(crate) fn new() -> Alarm {
        Alarm { sleep: Box::pin(sleep_until(Instant::now())), at: None }
    }

    /// Has the task woken at a time, and at no other. One that has come wakes it at once.
    pub(crate) fn set(&mut self, at: Option<Instant>, cx: &mut Context<'_>) {
        if at != self.at {
            self.at = at;
            if let Some(at) = at {
                self.sleep.as_mut().reset(at);
            }
        }
        if self.poll(cx).is_ready() {
            self.at = None;
            cx.waker().wake_by_ref();
        }
    }

    /// Returns whether the time has come.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.at.is_some() { self.sleep.as_mut().poll(cx) } else { Poll::Pending }
    }
}
