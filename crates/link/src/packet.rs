//! What a link knows of a packet, and what can become of it.

use core::fmt;
use ringway_sansio::{Ecn, Time};

/// A packet as a link sees it: a handle. Its bytes stay with the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The world's name for it.
    pub id: u32,
    /// Bytes on the line, IP header included, without the link's overhead.
    pub size: u32,
    /// A hash of addresses, protocol and ports, for queues that are fair between flows.
    pub flow: u32,
    /// Congestion notification; a queue or the link may set it to [`Ecn::Ce`].
    pub ecn: Ecn,
    /// When it came into the queue; set by the link.
    pub queued: Time,
}

impl Packet {
    /// A packet that has not met a queue yet.
    pub const fn new(id: u32, size: u32, flow: u32, ecn: Ecn) -> Self {
        Packet { id, size, flow, ecn, queued: Time::ZERO }
    }
}

/// Why a packet was dropped.
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
    /// The link went down while the packet was on its way.
    Cut,
}

impl DropReason {
    /// In words, for a comment in a capture.
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
    /// When it came out of the queue and sending began.
    pub started: Time,
    /// When its last bit was sent.
    pub sent: Time,
    /// When it is to be received.
    pub arrives: Time,
    /// The bit that is wrong, counted over `size` bytes.
    pub flip: Option<u32>,
}

/// The world on the far side of a link's decisions. Calls come in the order of decisions, with the
/// time each one holds for, which may be before the `now` of the call that led to it.
pub trait Outlet {
    /// A packet leaves and will be received.
    fn departs(&mut self, departure: Departure);

    /// A packet is gone; its handle is free.
    fn dropped(&mut self, at: Time, packet: Packet, reason: DropReason);

    /// Makes a copy of a packet and gives its handle; `None` if there is no room for one.
    fn copy(&mut self, packet: Packet) -> Option<u32>;

    /// The bytes of a packet, for loss by pattern and by rule.
    fn bytes(&self, packet: &Packet) -> &[u8];

    /// A packet is offered to the queue, which may still drop it.
    fn enqueued(&mut self, at: Time, packet: Packet) {
        let _ = (at, packet);
    }

    /// A packet comes out of the queue to be sent.
    fn dequeued(&mut self, at: Time, packet: Packet) {
        let _ = (at, packet);
    }
}
