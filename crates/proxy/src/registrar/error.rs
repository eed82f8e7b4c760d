//! Errors of a REGISTER, and their responses.

use ringway_sip::{HeaderId, Message, write};

/// The extensions that a REGISTER may require (RFC 3261 section 10.3 step 2).
const EXTENSIONS: [&[u8]; 3] = [b"path", b"gruu", b"outbound"];

/// Seconds after which a client may try again if the store is overloaded.
const RETRY_AFTER: u64 = 5;

/// The error of a REGISTER: status, reason, and the header field of the response.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegisterError {
    pub(super) status: u16,
    pub(super) reason: &'static str,
    pub(super) header: Option<ErrorHeader>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ErrorHeader {
    MinExpires(u32),
    RetryAfter,
    /// `Unsupported: path`; unknown extensions are listed from the request.
    PathUnsupported,
    Unsupported,
}

impl RegisterError {
    pub(super) const fn new(status: u16, reason: &'static str) -> Self {
        RegisterError { status, reason, header: None }
    }

    /// Appends the header fields of the response.
    pub(super) fn write(&self, headers: &mut Vec<u8>, request: &Message<'_>) {
        match self.header {
            None => {}
            Some(ErrorHeader::MinExpires(seconds)) => {
                write::header_decimal(headers, "Min-Expires", u64::from(seconds));
            }
            Some(ErrorHeader::RetryAfter) => {
                write::header_decimal(headers, "Retry-After", RETRY_AFTER);
            }
            Some(ErrorHeader::PathUnsupported) => write::header(headers, "Unsupported", b"path"),
            Some(ErrorHeader::Unsupported) => {
                for option in unsupported(request) {
                    write::header(headers, "Unsupported", option);
                }
            }
        }
    }
}

/// Returns the required extensions that are not supported, in order.
pub(crate) fn unsupported<'m, 'a>(
    request: &'m Message<'a>,
) -> impl Iterator<Item = &'a [u8]> + use<'m, 'a> {
    request
        .items(HeaderId::Require)
        .filter(|option| !EXTENSIONS.iter().any(|known| known.eq_ignore_ascii_case(option)))
}
