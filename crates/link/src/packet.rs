//! Packets as handles, and the outcomes of a link's decisions.

use core::fmt;
use ringway_sansio::{Ecn, Time};

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
