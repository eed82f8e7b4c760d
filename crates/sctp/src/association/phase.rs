//! The phases of an association: each state of RFC 9260 section 4 with what only that state has.

use super::{Association, FinalChunk, State};
use ringway_sansio::Time;

/// The state of an association and its data.
#[derive(Debug)]
pub(super) enum Phase {
    CookieWait(Box<CookieWait>),
    CookieEchoed(Box<CookieEchoed>),
    Established,
    /// SHUTDOWN waits until everything is acknowledged.
    ShutdownPending,
    ShutdownSent(Closing),
    /// SHUTDOWN ACK waits until everything is acknowledged.
    ShutdownReceived {
        /// Whether the user has requested a shutdown too.
        requested: bool,
    },
    ShutdownAckSent(Closing),
    Closed(Option<Box<FinalChunk>>),
}

/// An INIT or a COOKIE ECHO, which is sent until it is answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    /// The path it is sent on.
    pub(super) path: usize,
    /// Whether it is due now.
    pub(super) due: bool,
    /// Number of times that it was sent again.
    pub(super) retransmits: u32,
    /// The time when it was sent, if only once.
    pub(super) timed: Option<Time>,
    /// Number of stale cookies.
    pub(super) stale: u32,
    /// Whether the user has requested a shutdown, which follows the handshake.
    pub(super) shutdown_requested: bool,
}

impl Attempt {
    /// Returns the first INIT, due on the first path.
    pub(super) fn first() -> Attempt {
        let (retransmits, stale) = (0, 0);
        Attempt { path: 0, due: true, retransmits, timed: None, stale, shutdown_requested: false }
    }

    /// Notes that it is sent.
    pub(super) fn sent(&mut self, now: Time) {
        self.due = false;
        self.timed = (self.retransmits == 0).then_some(now);
    }
}

/// An INIT that is not answered.
#[derive(Debug)]
pub(super) struct CookieWait {
    pub(super) attempt: Attempt,
    /// Longer life requested for the next cookie, in milliseconds.
    pub(super) preservative: Option<u32>,
    /// The a_rwnd of an INIT ACK since the last INIT that was too small.
    pub(super) small_window: Option<u32>,
}

/// A COOKIE ECHO that is not answered.
#[derive(Debug)]
pub(super) struct CookieEchoed {
    pub(super) attempt: Attempt,
    pub(super) cookie: Vec<u8>,
}

/// A SHUTDOWN or a SHUTDOWN ACK, which is sent until it is answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closing {
    /// The path it is sent on.
    pub(super) path: usize,
    /// Whether it is due now.
    pub(super) due: bool,
}

impl Phase {
    /// Returns the state without its data.
    #[inline]
    pub(super) fn state(&self) -> State {
        match self {
            Phase::CookieWait(_) => State::CookieWait,
            Phase::CookieEchoed(_) => State::CookieEchoed,
            Phase::Established => State::Established,
            Phase::ShutdownPending => State::ShutdownPending,
            Phase::ShutdownSent(_) => State::ShutdownSent,
            Phase::ShutdownReceived { .. } => State::ShutdownReceived,
            Phase::ShutdownAckSent(_) => State::ShutdownAckSent,
            Phase::Closed(_) => State::Closed,
        }
    }

    /// Returns what opens the association.
    pub(super) fn attempt(&self) -> Option<&Attempt> {
        match self {
            Phase::CookieWait(opening) => Some(&opening.attempt),
            Phase::CookieEchoed(opening) => Some(&opening.attempt),
            _ => None,
        }
    }

    /// Returns what opens the association, for changes.
    pub(super) fn attempt_mut(&mut self) -> Option<&mut Attempt> {
        match self {
            Phase::CookieWait(opening) => Some(&mut opening.attempt),
            Phase::CookieEchoed(opening) => Some(&mut opening.attempt),
            _ => None,
        }
    }

    /// Returns what closes the association.
    #[inline]
    pub(super) fn closing(&self) -> Option<Closing> {
        match self {
            Phase::ShutdownSent(closing) | Phase::ShutdownAckSent(closing) => Some(*closing),
            _ => None,
        }
    }

    /// Returns what closes the association, for changes.
    pub(super) fn closing_mut(&mut self) -> Option<&mut Closing> {
        match self {
            Phase::ShutdownSent(closing) | Phase::ShutdownAckSent(closing) => Some(closing),
            _ => None,
        }
    }

    /// Returns whether the user has requested a shutdown that is not answered.
    pub(super) fn wants_shutdown(&self) -> bool {
        match self {
            Phase::ShutdownPending | Phase::ShutdownSent(_) => true,
            Phase::ShutdownReceived { requested } => *requested,
            Phase::Established | Phase::ShutdownAckSent(_) | Phase::Closed(_) => false,
            Phase::CookieWait(_) | Phase::CookieEchoed(_) => {
                self.attempt().is_some_and(|attempt| attempt.shutdown_requested)
            }
        }
    }

    /// Removes and returns the last chunk of an association that has ended.
    pub(super) fn take_final_chunk(&mut self) -> Option<Box<FinalChunk>> {
        match self {
            Phase::Closed(last) => last.take(),
            _ => None,
        }
    }
}

impl Association {
    /// Returns whether no INIT ACK has arrived.
    pub(super) fn waits_for_init_ack(&self) -> bool {
        matches!(self.phase, Phase::CookieWait(_))
    }

    /// Enters a phase. Every change of the state goes this way. The timers of a handshake end with it, those of a shutdown
    /// run through its states, and no timer outlives the association.
    pub(super) fn enter(&mut self, phase: Phase) {
        match phase {
            Phase::CookieWait(_)
            | Phase::CookieEchoed(_)
            | Phase::Established
            | Phase::Closed(_) => self.timers.stop(),
            Phase::ShutdownPending
            | Phase::ShutdownSent(_)
            | Phase::ShutdownReceived { .. }
            | Phase::ShutdownAckSent(_) => {}
        }
        self.phase = phase;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_packet_sent_once_is_timed() {
        let mut attempt = Attempt::first();
        attempt.sent(Time::from_secs(1));
        assert_eq!((attempt.due, attempt.timed), (false, Some(Time::from_secs(1))));
        attempt.retransmits += 1;
        attempt.sent(Time::from_secs(2));
        assert_eq!(attempt.timed, None);
    }

    #[test]
    fn a_requested_shutdown_is_known_until_it_is_answered() {
        let mut attempt = Attempt::first();
        let opening = |attempt| {
            Phase::CookieWait(Box::new(CookieWait {
                attempt,
                preservative: None,
                small_window: None,
            }))
        };
        assert!(!opening(attempt).wants_shutdown());
        attempt.shutdown_requested = true;
        assert!(opening(attempt).wants_shutdown() && Phase::ShutdownPending.wants_shutdown());
        assert!(!Phase::ShutdownReceived { requested: false }.wants_shutdown());
        assert!(!Phase::Established.wants_shutdown() && !Phase::Closed(None).wants_shutdown());
    }
}
