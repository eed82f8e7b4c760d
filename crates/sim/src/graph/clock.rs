//! The clocks of nodes, which may show another time than the graph's and run faster or slower.

use ringway_sansio::Time;

/// Parts per million in the whole.
const MILLION: i32 = 1_000_000;
/// Maximum deviation of a clock's rate, in parts per million.
pub const MAX_DRIFT_PPM: i32 = 500_000;

/// A clock since it was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Clock {
    /// The time when it was set, and what it showed then.
    since: u64,
    shown: u64,
    /// Parts of a million that pass on it while a million pass.
    rate: u32,
}

impl Clock {
    const TRUE: Clock = Clock { since: 0, shown: 0, rate: MILLION as u32 };

    /// Returns what it shows at a time.
    fn shows(&self, at: u64) -> u64 {
        let passed = u128::from(at.saturating_sub(self.since));
        let passed = passed * u128::from(self.rate) / MILLION as u128;
        self.shown.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }

    /// Returns the first time at which it shows `shown` or more.
    fn time_of(&self, shown: u64) -> u64 {
        let passes = u128::from(shown.saturating_sub(self.shown)) * MILLION as u128;
        let passes = passes.div_ceil(u128::from(self.rate));
        self.since.saturating_add(u64::try_from(passes).unwrap_or(u64::MAX))
    }
}

/// Clocks by node; none while all show the graph's time.
#[derive(Clone, Debug, Default)]
pub(super) struct Clocks(Vec<Clock>);

impl Clocks {
    /// Sets the clock of one of `nodes` nodes.
    pub(super) fn set(&mut self, nodes: usize, node: u32, now: Time, shows: Time, drift_ppm: i32) {
        if self.0.is_empty() {
            self.0 = vec![Clock::TRUE; nodes];
        }
        let rate = (MILLION + drift_ppm.clamp(-MAX_DRIFT_PPM, MAX_DRIFT_PPM)) as u32;
        self.0[node as usize] = Clock { since: now.as_nanos(), shown: shows.as_nanos(), rate };
    }

    /// Returns what the clock of a node shows.
    #[inline]
    pub(super) fn local(&self, node: u32, now: Time) -> Time {
        match self.0.get(node as usize) {
            None => now,
            Some(clock) => Time::from_nanos(clock.shows(now.as_nanos())),
        }
    }

    /// Returns the first time at which the clock of a node shows `local` or later.
    #[inline]
    pub(super) fn time_of(&self, node: u32, local: Time) -> Time {
        match self.0.get(node as usize) {
            None => local,
            Some(clock) => Time::from_nanos(clock.time_of(local.as_nanos())),
        }
    }

    /// Returns the allocated bytes.
    pub(super) fn memory(&self) -> usize {
        self.0.capacity() * size_of::<Clock>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_clock_gains_what_its_rate_says() {
        let mut clocks = Clocks::default();
        let [now, shows] = [Time::from_secs(10), Time::from_secs(100)];
        assert_eq!(clocks.local(1, now), now);
        clocks.set(3, 1, now, shows, 100_000);
        assert_eq!(clocks.local(1, Time::from_secs(20)), Time::from_secs(111));
        assert_eq!(clocks.time_of(1, Time::from_secs(111)), Time::from_secs(20));
        assert_eq!(clocks.local(2, now), now);
        clocks.set(3, 2, now, Time::ZERO, -2_000_000);
        assert_eq!(clocks.local(2, Time::from_secs(20)), Time::from_secs(5));
    }

    proptest! {
        /// A deadline is due at the first time when the clock has reached it, and not a nanosecond sooner.
        #[test]
        fn a_deadline_is_neither_early_nor_late(
            since in 0u64..1 << 50, shown in 0u64..1 << 50, ahead in 0u64..1 << 50,
            ppm in -MAX_DRIFT_PPM..=MAX_DRIFT_PPM,
        ) {
            let mut clocks = Clocks::default();
            clocks.set(1, 0, Time::from_nanos(since), Time::from_nanos(shown), ppm);
            let deadline = Time::from_nanos(shown + ahead);
            let at = clocks.time_of(0, deadline);
            prop_assert!(clocks.local(0, at) >= deadline);
            let before = Time::from_nanos(at.as_nanos().saturating_sub(1));
            prop_assert!(ahead == 0 || clocks.local(0, before) < deadline);
        }
    }
}
