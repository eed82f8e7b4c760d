//! Why a REGISTER fails, and what the answer says of it.

use ringway_sip::{HeaderId, Message, write};

/// Extensions a REGISTER may require of us (RFC 3261 section 10.3 step 2).
const EXTENSIONS: [&[u8]; 3] = [b"path", b"gruu", b"outbound"];

/// Seconds after which a client may try again when the store could take no more.
const RETRY_AFTER: u64 = 5;

/// Why a REGISTER fails: status, reason, and what the answer must carry besides.
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

    /// Appends the header fields that an answer with it must carry.
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

/// Extensions the request requires and that are not ours, in order.
pub(crate) fn unsupported<'m, 'a>(
    request: &'m Message<'a>,
) -> impl Iterator<Item = &'a [u8]> + use<'m, 'a> {
    request
        .items(HeaderId::Require)
        .filter(|option| !EXTENSIONS.iter().any(|known| known.eq_ignore_ascii_case(option)))
}
