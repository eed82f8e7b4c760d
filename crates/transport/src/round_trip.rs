//! The smoothed round-trip time, and the retransmission timeout that follows from it (RFC 6298 section 2, RFC 9260
//! section 6.3.1).

use ringway_sansio::Duration;

/// Measured round-trip times, smoothed.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundTrip {
    /// SRTT and RTTVAR, in nanoseconds.
    srtt: u64,
    rttvar: u64,
    is_measured: bool,
}

/// Returns nanoseconds, at most so many that eight times as many are a number.
fn nanos(duration: Duration) -> u64 {
    duration.as_nanos().min(u128::from(u64::MAX / 8)) as u64
}

impl RoundTrip {
    /// Adds a measurement. It must not be of something that was sent more than once (Karn's algorithm), unless it is known
    /// which transmission was answered.
    pub fn measure(&mut self, round_trip: Duration) {
        let r = nanos(round_trip);
        if self.is_measured {
            // RFC 6298 section 2.3: RTTVAR first, with the SRTT of before. Beta is 1/4 and alpha 1/8.
            self.rttvar = (self.rttvar * 3 + self.srtt.abs_diff(r)) / 4;
            self.srtt = (self.srtt * 7 + r) / 8;
        } else {
            // RFC 6298 section 2.2.
            *self = RoundTrip { srtt: r, rttvar: r / 2, is_measured: true };
        }
    }

    /// Returns the smoothed round-trip time, once one was measured.
    pub fn srtt(&self) -> Option<Duration> {
        self.is_measured.then(|| Duration::from_nanos(self.srtt))
    }

    /// Returns the variation.
    pub fn rttvar(&self) -> Duration {
        Duration::from_nanos(self.rttvar)
    }

    /// Returns SRTT + max(G, 4 * RTTVAR), once a round trip was measured, where G is the granularity of the clock.
    pub fn timeout(&self, granularity: Duration) -> Option<Duration> {
        let variation = self.rttvar.saturating_mul(4).max(nanos(granularity));
        self.is_measured.then(|| Duration::from_nanos(self.srtt.saturating_add(variation)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6298 sections 2.2 and 2.3: the numbers by hand.
    #[test]
    fn follows_the_formulas() {
        let ms = Duration::from_millis;
        let mut trip = RoundTrip::default();
        assert_eq!((trip.srtt(), trip.timeout(ms(1))), (None, None));
        trip.measure(ms(100));
        assert_eq!((trip.srtt(), trip.rttvar()), (Some(ms(100)), ms(50)));
        trip.measure(ms(180));
        assert_eq!((trip.srtt(), trip.rttvar()), (Some(ms(110)), Duration::from_micros(57_500)));
        assert_eq!(trip.timeout(ms(1)), Some(ms(340)));
        assert_eq!(trip.timeout(ms(300)), Some(ms(410)));
    }

    #[test]
    fn an_absurd_round_trip_overflows_nothing() {
        let mut trip = RoundTrip::default();
        for _ in 0..3 {
            trip.measure(Duration::MAX);
            trip.measure(Duration::ZERO);
        }
        assert!(trip.timeout(Duration::MAX).is_some());
    }
}
