//! Records of each packet while a world runs.

use ringway_link::DropReason;
use ringway_sansio::{Addressing, Time};
use std::any::Any;
use std::fmt;

/// The reason why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reason {
    /// A link dropped it.
    Link(DropReason),
    /// The node has no route to its destination.
    NoRoute,
    /// The hop limit was reached.
    HopLimit,
    /// No endpoint at the destination receives it.
    NoEndpoint,
    /// It is longer than an IP packet can be.
    TooLong,
}

impl Reason {
    /// Returns a text for a comment in a capture.
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

/// A step of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Offered to the queue of an interface, which may still drop it.
    Enqueue,
    /// Removed from the queue, to be sent.
    Dequeue,
    /// Sent from now on.
    Leave {
        /// When its last bit is sent.
        sent: Time,
        /// When it arrives.
        arrives: Time,
    },
    /// Received by an interface.
    Receive,
    /// Dropped.
    Drop(Reason),
}

/// One step of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The time.
    pub at: Time,
    /// The step.
    pub step: Step,
    /// Index of the node.
    pub node: u32,
    /// Index of the interface; `None` for a drop between interfaces.
    pub interface: Option<u32>,
    /// The packet's number; a copy has the number of the original.
    pub packet: u64,
    /// The time when its sender sent it.
    pub born: Time,
    /// Bytes with the IP header.
    pub size: u32,
    /// Hash of addresses, protocol and ports.
    pub flow: u32,
    /// Remaining hops.
    pub hops: u8,
}

/// A receiver of records. Times do not go back, except for a loss after the link, which is reported
/// ahead of its time.
pub trait Recorder: Any {
    /// Handles one step of a packet with that IP header and payload.
    fn record(&mut self, record: &Record, addressing: &Addressing, payload: &[u8]);
}

/// A recorder that stores every record.
#[derive(Debug, Default)]
pub struct Records(pub Vec<Record>);

impl Recorder for Records {
    fn record(&mut self, record: &Record, _: &Addressing, _: &[u8]) {
        self.0.push(*record);
    }
}
