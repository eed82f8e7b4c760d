//! What is wrong with a message, in words and as the status that answers it.

use core::fmt;

/// What stood where something else was expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Got {
    /// The end of the text.
    End,
    /// This octet.
    Byte(u8),
    /// This many, or this value.
    Number(u64),
    /// Nothing at all: what is mandatory is missing.
    Missing,
    /// More than one where one is allowed.
    Several,
}

impl fmt::Display for Got {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Got::End => f.write_str("the end"),
            Got::Byte(b) if b.is_ascii_graphic() => write!(f, "'{}'", b as char),
            Got::Byte(b) => write!(f, "octet 0x{b:02x}"),
            Got::Number(n) => write!(f, "{n}"),
            Got::Missing => f.write_str("nothing"),
            Got::Several => f.write_str("several"),
        }
    }
}

/// A peer's fault in a message.
///
/// It carries the status to answer a request with; a response with a fault is dropped instead
/// (RFC 3261 section 16.7, section 18.1.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Malformed {
    /// The status that answers a request with this fault: 400, 413, 414, 483, 505 or 513.
    pub status: u16,
    /// Where the fault is and what was expected there, fit for a reason phrase.
    pub reason: &'static str,
    /// What was there instead.
    pub got: Got,
    /// Octets from the start of what was parsed: of the message from
    /// [`parse`](crate::message::parse) and [`check`](crate::Message::check), of the element from the
    /// parsers of single elements.
    pub at: usize,
}

impl Malformed {
    /// A fault answered 400 Bad Request.
    pub const fn bad(reason: &'static str, got: Got, at: usize) -> Self {
        Malformed { status: 400, reason, got, at }
    }

    /// A fault answered with another status.
    pub const fn with_status(status: u16, reason: &'static str, got: Got, at: usize) -> Self {
        Malformed { status, reason, got, at }
    }

    /// What stands at `at` of `bytes` is not what `reason` expects.
    pub(crate) fn here(reason: &'static str, bytes: &[u8], at: usize) -> Self {
        let got = bytes.get(at).map_or(Got::End, |&b| Got::Byte(b));
        Malformed { status: 400, reason, got, at }
    }

    /// The same fault told from the start of a text in which the parsed one begins at `base`.
    pub(crate) fn moved(mut self, base: usize) -> Self {
        self.at += base;
        self
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, got {} at octet {}", self.reason, self.got, self.at)
    }
}

impl core::error::Error for Malformed {}
