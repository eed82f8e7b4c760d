//! The growth of RACK's reordering window (RFC 8985 section 6.2, step 4).

use ringway_sansio::Duration;

/// Number of recoveries for which a wider window stays.
const PERSIST: u8 = 16;

/// By how much the reordering window is wider than a quarter of the shortest round trip (RACK.reo_wnd_mult, less one,
/// and RACK.reo_wnd_persist). The caller sees to it that it grows once a round trip.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReorderingWindow {
    widened: u8,
    persist: u8,
}

impl ReorderingWindow {
    /// Widens it by a quarter of the shortest round trip, up to `max` quarters beyond the first, because a retransmission
    /// was not needed.
    pub fn widen(&mut self, max: u8) {
        self.widened = self.widened.saturating_add(1).min(max);
        self.persist = PERSIST;
    }

    /// Handles a recovery: after so many without another reason to widen it, it is as at first.
    pub fn recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.widened = 0;
        }
    }

    /// Returns the window for a shortest round trip.
    pub fn width(&self, shortest: Duration) -> Duration {
        shortest / 4 * (u32::from(self.widened) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_widens_and_narrows_again() {
        let ms = Duration::from_millis;
        let mut window = ReorderingWindow::default();
        assert_eq!(window.width(ms(40)), ms(10));
        for _ in 0..5 {
            window.widen(3);
        }
        assert_eq!(window.width(ms(40)), ms(40));
        for _ in 1..PERSIST {
            window.recovered();
        }
        assert_eq!(window.width(ms(40)), ms(40));
        window.recovered();
        assert_eq!(window.width(ms(40)), ms(10));
    }
}
