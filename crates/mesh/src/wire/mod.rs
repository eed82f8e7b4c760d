//! The wire: every packet and what is inside.
//!
//! Octet 0 of a packet is the version in its high nibble and the [`Kind`] in its low one. Integers are big-endian. What is
//! authenticated or sealed is octets here: this module has no keys. A part with a fixed shape is both view and value;
//! [`hello`] and [`control`] have views that borrow what they were given. A fault is a
//! [`Malformed`], nothing panics, and nothing is allocated beyond the length of a packet.
//!
//! Read [`labels`] first: it is how a route is written.

pub mod bodies;
pub mod control;
pub mod data;
pub mod handshake;
pub mod hello;
pub mod labels;
mod nibbles;
pub mod routed;

pub use bodies::{Body, Hint, Hints};
pub use control::{Control, Item, Items};
pub use data::DataView;
pub use handshake::{Conf, Cookie, Init, Resp};
pub use hello::{Hello, HelloView};
pub use labels::{Class, Cursor, Labels, Route, RouteTooLong, Slot};
pub use routed::{Message, MessageId, Neighbour, Record, Routed};

use ringway_sansio::{Got, Malformed, Reader};

/// The version of the protocol.
pub const VERSION: u8 = 1;
/// Length in octets of the tag that ends whatever is sealed.
pub const SEAL: usize = 16;
/// Length in octets of a signature.
pub const SIGNATURE: usize = 64;
/// Length in octets of a short authentication code.
pub const MAC: usize = 8;

/// Kinds of packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// [`Hello`].
    Hello = 1,
    /// [`Init`].
    Init = 2,
    /// [`Resp`].
    Resp = 3,
    /// [`Conf`].
    Conf = 4,
    /// [`Cookie`].
    Cookie = 5,
    /// [`Control`].
    Control = 6,
    /// [`DataView`].
    Data = 7,
}

impl Kind {
    /// Returns the kind of a packet.
    pub fn of(packet: &[u8]) -> Result<Kind, Malformed> {
        let &first = packet.first().ok_or(Malformed::bad("expected a packet", Got::Missing, 0))?;
        if first >> 4 != VERSION {
            return Err(Malformed::here("expected version 1 of the mesh", packet, 0));
        }
        Ok(match first & 15 {
            1 => Kind::Hello,
            2 => Kind::Init,
            3 => Kind::Resp,
            4 => Kind::Conf,
            5 => Kind::Cookie,
            6 => Kind::Control,
            7 => Kind::Data,
            _ => return Err(Malformed::here("expected a kind of packet from 1 to 7", packet, 0)),
        })
    }

    /// Returns octet 0.
    const fn octet(self) -> u8 {
        (VERSION << 4) | self as u8
    }
}

/// Returns a reader of a packet, behind its octet 0, which must be of `kind`.
fn packet_reader<'a>(
    kind: Kind,
    expected: &'static str,
    bytes: &'a [u8],
) -> Result<Reader<'a>, Malformed> {
    let mut reader = Reader::new(expected, bytes);
    if reader.u8()? != kind.octet() {
        return Err(Malformed::here(expected, bytes, 0));
    }
    Ok(reader)
}

/// Reads labels of `nibbles` nibbles.
fn read_labels(reader: &mut Reader<'_>, nibbles: u16) -> Result<Labels, Malformed> {
    let at = reader.position();
    let nibbles = usize::from(nibbles);
    Labels::parse(reader.take(nibbles.div_ceil(2))?, nibbles).map_err(|fault| fault.moved(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_or_kind_is_refused() {
        assert_eq!(Kind::of(&[0x17]), Ok(Kind::Data));
        assert_eq!(
            Kind::of(&[]).unwrap_err().to_string(),
            "expected a packet, got nothing at octet 0"
        );
        let refused = Kind::of(&[0x27]).unwrap_err();
        assert_eq!(refused.to_string(), "expected version 1 of the mesh, got ''' at octet 0");
        assert!(Kind::of(&[0x18]).is_err() && Kind::of(&[0x10]).is_err());
    }
}
