//! Bounds on what a hostile or broken peer may cost.

use std::time::Duration;

/// Bounds on connections. All defaults suit a server for many thousand phones. Each bound has a counter in
/// [`Counters`](crate::Counters) that tells when it was reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Maximum number of open connections, in either direction, of all workers together. Fewer where the
    /// process may not open so many files. One eighth is kept for those that the local endpoint opens.
    pub connections: usize,
    /// Maximum number of connections accepted from one source at once: an IPv4 address or an IPv6 /64
    /// prefix. At most a quarter of all, and a 64th once half of all are open.
    pub connections_per_source: usize,
    /// File descriptors that the process may have, as far as connections are concerned; `None` for what the
    /// system permits. [`reserved_files`] of them are kept for everything else.
    pub files: Option<usize>,
    /// Maximum number of accepted connections of one worker that have not yet brought a whole message. The
    /// oldest is closed to make room for the next.
    pub half_open: usize,
    /// Maximum number of bytes that may wait to be written to one connection. The connection of a peer that
    /// lets more accumulate is closed. Requests that would begin something are not sent from half of it on.
    pub write_queue: usize,
    /// Maximum time to open a connection, its TLS handshake included.
    pub connect: Duration,
    /// Maximum time of the TLS and WebSocket handshakes of an accepted connection.
    pub handshake: Duration,
    /// Maximum time until the first whole message of an accepted connection.
    pub first_message: Duration,
    /// Maximum time from the first byte of a message to its last.
    pub partial: Duration,
    /// Maximum time without any received byte; keep-alives count (RFC 5626 section 4.4.1 lets a client be
    /// silent for 120 s, or for 15 minutes over TCP).
    pub idle: Duration,
    /// Maximum time for which the peer takes none of the bytes that wait for it.
    pub write_stall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 50_000,
            connections_per_source: 1_000,
            files: None,
            half_open: 4_096,
            write_queue: 512 * 1024,
            connect: Duration::from_secs(5),
            handshake: Duration::from_secs(10),
            first_message: Duration::from_secs(30),
            partial: Duration::from_secs(10),
            idle: Duration::from_secs(1_200),
            write_stall: Duration::from_secs(20),
        }
    }
}

/// Returns how many of so many file descriptors no connection takes: they are for management, the store and
/// DNS.
pub const fn reserved_files(files: usize) -> usize {
    let quarter = files / 4;
    if quarter > 64 { 64 } else { quarter }
}

/// Maximum number of malformed messages that one connection may bring within [`MALFORMED_PERIOD`]. With the
/// next it is closed. A malformed message costs a response and no more, so an honest peer with a fault
/// remains connected.
pub const MAX_MALFORMED: u32 = 100;

/// The period of [`MAX_MALFORMED`].
pub const MALFORMED_PERIOD: Duration = Duration::from_secs(60);

/// Maximum time that a connection which ends may take to write what waits.
pub const CLOSE_LINGER: Duration = Duration::from_secs(2);

/// Maximum number of requests that left by one connection and are reported when it ends: the latest.
pub const MAX_AWAITED: usize = 4_096;

/// The age beyond which such a request is not reported: more than a transaction waits for its first response
/// (RFC 3261 section 17.1.1.2, timer B; 32 s unless T1 is configured).
pub const ANSWER_WAIT: Duration = Duration::from_secs(64);

/// Maximum number of workers, because a flow's identifier has 8 bits for its worker.
pub const MAX_WORKERS: usize = 255;

/// Maximum number of aliases of one connection (RFC 5923): an honest peer has one for each of its listeners.
pub const ALIASES_PER_FLOW: usize = 8;

/// Maximum number of further addresses at which the peer of one association is found: as many as an
/// association has.
pub const ADDRESSES_PER_FLOW: usize = 16;
