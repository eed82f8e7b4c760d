//! How large packets may be on a path: packetization layer path MTU discovery (RFC 8899, section 6.2
//! for SCTP).
//!
//! Larger and larger packets of no worth are sent while data flows; the largest that is answered is
//! what the path takes. A path that suddenly takes no large packets is a black hole, and is searched
//! anew from below.

use crate::settings::{MIN_MTU, Settings};
use ringway_sansio::{Duration, Time};

/// BASE_PLPMTU (RFC 8899 section 5.1.2): what is fallen back to.
pub(crate) const BASE: usize = 1200;
/// MAX_PROBES (section 5.1.2): probes of one size that may be lost.
const MAX_PROBES: u8 = 3;
/// PMTU_RAISE_TIMER (section 5.1.1): how long a search holds.
const RAISE: Duration = Duration::from_secs(600);
/// The least time that a probe is waited for (section 5.1.1).
pub(crate) const MIN_WAIT: Duration = Duration::from_secs(1);
/// A search ends when it knows the size to so many bytes.
const EXACT: usize = 16;
/// Timeouts in a row with large packets in flight that make a black hole (section 4.3).
const SUSPECT: u8 = 2;

/// A search, and what it has found.
#[derive(Debug)]
pub(crate) struct Pmtu {
    /// The largest size that is tried.
    max: usize,
    /// The largest size not known to be too large.
    high: usize,
    /// A probe under way: its size and what its answer brings back.
    probe: Option<(usize, u64)>,
    /// Probes of this size that were lost.
    lost: u8,
    /// A probe is to go out now.
    pub(crate) probe_due: bool,
    /// Until when no search begins.
    rests: Time,
    suspect: u8,
}

impl Pmtu {
    pub(crate) fn new(settings: &Settings) -> Option<Box<Pmtu>> {
        Some(Pmtu::up_to(usize::from(settings.largest_mtu?)))
    }

    /// A search for no more than a size.
    pub(crate) fn up_to(max: usize) -> Box<Pmtu> {
        Box::new(Pmtu {
            max,
            high: max,
            probe: None,
            lost: 0,
            probe_due: false,
            rests: Time::ZERO,
            suspect: 0,
        })
    }

    /// Data goes out: a search begins if it is time. `true` if a probe is wanted now.
    pub(crate) fn begin(&mut self, now: Time, mtu: usize) -> bool {
        if self.probe_due || self.probe.is_some() || now < self.rests {
            return self.probe_due;
        }
        self.high = self.max;
        self.go_on(now, mtu)
    }

    /// What the search does next.
    fn go_on(&mut self, now: Time, mtu: usize) -> bool {
        self.probe_due = self.high >= mtu + EXACT;
        if !self.probe_due {
            self.rests = now + RAISE;
        }
        self.probe_due
    }

    /// Size of the next probe; the largest first, then the middle of what is left.
    pub(crate) fn size(&self, mtu: usize) -> usize {
        match self.probe {
            Some((size, _)) => size,
            None if self.high == self.max => self.high & !3,
            None => (mtu + self.high).div_ceil(2) & !3,
        }
    }

    pub(crate) fn sent(&mut self, size: usize, nonce: u64) {
        self.probe_due = false;
        self.probe = Some((size, nonce));
    }

    /// An answer came. Gives the size that is now known to go through.
    pub(crate) fn answered(&mut self, now: Time, nonce: u64) -> Option<usize> {
        let (size, _) = self.probe.take_if(|probe| probe.1 == nonce)?;
        self.lost = 0;
        self.go_on(now, size);
        Some(size)
    }

    /// No answer came in time.
    pub(crate) fn timeout(&mut self, now: Time, mtu: usize) {
        let Some((size, _)) = self.probe else { return };
        self.lost += 1;
        if self.lost < MAX_PROBES {
            self.probe_due = true;
            return;
        }
        self.refused(now, mtu, size);
    }

    /// Packets of a size do not go through.
    fn refused(&mut self, now: Time, mtu: usize, size: usize) {
        self.lost = 0;
        self.probe = None;
        self.high = self.high.min(size - 4);
        self.go_on(now, mtu);
    }

    /// A router says what it lets through (section 4.6.2). Gives the size that the path falls to,
    /// if it does; a message about a size that was never sent says nothing.
    pub(crate) fn too_big(&mut self, now: Time, mtu: usize, reported: usize) -> Option<usize> {
        let probed = self.probe.map(|probe| probe.0);
        if reported < mtu {
            self.probe = None;
            self.lost = 0;
            self.high = reported;
            self.probe_due = false;
            self.rests = now + RAISE;
            return Some(reported);
        }
        if let Some(size) = probed.filter(|size| reported < *size) {
            self.refused(now, mtu, size);
            self.high = self.high.min(reported);
            self.go_on(now, mtu);
        }
        None
    }

