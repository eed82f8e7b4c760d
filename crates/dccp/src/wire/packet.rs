//! Packets: generic header, Acknowledgement Number subheader, and what each type adds (RFC 4340 sections
//! 5.1 to 5.7).

use super::{Options, Reset, ResetCode, WireError, number_at};
use crate::checksum;
use crate::seq::Seq;
use std::net::IpAddr;

/// Length in bytes of the generic header with a short sequence number.
const SHORT_GENERIC: usize = 12;
/// Length in bytes of the generic header.
const GENERIC: usize = 16;
/// Length in bytes of the longest header without options, that of a Response or Reset.
pub const MAX_HEADER: usize = GENERIC + 8 + 4;
/// Length in bytes of the header of a DataAck without options.
pub const DATA_ACK_HEADER: usize = GENERIC + 8;
/// Maximum length in bytes of a header with options: Data Offset counts 255 words.
pub const MAX_OFFSET: usize = 255 * 4;

/// The packet type, with what only that type carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Kind {
    /// Opens a connection to a service.
    Request(u32),
    /// Answers a Request and repeats its service code.
    Response(u32),
    /// Carries data.
    Data,
    /// Acknowledges.
    Ack,
    /// Carries data and acknowledges.
    DataAck,
    /// Asks the client to close.
    CloseReq,
    /// Closes.
    Close,
    /// Ends the connection.
    Reset(Reset),
    /// Asks for synchronization of sequence numbers.
    Sync,
    /// Answers a Sync.
    SyncAck,
}

impl Kind {
    /// Returns the number on the wire.
    pub const fn number(self) -> u8 {
        match self {
            Kind::Request(_) => 0,
            Kind::Response(_) => 1,
            Kind::Data => 2,
            Kind::Ack => 3,
            Kind::DataAck => 4,
            Kind::CloseReq => 5,
            Kind::Close => 6,
            Kind::Reset(_) => 7,
            Kind::Sync => 8,
            Kind::SyncAck => 9,
        }
    }

    /// Returns the name without `DCCP-`.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Request(_) => "Request",
            Kind::Response(_) => "Response",
            Kind::Data => "Data",
            Kind::Ack => "Ack",
            Kind::DataAck => "DataAck",
            Kind::CloseReq => "CloseReq",
            Kind::Close => "Close",
            Kind::Reset(_) => "Reset",
            Kind::Sync => "Sync",
            Kind::SyncAck => "SyncAck",
        }
    }

    /// Returns whether it may have a short sequence number (RFC 4340 section 5.1).
    pub const fn may_be_short(self) -> bool {
        matches!(self, Kind::Data | Kind::Ack | Kind::DataAck)
    }

    /// Returns whether it has an Acknowledgement Number.
    pub const fn has_ack(self) -> bool {
        !matches!(self, Kind::Request(_) | Kind::Data)
    }

    /// Returns whether it may carry application data (RFC 4340 section 5).
    pub const fn may_carry_data(self) -> bool {
        matches!(self, Kind::Request(_) | Kind::Response(_) | Kind::Data | Kind::DataAck)
    }

    /// Returns the length in bytes of the header without options.
    pub const fn header(self, long: bool) -> usize {
        let generic = if long { GENERIC } else { SHORT_GENERIC };
        let ack = match (self.has_ack(), long) {
            (false, _) => 0,
            (true, true) => 8,
            (true, false) => 4,
        };
        let more = match self {
            Kind::Request(_) | Kind::Response(_) | Kind::Reset(_) => 4,
            _ => 0,
        };
        generic + ack + more
    }
}

/// What carries the packet, which decides how its checksum is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carrier {
    /// IP, with these source and destination addresses in the pseudo-header.
    Ip(IpAddr, IpAddr),
    /// UDP, whose checksum stands for that of DCCP and covers all of the packet (RFC 6773 section 3.3). The world checks
    /// it, and drops packets without one.
    Udp,
}

/// A header without options.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Header {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Four bits of the congestion control.
    pub ccval: u8,
    /// Checksum Coverage: 0 covers all data, 1 none, n the first (n - 1) * 4 bytes.
    pub coverage: u8,
    /// The packet type.
    pub kind: Kind,
    /// Whether the numbers have 48 bits (X of 1). Short ones must still be extended.
    pub long: bool,
    /// Sequence Number.
    pub seq: Seq,
    /// Acknowledgement Number, of the types that have one.
    pub ack: Seq,
}

