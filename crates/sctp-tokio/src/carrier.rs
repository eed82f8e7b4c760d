//! The transport of SCTP packets, as the driver uses it.

use super::opening::BoundSocket;
use arc_swap::ArcSwap;
use ringway_os::{ErrorQueue, Watched};
use ringway_sansio::{Addressing, Icmp};
use socket2::Socket;
use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::Interest;

/// Bytes collected before they are sent: about three trains of 64 KiB, enough that a system call costs
/// little for each packet and few enough that acknowledgements are not delayed.
const GATHER: usize = 192 << 10;

/// Packets collected before they are sent.
const GATHER_PACKETS: usize = 512;

/// Local addresses that cannot be used now, because they or their links are down.
pub(super) type DownAddresses = Arc<ArcSwap<Vec<IpAddr>>>;

/// A socket whose ICMP messages are read, and the address it sends from unless that is a wildcard.
pub(super) type ErrorSource = (ErrorWatch, Option<IpAddr>);

/// A descriptor that becomes ready when a socket has ICMP messages.
pub(super) enum ErrorWatch {
    /// A socket that is registered for packets too.
    Shared(Arc<Watched<Socket>>),
    /// The error queue of a socket whose packets are received with pauses.
    Separate(Watched<ErrorQueue>),
}

impl ErrorWatch {
    /// Waits for ICMP messages.
    pub(super) async fn wait(&self) -> io::Result<()> {
        match self {
            ErrorWatch::Shared(io) => io.ready(Interest::ERROR).await?.clear_ready(),
            ErrorWatch::Separate(io) => {
                io.readable().await?.clear_ready();
                io.get_ref().clear();
            }
        }
        Ok(())
    }

    /// Returns the socket.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        match self {
            ErrorWatch::Shared(io) => io.get_ref().as_fd(),
            ErrorWatch::Separate(io) => io.get_ref().as_fd(),
        }
    }
}

/// Returns the verification tag of an SCTP packet, 0 for one that is too short (RFC 9260 section 3.1).
pub(super) fn tag_of(packet: &[u8]) -> u32 {
    packet.get(4..8).and_then(|tag| tag.try_into().ok()).map_or(0, u32::from_be_bytes)
}

/// Packets to send, one after the other in one buffer.
#[derive(Default)]
pub(super) struct Outgoing {
    pub(super) bytes: Vec<u8>,
    pub(super) packets: Vec<(Addressing, Range<usize>)>,
    /// The number of them that the carrier has sent or dropped.
    pub(super) sent: usize,
}

impl Outgoing {
    /// Returns whether packets should be sent before more are added.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= GATHER || self.packets.len() >= GATHER_PACKETS
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sent >= self.packets.len()
    }

    /// Adds packets until there are enough or no more. `next` appends one and returns its addressing. Returns whether
    /// there are no more.
    pub(super) fn fill(
        &mut self,
        mut next: impl FnMut(&mut Vec<u8>) -> Option<Addressing>,
    ) -> bool {
        while !self.is_full() {
            let start = self.bytes.len();
            let Some(addressing) = next(&mut self.bytes) else { return true };
            self.packets.push((addressing, start..self.bytes.len()));
        }
        false
    }

    /// Returns the packets that remain to send.
    pub(super) fn remaining(&self) -> &[(Addressing, Range<usize>)] {
        &self.packets[self.sent..]
    }

    /// Marks the next `count` packets as sent or dropped.
    pub(super) fn advance(&mut self, count: usize) {
        self.sent += count;
        if self.is_empty() {
            self.bytes.clear();
            self.packets.clear();
            self.sent = 0;
        }
    }
}

/// Counters of a carrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Traffic {
    /// Packets received.
    pub received: u64,
    /// System calls that received packets.
    pub receive_calls: u64,
    /// Packets received in trains of more than one.
    pub received_in_trains: u64,
    /// Packets sent.
    pub sent: u64,
    /// System calls to send.
    pub send_calls: u64,
    /// Packets sent in trains of more than one.
    pub sent_in_trains: u64,
    /// Packets that the system refused.
    pub not_sent: u64,
    /// Times that the system had no room for more packets.
    pub no_room: u64,
    /// Packets sent in fragments written by the carrier.
    pub fragmented: u64,
    /// Pauses in which packets directly over IP were left to queue.
    pub pauses: u64,
    /// ICMP messages about packets sent.
    pub icmp: u64,
}

impl Traffic {
    /// Returns the sums of two carriers' counters.
    pub(super) fn plus(self, other: Traffic) -> Traffic {
        Traffic {
            received: self.received + other.received,
            receive_calls: self.receive_calls + other.receive_calls,
            received_in_trains: self.received_in_trains + other.received_in_trains,
            sent: self.sent + other.sent,
            send_calls: self.send_calls + other.send_calls,
            sent_in_trains: self.sent_in_trains + other.sent_in_trains,
            not_sent: self.not_sent + other.not_sent,
            no_room: self.no_room + other.no_room,
            fragmented: self.fragmented + other.fragmented,
            pauses: self.pauses + other.pauses,
            icmp: self.icmp + other.icmp,
        }
    }
}

/// Moves packets between the protocol and the system.
pub(super) trait Carrier: Send {
    /// Receives at most one batch. Returns the number of trains.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>>;

    /// Calls `each` with every packet of train number `train` of the last batch.
    fn packets<'a>(&'a self, train: usize, each: &mut dyn FnMut(Addressing, &'a [u8]));

    /// Sends the rest of `outgoing` in order, as far as the system has room. Packets that it refuses are
    /// dropped. Returns whether nothing remains.
    fn send(&mut self, outgoing: &mut Outgoing) -> bool;

    /// Returns what errors of sending revealed about paths, each with the start of the packet.
    fn refused(&mut self) -> Vec<(Addressing, Icmp, Vec<u8>)>;

    /// Returns the counters.
    fn traffic(&self) -> Traffic;

    /// Adds a socket in UDP. Returns the source of its ICMP messages. To be called within a runtime.
    fn admit(&mut self, bound: BoundSocket) -> Option<ErrorSource>;
}
