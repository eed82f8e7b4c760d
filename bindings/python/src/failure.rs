//! Errors as exceptions.

use pyo3::PyErr;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use ringway_lab::commands::Failure;
use std::fmt::Display;

create_exception!(ringway, Error, PyException, "A command of Ringway failed; the text says why.");
create_exception!(
    ringway,
    UsageError,
    Error,
    "An argument names something that does not exist, or is out of its bounds."
);

/// Returns the exception of a failure: a line for each mistake.
pub(crate) fn failure(failure: Failure) -> PyErr {
    match failure {
        Failure::Usage(lines) => UsageError::new_err(lines.join("\n")),
        Failure::Failed(lines) => Error::new_err(lines.join("\n")),
    }
}

/// Returns the exception of a wrong argument.
pub(crate) fn usage(what: impl Display) -> PyErr {
    UsageError::new_err(what.to_string())
}

/// Returns the exception of any other error.
pub(crate) fn failed(what: impl Display) -> PyErr {
    Error::new_err(what.to_string())
}
