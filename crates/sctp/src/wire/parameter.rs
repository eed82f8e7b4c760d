//! Parameters of INIT, INIT ACK, HEARTBEAT and the extensions (RFC 9260 sections 3.2.1 and 3.3.2.1).

use super::{Tlvs, Unknown, WireError, put_tlv, u16_at, u32_at};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Parameter types.
pub mod kind {
    #![allow(missing_docs)]
    pub const HEARTBEAT_INFO: u16 = 1;
    pub const IPV4_ADDRESS: u16 = 5;
    pub const IPV6_ADDRESS: u16 = 6;
    pub const STATE_COOKIE: u16 = 7;
    pub const UNRECOGNIZED_PARAMETER: u16 = 8;
    pub const COOKIE_PRESERVATIVE: u16 = 9;
    pub const HOST_NAME_ADDRESS: u16 = 11;
    pub const SUPPORTED_ADDRESS_TYPES: u16 = 12;
    /// RFC 6525.
    pub const OUTGOING_RESET: u16 = 13;
    pub const INCOMING_RESET: u16 = 14;
    pub const TSN_RESET: u16 = 15;
    pub const RECONFIG_RESPONSE: u16 = 16;
    pub const ADD_OUTGOING: u16 = 17;
    pub const ADD_INCOMING: u16 = 18;
    pub const ECN_CAPABLE: u16 = 0x8000;
    /// RFC 9653.
    pub const ZERO_CHECKSUM: u16 = 0x8001;
    /// RFC 4895.
    pub const RANDOM: u16 = 0x8002;
    pub const CHUNK_LIST: u16 = 0x8003;
    pub const REQUESTED_HMAC: u16 = 0x8004;
    /// RFC 4820.
    pub const PADDING: u16 = 0x8005;
    /// RFC 5061 section 4.2.7.
    pub const SUPPORTED_EXTENSIONS: u16 = 0x8008;
    /// RFC 3758 section 3.1.
    pub const FORWARD_TSN_SUPPORTED: u16 = 0xc000;
    pub const ADD_ADDRESS: u16 = 0xc001;
    pub const DELETE_ADDRESS: u16 = 0xc002;
    pub const ERROR_CAUSE_INDICATION: u16 = 0xc003;
    pub const SET_PRIMARY: u16 = 0xc004;
    pub const SUCCESS_INDICATION: u16 = 0xc005;
    pub const ADAPTATION_LAYER: u16 = 0xc006;
}

