//! Requests that left by a connection and may still be answered. Their senders learn of the end of the
//! connection, because no response can come over it any more.
//!
//! Responses are not matched here: the transactions of the sender do that. So this is no more than a list of
//! the latest requests.

use crate::limits::{ANSWER_WAIT, MAX_AWAITED};
use crate::mail::Report;
use ringway_sansio::Time;
use std::collections::VecDeque;

/// The latest requests, oldest first.
#[derive(Default, Debug)]
pub(crate) struct Awaited {
    requests: VecDeque<(Time, Report)>,
    dropped: u64,
}

impl Awaited {
    /// Notes that a request has left which was queued at `at`.
    pub(crate) fn push(&mut self, at: Time, report: Report) {
        while self.requests.front().is_some_and(|(before, _)| *before + ANSWER_WAIT < at) {
            self.requests.pop_front();
        }
        if self.requests.len() >= MAX_AWAITED {
            self.requests.pop_front();
            self.dropped += 1;
        }
        self.requests.push_back((at, report));
    }

    /// Removes and returns the reports of all requests.
    pub(crate) fn take(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.requests).into_iter().map(|(_, report)| report).collect()
    }

    /// Returns how many requests were dropped because there were too many.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(number: u64) -> Report {
        Report { worker: 0, number }
    }

    #[test]
    fn what_is_too_old_or_too_much_is_dropped() {
        let mut awaited = Awaited::default();
        awaited.push(Time::from_secs(1), report(1));
        awaited.push(Time::from_secs(2), report(2));
        awaited.push(Time::from_secs(2) + ANSWER_WAIT, report(3));
        assert_eq!(awaited.dropped(), 0);
        assert_eq!(awaited.take(), [report(2), report(3)]);
        for number in 0..=MAX_AWAITED as u64 {
            awaited.push(Time::from_secs(100), report(number));
        }
        assert_eq!(awaited.dropped(), 1);
        let left = awaited.take();
        assert_eq!((left.len(), left[0]), (MAX_AWAITED, report(1)));
    }
}
