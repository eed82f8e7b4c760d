//! The maximum packet size of a path: packetization layer path MTU discovery (RFC 8899, section 6.2 for
//! SCTP).
//!
//! Probe packets of growing size are sent while data flows, and the largest that is answered is the
//! path's MTU. A path that suddenly drops large packets is a black hole, and is searched again from
//! below.

use crate::settings::{MIN_MTU, Settings};
use ringway_sansio::{Duration, Time};

/// BASE_PLPMTU (RFC 8899 section 5.1.2): the size to fall back to.
pub(crate) const BASE: usize = 1200;
/// MAX_PROBES (section 5.1.2): maximum number of lost probes of one size.
const MAX_PROBES: u8 = 3;
/// PMTU_RAISE_TIMER (section 5.1.1): the time until the next search.
const RAISE: Duration = Duration::from_secs(600);
/// Minimum time to wait for a probe (section 5.1.1).
pub(crate) const MIN_WAIT: Duration = Duration::from_secs(1);
/// Precision of a search, in bytes.
const EXACT: usize = 16;
/// Number of timeouts in a row, with large packets in flight, that indicate a black hole (section 4.3).
const SUSPECT: u8 = 2;

/// A search and its result.
#[derive(Debug)]
pub(crate) struct Pmtu {
    /// Maximum size that is probed.
    max: usize,
    /// The largest size not known to be too large.
    high: usize,
    /// The outstanding probe: its size and the nonce of its answer.
    probe: Option<(usize, u64)>,
    /// Probes of this size that were lost.
    lost: u8,
    /// Whether a probe is due.
    pub(crate) probe_due: bool,
    /// The time until which no search begins.
    rests: Time,
    suspect: u8,
}

impl Pmtu {
    pub(crate) fn new(settings: &Settings) -> Option<Box<Pmtu>> {
        Some(Pmtu::up_to(usize::from(settings.largest_mtu?)))
    }

    /// Creates a search up to a maximum size.
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

    /// Starts a search if it is time, when data is sent. Returns `true` if a probe is due now.
    pub(crate) fn begin(&mut self, now: Time, mtu: usize) -> bool {
        if self.probe_due || self.probe.is_some() || now < self.rests {
            return self.probe_due;
        }
        self.high = self.max;
        self.go_on(now, mtu)
    }

    /// Decides the next step of the search.
    fn go_on(&mut self, now: Time, mtu: usize) -> bool {
        self.probe_due = self.high >= mtu + EXACT;
        if !self.probe_due {
            self.rests = now + RAISE;
        }
        self.probe_due
    }

    /// Returns the size of the next probe: the largest first, then the middle of the rest.
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

    /// Handles an answer. Returns the size that is now known to arrive.
    pub(crate) fn answered(&mut self, now: Time, nonce: u64) -> Option<usize> {
        let (size, _) = self.probe.take_if(|probe| probe.1 == nonce)?;
        self.lost = 0;
        self.go_on(now, size);
        Some(size)
    }

    /// Handles the loss of a probe.
    pub(crate) fn timeout(&mut self, now: Time, mtu: usize) {
        let Some((size, _)) = self.probe else { return };
        self.lost += 1;
        if self.lost < MAX_PROBES {
            self.probe_due = true;
            return;
        }
        self.refused(now, mtu, size);
    }

    /// Notes that packets of a size do not arrive.
    fn refused(&mut self, now: Time, mtu: usize, size: usize) {
        self.lost = 0;
        self.probe = None;
        self.high = self.high.min(size - 4);
        self.go_on(now, mtu);
    }

    /// Handles a router's report of its MTU (section 4.6.2). Returns the size that the path falls to,
    /// if it does. A report about a size that was never sent is ignored.
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

    /// Makes the next loss count as evidence of a black hole: it is not the first, or no large packet
    /// has ever arrived.
    pub(crate) fn suspect(&mut self) {
        self.suspect = self.suspect.max(SUSPECT - 1);
    }

    /// Handles the expiry of a data timer. Returns the size that the path falls to if it is a black
    /// hole.
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
        // The search starts again once data flows.
        self.rests = now + MIN_WAIT;
        Some(if mtu > BASE { BASE } else { floor })
    }

    /// Notes that data was acknowledged.
    pub(crate) fn data_arrived(&mut self) {
        self.suspect = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches a path whose MTU is `truth`. Returns the result and the number of probes.
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
            assert_eq!(pmtu.answered(now, 99_999), None, "the answer to another nonce");
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

    /// RFC 8899 section 5.3: the size is found within a few bytes, with few probes.
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

    /// RFC 8899 section 4.3: the size falls out of a black hole in two steps.
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

    /// RFC 8899 section 4.6.2: a router's report ends a probe or lowers the size, and has no other
    /// effect.
    #[test]
    fn reports_of_routers_are_used() {
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
