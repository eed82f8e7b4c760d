//! Failures of a measurement.

use crate::out::CommandError;
use std::fmt;
use std::time::Duration;

/// Time after which a server counts as silent: when it accepts no data, or sends no answer while
/// opening or echoing, over a reliable transport.
pub(super) const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);

/// Reason why a measurement failed.
pub(crate) enum PerfError {
    /// Wrong usage.
    Usage(String),
    /// A failure at run time.
    Failed(String),
}

impl PerfError {
    /// Creates a failure of `what`.
    pub(super) fn at(what: impl fmt::Display, error: impl fmt::Display) -> PerfError {
        PerfError::Failed(format!("{what}: {error}"))
    }

    /// Adds a context to a failure; wrong usage stays unchanged.
    pub(super) fn within(self, what: impl fmt::Display) -> PerfError {
        match self {
            PerfError::Failed(text) => PerfError::at(what, text),
            usage => usage,
        }
    }
}

pub(super) fn silence_error() -> PerfError {
    PerfError::Failed("the server does not answer".to_owned())
}

impl From<CommandError> for PerfError {
    fn from(fail: CommandError) -> PerfError {
        PerfError::Failed(fail.0.join("; "))
    }
}
