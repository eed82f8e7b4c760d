//! Errors of calls.

use ringway_sctp_tokio::OpenError;
use ringway_services::framing::FramingError;
use ringway_services::pool::PoolError;
use ringway_services::race::RaceError;
use ringway_services::sending::SendError;
use ringway_services::{Protocol, Unfit};
use std::io;
use std::sync::Arc;

/// An error of a call.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No protocol fits: which requirement excludes what.
    #[error(transparent)]
    Unfit(Box<Unfit>),
    /// No attempt connected: what became of each.
    #[error(transparent)]
    NotConnected(Box<RaceError>),
    /// Nothing could be listened with: each protocol that fits, and its error.
    #[error("nothing to listen with{}", List(.0))]
    NotListening(Vec<(Protocol, Arc<str>)>),
    /// The properties of a message contradict the connection.
    #[error(transparent)]
    Message(#[from] SendError),
    /// A limit of connections is reached, or the group has none left.
    #[error(transparent)]
    Group(#[from] PoolError),
    /// The last message was sent before (RFC 9622 section 9.1.3.5).
    #[error("the last message of the connection has been sent")]
    Ended,
    /// The connection was closed or aborted here.
    #[error("the connection has been closed")]
    Closed,
    /// The peer has aborted the connection.
    #[error("the peer has aborted the connection with code {code}")]
    Aborted {
        /// The code that it gave, 0 if the protocol carries none.
        code: u32,
    },
    /// The transport connection has ended without the peer having closed the connection.
    #[error("the transport connection is lost: {0}")]
    Lost(Arc<str>),
    /// The peer breaks the format of the framing, or does not use it.
    #[error(transparent)]
    Framing(#[from] FramingError),
    /// The lifetime of the message was over before it could be handed to the transport (RFC 9622 section 9.2.2.2).
    #[error("the lifetime of the message was over before it was sent")]
    Expired,
    /// A received message is larger than the limit.
    #[error("expected a message of at most {max} octets (recvMsgMaxLen), got more")]
    TooLarge {
        /// The limit.
        max: usize,
    },
    /// The protocol of the connection cannot do what was called for.
    #[error("{protocol} cannot {what}", protocol = .protocol.title())]
    Unsupported {
        /// The protocol.
        protocol: Protocol,
        /// The action.
        what: &'static str,
    },
    /// A certificate, key or trust anchor cannot be used.
    #[error("{what}: {error}")]
    Security {
        /// What cannot be used.
        what: Arc<str>,
        /// Why.
        error: Arc<str>,
    },
    /// The system refused an operation.
    #[error("{what}: {error}")]
    System {
        /// The operation.
        what: Arc<str>,
        /// The system's error.
        error: Arc<io::Error>,
    },
}

/// Returns whether an error of the system is that there are no descriptors left.
fn is_exhaustion(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

impl Error {
    pub(crate) fn system(what: impl Into<Arc<str>>, error: io::Error) -> Error {
        Error::System { what: what.into(), error: Arc::new(error) }
    }

    pub(crate) fn security(what: impl Into<Arc<str>>, error: impl ToString) -> Error {
        Error::Security { what: what.into(), error: error.to_string().into() }
    }

    pub(crate) fn lost(error: impl ToString) -> Error {
        Error::Lost(error.to_string().into())
    }

    /// Returns whether the process or the host has no descriptors left, which is no fault of the peer or the protocol.
    pub(crate) fn is_exhaustion(&self) -> bool {
        let Error::System { error, .. } = self else { return false };
        let of_sctp = error.get_ref().and_then(|inner| inner.downcast_ref::<OpenError>());
        of_sctp.map_or(is_exhaustion(error), |error| match error {
            OpenError::System(system) => is_exhaustion(&system.error),
            _ => false,
        })
    }

    /// Returns the kind of the system's error, or the one that fits best.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Error::System { error, .. } => error.kind(),
            Error::NotConnected(_) => io::ErrorKind::NotConnected,
            Error::Aborted { .. } => io::ErrorKind::ConnectionReset,
            Error::Lost(_) => io::ErrorKind::ConnectionAborted,
            Error::Ended | Error::Closed => io::ErrorKind::BrokenPipe,
            Error::Expired => io::ErrorKind::TimedOut,
            Error::Framing(_) | Error::TooLarge { .. } => io::ErrorKind::InvalidData,
            Error::Group(_) => io::ErrorKind::QuotaExceeded,
            Error::Unsupported { .. } => io::ErrorKind::Unsupported,
            Error::NotListening(_) => io::ErrorKind::AddrNotAvailable,
            Error::Unfit(_) | Error::Message(_) | Error::Security { .. } => {
                io::ErrorKind::InvalidInput
            }
        }
    }
}

impl From<Unfit> for Error {
    fn from(unfit: Unfit) -> Error {
        Error::Unfit(Box::new(unfit))
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}

/// Prints protocols with their errors.
struct List<'a>(&'a [(Protocol, Arc<str>)]);

impl std::fmt::Display for List<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|(protocol, error)| write!(f, "; {}: {error}", protocol.title()))
    }
}
