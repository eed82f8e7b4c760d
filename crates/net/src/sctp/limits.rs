//! Bounds of a stack, beside those of the protocol ([`ringway_sctp::Limits`]).

/// Most addresses that one stack in UDP has a socket at.
pub const MAX_UDP_ADDRESSES: usize = 64;

/// Most ports below the ephemeral ones that one stack may hold: a filter has room for no more than
/// 4096 instructions, of which each port takes two.
pub const MAX_PORTS: usize = 1024;
