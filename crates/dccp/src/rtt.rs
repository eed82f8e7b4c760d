//! Round-trip time and retransmission timeout (RFC 6298).

use ringway_sansio::Duration;

/// Timeout before the first sample (RFC 6298 section 2.1).
pub(crate) const INITIAL_RTO: Duration = Duration::from_secs(1);
/// Minimum timeout. RFC 4341 section 5 does not require TCP's one second.
pub(crate) const MIN_RTO: Duration = Duration::from_millis(200);
/// Maximum timeout.
pub(crate) const MAX_RTO: Duration = Duration::from_secs(64);
/// Clock granularity.
const GRANULARITY: Duration = Duration::from_millis(1);

/// The estimator.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rtt {
    srtt: Option<Duration>,
    rttvar: Duration,
    /// Number of times that the timeout has been doubled.
    backoff: u32,
}

impl Rtt {
    /// Adds a sample (RFC 6298 sections 2.2 and 2.3).
    pub(crate) fn sample(&mut self, rtt: Duration) {
        self.backoff = 0;
        match self.srtt {
            None => {
                self.srtt = Some(rtt);
                self.rttvar = rtt / 2;
            }
            Some(srtt) => {
                self.rttvar = (self.rttvar * 3 + srtt.abs_diff(rtt)) / 4;
                self.srtt = Some((srtt * 7 + rtt) / 8);
            }
        }
    }

    /// Returns the smoothed round-trip time.
    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.srtt
    }

    /// Returns the timeout.
    pub(crate) fn rto(&self) -> Duration {
        let base = match self.srtt {
            None => INITIAL_RTO,
            Some(srtt) => (srtt + (self.rttvar * 4).max(GRANULARITY)).max(MIN_RTO),
        };
        (base * (1 << self.backoff.min(8))).min(MAX_RTO)
    }

    /// Doubles the timeout until the next sample (RFC 6298 section 5.5).
    pub(crate) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6298 section 2.
    #[test]
    fn the_timeout_follows_the_samples() {
        let ms = Duration::from_millis;
        let mut rtt = Rtt::default();
        assert_eq!(rtt.rto(), INITIAL_RTO);
        rtt.sample(ms(100));
        assert_eq!(rtt.rto(), ms(300));
        rtt.back_off();
        assert_eq!(rtt.rto(), ms(600));
        for _ in 0..20 {
            rtt.back_off();
        }
        assert_eq!(rtt.rto(), MAX_RTO);
        for _ in 0..100 {
            rtt.sample(ms(10));
        }
        assert_eq!(rtt.rto(), MIN_RTO);
    }
}
