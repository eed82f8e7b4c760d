//! The header before each packet of a TUN device with offload: `virtio_net_hdr` (linux/virtio_net.h), in the byte
//! order of the host.

use ringway_sansio::{Got, Malformed};
use std::num::NonZeroU16;

/// Size of the header, in octets.
pub const VNET_HEADER: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// Size of an IPv6 header, in octets.
pub(super) const IPV6: usize = 40;
/// Positions of the checksum in the headers of TCP and UDP.
pub(super) const TCP_CHECKSUM: u16 = 16;
pub(super) const UDP_CHECKSUM: u16 = 6;

/// The state of a packet's transport checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Checksum {
    /// It is complete, or the packet has none.
    #[default]
    Complete,
    /// Its field holds the sum of the pseudo-header alone. Who needs it complete calls
    /// [`complete_checksum`](super::complete_checksum).
    Partial {
        /// Position in the packet at which the sum begins: that of the transport header.
        start: u16,
        /// Position of the field in the transport header.
        offset: u16,
    },
}

impl Checksum {
    /// Returns the partial checksum of an IPv6 packet with TCP or UDP and no extension header. `None` for another
    /// packet.
    pub fn partial(packet: &[u8]) -> Option<Checksum> {
        let start = IPV6 as u16;
        let offset = match *packet.get(..IPV6)? {
            [first, _, _, _, _, _, protocol, ..] if first >> 4 == 6 => match i32::from(protocol) {
                libc::IPPROTO_TCP => TCP_CHECKSUM,
                libc::IPPROTO_UDP => UDP_CHECKSUM,
                _ => return None,
            },
            _ => return None,
        };
        Some(Checksum::Partial { start, offset })
    }
}

/// What a packet that stands for several is split into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pieces {
    /// Segments of TCP over IPv4.
    Tcp4,
    /// Segments of TCP over IPv6.
    Tcp6,
    /// Datagrams of UDP over IPv4 or IPv6.
    Udp,
}

/// How a packet that stands for several is to be split.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segmentation {
    /// What it is split into.
    pub pieces: Pieces,
    /// The number of octets of the payload that each segment but the last carries.
    pub size: NonZeroU16,
    /// The number of octets before the payload. The kernel's number is a hint: it may count payload too.
    pub headers: u16,
    /// CWR is set, and stays set in the first segment only (RFC 3168 section 6.1.2).
    pub ecn: bool,
}

/// What the kernel and a program tell each other about a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VnetHeader {
    /// The state of the checksum.
    pub checksum: Checksum,
    /// How the packet is to be split; `None` for a single one.
    pub segmentation: Option<Segmentation>,
}

impl VnetHeader {
    /// Parses a header.
    ///
    /// # Errors
    /// A kind of segmentation that was not offered to the kernel, or a segment size of zero.
    pub fn parse(bytes: &[u8; VNET_HEADER]) -> Result<VnetHeader, Malformed> {
        let [flags, kind, ..] = *bytes;
        let short = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let checksum = if flags & NEEDS_CHECKSUM == 0 {
            Checksum::Complete
        } else {
            Checksum::Partial { start: short(6), offset: short(8) }
        };
        let pieces = match kind & !GSO_ECN {
            GSO_NONE => return Ok(VnetHeader { checksum, segmentation: None }),
            GSO_TCP4 => Pieces::Tcp4,
            GSO_TCP6 => Pieces::Tcp6,
            GSO_UDP => Pieces::Udp,
            _ => return Err(Malformed::bad("expected segments of TCP or UDP", Got::Byte(kind), 1)),
        };
        let size = NonZeroU16::new(short(4));
        let size =
            size.ok_or(Malformed::bad("expected a segment size above 0", Got::Number(0), 4))?;
        let (headers, ecn) = (short(2), kind & GSO_ECN != 0);
        Ok(VnetHeader { checksum, segmentation: Some(Segmentation { pieces, size, headers, ecn }) })
    }

    /// Returns the octets of the header.
    pub fn to_bytes(&self) -> [u8; VNET_HEADER] {
        let mut bytes = [0; VNET_HEADER];
        if let Checksum::Partial { start, offset } = self.checksum {
            bytes[0] = NEEDS_CHECKSUM;
            bytes[6..8].copy_from_slice(&start.to_ne_bytes());
            bytes[8..].copy_from_slice(&offset.to_ne_bytes());
        }
        if let Some(segmentation) = self.segmentation {
            let kind = match segmentation.pieces {
                Pieces::Tcp4 => GSO_TCP4,
                Pieces::Tcp6 => GSO_TCP6,
                Pieces::Udp => GSO_UDP,
            };
            bytes[1] = if segmentation.ecn { kind | GSO_ECN } else { kind };
            bytes[2..4].copy_from_slice(&segmentation.headers.to_ne_bytes());
            bytes[4..6].copy_from_slice(&segmentation.size.get().to_ne_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// What is parsed is written again, but for bits without a meaning here.
        #[test]
        fn headers_survive_a_round_trip(bytes: [u8; VNET_HEADER]) {
            match VnetHeader::parse(&bytes) {
                Ok(header) => prop_assert_eq!(VnetHeader::parse(&header.to_bytes()), Ok(header)),
                Err(error) => prop_assert!(error.at == 1 || error.at == 4),
            }
        }
    }

    #[test]
    fn kinds_that_were_not_offered_are_refused() {
        let mut bytes = [0; VNET_HEADER];
        assert_eq!(VnetHeader::parse(&bytes), Ok(VnetHeader::default()));
        // UDP fragmentation, which kernels no longer do.
        bytes[1] = 3;
        assert_eq!(VnetHeader::parse(&bytes).unwrap_err().got, Got::Byte(3));
        bytes[1] = GSO_TCP6;
        assert_eq!(VnetHeader::parse(&bytes).unwrap_err().at, 4);
    }

    #[test]
    fn the_checksum_of_tcp_and_udp_is_found() {
        let mut packet = [0; IPV6];
        packet[0] = 0x60;
        assert_eq!(Checksum::partial(&packet), None);
        for (protocol, offset) in [(6, 16), (17, 6)] {
            packet[6] = protocol;
            assert_eq!(Checksum::partial(&packet), Some(Checksum::Partial { start: 40, offset }));
        }
        assert_eq!(Checksum::partial(&packet[..39]), None);
        packet[0] = 0x45;
        assert_eq!(Checksum::partial(&packet), None);
    }
}
