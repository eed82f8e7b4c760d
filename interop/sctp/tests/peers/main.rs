//! Associations between Ringway's SCTP and others', opened and shut down from either side, with
//! messages of a byte to a megabyte both ways over a wire that loses, reorders and duplicates.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod dcsctp;
mod proto;
mod wire;

use ringway_sansio::Time;
use wire::{Meeting, Opener};

/// What is asked of the other implementation.
pub trait Peer {
    /// Opens the association.
    fn connect(&mut self, now: Time);
    /// Takes a packet in.
    fn give(&mut self, now: Time, packet: &[u8]);
    /// Packets that it wants to send.
    fn take(&mut self, now: Time) -> Vec<Vec<u8>>;
    /// When it wants to be woken.
    fn deadline(&self) -> Option<Time>;
    /// Wakes it.
    fn wake(&mut self, now: Time);
    /// Gives it a message; `false` when it has no room.
    fn send(&mut self, stream: u16, data: &[u8]) -> bool;
    /// Messages that it received.
    fn received(&mut self) -> Vec<(u16, Vec<u8>)>;
    /// Ends the association in order.
    fn shutdown(&mut self);
    /// Whether the association stands.
    fn is_up(&self) -> bool;
    /// Whether it is over.
    fn is_over(&self) -> bool;
}

const SIZES: [usize; 9] = [1, 3, 100, 1100, 1452, 5000, 65_536, 300_000, 1_000_000];

const BOTH: [Opener; 2] = [Opener::Peer, Opener::Ringway];

/// Opened from either side, closed by `closers` in turn.
fn meet(peer: impl Fn() -> Box<dyn Peer>, closers: [Opener; 2], loss: u64) {
    for (opener, closer) in [Opener::Ringway, Opener::Peer].into_iter().zip(closers) {
        let mut meeting = Meeting::new(peer(), loss, 7 + loss);
        meeting.open(opener);
        meeting.exchange(&SIZES);
        meeting.close(closer);
    }
}

#[test]
fn dcsctp_over_a_good_wire() {
    meet(dcsctp::peer, BOTH, 0);
}

#[test]
fn dcsctp_over_a_bad_wire() {
    meet(dcsctp::peer, BOTH, 3);
}

// The SHUTDOWN of sctp-proto 0.10.8 bears a TSN of its own sending in place of the last that it has
// received (RFC 9260 section 3.3.8), so that it acknowledges, as often as not, what was never sent.
// That is answered with an ABORT, here as in other implementations: only Ringway shuts down.

#[test]
fn sctp_proto_over_a_good_wire() {
    meet(proto::peer, [Opener::Ringway; 2], 0);
}

#[test]
fn sctp_proto_over_a_bad_wire() {
    meet(proto::peer, [Opener::Ringway; 2], 3);
}
