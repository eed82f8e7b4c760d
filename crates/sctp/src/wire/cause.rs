//! Error causes of ERROR and ABORT (RFC 9260 section 3.3.10).

use super::{Tlvs, WireError, put_tlv, u16_at, u32_at};

/// Cause codes.
pub mod code {
    #![allow(missing_docs)]
    pub const INVALID_STREAM: u16 = 1;
    pub const MISSING_PARAMETER: u16 = 2;
    pub const STALE_COOKIE: u16 = 3;
    pub const OUT_OF_RESOURCE: u16 = 4;
    pub const UNRESOLVABLE_ADDRESS: u16 = 5;
    pub const UNRECOGNIZED_CHUNK: u16 = 6;
    pub const INVALID_PARAMETER: u16 = 7;
    pub const UNRECOGNIZED_PARAMETERS: u16 = 8;
    pub const NO_USER_DATA: u16 = 9;
    pub const COOKIE_WHILE_SHUTTING_DOWN: u16 = 10;
    pub const RESTART_WITH_NEW_ADDRESSES: u16 = 11;
    pub const USER_ABORT: u16 = 12;
    pub const PROTOCOL_VIOLATION: u16 = 13;
    /// RFC 5061 section 4.3.
    pub const DELETE_LAST_ADDRESS: u16 = 0xa0;
    pub const RESOURCE_SHORTAGE: u16 = 0xa1;
    pub const DELETE_SOURCE_ADDRESS: u16 = 0xa2;
    pub const ILLEGAL_ASCONF_ACK: u16 = 0xa3;
    pub const NO_AUTHORIZATION: u16 = 0xa4;
    /// RFC 4895 section 4.1.
    pub const UNSUPPORTED_HMAC: u16 = 0x105;
}

