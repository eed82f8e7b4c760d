//! The wire: common header and checksum, chunks, parameters and error causes (RFC 9260 section 3).
//!
//! Parsing borrows: a [`Packet`] iterates over its chunks, a [`Chunk`] over its parameters, and nothing
//! is copied or allocated. Each part is checked when it is parsed, and a fault is a [`WireError`];
//! nothing panics. A part with a fixed shape is both view and value. INIT, which has many parameters,
//! has a separate value ([`InitParameters`]).
//!
//! Read [`packet`] first, then [`chunk`].

pub mod asconf;
pub mod auth;
pub mod cause;
pub mod chunk;
pub mod data;
mod display;
pub mod init;
pub mod packet;
pub mod parameter;
pub mod reconfig;
pub mod sack;

pub use auth::AuthParameters;
pub use cause::Cause;
pub use chunk::Chunk;
pub use data::{Data, DataFlags};
pub use display::RelativePacket;
pub use init::{Init, InitParameters, MIN_A_RWND};
pub use packet::{Packet, Writer};
pub use parameter::{Parameter, Parameters};
pub use sack::{Gap, NrSack, Sack};

/// Length in bytes of the common header (RFC 9260 section 3.1).
pub const COMMON_HEADER: usize = 12;
/// Length in bytes of the header of a chunk, a parameter or an error cause.
pub const TLV_HEADER: usize = 4;

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
    #[error("expected {what} of {expected} bytes, got {got}")]
    Length {
        /// The part.
        what: &'static str,
        /// Required length.
        expected: usize,
        /// Length in its header.
        got: usize,
    },
    /// The checksum is wrong (RFC 9260 section 6.8).
    #[error("expected CRC32c {expected:#010x}, got {got:#010x}")]
    Checksum {
        /// The computed checksum.
        expected: u32,
        /// The checksum in the packet.
        got: u32,
    },
    /// More items than are accepted.
    #[error("expected at most {limit} {what}, got more")]
    TooMany {
        /// The items.
        what: &'static str,
        /// Maximum number of items.
        limit: usize,
    },
    /// A mandatory parameter is missing.
    #[error("expected parameter {parameter}, got none")]
    Missing {
        /// The parameter type.
        parameter: u16,
    },
    /// A value that the standard forbids.
    #[error("expected {what}, got {got}")]
    Value {
        /// The allowed values.
        what: &'static str,
        /// The value.
        got: u32,
    },
}

/// The handling that the two highest bits of an unknown chunk or parameter type require (RFC 9260
/// section 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unknown {
    /// Whether processing continues with the next one.
    pub skip: bool,
    /// Whether it is reported to the sender.
    pub report: bool,
}

impl Unknown {
    /// Parses the two highest bits.
    const fn from_bits(bits: u8) -> Unknown {
        Unknown { skip: bits & 0b10 != 0, report: bits & 0b01 != 0 }
    }
}

/// Returns `length` rounded up to a multiple of four (RFC 9260 section 3.2).
pub const fn padded(length: usize) -> usize {
    (length + 3) & !3
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    match bytes.get(at..at + 2) {
        Some(b) => u16::from_be_bytes([b[0], b[1]]),
        None => 0,
    }
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    match bytes.get(at..at + 4) {
        Some(b) => u32::from_be_bytes([b[0], b[1], b[2], b[3]]),
        None => 0,
    }
}

/// Returns `value` if it has at least `expected` bytes.
fn at_least<'a>(
    what: &'static str,
    expected: usize,
    value: &'a [u8],
) -> Result<&'a [u8], WireError> {
    if value.len() < expected {
        return Err(WireError::Short { what, expected, got: value.len() });
    }
    Ok(value)
}

/// A type, length and value with 16 bits of type, such as a parameter or a cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Tlv<'a> {
    kind: u16,
    /// Without header and padding.
    value: &'a [u8],
    /// With header, without padding.
    whole: &'a [u8],
}

/// An iterator over parameters or causes. It ends after an error.
#[derive(Clone, Copy, Debug)]
struct Tlvs<'a> {
    rest: &'a [u8],
}

impl<'a> Tlvs<'a> {
    fn next(&mut self, what: &'static str) -> Option<Result<Tlv<'a>, WireError>> {
        if self.rest.is_empty() {
            return None;
        }
        let bytes = core::mem::take(&mut self.rest);
        if bytes.len() < TLV_HEADER {
            return Some(Err(WireError::Short { what, expected: TLV_HEADER, got: bytes.len() }));
        }
        let length = usize::from(u16_at(bytes, 2));
        if length < TLV_HEADER || length > bytes.len() {
            return Some(Err(WireError::Length { what, expected: bytes.len(), got: length }));
        }
        // The last one's padding may be left out (RFC 9260 section 3.2).
        self.rest = bytes.get(padded(length)..).unwrap_or(&[]);
        let whole = &bytes[..length];
        Some(Ok(Tlv { kind: u16_at(bytes, 0), value: &whole[TLV_HEADER..], whole }))
    }
}

/// Appends a type, length, value and its padding. A value that exceeds the length field is cut.
fn put_tlv(out: &mut Vec<u8>, kind: u16, parts: &[&[u8]]) {
    let start = out.len();
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&[0; 2]);
    for part in parts {
        out.extend_from_slice(part);
    }
    let max = usize::from(u16::MAX);
    out.truncate(start + max.min(out.len() - start));
    let length = (out.len() - start) as u16;
    out[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
    pad(out, start);
}

/// Returns a list of parameters or causes without the padding of the last, which a chunk's length does
/// not count (RFC 9260 section 3.2). A malformed list is returned unchanged.
fn without_last_padding(list: &[u8]) -> &[u8] {
    let mut at = 0;
    while at < list.len() {
        let length = usize::from(u16_at(list, at + 2));
        let next = at + padded(length);
        if length < TLV_HEADER || next > list.len() {
            break;
        }
        if next == list.len() {
            return &list[..at + length];
        }
        at = next;
    }
    list
}

/// Pads the bytes from `start` to a multiple of four.
fn pad(out: &mut Vec<u8>, start: usize) {
    let length = out.len() - start;
    out.resize(start + padded(length), 0);
}
