//! The wire: generic header, checksum, options, Ack Vectors, Reset codes (RFC 4340 section 5).
//!
//! Parsing borrows: a [`Packet`] is a view whose header, length and checksum were checked once, and
//! nothing is copied or allocated. Its options are checked one by one as they are read. A fault is a
//! [`WireError`]; nothing panics. [`Header`] and [`DccpOption`] are the values that are written.

pub mod display;
pub mod feature;
pub mod interval;
pub mod option;
pub mod packet;
pub mod reset;
pub mod vector;

pub use feature::Feature;
pub use interval::LossInterval;
pub use option::{DccpOption, Options};
pub use packet::{Carrier, Header, Kind, Packet, Quoted};
pub use reset::{Reset, ResetCode};
pub use vector::{Arrival, Runs};

/// A fault in bytes from a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// Fewer bytes than the part must have.
    #[error("expected at least {expected} bytes of {what}, got {got}")]
    Short {
        /// The part.
        what: &'static str,
        /// Minimum length.
        expected: usize,
        /// Actual length.
        got: usize,
    },
    /// A length that does not fit its part.
    #[error("expected {what} within {limit} bytes, got a length of {got}")]
    Length {
        /// The part.
        what: &'static str,
        /// Number of bytes there are.
        limit: usize,
        /// Length in its header.
        got: usize,
    },
    /// The checksum is wrong (RFC 4340 section 9.1).
    #[error("expected a correct checksum, got {got:#06x}")]
    Checksum {
        /// The checksum in the packet.
        got: u16,
    },
    /// A value that the standard forbids.
    #[error("expected {what}, got {got}")]
    Value {
        /// The allowed values.
        what: &'static str,
        /// The value.
        got: u64,
    },
}

/// Returns the big-endian number in up to eight bytes.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Returns the big-endian number in `length` bytes from `at`; 0 where they do not exist.
fn number_at(bytes: &[u8], at: usize, length: usize) -> u64 {
    bytes.get(at..at + length).map_or(0, number)
}
