//! Heartbeats of a path (RFC 9260 section 8.3).

use ringway_sansio::{Duration, Time};

/// The heartbeat that was sent last.
#[derive(Clone, Copy, Debug)]
enum Last {
    /// There is none, or it is settled.
    None,
    Unanswered {
        at: Time,
        nonce: u64,
        /// The number of changes of the local address then.
        turn: u8,
    },
}

/// The state of a path's heartbeats.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heartbeat {
    /// Whether heartbeats are sent periodically.
    enabled: bool,
    /// Whether one is due now.
    due: bool,
    last: Last,
    /// The time when a packet that measures a round trip was last sent.
    used: Time,
    /// The time since which the path is idle, unless it was used later.
    idle_from: Time,
}

impl Heartbeat {
    pub(super) fn new(enabled: bool, now: Time) -> Heartbeat {
        Heartbeat { enabled, due: false, last: Last::None, used: now, idle_from: now }
    }

    /// Returns whether heartbeats are sent periodically.
    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Returns whether one is due now.
    pub(crate) fn is_due(&self) -> bool {
        self.due
    }

    /// Has one sent now.
    pub(crate) fn request(&mut self) {
        self.due = true;
    }

    /// Sends none now.
    pub(crate) fn cancel(&mut self) {
        self.due = false;
    }

    /// Returns whether one is not answered.
    pub(crate) fn is_under_way(&self) -> bool {
        matches!(self.last, Last::Unanswered { .. })
    }

    /// Notes that one is sent.
    pub(super) fn sent(&mut self, at: Time, nonce: u64, turn: u8) {
        (self.due, self.last, self.used) = (false, Last::Unanswered { at, nonce, turn }, at);
    }

    /// Handles an answer. Returns the round trip, if it is the answer to the one that was sent last.
    pub(super) fn take_answered(&mut self, now: Time, nonce: u64) -> Option<Duration> {
        match self.last {
            Last::Unanswered { at, nonce: sent, .. } if sent == nonce => {
                self.last = Last::None;
                Some(now.since(at))
            }
            _ => None,
        }
    }

    /// Notes that the one that was sent is lost. Returns the number of changes of the local address when it was sent.
    pub(crate) fn lose(&mut self) -> Option<u8> {
        match core::mem::replace(&mut self.last, Last::None) {
            Last::Unanswered { turn, .. } => Some(turn),
            Last::None => None,
        }
    }

    /// Forgets the one that was sent.
    pub(super) fn forget(&mut self) {
        self.last = Last::None;
    }

    /// Notes that a packet that measures a round trip is sent.
    #[inline]
    pub(crate) fn note_use(&mut self, now: Time) {
        self.used = now;
    }

    /// Begins to look whether the path is idle.
    pub(super) fn watch(&mut self, now: Time) {
        self.idle_from = now;
    }

    /// Returns whether the path was not used since the last call of `watch`.
    pub(crate) fn is_idle(&self) -> bool {
        self.used <= self.idle_from
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9260 section 8.3: only the answer to the last heartbeat counts.
    #[test]
    fn the_last_heartbeat_is_answered_once() {
        let secs = Time::from_secs;
        let mut heartbeat = Heartbeat::new(true, secs(1));
        heartbeat.request();
        heartbeat.sent(secs(2), 7, 0);
        assert!(!heartbeat.is_due() && heartbeat.is_under_way());
        assert_eq!(heartbeat.take_answered(secs(3), 6), None);
        assert_eq!(heartbeat.take_answered(secs(3), 7), Some(Duration::from_secs(1)));
        assert_eq!(heartbeat.take_answered(secs(3), 7), None);
    }

    #[test]
    fn a_path_is_idle_until_it_is_used() {
        let mut heartbeat = Heartbeat::new(true, Time::from_secs(1));
        assert!(heartbeat.is_idle());
        heartbeat.note_use(Time::from_secs(2));
        assert!(!heartbeat.is_idle());
        heartbeat.watch(Time::from_secs(3));
        assert!(heartbeat.is_idle());
    }
}
