//! CUBIC (RFC 9438). Its arithmetic uses only what IEEE 754 defines exactly, so that a run repeats
//! on every machine.

use super::{ABC_LIMIT, Acked, Congestion, Window};
use ringway_sansio::Time;

/// RFC 9438 section 4.6: the factor of the window after a loss.
const BETA: f64 = 0.7;
/// RFC 9438 section 5.1: how aggressively the window grows, in segments per second cubed.
const C: f64 = 0.4;
/// RFC 9438 section 4.3: the growth of Reno that gives the same average window with `BETA`.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// The state of RFC 9438 section 4.1.2; windows are in segments.
#[derive(Debug, Default)]
pub struct Cubic {
    /// `W_max`.
    w_max: f64,
    /// `K` in seconds.
    k: f64,
    /// When the current stage of avoidance began.
    epoch: Option<Time>,
    /// `W_est`.
    w_est: f64,
    /// `cwnd_prior`.
    cwnd_prior: f64,
    /// Fraction of a byte by which the window is to grow.
    fraction: f64,
}

/// Returns the cube root by Newton's method. The standard library's result depends on the platform.
fn cube_root(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    // Dividing the exponent by three gives a start within a factor of two.
    let mut root = f64::from_bits(x.to_bits() / 3 + (0x3ff0_0000_0000_0000 / 3) * 2);
    for _ in 0..6 {
        root = (2.0 * root + x / (root * root)) / 3.0;
    }
    root
}

impl Cubic {
    fn begin(&mut self, cwnd: f64, now: Time) {
        self.epoch = Some(now);
        self.w_est = cwnd;
        // RFC 9438 section 4.2, figure 2; section 4.8: after slow start without loss the plateau is at
        // the current window.
        if self.w_max <= cwnd {
            self.w_max = cwnd;
            self.k = 0.0;
        } else {
            self.k = cube_root((self.w_max - cwnd) / C);
        }
    }

    fn set_back(&mut self, window: &mut Window, flight: u32) {
        let mss = f64::from(window.mss);
        let cwnd = f64::from(window.cwnd.min(flight.max(window.mss))) / mss;
        // RFC 9438 section 4.7: fast convergence.
        self.w_max = if cwnd < self.w_max { cwnd * (1.0 + BETA) / 2.0 } else { cwnd };
        self.cwnd_prior = cwnd;
        self.epoch = None;
        self.fraction = 0.0;
        // RFC 9438 section 4.6.
        window.ssthresh = ((cwnd * BETA * mss) as u32).max(2 * window.mss);
    }

    /// RFC 9438 sections 4.2 to 4.5.
    fn avoid(&mut self, window: &mut Window, bytes: u32, acked: Acked) {
        let mss = f64::from(window.mss);
        let cwnd = f64::from(window.cwnd) / mss;
        if self.epoch.is_none() {
            self.begin(cwnd, acked.now);
        }
        let Some(epoch) = self.epoch else { return };
        let segments = f64::from(bytes) / mss;
        let rtt = acked.srtt.unwrap_or_default().as_secs_f64();
        let t = acked.now.since(epoch).as_secs_f64() + rtt - self.k;
        let target = (C * t * t * t + self.w_max).clamp(cwnd, 1.5 * cwnd);
        // RFC 9438 section 4.3: once the estimate is past where the loss was, it grows as Reno.
        let alpha = if self.w_est >= self.cwnd_prior { 1.0 } else { ALPHA };
        self.w_est += alpha * segments / cwnd;
        let grow = if target < self.w_est {
            (self.w_est - cwnd).max(0.0).min(segments)
        } else {
            (target - cwnd) / cwnd * segments
        };
        self.fraction += grow * mss;
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
        let mut bytes = acked.bytes;
        if window.in_slow_start() {
            let limit = if acked.after_timeout { 1 } else { ABC_LIMIT };
            bytes = window.slow_start(bytes, limit);
        }
        if bytes > 0 && !window.in_slow_start() {
            self.avoid(window, bytes, acked);
        }
    }

    fn reduce(&mut self, window: &mut Window, flight: u32, _now: Time) {
        self.set_back(window, flight);
    }

    fn timeout(&mut self, window: &mut Window, flight: u32, _now: Time) {
        self.set_back(window, flight);
        // RFC 9438 section 4.8: the following congestion avoidance starts with a new plateau.
        self.w_max = 0.0;
    }

    fn idle(&mut self) {
        // RFC 9438 section 4.2: time without data does not count.
        self.epoch = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_sansio::Duration;

    #[test]
    fn cube_roots_are_right() {
        for x in [1e-9, 0.5, 1.0, 27.0, 1000.0, 123_456.789, 1e15] {
            let root = cube_root(x);
            assert!((root * root * root / x - 1.0).abs() < 1e-12, "{x}: {root}");
        }
        assert_eq!(cube_root(0.0), 0.0);
    }

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
        assert!((c.w_max - 700.0).abs() < 1e-9 && c.k == 0.0);
        assert!((760_000..810_000).contains(&w.cwnd), "{}", w.cwnd);
    }

    /// RFC 9438 section 4.7: a second loss below the first makes room for other flows.
    #[test]
    fn converges_fast() {
        let mut w = Window { cwnd: 100_000, ssthresh: 100_000, mss: 1000 };
        let mut c = Cubic::default();
        c.reduce(&mut w, 100_000, Time::ZERO);
        w.cwnd = 80_000;
        c.reduce(&mut w, 80_000, Time::ZERO);
        assert!((c.w_max - 68.0).abs() < 1e-9);
        assert_eq!(w.ssthresh, 56_000);
    }
}
