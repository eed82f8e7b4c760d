//! Errors of the asynchronous SCTP API: a type for each kind of call.
//!
//! Their variants show whose fault an error is. `Refused` and `Address` are the caller's, or a limit that was reached. `Closed`
//! is the end of the association, with the peer's reason if it has one. `System` is the host's, and `Stopped` means that
//! the program has ended the stack or its runtime.

use super::limits::MAX_UDP_ADDRESSES;
use ringway_sctp::wire::MIN_A_RWND;
use ringway_sctp::{self as refusal, Close, SettingError};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

/// The system refused an operation.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{what}: {error}")]
#[non_exhaustive]
pub struct SystemError {
    /// The operation, in words.
    pub what: Arc<str>,
    /// The system's error.
    pub error: Arc<io::Error>,
}

impl SystemError {
    /// Creates an error of an operation.
    pub fn new(what: impl Into<Arc<str>>, error: io::Error) -> SystemError {
        SystemError { what: what.into(), error: Arc::new(error) }
    }
}

/// The stack no longer runs: it was closed, or its runtime ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the SCTP stack has stopped")]
pub struct Stopped;

/// An address that the call cannot use.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnusableAddress {
    /// A link-local IPv6 address (RFC 4291 section 2.5.6), which means nothing without an interface.
    #[error("{0}: expected an address that is not link-local")]
    LinkLocal(IpAddr),
    /// A multicast or broadcast address: an association is between two hosts (RFC 9260 section 1.2).
    #[error("{0}: expected a unicast address")]
    NotUnicast(IpAddr),
    /// In UDP: the stack has no socket at the local address.
    #[error("{0}: expected a local address of the stack, got another")]
    NotLocal(IpAddr),
}

impl UnusableAddress {
    fn kind(&self) -> io::ErrorKind {
        match self {
            UnusableAddress::NotLocal(_) => io::ErrorKind::AddrNotAvailable,
            _ => io::ErrorKind::InvalidInput,
        }
    }
}

/// The reason why a stack or its sockets are not opened.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// An address cannot be used.
    #[error(transparent)]
    Address(#[from] UnusableAddress),
    /// In UDP: more addresses than a stack may have.
    #[error("expected at most {MAX_UDP_ADDRESSES} local addresses in UDP, got one more")]
    TooManyAddresses,
    /// In UDP and with the kernel's SCTP a listener needs an explicit port.
    #[error("expected an SCTP port of 1 to 65535, got 0")]
    MissingPort,
    /// No ephemeral port is free.
    #[error("no ephemeral port is free")]
    NoPort,
    /// A setting is out of its bounds.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The system refused an operation.
    #[error(transparent)]
    System(#[from] SystemError),
}

impl OpenError {
    /// Returns the error for an SCTP port that is already in use.
    pub fn in_use(port: u16) -> OpenError {
        SystemError::new(format!("sctp port {port}"), io::ErrorKind::AddrInUse.into()).into()
    }

    /// Returns the kind of the system's error, or the kind that fits another error best.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            OpenError::System(system) => system.error.kind(),
            OpenError::Address(address) => address.kind(),
            OpenError::NoPort => io::ErrorKind::AddrNotAvailable,
            _ => io::ErrorKind::InvalidInput,
        }
    }
}

/// The reason why a stack does not listen.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// An address cannot be used.
    #[error(transparent)]
    Address(#[from] UnusableAddress),
    /// The protocol refuses the call.
    #[error(transparent)]
    Refused(#[from] refusal::ListenError),
    /// The stack no longer runs.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The system refused an operation.
    #[error(transparent)]
    System(#[from] SystemError),
}

impl ListenError {
    /// Returns the kind of the system's error, or the kind that fits another error best; `AddrInUse` also
    /// for a port that is in use in this stack.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            ListenError::System(system) => system.error.kind(),
            ListenError::Address(address) => address.kind(),
            ListenError::Refused(refusal::ListenError::InUse) => io::ErrorKind::AddrInUse,
            ListenError::Refused(_) => io::ErrorKind::InvalidInput,
            ListenError::Stopped(_) => io::ErrorKind::NotConnected,
        }
    }
}

/// The reason why a listener accepts nothing any more.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// The stack no longer runs.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The system refused an operation.
    #[error(transparent)]
    System(#[from] SystemError),
}

impl AcceptError {
    /// Returns the kind of the system's error, or the kind that fits another error best.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            AcceptError::System(system) => system.error.kind(),
            AcceptError::Stopped(_) => io::ErrorKind::NotConnected,
        }
    }
}

/// The reason why an association is not opened.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// An address cannot be used.
    #[error(transparent)]
    Address(#[from] UnusableAddress),
    /// The protocol refuses the call.
    #[error(transparent)]
    Refused(#[from] refusal::ConnectError),
    /// The association has ended before it was established, or soon after.
    #[error("the association has ended: {}", CloseText(.0))]
    Closed(Close),
    /// The stack no longer runs.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The system refused an operation.
    #[error(transparent)]
    System(#[from] SystemError),
}

impl ConnectError {
    /// Returns the kind of the system's error, or the kind that fits another error best; `AddrInUse` also
    /// for a port that is in use in this stack.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            ConnectError::System(system) => system.error.kind(),
            ConnectError::Address(address) => address.kind(),
            ConnectError::Refused(refusal::ConnectError::InUse) => io::ErrorKind::AddrInUse,
            ConnectError::Refused(_) => io::ErrorKind::InvalidInput,
            ConnectError::Closed(why) => kind_of(why),
            ConnectError::Stopped(_) => io::ErrorKind::NotConnected,
        }
    }
}

