//! Errors of the asynchronous SCTP API.

use super::limits::MAX_UDP_ADDRESSES;
use ringway_sctp::Close;
use ringway_sctp::wire::MIN_A_RWND;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

/// An error of a call to the asynchronous SCTP.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The protocol refuses the call, because of its arguments or of the association's state.
    #[error(transparent)]
    Refused(#[from] ringway_sctp::Error),
    /// The association has ended.
    #[error("the association has ended: {}", CloseText(.0))]
    Closed(Close),
    /// The stack no longer runs: it was closed, or its runtime ended.
    #[error("the SCTP stack has stopped")]
    Stopped,
    /// A link-local IPv6 address (RFC 4291 section 2.5.6), which means nothing without an interface.
    #[error("{0}: expected an address that is not link-local")]
    LinkLocal(IpAddr),
    /// A multicast or broadcast address: an association is between two hosts (RFC 9260 section 1.2).
    #[error("{0}: expected a unicast address")]
    NotUnicast(IpAddr),
    /// In UDP a listener needs an explicit port.
    #[error("expected an SCTP port of 1 to 65535, got 0")]
    MissingPort,
    /// In UDP: the stack has no socket at the local address.
    #[error("{0}: expected a local address of the stack, got another")]
    NotLocal(IpAddr),
    /// In UDP: the stack has sockets at the maximum number of addresses.
    #[error("expected at most {MAX_UDP_ADDRESSES} local addresses in UDP, got one more")]
    TooManyAddresses,
    /// The system refused an operation.
    #[error("{what}: {error}")]
    System {
        /// The operation, in words.
        what: Arc<str>,
        /// The system's error.
        error: Arc<io::Error>,
    },
}

impl Error {
    pub(super) fn system(what: impl Into<Arc<str>>, error: io::Error) -> Error {
        Error::System { what: what.into(), error: Arc::new(error) }
    }

    /// Returns the error for an SCTP port that is already in use.
    pub fn in_use(port: u16) -> Error {
        Error::system(format!("sctp port {port}"), io::ErrorKind::AddrInUse.into())
    }

    /// Returns the kind of the system's error, or the kind that fits another error best; `AddrInUse` also
    /// for a port that is in use in this stack.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Error::System { error, .. } => error.kind(),
            Error::Refused(ringway_sctp::Error::InUse) => io::ErrorKind::AddrInUse,
            Error::Closed(Close::Unreachable) => io::ErrorKind::TimedOut,
            Error::Closed(Close::SmallWindow { .. }) => io::ErrorKind::ResourceBusy,
            Error::Closed(Close::Aborted { .. }) => io::ErrorKind::ConnectionReset,
            Error::Closed(_) | Error::Stopped => io::ErrorKind::NotConnected,
            Error::Refused(_)
            | Error::LinkLocal(_)
            | Error::NotUnicast(_)
            | Error::TooManyAddresses
            | Error::MissingPort => io::ErrorKind::InvalidInput,
            Error::NotLocal(_) => io::ErrorKind::AddrNotAvailable,
        }
    }
}

/// Prints how an association ended.
struct CloseText<'a>(&'a Close);

impl fmt::Display for CloseText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Close::Finished => f.write_str("shut down gracefully"),
            Close::Unreachable => f.write_str("the peer does not answer"),
            Close::SmallWindow { a_rwnd } => write!(
                f,
                "the peer is busy: expected a receive window of {MIN_A_RWND} bytes or more, got {a_rwnd}"
            ),
            // An ICMP message, or an ABORT for an OOTB packet (RFC 9260 section 8.4).
            Close::Aborted { code: 0, reason } if reason.is_empty() => {
                f.write_str("refused, or aborted without a cause")
            }
            Close::Aborted { code, reason } if reason.is_empty() => {
                write!(f, "aborted with cause {code}")
            }
            Close::Aborted { code, reason } => {
                let reason = String::from_utf8_lossy(reason);
                write!(f, "aborted with cause {code}: {reason:?}")
            }
            Close::Violation(rule) => write!(f, "the peer broke a rule: {rule}"),
            Close::ShutdownTimeout => f.write_str("the shutdown took too long"),
            other => write!(f, "{other:?}"),
        }
    }
}
