//! The format of the framing. All integers are big-endian.
//!
//! ```text
//! hello:  magic "RWMX" | version u8 | reserved 3 octets | streams u32 | window u32
//! frame:  kind u8 | flags u8 | length u16 | stream u32 | payload of that length
//! ```
//!
//! `streams` is the number of streams that the receiver of the hello may open, `window` the credit of each. Until the
//! hello has arrived, [`MIN_STREAMS`] and [`MIN_WINDOW`] hold, so that nobody waits for it. The side that has opened the
//! byte stream opens streams of even numbers, the other those of odd ones; numbers grow and are never used again.
//!
//! | kind | name | payload | meaning |
//! |---|---|---|---|
//! | 0 | DATA | octets | part of a message; flag 1: its end; flag 2: the end of the stream, too |
//! | 1 | OPEN | - | opens a stream before there is data |
//! | 2 | CLOSE | - | the sender will send nothing more on the stream |
//! | 3 | RESET | code u32 | the stream has ended in both directions |
//! | 4 | CREDIT | u32 | the window of the stream grows by this |
//! | 5 | STREAMS | u32 | the receiver may open this many streams more |
//!
//! A DATA frame uses its length and [`FRAME_COST`] of the window, so that empty messages are bounded too. Flags that are
//! not defined are ignored, and so are frames whose kind has the highest bit set; other unknown kinds are errors.

use core::fmt;
use ringway_sansio::{Malformed, Reader};
use thiserror::Error;

/// The first octets of a hello.
pub const MAGIC: [u8; 4] = *b"RWMX";
/// The version of the format.
pub const VERSION: u8 = 1;
/// Octets of a hello.
pub const HELLO_LEN: usize = 16;
/// Octets of a frame's header.
pub const HEADER_LEN: usize = 8;
/// Maximum number of octets of a frame's payload.
pub const MAX_FRAME: usize = 16_384;
/// Octets of the window that a DATA frame uses besides its payload.
pub const FRAME_COST: u32 = 32;
/// Minimum window, which each end may use before it has received the other's hello.
pub const MIN_WINDOW: u32 = 16_384;
/// Minimum number of streams, which each end may open before it has received the other's hello.
pub const MIN_STREAMS: u32 = 1;
/// Octets of the payload of RESET, CREDIT and STREAMS.
pub(super) const NUMBER_LEN: usize = 4;

/// The number of a stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamId(pub u32);

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What the peer did wrong. The byte stream is of no use afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum FramingError {
    /// The peer does not use this framing.
    #[error("expected the hello of the framing, got octets {got:02x?}")]
    NotFramed {
        /// Its first octets.
        got: [u8; 4],
    },
    /// The peer uses another version.
    #[error("expected version {VERSION} of the framing, got {0}")]
    Version(u8),
    /// The hello grants less than the minimum.
    #[error(
        "expected at least {MIN_STREAMS} streams of {MIN_WINDOW} octets, got {streams} of {window}"
    )]
    SmallLimits {
        /// The streams of the hello.
        streams: u32,
        /// The window of the hello.
        window: u32,
    },
    /// A frame is too long.
    #[error("expected a frame of at most {MAX_FRAME} octets, got {0}")]
    FrameTooLong(u16),
    /// The kind of a frame is unknown.
    #[error("expected a known kind of frame, got {0}")]
    UnknownKind(u8),
    /// A frame's length is not that of its kind.
    #[error("expected a frame of kind {kind} to have {expected} octets, got {got}")]
    Length {
        /// The kind.
        kind: u8,
        /// The octets that it has.
        expected: u16,
        /// The octets that it had.
        got: u16,
    },
    /// A frame is for a stream that was never opened, or is opened by the wrong side.
    #[error("expected a stream that is open, got {0}")]
    NoStream(StreamId),
    /// The peer opens more streams than it may.
    #[error("stream {0} is more than the peer may open")]
    TooManyStreams(StreamId),
    /// The peer sends more than the window allows.
    #[error("stream {stream} has {credit} octets of its window left, got a frame that uses {used}")]
    WindowExceeded {
        /// The stream.
        stream: StreamId,
        /// What is left of the window.
        credit: u32,
        /// What the frame uses.
        used: u32,
    },
    /// A frame follows the end of the stream's direction.
    #[error("stream {0} had been closed by the peer")]
    AfterClose(StreamId),
    /// A stream is closed in the middle of a message.
    #[error("stream {0} was closed within a message")]
    CutOff(StreamId),
    /// A window would exceed what 32 bits count.
    #[error("the window of stream {0} would exceed 2^32 - 1")]
    CreditOverflow(StreamId),
}

/// The limits that a peer states first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Streams that the receiver of the hello may open.
    pub streams: u32,
    /// The window of each.
    pub window: u32,
}

impl Hello {
    /// Appends it to `out`.
    pub fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[VERSION, 0, 0, 0]);
        out.extend_from_slice(&self.streams.to_be_bytes());
        out.extend_from_slice(&self.window.to_be_bytes());
    }

    /// Parses it.
    ///
    /// # Errors
    /// The peer does not use the framing, uses another version, or grants too little.
    pub fn parse(bytes: &[u8; HELLO_LEN]) -> Result<Hello, FramingError> {
        let [m0, m1, m2, m3, version, _, _, _, s0, s1, s2, s3, w0, w1, w2, w3] = *bytes;
        let got = [m0, m1, m2, m3];
        if got != MAGIC {
            return Err(FramingError::NotFramed { got });
        }
        if version != VERSION {
            return Err(FramingError::Version(version));
        }
        let streams = u32::from_be_bytes([s0, s1, s2, s3]);
        let window = u32::from_be_bytes([w0, w1, w2, w3]);
        if streams < MIN_STREAMS || window < MIN_WINDOW {
            return Err(FramingError::SmallLimits { streams, window });
        }
        Ok(Hello { streams, window })
    }
}

