//! What a world tells about each packet while it runs.

use ringway_link::DropReason;
use ringway_sansio::{Addressing, Time};
use std::any::Any;
use std::fmt;

/// Why a packet is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reason {
    /// A link dropped it.
    Link(DropReason),
    /// The node has no route to its destination.
    NoRoute,
    /// It has passed as many nodes as it may.
    HopLimit,
    /// Nothing at its destination takes it.
    NoEndpoint,
    /// Larger than an IP packet can be.
    TooLong,
}

impl Reason {
    /// In words, for a comment in a capture.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::Link(reason) => reason.as_str(),
            Reason::NoRoute => "no route",
            Reason::HopLimit => "hop limit reached",
            Reason::NoEndpoint => "nothing takes it",
            Reason::TooLong => "larger than an IP packet",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Offered to the queue of an interface, which may still drop it.
    Enqueue,
    /// Taken out of the queue, to be sent.
    Dequeue,
    /// On its way, to arrive at that time.
    Leave(Time),
    /// Received by an interface.
    Receive,
    /// Gone.
    Drop(Reason),
}

/// One step of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When.
    pub at: Time,
    /// What.
    pub step: Step,
    /// Where: the node.
    pub node: u32,
    /// Where: the interface; `None` for a drop between interfaces.
    pub interface: Option<u32>,
    /// The packet's number; a copy has that of the original.
    pub packet: u64,
    /// When its sender sent it.
    pub born: Time,
    /// Bytes with the IP header.
    pub size: u32,
    /// Hash of addresses, protocol and ports.
    pub flow: u32,
    /// Hops left.
    pub hops: u8,
}

/// Takes records in, as they come. Times do not go back, but for a loss after the link, which is
/// told ahead of the time it holds for.
pub trait Recorder: Any {
    /// One step of a packet with that IP header and payload.
    fn record(&mut self, record: &Record, addressing: &Addressing, payload: &[u8]);
}

/// Keeps every record.
#[derive(Debug, Default)]
pub struct Records(pub Vec<Record>);

impl Recorder for Records {
    fn record(&mut self, record: &Record, _: &Addressing, _: &[u8]) {
        self.0.push(*record);
    }
}
