//! INIT and INIT ACK (RFC 9260 sections 3.3.2 and 3.3.3).

use super::auth::{AuthParameters, MAX_CHUNK_TYPES};
use super::chunk::kind as chunks;
use super::parameter::{Parameter, Parameters, kind};
use super::{TLV_HEADER, WireError, at_least, pad, u16_at, u32_at};
use crate::numbers::Tsn;
use std::net::IpAddr;

/// Minimum a_rwnd of an INIT, in bytes (RFC 9260 section 3.3.2).
pub const MIN_A_RWND: u32 = 1500;
/// Maximum number of parameters of one INIT. A packet with more is refused.
pub const MAX_PARAMETERS: usize = 128;
/// Maximum number of addresses accepted from an INIT. The rest is ignored.
pub const MAX_ADDRESSES: usize = 16;
/// Maximum number of bytes of unrecognized parameters that are reported. The rest is ignored.
pub const MAX_REPORTED: usize = 256;

/// An INIT or INIT ACK chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Init<'a> {
    /// The Verification Tag of packets to the sender.
    pub initiate_tag: u32,
    /// Advertised Receiver Window Credit.
    pub a_rwnd: u32,
    /// Number of streams that the sender requests to send on.
    pub outbound_streams: u16,
    /// Maximum number of streams that the sender can receive on.
    pub inbound_streams: u16,
    /// The sender's first TSN.
    pub initial_tsn: Tsn,
    parameters: &'a [u8],
}

impl<'a> Init<'a> {
    pub(super) fn parse(value: &'a [u8]) -> Result<Self, WireError> {
        let value = at_least("an INIT chunk", 16, value)?;
        Ok(Init {
            initiate_tag: u32_at(value, 0),
            a_rwnd: u32_at(value, 4),
            outbound_streams: u16_at(value, 8),
            inbound_streams: u16_at(value, 10),
            initial_tsn: Tsn::new(u32_at(value, 12)),
            parameters: &value[16..],
        })
    }

    /// Returns its parameters.
    pub fn parameters(&self) -> Parameters<'a> {
        Parameters::new(self.parameters)
    }

    /// Checks the values of the fixed fields (RFC 9260 section 3.3.2). A tag of zero is a separate
    /// error, because it is not answered.
    pub fn check(&self) -> Result<(), WireError> {
        if self.outbound_streams == 0 || self.inbound_streams == 0 {
            return Err(WireError::Value { what: "a number of streams above zero", got: 0 });
        }
        if self.a_rwnd < MIN_A_RWND {
            return Err(WireError::Value { what: "an a_rwnd of 1500 or more", got: self.a_rwnd });
        }
        Ok(())
    }
}

/// The parameters of an INIT or INIT ACK, parsed or to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InitParameters {
    /// The sender's addresses; if empty, the source address of the packet.
    pub addresses: Vec<IpAddr>,
    /// The State Cookie.
    pub cookie: Option<Vec<u8>>,
    /// Longer life requested for a cookie, in milliseconds.
    pub cookie_preservative: Option<u32>,
    /// Whether the sender can use IPv4 and IPv6 addresses.
    pub address_types: Option<(bool, bool)>,
    /// Whether ECN is offered.
    pub ecn: bool,
    /// The error detection method with which checksums of zero are accepted (RFC 9653 section 4).
    pub zero_checksum: Option<u32>,
    /// Whether FORWARD TSN is supported (RFC 3758).
    pub forward_tsn: bool,
    /// Chunk types of supported extensions (RFC 5061), without repetition.
    pub extensions: Vec<u8>,
    /// Support of authenticated chunks (RFC 4895).
    pub auth: Option<AuthParameters>,
    /// Complete parameters to report, each padded.
    pub unrecognized: Vec<u8>,
    /// Whether there was a host name, which is answered with an ABORT.
    pub host_name: bool,
}

