//! DATA (RFC 9260 section 3.3.1) and I-DATA (RFC 8260 section 2.1).

use super::chunk::kind;
use super::{TLV_HEADER, WireError, at_least, pad, u16_at, u32_at};
use crate::numbers::{Mid, Ssn, Tsn};

/// Length in bytes of a DATA chunk before its user data.
pub const DATA_HEADER: usize = 16;
/// Length in bytes of an I-DATA chunk before its user data.
pub const I_DATA_HEADER: usize = 20;

/// The flags of a DATA chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DataFlags(pub u8);

impl DataFlags {
    /// E: the last fragment of a message.
    pub const END: DataFlags = DataFlags(1);
    /// B: the first fragment of a message.
    pub const BEGIN: DataFlags = DataFlags(2);
    /// U: the message is unordered.
    pub const UNORDERED: DataFlags = DataFlags(4);
    /// I: acknowledge at once (RFC 7053).
    pub const IMMEDIATE: DataFlags = DataFlags(8);

    /// Returns whether all of `flags` are set.
    pub const fn has(self, flags: DataFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Returns the flags with `flags` set.
    pub const fn with(self, flags: DataFlags) -> DataFlags {
        DataFlags(self.0 | flags.0)
    }
}

/// A DATA chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Data<'a> {
    /// B, E, U and I.
    pub flags: DataFlags,
    /// Its TSN.
    pub tsn: Tsn,
    /// The stream it belongs to.
    pub stream: u16,
    /// The stream sequence number; without meaning when U is set.
    pub ssn: Ssn,
    /// Payload protocol identifier.
    pub ppid: u32,
    /// The user data. Empty data is a fault of the peer (RFC 9260 section 6.2), which the receiver
    /// detects.
    pub user: &'a [u8],
}

impl<'a> Data<'a> {
    pub(super) fn parse(flags: u8, value: &'a [u8]) -> Result<Self, WireError> {
        let value = at_least("a DATA chunk", DATA_HEADER - TLV_HEADER, value)?;
        Ok(Data {
            flags: DataFlags(flags & 0x0f),
            tsn: Tsn::new(u32_at(value, 0)),
            stream: u16_at(value, 4),
            ssn: Ssn::new(u16_at(value, 6)),
            ppid: u32_at(value, 8),
            user: &value[12..],
        })
    }

    /// Appends the chunk. `user` must fit a chunk's length.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let mut head = [0; DATA_HEADER];
        head[0] = kind::DATA;
        head[1] = self.flags.0;
        head[2..4].copy_from_slice(&((DATA_HEADER + self.user.len()) as u16).to_be_bytes());
        head[4..8].copy_from_slice(&self.tsn.raw().to_be_bytes());
        head[8..10].copy_from_slice(&self.stream.to_be_bytes());
        head[10..12].copy_from_slice(&self.ssn.raw().to_be_bytes());
        head[12..].copy_from_slice(&self.ppid.to_be_bytes());
        out.extend_from_slice(&head);
        out.extend_from_slice(self.user);
        pad(out, start);
    }
}

/// An I-DATA chunk (RFC 8260 section 2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IData<'a> {
    /// B, E, U and I.
    pub flags: DataFlags,
    /// Its TSN.
    pub tsn: Tsn,
    /// The stream it belongs to.
    pub stream: u16,
    /// The message identifier.
    pub mid: Mid,
    /// The payload protocol identifier when B is set, else the fragment sequence number.
    pub ppid_or_fsn: u32,
    /// The user data.
    pub user: &'a [u8],
}

impl<'a> IData<'a> {
    pub(super) fn parse(flags: u8, value: &'a [u8]) -> Result<Self, WireError> {
        let value = at_least("an I-DATA chunk", I_DATA_HEADER - TLV_HEADER, value)?;
        Ok(IData {
            flags: DataFlags(flags & 0x0f),
            tsn: Tsn::new(u32_at(value, 0)),
            stream: u16_at(value, 4),
            mid: Mid::new(u32_at(value, 8)),
            ppid_or_fsn: u32_at(value, 12),
            user: &value[16..],
        })
    }

    /// Appends the chunk. `user` must fit a chunk's length.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let mut head = [0; I_DATA_HEADER];
        head[0] = kind::I_DATA;
        head[1] = self.flags.0;
        head[2..4].copy_from_slice(&((I_DATA_HEADER + self.user.len()) as u16).to_be_bytes());
        head[4..8].copy_from_slice(&self.tsn.raw().to_be_bytes());
        head[8..10].copy_from_slice(&self.stream.to_be_bytes());
        head[12..16].copy_from_slice(&self.mid.raw().to_be_bytes());
        head[16..].copy_from_slice(&self.ppid_or_fsn.to_be_bytes());
        out.extend_from_slice(&head);
        out.extend_from_slice(self.user);
        pad(out, start);
    }
}
