//! Packets between hosts, and the face of a protocol that lives right above IP.
//!
//! What SIP sees of the world is a [`flow`](crate::flow); what TCP and SCTP see is this: packets
//! with addresses, and an [`Endpoint`] that takes them in and is asked for more. A simulator, a TUN
//! device and a raw socket drive an endpoint in the same way, so it cannot tell them apart.

use crate::Time;
use std::net::IpAddr;

/// Explicit congestion notification field of the IP header (RFC 3168 section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// The transport does not take part.
    #[default]
    NotEct,
    /// Takes part, codepoint `01`.
    Ect1,
    /// Takes part, codepoint `10`.
    Ect0,
    /// Congestion experienced.
    Ce,
}

impl Ecn {
    /// The two bits as they stand in the header.
    pub const fn bits(self) -> u8 {
        match self {
            Ecn::NotEct => 0b00,
            Ecn::Ect1 => 0b01,
            Ecn::Ect0 => 0b10,
            Ecn::Ce => 0b11,
        }
    }

    /// From the two lowest bits.
    pub const fn from_bits(bits: u8) -> Ecn {
        match bits & 0b11 {
            0b00 => Ecn::NotEct,
            0b01 => Ecn::Ect1,
            0b10 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }

    /// Whether the transport takes part, so that congestion may be marked instead of dropped.
    pub const fn is_capable(self) -> bool {
        !matches!(self, Ecn::NotEct)
    }
}

/// What the IP header of a packet says. It is a whole number of words long, which are copied faster than
/// pieces that overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(align(8))]
pub struct Addressing {
    /// Where it comes from. An endpoint with several addresses chooses its path by this.
    pub source: IpAddr,
    /// Where it goes.
    pub destination: IpAddr,
    /// Protocol number of the payload (6 TCP, 17 UDP, 132 SCTP).
    pub protocol: u8,
    /// Congestion notification.
    pub ecn: Ecn,
    /// The peer's UDP port where the packet is carried in UDP (RFC 6951): the one it came from or
    /// is to go to. 0 when it stands right above IP.
    pub udp_port: u16,
    /// The packet is larger than what its path takes, and IP must fragment it (RFC 9260 section 6.9): the
    /// size in bytes, with the IP header, that no fragment may exceed. Of a packet that came, without
    /// meaning.
    pub fragment: Option<u16>,
    /// The world takes care of the transport's checksum. Of a packet that came: it is as it was sent, and
    /// packets of TCP to be sent in this world may leave the checksum out. Of a packet to be sent: its
    /// checksum field is zero, and the world fills it in where somebody may look at it.
    pub offload: bool,
}

impl Addressing {
    /// Right above IP, in one piece, without taking part in congestion notification.
    pub const fn new(source: IpAddr, destination: IpAddr, protocol: u8) -> Addressing {
        let ecn = Ecn::NotEct;
        let (udp_port, fragment, offload) = (0, None, false);
        Addressing { source, destination, protocol, ecn, udp_port, fragment, offload }
    }
}

/// What an ICMP or ICMPv6 message says of a packet that was sent (RFC 792, RFC 4443, RFC 9260
/// section 10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Icmp {
    /// Protocol unreachable, or an unrecognized next header; where the packet was carried in UDP,
    /// port unreachable (RFC 6951 section 5.5).
    ProtocolUnreachable,
    /// Any other kind of destination unreachable but the one that follows.
    Unreachable,
    /// Fragmentation needed, or packet too big: the largest IP packet that goes through, in bytes;
    /// 0 where the router did not say.
    TooBig(u32),
}

/// A protocol above IP as a world drives it. After each `handle_*` the world calls
/// [`Endpoint::poll_transmit`] until it gives nothing, then sets its clock by
/// [`Endpoint::poll_timeout`]. What happened for the user of the protocol is told by methods of the
/// protocol's own.
pub trait Endpoint {
    /// A packet has come; `payload` begins with the transport's header.
    fn handle_packet(&mut self, now: Time, addressing: Addressing, payload: &[u8]);

    /// The time that [`Endpoint::poll_timeout`] named has come.
    fn handle_timeout(&mut self, now: Time);

    /// When [`Endpoint::handle_timeout`] is to be called; `None` when nothing waits.
    fn poll_timeout(&self) -> Option<Time>;

    /// Appends the next packet's transport header and data to `payload`, which the caller owns and
    /// has emptied, and says where it goes; `None` when there is nothing to send now.
    fn poll_transmit(&mut self, now: Time, payload: &mut Vec<u8>) -> Option<Addressing>;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3168 section 5: the codepoints.
    #[test]
    fn ecn_bits_go_both_ways() {
        for bits in 0..4 {
            assert_eq!(Ecn::from_bits(bits).bits(), bits);
        }
        assert!(!Ecn::from_bits(4).is_capable());
        assert_eq!(Ecn::from_bits(0b10), Ecn::Ect0);
    }
}
