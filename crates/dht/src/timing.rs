//! How long answers take.

use ringway_sansio::time::Duration;

use crate::config::Config;

/// A smoothed round trip and its variation (the estimator of RFC 6298 section 2).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundTrip {
    measured: Option<(Duration, Duration)>,
}

impl RoundTrip {
    /// Takes the time from a question to its answer.
    pub(crate) fn measure(&mut self, sample: Duration) {
        self.measured = Some(match self.measured {
            None => (sample, sample / 2),
            Some((smooth, variation)) => {
                let error = smooth.abs_diff(sample);
                ((7 * smooth + sample) / 8, (3 * variation + error) / 4)
            }
        });
    }

    /// Takes the time to an answer after `attempts` messages, unless it is not known which of them it answers (Karn's
    /// algorithm, RFC 6298 section 3).
    pub(crate) fn measure_first(&mut self, attempts: u8, sample: Duration) {
        if attempts == 1 {
            self.measure(sample);
        }
    }

    /// Returns the time to wait for an answer before attempt number `attempt` (from 1) is followed by another. Attempts go to
    /// different routers, so the time doubles only after every fourth.
    pub(crate) fn wait(&self, config: &Config, attempt: u8) -> Duration {
        let first = match self.measured {
            None => 4 * config.min_wait,
            Some((smooth, variation)) => smooth + 4 * variation,
        };
        let doublings = u32::from(attempt.saturating_sub(1) / 4).min(8);
        (first.max(config.min_wait) * (1 << doublings)).min(config.max_wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_follows_the_measured_round_trip_within_its_limits() {
        let config = Config::default();
        let mut trip = RoundTrip::default();
        assert_eq!(trip.wait(&config, 1), Duration::from_millis(400));
        for _ in 0..50 {
            trip.measure(Duration::from_millis(200));
        }
        let wait = trip.wait(&config, 1).as_millis();
        assert!((200..250).contains(&wait), "{wait}");
        assert_eq!(trip.wait(&config, 5), 2 * trip.wait(&config, 1));
        assert_eq!(trip.wait(&config, 200), config.max_wait);
        for _ in 0..50 {
            trip.measure(Duration::from_millis(1));
        }
        assert_eq!(trip.wait(&config, 1), config.min_wait);
    }
}