/// An error cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Cause<'a> {
    /// DATA for a stream that does not exist.
    InvalidStream(u16),
    /// A mandatory parameter is missing; the first one in the list.
    MissingParameter(u16),
    /// The time in microseconds since the cookie expired.
    StaleCookie(u32),
    /// Out of resource.
    OutOfResource,
    /// The complete address parameter.
    UnresolvableAddress(&'a [u8]),
    /// The complete chunk.
    UnrecognizedChunk(&'a [u8]),
    /// A parameter has an invalid value.
    InvalidParameter,
    /// The complete parameters.
    UnrecognizedParameters(&'a [u8]),
    /// The TSN of a DATA chunk without data.
    NoUserData(u32),
    /// A cookie came while the association was shutting down.
    CookieWhileShuttingDown,
    /// The address parameters that are new.
    RestartWithNewAddresses(&'a [u8]),
    /// The user's reason.
    UserAbort(&'a [u8]),
    /// A text about the violation.
    ProtocolViolation(&'a [u8]),
    /// A code of an extension.
    Other(u16, &'a [u8]),
}

/// An iterator over causes. It ends after an error.
#[derive(Clone, Copy, Debug)]
pub struct Causes<'a>(Tlvs<'a>);

impl<'a> Causes<'a> {
    /// Creates an iterator over the causes in `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Causes(Tlvs { rest: bytes })
    }
}

impl<'a> Iterator for Causes<'a> {
    type Item = Result<Cause<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let tlv = match self.0.next("an error cause")? {
            Ok(tlv) => tlv,
            Err(error) => return Some(Err(error)),
        };
        let value = tlv.value;
        let short = |what, expected| WireError::Short { what, expected, got: value.len() };
        Some(match tlv.kind {
            code::INVALID_STREAM if value.len() < 4 => Err(short("an invalid stream cause", 4)),
            code::INVALID_STREAM => Ok(Cause::InvalidStream(u16_at(value, 0))),
            code::MISSING_PARAMETER if value.len() < 6 => {
                Err(short("a missing parameter cause", 6))
            }
            code::MISSING_PARAMETER => Ok(Cause::MissingParameter(u16_at(value, 4))),
            code::STALE_COOKIE if value.len() < 4 => Err(short("a stale cookie cause", 4)),
            code::STALE_COOKIE => Ok(Cause::StaleCookie(u32_at(value, 0))),
            code::OUT_OF_RESOURCE => Ok(Cause::OutOfResource),
            code::UNRESOLVABLE_ADDRESS => Ok(Cause::UnresolvableAddress(value)),
            code::UNRECOGNIZED_CHUNK => Ok(Cause::UnrecognizedChunk(value)),
            code::INVALID_PARAMETER => Ok(Cause::InvalidParameter),
            code::UNRECOGNIZED_PARAMETERS => Ok(Cause::UnrecognizedParameters(value)),
            code::NO_USER_DATA if value.len() < 4 => Err(short("a no user data cause", 4)),
            code::NO_USER_DATA => Ok(Cause::NoUserData(u32_at(value, 0))),
            code::COOKIE_WHILE_SHUTTING_DOWN => Ok(Cause::CookieWhileShuttingDown),
            code::RESTART_WITH_NEW_ADDRESSES => Ok(Cause::RestartWithNewAddresses(value)),
            code::USER_ABORT => Ok(Cause::UserAbort(value)),
            code::PROTOCOL_VIOLATION => Ok(Cause::ProtocolViolation(value)),
            other => Ok(Cause::Other(other, value)),
        })
    }
}

impl Cause<'_> {
    /// Returns the cause code.
    pub const fn code(&self) -> u16 {
        match self {
            Cause::InvalidStream(_) => code::INVALID_STREAM,
            Cause::MissingParameter(_) => code::MISSING_PARAMETER,
            Cause::StaleCookie(_) => code::STALE_COOKIE,
            Cause::OutOfResource => code::OUT_OF_RESOURCE,
            Cause::UnresolvableAddress(_) => code::UNRESOLVABLE_ADDRESS,
            Cause::UnrecognizedChunk(_) => code::UNRECOGNIZED_CHUNK,
            Cause::InvalidParameter => code::INVALID_PARAMETER,
            Cause::UnrecognizedParameters(_) => code::UNRECOGNIZED_PARAMETERS,
            Cause::NoUserData(_) => code::NO_USER_DATA,
            Cause::CookieWhileShuttingDown => code::COOKIE_WHILE_SHUTTING_DOWN,
            Cause::RestartWithNewAddresses(_) => code::RESTART_WITH_NEW_ADDRESSES,
            Cause::UserAbort(_) => code::USER_ABORT,
            Cause::ProtocolViolation(_) => code::PROTOCOL_VIOLATION,
            Cause::Other(code, _) => *code,
        }
    }

    /// Appends the cause and its padding.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let code = self.code();
        match *self {
            Cause::InvalidStream(stream) => put_tlv(out, code, &[&stream.to_be_bytes(), &[0; 2]]),
            Cause::MissingParameter(kind) => {
                put_tlv(out, code, &[&1u32.to_be_bytes(), &kind.to_be_bytes()]);
            }
            Cause::StaleCookie(number) | Cause::NoUserData(number) => {
                put_tlv(out, code, &[&number.to_be_bytes()]);
            }
            Cause::OutOfResource | Cause::InvalidParameter | Cause::CookieWhileShuttingDown => {
                put_tlv(out, code, &[]);
            }
            Cause::UnresolvableAddress(value)
            | Cause::UnrecognizedChunk(value)
            | Cause::UnrecognizedParameters(value)
            | Cause::RestartWithNewAddresses(value)
            | Cause::UserAbort(value)
            | Cause::ProtocolViolation(value)
            | Cause::Other(_, value) => put_tlv(out, code, &[value]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// RFC 9260 sections 3.3.10.1 to 3.3.10.13.
        #[test]
        fn emitted_bytes_are_parsed_back(
            bytes in proptest::collection::vec(any::<u8>(), 0..40), number in any::<u32>(),
        ) {
            let list = [
                Cause::InvalidStream(number as u16),
                Cause::MissingParameter(number as u16),
                Cause::StaleCookie(number),
                Cause::OutOfResource,
                Cause::UnresolvableAddress(&bytes),
                Cause::UnrecognizedChunk(&bytes),
                Cause::InvalidParameter,
                Cause::UnrecognizedParameters(&bytes),
                Cause::NoUserData(number),
                Cause::CookieWhileShuttingDown,
                Cause::RestartWithNewAddresses(&bytes),
                Cause::UserAbort(&bytes),
                Cause::ProtocolViolation(&bytes),
                Cause::Other(0xa0, &bytes),
            ];
            let mut out = Vec::new();
            for one in &list {
                one.emit(&mut out);
            }
            let read: Result<Vec<_>, _> = Causes::new(&out).collect();
            prop_assert_eq!(read.unwrap(), list);
        }
    }
}
