//! What can stop a run before it has a result. Everything a server does wrong is not an error but
//! a count in the report.

use std::io;

/// A run that could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// The machine refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was being done, and to what.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The options contradict each other or ask for the impossible.
    #[error("{0}")]
    Usage(String),
    /// The users could not be registered, so that no call can be placed.
    #[error("{done} of {wanted} users registered, then no answer came within {seconds} s{note}")]
    NotRegistered {
        /// Users the server accepted.
        done: u64,
        /// Users that were to be registered.
        wanted: u64,
        /// How long nothing moved.
        seconds: u64,
        /// The last refusal, if there was one.
        note: String,
    },
    /// A worker thread ended by a panic.
    #[error("a worker of the generator broke down")]
    Worker,
}

/// Attaches what was being done to a system error.
pub(crate) fn doing<T>(what: impl Into<String>, result: io::Result<T>) -> Result<T, Error> {
    result.map_err(|source| Error::Io { what: what.into(), source })
}