    /// There is a reason to believe the next loss: it is not the first, or no large packet ever arrived.
    pub(crate) fn suspect(&mut self) {
        self.suspect = self.suspect.max(SUSPECT - 1);
    }

    /// A timer expired for data. Gives the size that the path falls to if it is a black hole.
    pub(crate) fn data_lost(&mut self, now: Time, mtu: usize) -> Option<usize> {
        self.suspect = self.suspect.saturating_add(1);
        let floor = usize::from(MIN_MTU);
        if self.suspect < SUSPECT || mtu <= floor {
            return None;
        }
        self.suspect = 0;
        self.probe = None;
        self.lost = 0;
        self.probe_due = false;
        // It begins again once data flows.
        self.rests = now + MIN_WAIT;
        Some(if mtu > BASE { BASE } else { floor })
    }

    /// Data was acknowledged.
    pub(crate) fn data_arrived(&mut self) {
        self.suspect = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches a path that takes `truth`; gives what is found and how many probes it took.
    fn search(mtu: u16, max: u16, truth: usize) -> (usize, usize) {
        let settings = Settings { mtu, largest_mtu: Some(max), ..Settings::default() };
        let mut pmtu = Pmtu::new(&settings).unwrap();
        let (mut now, mut mtu, mut count) = (Time::from_secs(1000), usize::from(mtu), 0);
        pmtu.begin(now, mtu);
        while pmtu.probe_due {
            let size = pmtu.size(mtu);
            assert!(size > mtu && size <= usize::from(max), "{size} of {mtu}");
            pmtu.sent(size, count);
            count += 1;
            assert_eq!(pmtu.answered(now, 99_999), None, "another's answer");
            if size <= truth {
                mtu = pmtu.answered(now, count - 1).unwrap();
            } else {
                pmtu.timeout(now, mtu);
            }
            now += MIN_WAIT;
        }
        assert!(!pmtu.begin(now, mtu), "it rests");
        (mtu, count as usize)
    }

    /// RFC 8899 section 5.3: the size is found to a few bytes, with few probes.
    #[test]
    fn the_size_is_found() {
        for (mtu, max, truth) in
            [(1200, 1500, 1500), (1200, 1500, 1492), (1200, 9000, 1500), (512, 65_535, 16_000)]
        {
            let (found, probes) = search(mtu, max, truth);
            assert!(found <= truth && found + EXACT + 4 > truth, "{found} of {truth}");
            assert!(probes < 40, "{probes}");
        }
        assert_eq!(search(1500, 1500, 1500), (1500, 0));
    }

    /// RFC 8899 section 4.3: a black hole is fallen out of, in two steps.
    #[test]
    fn a_black_hole_is_seen() {
        let settings = Settings { largest_mtu: Some(9000), ..Settings::default() };
        let mut pmtu = Pmtu::new(&settings).unwrap();
        let now = Time::from_secs(1000);
        assert_eq!(pmtu.data_lost(now, 9000), None);
        pmtu.data_arrived();
        assert_eq!(pmtu.data_lost(now, 9000), None);
        assert_eq!(pmtu.data_lost(now, 9000), Some(1200));
        assert_eq!(pmtu.data_lost(now, 1200), None);
        assert_eq!(pmtu.data_lost(now, 1200), Some(512));
        assert_eq!((pmtu.data_lost(now, 512), pmtu.data_lost(now, 512)), (None, None));
        assert!(!pmtu.begin(now, 512) && pmtu.begin(now + MIN_WAIT, 512));
    }

    /// RFC 8899 section 4.6.2: what a router tells ends a probe, or lowers the size, and nothing
    /// else.
    #[test]
    fn routers_are_heard() {
        let settings = Settings { largest_mtu: Some(9000), ..Settings::default() };
        let mut pmtu = Pmtu::new(&settings).unwrap();
        let now = Time::from_secs(1000);
        assert!(pmtu.begin(now, 1500));
        pmtu.sent(9000, 1);
        assert_eq!(pmtu.too_big(now, 1500, 9000), None);
        assert_eq!(pmtu.answered(now, 2), None);
        assert_eq!(pmtu.too_big(now, 1500, 4000), None);
        assert!(pmtu.probe_due && pmtu.size(1500) <= 4000);
        assert_eq!(pmtu.too_big(now, 1500, 1400), Some(1400));
        assert!(!pmtu.probe_due);
    }
}
