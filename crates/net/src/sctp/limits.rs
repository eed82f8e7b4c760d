//! Bounds of a stack, beside those of the protocol ([`ringway_sctp::Limits`]).

use ringway_sansio::Duration;

/// Associations of one listener that wait to be accepted; a peer that opens one more is refused.
pub const ACCEPT_QUEUE: usize = 4096;

/// Events of one association that wait to be taken; of more the oldest are lost, and counted.
pub const EVENT_QUEUE: usize = 64;

/// Longest time that an association nobody holds any more may take to end in order.
pub const LINGER: Duration = Duration::from_secs(60);

/// Most addresses that one stack in UDP has a socket at.
pub const MAX_UDP_ADDRESSES: usize = 64;

/// Most ports below the ephemeral ones that one stack may hold: a filter has room for no more than
/// 4096 instructions, of which each port takes two.
pub const MAX_PORTS: usize = 1024;
