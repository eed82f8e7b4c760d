//! What is asked of an implementation, Ringway's or another.

use ringway_sansio::Time;
use std::collections::BTreeSet;

/// An implementation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Ringway,
    DcSctp,
    Proto,
}

/// What an end offers besides RFC 9260.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Offer {
    /// I-DATA (RFC 8260).
    pub(crate) interleaving: bool,
    /// Checksums of zero (RFC 9653).
    pub(crate) zero_checksum: bool,
}

/// When a message is given up (RFC 3758, RFC 7496).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Limit {
    Never,
    /// After so many retransmissions.
    Retransmits(u8),
    /// After so many milliseconds.
    Lifetime(u32),
}

/// A message to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Post {
    pub(crate) stream: u16,
    pub(crate) unordered: bool,
    pub(crate) limit: Limit,
    pub(crate) data: Vec<u8>,
}

/// How an association ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    Orderly,
    /// At once; what is told of it.
    Aborted(String),
    /// The implementation tells no difference.
    Somehow,
}

/// One end of an association.
pub(crate) trait End {
    /// Opens the association, or waits for the other end to do so.
    fn open(&mut self, now: Time, opens: bool);
    /// Takes a packet in.
    fn give(&mut self, now: Time, packet: &[u8]);
    /// Packets that it wants to send.
    fn take(&mut self, now: Time) -> Vec<Vec<u8>>;
    /// When it wants to be woken.
    fn deadline(&self) -> Option<Time>;
    /// Wakes it.
    fn wake(&mut self, now: Time);
    /// Gives it a message; `false` when it has no room, or the stream is being reset.
    fn send(&mut self, now: Time, post: &Post) -> bool;
    /// Messages that it received, by stream.
    fn received(&mut self) -> Vec<(u16, Vec<u8>)>;
    /// Resets streams that it sends on (RFC 6525).
    fn reset(&mut self, streams: &[u16]);
    /// Streams that the other end has reset; told once.
    fn resets(&mut self) -> BTreeSet<u16>;
    /// Ends the association in order.
    fn shutdown(&mut self, now: Time);
    /// Ends it at once.
    fn abort(&mut self, now: Time);
    /// Whether the association stands.
    fn is_up(&self) -> bool;
    /// How it ended, once it has.
    fn ended(&self) -> Option<Ended>;
}

/// The end of a side: the first opens the association.
pub(crate) fn make(kind: Kind, side: usize, seed: u64, offer: Offer) -> Box<dyn End> {
    match kind {
        Kind::Ringway => super::ours::end(side, seed, offer),
        Kind::DcSctp => super::dcsctp::end(offer),
        Kind::Proto => super::proto::end(offer),
    }
}
