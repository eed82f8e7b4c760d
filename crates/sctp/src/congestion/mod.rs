//! Congestion control: the size of a path's window. Loss detection and retransmission are elsewhere. A
//! controller only decides how the window grows and what it falls to.

mod cubic;
mod rfc9260;

pub use cubic::Cubic;
pub use rfc9260::Rfc9260;

use core::fmt;
use ringway_sansio::{Duration, Time};

/// The window of a path, in bytes of DATA chunks with header and padding (RFC 9260 section 7.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// Congestion window.
    pub cwnd: u32,
    /// Slow-start threshold.
    pub ssthresh: u32,
    /// Bytes acknowledged since the window last grew in congestion avoidance.
    pub partial_bytes_acked: u32,
    /// Path Maximum DATA Chunk Size: the largest DATA chunk that fits a packet.
    pub pmdcs: u32,
}

impl Window {
    /// Returns whether the window grows by slow start (RFC 9260 section 7.2.1).
    pub const fn in_slow_start(&self) -> bool {
        self.cwnd <= self.ssthresh
    }
}

/// A SACK that acknowledged something on a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acked {
    /// When it came.
    pub now: Time,
    /// Bytes newly acknowledged.
    pub bytes: u32,
    /// Number of SACKs it stands for at one SACK for every second packet (RFC 9260 section 6.2), since
    /// packets that arrive together are acknowledged together.
    pub sacks: u32,
    /// Bytes in flight on the path before it came.
    pub flight: u32,
    /// Whether nothing is left in flight on the path.
    pub all: bool,
    /// Whether a fast recovery is in progress.
    pub recovering: bool,
    /// Bytes to be acknowledged in congestion avoidance until the window grows by a chunk, where that
    /// is more than the window: several paths share the growth of one.
    pub step: u32,
    /// The smoothed round-trip time, once known.
    pub srtt: Option<Duration>,
}

/// A congestion controller of one path.
pub trait Congestion: fmt::Debug + Send {
    /// Returns the controller's name, for traces.
    fn name(&self) -> &'static str;

    /// Handles newly acknowledged data.
    fn acked(&mut self, window: &mut Window, acked: Acked);

    /// Handles a loss found by gap reports, which begins a fast recovery (RFC 9260 section 7.2.3).
    fn lost(&mut self, window: &mut Window, now: Time);

    /// Handles the expiry of T3-rtx (RFC 9260 section 7.2.3), possibly during a fast recovery.
    fn timeout(&mut self, window: &mut Window, now: Time, recovering: bool);

    /// Handles a path that was idle for a number of RTOs (RFC 9260 section 7.2.1).
    fn idle(&mut self, window: &mut Window, rtos: u32);
}
