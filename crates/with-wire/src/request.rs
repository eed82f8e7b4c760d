//! Requests of the library and the broker's replies.
//!
//! [`Action::Connect`] comes on the program's own socket, which stays connected to the broker for good: the octets
//! behind it are the program's data. Every other request comes on a connection of its own, is replied to once, and ends
//! with it.

use crate::cursor::{Reader, Writer};
use crate::environment::Secret;
use crate::name::SocketId;
use crate::{FormatError, address};
use core::net::SocketAddr;

/// Octets of the longest request, without the padding of [`Action::Connect`].
pub const MAX_REQUEST: usize = HEAD + 8 + 4 + MAX_VALUE;
/// Octets of the longest reply.
pub const MAX_REPLY: usize = 4 + 4 + MAX_VALUE;
/// Octets of the value of a socket option.
pub const MAX_VALUE: usize = 512;
/// Octets of a request up to its length, and so enough to know that.
pub const START: usize = 4 + 16 + 4;

/// Octets before what a kind of request adds: mark, secret, length, kind, family and id.
const HEAD: usize = START + 1 + 1 + 8;
const MARK: [u8; 4] = *b"RWW\x01";

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action<'a> {
    /// Connects the socket that this comes on. The broker reads it when the peer is connected, and closes the socket
    /// when that fails. Padding follows up to the length, so that until then there is no room to write more.
    Connect(SocketAddr),
    /// Waits for the end of a connection attempt. Replied to with its error.
    Await,
    /// Asks how the last attempt or the connection has ended. Replied to with the error, which is then cleared.
    Outcome,
    /// Asks what another connect(2) returns: EALREADY, the error of the attempt, once 0, then EISCONN.
    Progress,
    /// Binds the socket.
    Bind(SocketAddr),
    /// Listens, with a backlog.
    Listen(u32),
    /// Asks for the local address and the peer's.
    Addresses,
    /// Sets a socket option.
    Set {
        /// The protocol level.
        level: u32,
        /// The option.
        option: u32,
        /// Its value.
        value: &'a [u8],
    },
    /// Reads a socket option.
    Get {
        /// The protocol level.
        level: u32,
        /// The option.
        option: u32,
        /// The length of the program's buffer.
        length: u32,
    },
    /// Reports that the process executes a program that the library cannot serve: its path and why, in words.
    Unserved(&'a [u8]),
    /// Asks for the table of [`translation`](crate::translation), whose descriptor comes with the reply.
    Translations,
    /// Reports a socket of UDP. Replied to once the table has what follows from it.
    Datagrams(Datagrams),
}

/// A socket of UDP, and what the program does with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagrams {
    /// Its inode.
    pub inode: u64,
    /// A descriptor of it in the process that asks.
    pub descriptor: u32,
    /// Its local address.
    pub local: SocketAddr,
    /// What it does.
    pub usage: Usage,
}

/// What a program does with a socket of UDP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Usage {
    /// It is bound.
    Bound,
    /// It sends to a peer from which nothing has come.
    Sends(SocketAddr),
    /// It is connected to a peer.
    Connected {
        /// The peer.
        peer: SocketAddr,
        /// Whether the process has received from it, so that the peer decides how datagrams travel.
        answers: bool,
    },
    /// It is not connected any more, and may have another port or none.
    Disconnected,
    /// It is to have the local address, which something else has.
    Wants,
}

impl Action<'_> {
    fn kind(&self) -> u8 {
        match self {
            Action::Connect(_) => 1,
            Action::Await => 2,
            Action::Outcome => 3,
            Action::Progress => 9,
            Action::Bind(_) => 4,
            Action::Listen(_) => 5,
            Action::Addresses => 6,
            Action::Set { .. } => 7,
            Action::Get { .. } => 8,
            Action::Unserved(_) => 10,
            Action::Translations => 11,
            Action::Datagrams(_) => 12,
        }
    }
}

/// A request about a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// Proof that the process belongs to the program.
    pub secret: Secret,
    /// The socket.
    pub id: SocketId,
    /// Whether the program has created it for IPv6.
    pub ipv6: bool,
    /// What is asked for.
    pub action: Action<'a>,
}

