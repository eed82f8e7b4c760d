//! What every transport has in common.

use std::net::SocketAddr;
use std::time::Duration;

/// A connection over one protocol, with its addresses.
pub(super) struct Opened<T> {
    pub(super) transport: T,
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
}

/// What came of a reception.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Received {
    /// Bytes were appended.
    Bytes,
    /// The peer sends no more.
    End,
}

/// The state of a connection in terms of TCP (`struct tcp_info` of linux/tcp.h).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Information {
    pub(crate) rtt: Duration,
    pub(crate) rto: Duration,
    /// The maximum segment, in octets.
    pub(crate) mss: u32,
    /// The path MTU.
    pub(crate) mtu: u32,
    /// The congestion window and the threshold, in segments.
    pub(crate) cwnd: u32,
    pub(crate) ssthresh: u32,
    pub(crate) unacknowledged: u32,
    pub(crate) retransmissions: u32,
}
