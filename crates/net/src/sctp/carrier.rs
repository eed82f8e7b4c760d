//! What carries SCTP's packets, as the driver sees it.

use super::opening::Bound;
use crate::sys::ErrorQueue;
use arc_swap::ArcSwap;
use ringway_sansio::{Addressing, Icmp};
use socket2::Socket;
use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Bytes gathered before they are handed to the system: about three trains of 64 KiB, enough that
/// a system call costs little for each packet and few enough that acknowledgements are not kept
/// waiting.
const GATHER: usize = 192 << 10;

/// Packets gathered before they are handed to the system.
const GATHER_PACKETS: usize = 512;

/// Our addresses that cannot be used now: they, or their links, are gone.
pub(super) type Gone = Arc<ArcSwap<Vec<IpAddr>>>;

/// Where a socket's ICMP messages are read, and the address it sends from where that is one.
pub(super) type Ear = (Errors, Option<IpAddr>);

/// What is watched for ICMP messages.
pub(super) enum Errors {
    /// A socket that is watched for packets too.
    Shared(Arc<AsyncFd<Socket>>),
    /// The error queue of a socket whose packets are received with pauses.
    Alone(AsyncFd<ErrorQueue>),
}

impl Errors {
    /// Waits for some.
    pub(super) async fn wait(&self) -> io::Result<()> {
        match self {
            Errors::Shared(io) => io.ready(Interest::ERROR).await?.clear_ready(),
            Errors::Alone(io) => {
                io.readable().await?.clear_ready();
                io.get_ref().clear();
            }
        }
        Ok(())
    }

    /// The socket.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        match self {
            Errors::Shared(io) => io.get_ref().as_fd(),
            Errors::Alone(io) => io.get_ref().as_fd(),
        }
    }
}

/// Packets that wait to be sent, one after the other in one buffer.
#[derive(Default)]
pub(super) struct Outgoing {
    pub(super) bytes: Vec<u8>,
    pub(super) packets: Vec<(Addressing, Range<usize>)>,
    /// How many of them the carrier has dealt with.
    pub(super) sent: usize,
}

impl Outgoing {
    /// Whether more should not be put in before some is sent.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= GATHER || self.packets.len() >= GATHER_PACKETS
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sent >= self.packets.len()
    }

    /// The packets not dealt with yet.
    pub(super) fn left(&self) -> &[(Addressing, Range<usize>)] {
        &self.packets[self.sent..]
    }

    /// So many more packets are dealt with.
    pub(super) fn done(&mut self, count: usize) {
        self.sent += count;
        if self.is_empty() {
            self.bytes.clear();
            self.packets.clear();
            self.sent = 0;
        }
    }
}

/// What was counted of a carrier's work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Traffic {
    /// Packets taken in.
    pub received: u64,
    /// Calls to the system that brought packets.
    pub receive_calls: u64,
    /// Packets that came in trains of more than one.
    pub received_in_trains: u64,
    /// Packets sent.
    pub sent: u64,
    /// Calls to the system to send.
    pub send_calls: u64,
    /// Packets that left in trains of more than one.
    pub sent_in_trains: u64,
    /// Packets that the system would not take.
    pub not_sent: u64,
    /// Times that the system had no room for more.
    pub no_room: u64,
    /// Packets sent in fragments that were written here.
    pub fragmented: u64,
    /// Pauses in which packets right above IP were left to gather.
    pub pauses: u64,
    /// ICMP messages about what was sent.
    pub icmp: u64,
}

/// Moves packets between the protocol and the system.
pub(super) trait Carrier: Send {
    /// Takes what has come, at most one batch: the number of trains.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>>;

    /// Gives the packets of the `train`-th train of the last batch.
    fn packets(&self, train: usize, each: &mut dyn FnMut(Addressing, &[u8]));

    /// Sends what is left in `outgoing`, in order, as far as the system takes it; what it refuses
    /// for good is dropped. Gives whether all is dealt with.
    fn send(&mut self, outgoing: &mut Outgoing) -> bool;

    /// What became clear of paths because packets could not be sent, each with its beginning.
    fn refused(&mut self) -> Vec<(Addressing, Icmp, Vec<u8>)>;

    /// What was counted.
    fn traffic(&self) -> Traffic;

    /// Takes one more socket in UDP; gives where ICMP messages about it are heard. To be called
    /// within a runtime.
    fn admit(&mut self, bound: Bound) -> Option<Ear>;
}
