//! Timers: an enum names those of an object, and indexes the table of their deadlines.

use core::marker::PhantomData;
use ringway_sansio::Time;

/// The timers of an association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timer {
    /// T1-init, and T1-cookie once the INIT ACK has arrived (RFC 9260 section 4).
    T1,
    /// T2-shutdown (RFC 9260 section 9.2).
    T2Shutdown,
    /// T5-shutdown-guard (RFC 9260 section 9.2).
    T5ShutdownGuard,
}

/// The timers of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PathTimer {
    /// T3-rtx (RFC 9260 section 6.3). While nothing is in flight it waits to probe a closed window.
    T3Rtx,
    /// When the next heartbeat is due if the path is idle then (RFC 9260 section 8.3).
    Heartbeat,
    /// When the heartbeat that was sent counts as lost.
    HeartbeatLost,
    /// When the probe of the MTU counts as lost.
    PmtuProbe,
}

/// The deadline of a timer that is stopped.
const STOPPED: Time = Time::from_nanos(u64::MAX);

/// The deadlines of the `N` timers that an enum `T` names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timers<T, const N: usize> {
    deadlines: [Time; N],
    names: PhantomData<T>,
}

/// The deadlines of an association.
pub(crate) type AssociationTimers = Timers<Timer, { Timer::T5ShutdownGuard as usize + 1 }>;
/// The deadlines of a path.
pub(crate) type PathTimers = Timers<PathTimer, { PathTimer::PmtuProbe as usize + 1 }>;

impl From<Timer> for usize {
    fn from(timer: Timer) -> usize {
        timer as usize
    }
}

impl From<PathTimer> for usize {
    fn from(timer: PathTimer) -> usize {
        timer as usize
    }
}

impl<T, const N: usize> Default for Timers<T, N> {
    fn default() -> Self {
        Timers { deadlines: [STOPPED; N], names: PhantomData }
    }
}

impl<T: Into<usize>, const N: usize> Timers<T, N> {
    /// Starts a timer, or moves its deadline.
    #[inline]
    pub(crate) fn start(&mut self, timer: T, at: Time) {
        self.deadlines[timer.into()] = at;
    }

    /// Stops a timer.
    pub(crate) fn cancel(&mut self, timer: T) {
        self.deadlines[timer.into()] = STOPPED;
    }

    /// Starts a timer; `None` stops it.
    pub(crate) fn set(&mut self, timer: T, at: Option<Time>) {
        self.deadlines[timer.into()] = at.unwrap_or(STOPPED);
    }

    /// Stops all timers.
    pub(crate) fn stop(&mut self) {
        self.deadlines = [STOPPED; N];
    }

    /// Returns the deadline of a timer that is running.
    #[inline]
    pub(crate) fn get(&self, timer: T) -> Option<Time> {
        Some(self.deadlines[timer.into()]).filter(|at| *at != STOPPED)
    }

    /// Returns whether a timer is running.
    #[inline]
    pub(crate) fn is_running(&self, timer: T) -> bool {
        self.get(timer).is_some()
    }

    /// Returns the earliest deadline.
    #[inline]
    pub(crate) fn first(&self) -> Option<Time> {
        self.deadlines.iter().min().copied().filter(|at| *at != STOPPED)
    }

    /// Stops a timer that has expired. Returns whether it had.
    #[inline]
    pub(crate) fn take_expired(&mut self, timer: T, now: Time) -> bool {
        let deadline = &mut self.deadlines[timer.into()];
        let expired = *deadline <= now && *deadline != STOPPED;
        if expired {
            *deadline = STOPPED;
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_expires_once() {
        let mut timers = PathTimers::default();
        timers.start(PathTimer::PmtuProbe, Time::from_secs(2));
        timers.start(PathTimer::T3Rtx, Time::from_secs(1));
        assert_eq!(timers.first(), Some(Time::from_secs(1)));
        assert!(!timers.take_expired(PathTimer::PmtuProbe, Time::from_secs(1)));
        assert!(timers.take_expired(PathTimer::T3Rtx, Time::from_secs(1)));
        assert!(!timers.take_expired(PathTimer::T3Rtx, Time::from_secs(1)));
        assert_eq!(timers.first(), Some(Time::from_secs(2)));
        timers.stop();
        assert_eq!(timers.first(), None);
    }
}
