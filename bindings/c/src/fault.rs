//! Errors of calls: a number that C programs know, and a text.

use ringway_services::race::Cause;
use ringway_services::sending::SendError;
use ringway_services_tokio::Error;

/// The error of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fault {
    /// The number, as `errno` has it.
    pub(crate) errno: i32,
    /// What pi_error(3) returns.
    pub(crate) text: String,
}

impl Fault {
    pub(crate) fn new(errno: i32, text: impl Into<String>) -> Fault {
        Fault { errno, text: text.into() }
    }
}

impl From<rustix::io::Errno> for Fault {
    fn from(error: rustix::io::Errno) -> Fault {
        Fault::new(error.raw_os_error(), error.to_string())
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        let error = &error;
        let errno = match error {
            Error::Unfit(_) => libc::EPROTONOSUPPORT,
            Error::NotConnected(race) if race.cause == Cause::TimedOut => libc::ETIMEDOUT,
            Error::NotConnected(race) if race.attempts.is_empty() => libc::EHOSTUNREACH,
            Error::NotConnected(_) => libc::ECONNREFUSED,
            Error::NotListening(_) => libc::EADDRINUSE,
            Error::Message(SendError::TooLarge { .. } | SendError::NotSingular { .. })
            | Error::TooLarge { .. } => libc::EMSGSIZE,
            Error::Message(_) => libc::EINVAL,
            Error::Group(_) => libc::ENOBUFS,
            Error::Ended | Error::Closed => libc::EPIPE,
            Error::Aborted { .. } => libc::ECONNRESET,
            Error::Lost(_) => libc::ECONNABORTED,
            Error::Framing(_) => libc::EPROTO,
            Error::Expired => libc::ETIME,
            Error::Unsupported { .. } => libc::EOPNOTSUPP,
            Error::Security { .. } => libc::EKEYREJECTED,
            Error::System { error, .. } => error.raw_os_error().unwrap_or(libc::EIO),
            _ => libc::EIO,
        };
        Fault::new(errno, error.to_string())
    }
}