/// The association can no longer be used: it has ended, or its stack has.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndedError {
    /// The association has ended.
    #[error("the association has ended: {}", CloseText(.0))]
    Closed(Close),
    /// The stack no longer runs.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The system refused an operation.
    #[error(transparent)]
    System(#[from] SystemError),
}

impl EndedError {
    /// Returns the kind of the system's error, or the kind that fits another error best.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            EndedError::System(system) => system.error.kind(),
            EndedError::Closed(why) => kind_of(why),
            EndedError::Stopped(_) => io::ErrorKind::NotConnected,
        }
    }

    /// Returns how the association ended, if it has.
    pub fn closed(&self) -> Option<&Close> {
        if let EndedError::Closed(why) = self { Some(why) } else { None }
    }
}

/// The reason why a call of an association does nothing. `E` is the reason why the protocol refuses it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError<E: std::error::Error + 'static> {
    /// The protocol refuses the call, because of its arguments, a limit, or the association's state.
    #[error(transparent)]
    Refused(E),
    /// The association has ended.
    #[error("the association has ended: {}", CloseText(.0))]
    Closed(Close),
    /// The stack no longer runs.
    #[error(transparent)]
    Stopped(Stopped),
    /// The system refused an operation.
    #[error(transparent)]
    System(SystemError),
}

/// The reason why a message is not sent.
pub type SendError = CallError<refusal::SendError>;

/// The reason why a local address is not added.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddAddressError {
    /// The address cannot be used.
    #[error(transparent)]
    Address(#[from] UnusableAddress),
    /// In UDP: the stack has sockets at the maximum number of addresses.
    #[error("expected at most {MAX_UDP_ADDRESSES} local addresses in UDP, got one more")]
    TooManyAddresses,
    /// No socket could be opened at the address.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The call does nothing.
    #[error(transparent)]
    Call(#[from] CallError<refusal::AddressError>),
}

impl AddAddressError {
    /// Returns the kind of the system's error, or the kind that fits another error best.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            AddAddressError::System(system) | AddAddressError::Call(CallError::System(system)) => {
                system.error.kind()
            }
            AddAddressError::Call(CallError::Closed(why)) => kind_of(why),
            AddAddressError::Call(CallError::Stopped(_)) => io::ErrorKind::NotConnected,
            _ => io::ErrorKind::InvalidInput,
        }
    }
}

impl<E: std::error::Error + 'static> CallError<E> {
    /// Returns the kind of the system's error, or the kind that fits another error best.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            CallError::System(system) => system.error.kind(),
            CallError::Closed(why) => kind_of(why),
            CallError::Stopped(_) => io::ErrorKind::NotConnected,
            CallError::Refused(_) => io::ErrorKind::InvalidInput,
        }
    }

    /// Returns how the association ended, if it has.
    pub fn closed(&self) -> Option<&Close> {
        if let CallError::Closed(why) = self { Some(why) } else { None }
    }
}

impl From<EndedError> for ConnectError {
    fn from(error: EndedError) -> ConnectError {
        match error {
            EndedError::Closed(why) => ConnectError::Closed(why),
            EndedError::Stopped(stopped) => ConnectError::Stopped(stopped),
            EndedError::System(system) => ConnectError::System(system),
        }
    }
}

impl<E: std::error::Error + 'static> From<EndedError> for CallError<E> {
    fn from(error: EndedError) -> CallError<E> {
        match error {
            EndedError::Closed(why) => CallError::Closed(why),
            EndedError::Stopped(stopped) => CallError::Stopped(stopped),
            EndedError::System(system) => CallError::System(system),
        }
    }
}

impl<E: std::error::Error + 'static> From<Stopped> for CallError<E> {
    fn from(stopped: Stopped) -> CallError<E> {
        CallError::Stopped(stopped)
    }
}

/// For callers whose errors are those of the system: what the system has said with its number, and anything else with its
/// kind and the error itself.
macro_rules! into_io {
    ($($error:ident),+) => {$(
        impl From<$error> for io::Error {
            fn from(error: $error) -> io::Error {
                let number = match &error {
                    $error::System(system) => system.error.raw_os_error(),
                    _ => None,
                };
                number.map_or_else(|| io::Error::new(error.kind(), error), io::Error::from_raw_os_error)
            }
        }
    )+};
}

into_io!(OpenError, ListenError, AcceptError, ConnectError, EndedError, SendError);

/// Returns the kind of error that fits the end of an association best.
fn kind_of(why: &Close) -> io::ErrorKind {
    match why {
        Close::Unreachable => io::ErrorKind::TimedOut,
        Close::SmallWindow { .. } => io::ErrorKind::ResourceBusy,
        Close::Aborted { .. } => io::ErrorKind::ConnectionReset,
        _ => io::ErrorKind::NotConnected,
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
