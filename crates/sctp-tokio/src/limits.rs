//! Bounds of a stack, beside those of the protocol ([`ringway_sctp::Limits`]).

use ringway_sansio::Duration;

/// Maximum number of associations of one listener that wait to be accepted. One more is refused.
pub const ACCEPT_QUEUE: usize = 4096;

/// The part of [`ACCEPT_QUEUE`] that is a reserve, in which one source may hold a quarter of what is free.
pub(crate) const ACCEPT_RESERVE: usize = ACCEPT_QUEUE / 8;

/// Maximum number of unread events of one association. The oldest are dropped beyond that, and counted.
pub const EVENT_QUEUE: usize = 64;

/// Maximum number of bytes of the unread returned messages of one association. The oldest are dropped beyond
/// that, and counted.
pub const RETURNED_BYTES: usize = 1 << 20;

/// Maximum time for the shutdown of an association whose last handle was dropped.
pub const LINGER: Duration = Duration::from_secs(60);

/// Maximum number of tasks that carry a stack's packets in UDP.
pub const MAX_DRIVERS: usize = 16;

/// Maximum number of addresses at which one stack in UDP has a socket.
pub const MAX_UDP_ADDRESSES: usize = 64;

/// Maximum number of ports below the ephemeral ones that one stack may hold: a filter has at most 4096
/// instructions, of which each port takes two.
pub const MAX_PORTS: usize = 1024;