/// A parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Parameter<'a> {
    /// The contents of a HEARTBEAT, which its answer returns.
    HeartbeatInfo(&'a [u8]),
    /// An address of the sender.
    Address(IpAddr),
    /// A State Cookie.
    StateCookie(&'a [u8]),
    /// A parameter of the local INIT that the peer did not recognise, complete.
    Unrecognized(&'a [u8]),
    /// A request for a longer life of a cookie, in milliseconds.
    CookiePreservative(u32),
    /// A host name: deprecated, answered with an ABORT.
    HostName,
    /// The address types that the sender can use.
    SupportedAddressTypes {
        /// IPv4.
        ipv4: bool,
        /// IPv6.
        ipv6: bool,
    },
    /// The sender supports ECN.
    EcnCapable,
    /// The sender supports FORWARD TSN (RFC 3758).
    ForwardTsnSupported,
    /// Chunk types of extensions that the sender supports (RFC 5061).
    SupportedExtensions(&'a [u8]),
    /// RFC 4820, and known parameters of extensions that are not used here.
    Other(u16, &'a [u8]),
    /// A parameter of an unknown type.
    Unknown {
        /// The required handling.
        action: Unknown,
        /// The parameter with its header.
        whole: &'a [u8],
    },
}

/// An iterator over parameters. It ends after an error.
#[derive(Clone, Copy, Debug)]
pub struct Parameters<'a>(Tlvs<'a>);

impl<'a> Parameters<'a> {
    /// Creates an iterator over the parameters in `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Parameters(Tlvs { rest: bytes })
    }
}

fn fixed(what: &'static str, expected: usize, value: &[u8]) -> Result<(), WireError> {
    if value.len() == expected {
        Ok(())
    } else {
        Err(WireError::Length { what, expected, got: value.len() })
    }
}

impl<'a> Iterator for Parameters<'a> {
    type Item = Result<Parameter<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let tlv = match self.0.next("a parameter")? {
            Ok(tlv) => tlv,
            Err(error) => return Some(Err(error)),
        };
        let value = tlv.value;
        Some(match tlv.kind {
            kind::HEARTBEAT_INFO => Ok(Parameter::HeartbeatInfo(value)),
            kind::IPV4_ADDRESS => fixed("an IPv4 address", 4, value)
                .map(|()| Parameter::Address(IpAddr::V4(Ipv4Addr::from(u32_at(value, 0))))),
            kind::IPV6_ADDRESS => match <[u8; 16]>::try_from(value) {
                Ok(bytes) => Ok(Parameter::Address(IpAddr::V6(Ipv6Addr::from(bytes)))),
                Err(_) => {
                    let (what, expected) = ("an IPv6 address", 16);
                    Err(WireError::Length { what, expected, got: value.len() })
                }
            },
            kind::STATE_COOKIE => Ok(Parameter::StateCookie(value)),
            kind::UNRECOGNIZED_PARAMETER => Ok(Parameter::Unrecognized(value)),
            kind::COOKIE_PRESERVATIVE => fixed("a cookie preservative", 4, value)
                .map(|()| Parameter::CookiePreservative(u32_at(value, 0))),
            kind::HOST_NAME_ADDRESS => Ok(Parameter::HostName),
            kind::SUPPORTED_ADDRESS_TYPES => {
                let has = |kind| value.chunks_exact(2).any(|b| u16_at(b, 0) == kind);
                let (ipv4, ipv6) = (has(kind::IPV4_ADDRESS), has(kind::IPV6_ADDRESS));
                Ok(Parameter::SupportedAddressTypes { ipv4, ipv6 })
            }
            kind::ECN_CAPABLE => Ok(Parameter::EcnCapable),
            kind::FORWARD_TSN_SUPPORTED => Ok(Parameter::ForwardTsnSupported),
            kind::SUPPORTED_EXTENSIONS => Ok(Parameter::SupportedExtensions(value)),
            kind::OUTGOING_RESET..=kind::ADD_INCOMING
            | kind::ADD_ADDRESS..=kind::SUCCESS_INDICATION
            | kind::PADDING
            | kind::ZERO_CHECKSUM
            | kind::RANDOM
            | kind::CHUNK_LIST
            | kind::REQUESTED_HMAC
            | kind::ADAPTATION_LAYER => Ok(Parameter::Other(tlv.kind, value)),
            unknown => {
                let action = Unknown::from_bits((unknown >> 14) as u8);
                Ok(Parameter::Unknown { action, whole: tlv.whole })
            }
        })
    }
}

impl Parameter<'_> {
    /// Appends the parameter and its padding.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match *self {
            Parameter::HeartbeatInfo(info) => put_tlv(out, kind::HEARTBEAT_INFO, &[info]),
            Parameter::Address(IpAddr::V4(v4)) => {
                put_tlv(out, kind::IPV4_ADDRESS, &[&v4.octets()]);
            }
            Parameter::Address(IpAddr::V6(v6)) => {
                put_tlv(out, kind::IPV6_ADDRESS, &[&v6.octets()]);
            }
            Parameter::StateCookie(cookie) => put_tlv(out, kind::STATE_COOKIE, &[cookie]),
            Parameter::Unrecognized(whole) => {
                put_tlv(out, kind::UNRECOGNIZED_PARAMETER, &[whole]);
            }
            Parameter::CookiePreservative(millis) => {
                put_tlv(out, kind::COOKIE_PRESERVATIVE, &[&millis.to_be_bytes()]);
            }
            Parameter::HostName => put_tlv(out, kind::HOST_NAME_ADDRESS, &[&[0]]),
            Parameter::SupportedAddressTypes { ipv4, ipv6 } => {
                let both = [kind::IPV4_ADDRESS.to_be_bytes(), kind::IPV6_ADDRESS.to_be_bytes()];
                let (first, second): (&[u8], &[u8]) =
                    (if ipv4 { &both[0] } else { &[] }, if ipv6 { &both[1] } else { &[] });
                put_tlv(out, kind::SUPPORTED_ADDRESS_TYPES, &[first, second]);
            }
            Parameter::EcnCapable => put_tlv(out, kind::ECN_CAPABLE, &[]),
            Parameter::ForwardTsnSupported => put_tlv(out, kind::FORWARD_TSN_SUPPORTED, &[]),
            Parameter::SupportedExtensions(types) => {
                put_tlv(out, kind::SUPPORTED_EXTENSIONS, &[types]);
            }
            Parameter::Other(kind, value) => put_tlv(out, kind, &[value]),
            Parameter::Unknown { whole, .. } => {
                out.extend_from_slice(whole);
                let padding = super::padded(whole.len()) - whole.len();
                out.extend_from_slice(&[0; 3][..padding]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 9260 section 3.2.1: the two highest bits of an unknown type.
    #[test]
    fn unknown_types_state_their_handling() {
        for (high, skip, report) in
            [(0x00, false, false), (0x40, false, true), (0x80, true, false), (0xc0, true, true)]
        {
            let bytes = [high | 0x3f, 0xf0, 0, 5, 1, 0, 0, 0];
            let found = Parameters::new(&bytes).next().unwrap().unwrap();
            let action = Unknown { skip, report };
            assert_eq!(found, Parameter::Unknown { action, whole: &bytes[..5] });
        }
    }

    #[test]
    fn a_wrong_length_is_an_error() {
        let error = Parameters::new(&[0, 5, 0, 7, 1, 2, 3]).next().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "expected an IPv4 address of 4 bytes, got 3");
        assert!(Parameters::new(&[0, 7, 0, 3]).next().unwrap().is_err());
        assert!(Parameters::new(&[0, 7, 0]).next().unwrap().is_err());
        assert!(Parameters::new(&[0, 7, 0, 9, 0, 0, 0, 0]).next().unwrap().is_err());
    }

    fn parameter(bytes: &[u8], choice: u8, number: u32) -> Parameter<'_> {
        match choice % 11 {
            0 => Parameter::HeartbeatInfo(bytes),
            1 => Parameter::Address(IpAddr::V4(number.into())),
            2 => Parameter::Address(IpAddr::V6((u128::from(number) << 64).into())),
            3 => Parameter::StateCookie(bytes),
            4 => Parameter::Unrecognized(bytes),
            5 => Parameter::CookiePreservative(number),
            6 => Parameter::SupportedAddressTypes { ipv4: number & 1 != 0, ipv6: number & 2 != 0 },
            7 => Parameter::EcnCapable,
            8 => Parameter::ForwardTsnSupported,
            9 => Parameter::SupportedExtensions(bytes),
            _ => Parameter::Other(kind::PADDING, bytes),
        }
    }

    proptest! {
        #[test]
        fn emitted_bytes_are_parsed_back(
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
            choices in proptest::collection::vec((any::<u8>(), any::<u32>()), 0..8),
        ) {
            let list: Vec<_> = choices.iter().map(|&(c, n)| parameter(&bytes, c, n)).collect();
            let mut out = Vec::new();
            for one in &list {
                one.emit(&mut out);
            }
            prop_assert_eq!(out.len() % 4, 0);
            let read: Result<Vec<_>, _> = Parameters::new(&out).collect();
            prop_assert_eq!(read.unwrap(), list);
        }
    }
}
