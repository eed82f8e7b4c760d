//! FORWARD TSNs that are owed and sent (RFC 3758 section 3.5).

use ringway_sansio::Time;

/// When the next one is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Due {
    #[default]
    No,
    /// Now, on the path of data.
    Now,
    /// Now, on this path, because T3-rtx has expired on another (rule C5).
    On(u8),
}

/// One that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentForwardTsn {
    /// The position of its new cumulative TSN.
    position: u64,
    pub(super) path: u8,
    pub(super) at: Time,
    /// Whether it had been sent before.
    pub(super) again: bool,
}

/// The FORWARD TSN that is due, and the last that was sent.
#[derive(Debug, Default)]
pub(super) struct Forwards {
    due: Due,
    last: Option<SentForwardTsn>,
}

impl Forwards {
    /// Has one sent if `wanted`.
    #[inline]
    pub(super) fn request_if(&mut self, wanted: bool) {
        if wanted && self.due == Due::No {
            self.due = Due::Now;
        }
    }

    /// Has one sent on a path.
    pub(super) fn request_on(&mut self, path: usize) {
        self.due = Due::On(path as u8);
    }

    /// Sends none.
    pub(super) fn cancel(&mut self) {
        self.due = Due::No;
    }

    /// Returns whether one is due.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.due != Due::No
    }

    /// Returns the path that one is due on, if it is not that of data.
    pub(super) fn path(&self) -> Option<usize> {
        match self.due {
            Due::On(path) => Some(usize::from(path)),
            Due::No | Due::Now => None,
        }
    }

    /// Notes that the one which was due is sent, up to a position.
    pub(super) fn sent(&mut self, position: u64, path: usize, at: Time) {
        let again = self.last.is_some_and(|last| last.position == position);
        self.last = Some(SentForwardTsn { position, path: path as u8, at, again });
        self.due = Due::No;
    }

    /// Removes and returns the last that was sent, if `has_passed` selects its position.
    pub(super) fn take_arrived(
        &mut self,
        has_passed: impl Fn(u64) -> bool,
    ) -> Option<SentForwardTsn> {
        self.last.take_if(|last| has_passed(last.position))
    }

    /// Drops everything, because the positions start over.
    pub(super) fn reset(&mut self) {
        *self = Forwards::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_due_elsewhere_stays_there() {
        let mut forwards = Forwards::default();
        forwards.request_if(false);
        assert!(!forwards.is_due());
        forwards.request_on(1);
        forwards.request_if(true);
        assert_eq!(forwards.path(), Some(1));
        forwards.sent(7, 1, Time::from_secs(1));
        assert!(!forwards.is_due() && forwards.take_arrived(|position| position < 7).is_none());
        forwards.sent(7, 0, Time::from_secs(2));
        assert!(forwards.take_arrived(|position| position == 7).is_some_and(|last| last.again));
    }
}
