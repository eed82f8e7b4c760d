//! A handshake in progress.

use ringway_sansio::Time;

/// State of a handshake in progress.
#[derive(Debug)]
pub(crate) struct Opening {
    /// Number of times that INIT or COOKIE ECHO was sent again.
    pub(super) retransmits: u32,
    /// The path it is sent on.
    pub(super) path: usize,
    /// Whether it is due now.
    pub(super) send: bool,
    /// The time when it was sent, if only once.
    pub(super) timed: Option<Time>,
    pub(super) cookie: Vec<u8>,
    /// Longer life requested for the next cookie, in milliseconds.
    pub(super) preservative: Option<u32>,
    /// Number of stale cookies.
    pub(super) stale: u32,
    /// The a_rwnd of an INIT ACK since the last INIT that was too small.
    pub(super) small_window: Option<u32>,
}
