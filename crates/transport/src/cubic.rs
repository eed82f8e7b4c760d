//! The window curve of CUBIC (RFC 9438). Its arithmetic uses only what IEEE 754 defines exactly, so that a run
//! repeats on every machine.

use ringway_sansio::{Duration, Time};

/// RFC 9438 section 4.6: the factor of the window after a loss.
const BETA: f64 = 0.7;
/// RFC 9438 section 5.1: how aggressively the window grows, in segments per second cubed.
const C: f64 = 0.4;
/// RFC 9438 section 4.3: the growth of Reno that gives the same average window with `BETA`.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// The state of RFC 9438 section 4.1.2. Windows are in segments; callers have theirs in bytes, and say how many a segment has.
#[derive(Clone, Debug, Default)]
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
    /// Handles a loss at a window. Returns the slow-start threshold in bytes, without its lower bound (RFC 9438 sections
    /// 4.6 and 4.7).
    pub fn reduce(&mut self, cwnd: u32, segment: u32) -> u32 {
        let unit = f64::from(segment.max(1));
        let cwnd = f64::from(cwnd) / unit;
        // Fast convergence.
        self.w_max = if cwnd < self.w_max { cwnd * (1.0 + BETA) / 2.0 } else { cwnd };
        self.cwnd_prior = cwnd;
        self.epoch = None;
        self.fraction = 0.0;
        (cwnd * BETA * unit) as u32
    }

    /// Has the next congestion avoidance begin with a new plateau, after a timeout (RFC 9438 section 4.8).
    pub fn forget_plateau(&mut self) {
        self.w_max = 0.0;
    }

    /// Has the time without data not count (RFC 9438 section 4.2).
    pub fn pause(&mut self) {
        self.epoch = None;
    }

    /// Returns by how many bytes a window grows in congestion avoidance when `acked` bytes are acknowledged (RFC 9438
    /// sections 4.2 to 4.5).
    pub fn avoid(&mut self, now: Time, rtt: Duration, cwnd: u32, segment: u32, acked: u32) -> u32 {
        let unit = f64::from(segment.max(1));
        let (cwnd, acked) = (f64::from(cwnd) / unit, f64::from(acked) / unit);
        let epoch = self.epoch.unwrap_or_else(|| self.begin(cwnd, now));
        let t = now.since(epoch).as_secs_f64() + rtt.as_secs_f64() - self.k;
        let target = (C * t * t * t + self.w_max).clamp(cwnd, 1.5 * cwnd);
        // RFC 9438 section 4.3: once the estimate is past where the loss was, it grows as Reno.
        let alpha = if self.w_est >= self.cwnd_prior { 1.0 } else { ALPHA };
        self.w_est += alpha * acked / cwnd;
        let growth = if target < self.w_est {
            (self.w_est - cwnd).clamp(0.0, acked)
        } else {
            (target - cwnd) / cwnd * acked
        };
        self.fraction += growth * unit;
        let whole = self.fraction as u32;
        self.fraction -= f64::from(whole);
        whole
    }

    /// Begins a stage of congestion avoidance (RFC 9438 section 4.2, figure 2). After slow start without a loss the
    /// plateau is at the current window (section 4.8).
    fn begin(&mut self, cwnd: f64, now: Time) -> Time {
        self.epoch = Some(now);
        self.w_est = cwnd;
        self.w_max = self.w_max.max(cwnd);
        self.k = cube_root((self.w_max - cwnd) / C);
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cube_roots_are_right() {
        for x in [1e-9, 0.5, 1.0, 27.0, 1000.0, 123_456.789, 1e15] {
            let root = cube_root(x);
            assert!((root * root * root / x - 1.0).abs() < 1e-12, "{x}: {root}");
        }
        assert_eq!(cube_root(0.0), 0.0);
    }

    /// RFC 9438 section 4.7: a second loss below the first makes room for other flows.
    #[test]
    fn a_second_loss_lowers_the_plateau() {
        let mut cubic = Cubic::default();
        assert_eq!(cubic.reduce(100_000, 1000), 70_000);
        cubic.reduce(80_000, 1000);
        assert!((cubic.w_max - 68.0).abs() < 1e-9);
    }

    /// RFC 9438 section 4.8: after a timeout K is 0 and W_max is where avoidance begins.
    #[test]
    fn a_timeout_begins_a_new_plateau() {
        let mut cubic = Cubic::default();
        cubic.reduce(1_000_000, 1000);
        cubic.forget_plateau();
        cubic.avoid(Time::from_secs(1), Duration::ZERO, 700_000, 1000, 1000);
        assert_eq!((cubic.w_max, cubic.k), (700.0, 0.0));
    }

    /// RFC 9438 section 4.2: the window is at the plateau again after K seconds.
    #[test]
    fn the_plateau_is_reached_after_k() {
        let mut cubic = Cubic::default();
        let (mut cwnd, mut now) = (cubic.reduce(1_000_000, 1000), Time::ZERO);
        // K is the cube root of 1000 * 0.3 / 0.4: 9.086 s.
        while now < Time::from_millis(9086) {
            cwnd += cubic.avoid(now, Duration::ZERO, cwnd, 1000, cwnd);
            now += Duration::from_millis(200);
        }
        assert!(cwnd.abs_diff(1_000_000) < 1000, "{cwnd}");
    }
}
