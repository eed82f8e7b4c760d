//! What serde finds wrong, as data: the derived code reports an unknown key with its name and the
//! known ones, a mismatch with the value and what was expected, and so on.

use crate::nearest::{list, nearest, unknown};
use serde::de::{Expected, Unexpected};
use std::fmt;
use toml::de::DeValue;

/// One step from a value to one below it.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

/// What is wrong with a value.
#[derive(Debug)]
pub(crate) enum Kind {
    UnknownKey { key: String, known: &'static [&'static str] },
    UnknownWord { got: Got, known: &'static [&'static str] },
    MissingKey(&'static str),
    Mismatch { expected: String, got: Got },
    Length { expected: String, got: usize },
    Other(String),
}

/// One thing wrong, and where.
#[derive(Debug)]
pub(crate) struct Error {
    pub(crate) kind: Kind,
    /// From the value that is read to the one that is wrong, the last step first.
    pub(crate) steps: Vec<Step>,
    /// Whether the steps begin at the value that is wrong.
    pub(crate) is_located: bool,
}

impl From<Kind> for Error {
    fn from(kind: Kind) -> Self {
        Error { kind, steps: Vec::new(), is_located: false }
    }
}

impl Error {
    /// What is wrong; `more` are keys that are known besides those serde knows.
    pub(crate) fn what(&self, more: &[&str]) -> String {
        match &self.kind {
            Kind::UnknownKey { key, known } => unknown(key, &[known, more].concat()),
            Kind::UnknownWord { got, known } => {
                let near = match got {
                    Got::Text(word) => nearest(word, known),
                    _ => None,
                };
                let near = near.map_or(String::new(), |n| format!("; did you mean \"{n}\"?"));
                format!("expected one of {}, got {got}{near}", list(known))
            }
            Kind::MissingKey(key) => format!("the key `{key}` is missing"),
            Kind::Mismatch { expected, got } => format!("expected {expected}, got {got}"),
            Kind::Length { expected, got } => format!("expected {expected}, got a list of {got}"),
            Kind::Other(what) => what.clone(),
        }
    }

    /// Whether a value below the one where serde reported this may be meant, and is this one.
    pub(crate) fn means(&self, value: &DeValue<'_>) -> bool {
        match &self.kind {
            Kind::UnknownWord { got, .. } | Kind::Mismatch { got, .. } => got.is(value),
            _ => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what(&[]))
    }
}

impl std::error::Error for Error {}

impl serde::de::Error for Error {
    fn custom<T: fmt::Display>(what: T) -> Self {
        Kind::Other(what.to_string()).into()
    }

    fn invalid_type(got: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Kind::Mismatch { expected: in_words(expected.to_string()), got: got.into() }.into()
    }

    fn invalid_value(got: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(got, expected)
    }

    fn invalid_length(got: usize, expected: &dyn Expected) -> Self {
        Kind::Length { expected: expected.to_string(), got }.into()
    }

    fn unknown_variant(got: &str, known: &'static [&'static str]) -> Self {
        Kind::UnknownWord { got: Got::Text(got.into()), known }.into()
    }

    fn unknown_field(key: &str, known: &'static [&'static str]) -> Self {
        Kind::UnknownKey { key: key.into(), known }.into()
    }

    fn missing_field(key: &'static str) -> Self {
        Kind::MissingKey(key).into()
    }
}

/// Serde names a number by its type in Rust.
fn in_words(expected: String) -> String {
    match expected.as_str() {
        "u8" => "a whole number from 0 to 255".into(),
        "u16" => "a whole number from 0 to 65535".into(),
        "u32" => "a whole number from 0 to 4294967295".into(),
        "u64" | "usize" => "a whole number from 0".into(),
        "i64" => "a whole number".into(),
        "f64" => "a number".into(),
        _ => expected,
    }
}

/// A value as serde reports it.
#[derive(Debug)]
pub(crate) enum Got {
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    Other(String),
}

impl Got {
    fn is(&self, value: &DeValue<'_>) -> bool {
        match (self, value) {
            (Got::Bool(a), DeValue::Boolean(b)) => a == b,
            (Got::Integer(a), DeValue::Integer(b)) => {
                i128::from_str_radix(b.as_str(), b.radix()) == Ok(*a)
            }
            (Got::Float(a), DeValue::Float(b)) => b.as_str().parse() == Ok(*a),
            (Got::Text(a), DeValue::String(b)) => a == b,
            _ => false,
        }
    }
}

impl From<Unexpected<'_>> for Got {
    fn from(got: Unexpected<'_>) -> Self {
        match got {
            Unexpected::Bool(value) => Got::Bool(value),
            Unexpected::Signed(value) => Got::Integer(value.into()),
            Unexpected::Unsigned(value) => Got::Integer(value.into()),
            Unexpected::Float(value) => Got::Float(value),
            Unexpected::Char(value) => Got::Text(value.into()),
            Unexpected::Str(value) => Got::Text(value.into()),
            Unexpected::Seq => Got::Other("a list".into()),
            Unexpected::Map => Got::Other("a table".into()),
            other => Got::Other(other.to_string()),
        }
    }
}

impl fmt::Display for Got {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Got::Bool(value) => write!(f, "{value}"),
            Got::Integer(value) => write!(f, "the number {value}"),
            Got::Float(value) => write!(f, "the number {value}"),
            Got::Text(value) => f.write_str(&quoted(value)),
            Got::Other(what) => f.write_str(what),
        }
    }
}

/// Longest string that is quoted in a message, in bytes.
const MAX_TEXT: usize = 80;

/// A string as a message shows it.
pub(crate) fn quoted(text: &str) -> String {
    if text.len() > MAX_TEXT {
        return format!("a string of {} bytes", text.len());
    }
    format!("{text:?}")
}
