//! Congestion control: the size of the window. Loss detection and recovery are elsewhere. A controller
//! only decides how the window grows and what it falls to.

mod cubic;
mod new_reno;

pub use cubic::Cubic;
pub use new_reno::NewReno;

use core::fmt;
use ringway_sansio::{Duration, Time};

/// Maximum growth of the window in slow start for an acknowledgment, in segments (RFC 3465 section
/// 2.3).
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
    /// Returns whether the window grows by slow start (RFC 5681 section 3.1).
    pub const fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Performs slow start with appropriate byte counting (RFC 3465 section 2.2). Returns the bytes
    /// left over once `ssthresh` is reached. `limit` is in segments.
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
    /// segment for an acknowledgment.
    pub after_timeout: bool,
}

/// A congestion controller.
pub trait Congestion: fmt::Debug + Send {
    /// Returns the controller's name, for traces.
    fn name(&self) -> &'static str;

    /// Handles an acknowledgment of new data while the window limited the sender.
    fn acked(&mut self, window: &mut Window, acked: Acked);

    /// Handles a loss or a congestion signal: sets `ssthresh`, and leaves `cwnd` to the recovery.
    /// `flight` is FlightSize in bytes.
    fn reduce(&mut self, window: &mut Window, flight: u32, now: Time);

    /// Handles the retransmission timeout: sets `ssthresh`. The caller then sets `cwnd` to one segment.
    fn timeout(&mut self, window: &mut Window, flight: u32, now: Time);

    /// Handles a pause in which the application sent less than the window: that time does not count.
    fn idle(&mut self) {}
}