impl InitParameters {
    /// Parses all parameters. A State Cookie is copied only with `with_cookie`, since an INIT has none.
    pub fn read(init: &Init<'_>, with_cookie: bool) -> Result<InitParameters, WireError> {
        let mut found = InitParameters::default();
        for (count, parameter) in init.parameters().enumerate() {
            if count >= MAX_PARAMETERS {
                return Err(WireError::TooMany { what: "parameters", limit: MAX_PARAMETERS });
            }
            match parameter? {
                Parameter::Address(address)
                    if found.addresses.len() < MAX_ADDRESSES
                        && !found.addresses.contains(&address) =>
                {
                    found.addresses.push(address);
                }
                Parameter::StateCookie(cookie) if with_cookie => {
                    found.cookie = Some(cookie.to_vec());
                }
                Parameter::CookiePreservative(millis) => found.cookie_preservative = Some(millis),
                Parameter::SupportedAddressTypes { ipv4, ipv6 } => {
                    found.address_types = Some((ipv4, ipv6));
                }
                Parameter::EcnCapable => found.ecn = true,
                Parameter::ForwardTsnSupported => found.forward_tsn = true,
                Parameter::SupportedExtensions(types) => {
                    // A type is one octet, so further ones are repetitions.
                    for &kind in types.iter().take(MAX_CHUNK_TYPES) {
                        if !found.extensions.contains(&kind) {
                            found.extensions.push(kind);
                        }
                    }
                }
                Parameter::Other(
                    which @ (kind::RANDOM | kind::CHUNK_LIST | kind::REQUESTED_HMAC),
                    value,
                ) => found.auth.get_or_insert_default().read(which, value)?,
                Parameter::Other(kind::ZERO_CHECKSUM, value) if value.len() == 4 => {
                    found.zero_checksum = Some(u32_at(value, 0));
                }
                Parameter::HostName => found.host_name = true,
                Parameter::Unknown { action, whole } => {
                    // RFC 9260 section 3.2.2.
                    if action.report && found.unrecognized.len() + whole.len() <= MAX_REPORTED {
                        found.unrecognized.extend_from_slice(whole);
                        pad(&mut found.unrecognized, 0);
                    }
                    if !action.skip {
                        break;
                    }
                }
                _ => {}
            }
        }
        Ok(found)
    }

    /// Appends a chunk of type `kind` (INIT or INIT ACK) with these parameters.
    pub fn emit(&self, out: &mut Vec<u8>, chunk_kind: u8, fixed: &Init<'_>) {
        let start = out.len();
        out.extend_from_slice(&[chunk_kind, 0, 0, 0]);
        out.extend_from_slice(&fixed.initiate_tag.to_be_bytes());
        out.extend_from_slice(&fixed.a_rwnd.to_be_bytes());
        out.extend_from_slice(&fixed.outbound_streams.to_be_bytes());
        out.extend_from_slice(&fixed.inbound_streams.to_be_bytes());
        out.extend_from_slice(&fixed.initial_tsn.raw().to_be_bytes());
        if let Some(cookie) = &self.cookie {
            Parameter::StateCookie(cookie).emit(out);
        }
        for &address in &self.addresses {
            Parameter::Address(address).emit(out);
        }
        if let Some((ipv4, ipv6)) = self.address_types {
            Parameter::SupportedAddressTypes { ipv4, ipv6 }.emit(out);
        }
        if let Some(millis) = self.cookie_preservative {
            Parameter::CookiePreservative(millis).emit(out);
        }
        if self.ecn {
            Parameter::EcnCapable.emit(out);
        }
        if let Some(method) = self.zero_checksum {
            Parameter::Other(kind::ZERO_CHECKSUM, &method.to_be_bytes()).emit(out);
        }
        if self.forward_tsn {
            Parameter::ForwardTsnSupported.emit(out);
        }
        if !self.extensions.is_empty() {
            Parameter::SupportedExtensions(&self.extensions).emit(out);
        }
        if let Some(auth) = &self.auth {
            auth.emit(out);
        }
        for parameter in Parameters::new(&self.unrecognized).flatten() {
            if let Parameter::Unknown { whole, .. } = parameter {
                Parameter::Unrecognized(whole).emit(out);
            }
        }
        let list = super::without_last_padding(&out[start + 20..]).len();
        let length = (20 + list) as u16;
        out[start + 2..start + TLV_HEADER].copy_from_slice(&length.to_be_bytes());
    }

    /// Returns the length in bytes of an INIT or INIT ACK with these parameters, with its padding.
    pub(crate) fn len(&self) -> usize {
        let mut out = Vec::new();
        self.emit(&mut out, chunks::INIT_ACK, &Init::fixed(0, 0, (0, 0), Tsn::new(0)));
        out.len().next_multiple_of(4)
    }

    /// Returns whether the parameters list a chunk type as supported.
    pub fn takes(&self, chunk_kind: u8) -> bool {
        self.extensions.contains(&chunk_kind)
            || (chunk_kind == chunks::FORWARD_TSN && self.forward_tsn)
    }

    /// Returns the error for an INIT ACK without a cookie.
    pub const fn missing_cookie() -> WireError {
        WireError::Missing { parameter: kind::STATE_COOKIE }
    }
}