/// The kind of a frame, with its flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Part of a message.
    Data {
        /// Whether it is the last part.
        end: bool,
        /// Whether it is the last message, too. Without `end` it means nothing.
        last: bool,
    },
    /// Opens a stream.
    Open,
    /// Ends one direction of a stream.
    Close,
    /// Ends a stream.
    Reset,
    /// Extends the window of a stream.
    Credit,
    /// Permits more streams.
    Streams,
    /// A kind that is ignored.
    Ignored(u8),
}

/// The header of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The kind.
    pub kind: Kind,
    /// Octets of payload.
    pub length: u16,
    /// The stream; 0 for STREAMS.
    pub stream: StreamId,
}

const END: u8 = 1;
const LAST: u8 = 2;
const IGNORED: u8 = 0x80;

impl Header {
    /// Appends it to `out`.
    pub fn write(self, out: &mut Vec<u8>) {
        let (kind, flags) = match self.kind {
            Kind::Data { end, last } => {
                (0, if end { END } else { 0 } | if last { LAST } else { 0 })
            }
            Kind::Open => (1, 0),
            Kind::Close => (2, 0),
            Kind::Reset => (3, 0),
            Kind::Credit => (4, 0),
            Kind::Streams => (5, 0),
            Kind::Ignored(kind) => (kind, 0),
        };
        out.extend_from_slice(&[kind, flags]);
        out.extend_from_slice(&self.length.to_be_bytes());
        out.extend_from_slice(&self.stream.0.to_be_bytes());
    }

    /// Parses it and checks its length.
    ///
    /// # Errors
    /// The kind is unknown or the length is not allowed.
    pub fn parse(bytes: &[u8; HEADER_LEN]) -> Result<Header, FramingError> {
        let [kind, flags, l0, l1, s0, s1, s2, s3] = *bytes;
        let length = u16::from_be_bytes([l0, l1]);
        let stream = StreamId(u32::from_be_bytes([s0, s1, s2, s3]));
        if usize::from(length) > MAX_FRAME {
            return Err(FramingError::FrameTooLong(length));
        }
        let (parsed, expected) = match kind {
            0 => {
                let end = flags & END != 0;
                (Kind::Data { end, last: end && flags & LAST != 0 }, length)
            }
            1 => (Kind::Open, 0),
            2 => (Kind::Close, 0),
            3 => (Kind::Reset, NUMBER_LEN as u16),
            4 => (Kind::Credit, NUMBER_LEN as u16),
            5 => (Kind::Streams, NUMBER_LEN as u16),
            kind if kind & IGNORED != 0 => (Kind::Ignored(kind), length),
            kind => return Err(FramingError::UnknownKind(kind)),
        };
        if length != expected {
            return Err(FramingError::Length { kind, expected, got: length });
        }
        Ok(Header { kind: parsed, length, stream })
    }
}

/// Returns the number in the payload of RESET, CREDIT and STREAMS.
pub(super) fn number(payload: &[u8]) -> Result<u32, Malformed> {
    Reader::new("expected a number of 4 octets", payload).u32()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_written_and_read_again() {
        for kind in [
            Kind::Data { end: false, last: false },
            Kind::Data { end: true, last: false },
            Kind::Data { end: true, last: true },
            Kind::Open,
            Kind::Close,
            Kind::Reset,
            Kind::Credit,
            Kind::Streams,
            Kind::Ignored(0x91),
        ] {
            let length = if matches!(kind, Kind::Open | Kind::Close) { 0 } else { 4 };
            let header = Header { kind, length, stream: StreamId(0x0102_0304) };
            let mut bytes = Vec::new();
            header.write(&mut bytes);
            assert_eq!(Header::parse(bytes.as_slice().try_into().unwrap()), Ok(header));
        }
    }

    #[test]
    fn what_is_wrong_with_a_header_is_named() {
        let parse = |bytes: [u8; 8]| Header::parse(&bytes).unwrap_err().to_string();
        assert_eq!(parse([9, 0, 0, 0, 0, 0, 0, 0]), "expected a known kind of frame, got 9");
        assert_eq!(
            parse([3, 0, 0, 5, 0, 0, 0, 0]),
            "expected a frame of kind 3 to have 4 octets, got 5"
        );
        assert!(parse([0, 0, 0x40, 1, 0, 0, 0, 0]).ends_with("got 16385"));
    }

    #[test]
    fn what_is_wrong_with_a_hello_is_named() {
        let mut bytes = Vec::new();
        Hello { streams: 2, window: MIN_WINDOW }.write(&mut bytes);
        let hello: [u8; HELLO_LEN] = bytes.try_into().unwrap();
        assert_eq!(Hello::parse(&hello), Ok(Hello { streams: 2, window: MIN_WINDOW }));
        let with = |index: usize, octet: u8| {
            let mut other = hello;
            other[index] = octet;
            Hello::parse(&other).unwrap_err()
        };
        assert!(matches!(with(0, b'G'), FramingError::NotFramed { .. }));
        assert_eq!(with(4, 2), FramingError::Version(2));
        assert!(matches!(with(11, 0), FramingError::SmallLimits { streams: 0, .. }));
    }
}
