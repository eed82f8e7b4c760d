//! Round-trip time and retransmission timeout (RFC 6298).

use ringway_sansio::Duration;
use ringway_transport::RoundTrip;

/// The timeout before a round trip was measured (RFC 6298 section 2.1).
pub(crate) const INITIAL_RTO: Duration = Duration::from_secs(1);
/// The timeout when the SYN had to be sent again (RFC 6298 section 5.7).
pub(crate) const RTO_AFTER_LOST_SYN: Duration = Duration::from_secs(3);
/// The clock granularity G of RFC 6298 section 2.
pub(crate) const GRANULARITY: Duration = Duration::from_millis(1);
/// Maximum number of doublings.
const MAX_BACKOFF: u32 = 16;

/// The timeout of RFC 6298 section 2 with the back-off of section 5.
///
/// It stands beside SCTP's because the back-off is counted, as recovery depends on it, and the SYN has rules of its own.
/// What both measure is [`RoundTrip`].
#[derive(Debug)]
pub(crate) struct Rtt {
    trip: RoundTrip,
    base: Duration,
    backoff: u32,
    min_rto: Duration,
    max_rto: Duration,
}

impl Rtt {
    pub(crate) fn new(min_rto: Duration, max_rto: Duration) -> Self {
        let base = INITIAL_RTO.min(max_rto);
        Rtt { trip: RoundTrip::default(), base, backoff: 0, min_rto, max_rto }
    }

    /// Adds a measurement from a segment that was sent once (Karn) or that timestamps identify.
    pub(crate) fn sample(&mut self, rtt: Duration) {
        self.trip.measure(rtt);
        // RFC 6298 sections 2.4 and 2.5.
        let timeout = self.trip.timeout(GRANULARITY).unwrap_or(self.base);
        self.base = timeout.clamp(self.min_rto, self.max_rto);
        self.backoff = 0;
    }

    /// Notes that the SYN was sent again (RFC 6298 section 5.7).
    pub(crate) fn syn_was_lost(&mut self) {
        if self.srtt().is_none() {
            self.base = RTO_AFTER_LOST_SYN.clamp(self.min_rto, self.max_rto);
        }
        self.backoff = 0;
    }

    /// Doubles the timeout (RFC 6298 section 5.5).
    pub(crate) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(MAX_BACKOFF);
    }

    /// Returns the number of doublings since the last measurement.
    pub(crate) fn backoff(&self) -> u32 {
        self.backoff
    }

    /// Returns the timeout with its back-off.
    pub(crate) fn rto(&self) -> Duration {
        self.base.saturating_mul(1 << self.backoff).min(self.max_rto)
    }

    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.trip.srtt()
    }

    pub(crate) fn rttvar(&self) -> Duration {
        self.trip.rttvar()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn rtt() -> Rtt {
        Rtt::new(ms(200), Duration::from_secs(60))
    }

    /// RFC 6298 section 2.1 to 2.3: the numbers by hand.
    #[test]
    fn follows_the_formulas() {
        let mut r = rtt();
        assert_eq!(r.rto(), ms(1000));
        r.sample(ms(100));
        assert_eq!((r.srtt(), r.rttvar(), r.rto()), (Some(ms(100)), ms(50), ms(300)));
        r.sample(ms(180));
        assert_eq!((r.srtt(), r.rttvar()), (Some(ms(110)), Duration::from_micros(57_500)));
        assert_eq!(r.rto(), ms(340));
    }

    /// RFC 6298 sections 2.4, 2.5, 5.5: bounds and doubling.
    #[test]
    fn is_bounded_and_backs_off() {
        let mut r = rtt();
        r.sample(ms(1));
        assert_eq!(r.rto(), ms(200));
        r.back_off();
        assert_eq!(r.rto(), ms(400));
        for _ in 0..100 {
            r.back_off();
        }
        assert_eq!(r.rto(), Duration::from_secs(60));
        r.sample(ms(1));
        assert_eq!(r.rto(), ms(200));
    }

    /// RFC 6298 section 5.7: three seconds after a lost SYN.
    #[test]
    fn a_lost_syn_makes_it_three_seconds() {
        let mut r = rtt();
        r.back_off();
        r.syn_was_lost();
        assert_eq!(r.rto(), Duration::from_secs(3));
    }
}
