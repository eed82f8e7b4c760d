//! A program's datagrams as messages of an SCTP association, and the ports of `ringway with --datagrams`.
//!
//! A socket at UDP port N is reached by SCTP at the port [`carrying`] N: SCTP over IP at the SCTP port of that number, SCTP
//! in UDP at the UDP and SCTP port of that number. The number N itself is not used for SCTP in UDP, because the program has
//! that port, and because a peer without SCTP would receive what its program cannot read. Connections move away from it, too
//! ([`beside`]).
//!
//! All sockets of a program that send to the same port of a peer share an association. Each datagram is one message. Its
//! payload protocol identifier (RFC 9260 section 3.3.1) has a [`Kind`] in its upper half, and in its lower half the port of
//! the socket at the end that has opened the association. The other end of each datagram is port N.

/// The bit by which SCTP ports for datagrams differ from the UDP port that they stand for.
const CARRYING: u16 = 0x4000;
/// The bit by which UDP ports for SCTP of connections differ from the TCP port that they stand for.
const BESIDE: u16 = 0x2000;
/// No datagram has more octets (RFC 768: the length includes the header of eight).
pub const MAX_DATAGRAM: usize = 65_527;
/// The first port that all users of a host may have (ip(7)).
pub const UNPRIVILEGED: u16 = 1_024;
/// The payload of all but [`Kind::Datagram`]: SCTP has no empty messages (RFC 9260 section 3.3.1).
pub const NOTHING: &[u8] = &[0];

/// Returns whether SCTP uses the port that stands for another. Who has a port below 1,024 is trusted for it, which takes a
/// right that a program with the other one need not have, and a peer may have something else there: 53 stands for 16,437.
pub const fn is_usable(port: u16) -> bool {
    port >= UNPRIVILEGED
}

/// Returns the port by which SCTP reaches the sockets at a UDP port.
pub const fn carrying(port: u16) -> u16 {
    port ^ CARRYING
}

/// Returns the UDP port by which SCTP in UDP reaches the listener at a TCP port.
pub const fn beside(port: u16) -> u16 {
    port ^ BESIDE
}

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A datagram.
    Datagram,
    /// A datagram without octets, which has [`NOTHING`] instead.
    Empty,
    /// Datagrams of this port travel by messages from now on. The end that has opened the association sends it first, and the
    /// other one answers with the same once its sockets receive them: a socket that is connected to its peer receives
    /// either what comes by UDP or what comes by messages.
    Open,
    /// The sender carries no more datagrams of this port: they travel by UDP from now on.
    Close,
}

impl Kind {
    /// Returns the payload protocol identifier for a port of the end that has opened the association.
    pub const fn ppid(self, port: u16) -> u32 {
        let kind = match self {
            Kind::Datagram => *b"RD",
            Kind::Empty => *b"RE",
            Kind::Open => *b"RO",
            Kind::Close => *b"RC",
        };
        let [high, low] = port.to_be_bytes();
        u32::from_be_bytes([kind[0], kind[1], high, low])
    }

    /// Reads an identifier. `None` for one that means nothing here.
    pub const fn read(ppid: u32) -> Option<(Kind, u16)> {
        let [first, second, high, low] = ppid.to_be_bytes();
        let port = u16::from_be_bytes([high, low]);
        let kind = match [first, second] {
            [b'R', b'D'] => Kind::Datagram,
            [b'R', b'E'] => Kind::Empty,
            [b'R', b'O'] => Kind::Open,
            [b'R', b'C'] => Kind::Close,
            _ => return None,
        };
        if port == 0 { None } else { Some((kind, port)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn identifiers_are_written_and_read() {
        for kind in [Kind::Datagram, Kind::Empty, Kind::Open, Kind::Close] {
            assert_eq!(Kind::read(kind.ppid(5060)), Some((kind, 5060)));
            assert_eq!(Kind::read(kind.ppid(0)), None);
        }
        assert_eq!(Kind::read(u32::from_be_bytes(*b"RWB\x01")), None);
    }

    proptest! {
        #[test]
        fn the_three_ports_of_a_number_differ(port: u16) {
            prop_assert_eq!(carrying(carrying(port)), port);
            prop_assert_eq!(beside(beside(port)), port);
            prop_assert!(carrying(port) != port && beside(port) != port && carrying(port) != beside(port));
        }
    }
}