/// Creation of an INIT's fixed part.
impl Init<'_> {
    /// Creates an INIT without parameters.
    pub const fn fixed(
        initiate_tag: u32,
        a_rwnd: u32,
        streams: (u16, u16),
        initial_tsn: Tsn,
    ) -> Init<'static> {
        Init {
            initiate_tag,
            a_rwnd,
            outbound_streams: streams.0,
            inbound_streams: streams.1,
            initial_tsn,
            parameters: &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::chunk::Chunk;
    use super::super::packet::Packet;
    use super::*;
    use proptest::prelude::*;

    fn read_back(bytes: &[u8]) -> (Init<'_>, InitParameters) {
        let whole = [&[0; 12], bytes].concat();
        let whole: &'static [u8] = whole.leak();
        let packet = Packet::parse_unchecked(whole).unwrap();
        let raw = packet.chunks().next().unwrap().unwrap();
        match raw.parse().unwrap() {
            Chunk::Init(init) | Chunk::InitAck(init) => {
                (init, InitParameters::read(&init, true).unwrap())
            }
            other => panic!("{other:?}"),
        }
    }

    /// RFC 9260 section 3.2.2: unknown parameters are reported as their type requires, and parameters
    /// after one that stops are not parsed.
    #[test]
    fn unknown_parameters_are_reported() {
        let mut out = Vec::new();
        let fixed = Init::fixed(7, 9000, (3, 4), Tsn::new(5));
        InitParameters::default().emit(&mut out, chunks::INIT, &fixed);
        out.extend_from_slice(&[0xff, 1, 0, 6, 1, 2, 0, 0]);
        out.extend_from_slice(&[0xbf, 1, 0, 4]);
        out.extend_from_slice(&[0x7f, 1, 0, 4]);
        out.extend_from_slice(&[0xff, 2, 0, 4]);
        let length = out.len() as u16;
        out[2..4].copy_from_slice(&length.to_be_bytes());
        let (_, found) = read_back(&out);
        assert_eq!(found.unrecognized, [0xff, 1, 0, 6, 1, 2, 0, 0, 0x7f, 1, 0, 4]);
        let mut answer = Vec::new();
        found.emit(&mut answer, chunks::INIT_ACK, &fixed);
        assert_eq!(answer[20..32], [0, 8, 0, 10, 0xff, 1, 0, 6, 1, 2, 0, 0]);
    }

    /// RFC 9260 section 3.3.2: invalid values of the fixed part are refused.
    #[test]
    fn fixed_values_are_checked() {
        let good = Init::fixed(7, 1500, (1, 1), Tsn::new(5));
        assert_eq!(good.check(), Ok(()));
        assert!(Init { a_rwnd: 1499, ..good }.check().is_err());
        assert!(Init { outbound_streams: 0, ..good }.check().is_err());
        assert!(Init { inbound_streams: 0, ..good }.check().is_err());
    }

    proptest! {
        #[test]
        fn emitted_bytes_are_parsed_back(
            numbers in any::<(u32, u32, u16, u16, u32)>(),
            addresses in proptest::collection::vec(any::<u32>(), 0..MAX_ADDRESSES),
            cookie in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..300)),
            flags in any::<(bool, bool, Option<(bool, bool)>, Option<u32>)>(),
            types in proptest::collection::btree_set(any::<u8>(), 0..6),
        ) {
            let addresses: std::collections::BTreeSet<u32> = addresses.into_iter().collect();
            let value = InitParameters {
                addresses: addresses.into_iter().map(|n| IpAddr::V4(n.into())).collect(),
                cookie,
                cookie_preservative: flags.3,
                address_types: flags.2,
                ecn: flags.0,
                forward_tsn: flags.1,
                zero_checksum: flags.3,
                extensions: types.into_iter().collect(),
                auth: flags.0.then(|| AuthParameters {
                    random: vec![7; 32],
                    chunks: flags.1.then(|| vec![193, 128, 1]),
                    hmacs: vec![3, 1],
                }),
                unrecognized: Vec::new(),
                host_name: false,
            };
            let (tag, a_rwnd, os, mis, tsn) = numbers;
            let fixed = Init::fixed(tag, a_rwnd, (os, mis), Tsn::new(tsn));
            let mut out = Vec::new();
            value.emit(&mut out, chunks::INIT, &fixed);
            let (init, read) = read_back(&out);
            prop_assert_eq!(read, value);
            prop_assert_eq!(Init { parameters: &[], ..init }, fixed);
        }
    }
}
