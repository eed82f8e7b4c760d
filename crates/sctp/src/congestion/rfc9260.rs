//! The window of RFC 9260 section 7.2.

use super::{Acked, Congestion, Window};
use ringway_sansio::Time;

/// The positive integer L of RFC 9260 section 7.2.1: the maximum number of PMDCS that slow start adds
/// for a SACK.
const SLOW_START_LIMIT: u32 = 1;

/// Slow start, then one PMDCS per round trip; halved by a loss.
#[derive(Debug, Default)]
pub struct Rfc9260;

fn half(window: &Window) -> u32 {
    (window.cwnd / 2).max(4 * window.pmdcs)
}

impl Congestion for Rfc9260 {
    fn name(&self) -> &'static str {
        "rfc9260"
    }

    fn acked(&mut self, window: &mut Window, acked: Acked) {
        let full = acked.flight >= window.cwnd;
        if window.in_slow_start() {
            // Section 7.2.1.
            if full && !acked.recovering {
                let max = SLOW_START_LIMIT * acked.sacks * window.pmdcs;
                window.cwnd = window.cwnd.saturating_add(acked.bytes.min(max));
            }
        } else {
            // Section 7.2.2.
            let partial = window.partial_bytes_acked.saturating_add(acked.bytes);
            window.partial_bytes_acked = partial;
            let step = window.cwnd.max(acked.step);
            if partial > step && !full {
                window.partial_bytes_acked = step;
            } else if partial >= step && full {
                window.partial_bytes_acked = partial - step;
                if !acked.recovering {
                    window.cwnd = window.cwnd.saturating_add(window.pmdcs);
                }
            }
        }
        if acked.all {
            window.partial_bytes_acked = 0;
        }
    }

    fn lost(&mut self, window: &mut Window, _now: Time) {
        window.ssthresh = half(window);
        window.cwnd = window.ssthresh;
        window.partial_bytes_acked = 0;
    }

    fn timeout(&mut self, window: &mut Window, _now: Time, recovering: bool) {
        // A recovery in progress has already halved the window, and it is not halved again. A SACK
        // reports some hundred gaps, and T3-rtx retransmits the other chunks of the same loss.
        if !recovering {
            window.ssthresh = half(window);
        }
        window.cwnd = window.pmdcs;
        window.partial_bytes_acked = 0;
    }

    fn idle(&mut self, window: &mut Window, rtos: u32) {
        let floor = 4 * window.pmdcs;
        if rtos == 0 || window.cwnd <= floor {
            return;
        }
        window.ssthresh = window.cwnd;
        window.cwnd = (window.cwnd >> rtos.min(31)).max(floor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PMDCS: u32 = 1000;

    fn window(cwnd: u32, ssthresh: u32) -> Window {
        Window { cwnd, ssthresh, partial_bytes_acked: 0, pmdcs: PMDCS }
    }

    fn acked(bytes: u32, flight: u32) -> Acked {
        Acked {
            now: Time::ZERO,
            bytes,
            sacks: 1,
            flight,
            all: false,
            recovering: false,
            step: 0,
            srtt: None,
        }
    }

    /// RFC 9260 section 7.2.1: at most a PMDCS a SACK, only when the window was used and there is
    /// no recovery.
    #[test]
    fn slow_start_adds_what_was_acknowledged() {
        let mut w = window(4000, 100_000);
        Rfc9260.acked(&mut w, acked(2000, 4000));
        assert_eq!(w.cwnd, 5000);
        Rfc9260.acked(&mut w, acked(300, 5200));
        assert_eq!(w.cwnd, 5300);
        Rfc9260.acked(&mut w, acked(300, 5000));
        Rfc9260.acked(&mut w, Acked { recovering: true, ..acked(300, 6000) });
        assert_eq!(w.cwnd, 5300);
    }

    /// RFC 9260 section 7.2.2: one PMDCS for each window acknowledged.
    #[test]
    fn avoidance_adds_one_chunk_a_window() {
        let mut w = window(10_000, 5000);
        for _ in 0..9 {
            Rfc9260.acked(&mut w, acked(1000, 10_000));
        }
        assert_eq!((w.cwnd, w.partial_bytes_acked), (10_000, 9000));
        Rfc9260.acked(&mut w, acked(1500, 10_000));
        assert_eq!((w.cwnd, w.partial_bytes_acked), (11_000, 500));
        // With several paths that share, it takes more.
        Rfc9260.acked(&mut w, Acked { step: 30_000, ..acked(11_000, 11_000) });
        assert_eq!((w.cwnd, w.partial_bytes_acked), (11_000, 11_500));
        w.partial_bytes_acked = 500;
        // An unused window accumulates no more than one step.
        for _ in 0..20 {
            Rfc9260.acked(&mut w, acked(1000, 5000));
        }
        assert_eq!((w.cwnd, w.partial_bytes_acked), (11_000, 11_000));
        Rfc9260.acked(&mut w, Acked { all: true, ..acked(10, 5000) });
        assert_eq!(w.partial_bytes_acked, 0);
    }

    /// RFC 9260 section 7.2.3.
    #[test]
    fn loss_halves_and_a_timeout_starts_over() {
        let mut w = window(20_000, 100_000);
        Rfc9260.lost(&mut w, Time::ZERO);
        assert_eq!((w.cwnd, w.ssthresh), (10_000, 10_000));
        Rfc9260.timeout(&mut w, Time::ZERO, true);
        assert_eq!((w.cwnd, w.ssthresh), (1000, 10_000));
        w.cwnd = 10_000;
        Rfc9260.timeout(&mut w, Time::ZERO, false);
        assert_eq!((w.cwnd, w.ssthresh), (1000, 5000));
        Rfc9260.lost(&mut w, Time::ZERO);
        assert_eq!((w.cwnd, w.ssthresh), (4000, 4000));
    }

    /// RFC 9260 section 7.2.1: half for each RTO, not below four chunks, and never more than it was.
    #[test]
    fn idleness_closes_the_window() {
        let mut w = window(20_000, 100_000);
        Rfc9260.idle(&mut w, 1);
        assert_eq!((w.cwnd, w.ssthresh), (10_000, 20_000));
        Rfc9260.idle(&mut w, 9);
        assert_eq!(w.cwnd, 4000);
        w.cwnd = 1000;
        Rfc9260.idle(&mut w, 9);
        assert_eq!(w.cwnd, 1000);
    }
}
