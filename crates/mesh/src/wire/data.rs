//! DATA: a packet between hosts, on its way.
//!
//! ```text
//!  0 kind  1 flags: 1 reverse, and the high bits of 6: nibbles, 18: position, 60: hop limit
//!  2 hop limit  3 nibbles  4 receiver index of the link (4)  8 link sequence (4)
//! 12 code (8)  20 position (1)  21 labels
//!    session index (4)  nonce (8)  sealed contents, tag (16)
//! ```
//!
//! The code is the link's. It covers the header without itself, the labels, and the numbers of the session: nobody but a
//! neighbour makes a router follow labels. Routers on the way change the part up to the end of the labels; what
//! follows the labels is between the two routers of the session, and they cannot read it.

use ringway_sansio::{Got, Malformed};

use super::{Cursor, Kind, Labels, MAC, SEAL};
use crate::config::{HOP_LIMIT, MAX_DATA_NIBBLES, MAX_HOPS, MAX_ORDINARY_NIBBLES};
use crate::crypto::CodeKey;

/// Length in octets before the labels.
const HEADER: usize = 21;
/// Length in octets of the numbers of a session.
const SESSION: usize = 12;
/// First octet of the code.
const CODE: usize = 12;
/// First octet behind the code.
const POSITION: usize = CODE + MAC;

/// Flag of labels that are read from their end.
const REVERSE: u8 = 1;
/// First bits, in the flags, of the two high bits of a number.
const NIBBLES_BITS: u8 = 1;
const POSITION_BITS: u8 = 3;
const HOP_LIMIT_BITS: u8 = 5;

const EXPECTED: &str = "expected a DATA packet";

/// A DATA packet in its buffer.
#[derive(Debug)]
pub struct DataView<'a> {
    bytes: &'a mut [u8],
    /// First octet behind the labels.
    session: usize,
}

impl<'a> DataView<'a> {
    /// Octets of a packet around its contents, for a route of `nibbles`.
    pub const fn overhead(nibbles: u16) -> usize {
        HEADER + (nibbles as usize).div_ceil(2) + SESSION + SEAL
    }

