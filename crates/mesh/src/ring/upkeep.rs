//! When a router looks after its part of the ring.
//!
//! A change of the near contacts is followed by quiet: after [`QUIET`] without another change the router asks the nearest
//! contact on each side for those beside it, and the first router of the line looks for the last. Then it does so ever
//! more rarely: what the triggers have left undone, because messages were lost, is found by asking.

use ringway_sansio::Time;
use ringway_sansio::time::Duration;

/// Time without a change after which a router asks.
const QUIET: Duration = Duration::from_secs(2);
/// First and longest time between two questions when nothing changes.
const FIRST_WAIT: Duration = Duration::from_secs(4);
const MAX_WAIT: Duration = Duration::from_secs(240);
/// Time between two questions up to which they are the first after a change.
const EARLY: Duration = Duration::from_secs(32);
/// Time without a change after which a part of the ring counts as settled.
const SETTLED: Duration = Duration::from_secs(5);

/// When the next question is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Upkeep {
    changed: Option<Time>,
    due: Option<Time>,
    wait: Duration,
}

impl Upkeep {
    /// The near contacts have changed.
    pub(super) fn change(&mut self, now: Time) {
        self.changed = Some(now);
        self.due = Some(now + QUIET);
        self.wait = FIRST_WAIT;
    }

    /// A router that may be a near one was not reached: it is asked for again soon.
    pub(super) fn hurry(&mut self, now: Time) {
        let soon = now + FIRST_WAIT;
        if self.due.is_none_or(|due| due > soon) {
            self.due = Some(soon);
            self.wait = FIRST_WAIT * 2;
        }
    }

    /// The near contacts are again those that were asked. They may have lost this router meanwhile, so they are asked once.
    pub(super) fn ask_again(&mut self, now: Time) {
        let soon = now + FIRST_WAIT;
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
    }

    /// Returns whether a question is due, and sets the time of the next.
    pub(super) fn is_due(&mut self, now: Time) -> bool {
        let due = self.due.is_some_and(|due| due <= now);
        if due {
            self.due = Some(now + self.wait);
            self.wait = (self.wait * 2).min(MAX_WAIT);
        }
        due
    }

    /// Returns when the next question is due.
    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Returns whether this turn is one of the first after a change.
    pub(super) fn is_early(&self) -> bool {
        self.wait <= EARLY
    }

    /// Returns whether nothing has changed for some time.
    pub(super) fn is_settled(&self, now: Time) -> bool {
        self.changed.is_some_and(|changed| now.since(changed) >= SETTLED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_become_rarer_until_something_changes() {
        let mut upkeep = Upkeep::default();
        assert!(upkeep.due().is_none() && !upkeep.is_settled(Time::from_secs(9)));
        let mut now = Time::from_secs(100);
        upkeep.change(now);
        let mut waits = Vec::new();
        while let Some(due) = upkeep.due().filter(|_| waits.len() < 10) {
            waits.push(due.since(now).as_secs());
            assert!(!upkeep.is_due(Time::from_nanos(due.as_nanos() - 1)));
            now = due;
            assert!(upkeep.is_due(now));
        }
        assert_eq!(waits, [2, 4, 8, 16, 32, 64, 128, 240, 240, 240]);
        upkeep.hurry(now);
        upkeep.hurry(now + FIRST_WAIT);
        assert_eq!(upkeep.due(), Some(now + FIRST_WAIT));
        assert!(upkeep.is_settled(now));
        upkeep.change(now);
        assert_eq!((upkeep.due(), upkeep.is_settled(now)), (Some(now + QUIET), false));
    }
}
