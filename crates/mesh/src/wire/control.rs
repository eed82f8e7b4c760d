//! CONTROL: what neighbours tell each other, sealed with the keys of their link.
//!
//! ```text
//! 0 kind  1 flags  2 zero (2)  4 receiver index (4)  8 counter, low 32 bits of 64 (4)  12 sealed items, tag (16)
//! item: type (1)  length (2)  body
//! ```
//!
//! A type that is not known is skipped.

use ringway_sansio::{Got, Malformed};

use super::{Kind, Labels, Reader, SEAL, Slot, packet_reader, read_labels};
use crate::id::NodeId;

/// A CONTROL packet as received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Control<'a> {
    /// Flags; none are defined.
    pub flags: u8,
    /// The receiver's number for the link.
    pub receiver: u32,
    /// The low half of the packet's number.
    pub counter: u32,
    /// The items and the tag.
    pub sealed: &'a [u8],
}

impl<'a> Control<'a> {
    /// Length in octets before the items.
    pub const HEADER: usize = 12;

    /// Parses a packet.
    pub fn parse(bytes: &'a [u8]) -> Result<Control<'a>, Malformed> {
        let mut reader = packet_reader(Kind::Control, "expected a CONTROL packet", bytes)?;
        let [flags, _, _] = reader.array()?;
        let (receiver, counter) = (reader.u32()?, reader.u32()?);
        let sealed = reader.rest();
        if sealed.len() < SEAL {
            return Err(Malformed::bad("expected a tag of 16 octets", Got::End, bytes.len()));
        }
        Ok(Control { flags, receiver, counter, sealed })
    }

    /// Appends the packet.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut header = [0; Control::HEADER];
        Control::write_header(self.receiver, self.counter, &mut header);
        header[1] = self.flags;
        out.extend(header);
        out.extend_from_slice(self.sealed);
    }

    /// Writes what precedes the items.
    pub(crate) fn write_header(receiver: u32, counter: u32, header: &mut [u8; Control::HEADER]) {
        *header = [0; Control::HEADER];
        header[0] = Kind::Control.octet();
        header[4..8].copy_from_slice(&receiver.to_be_bytes());
        header[8..].copy_from_slice(&counter.to_be_bytes());
    }
}

mod kind {
    pub(super) const PROBE: u8 = 0x01;
    pub(super) const LINK_CLOSE: u8 = 0x03;
    pub(super) const FEEDBACK: u8 = 0x07;
    pub(super) const SLOT: u8 = 0x08;
    pub(super) const ROUTED: u8 = 0x10;
    pub(super) const ERROR: u8 = 0x12;
    pub(super) const BROKEN: u8 = 0x13;
    pub(super) const DETOUR_REQUEST: u8 = 0x14;
    pub(super) const DETOUR_REPLY: u8 = 0x15;
    pub(super) const DETOURED: u8 = 0x16;
}

/// One item of a CONTROL packet.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Item<'a> {
    /// Asks the neighbour for an answer, which is its slot.
    Probe,
    /// The sender closes the link.
    LinkClose,
    /// Data has arrived: that the packet is sealed says so.
    Feedback,
    /// The sender's slot for the receiver, so that the receiver can shorten the records of routes.
    Slot(Slot),
    /// A message that travels by a route ([`routed`](super::routed)).
    Routed(&'a [u8]),
    /// Why a packet was not forwarded.
    Error(ErrorReport),
    /// Asks whether the neighbour has a link to another router, to which that of the sender carries nothing.
    DetourRequest {
        /// The other router.
        to: NodeId,
    },
    /// The sender has a link to a router that it was asked for.
    DetourReply {
        /// The router.
        to: NodeId,
        /// The sender's slot for it.
        slot: Slot,
    },
    /// A marked route has become longer, because it leads round a link that is down.
    Detoured {
        /// The mark.
        mark: u32,
    },
    /// A link of a marked route is broken.
    Broken {
        /// The mark.
        mark: u32,
    },
}

