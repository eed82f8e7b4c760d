//! CUBIC (RFC 9438) for the window of a path, with chunks of the largest size for segments.

use super::{Acked, Congestion, Window};
use ringway_sansio::Time;

/// Chunks that slow start adds at most for a SACK, as in RFC 9260 section 7.2.1.
const SLOW_START_LIMIT: u32 = 1;

/// The curve of RFC 9438.
#[derive(Debug, Default)]
pub struct Cubic(ringway_transport::Cubic);

impl Cubic {
    /// RFC 9438 sections 4.6 and 4.7.
    fn fall(&mut self, window: &mut Window) {
        window.ssthresh = self.0.reduce(window.cwnd, window.pmdcs).max(4 * window.pmdcs);
        window.partial_bytes_acked = 0;
    }
}

impl Congestion for Cubic {
    fn name(&self) -> &'static str {
        "cubic"
    }

    fn acked(&mut self, window: &mut Window, acked: Acked) {
        // RFC 9438 section 5.8: a window that is not used does not grow.
        if acked.recovering || acked.flight < window.cwnd {
            return;
        }
        if window.in_slow_start() {
            let max = SLOW_START_LIMIT * acked.sacks * window.pmdcs;
            window.cwnd = window.cwnd.saturating_add(acked.bytes.min(max));
        } else {
            let Acked { now, srtt, bytes, .. } = acked;
            let rtt = srtt.unwrap_or_default();
            let growth = self.0.avoid(now, rtt, window.cwnd, window.pmdcs, bytes);
            window.cwnd = window.cwnd.saturating_add(growth);
        }
    }

    fn lost(&mut self, window: &mut Window, _now: Time) {
        self.fall(window);
        window.cwnd = window.ssthresh;
    }

    fn timeout(&mut self, window: &mut Window, _now: Time, _recovering: bool) {
        self.fall(window);
        // RFC 9438 section 4.8: the following congestion avoidance starts with a new plateau.
        self.0.forget_plateau();
        window.cwnd = window.pmdcs;
    }

    fn idle(&mut self, window: &mut Window, rtos: u32) {
        if rtos == 0 {
            return;
        }
        // RFC 9438 section 4.2: time without data does not count.
        self.0.pause();
        super::Rfc9260.idle(window, rtos);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_sansio::Duration;

    const PMDCS: u32 = 1000;

    fn window(cwnd: u32) -> Window {
        Window { cwnd, ssthresh: cwnd, partial_bytes_acked: 0, pmdcs: PMDCS }
    }

    /// Full windows are acknowledged, two chunks a SACK.
    fn run(w: &mut Window, cubic: &mut Cubic, from: u64, rtt: u64, until: u64) -> u64 {
        let mut now = from;
        while now < until {
            now += rtt;
            for _ in 0..w.cwnd / (2 * PMDCS) {
                let acked = Acked {
                    sacks: 1,
                    now: Time::from_millis(now),
                    bytes: 2 * PMDCS,
                    flight: w.cwnd,
                    all: false,
                    recovering: false,
                    step: 0,
                    srtt: Some(Duration::from_millis(rtt)),
                };
                cubic.acked(w, acked);
            }
        }
        now
    }

    /// RFC 9438 sections 4.2 and 4.6: 0.7 after a loss, back where it was after K seconds, beyond
    /// later.
    #[test]
    fn is_back_where_the_loss_was_after_k() {
        let (mut w, mut c) = (window(1_000_000), Cubic::default());
        c.lost(&mut w, Time::ZERO);
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
        let (mut w, mut c) = (window(20_000), Cubic::default());
        c.lost(&mut w, Time::ZERO);
        run(&mut w, &mut c, 0, 10, 200);
        // From 14 chunks at 0.53 a round trip until it is at 20 again, after eleven, then at one.
        assert!((26_000..30_000).contains(&w.cwnd), "{}", w.cwnd);
    }

    /// RFC 9438 section 4.8: a timeout leaves one chunk. RFC 9438 section 5.8: an unused window stays.
    #[test]
    fn an_unused_window_stays() {
        let (mut w, mut c) = (window(100_000), Cubic::default());
        c.timeout(&mut w, Time::ZERO, false);
        assert_eq!((w.cwnd, w.ssthresh), (1000, 70_000));
        let idle = Acked {
            sacks: 1,
            now: Time::ZERO,
            bytes: 500,
            flight: 500,
            all: true,
            recovering: false,
            step: 0,
            srtt: None,
        };
        c.acked(&mut w, idle);
        assert_eq!(w.cwnd, 1000);
    }
}
