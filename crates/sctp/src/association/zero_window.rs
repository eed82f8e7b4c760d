//! The probing of a peer's closed window (RFC 9260 section 6.1 A).

/// The state of the probing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ZeroWindow {
    /// Whether a probe may be sent now.
    due: bool,
    /// Whether a probe is outstanding.
    outstanding: bool,
    /// The paths, a bit each, whose timer has not expired since the last SACK.
    heard: u32,
    /// Number of probes in a row.
    probes: u32,
}

impl ZeroWindow {
    /// Notes that the window has been closed for an RTO, so that a probe may be sent.
    pub(super) fn set_due(&mut self) {
        self.due = true;
    }

    /// Returns whether a probe may be sent now.
    pub(super) fn is_due(&self) -> bool {
        self.due
    }

    /// Notes that new data is sent, as a probe or because the window is open.
    pub(super) fn data_sent(&mut self) {
        self.due = false;
    }

    /// Notes that a probe is sent.
    pub(super) fn probe_sent(&mut self) {
        self.probe_again();
        self.heard = 0;
    }

    /// Notes that data which the peer refused is to probe its window.
    pub(super) fn probe_again(&mut self) {
        self.outstanding = true;
        self.probes += 1;
    }

    /// Returns whether a probe is outstanding.
    pub(super) fn is_probing(&self) -> bool {
        self.outstanding
    }

    /// Returns whether the window was probed since it was open.
    pub(super) fn was_probed(&self) -> bool {
        self.probes > 0 || self.outstanding
    }

    /// Notes that the window is open.
    pub(super) fn opened(&mut self) {
        (self.outstanding, self.probes) = (false, 0);
    }

    /// Ends the probing, because the numbers of chunks start over.
    pub(super) fn reset(&mut self) {
        self.opened();
        self.due = false;
    }

    /// Notes that the peer answers.
    pub(super) fn peer_heard(&mut self) {
        self.heard = u32::MAX;
    }

    /// Notes that the timer of a path has expired. Returns whether the peer has answered since it did so last.
    pub(super) fn timer_expired(&mut self, path: usize) -> bool {
        let heard = self.heard & (1 << path) != 0;
        self.heard &= !(1 << path);
        heard
    }

    /// Returns the factor of the time until the next probe, which doubles with each.
    pub(super) fn back_off(&self) -> u32 {
        1 << self.probes.min(16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_back_off_until_the_window_opens() {
        let mut window = ZeroWindow::default();
        assert!(!window.was_probed());
        for factor in [2, 4, 8] {
            window.probe_sent();
            assert_eq!(window.back_off(), factor);
        }
        assert!(window.is_probing() && window.was_probed());
        window.opened();
        assert_eq!((window.back_off(), window.was_probed()), (1, false));
        for _ in 0..100 {
            window.probe_again();
        }
        assert_eq!(window.back_off(), 1 << 16);
    }

    #[test]
    fn an_answer_counts_once_for_each_path() {
        let mut window = ZeroWindow::default();
        assert!(!window.timer_expired(0));
        window.peer_heard();
        assert!(window.timer_expired(0) && window.timer_expired(5));
        assert!(!window.timer_expired(0) && !window.timer_expired(5));
        window.peer_heard();
        window.probe_sent();
        assert!(!window.timer_expired(0));
    }
}