impl Header {
    /// Appends a packet. Options are padded; with the header they must not exceed [`MAX_OFFSET`].
    pub fn emit(&self, carrier: Carrier, options: &[u8], data: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        let long = self.long || !self.kind.may_be_short();
        let header = self.kind.header(long) + options.len().next_multiple_of(4);
        out.extend_from_slice(&self.source.to_be_bytes());
        out.extend_from_slice(&self.destination.to_be_bytes());
        out.push((header / 4).min(255) as u8);
        let coverage = self.coverage & 15;
        out.push(self.ccval << 4 | coverage);
        out.extend_from_slice(&[0, 0]);
        let kind = self.kind.number() << 1;
        if long {
            out.extend_from_slice(&[kind | 1, 0]);
            out.extend_from_slice(&self.seq.raw().to_be_bytes()[2..]);
        } else {
            out.push(kind);
            out.extend_from_slice(&self.seq.short().to_be_bytes()[1..]);
        }
        if self.kind.has_ack() {
            if long {
                out.extend_from_slice(&self.ack.raw().to_be_bytes());
            } else {
                out.extend_from_slice(&self.ack.short().to_be_bytes());
            }
        }
        match self.kind {
            Kind::Request(service) | Kind::Response(service) => {
                out.extend_from_slice(&service.to_be_bytes());
            }
            Kind::Reset(Reset { code, data: [one, two, three] }) => {
                out.extend_from_slice(&[code.to_u8(), one, two, three]);
            }
            _ => {}
        }
        out.extend_from_slice(options);
        out.resize(start + header, 0);
        out.extend_from_slice(data);
        if let Carrier::Ip(source, destination) = carrier {
            let packet = &out[start..];
            let covered = checksum::covered(packet.len(), header, coverage);
            let sum = checksum::of(source, destination, packet, covered.unwrap_or(packet.len()));
            out[start + 6..start + 8].copy_from_slice(&sum.to_be_bytes());
        }
    }
}

/// What ICMP quotes of a packet: its ports and its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quoted {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Whether the number has 48 bits. A short one must still be extended.
    pub long: bool,
    /// Sequence Number.
    pub seq: Seq,
}

impl Quoted {
    /// Reads the first bytes of a packet, of which the rest may be cut; `None` where its number is cut.
    pub fn parse(bytes: &[u8]) -> Option<Quoted> {
        let long = bytes.get(8)? & 1 == 1;
        let (at, length) = if long { (10, 6) } else { (9, 3) };
        bytes.get(at..at + length)?;
        Some(Quoted {
            source: number_at(bytes, 0, 2) as u16,
            destination: number_at(bytes, 2, 2) as u16,
            long,
            seq: Seq::new(number_at(bytes, at, length)),
        })
    }
}

