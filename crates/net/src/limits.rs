//! What a hostile or broken peer may cost: the bounds on connections.

use std::time::Duration;

/// Bounds on connections. All have a default that suits a server for many thousand phones; each has
/// a counter in [`Counters`](crate::Counters) that says when it was met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Connections open at once, in either direction, all workers together. Fewer where the process may
    /// not open so many files. One eighth is kept for those we open.
    pub connections: usize,
    /// Connections accepted from one source at once: an IPv4 address or an IPv6 /64 prefix. At most a
    /// quarter of all there may be, and a 64th once half of all are open.
    pub connections_per_source: usize,
    /// File descriptors the process may have, as far as connections are concerned; `None` for what the
    /// system permits. [`reserved_files`] of them are left for everything else.
    pub files: Option<usize>,
    /// Accepted connections of one worker that have not yet brought a whole message; the oldest makes
    /// room for the next.
    pub half_open: usize,
    /// Bytes that may wait to be written to one connection. A peer that lets more pile up is not
    /// reading: it is cut off. Requests that would begin something are not sent from half of it on.
    pub write_queue: usize,
    /// Longest wait for a connection we open, its TLS handshake included.
    pub connect: Duration,
    /// Longest TLS and WebSocket handshake of a connection we accept.
    pub handshake: Duration,
    /// Longest wait for the first whole message of a connection we accept.
    pub first_message: Duration,
    /// Longest time a message may take from its first byte to its last.
    pub partial: Duration,
    /// Longest silence; keep-alives count as sound (RFC 5626 section 4.4.1 lets a client be silent
    /// for 120 s, behind 15 minutes of persistence for TCP).
    pub idle: Duration,
    /// Longest time waiting bytes may go without the peer taking any.
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

/// How many of so many file descriptors no connection takes: for management, the store, and questions to
/// the DNS.
pub const fn reserved_files(files: usize) -> usize {
    let quarter = files / 4;
    if quarter > 64 { 64 } else { quarter }
}

/// Malformed messages that one connection may bring within [`MALFORMED_PERIOD`]; with the next it is
/// closed. What is malformed costs an answer and no more, so an honest peer with a fault is left alone.
pub const MAX_MALFORMED: u32 = 100;

/// See [`MAX_MALFORMED`].
pub const MALFORMED_PERIOD: Duration = Duration::from_secs(60);

/// Longest time an ended connection may take to be rid of what it still has to write.
pub const CLOSE_LINGER: Duration = Duration::from_secs(2);

/// Requests that left by one connection and whose sender is told when it ends: the last so many.
pub const MAX_AWAITED: usize = 4_096;

/// How long ago such a request may have left: longer than a transaction waits for its first answer (RFC
/// 3261 section 17.1.1.2, timer B; 32 s unless T1 is set).
pub const ANSWER_WAIT: Duration = Duration::from_secs(64);

/// Most workers, because a flow's identity names its worker in 8 bits.
pub const MAX_WORKERS: usize = 255;

/// Items and handed-over batches that may wait for one worker.
pub const MAILBOX: usize = 8_192;

/// Receive buffer asked for each UDP socket, in bytes.
pub const UDP_RECEIVE_BUFFER: usize = 8 << 20;
