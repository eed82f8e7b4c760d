//! Chunks (RFC 9260 section 3.2 and 3.3) and those of the extensions.

pub mod kind;

use super::cause::{Cause, Causes};
use super::data::{Data, IData};
use super::init::Init;
use super::parameter::{Parameter, Parameters};
use super::sack::{NrSack, Sack};
use super::{TLV_HEADER, Unknown, WireError, at_least, pad, u16_at, u32_at, without_last_padding};
use crate::numbers::{Mid, Ssn, Tsn};

/// The T bit of ABORT and SHUTDOWN COMPLETE: the tag is the receiver's, sent back.
pub const T_BIT: u8 = 1;

/// A chunk of which only the length was checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Raw<'a> {
    /// The type.
    pub kind: u8,
    /// The flags.
    pub flags: u8,
    /// The chunk with header, without padding.
    pub whole: &'a [u8],
}

/// A chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Chunk<'a> {
    /// User data.
    Data(Data<'a>),
    /// Starts an association.
    Init(Init<'a>),
    /// Answers INIT.
    InitAck(Init<'a>),
    /// Acknowledges DATA.
    Sack(Sack<'a>),
    /// Acknowledges DATA, some of it for good (draft-natarajan-tsvwg-sctp-nrsack).
    NrSack(NrSack<'a>),
    /// Probes a path. The parameters are to be sent back.
    Heartbeat(&'a [u8]),
    /// Answers HEARTBEAT with its parameters.
    HeartbeatAck(&'a [u8]),
    /// Aborts an association.
    Abort {
        /// The T bit.
        reflected: bool,
        /// Error causes.
        causes: &'a [u8],
    },
    /// Starts a shutdown when everything was sent and acknowledged; the Cumulative TSN Ack.
    Shutdown(Tsn),
    /// Answers SHUTDOWN.
    ShutdownAck,
    /// Error causes that do not end the association.
    Error(&'a [u8]),
    /// Returns the State Cookie.
    CookieEcho(&'a [u8]),
    /// Answers COOKIE ECHO.
    CookieAck,
    /// Reports a congestion mark at this TSN.
    Ecne(Tsn),
    /// Confirms that the window was reduced, up to this TSN.
    Cwr(Tsn),
    /// Answers SHUTDOWN ACK.
    ShutdownComplete {
        /// The T bit.
        reflected: bool,
    },
    /// RFC 8260 section 2.1.
    IData(IData<'a>),
    /// RFC 3758 section 3.2: the new cumulative TSN and (stream, SSN) entries.
    ForwardTsn(ForwardTsn<'a>),
    /// RFC 8260 section 2.3.1.
    IForwardTsn(ForwardTsn<'a>),
    /// RFC 6525: parameters.
    ReConfig(&'a [u8]),
    /// RFC 5061: serial number and parameters.
    Asconf(u32, &'a [u8]),
    /// RFC 5061: serial number and parameters.
    AsconfAck(u32, &'a [u8]),
    /// RFC 4895: shared key, HMAC identifier, HMAC.
    Auth(u16, u16, &'a [u8]),
    /// RFC 4820: nothing.
    Pad,
    /// A chunk of an unknown type.
    Unknown {
        /// The required handling.
        action: Unknown,
        /// The chunk with its header.
        whole: &'a [u8],
    },
}

/// FORWARD TSN, or I-FORWARD-TSN, whose entries are twice as long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForwardTsn<'a> {
    /// Everything up to here counts as received.
    pub new_cumulative_tsn: Tsn,
    entries: &'a [u8],
}

impl<'a> ForwardTsn<'a> {
    fn parse(value: &'a [u8]) -> Result<Self, WireError> {
        let value = at_least("a FORWARD TSN chunk", 4, value)?;
        Ok(ForwardTsn { new_cumulative_tsn: Tsn::new(u32_at(value, 0)), entries: &value[4..] })
    }

    /// Creates a FORWARD TSN with entries written by [`ForwardTsn::put_stream`].
    pub const fn new(new_cumulative_tsn: Tsn, entries: &'a [u8]) -> Self {
        ForwardTsn { new_cumulative_tsn, entries }
    }

    /// Appends an entry of a FORWARD TSN.
    pub fn put_stream(entries: &mut Vec<u8>, stream: u16, ssn: Ssn) {
        entries.extend_from_slice(&stream.to_be_bytes());
        entries.extend_from_slice(&ssn.raw().to_be_bytes());
    }

    /// Appends an entry of an I-FORWARD-TSN.
    pub fn put_message(entries: &mut Vec<u8>, stream: u16, unordered: bool, mid: Mid) {
        entries.extend_from_slice(&stream.to_be_bytes());
        entries.extend_from_slice(&u16::from(unordered).to_be_bytes());
        entries.extend_from_slice(&mid.raw().to_be_bytes());
    }

    /// Returns the entries of a FORWARD TSN: streams and the last SSN skipped on each.
    pub fn streams(&self) -> impl Iterator<Item = (u16, Ssn)> + 'a {
        self.entries.chunks_exact(4).map(|b| (u16_at(b, 0), Ssn::new(u16_at(b, 2))))
    }

    /// Returns the entries of an I-FORWARD-TSN: stream, whether unordered, and the last MID skipped.
    pub fn messages(&self) -> impl Iterator<Item = (u16, bool, Mid)> + 'a {
        let entry = |b| (u16_at(b, 0), u16_at(b, 2) & 1 != 0, Mid::new(u32_at(b, 4)));
        self.entries.chunks_exact(8).map(entry)
    }
}

impl<'a> Raw<'a> {
    /// Parses the chunk. An error concerns the chunk alone, and the iteration over the packet can
    /// continue.
    pub fn parse(&self) -> Result<Chunk<'a>, WireError> {
        let value = &self.whole[TLV_HEADER..];
        let reflected = self.flags & T_BIT != 0;
        Ok(match self.kind {
            kind::DATA => Chunk::Data(Data::parse(self.flags, value)?),
            kind::INIT => Chunk::Init(Init::parse(value)?),
            kind::INIT_ACK => Chunk::InitAck(Init::parse(value)?),
            kind::SACK => Chunk::Sack(Sack::parse(self.flags, value)?),
            kind::NR_SACK => Chunk::NrSack(NrSack::parse(value)?),
            kind::HEARTBEAT => Chunk::Heartbeat(value),
            kind::HEARTBEAT_ACK => Chunk::HeartbeatAck(value),
            kind::ABORT => Chunk::Abort { reflected, causes: value },
            kind::SHUTDOWN => {
                Chunk::Shutdown(Tsn::new(u32_at(at_least("a SHUTDOWN chunk", 4, value)?, 0)))
            }
            kind::SHUTDOWN_ACK => Chunk::ShutdownAck,
            kind::ERROR => Chunk::Error(value),
            kind::COOKIE_ECHO => Chunk::CookieEcho(value),
            kind::COOKIE_ACK => Chunk::CookieAck,
            kind::ECNE => Chunk::Ecne(Tsn::new(u32_at(at_least("an ECNE chunk", 4, value)?, 0))),
            kind::CWR => Chunk::Cwr(Tsn::new(u32_at(at_least("a CWR chunk", 4, value)?, 0))),
            kind::SHUTDOWN_COMPLETE => Chunk::ShutdownComplete { reflected },
            kind::I_DATA => Chunk::IData(IData::parse(self.flags, value)?),
            kind::FORWARD_TSN => Chunk::ForwardTsn(ForwardTsn::parse(value)?),
            kind::I_FORWARD_TSN => Chunk::IForwardTsn(ForwardTsn::parse(value)?),
            kind::RE_CONFIG => Chunk::ReConfig(value),
            kind::ASCONF => {
                let value = at_least("an ASCONF chunk", 4, value)?;
                Chunk::Asconf(u32_at(value, 0), &value[4..])
            }
            kind::ASCONF_ACK => {
                let value = at_least("an ASCONF-ACK chunk", 4, value)?;
                Chunk::AsconfAck(u32_at(value, 0), &value[4..])
            }
            kind::AUTH => {
                let value = at_least("an AUTH chunk", 4, value)?;
                Chunk::Auth(u16_at(value, 0), u16_at(value, 2), &value[4..])
            }
            kind::PAD => Chunk::Pad,
            unknown => {
                Chunk::Unknown { action: Unknown::from_bits(unknown >> 6), whole: self.whole }
            }
        })
    }

    /// Returns the handling that the type requires where it is unknown.
    pub const fn unknown(&self) -> Unknown {
        Unknown::from_bits(self.kind >> 6)
    }
}

/// Appends a chunk of any type from the parts of its value.
pub fn put(out: &mut Vec<u8>, kind: u8, flags: u8, parts: &[&[u8]]) {
    let start = out.len();
    out.extend_from_slice(&[kind, flags, 0, 0]);
    for part in parts {
        out.extend_from_slice(part);
    }
    let max = usize::from(u16::MAX);
    out.truncate(start + max.min(out.len() - start));
    let length = (out.len() - start) as u16;
    out[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
    pad(out, start);
}

impl Chunk<'_> {
    /// Appends the chunk and its padding. INIT is written by
    /// [`InitParameters::emit`](super::InitParameters::emit), SACK by [`sack::emit`](super::sack::emit).
    pub fn emit(&self, out: &mut Vec<u8>) {
        let bit = |reflected: bool| if reflected { T_BIT } else { 0 };
        match *self {
            Chunk::Data(data) => data.emit(out),
            Chunk::IData(data) => data.emit(out),
            Chunk::Init(init) => super::InitParameters::default().emit(out, kind::INIT, &init),
            Chunk::InitAck(init) => {
                super::InitParameters::default().emit(out, kind::INIT_ACK, &init);
            }
            Chunk::Sack(sack) => {
                let (ack, a_rwnd) = (sack.cumulative_tsn_ack, sack.a_rwnd);
                let start = out.len();
                super::sack::emit(out, ack, a_rwnd, sack.gaps(), sack.duplicates());
                super::sack::set_packets(out, start, sack.packets);
            }
            Chunk::NrSack(sack) => super::sack::emit_final(
                out,
                sack.cumulative_tsn_ack,
                sack.a_rwnd,
                sack.final_gaps(),
                sack.duplicates(),
            ),
            Chunk::Heartbeat(value) => put(out, kind::HEARTBEAT, 0, &[value]),
            Chunk::HeartbeatAck(value) => put(out, kind::HEARTBEAT_ACK, 0, &[value]),
            Chunk::Abort { reflected, causes } => {
                put(out, kind::ABORT, bit(reflected), &[without_last_padding(causes)]);
            }
            Chunk::Shutdown(tsn) => put(out, kind::SHUTDOWN, 0, &[&tsn.raw().to_be_bytes()]),
            Chunk::ShutdownAck => put(out, kind::SHUTDOWN_ACK, 0, &[]),
            Chunk::Error(causes) => put(out, kind::ERROR, 0, &[without_last_padding(causes)]),
            Chunk::CookieEcho(cookie) => put(out, kind::COOKIE_ECHO, 0, &[cookie]),
            Chunk::CookieAck => put(out, kind::COOKIE_ACK, 0, &[]),
            Chunk::Ecne(tsn) => put(out, kind::ECNE, 0, &[&tsn.raw().to_be_bytes()]),
            Chunk::Cwr(tsn) => put(out, kind::CWR, 0, &[&tsn.raw().to_be_bytes()]),
            Chunk::ShutdownComplete { reflected } => {
                put(out, kind::SHUTDOWN_COMPLETE, bit(reflected), &[]);
            }
            Chunk::ForwardTsn(forward) => {
                let tsn = forward.new_cumulative_tsn.raw().to_be_bytes();
                put(out, kind::FORWARD_TSN, 0, &[&tsn, forward.entries]);
            }
            Chunk::IForwardTsn(forward) => {
                let tsn = forward.new_cumulative_tsn.raw().to_be_bytes();
                put(out, kind::I_FORWARD_TSN, 0, &[&tsn, forward.entries]);
            }
            Chunk::ReConfig(value) => put(out, kind::RE_CONFIG, 0, &[without_last_padding(value)]),
            Chunk::Asconf(serial, value) => {
                let list = without_last_padding(value);
                put(out, kind::ASCONF, 0, &[&serial.to_be_bytes(), list]);
            }
            Chunk::AsconfAck(serial, value) => {
                let list = without_last_padding(value);
                put(out, kind::ASCONF_ACK, 0, &[&serial.to_be_bytes(), list]);
            }
            Chunk::Auth(key, hmac, value) => {
                put(out, kind::AUTH, 0, &[&key.to_be_bytes(), &hmac.to_be_bytes(), value]);
            }
            Chunk::Pad => put(out, kind::PAD, 0, &[]),
            Chunk::Unknown { whole, .. } => {
                let start = out.len();
                out.extend_from_slice(whole);
                pad(out, start);
            }
        }
    }

    /// Returns the causes of an ABORT or ERROR.
    pub fn causes(&self) -> Causes<'_> {
        match self {
            Chunk::Abort { causes, .. } | Chunk::Error(causes) => Causes::new(causes),
            _ => Causes::new(&[]),
        }
    }

    /// Parses every part that is otherwise parsed lazily; for tests and fuzzing.
    pub fn probe(&self) -> usize {
        match self {
            Chunk::Init(init) | Chunk::InitAck(init) => {
                let read = super::InitParameters::read(init, true);
                init.parameters().count() + usize::from(read.is_ok())
            }
            Chunk::NrSack(sack) => sack.gaps().count() + sack.duplicates().count(),
            Chunk::Sack(sack) => sack.gaps().count() + sack.duplicates().count(),
            Chunk::Heartbeat(value) | Chunk::HeartbeatAck(value) | Chunk::ReConfig(value) => {
                Parameters::new(value).count()
            }
            Chunk::Abort { .. } | Chunk::Error(_) => self.causes().count(),
            Chunk::ForwardTsn(forward) => forward.streams().count(),
            Chunk::IForwardTsn(forward) => forward.messages().count(),
            _ => 0,
        }
    }
}

/// Returns the Heartbeat Info of a HEARTBEAT or HEARTBEAT ACK: its first parameter (RFC 9260 section
/// 3.3.5).
pub fn heartbeat_info(value: &[u8]) -> Option<&[u8]> {
    match Parameters::new(value).next()? {
        Ok(Parameter::HeartbeatInfo(info)) => Some(info),
        _ => None,
    }
}

/// Returns a list of one cause.
pub fn causes(cause: Cause<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    cause.emit(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::super::data::DataFlags;
    use super::super::packet::Packet;
    use super::super::sack::{self, Gap};
    use super::*;
    use proptest::prelude::*;

    /// RFC 9260 section 3.2: the two highest bits of an unknown type.
    #[test]
    fn unknown_types_state_their_handling() {
        for (kind, skip, report) in
            [(62, false, false), (126, false, true), (190, true, false), (254, true, true)]
        {
            let whole = [kind, 0, 0, 4];
            let raw = Raw { kind, flags: 0, whole: &whole };
            let action = Unknown { skip, report };
            assert_eq!(raw.parse(), Ok(Chunk::Unknown { action, whole: &whole }));
        }
    }

    /// RFC 9260 section 3.2: the padding of the last parameter is not counted, that of others is.
    #[test]
    fn the_last_padding_is_not_counted() {
        let mut causes = causes(Cause::UserAbort(b"x"));
        Cause::UserAbort(b"y").emit(&mut causes);
        let mut out = Vec::new();
        Chunk::Error(&causes).emit(&mut out);
        assert_eq!((out.len(), out[..4].to_vec()), (20, vec![9, 0, 0, 4 + 8 + 5]));
        let fixed = Init::fixed(1, 2000, (1, 1), Tsn::new(1));
        let extensions = vec![1, 2, 3, 4, 5];
        let parameters =
            super::super::InitParameters { extensions, ecn: true, ..Default::default() };
        let mut out = Vec::new();
        parameters.emit(&mut out, kind::INIT, &fixed);
        assert_eq!((out.len(), out[3]), (20 + 4 + 12, 20 + 4 + 9));
    }

    /// RFC 9260 section 3.3.4: the blocks of the example, and a count that does not match the length.
    #[test]
    fn gap_blocks_are_offsets() {
        let mut out = Vec::new();
        let gaps = [Gap { start: 2, end: 3 }, Gap { start: 5, end: 5 }];
        sack::emit(&mut out, Tsn::new(12), 4660, gaps.into_iter(), [Tsn::new(9)].into_iter());
        let expected = [
            3, 0, 0, 28, 0, 0, 0, 12, 0, 0, 0x12, 0x34, 0, 2, 0, 1, 0, 2, 0, 3, 0, 5, 0, 5, 0, 0,
            0, 9,
        ];
        assert_eq!(out, expected);
        let mut wrong = out.clone();
        wrong[13] = 3;
        let raw = Raw { kind: kind::SACK, flags: 0, whole: &wrong };
        assert!(matches!(raw.parse(), Err(WireError::Length { .. })));
    }

    fn list<'a>(bytes: &'a [u8], numbers: (u32, u16, u16, u32, u8)) -> Vec<Chunk<'a>> {
        let (tsn, stream, ssn, ppid, flags) = numbers;
        let tsn = Tsn::new(tsn);
        let flags = DataFlags(flags & 0x0f);
        vec![
            Chunk::Data(Data { flags, tsn, stream, ssn: Ssn::new(ssn), ppid, user: bytes }),
            Chunk::IData(IData {
                flags,
                tsn,
                stream,
                mid: Mid::new(ppid),
                ppid_or_fsn: 5,
                user: bytes,
            }),
            Chunk::Heartbeat(bytes),
            Chunk::HeartbeatAck(bytes),
            Chunk::Abort { reflected: ssn & 1 != 0, causes: bytes },
            Chunk::Shutdown(tsn),
            Chunk::ShutdownAck,
            Chunk::Error(bytes),
            Chunk::CookieEcho(bytes),
            Chunk::CookieAck,
            Chunk::Ecne(tsn),
            Chunk::Cwr(tsn),
            Chunk::ShutdownComplete { reflected: ssn & 1 != 0 },
            Chunk::ForwardTsn(ForwardTsn::new(tsn, &bytes[..bytes.len() & !3])),
            Chunk::IForwardTsn(ForwardTsn::new(tsn, &bytes[..bytes.len() & !7])),
            Chunk::ReConfig(bytes),
            Chunk::Asconf(ppid, bytes),
            Chunk::AsconfAck(ppid, bytes),
            Chunk::Auth(stream, ssn, bytes),
            Chunk::Pad,
        ]
    }

    proptest! {
        #[test]
        fn emitted_bytes_are_parsed_back(
            bytes in proptest::collection::vec(any::<u8>(), 1..60),
            numbers in any::<(u32, u16, u16, u32, u8)>(),
        ) {
            let chunks = list(&bytes, numbers);
            let mut out = vec![0; 12];
            for chunk in &chunks {
                chunk.emit(&mut out);
                prop_assert_eq!(out.len() % 4, 0);
            }
            let packet = Packet::parse_unchecked(&out).unwrap();
            let read: Result<Vec<_>, _> = packet.chunks().map(|raw| raw.unwrap().parse()).collect();
            prop_assert_eq!(read.unwrap(), chunks);
        }

        #[test]
        fn sacks_are_read_as_written(
            cum in any::<u32>(), a_rwnd in any::<u32>(),
            gaps in proptest::collection::vec(any::<(u16, u16)>(), 0..20),
            duplicates in proptest::collection::vec(any::<u32>(), 0..20),
        ) {
            let gaps: Vec<Gap> = gaps.into_iter().map(|(start, end)| Gap { start, end }).collect();
            let duplicates: Vec<Tsn> = duplicates.into_iter().map(Tsn::new).collect();
            let mut out = Vec::new();
            let lists = (gaps.iter().copied(), duplicates.iter().copied());
            sack::emit(&mut out, Tsn::new(cum), a_rwnd, lists.0, lists.1);
            let raw = Raw { kind: kind::SACK, flags: 0, whole: &out };
            let Ok(Chunk::Sack(read)) = raw.parse() else { panic!() };
            prop_assert_eq!((read.cumulative_tsn_ack.raw(), read.a_rwnd), (cum, a_rwnd));
            prop_assert_eq!(read.gaps().collect::<Vec<_>>(), gaps);
            prop_assert_eq!(read.duplicates().collect::<Vec<_>>(), duplicates);
        }
    }
}
