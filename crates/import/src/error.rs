//! Reasons why a file as a whole cannot be read.

use crate::found::{Position, shown};
use std::fmt;

/// Reason why a file cannot be read; no user of it is returned.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FileError {
    /// It is no file of the kind.
    Format {
        /// The file, and the line up to which it was read.
        at: Position,
        /// What was expected.
        expected: &'static str,
    },
    /// Something in it violates the syntax.
    Syntax {
        /// Where.
        at: Position,
        /// What was expected.
        expected: &'static str,
        /// What was found.
        got: &'static str,
    },
    /// Text that is needed is not UTF-8.
    Encoding {
        /// Where.
        at: Position,
    },
    /// It exceeds a limit.
    Limit {
        /// Where.
        at: Position,
        /// What is limited.
        what: &'static str,
        /// The limit.
        max: usize,
    },
    /// A file that it includes cannot be read.
    Include {
        /// Where it is included.
        at: Position,
        /// The name of the file.
        name: String,
        /// Why it cannot be read.
        why: String,
    },
    /// A section names another one that does not exist before it.
    Section {
        /// Where.
        at: Position,
        /// The name of the missing section.
        name: String,
    },
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::Format { at, expected } => write!(f, "{at}: expected {expected}"),
            FileError::Syntax { at, expected, got } => {
                write!(f, "{at}: expected {expected}, got {got}")
            }
            FileError::Encoding { at } => write!(f, "{at}: expected UTF-8"),
            FileError::Limit { at, what, max } => {
                write!(f, "{at}: {what}: expected at most {max}")
            }
            FileError::Include { at, name, why } => {
                write!(f, "{at}: #include {}: {why}", shown(name))
            }
            FileError::Section { at, name } => {
                write!(f, "{at}: section {} does not exist", shown(name))
            }
        }
    }
}

impl std::error::Error for FileError {}