impl<'a> Request<'a> {
    /// Writes the request, which is `padding` octets longer than what is written. Returns the length that is written, at
    /// most [`MAX_REQUEST`].
    ///
    /// # Errors
    /// There is no room.
    pub fn write(&self, padding: usize, out: &mut [u8]) -> Result<usize, FormatError> {
        let mut writer = Writer::new(out);
        writer.bytes(&MARK)?;
        writer.bytes(&self.secret.0)?;
        let at = writer.len();
        writer.u32(0)?;
        writer.u8(self.action.kind())?;
        writer.u8(self.ipv6.into())?;
        writer.u64(self.id.0)?;
        match &self.action {
            Action::Connect(address) | Action::Bind(address) => {
                address::write(&mut writer, address)?;
            }
            Action::Await
            | Action::Outcome
            | Action::Progress
            | Action::Addresses
            | Action::Translations => {}
            Action::Datagrams(datagrams) => datagrams.write(&mut writer)?,
            Action::Listen(backlog) => writer.u32(*backlog)?,
            Action::Unserved(value) if value.len() <= MAX_VALUE => writer.bytes(value)?,
            Action::Unserved(value) => {
                return Err(FormatError::NoRoom { expected: value.len(), got: MAX_VALUE });
            }
            Action::Set { level, option, value } => {
                if value.len() > MAX_VALUE {
                    return Err(FormatError::NoRoom { expected: value.len(), got: MAX_VALUE });
                }
                writer.u32(*level)?;
                writer.u32(*option)?;
                writer.bytes(value)?;
            }
            Action::Get { level, option, length } => {
                writer.u32(*level)?;
                writer.u32(*option)?;
                writer.u32(*length)?;
            }
        }
        let length = writer.len();
        let whole = u32::try_from(length + padding).unwrap_or(u32::MAX);
        out[at..at + 4].copy_from_slice(&whole.to_be_bytes());
        Ok(length)
    }

    /// Returns the length of the request that begins so, with its padding.
    ///
    /// # Errors
    /// It has no [`START`], or is no request.
    pub fn length(start: &[u8]) -> Result<usize, FormatError> {
        let mut reader = Reader(start);
        let mark = reader.array()?;
        if mark != MARK {
            let got = u32::from_be_bytes(mark);
            return Err(FormatError::Value { what: "the mark of a request", got });
        }
        reader.bytes(16)?;
        Ok(reader.u32()? as usize)
    }

    /// Reads a request: all of it, or of one that connects as much as there is before the padding.
    ///
    /// # Errors
    /// It is none.
    pub fn read(octets: &'a [u8]) -> Result<Request<'a>, FormatError> {
        Request::length(octets)?;
        let mut reader = Reader(octets);
        reader.bytes(4)?;
        let secret = Secret(reader.array()?);
        reader.u32()?;
        let kind = reader.u8()?;
        let ipv6 = match reader.u8()? {
            0 => false,
            1 => true,
            got => return Err(FormatError::Value { what: "a family", got: got.into() }),
        };
        let id = SocketId(reader.u64()?);
        let action = match kind {
            1 => Action::Connect(address::read(&mut reader)?),
            2 => Action::Await,
            3 => Action::Outcome,
            4 => Action::Bind(address::read(&mut reader)?),
            5 => Action::Listen(reader.u32()?),
            6 => Action::Addresses,
            7 => {
                let (level, option) = (reader.u32()?, reader.u32()?);
                Action::Set { level, option, value: value(&mut reader)? }
            }
            10 => Action::Unserved(value(&mut reader)?),
            8 => Action::Get { level: reader.u32()?, option: reader.u32()?, length: reader.u32()? },
            9 => Action::Progress,
            11 => Action::Translations,
            12 => Action::Datagrams(Datagrams::read(&mut reader)?),
            got => return Err(FormatError::Value { what: "a request", got: got.into() }),
        };
        Ok(Request { secret, id, ipv6, action })
    }
}

impl Datagrams {
    fn write(&self, writer: &mut Writer<'_>) -> Result<(), FormatError> {
        writer.u64(self.inode)?;
        writer.u32(self.descriptor)?;
        address::write(writer, &self.local)?;
        match &self.usage {
            Usage::Bound => writer.u8(0),
            Usage::Sends(peer) => {
                writer.u8(1)?;
                address::write(writer, peer)
            }
            Usage::Connected { peer, answers } => {
                writer.u8(if *answers { 3 } else { 2 })?;
                address::write(writer, peer)
            }
            Usage::Disconnected => writer.u8(4),
            Usage::Wants => writer.u8(5),
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Datagrams, FormatError> {
        let (inode, descriptor) = (reader.u64()?, reader.u32()?);
        let local = address::read(reader)?;
        let usage = match reader.u8()? {
            0 => Usage::Bound,
            1 => Usage::Sends(address::read(reader)?),
            kind @ (2 | 3) => Usage::Connected { peer: address::read(reader)?, answers: kind == 3 },
            4 => Usage::Disconnected,
            5 => Usage::Wants,
            got => return Err(FormatError::Value { what: "a usage", got: got.into() }),
        };
        Ok(Datagrams { inode, descriptor, local, usage })
    }
}

/// Reads the rest of a request, which is a value.
fn value<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], FormatError> {
    let length = reader.0.len();
    if length > MAX_VALUE {
        return Err(FormatError::Value {
            what: "the length of a value",
            got: u32::try_from(length).unwrap_or(u32::MAX),
        });
    }
    reader.bytes(length)
}

/// A reply: an errno, 0 for success, and what was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply<'a> {
    /// The error as in errno(3); 0 for none.
    pub error: u32,
    /// The value of an option, or the addresses.
    pub value: &'a [u8],
}

impl<'a> Reply<'a> {
    /// Returns the reply that has nothing but an error; 0 for success.
    pub const fn error(error: u32) -> Reply<'static> {
        Reply { error, value: &[] }
    }

