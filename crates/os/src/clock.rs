//! The real world's time: anchored to the wall clock once, advanced by the monotonic clock.

use ringway_sansio::Time;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The clock of the real world. It never goes backwards, whatever happens to the wall clock. Copies agree
/// with each other, so one clock is created at start and copied to every worker.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    anchor: Time,
    start: Instant,
}

impl Clock {
    /// Creates a clock anchored to the current wall clock.
    pub fn new() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let nanos = u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX);
        Clock { anchor: Time::from_nanos(nanos), start: Instant::now() }
    }

    /// Returns the current time.
    pub fn now(&self) -> Time {
        self.anchor + self.start.elapsed()
    }

    /// Returns the monotonic instant of `time`, for sleeping until then.
    pub fn instant(&self, time: Time) -> Instant {
        self.start + time.since(self.anchor)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn copies_agree_and_advance() {
        let clock = Clock::new();
        let copy = clock;
        let first = clock.now();
        std::thread::sleep(Duration::from_millis(2));
        assert!(copy.now().since(first) >= Duration::from_millis(2));
        assert_eq!(clock.instant(first), copy.instant(first));
        assert!(clock.instant(first) <= Instant::now());
    }
}
