//! The window of RFC 5681, which NewReno (RFC 6582) does not change, with appropriate byte counting
//! (RFC 3465).

use super::{ABC_LIMIT, Acked, Congestion, Window};
use ringway_sansio::Time;

/// Additive increase, multiplicative decrease.
#[derive(Debug, Default)]
pub struct NewReno {
    /// `bytes_acked` of RFC 3465 section 2.1.
    bytes_acked: u32,
}

/// RFC 5681 section 3.1, equation 4.
fn half(window: &Window, flight: u32) -> u32 {
    (flight / 2).max(2 * window.mss)
}

impl Congestion for NewReno {
    fn name(&self) -> &'static str {
        "newreno"
    }

    fn acked(&mut self, window: &mut Window, acked: Acked) {
        let mut bytes = acked.bytes;
        if window.in_slow_start() {
            let limit = if acked.after_timeout { 1 } else { ABC_LIMIT };
            bytes = window.slow_start(bytes, limit);
        }
        // RFC 3465 section 2.1: one segment for each window acknowledged.
        self.bytes_acked = self.bytes_acked.saturating_add(bytes);
        if !window.in_slow_start() && self.bytes_acked >= window.cwnd {
            self.bytes_acked -= window.cwnd;
            window.cwnd = window.cwnd.saturating_add(window.mss);
        }
    }

    fn reduce(&mut self, window: &mut Window, flight: u32, _now: Time) {
        window.ssthresh = half(window, flight);
        self.bytes_acked = 0;
    }

    fn timeout(&mut self, window: &mut Window, flight: u32, _now: Time) {
        window.ssthresh = half(window, flight);
        self.bytes_acked = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acked(bytes: u32) -> Acked {
        Acked { now: Time::ZERO, bytes, srtt: None, after_timeout: false }
    }

    /// RFC 5681 section 3.1 and RFC 3465 section 2.2: doubles a round trip, also with delayed
    /// acknowledgments.
    #[test]
    fn slow_start_doubles() {
        let mut w = Window { cwnd: 10_000, ssthresh: u32::MAX, mss: 1000 };
        let mut c = NewReno::default();
        for _ in 0..5 {
            c.acked(&mut w, acked(2000));
        }
        assert_eq!(w.cwnd, 20_000);
        c.acked(&mut w, acked(9000));
        assert_eq!(w.cwnd, 22_000);
        c.acked(&mut w, Acked { after_timeout: true, ..acked(9000) });
        assert_eq!(w.cwnd, 23_000);
    }

    /// RFC 3465 section 2.1: one segment a window.
    #[test]
    fn avoidance_adds_one_segment_a_window() {
        let mut w = Window { cwnd: 10_000, ssthresh: 10_000, mss: 1000 };
        let mut c = NewReno::default();
        for _ in 0..10 {
            assert_eq!(w.cwnd, 10_000);
            c.acked(&mut w, acked(1000));
        }
        assert_eq!(w.cwnd, 11_000);
    }

    /// RFC 5681 section 3.1, equation 4.
    #[test]
    fn halves_the_flight() {
        let mut w = Window { cwnd: 20_000, ssthresh: u32::MAX, mss: 1000 };
        let mut c = NewReno::default();
        c.reduce(&mut w, 16_000, Time::ZERO);
        assert_eq!(w.ssthresh, 8000);
        c.timeout(&mut w, 1000, Time::ZERO);
        assert_eq!(w.ssthresh, 2000);
    }
}
