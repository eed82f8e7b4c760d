//! A message, the chunks cut from it, and the queue of a stream.

use super::NONE;
use crate::numbers::Mid;
use crate::wire::DataFlags;
use bytes::Bytes;
use ringway_sansio::{Duration, Time};

/// A message that is not wholly acknowledged.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) data: Bytes,
    pub(super) ppid: u32,
    pub(super) stream: u16,
    /// MID, whose lower half is the SSN.
    pub(super) number: Mid,
    pub(super) unordered: bool,
    pub(super) immediate: bool,
    /// When it is given up.
    pub(super) expires: Option<Time>,
    /// How often a chunk of it may be sent again.
    pub(super) retransmits: Option<u8>,
    /// Bytes cut into chunks.
    pub(super) cut: u32,
    /// Chunks in the ring, the place of the first there was, and how many there were.
    pub(super) chunks: u32,
    pub(super) start: u64,
    pub(super) fragments: u32,
    /// Bytes in the ring, and of them those that arrived for good; once that is all there is, the
    /// bytes are gone and only the chunks are left.
    pub(super) held: u32,
    pub(super) arrived: u32,
    /// It was given up, and stays for the sake of its chunks.
    pub(super) abandoned: bool,
    /// It gives way to messages of lower values (RFC 7496).
    pub(super) priority: Option<u16>,
    /// The next message of the stream.
    pub(super) next: u32,
}

impl Message {
    pub(super) fn is_late(&self, now: Time) -> bool {
        self.expires.is_some_and(|at| at <= now)
    }

    /// It is not worth sending a chunk of it again.
    pub(super) fn is_over(&self, now: Time, chunk: &SentChunk) -> bool {
        self.is_late(now) || self.retransmits.is_some_and(|max| chunk.again >= max)
    }

    /// It has given way, unsent, and only its place is left.
    pub(super) fn is_emptied(&self) -> bool {
        self.data.is_empty() && self.cut == 0
    }
}

/// What became of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// In flight.
    Outstanding,
    /// To be sent again.
    Marked,
    /// Acknowledged by a gap block.
    Acked,
    /// Given up (RFC 3758).
    Abandoned,
}

/// A chunk that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentChunk {
    pub(super) at: Time,
    pub(super) message: u32,
    pub(super) offset: u32,
    /// Its place in the message.
    pub(super) fragment: u32,
    pub(super) len: u16,
    /// What it counts in windows: with header and padding.
    pub(super) size: u16,
    pub(super) flags: DataFlags,
    pub(super) fate: Fate,
    pub(super) path: u8,
    pub(super) misses: u8,
    /// How often it was sent again.
    pub(super) again: u8,
    /// Was sent again by a fast retransmit, and is not a second time (RFC 9260 section 7.2.4).
    pub(super) fast: bool,
    /// It went over more than one path, so that it is not known over which it arrived.
    pub(super) several: bool,
    /// It arrived for good, out of order.
    pub(super) for_good: bool,
    /// Was given up by a timer, so another path is to be tried (RFC 9260 section 6.4).
    pub(super) timed_out: bool,
}

impl SentChunk {
    pub(super) fn size(&self) -> u32 {
        u32::from(self.size)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    pub(super) head: u32,
    pub(super) tail: u32,
    /// Numbers of the next ordered message, and where messages are interleaved of the next
    /// unordered one.
    pub(super) next: Mid,
    pub(super) next_unordered: Mid,
}

/// How long a message is worth sending (RFC 3758, RFC 7496). Where the peer does not take partial
/// reliability, only what was never sent is given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Reliability {
    /// Until it arrives.
    #[default]
    Full,
    /// For so long from when it is given.
    Lifetime(Duration),
    /// Until a chunk of it was sent again so many times.
    Retransmits(u8),
    /// Until there is no room for a message of a higher priority, which is a lower value, and
    /// nothing of it was sent.
    Priority(u16),
}

/// How a message is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendOptions {
    /// The stream.
    pub stream: u16,
    /// Payload protocol identifier, as it goes on the wire.
    pub ppid: u32,
    /// Deliver without regard to the order of the stream (the U bit).
    pub unordered: bool,
    /// Ask for an acknowledgement without delay (the I bit, RFC 7053).
    pub immediate: bool,
    /// When it is given up.
    pub reliability: Reliability,
}

impl Queue {
    pub(super) fn number_anew(&mut self) {
        (self.next, self.next_unordered) = (Mid::default(), Mid::default());
    }

    /// A message comes before all others, which follow it already.
    pub(super) fn put_head(&mut self, key: u32) {
        self.head = key;
        if self.tail == NONE {
            self.tail = key;
        }
    }

    /// The first message leaves; `next` comes after it.
    pub(super) fn take_head(&mut self, next: u32) {
        self.head = next;
        if next == NONE {
            self.tail = NONE;
        }
    }
}
