//! Requests that left by a connection and may still be answered: who sent them is told when the
//! connection ends, because no answer can come over it any more.
//!
//! Nobody looks here for what was answered: who is told knows that better. So this is no more than a
//! list of what left of late.

use crate::limits::{ANSWER_WAIT, MAX_AWAITED};
use crate::mailbox::Report;
use ringway_sansio::Time;
use std::collections::VecDeque;

/// What left of late, oldest first.
#[derive(Default)]
pub(crate) struct Awaited {
    requests: VecDeque<(Time, Report)>,
    forgotten: u64,
}

impl Awaited {
    /// A request has left that was given at `at`.
    pub(crate) fn push(&mut self, at: Time, report: Report) {
        while self.requests.front().is_some_and(|(before, _)| *before + ANSWER_WAIT < at) {
            self.requests.pop_front();
        }
        if self.requests.len() >= MAX_AWAITED {
            self.requests.pop_front();
            self.forgotten += 1;
        }
        self.requests.push_back((at, report));
    }

    /// The connection has ended: who is to be told.
    pub(crate) fn take(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.requests).into_iter().map(|(_, report)| report).collect()
    }

    /// How many were forgotten for want of room.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(number: u64) -> Report {
        Report { worker: 0, number }
    }

    #[test]
    fn what_is_too_old_or_too_much_is_forgotten() {
        let mut awaited = Awaited::default();
        awaited.push(Time::from_secs(1), report(1));
        awaited.push(Time::from_secs(2), report(2));
        awaited.push(Time::from_secs(2) + ANSWER_WAIT, report(3));
        assert_eq!(awaited.forgotten(), 0);
        assert_eq!(awaited.take(), [report(2), report(3)]);
        for number in 0..=MAX_AWAITED as u64 {
            awaited.push(Time::from_secs(100), report(number));
        }
        assert_eq!(awaited.forgotten(), 1);
        let left = awaited.take();
        assert_eq!((left.len(), left[0]), (MAX_AWAITED, report(1)));
    }
}
