//! CUBIC (RFC 9438) in the units of SCTP: bytes, and chunks of the largest size for segments. Its
//! arithmetic uses only what IEEE 754 defines exactly, so that a run repeats on every machine.

use super::{Acked, Congestion, Window};
use ringway_sansio::Time;

/// RFC 9438 section 4.6: the factor of the window after a loss.
const BETA: f64 = 0.7;
/// RFC 9438 section 5.1: how aggressively the window grows, in chunks per second cubed.
const C: f64 = 0.4;
/// RFC 9438 section 4.3: the growth of Reno that gives the same average window with `BETA`.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Chunks that slow start adds at most for a SACK, as in RFC 9260 section 7.2.1.
const SLOW_START_LIMIT: u32 = 1;

/// The state of RFC 9438 section 4.1.2; windows are in chunks.
#[derive(Debug, Default)]
pub struct Cubic {
    w_max: f64,
    /// `K` in seconds.
    k: f64,
    /// When the current stage of avoidance began.
    epoch: Option<Time>,
    w_est: f64,
    cwnd_prior: f64,
    /// Fraction of a byte by which the window is to grow.
    fraction: f64,
}

/// Returns the cube root by Newton's method. The standard library's result depends on the platform.
fn cube_root(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let mut root = x.max(1.0);
    // From above, each step falls by a third at least until it is near. Then the correct digits double.
    for _ in 0..128 {
        let next = (2.0 * root + x / (root * root)) / 3.0;
        if next >= root {
            break;
        }
        root = next;
    }
    root
}

impl Cubic {
    /// RFC 9438 section 4.2.
    fn begin(&mut self, cwnd: f64, now: Time) {
        self.epoch = Some(now);
        self.w_est = cwnd;
        self.w_max = self.w_max.max(cwnd);
        self.k = cube_root((self.w_max - cwnd) / C);
    }

    /// RFC 9438 sections 4.6 and 4.7.
    fn fall(&mut self, window: &mut Window) {
        let unit = f64::from(window.pmdcs.max(1));
        let cwnd = f64::from(window.cwnd) / unit;
        self.w_max = if cwnd < self.w_max { cwnd * (1.0 + BETA) / 2.0 } else { cwnd };
        self.cwnd_prior = cwnd;
        self.epoch = None;
        self.fraction = 0.0;
        window.ssthresh = ((cwnd * BETA * unit) as u32).max(4 * window.pmdcs);
        window.partial_bytes_acked = 0;
    }

    /// RFC 9438 sections 4.2 to 4.5.
    fn avoid(&mut self, window: &mut Window, acked: Acked) {
        let unit = f64::from(window.pmdcs.max(1));
        let cwnd = f64::from(window.cwnd) / unit;
        if self.epoch.is_none() {
            self.begin(cwnd, acked.now);
        }
        let Some(epoch) = self.epoch else { return };
        let chunks = f64::from(acked.bytes) / unit;
        let rtt = acked.srtt.unwrap_or_default().as_secs_f64();
        let t = acked.now.since(epoch).as_secs_f64() + rtt - self.k;
        let target = (C * t * t * t + self.w_max).clamp(cwnd, 1.5 * cwnd);
        let alpha = if self.w_est >= self.cwnd_prior { 1.0 } else { ALPHA };
        self.w_est += alpha * chunks / cwnd;
        let grow = if target < self.w_est {
            (self.w_est - cwnd).clamp(0.0, chunks)
        } else {
            (target - cwnd) / cwnd * chunks
        };
        self.fraction += grow * unit;
        let whole = self.fraction as u32;
        self.fraction -= f64::from(whole);
        window.cwnd = window.cwnd.saturating_add(whole);
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
            self.avoid(window, acked);
        }
    }

    fn lost(&mut self, window: &mut Window, _now: Time) {
        self.fall(window);
        window.cwnd = window.ssthresh;
    }

    fn timeout(&mut self, window: &mut Window, _now: Time, _recovering: bool) {
        self.fall(window);
        // RFC 9438 section 4.8: the following congestion avoidance starts with a new plateau.
        self.w_max = 0.0;
        window.cwnd = window.pmdcs;
    }

    fn idle(&mut self, window: &mut Window, rtos: u32) {
        if rtos == 0 {
            return;
        }
        // RFC 9438 section 4.2: time without data does not count.
        self.epoch = None;
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

    #[test]
    fn cube_roots_are_right() {
        for x in [1e-9, 0.5, 1.0, 27.0, 1000.0, 123_456.789, 1e15] {
            let root = cube_root(x);
            assert!((root * root * root / x - 1.0).abs() < 1e-9, "{x}: {root}");
        }
        assert_eq!(cube_root(0.0), 0.0);
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

    /// RFC 9438 sections 4.7 and 4.8: a second loss below the first makes room for other flows; a
    /// timeout resets the plateau. RFC 9438 section 5.8: an unused window stays.
    #[test]
    fn falls_and_begins_anew() {
        let (mut w, mut c) = (window(100_000), Cubic::default());
        c.lost(&mut w, Time::ZERO);
        c.lost(&mut w, Time::ZERO);
        assert!((c.w_max - 70.0 * 0.85).abs() < 1e-9, "{}", c.w_max);
        c.timeout(&mut w, Time::ZERO, false);
        assert_eq!((w.cwnd, c.w_max), (1000, 0.0));
        let before = w.cwnd;
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
        assert_eq!(w.cwnd, before);
    }
}
