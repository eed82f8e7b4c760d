//! Congestion control: how large the window of a path is. What counts as loss, and what is sent
//! again, is decided elsewhere; a controller only says how the window grows and where it falls to.

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
    /// Whether the window grows by slow start (RFC 9260 section 7.2.1).
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
    /// How many SACKs it stands for, where every second packet gets one (RFC 9260 section 6.2): packets
    /// that arrive together are acknowledged together.
    pub sacks: u32,
    /// Bytes in flight on the path before it came.
    pub flight: u32,
    /// Nothing is left in flight on the path.
    pub all: bool,
    /// A fast recovery is under way.
    pub recovering: bool,
    /// Bytes that must be acknowledged in congestion avoidance until the window grows by a chunk,
    /// where that is more than the window: several paths share what one would take.
    pub step: u32,
    /// The smoothed round-trip time, once known.
    pub srtt: Option<Duration>,
}

/// A congestion controller of one path.
pub trait Congestion: fmt::Debug + Send {
    /// Its name, for traces.
    fn name(&self) -> &'static str;

    /// Data was acknowledged.
    fn acked(&mut self, window: &mut Window, acked: Acked);

    /// A loss was found by gap reports and begins a fast recovery (RFC 9260 section 7.2.3).
    fn lost(&mut self, window: &mut Window, now: Time);

    /// T3-rtx expired (RFC 9260 section 7.2.3), maybe while a fast recovery is under way.
    fn timeout(&mut self, window: &mut Window, now: Time, recovering: bool);

    /// The path was idle for so many RTOs (RFC 9260 section 7.2.1).
    fn idle(&mut self, window: &mut Window, rtos: u32);
}
