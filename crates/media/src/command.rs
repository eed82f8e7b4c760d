//! What the signalling half of a relay tells the half that forwards packets.

use std::net::{IpAddr, SocketAddr};

/// An address family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Returns the family of an address.
    pub fn of(ip: IpAddr) -> Family {
        if ip.is_ipv4() { Family::V4 } else { Family::V6 }
    }
}

/// A UDP port of the relay.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Port {
    /// The family of its socket.
    pub family: Family,
    /// Its number.
    pub number: u16,
}

impl Port {
    /// Returns the other port of its pair: RTP is at an even one, RTCP at the next (RFC 3550 section 11).
    pub fn companion(self) -> Port {
        Port { number: self.number ^ 1, ..self }
    }

    /// Returns whether it is the second of its pair.
    pub fn is_rtcp(self) -> bool {
        self.number % 2 == 1
    }
}

/// A relayed stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamId {
    pub(crate) index: u32,
    /// Distinguishes streams that had the same index.
    pub(crate) serial: u32,
}

/// Where the media of a party comes from and goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Party {
    /// The address in its description, if media may be sent there.
    pub signalled: Option<IpAddr>,
    /// The address that its signalling comes from, if media may come from there too.
    pub signalling: Option<IpAddr>,
    /// Where media is sent to.
    pub rtp: Option<SocketAddr>,
    /// Where RTCP is sent to.
    pub rtcp: Option<SocketAddr>,
    /// Whether nothing is sent to it, whatever is received from it (RFC 3264 section 8.4).
    pub held: bool,
}

impl Party {
    /// Returns whether a packet from this address may be of this party.
    pub(crate) fn may_send_from(&self, ip: IpAddr) -> bool {
        self.signalled == Some(ip) || self.signalling == Some(ip)
    }
}

/// One side of a relayed stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Side {
    /// The port at which the party's media is received and from which it is sent to, the even one of its pair.
    pub port: Port,
    /// The address of the port.
    pub local: IpAddr,
    /// The party; `None` while it has no such stream.
    pub party: Option<Party>,
}

/// A command to the half that forwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Forward between these two sides from now on.
    Set(StreamId, [Side; 2]),
    /// Forward nothing at these pairs of ports any more.
    Clear(StreamId, [Port; 2]),
    /// Close the sockets of this pair.
    Unbind(Port),
}