    /// Writes the reply. Returns its length, at most [`MAX_REPLY`].
    ///
    /// # Errors
    /// There is no room, or the value is longer than [`MAX_VALUE`].
    pub fn write(&self, out: &mut [u8]) -> Result<usize, FormatError> {
        let length = self.value.len();
        if length > MAX_VALUE {
            return Err(FormatError::NoRoom { expected: length, got: MAX_VALUE });
        }
        let mut writer = Writer::new(out);
        writer.u32(self.error)?;
        writer.u32(u32::try_from(length).unwrap_or(u32::MAX))?;
        writer.bytes(self.value)?;
        Ok(writer.len())
    }

    /// Reads a reply.
    ///
    /// # Errors
    /// It is none, or not all of one.
    pub fn read(octets: &'a [u8]) -> Result<Reply<'a>, FormatError> {
        let mut reader = Reader(octets);
        let error = reader.u32()?;
        let length = reader.u32()?;
        Ok(Reply { error, value: reader.bytes(length as usize)? })
    }
}

/// Octets of the local address and of the peer's, as the value of a reply.
pub const ADDRESSES: usize = 2 * address::LENGTH + 1;

/// Writes the value of a reply to [`Action::Addresses`].
pub fn write_addresses(local: &SocketAddr, peer: Option<&SocketAddr>) -> [u8; ADDRESSES] {
    let mut out = [0; ADDRESSES];
    let mut writer = Writer::new(&mut out);
    let any = peer.unwrap_or(local);
    // The array has room for all three.
    let _ = address::write(&mut writer, local)
        .and_then(|()| address::write(&mut writer, any))
        .and_then(|()| writer.u8(peer.is_some().into()));
    out
}

/// Reads the value of a reply to [`Action::Addresses`]: the local address, and the peer's if there is one.
///
/// # Errors
/// It is no such value.
pub fn read_addresses(value: &[u8]) -> Result<(SocketAddr, Option<SocketAddr>), FormatError> {
    let mut reader = Reader(value);
    let (local, peer) = (address::read(&mut reader)?, address::read(&mut reader)?);
    Ok((local, (reader.u8()? == 1).then_some(peer)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn datagrams(usage: Usage) -> Action<'static> {
        let local = "192.0.2.1:5060".parse().unwrap();
        Action::Datagrams(Datagrams { inode: u64::MAX, descriptor: 7, local, usage })
    }

    fn actions() -> Vec<Action<'static>> {
        let address = "[2001:db8::1%3]:443".parse().unwrap();
        vec![
            Action::Connect(address),
            Action::Await,
            Action::Outcome,
            Action::Progress,
            Action::Bind("192.0.2.1:0".parse().unwrap()),
            Action::Listen(u32::MAX),
            Action::Addresses,
            Action::Set { level: 6, option: 1, value: &[1, 0, 0, 0] },
            Action::Set { level: 0, option: 1, value: &[7; MAX_VALUE] },
            Action::Get { level: 6, option: 11, length: 104 },
            Action::Unserved(b"/bin/busybox is statically linked"),
            Action::Translations,
            datagrams(Usage::Bound),
            datagrams(Usage::Disconnected),
            datagrams(Usage::Wants),
            datagrams(Usage::Sends(address)),
            datagrams(Usage::Connected { peer: address, answers: true }),
        ]
    }

    #[test]
    fn requests_are_written_and_read() {
        for action in actions() {
            let secret = Secret([9; 16]);
            let request = Request { secret, id: SocketId::created(5), ipv6: true, action };
            let mut out = [0; MAX_REQUEST];
            let length = request.write(1000, &mut out).unwrap();
            assert_eq!(Request::length(&out[..START]), Ok(length + 1000));
            assert_eq!(Request::read(&out[..length]), Ok(request));
            assert!(request.write(0, &mut out[..length - 1]).is_err());
        }
    }

    #[test]
    fn replies_are_written_and_read() {
        for reply in [Reply::error(111), Reply { error: 0, value: b"cubic" }] {
            let mut out = [0; MAX_REPLY];
            let length = reply.write(&mut out).unwrap();
            assert_eq!(Reply::read(&out[..length]), Ok(reply));
            assert!(Reply::read(&out[..length - 1]).is_err());
        }
        assert!(Reply { error: 0, value: &[0; MAX_VALUE + 1] }.write(&mut [0; 2000]).is_err());
    }

    #[test]
    fn addresses_are_written_and_read() {
        let (local, peer) = ("192.0.2.1:1".parse().unwrap(), "[::1]:2".parse().unwrap());
        assert_eq!(read_addresses(&write_addresses(&local, Some(&peer))), Ok((local, Some(peer))));
        assert_eq!(read_addresses(&write_addresses(&local, None)), Ok((local, None)));
        assert!(read_addresses(&[4; ADDRESSES - 1]).is_err());
    }

    proptest! {
        #[test]
        fn any_octets_are_read_or_refused(octets in prop::collection::vec(any::<u8>(), 0..700)) {
            let mut marked = MARK.to_vec();
            marked.extend(&octets);
            for octets in [&octets, &marked] {
                let _ = (Request::read(octets), Reply::read(octets), read_addresses(octets));
            }
        }
    }
}
