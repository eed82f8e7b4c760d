//! The retransmission timeout of a path (RFC 9260 section 6.3.1).

use crate::settings::Settings;
use ringway_sansio::Duration;
use ringway_transport::RoundTrip;

/// Four times the granularity G of RFC 9260 section 6.3.1, which is a nanosecond: RTTVAR counts as at least G.
const GRANULARITY: Duration = Duration::from_nanos(4);

/// Measured round-trip times and the resulting timeout.
///
/// It stands beside TCP's because the back-off differs: here it lasts until a measurement or an answer to a packet that was
/// sent once (rule C7), and has no number of its own. What both measure is [`RoundTrip`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rto {
    trip: RoundTrip,
    /// The timeout and its bounds, in nanoseconds.
    rto: u64,
    min: u64,
    max: u64,
}

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos().min(u128::from(u64::MAX)) as u64
}

impl Rto {
    pub(crate) fn new(settings: &Settings) -> Rto {
        let [rto, min, max] = [settings.rto_initial, settings.rto_min, settings.rto_max].map(nanos);
        Rto { trip: RoundTrip::default(), rto, min, max }
    }

    /// Returns the smoothed round-trip time, once one was measured.
    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.trip.srtt()
    }

    pub(crate) fn get(&self) -> Duration {
        Duration::from_nanos(self.rto)
    }

    /// Measures a round trip: rules C2, C3, C6 and C7.
    pub(crate) fn measure(&mut self, round_trip: Duration) {
        self.trip.measure(round_trip);
        self.rto = self.measured().unwrap_or(self.rto);
    }

    fn measured(&self) -> Option<u64> {
        self.trip.timeout(GRANULARITY).map(|rto| nanos(rto).clamp(self.min, self.max))
    }

    /// Ends the back-off after an answer to a packet that was sent once: the measured values hold.
    pub(crate) fn confirm(&mut self, round_trip: Duration) {
        if let Some(measured) = self.measured().filter(|measured| nanos(round_trip) < *measured) {
            self.rto = measured;
        }
    }

    /// Doubles the timeout: rule E2 of section 6.3.3.
    pub(crate) fn back_off(&mut self) {
        self.rto = self.rto.saturating_mul(2).min(self.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9260 section 6.3.1, rules C1 to C7, and section 6.3.3, rule E2.
    #[test]
    fn follows_the_rules() {
        let ms = Duration::from_millis;
        let mut rto = Rto::new(&Settings { rto_min: ms(100), ..Settings::default() });
        assert_eq!((rto.get(), rto.srtt()), (ms(1000), None));
        rto.measure(ms(80));
        assert_eq!((rto.get(), rto.srtt()), (ms(80 + 160), Some(ms(80))));
        rto.measure(ms(160));
        // RTTVAR = 3/4 * 40 + 1/4 * 80 = 50, SRTT = 7/8 * 80 + 1/8 * 160 = 90.
        assert_eq!((rto.get(), rto.srtt()), (ms(290), Some(ms(90))));
        rto.back_off();
        assert_eq!(rto.get(), ms(580));
        for _ in 0..20 {
            rto.back_off();
        }
        assert_eq!(rto.get(), ms(60_000));
        for _ in 0..100 {
            rto.measure(ms(1));
        }
        assert_eq!(rto.get(), ms(100));
    }
}