impl Item<'_> {
    /// Appends the item. Fails if its body has more octets than the length field can say.
    pub fn emit(&self, out: &mut Vec<u8>) -> Result<(), Malformed> {
        let start = out.len();
        out.extend([self.kind(), 0, 0]);
        match self {
            Item::Probe | Item::LinkClose | Item::Feedback => {}
            Item::Slot(slot) => out.extend(slot.0.to_be_bytes()),
            Item::Routed(body) => out.extend_from_slice(body),
            Item::Error(error) => error.emit(out),
            Item::DetourRequest { to } => out.extend(to.to_bytes()),
            Item::DetourReply { to, slot } => {
                out.extend(to.to_bytes());
                out.extend(slot.0.to_be_bytes());
            }
            Item::Detoured { mark } | Item::Broken { mark } => out.extend(mark.to_be_bytes()),
        }
        let length = out.len() - start - Items::HEADER;
        let Ok(field) = u16::try_from(length) else {
            out.truncate(start);
            let got = Got::Number(length as u64);
            return Err(Malformed::bad("expected an item of at most 65535 octets", got, 0));
        };
        out[start + 1..start + Items::HEADER].copy_from_slice(&field.to_be_bytes());
        Ok(())
    }

    /// Writes what precedes the body of a message.
    pub(crate) fn write_routed_header(length: u16, header: &mut [u8; Items::HEADER]) {
        header[0] = kind::ROUTED;
        header[1..].copy_from_slice(&length.to_be_bytes());
    }

    fn kind(&self) -> u8 {
        match self {
            Item::Probe => kind::PROBE,
            Item::LinkClose => kind::LINK_CLOSE,
            Item::Feedback => kind::FEEDBACK,
            Item::Slot(_) => kind::SLOT,
            Item::Routed(_) => kind::ROUTED,
            Item::Error(_) => kind::ERROR,
            Item::DetourRequest { .. } => kind::DETOUR_REQUEST,
            Item::DetourReply { .. } => kind::DETOUR_REPLY,
            Item::Detoured { .. } => kind::DETOURED,
            Item::Broken { .. } => kind::BROKEN,
        }
    }
}

/// The opened items of a CONTROL packet. It ends after a fault; items of unknown types are skipped.
#[derive(Clone, Debug)]
pub struct Items<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Number of items that were skipped.
    pub unknown: u32,
}

impl<'a> Items<'a> {
    /// Length in octets of the type and the length of an item.
    pub const HEADER: usize = 3;
    /// Length in octets of a packet with one item and a PROBE around the body of the item.
    pub const OVERHEAD: usize = Control::HEADER + 2 * Items::HEADER + SEAL;

    /// Begins at the first item.
    pub fn new(bytes: &'a [u8]) -> Items<'a> {
        Items { bytes, at: 0, unknown: 0 }
    }

    fn parse(&mut self) -> Result<Option<Item<'a>>, Malformed> {
        let at = self.at;
        let mut reader = Reader::new("expected a whole item", &self.bytes[at..]);
        self.at = self.bytes.len();
        let kind = reader.u8()?;
        let length = reader.u16()?;
        let body = reader.take(length.into()).map_err(|fault| fault.moved(at))?;
        self.at = at + reader.position();
        parse_body(kind, body).map_err(|fault| fault.moved(at + Items::HEADER))
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Result<Item<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.at < self.bytes.len() {
            match self.parse() {
                Ok(Some(item)) => return Some(Ok(item)),
                Ok(None) => self.unknown += 1,
                Err(fault) => {
                    self.at = self.bytes.len();
                    return Some(Err(fault));
                }
            }
        }
        None
    }
}