/// A view of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// The header.
    pub header: Header,
    options: &'a [u8],
    /// The application data.
    pub data: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Checks header and checksum (RFC 4340 section 8.5, step 1).
    pub fn parse(carrier: Carrier, bytes: &'a [u8]) -> Result<Packet<'a>, WireError> {
        let packet = Packet::parse_unchecked(bytes)?;
        let coverage = packet.header.coverage;
        let header = bytes.len() - packet.data.len();
        let covered =
            checksum::covered(bytes.len(), header, coverage).ok_or(WireError::Length {
                what: "the checksum coverage",
                limit: packet.data.len(),
                got: usize::from(coverage.saturating_sub(1)) * 4,
            })?;
        // RFC 6773 section 3.3: in UDP the field is ignored.
        if let Carrier::Ip(source, destination) = carrier
            && !checksum::holds(source, destination, bytes, covered)
        {
            return Err(WireError::Checksum { got: number_at(bytes, 6, 2) as u16 });
        }
        Ok(packet)
    }

    /// Reads a packet without its checksum, such as one quoted by ICMP.
    pub fn parse_unchecked(bytes: &'a [u8]) -> Result<Packet<'a>, WireError> {
        let what = "a packet";
        if bytes.len() < SHORT_GENERIC {
            return Err(WireError::Short { what, expected: SHORT_GENERIC, got: bytes.len() });
        }
        let (number, long) = (bytes[8] >> 1 & 15, bytes[8] & 1 == 1);
        // What the type carries is read below, once the length is known.
        let kind = match number {
            0 => Kind::Request(0),
            1 => Kind::Response(0),
            2 => Kind::Data,
            3 => Kind::Ack,
            4 => Kind::DataAck,
            5 => Kind::CloseReq,
            6 => Kind::Close,
            7 => Kind::Reset(Reset::new(ResetCode::Unspecified)),
            8 => Kind::Sync,
            9 => Kind::SyncAck,
            got => {
                return Err(WireError::Value { what: "a packet type of 0 to 9", got: got.into() });
            }
        };
        if !long && !kind.may_be_short() {
            return Err(WireError::Value { what: "X of 1", got: 0 });
        }
        let (fixed, offset) = (kind.header(long), usize::from(bytes[4]) * 4);
        if offset < fixed || offset > bytes.len() {
            return Err(WireError::Length { what: "Data Offset", limit: bytes.len(), got: offset });
        }
        let (seq, ack) = if long {
            (number_at(bytes, 10, 6), number_at(bytes, GENERIC + 2, 6))
        } else {
            (number_at(bytes, 9, 3), number_at(bytes, SHORT_GENERIC + 1, 3))
        };
        let last = &bytes[fixed - 4..fixed];
        let kind = match kind {
            Kind::Request(_) => Kind::Request(number_at(last, 0, 4) as u32),
            Kind::Response(_) => Kind::Response(number_at(last, 0, 4) as u32),
            Kind::Reset(_) => Kind::Reset(Reset {
                code: ResetCode::from_u8(last[0]),
                data: [last[1], last[2], last[3]],
            }),
            kind => kind,
        };
        let header = Header {
            source: number_at(bytes, 0, 2) as u16,
            destination: number_at(bytes, 2, 2) as u16,
            ccval: bytes[5] >> 4,
            coverage: bytes[5] & 15,
            kind,
            long,
            seq: Seq::new(seq),
            ack: Seq::new(if kind.has_ack() { ack } else { 0 }),
        };
        Ok(Packet { header, options: &bytes[fixed..offset], data: &bytes[offset..] })
    }

    /// Returns the bytes of the options.
    pub fn option_bytes(&self) -> &'a [u8] {
        self.options
    }

    /// Returns the options.
    pub fn options(&self) -> Options<'a> {
        Options::new(self.options)
    }

    /// Returns the Acknowledgement Number, if the type has one.
    pub fn ack(&self) -> Option<Seq> {
        self.header.kind.has_ack().then_some(self.header.ack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::DccpOption;
    use proptest::prelude::*;

    fn ip() -> Carrier {
        Carrier::Ip(IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]))
    }

    fn kinds() -> impl Strategy<Value = Kind> {
        prop_oneof![
            any::<u32>().prop_map(Kind::Request),
            any::<u32>().prop_map(Kind::Response),
            Just(Kind::Data),
            Just(Kind::Ack),
            Just(Kind::DataAck),
            Just(Kind::CloseReq),
            Just(Kind::Close),
            (any::<u8>(), any::<[u8; 3]>()).prop_map(|(code, data)| Kind::Reset(Reset {
                code: ResetCode::from_u8(code),
                data
            })),
            Just(Kind::Sync),
            Just(Kind::SyncAck),
        ]
    }

    fn request() -> Header {
        Header {
            source: 5000,
            destination: 5001,
            ccval: 0,
            coverage: 0,
            kind: Kind::Request(0x6469_7363),
            long: true,
            seq: Seq::new(0x0102_0304_0506),
            ack: Seq::default(),
        }
    }

    /// RFC 4340 sections 5.1 and 5.2: the layout of a Request.
    #[test]
    fn a_request_is_laid_out_as_published() {
        let mut out = Vec::new();
        request().emit(Carrier::Udp, &[2], b"x", &mut out);
        let expected = [
            0x13, 0x88, 0x13, 0x89, 6, 0, 0, 0, 1, 0, 1, 2, 3, 4, 5, 6, 0x64, 0x69, 0x73, 0x63, 2,
            0, 0, 0, b'x',
        ];
        assert_eq!(out, expected);
        let packet = Packet::parse(Carrier::Udp, &out).unwrap();
        assert_eq!(packet.options().collect::<Vec<_>>(), [Ok(DccpOption::SlowReceiver)]);
    }

    #[test]
    fn a_quoted_packet_is_read_up_to_its_number() {
        let mut out = Vec::new();
        request().emit(ip(), &[], &[], &mut out);
        let quoted = Quoted::parse(&out[..16]).unwrap();
        assert_eq!((quoted.source, quoted.destination, quoted.seq), (5000, 5001, request().seq));
        assert_eq!(Quoted::parse(&out[..15]), None);
        assert_eq!(Quoted::parse(&out[..8]), None);
    }

    /// RFC 4340 section 8.5, step 1.
    #[test]
    fn malformed_headers_are_refused() {
        let mut good = Vec::new();
        request().emit(ip(), &[], b"data", &mut good);
        assert!(Packet::parse(ip(), &good).is_ok());
        let refuse = |at: usize, value: u8| {
            let mut bad = good.clone();
            bad[at] = value;
            Packet::parse_unchecked(&bad).is_err()
        };
        assert!(refuse(4, 4), "Data Offset below the fixed header");
        assert!(refuse(4, 7), "Data Offset behind the end");
        assert!(refuse(8, 0), "a Request with a short number");
        assert!(refuse(8, 21), "a reserved type");
        assert!(Packet::parse(ip(), &good[..11]).is_err());
        let mut far = good.clone();
        far[5] = 15;
        for carrier in [ip(), Carrier::Udp] {
            assert!(matches!(Packet::parse(carrier, &far), Err(WireError::Length { .. })));
        }
    }

    /// RFC 6773 sections 3.2, 3.3 and 3.3.1: the header has its meaning also in UDP, but for the checksum.
    #[test]
    fn in_udp_only_the_checksum_is_ignored() {
        let header = Header { kind: Kind::Data, long: false, coverage: 1, ..request() };
        let header = Header { seq: Seq::new(request().seq.short().into()), ..header };
        let mut out = Vec::new();
        header.emit(Carrier::Udp, &[], b"data", &mut out);
        assert_eq!(out[6..8], [0, 0]);
        for checksum in [[0, 0], [0x12, 0x34]] {
            out[6..8].copy_from_slice(&checksum);
            assert_eq!(Packet::parse(Carrier::Udp, &out).map(|packet| packet.header), Ok(header));
        }
        assert!(Packet::parse(ip(), &out).is_err());
    }

    proptest! {
        #[test]
        fn packets_go_both_ways(
            kind in kinds(), long in any::<bool>(), seq in any::<u64>(), ack in any::<u64>(),
            ports in any::<(u16, u16)>(), ccval in 0u8..16, coverage in 0u8..16, udp in any::<bool>(),
            options in proptest::collection::vec(any::<u8>(), 0..900),
            data in proptest::collection::vec(any::<u8>(), 60..200),
        ) {
            let long = long || !kind.may_be_short();
            let cut = |n: u64| if long { Seq::new(n) } else { Seq::new(n & 0xff_ffff) };
            let header = Header {
                source: ports.0, destination: ports.1, ccval, kind, long, seq: cut(seq), coverage,
                ack: if kind.has_ack() { cut(ack) } else { Seq::default() },
            };
            let carrier = if udp { Carrier::Udp } else { ip() };
            let mut out = vec![7; 3];
            header.emit(carrier, &options, &data, &mut out);
            let packet = Packet::parse(carrier, &out[3..]).unwrap();
            prop_assert_eq!(packet.header, header);
            prop_assert_eq!(packet.data, &data[..]);
            prop_assert_eq!(&packet.options[..options.len()], &options[..]);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for carrier in [ip(), Carrier::Udp] {
                if let Ok(packet) = Packet::parse(carrier, &bytes) {
                    prop_assert!(packet.options().count() <= bytes.len());
                }
            }
            if let Ok(packet) = Packet::parse_unchecked(&bytes) {
                let _ = format!("{packet}");
            }
        }
    }
}
