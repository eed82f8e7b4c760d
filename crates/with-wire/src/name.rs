//! Names of sockets in the kernel's abstract namespace (unix(7)), without their first octet, which is zero.
//!
//! A socket of a program has a name from its creation on. The kernel keeps it through dup(2), fork(2), execve(2) and the
//! passing of descriptors, and releases it when the last descriptor is closed. So the library recognises a descriptor
//! wherever it comes from, and the broker knows whether a socket still exists.

use crate::cursor::{Reader, Writer};
use crate::{FormatError, address};
use core::net::SocketAddr;

/// Octets of the longest name.
pub const MAX_NAME: usize = HEAD + 8 + 2 * address::LENGTH;

const PREFIX: &[u8] = b"ringway";
/// Octets before what a kind of name adds: the prefix, the broker and the kind.
const HEAD: usize = PREFIX.len() + 8 + 1;

/// A broker, drawn at random.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BrokerId(pub [u8; 8]);

/// A socket of a program: drawn at random by the library, or counted by the broker for one that was accepted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SocketId(pub u64);

impl SocketId {
    const ACCEPTED: u64 = 1 << 63;

    /// Returns the id of a socket that the program has created.
    pub const fn created(random: u64) -> SocketId {
        SocketId(random & !Self::ACCEPTED)
    }

    /// Returns the id of a connection that the program accepts.
    pub const fn accepted(count: u64) -> SocketId {
        SocketId(count | Self::ACCEPTED)
    }

    /// Returns whether the program has accepted it.
    pub const fn is_accepted(self) -> bool {
        self.0 & Self::ACCEPTED != 0
    }
}

/// A name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Name {
    /// The broker's listening socket.
    Broker,
    /// A socket that a program has created, and those that it has accepted there.
    Program {
        /// Whether the program has created it for IPv6.
        ipv6: bool,
        /// Which.
        id: SocketId,
    },
    /// The broker's end of a connection that the program accepts.
    Connection {
        /// Which.
        id: SocketId,
        /// The peer's address.
        peer: SocketAddr,
        /// The local address.
        local: SocketAddr,
    },
}

impl Name {
    /// Writes the name. Returns its length, at most [`MAX_NAME`].
    ///
    /// # Errors
    /// There is no room.
    pub fn write(&self, broker: BrokerId, out: &mut [u8]) -> Result<usize, FormatError> {
        let mut writer = Writer::new(out);
        writer.bytes(PREFIX)?;
        writer.bytes(&broker.0)?;
        match self {
            Name::Broker => writer.u8(b'b')?,
            Name::Program { ipv6, id } => {
                writer.u8(if *ipv6 { b'6' } else { b'4' })?;
                writer.u64(id.0)?;
            }
            Name::Connection { id, peer, local } => {
                writer.u8(b'c')?;
                writer.u64(id.0)?;
                address::write(&mut writer, peer)?;
                address::write(&mut writer, local)?;
            }
        }
        Ok(writer.len())
    }

    /// Reads a name of this broker's. Returns `None` for any other.
    pub fn read(broker: BrokerId, name: &[u8]) -> Option<Name> {
        let mut reader = Reader(name.strip_prefix(PREFIX)?.strip_prefix(&broker.0)?);
        let kind = reader.u8().ok()?;
        let name = match kind {
            b'b' => Name::Broker,
            b'4' | b'6' => Name::Program { ipv6: kind == b'6', id: SocketId(reader.u64().ok()?) },
            b'c' => Name::Connection {
                id: SocketId(reader.u64().ok()?),
                peer: address::read(&mut reader).ok()?,
                local: address::read(&mut reader).ok()?,
            },
            _ => return None,
        };
        reader.0.is_empty().then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BROKER: BrokerId = BrokerId(*b"\0brokerx");

    fn names() -> [Name; 4] {
        let (peer, local) = ("[2001:db8::1]:5201", "192.0.2.7:80");
        [
            Name::Broker,
            Name::Program { ipv6: false, id: SocketId::created(u64::MAX) },
            Name::Program { ipv6: true, id: SocketId::created(7) },
            Name::Connection {
                id: SocketId::accepted(3),
                peer: peer.parse().unwrap(),
                local: local.parse().unwrap(),
            },
        ]
    }

    #[test]
    fn names_are_written_and_read() {
        for name in names() {
            let mut out = [0; MAX_NAME];
            let length = name.write(BROKER, &mut out).unwrap();
            assert_eq!(Name::read(BROKER, &out[..length]), Some(name));
            assert_eq!(Name::read(BrokerId([0; 8]), &out[..length]), None, "another broker's");
            assert_eq!(Name::read(BROKER, &out[..length - 1]), None, "cut");
            assert!(name.write(BROKER, &mut out[..length - 1]).is_err());
        }
        // sun_path of unix(7) has 108 octets, the first of which is zero.
        const { assert!(MAX_NAME < 108) };
    }

    #[test]
    fn a_name_of_anybody_else_is_none() {
        assert_eq!(Name::read(BROKER, b"/run/systemd/notify"), None);
        assert_eq!(Name::read(BROKER, b""), None);
        assert_eq!(Name::read(BROKER, b"ringway\0brokerxz"), None);
    }

    #[test]
    fn an_accepted_socket_is_told_by_its_id() {
        assert!(SocketId::accepted(0).is_accepted());
        assert!(!SocketId::created(u64::MAX).is_accepted());
    }
}