    /// Checks the lengths of a packet.
    pub fn parse(bytes: &'a mut [u8]) -> Result<DataView<'a>, Malformed> {
        let refuse = |expected| Err(Malformed::bad(expected, Got::End, bytes.len()));
        if bytes.len() < DataView::overhead(0) || Kind::of(bytes) != Ok(Kind::Data) {
            return refuse(EXPECTED);
        }
        let nibbles = wide(bytes, 3, NIBBLES_BITS);
        if usize::from(nibbles) > MAX_DATA_NIBBLES || wide(bytes, POSITION, POSITION_BITS) > nibbles
        {
            return refuse("expected a position within at most 1022 nibbles of labels");
        }
        if bytes.len() < DataView::overhead(nibbles) {
            return refuse("expected the labels and the numbers of a session");
        }
        let session = HEADER + usize::from(nibbles).div_ceil(2);
        Ok(DataView { bytes, session })
    }

    /// Appends the header of a packet with a route of at most [`MAX_DATA_NIBBLES`], for the session `index` of its
    /// receiver, in which it has the number `nonce`. The contents follow, and their tag. A hop limit of [`HOP_LIMIT`] stands
    /// for as many hops as a packet of this length may take.
    pub fn begin(labels: &Labels, hop_limit: u8, (index, nonce): (u32, u64), out: &mut Vec<u8>) {
        let start = out.len();
        out.extend([Kind::Data.octet(), 0, hop_limit, labels.nibbles() as u8]);
        out.extend([0; POSITION + 1 - 4]);
        if usize::from(labels.nibbles()) > MAX_ORDINARY_NIBBLES {
            set_wide(&mut out[start..], 3, NIBBLES_BITS, labels.nibbles());
            let hop_limit = if hop_limit == HOP_LIMIT { MAX_HOPS } else { hop_limit.into() };
            set_wide(&mut out[start..], 2, HOP_LIMIT_BITS, hop_limit);
        }
        out.extend_from_slice(labels.as_bytes());
        out.extend(index.to_be_bytes());
        out.extend(nonce.to_be_bytes());
    }

    /// Returns the whole packet.
    pub fn bytes(&self) -> &[u8] {
        self.bytes
    }

    /// Returns the receiver's number for the link.
    pub fn receiver(&self) -> u32 {
        self.number(4)
    }

    /// Returns the number of the packet on the link.
    pub fn sequence(&self) -> u32 {
        self.number(8)
    }

    /// Returns the code in the packet.
    pub fn given_code(&self) -> [u8; MAC] {
        core::array::from_fn(|at| self.bytes[CODE + at])
    }

    /// Returns the code that `key` makes.
    pub fn code(&self, key: &CodeKey) -> [u8; MAC] {
        let (head, rest) = (&self.bytes[..CODE], &self.bytes[POSITION..self.session + SESSION]);
        key.code_parts(&[head, rest])
    }

    /// Writes the numbers of a link.
    pub fn set_link(&mut self, receiver: u32, sequence: u32) {
        self.bytes[4..8].copy_from_slice(&receiver.to_be_bytes());
        self.bytes[8..CODE].copy_from_slice(&sequence.to_be_bytes());
    }

    /// Writes the code.
    pub fn set_code(&mut self, code: [u8; MAC]) {
        self.bytes[CODE..POSITION].copy_from_slice(&code);
    }

    /// Returns the labels at the position, and the hop limit.
    pub fn cursor(&mut self) -> Result<(Cursor<'_>, u16), Malformed> {
        let (nibbles, at, reverse) = (self.nibbles(), self.position(), self.reverse());
        let hop_limit = wide(self.bytes, 2, HOP_LIMIT_BITS);
        let labels = &mut self.bytes[HEADER..self.session];
        Ok((Cursor::new(labels, nibbles, at, reverse)?, hop_limit))
    }

    /// Returns the number of links over which the packet has come, if it began with the hop limit of its length.
    pub fn hops(&self) -> u16 {
        let is_long = usize::from(self.nibbles()) > MAX_ORDINARY_NIBBLES;
        let begun = if is_long { MAX_HOPS } else { HOP_LIMIT.into() };
        begun.saturating_sub(wide(self.bytes, 2, HOP_LIMIT_BITS)) + 1
    }

    /// Writes the position and the hop limit.
    pub fn set_position(&mut self, at: u16, hop_limit: u16) {
        set_wide(self.bytes, POSITION, POSITION_BITS, at);
        set_wide(self.bytes, 2, HOP_LIMIT_BITS, hop_limit);
    }

    /// Returns a copy of the packet with other labels, or `None` if they are too many.
    pub fn relabelled(&self, labels: &Labels, at: u16, hop_limit: u16) -> Option<Vec<u8>> {
        if usize::from(labels.nibbles()) > MAX_DATA_NIBBLES {
            return None;
        }
        let mut packet = self.bytes[..HEADER].to_vec();
        set_wide(&mut packet, 3, NIBBLES_BITS, labels.nibbles());
        set_wide(&mut packet, POSITION, POSITION_BITS, at);
        set_wide(&mut packet, 2, HOP_LIMIT_BITS, hop_limit);
        packet.extend_from_slice(labels.as_bytes());
        packet.extend_from_slice(&self.bytes[self.session..]);
        Some(packet)
    }

    /// Returns whether the labels are read from their end.
    pub fn reverse(&self) -> bool {
        self.bytes[1] & REVERSE != 0
    }

    /// Returns the position in nibbles.
    pub fn position(&self) -> u16 {
        wide(self.bytes, POSITION, POSITION_BITS)
    }

    fn nibbles(&self) -> u16 {
        wide(self.bytes, 3, NIBBLES_BITS)
    }

    /// Returns a copy of the labels.
    pub fn labels(&self) -> Result<Labels, Malformed> {
        Labels::parse(&self.bytes[HEADER..self.session], self.nibbles().into())
    }

    /// Returns the receiver's number for the session.
    pub fn session(&self) -> u32 {
        self.number(self.session)
    }

    /// Returns the number of the packet in the session.
    pub fn nonce(&self) -> u64 {
        let [high, low] = [4, 8].map(|at| u64::from(self.number(self.session + at)));
        (high << 32) | low
    }

    /// Returns what an error quotes: the session, and the low half of the packet's number.
    pub fn quote(&self) -> u64 {
        DataView::quoted(self.session(), self.nonce())
    }

    /// Returns what an error about a packet with these numbers quotes.
    pub(crate) fn quoted(session: u32, nonce: u64) -> u64 {
        (u64::from(session) << 32) | (nonce & 0xffff_ffff)
    }

    /// Returns the numbers of the session, which the seal covers, the sealed octets, and where those begin.
    pub fn sealed(&mut self) -> ([u8; SESSION], &mut [u8], usize) {
        let start = self.session + SESSION;
        let header = core::array::from_fn(|at| self.bytes[self.session + at]);
        (header, &mut self.bytes[start..], start)
    }

    fn number(&self, at: usize) -> u32 {
        u32::from_be_bytes(core::array::from_fn(|offset| self.bytes[at + offset]))
    }
}

/// Returns the number of which the low octet is at `at`, and the two high bits are in the flags.
fn wide(bytes: &[u8], at: usize, bits: u8) -> u16 {
    u16::from(bytes[at]) | u16::from(bytes[1] >> bits & 3) << 8
}

fn set_wide(bytes: &mut [u8], at: usize, bits: u8, number: u16) {
    bytes[at] = number as u8;
    bytes[1] = bytes[1] & !(3 << bits) | ((number >> 8) as u8 & 3) << bits;
}

#[cfg(test)]
mod tests {
    use super::super::Slot;
    use super::*;
    use proptest::prelude::*;

