//! RACK: loss by time (RFC 8985 sections 5 and 6), without the list of segments, which is in
//! `board`.

use crate::seq::Seq;
use ringway_sansio::{Duration, Time};
use ringway_transport::ReorderingWindow;

/// Time for which a minimum round-trip time is valid.
const MIN_RTT_WINDOW: Duration = Duration::from_secs(300);
/// Maximum multiplier stored, less one; the window is bounded by SRTT anyway.
const MAX_WIDENED: u8 = 199;
/// Number of segments that count like duplicate acknowledgments (RFC 8985 section 3.3.2 step 4).
const DUP_THRESH: u32 = 3;

/// The time of an acknowledgment, for RFC 8985 section 6.2 step 2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckTime {
    pub(crate) now: Time,
    /// The send time of the acknowledged segment by the echo of the local timestamp, if there is one,
    /// at the resolution of the timestamp clock.
    pub(crate) echoed: Option<Time>,
}

/// RACK's variables of RFC 8985 section 5.2.
///
/// It stands beside SCTP's because segments are known by sequence numbers that wrap, timestamps tell which transmission was
/// answered, and the window is zero until reordering is seen. What both share is [`ReorderingWindow`].
#[derive(Debug)]
pub(crate) struct Rack {
    /// `RACK.xmit_ts` of the segment sent last among those delivered.
    pub(crate) xmit: Time,
    /// `RACK.end_seq` of that segment.
    pub(crate) end: Seq,
    /// `RACK.rtt`.
    pub(crate) rtt: Duration,
    /// `RACK.fack`: the highest sequence delivered.
    fack: Seq,
    reordering_seen: bool,
    min_rtt: Duration,
    min_rtt_at: Time,
    /// `RACK.reo_wnd_mult` and `RACK.reo_wnd_persist`.
    window: ReorderingWindow,
    /// `RACK.dsack_round`.
    dsack_round: Option<Seq>,
}

impl Rack {
    pub(crate) fn new(start: Seq) -> Self {
        Rack {
            xmit: Time::ZERO,
            end: start,
            rtt: Duration::ZERO,
            fack: start,
            reordering_seen: false,
            min_rtt: Duration::MAX,
            min_rtt_at: Time::ZERO,
            window: ReorderingWindow::default(),
            dsack_round: None,
        }
    }

    /// Handles one newly delivered segment (RFC 8985 section 6.2 steps 1 to 3).
    #[inline]
    pub(crate) fn delivered(&mut self, at: Time, end: Seq, retransmitted: bool, ack: AckTime) {
        if end.after(self.fack) {
            self.fack = end;
        } else if end.before(self.fack) && !retransmitted {
            self.reordering_seen = true;
        }
        let rtt = ack.now.since(at);
        if retransmitted {
            // The echo is of an earlier transmission, or the time is too short for an answer to this
            // one.
            if ack.echoed.is_some_and(|echoed| echoed < at) || rtt < self.min_rtt {
                return;
            }
        } else if rtt <= self.min_rtt || ack.now.since(self.min_rtt_at) > MIN_RTT_WINDOW {
            self.min_rtt = rtt;
            self.min_rtt_at = ack.now;
        }
        self.rtt = rtt;
        if sent_after(at, end, self.xmit, self.end) {
            self.xmit = at;
            self.end = end;
        }
    }

    /// Handles a DSACK, which shows that a retransmission was not needed, so that the window widens,
    /// once a round trip (RFC 8985 section 6.2 step 4).
    pub(crate) fn duplicate_reported(&mut self, snd_una: Seq, snd_nxt: Seq) {
        if self.dsack_round.is_some_and(|round| snd_una.before(round)) {
            return;
        }
        self.dsack_round = Some(snd_nxt);
        self.window.widen(MAX_WIDENED);
    }

    /// Handles the end of a recovery (RFC 8985 section 6.2 step 4).
    pub(crate) fn recovered(&mut self) {
        self.window.recovered();
    }

    /// Returns the reordering window by `RACK_update_reo_wnd` of RFC 8985 section 6.2 step 4.
    pub(crate) fn reo_wnd(
        &self,
        recovering: bool,
        sacked: u32,
        mss: u32,
        srtt: Option<Duration>,
    ) -> Duration {
        if !self.reordering_seen && (recovering || sacked >= DUP_THRESH * mss) {
            return Duration::ZERO;
        }
        if self.min_rtt == Duration::MAX {
            return Duration::ZERO;
        }
        let wide = self.window.width(self.min_rtt);
        wide.min(srtt.unwrap_or(wide))
    }

    /// Returns whether segments were seen out of order.
    pub(crate) fn reordering_seen(&self) -> bool {
        self.reordering_seen
    }

    /// Returns the minimum round-trip time of the last minutes.
    pub(crate) fn min_rtt(&self) -> Option<Duration> {
        (self.min_rtt != Duration::MAX).then_some(self.min_rtt)
    }
}

/// `RACK_sent_after` of RFC 8985 section 6.2 step 2.
#[inline]
pub(crate) fn sent_after(at: Time, end: Seq, other_at: Time, other_end: Seq) -> bool {
    at > other_at || (at == other_at && end.after(other_end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(now: u64) -> AckTime {
        AckTime { now: Time::from_millis(now), echoed: None }
    }

    /// RFC 8985 section 6.2 step 2: an answer faster than any round trip is of an earlier transmission.
    #[test]
    fn an_early_answer_counts_for_the_first_transmission() {
        let mut rack = Rack::new(Seq::new(0));
        rack.delivered(Time::from_millis(0), Seq::new(10), false, ack(100));
        rack.delivered(Time::from_millis(190), Seq::new(20), true, ack(200));
        assert_eq!((rack.end, rack.rtt), (Seq::new(10), Duration::from_millis(100)));
        rack.delivered(Time::from_millis(90), Seq::new(30), true, ack(200));
        assert_eq!((rack.end, rack.rtt), (Seq::new(30), Duration::from_millis(110)));
    }

    /// RFC 8985 section 6.2 step 3 and 4: reordering seen opens the window, a DSACK widens it, once
    /// a round.
    #[test]
    fn the_window_adapts() {
        let mut rack = Rack::new(Seq::new(0));
        rack.delivered(Time::from_millis(0), Seq::new(20), false, ack(40));
        assert_eq!(rack.reo_wnd(true, 0, 1000, None), Duration::ZERO);
        assert_eq!(rack.reo_wnd(false, 0, 1000, None), Duration::from_millis(10));
        assert_eq!(rack.reo_wnd(false, 3000, 1000, None), Duration::ZERO);
        rack.delivered(Time::from_millis(0), Seq::new(10), false, ack(40));
        assert_eq!(rack.reo_wnd(true, 3000, 1000, None), Duration::from_millis(10));
        rack.duplicate_reported(Seq::new(20), Seq::new(100));
        rack.duplicate_reported(Seq::new(20), Seq::new(110));
        assert_eq!(rack.reo_wnd(true, 0, 1000, None), Duration::from_millis(20));
        let srtt = Some(Duration::from_millis(15));
        assert_eq!(rack.reo_wnd(true, 0, 1000, srtt), Duration::from_millis(15));
        for _ in 0..16 {
            rack.recovered();
        }
        assert_eq!(rack.reo_wnd(true, 0, 1000, None), Duration::from_millis(10));
    }
}
