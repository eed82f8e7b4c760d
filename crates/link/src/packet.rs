//! Packets as handles, and the outcomes of a link's decisions.

use core::fmt;
use ringway_sansio::{Ecn, Time};
use std::net::IpAddr;

/// A packet as a handle. The world holds its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The world's identifier.
    pub id: u32,
    /// Length on the link in bytes, IP header included, without the link's overhead.
    pub size: u32,
    /// A hash of addresses, protocol and ports, for queues that are fair between flows.
    pub flow: u32,
    /// Congestion notification; a queue or the link may set it to [`Ecn::Ce`].
    pub ecn: Ecn,
    /// The time when it was queued; set by the link.
    pub queued: Time,
}

impl Packet {
    /// Creates a packet that was not queued yet.
    pub const fn new(id: u32, size: u32, flow: u32, ecn: Ecn) -> Self {
        Packet { id, size, flow, ecn, queued: Time::ZERO }
    }
}

/// Returns a hash of a flow, for [`Packet::flow`]: addresses, protocol, and the ports, which UDP, TCP and SCTP have in the
/// first four bytes of their headers.
pub fn flow_hash(source: &IpAddr, destination: &IpAddr, protocol: u8, ports: u32) -> u32 {
    let bits = |ip: &IpAddr| match ip {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    let both = bits(source).rotate_left(32) ^ bits(destination);
    let mut hash = (both >> 64) as u64 ^ both as u64;
    hash ^= u64::from(ports).rotate_left(17) ^ u64::from(protocol) << 56;
    hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^= hash >> 29;
    (hash.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) as u32
}

/// The reason why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DropReason {
    /// The queue had no room.
    QueueFull,
    /// The queue discipline dropped it before the queue was full.
    QueueEarly,
    /// Lost by the random model.
    Loss,
    /// Lost by the list or by a rule.
    Listed,
    /// Larger than the MTU.
    TooBig,
    /// The link is down.
    Down,
    /// The link went down while the packet was in flight.
    Cut,
}

impl DropReason {
    /// Returns a text for a comment in a capture.
    pub const fn as_str(self) -> &'static str {
        match self {
            DropReason::QueueFull => "queue full",
            DropReason::QueueEarly => "dropped early by the queue",
            DropReason::Loss => "random loss",
            DropReason::Listed => "on the loss list",
            DropReason::TooBig => "larger than the MTU",
            DropReason::Down => "link down",
            DropReason::Cut => "link went down on the way",
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A packet that leaves the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The packet, with its congestion notification as it is now.
    pub packet: Packet,
    /// The time when it left the queue and its first bit was sent.
    pub started: Time,
    /// The time when its last bit was sent.
    pub sent: Time,
    /// The time of its reception.
    pub arrives: Time,
    /// The inverted bit, if any, counted over `size` bytes.
    pub flip: Option<u32>,
}

/// The receiver of a link's decisions. Calls come in the order of decisions, with the time for which
/// each holds, which may be before the `now` of the call that caused it.
pub trait Outlet {
    /// Handles a packet that leaves and will be received.
    fn departs(&mut self, departure: Departure);

    /// Handles a dropped packet, whose handle is free.
    fn dropped(&mut self, at: Time, packet: Packet, reason: DropReason);

    /// Makes a copy of a packet and returns its handle; `None` if there is no room for one.
    fn copy(&mut self, packet: Packet) -> Option<u32>;

    /// Returns the bytes of a packet, for loss by pattern and by rule.
    fn bytes(&mut self, packet: &Packet) -> &[u8];

    /// Handles a packet offered to the queue, which may still drop it.
    fn enqueued(&mut self, at: Time, packet: Packet) {
        let _ = (at, packet);
    }

    /// Handles a packet that leaves the queue to be sent.
    fn dequeued(&mut self, at: Time, packet: Packet) {
        let _ = (at, packet);
    }
}