    fn packet(hops: u16) -> Vec<u8> {
        let mut labels = Labels::default();
        (0..hops).for_each(|hop| labels.push(Slot(hop % 15), Slot(0)).unwrap());
        let mut out = Vec::new();
        DataView::begin(&labels, HOP_LIMIT, (9, 0x1_0000_0002), &mut out);
        out.extend([0; SEAL]);
        out
    }

    #[test]
    fn a_packet_over_nine_hops_has_54_octets_beside_its_contents() {
        let mut bytes = packet(9);
        assert_eq!((bytes.len(), DataView::overhead(9)), (54, 54));
        let mut data = DataView::parse(&mut bytes).unwrap();
        data.set_link(5, 6);
        assert_eq!((data.receiver(), data.session(), data.nonce()), (5, 9, 0x1_0000_0002));
        assert_eq!(data.quote(), 0x9_0000_0002);
        assert_eq!((data.labels().unwrap().count(), data.sealed().2), (9, 38));
        let (cursor, hop_limit) = data.cursor().unwrap();
        assert_eq!((cursor.peek().unwrap().1, hop_limit), (Slot(0), HOP_LIMIT.into()));
    }

    /// The high bits of its numbers are in the flags, in which the other packets have nothing but the direction.
    #[test]
    fn a_long_packet_has_the_same_header() {
        assert_eq!(packet(MAX_ORDINARY_NIBBLES as u16)[1], 0);
        let hops = MAX_DATA_NIBBLES as u16;
        let mut bytes = packet(hops);
        let mut data = DataView::parse(&mut bytes).unwrap();
        assert_eq!(data.labels().unwrap().count(), hops);
        for taken in 0..hops {
            assert_eq!(data.hops(), taken + 1);
            let (mut cursor, hop_limit) = data.cursor().unwrap();
            assert_eq!((cursor.at(), hop_limit), (taken, MAX_HOPS - taken));
            assert_eq!(cursor.swap(Slot(7)), Ok(Slot(taken % 15)));
            let at = cursor.at();
            data.set_position(at, hop_limit - 1);
        }
        assert!(data.cursor().unwrap().0.is_at_end() && !data.reverse());
        assert_eq!((data.session(), data.nonce()), (9, 0x1_0000_0002));
        let labels = data.labels().unwrap();
        let mut same = data.relabelled(&labels, data.position(), 1).unwrap();
        assert_eq!(DataView::parse(&mut same).unwrap().position(), hops);
    }

    #[test]
    fn the_code_covers_everything_up_to_the_contents() {
        let (mut bytes, key) = (packet(9), CodeKey([3; 16]));
        let code = DataView::parse(&mut bytes).unwrap().code(&key);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let Ok(data) = DataView::parse(&mut changed) else { continue };
            let is_covered = !(CODE..POSITION).contains(&at) && at < bytes.len() - SEAL;
            assert_eq!(data.code(&key) != code, is_covered, "octet {at}");
        }
    }

    proptest! {
        #[test]
        fn any_octets_are_read_without_a_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), nibbles in 0u8..60, flags: u8) {
            if bytes.len() > POSITION {
                (bytes[0], bytes[1], bytes[3]) = (0x17, if flags < 128 { flags & 1 } else { flags }, nibbles);
                bytes[POSITION] %= nibbles.max(1);
            }
            if let Ok(mut data) = DataView::parse(&mut bytes) {
                let _ = (data.labels(), data.quote(), data.code(&CodeKey([0; 16])));
                let _ = (data.sealed().1.len(), data.cursor().is_ok());
            }
        }
    }
}
