//! Congestion control: how large the window is. What counts as loss, and how a recovery sends, is
//! decided elsewhere; a controller only says how the window grows and where it falls to.

mod cubic;
mod new_reno;

pub use cubic::Cubic;
pub use new_reno::NewReno;

use core::fmt;
use ringway_sansio::{Duration, Time};

/// RFC 3465 section 2.3: in slow start an acknowledgment opens the window by at most this many
/// segments.
pub const ABC_LIMIT: u32 = 2;

/// The window of a connection, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// Congestion window.
    pub cwnd: u32,
    /// Slow start threshold.
    pub ssthresh: u32,
    /// Sender maximum segment size: data bytes in a full segment.
    pub mss: u32,
}

impl Window {
    /// Whether the window grows by slow start (RFC 5681 section 3.1).
    pub const fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Slow start with appropriate byte counting (RFC 3465 section 2.2): gives the bytes left over
    /// once `ssthresh` is reached. `limit` is in segments.
    pub fn slow_start(&mut self, bytes: u32, limit: u32) -> u32 {
        let counted = bytes.min(limit * self.mss);
        let grown = counted.min(self.ssthresh - self.cwnd);
        self.cwnd += grown;
        counted - grown
    }
}

/// An acknowledgment of new data outside of a recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acked {
    /// When it came.
    pub now: Time,
    /// Bytes acknowledged.
    pub bytes: u32,
    /// The smoothed round-trip time, once known.
    pub srtt: Option<Duration>,
    /// Whether the window is being rebuilt after a timeout: RFC 3465 section 2.3 then counts one
    /// segment an acknowledgment.
    pub after_timeout: bool,
}

/// A congestion controller.
pub trait Congestion: fmt::Debug + Send {
    /// Its name, for traces.
    fn name(&self) -> &'static str;

    /// New data was acknowledged while the window was what held the sender back.
    fn acked(&mut self, window: &mut Window, acked: Acked);

    /// A loss was repaired or congestion was signalled: sets `ssthresh`, and leaves `cwnd` to the
    /// recovery. `flight` is FlightSize in bytes.
    fn reduce(&mut self, window: &mut Window, flight: u32, now: Time);

    /// The retransmission timer expired: sets `ssthresh`; `cwnd` is set to one segment after.
    fn timeout(&mut self, window: &mut Window, flight: u32, now: Time);

    /// The sender was idle or held back by the application: time that passed does not count.
    fn idle(&mut self) {}
}
