//! CUBIC (RFC 9438) for the window of TCP.

use super::{ABC_LIMIT, Acked, Congestion, Window};
use ringway_sansio::Time;

/// The curve of RFC 9438.
#[derive(Debug, Default)]
pub struct Cubic(ringway_transport::Cubic);

impl Cubic {
    fn set_back(&mut self, window: &mut Window, flight: u32) {
        let cwnd = window.cwnd.min(flight.max(window.mss));
        // RFC 9438 section 4.6.
        window.ssthresh = self.0.reduce(cwnd, window.mss).max(2 * window.mss);
    }
}

impl Congestion for Cubic {
    fn name(&self) -> &'static str {
        "cubic"
    }

    fn acked(&mut self, window: &mut Window, acked: Acked) {
        let mut bytes = acked.bytes;
        if window.in_slow_start() {
            let limit = if acked.after_timeout { 1 } else { ABC_LIMIT };
            bytes = window.slow_start(bytes, limit);
        }
        if bytes > 0 && !window.in_slow_start() {
            let Acked { now, srtt, .. } = acked;
            let rtt = srtt.unwrap_or_default();
            let growth = self.0.avoid(now, rtt, window.cwnd, window.mss, bytes);
            window.cwnd = window.cwnd.saturating_add(growth);
        }
    }

    fn reduce(&mut self, window: &mut Window, flight: u32, _now: Time) {
        self.set_back(window, flight);
    }

    fn timeout(&mut self, window: &mut Window, flight: u32, _now: Time) {
        self.set_back(window, flight);
        // RFC 9438 section 4.8: the following congestion avoidance starts with a new plateau.
        self.0.forget_plateau();
    }

    fn idle(&mut self) {
        // RFC 9438 section 4.2: time without data does not count.
        self.0.pause();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_sansio::Duration;

    fn run(window: &mut Window, cubic: &mut Cubic, from: u64, rtt: u64, until: u64) -> u64 {
        let mut now = from;
        while now < until {
            now += rtt;
            let acked = Acked {
                now: Time::from_millis(now),
                bytes: 2 * window.mss,
                srtt: Some(Duration::from_millis(rtt)),
                after_timeout: false,
            };
            for _ in 0..window.cwnd / (2 * window.mss) {
                cubic.acked(window, acked);
            }
        }
        now
    }

    /// RFC 9438 sections 4.2 and 4.6: 0.7 after a loss, and back at W_max after K seconds.
    #[test]
    fn is_back_where_the_loss_was_after_k() {
        let mut w = Window { cwnd: 1_000_000, ssthresh: 1_000_000, mss: 1000 };
        let mut c = Cubic::default();
        c.reduce(&mut w, 1_000_000, Time::ZERO);
        w.cwnd = w.ssthresh;
        assert_eq!(w.cwnd, 700_000);
        // K is the cube root of 1000 * 0.3 / 0.4: 9.086 s.
        let now = run(&mut w, &mut c, 0, 200, 4500);
        assert!((920_000..975_000).contains(&w.cwnd), "{}", w.cwnd);
        let now = run(&mut w, &mut c, now, 200, 9200);
        assert!((990_000..1_005_000).contains(&w.cwnd), "{}", w.cwnd);
        run(&mut w, &mut c, now, 200, 15_000);
        assert!(w.cwnd > 1_060_000, "{}", w.cwnd);
    }

    /// RFC 9438 section 4.3: with a short round trip it grows at least as Reno would.
    #[test]
    fn is_no_worse_than_reno() {
        let mut w = Window { cwnd: 20_000, ssthresh: 20_000, mss: 1000 };
        let mut c = Cubic::default();
        c.reduce(&mut w, 20_000, Time::ZERO);
        w.cwnd = w.ssthresh;
        run(&mut w, &mut c, 0, 10, 200);
        // Twenty round trips at 0.53 segments each.
        assert!((23_000..28_000).contains(&w.cwnd), "{}", w.cwnd);
    }

    /// RFC 9438 section 4.8: after a timeout K is 0 and W_max is where avoidance begins.
    #[test]
    fn begins_anew_after_a_timeout() {
        let mut w = Window { cwnd: 1_000_000, ssthresh: 1_000_000, mss: 1000 };
        let mut c = Cubic::default();
        c.timeout(&mut w, 1_000_000, Time::ZERO);
        assert_eq!(w.ssthresh, 700_000);
        w.cwnd = w.ssthresh;
        // C t^3 after six seconds is 86 segments; towards the old maximum it would be 288 more.
        run(&mut w, &mut c, 0, 200, 6000);
        assert!((760_000..810_000).contains(&w.cwnd), "{}", w.cwnd);
    }
}