/// Returns the item in a body, or `None` for an unknown type.
fn parse_body(kind: u8, body: &[u8]) -> Result<Option<Item<'_>>, Malformed> {
    let mut reader = Reader::new("expected the whole body of an item", body);
    let item = match kind {
        kind::PROBE => Item::Probe,
        kind::LINK_CLOSE => Item::LinkClose,
        kind::FEEDBACK => Item::Feedback,
        kind::SLOT => Item::Slot(Slot(reader.u16()?)),
        kind::ROUTED => Item::Routed(reader.rest()),
        kind::ERROR => Item::Error(ErrorReport::parse(&mut reader)?),
        kind::DETOUR_REQUEST => Item::DetourRequest { to: NodeId::new(reader.u64()?) },
        kind::DETOUR_REPLY => {
            let to = NodeId::new(reader.u64()?);
            Item::DetourReply { to, slot: Slot(reader.u16()?) }
        }
        kind::DETOURED => Item::Detoured { mark: reader.u32()? },
        kind::BROKEN => Item::Broken { mark: reader.u32()? },
        _ => return Ok(None),
    };
    reader.end()?;
    Ok(Some(item))
}

/// What was wrong with a packet that is reported to its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// The link of the next hop is down.
    LinkDown = 1,
    /// No router closer to the target is known.
    NoRoute = 2,
    /// The packet is too long for the next hop; the value is the MTU.
    TooBig = 3,
    /// The packet was for another router.
    NotHere = 4,
    /// The packet has taken too many hops.
    HopLimit = 5,
    /// The labels cannot be read here.
    BadRoute = 6,
    /// The answer to a LOOKUP was a false statement.
    Refuted = 7,
}

impl Code {
    fn from_octet(octet: u8) -> Option<Code> {
        use Code::{BadRoute, HopLimit, LinkDown, NoRoute, NotHere, Refuted, TooBig};
        let all = [LinkDown, NoRoute, TooBig, NotHere, HopLimit, BadRoute, Refuted];
        all.into_iter().find(|&code| code as u8 == octet)
    }
}

/// ERROR: a report that goes back by the labels of the packet it is about.
///
/// ```text
/// 0 flags  1 code  2 nibbles (2)  4 position (2)  6 value (2)  8 quoted (8)  16 reporter (8)  24 labels
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ErrorReport {
    /// Whether it travels by the labels in reverse.
    pub reverse: bool,
    /// Position in the labels, in nibbles.
    pub at: u16,
    /// What was wrong.
    pub code: Code,
    /// The MTU, or zero.
    pub value: u16,
    /// From the packet: what only its sender and routers on its way can know.
    pub quoted: u64,
    /// The router that reports, as it says.
    pub by: NodeId,
    /// The labels of the packet.
    pub labels: Labels,
}

impl ErrorReport {
    fn parse(reader: &mut Reader<'_>) -> Result<ErrorReport, Malformed> {
        let [flags, code] = reader.array()?;
        let Some(code) = Code::from_octet(code) else {
            return Err(reader.fault("expected a code of an ERROR from 1 to 7"));
        };
        let (nibbles, at) = (reader.u16()?, reader.u16()?);
        if at > nibbles {
            return Err(reader.fault("expected a position within the labels of an ERROR"));
        }
        let (value, quoted) = (reader.u16()?, reader.u64()?);
        let by = NodeId::new(reader.u64()?);
        let labels = read_labels(reader, nibbles)?;
        Ok(ErrorReport { reverse: flags & 1 != 0, at, code, value, quoted, by, labels })
    }

