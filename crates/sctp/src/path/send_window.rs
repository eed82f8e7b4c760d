//! How much may be sent on a path: its congestion window, the burst, and the one packet after a timeout (RFC 9260 sections
//! 6.1 and 7.2).

use super::Flight;
use crate::congestion::{Acked, Congestion, Window};
use crate::settings::Settings;
use ringway_sansio::{Duration, Time};
use std::net::IpAddr;

/// What opens and closes the window of a path.
pub(super) struct SendWindow {
    window: Window,
    control: Box<dyn Congestion>,
    /// Bytes of data that may still be sent in this burst (section 6.1 D).
    burst: u32,
    /// Whether only one packet may be in flight after a timeout until something is acknowledged
    /// (section 7.2.3).
    one_packet: bool,
    /// The time when data was last sent.
    data_at: Option<Time>,
}

/// Returns the initial window of RFC 9260 section 7.2.1.
fn initial(settings: &Settings, pmdcs: u32, remote: IpAddr, ssthresh: u32) -> Window {
    let floor = if remote.is_ipv4() { 4404 } else { 4344 };
    let cwnd = settings.initial_cwnd.unwrap_or((4 * pmdcs).min(floor.max(2 * pmdcs)));
    let ssthresh = settings.initial_ssthresh.unwrap_or(ssthresh);
    Window { cwnd, ssthresh, partial_bytes_acked: 0, pmdcs }
}

impl SendWindow {
    /// Returns the window of a new path, with a largest DATA chunk of `pmdcs` bytes.
    pub(super) fn new(
        settings: &Settings,
        pmdcs: u32,
        remote: IpAddr,
        ssthresh: u32,
    ) -> SendWindow {
        let window = initial(settings, pmdcs, remote, ssthresh);
        let control = settings.algorithm.make();
        SendWindow { window, control, burst: 0, one_packet: false, data_at: None }
    }

    /// Sets the initial window, after a change of the path (section 7.2.5).
    pub(super) fn reset(&mut self, settings: &Settings, pmdcs: u32, remote: IpAddr, ssthresh: u32) {
        self.window = initial(settings, pmdcs, remote, ssthresh);
        self.control = settings.algorithm.make();
    }

    #[inline]
    pub(super) fn window(&self) -> &Window {
        &self.window
    }

    /// Sets the size of the largest DATA chunk.
    pub(super) fn set_pmdcs(&mut self, pmdcs: u32) {
        self.window.pmdcs = pmdcs;
    }

    /// Sets the slow-start threshold to the peer's window, if nothing was sent and none is configured.
    pub(super) fn offered(&mut self, settings: &Settings, peer_rwnd: u32) {
        if settings.initial_ssthresh.is_none() && self.data_at.is_none() {
            self.window.ssthresh = peer_rwnd;
        }
    }

    /// Returns whether the window has room beside what is in flight.
    #[inline]
    fn is_open(&self, flight: &Flight) -> bool {
        let window = if self.one_packet { 1 } else { self.window.cwnd };
        flight.bytes() < window
    }

    /// Returns whether the window and the burst allow new data (section 6.1 B and D).
    #[inline]
    pub(super) fn may_send(&self, flight: &Flight) -> bool {
        self.is_open(flight) && self.burst > 0
    }

    /// Returns whether the window and the burst allow a retransmission. Losses found at one time are
    /// limited to a burst as new data is, unless nothing is in flight that would trigger the rest.
    #[inline]
    pub(super) fn may_retransmit(&self, flight: &Flight) -> bool {
        self.is_open(flight) && (self.burst > 0 || flight.is_empty())
    }

    /// Returns whether the window admits only one packet.
    #[inline]
    pub(super) fn takes_one_packet(&self) -> bool {
        self.one_packet
    }

    /// Ends the limit to one packet.
    pub(super) fn admit_more(&mut self) {
        self.one_packet = false;
    }

    /// Returns the length in bytes of a burst (section 6.1 D).
    #[inline]
    fn one_burst(&self, settings: &Settings) -> u32 {
        match settings.max_burst {
            0 => u32::MAX,
            packets => packets.saturating_mul(self.window.pmdcs),
        }
    }

    /// Allows a burst.
    #[inline]
    pub(super) fn allow_burst(&mut self, settings: &Settings) {
        self.burst = self.burst.max(self.one_burst(settings));
    }

    /// Allows one more burst for each of a number of SACKs.
    #[inline]
    pub(super) fn add_bursts(&mut self, settings: &Settings, sacks: u32) {
        let more = self.one_burst(settings).saturating_mul(sacks);
        self.burst = self.burst.saturating_add(more);
    }

    /// Subtracts a chunk from the burst.
    #[inline]
    pub(super) fn spend_burst(&mut self, size: usize) {
        self.burst = self.burst.saturating_sub(size as u32);
    }

    /// Returns whether a burst is in progress.
    #[inline]
    pub(super) fn has_burst(&self) -> bool {
        self.burst > 0
    }

    /// Forfeits the rest of a burst.
    #[inline]
    pub(super) fn end_burst(&mut self) {
        self.burst = 0;
    }

    /// Notes that data is sent. A window that was idle for long is reduced before (section 7.2.1).
    #[inline]
    pub(super) fn before_data(&mut self, now: Time, flight: &Flight, rto: Duration) {
        if flight.is_empty()
            && let Some(last) = self.data_at
        {
            let rtos = (now.since(last).as_nanos() / rto.as_nanos().max(1)).min(64) as u32;
            self.control.idle(&mut self.window, rtos);
        }
        self.data_at = Some(now);
    }

    /// Handles newly acknowledged data.
    #[inline]
    pub(super) fn acked(&mut self, acked: Acked) {
        self.one_packet = false;
        self.control.acked(&mut self.window, acked);
    }

    /// Handles a loss found by gap reports.
    pub(super) fn lost(&mut self, now: Time) {
        self.control.lost(&mut self.window, now);
    }

    /// Handles the expiry of T3-rtx.
    pub(super) fn timeout(&mut self, now: Time, recovering: bool) {
        self.control.timeout(&mut self.window, now, recovering);
        self.one_packet = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    /// RFC 9260 sections 6.1 D and 7.2.3.
    #[test]
    fn a_burst_and_a_timeout_limit_what_is_sent() {
        let settings = Settings { max_burst: 2, ..Settings::default() };
        let mut window = SendWindow::new(&settings, 1000, A, 50_000);
        let mut flight = Flight::default();
        assert_eq!(window.window().cwnd, 4000);
        assert!(!window.may_send(&flight) && window.may_retransmit(&flight));
        window.allow_burst(&settings);
        window.spend_burst(1999);
        assert!(window.may_send(&flight));
        window.spend_burst(1);
        assert!(!window.may_send(&flight));
        window.allow_burst(&settings);
        window.timeout(Time::from_secs(1), false);
        assert!(window.may_send(&flight));
        flight.add(1, 100);
        assert!(!window.may_send(&flight) && !window.may_retransmit(&flight));
        window.admit_more();
        assert!(window.may_send(&flight));
    }
}
