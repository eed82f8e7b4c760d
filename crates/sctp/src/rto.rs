//! The retransmission timeout of a path (RFC 9260 section 6.3.1).

use crate::settings::Settings;
use ringway_sansio::Duration;

/// RTTVAR is at least this, the granularity G of RFC 9260 section 6.3.1.
const GRANULARITY: u64 = 1;

/// Measured round-trip times and the resulting timeout, all in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rto {
    srtt: u64,
    rttvar: u64,
    rto: u64,
    min: u64,
    max: u64,
    is_measured: bool,
}

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos().min(u128::from(u64::MAX / 8)) as u64
}

impl Rto {
    pub(crate) fn new(settings: &Settings) -> Rto {
        Rto {
            srtt: 0,
            rttvar: 0,
            rto: nanos(settings.rto_initial),
            min: nanos(settings.rto_min),
            max: nanos(settings.rto_max),
            is_measured: false,
        }
    }

    /// Returns the smoothed round-trip time, once one was measured.
    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.is_measured.then(|| Duration::from_nanos(self.srtt))
    }

    pub(crate) fn get(&self) -> Duration {
        Duration::from_nanos(self.rto)
    }

    /// Measures a round trip: rules C2, C3, C6 and C7; RTO.Alpha is 1/8, RTO.Beta 1/4.
    pub(crate) fn measure(&mut self, round_trip: Duration) {
        let r = nanos(round_trip);
        if self.is_measured {
            self.rttvar = self.rttvar - self.rttvar / 4 + self.srtt.abs_diff(r) / 4;
            self.srtt = self.srtt - self.srtt / 8 + r / 8;
        } else {
            self.is_measured = true;
            self.srtt = r;
            self.rttvar = r / 2;
        }
        self.rttvar = self.rttvar.max(GRANULARITY);
        self.rto = self.measured();
    }

    fn measured(&self) -> u64 {
        let rto = self.srtt.saturating_add(self.rttvar.saturating_mul(4));
        rto.clamp(self.min, self.max)
    }

    /// Ends the back-off after an answer to a packet that was sent once: the measured values hold.
    pub(crate) fn confirm(&mut self, round_trip: Duration) {
        if self.is_measured && nanos(round_trip) < self.measured() {
            self.rto = self.measured();
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
