//! What is seen on the wire.

use std::collections::{BTreeMap, BTreeSet, HashSet};

pub(crate) const DATA: u8 = 0;
pub(crate) const INIT: u8 = 1;
pub(crate) const COOKIE_ECHO: u8 = 10;
pub(crate) const I_DATA: u8 = 64;
pub(crate) const FORWARD_TSN: u8 = 192;
pub(crate) const I_FORWARD_TSN: u8 = 194;

/// The U bit.
const UNORDERED: u8 = 4;

/// What one end has sent.
#[derive(Default)]
pub(crate) struct Tap {
    /// Types of chunks.
    pub(crate) kinds: BTreeSet<u8>,
    /// Types of chunks in packets without a checksum.
    pub(crate) unsummed: BTreeSet<u8>,
    /// By stream, the numbers of ordered messages that were sent for the first time.
    pub(crate) numbers: BTreeMap<u16, BTreeSet<u32>>,
    seen: HashSet<u32>,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap())
}

impl Tap {
    pub(crate) fn packet(&mut self, packet: &[u8]) {
        let bare = word(packet, 8) == 0;
        let mut rest = &packet[12..];
        while rest.len() >= 4 {
            let length = usize::from(half(rest, 2));
            self.kinds.insert(rest[0]);
            if bare {
                self.unsummed.insert(rest[0]);
            }
            self.number(rest);
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }

    fn number(&mut self, chunk: &[u8]) {
        let number = match chunk[0] {
            DATA => u32::from(half(chunk, 10)),
            I_DATA => word(chunk, 12),
            _ => return,
        };
        if self.seen.insert(word(chunk, 4)) && chunk[1] & UNORDERED == 0 {
            self.numbers.entry(half(chunk, 8)).or_default().insert(number);
        }
    }
}