    fn emit(&self, out: &mut Vec<u8>) {
        out.extend([u8::from(self.reverse), self.code as u8]);
        out.extend(self.labels.nibbles().to_be_bytes());
        out.extend(self.at.to_be_bytes());
        out.extend(self.value.to_be_bytes());
        out.extend(self.quoted.to_be_bytes());
        out.extend(self.by.to_bytes());
        out.extend_from_slice(self.labels.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::super::labels::tests::labels;
    use super::*;
    use proptest::prelude::*;

    fn items(items: &[Item<'_>]) -> Vec<u8> {
        let mut out = Vec::new();
        items.iter().for_each(|item| item.emit(&mut out).unwrap());
        out
    }

    #[test]
    fn items_are_parsed_back() {
        let all = [
            Item::Probe,
            Item::LinkClose,
            Item::Feedback,
            Item::Slot(Slot(300)),
            Item::Routed(b"anything"),
            Item::Broken { mark: 9 },
            Item::Detoured { mark: 10 },
            Item::DetourRequest { to: NodeId::new(11) },
            Item::DetourReply { to: NodeId::new(12), slot: Slot(300) },
        ];
        let out = items(&all);
        assert_eq!(Items::new(&out).collect::<Result<Vec<_>, _>>().unwrap(), all);
    }

    #[test]
    fn an_unknown_type_is_skipped_and_counted() {
        let mut out = vec![0x7f, 0, 2, 9, 9];
        Item::Slot(Slot(1)).emit(&mut out).unwrap();
        let mut items = Items::new(&out);
        assert_eq!(items.next(), Some(Ok(Item::Slot(Slot(1)))));
        assert_eq!((items.next(), items.unknown), (None, 1));
    }

    #[test]
    fn a_faulty_item_ends_the_packet() {
        for (bytes, fault) in [
            (&[1, 0][..], "expected a whole item, got the end at octet 2"),
            (&[8, 0, 3, 0, 0], "expected a whole item, got the end at octet 5"),
            (&[8, 0, 3, 0, 0, 0], "expected the end, got 1 at octet 5"),
            (
                &[0x12, 0, 2, 0, 9],
                "expected a code of an ERROR from 1 to 7, got octet 0x09 at octet 4",
            ),
            (
                &[0x12, 0, 6, 0, 1, 0, 1, 0, 3],
                "expected a position within the labels of an ERROR, got octet 0x03 at octet 8",
            ),
        ] {
            let mut items = Items::new(bytes);
            assert_eq!(items.next().unwrap().unwrap_err().to_string(), fault);
            assert_eq!(items.next(), None);
        }
        let long = [0; 65_536];
        let mut out = vec![1];
        let refused = Item::Routed(&long).emit(&mut out).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "expected an item of at most 65535 octets, got 65536 at octet 0"
        );
        assert_eq!(out, [1]);
    }

    #[test]
    fn a_packet_without_a_tag_is_refused() {
        let mut out = Vec::new();
        let packet = Control { flags: 0, receiver: 1, counter: 2, sealed: &[3; SEAL] };
        packet.emit(&mut out);
        assert_eq!((out.len(), Control::parse(&out)), (28, Ok(packet)));
        assert!(Control::parse(&out[..27]).is_err());
    }

    proptest! {
        #[test]
        fn errors_are_parsed_back(
            labels in labels(), code in 1u8..8, value: u16, quoted: u64, by: u64,
        ) {
            let (code, by) = (Code::from_octet(code).unwrap(), NodeId::new(by));
            let error = ErrorReport { reverse: true, at: 0, code, value, quoted, by, labels };
            let all = [Item::Error(error), Item::Broken { mark: 7 }];
            let out = items(&all);
            prop_assert_eq!(Items::new(&out).collect::<Result<Vec<_>, _>>().unwrap(), all);
        }

        #[test]
        fn any_octets_are_read_without_a_panic(bytes: Vec<u8>, kind in 0u8..0x20) {
            let count = Items::new(&bytes).count();
            prop_assert!(count <= bytes.len() / Items::HEADER + 1);
            if let Ok(Some(item)) = parse_body(kind, &bytes) {
                let mut out = Vec::new();
                item.emit(&mut out).unwrap();
                prop_assert_eq!(Items::new(&out).next(), Some(Ok(item)));
            }
            let _ = Control::parse(&bytes);
        }
    }
}
