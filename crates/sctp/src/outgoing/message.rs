//! A message, the chunks cut from it, and the queue of a stream.

use crate::numbers::Mid;
use crate::wire::DataFlags;
use crate::wire::data::{DATA_HEADER, I_DATA_HEADER};
use bytes::Bytes;
use ringway_sansio::{Duration, Time};

/// The key of no message.
pub(super) const NONE: u32 = u32::MAX;

/// The kind of chunks that carry messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    Data,
    /// Messages are interleaved (RFC 8260).
    IData,
}

impl Format {
    #[inline]
    pub(super) fn is_interleaved(self) -> bool {
        self == Format::IData
    }

    /// Returns the number of bytes of a chunk before its user data.
    #[inline]
    pub(super) fn header(self) -> usize {
        match self {
            Format::Data => DATA_HEADER,
            Format::IData => I_DATA_HEADER,
        }
    }
}

/// A message that is not fully acknowledged.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) data: Bytes,
    pub(super) ppid: u32,
    pub(super) stream: u16,
    /// MID, whose lower half is the SSN.
    pub(super) number: Mid,
    pub(super) unordered: bool,
    pub(super) immediate: bool,
    /// The time when it is abandoned.
    pub(super) expires: Option<Time>,
    /// Maximum number of retransmissions of a chunk.
    pub(super) retransmits: Option<u8>,
    /// Bytes cut into chunks.
    pub(super) cut: u32,
    /// Number of its chunks in the ring, the position of the first one ever, and the number of chunks
    /// ever.
    pub(super) chunks: u32,
    pub(super) start: u64,
    pub(super) fragments: u32,
    /// Bytes in the ring, and of them those acknowledged for good. When both are equal and the message
    /// is fully cut, its bytes are released and only the chunks are left.
    pub(super) held: u32,
    pub(super) arrived: u32,
    /// Whether it was abandoned and stays until its chunks are released.
    pub(super) abandoned: bool,
    /// Its priority, if it can be evicted for a message of a higher one (RFC 7496).
    pub(super) priority: Option<u16>,
    /// The next message of the stream.
    pub(super) next: u32,
}

impl Message {
    pub(super) fn is_late(&self, now: Time) -> bool {
        self.expires.is_some_and(|at| at <= now)
    }

    /// Returns whether a chunk of it is not to be sent again.
    pub(super) fn is_over(&self, now: Time, chunk: &SentChunk) -> bool {
        self.is_late(now) || self.retransmits.is_some_and(|max| chunk.again >= max)
    }

    /// Returns whether it was evicted unsent and only its entry is left.
    pub(super) fn is_emptied(&self) -> bool {
        self.data.is_empty() && self.cut == 0
    }
}

/// The state of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// In flight.
    Outstanding,
    /// To be sent again.
    Marked,
    /// Acknowledged by a gap block.
    Acked,
    /// Abandoned (RFC 3758).
    Abandoned,
}

/// A chunk that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentChunk {
    pub(super) at: Time,
    pub(super) message: u32,
    pub(super) offset: u32,
    /// Its index in the message.
    pub(super) fragment: u32,
    pub(super) len: u16,
    /// Its size in the windows: with header and padding.
    pub(super) size: u16,
    pub(super) flags: DataFlags,
    pub(super) fate: Fate,
    pub(super) path: u8,
    pub(super) misses: u8,
    /// Number of retransmissions.
    pub(super) again: u8,
    /// Whether a fast retransmit has sent it again, which happens once (RFC 9260 section 7.2.4).
    pub(super) fast: bool,
    /// Whether it was sent over more than one path, so that the path it arrived on is unknown.
    pub(super) several: bool,
    /// Whether it is acknowledged for good, out of order.
    pub(super) for_good: bool,
    /// Whether a timer marked it as lost, so that another path is used (RFC 9260 section 6.4).
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
    /// Number of the next ordered message and, with interleaving, of the next unordered one.
    pub(super) next: Mid,
    pub(super) next_unordered: Mid,
}

/// The effort for a message (RFC 3758, RFC 7496). If the peer does not support partial reliability,
/// only unsent messages are abandoned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Reliability {
    /// Sent until it arrives.
    #[default]
    Full,
    /// Abandoned after this time, counted from when it is queued.
    Lifetime(Duration),
    /// Abandoned after this number of retransmissions of a chunk.
    Retransmits(u8),
    /// Dropped, while nothing of it was sent, when the buffer has no room for a message of a higher
    /// priority, which is a lower value.
    Priority(u16),
}

/// Options of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendOptions {
    /// The stream.
    pub stream: u16,
    /// Payload protocol identifier.
    pub ppid: u32,
    /// Deliver without regard to the order of the stream (the U bit).
    pub unordered: bool,
    /// Request an acknowledgement without delay (the I bit, RFC 7053).
    pub immediate: bool,
    /// When the message is abandoned.
    pub reliability: Reliability,
}

impl Queue {
    pub(super) fn number_anew(&mut self) {
        (self.next, self.next_unordered) = (Mid::default(), Mid::default());
    }

    /// Puts a message before all others, which it already links to.
    pub(super) fn put_head(&mut self, key: u32) {
        self.head = key;
        if self.tail == NONE {
            self.tail = key;
        }
    }

    /// Removes the first message. `next` follows it.
    pub(super) fn take_head(&mut self, next: u32) {
        self.head = next;
        if next == NONE {
            self.tail = NONE;
        }
    }
}
